//! The time that a peer has to read one of its refusals, on one lane.
//!
//! ```text
//!   Calm --- as many refusals wait as may ---> Counting --- the time is over ---> the lane is given up
//!     ^                                        |      ^ |
//!     `------ fewer wait again ----------------'      `-' one of them has left: the time starts anew
//! ```
//!
//! The state is its deadline, which exists while it counts. The time is short, since the peer may wait for us in the same way.

use core::time::Duration;

use crate::session::Lane;
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Overload {
    /// The deadline, as it is armed in the session's timers.
    armed: Option<Instant>,
}

impl Overload {
    #[inline]
    pub(super) fn is_counting(&self) -> bool {
        self.armed.is_some()
    }

    /// Restarts the time if as many refusals wait as may, else stops it.
    pub(super) fn restart(&mut self, lane: Lane, is_overrun: bool, grace: Duration, now: Instant, timers: &mut Timers) {
        let grace = grace.max(Duration::from_millis(1));
        let at = is_overrun.then(|| now.saturating_add(grace)).filter(|at| *at > now);
        timers.set(TimerKey::Overload(lane), &mut self.armed, at);
    }

    /// Counting -> Calm.
    pub(super) fn stop(&mut self, lane: Lane, timers: &mut Timers) {
        timers.set(TimerKey::Overload(lane), &mut self.armed, None);
    }

    /// Notes that its deadline has left the timers.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }
}
