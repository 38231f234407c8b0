use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use protocol_core::adapter::{self, ByteIo};
use protocol_core::lines::LineDecoder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream};

use crate::Whole;

/// A reader and a writer of tokio ([`LineIo::new`]), or a stream that is both ([`LineIo::whole`]), as a transport of frames, one a line.
pub type LineIo<E> = adapter::LineIo<TokioIo, E>;

/// How tokio reads, writes and accepts.
#[derive(Debug)]
pub enum TokioIo {}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> ByteIo<R, W> for TokioIo {
    fn poll_read(reader: &mut R, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>> {
        pin!(reader.read_buf(&mut into.space())).poll(cx)
    }

    fn poll_write(writer: &mut W, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(writer).poll_write_vectored(cx, pieces)
    }

    fn poll_flush(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(writer).poll_flush(cx)
    }

    fn poll_close(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(writer).poll_shutdown(cx)
    }
}

/// One end of a pair in memory.
pub type Duplex = LineIo<Whole<DuplexStream>>;

/// Two ends in memory, joined. Each direction holds at most `bytes` bytes; it need not hold a whole frame.
#[must_use]
pub fn duplex(bytes: usize) -> (Duplex, Duplex) {
    let (one, other) = tokio::io::duplex(bytes);
    (LineIo::whole(one).sending_anywhere(), LineIo::whole(other).sending_anywhere())
}
