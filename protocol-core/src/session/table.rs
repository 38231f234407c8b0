//! Tables of what is live, by numbers that we count up ourselves.
//!
//! A look-up is one multiplication and, nearly always, one comparison; nothing that lives is moved but the last entry, which takes the
//! place of one that goes. No peer chooses the numbers. It can choose which of them stay live, and so make some of them meet: then a
//! look-up walks past as many as that, of which there are never more than may be in flight.

use alloc::vec::Vec;
use core::fmt;

/// A number of ours: counted up, so never used twice.
pub(super) trait Id: Copy + Ord {
    fn number(self) -> u64;
}

#[derive(Clone)]
pub(super) struct Table<K, V> {
    /// What is live, without gaps. The order is that of the operations, and tells nothing.
    entries: Vec<(K, V)>,
    /// Where in `entries` each stands, by its hash: open addressing, at most half full. A power of two long, or empty.
    slots: Vec<u32>,
}

/// No place in any table: memory ends long before.
const VACANT: u32 = u32::MAX;

/// Room that is kept once it was needed.
const LEAST: usize = 2;

impl<K: Id, V> Table<K, V> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), slots: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn get(&self, id: &K) -> Option<&V> {
        let (_, place) = self.find(*id)?;
        self.entries.get(place).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let (_, place) = self.find(*id)?;
        self.entries.get_mut(place).map(|(_, value)| value)
    }

    /// `id` must be new.
    pub(super) fn insert(&mut self, id: K, value: V) {
        debug_assert!(self.find(id).is_none(), "a number that is used twice");
        let place = self.entries.len();
        if place >= self.room() {
            self.resize(self.room().saturating_mul(2).max(LEAST));
        }
        self.entries.push((id, value));
        self.note(id, place);
    }

    pub(super) fn remove(&mut self, id: &K) -> Option<V> {
        if self.room() > LEAST && self.entries.len() <= self.room() / 4 {
            self.resize(self.room() / 2);
        }
        let (slot, place) = self.find(*id)?;
        self.vacate(slot);
        // The last entry takes the place, unless it is the one that goes: that is not found any more.
        if let Some((moved, _)) = self.entries.last().and_then(|(last, _)| self.find(*last)) {
            self.put(moved, place as u32);
        }
        Some(self.entries.swap_remove(place).1)
    }

    /// Everything goes, the memory too.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// What is live, in an order that must not be seen outside.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(id, value)| (*id, value))
    }

    /// The ids of what is live, oldest first.
    pub(super) fn ids(&self) -> Vec<K> {
        let mut ids: Vec<K> = self.iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// As many entries as the slots are for.
    fn room(&self) -> usize {
        self.slots.len() / 2
    }

    /// The slot of an entry, and its place.
    fn find(&self, id: K) -> Option<(usize, usize)> {
        let mut slot = self.home(id);
        loop {
            let place = *self.slots.get(slot)? as usize;
            // Where a slot is vacant there is no entry.
            if self.entries.get(place)?.0 == id {
                return Some((slot, place));
            }
            slot = self.after(slot);
        }
    }

    /// Where the search for an id begins: 2^64 divided by the golden ratio spreads neighbours over all slots.
    fn home(&self, id: K) -> usize {
        let hash = id.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The uppermost bits, as many as number the slots.
        (hash >> 32).wrapping_mul(self.slots.len() as u64).wrapping_shr(32) as usize
    }

    fn after(&self, slot: usize) -> usize {
        slot.wrapping_add(1) & self.slots.len().wrapping_sub(1)
    }

    fn note(&mut self, id: K, place: usize) {
        let mut slot = self.home(id);
        while let Some(noted) = self.slots.get_mut(slot) {
            if *noted == VACANT {
                *noted = place as u32;
                return;
            }
            slot = self.after(slot);
        }
    }

    /// Whoever stands behind a gap and would have stood in it moves up, so that a search may end at the first vacant slot.
    fn vacate(&mut self, mut gap: usize) {
        let mut slot = gap;
        loop {
            slot = self.after(slot);
            let Some(place) = self.slots.get(slot).copied() else { return };
            let Some((id, _)) = self.entries.get(place as usize) else { break };
            let home = self.home(*id);
            let behind = |from: usize| slot.wrapping_sub(from) & self.slots.len().wrapping_sub(1);
            if behind(home) >= behind(gap) {
                self.put(gap, place);
                gap = slot;
            }
        }
        self.put(gap, VACANT);
    }

    fn put(&mut self, slot: usize, place: u32) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = place;
        }
    }

    fn resize(&mut self, room: usize) {
        self.entries.shrink_to(room);
        self.entries.reserve_exact(room.saturating_sub(self.entries.len()));
        self.slots = alloc::vec![VACANT; room.saturating_mul(2)];
        for place in 0..self.entries.len() {
            if let Some((id, _)) = self.entries.get(place) {
                self.note(*id, place);
            }
        }
    }
}

/// What it holds, oldest first; how it is laid out tells nothing.
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

    /// The longest walk of a look-up, in slots.
    fn longest_walk(table: &Table<u64, u64>) -> usize {
        let walk = |id: u64| table.find(id).unwrap().0.wrapping_sub(table.home(id)) & (table.slots.len() - 1);
        table.iter().map(|(id, _)| walk(id)).max().unwrap_or_default()
    }

    #[test]
    fn a_table_does_what_a_tree_does() {
        let (mut table, mut model) = (Table::new(), BTreeMap::new());
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut next = 1;
        for step in 0..200_000_u64 {
            // It swells to thousands and shrinks to nothing, again and again.
            if random(100) < if step / 8_000 % 2 == 0 { 80 } else { 20 } {
                next += 1 + random(3);
                table.insert(next, step);
                model.insert(next, step);
            } else {
                let oldest = model.first_key_value().map_or(0, |(id, _)| *id);
                let id = if random(2) == 0 { oldest } else { oldest + random(next) };
                assert_eq!(table.get(&id), model.get(&id));
                assert_eq!(table.get_mut(&id).copied(), model.get(&id).copied());
                assert_eq!(table.remove(&id), model.remove(&id));
            }
            assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
            if step % 1_000 == 0 {
                assert_eq!(table.ids(), model.keys().copied().collect::<Vec<_>>());
                assert!(model.iter().all(|(id, value)| table.get(id) == Some(value)));
            }
        }
    }

    #[test]
    fn numbers_that_are_powers_of_two_apart_do_not_crowd() {
        for stride in (0..40).map(|power| 1_u64 << power) {
            let mut table = Table::new();
            (1..=1_000).for_each(|count| table.insert(count * stride, count));
            assert!((1..=1_000).all(|count| table.get(&(count * stride)) == Some(&count)));
            assert!(longest_walk(&table) <= 8, "{stride}: {}", longest_walk(&table));
        }
    }

    #[test]
    fn those_that_meet_in_one_slot_are_all_found_and_leave_no_hole() {
        let mut table = Table::new();
        let met: Vec<u64> = (1..).filter(|id: &u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 == 0xff).take(100).collect();
        met.iter().for_each(|id| table.insert(*id, *id));
        assert!(longest_walk(&table) > 50);
        for (gone, id) in met.iter().enumerate() {
            assert_eq!(table.remove(id), Some(*id));
            assert!(met.iter().skip(gone + 1).all(|id| table.get(id) == Some(id)), "{id}");
        }
    }

    #[test]
    fn memory_is_given_back_when_a_burst_is_over() {
        let mut table = Table::new();
        (0..100_000_u64).for_each(|id| table.insert(id, id));
        let room = |table: &Table<u64, u64>| table.entries.capacity().max(table.slots.len() / 2);
        assert!(room(&table) < 200_000);
        (0..99_000).for_each(|id| assert_eq!(table.remove(&id), Some(id)));
        assert!(room(&table) <= 4_096, "{}", room(&table));
        (99_000..100_000).for_each(|id| assert_eq!(table.remove(&id), Some(id)));
        assert!(room(&table) <= LEAST, "{}", room(&table));
        // Whoever comes and goes at the edge of a size does not make it change each time.
        (0..64).for_each(|id| table.insert(id, id));
        table.insert(64, 64);
        let room_before = room(&table);
        table.remove(&64);
        assert_eq!(room(&table), room_before);
    }
}
