//! The memory that remains after many calls, counted and not timed; `examples/load.rs` times a greater load.

use allocation_counter::measure;
use protocol_core::{Event, InboundId, Instant, Lane, Progress, Reply, Session, ToolOutput};
use testkit::config::{client_config, server_config, with};
use testkit::{Pair, Scripted};

const NOW: Instant = Instant::ZERO;

fn pair(in_flight: usize) -> Pair {
    let roomy = |config| {
        with(config, |config| {
            config.limits.in_flight = in_flight;
            config.limits.events = in_flight + 16;
            config.limits.output_bytes = 1 << 30;
        })
    };
    Pair::with(roomy(client_config()), roomy(server_config()))
}

fn carry(from: &mut Scripted, to: &mut Session) {
    while let Some(out) = from.session.poll_transmit() {
        to.handle_frame(out.frame, Lane::CHANNEL, NOW).unwrap();
    }
}

fn begin(pair: &mut Pair) -> InboundId {
    pair.client.call();
    carry(&mut pair.client, &mut pair.server.session);
    let Some(Event::Request { id, .. }) = pair.server.session.poll_event() else { panic!("a request") };
    id
}

fn finish(pair: &mut Pair, id: InboundId) {
    pair.server.session.respond(id, Reply::Tool(ToolOutput::text("ok")), NOW).unwrap();
    carry(&mut pair.server, &mut pair.client.session);
    assert!(matches!(pair.client.session.poll_event(), Some(Event::Done { .. })));
}

#[test]
fn calls_in_sequence_leave_no_memory_in_use() {
    let mut pair = pair(8);
    let mut round = || {
        let id = begin(&mut pair);
        finish(&mut pair, id);
    };
    // After these rounds the session remembers the greatest number of ids.
    (0..1_000).for_each(|_| round());
    let counted = measure(|| (0..5_000).for_each(|_| round()));
    assert!(counted.bytes_current.abs() < 4_096, "{counted:?}");
    assert!(counted.bytes_max < 64 * 1024, "{counted:?}");
}

#[test]
fn a_session_without_open_calls_holds_less_than_8_kib() {
    const PAIRS: usize = 16;
    let mut pairs = Vec::with_capacity(PAIRS);
    let counted = measure(|| {
        for _ in 0..PAIRS {
            let mut pair = Pair::with(client_config(), server_config());
            let ids: Vec<_> = (0..10).map(|_| begin(&mut pair)).collect();
            ids.into_iter().for_each(|id| finish(&mut pair, id));
            pairs.push(pair);
        }
    });
    let each = counted.bytes_current as usize / (2 * PAIRS) + size_of::<protocol_core::Session>();
    assert!(each < 8 * 1024, "{each}");
}

#[test]
fn progress_updates_leave_no_memory_in_use() {
    let mut pair = pair(8);
    let id = begin(&mut pair);
    let mut update = |value| {
        pair.server.session.progress(id, Progress::count(value, 1 << 40), NOW).unwrap();
        carry(&mut pair.server, &mut pair.client.session);
        assert!(matches!(pair.client.session.poll_event(), Some(Event::Progress { .. })));
    };
    (1..100).for_each(&mut update);
    let counted = measure(|| (100..20_000).for_each(&mut update));
    assert!(counted.bytes_current.abs() < 1_024 && counted.bytes_max < 4_096, "{counted:?}");
}

#[test]
fn ten_thousand_calls_in_flight_cost_a_bounded_amount_each_and_are_freed_with_their_end() {
    const CALLS: usize = 10_000;
    let mut pair = pair(CALLS);
    let mut ids = Vec::with_capacity(CALLS);
    let whole = measure(|| {
        let begun = measure(|| ids.extend((0..CALLS).map(|_| begin(&mut pair))));
        assert!(begun.bytes_current < 3_000 * CALLS as i64, "{begun:?}");
        assert_eq!(pair.client.session.stats().outbound_calls, CALLS);
        // The number of allocations for each call does not depend on the number of open calls.
        assert!(begun.count_total < 24 * CALLS as u64, "{begun:?}");
        for id in ids.drain(..).rev() {
            finish(&mut pair, id);
        }
    });
    assert!(whole.bytes_current < 256 * 1024, "{whole:?}");
}
