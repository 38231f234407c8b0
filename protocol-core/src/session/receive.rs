//! The effect of the peer's messages on the session, with one function for each kind of message.

use alloc::boxed::Box;

use bytes::Bytes;

use super::depth;
use super::handshake::Opening;
use super::outbound_call::OutboundCall;
use super::outbox::Ticket;
use super::peer_ids::IdUse;
use super::progress::UpdateVerdict;
use super::route::{Lane, ReplyKind};
use super::terms::Terms;
use super::{
    Event, ExchangeId, InboundCall, InboundId, InboundInput, InputFailed, InputKey, Invalid, OutboundId, OutboundInput, Outcome,
    Session,
};
use crate::config::DepthInference;
use crate::dialect::{
    EarlyMessage, InputRequest, Level, LogRecord, Message, Op, Progress, Refusal, Request, ResponseBody, ResultFit, Rules,
    StatelessCaller,
};
use crate::error::{RpcError, Unreadable, Violation};
use crate::json::{Json, Text};
use crate::shared::Arc;
use crate::wire::{self, Recovered, Tolerated, WireId, WrittenFrame};

/// The receiver of a response within the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseTarget {
    Opening(Opening, Ticket),
    Subscription,
    OutboundCall(OutboundId),
    OutboundInput(InputKey),
}

impl Session {
    /// Reads a frame of the peer, and handles its message.
    pub(super) fn receive(&mut self, frame: Bytes) {
        self.stats.frames_in = self.stats.frames_in.saturating_add(1);
        self.stats.bytes_in = self.stats.bytes_in.saturating_add(frame.len() as u64);
        if frame.len() > self.config.limits.frame_bytes {
            return self.refuse_frame();
        }
        let tolerated = Tolerated::default();
        let message = self.rules.dialect.read(&frame, &self.config.local_end(), self.recent_caller.known(), &tolerated);
        self.stats.tolerated = self.stats.tolerated.saturating_add(tolerated.get());
        self.handle_message(message, frame);
    }

    /// Handles a message in `frame`.
    fn handle_message(&mut self, message: Message, frame: Bytes) {
        match message {
            Message::Response { number, body } if number < self.next => self.handle_response(number, body.cut(frame)),
            Message::Response { .. } => self.handle_misaddressed(None, wire::astray(&frame, wire::UNKNOWN_ID)),
            Message::Misaddressed { number, frame } => self.handle_misaddressed(number, frame),
            Message::Progress { number, progress, partial } => self.handle_progress(number, progress, partial),
            Message::Request { id, request, meta, token, depth, caller } => {
                let terms = self.terms(caller, &frame);
                self.handle_request(id, request.map(|request| request.cut(frame)), meta, token, depth, terms)
            }
            Message::InputRequest { id, ask, parent, depth } => self.handle_ask(id, ask, parent, depth),
            Message::Cancel { id, reason } => self.handle_cancel(&id, reason),
            Message::PeerChanged(change) => self.handle_change(change),
            Message::AnsweredByDialect { id, result, is_stateless } => {
                if is_stateless {
                    self.stop_awaiting_handshake();
                }
                self.answer(id, ReplyKind::Result, |session, id| {
                    session.rules.dialect.write_result(session.outbox.frames(), id, &result)
                });
            }
            Message::SetLevel { id, level } => self.handle_level(id, level),
            Message::HandshakeRequest { id, request } => self.handle_handshake_request(id, request),
            Message::HandshakeConfirmed => self.handle_confirmation(),
            Message::Log { record, invocation } => self.handle_log(record, invocation),
            Message::Acknowledged { number, accepted } => self.handle_acknowledged(number, &accepted),
            Message::Published { number, notification } => self.handle_published(number, notification),
            Message::SubscriptionCancelled { number } => self.handle_subscription_cancel(number),
            Message::Notification(notification) if self.handshake.serves_requests() => {
                self.push_event(Event::Notification(notification))
            }
            Message::Notification(_) => self.violation(Violation::OutOfPhase),
            Message::Batch(all) => {
                for message in all {
                    if self.is_closed() {
                        break;
                    }
                    self.handle_message(message, frame.clone());
                }
            }
            Message::Reject { violation, answer } => self.handle_reject(violation, answer),
            Message::Unreadable { recovered, answer } => self.handle_unreadable(*recovered, answer),
        }
    }

    // ---- Exchanges of ours ----

    /// The receiver of a response with this number. `None` if no open exchange of ours has the number; a response with a number below
    /// `next` then counts as late.
    fn response_target(&self, number: u64) -> Option<ResponseTarget> {
        let (call, key) = (self.call_of(number), InputKey(number));
        if self.outbound_calls.get(&call).is_some_and(|call| call.is_open_as(ExchangeId(number))) {
            Some(ResponseTarget::OutboundCall(call))
        } else if self.outbound_inputs.get(&key).is_some_and(|input| !input.is_held()) {
            Some(ResponseTarget::OutboundInput(key))
        } else {
            let subscription = self.subscriber.is_open(ExchangeId(number)).then_some(ResponseTarget::Subscription);
            subscription
                .or_else(|| self.handshake.awaited(number).map(|(opening, ticket)| ResponseTarget::Opening(opening, ticket)))
        }
    }

    /// Returns `true` if an exchange of ours waits for a response.
    fn awaits_response(&self) -> bool {
        let asks = self.outbound_inputs.values().any(|input| !input.is_held());
        let opens = self.handshake.is_probing() || self.handshake.opened().is_some();
        asks || opens || !self.outbound_calls.is_empty() || self.subscriber.open_exchanges() > 0
    }

    /// Handles a response to an exchange of ours, whose number is below `next` (`docs/protocols/mcp.md`, "Transitions of an outgoing call", rows *result*, *task as a
    /// result*, *invalid answer*, *error*, *late answer* and *response to no request*).
    fn handle_response(&mut self, number: u64, body: ResponseBody) {
        let id = self.call_of(number);
        let Some(call) = self.outbound_calls.get_mut(&id).filter(|call| call.is_open_as(ExchangeId(number))) else {
            return match self.response_target(number) {
                Some(ResponseTarget::Opening(opening, ticket)) => self.handle_opening_answer(opening, ticket, body),
                Some(ResponseTarget::Subscription) => self.handle_subscription_response(ExchangeId(number)),
                Some(ResponseTarget::OutboundInput(key)) => self.handle_answer(key, body),
                Some(ResponseTarget::OutboundCall(_)) | None => self.stats.late_frames = self.stats.late_frames.saturating_add(1),
            };
        };
        // A request that has not been polled cannot be answered: the peer guessed its number.
        if call.ticket().is_some_and(|ticket| self.outbox.is_unpolled(ticket)) {
            return self.violation(Violation::UnknownResponse);
        }
        // A cancelled call that waits for the reply of the peer (Tesseron).
        if call.is_given_up() {
            if let ResponseBody::Error(error) = &body {
                call.note_partial(call.rules().dialect.read_partial(error));
            }
            return self.finish_call(id, Outcome::Cancelled);
        }
        let (fit, outcome) = match body {
            ResponseBody::Result(result) => {
                (call.rules().dialect.check_result(number, call.op(), &result), Outcome::Result(result))
            }
            ResponseBody::Error(error) => (ResultFit::Fits, Outcome::Error(error)),
            ResponseBody::Unreadable(frame) => {
                self.report_invalid_response(&frame);
                return self.finish_call(id, Outcome::Invalid(Invalid::Unreadable(frame)));
            }
        };
        let outcome = match (fit, outcome) {
            (ResultFit::AsksForInput, Outcome::Result(result)) => return self.handle_round(id, &result),
            (ResultFit::Wrong, Outcome::Result(result)) => {
                Outcome::Invalid(Invalid::Unreadable(wire::misshapen(result.as_bytes(), Violation::InvalidResponse)))
            }
            (_, outcome) => outcome,
        };
        // A faulty result is reported. If the fault is tolerated, the result is delivered nevertheless.
        if fit != ResultFit::Fits {
            self.violation(Violation::InvalidResponse);
        }
        self.finish_call(id, outcome);
    }

    /// Reports a response of the wrong shape. That a frame is no message was reported before.
    fn report_invalid_response(&mut self, frame: &Unreadable) {
        if frame.rule == Violation::InvalidResponse {
            self.violation(Violation::InvalidResponse);
        }
    }

    /// Handles the response to an input request of ours (`docs/protocols/mcp.md`, "Transitions of an incoming call").
    fn handle_answer(&mut self, key: InputKey, body: ResponseBody) {
        let is_guessed = self.outbound_inputs.get(&key).is_some_and(|input| {
            let is_on_other_lane = input.rules().lane_bound && input.lane() != self.arriving.lane();
            is_on_other_lane || input.ticket().is_some_and(|ticket| self.outbox.is_unpolled(ticket))
        });
        if is_guessed {
            return self.violation(Violation::UnknownResponse);
        }
        let Some(input) = self.close_outbound_input(key) else { return };
        let answer = match body {
            ResponseBody::Result(result) => input.rules().dialect.read_answer(input.ask(), &result).map_err(InputFailed::Invalid),
            ResponseBody::Error(error) => Err(InputFailed::Refused(error)),
            ResponseBody::Unreadable(frame) => {
                self.report_invalid_response(&frame);
                return self.deliver_answer(key, &input, Err(InputFailed::Invalid(Text::from(alloc::format!("{frame}")))));
            }
        };
        if matches!(answer, Err(InputFailed::Invalid(_))) {
            self.violation(Violation::InvalidResponse);
        }
        self.deliver_answer(key, &input, answer);
    }

    /// Queues an event for progress, or drops it (`docs/protocols/mcp.md`, "Transitions of an outgoing call": progress accepted, progress
    /// dropped, late progress).
    fn handle_progress(&mut self, number: Option<u64>, progress: Progress, partial: Option<Box<Json>>) {
        let number = number.filter(|number| *number < self.next);
        let Some(number) = number else { return self.drop_unknown_progress(Violation::UnknownProgress) };
        let id = self.call_of(number);
        let is_open = |call: &&mut OutboundCall| call.is_open_as(ExchangeId(number)) && !call.is_given_up();
        let Some(call) = self.outbound_calls.get_mut(&id).filter(is_open) else {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
            return;
        };
        if !call.is_observed() || call.ticket().is_some_and(|ticket| self.outbox.is_unpolled(ticket)) {
            return self.drop_unknown_progress(Violation::UnknownProgress);
        }
        // After a violation is reported, further violations are only counted until one length of our own rate window has passed.
        let quiet = self.config.progress.window.length;
        let accepts_equal = self.config.progress.accept_equal;
        match call.judge(progress, partial.map(|partial| *partial), self.now, accepts_equal, quiet) {
            UpdateVerdict::Accepted { progress, .. } => {
                self.arm_call(id);
                self.push_event(Event::Progress { id, progress });
            }
            UpdateVerdict::Repeated => self.arm_call(id),
            UpdateVerdict::Dropped { is_reported } => self.drop_progress(Violation::ProgressNotIncreasing, is_reported),
        }
    }

    /// Drops progress that is invalid, belongs to no call or was not asked for. The violation is reported at most once in a rate window.
    fn drop_unknown_progress(&mut self, rule: Violation) {
        let is_reported = self.now >= self.quiet_until;
        if is_reported {
            self.quiet_until = self.now.saturating_add(self.config.progress.window.length);
        }
        self.drop_progress(rule, is_reported);
    }

    fn drop_progress(&mut self, rule: Violation, is_reported: bool) {
        self.stats.progress_in_dropped = self.stats.progress_in_dropped.saturating_add(1);
        if is_reported {
            self.violation(rule);
        } else {
            self.stats.count(rule);
        }
    }

    // ---- Exchanges of the peer ----

    /// The rules, peer and log level of a request: those in its own `_meta` if it is stateless, otherwise those of the session. `None` if a
    /// request that is not stateless came before the handshake.
    #[inline]
    fn terms(&mut self, caller: Option<StatelessCaller>, frame: &[u8]) -> Option<Terms> {
        match caller {
            Some(caller) => {
                self.stop_awaiting_handshake();
                self.recent_caller.note(&caller, frame);
                Some(Terms::new(caller.peer, caller.rules, caller.log_level))
            }
            None => {
                let peer = self.peer.as_ref().filter(|_| self.handshake.serves_requests())?;
                Some(Terms::new(Arc::clone(peer), self.rules, Some(self.log_level)))
            }
        }
    }

    /// Adds an inbound call, or refuses the request (`docs/protocols/mcp.md`, "Transitions of an incoming call": accepted, refused, id in
    /// use, id used again).
    fn handle_request(
        &mut self,
        id: WireId,
        request: Result<Request, Box<Refusal>>,
        meta: Option<Box<Json>>,
        token: Option<WireId>,
        claimed_depth: u8,
        terms: Option<Terms>,
    ) {
        let Some(terms) = terms else {
            return self.refuse(id, Some(Violation::OutOfPhase), |session| session.rules.dialect.too_early(EarlyMessage::Request));
        };
        if !self.ending.is_open() {
            return self.refuse(id, None, |session| session.rules.dialect.closing());
        }
        if self.exceeds_request_rate() {
            return self.refuse_as_busy(id);
        }
        let request = match request {
            Ok(request) => request,
            Err(refusal) => return self.refuse(id, refusal.violation, |_| refusal.error),
        };
        if self.inbound_calls.len() >= self.config.limits.in_flight {
            return self.refuse_as_busy(id);
        }
        if !self.has_room_for_request() {
            return self.refuse_for_room(id);
        }
        let rules = terms.rules();
        // On Tesseron the token is also the name of the call, by which cancels and input requests refer to the call.
        let name = token.as_ref().filter(|_| rules.names_calls);
        let lane = self.arriving.lane();
        let name = name.map(|name| (lane, name.clone()));
        if name.as_ref().is_some_and(|name| self.names.contains_key(name)) {
            return self.refuse(id, Some(Violation::DuplicateRequest), |_| {
                RpcError::fixed(RpcError::INVALID_REQUEST, "an invocation of that name is active")
            });
        }
        let inbound = InboundId(self.next);
        if !self.take_id(&id, IdUse::InboundCall(inbound), rules) {
            return;
        }
        self.take_number();
        if let Some(name) = name {
            self.names.insert(name, inbound);
        }
        let depth = claimed_depth.max(self.inferred_depth());
        let is_subscription = request.op().is_subscription();
        let observed = token.is_some() && !is_subscription;
        self.owe();
        self.request_bytes = self.request_bytes.saturating_add(self.arriving.bytes());
        let mut call = InboundCall::new(self.arriving, id, request.op(), token, depth, &terms, self.now);
        if let Request::Listen(listen) = &request {
            call.listen(listen.filter().clone(), self.config.progress.window);
        }
        self.inbound_calls.insert(inbound, call);
        self.push_event(Event::Request { id: inbound, request, caller: terms.into_caller(meta), depth, observed });
        if let Some(deadline) = self.config.timeouts.serve.filter(|_| !is_subscription) {
            self.arm_inbound_call(inbound, deadline);
        }
    }

    /// Counts a request of the peer. Returns `true` if it exceeds the allowed rate.
    #[inline]
    fn exceeds_request_rate(&mut self) -> bool {
        self.config.limits.requests_per_second.is_some_and(|max| !self.request_rate.admit(max, self.now))
    }

    fn refuse_as_busy(&mut self, id: WireId) {
        self.refuse(id, Some(Violation::TooManyRequests), |session| session.rules.dialect.busy());
    }

    /// Returns `true` if the request that is being read may be held beside those that are held already.
    #[inline]
    fn has_room_for_request(&self) -> bool {
        self.request_bytes.saturating_add(self.arriving.bytes()) <= self.config.limits.request_bytes
    }

    fn refuse_for_room(&mut self, id: WireId) {
        let most = self.config.limits.request_bytes;
        self.refuse(id, Some(Violation::TooManyRequests), |session| session.rules.dialect.out_of_room(most));
    }

    fn inferred_depth(&self) -> u8 {
        match self.config.depth.inference {
            DepthInference::Off => 0,
            DepthInference::DeepestOpen => {
                let open = self.outbound_inputs.values().filter(|input| matches!(input.ask(), InputRequest::Sample(_)));
                open.map(OutboundInput::depth).max().unwrap_or_default()
            }
        }
    }

    /// Returns `true` if the session has used this number, and no exchange of ours with it is open. The exchange of a cancelled call that
    /// still waits for the peer's reply counts as ended.
    fn is_ended_exchange(&self, number: u64) -> bool {
        let is_over = match self.response_target(number) {
            Some(ResponseTarget::OutboundCall(id)) => self.outbound_calls.get(&id).is_some_and(OutboundCall::is_given_up),
            Some(ResponseTarget::OutboundInput(_) | ResponseTarget::Opening(..) | ResponseTarget::Subscription) => false,
            None => true,
        };
        is_over && (self.config.first_id()..self.next).contains(&number)
    }

    /// Takes an input request of the peer (`docs/protocols/mcp.md`, "Transitions of an outgoing call").
    fn handle_ask(&mut self, id: WireId, ask: Result<Box<InputRequest>, Refusal>, named: Option<u64>, claimed_depth: u8) {
        if !self.handshake.may_send_requests() {
            return self
                .refuse(id, Some(Violation::OutOfPhase), |session| session.rules.dialect.too_early(EarlyMessage::InputRequest));
        }
        if !self.ending.may_write() {
            return self.refuse(id, None, |session| session.rules.dialect.closing());
        }
        if self.exceeds_request_rate() {
            return self.refuse_as_busy(id);
        }
        let ask = match ask {
            Ok(ask) => *ask,
            Err(Refusal { violation, error }) => return self.refuse(id, violation, |_| error),
        };
        let parent = self.parent_of_ask(named);
        if parent.is_none() && self.rules.names_calls {
            // The peer may have sent the input request before it received the cancel of the call. That is not a violation.
            let is_late = named.is_some_and(|number| self.is_ended_exchange(number));
            self.stats.late_frames = self.stats.late_frames.saturating_add(u64::from(is_late));
            let violation = (!is_late).then_some(Violation::UndeclaredInput);
            return self.refuse(id, violation, |session| session.rules.dialect.no_such_call());
        }
        let inherited = parent.and_then(|id| self.outbound_calls.get(&id)).map_or(0, OutboundCall::depth);
        let (depth, max) = (depth::of_input(&ask, inherited, claimed_depth), self.config.depth.max);
        if !depth::is_allowed(&ask, depth, max) {
            return self.refuse(id, Some(Violation::SamplingTooDeep), |session| session.rules.dialect.too_deep(depth, max));
        }
        if self.inbound_inputs.len() >= self.config.limits.in_flight {
            return self.refuse_as_busy(id);
        }
        if !self.has_room_for_request() {
            return self.refuse_for_room(id);
        }
        let key = InputKey(self.next);
        if !self.take_id(&id, IdUse::InboundInput(key), self.rules) {
            return;
        }
        self.take_number();
        self.owe();
        self.request_bytes = self.request_bytes.saturating_add(self.arriving.bytes());
        self.inbound_inputs.insert(key, InboundInput::requested(self.arriving, id, parent, depth, self.rules));
        if let Some(parent) = parent {
            if let Some(call) = self.outbound_calls.get_mut(&parent) {
                call.open_inbound_input(key, self.now);
            }
            self.arm_call(parent);
        }
        self.push_event(Event::InputRequested { key, parent, ask, depth });
    }

    /// The call that an input request belongs to:
    /// 1. The call that it names or, if it names none, the call on whose stream it came.
    /// 2. If there is no such call, or it cannot be the parent: on Tesseron `None`; on MCP one of the calls in flight that can be the
    ///    parent: the one with the greatest sampling depth, and of several with this depth the newest.
    ///
    /// A call can be the parent if its request was polled and is not a ping. On Tesseron, it must also be a call of an action.
    fn parent_of_ask(&self, named: Option<u64>) -> Option<OutboundId> {
        let may_ask = |op: Op| !op.is_ping() && (!self.rules.names_calls || self.rules.dialect.is_cancellable(op));
        let can_be_parent =
            |call: &OutboundCall| may_ask(call.op()) && call.ticket().is_some_and(|ticket| !self.outbox.is_unpolled(ticket));
        let named = named.map(OutboundId).or_else(|| self.within.map(|exchange| OutboundId(exchange.0)));
        let named = named.filter(|id| self.outbound_calls.get(id).is_some_and(can_be_parent));
        if self.rules.names_calls {
            return named;
        }
        named.or_else(|| {
            let in_flight = self.outbound_calls.iter().filter(|(_, call)| can_be_parent(call));
            in_flight.max_by_key(|(id, call)| (call.depth(), *id)).map(|(id, _)| id)
        })
    }

    /// Handles a cancel of an inbound call, of an input request, of the handshake, or of an unknown id (`docs/protocols/mcp.md`,
    /// "Transitions of an incoming call").
    fn handle_cancel(&mut self, id: &WireId, reason: Option<Text>) {
        let lane = self.arriving.lane();
        let id_use = match self.rules.names_calls {
            true => self.names.get(&(lane, id.clone())).copied().map(IdUse::InboundCall),
            // If the exchange does not end with its lane (`Rules::lane_bound` is `false`), a cancel may arrive on another lane than its
            // request.
            false => self.peer_ids.use_of(lane, id).or_else(|| self.peer_ids.only_use_of(id, |id_use| !self.is_lane_bound(id_use))),
        };
        match id_use {
            Some(IdUse::InboundCall(inbound)) => self.cancel_by_peer(inbound, reason),
            Some(IdUse::InboundInput(key)) => {
                if let Some(input) = self.withdraw_inbound_input(key) {
                    self.close_input_of_call(input.parent(), key);
                }
            }
            // A cancel of an unknown or finished request, or of one of ours, is ignored. Only a cancel of the handshake is a violation.
            None => {
                if self.handshake.is_answered_request(lane, id) {
                    self.violation(Violation::CancelledHandshake);
                }
            }
        }
    }

    /// Returns `true` if an exchange of the peer ends with its lane, so that messages on other lanes do not belong to it.
    fn is_lane_bound(&self, id_use: IdUse) -> bool {
        match id_use {
            IdUse::InboundCall(id) => self.inbound_calls.get(&id).is_some_and(|call| call.rules().lane_bound),
            IdUse::InboundInput(key) => self.inbound_inputs.get(&key).is_some_and(|input| input.rules().lane_bound),
        }
    }

    /// Records that an id of the peer is in use. Returns `false` if it was in use already. In that case no reply may be sent, since it
    /// would end the first request with this id.
    fn take_id(&mut self, id: &WireId, id_use: IdUse, rules: &Rules) -> bool {
        let lane = self.arriving.lane();
        if self.peer_ids.use_of(lane, id).is_some() {
            self.violation(Violation::DuplicateRequest);
            return false;
        }
        // Without a handshake an id may be used again once its response was sent (MCP, basic, "Requests").
        let was_used_before = self.peer_ids.insert(lane, id.clone(), id_use);
        if was_used_before && !rules.stateless {
            self.violation(Violation::ReusedId);
        }
        true
    }

    /// Queues an event for a log record, unless the record names a call that is not open.
    fn handle_log(&mut self, record: LogRecord, invocation: Option<u64>) {
        // The exchange is open, and its call is not cancelled.
        let is_live = |number: u64| self.response_target(number).is_some() && !self.is_ended_exchange(number);
        if invocation.is_none_or(is_live) {
            self.push_event(Event::Log(record));
        } else {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
        }
    }

    // ---- Replies that belong to no call ----

    fn handle_level(&mut self, id: WireId, level: Result<Level, Refusal>) {
        if !self.handshake.serves_requests() {
            return self.refuse(id, Some(Violation::OutOfPhase), |session| session.rules.dialect.too_early(EarlyMessage::Request));
        }
        if self.exceeds_request_rate() {
            return self.refuse_as_busy(id);
        }
        let level = match level {
            Ok(level) => level,
            Err(Refusal { violation, error }) => return self.refuse(id, violation, |_| error),
        };
        self.answer(id, ReplyKind::Result, |session, id| {
            session.log_level = level;
            session.rules.dialect.write_result(session.outbox.frames(), id, &Json::empty_object())
        });
    }

    fn handle_reject(&mut self, violation: Option<Violation>, answer: Option<(Option<WireId>, RpcError)>) {
        match answer {
            Some((Some(id), _)) if self.exceeds_request_rate() => self.refuse_as_busy(id),
            Some((Some(id), error)) => self.refuse(id, violation, |_| error),
            Some((None, error)) => {
                if let Some(rule) = violation {
                    self.violation(rule);
                }
                let frame = self.rules.dialect.write_error(self.outbox.frames(), None, &error);
                self.reply_at_once(ReplyKind::Refused, frame);
            }
            None => match violation {
                Some(rule @ Violation::InvalidProgress) => self.drop_unknown_progress(rule),
                Some(rule @ Violation::ErrorWithoutId) => {
                    self.violation(rule);
                    self.handle_error_without_id();
                }
                Some(rule) => self.violation(rule),
                None => {}
            },
        }
    }

    /// Handles a frame that is no message: ends the exchanges of ours that it was meant to answer, as a malformed response does. A peer
    /// that serves stateless requests answers a request only on its stream.
    fn handle_unreadable(&mut self, recovered: Recovered, answer: Option<(Option<WireId>, RpcError)>) {
        let Recovered { frame, mut answered } = recovered;
        answered.retain(|number| {
            *number < self.next && (!self.rules.stateless || self.within.is_none_or(|within| within.0 == *number))
        });
        let targets = answered.iter().map(|number| self.response_target(*number));
        let (mut ends_call, mut is_opening) = (false, false);
        for target in targets.flatten() {
            let is_of_opening = matches!(target, ResponseTarget::Opening(..));
            (ends_call, is_opening) = (ends_call || !is_of_opening, is_opening || is_of_opening);
        }
        if is_opening || (!ends_call && matches!(frame.rule, Violation::NotJson | Violation::TooDeep)) {
            self.stats.count(frame.rule);
            self.push_event(Event::Unreadable(Box::new(frame.clone())));
            self.handle_reject(None, answer);
        } else {
            self.handle_reject(Some(frame.rule), answer);
        }
        for number in answered {
            if !self.is_closed() && self.response_target(number).is_some() {
                self.handle_response(number, ResponseBody::Unreadable(Box::new(frame.clone())));
            }
        }
    }

    /// Handles a response whose id is none of ours: it ends nothing, but its frame is reported if the exchange that it may have been meant
    /// for is open, since what follows would be a timeout without a reason. A number that no exchange has had may be meant for any.
    fn handle_misaddressed(&mut self, number: Option<u64>, frame: Box<Unreadable>) {
        let is_awaited = match number.filter(|number| *number < self.next) {
            Some(number) => self.response_target(number).is_some(),
            None => self.awaits_response(),
        };
        if is_awaited {
            self.stats.count(frame.rule);
            self.push_event(Event::Unreadable(frame));
        } else {
            self.violation(frame.rule);
        }
    }

    /// Refuses a request: replies with an error, and keeps no call for the request.
    pub(super) fn refuse(&mut self, id: WireId, violation: Option<Violation>, error: impl FnOnce(&Self) -> RpcError) {
        if let Some(rule) = violation {
            self.violation(rule);
        }
        self.answer(id, ReplyKind::Refused, |session, id| {
            let error = error(session);
            session.rules.dialect.write_error(session.outbox.frames(), Some(id), &error)
        });
    }

    /// Replies at once, unless a request in flight has the same id: the reply would end that request.
    fn answer(&mut self, id: WireId, kind: ReplyKind, write: impl FnOnce(&mut Self, &WireId) -> WrittenFrame) {
        let lane = self.arriving.lane();
        if self.handshake.is_asked_by(lane, &id) || self.peer_ids.use_of(lane, &id).is_some() {
            return self.violation(Violation::DuplicateRequest);
        }
        let frame = write(self, &id);
        self.reply_at_once(kind, frame);
    }

    /// Replies to the frame that is being read, on its lane.
    pub(super) fn reply_at_once(&mut self, kind: ReplyKind, frame: WrittenFrame) {
        self.arriving.note_reply();
        self.push_unsolicited(self.arriving.lane(), kind, frame);
    }

    /// Counts a reply that will be sent later, on the lane of the frame that is being read. Returns this lane.
    pub(super) fn owe(&mut self) -> Lane {
        self.arriving.note_reply();
        self.outbox.owe(self.arriving.lane());
        self.arriving.lane()
    }
}
