//! Lanes of the transport, and the way of each frame to them.

use core::fmt;

use bytes::Bytes;

use super::event::{ExchangeId, InputKey};

/// A stream of frames of the transport, by the number that the transport gives it.
///
/// A transport of one stream has the [channel](Self::CHANNEL) alone. One with many, such as HTTP with a stream for each request, gives each
/// a number of its own, and may give it again once the lane is open no longer ([`Session::set_writable`](crate::Session::set_writable) says
/// so). A lane opens with the first frame that comes by it, and stays open
/// while a reply to it is owed, a frame waits for it, or it is [stopped](crate::Session::set_writable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u32);

impl Lane {
    /// The lane that is always open: for everything that belongs to no other, and for requests of ours.
    pub const CHANNEL: Self = Self(0);

    /// The lane of that number. 0 is the channel.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
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
    /// News for the channel of a session.
    #[must_use]
    pub const fn new(frame: Bytes) -> Self {
        Self { frame, route: Route { lane: Lane::CHANNEL, kind: RouteKind::Notice } }
    }
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The lane that it leaves by: for everything said on behalf of an exchange of the peer, the one that the exchange came by.
    pub lane: Lane,
    /// The part that it plays there.
    pub kind: RouteKind,
}

/// The part that a frame plays on its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteKind {
    /// The one reply to a request of the peer that came by the lane.
    Reply(ReplyKind),
    /// Something said on behalf of a request of the peer before its reply: progress, an input request, a log record.
    Within,
    /// A request of ours.
    Request(ExchangeId),
    /// The end of a request of ours that is given up.
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
    /// An error of the one who served it.
    Error,
    /// An error before anything served it: the frame or its parameters are broken, the method is unknown, it came too early, or too much runs.
    Refused,
}

/// The effect of a frame that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The number of its requests that the lane is owed a reply for: now, or later. 0 for a notification, a response, and what is passed
    /// over. A request that the peer cancels later may get no reply; see [`Session::replies_owed`](crate::Session::replies_owed).
    pub replies: usize,
}

/// The part of a transport that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A lane: nothing more comes by it.
    Lane(Lane),
    /// The way by which the reply to a request of ours was to come.
    Exchange(ExchangeId),
}
