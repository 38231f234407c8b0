//! Every interleaving within bounds: zero objections, and the number of states says how much was looked at.

use std::time::Instant as Clock;

use protocol_core::{Config, Instant, Session};
use tests::world::broken::{Broken, Fault};
use tests::world::explore::{Action, Bounds, Objection, State, configs, explore, tesseron_configs};

const NOTHING: Bounds = Bounds { calls: 0, updates: 0, samples: 0, cancels: 0, deadlines: 0, closes: 0 };

/// Explores each, prints what was found, and gives the number of states.
fn search(configs: fn() -> (Config, Config), all: &[Bounds]) -> usize {
    let mut states = 0;
    for bounds in all {
        let (client, server) = configs();
        let began = Clock::now();
        let first = State::ready(Session::new(client, Instant::ZERO), Session::new(server, Instant::ZERO), *bounds);
        let found = explore(first).unwrap_or_else(|Objection { what, way }| panic!("{what}\nthe shortest way to it: {way:?}"));
        println!("{bounds:?}: {found:?} in {:.1?}", began.elapsed());
        assert!(found.rests > 0, "nothing ever comes to rest");
        states += found.states;
    }
    println!("{states} distinct states");
    states
}

/// What a search takes a few seconds for.
const QUICK: [Bounds; 5] = [
    Bounds { calls: 1, updates: 1, samples: 1, cancels: 1, deadlines: 1, ..NOTHING },
    Bounds { calls: 1, updates: 1, deadlines: 1, closes: 1, ..NOTHING },
    Bounds { calls: 2, cancels: 1, deadlines: 1, ..NOTHING },
    Bounds { calls: 2, samples: 1, ..NOTHING },
    Bounds { calls: 3, ..NOTHING },
];

/// What it takes a minute for.
const FULL: [Bounds; 15] = [
    // Everything at once, for one call.
    Bounds { calls: 1, updates: 2, samples: 1, cancels: 1, deadlines: 2, closes: 0 },
    Bounds { calls: 1, updates: 1, samples: 1, cancels: 1, deadlines: 1, closes: 1 },
    // Two calls, the second perhaps on behalf of the sampling of the first, and sampling itself.
    Bounds { calls: 2, samples: 2, ..NOTHING },
    Bounds { calls: 2, samples: 1, cancels: 1, ..NOTHING },
    Bounds { calls: 2, samples: 1, deadlines: 1, ..NOTHING },
    Bounds { calls: 2, updates: 1, samples: 1, cancels: 1, ..NOTHING },
    Bounds { calls: 2, updates: 1, cancels: 1, deadlines: 1, closes: 1, ..NOTHING },
    // Three calls and each thing that can happen to them, and each pair of things that race.
    Bounds { calls: 3, updates: 1, ..NOTHING },
    Bounds { calls: 3, samples: 1, ..NOTHING },
    Bounds { calls: 3, cancels: 1, deadlines: 1, ..NOTHING },
    Bounds { calls: 3, updates: 1, cancels: 1, ..NOTHING },
    Bounds { calls: 3, updates: 1, deadlines: 1, ..NOTHING },
    Bounds { calls: 3, closes: 1, ..NOTHING },
    Bounds { calls: 3, cancels: 1, closes: 1, ..NOTHING },
    Bounds { calls: 3, deadlines: 1, closes: 1, ..NOTHING },
];

#[test]
fn every_interleaving_of_a_few_calls_is_as_predicted_on_mcp() {
    let states = search(configs, &QUICK);
    assert!(states > 5_000, "{states}");
}

#[test]
fn every_interleaving_of_a_few_calls_is_as_predicted_on_tesseron() {
    let states = search(tesseron_configs, &QUICK);
    assert!(states > 5_000, "{states}");
}

#[test]
#[ignore = "takes a minute: cargo test --release -p tests --test explore -- --ignored"]
fn every_interleaving_of_up_to_three_calls_is_as_predicted_on_mcp() {
    let states = search(configs, &FULL);
    assert!(states > 100_000, "{states}");
}

#[test]
#[ignore = "takes a minute: cargo test --release -p tests --test explore -- --ignored"]
fn every_interleaving_of_up_to_three_calls_is_as_predicted_on_tesseron() {
    let states = search(tesseron_configs, &FULL);
    assert!(states > 100_000, "{states}");
}

fn objection_to(configs: fn() -> (Config, Config), fault: Fault, bounds: Bounds) -> Option<Objection> {
    let (client, server) = configs();
    let [client, server] = [client, server].map(|config| Broken::new(Session::new(config, Instant::ZERO), fault));
    explore(State::ready(client, server, bounds)).err()
}

#[test]
fn a_search_finds_the_shortest_way_to_what_is_broken() {
    let bounds = Bounds { calls: 2, cancels: 1, deadlines: 1, ..NOTHING };
    for configs in [configs, tesseron_configs] {
        let found = objection_to(configs, Fault::IgnoresCancels, bounds).expect("an objection");
        // Call, the request leaves and arrives, the cancel leaves and arrives: shorter it cannot be.
        use Action::{Arrive, Call, Cancel, Leave};
        assert_eq!(found.way, [Call(None), Leave(0), Cancel(0), Leave(0), Arrive(1), Arrive(1)], "{}", found.what);
        for fault in [Fault::LosesDone, Fault::RepeatsDone, Fault::MissesDeadlines, Fault::ExpiresOnFrames] {
            assert!(objection_to(configs, fault, bounds).is_some(), "nobody objects to {fault:?}");
        }
        let bounds = Bounds { calls: 1, updates: 1, ..NOTHING };
        assert!(objection_to(configs, Fault::RepeatsProgress, bounds).is_some());
    }
    assert!(
        objection_to(configs, Fault::MixesIds, bounds).is_some_and(|found| found.way.len() >= 6),
        "two calls are needed for that"
    );
}
