//! An inbound call whose handler has not ended, in the state of an endpoint: its stage, and the tasks that wait in its handler.
//!
//! ```text
//!             cancel               the grace ends
//!   Running ----------> InGrace ------------------> Abandoned
//!      |                   |                            |
//!      '-------------------+----- the handler ends -----'---> (no slot)
//! ```
//!
//! If the endpoint is dropped, every handler is abandoned at once.
//!
//! All transitions are methods of [`ServedCallSlot`]. Each that touches wakers of tasks returns them in a [`Leftover`].

use core::task::Poll;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::alarms::{AlarmKey, Alarms};
use super::rounds::RoundLog;
use engine::{TaskOwner, Waiters, park, wake_all};
use protocol_core::dialect::InputResponse;
use protocol_core::session::{CancelReason, InputFailed, InputKey};

/// What a slot needs of its call `C`, which can be stopped without the lock.
pub(crate) trait Stoppable: TaskOwner {
    /// The reason of its cancellation. Empty until then.
    fn why(&self) -> &OnceLock<CancelReason>;
}

/// The slot of an inbound call whose handler has not ended.
pub(crate) struct ServedCallSlot<C> {
    served: Arc<C>,
    stage: Stage,
    /// Allocated when the handler first waits for something of [`Waits`], since most handlers never do.
    waits: Option<Box<Waits>>,
    /// The log of the call. Made when it is first needed.
    pub(crate) log: Option<Box<RoundLog>>,
}

/// The stage of the handler.
enum Stage {
    Running,
    /// The call was cancelled. The alarm is that at the end of the grace.
    InGrace(AlarmKey),
    /// The grace has ended, or the endpoint was dropped. The handler is dropped the next time that it is suspended at an await.
    Abandoned,
}

impl<C: Stoppable> ServedCallSlot<C> {
    pub(crate) fn new(served: Arc<C>) -> Self {
        Self { served, stage: Stage::Running, waits: None, log: None }
    }

    pub(crate) fn served(&self) -> &Arc<C> {
        &self.served
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self.stage, Stage::Abandoned)
    }

    /// Returns `true` while an effect of the handler is under way.
    pub(crate) fn is_in_effect(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_in_effect())
    }

    // ---- Stages ----

    /// The call is cancelled: Running -> InGrace. `grace` sets the alarm at the end of the grace. `None` if the call was cancelled before.
    pub(crate) fn cancel(&mut self, why: CancelReason, grace: impl FnOnce() -> AlarmKey) -> Option<Leftover> {
        self.served.why().set(why).ok()?;
        if matches!(self.stage, Stage::Running) {
            self.stage = Stage::InGrace(grace());
        }
        Some(self.waits.as_mut().map_or(Leftover::Nothing, |waits| {
            let on_cancel = waits.on_cancel.take();
            Leftover::Wakers(on_cancel.chain(waits.on_answer()).collect())
        }))
    }

    /// The grace has ended, or the endpoint is dropped: any stage -> Abandoned. The alarm of the grace has gone off, or is removed by the
    /// caller. `None` if the handler was abandoned before.
    pub(crate) fn abandon(&mut self) -> Option<Leftover> {
        let before = core::mem::replace(&mut self.stage, Stage::Abandoned);
        (!matches!(before, Stage::Abandoned)).then(|| Leftover::waker(self.served.abort_handle().abort()))
    }

    /// The handler has ended, and the slot is removed. Tasks that still wait for an answer or for the end of an effect are woken; tasks
    /// that wait for the cancellation are not.
    pub(super) fn end(&mut self, alarms: &mut Alarms) -> Leftover {
        if let Stage::InGrace(alarm) = self.stage {
            let _ = alarms.clear(alarm);
        }
        self.waits.take().map_or(Leftover::Nothing, Leftover::Waits)
    }

    // ---- Waits ----

    /// Parks a task until the call is cancelled; see [`Waiters::park`].
    pub(super) fn park_for_cancel(&mut self, waiter: &mut Option<u64>, waker: &mut Option<Waker>) {
        self.waits.get_or_insert_default().on_cancel.park(waiter, waker);
    }

    /// A task no longer waits for the cancellation.
    pub(super) fn leave_cancel(&mut self, waiter: u64) -> Leftover {
        Leftover::Unused(self.waits.as_mut().and_then(|waits| waits.on_cancel.leave(waiter)))
    }

    /// Parks a task until the end of the effect that is under way; see [`Waiters::park`].
    pub(super) fn park_for_effect(&mut self, waiter: &mut Option<u64>, waker: &mut Option<Waker>) {
        self.waits.get_or_insert_default().on_effect_end.park(waiter, waker);
    }

    /// An effect has ended.
    pub(super) fn effect_ended(&mut self) -> Leftover {
        self.waits.as_mut().map_or(Leftover::Nothing, |waits| Leftover::Wakers(waits.on_effect_end.take().collect()))
    }

    /// The handler has made an input request.
    pub(super) fn input_requested(&mut self, key: InputKey) {
        self.waits.get_or_insert_default().inputs.push((key, InputSlot::default()));
    }

    /// An answer has arrived. No effect if the handler no longer waits for it.
    pub(crate) fn answered(&mut self, key: InputKey, answer: Result<InputResponse, InputFailed>) -> Leftover {
        let Some((inputs, at)) = self.input(key) else { return Leftover::Nothing };
        inputs.get_mut(at).map_or(Leftover::Nothing, |(_, input)| {
            input.answer = Some(answer);
            Leftover::waker(input.waker.take())
        })
    }

    /// Takes the answer to an input request. If there is none yet, keeps `waker` (see [`park`]). `None` if there will be none.
    pub(super) fn poll_answer(
        &mut self,
        key: InputKey,
        waker: &mut Option<Waker>,
    ) -> Poll<Option<Result<InputResponse, InputFailed>>> {
        let is_cancelled = self.served.why().get().is_some();
        let Some((inputs, at)) = self.input(key) else { return Poll::Ready(None) };
        let Some((_, input)) = inputs.get_mut(at) else { return Poll::Ready(None) };
        match input.answer.take() {
            Some(answer) => {
                // Its waker, if it has one, is dropped by the caller of this method.
                core::mem::swap(&mut input.waker, waker);
                inputs.swap_remove(at);
                Poll::Ready(Some(answer))
            }
            None if is_cancelled => Poll::Ready(None),
            None => {
                park(&mut input.waker, waker);
                Poll::Pending
            }
        }
    }

    /// The handler no longer waits for an answer. `None` if the answer was taken before.
    pub(super) fn leave_answer(&mut self, key: InputKey) -> Option<Leftover> {
        let (inputs, at) = self.input(key)?;
        Some(Leftover::Unused(inputs.swap_remove(at).1.waker))
    }

    /// The open input requests, and the index of this one.
    fn input(&mut self, key: InputKey) -> Option<(&mut Vec<(InputKey, InputSlot)>, usize)> {
        let inputs = &mut self.waits.as_mut()?.inputs;
        let at = inputs.iter().position(|(asked, _)| *asked == key)?;
        Some((inputs, at))
    }
}

/// The wakers that a transition leaves. Dropping this value wakes their tasks or drops the wakers, which runs code of the application, so
/// it must be returned from the closure that has the lock.
#[must_use = "it runs code of the application when it is dropped, so it must be dropped after the lock is released"]
pub(crate) enum Leftover {
    Nothing,
    /// A waker to wake.
    Waker(Option<Waker>),
    /// Wakers to wake.
    Wakers(Vec<Waker>),
    /// The wakers of a handler that has ended. Their drop wakes those that have to be woken.
    Waits(#[expect(dead_code, reason = "held for its drop")] Box<Waits>),
    /// A waker to drop, whose task is not woken.
    Unused(#[expect(dead_code, reason = "held for its drop")] Option<Waker>),
}

impl Leftover {
    fn waker(waker: Option<Waker>) -> Self {
        waker.map_or(Self::Nothing, |waker| Self::Waker(Some(waker)))
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        match self {
            Self::Waker(waker) => {
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            Self::Wakers(wakers) => wake_all(core::mem::take(wakers)),
            Self::Nothing | Self::Waits(_) | Self::Unused(_) => {}
        }
    }
}

/// The input requests, the cancellation and the ends of effects that a handler waits for, with its wakers. Dropping this value wakes the
/// tasks that still wait for an answer or for the end of an effect.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The input requests that are open. They are few, so this is a list.
    inputs: Vec<(InputKey, InputSlot)>,
    /// Tasks that wait for the cancellation of the call.
    on_cancel: Waiters,
    /// Tasks that wait for the end of an effect of the handler.
    on_effect_end: Waiters,
}

impl Waits {
    /// Takes the wakers of the tasks that wait for an answer.
    fn on_answer(&mut self) -> impl Iterator<Item = Waker> {
        self.inputs.iter_mut().filter_map(|(_, input)| input.waker.take())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let on_effect_end = self.on_effect_end.take();
        wake_all(self.on_answer().chain(on_effect_end));
    }
}

/// An input request that a handler has made.
#[derive(Debug, Default)]
struct InputSlot {
    answer: Option<Result<InputResponse, InputFailed>>,
    waker: Option<Waker>,
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::state::{Shared, State};
    use crate::testing::Executor;
    use protocol_core::session::Session;

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

    /// A verb wakes the driver and several tasks. If one of the wakers panics, the wakers after it must be woken too.
    #[test]
    fn regression_a_waker_that_panics_does_not_prevent_the_other_wakes_of_a_verb() {
        let (panics, returns) = (Arc::new(Woken { panics: true, ..Woken::default() }), Arc::new(Woken::default()));
        let [panicking, returning] = [&panics, &returns].map(|woken| Waker::from(Arc::clone(woken)));
        let config = protocol_core::Config::mcp_server(protocol_core::Identity::new("s", "1"));
        let session = Session::new(config, protocol_core::Instant::default());
        let shared = Shared::new(State::new(session), Executor::new().runtime());
        let mut waits = Waits::default();
        for (key, waker) in (1..).zip([&panicking, &returning, &panicking, &returning]) {
            waits.inputs.push((InputKey::from_number(key), InputSlot { answer: None, waker: Some(waker.clone()) }));
        }
        shared.with_state(|state| state.driver.park(&mut Some(panicking.clone())));
        let verb = AssertUnwindSafe(|| {
            drop(shared.verb(|_, _, effects| {
                effects.output();
                Leftover::Waits(Box::new(waits))
            }));
        });
        assert!(catch_unwind(verb).is_err());
        // The panicking waker is that of the driver and of two tasks, the other one that of two tasks.
        assert_eq!([&panics, &returns].map(|woken| woken.count.load(Ordering::Relaxed)), [3, 2]);
    }
}
