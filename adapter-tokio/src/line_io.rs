use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use protocol_core::adapter::{self, ByteIo};
use protocol_core::lines::LineDecoder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadHalf, WriteHalf};

/// Any reader and any writer of tokio as a transport of frames, one a line.
pub type LineIo<R, W> = adapter::LineIo<TokioIo, R, W>;

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
pub type Duplex = LineIo<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

/// Two ends in memory, joined. Each direction holds at most `bytes` bytes; it need not hold a whole frame.
#[must_use]
pub fn duplex(bytes: usize) -> (Duplex, Duplex) {
    let (one, other) = tokio::io::duplex(bytes);
    let transport = |end| {
        let (reader, writer) = tokio::io::split(end);
        LineIo::new(reader, writer)
    };
    (transport(one), transport(other))
}
