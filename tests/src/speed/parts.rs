//! What the process that prints the table and those that measure tell each other: a part on the command line, its outcome as the
//! last line of standard output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contender::{About, Contender, Updates};
use super::row::Row;
use super::work;
use programs::adapter::Adapter;

/// Runs some work and says what this thread allocated meanwhile.
pub(super) type Counter = fn(&mut dyn FnMut()) -> Allocated;

/// What a thread allocated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allocated {
    /// How often.
    pub count: u64,
    /// How much in all, in bytes.
    pub bytes: u64,
    /// The most bytes that were alive at once.
    pub most: u64,
}

/// What a process is to do.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Part {
    /// Say who can be measured.
    List,
    /// Be the other end, on standard input and output.
    Serve { name: String },
    /// Measure the time of a row.
    Time { name: String, row: Row, span: Duration },
    /// Count the allocations of a row.
    Count { name: String, row: Row },
    /// Do the work of a row so many times, for a profiler or a counter of instructions. Says how many operations that were.
    Repeat { name: String, row: Row, turns: u64 },
}

/// Who can be measured.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Listed {
    pub(super) about: About,
    pub(super) timed: Vec<Row>,
    pub(super) counted: Vec<Row>,
}

/// How fast something was.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Timed {
    /// In the unit of its row. `None`: it did not happen.
    pub(super) value: Option<f64>,
    pub(super) updates: Option<Updates>,
    pub(super) peak_kib: Option<u64>,
}

/// What one operation takes of the heap, at both ends.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Counted {
    pub(super) allocations: Option<f64>,
    pub(super) bytes: f64,
}

/// A contender without its type.
pub(super) struct Entry {
    pub(super) about: About,
    pub(super) has: fn(Row) -> bool,
    pub(super) serve: fn(),
    pub(super) time: fn(Row, Duration) -> Timed,
    pub(super) count: fn(Row, Counter) -> Option<Counted>,
    pub(super) operate: fn(Row, u64) -> u64,
}

impl Entry {
    pub(super) fn of<C: Contender>() -> Self {
        Self {
            about: C::about(),
            has: C::has,
            serve: || C::Runtime::run(Some(1), |adapter| async move { C::serve(&adapter).await }),
            time: work::time::<C>,
            count: work::count::<C>,
            operate: work::operate::<C>,
        }
    }
}
