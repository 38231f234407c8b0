//! A sans-IO session for tool calls that take minutes, over MCP and Tesseron, with progress, cancellation, timeouts, input requests in the
//! middle of a call, and exactly one outcome for each call.
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
//! State machines without a clock, socket, file, task or lock. The owner of a machine passes in frames and the time, and polls frames to
//! write, events and the next deadline.
//!
//! * [`Session`] is one end of one channel to one peer. Its documentation groups the methods by purpose, has an example with both ends, and
//!   lists the guarantees G1 to G16.
//! * [`Config`] has the [`Protocol`], [`Limits`], [`Timeouts`] and [`ProgressPolicy`] of a session. Sessions can share a configuration.
//! * A session returns [`Event`] and [`Transmit`]; its methods take [`Invoke`], [`Reply`], [`InputRequest`] and [`InputResponse`].
//! * [`drive`] is the event loop as a future, for a transport and a timer of your own; [`lines`] splits a byte stream into frames at line
//!   feeds, and joins frames into such a stream.
//! * [`http`] is MCP over Streamable HTTP: the state machines of both ends, which connect an HTTP library with sessions, and the codecs of
//!   headers and events.
//! * [`listing`] answers lists and refuses unknown names, for a server with an event loop of its own.
//! * [`json`] has JSON text as slices of a frame, [`dialect`] has the types of messages, and [`table`] has maps whose keys are ids.
//!
//! ```
//! use protocol_core::{Config, Event, Identity, Instant, Lane, Session};
//!
//! let mut server = Session::new(Config::mcp_server(Identity::new("server", "1.0")), Instant::ZERO); let hello =
//! r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
//! server.handle_frame(hello.into(), Lane::CHANNEL, Instant::from_millis(1))?; let answer = server.poll_transmit().expect("an answer to the
//! handshake"); assert!(answer.frame.starts_with(br#"{"jsonrpc":"2.0","id":1,"result""#));
//! # Ok::<(), protocol_core::Full>(())
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `std` | on | turns on `std` in the dependencies, and vectored writes in [`lines::LineEncoder`]; a session behaves the same without it |
//! | `no-cas` | off | `Arc` of `portable-atomic-util`, for targets without compare-and-swap |
//!
//! No input makes this crate panic. The bounds of a session are in [`Limits`], those of HTTP in
//! [`http::HttpLimits`] and [`http::HttpClientLimits`].
#![cfg_attr(not(any(feature = "std", test)), no_std)]
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

extern crate alloc;

mod byte_queue;
pub mod config;
pub mod dialect;
pub mod drive;
pub mod error;
mod event_json;
pub mod http;
pub mod json;
pub mod limits;
pub mod lines;
pub mod listing;
pub mod partial;
pub mod session;
mod shared;
mod sink;
pub mod table;
pub mod time;
pub mod url;
mod wire;

pub use bytes::Bytes;
pub use config::{CallTimeouts, Config, DepthInference, DepthPolicy, ProgressPolicy, RateWindow, Timeouts};
pub use dialect::{
    Annotations, Blocks, Caller, Capabilities, Completion, CompletionOf, CompletionRequest, Content, Elicit, ElicitResult, Icon,
    IconTheme, Identity, InputRequest, InputResponse, InputRound, Level, LogRecord, NoDefault, NotFound, Notification, Op, OpenUrl,
    OpenUrlResult, Page, PeerInfo, Progress, PromptArgument, PromptInfo, PromptResult, PromptResultMessage, Protocol, Reply,
    Request, ResourceInfo, ResourceTemplateInfo, Retry, Sample, SampleResult, SessionCredentials, SubscriptionFilter, ToolInfo,
    ToolOutput, ToolResult, mcp, tesseron,
};
pub use error::{MemberFault, RpcError, Unreadable, Violation};
pub use json::{Json, JsonError, Text};
pub use limits::Limits;
pub use partial::PartialResult;
pub use session::{
    AlarmId, AskError, CancelReason, CheckpointError, Close, CloseReason, Event, ExchangeId, Full, Gone, InboundId, InputFailed,
    InputKey, InputMode, Invalid, Invoke, InvokeError, Lane, Logged, NotLive, OutboundId, Outcome, PendingInput, ProgressError,
    Received, ReplyKind, Reported, Route, RouteKind, SendError, ServeOptions, Session, Stats, TimeoutKind, TooManyAlarms, Transmit,
    TransportEnd,
};
pub use shared::Arc;
pub use sink::FrameSink;
pub use time::Instant;
pub use wire::WireId;
