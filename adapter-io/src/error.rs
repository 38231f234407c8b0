use core::fmt::Display;
use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use protocol_core::http::HttpFailure;

/// The error of a transport that could not be opened, or that failed. Its text is one line that can be shown to users.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The name or path of the program, as it was passed in.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A connection could not be made, or the address or the header fields for it are invalid.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address or the path.
        address: String,
        /// The error of the system, or the reason for which the address or a field is invalid.
        source: io::Error,
    },
    /// Listening on an address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or the path.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The path at which a socket was to be made exists. The file is not removed, since another program may be listening there.
    #[error("cannot listen on {}: it exists already; remove it if no program listens there", path.display())]
    PathExists {
        /// The path of the socket.
        path: PathBuf,
    },
    /// A connection could not be accepted. The listener can still be used: the reason may be temporary, such as too many open files.
    #[error("cannot accept a connection on {address}: {source}")]
    Accept {
        /// The address or the path.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// An open connection failed.
    #[error("the connection broke: {0}")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
    /// The server of an HTTP client could not be reached or used, or can no longer be used.
    #[error("{0}")]
    Server(#[source] HttpFailure),
}

impl Error {
    /// Returns a function that makes an [`Error::Connect`] with this address from an [`io::Error`].
    pub fn connecting_to(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Connect { address: address.to_string(), source }
    }

    /// Returns a function that makes an [`Error::Listen`] with this address from an [`io::Error`].
    pub fn listening_on(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Listen { address: address.to_string(), source }
    }

    /// Returns a function that makes an [`Error::Accept`] with this address from an [`io::Error`].
    pub fn accepting_on(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Accept { address: address.to_string(), source }
    }

    /// Makes an [`Error::Broken`] from an error of any type.
    pub fn broken(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Broken(source.into())
    }
}
