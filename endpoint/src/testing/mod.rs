//! Tools to test handlers in virtual time, with a simulated caller and without the runtime of an application.
//!
//! A [`Harness`] runs one call of a [`Service`](crate::Service) and returns all that its caller observed. It uses the same code as
//! production: an endpoint with its driver, and a client session at the other end of an in-memory channel.
//!
//! ```
//! use std::time::Duration;
//! use endpoint::testing::Harness;
//! use endpoint::{Context, Service, Tool, ToolError};
//! use protocol_core::Json;
//!
//! let nap = Tool::new("nap", async |context: Context, ()| {
//!     for step in 1..=3 {
//!         context.step(step, 3);
//!         context.sleep(Duration::from_secs(60)).await?;
//!     }
//!     Ok::<_, ToolError>("rested")
//! });
//! let run = Harness::new(Service::new("bed", "1").tool(nap)).call_tool("nap", Json::empty_object());
//! assert_eq!(run.progress.len(), 3);
//! assert_eq!(run.ended, Some(Duration::from_secs(180)));
//! assert_eq!(run.text(), "rested");
//! ```
//!
//! [`every_cancel_point`] runs a handler once for each of its awaits and cancels it there; [`every_drop_point`] drops it there.
//! [`every_round`] runs it in every way in which its input requests can be answered, and compares the results.
//!
//! For tests with two endpoints, [`connect`] joins them in memory, and an [`Executor`] runs them.

mod awaits;
mod executor;
mod harness;
mod pipe;
#[cfg(feature = "seal")]
mod rounds;

pub use awaits::{every_cancel_point, every_drop_point};
pub use executor::{Executor, VirtualTimer};
pub use harness::{Harness, Run};
pub use pipe::{Pipe, PipeBroken, connect, pipe};
#[cfg(feature = "seal")]
pub use rounds::{Rounds, every_round};
