//! The verbs of a caller: calls of ours, and the peer's questions that nest in them.

use alloc::boxed::Box;

use super::Session;
use super::call::{Call, Clocks, Withdrawal};
use super::event::{Event, InputKey, Invalid, OutboundId, Outcome};
use super::input::Asked;
use super::outbox::Class;
use super::verbs::{Invoke, InvokeError, NotLive, Refused};
use crate::dialect::{Answer, Capabilities, Confirmation, Unfit};
use crate::time::Instant;

impl Session {
    /// Starts a call. Both its clocks start now, also while it is held for the handshake. It ends with exactly one
    /// [`Event::Done`] (G1).
    ///
    /// # Errors
    /// [`InvokeError`] says why it was not made, and hands it back. Nothing has changed.
    pub fn invoke(&mut self, call: Invoke, now: Instant) -> Result<OutboundId, InvokeError> {
        self.advance(now);
        self.make(call, true)
    }

    /// Gives a call up: [`Outcome::Cancelled`] at once, whatever the transport does, or after [`crate::Timeouts::cancel_grace`] if there is
    /// any. A call that has not been polled out is never sent; otherwise one cancel follows it, with `reason` for the peer's log. A late
    /// answer is swallowed.
    ///
    /// # Errors
    /// [`NotLive`] if it has ended or was given up before.
    pub fn cancel(&mut self, id: OutboundId, reason: Option<&str>, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if self.calls.get(&id).is_none_or(Call::is_given_up) {
            return Err(NotLive);
        }
        self.give_call_up(id, reason);
        self.tidy();
        Ok(())
    }

    /// Answers a question of the peer ([`Event::InputRequested`]).
    ///
    /// # Errors
    /// [`NotLive`] if it was answered before, or is wanted no longer ([`Event::InputGone`]).
    pub fn provide_input(&mut self, key: InputKey, answer: Answer, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let asked = self.asked.remove(&key).ok_or(NotLive)?;
        let frame = self.dialect.write_answer(self.outbox.frames(), asked.exchange(), &answer);
        self.push_bound(frame, asked.exchange());
        self.peer_ids.retire(asked.exchange());
        self.close_question_of_call(asked.parent(), key);
        self.tidy();
        Ok(())
    }
}

impl Session {
    /// Starts a call without a look at the clock, otherwise like [`invoke`](Self::invoke): both its clocks start at the next time that the
    /// session is told, by [`start_clocks`](Self::start_clocks) or by a verb whose `now` is later than all before. Until then
    /// [`poll_timeout`](Self::poll_timeout) asks for one.
    ///
    /// # Errors
    /// As [`invoke`](Self::invoke).
    pub fn invoke_untimed(&mut self, call: Invoke) -> Result<OutboundId, InvokeError> {
        let id = self.make(call, false)?;
        if self.untimed.len() > self.calls.len().saturating_mul(2).saturating_add(16) {
            self.forget_untimed();
        }
        self.untimed.push((id, self.now));
        Ok(id)
    }

    /// Forgets calls that have ended before their clocks started, once those are most.
    #[cold]
    fn forget_untimed(&mut self) {
        self.untimed.retain(|(id, _)| self.calls.get(id).is_some());
    }

    /// Says whether any call of ours has not ended.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Says whether there are calls whose clocks have not started.
    pub fn has_clocks_to_start(&self) -> bool {
        !self.untimed.is_empty()
    }

    /// Starts the clocks of calls that were made without a look at one. `now` must be read after the last of them was made.
    #[inline]
    pub fn start_clocks(&mut self, now: Instant) {
        if self.has_clocks_to_start() {
            self.start_each_clock(now);
        }
    }

    fn start_each_clock(&mut self, now: Instant) {
        // In the order of the calls: deadlines that rise are the quickest to note.
        for (id, then) in &self.untimed {
            let Some(call) = self.calls.get_mut(id) else { continue };
            call.restart(*id, *then, now, &mut self.timers);
        }
        self.untimed.clear();
    }
}

impl Session {
    // ---- Calls ----

    fn make(&mut self, call: Invoke, is_timed: bool) -> Result<OutboundId, InvokeError> {
        match self.admit(&call) {
            Ok(depth) => Ok(self.start(call, depth, is_timed)),
            Err(why) => Err(InvokeError { why, call: Box::new(call) }),
        }
    }

    /// Checks that a call may be made; gives its depth.
    fn admit(&self, call: &Invoke) -> Result<u8, Refused> {
        if !self.ending.is_open() {
            return Err(Refused::Closing);
        }
        if !call.params.is_object() {
            return Err(Refused::Params);
        }
        let depth = match call.parent {
            None => call.depth,
            Some(key) => self.asked.get(&key).map(|asked| asked.depth().max(call.depth)).ok_or(Refused::NoParent)?,
        };
        if self.rules.confirmation == Confirmation::Owner && !self.handshake.asks() {
            let wrong_end = self.dialect.check_op(&call.op, &Capabilities::default()) == Err(Unfit::WrongEnd);
            return Err(if wrong_end { Refused::WrongEnd } else { Refused::NotReady });
        }
        if let Some(peer) = &self.peer {
            self.dialect.check_op(&call.op, &peer.capabilities).map_err(Refused::from)?;
        } else if self.dialect.check_op(&call.op, &Capabilities::default()) == Err(Unfit::WrongEnd) {
            return Err(Refused::WrongEnd);
        }
        let size = call.params.as_bytes().len().saturating_add(self.dialect.envelope_size(&call.op));
        if size > self.config.limits.frame_bytes {
            return Err(Refused::TooLarge);
        }
        let in_flight = self.calls.len().saturating_add(self.events.settled());
        let waiting = self.outbox.bytes().saturating_add(self.held_bytes);
        if in_flight >= self.config.limits.in_flight || waiting >= self.config.limits.output_bytes {
            return Err(Refused::Full);
        }
        Ok(depth)
    }

    fn start(&mut self, call: Invoke, depth: u8, is_timed: bool) -> OutboundId {
        let id = OutboundId(self.number());
        let timeouts = call.timeouts.unwrap_or(self.config.timeouts.call);
        let observed = match self.rules.names_invocations {
            // An invocation with a name may report progress, wanted or not.
            true => self.dialect.is_cancellable(&call.op),
            false => call.progress || (timeouts.reset_on_progress && timeouts.idle.is_some()),
        };
        let clocks = Clocks::start(timeouts, self.now);
        if let Some((_, clock)) = clocks.deadline(false).filter(|(at, _)| *at <= self.now) {
            self.tell(Event::Done { id, outcome: Outcome::TimedOut(clock), partial: None, last: None });
            return id;
        }
        let mut made = if self.handshake.asks() || call.op.is_probe() {
            let frame = self.dialect.write_call(self.outbox.frames(), id.0, &call.op, &call.params, observed, depth);
            Call::in_flight(call.op, self.outbox.push(Class::Bound, frame), depth, clocks, observed)
        } else {
            self.held_bytes = self.held_bytes.saturating_add(call.params.as_bytes().len());
            Call::held(call.op, call.params, depth, clocks, observed)
        };
        if is_timed {
            made.arm(id, &mut self.timers);
        }
        self.calls.insert(id, made);
        id
    }

    pub(super) fn arm_call(&mut self, id: OutboundId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.arm(id, &mut self.timers);
    }

    /// Held -> InFlight, or the end of a call that this peer does not serve.
    pub(super) fn release_call(&mut self, id: OutboundId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some((op, params, observed)) = call.request() else { return };
        let bytes = call.held_bytes();
        if self.peer.as_ref().is_some_and(|peer| self.dialect.check_op(op, &peer.capabilities).is_err()) {
            return self.settle_call(id, Outcome::Invalid(Invalid::Unsupported), None);
        }
        let frame = self.dialect.write_call(self.outbox.frames(), id.0, op, params, observed, call.depth());
        let ticket = self.outbox.push(Class::Bound, frame);
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        call.release(ticket);
    }

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
    fn give_call_up(&mut self, id: OutboundId, reason: Option<&str>) {
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

    /// Ends a call, on either side's account: its questions close, then it is done.
    pub(super) fn finish_call(&mut self, id: OutboundId, outcome: Outcome) {
        let timers = &mut self.timers;
        let ended = self.calls.end(&id, |call| {
            call.disarm(id, timers);
            (call.held_bytes(), call.take_heard())
        });
        let Some((held_bytes, heard)) = ended else { return };
        self.held_bytes = self.held_bytes.saturating_sub(held_bytes);
        let (mut partial, mut last) = (None, None);
        if let Some(mut heard) = heard {
            let questions;
            (partial, last, questions) = heard.take_parts();
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

    /// Answers a question with an error at once: the call that it belonged to is over.
    pub(super) fn refuse_asked(&mut self, key: InputKey) {
        let Some(asked) = self.withdraw_asked(key) else { return };
        if self.ending.may_write() {
            let error = self.dialect.call_is_over();
            let frame = self.dialect.write_answer(self.outbox.frames(), asked.exchange(), &Answer::Refused(error));
            self.push_bound(frame, asked.exchange());
        }
    }

    /// Takes out a question of the peer that needs no answer any longer.
    pub(super) fn withdraw_asked(&mut self, key: InputKey) -> Option<Asked> {
        let asked = self.asked.remove(&key)?;
        self.peer_ids.retire(asked.exchange());
        self.tell(Event::InputGone { key });
        Some(asked)
    }

    /// Closes a question under a call, whose idle clock goes on.
    pub(super) fn close_question_of_call(&mut self, parent: Option<OutboundId>, key: InputKey) {
        let Some(parent) = parent else { return };
        if let Some(call) = self.calls.get_mut(&parent) {
            call.close_question(key, self.now);
            self.arm_call(parent);
        }
    }
}

impl From<Unfit> for Refused {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Unsupported => Self::Unsupported,
            Unfit::WrongEnd => Self::WrongEnd,
        }
    }
}
