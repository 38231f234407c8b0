//! The deadlines of a server.

use super::{HttpExchangeId, SessionKey};
use crate::http::timers;
pub(super) use crate::http::timers::Armed;
use crate::session::Lane;

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

pub(super) type Timers = timers::Timers<TimerKey>;
