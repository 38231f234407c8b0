//! Standard input and output where they are pipes, opened once more: as open files of our own, which can be told not to wait while
//! other processes that hold the same pipe go on as before. So they need no thread.

use std::fs::{File, Metadata, OpenOptions, metadata, read_link};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// `O_NONBLOCK`. Without it, opening would wait for the other end.
const WITHOUT_WAITING: i32 = 0o4000;
/// `true` if that is its number, and a path of `/proc` opens a file anew.
const IS_KNOWN: bool = cfg!(all(
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

/// Standard input, to be read without waiting. `None` where it is no pipe, has a name, or cannot be opened: a thread reads it then ([`super::Stdin`]).
#[must_use]
pub fn fifo_stdin() -> Option<File> {
    open("/proc/self/fd/0", OpenOptions::new().read(true))
}

/// Standard output, to be written without waiting. `None` where it is no pipe, has a name, cannot be opened, or has lost its reader.
#[must_use]
pub fn fifo_stdout() -> Option<File> {
    open("/proc/self/fd/1", OpenOptions::new().write(true))
}

/// Looks first: a terminal, for one, would notice that it is opened. And one that has a name among the files may have lost its last
/// writer by now: opened anew, it would wait for another one, and never end.
fn open(path: &str, options: &mut OpenOptions) -> Option<File> {
    let is_pipe = |file: Metadata| file.file_type().is_fifo();
    let is_nameless = || read_link(path).is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:["));
    if !IS_KNOWN || !metadata(path).is_ok_and(is_pipe) || !is_nameless() {
        return None;
    }
    options.custom_flags(WITHOUT_WAITING).open(path).ok()
}
