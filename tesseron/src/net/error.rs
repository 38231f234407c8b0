//! Errors of hosts and gateways.

use std::io;
use std::path::PathBuf;

use crate::claims::{BindRefused, DialFailed};
use crate::net::home::FolderRefused;

/// A host or a gateway of Tesseron that did not get through. One line, to be shown as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TesseronError {
    /// The name of an app cannot be shown to a person: it is empty, has over 256 bytes, or a control character.
    #[error("an app needs a name of 1 to 256 bytes without control characters")]
    AppName,
    /// The home of this user cannot be found.
    #[error("this user has no home folder")]
    NoHome,
    /// A folder for manifests or sockets is not used.
    #[error("cannot use the folder {}: {refused}", path.display())]
    Folder {
        /// The path of the file.
        path: PathBuf,
        /// Why.
        #[source]
        refused: FolderRefused,
    },
    /// A manifest was not written.
    #[error("cannot write the manifest {}: {source}", path.display())]
    Manifest {
        /// The path at which it was to be.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file that tells other gateways about a code of this one was not written.
    #[error("cannot write {}: {source}", path.display())]
    Breadcrumb {
        /// The path at which it was to be.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Any user of this machine could claim the app: no code is asked for, and the system does not tell whose a connection is.
    #[error(
        "any user of this machine could claim this app: it needs a code of its own, or a Unix socket, or must be meant for any user"
    )]
    AnyUser,
    /// The system gives no random bytes to make a claim code of.
    #[error("cannot mint a claim code: {0}")]
    Random(#[source] io::Error),
    /// An app of Tesseron does not let this gateway in over a WebSocket.
    #[error("{address} refuses this gateway: {} (HTTP status {status})", meaning(*status, *refused))]
    Refused {
        /// Its URL.
        address: String,
        /// The status with which it answered.
        status: u16,
        /// The meaning of the status, if the app gives it in known words.
        refused: Option<BindRefused>,
    },
    /// An app of Tesseron does not let this gateway in over a Unix socket.
    #[error("cannot bind {address}: {source}")]
    Unbound {
        /// Its path.
        address: String,
        /// The error, with the app's answer if there was one.
        source: DialFailed,
    },
    /// A transport could not be opened.
    #[error(transparent)]
    Transport(#[from] adapter_io::Error),
}

/// The meaning of a status. Words of an app that are not known are not repeated.
fn meaning(status: u16, refused: Option<BindRefused>) -> &'static str {
    match status {
        400 => "it cannot read the claim code",
        403 => "the claim code is wrong",
        409 => refused.map_or("the claim is spent, or it has a gateway already", BindRefused::text),
        426 => "it needs a claim code",
        429 => "too many wrong codes, try again in a minute",
        _ => "it answers like no app of Tesseron",
    }
}
