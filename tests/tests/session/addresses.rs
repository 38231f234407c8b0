//! Addresses for the user to open (MCP 2025-11-25, Client Features, "Elicitation", "URL Mode"): the end that may send them, their
//! answers, and the notification and the error that belong to them.

use std::time::Duration;

use protocol_core::{
    AskError, Event, InputFailed, InputRequest, InputResponse, NotLive, Notification, OpenUrl, OpenUrlResult, Outcome, Reply,
    RpcError, Sample, SendError, Violation,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{cancelled, error, json, notification, ok, request};
use testkit::{Pair, Scripted};

const ELICITATION: &str = "elicitation/create";
const COMPLETE: &str = "notifications/elicitation/complete";
/// The capabilities of the server.
const SERVER: &str = r#"{"tools":{}}"#;
/// The revisions with a handshake.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The capabilities of a client with both modes of elicitation.
const BOTH: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;

fn sign_in() -> OpenUrl {
    OpenUrl::new("Sign in?", "https://example.com/in?a=1&b=2").with_id("e-1")
}

/// The parameters of the request for [`sign_in`].
const SIGN_IN: &str = r#"{"mode":"url","message":"Sign in?","url":"https://example.com/in?a=1&b=2","elicitationId":"e-1"}"#;

/// The notification that the elicitation of [`sign_in`] is complete.
fn complete() -> Notification {
    Notification::ElicitationComplete { id: "e-1".into() }
}

/// A client after the handshake of `revision`. It declares forms if `form`, and addresses if `url`.
fn client(form: bool, url: bool, revision: &str) -> Scripted {
    let config = with(client_config(), |config| {
        (config.capabilities.elicitation, config.capabilities.elicitation_url) = (form, url);
    });
    Scripted::client_at(config, revision, SERVER)
}

// ---- Capabilities ----

#[test]
fn a_client_lists_its_elicitation_modes_only_if_it_supports_url_mode() {
    for (form, url, newest, expected) in [
        (false, false, "2025-11-25", ""),
        (true, false, "2025-11-25", r#","elicitation":{}"#),
        (false, true, "2025-11-25", r#","elicitation":{"url":{}}"#),
        (true, true, "2025-11-25", r#","elicitation":{"form":{},"url":{}}"#),
        (true, true, "2025-06-18", r#","elicitation":{}"#),
        (false, true, "2025-06-18", ""),
        (true, true, "2025-03-26", ""),
    ] {
        let mut client = Scripted::new(with(client_config(), |config| {
            let newest = protocol_core::mcp::Revision::from_name(newest).unwrap();
            config.protocol = protocol_core::Protocol::Mcp { side: protocol_core::mcp::Side::Client, newest };
            (config.capabilities.elicitation, config.capabilities.elicitation_url) = (form, url);
        }));
        let declared = format!(r#""capabilities":{{"roots":{{"listChanged":true}}{expected},"sampling":{{}}}}"#);
        let sent = client.sent();
        assert!(sent[0].contains(&declared), "{form} {url} {newest}: {sent:?}");
    }
}

#[test]
fn a_server_sends_an_address_only_to_a_client_that_declared_url_mode_in_a_revision_that_has_it() {
    let admitted = |revision: &str, declares: &str| {
        let mut server = Scripted::server_at(server_config(), revision, declares);
        let id = server.receive_call(1);
        let asked = server.session.request_input(id, sign_in().into(), server.now);
        assert_eq!(server.sent().len(), usize::from(asked.is_ok()));
        assert!(matches!(asked, Ok(_) | Err(AskError::Unsupported)), "{asked:?}");
        (asked.is_ok(), server.session.peer().unwrap().capabilities.elicitation_url)
    };
    for (declares, expected) in [
        ("{}", false),
        (r#"{"elicitation":{}}"#, false),
        (r#"{"elicitation":{"form":{}}}"#, false),
        (r#"{"elicitation":{"url":true}}"#, false),
        (r#"{"elicitation":{"url":null,"form":{}}}"#, false),
        (r#"{"elicitation":{"url":{}}}"#, true),
        (BOTH, true),
    ] {
        assert_eq!(admitted("2025-11-25", declares), (expected, expected), "{declares}");
    }
    for revision in REVISIONS {
        let has_url_mode = revision == "2025-11-25";
        assert_eq!(admitted(revision, BOTH), (has_url_mode, has_url_mode), "{revision}");
    }
    // A confirmation is a form, and forms need a capability of their own.
    let mut server = Scripted::server_at(server_config(), "2025-11-25", r#"{"elicitation":{"url":{}}}"#);
    let id = server.receive_call(1);
    let confirms = InputRequest::Confirm { message: "?".into() };
    assert_eq!(server.session.request_input(id, confirms, server.now), Err(AskError::Unsupported));
}

// ---- Addresses that a server sends ----

#[test]
fn an_address_is_sent_as_one_request_that_names_its_call_and_each_valid_answer_is_a_decision() {
    for (result, expected) in [
        (r#"{"action":"accept"}"#, Ok(OpenUrlResult::Accept)),
        (r#"{"action":"accept","content":{"a":1}}"#, Ok(OpenUrlResult::Accept)),
        (r#"{"action":"decline","content":[]}"#, Ok(OpenUrlResult::Decline)),
        (r#"{"action":"cancel"}"#, Ok(OpenUrlResult::Cancel)),
        (r#"{"action":"Accept"}"#, Err(())),
        (r#"{"action":null}"#, Err(())),
        ("{}", Err(())),
    ] {
        let mut server = Scripted::server_at(server_config(), "2025-11-25", BOTH);
        let id = server.receive_call(1);
        let key = server.ask(id, sign_in().into());
        let params = format!(r#"{},"_meta":{{"protocol-core/parent":1}}}}"#, SIGN_IN.strip_suffix('}').unwrap());
        assert_eq!(server.sent(), [request(2, ELICITATION, &params)]);

        server.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"result":{result}}}"#));
        let invalid = |()| InputFailed::Invalid("`action` is missing or unknown".into());
        let answer = expected.map(InputResponse::OpenUrl).map_err(invalid);
        let mut events = server.events();
        assert_eq!(events.pop(), Some(Event::Input { id, key, answer }), "{result}");
        let rule = expected.is_err().then_some(Event::Violation(Violation::InvalidResponse));
        assert_eq!(events, Vec::from_iter(rule), "{result}");
        server.respond(id);
        assert_eq!(server.sent(), [ok(1)]);
    }
}

#[test]
fn an_invalid_address_is_refused_before_it_is_sent() {
    let mut server = Scripted::server_at(server_config(), "2025-11-25", BOTH);
    let id = server.receive_call(1);
    for (open, why) in [
        (OpenUrl::new("?", "javascript:alert(1)").with_id("1"), "url must be absolute, as in https://example.com/"),
        (OpenUrl::new("?", "https://a/ b").with_id("1"), "url must not contain ' ' unescaped"),
        (OpenUrl::new("?", "https://a@b/").with_id("1"), "url must not have a user name before its host"),
        (OpenUrl::new("?", "https://a/"), "elicitationId is empty"),
    ] {
        let asked = server.session.request_input(id, open.into(), server.now);
        assert_eq!(asked, Err(AskError::Invalid(why.into())));
    }
    server.expect_silence();
    // A missing capability is reported before an invalid address.
    let mut server = Scripted::server_at(server_config(), "2025-11-25", "{}");
    let id = server.receive_call(1);
    assert_eq!(server.session.request_input(id, OpenUrl::new("?", "").into(), server.now), Err(AskError::Unsupported));
}

#[test]
fn a_request_to_open_an_address_can_be_withdrawn_and_can_time_out() {
    let config = with(server_config(), |config| config.timeouts.input = Some(Duration::from_secs(1)));
    let mut server = Scripted::server_at(config, "2025-11-25", BOTH);
    let id = server.receive_call(1);
    let first = server.ask(id, sign_in().into());
    let second = server.ask(id, sign_in().into());
    server.drain();
    server.session.abandon_input(first, server.now).unwrap();
    assert!(matches!(&server.sent()[..], [frame] if frame.starts_with(cancelled(2).trim_end_matches("}}"))));
    assert_eq!(server.session.abandon_input(first, server.now), Err(NotLive));
    server.at(1_000);
    assert_eq!(server.events(), [Event::Input { id, key: second, answer: Err(InputFailed::TimedOut) }]);
}

// ---- Addresses that a client receives ----

#[test]
fn a_client_answers_an_address_with_a_decision_that_has_no_content() {
    for (consent, action) in
        [(OpenUrlResult::Accept, "accept"), (OpenUrlResult::Decline, "decline"), (OpenUrlResult::Cancel, "cancel")]
    {
        for form in [true, false] {
            let mut client = client(form, true, "2025-11-25");
            let call = client.call();
            client.drain().frame(&request(7, ELICITATION, SIGN_IN));
            let events = client.events();
            let [Event::InputRequested { key, parent, ask, depth }] = &events[..] else { panic!("{events:?}") };
            assert_eq!((*parent, ask, *depth), (Some(call), &InputRequest::from(sign_in()), 0));
            client.session.provide_input(*key, InputResponse::OpenUrl(consent), client.now).unwrap();
            assert_eq!(client.sent(), [format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"action":"{action}"}}}}"#)]);
        }
    }
}

#[test]
fn elicitation_in_an_undeclared_or_unknown_mode_is_refused_with_the_error_of_the_protocol() {
    const FORM: &str = r#"{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}"#;
    const PLAIN: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;
    let by = |mode: &str| error(7, -32602, &format!("elicitation by {mode} was not declared"));
    let unknown = || error(7, -32601, "method not found: elicitation/create");
    let nonsense = || error(7, -32602, "mode must be form or url");
    for (form, url, revision, params, expected) in [
        (true, false, "2025-11-25", SIGN_IN, Some((by("url"), Violation::UndeclaredInput))),
        (true, true, "2025-06-18", SIGN_IN, Some((by("url"), Violation::UndeclaredInput))),
        (false, true, "2025-11-25", FORM, Some((by("form"), Violation::UndeclaredInput))),
        (false, true, "2025-11-25", PLAIN, Some((by("form"), Violation::UndeclaredInput))),
        (false, false, "2025-11-25", SIGN_IN, Some((unknown(), Violation::UndeclaredInput))),
        (false, true, "2025-06-18", SIGN_IN, Some((unknown(), Violation::UndeclaredInput))),
        (true, true, "2025-11-25", r#"{"mode":"voice","message":"?"}"#, Some((nonsense(), Violation::InvalidParams))),
        (true, true, "2025-11-25", r#"{"mode":1,"message":"?"}"#, Some((nonsense(), Violation::InvalidParams))),
        (true, true, "2025-11-25", FORM, None),
        (true, true, "2025-11-25", PLAIN, None),
        (true, true, "2025-11-25", SIGN_IN, None),
    ] {
        let mut client = client(form, url, revision);
        client.frame(&request(7, ELICITATION, params));
        let (sent, violations) = (client.sent(), client.violations());
        let expected = expected.map_or_else(Default::default, |(frame, rule)| (vec![frame], vec![rule]));
        assert_eq!((sent, violations), expected, "{form} {url} {revision} {params}");
    }
}

#[test]
fn an_address_that_hides_its_host_or_lacks_a_part_is_refused_with_the_reason() {
    let url = |url: &str| format!(r#"{{"mode":"url","message":"?","url":{url},"elicitationId":"1"}}"#);
    for (params, why) in [
        (url(r#""javascript:alert(1)""#), "url must be absolute"),
        (url(r#""https://example.com\u202e/""#), "url must not contain '\\u{202e}'"),
        (url(r#""https://good.example\\@evil.example/""#), "url must not contain '\\\\'"),
        (url(r#""https://good.example@evil.example/""#), "user name"),
        (url(r#""https://a/\u001b[2J""#), "url must not contain '\\u{1b}'"),
        (url(&format!(r#""https://a/{}""#, "x".repeat(8000))), "longer than 8000 bytes"),
        (url("5"), "url must be text"),
        (url(r#""https://a/\ud800""#), "url must be text"),
        (r#"{"mode":"url","url":"https://a/","elicitationId":"1"}"#.into(), "message must be text"),
        (r#"{"mode":"url","message":"?","url":"https://a/"}"#.into(), "elicitationId must be text"),
        (r#"{"mode":"url","message":"?","url":"https://a/","elicitationId":""}"#.into(), "elicitationId is empty"),
        (r#"{"mode":"url","message":"?","url":"https://a/","elicitationId":7}"#.into(), "elicitationId must be text"),
    ] {
        let mut client = client(true, true, "2025-11-25");
        client.frame(&request(7, ELICITATION, &params));
        let sent = client.sent();
        let message = serde_json::from_str::<serde_json::Value>(&sent[0]).unwrap()["error"].take();
        assert_eq!(message["code"], -32602, "{params}");
        assert!(message["message"].as_str().unwrap().contains(why), "{params}: {message}");
        assert_eq!(client.violations(), [Violation::InvalidParams], "{params}");
    }
}

// ---- The notification of completion ----

#[test]
fn a_server_notifies_its_client_of_a_completed_elicitation_only_in_the_revision_that_has_it() {
    for revision in REVISIONS {
        let has_url_mode = revision == "2025-11-25";
        let mut server = Scripted::server_at(server_config(), revision, BOTH);
        let notified = server.session.notify(complete(), server.now);
        assert_eq!(notified, if has_url_mode { Ok(()) } else { Err(SendError::Unsupported) }, "{revision}");
        let frame = notification(COMPLETE, r#"{"elicitationId":"e-1"}"#);
        assert_eq!(server.sent(), if has_url_mode { vec![frame.clone()] } else { vec![] }, "{revision}");
        for (declares, received) in [(true, has_url_mode), (false, false)] {
            let mut client = client(true, declares, revision);
            client.frame(&frame);
            let expected = if received { vec![Event::Notification(complete())] } else { vec![] };
            assert_eq!(client.events(), expected, "{revision} {declares}");
        }
    }
    let mut fresh = Scripted::new(server_config());
    assert_eq!(fresh.session.notify(complete(), fresh.now), Err(SendError::NotReady));
    let mut client = client(true, true, "2025-11-25");
    assert_eq!(client.session.notify(complete(), client.now), Err(SendError::WrongEnd));
    for params in ["{}", r#"{"elicitationId":5}"#, r#"{"elicitationId":null}"#] {
        client.frame(&notification(COMPLETE, params));
        assert_eq!((client.sent(), client.events()), (vec![], vec![Event::Violation(Violation::InvalidParams)]), "{params}");
    }
    let mut server = Scripted::server(server_config());
    server.frame(&notification(COMPLETE, r#"{"elicitationId":"e-1"}"#));
    assert_eq!(server.violations(), [Violation::WrongDirection]);
    // No end can send this notification as a custom one.
    let custom = Notification::Custom { method: COMPLETE.into(), params: Some(json("{}")) };
    assert_eq!(server.session.notify(custom, server.now), Err(SendError::WrongEnd));
}

// ---- The error ----

#[test]
fn an_error_that_lists_the_addresses_to_open_first_can_be_parsed_by_the_client() {
    let mut pair = Pair::ready();
    let call = pair.client.call();
    pair.run();
    let id = pair.server.request();
    let urls = [sign_in(), OpenUrl::new("Pay", "https://example.com/pay").with_id("e-2")];
    pair.server.reply(id, Reply::Error(RpcError::url_elicitation_required(&urls)));
    pair.run();
    let events = pair.client_events();
    let [Event::Done { id, outcome: Outcome::Error(error), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*id, error.code, error.required_urls()), (call, RpcError::URL_ELICITATION_REQUIRED, urls.to_vec()));
}

// ---- Both ends ----

#[test]
fn an_address_of_a_nested_call_has_the_depth_of_that_call_and_its_answer_reaches_the_server() {
    let mut pair = Pair::ready();
    pair.client.call();
    pair.run();
    let id = pair.server.request();
    let key = pair.server.ask(id, InputRequest::from(Sample::new("?")));
    pair.run();
    let events = pair.client_events();
    let [Event::InputRequested { key: sampled, depth: 1, .. }] = events[..] else { panic!("{events:?}") };
    // A call made for the sampling request has the depth 1 of that request, and so has the address that the handler of this call sends.
    let mut nested = protocol_core::Invoke::call_tool("t", json("{}"));
    nested.parent = Some(sampled);
    let nested = pair.client.session.invoke(nested, pair.client.now).unwrap();
    pair.run();
    let inner = pair.server.request();
    let opens = pair.server.ask(inner, sign_in().into());
    pair.run();
    let events = pair.client_events();
    let [Event::InputRequested { key: asked, parent, ref ask, depth: 1 }] = events[..] else { panic!("{events:?}") };
    assert_eq!((parent, ask), (Some(nested), &InputRequest::from(sign_in())));
    pair.client.session.provide_input(asked, InputResponse::OpenUrl(OpenUrlResult::Accept), pair.client.now).unwrap();
    pair.run();
    let consented = Event::Input { id: inner, key: opens, answer: Ok(InputResponse::OpenUrl(OpenUrlResult::Accept)) };
    assert_eq!(pair.server_events(), [consented]);
    pair.server.session.abandon_input(key, pair.server.now).unwrap();
}
