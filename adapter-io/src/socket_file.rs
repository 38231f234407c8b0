use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The file of a Unix socket that this process listens on. Dropping it removes the file, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The device and inode numbers of the file.
    identity: (u64, u64),
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

impl SocketFile {
    /// Makes a socket at `path` by calling `bind`. Returns the value that `bind` returned, and the file.
    ///
    /// # Errors
    /// [`Error::PathExists`] if the path exists, even if it is a socket on which no process listens any more; [`Error::Listen`] for any
    /// other error of the system.
    pub fn make<L>(path: &Path, bind: impl FnOnce(&Path) -> io::Result<L>) -> Result<(L, Self), Error> {
        let listener = match bind(path) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(Error::PathExists { path: path.into() }),
            Err(error) => return Err(Error::listening_on(path.display())(error)),
        };
        match device_and_inode(path) {
            Ok(identity) => Ok((listener, Self { path: path.into(), identity })),
            Err(error) => {
                // A file that stays would keep every process from listening at the path. If it is already gone, a later file at the path is
                // not ours.
                if error.kind() != io::ErrorKind::NotFound {
                    let _ = std::fs::remove_file(path);
                }
                Err(Error::listening_on(path.display())(error))
            }
        }
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if device_and_inode(&self.path).is_ok_and(|file| file == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
