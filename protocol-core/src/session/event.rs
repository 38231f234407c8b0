//! Events: the news of a session for its owner.

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
            /// The id of that number, for tests and for owners that keep ids as numbers. A session takes only those that it has given.
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
    /// A call that we started, over all the exchanges that it takes. Never reused.
    OutboundId, "out-";
    /// An inbound call. Never reused; what the peer calls it stays inside.
    InboundId, "in-";
    /// A request of ours on the wire: one of those that an [`OutboundId`] takes, one after the other. Never reused.
    ExchangeId, "exchange-";
    /// An input, asked by us or of us. Never reused; unique in the session.
    InputKey, "input-";
    /// An alarm that the owner set. Never reused.
    AlarmId, "alarm-";
}

/// Something that happened. Events come in the order in which it happened; the inputs and the progress of a call come before its
/// [`Event::Done`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is through. This is the peer.
    Ready(Box<PeerInfo>),
    /// An app greets us, and the owner decides whether it is taken in: answer with [`crate::Session::welcome`] (Tesseron gateway whose
    /// configuration holds no welcome).
    HandshakeRequest {
        /// The app that greets.
        peer: Box<PeerInfo>,
        /// The session of before that it wants to go on with.
        resume: Option<ResumeCredentials>,
    },
    /// The peer has another identity or other capabilities now: a Tesseron session was claimed.
    PeerChanged(Box<PeerInfo>),
    /// The peer wants something done. End it with [`crate::Session::respond`], whatever happens.
    Request {
        /// Names the call in the callee's verbs.
        id: InboundId,
        /// The request.
        request: Request,
        /// The peer as it was then, and what came with the request.
        caller: Caller,
        /// The number of samplings that it is nested in.
        depth: u8,
        /// The peer asked for progress.
        observed: bool,
    },
    /// Stop serving: the wire is already free, and every verb on `id` gives [`crate::NotLive`]. At most once an id. The call
    /// keeps its place among those in flight until [`crate::Session::respond`] says that its handler has ended.
    Cancelled {
        /// Which.
        id: InboundId,
        /// On whose account.
        why: CancelReason,
    },
    /// The answer to [`crate::Session::request_input`]. It does not come when the call that asked has ended before.
    Input {
        /// The call that asked.
        id: InboundId,
        /// Which of its input requests.
        key: InputKey,
        /// The answer, or the reason why there is none.
        answer: Result<Answer, InputFailed>,
    },
    /// The peer asks something. Answer with [`crate::Session::provide_input`].
    InputRequested {
        /// Names the input request.
        key: InputKey,
        /// The outbound call on whose behalf it asks, as far as that is known.
        parent: Option<OutboundId>,
        /// The input request.
        ask: Ask,
        /// For sampling, how deep this one is nested: 1 and up. Otherwise the depth of its call.
        depth: u8,
    },
    /// An input request of the peer needs no answer any longer.
    InputGone {
        /// Which.
        key: InputKey,
    },
    /// An outbound call goes on.
    Progress {
        /// Which.
        id: OutboundId,
        /// Its progress.
        progress: Progress,
    },
    /// An outbound call has ended. Exactly once an id.
    Done {
        /// Which.
        id: OutboundId,
        /// The way in which it ended.
        outcome: Outcome,
        /// The partial result of before it failed, if the peer told.
        partial: Option<Json>,
        /// The last progress that was accepted.
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
    /// The peer answered our greeting with this error. [`Event::Closed`] follows.
    HandshakeRefused(RpcError),
    /// A lane beside the channel was given up, and everything that came by it with it: nothing more leaves by it. The session goes on.
    LaneClosed {
        /// The lane, to be hung up.
        lane: Lane,
        /// The reason.
        reason: CloseReason,
    },
    /// It is over. Once, and nothing follows.
    Closed(CloseReason),
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// With a result: the exact object.
    Result(Json),
    /// With an error of the peer.
    Error(RpcError),
    /// We cancelled it.
    Cancelled,
    /// It took too long; a cancel went out.
    TimedOut(TimeoutKind),
    /// The channel ended first. Whether the peer did the work is not known.
    Lost,
    /// It could not be made or its answer could not be read.
    Invalid(Invalid),
}

/// Which clock of a call ran out. [`crate::CallTimeouts`] has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// Nothing was heard for too long.
    Idle,
    /// It took too long in all.
    MaxTotal,
}

/// Why a call ended without the peer's answer being of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// The answer is neither a result object nor a proper error.
    Response,
    /// The call was held for the handshake, and then the peer had not declared what it needs. Never sent.
    Unsupported,
}

/// On whose account a served invocation was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The caller's, perhaps with a reason.
    Peer(Option<Text>),
    /// Its deadline has passed.
    Deadline,
    /// The channel has ended.
    Disconnected,
    /// We close.
    Closing,
}

/// Why an input brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFailed {
    /// The caller answered with an error.
    Refused(RpcError),
    /// The answer has the wrong shape. Says what of it, and how, by the names of the form; of a name that the caller made up, 64
    /// characters at the most, escaped.
    Invalid(Text),
    /// No answer came within [`crate::Timeouts::input`].
    TimedOut,
    /// The channel has ended.
    Lost,
}

/// Why a session closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// [`crate::Session::close`].
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
    /// The peer does not read what it makes us send.
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
