//! The methods of a callee: inbound calls, and our input requests on their behalf.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::Session;
use super::depth;
use super::event::{CancelReason, Event, InputFailed};
use super::ids::{InboundId, InputKey};
use super::inbound_call::{HandlerEnd, InboundCall, ReportEffect};
use super::input::OutboundInput;
use super::input_output::too_large;
use super::lane_queue::Class;
use super::outbox::Outbox;
use super::peer_ids::IdUse;
use super::progress::{Reporter, UpdateStep};
use super::route::{Lane, ReplyKind};
use super::types::{AskError, CheckpointError, InputMode, NotLive, ProgressError, Reported, ServeOptions};
use crate::dialect::{AskUnfit, CutShort, InputRequest, InputResponse, InputRound, Progress, Reply};
use crate::error::RpcError;
use crate::json::{Json, Text};
use crate::time::Instant;
use crate::wire::{WireId, WrittenFrame};

impl Session {
    /// Sets the deadline of an inbound call and its rate of progress, and raises its sampling depth. What `options` does not set stays.
    ///
    /// # Errors
    /// [`NotLive`] if the call is over.
    pub fn configure(&mut self, id: InboundId, options: ServeOptions, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let inbound = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()).ok_or(NotLive)?;
        if let Some(window) = options.window {
            inbound.set_rate(window);
            // The new rate may allow the kept update now.
            self.flush(id, false);
        }
        if let Some(depth) = options.depth
            && let Some(inbound) = self.inbound_calls.get_mut(&id)
        {
            inbound.raise_depth(depth);
        }
        if let Some(deadline) = options.deadline {
            self.arm_inbound_call(id, deadline);
        }
        self.tidy();
        Ok(())
    }

    /// Reports progress. [`crate::ProgressPolicy`] decides when the update is sent.
    ///
    /// # Errors
    /// [`ProgressError`] if the call is over, or a number is negative, not finite or above its total. Nothing was sent.
    pub fn progress(&mut self, id: InboundId, update: Progress, now: Instant) -> Result<Reported, ProgressError> {
        self.advance(now);
        let inbound = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()).ok_or(ProgressError::NotLive)?;
        let policy = &self.config.progress;
        let update = Reporter::check(update, inbound.rules(), policy)?;
        if !inbound.is_observed() || self.ending.has_peer_ended() {
            self.stats.progress_out_dropped = self.stats.progress_out_dropped.saturating_add(1);
            return Ok(Reported::Unobserved);
        }
        match inbound.report(update, policy) {
            ReportEffect::NotIncreasing => {
                self.stats.progress_out_dropped = self.stats.progress_out_dropped.saturating_add(1);
                return Ok(Reported::NotIncreasing);
            }
            ReportEffect::Merged => self.stats.progress_out_merged = self.stats.progress_out_merged.saturating_add(1),
            ReportEffect::New => {}
        }
        let congested = !self.outbox.has_room(inbound.lane());
        let sent = self.flush(id, false);
        let queued = !sent && self.inbound_calls.get(&id).is_some_and(InboundCall::is_queued);
        self.tidy();
        Ok(match sent {
            true => Reported::Sent,
            false if congested && queued => Reported::Congested,
            false => Reported::RateLimited,
        })
    }

    /// Stores a partial result of the call in place of the previous checkpoint. The last checkpoint is sent with two kinds of replies: the
    /// reply to a call that is cut short, and an error or a failed tool result of the handler. The session adds a `status` to the
    /// checkpoint, which names the reason. See also [`crate::ProgressPolicy::partial_on_progress`].
    ///
    /// # Errors
    /// [`CheckpointError`]; the previous checkpoint stays.
    pub fn checkpoint(&mut self, id: InboundId, partial: Json) -> Result<(), CheckpointError> {
        let inbound = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()).ok_or(CheckpointError::NotLive)?;
        if !partial.is_object() {
            return Err(CheckpointError::NotAnObject);
        }
        if partial.as_bytes().len() > self.config.limits.checkpoint_bytes {
            return Err(CheckpointError::TooLarge);
        }
        inbound.store_checkpoint(partial, self.config.progress.window);
        Ok(())
    }

    /// The last checkpoint of an inbound call; `None` if it has stored none, or is over.
    #[must_use]
    pub fn last_checkpoint(&self, id: InboundId) -> Option<&Json> {
        self.inbound_calls.get(&id).filter(|inbound| inbound.is_active())?.checkpoint()
    }

    /// Sends an input request to the caller, or holds it until the peer has confirmed the handshake. The answer comes as [`Event::Input`].
    /// If the call ends first, the input request is taken back and no answer comes.
    ///
    /// # Errors
    /// [`AskError`]; nothing was sent.
    pub fn request_input(&mut self, id: InboundId, ask: InputRequest, now: Instant) -> Result<InputKey, AskError> {
        self.advance(now);
        let inbound = self.inbound_calls.get(&id).filter(|inbound| inbound.is_active()).ok_or(AskError::NotLive)?;
        if self.ending.has_peer_ended() {
            return Err(AskError::Disconnected);
        }
        let depth = self.admit_ask(id, &ask, InputMode::Nested)?;
        // Events that end a call or an input request of ours count, too, until they are polled.
        let open = self.outbound_inputs.len().saturating_add(self.events.settled());
        if open >= self.config.limits.in_flight || self.outbox.is_congested(inbound.lane()) {
            return Err(AskError::Full);
        }
        let (lane, rules) = (inbound.lane(), inbound.rules());
        let call_name = if rules.names_calls { inbound.token() } else { Some(inbound.exchange()) };
        let frame = rules.dialect.write_ask(self.outbox.frames(), self.next, &ask, call_name.ok_or(AskError::Unsupported)?, depth);
        if frame.len() > self.config.limits.frame_bytes {
            self.outbox.frames().discard(frame);
            return Err(AskError::TooLarge);
        }
        let is_held = !self.handshake.may_send_requests();
        if is_held && self.outbox.bytes_of(lane).saturating_add(self.held_bytes) >= self.config.limits.output_bytes {
            self.outbox.frames().discard(frame);
            return Err(AskError::Full);
        }
        let key = InputKey(self.take_number());
        let frame = self.outbox.frames().take(frame);
        let mut input = OutboundInput::held(id, lane, ask, depth, rules, frame);
        let deadline = self.config.timeouts.input.map(|span| self.now.saturating_add(span));
        if deadline.is_some_and(|at| at <= self.now) {
            self.deliver_answer(key, &input, Err(InputFailed::TimedOut));
            return Ok(key);
        }
        input.arm(key, deadline, &mut self.timers);
        self.held_bytes = self.held_bytes.saturating_add(input.held_bytes());
        self.outbound_inputs.insert(key, input);
        if let Some(inbound) = self.inbound_calls.get_mut(&id) {
            inbound.open_outbound_input(key, self.config.progress.window);
        }
        if !is_held {
            self.release_outbound_input(key);
        }
        self.tidy();
        Ok(key)
    }

    /// The way in which input can be requested from the caller of an inbound call.
    ///
    /// # Errors
    /// [`NotLive`] if the call is over.
    pub fn input_mode(&self, id: InboundId) -> Result<InputMode, NotLive> {
        self.inbound_calls.get(&id).filter(|inbound| inbound.is_active()).map(InboundCall::input_mode).ok_or(NotLive)
    }

    /// Checks that an input request may be part of a round of [`finish_round`](Self::finish_round). Returns the sampling depth of the input
    /// request.
    ///
    /// # Errors
    /// [`AskError`] if it may not be part of a round, or if the call is over.
    pub fn check_round_input(&self, id: InboundId, ask: &InputRequest) -> Result<u8, AskError> {
        self.admit_ask(id, ask, InputMode::Rounds)
    }

    /// Ends an exchange with a round of input requests, which the caller answers in a retry of its request (MCP 2026-07-28, Multi
    /// Round-Trip Requests). The retry is a new inbound call, so the state of the round must contain everything about this call that the
    /// handler of the retry will need. A kept progress update is sent before the response.
    ///
    /// # Errors
    /// [`AskError`]; nothing was sent, and the call goes on. The first of these that applies is returned:
    /// 1. [`AskError::NotLive`] if the call is over. After [`Event::Cancelled`], [`respond`](Self::respond) must still be called.
    /// 2. [`AskError::Invalid`] for a round with neither an input request nor a state, or with two input requests of the same name.
    /// 3. [`AskError::Unsupported`] unless [`input_mode`](Self::input_mode) is [`InputMode::Rounds`].
    /// 4. The error of [`check_round_input`](Self::check_round_input) for the first input request that may not be part of a round, such as
    ///    [`AskError::Unsupported`] if the caller did not declare the capability for it.
    /// 5. [`AskError::TooLarge`] if the frame would be longer than [`crate::Limits::frame_bytes`].
    pub fn finish_round(&mut self, id: InboundId, mut round: InputRound, now: Instant) -> Result<(), AskError> {
        self.advance(now);
        self.check_round(id, &mut round)?;
        self.settle_inbound_call(id, &Reply::Input(Box::new(round)));
        self.tidy();
        Ok(())
    }

    /// Checks a round that is to end a call, and sets the sampling depths of its input requests.
    fn check_round(&self, id: InboundId, round: &mut InputRound) -> Result<(), AskError> {
        let inbound = self.inbound_calls.get(&id).filter(|inbound| inbound.is_active()).ok_or(AskError::NotLive)?;
        let (mode, dialect) = (inbound.input_mode(), inbound.rules().dialect);
        if round.inputs.is_empty() && round.state.is_none() {
            return Err(AskError::Invalid("a round needs an input request or a state".into()));
        }
        if round.repeats_a_name() {
            return Err(AskError::Invalid("two input requests of a round have the same name".into()));
        }
        if mode != InputMode::Rounds {
            return Err(AskError::Unsupported);
        }
        for input in &mut round.inputs {
            input.depth = self.check_round_input(id, &input.ask)?;
        }
        if dialect.round_size(round, inbound.answered().id, &self.config.identity) > self.config.limits.frame_bytes {
            return Err(AskError::TooLarge);
        }
        Ok(())
    }

    /// Takes back an input request whose answer is no longer needed. No [`Event::Input`] follows. If its frame was polled, a cancel is sent
    /// to the peer on protocols that have one; otherwise the frame is never sent.
    ///
    /// # Errors
    /// [`NotLive`] if the input request was answered, timed out or was taken back, or its call is over.
    pub fn abandon_input(&mut self, key: InputKey, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let taken = self.take_outbound_input_back(key, None).map(drop).ok_or(NotLive);
        self.tidy();
        taken
    }

    /// Ends a call with its reply. A kept progress update is sent before the response, and open input requests are taken back. A round that
    /// [`finish_round`](Self::finish_round) would refuse becomes an error reply.
    ///
    /// # Errors
    /// [`NotLive`] if the call is over. The method also returns this error after [`Event::Cancelled`], but then it records that the handler
    /// has ended, so that the call no longer counts as in flight.
    pub fn respond(&mut self, id: InboundId, mut reply: Reply, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let result = match self.inbound_calls.get(&id).map(InboundCall::end) {
            Some(HandlerEnd::Reply) => {
                if let Reply::Input(round) = &mut reply
                    && let Err(why) = self.check_round(id, round)
                {
                    reply = Reply::Error(RpcError::internal(alloc::format!("the input requests cannot be sent: {why}")));
                }
                self.settle_inbound_call(id, &reply);
                Ok(())
            }
            Some(HandlerEnd::Cancelled) => {
                self.free_cancelled(id);
                Err(NotLive)
            }
            Some(HandlerEnd::Repeated) | None => Err(NotLive),
        };
        self.tidy();
        result
    }
}

impl Session {
    // ---- Progress ----

    /// Sends the kept update of a call if the windows and the lane allow it, and returns `true` if it was sent. Otherwise the update waits
    /// for the call's own window, or in the progress queue. `is_first` is `true` if the call is the first in that queue. If `is_first` is
    /// `false`, and a call on a lane that is not blocked waits for the session's window, only a final update ([`UpdateStep::Final`]) is
    /// sent.
    ///
    /// If the call is a subscription with waiting notifications, sends these instead, and returns `true` if at least one was sent.
    pub(super) fn flush(&mut self, id: InboundId, is_first: bool) -> bool {
        let Some(inbound) = self.inbound_calls.get_mut(&id) else { return false };
        if inbound.has_notifications() {
            return self.flush_notifications(id);
        }
        let has_room = self.outbox.has_room(inbound.lane());
        let Some(next) = inbound.next_update(self.now) else { return false };
        let may_be_sent = match next {
            UpdateStep::Final => has_room,
            UpdateStep::Ready => has_room && (is_first || self.progress_queue.is_free()) && self.progress_queue.is_open(self.now),
            UpdateStep::Waits(_) => false,
        };
        if !may_be_sent {
            inbound.keep_update(id, next, &mut self.progress_queue, &mut self.timers);
            return false;
        }
        if let Some(progress) = inbound.take_update(id, next, self.now, &mut self.progress_queue, &mut self.timers) {
            inbound.push_progress(id, &progress, self.now, &mut self.outbox, &self.config);
        }
        true
    }

    /// Sends the progress of calls in the progress queue, as far as there is room and the session's window is open.
    pub(super) fn serve_progress_queue(&mut self) {
        while let Some(first) = self.progress_queue.first() {
            let (id, lane) = first;
            if !self.outbox.has_room(lane) {
                self.progress_queue.block(lane);
            } else if !self.flush(id, true) && self.progress_queue.first() == Some(first) {
                // The session's window is closed.
                break;
            }
        }
        self.progress_queue.arm(self.now, &mut self.timers);
    }

    // ---- The end of a call ----

    /// Arms the deadline of a call, or ends the call if the deadline has already passed.
    pub(super) fn arm_inbound_call(&mut self, id: InboundId, deadline: Duration) {
        let Some(inbound) = self.inbound_calls.get_mut(&id) else { return };
        if !inbound.arm(id, deadline, self.now, &mut self.timers) {
            self.expire_inbound_call(id);
        }
    }

    /// Ends a call whose deadline has passed: sends a reply and cancels the handler.
    pub(super) fn expire_inbound_call(&mut self, id: InboundId) {
        self.cut_short(id, CutShort::Deadline, CancelReason::Deadline);
    }

    /// Sends kept progress, then the response, which may be delayed (`docs/protocols/mcp.md`, "Transitions of an incoming call").
    fn settle_inbound_call(&mut self, id: InboundId, reply: &Reply) {
        let Some(frame) = self.write_last(id, reply) else { return };
        let kind = kind_of(&frame);
        let gap = Some(self.config.timeouts.response_gap).filter(|gap| !gap.is_zero());
        if let Some(gap) = gap
            && let Some(inbound) = self.inbound_calls.get_mut(&id)
            && let Some(at) = inbound.last_progress().map(|(_, at)| at.saturating_add(gap)).filter(|at| *at > self.now)
        {
            return inbound.delay_response(id, (self.outbox.frames().take(frame), kind), at, &mut self.timers);
        }
        self.finish_inbound_call(id, |outbox, lane| {
            outbox.push(lane, Class::Reply(kind), frame);
        });
    }

    /// Sends kept progress, stops the timers, takes back input requests, and writes the response, but does not queue it.
    fn write_last(&mut self, id: InboundId, reply: &Reply) -> Option<WrittenFrame> {
        let mut inbound = self.inbound_calls.get_mut(&id)?;
        if let Some(progress) = inbound.take_last_update() {
            inbound.push_progress(id, &progress, self.now, &mut self.outbox, &self.config);
        }
        let open = inbound.stop(id, &mut self.timers, &mut self.progress_queue);
        if !open.is_empty() {
            self.take_outbound_inputs_back(open);
            inbound = self.inbound_calls.get_mut(&id)?;
        }
        let (request, partial) = (inbound.answered(), inbound.checkpoint());
        let dialect = inbound.rules().dialect;
        let frame = dialect.write_reply(self.outbox.frames(), request, reply, partial, &self.config.local_end());
        let (length, limit) = (frame.len(), self.config.limits.frame_bytes);
        Some(match length > limit {
            true => dialect.write_error(self.outbox.frames(), Some(request.id), &too_large("result", length, limit)),
            false => frame,
        })
    }

    /// Records that the timer for kept progress or for a delayed response has fired.
    pub(super) fn forget_timer(&mut self, id: InboundId) {
        if let Some(inbound) = self.inbound_calls.get_mut(&id) {
            inbound.forget_timer();
        }
    }

    /// Answered -> gone. Sends a response that was delayed by `response_gap`.
    pub(super) fn release_response(&mut self, id: InboundId) {
        let Some(inbound) = self.inbound_calls.get_mut(&id) else { return };
        let Some((frame, kind)) = inbound.take_delayed_response(id, &mut self.timers) else { return };
        self.finish_inbound_call(id, |outbox, lane| {
            outbox.push_taken(lane, Class::Reply(kind), frame);
        });
    }

    /// Removes a call that has ended; `respond` queues its response on its lane.
    fn finish_inbound_call(&mut self, id: InboundId, respond: impl FnOnce(&mut Outbox, Lane)) {
        let ended = self.inbound_calls.end(&id, |inbound| (inbound.lane(), inbound.take_names(), inbound.frame_bytes()));
        let Some((lane, (exchange, token), frame_bytes)) = ended else { return };
        self.request_bytes = self.request_bytes.saturating_sub(frame_bytes);
        self.retire(lane, exchange, token);
        self.outbox.settle(lane);
        respond(&mut self.outbox, lane);
    }

    /// Ends a call whose lane is lost, without a response.
    pub(super) fn lose_inbound_call(&mut self, id: InboundId) {
        let timers = &mut self.timers;
        if self.inbound_calls.get_mut(&id).is_some_and(|inbound| inbound.take_delayed_response(id, timers).is_some()) {
            self.finish_inbound_call(id, |_, _| ());
        } else if let Some(inbound) = self.inbound_calls.get(&id) {
            let (lane, exchange, token) = (inbound.lane(), inbound.exchange().clone(), inbound.token().cloned());
            let was_active = inbound.is_active();
            self.cancel_inbound_call(id, CancelReason::Disconnected);
            if was_active {
                // The ids are freed immediately: while the handler still runs, the transport may give the number of this lane to another
                // stream, on which the peer may use the same ids.
                self.retire(lane, exchange, token);
            }
        }
    }

    /// Cancels a call without a reply, because its caller cancelled it, or its lane is lost, or the session ends and sends no reply for it
    /// (`docs/protocols/mcp.md`, "Transitions of an incoming call"). The peer's id of the call stays in use until the handler has ended,
    /// unless the calling code frees it.
    pub(super) fn cancel_inbound_call(&mut self, id: InboundId, why: CancelReason) {
        let Some(inbound) = self.inbound_calls.get_mut(&id) else { return };
        if !inbound.cancel() {
            return;
        }
        self.cancelled_calls = self.cancelled_calls.saturating_add(1);
        let lane = inbound.lane();
        self.outbox.withdraw_reports(id, lane, inbound.last_progress().map(|(last, _)| last), inbound.has_logged());
        let open = inbound.stop(id, &mut self.timers, &mut self.progress_queue);
        self.take_outbound_inputs_back(open);
        self.outbox.settle(lane);
        self.use_room(lane);
        self.outbox.note_idle(lane);
        self.push_event(Event::Cancelled { id, why });
    }

    /// Replies to a call in place of its handler, and cancels the handler.
    pub(super) fn cut_short(&mut self, id: InboundId, how: CutShort, why: CancelReason) {
        let Some(inbound) = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()) else { return };
        let reply = inbound.rules().dialect.cut_short(inbound.op(), how, inbound.checkpoint());
        // `reply` contains the checkpoint, with a status, and `write_last` must not add it again.
        inbound.drop_checkpoint();
        let Some(frame) = self.write_last(id, &reply) else { return };
        let Some(inbound) = self.inbound_calls.get_mut(&id) else { return };
        inbound.cancel();
        self.cancelled_calls = self.cancelled_calls.saturating_add(1);
        let (lane, exchange, token) = (inbound.lane(), inbound.exchange().clone(), inbound.token().cloned());
        self.outbox.push(lane, Class::Reply(kind_of(&frame)), frame);
        self.outbox.settle(lane);
        // The call is answered, so the peer may use its id again.
        self.retire(lane, exchange, token);
        self.push_event(Event::Cancelled { id, why });
    }

    /// Cancels a call at the peer's request, with a reply if the protocol demands one.
    pub(super) fn cancel_by_peer(&mut self, id: InboundId, reason: Option<Text>) {
        if self.inbound_calls.get(&id).is_some_and(|inbound| inbound.rules().answers_cancelled) {
            self.cut_short(id, CutShort::Cancelled, CancelReason::Peer(reason));
        } else {
            self.cancel_inbound_call(id, CancelReason::Peer(reason));
        }
    }

    /// Frees the id and the token that the peer gave to a call.
    fn retire(&mut self, lane: Lane, exchange: WireId, token: Option<WireId>) {
        self.peer_ids.retire(lane, exchange);
        if let Some(token) = token.filter(|_| !self.names.is_empty()) {
            self.names.remove(&(lane, token));
        }
    }

    /// Removes a cancelled call whose handler has ended.
    fn free_cancelled(&mut self, id: InboundId) {
        let ended = self.inbound_calls.end(&id, |inbound| (inbound.lane(), inbound.exchange().clone(), inbound.frame_bytes()));
        if let Some((lane, exchange, frame_bytes)) = ended {
            self.request_bytes = self.request_bytes.saturating_sub(frame_bytes);
            self.cancelled_calls = self.cancelled_calls.saturating_sub(1);
            // Another exchange may have begun with the same id. Then the id now belongs to another call, and stays in use.
            if self.peer_ids.use_of(lane, &exchange) == Some(IdUse::InboundCall(id)) {
                self.peer_ids.retire(lane, exchange);
            }
        }
    }

    // ---- Input requests of ours ----

    /// Checks that a call is active, that its input mode is `mode`, and that it may make this input request. Returns the sampling depth of
    /// the input request.
    fn admit_ask(&self, id: InboundId, ask: &InputRequest, mode: InputMode) -> Result<u8, AskError> {
        let inbound = self.inbound_calls.get(&id).filter(|inbound| inbound.is_active()).ok_or(AskError::NotLive)?;
        if inbound.input_mode() != mode {
            return Err(AskError::Unsupported);
        }
        let capabilities = inbound.capabilities(self.peer.as_ref().map(|peer| peer.capabilities));
        inbound.rules().dialect.check_ask(ask, &capabilities).map_err(|unfit| match unfit {
            AskUnfit::Unsupported => AskError::Unsupported,
            AskUnfit::Invalid(why) => AskError::Invalid(why),
        })?;
        let (depth, max) = (depth::of_input(ask, inbound.depth(), 0), self.config.depth.max);
        if depth::is_allowed(ask, depth, max) { Ok(depth) } else { Err(AskError::TooDeep { depth, max }) }
    }

    /// Held -> Sent. Queues an input request. Called when the input request is made, or when the handshake is done.
    pub(super) fn release_outbound_input(&mut self, key: InputKey) {
        let Some(input) = self.outbound_inputs.get_mut(&key) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(input.held_bytes());
        input.release(&mut self.outbox);
    }

    /// Removes an input request of ours that was answered, taken back or lost.
    pub(super) fn close_outbound_input(&mut self, key: InputKey) -> Option<OutboundInput> {
        let mut input = self.outbound_inputs.remove(&key)?;
        self.held_bytes = self.held_bytes.saturating_sub(input.held_bytes());
        input.arm(key, None, &mut self.timers);
        if let Some(inbound) = self.inbound_calls.get_mut(&input.asker()) {
            inbound.close_outbound_input(key);
        }
        Some(input)
    }

    /// Takes back an input request that is no longer needed. If its frame was not polled, the frame is never sent. Otherwise a
    /// cancel is sent on protocols that have one.
    pub(super) fn take_outbound_input_back(&mut self, key: InputKey, reason: Option<&str>) -> Option<OutboundInput> {
        let input = self.close_outbound_input(key)?;
        if let Some(ticket) = input.ticket()
            && !self.outbox.withdraw(ticket)
            && input.rules().cancels_input_requests
        {
            self.push_cancel_as(input.lane(), Class::InputRequest, key.0, reason);
        }
        self.use_room(input.lane());
        Some(input)
    }

    fn take_outbound_inputs_back(&mut self, open: Vec<InputKey>) {
        for key in open {
            self.take_outbound_input_back(key, None);
        }
    }

    /// Queues the event with an answer. A confirmation without a valid answer is reported as `Confirm(false)`.
    pub(super) fn deliver_answer(&mut self, key: InputKey, input: &OutboundInput, answer: Result<InputResponse, InputFailed>) {
        let answer = match (input.ask(), answer) {
            (InputRequest::Confirm { .. }, Err(_)) => Ok(InputResponse::Confirm(false)),
            (_, answer) => answer,
        };
        self.push_event(Event::Input { id: input.asker(), key, answer });
    }
}

fn kind_of(reply: &WrittenFrame) -> ReplyKind {
    if reply.is_error() { ReplyKind::Error } else { ReplyKind::Result }
}
