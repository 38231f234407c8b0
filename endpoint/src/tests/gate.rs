//! A transport that the test has a hand in.

use core::task::{Context as TaskContext, Poll};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::testing::{Pipe, PipeBroken};
use protocol_core::drive::FrameIo;
use protocol_core::session::Transmit;

/// A step that the test does once, when it is time.
pub(super) type Act = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Room for any number of frames.
pub(super) const ANY: usize = usize::MAX;

/// A transport that takes as many frames as the test lets it, and lets the test act within its flush.
pub(super) struct Gate {
    pipe: Pipe,
    pub(super) room: Arc<AtomicUsize>,
    /// Behind all writing.
    pub(super) within_flush: Act,
    /// Turns of the driver: only they receive, until there is nothing.
    pub(super) turns: Arc<AtomicUsize>,
    sends_anywhere: bool,
}

impl Gate {
    pub(super) fn new(pipe: Pipe, sends_anywhere: bool) -> Self {
        let room = Arc::new(AtomicUsize::new(ANY));
        Self { pipe, room, within_flush: Arc::default(), turns: Arc::default(), sends_anywhere }
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
        let act = self.within_flush.lock().unwrap().take();
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
