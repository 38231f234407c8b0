use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use adapter_io::ByteIo;
use piper::{Reader, Writer};
use protocol_core::lines::LineDecoder;
use smol::io::{AsyncRead, AsyncWrite};

use crate::Halves;

/// A transport of frames, one in each line, over a reader and a writer with the traits of `futures` ([`LineIo::new`]), or over a stream
/// that is both ([`LineIo::whole`]).
pub type LineIo<S> = adapter_io::LineIo<SmolIo, S>;

/// Implements reading, writing and accepting for smol.
#[derive(Debug)]
pub enum SmolIo {}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> ByteIo<R, W> for SmolIo {
    fn poll_read(reader: &mut R, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>> {
        let mut read = Poll::Pending;
        into.read_with(|space| {
            read = Pin::new(reader).poll_read(cx, space);
            if let Poll::Ready(Ok(count)) = read { count } else { 0 }
        });
        read
    }

    fn poll_write(writer: &mut W, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(writer).poll_write_vectored(cx, pieces)
    }

    fn poll_flush(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(writer).poll_flush(cx)
    }

    fn poll_close(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(writer).poll_close(cx)
    }
}

/// One end of a [`duplex`].
pub type Duplex = LineIo<Halves<Reader, Writer>>;

/// Makes two transports in memory that are connected to each other. Each direction buffers up to `bytes` bytes, which may be less than a
/// frame.
#[must_use]
pub fn duplex(bytes: usize) -> (Duplex, Duplex) {
    let (here, there) = (piper::pipe(bytes), piper::pipe(bytes));
    (LineIo::new(here.0, there.1).sending_anywhere(), LineIo::new(there.0, here.1).sending_anywhere())
}
