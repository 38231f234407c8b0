//! Waits for signals, such as Ctrl-C, one after the other.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Waits for one signal after the other. `make` returns a future of the next signal: of a Ctrl-C or a SIGTERM.
pub(super) struct Interrupts<F, C> {
    make: F,
    next: Pin<Box<C>>,
}

impl<F: FnMut() -> C, C: Future<Output = ()>> Interrupts<F, C> {
    pub(super) fn new(mut make: F) -> Self {
        let next = Box::pin(make());
        Self { make, next }
    }

    pub(super) fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let signalled = self.next.as_mut().poll(task);
        if signalled.is_ready() {
            // The next future is polled here, since it waits for a signal only from its first poll on. If it is ready as well, the two
            // signals count as one.
            self.next.set((self.make)());
            if self.next.as_mut().poll(task).is_ready() {
                self.next.set((self.make)());
            }
        }
        signalled
    }

    /// Waits for `work`. Returns `None` if a signal comes before `work` is done, or has come since the signals were last polled.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|task| match self.poll_next(task) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(task).map(Some),
        })
        .await
    }
}
