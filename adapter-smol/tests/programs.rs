//! The programs `smol-tools` and `smol-call`: all that is tested of those of adapter-tokio.

#[path = "../../adapter-tokio/tests/programs.rs"]
mod programs;
