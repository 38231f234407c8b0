//! Tables of live things, by numbers that the owner of the table counts up.
//!
//! A look-up is one multiplication and, nearly always, one comparison. What lives stays where it is, and ends there: only a table that
//! grows or shrinks moves all that it holds. No peer chooses the numbers. A peer can choose which of them stay live, and so make some of them
//! meet: then a look-up walks past as many as that, of which there are never more than may be in flight.

use alloc::vec::Vec;
use core::fmt;

/// A number that is counted up, so that none is used twice.
pub trait Id: Copy + Ord {
    /// The number.
    fn number(self) -> u64;
}

/// A table of live things: those of a [`Session`](crate::Session), and those that wrap one keep beside it.
#[derive(Clone)]
pub struct Table<K, V> {
    /// What is live, and the places of some that were. The order is that of the operations, and tells nothing.
    entries: Vec<(K, Option<V>)>,
    /// Where in `entries` nothing lives: whoever comes next takes the last of them.
    vacant: Vec<u32>,
    /// Where in `entries` each stands, by its hash: open addressing, at most half full. A power of two long, or empty.
    slots: Vec<u32>,
}

/// No place in any table: memory ends long before.
const NOWHERE: u32 = u32::MAX;

/// Room that is kept once it was needed.
const LEAST: usize = 8;

impl<K: Id, V> Table<K, V> {
    /// A table that holds nothing, and takes no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new(), slots: Vec::new() }
    }

    /// How many live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len().saturating_sub(self.vacant.len())
    }

    /// Whether none lives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `id`, if it lives.
    #[must_use]
    pub fn get(&self, id: &K) -> Option<&V> {
        let (_, place) = self.find(*id)?;
        self.entries.get(place)?.1.as_ref()
    }

    /// The value of `id`, to be changed, if it lives.
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let (_, place) = self.find(*id)?;
        self.entries.get_mut(place)?.1.as_mut()
    }

    /// Adds a value. `id` must be new: of two values of one id either may be found.
    ///
    /// # Panics
    /// In debug builds, for an id that lives.
    #[inline]
    pub fn insert(&mut self, id: K, value: V) {
        debug_assert!(self.find(id).is_none(), "a number that is used twice");
        if self.len() >= self.room() {
            self.resize(self.room().saturating_mul(2));
        }
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push((id, None));
            self.entries.len().saturating_sub(1) as u32
        });
        Self::note(&mut self.slots, id, place);
        if let Some(entry) = self.entries.get_mut(place as usize) {
            *entry = (id, Some(value));
        }
    }

    /// Ends the value of `id` where it stands, after `last` has taken from it what is still of use. `None` if it does not live.
    pub fn end<R>(&mut self, id: &K, last: impl FnOnce(&mut V) -> R) -> Option<R> {
        let (slot, place) = self.find(*id)?;
        let (_, value) = self.entries.get_mut(place)?;
        let taken = value.as_mut().map(last);
        *value = None;
        self.vacant.push(place as u32);
        self.vacate(slot);
        // Late and by a large step: a table that empties and fills again and again shall not change at each power of two.
        if self.room() > LEAST && self.len() <= self.room() / 8 {
            self.resize(self.room() / 4);
        }
        taken
    }

    /// Everything goes, the memory too.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// All that live, in an order that says nothing.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }

    /// All values that live, to be changed, in the same order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    /// The ids of all that live, oldest first.
    #[must_use]
    pub fn ids(&self) -> Vec<K> {
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
        let mut slot = home(id, self.slots.len());
        loop {
            let place = *self.slots.get(slot)? as usize;
            // No slot names a vacant place, and where one names none there is no entry.
            if self.entries.get(place)?.0 == id {
                return Some((slot, place));
            }
            slot = after(slot, self.slots.len());
        }
    }

    fn note(slots: &mut [u32], id: K, place: u32) {
        let mut slot = home(id, slots.len());
        while let Some(noted) = slots.get_mut(slot) {
            if *noted == NOWHERE {
                *noted = place;
                return;
            }
            slot = after(slot, slots.len());
        }
    }

    /// Whoever stands behind a gap and would have stood in it moves up, so that a search may end at the first slot that names no place.
    fn vacate(&mut self, mut gap: usize) {
        let count = self.slots.len();
        let mut slot = gap;
        loop {
            slot = after(slot, count);
            let Some(place) = self.slots.get(slot).copied() else { return };
            let Some((id, _)) = self.entries.get(place as usize) else { break };
            let home = home(*id, count);
            let behind = |from: usize| slot.wrapping_sub(from) & count.wrapping_sub(1);
            if behind(home) >= behind(gap) {
                self.put(gap, place);
                gap = slot;
            }
        }
        self.put(gap, NOWHERE);
    }

    fn put(&mut self, slot: usize, place: u32) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = place;
        }
    }

    /// Moves what is live together.
    fn resize(&mut self, room: usize) {
        let room = room.max(LEAST);
        self.entries.retain(|(_, value)| value.is_some());
        self.entries.shrink_to(room);
        self.entries.reserve_exact(room.saturating_sub(self.entries.len()));
        self.vacant = Vec::with_capacity(room);
        self.slots = alloc::vec![NOWHERE; room.saturating_mul(2)];
        for (place, (id, _)) in (0..).zip(&self.entries) {
            Self::note(&mut self.slots, *id, place);
        }
    }
}

/// Where among `count` slots the search for an id begins: 2^64 divided by the golden ratio spreads neighbours over all of them.
fn home(id: impl Id, count: usize) -> usize {
    let hash = id.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The uppermost bits, as many as number the slots.
    (hash >> 32).wrapping_mul(count as u64).wrapping_shr(32) as usize
}

fn after(slot: usize, count: usize) -> usize {
    slot.wrapping_add(1) & count.wrapping_sub(1)
}

/// What it holds, oldest first; how it is laid out tells nothing.
impl<K: Id, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

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
        let walk = |id: u64| table.find(id).unwrap().0.wrapping_sub(home(id, table.slots.len())) & (table.slots.len() - 1);
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
            assert_eq!(table.end(id, |value| *value), Some(*id));
            assert!(met.iter().skip(gone + 1).all(|id| table.get(id) == Some(id)), "{id}");
        }
    }

    #[test]
    fn what_lives_stays_where_it_is_while_others_come_and_go() {
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
    fn memory_is_given_back_when_a_burst_is_over() {
        let mut table = Table::new();
        (0..100_000_u64).for_each(|id| table.insert(id, id));
        let room = |table: &Table<u64, u64>| table.entries.capacity().max(table.vacant.capacity()).max(table.slots.len() / 2);
        assert!(room(&table) < 200_000);
        (0..99_000).for_each(|id| assert_eq!(table.end(&id, |value| *value), Some(id)));
        assert!(room(&table) <= 4_096, "{}", room(&table));
        (99_000..100_000).for_each(|id| assert_eq!(table.end(&id, |value| *value), Some(id)));
        assert!(room(&table) <= LEAST, "{}", room(&table));
        // Whoever comes and goes at the edge of a size does not make it change each time.
        (0..64).for_each(|id| table.insert(id, id));
        table.insert(64, 64);
        let room_before = room(&table);
        table.end(&64, |_| ());
        assert_eq!(room(&table), room_before);
    }
}
