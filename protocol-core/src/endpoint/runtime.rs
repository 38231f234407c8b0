//! What a runtime lends to an endpoint.

use std::boxed::Box;
use std::future::Future;
use std::pin::Pin;

use crate::time::Instant;

/// A future on the heap that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an adapter lends: tasks, blocking threads and a clock.
///
/// No method but [`Self::now`] is called while the endpoint's lock is held.
pub trait Runtime: Send + Sync + 'static {
    /// The time now, on the same axis as the timer of the driver that turns this endpoint. May be called under the endpoint's lock, so it
    /// must not call the endpoint, nor wait for whoever does.
    fn now(&self) -> Instant;

    /// Runs `task` to its end, beside everything else. Called on whatever thread a verb is. A runtime that is shutting down drops it instead; the call it
    /// belongs to is then answered with an internal error.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs `job` where it may block. Dropping it unrun is like dropping a task.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>);
}
