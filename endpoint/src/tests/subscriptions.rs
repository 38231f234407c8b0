//! Subscriptions to a Tesseron app, across the channels of an app session. The test itself writes the frames of the gateway.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::service;
use crate::testing::Executor;
use crate::{Endpoint, Resource, ResourceContents};
use protocol_core::dialect::tesseron::{App, AppId, ResumeCredentials};
use protocol_core::drive::Machine as _;
use protocol_core::json::Json;
use protocol_core::session::TransportEnd;

/// An app with two resources, on one channel.
struct Channel {
    endpoint: Endpoint,
    executor: Executor,
    /// The id of the last request.
    last_id: u64,
}

impl Channel {
    /// Opens a channel for a new session, or to resume the session `s_1` with the token `resume`.
    fn open(resume: Option<&str>, max_subscriptions: usize) -> Self {
        let executor = Executor::new();
        let resource = |name: &str| Resource::new(name, name, async || Ok(ResourceContents::text("0"))).subscribable();
        let service = service().resource(resource("balance")).resource(resource("rate"));
        let mut app = App::default();
        app.resume = resume.map(|token| ResumeCredentials { session_id: "s_1".into(), resume_token: token.into() });
        let mut config = service.app(&AppId::parse("ledger").unwrap(), app);
        // The limit of calls is also that of subscriptions.
        config.limits.in_flight = max_subscriptions;
        let endpoint = Endpoint::serving(Arc::new(service), config, executor.runtime());
        Self { endpoint, executor, last_id: 1 }
    }

    /// The first channel of a session.
    fn first() -> Self {
        let mut channel = Self::open(None, 4);
        channel.welcome("tesseron/hello");
        channel
    }

    /// The channel on which the session of another channel is resumed.
    fn after(before: &Self) -> Self {
        let mut channel = Self::open(Some("token"), 4);
        channel.endpoint.peer().carry_over(&before.endpoint.peer());
        channel.welcome("tesseron/resume");
        channel
    }

    /// Answers the app's greeting, whose method must be `method`.
    fn welcome(&mut self, method: &str) {
        let greeting = self.sent().remove(0);
        assert_eq!(greeting["method"], method);
        let capabilities = json!({"streaming": true, "subscriptions": true, "sampling": false, "elicitation": false});
        let agent = json!({"id": "agent", "name": "agent"});
        let welcome = json!({"sessionId": "s_1", "protocolVersion": "1.2.0", "capabilities": capabilities, "agent": agent, "resumeToken": "token"});
        self.receive(&json!({"jsonrpc": "2.0", "id": greeting["id"], "result": welcome}));
        assert_eq!(self.sent(), [] as [Value; 0]);
    }

    fn receive(&mut self, frame: &Value) {
        let now = self.executor.now();
        self.endpoint.handle_frame(Bytes::from(frame.to_string()), now).unwrap();
        self.executor.run_until_stalled();
    }

    /// Takes the frames in the outbox.
    fn sent(&mut self) -> Vec<Value> {
        while self.endpoint.poll_event().is_some() {}
        let sent = std::iter::from_fn(|| self.endpoint.poll_transmit());
        sent.map(|sent| serde_json::from_slice(&sent.frame).unwrap()).collect()
    }

    /// Sends a request as the gateway, and returns the response of the app.
    fn exchange(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        self.receive(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}));
        let mut sent = self.sent();
        assert_eq!((sent.len(), &sent[0]["id"]), (1, &json!(self.last_id)), "{sent:?}");
        sent.remove(0)
    }

    fn subscribe(&mut self, resource: &str, name: &str) -> Value {
        self.exchange("resources/subscribe", json!({"name": resource, "subscriptionId": name}))
    }

    fn subscribed(mut self, resource: &str, name: &str) -> Self {
        assert_eq!(self.subscribe(resource, name)["result"], Value::Null);
        self
    }

    /// Sends a new value of a resource, and returns the names of the subscriptions that it was sent to.
    fn update(&mut self, resource: &str) -> Vec<String> {
        let count = self.endpoint.peer().update(resource, &Json::encode(&7).unwrap());
        let sent = self.sent();
        assert_eq!(sent.len(), count);
        let name = |frame: &Value| {
            assert_eq!((&frame["method"], &frame["params"]["value"]), (&json!("resources/updated"), &json!(7)));
            frame["params"]["subscriptionId"].as_str().unwrap().to_owned()
        };
        sent.iter().map(name).collect()
    }

    /// Loses the channel.
    fn lose(&mut self) {
        self.endpoint.handle_end(TransportEnd::Failed, self.executor.now());
        self.sent();
    }
}

/// The gateway of the reference implementation does not subscribe again after a resume, so the app must keep the subscriptions.
#[test]
fn subscriptions_survive_any_number_of_resumes() {
    let mut channel = Channel::first().subscribed("balance", "inv_1").subscribed("rate", "inv_2");
    for _ in 0..3 {
        channel.lose();
        channel = Channel::after(&channel);
        assert_eq!(channel.update("balance"), ["inv_1"]);
        assert_eq!(channel.update("rate"), ["inv_2"]);
    }
    assert_eq!(channel.exchange("resources/unsubscribe", json!({"subscriptionId": "inv_1"}))["result"], Value::Null);
    assert_eq!(channel.update("balance"), [""; 0]);
    channel.lose();
    assert_eq!(Channel::after(&channel).update("balance"), [""; 0], "a subscription that was removed is not carried over");
}

#[test]
fn a_gateway_that_subscribes_again_gets_each_value_once() {
    let before = Channel::first().subscribed("balance", "sub_1").subscribed("rate", "sub_2");
    let mut channel = Channel::after(&before).subscribed("balance", "sub_1").subscribed("rate", "other");
    assert_eq!(channel.update("balance"), ["sub_1"]);
    assert_eq!(channel.update("rate"), ["other"]);
    let again = channel.subscribe("balance", "sub_1");
    assert_eq!(again["error"]["code"], -32600, "the id is in use in this session: {again}");
    // A session may have several subscriptions to a resource.
    assert_eq!(channel.subscribed("balance", "sub_3").update("balance"), ["sub_1", "sub_3"]);
}

#[test]
fn an_id_that_was_carried_over_may_be_used_for_another_resource() {
    let mut channel = Channel::after(&Channel::first().subscribed("balance", "sub_1")).subscribed("rate", "sub_1");
    assert_eq!((channel.update("balance"), channel.update("rate")), (vec![], vec!["sub_1".to_owned()]));
}

#[test]
fn subscriptions_that_are_carried_over_are_bounded_and_replaced_by_new_ones() {
    let mut channel = Channel::first();
    for name in ["a", "b", "c", "d"] {
        channel = channel.subscribed("balance", name);
    }
    assert_eq!(channel.subscribe("rate", "e")["error"]["code"], -32603, "there is no room");
    // The first new subscription to a resource replaces all those to this resource that were carried over.
    let mut after = Channel::after(&channel).subscribed("balance", "e");
    assert_eq!(after.update("balance"), ["e"]);
    let peer = after.endpoint.peer();
    for _ in 0..3 {
        peer.carry_over(&channel.endpoint.peer());
    }
    assert_eq!(after.update("balance"), ["e"], "a replaced subscription does not come back");
    let mut narrow = Channel::open(Some("token"), 2);
    narrow.endpoint.peer().carry_over(&channel.endpoint.peer());
    narrow.welcome("tesseron/resume");
    assert_eq!(narrow.update("balance"), ["a", "b"]);
}
