use std::fmt;

use serde::{Deserialize, Serialize};

use super::payload::SIZES;

/// The number of connections in a row with many connections.
const MANY: usize = 1_000;

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
    /// Round trips of a call whose tool returns the text that it is given. The caller reads the text of the result.
    RoundTrips {
        /// The number of connections that work at the same time.
        connections: usize,
        /// The number of callers of each connection, each with one call at a time.
        callers: usize,
        /// The tool that is called.
        tool: EchoTool,
    },
    /// Round trips of [`EchoTool::Task`], one at a time, on one connection after the other.
    InTurn {
        /// The number of connections.
        connections: usize,
    },
    /// Calls with a long text, one at a time.
    LongText {
        /// The place of the text, and the way in which it is read.
        carried: Carried,
        /// The number of bytes of the text.
        bytes: usize,
    },
    /// Progress updates, 1 000 for each call, counted by the caller that reads them.
    Progress,
    /// 1 000 calls that would never end are cancelled together.
    Cancelled,
    /// 1 000 calls that would never end are dropped together.
    Dropped,
    /// Memory of one more connection that is open and idle.
    Connection,
    /// Memory of one more call in flight.
    Call,
}

/// The tool of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum EchoTool {
    /// Its handler runs in place, for contenders that have this choice.
    Inline,
    /// Its handler is a task of its own, for contenders that have this choice.
    Task,
    /// As [`Self::Task`], with the text in a struct that is nested in two others.
    Nested,
}

impl EchoTool {
    /// The name of the tool.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "echo",
            Self::Task => "echo-in-a-task",
            Self::Nested => "echo-nested",
        }
    }
}

/// The place of a long text in a call, and the way in which its receiver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Carried {
    /// In the result, which the caller does not read.
    Result,
    /// In the result, whose text the caller reads.
    ResultRead,
    /// As [`Self::ResultRead`], where the text has lines of 75 bytes, whose line feeds are escapes in JSON.
    LinesRead,
    /// In the arguments, which the tool reads.
    Arguments,
    /// As [`Self::Arguments`], where the text has lines.
    LinesTaken,
}

impl Carried {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Result, Self::ResultRead, Self::LinesRead, Self::Arguments, Self::LinesTaken];

    /// Returns `true` if the text has lines.
    #[must_use]
    pub const fn has_lines(self) -> bool {
        matches!(self, Self::LinesRead | Self::LinesTaken)
    }
}

impl Row {
    /// Every row, in the order of the table.
    #[must_use]
    pub fn all() -> Vec<Self> {
        use EchoTool::{Inline, Nested, Task};
        let duplex = |workers: usize, what: What| Self { over: Over::Duplex, what, workers };
        let child = |what: What| Self { over: Over::ChildStdio, what, workers: 1 };
        let trips = |callers: usize, tool: EchoTool| What::RoundTrips { connections: 1, callers, tool };
        let mut all = vec![
            duplex(1, trips(1, Inline)),
            duplex(1, trips(1, Task)),
            duplex(1, trips(1, Nested)),
            duplex(1, trips(256, Inline)),
            duplex(1, trips(256, Task)),
            duplex(1, trips(256, Nested)),
            duplex(2, trips(256, Inline)),
            duplex(2, trips(256, Task)),
            duplex(1, What::RoundTrips { connections: MANY, callers: 1, tool: Task }),
            duplex(2, What::RoundTrips { connections: MANY, callers: 1, tool: Task }),
            duplex(1, What::InTurn { connections: MANY }),
            duplex(1, What::Progress),
            duplex(2, What::Progress),
            child(trips(1, Inline)),
            child(trips(256, Inline)),
            child(What::Progress),
            duplex(1, What::Cancelled),
            duplex(1, What::Dropped),
            duplex(1, What::Connection),
            duplex(1, What::Call),
        ];
        for workers in [1, 2] {
            for carried in Carried::ALL {
                let sizes = SIZES.into_iter().filter(|_| workers == 1 || !carried.has_lines());
                all.extend(sizes.map(|bytes| duplex(workers, What::LongText { carried, bytes })));
            }
        }
        all
    }

    /// The unit of the number in the row.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self.what {
            What::RoundTrips { .. } | What::InTurn { .. } | What::Progress => Unit::PerSecond,
            What::LongText { .. } => Unit::Megabytes,
            What::Cancelled | What::Dropped => Unit::Milliseconds,
            What::Connection | What::Call => Unit::Bytes,
        }
    }

    /// Returns `true` if this build measures the row. A build without link-time optimisation measures no row with many connections or long
    /// texts.
    pub(super) const fn is_measured_here(self) -> bool {
        !(cfg!(feature = "without-lto") && self.is_large())
    }

    /// Returns `true` if the work has many connections or long texts.
    const fn is_large(self) -> bool {
        matches!(self.what, What::RoundTrips { connections: MANY, .. } | What::InTurn { .. } | What::LongText { .. })
    }

    /// Returns `true` if the time of the row is measured.
    #[must_use]
    pub const fn is_timed(self) -> bool {
        !matches!(self.unit(), Unit::Bytes)
    }

    /// Returns `true` if the allocations of the row are counted. This needs all work on one thread of one process. Rows with many
    /// connections or long texts, and rows in milliseconds, are only timed.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self.over, Over::Duplex) && self.workers == 1 && !self.is_large() && !matches!(self.unit(), Unit::Milliseconds)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.over {
            Over::Duplex => "duplex: ",
            Over::ChildStdio => "child stdio: ",
        })?;
        match self.what {
            What::RoundTrips { connections: 1, callers: 1, .. } => f.write_str("round trips, one at a time")?,
            What::RoundTrips { connections: 1, callers, .. } => write!(f, "round trips, {callers} in flight")?,
            What::RoundTrips { connections, .. } => write!(f, "round trips, one at a time on each of {connections} connections")?,
            What::InTurn { connections } => write!(f, "round trips, one at a time on {connections} connections in turn")?,
            What::LongText { carried, bytes } => {
                f.write_str(match carried {
                    Carried::Result => "a result, not read",
                    Carried::ResultRead => "a result, read",
                    Carried::LinesRead => "a result of lines, read",
                    Carried::Arguments => "arguments, read",
                    Carried::LinesTaken => "arguments of lines, read",
                })?;
                if bytes < 1 << 20 { write!(f, ", {} KiB", bytes >> 10)? } else { write!(f, ", {} MiB", bytes >> 20)? }
            }
            What::Progress => f.write_str("progress updates")?,
            What::Cancelled => f.write_str("1 000 calls cancelled at once")?,
            What::Dropped => f.write_str("1 000 calls dropped at once")?,
            What::Connection => f.write_str("one more idle connection, both ends")?,
            What::Call => f.write_str("one more call in flight, both ends")?,
        }
        match self.what {
            What::RoundTrips { tool: EchoTool::Task, .. } => f.write_str(", a task for each handler")?,
            What::RoundTrips { tool: EchoTool::Nested, .. } => f.write_str(", a task for each handler, nested arguments")?,
            _ => {}
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
    /// Megabytes of text a second.
    Megabytes,
    /// Milliseconds until all calls have ended.
    Milliseconds,
    /// Bytes of the heap.
    Bytes,
}

impl Unit {
    /// Returns `true` if greater numbers are better.
    #[must_use]
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::PerSecond | Self::Megabytes)
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::PerSecond => "",
            Self::Megabytes => ", MB/s",
            Self::Milliseconds => ", ms",
            Self::Bytes => ", bytes",
        }
    }
}
