//! The report of all measurements, which can be written as JSON.

use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

use super::contender::{About, Kind, Updates};
use super::parts::{Counted, Timed};
use super::row::{Row, Unit};

/// Everything that one run of the program measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The number of times that each row was timed.
    pub rounds: usize,
    /// The time of each measurement in milliseconds.
    pub span_ms: u64,
    /// The number of measurements that failed.
    pub failed: usize,
    /// The cells row by row, in the order of the table.
    pub cells: Vec<Cell>,
}

/// The machine, as far as the system describes it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Machine {
    /// The name of the processor.
    pub processor: String,
    /// The number of threads that can run in parallel.
    pub threads: usize,
    /// The load averages over 1, 5 and 15 minutes before the measurements.
    pub load_before: String,
    /// The load averages after the measurements, which contribute to them.
    pub load_after: String,
}

/// One contender in one row.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cell {
    /// The contender.
    pub about: About,
    /// The row.
    pub row: Row,
    /// `row` in words.
    pub title: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The value of each round that did not fail; `None` if the work did not end in time.
    pub values: Vec<Option<f64>>,
    /// The median of the values; `None` if most rounds have none. In rows whose unit is [`Unit::Bytes`], it is `bytes`.
    pub median: Option<f64>,
    /// Allocations of one operation, both ends.
    pub allocations: Option<f64>,
    /// Bytes of one operation's allocations, both ends.
    pub bytes: Option<f64>,
    /// The most memory that a measuring process held, in KiB. With a child process it is the memory of the calling end.
    pub peak_kib: Option<u64>,
    /// The counts of updates of all rounds together.
    pub updates: Option<Updates>,
}

impl Report {
    /// The cell of the contender `name` in `row`.
    #[must_use]
    pub fn cell(&self, name: &str, row: Row) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.about.name == name && cell.row == row)
    }

    /// The cell of the floor, the baseline of the comparison, on the runtime and in the row of `cell`.
    #[must_use]
    pub fn floor(&self, cell: &Cell) -> Option<&Cell> {
        let is_floor = |about: &About| about.kind == Kind::Floor && about.runtime == cell.about.runtime;
        self.cells.iter().find(|other| is_floor(&other.about) && other.row == cell.row)
    }

    /// All contenders in the order of the table: floors, this project, others, each by name.
    #[must_use]
    pub fn contenders(&self) -> Vec<About> {
        let mut all: Vec<About> = self.cells.iter().map(|cell| cell.about.clone()).collect();
        all.sort_by(|one, other| (one.kind as u8, &one.name).cmp(&(other.kind as u8, &other.name)));
        all.dedup();
        all
    }
}

impl Cell {
    pub(super) fn new(about: About, row: Row) -> Self {
        Self {
            about,
            row,
            title: row.to_string(),
            unit: row.unit(),
            values: Vec::new(),
            median: None,
            allocations: None,
            bytes: None,
            peak_kib: None,
            updates: None,
        }
    }

    /// Adds a round.
    pub(super) fn take(&mut self, timed: Timed) {
        self.values.push(timed.value);
        self.median = median(&self.values);
        self.peak_kib = self.peak_kib.max(timed.peak_kib);
        if let Some(updates) = timed.updates {
            self.updates.get_or_insert_default().add(updates);
        }
    }

    pub(super) fn take_counted(&mut self, counted: Option<Counted>) {
        self.allocations = counted.and_then(|counted| counted.allocations);
        self.bytes = counted.map(|counted| counted.bytes);
        if self.unit == Unit::Bytes {
            self.median = self.bytes;
        }
    }
}

impl Machine {
    pub(super) fn here() -> Self {
        let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            processor: processor.map(|(_, name)| name.into()).unwrap_or_default(),
            threads: thread::available_parallelism().map_or(0, usize::from),
            load_before: load(),
            load_after: String::new(),
        }
    }
}

pub(super) fn load() -> String {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    averages.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The value in the middle, or the lower of the two in the middle. Missing values count as greater than all others.
fn median(values: &[Option<f64>]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().filter(|value| value.is_finite())
}
