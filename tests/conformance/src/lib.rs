//! The server and the client that the official conformance suite of MCP is run against, written as a user would write them. The suite
//! prescribes the tools, prompts and resources. The script `tests/conformance/run` runs the suite. The module `check` has scenarios of our
//! own, for any server.

#[cfg(unix)]
pub mod check;
pub mod client;
pub mod server;
