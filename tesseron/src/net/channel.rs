use core::fmt;
use core::task::{Context, Poll, ready};
use std::boxed::Box;
use std::io;

use bytes::Bytes;

use crate::claims::{HostChannel, HostGate, HostNext, HostStep};
use protocol_core::drive::FrameIo;
use protocol_core::lines::LineEncoder;
use protocol_core::session::Transmit;

/// The maximum number of frames that the gate takes before the task yields.
const MAX_IN_A_ROW: usize = 32;

/// A boxed transport of any kind.
pub(super) type AnyIo = Box<dyn FrameIo<Error = io::Error> + Send>;

/// Keeps the one channel of an app occupied. Dropping it frees the app for the next gateway.
pub(super) trait ChannelGuard: Send {
    /// The id of the channel.
    fn channel(&self) -> HostChannel;

    /// Passes a frame to a gate that is already open. The gate answers the frame if it is a further bind request.
    fn pass(&self, gate: &mut HostGate, frame: Bytes) -> HostStep;
}

/// A channel between an app and a gateway, over a WebSocket or a Unix socket, after the bind if the app requires one.
///
/// At the app's end the next gateway may connect as soon as the peer has closed the channel, or this transport is closed or dropped. Frames
/// that are sent later on this channel may be lost.
///
/// A transport is `Send`, but not `Sync`: a single driver polls it, and the sockets of a runtime need not be `Sync`.
pub struct TesseronTransport {
    io: AnyIo,
    /// The guard of the app's end: while it exists, no other gateway can connect. `None` at the gateway's end.
    guard: Option<Box<dyn ChannelGuard>>,
    /// The gate of the app's end on a Unix socket. It has answered the bind request, and answers further bind requests, so that they do not
    /// reach the session. `None` on any other channel.
    gate: Option<HostGate>,
    /// An answer of the gate that is not sent yet.
    reply: Option<Bytes>,
    /// `true` if an answer of the gate was passed to `io` and is not flushed yet.
    unflushed: bool,
}

impl TesseronTransport {
    /// Makes the end of a gateway, which has dialled the app.
    pub(super) fn dialled(io: AnyIo) -> Self {
        Self { io, guard: None, gate: None, reply: None, unflushed: false }
    }

    /// Makes the app's end, without a gate.
    pub(super) fn guarded(io: AnyIo, guard: Box<dyn ChannelGuard>) -> Self {
        Self { guard: Some(guard), ..Self::dialled(io) }
    }

    /// Makes the app's end on a Unix socket, with the gate that has answered the bind request.
    #[cfg(unix)]
    pub(super) fn gated(io: AnyIo, guard: Box<dyn ChannelGuard>, gate: HostGate) -> Self {
        Self { gate: Some(gate), ..Self::guarded(io, guard) }
    }

    /// The id of the channel at the app, for [`TesseronListener::handle_agent`](super::TesseronListener::handle_agent). `None` at the
    /// gateway's end, and once the channel is closed.
    #[must_use]
    pub fn channel(&self) -> Option<HostChannel> {
        self.guard.as_ref().map(|guard| guard.channel())
    }

    /// Sends the answer of the gate, if there is one.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reply.is_some() {
            ready!(self.io.poll_ready(cx))?;
        }
        if let Some(reply) = self.reply.take() {
            self.io.start_send(Transmit::new(reply))?;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(self.io.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Receives the next frame for the session. Frames for the gate that arrive before that frame are answered.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        for _ in 0..MAX_IN_A_ROW {
            ready!(self.poll_reply(cx))?;
            let Some(frame) = ready!(self.io.poll_recv(cx))? else { return Poll::Ready(Ok(None)) };
            let (Some(gate), Some(guard)) = (&mut self.gate, &self.guard) else { return Poll::Ready(Ok(Some(frame))) };
            let step = guard.pass(gate, frame);
            self.reply = step.reply;
            match step.next {
                HostNext::Deliver(frame) => return Poll::Ready(Ok(Some(frame))),
                HostNext::Keep | HostNext::Open(_) => {}
                HostNext::Close => {
                    // An answer that cannot be written immediately is lost.
                    let _ = self.poll_reply(cx)?;
                    return Poll::Ready(Ok(None));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl FrameIo for TesseronTransport {
    type Error = io::Error;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let received = ready!(self.poll_frame(cx));
        if !matches!(received, Ok(Some(_))) {
            self.guard = None;
        }
        Poll::Ready(received)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx)
    }

    fn start_send(&mut self, transmit: Transmit) -> io::Result<()> {
        self.io.start_send(transmit)
    }

    fn start_sends(&mut self, frames: &mut LineEncoder) -> io::Result<()> {
        self.io.start_sends(frames)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = ready!(self.io.poll_close(cx));
        self.guard = None;
        Poll::Ready(closed)
    }

    fn set_frame_limit(&mut self, bytes: usize) {
        self.io.set_frame_limit(bytes);
    }

    fn release_memory(&mut self) {
        self.io.release_memory();
    }

    fn sends_anywhere(&self) -> bool {
        self.io.sends_anywhere()
    }
}

impl fmt::Debug for TesseronTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TesseronTransport").field("channel", &self.channel()).finish_non_exhaustive()
    }
}
