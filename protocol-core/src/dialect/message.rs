//! The interface between a dialect and the session: the messages of a peer, and the rules of a protocol.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::dialect::request::RawParams;
use crate::dialect::tesseron::ResumeCredentials;
use crate::dialect::{
    Capabilities, Dialect, Identity, InputRequest, Level, LogRecord, Notification, PeerInfo, Progress, SubscriptionFilter,
};
use crate::error::{MemberFault, RpcError, Unreadable, Violation};
use crate::json::cursor::Span;
use crate::json::read::member;
use crate::json::{Frame, Json, Payload, Text};
use crate::shared::Arc;
use crate::wire::{self, Recovered, WireId};

/// A message of the peer, as the session handles it.
#[derive(Debug)]
pub(crate) enum Message {
    /// The peer opens the handshake.
    HandshakeRequest {
        id: WireId,
        request: Result<HandshakeRequest, HandshakeRejected>,
    },
    /// The peer confirms the handshake.
    HandshakeConfirmed,
    /// A request that the dialect answers itself. The session sends `result` in every state, unless a request in flight has the same id.
    AnsweredByDialect {
        id: WireId,
        result: Json,
        /// `true` if the request needs no handshake before it.
        is_stateless: bool,
    },
    /// The peer sets the level of the least severe log record to send.
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
        /// The progress token; on Tesseron, the name of the call.
        token: Option<WireId>,
        /// The sampling depth that the request states; 0 if it states none.
        depth: u8,
        /// The caller, if the request is stateless.
        caller: Option<StatelessCaller>,
    },
    /// An input request of a callee. `parent` is the number of the exchange of ours that the message names, and `depth` the sampling depth
    /// that it states.
    InputRequest {
        id: WireId,
        ask: Result<Box<InputRequest>, Refusal>,
        parent: Option<u64>,
        depth: u8,
    },
    /// The response to an exchange of ours.
    Response {
        number: u64,
        body: ResponseBody<Payload>,
    },
    /// A response whose id is not written as the numbers of our exchanges are. `number` is the exchange that it may have been meant for;
    /// `None` if the id is no number in any form.
    Misaddressed {
        number: Option<u64>,
        frame: Box<Unreadable>,
    },
    /// Progress on an exchange of ours. `number` is `None` if the token cannot be one of ours.
    Progress {
        number: Option<u64>,
        progress: Progress,
        partial: Option<Box<Json>>,
    },
    /// A change of the peer's identity or capabilities.
    PeerChanged(Box<PeerChange>),
    /// A cancel of a request of the peer. `id` is the id of the request or, if [`Rules::names_calls`] is `true`, the name of the call.
    Cancel {
        id: WireId,
        reason: Option<Text>,
    },
    /// A log record. `invocation` is the number of the exchange of ours that the record names; `None` if it names none. It is 0, which is
    /// the number of no exchange, if the name in the record cannot be one of ours.
    Log {
        record: LogRecord,
        invocation: Option<u64>,
    },
    Notification(Notification),
    /// The peer acknowledges a subscription of ours, for the kinds in `accepted`. `number` is `None` if the id cannot be one of ours.
    Acknowledged {
        number: Option<u64>,
        accepted: SubscriptionFilter,
    },
    /// A notification for a subscription of ours. `number` is `None` if the id cannot be one of ours.
    Published {
        number: Option<u64>,
        notification: Notification,
    },
    /// The peer cancels a subscription of ours. `number` is `None` if the id cannot be one of ours.
    SubscriptionCancelled {
        number: Option<u64>,
    },
    /// The messages of one frame, none of which is a batch.
    Batch(Vec<Self>),
    /// A frame that is no message.
    Unreadable {
        recovered: Box<Recovered>,
        /// As in [`Message::Reject`].
        answer: Option<(Option<WireId>, RpcError)>,
    },
    /// A message without further effect than a violation, an error reply, or both. With neither, the message is ignored.
    Reject {
        violation: Option<Violation>,
        /// The error to reply with, and the id of the request if it could be read.
        answer: Option<(Option<WireId>, RpcError)>,
    },
}

impl Message {
    /// A response with this id in `frame`.
    pub(crate) fn response(id: &WireId, body: ResponseBody<Payload>, frame: Frame<'_>) -> Self {
        match (id.as_ours(), id) {
            (Some(number), _) => Self::Response { number, body },
            (None, WireId::Str(text)) => {
                Self::misaddressed(number_in(text), "its id is text, and the ids of our requests are numbers", frame)
            }
            (None, _) => Self::misaddressed(None, wire::UNKNOWN_ID, frame),
        }
    }

    /// A response whose id is not written as our numbers are, in `frame`. `why` is the fault of the id.
    pub(crate) fn misaddressed(number: Option<u64>, why: &'static str, frame: Frame<'_>) -> Self {
        Self::Misaddressed { number, frame: wire::astray(frame.as_bytes(), why) }
    }
}

/// The number that is written in exactly this way.
fn number_in(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| alloc::format!("{number}") == text)
}

/// The caller of a stateless request, as the `_meta` of the request describes it.
#[derive(Clone, Debug)]
pub(crate) struct StatelessCaller {
    /// The rules of the revision that the request names.
    pub(crate) rules: &'static Rules,
    pub(crate) peer: Arc<PeerInfo>,
    /// The level of the least severe log record that the request asks for; `None` if it asks for no records.
    pub(crate) log_level: Option<Level>,
    /// The part of the frame that names the caller. Empty if the caller need not, or cannot, be remembered as a
    /// [`KnownCaller`](super::KnownCaller).
    pub(crate) text: Span,
}

/// The refusal of a request because of its contents: the violation, if there is one, and the error to reply with. If the session also has
/// to refuse the request because of its state, it sends the error for the state instead.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) violation: Option<Violation>,
    pub(crate) error: RpcError,
}

/// A message that came too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyMessage {
    /// A request before the handshake.
    Request,
    /// An input request while we may not send requests yet, so that it cannot belong to a call.
    InputRequest,
}

/// A change of the peer's identity or capabilities.
#[derive(Clone, Debug)]
pub(crate) struct PeerChange {
    pub(crate) identity: Identity,
    /// The new capabilities of the peer, parsed and verbatim; `None` if they stay as they were.
    pub(crate) capabilities: Option<(Capabilities, Json)>,
}

/// The body of a response, before the session has looked up the request.
#[derive(Debug)]
pub(crate) enum ResponseBody<R = Json> {
    Result(R),
    Error(RpcError),
    /// The body is neither a result nor a valid error ([`Violation::InvalidResponse`]); or the response is in a frame that is no message,
    /// and any other violation has been reported.
    Unreadable(Box<Unreadable>),
}

impl ResponseBody<Payload> {
    /// The body of a response that has neither a result nor a valid error.
    pub(crate) fn malformed(frame: Frame<'_>, why: &'static str) -> Self {
        let found = wire::misshapen(frame.as_bytes(), Violation::InvalidResponse);
        Self::Unreadable(Box::new(Unreadable { hint: Some(why), ..*found }))
    }

    /// Cuts the result out of `frame`, which must be the frame that was read.
    #[inline]
    pub(crate) fn cut(self, frame: Bytes) -> ResponseBody {
        match self {
            Self::Result(result) => ResponseBody::Result(result.cut(frame)),
            Self::Error(error) => ResponseBody::Error(error),
            Self::Unreadable(frame) => ResponseBody::Unreadable(frame),
        }
    }
}

/// The description of the peer in its handshake request, and our answer.
#[derive(Debug)]
pub(crate) struct HandshakeRequest {
    pub(crate) peer: Box<PeerInfo>,
    pub(crate) answer: HandshakeAnswer,
}

/// The answer to a handshake request.
#[derive(Debug)]
pub(crate) enum HandshakeAnswer {
    /// The session sends this `result`.
    Result(Json),
    /// The owner of the session answers. If the peer asks to resume an earlier session, this has the credentials of that session.
    Owner(Option<ResumeCredentials>),
}

/// The error with which a handshake request is refused.
#[derive(Debug)]
pub(crate) struct HandshakeRejected {
    pub(crate) error: RpcError,
    /// `true` if a further handshake request would be useless, so that the session closes.
    pub(crate) is_final: bool,
}

impl From<RpcError> for HandshakeRejected {
    fn from(error: RpcError) -> Self {
        Self { error, is_final: false }
    }
}

/// The meaning of the response to our probe, the request for the revisions of the peer (MCP 2026-07-28, Versioning).
#[derive(Debug)]
pub(crate) enum ProbeVerdict {
    /// The peer serves requests without a handshake, in our revision.
    Modern(Box<PeerInfo>),
    /// The peer refuses our revision, although it names this revision among those that it serves: send the probe again.
    Again,
    /// The peer serves requests only after a handshake, or does not support the probe.
    Legacy,
    /// The peer serves requests without a handshake, but refuses our probe.
    Refused,
    /// The peer serves requests without a handshake, but this member of its answer has a fault.
    Malformed(&'static str, MemberFault),
    /// The peer and this end have no revision in common.
    Mismatch,
}

/// The reason why the peer's answer to our handshake request is not accepted, so that the handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailed {
    /// This member of the answer has a fault.
    Malformed(&'static str, MemberFault),
    Version,
}

impl HandshakeFailed {
    /// The failure because of the member `name` of `object`. `path` is its name within the answer.
    pub(crate) fn of(object: &[u8], name: &str, path: &'static str) -> Self {
        Self::Malformed(path, MemberFault::of(object, name))
    }
}

impl MemberFault {
    /// The fault of the member `name` of `object`, which is not as it should be.
    pub(crate) fn of(object: &[u8], name: &str) -> Self {
        if member(object, name).is_some() { Self::WrongType } else { Self::Missing }
    }
}

/// The rules of an exchange: those of one end of one protocol in one revision. Each exchange stores the rules under which it began. The
/// session depends on these rules, and not on the protocol, except in [`Session::era`](crate::Session::era).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The dialect that reads and writes the frames.
    pub(crate) dialect: Dialect,
    /// `true` if there is no handshake: every request names its revision, its caller and the wanted log level, and only the caller sends
    /// requests.
    pub(crate) stateless: bool,
    /// `true` if this end opens the handshake.
    pub(crate) opens: bool,
    /// The event after which our requests may be sent, once we have answered the peer's handshake request.
    pub(crate) requests_start: RequestsStart,
    /// `true` if a peer that has made its handshake may make another on the channel ([`Lane::CHANNEL`](crate::Lane::CHANNEL)), for the
    /// terms of its later requests: a bridge may share the channel between several clients. On any other lane, and if it is `false`,
    /// another handshake is refused.
    pub(crate) repeats_handshake: bool,
    /// `true` if a call keeps the capabilities that its caller had when the request arrived. Otherwise a claim changes those of running
    /// calls, too.
    pub(crate) keeps_capabilities: bool,
    /// `true` if cancels and input requests name a call by its token. In this case, an input request must name a live call.
    pub(crate) names_calls: bool,
    /// `true` if a call that is cancelled is still answered.
    pub(crate) answers_cancelled: bool,
    /// `true` if an input request that is no longer needed is cancelled by a notification. Otherwise both ends drop it without a frame.
    pub(crate) cancels_input_requests: bool,
    /// `true` if inbound calls are still answered after the end of input.
    pub(crate) outlives_input: bool,
    /// `true` if an exchange ends with the lane that it came by, and only frames of that lane can refer to it. Otherwise all lanes belong
    /// to one peer, and calls continue after a lane is lost.
    pub(crate) lane_bound: bool,
    /// `true` if frames that cannot be read are answered with an error without an id.
    pub(crate) answers_unreadable: bool,
    /// `true` if an update of progress without a value is sent as it is. Otherwise the first such update is sent with the value 0, and a
    /// later one is kept until the value increases.
    pub(crate) allows_updates_without_value: bool,
    /// `true` if progress is sent as a percentage.
    pub(crate) percent: bool,
    /// `true` if an update that arrives with a value that does not increase is accepted without the value, provided that it has a message
    /// or data. If it is `false`, only an update that repeats the last value and has a message can be accepted, and only with
    /// [`ProgressPolicy::accept_equal`](crate::ProgressPolicy::accept_equal).
    pub(crate) accepts_no_increase: bool,
}

/// The event after which the end that answers the handshake may send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestsStart {
    /// The peer confirms the handshake. Until then requests are held.
    Confirmed,
    /// The owner calls [`crate::Session::claim`]. Until then requests are refused.
    Claimed,
}

/// A message that is ignored without a violation, such as an unknown notification that the configuration does not list.
pub(super) fn ignored_message() -> Message {
    Message::Reject { violation: None, answer: None }
}
