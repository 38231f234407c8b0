//! The worlds and the searches of `scripts/proof`. The program runs them for a given time and prints figures, one `name value` on each
//! line.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant as Clock};

use protocol_core::mcp::Era;
use protocol_core::{CallTimeouts, Config, Instant, RateWindow, Session};
use testkit::config::{app_config, client_config, gateway_config, server_config, with};
use testkit::explore::pair::{
    Bounds, Orders, choosing_configs, configs, explore_pair, listening_configs, stateless_configs, tesseron_configs,
};
use testkit::world::ops;
use testkit::{Campaign, Happening, Recording, Rng, Wire, World};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let seconds =
        |text: &String| text.parse().ok().filter(|seconds: &f64| (0.0..1e9).contains(seconds)).map(Duration::from_secs_f64);
    match arguments.as_slice() {
        [part, span, seed] if part == "worlds" => {
            if let (Some(span), Ok(seed)) = (seconds(span), seed.parse()) {
                return worlds(Clock::now() + span, seed);
            }
        }
        [part, span] if part == "searches" => {
            if let Some(span) = seconds(span) {
                return searches(Clock::now() + span);
            }
        }
        _ => {}
    }
    eprintln!("usage: proof worlds SECONDS FIRST_SEED | proof searches SECONDS");
    std::process::exit(2);
}

/// The era of the MCP client of a world; `None` for a world of Tesseron. Half of the MCP clients are stateless or may become so.
fn era(seed: u64) -> Option<Era> {
    [Some(Era::Legacy), None, Some(Era::Modern), None, Some(Era::Legacy), None, Some(Era::Auto), None][(seed % 8) as usize]
}

/// Configurations whose time limits, rates and limits are small enough for random operations to reach them.
fn chosen(seed: u64) -> (Config, Config) {
    let (caller, callee) = match era(seed) {
        Some(era) => (with(client_config(), |config| config.era = era), server_config()),
        None => (gateway_config(), app_config()),
    };
    let caller = with(caller, |config| {
        config.timeouts.probe = Some(Duration::from_millis(50));
        let (idle, max_total) = (Some(Duration::from_millis(900)), Some(Duration::from_secs(4)));
        config.timeouts.call = CallTimeouts::NONE.with_idle(idle).with_max_total(max_total).with_reset_on_progress(true);
        (config.limits.in_flight, config.limits.ended_ids) = (6, 4);
    });
    let callee = with(callee, |config| {
        config.progress.window = RateWindow::new(3, Duration::from_millis(400));
        config.timeouts.serve = (seed & 4 == 0).then_some(Duration::from_millis(1500));
        config.timeouts.input = Some(Duration::from_millis(700));
        config.timeouts.response_gap = Duration::from_millis(seed >> 3 & 1) * 40;
        (config.limits.in_flight, config.limits.ended_ids) = (5, 4);
    });
    (caller, callee)
}

fn worlds(until: Clock, first: u64) {
    let required = [
        Happening::Result,
        Happening::Cancel,
        Happening::Progress,
        Happening::Timeout,
        Happening::InputResponse,
        Happening::StatelessRequest,
    ];
    let mut campaign = Campaign::new(&required);
    let (mut seed, mut operations) = (first, 0);
    while Clock::now() < until {
        let mut recording = Recording::random(seed, 150);
        if era(seed).is_some_and(|era| era != Era::Legacy) {
            add_subscriptions(&mut recording);
        }
        operations += recording.operations.len();
        campaign.case(&recording, |recording| {
            let (caller, callee) = chosen(seed);
            let wire = if seed % 3 == 0 { Wire::Bytes } else { Wire::Messages };
            let mut world = World::of_sessions(caller, callee, wire, seed);
            world.deliver_all();
            if seed % 4 > 1 {
                // Operation 32 is the claim, which calls need on Tesseron. It does nothing on MCP.
                world.run_until(Instant::from_millis(10));
                world.apply([32, 0, 0, 0]);
            }
            recording.play(&mut world);
            world.finish((seed % 3) as u8);
            world.coverage()
        });
        seed += 1;
    }
    println!("cases {}\noperations {operations}", seed - first);
    let met: BTreeSet<_> = campaign.coverage().transitions().collect();
    let all = rows();
    let is_met = |row: &&[String; 3]| met.iter().any(|met| row.iter().zip(met).all(|(one, other)| one == other));
    println!("transitions {}\ntransitions_in_all {}", all.iter().filter(is_met).count(), all.len());
    for happening in Happening::ALL {
        println!("{happening:?} {}", campaign.coverage().of(happening));
    }
    campaign.finish();
}

/// Adds operations about subscriptions and log levels to a recording.
fn add_subscriptions(recording: &mut Recording) {
    let mut rng = Rng::new(!recording.seed);
    let (plain, mut all) = (std::mem::take(&mut recording.operations), Vec::new());
    for operation in plain {
        all.push(operation);
        if rng.chance(64) {
            all.push(ops::random_of_subscriptions(&mut rng));
        }
    }
    recording.operations = all;
}

/// The rows of `docs/transitions`: the table, the state, the input. The rows of ended calls (`gone`) are left out, since
/// [`Coverage`](testkit::Coverage) does not count them.
fn rows() -> BTreeSet<[String; 3]> {
    let mut all = BTreeSet::new();
    const FILES: [(&str, &str); 6] = [
        ("call", "call"),
        ("call-of-a-gateway", "call"),
        ("call-over-rounds", "call-over-rounds"),
        ("serve", "serve"),
        ("serve-stateless", "serve-stateless"),
        ("listen", "listen"),
    ];
    for (file, table) in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/transitions/{file}.txt"));
        let text = fs::read_to_string(path).expect("a table of transitions");
        for line in text.lines().skip_while(|line| !line.starts_with("state ")).skip(1) {
            let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
            if let (Some(state), Some(input)) = (cells.next(), cells.next())
                && state != "gone"
            {
                all.insert([table, state, input].map(str::to_owned));
            }
        }
    }
    all
}

/// Runs searches with growing bounds. The first search always runs; no other begins after `until`.
fn searches(until: Clock) {
    type Ends = fn() -> (Config, Config);
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
    const EVERYTHING: Bounds = Bounds { updates: 1, samples: 1, cancels: 1, deadlines: [1; 2], closes: [1; 2], ..NOTHING };
    const HANDSHAKE: [Bounds; 8] = [
        Bounds { calls: 1, ..EVERYTHING },
        Bounds { calls: 2, samples: 1, cancels: 1, ..NOTHING },
        Bounds { calls: 3, cancels: 1, ..NOTHING },
        Bounds { calls: 2, updates: 1, cancels: 1, deadlines: [1; 2], ..NOTHING },
        Bounds { calls: 1, updates: 2, samples: 2, cancels: 1, deadlines: [2; 2], ..EVERYTHING },
        Bounds { calls: 2, ..EVERYTHING },
        Bounds { calls: 3, events: [2, 1], ..EVERYTHING },
        Bounds { calls: 3, events: [1, 2], ..EVERYTHING },
    ];
    const STATELESS: [(Ends, Bounds); 8] = [
        (stateless_configs, Bounds { calls: 1, ..EVERYTHING }),
        (choosing_configs, Bounds { calls: 1, samples: 0, opening: true, ..EVERYTHING }),
        (stateless_configs, Bounds { changes: 3, notifications: 1, ..NOTHING }),
        (listening_configs, Bounds { changes: 1, notifications: 1, cancels: 1, closes: [0, 1], ..NOTHING }),
        (
            stateless_configs,
            Bounds { calls: 1, listens: 1, notifications: 1, cancels: 1, deadlines: [1; 2], closes: [1; 2], ..NOTHING },
        ),
        (choosing_configs, Bounds { changes: 2, notifications: 1, cancels: 1, deadlines: [1, 0], opening: true, ..NOTHING }),
        (stateless_configs, Bounds { calls: 2, samples: 0, ..EVERYTHING }),
        (stateless_configs, Bounds { changes: 2, notifications: 1, cancels: 1, deadlines: [1, 0], closes: [1; 2], ..NOTHING }),
    ];
    // One search of each kind in turn, so that a short run has all kinds.
    let with_handshake = HANDSHAKE.map(|bounds| [(configs as Ends, bounds), (tesseron_configs, bounds)]);
    let all: Vec<_> =
        with_handshake.into_iter().zip(STATELESS).flat_map(|([mcp, tesseron], stateless)| [mcp, tesseron, stateless]).collect();
    let (mut states, mut steps, mut done) = (0, 0, 0);
    for (configs, bounds) in &all {
        if Clock::now() >= until && done > 0 {
            break;
        }
        let (client, server) = configs();
        let [client, server] = [client, server].map(|config| Session::new(config, Instant::ZERO));
        let found = explore_pair(client, server, *bounds, Orders::Enough);
        let found = found.unwrap_or_else(|objection| panic!("{}\na way to it: {:?}", objection.what, objection.way));
        (states, steps, done) = (states + found.states, steps + found.steps, done + 1);
    }
    println!("searches {done}\nsearches_in_all {}\nstates {states}\nsteps {steps}", all.len());
}
