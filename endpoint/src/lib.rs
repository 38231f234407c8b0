//! What people hold: [`Service`], [`Tool`] and [`Context`] on the serving side, [`Peer`], [`Call`] and [`Client`] on the calling
//! side, [`Endpoint`] between them and a [`Driver`](protocol_core::drive::Driver).
//!
//! It needs no runtime of its own: an adapter lends tasks and a clock through [`Runtime`]. Sleeping and time limits use the endpoint's own
//! deadlines, so handlers run in virtual time under test ([`testing`]).
//!
//! With the feature `tracing`, which is on by default, it tells a subscriber under the target `protocol_core`: a span for each `invocation`
//! (entered around each poll of its handler, so that what a handler tells lies in it), for each `call` and for each `question` that a
//! [`Client`] answers, with `id`, `op`, `name` and `depth`; and events for panics (error), for what is refused, broken or given up (warn), for
//! the end of the session (info), and for how calls and invocations end (debug). No subscriber is ever called under the endpoint's lock.
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

mod alarms;
mod ask;
mod call;
mod client;
mod completion;
mod context;
mod diagnose;
mod endpoint;
mod invocation;
mod peer;
mod plain;
mod prompt;
mod resource;
mod schema;
mod service;
mod shared;
mod subrange;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tool;

pub use ask::AskFailed;
pub use call::{Call, CallError, Done};
pub use client::{Asked, Client};
pub use completion::{Completion, CompletionOf, CompletionRequest};
pub use context::{Cancellation, Cancelled, Context, TimeoutError};
pub use endpoint::{Endpoint, drive};
pub use engine::{BoxFuture, Runtime};
pub use peer::Peer;
pub use prompt::{Prompt, PromptMessage, PromptOutput};
pub use resource::{Resource, ResourceContents, ResourceTemplate, ResourceUri};
pub use service::Service;
pub use shared::Counters;
pub use subrange::Subrange;
pub use tool::{Tool, ToolError};
