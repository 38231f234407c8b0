//! The server's end of Streamable HTTP. In these files an *exchange* is an HTTP exchange.
//!
//! The states of the stream of a POST with a request, in a session with a handshake (Transports 2025-11-25, "Sending Messages to the
//! Server" and "Resumability and Redelivery"):
//!
//! | State | Input | Effect | Next state |
//! |---|---|---|---|
//! | waiting | a result or an error, unless the body was a batch | the response is JSON, with 200 | removed |
//! | | any other frame, or no frame for the time [`HttpTimeouts::keep_alive`] | the response is a stream of events. From 2025-11-25 on, if the stream can be resumed, it begins with an event without a frame, which *primes* the client to resume | live |
//! | | [`HttpServer::handle_half_close`] | the response is a stream of events, with a comment | live |
//! | | the exchange is lost | | detached |
//! | | [`HttpServer::suspend`] | the response is a stream of events, which has the time after which to resume, and ends | detached |
//! | live | a frame | the frame is written, and kept if the stream can be resumed | live |
//! | | no frame for the time [`HttpTimeouts::keep_alive`], or [`HttpServer::handle_half_close`] | a comment is written | live |
//! | | the last reply | the reply is written, and the response ends | done |
//! | | the exchange is lost | | detached |
//! | | [`HttpServer::suspend`] | the time after which to resume is written, and the response ends | detached |
//! | | a GET with the id of an event of the stream | the response ends, and the later events are written in the response of the GET | live |
//! | detached | a frame | the frame is kept, or dropped if the stream cannot be resumed | detached |
//! | | a GET with the id of an event of the stream | the later events are written | live |
//! | | the last reply | the reply is kept | done |
//! | | [`HttpTimeouts::detached`] is over | later frames of the stream are dropped | removed |
//! | done | a GET with the id of an event of the stream | the later events are written, and the response ends | done |
//! | | [`HttpTimeouts::replay`] is over, or a limit on replay is exceeded | | removed |
//!
//! A stream that cannot be resumed is removed instead of becoming done. In each state but done, [`HttpServer::handle_settled`] ends the
//! response and removes the stream. Until the session has taken the frame of the request, it can refuse the frame
//! ([`HttpServer::handle_full`], or [`HttpServer::handle_received`] without replies): a response that has not begun becomes an error, any
//! other response ends, and the stream is removed. The end of the session removes all its streams.
//!
//! The response to `initialize` never becomes a stream: frames before its reply are dropped, and the loss of the exchange ends the
//! session.
//!
//! Without a handshake, events have no ids, and the loss of the exchange ends the request and its session.

mod clients;
mod exchange;
mod gate;
mod refusal;
mod requests;
mod responses;
mod session;
mod stream;
mod timers;
mod types;

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};

use super::head::Headers;
use super::message::ErrorId;
use crate::json::Text;
use crate::session::{Lane, RouteKind, Transmit};
use crate::shared::Arc;
use crate::time::Instant;

use clients::Clients;
use exchange::Exchange;
pub use gate::Admitted;
pub use refusal::HttpRefusal;
use refusal::Refusal;
use session::HttpSession;
use stream::State;
use timers::{Shared, TimerKey};
pub use types::{HttpContext, HttpEvent, HttpExchangeId, HttpRequest, HttpServerConfig, NotResumable, ResponsePart, SessionKey};

/// The server's end of Streamable HTTP, for both eras on one path.
///
/// It connects HTTP exchanges with the lanes of sessions. Its owner has an HTTP library, and a [`Session`](crate::Session) for each
/// [`SessionKey`].
///
/// * Pass each request, with its whole body, to [`handle_request`](Self::handle_request); the body is needed only of a POST whose
///   head passes [`HttpServerConfig::check`]. If a client disconnects, or drops a response, call [`handle_lost`](Self::handle_lost).
/// * Poll events ([`poll_event`](Self::poll_event)): they are instructions to open sessions, to pass frames to them, and to drop them.
/// * Pass each frame that a session returns to [`handle_transmit`](Self::handle_transmit).
/// * Poll the parts of each response ([`poll_response`](Self::poll_response)), and the next deadline
///   ([`poll_timeout`](Self::poll_timeout)).
///
/// Poll events after each method, and the frames and events of a session after each method of that session. After
/// [`Event::Cancelled`](crate::Event::Cancelled) of a session, call [`handle_settled`](Self::handle_settled) for each of the
/// [lanes at work](Self::lanes_at_work) on which the session owes no reply ([`crate::Session::replies_owed`]). Once a session has closed,
/// call [`handle_closed`](Self::handle_closed).
///
/// A request without a handshake gets a session of its own, which ends with its response. So nothing of such a request is stored beyond its
/// exchange.
///
/// # What always holds
///
/// | | |
/// |---|---|
/// | G17 | Every exchange gets exactly one head and exactly one end, or at most these if it is lost; after its end or loss, no byte. |
/// | G18 | An event is replayed at most once for each resumption, in order, and on its own stream of its own session only. |
///
/// # Example
///
/// ```
/// use protocol_core::http::{
///     Headers, HttpContext, HttpEvent, HttpRequest, HttpServer, HttpServerConfig, Method, RequestHead, ResponsePart,
/// };
/// use protocol_core::{Config, Identity, Instant, Protocol, Session};
///
/// struct Context;
/// impl HttpContext for Context {
///     fn random(&mut self) -> [u8; 16] {
///         [7; 16] // A program takes them from a secure generator.
///     }
/// }
///
/// let now = Instant::ZERO;
/// let mut server = HttpServer::new(HttpServerConfig::default(), now);
/// let headers = [("host", "localhost"), ("content-type", "application/json"), ("accept", "*/*")];
/// let head = RequestHead::new(Method::Post, headers.into_iter().collect());
/// let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
/// let exchange = server.handle_request(&HttpRequest::new(head, body.into()), &mut Context, now);
///
/// let mut session = None;
/// while let Some(event) = server.poll_event() {
///     match event {
///         HttpEvent::Open { .. } => session = Some(Session::new(Config::mcp_server(Identity::new("server", "1")), now)),
///         HttpEvent::Frame { session: key, exchange, lane, frame } => {
///             let Some(session) = &mut session else { continue };
///             match session.handle_frame(frame, lane, now) {
///                 Ok(received) => server.handle_received(exchange, received.replies, now),
///                 Err(_) => server.handle_full(exchange, now),
///             }
///             while let Some(transmit) = session.poll_transmit() {
///                 server.handle_transmit(key, transmit, now);
///             }
///         }
///         _ => {}
///     }
/// }
/// let Some(ResponsePart::Head { head, .. }) = server.poll_response(exchange, now) else { panic!("a head") };
/// assert_eq!(head.status, 200);
/// assert_eq!(head.headers.only("mcp-session-id"), Ok(Some("07070707070707070707070707070707")));
/// assert!(matches!(server.poll_response(exchange, now), Some(ResponsePart::Chunk(_))));
/// assert_eq!(server.poll_response(exchange, now), Some(ResponsePart::End));
/// ```
#[derive(Debug)]
pub struct HttpServer {
    config: Arc<HttpServerConfig>,
    now: Instant,
    exchanges: BTreeMap<HttpExchangeId, Exchange>,
    /// Streams that have moved to another exchange, or lost theirs, before the session has taken the frame of their request. The key is the
    /// exchange in whose request the frame came.
    untaken: BTreeMap<HttpExchangeId, (SessionKey, Lane)>,
    sessions: BTreeMap<SessionKey, HttpSession>,
    /// The open sessions with a handshake, by the id in the header `Mcp-Session-Id`. An index of `sessions`.
    ids: BTreeMap<Text, SessionKey>,
    /// The sessions with a handshake, including those whose handshake is not done.
    clients: Clients,
    /// The number of sessions that serve a `subscriptions/listen`.
    subscriptions: usize,
    next_number: u64,
    shared: Shared,
    events: VecDeque<HttpEvent>,
    /// `true` once [`Self::stop`] was called: no session and no GET stream is opened any longer.
    is_stopped: bool,
}

impl HttpServer {
    /// A server without sessions.
    #[must_use]
    pub fn new(config: impl Into<Arc<HttpServerConfig>>, now: Instant) -> Self {
        Self {
            config: config.into(),
            now,
            exchanges: BTreeMap::new(),
            untaken: BTreeMap::new(),
            sessions: BTreeMap::new(),
            ids: BTreeMap::new(),
            clients: Clients::default(),
            subscriptions: 0,
            next_number: 1,
            shared: Shared::default(),
            events: VecDeque::new(),
            is_stopped: false,
        }
    }

    // ---- Inputs ----

    /// Takes the number of replies that a frame will cause ([`Received::replies`](crate::Received::replies)). Call this method before the
    /// frames of the session are polled. If the frame has no request, the exchange is acknowledged with 202. If it has a request but causes
    /// no reply, the exchange is answered with 400; a response that has begun ends, and if the exchange was lost, nothing more is kept for
    /// it. Has no effect on an exchange whose frame was taken or refused before.
    pub fn handle_received(&mut self, exchange: HttpExchangeId, replies: usize, now: Instant) {
        self.advance(now);
        match self.take_untaken(exchange) {
            Some((key, lane)) if replies == 0 => {
                self.refuse(exchange, Refusal::new(400, "this request is not answered"), self.absent_id(key));
                self.end_stream(key, lane);
            }
            Some((key, lane)) => {
                if let Some(session) = self.sessions.get_mut(&key) {
                    session.with_stream(lane, |stream| stream.take(replies));
                }
            }
            // No stream waits for this frame: it has no request, and is only acknowledged, or it was taken or refused before.
            None => {
                let Some(found) = self.exchanges.get_mut(&exchange).filter(|found| found.has_receiver()) else { return };
                found.complete(202, Headers::new(), None);
                self.note_taken(exchange);
                self.announce(exchange);
            }
        }
    }

    /// Answers an exchange with 503, since the session did not take its frame ([`Full`](crate::Full)). A response that has begun ends, and
    /// if the exchange was lost, nothing more is kept for it. Has no effect on an exchange whose frame was taken or refused before.
    pub fn handle_full(&mut self, exchange: HttpExchangeId, now: Instant) {
        self.advance(now);
        let refusal = Refusal::overloaded("the session is overloaded");
        if let Some((key, lane)) = self.take_untaken(exchange) {
            self.refuse(exchange, refusal, self.absent_id(key));
            self.end_stream(key, lane);
        } else if self.exchanges.get(&exchange).is_some_and(Exchange::has_receiver) {
            self.note_taken(exchange);
            self.refuse(exchange, refusal, ErrorId::Null);
        }
    }

    /// Takes a frame that a session returned. The frame is dropped if the stream of its lane was removed or is done, and if it comes before
    /// the reply to `initialize`. A frame of the channel is dropped unless the session is open and has a handshake.
    pub fn handle_transmit(&mut self, session: SessionKey, transmit: Transmit, now: Instant) {
        self.advance(now);
        let Transmit { frame, route } = transmit;
        let Some(found) = self.sessions.get(&session) else { return };
        if route.lane == Lane::CHANNEL {
            // Frames that belong to no request are sent only in a session with a handshake.
            if found.is_open() {
                self.transmit_on_channel(session, frame);
            }
            return;
        }
        let Some(stream) = found.stream(route.lane) else { return };
        match (stream.state(), route.kind) {
            (State::Waiting(exchange), RouteKind::Reply(kind)) if stream.fits_json() => {
                self.reply_by_json(session, route.lane, exchange, kind, frame);
            }
            (State::Waiting(_), _) if found.is_opening() => {}
            (State::Done, _) => {}
            (State::Waiting(_), kind) => {
                self.begin_stream(session, route.lane);
                self.write_frame(session, route.lane, &frame, matches!(kind, RouteKind::Reply(_)));
            }
            (State::Live(_) | State::Detached, kind) => {
                self.write_frame(session, route.lane, &frame, matches!(kind, RouteKind::Reply(_)));
            }
        }
    }

    /// Ends the response on a lane on which the session no longer owes a reply, because the client has cancelled the request. Poll the
    /// frames of the lane first.
    pub fn handle_settled(&mut self, session: SessionKey, lane: Lane, now: Instant) {
        self.advance(now);
        let Some(stream) = self.sessions.get(&session).and_then(|session| session.stream(lane)) else { return };
        if !stream.is_at_work() {
            return;
        }
        if let Some(exchange) = stream.exchange().and_then(|exchange| self.exchanges.get_mut(&exchange)) {
            // The end of a response needs a head before it.
            exchange.open(self.now);
        }
        self.end_stream(session, lane);
    }

    /// Handles the loss of an exchange, before or after its head: the client has disconnected or reset the stream, or the response was
    /// dropped. Without a handshake, and for `initialize`, the loss ends the session. Has no effect on an exchange that is over.
    pub fn handle_lost(&mut self, exchange: HttpExchangeId, now: Instant) {
        self.advance(now);
        let Some(source) = self.remove_exchange(exchange) else { return };
        if let Some((key, lane)) = source {
            self.detach(key, lane);
        }
    }

    /// Handles a client that has closed its side of the connection after the request. It may still read the response, or be gone; a
    /// transport finds out which of the two only by writing. So the response becomes a stream of events, with a comment at once, and
    /// further comments after times that double from 100 ms to [`HttpTimeouts::keep_alive`](crate::http::HttpTimeouts::keep_alive). If the
    /// client is gone, these comments cannot be written; then call [`handle_lost`](Self::handle_lost). Has no effect on an exchange that is
    /// over, that has no stream, or that is the exchange of `initialize`.
    pub fn handle_half_close(&mut self, exchange: HttpExchangeId, now: Instant) {
        self.advance(now);
        self.probe_client(exchange);
    }

    /// Handles the end of a session that has closed by itself: its exchanges end, and its id is forgotten. Has no effect on a session that
    /// has ended.
    pub fn handle_closed(&mut self, session: SessionKey, now: Instant) {
        self.advance(now);
        // The owner has reported the end, so it gets no event.
        self.close(session, false);
    }

    /// Ends a session: its exchanges end, its id is forgotten, and [`HttpEvent::Close`] is queued. Has no effect on a session that has
    /// ended.
    pub fn close_session(&mut self, session: SessionKey, now: Instant) {
        self.advance(now);
        self.close(session, true);
    }

    /// Refuses new work from now on, with 503: requests without a handshake, `initialize`, and GET streams that resume no stream. The
    /// existing sessions go on, so that the owner can close them gracefully.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The exchange in whose response the stream of `lane` is sent now. `None` if the client has disconnected, if the stream was
    /// suspended, if all replies on this lane were made, or if there is no such lane.
    #[must_use]
    pub fn current_exchange(&self, session: SessionKey, lane: Lane) -> Option<HttpExchangeId> {
        self.sessions.get(&session)?.stream(lane)?.exchange()
    }

    /// Handles every deadline up to and including `now`. Does nothing else, so it may be called at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(key) = self.shared.take_due(self.now) {
            match key {
                TimerKey::KeepAlive(exchange) => self.keep_alive(exchange),
                TimerKey::Retention(key, lane) => {
                    let Some(session) = self.sessions.get_mut(&key) else { continue };
                    session.with_stream(lane, |stream| stream.retention().forget());
                    let was_active = session.is_active();
                    session.remove_stream(lane, &mut self.shared);
                    // The removal of a stream that was kept only for replay changes nothing: the session is as active as before, and if it
                    // is idle, its idle deadline is set already.
                    if was_active && !session.is_active() {
                        self.arm_idle(key);
                    }
                }
                TimerKey::Idle(key) => {
                    if let Some(session) = self.sessions.get_mut(&key) {
                        let since = session.idle().forget();
                        self.clients.move_idle(session.client(), key, since, None);
                    }
                    self.close(key, true);
                }
            }
        }
    }

    // ---- Outputs ----

    /// The next instruction.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<HttpEvent> {
        self.events.pop_front()
    }

    /// The next part of the response of an exchange; `None` if no part is ready, or if the exchange is over.
    #[must_use = "a part that is polled and not written is lost"]
    pub fn poll_response(&mut self, exchange: HttpExchangeId, now: Instant) -> Option<ResponsePart> {
        self.advance(now);
        let found = self.exchanges.get_mut(&exchange)?;
        let part = found.poll();
        // The lane is resumed once at least half of the limit is free.
        let has_room = found.buffered_bytes() <= self.config.limits.output_bytes / 2;
        let source = found.source();
        if part == Some(ResponsePart::End) {
            self.remove_exchange(exchange);
        } else if let Some((key, lane)) = source.filter(|_| has_room) {
            self.set_stopped(key, lane, false);
        }
        part
    }

    /// The next deadline, at which [`handle_timeout`](Self::handle_timeout) must be called; `None` if there is none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.shared.next()
    }

    /// The lanes on which this server still expects a reply of the session.
    pub fn lanes_at_work(&self, session: SessionKey) -> impl Iterator<Item = Lane> {
        self.sessions.get(&session).into_iter().flat_map(HttpSession::lanes_at_work)
    }

    /// All sessions: those with a handshake, and one for each request without a handshake.
    pub fn session_keys(&self) -> impl Iterator<Item = SessionKey> {
        self.sessions.keys().copied()
    }

    /// The number of sessions: those with a handshake, and one for each request without a handshake.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The number of `subscriptions/listen` that are being served.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// The number of bytes that are kept for replay, over all sessions.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.shared.kept_bytes()
    }

    /// The number of exchanges that are not over.
    #[must_use]
    pub fn exchanges(&self) -> usize {
        self.exchanges.len()
    }

    /// Advances the time to `now`. If `now` is earlier, the time stays as it is.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number = self.next_number.saturating_add(1);
        number
    }
}
