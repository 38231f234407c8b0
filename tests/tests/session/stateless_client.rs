//! MCP 2026-07-28 at the client's end: the probe that chooses the era, requests that name their caller, and subscriptions (Versioning,
//! Discovery, Subscriptions).

use protocol_core::mcp::Era;
use protocol_core::{
    Close, CloseReason, Event, Gone, Invalid, Invoke, Lane, Level, MemberFault, Notification, Outcome, RpcError, SendError, Text,
    TimeoutKind, TransportEnd, Violation,
};

use testkit::Scripted;
use testkit::config::{client_config, with};
use testkit::scripted::{cancelled, discovered, error, json, notification, progress, request, result};

/// The members of `_meta` that name the client of these tests.
const STAMP: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{},"elicitation":{"form":{},"url":{}},"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"client","version":"1"}"#;

fn probe(id: u64) -> String {
    request(id, "server/discover", &format!(r#"{{"_meta":{{{STAMP}}}}}"#))
}

/// The answer to the probe `id` of a server that announces no changes of its lists, so that the client makes no subscription by itself.
fn discovered_quietly(id: u64) -> String {
    discovered(id, r#""2026-07-28""#, r#"{"tools":{},"resources":{"subscribe":true},"logging":{}}"#)
}

fn unsupported(id: u64, versions: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32022,"message":"no","data":{{"supported":[{versions}]}}}}}}"#)
}

fn client(era: Era) -> Scripted {
    Scripted::new(with(client_config(), |config| config.era = era))
}

/// A client that has chosen stateless requests. Its first call has id 2.
fn modern() -> Scripted {
    let mut client = client(Era::Auto);
    client.drain().frame(&discovered_quietly(1)).drain();
    client
}

/// The queued frames, with `probe` and `initialize` in the place of requests of these kinds.
fn openings(client: &mut Scripted) -> Vec<String> {
    client
        .sent()
        .iter()
        .map(|frame| {
            if frame.contains("server/discover") {
                "probe".into()
            } else if frame.contains(r#""method":"initialize""#) {
                "initialize".into()
            } else {
                frame.clone()
            }
        })
        .collect()
}

#[test]
fn a_client_of_both_eras_probes_and_is_ready_at_once_if_the_server_is_modern() {
    let mut client = client(Era::Auto);
    assert_eq!(client.session.era(), None);
    assert_eq!(client.sent(), [probe(1)]);
    client.frame(&discovered_quietly(1));
    let events = client.events();
    let [Event::Ready(peer)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((peer.identity.name.as_str(), peer.identity.version.as_str(), peer.protocol.as_str()), ("s", "9", "2026-07-28"));
    assert_eq!((peer.instructions.as_deref(), peer.capabilities.tools, peer.capabilities.prompts), (Some("be brief"), true, false));
    assert!(client.session.is_ready());
    assert_eq!(client.session.era(), Some(Era::Modern));
    assert!(client.sent().is_empty(), "there is nothing to confirm");
}

/// A regression: a client took an answer with the number of its probe, or of its handshake request, before it had sent that request.
#[test]
fn an_answer_that_comes_before_the_probe_or_the_handshake_was_sent_is_a_violation() {
    let nameless = r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"method not found"}}"#;
    for (answer, rule) in [
        (discovered_quietly(1), Violation::UnknownResponse),
        (error(1, -32601, "method not found"), Violation::UnknownResponse),
        (nameless.to_owned(), Violation::ErrorWithoutId),
    ] {
        let mut client = client(Era::Auto);
        client.frame(&answer);
        assert_eq!((client.violations(), client.session.is_ready()), (vec![rule], false), "{answer}");
        assert_eq!(client.sent(), [probe(1)], "{answer}");
        client.frame(&discovered_quietly(1));
        assert!(client.session.is_ready(), "{answer}");
    }
    // The probe has expired before it was polled, and the handshake request is queued after it.
    for guessed in [1, 2] {
        let mut client = client(Era::Auto);
        client.at(10_000);
        client.frame(&discovered_quietly(guessed));
        assert_eq!((client.violations(), client.session.is_ready()), (vec![Violation::UnknownResponse], false), "{guessed}");
        assert_eq!(openings(&mut client), ["probe", "initialize"]);
        client.frame(&discovered_quietly(1));
        assert!(client.session.is_ready(), "the late answer to a probe that was sent");
    }
}

/// A regression: `initialize` was still sent after the late answer to the probe had chosen stateless requests.
#[test]
fn a_late_answer_to_the_probe_withdraws_a_handshake_request_that_was_not_polled() {
    let mut client = client(Era::Auto);
    client.drain();
    client.at(10_000);
    client.frame(&discovered_quietly(1));
    assert_eq!(client.session.era(), Some(Era::Modern));
    assert_eq!(client.sent(), [""; 0]);
}

/// Old servers may answer an unknown method before the handshake with any error. The probe is the only request of the client, so with
/// `Era::Auto` an error without an id counts as the answer to the probe. A late answer can still choose the era.
#[test]
fn with_auto_an_error_without_an_id_answers_the_probe_and_no_other_invalid_frame_does() {
    for id in ["", r#""id":null,"#] {
        let nameless = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32601,"message":"method not found"}}}}"#);
        let mut client = client(Era::Auto);
        client.drain();
        client.frame(&nameless);
        assert_eq!(client.violations(), [Violation::ErrorWithoutId]);
        assert_eq!(openings(&mut client), ["initialize"], "{nameless}");
        client.frame(&nameless).frame(&discovered_quietly(1));
        assert!(client.session.is_ready(), "the late answer");
        assert!(client.sent().is_empty(), "one handshake request, whatever follows");
        let mut modern = self::client(Era::Modern);
        modern.drain();
        modern.frame(&nameless);
        assert_eq!((modern.violations(), modern.sent().len()), (vec![Violation::ErrorWithoutId], 0));
    }
    let noise = [
        ("npm WARN deprecated", Violation::NotJson),
        ("{}", Violation::InvalidEnvelope),
        (r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"x"}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":"1","error":{"code":-32601,"message":"x"}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, Violation::UnknownResponse),
    ];
    for (line, rule) in noise {
        let mut client = client(Era::Auto);
        client.drain();
        client.frame(line);
        assert_eq!(client.violations(), [rule], "{line}");
        client.expect_silence();
        client.at(10_000);
        assert_eq!(openings(&mut client), ["initialize"], "{line}");
        let mut client = self::client(Era::Auto);
        client.drain();
        client.frame(line).frame(&discovered_quietly(1));
        assert!(client.session.is_ready(), "{line}");
    }
}

/// With `Era::Auto` the client becomes ready, sends another request, or closes (`docs/protocols/mcp.md`, "The client's end").
#[test]
fn the_answer_to_a_probe_decides_the_era() {
    enum Next {
        Ready,
        Sends(&'static str),
        Closes(CloseReason),
    }
    use Next::{Closes, Ready, Sends};
    let modern = r#""2026-07-28""#;
    let legacy = r#""2025-11-25","2024-11-05""#;
    let unknown = r#""2031-01-01""#;
    let rows: [(String, Next); 18] = [
        (discovered(1, modern, "{}"), Ready),
        (discovered(1, &format!("{unknown},{modern},{legacy}"), "{}"), Ready),
        (discovered(1, legacy, "{}"), Sends("initialize")),
        (discovered(1, unknown, "{}"), Closes(CloseReason::VersionMismatch)),
        (discovered(1, "", "{}"), Closes(CloseReason::VersionMismatch)),
        (discovered(1, modern, "7"), Closes(CloseReason::AnswerInvalid("capabilities", MemberFault::WrongType))),
        (discovered(1, modern, "{}").replace("complete", "input_required"), Sends("initialize")),
        (unsupported(1, modern), Sends("probe")),
        (unsupported(1, legacy), Sends("initialize")),
        (unsupported(1, unknown), Closes(CloseReason::VersionMismatch)),
        (error(1, -32022, "no data"), Closes(CloseReason::VersionMismatch)),
        (error(1, -32021, "needs sampling"), Closes(CloseReason::ProbeRefused)),
        (error(1, -32020, "header"), Closes(CloseReason::ProbeRefused)),
        (error(1, -32601, "method not found"), Sends("initialize")),
        (error(1, -32600, "not initialized"), Sends("initialize")),
        (error(1, 1, "anything"), Sends("initialize")),
        (result(1), Sends("initialize")),
        (r#"{"jsonrpc":"2.0","id":1,"result":"a text"}"#.into(), Sends("initialize")),
    ];
    for (answer, next) in rows {
        let mut client = client(Era::Auto);
        client.drain();
        client.frame(&answer);
        match next {
            Ready => assert!(client.session.is_ready(), "{answer}"),
            Sends(method) => assert_eq!(openings(&mut client), [method], "{answer}"),
            Closes(reason) => assert_eq!(client.events().last(), Some(&Event::Closed(reason)), "{answer}"),
        }
    }
}

#[test]
fn a_legacy_server_gets_the_handshake_after_the_probe_and_then_calls_that_do_not_name_the_client() {
    let mut client = client(Era::Auto);
    client.drain();
    client.frame(&error(1, -32601, "method not found"));
    let sent = client.next_sent().unwrap();
    assert!(
        sent.starts_with(r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25""#),
        "{sent}"
    );
    client.frame(r#"{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#);
    assert_eq!(client.sent(), [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#]);
    assert_eq!(client.session.era(), Some(Era::Legacy));
    assert!(!client.call_frame().contains("io.modelcontextprotocol"), "the handshake has named the client");
}

/// Versioning, "Servers": a server without a handshake names its versions when it refuses `initialize`.
#[test]
fn a_refusal_of_the_handshake_that_names_our_revision_leads_to_one_more_probe() {
    let mut client = client(Era::Auto);
    client.drain();
    client.frame(&error(1, -32601, "method not found")).drain();
    client.frame(&unsupported(2, r#""2026-07-28""#));
    assert_eq!(client.sent(), [probe(3)]);
    client.frame(&discovered_quietly(3));
    assert_eq!(client.session.era(), Some(Era::Modern));
}

#[test]
fn a_client_never_probes_a_third_time() {
    for answer in [unsupported(2, r#""2026-07-28""#), error(2, -32601, "x"), result(2)] {
        let mut client = client(Era::Auto);
        client.drain();
        client.frame(&unsupported(1, r#""2026-07-28""#)).drain();
        client.frame(&answer);
        assert_eq!(client.events().last(), Some(&Event::Closed(CloseReason::VersionMismatch)), "{answer}");
        client.expect_silence();
    }
}

#[test]
fn a_modern_client_makes_no_handshake() {
    let mut silent = client(Era::Modern);
    assert_eq!(silent.sent(), [probe(1)]);
    silent.at(10_000);
    assert_eq!(silent.events(), [Event::Closed(CloseReason::HandshakeTimeout)]);
    let mut old = client(Era::Modern);
    old.drain();
    old.frame(&error(1, -32601, "method not found"));
    let refused = Event::HandshakeRefused(RpcError::new(-32601, "method not found"));
    assert_eq!(old.events(), [refused, Event::Closed(CloseReason::VersionMismatch)]);
}

#[test]
fn a_server_that_does_not_answer_the_probe_gets_the_handshake_after_the_timeout_of_the_probe() {
    let mut client = client(Era::Auto);
    client.drain();
    client.at(9_999);
    client.expect_silence();
    client.at(10_000);
    assert_eq!(openings(&mut client), ["initialize"], "and the probe is not cancelled");
    client.at(20_000);
    assert_eq!(client.events(), [Event::Closed(CloseReason::HandshakeTimeout)]);
}

#[test]
fn the_probe_has_its_own_timeout_and_the_handshake_that_follows_has_its_whole_timeout() {
    let deadline = |handshake: Option<u64>, probe: Option<u64>| {
        let seconds = |span: Option<u64>| span.map(std::time::Duration::from_secs);
        let mut client = Scripted::new(with(client_config(), |config| {
            (config.era, config.timeouts.handshake, config.timeouts.probe) = (Era::Auto, seconds(handshake), seconds(probe));
        }));
        client.drain();
        client.session.poll_timeout().map(|at| at.as_micros() / 1_000_000)
    };
    assert_eq!(deadline(Some(60), Some(10)), Some(10));
    assert_eq!(deadline(Some(5), Some(10)), Some(5));
    assert_eq!(deadline(None, Some(10)), Some(10));
    assert_eq!(deadline(Some(60), None), Some(60));
    assert_eq!(deadline(None, None), None);
    let mut client = Scripted::new(with(client_config(), |config| {
        (config.era, config.timeouts.probe) = (Era::Auto, Some(std::time::Duration::ZERO))
    }));
    assert_eq!(openings(&mut client), ["probe", "initialize"], "the timeout of the probe is zero");
    client.at(9_999);
    client.expect_silence();
    client.at(10_000);
    assert_eq!(client.events(), [Event::Closed(CloseReason::HandshakeTimeout)]);
}

#[test]
fn until_the_handshake_is_done_a_late_answer_to_the_probe_can_choose_the_modern_era() {
    let mut slow = client(Era::Auto);
    slow.at(10_000).drain();
    slow.frame(&discovered_quietly(1));
    assert_eq!(slow.session.era(), Some(Era::Modern));
    slow.drain();
    slow.frame(&result(2));
    slow.expect_silence();
    assert_eq!(slow.session.stats().late_frames, 1, "the answer to the handshake");

    let mut old = client(Era::Auto);
    old.at(10_000).drain();
    old.frame(&error(1, -32601, "method not found"));
    old.expect_silence();
    old.frame(r#"{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#);
    assert_eq!(old.session.era(), Some(Era::Legacy));
    old.drain();
    old.frame(&discovered_quietly(1));
    old.expect_silence();
    assert_eq!(old.session.era(), Some(Era::Legacy), "the handshake is done");
}

#[test]
fn the_end_of_input_before_the_answer_to_a_probe_leaves_the_era_open() {
    let mut client = client(Era::Auto);
    client.drain();
    client.session.handle_end(TransportEnd::Eof, client.now);
    assert_eq!(client.session.era(), None);
    assert_eq!(client.events().last(), Some(&Event::Closed(CloseReason::Eof)));
}

#[test]
fn calls_are_held_until_the_era_is_chosen_and_then_sent_in_its_form() {
    let mut client = client(Era::Auto);
    let id = client.call();
    client.invoke(Invoke::ping());
    assert_eq!(client.sent(), [probe(1)], "not even a ping goes before");
    client.frame(&discovered_quietly(1));
    let events = client.events();
    let [Event::Ready(_), Event::Done { outcome: Outcome::Invalid(Invalid::Unsupported), .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(client.sent(), [request(2, "tools/call", &format!(r#"{{"name":"t","_meta":{{{STAMP},"progressToken":2}}}}"#))]);
    client.frame(&result(2));
    let events = client.events();
    assert!(matches!(events.as_slice(), [Event::Done { id: done, outcome: Outcome::Result(_), .. }] if *done == id), "{events:?}");
}

#[test]
fn every_request_names_its_client_and_a_client_info_of_the_owner_is_replaced() {
    let mut client = modern();
    let meta = r#"{"traceparent":"00-1-2-01","io.modelcontextprotocol/clientInfo":{"name":"x","version":"0"},"tracestate":"a=b"}"#;
    let kept = r#""traceparent":"00-1-2-01","tracestate":"a=b""#;
    client.invoke(Invoke::list_tools(None).with_meta(json(meta)).without_progress());
    assert_eq!(
        client.next_sent().unwrap(),
        request(2, "tools/list", &format!(r#"{{"_meta":{{{kept},{STAMP},"progressToken":2}}}}"#))
    );
    client.invoke(Invoke::custom("x/y", json(&format!(r#"{{"a":1,"_meta":{meta}}}"#))));
    assert_eq!(
        client.next_sent().unwrap(),
        request(3, "x/y", &format!(r#"{{"a":1,"_meta":{{{kept},{STAMP},"progressToken":3}}}}"#))
    );
}

#[test]
fn a_call_may_have_a_log_level_of_its_own() {
    let mut client = modern();
    let level = |frame: String| {
        let meta = json(&frame).member("params").and_then(|params| params.member("_meta")).unwrap();
        meta.member("io.modelcontextprotocol/logLevel").map(|level| level.as_str().to_owned())
    };
    let call = || Invoke::call_tool("t", json("{}"));
    client.invoke(call().with_log_level(Level::Debug));
    client.invoke(call());
    client.invoke(Invoke::set_log_level(Level::Error));
    client.invoke(call());
    client.invoke(call().with_log_level(Level::Notice));
    let levels: Vec<_> = client.sent().into_iter().map(level).collect();
    let text = |level: &str| Some(format!("\"{level}\""));
    assert_eq!(levels, [text("debug"), None, text("error"), text("notice")]);
    let mut legacy = Scripted::client(client_config());
    legacy.invoke(call().with_log_level(Level::Debug).without_progress());
    assert!(!legacy.sent().concat().contains("logLevel"), "the level is that of the connection");
}

#[test]
fn the_log_level_is_a_member_of_every_later_request() {
    let mut client = modern();
    client.invoke(Invoke::set_log_level(Level::Warning));
    assert_eq!(client.outcome(), Outcome::Result(json("{}")));
    assert!(client.sent().is_empty(), "`logging/setLevel` is not sent");
    assert!(client.call_frame().contains(r#""io.modelcontextprotocol/logLevel":"warning""#));
}

#[test]
fn requests_and_notifications_that_the_modern_era_lacks_are_refused() {
    let mut client = modern();
    for call in [Invoke::ping(), Invoke::custom("ping", json("{}")), Invoke::custom("logging/setLevel", json("{}"))] {
        assert_eq!(client.session.invoke(call.clone(), client.now).unwrap_err().why, SendError::Unsupported, "{call:?}");
    }
    let custom = Notification::Custom { method: "notifications/x".into(), params: None };
    for notification in [Notification::RootsChanged, custom] {
        assert_eq!(client.session.notify(notification, client.now), Err(SendError::Unsupported));
    }
    client.expect_silence();
}

/// Basic, "Requests": without a handshake a server sends no request, and a client no response (G15).
#[test]
fn a_request_of_a_server_without_a_handshake_is_reported_and_not_answered() {
    let mut client = modern();
    client.call();
    client.drain();
    for method in ["ping", "sampling/createMessage", "elicitation/create", "roots/list", "x"] {
        client.frame(&request(7, method, "{}"));
        assert_eq!(client.violations(), [Violation::WrongDirection], "{method}");
        client.expect_silence();
    }
}

/// G15. A regression: a request with a faulty `_meta`, and a frame with an id that is no message, were answered with an error.
#[test]
fn a_faulty_request_of_a_server_without_a_handshake_is_reported_and_not_answered() {
    for (frame, rule) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":1}}"#, Violation::WrongDirection),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{},"_meta":{}}}"#, Violation::WrongDirection),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"progressToken":{}}}}"#, Violation::WrongDirection),
        (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, Violation::InvalidEnvelope),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}"#, Violation::InvalidParams),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, Violation::InvalidEnvelope),
        (r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"ping"}"#, Violation::RepeatedMember),
        (r#"{"jsonrpc":"2.0","id":7"#, Violation::NotJson),
    ] {
        let mut client = modern();
        client.frame(frame);
        assert_eq!(client.violations(), [rule], "{frame}");
        client.expect_silence();
    }
}

/// Basic, "Responses": a result of an unknown type is invalid, and so is a round without input requests and state.
#[test]
fn a_result_of_an_unknown_type_and_an_empty_round_are_invalid() {
    for (members, is_valid) in [
        (r#""resultType":"complete""#, true),
        (r#""content":[]"#, true),
        (r#""resultType":"input_required""#, false),
        (r#""resultType":"task""#, false),
        (r#""resultType":7"#, false),
    ] {
        let mut client = modern();
        client.call();
        client.drain();
        client.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{{members}}}}}"#));
        let events = client.events();
        let is_done = |event: &Event| matches!(event, Event::Done { outcome: Outcome::Result(_), .. });
        assert_eq!(events.iter().any(is_done), is_valid, "{members}: {events:?}");
        assert_eq!(events.contains(&Event::Violation(Violation::InvalidResponse)), !is_valid, "{members}");
    }
}

#[test]
fn a_cancel_or_the_loss_of_its_exchange_ends_a_stateless_call_once() {
    let mut client = modern();
    let (first, second) = (client.call(), client.call());
    client.drain();
    client.frame(&progress(2, 0.5));
    assert!(matches!(client.events().as_slice(), [Event::Progress { .. }]));
    client.session.cancel(first, None, client.now).unwrap();
    assert_eq!((client.outcome(), client.sent()), (Outcome::Cancelled, vec![cancelled(2)]));
    client.session.handle_gone(Gone::Exchange(protocol_core::ExchangeId::from_number(3)), client.now).unwrap();
    assert!(matches!(client.events().as_slice(), [Event::Done { id, outcome: Outcome::Lost, .. }] if *id == second));
    client.drain();
    client.frame(&result(2)).frame(&result(3));
    client.expect_silence();
}

// ---- Subscriptions ----
//
// A *successor* is a requested subscription that is to replace the current one (`docs/protocols/mcp.md`, "The client's end").

/// The request for a subscription to these kinds.
fn listen(id: u64, kinds: &str) -> String {
    request(id, "subscriptions/listen", &format!(r#"{{"notifications":{{{kinds}}},"_meta":{{{STAMP}}}}}"#))
}

fn acknowledged(id: u64, kinds: &str) -> String {
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    notification("notifications/subscriptions/acknowledged", &format!(r#"{{"notifications":{{{kinds}}},{meta}}}"#))
}

fn published(id: u64, method: &str, uri: &str) -> String {
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    notification(&format!("notifications/{method}"), &format!("{{{uri}{meta}}}"))
}

/// The frame with a change of a resource, for the subscription `id`.
fn updated(id: u64, uri: &str) -> String {
    published(id, "resources/updated", &format!(r#""uri":"{uri}","#))
}

/// The event of the frame [`updated`].
fn updated_event(uri: &str) -> Event {
    Event::Notification(Notification::ResourceUpdated { uri: Text::from(uri) })
}

/// A client whose subscription to changes of the list of tools, with id 2, is acknowledged.
fn listening() -> Scripted {
    let mut client = client(Era::Auto);
    client.drain();
    client.frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#));
    assert_eq!(client.sent(), [listen(2, r#""toolsListChanged":true"#)]);
    client.frame(&acknowledged(2, r#""toolsListChanged":true"#)).drain();
    client
}

#[test]
fn changes_of_lists_arrive_without_a_call_once_the_subscription_is_acknowledged() {
    let mut client = listening();
    client.frame(&published(2, "tools/list_changed", ""));
    assert_eq!(client.events(), [Event::Notification(Notification::ToolsChanged)]);
}

#[test]
fn a_client_subscribes_to_the_changes_of_each_list_that_the_server_declares() {
    for list in ["tools", "prompts", "resources"] {
        let mut client = client(Era::Auto);
        client.drain();
        client.frame(&discovered(1, r#""2026-07-28""#, &format!(r#"{{"{list}":{{"listChanged":true}}}}"#)));
        assert_eq!(client.sent(), [listen(2, &format!(r#""{list}ListChanged":true"#))]);
    }
}

#[test]
fn a_client_that_wants_no_changes_of_lists_makes_no_subscription() {
    let mut client = Scripted::new(with(client_config(), |config| (config.era, config.list_changes) = (Era::Modern, false)));
    client.drain();
    client.frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true}}"#));
    assert!(client.sent().is_empty());
}

#[test]
fn a_notice_of_a_kind_or_a_subscription_that_was_not_agreed_on_is_dropped() {
    let mut early = client(Era::Auto);
    early.drain().frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true}}"#)).drain();
    early.frame(&published(2, "tools/list_changed", ""));
    assert_eq!(early.events(), [Event::Violation(Violation::UnknownSubscription)], "before the acknowledgement");

    let mut client = listening();
    let unknown = [
        published(2, "prompts/list_changed", ""),
        updated(2, "u:"),
        published(99, "tools/list_changed", ""),
        notification("notifications/tools/list_changed", "{}"),
        notification("notifications/tools/list_changed", r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"2"}}"#),
        acknowledged(99, ""),
    ];
    for frame in unknown {
        client.frame(&frame);
        assert_eq!(client.events(), [Event::Violation(Violation::UnknownSubscription)], "{frame}");
    }
    for frame in [notification("notifications/resources/updated", "{}"), acknowledged(2, r#""toolsListChanged":7"#)] {
        client.frame(&frame);
        assert_eq!(client.events(), [Event::Violation(Violation::InvalidParams)], "{frame}");
    }
    client.expect_silence();
}

#[test]
fn a_resource_joins_the_subscription_by_a_successor_that_is_acknowledged_before_the_old_one_ends() {
    let mut client = listening();
    client.invoke(Invoke::subscribe("u:"));
    assert_eq!(client.sent(), [listen(3, r#""toolsListChanged":true,"resourceSubscriptions":["u:"]"#)]);
    client.frame(&published(2, "tools/list_changed", ""));
    assert_eq!(client.events(), [Event::Notification(Notification::ToolsChanged)], "the old subscription is still in effect");
    client.frame(&acknowledged(3, r#""toolsListChanged":true,"resourceSubscriptions":["u:"]"#));
    assert_eq!((client.outcome(), client.sent()), (Outcome::Result(json("{}")), vec![cancelled(2)]));
    client.frame(&published(2, "tools/list_changed", ""));
    client.expect_silence();
    client.frame(&updated(3, "u:/part"));
    assert_eq!(client.events(), [updated_event("u:/part")], "a part of the resource, too");
}

#[test]
fn concurrent_changes_all_take_effect_whatever_the_order_of_their_acknowledgements() {
    let (both, lists) = (r#""toolsListChanged":true,"resourceSubscriptions":["u:","v:"]"#, r#""toolsListChanged":true"#);
    for is_in_order in [true, false] {
        let mut client = listening();
        client.invoke(Invoke::subscribe("u:"));
        client.invoke(Invoke::subscribe("v:"));
        assert_eq!(client.sent()[1], listen(4, both));
        let acknowledgements = [acknowledged(3, &format!(r#"{lists},"resourceSubscriptions":["u:"]"#)), acknowledged(4, both)];
        let (first, second) = if is_in_order { (0, 1) } else { (1, 0) };
        client.frame(&acknowledgements[first]).frame(&acknowledgements[second]);
        let done = client.events().iter().filter(|event| matches!(event, Event::Done { outcome: Outcome::Result(_), .. })).count();
        assert_eq!((done, client.sent()), (2, vec![cancelled(2), cancelled(3)]));
        client.frame(&updated(4, "u:")).frame(&updated(4, "v:"));
        assert_eq!(client.events(), [updated_event("u:"), updated_event("v:")]);
    }
}

/// A regression: if a newer change was acknowledged first, its subscription already contained the resource of the older change, and
/// notifications of that resource were violations.
#[test]
fn notices_of_a_resource_are_dropped_without_a_violation_until_its_own_change_is_acknowledged() {
    let mut client = modern();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&acknowledged(2, r#""resourceSubscriptions":["u:"]"#)).drain();
    let joins = client.invoke(Invoke::subscribe("v:"));
    let leaves = client.invoke(Invoke::unsubscribe("u:"));
    client.drain();
    client.frame(&acknowledged(4, r#""resourceSubscriptions":["v:"]"#));
    assert!(matches!(&*client.events(), [Event::Done { id, outcome: Outcome::Result(_), .. }] if *id == leaves));
    client.frame(&updated(4, "v:"));
    assert_eq!(client.events(), [], "a notification before its change has taken effect is no fault of the server");
    client.frame(&acknowledged(3, r#""resourceSubscriptions":["u:","v:"]"#));
    assert!(matches!(&*client.events(), [Event::Done { id, outcome: Outcome::Result(_), .. }] if *id == joins));
    assert_eq!(client.sent(), [cancelled(2), cancelled(3)]);
    client.frame(&updated(4, "v:"));
    assert_eq!(client.events(), [updated_event("v:")]);
}

#[test]
fn the_subscription_ends_when_its_last_resource_leaves() {
    let mut client = modern();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&acknowledged(2, r#""resourceSubscriptions":["u:"]"#)).drain();
    client.invoke(Invoke::unsubscribe("u:"));
    assert_eq!((client.outcome(), client.sent()), (Outcome::Result(json("{}")), vec![cancelled(2)]));
    client.frame(&updated(2, "u:"));
    client.expect_silence();
    assert_eq!(client.session.stats().exchanges_out, 0);
}

/// A regression of G4: the session held more output than the limit until another method was called.
#[test]
fn the_cancel_of_the_last_subscription_counts_against_the_limit_of_output() {
    const HARD: usize = 2_000;
    let mut client = Scripted::new(with(client_config(), |config| {
        config.era = Era::Auto;
        config.limits.output_bytes_hard = HARD;
    }));
    client.drain().frame(&discovered_quietly(1)).drain();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&acknowledged(2, r#""resourceSubscriptions":["u:"]"#)).drain();
    let call = |text: String| Invoke::call_tool("t", json(&format!(r#"{{"text":"{text}"}}"#)));
    client.invoke(call(String::new()));
    let empty = client.sent().iter().map(String::len).sum::<usize>();
    client.invoke(call("x".repeat(HARD - empty)));
    client.invoke(Invoke::unsubscribe("u:"));
    let events = client.events();
    assert_eq!(events.last(), Some(&Event::Closed(CloseReason::Overload)), "{events:?}");
}

/// The successor that the first unsubscribe requests is acknowledged after the second unsubscribe has ended the subscription.
#[test]
fn two_overlapping_unsubscribes_leave_no_subscription() {
    let mut client = modern();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&acknowledged(2, r#""resourceSubscriptions":["u:"]"#));
    client.invoke(Invoke::subscribe("v:"));
    client.drain();
    client.frame(&acknowledged(3, r#""resourceSubscriptions":["u:","v:"]"#)).drain();
    client.invoke(Invoke::unsubscribe("u:"));
    client.invoke(Invoke::unsubscribe("v:"));
    assert_eq!(
        (client.outcome(), client.sent()),
        (Outcome::Result(json("{}")), vec![listen(4, r#""resourceSubscriptions":["v:"]"#), cancelled(3)])
    );
    client.frame(&acknowledged(4, r#""resourceSubscriptions":["v:"]"#));
    assert_eq!((client.outcome(), client.sent()), (Outcome::Result(json("{}")), vec![cancelled(4)]));
    client.frame(&updated(4, "v:"));
    client.expect_silence();
    assert_eq!(client.session.stats().exchanges_out, 0);
}

#[test]
fn a_resource_that_leaves_before_it_has_joined_is_not_subscribed_to() {
    let mut client = modern();
    client.invoke(Invoke::subscribe("u:"));
    client.invoke(Invoke::unsubscribe("u:"));
    client.drain();
    client.frame(&acknowledged(2, r#""resourceSubscriptions":["u:"]"#));
    assert_eq!((client.outcome(), client.sent()), (Outcome::Result(json("{}")), vec![cancelled(2)]));
    assert_eq!(client.session.stats().exchanges_out, 0);
}

#[test]
fn of_two_changes_of_a_resource_the_later_one_counts_whatever_the_order_of_their_acknowledgements() {
    let (with, without) = (r#""toolsListChanged":true,"resourceSubscriptions":["u:"]"#, r#""toolsListChanged":true"#);
    for is_in_order in [true, false] {
        let mut client = listening();
        client.invoke(Invoke::subscribe("u:"));
        client.invoke(Invoke::unsubscribe("u:"));
        client.drain();
        match is_in_order {
            true => client.frame(&acknowledged(3, with)).frame(&acknowledged(4, without)).drain(),
            false => client.frame(&acknowledged(4, without)).frame(&acknowledged(3, with)).drain(),
        };
        client.invoke(Invoke::subscribe("v:"));
        assert_eq!(client.sent(), [listen(5, r#""toolsListChanged":true,"resourceSubscriptions":["v:"]"#)]);
    }
}

#[test]
fn frames_for_a_subscription_whose_request_was_not_sent_have_no_effect() {
    let tools = r#""toolsListChanged":true"#;
    let (unknown, response) = (vec![Violation::UnknownSubscription], vec![Violation::UnknownResponse]);
    for (guess, violations) in [(acknowledged(2, tools), unknown), (result(2), response), (cancelled(2), vec![])] {
        let mut client = client(Era::Auto);
        client.drain();
        client.frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true}}"#)).events();
        client.frame(&guess);
        assert_eq!(client.violations(), violations, "{guess}");
        assert_eq!(client.sent(), [listen(2, tools)]);
        client.frame(&acknowledged(2, tools)).frame(&published(2, "tools/list_changed", ""));
        assert_eq!(client.events(), [Event::Notification(Notification::ToolsChanged)], "{guess}");
    }
    let mut client = modern();
    client.invoke(Invoke::subscribe("u:"));
    client.frame(&cancelled(2));
    assert_eq!(client.events(), [], "the call goes on");
    client.drain();
    client.frame(&acknowledged(2, r#""resourceSubscriptions":["u:"]"#));
    assert_eq!(client.outcome(), Outcome::Result(json("{}")));
}

#[test]
fn a_subscription_never_exceeds_its_limit_or_the_length_of_a_frame() {
    let long = "x".repeat(400);
    for (most, length) in [(2, 1 << 20), (1024, 1500)] {
        for is_held in [false, true] {
            let mut client = Scripted::new(with(client_config(), |config| {
                (config.era, config.limits.subscriptions, config.limits.frame_bytes) = (Era::Auto, most, length);
            }));
            client.drain();
            if !is_held {
                client.frame(&discovered_quietly(1)).drain();
            }
            let calls = ["a:", "b:", "c:"].map(|scheme| Invoke::subscribe(format!("{scheme}{long}").as_str()));
            let refused: Vec<_> = calls.into_iter().filter_map(|call| client.session.invoke(call, client.now).err()).collect();
            if is_held {
                assert!(refused.is_empty());
                client.frame(&discovered_quietly(1));
                assert_eq!(client.outcome(), Outcome::Invalid(Invalid::Unsupported));
            } else {
                assert!(matches!(refused.as_slice(), [refused] if refused.why == SendError::TooLarge), "{refused:?}");
            }
            let sent = client.sent();
            assert_eq!(sent.len(), 2);
            assert!(sent.iter().all(|frame| frame.len() <= length));
        }
    }
}

#[test]
fn a_level_or_a_subscription_without_its_parameter_is_not_sent() {
    use protocol_core::Op;
    for (op, params) in [(Op::SetLogLevel, r#"{"level":"loud"}"#), (Op::Subscribe, "{}"), (Op::Unsubscribe, r#"{"uri":7}"#)] {
        let call = Invoke::new(op, json(params));
        let mut client = modern();
        assert_eq!(client.session.invoke(call.clone(), client.now).unwrap_err().why, SendError::Params, "{op:?}");
        client.expect_silence();
        let mut client = self::client(Era::Auto);
        client.invoke(call);
        client.drain();
        client.frame(&discovered_quietly(1));
        assert_eq!(client.outcome(), Outcome::Invalid(Invalid::Unsupported), "{op:?}");
        assert!(client.sent().is_empty(), "{op:?}");
    }
}

#[test]
fn the_loss_of_its_exchange_ends_the_subscription() {
    let mut client = listening();
    let exchange = Gone::Exchange(protocol_core::ExchangeId::from_number(2));
    client.session.handle_gone(exchange, client.now).unwrap();
    assert_eq!(client.events(), [Event::Notification(Notification::SubscriptionEnded)]);
    assert!(client.session.handle_gone(exchange, client.now).is_err(), "the exchange is over");
    client.expect_silence();
    assert_eq!(client.session.stats().exchanges_out, 0);
}

/// The call that subscribes to the resource has a lower number than the subscription to lists, but its request is sent later.
#[test]
fn a_resource_that_was_held_for_the_probe_joins_the_subscription_to_lists() {
    let mut client = client(Era::Auto);
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#));
    let (lists, both) = (r#""toolsListChanged":true"#, r#""toolsListChanged":true,"resourceSubscriptions":["u:"]"#);
    assert_eq!(client.sent(), [listen(3, lists), listen(2, both)]);
    client.frame(&acknowledged(3, lists)).frame(&acknowledged(2, both));
    assert_eq!((client.outcome(), client.sent()), (Outcome::Result(json("{}")), vec![cancelled(3)]));
    client.frame(&updated(2, "u:")).frame(&published(2, "tools/list_changed", ""));
    assert_eq!(client.events(), [updated_event("u:"), Event::Notification(Notification::ToolsChanged)]);
}

#[test]
fn a_successor_keeps_its_kinds_when_the_subscription_ends_before_the_successor_is_acknowledged() {
    let (lists, one) = (r#""toolsListChanged":true"#, r#""toolsListChanged":true,"resourceSubscriptions":["u:"]"#);
    for is_acknowledged in [true, false] {
        let mut client = listening();
        client.invoke(Invoke::subscribe("u:"));
        assert_eq!(client.sent(), [listen(3, one)]);
        client.frame(&result(2)).frame(&if is_acknowledged { acknowledged(3, one) } else { error(3, 1, "no") }).drain();
        client.invoke(Invoke::subscribe("v:"));
        let next = if is_acknowledged {
            format!(r#"{lists},"resourceSubscriptions":["u:","v:"]"#)
        } else {
            r#""resourceSubscriptions":["v:"]"#.into()
        };
        assert_eq!(client.sent(), [listen(4, &next)]);
    }
}

#[test]
fn a_resource_that_the_server_does_not_agree_to_is_unsupported_and_the_subscription_stays() {
    let mut client = listening();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&acknowledged(3, r#""toolsListChanged":true"#));
    assert_eq!((client.outcome(), client.sent()), (Outcome::Invalid(Invalid::Unsupported), vec![cancelled(3)]));
    client.frame(&published(2, "tools/list_changed", ""));
    assert_eq!(client.events(), [Event::Notification(Notification::ToolsChanged)]);
}

#[test]
fn a_change_that_fails_or_is_cancelled_leaves_the_subscription_as_it_was() {
    let mut client = listening();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.frame(&error(3, -32602, "too many"));
    assert_eq!(client.outcome(), Outcome::Error(RpcError::new(-32602, "too many")));
    let id = client.invoke(Invoke::subscribe("v:"));
    assert_eq!(
        client.sent(),
        [listen(4, r#""toolsListChanged":true,"resourceSubscriptions":["v:"]"#)],
        "without the one that failed"
    );
    client.session.cancel(id, None, client.now).unwrap();
    assert_eq!((client.outcome(), client.sent()), (Outcome::Cancelled, vec![cancelled(4)]));
    client.frame(&acknowledged(4, "")).frame(&published(2, "tools/list_changed", ""));
    assert_eq!(client.events(), [Event::Notification(Notification::ToolsChanged)]);
}

#[test]
fn a_server_may_end_the_subscription_by_its_result_or_by_a_cancel_and_the_owner_is_notified_once() {
    for (ends, again) in [(result(2), cancelled(2)), (cancelled(2), result(2)), (error(2, -32603, "x"), cancelled(2))] {
        let mut client = listening();
        client.frame(&ends);
        assert_eq!(client.events(), [Event::Notification(Notification::SubscriptionEnded)], "{ends}");
        client.frame(&again).frame(&published(2, "tools/list_changed", ""));
        client.expect_silence();
        client.invoke(Invoke::subscribe("u:"));
        assert_eq!(client.sent(), [listen(3, r#""resourceSubscriptions":["u:"]"#)]);
    }
}

#[test]
fn the_refusal_of_the_first_subscription_is_not_reported_and_calls_go_on() {
    let mut client = client(Era::Auto);
    client.drain().frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true}}"#)).drain();
    client.frame(&error(2, -32601, "method not found"));
    client.expect_silence();
    assert!(client.call_frame().contains(r#""id":3"#));
}

#[test]
fn an_owner_may_listen_by_a_call_of_its_own_that_lasts_until_its_result() {
    let mut client = modern();
    let params = json(r#"{"notifications":{"promptsListChanged":true}}"#);
    client.invoke(Invoke::new(protocol_core::Op::Listen, params).without_progress());
    client.drain();
    client.frame(&acknowledged(2, r#""promptsListChanged":true"#)).frame(&published(2, "prompts/list_changed", ""));
    assert_eq!(client.events(), [Event::Notification(Notification::PromptsChanged)]);
    client.at(3_600_000);
    client.expect_silence();
    client.frame(&result(2));
    assert_eq!(client.outcome(), Outcome::Result(json("{}")));
}

#[test]
fn a_subscription_to_lists_that_is_not_acknowledged_in_time_is_cancelled_and_reported() {
    let lists = r#""toolsListChanged":true"#;
    for is_polled in [true, false] {
        let mut client = client(Era::Auto);
        client.drain().frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#));
        client.events();
        if is_polled {
            assert_eq!(client.sent().last(), Some(&listen(2, lists)));
        }
        client.at(9_999);
        assert_eq!(client.events(), []);
        client.at(10_000);
        assert_eq!(client.events(), [Event::Violation(Violation::SubscriptionUnacknowledged)]);
        let sent = client.sent();
        match is_polled {
            true => assert_eq!(sent, [cancelled(2)]),
            false => assert!(!sent.iter().any(|frame| frame.contains("listen")), "{sent:?}"),
        }
        assert_eq!((client.session.poll_timeout(), client.session.stats().exchanges_out), (None, 0));
        client.frame(&acknowledged(2, lists)).frame(&published(2, "tools/list_changed", ""));
        client.expect_silence();
        client.invoke(Invoke::subscribe("u:"));
        assert_eq!(client.sent(), [listen(3, r#""resourceSubscriptions":["u:"]"#)]);
    }
}

#[test]
fn the_time_for_an_acknowledgement_ends_with_the_acknowledgement_or_the_subscription() {
    /// Ends the wait for the acknowledgement of subscription 2. The texts are its kinds, and those of a successor.
    type End = fn(&mut Scripted, &str, &str);
    let (lists, one) = (r#""toolsListChanged":true"#, r#""toolsListChanged":true,"resourceSubscriptions":["u:"]"#);
    let ends: [(&str, End); 5] = [
        ("acknowledged", |client, lists, _| _ = client.frame(&acknowledged(2, lists))),
        ("refused", |client, _, _| _ = client.frame(&error(2, -32601, "method not found"))),
        ("cancelled by the server", |client, _, _| _ = client.frame(&cancelled(2))),
        ("its exchange is lost", |client, _, _| {
            let exchange = Gone::Exchange(protocol_core::ExchangeId::from_number(2));
            client.session.handle_gone(exchange, client.now).unwrap();
        }),
        ("replaced by a successor", |client, _, one| {
            client.invoke(Invoke::subscribe("u:"));
            client.drain();
            client.frame(&acknowledged(3, one));
        }),
    ];
    for (name, end) in ends {
        let mut client = client(Era::Auto);
        client
            .drain()
            .frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#))
            .drain();
        assert!(client.session.poll_timeout().is_some(), "{name}");
        end(&mut client, lists, one);
        client.drain();
        assert_eq!(client.session.poll_timeout(), None, "{name}");
    }
}

#[test]
fn an_acknowledgement_has_no_time_limit_or_one_of_at_least_a_microsecond() {
    for (limit, is_limited) in [(None, false), (Some(core::time::Duration::ZERO), true)] {
        let mut client = Scripted::new(with(client_config(), |config| {
            (config.era, config.timeouts.acknowledgement) = (Era::Auto, limit);
        }));
        client.drain().frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{"listChanged":true}}"#)).drain();
        assert_eq!(client.session.poll_timeout().is_some(), is_limited);
        if let Some(at) = client.session.poll_timeout() {
            assert!(at > client.now);
            client.session.handle_timeout(at);
            assert_eq!(client.violations(), [Violation::SubscriptionUnacknowledged]);
        }
    }
}

#[test]
fn a_call_that_listens_times_out_unless_it_is_acknowledged_in_time() {
    let params = || json(r#"{"notifications":{"promptsListChanged":true}}"#);
    let listen = || Invoke::new(protocol_core::Op::Listen, params()).without_progress();
    let mut client = modern();
    client.invoke(listen());
    client.at(10_000);
    assert_eq!(client.outcome(), Outcome::TimedOut(TimeoutKind::Idle));
    let limits = protocol_core::CallTimeouts::NONE.with_idle(Some(core::time::Duration::from_secs(1)));
    let total = limits.with_max_total(Some(core::time::Duration::from_secs(60)));
    for (limits, outcome) in [(limits, None), (total, Some(Outcome::TimedOut(TimeoutKind::MaxTotal)))] {
        let mut client = modern();
        client.invoke(listen().with_timeouts(limits));
        client.drain();
        client.frame(&acknowledged(2, r#""promptsListChanged":true"#));
        client.at(59_999);
        client.expect_silence();
        client.at(60_000);
        match outcome {
            Some(outcome) => assert_eq!((client.outcome(), client.sent().len()), (outcome, 1)),
            None => client.expect_silence(),
        }
    }
}

#[test]
fn nothing_of_a_subscription_is_left_when_the_session_has_closed() {
    let mut client = listening();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    client.session.handle_end(TransportEnd::Failed, client.now);
    assert_eq!(client.session.stats().exchanges_out, 0);
    let events = client.events();
    assert!(
        matches!(events.as_slice(), [Event::Done { outcome: Outcome::Lost, .. }, Event::Closed(CloseReason::Failed)]),
        "{events:?}"
    );
    assert!(client.session.handle_frame(published(2, "tools/list_changed", "").into(), Lane::CHANNEL, client.now).is_ok());
    client.expect_silence();
}

/// If a server acknowledges more kinds than were requested, notifications of the other kinds are violations.
#[test]
fn regression_a_kind_that_was_not_asked_for_stays_unwanted_although_the_server_acknowledges_it() {
    let mut client = listening();
    client.invoke(Invoke::subscribe("u:"));
    client.drain();
    let more = r#""toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["u:","v:"]"#;
    client.frame(&acknowledged(3, more)).drain();
    client.frame(&published(3, "prompts/list_changed", ""));
    assert_eq!(client.events(), [Event::Violation(Violation::UnknownSubscription)]);
}

/// A regression: the answer to a probe queued another request, or made the session ready, although the session had been closed.
#[test]
fn regression_the_answer_to_a_probe_has_no_effect_on_a_closing_session() {
    for answer in [discovered_quietly(1), error(1, -32601, "x"), unsupported(1, r#""2026-07-28""#), error(1, -32021, "x")] {
        let mut client = client(Era::Auto);
        client.session.close(Close::Now, client.now);
        client.frame(&answer);
        assert_eq!(client.sent(), [probe(1)], "{answer}");
        assert_eq!(client.events(), [Event::Closed(CloseReason::Local)], "{answer}");
    }
}

/// A regression: each held subscription was sent as a request for all of them. 500 subscriptions of 900 bytes became more than 100 MB, and
/// the session closed.
#[test]
fn regression_held_subscriptions_do_not_close_the_session_by_the_length_of_their_requests() {
    let mut client = client(Era::Auto);
    for number in 0..500 {
        client.invoke(Invoke::subscribe(format!("u:{number}{}", "x".repeat(900))));
    }
    client.sent();
    client.frame(&discovered_quietly(1));
    let limit = client.session.config().limits.output_bytes;
    assert!(client.session.stats().queued_bytes < 2 * limit, "{}", client.session.stats().queued_bytes);
    let refused = client
        .events()
        .iter()
        .filter(|event| matches!(event, Event::Done { outcome: Outcome::Invalid(Invalid::Unsupported), .. }))
        .count();
    assert!(refused > 0 && !client.session.is_closed());
}

trait CallFrame {
    /// Makes a call and returns its frame. Drops what was queued before.
    fn call_frame(&mut self) -> String;
}

impl CallFrame for Scripted {
    fn call_frame(&mut self) -> String {
        self.drain();
        self.call();
        self.next_sent().unwrap()
    }
}
