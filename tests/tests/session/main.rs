//! Sessions of MCP, frame by frame and in virtual time: one module for each behaviour. Titles in comments, such as Lifecycle or "Ping", are
//! those of pages and sections of the specification of MCP. A test whose name begins with `g` and a number tests that guarantee of
//! [`protocol_core::Session`]; `o` or `i` and a number cite a row of the transition tables (`docs/protocols/mcp.md`, "Former row
//! numbers").

mod addresses;
mod batches;
mod calling;
mod cancelling;
mod checkpoints;
mod closing;
mod depth;
mod handshake;
mod hostile_input;
mod inbound_input_requests;
mod lanes;
mod limits;
mod logging;
mod operations;
mod outbound_input_requests;
mod ping;
mod receiving_progress;
mod reporting;
mod rounds;
mod serving;
mod stateless;
mod stateless_client;
mod timeouts;
