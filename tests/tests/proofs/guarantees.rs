//! Tests of the guarantees G1 to G16 except G14, which `rounds.rs` tests. The name of each test begins with its guarantees. A test runs
//! fixed steps if they are enough, otherwise storms of random operations.

use std::time::Duration;

use bytes::Bytes;
use protocol_core::mcp::Era;
use protocol_core::{
    Ask, AskError, CallTimeouts, Close, CloseReason, Event, Instant, Invoke, Lane, Level, LogRecord, Op, Outcome, Progress,
    RateWindow, Reply, Sample, ServeOptions, ToolOutput, TransportEnd,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, json, progress, request, result};
use testkit::world::{Wire, World};
use testkit::{Coverage, Happening, Pair, Rng, Scripted};

/// A storm of random operations on a world of two ends, checked after every operation. The limits on output and events are small
/// enough to be reached. Half of the clients make stateless requests, after a probe.
fn storm(seed: u64, steps: usize) -> World {
    let client = with(client_config(), |config| {
        config.era = [Era::Legacy, Era::Auto, Era::Legacy, Era::Modern][(seed % 4) as usize];
        config.timeouts.call = CallTimeouts::NONE
            .with_idle(Some(Duration::from_secs(2)))
            .with_max_total(Some(Duration::from_secs(9)))
            .with_reset_on_progress(true);
        config.limits.in_flight = 12;
        config.limits.events = 8;
    });
    let server = with(server_config(), |config| {
        config.progress.window = RateWindow::new(3, Duration::from_millis(400));
        config.timeouts.serve = Some(Duration::from_secs(5));
        config.timeouts.input = Some(Duration::from_secs(3));
        config.limits.in_flight = 12;
        config.limits.events = 8;
        // Small enough to be exceeded sometimes.
        config.limits.output_bytes = 2_000;
        config.timeouts.response_gap = Duration::from_millis(seed % 3);
    });
    let wire = if seed.is_multiple_of(3) { Wire::Bytes } else { Wire::Messages };
    let mut world = World::of_sessions(client, server, wire, seed);
    world.run_until(Instant::from_millis(1));
    testkit::world::storm(&mut world, seed, steps);
    world.finish(seed as u8);
    world
}

#[test]
fn g1_to_g5_g7_and_g12_hold_in_every_storm() {
    let (mut done, mut congested) = (0, 0);
    let mut stateless = Coverage::default();
    // The number of rounds, and of retries.
    let mut rounds = [0, 0];
    for seed in 0..60 {
        let world = storm(seed, 1_200);
        // With an odd seed, `storm` has a client that makes stateless requests.
        if seed % 2 == 1 {
            stateless.add(&world.coverage());
        }
        let trace = world.trace().concat();
        done += trace.iter().filter(|line| line.contains("Done {")).count();
        let is_round = |line: &&String| line.contains(r#""resultType":"input_required""#);
        rounds[0] += trace.iter().filter(is_round).count();
        rounds[1] += trace.iter().filter(|line| line.contains(r#""requestState":"state of"#) && !is_round(line)).count();
        congested += trace.iter().filter(|line| line.contains("Congested") || line.contains("Full")).count();
    }
    assert!(
        done > 2_000 && congested > 200,
        "a storm with too few events: {done} calls done, {congested} methods met a full outbox"
    );
    println!("{stateless}, rounds and their retries: {rounds:?}");
    assert!(rounds[0] > 10 && rounds[1] > 0, "no rounds: {rounds:?}");
    assert!(stateless.of(Happening::StatelessRequest) > 500, "{stateless}");
    let wanted = [Happening::Result, Happening::Cancel, Happening::PeerCancel, Happening::Timeout, Happening::Deadline];
    for happening in wanted.into_iter().chain([Happening::Lost, Happening::SentProgress, Happening::Progress, Happening::Closed]) {
        assert!(stateless.of(happening) > 10, "{happening:?} with stateless requests:\n{stateless}");
    }
}

#[test]
fn g10_equal_operations_give_equal_output() {
    for seed in 0..12 {
        assert_eq!(storm(seed, 600).trace(), storm(seed, 600).trace());
    }
}

#[test]
fn g1_every_call_ends_exactly_once_in_each_way() {
    type Ending = fn(&mut Scripted, u64);
    let endings: [(&str, Ending); 7] = [
        ("result", |end, id| _ = end.frame(&result(id))),
        ("error", |end, id| _ = end.frame(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":""}}}}"#))),
        ("invalid", |end, id| _ = end.frame(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1}}"#))),
        ("timeout", |end, _| _ = end.at(60_000)),
        ("eof", |end, _| end.session.handle_end(TransportEnd::Eof, end.now)),
        ("failed", |end, _| end.session.handle_end(TransportEnd::Failed, end.now)),
        ("close", |end, _| end.session.close(Close::Now, end.now)),
    ];
    for (name, ending) in endings {
        let mut end = Scripted::client(client_config());
        let id = end.call();
        end.sent();
        ending(&mut end, 2);
        // Later frames change nothing.
        end.frame(&result(2)).at(700_000);
        end.session.handle_end(TransportEnd::Failed, end.now);
        let done = end.events().into_iter().filter(|event| matches!(event, Event::Done { id: other, .. } if *other == id)).count();
        assert_eq!(done, 1, "{name}");
    }
}

#[test]
fn g2_an_exchange_has_at_most_one_response_and_at_most_one_cancel() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    server.session.respond(id, Reply::Tool(ToolOutput::text("a")), server.now).unwrap();
    server.session.respond(id, Reply::Tool(ToolOutput::text("b")), server.now).unwrap_err();
    server.frame(&cancelled(1));
    assert_eq!(server.sent().len(), 1);

    let mut client = Scripted::client(client_config());
    let id = client.call();
    client.sent();
    client.session.cancel(id, None, client.now).unwrap();
    client.session.cancel(id, None, client.now).unwrap_err();
    client.at(700_000);
    assert_eq!(client.sent(), [r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#]);
}

#[test]
fn g3_progress_increases_and_stays_between_request_and_end() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    for value in [1.0, 3.0, 2.0, 3.0, 4.0] {
        server.session.progress(id, Progress::value(value), server.now).unwrap();
    }
    server.session.respond(id, Reply::Tool(ToolOutput::default()), server.now).unwrap();
    server.session.progress(id, Progress::value(5.0), server.now).unwrap_err();
    let sent = server.sent();
    let expected = [1.0, 3.0, 4.0].map(|value| progress(1, value));
    assert_eq!(sent[..3], expected);
    assert!(sent[3].contains("result") && sent.len() == 4);
}

#[test]
fn g4_after_closed_there_is_no_frame_no_event_and_no_deadline() {
    let mut end = Scripted::client(client_config());
    end.call();
    end.session.handle_end(TransportEnd::Failed, end.now);
    assert_eq!(end.events().last(), Some(&Event::Closed(CloseReason::Failed)));
    end.frame(&result(2)).frame("nonsense").at(1_000_000);
    end.session.close(Close::Now, end.now);
    end.session.handle_end(TransportEnd::Eof, end.now);
    end.session.invoke(Invoke::list_tools(None), end.now).unwrap_err();
    end.session.set_alarm(end.now.saturating_add(Duration::from_secs(1))).unwrap_err();
    assert_eq!((end.events(), end.sent(), end.session.poll_timeout()), (vec![], vec![], None));
}

#[test]
fn g5_nothing_grows_with_the_age_of_a_session() {
    let mut pair = Pair::ready();
    for _ in 0..20_000 {
        let call = pair.client.call();
        pair.run();
        let id = pair.server.request();
        pair.server.session.progress(id, Progress::count(1, 2), pair.server.now).unwrap();
        // Every tenth call is cancelled.
        if call.to_string().ends_with('0') {
            pair.client.session.cancel(call, None, pair.client.now).unwrap();
        }
        pair.run();
        let _ = pair.server.session.respond(id, Reply::Tool(ToolOutput::text("x")), pair.server.now);
        pair.run();
        pair.client.events();
        pair.server.events();
        pair.trace.clear();
    }
    for end in [&pair.client, &pair.server] {
        let stats = end.session.stats();
        assert_eq!((stats.outbound_calls, stats.inbound_calls, stats.cancelled_calls, stats.queued_bytes), (0, 0, 0, 0));
        assert_eq!(end.session.poll_timeout(), None);
    }
}

#[test]
fn g6_no_bytes_cause_a_panic() {
    let frames: Vec<String> = vec![
        call_tool(1, true),
        testkit::scripted::initialize(1, "2025-11-25", "{}"),
        progress(2, 0.5),
        result(2),
        cancelled(1),
        r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":5}}"#.into(),
        r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","enum":["x"]}}}}}"#.into(),
        r#"[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{}}}]"#.into(),
    ];
    let mut rng = Rng::new(6);
    for run in 0..3_000 {
        let mut end = match run % 3 {
            0 => Scripted::server(server_config()),
            1 => Scripted::client(client_config()),
            _ => Scripted::new(server_config()),
        };
        end.session.invoke(Invoke::ping(), end.now).unwrap();
        end.sent();
        for _ in 0..8 {
            let mut bytes = frames[rng.below(frames.len())].clone().into_bytes();
            for _ in 0..rng.below(6) {
                let place = rng.below(bytes.len());
                if bytes.is_empty() {
                    break;
                }
                match rng.below(4) {
                    0 => bytes[place] = rng.number() as u8,
                    1 => drop(bytes.remove(place)),
                    2 => bytes.insert(place, b"{}[]\",:0123456789eE+-.\\tfnu"[rng.below(27)]),
                    _ => bytes.truncate(place.max(1)),
                }
            }
            end.session.handle_frame(Bytes::from(bytes), Lane::CHANNEL, end.now).unwrap();
            end.events();
        }
        end.at(1_000_000);
    }
}

#[test]
fn g7_a_deadline_that_has_passed_when_it_is_set_takes_effect_immediately() {
    let mut client = Scripted::client(client_config());
    client.at(50);
    let expired = CallTimeouts::NONE.with_idle(Some(Duration::ZERO));
    client.invoke(Invoke::list_tools(None).with_timeouts(expired));
    assert!(matches!(client.events()[0], Event::Done { outcome: Outcome::TimedOut(_), .. }));
    assert_eq!((client.sent(), client.session.poll_timeout()), (vec![], None));
    let alarm = client.session.set_alarm(client.now).unwrap();
    assert_eq!(client.events(), [Event::Alarm(alarm)]);

    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    server.at(100);
    server.session.configure(id, ServeOptions::default().with_deadline(Duration::from_millis(100)), server.now).unwrap();
    assert!(matches!(server.events()[0], Event::Cancelled { .. }));
    assert_eq!((server.sent().len(), server.session.poll_timeout()), (1, None));
}

#[test]
fn g8_output_can_be_polled_as_soon_as_a_method_has_returned() {
    let mut pair = Pair::ready();
    pair.client.call();
    assert_eq!(pair.client.sent().len(), 1);
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    server.session.progress(id, Progress::value(1.0), server.now).unwrap();
    assert_eq!(server.sent().len(), 1);
    server.session.respond(id, Reply::Tool(ToolOutput::default()), server.now).unwrap();
    assert_eq!(server.sent().len(), 1);
    server.frame(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#);
    assert_eq!(server.sent(), [result(5)]);
}

#[test]
fn g9_a_response_wins_over_a_deadline_that_has_passed_without_a_call_of_handle_timeout() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.skip_to(3_600_000).frame(&result(2));
    assert!(matches!(client.events()[0], Event::Done { outcome: Outcome::Result(_), .. }));
    client.session.handle_timeout(client.now);
    assert_eq!((client.events(), client.sent()), (vec![], vec![]));
}

#[test]
fn g11_ids_have_types_and_the_two_directions_are_independent() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(r#"{"jsonrpc":"2.0","id":"2","result":{}}"#);
    client.frame(&cancelled(2));
    client.frame(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"2","progress":1}}"#);
    assert_eq!(client.session.stats().outbound_calls, 1, "neither \"2\" nor a cancel of the other direction reaches call 2");

    let mut server = Scripted::server(server_config());
    server.frame(&call_tool(1, false)).frame(r#"{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"t"}}"#);
    assert_eq!(server.session.stats().inbound_calls, 2);
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}"#);
    assert_eq!(server.session.stats().cancelled_calls, 1);
}

#[test]
fn g12_sampling_four_deep_is_refused_on_both_sides() {
    let mut server = Scripted::server(server_config());
    server
        .frame(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"protocol-core/samplingDepth":3}}}"#);
    let id = server.request();
    let refused = server.session.request_input(id, Ask::from(Sample::new("?")), server.now);
    assert_eq!(refused, Err(AskError::TooDeep { depth: 4, max: 3 }));
    assert_eq!(server.sent(), Vec::<String>::new());

    let mut client = Scripted::client(client_config());
    client.frame(
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"_meta":{"protocol-core/samplingDepth":4}}}"#,
    );
    let answer =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32808,"message":"sampling is nested too deep","data":{"depth":4,"max":3}}}"#;
    assert_eq!(client.sent(), [answer]);
}

#[test]
fn g13_payloads_are_passed_on_byte_for_byte() {
    let mut pair = Pair::ready();
    // A line feed between tokens becomes a space, since a line feed ends a frame.
    let odd = "{ \"name\" : \"t\", \"arguments\" : { \"n\" : 1.50e+3, \"u\" : \"\\u00e9\\ud83d\\ude00 é\", \"d\" : 1, \"d\" : 2,\n\t\"z\":[ ] } }";
    pair.client.invoke(call_without_timeouts(odd).without_progress());
    pair.run();
    let Some(Event::Request { request, id, .. }) = pair.server_events().pop() else { panic!("a request") };
    assert_eq!(request.params().as_str(), odd.replace('\n', " "));
    pair.server.session.respond(id, Reply::Raw(request.params().clone()), pair.server.now).unwrap();
    pair.run();
    let Some(Event::Done { outcome: Outcome::Result(back), .. }) = pair.client_events().pop() else { panic!("a result") };
    assert_eq!(back.as_str(), odd.replace('\n', " "));
}

/// The members of `_meta` with which a stateless request names its caller.
const CALLER: &str =
    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}}"#;

/// A stateless call of a tool with `more` in its `_meta`.
fn stateless_call(id: u64, more: &str) -> String {
    request(id, "tools/call", &format!(r#"{{"name":"t","_meta":{{{CALLER}{more}}}}}"#))
}

#[test]
fn g15_a_stateless_call_has_no_request_of_the_server_and_no_frame_after_its_result() {
    let mut server = Scripted::new(server_config());
    server.frame(&stateless_call(1, r#","progressToken":1,"io.modelcontextprotocol/logLevel":"debug""#));
    let id = server.request();
    assert_eq!(server.session.request_input(id, Ask::from(Sample::new("?")), server.now), Err(AskError::Unsupported));
    server.session.respond(id, Reply::Tool(ToolOutput::default()), server.now).unwrap();
    server.session.progress(id, Progress::value(1.0), server.now).unwrap_err();
    server.session.log(Some(id), LogRecord::new(Level::Error, json("1")), server.now).unwrap_err();
    assert_eq!(server.sent().len(), 1, "the result");

    let mut client = Scripted::new(with(client_config(), |config| config.era = Era::Modern));
    client.drain().frame(r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}}"#);
    client.drain().frame(&request(7, "ping", "{}"));
    assert_eq!(client.sent(), [""; 0]);
}

#[test]
fn g16_the_log_level_and_the_token_of_a_stateless_call_apply_only_to_that_call() {
    let mut server = Scripted::new(server_config());
    server.frame(&stateless_call(1, r#","progressToken":1,"io.modelcontextprotocol/logLevel":"debug""#));
    server.request();
    server.frame(&stateless_call(2, ""));
    let second = server.request();
    server.session.progress(second, Progress::value(1.0), server.now).unwrap();
    server.session.log(Some(second), LogRecord::new(Level::Error, json("1")), server.now).unwrap();
    assert_eq!(server.sent(), [""; 0]);
}

fn call_without_timeouts(params: &str) -> Invoke {
    Invoke::new(Op::CallTool, json(params)).with_timeouts(CallTimeouts::NONE)
}
