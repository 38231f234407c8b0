//! Claims of Tesseron: claim codes, bound channels, and sessions that are resumed on a new channel.
//!
//! These sans-IO machines complement [`protocol_core::Session`]: they handle a channel until it has a session, and an app session that has
//! lost its channel until the app session is resumed or forgotten.
//!
//! * [`Host`], at the app, has the claim and decides which gateway is admitted. [`HostGate`] (on a Unix socket) and [`UpgradeGate`] (on a
//!   WebSocket) handle one connection until it is admitted.
//! * [`DialGate`], at the gateway, sends the claim code on a Unix socket.
//! * [`SessionRegistry`], at the gateway, has the channels to all apps, records which sessions are claimed or may be resumed, and finds the
//!   app of a tool.
//!
//! Nothing here reads a clock or a random source. `now` is the owner's monotonic [`protocol_core::Instant`]; `epoch_ms` is its wall clock,
//! in milliseconds since 1970, for manifests and messages; `random` fills a slice with bytes that cannot be guessed.
//!
//! Secrets ([`ClaimCode`], [`ResumeToken`]) have no `==`: `matches` compares them in constant time, and `Debug` does not show them.
//!
//! ```compile_fail,E0369
//! use tesseron::claims::ClaimCode;
//!
//! let code = ClaimCode::parse("PQ7N-4D").unwrap();
//! assert!(code == code);
//! ```

mod backlog;
mod bind_refused;
mod code;
mod draw;
mod gate;
mod host;
mod offer;
mod peer;
mod policy;
mod registry;
mod session_id;
mod slow_down;
mod token;
mod upgrade;

pub use backlog::{Arrival, Place};
pub use bind_refused::BindRefused;
pub use code::{ClaimCode, ClaimCodeError};
pub use gate::{DialFailed, DialGate, DialStep, HostGate, HostNext, HostStep, UnixChannel};
pub use host::{Agent, Claim, Host, HostChannel};
pub use offer::{Offer, SUBPROTOCOL};
pub use peer::{Peer, PeerUser};
pub use policy::HostPolicy;
pub use protocol_core::dialect::tesseron::{AppId, AppIdError};
pub use registry::{
    Admission, BoundDial, ChannelId, ClaimMissed, Claimed, Departure, Dial, HelloRefused, OpenRefused, Pending, RegistryPolicy,
    Resolved, ResumeRefused, Routed, SessionRegistry,
};
pub use session_id::{SessionId, SessionIdError};
pub use token::{ResumeToken, ResumeTokenError};
pub use upgrade::{UpgradeGate, UpgradeStep};
