#[cfg(unix)]
use std::fs::File;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

#[cfg(unix)]
use smol::Async;
use smol::Unblock;
use smol::io::{AsyncRead, AsyncWrite};

use crate::{Halves, LineIo};

/// Bytes that wait for the thread that writes.
const WAITING: usize = 64 * 1024;

/// Standard input and output as a transport: what a server does that a client starts. Nothing else may use either of them: log to stderr.
///
/// Pipes (on Linux) are read and written in place. Any other input is read by a thread that ends with the process: when
/// the session is over, `main` just returns, though the peer still holds our input open. It takes one read of input more than was asked
/// for, so a process opens this transport once. Any other output is written by one of the threads that all of smol shares for what blocks.
#[must_use]
pub fn stdio() -> LineIo<Halves<Stdin, Stdout>> {
    LineIo::new(Stdin::open(), Stdout::open()).sending_anywhere()
}

/// Waits until our standard output has lost its reader. For ever where it is no pipe (on Linux), since only a pipe tells.
///
/// # Cancel safety
/// Cancel safe: nothing is lost, and it can be called again at any time.
pub async fn stdout_unread() {
    #[cfg(unix)]
    // There is nothing to be read from this end. What wakes such a reader is the error that comes with the end of the other one.
    if let Some(Ok(pipe)) = adapter_io::fifo_stdout().map(Async::new)
        && pipe.readable().await.is_ok()
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
    Pipe(Async<File>),
    Thread(adapter_io::Stdin),
}

impl Stdin {
    fn open() -> Self {
        #[cfg(unix)]
        if let Some(Ok(pipe)) = adapter_io::fifo_stdin().map(Async::new) {
            return Self(Input::Pipe(pipe));
        }
        Self(Input::Thread(adapter_io::Stdin::start()))
    }
}

impl AsyncRead for Stdin {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            #[cfg(unix)]
            Input::Pipe(pipe) => Pin::new(pipe).poll_read(cx, into),
            Input::Thread(thread) => {
                let piece = ready!(thread.poll_piece(cx))?;
                let count = piece.len().min(into.len());
                into[..count].copy_from_slice(&piece[..count]);
                thread.consume(count);
                Poll::Ready(Ok(count))
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
    Pipe(Async<File>),
    Thread(Unblock<io::Stdout>),
}

impl Stdout {
    fn open() -> Self {
        #[cfg(unix)]
        if let Some(Ok(pipe)) = adapter_io::fifo_stdout().map(Async::new) {
            return Self(Output::Pipe(pipe));
        }
        Self(Output::Thread(Unblock::with_capacity(WAITING, io::stdout())))
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

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_close(cx)
    }
}
