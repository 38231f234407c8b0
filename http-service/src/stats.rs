//! What clients make a service hold.

/// The counts of an [`HttpService`](crate::HttpService), each with the limit on it. They are read one after another, while requests go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpStats {
    /// The open connections of all listeners of the service ([`ConnectionLimits::connections`](crate::ConnectionLimits::connections)).
    /// Connections of other servers, such as axum, are not counted.
    pub connections: usize,
    /// The requests whose responses have not ended, including open streams, each from its head on
    /// ([`HttpLimits::exchanges`](crate::HttpLimits::exchanges)).
    pub exchanges: usize,
    /// The bytes of bodies that are being read, or whose requests are being served
    /// ([`HttpLimits::request_bytes`](crate::HttpLimits::request_bytes)).
    pub request_bytes: usize,
    /// The calls whose handlers run, also those of clients that have disconnected ([`HttpLimits::calls`](crate::HttpLimits::calls)).
    pub calls: usize,
    /// The sessions that have ended, and whose handlers still clean up
    /// ([`HttpLimits::ended_sessions`](crate::HttpLimits::ended_sessions)).
    pub ended_sessions: usize,
    /// The open sessions: those with a handshake ([`HttpLimits::sessions`](crate::HttpLimits::sessions)), and one for each request without a
    /// handshake that is being served.
    pub sessions: usize,
    /// The open `subscriptions/listen` ([`HttpLimits::subscriptions`](crate::HttpLimits::subscriptions)).
    pub subscriptions: usize,
    /// The bytes that are kept for replay ([`HttpLimits::kept_bytes`](crate::HttpLimits::kept_bytes)).
    pub kept_bytes: usize,
    /// The requests that were refused since there was no room for them, since the service was made.
    pub refused: u64,
}
