//! The server and the client that the official conformance suite of MCP is run against, written as a user would write them. What they offer
//! is prescribed by the suite; `run` beside this crate runs it. And `check`: scenarios of our own, for any server.

#[cfg(unix)]
pub mod check;
pub mod client;
pub mod server;
