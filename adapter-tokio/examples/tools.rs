//! An MCP server with tools that take their time, over stdin and stdout, TCP or a Unix socket. `--help` tells its flags.

mod glue;

use std::process::ExitCode;

use tests::programs::serve;

fn main() -> ExitCode {
    match serve::from_command_line() {
        Ok(serving) => glue::run(glue::tools(serving)),
        Err(status) => ExitCode::from(status),
    }
}
