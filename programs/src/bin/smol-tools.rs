//! An MCP server with long-running tools, over stdin and stdout, TCP, HTTP or a Unix socket, or a Tesseron app with these tools.
//! `--help` lists its flags.

fn main() -> std::process::ExitCode {
    programs::run::tools::<programs::smol::Smol>()
}
