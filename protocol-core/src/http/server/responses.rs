//! The steps that make responses: the beginning and end of streams, the end of sessions, back-pressure and deadlines.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::HttpServer;
use super::exchange::Exchange;
use super::gate::absent_id;
use super::refusal::Refusal;
use super::session::HttpSession;
use super::stream::{State, Stream};
use super::timers::TimerKey;
use super::types::{HttpEvent, HttpExchangeId, NotResumable, SessionKey};
use crate::http::era::Era;
use crate::http::head::Headers;
use crate::http::header;
use crate::http::message::{self, ErrorId};
use crate::http::status;
use crate::mcp::Revision;
use crate::session::{Lane, ReplyKind};
use crate::time::Instant;

/// The time between the first two comments for a client that has closed its side of the connection.
const FIRST_PROBE: Duration = Duration::from_millis(100);

impl HttpServer {
    /// Ends the response of a stream that goes on, and asks the client to resume the stream after
    /// [`HttpTimeouts::resume_delay`](crate::http::HttpTimeouts::resume_delay). This is for work that takes longer than a connection should
    /// be kept open.
    ///
    /// # Errors
    /// [`NotResumable`] if the stream cannot be resumed. Then nothing has changed.
    pub fn suspend(&mut self, exchange: HttpExchangeId, now: Instant) -> Result<(), NotResumable> {
        self.advance(now);
        let (key, lane) = self.exchanges.get(&exchange).and_then(Exchange::source).ok_or(NotResumable)?;
        let session = self.sessions.get(&key).ok_or(NotResumable)?;
        let stream = session.stream(lane).filter(|stream| stream.can_resume() && !stream.is_get()).ok_or(NotResumable)?;
        if !session.revision().is_some_and(primes) {
            return Err(NotResumable);
        }
        if matches!(stream.state(), State::Waiting(_)) {
            self.begin_stream(key, lane);
        }
        let wait = self.config.timeouts.resume_delay;
        if let Some(exchange) = self.exchanges.get_mut(&exchange) {
            exchange.write(self.now, |events| events.retry(wait));
        }
        self.finish_exchange(exchange);
        self.detach(key, lane);
        Ok(())
    }

    /// Makes a refusal the whole response, if no response was begun. If the refusal has no id, the error has the id `otherwise`.
    pub(super) fn refuse(&mut self, id: HttpExchangeId, refusal: Refusal, otherwise: ErrorId) {
        let Refusal { status, error, id: request_id, headers } = refusal;
        let body = message::error(&request_id.map_or(otherwise, ErrorId::Of), &error);
        self.disarm_keep_alive(id);
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            exchange.complete(status, headers, Some(body));
        }
        self.announce(id);
    }

    /// The id in an error of this session that belongs to no request.
    pub(super) fn absent_id(&self, key: SessionKey) -> ErrorId {
        self.sessions.get(&key).map_or(ErrorId::Null, |session| absent_id(session.era()))
    }

    /// Makes a reply the whole response.
    pub(super) fn reply_by_json(&mut self, key: SessionKey, lane: Lane, id: HttpExchangeId, kind: ReplyKind, frame: Bytes) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let mut headers = Headers::new();
        if session.is_opening() && kind == ReplyKind::Result {
            let version = message::agreed_version(&frame);
            let revision = version.as_deref().and_then(Revision::from_name).unwrap_or(Revision::NEWEST_LEGACY);
            session.open(revision);
            if let Some(id) = session.id() {
                headers.push(header::SESSION_ID, String::from(&**id));
                self.ids.insert(id.clone(), key);
            }
        }
        let status = status::of_reply(session.era(), kind, &frame);
        self.disarm_keep_alive(id);
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            exchange.complete(status, headers, Some(frame));
        }
        self.announce(id);
        self.end_stream(key, lane);
    }

    /// Begins the stream of events of a response that has not begun.
    pub(super) fn begin_stream(&mut self, key: SessionKey, lane: Lane) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let primes = session.revision().is_some_and(primes);
        let Some((exchange, primer)) = session.with_stream(lane, |stream| {
            stream.begin();
            (stream.exchange(), (stream.can_resume() && primes).then(|| stream.first_id()))
        }) else {
            return;
        };
        let Some((id, exchange)) = exchange.and_then(|id| self.exchanges.get_mut(&id).map(|exchange| (id, exchange))) else {
            return;
        };
        exchange.open(self.now);
        if let Some(primer) = primer {
            exchange.write(self.now, |events| events.prime(primer));
        }
        self.announce(id);
    }

    /// Writes a frame on a stream that has begun, if the stream has an exchange, and keeps the frame for replay if the stream can be
    /// resumed. If `is_reply`, counts the reply; after the last one the stream has ended.
    pub(super) fn write_frame(&mut self, key: SessionKey, lane: Lane, frame: &Bytes, is_reply: bool) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let event = session.keep(lane, frame, &self.config.limits, &mut self.shared);
        let exchange = session.stream(lane).and_then(Stream::exchange);
        let is_last = is_reply && session.with_stream(lane, Stream::count_reply) == Some(true);
        let mut is_full = false;
        if let Some((id, exchange)) = exchange.and_then(|id| self.exchanges.get_mut(&id).map(|exchange| (id, exchange))) {
            exchange.write(self.now, |events| events.event(event, frame.clone()));
            is_full = exchange.buffered_bytes() > self.config.limits.output_bytes;
            self.announce(id);
        }
        if is_last {
            if let Some(id) = exchange {
                self.finish_exchange(id);
            }
            self.retire(key, lane);
        } else if is_full {
            self.set_stopped(key, lane, true);
        }
    }

    /// Writes a frame of the channel on the newest GET stream. Without a GET stream the frame waits for one.
    pub(super) fn transmit_on_channel(&mut self, key: SessionKey, frame: Bytes) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if let Some(lane) = session.newest_get() {
            return self.write_frame(key, lane, &frame, false);
        }
        let max_waiting = self.config.limits.waiting_frames;
        session.keep_waiting(frame, max_waiting);
        if session.has_too_many_waiting(max_waiting) {
            self.stop_channel(key, true);
        }
    }

    /// Sends the frames that wait for a GET stream, if there is one.
    pub(super) fn send_waiting(&mut self, key: SessionKey) {
        while let Some(session) = self.sessions.get_mut(&key) {
            let Some(lane) = session.newest_get() else { return };
            let Some(frame) = session.next_waiting() else { break };
            self.write_frame(key, lane, &frame, false);
        }
        self.fit_channel(key);
    }

    /// Ends the response of an exchange whose stream has ended or was detached.
    pub(super) fn finish_exchange(&mut self, id: HttpExchangeId) {
        self.disarm_keep_alive(id);
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            exchange.finish();
        }
        self.announce(id);
    }

    /// The stream whose frame came in the request of `exchange`, if the session has neither taken nor refused the frame.
    pub(super) fn take_untaken(&mut self, exchange: HttpExchangeId) -> Option<(SessionKey, Lane)> {
        if let Some(found) = self.untaken.remove(&exchange) {
            return Some(found);
        }
        let (key, lane) = self.exchanges.get(&exchange)?.source()?;
        let stream = self.sessions.get(&key)?.stream(lane)?;
        (stream.untaken() == Some(exchange)).then_some((key, lane))
    }

    /// Stores a stream under the exchange in whose request its frame came, if the session has not taken the frame yet. Call this before the
    /// stream leaves that exchange.
    pub(super) fn keep_untaken(&mut self, key: SessionKey, lane: Lane) {
        let stream = self.sessions.get(&key).and_then(|session| session.stream(lane));
        if let Some(exchange) = stream.and_then(Stream::untaken) {
            self.untaken.insert(exchange, (key, lane));
        }
    }

    /// Ends a stream that will have no further frame, and removes it without keeping events for replay.
    pub(super) fn end_stream(&mut self, key: SessionKey, lane: Lane) {
        // If the lane stayed stopped, the session would keep it open.
        self.set_stopped(key, lane, false);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let exchange = session.stream(lane).and_then(Stream::exchange);
        session.remove_stream(lane, &mut self.shared);
        if let Some(exchange) = exchange {
            self.finish_exchange(exchange);
        }
        self.leave(key);
    }

    /// Handles the last reply on a stream: keeps the stream for replay if it can be resumed, and removes it otherwise.
    fn retire(&mut self, key: SessionKey, lane: Lane) {
        // If the lane stayed stopped, the session would keep it open.
        self.set_stopped(key, lane, false);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if session.stream(lane).is_some_and(Stream::can_resume) {
            let until = self.now.saturating_add(self.config.timeouts.replay);
            session.with_stream(lane, |stream| {
                self.shared.set(stream.retention(), TimerKey::Retention(key, lane), Some(until));
            });
            session.bound_inactive(self.config.limits.inactive_streams, &mut self.shared);
        } else {
            session.remove_stream(lane, &mut self.shared);
        }
        self.leave(key);
    }

    /// Handles the end of a stream of a session: closes a session that has no handshake, or none yet, and sets the idle deadline of any
    /// other session if it is idle now.
    fn leave(&mut self, key: SessionKey) {
        if self.sessions.get(&key).is_some_and(HttpSession::is_open) {
            self.arm_idle(key);
        } else {
            self.close(key, true);
        }
    }

    /// Detaches a stream from its exchange, which was lost or has ended. Closes a session that has no handshake, or none yet. Removes the
    /// stream if no reply is owed on it and it cannot be resumed.
    pub(super) fn detach(&mut self, key: SessionKey, lane: Lane) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if !session.is_open() {
            return self.close(key, true);
        }
        let was_newest = session.newest_get() == Some(lane);
        self.keep_untaken(key, lane);
        if !was_newest {
            self.set_stopped(key, lane, false);
        }
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.with_stream(lane, Stream::detach);
        if was_newest {
            self.fit_channel(key);
        }
        let timeouts = &self.config.timeouts;
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let Some(stream) = session.stream(lane) else { return };
        let (is_at_work, can_resume) = (stream.is_at_work(), stream.can_resume());
        if is_at_work || can_resume {
            let kept_for = if is_at_work { timeouts.detached } else { timeouts.replay };
            let until = self.now.saturating_add(kept_for);
            session.with_stream(lane, |stream| {
                self.shared.set(stream.retention(), TimerKey::Retention(key, lane), Some(until));
            });
            session.bound_inactive(self.config.limits.inactive_streams, &mut self.shared);
        } else {
            session.remove_stream(lane, &mut self.shared);
        }
        self.arm_idle(key);
    }

    /// Removes a session and its streams. A response that has not begun becomes an error, and any other response of the session ends. If
    /// `tells_owner`, queues [`HttpEvent::Close`].
    pub(super) fn close(&mut self, key: SessionKey, tells_owner: bool) {
        let Some(mut session) = self.sessions.remove(&key) else { return };
        // Its owner drops the frames that the session has not taken.
        self.untaken.retain(|_, (of, _)| *of != key);
        let was_idle = self.shared.set(session.idle(), TimerKey::Idle(key), None);
        if session.era() == Era::Legacy {
            self.clients.move_idle(session.client(), key, was_idle, None);
            self.clients.remove(session.client());
        }
        self.subscriptions = self.subscriptions.saturating_sub(usize::from(session.is_subscription()));
        if let Some(id) = session.id().filter(|_| session.is_open()) {
            self.ids.remove(id);
        }
        for exchange in session.take_unacknowledged() {
            self.refuse(exchange, Refusal::new(404, "the session has ended"), absent_id(session.era()));
        }
        for lane in session.lanes().collect::<Vec<_>>() {
            if let Some(exchange) = session.stream(lane).and_then(Stream::exchange) {
                let refusal = match session.is_open() {
                    true => Refusal::new(404, "the session has ended"),
                    false => Refusal::overloaded("the request was given up"),
                };
                // This has no effect on a response that has begun.
                self.refuse(exchange, refusal, absent_id(session.era()));
                self.finish_exchange(exchange);
            }
            session.remove_stream(lane, &mut self.shared);
        }
        if tells_owner {
            self.events.push_back(HttpEvent::Close { session: key });
        }
    }

    /// Records that a session has taken the frame of an exchange without a stream, or need not take it any longer.
    pub(super) fn note_taken(&mut self, id: HttpExchangeId) {
        let session = self.exchanges.get_mut(&id).and_then(Exchange::take_receiver);
        if let Some(session) = session.and_then(|key| self.sessions.get_mut(&key)) {
            session.note_taken(id);
        }
    }

    /// Removes an exchange, and returns the stream that its response came from: `Some(None)` if there was no such stream, and `None` if the
    /// exchange is over.
    pub(super) fn remove_exchange(&mut self, id: HttpExchangeId) -> Option<Option<(SessionKey, Lane)>> {
        self.disarm_keep_alive(id);
        self.note_taken(id);
        self.exchanges.remove(&id).map(|exchange| exchange.source())
    }

    /// Queues [`HttpEvent::Readable`] if there is something to poll, unless the event was queued already.
    pub(super) fn announce(&mut self, id: HttpExchangeId) {
        if self.exchanges.get_mut(&id).is_some_and(Exchange::announce) {
            self.events.push_back(HttpEvent::Readable { exchange: id });
        }
    }

    // ---- Back-pressure ----

    /// Stops or resumes the lane of a stream. For the newest GET stream, stops or resumes the channel. For an older GET stream, does
    /// nothing.
    pub(super) fn set_stopped(&mut self, key: SessionKey, lane: Lane, is_stopped: bool) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let Some(stream) = session.stream(lane) else { return };
        if stream.is_get() {
            if session.newest_get() == Some(lane) {
                self.stop_channel(key, is_stopped);
            }
        } else if session.with_stream(lane, |stream| stream.set_stopped(is_stopped)) == Some(true) {
            self.events.push_back(HttpEvent::Writable { session: key, lane, is_writable: !is_stopped });
        }
    }

    /// Stops or resumes the channel after a change of the newest GET stream.
    fn fit_channel(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(&key) else { return };
        let exchange = session.newest_get().and_then(|lane| session.stream(lane)).and_then(Stream::exchange);
        let buffered = exchange.and_then(|id| self.exchanges.get(&id)).map_or(0, Exchange::buffered_bytes);
        self.stop_channel(key, buffered > self.config.limits.output_bytes);
    }

    fn stop_channel(&mut self, key: SessionKey, is_stopped: bool) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if session.set_channel_stopped(is_stopped) {
            self.events.push_back(HttpEvent::Writable { session: key, lane: Lane::CHANNEL, is_writable: !is_stopped });
        }
    }

    // ---- Deadlines ----

    /// Handles the deadline of an exchange that has sent nothing for a while: a response that has not begun becomes a stream, and on a
    /// stream a comment is written.
    pub(super) fn keep_alive(&mut self, id: HttpExchangeId) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.keep_alive().forget();
        if exchange.silent_until(self.config.timeouts.keep_alive) <= self.now {
            exchange.lengthen_probe();
            self.break_silence(id);
        }
        self.arm_keep_alive(id);
    }

    /// Handles a client that has closed its side of the connection. Either it still reads, or it is gone; only a failure to write shows
    /// which. So a comment is written at once, and further ones after times that double.
    pub(super) fn probe_client(&mut self, id: HttpExchangeId) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let Some((key, _)) = exchange.source() else { return };
        if self.sessions.get(&key).is_some_and(|session| !session.is_opening()) && exchange.half_close(FIRST_PROBE) {
            self.break_silence(id);
            self.arm_keep_alive(id);
        }
    }

    /// Begins the stream of a response that has not begun, and writes a comment.
    fn break_silence(&mut self, id: HttpExchangeId) {
        match self.exchanges.get(&id).map(|exchange| (exchange.source(), exchange.is_pending())) {
            Some((Some((key, lane)), true)) => self.begin_stream(key, lane),
            Some((Some(_), false)) => {}
            _ => return,
        }
        // Without an event at its beginning, a new stream has no byte yet.
        self.comment(id);
    }

    /// Writes a comment, unless other output waits to be polled. In both cases the time without output is counted from now on.
    fn comment(&mut self, id: HttpExchangeId) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let is_empty = exchange.buffered_bytes() == 0;
        exchange.write(self.now, |events| {
            if is_empty {
                events.comment();
            }
        });
        self.announce(id);
    }

    /// Arms the deadline for keeping an exchange with a stream alive. The exchange of `initialize` has no such deadline: if its response
    /// began before the result, the head would not have the id of the session.
    pub(super) fn arm_keep_alive(&mut self, id: HttpExchangeId) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        let Some((key, _)) = exchange.source() else { return };
        if self.sessions.get(&key).is_none_or(HttpSession::is_opening) {
            return;
        }
        let at = exchange.silent_until(self.config.timeouts.keep_alive);
        self.shared.set(exchange.keep_alive(), TimerKey::KeepAlive(id), Some(at));
    }

    fn disarm_keep_alive(&mut self, id: HttpExchangeId) {
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            self.shared.set(exchange.keep_alive(), TimerKey::KeepAlive(id), None);
        }
    }

    /// Arms the idle deadline of a session if it is idle, and disarms it otherwise.
    pub(super) fn arm_idle(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let timeouts = &self.config.timeouts;
        let limit = match session.is_confirmed() {
            true => timeouts.session_idle,
            false => timeouts.after_initialize.min(timeouts.session_idle),
        };
        let at = (session.is_open() && !session.is_active()).then(|| self.now.saturating_add(limit));
        let before = self.shared.set(session.idle(), TimerKey::Idle(key), at);
        self.clients.move_idle(session.client(), key, before, at);
    }
}

/// Returns `true` if the streams of a revision begin with an event without a frame.
pub(super) fn primes(revision: Revision) -> bool {
    revision >= Revision::R2025_11_25
}
