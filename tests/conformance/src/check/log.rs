//! The frames of a scenario, in the order in which they were sent and received.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum number of entries that are kept from the beginning, and also of those from the end.
const KEPT: usize = 60;
/// The maximum number of bytes of an entry that are kept.
const KEPT_BYTES: usize = 2048;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the server.
    Sent,
    /// From the server.
    Received,
    /// No frame: something else that happened, such as the end of a process.
    Note,
}

/// A frame, or something else that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The direction.
    pub direction: Direction,
    /// The time since the beginning of the scenario.
    pub at: Duration,
    /// The text, of which at most the first 2048 bytes are kept.
    pub text: String,
    /// The length of the whole text in bytes.
    pub bytes: usize,
}

/// The entries of a scenario. If there are many, only the first and the last ones are kept.
#[derive(Clone, Debug)]
pub struct Log {
    begin: Instant,
    first: Vec<Entry>,
    last: VecDeque<Entry>,
    dropped: usize,
}

impl Default for Log {
    fn default() -> Self {
        Self { begin: Instant::now(), first: Vec::new(), last: VecDeque::new(), dropped: 0 }
    }
}

impl Log {
    pub(super) fn add(&mut self, direction: Direction, bytes: &[u8]) {
        let kept = &bytes[..bytes.len().min(KEPT_BYTES)];
        let text = String::from_utf8_lossy(kept).trim_end_matches(['\r', '\n']).to_owned();
        let entry = Entry { direction, at: self.begin.elapsed(), text, bytes: bytes.len() };
        if self.first.len() < KEPT {
            return self.first.push(entry);
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
            self.dropped += 1;
        }
        self.last.push_back(entry);
    }

    pub(super) fn note(&mut self, what: &str) {
        self.add(Direction::Note, what.as_bytes());
    }

    /// The entries that were kept, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.first.iter().chain(&self.last)
    }

    /// The number of entries that were not kept. They came between the first 60 and the last 60.
    #[must_use]
    pub const fn dropped(&self) -> usize {
        self.dropped
    }
}
