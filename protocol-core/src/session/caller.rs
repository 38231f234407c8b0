//! The methods of a caller: outbound calls, and the peer's input requests on their behalf.

use alloc::boxed::Box;

use super::Session;
use super::event::{Event, Invalid, Outcome};
use super::ids::{InputKey, OutboundId};
use super::input::InboundInput;
use super::lane_queue::Class;
use super::outbound_call::{Clocks, OutboundCall, Withdrawal};
use super::route::Lane;
use super::types::{Invoke, InvokeError, NotLive, SendError};
use crate::dialect::{Capabilities, InputResponse, RequestsStart, Rules, Stamp, Unfit};
use crate::json::Json;
use crate::time::Instant;
use crate::wire::WireId;

impl Session {
    /// Starts a call, which ends with exactly one [`Event::Done`] (guarantee G1 of [`Session`]). If the handshake is not done yet, the call
    /// is held, except for a ping, which is held only while a probe is open. On Tesseron a call before the handshake is refused
    /// ([`SendError::NotReady`]). The time limits of a call ([`crate::CallTimeouts`]) start when its request is queued; until then only
    /// [`crate::Timeouts::handshake`] and [`crate::Timeouts::probe`] limit it.
    ///
    /// # Errors
    /// [`InvokeError`] with the reason and the call. Nothing has changed.
    pub fn invoke(&mut self, call: Invoke, now: Instant) -> Result<OutboundId, InvokeError> {
        self.advance(now);
        match self.admit(&call) {
            Ok(depth) => {
                let id = self.start(&call, depth);
                // The other steps of `tidy` are not needed: a new call adds no progress, makes no lane idle, and starts only in an open
                // session.
                self.bound_output();
                Ok(id)
            }
            Err(why) => Err(InvokeError { why, call: Box::new(call) }),
        }
    }

    /// Cancels a call. The call ends with [`Outcome::Cancelled`]: immediately, or within [`crate::Timeouts::cancel_grace`] on protocols
    /// that answer a cancelled call. If its request has not been polled, it is never sent. Otherwise one cancel is sent, on MCP with
    /// `reason` for the peer's log, and a late response is dropped. No cancel is sent between two rounds, or for a request that has no
    /// cancel, such as a ping.
    ///
    /// # Errors
    /// [`NotLive`] if the call has ended or was cancelled before.
    pub fn cancel(&mut self, id: OutboundId, reason: Option<&str>, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if self.outbound_calls.get(&id).is_none_or(OutboundCall::is_given_up) {
            return Err(NotLive);
        }
        self.cancel_call(id, reason);
        self.tidy();
        Ok(())
    }

    /// Answers an input request of the peer ([`Event::InputRequested`]).
    ///
    /// If the input request came in a round (MCP 2026-07-28, Multi Round-Trip Requests), the retry is sent after the last answer of the
    /// round. A retry cannot contain [`InputResponse::Refused`]. For an input request of a kind that a user answers (elicitation,
    /// confirmation), the refusal is sent as if the user had made no decision. For any other kind it ends the call with
    /// [`Outcome::Unanswered`].
    ///
    /// # Errors
    /// [`NotLive`] if the input request was answered before, or no longer needs an answer ([`Event::InputGone`]).
    pub fn provide_input(&mut self, key: InputKey, answer: InputResponse, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let input = self.inbound_inputs.remove(&key).ok_or(NotLive)?;
        self.request_bytes = self.request_bytes.saturating_sub(input.frame_bytes());
        match input.exchange() {
            Some((lane, exchange)) => {
                self.push_answer(key, lane, exchange, input.rules(), &answer);
                self.outbox.settle(lane);
                self.peer_ids.retire(lane, exchange.clone());
                self.close_input_of_call(input.parent(), key);
            }
            None => self.handle_round_answer(key, &input, &answer),
        }
        self.tidy();
        Ok(())
    }
}

impl Session {
    // ---- Calls ----

    /// Checks that a call may be made, and returns its sampling depth.
    pub(super) fn admit(&self, call: &Invoke) -> Result<u8, SendError> {
        if !self.ending.is_open() {
            return Err(SendError::Closing);
        }
        let outgoing = call.outgoing();
        if !self.rules.dialect.is_proper(outgoing) || (self.rules.stateless && !outgoing.is_valid_stateless()) {
            return Err(SendError::Params);
        }
        let depth = match call.parent {
            None => call.depth,
            Some(key) => self.inbound_inputs.get(&key).map(|input| input.depth().max(call.depth)).ok_or(SendError::NoParent)?,
        };
        if self.rules.requests_start == RequestsStart::Claimed && !self.handshake.may_send_requests() {
            let wrong_end = self.rules.dialect.check_call(outgoing, &Capabilities::default()) == Err(Unfit::WrongEnd);
            return Err(if wrong_end { SendError::WrongEnd } else { SendError::NotReady });
        }
        // A ping is a request, too, and a server sends no requests to a peer without a handshake.
        if self.handshake.is_forgone() && call.op().is_ping() {
            return Err(SendError::NotReady);
        }
        if let Some(peer) = &self.peer {
            self.rules.dialect.check_call(outgoing, &peer.capabilities).map_err(SendError::from)?;
        } else if self.rules.dialect.check_call(outgoing, &Capabilities::default()) == Err(Unfit::WrongEnd) {
            return Err(SendError::WrongEnd);
        }
        let size = self.rules.dialect.call_size(outgoing).saturating_add(Stamp::size_with(&self.stamp));
        if size > self.config.limits.frame_bytes || !self.has_room_to_subscribe(outgoing) {
            return Err(SendError::TooLarge);
        }
        let in_flight = self.outbound_calls.len().saturating_add(self.events.settled());
        let waiting = self.outbox.bytes_of(Lane::CHANNEL).saturating_add(self.held_bytes);
        if in_flight >= self.config.limits.in_flight || waiting >= self.config.limits.output_bytes {
            return Err(SendError::Full);
        }
        Ok(depth)
    }

    fn start(&mut self, call: &Invoke, depth: u8) -> OutboundId {
        let id = OutboundId(self.take_number());
        let default = if call.op().is_subscription() { self.config.timeouts.of_listen() } else { self.config.timeouts.call };
        let timeouts = call.timeouts.unwrap_or(default);
        let observed = match self.rules.names_calls {
            // If calls have names (Tesseron), the peer may report progress of every action unasked. `is_cancellable` is `true` for
            // exactly the calls of actions.
            true => self.rules.dialect.is_cancellable(call.op()),
            false => call.progress || (timeouts.reset_on_progress && timeouts.idle.is_some()),
        };
        let is_sent_now = self.handshake.may_send_requests() || (call.op().is_ping() && !self.handshake.is_probing());
        if is_sent_now && self.rules.stateless && self.serve_locally(call.outgoing()) {
            self.push_event(Event::Done { id, outcome: Outcome::Result(Json::empty_object()), partial: None, last: None });
            return id;
        }
        let mut new = if is_sent_now {
            let clocks = Clocks::start(timeouts, self.now);
            if let Some(clock) = clocks.expired(self.now) {
                self.push_event(Event::Done { id, outcome: Outcome::TimedOut(clock), partial: None, last: None });
                return id;
            }
            let ticket = self.push_request(id, call.outgoing(), observed, depth);
            OutboundCall::in_flight(id, call.outgoing(), ticket, depth, self.rules, clocks, observed)
        } else {
            self.held_bytes = self.held_bytes.saturating_add(call.outgoing().size());
            OutboundCall::held(id, call.outgoing().clone(), depth, self.rules, timeouts, observed)
        };
        new.arm(id, &mut self.timers);
        self.outbound_calls.insert(id, new);
        id
    }

    pub(super) fn arm_call(&mut self, id: OutboundId) {
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        call.arm(id, &mut self.timers);
    }

    /// Held -> InFlight. Ends the call instead if the peer or its revision cannot serve it, if it needs no request, or if there is no time
    /// or no room for it.
    pub(super) fn release_call(&mut self, id: OutboundId) {
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        let Some((request, timeouts)) = call.request() else { return };
        let (request, bytes, observed, depth) = (request.clone(), call.held_bytes(), call.is_observed(), call.depth());
        let is_invalid = self.rules.stateless && !request.is_valid_stateless();
        if is_invalid || self.peer.as_ref().is_some_and(|peer| self.rules.dialect.check_call(&request, &peer.capabilities).is_err())
        {
            return self.settle_call(id, Outcome::Invalid(Invalid::Unsupported), None);
        }
        let clocks = Clocks::start(timeouts, self.now);
        if let Some(clock) = clocks.expired(self.now) {
            return self.settle_call(id, Outcome::TimedOut(clock), None);
        }
        if self.rules.stateless && self.serve_locally(&request) {
            return self.finish_call(id, Outcome::Result(Json::empty_object()));
        }
        if !self.has_room_to_subscribe(&request) || !self.has_room_for(&request) {
            return self.settle_call(id, Outcome::Invalid(Invalid::Unsupported), None);
        }
        let ticket = self.push_request(id, &request, observed, depth);
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        call.release(&request, ticket, self.rules, clocks);
        call.arm(id, &mut self.timers);
    }

    /// Ends a call before its response: cancelled, timed out, lost, or not sent after it was held (`docs/protocols/mcp.md`, "Transitions of
    /// an outgoing call"). A request that was not polled is never sent.
    pub(super) fn settle_call(&mut self, id: OutboundId, outcome: Outcome, reason: Option<&str>) {
        let Some(call) = self.outbound_calls.get(&id) else { return };
        let exchange = call.exchange();
        let outcome = if call.is_given_up() { Outcome::Cancelled } else { outcome };
        if let Withdrawal::Request(ticket) = call.withdrawal() {
            let sends_cancel = call.rules().dialect.is_cancellable(call.op()) && !matches!(outcome, Outcome::Lost);
            let unsent = self.outbox.withdraw(ticket);
            self.use_room(Lane::CHANNEL);
            if !unsent && sends_cancel {
                self.push_cancel(exchange, reason);
            }
        }
        self.finish_call(id, outcome);
    }

    /// Cancels a call. If the peer answers cancelled calls, the request was polled, and the cancel grace is not zero, the call waits for
    /// the answer. Otherwise it ends immediately.
    fn cancel_call(&mut self, id: OutboundId, reason: Option<&str>) {
        let grace = self.config.timeouts.cancel_grace;
        let until = self.now.saturating_add(grace);
        let Some(call) = self.outbound_calls.get_mut(&id) else { return };
        let was_polled = call.ticket().is_some_and(|ticket| !self.outbox.is_unpolled(ticket));
        let rules = call.rules();
        let awaits_answer = rules.answers_cancelled && until > self.now && was_polled && rules.dialect.is_cancellable(call.op());
        if !awaits_answer {
            return self.settle_call(id, Outcome::Cancelled, reason);
        }
        let inputs = call.take_open_inputs();
        let exchange = call.exchange();
        call.give_up(until);
        self.push_cancel(exchange, reason);
        for key in inputs {
            self.refuse_inbound_input(key);
        }
        self.arm_call(id);
    }

    /// Ends a call: closes its input requests, then queues [`Event::Done`].
    pub(super) fn finish_call(&mut self, id: OutboundId, outcome: Outcome) {
        let timers = &mut self.timers;
        let ended = self.outbound_calls.end(&id, |call| {
            call.disarm(id, timers);
            (call.held_bytes(), call.exchange(), call.take_caller_progress())
        });
        let Some((held_bytes, exchange, caller_progress)) = ended else { return };
        if !self.retries.is_empty() {
            self.retries.remove(&exchange);
        }
        self.subscriber.forget_change(id);
        self.held_bytes = self.held_bytes.saturating_sub(held_bytes);
        let (mut partial, mut last) = (None, None);
        if let Some(mut caller_progress) = caller_progress {
            let inputs;
            (partial, last, inputs) = caller_progress.take_parts();
            for key in inputs {
                self.refuse_inbound_input(key);
            }
        }
        let partial = match &outcome {
            Outcome::Result(_) => None,
            Outcome::Error(error) => self.rules.dialect.read_partial(error).or(partial),
            _ => partial,
        };
        self.push_event(Event::Done { id, outcome, partial, last });
    }

    // ---- Input requests of the peer ----

    /// Ends an input request of the peer whose call is over, or that is open when the session ends. If it came as a request, and frames may
    /// still be written, the answer is an error.
    pub(super) fn refuse_inbound_input(&mut self, key: InputKey) {
        let Some(input) = self.withdraw_inbound_input(key) else { return };
        if let Some((lane, exchange)) = input.exchange().filter(|_| self.ending.may_write()) {
            let error = input.rules().dialect.call_is_over();
            self.push_answer(key, lane, exchange, input.rules(), &InputResponse::Refused(error));
        }
    }

    fn push_answer(&mut self, key: InputKey, lane: Lane, exchange: &WireId, rules: &Rules, answer: &InputResponse) {
        let frame = rules.dialect.write_answer(self.outbox.frames(), exchange, answer);
        let frame = self.bounded_reply(frame, exchange);
        self.outbox.push(lane, Class::InputResponse(key), frame);
    }

    /// Removes an input request of the peer that no longer needs an answer.
    pub(super) fn withdraw_inbound_input(&mut self, key: InputKey) -> Option<InboundInput> {
        let input = self.inbound_inputs.remove(&key)?;
        self.request_bytes = self.request_bytes.saturating_sub(input.frame_bytes());
        if let Some((lane, exchange)) = input.exchange() {
            self.peer_ids.retire(lane, exchange.clone());
            self.outbox.settle(lane);
            self.outbox.note_idle(lane);
        }
        self.push_event(Event::InputGone { key });
        Some(input)
    }

    /// Closes an input request of a call. If it was the last open one, resumes the clocks of the call.
    pub(super) fn close_input_of_call(&mut self, parent: Option<OutboundId>, key: InputKey) {
        let Some(parent) = parent else { return };
        if let Some(call) = self.outbound_calls.get_mut(&parent) {
            call.close_inbound_input(key, self.now);
            self.arm_call(parent);
        }
    }
}

impl From<Unfit> for SendError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Unsupported => Self::Unsupported,
            Unfit::WrongEnd => Self::WrongEnd,
        }
    }
}
