//! A transport that the test controls.

use core::task::{Context as TaskContext, Poll};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::testing::{Pipe, PipeBroken};
use protocol_core::drive::FrameIo;
use protocol_core::session::Transmit;

/// The closure that the transport calls in its next flush, if there is one.
pub(super) type Act = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// The value of [`Gate::room`] with which the transport accepts any number of frames.
pub(super) const UNLIMITED: usize = usize::MAX;

/// A transport that accepts as many frames as the test allows, and calls a closure of the test in its flush.
pub(super) struct Gate {
    pipe: Pipe,
    /// The number of frames that the transport still accepts.
    pub(super) room: Arc<AtomicUsize>,
    /// Called once, in the next flush.
    pub(super) during_flush: Act,
    /// The number of turns of the driver, counted by the receives that find no frame: there is exactly one in each turn.
    pub(super) turns: Arc<AtomicUsize>,
    /// The result of [`FrameIo::sends_anywhere`].
    sends_anywhere: bool,
}

impl Gate {
    pub(super) fn new(pipe: Pipe, sends_anywhere: bool) -> Self {
        let room = Arc::new(AtomicUsize::new(UNLIMITED));
        Self { pipe, room, during_flush: Arc::default(), turns: Arc::default(), sends_anywhere }
    }
}

impl FrameIo for Gate {
    type Error = PipeBroken;
    fn poll_recv(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<Bytes>, PipeBroken>> {
        let received = self.pipe.poll_recv(cx);
        self.turns.fetch_add(usize::from(received.is_pending()), Ordering::Relaxed);
        received
    }
    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        if self.room.load(Ordering::Relaxed) == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
    fn start_send(&mut self, transmit: Transmit) -> Result<(), PipeBroken> {
        self.room.fetch_sub(1, Ordering::Relaxed);
        self.pipe.send(transmit.frame)
    }
    fn poll_flush(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        let act = self.during_flush.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        Poll::Ready(Ok(()))
    }
    fn poll_close(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        self.pipe.poll_close(cx)
    }
    fn sends_anywhere(&self) -> bool {
        self.sends_anywhere
    }
}
