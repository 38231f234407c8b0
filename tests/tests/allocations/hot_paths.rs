//! The allocations of the hot paths, counted and not timed.

use std::sync::Arc;

use bytes::BytesMut;
use protocol_core::mcp::Era;
use protocol_core::{Event, Instant, Invoke, Lane, Op, Reply, Session, ToolOutput};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, initialize, json, notification};
use testkit::{Pair, Scripted};

/// Progress notifications, as an adapter passes frames: as parts of one read buffer.
fn frames(count: u64) -> Vec<bytes::Bytes> {
    let mut buffer = BytesMut::new();
    let mut lengths = Vec::new();
    for value in 1..=count {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":2,"progress":{value},"total":1000,"message":"step"}}}}"#
        );
        buffer.extend_from_slice(text.as_bytes());
        lengths.push(text.len());
    }
    lengths.into_iter().map(|length| buffer.split_to(length).freeze()).collect()
}

#[test]
fn a_progress_notification_that_is_received_allocates_nothing_beyond_its_frame() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    // The session is measured without its judge (`testkit::Watched`), which allocates memory itself.
    let mut client = client.session.into_subject();
    let mut frames = frames(1_000).into_iter();
    let mut receive = |frame, now| {
        client.handle_frame(frame, Lane::CHANNEL, Instant::from_micros(now)).unwrap();
        assert!(matches!(client.poll_event(), Some(Event::Progress { .. })));
    };
    receive(frames.next().unwrap(), 1);
    let counted = allocation_counter::measure(|| {
        for (frame, now) in frames.zip(2..) {
            receive(frame, now);
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

/// The allocations of 100 round trips at both ends, between a client of `era` and a server of both eras.
fn allocations_of_trips(era: Era) -> u64 {
    let client = with(client_config(), |config| config.era = era);
    let mut pair = Pair { client: Scripted::new(client), server: Scripted::new(server_config()), trace: Vec::new() };
    pair.run();
    let [mut client, mut server] = [pair.client, pair.server].map(|end| end.session.into_subject());
    while client.poll_event().is_some() || server.poll_event().is_some() {}
    let output = ToolOutput::structured(json(r#"{"done":true}"#));
    let mut trip = || {
        client.invoke(Invoke::new(Op::CallTool, json(r#"{"name":"t"}"#)), Instant::ZERO).unwrap();
        let request = client.poll_transmit().unwrap().frame;
        server.handle_frame(request, Lane::CHANNEL, Instant::ZERO).unwrap();
        let Some(Event::Request { id, caller, .. }) = server.poll_event() else { panic!("a request") };
        assert_eq!(caller.protocol() == "2026-07-28", era == Era::Modern);
        server.respond(id, Reply::Tool(output.clone()), Instant::ZERO).unwrap();
        let response = server.poll_transmit().unwrap().frame;
        client.handle_frame(response, Lane::CHANNEL, Instant::ZERO).unwrap();
        assert!(matches!(client.poll_event(), Some(Event::Done { .. })));
    };
    trip();
    allocation_counter::measure(|| (0..100).for_each(|_| trip())).count_total
}

#[test]
fn a_round_trip_makes_at_most_18_allocations_at_both_ends_together() {
    let counted = allocations_of_trips(Era::Legacy);
    assert!(counted <= 100 * 18, "{counted}");
}

#[test]
fn a_round_trip_without_a_handshake_makes_at_most_one_allocation_more() {
    assert!(allocations_of_trips(Era::Modern) <= allocations_of_trips(Era::Legacy) + 100);
}

/// A transport may make a session for each request; this test counts the allocations of such a session. The handshake is not counted, since
/// only a revision without a handshake allows such sessions.
#[test]
fn a_session_that_serves_one_request_makes_at_most_eight_allocations_beyond_its_frames() {
    let config = Arc::new(server_config());
    // The call has no progress token.
    let frames = [initialize(0, "2025-11-25", "{}"), notification("notifications/initialized", "{}"), call_tool(1, false)];
    let [handshake, confirmation, request] = frames.map(bytes::Bytes::from);
    let mut session = None;
    let made = allocation_counter::measure(|| session = Some(Session::new(Arc::clone(&config), Instant::ZERO)));
    let mut session = session.unwrap();
    for frame in [handshake, confirmation] {
        session.handle_frame(frame, Lane::CHANNEL, Instant::ZERO).unwrap();
    }
    while session.poll_event().is_some() || session.poll_transmit().is_some() {}
    // The handshake has allocated memory for events and frames in `session`, which a session without a handshake allocates for its first
    // frame. These allocations are counted by a ping to another session.
    let mut fresh = Session::new(Arc::clone(&config), Instant::ZERO);
    let first = allocation_counter::measure(|| {
        fresh
            .handle_frame(bytes::Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), Lane::CHANNEL, Instant::ZERO)
            .unwrap();
        assert!(fresh.poll_transmit().is_some());
    });
    let reply = Reply::Raw(json("{}"));
    let served = allocation_counter::measure(|| {
        session.handle_frame(request, Lane::CHANNEL, Instant::ZERO).unwrap();
        let Some(Event::Request { id, .. }) = session.poll_event() else { panic!("a request") };
        session.respond(id, reply, Instant::ZERO).unwrap();
        assert!(session.poll_transmit().is_some());
        drop(session);
    });
    let all = made.count_total + first.count_total + served.count_total;
    assert!(all <= 8, "made {made:?}, first frame {first:?}, served {served:?}");
}
