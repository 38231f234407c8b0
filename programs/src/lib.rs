//! The programs `call`, `tools` and `gateway`: written once, for every runtime that has an [`Adapter`](adapter::Adapter).
//!
//! All write one clear line to stderr when something goes wrong, and exit with one of [`status`].

pub mod adapter;
pub mod audit;
pub mod call;
pub mod gateway;
pub mod run;
pub mod serve;
#[cfg(feature = "smol")]
pub mod smol;
pub mod status;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod tools;

mod addresses;
mod answers;
mod arguments;
mod display;
mod ending;
mod folder;
mod interrupts;
mod person;
mod threads;
mod watch;

pub use arguments::Server;
pub use ending::Ending;
