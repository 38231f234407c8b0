//! The interface to a runtime: tasks, a clock and random bytes.

use core::time::Duration;
use std::io;
use std::pin::Pin;

use protocol_core::Instant;
use protocol_core::drive::Timer;

/// A future on the heap that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A future on the heap that stays on one thread.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Makes a future on the thread on which the future stays.
pub type MakeLocal = Box<dyn FnOnce() -> LocalBoxFuture<'static, ()> + Send>;

/// A runtime, as an adapter implements it: tasks, threads for blocking code, a clock and random bytes.
///
/// Only [`Self::now`] may be called while the lock of an [`Engine`](crate::Engine) is held.
pub trait Runtime: Send + Sync + 'static {
    /// The time now, on the same clock as the timer of the machine's driver. This method may be called under the lock of an engine, so it
    /// must neither call the engine nor wait for a thread that calls the engine.
    fn now(&self) -> Instant;

    /// Runs `task` to its end, concurrently with other tasks. May be called on any thread. A runtime that is shutting down drops the task
    /// instead; a call that the task serves is then answered with an internal error.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Calls `make` on a thread of the runtime, and runs the future on that thread to its end. May be called on any thread. A runtime that
    /// cannot run such futures, or is shutting down, drops `make` instead, as the default implementation does: a call that the task serves
    /// is then answered with an internal error, which says so. [`LocalRuntime`](crate::LocalRuntime) and
    /// [`local_tasks`](crate::local_tasks) help to implement this method.
    fn spawn_local(&self, make: MakeLocal) {
        drop(make);
    }

    /// Runs `job` on a thread that the job may block. A runtime that is shutting down drops the job instead, as it drops a task.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>);

    /// The time since 1970-01-01 00:00 UTC, for values that must expire at the same time in all processes. The default implementation
    /// returns `None`: there is no such clock, and operations that need it fail.
    fn unix_time(&self) -> Option<Duration> {
        None
    }

    /// Fills `bytes` with random bytes of cryptographic quality, such as those of the operating system. They are used for ids and secrets.
    ///
    /// # Errors
    /// If there are no random bytes now; the contents of `bytes` are then unspecified. The default implementation returns
    /// [`io::ErrorKind::Unsupported`]. Without random bytes, ids are unique only within one run, and operations that need a secret fail.
    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A runtime that also makes timers, for owners of several machines.
pub trait TimedRuntime: Runtime {
    /// A timer on the clock of this runtime, for one driver.
    fn timer(&self) -> Box<dyn Timer + Send + Sync>;
}
