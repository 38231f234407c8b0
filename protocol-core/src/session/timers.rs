//! The deadlines of a session, in one ordered table.
//!
//! ```text
//!          set(at)              take_due
//!   idle ------------> armed --------------------------------> idle
//!     ^                 |  ^
//!     `--- set(None) ---'  `--- set(another)
//! ```
//!
//! The state machine that a deadline belongs to stores the time for which the deadline is armed. The entry in the table is found by this
//! time and the [`TimerKey`]. Deadlines at the same time are due in the order of their keys, so that equal input gives equal output.

use core::fmt;

use crate::session::monotonic_map::MonotonicMap;
use crate::session::{AlarmId, InboundId, InputKey, Lane, OutboundId};
use crate::time::Instant;

/// The kind of a deadline and the state machine that it belongs to. Together they determine what happens when the deadline is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerKey {
    /// Ends the probe or the handshake.
    Handshake,
    /// Ends the state `Finishing` or `Draining` of a session that is closing.
    Close,
    /// Closes a lane whose peer does not read unsolicited replies.
    Overload(Lane),
    /// Ends an outbound call that has taken too long, or that waits for the reply to its cancel; or sends the retry of a round without
    /// input requests.
    OutboundCall(OutboundId),
    /// Ends an input request of ours that has waited too long.
    OutboundInput(InputKey),
    /// Ends an inbound call that has taken too long.
    InboundCall(InboundId),
    /// Serves the progress queue, since the session's rate window opens.
    ProgressQueue,
    /// Sends the kept update of a call.
    Flush(InboundId),
    /// Sends the delayed response of a call.
    Release(InboundId),
    /// Queues the event of an alarm.
    Alarm(AlarmId),
    /// Ends our current subscription, which the peer has not acknowledged.
    Acknowledgement,
}

impl TimerKey {
    /// The order among all deadlines, as one number: by time, then by kind, then by age.
    fn rank(self, at: Instant) -> u128 {
        let (kind, number) = match self {
            Self::Handshake => (0, 0),
            Self::Close => (1, 0),
            Self::Overload(lane) => (2, lane.number().into()),
            Self::OutboundCall(id) => (3, id.0),
            Self::OutboundInput(key) => (4, key.0),
            Self::InboundCall(id) => (5, id.0),
            Self::ProgressQueue => (6, 0),
            Self::Flush(id) => (7, id.0),
            Self::Release(id) => (8, id.0),
            Self::Alarm(id) => (9, id.0),
            Self::Acknowledgement => (10, 0),
        };
        // The number takes the lowest 60 bits: no session uses so many ids that it needs more.
        u128::from(at.as_micros()) << 64 | kind << 60 | u128::from(number)
    }
}

#[derive(Clone)]
pub(super) struct Timers {
    /// The time and key of each deadline, by rank. Most calls have the same timeout, so their deadlines rise.
    armed: MonotonicMap<u128, (Instant, TimerKey)>,
}

impl Timers {
    pub(super) const fn new() -> Self {
        Self { armed: MonotonicMap::new() }
    }

    /// Moves the deadline of `key` from the time in `armed` to `at`, and stores `at` in `armed`.
    pub(super) fn set(&mut self, key: TimerKey, armed: &mut Option<Instant>, at: Option<Instant>) {
        if *armed == at {
            return;
        }
        if let Some(old) = core::mem::replace(armed, at) {
            self.armed.remove(&key.rank(old));
        }
        if let Some(new) = at {
            self.armed.insert(key.rank(new), (new, key));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.armed.first().map(|(_, (at, _))| *at)
    }

    /// Takes the earliest deadline up to and including `now`. The state machine that it belongs to must then clear the time that it has
    /// stored.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<TimerKey> {
        let (rank, (at, _)) = self.armed.first()?;
        if *at > now {
            return None;
        }
        let rank = *rank;
        self.armed.remove(&rank).map(|(_, key)| key)
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }
}

/// Shows the deadlines, the earliest first.
impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.armed.values()).finish()
    }
}
