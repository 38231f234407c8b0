//! Files that only this user can write: checks of owner and permissions, and atomic replacement.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::vec::Vec;

use crate::net::{FolderRefused, TesseronError};

/// The folder of Tesseron in the home of a user.
const FOLDER: &str = ".tesseron";

/// The folder `.tesseron` in the home folder of a user, with the manifests and sockets of apps and the breadcrumbs of gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(PathBuf);

impl Home {
    /// The folder of the user who runs this program.
    ///
    /// # Errors
    /// [`TesseronError::NoHome`] if the system has no home folder for this user.
    pub fn of_user() -> Result<Self, TesseronError> {
        std::env::home_dir().filter(|home| home.is_absolute()).map(Self::at).ok_or(TesseronError::NoHome)
    }

    /// The folder in the home folder `home`.
    #[must_use]
    pub fn at(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        // Absolute, since manifests contain paths below it.
        Self(std::path::absolute(&home).unwrap_or(home).join(FOLDER))
    }

    /// The folder of the manifests.
    #[must_use]
    pub fn instances(&self) -> PathBuf {
        self.0.join("instances")
    }

    /// The folder of the breadcrumbs.
    pub(super) fn claims(&self) -> PathBuf {
        self.0.join("claims")
    }

    /// The folder of the sockets.
    #[cfg(unix)]
    pub(super) fn sockets(&self) -> PathBuf {
        self.0.join("sockets")
    }

    /// Creates `folder`, one of those above, and this folder itself with mode 0700, or checks that existing ones belong to this user and
    /// give other users no access.
    pub(super) fn make(&self, folder: &Path) -> Result<(), TesseronError> {
        make_private_folder(&self.0)?;
        make_private_folder(folder)
    }

    /// Checks that this folder and `folder`, one of those above, belong to this user, and that other users cannot write to them. Returns
    /// `false` if one of them does not exist.
    pub(super) fn check(&self, folder: &Path) -> Result<bool, TesseronError> {
        for path in [&*self.0, folder] {
            match check_folder(path, WRITABLE_BY_OTHERS) {
                Err(FolderRefused::System(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                checked => checked.map_err(|refused| TesseronError::Folder { path: path.into(), refused })?,
            }
        }
        Ok(true)
    }
}

/// Creates a folder with mode 0700, or checks that an existing one belongs to this user and gives other users no access.
fn make_private_folder(path: &Path) -> Result<(), TesseronError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let made = builder.create(path).map_err(FolderRefused::from).and_then(|()| check_folder(path, OTHERS));
    made.map_err(|refused| TesseronError::Folder { path: path.into(), refused })
}

/// All permissions of other users.
const OTHERS: u32 = 0o077;
/// The permissions of other users to write.
pub(super) const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Checks that `path` is a folder, belongs to this user, and has none of `permissions`. A symbolic link is refused.
fn check_folder(path: &Path, permissions: u32) -> Result<(), FolderRefused> {
    let folder = fs::symlink_metadata(path)?;
    if !folder.is_dir() {
        return Err(FolderRefused::NotAFolder);
    }
    if !is_ours(&folder) {
        return Err(FolderRefused::Foreign);
    }
    match mode(&folder) & permissions {
        0 => Ok(()),
        _ => Err(FolderRefused::Open(mode(&folder))),
    }
}

/// Returns `true` if the file belongs to the user who runs this program; on systems other than Unix, if it is no symbolic link.
pub(super) fn is_ours(file: &fs::Metadata) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::uid(file) == rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    return !file.file_type().is_symlink();
}

/// The permissions of a file; on systems other than Unix, 0700 for a folder and 0600 for a file.
pub(super) fn mode(file: &fs::Metadata) -> u32 {
    #[cfg(unix)]
    return std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777;
    #[cfg(not(unix))]
    return if file.is_dir() { 0o700 } else { 0o600 };
}

/// Returns `true` if a process is alive. On systems other than Unix, every process counts as alive except the one with the id 0.
pub(super) fn is_alive(process: u32) -> bool {
    #[cfg(unix)]
    {
        let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
        id.is_some_and(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH))
    }
    #[cfg(not(unix))]
    {
        process != 0
    }
}

/// Opens a file for reading. On Unix, does not follow a symbolic link, and does not wait for the other end of a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    options.open(path)
}

/// Reads a file of at most `max` bytes; `None` if it is longer.
pub(super) fn read_at_most(file: &File, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take((max as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() <= max))
}

/// A file that is replaced atomically, with mode 0600. Dropping this removes the file, unless another file has replaced it.
#[derive(Debug)]
pub(super) struct PrivateFile {
    path: PathBuf,
    /// The file that was written last.
    written: Option<File>,
}

impl PrivateFile {
    /// Prepares the file. Nothing is written yet.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, written: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file with these bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let new_file = self.path.with_extension("new");
        // No other live process uses this name, so an existing file was left by a process that has died.
        let _ = fs::remove_file(&new_file);
        let written = create(&new_file, bytes).and_then(|file| fs::rename(&new_file, &self.path).map(|()| file));
        if written.is_err() {
            let _ = fs::remove_file(&new_file);
        }
        self.written = Some(written?);
        Ok(())
    }

    /// Removes the file, unless another file has replaced it.
    pub(super) fn remove(&mut self) {
        if self.written.take().is_some_and(|ours| is_at(&ours, &self.path)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Returns `true` if `path` still leads to the open `file`. Compares inode numbers, or on Windows file ids, which are not reused while a
/// file is open; on other systems, only checks that `path` exists.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let number = |file: fs::Metadata| (file.dev(), file.ino());
        let found = fs::symlink_metadata(path).map(number);
        file.metadata().map(number).is_ok_and(|ours| found.is_ok_and(|found| found == ours))
    }
    #[cfg(windows)]
    {
        let ours = file.try_clone().and_then(same_file::Handle::from_file);
        ours.is_ok_and(|ours| same_file::Handle::from_path(path).is_ok_and(|found| found == ours))
    }
    #[cfg(not(any(unix, windows)))]
    {
        file.metadata().is_ok() && path.exists()
    }
}
