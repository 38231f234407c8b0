//! A gateway from an MCP client, on stdin and stdout, TCP or HTTP, to the Tesseron apps of this user. `--help` lists its flags.

fn main() -> std::process::ExitCode {
    programs::gateway::gateway::<programs::tokio::Tokio>()
}
