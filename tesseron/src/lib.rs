//! Tesseron beyond one session: who may speak for whom, and the gateway between an MCP client and any number of apps.
//!
//! Without features this crate is as pure as [`protocol_core::Session`] and needs no std:
//! * [`claims`]: claim codes, bound channels, sessions that outlive their channel.
//! * [`bridge`]: the gateway, with the verbs of a session, each told on which leg.
//!
//! With the feature `std` it meets files and sockets, which an adapter lends ([`net::Sockets`]):
//! * [`net`]: instance manifests, apps that listen, gateways that dial.
//! * [`legs`]: a bridge behind one lock, whose legs are driven one by one.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

extern crate alloc;

pub mod bridge;
pub mod claims;
#[cfg(feature = "std")]
pub mod legs;
#[cfg(feature = "std")]
pub mod net;

#[cfg(feature = "std")]
pub use net::TesseronError;
