//! Sessions of MCP, frame by frame and in virtual time: one module for each behaviour.
//!
//! Comments cite the specification of MCP: unquoted titles such as Lifecycle are pages or groups of pages, and quoted ones such as
//! "Shutdown" are pages of these groups or sections of these pages.
//!
//! A test whose name begins with `g` and a number tests that guarantee of [`protocol_core::Session`]. `o` or `i` and a number at the
//! beginning of a name are the former number of a row of the transition tables; `docs/protocols/mcp.md` lists these numbers under
//! "Former row numbers".

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
mod nulls;
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
