use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::boxed::Box;
use std::sync::{Arc, Mutex, PoisonError};

use engine::Runtime;

/// Runs `job` as a blocking task, and returns its result. `None` if `job` has panicked, or did not run because the runtime is shutting
/// down.
pub(super) async fn run_blocking<T: Send + 'static>(runtime: &impl Runtime, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let slot = Arc::new(Mutex::new(Slot { value: None, is_over: false, waker: None }));
    let filled = Filling(Arc::clone(&slot));
    runtime.spawn_blocking(Box::new(move || {
        let value = job();
        filled.0.lock().unwrap_or_else(PoisonError::into_inner).value = Some(value);
    }));
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_over {
            return Poll::Ready(slot.value.take());
        }
        slot.waker = Some(waker);
        Poll::Pending
    })
    .await
}

struct Slot<T> {
    value: Option<T>,
    /// `true` once the job has run, or was dropped without a run.
    is_over: bool,
    waker: Option<Waker>,
}

/// A value in the closure of the job. Its drop, after the run of the job or without one, wakes the task that waits for the result.
struct Filling<T>(Arc<Mutex<Slot<T>>>);

impl<T> Drop for Filling<T> {
    fn drop(&mut self) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.is_over = true;
        let waker = slot.waker.take();
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
    }
}
