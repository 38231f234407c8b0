//! Claims and gateways of Tesseron: the parts of the protocol that concern more than one session. With Tesseron, an app that is already
//! running offers actions and resources to AI agents. The app listens on its machine; a *gateway* connects to the app, *claims* it for an
//! agent with the claim code that a person reads off the app, and acts as an MCP server toward the agent.
//!
//! # Which layer do you need?
//!
//! | You want to | Use |
//! |---|---|
//! | own the event loop, test in virtual time, run without std | `protocol-core` |
//! | write tools or clients | `endpoint`, and `adapter-tokio` or `adapter-smol` |
//! | serve tools over HTTP, with axum, with hyper or with neither | `http-service`, and an adapter with the feature `http` |
//! | connect an endpoint to a transport or a runtime of your own | `endpoint`, `engine`, `adapter-io` |
//! | be a Tesseron app, or the gateway to such apps | `tesseron`, and an adapter with the feature `tesseron` |
//! | call tools from a terminal | `programs` |
//!
//! # This crate
//!
//! Without features this crate does no I/O and needs no `std`, like [`protocol_core::Session`]:
//! * [`claims`] decides which gateway may use an app: claim codes, the channel that an app is bound to, sessions that are resumed on a new
//!   channel.
//! * [`bridge`] is a gateway as a state machine with the methods of a session. Methods that concern one channel also take its leg: the
//!   bridge's end of the channel to the agent, or of the channel to an app.
//!
//! ```
//! use protocol_core::{Identity, Instant};
//! use tesseron::bridge::{Bridge, BridgeConfig, Leg};
//!
//! let random = Box::new(|bytes: &mut [u8]| bytes.fill(7)); // a real gateway uses random bytes of the operating system
//! let mut bridge = Bridge::new(BridgeConfig::new(Identity::new("gateway", "1.0"), 0), random, Instant::ZERO);
//! assert!(bridge.wants_input(Leg::Agent));
//! assert!(bridge.poll_transmit(Leg::Agent).is_none(), "the agent sends the first frame");
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `std` | on | `net`: manifests, apps that listen and gateways that connect, over the sockets of an adapter; `legs`: a bridge under one lock, with a driver for each leg |
//! | `websocket` | off | WebSockets, in addition to Unix sockets |
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
