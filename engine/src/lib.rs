//! A lock around a sans-IO machine that many handles share. No code of users runs under the lock.
//!
//! # Which layer do you need?
//!
//! | You want to | Use |
//! |---|---|
//! | own the event loop, test in virtual time, run without std | `protocol-core` |
//! | write tools or clients | `endpoint`, and `adapter-tokio` or `adapter-smol` |
//! | serve tools over HTTP, with axum, with hyper or with neither | `http-service`, and an adapter with the feature `http` |
//! | connect an endpoint to a transport or a runtime of your own | `endpoint`, `engine`, `adapter-io` |
//! | be a Tesseron app, or the gateway to such apps | `tesseron`, and an adapter with the feature `tesseron` |
//! | call tools from a terminal | `programs` |
//!
//! # This crate
//!
//! An [`Engine`] holds state under one lock. The type of the state implements [`Guarded`]. The state contains a machine
//! ([`Machine`](protocol_core::drive::Machine)), which is changed in two ways:
//!
//! * by a *turn* of the machine's driver: one pass of the event loop, which reads, handles deadlines and writes;
//! * by a *verb*: a method of a handle, from any thread. A verb reads the clock, locks, changes the state, takes the wakers of the tasks
//!   that now have something to do, unlocks, and only then wakes them ([`Engine::verb`]). It may also write the frame that it has made
//!   ([`early`]).
//!
//! A part of the state that no driver depends on, even one of the machine, can also be changed without a turn and without a verb
//! ([`Engine::with_state`]).
//!
//! No code of users, such as a waker, a future or a `Drop`, ever runs under the lock. `endpoint` uses an engine for a session, and the
//! gateway of `tesseron` uses one for its bridge. Use this crate to write an adapter for another runtime ([`Runtime`]), or to share a
//! machine of your own between threads.
//!
//! * [`Runtime`] and [`TimedRuntime`]: the tasks, the clock, the random bytes and the timers that an adapter provides.
//! * [`DriverSlot`]: the waker of the driver, and the deadline that it waits for.
//! * [`Waiters`], [`AbortHandle`] and [`park`]: wakers that are stored under a lock, but woken and dropped after it is released.
//! * [`Task`]: a future of a user that runs as a task. The owner of the task gets the end of the future exactly once, even if the future
//!   panics or is dropped.
//! * [`LocalRuntime`], [`local_tasks`]: tasks that stay on one thread, since their futures are not `Send`.
//! * [`drive`]: runs a driver, and lets verbs use it to write frames ([early sends](early)).
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

pub mod early;
mod local;
mod lock;
mod panics;
mod runtime;
mod task;
mod wake;

pub use early::drive;
pub use local::{LocalRuntime, LocalSpawner, LocalTasks, local_task, local_tasks};
pub use lock::{DriverSlot, Engine, Guarded, SendsEarly, VerbEffects};
pub use panics::drop_quietly;
pub use runtime::{BoxFuture, LocalBoxFuture, MakeLocal, Runtime, TimedRuntime};
pub use task::{BlockingTask, Task, TaskEnd, TaskOwner};
pub use wake::{AbortHandle, Waiters, each, park, wake_all};
