//! The verbs of an inbound call that use its log, under the lock of the endpoint.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::sync::Arc;

use super::in_rounds::RoundSetup;
use super::log::{
    AskPlace, AskStep, Asking, EffectStep, MAX_STATE_BYTES, Outcome, RoundEnd, RoundLog, RunEnd, bound_to, not_accepted,
};
use super::seal::{Digest, digest};
use super::store::OnceStore;
use crate::ask_failed::AskFailed;
use crate::extensions::Principal;
use crate::state::served_call::{CancelledWait, NO_SEAL};
use crate::state::{ServedCall, State};
use protocol_core::dialect::{InputResponse, Reply, Retry};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{AskError, InboundId, ServeOptions};

impl State {
    /// The log of an inbound call; `None` if the call has no log yet, or its handler has ended.
    fn round_log(&self, id: InboundId) -> Option<&RoundLog> {
        self.served_calls.get(&id)?.log.as_deref()
    }

    /// The log of an inbound call; `None` if the call has no log yet, or its handler has ended.
    fn round_log_mut(&mut self, id: InboundId) -> Option<&mut RoundLog> {
        self.served_calls.get_mut(&id)?.log.as_deref_mut()
    }
}

impl ServedCall {
    /// Returns `true` if its caller is asked in rounds.
    pub(crate) fn asks_in_rounds(&self) -> bool {
        self.in_rounds.is_some()
    }

    /// Returns `true` from the moment at which its request ends with a round, unless the round cannot be sent.
    pub(crate) fn has_ended_in_round(&self) -> bool {
        self.in_rounds.as_ref().is_some_and(|in_rounds| in_rounds.has_ended())
    }

    /// Notes whether its request ends with a round.
    pub(in crate::state) fn note_end_in_round(&self, has_ended: bool) {
        if let Some(in_rounds) = &self.in_rounds {
            in_rounds.note_end(has_ended);
        }
    }

    /// Returns `true` if its handler runs again, for a retry of its caller.
    pub(crate) fn is_repeat(&self) -> bool {
        self.in_rounds.as_ref().is_some_and(|in_rounds| in_rounds.is_repeat())
    }

    /// Notes that its handler blocks a thread.
    pub(crate) fn note_blocking(&self) {
        if let Some(in_rounds) = &self.in_rounds {
            in_rounds.note_blocking();
        }
    }

    /// Returns `true` if its caller is asked in rounds, but its handler blocks a thread, so that its request cannot end before it.
    pub(super) fn is_blocking(&self) -> bool {
        self.in_rounds.as_ref().is_some_and(|in_rounds| in_rounds.is_blocking())
    }

    /// Counts a progress update, log record or checkpoint of the handler. Returns `true` if it must not be sent: the handler made it in an
    /// earlier request already, or a newer request has replaced its request.
    pub(in crate::state) fn repeats_report(&self, state: &State) -> bool {
        let Some(in_rounds) = &self.in_rounds else { return false };
        if self.is_replaced() {
            return true;
        }
        let nth = in_rounds.count_report();
        state.round_log(self.id).is_some_and(|log| log.is_replaying(nth))
    }

    /// Counts a checkpoint of the handler. Returns `true` if the checkpoint of the previous request is newer.
    pub(in crate::state) fn has_newer_checkpoint(&self, state: &State) -> bool {
        self.repeats_report(state) && state.round_log(self.id).is_some_and(|log| log.partial().is_some())
    }

    /// Opens the log of a retry, before its handler starts.
    ///
    /// # Errors
    /// The error to reply with, if the state is too long, does not open, or has expired, or if states cannot be sealed here. The handler
    /// must not run then.
    pub(crate) fn resume(&self, retry: &Retry) -> Result<(), RpcError> {
        // Without a state, the answers belong to no round of this service, and the call starts from the beginning.
        let Some(sealed) = retry.state() else { return Ok(()) };
        if sealed.len() > MAX_STATE_BYTES {
            return Err(not_accepted());
        }
        let (setup, bound, now) = self.sealing().ok_or_else(not_accepted)?;
        let opened = setup.sealer.open(sealed, &bound, &**self.shared.runtime());
        let log = opened.and_then(|log| RoundLog::resume(&log, retry, now)).ok_or_else(not_accepted)?;
        if let Some(in_rounds) = &self.in_rounds {
            in_rounds.note_repeat();
        }
        let depth = log.depth();
        self.raise_depth(depth);
        self.shared.with_state(|state| {
            if let Some(partial) = log.partial() {
                // This fails if the call was cancelled meanwhile.
                let _ = state.session.checkpoint(self.id, partial.clone());
            }
            if let Some(slot) = state.served_calls.get_mut(&self.id) {
                slot.log = Some(Box::new(log));
            }
        });
        // This fails if the call was cancelled meanwhile. Then the call makes no input request, and its depth does not matter.
        let _ = self.configure(ServeOptions::default().with_depth(depth));
        Ok(())
    }

    /// Looks up the answer to an input request in the log, or opens the input request, to be sent in a round when the handler is pending.
    pub(crate) fn ask_in_round(self: &Arc<Self>, asking: Asking) -> Result<RoundStep, AskFailed> {
        let (unsupported, required) = (AskFailed::unsupported(&asking.ask), asking.ask.required_capabilities());
        if self.is_blocking() {
            return Err(AskFailed::Invalid(String::from("a blocking handler cannot wait for an answer in MCP 2026-07-28")));
        }
        let Some(now) = self.shared.runtime().unix_time() else { return Err(AskFailed::Invalid(String::from(NO_SEAL))) };
        self.begin_log(now);
        let step = self.shared.with_state(|state| {
            let checked = state.session.check_round_input(self.id, &asking.ask);
            let Some(log) = state.round_log_mut(self.id) else { return Err(AskError::NotLive) };
            if matches!(checked, Err(AskError::Unsupported)) {
                log.note_missing(&unsupported, required);
            }
            checked?;
            Ok(log.ask(asking, now))
        });
        match step.map_err(|error| self.ask_failed(error, unsupported))? {
            AskStep::InputResponse(place, answer) => Ok(RoundStep::InputResponse(place, Box::new(answer))),
            AskStep::Kept(kept) => Ok(RoundStep::Kept(kept)),
            AskStep::Failed(failed) => Err(failed),
            AskStep::Open(place, number) => {
                self.wake_to_end();
                Ok(RoundStep::Wait(place, RoundWait { cancelled: self.cancelled(), served: Arc::clone(self), number }))
            }
        }
    }

    /// Replaces the answer to an input request in the log by what the handler keeps of it.
    pub(crate) fn keep_answer(&self, place: &AskPlace, kept: Json) {
        self.shared.with_state(|state| {
            if let Some(log) = state.round_log_mut(self.id) {
                log.keep(place, kept);
            }
        });
    }

    /// Begins an effect, and returns the next step. If `must_be_sealed`, a round must have sealed the key of the effect before the effect
    /// runs. `None` if the call is over.
    pub(crate) fn begin_effect(self: &Arc<Self>, name: &str, must_be_sealed: bool) -> Option<EffectStep> {
        self.begin_log(self.shared.runtime().unix_time().unwrap_or_default());
        let must_be_sealed = must_be_sealed && self.asks_in_rounds();
        let step = self.shared.with_state(|state| state.round_log_mut(self.id)?.begin_effect(name, must_be_sealed));
        if matches!(step, Some(EffectStep::NeedsRound)) {
            self.wake_to_end();
        }
        step
    }

    /// Ends an effect. `outcome` is `None` if the effect was cancelled or dropped.
    pub(crate) fn end_effect(&self, name: &str, nth: u32, outcome: Option<Outcome>) {
        let ended = self.shared.with_state(|state| {
            let slot = state.served_calls.get_mut(&self.id)?;
            let log = slot.log.as_mut()?;
            let is_waiting = log.end_effect(name, nth, outcome.clone());
            let replacement = log.replacement();
            let leftover = slot.effect_ended();
            if let Some(replacement) = replacement
                && let Some(log) = state.round_log_mut(replacement)
                && let Some(outcome) = outcome
            {
                log.take_over_effect(name, nth, outcome);
            }
            Some((is_waiting, leftover))
        });
        let Some((is_waiting, leftover)) = ended else { return };
        drop(leftover);
        if is_waiting {
            self.wake_to_end();
        }
    }

    /// Wakes the task of the handler, so that its request can end after the next poll. This is needed if another task has made the input
    /// request, or has ended the effect that the round waited for.
    fn wake_to_end(&self) {
        if let Some(waker) = self.task_waker() {
            waker.wake();
        }
    }

    /// The reply that ends the request, if its handler waits for input.
    pub(in crate::state) fn round_reply(&self) -> Option<Reply> {
        let in_rounds = self.in_rounds.as_ref().filter(|_| !self.is_cancelled())?;
        let now = self.shared.runtime().unix_time()?;
        let end = self.shared.with_state(|state| {
            let log = state.served_calls.get_mut(&self.id)?.log.as_mut()?;
            log.can_end().then(|| {
                let partial = state.session.last_checkpoint(self.id);
                let run = RunEnd {
                    depth: self.depth(),
                    most: state.session.config().limits.input_rounds,
                    reports: in_rounds.reports(),
                    partial: partial.filter(|partial| partial.as_bytes().len() < MAX_STATE_BYTES).cloned(),
                };
                log.end_run(run, now)
            })
        })?;
        Some(match end {
            RoundEnd::Error(error) => Reply::Error(error),
            RoundEnd::Round { round, log } => {
                let sealed = self.sealing().and_then(|(setup, bound, _)| setup.sealer.seal(&log, &bound, &**self.shared.runtime()));
                match sealed {
                    Some(state) if state.len() <= MAX_STATE_BYTES => {
                        self.note_end_in_round(true);
                        Reply::Input(Box::new(round.with_state(state)))
                    }
                    Some(state) => Reply::Error(RpcError::internal(format!(
                        "the state of the call is too large ({} of {MAX_STATE_BYTES} bytes)",
                        state.len()
                    ))),
                    None => Reply::Error(RpcError::fixed(RpcError::INTERNAL, "there are no random bytes to seal the state with")),
                }
            }
        })
    }

    /// Replaces a reply that reports a missing capability for an input request with the error that MCP 2026-07-28 has for it.
    pub(in crate::state) fn with_missing_capability(&self, state: &mut State, reply: Reply) -> Reply {
        if !self.asks_in_rounds() {
            return reply;
        }
        let Some((failed, required)) = state.round_log(self.id).and_then(|log| log.missing()) else { return reply };
        let is_reported = match &reply {
            Reply::Tool(output) => output.is_error && output.rpc_error.as_deref() == Some(&failed.fault()),
            Reply::Error(error) => *error.message == *failed.to_string(),
            _ => false,
        };
        if is_reported { Reply::Error(failed.missing(required)) } else { reply }
    }

    /// The sealer, the digest that a state is bound to, and the time.
    fn sealing(&self) -> Option<(RoundSetup, Digest, Duration)> {
        let (request, now) = (self.in_rounds.as_ref()?.request(), self.shared.runtime().unix_time()?);
        let setup = self.shared.with_state(|state| state.round_setup.clone())?;
        let principal = self.extensions.get::<Principal>().map(Principal::as_str);
        let bound = bound_to(&setup.service, &setup.version, request, principal);
        Some((setup, bound, now))
    }

    /// The store of effects.
    pub(crate) fn once_store(&self) -> Option<Arc<dyn OnceStore>> {
        self.shared.with_state(|state| state.effects.store.clone())
    }

    /// Makes the log of the call, if there is none.
    fn begin_log(self: &Arc<Self>, now: Duration) {
        let call_key = self.shared.with_state(|state| {
            let has_log = state.served_calls.get(&self.id).is_none_or(|slot| slot.log.is_some());
            (!has_log).then(|| state.effects.call_key.clone())
        });
        let Some(call_key) = call_key else { return };
        let given = call_key.filter(|_| self.asks_in_rounds()).and_then(|call_key| call_key(self));
        let log = Box::new(RoundLog::begin(self.invocation(given), now));
        self.shared.with_state(|state| {
            if let Some(slot) = state.served_calls.get_mut(&self.id) {
                // Another task of the handler may have made the log meanwhile.
                slot.log.get_or_insert(log);
            }
        });
    }

    /// The id of the caller's call, for the log: made from the key `given` by the caller, or else random. `None` if there are no random
    /// bytes.
    fn invocation(&self, given: Option<String>) -> Option<[u8; 16]> {
        if let Some((given, (_, bound, _))) = given.zip(self.sealing()) {
            return digest([b"call key".as_slice(), &bound, given.as_bytes()]).first_chunk().copied();
        }
        let mut invocation = [0; 16];
        self.shared.runtime().fill_random(&mut invocation).ok().map(|()| invocation)
    }
}

/// The step that follows an input request in a round.
pub(crate) enum RoundStep {
    InputResponse(AskPlace, Box<InputResponse>),
    Kept(Json),
    Wait(AskPlace, RoundWait),
}

/// Waits until the handler is dropped, since its request ends with the round, or until the call is cancelled. If this future is dropped
/// before the request has ended, the input request is removed.
pub(crate) struct RoundWait {
    served: Arc<ServedCall>,
    cancelled: CancelledWait,
    number: u64,
}

impl Future for RoundWait {
    type Output = AskFailed;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<AskFailed> {
        Pin::new(&mut self.get_mut().cancelled).poll(cx).map(AskFailed::Cancelled)
    }
}

impl Drop for RoundWait {
    fn drop(&mut self) {
        self.served.shared.with_state(|state| {
            if let Some(log) = state.round_log_mut(self.served.id) {
                log.forget(self.number);
            }
        });
    }
}

/// Waits until no effect of a run is under way any more, or the run has ended.
pub(crate) struct EffectWait {
    served: Arc<ServedCall>,
    waiter: Option<u64>,
}

impl EffectWait {
    pub(crate) fn new(served: Arc<ServedCall>) -> Self {
        Self { served, waiter: None }
    }
}

impl Future for EffectWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut waker = Some(cx.waker().clone());
        let is_parked = this.served.shared.with_state(|state| match state.served_calls.get_mut(&this.served.id) {
            Some(slot) if slot.is_in_effect() => {
                slot.park_for_effect(&mut this.waiter, &mut waker);
                true
            }
            _ => false,
        });
        if is_parked { Poll::Pending } else { Poll::Ready(()) }
    }
}
