//! The deadlines of a server.

use super::types::{HttpExchangeId, SessionKey};
use crate::http::timers;
pub(super) use crate::http::timers::Armed;
use crate::session::Lane;

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

pub(super) type Timers = timers::Timers<TimerKey>;
