//! The deadlines of a machine (`HttpServer` or `HttpClient`), in one ordered set.

use alloc::collections::BTreeSet;

use crate::time::Instant;

/// The deadline of one part of the machine, a copy of its entry in [`Timers`]. `None` if there is no such entry.
#[derive(Debug, Default)]
pub(super) struct Armed(Option<Instant>);

/// All deadlines of the machine, each with the key of the part that it belongs to.
#[derive(Debug)]
pub(super) struct Timers<K> {
    all: BTreeSet<(Instant, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { all: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Moves the deadline of `key` from the time in `armed` to `at`, and stores `at` in `armed`. Returns the time that was there before.
    pub(super) fn set(&mut self, armed: &mut Armed, key: K, at: Option<Instant>) -> Option<Instant> {
        let before = armed.0;
        if before == at {
            return before;
        }
        if let Some(old) = before {
            self.all.remove(&(old, key));
        }
        if let Some(at) = at {
            self.all.insert((at, key));
        }
        armed.0 = at;
        before
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.all.first().map(|(at, _)| *at)
    }

    /// Removes the earliest deadline up to and including `now`, and returns its key; `None` if there is no such deadline. The caller must
    /// then call [`Armed::forget`] for the part that the deadline belongs to.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<K> {
        let first = self.all.first().filter(|(at, _)| *at <= now)?;
        let key = first.1;
        self.all.pop_first();
        Some(key)
    }
}

impl Armed {
    /// Records that the deadline was removed from the timers, and returns it.
    pub(super) fn forget(&mut self) -> Option<Instant> {
        self.0.take()
    }
}
