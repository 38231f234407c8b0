//! Misbehaving apps and agents at the gateway: an app affects only its own leg, its calls fail with an error if it is disconnected, and no
//! state remains after the end of an app or of the agent.

use protocol_core::{Close, CloseReason, TransportEnd};
use serde_json::{Value, json};
use tesseron::bridge::{BridgeConfig, BridgeEvent, Leg};
use testkit::scripted::{cancelled, notification, request};
use tests::bridge::{ACTIONS, Invoked, RESOURCES, Rig, answered, call_tool, config, hello, sampled, value};

/// A bridge with the apps `good` and `bad`. Call 1 runs at `good`, and call 2 at `bad`.
struct TwoApps {
    rig: Rig,
    good: usize,
    bad: usize,
    good_call: Invoked,
    bad_call: Invoked,
}

impl TwoApps {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: BridgeConfig) -> Self {
        let mut rig = Rig::with(config);
        let (good, bad) = (rig.join("good"), rig.join("bad"));
        rig.call(1, "good__t").call(2, "bad__t");
        let (good_call, bad_call) = (rig.invoked(good), rig.invoked(bad));
        Self { rig, good, bad, good_call, bad_call }
    }

    /// The apps at a bridge with a small output queue for the agent, which a small flood fills: 16 KiB. A frame that is added when there is
    /// still room may exceed this limit; the tests allow 1 KiB for it.
    fn narrow() -> Self {
        let mut config = config();
        config.agent_limits.output_bytes = 16 << 10;
        Self::with(config)
    }

    /// Checks that the call of the good app goes on and is answered, and that another one can be made.
    #[track_caller]
    fn check_good_app(&mut self) {
        let Self { rig, good, good_call, .. } = self;
        rig.drop_received().app(*good, &good_call.progress(r#","percent":50"#));
        assert_eq!(rig.progress(), [(50.0, None)]);
        rig.app(*good, &good_call.sample(70));
        let (asked, _) = rig.agent_request("sampling/createMessage");
        rig.agent(&sampled(&asked, "x"));
        assert_eq!(rig.app_response(*good, 70)["result"]["content"], "x");
        rig.app(*good, &good_call.output("\"fine\""));
        assert_eq!(rig.response(1)["result"]["content"][0]["text"], "fine");
        rig.call(1, "good__t");
        *good_call = rig.invoked(*good);
    }
}

// ---- Apps that flood ----

#[test]
fn a_flood_of_progress_is_merged_for_an_agent_that_does_not_read_and_delays_no_other_app() {
    let TwoApps { mut rig, good, bad, good_call, bad_call } = TwoApps::narrow();
    rig.stall(Leg::Agent);
    for step in 0..20_000 {
        let percent = f64::from(step) / 200.0;
        rig.app(bad, &bad_call.progress(&format!(r#","percent":{percent},"message":"{step}""#)));
        assert!(rig.stats(Leg::Agent).queued_bytes <= 17 << 10);
    }
    assert_eq!((rig.unread(rig.leg(bad)), rig.unread(rig.leg(good))), (0, 0), "both apps are still read");
    rig.app(good, &good_call.progress(r#","percent":7,"message":"good""#)).app(good, &good_call.output("1"));
    rig.resume(Leg::Agent);
    let frames: Vec<Value> = rig.agent_received().iter().map(|text| value(text)).collect();
    let of = |token: u64| -> Vec<f64> {
        let mine = frames.iter().filter(|frame| frame["params"]["progressToken"] == token);
        mine.map(|frame| frame["params"]["progress"].as_f64().unwrap()).collect()
    };
    assert_eq!(of(1), [7.0]);
    let bad_values = of(2);
    assert!(bad_values.len() < 200 && bad_values.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(bad_values.last(), Some(&99.995));
    assert!(frames.iter().any(|frame| frame["id"] == 1 && frame.get("result").is_some()));
}

#[test]
fn a_flood_of_notifications_is_bounded_and_does_not_hold_up_responses() {
    type Frame = fn(u64) -> String;
    let floods: [(&str, Frame); 4] = [
        ("log", |step| notification("log", &format!(r#"{{"level":"error","message":"{step}"}}"#))),
        ("actions", |step| notification("actions/list_changed", &format!(r#"{{"actions":[{{"name":"t{step}"}}]}}"#))),
        ("resources", |step| notification("resources/list_changed", &format!(r#"{{"resources":[{{"name":"r{step}"}}]}}"#))),
        ("nonsense", |step| notification("x/y", &format!(r#"{{"n":{step}}}"#))),
    ];
    for (name, frame) in floods {
        let TwoApps { mut rig, good, bad, good_call, bad_call } = TwoApps::narrow();
        rig.stall(Leg::Agent);
        for step in 0..5_000 {
            rig.app(bad, &frame(step));
            assert!(rig.stats(Leg::Agent).queued_bytes <= 17 << 10, "{name}");
        }
        assert_eq!(rig.unread(rig.leg(bad)), 0, "{name}");
        rig.app(good, &good_call.output("1")).app(bad, &bad_call.output("1")).resume(Leg::Agent);
        let answers: Vec<Value> =
            rig.agent_received().iter().map(|text| value(text)).filter(|frame| frame.get("result").is_some()).collect();
        assert_eq!(answers.len(), 2, "{name}");
        rig.assert_idle();
    }
}

#[test]
fn a_notification_without_room_in_the_queue_is_sent_once_there_is_room() {
    let TwoApps { mut rig, bad, .. } = TwoApps::narrow();
    rig.later(200).stall(Leg::Agent);
    let spam = "x".repeat(1 << 10);
    for _ in 0..40 {
        rig.app(bad, &notification("log", &format!(r#"{{"level":"error","message":"{spam}"}}"#)));
    }
    rig.app(bad, &notification("actions/list_changed", r#"{"actions":[]}"#)).lose(bad);
    rig.resume(Leg::Agent);
    let methods: Vec<Value> = rig.agent_received().iter().map(|text| value(text)["method"].clone()).collect();
    assert!(methods.contains(&json!("notifications/tools/list_changed")), "{methods:?}");
    assert!(methods.contains(&json!("notifications/resources/list_changed")));
}

#[test]
fn a_flood_of_resource_updates_becomes_few_notifications_for_an_agent_that_does_not_read() {
    let TwoApps { mut rig, bad, .. } = TwoApps::narrow();
    rig.agent(&request(5, "resources/subscribe", r#"{"uri":"tesseron://bad/balance"}"#));
    let (asked, params) = rig.app_request(bad, "resources/subscribe");
    rig.app(bad, &answered(&asked, "null")).drop_received();
    rig.stall(Leg::Agent);
    for step in 0..5_000 {
        let update = json!({"subscriptionId": params["subscriptionId"], "value": step});
        rig.app(bad, &notification("resources/updated", &update.to_string()));
        assert!(rig.stats(Leg::Agent).queued_bytes <= 17 << 10);
    }
    rig.resume(Leg::Agent);
    assert!(rig.notifications("notifications/resources/updated").len() < 500);
}

#[test]
fn a_flood_of_input_requests_is_refused_beyond_the_limit_of_the_app() {
    let mut config = config();
    config.app_limits.in_flight = 16;
    config.agent_limits.in_flight = 64;
    let mut both = TwoApps::with(config);
    let TwoApps { rig, bad, bad_call, .. } = &mut both;
    for id in 0..200 {
        rig.app(*bad, &bad_call.sample(id));
    }
    assert_eq!(rig.agent_received().len(), 16);
    let refusals = rig.app_received(*bad);
    assert_eq!(refusals.len(), 184);
    assert!(refusals.iter().all(|text| value(text)["error"]["data"]["busy"] == true), "{:?}", refusals[0]);
    let TwoApps { rig, good, good_call, bad_call, bad } = &mut both;
    rig.app(*good, &good_call.sample(70));
    rig.agent_request("sampling/createMessage");
    rig.app(*bad, &bad_call.output("1")).app(*good, &good_call.output("1")).assert_idle();
}

#[test]
fn an_app_that_does_not_read_its_refusals_is_no_longer_read_and_then_disconnected() {
    let mut both = TwoApps::new();
    let TwoApps { rig, bad, .. } = &mut both;
    let leg = rig.leg(*bad);
    rig.stall(leg);
    for id in 0..1_000 {
        rig.app(*bad, &request(id, "no/such/method", "{}"));
    }
    assert!(rig.unread(leg) > 700, "the app is no longer read");
    assert!(rig.stats(leg).queued_bytes < 64 << 10);
    both.check_good_app();
    let TwoApps { rig, bad, .. } = &mut both;
    rig.later(6_000);
    assert!(rig.apps[*bad].gone);
    assert_eq!(rig.response(2)["result"]["structuredContent"]["code"], -32010);
    both.check_good_app();
}

// ---- Apps that stall, disconnect, or send invalid frames ----

#[test]
fn an_app_that_reads_nothing_fills_only_the_queue_of_its_own_leg() {
    let mut config = config();
    config.app_limits.output_bytes = 4 << 10;
    let mut both = TwoApps::with(config);
    let TwoApps { rig, bad, .. } = &mut both;
    let leg = rig.leg(*bad);
    rig.stall(leg);
    let mut refused = 0;
    for id in 100..400 {
        rig.agent(&call_tool(&id.to_string(), "bad__t", r#"{"text":"some words that take room"}"#, None));
        assert!(rig.stats(leg).queued_bytes <= 5 << 10);
        refused += rig.agent_received().len();
    }
    assert!(refused > 200, "calls without room in the queue are refused at once: {refused}");
    both.check_good_app();
    let TwoApps { rig, bad, .. } = &mut both;
    let waiting = 300 - refused;
    // An invocation that is cancelled before it was sent is never sent.
    for id in 100..400 {
        rig.agent(&cancelled(id));
    }
    rig.resume(leg);
    assert_eq!(rig.all_invoked(*bad).len(), 0);
    assert!(waiting > 0);
    assert_eq!(rig.stats(leg).outbound_calls, 1, "only the call that ran before");
}

#[test]
fn each_call_of_an_app_that_leaves_or_is_closed_fails_once() {
    // The end of the app's transport, or `None` if the bridge closes the app: at once or gracefully.
    for (how, graceful) in [(Some(TransportEnd::Failed), false), (Some(TransportEnd::Eof), false), (None, false), (None, true)] {
        let mut both = TwoApps::new();
        let TwoApps { rig, bad, .. } = &mut both;
        for id in 100..140 {
            rig.call(id, "bad__t");
        }
        rig.drop_received();
        match how {
            Some(end) => {
                rig.end(rig.leg(*bad), end);
            }
            None => {
                let close = if graceful { Close::Graceful { grace: std::time::Duration::from_secs(1) } } else { Close::Now };
                rig.bridge.close_app(rig.apps[*bad].channel, close, rig.now);
                rig.deliver();
                rig.later(1_000);
            }
        }
        let mut ids: Vec<u64> = Vec::new();
        for frame in rig.agent_received().iter().map(|text| value(text)).filter(|frame| frame.get("id").is_some()) {
            assert_eq!(frame["result"]["structuredContent"]["code"], -32010);
            ids.push(frame["id"].as_u64().unwrap());
        }
        ids.sort_unstable();
        assert_eq!(ids, [2].into_iter().chain(100..140).collect::<Vec<_>>());
        assert!(rig.apps[*bad].gone);
        both.check_good_app();
    }
}

#[test]
fn an_app_that_is_closed_gracefully_ends_its_running_calls_and_starts_no_new_ones() {
    let mut both = TwoApps::new();
    let TwoApps { rig, bad, bad_call, .. } = &mut both;
    let how = Close::Graceful { grace: std::time::Duration::from_secs(5) };
    rig.bridge.close_app(rig.apps[*bad].channel, how, rig.now);
    rig.deliver().later(3_000);
    // A new call fails.
    assert!(rig.call_text(9, "bad__t", "{}").1);
    rig.app(*bad, &bad_call.progress(r#","percent":80"#)).app(*bad, &bad_call.output("\"done\""));
    assert_eq!(rig.response(2)["result"]["content"][0]["text"], "done");
    assert!(rig.apps[*bad].gone);
    both.check_good_app();
}

#[test]
fn a_frame_that_is_too_large_closes_only_its_own_leg() {
    let mut config = config();
    config.app_limits.frame_bytes = 4 << 10;
    let mut both = TwoApps::with(config);
    let TwoApps { rig, bad, bad_call, .. } = &mut both;
    rig.app(*bad, &bad_call.output(&format!(r#""{}""#, "x".repeat(5 << 10))));
    assert!(
        rig.untaken_events.iter().any(|event| matches!(event, BridgeEvent::AppClosed { reason: CloseReason::FrameTooLarge, .. }))
    );
    assert_eq!(rig.response(2)["result"]["structuredContent"]["code"], -32010);
    both.check_good_app();
}

#[test]
fn an_invalid_frame_is_reported_only_to_the_owner() {
    let mut both = TwoApps::new();
    let TwoApps { rig, bad, bad_call, .. } = &mut both;
    rig.drop_received();
    for id in 0..2_000 {
        rig.app(*bad, ["{", "[]", "null", r#"{"jsonrpc":"2.0"}"#, r#"{"jsonrpc":"2.0","id":"x","result":1}"#][id % 5]);
    }
    assert!(rig.agent_received().is_empty() && rig.app_received(*bad).is_empty());
    assert_eq!(rig.unread(rig.leg(*bad)), 0);
    let violations = rig.events().into_iter().filter(|event| matches!(event, BridgeEvent::Violation { .. })).count();
    assert_eq!(violations, 2_000);
    rig.app(*bad, &bad_call.output("1"));
    assert!(rig.response(2).get("result").is_some());
    both.check_good_app();
}

#[test]
fn no_leg_is_read_while_as_many_events_as_the_limit_are_unpolled() {
    let mut both = TwoApps::new();
    let TwoApps { rig, good, bad, .. } = &mut both;
    let (leg, legs) = (rig.leg(*bad), [Leg::Agent, rig.leg(*good), rig.leg(*bad)]);
    let (limit, mut read) = (config().agent_limits.events, 0);
    while rig.bridge.wants_input(leg) {
        rig.bridge.handle_frame(leg, bytes::Bytes::from_static(b"{"), rig.now).unwrap();
        read += 1;
        assert!(read <= limit);
    }
    for leg in legs {
        assert!(!rig.bridge.wants_input(leg), "{leg:?}");
        let refused = rig.bridge.handle_frame(leg, bytes::Bytes::from_static(b"{"), rig.now);
        assert!(refused.is_err(), "the frame is handed back: {leg:?}");
    }
    let events = std::iter::from_fn(|| rig.bridge.poll_event()).count();
    assert_eq!((read, events), (limit, limit), "one event for each frame that was read");
    assert!(legs.into_iter().all(|leg| rig.bridge.wants_input(leg)));
    both.check_good_app();
}

#[test]
fn apps_with_long_actions_do_not_keep_the_tools_of_other_apps_off_the_list() {
    let mut config = config();
    config.agent_limits.frame_bytes = 64 << 10;
    let mut rig = Rig::with(config);
    rig.join("good");
    let long: Vec<Value> = (0..40).map(|n| json!({"name": format!("t{n}"), "description": "x".repeat(1 << 10)})).collect();
    rig.join_with("long", &json!(long).to_string(), "[]");
    rig.join_with("wide", &json!(long).to_string(), "[]");
    assert!(rig.app_tools().iter().any(|name| name == "good__t"), "the tools of other apps are still listed");
}

#[test]
fn an_app_with_more_actions_than_fit_the_list_of_tools_is_omitted_from_the_list() {
    let mut config = config();
    config.agent_limits.frame_bytes = 64 << 10;
    let mut rig = Rig::with(config);
    rig.join("good");
    let actions: Vec<Value> = (0..60_000).map(|n| json!({"name": format!("t{n}")})).collect();
    rig.join_with("many", &json!(actions).to_string(), "[]");
    let list = bytes::Bytes::from(request(5, "tools/list", "{}"));
    let counted = allocation_counter::measure(|| {
        rig.bridge.handle_frame(Leg::Agent, list, rig.now).unwrap();
    });
    assert!(counted.bytes_max < 1 << 20, "{counted:?}");
    // The five tools of the bridge itself, and the one of `good`.
    assert_eq!(rig.deliver().response(5)["result"]["tools"].as_array().map(Vec::len), Some(6));
}

// ---- Misbehaving agents ----

#[test]
fn an_agent_that_leaves_during_forty_calls_cancels_each_of_them_and_leaves_no_state() {
    for end in [TransportEnd::Failed, TransportEnd::Eof] {
        let mut rig = Rig::new();
        let apps = [rig.join("a"), rig.join("b")];
        for id in 0..40 {
            rig.call(id, if id % 2 == 0 { "a__t" } else { "b__t" });
        }
        let calls = apps.map(|app| rig.all_invoked(app));
        rig.app(apps[0], &calls[0][0].sample(1)).app(apps[1], &calls[1][0].confirm(1));
        rig.drop_received().end(Leg::Agent, end);
        rig.later(5_000);
        for (app, calls) in apps.into_iter().zip(&calls) {
            let received = rig.app_received(app);
            for call in calls {
                let cancels = received
                    .iter()
                    .filter(|text| text.contains("actions/cancel") && text.contains(&format!("\"{}\"", call.invocation)));
                assert_eq!(cancels.count(), 1, "{end:?}: {received:?}");
            }
            assert_eq!(
                received.iter().filter(|text| value(text)["id"] == 1).count(),
                1,
                "the input request is answered: {received:?}"
            );
            assert!(rig.apps[app].gone);
        }
        rig.assert_idle();
        assert_eq!((rig.bridge.channels().count(), rig.bridge.is_closed(Leg::Agent)), (0, true));
        rig.later(24 * 60 * 60 * 1000);
        assert_eq!(rig.bridge.poll_timeout(), None);
    }
}

#[test]
fn an_agent_that_has_ended_its_side_still_gets_responses_for_a_while() {
    let mut rig = Rig::new();
    let app = rig.join("a");
    rig.call(1, "a__t").call(2, "a__t");
    let calls = rig.all_invoked(app);
    rig.end(Leg::Agent, TransportEnd::Eof).later(4_000);
    rig.app(app, &calls[0].output("1"));
    assert!(rig.response(1).get("result").is_some());
    rig.later(1_000);
    assert!(rig.bridge.is_closed(Leg::Agent) && rig.apps[app].gone);
    rig.assert_idle();
}

#[test]
fn an_agent_that_never_reads_delays_no_app_and_is_disconnected_in_the_end() {
    let mut config = config();
    (config.agent_limits.output_bytes, config.agent_limits.output_bytes_hard) = (16 << 10, 64 << 10);
    let mut rig = Rig::with(config);
    let app = rig.join("a");
    rig.stall(Leg::Agent);
    let answer = format!(r#""{}""#, "x".repeat(4 << 10));
    for id in 0..40 {
        rig.call(id, "a__t");
        if rig.bridge.is_closed(Leg::Agent) {
            break;
        }
        for call in rig.all_invoked(app) {
            rig.app(app, &call.output(&answer));
        }
        assert_eq!(rig.unread(rig.leg(app)), 0);
    }
    assert!(rig.untaken_events.iter().any(|event| matches!(event, BridgeEvent::AgentClosed(CloseReason::Overload))));
    assert!(rig.apps[app].gone);
    rig.assert_idle();
}

#[test]
fn calls_beyond_the_limit_of_an_app_are_refused_as_busy() {
    let mut config = config();
    config.app_limits.in_flight = 8;
    let mut rig = Rig::with(config);
    let (app, other) = (rig.join("a"), rig.join("b"));
    for id in 0..20 {
        rig.call(id, "a__t");
    }
    let refused = rig.agent_received();
    assert_eq!((rig.all_invoked(app).len(), refused.len()), (8, 12));
    assert!(refused.iter().all(|text| value(text)["result"]["isError"] == true));
    rig.call(50, "b__t");
    rig.invoked(other);
    rig.agent(&request(51, "resources/read", r#"{"uri":"tesseron://a/balance"}"#));
    assert_ne!(rig.response(51)["error"]["code"], -32009, "busy is not unauthorised");
}

#[test]
fn the_number_of_subscriptions_of_an_agent_is_bounded() {
    let mut config = config();
    config.agent_limits.in_flight = 64;
    config.app_limits.in_flight = 64;
    let mut rig = Rig::with(config);
    let app = rig.join("a");
    let mut agreed = 0;
    for id in 0..5_000 {
        rig.agent(&request(id, "resources/subscribe", &json!({"uri": format!("tesseron://a/r{id}")}).to_string()));
        for text in rig.app_received(app) {
            rig.app(app, &answered(&value(&text)["id"], "null"));
        }
        agreed += rig.agent_received().iter().filter(|text| value(text).get("result").is_some()).count();
    }
    assert!(agreed < 5_000, "the number of subscriptions is bounded");
}

#[test]
fn a_call_of_a_very_long_tool_name_is_forwarded_to_its_app() {
    let mut rig = Rig::new();
    let app = rig.join("a");
    rig.call(1, &format!("a{}", "_".repeat(4 << 20)));
    let call = rig.invoked(app);
    assert_eq!(call.name.len(), (4 << 20) - 2, "an unknown action is refused by the app");
}

#[test]
fn an_agent_that_never_starts_its_handshake_is_disconnected_with_all_apps() {
    let mut rig = Rig::empty(config());
    let app = rig.dial();
    rig.app(app, &hello("a", ACTIONS, RESOURCES));
    rig.at(10_000);
    assert!(rig.bridge.is_closed(Leg::Agent) && rig.apps[app].gone);
    rig.assert_idle();
}

// ---- Independence of legs ----

#[test]
fn a_stalled_app_delays_no_frames_to_or_from_another() {
    let mut both = TwoApps::new();
    let TwoApps { rig, bad, bad_call, .. } = &mut both;
    let leg = rig.leg(*bad);
    rig.stall(leg);
    rig.app(*bad, &bad_call.sample(3)).app(*bad, &bad_call.progress(r#","percent":10"#));
    both.check_good_app();
    let TwoApps { rig, bad, bad_call, .. } = &mut both;
    rig.app(*bad, &bad_call.output("1"));
    assert!(rig.agent_received().iter().any(|text| value(text)["id"] == 2), "frames from the stalled app are still forwarded");
}

#[test]
fn frames_for_a_closed_leg_are_ignored() {
    let TwoApps { mut rig, bad, bad_call, .. } = TwoApps::new();
    let leg = rig.leg(bad);
    rig.lose(bad).drop_received();
    rig.app(bad, &bad_call.output("1")).app(bad, &hello("bad", ACTIONS, RESOURCES)).end(leg, TransportEnd::Eof);
    rig.bridge.close_app(rig.apps[bad].channel, Close::Now, rig.now);
    assert!(rig.deliver().agent_received().is_empty() && rig.events().is_empty());
    assert!(rig.bridge.is_closed(leg) && rig.bridge.poll_transmit(leg).is_none() && rig.bridge.stats(leg).is_none());
}
