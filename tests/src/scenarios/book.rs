use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::scratch::Scratch;

/// What somebody saw, line by line. In memory, or in a file that another process reads.
#[derive(Clone, Default)]
pub struct Book {
    lines: Arc<Mutex<Vec<String>>>,
    file: Option<Arc<File>>,
}

struct File {
    path: PathBuf,
    /// Whoever began it removes it.
    _ours: Option<Scratch>,
}

impl Book {
    pub(super) fn in_a_file() -> Self {
        let ours = Scratch::new("book");
        fs::write(&ours, "").expect("a file");
        Self { file: Some(Arc::new(File { path: ours.clone(), _ours: Some(ours) })), ..Self::default() }
    }

    pub(super) fn at(path: PathBuf) -> Self {
        Self { file: Some(Arc::new(File { path, _ours: None })), ..Self::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.as_ref().expect("a book in a file").path
    }

    /// Notes a line.
    pub fn note(&self, line: impl Into<String>) {
        let mut line = line.into();
        match &self.file {
            None => self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line),
            Some(file) => {
                line.push('\n');
                let mut file = OpenOptions::new().append(true).open(&file.path).expect("the book");
                file.write_all(line.as_bytes()).expect("room in the book");
            }
        }
    }

    /// All that was noted, and how often in a row.
    #[must_use]
    pub fn read(&self) -> Vec<String> {
        match &self.file {
            None => self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Some(file) => fs::read_to_string(&file.path).expect("the book").lines().map(str::to_owned).collect(),
        }
    }
}
