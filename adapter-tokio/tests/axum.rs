//! The service as a route of axum: handlers get the extensions that layers attach to a request, and no request that a layer refuses.
#![cfg(feature = "http")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adapter_tokio::TokioRuntime;
use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use endpoint::{Context, Service, Tool};
use http_service::{Allowed, HostOriginLayer, HttpServerConfig, HttpService};
use tower_http::cors::{AllowHeaders, CorsLayer};

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

/// Sends a request, and returns the whole response.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a server");
    stream.write_all(request.as_bytes()).expect("a reader");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

/// Calls `whoami` with the header fields `fields` and the usual header fields, and returns the whole response.
fn ask(address: SocketAddr, fields: &str) -> String {
    let prefix = "io.modelcontextprotocol";
    let meta = format!(r#"{{"{prefix}/protocolVersion":"2026-07-28","{prefix}/clientCapabilities":{{}}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"whoami","_meta":{meta}}}}}"#);
    let usual = "Connection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                 MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: whoami\r\n";
    exchange(address, &format!("POST /mcp HTTP/1.1\r\n{fields}{usual}Content-Length: {}\r\n\r\n{body}", body.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_get_the_extensions_of_layers_and_no_request_that_a_layer_refuses() {
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let whoami = Tool::new("whoami", move |context: Context, (): ()| {
        counted.fetch_add(1, Ordering::Relaxed);
        let user = context.extensions().get::<Parts>().and_then(|parts| parts.extensions.get::<User>());
        let name = user.map_or("nobody", |user| &user.0).to_owned();
        async move { Ok(name) }
    });
    let service = Arc::new(Service::new("server", "1.0").tool(whoami));
    let router = Router::new()
        .route_service("/mcp", HttpService::new(service, Arc::new(TokioRuntime::start())))
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
    assert_eq!(called.load(Ordering::Relaxed), 1);
    serving.abort();
}

/// A layer for CORS alone refuses no request: browsers enforce CORS, and send some requests without a preflight. So the test also has a
/// [`HostOriginLayer`].
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_listed_origin_can_call_a_tool_and_other_origins_do_not_reach_the_service() {
    const PAGE: &str = "https://app.example.com";
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let whoami = Tool::new("whoami", move |_: Context, (): ()| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok("ada") }
    });
    let service = Arc::new(Service::new("server", "1.0").tool(whoami));
    let origins = || Allowed::only([PAGE]);
    let mut config = HttpServerConfig::default();
    config.origins = origins();
    let cors = CorsLayer::new()
        .allow_origin(HeaderValue::from_static(PAGE))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("mcp-session-id")]);
    let router = Router::new()
        .route_service("/mcp", HttpService::with_config(service, Arc::new(TokioRuntime::start()), config))
        .layer(from_fn(authenticate))
        .layer(cors)
        .layer(HostOriginLayer::new(Allowed::default(), origins()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let asked = tokio::task::spawn_blocking(move || {
        ["https://app.example.com", "https://evil.example.com"].map(|origin| {
            let head = format!("Host: localhost\r\nOrigin: {origin}\r\n");
            let preflight_fields =
                "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: mcp-name,mcp-param-region\r\n";
            let preflight =
                exchange(address, &format!("OPTIONS /mcp HTTP/1.1\r\n{head}{preflight_fields}Connection: close\r\n\r\n"));
            (preflight.to_lowercase(), ask(address, &format!("{head}Authorization: Bearer ada\r\n")).to_lowercase())
        })
    });
    let [(listed_preflight, listed), (foreign_preflight, foreign)] = asked.await.expect("no panic");
    assert!(
        listed_preflight.starts_with("http/1.1 200 ")
            && listed_preflight.contains("access-control-allow-headers: mcp-name,mcp-param-region"),
        "{listed_preflight}"
    );
    assert!(
        listed.starts_with("http/1.1 200 ") && listed.contains("access-control-allow-origin: https://app.example.com"),
        "{listed}"
    );
    assert!(listed.contains("access-control-expose-headers: mcp-session-id"), "{listed}");
    assert!(foreign_preflight.starts_with("http/1.1 403 ") && foreign.starts_with("http/1.1 403 "), "{foreign_preflight}{foreign}");
    assert_eq!(called.load(Ordering::Relaxed), 1);
    serving.abort();
}
