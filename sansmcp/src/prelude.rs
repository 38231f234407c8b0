//! The names that most programs need, for `use sansmcp::prelude::*`.
//!
//! It exports no module and no crate, so `#[tokio::main]` and `tokio::spawn` are still those of the runtime:
//!
//! ```
//! use sansmcp::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let greet = Tool::new("greet", async |_: Context, ()| Ok("hello"));
//!     let service = Service::new("greeter", "1.0").tool(greet);
//!     let (one, other) = sansmcp::tokio::duplex(4096);
//!     let server = tokio::spawn(sansmcp::tokio::serve(service, one));
//!     # drop(other);
//!     # let _ = server.await?;
//!     Ok(())
//! }
//! ```

#[doc(no_inline)]
pub use endpoint::{
    AskFailed, Call, CallError, CallOutcome, Cancelled, Client, Completion, CompletionRequest, Context, Peer, Prompt,
    PromptMessage, PromptOutput, Resource, ResourceContents, ResourceTemplate, ResourceUri, Result, Service, State, Tool,
    ToolError,
};
#[cfg(feature = "macros")]
#[doc(no_inline)]
pub use macros::{args, prompt, resource, tool};
#[doc(no_inline)]
pub use protocol_core::{
    CallTimeouts, Close, Config, Content, ElicitResult, Identity, InputRequest, InputResponse, Invoke, Json, Outcome, Progress,
    RpcError, ToolOutput, ToolResult,
};
