//! An MCP server with tools that take their time, over stdin and stdout, TCP or a Unix socket. `--help` tells its flags.

mod glue;

fn main() -> std::process::ExitCode {
    tests::programs::run::tools::<glue::Tokio>()
}
