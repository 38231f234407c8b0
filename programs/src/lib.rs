//! The programs `call`, `tools` and `gateway`, for every runtime that has an [`Adapter`](adapter::Adapter).
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
//! Each binary only calls this library. Tests and benches also use its adapters ([`adapter`]) and its tools ([`tools`]).
//!
//! A program that fails prints one line to stderr, and exits with one of the statuses in [`status`]. `call` prints more in two cases: if a
//! tool has failed, all lines of its error; and if URLs must be opened before the next call, these URLs. `tools` and `gateway` also print
//! errors after which they go on, each in one line. `docs/programs.md` describes all flags.
//!
//! | Feature | Default | Programs |
//! |---|---|---|
//! | `tokio` | on | `call`, `tools`, `gateway` |
//! | `smol` | off | `smol-call`, `smol-tools`, `smol-gateway` |

pub mod adapter;
pub mod audit;
pub mod call;
pub mod gateway;
pub mod run;
pub mod serve;
#[cfg(feature = "smol")]
pub mod smol;
pub mod status;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod tools;

mod access;
mod addresses;
mod answers;
mod arguments;
mod display;
mod ending;
mod folder;
mod interrupts;
mod person;
mod watch;

pub use arguments::{Server, StreamServer};
pub use ending::Ending;
