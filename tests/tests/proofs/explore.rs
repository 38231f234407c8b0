//! Exhaustive searches of all interleavings within bounds: no state may have an objection. The number of states shows the size of the search.

use std::time::Instant as Clock;

use protocol_core::{Config, Instant, Session};
use testkit::broken::{Broken, Fault};
use testkit::explore::pair::{Action, Bounds, Found, Objection, Orders, configs, explore_pair, tesseron_configs};

const NOTHING: Bounds = Bounds { calls: 0, updates: 0, samples: 0, cancels: 0, deadlines: [0; 2], closes: [0; 2], events: [9; 2] };

/// Each event once, at each end where it can happen.
const EVERYTHING: Bounds =
    Bounds { calls: 0, updates: 1, samples: 1, cancels: 1, deadlines: [1; 2], closes: [1; 2], events: [9; 2] };

fn found(configs: fn() -> (Config, Config), bounds: Bounds, orders: Orders) -> Found {
    let ((client, server), began) = (configs(), Clock::now());
    let [client, server] = [client, server].map(|config| Session::new(config, Instant::ZERO));
    let found = explore_pair(client, server, bounds, orders);
    let found = found.unwrap_or_else(|Objection { what, way }| panic!("{what}\nafter the steps {way:?}"));
    println!("{bounds:?}: {found:?} in {:.1?}", began.elapsed());
    assert!(found.rests > 0, "no state without further steps was found");
    found
}

/// Searches within each of the bounds, and prints the results. Returns the number of states.
fn search(configs: fn() -> (Config, Config), all: &[Bounds]) -> usize {
    let states = all.iter().map(|bounds| found(configs, *bounds, Orders::Enough).states).sum();
    println!("{states} distinct states");
    states
}

/// Bounds within which a search takes a few seconds.
const QUICK: [Bounds; 4] = [
    Bounds { calls: 1, ..EVERYTHING },
    Bounds { calls: 2, updates: 1, cancels: 1, deadlines: [1; 2], ..NOTHING },
    Bounds { calls: 2, samples: 1, cancels: 1, ..NOTHING },
    Bounds { calls: 3, cancels: 1, ..NOTHING },
];

/// Bounds within which an optimised search takes a minute or two.
const FULL: [Bounds; 4] = [
    Bounds { calls: 1, updates: 2, samples: 2, cancels: 1, deadlines: [2; 2], ..EVERYTHING },
    Bounds { calls: 2, ..EVERYTHING },
    // Any two events at one end, and any at the other.
    Bounds { calls: 3, events: [2, 1], ..EVERYTHING },
    Bounds { calls: 3, events: [1, 2], ..EVERYTHING },
];

#[test]
fn on_mcp_every_interleaving_of_a_few_calls_is_as_predicted() {
    let states = search(configs, &QUICK);
    assert!(states > 5_000, "{states}");
}

#[test]
fn on_tesseron_every_interleaving_of_a_few_calls_is_as_predicted() {
    let states = search(tesseron_configs, &QUICK);
    assert!(states > 5_000, "{states}");
}

#[test]
#[ignore = "takes a minute or two: cargo test --release -p tests --test proofs -- explore:: --ignored --nocapture"]
fn on_mcp_every_interleaving_of_up_to_three_calls_is_as_predicted() {
    let states = search(configs, &FULL);
    assert!(states > 1_000_000, "{states}");
}

#[test]
#[ignore = "takes a minute or two: cargo test --release -p tests --test proofs -- explore:: --ignored --nocapture"]
fn on_tesseron_every_interleaving_of_up_to_three_calls_is_as_predicted() {
    let states = search(tesseron_configs, &FULL);
    assert!(states > 1_000_000, "{states}");
}

#[test]
fn leaving_out_equivalent_orders_changes_nothing_that_either_end_observes() {
    let all = [
        Bounds { calls: 1, updates: 1, samples: 1, cancels: 1, deadlines: [1, 0], closes: [0, 1], ..NOTHING },
        Bounds { calls: 1, updates: 1, samples: 1, cancels: 1, deadlines: [0, 1], closes: [1, 0], ..NOTHING },
        Bounds { calls: 2, samples: 1, ..NOTHING },
        Bounds { calls: 2, updates: 1, deadlines: [1; 2], ..NOTHING },
    ];
    for configs in [configs, tesseron_configs] {
        for bounds in all {
            let [enough, all] = [Orders::Enough, Orders::All].map(|orders| found(configs, bounds, orders));
            assert_eq!((enough.ends, enough.digest, enough.rests), (all.ends, all.digest, all.rests), "{bounds:?}");
            assert!(enough.states < all.states, "no order is left out: {bounds:?}");
        }
    }
}

fn objection_to(configs: fn() -> (Config, Config), fault: Fault, bounds: Bounds, orders: Orders) -> Option<Objection> {
    let (client, server) = configs();
    let [client, server] = [client, server].map(|config| Broken::new(Session::new(config, Instant::ZERO), fault));
    explore_pair(client, server, bounds, orders).err()
}

#[test]
fn a_search_finds_each_fault_and_a_search_of_all_orders_finds_the_fewest_steps_to_it() {
    let bounds = Bounds { calls: 2, cancels: 1, deadlines: [1; 2], ..NOTHING };
    for (configs, orders) in [configs, tesseron_configs].into_iter().flat_map(|one| [(one, Orders::All), (one, Orders::Enough)]) {
        let found = objection_to(configs, Fault::IgnoresCancels, bounds, orders).expect("an objection");
        if orders == Orders::All {
            // The shortest sequence: a call, its request is sent and arrives, a cancel is sent and arrives.
            use Action::{Arrive, Call, Cancel, Leave};
            assert_eq!(found.way, [Call(None), Leave(0), Cancel(0), Leave(0), Arrive(1), Arrive(1)], "{}", found.what);
        }
        for fault in [Fault::LosesDone, Fault::RepeatsDone, Fault::MissesDeadlines, Fault::ExpiresOnFrames] {
            assert!(objection_to(configs, fault, bounds, orders).is_some(), "no objection to {fault:?}");
        }
        let bounds = Bounds { calls: 1, updates: 1, ..NOTHING };
        assert!(objection_to(configs, Fault::RepeatsProgress, bounds, orders).is_some());
    }
    let mixed = objection_to(configs, Fault::MixesIds, bounds, Orders::All);
    assert!(mixed.is_some_and(|found| found.way.len() >= 6), "this fault shows only with two calls");
}
