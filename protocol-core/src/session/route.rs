//! Lanes, the streams of frames of a transport, and the route of each outgoing frame.

use core::fmt;

use bytes::Bytes;

use super::ids::{ExchangeId, InputKey};

/// One stream of frames of the transport, identified by a number that the transport chooses.
///
/// A transport of one stream has only the [channel](Self::CHANNEL). A transport of many streams, such as HTTP with a stream for each
/// request, gives each stream a number, and may reuse the number once the lane is no longer open
/// ([`Session::set_writable`](crate::Session::set_writable) returns an error then). A lane opens with the first frame that comes by it, and
/// stays open while a reply is owed on it, a frame for it is queued, or it is [stopped](crate::Session::set_writable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u32);

impl Lane {
    /// The lane with the number 0, which is always open. Requests of ours other than input requests are sent on it, and all frames that
    /// belong to no other lane.
    pub const CHANNEL: Self = Self(0);

    /// The lane with this number. 0 is the channel.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of the lane.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane-{}", self.0)
    }
}

/// A frame to write, and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit {
    /// One JSON-RPC message, without a line feed.
    pub frame: Bytes,
    /// The destination of the frame.
    pub route: Route,
}

impl Transmit {
    /// Routes a frame as a notification on the channel.
    #[must_use]
    pub const fn new(frame: Bytes) -> Self {
        Self { frame, route: Route { lane: Lane::CHANNEL, kind: RouteKind::Notification } }
    }
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The lane to write the frame on. A frame on behalf of a request of the peer is written on the lane that the request came by.
    pub lane: Lane,
    /// The role of the frame on its lane.
    pub kind: RouteKind,
}

/// The role of a frame on its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteKind {
    /// The one reply to a request of the peer that came by the lane, or to a frame that could not be read.
    Reply(ReplyKind),
    /// A frame that is sent on behalf of a request of the peer, before the reply: progress, an input request or its cancel, a log record,
    /// the acknowledgement or a notification of a subscription.
    Within,
    /// A request of ours.
    Request(ExchangeId),
    /// The cancel of a request of ours.
    Cancel(ExchangeId),
    /// The answer to an input request of the peer.
    InputResponse(InputKey),
    /// Any other notification: a change of a list, a log record that belongs to no request, the confirmation of a handshake.
    Notification,
}

/// The kind of a reply, for transports on which it matters: over HTTP a refusal has another status than an error of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplyKind {
    /// A result.
    Result,
    /// An error of the handler, or one that the session sends in its place, since the call was cut short or its result is too large.
    Error,
    /// An error that the session sends without running a handler, for example: the frame or its parameters are invalid, the method is
    /// unknown, the request came before the handshake, or too many requests are in flight.
    Refused,
}

/// The effect of a frame that [`Session::handle_frame`](crate::Session::handle_frame) took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The number of replies that the frame causes on its lane, now or later. 0 for a notification, a response, and a message that is
    /// ignored. A request that the peer cancels may get no reply after all; see [`Session::replies_owed`](crate::Session::replies_owed).
    pub replies: usize,
}

/// A part of the transport that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A lane: no more frames arrive on it.
    Lane(Lane),
    /// The stream on which the response to a request of ours was expected.
    Exchange(ExchangeId),
    /// The response to a request of ours: it will not come by any stream.
    Response(ExchangeId),
}

/// The frame that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    lane: Lane,
    bytes: usize,
    /// The number of replies that it has caused so far.
    replies: usize,
}

impl Arriving {
    pub(super) const fn new(lane: Lane, bytes: usize) -> Self {
        Self { lane, bytes, replies: 0 }
    }

    pub(super) const fn lane(&self) -> Lane {
        self.lane
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn replies(&self) -> usize {
        self.replies
    }

    pub(super) fn note_reply(&mut self) {
        self.replies = self.replies.saturating_add(1);
    }
}

impl Default for Arriving {
    fn default() -> Self {
        Self::new(Lane::CHANNEL, 0)
    }
}
