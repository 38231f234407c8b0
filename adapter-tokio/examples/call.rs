//! Calls a tool of an MCP server and shows how far it is. `--help` tells its flags.
//!
//! ```text
//! cargo run --release -p adapter-tokio --example call -- progress '{"steps":20,"step_ms":100}'
//! ```

mod glue;

use std::process::ExitCode;

use tests::programs::call::{self, Wanted};

fn main() -> ExitCode {
    match call::from_command_line() {
        Ok(Wanted::Call { server, calling }) => glue::run(glue::call(server, *calling)),
        Ok(Wanted::Serve(serving)) => glue::run(glue::tools(serving)),
        Err(status) => ExitCode::from(status),
    }
}
