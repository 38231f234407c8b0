//! Load over HTTP on tokio that must leave nothing behind: `cargo run --release -p tests --example soak`. `--help` lists its flags.

fn main() -> std::process::ExitCode {
    tests::soak::main::<programs::tokio::Tokio>()
}
