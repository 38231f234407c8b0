use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use adapter_io::ByteIo;
use protocol_core::lines::LineDecoder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream};
use tokio::task::coop;

use crate::Whole;

/// A transport of frames, one in each line, over a reader and a writer of tokio ([`LineIo::new`]), or over a stream that is both
/// ([`LineIo::whole`]).
pub type LineIo<S> = adapter_io::LineIo<TokioIo, S>;

/// Implements reading, writing and accepting for tokio.
#[derive(Debug)]
pub enum TokioIo {}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> ByteIo<R, W> for TokioIo {
    fn poll_read(reader: &mut R, cx: &mut Context<'_>, into: &mut LineDecoder) -> Poll<io::Result<usize>> {
        pin!(reader.read_buf(&mut into.space())).poll(cx)
    }

    fn poll_write(writer: &mut W, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // Written without tokio's cooperative budget. A driver itself limits the bytes of a turn. In an early send, the budget is that of
        // the task that made the call: if that budget were used up, the write would wait until the task yields, which may never happen.
        pin!(coop::unconstrained(poll_fn(|cx| Pin::new(&mut *writer).poll_write_vectored(cx, pieces)))).poll(cx)
    }

    fn poll_flush(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(writer).poll_flush(cx)
    }

    fn poll_close(writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(writer).poll_shutdown(cx)
    }
}

/// One end of a [`duplex`].
pub type Duplex = LineIo<Whole<DuplexStream>>;

/// Makes two transports in memory that are connected to each other. Each direction buffers up to `bytes` bytes, which may be less than a
/// frame.
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

    /// The bug: a task whose budget was used up made a call, and then blocked its thread to wait for the answer. The call would have been
    /// sent only when the task yielded, so the answer never came.
    #[test]
    fn regression_a_write_does_not_depend_on_the_budget_of_the_calling_task() {
        let task = async {
            let (mut one, _other) = duplex(64);
            while coop::has_budget_remaining() {
                coop::consume_budget().await;
            }
            one.start_send(Transmit::new("frame".into())).expect("room");
            assert!(one.poll_flush(&mut Context::from_waker(Waker::noop())).is_ready());
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { tokio::spawn(task).await }).expect("it is written");
    }
}
