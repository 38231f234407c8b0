//! The place of an invocation under the lock, and what its handler waits for.

use std::sync::Arc;
use std::task::Waker;

use super::Invocation;
use super::alarms::AlarmKey;
use engine::{Waiters, wake_all};
use protocol_core::dialect::Answer;
use protocol_core::session::{InputFailed, InputKey};

/// An invocation whose handler has not ended.
pub(crate) struct ServeSlot {
    pub(crate) invocation: Arc<Invocation>,
    /// Made at the first of it: many a handler waits for nothing of ours.
    pub(crate) waits: Option<Box<Waits>>,
    /// The end of its grace, once it is cancelled.
    pub(crate) grace: Option<AlarmKey>,
    /// Its grace has ended: it is given up.
    pub(crate) abandoned: bool,
}

impl ServeSlot {
    pub(crate) fn new(invocation: Arc<Invocation>) -> Self {
        Self { invocation, waits: None, grace: None, abandoned: false }
    }
}

/// The wakers of a handler. Dropping this wakes those that still wait, so it is done where nothing is locked.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Its input requests. Few, so a list.
    pub(crate) inputs: Vec<(InputKey, InputSlot)>,
    /// Tasks that wait for its cancellation.
    pub(crate) on_cancel: Waiters,
}

impl Waits {
    /// Takes the wakers that wait for an answer.
    pub(crate) fn waiting(&mut self) -> impl Iterator<Item = Waker> {
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
pub(crate) struct InputSlot {
    pub(crate) answer: Option<Result<Answer, InputFailed>>,
    pub(crate) waker: Option<Waker>,
}
