//! The bounds and the times of an HTTP server.

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
