//! The speed of servers over HTTP on smol, compared with hyper alone: `cargo run --release -p tests --example smol-http-bench`. `--help`
//! lists its flags.

fn main() -> std::process::ExitCode {
    tests::http_speed::main::<programs::smol::Smol>()
}
