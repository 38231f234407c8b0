//! The effect of the peer's messages on the session: one function for each kind, one transition in each.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use super::call::Call;
use super::depth;
use super::outbox::Class;
use super::peer_ids::Owner;
use super::progress::Seen;
use super::{Asked, CloseReason, Event, InboundId, InputFailed, InputKey, Invalid, OutboundId, Outcome, Question, Serve, Session};
use crate::config::DepthInference;
use crate::dialect::{
    Ask, Change, Fit, Greeting, GreetingAnswer, GreetingFailed, GreetingRefused, Level, LogRecord, Message, Op, Params, PeerInfo,
    Progress, ResponseBody,
};
use crate::error::{RpcError, Violation};
use crate::json::{Json, Text};
use crate::wire::{Draft, WireId};

/// The thing that a response to an exchange of ours ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Greeting,
    Call(OutboundId),
    Question(InputKey),
}

impl Session {
    /// Reads a frame of the peer, and does what it says.
    pub(super) fn receive(&mut self, frame: Bytes) {
        self.stats.frames_in = self.stats.frames_in.saturating_add(1);
        self.stats.bytes_in = self.stats.bytes_in.saturating_add(frame.len() as u64);
        if frame.len() > self.config.limits.frame_bytes {
            return self.refuse_frame();
        }
        let message = self.dialect.read(&frame);
        self.take(message, frame);
    }

    /// Does what `frame` says.
    fn take(&mut self, message: Message, frame: Bytes) {
        match message {
            Message::Response { number, body } => self.take_response(number, body.cut(frame)),
            Message::Progress { number, progress, partial } => self.take_progress(number, progress, partial),
            Message::Request { id, op, params, token, depth } => self.take_request(id, op, params.cut(frame), token, depth),
            Message::Ask { id, ask, parent, depth } => self.take_ask(id, *ask, parent, depth),
            Message::Cancel { id, reason } => self.take_cancel(&id, reason),
            Message::Changed(change) => self.take_change(change),
            Message::Ping { id } => {
                self.answer(id, |session, id| session.dialect.write_result(session.outbox.frames(), id, &Json::empty_object()))
            }
            Message::SetLevel { id, level } => self.take_level(id, level),
            Message::Greeting { id, greeting } => self.take_greeting(id, greeting),
            Message::Greeted => self.take_confirmation(),
            Message::Log { record, invocation } => self.take_log(record, invocation),
            Message::Notice(notice) if self.handshake.serves() => self.tell(Event::Notice(notice)),
            Message::Notice(_) => self.violation(Violation::OutOfPhase),
            Message::Batch(all) => {
                for message in all {
                    if self.is_closed() {
                        break;
                    }
                    self.take(message, frame.clone());
                }
            }
            Message::Reject { violation, answer } => self.take_reject(violation, answer),
        }
    }

    // ---- Exchanges of ours ----

    /// The thing that waits for the response to an exchange of ours. Its first exchange has its own number. A number below `next` that
    /// nothing has is late.
    fn exchange(&self, number: u64) -> Option<Exchange> {
        let (call, key) = (OutboundId(number), InputKey(number));
        if self.calls.get(&call).is_some_and(|call| !call.is_held()) {
            Some(Exchange::Call(call))
        } else if self.questions.get(&key).is_some_and(|question| !question.is_held()) {
            Some(Exchange::Question(key))
        } else {
            (self.handshake.is_opened() && number == self.config.first_id()).then_some(Exchange::Greeting)
        }
    }

    /// O9, O12, O13, O26, O28.
    fn take_response(&mut self, number: Option<u64>, body: ResponseBody) {
        let number = number.filter(|number| *number < self.next);
        let Some(number) = number else { return self.violation(Violation::UnknownResponse) };
        let Some(exchange) = self.exchange(number) else {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
            return;
        };
        match exchange {
            Exchange::Greeting => self.take_greeting_answer(body),
            Exchange::Call(id) => {
                let Some(call) = self.calls.get_mut(&id) else { return };
                // What has not left cannot be answered: the number was guessed.
                if call.ticket().is_some_and(|ticket| self.outbox.holds(ticket)) {
                    return self.violation(Violation::UnknownResponse);
                }
                if call.is_given_up() {
                    if let ResponseBody::Error(error) = &body {
                        call.note_partial(self.dialect.read_partial(error));
                    }
                    return self.finish_call(id, Outcome::Cancelled);
                }
                let (fit, outcome) = match body {
                    ResponseBody::Result(result) => (self.dialect.fit(number, call.op(), &result), Outcome::Result(result)),
                    ResponseBody::Error(error) => (Fit::Fits, Outcome::Error(error)),
                    ResponseBody::Malformed => (Fit::Wrong, Outcome::Invalid(Invalid::Response)),
                };
                if fit != Fit::Fits {
                    self.violation(Violation::InvalidResponse);
                }
                self.finish_call(id, if fit == Fit::Wrong { Outcome::Invalid(Invalid::Response) } else { outcome });
            }
            Exchange::Question(key) => self.take_answer(key, body),
        }
    }

    /// I12.
    fn take_answer(&mut self, key: InputKey, body: ResponseBody) {
        if self.questions.get(&key).and_then(Question::ticket).is_some_and(|ticket| self.outbox.holds(ticket)) {
            return self.violation(Violation::UnknownResponse);
        }
        let Some(question) = self.close_question(key) else { return };
        let answer = match body {
            ResponseBody::Result(result) => self.dialect.read_answer(question.ask(), &result).map_err(InputFailed::Invalid),
            ResponseBody::Error(error) => Err(InputFailed::Refused(error)),
            ResponseBody::Malformed => Err(InputFailed::Invalid(Text::from_static("it is neither a result nor a proper error"))),
        };
        if matches!(answer, Err(InputFailed::Invalid(_))) {
            self.violation(Violation::InvalidResponse);
        }
        self.bring_answer(key, &question, answer);
    }

    /// O5, O6, O27.
    fn take_progress(&mut self, number: Option<u64>, progress: Progress, partial: Option<Box<Json>>) {
        let number = number.filter(|number| *number < self.next);
        let Some(number) = number else { return self.drop_stray_progress(Violation::UnknownProgress) };
        let id = OutboundId(number);
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.is_held() && !call.is_given_up()) else {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
            return;
        };
        if !call.is_observed() || call.ticket().is_some_and(|ticket| self.outbox.holds(ticket)) {
            return self.drop_stray_progress(Violation::UnknownProgress);
        }
        // The window in which a flood is reported once: the one that we would keep ourselves.
        let quiet = self.config.progress.window.length;
        match call.see(progress, partial.map(|partial| *partial), self.now, self.rules, quiet) {
            Seen::Accepted { progress, .. } => {
                self.arm_call(id);
                self.tell(Event::Progress { id, progress });
            }
            Seen::Dropped { surfaces } => self.drop_progress(Violation::ProgressNotIncreasing, surfaces),
        }
    }

    /// Drops progress that belongs to no call. A flood of it surfaces once a window, too.
    fn drop_stray_progress(&mut self, rule: Violation) {
        let surfaces = self.now >= self.quiet_until;
        if surfaces {
            self.quiet_until = self.now.saturating_add(self.config.progress.window.length);
        }
        self.drop_progress(rule, surfaces);
    }

    fn drop_progress(&mut self, rule: Violation, surfaces: bool) {
        self.stats.progress_dropped = self.stats.progress_dropped.saturating_add(1);
        if surfaces {
            self.violation(rule);
        } else {
            self.stats.count(rule);
        }
    }

    // ---- Exchanges of the peer ----

    /// I1 to I4.
    fn take_request(&mut self, id: WireId, op: Op, params: Params, token: Option<WireId>, claimed: u8) {
        if !self.handshake.serves() {
            return self.refuse(id, Some(Violation::OutOfPhase), |session| {
                session.dialect.too_early("the first request must be the handshake")
            });
        }
        if !self.ending.is_open() {
            return self.refuse(id, None, |session| session.dialect.busy(true));
        }
        if self.serves.len() >= self.config.limits.in_flight {
            return self.refuse(id, Some(Violation::TooManyRequests), |session| session.dialect.busy(false));
        }
        let name = token.as_ref().filter(|_| self.rules.names_invocations);
        if name.is_some_and(|name| self.names.contains_key(name)) {
            return self.refuse(id, Some(Violation::DuplicateRequest), |_| {
                RpcError::fixed(RpcError::INVALID_REQUEST, "an invocation of that name is active")
            });
        }
        let inbound = InboundId(self.next);
        if !self.take_id(&id, Owner::Serve(inbound)) {
            return;
        }
        self.number();
        if let Some(name) = name {
            self.names.insert(name.clone(), inbound);
        }
        let depth = claimed.max(self.inferred_depth());
        let observed = token.is_some();
        self.serves.insert(inbound, Serve::new(id, op.clone(), token, depth, self.now));
        self.tell(Event::Request { id: inbound, op, params, depth, observed });
        if let Some(deadline) = self.config.timeouts.serve {
            self.arm_serve(inbound, deadline);
        }
    }

    fn inferred_depth(&self) -> u8 {
        match self.config.depth.inference {
            DepthInference::Off => 0,
            DepthInference::DeepestOpen => {
                let open = self.questions.values().filter(|question| matches!(question.ask(), Ask::Sample(_)));
                open.map(Question::depth).max().unwrap_or_default()
            }
        }
    }

    /// Says whether this was the number of an exchange of ours that is over, or that was given up.
    fn was_ours(&self, number: u64) -> bool {
        let is_over = match self.exchange(number) {
            Some(Exchange::Call(id)) => self.calls.get(&id).is_some_and(Call::is_given_up),
            Some(Exchange::Question(_) | Exchange::Greeting) => false,
            None => true,
        };
        is_over && (self.config.first_id()..self.next).contains(&number)
    }

    /// O8.
    fn take_ask(&mut self, id: WireId, ask: Ask, named: Option<u64>, claimed: u8) {
        if !self.handshake.asks() {
            return self
                .refuse(id, Some(Violation::OutOfPhase), |session| session.dialect.too_early("the handshake is not through"));
        }
        if !self.ending.may_write() {
            return self.refuse(id, None, |session| session.dialect.busy(true));
        }
        let parent = self.parent_of_ask(named);
        if parent.is_none() && self.rules.names_invocations {
            // One that crosses the end of its call breaks no rule.
            let is_late = named.is_some_and(|number| self.was_ours(number));
            self.stats.late_frames = self.stats.late_frames.saturating_add(u64::from(is_late));
            let violation = (!is_late).then_some(Violation::UndeclaredInput);
            return self.refuse(id, violation, |session| session.dialect.no_such_call());
        }
        let inherited = parent.and_then(|id| self.calls.get(&id)).map_or(0, Call::depth);
        let (depth, max) = (depth::of_question(&ask, inherited, claimed), self.config.depth.max);
        if !depth::is_allowed(&ask, depth, max) {
            return self.refuse(id, Some(Violation::SamplingTooDeep), |session| session.dialect.too_deep(depth, max));
        }
        if self.asked.len() >= self.config.limits.in_flight {
            return self.refuse(id, Some(Violation::TooManyRequests), |session| session.dialect.busy(false));
        }
        let key = InputKey(self.next);
        if !self.take_id(&id, Owner::Asked(key)) {
            return;
        }
        self.number();
        self.asked.insert(key, Asked::new(id, parent, depth));
        if let Some(parent) = parent {
            if let Some(call) = self.calls.get_mut(&parent) {
                call.open_question(key);
            }
            self.arm_call(parent);
        }
        self.tell(Event::InputRequested { key, parent, ask, depth });
    }

    /// The call that a question belongs to: the one that the wire names, else the deepest in flight, the newest among equals.
    fn parent_of_ask(&self, named: Option<u64>) -> Option<OutboundId> {
        // What has not left cannot have caused a question.
        let may_ask = |op: &Op| !op.is_probe() && (!self.rules.names_invocations || self.dialect.is_cancellable(op));
        let has_left = |call: &Call| may_ask(call.op()) && call.ticket().is_some_and(|ticket| !self.outbox.holds(ticket));
        let named = named.map(OutboundId).filter(|id| self.calls.get(id).is_some_and(has_left));
        if self.rules.names_invocations {
            return named;
        }
        named.or_else(|| {
            let in_flight = self.calls.iter().filter(|(_, call)| has_left(call));
            in_flight.max_by_key(|(id, call)| (call.depth(), *id)).map(|(id, _)| id)
        })
    }

    /// I14, I17 to I19, O22.
    fn take_cancel(&mut self, id: &WireId, reason: Option<Text>) {
        let owner =
            if self.rules.names_invocations { self.names.get(id).copied().map(Owner::Serve) } else { self.peer_ids.owner(id) };
        match owner {
            Some(Owner::Serve(inbound)) => self.cancel_by_peer(inbound, reason),
            Some(Owner::Asked(key)) => {
                if let Some(asked) = self.withdraw_asked(key) {
                    self.close_question_of_call(asked.parent(), key);
                }
            }
            // Unknown, finished or of the other direction: all are ignored. Only the handshake must not be named.
            None => {
                if self.handshake.is_answer_to(id) {
                    self.violation(Violation::CancelledHandshake);
                }
            }
        }
    }

    /// Makes an id of the peer live. `false` if it is live already: then nothing may be answered, since that would end the first.
    fn take_id(&mut self, id: &WireId, owner: Owner) -> bool {
        if self.peer_ids.owner(id).is_some() {
            self.violation(Violation::DuplicateRequest);
            return false;
        }
        if self.peer_ids.insert(id.clone(), owner) {
            self.violation(Violation::ReusedId);
        }
        true
    }

    /// Hands a log record on, unless it was written on behalf of a call that is over.
    fn take_log(&mut self, record: LogRecord, invocation: Option<u64>) {
        let is_live = |number: u64| self.exchange(number).is_some() && !self.was_ours(number);
        if invocation.is_none_or(is_live) {
            self.tell(Event::Log(record));
        } else {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
        }
    }

    // ---- Replies that belong to no invocation ----

    fn take_level(&mut self, id: WireId, level: Level) {
        if !self.handshake.serves() {
            return self.refuse(id, Some(Violation::OutOfPhase), |session| {
                session.dialect.too_early("the first request must be the handshake")
            });
        }
        self.answer(id, |session, id| {
            session.log_level = level;
            session.dialect.write_result(session.outbox.frames(), id, &Json::empty_object())
        });
    }

    fn take_reject(&mut self, violation: Option<Violation>, answer: Option<(Option<WireId>, RpcError)>) {
        match answer {
            Some((Some(id), error)) => self.refuse(id, violation, |_| error),
            Some((None, error)) => {
                if let Some(rule) = violation {
                    self.violation(rule);
                }
                let frame = self.dialect.write_error(self.outbox.frames(), None, &error);
                self.push_stray(frame);
            }
            None => match violation {
                Some(rule @ Violation::InvalidProgress) => self.drop_stray_progress(rule),
                Some(rule) => self.violation(rule),
                None => {}
            },
        }
    }

    /// I2: an error, and no state is kept.
    fn refuse(&mut self, id: WireId, violation: Option<Violation>, error: impl FnOnce(&Self) -> RpcError) {
        if let Some(rule) = violation {
            self.violation(rule);
        }
        self.answer(id, |session, id| {
            let error = error(session);
            session.dialect.write_error(session.outbox.frames(), Some(id), &error)
        });
    }

    /// Answers at once, unless the id is that of a request in flight: the answer would end that one.
    fn answer(&mut self, id: WireId, write: impl FnOnce(&mut Self, &WireId) -> Draft) {
        if self.handshake.is_asked_by(&id) || self.peer_ids.owner(&id).is_some() {
            return self.violation(Violation::DuplicateRequest);
        }
        let frame = write(self, &id);
        self.push_stray(frame);
    }

    // ---- The handshake ----

    /// Sends the greeting of an end that speaks first, and starts the time of the handshake.
    pub(super) fn begin(&mut self) {
        let deadline = self.config.timeouts.handshake.map(|span| self.now.saturating_add(span));
        if self.rules.opens {
            let exchange = self.number();
            let frame = self.dialect.write_greeting(self.outbox.frames(), exchange);
            self.outbox.push(Class::Bound, frame);
            self.handshake.open();
        }
        match deadline {
            Some(at) if at <= self.now => self.fail(CloseReason::HandshakeTimeout),
            at => self.handshake.arm(at, &mut self.timers),
        }
    }

    fn take_greeting(&mut self, id: WireId, greeting: Result<Greeting, GreetingRefused>) {
        if !self.handshake.is_fresh() {
            return self.refuse(id, Some(Violation::OutOfPhase), |_| {
                RpcError::fixed(RpcError::INVALID_REQUEST, "the handshake was made before")
            });
        }
        // While what runs goes on, what waits for the handshake may still go out.
        if !self.ending.may_write() {
            return self.refuse(id, None, |session| session.dialect.busy(true));
        }
        match greeting {
            Err(GreetingRefused { error, is_final }) => {
                self.refuse(id, Some(Violation::InvalidParams), |_| error);
                if is_final {
                    self.drain(CloseReason::VersionMismatch);
                }
            }
            Ok(Greeting { peer, answer: GreetingAnswer::Result(answer) }) => self.answer_greeting(id, &answer, peer),
            Ok(Greeting { peer, answer: GreetingAnswer::Owner(resume) }) => {
                self.handshake.ask_owner(id, peer.clone());
                self.tell(Event::Greeting { peer, resume });
            }
        }
    }

    /// Fresh, Asked -> Answered.
    pub(super) fn answer_greeting(&mut self, id: WireId, answer: &Json, peer: Box<PeerInfo>) {
        let frame = self.dialect.write_result(self.outbox.frames(), &id, answer);
        self.outbox.push(Class::Bound, frame);
        self.handshake.answer(id);
        self.meet(peer);
    }

    /// Answered -> Ready.
    pub(super) fn confirm(&mut self) {
        self.handshake.complete();
        self.release_held();
    }

    /// Told before the peer's half of the handshake it counts from then on.
    fn take_change(&mut self, change: Box<Change>) {
        let Some(peer) = &mut self.peer else {
            self.change = Some(change);
            return;
        };
        peer.identity = change.identity;
        if let Some((capabilities, declared)) = change.capabilities {
            (peer.capabilities, peer.declared) = (capabilities, declared);
        }
        if let Some(pass) = &mut peer.pass {
            pass.claim_code = None;
        }
        let peer = peer.clone();
        self.tell(Event::PeerChanged(peer));
    }

    fn take_confirmation(&mut self) {
        if !self.handshake.serves() {
            self.violation(Violation::OutOfPhase);
        } else if !self.handshake.asks() {
            self.confirm();
        }
    }

    fn take_greeting_answer(&mut self, body: ResponseBody) {
        let answer = match body {
            ResponseBody::Result(result) => self.dialect.read_greeting_answer(&result),
            ResponseBody::Error(error) => {
                self.tell(Event::HandshakeRefused(error));
                Err(GreetingFailed::Malformed)
            }
            ResponseBody::Malformed => Err(GreetingFailed::Malformed),
        };
        match answer {
            Ok(peer) => {
                self.handshake.complete();
                self.meet(peer.into());
                if let Some(frame) = self.dialect.write_greeted(self.outbox.frames()) {
                    self.outbox.push(Class::Bound, frame);
                }
                self.release_held();
                if let Some(change) = self.change.take() {
                    self.take_change(change);
                }
            }
            Err(GreetingFailed::Malformed) => self.fail(CloseReason::HandshakeRefused),
            Err(GreetingFailed::Version) => self.fail(CloseReason::VersionMismatch),
        }
    }

    fn meet(&mut self, peer: Box<PeerInfo>) {
        self.handshake.arm(None, &mut self.timers);
        self.dialect.agree(&peer);
        self.peer = Some(peer.clone());
        self.tell(Event::Ready(peer));
    }

    /// Sends what waited for the handshake, oldest first.
    fn release_held(&mut self) {
        for id in self.calls.ids() {
            self.release_call(id);
        }
        let questions: Vec<_> = self.questions.keys().copied().collect();
        for key in questions {
            self.release_question(key);
        }
    }
}
