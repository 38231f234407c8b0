//! Resources through the gateway: lists, reads, and subscriptions, of which the app has one however often the agent asks.

use protocol_core::TransportEnd;
use serde_json::{Value, json};
use tests::bridge::{House, answered, value};
use tests::end::{cancelled, notification, request};

const URI: &str = "tesseron://ledger/balance";

fn house() -> (House, usize) {
    let mut house = House::new();
    let app = house.join("ledger");
    (house, app)
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

/// The agent subscribes and the app agrees; gives what the app calls the subscription.
fn subscribed(house: &mut House, app: usize, id: u64) -> Value {
    house.agent(&subscribe(id, URI));
    let (asked, params) = house.app_asked(app, "resources/subscribe");
    house.app(app, &answered(&asked, "null"));
    assert_eq!(house.response(id)["result"], json!({}));
    params["subscriptionId"].clone()
}

#[test]
fn resources_are_listed_with_uris_that_lead_back_to_them() {
    let mut house = House::new();
    let names = ["balance", "a b", "100%", "x?y#z", "ü/ö", ""];
    let resources = json!(names.map(|name| json!({"name": name, "description": "d", "subscribable": true}))).to_string();
    let app = house.join_with("ledger", "[]", &resources);
    house.agent(&request(1, "resources/list", "{}"));
    let list = house.response(1)["result"]["resources"].clone();
    assert_eq!(list.as_array().unwrap().len(), names.len());
    for resource in list.as_array().unwrap() {
        assert_eq!(resource["mimeType"], "application/json");
        let name = resource["name"].as_str().unwrap().strip_prefix("ledger__").unwrap();
        house.agent(&read(2, resource["uri"].as_str().unwrap()));
        let (asked, params) = house.app_asked(app, "resources/read");
        assert_eq!(params, json!({"name": name}));
        house.app(app, &answered(&asked, r#"{"value":1}"#)).forget();
    }
}

#[test]
fn a_value_is_text_or_json_as_it_is_written() {
    let (mut house, app) = house();
    for (output, mime, text) in [
        (r#"{"cents":991,"n":1.50}"#, "application/json", r#"{"cents":991,"n":1.50}"#),
        (r#""plain é""#, "text/plain", "plain é"),
        ("null", "application/json", "null"),
    ] {
        house.agent(&read(1, URI));
        let (asked, _) = house.app_asked(app, "resources/read");
        house.app(app, &answered(&asked, &format!(r#"{{"value":{output}}}"#)));
        let contents = house.response(1)["result"]["contents"].clone();
        assert_eq!(contents, json!([{"uri": URI, "mimeType": mime, "text": text}]));
    }
    house.agent(&read(2, URI));
    let (asked, _) = house.app_asked(app, "resources/read");
    house.app(app, &answered(&asked, "{}"));
    assert_eq!(house.response(2)["result"]["contents"][0]["text"], "null");
    house.assert_idle();
}

#[test]
fn what_cannot_be_read_is_an_error_with_the_number_of_the_app() {
    let (mut house, app) = house();
    house.agent(&read(1, "tesseron://ledger/secret"));
    let (asked, _) = house.app_asked(app, "resources/read");
    house.app(
        app,
        &format!(
            r#"{{"jsonrpc":"2.0","id":{asked},"error":{{"code":-32003,"message":"Resource not readable: secret","data":[1]}}}}"#
        ),
    );
    assert_eq!(house.response(1)["error"], json!({"code": -32003, "message": "Resource not readable: secret", "data": [1]}));
    for (id, uri) in [(2, "tesseron://nobody/x"), (3, "file:///etc/passwd"), (4, "tesseron://ledger"), (5, "")] {
        house.agent(&read(id, uri));
        assert_eq!(house.response(id)["error"]["code"], -32002, "{uri}");
    }
    house.agent(&request(6, "resources/read", "{}"));
    assert_eq!(house.response(6)["error"]["code"], -32602);
    assert_eq!(house.app_heard(app), Vec::<String>::new());
}

#[test]
fn a_read_that_the_agent_gives_up_or_the_app_does_not_survive_ends() {
    let (mut house, app) = house();
    house.agent(&read(1, URI)).agent(&cancelled(1));
    house.assert_idle();
    house.forget().agent(&read(2, URI)).lose(app);
    assert_eq!(house.response(2)["error"]["code"], -32010);
    house.assert_idle();
}

#[test]
fn an_update_tells_the_uri_and_ends_with_the_subscription() {
    let (mut house, app) = house();
    let name = subscribed(&mut house, app, 1);
    house.app(app, &updated(&name, r#"{"cents":1}"#));
    assert_eq!(house.notifications("notifications/resources/updated"), [json!({"uri": URI})]);
    house.agent(&unsubscribe(2, URI));
    let (asked, params) = house.app_asked(app, "resources/unsubscribe");
    assert_eq!(params, json!({"subscriptionId": name}));
    assert_eq!(house.response(2)["result"], json!({}), "whatever the app says to it");
    house.app(app, &answered(&asked, "null")).app(app, &updated(&name, "2"));
    assert!(house.heard().is_empty());
    house.assert_idle();
}

#[test]
fn item_98_an_update_that_comes_before_the_answer_is_told_and_one_of_no_subscription_is_not() {
    let (mut house, app) = house();
    house.agent(&subscribe(1, URI));
    let (asked, params) = house.app_asked(app, "resources/subscribe");
    house.app(app, &updated(&params["subscriptionId"], "1"));
    assert_eq!(house.notifications("notifications/resources/updated").len(), 1);
    house.app(app, &answered(&asked, "null")).forget();
    house.app(app, &updated(&json!("sub_of_nobody"), "1"));
    assert!(house.heard().is_empty());
}

#[test]
fn a_resource_is_subscribed_once_however_often_the_agent_asks() {
    let (mut house, app) = house();
    house.agent(&subscribe(1, URI)).agent(&subscribe(2, URI));
    let (asked, params) = house.app_asked(app, "resources/subscribe");
    assert!(house.heard().is_empty(), "both wait");
    house.app(app, &answered(&asked, "null"));
    let answers: Vec<Value> = house.heard().iter().map(|text| value(text)).collect();
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), [1, 2]);
    house.agent(&subscribe(3, URI));
    assert_eq!(house.response(3)["result"], json!({}));
    assert_eq!(house.app_heard(app), Vec::<String>::new());
    house.app(app, &updated(&params["subscriptionId"], "1"));
    assert_eq!(house.notifications("notifications/resources/updated").len(), 1, "and told once");
}

#[test]
fn item_99_a_subscribe_that_fails_leaves_nothing() {
    let (mut house, app) = house();
    house.agent(&subscribe(1, URI)).agent(&subscribe(2, URI));
    let (asked, params) = house.app_asked(app, "resources/subscribe");
    house.app(app, &tests::bridge::refused(&asked, -32003, "Resource not subscribable: balance"));
    let answers: Vec<Value> = house.heard().iter().map(|text| value(text)["error"]["code"].clone()).collect();
    assert_eq!(answers, [-32003, -32003]);
    house.app(app, &updated(&params["subscriptionId"], "1"));
    assert!(house.heard().is_empty());
    subscribed(&mut house, app, 3);
}

#[test]
fn the_answer_to_an_earlier_subscribe_does_not_settle_a_later_one() {
    for first_is_refused in [false, true] {
        let (mut house, app) = house();
        house.agent(&subscribe(1, URI));
        let (first, _) = house.app_asked(app, "resources/subscribe");
        house.agent(&unsubscribe(2, URI));
        house.app_heard(app);
        house.agent(&subscribe(3, URI));
        let (second, params) = house.app_asked(app, "resources/subscribe");
        house.forget();
        if first_is_refused {
            house.app(app, &tests::bridge::refused(&first, -32003, "no"));
        } else {
            house.app(app, &answered(&first, "null"));
        }
        assert_eq!(house.heard(), Vec::<String>::new(), "the second one is not answered yet");
        house.app(app, &answered(&second, "null"));
        assert_eq!(house.response(3)["result"], json!({}));
        house.app(app, &updated(&params["subscriptionId"], "1"));
        assert_eq!(house.notifications("notifications/resources/updated").len(), 1);
    }
}

#[test]
fn a_subscribe_that_the_agent_gives_up_leaves_no_subscription_at_the_app() {
    let (mut house, app) = house();
    house.agent(&subscribe(1, URI));
    let (asked, params) = house.app_asked(app, "resources/subscribe");
    house.agent(&cancelled(1)).app(app, &answered(&asked, "null"));
    house.forget().app(app, &updated(&params["subscriptionId"], "1"));
    assert_eq!(house.heard(), Vec::<String>::new(), "nobody has subscribed");
}

#[test]
fn unsubscribing_what_was_never_subscribed_is_well() {
    let (mut house, app) = house();
    house.agent(&unsubscribe(1, URI));
    assert_eq!(house.response(1)["result"], json!({}));
    assert_eq!(house.app_heard(app), Vec::<String>::new());
}

#[test]
fn unsubscribing_while_the_app_has_not_answered_answers_both() {
    let (mut house, app) = house();
    house.agent(&subscribe(1, URI)).agent(&unsubscribe(2, URI));
    let heard: Vec<Value> = house.heard().iter().map(|text| value(text)["id"].clone()).collect();
    assert_eq!(heard, [1, 2]);
    let methods: Vec<Value> = house.app_heard(app).iter().map(|text| value(text)["method"].clone()).collect();
    assert_eq!(methods, ["resources/subscribe", "resources/unsubscribe"], "in this order");
}

#[test]
fn subscriptions_of_an_app_end_with_it_and_those_of_others_go_on() {
    let mut house = House::new();
    let (gone, other) = (house.join("gone"), house.join("ledger"));
    let name = subscribed(&mut house, other, 1);
    house.agent(&subscribe(2, "tesseron://gone/balance"));
    house.end(house.leg(gone), TransportEnd::Eof);
    assert!(house.response(2).get("error").is_some(), "who waits is told");
    house.forget().app(other, &updated(&name, "1"));
    assert_eq!(house.notifications("notifications/resources/updated"), [json!({"uri": URI})]);
}

/// The app has a new session on its new channel, and the gateway none of its subscriptions (item 110).
#[test]
fn after_a_resume_the_agent_subscribes_anew_and_is_heard() {
    let (mut house, app) = {
        let mut house = House::new();
        let app = house.dial();
        house.app(app, &tests::bridge::hello("ledger", tests::bridge::ACTIONS, tests::bridge::RESOURCES));
        (house, app)
    };
    let (session, token) = tests::bridge::credentials(&house.app_response(app, 1));
    house.claim(app);
    subscribed(&mut house, app, 1);
    // Its old channel is not known to be gone, and holds a frame that nobody reads and that cannot be taken back.
    let leg = house.leg(app);
    house.call(2, "ledger__t").stall(leg).agent(&cancelled(2));
    let again = house.dial();
    house.app(again, &tests::bridge::resume("ledger", &session, &token)).forget();
    house.agent(&subscribe(3, URI));
    let (asked, params) = house.app_asked(again, "resources/subscribe");
    house.app(again, &answered(&asked, "null"));
    assert_eq!(house.response(3)["result"], json!({}));
    house.app(again, &updated(&params["subscriptionId"], "1"));
    assert_eq!(house.notifications("notifications/resources/updated").len(), 1);
}

#[test]
fn a_new_list_of_resources_replaces_the_old_one_and_the_agent_is_told() {
    let (mut house, app) = house();
    house.app(
        app,
        &notification("resources/list_changed", r#"{"resources":[{"name":"rate","description":"r","subscribable":false}]}"#),
    );
    assert_eq!(house.heard(), [r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#]);
    house.agent(&request(1, "resources/list", "{}"));
    let list = house.response(1)["result"]["resources"].clone();
    assert_eq!(
        list,
        json!([{"uri": "tesseron://ledger/rate", "name": "ledger__rate", "description": "r", "mimeType": "application/json"}])
    );
}

#[test]
fn an_app_without_subscriptions_is_not_asked_for_one() {
    let mut house = House::new();
    let app = house.dial();
    let silent = tests::bridge::hello("ledger", "[]", tests::bridge::RESOURCES)
        .replace(r#""subscriptions":true"#, r#""subscriptions":false"#);
    house.app(app, &silent);
    house.claim(app).agent(&subscribe(1, URI));
    assert!(house.response(1).get("error").is_some());
    assert_eq!(house.app_heard(app), Vec::<String>::new());
}
