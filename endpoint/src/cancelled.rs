//! The errors of a wait in a handler.

use crate::ask_failed::cancel_reason;
use protocol_core::session::CancelReason;

/// The error of a wait that ended early because the call was cancelled, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", cancel_reason(.0))]
pub struct Cancelled(pub CancelReason);

/// The error of [`Context::with_timeout`](crate::Context::with_timeout).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeoutError {
    /// The limit passed to [`Context::with_timeout`](crate::Context::with_timeout) is over; the call goes on.
    #[error("the time limit has passed")]
    Elapsed,
    /// The call was cancelled, for a reason other than its deadline.
    #[error("{}", cancel_reason(.0))]
    Cancelled(CancelReason),
    /// The deadline of the call has passed.
    #[error("the call's deadline has passed")]
    TimedOut,
}
