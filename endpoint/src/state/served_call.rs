//! An inbound call: the value that its [`Context`](crate::Context)s and its task share, with its verbs.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::alarms::{AlarmKey, Alarmed};
use super::diagnose::{self, Answered};
use super::served_call_slot::Stoppable;
use super::shared::{ServedCall, Shared, State};
use crate::ask_failed::AskFailed;
use engine::{AbortHandle, TaskEnd, TaskOwner, park};
use protocol_core::dialect::{Capabilities, InputRequest, InputResponse, LogRecord, PeerInfo, Progress, Reply, SubscriptionFilter};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::{
    AskError, CancelReason, CheckpointError, InputKey, InputMode, NotLive, ProgressError, Reported, ServeOptions,
};
use protocol_core::time::Instant;

/// Why a handler cannot make an input request, although its caller may have declared the capability for it.
const NO_ROUNDS: &str = "in MCP 2026-07-28 only the handler of a tool, a prompt or a resource can make one";
pub(super) const NO_SEAL: &str = "in MCP 2026-07-28 it needs the feature `seal`, a clock, and random bytes or the keys of the service, and one of these is missing";

impl ServedCall {
    pub(crate) fn progress(&self, update: Progress) -> Result<Reported, ProgressError> {
        let reported = self.shared.verb(|state, now, effects| {
            if self.repeats_report(state) {
                return Ok(Reported::Unobserved);
            }
            let reported = state.session.progress(self.id, update, now);
            match &reported {
                Ok(Reported::Sent) => effects.output(),
                // A kept update is sent at a deadline. The engine checks for a new deadline after each verb.
                Ok(_) | Err(ProgressError::NotLive) => {}
                Err(_) => state.counters.progress_refused = state.counters.progress_refused.saturating_add(1),
            }
            reported
        });
        reported.inspect_err(|error| diagnose::progress_refused(self, *error))
    }

    /// Stores a checkpoint. `None` stands for a value that cannot be serialized.
    pub(crate) fn checkpoint(&self, partial: Option<Json>) -> Result<(), CheckpointError> {
        let taken = self.shared.verb(|state, now, _| {
            let taken = match partial {
                None => Err(CheckpointError::NotAnObject),
                Some(_) if self.has_newer_checkpoint(state) => return Ok(()),
                Some(partial) => {
                    let copy = state.checkpoints.is_some().then(|| partial.clone());
                    let taken = state.session.checkpoint(self.id, partial);
                    if let (Ok(()), Some(copy), Some(recorded)) = (&taken, copy, &mut state.checkpoints) {
                        recorded.push((now, copy));
                    }
                    taken
                }
            };
            if !matches!(taken, Ok(()) | Err(CheckpointError::NotLive)) {
                state.counters.values_refused = state.counters.values_refused.saturating_add(1);
            }
            taken
        });
        taken.inspect_err(|error| match error {
            CheckpointError::NotLive => {}
            error => diagnose::value_refused(self, error),
        })
    }

    /// Sends a log record. `None` stands for a record whose data cannot be serialized.
    pub(crate) fn log(&self, record: Option<LogRecord>) {
        let Some(record) = record else {
            self.shared.with_state(|state| state.counters.values_refused = state.counters.values_refused.saturating_add(1));
            return diagnose::value_refused(self, "a log record that has no JSON");
        };
        self.shared.verb(|state, now, effects| {
            // It fails if the call is over; the session counts what it drops.
            if !self.repeats_report(state) && state.session.log(Some(self.id), record, now).is_ok() {
                effects.output();
            }
        });
    }

    pub(crate) fn configure(&self, options: ServeOptions) -> Result<(), NotLive> {
        self.shared.verb(|state, now, effects| {
            let configured = state.session.configure(self.id, options, now);
            if configured.is_ok() {
                effects.output();
            }
            configured
        })
    }

    /// Subscribes the peer to `uri`, under the name of the subscription or, without one, under the URI.
    pub(crate) fn subscribe(&self, name: Option<Text>, uri: Text) -> Result<(), RpcError> {
        self.shared.with_state(|state| {
            let max = state.session.config().limits.in_flight;
            state.subscriptions.subscribe(name, uri, max)
        })
    }

    /// Accepts this call, which is a subscription, for the kinds of changes in `offered`.
    pub(crate) fn accept_subscription(&self, offered: &SubscriptionFilter) {
        self.shared.verb(|state, now, effects| {
            if state.session.accept_subscription(self.id, offered, now).is_ok() {
                effects.output();
            }
        });
    }

    /// Removes the subscriptions of the peer for which `is_meant`, given their name and URI, returns `true`.
    pub(crate) fn unsubscribe(&self, is_meant: impl Fn(&Text, &Text) -> bool) {
        self.shared.with_state(|state| state.subscriptions.unsubscribe(is_meant));
    }

    /// Ends the call with `reply`. Wakes the tasks that wait for answers to its input requests or for the end of its effects; tasks that
    /// wait for its cancellation are not woken. No effect the second time.
    pub(crate) fn respond(&self, reply: Reply) {
        let reply = if self.is_replaced() {
            self.note_end_in_round(false);
            Reply::Error(RpcError::fixed(RpcError::INTERNAL, "a newer request of this call has taken its place"))
        } else {
            reply
        };
        let answered = Answered::of(&reply);
        let (sent, ended) = self.shared.verb(|state, now, effects| {
            // If the call was cancelled, this returns `NotLive`, and only notes in the session that the handler has ended.
            let sent = self.send_reply(state, reply, now);
            let alarms = &mut state.alarms;
            let ended = state.served_calls.end(&self.id, |slot| slot.end(alarms));
            // If the session is closed, the driver may be waiting for the end of this handler.
            if sent.is_ok() || (ended.is_some() && state.session.is_closed()) {
                effects.output_alone(state.served_calls.is_empty());
            }
            (sent, ended)
        });
        let Some(leftover) = ended else { return };
        // The drop wakes the tasks that wait. If the waker of the driver panics in the verb above, unwinding drops this value as well.
        drop(leftover);
        diagnose::settled(self, answered, sent);
    }

    fn send_reply(&self, state: &mut State, reply: Reply, now: Instant) -> Result<(), NotLive> {
        let reply = match reply {
            Reply::Input(round) => match state.session.finish_round(self.id, *round, now) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.note_end_in_round(false);
                    match error {
                        AskError::NotLive => Reply::Done,
                        error => Reply::Error(RpcError::internal(format!("the input requests cannot be sent: {error}"))),
                    }
                }
            },
            reply => self.with_missing_capability(state, reply),
        };
        state.session.respond(self.id, reply, now)
    }

    /// Returns `true` if a newer request of the call has taken its place.
    pub(super) fn is_replaced(&self) -> bool {
        matches!(self.why.get(), Some(CancelReason::Replaced))
    }

    pub(crate) fn cancelled(self: &Arc<Self>) -> CancelledWait {
        CancelledWait { served: Arc::clone(self), waiter: None }
    }

    pub(crate) fn alarm(&self, after: Duration) -> AlarmWait {
        AlarmWait { shared: Arc::clone(&self.shared), span: after, key: None }
    }

    /// Returns `true` if its caller made no handshake, but named itself in the request.
    pub(crate) fn is_stateless(&self) -> bool {
        self.caller.is_stateless()
    }

    /// The capabilities that its caller offers now.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.of_peer(|peer| peer.capabilities)
    }

    /// Returns a part of its caller: as the caller was when the request arrived, or has been announced since.
    pub(crate) fn of_peer<T>(&self, part: impl Fn(&PeerInfo) -> T) -> T {
        let changed = self.shared.with_state(|state| state.changed_peer.as_deref().map(&part));
        changed.unwrap_or_else(|| part(self.caller.peer()))
    }

    /// Sends an input request to the caller, and returns the future of its answer.
    pub(crate) fn ask(self: &Arc<Self>, ask: InputRequest) -> Result<AnswerWait, AskFailed> {
        let asked = self.shared.verb(|state, now, effects| {
            let unsupported = match state.session.input_mode(self.id) {
                Ok(InputMode::Rounds) => AskFailed::Invalid(String::from(NO_SEAL)),
                Ok(InputMode::Unsupported) => AskFailed::Invalid(String::from(NO_ROUNDS)),
                // The caller did not declare the capability.
                _ => AskFailed::unsupported(&ask),
            };
            let asked = state.session.request_input(self.id, ask, now);
            let key = asked.map_err(|error| self.ask_failed(error, unsupported))?;
            effects.output();
            match state.served_calls.get_mut(&self.id) {
                Some(slot) => slot.input_requested(key),
                None => return Err(self.over()),
            }
            Ok(key)
        });
        let key = asked?;
        Ok(AnswerWait { served: Arc::clone(self), key })
    }

    pub(super) fn ask_failed(&self, error: AskError, unsupported: AskFailed) -> AskFailed {
        match error {
            AskError::NotLive => self.over(),
            AskError::Unsupported => unsupported,
            AskError::TooDeep { depth, max } => AskFailed::TooDeep { depth, max },
            AskError::Invalid(why) => AskFailed::Invalid(why),
            AskError::TooLarge => AskFailed::Invalid("longer than a frame may be".into()),
            AskError::Full => AskFailed::Busy,
            // The peer has ended its side of the channel.
            _ => AskFailed::Lost,
        }
    }

    pub(super) fn over(&self) -> AskFailed {
        self.why.get().map_or(AskFailed::Over, |why| AskFailed::Cancelled(why.clone()))
    }
}

impl Stoppable for ServedCall {
    fn why(&self) -> &OnceLock<CancelReason> {
        &self.why
    }
}

impl TaskOwner for ServedCall {
    type Output = Reply;

    fn abort_handle(&self) -> &AbortHandle {
        &self.abort
    }

    fn enter(&self) -> impl Sized + '_ {
        #[cfg(any(test, feature = "testing"))]
        polls::note();
        self.span.enter()
    }

    fn early_end(&self) -> Option<Reply> {
        self.round_reply()
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        diagnose::panicked(&self.span, panic);
    }

    fn settle(&self, end: TaskEnd<Reply>) {
        let reply = match end {
            TaskEnd::Value(reply) => reply,
            TaskEnd::Panicked => {
                self.shared.with_state(|state| state.counters.panics = state.counters.panics.saturating_add(1));
                Reply::Error(RpcError::fixed(RpcError::INTERNAL, "internal error: the handler panicked"))
            }
            TaskEnd::Dropped => {
                Reply::Error(RpcError::fixed(RpcError::INTERNAL, "internal error: the handler ended without an answer"))
            }
        };
        self.respond(reply);
    }
}

/// Waits until a call is cancelled. Never resolves if the call ends without a cancel.
#[derive(Debug)]
pub(crate) struct CancelledWait {
    served: Arc<ServedCall>,
    waiter: Option<u64>,
}

impl Future for CancelledWait {
    type Output = CancelReason;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<CancelReason> {
        let this = self.get_mut();
        if let Some(why) = this.served.why.get() {
            return Poll::Ready(why.clone());
        }
        let mut waker = Some(cx.waker().clone());
        this.served.shared.with_state(|state| {
            // Without a slot the call has ended, and the wait never resolves.
            if let Some(slot) = state.served_calls.get_mut(&this.served.id)
                && !this.served.is_cancelled()
            {
                slot.park_for_cancel(&mut this.waiter, &mut waker);
            }
        });
        // The call may have been cancelled since the check above.
        this.served.why.get().map_or(Poll::Pending, |why| Poll::Ready(why.clone()))
    }
}

impl Drop for CancelledWait {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let leftover =
            self.served.shared.with_state(|state| Some(state.served_calls.get_mut(&self.served.id)?.leave_cancel(waiter)));
        drop(leftover);
    }
}

/// Waits for a span of time, counted from its first poll. Resolves to `true` when the time has passed, and to `false` if the endpoint was
/// dropped by then.
pub(crate) struct AlarmWait {
    shared: Arc<Shared>,
    span: Duration,
    key: Option<AlarmKey>,
}

impl Future for AlarmWait {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<bool> {
        let this = self.get_mut();
        let mut waker = Some(cx.waker().clone());
        this.shared.verb(|state, now, _| {
            if state.driver_gone {
                return Poll::Ready(false);
            }
            let key = match this.key {
                Some(key) => key,
                None if this.span.is_zero() => return Poll::Ready(true),
                None => *this.key.insert(state.alarms.set(now.saturating_add(this.span), Alarmed::Sleeper(None))),
            };
            let Some(slot) = state.alarms.sleeper(key) else { return Poll::Ready(true) };
            park(slot, &mut waker);
            Poll::Pending
        })
    }
}

impl Drop for AlarmWait {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let alarm = self.shared.with_state(|state| state.alarms.clear(key));
        drop(alarm);
    }
}

/// Waits for the answer to an input request. Dropping it before the answer was read cancels the input request.
pub(crate) struct AnswerWait {
    served: Arc<ServedCall>,
    key: InputKey,
}

impl Future for AnswerWait {
    type Output = Result<InputResponse, AskFailed>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut waker = Some(cx.waker().clone());
        let answer = self.served.shared.with_state(|state| match state.served_calls.get_mut(&self.served.id) {
            Some(slot) => slot.poll_answer(self.key, &mut waker),
            None => Poll::Ready(None),
        });
        answer.map(|answer| match answer {
            Some(answer) => answer.map_err(AskFailed::from),
            // The call is over.
            None => Err(self.served.over()),
        })
    }
}

impl Drop for AnswerWait {
    fn drop(&mut self) {
        let leftover = self.served.shared.verb(|state, now, effects| {
            let leftover = state.served_calls.get_mut(&self.served.id)?.leave_answer(self.key)?;
            if state.session.abandon_input(self.key, now).is_ok() {
                effects.output();
            }
            Some(leftover)
        });
        drop(leftover);
    }
}

/// Polls of handlers on this thread, counted under test.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod polls {
    use core::cell::Cell;

    std::thread_local! {
        static POLLS: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts one poll of a handler. The drop of its future counts as one, too.
    pub(super) fn note() {
        POLLS.with(|polls| polls.set(polls.get().wrapping_add(1)));
    }

    /// The number of polls so far.
    pub(crate) fn count() -> usize {
        POLLS.with(Cell::get)
    }
}
