//! The input of a session (frames, the end of the transport, time) and its output (frames, events, one deadline).

use bytes::Bytes;

use super::event::{CloseReason, Event, InputFailed, Outcome, TimeoutKind};
use super::ids::ExchangeId;
use super::lane_queue::{Class, LaneQueue};
use super::route::{Gone, Lane, Received, ReplyKind, Transmit};
use super::timers::TimerKey;
use super::types::{Full, NotLive, TransportEnd};
use super::{Arriving, Session};
use crate::error::{RpcError, Violation};
use crate::sink::FrameSink;
use crate::time::Instant;
use crate::wire::{WireId, WrittenFrame};

impl Session {
    // ---- Inputs ----

    /// Takes a frame that arrived by `lane`: one message (or, on MCP 2025-03-26, one batch), without a line feed. Returns the number of
    /// replies that it causes. Each violation becomes an [`Event::Violation`]. But after a violation by progress is reported, further ones
    /// may only be counted, for the length of the rate window ([`crate::ProgressPolicy::window`]). The frame is dropped if the session has
    /// closed, or while an [`Event::LaneClosed`] of this lane is queued.
    ///
    /// A transport of one stream passes [`Lane::CHANNEL`]. Any other lane opens with its first frame. Frames must be complete: if a lane
    /// ends in the middle of one, the transport drops the fragment.
    ///
    /// # Errors
    /// [`Full`], with the frame, while [`wants_input`](Self::wants_input) is `false` and the frame is not dropped. Nothing has changed.
    pub fn handle_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        if self.is_closed() || self.events.closes(lane) {
            return Ok(Received::default());
        }
        if !self.wants_input(lane) {
            return Err(Full(frame));
        }
        self.advance(now);
        self.arriving = Arriving::new(lane, frame.len());
        self.outbox.open(lane);
        self.receive(frame);
        self.outbox.note_idle(lane);
        self.tidy();
        Ok(Received { replies: core::mem::take(&mut self.arriving).replies() })
    }

    /// Takes a frame that came on the stream of a request of ours, for transports such as HTTP. `exchange` is the exchange of that request;
    /// `None` if the stream belongs to no request. If the frame is an input request that names no call, the input request belongs to the
    /// call of `exchange`, if that call is in flight. Everything else is as in [`handle_frame`](Self::handle_frame).
    ///
    /// # Errors
    /// [`Full`], as for [`handle_frame`](Self::handle_frame).
    pub fn handle_frame_within(
        &mut self,
        frame: Bytes,
        lane: Lane,
        exchange: Option<ExchangeId>,
        now: Instant,
    ) -> Result<Received, Full> {
        self.within = exchange;
        let received = self.handle_frame(frame, lane, now);
        self.within = None;
        received
    }

    /// Returns `true` if [`handle_frame`](Self::handle_frame) takes frames of a lane. Returns `false`
    /// * while [`crate::Limits::events`] events wait to be polled;
    /// * while [`crate::Limits::unsolicited_replies`] unsolicited replies on the lane wait to be polled;
    /// * for a lane that is not open, while [`crate::Limits::lanes`] lanes are open;
    /// * once the session has closed.
    ///
    /// Other queued output does not stop input: if it did, two peers could wait for ever, each for the other to read.
    #[must_use]
    #[inline]
    pub fn wants_input(&self, lane: Lane) -> bool {
        (lane == Lane::CHANNEL || self.has_place_for(lane))
            && !self.is_closed()
            && self.events.len() < self.config.limits.events
            && !self.is_overrun(lane)
    }

    /// Returns `true` if a lane is open, or may be opened.
    fn has_place_for(&self, lane: Lane) -> bool {
        self.outbox.lanes() < self.config.limits.lanes || self.outbox.is_open(lane)
    }

    /// The number of requests that came by a lane and will still get a reply. Once it is 0 and no frame of the lane is left to poll, no
    /// reply follows. A cancelled request is not counted if the protocol sends no reply to it.
    #[must_use]
    pub fn replies_owed(&self, lane: Lane) -> usize {
        self.outbox.queue(lane).map_or(0, LaneQueue::owed)
    }

    /// Stops a lane while its peer does not read (`false`), or resumes it (`true`). No frame of a stopped lane is polled: its progress is
    /// merged, a new log record replaces older ones or is dropped, and calls and input requests on it are refused once
    /// [`crate::Limits::output_bytes`] bytes are queued. Other lanes are not affected.
    ///
    /// Two bounds close a lane ([`Event::LaneClosed`]), or the session if the lane is the channel ([`CloseReason::Overload`]). If more than
    /// [`crate::Limits::output_bytes_hard`] bytes are queued on all lanes together, the lane with the longest queue is closed. A lane is
    /// also closed if [`crate::Limits::unsolicited_replies`] unsolicited replies are queued on it, and none of them is polled for
    /// [`crate::Timeouts::close_grace`].
    ///
    /// # Errors
    /// [`NotLive`] for a lane that is not open. The channel is open until the session has closed.
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if self.is_closed() || !self.outbox.is_open(lane) {
            return Err(NotLive);
        }
        self.outbox.set_writable(lane, is_writable);
        if is_writable {
            self.use_room(lane);
            self.outbox.note_idle(lane);
        }
        self.tidy();
        Ok(())
    }

    /// Handles the loss of a part of the transport. For the loss of the whole transport call [`handle_end`](Self::handle_end).
    ///
    /// | | an exchange that ends with its lane (Tesseron, MCP without a handshake) | any other exchange (MCP with a handshake) |
    /// |---|---|---|
    /// | [`Gone::Lane`] | the exchange is cancelled ([`CancelReason::Disconnected`](crate::CancelReason::Disconnected)), and no frame is sent for it any longer | the exchange goes on: its frames are polled as before, and the transport may deliver them later or drop them |
    /// | [`Gone::Exchange`] | the call ends with [`Outcome::Lost`] | the exchange goes on: the response may come on another stream |
    /// | [`Gone::Response`] | the call ends with [`Outcome::Lost`] | the call ends with [`Outcome::Lost`] |
    ///
    /// Our subscription at a server of stateless requests ends with its exchange, and
    /// [`Notification::SubscriptionEnded`](crate::Notification::SubscriptionEnded) follows if the subscription was acknowledged.
    ///
    /// A lost lane counts as writable, even if it was stopped, so that its frames can be polled. On Tesseron, the output of the lane is
    /// dropped, unless the lane is the channel. At a server of MCP, frames that are queued on the lane can still be polled, even for a
    /// stateless request.
    ///
    /// # Errors
    /// [`NotLive`] for a lane that is not open, or an exchange that is over.
    pub fn handle_gone(&mut self, gone: Gone, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if self.is_closed() {
            return Err(NotLive);
        }
        match gone {
            Gone::Lane(lane) if !self.outbox.is_open(lane) => return Err(NotLive),
            Gone::Lane(lane) => self.lose_lane(lane),
            Gone::Exchange(exchange) | Gone::Response(exchange) if self.subscriber.is_open(exchange) => {
                self.handle_subscription_end(exchange);
            }
            Gone::Exchange(exchange) | Gone::Response(exchange) => {
                let id = self.call_of(exchange.0);
                let call = self.outbound_calls.get(&id).filter(|call| call.is_open_as(exchange)).ok_or(NotLive)?;
                if call.rules().lane_bound || matches!(gone, Gone::Response(_)) {
                    self.settle_call(id, Outcome::Lost, None);
                }
            }
        }
        self.tidy();
        Ok(())
    }

    /// Handles the end of the transport. At [`TransportEnd::Eof`], outbound calls are lost immediately. On MCP, inbound calls may still be
    /// answered within [`crate::Timeouts::close_grace`]; on Tesseron they are cancelled. At [`TransportEnd::Failed`], everything ends
    /// immediately, and queued output is discarded. Has no effect on a session that is closed.
    pub fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.advance(now);
        if self.is_closed() {
            return;
        }
        match end {
            TransportEnd::Eof => self.end_of_input(),
            TransportEnd::Failed => self.fail(CloseReason::Failed),
        }
        self.tidy();
    }

    /// Handles every deadline up to and including `now`. Does nothing else, so it may be called at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(key) = self.timers.take_due(self.now) {
            self.expire(key);
        }
        self.tidy();
    }

    // ---- Outputs ----

    /// The next frame to write, and its [route](Transmit::route). The frames of one lane come in the order in which they were queued;
    /// frames of several lanes come in turn.
    #[must_use = "a frame that is polled and not written is lost"]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.outbox.pop()?;
        self.count_polled(transmit.route.lane, transmit.frame.len());
        Some(transmit)
    }

    /// Frees the memory of the last long frame (32 KiB or more), which is kept for the next long frame. The memory is also freed after 64
    /// shorter frames. Call this method when a session has been idle for a while; [`crate::drive::Driver`] does so.
    pub fn release_memory(&mut self) {
        self.outbox.release_memory();
    }

    /// Pushes the next frames of the channel into `into`, up to 64 frames or until `into` holds 32 KiB. Returns `true` if there may be
    /// more. A transport without other lanes can call this method instead of [`poll_transmit`](Self::poll_transmit), and is then faster.
    pub fn poll_transmits(&mut self, into: &mut impl FrameSink) -> bool {
        into.fill(|into| {
            let Some(length) = self.outbox.pop_into(into) else { return false };
            self.count_polled(Lane::CHANNEL, length);
            true
        })
    }

    /// The next event.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The next deadline, at which [`handle_timeout`](Self::handle_timeout) must be called; `None` if there is none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    // ---- Steps of every method ----

    /// Advances the session's time to `now`. If `now` is earlier, the time stays as it is.
    pub(super) fn advance(&mut self, now: Instant) {
        if now < self.now {
            self.stats.clock_went_back = self.stats.clock_went_back.saturating_add(1);
        }
        self.now = self.now.max(now);
    }

    /// Bounds the output, serves the progress queue, removes idle lanes, and goes on with the end of a session that is closing. Runs at the
    /// end of nearly every method that changes the session: if the session were closed in the middle of a method, later events of the
    /// method would be lost.
    #[inline]
    pub(super) fn tidy(&mut self) {
        if self.has_too_much_output() || self.progress_queue.is_busy() || self.outbox.has_idle() || !self.ending.is_open() {
            self.tidy_up();
        }
    }

    #[cold]
    fn tidy_up(&mut self) {
        self.bound_output();
        self.serve_progress_queue();
        self.outbox.forget_idle();
        self.settle_ending();
    }

    /// Closes lanes, the one with the longest queue first, until all lanes together hold no more output than the limit.
    #[inline]
    pub(super) fn bound_output(&mut self) {
        while self.has_too_much_output() {
            self.give_lane_up(self.outbox.longest());
        }
    }

    /// Returns `true` if all lanes together hold more output than the limit.
    #[inline]
    fn has_too_much_output(&self) -> bool {
        self.outbox.bytes() > self.config.limits.output_bytes_hard
    }

    /// Takes the next number for an id of ours.
    pub(super) fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    // ---- Deadlines ----

    fn expire(&mut self, key: TimerKey) {
        match key {
            TimerKey::Handshake => {
                self.handshake.forget_armed();
                self.expire_handshake();
            }
            TimerKey::Close => {
                self.ending.forget_armed();
                self.expire_ending();
            }
            // `tidy` serves the queue, after all deadlines that have passed.
            TimerKey::ProgressQueue => self.progress_queue.forget_armed(),
            TimerKey::Overload(lane) => {
                if let Some(queue) = self.outbox.queue_mut(lane) {
                    queue.overload().forget_armed();
                }
                self.give_lane_up(lane);
            }
            TimerKey::OutboundCall(id) => {
                let Some(call) = self.outbound_calls.get_mut(&id) else { return };
                call.forget_armed();
                if call.is_retry_due(self.now) {
                    return self.retry_call(id);
                }
                let kind = call.deadline().map_or(TimeoutKind::MaxTotal, |(_, kind)| kind);
                let is_ping = call.op().is_ping();
                self.settle_call(id, Outcome::TimedOut(kind), Some("timed out"));
                if is_ping {
                    self.violation(Violation::PingUnanswered);
                }
            }
            TimerKey::OutboundInput(key) => {
                if let Some(input) = self.outbound_inputs.get_mut(&key) {
                    input.forget_armed();
                }
                if let Some(input) = self.take_outbound_input_back(key, Some("timed out")) {
                    self.deliver_answer(key, &input, Err(InputFailed::TimedOut));
                }
            }
            TimerKey::InboundCall(id) => {
                if let Some(inbound) = self.inbound_calls.get_mut(&id) {
                    inbound.forget_deadline();
                }
                self.expire_inbound_call(id);
            }
            TimerKey::Flush(id) => {
                self.forget_timer(id);
                self.flush(id, false);
            }
            TimerKey::Release(id) => {
                self.forget_timer(id);
                self.release_response(id);
            }
            TimerKey::Alarm(id) => {
                self.alarms.remove(&id);
                self.push_event(Event::Alarm(id));
            }
            TimerKey::Acknowledgement => self.expire_subscription(),
        }
    }

    // ---- Events ----

    pub(super) fn push_event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn violation(&mut self, rule: Violation) {
        self.stats.count(rule);
        self.events.push(Event::Violation(rule));
    }

    // ---- Frames ----

    /// Counts a frame that has been polled.
    #[inline]
    fn count_polled(&mut self, lane: Lane, length: usize) {
        self.stats.frames_out = self.stats.frames_out.saturating_add(1);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(length as u64);
        if self.outbox.queue_mut(lane).is_some_and(LaneQueue::take_unsolicited_polled) {
            self.restart_overload(lane);
        }
        if self.progress_queue.has_blocked() || lane != Lane::CHANNEL {
            self.use_room(lane);
            self.outbox.note_idle(lane);
        }
        self.tidy();
    }

    /// Unblocks the calls that wait for room on a lane, if there is room. Called whenever frames of a lane were polled or withdrawn, or the
    /// lane was resumed.
    pub(super) fn use_room(&mut self, lane: Lane) {
        if self.progress_queue.is_blocked(lane) && self.outbox.has_room(lane) {
            self.progress_queue.unblock(lane);
        }
    }

    pub(super) fn push_cancel(&mut self, exchange: ExchangeId, reason: Option<&str>) {
        self.push_cancel_as(Lane::CHANNEL, Class::Cancel(exchange), exchange.0, reason);
    }

    /// Sends the cancel of a request of ours, without the reason if the frame would be too long with it.
    pub(super) fn push_cancel_as(&mut self, lane: Lane, class: Class, number: u64, reason: Option<&str>) {
        let mut frame = self.rules.dialect.write_cancel(self.outbox.frames(), number, reason);
        if frame.len() > self.config.limits.frame_bytes {
            frame = self.rules.dialect.write_cancel(self.outbox.frames(), number, None);
        }
        self.outbox.push(lane, class, frame);
    }

    /// Replaces a reply that is longer than [`crate::Limits::frame_bytes`] by an error.
    pub(super) fn bounded_reply(&mut self, frame: WrittenFrame, exchange: &WireId) -> WrittenFrame {
        let (length, limit) = (frame.len(), self.config.limits.frame_bytes);
        match length > limit {
            true => self.rules.dialect.write_error(self.outbox.frames(), Some(exchange), &too_large("result", length, limit)),
            false => frame,
        }
    }

    /// Sends an unsolicited reply.
    pub(super) fn push_unsolicited(&mut self, lane: Lane, kind: ReplyKind, frame: WrittenFrame) {
        self.outbox.push(lane, Class::Unsolicited(kind), frame);
        if self.is_overrun(lane) && !self.outbox.queue(lane).is_some_and(LaneQueue::is_overload_timed) {
            self.restart_overload(lane);
        }
    }

    /// Restarts the time in which the peer must read another unsolicited reply, or stops it if fewer than the limit are queued.
    fn restart_overload(&mut self, lane: Lane) {
        let (is_overrun, grace) = (self.is_overrun(lane), self.config.timeouts.close_grace);
        if let Some(queue) = self.outbox.queue_mut(lane) {
            queue.overload().restart(lane, is_overrun, grace, self.now, &mut self.timers);
        }
    }

    /// Returns `true` if the number of unsolicited replies on a lane has reached its limit.
    #[inline]
    pub(super) fn is_overrun(&self, lane: Lane) -> bool {
        self.outbox.unsolicited_replies(lane) >= self.config.limits.unsolicited_replies
    }
}

/// The error that replaces a reply or a retry whose frame would have `length` bytes, more than `limit`.
pub(super) fn too_large(what: &str, length: usize, limit: usize) -> RpcError {
    let why = alloc::format!("the {what} is larger than a frame may be ({length} of {limit} bytes)");
    RpcError::new(RpcError::INTERNAL, why)
}
