//! The tests of the programs, the same for each runtime.

mod addresses;
mod call_and_tools;
mod children;
mod configuration;
mod gateway;
mod leaving;
mod web_socket;

use std::path::{Path, PathBuf};

/// The path of a program on the runtime of these tests.
fn program(name: &str) -> PathBuf {
    let name = format!("{}{name}{}", crate::PREFIX, std::env::consts::EXE_SUFFIX);
    // Cargo builds all programs of the package for its tests, into one folder.
    Path::new(env!("CARGO_BIN_EXE_call")).with_file_name(name)
}
