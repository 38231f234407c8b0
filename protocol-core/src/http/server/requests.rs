//! Handles requests: checks each, and begins its response.

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;
use core::time::Duration;

use bytes::Bytes;

use super::HttpServer;
use super::clients::Place;
use super::exchange::Exchange;
use super::refusal::Refusal;
use super::responses::{absent_id, primes};
use super::session::HttpSession;
use super::stream::Stream;
use super::timers::TimerKey;
use super::types::{HttpContext, HttpEvent, HttpExchangeId, HttpRequest, HttpServerConfig, SessionKey};
use crate::error::RpcError;
use crate::http::accept::{Accepted, JSON, is_media_type};
use crate::http::era::{Destination, Era, NamedVersion, Posted, classify};
use crate::http::head::{Headers, Method, RequestHead, ResponseHead};
use crate::http::header::{self, Mismatch};
use crate::http::message::{self, Body, Message};
use crate::http::origin;
use crate::http::sse::EventId;
use crate::json::Text;
use crate::mcp::{self, Revision};
use crate::session::Lane;
use crate::time::Instant;

/// The time after which a client may try again to open a session, if every session is in use.
const SESSION_RETRY: Duration = Duration::from_secs(10);

impl HttpServerConfig {
    /// Returns `true` if a request is not refused because of its head. Only then the body of a POST is needed; read at most
    /// [`HttpLimits::body_bytes`](crate::http::HttpLimits::body_bytes) and one more byte of it. In every other case, pass an empty body to
    /// [`HttpServer::handle_request`].
    #[must_use]
    pub fn admits(&self, head: &RequestHead<'_>) -> bool {
        check_head(head, self).is_ok()
    }

    /// The response to a request that the owner does not pass to [`HttpServer::handle_request`]: a head, and the body, which is a JSON-RPC
    /// error. `retry_after`, rounded up to whole seconds, is the time after which the client may try again, if this can help.
    #[must_use]
    pub fn refuse(
        head: &RequestHead<'_>,
        status: u16,
        why: impl Into<Text>,
        retry_after: Option<Duration>,
    ) -> (ResponseHead<'static>, Bytes) {
        let mut refusal = match retry_after {
            Some(wait) => Refusal::for_now(status, why, wait),
            None => Refusal::new(status, why),
        };
        let era = if names_modern(&head.headers) { Era::Modern } else { Era::Legacy };
        let body = message::error(&absent_id(era), &refusal.error);
        refusal.headers.push(header::CONTENT_TYPE, JSON);
        (ResponseHead::new(status, refusal.headers), body)
    }
}

impl HttpServer {
    /// Takes a request, and returns the number of its exchange, by which the response is polled.
    pub fn handle_request(&mut self, request: &HttpRequest<'_>, context: &mut dyn HttpContext, now: Instant) -> HttpExchangeId {
        self.advance(now);
        let id = HttpExchangeId(self.number());
        self.exchanges.insert(id, Exchange::new(self.now));
        if let Err(refusal) = self.dispatch(id, request, context) {
            let era = if names_modern(&request.head.headers) { Era::Modern } else { Era::Legacy };
            self.refuse(id, refusal, absent_id(era));
        }
        id
    }

    /// Checks a request and begins to serve it. If the request has several faults, the first check that fails determines the refusal.
    pub(super) fn dispatch(
        &mut self,
        id: HttpExchangeId,
        request: &HttpRequest<'_>,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
        let head = &request.head;
        check_head(head, &self.config)?;
        // The exchange of this request is counted, too.
        if self.exchanges.len() > self.config.limits.exchanges {
            return Err(Refusal::overloaded("too many requests at once"));
        }
        match head.method {
            Method::Get => self.dispatch_get(id, request),
            Method::Delete => self.dispatch_delete(id, request),
            Method::Post | Method::Other => self.dispatch_post(id, request, context),
        }
    }

    fn dispatch_post(
        &mut self,
        id: HttpExchangeId,
        request: &HttpRequest<'_>,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
        if request.body.len() > self.config.limits.body_bytes {
            return Err(Refusal::new(413, format!("a body has at most {} bytes", self.config.limits.body_bytes)));
        }
        let read;
        let body = match &request.contents {
            Some(contents) => contents,
            None => {
                read = message::read(&request.body, self.config.limits.batch);
                &read
            }
        };
        let posted = match body {
            Body::Malformed { id, error, .. } => return Err(Refusal::with_error(400, error.clone(), id.clone())),
            Body::Message(Message::Request(request)) => request.posted(),
            Body::Message(Message::Notification) => Posted::Notification,
            Body::Message(Message::Response) => Posted::Response,
            Body::Batch(_) => Posted::Batch,
        };
        let session = self.session_of(request);
        match classify(posted, named_version(&request.head.headers), session.is_ok(), self.config.era) {
            Destination::Discard => {
                if let Some(exchange) = self.exchanges.get_mut(&id) {
                    exchange.complete(202, Headers::new(), None);
                }
                self.announce(id);
                Ok(())
            }
            Destination::Serve(Era::Modern) => match body {
                Body::Message(Message::Request(message)) => self.serve_modern(id, request, message, context),
                _ => Err(Refusal::new(400, "the body must be one request or notification")),
            },
            Destination::Serve(Era::Legacy) => self.serve_legacy(id, request, body, session, context),
        }
    }

    /// Serves a request without a handshake in a new session of its own, unless its headers contradict its body.
    fn serve_modern(
        &mut self,
        id: HttpExchangeId,
        request: &HttpRequest<'_>,
        message: &message::Request,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
        check_required_copies(message, &request.head.headers, context).map_err(|mismatch| contradiction(message, &mismatch))?;
        self.check_running().map_err(|refusal| Refusal { id: Some(message.id.clone()), ..refusal })?;
        let is_subscription = message.is_subscription();
        if is_subscription && self.subscriptions >= self.config.limits.subscriptions {
            return Err(Refusal { id: Some(message.id.clone()), ..Refusal::overloaded("too many subscriptions") });
        }
        self.subscriptions = self.subscriptions.saturating_add(usize::from(is_subscription));
        let key = SessionKey(self.number());
        self.sessions.insert(key, HttpSession::stateless(key, is_subscription));
        self.events.push_back(HttpEvent::Open { session: key, era: Era::Modern });
        self.deliver(key, id, request.body.clone(), 1, true);
        Ok(())
    }

    fn serve_legacy(
        &mut self,
        id: HttpExchangeId,
        request: &HttpRequest<'_>,
        body: &Body,
        session: Result<SessionKey, Refusal>,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
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
        let Some(key) = key else { return self.open_session(id, request, context) };
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

    fn open_session(
        &mut self,
        id: HttpExchangeId,
        request: &HttpRequest<'_>,
        context: &mut dyn HttpContext,
    ) -> Result<(), Refusal> {
        self.check_running()?;
        let client = request.client.as_deref().or(request.principal).map(Text::from);
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

    fn dispatch_get(&mut self, id: HttpExchangeId, request: &HttpRequest<'_>) -> Result<(), Refusal> {
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

    fn dispatch_delete(&mut self, id: HttpExchangeId, request: &HttpRequest<'_>) -> Result<(), Refusal> {
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

/// Makes the checks of a request that need neither the body nor a session.
pub(super) fn check_head(head: &RequestHead<'_>, config: &HttpServerConfig) -> Result<(), Refusal> {
    origin::check(head, &config.hosts, &config.origins).map_err(|forbidden| Refusal::new(403, format!("{forbidden}")))?;
    let accepted = || Accepted::read(head.headers.get_all(header::ACCEPT));
    match (head.method, config.era) {
        (Method::Post, _) => {
            let types = head.headers.only(header::CONTENT_TYPE);
            if !types.ok().flatten().is_some_and(|value| is_media_type(value.as_bytes(), JSON)) {
                return Err(Refusal::new(415, "the header Content-Type must be application/json"));
            }
            if !(accepted().json && accepted().event_stream) {
                return Err(Refusal::new(406, "the header Accept must list application/json and text/event-stream"));
            }
            Ok(())
        }
        (_, mcp::Era::Modern) => Err(Refusal::method("POST")),
        (Method::Get, _) if !accepted().event_stream => Err(Refusal::new(406, "the header Accept must list text/event-stream")),
        (Method::Get | Method::Delete, _) => Ok(()),
        (Method::Other, _) => Err(Refusal::method("GET, POST, DELETE")),
    }
}

/// The version that the header `MCP-Protocol-Version` names.
fn named_version(headers: &Headers<'_>) -> NamedVersion {
    headers.only(header::VERSION).map_or(NamedVersion::Unknown, NamedVersion::of)
}

/// Returns `true` if the header `MCP-Protocol-Version` names a revision without a handshake.
pub(super) fn names_modern(headers: &Headers<'_>) -> bool {
    matches!(named_version(headers), NamedVersion::Known(revision) if !revision.has_handshake())
}

/// Checks the version of a request within a session. The header may name any [known](NamedVersion::Known) version, but the version of the
/// session applies.
fn check_version(headers: &Headers<'_>) -> Result<(), Refusal> {
    match named_version(headers) {
        NamedVersion::Absent | NamedVersion::Known(_) => Ok(()),
        NamedVersion::Newer | NamedVersion::Unknown => {
            Err(Refusal::new(400, "the header MCP-Protocol-Version names no version that is served"))
        }
    }
}

/// The refusal of a request whose headers contradict its body.
fn contradiction(message: &message::Request, mismatch: &Mismatch) -> Refusal {
    let error = RpcError::new(RpcError::HEADER_MISMATCH, format!("{mismatch}"));
    Refusal::with_error(400, error, Some(message.id.clone()))
}

/// Checks the headers `Mcp-Method` and `Mcp-Name` of a request in the era with a handshake. Neither is required, but a header that is there
/// must agree with the body, since a proxy may rely on it.
fn check_optional_copies(message: &message::Request, headers: &Headers<'_>) -> Result<(), Mismatch> {
    let method = headers.only(header::METHOD).map_err(|_| Mismatch::Unreadable(Text::from_static(header::METHOD)))?;
    if method.is_some_and(|method| method != &*message.method) {
        return Err(Mismatch::Different(Text::from_static(header::METHOD)));
    }
    // Without a name in the body there is nothing to compare. If the method needs a name, the session refuses the request.
    let Some(expected) = message.name.as_deref() else { return Ok(()) };
    match header::decoded(headers, header::NAME)? {
        Some(name) if name != expected => Err(Mismatch::Different(Text::from_static(header::NAME))),
        _ => Ok(()),
    }
}

/// Checks the headers that repeat a part of a request without a handshake. A header that is missing or cannot be read is reported first,
/// then a missing member of `_meta`, which the session reports, and then a header that contradicts the body.
fn check_required_copies(message: &message::Request, headers: &Headers<'_>, context: &mut dyn HttpContext) -> Result<(), Mismatch> {
    let plain = |name: &'static str| match headers.only(name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(Mismatch::Missing(Text::from_static(name))),
        Err(_) => Err(Mismatch::Unreadable(Text::from_static(name))),
    };
    let version = plain(header::VERSION)?;
    let method = plain(header::METHOD)?;
    let name = match message.has_name() {
        true => Some(header::decoded(headers, header::NAME)?.ok_or(Mismatch::Missing(Text::from_static(header::NAME)))?),
        false => None,
    };
    let Some(version_in_meta) = message.version.as_deref() else { return Ok(()) };
    let differs = |name| Err(Mismatch::Different(Text::from_static(name)));
    if version != version_in_meta {
        return differs(header::VERSION);
    }
    if method != &*message.method {
        return differs(header::METHOD);
    }
    // Without a name in the body there is nothing to compare. If the method needs a name, the session refuses the request.
    let expected = message.name.as_deref();
    if expected.is_some() && expected != name.as_deref() {
        return differs(header::NAME);
    }
    let tool = expected.filter(|_| message.calls_tool() && version_in_meta == Revision::NEWEST.as_str());
    match tool.and_then(|tool| context.param_headers(tool)) {
        Some(params) => params.check(message.arguments(), headers),
        None => Ok(()),
    }
}
