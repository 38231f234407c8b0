//! The lock of an engine, and the steps of a verb.

use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use protocol_core::Instant;
use protocol_core::drive::TurnOutcome;
use protocol_core::lines::LineEncoder;

use crate::{Runtime, park, wake_all};

/// The state that an [`Engine`] holds under its lock: a machine, and the other state that its handles share.
///
/// The methods must not wake or drop a waker. They return wakers, which the engine wakes after it has released the lock.
pub trait Guarded: Send + 'static {
    /// The wakers to be woken after a verb.
    type Wakers: IntoIterator<Item = Waker>;

    /// Returns `true` if the machine is closed.
    fn is_closed(&self) -> bool;

    /// Takes the wakers of all tasks that have something to do after a verb: drivers that have frames to write or an earlier deadline to
    /// wait for, and tasks that wait for events.
    fn take_wakers(&mut self, effects: &VerbEffects) -> Self::Wakers;

    /// The slot of the driver that verbs may use for early sends ([`SendsEarly`]), if there is one.
    fn early_slot(&mut self) -> Option<&mut DriverSlot> {
        None
    }
}

/// State whose verbs may write frames themselves; see [early sends](crate::early). After a verb that tries an early send,
/// [`Guarded::take_wakers`] is not called: only the driver of [`Guarded::early_slot`] is woken, if it has to take a turn.
pub trait SendsEarly: Guarded {
    /// The event that the driver returns.
    type Event: Send;

    /// Ends a turn of the driver, or an early send: moves queued frames into `room`, and returns the outcome of the turn. If `room` is
    /// `None`, moves no frames, and [`TurnOutcome::has_output`] is `true`. The second value is `true` if there are events to handle.
    fn finish_turn(&mut self, now: Instant, room: Option<&mut LineEncoder>) -> (TurnOutcome<Self::Event>, bool);
}

/// A driver that verbs can use for early sends.
pub(crate) trait Early<S: Guarded>: Send + Sync {
    /// Writes the queued frames. Wakes the driver's task if that is not possible now, or if there is more to do.
    fn send(&self, engine: &Engine<S>, state: MutexGuard<'_, S>, now: Instant);
}

/// The effects of a verb. They decide which tasks must be woken.
#[derive(Debug, Default)]
pub struct VerbEffects {
    output: bool,
    alone: bool,
}

impl VerbEffects {
    /// Notes that the machine has a new frame or event.
    pub fn output(&mut self) {
        self.output = true;
    }

    /// Notes that the machine has a new frame or event. `is_alone` is `true` if the frame should be written at once, since no other frame
    /// is expected soon that could be written together with it.
    pub fn output_alone(&mut self, is_alone: bool) {
        self.output = true;
        self.alone = is_alone;
    }

    /// Returns `true` if there is a new frame or event.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.output
    }
}

/// The waker of a driver, and the state that decides whether the driver must be woken.
#[derive(Debug, Default)]
pub struct DriverSlot {
    /// Taken when the driver is woken, and parked again in its next turn.
    waker: Option<Waker>,
    /// `true` while the driver is in a turn, in which it reads the state again before it waits.
    polling: bool,
    /// The deadline that the driver waits for.
    armed: Option<Instant>,
}

impl DriverSlot {
    /// Stores the driver's waker, as [`park`] does.
    pub fn park(&mut self, waker: &mut Option<Waker>) {
        park(&mut self.waker, waker);
    }

    /// Notes that the driver is in a turn (`true`) or not (`false`). In a turn the driver need not be woken, since it reads the state again
    /// before it waits.
    pub fn set_polling(&mut self, polling: bool) {
        self.polling = polling;
    }

    /// Notes the deadline that the driver waits for from now on, and returns that deadline.
    pub fn arm(&mut self, at: Option<Instant>) -> Option<Instant> {
        self.armed = at;
        at
    }

    /// Returns `true` if the driver must be woken: it is not in a turn, and either there is output, or `deadline` is earlier than the
    /// deadline that the driver waits for. If the driver waits for none, any deadline counts as earlier.
    #[must_use]
    pub fn must_wake(&self, has_output: bool, deadline: impl FnOnce() -> Option<Instant>) -> bool {
        let is_earlier = || match (deadline(), self.armed) {
            (Some(next), Some(armed)) => next < armed,
            (next, _) => next.is_some(),
        };
        !self.polling && (has_output || is_earlier())
    }

    /// Returns `true` if a waker of the driver is stored: the driver was not woken since it parked its waker.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.waker.is_some()
    }

    /// Takes the driver's waker, to be woken or dropped after the lock is released.
    pub fn take(&mut self) -> Option<Waker> {
        self.waker.take()
    }
}

/// State under one lock, and its runtime. See the [documentation of the crate](crate).
pub struct Engine<S: Guarded> {
    state: Mutex<S>,
    /// The driver that verbs may use for early sends, if there is one.
    early: OnceLock<Arc<dyn Early<S>>>,
    /// `true` once [`Engine::note_closed`] has found the machine closed. Written under the lock, and read by the driver without the lock.
    closed: AtomicBool,
    runtime: Arc<dyn Runtime>,
}

impl<S: Guarded> Engine<S> {
    /// An engine with `state`, whose machine must use the clock of `runtime`.
    #[must_use]
    pub fn new(state: S, runtime: Arc<dyn Runtime>) -> Self {
        Self { state: Mutex::new(state), early: OnceLock::new(), closed: AtomicBool::new(false), runtime }
    }

    /// The runtime.
    #[must_use]
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Runs a verb: reads the clock, locks, calls `verb` to change the state, unlocks, and wakes the tasks that have something to do, or
    /// writes the frames itself ([early sends](crate::early)).
    ///
    /// `verb` must not run code of users. In particular it must not drop wakers or values of users, but return them, to be dropped after
    /// the lock is released.
    pub fn verb<T>(&self, verb: impl FnOnce(&mut S, Instant, &mut VerbEffects) -> T) -> T {
        let now = self.runtime.now();
        self.run(self.lock(), now, verb)
    }

    /// Runs a verb as [`verb`](Self::verb) does, but with `now` as the time, instead of reading the clock.
    pub fn verb_at<T>(&self, now: Instant, verb: impl FnOnce(&mut S, Instant, &mut VerbEffects) -> T) -> T {
        self.run(self.lock(), now, verb)
    }

    fn run<T>(&self, mut state: MutexGuard<'_, S>, now: Instant, verb: impl FnOnce(&mut S, Instant, &mut VerbEffects) -> T) -> T {
        let mut effects = VerbEffects::default();
        let value = verb(&mut state, now, &mut effects);
        self.note_closed(&state);
        if effects.alone
            && let Some(early) = self.early.get()
            && state.early_slot().is_some_and(|slot| !slot.polling && slot.is_parked())
        {
            early.send(self, state, now);
            return value;
        }
        let wakers = state.take_wakers(&effects);
        drop(state);
        wake_all(wakers);
        value
    }

    /// Locks the state and calls `access`, which reads it, or changes a part of it that no driver depends on: no task is woken afterwards.
    /// The rules for the closure of [`verb`](Self::verb) apply.
    pub fn with_state<T>(&self, access: impl FnOnce(&mut S) -> T) -> T {
        access(&mut self.lock())
    }

    /// Locks the state. While the guard lives, its thread must run no verb, which would wait for the lock forever, and no code of users,
    /// which may run a verb.
    ///
    /// A poisoned lock is ignored: verbs leave the state consistent even if they panic.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores that the machine is closed, if it is, for [`is_noted_closed`](Self::is_noted_closed). Verbs and early sends do this
    /// themselves. Code that closes the machine under [`lock`](Self::lock), outside of a turn of the driver, must call this method.
    pub fn note_closed(&self, state: &S) {
        if state.is_closed() {
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Returns `true` if the machine was closed at the end of a verb or of an early send, or at a call of
    /// [`note_closed`](Self::note_closed). Takes no lock.
    #[must_use]
    pub fn is_noted_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Lets verbs use the driver `early` for early sends, unless they use another driver already. The engine and the driver keep each other
    /// alive until the driver's task ends.
    pub(crate) fn set_early(&self, early: Arc<dyn Early<S>>) {
        let _ = self.early.set(early);
    }
}

impl<S: Guarded> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
