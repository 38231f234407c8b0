use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use protocol_core::drive::FrameIo;
use protocol_core::lines::{LineDecoder, LineEncoder};
use protocol_core::{Limits, Transmit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

/// With so many bytes waiting to be written no more frames are taken.
const FULL: usize = 64 * 1024;
/// Reads in a row that complete no frame before other tasks get their turn.
const READS_IN_A_ROW: usize = 32;

/// A reader and a writer of bytes as a transport of frames, one a line.
///
/// Frames are gathered and leave in as few writes as the writer allows.
#[derive(Debug)]
pub struct LineIo<R, W> {
    reader: R,
    /// Gone once closed: some pipes end only when they are dropped.
    writer: Option<W>,
    decoder: LineDecoder,
    encoder: LineEncoder,
    ended: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineIo<R, W> {
    /// Joins the two.
    pub fn new(reader: R, writer: W) -> Self {
        let decoder = LineDecoder::new(Limits::default().frame_bytes);
        Self { reader, writer: Some(writer), decoder, encoder: LineEncoder::new(), ended: false }
    }

    /// Writes until no more than `most` bytes wait.
    fn poll_write_down_to(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        while self.encoder.remaining() > most {
            let Some(writer) = &mut self.writer else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            if ready!(pin!(writer.write_buf(&mut self.encoder)).poll(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> FrameIo for LineIo<R, W> {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        for _ in 0..READS_IN_A_ROW {
            if let Some(frame) = self.decoder.next_frame() {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            if ready!(pin!(self.reader.read_buf(&mut self.decoder.space())).poll(cx))? == 0 {
                self.ended = true;
                return Poll::Ready(Ok(self.decoder.finish()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_down_to(cx, FULL)
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        self.encoder.push(transmit.frame);
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_down_to(cx, 0))?;
        self.writer.as_mut().map_or(Poll::Ready(Ok(())), |writer| Pin::new(writer).poll_flush(cx))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(())) };
        let shut = ready!(Pin::new(writer).poll_shutdown(cx));
        self.writer = None;
        // The peer may have gone first; what it was to have was flushed before.
        Poll::Ready(shut.or_else(|error| if error.kind() == io::ErrorKind::NotConnected { Ok(()) } else { Err(error) }))
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.decoder.set_limit(bytes);
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
