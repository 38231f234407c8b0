//! The upgrade to a WebSocket, which may contain the claim code (`docs/protocols/tesseron.md`, "Binding a WebSocket").
//!
//! ```text
//!             an upgrade, whose code is checked later
//!   Waiting --------------------------------------------> Delayed
//!      | |                                                   |
//!      | '---- an upgrade that is answered at once ------.   | the delay is over
//!      |                                                 v   v
//!      '---- `upgrade_wait` is over ---> (closed)       Answered
//! ```

use super::backlog::Place;
use super::offer::{Offer, OfferedBind};
use super::{BindRefused, Host, HostChannel, HostPolicy};
use protocol_core::time::Instant;

/// The app's end of a TCP connection, until its upgrade to a WebSocket is answered. Made by [`Host::accept_web_socket`].
///
/// Pass the upgrade request to [`handle_upgrade`](Self::handle_upgrade) once, and call [`handle_timeout`](Self::handle_timeout) at the
/// time of [`poll_timeout`](Self::poll_timeout).
#[derive(Clone, Debug)]
pub struct UpgradeGate {
    place: Place,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Waiting {
        deadline: Instant,
    },
    /// `offer` is answered at `due`, when its code is checked.
    Delayed {
        offer: Offer,
        due: Instant,
    },
    Answered,
}

/// The next step for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeStep {
    /// There is nothing to do before the time of [`UpgradeGate::poll_timeout`], if there is one.
    Wait,
    /// Accept the upgrade with [`super::SUBPROTOCOL`]: the connection is admitted as a channel, and has spent the claim, if the
    /// app has one. Call [`Host::handle_closed`] when the channel has ended.
    Open(HostChannel),
    /// Answer the upgrade with [`BindRefused::http_status`], if there is one, and close the connection.
    Refuse(BindRefused),
    /// Close the connection: there was no upgrade request in time.
    Close,
}

impl Host {
    /// Makes the gate of an accepted connection that must be upgraded to a WebSocket.
    #[must_use]
    pub fn accept_web_socket(&self, place: Place, now: Instant) -> UpgradeGate {
        UpgradeGate::new(self.policy(), place, now)
    }
}

impl UpgradeGate {
    pub(super) fn new(policy: &HostPolicy, place: Place, now: Instant) -> Self {
        Self { place, state: State::Waiting { deadline: now.saturating_add(policy.upgrade_wait) } }
    }

    /// Takes the upgrade request. `host` must be the host that made the gate. A second request is ignored, and so is one
    /// after [`UpgradeStep::Close`].
    pub fn handle_upgrade(&mut self, offer: Offer, host: &mut Host, now: Instant) -> UpgradeStep {
        if !matches!(self.state, State::Waiting { .. }) {
            return UpgradeStep::Wait;
        }
        let has_code = offer.is_gateway() && matches!(offer.bind(), OfferedBind::Code(_));
        let due = if has_code { host.check_time(self.place, now) } else { now };
        self.state = State::Delayed { offer, due };
        self.handle_timeout(host, now)
    }

    /// The next deadline, at which [`Self::handle_timeout`] must be called; `None` once the upgrade is answered.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { deadline: at } | State::Delayed { due: at, .. } => Some(at),
            State::Answered => None,
        }
    }

    /// Answers an upgrade whose delay has passed, and closes a connection that has sent no request in time. Harmless if called early or
    /// repeatedly. `host` must be the host that made the gate.
    pub fn handle_timeout(&mut self, host: &mut Host, now: Instant) -> UpgradeStep {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return UpgradeStep::Wait;
        }
        match core::mem::replace(&mut self.state, State::Answered) {
            State::Waiting { .. } => UpgradeStep::Close,
            State::Delayed { offer, .. } => {
                host.answer_upgrade(self.place, &offer, now).map_or_else(UpgradeStep::Refuse, UpgradeStep::Open)
            }
            State::Answered => UpgradeStep::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::draw::sequence;
    use crate::claims::{ClaimCode, Peer, PeerUser};
    use alloc::vec::Vec;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn host_with_claims() -> Host {
        Host::with_claims(HostPolicy::default(), at(0), 0, &mut sequence(30))
    }

    fn gate(host: &mut Host, peer: PeerUser, millis: u64) -> UpgradeGate {
        let place = host.accept(peer).unwrap().place;
        host.accept_web_socket(place, at(millis))
    }

    /// An upgrade request with a wrong code.
    fn wrong() -> Offer {
        offer("WRONG-CODE")
    }

    fn offer(code: &str) -> Offer {
        Offer::parse([&*Offer::header(Some(&ClaimCode::parse(code).unwrap()))])
    }

    fn right(host: &Host) -> Offer {
        offer(host.claim().unwrap().code.reveal())
    }

    /// Sends an upgrade request at the time `millis`, and waits for the answer. Returns the time that the answer took, in milliseconds, and
    /// the answer.
    fn dial(host: &mut Host, peer: PeerUser, offer: Offer, millis: u64) -> (u64, UpgradeStep) {
        let mut gate = gate(host, peer, millis);
        let step = gate.handle_upgrade(offer, host, at(millis));
        if step != UpgradeStep::Wait {
            return (0, step);
        }
        let due = gate.poll_timeout().unwrap();
        let a_millisecond_less = due.saturating_duration_since(at(1));
        assert_eq!(gate.handle_timeout(host, Instant::ZERO.saturating_add(a_millisecond_less)), UpgradeStep::Wait, "not early");
        let step = gate.handle_timeout(host, due);
        assert_eq!((gate.poll_timeout(), gate.handle_timeout(host, at(1_000_000))), (None, UpgradeStep::Wait), "once");
        (due.as_micros() / 1000 - millis, step)
    }

    #[test]
    fn a_connection_without_an_upgrade_request_is_closed_after_two_seconds() {
        let mut host = host_with_claims();
        let mut gate = gate(&mut host, PeerUser::Unknown, 1000);
        assert_eq!(gate.poll_timeout(), Some(at(3000)));
        assert_eq!(gate.handle_timeout(&mut host, at(2999)), UpgradeStep::Wait);
        assert_eq!(gate.handle_timeout(&mut host, at(3000)), UpgradeStep::Close);
        let right = right(&host);
        assert_eq!(gate.handle_upgrade(right, &mut host, at(3000)), UpgradeStep::Wait, "the request is too late");
        assert_eq!(host.channel(), None);
    }

    #[test]
    fn after_seven_wrong_codes_the_right_one_is_accepted_after_two_seconds() {
        let mut host = host_with_claims();
        let mut now = 0;
        for expected in [0, 125, 250, 500, 1000, 2000, 2000] {
            let (took, step) = dial(&mut host, PeerUser::Unknown, wrong(), now);
            assert_eq!((took, step), (expected, UpgradeStep::Refuse(BindRefused::Mismatch)));
            now += took;
        }
        let right = right(&host);
        let (took, step) = dial(&mut host, PeerUser::Unknown, right, now);
        assert!(took == 2000 && matches!(step, UpgradeStep::Open(_)), "{took} {step:?}");
    }

    #[test]
    fn wrong_codes_of_others_do_not_delay_this_user() {
        let mut host = host_with_claims().for_any_user();
        for millis in 0..20 {
            dial(&mut host, PeerUser::OtherUser(1), wrong(), millis);
            dial(&mut host, PeerUser::Unknown, wrong(), millis);
        }
        let right = right(&host);
        let (took, step) = dial(&mut host, PeerUser::ThisUser, right, 20);
        assert!(took == 0 && matches!(step, UpgradeStep::Open(_)), "{took} {step:?}");
    }

    /// If the right code were answered immediately, an attacker could close each connection that gets no immediate answer, and so guess
    /// without delay.
    #[test]
    fn the_right_code_takes_as_long_as_a_wrong_one() {
        let mut host = host_with_claims();
        dial(&mut host, PeerUser::Unknown, wrong(), 0);
        let (mut one, mut other) = (gate(&mut host, PeerUser::Unknown, 0), gate(&mut host, PeerUser::Unknown, 0));
        let right = right(&host);
        assert_eq!(one.handle_upgrade(right, &mut host, at(0)), UpgradeStep::Wait);
        assert_eq!(other.handle_upgrade(wrong(), &mut host, at(0)), UpgradeStep::Wait);
        assert_eq!((one.poll_timeout(), other.poll_timeout()), (Some(at(125)), Some(at(125))));
    }

    #[test]
    fn a_request_without_a_code_is_answered_at_once() {
        let mut host = host_with_claims();
        for _ in 0..10 {
            dial(&mut host, PeerUser::Unknown, wrong(), 0);
        }
        for (header, refused) in [
            ("tesseron-gateway", BindRefused::Unbound),
            ("tesseron-gateway,tesseron-bind.!", BindRefused::Malformed),
            ("chat,tesseron-bind.ABCD-EF", BindRefused::NoGateway),
        ] {
            assert_eq!(
                dial(&mut host, PeerUser::Unknown, Offer::parse([header]), 0),
                (0, UpgradeStep::Refuse(refused)),
                "{header}"
            );
        }
        let mut host = Host::without_claims();
        for _ in 0..10 {
            let refused = dial(&mut host, PeerUser::ThisUser, wrong(), 0);
            assert_eq!(
                refused,
                (0, UpgradeStep::Refuse(BindRefused::Mismatch)),
                "a host without claims has no code to guess, so it does not delay"
            );
        }
    }

    #[test]
    fn sixty_four_silent_connections_keep_no_other_connection_out() {
        let mut host = host_with_claims();
        let silent: Vec<_> = (0..64).map(|_| gate(&mut host, PeerUser::Unknown, 0)).collect();
        let arrival = host.accept(PeerUser::Unknown).unwrap();
        assert_eq!(arrival.evicted, Some(silent[0].place));
        let right = right(&host);
        let step = host.accept_web_socket(arrival.place, at(1)).handle_upgrade(right, &mut host, at(1));
        assert!(matches!(step, UpgradeStep::Open(_)), "{step:?}");
        assert_eq!(host.accept(PeerUser::Unknown).unwrap().evicted, None, "its place is free again");
    }

    /// In the field a program of the same user that sent wrong codes as fast as it could kept the owner from claiming the app: the right
    /// code waited for its 2 s, and lost its place meanwhile.
    #[test]
    fn a_flood_of_wrong_codes_of_a_program_of_this_user_does_not_keep_the_owner_from_claiming() {
        let of = |process| Peer::new(PeerUser::ThisUser, Some(process));
        let mut host = host_with_claims();
        for _ in 0..8 {
            let _ = dial(&mut host, PeerUser::ThisUser, wrong(), 0);
        }
        let flood = |host: &mut Host, millis: u64| {
            let arrival = host.accept(of(7)).unwrap();
            host.accept_web_socket(arrival.place, at(millis)).handle_upgrade(wrong(), host, at(millis));
            arrival.evicted
        };
        for _ in 0..200 {
            flood(&mut host, 10_000);
        }
        let right = right(&host);
        let owner = host.accept(of(8)).unwrap().place;
        let mut gate = host.accept_web_socket(owner, at(10_000));
        assert_eq!(gate.handle_upgrade(right, &mut host, at(10_000)), UpgradeStep::Wait, "the right code is delayed, too");
        for millis in 10_000..12_000 {
            for _ in 0..5 {
                assert_ne!(flood(&mut host, millis), Some(owner));
            }
        }
        assert_eq!(gate.poll_timeout(), Some(at(12_000)));
        assert!(matches!(gate.handle_timeout(&mut host, at(12_000)), UpgradeStep::Open(_)));
    }

    #[test]
    fn connections_of_another_user_are_refused_and_take_no_place() {
        let mut host = host_with_claims();
        for _ in 0..1000 {
            assert_eq!(host.accept(PeerUser::OtherUser(7)), Err(BindRefused::Foreign));
        }
        for _ in 0..64 {
            assert_eq!(host.accept(PeerUser::ThisUser).unwrap().evicted, None);
        }
        assert!(host_with_claims().for_any_user().accept(PeerUser::OtherUser(7)).is_ok());
    }

    #[test]
    fn an_app_without_a_code_refuses_a_peer_of_an_unknown_user() {
        let mut host = Host::without_claims();
        assert_eq!(host.accept(PeerUser::Unknown), Err(BindRefused::Foreign));
        assert_eq!(host.accept(PeerUser::OtherUser(7)), Err(BindRefused::Foreign));
        assert!(host.accept(PeerUser::ThisUser).is_ok());
        let mut host = Host::without_claims().for_any_user();
        assert!(host.accept(PeerUser::Unknown).is_ok() && host.accept(PeerUser::OtherUser(7)).is_ok());
    }
}
