//! The memory that remains after many calls, counted and not timed; `examples/load.rs` times a greater load.

use allocation_counter::measure;
use protocol_core::{Config, Event, InboundId, Instant, Invoke, Json, Lane, Progress, Reply, Session, ToolOutput};
use testkit::Pair;
use testkit::config::{client_config, server_config, with};

const NOW: Instant = Instant::ZERO;

/// Two sessions after their handshake. They have no judge (`testkit::Watched`), since a judge allocates memory itself.
struct Ends {
    client: Session,
    server: Session,
}

impl Ends {
    fn new(client: Config, server: Config) -> Self {
        let Pair { client, server, .. } = Pair::with(client, server);
        Self { client: client.session.into_subject(), server: server.session.into_subject() }
    }
}

fn ends(in_flight: usize) -> Ends {
    let roomy = |config| {
        with(config, |config| {
            config.limits.in_flight = in_flight;
            config.limits.events = in_flight + 16;
            config.limits.output_bytes = 1 << 30;
        })
    };
    Ends::new(roomy(client_config()), roomy(server_config()))
}

fn carry(from: &mut Session, to: &mut Session) {
    while let Some(out) = from.poll_transmit() {
        to.handle_frame(out.frame, Lane::CHANNEL, NOW).unwrap();
    }
}

fn begin(ends: &mut Ends) -> InboundId {
    ends.client.invoke(Invoke::call_tool("t", Json::empty_object()), NOW).unwrap();
    carry(&mut ends.client, &mut ends.server);
    let Some(Event::Request { id, .. }) = ends.server.poll_event() else { panic!("a request") };
    id
}

fn finish(ends: &mut Ends, id: InboundId) {
    ends.server.respond(id, Reply::Tool(ToolOutput::text("ok")), NOW).unwrap();
    carry(&mut ends.server, &mut ends.client);
    assert!(matches!(ends.client.poll_event(), Some(Event::Done { .. })));
}

#[test]
fn calls_in_sequence_leave_no_memory_in_use() {
    let mut ends = ends(8);
    let mut call = || {
        let id = begin(&mut ends);
        finish(&mut ends, id);
    };
    // After these calls the sessions keep as many ids of ended calls as they may.
    (0..1_000).for_each(|_| call());
    let counted = measure(|| (0..5_000).for_each(|_| call()));
    assert!(counted.bytes_current.abs() < 4_096, "{counted:?}");
    assert!(counted.bytes_max < 64 * 1024, "{counted:?}");
}

#[test]
fn a_session_without_open_calls_holds_less_than_8_kib() {
    const PAIRS: usize = 16;
    let mut pairs = Vec::with_capacity(PAIRS);
    let counted = measure(|| {
        for _ in 0..PAIRS {
            let mut ends = Ends::new(client_config(), server_config());
            let ids: Vec<_> = (0..10).map(|_| begin(&mut ends)).collect();
            ids.into_iter().for_each(|id| finish(&mut ends, id));
            pairs.push(ends);
        }
    });
    let each = counted.bytes_current as usize / (2 * PAIRS) + size_of::<protocol_core::Session>();
    assert!(each < 8 * 1024, "{each}");
}

#[test]
fn release_memory_frees_the_memory_of_the_last_long_frame() {
    const LENGTH: usize = 64 * 1024;
    let mut ends = ends(8);
    let arguments = Json::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(LENGTH))).unwrap();
    ends.client.invoke(Invoke::call_tool("t", arguments), NOW).unwrap();
    while ends.client.poll_transmit().is_some() {}
    let counted = measure(|| ends.client.release_memory());
    assert!(counted.bytes_current < -(LENGTH as i64), "{counted:?}");
}

#[test]
fn progress_updates_leave_no_memory_in_use() {
    let mut ends = ends(8);
    let id = begin(&mut ends);
    let mut update = |value| {
        ends.server.progress(id, Progress::step(value, 1 << 40), NOW).unwrap();
        carry(&mut ends.server, &mut ends.client);
        assert!(matches!(ends.client.poll_event(), Some(Event::Progress { .. })));
    };
    (1..100).for_each(&mut update);
    let counted = measure(|| (100..20_000).for_each(&mut update));
    assert!(counted.bytes_current.abs() < 1_024 && counted.bytes_max < 4_096, "{counted:?}");
}

#[test]
fn each_of_ten_thousand_calls_in_flight_has_bounded_memory_which_is_freed_when_it_ends() {
    const CALLS: usize = 10_000;
    let mut ends = ends(CALLS);
    let mut ids = Vec::with_capacity(CALLS);
    let whole = measure(|| {
        let begun = measure(|| ids.extend((0..CALLS).map(|_| begin(&mut ends))));
        assert!(begun.bytes_current < 3_000 * CALLS as i64, "{begun:?}");
        assert_eq!(ends.client.stats().outbound_calls, CALLS);
        // The number of allocations for each call does not depend on the number of open calls.
        assert!(begun.count_total < 24 * CALLS as u64, "{begun:?}");
        for id in ids.drain(..).rev() {
            finish(&mut ends, id);
        }
    });
    assert!(whole.bytes_current < 256 * 1024, "{whole:?}");
}
