//! The deadlines of a machine, of which the next is known at once.

use alloc::collections::BTreeSet;

use crate::time::Instant;

/// The deadline of one owner, as it stands in [`Timers`].
#[derive(Debug, Default)]
pub(super) struct Armed(Option<Instant>);

/// All deadlines, each with the key of its owner.
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
    pub(super) fn set(&mut self, armed: &mut Armed, key: K, at: Option<Instant>) {
        if armed.0 == at {
            return;
        }
        if let Some(old) = armed.0 {
            self.all.remove(&(old, key));
        }
        if let Some(at) = at {
            self.all.insert((at, key));
        }
        armed.0 = at;
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.all.first().map(|(at, _)| *at)
    }

    /// Removes a deadline that is not after `now`. Its owner must forget it.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<K> {
        let first = self.all.first().filter(|(at, _)| *at <= now)?;
        let key = first.1;
        self.all.pop_first();
        Some(key)
    }
}

impl Armed {
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}
