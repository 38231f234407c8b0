//! The task that waits for the deadlines of the HTTP server. It runs while there are deadlines.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;
use std::task::Waker;

use engine::spare;
use protocol_core::drive::Timer;

use super::Shared;

/// Waits for the deadlines of the HTTP server, and handles them.
///
/// # Cancel safety
/// Cancel safe: the next verb of the service starts another such task, if there is a deadline.
pub(super) struct Deadlines {
    shared: Arc<Shared>,
    timer: Box<dyn Timer + Send + Sync>,
    has_ended: bool,
    spare: Option<Waker>,
}

impl Deadlines {
    pub(super) fn new(shared: Arc<Shared>, timer: Box<dyn Timer + Send + Sync>) -> Self {
        Self { shared, timer, has_ended: false, spare: None }
    }
}

impl Future for Deadlines {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            this.spare = spare(this.spare.take(), cx.waker());
            match this.shared.expire(cx.waker(), &mut this.spare) {
                Some(at) => ready!(this.timer.poll_until(cx, at)),
                None => {
                    this.has_ended = true;
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.end_deadlines();
        }
    }
}
