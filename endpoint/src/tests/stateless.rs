//! Callers without a handshake (MCP 2026-07-28), played by the test.

use std::sync::Arc;

use protocol_core::drive::Machine as _;
use protocol_core::mcp::Era;
use protocol_core::{Config, Identity, Json, Level, Sample};
use serde_json::{Value, json};

use crate::testing::Executor;
use crate::{Context, Endpoint, Resource, ResourceContents, Service, Tool, ToolError};

struct Served {
    endpoint: Endpoint,
    executor: Executor,
}

impl Served {
    fn new(service: Service) -> Self {
        let executor = Executor::new();
        Self { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor }
    }

    /// Sends a request with these parameters, whose `_meta` names the caller and has also `meta`; returns the frames that come back.
    fn request(&mut self, id: u64, method: &str, mut params: Value, meta: Value) -> Vec<Value> {
        let caller = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        });
        params["_meta"] = caller;
        for (name, value) in meta.as_object().unwrap() {
            params["_meta"][name] = value.clone();
        }
        self.frame(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    fn frame(&mut self, frame: &Value) -> Vec<Value> {
        let now = self.executor.now();
        self.endpoint.handle_frame(frame.to_string().into(), now).unwrap();
        self.sent()
    }

    fn sent(&mut self) -> Vec<Value> {
        while self.endpoint.poll_event().is_some() {}
        self.executor.run_until_stalled();
        let frames = std::iter::from_fn(|| self.endpoint.poll_transmit());
        frames.map(|frame| serde_json::from_slice(&frame.frame).unwrap()).collect()
    }
}

fn service() -> Service {
    let greet = Tool::new("greet", async |context: Context, ()| {
        context.log(Level::Info, "hello");
        let asked = context.sample(Sample::new("?")).await.is_err();
        Ok::<_, ToolError>(format!("{} of {}, asked: {asked}", context.caller().identity().name, context.caller().protocol()))
    });
    let clock = Resource::new("clock:", "clock", async |_| Ok::<_, ToolError>(ResourceContents::text("12")));
    let both = |config: &mut Config| config.era = Era::Auto;
    Service::new(Identity::new("s", "1")).configure(both).tool(greet).resource(clock.subscribable())
}

#[test]
fn a_tool_serves_a_caller_without_a_handshake_and_cannot_ask_it() {
    let mut served = Served::new(service());
    let sent = served.request(1, "tools/call", json!({"name": "greet"}), json!({}));
    assert_eq!(sent.len(), 1, "no record was asked for: {sent:?}");
    assert_eq!(sent[0]["result"]["content"][0]["text"], "c of 2026-07-28, asked: true");
    assert_eq!(sent[0]["result"]["resultType"], "complete");
    let sent = served.request(2, "tools/call", json!({"name": "greet"}), json!({"io.modelcontextprotocol/logLevel": "debug"}));
    assert_eq!((sent.len(), &sent[0]["params"]["data"]), (2, &json!("hello")));
}

#[test]
fn a_subscription_brings_the_changes_that_the_service_announces_until_it_is_cancelled() {
    let mut service = service();
    let catalog = service.catalog();
    let mut served = Served::new(service);
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": ["clock:", "other:"]});
    let sent = served.request(1, "subscriptions/listen", json!({"notifications": wanted}), json!({}));
    let accepted = json!({"toolsListChanged": true, "resourceSubscriptions": ["clock:"]});
    assert_eq!((sent.len(), &sent[0]["params"]["notifications"]), (1, &accepted));
    catalog.remove_tool("greet");
    served.executor.run_until_stalled();
    assert_eq!(served.endpoint.peer().update("clock:", &Json::null()), 1);
    let methods: Vec<_> = served.sent().iter().map(|frame| frame["method"].clone()).collect();
    assert_eq!(methods.len(), 2, "{methods:?}");
    assert!(
        methods.contains(&json!("notifications/tools/list_changed")) && methods.contains(&json!("notifications/resources/updated"))
    );
    served.frame(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    assert_eq!(served.endpoint.peer().update("clock:", &Json::null()), 0);
    assert_eq!(served.sent(), [Value::Null; 0]);
}
