use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use adapter_io::ByteIo;
use piper::{Reader, Writer};
use protocol_core::lines::LineDecoder;
use smol::io::{AsyncRead, AsyncWrite};

use crate::Halves;

/// A reader and a writer of smol ([`LineIo::new`]), or a stream that is both ([`LineIo::whole`]), as a transport of frames, one a line.
pub type LineIo<E> = adapter_io::LineIo<SmolIo, E>;

/// Reading, writing and accepting on smol.
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

/// One end of a pair in memory.
pub type Duplex = LineIo<Halves<Reader, Writer>>;

/// Two ends in memory, joined. Each direction holds at most `bytes` bytes; it need not hold a whole frame.
#[must_use]
pub fn duplex(bytes: usize) -> (Duplex, Duplex) {
    let (here, there) = (piper::pipe(bytes), piper::pipe(bytes));
    (LineIo::new(here.0, there.1).sending_anywhere(), LineIo::new(there.0, here.1).sending_anywhere())
}
