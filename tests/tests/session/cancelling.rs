//! Cancellation from both ends (Utilities, "Cancellation"; `docs/protocols/mcp.md`, "Cancellation" and "Transitions of an outgoing call"):
//! of a response and a cancel, the one that is handled first decides the outcome, and later frames about the call are dropped. Names that
//! begin with `o` and a number cite a row of that table ("Former row numbers").

use protocol_core::{
    CancelReason, Event, InputFailed, InputRequest, InputResponse, Invoke, NotLive, Op, Outcome, Progress, RpcError, Sample,
    Violation,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{ENDINGS, call_tool, cancelled, error, json, notification, progress, request, result};
use testkit::{Pair, Scripted};

/// The error with which a client answers an input request whose call has ended.
const OVER: &str = r#""error":{"code":-32800,"message":"the call that this belongs to is over"}"#;

fn over(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{OVER}}}"#)
}

// ---- A caller cancels ----

#[test]
fn o15_a_call_that_was_sent_is_cancelled_with_one_notification_and_settles_at_once() {
    for (reason, params) in [
        (None, r#"{"requestId":2}"#),
        (Some("user \"x\" left\n"), r#"{"requestId":2,"reason":"user \"x\" left\n"}"#),
        (Some(""), r#"{"requestId":2,"reason":""}"#),
    ] {
        let mut client = Scripted::client(client_config());
        let call = client.call();
        client.sent();
        client.frame(&progress(2, 3.0)).events();
        client.session.cancel(call, reason, client.now).unwrap();
        let last = Some(Box::new(Progress::value(3.0)));
        assert_eq!(client.events(), [Event::Done { id: call, outcome: Outcome::Cancelled, partial: None, last }]);
        assert_eq!(client.sent(), [notification("notifications/cancelled", params)]);
        assert_eq!(client.session.poll_timeout(), None);
    }
}

#[test]
fn cancelling_an_unsent_call_withdraws_only_the_request_of_that_call() {
    let mut client = Scripted::client(client_config());
    let calls = [client.call(), client.call(), client.call()];
    client.session.poll_transmit().unwrap();
    client.session.cancel(calls[1], None, client.now).unwrap();
    client.session.cancel(calls[0], None, client.now).unwrap();
    let sent = client.sent();
    assert!(sent[0].contains(r#""id":4,"method":"tools/call""#), "{sent:?}");
    assert_eq!(sent[1..], [cancelled(2)]);
}

#[test]
fn o29_cancelling_a_call_that_has_ended_returns_not_live() {
    for (name, ending) in ENDINGS {
        let mut client = Scripted::client(client_config());
        let call = client.call();
        client.sent();
        ending(&mut client, call);
        client.drain();
        assert_eq!(client.session.cancel(call, None, client.now), Err(NotLive), "{name}");
        client.expect_silence();
    }
}

#[test]
fn cancelling_a_ping_sends_no_cancel() {
    let mut client = Scripted::client(client_config());
    let ping = client.invoke(Invoke::ping());
    client.sent();
    client.session.cancel(ping, Some("no matter"), client.now).unwrap();
    assert_eq!((client.outcome(), client.sent()), (Outcome::Cancelled, vec![]));
    client.frame(&result(2)).expect_silence();
}

#[test]
fn a_cancel_reason_never_makes_a_frame_too_long() {
    let mut client = Scripted::client(with(client_config(), |config| config.limits.frame_bytes = 4096));
    let call = client.call();
    client.sent();
    client.session.cancel(call, Some(&"because ".repeat(1000)), client.now).unwrap();
    let sent = client.sent();
    assert!(sent[0].contains(r#""method":"notifications/cancelled","params":{"requestId":2"#) && sent.len() == 1);
    assert!(sent[0].len() <= 4096, "{} bytes", sent[0].len());
}

// ---- Input requests of the peer when their call ends ----

#[test]
fn open_input_requests_are_answered_and_reported_as_gone_before_their_call_is_done() {
    // A call cannot time out while an input request is open.
    for (name, ending) in ENDINGS.into_iter().filter(|(name, _)| *name != "timed out") {
        let mut client = Scripted::client(client_config());
        let call = client.call();
        client.sent();
        client.frame(&request(7, "roots/list", "{}"));
        let first = client.input_request();
        client.frame(&request(8, "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#));
        let second = client.input_request();
        ending(&mut client, call);
        let events: Vec<_> =
            client.events().into_iter().filter(|event| !matches!(event, Event::Violation(_) | Event::Closed(_))).collect();
        assert_eq!(events[..2], [Event::InputGone { key: first }, Event::InputGone { key: second }], "{name}");
        assert!(matches!(events[2..], [Event::Done { id, .. }] if id == call), "{name}: {events:?}");
        let mut answers: Vec<_> = client.sent().into_iter().filter(|frame| !frame.contains("notifications/cancelled")).collect();
        answers.sort();
        assert_eq!(answers, if name == "lost" { vec![] } else { vec![over(7), over(8)] }, "{name}");
        for key in [first, second] {
            assert_eq!(client.session.provide_input(key, InputResponse::Roots(json("[]")), client.now), Err(NotLive), "{name}");
        }
        client.frame(&cancelled(7)).expect_silence();
    }
}

#[test]
fn when_a_call_ends_the_input_requests_of_other_calls_and_of_no_call_stay_open() {
    let mut client = Scripted::client(client_config());
    client.frame(&request(6, "roots/list", "{}"));
    let of_none = client.input_request();
    let call = client.call();
    let other = client.call();
    client.sent();
    client.frame(&request(7, "roots/list", r#"{"_meta":{"protocol-core/parent":4}}"#));
    let of_other = client.input_request();
    client.session.cancel(call, None, client.now).unwrap();
    assert_eq!(client.sent(), [cancelled(3)]);
    client.session.cancel(other, None, client.now).unwrap();
    let events = client.events();
    assert_eq!(events[1], Event::InputGone { key: of_other }, "{events:?}");
    client.sent();
    client.session.provide_input(of_none, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(client.sent(), [r#"{"jsonrpc":"2.0","id":6,"result":{"roots":[]}}"#]);
}

// ---- Cancels from the peer without effect ----

#[test]
fn a_cancel_of_an_unknown_request_is_ignored_and_one_without_a_valid_id_is_reported() {
    for mut end in [Scripted::client(client_config()), Scripted::server(server_config())] {
        for id in ["0", "2", "99", "-1", "\"2\"", "\"\""] {
            end.frame(&notification("notifications/cancelled", &format!(r#"{{"requestId":{id},"reason":"?"}}"#))).expect_silence();
        }
        for params in [
            "{}",
            r#"{"requestId":null}"#,
            r#"{"requestId":1.5}"#,
            r#"{"requestId":[1]}"#,
            r#"{"requestId":{}}"#,
            r#"{"reason":"?"}"#,
        ] {
            end.frame(&notification("notifications/cancelled", params));
            assert_eq!((end.violations(), end.sent()), (vec![Violation::InvalidParams], vec![]), "{params}");
        }
        end.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
        assert_eq!((end.violations(), end.sent()), (vec![Violation::InvalidParams], vec![]));
    }
}

#[test]
fn g11_a_cancel_reaches_only_the_exchange_whose_id_has_the_same_type() {
    let mut server = Scripted::server(server_config());
    server.frame(r#"{"jsonrpc":"2.0","id":"5","method":"tools/call","params":{"name":"t"}}"#);
    let text = server.request();
    server.frame(&call_tool(5, false));
    let number = server.request();
    server.frame(&cancelled(5));
    assert_eq!(server.events(), [Event::Cancelled { id: number, why: CancelReason::Peer(None) }]);
    server.frame(&notification("notifications/cancelled", r#"{"requestId":"5","reason":"so"}"#));
    assert_eq!(server.events(), [Event::Cancelled { id: text, why: CancelReason::Peer(Some("so".into())) }]);
}

#[test]
fn a_cancel_whose_reason_is_not_text_still_cancels() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    server.frame(&notification("notifications/cancelled", r#"{"requestId":1,"reason":{"a":1}}"#));
    assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }]);
}

// ---- A callee withdraws its input requests ----

/// A server with the inbound call 1, and two input requests of it that were sent with the ids 2 and 3.
fn asking() -> (Scripted, protocol_core::InboundId, [protocol_core::InputKey; 2]) {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    let keys = [server.ask(id, InputRequest::from(Sample::new("?"))), server.ask(id, InputRequest::Roots)];
    assert_eq!(server.sent().len(), 2);
    (server, id, keys)
}

#[test]
fn an_input_request_that_the_caller_refused_is_not_cancelled_later() {
    let (mut server, id, [first, _]) = asking();
    server.frame(&error(2, -1, "the user said no"));
    let refused = InputFailed::Refused(RpcError::new(-1, "the user said no"));
    assert_eq!(server.events(), [Event::Input { id, key: first, answer: Err(refused) }]);
    server.frame(&cancelled(1));
    assert_eq!(server.sent(), [cancelled(3)]);
}

#[test]
fn a_cancel_withdraws_the_input_requests_of_its_call_but_calls_made_to_answer_them_go_on() {
    let mut pair = Pair::ready();
    let call = pair.client.call();
    pair.run();
    let id = pair.server.request();
    pair.server.ask(id, InputRequest::from(Sample::new("?")));
    pair.run();
    let input_request = pair.client.input_request();
    let nested = pair.client.invoke(Invoke::new(Op::CallTool, json(r#"{"name":"t"}"#)).with_parent(input_request));
    pair.run();
    pair.server.request();
    pair.trace.clear();
    pair.client.session.cancel(call, None, pair.client.now).unwrap();
    pair.run();
    // The client's cancel and its answer cross the server's cancel of the input request; no request is answered twice.
    let answered = pair.trace.iter().filter(|frame| frame.contains(OVER)).count();
    assert_eq!(answered, 1, "{:?}", pair.trace);
    let events = pair.client.events();
    assert!(
        matches!(events[..], [Event::InputGone { key }, Event::Done { id, .. }] if key == input_request && id == call),
        "{events:?}"
    );
    pair.client.session.cancel(nested, None, pair.client.now).unwrap();
    pair.run();
    assert_eq!((pair.client.session.stats().outbound_calls, pair.server.session.stats().cancelled_calls), (0, 2));
}
