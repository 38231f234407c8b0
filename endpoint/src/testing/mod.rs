//! Handlers under test: no peer, no runtime, no waiting.
//!
//! A [`Harness`] runs one call of a [`Service`](crate::Service) in virtual time and gives back all that was seen of it. What
//! runs is what runs in earnest: an endpoint with its driver, and a client session at the other end of an in-memory channel.
//!
//! ```
//! use std::time::Duration;
//! use endpoint::testing::Harness;
//! use endpoint::{Context, Service, Tool, ToolError};
//! use protocol_core::{Identity, Json};
//!
//! let nap = Tool::new("nap", async |context: Context, ()| {
//!     for step in 1..=3 {
//!         context.count(step, 3);
//!         context.sleep(Duration::from_secs(60)).await?;
//!     }
//!     Ok::<_, ToolError>("rested")
//! });
//! let run = Harness::new(Service::new(Identity::new("bed", "1")).tool(nap)).call_tool("nap", Json::empty_object());
//! assert_eq!(run.progress.len(), 3);
//! assert_eq!(run.ended, Some(Duration::from_secs(180)));
//! assert_eq!(run.text(), "rested");
//! ```
//!
//! [`Executor`] and [`connect`] are the parts it is made of, for tests of whole pairs of endpoints.

mod executor;
mod harness;
mod pipe;

pub use executor::{Executor, VirtualTimer};
pub use harness::{Harness, Run};
pub use pipe::{Pipe, PipeBroken, connect, pipe};
