//! The parts of an adapter that do not depend on its runtime.
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
//! An adapter for another runtime reads and writes bytes ([`ByteIo`], [`StreamIo`]), accepts connections ([`Accept`]), and implements
//! timers ([`Timer`](protocol_core::drive::Timer)), tasks (`engine::Runtime`) and child processes ([`Process`]). This crate adds framing by
//! lines and, with the feature `websocket`, by WebSocket messages; the closing of connections; the error type of all transports
//! ([`Error`]); a thread that reads standard input ([`Stdin`]); and the lifetimes of child processes and socket files. With the feature
//! `http-client` it has the client of Streamable HTTP, `http_client`, for which an adapter opens the connections (`HttpConnector`). With
//! `http-client-tls` this client also uses TLS and, over TLS, HTTP/2.
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

mod child;
mod error;
#[cfg(unix)]
mod fifo;
mod group;
#[cfg(feature = "http-client")]
mod http_client;
mod line_io;
mod listen;
#[cfg(unix)]
mod socket_file;
mod stdin;
mod stream_io;
#[cfg(feature = "websocket")]
mod web_socket;

pub use child::{Child, Exit, Process};
pub use error::Error;
#[cfg(unix)]
pub use fifo::{fifo_stdin, fifo_stdout};
#[cfg(feature = "http-client")]
pub use http_client::{HTTP_CONNECT_TIMEOUT, HTTP_DEAD_TIMEOUT, HttpConnector, HttpServerAddress, http_client};
pub use line_io::{ByteIo, Halves, LineIo, ReaderWriter, Whole};
pub use listen::{Accept, ListenTcp, TcpListener};
#[cfg(unix)]
pub use listen::{ListenUnix, UnixListener};
#[cfg(unix)]
pub use socket_file::SocketFile;
pub use stdin::Stdin;
pub use stream_io::StreamIo;
#[cfg(feature = "websocket")]
pub use web_socket::WebSocket;
