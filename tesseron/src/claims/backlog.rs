//! The backlog: connections that the system has accepted, and that the [host](super::Host) has neither admitted as a channel nor refused
//! yet. It has a bounded number of places.
//!
//! ```text
//!               arrive               admitted, refused, closed
//!   (accepted) --------> waiting --------------------------------> (gone)
//!                           |
//!                           '--- a newcomer needs its place -----> (gone)
//! ```
//!
//! A new connection always gets a place. When all are taken, one connection is evicted. If the user of the app has more than half of the
//! places, counting the new connection, the oldest connection of the process of this user with the most places is evicted; otherwise the
//! oldest connection of the other user with the most places. So the user of the app always gets half of the places, and all other users
//! share the rest. A user who opens many silent connections soon evicts only connections of the same user, and a program of the user of the
//! app that does so evicts only its own.

use alloc::collections::BTreeMap;
use core::cmp::Reverse;

use super::{Peer, PeerUser};

/// The place of a connection in the backlog. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The number of the connection, counted from 1.
    number: u64,
    peer: PeerUser,
}

impl Place {
    pub(super) fn peer(self) -> PeerUser {
        self.peer
    }
}

/// The result of adding a connection to the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The place of the connection.
    pub place: Place,
    /// The connection that was evicted for the new one. It must be closed.
    pub evicted: Option<Place>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    /// The connections, oldest first, with their peers.
    waiting: BTreeMap<u64, Peer>,
    /// The number of connections that have arrived so far.
    arrived: u64,
}

impl Backlog {
    /// Adds a connection. The backlog has `max` places; a `max` of 0 counts as 1.
    pub(super) fn arrive(&mut self, peer: impl Into<Peer>, max: usize) -> Arrival {
        let peer = peer.into();
        let evicted = if self.waiting.len() < max.max(1) { None } else { self.choose_evicted(peer, max) };
        if let Some(place) = evicted {
            self.leave(place);
        }
        self.arrived = self.arrived.saturating_add(1);
        let place = Place { number: self.arrived, peer: peer.user() };
        self.waiting.insert(place.number, peer);
        Arrival { place, evicted }
    }

    /// Removes a connection. No effect if it is not in the backlog.
    pub(super) fn leave(&mut self, place: Place) {
        self.waiting.remove(&place.number);
    }

    /// The connection that a new one of `newcomer` evicts.
    fn choose_evicted(&self, newcomer: Peer, max: usize) -> Option<Place> {
        let is_ours = |peer: &Peer| peer.user().is_this_user();
        let ours = || self.waiting.iter().filter(|(_, peer)| is_ours(peer));
        let our_count = ours().count().saturating_add(usize::from(is_ours(&newcomer)));
        let our_heaviest = oldest_of_heaviest(ours().map(|(number, peer)| (*number, peer.process())), newcomer.process());
        let others = self.waiting.iter().filter(|(_, peer)| !is_ours(peer));
        let heaviest = oldest_of_heaviest(others.map(|(number, peer)| (*number, peer.user())), newcomer.user());
        let exceeding = our_heaviest.filter(|_| our_count > max / 2);
        let number = exceeding.or(heaviest).or(our_heaviest)?;
        self.waiting.get(&number).map(|peer| Place { number, peer: peer.user() })
    }
}

/// The oldest connection of the group with the most connections. A new connection of the group `newcomer` counts, too, and decides a tie;
/// otherwise the group with the oldest connection does.
fn oldest_of_heaviest<K: Ord + Copy>(connections: impl Iterator<Item = (u64, K)>, newcomer: K) -> Option<u64> {
    // For each group the number of connections, and the number of the oldest connection.
    let mut groups = BTreeMap::<K, (usize, u64)>::new();
    for (number, group) in connections {
        let of_newcomer = usize::from(group == newcomer);
        let (count, _) = groups.entry(group).or_insert((of_newcomer, number));
        *count = count.saturating_add(1);
    }
    let heaviest = groups.into_iter().max_by_key(|(group, (count, oldest))| (*count, *group == newcomer, Reverse(*oldest)));
    heaviest.map(|(_, (_, oldest))| oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const PLACES: usize = 64;

    fn filled(peers: impl IntoIterator<Item = PeerUser>) -> (Backlog, Vec<Place>) {
        let mut backlog = Backlog::default();
        let places = peers.into_iter().map(|peer| backlog.arrive(peer, PLACES));
        let places = places.map(|arrival| (arrival.evicted.is_none(), arrival.place)).collect::<Vec<_>>();
        assert!(places.iter().all(|(has_room, _)| *has_room));
        (backlog, places.into_iter().map(|(_, place)| place).collect())
    }

    fn many(peer: PeerUser, count: usize) -> impl Iterator<Item = PeerUser> {
        core::iter::repeat_n(peer, count)
    }

    #[test]
    fn a_new_connection_always_gets_a_place_and_the_oldest_is_evicted() {
        let (mut backlog, places) = filled(many(PeerUser::Unknown, PLACES));
        for place in places {
            assert_eq!(backlog.arrive(PeerUser::Unknown, PLACES).evicted, Some(place));
            assert_eq!(backlog.waiting.len(), PLACES);
        }
    }

    #[test]
    fn a_place_that_was_left_is_free_and_leaving_twice_changes_nothing() {
        let (mut backlog, places) = filled(many(PeerUser::Unknown, PLACES));
        backlog.leave(places[5]);
        backlog.leave(places[5]);
        assert_eq!(backlog.arrive(PeerUser::Unknown, PLACES).evicted, None);
        assert_eq!(backlog.arrive(PeerUser::Unknown, PLACES).evicted, Some(places[0]));
    }

    #[test]
    fn connections_of_another_user_are_evicted_for_this_user_and_never_the_reverse() {
        let other = PeerUser::OtherUser(7);
        let (mut backlog, places) = filled(many(other, PLACES));
        let mut ours = Vec::new();
        for expected in &places[..PLACES / 2] {
            let arrival = backlog.arrive(PeerUser::ThisUser, PLACES);
            assert_eq!(arrival.evicted, Some(*expected));
            ours.push(arrival.place);
        }
        for _ in 0..1000 {
            assert_eq!(backlog.arrive(other, PLACES).evicted.map(Place::peer), Some(other));
        }
        assert_eq!(
            backlog.arrive(PeerUser::ThisUser, PLACES).evicted,
            Some(ours[0]),
            "this user may lose a place only above its half"
        );
    }

    #[test]
    fn a_program_of_this_user_evicts_only_its_own_connections() {
        let of = |process| Peer::new(PeerUser::ThisUser, process);
        let mut backlog = Backlog::default();
        let places: Vec<_> = (0..PLACES).map(|_| backlog.arrive(of(Some(7)), PLACES).place).collect();
        let owner = [Some(8), None].map(|process| backlog.arrive(of(process), PLACES));
        assert_eq!(owner.map(|arrival| arrival.evicted), [Some(places[0]), Some(places[1])]);
        for _ in 0..1000 {
            let evicted = backlog.arrive(of(Some(7)), PLACES).evicted.unwrap();
            assert!(!owner.iter().any(|arrival| arrival.place == evicted));
        }
    }

    #[test]
    fn connections_of_many_user_ids_leave_this_user_half_of_the_places() {
        let mut backlog = Backlog::default();
        for user in 0..1000 {
            backlog.arrive(PeerUser::OtherUser(user), PLACES);
        }
        for _ in 0..PLACES / 2 {
            backlog.arrive(PeerUser::ThisUser, PLACES);
        }
        for user in 1000..2000 {
            backlog.arrive(PeerUser::OtherUser(user), PLACES);
        }
        assert_eq!(backlog.waiting.values().filter(|peer| peer.user().is_this_user()).count(), PLACES / 2);
        assert_eq!(backlog.waiting.len(), PLACES);
    }

    #[test]
    fn of_two_other_users_the_one_with_most_connections_loses_one() {
        let (few, greedy) = (PeerUser::OtherUser(1), PeerUser::OtherUser(2));
        let (mut backlog, places) = filled(many(few, 10).chain(many(greedy, PLACES - 10)));
        assert_eq!(backlog.arrive(few, PLACES).evicted, Some(places[10]));
        for _ in 0..1000 {
            assert_eq!(backlog.arrive(greedy, PLACES).evicted.map(Place::peer), Some(greedy));
        }
        // In a tie the user of the new connection loses one, or else the user with the oldest connection.
        let (mut backlog, places) = filled(many(greedy, PLACES / 2).chain(many(few, PLACES / 2)));
        assert_eq!(backlog.clone().arrive(few, PLACES).evicted, Some(places[PLACES / 2]));
        assert_eq!(backlog.arrive(PeerUser::Unknown, PLACES).evicted, Some(places[0]));
    }

    #[test]
    fn in_a_backlog_of_one_place_or_zero_each_connection_evicts_the_one_before() {
        for max in [0, 1] {
            let mut backlog = Backlog::default();
            let mut before = backlog.arrive(PeerUser::Unknown, max).place;
            for peer in [PeerUser::ThisUser, PeerUser::ThisUser, PeerUser::OtherUser(1), PeerUser::Unknown, PeerUser::ThisUser] {
                let arrival = backlog.arrive(peer, max);
                assert_eq!((arrival.evicted, backlog.waiting.len()), (Some(before), 1));
                before = arrival.place;
            }
        }
    }
}
