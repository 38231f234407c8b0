//! Errors of hosts and gateways.

use std::io;
use std::path::PathBuf;

use crate::claims::{BindRefused, DialFailed};

/// An error of an app that listens, or of a gateway. Its text is one line for people.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TesseronError {
    /// The name of an app cannot be shown to a person: it is empty, has over 256 bytes, or a control character.
    #[error("an app needs a name of 1 to 256 bytes without control characters")]
    AppName,
    /// The home folder of this user cannot be found.
    #[error("this user has no home folder")]
    NoHome,
    /// A folder for manifests, sockets or breadcrumbs cannot be used.
    #[error("cannot use the folder {}: {refused}", path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The reason.
        #[source]
        refused: FolderRefused,
    },
    /// A manifest was not written.
    #[error("cannot write the manifest {}: {source}", path.display())]
    Manifest {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A breadcrumb, the file that announces a code of this gateway to other gateways, was not written.
    #[error("cannot write a file to {}: {source}", folder.display())]
    Breadcrumb {
        /// The folder of the file. The file is named after the code, which no error contains.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Any user of this machine could claim the app: no code is required, and the system does not report which user has connected.
    #[error(
        "any user of this machine could claim this app: it needs a code of its own, or a Unix socket, or must be meant for any user"
    )]
    AnyUser,
    /// The system has no random bytes for claim codes, tokens and ids.
    #[error("cannot mint a claim code: {0}")]
    Random(#[source] io::Error),
    /// An app, or another server at its address, refuses the upgrade to a WebSocket.
    #[error("{address} refuses this gateway: {} (HTTP status {status})", meaning(*status, *refused))]
    Refused {
        /// The URL of the app.
        address: String,
        /// The HTTP status of the answer.
        status: u16,
        /// The reason, if the text of the answer is a known one.
        refused: Option<BindRefused>,
    },
    /// An app refuses the bind on a Unix socket, or gives no valid answer to it in time.
    #[error("cannot bind {address}: {source}")]
    Unbound {
        /// The path of the socket.
        address: String,
        /// The reason, with the app's answer if there was one.
        source: DialFailed,
    },
    /// A transport could not be opened, or failed.
    #[error(transparent)]
    Transport(#[from] adapter_io::Error),
}

/// The meaning of a status, for people. The text of the app's answer is shown only if it is one that this crate writes.
fn meaning(status: u16, refused: Option<BindRefused>) -> &'static str {
    match status {
        400 => "it cannot read the claim code",
        403 => "the claim code is wrong",
        409 => refused.map_or("the claim is spent, or it has a gateway already", BindRefused::text),
        426 => "it needs a claim code",
        429 => "too many wrong codes, try again in a minute",
        _ => "its answer is not that of a Tesseron app",
    }
}

/// The reason why a folder is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderRefused {
    /// The path is not that of a folder.
    #[error("it is no folder")]
    NotAFolder,
    /// The folder belongs to another user.
    #[error("it belongs to another user")]
    Foreign,
    /// Other users have permissions that they must not have: any permission if this program writes to the folder, and the permission to
    /// write if it only reads the folder. Contains the permissions of the folder.
    #[error("it is open to others (mode {0:o}, should be 700)")]
    Open(u32),
    /// The folder cannot be created or read.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The reason why a connection to an app failed.
#[derive(Debug)]
pub(super) enum Failed {
    Io(io::Error),
    /// The app refused the upgrade with this HTTP status, and with this reason, if the text of the answer is a known one.
    #[cfg(feature = "websocket")]
    Refused(u16, Option<BindRefused>),
    /// The bind failed, which only a Unix socket has.
    #[cfg(unix)]
    Unbound(DialFailed),
}

impl<E: Into<io::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}
