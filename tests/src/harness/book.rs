use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use crate::scratch::Scratch;
use crate::until::PATIENCE;

/// A list of lines that handlers and peers add, and that a test waits for. Two processes can share a book: each has a copy and sends its
/// own lines to the other.
#[derive(Clone, Default)]
pub struct Book(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<String>,
    /// The connection to the other copy.
    other: Option<UnixStream>,
    /// `true` while the other process may still add lines; always `false` in the process that has opened the book.
    is_shared: bool,
    waiting: Vec<Waker>,
}

impl Book {
    /// A book for this process and another one, which opens it at the returned path.
    pub(super) fn to_share() -> (Self, Scratch) {
        let path = Scratch::new("book");
        let listener = UnixListener::bind(&path).expect("a socket");
        let book = Self::default();
        book.state().is_shared = true;
        let ours = book.clone();
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the other process");
            ours.receive(stream);
        });
        (book, path)
    }

    /// The book that another process shares.
    pub(super) fn open(path: &Path) -> Self {
        let book = Self::default();
        let (ours, stream) = (book.clone(), UnixStream::connect(path).expect("a book"));
        book.state().other = Some(stream.try_clone().expect("a second handle"));
        thread::spawn(move || ours.receive(stream));
        book
    }

    /// Receives the lines of the other process and adds them to this copy, until that process has ended.
    fn receive(&self, stream: UnixStream) {
        let other = stream.try_clone().expect("a second handle");
        self.change(|state| {
            // Only the process that made the book comes here without a connection. It sends the lines that it has added so far.
            if state.other.is_none() {
                state.other = Some(other);
                for line in state.lines.clone() {
                    state.send(&line);
                }
            }
        });
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            self.change(|state| state.lines.push(line));
        }
        self.change(|state| state.is_shared = false);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all tasks and threads that wait for a change.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.changed.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Adds a line here and at the other process.
    pub fn note(&self, line: impl Into<String>) {
        let line = line.into();
        self.change(|state| {
            state.send(&line);
            state.lines.push(line);
        });
    }

    /// All lines, in order.
    #[must_use]
    pub fn read(&self) -> Vec<String> {
        self.state().lines.clone()
    }

    /// Waits until `holds` returns `true`.
    async fn until(&self, holds: impl Fn(&State) -> bool) {
        poll_fn(|cx| {
            let mut state = self.state();
            if holds(&state) {
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits until `lines` lines are noted.
    pub async fn until_noted(&self, lines: usize) {
        self.until(|state| state.lines.len() >= lines).await;
    }

    /// Waits until the other process has ended, after which no lines are missing.
    pub(super) async fn until_complete(&self) {
        self.until(|state| !state.is_shared).await;
    }

    /// Blocks until `lines` lines are noted.
    ///
    /// # Panics
    /// If the lines are not noted within [`PATIENCE`].
    pub fn wait(&self, lines: usize) {
        let too_few = |state: &mut State| state.lines.len() < lines;
        let waited = self.0.changed.wait_timeout_while(self.state(), PATIENCE, too_few);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{lines} lines expected: {:?}", state.lines);
    }
}

impl State {
    fn send(&mut self, line: &str) {
        if let Some(other) = &mut self.other {
            // A process that has ended needs no more lines.
            let _ = other.write_all(format!("{line}\n").as_bytes());
        }
    }
}
