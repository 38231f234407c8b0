use std::fmt;

use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Row {
    /// The place of the other end.
    pub over: Over,
    /// The work.
    pub what: What,
    /// The number of threads of the runtime.
    pub workers: usize,
}

/// The place of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Over {
    /// In the same process, at the other end of a pair in memory.
    Duplex,
    /// In a child process, on its standard input and output.
    ChildStdio,
}

/// The work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum What {
    /// Round trips of a call whose tool returns the text that it is given.
    RoundTrips {
        /// The number of callers, each with one call at a time.
        callers: usize,
        /// `true` if the handler is a task of its own, for contenders that have this choice.
        spawned: bool,
    },
    /// Progress updates, 1 000 for each call, counted by the caller that reads them.
    Progress,
    /// 1 000 calls that would never end are cancelled at once.
    Cancelled,
    /// 1 000 calls that would never end are dropped at once.
    Dropped,
    /// Memory of one more connection that is open and idle.
    Connection,
    /// Memory of one more call in flight.
    Call,
}

impl Row {
    /// Every row, in the order of the table.
    pub const ALL: [Self; 15] = {
        const fn duplex(what: What, workers: usize) -> Row {
            Row { over: Over::Duplex, what, workers }
        }
        const fn child(what: What) -> Row {
            Row { over: Over::ChildStdio, what, workers: 1 }
        }
        const fn trips(callers: usize) -> What {
            What::RoundTrips { callers, spawned: false }
        }
        const fn spawned(callers: usize) -> What {
            What::RoundTrips { callers, spawned: true }
        }
        [
            duplex(trips(1), 1),
            duplex(spawned(1), 1),
            duplex(trips(256), 1),
            duplex(spawned(256), 1),
            duplex(trips(256), 2),
            duplex(spawned(256), 2),
            duplex(What::Progress, 1),
            duplex(What::Progress, 2),
            child(trips(1)),
            child(trips(256)),
            child(What::Progress),
            duplex(What::Cancelled, 1),
            duplex(What::Dropped, 1),
            duplex(What::Connection, 1),
            duplex(What::Call, 1),
        ]
    };

    /// The unit of the number.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self.what {
            What::RoundTrips { .. } | What::Progress => Unit::PerSecond,
            What::Cancelled | What::Dropped => Unit::Milliseconds,
            What::Connection | What::Call => Unit::Bytes,
        }
    }

    /// Returns `true` if the time of the row is measured.
    #[must_use]
    pub const fn is_timed(self) -> bool {
        !matches!(self.unit(), Unit::Bytes)
    }

    /// Returns `true` if the allocations of the row are counted, for which all work must be on one thread of one process.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self.over, Over::Duplex) && self.workers == 1 && matches!(self.unit(), Unit::PerSecond | Unit::Bytes)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.over {
            Over::Duplex => "duplex: ",
            Over::ChildStdio => "child stdio: ",
        })?;
        match self.what {
            What::RoundTrips { callers: 1, .. } => f.write_str("round trips, one at a time")?,
            What::RoundTrips { callers, .. } => write!(f, "round trips, {callers} in flight")?,
            What::Progress => f.write_str("progress updates")?,
            What::Cancelled => f.write_str("1 000 calls cancelled at once")?,
            What::Dropped => f.write_str("1 000 calls dropped at once")?,
            What::Connection => f.write_str("one more idle connection, both ends")?,
            What::Call => f.write_str("one more call in flight, both ends")?,
        }
        if let What::RoundTrips { spawned: true, .. } = self.what {
            f.write_str(", a task for each handler")?;
        }
        if self.workers > 1 {
            write!(f, ", {} workers", self.workers)?;
        }
        f.write_str(self.unit().suffix())
    }
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Unit {
    /// Operations a second.
    PerSecond,
    /// Milliseconds until all calls have ended.
    Milliseconds,
    /// Bytes of the heap.
    Bytes,
}

impl Unit {
    const fn suffix(self) -> &'static str {
        match self {
            Self::PerSecond => "",
            Self::Milliseconds => ", ms",
            Self::Bytes => ", bytes",
        }
    }
}
