//! The types that an application writes against: [`Service`], [`Tool`] and [`Context`] on the serving side, [`Peer`], [`Call`] and [`Client`] on the calling
//! side, [`Endpoint`] between them and a [`Driver`](protocol_core::drive::Driver).
//!
//! It needs no runtime of its own: an adapter lends tasks and a clock through [`Runtime`]. Sleeping and time limits use the endpoint's own
//! deadlines, so handlers run in virtual time under test ([`testing`]).
//!
//! With the feature `validate`, which is on by default, arguments of tools and typed answers are checked against their whole schema: by
//! rules of this crate where they are all that it consists of, as of nearly all derived ones, and else by the crate `jsonschema`. Without it
//! a schema that says more is an error ([`SchemaUnchecked`]) that says where the rule stands.
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

#[cfg(feature = "validate")]
mod check_full;
mod check_plain;
mod client;
mod context;
mod endpoint;
mod extensions;
mod peer;
mod plain;
mod schema;
mod service;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod violations;

pub use client::{Client, InputContext};
pub use context::{Cancellation, Cancelled, Context, Subrange, TimeoutError};
pub use endpoint::{Endpoint, drive};
pub use engine::{BoxFuture, Runtime};
pub use extensions::Extensions;
pub use peer::{Call, Peer};
pub use service::{
    Completion, CompletionOf, CompletionRequest, Prompt, PromptMessage, PromptOutput, Resource, ResourceContents, ResourceTemplate,
    ResourceUri, SchemaUnchecked, Service, Tool, ToolError,
};
pub use state::{AskFailed, CallError, CallOutcome, Counters};
