//! MCP over Streamable HTTP: a [`Service`](endpoint::Service) of `endpoint` as a tower service, for axum, hyper and other HTTP servers, on
//! any runtime.
//!
//! # Which layer do you need?
//!
//! | You want to | Use |
//! |---|---|
//! | own the event loop, test in virtual time, run without std | `protocol-core` |
//! | write tools or clients | `endpoint`, and `adapter-tokio` or `adapter-smol` |
//! | serve tools over HTTP, with axum, with hyper or with neither | `http-service`, and an adapter with the feature `http` |
//! | connect an endpoint to a transport or a runtime of your own | `endpoint`, `engine`, `adapter-io` |
//! | be a Tesseron app, or the gateway to such apps | `tesseron`, and an adapter with the feature `tesseron` |
//! | call tools from a terminal | `programs` |
//!
//! # This crate
//!
//! An [`HttpService`] is one MCP server, and ignores the path of a request: the application routes requests. It serves both eras of MCP:
//! revisions with a handshake in HTTP sessions, and revisions without one in a session for each request. It needs a [`TimedRuntime`], such
//! as the clock of an adapter:
//!
//! ```
//! use std::sync::Arc;
//!
//! use endpoint::{Context, Service, TimedRuntime, Tool};
//! use http_service::HttpService;
//!
//! fn mcp(runtime: Arc<dyn TimedRuntime>) -> HttpService {
//!     let service = Service::new("greeter", "1.0").tool(Tool::new("greet", async |_: Context, ()| Ok("hello")));
//!     HttpService::new(Arc::new(service), runtime)
//! }
//! # let _ = mcp;
//! ```
//!
//! # The path of a request
//!
//! 1. [`HttpService::call`](tower_service::Service::call) takes the request. Its future reads the body, at most
//!    [`HttpLimits::body_bytes`](protocol_core::http::HttpLimits::body_bytes) of it, and only if the head is acceptable.
//! 2. The checks that need no session are made ([`HttpServerConfig::admit`]). Then the [`HttpServer`](protocol_core::http::HttpServer) of
//!    the core opens a session if the request needs a new one, and passes the frame of the request on to the
//!    [`Endpoint`](endpoint::Endpoint) of the session.
//! 3. A session with a handshake is driven by a task. A session without a handshake is driven by the future of the response, and, once the
//!    response has become a stream of events, by a task.
//! 4. The frames of the endpoint are passed back to the server, which makes the head and the body of the response from them. The future
//!    returns the head as soon as there is one; the body, an [`HttpBody`], is polled for the rest.
//!
//! # Disconnects
//!
//! If the future, or a body that is a stream, is dropped before the response has ended, the client counts as disconnected. Without a
//! handshake, the request is cancelled. With a handshake the request goes on; if the service is [`resumable`](HttpServerConfig::resumable),
//! the client can fetch the rest by a GET. The exception is an `initialize`, whose session ends.
//!
//! # Back-pressure
//!
//! If a body is not polled and more than [`HttpLimits::output_bytes`](protocol_core::http::HttpLimits::output_bytes) are queued for it, its
//! lane is stopped: progress is merged, and log records are dropped. No other request is affected.
//!
//! # Sessions without an endpoint
//!
//! Sessions need not be served by an [`Endpoint`](endpoint::Endpoint): [`HttpService::with_machines`] takes any
//! [`LaneMachine`](protocol_core::drive::LaneMachine), such as the agent's leg of a Tesseron gateway.
//!
//! # Long calls
//!
//! A handler that works for a long time can end the response early with [`ResponseStream::suspend`], so that no connection is held. The
//! client reconnects for the rest.
//!
//! # Authentication
//!
//! A layer can verify the caller, and put values into the extensions of the request. Handlers get the whole head, with these extensions,
//! from [`Context::extensions`](endpoint::Context::extensions), as [`http::request::Parts`]. If the layer adds a [`Principal`], a session
//! belongs to the principal that has opened it: a request of any other principal to that session is answered with 404.
//!
//! A server of one user, such as a gateway, needs no principals, but only a [`Guard`], which admits or refuses each connection and request.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

mod body;
mod budget;
mod future;
mod guard;
mod host_origin;
#[cfg(feature = "hyper")]
mod listen;
mod request;
mod server;
mod service;
mod stats;
#[cfg(test)]
mod tests;

pub use body::HttpBody;
pub use endpoint::{Principal, TimedRuntime};
pub use future::HttpFuture;
pub use guard::Guard;
pub use host_origin::{HostOriginBody, HostOriginFuture, HostOriginLayer, HostOriginService};
#[cfg(feature = "hyper")]
pub use listen::{Acceptor, ConnectionLimits, HttpListener};
pub use protocol_core::http::origin::Allowed;
pub use protocol_core::http::{HttpLimits, HttpServerConfig, HttpTimeouts, NotResumable};
pub use server::ResponseStream;
pub use service::HttpService;
pub use stats::HttpStats;
