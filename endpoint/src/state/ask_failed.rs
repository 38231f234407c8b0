//! The failure of a question to the caller.

use super::stopped;
use protocol_core::dialect::{depth_data, tesseron};
use protocol_core::error::RpcError;
use protocol_core::session::CancelReason;

/// Why a question to the caller brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskFailed {
    /// The caller did not declare that it samples. Nothing was sent.
    #[error("the caller does not offer sampling")]
    NoSampling,
    /// The caller did not declare that it elicits. Nothing was sent.
    #[error("the caller does not offer elicitation")]
    NoElicitation,
    /// The caller did not declare that it opens addresses. Nothing was sent.
    #[error("the caller does not offer elicitation by URL")]
    NoUrlElicitation,
    /// The caller did not declare roots. Nothing was sent.
    #[error("the caller does not offer roots")]
    NoRoots,
    /// Sampling would be nested too deep. Nothing was sent.
    #[error("sampling would be nested {depth} deep, {max} is the most")]
    TooDeep {
        /// As deep as it would be.
        depth: u8,
        /// As deep as it may be.
        max: u8,
    },
    /// The question has a shape that the protocol forbids. Nothing was sent.
    #[error("the question is not valid: {0}")]
    Invalid(String),
    /// Too many questions are open, or too much output waits. Nothing was sent.
    #[error("too many questions are open")]
    Busy,
    /// The caller answered with an error.
    #[error("the caller refused: {0}")]
    Refused(RpcError),
    /// The answer is not of the shape that was asked for.
    #[error("the answer does not fit: {0}")]
    Mismatch(String),
    /// No answer came in time.
    #[error("the caller did not answer in time")]
    TimedOut,
    /// The connection ended before the answer came.
    #[error("the connection ended before the caller answered")]
    Lost,
    /// The invocation was cancelled meanwhile.
    #[error("{}", stopped(.0))]
    Cancelled(CancelReason),
    /// The invocation has ended: its handler has returned.
    #[error("the call is over")]
    Over,
}

impl AskFailed {
    /// The number that programs know it by: the caller's own for [`AskFailed::Refused`], -32006 and -32007 for a capability that
    /// is missing, -32005 for an answer that does not fit.
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
    /// The error that a protocol sends whose failures are errors (Tesseron, errors page). What the caller said goes back as it is.
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
