//! Callers without a handshake (MCP 2026-07-28). In most tests the test itself writes the frames of the caller.

use std::sync::{Arc, Mutex};

use protocol_core::drive::Machine as _;
use protocol_core::mcp::Era;
use protocol_core::{Config, Identity, Json, Level, Notification};
use serde_json::{Value, json};

use crate::testing::{Executor, connect};
use crate::{Client, Completion, Context, Endpoint, Prompt, PromptOutput, Resource, ResourceContents, Service, Tool, ToolError};

/// A server without a driver: the test itself passes the frames to it, and polls the frames to send.
struct Served {
    endpoint: Endpoint,
    executor: Executor,
}

impl Served {
    fn new(service: Service) -> Self {
        let executor = Executor::new();
        Self { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor }
    }

    /// Sends a request with these parameters and a `_meta` that names the caller and contains `meta`. Returns the frames that come back.
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

    /// Passes a frame to the server. Returns the frames that come back.
    fn frame(&mut self, frame: &Value) -> Vec<Value> {
        let now = self.executor.now();
        self.endpoint.handle_frame(frame.to_string().into(), now).unwrap();
        self.sent()
    }

    /// Runs the handlers until they wait, and takes the frames in the outbox.
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
        Ok::<_, ToolError>(format!("{} of {}", context.caller().identity().name, context.caller().protocol()))
    });
    let clock = Resource::new("clock:", "clock", async || Ok::<_, ToolError>(ResourceContents::text("12")));
    let both_eras = |config: &mut Config| config.era = Era::Auto;
    Service::new("s", "1").configure(both_eras).tool(greet).resource(clock.subscribable())
}

#[test]
fn a_tool_serves_a_caller_without_a_handshake_and_sends_only_the_log_records_it_asked_for() {
    let mut served = Served::new(service());
    let sent = served.request(1, "tools/call", json!({"name": "greet"}), json!({}));
    assert_eq!(sent.len(), 1, "no record was asked for: {sent:?}");
    assert_eq!(sent[0]["result"]["content"][0]["text"], "c of 2026-07-28");
    assert_eq!(sent[0]["result"]["resultType"], "complete");
    let sent = served.request(2, "tools/call", json!({"name": "greet"}), json!({"io.modelcontextprotocol/logLevel": "debug"}));
    assert_eq!((sent.len(), &sent[0]["params"]["data"]), (2, &json!("hello")));
}

#[test]
fn a_subscription_is_notified_of_the_changes_that_it_lists_until_it_is_cancelled() {
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

/// The notifications that a client receives.
#[derive(Default)]
struct Notifications(Mutex<Vec<Notification>>);

impl Client for Notifications {
    fn notification(&self, notification: Notification) {
        self.0.lock().unwrap().push(notification);
    }
}

#[test]
fn the_methods_of_a_client_call_and_subscribe_in_the_same_way_in_either_era() {
    for (era, version) in [(Era::Auto, "2026-07-28"), (Era::Modern, "2026-07-28"), (Era::Legacy, "2025-11-25")] {
        let mut service = service();
        let catalog = service.catalog();
        let executor = Executor::new();
        let server = Endpoint::server(Arc::new(service), executor.runtime());
        let notifications = Arc::new(Notifications::default());
        let mut config = Config::mcp_client(Identity::new("c", "1"));
        config.era = era;
        let client = Endpoint::client(Arc::clone(&notifications) as Arc<dyn Client>, config, executor.runtime());
        let (peer, server_handle) = (client.peer(), server.peer());
        assert_eq!(peer.era(), None);
        connect(&executor, server, client);
        let text: String = executor.block_on(peer.call_tool_as("greet", &json!({}))).unwrap().unwrap();
        assert_eq!(text, format!("c of {version}"));
        assert_eq!(peer.era(), Some(if era == Era::Legacy { Era::Legacy } else { Era::Modern }));
        assert_eq!(executor.block_on(peer.subscribe("clock:")), Some(Ok(())));
        assert_eq!(server_handle.update("clock:", &Json::null()), 1);
        catalog.remove_tool("greet");
        executor.run_until_stalled();
        let received = std::mem::take(&mut *notifications.0.lock().unwrap());
        for notification in [Notification::ToolsChanged, Notification::ResourceUpdated { uri: "clock:".into() }] {
            assert!(received.contains(&notification), "{era:?}: {received:?}");
        }
        assert_eq!(executor.block_on(peer.unsubscribe("clock:")), Some(Ok(())));
        assert_eq!(server_handle.update("clock:", &Json::null()), 0);
    }
}

#[test]
fn the_typed_requests_of_a_client_read_the_same_in_either_era() {
    let greeting = Prompt::new("greet", async |_: Context, arguments: std::collections::BTreeMap<String, String>| {
        Ok(PromptOutput::new([crate::PromptMessage::user(format!("hello {}", arguments["name"]))]))
    });
    let picture = Resource::new("picture:", "picture", async || Ok(ResourceContents::blob(b"abc"))).mime_type("image/png");
    let values = async |_: Context, asked: crate::CompletionRequest| Ok(Completion::all([asked.value, "b".into()]).with_total(7));
    let of_prompt = || crate::CompletionOf::Prompt("greet".into());
    for era in [Era::Modern, Era::Legacy] {
        let service = service().prompt(greeting.clone()).resource(picture.clone()).completion(values);
        let executor = Executor::new();
        let server = Endpoint::server(Arc::new(service), executor.runtime());
        let mut config = Config::mcp_client(Identity::new("c", "1"));
        config.era = era;
        let client = Endpoint::client(Arc::new(()), config, executor.runtime());
        let peer = client.peer();
        connect(&executor, server, client);
        let arguments = [("name".to_owned(), "you".to_owned())].into();
        let prompt = executor.block_on(peer.prompt("greet", &arguments)).unwrap().unwrap();
        assert_eq!(prompt.messages[0].content.iter().next().and_then(|block| block.as_text()).as_deref(), Some("hello you"));
        let text = executor.block_on(peer.resource("clock:")).unwrap().unwrap();
        assert_eq!((text.len(), text[0].uri(), text[0].as_text(), text[0].as_base64()), (1, "clock:", Some("12"), None));
        let bytes = executor.block_on(peer.resource("picture:")).unwrap().unwrap();
        assert_eq!((bytes[0].mime_type(), bytes[0].as_text(), bytes[0].as_base64()), (Some("image/png"), None, Some("YWJj")));
        let asked = crate::CompletionRequest::new(of_prompt(), "name", "a");
        let completion = executor.block_on(peer.complete(asked)).unwrap();
        assert_eq!(completion, Ok(Completion::all(["a", "b"]).with_total(7)), "{era:?}");
    }
}

#[test]
fn a_handler_gets_the_trace_context_of_its_request() {
    let found = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&found);
    let look = Tool::new("look", move |context: Context, (): ()| {
        seen.lock().unwrap().push(context.caller().trace_context().map(|trace| trace.as_str().to_owned()));
        async { Ok(()) }
    });
    let mut served = Served::new(service().tool(look));
    let trace = json!({"tracestate": "a=b", "x": 1, "traceparent": "00-1", "baggage": "k=v"});
    served.request(1, "tools/call", json!({"name": "look"}), trace);
    served.request(2, "tools/call", json!({"name": "look"}), json!({"x": 1}));
    served.request(3, "tools/call", json!({"name": "look"}), json!({}));
    let whole = r#"{"traceparent":"00-1","tracestate":"a=b","baggage":"k=v"}"#;
    assert_eq!(*found.lock().unwrap(), [Some(whole.to_owned()), None, None]);
}

/// In the field: a completion asked for the roots of a caller that had declared them, and the error said that the caller offers none.
#[test]
fn an_input_request_for_which_the_revision_has_no_place_says_so_and_blames_no_capability() {
    async fn asks(context: Context) -> Result<(), ToolError> {
        context.roots().await?;
        Ok(())
    }
    let service = Service::new("s", "1")
        .method("ask", async |context: Context, _: Json| asks(context).await.map(|()| Json::empty_object()))
        .completion(async |context: Context, _: crate::CompletionRequest| asks(context).await.map(|()| Completion::default()))
        .prompt(Prompt::new("p", async |_: Context, _: std::collections::BTreeMap<String, String>| Ok(PromptOutput::default())));
    let mut served = Served::new(service);
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"roots": {}}});
    let complete = json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}});
    for (method, params) in [("ask", json!({})), ("completion/complete", complete)] {
        let frames = served.request(1, method, params, meta.clone());
        let expected =
            "the input request is not valid: in MCP 2026-07-28 only the handler of a tool, a prompt or a resource can make one";
        assert_eq!(frames[0]["error"]["message"], expected, "{method}");
    }
}

/// The same without keys to seal states with.
#[cfg(not(feature = "seal"))]
#[test]
fn an_input_request_that_cannot_be_sealed_says_so_and_blames_no_capability() {
    let tool = Tool::new("t", async |context: Context, ()| Ok(context.roots().await?.to_string()));
    let mut served = Served::new(Service::new("s", "1").tool(tool));
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"roots": {}}});
    let frames = served.request(1, "tools/call", json!({"name": "t"}), meta);
    let text = frames[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("it needs the feature `seal`"), "{text}");
}
