//! Why the registry says no, and what that is on the wire (`docs/protocols/tesseron.md`, "Handshake" and "Resume").
//! All codes are here.

use crate::claims::{AppIdError, ClaimCodeError};
use protocol_core::dialect::tesseron::code::{RESUME_FAILED, UNAUTHORIZED};
use protocol_core::error::RpcError;

/// Why a channel is not to be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenRefused {
    /// [`super::RegistryPolicy::max_channels`] are open.
    #[error("too many channels are open")]
    Full,
    /// The same claim is being dialled on another channel: another agent has claimed the app a moment ago.
    #[error("this claim is being dialled already")]
    AlreadyDialled,
}

/// Why a hello is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloRefused {
    /// The channel is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// The channel has, or had, a session.
    #[error("this channel already has a session")]
    AlreadyGreeted,
    /// The app has no proper id.
    #[error(transparent)]
    AppId(#[from] AppIdError),
    /// The manifest names a session that another one has.
    #[error("the session of this claim belongs to somebody else")]
    SessionTaken,
    /// [`super::RegistryPolicy::max_pending`] sessions wait to be claimed.
    #[error("too many sessions wait to be claimed")]
    Full,
    /// The random source repeats itself, so that there is no new session id or code.
    #[error("no new session id could be made")]
    NotRandom,
}

impl HelloRefused {
    /// The error that answers the hello.
    #[must_use]
    pub fn error(self) -> RpcError {
        let code = match self {
            Self::NotOpen | Self::AlreadyGreeted => RpcError::INVALID_REQUEST,
            Self::AppId(_) => RpcError::INVALID_PARAMS,
            Self::SessionTaken => UNAUTHORIZED,
            Self::Full | Self::NotRandom => RpcError::INTERNAL,
        };
        RpcError::new(code, alloc::format!("{self}"))
    }
}

/// Why a resume is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeRefused {
    /// The channel is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// The channel has, or had, a session.
    #[error("this channel already has a session")]
    AlreadyGreeted,
    /// The app has no proper id.
    #[error(transparent)]
    AppId(#[from] AppIdError),
    /// No session of this name: it never was, or is forgotten.
    #[error("there is no such session")]
    UnknownSession,
    /// The session of another app.
    #[error("the session belongs to another app")]
    OtherApp,
    /// It is not claimed.
    #[error("the session was never claimed")]
    NeverClaimed,
    /// Not its token, or one that was used and confirmed.
    #[error("the resume token is not the one of the session")]
    WrongToken,
}

impl ResumeRefused {
    /// The error that answers the resume. What was wrong about an otherwise proper one is not told: only its owner needs to know.
    #[must_use]
    pub fn error(self) -> RpcError {
        match self {
            Self::NotOpen | Self::AlreadyGreeted => RpcError::new(RpcError::INVALID_REQUEST, alloc::format!("{self}")),
            Self::AppId(error) => RpcError::new(RESUME_FAILED, alloc::format!("{error}")),
            Self::UnknownSession | Self::OtherApp | Self::NeverClaimed | Self::WrongToken => {
                RpcError::fixed(RESUME_FAILED, "the session cannot be resumed")
            }
        }
    }
}

/// Why a code claims nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimMissed {
    /// It cannot be a code.
    #[error(transparent)]
    Malformed(#[from] ClaimCodeError),
    /// No session with a channel has it.
    #[error("no app has this claim code")]
    Unknown,
}
