//! One lock discipline around a sans-IO machine that many handles share.
//!
//! # Which layer do you need?
//!
//! | You want to | Take |
//! |---|---|
//! | own the event loop, test in virtual time, run without std | `protocol-core` |
//! | write tools or clients | `endpoint`, and `adapter-tokio` or `adapter-smol` |
//! | put a transport or a runtime of your own under an endpoint | `endpoint`, `engine`, `adapter-io` |
//! | be a Tesseron app, or the gateway to such apps | `tesseron`, and an adapter with the feature `tesseron` |
//! | call tools from a terminal | `programs` |
//!
//! # This crate
//!
//! An [`Engine`] keeps some [`Guarded`] state under one lock. Every method of a handle reads the clock, locks, changes the state, takes the
//! wakers of the tasks that now have something to do, unlocks, and only then wakes them. So no waker, no future of a user and no `Drop` of a
//! user's type ever runs under the lock. `endpoint` keeps a session that way, and the gateway of `tesseron` its bridge. You need it to write
//! an adapter for another runtime ([`Runtime`]), or a machine of your own that is shared.
//!
//! * [`Runtime`]: the tasks and the clock that an adapter lends.
//! * [`DriverSlot`]: the waker of a machine's driver, and the deadline it waits for.
//! * [`Waiters`], [`AbortHandle`] and [`park`]: wakers that are kept under a lock and used outside of it.
//! * [`Task`]: a future of a user that runs as a task and settles what it owes, however it ends.
//! * [`drive`]: turns a driver, and lets methods send with it ([early sends](early)).
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
mod lock;
mod panics;
mod runtime;
mod task;
mod wake;

pub use early::drive;
pub use lock::{After, DriverSlot, Engine, Guarded, SendsEarly};
pub use panics::drop_quietly;
pub use runtime::{BoxFuture, Runtime};
pub use task::{BlockingTask, End, Task, TaskOwner};
pub use wake::{AbortHandle, Waiters, each, park, spare, wake_all};
