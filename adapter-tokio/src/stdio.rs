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

/// Standard input and output as a transport: what a server does that a client starts. Nothing else may use either of them: log to stderr.
///
/// Pipes (on Linux, within the runtime) are read and written in place. Any other input is read by a thread that ends
/// with the process: when the session is over, `main` just returns, though the peer still holds our input open. It takes one read of
/// input more than was asked for, so a process opens this transport once. Any other output is written by a thread of the runtime's.
///
/// Only a peer that neither reads such other output nor closes it can still hold a runtime that is dropped; leave it by
/// `Runtime::shutdown_background` or [`std::process::exit`] if that matters.
///
/// # Panics
/// Within a runtime that was built without `enable_io`, where either is a pipe.
#[must_use]
pub fn stdio() -> LineIo<Halves<Stdin, Stdout>> {
    let stdout = Stdout::open();
    let is_pipe = stdout.is_pipe();
    let stdio = LineIo::new(Stdin::open(), stdout);
    // The thread is the runtime's, and asked for anew with each write.
    if is_pipe { stdio.sending_anywhere() } else { stdio }
}

/// Waits until our standard output has lost its reader. For ever where it is no pipe (on Linux), since only a pipe tells.
///
/// # Cancel safety
/// Cancel safe: nothing is lost, and it can be called again at any time.
///
/// # Panics
/// Within a runtime that was built without `enable_io`, where it is a pipe.
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
