//! A gateway from an MCP client, on stdin and stdout or TCP, to the Tesseron apps of this user. `--help` tells its flags.

mod glue;

fn main() -> std::process::ExitCode {
    tests::programs::gateway::gateway::<glue::Tokio>()
}
