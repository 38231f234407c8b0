//! The bounds and the time limits of an HTTP server and of an HTTP client.

use core::time::Duration;

/// The bounds of an [`HttpServer`](super::HttpServer) and of the service that owns it. No client can make a server exceed them.
///
/// A service applies [`exchanges`](Self::exchanges), [`request_bytes`](Self::request_bytes), [`calls`](Self::calls) and
/// [`subscriptions`](Self::subscriptions) to a request before it reads the body, and [`ended_sessions`](Self::ended_sessions) later; a bare
/// [`HttpServer`](super::HttpServer) applies only the first and the fourth of these, to all clients together. In a service, a client may hold
/// at most as much of each as is left for all others: so alone at most half, and a small request of another client is still served while a
/// few clients take whatever they can. Within a client the same holds for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// The longest body of a request, in bytes. A longer body is answered with 413. Default: 4 MiB.
    pub body_bytes: usize,
    /// The maximum number of messages in a batch (MCP 2025-03-26 only). Default: 64, as in [`crate::Limits::batch`].
    pub batch: usize,
    /// The maximum number of HTTP exchanges at the same time, each from the head of its request on. Further requests are answered with 503,
    /// or with 429 if only the share of the client is used up. Default: 16 384.
    pub exchanges: usize,
    /// The maximum number of bytes of the bodies that are being read, and of those whose requests are being served, of all clients
    /// together. A body counts with the length that its head names from then on, and otherwise with what has arrived. A request whose body
    /// does not fit is answered as above. Default: 64 MiB.
    pub request_bytes: usize,
    /// The maximum number of calls at the same time whose handlers run, also those of clients that have disconnected. Further requests are
    /// answered as above. Default: 4096.
    pub calls: usize,
    /// The maximum number of sessions that have ended, and whose cancelled handlers may still clean up
    /// ([`Timeouts::handler_grace`](crate::Timeouts::handler_grace)). The handlers of further sessions that end have no grace. Default: 1024.
    pub ended_sessions: usize,
    /// The maximum number of sessions with a handshake. A further `initialize` ends the session that is idle and would end first. Only if
    /// none is idle, it is answered with 503. A client ([`Admitted::set_client`](super::Admitted::set_client)) may have at most as many as are
    /// left for all others; beyond that, its own idle sessions are those that end, and if it has none, the answer is 429. Default: 10 000.
    pub sessions: usize,
    /// The maximum number of `subscriptions/listen` at the same time. Further ones are answered as further
    /// [exchanges](Self::exchanges). Default: 1024.
    pub subscriptions: usize,
    /// The maximum number of open GET streams of one session. A further one ends the oldest, whose client has most likely disconnected.
    /// Default: 4.
    pub get_streams: usize,
    /// If this many frames wait for a GET stream, the channel of their session is stopped. If twice as many wait, each further frame
    /// replaces the oldest. Default: 64.
    pub waiting_frames: usize,
    /// If events of more than this many bytes wait on one HTTP exchange, its lane is stopped
    /// ([`HttpEvent::Writable`](super::HttpEvent::Writable)) until at most half as many bytes wait. If the exchange is the newest GET
    /// stream, the channel is stopped instead; an older GET stream stops nothing. Default: 256 KiB.
    ///
    /// More bytes can wait: those of the event that exceeds this number, and of the frames that the owner passes on before it has stopped
    /// the lane. If a GET resumes a stream, all events that the client has missed are added at once: at most
    /// [`replay_bytes`](Self::replay_bytes) of frames. If a GET opens or resumes a GET stream, the frames that have waited for one are
    /// added as well: at most twice [`waiting_frames`](Self::waiting_frames).
    pub output_bytes: usize,
    /// The maximum number of events of one stream that are kept for replay. Beyond it the oldest event is dropped. Default: 256.
    pub replay_events: usize,
    /// The maximum number of streams of one session that have no HTTP exchange, owe no reply, and are kept only for replay. Beyond it the
    /// oldest stream is dropped. Default: 256.
    pub inactive_streams: usize,
    /// The maximum number of bytes that are kept for replay, over all streams of one session. Default: 4 MiB.
    pub replay_bytes: usize,
    /// The maximum number of bytes that are kept for replay, over all sessions. A session keeps at most as many as are left for all others;
    /// beyond that, its own oldest events are dropped. Default: 64 MiB.
    pub kept_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 4 << 20,
            batch: 64,
            exchanges: 16_384,
            request_bytes: 64 << 20,
            calls: 4096,
            ended_sessions: 1024,
            sessions: 10_000,
            subscriptions: 1024,
            get_streams: 4,
            waiting_frames: 64,
            output_bytes: 256 << 10,
            replay_events: 256,
            inactive_streams: 256,
            replay_bytes: 4 << 20,
            kept_bytes: 64 << 20,
        }
    }
}

/// The time limits of an [`HttpServer`](super::HttpServer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpTimeouts {
    /// The time without output after which a comment is sent on a stream, and after which a response that has not begun becomes a stream.
    /// It does not apply to the response to `initialize`, nor to a POST that is only acknowledged. Default: 15 s.
    pub keep_alive: Duration,
    /// The time within which the whole body of a request must arrive, counted from its head, whatever else its connection does. Otherwise
    /// the request is answered with 408. A service applies it, and a bare [`HttpServer`](super::HttpServer) does not. Default: 60 s.
    pub body: Duration,
    /// The time after which a session with a handshake ends, if it has no request, no open stream and no reply to make. Default: 30 min.
    pub session_idle: Duration,
    /// The time within which the client must make another request after the response to `initialize`; otherwise the session ends. If
    /// [`session_idle`](Self::session_idle) is shorter, it applies instead. Default: 60 s.
    pub after_initialize: Duration,
    /// The time for which a stream without an HTTP exchange is kept once no reply is owed on it, if it can be resumed. Default: 2 min.
    pub replay: Duration,
    /// The time for which a stream without an HTTP exchange is kept while a reply is owed on it. Default: 30 min.
    pub detached: Duration,
    /// The time after which a client should resume a stream that the server has closed with [`suspend`](super::HttpServer::suspend).
    /// Default: 1 s.
    pub resume_delay: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(15),
            body: Duration::from_secs(60),
            session_idle: Duration::from_secs(30 * 60),
            after_initialize: Duration::from_secs(60),
            replay: Duration::from_secs(2 * 60),
            detached: Duration::from_secs(30 * 60),
            resume_delay: Duration::from_secs(1),
        }
    }
}

/// The bounds of an [`HttpClient`](super::HttpClient). No server can make a client exceed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpClientLimits {
    /// The maximum number of requests of the session that wait for a response. A further request is lost at once. The default is above that
    /// of [`crate::Limits::in_flight`], so that a session with the default limits does not reach it. The limit does not apply to the
    /// transport of 2024-11-05. Default: 2048.
    pub calls: usize,
    /// The maximum number of notifications and answers that are posted and not acknowledged. Further notifications wait. Answers wait only
    /// from twice this number on, since the server may wait for an answer before it acknowledges anything. At most
    /// [`calls`](Self::calls) answers wait; further answers are dropped. Over the transport of 2024-11-05 all frames count and wait as
    /// notifications do. Default: 64.
    pub messages: usize,
    /// If this many frames wait to be posted, the channel of the session is stopped until at most half as many wait. Default: 256.
    pub waiting_frames: usize,
    /// If frames of this many bytes wait to be posted, the channel of the session is stopped until at most half as many bytes wait.
    /// Default: 4 MiB.
    pub waiting_bytes: usize,
    /// The longest frame that is read, in bytes: a body in JSON, or the data of one event. Default: 16 MiB.
    pub frame_bytes: usize,
    /// The longest body of a response with an error status that is read, in bytes. Default: 64 KiB.
    pub error_bytes: usize,
    /// The longest id and the longest name of an event, in bytes. This limit does not apply to the id of an HTTP session, which always has
    /// at most 1024 bytes. Default: 1024.
    pub id_bytes: usize,
    /// The number of attempts in a row without a new event, after which a stream is no longer resumed. Also the number of further attempts
    /// to repeat a handshake, if the first attempt is lost. Default: 5.
    pub attempts: u32,
    /// The maximum number of redirections that one request follows. Default: 3.
    pub redirects: u8,
    /// The maximum number of tools whose arguments are repeated in headers. Further tools are called without these headers. Default: 1024.
    pub tools: usize,
    /// The maximum number of pages of the list of tools that the client reads by itself, after a server has refused a call because a header
    /// is missing or wrong. Default: 32.
    pub pages: u32,
    /// The maximum number of cached results ([`HttpClientConfig::cache`](super::HttpClientConfig::cache)). Beyond it the result that would
    /// expire first is dropped. Default: 256.
    pub cache_results: usize,
    /// The maximum number of bytes of all cached results and of the parameters of their requests. A longer result is not cached. Default: 4
    /// MiB.
    pub cache_bytes: usize,
}

impl Default for HttpClientLimits {
    fn default() -> Self {
        Self {
            calls: 2048,
            messages: 64,
            waiting_frames: 256,
            waiting_bytes: 4 << 20,
            frame_bytes: 16 << 20,
            error_bytes: 64 << 10,
            id_bytes: 1024,
            attempts: 5,
            redirects: 3,
            tools: 1024,
            pages: 32,
            cache_results: 256,
            cache_bytes: 4 << 20,
        }
    }
}

/// The time limits of an [`HttpClient`](super::HttpClient). The session has the time limits of calls ([`crate::CallTimeouts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpClientTimeouts {
    /// The longest time that a server may take to acknowledge a notification or an answer, or over the transport of 2024-11-05 any frame.
    /// Also the longest time that it may take to answer a ping, or a request for a page of the list of tools that the client makes by
    /// itself. Default: 30 s.
    pub acknowledge: Duration,
    /// The longest time that each attempt to repeat a handshake may take, after the server has forgotten the HTTP session. Also the longest
    /// time that a server of 2024-11-05 may take to name the address for messages. Default: 10 s.
    pub reopen: Duration,
    /// The longest time for which requests after the handshake wait until the server has opened the GET stream, which has the messages
    /// that belong to no call ([`HttpClientConfig::get_stream`](super::HttpClientConfig::get_stream)). Default: 250 ms.
    pub get_stream: Duration,
    /// The time for which a stream is left open once its response has come, so that the server can end it. Default: 1 s.
    pub linger: Duration,
    /// The time after which a stream that broke is resumed for the first time, if the server names no time. The wait doubles with each
    /// further attempt. A random part of at most a quarter is added to each wait. Default: 1 s.
    pub resume_delay: Duration,
    /// The longest time between two attempts, unless the server names a longer time. If a stream was open for at least this time, its break
    /// counts as the first failure again. Default: 30 s.
    pub resume_delay_max: Duration,
    /// The longest time by which a server can delay the next attempt with `Retry-After`. Default: 5 min.
    pub retry_after_max: Duration,
    /// The longest time for which a result is cached ([`HttpClientConfig::cache`](super::HttpClientConfig::cache)), even if the server
    /// allows more. Default: 1 h.
    pub cache_max: Duration,
    /// The longest time for which a closing client waits until its notifications and answers are acknowledged. It then waits at most as
    /// long again until the server has ended the HTTP session. Default: 2 s.
    pub close: Duration,
}

impl Default for HttpClientTimeouts {
    fn default() -> Self {
        Self {
            acknowledge: Duration::from_secs(30),
            reopen: Duration::from_secs(10),
            get_stream: Duration::from_millis(250),
            linger: Duration::from_secs(1),
            resume_delay: Duration::from_secs(1),
            resume_delay_max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(5 * 60),
            cache_max: Duration::from_secs(60 * 60),
            close: Duration::from_secs(2),
        }
    }
}
