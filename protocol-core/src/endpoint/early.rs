//! Where the driver of an endpoint sits, so that a verb need not wake its task to have one frame sent.
//!
//! A call that is alone on its way, or the answer to the only one, has nothing to be written together with. Woken for it, the task would take
//! a turn, and all that this turn would do is write one frame. So the verb does that itself, on its own thread, with the driver as it is
//! between two turns. Where the driver is in a turn, or has something else to do, its task is woken as ever.

use core::task::{Context, Poll};
use std::any::Any;
use std::boxed::Box;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use crate::drive::{Driver, FrameIo, Timer};
use crate::endpoint::Endpoint;
use crate::endpoint::shared::State;
use crate::session::CloseReason;

/// What a verb finds where the driver sits.
pub(super) trait Early: Send + Sync {
    /// Sends what the session has to say. Gives false where the driver has to take a turn for what is left to do, and the lock back, with
    /// nothing done, where it cannot send now.
    fn send<'a>(&self, state: MutexGuard<'a, State>) -> Result<bool, MutexGuard<'a, State>>;
}

/// Locked by whoever turns the driver or sends with it. Nobody waits for it, so the code of a transport, which runs under it, may do what it
/// likes.
struct Seat<I: FrameIo, T>(Mutex<Seated<I, T>>);

struct Seated<I: FrameIo, T> {
    driver: Driver<Endpoint, I, T>,
    /// What the transport panicked with while a verb sent. It is the task that ends of it.
    panicked: Option<Box<dyn Any + Send>>,
}

impl<I, T> Early for Seat<I, T>
where
    I: FrameIo<Error: Send> + Send,
    T: Timer + Send,
{
    fn send<'a>(&self, state: MutexGuard<'a, State>) -> Result<bool, MutexGuard<'a, State>> {
        let Ok(mut seated) = self.0.try_lock() else { return Err(state) };
        let mut state = state;
        if seated.panicked.is_some() || !seated.driver.sends_early() {
            return Err(state);
        }
        let send = AssertUnwindSafe(|| {
            seated.driver.send_early(|clock, into| {
                let now = state.session.time();
                let left = state.leave(now, clock, Some(into));
                // The transport is not for under the lock.
                drop(state);
                left
            })
        });
        Ok(catch_unwind(send).unwrap_or_else(|panic| {
            seated.panicked = Some(panic);
            false
        }))
    }
}

impl<I: FrameIo, T: Timer> Seat<I, T> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Option<CloseReason>, I::Error>> {
        let mut seated = match self.0.try_lock() {
            Ok(seated) => seated,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A verb is sending, on another thread. That is soon over.
            Err(TryLockError::WouldBlock) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        };
        if let Some(panic) = seated.panicked.take() {
            resume_unwind(panic);
        }
        seated.driver.poll_event(cx)
    }
}

/// Drives `endpoint` to its end: all is written, its handlers have ended and the transport is closed. Gives the reason for which the session
/// closed. Dropped, it drops the endpoint and the transport.
///
/// Where the transport allows ([`FrameIo::sends_anywhere`]), a call that is alone on its way, and the answer to the only one that is served,
/// are written by whoever makes and gives them. A panic of the transport is the future's in any case. Whoever has a transport that must
/// stay on its thread turns a [`Driver`] instead.
///
/// # Errors
/// The first error of the transport.
pub fn drive<I, T>(endpoint: Endpoint, transport: I, timer: T) -> impl Future<Output = Result<CloseReason, I::Error>>
where
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    let peer = endpoint.peer();
    let shared = Arc::clone(endpoint.shared());
    let seat = Arc::new(Seat(Mutex::new(Seated { driver: Driver::new(endpoint, transport, timer), panicked: None })));
    // Not counted: with the task the driver ends.
    let early: Weak<dyn Early> = Arc::downgrade(&seat) as _;
    let _ = shared.seat.set(early);
    async move {
        while poll_fn(|cx| seat.poll(cx)).await?.is_some() {}
        Ok(peer.closed().await)
    }
}
