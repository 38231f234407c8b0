use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol_core::adapter;
use tokio::io::{AsyncRead, ReadBuf, Stdout};

use crate::LineIo;

/// Standard input and output as a transport: what a server does that a client starts. Nothing else may use either of them: log to stderr.
///
/// Input is read by a thread that ends with the process: when the session is over, `main` just returns, though the peer still holds
/// our input open. It takes one read of input more than was asked for, so a process opens this transport once.
///
/// Only a peer that neither reads our output nor closes it can still hold a runtime that is dropped; leave it by
/// `Runtime::shutdown_background` or [`std::process::exit`] if that matters.
#[must_use]
pub fn stdio() -> LineIo<Stdin, Stdout> {
    LineIo::new(Stdin(adapter::Stdin::start()), tokio::io::stdout())
}

/// Standard input, read by a thread of its own.
#[derive(Debug)]
pub struct Stdin(adapter::Stdin);

impl AsyncRead for Stdin {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let piece = ready!(self.0.poll_piece(cx))?;
        let count = piece.len().min(into.remaining());
        into.put_slice(&piece[..count]);
        self.0.consume(count);
        Poll::Ready(Ok(()))
    }
}
