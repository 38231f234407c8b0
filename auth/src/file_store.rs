//! Tokens in files that only this user can read.

use core::time::Duration;
use std::format;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::string::String;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::{Registration, Tokens};
use crate::store::{StoreError, StoreKey, StoreLock, TokenStore, until};

/// The form of the files. A file of a later form is not read.
const VERSION: u32 = 1;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// Tokens in a folder: one file for each key, one for each client, and one lock for each key.
///
/// Files are replaced as a whole, and are on the disk when a method returns. The folder and its files must be this user's, must not be open
/// to others, and must not be links. Locks exclude other processes, and end with theirs. They do not work on every network file system.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
}

/// What a file has.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    content: T,
}

impl FileStore {
    /// A store in this folder, which is made if it is missing. Usually it is `login` in the folder for state of an application.
    ///
    /// # Errors
    /// [`StoreError::Exposed`] if the folder is a link, another user's, or open to others.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let found = fs::symlink_metadata(&folder)?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_dir() || !is_own || found.mode() & 0o077 != 0 {
            return Err(StoreError::Exposed);
        }
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A file that is no link, this user's, and closed to others. A device or a pipe is no file, and is not waited for.
    fn open_file(path: &Path, flags: OFlags) -> Result<File, StoreError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600));
        let file = File::from(opened.map_err(|error| match error {
            rustix::io::Errno::LOOP => StoreError::Exposed,
            error => StoreError::Io(error.into()),
        })?);
        let found = file.metadata()?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_file() || !is_own || found.mode() & 0o077 != 0 || found.nlink() > 1 {
            return Err(StoreError::Exposed);
        }
        Ok(file)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let path = self.path(name);
        let file = match Self::open_file(&path, OFlags::RDONLY) {
            Err(StoreError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text)?;
        let version = serde_json::from_slice::<Versioned<serde::de::IgnoredAny>>(&text).map(|found| found.version);
        let found = serde_json::from_slice::<Versioned<T>>(&text).ok().filter(|_| matches!(version, Ok(VERSION)));
        Ok(found.map(|found| found.content))
    }

    /// Sets aside a file that cannot be read, before it is replaced: it may be of use to a later version of the program. Not in `read`,
    /// which needs no lock: the file might be replaced meanwhile.
    fn set_aside_unreadable<T: DeserializeOwned>(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        if path.exists() && matches!(self.read::<T>(name), Ok(None)) {
            fs::rename(&path, path.with_extension("unread"))?;
        }
        Ok(())
    }

    fn write<T: Serialize + DeserializeOwned>(&self, name: &str, content: &T) -> Result<(), StoreError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let text = serde_json::to_vec(&Versioned { version: VERSION, content }).map_err(std::io::Error::from)?;
        let text = zeroize::Zeroizing::new(text);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let draft = self.path(&format!("{name}.{}-{number}.new", std::process::id()));
        let written = (|| {
            // What a process of the same number has left behind is no link that is followed.
            let _ = fs::remove_file(&draft);
            let mut file = Self::open_file(&draft, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
            file.write_all(&text)?;
            file.sync_all()?;
            self.set_aside_unreadable::<T>(name)?;
            fs::rename(&draft, self.path(name))?;
            File::open(&self.folder)?.sync_all()?;
            Ok(())
        })();
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn tokens(key: &StoreKey) -> String {
        format!("{}.tokens", key.as_str())
    }

    fn client(issuer: &str) -> String {
        format!("{}.client", StoreKey::new(issuer, "").as_str())
    }
}

/// The open file of a lock. It is unlocked, and not only closed: a process that is being started has a copy of it until it runs its program,
/// and the lock would last as long.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl TokenStore for FileStore {
    fn load(&self, key: &StoreKey) -> Result<Option<Tokens>, StoreError> {
        self.read(&Self::tokens(key))
    }

    /// The lock has a file of its own: that of the tokens is replaced, and a lock on a file that is no longer there excludes nobody.
    fn lock(&self, key: &StoreKey, wait: Duration) -> Result<StoreLock, StoreError> {
        let file = Locked(Self::open_file(&self.path(&format!("{}.lock", key.as_str())), OFlags::RDWR | OFlags::CREATE)?);
        until(wait, || match rustix::fs::flock(&file.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(())),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(StoreError::Io(error.into())),
        })?;
        Ok(StoreLock::new(file))
    }

    fn save(&self, key: &StoreKey, tokens: &Tokens) -> Result<(), StoreError> {
        self.write(&Self::tokens(key), tokens)
    }

    fn forget(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.remove(&Self::tokens(key))
    }

    fn load_registration(&self, issuer: &str) -> Result<Option<Registration>, StoreError> {
        self.read(&Self::client(issuer))
    }

    fn save_registration(&self, client: &Registration) -> Result<(), StoreError> {
        self.write(&Self::client(&client.issuer), client)
    }

    fn forget_registration(&self, issuer: &str) -> Result<(), StoreError> {
        self.remove(&Self::client(issuer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_lock_ends_although_a_process_that_is_being_started_has_a_copy_of_its_file() {
        let folder = std::env::temp_dir().join(format!("sansmcp-lock-{}", std::process::id()));
        let store = FileStore::open(&folder).unwrap();
        let file = FileStore::open_file(&folder.join("copy.lock"), OFlags::RDWR | OFlags::CREATE).unwrap();
        let copy = file.try_clone().unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let other = FileStore::open_file(&store.path("copy.lock"), OFlags::RDWR).unwrap();
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(Locked(file));
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok());
        drop(copy);
        fs::remove_dir_all(&folder).unwrap();
    }
}
