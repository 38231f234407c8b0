//! The one lock of an endpoint, what stands under it, and the order in which a verb does its work.

use core::time::Duration;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::vec::Vec;

use crate::dialect::Answer;
use crate::drive::Standing;
use crate::endpoint::alarms::{AlarmKey, Alarms};
use crate::endpoint::call::{Done, Unread};
use crate::endpoint::client::Question;
use crate::endpoint::diagnose::Span;
use crate::endpoint::early::Early;
use crate::endpoint::invocation::Invocation;
use crate::endpoint::runtime::Runtime;
use crate::endpoint::wake::{Waiters, wake_all};
use crate::error::RpcError;
use crate::json::{Json, Text};
use crate::lines::LineEncoder;
use crate::session::{CloseReason, InboundId, InputFailed, InputKey, OutboundId, Session};
use crate::table::Table;
use crate::time::{Instant, earlier};

/// What every handle of an endpoint shares.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Where the driver sits, if verbs may have it send.
    pub(super) seat: OnceLock<Arc<dyn Early>>,
    /// A verb has closed the session. Said under the lock, so that the driver need not take it to ask.
    shut: AtomicBool,
    runtime: Arc<dyn Runtime>,
    /// How long a cancelled handler may go on.
    pub(super) handler_grace: Duration,
}

/// Everything under the lock.
pub(super) struct State {
    pub(super) session: Session,
    /// Whom to wake when there is something to write, to dispatch or to wait for. Taken when it is woken; the driver comes
    /// back with it in its next turn.
    pub(super) driver: Option<Waker>,
    /// The driver is at work on this very state and looks at all of it before it waits: it need not be woken.
    pub(super) attended: bool,
    /// The deadline that the driver waits for.
    pub(super) armed: Option<Instant>,
    /// No driver any longer: nothing goes out, and no deadline comes.
    pub(super) adrift: bool,
    pub(super) closed: Option<CloseReason>,
    /// The error with which the peer refused our handshake.
    pub(super) refusal: Option<RpcError>,
    pub(super) calls: Table<OutboundId, CallSlot>,
    pub(super) serves: Table<InboundId, ServeSlot>,
    pub(super) questions: Table<InputKey, Arc<Question>>,
    /// What the peer wants to be told of: the name of each subscription, and the uri of its resource.
    pub(super) subscriptions: BTreeMap<Text, Text>,
    pub(super) alarms: Alarms,
    /// The handshake is through.
    pub(super) ready: bool,
    /// Who waits for the handshake or the end.
    pub(super) on_change: Waiters,
    pub(super) counters: Counters,
    /// What handlers deposited, under test.
    pub(super) checkpoints: Option<Vec<(Instant, Json)>>,
}

/// A call of ours that somebody holds.
#[derive(Debug, Default)]
pub(super) struct CallSlot {
    /// Updates that nobody has read. `None` before there are any: most calls hear of none, and then have none to end.
    pub(super) unread: Option<Box<Unread>>,
    pub(super) stage: CallStage,
    /// Whether who waits also wants to hear of progress.
    pub(super) wants_progress: bool,
    pub(super) span: Span,
}

/// How far a call of ours has come.
#[derive(Debug)]
pub(super) enum CallStage {
    /// On its way, and who waits for it.
    Open(Option<Waker>),
    /// Its end, which nobody has read.
    Ended(Done),
}

impl Default for CallStage {
    fn default() -> Self {
        Self::Open(None)
    }
}

/// An invocation whose handler has not ended.
pub(super) struct ServeSlot {
    pub(super) invocation: Arc<Invocation>,
    /// Made at the first of it: many a handler waits for nothing of ours.
    pub(super) waits: Option<Box<Waits>>,
    /// When its grace ends, once it is cancelled.
    pub(super) grace: Option<AlarmKey>,
    /// Its grace has ended: nobody waits for it any longer.
    pub(super) abandoned: bool,
}

/// What a handler waits for. Whoever still waits when this is dropped is woken, so that is done where nothing is locked.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// What it asked. Few, so a list.
    pub(super) inputs: Vec<(InputKey, InputSlot)>,
    /// Who waits for its cancellation.
    pub(super) on_cancel: Waiters,
}

impl Waits {
    /// Takes whoever waits for an answer.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = Waker> {
        self.inputs.iter_mut().filter_map(|(_, input)| input.waker.take())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        wake_all(self.waiting());
    }
}

/// A question that a handler waits for.
#[derive(Debug, Default)]
pub(super) struct InputSlot {
    pub(super) answer: Option<Result<Answer, InputFailed>>,
    pub(super) waker: Option<Waker>,
}

/// What an endpoint counts beside [`crate::Stats`], from its birth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Updates of handlers that made no sense: not finite, negative, above their total. Dropped.
    pub progress_refused: u64,
    /// Log records and checkpoints of handlers that have no JSON, are no object or are too long. Dropped.
    pub values_refused: u64,
    /// Updates of the peer that were merged into the newest one since nobody read them.
    pub progress_merged: u64,
    /// Handlers, and answers of a [`crate::endpoint::Client`], that panicked.
    pub panics: u64,
    /// Cancelled handlers that were still running after their grace.
    pub abandoned: u64,
}

/// What a verb has brought about that the driver must hear of once the lock is let go.
#[derive(Debug, Default)]
pub(super) struct After {
    output: bool,
    /// There is nothing like it on its way beside.
    alone: bool,
}

impl After {
    /// The session has a frame or an event that it had not before.
    pub(super) fn output(&mut self) {
        self.output = true;
    }

    /// The same, and it need not wait to be written together with others, since it `is_alone`.
    pub(super) fn output_alone(&mut self, is_alone: bool) {
        self.output = true;
        self.alone = is_alone;
    }
}

impl Shared {
    pub(super) fn new(session: Session, runtime: Arc<dyn Runtime>) -> Self {
        let handler_grace = session.config().timeouts.handler_grace;
        let state = State {
            session,
            driver: None,
            attended: false,
            armed: None,
            adrift: false,
            closed: None,
            refusal: None,
            calls: Table::new(),
            serves: Table::new(),
            questions: Table::new(),
            subscriptions: BTreeMap::new(),
            alarms: Alarms::default(),
            ready: false,
            on_change: Waiters::default(),
            counters: Counters::default(),
            checkpoints: None,
        };
        Self { state: Mutex::new(state), seat: OnceLock::new(), shut: AtomicBool::new(false), runtime, handler_grace }
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Runs one verb: read the clock, lock, mutate, note what the driver must hear of, unlock, wake it or send for it.
    ///
    /// The verb must call nothing that is not ours. Wakers that it takes out of the state it gives back.
    pub(super) fn verb<T>(&self, verb: impl FnOnce(&mut State, Instant, &mut After) -> T) -> T {
        let now = self.runtime.now();
        self.run(self.lock(), now, verb)
    }

    /// The same for a verb that is quicker than the clock is read. Unless `is_timed` says that something hangs on its time, that is the one
    /// that the session was last told.
    pub(super) fn quick_verb<T>(
        &self,
        is_timed: impl FnOnce(&Session) -> bool,
        verb: impl FnOnce(&mut State, Instant, &mut After) -> T,
    ) -> T {
        let state = self.lock();
        if !is_timed(&state.session) {
            let now = state.session.time();
            return self.run(state, now, verb);
        }
        // Not under the lock: others would wait for it.
        drop(state);
        self.verb(verb)
    }

    fn run<T>(&self, mut state: MutexGuard<'_, State>, now: Instant, verb: impl FnOnce(&mut State, Instant, &mut After) -> T) -> T {
        let mut after = After::default();
        let value = verb(&mut state, now, &mut after);
        self.note_shut(&state);
        let is_news = !state.attended && (after.output || state.is_due_earlier());
        if is_news {
            match self.seat.get() {
                // One that is awake already writes this together with what it was woken for.
                Some(seat) if after.alone && state.driver.is_some() => seat.send(self, state),
                _ => wake_driver(state),
            }
        }
        value
    }

    /// Locks, for whoever tells the time or asks for a deadline: first the clocks start of calls that were made without a look at one.
    pub(super) fn on_time(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.start_clocks(|| self.runtime.now());
        state
    }

    /// Behind whatever may have closed the session, other than in a turn.
    pub(super) fn note_shut(&self, state: &State) {
        if state.session.is_closed() {
            self.shut.store(true, Ordering::Release);
        }
    }

    /// Whether a verb has closed the session.
    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Looks at the state, or changes what only handles see. The same rules as for a verb.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.lock())
    }

    /// The state is whole after every statement of ours, so a panic that poisoned the lock has broken nothing.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the driver, unless it is awake, with nothing locked.
fn wake_driver(mut state: MutexGuard<'_, State>) {
    let driver = state.driver.take();
    drop(state);
    driver.into_iter().for_each(Waker::wake);
}

impl State {
    /// Starts the clocks of calls that were made without a look at one, if there are any.
    pub(super) fn start_clocks(&mut self, clock: impl FnOnce() -> Instant) {
        if self.session.has_clocks_to_start() {
            self.session.start_clocks(clock());
        }
    }

    /// What is behind the events of a turn: the clocks start of what was called meanwhile, and what there is to write goes into `room`, if
    /// there is any. Says how all stands then, and whether that brought events.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        clock: impl FnOnce() -> Instant,
        room: Option<&mut LineEncoder>,
    ) -> (Standing<CloseReason>, bool) {
        self.start_clocks(clock);
        let has_output = room.is_none_or(|room| self.session.poll_transmits(room));
        let until = self.arm();
        let wants_input = self.session.wants_input();
        let standing = Standing { now, has_output, event: None, is_closed: self.is_over(), until, wants_input };
        (standing, self.session.unread_events() > 0)
    }

    /// The earliest deadline, of the session and of the endpoint.
    pub(super) fn deadline(&self) -> Option<Instant> {
        earlier(self.session.poll_timeout(), self.alarms.earliest())
    }

    /// What the driver is to wait for; nothing once all is over.
    pub(super) fn wanted(&self) -> Option<Instant> {
        if self.is_over() { None } else { self.deadline() }
    }

    /// The same, and from now on the driver waits for it.
    pub(super) fn arm(&mut self) -> Option<Instant> {
        self.armed = self.wanted();
        self.armed
    }

    fn is_due_earlier(&self) -> bool {
        match (self.deadline(), self.armed) {
            (Some(next), Some(armed)) => next < armed,
            (next, None) => next.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Whether nothing will ever happen again: the session is closed, and no handler is within its grace.
    pub(super) fn is_over(&self) -> bool {
        self.closed.is_some() && self.serves.iter().all(|(_, slot)| slot.abandoned)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;
    use crate::endpoint::testing::Executor;

    #[derive(Default)]
    struct Woken {
        count: AtomicUsize,
        panics: bool,
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.count.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "a waker that panics");
        }
    }

    /// A verb that woke the driver and others: behind the first that panicked nobody was woken any longer.
    #[test]
    fn regression_a_waker_that_panics_keeps_no_other_of_a_verb_from_being_woken() {
        let (panics, sleeps) = (Arc::new(Woken { panics: true, ..Woken::default() }), Arc::new(Woken::default()));
        let [panicking, sleeping] = [&panics, &sleeps].map(|woken| Waker::from(Arc::clone(woken)));
        let config = crate::Config::mcp_server(crate::Identity::new("s", "1"));
        let shared = Shared::new(Session::new(config, Instant::default()), Executor::new().runtime());
        let mut waits = Waits::default();
        for (key, waker) in (1..).zip([&panicking, &sleeping, &panicking, &sleeping]) {
            waits.inputs.push((InputKey(key), InputSlot { answer: None, waker: Some(waker.clone()) }));
        }
        shared.lock().driver = Some(panicking);
        let verb = AssertUnwindSafe(|| {
            drop(shared.quick_verb(
                |_| false,
                |_, _, after| {
                    after.output();
                    waits
                },
            ));
        });
        assert!(catch_unwind(verb).is_err());
        assert_eq!([&panics, &sleeps].map(|woken| woken.count.load(Ordering::Relaxed)), [3, 2]);
    }
}
