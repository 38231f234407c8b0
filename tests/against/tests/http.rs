//! rmcp and this project over Streamable HTTP, in both eras of MCP: each as the server of the other, over real sockets.

mod peers;

use std::sync::Arc;
use std::time::Duration;

use adapter_tokio::{TokioRuntime, HttpServerAddress, http_connect, http_listen};
use axum::Router;
use endpoint::{Client, Context, Peer, Service, Tool, ToolError};
use http_service::{HttpListener, HttpService};
use peers::{Answering, Asking, Person};
use programs::tools::{Options, service};
use protocol_core::mcp::Era;
use protocol_core::{Config, Identity, Json, Outcome};
use rmcp::model::{
    CallToolRequestParams, ClientRequest, ElicitationAction, ErrorCode, ProtocolVersion, Request, ServerCapabilities, ServerConfig,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The time limit of a wait in a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for the next event of a handler.
async fn next(events: &mut mpsc::UnboundedReceiver<&'static str>) -> Option<&'static str> {
    tokio::time::timeout(PATIENCE, events.recv()).await.expect("it happens in time")
}

// ---- A client of rmcp, a server of ours ----

/// The ways in which a client of rmcp chooses its revision: by the handshake, by `server/discover`, or by a probe and then either.
fn modes() -> [(&'static str, ClientLifecycleMode); 3] {
    let newest = || vec![ProtocolVersion::V_2026_07_28];
    [
        ("initialize", ClientLifecycleMode::Initialize),
        ("discover", ClientLifecycleMode::Discover { preferred_versions: newest() }),
        ("auto", ClientLifecycleMode::Auto { preferred_versions: newest(), legacy_version: None }),
    ]
}

async fn listen(service: Service) -> HttpListener {
    http_listen("127.0.0.1:0", HttpService::new(Arc::new(service), Arc::new(TokioRuntime::start()))).await.expect("a port")
}

async fn connect(client: &Answering, to: &HttpListener, mode: ClientLifecycleMode) -> RunningService<RoleClient, Answering> {
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", to.local_addr()));
    client.clone().serve_with_lifecycle(transport, mode).await.expect("a server")
}

#[tokio::test]
async fn a_client_of_rmcp_lists_and_calls_tools_over_http_in_every_era() {
    let listener = listen(service(&Options::default())).await;
    for (name, mode) in modes() {
        let client = Answering::agreeable();
        let connected = connect(&client, &listener, mode).await;
        let is_modern = connected.peer().peer_info().expect("a server").protocol_version == ProtocolVersion::V_2026_07_28;
        assert_eq!(is_modern, name != "initialize", "{name}");
        let tools = connected.list_all_tools().await.expect("a list");
        assert!(tools.iter().any(|tool| tool.name == "countdown"), "{name}");
        let counted = Answering::call(&connected, "countdown", json!({"from": 3, "step_ms": 1})).await.expect("a result");
        assert!(counted.to_string().contains("Countdown completed successfully"), "{name}: {counted}");
        let progress = client.progress.lock().unwrap().clone();
        assert!(progress.is_sorted() && progress.last() == Some(&3.0), "{name}: {progress:?}");
        assert!(connected.cancel().await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_client_of_rmcp_answers_input_requests_over_http_in_every_era() {
    for (name, mode) in modes() {
        let listener = listen(service(&Options::default())).await;
        let client = Answering::agreeable();
        let connected = connect(&client, &listener, mode).await;
        let renamed = Answering::call(&connected, "rename", json!({"name": "old.txt"})).await.expect("a result");
        assert_eq!(renamed, json!({"renamed": {"from": "old.txt", "to": "Ada"}}), "{name}");
        let survey = Answering::call(&connected, "survey", json!({"topic": "foxes"})).await.expect("a result");
        let expected = json!({"participant": "Ada", "number": 1, "opinion": "In short: two foxes.", "publish": true});
        assert_eq!(survey, expected, "{name}");
        assert_eq!(client.asked.lock().unwrap().len(), 4, "{name}");
        let declining = Answering { action: ElicitationAction::Decline, ..Answering::agreeable() };
        let (_, mode) = modes().into_iter().find(|(other, _)| *other == name).expect("the same mode");
        let connected = connect(&declining, &listener, mode).await;
        let deleted = Answering::call(&connected, "delete", json!({"name": "old.txt"})).await.expect("a result");
        assert_eq!(deleted, json!({"cancelled": true}), "{name}");
    }
}

#[tokio::test]
async fn a_client_of_rmcp_without_capabilities_gets_the_error_for_a_missing_capability_over_http() {
    let listener = listen(service(&Options::default())).await;
    // `discover`: without a handshake.
    let (_, mode) = modes().into_iter().nth(1).expect("a mode");
    let connected = connect(&Answering::new(json!({}), ElicitationAction::Accept), &listener, mode).await;
    let refused = Answering::call(&connected, "rename", json!({"name": "old.txt"})).await;
    let Err(ServiceError::McpError(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY);
}

#[tokio::test]
async fn a_call_that_a_client_of_rmcp_cancels_over_http_is_cancelled_at_its_handler() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let tool = Tool::new("wait", move |context: Context, (): ()| {
        let sender = sender.clone();
        async move {
            let _ = sender.send("begun");
            context.cancelled().await;
            let _ = sender.send("cancelled");
            Ok::<_, ToolError>("never seen")
        }
    });
    let listener = listen(Service::new("waits", "1").tool(tool)).await;
    for (name, mode) in modes() {
        let connected = connect(&Answering::agreeable(), &listener, mode).await;
        let request = ClientRequest::CallToolRequest(Request::new(CallToolRequestParams::new("wait")));
        let call = connected.send_cancellable_request(request, PeerRequestOptions::no_options()).await.expect("a request");
        assert_eq!(next(&mut events).await, Some("begun"), "{name}");
        call.cancel(Some("enough".into())).await.expect("it is sent");
        assert_eq!(next(&mut events).await, Some("cancelled"), "{name}");
    }
}

// ---- A client of ours, a server of rmcp ----

/// Serves over HTTP with rmcp, and returns the URL.
async fn serve_rmcp<S: ServerHandler>(server: impl Fn() -> S + Send + Sync + 'static) -> String {
    let sessions = LocalSessionManager::default().into();
    let service = StreamableHttpService::new(move || Ok(server()), sessions, StreamableHttpServerConfig::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback_service(service)).await });
    url
}

fn connect_ours(client: impl Client, url: &str, era: Era) -> adapter_tokio::Connection {
    let mut config = Config::mcp_client(Identity::new("against", "0.0.0"));
    config.era = era;
    http_connect(Arc::new(client), config, HttpServerAddress::new(url)).expect("an address")
}

/// Calls a tool, and returns the text of its result.
async fn text(peer: &Peer, tool: &str, arguments: Value) -> String {
    let call = peer.call_tool(tool, Json::encode(&arguments).expect("JSON")).expect("a server");
    call.await.tool().expect("a result").text().to_string()
}

/// A server of rmcp. Its tool `wait` ends only when it is cancelled, and every other tool reports progress.
#[derive(Clone)]
struct Working(mpsc::UnboundedSender<&'static str>);

impl ServerHandler for Working {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, rmcp::model::ErrorData> {
        if call.name == "wait" {
            let _ = self.0.send("begun");
            context.ct.cancelled().await;
            let _ = self.0.send("cancelled");
        } else {
            let token = context.meta.get_progress_token().expect("a token");
            for step in 1..=5 {
                let update = rmcp::model::ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(5.0);
                context.peer.notify_progress(update).await.expect("a connection");
            }
        }
        Ok(rmcp::model::CallToolResult::success(vec![rmcp::model::ContentBlock::text("done")]).into())
    }
}

#[tokio::test]
async fn a_call_to_a_server_of_rmcp_reports_progress_or_is_cancelled_over_http_in_every_era() {
    for era in [Era::Legacy, Era::Modern, Era::Auto] {
        let (sender, mut events) = mpsc::unbounded_channel();
        let working = Working(sender);
        let url = serve_rmcp(move || working.clone()).await;
        let connection = connect_ours((), &url, era);
        let mut call = connection.peer().call_tool("report", Json::empty_object()).expect("a server");
        let mut updates = Vec::new();
        while let Some(update) = call.next_progress().await {
            updates.push(update);
        }
        assert!(matches!(call.await.outcome, Outcome::Result(_)), "{era:?}");
        assert_eq!(updates.last().and_then(|update| update.total), Some(5.0), "{era:?}: {updates:?}");
        let call = connection.peer().call_tool("wait", Json::empty_object()).expect("a server");
        assert_eq!(next(&mut events).await, Some("begun"), "{era:?}");
        call.canceller().cancel(None);
        assert_eq!(next(&mut events).await, Some("cancelled"), "{era:?}");
        assert!(matches!(call.await.outcome, Outcome::Cancelled), "{era:?}");
    }
}

#[tokio::test]
async fn a_client_of_ours_answers_input_requests_of_rmcp_over_http() {
    let url = serve_rmcp(|| Asking).await;
    for era in [Era::Modern, Era::Auto] {
        let connection = connect_ours(Person { declines: false }, &url, era);
        assert_eq!(text(&connection.peer(), "ask", json!({})).await, "accept Ada, accept", "{era:?}");
        assert_eq!(text(&connection.peer(), "interview", json!({})).await, "Ada: What do you think of Ada? It is good.");
        assert_eq!(text(&connection.peer(), "later", json!({})).await, "with 0 answers", "{era:?}");
    }
}
