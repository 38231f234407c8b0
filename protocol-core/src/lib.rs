//! A sans-IO session for agent tools.
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
pub mod json;
pub mod limits;
pub mod lines;
pub mod partial;
pub mod session;
mod shared;
mod sink;
pub mod table;
pub mod time;
mod wire;

pub use bytes::Bytes;
pub use config::{CallTimeouts, Config, DepthInference, DepthPolicy, ProgressPolicy, RateWindow, Timeouts};
pub use dialect::{
    Answer, Ask, Blocks, Caller, Capabilities, Completion, CompletionOf, CompletionRequest, Consent, Content, Elicit, Elicited,
    Identity, Level, LogRecord, NotFound, Notice, Op, OpenUrl, Page, PeerInfo, Progress, PromptArgument, PromptInfo, Protocol,
    Reply, Request, ResourceInfo, ResourceTemplateInfo, Sample, Sampled, SessionCredentials, ToolInfo, ToolOutput, ToolResult, mcp,
    tesseron,
};
pub use error::{RpcError, Violation};
pub use json::{Json, JsonError, Text};
pub use limits::Limits;
pub use partial::PartialResult;
pub use session::{
    AlarmId, AskError, CancelReason, CheckpointError, Close, CloseReason, Event, ExchangeId, Full, Gone, InboundId, InputFailed,
    InputKey, Invalid, Invoke, InvokeError, Lane, Logged, NotLive, OutboundId, Outcome, ProgressError, Received, Refused,
    ReplyKind, Reported, Route, RouteKind, ServeOptions, Session, Stats, TimeoutKind, TooManyAlarms, Transmit, TransportEnd,
};
pub use shared::Arc;
pub use sink::FrameSink;
pub use time::Instant;
pub use wire::WireId;
