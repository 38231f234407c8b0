//! The handshake of MCP, from both ends (Lifecycle).

use std::time::Duration;

use protocol_core::MemberFault::{Missing, Unreadable, WrongType};
use protocol_core::mcp::{Era, Revision};
use protocol_core::{AskError, CloseReason, Event, Icon, InputRequest, Json, Lane, Outcome, Progress, RpcError, Sample, Violation};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, discovered, initialize, result, stateless_request};
use testkit::{Pair, Scripted};

#[test]
fn two_sessions_agree_on_the_newest_revision_with_a_handshake_and_report_their_peer() {
    let pair = Pair::ready();
    let (server, client) = (pair.client.session.peer().unwrap(), pair.server.session.peer().unwrap());
    assert_eq!((server.identity.name.as_str(), server.protocol.as_str()), ("server", "2025-11-25"));
    assert_eq!((client.identity.name.as_str(), client.protocol.as_str()), ("client", "2025-11-25"));
    assert!(server.capabilities.tools && server.capabilities.logging && client.capabilities.sampling && client.capabilities.roots);
}

/// Regression: a client accepted an answer to a handshake request that it had not sent yet.
#[test]
fn an_answer_that_comes_before_the_handshake_request_was_sent_is_a_violation() {
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    let mut client = Scripted::new(client_config());
    client.frame(answer);
    assert_eq!((client.violations(), client.session.is_ready()), (vec![Violation::UnknownResponse], false));
    assert_eq!(client.sent().len(), 1, "the handshake request");
    client.frame(answer);
    assert!(client.session.is_ready());
}

/// Over HTTP a server agreed on the first revision, and then refused each request that named it. The rows for HTTP are in the tests of its
/// server and of its client.
#[test]
fn each_end_serves_every_revision_that_it_has_agreed_on() {
    for revision in Revision::ALL {
        let name = revision.as_str();
        let mut server = Scripted::new(server_config());
        let mut client = Scripted::new(with(client_config(), |config| {
            config.era = if revision.has_handshake() { Era::Legacy } else { Era::Modern };
        }));
        if revision.has_handshake() {
            server.frame(&initialize(7, name, "{}"));
            let agreed = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"protocolVersion":"{name}""#);
            assert!(server.sent()[0].starts_with(&agreed), "{name}");
            server.frame(&call_tool(8, false));
            client.drain().frame(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{name}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
            ));
        } else {
            server.frame(&stateless_request(8, "tools/call", r#""name":"t","#, "{}", ""));
            client.drain().frame(&discovered(1, &format!(r#""{name}""#), r#"{"tools":{}}"#));
        }
        let id = server.request();
        server.respond(id);
        assert!(server.sent().iter().any(|frame| frame.contains(r#""id":8,"result""#)), "{name}");
        client.drain().call();
        assert!(client.sent().iter().any(|frame| frame.contains("tools/call")), "{name}");
        assert_eq!(client.session.peer().unwrap().protocol, name);
    }
}

#[test]
fn a_server_answers_an_unknown_revision_with_its_own_newest() {
    for asked in ["2099-01-01", "1.0"] {
        let mut server = Scripted::new(server_config());
        server.frame(&initialize(7, asked, "{}"));
        let sent = server.sent();
        assert!(sent[0].starts_with(r#"{"jsonrpc":"2.0","id":7,"result":{"protocolVersion":"2025-11-25""#), "{sent:?}");
    }
}

#[test]
fn a_client_closes_if_the_server_answers_with_a_revision_that_the_client_does_not_support() {
    let mut client = Scripted::new(client_config());
    let call = client.call();
    client.sent();
    client.frame(
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2099-01-01","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
    );
    assert_eq!(client.sent(), Vec::<String>::new(), "no confirmation");
    let events = client.events();
    assert!(matches!(events[0], Event::Done { id, outcome: Outcome::Lost, .. } if id == call), "{events:?}");
    assert_eq!(events[1], Event::Closed(CloseReason::VersionMismatch));
}

#[test]
fn a_client_closes_if_its_handshake_is_refused_or_gets_a_malformed_result() {
    let mut client = Scripted::new(client_config());
    client.drain().frame(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"license expired"}}"#);
    let why = RpcError::new(-32602, "license expired");
    assert_eq!(client.events(), [Event::HandshakeRefused(why), Event::Closed(CloseReason::HandshakeRefused)]);
    // The reason of these said that the peer had refused the handshake, although this end refuses the answer; and later, that a member was
    // "missing or malformed".
    let (version, capabilities) = (r#""protocolVersion":"2025-11-25""#, r#""capabilities":{}"#);
    for (answer, member, fault) in [
        (r#""result":{}"#.to_owned(), "protocolVersion", Missing),
        (r#""result":{"protocolVersion":null}"#.to_owned(), "protocolVersion", WrongType),
        (format!(r#""result":{{{version}}}"#), "capabilities", Missing),
        (format!(r#""result":{{{version},"capabilities":[]}}"#), "capabilities", WrongType),
        (format!(r#""result":{{{version},{capabilities}}}"#), "serverInfo", Missing),
        (format!(r#""result":{{{version},{capabilities},"serverInfo":"s"}}"#), "serverInfo", WrongType),
        (format!(r#""result":{{{version},{capabilities},"serverInfo":{{"name":"s"}}}}"#), "serverInfo.version", Missing),
        (format!(r#""result":{{{version},{capabilities},"serverInfo":{{"name":7,"version":"1"}}}}"#), "serverInfo.name", WrongType),
        (format!(r#""result":{{{version},"serverInfo":{{"name":"s","version":"1"}}}}"#), "capabilities", Missing),
        (r#""result":[]"#.to_owned(), "result", Unreadable("`result` is no object")),
        (r#""error":null"#.to_owned(), "result", Unreadable("`error` is null")),
    ] {
        let mut client = Scripted::new(client_config());
        client.drain().frame(&format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#));
        assert_eq!(client.events(), [Event::Closed(CloseReason::AnswerInvalid(member, fault))], "{answer}");
    }
    let why = CloseReason::AnswerInvalid("serverInfo", Missing).to_string();
    assert_eq!(why, "this end refused the peer's answer to the handshake: `serverInfo` is missing");
}

#[test]
fn an_end_whose_handshake_times_out_closes_without_a_cancel() {
    let mut client = Scripted::new(client_config());
    client.sent();
    client.at(9_999);
    assert_eq!(client.events(), []);
    client.at(10_000);
    assert_eq!(client.events(), [Event::Closed(CloseReason::HandshakeTimeout)]);
    assert_eq!(client.sent(), Vec::<String>::new());

    let mut server = Scripted::new(server_config());
    server.at(10_000);
    assert_eq!(server.events(), [Event::Closed(CloseReason::HandshakeTimeout)]);
}

#[test]
fn a_handshake_with_a_timeout_of_zero_fails_immediately() {
    for config in [client_config(), server_config()] {
        let mut end = Scripted::new(with(config, |config| config.timeouts.handshake = Some(Duration::ZERO)));
        assert_eq!(end.session.poll_timeout(), None);
        assert_eq!((end.events(), end.sent()), (vec![Event::Closed(CloseReason::HandshakeTimeout)], Vec::<String>::new()));
    }
}

#[test]
fn a_request_before_the_handshake_is_refused_immediately_and_the_session_goes_on() {
    let mut server = Scripted::new(server_config());
    server.frame(&call_tool(5, false));
    assert_eq!(
        server.sent(),
        [r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"the first request must be the handshake"}}"#]
    );
    assert_eq!(server.events(), [Event::Violation(Violation::OutOfPhase)]);
    server.frame(&initialize(6, "2025-11-25", "{}"));
    assert!(server.sent()[0].contains("protocolVersion"));
}

#[test]
fn a_legacy_server_refuses_discover_as_an_unknown_method_and_then_accepts_a_handshake() {
    let mut server = Scripted::new(with(server_config(), |config| config.era = Era::Legacy));
    server.frame(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#);
    assert_eq!(
        server.sent(),
        [r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: server/discover"}}"#]
    );
    server.frame(&initialize(2, "2025-11-25", "{}"));
    assert!(server.sent()[0].contains(r#""id":2,"result""#));
}

#[test]
fn a_request_between_the_response_to_the_handshake_and_its_confirmation_is_served() {
    let mut server = Scripted::new(server_config());
    server.frame(&initialize(0, "2025-11-25", "{}"));
    server.frame(&call_tool(1, false));
    server.request();
}

/// Several clients behind a bridge shared one server. The handshake of each client after the first was refused.
#[test]
fn another_handshake_sets_the_terms_of_later_requests_and_running_calls_keep_theirs() {
    let mut server = Scripted::server(server_config());
    server.frame(&call_tool(1, true));
    let running = server.request();
    server.frame(&initialize(9, "2024-11-05", "{}"));
    assert!(server.sent()[0].contains(r#""id":9,"result":{"protocolVersion":"2024-11-05""#));
    let [Event::Ready(peer)] = &server.events()[..] else { panic!("a peer") };
    assert_eq!((peer.protocol.as_str(), peer.capabilities.sampling), ("2024-11-05", false));

    // Without a confirmation of the second handshake: calls that run before it may need an answer.
    server.ask(running, Sample::new("?").into());
    assert!(server.sent()[0].contains("sampling/createMessage"));
    server.report(running, Progress::value(1.0).with_message("m"));
    assert!(server.sent()[0].contains(r#""message":"m""#));
    server.frame(&call_tool(2, true));
    let later = server.request();
    let refused = server.session.request_input(later, InputRequest::from(Sample::new("?")), server.now);
    assert!(matches!(refused, Err(AskError::Unsupported)), "{refused:?}");
    server.report(later, Progress::value(1.0).with_message("m"));
    assert!(!server.sent()[0].contains("message\":\"m"), "the first revision has no messages");

    // The ids of both calls are in use, so the answer to a handshake with such an id would end the call.
    for id in [1, 2] {
        server.frame(&initialize(id, "2025-06-18", "{}"));
        assert_eq!((server.events(), server.sent()), (vec![Event::Violation(Violation::DuplicateRequest)], vec![]));
    }
    server.frame(r#"{"jsonrpc":"2.0","id":10,"method":"initialize","params":{}}"#);
    assert!(server.sent()[0].contains(r#""id":10,"error":{"code":-32602"#));
    assert_eq!(server.session.peer().unwrap().protocol, "2024-11-05");
    server.events();
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!((server.events(), server.sent()), (vec![], vec![]), "a second confirmation is ignored");
    server.respond(running).respond(later);
    assert_eq!(server.sent().iter().filter(|frame| frame.contains(r#""result""#)).count(), 2);
}

#[test]
fn input_requests_wait_for_a_confirmation_also_if_another_handshake_comes_before_it() {
    let mut server = Scripted::new(server_config());
    server.frame(&initialize(0, "2025-11-25", r#"{"sampling":{}}"#)).frame(&call_tool(1, false));
    let id = server.request();
    server.ask(id, Sample::new("?").into());
    server.frame(&initialize(2, "2025-11-25", "{}"));
    assert_eq!(server.sent().len(), 2, "the answers to the handshakes");
    server.frame(&cancelled(2));
    assert!(server.violations().contains(&Violation::CancelledHandshake));
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert!(server.sent()[0].contains("sampling/createMessage"));
}

/// Over HTTP each request has a lane, and each client has a session: no other client can make a handshake in it.
#[test]
fn another_handshake_on_another_lane_is_refused_and_changes_nothing() {
    let mut server = Scripted::server(server_config());
    server.events();
    server.session.handle_frame(initialize(9, "2024-11-05", "{}").into(), Lane::new(3), server.now).unwrap();
    assert_eq!(server.sent(), [r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32600,"message":"the handshake was made before"}}"#]);
    assert_eq!(server.violations(), [Violation::OutOfPhase]);
    assert_eq!(server.session.peer().unwrap().protocol, "2025-11-25");
}

#[test]
fn a_server_introduces_itself_with_what_the_revision_knows() {
    let config = with(server_config(), |config| {
        config.identity.website = Some("https://example.com".into());
        config.identity.icons = vec![Icon::new("data:,")];
        config.meta.insert("a.b/c".into(), Json::parse("[1]").unwrap());
    });
    let name = format!(r#""name":"{}","version":"{}""#, config.identity.name, config.identity.version);
    let full = format!(r#"{{{name},"websiteUrl":"https://example.com","icons":[{{"src":"data:,"}}]}}"#);
    for (revision, server_info) in [("2025-06-18", format!("{{{name}}}")), ("2025-11-25", full.clone())] {
        let mut server = Scripted::new(config.clone());
        server.frame(&initialize(1, revision, "{}"));
        let end = format!(r#""serverInfo":{server_info},"_meta":{{"a.b/c":[1]}}}}}}"#);
        assert!(server.sent()[0].ends_with(&end), "{revision}");
    }
    let mut server = Scripted::new(config);
    server.frame(&stateless_request(1, "server/discover", "", "{}", ""));
    let meta = format!(r#""_meta":{{"a.b/c":[1],"io.modelcontextprotocol/serverInfo":{full}}}}}}}"#);
    assert!(server.sent()[0].ends_with(&meta));
}

/// Regression: the answer to the handshake ended a stateless request with the same id.
#[test]
fn a_handshake_with_the_id_of_a_running_request_is_not_answered() {
    let mut server = Scripted::new(server_config());
    server.frame(&stateless_request(1, "tools/call", r#""name":"t","#, "{}", ""));
    let id = server.request();
    server.frame(&initialize(1, "2025-11-25", "{}"));
    assert_eq!((server.events(), server.sent()), (vec![Event::Violation(Violation::DuplicateRequest)], vec![]));
    server.respond(id).frame(&initialize(1, "2025-11-25", "{}"));
    assert_eq!(server.sent().len(), 2);
}

#[test]
fn the_refusal_of_a_malformed_handshake_names_the_wrong_member_and_a_second_handshake_succeeds() {
    for (params, what) in [
        (r#"{}"#, "protocolVersion must be text"),
        (r#"{"protocolVersion":1,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#, "protocolVersion must be text"),
        (
            r#"{"protocolVersion":"2025-11-25","capabilities":[],"clientInfo":{"name":"c","version":"1"}}"#,
            "capabilities must be an object",
        ),
        (r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#, "clientInfo must be an object with a name and a version"),
        (
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":["c","1"]}"#,
            "clientInfo must be an object with a name and a version",
        ),
    ] {
        let mut server = Scripted::new(server_config());
        server.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#));
        assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32602,"message":"{what}"}}}}"#)]);
        server.frame(&initialize(2, "2025-11-25", "{}"));
        assert!(server.sent()[0].contains("result"));
    }
}

#[test]
fn the_handshake_cannot_be_cancelled() {
    let confirmation = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut server = Scripted::new(server_config());
    server.frame(&initialize(3, "2025-11-25", "{}")).frame(&cancelled(3));
    assert!(server.events().contains(&Event::Violation(Violation::CancelledHandshake)));
    let sent = server.sent();
    assert!(sent.len() == 1 && sent[0].starts_with(r#"{"jsonrpc":"2.0","id":3,"result":"#), "{sent:?}");
    server.frame(confirmation);
    assert!(server.session.is_ready());

    // Each end has ids of its own. This cancel names a request of the server, which does not exist, and not the handshake of the client.
    let mut client = Scripted::new(client_config());
    client.drain().frame(&cancelled(1)).expect_silence();
    client.frame(
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
    );
    assert!(client.session.is_ready());
    assert_eq!(client.sent(), [confirmation]);
}

#[test]
fn a_server_holds_its_input_requests_until_the_client_has_confirmed_the_handshake() {
    let mut server = Scripted::new(server_config());
    server.frame(&initialize(0, "2025-11-25", r#"{"roots":{}}"#)).frame(&call_tool(1, false));
    let id = server.request();
    server.sent();
    server.session.request_input(id, protocol_core::InputRequest::Roots, server.now).unwrap();
    assert_eq!(server.sent(), Vec::<String>::new());
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert!(server.sent()[0].contains("roots/list"));
}

#[test]
fn the_newest_revision_to_offer_can_be_configured() {
    let config = with(server_config(), |config| {
        config.protocol = protocol_core::Protocol::Mcp {
            side: protocol_core::mcp::Side::Server,
            newest: protocol_core::mcp::Revision::R2025_03_26,
        };
    });
    let mut server = Scripted::new(config);
    server.frame(&initialize(0, "2025-11-25", "{}"));
    assert!(server.sent()[0].contains(r#""protocolVersion":"2025-03-26""#));
}

#[test]
fn a_late_response_to_the_handshake_changes_nothing() {
    let mut client = Scripted::client(client_config());
    client.frame(&result(1));
    assert_eq!((client.events(), client.sent()), (vec![], vec![]));
    assert_eq!(client.session.stats().late_frames, 1);
}
