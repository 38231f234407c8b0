//! The rounds of outbound calls (MCP 2026-07-28, Multi Round-Trip Requests): the input requests of a round, their answers, and the retry.

use alloc::vec::Vec;
use core::time::Duration;

use super::depth;
use super::input::InboundInput;
use super::input_output::too_large;
use super::lane_queue::Class;
use super::outbound_call::{Clocks, OutboundCall, RoundOfPeer};
use super::pending::PendingInput;
use super::route::Lane;
use super::types::SendError;
use super::{Event, ExchangeId, InputKey, Invalid, OutboundId, Outcome, Session};
use crate::dialect::{InputResponse, InputRound, Stamp};
use crate::error::Violation;
use crate::json::Json;
use crate::time::Instant;
use crate::wire;

/// The times to wait before the retry if a round has no input requests: in the first round of a call, and in each later round.
const WAITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];

impl Session {
    /// Returns a call of ours as a value to be kept, if the peer has sent a round and the retry was not sent yet; otherwise `None`. The
    /// call goes on. Until the retry is sent, [`cancel`](Self::cancel) ends the call without sending anything to the peer.
    #[must_use]
    pub fn pending_input(&self, id: OutboundId) -> Option<PendingInput> {
        self.outbound_calls.get(&id)?.pending()
    }

    /// Continues a call that was kept between two rounds, as a new call of this session: the input requests without an answer are opened
    /// ([`Event::InputRequested`]), and the retry is sent after the last answer. If no answer is missing, the retry is sent at once, or
    /// after a short delay if the round has no input requests. The rounds so far count against
    /// [`Limits::input_rounds`](crate::Limits::input_rounds). The time limits are those of [`Timeouts::call`](crate::Timeouts::call), and
    /// begin now. A call can be continued several times, but the server may refuse a state that it has seen before.
    ///
    /// # Errors
    /// [`SendError`]; nothing has changed. [`SendError::NotReady`] before the handshake is done. [`SendError::Full`] also if too many input
    /// requests would be open. [`SendError::Unsupported`] if the revision has no rounds, or the capability for an input request is not
    /// declared. [`SendError::Params`] if `pending` was changed and cannot be read, if its rounds are more than the limit, or if sampling
    /// would be nested too deep.
    pub fn resume_input(&mut self, pending: &PendingInput, now: Instant) -> Result<OutboundId, SendError> {
        self.advance(now);
        let call = pending.call().ok_or(SendError::Params)?;
        let depth = self.admit(&call)?;
        if !self.handshake.may_send_requests() {
            return Err(SendError::NotReady);
        }
        let (rules, outgoing) = (self.rules, call.outgoing());
        if !rules.dialect.has_rounds(outgoing.op) {
            return Err(SendError::Unsupported);
        }
        let round = rules.dialect.read_round(pending.round(), &self.config.capabilities);
        let mut round = round.map_err(|violation| match violation {
            Violation::UndeclaredInput => SendError::Unsupported,
            _ => SendError::Params,
        })?;
        let rounds = pending.rounds();
        if rounds == 0 || rounds > self.config.limits.input_rounds || self.is_too_deep(&round, depth) {
            return Err(SendError::Params);
        }
        if self.is_too_large(&round) {
            return Err(SendError::Full);
        }
        let id = OutboundId(self.take_number());
        let clocks = Clocks::start(self.config.timeouts.call, self.now);
        // A time limit of zero.
        if let Some(clock) = clocks.expired(self.now) {
            self.push_event(Event::Done { id, outcome: Outcome::TimedOut(clock), partial: None, last: None });
            return Ok(id);
        }
        let mut answers = Vec::new();
        let has_inputs = !round.inputs.is_empty();
        round.inputs.retain(|input| match pending.answer(&input.name) {
            Some(answer) => {
                answers.push((input.name.clone(), answer.clone()));
                false
            }
            None => true,
        });
        let keys: Vec<_> = round.inputs.iter().map(|_| InputKey(self.take_number())).collect();
        let is_answered = has_inputs && keys.is_empty();
        let of_peer = self.round_of_peer(&keys, &mut round, pending.round(), rounds.saturating_sub(1), is_answered);
        let call = OutboundCall::asked(id, outgoing, depth, rules, clocks, call.progress, of_peer, rounds, answers);
        self.outbound_calls.insert(id, call);
        self.open_inputs(id, keys, round);
        if is_answered {
            self.retry_call(id);
        }
        self.tidy();
        Ok(id)
    }

    /// The only call that can have an open exchange with this number. The first exchange of a call has the number of the call.
    #[inline]
    pub(super) fn call_of(&self, number: u64) -> OutboundId {
        match self.retries.is_empty() {
            true => OutboundId(number),
            false => self.retries.get(&ExchangeId(number)).copied().unwrap_or(OutboundId(number)),
        }
    }

    /// Handles a result that is a round: InFlight -> Asked. If the round is invalid or exceeds a limit, ends the call instead.
    pub(super) fn handle_round(&mut self, id: OutboundId, result: &Json) {
        let Some(call) = self.outbound_calls.get(&id) else { return };
        let (rules, parent_depth, rounds) = (call.rules(), call.depth(), call.rounds());
        let unreadable = |rule| Invalid::Unreadable(wire::misshapen(result.as_bytes(), rule));
        let round = match rules.dialect.read_round(result, &self.config.capabilities) {
            Ok(round) => round,
            Err(violation) => return self.refuse_round(id, Some(violation), unreadable(violation)),
        };
        if rounds >= self.config.limits.input_rounds {
            return self.refuse_round(id, None, Invalid::TooManyRounds);
        }
        if self.is_too_large(&round) {
            return self.refuse_round(id, Some(Violation::TooManyRequests), unreadable(Violation::TooManyRequests));
        }
        if self.is_too_deep(&round, parent_depth) {
            return self.refuse_round(id, Some(Violation::SamplingTooDeep), Invalid::TooDeep);
        }
        self.open_round(id, round, result, rounds);
    }

    /// Returns `true` if the round has more input requests than may be opened in addition to those that are open.
    fn is_too_large(&self, round: &InputRound) -> bool {
        self.inbound_inputs.len().saturating_add(round.inputs.len()) > self.config.limits.in_flight
    }

    /// Returns `true` if the round would nest sampling too deep, for a call with this sampling depth.
    fn is_too_deep(&self, round: &InputRound, parent_depth: u8) -> bool {
        round.inputs.iter().any(|input| {
            let depth = depth::of_input(&input.ask, parent_depth, input.depth);
            !depth::is_allowed(&input.ask, depth, self.config.depth.max)
        })
    }

    fn refuse_round(&mut self, id: OutboundId, violation: Option<Violation>, why: Invalid) {
        if let Some(violation) = violation {
            self.violation(violation);
        }
        self.finish_call(id, Outcome::Invalid(why));
    }

    /// Opens a round of a call that has had `rounds` rounds before.
    fn open_round(&mut self, id: OutboundId, mut round: InputRound, result: &Json, rounds: u8) {
        let keys: Vec<_> = round.inputs.iter().map(|_| InputKey(self.take_number())).collect();
        let of_peer = self.round_of_peer(&keys, &mut round, result, rounds, false);
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        call.ask(of_peer);
        self.open_inputs(id, keys, round);
    }

    /// A round of a call that has had `rounds` rounds before. If `is_answered` is `true`, all answers are there, and the retry is not
    /// delayed.
    fn round_of_peer(
        &self,
        keys: &[InputKey],
        round: &mut InputRound,
        result: &Json,
        rounds: u8,
        is_answered: bool,
    ) -> RoundOfPeer {
        let wait = if rounds == 0 { WAITS[0] } else { WAITS[1] };
        let names = round.inputs.iter().map(|input| input.name.clone());
        let inputs = keys.iter().copied().zip(names).collect();
        let again_at = (round.inputs.is_empty() && !is_answered).then(|| self.now.saturating_add(wait));
        // A copy, so that it does not keep the whole frame in memory.
        let result = Json::written(result.as_bytes().to_vec());
        RoundOfPeer::new(inputs, round.state.take(), again_at, result)
    }

    fn open_inputs(&mut self, id: OutboundId, keys: Vec<InputKey>, round: InputRound) {
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        let (rules, parent_depth) = (call.rules(), call.depth());
        for key in &keys {
            call.open_inbound_input(*key, self.now);
        }
        self.arm_call(id);
        for (key, input) in keys.into_iter().zip(round.inputs) {
            let depth = depth::of_input(&input.ask, parent_depth, input.depth);
            self.inbound_inputs.insert(key, InboundInput::of_round(id, input.ask.can_be_declined(), depth, rules));
            self.push_event(Event::InputRequested { key, parent: Some(id), ask: input.ask, depth });
        }
    }

    /// Takes an answer to an input request of a round. After the last answer, sends the retry. If a retry cannot contain the answer, ends
    /// the call.
    pub(super) fn handle_round_answer(&mut self, key: InputKey, input: &InboundInput, answer: &InputResponse) {
        let Some(parent) = input.parent() else { return };
        self.close_input_of_call(Some(parent), key);
        match input.rules().dialect.round_answer(answer, input.can_be_declined()) {
            Err(error) => self.finish_call(parent, Outcome::Unanswered(error)),
            Ok(answer) => {
                if self.outbound_calls.get_mut(&parent).is_some_and(|call| call.answer(key, answer)) {
                    self.retry_call(parent);
                }
            }
        }
    }

    /// Asked -> InFlight: sends the request of a call again, with the answers to its input requests. If the retry is too long for a frame,
    /// ends the call instead.
    pub(super) fn retry_call(&mut self, id: OutboundId) {
        let exchange = ExchangeId(self.take_number());
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        let Some(retry) = call.retry() else { return };
        let (rules, depth, observed, previous) = (call.rules(), call.depth(), call.is_observed(), call.exchange());
        let frames = self.outbox.frames();
        let stamp = Stamp { caller: &self.stamp, level: retry.request().log_level.or(self.wanted_level) };
        let frame = rules.dialect.write_retry(frames, exchange.0, retry.request(), observed, depth, stamp, retry.members());
        if frame.len() > self.config.limits.frame_bytes {
            let error = too_large("retry", frame.len(), self.config.limits.frame_bytes);
            frames.discard(frame);
            return self.finish_call(id, Outcome::Unanswered(error));
        }
        let ticket = self.outbox.push(Lane::CHANNEL, Class::Request(exchange), frame);
        call.restart(exchange, ticket);
        self.retries.remove(&previous);
        self.retries.insert(exchange, id);
        self.arm_call(id);
    }
}
