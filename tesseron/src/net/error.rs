//! Errors of hosts and gateways.

use std::io;
use std::path::PathBuf;

use crate::claims::DialFailed;
use crate::net::home::FolderRefused;

/// A host or a gateway of Tesseron that did not get through. One line, to be shown as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// A transport could not be opened.
    #[error(transparent)]
    Transport(#[from] adapter_io::Error),
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
