//! The interface between a dialect and the session: the messages of a peer, and the rules of a protocol.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::dialect::request::RawParams;
use crate::dialect::tesseron::ResumeCredentials;
use crate::dialect::{Ask, Capabilities, Dialect, Identity, Level, LogRecord, Notice, PeerInfo, Progress, SubscriptionFilter};
use crate::error::{RpcError, Violation};
use crate::json::scan::Span;
use crate::json::{Json, Payload, Text};
use crate::shared::Arc;
use crate::wire::WireId;

/// One message of the peer, by its meaning.
#[derive(Debug)]
pub(crate) enum Message {
    /// The peer opens the handshake.
    HandshakeRequest {
        id: WireId,
        request: Result<HandshakeRequest, HandshakeRejected>,
    },
    /// The peer confirms the handshake.
    HandshakeConfirmed,
    /// A request that the dialect answers by itself, in every state of the session.
    Answered {
        id: WireId,
        result: Json,
        /// `true` if the peer needs no handshake.
        is_stateless: bool,
    },
    /// The peer asks for log records of this level and more severe ones.
    SetLevel {
        id: WireId,
        level: Result<Level, Refusal>,
    },
    /// A request that becomes an inbound call.
    Request {
        id: WireId,
        request: Result<RawParams, Box<Refusal>>,
        /// The `_meta` of the request, verbatim, if it has members that the session does not read.
        meta: Option<Box<Json>>,
        token: Option<WireId>,
        depth: u8,
        /// The caller, if the request is stateless.
        caller: Option<StatelessCaller>,
    },
    /// An input request of a callee. `parent` is the exchange of ours that the message names; `depth` is the sampling depth that it states.
    Ask {
        id: WireId,
        ask: Result<Box<Ask>, Refusal>,
        parent: Option<u64>,
        depth: u8,
    },
    /// The response to an exchange of ours. `number` is `None` if the id cannot be one of ours.
    Response {
        number: Option<u64>,
        body: ResponseBody<Payload>,
    },
    /// Progress on an exchange of ours. `number` is `None` if the token cannot be one of ours.
    Progress {
        number: Option<u64>,
        progress: Progress,
        partial: Option<Box<Json>>,
    },
    /// A change of the peer's identity or capabilities.
    PeerChanged(Box<PeerChange>),
    /// A cancel. `id` is the id of the exchange, or the name of the call if [`Rules::names_calls`] is set.
    Cancel {
        id: WireId,
        reason: Option<Text>,
    },
    /// A log record. `invocation` is the exchange of ours that it belongs to; 0, which is no exchange, if the record has a name that we never
    /// gave.
    Log {
        record: LogRecord,
        invocation: Option<u64>,
    },
    Notice(Notice),
    /// The peer acknowledges a subscription of ours, for these kinds. `number` is `None` if the id cannot be one of ours.
    Acknowledged {
        number: Option<u64>,
        accepted: SubscriptionFilter,
    },
    /// A notice for a subscription of ours. `number` is `None` if the id cannot be one of ours.
    Published {
        number: Option<u64>,
        notice: Notice,
    },
    /// The peer cancels a subscription of ours. `number` is `None` if the id cannot be one of ours.
    SubscriptionCancelled {
        number: Option<u64>,
    },
    /// The messages of one frame, none of which is a batch.
    Batch(Vec<Self>),
    /// A message without effect: a violation, an error to answer with, or both.
    Reject {
        violation: Option<Violation>,
        answer: Option<(Option<WireId>, RpcError)>,
    },
}

/// The caller of a stateless request, as the `_meta` of the request describes it.
#[derive(Clone, Debug)]
pub(crate) struct StatelessCaller {
    /// The rules of the revision that the request names.
    pub(crate) rules: &'static Rules,
    pub(crate) peer: Arc<PeerInfo>,
    /// The least severe log record that the caller wants; `None` for no record.
    pub(crate) log_level: Option<Level>,
    /// The range of the frame that names the caller. Empty if the caller need not be remembered as a [`KnownCaller`](super::KnownCaller).
    pub(crate) text: Span,
}

/// A request that is refused in every state of the session: the violation, if there is one, and the error to answer with.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) violation: Option<Violation>,
    pub(crate) error: RpcError,
}

/// A message that is not allowed before the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyMessage {
    /// A request.
    Request,
    /// An input request, before our requests may be sent.
    InputRequest,
}

/// A change of the peer's own identity or capabilities.
#[derive(Clone, Debug)]
pub(crate) struct PeerChange {
    pub(crate) identity: Identity,
    /// The capabilities of the peer, typed and verbatim; `None` if they stay as they were.
    pub(crate) capabilities: Option<(Capabilities, Json)>,
}

/// The body of a response whose request is not looked up yet.
#[derive(Debug)]
pub(crate) enum ResponseBody<R = Json> {
    Result(R),
    Error(RpcError),
    Malformed,
}

impl ResponseBody<Payload> {
    /// Cuts the result out of `frame`, which must be the frame that was read.
    #[inline]
    pub(crate) fn cut(self, frame: Bytes) -> ResponseBody {
        match self {
            Self::Result(result) => ResponseBody::Result(result.cut(frame)),
            Self::Error(error) => ResponseBody::Error(error),
            Self::Malformed => ResponseBody::Malformed,
        }
    }
}

/// The peer's half of the handshake, and our answer to it.
#[derive(Debug)]
pub(crate) struct HandshakeRequest {
    pub(crate) peer: Box<PeerInfo>,
    pub(crate) answer: HandshakeAnswer,
}

/// The answer to a handshake request.
#[derive(Debug)]
pub(crate) enum HandshakeAnswer {
    /// This `result`.
    Result(Json),
    /// The owner of the session decides. Contains the credentials of an earlier session that the peer asks to resume.
    Owner(Option<ResumeCredentials>),
}

/// The error with which a handshake request is refused.
#[derive(Debug)]
pub(crate) struct HandshakeRejected {
    pub(crate) error: RpcError,
    /// `true` if a further handshake request is useless: the session closes.
    pub(crate) is_final: bool,
}

impl From<RpcError> for HandshakeRejected {
    fn from(error: RpcError) -> Self {
        Self { error, is_final: false }
    }
}

/// The verdict on the answer to our request for the revisions of the peer (MCP 2026-07-28, Versioning).
#[derive(Debug)]
pub(crate) enum ProbeVerdict {
    /// The peer serves requests without a handshake, in our revision.
    Modern(Box<PeerInfo>),
    /// The peer refuses our revision, and names it among those that it serves.
    Again,
    /// The peer wants a handshake, or does not know the request.
    Legacy,
    /// The peer wants no handshake, and refuses our request.
    Refused,
    /// The peer wants no handshake, and has no revision of ours.
    Mismatch,
}

/// The reason why the peer's answer to our handshake request fails the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailed {
    Malformed,
    Version,
}

/// The rules of an exchange: those of one end of one protocol in one revision. Each exchange stores the rules under which it began. The
/// session decides by them alone, and never by the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Reads and writes frames.
    pub(crate) dialect: Dialect,
    /// `true` if every request names its revision, its caller and the wanted log level, there is no handshake, and only the caller sends
    /// requests.
    pub(crate) stateless: bool,
    /// `true` if this end opens the handshake.
    pub(crate) opens: bool,
    /// The event after which our requests may be sent, once we have answered the peer's handshake request.
    pub(crate) confirmation: Confirmation,
    /// `true` if cancels and input requests name a call by its token. An input request must name a live call.
    pub(crate) names_calls: bool,
    /// `true` if a call that is cancelled is still answered.
    pub(crate) answers_cancelled: bool,
    /// `true` if an input request that is no longer needed is cancelled by a notification; otherwise both sides just forget it.
    pub(crate) cancels_input_requests: bool,
    /// `true` if calls are still answered after the end of input.
    pub(crate) outlives_input: bool,
    /// `true` if an exchange ends with the lane that it came by, and only frames of that lane can refer to it. Otherwise all lanes belong
    /// to one peer, and calls continue after a lane is lost.
    pub(crate) lane_bound: bool,
    /// `true` if frames that cannot be read are answered with an error without an id.
    pub(crate) answers_unreadable: bool,
    /// `true` if an update without a value is sent as it is. Otherwise it is kept until the value increases.
    pub(crate) lone_messages: bool,
    /// `true` if progress is sent as a percentage.
    pub(crate) percent: bool,
    /// `true` if an equal value with a message is accepted as an update with only a message.
    pub(crate) accepts_equal: bool,
}

/// The event after which the requests of the end that answers the handshake may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The confirmation of the peer; until then requests wait.
    Peer,
    /// The owner's [`crate::Session::claim`]; until then requests are refused.
    Owner,
}
