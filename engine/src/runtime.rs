//! The tasks and the clock that a runtime lends.

use std::pin::Pin;

use protocol_core::Instant;

/// A future on the heap that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tasks, blocking threads and a clock, as an adapter lends them.
///
/// No method but [`Self::now`] is called while the lock of an [`Engine`](crate::Engine) is held.
pub trait Runtime: Send + Sync + 'static {
    /// The time now, on the same axis as the timer of the driver that turns the machine. May be called under the lock of an engine, so it
    /// must not call the engine, nor wait for a thread that does.
    fn now(&self) -> Instant;

    /// Runs `task` to its end, beside everything else. Called on any thread. A runtime that is shutting down drops it instead; the call it
    /// belongs to is then answered with an internal error.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs `job` where it may block. Dropping it unrun is like dropping a task.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>);
}
