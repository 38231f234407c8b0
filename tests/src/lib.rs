//! What the tests share.

pub mod audit;
pub mod end;
pub mod pair;
pub mod programs;
pub mod storm;
pub mod tools;
