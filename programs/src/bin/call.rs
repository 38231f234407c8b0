//! Calls a tool of an MCP server and shows its progress. `--help` lists its flags.

fn main() -> std::process::ExitCode {
    programs::run::call::<programs::tokio::Tokio>()
}
