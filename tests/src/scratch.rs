//! Temporary files of tests.

use std::env;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A unique path in the temporary directory of the system. A file or a folder at this path is removed when this value is dropped, also
/// if the test fails.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A path that ends in `name`, with no file there.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("scratch-{}-{}-{name}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let scratch = Self(env::temp_dir().join(name));
        // An earlier process with the same id may have been killed and have left a file.
        scratch.clear();
        scratch
    }

    fn clear(&self) {
        let is_folder = fs::symlink_metadata(&self.0).is_ok_and(|found| found.is_dir());
        let _ = if is_folder { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
    }
}

impl Deref for Scratch {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear();
    }
}
