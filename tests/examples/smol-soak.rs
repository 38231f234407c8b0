//! Load over HTTP on smol, after which a server must have released everything: `cargo run --release -p tests --example smol-soak`. `--help`
//! lists its flags.

/// The allocator that counts the bytes in use. It has no limit (`usize::MAX`).
#[global_allocator]
static HEAP: tests::soak::Heap = tests::soak::Heap::new(std::alloc::System, usize::MAX);

fn main() -> std::process::ExitCode {
    tests::soak::main::<programs::smol::Smol>(&HEAP)
}
