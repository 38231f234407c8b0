//! The API for applications: tools, clients and calls over a session, on any runtime.
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
//! * To serve: a [`Service`] of [`Tool`]s, [`Prompt`]s and [`Resource`]s, whose handlers get a [`Context`].
//! * To call: a [`Peer`], whose calls are futures ([`Call`]); a [`Client`] answers the input requests of the server.
//! * An [`Endpoint`] connects a [`Service`] or a [`Client`] with a session. It depends on no runtime: an adapter provides tasks and a clock
//!   through [`Runtime`], and [`drive`] runs the endpoint over a transport.
//!
//! [`Context::sleep`] and [`Context::with_timeout`] use the deadlines of the endpoint instead of a runtime's timers, so handlers run in
//! virtual time under test:
//!
//! ```
//! use endpoint::{Context, Service, Tool, ToolError};
//!
//! let nap = Tool::new("nap", async |context: Context, ()| {
//!     context.sleep(std::time::Duration::from_secs(60)).await?; // ends early when the call is cancelled
//!     Ok::<_, ToolError>("rested")
//! });
//! let service = Service::new("bed", "1").tool(nap);
//! # drop(service);
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `seal` | on | lets handlers make input requests in MCP 2026-07-28 |
//! | `tracing` | on | spans and events for a `tracing` subscriber |
//! | `validate` | off | checks every keyword of a schema that restricts values, but not `format` |
//! | `testing` | off | the module `testing`, which runs one handler, or two endpoints, in virtual time |
//!
//! ## Schemas
//!
//! Arguments of tools and of typed prompts, and typed answers, are checked against the schemas of their types. This crate checks what the
//! schemas of the types of std and of derived types consist of: types, members, choices, ranges of numbers, lengths of lists and strings,
//! unique elements, integers as keys (`patternProperties`), and what a value must not be (`not`). With the feature `validate`, schemas with
//! other keywords that restrict values, such as the `pattern` of `#[schemars(regex(..))]`, are checked by the crate `jsonschema`. Without
//! the feature, a tool or prompt with such a schema cannot be registered, and an input request for an answer with such a schema fails
//! ([`AskFailed::Invalid`]); the error of the registration ([`Refused`]) names the keyword and its place.
//!
//! ## Tracing
//!
//! All spans and events have the target `protocol_core`.
//!
//! * Spans: `invocation` for each inbound call, entered around each poll of its handler; `call` for each outbound call; `input_request`
//!   for each input request that a [`Client`] answers.
//! * Events: panics (error); progress, log records and checkpoints of a handler that were refused, outcomes of effects that the store did
//!   not record, violations of the peer, a handshake that the peer refused, and abandoned handlers ([`Counters::abandoned`]) (warn); the
//!   end of the session (info, or warn if it was not orderly); cancels of inbound calls, and the ends of calls (debug).
//!
//! No subscriber is called under the endpoint's lock.
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

mod aliases;
mod ask_failed;
mod cancelled;
#[cfg(feature = "validate")]
mod check_full;
mod check_own;
mod client;
mod context;
mod endpoint;
mod extensions;
mod peer;
mod prompt_output;
mod resource_contents;
#[doc(hidden)]
pub mod returned;
mod schema;
mod service;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod text_shape;
mod tool_error;
mod validation_errors;

pub use ask_failed::AskFailed;
pub use cancelled::{Cancelled, TimeoutError};
pub use client::{Client, InputContext};
pub use context::{AskFuture, Cancellation, Context, Subrange};
pub use endpoint::{Endpoint, drive, drive_local};
pub use engine::{BoxFuture, LocalBoxFuture, LocalRuntime, LocalTasks, MakeLocal, Runtime, TimedRuntime};
pub use extensions::{Extensions, Principal};
pub use peer::{Call, Canceller, Peer};
pub use service::{
    Arguments, Around, Catalog, Completion, CompletionOf, CompletionRequest, Handler, HandlerKind, Hook, HookRequest, HookResponse,
    Next, Parameter, Prompt, PromptMessage, PromptOutput, Reader, Refused, Resource, ResourceContents, ResourceTemplate,
    ResourceUri, Returns, Service, State, Tool, UpdateError, Updates,
};
pub use state::rounds::{Claim, EffectKey, Lease, MemoryOnceStore, OnceStore, SealKeys, StoreError};
pub use state::{CallError, CallOutcome, Counters, ListFailed};
pub use tool_error::{Failure, Result, ToolError};
