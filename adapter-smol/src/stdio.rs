use std::io::{self, Stdout};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol_core::adapter;
use smol::Unblock;
use smol::io::AsyncRead;

use crate::LineIo;

/// Bytes that wait for the thread that writes.
const WAITING: usize = 64 * 1024;

/// Standard input and output as a transport: what a server does that a client starts. Nothing else may use either of them: log to stderr.
///
/// Input is read by a thread that ends with the process: when the session is over, `main` just returns, though the peer still holds
/// our input open. It takes one read of input more than was asked for, so a process opens this transport once.
#[must_use]
pub fn stdio() -> LineIo<Stdin, Unblock<Stdout>> {
    LineIo::new(Stdin(adapter::Stdin::start()), Unblock::with_capacity(WAITING, io::stdout()))
}

/// Standard input, read by a thread of its own.
#[derive(Debug)]
pub struct Stdin(adapter::Stdin);

impl AsyncRead for Stdin {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let piece = ready!(self.0.poll_piece(cx))?;
        let count = piece.len().min(into.len());
        into[..count].copy_from_slice(&piece[..count]);
        self.0.consume(count);
        Poll::Ready(Ok(count))
    }
}
