//! The speed of calls through `adapter-smol`, compared with a floor: the same messages without an SDK. `--help` lists its flags.
//!
//! ```text
//! cargo run --release -p tests --example smol-bench -- --quick
//! ```

use std::io;
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::task::{Context, Poll};

use programs::smol::Smol;
use smol::Unblock;
use smol::io::{AsyncRead, AsyncWrite};
use tests::speed::Program;
use tests::speed::floor::{Floor, Pipe, Pipes};
use tests::speed::ours::Ours;

fn main() -> ExitCode {
    // `true` measures requests without a handshake.
    Program::new().with::<Floor<SmolPipes>>().with::<Ours<Smol>>().with::<Ours<Smol, true>>().main()
}

/// A reader, a writer, and a value that must live as long as they do.
struct Halves<R, W, L>(R, W, L);

impl<R, W, L> Pipe for Halves<R, W, L>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
    L: Send + 'static,
{
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.1).poll_write(cx, from)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.1).poll_flush(cx)
    }
}

/// The pipes of smol.
enum SmolPipes {}

impl Pipes for SmolPipes {
    type Runtime = Smol;

    fn pipes(bytes: usize) -> (Box<dyn Pipe>, Box<dyn Pipe>) {
        let (here, there) = (piper::pipe(bytes), piper::pipe(bytes));
        (Box::new(Halves(here.0, there.1, ())), Box::new(Halves(there.0, here.1, ())))
    }

    fn own_pipes() -> Box<dyn Pipe> {
        Box::new(Halves(Unblock::new(io::stdin()), Unblock::new(io::stdout()), ()))
    }

    fn child_pipes(command: Command) -> io::Result<Box<dyn Pipe>> {
        let mut command = smol::process::Command::from(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (reader, writer) = child.stdout.take().zip(child.stdin.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Box::new(Halves(reader, writer, child)))
    }
}
