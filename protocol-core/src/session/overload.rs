//! The time in which a peer must read an unsolicited reply. The time runs on a lane while as many unsolicited replies are queued as the
//! limit allows.
//!
//! ```text
//!   Calm --- the limit is reached ---------> Counting --- the time is over ---> the lane is closed
//!     ^                                      |      ^ |
//!     `------ fewer are queued --------------'      `-' one was polled: the time restarts
//! ```
//!
//! The state is stored as the deadline, which exists only in `Counting`.

use core::time::Duration;

use crate::session::Lane;
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Overload {
    /// The time for which the deadline is armed in the session's timers.
    armed: Option<Instant>,
}

impl Overload {
    #[inline]
    pub(super) fn is_counting(&self) -> bool {
        self.armed.is_some()
    }

    /// Restarts the time if `is_overrun`, that is, if the limit is reached. Otherwise stops the time.
    pub(super) fn restart(&mut self, lane: Lane, is_overrun: bool, grace: Duration, now: Instant, timers: &mut Timers) {
        let grace = grace.max(Duration::from_millis(1));
        let at = is_overrun.then(|| now.saturating_add(grace)).filter(|at| *at > now);
        timers.set(TimerKey::Overload(lane), &mut self.armed, at);
    }

    /// Counting -> Calm.
    pub(super) fn stop(&mut self, lane: Lane, timers: &mut Timers) {
        timers.set(TimerKey::Overload(lane), &mut self.armed, None);
    }

    /// Records that the deadline was removed from the timers.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }
}
