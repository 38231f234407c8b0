//! Changes that a service tells the peers of all its sessions ([`Updates`](crate::Updates)).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use protocol_core::dialect::tesseron::{App, AppId};
use protocol_core::drive::Machine as _;
use protocol_core::mcp::Era;
use protocol_core::{Config, Identity, Notification};
use serde_json::{Value, json};

use super::{hello, ms, service};
use crate::testing::{Executor, connect};
use crate::{
    Client, Context, Endpoint, Peer, Resource, ResourceContents, ResourceTemplate, ResourceUri, Service, Tool, UpdateError,
};

#[derive(Default)]
struct Notifications(Mutex<Vec<Notification>>);

impl Client for Notifications {
    fn notification(&self, notification: Notification) {
        self.0.lock().unwrap().push(notification);
    }
}

impl Notifications {
    fn take(&self) -> Vec<Notification> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn resource(uri: &str) -> Resource {
    Resource::new(uri, uri, async || Ok(ResourceContents::text("0")))
}

fn both_eras(service: Service) -> Service {
    service.configure(|config| config.era = Era::Auto)
}

/// A client of `service` that has subscribed to these resources.
fn subscribed(executor: &Executor, service: &Arc<Service>, era: Era, uris: &[&str]) -> (Peer, Arc<Notifications>) {
    let server = Endpoint::server(Arc::clone(service), executor.runtime());
    let notifications = Arc::new(Notifications::default());
    let mut config = Config::mcp_client(Identity::new("c", "1"));
    config.era = era;
    let client = Endpoint::client(Arc::clone(&notifications) as Arc<dyn Client>, config, executor.runtime());
    let peer = client.peer();
    connect(executor, server, client);
    for uri in uris {
        assert_eq!(executor.block_on(peer.subscribe(uri)), Some(Ok(())), "{era:?}");
    }
    (peer, notifications)
}

#[test]
fn an_update_reaches_the_subscribers_of_all_sessions_in_either_era_and_no_others() {
    let mut service = both_eras(service().resource(resource("a:").subscribable()).resource(resource("b:").subscribable()));
    let updates = service.updates();
    let (executor, service) = (Executor::new(), Arc::new(service));
    let clients = [Era::Modern, Era::Legacy].map(|era| subscribed(&executor, &service, era, &["a:"]));
    let (_other, of_other) = subscribed(&executor, &service, Era::Legacy, &["b:"]);
    assert_eq!(updates.resource("a:"), Ok(2));
    executor.run_until_stalled();
    let updated = || [Notification::ResourceUpdated { uri: "a:".into() }];
    for (_, notifications) in &clients {
        assert_eq!(notifications.take(), updated());
    }
    // Many updates in a short time become one.
    for _ in 0..1000 {
        assert_eq!(updates.resource("a:"), Ok(2));
        executor.run_until_stalled();
    }
    executor.run_for(ms(1000));
    for (_, notifications) in &clients {
        assert_eq!(notifications.take(), updated());
    }
    assert_eq!(of_other.take(), []);
    for (peer, _) in &clients {
        assert_eq!(executor.block_on(peer.unsubscribe("a:")), Some(Ok(())));
    }
    assert_eq!(updates.resource("a:"), Ok(0));
}

#[test]
fn an_update_of_a_resource_that_nobody_can_subscribe_to_is_an_error() {
    let file = |template: &str| ResourceTemplate::new(template, "file", async |_: ResourceUri| Ok(ResourceContents::text("1")));
    let mut service = service()
        .resource(resource("fixed:"))
        .resource_template(file("file:///{name}"))
        .resource_template(file("log:///{name}").subscribable());
    let updates = service.updates();
    let unknown = |uri: &str| Err(UpdateError::Unknown { uri: uri.into() });
    let fixed = |uri: &str| Err(UpdateError::NotSubscribable { uri: uri.into() });
    assert_eq!(updates.resource("other:"), unknown("other:"));
    assert_eq!(updates.resource("log:///a/b"), unknown("log:///a/b"));
    assert_eq!(updates.resource("fixed:"), fixed("fixed:"));
    assert_eq!(updates.resource("file:///a"), fixed("file:///a"));
    let (executor, service) = (Executor::new(), Arc::new(both_eras(service)));
    for era in [Era::Modern, Era::Legacy] {
        let (peer, notifications) = subscribed(&executor, &service, era, &["log:///a"]);
        assert_eq!((updates.resource("log:///b"), updates.resource("log:///a")), (Ok(0), Ok(1)), "{era:?}");
        executor.run_until_stalled();
        assert_eq!(notifications.take(), [Notification::ResourceUpdated { uri: "log:///a".into() }]);
        assert_eq!(executor.block_on(peer.unsubscribe("log:///a")), Some(Ok(())));
    }
}

#[test]
fn changed_lists_are_declared_and_announced_as_far_as_the_service_has_them() {
    let mut service = both_eras(service().tool(Tool::new("only", async |_: Context, ()| Ok(()))));
    let updates = service.updates();
    let (executor, service) = (Executor::new(), Arc::new(service));
    for era in [Era::Modern, Era::Legacy] {
        let (peer, notifications) = subscribed(&executor, &service, era, &[]);
        let server = executor.block_on(peer.ready()).unwrap().unwrap().capabilities;
        assert_eq!((server.tools_list_changed, server.resources_list_changed), (true, false), "{era:?}");
        executor.run_until_stalled();
        updates.tools();
        updates.tools();
        updates.resources();
        executor.run_until_stalled();
        assert_eq!(notifications.take(), [Notification::ToolsChanged], "{era:?}");
    }
}

#[test]
fn an_update_for_which_the_queue_has_no_room_is_sent_once_when_there_is_room() {
    let mut service = service().resource(resource("a:").subscribable()).configure(|config| config.limits.output_bytes = 512);
    let updates = service.updates();
    let executor = Executor::new();
    let mut endpoint = Endpoint::server(Arc::new(service), executor.runtime());
    let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:"}}"#;
    for frame in hello("2025-11-25").iter().map(String::as_str).chain([subscribe]) {
        endpoint.handle_frame(frame.to_owned().into(), executor.now()).unwrap();
        while endpoint.poll_event().is_some() {}
    }
    while endpoint.peer().notify(Notification::Custom { method: "x/filler".into(), params: None }).is_ok() {}
    for _ in 0..3 {
        assert_eq!(updates.resource("a:"), Ok(1));
    }
    let sent: Vec<_> = std::iter::from_fn(|| endpoint.poll_transmit()).collect();
    let is_update = |frame: &[u8]| String::from_utf8_lossy(frame).contains("resources/updated");
    assert_eq!(sent.iter().filter(|sent| is_update(&sent.frame)).count(), 1);
    drop(endpoint);
    assert_eq!(updates.resource("a:"), Ok(0), "a session that has ended is not kept");
}

#[test]
fn a_gateway_gets_the_value_that_the_resource_has_after_the_change() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let counter = Resource::new("counter", "counter", move |context: Context| {
        let counted = Arc::clone(&counted);
        async move {
            context.sleep(ms(10)).await?;
            let count = counted.load(Ordering::Relaxed);
            assert!(count != 3, "a reader that panics");
            Ok(ResourceContents::text(count.to_string()))
        }
    });
    let mut service = service().resource(counter.mime_type("application/json").subscribable());
    let updates = service.updates();
    let config = service.app(&AppId::parse("ledger").unwrap(), App::default());
    let executor = Executor::new();
    let mut endpoint = Endpoint::serving(Arc::new(service), config, executor.runtime());
    let mut step = |received: Option<Value>, time: u64| -> Vec<Value> {
        if let Some(frame) = received {
            endpoint.handle_frame(frame.to_string().into(), executor.now()).unwrap();
            while endpoint.poll_event().is_some() {}
        }
        executor.run_until_stalled();
        for _ in 0..time {
            executor.run_for(ms(1));
            endpoint.handle_timeout(executor.now());
            executor.run_until_stalled();
        }
        std::iter::from_fn(|| endpoint.poll_transmit()).map(|sent| serde_json::from_slice(&sent.frame).unwrap()).collect()
    };
    let hello = step(None, 0).remove(0);
    let capabilities = json!({"streaming": true, "subscriptions": true, "sampling": false, "elicitation": false});
    let agent = json!({"id": "agent", "name": "agent"});
    let welcome = json!({"sessionId": "s_1", "protocolVersion": "1.2.0", "capabilities": capabilities, "agent": agent, "resumeToken": "token"});
    assert_eq!(step(Some(json!({"jsonrpc": "2.0", "id": hello["id"], "result": welcome})), 0), [Value::Null; 0]);
    let subscribe =
        json!({"jsonrpc": "2.0", "id": 9, "method": "resources/subscribe", "params": {"name": "counter", "subscriptionId": "one"}});
    assert_eq!(step(Some(subscribe), 0)[0]["result"], Value::Null);
    let values = |sent: Vec<Value>| -> Vec<Value> {
        sent.iter()
            .inspect(|frame| assert_eq!(frame["params"]["subscriptionId"], "one"))
            .map(|f| f["params"]["value"].clone())
            .collect()
    };
    count.store(1, Ordering::Relaxed);
    assert_eq!(updates.resource("counter"), Ok(1));
    assert_eq!(values(step(None, 10)), [json!(1)]);
    // While the resource is read it changes again, so it is read once more.
    updates.resource("counter").unwrap();
    step(None, 5);
    count.store(2, Ordering::Relaxed);
    for _ in 0..5 {
        updates.resource("counter").unwrap();
    }
    assert_eq!(values(step(None, 100)), [json!(2)]);
    count.store(3, Ordering::Relaxed);
    updates.resource("counter").unwrap();
    assert_eq!(values(step(None, 100)), [Value::Null; 0], "the reader has panicked");
    count.store(4, Ordering::Relaxed);
    updates.resource("counter").unwrap();
    assert_eq!(values(step(None, 100)), [json!(4)]);
}
