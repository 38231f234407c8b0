//! Standard input and output that are pipes, opened a second time in non-blocking mode, so that no thread is needed. Setting the mode of
//! the existing file descriptors would change it for all other processes that share them.

use std::fs::{File, Metadata, OpenOptions, metadata, read_link};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// The flag of the system call `open` for non-blocking mode.
const O_NONBLOCK: i32 = 0o4000;
/// `true` on targets on which [`O_NONBLOCK`] has this value, and on which opening a path below `/proc/self/fd` makes a new open file
/// description, with a mode of its own.
const IS_SUPPORTED: bool = cfg!(all(
    target_os = "linux",
    not(any(
        target_arch = "mips",
        target_arch = "mips32r6",
        target_arch = "mips64",
        target_arch = "mips64r6",
        target_arch = "sparc",
        target_arch = "sparc64"
    ))
));

/// Opens standard input in non-blocking mode. Returns `None` if it is not an anonymous pipe or cannot be opened, and always on MIPS, on
/// SPARC and on systems other than Linux. In these cases use [`Stdin`](crate::Stdin).
#[must_use]
pub fn fifo_stdin() -> Option<File> {
    open("/proc/self/fd/0", OpenOptions::new().read(true))
}

/// Opens standard output in non-blocking mode. Returns `None` in the same cases as [`fifo_stdin`].
#[must_use]
pub fn fifo_stdout() -> Option<File> {
    open("/proc/self/fd/1", OpenOptions::new().write(true))
}

/// Opens a file only if it is an anonymous pipe. Opening a terminal or a device can have side effects. A named pipe whose last writer is
/// gone would not be at its end after a second opening: reading it would wait for another writer.
fn open(path: &str, options: &mut OpenOptions) -> Option<File> {
    let is_pipe = |file: Metadata| file.file_type().is_fifo();
    let is_anonymous = || read_link(path).is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:["));
    if !IS_SUPPORTED || !metadata(path).is_ok_and(is_pipe) || !is_anonymous() {
        return None;
    }
    options.custom_flags(O_NONBLOCK).open(path).ok()
}
