//! The ways in which a session ends: what it waits for, and that it does nothing after `Closed` (Lifecycle, "Shutdown"; G1, G4).

use std::time::Duration;

use protocol_core::{
    AskError, CancelReason, CheckpointError, Close, CloseReason, Event, InboundId, InputFailed, InputRequest, InputResponse,
    Instant, Invoke, Lane, Level, LogRecord, Logged, NotLive, Notification, Outcome, Progress, ProgressError, RateWindow, Reply,
    SendError, ServeOptions, SubscriptionFilter, TooManyAlarms, TransportEnd,
};
use testkit::config::{client_config, server_config};
use testkit::scripted::{call_tool, cancelled, error, initialize, json, ok, request, result, stateless_request};
use testkit::{Pair, Scripted};

const ROOTS_REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;

/// Passes the end of input to a session.
fn eof(end: &mut Scripted) {
    end.session.handle_end(TransportEnd::Eof, end.now);
}

/// Closes a session with a grace of `millis`.
fn close(end: &mut Scripted, millis: u64) {
    end.session.close(Close::Graceful { grace: Duration::from_millis(millis) }, end.now);
}

fn close_now(end: &mut Scripted) {
    end.session.close(Close::Now, end.now);
}

fn done(id: protocol_core::OutboundId, outcome: Outcome) -> Event {
    Event::Done { id, outcome, partial: None, last: None }
}

/// Seen in the field: a client of the official Python SDK fails if it gets progress, a log record or another notification after it has
/// closed the input of its server.
#[test]
fn after_the_end_of_input_a_server_sends_replies_only_whatever_was_queued_or_kept_before_and_is_reported_after() {
    type Report = fn(&mut Scripted, InboundId);
    let reports: [(&str, Report); 7] = [
        ("progress", |server, id| _ = server.session.progress(id, Progress::value(1.0), server.now)),
        ("progress that the rate keeps", |server, id| {
            let rate = ServeOptions::default().with_window(RateWindow::new(1, Duration::from_secs(1)));
            server.session.configure(id, rate, server.now).unwrap();
            for value in [1.0, 2.0] {
                _ = server.session.progress(id, Progress::value(value), server.now);
            }
        }),
        ("progress that waits for room", |server, id| {
            server.set_writable(false);
            _ = server.session.progress(id, Progress::value(1.0), server.now);
            server.set_writable(true);
        }),
        ("a log record of the call", |server, id| _ = server.session.log(Some(id), record(), server.now)),
        ("a log record of no call", |server, _| _ = server.session.log(None, record(), server.now)),
        ("a notification", |server, _| _ = server.session.notify(Notification::ToolsChanged, server.now)),
        ("an input request, and its cancel", |server, id| {
            if let Ok(key) = server.session.request_input(id, InputRequest::Roots, server.now) {
                server.drain();
                server.session.abandon_input(key, server.now).unwrap();
            }
            _ = server.session.request_input(id, InputRequest::Roots, server.now);
        }),
    ];
    for (what, report) in reports {
        let mut server = Scripted::server(server_config());
        let (id, other) = (server.receive_call(1), server.receive_call(2));
        report(&mut server, id);
        eof(&mut server);
        assert_eq!(server.sent(), Vec::<String>::new(), "{what}, queued or kept before the end");
        report(&mut server, other);
        server.at(2_000);
        assert_eq!(server.sent(), Vec::<String>::new(), "{what}, after the end");
        server.respond(id).respond(other);
        assert_eq!(server.sent(), [ok(1), ok(2)], "{what}");
        assert_eq!(server.events().last(), Some(&Event::Closed(CloseReason::Eof)), "{what}");
    }
    // A subscription ends with its result, without the acknowledgement and the notifications that wait.
    let mut server = Scripted::new(server_config());
    server.frame(&stateless_request(1, "subscriptions/listen", r#""notifications":{"toolsListChanged":true},"#, "{}", ""));
    let id = server.request();
    let mut offered = SubscriptionFilter::default();
    offered.tools = true;
    server.session.accept_subscription(id, &offered, server.now).unwrap();
    server.session.publish(&Notification::ToolsChanged, server.now);
    eof(&mut server);
    assert_eq!(server.session.publish(&Notification::ToolsChanged, server.now), 0);
    let sent = server.sent();
    assert!(sent.len() == 1 && sent[0].contains(r#""id":1,"result""#), "{sent:?}");
}

fn record() -> LogRecord {
    LogRecord::new(Level::Emergency, json("1"))
}

#[test]
fn at_the_end_of_input_inbound_input_requests_are_gone_and_then_outbound_calls_are_lost() {
    let mut client = Scripted::client(client_config());
    let calls = [client.call(), client.call()];
    client.sent();
    let unsent = client.call();
    client.frame(ROOTS_REQUEST);
    let key = client.input_request();
    eof(&mut client);
    let lost = |id| done(id, Outcome::Lost);
    assert_eq!(
        client.events(),
        [Event::InputGone { key }, lost(calls[0]), lost(calls[1]), lost(unsent), Event::Closed(CloseReason::Eof)]
    );
    assert_eq!(client.sent(), Vec::<String>::new(), "neither cancels nor the unsent call are sent");
}

#[test]
fn at_the_end_of_input_outbound_input_requests_are_lost_and_their_handlers_can_still_respond() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    let polled = server.ask(id, InputRequest::Roots);
    server.sent();
    let queued = server.ask(id, InputRequest::Roots);
    eof(&mut server);
    let lost = |key| Event::Input { id, key, answer: Err(InputFailed::Lost) };
    assert_eq!(server.events(), [lost(polled), lost(queued)]);
    server.respond(id);
    assert_eq!((server.sent(), server.events()), (vec![ok(1)], vec![Event::Closed(CloseReason::Eof)]));
}

#[test]
fn an_input_request_after_the_end_of_input_fails_as_disconnected_even_while_closing() {
    for closing in [false, true] {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        if closing {
            close(&mut server, 60_000);
        }
        eof(&mut server);
        assert_eq!(
            server.session.request_input(id, InputRequest::Roots, server.now),
            Err(AskError::Disconnected),
            "closing: {closing}"
        );
    }
}

#[test]
fn a_session_without_calls_and_output_closes_at_once() {
    for (end, reason) in
        [(eof as fn(&mut Scripted), CloseReason::Eof), (close_now, CloseReason::Local), (|end| close(end, 9), CloseReason::Local)]
    {
        for mut idle in [Scripted::client(client_config()), Scripted::server(server_config())] {
            end(&mut idle);
            assert_eq!((idle.events(), idle.session.poll_timeout()), (vec![Event::Closed(reason)], None));
        }
    }
}

#[test]
fn queued_output_is_sent_before_the_end_or_discarded_after_the_grace() {
    for reads in [true, false] {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        server.respond(id);
        eof(&mut server);
        assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(5_000)));
        if reads {
            server.at(4_999);
            assert_eq!(server.sent(), [ok(1)]);
        } else {
            server.at(5_000);
            assert_eq!(server.sent(), Vec::<String>::new());
        }
        assert_eq!(server.events(), [Event::Closed(CloseReason::Eof)], "reads: {reads}");
    }
}

#[test]
fn a_failure_of_the_transport_ends_all_calls_at_once_and_discards_queued_output() {
    let mut server = Scripted::server(server_config());
    let (id, other) = (server.receive_call(1), server.receive_call(2));
    let key = server.ask(id, InputRequest::Roots);
    server.report(other, Progress::value(1.0));
    server.session.set_alarm(Instant::from_millis(10)).unwrap();
    server.session.handle_end(TransportEnd::Failed, server.now);
    let cancelled = |id| Event::Cancelled { id, why: CancelReason::Disconnected };
    assert_eq!(
        server.events(),
        [
            Event::Input { id, key, answer: Err(InputFailed::Lost) },
            cancelled(id),
            cancelled(other),
            Event::Closed(CloseReason::Failed)
        ]
    );
    assert_eq!((server.sent(), server.session.poll_timeout()), (vec![], None));

    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.frame(ROOTS_REQUEST);
    let key = client.input_request();
    client.session.handle_end(TransportEnd::Failed, client.now);
    assert_eq!(client.events(), [Event::InputGone { key }, done(call, Outcome::Lost), Event::Closed(CloseReason::Failed)]);
    assert_eq!((client.sent(), client.session.stats().queued_bytes), (vec![], 0));
}

#[test]
fn a_graceful_close_lets_running_calls_of_both_directions_end() {
    let mut pair = Pair::ready();
    let call = pair.client.call();
    pair.run();
    let id = pair.server.request();
    close(&mut pair.client, 10_000);
    close(&mut pair.server, 10_000);
    // The handler may still make an input request, and its caller still receives and answers it.
    pair.server.ask(id, InputRequest::Confirm { message: "go on?".into() });
    pair.run();
    let key = pair.client.input_request();
    let yes = InputResponse::Elicit(protocol_core::ElicitResult::Accept(json("{}")));
    pair.client.session.provide_input(key, yes, pair.client.now).unwrap();
    pair.run();
    assert!(matches!(pair.server_events()[..], [Event::Input { answer: Ok(InputResponse::Confirm(true)), .. }]));
    pair.server.report(id, Progress::value(1.0));
    pair.at(9_999);
    pair.server.respond(id);
    pair.run();
    assert_eq!(pair.server_events(), [Event::Closed(CloseReason::Local)]);
    let events = pair.client_events();
    let [Event::Progress { .. }, Event::Done { id, outcome: Outcome::Result(_), .. }, Event::Closed(CloseReason::Local)] =
        events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(id, call);
}

#[test]
fn a_closing_session_refuses_new_requests_new_notifications_and_new_calls() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    close(&mut server, 1_000);
    server.frame(&call_tool(2, true)).frame(&request(3, "ping", "{}"));
    assert_eq!((server.sent(), server.events()), (vec![error(2, -32809, "closing"), result(3)], vec![]));
    let tools = Notification::ToolsChanged;
    assert_eq!(server.session.notify(tools, server.now), Err(SendError::Closing));
    server.respond(id);
    assert_eq!(server.sent(), [ok(1)]);

    let mut client = Scripted::client(client_config());
    client.call();
    close(&mut client, 1_000);
    let refused = client.session.invoke(Invoke::ping(), client.now).unwrap_err();
    assert_eq!(refused.why, SendError::Closing);
}

#[test]
fn at_the_end_of_the_grace_or_an_immediate_close_remaining_calls_are_cancelled_and_the_peer_is_notified() {
    let failed_tool =
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the server is closing"}],"isError":true}}"#;
    let failed_prompt =
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the server is closing","data":{"reason":"closing"}}}"#;
    for at_once in [false, true] {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        server.frame(&request(2, "prompts/list", "{}"));
        let prompt = server.request();
        server.ask(id, InputRequest::Roots);
        server.drain();
        if at_once {
            close_now(&mut server);
        } else {
            close(&mut server, 1_000);
            server.at(999).expect_silence();
            server.at(1_000);
        }
        let closing = |id| Event::Cancelled { id, why: CancelReason::Closing };
        assert_eq!(server.events(), [closing(id), closing(prompt)]);
        assert_eq!(
            server.sent(),
            [cancelled(3), failed_tool.to_owned(), failed_prompt.to_owned()],
            "the cancels of input requests come first"
        );
        assert_eq!(server.events(), [Event::Closed(CloseReason::Local)]);

        let mut client = Scripted::client(client_config());
        let call = client.call();
        client.sent();
        let unsent = client.call();
        client.frame(&request(1, "roots/list", r#"{"_meta":{"protocol-core/parent":2}}"#));
        let key = client.input_request();
        if at_once {
            close_now(&mut client);
        } else {
            close(&mut client, 1_000);
            client.at(1_000);
        }
        // The second call was never polled, so no cancel is sent for it.
        assert_eq!(client.events(), [Event::InputGone { key }, done(call, Outcome::Cancelled), done(unsent, Outcome::Cancelled)]);
        assert_eq!(
            client.sent(),
            [
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"closing"}}"#.to_owned(),
                error(1, -32800, "the call that this belongs to is over")
            ]
        );
        assert_eq!(client.events(), [Event::Closed(CloseReason::Local)]);
    }
}

#[test]
fn an_input_request_of_no_call_delays_the_close_until_the_grace_ends_and_is_then_refused() {
    let mut client = Scripted::client(client_config());
    client.frame(ROOTS_REQUEST);
    let key = client.input_request();
    close(&mut client, 1_000);
    client.at(999).expect_silence();
    client.at(1_000);
    assert_eq!(client.events(), [Event::InputGone { key }]);
    assert_eq!(client.sent(), [error(1, -32800, "the call that this belongs to is over")]);
    assert_eq!(client.events(), [Event::Closed(CloseReason::Local)]);
}

#[test]
fn a_second_close_can_only_make_the_end_earlier_and_the_first_reason_stays() {
    type Step = fn(&mut Scripted);
    for (first, second, ends_at, reason) in [
        ((|end| close(end, 1_000)) as Step, (|end| close(end, 2_000)) as Step, 1_000, CloseReason::Local),
        (|end| close(end, 2_000), |end| close(end, 1_000), 1_500, CloseReason::Local),
        (|end| close(end, 2_000), close_now, 500, CloseReason::Local),
        (|end| close(end, 60_000), eof, 5_500, CloseReason::Local),
        (eof, |end| close(end, 1_000), 1_500, CloseReason::Eof),
        (eof, close_now, 500, CloseReason::Eof),
        (eof, eof, 5_000, CloseReason::Eof),
    ] {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        first(&mut server);
        server.at(500);
        second(&mut server);
        if ends_at > 500 {
            server.at(ends_at - 1).expect_silence();
            server.at(ends_at);
        }
        let events = server.events();
        assert!(matches!(events[0], Event::Cancelled { id: cancelled, .. } if cancelled == id), "{ends_at}: {events:?}");
        server.sent();
        let last = events.into_iter().chain(server.events()).last();
        assert_eq!(last, Some(Event::Closed(reason)), "{ends_at}");
    }
}

#[test]
fn closed_is_the_last_event_and_comes_once_and_no_method_has_an_effect_after_it() {
    let ends: [fn(&mut Scripted); 4] = [
        eof,
        |end| end.session.handle_end(TransportEnd::Failed, end.now),
        close_now,
        // A frame that is longer than the limit.
        |end| {
            end.frame(&" ".repeat(17 << 20));
        },
    ];
    for end in ends {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        let key = server.ask(id, InputRequest::Roots);
        server.drain();
        end(&mut server);
        server.sent();
        server.at(5_000);
        let closed = server.events().iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert_eq!((closed, server.session.is_closed(), server.session.wants_input(Lane::CHANNEL)), (1, true, false));

        let now = server.now;
        let session = &mut server.session;
        assert_eq!(session.respond(id, Reply::Raw(json("{}")), now), Err(NotLive));
        assert_eq!(session.progress(id, Progress::value(1.0), now), Err(ProgressError::NotLive));
        assert_eq!(session.checkpoint(id, json("{}")), Err(CheckpointError::NotLive));
        assert_eq!(session.configure(id, ServeOptions::default(), now), Err(NotLive));
        assert_eq!(session.request_input(id, InputRequest::Roots, now), Err(AskError::NotLive));
        assert_eq!(session.abandon_input(key, now), Err(NotLive));
        assert_eq!(session.provide_input(key, InputResponse::Roots(json("[]")), now), Err(NotLive));
        assert_eq!((session.log(None, record(), now), session.log(Some(id), record(), now)), (Ok(Logged::Unwanted), Err(NotLive)));
        assert_eq!(session.notify(Notification::ToolsChanged, now), Err(SendError::Closing));
        assert_eq!(session.invoke(Invoke::ping(), now).unwrap_err().why, SendError::Closing);
        assert_eq!(session.set_alarm(now), Err(TooManyAlarms));
        session.close(Close::Now, now);
        session.close(Close::Graceful { grace: Duration::from_secs(1) }, now);
        session.handle_end(TransportEnd::Eof, now);
        session.handle_end(TransportEnd::Failed, now);
        server.frame(&call_tool(2, true)).frame("nonsense").at(1_000_000).expect_silence();
        assert_eq!((server.session.poll_timeout(), server.session.stats().inbound_calls), (None, 0));
    }
}

#[test]
fn a_closing_server_still_answers_the_handshake_that_its_own_call_waits_for() {
    // A regression: a closing server refused the handshake as a closing gateway does. The client got the error "busy", and the server's own
    // call, which waited for the handshake, was never sent.
    let mut server = Scripted::new(server_config());
    server.invoke(Invoke::custom("x/y", json("{}")));
    server.session.close(Close::Graceful { grace: Duration::from_secs(1) }, server.now);
    server.frame(&initialize(0, "2025-11-25", "{}"));
    assert!(server.sent().concat().contains(r#""protocolVersion":"2025-11-25""#));
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert!(server.sent().concat().contains(r#""method":"x/y""#));
}
