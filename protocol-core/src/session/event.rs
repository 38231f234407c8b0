//! Events: what happened in a session, for its owner.

use alloc::boxed::Box;
use core::fmt;

use super::route::Lane;
use crate::dialect::tesseron::ResumeCredentials;
use crate::dialect::{Answer, Ask, Caller, LogRecord, Notice, PeerInfo, Progress, Request};
use crate::error::{RpcError, Violation};
use crate::json::{Json, Text};
use crate::table::Id;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// Makes the id of that number, for tests and for owners that store ids as numbers. A session knows only ids that it has
            /// given.
            #[must_use]
            pub const fn from_number(number: u64) -> Self {
                Self(number)
            }
        }

        impl Id for $name {
            fn number(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// An outbound call, over all the exchanges that it takes. Never reused.
    OutboundId, "out-";
    /// An inbound call. Never reused, unlike the id of the peer that it stands for.
    InboundId, "in-";
    /// A request of ours on the wire. An [`OutboundId`] takes one or more of them, one after the other. Never reused.
    ExchangeId, "exchange-";
    /// An input request, of ours or of the peer. Never reused; unique in the session.
    InputKey, "input-";
    /// An alarm that the owner set. Never reused.
    AlarmId, "alarm-";
}

/// An event of a session. Events come in the order in which things happened; the input requests and the progress of a call come before
/// its [`Event::Done`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is done. Holds the peer.
    Ready(Box<PeerInfo>),
    /// An app has sent its hello, and the owner decides whether to accept it: answer with [`crate::Session::welcome`]. Only for a
    /// Tesseron gateway whose configuration has no welcome.
    HandshakeRequest {
        /// The app that sent it.
        peer: Box<PeerInfo>,
        /// The earlier session that it wants to resume.
        resume: Option<ResumeCredentials>,
    },
    /// The peer has another identity or other capabilities now: a Tesseron session was claimed.
    PeerChanged(Box<PeerInfo>),
    /// The peer has sent a request. It must be ended with [`crate::Session::respond`], whatever happens.
    Request {
        /// Names the call in the callee's methods.
        id: InboundId,
        /// The request.
        request: Request,
        /// The peer as it was at that time, and the metadata of the request.
        caller: Caller,
        /// The number of samplings that the call is nested in.
        depth: u8,
        /// `true` if the peer asked for progress.
        observed: bool,
    },
    /// Stop serving. The call is over on the wire already, and every method with `id` returns [`crate::NotLive`]. At most once for an id.
    /// The call keeps its place among those in flight until [`crate::Session::respond`] says that its handler has ended.
    Cancelled {
        /// The call.
        id: InboundId,
        /// The cause.
        why: CancelReason,
    },
    /// The answer to [`crate::Session::request_input`]. It does not come if the call that asked has ended first.
    Input {
        /// The call that asked.
        id: InboundId,
        /// The input request.
        key: InputKey,
        /// The answer, or the reason why there is none.
        answer: Result<Answer, InputFailed>,
    },
    /// The peer has sent an input request. Answer with [`crate::Session::provide_input`].
    InputRequested {
        /// Names the input request in [`crate::Session::provide_input`].
        key: InputKey,
        /// The outbound call that it belongs to, as far as that is known.
        parent: Option<OutboundId>,
        /// The input request.
        ask: Ask,
        /// For sampling the depth of this one, from 1 up; otherwise the depth of its call.
        depth: u8,
    },
    /// An input request of the peer needs no answer any longer.
    InputGone {
        /// The input request.
        key: InputKey,
    },
    /// The peer has reported progress of an outbound call.
    Progress {
        /// The call.
        id: OutboundId,
        /// Its progress.
        progress: Progress,
    },
    /// An outbound call has ended. Exactly once for each id.
    Done {
        /// The call.
        id: OutboundId,
        /// The way in which it ended.
        outcome: Outcome,
        /// The partial result from before the call failed, if the peer sent one.
        partial: Option<Json>,
        /// The last update that was accepted.
        last: Option<Box<Progress>>,
    },
    /// A log record of the peer.
    Log(LogRecord),
    /// News of the peer.
    Notice(Notice),
    /// An alarm of [`crate::Session::set_alarm`] is due.
    Alarm(AlarmId),
    /// The peer broke a rule. The session goes on.
    Violation(Violation),
    /// The peer answered our handshake request with this error. [`Event::Closed`] follows.
    HandshakeRefused(RpcError),
    /// A lane beside the channel was closed with everything that came by it: nothing more leaves on it. The session goes on.
    LaneClosed {
        /// The lane, for the transport to close.
        lane: Lane,
        /// The reason.
        reason: CloseReason,
    },
    /// The session has closed. Once, and nothing follows.
    Closed(CloseReason),
}

/// The end of an outbound call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// With a result: the exact object.
    Result(Json),
    /// With an error of the peer.
    Error(RpcError),
    /// We cancelled it.
    Cancelled,
    /// It took too long, and a cancel was sent.
    TimedOut(TimeoutKind),
    /// The channel ended first. Whether the peer did the work is not known.
    Lost,
    /// It could not be made, or its response could not be read.
    Invalid(Invalid),
}

/// The clock of a call that ran out. [`crate::CallTimeouts`] has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// No progress came for too long.
    Idle,
    /// It took too long in all.
    MaxTotal,
}

/// The reason why a call ended without a usable response of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// The response is neither a result object nor a proper error.
    Response,
    /// The call was held for the handshake, and the peer then did not declare the capability that it needs. Never sent.
    Unsupported,
}

/// The cause of the cancel of an inbound call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The caller cancelled it, perhaps with a reason.
    Peer(Option<Text>),
    /// Its deadline has passed.
    Deadline,
    /// The channel has ended.
    Disconnected,
    /// We closed the session.
    Closing,
}

/// The reason why an input request brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFailed {
    /// The caller answered with an error.
    Refused(RpcError),
    /// The answer has the wrong shape. The text says what is wrong with which field of the form; a name that the caller made up is
    /// escaped and cut to 64 characters.
    Invalid(Text),
    /// No answer came within [`crate::Timeouts::input`].
    TimedOut,
    /// The channel has ended.
    Lost,
}

/// The reason why a session closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner called [`crate::Session::close`].
    Local,
    /// The peer ended its side.
    Eof,
    /// The transport failed.
    Failed,
    /// The handshake took too long.
    HandshakeTimeout,
    /// The peer refused the handshake, or answered with something else.
    HandshakeRefused,
    /// No revision of the protocol is common to both.
    VersionMismatch,
    /// The peer sent a frame over the size limit.
    FrameTooLarge,
    /// The peer does not read the replies that it causes.
    Overload,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "closed by this end",
            Self::Eof => "the peer ended the connection",
            Self::Failed => "the transport failed",
            Self::HandshakeTimeout => "the peer did not answer the handshake in time",
            Self::HandshakeRefused => "the peer refused the handshake",
            Self::VersionMismatch => "no protocol revision is common to both ends",
            Self::FrameTooLarge => "the peer sent a frame over the size limit",
            Self::Overload => "the peer does not read what it makes us send",
        })
    }
}
