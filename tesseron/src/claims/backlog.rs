//! Connections that were accepted and are not let in yet: their places, and which of them makes room.
//!
//! ```text
//!               arrive               let in, turned away, hung up
//!   (accepted) --------> waiting --------------------------------> (gone)
//!                           |
//!                           '--- a newcomer needs its place -----> (gone)
//! ```
//!
//! A newcomer always has a place. When all are taken, the oldest connection of the peer that has the most makes room. This user is sure of
//! half of the places, however many others there are; they share the rest. So one that says nothing keeps only others of its own peer out,
//! and these no longer than until the next one comes.

use alloc::collections::BTreeMap;
use core::cmp::Reverse;

use super::Peer;

/// The place of a connection that is not let in yet. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The number of connections up to and including it.
    number: u64,
    peer: Peer,
}

impl Place {
    pub(super) fn peer(self) -> Peer {
        self.peer
    }
}

/// A connection that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Its place.
    pub place: Place,
    /// The connection that has made room for it: close it.
    pub evicted: Option<Place>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    /// Those that wait, oldest first.
    waiting: BTreeMap<u64, Peer>,
    arrived: u64,
}

impl Backlog {
    /// Gives a connection its place, one of at most `most`; none counts as one.
    pub(super) fn arrive(&mut self, peer: Peer, most: usize) -> Arrival {
        let evicted = if self.waiting.len() < most.max(1) { None } else { self.who_makes_room_for(peer, most) };
        if let Some(place) = evicted {
            self.leave(place);
        }
        self.arrived = self.arrived.saturating_add(1);
        let place = Place { number: self.arrived, peer };
        self.waiting.insert(place.number, peer);
        Arrival { place, evicted }
    }

    /// The connection waits no longer. One that is gone already changes nothing.
    pub(super) fn leave(&mut self, place: Place) {
        self.waiting.remove(&place.number);
    }

    fn who_makes_room_for(&self, newcomer: Peer, most: usize) -> Option<Place> {
        // How many each peer has, and its oldest.
        let mut peers = BTreeMap::<Peer, (usize, u64)>::new();
        for (number, peer) in &self.waiting {
            let (count, _) = peers.entry(*peer).or_insert((0, *number));
            *count = count.saturating_add(1);
        }
        if let Some((count, _)) = peers.get_mut(&newcomer) {
            *count = count.saturating_add(1);
        }
        let ours = peers.remove(&Peer::ThisUser).map(|(count, oldest)| (count, Peer::ThisUser, oldest));
        let others = peers.into_iter().map(|(peer, (count, oldest))| (count, peer, oldest));
        let heaviest = others.max_by_key(|(count, peer, oldest)| (*count, *peer == newcomer, Reverse(*oldest)));
        let exceeding = ours.filter(|(count, ..)| *count > most / 2);
        let (_, peer, number) = exceeding.or(heaviest).or(ours)?;
        Some(Place { number, peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MOST: usize = 64;

    fn filled(peers: impl IntoIterator<Item = Peer>) -> (Backlog, Vec<Place>) {
        let mut backlog = Backlog::default();
        let places = peers.into_iter().map(|peer| backlog.arrive(peer, MOST));
        let places = places.map(|arrival| (arrival.evicted.is_none(), arrival.place)).collect::<Vec<_>>();
        assert!(places.iter().all(|(has_room, _)| *has_room));
        (backlog, places.into_iter().map(|(_, place)| place).collect())
    }

    fn many(peer: Peer, count: usize) -> impl Iterator<Item = Peer> {
        core::iter::repeat_n(peer, count)
    }

    #[test]
    fn a_newcomer_always_has_a_place_and_the_oldest_makes_room() {
        let (mut backlog, places) = filled(many(Peer::Unknown, MOST));
        for place in places {
            assert_eq!(backlog.arrive(Peer::Unknown, MOST).evicted, Some(place));
            assert_eq!(backlog.waiting.len(), MOST);
        }
    }

    #[test]
    fn a_place_that_was_left_is_free_and_leaving_twice_changes_nothing() {
        let (mut backlog, places) = filled(many(Peer::Unknown, MOST));
        backlog.leave(places[5]);
        backlog.leave(places[5]);
        assert_eq!(backlog.arrive(Peer::Unknown, MOST).evicted, None);
        assert_eq!(backlog.arrive(Peer::Unknown, MOST).evicted, Some(places[0]));
    }

    #[test]
    fn another_user_who_takes_all_places_makes_room_for_this_one_and_never_the_other_way_round() {
        let other = Peer::OtherUser(7);
        let (mut backlog, places) = filled(many(other, MOST));
        let mut ours = Vec::new();
        for expected in &places[..MOST / 2] {
            let arrival = backlog.arrive(Peer::ThisUser, MOST);
            assert_eq!(arrival.evicted, Some(*expected));
            ours.push(arrival.place);
        }
        for _ in 0..1000 {
            assert_eq!(backlog.arrive(other, MOST).evicted.map(Place::peer), Some(other));
        }
        assert_eq!(backlog.arrive(Peer::ThisUser, MOST).evicted, Some(ours[0]), "more than half is no share of ours");
    }

    #[test]
    fn a_user_with_many_numbers_does_not_drive_this_one_below_its_half() {
        let mut backlog = Backlog::default();
        for user in 0..1000 {
            backlog.arrive(Peer::OtherUser(user), MOST);
        }
        for _ in 0..MOST / 2 {
            backlog.arrive(Peer::ThisUser, MOST);
        }
        for user in 1000..2000 {
            backlog.arrive(Peer::OtherUser(user), MOST);
        }
        assert_eq!(backlog.waiting.values().filter(|peer| peer.is_this_user()).count(), MOST / 2);
        assert_eq!(backlog.waiting.len(), MOST);
    }

    #[test]
    fn of_two_other_users_the_one_that_has_the_most_makes_room() {
        let (few, greedy) = (Peer::OtherUser(1), Peer::OtherUser(2));
        let (mut backlog, places) = filled(many(few, 10).chain(many(greedy, MOST - 10)));
        assert_eq!(backlog.arrive(few, MOST).evicted, Some(places[10]));
        for _ in 0..1000 {
            assert_eq!(backlog.arrive(greedy, MOST).evicted.map(Place::peer), Some(greedy));
        }
        // At a draw it is the newcomer's own peer, else the one that has waited longest.
        let (mut backlog, places) = filled(many(greedy, MOST / 2).chain(many(few, MOST / 2)));
        assert_eq!(backlog.clone().arrive(few, MOST).evicted, Some(places[MOST / 2]));
        assert_eq!(backlog.arrive(Peer::Unknown, MOST).evicted, Some(places[0]));
    }

    #[test]
    fn one_place_is_enough_to_go_on_and_none_counts_as_one() {
        for most in [0, 1] {
            let mut backlog = Backlog::default();
            let mut before = backlog.arrive(Peer::Unknown, most).place;
            for peer in [Peer::ThisUser, Peer::ThisUser, Peer::OtherUser(1), Peer::Unknown, Peer::ThisUser] {
                let arrival = backlog.arrive(peer, most);
                assert_eq!((arrival.evicted, backlog.waiting.len()), (Some(before), 1));
                before = arrival.place;
            }
        }
    }
}
