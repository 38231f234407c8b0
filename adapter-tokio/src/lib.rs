//! Sockets, pipes and clocks of tokio for [`protocol_core`].
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
//! Open a transport with `stdio`, `child`, `tcp_connect`, `TcpListener`, `unix_connect`, `UnixListener` or [`duplex`]; for
//! Tesseron, with `tesseron_listen` or `tesseron_dial`; or make one from any other stream with [`LineIo`]. Then either
//! * run an endpoint over the transport with [`start`] or [`connect`], which start a task and return a [`Connection`], or with [`serve`], which
//!   serves to the end of the connection; or
//! * run a session without an endpoint over it, with a [`protocol_core::drive::Driver`] and the timer [`TokioRuntime::timer`].
//!
//! Over HTTP, `http_connect` and `http_listen` do both steps.
//!
//! The tokio runtime needs its I/O driver and its time driver (`enable_all`).
//!
//! ```
//! use std::sync::Arc;
//!
//! use endpoint::{Context, Service, Tool};
//! use protocol_core::{Config, Identity, Json};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = Service::new("server", "1.0").tool(Tool::new("greet", async |_: Context, ()| Ok("hello")));
//! let (one, other) = adapter_tokio::duplex(4096);
//! let _serving = adapter_tokio::start(service, one);
//! let calling = adapter_tokio::connect(Arc::new(()), Config::mcp_client(Identity::new("client", "1.0")), other);
//! let result = calling.peer().call_tool("greet", Json::empty_object())?.await.tool()?;
//! assert_eq!(result.text(), "hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `stdio`, `child`, `net` | on | standard input and output; child processes; TCP and Unix sockets |
//! | `seal`, `tracing` | on | the features of `endpoint` with these names |
//! | `validate` | off | the feature of `endpoint` with this name |
//! | `http` | off | servers over HTTP/1.1 and HTTP/2 (`http_listen`) |
//! | `http-client` | off | a client of Streamable HTTP: `http_connect` |
//! | `http-client-tls` | off | the same client, also over TLS and HTTP/2; enables `http-client` |
//! | `tesseron` | off | Tesseron over Unix sockets |
//! | `websocket` | off | Tesseron also over WebSockets; enables `tesseron` |

#[cfg(feature = "child")]
mod child;
mod clock;
mod connection;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http-client")]
mod http_client;
mod line_io;
#[cfg(feature = "net")]
mod net;
#[cfg(feature = "stdio")]
mod stdio;
#[cfg(feature = "tesseron")]
mod tesseron;

#[cfg(feature = "tesseron")]
pub use ::tesseron::TesseronError;
#[cfg(feature = "tesseron")]
pub use ::tesseron::net::{Binding, ClaimCodeSource, Home, Instance, TesseronListener, TesseronOptions, TesseronTransport};
#[cfg(feature = "http-client")]
pub use adapter_io::HttpServerAddress;
pub use adapter_io::{Error, Exit, Halves, Whole};
#[cfg(feature = "child")]
pub use child::{Child, Process, child};
pub use clock::{TokioRuntime, TokioTimer};
pub use connection::{Connection, connect, serve, start, start_as};
#[cfg(feature = "http")]
pub use http::{http_listen, http_listen_with};
#[cfg(feature = "http-client")]
pub use http_client::http_connect;
pub use line_io::{Duplex, LineIo, TokioIo, duplex};
#[cfg(feature = "net")]
pub use net::{Tcp, TcpListener, tcp_connect};
#[cfg(all(feature = "net", unix))]
pub use net::{Unix, UnixListener, unix_connect};
#[cfg(feature = "stdio")]
pub use stdio::{Stdin, Stdout, stdio, stdout_unread};
#[cfg(feature = "tesseron")]
pub use tesseron::{tesseron_dial, tesseron_listen};
