//! The endpoint over MCP, in virtual time: handlers, their partial results, and the end of a connection.

mod context;
mod graceful_end;
mod partial_results;
