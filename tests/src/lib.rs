//! What the tests share.

pub mod bridge;
pub mod end;
pub mod fixtures;
pub mod fuzz;
#[cfg(unix)]
pub mod harness;
pub mod pair;
pub mod replay;
#[cfg(unix)]
pub mod scenarios;
pub mod scratch;
pub mod speed;
pub mod storm;
pub mod tesseron;
pub mod until;
pub mod world;

/// The programs of the README compile, and the one that runs by itself does.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
