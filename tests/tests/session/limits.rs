//! The bounds of [`protocol_core::Limits`] on calls, input requests, rates, events, output, frames, alarms and ids, in both directions
//! (G5).

use std::time::Duration;

use bytes::Bytes;
use protocol_core::{
    AskError, CallTimeouts, CancelReason, CloseReason, Config, Event, Full, InboundId, InputRequest, InputResponse, Instant,
    Invoke, Json, Lane, Level, LogRecord, NotLive, Notification, Op, Outcome, Progress, RateWindow, Reply, RpcError, Sample,
    SampleResult, SendError, ServeOptions, TooManyAlarms, ToolOutput, Violation,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, error, json, progress, request, result};
use testkit::{Pair, Scripted};

/// The refusal of a request beyond a limit.
fn busy(id: u64) -> String {
    error(id, -32809, "too many requests at once")
}

fn in_flight(config: Config, most: usize) -> Config {
    with(config, |config| config.limits.in_flight = most)
}

fn ping(id: u64) -> String {
    request(id, "ping", "{}")
}

fn try_frame(end: &mut Scripted, text: &str) -> Result<(), Full> {
    end.session.handle_frame(Bytes::copy_from_slice(text.as_bytes()), Lane::CHANNEL, end.now).map(drop)
}

#[test]
fn requests_beyond_the_limit_are_answered_busy_until_a_handler_has_ended() {
    let mut server = Scripted::server(in_flight(server_config(), 2));
    let id = server.receive_call(1);
    server.receive_call(2);
    server.frame(&call_tool(3, false));
    assert_eq!((server.sent(), server.events()), (vec![busy(3)], vec![Event::Violation(Violation::TooManyRequests)]));
    server.frame(&ping(4));
    assert_eq!(server.sent(), [result(4)], "a request that the session answers itself does not count");
    server.respond(id).drain();
    server.receive_call(3);
    assert_eq!(server.session.stats().inbound_calls, 2);
}

#[test]
fn a_request_beyond_the_bytes_that_requests_may_hold_is_answered_busy_until_a_handler_has_ended() {
    let long = |id| request(id, "tools/call", &format!(r#"{{"name":"count","arguments":{{"text":"{}"}}}}"#, "x".repeat(100)));
    let most = 2 * long(1).len();
    let mut server = Scripted::server(with(server_config(), |config| config.limits.request_bytes = most));
    server.frame(&long(1)).frame(&long(2));
    let request = |event| if let Event::Request { id, .. } = event { id } else { panic!("{event:?}") };
    let ids: Vec<_> = server.events().into_iter().map(request).collect();
    assert_eq!(server.session.stats().request_bytes, most);
    server.frame(&call_tool(3, false));
    let why = format!("with this request, running calls would hold more than the {most} bytes of requests that they may");
    assert_eq!(
        (server.sent(), server.events()),
        (vec![error(3, -32809, &why)], vec![Event::Violation(Violation::TooManyRequests)])
    );
    server.frame(&cancelled(1)).frame(&call_tool(4, false));
    assert_eq!(server.sent(), [error(4, -32809, &why)], "a cancelled call counts until its handler has ended");
    assert_eq!(server.session.respond(ids[0], Reply::Done, server.now), Err(NotLive));
    server.respond(ids[1]).drain();
    assert_eq!(server.session.stats().request_bytes, 0);
    server.receive_call(5);
}

#[test]
fn an_input_request_holds_its_bytes_until_it_is_answered() {
    let ask = |id| request(id, "roots/list", "{}");
    let most = ask(1).len();
    let mut client = Scripted::client(with(client_config(), |config| config.limits.request_bytes = most));
    client.frame(&ask(1));
    let key = client.input_request();
    client.frame(&ask(2));
    assert_eq!(client.events(), [Event::Violation(Violation::TooManyRequests)]);
    client.session.provide_input(key, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(client.session.stats().request_bytes, 0);
}

#[test]
fn requests_beyond_the_rate_are_answered_busy_until_the_rate_allows_another() {
    let config = || with(server_config(), |config| config.limits.requests_per_second = Some(2));
    let mut server = Scripted::server(config());
    for id in 1..=2 {
        let call = server.receive_call(id);
        server.respond(call).drain();
    }
    server.frame(&call_tool(3, false));
    assert_eq!((server.sent(), server.events()), (vec![busy(3)], vec![Event::Violation(Violation::TooManyRequests)]));
    server.frame(&ping(4)).frame(&cancelled(9));
    assert_eq!(server.sent(), [result(4)], "pings and notifications are not counted");
    server.skip_to(499).frame(&call_tool(5, false));
    assert_eq!(server.sent(), [busy(5)]);
    server.skip_to(500);
    server.receive_call(6);
    assert_eq!(
        server.session.poll_timeout(),
        Scripted::server(server_config()).session.poll_timeout(),
        "the rate limit has no deadline"
    );
}

#[test]
fn input_requests_beyond_the_rate_are_answered_busy_too() {
    let mut client = Scripted::client(with(client_config(), |config| config.limits.requests_per_second = Some(1)));
    client.frame(&request(1, "roots/list", "{}"));
    client.input_request();
    client.frame(&request(2, "roots/list", "{}"));
    assert_eq!((client.sent(), client.events()), (vec![busy(2)], vec![Event::Violation(Violation::TooManyRequests)]));
}

#[test]
fn a_request_that_no_handler_gets_counts_in_the_rate_like_any_other() {
    for first in [
        request(1, "no/such", "{}"),
        request(1, "tools/call", "{}"),
        request(1, "tools/call", "[]"),
        request(1, "roots/list", "{}"),
        request(1, "logging/setLevel", r#"{"level":"loud"}"#),
        request(1, "logging/setLevel", r#"{"level":"debug"}"#),
        request(1, "tools/list", r#"{"_meta":7}"#),
    ] {
        let mut server = Scripted::server(with(server_config(), |config| config.limits.requests_per_second = Some(1)));
        server.frame(&first);
        assert_ne!(server.sent(), [busy(1)], "{first}");
        server.drain();
        for again in [call_tool(2, false), first.replace(r#""id":1"#, r#""id":2"#)] {
            server.frame(&again);
            assert_eq!((server.sent(), server.violations()), (vec![busy(2)], vec![Violation::TooManyRequests]), "{first} {again}");
        }
        server.skip_to(1000);
        server.receive_call(3);
    }
}

#[test]
fn a_tesseron_app_answers_invocations_beyond_the_rate_with_its_own_error_for_busy() {
    use testkit::config::app_config;
    use testkit::tesseron::invoke;
    let config = with(app_config(), |config| config.limits.requests_per_second = Some(1));
    let mut app = Scripted::app(config);
    app.frame(&invoke(7, "a")).frame(&invoke(8, "b"));
    let sent = app.sent();
    assert!(matches!(sent.as_slice(), [sent] if sent.contains(r#""id":8,"error""#) && sent.contains(r#""busy":true"#)), "{sent:?}");
    assert_eq!(app.violations(), [Violation::TooManyRequests]);
    app.skip_to(1000).frame(&invoke(9, "c"));
    app.request();
}

#[test]
fn a_cancelled_handler_counts_toward_the_limit_until_it_ends() {
    let mut server = Scripted::server(in_flight(server_config(), 1));
    let id = server.receive_call(1);
    server.frame(&cancelled(1)).drain().frame(&call_tool(2, false));
    assert_eq!(server.sent(), [busy(2)]);
    server.session.configure(id, ServeOptions::default(), server.now).unwrap_err();
    server.session.respond(id, Reply::Raw(json("{}")), server.now).unwrap_err();
    server.drain();
    let id = server.receive_call(3);
    server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), server.now).unwrap();
    server.drain().frame(&call_tool(4, false));
    assert_eq!(server.sent(), [busy(4)], "the handler still counts after its deadline");
}

#[test]
fn calls_beyond_the_limit_are_refused_and_an_unpolled_result_counts_toward_it() {
    let mut client = Scripted::client(in_flight(client_config(), 2));
    client.call();
    client.call();
    let tool = || Invoke::new(Op::CallTool, json(r#"{"name":"x"}"#));
    let refused = client.session.invoke(tool(), client.now).unwrap_err();
    assert_eq!((refused.why, *refused.call), (SendError::Full, tool()));
    client.drain().frame(&result(2));
    assert_eq!(client.session.invoke(tool(), client.now).unwrap_err().why, SendError::Full);
    assert!(matches!(client.events()[..], [Event::Done { .. }]));
    client.invoke(tool());
}

#[test]
fn input_requests_of_the_peer_beyond_the_limit_are_answered_busy() {
    let mut client = Scripted::client(in_flight(client_config(), 2));
    for id in 1..=2 {
        client.frame(&request(id, "roots/list", "{}"));
    }
    let key = client.input_request();
    client.frame(&request(3, "roots/list", "{}"));
    assert_eq!((client.sent(), client.events()), (vec![busy(3)], vec![Event::Violation(Violation::TooManyRequests)]));
    client.session.provide_input(key, InputResponse::Roots(json("[]")), client.now).unwrap();
    client.drain().frame(&request(3, "roots/list", "{}"));
    client.input_request();
}

#[test]
fn an_input_request_counts_toward_the_limit_until_its_answer_was_polled() {
    let mut server = Scripted::server(in_flight(server_config(), 1));
    let id = server.receive_call(1);
    server.ask(id, InputRequest::Roots);
    server.sent();
    server.frame(r#"{"jsonrpc":"2.0","id":2,"result":{"roots":[]}}"#);
    assert_eq!(server.session.request_input(id, InputRequest::Roots, server.now), Err(AskError::Full));
    assert!(matches!(server.events()[..], [Event::Input { .. }]));
    server.ask(id, InputRequest::Roots);
}

#[test]
fn a_frame_is_refused_while_too_many_events_are_queued_and_accepted_after_a_poll() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.events = 2));
    server.frame(&call_tool(1, false)).frame(&call_tool(2, false));
    assert!(!server.session.wants_input(Lane::CHANNEL));
    let third = call_tool(3, false);
    let stats = server.session.stats();
    assert_eq!(try_frame(&mut server, &third), Err(Full(Bytes::from(third.clone()))));
    assert_eq!(server.session.stats(), stats, "a refused frame changes nothing");
    assert!(server.session.poll_event().is_some() && server.session.wants_input(Lane::CHANNEL));
    server.frame(&third);
    let rest = server.events();
    assert_eq!(rest.iter().filter(|event| matches!(event, Event::Request { .. })).count(), 2);
}

#[test]
fn calls_that_settle_are_reported_although_the_event_queue_is_full() {
    let mut server = Scripted::server(with(server_config(), |config| {
        (config.limits.events, config.timeouts.serve) = (2, Some(Duration::from_secs(1)));
    }));
    server.frame(&call_tool(1, false)).frame(&call_tool(2, false));
    assert!(!server.session.wants_input(Lane::CHANNEL));
    server.at(1_000);
    let cancelled =
        server.events().into_iter().filter(|event| matches!(event, Event::Cancelled { why: CancelReason::Deadline, .. }));
    assert_eq!(cancelled.count(), 2);
}

#[test]
fn a_peer_that_does_not_read_unsolicited_replies_is_no_longer_read_and_then_disconnected() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.unsolicited_replies = 3));
    let id = server.receive_call(9);
    for number in 1..=3 {
        assert!(server.session.wants_input(Lane::CHANNEL));
        server.frame(&ping(number));
    }
    assert_eq!(try_frame(&mut server, &ping(4)), Err(Full(Bytes::from(ping(4)))));
    assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(5_000)), "close_grace");
    // The peer reads again in time.
    server.at(4_999);
    assert_eq!(server.session.poll_transmit().map(|out| out.frame), Some(Bytes::from(result(1))));
    assert_eq!((server.session.wants_input(Lane::CHANNEL), server.session.poll_timeout()), (true, None));
    // The second time it reads nothing in time.
    server.frame(&ping(4)).at(9_998);
    assert_eq!(server.events(), []);
    server.at(9_999);
    let events = server.events();
    assert_eq!(events, [Event::Cancelled { id, why: CancelReason::Disconnected }, Event::Closed(CloseReason::Overload)]);
    assert_eq!(server.sent(), Vec::<String>::new());
}

#[test]
fn a_peer_that_reads_one_of_many_unsolicited_replies_has_the_whole_close_grace_again() {
    let mut server = Scripted::server_at(with(server_config(), |config| config.limits.unsolicited_replies = 3), "2025-03-26", "{}");
    let pings: Vec<_> = (1..=10).map(ping).collect();
    server.frame(&format!("[{}]", pings.join(","))).at(4_000);
    assert!(server.session.poll_transmit().is_some() && !server.session.wants_input(Lane::CHANNEL));
    assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(9_000)));
    server.at(9_000);
    assert_eq!(server.events(), [Event::Closed(CloseReason::Overload)]);
}

#[test]
fn replies_to_calls_do_not_count_as_unsolicited_and_do_not_stop_reading() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.unsolicited_replies = 3));
    for number in 1..=50 {
        let id = server.receive_call(number);
        server.respond(id);
    }
    assert!(server.session.wants_input(Lane::CHANNEL));
    assert_eq!((server.sent().len(), server.session.poll_timeout()), (50, None));
}

#[test]
fn output_beyond_the_hard_limit_closes_the_session_for_each_kind_of_output() {
    let hard = |config| with(config, |config: &mut Config| config.limits.output_bytes_hard = 300);
    let long = "x".repeat(300);
    type Way = fn(&mut Scripted, InboundId, String);
    let ways: [(&str, Way); 4] = [
        ("a response", |server, id, long| {
            server.reply(id, Reply::Tool(ToolOutput::text(long)));
        }),
        ("a deadline", |server, id, long| {
            server.session.checkpoint(id, json(&format!(r#"{{"x":"{long}"}}"#))).unwrap();
            server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), server.now).unwrap();
        }),
        ("refusals", |server, _, _| {
            for id in 2..20 {
                let _ = try_frame(server, &ping(id));
            }
        }),
        ("a held response that the end releases", |server, id, long| {
            server.report(id, Progress::value(1.0));
            server.sent();
            server.reply(id, Reply::Tool(ToolOutput::text(long)));
            server.session.close(protocol_core::Close::Now, server.now);
        }),
    ];
    let mut wrong = Vec::new();
    for (name, way) in ways {
        let mut server =
            Scripted::server(with(hard(server_config()), |config| config.timeouts.response_gap = Duration::from_secs(1)));
        let id = server.receive_call(1);
        way(&mut server, id, long.clone());
        let (events, rest) = (server.events(), (server.sent(), server.session.poll_timeout()));
        if events.last() != Some(&Event::Closed(CloseReason::Overload)) || rest != (vec![], None) {
            wrong.push(format!("{name}: {events:?}, then {rest:?}"));
        }
    }
    assert!(wrong.is_empty(), "G4: {wrong:#?}");
}

#[test]
fn a_client_whose_output_overflows_while_a_call_settles_reports_its_outcome_before_closing() {
    const HARD: usize = 400;
    let mut client = Scripted::client(with(client_config(), |config| config.limits.output_bytes_hard = HARD));
    let call = client.call();
    client.sent();
    client.frame(&request(1, "roots/list", "{}"));
    let key = client.input_request();
    client.frame(&request(2, "roots/list", "{}")).drain();
    // The answer stays just below the limit, and the refusal of the second input request exceeds it.
    let roots = json(&format!("[{}]", " ".repeat(HARD - 60)));
    client.session.provide_input(key, InputResponse::Roots(roots), client.now).unwrap();
    client.frame(&result(2));
    let events = client.events();
    assert!(matches!(events[0], Event::InputGone { .. }), "{events:?}");
    assert!(matches!(events[1], Event::Done { id, outcome: Outcome::Result(_), .. } if id == call), "{events:?}");
    assert_eq!(events[2..], [Event::Closed(CloseReason::Overload)]);
    client.expect_silence();
}

#[test]
fn while_too_much_output_is_queued_calls_and_notifications_are_refused_but_not_answers() {
    let narrow = |config| with(config, |config: &mut Config| config.limits.output_bytes = 1);
    let mut client = Scripted::client(narrow(client_config()));
    client.call();
    assert_eq!(client.session.invoke(Invoke::list_tools(None), client.now).unwrap_err().why, SendError::Full);
    assert_eq!(client.session.notify(Notification::RootsChanged, client.now), Err(SendError::Full));
    client.frame(&request(1, "roots/list", "{}"));
    let key = client.input_request();
    client.session.provide_input(key, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(client.sent().len(), 2);
    client.session.notify(Notification::RootsChanged, client.now).unwrap();
}

#[test]
fn no_sent_frame_is_longer_than_the_limit() {
    const MAX_BYTES: usize = 600;
    let long = "é\n".repeat(MAX_BYTES);
    let narrow = |config| with(config, |config: &mut Config| config.limits.frame_bytes = MAX_BYTES);
    let mut server = Scripted::server(narrow(server_config()));
    let id = server.receive_call(1);
    server.report(id, Progress::value(1.0).with_message(&*long));
    server.report(id, Progress::value(2.0).with_data(Json::string(&long)));
    let record = LogRecord::new(Level::Error, Json::string(&long));
    server.session.log(None, record, server.now).unwrap();
    let mut elicit = protocol_core::Elicit::new(&*long, json(r#"{"type":"object","properties":{}}"#));
    for ask in [
        InputRequest::from(Sample::new(&*long)),
        InputRequest::Confirm { message: long.clone() },
        InputRequest::Elicit(elicit.clone()),
    ] {
        assert_eq!(server.session.request_input(id, ask, server.now), Err(AskError::TooLarge));
    }
    elicit.message = "m".into();
    server.ask(id, InputRequest::Elicit(elicit));
    let notification =
        Notification::Custom { method: "n".into(), params: Some(json(&format!(r#"{{"x":{}}}"#, Json::string(&long)))) };
    assert_eq!(server.session.notify(notification, server.now), Err(SendError::TooLarge));
    server.reply(id, Reply::Error(RpcError::new(1, &*long)));
    let sent = server.sent();
    assert_eq!(sent[..2], [progress(1, 1.0), progress(1, 2.0)], "messages and data are omitted, but the updates are sent");
    assert!(sent.iter().all(|frame| frame.len() <= MAX_BYTES), "{sent:?}");

    let mut client = Scripted::client(narrow(client_config()));
    let call = client.call();
    client.sent();
    client.session.cancel(call, Some(&long), client.now).unwrap();
    client.frame(&request(1, "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#));
    let key = client.input_request();
    client.session.provide_input(key, InputResponse::Sample(SampleResult::new(&*long, "m")), client.now).unwrap();
    let sent = client.sent();
    assert_eq!(sent[0], cancelled(2));
    assert!(sent.len() == 2 && sent[1].contains("-32603") && sent[1].contains("larger than a frame may be ("), "{sent:?}");
}

#[test]
fn log_records_exceed_the_output_limit_only_by_a_bounded_amount() {
    const ROOM: usize = 1_000;
    /// More than a record has besides its data.
    const OVERHEAD: usize = 100;
    let (large, larger) = ("x".repeat(ROOM - 200), "y".repeat(2 * ROOM - 200));
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes = ROOM));
    let mut log = |data: Json| {
        let record = LogRecord::new(Level::Error, data);
        server.session.log(None, record, server.now).unwrap();
        server.session.stats().queued_bytes
    };
    for _ in 0..20 {
        log(json("1"));
    }
    // Below the limit a record of any length is queued. Above it, a record is queued only if the records that it replaces have at least as
    // many bytes together.
    for _ in 0..20 {
        for data in [&large, &larger] {
            let queued = log(Json::string(data));
            assert!(queued < ROOM + larger.len() + OVERHEAD, "{queued}");
        }
    }
    let sent = server.sent();
    assert!(sent.iter().any(|record| record.contains(&large)), "{sent:?}");
    assert!(sent.iter().any(|record| record.contains(&larger)), "{sent:?}");
}

#[test]
fn a_frame_over_the_limit_gets_one_error_and_closes_the_session() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.frame_bytes = 400));
    let id = server.receive_call(1);
    server.frame(&format!("\"{}\"", "x".repeat(400)));
    let refusal = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"a frame over the size limit"}}"#;
    assert_eq!(
        server.events(),
        [Event::Violation(Violation::FrameTooLarge), Event::Cancelled { id, why: CancelReason::Disconnected }],
        "running calls are cancelled, since the channel cannot be used any longer"
    );
    assert_eq!((server.sent(), server.events()), (vec![refusal.to_owned()], vec![Event::Closed(CloseReason::FrameTooLarge)]));

    let mut client = Scripted::client(with(client_config(), |config| config.limits.frame_bytes = 400));
    let call = client.call();
    client.drain().frame(&" ".repeat(401));
    let events = client.events();
    assert_eq!(events[0], Event::Violation(Violation::FrameTooLarge));
    assert!(matches!(events[1], Event::Done { id, outcome: Outcome::Lost, .. } if id == call));
    assert_eq!(
        (&events[2..], client.sent()),
        (&[Event::Closed(CloseReason::FrameTooLarge)][..], vec![]),
        "a client does not answer"
    );
}

#[test]
fn a_frame_of_exactly_the_limit_is_read() {
    let frame = call_tool(1, false);
    let mut server = Scripted::server(with(server_config(), |config| config.limits.frame_bytes = frame.len() + 400));
    server.frame(&format!("{frame}{}", " ".repeat(400)));
    server.request();
}

#[test]
fn a_response_of_exactly_the_limit_is_sent_and_one_byte_more_is_an_error() {
    let text = "a".repeat(600);
    let respond = |limit: usize| {
        let mut server = Scripted::server(with(server_config(), |config| config.limits.frame_bytes = limit));
        let id = server.receive_call(1);
        server.session.respond(id, Reply::Tool(ToolOutput::text(text.clone())), server.now).unwrap();
        server.sent().remove(0)
    };
    let whole = respond(10_000);
    assert_eq!(respond(whole.len()), whole);
    let refused = respond(whole.len() - 1);
    assert!(refused.contains("-32603") && refused.len() < whole.len(), "{refused}");
}

#[test]
fn an_answer_of_exactly_the_limit_is_sent_and_one_byte_more_is_an_error() {
    let roots = json(&format!(r#"[{{"uri":"file:///{}"}}]"#, "a".repeat(600)));
    let answer = |limit: usize| {
        let mut client = Scripted::client(with(client_config(), |config| config.limits.frame_bytes = limit));
        client.frame(&request(1, "roots/list", "{}"));
        let key = client.input_request();
        client.session.provide_input(key, InputResponse::Roots(roots.clone()), client.now).unwrap();
        client.sent().remove(0)
    };
    let whole = answer(10_000);
    assert_eq!(answer(whole.len()), whole);
    let refused = answer(whole.len() - 1);
    assert!(refused.contains("-32603") && refused.len() < whole.len(), "{refused}");
}

#[test]
fn alarms_fire_in_order_when_they_are_due_and_count_toward_the_limit_until_polled() {
    let mut end = Scripted::client(with(client_config(), |config| config.limits.alarms = 2));
    let at = Instant::from_millis;
    let (later, sooner) = (end.session.set_alarm(at(20)).unwrap(), end.session.set_alarm(at(10)).unwrap());
    assert_eq!(end.session.set_alarm(at(30)), Err(TooManyAlarms));
    assert_eq!(end.session.poll_timeout(), Some(at(10)));
    end.at(10);
    assert_eq!(end.session.set_alarm(at(30)), Err(TooManyAlarms), "the event of the alarm is not polled yet");
    assert_eq!(end.events(), [Event::Alarm(sooner)]);
    end.session.clear_alarm(sooner);
    let past = end.session.set_alarm(at(5)).unwrap();
    assert_eq!(end.session.set_alarm(at(30)), Err(TooManyAlarms));
    assert_eq!(end.events(), [Event::Alarm(past)], "an alarm in the past fires at once");
    end.session.clear_alarm(later);
    assert_eq!(end.session.poll_timeout(), None);
    end.at(1_000).expect_silence();
    end.session.set_alarm(at(2_000)).unwrap();
}

#[test]
fn the_number_of_past_ids_that_are_remembered_is_the_limit() {
    for (remembered, reported) in [(0, [false, false, false]), (2, [false, true, true]), (256, [true, true, true])] {
        let mut reports = Vec::new();
        for reused in 1..=3 {
            let mut server = Scripted::server(with(server_config(), |config| config.limits.ended_ids = remembered));
            for number in 1..=3 {
                let id = server.receive_call(number);
                server.respond(id).drain();
            }
            server.frame(&call_tool(reused, false));
            reports.push(server.events().contains(&Event::Violation(Violation::ReusedId)));
        }
        assert_eq!(reports, reported, "{remembered}");
    }
}

#[test]
fn a_late_response_is_distinguished_from_an_unknown_one_without_remembered_ids() {
    let mut client = Scripted::client(with(client_config(), |config| config.limits.ended_ids = 0));
    for _ in 0..1_000 {
        let call = client.call();
        client.sent();
        client.session.cancel(call, None, client.now).unwrap();
        client.drain();
    }
    client.frame(&result(2)).frame(&result(1_001)).frame(&progress(500, 1.0)).expect_silence();
    assert_eq!(client.session.stats().late_frames, 3);
    client.frame(&result(1_002));
    assert_eq!(client.violations(), [Violation::UnknownResponse]);
}

#[test]
fn g5_after_ten_thousand_calls_both_ends_hold_no_more_than_after_a_thousand() {
    let small = |config| with(config, |config: &mut Config| config.limits.ended_ids = 4);
    let windowed = with(server_config(), |config| config.progress.window = RateWindow::new(2, Duration::from_millis(50)));
    let mut pair = Pair::with(small(client_config()), small(windowed));
    // The length of the debug text of all tables. It may grow only by digits of the numbers in it.
    let debug_length = |pair: &Pair| format!("{:?}{:?}", pair.client.session.subject(), pair.server.session.subject()).len();
    let mut after_a_thousand = 0;
    for number in 0..10_000 {
        if number == 1_000 {
            after_a_thousand = debug_length(&pair);
        }
        one_call(&mut pair, number % 5);
    }
    assert!(debug_length(&pair) < after_a_thousand + 400, "{} then {}", after_a_thousand, debug_length(&pair));
    for end in [&pair.client, &pair.server] {
        let stats = end.session.stats();
        assert_eq!((stats.outbound_calls, stats.inbound_calls, stats.cancelled_calls, stats.queued_bytes), (0, 0, 0, 0));
        assert_eq!(end.session.poll_timeout(), None);
    }
}

/// Makes a call with progress, and ends it in one of five ways.
fn one_call(pair: &mut Pair, way: u64) {
    let call_timeouts = CallTimeouts::NONE.with_idle(Some(Duration::from_millis(5)));
    let call = pair.client.invoke(Invoke::call_tool("t", json("{}")).with_timeouts(call_timeouts));
    pair.run();
    let id = pair.server.request();
    for value in 1..4 {
        pair.server.report(id, Progress::step(value, 9));
    }
    if way < 2 {
        pair.server.ask(id, InputRequest::Roots);
        pair.run();
    }
    match way {
        0 => {
            let key = pair.client.input_request();
            pair.client.session.provide_input(key, InputResponse::Roots(json("[]")), pair.client.now).unwrap();
            pair.run().server.reply(id, Reply::Error(RpcError::fixed(1, "no")));
        }
        1 => pair.client.session.cancel(call, None, pair.client.now).unwrap(),
        2 => {
            pair.server.respond(id);
        }
        3 => {
            pair.at(pair.client.now.as_micros() / 1_000 + 5);
        }
        _ => {
            pair.server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), pair.server.now).unwrap();
        }
    }
    pair.run();
    // Ends the handler if it still runs. Fails if it has replied.
    let _ = pair.server.session.respond(id, Reply::Raw(json("{}")), pair.server.now);
    pair.run();
    pair.client.outcome();
    pair.server.drain();
    pair.trace.clear();
}
