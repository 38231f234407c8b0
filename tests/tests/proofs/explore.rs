//! Searches every interleaving within bounds. No check may fail, and the search must visit a minimum number of states.

use std::time::Instant as Clock;

use protocol_core::{Config, Instant, Session};
use testkit::broken::{Broken, Fault};
use testkit::explore::pair::{
    Action, Bounds, Counterexample, Found, Orders, choosing_configs, configs, explore_pair, listening_configs, stateless_configs,
    tesseron_configs,
};

/// The configurations of a client and of a server.
type Ends = fn() -> (Config, Config);

/// No calls and no events. The value of `events` is greater than the number of events of any search here, so it is no bound.
const NOTHING: Bounds = Bounds {
    calls: 0,
    changes: 0,
    listens: 0,
    notifications: 0,
    updates: 0,
    samples: 0,
    cancels: 0,
    handshakes: 0,
    deadlines: [0; 2],
    closes: [0; 2],
    events: [9; 2],
    opening: false,
};

/// Every kind of event of a call once, at each end that can cause it.
const EVERYTHING: Bounds = Bounds { updates: 1, samples: 1, cancels: 1, deadlines: [1; 2], closes: [1; 2], ..NOTHING };

/// Makes one search, and prints its figures. Panics with the steps to a state in which a check fails.
fn found(configs: Ends, bounds: Bounds, orders: Orders) -> Found {
    let ((client, server), began) = (configs(), Clock::now());
    let [client, server] = [client, server].map(|config| Session::new(config, Instant::ZERO));
    let found = explore_pair(client, server, bounds, orders);
    let found = found.unwrap_or_else(|Counterexample { what, way }| panic!("{what}\na way to it: {way:?}"));
    println!("{bounds:?}: {found:?} in {:.1?}", began.elapsed());
    assert!(found.rests > 0, "nothing ever comes to rest");
    found
}

/// Searches with each of the bounds, prints the results, and returns the total number of states.
fn search(configs: Ends, all: &[Bounds]) -> usize {
    let states = all.iter().map(|bounds| found(configs, *bounds, Orders::Enough).states).sum();
    println!("{states} distinct states");
    states
}

/// The bounds of searches that together take a few seconds.
const QUICK: [Bounds; 4] = [
    Bounds { calls: 1, ..EVERYTHING },
    Bounds { calls: 2, updates: 1, cancels: 1, deadlines: [1; 2], ..NOTHING },
    Bounds { calls: 2, samples: 1, cancels: 1, ..NOTHING },
    Bounds { calls: 3, cancels: 1, ..NOTHING },
];

/// The bounds of searches in which another client makes its handshake on the same channel, also before the first one.
const HANDSHAKES: [Bounds; 3] = [
    Bounds { calls: 1, handshakes: 2, samples: 1, cancels: 1, ..NOTHING },
    Bounds { calls: 2, handshakes: 1, samples: 1, closes: [0, 1], ..NOTHING },
    Bounds { calls: 1, handshakes: 1, samples: 1, opening: true, ..NOTHING },
];

/// The bounds of searches that together take a minute or two in an optimised build.
const FULL: [Bounds; 4] = [
    Bounds { calls: 1, updates: 2, samples: 2, cancels: 1, deadlines: [2; 2], ..EVERYTHING },
    Bounds { calls: 2, ..EVERYTHING },
    // Any two events at one end, and any one at the other.
    Bounds { calls: 3, events: [2, 1], ..EVERYTHING },
    Bounds { calls: 3, events: [1, 2], ..EVERYTHING },
];

/// Searches of requests without a handshake that together take a few seconds.
const QUICK_STATELESS: [(Ends, Bounds); 9] = [
    (stateless_configs, Bounds { calls: 1, ..EVERYTHING }),
    (stateless_configs, Bounds { calls: 2, updates: 1, cancels: 1, deadlines: [1; 2], ..NOTHING }),
    (stateless_configs, Bounds { changes: 2, notifications: 1, cancels: 1, ..NOTHING }),
    (stateless_configs, Bounds { changes: 3, notifications: 1, ..NOTHING }),
    (stateless_configs, Bounds { calls: 1, listens: 1, notifications: 1, cancels: 1, deadlines: [1; 2], ..NOTHING }),
    (listening_configs, Bounds { changes: 1, notifications: 1, cancels: 1, closes: [0, 1], ..NOTHING }),
    (listening_configs, Bounds { calls: 1, notifications: 1, cancels: 1, closes: [1, 0], opening: true, ..NOTHING }),
    (choosing_configs, Bounds { calls: 1, updates: 1, cancels: 1, deadlines: [1; 2], closes: [1; 2], opening: true, ..NOTHING }),
    (choosing_configs, Bounds { changes: 2, deadlines: [1, 0], opening: true, ..NOTHING }),
];

/// Searches of requests without a handshake that together take a minute or two in an optimised build.
const FULL_STATELESS: [(Ends, Bounds); 9] = [
    (stateless_configs, Bounds { calls: 1, updates: 2, samples: 1, cancels: 1, deadlines: [2; 2], ..EVERYTHING }),
    (stateless_configs, Bounds { calls: 2, samples: 0, ..EVERYTHING }),
    (
        stateless_configs,
        Bounds { calls: 1, listens: 1, notifications: 1, cancels: 1, deadlines: [1; 2], closes: [1; 2], ..NOTHING },
    ),
    (stateless_configs, Bounds { changes: 2, notifications: 1, cancels: 1, deadlines: [1, 0], closes: [1; 2], ..NOTHING }),
    (stateless_configs, Bounds { changes: 4, notifications: 1, ..NOTHING }),
    (listening_configs, Bounds { changes: 2, notifications: 1, cancels: 1, ..NOTHING }),
    (listening_configs, Bounds { calls: 1, changes: 1, notifications: 1, cancels: 1, opening: true, ..NOTHING }),
    (choosing_configs, Bounds { calls: 2, updates: 1, cancels: 1, deadlines: [2, 1], opening: true, ..NOTHING }),
    (choosing_configs, Bounds { changes: 2, notifications: 1, cancels: 1, deadlines: [2, 0], opening: true, ..NOTHING }),
];

/// Does the same as [`search`], with configurations for each of the bounds.
fn search_each(all: &[(Ends, Bounds)]) -> usize {
    let states = all.iter().map(|(configs, bounds)| found(*configs, *bounds, Orders::Enough).states).sum();
    println!("{states} distinct states");
    states
}

#[test]
fn every_interleaving_of_a_few_stateless_requests_keeps_the_guarantees() {
    let states = search_each(&QUICK_STATELESS);
    assert!(states > 5_000, "{states}");
}

#[test]
#[ignore = "takes a minute or two: cargo test --release -p tests --test proofs -- explore:: --ignored --nocapture"]
fn every_interleaving_of_many_stateless_requests_keeps_the_guarantees() {
    let states = search_each(&FULL_STATELESS);
    assert!(states > 100_000, "{states}");
}

/// Several clients may share one server behind a bridge, and each makes a handshake.
#[test]
fn every_interleaving_of_calls_with_another_handshake_keeps_the_guarantees() {
    let states = search(configs, &HANDSHAKES);
    assert!(states > 1_000, "{states}");
}

#[test]
fn every_interleaving_of_a_few_calls_keeps_the_guarantees_on_mcp() {
    let states = search(configs, &QUICK);
    assert!(states > 5_000, "{states}");
}

#[test]
fn every_interleaving_of_a_few_calls_keeps_the_guarantees_on_tesseron() {
    let states = search(tesseron_configs, &QUICK);
    assert!(states > 5_000, "{states}");
}

#[test]
#[ignore = "takes a minute or two: cargo test --release -p tests --test proofs -- explore:: --ignored --nocapture"]
fn every_interleaving_of_up_to_three_calls_keeps_the_guarantees_on_mcp() {
    let states = search(configs, &FULL);
    assert!(states > 1_000_000, "{states}");
}

#[test]
#[ignore = "takes a minute or two: cargo test --release -p tests --test proofs -- explore:: --ignored --nocapture"]
fn every_interleaving_of_up_to_three_calls_keeps_the_guarantees_on_tesseron() {
    let states = search(tesseron_configs, &FULL);
    assert!(states > 1_000_000, "{states}");
}

#[test]
fn omitted_orders_lead_to_no_other_states_of_either_end() {
    let all = [
        Bounds { calls: 1, updates: 1, samples: 1, cancels: 1, deadlines: [1, 0], closes: [0, 1], ..NOTHING },
        Bounds { calls: 1, updates: 1, samples: 1, cancels: 1, deadlines: [0, 1], closes: [1, 0], ..NOTHING },
        Bounds { calls: 2, samples: 1, ..NOTHING },
        Bounds { calls: 2, updates: 1, deadlines: [1; 2], ..NOTHING },
    ];
    let with_handshake = [configs as Ends, tesseron_configs].into_iter().flat_map(|configs| all.map(|bounds| (configs, bounds)));
    let stateless: [(Ends, Bounds); 4] = [
        (stateless_configs, Bounds { calls: 1, updates: 1, cancels: 1, deadlines: [1, 0], closes: [0, 1], ..NOTHING }),
        (stateless_configs, Bounds { listens: 1, notifications: 1, cancels: 1, closes: [1, 0], ..NOTHING }),
        (listening_configs, Bounds { changes: 1, notifications: 1, ..NOTHING }),
        (choosing_configs, Bounds { calls: 1, cancels: 1, deadlines: [1; 2], opening: true, ..NOTHING }),
    ];
    for (configs, bounds) in with_handshake.chain(stateless) {
        let [enough, all] = [Orders::Enough, Orders::All].map(|orders| found(configs, bounds, orders));
        assert_eq!((enough.ends, enough.digest, enough.rests), (all.ends, all.digest, all.rests), "{bounds:?}");
        assert!(enough.states < all.states, "nothing is left out: {bounds:?}");
    }
}

fn counterexample_to(configs: Ends, fault: Fault, bounds: Bounds, orders: Orders) -> Option<Counterexample> {
    let (client, server) = configs();
    let [client, server] = [client, server].map(|config| Broken::new(Session::new(config, Instant::ZERO), fault));
    explore_pair(client, server, bounds, orders).err()
}

#[test]
fn a_search_finds_planted_faults_and_a_search_of_all_orders_finds_the_shortest_way_to_one() {
    let bounds = Bounds { calls: 2, cancels: 1, deadlines: [1; 2], ..NOTHING };
    for (configs, orders) in [configs, tesseron_configs].into_iter().flat_map(|one| [(one, Orders::All), (one, Orders::Enough)]) {
        let found = counterexample_to(configs, Fault::Panics, bounds, orders).expect("a counterexample");
        if orders == Orders::All {
            // The call and the cancel, then the frame of each is sent and arrives: there is no shorter way.
            use Action::{Arrive, Call, Cancel, Leave};
            assert_eq!(found.way, [Call(None), Leave(0), Cancel(0), Leave(0), Arrive(1), Arrive(1)], "{}", found.what);
        }
        for fault in [Fault::LosesDone, Fault::RepeatsDone, Fault::MissesDeadlines, Fault::ExpiresOnFrames] {
            assert!(counterexample_to(configs, fault, bounds, orders).is_some(), "no check finds {fault:?}");
        }
        let bounds = Bounds { calls: 1, updates: 1, ..NOTHING };
        assert!(counterexample_to(configs, Fault::RepeatsProgress, bounds, orders).is_some());
    }
    let mixed = counterexample_to(configs, Fault::MixesIds, bounds, Orders::All);
    assert!(mixed.is_some_and(|found| found.way.len() >= 6), "it takes two calls to mix their ids");
}

#[test]
fn a_search_of_stateless_requests_finds_planted_faults() {
    use Orders::{All, Enough};
    let calls = Bounds { calls: 1, cancels: 1, ..NOTHING };
    // The call is needed, since a frame that the fault adds is sent together with the next frame of the session.
    let listens = Bounds { calls: 1, listens: 1, ..NOTHING };
    let expect_counterexample = |fault, bounds, what: &str| {
        for orders in [All, Enough] {
            let found = counterexample_to(stateless_configs, fault, bounds, orders).map(|found| found.what);
            assert!(found.as_ref().is_some_and(|found| found.contains(what)), "{fault:?}: {found:?}");
        }
    };
    expect_counterexample(Fault::AsksWithoutHandshake, calls, "G15: ");
    for orders in [All, Enough] {
        use Action::{Arrive, Call, Leave, Respond};
        let found = counterexample_to(stateless_configs, Fault::AsksWithoutHandshake, calls, orders).expect("a counterexample");
        assert_eq!(found.way, [Call(None), Leave(0), Arrive(1), Respond(0), Leave(1)], "{}", found.what);
    }
    expect_counterexample(Fault::NoticeAfterResult, listens, "G15: ");
    expect_counterexample(Fault::RepeatsFrames, Bounds { opening: true, ..calls }, "G2: ");
    expect_counterexample(Fault::MixesSubscriptions, Bounds { changes: 2, notifications: 1, ..NOTHING }, "G16: ");
    let closes = Bounds { calls: 1, closes: [1, 0], ..NOTHING };
    expect_counterexample(Fault::LosesDone, closes, "G1: ");
    expect_counterexample(Fault::LosesDone, Bounds { opening: true, ..closes }, "G1: ");
}
