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

/// The maximum number of bytes that may wait for the thread that writes.
const MAX_WAITING_BYTES: usize = 64 * 1024;

/// Standard input and output as a transport, for a server that is started by its client. The process must not use them for anything else;
/// log to standard error.
///
/// On Linux, anonymous pipes are read and written in non-blocking mode. Other input, such as a terminal or a file, is read by a thread that
/// does not delay the end of the process; so `main` can return when the session has closed, even if the input is still open. That thread
/// reads ahead, so open this transport only once in a process. Other output is written by one of smol's threads for blocking code.
#[must_use]
pub fn stdio() -> LineIo<Halves<Stdin, Stdout>> {
    LineIo::new(Stdin::open(), Stdout::open()).sending_anywhere()
}

/// Waits until standard output has no reader any more. Only anonymous pipes on Linux report this; if standard output is anything else, the
/// future is never ready.
///
/// # Cancel safety
/// Cancel safe: nothing is lost, and the function can be called again at any time.
pub async fn stdout_unread() {
    #[cfg(unix)]
    // The writing end of a pipe becomes readable, with an error, only when the pipe has no reader any more.
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
        Self(Output::Thread(Unblock::with_capacity(MAX_WAITING_BYTES, io::stdout())))
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

#[cfg(all(test, unix))]
mod tests {
    use std::io::{IoSlice, Read};
    use std::os::fd::OwnedFd;

    use smol::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn bytes_written_to_standard_output_reach_its_pipe() {
        let (mut reader, pipe) = io::pipe().expect("a pipe");
        let mut stdout = Stdout(Output::Pipe(Async::new(File::from(OwnedFd::from(pipe))).expect("it can be polled")));
        smol::block_on(async {
            stdout.write_all(b"one ").await.expect("it is written");
            let count = stdout.write_vectored(&[IoSlice::new(b"two "), IoSlice::new(b"three")]).await.expect("it is written");
            assert_eq!(count, 9);
            stdout.close().await.expect("it is closed");
        });
        drop(stdout);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("it is read");
        assert_eq!(read, "one two three");
    }
}
