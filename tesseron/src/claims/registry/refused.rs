//! The reasons why the registry refuses a channel, a hello, a resume or a claim code, and the JSON-RPC errors for hello and resume
//! (`docs/protocols/tesseron.md`, "Handshake" and "Resume").

use crate::claims::{AppIdError, ClaimCodeError};
use protocol_core::dialect::tesseron::code::{RESUME_FAILED, UNAUTHORIZED};
use protocol_core::error::RpcError;

/// The reason why a gateway must not connect to an app, or must close the connection that it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenRefused {
    /// [`super::RegistryPolicy::max_channels`] are open.
    #[error("too many channels are open")]
    Full,
    /// The agent's session of the bridge has closed.
    #[error("the gateway has no agent any longer")]
    Closed,
    /// There is already a channel with the same claim, on which no hello or resume was accepted yet.
    #[error("this claim is being dialled already")]
    AlreadyDialled,
}

/// The reason why a hello is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloRefused {
    /// The channel is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// The channel has, or had, a session.
    #[error("this channel already has a session")]
    AlreadyGreeted,
    /// The id of the app is not valid.
    #[error(transparent)]
    AppId(#[from] AppIdError),
    /// There is already a session with the id that the manifest gives, and this session is not claimed, or has another app or token.
    #[error("the session of this claim is in use with another app or token")]
    SessionTaken,
    /// [`super::RegistryPolicy::max_pending`] sessions wait to be claimed.
    #[error("too many sessions wait to be claimed")]
    Full,
    /// The random source repeats itself, so no new session id or code could be made.
    #[error("no new session id could be made")]
    NotRandom,
}

impl HelloRefused {
    /// The JSON-RPC error for the hello.
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

/// The reason why a resume is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeRefused {
    /// The channel is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// The channel has, or had, a session.
    #[error("this channel already has a session")]
    AlreadyGreeted,
    /// The id of the app is not valid.
    #[error(transparent)]
    AppId(#[from] AppIdError),
    /// There is no session with this id; it may have been forgotten.
    #[error("there is no such session")]
    UnknownSession,
    /// The session belongs to another app.
    #[error("the session belongs to another app")]
    OtherApp,
    /// The session is not claimed.
    #[error("the session was never claimed")]
    NeverClaimed,
    /// The token is wrong, or was already used and confirmed.
    #[error("the resume token is not the one of the session")]
    WrongToken,
}

impl ResumeRefused {
    /// The JSON-RPC error for the resume. It is the same for every reason that concerns the session or its token, so that an attacker does
    /// not learn which part was wrong.
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

/// The reason why a code cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimMissed {
    /// The text is not a valid code.
    #[error(transparent)]
    Malformed(#[from] ClaimCodeError),
    /// No session with a channel has this code.
    #[error("no app has this claim code")]
    Unknown,
}
