use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::Row;
use programs::adapter::Adapter;

/// Somebody who is measured: how its ends are made. One runs at a time in a process.
pub trait Contender: 'static {
    /// What it runs on.
    type Runtime: Adapter;
    /// Its calling end.
    type Caller: Caller;

    /// Who it is.
    fn about() -> About;

    /// Returns `true` if it takes part in a row.
    fn has(row: Row) -> bool {
        let _ = row;
        true
    }

    /// Both ends in this process, on a pair in memory that holds `room` bytes each way. Ready for calls.
    fn duplex(runtime: &Self::Runtime, room: usize) -> impl Future<Output = Self::Caller>;

    /// The other end is a child that `command` starts and in which [`Contender::serve`] runs. Ready for calls.
    fn child(runtime: &Self::Runtime, command: Command) -> impl Future<Output = Self::Caller>;

    /// Serves on standard input and output, until they end.
    fn serve(runtime: &Self::Runtime) -> impl Future<Output = ()>;
}

/// The calling end of a contender. Clones are other callers on the same connection; it ends with the process.
pub trait Caller: Clone + Send + Sync + 'static {
    /// A call that does not end by itself.
    type Held: Send + 'static;

    /// Calls the tool that gives its text back, and waits for the answer. `spawned` as in [`What::RoundTrips`](super::What::RoundTrips).
    fn echo(&self, text: &str, spawned: bool) -> impl Future<Output = ()> + Send;

    /// Calls the tool that reports `count` updates, 1 to `count` of `count`, as fast as it can, and reads them all.
    fn report(&self, count: u64) -> impl Future<Output = Updates> + Send;

    /// Begins a call that will be left so. Its handler holds a [`Running`].
    fn hang(&self, leave: Leave) -> impl Future<Output = Self::Held> + Send;

    /// Cancels all of them, and then waits until they have ended at this end.
    fn cancel(calls: Vec<Self::Held>) -> impl Future<Output = ()> + Send;
}

/// Who somebody is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct About {
    /// Name and version.
    pub name: String,
    /// What it runs on. It is compared with the floor on the same.
    pub runtime: String,
    /// What it is in the table.
    pub kind: Kind,
}

impl About {
    /// One that is part of this project, on `runtime`; its name says how it was built, unless that is as everybody was.
    pub(super) fn here(name: &str, runtime: &str, kind: Kind) -> Self {
        let build = if cfg!(feature = "without-lto") { ", no LTO" } else { "" };
        Self { name: format!("{name}{build}"), runtime: format!("{runtime}{build}"), kind }
    }
}

/// What somebody is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Kind {
    /// What everybody else is compared with.
    Floor,
    /// This project.
    Ours,
    /// Somebody else's.
    Other,
}

/// How a call that hangs is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By [`Caller::cancel`].
    Cancel,
    /// By dropping it.
    Drop,
}

/// What became of updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Updates {
    /// Reported by handlers.
    pub sent: u64,
    /// Read by callers, whenever that was.
    pub heard: u64,
    /// Heard behind one that was reported later.
    pub disordered: u64,
    /// Heard behind the answer.
    pub late: u64,
}

impl Updates {
    /// Reported and not heard.
    #[must_use]
    pub const fn lost(self) -> u64 {
        self.sent.saturating_sub(self.heard)
    }

    /// Returns `true` if each was heard, in its order and before the answer.
    #[must_use]
    pub const fn are_whole(self) -> bool {
        self.sent == self.heard && self.disordered == 0 && self.late == 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.heard += other.heard;
        self.disordered += other.disordered;
        self.late += other.late;
    }
}

/// Hears the updates of one call.
#[derive(Debug, Default)]
pub struct Listener {
    updates: Updates,
    highest: f64,
    answered: bool,
}

impl Listener {
    /// Listens for so many.
    #[must_use]
    pub fn of(count: u64) -> Self {
        Self { updates: Updates { sent: count, ..Updates::default() }, ..Self::default() }
    }

    /// One has come.
    pub fn hear(&mut self, value: f64) {
        self.updates.heard += 1;
        self.updates.disordered += u64::from(value <= self.highest);
        self.updates.late += u64::from(self.answered);
        self.highest = self.highest.max(value);
    }

    /// The answer has come.
    pub fn answered(&mut self) {
        self.answered = true;
    }

    /// What became of them so far.
    #[must_use]
    pub const fn updates(&self) -> Updates {
        self.updates
    }
}

/// Held by a handler that hangs, so that its process knows how many there are.
#[derive(Debug)]
pub struct Running(());

static BEGUN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);

impl Running {
    /// A handler has begun.
    #[must_use]
    pub fn begin() -> Self {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// How many have begun.
    pub(super) fn begun() -> usize {
        BEGUN.load(Ordering::SeqCst)
    }

    /// How many have ended.
    pub(super) fn ended() -> usize {
        ENDED.load(Ordering::SeqCst)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::SeqCst);
    }
}
