//! Every deadline of a session, in one ordered table.
//!
//! ```text
//!          set(at)              take_due: its time has come
//!   idle ------------> armed --------------------------------> idle
//!     ^                 |  ^
//!     `--- set(None) ---'  `--- set(another): it moves
//! ```
//!
//! Each owner keeps the instant at which it is armed; that is how an entry is found again. Equal instants fire in the order of
//! [`TimerKey`], so that equal input gives equal output.

use core::fmt;

use crate::session::monotonic_map::MonotonicMap;
use crate::session::{AlarmId, InboundId, InputKey, Lane, OutboundId};
use crate::time::Instant;

/// The owner of a deadline, and so the thing to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerKey {
    /// The handshake is given up.
    Handshake,
    /// The wait for the end is over.
    Close,
    /// A lane is given up whose peer makes us refuse more than it reads.
    Overload(Lane),
    /// An outbound call has taken too long.
    OutboundCall(OutboundId),
    /// An input request of ours has waited too long.
    OutboundInput(InputKey),
    /// An inbound call has taken too long.
    InboundCall(InboundId),
    /// The session's rate window opens for those in line.
    ProgressQueue,
    /// A kept update may go.
    Flush(InboundId),
    /// A held response may go.
    Release(InboundId),
    /// The owner wants to be woken.
    Alarm(AlarmId),
}

impl TimerKey {
    /// Its place among all deadlines, as one number: by the instant, then by kind, then by age.
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
        };
        // No number of ours comes near the four bits of the kind.
        u128::from(at.as_micros()) << 64 | kind << 60 | u128::from(number)
    }
}

#[derive(Clone)]
pub(super) struct Timers {
    /// Each with its instant, by its rank. Most calls may take as long as those before them, so their deadlines rise.
    armed: MonotonicMap<u128, (Instant, TimerKey)>,
}

impl Timers {
    pub(super) const fn new() -> Self {
        Self { armed: MonotonicMap::new() }
    }

    /// Moves the deadline of `key` from where `armed` says it is to `at`.
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

    /// Takes the earliest deadline that is not after `now`. Its owner must forget that it was armed.
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

/// The deadlines, the earliest first: their ranks say the same once more.
impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.armed.values()).finish()
    }
}
