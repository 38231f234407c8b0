//! A server over HTTP as a route of axum, behind a layer that knows its callers. `axum_server [ADDRESS]` prints the address that it listens
//! on; the token of Alice is `a-secret`.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use sansmcp::Principal;
use sansmcp::http::{HostOriginLayer, HttpService};
use sansmcp::prelude::*;
use sansmcp::tokio::TokioRuntime;

/// The caller.
#[derive(Clone)]
struct User(&'static str);

async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let user = match header.and_then(|value| value.strip_prefix("Bearer ")) {
        Some("a-secret") => User("Alice"), // a real layer verifies the token
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(Principal::new(user.0)); // nobody else can use her sessions
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Says who asks
#[tool]
async fn whoami(context: Context) -> Result<String> {
    let head = context.extensions().get::<Parts>();
    let user = head.and_then(|head| head.extensions.get::<User>()).ok_or("the request has no user")?;
    Ok(user.0.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let service = Service::new("server", "1.0").tool(whoami());
    let mcp = HttpService::new(service.into(), Arc::new(TokioRuntime::start()));
    let router = Router::new().route_service("/mcp", mcp).layer(from_fn(authenticate)).layer(HostOriginLayer::loopback()); // the last layer is the outermost: it refuses pages of other origins before all else
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}
