//! Handlers that run elsewhere than the hooks around them: on a thread for blocking code, or on the one that their future stays on.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::any::Any;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::state::ServedCall;
use crate::tool_error::{Result, ToolError};
use engine::{AbortHandle, BlockingTask, TaskEnd, TaskOwner, local_task, park};
use protocol_core::error::RpcError;

/// Runs a handler whose future stays on one thread. If the runtime runs none, the result is `refusal`.
pub(super) fn local<T, F>(served: &Arc<ServedCall>, make: impl FnOnce() -> F + Send + 'static, refusal: ToolError) -> Wait<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + 'static,
{
    let elsewhere = Elsewhere::new(served);
    served.shared.runtime().spawn_local(local_task(Arc::clone(&elsewhere), make, Err(refusal)));
    Wait(elsewhere)
}

/// Runs a handler that blocks its thread.
pub(super) fn blocking<T: Send + 'static>(served: &Arc<ServedCall>, job: impl FnOnce() -> Result<T> + Send + 'static) -> Wait<T> {
    let elsewhere = Elsewhere::new(served);
    let task = BlockingTask::new(Arc::clone(&elsewhere), Box::new(job));
    served.shared.runtime().spawn_blocking(Box::new(move || task.run()));
    Wait(elsewhere)
}

/// A handler that runs elsewhere, as its task and the hooks around it share it.
struct Elsewhere<T> {
    served: Arc<ServedCall>,
    abort: AbortHandle,
    slot: Mutex<Slot<T>>,
}

struct Slot<T> {
    end: Option<TaskEnd<Result<T>>>,
    /// The words of its panic.
    panic: Option<String>,
    waker: Option<Waker>,
}

impl<T> Elsewhere<T> {
    fn new(served: &Arc<ServedCall>) -> Arc<Self> {
        let slot = Mutex::new(Slot { end: None, panic: None, waker: None });
        Arc::new(Self { served: Arc::clone(served), abort: AbortHandle::default(), slot })
    }

    fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> TaskOwner for Elsewhere<T> {
    type Output = Result<T>;

    fn abort_handle(&self) -> &AbortHandle {
        &self.abort
    }

    fn enter(&self) -> impl Sized + '_ {
        self.served.enter()
    }

    /// Only notes the words: the panic goes on in the task that waits, which records it.
    fn panicked(&self, panic: &(dyn Any + Send)) {
        let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        self.slot().panic = words.map(String::from);
    }

    fn settle(&self, end: TaskEnd<Result<T>>) {
        let mut slot = self.slot();
        slot.end = Some(end);
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The end of a handler that runs elsewhere. Panics as the handler did. If it is dropped, the handler is, at its next await point.
pub(super) struct Wait<T>(Arc<Elsewhere<T>>);

impl<T> Future for Wait<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Result<T>> {
        let mut waker = Some(cx.waker().clone());
        let mut slot = self.0.slot();
        let Some(end) = slot.end.take() else {
            park(&mut slot.waker, &mut waker);
            drop(slot);
            return Poll::Pending;
        };
        let panic = slot.panic.take();
        drop(slot);
        match end {
            TaskEnd::Value(value) => Poll::Ready(value),
            TaskEnd::Panicked => resume_unwind(Box::new(panic.unwrap_or_else(|| String::from("no text")))),
            TaskEnd::Dropped => {
                let error = RpcError::fixed(RpcError::INTERNAL, "internal error: the handler ended without an answer");
                Poll::Ready(Err(error.into()))
            }
        }
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        if let Some(waker) = self.0.abort.abort() {
            waker.wake();
        }
    }
}
