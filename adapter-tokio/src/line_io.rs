use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use adapter_io::ByteIo;
use protocol_core::lines::LineDecoder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream};
use tokio::task::coop;

use crate::Whole;

/// A reader and a writer of tokio ([`LineIo::new`]), or a stream that is both ([`LineIo::whole`]), as a transport of frames, one a line.
pub type LineIo<E> = adapter_io::LineIo<TokioIo, E>;

/// Reading, writing and accepting on tokio.
#[derive(Debug)]
pub enum TokioIo {}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> ByteIo<R, W> for TokioIo {
    fn poll_read(reader: &mut R, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>> {
        pin!(reader.read_buf(&mut into.space())).poll(cx)
    }

    fn poll_write(writer: &mut W, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // A driver writes no more in a turn than it may. The budget that tokio gives a task is not the driver's where another task writes for
        // it, and one that has none left is put off until that task yields, which may be never.
        pin!(coop::unconstrained(poll_fn(|cx| Pin::new(&mut *writer).poll_write_vectored(cx, pieces)))).poll(cx)
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use protocol_core::Transmit;
    use protocol_core::drive::FrameIo;

    use super::*;

    /// A call whose task had none left was put off until that task yielded; its thread waited for the answer.
    #[test]
    fn regression_what_leaves_needs_nothing_of_the_budget_of_whoever_writes_it() {
        let task = async {
            let (mut one, _other) = duplex(64);
            while coop::has_budget_remaining() {
                coop::consume_budget().await;
            }
            one.start_send(Transmit::new("frame".into())).expect("room");
            assert!(one.poll_flush(&mut Context::from_waker(Waker::noop())).is_ready());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { tokio::spawn(task).await }).expect("it left");
    }
}
