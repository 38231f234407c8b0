//! The deadlines of a server, and the count of what they end.

use super::types::{HttpExchangeId, SessionKey};
use crate::http::timers;
pub(super) use crate::http::timers::Armed;
use crate::session::Lane;
use crate::time::Instant;

/// The kind of a deadline, and the part of the server that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// Keeps an exchange alive that has sent nothing for a while.
    KeepAlive(HttpExchangeId),
    /// Removes a stream that was kept without an exchange for long enough.
    Retention(SessionKey, Lane),
    /// Ends a session that was idle for too long.
    Idle(SessionKey),
}

/// What all sessions of a server share: the deadlines, and the count of the bytes that are kept for replay.
#[derive(Debug, Default)]
pub(super) struct Shared {
    timers: timers::Timers<TimerKey>,
    kept_bytes: usize,
}

impl Shared {
    /// Moves a deadline; see [`timers::Timers::set`].
    pub(super) fn set(&mut self, armed: &mut Armed, key: TimerKey, at: Option<Instant>) -> Option<Instant> {
        self.timers.set(armed, key, at)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Removes a deadline that is due; see [`timers::Timers::take_due`].
    pub(super) fn take_due(&mut self, now: Instant) -> Option<TimerKey> {
        self.timers.take_due(now)
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub(super) fn keep(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
    }

    pub(super) fn forget(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
    }
}
