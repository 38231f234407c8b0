use core::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::string::{String, ToString};

use crate::adapter::tesseron::FolderRefused;
use crate::claims::DialFailed;

/// What was tried, and why it failed. One line, to be shown as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program was not started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// As it was given.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody was reached.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address or the path.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or the path.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// There is something where the socket would be made. It is left alone: somebody may be listening there.
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
        /// What the system says.
        source: io::Error,
    },
    /// The name of an app cannot be shown to a person: it is empty, has over 256 bytes, or a control character.
    #[error("an app needs a name of 1 to 256 bytes without control characters")]
    AppName,
    /// Nobody knows where the home of this user is.
    #[error("this user has no home folder")]
    NoHome,
    /// A folder for manifests or sockets is not used.
    #[error("cannot use the folder {}: {refused}", path.display())]
    Folder {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        refused: FolderRefused,
    },
    /// A manifest was not written.
    #[error("cannot write the manifest {}: {source}", path.display())]
    Manifest {
        /// Where it was to be.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no random bytes to make a claim code of.
    #[error("cannot mint a claim code: {0}")]
    Random(#[source] io::Error),
    /// An app of Tesseron does not let this gateway in over a WebSocket.
    #[error("{address} refuses this gateway: {} (HTTP status {status})", meaning(*status))]
    Refused {
        /// Its URL.
        address: String,
        /// The status with which it answered.
        status: u16,
    },
    /// An app of Tesseron does not let this gateway in over a Unix socket.
    #[error("cannot bind {address}: {source}")]
    Unbound {
        /// Its path.
        address: String,
        /// What it answered, if anything.
        source: DialFailed,
    },
    /// A connection failed in the middle.
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
}

/// What an app means by a status.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "it cannot read the claim code",
        403 => "the claim code is wrong",
        409 => "the claim is spent",
        426 => "it needs a claim code",
        429 => "too many wrong codes, try again in a minute",
        _ => "it answers like no app of Tesseron",
    }
}

impl Error {
    /// What the system said when `address` was connected to.
    pub fn connecting_to(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Connect { address: address.to_string(), source }
    }

    /// What the system said when `address` was to be listened on.
    pub fn listening_on(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Listen { address: address.to_string(), source }
    }

    /// What the system said when a connection on `address` was to be accepted.
    pub fn accepting_on(address: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Accept { address: address.to_string(), source }
    }
}
