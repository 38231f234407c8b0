//! Tools, prompts and resources that are added and removed while they are served. In most tests the test itself writes the frames of the
//! peer.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{hello, service};
use crate::testing::Executor;
use crate::{
    Catalog, Client, Context, Endpoint, Prompt, PromptOutput, Resource, ResourceContents, ResourceTemplate, Service, Tool,
};
use protocol_core::config::Config;
use protocol_core::dialect::Notification;
use protocol_core::dialect::tesseron::{App, AppId};
use protocol_core::drive::Machine as _;
use protocol_core::json::Json;

const TOOLS: &str = "notifications/tools/list_changed";

/// A server with the handle of its catalog.
struct Served {
    endpoint: Endpoint,
    executor: Executor,
    catalog: Catalog,
    /// The id of the last request.
    last_id: u64,
}

impl Served {
    fn new(service: Service) -> Self {
        Self::configured(service, |_| {})
    }

    fn configured(mut service: Service, change: impl FnOnce(&mut Config)) -> Self {
        let executor = Executor::new();
        let catalog = service.catalog();
        let endpoint = Endpoint::server(Arc::new(service.configure(change)), executor.runtime());
        Self { endpoint, executor, catalog, last_id: 0 }
    }

    /// Completes the handshake with a client, and returns the capabilities that the server declared.
    fn welcomed(mut self) -> (Self, Value) {
        let frames = hello("2025-11-25");
        for frame in frames {
            self.receive(frame);
        }
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let capabilities = sent.remove(0)["result"]["capabilities"].take();
        (self, capabilities)
    }

    fn receive(&mut self, frame: impl Into<Bytes>) {
        let now = self.executor.now();
        self.endpoint.handle_frame(frame.into(), now).unwrap();
        self.executor.run_until_stalled();
    }

    /// Takes the frames in the outbox.
    fn sent(&mut self) -> Vec<Value> {
        while self.endpoint.poll_event().is_some() {}
        let sent = std::iter::from_fn(|| self.endpoint.poll_transmit());
        sent.map(|sent| serde_json::from_slice(&sent.frame).unwrap()).collect()
    }

    /// Takes the notifications in the outbox, and returns their methods.
    fn sent_methods(&mut self) -> Vec<String> {
        self.sent().iter().map(|frame| frame["method"].as_str().unwrap().into()).collect()
    }

    fn request(&mut self, method: &str, params: Value) {
        self.last_id += 1;
        self.receive(json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}).to_string());
        while self.endpoint.poll_event().is_some() {}
        self.executor.run_until_stalled();
    }

    /// Makes a request whose response is sent without delay, and returns the response.
    fn exchange(&mut self, method: &str, params: Value) -> Value {
        self.request(method, params);
        let mut sent = self.sent();
        assert_eq!((sent.len(), &sent[0]["id"]), (1, &json!(self.last_id)), "{sent:?}");
        sent.remove(0)
    }

    /// Requests `list`, and returns the member `key` of each item.
    fn names(&mut self, list: &str, key: &str) -> Vec<String> {
        let method = if list == "resourceTemplates" { "resources/templates/list".into() } else { format!("{list}/list") };
        let mut answer = self.exchange(&method, json!({}));
        let Value::Array(items) = answer["result"][list].take() else { panic!("{answer}") };
        items.iter().map(|item| item[key].as_str().unwrap().into()).collect()
    }
}

fn tool(name: &str) -> Tool {
    Tool::new(name, async |_: Context, ()| Ok("done"))
}

fn resource(uri: &str) -> Resource {
    Resource::new(uri, uri, async || Ok(ResourceContents::text("0")))
}

#[test]
fn items_added_or_removed_while_served_are_announced_and_listed() {
    let (mut served, capabilities) = Served::new(service().tool(tool("first"))).welcomed();
    let declared = json!({"listChanged": true});
    let all = (&capabilities["tools"], &capabilities["prompts"], &capabilities["resources"]);
    assert_eq!(all, (&declared, &declared, &json!({"listChanged": true, "subscribe": true})));

    let catalog = served.catalog.clone();
    catalog.add_tool(tool("second")).unwrap();
    assert_eq!(served.sent_methods(), [TOOLS]);
    assert_eq!(served.names("tools", "name"), ["first", "second"]);
    assert_eq!(served.exchange("tools/call", json!({"name": "second"}))["result"]["content"][0]["text"], "done");
    assert!(catalog.remove_tool("first"));
    assert_eq!(served.sent_methods(), [TOOLS]);
    assert_eq!(served.names("tools", "name"), ["second"]);
    assert_eq!(served.exchange("tools/call", json!({"name": "first"}))["error"]["code"], -32602);

    catalog
        .add_prompt(Prompt::new("p", async |_: Context, _: std::collections::BTreeMap<String, String>| Ok(PromptOutput::default())))
        .unwrap();
    assert_eq!(served.sent_methods(), ["notifications/prompts/list_changed"]);
    assert_eq!(served.names("prompts", "name"), ["p"]);
    assert!(catalog.remove_prompt("p"));
    assert_eq!(served.sent_methods(), ["notifications/prompts/list_changed"]);
    assert_eq!(served.exchange("prompts/get", json!({"name": "p"}))["error"]["code"], -32602);

    catalog.add_resource(resource("file:///a")).unwrap();
    catalog
        .add_resource_template(ResourceTemplate::new("file:///{name}", "any", async |_: Context, _: crate::ResourceUri| {
            Ok(ResourceContents::text("1"))
        }))
        .unwrap();
    assert_eq!(served.sent_methods(), ["notifications/resources/list_changed"], "both changes are of one list");
    assert_eq!(served.names("resources", "uri"), ["file:///a"]);
    assert_eq!(served.names("resourceTemplates", "uriTemplate"), ["file:///{name}"]);
    let read = |served: &mut Served| {
        served.exchange("resources/read", json!({"uri": "file:///a"}))["result"]["contents"][0]["text"].take()
    };
    assert_eq!(read(&mut served), "0");
    assert!(catalog.remove_resource("file:///a"));
    assert_eq!(served.sent_methods(), ["notifications/resources/list_changed"]);
    assert_eq!(read(&mut served), "1");
    assert!(catalog.remove_resource_template("file:///{name}"));
    assert_eq!(served.sent_methods(), ["notifications/resources/list_changed"]);
    assert_eq!(served.exchange("resources/read", json!({"uri": "file:///a"}))["error"]["code"], -32002);
}

#[test]
fn a_service_without_a_catalog_does_not_declare_list_changes() {
    let executor = Executor::new();
    let endpoint = Endpoint::server(Arc::new(service().tool(tool("only"))), executor.runtime());
    let mut served = Served { endpoint, executor, catalog: Catalog::default(), last_id: 0 };
    served.receive(hello("2025-11-25")[0].clone());
    assert_eq!(served.sent()[0]["result"]["capabilities"]["tools"], json!({}));
}

#[test]
fn consecutive_changes_are_announced_once_and_a_change_without_effect_never() {
    let (mut served, _) = Served::new(service()).welcomed();
    for number in 0..100 {
        served.catalog.add_tool(tool(&number.to_string())).unwrap();
    }
    assert_eq!(served.sent_methods(), [TOOLS]);
    assert!(!served.catalog.remove_tool("100") && !served.catalog.remove_prompt("0") && !served.catalog.remove_resource("0"));
    assert!(!served.catalog.remove_resource_template("0"));
    assert!(served.sent_methods().is_empty());
}

#[test]
fn a_change_before_the_handshake_is_announced_after_the_handshake() {
    let mut served = Served::new(service());
    served.catalog.add_tool(tool("early")).unwrap();
    assert!(served.sent().is_empty());
    for frame in hello("2025-11-25") {
        served.receive(frame);
    }
    let sent = served.sent();
    assert_eq!((sent.len(), &sent[1]["method"]), (2, &json!(TOOLS)), "{sent:?}");
}

#[test]
fn a_change_while_the_outbox_is_full_is_announced_when_there_is_room() {
    let (mut served, _) = Served::configured(service(), |config| config.limits.output_bytes = 512).welcomed();
    let peer = served.endpoint.peer();
    let notification = || Notification::Custom { method: "x/filler".into(), params: None };
    let mut fillers = 0;
    while peer.notify(notification()).is_ok() {
        fillers += 1;
    }
    served.catalog.add_tool(tool("late")).unwrap();
    let methods = served.sent_methods();
    assert_eq!(methods.iter().filter(|method| **method == "x/filler").count(), fillers);
    assert_eq!(methods.iter().filter(|method| **method == TOOLS).count(), 1, "{methods:?}");
    assert!(served.sent_methods().is_empty());
}

#[test]
fn a_call_continues_when_its_tool_is_removed() {
    let nap = Tool::new("nap", async |context: Context, ()| {
        context.sleep(super::ms(10)).await?;
        Ok("slept")
    });
    let (mut served, _) = Served::new(service().tool(nap)).welcomed();
    served.request("tools/call", json!({"name": "nap"}));
    assert!(served.catalog.remove_tool("nap"));
    assert_eq!(served.sent_methods(), [TOOLS]);
    served.executor.run_for(super::ms(10));
    let now = served.executor.now();
    served.endpoint.handle_timeout(now);
    served.executor.run_until_stalled();
    assert_eq!(served.sent()[0]["result"]["content"][0]["text"], "slept");
}

/// Removes a tool when it is dropped.
struct RemovesOnDrop(Arc<Mutex<Option<Catalog>>>);

impl Drop for RemovesOnDrop {
    fn drop(&mut self) {
        if let Some(catalog) = &*self.0.lock().unwrap() {
            catalog.remove_tool("other");
        }
    }
}

#[test]
fn a_drop_and_an_inline_handler_may_change_the_catalog() {
    let shared_catalog = Arc::new(Mutex::new(None));
    let captured = RemovesOnDrop(Arc::clone(&shared_catalog));
    let held = Tool::new("held", move |_: Context, (): ()| {
        let _ = &captured;
        async { Ok(()) }
    });
    let grow = {
        let shared_catalog = Arc::clone(&shared_catalog);
        Tool::new("grow", move |_: Context, (): ()| {
            let catalog: Option<Catalog> = shared_catalog.lock().unwrap().clone();
            async move {
                catalog.unwrap().add_tool(tool("grown")).unwrap();
                Ok(())
            }
        })
        .inline()
    };
    let (mut served, _) = Served::new(service().tool(held).tool(tool("other")).tool(grow)).welcomed();
    *shared_catalog.lock().unwrap() = Some(served.catalog.clone());
    served.catalog.add_tool(tool("held")).unwrap();
    assert_eq!(served.sent_methods(), [TOOLS]);
    assert_eq!(served.names("tools", "name"), ["grow", "held"], "the tool that was replaced has removed another");
    served.request("tools/call", json!({"name": "grow"}));
    assert_eq!(served.sent().len(), 2, "an answer, and a notification");
    assert_eq!(served.names("tools", "name"), ["grow", "grown", "held"]);
}

#[test]
fn a_page_after_the_end_of_a_list_that_became_shorter_is_empty() {
    let (mut served, _) =
        Served::new((0..4).fold(service().page_size(2), |service, number| service.tool(tool(&number.to_string())))).welcomed();
    let cursor = served.exchange("tools/list", json!({}))["result"]["nextCursor"].take();
    for number in 0..4 {
        assert!(served.catalog.remove_tool(&number.to_string()));
    }
    assert_eq!(served.sent_methods(), [TOOLS]);
    assert_eq!(served.exchange("tools/list", json!({"cursor": cursor}))["result"], json!({"tools": []}));
    assert_eq!(served.exchange("tools/list", json!({"cursor": "tools:3"}))["error"]["code"], -32602, "no page begins there");
}

struct RecordingClient(Mutex<Vec<Notification>>);

impl Client for RecordingClient {
    fn notification(&self, notification: Notification) {
        self.0.lock().unwrap().push(notification);
    }
}

#[test]
fn a_driver_that_waits_is_woken_by_a_change() {
    let mut service = service().tool(tool("first"));
    let catalog = service.catalog();
    let client = Arc::new(RecordingClient(Mutex::default()));
    let pair = super::calls::pair_of(service, Arc::<RecordingClient>::clone(&client));
    pair.wait(pair.client.ping()).unwrap();
    catalog.add_tool(tool("second")).unwrap();
    pair.executor.run_until_stalled();
    assert_eq!(*client.0.lock().unwrap(), [Notification::ToolsChanged]);
    assert_eq!(pair.wait(pair.client.list_tools()).unwrap().len(), 2);
}

#[test]
fn a_change_is_announced_to_each_live_session_of_a_service() {
    let mut service = service();
    let catalog = service.catalog();
    let service = Arc::new(service);
    let session = || {
        let executor = Executor::new();
        let endpoint = Endpoint::server(Arc::clone(&service), executor.runtime());
        Served { endpoint, executor, catalog: catalog.clone(), last_id: 0 }.welcomed().0
    };
    let (mut one, gone, mut other) = (session(), session(), session());
    drop(gone);
    catalog.add_tool(tool("new")).unwrap();
    assert_eq!([one.sent_methods(), other.sent_methods()], [[TOOLS], [TOOLS]]);
}

#[test]
fn a_gateway_gets_the_whole_list_after_a_change() {
    let mut service = service().tool(tool("first"));
    let catalog = service.catalog();
    let config = service.app(&AppId::parse("ledger").unwrap(), App::default());
    // The configuration was made before this change, so its list of actions does not have this tool.
    catalog.add_tool(tool("second")).unwrap();
    let executor = Executor::new();
    let endpoint = Endpoint::serving(Arc::new(service), config, executor.runtime());
    let mut app = Served { endpoint, executor, catalog, last_id: 0 };
    let hello = app.sent().remove(0);
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().into()).collect()
    };
    assert_eq!(names(&hello["params"]["actions"]), ["first"]);
    let capabilities = json!({"streaming": true, "subscriptions": true, "sampling": false, "elicitation": false});
    let agent = json!({"id": "agent", "name": "agent"});
    let welcome = json!({"sessionId": "s_1", "protocolVersion": "1.2.0", "capabilities": capabilities, "agent": agent, "resumeToken": "token"});
    app.receive(json!({"jsonrpc": "2.0", "id": hello["id"], "result": welcome}).to_string());
    let sent = app.sent();
    assert_eq!((sent.len(), &sent[0]["method"]), (2, &json!("actions/list_changed")), "{sent:?}");
    assert_eq!(names(&sent[0]["params"]["actions"]), ["first", "second"]);
    assert_eq!(sent[1], json!({"jsonrpc": "2.0", "method": "resources/list_changed", "params": {"resources": []}}));

    app.catalog.add_tool(tool("third").deadline(super::ms(1500))).unwrap();
    app.catalog
        .add_prompt(Prompt::new("p", async |_: Context, _: std::collections::BTreeMap<String, String>| Ok(PromptOutput::default())))
        .unwrap();
    app.catalog.add_resource(resource("balance").subscribable()).unwrap();
    let sent = app.sent();
    assert_eq!((sent.len(), names(&sent[0]["params"]["actions"])), (2, vec!["first".into(), "second".into(), "third".into()]));
    assert_eq!(sent[0]["params"]["actions"][2]["timeoutMs"], 1500);
    assert_eq!(sent[1]["params"]["resources"][0]["subscribable"], true);
}

/// Several clients may share one server behind a bridge, and each begins with a handshake.
#[test]
fn a_subscription_outlives_another_handshake_on_the_byte_stream() {
    let (mut served, _) = Served::new(service().resource(resource("clock:").subscribable())).welcomed();
    assert_eq!(served.exchange("resources/subscribe", json!({"uri": "clock:"}))["result"], json!({}));
    for (revision, id) in [("2025-06-18", "98"), ("2025-11-25", "99")] {
        let [initialize, initialized] = hello(revision);
        served.receive(initialize.replace(r#""id":0"#, &format!(r#""id":{id}"#)));
        assert_eq!(served.sent()[0]["result"]["protocolVersion"], revision);
        served.receive(initialized);
        assert_eq!(served.endpoint.peer().update("clock:", &Json::null()), 1);
        assert_eq!(served.sent_methods(), ["notifications/resources/updated"]);
    }
    assert_eq!(served.exchange("resources/unsubscribe", json!({"uri": "clock:"}))["result"], json!({}));
    assert_eq!(served.endpoint.peer().update("clock:", &Json::null()), 0);
}
