//! The contract between a dialect and the session: the messages of a peer, and the rules of a protocol.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::dialect::request::RawParams;
use crate::dialect::tesseron::ResumeCredentials;
use crate::dialect::{Ask, Capabilities, Dialect, Identity, Level, LogRecord, Notice, PeerInfo, Progress};
use crate::error::{RpcError, Violation};
use crate::json::{Json, Payload, Text};
use crate::wire::WireId;

/// One message of the peer, by its meaning.
#[derive(Debug)]
pub(crate) enum Message {
    /// The peer opens the handshake.
    HandshakeRequest {
        id: WireId,
        greeting: Result<HandshakeRequest, HandshakeRejected>,
    },
    /// The peer confirms the handshake.
    HandshakeConfirmed,
    /// A ping of the peer.
    Ping {
        id: WireId,
    },
    /// The peer wants log records from this level on.
    SetLevel {
        id: WireId,
        level: Result<Level, Refusal>,
    },
    /// A request to be served.
    Request {
        id: WireId,
        request: Result<RawParams, Box<Refusal>>,
        /// Its `_meta`, verbatim, if it has members that the session does not read.
        meta: Option<Box<Json>>,
        token: Option<WireId>,
        depth: u8,
    },
    /// An input request of a callee. `parent` is the exchange of ours that it names; `depth` is the sampling depth that it claims.
    Ask {
        id: WireId,
        ask: Result<Box<Ask>, Refusal>,
        parent: Option<u64>,
        depth: u8,
    },
    /// The response to an exchange of ours; `None` if its id cannot be one of ours.
    Response {
        number: Option<u64>,
        body: ResponseBody<Payload>,
    },
    /// Progress on an exchange of ours; `None` if its token cannot be one of ours.
    Progress {
        number: Option<u64>,
        progress: Progress,
        partial: Option<Box<Json>>,
    },
    /// A change of the peer's identity or capabilities.
    PeerChanged(Box<PeerChange>),
    /// A cancel. It names the exchange, or its token where [`Rules::names_calls`].
    Cancel {
        id: WireId,
        reason: Option<Text>,
    },
    /// A log record. `invocation` is the exchange of ours that it is about; 0, which no exchange has, for a name that we never gave.
    Log {
        record: LogRecord,
        invocation: Option<u64>,
    },
    Notice(Notice),
    /// The messages of one frame, none of which is a batch.
    Batch(Vec<Self>),
    /// Nothing to act on: a violation, an error to answer with, or both.
    Reject {
        violation: Option<Violation>,
        answer: Option<(Option<WireId>, RpcError)>,
    },
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

/// A change of itself that the peer announces.
#[derive(Clone, Debug)]
pub(crate) struct PeerChange {
    pub(crate) identity: Identity,
    /// Its capabilities, typed and verbatim; `None` if they stay as they were.
    pub(crate) capabilities: Option<(Capabilities, Json)>,
}

/// The body of a response, before it is known which request it answers.
#[derive(Debug)]
pub(crate) enum ResponseBody<R = Json> {
    Result(R),
    Error(RpcError),
    Malformed,
}

impl ResponseBody<Payload> {
    /// Cuts the result out of `frame`, which must be the one that brought it.
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
    /// With this `result`.
    Result(Json),
    /// The owner of the session decides. Holds the earlier session that the peer wants to resume.
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

/// The reason why a handshake failed on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailed {
    Malformed,
    Version,
}

/// The rules of an exchange: those of one end of one protocol in one revision. Each exchange holds the rules that it began under. The
/// session reads them for everything that is a matter of state, and never asks which protocol it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Reads and writes frames.
    pub(crate) dialect: Dialect,
    /// `true` if our end opens the handshake.
    pub(crate) opens: bool,
    /// The event after which our requests may leave, once we have answered the peer's handshake request.
    pub(crate) confirmation: Confirmation,
    /// `true` if the peer names a call by its token, in cancels and in input requests, which must name a live call.
    pub(crate) names_calls: bool,
    /// `true` if a call that is cancelled is still answered.
    pub(crate) answers_cancelled: bool,
    /// `true` if an input request that is no longer needed is taken back by a cancel; otherwise both sides forget it.
    pub(crate) cancels_input_requests: bool,
    /// `true` if calls are still answered after the input that brought them has ended.
    pub(crate) outlives_input: bool,
    /// `true` if an exchange lives and dies with the lane that it came by, and only frames of that lane name it. Otherwise all lanes
    /// belong to one peer, and calls go on when a lane is gone.
    pub(crate) lane_bound: bool,
    /// `true` if frames that cannot be read are answered with an error without an id.
    pub(crate) answers_unreadable: bool,
    /// `true` if an update without a value is sent as it is. Otherwise it waits for the next increase.
    pub(crate) lone_messages: bool,
    /// `true` if progress on the wire is a percentage.
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
