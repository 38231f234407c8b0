use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

#[cfg(unix)]
use tokio::io::Interest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::unix::pipe;
#[cfg(unix)]
use tokio::runtime::Handle;

use crate::{Halves, LineIo};

/// Standard input and output as a transport, for a server that is started by its client. The process must not use them for anything else;
/// log to standard error.
///
/// On Linux, if this function is called within a runtime, anonymous pipes are read and written in non-blocking mode. Other input, such as a
/// terminal or a file, is read by a thread that does not delay the end of the process; so `main` can return when the session has closed,
/// even if the input is still open. That thread reads ahead, so open this transport only once in a process. Other output is written by a
/// thread of the runtime.
///
/// If the thread that writes is blocked, because the reader of the output neither reads nor closes it, dropping the runtime waits for this
/// thread. `Runtime::shutdown_background` and [`std::process::exit`] do not wait.
///
/// # Panics
/// On Linux, if standard input or output is an anonymous pipe, and the runtime was built without `enable_io`.
#[must_use]
pub fn stdio() -> LineIo<Halves<Stdin, Stdout>> {
    let stdout = Stdout::open();
    let is_pipe = stdout.is_pipe();
    let stdio = LineIo::new(Stdin::open(), stdout);
    // A write to anything but a pipe starts a blocking task, which needs the context of the runtime.
    if is_pipe { stdio.sending_anywhere() } else { stdio }
}

/// Waits until standard output has no reader any more. Only anonymous pipes on Linux report this; if standard output is anything else, the
/// future is never ready.
///
/// # Cancel safety
/// Cancel safe: nothing is lost, and the function can be called again at any time.
///
/// # Panics
/// On Linux, if standard output is an anonymous pipe, and there is no runtime, or it was built without `enable_io`.
pub async fn stdout_unread() {
    #[cfg(unix)]
    if let Some(Ok(pipe)) = adapter_io::fifo_stdout().map(pipe::Sender::from_file)
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    pending().await
}

/// Standard input.
#[derive(Debug)]
pub struct Stdin(Input);

#[derive(Debug)]
enum Input {
    #[cfg(unix)]
    Pipe(pipe::Receiver),
    Thread(adapter_io::Stdin),
}

impl Stdin {
    fn open() -> Self {
        #[cfg(unix)]
        if Handle::try_current().is_ok()
            && let Some(Ok(pipe)) = adapter_io::fifo_stdin().map(pipe::Receiver::from_file)
        {
            return Self(Input::Pipe(pipe));
        }
        Self(Input::Thread(adapter_io::Stdin::start()))
    }
}

impl AsyncRead for Stdin {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            #[cfg(unix)]
            Input::Pipe(pipe) => Pin::new(pipe).poll_read(cx, into),
            Input::Thread(thread) => {
                let piece = ready!(thread.poll_piece(cx))?;
                let count = piece.len().min(into.remaining());
                into.put_slice(&piece[..count]);
                thread.consume(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub struct Stdout(Output);

#[derive(Debug)]
enum Output {
    #[cfg(unix)]
    Pipe(pipe::Sender),
    Thread(tokio::io::Stdout),
}

impl Stdout {
    fn open() -> Self {
        #[cfg(unix)]
        if Handle::try_current().is_ok()
            && let Some(Ok(pipe)) = adapter_io::fifo_stdout().map(pipe::Sender::from_file)
        {
            return Self(Output::Pipe(pipe));
        }
        Self(Output::Thread(tokio::io::stdout()))
    }

    fn is_pipe(&self) -> bool {
        !matches!(self.0, Output::Thread(_))
    }

    fn writer(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncWrite + Send + Unpin)> {
        match &mut self.get_mut().0 {
            #[cfg(unix)]
            Output::Pipe(pipe) => Pin::new(pipe),
            Output::Thread(thread) => Pin::new(thread),
        }
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.writer().poll_write(cx, from)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.writer().poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            #[cfg(unix)]
            Output::Pipe(pipe) => pipe.is_write_vectored(),
            Output::Thread(thread) => thread.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(cx)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::IoSlice;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_written_to_standard_output_reach_its_pipe() {
        let (pipe, mut reader) = pipe::pipe().expect("a pipe");
        let mut stdout = Stdout(Output::Pipe(pipe));
        stdout.write_all(b"one ").await.expect("it is written");
        let count = stdout.write_vectored(&[IoSlice::new(b"two "), IoSlice::new(b"three")]).await.expect("it is written");
        assert_eq!(count, 9);
        stdout.shutdown().await.expect("it is closed");
        drop(stdout);
        let mut read = String::new();
        reader.read_to_string(&mut read).await.expect("it is read");
        assert_eq!(read, "one two three");
    }
}
