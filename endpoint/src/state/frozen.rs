//! Handlers that are kept between two requests of their call (MCP 2026-07-28), instead of being dropped and run again.
//!
//! ```text
//!                                  .--- the retry with this state and all its answers ---> the handler goes on, for the retry
//!   the request ends with a round  |
//!   ---------------------------> Frozen
//!                                  |
//!                                  |--- its time is over | newer handlers need its place | the session ends ---> dropped
//!                                  |
//!                                  '--- the retry, with an answer missing or of the wrong shape | a retry of the call
//!                                       with the state of another round ---> dropped; the handler runs again for that retry
//! ```
//!
//! A frozen handler is not polled, whatever it waits for. Freezing only saves time: a dropped handler runs again from its first line, with
//! the log in the state, and the call ends in the same way.

use core::fmt;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::ServedCall;
use super::alarms::AlarmKey;
use super::served_call_slot::Waits;
use crate::rounds::{RoundLog, StateId};
use engine::{BoxFuture, drop_quietly};
use protocol_core::dialect::Reply;
use protocol_core::session::InboundId;

/// A handler that is set aside when its request ends with a round. Once the response is made, it is part of a [`FrozenHandler`].
pub(crate) struct Freezing {
    /// The id of the sealed state in the round.
    pub(super) state: StateId,
    /// Never locked: the mutex makes the future `Sync`.
    pub(super) handler: Mutex<BoxFuture<'static, Reply>>,
    /// The inbound call whose request ends.
    pub(super) served: Arc<ServedCall>,
}

impl Freezing {
    /// Drops the handler, outside of the lock of the endpoint, within the span of its call.
    pub(super) fn discard(self) {
        let _entered = self.served.span.enter();
        drop_quietly(self.handler);
    }
}

/// A frozen handler.
pub(crate) struct FrozenHandler {
    pub(super) freezing: Freezing,
    pub(super) log: Box<RoundLog>,
    /// The answers and the cancellation that the handler waits for, with its wakers.
    pub(super) waits: Option<Box<Waits>>,
    /// The alarm at the end of its time.
    pub(crate) alarm: AlarmKey,
}

impl FrozenHandler {
    pub(crate) fn log(&self) -> &RoundLog {
        &self.log
    }

    /// Drops the handler, outside of the lock of the endpoint, within the span of its call.
    pub(crate) fn discard(self) {
        self.freezing.discard();
    }
}

/// The frozen handlers of an endpoint, oldest first.
#[derive(Default)]
pub(crate) struct FrozenHandlers(VecDeque<Box<FrozenHandler>>);

impl FrozenHandlers {
    /// Adds a handler. Returns the oldest, if there are more than `most` now.
    pub(super) fn add(&mut self, handler: FrozenHandler, most: usize) -> Option<Box<FrozenHandler>> {
        self.0.push_back(Box::new(handler));
        if self.0.len() > most { self.0.pop_front() } else { None }
    }

    /// Removes the handler whose request has ended with this state.
    pub(super) fn take(&mut self, state: &StateId) -> Option<Box<FrozenHandler>> {
        let at = self.0.iter().position(|frozen| frozen.freezing.state == *state)?;
        self.0.remove(at)
    }

    /// Removes the handler of the inbound call with this id.
    pub(crate) fn remove(&mut self, id: InboundId) -> Option<Box<FrozenHandler>> {
        let at = self.0.iter().position(|frozen| frozen.freezing.served.id == id)?;
        self.0.remove(at)
    }

    /// Removes one handler of the call of `log` that was not frozen with `state`. `None` if there is no such handler left.
    pub(crate) fn take_other(&mut self, log: &RoundLog, state: Option<&StateId>) -> Option<Box<FrozenHandler>> {
        let at = self.0.iter().position(|frozen| {
            let is_kept = state.is_some_and(|state| frozen.freezing.state == *state);
            !is_kept && frozen.log.is_of_the_call_of(log)
        })?;
        self.0.remove(at)
    }

    /// Removes all handlers.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<FrozenHandler>> + use<> {
        core::mem::take(&mut self.0).into_iter()
    }

    pub(super) fn waits_of(&mut self, id: InboundId) -> Option<&mut Option<Box<Waits>>> {
        self.0.iter_mut().find(|frozen| frozen.freezing.served.id == id).map(|frozen| &mut frozen.waits)
    }

    /// The number of frozen handlers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A wrapper of a handler, which will be frozen if its request ends with a round.
pub(crate) struct Freezable {
    served: Arc<ServedCall>,
    /// `None` once the handler has ended or is frozen.
    handler: Option<BoxFuture<'static, Reply>>,
}

impl Freezable {
    pub(crate) fn new(served: Arc<ServedCall>, handler: BoxFuture<'static, Reply>) -> Self {
        Self { served, handler: Some(handler) }
    }
}

impl Future for Freezable {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Reply> {
        let this = self.get_mut();
        let Some(handler) = &mut this.handler else { return Poll::Pending };
        if let Poll::Ready(reply) = handler.as_mut().poll(cx) {
            this.handler = None;
            return Poll::Ready(reply);
        }
        let Some(reply) = this.served.round_reply() else { return Poll::Pending };
        // Any other reply is the error of a round that cannot be made. The handler is then dropped with this future.
        if let Reply::Input(round) = &reply
            && let Some(handler) = this.handler.take()
        {
            this.served.freeze(round, handler);
        }
        Poll::Ready(reply)
    }
}

impl fmt::Debug for FrozenHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrozenHandlers").field(&self.0.len()).finish()
    }
}
