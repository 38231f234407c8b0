//! The programs on smol, run as a person runs them.
#![cfg(unix)]

mod suite;

/// The first part of the name of each program.
const PREFIX: &str = "smol-";
