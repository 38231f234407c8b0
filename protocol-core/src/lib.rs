//! A sans-IO session for agent tools.
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

pub mod error;
pub mod json;
pub mod time;
mod wire;

pub use error::{RpcError, Violation};
pub use json::{Json, JsonError, Text};
pub use time::Instant;
