//! Blocking work as a future, on any runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Runs `job` on a new thread, which does not delay the end of the program. A blocking task of a runtime would delay it, for example while
/// the task waits for the keyboard.
pub(super) fn in_thread<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> InThread<T> {
    let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
    let filled = Arc::clone(&slot);
    thread::spawn(move || {
        let result = job();
        let mut slot = filled.lock().unwrap_or_else(PoisonError::into_inner);
        slot.result = Some(result);
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    InThread(slot)
}

/// A future of the result of [`in_thread`]. If the future is dropped, the thread continues and its result is lost. If the thread panics,
/// the future is never ready.
pub(super) struct InThread<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

impl<T> Future for InThread<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                slot.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}
