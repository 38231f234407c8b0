//! An MCP server with tools that take their time, over stdin and stdout, TCP or a Unix socket. `--help` lists its flags.

fn main() -> std::process::ExitCode {
    programs::run::tools::<programs::tokio::Tokio>()
}
