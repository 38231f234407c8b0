//! The server and the client that the official conformance suite of MCP is run against, written as a user would write them. The suite
//! prescribes their tools, prompts and resources. The script `tests/conformance/run` runs it. The module `check` has scenarios of our own,
//! for any server.

#[cfg(unix)]
pub mod check;
pub mod client;
pub mod server;
