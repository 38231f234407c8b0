//! The service as a route of axum: what its layers attach reaches handlers, and what they refuse reaches none.
#![cfg(feature = "http")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use adapter_tokio::Clock;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use endpoint::{Context, Service, Tool};
use http_service::{HostOriginLayer, HttpService};
use protocol_core::Identity;

#[derive(Clone)]
struct User(String);

async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let Some(name) = header.and_then(|value| value.strip_prefix("Bearer ")) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let user = User(name.to_owned());
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Calls `whoami` with more fields, and returns the whole response.
fn ask(address: SocketAddr, fields: &str) -> String {
    let prefix = "io.modelcontextprotocol";
    let meta = format!(r#"{{"{prefix}/protocolVersion":"2026-07-28","{prefix}/clientCapabilities":{{}}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"whoami","_meta":{meta}}}}}"#);
    let usual = "Connection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                 MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: whoami\r\n";
    let mut stream = TcpStream::connect(address).expect("a server");
    let request = format!("POST /mcp HTTP/1.1\r\n{fields}{usual}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("a reader");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("a response");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_see_what_layers_attach_and_nothing_that_they_refuse() {
    let whoami = Tool::new("whoami", async |context: Context, (): ()| {
        let user = context.extensions().get::<Parts>().and_then(|parts| parts.extensions.get::<User>());
        Ok(user.map_or("nobody", |user| &user.0).to_owned())
    });
    let service = Arc::new(Service::new(Identity::new("server", "1.0")).tool(whoami));
    let router = Router::new()
        .route_service("/mcp", HttpService::new(service, Arc::new(Clock::start())))
        .layer(from_fn(authenticate))
        .layer(HostOriginLayer::loopback());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let asked = tokio::task::spawn_blocking(move || {
        ["Host: localhost\r\nAuthorization: Bearer ada\r\n", "Host: localhost\r\n", "Host: evil.example.com\r\n"]
            .map(|fields| ask(address, fields))
    });
    let [known, unknown, foreign] = asked.await.expect("no panic");
    assert!(known.starts_with("HTTP/1.1 200 ") && known.contains(r#""ada""#), "{known}");
    assert!(unknown.starts_with("HTTP/1.1 401 "), "{unknown}");
    assert!(foreign.starts_with("HTTP/1.1 403 ") && foreign.contains("this host is not served"), "{foreign}");
    serving.abort();
}
