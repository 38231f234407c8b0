//! Load over HTTP on smol that must leave nothing behind: `cargo run --release -p tests --example smol-soak`. `--help` lists its flags.

fn main() -> std::process::ExitCode {
    tests::soak::main::<programs::smol::Smol>()
}
