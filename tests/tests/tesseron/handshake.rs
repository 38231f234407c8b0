//! The handshake, the claim and the resume of Tesseron as far as a session handles them (`docs/protocols/tesseron.md`, "Versions" to
//! "Resume"): the rule of versions, the claim states of a session, and how each end closes. The registry (`tesseron::claims`) handles
//! codes, tokens and the right to resume. Names of tests cite rules of that page by number, such as `item_21_…` (see "Former numbers"
//! there).

use protocol_core::MemberFault::{Missing, WrongType};
use protocol_core::mcp::Era;
use protocol_core::tesseron::AppId;
use protocol_core::tesseron::{App, ClaimState, ResumeCredentials, Welcome};
use protocol_core::{
    AskError, CloseReason, Config, Event, Identity, InputRequest, Invoke, NotLive, Notification, Op, PeerInfo, RpcError, Sample,
    SendError, TransportEnd, Violation,
};
use serde_json::Value;
use testkit::Scripted;
use testkit::config::with;
use testkit::config::{agent, agent_capabilities, app_config, asking_gateway_config, gateway_config, welcome};
use testkit::scripted::{error, json, notification, request};
use testkit::tesseron::{CLAIMED, WELCOME, call_action, hello, invoke, invoked, named, progress, sample};

/// An app that declares only its id and its name.
fn bare_app() -> Config {
    Config::tesseron_app(&AppId::parse("ledger").unwrap(), "Ledger", App::default())
}

fn credentials() -> ResumeCredentials {
    ResumeCredentials { session_id: "s_1".into(), resume_token: "rt_1".into() }
}

fn resuming_app() -> Config {
    let mut app = App::default();
    app.resume = Some(credentials());
    Config::tesseron_app(&AppId::parse("ledger").unwrap(), "Ledger", app)
}

/// The members that the hello of the bare app and the resume of the resuming app have in common, without the version.
const BARE: &str = r#""app":{"id":"ledger","name":"Ledger","origin":"unknown"},"actions":[],"resources":[],"capabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true}"#;

/// The frame of an app's resume.
fn resume(id: u64) -> String {
    request(id, "tesseron/resume", &format!(r#"{{"protocolVersion":"1.2.0","sessionId":"s_1","resumeToken":"rt_1",{BARE}}}"#))
}

/// The handshake request that is the only queued event.
#[track_caller]
fn handshake_request(end: &mut Scripted) -> (PeerInfo, Option<ResumeCredentials>) {
    match end.events().as_slice() {
        [Event::HandshakeRequest { peer, resume }] => (*peer.clone(), resume.clone()),
        other => panic!("not one handshake request: {other:?}"),
    }
}

/// Polls all queued events. Returns the peer that the last one, an [`Event::PeerChanged`], describes.
#[track_caller]
fn changed(end: &mut Scripted) -> PeerInfo {
    match end.events().last() {
        Some(Event::PeerChanged(peer)) => *peer.clone(),
        other => panic!("the peer has not changed: {other:?}"),
    }
}

// ---- The app's end ----

#[test]
fn items_18_19_32_the_first_frame_is_a_hello_with_all_five_params_and_no_unset_members() {
    let mut app = Scripted::new(bare_app());
    let expected = request(1, "tesseron/hello", &format!(r#"{{"protocolVersion":"1.2.0",{BARE}}}"#));
    assert_eq!(app.sent(), [expected]);
    app.frame(WELCOME).at(1_000_000);
    assert_eq!(app.sent(), Vec::<String>::new(), "the hello is sent once");
}

#[test]
fn item_19_a_hello_has_every_member_that_is_set() {
    let mut app = App::default();
    (app.origin, app.icon_url) = ("http://127.0.0.1:8080".into(), Some("http://127.0.0.1/i.png".into()));
    app.actions = json(r#"[{"name":"a b","description":"","inputSchema":{}}]"#);
    app.resources = json(r#"[{"name":"r","description":"d","subscribable":false}]"#);
    let mut config = Config::tesseron_app(&AppId::parse("ledger").unwrap(), "The \"Ledger\"", app);
    config.identity.version = "3.1".into();
    config.instructions = Some("Books".into());
    (config.capabilities.sampling, config.capabilities.elicitation, config.capabilities.resources_subscribe) =
        (false, false, false);
    let params = r#"{"protocolVersion":"1.2.0","app":{"id":"ledger","name":"The \"Ledger\"","origin":"http://127.0.0.1:8080","description":"Books","iconUrl":"http://127.0.0.1/i.png","version":"3.1"},"actions":[{"name":"a b","description":"","inputSchema":{}}],"resources":[{"name":"r","description":"d","subscribable":false}],"capabilities":{"streaming":true,"subscriptions":false,"sampling":false,"elicitation":false}}"#;
    assert_eq!(Scripted::new(config).sent(), [request(1, "tesseron/hello", params)]);
}

#[test]
fn item_20_an_app_cannot_be_configured_with_an_invalid_id() {
    // A configuration accepts only an `AppId`, so no frame can have an invalid id.
    for id in ["", "Ledger", "1edger", "_ledger", "led-ger", "led.ger", "tesseron", "mcp", "system"] {
        AppId::parse(id).unwrap_err();
    }
}

#[test]
fn item_21_an_app_that_is_refused_closes_and_sends_no_second_hello() {
    for (code, message) in [(-32000, "Protocol mismatch"), (-32602, "app.id"), (-32603, "no"), (-32009, "no")] {
        let mut app = Scripted::new(app_config());
        app.sent();
        app.frame(&error(1, code, message));
        let why = RpcError::new(code, message);
        assert_eq!(app.events(), [Event::HandshakeRefused(why), Event::Closed(CloseReason::HandshakeRefused)]);
        assert!(app.session.is_closed());
        app.frame(WELCOME).frame(&error(1, code, message)).at(1_000_000).expect_silence();
    }
}

#[test]
fn items_22_37_a_claim_right_before_or_after_the_welcome_is_not_lost() {
    for frames in [[WELCOME, CLAIMED], [CLAIMED, WELCOME]] {
        let mut app = Scripted::new(app_config());
        app.sent();
        for frame in frames {
            app.frame(
                &frame.replace(r#""sampling":true"#, if frame == WELCOME { r#""sampling":false"# } else { r#""sampling":true"# }),
            );
        }
        let events = app.events();
        assert!(matches!(events[..], [Event::Ready(_), Event::PeerChanged(_)]), "{events:?}");
        let peer = app.session.peer().unwrap();
        assert!(peer.capabilities.sampling);
        let credentials = peer.credentials.as_ref().unwrap();
        assert_eq!((credentials.claim_code.as_deref(), credentials.resume_token.as_deref()), (None, Some("rt_1")));
    }
}

#[test]
fn item_37_of_two_claims_before_the_welcome_the_last_one_counts() {
    let mut app = Scripted::new(app_config());
    app.drain().frame(&CLAIMED.replace("acme-cli", "first")).frame(&CLAIMED.replace("acme-cli", "second")).frame(WELCOME);
    assert_eq!(changed(&mut app).identity.name, "second");
}

#[test]
fn item_37_a_claim_without_capabilities_before_the_welcome_keeps_those_of_the_welcome() {
    let mut app = Scripted::new(app_config());
    app.drain().frame(&notification("tesseron/claimed", r#"{"agent":{"id":"a","name":"A"},"claimedAt":1}"#)).frame(WELCOME);
    let peer = changed(&mut app);
    assert!(peer.capabilities.sampling && peer.capabilities.elicitation);
    assert_eq!(peer.identity.name, "a");
}

#[test]
fn item_23_a_welcome_without_a_token_or_a_code_is_accepted() {
    for without in [r#","claimCode":"AB3X-7K""#, r#","resumeToken":"rt_1""#, r#","claimCode":"AB3X-7K","resumeToken":"rt_1""#] {
        let mut app = Scripted::new(app_config());
        app.drain().frame(&WELCOME.replace(without, ""));
        assert!(app.session.is_ready());
        let credentials = app.session.peer().unwrap().credentials.clone().unwrap();
        assert_eq!(credentials.claim_code.is_none(), without.contains("claimCode"));
        assert_eq!(credentials.resume_token.is_none(), without.contains("resumeToken"));
    }
}

#[test]
fn a_claim_code_of_any_form_is_reported_unchanged() {
    // The gateway chooses the alphabet of its codes.
    let mut app = Scripted::new(app_config());
    app.drain().frame(&WELCOME.replace("AB3X-7K", "någon kod \\u00e9"));
    assert_eq!(app.session.peer().unwrap().credentials.as_ref().unwrap().claim_code.as_deref(), Some("någon kod é"));
}

#[test]
fn item_24_a_welcome_with_another_minor_version_is_accepted_and_one_with_another_major_is_not() {
    for version in ["1.0.0", "1.1.0", "1.9.3", "1", "1.2.0-rc"] {
        let mut app = Scripted::new(app_config());
        app.drain().frame(&WELCOME.replace(r#""1.2.0""#, &format!("{version:?}")));
        assert!(app.session.is_ready(), "{version}");
        assert_eq!(app.session.peer().unwrap().protocol, version);
    }
    for version in ["2.0.0", "0.9", "", "v1.2"] {
        let mut app = Scripted::new(app_config());
        app.drain().frame(&WELCOME.replace(r#""1.2.0""#, &format!("{version:?}")));
        assert_eq!(app.events(), [Event::Closed(CloseReason::VersionMismatch)], "{version}");
    }
}

#[test]
fn a_malformed_welcome_fails_the_handshake() {
    for (right, wrong, member, fault) in [
        (r#""sessionId":"s_1","#, "", "sessionId", Missing),
        (r#""sessionId":"s_1""#, r#""sessionId":1"#, "sessionId", WrongType),
        (r#""protocolVersion":"1.2.0","#, "", "protocolVersion", Missing),
        (r#""protocolVersion":"1.2.0""#, r#""protocolVersion":1"#, "protocolVersion", WrongType),
        (r#""agent":{"id":"acme-cli","name":"acme-cli"},"#, "", "agent", Missing),
        (r#""agent":{"id":"acme-cli","name":"acme-cli"}"#, r#""agent":"acme-cli""#, "agent", WrongType),
        (
            r#""capabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true},"#,
            "",
            "capabilities",
            Missing,
        ),
    ] {
        assert!(WELCOME.contains(right));
        let mut app = Scripted::new(app_config());
        app.drain().frame(&WELCOME.replace(right, wrong));
        assert_eq!(app.events(), [Event::Closed(CloseReason::AnswerInvalid(member, fault))], "{wrong}");
    }
    for result in ["null", "1", "[]", r#""x""#, "{}"] {
        let mut app = Scripted::new(app_config());
        app.drain().frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        assert_eq!(app.events(), [Event::Closed(CloseReason::AnswerInvalid("protocolVersion", Missing))], "{result}");
    }
}

#[test]
fn item_31_nothing_is_served_before_the_welcome() {
    let mut app = Scripted::new(app_config());
    app.sent();
    let calls = [
        invoke(7, "i1"),
        request(7, "resources/read", r#"{"name":"balance"}"#),
        request(7, "resources/subscribe", r#"{"name":"balance","subscriptionId":"s"}"#),
        request(7, "resources/unsubscribe", r#"{"subscriptionId":"s"}"#),
    ];
    for call in calls {
        app.frame(&call);
        let sent = app.sent();
        assert!(sent.len() == 1 && sent[0].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32009,"#), "{sent:?}");
        assert_eq!(app.events(), [Event::Violation(Violation::OutOfPhase)]);
    }
    app.frame(WELCOME).drain();
    app.receive_invoke(7, "i1");
}

#[test]
fn an_app_serves_invocations_before_it_is_notified_of_a_claim() {
    let mut app = Scripted::new(app_config());
    app.drain().frame(&WELCOME.replace("acme-cli", "pending")).drain();
    let id = app.receive_invoke(7, "i1");
    assert_eq!(app.respond(id).sent(), [invoked(7, "i1", "\"ok\"")]);
}

#[test]
fn item_101_no_list_and_no_value_is_sent_before_the_welcome() {
    let mut app = Scripted::new(app_config());
    app.sent();
    let value = Notification::ResourceValue { subscription: "s".into(), uri: "balance".into(), value: json("1") };
    for notification in [Notification::Actions(json("[]")), Notification::Resources(json("[]")), value] {
        assert_eq!(app.session.notify(notification, app.now), Err(SendError::NotReady));
    }
    assert_eq!(app.sent(), Vec::<String>::new());
    app.frame(WELCOME);
    app.session.notify(Notification::Actions(json("[]")), app.now).unwrap();
    assert_eq!(app.sent(), [notification("actions/list_changed", r#"{"actions":[]}"#)]);
}

#[test]
fn item_36_a_claim_clears_the_code_sets_the_agent_and_sets_the_capabilities_if_it_contains_them() {
    let mut app = Scripted::app(app_config());
    app.frame(&notification("tesseron/claimed", r#"{"agent":{"id":"x","name":"X"},"claimedAt":5}"#));
    let peer = changed(&mut app);
    assert_eq!((peer.identity.name.as_str(), peer.identity.title.as_deref()), ("x", Some("X")));
    assert_eq!(peer.credentials.as_ref().unwrap().claim_code, None);
    assert_eq!(peer.credentials.unwrap().resume_token.as_deref(), Some("rt_1"));
    assert!(peer.capabilities.sampling && peer.capabilities.elicitation);
    let without = r#"{"agent":{"id":"x","name":"X"},"claimedAt":5,"agentCapabilities":{"streaming":true,"subscriptions":true,"sampling":false,"elicitation":true}}"#;
    app.frame(&notification("tesseron/claimed", without));
    let peer = changed(&mut app);
    assert!(!peer.capabilities.sampling && peer.capabilities.elicitation);
    assert_eq!(app.session.peer(), Some(&peer));
}

#[test]
fn the_capabilities_of_a_claim_apply_at_once_also_to_running_invocations() {
    let mut app = Scripted::new(app_config());
    app.drain().frame(&WELCOME.replace("true", "false")).drain();
    let id = app.receive_invoke(7, "i1");
    let sample = || InputRequest::from(Sample::new("?"));
    assert_eq!(app.session.request_input(id, sample(), app.now), Err(AskError::Unsupported));
    app.frame(CLAIMED);
    app.ask(id, sample());
    app.frame(&CLAIMED.replace("true", "false"));
    assert_eq!(app.session.request_input(id, sample(), app.now), Err(AskError::Unsupported));
}

#[test]
fn each_end_closes_if_its_handshake_takes_too_long() {
    // A regression: with an era that Tesseron does not have, a gateway waited for a handshake without a time limit.
    let modern = with(gateway_config(), |config| config.era = Era::Modern);
    for config in [app_config(), gateway_config(), asking_gateway_config(), modern] {
        let mut end = Scripted::new(config);
        end.sent();
        end.at(9_999);
        assert_eq!(end.events(), []);
        end.at(10_000);
        assert_eq!((end.events(), end.sent()), (vec![Event::Closed(CloseReason::HandshakeTimeout)], vec![]));
    }
    let mut asked = Scripted::new(asking_gateway_config());
    asked.frame(&hello(1, "1.2.0")).drain();
    asked.at(10_000);
    assert_eq!(asked.events(), [Event::Closed(CloseReason::HandshakeTimeout)], "an owner that does not decide");
}

// ---- The gateway's end ----

#[test]
fn item_30_a_welcome_of_a_fresh_hello_has_a_code_and_a_token() {
    let mut gateway = Scripted::new(gateway_config());
    gateway.frame(&hello(1, "1.2.0"));
    assert_eq!(
        gateway.sent(),
        [
            r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s_1","protocolVersion":"1.2.0","capabilities":{"streaming":true,"subscriptions":true,"sampling":false,"elicitation":false},"agent":{"id":"pending","name":"Awaiting agent"},"claimCode":"AB3X-7K","resumeToken":"rt_1"}}"#
        ]
    );
    let events = gateway.events();
    let [Event::Ready(peer)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((peer.identity.name.as_str(), peer.identity.title.as_deref()), ("ledger", Some("Ledger")));
    assert!(peer.capabilities.tools && peer.capabilities.resources_subscribe && peer.credentials.is_none());
    assert!(!gateway.session.is_ready(), "the app is not claimed");
    assert_eq!(gateway.session.poll_timeout(), None, "the claim has no deadline");
}

#[test]
fn item_30_the_welcome_of_a_bound_or_resumed_session_has_no_code() {
    for claim_state in [ClaimState::Bound, ClaimState::Resumed] {
        let mut gateway = Scripted::new(asking_gateway_config());
        gateway.frame(&hello(1, "1.2.0")).events();
        gateway.session.welcome(Ok(Welcome { claim_state, ..welcome() }), gateway.now).unwrap();
        let sent = gateway.sent();
        assert!(sent.len() == 1 && !sent[0].contains("claimCode") && sent[0].contains(r#""resumeToken":"rt_1""#), "{sent:?}");
    }
}

#[test]
fn item_29_a_welcome_and_a_claim_have_the_capabilities_that_the_agent_has_when_each_is_sent() {
    let known = with(gateway_config(), |config| {
        (config.identity, config.capabilities) = (agent(), agent_capabilities());
        config.capabilities.elicitation = false;
    });
    let mut gateway = Scripted::new(known);
    gateway.frame(&hello(1, "1.2.0"));
    let sent = gateway.sent();
    assert!(sent[0].contains(r#""capabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":false},"agent":{"id":"acme-cli","name":"acme-cli"}"#), "{sent:?}");
    assert_eq!(gateway.claim().sent(), [CLAIMED]);
}

#[test]
fn item_25_a_hello_with_another_major_version_is_refused_and_closes_the_session() {
    for version in ["2.0.0", "0.9.0", "10.0", "", "v1.2", "one"] {
        let mut gateway = Scripted::new(gateway_config());
        gateway.frame(&hello(1, version));
        assert_eq!(gateway.events(), [Event::Violation(Violation::InvalidParams)], "the refusal is sent before the end");
        let sent = gateway.sent();
        let answer: Value = serde_json::from_str(&sent[0]).unwrap();
        assert_eq!((answer["id"].as_i64(), answer["error"]["code"].as_i64(), sent.len()), (Some(1), Some(-32000), 1));
        assert!(answer["error"].get("data").is_none());
        let error_text = answer["error"]["message"].as_str().unwrap();
        assert!(error_text.contains(version) && error_text.contains("1.2.0"), "{error_text}");
        assert_eq!(gateway.events(), [Event::Closed(CloseReason::VersionMismatch)]);
        gateway.frame(&hello(2, "1.2.0")).at(100_000).expect_silence();
    }
}

#[test]
fn item_25_after_a_hello_with_another_major_version_a_second_hello_is_not_welcomed() {
    for config in [gateway_config(), asking_gateway_config()] {
        let mut gateway = Scripted::new(config);
        gateway.frame(&hello(1, "2.0.0")).frame(&hello(2, "1.2.0"));
        let frames = gateway.sent();
        assert!(!frames.iter().any(|frame| frame.contains("result")), "{frames:?}");
        let events = gateway.events();
        assert!(!events.iter().any(|event| matches!(event, Event::Ready(_) | Event::HandshakeRequest { .. })), "{events:?}");
        assert_eq!(events.last(), Some(&Event::Closed(CloseReason::VersionMismatch)));
    }
}

#[test]
fn items_25_26_another_minor_version_is_accepted_and_reported() {
    for version in ["1", "1.2", "1.2.0-x", "1.0.0", "1.99.5", "1.2.0.4"] {
        let mut gateway = Scripted::new(gateway_config());
        gateway.frame(&hello(1, version));
        let sent = gateway.sent();
        assert!(sent[0].contains(r#""protocolVersion":"1.2.0""#), "the gateway sends its own version: {sent:?}");
        let events = gateway.events();
        // The owner gets the version of the app.
        assert!(matches!(&events[..], [Event::Ready(peer)] if peer.protocol == version), "{events:?}");
    }
    for version in ["v1.2", "", "2"] {
        let mut gateway = Scripted::new(gateway_config());
        gateway.frame(&hello(1, version));
        assert!(gateway.sent()[0].contains(r#""code":-32000"#), "{version}");
    }
}

#[test]
fn item_27_a_reserved_or_malformed_app_id_is_invalid_and_another_hello_may_follow() {
    for id in ["tesseron", "mcp", "system", "", "Ledger", "1a", "_a", "a-b", "a b", "a\\u0000", &"a".repeat(500)] {
        for config in [gateway_config(), asking_gateway_config()] {
            let mut gateway = Scripted::new(config);
            gateway.frame(&hello(1, "1.2.0").replace(r#""id":"ledger""#, &format!(r#""id":"{id}""#)));
            let sent = gateway.sent();
            assert!(
                sent.len() == 1 && sent[0].starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"app.id"#),
                "{sent:?}"
            );
            assert_eq!(gateway.events(), [Event::Violation(Violation::InvalidParams)]);
            gateway.frame(&hello(2, "1.2.0"));
            assert!(matches!(gateway.events()[..], [Event::Ready(_) | Event::HandshakeRequest { .. }]));
        }
    }
}

#[test]
fn item_28_a_second_handshake_on_a_channel_is_refused_and_the_first_session_goes_on() {
    for handshake_request in
        [hello(9, "1.2.0"), hello(9, "2.0.0"), resume(9), request(9, "tesseron/hello", "{}"), request(9, "tesseron/resume", "{}")]
    {
        for claimed in [false, true] {
            let mut gateway = Scripted::unclaimed_gateway(gateway_config());
            if claimed {
                gateway.claim().drain();
            }
            let before = gateway.session.peer().cloned();
            gateway.frame(&handshake_request);
            assert_eq!(gateway.sent(), [error(9, -32600, "the handshake was made before")], "{handshake_request}");
            assert_eq!(gateway.events(), [Event::Violation(Violation::OutOfPhase)]);
            assert_eq!(gateway.session.peer().cloned(), before);
            if !claimed {
                assert_eq!(gateway.claim().sent(), [CLAIMED]);
            }
            gateway.invoke_action();
        }
    }
}

#[test]
fn item_28_a_second_handshake_while_the_owner_decides_on_the_first_is_refused() {
    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&hello(1, "1.2.0")).events();
    gateway.frame(&hello(2, "1.2.0"));
    assert_eq!(gateway.sent(), [error(2, -32600, "the handshake was made before")]);
    gateway.session.welcome(Ok(welcome()), gateway.now).unwrap();
    assert!(gateway.sent()[0].contains(r#""id":1,"result""#));
}

#[test]
fn while_the_owner_decides_on_a_handshake_no_other_request_with_its_id_is_answered() {
    for other in [hello(1, "1.2.0"), resume(1), request(1, "x/y", "{}"), sample(1, "i"), request(1, "tesseron/hello", "[]")] {
        let mut gateway = Scripted::new(asking_gateway_config());
        gateway.frame(&hello(1, "1.2.0")).events();
        gateway.frame(&other);
        assert_eq!(gateway.sent(), Vec::<String>::new(), "the app would take it for the answer to its hello: {other}");
        gateway.session.welcome(Ok(welcome()), gateway.now).unwrap();
        assert!(gateway.sent()[0].contains(r#""id":1,"result""#));
    }
}

#[test]
fn the_event_of_a_handshake_request_describes_the_app_without_its_secrets() {
    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&hello(1, "1.2.0"));
    assert_eq!(gateway.sent(), Vec::<String>::new());
    let (peer, presented) = handshake_request(&mut gateway);
    assert_eq!((peer.identity.name.as_str(), presented), ("ledger", None));
    assert_eq!(peer.declared.member("actions"), Some(json("[]")));
    assert!(gateway.session.peer().is_none(), "the peer is not accepted yet");

    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&resume(1));
    let event = gateway.session.poll_event().unwrap();
    assert!(!format!("{event:?}").contains("rt_1"), "a secret in the debug text of an event");
    let Event::HandshakeRequest { peer, resume: Some(presented) } = event else { panic!("{event:?}") };
    assert_eq!(presented, credentials());
    assert!(!peer.declared.as_str().contains("rt_1") && !peer.declared.as_str().contains("s_1"), "{:?}", peer.declared);
    gateway.session.welcome(Ok(Welcome { claim_state: ClaimState::Resumed, ..welcome() }), gateway.now).unwrap();
    // The queued frame has the token.
    assert!(gateway.sent()[0].contains("rt_1"));
    assert!(!format!("{:?}", gateway.session.subject()).contains("rt_1"), "a secret in the debug text of a session");
}

#[test]
fn the_owner_can_refuse_a_handshake_with_an_error_and_the_app_may_try_again() {
    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&hello(1, "1.2.0")).events();
    gateway.session.welcome(Err(RpcError::new(-32603, "full")), gateway.now).unwrap();
    assert_eq!((gateway.sent(), gateway.events()), (vec![error(1, -32603, "full")], vec![]));
    assert_eq!(gateway.session.welcome(Ok(welcome()), gateway.now), Err(NotLive));
    gateway.expect_silence();
    gateway.frame(&hello(2, "1.2.0"));
    handshake_request(&mut gateway);
}

#[test]
fn welcoming_without_an_open_handshake_request_returns_not_live() {
    let mut all = [
        Scripted::new(asking_gateway_config()),
        Scripted::new(gateway_config()),
        Scripted::unclaimed_gateway(gateway_config()),
        Scripted::gateway(gateway_config()),
        Scripted::new(app_config()),
        Scripted::app(app_config()),
        Scripted::new(testkit::config::client_config()),
        Scripted::server(testkit::config::server_config()),
    ];
    for end in &mut all {
        end.drain();
        assert_eq!(end.session.welcome(Ok(welcome()), end.now), Err(NotLive));
        end.expect_silence();
    }
    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&hello(1, "1.2.0"));
    gateway.session.welcome(Ok(welcome()), gateway.now).unwrap();
    assert_eq!(gateway.session.welcome(Ok(welcome()), gateway.now), Err(NotLive));
    assert_eq!(gateway.sent().len(), 1);
}

#[test]
fn a_handshake_request_whose_channel_has_ended_cannot_be_welcomed() {
    let ends: [fn(&mut Scripted); 4] = [
        |end| end.session.handle_end(TransportEnd::Eof, end.now),
        |end| end.session.handle_end(TransportEnd::Failed, end.now),
        |end| end.session.close(protocol_core::Close::Now, end.now),
        |end| _ = end.at(10_000),
    ];
    for end_it in ends {
        for answer in
            [Ok(welcome()), Ok(Welcome { claim_state: ClaimState::Resumed, ..welcome() }), Err(RpcError::new(-32011, "no"))]
        {
            let mut gateway = Scripted::new(asking_gateway_config());
            gateway.frame(&hello(1, "1.2.0"));
            end_it(&mut gateway);
            assert!(gateway.session.is_closed());
            gateway.drain();
            assert_eq!(gateway.session.welcome(answer, gateway.now), Err(NotLive));
            gateway.at(100_000).expect_silence();
        }
    }
}

// ---- The claim ----

#[test]
fn item_33_no_call_is_sent_to_an_unclaimed_app() {
    let mut asked = Scripted::new(asking_gateway_config());
    asked.frame(&hello(1, "1.2.0")).drain();
    for mut gateway in [Scripted::new(gateway_config()), asked, Scripted::unclaimed_gateway(gateway_config())] {
        let custom = Invoke::custom("x/y", json("{}"));
        let others = [Op::CallTool, Op::ReadResource, Op::Subscribe, Op::Unsubscribe].map(|op| Invoke::new(op, json("{}")));
        for call in others.into_iter().chain([custom]) {
            let refused = gateway.session.invoke(call, gateway.now).unwrap_err();
            assert_eq!(refused.why, SendError::NotReady);
        }
        gateway.expect_silence();
    }
}

#[test]
fn items_34_35_a_claim_notifies_the_app_once_and_a_second_claim_changes_nothing() {
    let mut gateway = Scripted::unclaimed_gateway(gateway_config());
    assert_eq!(gateway.claim().sent(), [CLAIMED]);
    assert!(gateway.session.is_ready());
    assert_eq!(gateway.claim().sent(), Vec::<String>::new());
    let other = Identity::new("other", "");
    gateway.session.claim(other, protocol_core::Capabilities::default(), 7, gateway.now).unwrap();
    gateway.expect_silence();
    // The app is still claimed for the first agent.
    gateway.invoke_action();
    gateway.frame(&sample(9, &named(1)));
    gateway.input_request();
}

#[test]
fn only_a_gateway_that_has_welcomed_its_app_can_be_claimed() {
    let mut asked = Scripted::new(asking_gateway_config());
    asked.frame(&hello(1, "1.2.0")).drain();
    let mut refused = Scripted::new(gateway_config());
    refused.frame(&hello(1, "1.2.0").replace("ledger", "mcp")).drain();
    let mut closed = Scripted::unclaimed_gateway(gateway_config());
    closed.session.handle_end(TransportEnd::Failed, closed.now);
    closed.drain();
    for (mut end, why) in [
        (Scripted::new(gateway_config()), SendError::NotReady),
        (asked, SendError::NotReady),
        (refused, SendError::NotReady),
        (closed, SendError::Closing),
        (Scripted::app(app_config()), SendError::WrongEnd),
        (Scripted::server(testkit::config::server_config()), SendError::WrongEnd),
        (Scripted::client(testkit::config::client_config()), SendError::WrongEnd),
    ] {
        assert_eq!(end.session.claim(agent(), agent_capabilities(), 1, end.now), Err(why));
        end.expect_silence();
    }
}

#[test]
fn item_38_on_a_bound_session_the_claim_follows_the_welcome() {
    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&hello(1, "1.2.0")).events();
    gateway.session.welcome(Ok(Welcome { claim_state: ClaimState::Bound, ..welcome() }), gateway.now).unwrap();
    gateway.claim();
    let sent = gateway.sent();
    assert!(sent.len() == 2 && sent[0].contains(r#""id":1,"result""#) && sent[1] == CLAIMED, "{sent:?}");
}

#[test]
fn item_39_input_requests_of_an_unclaimed_app_are_refused() {
    let mut asked = Scripted::new(asking_gateway_config());
    asked.frame(&hello(1, "1.2.0")).drain();
    let known = with(gateway_config(), |config| config.capabilities = agent_capabilities());
    for mut gateway in
        [Scripted::new(gateway_config()), asked, Scripted::unclaimed_gateway(gateway_config()), Scripted::unclaimed_gateway(known)]
    {
        for method in ["sampling/request", "elicitation/request"] {
            for params in [r#"{"invocationId":"inv_1","prompt":"?","question":"?","schema":{"type":"object"}}"#, "{}"] {
                gateway.frame(&request(50, method, params));
                let sent = gateway.sent();
                assert!(sent.len() == 1 && sent[0].starts_with(r#"{"jsonrpc":"2.0","id":50,"error":{"code":-32009,"#), "{sent:?}");
                assert_eq!(gateway.events(), [Event::Violation(Violation::OutOfPhase)]);
            }
        }
    }
}

#[test]
fn progress_and_notifications_before_the_welcome_are_dropped() {
    let mut asked = Scripted::new(asking_gateway_config());
    asked.frame(&hello(1, "1.2.0")).drain();
    for mut gateway in [Scripted::new(gateway_config()), asked] {
        for frame in [
            progress(&named(1), r#","percent":1"#),
            notification("actions/list_changed", r#"{"actions":[]}"#),
            notification("resources/list_changed", r#"{"resources":[]}"#),
            notification("resources/updated", r#"{"subscriptionId":"s","value":1}"#),
        ] {
            gateway.frame(&frame);
            assert_eq!(gateway.sent(), Vec::<String>::new());
            let events = gateway.events();
            assert!(matches!(events[..], [Event::Violation(_) | Event::Unreadable(_)]), "{frame}: {events:?}");
        }
    }
}

// ---- Resume ----

#[test]
fn item_102_a_resume_has_the_manifest_and_the_credentials_and_comes_instead_of_a_hello() {
    let mut app = Scripted::new(resuming_app());
    assert_eq!(app.sent(), [resume(1)]);
    app.frame(&WELCOME.replace(r#","claimCode":"AB3X-7K""#, "").replace("rt_1", "rt_2"));
    assert!(app.session.is_ready());
    app.at(1_000_000);
    assert_eq!(app.sent(), Vec::<String>::new());
}

#[test]
fn item_103_the_new_token_is_reported_and_used_for_the_next_resume() {
    let mut app = Scripted::new(resuming_app());
    app.drain().frame(&WELCOME.replace("rt_1", "rt_2"));
    let credentials = app.session.peer().unwrap().credentials.clone().unwrap();
    assert!(!format!("{credentials:?}{:?}", app.session).contains("rt_2"), "a secret in a debug text");
    let mut next = App::default();
    next.resume = Some(ResumeCredentials { session_id: credentials.session_id, resume_token: credentials.resume_token.unwrap() });
    let again = Config::tesseron_app(&AppId::parse("ledger").unwrap(), "Ledger", next);
    assert_eq!(Scripted::new(again).sent(), [resume(1).replace("rt_1", "rt_2")]);
}

#[test]
fn item_104_a_failed_resume_is_reported_and_closes_the_session_of_the_app() {
    let mut app = Scripted::new(resuming_app());
    app.sent();
    app.frame(&error(1, -32011, "Resume failed"));
    let why = RpcError::new(-32011, "Resume failed");
    assert_eq!(app.events(), [Event::HandshakeRefused(why), Event::Closed(CloseReason::HandshakeRefused)]);
    assert!(Scripted::new(bare_app()).sent()[0].contains("tesseron/hello"));
}

#[test]
fn item_105_a_resumed_session_is_claimed_at_once_and_sends_no_claim() {
    let known = with(asking_gateway_config(), |config| (config.identity, config.capabilities) = (agent(), agent_capabilities()));
    let mut gateway = Scripted::new(known);
    gateway.frame(&resume(1).replace(r#""actions":[]"#, r#""actions":[{"name":"new"}]"#));
    let (peer, presented) = handshake_request(&mut gateway);
    assert_eq!((peer.declared.member("actions"), presented), (Some(json(r#"[{"name":"new"}]"#)), Some(credentials())));
    let resumed = Welcome { session_id: "s_1".into(), resume_token: Some("rt_2".into()), claim_state: ClaimState::Resumed };
    gateway.session.welcome(Ok(resumed), gateway.now).unwrap();
    assert_eq!(
        gateway.sent(),
        [
            r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s_1","protocolVersion":"1.2.0","capabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true},"agent":{"id":"acme-cli","name":"acme-cli"},"resumeToken":"rt_2"}}"#
        ]
    );
    assert!(gateway.session.is_ready() && matches!(gateway.events()[..], [Event::Ready(_)]));
    let call = gateway.invoke(call_action());
    assert_eq!(gateway.sent().len(), 1);
    gateway.frame(&sample(9, &named(1)));
    gateway.input_request();
    gateway.session.cancel(call, None, gateway.now).unwrap();
    gateway.drain();
    gateway.claim();
    assert_eq!(gateway.sent(), Vec::<String>::new(), "the session is already claimed");
}

#[test]
fn item_106_a_refused_resume_leaves_the_channel_open_for_a_hello() {
    let mut gateway = Scripted::new(asking_gateway_config());
    gateway.frame(&resume(1)).events();
    gateway.session.welcome(Err(RpcError::new(-32011, "unknown")), gateway.now).unwrap();
    assert_eq!(gateway.sent(), [error(1, -32011, "unknown")]);
    gateway.frame(&hello(2, "1.2.0"));
    assert_eq!(handshake_request(&mut gateway).1, None);
    gateway.session.welcome(Ok(welcome()), gateway.now).unwrap();
    assert!(gateway.sent()[0].contains(r#""id":2,"result""#));
}

#[test]
fn item_107_a_resume_is_checked_for_its_types_then_its_version_then_its_app_id() {
    let resume_with = |version: &str, app: &str, session: &str| {
        resume(1)
            .replace(r#""1.2.0""#, version)
            .replace(r#""id":"ledger""#, &format!(r#""id":{app}"#))
            .replace(r#""sessionId":"s_1""#, &format!(r#""sessionId":{session}"#))
    };
    for (frame, code, closes) in [
        (resume_with("5", r#""ledger""#, r#""s""#), -32011, false),
        (resume_with(r#""2.0""#, r#""ledger""#, "5"), -32011, false),
        (resume_with(r#""2.0""#, "5", r#""s""#), -32011, false),
        (resume_with(r#""2.0""#, r#""mcp""#, r#""s""#), -32000, true),
        (resume_with(r#""2.0""#, r#""ledger""#, r#""s""#), -32000, true),
        (resume_with(r#""1.0""#, r#""mcp""#, r#""s""#), -32011, false),
        (resume_with(r#""1.0""#, r#""No""#, r#""s""#), -32011, false),
    ] {
        let mut gateway = Scripted::new(asking_gateway_config());
        gateway.frame(&frame);
        let sent = gateway.sent();
        assert!(sent.len() == 1 && sent[0].contains(&format!(r#""id":1,"error":{{"code":{code},"#)), "{frame}: {sent:?}");
        assert_eq!(gateway.session.is_closed(), closes, "{frame}");
    }
    // A gateway that is configured to welcome every hello has no sessions to resume.
    let mut gateway = Scripted::new(gateway_config());
    gateway.frame(&resume(1));
    assert!(gateway.sent()[0].contains(r#""code":-32011"#));
    gateway.frame(&hello(2, "1.2.0"));
    assert!(gateway.sent()[0].contains("result"));
}

// ---- The end of a session ----

#[test]
fn a_handshake_that_comes_while_a_gateway_closes_is_not_welcomed() {
    for config in [gateway_config(), asking_gateway_config()] {
        let mut gateway = Scripted::new(config);
        gateway.frame(&request(5, "x/y", "{}"));
        gateway.session.close(protocol_core::Close::Graceful { grace: std::time::Duration::from_secs(2) }, gateway.now);
        assert!(!gateway.session.is_closed(), "a response is still queued");
        gateway.frame(&hello(1, "1.2.0"));
        let frames = gateway.sent();
        assert!(!frames.iter().any(|frame| frame.contains("result")), "{frames:?}");
        assert_eq!(gateway.events(), [Event::Closed(CloseReason::Local)]);
    }
}
