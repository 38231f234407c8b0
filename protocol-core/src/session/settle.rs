//! How things end: calls, invocations, questions, and the session itself.

use alloc::vec::Vec;
use core::time::Duration;

use super::call::Withdrawal;
use super::outbox::{Class, Outbox, Ticket};
use super::{
    Asked, Clock, CloseReason, Event, InboundId, InputFailed, InputKey, OutboundId, Outcome, Question, Serve, Session, TimerKey,
    Why,
};
use crate::dialect::{Answer, Ask, CutShort, Reply};
use crate::error::{RpcError, Violation};
use crate::json::Text;
use crate::wire::{Draft, WireId};

impl Session {
    // ---- Deadlines ----

    pub(super) fn expire(&mut self, key: TimerKey) {
        match key {
            TimerKey::Handshake => {
                self.handshake.forget_armed();
                self.fail(CloseReason::HandshakeTimeout);
            }
            TimerKey::Close => {
                self.ending.forget_armed();
                self.close_is_due();
            }
            // Whoever waits in line is served when all that is due has happened.
            TimerKey::Line => self.line.forget_armed(),
            TimerKey::Overload => {
                self.overload.forget_armed();
                self.fail(CloseReason::Overload);
            }
            TimerKey::Call(id) => {
                let Some(call) = self.calls.get_mut(&id) else { return };
                call.forget_armed();
                let clock = call.deadline().map_or(Clock::MaxTotal, |(_, clock)| clock);
                let is_probe = call.op().is_probe();
                self.settle_call(id, Outcome::TimedOut(clock), Some("timed out"));
                if is_probe {
                    self.violation(Violation::PingUnanswered);
                }
            }
            TimerKey::Question(key) => {
                if let Some(question) = self.questions.get_mut(&key) {
                    question.forget_armed();
                }
                if let Some(question) = self.take_question_back(key, Some("timed out")) {
                    self.bring_answer(key, &question, Err(InputFailed::TimedOut));
                }
            }
            TimerKey::Serve(id) => {
                if let Some(serve) = self.serves.get_mut(&id) {
                    serve.forget_deadline();
                }
                self.pass_deadline(id);
            }
            TimerKey::Flush(id) => {
                self.forget_wait(id);
                self.flush(id, false);
            }
            TimerKey::Release(id) => {
                self.forget_wait(id);
                self.release_response(id);
            }
            TimerKey::Alarm(id) => {
                self.alarms.remove(&id);
                self.tell(Event::Alarm(id));
            }
        }
    }

    /// A flush or a release has come.
    fn forget_wait(&mut self, id: InboundId) {
        if let Some(serve) = self.serves.get_mut(&id) {
            serve.forget_wait();
        }
    }

    // ---- Calls of ours ----

    /// O4, O14 to O17, O25: gives a call up. What was not polled out is never sent.
    pub(super) fn settle_call(&mut self, id: OutboundId, outcome: Outcome, reason: Option<&str>) {
        let Some(call) = self.calls.get(&id) else { return };
        let outcome = if call.is_given_up() { Outcome::Cancelled } else { outcome };
        if let Withdrawal::Request(ticket) = call.withdrawal() {
            let speaks = self.dialect.is_cancellable(call.op()) && !matches!(outcome, Outcome::Lost);
            let unsent = self.outbox.withdraw(ticket);
            if !unsent && speaks {
                self.push_cancel(id.0, reason);
            }
        }
        self.finish_call(id, outcome);
    }

    /// O14 with a grace: what has left is cancelled, and may still tell what it did. Anything else ends at once.
    pub(super) fn give_call_up(&mut self, id: OutboundId, reason: Option<&str>) {
        let grace = self.config.timeouts.cancel_grace;
        let until = self.now.saturating_add(grace);
        let Some(call) = self.calls.get_mut(&id) else { return };
        let has_left = call.ticket().is_some_and(|ticket| !self.outbox.holds(ticket));
        let waits = self.rules.answers_cancelled && until > self.now && has_left && self.dialect.is_cancellable(call.op());
        if !waits {
            return self.settle_call(id, Outcome::Cancelled, reason);
        }
        let questions = call.take_questions();
        call.give_up(until);
        self.push_cancel(id.0, reason);
        for key in questions {
            self.refuse_asked(key);
        }
        self.arm_call(id);
    }

    /// The end of a call, on whoever's account: its questions close, then it is done.
    pub(super) fn finish_call(&mut self, id: OutboundId, outcome: Outcome) {
        let timers = &mut self.timers;
        let ended = self.calls.end(&id, |call| {
            call.disarm(id, timers);
            (call.held_bytes(), call.take_heard())
        });
        let Some((held_bytes, heard)) = ended else { return };
        self.held_bytes = self.held_bytes.saturating_sub(held_bytes);
        let (mut partial, mut last) = (None, None);
        if let Some(heard) = heard {
            let questions;
            (partial, last, questions) = heard.into_parts();
            for key in questions {
                self.refuse_asked(key);
            }
        }
        let partial = match &outcome {
            Outcome::Result(_) => None,
            Outcome::Error(error) => self.dialect.read_partial(error).or(partial),
            _ => partial,
        };
        self.tell(Event::Done { id, outcome, partial, last });
    }

    // ---- Questions of the peer ----

    /// The call that a question belonged to is over: it is answered with an error at once.
    fn refuse_asked(&mut self, key: InputKey) {
        let Some(asked) = self.withdraw_asked(key) else { return };
        if self.ending.may_write() {
            let error = self.dialect.call_is_over();
            let frame = self.dialect.write_answer(self.outbox.frames(), asked.exchange(), &Answer::Refused(error));
            self.push_bound(frame, asked.exchange());
        }
    }

    /// A question of the peer needs no answer any longer.
    pub(super) fn withdraw_asked(&mut self, key: InputKey) -> Option<Asked> {
        let asked = self.asked.remove(&key)?;
        self.peer_ids.retire(asked.exchange());
        self.tell(Event::InputGone { key });
        Some(asked)
    }

    /// The idle clock of the call goes on.
    pub(super) fn close_question_of_call(&mut self, parent: Option<OutboundId>, key: InputKey) {
        let Some(parent) = parent else { return };
        if let Some(call) = self.calls.get_mut(&parent) {
            call.close_question(key, self.now);
            self.arm_call(parent);
        }
    }

    // ---- Questions of ours ----

    /// The question is over on the wire.
    pub(super) fn close_question(&mut self, key: InputKey) -> Option<Question> {
        let mut question = self.questions.remove(&key)?;
        question.arm(key, None, &mut self.timers);
        if let Some(serve) = self.serves.get_mut(&question.asker()) {
            serve.close_question(key);
        }
        Some(question)
    }

    /// The question is wanted no longer. What was not polled out is never sent.
    pub(super) fn take_question_back(&mut self, key: InputKey, reason: Option<&str>) -> Option<Question> {
        let question = self.close_question(key)?;
        if let Some(ticket) = question.ticket()
            && !self.outbox.withdraw(ticket)
            && self.rules.cancels_questions
        {
            self.push_cancel(key.0, reason);
        }
        Some(question)
    }

    /// Confirmation never fails: whatever goes wrong is a no.
    pub(super) fn bring_answer(&mut self, key: InputKey, question: &Question, answer: Result<Answer, InputFailed>) {
        let answer = match (question.ask(), answer) {
            (Ask::Confirm { .. }, Err(_)) => Ok(Answer::Confirm(false)),
            (_, answer) => answer,
        };
        self.tell(Event::Input { id: question.asker(), key, answer });
    }

    // ---- Invocations that we serve ----

    /// I13: what is kept of its progress, then the response.
    pub(super) fn settle_serve(&mut self, id: InboundId, reply: &Reply) {
        let Some(frame) = self.write_last(id, reply) else { return };
        let (gap, now) = (self.config.timeouts.response_gap, self.now);
        let Some(serve) = self.serves.get_mut(&id) else { return };
        let release = serve.last_progress().map(|(_, at)| at.saturating_add(gap)).filter(|at| *at > now);
        if let Some(at) = release {
            serve.hold(id, self.outbox.frames().take(frame), at, &mut self.timers);
        } else {
            self.finish_serve(id, |outbox| outbox.push(Class::Bound, frame));
        }
    }

    /// The last words of an invocation: kept progress goes out, the timers stop, questions are taken back; gives the response.
    fn write_last(&mut self, id: InboundId, reply: &Reply) -> Option<Draft> {
        let mut serve = self.serves.get_mut(&id)?;
        if let Some(progress) = serve.take_last_update(self.rules) {
            serve.push_progress(id, &progress, self.now, &mut self.outbox, &self.dialect, &self.config);
        }
        let open = serve.quiet(id, &mut self.timers, &mut self.line);
        if !open.is_empty() {
            self.take_questions_back(open);
            serve = self.serves.get_mut(&id)?;
        }
        let (exchange, token, partial) = (serve.exchange(), serve.token(), serve.checkpoint());
        let frame = self.dialect.write_reply(self.outbox.frames(), exchange, token, serve.op(), reply, partial);
        Some(match frame.len() > self.config.limits.frame_bytes {
            true => self.dialect.write_error(self.outbox.frames(), Some(exchange), &too_large()),
            false => frame,
        })
    }

    fn take_questions_back(&mut self, open: Vec<InputKey>) {
        for key in open {
            self.take_question_back(key, None);
        }
    }

    /// Answered -> gone.
    fn release_response(&mut self, id: InboundId) {
        let Some(serve) = self.serves.get_mut(&id) else { return };
        let Some(frame) = serve.take_held(id, &mut self.timers) else { return };
        self.finish_serve(id, |outbox| outbox.push_apart(Class::Bound, frame));
    }

    /// The end of an invocation: `respond` sends its response out.
    fn finish_serve(&mut self, id: InboundId, respond: impl FnOnce(&mut Outbox) -> Ticket) {
        let names = self.serves.end(&id, Serve::take_names);
        let Some((exchange, token)) = names else { return };
        self.retire(&exchange, token.as_ref());
        respond(&mut self.outbox);
    }

    /// I14, I26: the wire is free at once, whether or not the handler notices.
    pub(super) fn cancel_serve(&mut self, id: InboundId, why: Why) {
        let Some(serve) = self.serves.get_mut(&id) else { return };
        if !serve.cancel() {
            return;
        }
        self.orphans = self.orphans.saturating_add(1);
        if let Some((last, _)) = serve.last_progress() {
            self.outbox.withdraw_progress(id, last);
        }
        let open = serve.quiet(id, &mut self.timers, &mut self.line);
        self.take_questions_back(open);
        self.tell(Event::Cancelled { id, why });
    }

    /// Its time has run out: it is answered, and its handler is told.
    pub(super) fn pass_deadline(&mut self, id: InboundId) {
        self.cut_short(id, CutShort::Deadline, Why::Deadline);
    }

    /// Answers an invocation on our own account, and tells its handler.
    fn cut_short(&mut self, id: InboundId, how: CutShort, why: Why) {
        let Some(serve) = self.serves.get_mut(&id).filter(|serve| serve.is_active()) else { return };
        let reply = self.dialect.cut_short(serve.op(), how, serve.checkpoint());
        // The reply holds the partial result with the status that fits.
        serve.drop_checkpoint();
        let Some(frame) = self.write_last(id, &reply) else { return };
        let Some(serve) = self.serves.get_mut(&id) else { return };
        serve.cancel();
        self.orphans = self.orphans.saturating_add(1);
        let (exchange, token) = (serve.exchange().clone(), serve.token().cloned());
        self.push_bound(frame, &exchange);
        // Answered: the peer may use the id again.
        self.retire(&exchange, token.as_ref());
        self.tell(Event::Cancelled { id, why });
    }

    /// What the peer calls an invocation is free again.
    fn retire(&mut self, exchange: &WireId, token: Option<&WireId>) {
        self.peer_ids.retire(exchange);
        if let Some(token) = token {
            self.names.remove(token);
        }
    }

    /// The peer gives an invocation up. Where it waits for an answer to that it gets one.
    pub(super) fn cancel_by_peer(&mut self, id: InboundId, reason: Option<Text>) {
        if self.rules.answers_cancelled {
            self.cut_short(id, CutShort::Cancelled, Why::Peer(reason));
        } else {
            self.cancel_serve(id, Why::Peer(reason));
        }
    }

    /// The handler of a cancelled invocation has ended.
    pub(super) fn free_orphan(&mut self, id: InboundId) {
        if let Some(exchange) = self.serves.end(&id, |serve| serve.exchange().clone()) {
            self.orphans = self.orphans.saturating_sub(1);
            // A second live exchange of that name may have begun since; it belongs to another invocation.
            if self.peer_ids.owner(&exchange) == Some(super::peer_ids::Owner::Serve(id)) {
                self.peer_ids.retire(&exchange);
            }
        }
    }

    // ---- Output ----

    fn push_cancel(&mut self, exchange: u64, reason: Option<&str>) {
        let mut frame = self.dialect.write_cancel(self.outbox.frames(), exchange, reason);
        if frame.len() > self.config.limits.frame_bytes {
            frame = self.dialect.write_cancel(self.outbox.frames(), exchange, None);
        }
        self.outbox.push(Class::Bound, frame);
    }

    /// A reply that has its place. One that is larger than a frame may be becomes an error.
    pub(super) fn push_bound(&mut self, frame: Draft, exchange: &WireId) {
        let frame = match frame.len() > self.config.limits.frame_bytes {
            true => self.dialect.write_error(self.outbox.frames(), Some(exchange), &too_large()),
            false => frame,
        };
        self.outbox.push(Class::Bound, frame);
    }

    // ---- The end ----

    /// A frame that is too large says that the framing is lost: one error, and the end.
    pub(super) fn refuse_frame(&mut self) {
        self.violation(Violation::FrameTooLarge);
        if self.rules.answers_garbage {
            let error = RpcError::fixed(RpcError::INVALID_REQUEST, Violation::FrameTooLarge.as_str());
            let frame = self.dialect.write_error(self.outbox.frames(), None, &error);
            self.outbox.push(Class::Stray, frame);
        }
        self.lose_calls();
        self.cancel_serves(None, &Why::Disconnected);
        self.drain(CloseReason::FrameTooLarge);
    }

    /// The peer says nothing more: what waits for it is lost, what it has asked for is still answered.
    pub(super) fn end_of_input(&mut self) {
        self.ending.end_of_input();
        self.lose_calls();
        if !self.rules.answers_after_eof {
            self.cancel_serves(None, &Why::Disconnected);
        }
        self.begin_end(CloseReason::Eof, self.config.timeouts.close_grace);
    }

    /// Open -> Finishing; a later call can only bring the end nearer.
    pub(super) fn begin_end(&mut self, reason: CloseReason, grace: Duration) {
        if self.ending.finish(reason, self.now.saturating_add(grace), self.now, &mut self.timers) {
            self.close_is_due();
        }
    }

    /// The grace is over.
    fn close_is_due(&mut self) {
        if let Some(reason) = self.ending.finishing() {
            for id in self.calls.ids() {
                self.settle_call(id, Outcome::Cancelled, Some("closing"));
            }
            // A peer that has ended its side hears no excuse: what it asked for was not done in time.
            let answer = (reason == CloseReason::Local).then_some(CutShort::Closing);
            let why = if answer.is_some() { Why::Closing } else { Why::Disconnected };
            self.cancel_serves(answer, &why);
            for key in self.asked.keys().copied().collect::<alloc::vec::Vec<_>>() {
                self.refuse_asked(key);
            }
            self.drain(reason);
        } else if let Some(reason) = self.ending.draining() {
            self.close_now(reason);
        }
    }

    /// Finishing -> Draining: nothing runs any longer.
    pub(super) fn drain(&mut self, reason: CloseReason) {
        let until = Some(self.now.saturating_add(self.config.timeouts.close_grace)).filter(|until| *until > self.now);
        if !self.ending.drain(reason, until, &mut self.timers) {
            return;
        }
        for id in self.serves.ids() {
            self.release_response(id);
        }
        self.handshake.arm(None, &mut self.timers);
        if until.is_none() {
            self.close_now(reason);
        }
    }

    /// Moves the end on as far as it can go; after every verb.
    pub(super) fn settle_ending(&mut self) {
        if let Some(reason) = self.ending.finishing() {
            let idle = self.calls.is_empty() && self.asked.is_empty() && self.serves.len() == self.orphans;
            if idle {
                self.drain(reason);
            }
        }
        if let Some(reason) = self.ending.draining()
            && self.outbox.is_empty()
        {
            self.close_now(reason);
        }
    }

    /// Everything ends at once, and what waits is discarded.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        self.lose_calls();
        self.cancel_serves(None, &Why::Disconnected);
        self.close_now(reason);
    }

    /// Every call is lost, and every question on both sides is over.
    fn lose_calls(&mut self) {
        for key in self.questions.keys().copied().collect::<alloc::vec::Vec<_>>() {
            if let Some(question) = self.close_question(key) {
                if let Some(ticket) = question.ticket() {
                    self.outbox.withdraw(ticket);
                }
                self.bring_answer(key, &question, Err(InputFailed::Lost));
            }
        }
        for key in self.asked.keys().copied().collect::<alloc::vec::Vec<_>>() {
            self.withdraw_asked(key);
        }
        for id in self.calls.ids() {
            self.settle_call(id, Outcome::Lost, None);
        }
    }

    /// Every invocation is cancelled, with an answer where there is somebody to hear it.
    fn cancel_serves(&mut self, answer: Option<CutShort>, why: &Why) {
        for id in self.serves.ids() {
            match answer {
                Some(how) => self.cut_short(id, how, why.clone()),
                None => self.cancel_serve(id, why.clone()),
            }
        }
    }

    /// The last transition. G4: nothing follows.
    fn close_now(&mut self, reason: CloseReason) {
        if !self.ending.close(&mut self.timers) {
            return;
        }
        self.handshake.arm(None, &mut self.timers);
        self.overload.stop(&mut self.timers);
        self.line.clear(&mut self.timers);
        self.alarms.clear();
        self.timers.clear();
        self.outbox.clear();
        self.peer_ids.clear();
        self.names.clear();
        self.serves.clear();
        self.orphans = 0;
        self.tell(Event::Closed(reason));
    }
}

/// The answer in the place of one that no frame holds.
fn too_large() -> RpcError {
    RpcError::fixed(RpcError::INTERNAL, "the result is larger than a frame may be")
}
