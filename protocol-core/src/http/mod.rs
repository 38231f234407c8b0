//! MCP over Streamable HTTP, as sans-IO machines.

pub mod sse;
