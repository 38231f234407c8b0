//! Tests of the simulated world: its links have the configured faults, and its time is exact.

use std::time::Duration;

use bytes::Bytes;
use protocol_core::{CallTimeouts, Instant, Invoke, Op, Outcome, TransportEnd};
use testkit::config::{client_config, server_config, with};
use testkit::link::{Arrival, Faults, Read, SimLink, SimStream};
use testkit::scripted::json;
use testkit::world::{Wire, World};

fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Sends the numbers below 100 at time zero. Returns each message that arrives, with the time in microseconds.
fn sent_over(faults: Faults) -> Vec<(u64, String)> {
    let mut link = SimLink::new(7);
    link.faults = faults;
    for number in 0..100 {
        link.send(&Bytes::from(number.to_string()), Instant::ZERO);
    }
    let mut arrived = Vec::new();
    while let Some(due) = link.due() {
        let Some(Arrival::Message(message)) = link.receive(due) else { panic!("a message") };
        arrived.push((due.as_micros(), String::from_utf8_lossy(&message).into_owned()));
    }
    arrived
}

fn numbers(arrived: &[(u64, String)]) -> Vec<u32> {
    arrived.iter().map(|(_, message)| message.parse().unwrap()).collect()
}

#[test]
fn a_link_without_faults_delivers_everything_in_order_and_without_delay() {
    let arrived = sent_over(Faults::default());
    assert_eq!(numbers(&arrived), (0..100).collect::<Vec<_>>());
    assert!(arrived.iter().all(|(at, _)| *at == 0));
}

#[test]
fn latency_is_exact_and_jitter_keeps_the_order() {
    let latency = Duration::from_millis(5);
    assert!(sent_over(Faults { latency, ..Faults::default() }).iter().all(|(at, _)| *at == 5_000));
    let arrived = sent_over(Faults { latency, jitter: Duration::from_millis(3), ..Faults::default() });
    assert_eq!(numbers(&arrived), (0..100).collect::<Vec<_>>());
    assert!(arrived.iter().all(|(at, _)| (5_000..8_000).contains(at)) && arrived[0].0 < arrived[99].0);
}

#[test]
fn a_link_can_lose_duplicate_and_reorder_messages() {
    // A chance of 128 in 256 is one half.
    let lost = numbers(&sent_over(Faults { drop: 128, ..Faults::default() }));
    assert!((30..70).contains(&lost.len()) && lost.is_sorted());
    let duplicated = numbers(&sent_over(Faults { duplicate: 128, ..Faults::default() }));
    assert!((130..170).contains(&duplicated.len()));
    let reordered = numbers(&sent_over(Faults { reorder: 128, ..Faults::default() }));
    assert!(reordered.len() == 100 && !reordered.is_sorted());
}

#[test]
fn a_link_can_damage_and_truncate_messages() {
    let count = |faults| {
        let arrived = sent_over(faults);
        arrived.iter().enumerate().filter(|(number, (_, message))| *message != number.to_string()).count()
    };
    assert!((30..70).contains(&count(Faults { corrupt: 128, ..Faults::default() })));
    assert!((30..70).contains(&count(Faults { truncate: 128, ..Faults::default() })));
}

#[test]
fn the_end_of_a_link_comes_after_the_messages_in_flight_and_a_failure_discards_them() {
    for (how, messages) in [(TransportEnd::Eof, 2), (TransportEnd::Failed, 0)] {
        let mut link = SimLink::new(1);
        link.faults.latency = Duration::from_millis(5);
        link.send(&Bytes::from_static(b"a"), ms(0));
        link.send(&Bytes::from_static(b"b"), ms(1));
        link.end(how, ms(2));
        link.send(&Bytes::from_static(b"late"), ms(3));
        let arrived: Vec<_> = std::iter::from_fn(|| link.receive(ms(9))).collect();
        assert_eq!((arrived.len(), arrived.last()), (messages + 1, Some(&Arrival::End(how))));
    }
}

#[test]
fn a_stream_splits_and_merges_frames_and_holds_no_more_than_its_buffer() {
    let mut stream = SimStream::new(3, 10);
    assert_eq!(stream.write(b"0123456789abc", ms(0)), Ok(10));
    assert_eq!(stream.write(b"abc", ms(0)), Ok(0));
    stream.faults.piece = 4;
    let mut got = Vec::new();
    let mut reads = 0;
    while let Read::Bytes(bytes) = stream.read(ms(0)) {
        assert!((1..=4).contains(&bytes.len()));
        got.extend(bytes);
        reads += 1;
    }
    assert!(got == b"0123456789" && reads > 2);
    // Zero means that nothing is split.
    stream.faults.piece = 0;
    assert_eq!((stream.write(b"ab", ms(0)), stream.write(b"cd", ms(0))), (Ok(2), Ok(2)));
    assert_eq!(stream.read(ms(0)), Read::Bytes(b"abcd".to_vec()));
    stream.stalled = true;
    assert_eq!((stream.write(b"x", ms(0)), stream.read(ms(0))), (Ok(0), Read::Pending));
    stream.finish(TransportEnd::Eof, ms(0));
    assert_eq!(stream.read(ms(0)), Read::End(TransportEnd::Eof));
    assert!(stream.write(b"x", ms(0)).is_err());
}

fn world(wire: Wire) -> World {
    let client = with(client_config(), |config| {
        config.timeouts.call = CallTimeouts::NONE.with_idle(Some(Duration::from_millis(50))).with_reset_on_progress(true);
    });
    let mut world = World::of_sessions(client, server_config(), wire, 1);
    for end in 0..2 {
        world.faults(end, |faults| faults.latency = Duration::from_millis(10));
    }
    world.run_until(ms(100));
    assert!((0..2).all(|end| world.end(end).subject().is_ready()));
    world
}

fn call(world: &mut World) {
    let now = world.now();
    let params = format!(r#"{{"name":"t","arguments":{}}}"#, testkit::ODD);
    world.end_mut(0).invoke(Invoke::new(Op::CallTool, json(&params)), now).expect("the call is accepted");
    world.deliver_all();
}

#[test]
fn time_advances_exactly_to_the_next_arrival_or_deadline() {
    for wire in [Wire::Messages, Wire::Bytes] {
        let mut world = world(wire);
        call(&mut world);
        let mut stops = Vec::new();
        while let Some(at) = world.next() {
            world.jump(at);
            stops.push(at.as_micros() / 1000);
        }
        // 110 ms: the request arrives, or its first piece on a stream whose buffer is too small for it. 150 ms: the call times out.
        // 160 ms: its cancel arrives.
        stops.retain(|at| [110, 150, 160].contains(at));
        assert_eq!(stops, [110, 150, 160], "{wire:?}");
        assert_eq!(world.end(1).subject().stats().cancelled_calls, 1);
        // 0 breaks the links. The tests below end the world in the other two ways.
        world.finish(0);
    }
}

#[test]
fn an_overdue_frame_takes_effect_before_an_overdue_deadline_unless_timeouts_come_first() {
    for (timeouts_first, outcome) in [(false, "Result"), (true, "TimedOut")] {
        let mut world = world(Wire::Messages);
        call(&mut world);
        world.run_until(ms(110));
        let id = world.end(1).ids.inbound_calls[0];
        let reply = protocol_core::Reply::Tool(protocol_core::ToolOutput::text("ok"));
        world.end_mut(1).respond(id, reply, ms(110)).unwrap();
        world.deliver_all();
        world.timeouts_first(timeouts_first);
        world.jump(ms(500));
        let trace = world.trace()[0].concat();
        assert!(trace.contains(&format!("outcome: {outcome}")), "{trace}");
        world.finish(1);
    }
}

#[test]
fn a_stalled_link_keeps_frames_in_the_session_where_they_can_be_withdrawn() {
    let mut world = world(Wire::Messages);
    world.stall(0, true);
    call(&mut world);
    world.run_until(ms(400));
    world.stall(0, false);
    world.run_until(ms(500));
    assert_eq!(world.end(1).ids.inbound_calls, [], "the request was withdrawn at the timeout");
    assert!(world.trace()[0].concat().contains(&format!("outcome: {:?}", Outcome::TimedOut(protocol_core::TimeoutKind::Idle))));
    world.finish(2);
}
