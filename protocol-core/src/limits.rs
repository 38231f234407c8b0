//! The bounds of a session on memory and concurrency.

/// The bounds of a session. Neither the peer nor the owner can make a session exceed them, except where the documentation of a field states
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest frame in bytes, in both directions. A longer frame that arrives by the channel closes the session, and one that arrives
    /// by another lane is refused. Default: 16 MiB.
    ///
    /// Of longer frames of ours,
    /// * a response to a call or to an input request is replaced by [`crate::RpcError::INTERNAL`];
    /// * a call, an input request, a round or a notification is refused: the method returns an error;
    /// * a retry is not sent, and its call ends with [`crate::Outcome::Unanswered`];
    /// * progress is sent without message, data and checkpoint, and a cancel without its reason;
    /// * a log record is dropped;
    /// * the frames of a probe, a handshake or a claim, unsolicited replies, and the acknowledgement and the notifications of a
    ///   subscription are sent as they are.
    pub frame_bytes: usize,
    /// The maximum nesting of a frame that arrives. A number above 128 counts as 128. Default: 128.
    pub json_depth: u8,
    /// The longest id and the longest progress token of the peer, in bytes of JSON. Default: 1024.
    pub id_bytes: usize,
    /// The maximum of each of four numbers: outbound calls, inbound calls, outbound and inbound input requests. A cancelled inbound call
    /// counts until its handler has ended. An unpolled event that ends an outbound call or an outbound input request counts both as an
    /// outbound call and as an outbound input request. Default: 1024.
    pub in_flight: usize,
    /// The most bytes of frames that requests of the peer hold together: calls until their handlers have ended, input requests until they
    /// are answered. A request that would exceed it is answered with [`crate::RpcError::BUSY`]. Each request of a batch counts as the whole
    /// batch. What a handler makes of its arguments comes on top, so expect two or three times as much memory. Default: 64 MiB.
    pub request_bytes: usize,
    /// The maximum number of requests of the peer per second, of all kinds together. The session counts them with a token bucket of this
    /// size: the peer may send this many requests at once, and then one more whenever a second divided by this number has passed. A request
    /// above the rate is answered with [`crate::RpcError::BUSY`]. Refused requests count, too, except a request that is refused because it
    /// comes before the handshake or while the session closes. A ping, `server/discover` and a handshake do not count. The limit has no
    /// effect on a request over HTTP without a handshake, since each has a session of its own; a layer around the service can limit such
    /// clients by their address. Default: `None`, no bound.
    pub requests_per_second: Option<u32>,
    /// The maximum number of resources in one `subscriptions/listen` (MCP 2026-07-28), in both directions; a longer list is refused.
    /// Default: 1024.
    pub subscriptions: usize,
    /// The maximum number of rounds of input requests that are answered for one outbound call (MCP 2026-07-28). The next round ends the
    /// call with [`crate::Invalid::TooManyRounds`]. The crate `endpoint` also asks the caller of an inbound call in at most this many
    /// rounds. Default: 8.
    pub input_rounds: u8,
    /// The maximum number of messages in a batch (MCP 2025-03-26 only). Default: 64.
    pub batch: usize,
    /// The number of unpolled events at which [`crate::Session::wants_input`] turns `false`. The events of one batch, and those of
    /// deadlines and of other methods than [`crate::Session::handle_frame`], may exceed this number. Default: 1024.
    pub events: usize,
    /// The number of unpolled bytes on one lane at which the session refuses calls, input requests and notifications on that lane, merges
    /// progress and drops log records. Default: 1 MiB.
    pub output_bytes: usize,
    /// The number of unpolled bytes on all lanes together above which the lane with the longest queue is closed
    /// ([`crate::Event::LaneClosed`]). If that is the channel, the session closes with [`crate::CloseReason::Overload`]. Default: 64 MiB.
    pub output_bytes_hard: usize,
    /// The number of unpolled unsolicited replies (pongs, refusals) on one lane at which [`crate::Session::wants_input`] turns `false` for
    /// that lane. If the peer then reads none of them for [`crate::Timeouts::close_grace`], the lane is closed; if the lane is the channel,
    /// the session closes with [`crate::CloseReason::Overload`]. Default: 256.
    pub unsolicited_replies: usize,
    /// The maximum number of open lanes, not counting the channel. Default: 1024.
    pub lanes: usize,
    /// The maximum number of alarms that are set, or due and not yet polled. Default: 4096.
    pub alarms: usize,
    /// The number of ids of the peer on the channel that are remembered after their exchanges have ended, to recognise an id that is used
    /// again. Default: 256.
    pub ended_ids: usize,
    /// The maximum size of a checkpoint in bytes. Default: 1 MiB.
    pub checkpoint_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            json_depth: 128,
            id_bytes: 1024,
            in_flight: 1024,
            request_bytes: 64 << 20,
            requests_per_second: None,
            subscriptions: 1024,
            input_rounds: 8,
            batch: 64,
            events: 1024,
            output_bytes: 1 << 20,
            output_bytes_hard: 64 << 20,
            unsolicited_replies: 256,
            lanes: 1024,
            alarms: 4096,
            ended_ids: 256,
            checkpoint_bytes: 1 << 20,
        }
    }
}
