//! What was measured, as it is kept.

use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

use super::contender::{About, Kind, Updates};
use super::parts::{Counted, Timed};
use super::row::{Row, Unit};

/// Everything that one run of the program measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// The number of times that each row was timed.
    pub rounds: usize,
    /// For how long, in milliseconds, each time.
    pub span_ms: u64,
    /// The number of times that something could not be measured.
    pub failed: usize,
    /// Row by row, in the order of the table.
    pub cells: Vec<Cell>,
}

/// The machine, as far as it says.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Machine {
    /// The name of its processor.
    pub processor: String,
    /// The number of threads that run at once.
    pub threads: usize,
    /// Its load averages over 1, 5 and 15 minutes before anything was measured.
    pub load_before: String,
    /// The same when all was measured. The measuring is part of it.
    pub load_after: String,
}

/// One contender in one row.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cell {
    /// Who.
    pub about: About,
    /// What.
    pub row: Row,
    /// `row` in words.
    pub title: String,
    /// What the values count.
    pub unit: Unit,
    /// Of each round; `None` where it did not happen.
    pub values: Vec<Option<f64>>,
    /// The median of the values; `None` if it mostly did not happen.
    pub median: Option<f64>,
    /// Allocations of one operation, both ends.
    pub allocations: Option<f64>,
    /// Bytes of one operation's allocations, both ends.
    pub bytes: Option<f64>,
    /// The most memory that a measuring process held, in KiB. With a child, that of the calling end.
    pub peak_kib: Option<u64>,
    /// What became of updates, all rounds together.
    pub updates: Option<Updates>,
}

impl Report {
    /// What `name` has in `row`.
    #[must_use]
    pub fn cell(&self, name: &str, row: Row) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.about.name == name && cell.row == row)
    }

    /// What the floor on the same runtime has in the row of `cell`.
    #[must_use]
    pub fn floor(&self, cell: &Cell) -> Option<&Cell> {
        let is_floor = |about: &About| about.kind == Kind::Floor && about.runtime == cell.about.runtime;
        self.cells.iter().find(|other| is_floor(&other.about) && other.row == cell.row)
    }

    /// Everybody, in the order of the table: floors, this project, others, each by name.
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

    /// One more round.
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

/// The one in the middle, the lower of two. What did not happen lies beyond everything that did.
fn median(values: &[Option<f64>]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().filter(|value| value.is_finite())
}
