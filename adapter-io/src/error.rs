use core::fmt::Display;
use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

/// A transport that could not be opened, or that failed. One line, to be shown as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program was not started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// As it was given.
        program: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// No peer was reached.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address or the path.
        address: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or the path.
        address: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// There is something where the socket would be made. It is left alone: another program may be listening there.
    #[error("cannot listen on {}: it exists already; remove it if nobody listens there", path.display())]
    PathExists {
        /// The path of the socket.
        path: PathBuf,
    },
    /// A connection was not accepted. The listener is as good as before; out of files, say, it may work again later.
    #[error("cannot accept a connection on {address}: {source}")]
    Accept {
        /// The address or the path.
        address: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// A connection failed in the middle.
    #[error("the connection broke: {0}")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
}

impl Error {
    /// The error of the system, when `address` was connected to.
    pub fn connecting_to(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Connect { address: address.to_string(), source }
    }

    /// The error of the system, when `address` was to be listened on.
    pub fn listening_on(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Listen { address: address.to_string(), source }
    }

    /// Wraps an error of the system in accepting a connection on `address`.
    pub fn accepting_on(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Accept { address: address.to_string(), source }
    }

    /// The error of a transport that failed in the middle, of whatever type.
    pub fn broken(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Broken(source.into())
    }
}
