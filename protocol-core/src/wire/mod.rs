//! The JSON-RPC 2.0 envelope: read, written, and nothing else. Knows no method.
//!
//! One pass over a frame checks its syntax and finds the members of the envelope; what stands inside `params`, `result` and
//! `data` is handed on as text.

mod id;
mod read;
mod write;

pub use id::WireId;
pub(crate) use read::{Body, Element, Envelope, Malformed, Options, read};
pub(crate) use write::{Draft, Frames, Kept};
