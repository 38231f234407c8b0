//! The timeouts of calls (idle and total) and of input requests (MCP's Lifecycle page, "Timeouts"). A timeout expires only in
//! `handle_timeout`, or, if it is zero, in the method that starts it.

use std::time::Duration;

use protocol_core::{
    CallTimeouts, CancelReason, Close, CloseReason, Event, InputFailed, InputRequest, InputResponse, Instant, Invoke, Lane, Level,
    LogRecord, Notification, Op, OutboundId, Outcome, Progress, RateWindow, Reply, ServeOptions, TimeoutKind, TransportEnd,
    Violation,
};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, error, json, notification, progress, request, result};

const IDLE: Outcome = Outcome::TimedOut(TimeoutKind::Idle);
const MAX_TOTAL: Outcome = Outcome::TimedOut(TimeoutKind::MaxTotal);

fn call_timeouts(idle: Option<u64>, max_total: Option<u64>) -> CallTimeouts {
    let span = |millis: Option<u64>| millis.map(Duration::from_millis);
    CallTimeouts::NONE.with_idle(span(idle)).with_max_total(span(max_total)).with_reset_on_progress(true)
}

fn call_with(client: &mut Scripted, timeouts: CallTimeouts) -> OutboundId {
    client.invoke(Invoke::new(Op::CallTool, json(r#"{"name":"t"}"#)).with_timeouts(timeouts))
}

/// A client with one call in flight. The call has the number 2 and these timeouts, and began at 0.
fn calling(timeouts: CallTimeouts) -> Scripted {
    let mut client = Scripted::client(client_config());
    call_with(&mut client, timeouts);
    client.sent();
    client
}

/// The next deadline, in milliseconds.
fn due(end: &Scripted) -> Option<u64> {
    end.session.poll_timeout().map(|at| at.as_micros() / 1000)
}

/// The frame that cancels a request of ours that has timed out.
fn cancel_frame(id: u64) -> String {
    notification("notifications/cancelled", &format!(r#"{{"requestId":{id},"reason":"timed out"}}"#))
}

// ---- The two timeouts of a call ----

#[test]
fn the_earlier_of_the_two_timeouts_ends_the_call_and_is_reported() {
    for (idle, max_total, at, outcome) in [
        (Some(100), Some(200), 100, IDLE),
        (Some(200), Some(100), 100, MAX_TOTAL),
        (Some(100), Some(100), 100, MAX_TOTAL),
        (Some(100), None, 100, IDLE),
        (None, Some(100), 100, MAX_TOTAL),
    ] {
        let mut client = calling(call_timeouts(idle, max_total));
        assert_eq!(due(&client), Some(at));
        client.at(at);
        assert_eq!(client.outcome(), outcome, "{idle:?} {max_total:?}");
    }
    let mut client = calling(CallTimeouts::NONE);
    assert_eq!(due(&client), None);
    client.at(u64::MAX / 1000).expect_silence();
}

#[test]
fn a_timeout_that_ends_after_the_greatest_instant_never_expires() {
    let mut client =
        calling(CallTimeouts::NONE.with_idle(Some(Duration::MAX)).with_max_total(Some(Duration::MAX)).with_reset_on_progress(true));
    client.at(1_000_000).frame(&progress(2, 1.0)).events();
    client.at(2_000_000).expect_silence();
}

#[test]
fn a_call_with_a_timeout_below_a_microsecond_is_still_sent() {
    let mut client = Scripted::client(client_config());
    let short = Duration::from_nanos(1);
    call_with(&mut client, CallTimeouts::NONE.with_idle(Some(short)));
    assert_eq!((client.sent().len(), client.session.poll_timeout()), (1, Some(Instant::from_micros(1))));
}

#[test]
fn calls_that_are_due_together_end_in_the_order_in_which_they_were_made() {
    let mut client = Scripted::client(client_config());
    let calls = [client.call(), client.call(), client.call()];
    client.sent();
    client.at(60_000);
    let done: Vec<_> =
        client.events().into_iter().filter_map(|event| if let Event::Done { id, .. } = event { Some(id) } else { None }).collect();
    assert_eq!(done, calls);
    assert_eq!(client.sent(), [cancel_frame(2), cancel_frame(3), cancel_frame(4)]);
}

// ---- Both timeouts of a call start when its frame is queued ----

#[test]
fn a_held_call_has_only_the_timeout_of_the_handshake() {
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    for (timeouts, outcome) in [(call_timeouts(Some(1000), None), IDLE), (call_timeouts(None, Some(1000)), MAX_TOTAL)] {
        let mut client = Scripted::new(client_config());
        call_with(&mut client, timeouts);
        client.sent();
        assert_eq!(due(&client), Some(10_000), "the timeout of the handshake");
        client.at(8000).frame(answer).drain();
        assert_eq!(due(&client), Some(9000));
        client.at(9000);
        assert_eq!((client.outcome(), client.sent()), (outcome, vec![cancel_frame(2)]));
    }
}

#[test]
fn a_held_call_with_a_timeout_of_zero_is_never_sent() {
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    for (timeouts, outcome) in [(call_timeouts(Some(0), None), IDLE), (call_timeouts(None, Some(0)), MAX_TOTAL)] {
        let mut client = Scripted::new(client_config());
        let call = call_with(&mut client, timeouts);
        client.sent();
        client.expect_silence();
        client.frame(answer);
        assert_eq!(client.events()[1..], [Event::Done { id: call, outcome, partial: None, last: None }]);
        assert_eq!(client.sent(), [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#]);
    }
}

#[test]
fn a_call_times_out_at_its_deadline_although_the_transport_is_stuck() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.session.poll_transmit().unwrap();
    // Nothing more is polled before the deadline.
    client.at(60_000);
    assert_eq!(client.outcome(), IDLE);
    assert_eq!(client.sent(), [cancel_frame(2)], "the cancel is queued until the transport goes on");
}

// ---- Progress restarts the idle timeout ----

#[test]
fn accepted_progress_restarts_the_idle_timeout_but_not_max_total() {
    let mut client = calling(call_timeouts(Some(60_000), Some(600_000)));
    for step in 1..=19_u32 {
        client.at(u64::from(step) * 30_000).frame(&progress(2, f64::from(step)));
    }
    client.events();
    assert_eq!(due(&client), Some(600_000));
    client.at(599_999).expect_silence();
    client.at(600_000);
    let [Event::Done { outcome, last, .. }] = &client.events()[..] else { panic!() };
    assert_eq!((outcome, last), (&MAX_TOTAL, &Some(Box::new(Progress::value(19.0)))));
    assert_eq!(client.sent(), [cancel_frame(2)]);
}

#[test]
fn only_accepted_progress_of_the_call_itself_restarts_its_idle_timeout() {
    for frame in [
        progress(2, 1.0),
        progress(2, 0.5),
        progress(3, 5.0),
        progress(99, 5.0),
        notification("notifications/progress", r#"{"progressToken":2,"progress":"5"}"#),
        notification("notifications/progress", r#"{"progressToken":2,"progress":5,"total":"x"}"#),
        notification("notifications/progress", r#"{"progressToken":"2","progress":5}"#),
        notification("notifications/message", r#"{"level":"info","data":"t is busy"}"#),
        notification("notifications/tools/list_changed", "{}"),
        notification("acme/heartbeat", "{}"),
        cancelled(2),
        r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#.to_owned(),
        result(3),
        error(77, 1, ""),
        "garbage".to_owned(),
    ] {
        let mut client = calling(call_timeouts(Some(1000), None));
        call_with(&mut client, CallTimeouts::NONE);
        client.sent();
        client.frame(&progress(2, 1.0)).drain();
        client.at(500).frame(&frame);
        assert_eq!(due(&client), Some(1000), "{frame}");
    }
    let mut client = calling(call_timeouts(Some(1000), None));
    client.at(500).frame(&progress(2, 5.0));
    assert_eq!(due(&client), Some(1500));
}

#[test]
fn progress_does_not_restart_the_idle_timeout_without_reset_on_progress() {
    let mut client = calling(call_timeouts(Some(1000), None).with_reset_on_progress(false));
    client.at(500).frame(&progress(2, 1.0));
    assert_eq!((client.events().len(), due(&client)), (1, Some(1000)));
}

#[test]
fn an_equal_value_that_is_reported_for_its_message_does_not_restart_the_idle_timeout() {
    let mut client = Scripted::client(with(client_config(), |config| config.progress.accept_equal = true));
    call_with(&mut client, call_timeouts(Some(1000), None));
    client.sent();
    client.frame(&progress(2, 1.0));
    let equal = r#"{"progressToken":2,"progress":1,"message":"still at it"}"#;
    client.at(500).frame(&notification("notifications/progress", equal));
    assert_eq!(client.events().len(), 2, "both are reported");
    assert_eq!(due(&client), Some(1000));
}

// ---- Open input requests stop the timeouts ----

#[test]
fn the_idle_timeout_stops_while_an_input_request_is_open_and_then_restarts_in_full() {
    type Close = fn(&mut Scripted, protocol_core::InputKey);
    let closings: [Close; 3] = [
        |end, key| end.session.provide_input(key, InputResponse::Roots(json("[]")), end.now).unwrap(),
        |end, key| end.session.provide_input(key, InputResponse::Refused(protocol_core::RpcError::new(-1, "no")), end.now).unwrap(),
        |end, _| {
            end.frame(&cancelled(7));
        },
    ];
    for close in closings {
        let mut client = calling(call_timeouts(Some(1000), None));
        client.at(900).frame(&request(7, "roots/list", "{}"));
        let input_request = client.input_request();
        assert_eq!(due(&client), None);
        client.at(50_000).expect_silence();
        close(&mut client, input_request);
        assert_eq!(due(&client), Some(51_000));
        client.drain().at(51_000);
        assert_eq!(client.outcome(), IDLE);
    }
}

#[test]
fn the_idle_timeout_restarts_after_the_last_of_several_input_requests() {
    let mut client = calling(call_timeouts(Some(1000), None));
    client.frame(&request(7, "roots/list", "{}"));
    let first = client.input_request();
    client.frame(&request(8, "roots/list", "{}"));
    let second = client.input_request();
    client.at(5000).session.provide_input(second, InputResponse::Roots(json("[]")), Instant::from_millis(5000)).unwrap();
    assert_eq!(due(&client), None);
    client.at(6000).session.provide_input(first, InputResponse::Roots(json("[]")), Instant::from_millis(6000)).unwrap();
    assert_eq!(due(&client), Some(7000));
}

#[test]
fn progress_while_an_input_request_is_open_does_not_start_the_idle_timeout() {
    let mut client = calling(call_timeouts(Some(1000), None));
    client.frame(&request(7, "roots/list", "{}"));
    client.at(500).frame(&progress(2, 1.0));
    assert_eq!(due(&client), None);
}

/// The time that a person needs for an answer does not count.
#[test]
fn max_total_stops_while_an_input_request_is_open_and_goes_on_afterwards() {
    let answer = |client: &mut Scripted, key, millis| {
        client.at(millis).session.provide_input(key, InputResponse::Roots(json("[]")), Instant::from_millis(millis)).unwrap();
    };
    let mut client = calling(call_timeouts(None, Some(3000)));
    client.at(900).frame(&request(7, "roots/list", "{}"));
    let first = client.input_request();
    client.at(1000).frame(&request(8, "roots/list", "{}"));
    let second = client.input_request();
    assert_eq!(due(&client), None);
    answer(&mut client, first, 400_000);
    assert_eq!(due(&client), None, "the other input request is open");
    answer(&mut client, second, 500_900);
    assert_eq!(due(&client), Some(503_000));
    client.at(501_000).frame(&request(9, "roots/list", "{}"));
    let third = client.input_request();
    answer(&mut client, third, 502_000);
    assert_eq!(due(&client), Some(504_000));
    client.drain();
    client.at(504_000);
    assert_eq!((client.outcome(), client.sent()), (MAX_TOTAL, vec![cancel_frame(2)]));
}

/// A regression: the deadline was earlier than the greatest `now` that had been passed to `handle_timeout`.
#[test]
fn regression_g7_an_input_request_after_max_total_has_passed_leaves_no_deadline_in_the_past() {
    let mut client = calling(call_timeouts(None, Some(3000)));
    client.skip_to(4000).frame(&request(7, "roots/list", "{}"));
    let input_request = client.input_request();
    client.at(5000);
    client.session.provide_input(input_request, InputResponse::Roots(json("[]")), Instant::from_millis(5000)).unwrap();
    assert_eq!(client.session.poll_timeout(), Some(Instant::from_micros(5_000_001)));
    client.drain();
    client.at(5001);
    assert_eq!(client.outcome(), MAX_TOTAL);
}

#[test]
fn an_input_request_of_one_call_does_not_stop_the_timeouts_of_another() {
    let mut client = calling(call_timeouts(Some(1000), None));
    call_with(&mut client, call_timeouts(Some(2000), None));
    client.sent();
    client.frame(&request(7, "roots/list", r#"{"_meta":{"protocol-core/parent":3}}"#));
    assert_eq!(due(&client), Some(1000));
}

// ---- Races ----

#[test]
fn g9_a_frame_that_is_handled_before_handle_timeout_takes_effect_even_after_the_deadline() {
    let mut client = calling(call_timeouts(Some(1000), Some(2000)));
    client.skip_to(9000).frame(&result(2));
    assert!(matches!(client.outcome(), Outcome::Result(_)));

    let mut client = calling(call_timeouts(Some(1000), Some(2000)));
    client.skip_to(9000).frame(&error(2, 1, ""));
    assert!(matches!(client.outcome(), Outcome::Error(_)));

    let mut client = calling(call_timeouts(Some(1000), Some(20_000)));
    client.skip_to(9000).frame(&progress(2, 1.0));
    assert_eq!(due(&client), Some(10_000));
    client.at(9000);
    assert_eq!(client.events().len(), 1);

    let mut client = calling(call_timeouts(Some(1000), Some(20_000)));
    client.skip_to(9000).frame(&request(7, "roots/list", "{}"));
    assert_eq!(due(&client), None);

    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.sent();
    client.skip_to(999_000).session.cancel(call, None, Instant::from_millis(999_000)).unwrap();
    assert_eq!(client.outcome(), Outcome::Cancelled);
}

/// A step of the owner or of the peer, at an end with overdue deadlines.
type Step = (&'static str, fn(&mut Scripted));

/// Frames that are no reply to what is overdue.
const STEPS_OF_A_PEER: [Step; 4] = [
    ("a ping", |end| _ = end.frame(&request(70, "ping", "{}"))),
    ("a notification", |end| _ = end.frame(&notification("notifications/x", "{}"))),
    ("a cancel of nothing", |end| _ = end.frame(&cancelled(77))),
    ("garbage", |end| _ = end.frame("nonsense")),
];

const STEPS_OF_A_CLIENT: [Step; 9] = [
    ("invoke", |end| _ = end.invoke(Invoke::ping())),
    ("cancel", |end| end.session.cancel(end.session.ids.outbound_calls[1], None, end.now).unwrap()),
    ("notify", |end| end.session.notify(Notification::RootsChanged, end.now).unwrap()),
    ("set_alarm", |end| _ = end.session.set_alarm(end.now.saturating_add(Duration::from_secs(1))).unwrap()),
    ("clear_alarm", |end| end.session.clear_alarm(end.session.ids.alarms[1])),
    ("set_writable", |end| end.session.set_writable(Lane::CHANNEL, false, end.now).unwrap()),
    ("close", |end| end.session.close(Close::Graceful { grace: Duration::from_secs(1) }, end.now)),
    ("a result of the other call", |end| _ = end.frame(&result(3))),
    ("progress of the other call", |end| _ = end.frame(&progress(3, 1.0))),
];

const STEPS_OF_A_SERVER: [Step; 14] = [
    ("configure", |end| {
        let options = ServeOptions::default().with_window(RateWindow::UNLIMITED);
        end.session.configure(end.session.ids.inbound_calls[0], options, end.now).unwrap();
    }),
    ("progress", |end| _ = end.session.progress(end.session.ids.inbound_calls[0], Progress::value(1.0), end.now).unwrap()),
    ("checkpoint", |end| end.session.checkpoint(end.session.ids.inbound_calls[0], json("{}")).unwrap()),
    ("request_input", |end| _ = end.session.request_input(end.session.ids.inbound_calls[0], InputRequest::Roots, end.now).unwrap()),
    ("abandon_input", |end| end.session.abandon_input(end.session.ids.input_requests[1], end.now).unwrap()),
    ("respond", |end| end.session.respond(end.session.ids.inbound_calls[1], Reply::Raw(json("{}")), end.now).unwrap()),
    ("log", |end| _ = end.session.log(None, LogRecord::new(Level::Error, json("1")), end.now).unwrap()),
    ("notify", |end| end.session.notify(Notification::ToolsChanged, end.now).unwrap()),
    ("publish", |end| _ = end.session.publish(&Notification::ToolsChanged, end.now)),
    ("close", |end| end.session.close(Close::Graceful { grace: Duration::from_secs(1) }, end.now)),
    ("the end of input", |end| end.session.handle_end(TransportEnd::Eof, end.now)),
    ("a call", |end| _ = end.frame(&call_tool(9, false))),
    ("a cancel of the other call", |end| _ = end.frame(&cancelled(2))),
    ("an answer to the other input request", |end| _ = end.frame(r#"{"jsonrpc":"2.0","id":2,"result":{"roots":[]}}"#)),
];

#[test]
fn g9_no_frame_and_no_method_but_handle_timeout_expires_a_deadline() {
    let client = || {
        let mut client = calling(call_timeouts(Some(1000), None));
        call_with(&mut client, CallTimeouts::NONE);
        for at in [1000, 2000] {
            client.session.set_alarm(Instant::from_millis(at)).unwrap();
        }
        client
    };
    let server = || {
        let (mut server, id) = serving(Some(1));
        server.session.configure(id, ServeOptions::default().with_deadline(Duration::from_secs(2)), server.now).unwrap();
        let other = server.receive_call(2);
        for id in [id, other] {
            server.session.request_input(id, InputRequest::Roots, server.now).unwrap();
        }
        server
    };
    let of_client = STEPS_OF_A_CLIENT.into_iter().chain(STEPS_OF_A_PEER).map(|step| (client(), step));
    let of_server = STEPS_OF_A_SERVER.into_iter().chain(STEPS_OF_A_PEER).map(|step| (server(), step));
    for (mut end, (name, step)) in of_client.chain(of_server) {
        let expired = |event: &Event| {
            matches!(
                event,
                Event::Done { outcome: Outcome::TimedOut(_), .. }
                    | Event::Cancelled { why: CancelReason::Deadline, .. }
                    | Event::Input { answer: Err(InputFailed::TimedOut), .. }
                    | Event::Alarm(_)
            )
        };
        end.sent();
        end.events();
        step(end.skip_to(9_000));
        assert!(!end.events().iter().any(expired), "{name} expired something");
        end.session.handle_timeout(end.now);
        assert!(end.events().iter().any(expired), "nothing was overdue after {name}");
    }
}

#[test]
fn g9_progress_does_not_prevent_max_total_at_the_next_handle_timeout() {
    let mut client = calling(call_timeouts(Some(1000), Some(2000)));
    client.skip_to(2500).frame(&progress(2, 1.0)).events();
    assert_eq!(due(&client), Some(2000), "the deadline has passed, but `handle_timeout` was not called");
    client.session.handle_timeout(client.now);
    assert_eq!(client.outcome(), MAX_TOTAL);
}

#[test]
fn a_time_before_the_latest_one_counts_as_the_latest_one() {
    let mut client = Scripted::client(client_config());
    client.at(10_000);
    client.session.invoke(Invoke::new(Op::CallTool, json("{}")), Instant::from_millis(1)).unwrap();
    assert_eq!(due(&client), Some(70_000));
    client.session.handle_timeout(Instant::ZERO);
    assert_eq!((client.events(), client.session.stats().clock_went_back), (vec![], 2));
}

#[test]
fn g7_a_call_with_a_timeout_of_zero_has_settled_when_the_method_returns() {
    for (timeouts, outcome) in [
        (call_timeouts(Some(0), None), IDLE),
        (call_timeouts(None, Some(0)), MAX_TOTAL),
        (call_timeouts(Some(0), Some(0)), MAX_TOTAL),
    ] {
        let mut client = Scripted::client(client_config());
        client.drain();
        client.at(500);
        let call = call_with(&mut client, timeouts);
        assert_eq!(client.events(), [Event::Done { id: call, outcome, partial: None, last: None }]);
        assert_eq!((client.sent(), client.session.poll_timeout()), (vec![], None));
    }
}

#[test]
fn g7_early_and_repeated_calls_of_handle_timeout_do_nothing() {
    let mut client = calling(call_timeouts(Some(1000), None));
    for micros in [0, 1, 1, 999_999, 999_999] {
        client.session.handle_timeout(Instant::from_micros(micros));
        client.expect_silence();
    }
    for _ in 0..3 {
        client.session.handle_timeout(Instant::from_millis(1000));
    }
    assert_eq!((client.outcome(), client.sent().len()), (IDLE, 1));
}

// ---- Requests that are never cancelled ----

#[test]
fn a_ping_that_times_out_is_reported_and_never_cancelled() {
    let mut client = Scripted::client(client_config());
    let ping = client.invoke(Invoke::ping().with_timeouts(call_timeouts(Some(1000), None)));
    client.sent();
    client.at(1000);
    assert_eq!(
        client.events(),
        [Event::Done { id: ping, outcome: IDLE, partial: None, last: None }, Event::Violation(Violation::PingUnanswered)]
    );
    assert_eq!(client.sent(), Vec::<String>::new());
    client.frame(&result(2)).expect_silence();
}

#[test]
fn the_handshake_is_never_cancelled_even_if_all_held_calls_end() {
    let mut client = Scripted::new(client_config());
    let calls = [call_with(&mut client, call_timeouts(Some(1000), None)), call_with(&mut client, CallTimeouts::NONE)];
    assert_eq!(client.sent().len(), 1, "the handshake request");
    for call in calls {
        client.session.cancel(call, Some("no"), client.now).unwrap();
        assert_eq!(client.outcome(), Outcome::Cancelled);
    }
    client.at(9_999).expect_silence();
    client.frame(
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
    );
    assert!(client.session.is_ready());
    assert_eq!(client.sent(), [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#]);

    // A handshake that times out is not cancelled either.
    let mut client = Scripted::new(client_config());
    let short = call_with(&mut client, call_timeouts(Some(1000), None));
    let long = call_with(&mut client, CallTimeouts::NONE);
    let cancelled = call_with(&mut client, CallTimeouts::NONE);
    assert_eq!(client.sent().len(), 1, "the handshake request");
    client.session.cancel(cancelled, Some("no"), client.now).unwrap();
    client.at(10_000);
    let done = |id, outcome| Event::Done { id, outcome, partial: None, last: None };
    assert_eq!(
        client.events(),
        [
            done(cancelled, Outcome::Cancelled),
            done(short, Outcome::Lost),
            done(long, Outcome::Lost),
            Event::Closed(CloseReason::HandshakeTimeout)
        ]
    );
    assert_eq!(client.sent(), Vec::<String>::new());
}

// ---- Outbound input requests ----

/// A server with the inbound call 1, and this timeout of input requests in seconds.
fn serving(input: Option<u64>) -> (Scripted, protocol_core::InboundId) {
    let mut server = Scripted::server(with(server_config(), |config| config.timeouts.input = input.map(Duration::from_secs)));
    let id = server.receive_call(1);
    (server, id)
}

#[test]
fn each_input_request_has_its_own_timeout_or_none_if_none_is_configured() {
    let (mut server, id) = serving(Some(1));
    let first = server.session.request_input(id, InputRequest::Roots, server.now).unwrap();
    server.at(400);
    let second = server.session.request_input(id, InputRequest::Roots, server.now).unwrap();
    server.sent();
    for (at, key) in [(1000, first), (1400, second)] {
        assert_eq!(due(&server), Some(at));
        server.at(at);
        assert_eq!(server.events(), [Event::Input { id, key, answer: Err(InputFailed::TimedOut) }]);
    }
    let (mut server, id) = serving(None);
    server.session.request_input(id, InputRequest::Roots, server.now).unwrap();
    assert_eq!(due(&server), None);
}

#[test]
fn g7_an_input_request_with_a_timeout_of_zero_has_timed_out_when_the_method_returns() {
    let (mut server, id) = serving(Some(0));
    let key = server.session.request_input(id, InputRequest::Roots, server.now).unwrap();
    assert_eq!(server.events(), [Event::Input { id, key, answer: Err(InputFailed::TimedOut) }]);
    assert_eq!((server.sent(), due(&server)), (vec![], None));
}
