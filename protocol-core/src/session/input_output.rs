//! Everything that goes in and comes out: frames, the end of the transport and time; frames, events and one deadline.

use core::time::Duration;

use bytes::Bytes;

use super::Session;
use super::event::{Clock, CloseReason, Event, InputFailed, Outcome};
use super::outbox::Class;
use super::timers::TimerKey;
use super::verbs::{Full, Transmit, TransportEnd};
use crate::error::{RpcError, Violation};
use crate::sink::FrameSink;
use crate::time::Instant;
use crate::wire::{Draft, WireId};

impl Session {
    // ---- In ----

    /// Takes a frame that arrived: one message (or, on MCP 2025-03-26, one batch), without its line feed. Faults of the peer become
    /// [`Event::Violation`]. After the session has closed the frame is dropped.
    ///
    /// # Errors
    /// [`Full`] hands the frame back while [`wants_input`](Self::wants_input) is false. Nothing has changed.
    pub fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        if self.is_closed() {
            return Ok(());
        }
        if !self.wants_input() {
            return Err(Full(frame));
        }
        self.advance(now);
        self.receive(frame);
        self.tidy();
        Ok(())
    }

    /// Says whether [`handle_frame`](Self::handle_frame) takes frames: false while [`crate::Limits::events`] events or
    /// [`crate::Limits::strays`] refusals wait to be polled, and once the session has closed. Otherwise a long outbox is no reason: two
    /// peers that wait for each other to read would wait for ever.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.is_closed() && self.events.len() < self.config.limits.events && !self.is_overrun()
    }

    /// Notes that the transport has ended. [`TransportEnd::Eof`]: calls of ours are lost at once; what was read before is still answered within
    /// [`crate::Timeouts::close_grace`]. [`TransportEnd::Failed`]: everything ends at once and what waits is discarded. Later ends of a
    /// session that is over change nothing.
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

    /// Lets everything happen whose time has come by `now`. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(key) = self.timers.take_due(self.now) {
            self.expire(key);
        }
        self.tidy();
    }

    // ---- Out ----

    /// The next frame to write. Frames leave in the order in which they came to be.
    #[must_use = "a frame that is polled and not written is lost"]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let strays = self.outbox.strays();
        let frame = self.outbox.pop()?;
        self.leave(frame.len(), strays);
        Some(Transmit::new(frame))
    }

    /// The next frames to write, together: like [`poll_transmit`](Self::poll_transmit) until `into` has taken 64 of them, or
    /// 32 KiB, and cheaper. Says whether there may be more.
    pub fn poll_transmits(&mut self, into: &mut impl FrameSink) -> bool {
        into.fill(|into| {
            let strays = self.outbox.strays();
            let Some(length) = self.outbox.pop_into(into) else { return false };
            self.leave(length, strays);
            true
        })
    }

    /// The next event.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The moment at which [`handle_timeout`](Self::handle_timeout) has something to do; exact, and `None` when nothing is pending.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.has_clocks_to_start() {
            // Whatever the time is by then, it lets them start.
            return Some(self.now.saturating_add(Duration::from_micros(1)));
        }
        self.timers.next()
    }

    // ---- Around every verb ----

    /// Notes the time, which never runs backwards here, whatever the owner says.
    pub(super) fn advance(&mut self, now: Instant) {
        if now < self.now {
            self.stats.clock_went_back = self.stats.clock_went_back.saturating_add(1);
        }
        if now > self.now {
            self.now = now;
            self.start_clocks(now);
        }
    }

    /// Does what every verb leaves to be done once its transitions are complete: an end in their midst would cut their news short.
    pub(super) fn tidy(&mut self) {
        if self.outbox.bytes() > self.config.limits.output_bytes_hard {
            self.fail(CloseReason::Overload);
        }
        // Nearly always nothing waits in line, and the end has not begun.
        if self.line.is_busy() {
            self.serve_line();
        }
        if !self.ending.is_open() {
            self.settle_ending();
        }
    }

    /// The number of the next id of ours.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    // ---- Deadlines ----

    fn expire(&mut self, key: TimerKey) {
        match key {
            TimerKey::Handshake => {
                self.handshake.forget_armed();
                self.fail(CloseReason::HandshakeTimeout);
            }
            TimerKey::Close => {
                self.ending.forget_armed();
                self.close_is_due();
            }
            // The line is served when all that is due has happened.
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

    // ---- Events ----

    pub(super) fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn violation(&mut self, rule: Violation) {
        self.stats.count(rule);
        self.events.push(Event::Violation(rule));
    }

    // ---- Frames ----

    /// Counts a frame that has been polled; before that there were so many strays.
    fn leave(&mut self, length: usize, strays: usize) {
        self.stats.frames_out = self.stats.frames_out.saturating_add(1);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(length as u64);
        if self.outbox.strays() < strays {
            self.restart_overload();
        }
        self.tidy();
    }

    pub(super) fn push_cancel(&mut self, exchange: u64, reason: Option<&str>) {
        let mut frame = self.dialect.write_cancel(self.outbox.frames(), exchange, reason);
        if frame.len() > self.config.limits.frame_bytes {
            frame = self.dialect.write_cancel(self.outbox.frames(), exchange, None);
        }
        self.outbox.push(Class::Bound, frame);
    }

    /// Sends a reply that has its place. One that is larger than a frame may be becomes an error.
    pub(super) fn push_bound(&mut self, frame: Draft, exchange: &WireId) {
        let frame = match frame.len() > self.config.limits.frame_bytes {
            true => self.dialect.write_error(self.outbox.frames(), Some(exchange), &too_large()),
            false => frame,
        };
        self.outbox.push(Class::Bound, frame);
    }

    /// Sends a reply that belongs to nothing.
    pub(super) fn push_stray(&mut self, frame: Draft) {
        self.outbox.push(Class::Stray, frame);
        if !self.overload.is_counting() {
            self.restart_overload();
        }
    }

    /// Gives a peer that makes us refuse more than it reads the time to read another refusal.
    fn restart_overload(&mut self) {
        let is_overrun = self.is_overrun();
        self.overload.restart(is_overrun, self.config.timeouts.close_grace, self.now, &mut self.timers);
    }

    /// Says whether the peer makes us refuse more than it reads.
    pub(super) fn is_overrun(&self) -> bool {
        self.outbox.strays() >= self.config.limits.strays
    }
}

/// The answer in the place of one that no frame holds.
pub(super) fn too_large() -> RpcError {
    RpcError::fixed(RpcError::INTERNAL, "the result is larger than a frame may be")
}
