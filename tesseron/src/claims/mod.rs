//! Claims on Tesseron: claim codes, bound channels, sessions that outlive their channel.
//!
//! Three machines, as pure as a [`protocol_core::Session`] and beside it: what they decide happens before a channel has a session, or after it
//! has lost one.
//!
//! * [`Host`], at the app: holds the claim that a person tells an agent, and says which channel may use it. [`HostGate`] is its door on a
//!   Unix socket, [`UpgradeGate`] on a WebSocket.
//! * [`DialGate`], at the gateway: proves the claim on a Unix socket that was dialled.
//! * [`SessionRegistry`], at the gateway: every channel of every app, who is claimed, who may come back, and where a tool's name leads.
//!
//! Nothing here reads a clock or a random source. `now` is the owner's monotonic [`protocol_core::Instant`]; `epoch_ms` is its wall clock, in
//! milliseconds of the epoch, and only ever shown to people and peers; `random` fills a slice with bytes that cannot be guessed.
//!
//! Secrets ([`ClaimCode`], [`ResumeToken`]) have no `==`: they are compared by `matches`, in a time that does not tell how much of them
//! is right, and `Debug` does not show them.
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
mod registry;
mod session_id;
mod slow_down;
mod token;
mod upgrade;

pub use backlog::{Arrival, Place};
pub use bind_refused::BindRefused;
pub use code::{ClaimCode, ClaimCodeError};
pub use gate::{DialFailed, DialGate, DialStep, HostGate, HostNext, HostStep};
pub use host::{Agent, Claim, Host, HostChannel, HostPolicy, UnixChannel};
pub use offer::{Offer, SUBPROTOCOL};
pub use peer::Peer;
pub use protocol_core::dialect::tesseron::{AppId, AppIdError};
pub use registry::{
    Admission, BoundDial, ChannelId, ClaimMissed, Claimed, Departure, Dial, HelloRefused, OpenRefused, Pending, RegistryPolicy,
    Resolved, ResumeRefused, Routed, SessionRegistry,
};
pub use session_id::{SessionId, SessionIdError};
pub use token::{ResumeToken, ResumeTokenError};
pub use upgrade::{UpgradeGate, UpgradeStep};
