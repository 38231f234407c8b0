//! The client's end of Streamable HTTP.
//!
//! ```text
//!   Running ------------------- fail: the server cannot be used ---------------------> Failed
//!    |   | use_old_transport: the server refuses both eras      ^                        |
//!    |   v                                                      | its stream has failed  |
//!    |  Old ----------------------------------------------------'                        |
//!    |   |                                                                               |
//!    `---+---------------- close -------------> Closing <---------- close ---------------'
//!                                                  |
//!                                                  | posted messages are acknowledged,
//!                                                  v and the HTTP session is ended
//!                                               Closed
//! ```
//!
//! | Files | |
//! |---|---|
//! | `exchange`, `call`, `session`, `get_stream` | the machines of one HTTP request, of one request of the session, of the HTTP session, and of the GET stream: the stream of messages that belong to no call |
//! | `resumption`, `backlog`, `tools`, `cache` | the waits before a stream is resumed, the frames that wait, the headers of tools, and cached results |
//! | `verdict`, `reason` | the meaning of a response, and the reason of a loss |
//! | `requests`, `responses` | the steps that make requests, and those that read responses |
//!
//! In these files an *exchange* is an HTTP exchange, with an [`HttpRequestId`]. A *call* is one exchange of the session, with an
//! [`ExchangeId`]: one JSON-RPC request and its response.

mod backlog;
mod cache;
mod call;
mod exchange;
mod get_stream;
mod reason;
mod requests;
mod responses;
mod resumption;
mod session;
mod tools;
mod types;
mod verdict;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use super::head::{Headers, Method, ResponseHead};
use super::header;
use super::limits::{HttpClientLimits, HttpClientTimeouts};
use super::location::{InvalidUrl, Location, without_credentials};
use super::timers::{Armed, Timers};
use crate::json::Text;
use crate::session::{ExchangeId, Lane, Transmit};
use crate::shared::Arc;
use crate::time::Instant;

use backlog::Backlog;
use cache::Cache;
use call::Call;
use exchange::{Exchange, Purpose};
use get_stream::GetStream;
pub use reason::{HttpExcerpt, HttpReason};
use resumption::Jitter;
use session::HttpSession;
use tools::Tools;
pub use types::{HttpClientRequest, HttpFault, HttpRequestId};

/// The configuration of an [`HttpClient`]. `Debug` shows the address without a password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpClientConfig {
    /// The address at which the server serves MCP, such as `https://example.com/mcp`.
    pub url: Text,
    /// `true` if a client opens a *GET stream* after a handshake: a stream for messages of the server that belong to no call. Default:
    /// `true`.
    pub get_stream: bool,
    /// `true` if the client tries the transport of 2024-11-05 with a server that speaks neither era over Streamable HTTP. Default: `true`.
    pub old_transport: bool,
    /// `true` if lists and the contents of resources are cached for the time that a server without a handshake allows (`ttlMs`). They are
    /// dropped earlier after a notification of their change, after the end of a subscription (unless this end cancelled it), and after a
    /// 401 or
    /// 403. The list of tools is also dropped if the server refuses a request because a header is missing or wrong. With a cache, all
    /// requests of a client must be made for the same caller. Default: `false`.
    pub cache: bool,
    /// A number that differs between clients, so that the clients of one server do not reconnect at the same time. Default: 0.
    pub seed: u64,
    /// The bounds on memory and concurrency.
    pub limits: HttpClientLimits,
    /// The time limits.
    pub timeouts: HttpClientTimeouts,
}

impl HttpClientConfig {
    /// A configuration with the address of a server.
    #[must_use]
    pub fn new(url: impl Into<Text>) -> Self {
        Self {
            url: url.into(),
            get_stream: true,
            old_transport: true,
            cache: false,
            seed: 0,
            limits: HttpClientLimits::default(),
            timeouts: HttpClientTimeouts::default(),
        }
    }
}

impl fmt::Debug for HttpClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, get_stream, old_transport, cache, seed, limits, timeouts } = self;
        f.debug_struct("HttpClientConfig")
            .field("url", &without_credentials(url))
            .field("get_stream", get_stream)
            .field("old_transport", old_transport)
            .field("cache", cache)
            .field("seed", seed)
            .field("limits", limits)
            .field("timeouts", timeouts)
            .finish()
    }
}

/// An instruction to the owner of an [`HttpClient`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpClientEvent {
    /// Make the request, and pass its response to the client. Do not follow redirections.
    Send(HttpClientRequest),
    /// Give up the request and its response, so that the stream is closed at the server, too. No further event names the request.
    Abort(HttpRequestId),
    /// Pass the frame to the session ([`Session::handle_frame_within`](crate::Session::handle_frame_within)).
    Frame {
        /// The frame.
        frame: Bytes,
        /// The lane. Each HTTP session has a lane of its own, since a server may use the same ids for requests in two HTTP sessions, and an
        /// answer must be sent in the HTTP session of its request.
        lane: Lane,
        /// The request of the session on whose stream the frame came; `None` for a frame on another stream.
        exchange: Option<ExchangeId>,
    },
    /// Tell the session that a response will not come ([`Gone::Response`](crate::Gone::Response)).
    Lost {
        /// The request of the session.
        exchange: ExchangeId,
        /// The reason, for people. If attempts to resume a stream have failed, it is the reason for which the stream broke at first.
        why: HttpReason,
    },
    /// A stream broke, or the handshake could not be repeated at once, and the client tries again for a while. This event is only for
    /// people who wait meanwhile. It comes once until there is a new event on the stream.
    Resuming {
        /// The request of the session whose stream broke; `None` for the handshake.
        exchange: Option<ExchangeId>,
        /// The reason.
        why: HttpReason,
    },
    /// Resume (`true`) or stop (`false`) the channel of the session ([`Session::set_writable`](crate::Session::set_writable)).
    Writable(bool),
    /// The server had forgotten the HTTP session, and there is a new one. Requests that the server had not accepted are repeated in it.
    /// Subscriptions and the log level, which the server kept for the old HTTP session, are lost.
    Reopened,
    /// The server broke a rule, has not accepted a request, or could not be reached. This event is only for logs: if the fault has
    /// consequences, other events follow.
    Fault {
        /// The request of the session that the fault is about; `None` if it is about no single request.
        exchange: Option<ExchangeId>,
        /// The reason.
        fault: HttpFault,
    },
    /// The server cannot be used, or can no longer be used. End the session ([`Session::handle_end`](crate::Session::handle_end)), then
    /// close the client.
    Failed(HttpFailure),
    /// The client is closed. No event follows.
    Closed,
}

/// The reason why the server cannot be used, or can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpFailure {
    /// The probe, the handshake, or the request for the stream of the transport of 2024-11-05 was not accepted, or got no response. If the
    /// fault is [`HttpFault::Unauthorized`], a new client may try again once the caller is authorized.
    #[error("{0}")]
    Refused(Box<HttpReason>),
    /// The server has not answered the probe, and the session no longer waits for the answer.
    #[error("the server does not answer {PROBE}")]
    NoAnswer,
    /// The server does not speak MCP at this address. The response to the handshake is in the reason, if that shows it.
    #[error("the server does not speak MCP at this address{}", after(.0.as_deref()))]
    NotMcp(Option<Box<HttpReason>>),
    /// The server has forgotten the HTTP session, and the handshake could not be repeated with the same version. Contains the reason for
    /// which the first attempt failed, if it got no answer.
    #[error("the server has ended the session{}", after(.0.as_deref()))]
    SessionLost(Option<Box<HttpReason>>),
    /// The stream of the transport of 2024-11-05 has ended.
    #[error("the server has ended the connection")]
    Ended,
}

impl HttpFailure {
    /// Returns `true` if the server may be an old one that can be used with [`Era::Legacy`](crate::mcp::Era::Legacy): it has not accepted
    /// or not answered the probe, the request for its revisions, for a reason that may be the probe itself. A broken connection, a
    /// redirection, a missing authorization, an overload (429, 503) and the errors of a gateway (502, 504) are no such reasons.
    #[must_use]
    pub fn may_be_legacy(&self) -> bool {
        match self {
            Self::Refused(why) => &*why.request == PROBE && why.fault.leaves_era_in_doubt(),
            Self::NoAnswer => true,
            Self::NotMcp(_) | Self::SessionLost(_) | Self::Ended => false,
        }
    }
}

/// The method of the probe.
const PROBE: &str = "server/discover";

fn after(why: Option<&HttpReason>) -> String {
    why.map_or_else(String::new, |why| format!(": {why}"))
}

/// The client's end of Streamable HTTP, for both eras, and of the transport of 2024-11-05.
///
/// It connects the session of a client of MCP with HTTP requests. Its owner has the [`Session`](crate::Session) and an HTTP library. The
/// session chooses the era ([`Config::era`](crate::Config::era)); over HTTP, configure [`Auto`](crate::mcp::Era::Auto).
///
/// * Pass each frame that the session returns to [`handle_transmit`](Self::handle_transmit).
/// * Pass the head of each response, the pieces of its body and its end to [`handle_head`](Self::handle_head),
///   [`handle_chunk`](Self::handle_chunk) and [`handle_end`](Self::handle_end). If the connection fails or breaks, call
///   [`handle_loss`](Self::handle_loss). Poll all events before the next piece.
/// * Poll events ([`poll_event`](Self::poll_event)): they are instructions to make requests, to give requests up, and to pass frames to the
///   session. Before you pass a frame, poll the events of the session, so that it [takes](crate::Session::wants_input) the frame.
/// * Poll the next deadline ([`poll_timeout`](Self::poll_timeout)).
///
/// # Actions of the client itself
///
/// | Cause | Action with a handshake | Action without a handshake |
/// |---|---|---|
/// | a call is cancelled | the cancel is posted, then the stream is closed | the stream is closed |
/// | a stream breaks before its response | the stream is resumed after its last event; if no event had an id, the call is lost | the call is lost |
/// | the server answers the request that resumes a stream, or that repeats the handshake, with `Retry-After` | the next attempt is made after that time | |
/// | the server has forgotten the HTTP session | the handshake is repeated, then each request that was refused for this reason is repeated once | |
/// | the server refuses a call of a tool because a header is missing or wrong | | the list of tools is read, and the call is repeated once |
/// | the server allows caching, and [`HttpClientConfig::cache`] is on | | later requests for the same result get the cached one |
/// | the client is closed | the HTTP session is ended | |
///
/// A server that has forgotten the HTTP session answers with 404. Old servers answer with 400, and the body is text, or an error that does
/// not name the request. After such a 400, a call is repeated as after a 404 if the text, or the message of the error, contains the word
/// "session".
///
/// In every other case, if the server answers a call with a status from 300 to 499, and the body has no error, the call ends with the error
/// [`RpcError::INTERNAL`](crate::RpcError::INTERNAL), whose message names the status. If the status is 500 or higher, and the body has no
/// error, the call is lost.
///
/// # Example
///
/// ```
/// use protocol_core::http::{Headers, HttpClient, HttpClientConfig, HttpClientEvent, ResponseHead};
/// use protocol_core::mcp::Era;
/// use protocol_core::{Config, Identity, Instant, Session};
///
/// let now = Instant::ZERO;
/// let mut config = Config::mcp_client(Identity::new("client", "1"));
/// config.era = Era::Auto;
/// let mut session = Session::new(config, now);
/// let mut client = HttpClient::new(HttpClientConfig::new("http://localhost:8080/mcp"), now)?;
///
/// client.handle_transmit(session.poll_transmit().expect("the probe"), now);
/// let Some(HttpClientEvent::Send(probe)) = client.poll_event() else { panic!("a request") };
/// assert_eq!((probe.method.as_str(), &*probe.target), ("POST", "/mcp"));
/// assert_eq!(probe.headers.only("mcp-method"), Ok(Some("server/discover")));
///
/// client.handle_head(probe.id, &ResponseHead::new(404, Headers::new()), now);
/// client.handle_end(probe.id, now);
/// while let Some(event) = client.poll_event() {
///     if let HttpClientEvent::Frame { frame, lane, exchange } = event {
///         session.handle_frame_within(frame, lane, exchange, now)?;
///     }
/// }
/// client.handle_transmit(session.poll_transmit().expect("the handshake"), now);
/// let Some(HttpClientEvent::Send(handshake)) = client.poll_event() else { panic!("a request") };
/// assert!(handshake.body.windows(10).any(|part| part == b"initialize"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HttpClient {
    config: Arc<HttpClientConfig>,
    now: Instant,
    location: Location,
    phase: Phase,
    exchanges: BTreeMap<HttpRequestId, Exchange>,
    calls: BTreeMap<ExchangeId, Call>,
    session: HttpSession,
    get_stream: GetStream,
    tools: Tools,
    backlog: Backlog,
    cache: Cache,
    jitter: Jitter,
    /// The deadline for posted messages while the client closes.
    closing: Armed,
    timers: Timers<TimerKey>,
    events: VecDeque<HttpClientEvent>,
    next_number: u64,
}

#[derive(Debug)]
enum Phase {
    Running,
    /// The transport of 2024-11-05.
    Old {
        /// The target of messages, once the server has named it.
        target: Option<Text>,
        /// The request with the confirmation of the handshake, until it is acknowledged. Until then later messages wait.
        confirming: Option<HttpRequestId>,
    },
    Failed,
    Closing,
    Closed,
}

/// The kind of a deadline, and the part of the client that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    /// Gives up an HTTP exchange that has taken too long.
    Exchange(HttpRequestId),
    /// Resumes the stream of a call.
    Resume(ExchangeId),
    /// Opens the GET stream again.
    GetStream,
    /// Repeats the handshake, if its last attempt was lost. Otherwise sends the requests that wait for the GET stream.
    Session,
    /// Ends the wait for posted messages while the client closes.
    Close,
}

impl HttpClient {
    /// A client that has made no request.
    ///
    /// # Errors
    /// [`InvalidUrl`] if [`HttpClientConfig::url`] is not a URL of HTTP.
    pub fn new(config: impl Into<Arc<HttpClientConfig>>, now: Instant) -> Result<Self, InvalidUrl> {
        let config = config.into();
        Ok(Self {
            location: Location::parse(&config.url)?,
            jitter: Jitter::new(config.seed),
            config,
            now,
            phase: Phase::Running,
            exchanges: BTreeMap::new(),
            calls: BTreeMap::new(),
            session: HttpSession::default(),
            get_stream: GetStream::default(),
            tools: Tools::default(),
            backlog: Backlog::default(),
            cache: Cache::default(),
            closing: Armed::default(),
            timers: Timers::default(),
            events: VecDeque::new(),
            next_number: 1,
        })
    }

    // ---- Inputs ----

    /// Takes a frame of the session. Has no effect on a client that has failed, is closing or is closed.
    pub fn handle_transmit(&mut self, transmit: Transmit, now: Instant) {
        self.advance(now);
        let Transmit { frame, route } = transmit;
        match self.phase {
            Phase::Running => self.take_frame(frame, route.lane),
            Phase::Old { .. } => {
                self.backlog.push_message(frame);
                self.flush();
            }
            Phase::Failed | Phase::Closing | Phase::Closed => {}
        }
    }

    /// Takes the head of a response. Has no effect for a request that is over.
    pub fn handle_head(&mut self, request: HttpRequestId, head: &ResponseHead<'_>, now: Instant) {
        self.advance(now);
        self.read_head(request, head);
    }

    /// Takes a piece of the body of a response, of any length. Has no effect for a request that is over.
    pub fn handle_chunk(&mut self, request: HttpRequestId, chunk: Bytes, now: Instant) {
        self.advance(now);
        self.read_chunk(request, chunk);
    }

    /// Handles the end of a complete response. Has no effect for a request that is over.
    pub fn handle_end(&mut self, request: HttpRequestId, now: Instant) {
        self.advance(now);
        self.read_end(request);
    }

    /// Handles the loss of an HTTP exchange: the connection could not be made, or broke before the end of the response. `why` is the error
    /// of the transport, for people. Has no effect for a request that is over.
    pub fn handle_loss(&mut self, request: HttpRequestId, why: &str, now: Instant) {
        self.advance(now);
        self.lose_exchange(request, why);
    }

    /// Closes the client: gives up all calls, waits until notifications and answers are acknowledged, and ends the HTTP session. Then comes
    /// [`HttpClientEvent::Closed`]. The wait and the end of the HTTP session each take at most [`HttpClientTimeouts::close`]. Has no effect
    /// on a client that is closing or closed.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        if matches!(self.phase, Phase::Closing | Phase::Closed) {
            return;
        }
        self.give_calls_up();
        self.phase = Phase::Closing;
        let until = self.now.saturating_add(self.config.timeouts.close);
        self.timers.set(&mut self.closing, TimerKey::Close, Some(until));
        self.flush();
    }

    /// Handles every deadline up to and including `now`. Does nothing else, so it may be called at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(key) = self.timers.take_due(self.now) {
            match key {
                TimerKey::Exchange(request) => {
                    if let Some(exchange) = self.exchanges.get_mut(&request) {
                        exchange.deadline().forget();
                    }
                    self.expire_exchange(request);
                }
                TimerKey::Resume(exchange) => {
                    if let Some(call) = self.calls.get_mut(&exchange) {
                        call.timer().forget();
                    }
                    self.resume_call(exchange);
                }
                TimerKey::GetStream => {
                    self.get_stream.timer().forget();
                    self.open_get_stream();
                }
                TimerKey::Session => {
                    self.session.timer().forget();
                    match self.session.is_confirmed() {
                        true => self.begin(),
                        false => self.repeat_handshake(),
                    }
                }
                TimerKey::Close => {
                    self.closing.forget();
                    self.give_everything_up();
                    self.flush();
                }
            }
        }
    }

    // ---- Outputs ----

    /// The next instruction.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<HttpClientEvent> {
        self.events.pop_front()
    }

    /// The next deadline, at which [`handle_timeout`](Self::handle_timeout) must be called; `None` if there is none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The number of HTTP requests that are not over.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.exchanges.len()
    }

    /// The number of requests of the session that wait for a response; 0 over the transport of 2024-11-05.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns `true` once the client is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    // ---- The phases ----

    /// Running, Old -> Failed.
    fn fail(&mut self, failure: HttpFailure) {
        if matches!(self.phase, Phase::Running | Phase::Old { .. }) {
            self.give_everything_up();
            self.phase = Phase::Failed;
            self.events.push_back(HttpClientEvent::Failed(failure));
        }
    }

    /// Ends the HTTP session of a client that is closing, once no exchange is open and no message waits.
    fn end_session(&mut self) {
        if !matches!(self.phase, Phase::Closing) || !self.exchanges.is_empty() || self.backlog.has_messages() {
            return;
        }
        self.timers.set(&mut self.closing, TimerKey::Close, None);
        if self.session.id().is_some() {
            let mut headers = Headers::new();
            self.write_session(&mut headers);
            let request = self.send(Purpose::Delete, Method::Delete, headers, Bytes::new());
            self.limit(request, self.config.timeouts.close);
        } else {
            self.finish_closing();
        }
    }

    /// Closing -> Closed.
    fn finish_closing(&mut self) {
        if matches!(self.phase, Phase::Closing) {
            self.phase = Phase::Closed;
            self.events.push_back(HttpClientEvent::Closed);
        }
    }

    /// Running -> Old.
    fn use_old_transport(&mut self, initialize: Bytes) {
        let held: Vec<_> = self.calls.values().filter(|call| call.is_held()).map(|call| call.frame().clone()).collect();
        self.give_everything_up();
        self.session.forget();
        self.phase = Phase::Old { target: None, confirming: None };
        for frame in [initialize].into_iter().chain(held) {
            self.backlog.push_message(frame);
        }
        let mut headers = Headers::new();
        headers.push(header::ACCEPT, super::accept::EVENT_STREAM);
        let request = self.send(Purpose::OldStream, Method::Get, headers, Bytes::new());
        self.limit(request, self.config.timeouts.reopen);
    }

    fn give_everything_up(&mut self) {
        self.give_calls_up();
        for request in self.exchanges.keys().copied().collect::<Vec<_>>() {
            self.abort(request);
        }
        self.backlog.clear();
    }

    /// Gives up all waiting requests, and all exchanges but those of notifications and answers. Over Streamable HTTP, the confirmation of a
    /// handshake is not one of these notifications: its exchange is given up.
    fn give_calls_up(&mut self) {
        let is_message = |purpose| matches!(purpose, Purpose::Message(_) | Purpose::OldMessage(None));
        let given_up = self.exchanges.iter().filter(|(_, exchange)| !is_message(exchange.purpose()));
        for request in given_up.map(|(request, _)| *request).collect::<Vec<_>>() {
            self.abort(request);
        }
        for call in self.calls.keys().copied().collect::<Vec<_>>() {
            self.forget_call(call);
        }
        self.get_stream.stop();
        self.timers.set(self.get_stream.timer(), TimerKey::GetStream, None);
        self.timers.set(self.session.timer(), TimerKey::Session, None);
        self.backlog.clear_calls();
        self.tools.end_lookup();
    }

    // ---- Common steps ----

    /// Advances the time to `now`. If `now` is earlier, the time stays as it is.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The reason for a fault of an exchange that was made for this purpose, with the beginning of its response.
    fn reason(&self, purpose: Purpose, fault: HttpFault, seen: Option<HttpExcerpt>) -> HttpReason {
        let of_call = |exchange: &ExchangeId| self.calls.get(exchange).map(|call| call.method().clone());
        let request = match purpose {
            Purpose::Call(exchange) | Purpose::Resume(exchange) => {
                of_call(&exchange).unwrap_or_else(|| Text::from_static("a request"))
            }
            Purpose::Message(_) | Purpose::OldMessage(None) => Text::from_static("a notification or an answer"),
            Purpose::Confirmation => Text::from_static("notifications/initialized"),
            Purpose::GetStream => Text::from_static("the GET stream"),
            Purpose::Reopening => Text::from_static("initialize"),
            Purpose::Lookup => Text::from_static("tools/list"),
            Purpose::Delete => Text::from_static("the end of the session"),
            Purpose::OldStream => Text::from_static("the stream of the transport of 2024-11-05"),
            Purpose::OldMessage(Some(_)) => Text::from_static("a request"),
        };
        HttpReason::new(request, fault, seen)
    }

    fn fault(&mut self, exchange: Option<ExchangeId>, fault: HttpFault) {
        self.events.push_back(HttpClientEvent::Fault { exchange, fault });
    }

    /// Passes a frame to the session. `generation` is that of the HTTP session in which the frame came.
    fn pass(&mut self, frame: Bytes, exchange: Option<ExchangeId>, generation: u32) {
        self.events.push_back(HttpClientEvent::Frame { frame, lane: Lane::new(generation), exchange });
    }

    /// Removes a request of the session that has ended.
    fn forget_call(&mut self, exchange: ExchangeId) -> Option<Call> {
        let mut call = self.calls.remove(&exchange)?;
        self.timers.set(call.timer(), TimerKey::Resume(exchange), None);
        Some(call)
    }

    /// Removes an exchange that is over.
    fn remove(&mut self, request: HttpRequestId) -> Option<Exchange> {
        let mut exchange = self.exchanges.remove(&request)?;
        self.timers.set(exchange.deadline(), TimerKey::Exchange(request), None);
        if matches!(exchange.purpose(), Purpose::Message(_) | Purpose::OldMessage(_)) {
            self.backlog.acknowledge();
        }
        if let Phase::Old { confirming, .. } = &mut self.phase {
            *confirming = confirming.filter(|confirming| *confirming != request);
        }
        Some(exchange)
    }

    /// Gives up an exchange that is not over.
    fn abort(&mut self, request: HttpRequestId) -> Option<Exchange> {
        let exchange = self.remove(request)?;
        self.events.push_back(HttpClientEvent::Abort(request));
        Some(exchange)
    }
}
