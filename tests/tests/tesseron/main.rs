//! Tesseron: both ends of a session, the bridge between the protocols, and the shared fixtures. In names of tests, `item` or `bug` and a
//! number cite a rule or a fault (`docs/protocols/tesseron.md`, "Former numbers"), and `g` and a number a guarantee of
//! [`protocol_core::Session`].

mod app;
mod bridge_calls;
mod bridge_claims;
mod bridge_drivers;
mod bridge_faithful;
mod bridge_hostile;
mod bridge_reference_bugs;
mod bridge_resources;
mod bridge_storm;
mod bridge_tool_names;
mod fixtures;
mod frames;
mod gateway;
mod guarantees;
mod handshake;
mod reference_bugs;
