//! Handles requests: checks each, and begins its response.

use alloc::string::String;
use core::fmt::Write as _;
use core::time::Duration;

use bytes::Bytes;

use super::HttpServer;
use super::clients::Place;
use super::exchange::Exchange;
use super::gate::{self, Admitted, Contents, absent_id_for, check_optional_copies, check_version, contradiction, named_version};
use super::refusal::Refusal;
use super::responses::primes;
use super::session::HttpSession;
use super::stream::Stream;
use super::timers::TimerKey;
use super::types::{HttpContext, HttpEvent, HttpExchangeId, HttpRequest, SessionKey};
use crate::http::era::{Destination, Era, Posted, classify};
use crate::http::head::Headers;
use crate::http::header;
use crate::http::message::{self, Body, Message};
use crate::http::sse::EventId;
use crate::json::Text;
use crate::mcp::Revision;
use crate::session::Lane;
use crate::time::Instant;

/// The time after which a client may try again to open a session, if every session is in use.
const SESSION_RETRY: Duration = Duration::from_secs(10);

impl HttpServer {
    /// Takes a request with its whole body, and returns the number of its exchange, by which the response is polled. Makes all checks; the
    /// body is needed only of a POST whose head passes [`HttpServerConfig::check`](crate::http::HttpServerConfig::check).
    pub fn handle_request(&mut self, request: &HttpRequest<'_>, context: &mut dyn HttpContext, now: Instant) -> HttpExchangeId {
        let id = self.begin(now);
        if let Err(refusal) = self.check_and_serve(id, request, context) {
            self.refuse(id, refusal, absent_id_for(&request.head));
        }
        id
    }

    /// Takes a request that [`HttpServerConfig::admit`](crate::http::HttpServerConfig::admit) has returned. In all other respects equal to
    /// [`handle_request`](Self::handle_request): if this method is called under a lock, the lock is held for a shorter time.
    pub fn handle_admitted(&mut self, admitted: &Admitted<'_>, context: &mut dyn HttpContext, now: Instant) -> HttpExchangeId {
        let id = self.begin(now);
        if let Err(refusal) = self.check_room().and_then(|()| self.serve(id, admitted, context)) {
            self.refuse(id, refusal, absent_id_for(&admitted.request().head));
        }
        id
    }

    fn begin(&mut self, now: Instant) -> HttpExchangeId {
        self.advance(now);
        let id = HttpExchangeId(self.number());
        self.exchanges.insert(id, Exchange::new(self.now));
        id
    }

    fn check_and_serve(
        &mut self,
        id: HttpExchangeId,
        request: &HttpRequest<'_>,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
        gate::check_head(&request.head, &self.config)?;
        self.check_room()?;
        let admitted = gate::admit(request, context, &self.config)?;
        self.serve(id, &admitted, context)
    }

    fn check_room(&self) -> Result<(), Refusal> {
        // The exchange of this request is counted, too.
        if self.exchanges.len() > self.config.limits.exchanges {
            return Err(Refusal::overloaded("too many requests at once"));
        }
        Ok(())
    }

    /// Begins to serve a request. If it has several faults, the first check that fails determines the refusal.
    fn serve(&mut self, id: HttpExchangeId, admitted: &Admitted<'_>, context: &mut dyn HttpContext) -> Result<(), Refusal> {
        let request = admitted.request();
        match admitted.contents() {
            Contents::Get => self.serve_get(id, request),
            Contents::Delete => self.serve_delete(id, request),
            Contents::Stateless(message) => self.serve_stateless(id, message, &request.body),
            Contents::InSession(body) => self.serve_in_session(id, admitted, body, context),
        }
    }

    /// Serves a request without a handshake in a new session of its own.
    fn serve_stateless(&mut self, id: HttpExchangeId, message: &message::Request, frame: &Bytes) -> Result<(), Refusal> {
        self.check_running().map_err(|refusal| refusal.of(message.id.clone()))?;
        let is_subscription = message.is_subscription();
        if is_subscription && self.subscriptions >= self.config.limits.subscriptions {
            return Err(Refusal::overloaded("too many subscriptions").of(message.id.clone()));
        }
        self.subscriptions = self.subscriptions.saturating_add(usize::from(is_subscription));
        let key = SessionKey(self.number());
        self.sessions.insert(key, HttpSession::stateless(key, is_subscription));
        self.events.push_back(HttpEvent::Open { session: key, era: Era::Modern });
        self.deliver(key, id, frame.clone(), 1, true);
        Ok(())
    }

    fn serve_in_session(
        &mut self,
        id: HttpExchangeId,
        admitted: &Admitted<'_>,
        body: &Body,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
        let request = admitted.request();
        let session = self.session_of(request);
        if matches!(body, Body::Message(Message::Notification)) {
            let version = named_version(&request.head.headers);
            if classify(Posted::Notification, version, session.is_ok(), self.config.era) == Destination::Discard {
                if let Some(exchange) = self.exchanges.get_mut(&id) {
                    exchange.complete(202, Headers::new(), None);
                }
                self.announce(id);
                return Ok(());
            }
        }
        let opens = body.opens_session();
        let key = match session {
            // If this is another handshake, the session refuses it.
            Ok(key) => Some(key),
            Err(_) if opens => None,
            Err(refusal) => return Err(refusal),
        };
        if !opens {
            check_version(&request.head.headers)?;
        }
        if let Body::Message(Message::Request(message)) = body {
            check_optional_copies(message, &request.head.headers).map_err(|mismatch| contradiction(message, &mismatch))?;
        }
        let Some(key) = key else { return self.open_session(id, admitted, context) };
        let (replies, is_single) = match body {
            Body::Batch(batch) => {
                let revision = self.sessions.get(&key).and_then(HttpSession::revision);
                if revision != Some(Revision::R2025_03_26) {
                    return Err(Refusal::new(400, "the body must be one message"));
                }
                (batch.replies, false)
            }
            Body::Message(Message::Request(_)) => (1, true),
            _ => (0, true),
        };
        self.deliver(key, id, request.body.clone(), replies, is_single);
        Ok(())
    }

    fn open_session(&mut self, id: HttpExchangeId, admitted: &Admitted<'_>, context: &mut dyn HttpContext) -> Result<(), Refusal> {
        self.check_running()?;
        let (request, client) = (admitted.request(), admitted.client());
        match self.clients.place(self.config.limits.sessions, client.as_ref()) {
            Place::Free => {}
            Place::Of(idle) => self.close(idle, true),
            Place::None { is_share: true } => return Err(Refusal::for_now(429, "too many sessions of this client", SESSION_RETRY)),
            Place::None { is_share: false } => return Err(Refusal::for_now(503, "too many sessions", SESSION_RETRY)),
        }
        let mut text = String::with_capacity(32);
        for byte in context.random() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        self.clients.add(client.as_ref());
        let key = SessionKey(self.number());
        self.sessions.insert(key, HttpSession::opening(key, text.into(), request.principal, client));
        self.events.push_back(HttpEvent::Open { session: key, era: Era::Legacy });
        self.deliver(key, id, request.body.clone(), 1, true);
        Ok(())
    }

    /// Passes a frame to a session: on a new lane if `replies`, the number of replies that the frame causes, is not 0, and otherwise on the
    /// channel. `is_single` is `false` for a batch.
    fn deliver(&mut self, key: SessionKey, id: HttpExchangeId, frame: Bytes, replies: usize, is_single: bool) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.confirm();
        let mut lane = Lane::CHANNEL;
        if replies > 0 {
            lane = session.next_lane();
            let can_resume = self.config.resumable && session.is_open();
            session.add_stream(lane, Stream::post(lane, id, replies, is_single, can_resume));
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                exchange.set_source(key, lane);
            }
        } else {
            session.add_unacknowledged(id);
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                exchange.set_receiver(key);
            }
        }
        self.events.push_back(HttpEvent::Frame { session: key, exchange: id, lane, frame });
        self.arm_keep_alive(id);
        self.arm_idle(key);
    }

    fn serve_get(&mut self, id: HttpExchangeId, request: &HttpRequest<'_>) -> Result<(), Refusal> {
        let key = self.session_of(request)?;
        check_version(&request.head.headers)?;
        let resumes = request.head.headers.get_all(header::LAST_EVENT_ID).next().is_some();
        if !resumes {
            self.check_running()?;
        }
        let Some(session) = self.sessions.get_mut(&key) else { return Ok(()) };
        session.confirm();
        if resumes {
            let last = request.head.headers.only(header::LAST_EVENT_ID).unwrap_or_default();
            self.resume(key, id, last.and_then(EventId::parse));
        } else {
            self.open_get(key, id);
        }
        self.arm_keep_alive(id);
        self.arm_idle(key);
        self.announce(id);
        Ok(())
    }

    fn open_get(&mut self, key: SessionKey, id: HttpExchangeId) {
        let Some(session) = self.sessions.get(&key) else { return };
        if let Some(oldest) = session.surplus_get(self.config.limits.get_streams) {
            if let Some(exchange) = session.stream(oldest).and_then(Stream::exchange) {
                self.finish_exchange(exchange);
            }
            self.detach(key, oldest);
        }
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let lane = session.next_lane();
        let stream = Stream::get(lane, id, self.config.resumable);
        let primer = (stream.can_resume() && session.revision().is_some_and(primes)).then(|| stream.first_id());
        session.add_stream(lane, stream);
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            exchange.set_source(key, lane);
            exchange.open(self.now);
            if let Some(primer) = primer {
                exchange.write(self.now, |events| events.prime(primer));
            }
        }
        self.send_waiting(key);
    }

    /// Resumes a stream after the event `last`, in another exchange. If the stream cannot be resumed, the response is a stream that ends at
    /// once: after an error, clients would try again and again.
    fn resume(&mut self, key: SessionKey, id: HttpExchangeId, last: Option<EventId>) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        exchange.open(self.now);
        let Some(session) = self.sessions.get(&key) else { return };
        let Some(last) = last.filter(|last| session.is_resumable(last.stream, last.number)) else {
            return exchange.finish();
        };
        let lane = last.stream;
        if let Some(previous) = session.stream(lane).and_then(Stream::exchange) {
            self.keep_untaken(key, lane);
            self.finish_exchange(previous);
        }
        let (Some(session), Some(exchange)) = (self.sessions.get_mut(&key), self.exchanges.get_mut(&id)) else { return };
        if let Some(stream) = session.stream(lane) {
            exchange.write(self.now, |events| stream.write_after(last.number, events));
        }
        // A stream that is done is not resumed: all its events were written just now.
        if session.with_stream(lane, |stream| stream.resume(id)) == Some(true) {
            exchange.set_source(key, lane);
            session.with_stream(lane, |stream| self.shared.set(stream.retention(), TimerKey::Retention(key, lane), None));
            self.send_waiting(key);
        } else {
            exchange.finish();
        }
    }

    fn serve_delete(&mut self, id: HttpExchangeId, request: &HttpRequest<'_>) -> Result<(), Refusal> {
        let key = self.session_of(request)?;
        check_version(&request.head.headers)?;
        self.close(key, true);
        if let Some(exchange) = self.exchanges.get_mut(&id) {
            exchange.complete(204, Headers::new(), None);
        }
        self.announce(id);
        Ok(())
    }

    fn check_running(&self) -> Result<(), Refusal> {
        if self.is_stopped { Err(Refusal::overloaded("the server is stopping")) } else { Ok(()) }
    }

    /// The session that a request names, if the session has not ended and belongs to the caller.
    fn session_of(&self, request: &HttpRequest<'_>) -> Result<SessionKey, Refusal> {
        let id = request.head.headers.only(header::SESSION_ID);
        let id = id.map_err(|_| Refusal::new(400, "the header Mcp-Session-Id is repeated or not text"))?;
        let id = id.ok_or_else(|| Refusal::new(400, "the header Mcp-Session-Id is missing"))?;
        let session = self.ids.get(&Text::from(id)).and_then(|key| self.sessions.get(key).map(|session| (*key, session)));
        let session = session.filter(|(_, session)| session.belongs_to(request.principal));
        session.map(|(key, _)| key).ok_or_else(|| Refusal::new(404, "there is no such session"))
    }
}
