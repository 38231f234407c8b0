//! The bugs of the reference gateway (`docs/protocols/tesseron.md`, "Faults of the reference implementation", numbered in the order of its
//! table): the bridge has none of them. A bridge cannot have the bugs of an app (2, 5, 9), of the bind of a channel (21) and of timers in
//! JavaScript (24).

use protocol_core::{Instant, TransportEnd};
use serde_json::{Value, json};
use tesseron::bridge::{Advertised, BridgeEvent, Leg};
use tesseron::claims::ClaimCode;
use testkit::scripted::{cancelled, notification, request};
use tests::bridge::{
    ACTIONS, RESOURCES, Rig, bound, call_tool, config, credentials, hello, manifest, resume, sampled, text_of, value,
};

fn rig() -> (Rig, usize) {
    let mut rig = Rig::new();
    let app = rig.join("ledger");
    (rig, app)
}

fn claim_by_code(rig: &mut Rig, id: u64, code: &str) {
    rig.agent(&call_tool(&id.to_string(), "tesseron__claim_session", &json!({"code": code}).to_string(), None));
}

/// Claims an app by the claim code `code`, and dials it. Returns the index of the app.
fn dial_bound(rig: &mut Rig, id: u64, code: &str) -> usize {
    claim_by_code(rig, id, code);
    let (claim, _) = rig.wanted_claim();
    rig.dial_claimed(claim, bound(code, "s_host", "rt_host")).unwrap()
}

#[test]
fn bug_1_no_frame_of_an_app_crashes_the_gateway() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    for frame in [
        r#"{"jsonrpc":"2.0","method":"actions/progress"}"#,
        r#"{"jsonrpc":"2.0","method":"actions/progress","params":null}"#,
        r#"{"jsonrpc":"2.0","method":"actions/progress","params":[]}"#,
        r#"{"jsonrpc":"2.0","method":"actions/progress","params":{"invocationId":7,"percent":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"log"}"#,
        r#"{"jsonrpc":"2.0","method":"log","params":{"level":7}}"#,
        r#"{"jsonrpc":"2.0","method":"resources/updated"}"#,
        r#"{"jsonrpc":"2.0","method":"actions/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"sampling/request"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/request"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"elicitation/request","params":7}"#,
        r#"{"jsonrpc":"2.0","id":99,"error":"text"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
        "[]",
        "7",
        "{",
        "",
        "\u{feff}",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    ] {
        rig.app(app, frame);
    }
    rig.bridge.handle_frame(rig.leg(app), bytes::Bytes::from_static(b"\xff\xfe{}"), rig.now).unwrap();
    assert!(rig.deliver().agent_received().is_empty());
    rig.app(app, &call.output("\"alive\""));
    assert_eq!(rig.response(1)["result"]["content"][0]["text"], "alive");
    // An error that is not an object ends only its own call.
    rig.call(2, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &format!(r#"{{"jsonrpc":"2.0","id":{},"error":"text"}}"#, call.id));
    assert_eq!(rig.response(2)["result"]["isError"], true);
    rig.assert_idle();
}

#[test]
fn bug_3_a_second_hello_is_refused_and_the_session_goes_on() {
    let (mut rig, app) = rig();
    rig.app(app, &hello("other", ACTIONS, RESOURCES).replace(r#""id":1"#, r#""id":2"#));
    assert_eq!(rig.app_response(app, 2)["error"]["code"], -32600);
    rig.app(app, &resume("ledger", "s_1", "x").replace(r#""id":1"#, r#""id":3"#));
    assert_eq!(rig.app_response(app, 3)["error"]["code"], -32600);
    assert_eq!(rig.app_tools(), ["ledger__t"]);
    rig.lose(app);
    assert_eq!(rig.app_tools(), Vec::<String>::new(), "the second hello has no effect");
    assert_eq!(rig.bridge.channels().count(), 0);
}

#[test]
fn bug_3_a_hello_after_a_resume_is_refused() {
    let mut rig = Rig::new();
    let app = rig.dial();
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    let (session, token) = credentials(&rig.app_response(app, 1));
    rig.claim(app).lose(app);
    let again = rig.dial();
    rig.app(again, &resume("ledger", &session, &token)).drop_received();
    rig.app(again, &hello("ledger", ACTIONS, RESOURCES).replace(r#""id":1"#, r#""id":2"#));
    assert_eq!(rig.app_response(again, 2)["error"]["code"], -32600);
}

#[test]
fn bug_4_a_call_that_is_cancelled_before_it_was_sent_is_never_sent() {
    let (mut rig, app) = rig();
    let leg = rig.leg(app);
    rig.stall(leg).call(1, "ledger__t").agent(&cancelled(1)).resume(leg);
    assert_eq!(rig.app_received(app), Vec::<String>::new());
    rig.assert_idle();
}

#[test]
fn bug_6_late_frames_of_an_app_about_an_ended_call_are_dropped() {
    for how in ["answered", "cancelled"] {
        let (mut rig, app) = rig();
        rig.call(1, "ledger__t");
        let call = rig.invoked(app);
        match how {
            "answered" => rig.app(app, &call.output("1")),
            _ => rig.agent(&cancelled(1)),
        };
        rig.drop_received();
        rig.app(app, &call.progress(r#","percent":99,"message":"m""#));
        let record = format!(r#"{{"invocationId":"{}","level":"error","message":"late"}}"#, call.invocation);
        rig.app(app, &notification("log", &record)).app(app, &call.output("2"));
        assert_eq!(rig.agent_received(), Vec::<String>::new(), "{how}");
    }
}

#[test]
fn bug_7_a_dialled_app_is_notified_of_its_claim_right_after_its_welcome() {
    let mut rig = Rig::new();
    let app = dial_bound(&mut rig, 1, "PQ7N-4D");
    let leg = rig.leg(app);
    rig.stall(leg).app(app, &hello("ledger", ACTIONS, RESOURCES)).call(2, "ledger__t").resume(leg);
    let received: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)).collect();
    assert!(received[0].get("result").is_some());
    assert_eq!((&received[1]["method"], &received[2]["method"]), (&json!("tesseron/claimed"), &json!("actions/invoke")));
}

#[test]
fn bug_8_an_unclaimed_app_cannot_make_input_requests_to_the_agent() {
    let mut rig = Rig::new();
    let other = rig.join("other");
    rig.call(1, "other__t");
    let call = rig.invoked(other);
    let app = rig.greet("ledger");
    rig.app(app, &testkit::tesseron::sample(2, "inv_1")).app(app, &call.sample(3)).app(app, &call.confirm(4));
    rig.app(app, &call.progress(r#","percent":99"#));
    let errors: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)["error"]["code"].clone()).collect();
    assert_eq!(errors, [-32009, -32009, -32009]);
    assert!(rig.agent_received().is_empty());
}

#[test]
fn bug_10_an_app_with_a_used_code_is_no_longer_listed_even_if_the_manifest_still_has_it() {
    let mut rig = Rig::new();
    let advertise = |rig: &mut Rig| {
        rig.bridge.advertise(vec![Advertised {
            code: ClaimCode::parse("PQ7N-4D").unwrap(),
            app_id: None,
            app_name: String::from("Ledger"),
            instance_id: String::from("i-1"),
            minted_at: 1,
            expires_at: None,
        }]);
    };
    advertise(&mut rig);
    assert!(rig.call_text(1, "tesseron__list_pending_claims", "{}").0.contains("i-1"));
    assert!(rig.call_text(2, "ledger__t", "{}").0.contains("Ledger"));
    let app = dial_bound(&mut rig, 3, "PQ7N-4D");
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    // The manifest of the app still has the old code.
    advertise(&mut rig);
    for (id, tool) in [(4, "tesseron__list_pending_claims"), (5, "nobody__t")] {
        let (text, _) = rig.call_text(id, tool, "{}");
        assert!(!text.contains("i-1") && !text.contains("Ledger"), "{text}");
    }
}

#[test]
fn bug_11_the_end_of_an_old_channel_does_not_end_the_new_one() {
    let mut rig = Rig::new();
    let first = dial_bound(&mut rig, 1, "PQ7N-4D");
    rig.app(first, &hello("ledger", ACTIONS, RESOURCES));
    let leg = rig.leg(first);
    // The app is dialled again with another code and the same session. Its old channel is still open, since the app does not read from it.
    rig.call(2, "ledger__t").stall(leg).agent(&cancelled(2)).drop_received();
    claim_by_code(&mut rig, 3, "OTHER");
    let (claim, _) = rig.wanted_claim();
    let second = rig.dial_claimed(claim, bound("OTHER", "s_host", "rt_host")).unwrap();
    rig.app(second, &hello("ledger", ACTIONS, RESOURCES));
    assert!(!text_of(&rig.response(3)["result"]).1);
    rig.resume(leg).lose(first).later(60_000);
    assert!(rig.apps[first].gone && !rig.apps[second].gone);
    assert_eq!(rig.app_tools(), ["ledger__t"]);
    rig.call(4, "ledger__t");
    rig.invoked(second);
}

#[test]
fn bug_12_a_session_that_waits_for_a_second_resume_waits_the_full_time() {
    let mut config = config();
    config.registry.resume_ttl = std::time::Duration::from_secs(10);
    let mut rig = Rig::with(config);
    let app = rig.dial();
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    let (session, token) = credentials(&rig.app_response(app, 1));
    rig.claim(app).lose(app).at(9_000);
    let second = rig.dial();
    rig.app(second, &resume("ledger", &session, &token));
    let (_, token) = credentials(&rig.app_response(second, 1));
    rig.lose(second).at(18_999);
    let third = rig.dial();
    rig.app(third, &resume("ledger", &session, &token));
    assert_eq!(rig.app_response(third, 1)["result"]["sessionId"], session);
    assert_eq!(rig.bridge.poll_timeout(), None, "the deadline of the first wait is gone");
}

#[test]
fn bug_13_a_dialled_app_may_resume_instead_of_sending_a_hello() {
    let mut rig = Rig::new();
    let app = dial_bound(&mut rig, 1, "PQ7N-4D");
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES)).lose(app).drop_received();
    let again = dial_bound(&mut rig, 2, "NEW-CODE");
    rig.app(again, &resume("ledger", "s_host", "rt_host"));
    assert_eq!(rig.app_response(again, 1)["result"]["sessionId"], "s_host");
    assert!(!text_of(&rig.response(2)["result"]).1, "the claim succeeds at once, not after 5 s");
    // A resume with unknown credentials is refused.
    let third = dial_bound(&mut rig, 3, "THIRD");
    rig.app(third, &resume("ledger", "s_unknown", "x"));
    assert_eq!(rig.app_response(third, 1)["error"]["code"], -32011);
}

#[test]
fn bug_14_the_tools_of_several_apps_with_one_id_are_listed_once() {
    let mut rig = Rig::new();
    rig.join("ledger");
    rig.join("ledger");
    assert_eq!(rig.app_tools(), ["ledger__t"]);
}

#[test]
fn bug_15_a_repeated_or_failed_subscribe_leaves_no_subscription_behind() {
    let (mut rig, app) = rig();
    let subscribe = |id: u64| request(id, "resources/subscribe", r#"{"uri":"tesseron://ledger/balance"}"#);
    rig.agent(&subscribe(1)).agent(&subscribe(2));
    let (asked, params) = rig.app_request(app, "resources/subscribe");
    rig.app(app, &tests::bridge::answered(&asked, "null")).drop_received();
    rig.agent(&request(3, "resources/unsubscribe", r#"{"uri":"tesseron://ledger/balance"}"#)).drop_received();
    let name = params["subscriptionId"].as_str().unwrap();
    rig.app(app, &notification("resources/updated", &json!({"subscriptionId": name, "value": 1}).to_string()));
    assert!(rig.agent_received().is_empty());

    let (mut rig, app) = self::rig();
    rig.agent(&subscribe(1));
    let (asked, params) = rig.app_request(app, "resources/subscribe");
    rig.app(app, &tests::bridge::refused(&asked, -32003, "Resource not subscribable: balance"));
    assert_eq!(rig.response(1)["error"]["code"], -32003);
    let name = params["subscriptionId"].as_str().unwrap();
    rig.app(app, &notification("resources/updated", &json!({"subscriptionId": name, "value": 1}).to_string()));
    assert!(rig.agent_received().is_empty());
    // The next subscribe is forwarded, since there is no subscription.
    rig.agent(&subscribe(2));
    rig.app_request(app, "resources/subscribe");
}

/// In the reference, a reloaded page gets a new channel to its development server, and the gateway is not notified. At the bridge, an app
/// that comes back resumes on a new channel.
#[test]
fn bug_16_after_a_resume_old_calls_have_failed_tools_are_new_and_input_requests_work() {
    let mut rig = Rig::new();
    let app = rig.dial();
    rig.app(app, &hello("web", ACTIONS, RESOURCES));
    let (session, token) = credentials(&rig.app_response(app, 1));
    rig.claim(app).call(1, "web__t").lose(app);
    assert_eq!(rig.response(1)["result"]["structuredContent"]["code"], -32010);
    rig.call(2, "web__t");
    assert_eq!(rig.response(2)["result"]["isError"], true, "a call is not queued for an absent app");
    let again = rig.dial();
    let fresh = r#"[{"name":"t"},{"name":"fresh"}]"#;
    let params = manifest("web", fresh, "[]", &format!(r#""sessionId":"{session}","resumeToken":"{token}","#));
    rig.app(again, &request(1, "tesseron/resume", &params));
    let capabilities = rig.app_response(again, 1)["result"]["capabilities"].clone();
    assert_eq!((&capabilities["sampling"], &capabilities["elicitation"]), (&json!(true), &json!(true)));
    assert_eq!(rig.app_tools(), ["web__t", "web__fresh"]);
    rig.call(3, "web__fresh");
    let call = rig.invoked(again);
    rig.app(again, &call.confirm(7));
    let (asked, _) = rig.agent_request("elicitation/create");
    rig.agent(&tests::bridge::answered(&asked, r#"{"action":"accept"}"#));
    assert_eq!(rig.app_response(again, 7)["result"]["action"], "accept");
}

/// A handler that the app started on the old channel may still run. Its frames are then sent on the new channel.
#[test]
fn bug_16_late_frames_about_calls_of_the_old_channel_do_not_affect_calls_of_the_new_one() {
    let mut rig = Rig::new();
    let app = rig.dial();
    rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
    let (session, token) = credentials(&rig.app_response(app, 1));
    rig.claim(app);
    for id in 1..=3 {
        rig.call(id, "ledger__t");
    }
    let old = rig.all_invoked(app);
    rig.lose(app);
    let again = rig.dial();
    rig.app(again, &resume("ledger", &session, &token)).drop_received();
    for id in 4..=6 {
        rig.call(id, "ledger__t");
    }
    let new = rig.all_invoked(again);
    for call in &old {
        rig.app(again, &call.progress(r#","percent":99"#)).app(again, &call.sample(50)).app(again, &call.output("\"old\""));
    }
    assert_eq!(rig.agent_received(), Vec::<String>::new());
    for (id, call) in (4..).zip(&new) {
        rig.app(again, &call.output("\"new\""));
        assert_eq!(rig.response(id)["result"]["content"][0]["text"], "new");
    }
}

#[test]
fn bug_17_two_calls_that_share_a_token_have_independent_progress() {
    let (mut rig, app) = rig();
    for id in ["1", "2"] {
        rig.agent(&call_tool(id, "ledger__t", "{}", Some("7")));
    }
    let calls = rig.all_invoked(app);
    for (call, percent) in [(0, 60), (1, 5)] {
        rig.app(app, &calls[call].progress(&format!(r#","percent":{percent}"#)));
        rig.app(app, &calls[call].progress(&format!(r#","percent":{}"#, percent + 1)));
    }
    let values: Vec<f64> = rig.progress().into_iter().map(|(value, _)| value).collect();
    assert_eq!(values, [60.0, 61.0, 5.0, 6.0]);
}

#[test]
fn bug_18_a_code_that_could_be_a_path_is_refused() {
    let mut rig = Rig::new();
    for (id, code) in ["../../../etc/passwd", "..", "a/b", "a\\b", "C:x", "x.json", "\u{0}"].into_iter().enumerate() {
        claim_by_code(&mut rig, id as u64, code);
        assert!(text_of(&rig.response(id as u64)["result"]).1, "{code}");
    }
    assert!(rig.events().iter().all(|event| !matches!(event, BridgeEvent::ClaimWanted { .. })));
}

#[test]
fn bug_19_the_tools_of_apps_with_underscores_in_their_ids_can_be_called() {
    let mut rig = Rig::new();
    for id in ["a_", "a__b", "a__b__", "x__", "y___z"] {
        let app = rig.join(id);
        rig.call(1, &format!("{id}__t"));
        let call = rig.invoked(app);
        assert_eq!(call.name, "t");
        rig.app(app, &call.output("1")).drop_received();
    }
}

#[test]
fn bug_20_a_missing_output_is_null() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"invocationId":"{}"}}}}"#, call.id, call.invocation));
    assert_eq!(rig.response(1)["result"], json!({"content": [{"type": "text", "text": "null"}]}));
    // A result that is not an object with an `output` becomes a tool error, which is a valid result.
    for (id, result) in [(2, r#"{"entry":1}"#), (3, "null"), (4, "7"), (5, "[]"), (6, r#""text""#)] {
        rig.call(id, "ledger__t");
        let call = rig.invoked(app);
        rig.app(app, &tests::bridge::answered(&call.id, result));
        let response = rig.response(id)["result"].clone();
        assert_eq!((response["content"].is_array(), response["isError"].clone()), (true, json!(true)), "{result}");
    }
}

#[test]
fn bug_22_a_form_that_the_agent_would_refuse_is_not_forwarded() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    for (id, field) in [
        (2, r#"{"enum":["a","b"]}"#),
        (3, r#"{"type":["string","null"]}"#),
        (4, r#"{"type":"array"}"#),
        (5, r#"{"type":"object"}"#),
    ] {
        rig.app(app, &call.elicit(id, &format!(r#"{{"type":"object","properties":{{"x":{field}}}}}"#)));
        assert_eq!(rig.app_response(app, id)["error"]["code"], -32602, "{field}");
    }
    assert!(rig.agent_received().is_empty());
    rig.app(app, &call.elicit(6, r#"{"type":"object","properties":{"x":{"type":"string","enum":["a","b"]}}}"#));
    rig.agent_request("elicitation/create");
}

#[test]
fn bug_23_an_input_request_is_cancelled_at_the_agent_when_its_call_ends() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.sample(2)).app(app, &call.confirm(3));
    let asked: Vec<Value> = rig.agent_received().iter().map(|text| value(text)["id"].clone()).collect();
    rig.app(app, &call.output("1"));
    let frames: Vec<Value> = rig.agent_received().iter().map(|text| value(text)).collect();
    let cancelled_ids: Vec<Value> = frames
        .iter()
        .filter(|frame| frame["method"] == "notifications/cancelled")
        .map(|frame| frame["params"]["requestId"].clone())
        .collect();
    assert_eq!(cancelled_ids, asked);
    rig.agent(&sampled(&asked[0], "late"));
    assert!(rig.agent_received().is_empty());
    rig.assert_idle();
}

#[test]
fn no_deadline_remains_after_all_legs_have_closed() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.sample(2)).end(Leg::Agent, TransportEnd::Failed);
    assert!(rig.apps[app].gone);
    rig.later(24 * 60 * 60 * 1000);
    assert_eq!(rig.bridge.poll_timeout(), None);
    assert!(rig.now > Instant::ZERO);
}
