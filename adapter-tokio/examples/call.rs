//! Calls a tool of an MCP server and shows how far it is. `--help` tells its flags.
//!
//! ```text
//! cargo run --release -p adapter-tokio --example call -- progress '{"steps":20,"step_ms":100}'
//! ```

mod glue;

fn main() -> std::process::ExitCode {
    tests::programs::run::call::<glue::Tokio>()
}
