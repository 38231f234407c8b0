//! rmcp as a server over HTTP, for the example `http-bench`: prints the address that it listens on.

use axum::Router;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ProgressNotificationParam, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::net::TcpListener;

struct Server;

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        if &*call.name == "echo" {
            let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
            return Ok(CallToolResponse::Complete(CallToolResult::success(vec![ContentBlock::text(text)])));
        }
        let count = arguments.get("count").and_then(Value::as_u64).unwrap_or_default();
        let token = context.meta.get_progress_token().expect("a token");
        for step in 1..=count {
            let update = ProgressNotificationParam::new(token.clone(), step as f64).with_total(count as f64);
            context.peer.notify_progress(update).await.expect("a connection");
        }
        Ok(CallToolResponse::Complete(CallToolResult::success(vec![ContentBlock::text("done")])))
    }
}

/// On one thread, as the other servers of the bench.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sessions = LocalSessionManager::default().into();
    let service = StreamableHttpService::new(|| Ok(Server), sessions, StreamableHttpServerConfig::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, Router::new().fallback_service(service)).await.expect("a server");
}
