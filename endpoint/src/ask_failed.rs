//! The error of an input request of a handler.

use protocol_core::dialect::{Capabilities, InputRequest, depth_data, tesseron};
use protocol_core::error::RpcError;
use protocol_core::session::{CancelReason, InputFailed};

/// The reason for which an input request has no valid answer.
///
/// An input request that the protocol or its revision does not have fails as if its capability were missing. In MCP 2026-07-28 only the
/// handlers of tools, prompts and resources can make input requests, and only if states can be sealed: not without the feature `seal`, if
/// the [`Runtime`](crate::Runtime) has no clock, or if it has no random bytes and the service has no keys
/// ([`Service::seal_keys`](crate::Service::seal_keys)). Otherwise an input request fails with [`AskFailed::Invalid`], which says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskFailed {
    /// The caller has not declared the capability `sampling`, or not `sampling.tools` although the tool needs it
    /// ([`Tool::needs`](crate::Tool::needs)). Nothing was sent.
    #[error("the caller does not offer sampling")]
    NoSampling,
    /// The caller has not declared the capability `elicitation`. Nothing was sent.
    #[error("the caller does not offer elicitation")]
    NoElicitation,
    /// The caller has not declared the capability `elicitation.url`. Nothing was sent.
    #[error("the caller does not offer elicitation by URL")]
    NoUrlElicitation,
    /// The caller has not declared the capability `roots`. Nothing was sent.
    #[error("the caller does not offer roots")]
    NoRoots,
    /// The sampling depth would exceed the maximum. Nothing was sent.
    #[error("sampling would be nested {depth} deep; the maximum is {max}")]
    TooDeep {
        /// The depth that the request would have.
        depth: u8,
        /// The maximum depth.
        max: u8,
    },
    /// The input request is not valid, for the reason given. Nothing was sent.
    #[error("the input request is not valid: {0}")]
    Invalid(String),
    /// Too many input requests are open, or too much output is queued. Nothing was sent.
    #[error("too many input requests are open")]
    Busy,
    /// The caller answered with an error.
    #[error("the caller refused: {0}")]
    Refused(RpcError),
    /// The answer does not have the form that was requested.
    #[error("the answer does not fit: {0}")]
    Mismatch(String),
    /// No answer came in time.
    #[error("the caller did not answer in time")]
    TimedOut,
    /// The connection ended before the answer came, or the peer had already ended its side of the channel.
    #[error("the connection ended before the caller answered")]
    Lost,
    /// The call was cancelled, before or while the input request was open.
    #[error("{}", cancel_reason(.0))]
    Cancelled(CancelReason),
    /// The request of the call has its reply: the handler has returned, or the request has ended with a round.
    #[error("the call is over")]
    Over,
}

impl AskFailed {
    /// The JSON-RPC error code for this error. For [`AskFailed::Refused`] it is the code of the caller's error. The code is -32006 if
    /// sampling is missing, -32007 if elicitation is missing, and -32005 for an answer that does not fit. The other codes are constants of
    /// [`RpcError`].
    #[must_use]
    pub const fn code(&self) -> i64 {
        match self {
            Self::NoSampling => -32006,
            Self::NoElicitation | Self::NoUrlElicitation => -32007,
            Self::NoRoots => RpcError::METHOD_NOT_FOUND,
            Self::TooDeep { .. } => RpcError::TOO_DEEP,
            Self::Invalid(_) => RpcError::INVALID_PARAMS,
            Self::Busy => RpcError::BUSY,
            Self::Refused(error) => error.code,
            Self::Mismatch(_) => -32005,
            Self::TimedOut | Self::Lost => RpcError::INTERNAL,
            Self::Cancelled(_) | Self::Over => RpcError::CANCELLED,
        }
    }
}

impl AskFailed {
    /// The failure of an input request for which the caller lacks the capability.
    pub(crate) const fn unsupported(ask: &InputRequest) -> Self {
        match ask {
            InputRequest::Sample(_) => Self::NoSampling,
            InputRequest::OpenUrl(_) => Self::NoUrlElicitation,
            InputRequest::Roots => Self::NoRoots,
            _ => Self::NoElicitation,
        }
    }

    /// The error for a request whose caller lacks the capabilities `required` for an input request (MCP 2026-07-28).
    pub(crate) fn missing(&self, required: &Capabilities) -> RpcError {
        let mut error = RpcError::missing_capability(required);
        error.message = std::string::ToString::to_string(self).into();
        error
    }

    /// The error that is sent where failures of tools are JSON-RPC errors, as on Tesseron (docs/protocols/tesseron.md, "Error codes"). The
    /// caller's own error is sent back as it is.
    pub(crate) fn fault(&self) -> RpcError {
        let code = match self {
            Self::Refused(error) => return error.clone(),
            Self::TooDeep { .. } => tesseron::code::SAMPLING_TOO_DEEP,
            Self::NoRoots | Self::Busy | Self::Over | Self::Cancelled(_) => RpcError::INTERNAL,
            failed => failed.code(),
        };
        let error = RpcError::new(code, std::string::ToString::to_string(self));
        match self {
            Self::TooDeep { depth, max } => error.with_data(depth_data(*depth, *max)),
            _ => error,
        }
    }
}

impl From<InputFailed> for AskFailed {
    fn from(failed: InputFailed) -> Self {
        match failed {
            InputFailed::Refused(error) => Self::Refused(error),
            InputFailed::Invalid(why) => Self::Mismatch(String::from(&*why)),
            InputFailed::TimedOut => Self::TimedOut,
            _ => Self::Lost,
        }
    }
}

/// The reason of a cancellation, in words.
pub(crate) const fn cancel_reason(why: &CancelReason) -> &'static str {
    match why {
        CancelReason::Peer(_) => "the caller cancelled the call",
        CancelReason::Deadline => "the call's deadline has passed",
        CancelReason::Disconnected => "the connection has ended",
        CancelReason::Replaced => "a newer request of the call has taken its place",
        _ => "this end is closing",
    }
}
