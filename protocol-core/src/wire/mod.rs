//! Reading and writing the JSON-RPC 2.0 envelope. Nothing here depends on the methods of a protocol.
//!
//! One pass over a frame checks its syntax and finds the members of the envelope; the values of `params`, `result` and `data` stay text.

mod id;
mod read;
mod recover;
mod tolerated;
mod write;

pub use id::WireId;
pub(crate) use read::{Body, Element, Envelope, Malformed, Options, UNKNOWN_ID, read};
pub(crate) use recover::{Recovered, astray, excerpt, misshapen};
pub(crate) use tolerated::Tolerated;
pub(crate) use write::{FrameBuffer, QueuedFrame, WrittenFrame};
