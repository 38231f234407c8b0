//! Tools for AI agents, and programs that call them: the Model Context Protocol (MCP) as server and as client, on tokio, smol or any other
//! runtime.
//!
//! Made for calls that take minutes. They report progress, can be cancelled, time out, keep a partial result, and can ask the caller's user
//! or model for input. Each call has exactly one outcome, whatever the network, the peer and the handler do. All revisions of MCP from
//! 2024-11-05 to 2026-07-28 are spoken, and a handler is the same function in each of them.
//!
//! This crate has no logic. It gives the crates of the project one name, and its documentation is the first page of their manual.
//!
//! # A server
//!
//! ```toml
//! [dependencies]
//! sansmcp = "0.1"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! A tool is a function, whose doc comment is its description. The schema of its arguments is derived from their types, and they are checked
//! before the function runs. Any error converts into a [`ToolError`] by `?`.
//!
//! ```no_run
//! use sansmcp::prelude::*;
//!
//! #[args]
//! struct Resize {
//!     /// The files to resize.
//!     files: Vec<String>,
//! }
//!
//! /// What the tools share.
//! struct Database;
//!
//! /// Resizes images.
//! #[tool]
//! async fn resize(context: Context, State(_database): State<Database>, job: Resize) -> Result<usize> {
//!     for (done, _file) in (1..).zip(&job.files) {
//!         context.sleep(std::time::Duration::from_secs(1)).await?; // the work; ends early if the call is cancelled
//!         context.step(done, job.files.len() as u64);
//!     }
//!     Ok(job.files.len())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<()> {
//!     let service = Service::new("images", "1.0").state(Database).tool(resize());
//!     sansmcp::tokio::serve(service, sansmcp::tokio::stdio()).await
//! }
//! ```
//!
//! `serve` serves one connection to its end; `start` does so in a task, and returns a handle. The same `Service` is served over a socket
//! (`tokio::TcpListener`), over HTTP (`http::HttpService`), and in a test without any of these
//! (`testing::Harness`).
//!
//! # A client
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use sansmcp::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = sansmcp::tokio::child(tokio::process::Command::new("images"))?;
//!     let config = Config::mcp_client(Identity::new("me", "1.0"));
//!     let connection = sansmcp::tokio::connect(Arc::new(()), config, server); // `()` refuses input requests: see `Client`
//!     let mut call = connection.peer().call_tool("resize", Json::parse(r#"{"files":["a.png"]}"#)?)?;
//!     while let Some(progress) = call.next_progress().await {
//!         println!("{progress:?}");
//!     }
//!     println!("{}", call.await.result()?); // dropping `call` earlier would cancel it
//!     Ok(())
//! }
//! ```
//!
//! # Doors
//!
//! | You want to | Take | Feature |
//! |---|---|---|
//! | make functions tools, prompts and resources | the attributes `tool`, `prompt`, `resource` and `args` | `macros` |
//! | write tools, prompts and resources by hand | [`Service`], [`Tool`], [`Prompt`], [`Resource`], whose handlers get a [`Context`] and [`State`] | |
//! | call tools | [`Peer`], whose calls are futures ([`Call`]); a [`Client`] answers the questions of the server | |
//! | serve or connect on tokio | `tokio`: `serve`, `start`, `connect`, `stdio`, `child`, sockets | `tokio` |
//! | serve or connect on smol | `smol`: the same names | `smol` |
//! | serve over HTTP, with axum | `http`: `HttpService` | `http-server` |
//! | serve over HTTP, with hyper or without another HTTP server | `http`: `HttpService`; `http_listen` of the runtime | `http-listen` |
//! | call a server over HTTP | `http_connect` of the runtime | `http-client` |
//! | test tools, clients and sessions in virtual time | `testing` | `testing` |
//! | write a Tesseron app, or a gateway to such apps | `tesseron`; `tesseron_listen` of the runtime | `tesseron` |
//! | own the event loop | [`session`]: the session as a machine without I/O, [`session::drive`] | |
//! | connect another transport or another runtime | [`io`], [`engine`], [`drive`] | |
//!
//! [`prelude`] has the names that most programs need. It exports no module, so `#[tokio::main]` is still that of the runtime.
//!
//! # Features
//!
//! Features only add. `macros`, `tokio` and `tracing` are on by default.
//!
//! | Feature | |
//! |---|---|
//! | `tokio`, `smol` | the modules of these names. Both may be on |
//! | `macros` | the attributes `tool`, `prompt`, `resource` and `args` |
//! | `http-server` | servers over Streamable HTTP as a tower service, for axum and others |
//! | `http-listen` | `http_listen` of each runtime that is on: such servers by hyper, over HTTP/1.1 and HTTP/2; enables `http-server` |
//! | `http-client` | clients of Streamable HTTP for each runtime that is on, also over TLS and HTTP/2 |
//! | `login` | the login of a client (OAuth), as a state machine |
//! | `tesseron` | apps and gateways of Tesseron, over Unix sockets and WebSockets |
//! | `validate` | checks arguments against every keyword of their schema but `format`, by the crate `jsonschema` |
//! | `tracing` | spans and events for any `tracing` subscriber |
//! | `testing` | the module `testing`, with strategies for proptest and inputs for fuzzers |
//!
//! Without `validate`, what schemas of the types of std and of derived types consist of is checked: types, members, choices, ranges of
//! numbers, lengths of lists and strings, unique elements, integers as keys. A tool whose schema says more, such as a `pattern`, is refused
//! when it is registered; the error ([`Refused`]) names the keyword and its place.
//!
//! # Crates that are re-exported
//!
//! Types of [`serde`], [`schemars`] and [`serde_json`] are in signatures here, so a program needs the versions that fit. These are
//! re-exported. `#[args]` derives by them. A crate that wants no dependency of its own on them names them to the derive macros:
//!
//! ```
//! use sansmcp::{schemars, serde};
//!
//! #[derive(serde::Serialize, schemars::JsonSchema)]
//! #[serde(crate = "sansmcp::serde")]
//! #[schemars(crate = "sansmcp::schemars")]
//! struct Resized {
//!     files: Vec<String>,
//! }
//! ```
#![forbid(unsafe_code)]

pub mod prelude;

// The vocabulary of applications: all of `endpoint`, and what its signatures take from the core.
#[doc(inline)]
pub use endpoint::*;
#[cfg(feature = "macros")]
#[doc(inline)]
pub use macros::{args, prompt, resource, tool};
#[doc(inline)]
pub use protocol_core::{
    Annotations, Blocks, Bytes, CallTimeouts, Caller, CancelReason, Capabilities, CheckpointError, Close, CloseReason, Config,
    Content, DepthInference, DepthPolicy, Elicit, ElicitResult, ExchangeId, Gone, Icon, IconTheme, Identity, InputFailed,
    InputRequest, InputResponse, Instant, Invalid, Invoke, InvokeError, Json, JsonError, Level, Limits, LogRecord, MemberFault,
    NoDefault, NotFound, NotLive, Notification, Op, OpenUrl, OpenUrlResult, Outcome, PartialResult, PeerInfo, PendingInput,
    Progress, ProgressError, ProgressPolicy, PromptArgument, PromptInfo, PromptResult, PromptResultMessage, Protocol, RateWindow,
    Reported, ResourceInfo, ResourceTemplateInfo, RpcError, Sample, SampleResult, SendError, ServeOptions, Stats,
    SubscriptionFilter, Text, TimeoutKind, Timeouts, ToolInfo, ToolOutput, ToolResult, Violation, mcp,
};
pub use {schemars, serde, serde_json};

/// Pipes, sockets, child processes and the clock of tokio.
#[cfg(feature = "tokio")]
#[doc(inline)]
pub use adapter_tokio as tokio;

/// Pipes, sockets, child processes and the clock of smol.
#[cfg(feature = "smol")]
#[doc(inline)]
pub use adapter_smol as smol;

/// The sans-IO core: sessions, the event loop, framing, and the machines of HTTP. It has no clock, socket, task or lock.
#[doc(inline)]
pub use protocol_core as session;

/// The login of a client: OAuth without sockets and clocks.
#[cfg(feature = "login")]
#[doc(inline)]
pub use ::auth as login;

/// Claims, gateways and bridges of Tesseron.
#[cfg(feature = "tesseron")]
#[doc(inline)]
pub use ::tesseron;

/// The parts of transports for any runtime: framing by lines, child processes, sockets, WebSockets, the client of HTTP.
#[doc(inline)]
pub use adapter_io as io;

/// The lock around a machine that many handles share, and what it asks of a runtime.
#[doc(inline)]
pub use engine;

/// Streamable HTTP: a server as a tower service, and a client for connectors of any runtime.
///
/// With the feature `http-server`, serve an `HttpService` by axum; with `http-listen`, by hyper or the `http_listen` of a runtime. With
/// `http-client`, the `http_connect` of a runtime calls the server at an `HttpServerAddress`.
#[cfg(any(feature = "http-client", feature = "http-server"))]
pub mod http {
    #[cfg(feature = "http-client")]
    #[doc(inline)]
    pub use adapter_io::{HTTP_CONNECT_TIMEOUT, HttpConnector, HttpServerAddress, http_client};
    #[cfg(feature = "http-server")]
    #[doc(inline)]
    pub use http_service::*;
    #[cfg(feature = "http-client")]
    #[doc(inline)]
    pub use protocol_core::http::{HttpClientConfig, HttpClientLimits, HttpClientTimeouts};
}

/// Tests in virtual time, without a runtime: one call of a handler, two connected endpoints, sessions under a judge, links with faults,
/// strategies for proptest, and inputs for fuzzers.
#[cfg(feature = "testing")]
pub mod testing {
    #[doc(inline)]
    pub use endpoint::testing::*;
    #[doc(inline)]
    pub use testkit::*;
}
