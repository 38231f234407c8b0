//! The speed of calls through `adapter-tokio`, compared with a floor: the same messages without an SDK. `--help` lists its flags.
//!
//! ```text
//! cargo run --release -p tests --example bench -- --quick
//! ```

use std::io;
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::task::{Context, Poll};

use programs::tokio::Tokio;
use tests::speed::Program;
use tests::speed::floor::{Floor, Pipe, Pipes};
use tests::speed::ours::Ours;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

fn main() -> ExitCode {
    // `true` means without a handshake.
    Program::new().with::<Floor<TokioPipes>>().with::<Ours<Tokio>>().with::<Ours<Tokio, true>>().main()
}

/// A stream that is read and written, and a value that must live as long as the stream, such as the child process at its other end.
struct TokioPipe<S, L>(S, L);

impl<S, L> Pipe for TokioPipe<S, L>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    L: Send + 'static,
{
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut into = ReadBuf::new(into);
        Pin::new(&mut self.0).poll_read(cx, &mut into).map_ok(|()| into.filled().len())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
}

/// The pipes of tokio.
enum TokioPipes {}

impl Pipes for TokioPipes {
    type Runtime = Tokio;

    fn pipes(bytes: usize) -> (Box<dyn Pipe>, Box<dyn Pipe>) {
        let (one, other) = tokio::io::duplex(bytes);
        (Box::new(TokioPipe(one, ())), Box::new(TokioPipe(other, ())))
    }

    fn own_pipes() -> Box<dyn Pipe> {
        Box::new(TokioPipe(tokio::io::join(tokio::io::stdin(), tokio::io::stdout()), ()))
    }

    fn child_pipes(command: Command) -> io::Result<Box<dyn Pipe>> {
        let mut command = tokio::process::Command::from(command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (reader, writer) = child.stdout.take().zip(child.stdin.take()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Box::new(TokioPipe(tokio::io::join(reader, writer), child)))
    }
}
