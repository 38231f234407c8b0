//! A map for keys that nearly always come in rising order: the ids of a peer that numbers its requests, the deadlines of calls with the
//! same timeout.
//!
//! Rising keys are stored in a queue: a new greatest key is appended, and a key that was removed from the middle may return to its place.
//! All other keys are stored in a tree. If successive keys usually differ by 1 ([`MonotonicKey::steps_above`]), a search of the queue
//! first guesses the index of a key from its distance to the first key. Without a guess, or if the guess is wrong, the search bisects the
//! queue. So a peer that chooses the keys can make the map as slow as a tree, and no slower.

use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;

/// The key of a [`MonotonicMap`].
pub(super) trait MonotonicKey: Ord {
    /// The difference of this key and `_other`, if successive keys usually differ by 1: then the indices of the two keys in the queue
    /// probably have the same difference. `None` if this key is lower, or if successive keys have no such
    /// difference (deadlines, ids that are text).
    fn steps_above(&self, _other: &Self) -> Option<usize> {
        None
    }
}

impl MonotonicKey for u128 {}

#[derive(Clone)]
pub(super) struct MonotonicMap<K, V> {
    /// The entries, ascending. An entry that is removed from the middle leaves a gap, which is `None`. There is no gap at either end.
    queue: VecDeque<(K, Option<V>)>,
    gaps: usize,
    /// Entries that were inserted out of order and have no gap in the queue.
    tree: BTreeMap<K, V>,
}

/// The number of gaps up to which the queue is not compacted.
const GAPS: usize = 16;

/// The capacity, in entries, up to which no memory is freed.
const MIN_CAPACITY: usize = 4;

impl<K: MonotonicKey, V> MonotonicMap<K, V> {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), gaps: 0, tree: BTreeMap::new() }
    }

    /// All entries in rising order.
    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut queued = self.queue.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).peekable();
        let mut others = self.tree.iter().peekable();
        core::iter::from_fn(move || match (queued.peek(), others.peek()) {
            (Some((one, _)), Some((other, _))) if other < one => others.next(),
            (None, _) => others.next(),
            _ => queued.next(),
        })
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match self.place(key) {
            Some(place) => self.queue.get(place)?.1.as_ref(),
            None => self.tree.get(key),
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(super) fn first(&self) -> Option<(&K, &V)> {
        let queued = self.queue.front().and_then(|(key, value)| Some((key, value.as_ref()?)));
        match (queued, self.tree.first_key_value()) {
            (Some(queued), Some(other)) => Some(if queued.0 < other.0 { queued } else { other }),
            (queued, other) => queued.or(other),
        }
    }

    /// Adds an entry. The map must not contain `key`.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.queue.back().is_none_or(|(last, _)| *last < key) {
            self.queue.push_back((key, Some(value)));
        } else if let Some((_, gap)) = self.place(&key).and_then(|place| self.queue.get_mut(place)) {
            *gap = Some(value);
            self.gaps = self.gaps.saturating_sub(1);
        } else {
            self.tree.insert(key, value);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        // Entries are often removed in the order in which they were inserted.
        if self.queue.front().is_some_and(|(first, _)| first == key) {
            let (_, value) = self.queue.pop_front()?;
            self.trim();
            return value;
        }
        let Some(place) = self.place(key) else { return self.tree.remove(key) };
        let value = self.queue.get_mut(place)?.1.take()?;
        self.gaps = self.gaps.saturating_add(1);
        while self.queue.back().is_some_and(|(_, value)| value.is_none()) {
            self.queue.pop_back();
            self.gaps = self.gaps.saturating_sub(1);
        }
        self.trim();
        Some(value)
    }

    /// Removes all entries, and frees the memory.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// The index of a key, or of its gap, in the queue.
    fn place(&self, key: &K) -> Option<usize> {
        let ((first, _), (last, _)) = (self.queue.front()?, self.queue.back()?);
        if key < first || last < key {
            return None;
        }
        let guess = key.steps_above(first).filter(|steps| self.queue.get(*steps).is_some_and(|(other, _)| other == key));
        guess.or_else(|| self.queue.binary_search_by(|(other, _)| other.cmp(key)).ok())
    }

    /// Removes gaps at the front, and gaps in the middle if there are many. Frees capacity if less than a quarter of it is used.
    fn trim(&mut self) {
        while self.gaps > 0 && self.queue.front().is_some_and(|(_, value)| value.is_none()) {
            self.queue.pop_front();
            self.gaps = self.gaps.saturating_sub(1);
        }
        if self.gaps > GAPS && self.gaps > self.queue.len() / 2 {
            self.queue.retain(|(_, value)| value.is_some());
            self.gaps = 0;
        }
        let room = self.queue.capacity();
        if room > MIN_CAPACITY && self.queue.len() < room / 4 {
            self.queue.shrink_to(room / 2);
        }
    }
}

/// Shows the entries in rising order.
impl<K: MonotonicKey + fmt::Debug, V: fmt::Debug> fmt::Debug for MonotonicMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::btree_map::Entry;
    use alloc::vec::Vec;

    use super::*;

    impl MonotonicKey for u64 {
        fn steps_above(&self, other: &Self) -> Option<usize> {
            usize::try_from(self.checked_sub(*other)?).ok()
        }
    }

    fn random(below: u64) -> impl FnMut() -> u64 {
        let mut seed = 7_u64;
        move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        }
    }

    #[test]
    fn the_map_does_the_same_as_a_tree_in_any_order_of_keys() {
        // On average one in `one_in` keys does not rise: half of them, some, none.
        for one_in in [2, 10, u64::MAX] {
            let (mut map, mut model, mut random) = (MonotonicMap::new(), BTreeMap::new(), random(1 << 30));
            let mut highest = 1_000;
            for step in 0..100_000_u64 {
                let insert_percent = if step / 5_000 % 2 == 0 { 70 } else { 30 };
                if random() % 100 < insert_percent {
                    highest += random() % 3 + 1;
                    let key = if random() % one_in == 0 { random() % highest } else { highest };
                    if let Entry::Vacant(entry) = model.entry(key) {
                        entry.insert(step);
                        map.insert(key, step);
                    }
                } else {
                    let from = model.first_key_value().map_or(0, |(key, _)| *key);
                    let near = model.range(from + random() % 500..).next().map_or(from, |(key, _)| *key);
                    assert_eq!(map.remove(&near), model.remove(&near));
                    assert_eq!(map.get(&near), None);
                    assert_eq!(map.remove(&near), None);
                }
                assert_eq!(map.first(), model.first_key_value());
                if step % 1_000 == 0 {
                    assert!(map.iter().eq(&model) && map.values().eq(model.values()));
                }
                assert!(map.gaps <= GAPS.max(map.queue.len() / 2), "{} of {}", map.gaps, map.queue.len());
            }
            assert!(model.iter().all(|(key, value)| map.get(key) == Some(value)));
            assert_eq!(map.queue.len() - map.gaps + map.tree.len(), model.len());
        }
    }

    #[test]
    fn a_removed_key_may_be_inserted_into_its_gap() {
        let mut map = MonotonicMap::new();
        (1..=3_u64).for_each(|key| map.insert(key, 'a'));
        assert_eq!(map.remove(&2), Some('a'));
        map.insert(2, 'b');
        assert_eq!((map.get(&2), map.gaps, map.tree.len()), (Some(&'b'), 0, 0));
    }

    #[test]
    fn gaps_after_an_entry_that_stays_are_removed() {
        let mut map = MonotonicMap::new();
        map.insert(0_u64, ());
        map.insert(u64::MAX, ());
        map.remove(&u64::MAX);
        for key in 1..10_000 {
            map.insert(key, ());
            assert_eq!(map.remove(&key), Some(()));
        }
        assert_eq!((map.queue.len(), map.tree.len()), (1, 0));
    }

    #[test]
    fn memory_is_freed_when_a_burst_is_over() {
        let mut map = MonotonicMap::new();
        (0..100_000).for_each(|key| map.insert(key, key));
        // All keys but every hundredth are removed, and then the others, the newest first.
        let (stay, go): (Vec<u64>, Vec<u64>) = (0..100_000).partition(|key| key % 100 == 0);
        go.iter().for_each(|key| assert_eq!(map.remove(key), Some(*key)));
        assert!(map.queue.capacity() < 8_000, "{}", map.queue.capacity());
        stay.iter().rev().for_each(|key| assert_eq!(map.remove(key), Some(*key)));
        assert!(map.queue.capacity() <= MIN_CAPACITY, "{}", map.queue.capacity());
    }

    /// Freeing memory at each removal would copy all entries each time.
    #[test]
    fn memory_is_kept_while_a_quarter_of_it_is_used() {
        let mut map = MonotonicMap::new();
        (0..1_000_u64).for_each(|key| map.insert(key, ()));
        let room = map.queue.capacity();
        for key in 0..1_000 {
            map.remove(&key);
            let used = map.queue.len();
            assert_eq!(map.queue.capacity() == room, used >= room / 4, "{used} of {room}");
            if used < room / 4 {
                break;
            }
        }
    }
}
