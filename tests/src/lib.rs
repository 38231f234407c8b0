//! What the tests share.

pub mod adapter;
pub mod audit;
pub mod bridge;
pub mod end;
pub mod fixtures;
pub mod fuzz;
pub mod pair;
pub mod programs;
pub mod replay;
#[cfg(unix)]
pub mod scenarios;
pub mod scratch;
pub mod speed;
pub mod storm;
pub mod tesseron;
pub mod tools;
pub mod world;
