//! A channel of whole frames in memory.

use core::fmt;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::Endpoint;
use crate::testing::Executor;
use protocol_core::drive::FrameIo;
use protocol_core::session::Transmit;

/// Joins two endpoints by a [`pipe`], and drives each of them in a task of `executor`.
pub fn connect(executor: &Executor, one: Endpoint, other: Endpoint) {
    let (here, there) = pipe();
    for (endpoint, io) in [(one, here), (other, there)] {
        drive(executor, endpoint, io);
    }
}

pub(super) fn drive(executor: &Executor, endpoint: Endpoint, io: Pipe) {
    let driven = crate::drive(endpoint, io, executor.timer());
    executor.spawn(async move {
        let _ = driven.await;
    });
}

/// Makes the two ends of a channel. Each end receives the frames of the other in order and without delay; there is no limit on the number
/// of stored frames. When one end is dropped or closed, the other receives the frames that remain, and then `None`.
#[must_use]
pub fn pipe() -> (Pipe, Pipe) {
    let (there, back) = (Arc::new(Direction::default()), Arc::new(Direction::default()));
    (Pipe { from: Arc::clone(&back), to: Arc::clone(&there) }, Pipe { from: there, to: back })
}

/// One end of a [`pipe`].
pub struct Pipe {
    from: Arc<Direction>,
    to: Arc<Direction>,
}

/// The error of a [`Pipe`]: the other end was dropped, or this end was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the pipe is gone")]
pub struct PipeBroken;

/// One direction of a channel.
#[derive(Default)]
struct Direction {
    state: Mutex<DirectionState>,
}

#[derive(Default)]
struct DirectionState {
    frames: VecDeque<Bytes>,
    /// `true` once the writer has closed the direction or was dropped.
    ended: bool,
    /// `true` once the reader was dropped.
    reader_dropped: bool,
    receiver: Option<Waker>,
}

impl Direction {
    fn lock(&self) -> MutexGuard<'_, DirectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the receiver after the lock is released.
    fn change<T>(&self, change: impl FnOnce(&mut DirectionState) -> T) -> T {
        let (value, receiver) = {
            let mut state = self.lock();
            let value = change(&mut state);
            (value, state.receiver.take())
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        value
    }
}

impl Pipe {
    /// Takes the next frame that has arrived, for tests without a driver. `None` if there is none now, even if the other end is gone.
    pub fn try_recv(&mut self) -> Option<Bytes> {
        self.from.lock().frames.pop_front()
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// [`PipeBroken`] if the other end was dropped, or this direction is closed.
    pub fn send(&mut self, frame: Bytes) -> Result<(), PipeBroken> {
        self.to.change(|direction| {
            if direction.reader_dropped || direction.ended {
                return Err(PipeBroken);
            }
            direction.frames.push_back(frame);
            Ok(())
        })
    }

    /// Closes the direction from this end to the other. The opposite direction stays open.
    pub fn end(&mut self) {
        self.to.change(|direction| direction.ended = true);
    }
}

impl FrameIo for Pipe {
    type Error = PipeBroken;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, PipeBroken>> {
        let waker = cx.waker().clone();
        let mut direction = self.from.lock();
        if let Some(frame) = direction.frames.pop_front() {
            return Poll::Ready(Ok(Some(frame)));
        }
        if direction.ended {
            return Poll::Ready(Ok(None));
        }
        let before = direction.receiver.replace(waker);
        drop(direction);
        drop(before);
        Poll::Pending
    }

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), PipeBroken>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(&mut self, transmit: Transmit) -> Result<(), PipeBroken> {
        self.send(transmit.frame)
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), PipeBroken>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), PipeBroken>> {
        self.end();
        Poll::Ready(Ok(()))
    }

    fn sends_anywhere(&self) -> bool {
        true
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.end();
        let frames = {
            let mut direction = self.from.lock();
            direction.reader_dropped = true;
            core::mem::take(&mut direction.frames)
        };
        drop(frames);
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").finish_non_exhaustive()
    }
}
