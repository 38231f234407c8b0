//! Random operations on a world of two ends of any protocol and era. A judge checks the guarantees at each end after every operation. A
//! failing case is reduced to operations that can be pasted into a test.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proptest::prelude::*;
use protocol_core::mcp::Era;
use protocol_core::{CallTimeouts, Config, Instant, RateWindow, Session};
use testkit::broken::{Broken, Fault};
use testkit::config::{app_config, gateway_config};
use testkit::config::{client_config, server_config, with};
use testkit::judge::replays;
use testkit::world::lanes::Seen;
use testkit::world::ops::{self, Operation};
use testkit::world::{Wire, World};
use testkit::{Coverage, Guarantee, Happening, Rng, Subject, strategies};

/// The protocol and the era of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    /// An MCP client that makes a handshake, and a server.
    Mcp,
    /// An MCP client that makes stateless requests, and a server.
    Stateless,
    /// An MCP client that chooses its era, and a server of both eras or of one.
    Choosing,
    /// A gateway and an app.
    Tesseron,
}

/// Configurations of the two ends, with timeouts, rates and limits that random operations reach.
fn configs(spoken: Spoken, variant: u8) -> (Config, Config) {
    let (client, server) = match spoken {
        Spoken::Mcp => (client_config(), server_config()),
        Spoken::Stateless => (with(client_config(), |config| config.era = Era::Modern), server_config()),
        Spoken::Choosing => {
            let era = [Era::Auto, Era::Auto, Era::Modern, Era::Legacy][usize::from(variant >> 1 & 3)];
            (with(client_config(), |config| config.era = Era::Auto), with(server_config(), |config| config.era = era))
        }
        Spoken::Tesseron => (gateway_config(), app_config()),
    };
    let client = with(client, |config| {
        // Shorter than a round trip over the slowest link, which takes 700 ms.
        config.timeouts.probe = Some(Duration::from_millis(500));
        config.timeouts.call = CallTimeouts::NONE
            .with_idle(Some(Duration::from_millis(900)))
            .with_max_total(Some(Duration::from_secs(4)))
            .with_reset_on_progress(true);
        config.timeouts.cancel_grace = Duration::from_millis(u64::from(variant & 2) * 20);
        config.limits.in_flight = 6;
        config.limits.events = 8 + usize::from(variant % 2) * 100;
        config.limits.ended_ids = 4;
    });
    let server = with(server, |config| {
        config.progress.window = RateWindow::new(3, Duration::from_millis(400));
        config.timeouts.serve = (variant & 4 == 0).then_some(Duration::from_millis(1500));
        config.timeouts.input = Some(Duration::from_millis(700));
        config.timeouts.response_gap = Duration::from_millis(u64::from(variant & 2) * 20);
        config.timeouts.call.idle = Some(Duration::from_millis(900));
        config.limits.in_flight = 5;
        config.limits.events = 8 + usize::from(variant % 2) * 100;
        config.limits.ended_ids = 4;
    });
    let congest = |config: Config| {
        with(config, |config| {
            if is_congested(variant) {
                config.limits.output_bytes = 500;
                config.limits.unsolicited_replies = 3;
            }
        })
    };
    (congest(client), congest(server))
}

/// Returns `true` if the output limits of the variant are so low that output is soon refused.
fn is_congested(variant: u8) -> bool {
    variant >> 6 == 3
}

/// The operation that claims the app of a gateway for an agent. On MCP it does nothing.
const CLAIM: u8 = 32;

/// Sets the latency of the links, and in most cases makes the handshake and the claim.
fn begin<S: Subject>(world: &mut World<S>, variant: u8) {
    for at in 0..2 {
        let latency = Duration::from_millis([0, 3, 0, 350][usize::from(variant >> 3 & 3)]);
        world.faults(at, |faults| faults.latency = latency);
    }
    world.deliver_all();
    if variant >> 5 & 3 != 0 {
        world.run_until(Instant::from_millis(1_500));
        world.apply([CLAIM, 0, 0, 0]);
    }
}

/// One case: the ends, the seed and the kind of the links, and the operations.
#[derive(Clone)]
struct Case {
    spoken: Spoken,
    seed: u64,
    wire: Wire,
    /// Bits that choose the configurations, the latency, and the beginning and the end of the case.
    variant: u8,
    /// `true` if end 1 has many lanes.
    has_lanes: bool,
    /// The opcodes that are used, one bit each. Operations with another opcode are skipped, so each case has its own mix.
    swarm: u64,
    ops: Vec<Operation>,
}

/// Formats the case so that it can be pasted into a test.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spoken, seed, wire, variant, has_lanes, swarm, ops } = self;
        write!(
            f,
            "Case {{ spoken: Spoken::{spoken:?}, seed: {seed}, wire: Wire::{wire:?}, variant: {variant}, has_lanes: {has_lanes}, swarm: {swarm}, ops: vec!"
        )?;
        write!(f, "{} }}", format_args!("{ops:?}"))
    }
}

impl Case {
    /// Runs the case to its end.
    fn run(&self, change: impl FnOnce(&mut World)) -> World {
        let (client, server) = configs(self.spoken, self.variant);
        let mut world = World::of_sessions(client, server, self.wire, self.seed);
        if self.has_lanes {
            world.many_lanes(self.seed);
        }
        change(&mut world);
        begin(&mut world, self.variant);
        for op in &self.ops {
            if self.swarm >> (op[0] & 63) & 1 == 1 {
                world.apply(*op);
            }
        }
        world.finish(self.variant);
        world
    }
}

/// Any operation. Operations that close an end or make a claim are rare.
fn operation() -> impl Strategy<Value = Operation> {
    let rare = (prop_oneof![26..28_u8, Just(CLAIM)], any::<u8>(), any::<u8>(), any::<u8>());
    let rare = rare.prop_map(|(opcode, a, b, c)| [opcode, a, b, c]);
    prop_oneof![69 => strategies::operation(), 2 => rare]
}

/// Any operation. One in six is about subscriptions or log levels.
fn operation_of_subscriptions() -> impl Strategy<Value = Operation> {
    let opcode = ops::SUBSCRIBE..=ops::LOG;
    let of_subscriptions = (opcode, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(opcode, a, b, c)| [opcode, a, b, c]);
    prop_oneof![5 => operation(), 1 => of_subscriptions]
}

/// Any operation. One in eight is about lanes.
fn operation_of_lanes() -> impl Strategy<Value = Operation> {
    let of_lanes = (33..38_u8, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(opcode, a, b, c)| [opcode, a, b, c]);
    prop_oneof![7 => operation_of_subscriptions(), 1 => of_lanes]
}

fn spoken() -> impl Strategy<Value = Spoken> {
    prop_oneof![Just(Spoken::Mcp), Just(Spoken::Stateless), Just(Spoken::Choosing), Just(Spoken::Tesseron)]
}

fn case(length: usize) -> impl Strategy<Value = Case> {
    let plain = (
        prop_oneof![2 => Just(Wire::Messages), 1 => Just(Wire::Bytes)],
        prop::collection::vec(operation_of_subscriptions(), 1..length),
    )
        .prop_map(|(wire, ops)| (wire, false, ops));
    let of_lanes = prop::collection::vec(operation_of_lanes(), 1..length).prop_map(|ops| (Wire::Messages, true, ops));
    let (plain, of_lanes) = (plain.boxed(), of_lanes.boxed());
    (spoken(), any::<u64>(), prop_oneof![2 => plain, 1 => of_lanes], any::<u8>(), any::<[u64; 2]>()).prop_map(
        |(spoken, seed, (wire, has_lanes, ops), variant, [one, two])| Case {
            spoken,
            seed,
            wire,
            variant,
            has_lanes,
            swarm: one | two,
            ops,
        },
    )
}

/// A case that is determined by its protocol, number and length.
fn numbered(spoken: Spoken, number: u64, length: usize) -> Case {
    let mut rng = Rng::new(number);
    let wire = if rng.below(3) == 0 { Wire::Bytes } else { Wire::Messages };
    let (variant, swarm) = (rng.number() as u8, rng.number() | rng.number());
    let ops = (0..length).map(|_| ops::random(&mut rng)).collect();
    Case { spoken, seed: number, wire, variant, has_lanes: false, swarm, ops }
}

/// The case of [`numbered`], with additional operations on subscriptions and log levels.
fn with_subscriptions(spoken: Spoken, number: u64, length: usize) -> Case {
    let case = numbered(spoken, number, length);
    let mut rng = Rng::new(!number);
    let mut ops = Vec::new();
    for op in case.ops {
        ops.push(op);
        if rng.chance(96) {
            ops.push(ops::random_of_subscriptions(&mut rng));
        }
    }
    // Each mix has all of these additional operations.
    Case { swarm: case.swarm | 0b11_1111 << ops::SUBSCRIBE, ops, ..case }
}

/// A case with only the channel. If requests may be stateless, it has operations on subscriptions.
fn plain(spoken: Spoken, number: u64, length: usize) -> Case {
    match spoken {
        Spoken::Mcp | Spoken::Tesseron => numbered(spoken, number, length),
        Spoken::Stateless | Spoken::Choosing => with_subscriptions(spoken, number, length),
    }
}

/// The case of [`plain`], with many lanes and operations on them.
fn with_lanes(spoken: Spoken, number: u64, length: usize) -> Case {
    let case = plain(spoken, number, length);
    let mut rng = Rng::new(!number);
    let mut ops = Vec::new();
    for op in case.ops {
        // Operations that end the case are kept only sometimes, so that most cases run to the last operation.
        if !ops::ends(op) || rng.chance(64) {
            ops.push(op);
        }
        if rng.chance(96) {
            ops.push(ops::random_of_lanes(&mut rng));
        }
    }
    // Each mix has calls and all operations on lanes.
    Case { wire: Wire::Messages, has_lanes: true, swarm: case.swarm | 1 | 0b1_1111 << 33, ops, ..case }
}

/// Settings of proptest for `cases` cases, or as many as the environment variable `PROPTEST_CASES` says.
fn with_cases(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(with_cases(256))]

    #[test]
    fn no_case_breaks_a_guarantee(case in case(120)) {
        case.run(|_| {});
    }
}

proptest! {
    #![proptest_config(with_cases(48))]

    #[test]
    fn g10_equal_operations_and_seeds_give_equal_traces(case in case(60)) {
        prop_assert_eq!(case.run(|_| {}).trace(), case.run(|_| {}).trace());
    }

    #[test]
    fn g8_a_needless_handle_timeout_is_invisible_wherever_it_comes(case in case(40)) {
        case.run(World::check_needless_timeouts);
    }
}

#[test]
fn no_case_of_many_lanes_breaks_a_guarantee() {
    for spoken in [Spoken::Mcp, Spoken::Stateless, Spoken::Tesseron] {
        let seen = (0..300).map(|number| with_lanes(spoken, number, 150).run(|_| {}).seen_of_lanes());
        let seen = seen.fold(Seen::default(), Seen::and);
        println!("{spoken:?}: {seen:?}");
        let all = [seen.opened, seen.given_again, seen.stopped, seen.resumed, seen.lost, seen.passed, seen.unknown];
        assert!(all.iter().all(|count| *count > 100), "{spoken:?}: {seen:?}");
    }
}

/// A storm in which nothing happens proves nothing.
#[test]
fn everything_happens_in_storms_of_each_protocol() {
    for spoken in [Spoken::Mcp, Spoken::Stateless, Spoken::Choosing, Spoken::Tesseron] {
        let (mut coverage, mut congested, mut rounds) = (Coverage::default(), 0, 0);
        for number in 0..200 {
            let world = plain(spoken, number, 150).run(|_| {});
            coverage.add(&world.coverage());
            let trace = world.trace().concat();
            congested += trace.iter().filter(|line| line.contains("Congested") || line.contains("Full")).count();
            rounds += trace.iter().filter(|line| line.contains(r#""requestState":"state of"#)).count();
        }
        println!("{spoken:?}: {coverage}, {congested} congested, {rounds} rounds and retries");
        let can_happen = |happening: &Happening| match happening {
            Happening::StatelessRequest => matches!(spoken, Spoken::Stateless | Spoken::Choosing),
            // Lanes have storms of their own. Frames that cannot be read, and responses that do not fit, are too rare.
            Happening::LaneStopped | Happening::LaneLost | Happening::Garbage | Happening::Invalid => false,
            // Stateless requests ask in rounds.
            Happening::InputRequest | Happening::InputResponse | Happening::Refusal | Happening::Unanswered => {
                spoken != Spoken::Stateless
            }
            _ => true,
        };
        for happening in Happening::ALL.into_iter().filter(can_happen) {
            assert!(coverage.of(happening) > 0, "{spoken:?}, {happening:?}:\n{coverage}");
        }
        assert!(congested > 0, "{spoken:?}: no method met a full outbox");
        assert!(spoken != Spoken::Stateless || rounds > 0, "{rounds} rounds and retries");
    }
}

/// Runs one numbered case of a world whose ends have `fault`, and returns its trace. The judge detects [`Fault::DelaysOutput`] only
/// with [`World::check_needless_timeouts`].
fn broken_case(spoken: Spoken, fault: Fault, number: u64) -> Vec<String> {
    let mut case = if fault.is_of_lanes() { with_lanes(spoken, number, 60) } else { numbered(spoken, number, 60) };
    case.wire = Wire::Messages;
    let (client, server) = configs(case.spoken, case.variant);
    let broken = |config| Broken::new(Session::new(config, Instant::ZERO), fault);
    let mut world = World::new(broken(client), broken(server), case.wire, case.seed);
    if case.has_lanes {
        world.many_lanes(case.seed);
    }
    if fault == Fault::DelaysOutput {
        world.check_needless_timeouts();
    }
    begin(&mut world, case.variant);
    if fault == Fault::IgnoresIdTypes {
        // A call, and a response to each of the first ids, with the id as a string. Random responses seldom have the id of an open call.
        world.apply([0, 0, 0, 0]);
        (1..9).for_each(|id| world.apply([25, 0, id, 0x84]));
    }
    case.ops.iter().for_each(|op| world.apply(*op));
    world.finish(case.variant);
    world.trace().concat()
}

/// Runs up to 400 cases of a world whose ends have `fault`. Returns the messages of the failures, and stops after 13 of them.
fn failures(spoken: Spoken, fault: Fault) -> Vec<String> {
    let mut messages = Vec::new();
    for number in 0..400 {
        if fault == Fault::Nondeterministic {
            messages.extend(replays(|| broken_case(spoken, fault, number)).err().map(|objection| objection.to_string()));
        } else if let Err(what) = catch_unwind(AssertUnwindSafe(|| broken_case(spoken, fault, number))) {
            let what =
                what.downcast_ref::<String>().cloned().or_else(|| what.downcast_ref::<&str>().map(|what| (*what).to_owned()));
            messages.extend(what);
        }
        if messages.len() > 12 {
            break;
        }
    }
    messages
}

/// Returns `true` if a fault has an effect in these worlds. On MCP a call goes on when its lane is lost, so `IgnoresLosses` has no effect
/// there. Faults of stateless requests are found in `callers.rs` and `explore.rs`, those of input rounds in `rounds.rs`.
fn has_effect(spoken: Spoken, fault: Fault) -> bool {
    !fault.is_stateless() && !fault.is_of_rounds() && (spoken == Spoken::Tesseron || fault != Fault::IgnoresLosses)
}

#[test]
fn the_judge_names_the_guarantee_that_a_fault_breaks() {
    for guarantee in Guarantee::ALL {
        assert!(Fault::ALL.iter().any(|fault| fault.breaks() == Some(guarantee)), "no fault breaks {guarantee}");
    }
    for spoken in [Spoken::Mcp, Spoken::Tesseron] {
        for fault in Fault::ALL.into_iter().filter(|fault| has_effect(spoken, *fault)) {
            let Some(guarantee) = fault.breaks() else { continue };
            if fault == Fault::MixesIds && spoken == Spoken::Tesseron {
                // A response of Tesseron also names its call, so the session itself reports the wrong id.
                continue;
            }
            let messages = failures(spoken, fault);
            let named = format!("{guarantee}: ");
            assert!(
                messages.iter().any(|what| what.starts_with(&named)),
                "{fault:?} on {spoken:?} does not break {guarantee}: {messages:?}"
            );
        }
    }
}
