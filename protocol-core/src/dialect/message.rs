//! The contract between a dialect and the session: what a frame means, and what the session must know of a protocol.

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
    /// The peer has seen our half of the handshake.
    HandshakeConfirmed,
    /// Are we there?
    Ping {
        id: WireId,
    },
    /// Send log records from this level on.
    SetLevel {
        id: WireId,
        level: Result<Level, Refusal>,
    },
    /// Something to be served.
    Request {
        id: WireId,
        request: Result<RawParams, Box<Refusal>>,
        /// Its `_meta`, word for word, if there is anything in it but what the session reads.
        meta: Option<Box<Json>>,
        token: Option<WireId>,
        depth: u8,
    },
    /// An input request of a callee. `parent` is the exchange of ours that it names; `depth` is what it says of itself.
    Ask {
        id: WireId,
        ask: Result<Box<Ask>, Refusal>,
        parent: Option<u64>,
        depth: u8,
    },
    /// The end of an exchange of ours; `None` where it names none that can be one.
    Response {
        number: Option<u64>,
        body: ResponseBody<Payload>,
    },
    /// Progress on an exchange of ours; `None` where it names none that can be one.
    Progress {
        number: Option<u64>,
        progress: Progress,
        partial: Option<Box<Json>>,
    },
    /// The peer is somebody else now, or can do something else.
    Changed(Box<Change>),
    /// Stop serving. It names the exchange, or where [`Rules::names_invocations`] its token.
    Cancel {
        id: WireId,
        reason: Option<Text>,
    },
    /// `invocation` is the exchange of ours on whose behalf it is logged; 0, which none has, where a name stands that we never gave.
    Log {
        record: LogRecord,
        invocation: Option<u64>,
    },
    Notice(Notice),
    /// Those of one frame, none of which is a batch.
    Batch(Vec<Self>),
    /// Nothing to act on: a broken rule, an error to answer with, or both.
    Reject {
        violation: Option<Violation>,
        answer: Option<(Option<WireId>, RpcError)>,
    },
}

/// A request that cannot be granted, whatever the state of the session: a broken rule, if it breaks one, and the error that answers it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) violation: Option<Violation>,
    pub(crate) error: RpcError,
}

/// A message that comes before the handshake allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooEarly {
    /// A request, before the handshake.
    Request,
    /// An input request, before our requests may go out.
    Question,
}

/// A change that the peer tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) identity: Identity,
    /// Its capabilities, typed and word for word; `None` if they stay as they were.
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
    /// `frame` must be the one that brought it.
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
    /// As the owner of the session decides. The peer may want to go on with a session of before.
    Owner(Option<ResumeCredentials>),
}

/// Why a greeting is answered with an error.
#[derive(Debug)]
pub(crate) struct HandshakeRejected {
    pub(crate) error: RpcError,
    /// There is no use in a further one: the session closes.
    pub(crate) is_final: bool,
}

impl From<RpcError> for HandshakeRejected {
    fn from(error: RpcError) -> Self {
        Self { error, is_final: false }
    }
}

/// Why a handshake failed on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailed {
    Malformed,
    Version,
}

/// The rules that an exchange goes by: those of one end of one protocol in one revision. Each exchange holds the ones that it began
/// under. The session reads what is a matter of state, and never asks which protocol it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Reads and writes what the wire has.
    pub(crate) dialect: Dialect,
    /// We speak first.
    pub(crate) opens: bool,
    /// The event after which our requests may leave, once we have answered the peer's handshake request.
    pub(crate) confirmation: Confirmation,
    /// The peer names a call by its token: its cancels do, and each input request of it names one that is live.
    pub(crate) names_invocations: bool,
    /// `true` if a call that is cancelled is still answered.
    pub(crate) answers_cancelled: bool,
    /// An input request that is no longer wanted is taken back by a cancel; otherwise both sides forget it.
    pub(crate) cancels_questions: bool,
    /// `true` if calls are still answered after the input that brought them has ended.
    pub(crate) outlives_input: bool,
    /// An exchange lives and dies with the lane that it came by, and only frames of that lane name it. Otherwise all lanes are those of one
    /// peer, and what runs goes on when one is gone.
    pub(crate) lane_bound: bool,
    /// Frames that cannot be read are answered with an error without an id.
    pub(crate) answers_garbage: bool,
    /// An update without a value goes out as it is. Otherwise it waits for the next increase.
    pub(crate) lone_messages: bool,
    /// `true` if progress on the wire is a percentage.
    pub(crate) percent: bool,
    /// An equal value with a message is an update with only a message.
    pub(crate) accepts_equal: bool,
}

/// The event after which the requests of the end that did not speak first may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The peer, by one more message; until then they wait.
    Peer,
    /// The owner, by [`crate::Session::claim`]; until then they are refused.
    Owner,
}
