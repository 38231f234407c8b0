//! Tesseron: both ends of a session, the bridge between the protocols, and the shared fixtures. In the name of a test, `item_34` or
//! `bug_20` cites a rule or a fault by its number in `docs/protocols/tesseron.md`, "Former numbers". `g7` cites a guarantee of
//! [`protocol_core::Session`].

mod app;
mod bridge_calls;
mod bridge_claims;
mod bridge_drivers;
mod bridge_faithful;
mod bridge_hostile;
mod bridge_resources;
mod bridge_storm;
mod bridge_tool_names;
mod fixtures;
mod frames;
mod gateway;
mod handshake;
