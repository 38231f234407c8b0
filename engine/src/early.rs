//! Early sends: a verb that has made a frame also writes it, instead of waking the driver's task to write it.
//!
//! Normally a verb wakes the task of the driver, whose next turn writes all queued frames together. If there is only one frame, such as a
//! call when no other call is open, that turn would only write this frame. So the verb uses the driver between two turns to write the frame
//! itself, on the thread of the verb. If the driver is in a turn, or has something else to do, its task is woken as usual. An early send
//! saves one wake at each end of a round trip, and of the processor instructions of one round trip at a time on tokio 4 % (inline tool) to
//! 7 % (a task).
//!
//! The driver is in a *cell*, a mutex for which no thread waits. The driver's task locks the cell for a turn, and a verb locks it for an
//! early send. A verb that finds the cell locked wakes the task. A task that finds the cell locked stores a request, which the verb
//! executes after it has released the cell.

use core::task::{Context, Poll};
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;

use protocol_core::Instant;
use protocol_core::drive::{Driver, FrameIo, Machine, Timer};

use crate::lock::Early;
use crate::{DriverSlot, Engine, Guarded, SendsEarly, wake_all};

/// The cell that holds a driver. No thread ever waits for its lock, so the code of a transport, which runs under it, may call any method
/// of a handle.
struct DriverCell<M, I: FrameIo, T> {
    /// Locked for a turn, for an early send, and to take the driver out. `None` once the driver was taken out.
    installed: Mutex<Option<Box<Installed<M, I, T>>>>,
    /// `true` if a request is stored. Changed only by swaps: by the task after it has stored the request, and by a verb after it has
    /// released the cell. So the second of the two to swap sees the changes of the first. The task also swaps when it takes its request
    /// back.
    has_request: AtomicBool,
    /// While this is locked, no other lock is taken and no code of users runs.
    request: Mutex<Option<Request>>,
}

struct Installed<M, I: FrameIo, T> {
    driver: Driver<M, I, T>,
    /// A panic of the transport or the clock during an early send. The task resumes it.
    panicked: Option<Box<dyn Any + Send>>,
}

/// The request of a task that found the cell locked by a verb.
enum Request {
    /// Wake the task, so that it can take a turn.
    Turn(Waker),
    /// Drop the driver, since the task has ended.
    End,
}

/// The lock of a cell.
type Locked<'a, M, I, T> = MutexGuard<'a, Option<Box<Installed<M, I, T>>>>;

impl<M: Machine, I: FrameIo, T: Timer> DriverCell<M, I, T> {
    fn new(driver: Driver<M, I, T>) -> Self {
        let installed = Box::new(Installed { driver, panicked: None });
        Self { installed: Mutex::new(Some(installed)), has_request: AtomicBool::new(false), request: Mutex::default() }
    }

    /// Locks the cell, even if a panic in a turn has poisoned it. Returns `None` if a verb has locked it. Called by the task and,
    /// after the task has ended, by the verb that executes the last request of the task.
    fn try_lock(&self) -> Option<Locked<'_, M, I, T>> {
        match self.installed.try_lock() {
            Ok(locked) => Some(locked),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the cell as [`Self::try_lock`] does. If a verb keeps the cell locked, stores `request` and returns `None`: that verb
    /// executes the request after it has released the cell.
    fn lock_or_request(&self, request: impl FnOnce() -> Request) -> Option<Locked<'_, M, I, T>> {
        self.try_lock().or_else(|| {
            let request = request();
            let before = self.request().replace(request);
            drop(before);
            self.has_request.swap(true, Ordering::AcqRel);
            let locked = self.try_lock()?;
            // The verb has released the cell meanwhile. The request is removed, since otherwise its waker would live as long as the cell.
            self.has_request.swap(false, Ordering::AcqRel);
            let request = self.request().take();
            drop(request);
            Some(locked)
        })
    }

    fn request(&self) -> MutexGuard<'_, Option<Request>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the driver out of the cell. Returns `None` if the driver was taken out before, or if a verb keeps the cell locked; that verb
    /// then takes the driver out.
    fn end(&self) -> Option<Box<Installed<M, I, T>>> {
        self.lock_or_request(|| Request::End)?.take()
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Option<M::Event>, I::Error>> {
        let Some(mut locked) = self.lock_or_request(|| Request::Turn(cx.waker().clone())) else { return Poll::Pending };
        let Some(installed) = &mut *locked else { return Poll::Ready(Ok(None)) };
        if let Some(panic) = installed.panicked.take() {
            resume_unwind(panic);
        }
        installed.driver.poll_event(cx)
    }

    /// Writes the queued frames. Returns `true` if nothing is left to do, and `false` if the driver has to take a turn, to do the rest or
    /// to resume a panic of the transport. If the driver cannot write now, writes nothing, and returns the guard `state` as the error.
    fn try_send<'a, S>(&self, engine: &Engine<S>, mut state: MutexGuard<'a, S>, now: Instant) -> Result<bool, MutexGuard<'a, S>>
    where
        S: SendsEarly<Event = M::Event>,
    {
        // No early send uses a cell that is poisoned by a panic in a turn.
        let Ok(mut locked) = self.installed.try_lock() else { return Err(state) };
        let Some(installed) = locked.as_deref_mut().filter(|installed| installed.driver.sends_early()) else { return Err(state) };
        let send = AssertUnwindSafe(|| {
            installed.driver.send_early(|into| {
                let outcome = state.finish_turn(now, Some(into));
                // Taking the last frame may have closed the machine.
                engine.note_closed(&state);
                // The lock is released before the transport is called.
                drop(state);
                outcome
            })
        });
        Ok(catch_unwind(send).unwrap_or_else(|panic| {
            installed.panicked = Some(panic);
            false
        }))
    }
}

impl<M, I, T> DriverCell<M, I, T>
where
    M: Machine + Send + 'static,
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    /// Executes the request that the task has stored, if there is one, after the verb has released the cell. Returns the waker of the task
    /// if the task is to be woken.
    fn execute_request<S: Guarded>(&self, engine: &Engine<S>) -> Option<Waker> {
        if !self.has_request.swap(false, Ordering::AcqRel) {
            return None;
        }
        let request = self.request().take();
        match request? {
            Request::Turn(waker) => Some(waker),
            Request::End => {
                // A new task drops the transport, since the `Drop` of a transport is code of users, and the caller of the verb may hold
                // locks. Only if the runtime starts no more tasks, the transport is dropped here.
                if let Some(installed) = self.end() {
                    engine.runtime().spawn(Box::pin(async move { drop(installed) }));
                }
                None
            }
        }
    }
}

impl<S, M, I, T> Early<S> for DriverCell<M, I, T>
where
    S: SendsEarly<Event = M::Event>,
    M: Machine + Send + 'static,
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    fn send(&self, engine: &Engine<S>, state: MutexGuard<'_, S>, now: Instant) {
        let waker_of_driver = |mut state: MutexGuard<'_, S>| state.early_slot().and_then(DriverSlot::take);
        let waker = match self.try_send(engine, state, now) {
            Ok(true) => None,
            Ok(false) => waker_of_driver(engine.lock()),
            Err(state) => waker_of_driver(state),
        };
        let requested = self.execute_request(engine);
        if waker.is_some() || requested.is_some() {
            wake_all(waker.into_iter().chain(requested));
        }
    }
}

/// The task's reference to the cell. When the task ends, this drops the driver.
struct Driven<M: Machine, I: FrameIo, T: Timer>(Arc<DriverCell<M, I, T>>);

impl<M: Machine, I: FrameIo, T: Timer> Drop for Driven<M, I, T> {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

/// Drives `machine` over `transport` until all frames are written, no event is left, and the transport is closed. The events of the driver
/// are dropped. `machine` must be the machine whose state `engine` holds.
///
/// If the transport allows it ([`FrameIo::sends_anywhere`]), verbs that note by
/// [`VerbEffects::output_alone`](crate::VerbEffects::output_alone) that no other frame is expected soon may write their frames themselves,
/// on their own threads; see [early sends](self). An engine has early sends only with the first driver whose transport allows it. If the
/// transport panics during an early send, this future panics when it is polled next. If the transport must stay on one thread, use a
/// [`Driver`] instead.
///
/// # Cancel safety
/// Not cancel safe: dropping the future drops the machine and the transport, and frames that are not written are lost. If an early send is
/// under way at that moment, machine and transport are dropped by a new task of the runtime after the early send, or on the thread of the
/// early send if the runtime starts no more tasks.
///
/// # Errors
/// The first error of the transport.
pub fn drive<S, M, I, T>(
    machine: M,
    engine: &Engine<S>,
    transport: I,
    timer: T,
) -> impl Future<Output = Result<(), I::Error>> + use<S, M, I, T>
where
    S: SendsEarly<Event = M::Event>,
    M: Machine + Send + 'static,
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    let sends_anywhere = transport.sends_anywhere();
    let cell = Arc::new(DriverCell::new(Driver::new(machine, transport, timer)));
    let driven = Driven(Arc::clone(&cell));
    if sends_anywhere {
        engine.set_early(cell);
    }
    async move {
        while poll_fn(|cx| driven.0.poll(cx)).await?.is_some() {}
        Ok(())
    }
}
