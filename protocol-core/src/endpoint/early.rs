//! Where the driver of an endpoint sits, so that a verb need not wake its task to have something sent.
//!
//! A call that is alone on its way, or the answer to the only one, has nothing to be written together with. Woken for it, the task would take
//! a turn, and all that this turn would do is write. So the verb does that itself, on its own thread, with the driver as it is between two
//! turns. Where the driver is in a turn, or has something else to do, its task is woken as ever.

use core::task::{Context, Poll};
use std::any::Any;
use std::boxed::Box;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use crate::drive::{Driver, FrameIo, Timer};
use crate::endpoint::Endpoint;
use crate::endpoint::shared::{Shared, State};
use crate::endpoint::wake::wake_all;
use crate::session::CloseReason;

/// What a verb finds where the driver sits.
pub(super) trait Early: Send + Sync {
    /// Sends what the session has to say; where that cannot be now, or leaves something for a turn, wakes the driver.
    fn send(&self, shared: &Shared, state: MutexGuard<'_, State>);
}

/// Nobody waits for the seat: the task that finds it taken leaves word, and a verb wakes the driver. So the code of a transport, which runs
/// while it is taken, may do what it likes.
struct Seat<I: FrameIo, T> {
    /// Locked by whoever turns the driver or sends with it. Empty once the driver has ended.
    seated: Mutex<Option<Box<Seated<I, T>>>>,
    /// Word was left. Only ever swapped: by the task behind leaving word, by a verb behind leaving the seat, so the second of them sees what
    /// the first did.
    has_word: AtomicBool,
    /// A leaf: nothing else is locked while this is, and no foreign code runs.
    word: Mutex<Option<Word>>,
}

struct Seated<I: FrameIo, T> {
    driver: Driver<Endpoint, I, T>,
    /// What the transport, or the clock, panicked with while a verb sent. It is the task that ends of it.
    panicked: Option<Box<dyn Any + Send>>,
}

/// What the task wants that came while a verb sent.
enum Word {
    /// To take a turn.
    Turn(Waker),
    /// To end, and the driver with it.
    End,
}

type Taken<'a, I, T> = MutexGuard<'a, Option<Box<Seated<I, T>>>>;

impl<I: FrameIo, T: Timer> Seat<I, T> {
    fn new(driver: Driver<Endpoint, I, T>) -> Self {
        let seated = Box::new(Seated { driver, panicked: None });
        Self { seated: Mutex::new(Some(seated)), has_word: AtomicBool::new(false), word: Mutex::default() }
    }

    /// For the task. After a panic in a turn it has what is left.
    fn take(&self) -> Option<Taken<'_, I, T>> {
        match self.seated.try_lock() {
            Ok(taken) => Some(taken),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For the task. `None`: a verb is there, and heeds the word when it leaves.
    fn take_or_leave(&self, word: impl FnOnce() -> Word) -> Option<Taken<'_, I, T>> {
        self.take().or_else(|| {
            let word = word();
            let before = self.word().replace(word);
            drop(before);
            self.has_word.swap(true, Ordering::AcqRel);
            let taken = self.take()?;
            // The verb had left already. It would be somebody's waker as long as anybody has a handle.
            self.has_word.swap(false, Ordering::AcqRel);
            let word = self.word().take();
            drop(word);
            Some(taken)
        })
    }

    fn word(&self) -> MutexGuard<'_, Option<Word>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the driver out, or has a verb that is there do so.
    fn end(&self) -> Option<Box<Seated<I, T>>> {
        self.take_or_leave(|| Word::End)?.take()
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Option<CloseReason>, I::Error>> {
        let Some(mut taken) = self.take_or_leave(|| Word::Turn(cx.waker().clone())) else { return Poll::Pending };
        let Some(seated) = &mut *taken else { return Poll::Ready(Ok(None)) };
        if let Some(panic) = seated.panicked.take() {
            resume_unwind(panic);
        }
        seated.driver.poll_event(cx)
    }

    /// Gives false where the driver has to take a turn for what is left to do, and the lock back, with nothing done, where it cannot send now.
    fn try_send<'a>(&self, shared: &Shared, mut state: MutexGuard<'a, State>) -> Result<bool, MutexGuard<'a, State>> {
        // After a panic the driver is for its task alone.
        let Ok(mut taken) = self.seated.try_lock() else { return Err(state) };
        let Some(seated) = taken.as_deref_mut().filter(|seated| seated.driver.sends_early()) else { return Err(state) };
        let send = AssertUnwindSafe(|| {
            seated.driver.send_early(|clock, into| {
                let now = state.session.time();
                let left = state.leave(now, clock, Some(into));
                // The last frame of a session may have been the end of it.
                shared.note_shut(&state);
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

impl<I, T> Seat<I, T>
where
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    /// For the verb, when it is not there any longer. Gives whom to wake.
    fn heed_word(&self, shared: &Shared) -> Option<Waker> {
        if !self.has_word.swap(false, Ordering::AcqRel) {
            return None;
        }
        let word = self.word().take();
        match word? {
            Word::Turn(task) => Some(task),
            Word::End => {
                // What ends with it is the user's, and nothing for under whatever the verb was called with. A runtime that takes no tasks any
                // longer drops it here all the same.
                if let Some(seated) = self.end() {
                    shared.runtime().spawn(Box::pin(async move { drop(seated) }));
                }
                None
            }
        }
    }
}

impl<I, T> Early for Seat<I, T>
where
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    fn send(&self, shared: &Shared, state: MutexGuard<'_, State>) {
        let driver = match self.try_send(shared, state) {
            Ok(true) => None,
            Ok(false) => shared.lock().driver.take(),
            Err(mut state) => state.driver.take(),
        };
        let task = self.heed_word(shared);
        if driver.is_some() || task.is_some() {
            wake_all(driver.into_iter().chain(task));
        }
    }
}

/// The driver goes with its task.
struct Driven<I: FrameIo, T: Timer>(Arc<Seat<I, T>>);

impl<I: FrameIo, T: Timer> Drop for Driven<I, T> {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

/// Drives `endpoint` to its end: all is written, its handlers have ended and the transport is closed. Gives the reason for which the session
/// closed.
///
/// Where the transport allows ([`FrameIo::sends_anywhere`]) and nothing waits to be written, a call beside which no other is held or on its
/// way, and the answer to the only one that is served, are written by whoever makes and gives them. What the transport panics with then, the
/// future does when it is polled next. Whoever has a transport that must stay on its thread turns a [`Driver`] instead.
///
/// With the future the endpoint and the transport are dropped; where a verb is writing at that very moment, by a task of the runtime, or, if
/// that takes none any longer, by the verb.
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
    let sends_anywhere = transport.sends_anywhere();
    let seat = Arc::new(Seat::new(Driver::new(endpoint, transport, timer)));
    let driven = Driven(Arc::clone(&seat));
    if sends_anywhere {
        // A circle until the task ends.
        let _ = shared.seat.set(seat);
    }
    async move {
        while poll_fn(|cx| driven.0.poll(cx)).await?.is_some() {}
        Ok(peer.closed().await)
    }
}
