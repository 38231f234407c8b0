//! The slot of an inbound call in the state of an endpoint, with the wakers of its handler.

use std::sync::Arc;
use std::task::Waker;

use super::ServedCall;
use super::alarms::AlarmKey;
use super::rounds::RoundLog;
use engine::{Waiters, wake_all};
use protocol_core::dialect::Answer;
use protocol_core::session::{InputFailed, InputKey};

/// The slot of an inbound call whose handler has not ended.
pub(crate) struct ServedCallSlot {
    pub(crate) served: Arc<ServedCall>,
    /// Allocated when the handler first waits for something of [`Waits`], since most handlers never do.
    pub(crate) waits: Option<Box<Waits>>,
    /// The log of the call. Made when it is first needed.
    pub(crate) rounds: Option<Box<RoundLog>>,
    /// The alarm at the end of the grace, once the call is cancelled.
    pub(crate) grace: Option<AlarmKey>,
    /// `true` once the grace has ended, or the endpoint was dropped. The handler is then dropped the next time that it is suspended at an
    /// await.
    pub(crate) abandoned: bool,
}

impl ServedCallSlot {
    pub(crate) fn new(served: Arc<ServedCall>) -> Self {
        Self { served, waits: None, rounds: None, grace: None, abandoned: false }
    }
}

/// The input requests, the cancellation and the ends of effects that a handler waits for, with its wakers. Dropping this value wakes the
/// tasks that still wait for an answer or for the end of an effect, so it must be dropped outside of the lock.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The input requests that are open. They are few, so this is a list.
    pub(crate) inputs: Vec<(InputKey, InputSlot)>,
    /// Tasks that wait for the cancellation of the call.
    pub(crate) on_cancel: Waiters,
    /// Tasks that wait for the end of an effect of the handler.
    pub(crate) on_effect_end: Waiters,
}

impl Waits {
    /// Takes the wakers of the tasks that wait for an answer.
    pub(crate) fn waiting(&mut self) -> impl Iterator<Item = Waker> {
        self.inputs.iter_mut().filter_map(|(_, input)| input.waker.take())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let on_effect_end = self.on_effect_end.take();
        wake_all(self.waiting().chain(on_effect_end));
    }
}

/// An input request that a handler has made.
#[derive(Debug, Default)]
pub(crate) struct InputSlot {
    pub(crate) answer: Option<Result<Answer, InputFailed>>,
    pub(crate) waker: Option<Waker>,
}
