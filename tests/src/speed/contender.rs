use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::row::{Carried, EchoTool, Row};
use programs::adapter::Adapter;

/// An implementation that is measured. It makes both ends of a connection. A process runs only one contender at a time.
pub trait Contender: 'static {
    /// The runtime.
    type Runtime: Adapter;
    /// The calling end.
    type Caller: Caller;

    /// The name, the runtime and the kind of the contender.
    fn about() -> About;

    /// Returns `true` if the contender is measured in a row.
    fn has(row: Row) -> bool {
        let _ = row;
        true
    }

    /// Makes both ends in this process, on a pair in memory that holds `room` bytes each way, and makes the handshake.
    fn duplex(runtime: &Self::Runtime, room: usize) -> impl Future<Output = Self::Caller>;

    /// Starts a child process, in which `command` runs [`Contender::serve`]. Makes its calling end, and makes the handshake.
    fn child(runtime: &Self::Runtime, command: Command) -> impl Future<Output = Self::Caller>;

    /// Serves on standard input and output, until they end.
    fn serve(runtime: &Self::Runtime) -> impl Future<Output = ()>;
}

/// The calling end of a contender. Clones are other callers on the same connection, which ends with the process.
pub trait Caller: Clone + Send + Sync + 'static {
    /// A call that does not end by itself.
    type Hanging: Send + 'static;

    /// Calls `tool` with a text, which is also its result, and reads the text of the result. Returns the length of that text in bytes.
    fn echo(&self, text: &str, tool: EchoTool) -> impl Future<Output = usize> + Send;

    /// Makes a call with the text [`long_text`](super::payload::long_text). If `carried` says that the text is in the result, calls the
    /// tool `text`, otherwise the tool `take`, which returns the length of its argument. Returns the length that the receiver of the text
    /// has seen, at least `bytes`.
    fn carry(&self, carried: Carried, bytes: usize) -> impl Future<Output = usize> + Send;

    /// Calls the tool `report`, which reports `count` updates, 1 to `count` of `count`, as fast as it can. Reads all updates.
    fn report(&self, count: u64) -> impl Future<Output = Updates> + Send;

    /// Begins a call that never ends by itself, and that will be ended in the way `leave`. Its handler holds a [`HandlerCount`].
    fn hang(&self, leave: Leave) -> impl Future<Output = Self::Hanging> + Send;

    /// Cancels all of these calls, and then waits until they have ended at this end.
    fn cancel(calls: Vec<Self::Hanging>) -> impl Future<Output = ()> + Send;
}

/// The description of a contender.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct About {
    /// The name and the version.
    pub name: String,
    /// The runtime. The contender is compared with the floor on the same runtime.
    pub runtime: String,
    /// The kind of the contender in the table.
    pub kind: Kind,
}

impl About {
    /// A contender of this program on `runtime`. In a build without link-time optimisation, both names say so.
    pub(super) fn here(name: &str, runtime: &str, kind: Kind) -> Self {
        let build = if cfg!(feature = "without-lto") { ", no LTO" } else { "" };
        Self { name: format!("{name}{build}"), runtime: format!("{runtime}{build}"), kind }
    }
}

/// The kind of a contender in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Kind {
    /// The baseline with which all others are compared.
    Floor,
    /// This project.
    Ours,
    /// Another SDK.
    Other,
}

/// The way in which a hanging call is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By [`Caller::cancel`].
    Cancel,
    /// By dropping the call.
    Drop,
}

/// Counts of updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Updates {
    /// Updates that handlers have reported.
    pub sent: u64,
    /// Updates that callers have received, before or after the response.
    pub heard: u64,
    /// Updates that were received after one that was reported later, or a second time.
    pub disordered: u64,
    /// Updates that were received after the response.
    pub late: u64,
}

impl Updates {
    /// The number of updates that were reported and not received.
    #[must_use]
    pub const fn lost(self) -> u64 {
        self.sent.saturating_sub(self.heard)
    }

    /// Returns `true` if each update was received, in order and before the response.
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

/// Checks the updates of one call.
#[derive(Debug, Default)]
pub struct Listener {
    updates: Updates,
    highest: f64,
    answered: bool,
}

impl Listener {
    /// Expects `count` updates.
    #[must_use]
    pub fn of(count: u64) -> Self {
        Self { updates: Updates { sent: count, ..Updates::default() }, ..Self::default() }
    }

    /// Counts an update that has come.
    pub fn hear(&mut self, value: f64) {
        self.updates.heard += 1;
        self.updates.disordered += u64::from(value <= self.highest);
        self.updates.late += u64::from(self.answered);
        self.highest = self.highest.max(value);
    }

    /// Notes that the response has come.
    pub fn answered(&mut self) {
        self.answered = true;
    }

    /// The counts so far.
    #[must_use]
    pub const fn updates(&self) -> Updates {
        self.updates
    }
}

/// A guard that each hanging handler holds, by which the handlers of a process are counted.
#[derive(Debug)]
pub struct HandlerCount(());

static BEGUN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);

impl HandlerCount {
    /// Counts a handler that begins.
    #[must_use]
    pub fn begin() -> Self {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// The number of handlers that have begun.
    pub(super) fn begun() -> usize {
        BEGUN.load(Ordering::SeqCst)
    }

    /// The number of handlers that have ended.
    pub(super) fn ended() -> usize {
        ENDED.load(Ordering::SeqCst)
    }
}

impl Drop for HandlerCount {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::SeqCst);
    }
}
