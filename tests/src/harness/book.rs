use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use crate::scratch::Scratch;
use crate::until::PATIENCE;

/// A list of noted lines. Two processes can share a book: each has a copy and sends its lines to the other.
#[derive(Clone, Default)]
pub struct Book(Arc<Shared>);

#[derive(Default)]
struct Shared {
    page: Mutex<Page>,
    changed: Condvar,
}

#[derive(Default)]
struct Page {
    lines: Vec<String>,
    /// The connection to the other copy.
    there: Option<UnixStream>,
    /// `true` while another process may still note lines.
    is_shared: bool,
    waiting: Vec<Waker>,
}

impl Book {
    /// A book for this process and another one, which opens it at the returned path.
    pub(super) fn to_share() -> (Self, Scratch) {
        let path = Scratch::new("book");
        let listener = UnixListener::bind(&path).expect("a socket");
        let book = Self::default();
        book.page().is_shared = true;
        let ours = book.clone();
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the other process");
            ours.join(stream);
        });
        (book, path)
    }

    /// The book that another process shares.
    pub(super) fn open(path: &Path) -> Self {
        let book = Self::default();
        let (ours, stream) = (book.clone(), UnixStream::connect(path).expect("a book"));
        book.page().there = Some(stream.try_clone().expect("a second handle"));
        thread::spawn(move || ours.join(stream));
        book
    }

    /// Copies the lines of the other process until it has ended.
    fn join(&self, stream: UnixStream) {
        let there = stream.try_clone().expect("a second handle");
        self.change(|page| {
            // The process that was first sends the lines that it has noted before.
            if page.there.is_none() {
                page.there = Some(there);
                for line in page.lines.clone() {
                    page.send(&line);
                }
            }
        });
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            self.change(|page| page.lines.push(line));
        }
        self.change(|page| page.is_shared = false);
    }

    fn page(&self) -> MutexGuard<'_, Page> {
        self.0.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the page, and wakes those that wait for a change.
    fn change(&self, change: impl FnOnce(&mut Page)) {
        let mut page = self.page();
        change(&mut page);
        let waiting = std::mem::take(&mut page.waiting);
        drop(page);
        self.0.changed.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Notes a line.
    pub fn note(&self, line: impl Into<String>) {
        let line = line.into();
        self.change(|page| {
            page.send(&line);
            page.lines.push(line);
        });
    }

    /// All lines, in order.
    #[must_use]
    pub fn read(&self) -> Vec<String> {
        self.page().lines.clone()
    }

    async fn until(&self, holds: impl Fn(&Page) -> bool) {
        poll_fn(|cx| {
            let mut page = self.page();
            if holds(&page) {
                return Poll::Ready(());
            }
            page.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits until `lines` lines are noted.
    pub async fn has(&self, lines: usize) {
        self.until(|page| page.lines.len() >= lines).await;
    }

    /// Waits until the other process has ended, after which no lines are missing.
    pub(super) async fn is_complete(&self) {
        self.until(|page| !page.is_shared).await;
    }

    /// Blocks until `lines` lines are noted.
    ///
    /// # Panics
    /// If that takes longer than [`PATIENCE`].
    pub fn wait(&self, lines: usize) {
        let too_few = |page: &mut Page| page.lines.len() < lines;
        let waited = self.0.changed.wait_timeout_while(self.page(), PATIENCE, too_few);
        let (page, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{lines} lines expected: {:?}", page.lines);
    }
}

impl Page {
    fn send(&mut self, line: &str) {
        if let Some(there) = &mut self.there {
            // A process that has ended needs no more lines.
            let _ = there.write_all(format!("{line}\n").as_bytes());
        }
    }
}
