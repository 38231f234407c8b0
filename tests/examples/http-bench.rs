//! The speed of servers over HTTP on tokio, compared with hyper alone: `cargo run --release -p tests --example http-bench`. `--help` lists
//! its flags.

fn main() -> std::process::ExitCode {
    tests::http_speed::main::<programs::tokio::Tokio>()
}
