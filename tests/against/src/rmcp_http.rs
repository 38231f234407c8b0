//! rmcp as a server over HTTP, for the example `http-bench`: prints the address that it listens on.

mod rmcp_tools;

use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp_tools::Server;
use tokio::net::TcpListener;

/// Runs the server on one thread, as the other servers of `http-bench` run.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sessions = LocalSessionManager::default().into();
    let service = StreamableHttpService::new(|| Ok(Server), sessions, StreamableHttpServerConfig::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, Router::new().fallback_service(service)).await.expect("a server");
}
