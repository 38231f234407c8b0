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
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod tools;

mod answers;
mod arguments;
mod display;
mod ending;
mod interrupts;
mod person;
mod threads;

pub use arguments::Server;
pub use ending::Ending;

/// What the programs exit with.
pub mod status {
    /// It went well.
    pub const OK: u8 = 0;
    /// The tool failed, or the server answered with an error.
    pub const TOOL_ERROR: u8 = 1;
    /// The command line makes no sense.
    pub const USAGE: u8 = 2;
    /// The call took too long.
    pub const TIMED_OUT: u8 = 3;
    /// There is no server, it was lost on the way, or the transport could not be opened.
    pub const NO_SERVER: u8 = 4;
    /// The call was cancelled.
    pub const CANCELLED: u8 = 130;
}

/// Says on stderr what went wrong, in one line, and gives back `status`.
fn complain(program: &str, what: impl std::fmt::Display, status: u8) -> u8 {
    serve::say(format_args!("{program}: {}", display::one_line(&what.to_string())));
    status
}
