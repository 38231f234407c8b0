//! Who may speak for whom on Tesseron: claim codes, bound channels, sessions that outlive their channel.
//!
//! Three machines, as pure as a [`protocol_core::Session`] and beside it: what they decide happens before a channel has a session, or after it
//! has lost one.
//!
//! * [`Host`], at the app: holds the claim that a person tells an agent, and says which channel may use it. [`HostGate`] is its door on a
//!   Unix socket, [`Offer`] on a WebSocket.
//! * [`DialGate`], at the gateway: proves the claim on a Unix socket that was dialled.
//! * [`Lobby`], at the gateway: every channel of every app, who is claimed, who may come back, and where a tool's name leads.
//!
//! Nothing here reads a clock or a random source. `now` is the owner's monotonic [`protocol_core::Instant`]; `epoch_ms` is its wall clock, in
//! milliseconds of the epoch, and only ever shown to people and peers; `random` fills a slice with bytes that nobody can guess.
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

mod bind_refused;
mod code;
mod draw;
mod gate;
mod host;
mod lobby;
mod lockout;
mod offer;
mod session_id;
mod token;

pub use bind_refused::BindRefused;
pub use code::{ClaimCode, ClaimCodeError};
pub use gate::{DialFailed, DialGate, DialStep, HostGate, HostNext, HostStep};
pub use host::{Agent, Claim, Host, HostChannel, HostPolicy, UnixChannel};
pub use lobby::{
    Admission, BoundDial, ChannelId, ClaimMissed, Claimed, Departure, Dial, HelloRefused, Lobby, LobbyPolicy, OpenRefused, Pending,
    Resolved, ResumeRefused, Routed,
};
pub use offer::{Offer, SUBPROTOCOL};
pub use protocol_core::dialect::tesseron::{AppId, AppIdError};
pub use session_id::{SessionId, SessionIdError};
pub use token::{ResumeToken, ResumeTokenError};
