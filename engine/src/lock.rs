//! The one lock, and the order in which a verb does its work.

use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use protocol_core::Instant;
use protocol_core::drive::TurnOutcome;
use protocol_core::lines::LineEncoder;

use crate::{Runtime, park, wake_all};

/// State that an [`Engine`] keeps under its lock: a machine, and what its handles share beside it.
///
/// No method may wake a waker, or drop one: they are given out, and used when the lock is let go.
pub trait Guarded: Send + 'static {
    /// Wakers to be woken after a verb.
    type Wakers: IntoIterator<Item = Waker>;

    /// Returns `true` if the machine is closed.
    fn is_closed(&self) -> bool;

    /// Takes the wakers of everybody who has something to do after a verb: drivers that have frames to write or an earlier deadline to wait
    /// for, and owners of events.
    fn take_wakers(&mut self, after: &After) -> Self::Wakers;

    /// The slot of the driver that verbs may send with, where there is one ([`SendsEarly`]).
    fn early_slot(&mut self) -> Option<&mut DriverSlot> {
        None
    }
}

/// State whose verbs may send with the driver.
pub trait SendsEarly: Guarded {
    /// The event that the driver hands out.
    type Event: Send;

    /// Ends a turn of the driver, or an early send: puts the frames that wait into `room`, if there is any, and says what to wait for. The
    /// second value says whether there are events to be dispatched.
    fn finish_turn(&mut self, now: Instant, room: Option<&mut LineEncoder>) -> (TurnOutcome<Self::Event>, bool);
}

/// A driver, as a verb finds it.
pub(crate) trait Early<S: Guarded>: Send + Sync {
    /// Sends the frames that wait; where that cannot be now, or leaves something for a turn, wakes the driver.
    fn send(&self, engine: &Engine<S>, state: MutexGuard<'_, S>, now: Instant);
}

/// The effect of a verb.
#[derive(Debug, Default)]
pub struct After {
    output: bool,
    alone: bool,
}

impl After {
    /// Notes a frame or an event that the machine had not before.
    pub fn output(&mut self) {
        self.output = true;
    }

    /// Notes the same. Where it `is_alone`, no other frame is on its way with which it could be written together.
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

/// The waker of a driver, and what that driver knows already.
#[derive(Debug, Default)]
pub struct DriverSlot {
    /// Taken when it is woken; the driver comes back with it in its next turn.
    waker: Option<Waker>,
    /// The driver is in a turn and looks at all of the state before it waits.
    polling: bool,
    /// The deadline that the driver waits for.
    armed: Option<Instant>,
}

impl DriverSlot {
    /// Keeps the driver's waker, as [`park`] does.
    pub fn park(&mut self, waker: &Waker, spare: &mut Option<Waker>) -> bool {
        park(&mut self.waker, waker, spare)
    }

    /// Says whether the driver is in a turn and looks at all of the state before it waits, so that it need not be woken.
    pub fn set_polling(&mut self, polling: bool) {
        self.polling = polling;
    }

    /// Notes the deadline that the driver waits for from now on, and gives it back.
    pub fn arm(&mut self, at: Option<Instant>) -> Option<Instant> {
        self.armed = at;
        at
    }

    /// Returns `true` if the driver must be woken: it is not in a turn, and there is output, or a deadline before the one it waits for.
    #[must_use]
    pub fn is_news(&self, has_output: bool, deadline: impl FnOnce() -> Option<Instant>) -> bool {
        let is_earlier = || match (deadline(), self.armed) {
            (Some(next), Some(armed)) => next < armed,
            (next, _) => next.is_some(),
        };
        !self.polling && (has_output || is_earlier())
    }

    /// Returns `true` if the driver waits to be woken. One that was woken comes by itself.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.waker.is_some()
    }

    /// Takes the driver's waker, to be woken or dropped outside of the lock.
    pub fn take(&mut self) -> Option<Waker> {
        self.waker.take()
    }
}

/// Some [`Guarded`] state under one lock, and the runtime that it lives on.
pub struct Engine<S: Guarded> {
    state: Mutex<S>,
    /// The driver, if verbs may send with it.
    early: OnceLock<Arc<dyn Early<S>>>,
    /// A verb has closed the machine. Written under the lock, so that a driver need not take it to ask.
    closed: AtomicBool,
    runtime: Arc<dyn Runtime>,
}

impl<S: Guarded> Engine<S> {
    /// Puts `state` under a lock. Its machine must have begun on the clock of `runtime`.
    #[must_use]
    pub fn new(state: S, runtime: Arc<dyn Runtime>) -> Self {
        Self { state: Mutex::new(state), early: OnceLock::new(), closed: AtomicBool::new(false), runtime }
    }

    /// The runtime.
    #[must_use]
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Runs one verb: reads the clock, locks, changes the state, unlocks, and wakes the tasks that have something to do, or sends for them.
    ///
    /// `verb` must call nothing that belongs to a user. The wakers that it takes out of the state it gives back.
    pub fn verb<T>(&self, verb: impl FnOnce(&mut S, Instant, &mut After) -> T) -> T {
        let now = self.runtime.now();
        self.run(self.lock(), now, verb)
    }

    /// Runs one verb at a time that the caller knows.
    pub fn verb_at<T>(&self, now: Instant, verb: impl FnOnce(&mut S, Instant, &mut After) -> T) -> T {
        self.run(self.lock(), now, verb)
    }

    fn run<T>(&self, mut state: MutexGuard<'_, S>, now: Instant, verb: impl FnOnce(&mut S, Instant, &mut After) -> T) -> T {
        let mut after = After::default();
        let value = verb(&mut state, now, &mut after);
        self.note_closed(&state);
        if after.alone
            && let Some(early) = self.early.get()
            && state.early_slot().is_some_and(|slot| !slot.polling && slot.is_parked())
        {
            early.send(self, state, now);
            return value;
        }
        let wakers = state.take_wakers(&after);
        drop(state);
        wake_all(wakers);
        value
    }

    /// Looks at the state, or changes what no driver has to hear of. The rules of [`verb`](Self::verb) hold.
    pub fn look<T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        look(&mut self.lock())
    }

    /// Locks. The state is whole after every statement of a verb, so a panic that poisoned the lock has broken nothing.
    ///
    /// Code of users must not run while the guard lives, nor another verb: it would wait for ever.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the machine is closed, if it is. Due after each change that may have closed it, other than in a turn of its driver.
    pub fn note_closed(&self, state: &S) {
        if state.is_closed() {
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Returns `true` if a verb has closed the machine.
    #[must_use]
    pub fn is_noted_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Lets verbs send with this driver, if it is the first. The engine and the driver keep each other alive until the driver's task ends.
    pub(crate) fn set_early(&self, early: Arc<dyn Early<S>>) {
        let _ = self.early.set(early);
    }
}

impl<S: Guarded> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
