//! Resources through a bridge: lists, reads and subscriptions. The bridge subscribes to each resource of an app only once.

use protocol_core::TransportEnd;
use serde_json::{Value, json};
use testkit::scripted::{cancelled, notification, request};
use tests::bridge::{ACTIONS, RESOURCES, Rig, answered, config, credentials, hello, resume, value};

const URI: &str = "tesseron://ledger/balance";

fn rig() -> (Rig, usize) {
    let mut rig = Rig::new();
    let app = rig.join("ledger");
    (rig, app)
}

fn read(id: u64, uri: &str) -> String {
    request(id, "resources/read", &json!({"uri": uri}).to_string())
}

fn subscribe(id: u64, uri: &str) -> String {
    request(id, "resources/subscribe", &json!({"uri": uri}).to_string())
}

fn unsubscribe(id: u64, uri: &str) -> String {
    request(id, "resources/unsubscribe", &json!({"uri": uri}).to_string())
}

fn updated(subscription: &Value, value: &str) -> String {
    notification("resources/updated", &format!(r#"{{"subscriptionId":{subscription},"value":{value}}}"#))
}

/// The agent subscribes and the app accepts. Returns the id of the subscription at the app.
fn subscribed(rig: &mut Rig, app: usize, id: u64) -> Value {
    rig.agent(&subscribe(id, URI));
    let (asked, params) = rig.app_request(app, "resources/subscribe");
    rig.app(app, &answered(&asked, "null"));
    assert_eq!(rig.response(id)["result"], json!({}));
    params["subscriptionId"].clone()
}

#[test]
fn each_listed_resource_can_be_read_by_its_uri() {
    let mut rig = Rig::new();
    let names = ["balance", "a b", "100%", "x?y#z", "ü/ö", ""];
    let resources = json!(names.map(|name| json!({"name": name, "description": "d", "subscribable": true}))).to_string();
    let app = rig.join_with("ledger", "[]", &resources);
    rig.agent(&request(1, "resources/list", "{}"));
    let list = rig.response(1)["result"]["resources"].clone();
    assert_eq!(list.as_array().unwrap().len(), names.len());
    for resource in list.as_array().unwrap() {
        assert_eq!(resource["mimeType"], "application/json");
        let name = resource["name"].as_str().unwrap().strip_prefix("ledger__").unwrap();
        rig.agent(&read(2, resource["uri"].as_str().unwrap()));
        let (asked, params) = rig.app_request(app, "resources/read");
        assert_eq!(params, json!({"name": name}));
        rig.app(app, &answered(&asked, r#"{"value":1}"#)).drop_received();
    }
}

#[test]
fn a_value_is_returned_as_text_or_as_json_by_its_type() {
    let (mut rig, app) = rig();
    for (output, mime, text) in [
        (r#"{"cents":991,"n":1.50}"#, "application/json", r#"{"cents":991,"n":1.50}"#),
        (r#""plain é""#, "text/plain", "plain é"),
        ("null", "application/json", "null"),
    ] {
        rig.agent(&read(1, URI));
        let (asked, _) = rig.app_request(app, "resources/read");
        rig.app(app, &answered(&asked, &format!(r#"{{"value":{output}}}"#)));
        let contents = rig.response(1)["result"]["contents"].clone();
        assert_eq!(contents, json!([{"uri": URI, "mimeType": mime, "text": text}]));
    }
    rig.agent(&read(2, URI));
    let (asked, _) = rig.app_request(app, "resources/read");
    rig.app(app, &answered(&asked, "{}"));
    assert_eq!(rig.response(2)["result"]["contents"][0]["text"], "null");
    rig.assert_idle();
}

#[test]
fn a_read_that_the_app_refuses_fails_with_the_error_of_the_app() {
    let (mut rig, app) = rig();
    rig.agent(&read(1, "tesseron://ledger/secret"));
    let (asked, _) = rig.app_request(app, "resources/read");
    rig.app(
        app,
        &format!(
            r#"{{"jsonrpc":"2.0","id":{asked},"error":{{"code":-32003,"message":"Resource not readable: secret","data":[1]}}}}"#
        ),
    );
    assert_eq!(rig.response(1)["error"], json!({"code": -32003, "message": "Resource not readable: secret", "data": [1]}));
    for (id, uri) in [(2, "tesseron://nobody/x"), (3, "file:///etc/passwd"), (4, "tesseron://ledger"), (5, "")] {
        rig.agent(&read(id, uri));
        assert_eq!(rig.response(id)["error"]["code"], -32002, "{uri}");
    }
    rig.agent(&request(6, "resources/read", "{}"));
    assert_eq!(rig.response(6)["error"]["code"], -32602);
    assert_eq!(rig.app_received(app), Vec::<String>::new());
}

#[test]
fn an_app_cannot_make_the_agent_open_an_address_with_an_error() {
    const REQUIRED: &str = r#"{"code":-32042,"message":"sign in","data":{"elicitations":[{"mode":"url","message":"?","url":"https://evil.example/","elicitationId":"1"}]}}"#;
    let mut rig = Rig::for_agent(config(), "2025-11-25", r#"{"elicitation":{"form":{},"url":{}}}"#);
    let app = rig.join("ledger");
    for (method, frame) in [("resources/read", read(1, URI)), ("resources/subscribe", subscribe(1, URI))] {
        rig.agent(&frame);
        let (asked, _) = rig.app_request(app, method);
        rig.app(app, &format!(r#"{{"jsonrpc":"2.0","id":{asked},"error":{REQUIRED}}}"#));
        assert_eq!(rig.response(1)["error"], json!({"code": -32603, "message": "sign in"}), "{method}");
    }
    // The error of a tool becomes a result, which no client reads as an error of the protocol.
    rig.call(5, "ledger__t");
    let (asked, _) = rig.app_request(app, "actions/invoke");
    rig.app(app, &format!(r#"{{"jsonrpc":"2.0","id":{asked},"error":{REQUIRED}}}"#));
    assert_eq!(rig.response(5)["result"]["isError"], true);
}

#[test]
fn a_read_ends_when_the_agent_cancels_it_or_the_app_disconnects() {
    let (mut rig, app) = rig();
    rig.agent(&read(1, URI)).agent(&cancelled(1));
    rig.assert_idle();
    rig.drop_received().agent(&read(2, URI)).lose(app);
    assert_eq!(rig.response(2)["error"]["code"], -32010);
    rig.assert_idle();
}

#[test]
fn the_agent_is_notified_of_updates_by_uri_until_it_unsubscribes() {
    let (mut rig, app) = rig();
    let subscription = subscribed(&mut rig, app, 1);
    rig.app(app, &updated(&subscription, r#"{"cents":1}"#));
    assert_eq!(rig.notifications("notifications/resources/updated"), [json!({"uri": URI})]);
    rig.agent(&unsubscribe(2, URI));
    let (asked, params) = rig.app_request(app, "resources/unsubscribe");
    assert_eq!(params, json!({"subscriptionId": subscription}));
    assert_eq!(rig.response(2)["result"], json!({}), "the response does not wait for the app");
    rig.app(app, &answered(&asked, "null")).app(app, &updated(&subscription, "2"));
    assert!(rig.agent_received().is_empty());
    rig.assert_idle();
}

#[test]
fn item_98_an_update_before_the_response_is_passed_on_and_one_of_an_unknown_subscription_is_dropped() {
    let (mut rig, app) = rig();
    rig.agent(&subscribe(1, URI));
    let (asked, params) = rig.app_request(app, "resources/subscribe");
    rig.app(app, &updated(&params["subscriptionId"], "1"));
    assert_eq!(rig.notifications("notifications/resources/updated").len(), 1);
    rig.app(app, &answered(&asked, "null")).drop_received();
    rig.app(app, &updated(&json!("sub_of_nobody"), "1"));
    assert!(rig.agent_received().is_empty());
}

#[test]
fn a_resource_is_subscribed_once_even_if_the_agent_subscribes_twice() {
    let (mut rig, app) = rig();
    rig.agent(&subscribe(1, URI)).agent(&subscribe(2, URI));
    let (asked, params) = rig.app_request(app, "resources/subscribe");
    assert!(rig.agent_received().is_empty(), "neither is answered yet");
    rig.app(app, &answered(&asked, "null"));
    let answers: Vec<Value> = rig.agent_received().iter().map(|text| value(text)).collect();
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), [1, 2]);
    rig.agent(&subscribe(3, URI));
    assert_eq!(rig.response(3)["result"], json!({}));
    assert_eq!(rig.app_received(app), Vec::<String>::new());
    rig.app(app, &updated(&params["subscriptionId"], "1"));
    assert_eq!(rig.notifications("notifications/resources/updated").len(), 1, "the agent is notified once");
}

#[test]
fn the_response_to_an_earlier_subscribe_does_not_settle_a_later_one() {
    for first_is_refused in [false, true] {
        let (mut rig, app) = rig();
        rig.agent(&subscribe(1, URI));
        let (first, _) = rig.app_request(app, "resources/subscribe");
        rig.agent(&unsubscribe(2, URI));
        rig.app_received(app);
        rig.agent(&subscribe(3, URI));
        let (second, params) = rig.app_request(app, "resources/subscribe");
        rig.drop_received();
        if first_is_refused {
            rig.app(app, &tests::bridge::refused(&first, -32003, "no"));
        } else {
            rig.app(app, &answered(&first, "null"));
        }
        assert_eq!(rig.agent_received(), Vec::<String>::new(), "the second subscribe is not answered yet");
        rig.app(app, &answered(&second, "null"));
        assert_eq!(rig.response(3)["result"], json!({}));
        rig.app(app, &updated(&params["subscriptionId"], "1"));
        assert_eq!(rig.notifications("notifications/resources/updated").len(), 1);
    }
}

#[test]
fn after_a_subscribe_that_the_agent_has_cancelled_the_agent_is_not_notified_of_updates() {
    let (mut rig, app) = rig();
    rig.agent(&subscribe(1, URI));
    let (asked, params) = rig.app_request(app, "resources/subscribe");
    rig.agent(&cancelled(1)).app(app, &answered(&asked, "null"));
    rig.drop_received().app(app, &updated(&params["subscriptionId"], "1"));
    assert_eq!(rig.agent_received(), Vec::<String>::new(), "the agent has no subscription");
}

#[test]
fn unsubscribing_without_a_subscription_succeeds() {
    let (mut rig, app) = rig();
    rig.agent(&unsubscribe(1, URI));
    assert_eq!(rig.response(1)["result"], json!({}));
    assert_eq!(rig.app_received(app), Vec::<String>::new());
}

#[test]
fn an_unsubscribe_and_the_subscribe_that_is_still_open_are_both_answered_immediately() {
    let (mut rig, app) = rig();
    rig.agent(&subscribe(1, URI)).agent(&unsubscribe(2, URI));
    let received: Vec<Value> = rig.agent_received().iter().map(|text| value(text)["id"].clone()).collect();
    assert_eq!(received, [1, 2]);
    let methods: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)["method"].clone()).collect();
    assert_eq!(methods, ["resources/subscribe", "resources/unsubscribe"], "in this order");
}

#[test]
fn subscriptions_of_an_app_end_with_it_and_those_of_others_go_on() {
    let mut rig = Rig::new();
    let (gone, other) = (rig.join("gone"), rig.join("ledger"));
    let subscription = subscribed(&mut rig, other, 1);
    rig.agent(&subscribe(2, "tesseron://gone/balance"));
    rig.end(rig.leg(gone), TransportEnd::Eof);
    assert!(rig.response(2).get("error").is_some(), "the open subscribe fails");
    rig.drop_received().app(other, &updated(&subscription, "1"));
    assert_eq!(rig.notifications("notifications/resources/updated"), [json!({"uri": URI})]);
}

// ---- After a resume ----

/// A claimed app that can resume. Like an app of the reference implementation, it forgets its subscriptions when its channel ends.
struct Resumable {
    app: usize,
    session: String,
    token: String,
}

impl Resumable {
    fn join(rig: &mut Rig) -> Self {
        let app = rig.dial();
        rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
        let (session, token) = credentials(&rig.app_response(app, 1));
        rig.claim(app);
        Self { app, session, token }
    }

    /// Resumes on a new channel. Returns the frames that the app receives after its welcome.
    fn come_back(&mut self, rig: &mut Rig) -> Vec<Value> {
        self.app = rig.dial();
        rig.app(self.app, &resume("ledger", &self.session, &self.token));
        let mut received: Vec<Value> = rig.app_received(self.app).iter().map(|text| value(text)).collect();
        let (session, token) = credentials(&received.remove(0));
        assert_eq!(session, self.session);
        self.token = token;
        received
    }
}

/// Checks that there is exactly one frame, a request of `method`. Returns its id and the subscription id in it.
#[track_caller]
fn only(frames: &[Value], method: &str) -> (Value, Value) {
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0]["method"], method);
    (frames[0]["id"].clone(), frames[0]["params"]["subscriptionId"].clone())
}

fn notified_updates(rig: &mut Rig) -> Vec<Value> {
    rig.notifications("notifications/resources/updated")
}

/// In the reference implementation, an app that resumes has no subscriptions and the gateway does not subscribe again, so the agent gets no
/// more updates.
#[test]
fn after_a_resume_a_subscription_is_renewed() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    let subscription = subscribed(&mut rig, ledger.app, 1);
    for _ in 0..3 {
        rig.lose(ledger.app).drop_received();
        let received = ledger.come_back(&mut rig);
        let (asked, again) = only(&received, "resources/subscribe");
        assert_eq!(
            (&again, &received[0]["params"]["name"]),
            (&subscription, &json!("balance")),
            "an app that has kept the subscription gets no second one"
        );
        rig.drop_received().app(ledger.app, &answered(&asked, "null"));
        assert_eq!(notified_updates(&mut rig), [json!({"uri": URI})], "an update in the meantime would have been missed");
        rig.later(100).app(ledger.app, &updated(&subscription, "1"));
        assert_eq!(notified_updates(&mut rig), [json!({"uri": URI})]);
        rig.later(100);
    }
    rig.agent(&unsubscribe(2, URI));
    let (_, params) = rig.app_request(ledger.app, "resources/unsubscribe");
    assert_eq!(params["subscriptionId"], subscription);
    rig.app(ledger.app, &updated(&subscription, "2"));
    assert_eq!(notified_updates(&mut rig), Vec::<Value>::new());
}

#[test]
fn an_app_that_resumes_while_its_old_channel_still_seems_open_is_subscribed_again() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    let subscription = subscribed(&mut rig, ledger.app, 1);
    // A queued frame that the app does not read keeps the old leg open.
    let (old, leg) = (ledger.app, rig.leg(ledger.app));
    rig.call(2, "ledger__t").stall(leg).agent(&cancelled(2));
    let (asked, _) = only(&ledger.come_back(&mut rig), "resources/subscribe");
    rig.app(ledger.app, &answered(&asked, "null")).drop_received();
    // Later frames of the old channel and its end have no effect.
    rig.resume(leg).app(old, &updated(&subscription, "0")).lose(old);
    assert_eq!(notified_updates(&mut rig), Vec::<Value>::new());
    rig.later(100).app(ledger.app, &updated(&subscription, "1"));
    assert_eq!(notified_updates(&mut rig), [json!({"uri": URI})]);
}

/// In the field 735 000 notifications of one app's `actions/list_changed` reached the agent in 8 s. The first is passed on at once, and the
/// last after at most 100 ms.
#[test]
fn a_flood_of_changes_becomes_at_most_ten_notifications_a_second() {
    for (method, from_app) in [
        ("notifications/tools/list_changed", notification("actions/list_changed", r#"{"actions":[]}"#)),
        ("notifications/resources/list_changed", notification("resources/list_changed", r#"{"resources":[]}"#)),
        ("notifications/resources/updated", String::new()),
    ] {
        let mut rig = Rig::new();
        let app = rig.join("ledger");
        let subscription = subscribed(&mut rig, app, 1);
        let from_app = if from_app.is_empty() { updated(&subscription, "1") } else { from_app };
        rig.at(1_000).drop_received();
        for step in 0..800 {
            rig.at(1_000 + step * 10);
            for _ in 0..10 {
                rig.app(app, &from_app);
            }
        }
        rig.later(1_000);
        let received = rig.agent_received_at();
        assert!(received.iter().all(|frame| value(&frame.text)["method"] == method), "{method}");
        let times: Vec<_> = received.iter().map(|frame| frame.at).collect();
        // The last change came at 8 990 ms.
        assert_eq!(times, (10..=90).map(|tenth| tenth * 100).collect::<Vec<_>>(), "{method}");
        assert_eq!(rig.bridge.poll_timeout(), None, "{method}: no deadline remains");
    }
}

/// An app that makes its own claim codes can offer the same session id and token with the next code.
#[test]
fn an_app_that_is_claimed_again_in_its_session_is_subscribed_again_after_the_claim() {
    let mut rig = Rig::new();
    let dial = |rig: &mut Rig, id: u64, code: &str| {
        let arguments = json!({"code": code}).to_string();
        rig.agent(&tests::bridge::call_tool(&id.to_string(), "tesseron__claim_session", &arguments, None));
        let (claim, _) = rig.wanted_claim();
        let app = rig.dial_claimed(claim, tests::bridge::bound(code, "s_host", "rt_host")).unwrap();
        rig.app(app, &hello("ledger", ACTIONS, RESOURCES));
        app
    };
    let app = dial(&mut rig, 1, "PQ7N-4D");
    rig.drop_received();
    let subscription = subscribed(&mut rig, app, 2);
    rig.lose(app).drop_received();
    let again = dial(&mut rig, 3, "NEW-CODE");
    let received: Vec<Value> = rig.app_received(again).iter().map(|text| value(text)).collect();
    assert_eq!(received[1]["method"], "tesseron/claimed");
    assert_eq!(only(&received[2..], "resources/subscribe").1, subscription);
}

#[test]
fn while_an_app_is_away_subscribe_and_unsubscribe_succeed_and_take_effect_at_its_resume() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    let subscription = subscribed(&mut rig, ledger.app, 1);
    rig.lose(ledger.app).drop_received();
    rig.agent(&subscribe(2, URI));
    assert_eq!(rig.response(2)["result"], json!({}));
    rig.agent(&unsubscribe(3, URI));
    assert_eq!(rig.response(3)["result"], json!({}));
    // The bridge sends the unsubscribe, since the app may have kept the subscription.
    let (asked, of) = only(&ledger.come_back(&mut rig), "resources/unsubscribe");
    assert_eq!(of, subscription);
    rig.app(ledger.app, &answered(&asked, "null"));
    assert_eq!(notified_updates(&mut rig), Vec::<Value>::new());
    rig.lose(ledger.app);
    assert_eq!(ledger.come_back(&mut rig), Vec::<Value>::new(), "there is nothing to renew");
    // After an unsubscribe and a new subscribe the subscription is renewed.
    let subscription = subscribed(&mut rig, ledger.app, 4);
    rig.lose(ledger.app).agent(&unsubscribe(5, URI)).agent(&subscribe(6, URI)).drop_received();
    assert_eq!(only(&ledger.come_back(&mut rig), "resources/subscribe").1, subscription);
}

#[test]
fn an_app_that_leaves_before_it_has_accepted_a_renewal_gets_another_one() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    let subscription = subscribed(&mut rig, ledger.app, 1);
    for _ in 0..3 {
        rig.lose(ledger.app).drop_received();
        assert_eq!(only(&ledger.come_back(&mut rig), "resources/subscribe").1, subscription);
        assert_eq!(notified_updates(&mut rig), Vec::<Value>::new());
    }
    rig.lose(ledger.app);
    assert!(rig.agent_received().iter().all(|text| value(text).get("error").is_none()), "no request fails");
    rig.assert_idle();
}

#[test]
fn an_app_that_refuses_a_renewal_is_not_subscribed_and_the_agent_is_notified_once() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    let subscription = subscribed(&mut rig, ledger.app, 1);
    rig.lose(ledger.app).drop_received();
    let (asked, _) = only(&ledger.come_back(&mut rig), "resources/subscribe");
    rig.drop_received().app(ledger.app, &tests::bridge::refused(&asked, -32003, "Resource not subscribable: balance"));
    assert_eq!(notified_updates(&mut rig), [json!({"uri": URI})], "the agent is notified, so that it reads the resource once");
    rig.app(ledger.app, &updated(&subscription, "1"));
    assert_eq!(notified_updates(&mut rig), Vec::<Value>::new());
    subscribed(&mut rig, ledger.app, 2);
}

#[test]
fn a_subscribe_that_the_app_has_not_answered_fails_when_the_channel_ends() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    rig.agent(&subscribe(1, URI)).lose(ledger.app);
    assert!(rig.response(1).get("error").is_some());
    assert_eq!(ledger.come_back(&mut rig), Vec::<Value>::new());
}

#[test]
fn a_subscribe_goes_to_the_new_session_of_an_app_and_not_to_its_absent_one() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    let subscription = subscribed(&mut rig, ledger.app, 1);
    rig.lose(ledger.app).drop_received();
    // The app has lost its token, so it has a new session.
    let other = rig.join("ledger");
    assert_eq!(rig.app_received(other), Vec::<String>::new());
    let new_subscription = subscribed(&mut rig, other, 2);
    assert_ne!(new_subscription, subscription);
    assert_eq!(ledger.come_back(&mut rig), Vec::<Value>::new(), "the agent is subscribed to the new session");
    rig.drop_received().app(other, &updated(&new_subscription, "1"));
    assert_eq!(notified_updates(&mut rig).len(), 1);
}

#[test]
fn a_subscription_is_forgotten_when_its_session_is_forgotten() {
    for how in ["its time is over", "another takes its place", "sessions are not kept", "the agent leaves"] {
        let mut config = config();
        config.agent_limits.in_flight = 1;
        config.registry.resume_ttl = std::time::Duration::from_secs(10);
        config.registry.max_disconnected = if how == "sessions are not kept" { 0 } else { 1 };
        let mut rig = Rig::with(config);
        let ledger = Resumable::join(&mut rig);
        subscribed(&mut rig, ledger.app, 1);
        let other = rig.join("other");
        rig.lose(ledger.app).drop_received();
        match how {
            "its time is over" => rig.later(10_000),
            "another takes its place" => {
                let third = rig.join("third");
                rig.lose(third)
            }
            "the agent leaves" => rig.end(tesseron::bridge::Leg::Agent, TransportEnd::Eof),
            _ => &mut rig,
        };
        if how != "the agent leaves" {
            // At most one subscription is allowed, so the old one must be gone.
            rig.drop_received().agent(&subscribe(2, "tesseron://other/balance"));
            let (asked, _) = rig.app_request(other, "resources/subscribe");
            rig.app(other, &answered(&asked, "null"));
            assert_eq!(rig.response(2)["result"], json!({}), "{how}");
        }
        rig.assert_idle();
    }
}

#[test]
fn the_subscriptions_of_a_session_that_can_be_resumed_count_toward_the_limit() {
    let mut config = config();
    config.agent_limits.in_flight = 1;
    let mut rig = Rig::with(config);
    let ledger = Resumable::join(&mut rig);
    subscribed(&mut rig, ledger.app, 1);
    rig.join("other");
    rig.lose(ledger.app).drop_received().agent(&subscribe(2, "tesseron://other/balance"));
    assert!(rig.response(2).get("error").is_some());
}

/// If all subscriptions were renewed at the same time, there would be no room for calls of the agent.
#[test]
fn thousands_of_subscriptions_are_renewed_a_few_at_a_time() {
    const MANY: usize = 3000;
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    for number in 0..MANY {
        rig.agent(&subscribe(number as u64, &format!("tesseron://ledger/r{number}")));
        for text in rig.app_received(ledger.app) {
            rig.app(ledger.app, &answered(&value(&text)["id"], "null"));
        }
    }
    rig.lose(ledger.app).drop_received();
    let mut asked = ledger.come_back(&mut rig);
    let mut renewed = std::collections::BTreeSet::new();
    let mut called = false;
    while !asked.is_empty() {
        assert!(asked.len() <= 16, "{} at once", asked.len());
        if !std::mem::replace(&mut called, true) {
            rig.call(90_000, "ledger__t");
            let call = rig.invoked(ledger.app);
            rig.app(ledger.app, &call.output("1"));
            assert_eq!(rig.response(90_000)["result"]["content"][0]["text"], "1");
        }
        for frame in std::mem::take(&mut asked) {
            assert!(renewed.insert(frame["params"]["subscriptionId"].to_string()), "each is renewed once");
            rig.app(ledger.app, &answered(&frame["id"], "null"));
        }
        asked.extend(rig.app_received(ledger.app).iter().map(|text| value(text)));
    }
    assert_eq!(renewed.len(), MANY);
    assert_eq!(notified_updates(&mut rig).len(), MANY);
    rig.assert_idle();
}

#[test]
fn unsubscribes_that_were_made_while_the_app_was_away_are_sent_a_few_at_a_time() {
    let mut rig = Rig::new();
    let mut ledger = Resumable::join(&mut rig);
    for number in 0..100 {
        rig.agent(&subscribe(number, &format!("tesseron://ledger/r{number}")));
        let (asked, _) = rig.app_request(ledger.app, "resources/subscribe");
        rig.app(ledger.app, &answered(&asked, "null"));
    }
    rig.lose(ledger.app);
    for number in 0..100 {
        rig.agent(&unsubscribe(1000 + number, &format!("tesseron://ledger/r{number}")));
    }
    let mut asked = ledger.come_back(&mut rig);
    let mut sent_unsubscribes = 0;
    while !asked.is_empty() {
        assert!(asked.len() <= 16 && asked.iter().all(|frame| frame["method"] == "resources/unsubscribe"), "{asked:?}");
        sent_unsubscribes += asked.len();
        for frame in std::mem::take(&mut asked) {
            rig.app(ledger.app, &answered(&frame["id"], "null"));
        }
        asked.extend(rig.app_received(ledger.app).iter().map(|text| value(text)));
    }
    assert_eq!(sent_unsubscribes, 100);
    rig.assert_idle();
}

#[test]
fn renewals_pause_while_the_leg_of_the_app_is_full() {
    let mut config = config();
    config.app_limits.in_flight = 2;
    config.app_limits.output_bytes = 400;
    let mut rig = Rig::with(config);
    let mut ledger = Resumable::join(&mut rig);
    for number in 0..6 {
        rig.agent(&subscribe(number, &format!("tesseron://ledger/r{number}")));
        let (asked, _) = rig.app_request(ledger.app, "resources/subscribe");
        rig.app(ledger.app, &answered(&asked, "null"));
    }
    rig.lose(ledger.app).drop_received();
    let received = ledger.come_back(&mut rig);
    assert_eq!(received.len(), 2, "only as many as there is room for");
    // The app does not read the refusals of its own requests. They fill the queue, so the answers to the two renewals are not followed by
    // more renewals yet.
    let leg = rig.leg(ledger.app);
    rig.stall(leg);
    for id in 0..4 {
        rig.app(ledger.app, &request(id, &"long".repeat(200), "{}"));
    }
    for frame in &received {
        rig.app(ledger.app, &answered(&frame["id"], "null"));
    }
    rig.resume(leg);
    let mut renewed = 2;
    loop {
        let frames: Vec<Value> = rig.app_received(ledger.app).iter().map(|text| value(text)).collect();
        let asked: Vec<_> = frames.iter().filter(|frame| frame["method"] == "resources/subscribe").collect();
        if asked.is_empty() {
            break;
        }
        renewed += asked.len();
        for frame in asked {
            rig.app(ledger.app, &answered(&frame["id"], "null"));
        }
    }
    assert_eq!(renewed, 6);
    rig.assert_idle();
}

#[test]
fn a_new_list_of_resources_replaces_the_old_one_and_the_agent_is_notified() {
    let (mut rig, app) = rig();
    rig.later(100).app(
        app,
        &notification("resources/list_changed", r#"{"resources":[{"name":"rate","description":"r","subscribable":false}]}"#),
    );
    assert_eq!(rig.agent_received(), [r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#]);
    rig.agent(&request(1, "resources/list", "{}"));
    let list = rig.response(1)["result"]["resources"].clone();
    assert_eq!(
        list,
        json!([{"uri": "tesseron://ledger/rate", "name": "ledger__rate", "description": "r", "mimeType": "application/json"}])
    );
}

#[test]
fn a_subscribe_is_not_forwarded_to_an_app_that_does_not_support_subscriptions() {
    let mut rig = Rig::new();
    let app = rig.dial();
    let without_subscriptions = tests::bridge::hello("ledger", "[]", tests::bridge::RESOURCES)
        .replace(r#""subscriptions":true"#, r#""subscriptions":false"#);
    rig.app(app, &without_subscriptions);
    rig.claim(app).agent(&subscribe(1, URI));
    assert!(rig.response(1).get("error").is_some());
    assert_eq!(rig.app_received(app), Vec::<String>::new());
}
