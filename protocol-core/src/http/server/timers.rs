//! The deadlines of a server.

use alloc::collections::BTreeSet;

use super::{HttpExchangeId, SessionKey};
use crate::session::Lane;
use crate::time::Instant;

/// The owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// An exchange has sent nothing for a while.
    KeepAlive(HttpExchangeId),
    /// The events of a stream have been kept for long enough.
    Retention(SessionKey, Lane),
    /// A session is idle.
    Idle(SessionKey),
}

/// The deadline of one owner, as it stands in [`Timers`].
#[derive(Debug, Default)]
pub(super) struct Armed(Option<Instant>);

#[derive(Debug, Default)]
pub(super) struct Timers {
    all: BTreeSet<(Instant, TimerKey)>,
}

impl Timers {
    pub(super) fn set(&mut self, armed: &mut Armed, key: TimerKey, at: Option<Instant>) {
        if armed.0 == at {
            return;
        }
        if let Some(old) = armed.0 {
            self.all.remove(&(old, key));
        }
        if let Some(at) = at {
            self.all.insert((at, key));
        }
        armed.0 = at;
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.all.first().map(|(at, _)| *at)
    }

    /// Removes a deadline that is not after `now`. Its owner must forget it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<TimerKey> {
        let first = self.all.first().filter(|(at, _)| *at <= now)?;
        let key = first.1;
        self.all.pop_first();
        Some(key)
    }
}

impl Armed {
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}
