//! Lanes of the transport, and the route of each frame to them.

use core::fmt;

use bytes::Bytes;

use super::event::{ExchangeId, InputKey};

/// A stream of frames of the transport, named by a number that the transport chooses.
///
/// A transport of one stream has only the [channel](Self::CHANNEL). One with many, such as HTTP with a stream for each request, gives
/// each a number of its own, and may reuse the number once the lane is no longer open
/// ([`Session::set_writable`](crate::Session::set_writable) returns an error then). A lane opens with the first frame that comes by it,
/// and stays open while a reply to it is owed, a frame waits for it, or it is [stopped](crate::Session::set_writable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u32);

impl Lane {
    /// The lane that is always open: for requests of ours, and for everything that belongs to no other lane.
    pub const CHANNEL: Self = Self(0);

    /// The lane of that number. 0 is the channel.
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

/// A frame to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transmit {
    /// One JSON message without a line feed.
    pub frame: Bytes,
    /// Its destination.
    pub route: Route,
}

impl Transmit {
    /// Routes a frame as a notice on the channel.
    #[must_use]
    pub const fn new(frame: Bytes) -> Self {
        Self { frame, route: Route { lane: Lane::CHANNEL, kind: RouteKind::Notice } }
    }
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The lane that it leaves on. A frame on behalf of an exchange of the peer leaves on the lane that the exchange came by.
    pub lane: Lane,
    /// The part that the frame plays on the lane.
    pub kind: RouteKind,
}

/// The part that a frame plays on its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteKind {
    /// The one reply to a request of the peer that came by the lane.
    Reply(ReplyKind),
    /// A frame on behalf of a request of the peer before its reply: progress, an input request, a log record.
    Within,
    /// A request of ours.
    Request(ExchangeId),
    /// The cancel of a request of ours.
    Cancel(ExchangeId),
    /// The answer to an input request of the peer.
    Answer(InputKey),
    /// Anything else: news, log records that belong to no request, the confirmation of a handshake.
    Notice,
}

/// The kind of a reply, as far as a transport tells them apart (HTTP answers a refusal with another status than an error of a handler).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplyKind {
    /// A result.
    Result,
    /// An error of the handler.
    Error,
    /// An error without a handler: the frame or its parameters are broken, the method is unknown, it came too early, or too much runs.
    Refused,
}

/// The effect of a frame that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The number of its requests for which the lane is owed a reply, now or later. 0 for a notification, a response, and a message that
    /// is ignored. A request that the peer cancels later may get no reply; see [`Session::replies_owed`](crate::Session::replies_owed).
    pub replies: usize,
}

/// The part of a transport that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A lane: no more frames come by it.
    Lane(Lane),
    /// The stream on which the response to a request of ours was to come.
    Exchange(ExchangeId),
}
