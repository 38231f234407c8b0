//! The login of an MCP client: OAuth 2.1 as MCP uses it, as one state machine without sockets, clocks and threads.
//!
//! [`Login`] is told of requests to an MCP server and of their refusals. It finds out where to log in, registers a client, opens a page, and
//! keeps tokens fresh; what it needs for this it asks of its owner, one [`Output`] at a time. All revisions of MCP from 2025-03-26 are
//! served, by what a server shows, and grants without a person are, too: client credentials, enterprise-managed authorization, workload
//! identity. Tokens can be bound to a key (DPoP).
//!
//! ```
//! use auth::{Login, LoginConfig, Now, Output, StoreAnswer, Tag};
//!
//! let random = Box::new(|bytes: &mut [u8]| bytes.fill(7)); // a real client uses random bytes of the operating system
//! let mut login = Login::new(LoginConfig::new("https://example.com/mcp", "my client"), random);
//! let now = Now::default();
//! login.authorize(Tag(1), "POST", now);
//! let Some(Output::Store(id, _load)) = login.poll_output() else { panic!() };
//! login.handle_store(id, StoreAnswer::Loaded(None), now);
//! assert_eq!(login.poll_output(), Some(Output::Send(Tag(1), vec![])), "without a token: the server may need none");
//! ```
//!
//! # Features
//!
//! | Feature | Default | |
//! |---|---|---|
//! | `std` | on | stores of tokens: in memory, and on Unix in files with a lock between processes; the machine is the same without it |
//!
//! Nothing from the wire makes this crate panic, and nothing secret is in its `Debug`, its errors or its notices.
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

mod address;
mod answer;
mod challenge;
mod config;
mod document;
#[cfg(all(feature = "std", unix))]
mod file_store;
mod jwt;
mod login;
mod metadata;
mod output;
mod phase;
mod record;
mod scope;
mod secret;
#[cfg(feature = "std")]
mod store;
#[cfg(test)]
mod tests;

pub use address::Reach;
pub use answer::Refusal;
pub use config::{GivenClient, Grant, LoginConfig};
#[cfg(all(feature = "std", unix))]
pub use file_store::FileStore;
pub use jwt::{SignFailed, Signer};
pub use login::{Login, RandomSource};
pub use output::{
    Answer, CallbackAnswer, Notice, Now, Output, PageAddress, Reason, Request, StoreAnswer, StoreTask, Tag, TicketId,
};
pub use record::{AuthMethod, Registration, Tokens};
pub use secret::Secret;
#[cfg(feature = "std")]
pub use store::{Keeper, LOCK_TIMEOUT, MemoryStore, StoreError, StoreKey, StoreLock, TokenStore};
