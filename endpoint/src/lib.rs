//! The types that applications write against: tools, clients and calls over a session, on any runtime.
//!
//! # Which layer do you need?
//!
//! | You want to | Take |
//! |---|---|
//! | own the event loop, test in virtual time, run without std | `protocol-core` |
//! | write tools or clients | `endpoint`, and `adapter-tokio` or `adapter-smol` |
//! | put a transport or a runtime of your own under an endpoint | `endpoint`, `engine`, `adapter-io` |
//! | be a Tesseron app, or the gateway to such apps | `tesseron`, and an adapter with the feature `tesseron` |
//! | call tools from a terminal | `programs` |
//!
//! # This crate
//!
//! * To serve: a [`Service`] of [`Tool`]s, [`Prompt`]s and [`Resource`]s, whose handlers get a [`Context`].
//! * To call: a [`Peer`], whose calls are futures ([`Call`]); a [`Client`] answers what the server asks.
//! * [`Endpoint`] joins either with a session. It needs no runtime of its own: an adapter lends tasks and a clock through [`Runtime`], and
//!   [`drive`] runs it over a transport.
//!
//! Sleeping and time limits use the endpoint's own deadlines, so handlers run in virtual time under test:
//!
//! ```
//! use endpoint::{Context, Service, Tool, ToolError};
//! use protocol_core::Identity;
//!
//! let nap = Tool::new("nap", async |context: Context, ()| {
//!     context.sleep(std::time::Duration::from_secs(60)).await?; // ends early when the call is cancelled
//!     Ok::<_, ToolError>("rested")
//! });
//! let service = Service::new(Identity::new("bed", "1")).tool(nap);
//! # drop(service);
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `validate` | on | arguments of tools and typed answers are checked against their whole schema: by rules of this crate where they are all that it consists of, as of nearly all derived ones, and else by the crate `jsonschema`. Without it a schema that says more is an error ([`SchemaUnchecked`]) that names the place |
//! | `tracing` | on | spans and events under the target `protocol_core`: a span for each `invocation` (entered around each poll of its handler), for each `call` and for each `question` that a [`Client`] answers, with `id`, `op`, `name` and `depth`; events for panics (error), for what is refused, broken or given up (warn), for the end of the session (info), and for the ends of calls (debug). No subscriber is called under the endpoint's lock |
//! | `testing` | off | a handler under test in virtual time, without peer or runtime (`testing`) |
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
pub use peer::{Call, Canceller, Peer};
pub use service::{
    Completion, CompletionOf, CompletionRequest, Prompt, PromptMessage, PromptOutput, Resource, ResourceContents, ResourceTemplate,
    ResourceUri, SchemaUnchecked, Service, Tool, ToolError,
};
pub use state::{AskFailed, CallError, CallOutcome, Counters};
