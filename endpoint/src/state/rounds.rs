//! The verbs of an inbound call whose caller is asked in rounds: its log, under the lock of the endpoint.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::sync::Arc;

use super::served_call::CancelledWait;
use super::{ServedCall, State};
use crate::ask_failed::AskFailed;
use crate::extensions::Principal;
use crate::rounds::{AskStep, Asking, Digest, EffectStep, LONGEST_STATE, Outcome, RoundEnd, RoundLog, bound_to, not_accepted};
use protocol_core::dialect::{Answer, Reply, Retry};
use protocol_core::error::RpcError;
use protocol_core::session::{AskError, ServeOptions};

/// The keys that seal a state, and the names that the state is bound to.
#[derive(Clone, Debug)]
pub(crate) struct RoundKit {
    pub(crate) sealer: Arc<crate::rounds::Sealer>,
    /// The name of the service.
    pub(crate) service: Arc<str>,
    /// The version of the handlers.
    pub(crate) version: Arc<str>,
}

impl State {
    /// The log of an inbound call, made if there is none.
    fn round_log(&mut self, served: &ServedCall, invocation: Option<[u8; 16]>, now: Duration) -> Option<&mut RoundLog> {
        let slot = self.served_calls.get_mut(&served.id)?;
        Some(slot.rounds.get_or_insert_with(|| Box::new(RoundLog::begin(invocation, now))))
    }
}

impl ServedCall {
    /// Counts a progress update or log record of the handler. Returns `true` if the handler made it in an earlier request already, so that
    /// it must not be sent again.
    pub(super) fn repeats_report(&self, state: &State) -> bool {
        if !self.asks_in_rounds() {
            return false;
        }
        let nth = self.count_report();
        state.served_calls.get(&self.id).and_then(|slot| slot.rounds.as_ref()).is_some_and(|log| log.is_replaying(nth))
    }

    /// Opens the log of a retry, before its handler starts.
    ///
    /// # Errors
    /// The error to reply with, if the state does not open. The handler must not run then.
    pub(crate) fn resume(&self, retry: &Retry) -> Result<(), RpcError> {
        // Without a state, the answers belong to no round of this service, and the call starts from the beginning.
        let Some(state) = retry.state() else { return Ok(()) };
        if state.len() > LONGEST_STATE {
            return Err(not_accepted());
        }
        let (kit, bound, now) = self.sealing().ok_or_else(not_accepted)?;
        let opened = kit.sealer.open(state, &bound, &**self.shared.runtime());
        let log = opened.and_then(|log| RoundLog::resume(&log, retry, now)).ok_or_else(not_accepted)?;
        let depth = log.depth();
        self.raise_depth(depth);
        self.shared.look(|state| {
            if let Some(slot) = state.served_calls.get_mut(&self.id) {
                slot.rounds = Some(Box::new(log));
            }
        });
        // It fails if the call was cancelled meanwhile. Then it makes no input request, and its depth does not matter.
        let _ = self.configure(ServeOptions::default().with_depth(depth));
        Ok(())
    }

    /// Looks up the answer to an input request in the log, or opens the input request, to be sent in a round when the handler is pending.
    pub(crate) fn ask_in_round(self: &Arc<Self>, asking: Asking) -> Result<RoundStep, AskFailed> {
        let (unsupported, required) = (AskFailed::unsupported(&asking.ask), asking.ask.required_capabilities());
        if self.is_blocking() {
            return Err(AskFailed::Invalid(String::from("a blocking handler cannot wait for an answer in MCP 2026-07-28")));
        }
        let Some(now) = self.shared.runtime().unix_time() else { return Err(unsupported) };
        let invocation = self.invocation();
        let step = self.shared.look(|state| {
            let checked = state.session.check_round_input(self.id, &asking.ask);
            let Some(log) = state.round_log(self, invocation, now) else { return Err(AskError::NotLive) };
            if matches!(checked, Err(AskError::Unsupported)) {
                log.note_missing(&unsupported, required);
            }
            checked?;
            Ok(log.ask(asking, now))
        });
        match step.map_err(|error| self.ask_failed(error, unsupported))? {
            AskStep::Done(answer) => answer.map(|answer| RoundStep::Answer(Box::new(answer))),
            AskStep::Open(number) => {
                self.wake_to_end();
                Ok(RoundStep::Wait(RoundWait { cancelled: self.cancelled(), served: Arc::clone(self), number }))
            }
        }
    }

    /// Begins an effect: its outcome is in the log, or it has to run. `None` if the call is over.
    pub(crate) fn begin_effect(&self, name: &str, must_be_sealed: bool) -> Option<EffectStep> {
        let (invocation, now) = (self.invocation(), self.shared.runtime().unix_time().unwrap_or_default());
        let must_be_sealed = must_be_sealed && self.asks_in_rounds();
        let step = self.shared.look(|state| state.round_log(self, invocation, now)?.begin_effect(name, must_be_sealed));
        if matches!(step, Some(EffectStep::NeedsRound)) {
            self.wake_to_end();
        }
        step
    }

    /// Ends an effect. `outcome` is `None` if the effect was dropped.
    pub(crate) fn end_effect(&self, name: &str, nth: u32, outcome: Option<Outcome>) {
        let is_waiting = self.shared.look(|state| {
            let log = state.served_calls.get_mut(&self.id).and_then(|slot| slot.rounds.as_mut());
            log.is_some_and(|log| log.end_effect(name, nth, outcome))
        });
        if is_waiting {
            self.wake_to_end();
        }
    }

    /// Has the handler polled once more, so that its request can end after that poll. Needed if another task than that of the handler has made
    /// the input request, or has ended the effect that the round waited for.
    fn wake_to_end(&self) {
        if let Some(waker) = self.task_waker() {
            waker.wake();
        }
    }

    /// The reply that ends the request, if its handler waits for input.
    pub(super) fn round_reply(&self) -> Option<Reply> {
        if self.is_cancelled() {
            return None;
        }
        let now = self.shared.runtime().unix_time()?;
        let end = self.shared.look(|state| {
            let most = state.session.config().limits.input_rounds;
            let log = state.served_calls.get_mut(&self.id)?.rounds.as_mut()?;
            log.end_run(self.depth(), most, self.reports(), now)
        })?;
        Some(match end {
            RoundEnd::Refused(error) => Reply::Error(error),
            RoundEnd::Round { round, log } => {
                let sealed = self.sealing().and_then(|(kit, bound, _)| kit.sealer.seal(&log, &bound, &**self.shared.runtime()));
                match sealed {
                    Some(state) if state.len() <= LONGEST_STATE => {
                        self.note_end_in_round();
                        Reply::Input(Box::new(round.with_state(state)))
                    }
                    Some(state) => Reply::Error(RpcError::internal(format!(
                        "the state of the call is too large ({} of {LONGEST_STATE} bytes)",
                        state.len()
                    ))),
                    None => Reply::Error(RpcError::fixed(RpcError::INTERNAL, "there are no random bytes to seal the state with")),
                }
            }
        })
    }

    /// Replaces a reply that reports a missing capability for an input request with the error that MCP 2026-07-28 has for it.
    pub(super) fn with_missing_capability(&self, state: &mut State, reply: Reply) -> Reply {
        if !self.asks_in_rounds() {
            return reply;
        }
        let log = state.served_calls.get(&self.id).and_then(|slot| slot.rounds.as_ref());
        let Some((failed, required)) = log.and_then(|log| log.missing()) else { return reply };
        let is_reported = match &reply {
            Reply::Tool(output) => output.is_error && output.fault.as_deref() == Some(&failed.fault()),
            Reply::Error(error) => *error.message == *failed.to_string(),
            _ => false,
        };
        if is_reported { Reply::Error(failed.missing(required)) } else { reply }
    }

    /// The sealer, the digest that a state is bound to, and the time.
    fn sealing(&self) -> Option<(RoundKit, Digest, Duration)> {
        let (request, now) = (self.rounds_of()?, self.shared.runtime().unix_time()?);
        let kit = self.shared.look(|state| state.round_kit.clone())?;
        let principal = self.extensions.get::<Principal>().map(Principal::as_str);
        let bound = bound_to(&kit.service, &kit.version, request, principal);
        Some((kit, bound, now))
    }

    /// A random name for the call, if there are random bytes.
    fn invocation(&self) -> Option<[u8; 16]> {
        let mut invocation = [0; 16];
        self.shared.runtime().fill_random(&mut invocation).ok().map(|()| invocation)
    }
}

/// The step that follows an input request in a round.
pub(crate) enum RoundStep {
    Answer(Box<Answer>),
    Wait(RoundWait),
}

/// Waits for the end of the request in which the input request is sent. Dropping this earlier removes the input request.
pub(crate) struct RoundWait {
    served: Arc<ServedCall>,
    cancelled: CancelledWait,
    number: u64,
}

impl Future for RoundWait {
    type Output = AskFailed;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<AskFailed> {
        let this = self.get_mut();
        Pin::new(&mut this.cancelled).poll(cx).map(AskFailed::Cancelled)
    }
}

impl Drop for RoundWait {
    fn drop(&mut self) {
        self.served.shared.look(|state| {
            if let Some(log) = state.served_calls.get_mut(&self.served.id).and_then(|slot| slot.rounds.as_mut()) {
                log.forget(self.number);
            }
        });
    }
}
