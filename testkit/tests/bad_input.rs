//! Invalid configurations and machines must fail soon, with a clear message. A run must not wait for ever for a link that loses frames, or
//! for a handler that never ends.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use protocol_core::{Instant, Invoke, Session};
use testkit::broken::{Broken, Fault};
use testkit::config::{client_config, server_config, with};
use testkit::explore::pair::{self, Orders, explore_pair};
use testkit::explore::{Bounds, Explored, Failure, explore};
use testkit::link::{Arrival, Faults, SimLink};
use testkit::{Campaign, FarEnd, FarEnds, Happening, Recording, Relay, Watched, Wire, World};

/// Runs code that must panic. Returns the message of the panic.
fn failure(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it fails");
    panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
}

#[test]
fn a_link_that_loses_everything_delivers_nothing() {
    let mut link = SimLink::new(1);
    link.faults = Faults::losing_everything();
    (0..1_000).for_each(|_| link.send(&"{}".into(), Instant::ZERO));
    assert_eq!((link.lost(), link.due(), link.receive(Instant::ZERO)), (1_000, None, None));
}

#[test]
fn a_world_that_loses_everything_fails_with_the_number_of_lost_frames() {
    let what = failure(|| {
        let mut world = World::of_sessions(client_config(), server_config(), Wire::Messages, 1);
        (0..2).for_each(|at| world.faults(at, |faults| *faults = Faults::losing_everything()));
        world.shake_hands();
    });
    assert!(what.starts_with("no handshake by ") && what.contains("sent [1, 0] frames, of which [1, 0] were lost"), "{what}");
}

#[test]
fn a_loop_at_a_link_that_loses_everything_ends_and_its_campaign_is_vacuous() {
    let mut campaign = Campaign::new(&[Happening::Request, Happening::Cancel]);
    campaign.run(0..3, 0, |recording| {
        let mut far_end = FarEnd::new(client_config(), Faults::losing_everything(), recording.seed);
        far_end.run(|far_end, now| {
            while far_end.receive(now).is_some() {}
            None
        });
        far_end.coverage().clone()
    });
    let what = failure(|| campaign.finish());
    assert!(what.starts_with("vacuous: in 3 cases no request arrived"), "{what}");
}

#[test]
fn a_campaign_without_a_case_or_without_a_required_happening_is_vacuous() {
    assert!(failure(|| Campaign::new(&[]).finish()).starts_with("vacuous: in 0 cases"));
    let mut campaign = Campaign::new(&[Happening::Cancel, Happening::Progress]);
    let operations = 0;
    campaign.run(0..5, operations, |recording| {
        let mut world = World::messages(client_config(), server_config(), recording.seed);
        recording.play(&mut world);
        world.finish(0);
        world.coverage()
    });
    assert!(
        failure(|| campaign.finish()).starts_with("vacuous: in 5 cases no cancel happened, no progress of the peer was accepted\n")
    );
}

#[test]
fn a_failing_case_prints_itself_and_can_be_run_again() {
    let case = |recording: &Recording| {
        let mut world = World::messages(client_config(), server_config(), recording.seed);
        recording.play(&mut world);
        let coverage = world.coverage();
        assert_eq!(coverage.of(Happening::Cancel), 0, "a cancel happened");
        coverage
    };
    let what = failure(|| Campaign::new(&[]).run(0..50, 60, case));
    let (_, line) = what.split_once("again(\"").expect("a line to run it again");
    let (line, _) = line.split_once('"').expect("its end");
    assert!(!line.contains('\n') && failure(|| Campaign::new(&[]).again(line, case)).contains("a cancel happened"));
    let recording: Recording = line.parse().expect("a recording");
    assert_eq!(recording.to_string(), line);
    for invalid in ["", "seed", "seed x operations", "seed 1 operations 00", "seed 1 operations 0001020g", "seed 1"] {
        assert!(invalid.parse::<Recording>().is_err(), "{invalid}");
    }
    assert!(failure(|| Campaign::new(&[]).again("nonsense", case)).contains("nonsense"));
}

#[test]
fn a_search_with_bounds_of_zero_fails() {
    struct Any;
    impl Explored for Any {
        type Step = u8;
        fn steps(&self) -> Vec<u8> {
            vec![1]
        }
        fn take(&mut self, _: &u8) {}
        fn state(&self) -> impl Hash {}
    }
    for bounds in [Bounds { states: 0, ..Bounds::default() }, Bounds { depth: 0, ..Bounds::default() }] {
        assert_eq!(explore(|| Any, bounds), Err(Failure::Nothing));
    }
    let [client, server] = [client_config(), server_config()].map(|config| Session::new(config, Instant::ZERO));
    // By default no step of a pair is allowed.
    let none = explore_pair(client, server, pair::Bounds::default(), Orders::Enough).expect_err("nothing can happen");
    assert!(none.what.contains("nothing can happen"), "{}", none.what);
}

#[test]
fn a_search_of_a_machine_with_infinitely_many_states_fails() {
    struct Counter(u64);
    impl Explored for Counter {
        type Step = u64;
        fn steps(&self) -> Vec<u64> {
            vec![1, 2]
        }
        fn take(&mut self, step: &u64) {
            self.0 += step;
        }
        fn state(&self) -> impl Hash {
            self.0
        }
    }
    let bounds = Bounds { states: 50, depth: 1_000 };
    assert_eq!(explore(|| Counter(0), bounds), Err(Failure::TooMany { states: 50 }));
    let found = explore(|| Counter(0), Bounds { states: 50, depth: 10 }).expect("everything holds");
    // After at most ten steps, the counter is from 0 to 20.
    assert!(found.cut > 0 && found.states == 21, "{found:?}");
}

#[test]
fn a_search_returns_the_fewest_steps_to_a_violation() {
    struct CombinationLock(Vec<u8>);
    impl Explored for CombinationLock {
        type Step = u8;
        fn steps(&self) -> Vec<u8> {
            vec![0, 1]
        }
        fn take(&mut self, step: &u8) {
            self.0.push(*step);
            assert!(!self.0.ends_with(&[1, 1, 0]), "open");
        }
        fn state(&self) -> impl Hash {
            self.0.clone()
        }
    }
    let found = explore(|| CombinationLock(Vec::new()), Bounds::default()).expect_err("it opens");
    assert_eq!(found, Failure::Counterexample { what: "open".to_owned(), way: vec![1, 1, 0] });
}

#[test]
fn a_session_that_never_stops_sending_fails() {
    let what = failure(|| {
        let [client, server] = [client_config(), server_config()]
            .map(|config| Broken::new(Session::new(config, Instant::ZERO), Fault::NotifiesOnEachFrame));
        let mut world = World::new(client, server, Wire::Messages, 1);
        world.deliver_all();
        world.end_mut(0).invoke(Invoke::ping(), Instant::ZERO).expect("accepted");
        world.deliver_all();
    });
    assert!(what.starts_with("a livelock"), "{what}");
}

#[test]
fn a_gateway_that_never_stops_sending_fails() {
    /// A gateway that pings both ends each time that it is asked to relay.
    struct Chatty([Watched; 2]);
    impl Relay for Chatty {
        type Leg = Watched;
        fn legs(&mut self) -> [&mut Watched; 2] {
            self.0.each_mut()
        }
        fn relay(&mut self, now: Instant) {
            for leg in &mut self.0 {
                while leg.poll_event().is_some() {}
                let _ = leg.invoke(Invoke::ping(), now);
            }
        }
    }
    let what = failure(|| {
        let legs =
            [server_config(), client_config()].map(|config| Watched::new(Session::new(config, Instant::ZERO), Instant::ZERO));
        FarEnds::new(client_config(), server_config()).pass(&mut Chatty(legs), Instant::ZERO);
    });
    assert!(what.starts_with("a livelock: the gateway goes on"), "{what}");
}

/// The owner of the server never responds: the calls of its peer end at their deadlines, and the case ends.
#[test]
fn a_case_ends_although_its_handlers_never_end() {
    let mut campaign = Campaign::new(&[Happening::Request, Happening::Deadline, Happening::Closed]);
    campaign.run(0..5, 0, |recording| {
        let mut far_end = FarEnd::new(client_config(), Faults::default(), recording.seed);
        let config = with(server_config(), |config| config.timeouts.serve = Some(Duration::from_secs(1)));
        let mut session = Watched::new(Session::new(config, Instant::ZERO), Instant::ZERO);
        session.judge_mut().distrust_peer();
        far_end.run(|far_end, now| {
            while let Some(arrival) = far_end.receive(now) {
                match arrival {
                    Arrival::Message(frame) => drop(session.handle_frame(frame, protocol_core::Lane::CHANNEL, now)),
                    // The loop does not end the session either, so that only the deadlines end calls.
                    Arrival::End(_) => {}
                }
            }
            session.handle_timeout(now);
            while session.poll_event().is_some() {}
            while let Some(out) = session.poll_transmit() {
                far_end.send(&out.frame, now);
            }
            session.poll_timeout()
        });
        session.handle_end(protocol_core::TransportEnd::Eof, Instant::from_millis(10_000_000));
        while session.poll_event().is_some() {}
        session.check_end();
        session.coverage().clone()
    });
    campaign.finish();
}

#[test]
fn a_loop_that_spins_fails() {
    let spin = |next: fn(Instant) -> Instant| {
        failure(|| {
            let mut far_end = FarEnd::new(client_config(), Faults::default(), 1);
            far_end.run(|_, now| Some(next(now)));
        })
    };
    assert!(spin(|now| now).starts_with("the loop spins: 1000 turns"));
    let what = spin(|now| now.saturating_add(Duration::from_micros(1)));
    assert!(what.starts_with("the loop does not come to an end"), "{what}");
}

#[test]
fn a_broken_session_is_rejected_in_a_loop_under_test_and_alone() {
    let what = failure(|| {
        let mut far_end = FarEnd::new(client_config(), Faults::default(), 3);
        let broken = Broken::new(Session::new(server_config(), Instant::ZERO), Fault::Panics);
        let mut session = Watched::new(broken, Instant::ZERO);
        far_end.run(|far_end, now| {
            while let Some(arrival) = far_end.receive(now) {
                match arrival {
                    Arrival::Message(frame) => _ = session.handle_frame(frame, protocol_core::Lane::CHANNEL, now).unwrap(),
                    Arrival::End(end) => session.handle_end(end, now),
                }
            }
            session.handle_timeout(now);
            while session.poll_event().is_some() {}
            while let Some(out) = session.poll_transmit() {
                far_end.send(&out.frame, now);
            }
            session.poll_timeout()
        });
    });
    assert!(what.starts_with("G6: handle_frame panicked: a cancel"), "{what}");
    let mut session = Watched::new(Broken::new(Session::new(client_config(), Instant::ZERO), Fault::RepeatsDone), Instant::ZERO);
    let call = session.invoke(Invoke::ping(), Instant::ZERO).expect("accepted");
    session.cancel(call, None, Instant::ZERO).expect("live");
    let what = failure(|| while session.poll_event().is_some() {});
    assert!(what.starts_with("G1: done twice"), "{what}");
}
