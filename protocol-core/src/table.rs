//! Maps whose keys are rising numbers of one counter, chosen by the code that holds the map.
//!
//! A look-up in a table of more than eight entries is one multiplication and, nearly always, one comparison. A smaller table is searched
//! entry by entry. Entries move only when the table grows or shrinks. A peer cannot choose the keys, but it can choose which calls it
//! leaves open, and so make the keys of these calls collide. A look-up then also compares colliding keys, at most as many as calls may be
//! in flight.

use alloc::vec::Vec;
use core::fmt;

/// A key of a [`Table`]. The keys of a table are rising numbers of one counter, and none is used twice.
pub trait Id: Copy + Ord {
    /// The number.
    fn number(self) -> u64;
}

/// A map from ids to the state of live calls, for a [`Session`](crate::Session) and for types that wrap one.
#[derive(Clone)]
pub struct Table<K, V> {
    /// The entries, live and vacant. Their order depends only on the operations on the table, not on hashes.
    entries: Vec<Entry<K, V>>,
    /// The index of the vacant entry that is used next; [`NONE`] if there is none.
    vacant: u32,
    len: usize,
    /// A hash table, from the id of each live entry to its index in `entries`: open addressing, at most half full, with a length that is a
    /// power of two. Empty while there are so few entries that a linear search is faster.
    slots: Vec<u32>,
}

#[derive(Clone)]
struct Entry<K, V> {
    id: K,
    /// `None` if the entry is vacant.
    value: Option<V>,
    /// The index of the next vacant entry, if this one is vacant.
    next: u32,
}

/// The index that stands for no entry. No table has that many entries.
const NONE: u32 = u32::MAX;

/// The minimum capacity of a table that is not empty, up to which a look-up is a linear search.
const MIN_CAPACITY: usize = 8;

impl<K: Id, V> Table<K, V> {
    /// A table without entries, which takes no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new(), vacant: NONE, len: 0, slots: Vec::new() }
    }

    /// The number of live entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there is no live entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `id`, if there is a live entry.
    #[must_use]
    #[inline]
    pub fn get(&self, id: &K) -> Option<&V> {
        self.entries.get(self.find(*id)?.index)?.value.as_ref()
    }

    /// A mutable reference to the value of `id`, if there is a live entry.
    #[inline]
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let found = self.find(*id)?;
        self.entries.get_mut(found.index)?.value.as_mut()
    }

    /// Adds a value. `id` must be new. If it is not, later look-ups may find either value.
    ///
    /// # Panics
    /// In debug builds, if `id` has a live entry.
    #[inline]
    pub fn insert(&mut self, id: K, value: V) {
        debug_assert!(self.find(id).is_none(), "a number that is used twice");
        if self.len >= self.room() {
            self.resize(if self.len == 0 { MIN_CAPACITY } else { self.room().saturating_mul(2) });
        }
        if self.vacant == NONE {
            self.vacant = self.entries.len() as u32;
            self.entries.push(Entry { id, value: None, next: NONE });
        }
        Self::store(&mut self.slots, id, self.vacant);
        if let Some(entry) = self.entries.get_mut(self.vacant as usize) {
            self.vacant = entry.next;
            entry.id = id;
            entry.value = Some(value);
        }
        self.len = self.len.saturating_add(1);
    }

    /// Calls `last` with the value of `id`, removes the entry, and returns the result of `last`. Returns `None` if `id` has no live entry.
    pub fn end<R>(&mut self, id: &K, last: impl FnOnce(&mut V) -> R) -> Option<R> {
        let found = self.find(*id)?;
        let entry = self.entries.get_mut(found.index)?;
        let taken = entry.value.as_mut().map(last)?;
        (entry.value, entry.next) = (None, self.vacant);
        self.vacant = found.index as u32;
        self.len = self.len.saturating_sub(1);
        if let Some(slot) = found.slot {
            self.vacate(slot);
        }
        // Shrinks late and by a large step, so that a table which is emptied and filled repeatedly is not resized at each power of two.
        if self.room() > MIN_CAPACITY && self.len <= self.room() / 8 {
            self.resize(self.room() / 4);
        }
        Some(taken)
    }

    /// Removes all entries, and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// All live entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().filter_map(|entry| Some((entry.id, entry.value.as_ref()?)))
    }

    /// Mutable references to the values of all live entries, in the order of [`Self::iter`].
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    /// The ids of all live entries, oldest first.
    #[must_use]
    pub fn ids(&self) -> Vec<K> {
        let mut ids: Vec<K> = self.iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// The number of entries that the table has room for.
    #[inline]
    fn room(&self) -> usize {
        if !self.slots.is_empty() {
            return self.slots.len() / 2;
        }
        // The entries of a clone may have less capacity than this. A push then grows them.
        if self.entries.capacity() == 0 { 0 } else { MIN_CAPACITY }
    }

    #[inline]
    fn find(&self, id: K) -> Option<Found> {
        if self.slots.is_empty() {
            let is_live = |entry: &Entry<K, V>| entry.id == id && entry.value.is_some();
            return self.entries.iter().position(is_live).map(|index| Found { index, slot: None });
        }
        let mut slot = home(id, self.slots.len());
        loop {
            let index = *self.slots.get(slot)? as usize;
            // No slot refers to a vacant entry. An empty slot ends the search, since its index `NONE` is out of range.
            if self.entries.get(index)?.id == id {
                return Some(Found { index, slot: Some(slot) });
            }
            slot = after(slot, self.slots.len());
        }
    }

    /// Stores the index of the entry of `id` in the first empty slot, if there are slots.
    #[inline]
    fn store(slots: &mut [u32], id: K, index: u32) {
        if slots.is_empty() {
            return;
        }
        let mut slot = home(id, slots.len());
        while let Some(stored) = slots.get_mut(slot) {
            if *stored == NONE {
                *stored = index;
                return;
            }
            slot = after(slot, slots.len());
        }
    }

    /// Empties the slot `gap`. Moves later indexes into the gap if their search passes it, so that a search can still end at the first
    /// empty slot.
    fn vacate(&mut self, mut gap: usize) {
        let count = self.slots.len();
        let mut slot = gap;
        loop {
            slot = after(slot, count);
            let Some(index) = self.slots.get(slot).copied() else { return };
            let Some(Entry { id, .. }) = self.entries.get(index as usize) else { break };
            let home = home(*id, count);
            let distance_from = |from: usize| slot.wrapping_sub(from) & count.wrapping_sub(1);
            if distance_from(home) >= distance_from(gap) {
                self.put(gap, index);
                gap = slot;
            }
        }
        self.put(gap, NONE);
    }

    fn put(&mut self, slot: usize, index: u32) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = index;
        }
    }

    /// Moves all live entries into a table for `room` entries.
    fn resize(&mut self, room: usize) {
        let room = room.max(MIN_CAPACITY);
        self.entries.retain(|entry| entry.value.is_some());
        self.entries.shrink_to(room);
        self.entries.reserve_exact(room.saturating_sub(self.entries.len()));
        self.vacant = NONE;
        self.slots = if room > MIN_CAPACITY { alloc::vec![NONE; room.saturating_mul(2)] } else { Vec::new() };
        for (index, entry) in (0..).zip(&self.entries) {
            Self::store(&mut self.slots, entry.id, index);
        }
    }
}

/// The index of an entry, and its slot if there are slots.
struct Found {
    index: usize,
    slot: Option<usize>,
}

/// The slot at which the search for an id begins, if there are `count` slots. The factor, 2^64 divided by the golden ratio, spreads
/// consecutive numbers evenly.
fn home(id: impl Id, count: usize) -> usize {
    let hash = id.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The highest bits of the hash, scaled to the number of slots.
    (hash >> 32).wrapping_mul(count as u64).wrapping_shr(32) as usize
}

fn after(slot: usize, count: usize) -> usize {
    slot.wrapping_add(1) & count.wrapping_sub(1)
}

impl<K: Id, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the live entries, oldest first.
impl<K: Id + fmt::Debug, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.ids();
        f.debug_map().entries(ids.iter().filter_map(|id| Some((id, self.get(id)?)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    impl Id for u64 {
        fn number(self) -> u64 {
            self
        }
    }

    /// The maximum distance, in slots, between the slot at which the search for an id begins and the slot of the id.
    fn longest_walk(table: &Table<u64, u64>) -> usize {
        let walk = |id: u64| {
            table.find(id).and_then(|found| found.slot).unwrap().wrapping_sub(home(id, table.slots.len())) & (table.slots.len() - 1)
        };
        table.iter().map(|(id, _)| walk(id)).max().unwrap_or_default()
    }

    #[test]
    fn a_table_behaves_as_a_tree_map() {
        let (mut table, mut model) = (Table::new(), BTreeMap::new());
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut next = 1;
        for step in 0..200_000_u64 {
            // Grows to thousands and shrinks to nothing, repeatedly.
            if random(100) < if step / 8_000 % 2 == 0 { 80 } else { 20 } {
                next += 1 + random(3);
                table.insert(next, step);
                model.insert(next, step);
            } else {
                let oldest = model.first_key_value().map_or(0, |(id, _)| *id);
                let id = if random(2) == 0 { oldest } else { oldest + random(next) };
                assert_eq!(table.get(&id), model.get(&id));
                assert_eq!(table.get_mut(&id).copied(), model.get(&id).copied());
                assert_eq!(table.end(&id, |value| *value), model.remove(&id));
            }
            assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
            if step % 1_000 == 0 {
                assert_eq!(table.ids(), model.keys().copied().collect::<Vec<_>>());
                assert!(model.iter().all(|(id, value)| table.get(id) == Some(value)));
            }
        }
    }

    #[test]
    fn ids_that_are_powers_of_two_apart_hardly_collide() {
        for stride in (0..40).map(|power| 1_u64 << power) {
            let mut table = Table::new();
            (1..=1_000).for_each(|count| table.insert(count * stride, count));
            assert!((1..=1_000).all(|count| table.get(&(count * stride)) == Some(&count)));
            assert!(longest_walk(&table) <= 8, "{stride}: {}", longest_walk(&table));
        }
    }

    #[test]
    fn entries_that_collide_are_all_found_also_after_others_were_removed() {
        let mut table = Table::new();
        let colliding: Vec<u64> = (1..).filter(|id: &u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 == 0xff).take(100).collect();
        colliding.iter().for_each(|id| table.insert(*id, *id));
        assert!(longest_walk(&table) > 50);
        for (removed, id) in colliding.iter().enumerate() {
            assert_eq!(table.end(id, |value| *value), Some(*id));
            assert!(colliding.iter().skip(removed + 1).all(|id| table.get(id) == Some(id)), "{id}");
        }
    }

    #[test]
    fn a_live_entry_is_not_moved_while_others_are_added_and_removed() {
        let mut table = Table::new();
        (0..20_u64).for_each(|id| table.insert(id, id));
        let stays = core::ptr::from_ref(table.get(&7).unwrap());
        for id in 20..2_000 {
            table.insert(id, id);
            assert_eq!(table.end(&(id - 1), |value| *value), Some(id - 1));
            assert!(core::ptr::eq(stays, table.get(&7).unwrap()));
        }
        assert_eq!(table.entries.len(), 21);
    }

    #[test]
    fn memory_is_freed_after_a_burst() {
        let mut table = Table::new();
        (0..100_000_u64).for_each(|id| table.insert(id, id));
        let room = |table: &Table<u64, u64>| table.entries.capacity().max(table.slots.len() / 2);
        assert!(room(&table) < 200_000);
        (0..99_000).for_each(|id| assert_eq!(table.end(&id, |value| *value), Some(id)));
        assert!(room(&table) <= 4_096, "{}", room(&table));
        (99_000..100_000).for_each(|id| assert_eq!(table.end(&id, |value| *value), Some(id)));
        assert!(room(&table) <= MIN_CAPACITY, "{}", room(&table));
        // An entry that is added and removed at the boundary of a size does not resize the table each time.
        (0..64).for_each(|id| table.insert(id, id));
        table.insert(64, 64);
        let room_before = room(&table);
        table.end(&64, |_| ());
        assert_eq!(room(&table), room_before);
    }

    /// A regression: a clone has only the capacity that it needs, so the number of its slots was not a power of two, and entries were not
    /// found or the search never ended.
    #[test]
    fn regression_a_clone_with_any_number_of_entries_behaves_as_a_tree_map() {
        for (first, mut seed) in (0..=9_u64).flat_map(|first| (1..=20_u64).map(move |seed| (first, seed))) {
            let (mut table, mut model) = (Table::new(), BTreeMap::new());
            for id in 1..=first {
                table.insert(id, id);
                model.insert(id, id);
            }
            let mut table = table.clone();
            let mut random = move |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % below
            };
            let mut next = first;
            for step in 0..1_000_u64 {
                if random(100) < if step / 100 % 2 == 0 { 70 } else { 30 } {
                    next += 1 + random(3);
                    table.insert(next, next);
                    model.insert(next, next);
                    assert!(table.slots.is_empty() || table.slots.len().is_power_of_two());
                } else if let Some(id) = model.keys().nth(random(model.len().max(1) as u64) as usize).copied() {
                    assert_eq!(table.end(&id, |value| *value), model.remove(&id), "of {} when cloned", first);
                }
            }
        }
    }
}
