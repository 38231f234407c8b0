//! The messages between the process that prints the table and the measuring processes. A [`Part`] is passed on the command line, and its
//! result is the last line of standard output.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contender::{About, Contender, Updates};
use super::row::Row;
use super::work;
use programs::adapter::Adapter;

/// Runs some work, and returns the allocations that this thread has made meanwhile.
pub(super) type Counter = fn(&mut dyn FnMut()) -> Allocated;

/// The allocations of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allocated {
    /// The number of allocations.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
    /// The peak of the number of allocated bytes.
    pub most: u64,
}

/// One part of the measuring, which is done in a process of its own.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Part {
    /// List the contenders of the program.
    List,
    /// Serve as the other end, on standard input and output.
    Serve { name: String },
    /// Measure the time of a row.
    Time { name: String, row: Row, span: Duration },
    /// Count the allocations of a row.
    Count { name: String, row: Row },
    /// Do the work of a row `turns` times, for a profiler or for counting processor instructions, and print the number of operations.
    Repeat { name: String, row: Row, turns: u64 },
}

/// A contender of a program, with the rows whose time the program measures, and those whose allocations it counts.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Listed {
    pub(super) about: About,
    pub(super) timed: Vec<Row>,
    pub(super) counted: Vec<Row>,
}

/// The result of a measurement of time.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Timed {
    /// The value in the unit of the row; `None` if the work did not end in time.
    pub(super) value: Option<f64>,
    pub(super) updates: Option<Updates>,
    pub(super) peak_kib: Option<u64>,
}

/// The allocations of one operation at both ends. In the rows `What::Connection` and `What::Call` only `bytes` is set: the memory of one
/// more connection or call.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Counted {
    pub(super) allocations: Option<f64>,
    pub(super) bytes: f64,
}

/// The functions of a contender, without its type.
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
