//! Tesseron beyond one session: claims, and the gateway between an MCP client and any number of apps.
//!
//! # Which layer do you need?
//!
//! | You want to | Take |
//! |---|---|
//! | own the event loop, test in virtual time, run without std | `protocol-core` |
//! | write tools or clients | `endpoint`, and `adapter-tokio` or `adapter-smol` |
//! | put a transport or a runtime of your own under an endpoint | `endpoint`, `engine`, `adapter-io` |
//! | be a Tesseron app, or the gateway to such apps | `tesseron`, and an adapter with the feature `tesseron` |
//! | call tools from a terminal | `programs` |
//!
//! # This crate
//!
//! Without features it is as pure as [`protocol_core::Session`] and needs no std:
//! * [`claims`]: claim codes, bound channels, sessions that outlive their channel.
//! * [`bridge`]: the gateway, with the methods of a session, each told on which leg.
//!
//! ```
//! use protocol_core::{Identity, Instant};
//! use tesseron::bridge::{Bridge, BridgeConfig, Leg};
//!
//! let random = Box::new(|bytes: &mut [u8]| bytes.fill(7)); // of the operating system, outside of tests
//! let mut bridge = Bridge::new(BridgeConfig::new(Identity::new("gateway", "1.0"), 0), random, Instant::ZERO);
//! assert!(bridge.wants_input(Leg::Agent));
//! assert!(bridge.poll_transmit(Leg::Agent).is_none(), "the agent speaks first");
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `std` | on | `net`: instance manifests, apps that listen, gateways that dial, over files and sockets that an adapter lends; `legs`: a bridge under one lock, whose legs are driven one by one |
//! | `websocket` | off | the same over WebSockets, too |
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
