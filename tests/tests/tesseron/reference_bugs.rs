//! The bugs of the Tesseron reference that could occur in a session (`docs/protocols/tesseron.md`, "Faults of the reference
//! implementation"). A number after `bug_` is that of a row of the table there; one after `observed_` is explained under "Former numbers".
//! The bugs of discovery and claims have tests in `tesseron/src/claims`, those of routing in `bridge_reference_bugs.rs`.

use std::time::Duration;

use protocol_core::tesseron::{ClaimState, Welcome};
use protocol_core::{
    AskError, CancelReason, Elicit, Event, InboundId, InputRequest, InputResponse, Level, LogRecord, NotLive, Outcome, Progress,
    ProgressError, Reply, Sample, SampleResult, ServeOptions, ToolOutput, Violation,
};
use testkit::config::with;
use testkit::config::{agent, agent_capabilities, app_config, asking_gateway_config, gateway_config, welcome};
use testkit::scripted::{error, json, notification, request};
use testkit::tesseron::{CLAIMED, WELCOME, call_action, cancel, hello, invoke, invoked, named, progress, sample};
use testkit::{Pair, Scripted};

const CANCELLED: &str = r#""error":{"code":-32001,"message":"Action invocation was cancelled."}"#;

/// A resume of the app whose hello is [`hello`].
fn resume(id: u64) -> String {
    let credentials = r#""sessionId":"s_1","resumeToken":"rt_1","protocolVersion""#;
    hello(id, "1.2.0").replace("tesseron/hello", "tesseron/resume").replace(r#""protocolVersion""#, credentials)
}

/// An app that serves the invocation `i1`, its request 7.
fn serving() -> (Scripted, InboundId) {
    let mut app = Scripted::app(app_config());
    let id = app.receive_invoke(7, "i1");
    (app, id)
}

#[test]
fn bug_1_a_notification_without_params_crashes_no_session() {
    for method in [
        "actions/progress",
        "log",
        "actions/cancel",
        "tesseron/claimed",
        "resources/updated",
        "actions/list_changed",
        "resources/list_changed",
        "x/y",
    ] {
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke_action();
        let (mut app, id) = serving();
        for params in ["", r#","params":null"#, r#","params":[]"#, r#","params":7"#, r#","params":{}"#] {
            let frame = format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#);
            gateway.frame(&frame);
            app.frame(&frame);
            assert_eq!((gateway.sent(), app.sent()), (vec![], vec![]), "{frame}");
        }
        app.events();
        assert_eq!(app.respond(id).sent().len(), 1);
        gateway.events();
        gateway.frame(&invoked(1, &named(1), "1"));
        assert!(matches!(gateway.outcome(), Outcome::Result(_)));
    }
}

#[test]
fn bug_1_a_malformed_error_or_a_missing_result_crashes_no_session() {
    for body in [r#","error":null"#, r#","error":7"#, r#","error":"no""#, r#","error":[]"#, r#","error":{}"#, ""] {
        let frame = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id}{body}}}"#);
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke_action();
        gateway.frame(&frame(9)).frame(&frame(1));
        assert!(matches!(gateway.outcome(), Outcome::Invalid(_) | Outcome::Error(_)), "{body}");
        let (mut app, id) = serving();
        app.ask(id, InputRequest::from(Sample::new("?")));
        app.sent();
        app.frame(&frame(9)).frame(&frame(3));
        assert!(app.events().iter().any(|event| matches!(event, Event::Input { answer: Err(_), .. })), "{body}");
        assert_eq!(app.respond(id).sent().len(), 1);
    }
}

#[test]
fn bug_2_a_cancel_during_validation_is_not_lost() {
    // An invocation can be cancelled and has its deadline from its receipt on, even before its input is checked.
    let mut app = Scripted::app(app_config());
    app.frame(&invoke(7, "i1"));
    let id = app.request();
    app.frame(&cancel("i1"));
    assert_eq!(app.sent(), [format!(r#"{{"jsonrpc":"2.0","id":7,{CANCELLED}}}"#)]);
    assert_eq!(app.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }]);
    assert_eq!(app.session.respond(id, Reply::Tool(ToolOutput::text("late")), app.now), Err(NotLive));
    app.expect_silence();

    let mut app = Scripted::app(app_config());
    app.frame(&invoke(7, "i1"));
    assert!(app.at(60_000).sent()[0].contains("-32002"), "the deadline applies, too");
}

#[test]
fn bug_3_a_second_hello_or_one_after_a_resume_makes_no_second_session() {
    let mut unclaimed = Scripted::unclaimed_gateway(gateway_config());
    let mut claimed = Scripted::gateway(gateway_config());
    let mut resumed = Scripted::new(asking_gateway_config());
    resumed.frame(&resume(1));
    resumed.session.welcome(Ok(Welcome { claim_state: ClaimState::Resumed, ..welcome() }), resumed.now).unwrap();
    for gateway in [&mut unclaimed, &mut claimed, &mut resumed] {
        gateway.drain();
        gateway.frame(&hello(9, "1.2.0").replace("ledger", "other"));
        assert_eq!(gateway.sent(), [error(9, -32600, "the handshake was made before")]);
        assert_eq!(gateway.events(), [Event::Violation(Violation::OutOfPhase)]);
        assert_eq!(gateway.session.peer().unwrap().identity.name, "ledger");
    }
}

#[test]
fn bug_4_a_cancel_before_the_request_is_polled_sends_no_frame_and_a_later_one_follows_the_request() {
    let mut gateway = Scripted::gateway(gateway_config());
    let call = gateway.invoke(call_action());
    gateway.session.cancel(call, None, gateway.now).unwrap();
    assert_eq!((gateway.sent(), gateway.outcome()), (vec![], Outcome::Cancelled));
    // The cancel of a call that was sent comes after its request.
    let call = gateway.invoke(call_action());
    let mut sent = gateway.sent();
    gateway.session.cancel(call, None, gateway.now).unwrap();
    sent.extend(gateway.sent());
    assert!(sent.len() == 2 && sent[0].contains("actions/invoke") && sent[1] == cancel(&named(2)), "{sent:?}");
}

#[test]
fn bug_5_a_second_invocation_with_the_same_id_does_not_replace_the_first() {
    let (mut app, first) = serving();
    app.frame(&invoke(8, "i1"));
    assert!(app.sent()[0].contains(r#""id":8,"error":{"code":-32600"#));
    app.events();
    app.frame(&cancel("i1"));
    assert_eq!(app.events(), [Event::Cancelled { id: first, why: CancelReason::Peer(None) }]);
    // The invocation id can be used again, and the end of the first handler does not free it for a third invocation.
    let second = app.receive_invoke(9, "i1");
    app.session.respond(first, Reply::Done, app.now).unwrap_err();
    app.frame(&invoke(10, "i1"));
    assert_eq!(app.violations(), [Violation::DuplicateRequest]);
    app.drain();
    app.frame(&cancel("i1"));
    assert_eq!(app.events(), [Event::Cancelled { id: second, why: CancelReason::Peer(None) }]);
}

#[test]
fn bug_6_a_handler_of_an_ended_invocation_sends_no_progress_log_or_input_request() {
    type Ends = fn(&mut Scripted, InboundId);
    let ends: [Ends; 3] = [
        |app, id| app.session.respond(id, Reply::Tool(ToolOutput::text("ok")), app.now).unwrap(),
        |app, _| _ = app.frame(&cancel("i1")),
        |app, _| _ = app.at(60_000),
    ];
    for ending in ends {
        let (mut app, id) = serving();
        ending(&mut app, id);
        app.drain();
        let now = app.now;
        assert_eq!(app.session.progress(id, Progress::percent(50.0), now), Err(ProgressError::NotLive));
        let record = LogRecord::new(Level::Error, json("\"late\""));
        assert_eq!(app.session.log(Some(id), record, now), Err(NotLive));
        assert_eq!(app.session.request_input(id, InputRequest::from(Sample::new("?")), now), Err(AskError::NotLive));
        app.expect_silence();
    }
}

/// A gateway whose request ids begin at `first_id`, and the invocation id of its one call.
fn calling_from(first_id: u64) -> (Scripted, String) {
    let mut gateway = Scripted::gateway(with(gateway_config(), |config| config.first_id = first_id));
    gateway.invoke(call_action());
    let sent = gateway.sent();
    let name = sent[0].split(r#""invocationId":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
    (gateway, name)
}

#[test]
fn bug_6_late_frames_about_invocations_of_an_old_channel_have_no_effect_on_the_new_one() {
    // A handler that still runs after its app has resumed on a new channel may send frames with an old invocation id. A late response has
    // an old request id.
    // The new channel may begin at any id that is greater than those of the old one.
    let (previous, old) = calling_from(1);
    let (mut gateway, new) = calling_from(previous.session.stats().frames_out + 1_000);
    assert_ne!(old, new);
    for late in [progress(&old, r#","percent":99"#), sample(50, &old), invoked(1, &old, "1"), error(1, -32001, "late")] {
        gateway.frame(&late);
        let events = gateway.events();
        assert!(matches!(events[..], [] | [Event::Violation(_)]), "{late}: {events:?}");
    }
    gateway.sent();
    gateway.frame(&progress(&new, r#","percent":1"#));
    assert!(matches!(gateway.events()[..], [Event::Progress { .. }]));
    assert_eq!(gateway.session.stats().outbound_calls, 1);
}

#[test]
fn bug_7_a_claim_that_comes_with_the_welcome_is_not_lost() {
    for frames in [[WELCOME, CLAIMED], [CLAIMED, WELCOME]] {
        let mut app = Scripted::new(app_config());
        app.drain();
        for frame in frames {
            app.frame(frame);
        }
        let events = app.events();
        let [Event::Ready(_), Event::PeerChanged(peer)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((peer.identity.name.as_str(), peer.credentials.as_ref().unwrap().claim_code.as_deref()), ("acme-cli", None));
    }
}

#[test]
fn bug_8_input_requests_without_a_claim_or_without_an_invocation_are_refused() {
    let form = |id: u64, name: &str| {
        request(id, "elicitation/request", &format!(r#"{{"invocationId":"{name}","question":"?","schema":{{"type":"object"}}}}"#))
    };
    let known = with(gateway_config(), |config| (config.identity, config.capabilities) = (agent(), agent_capabilities()));
    let mut unclaimed = Scripted::unclaimed_gateway(known);
    let mut idle = Scripted::gateway(gateway_config());
    for gateway in [&mut unclaimed, &mut idle] {
        for frame in [sample(50, "inv_1"), sample(50, "any"), form(50, "inv_1"), form(50, "any")] {
            gateway.frame(&frame);
            assert!(gateway.sent()[0].contains(r#""id":50,"error":{"code":-32009"#), "{frame}");
            assert!(!gateway.events().iter().any(|event| matches!(event, Event::InputRequested { .. })), "{frame}");
        }
    }
}

#[test]
fn bug_16_a_late_response_ends_no_other_call_and_the_welcome_of_a_resume_has_capabilities() {
    // A session uses no number twice, so a late frame cannot match a new request.
    let mut gateway = Scripted::gateway(gateway_config());
    for number in 1..50 {
        let call = gateway.invoke_action();
        gateway.session.cancel(call, None, gateway.now).unwrap();
        gateway.drain();
        for old in 1..=number {
            gateway.frame(&invoked(old, &named(old), "1"));
        }
        gateway.expect_silence();
    }
    let known = with(asking_gateway_config(), |config| (config.identity, config.capabilities) = (agent(), agent_capabilities()));
    let mut resumed = Scripted::new(known);
    resumed.frame(&resume(1));
    assert!(matches!(resumed.events()[..], [Event::HandshakeRequest { resume: Some(_), .. }]));
    resumed.session.welcome(Ok(Welcome { claim_state: ClaimState::Resumed, ..welcome() }), resumed.now).unwrap();
    assert!(resumed.sent()[0].contains(r#""sampling":true,"elicitation":true},"agent":{"id":"acme-cli""#));
}

#[test]
fn bug_17_the_progress_of_two_calls_is_kept_apart() {
    let mut gateway = Scripted::gateway(gateway_config());
    let (first, second) = (gateway.invoke_action(), gateway.invoke_action());
    for (number, percent) in [(1, 60), (2, 5)] {
        gateway.frame(&progress(&named(number), &format!(r#","percent":{percent}"#)));
    }
    assert_eq!(
        gateway.events(),
        [
            Event::Progress { id: first, progress: Progress::percent(60.0) },
            Event::Progress { id: second, progress: Progress::percent(5.0) }
        ]
    );
}

#[test]
fn bug_20_an_output_is_always_sent_and_may_be_missing_when_received() {
    for reply in [Reply::Tool(ToolOutput::default()), Reply::Done] {
        let (mut app, id) = serving();
        assert_eq!(app.reply(id, reply).sent(), [invoked(7, "i1", "null")]);
    }
    let mut gateway = Scripted::gateway(gateway_config());
    gateway.invoke_action();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":{"invocationId":"inv_1"}}"#);
    assert!(matches!(gateway.outcome(), Outcome::Result(_)));
}

#[test]
fn bug_22_a_form_that_mcp_would_refuse_is_not_sent_to_the_agent() {
    for leaf in [r#"{"enum":["a","b"]}"#, r#"{"type":["string","null"]}"#, r#"{"type":"integer","enum":[1]}"#] {
        let schema = format!(r#"{{"type":"object","properties":{{"a":{leaf}}}}}"#);
        let (mut app, id) = serving();
        let asked = app.session.request_input(id, InputRequest::Elicit(Elicit::new("?", json(&schema))), app.now);
        assert!(matches!(asked, Err(AskError::Invalid(_))), "{leaf}");
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke_action();
        gateway.frame(&request(
            50,
            "elicitation/request",
            &format!(r#"{{"invocationId":"inv_1","question":"?","schema":{schema}}}"#),
        ));
        assert!(gateway.sent()[0].contains(r#""id":50,"error":{"code":-32602"#), "{leaf}");
    }
}

#[test]
fn bug_23_an_input_request_ends_with_its_invocation() {
    let mut pair = Pair::tesseron();
    let call = pair.client.invoke(call_action());
    pair.run();
    let id = pair.server.request();
    pair.server.ask(id, InputRequest::from(Sample::new("?")));
    pair.run();
    let key = pair.client.input_request();
    pair.server.respond(id);
    pair.run();
    let events = pair.client.events();
    assert!(
        matches!(events[..], [Event::InputGone { key: gone }, Event::Done { id, .. }] if gone == key && id == call),
        "{events:?}"
    );
    let late = InputResponse::Sample(SampleResult::new("a", ""));
    assert_eq!(pair.client.session.provide_input(key, late, pair.client.now), Err(NotLive));
    assert_eq!(pair.server.events(), [], "the app gets no event");
}

#[test]
fn bug_24_a_deadline_of_many_years_does_not_expire_at_once() {
    for millis in [1 << 31, 1 << 40, u64::MAX] {
        let (mut app, id) = serving();
        let options = ServeOptions::default().with_deadline(Duration::from_millis(millis));
        app.session.configure(id, options, app.now).unwrap();
        app.at((1 << 31) - 1).expect_silence();
        assert_eq!(app.respond(id).sent().len(), 1);
    }
}

#[test]
fn observed_30_a_response_whose_id_has_another_type_is_a_violation() {
    let mut gateway = Scripted::gateway(gateway_config());
    gateway.invoke_action();
    gateway.frame(&invoked(1, &named(1), "1").replace(r#""id":1"#, r#""id":"1""#));
    // The event shows the frame, since the call that it was meant for is open.
    assert!(matches!(&gateway.events()[..], [Event::Unreadable(found)] if found.rule == Violation::UnknownResponse));
    gateway.frame(&invoked(1, &named(1), "1"));
    assert!(matches!(gateway.outcome(), Outcome::Result(_)));
}

#[test]
fn observed_29_a_result_that_is_too_large_fails_only_its_own_invocation() {
    let mut app = Scripted::app(with(app_config(), |config| config.limits.frame_bytes = 1024));
    let (big, other) = (app.receive_invoke(7, "i1"), app.receive_invoke(8, "i2"));
    app.reply(big, Reply::Tool(ToolOutput::text("a".repeat(5000))));
    assert!(app.sent()[0].contains(r#""id":7,"error":{"code":-32603"#));
    assert_eq!(app.respond(other).sent(), [invoked(8, "i2", "\"ok\"")]);
    app.frame(&notification("x/y", "{}")).events();
    assert!(!app.session.is_closed());
}
