//! Closing: the causes for which a session ends, and the steps until it is closed.

use alloc::vec::Vec;
use core::time::Duration;

use super::Session;
use super::event::{CancelReason, CloseReason, Event, InputFailed, Outcome};
use super::route::{Lane, ReplyKind};
use super::types::Close;
use crate::dialect::{CutShort, Rules};
use crate::error::{RpcError, Violation};
use crate::time::Instant;

impl Session {
    /// Closes the session; see [`Close`]. [`Event::Closed`] comes when every call has ended and the last frame was polled, at the latest
    /// [`crate::Timeouts::close_grace`] after the last call has ended. If this method is called again, it can only shorten the grace. It
    /// has no effect on a session that is closed.
    pub fn close(&mut self, how: Close, now: Instant) {
        self.advance(now);
        self.begin_end(
            CloseReason::Local,
            match how {
                Close::Graceful { grace } => grace,
                Close::Now => Duration::ZERO,
            },
        );
        self.tidy();
    }

    // ---- Causes ----

    /// Handles the end of input: outbound calls are lost. Inbound calls are still answered if `Rules::outlives_input` is `true`, and are
    /// cancelled otherwise. From now on only replies are sent: a peer that has ended its side waits for these at most, and some peers fail
    /// at anything else.
    pub(super) fn end_of_input(&mut self) {
        self.ending.end_of_input();
        self.drop_reports();
        self.lose_calls();
        if !self.rules.outlives_input {
            self.cancel_inbound_calls(None, &CancelReason::Disconnected);
        }
        self.begin_end(CloseReason::Eof, self.config.timeouts.close_grace);
    }

    /// Replies with an error to a frame that is too large, if `Rules::answers_unreadable` is `true`. On the channel such a frame also ends
    /// the session, since the beginning of the next frame is not known.
    pub(super) fn refuse_frame(&mut self) {
        self.violation(Violation::FrameTooLarge);
        let lane = self.arriving.lane();
        if self.rules.answers_unreadable {
            let error = RpcError::fixed(RpcError::INVALID_REQUEST, Violation::FrameTooLarge.as_str());
            let frame = self.rules.dialect.write_error(self.outbox.frames(), None, &error);
            self.reply_at_once(ReplyKind::Refused, frame);
        }
        if lane != Lane::CHANNEL {
            // Other lanes are not affected: each has a framing of its own.
            return;
        }
        self.lose_calls();
        self.cancel_inbound_calls(None, &CancelReason::Disconnected);
        self.drain(CloseReason::FrameTooLarge);
    }

    /// Ends everything immediately, and discards queued output.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        self.lose_calls();
        self.cancel_inbound_calls(None, &CancelReason::Disconnected);
        self.close_now(reason);
    }

    // ---- Steps ----

    /// Open -> Finishing. If the session is finishing already, a further cause can only shorten the grace.
    fn begin_end(&mut self, reason: CloseReason, grace: Duration) {
        let why = if reason == CloseReason::Local { CancelReason::Closing } else { CancelReason::Disconnected };
        self.end_subscriptions(&why);
        let is_grace_over = self.ending.finish(reason, self.now.saturating_add(grace), self.now, &mut self.timers);
        if is_grace_over {
            self.expire_ending();
        }
    }

    /// Ends the current state when its grace is over: cancels the calls that still run, or discards the frames that were not polled.
    pub(super) fn expire_ending(&mut self) {
        if let Some(reason) = self.ending.finishing() {
            for id in self.outbound_calls.ids() {
                self.settle_call(id, Outcome::Cancelled, Some("closing"));
            }
            // If the session ends because the input has ended, a call that is cut short gets no reply.
            let answer = (reason == CloseReason::Local).then_some(CutShort::Closing);
            let why = if answer.is_some() { CancelReason::Closing } else { CancelReason::Disconnected };
            self.cancel_inbound_calls(answer, &why);
            for key in self.inbound_inputs.keys().copied().collect::<Vec<_>>() {
                self.refuse_inbound_input(key);
            }
            self.drain(reason);
        } else if let Some(reason) = self.ending.draining() {
            self.close_now(reason);
        }
    }

    /// Open, Finishing -> Draining. All calls must have been ended before; responses that are delayed are queued now.
    pub(super) fn drain(&mut self, reason: CloseReason) {
        let until = Some(self.now.saturating_add(self.config.timeouts.close_grace)).filter(|until| *until > self.now);
        if !self.ending.stop_work(reason, until, &mut self.timers) {
            return;
        }
        for id in self.inbound_calls.ids() {
            self.release_response(id);
        }
        self.handshake.arm(None, &mut self.timers);
        if until.is_none() {
            self.close_now(reason);
        }
    }

    /// Finishing -> Draining if no call runs any longer and no input request of the peer is open; Draining -> Closed if no frame is left. A
    /// part of [`Session::tidy`].
    pub(super) fn settle_ending(&mut self) {
        if let Some(reason) = self.ending.finishing() {
            // Cancelled calls stay in `inbound_calls` until their handlers end, which is not waited for.
            let idle = self.outbound_calls.is_empty()
                && self.inbound_inputs.is_empty()
                && self.inbound_calls.len() == self.cancelled_calls;
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

    /// Any state -> Closed. Nothing follows this transition (G4).
    fn close_now(&mut self, reason: CloseReason) {
        if !self.ending.close(&mut self.timers) {
            return;
        }
        self.handshake.arm(None, &mut self.timers);
        self.progress_queue.clear(&mut self.timers);
        self.alarms.clear();
        self.timers.clear();
        self.outbox.clear();
        self.subscriber.clear();
        self.peer_ids.clear();
        self.names.clear();
        self.inbound_calls.clear();
        (self.cancelled_calls, self.request_bytes) = (0, 0);
        self.push_event(Event::Closed(reason));
    }

    // ---- Lanes ----

    /// Handles the loss of a lane: exchanges that end with their lane are lost, and everything else goes on.
    pub(super) fn lose_lane(&mut self, lane: Lane) {
        self.lose_inbound_by(lane, |rules| rules.lane_bound);
        // Frames of exchanges that outlive the lane are still polled, so a stop of the lane no longer applies.
        self.outbox.set_writable(lane, true);
        self.use_room(lane);
        if self.rules.lane_bound {
            self.lose_handshake_request(lane);
            self.forget_lane(lane);
        }
        self.outbox.note_idle(lane);
    }

    /// Closes a lane on which too much is queued, since the peer does not read it. If the lane is the channel, the session ends.
    pub(super) fn give_lane_up(&mut self, lane: Lane) {
        if lane == Lane::CHANNEL {
            return self.fail(CloseReason::Overload);
        }
        self.lose_inbound_by(lane, |_| true);
        self.lose_handshake_request(lane);
        self.forget_lane(lane);
        self.push_event(Event::LaneClosed { lane, reason: CloseReason::Overload });
    }

    /// Ends the exchanges of the peer that came by a lane, if `is_lost` is `true` for their rules.
    fn lose_inbound_by(&mut self, lane: Lane, is_lost: impl Fn(&Rules) -> bool) {
        let inbound_calls = self.inbound_calls.iter().filter(|(_, inbound)| inbound.lane() == lane && is_lost(inbound.rules()));
        let mut inbound_calls: Vec<_> = inbound_calls.map(|(id, _)| id).collect();
        inbound_calls.sort_unstable();
        for id in inbound_calls {
            self.lose_inbound_call(id);
        }
        let inputs = self.inbound_inputs.iter().filter(|(_, input)| input.came_by(lane) && is_lost(input.rules()));
        for key in inputs.map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some(input) = self.withdraw_inbound_input(key) {
                self.close_input_of_call(input.parent(), key);
            }
        }
    }

    /// Forgets a handshake request that waits for the owner, if it came by this lane, which is lost. By the time the owner decides, the
    /// number of the lane may belong to another stream.
    fn lose_handshake_request(&mut self, lane: Lane) {
        if self.handshake.forget_asked(lane) {
            self.outbox.settle(lane);
        }
    }

    /// Drops the output of a lane other than the channel.
    fn forget_lane(&mut self, lane: Lane) {
        if let Some(queue) = self.outbox.queue_mut(lane).filter(|_| lane != Lane::CHANNEL) {
            queue.overload().stop(lane, &mut self.timers);
            self.outbox.close(lane);
        }
    }

    // ---- All calls and input requests ----

    /// Ends every outbound call as lost, and every input request in both directions.
    fn lose_calls(&mut self) {
        for key in self.outbound_inputs.keys().copied().collect::<Vec<_>>() {
            if let Some(input) = self.close_outbound_input(key) {
                if let Some(ticket) = input.ticket() {
                    self.outbox.withdraw(ticket);
                }
                self.deliver_answer(key, &input, Err(InputFailed::Lost));
            }
        }
        for key in self.inbound_inputs.keys().copied().collect::<Vec<_>>() {
            self.withdraw_inbound_input(key);
        }
        for id in self.outbound_calls.ids() {
            self.settle_call(id, Outcome::Lost, None);
        }
    }

    /// Drops kept progress, and all queued frames that are neither replies nor requests. The requests are those of calls and input requests
    /// that end as lost.
    fn drop_reports(&mut self) {
        for id in self.inbound_calls.ids() {
            if let Some(inbound) = self.inbound_calls.get_mut(&id) {
                inbound.drop_update(id, &mut self.progress_queue, &mut self.timers);
            }
        }
        self.outbox.withdraw_all_reports();
    }

    /// Cancels every inbound call. If `answer` is `Some`, a reply is sent for each.
    fn cancel_inbound_calls(&mut self, answer: Option<CutShort>, why: &CancelReason) {
        for id in self.inbound_calls.ids() {
            match answer {
                Some(how) => self.cut_short(id, how, why.clone()),
                None => self.cancel_inbound_call(id, why.clone()),
            }
        }
    }
}
