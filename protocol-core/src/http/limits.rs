//! The bounds and the times of an HTTP server and of an HTTP client.

use core::time::Duration;

/// The bounds of an [`HttpServer`](super::HttpServer), which hold whatever clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// The longest body of a request, in bytes. A longer one is answered with 413. Default: 4 MiB.
    pub body_bytes: usize,
    /// The maximum number of messages in a batch (MCP 2025-03-26 only). Default: 64, as in [`crate::Limits::batch`].
    pub batch: usize,
    /// The maximum number of HTTP exchanges at the same time. More are answered with 503. Default: 16 384.
    pub exchanges: usize,
    /// The maximum number of sessions with a handshake. An `initialize` beyond it is answered with 503. Default: 10 000.
    pub sessions: usize,
    /// The maximum number of `subscriptions/listen` at the same time. More are answered with 503. Default: 1024.
    pub listens: usize,
    /// The maximum number of open GET streams of one session. One more ends the oldest: its client is most likely gone. Default: 4.
    pub get_streams: usize,
    /// The number of frames of a session that wait for a GET stream at which its channel is stopped. Default: 64.
    pub waiting_frames: usize,
    /// The number of bytes that wait on one exchange at which the lane is stopped, until half of them were read. Default: 256 KiB.
    pub output_bytes: usize,
    /// The maximum number of events of one stream that are kept for replay. The oldest are dropped. Default: 256.
    pub replay_events: usize,
    /// The maximum number of streams of one session that are kept for replay alone. The oldest are forgotten. Default: 256.
    pub replay_streams: usize,
    /// The maximum number of bytes of one session that are kept for replay, over all its streams. Default: 4 MiB.
    pub replay_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes: 4 << 20,
            batch: 64,
            exchanges: 16_384,
            sessions: 10_000,
            listens: 1024,
            get_streams: 4,
            waiting_frames: 64,
            output_bytes: 256 << 10,
            replay_events: 256,
            replay_streams: 256,
            replay_bytes: 4 << 20,
        }
    }
}

/// The times of an [`HttpServer`](super::HttpServer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpTimeouts {
    /// The time without output after which a comment is sent on a stream, and after which a response that has not begun becomes a stream.
    /// Default: 15 s.
    pub keep_alive: Duration,
    /// The time after which a session ends that has no open stream and no request at work. Default: 30 min.
    pub session_idle: Duration,
    /// The time from the response to `initialize` within which the client must send something more. Default: 60 s.
    pub initialized: Duration,
    /// The time for which the events of a stream without an exchange are kept after its last response. Default: 2 min.
    pub replay: Duration,
    /// The time for which the events of a stream without an exchange are kept while a request on it is at work. Default: 30 min.
    pub detached: Duration,
    /// The time after which a client is told to come back, when the server closes a stream that goes on. Default: 1 s.
    pub retry: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(15),
            session_idle: Duration::from_secs(30 * 60),
            initialized: Duration::from_secs(60),
            replay: Duration::from_secs(2 * 60),
            detached: Duration::from_secs(30 * 60),
            retry: Duration::from_secs(1),
        }
    }
}

/// The bounds of an [`HttpClient`](super::HttpClient), which hold whatever the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpClientLimits {
    /// The maximum number of requests of the session that wait for a response. One more is given up at once. It is above
    /// [`crate::Limits::in_flight`], so that a session never meets it. Default: 2048.
    pub calls: usize,
    /// The maximum number of notifications and answers whose POST is not acknowledged. More wait; answers do from twice as many on, since the
    /// server may wait for one before it acknowledges anything, and are dropped while as many as [`calls`](Self::calls) wait. Default: 64.
    pub messages: usize,
    /// The number of frames that wait to be posted at which the channel of the session is stopped, until half of them are left. Default: 256.
    pub waiting_frames: usize,
    /// The number of bytes of such frames at which the channel is stopped. Default: 4 MiB.
    pub waiting_bytes: usize,
    /// The longest frame that is read: a body in JSON, or the data of one event. Default: 16 MiB.
    pub frame_bytes: usize,
    /// The longest body of a response with an error status that is read. Default: 64 KiB.
    pub error_bytes: usize,
    /// The longest session id and the longest id of an event, in bytes. Default: 1024.
    pub id_bytes: usize,
    /// The number of attempts, one after another and without anything new, after which a stream is not resumed any longer. Default: 5.
    pub attempts: u32,
    /// The maximum number of redirections that one request follows. Default: 3.
    pub redirects: u8,
    /// The maximum number of tools whose arguments are repeated in headers; further ones are called without. Default: 1024.
    pub tools: usize,
    /// The maximum number of pages of the list of tools that are read to find one that a server wants headers for. Default: 32.
    pub pages: u32,
    /// The maximum number of results that are kept ([`HttpClientConfig::cache`](super::HttpClientConfig::cache)). Beyond it the one is
    /// dropped that would be first. Default: 256.
    pub cache_results: usize,
    /// The maximum number of bytes of such results and of the parameters that they belong to. A longer result is not kept. Default: 4 MiB.
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

/// The times of an [`HttpClient`](super::HttpClient). Those of a call are the session's ([`crate::CallTimeouts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpClientTimeouts {
    /// The longest time that a server may take to acknowledge a notification or an answer. Default: 30 s.
    pub acknowledge: Duration,
    /// The longest time that the handshake takes that is repeated since the server has forgotten the session, and that a server of
    /// 2024-11-05 takes to name the address for messages. Default: 10 s.
    pub reopen: Duration,
    /// The longest time for which requests wait, once the handshake is made, for the server to open the stream of messages that belong to no
    /// call. Default: 250 ms.
    pub news: Duration,
    /// The time for which a stream is left open whose response has come; the server is to end it. Default: 1 s.
    pub linger: Duration,
    /// The time after which a stream that broke is resumed for the first time, if the server names none. It doubles with each further
    /// attempt, and a quarter of it at most is added by chance. Default: 1 s.
    pub retry: Duration,
    /// The longest time between two attempts, unless the server names a longer one. A stream that lived as long has not failed. Default:
    /// 30 s.
    pub retry_max: Duration,
    /// The longest time for which a server can put the next attempt off by `Retry-After`. Default: 5 min.
    pub retry_after_max: Duration,
    /// The longest time for which a result is kept ([`HttpClientConfig::cache`](super::HttpClientConfig::cache)), whatever the server allows.
    /// Default: 1 h.
    pub cache_max: Duration,
    /// The longest time that the server may take to end the session, when the client closes. Default: 2 s.
    pub close: Duration,
}

impl Default for HttpClientTimeouts {
    fn default() -> Self {
        Self {
            acknowledge: Duration::from_secs(30),
            reopen: Duration::from_secs(10),
            news: Duration::from_millis(250),
            linger: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(5 * 60),
            cache_max: Duration::from_secs(60 * 60),
            close: Duration::from_secs(2),
        }
    }
}
