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
mod sink;
pub mod table;
pub mod time;
mod wire;

pub use bytes::Bytes;
pub use config::{CallTimeouts, Config, DepthInference, DepthPolicy, ProgressPolicy, RateWindow, Timeouts};
pub use dialect::{
    Answer, Ask, Blocks, Capabilities, Content, Elicit, Elicited, Identity, Level, LogRecord, NotFound, Notice, Op, Params, Pass,
    PeerInfo, Progress, Protocol, Reply, Sample, Sampled, ToolOutput, mcp, tesseron,
};
pub use error::{RpcError, Violation};
pub use json::{Json, JsonError, Text};
pub use limits::Limits;
pub use partial::PartialResult;
pub use session::{
    AlarmId, AskError, CheckpointError, Clock, Close, CloseReason, Event, Full, InboundId, InputFailed, InputKey, Invalid, Invoke,
    InvokeError, Logged, NotLive, OutboundId, Outcome, ProgressError, Refused, Reported, Route, ServeOptions, Session, Stats,
    TooManyAlarms, Transmit, TransportEnd, Why,
};
pub use sink::FrameSink;
pub use time::Instant;
pub use wire::WireId;
