//! The methods of [`Dialect`]: each calls the protocol that the dialect is of.

use alloc::boxed::Box;

use bytes::Bytes;

use super::message::{EarlyMessage, HandshakeFailed, Message, ProbeVerdict, ResponseBody, Rules};
use super::{
    Answered, AskUnfit, Capabilities, CutShort, Dialect, Identity, InputRequest, InputResponse, InputRound, KnownCaller, LocalEnd,
    LogRecord, Notification, Op, Outgoing, PeerInfo, Progress, Protocol, Reply, ResultFit, RetryMembers, Stamp, SubscriptionFilter,
    Unfit, checkpoint, mcp, tesseron,
};
use crate::error::{RpcError, Violation};
use crate::json::write::text_size;
use crate::json::{Json, Text};
use crate::wire::{FrameBuffer, Tolerated, WireId, WrittenFrame};

/// Calls a method of the type of the protocol, [`mcp::Mcp`] or [`tesseron::Tesseron`].
macro_rules! delegate {
    ($self:ident, $protocol:ident => $call:expr) => {
        match $self {
            Dialect::Mcp($protocol) => $call,
            Dialect::Tesseron($protocol) => $call,
        }
    };
}

impl Dialect {
    /// The rules of this end of `protocol` before its handshake.
    pub(crate) fn rules(protocol: &Protocol) -> &'static Rules {
        match protocol {
            Protocol::Mcp { side, .. } => mcp::Mcp::rules(*side, None),
            Protocol::Tesseron(tesseron::End::App(_)) => tesseron::Tesseron::App.rules(),
            Protocol::Tesseron(tesseron::End::Gateway(_)) => tesseron::Tesseron::Gateway.rules(),
        }
    }

    // From the peer.

    /// Reads a frame. `recent` is the caller of an earlier request. If the frame is a request of the same caller, the text that names the
    /// caller is not read again. Without `recent` the message is the same.
    pub(crate) fn read(self, frame: &Bytes, local: &LocalEnd<'_>, recent: Option<&KnownCaller>, tolerated: &Tolerated) -> Message {
        match self {
            Self::Mcp(protocol) => protocol.read(frame, local, recent, tolerated),
            Self::Tesseron(protocol) => protocol.read(frame, local, tolerated),
        }
    }

    /// Reads the answer to [`Self::write_handshake_request`]. If it is valid, the handshake has agreed on a revision.
    pub(crate) fn read_handshake_answer(self, result: &Json, local: &LocalEnd<'_>) -> Result<PeerInfo, HandshakeFailed> {
        match self {
            Self::Mcp(protocol) => protocol.read_handshake_answer(result, local.newest()),
            Self::Tesseron(protocol) => protocol.read_handshake_answer(result),
        }
    }

    /// Returns `true` if this end sends a probe first: a request for the revisions of the peer.
    pub(crate) fn probes(self, local: &LocalEnd<'_>) -> bool {
        match self {
            Self::Mcp(protocol) => protocol.probes(local.era),
            Self::Tesseron(_) => false,
        }
    }

    /// Returns `true` if the peer may make a handshake.
    pub(crate) const fn has_handshake(self, local: &LocalEnd<'_>) -> bool {
        match self {
            Self::Mcp(_) => local.era.has_legacy(),
            Self::Tesseron(_) => true,
        }
    }

    /// Reads the response to a probe ([`Self::write_probe`]).
    pub(crate) fn read_probe_answer(self, body: &ResponseBody, local: &LocalEnd<'_>) -> ProbeVerdict {
        mcp::read_probe_answer(body, local)
    }

    /// Returns `true` if an error response to our handshake request names a revision without a handshake that this end speaks, so that this
    /// end should probe.
    pub(crate) fn asks_for_probe(self, error: &RpcError, local: &LocalEnd<'_>) -> bool {
        self.probes(local) && mcp::names_our_revision(error)
    }

    /// The rules in the revision that the handshake with `peer` has agreed on. `before` are the rules before the handshake.
    pub(crate) fn agree(self, peer: &PeerInfo, before: &'static Rules) -> &'static Rules {
        match self {
            Self::Mcp(protocol) => protocol.agree(&peer.protocol),
            // Tesseron has one version.
            Self::Tesseron(_) => before,
        }
    }

    /// Checks the shape of the result of a request of ours of the kind `op`, as far as the dialect checks results at all. `exchange` is the
    /// number of the request.
    pub(crate) fn check_result(self, exchange: u64, op: Op, result: &Json) -> ResultFit {
        delegate!(self, protocol => protocol.check_result(exchange, op, result))
    }

    /// An upper bound on the length of the frame of a request of ours in bytes, without the [`Stamp`] and the members of a retry.
    pub(crate) fn call_size(self, call: &Outgoing) -> usize {
        /// The length of `jsonrpc`, the id, a method of the protocol, and the members that the session adds.
        const MEMBERS: usize = 256;
        // An escaped character takes up to six bytes. Only a custom method may need escapes.
        let method = call.custom_method().map_or(MEMBERS, |method| method.len().saturating_mul(6).saturating_add(MEMBERS));
        call.size().saturating_add(method)
    }

    /// Reads the answer to an input request of ours. The error describes what is wrong with the answer.
    pub(crate) fn read_answer(self, ask: &InputRequest, result: &Json) -> Result<InputResponse, Text> {
        delegate!(self, protocol => protocol.read_answer(ask, result))
    }

    /// Reads the partial result from the error of a call.
    pub(crate) fn read_partial(self, error: &RpcError) -> Option<Json> {
        checkpoint::read_partial(error)
    }

    /// Returns `true` if the parameters of a request of ours have the JSON types that the protocol demands.
    pub(crate) fn is_proper(self, call: &Outgoing) -> bool {
        // The input of an action may be any JSON.
        call.is_proper(matches!(self, Self::Tesseron(_)))
    }

    /// Checks that a request may be sent to a peer with the capabilities `peer`.
    pub(crate) fn check_call(self, call: &Outgoing, peer: &Capabilities) -> Result<(), Unfit> {
        delegate!(self, protocol => protocol.check_call(call.op, call.custom_method(), peer))
    }

    /// Checks that an input request may be sent to a peer with the capabilities `peer`.
    pub(crate) fn check_ask(self, ask: &InputRequest, peer: &Capabilities) -> Result<(), AskUnfit> {
        delegate!(self, protocol => protocol.check_ask(ask, peer))
    }

    /// Checks that this end, with the capabilities `own`, may send a notification.
    pub(crate) fn check_notification(self, notification: &Notification, own: &Capabilities) -> Result<(), Unfit> {
        match self {
            Self::Mcp(protocol) => protocol.check_notification(notification, own),
            Self::Tesseron(protocol) => protocol.check_notification(notification),
        }
    }

    // To the peer.

    pub(crate) fn write_handshake_request(self, frames: &mut FrameBuffer, id: u64, local: &LocalEnd<'_>) -> WrittenFrame {
        delegate!(self, protocol => protocol.write_handshake_request(frames, id, local))
    }

    /// Writes the notification that follows a successful handshake, if the protocol has one.
    pub(crate) fn write_handshake_confirmation(self, frames: &mut FrameBuffer) -> Option<WrittenFrame> {
        match self {
            Self::Mcp(protocol) => protocol.write_handshake_confirmation(frames),
            Self::Tesseron(_) => None,
        }
    }

    /// The `result` for a handshake request that the owner has accepted. `None` on MCP, where the session answers handshake requests
    /// itself.
    pub(crate) fn welcome(self, welcome: &tesseron::Welcome, local: &LocalEnd<'_>) -> Option<Json> {
        match self {
            Self::Mcp(_) => None,
            Self::Tesseron(protocol) => Some(protocol.welcome(welcome, local)),
        }
    }

    /// Writes the notification that an agent has claimed the session. `at_millis` is the time of the claim, in milliseconds since 1970.
    /// `None` on MCP, which has no such notification.
    pub(crate) fn write_claimed(self, frames: &mut FrameBuffer, at_millis: u64, local: &LocalEnd<'_>) -> Option<WrittenFrame> {
        match self {
            Self::Mcp(_) => None,
            Self::Tesseron(protocol) => Some(protocol.write_claimed(frames, at_millis, local)),
        }
    }

    /// Writes a probe: the request for the revisions of the peer.
    pub(crate) fn write_probe(self, frames: &mut FrameBuffer, id: u64, local: &LocalEnd<'_>) -> WrittenFrame {
        mcp::write_probe(frames, id, local)
    }

    /// The members of `_meta` that name this end in each of its requests ([`Stamp::caller`]). Empty in a revision in which the handshake
    /// names this end.
    pub(crate) fn stamp(self, local: &LocalEnd<'_>) -> Box<[u8]> {
        match self {
            Self::Mcp(protocol) => protocol.stamp(local),
            Self::Tesseron(_) => Box::default(),
        }
    }

    /// Writes the stateless request that subscribes to the notifications in `filter`.
    pub(crate) fn write_listen(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        filter: &SubscriptionFilter,
        stamp: Stamp<'_>,
    ) -> WrittenFrame {
        mcp::write_listen(frames, id, filter, stamp)
    }

    /// An upper bound on the length of [`Self::write_listen`] in bytes, without the stamp.
    pub(crate) fn listen_size(self, filter: &SubscriptionFilter) -> usize {
        /// The length of `jsonrpc`, the id, the method, and the names of the members.
        const MEMBERS: usize = 256;
        filter.uris.iter().map(|uri| text_size(uri.as_bytes()).saturating_add(1)).fold(MEMBERS, usize::saturating_add)
    }

    /// Writes a request of ours. `observed` is `true` if it asks for progress, and `depth` is its sampling depth.
    pub(crate) fn write_call(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        call: &Outgoing,
        observed: bool,
        depth: u8,
        stamp: Stamp<'_>,
    ) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_call(frames, id, call, observed, depth, stamp),
            // On Tesseron every call may report progress, and there are no fields for depth and `_meta`.
            Self::Tesseron(protocol) => protocol.write_call(frames, id, call),
        }
    }

    /// Writes the retry of a request of ours, with the answers to a round of input requests.
    #[allow(clippy::too_many_arguments, reason = "those of a request, and the members of the retry")]
    pub(crate) fn write_retry(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        call: &Outgoing,
        observed: bool,
        depth: u8,
        stamp: Stamp<'_>,
        retry: RetryMembers<'_>,
    ) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_retry(frames, id, call, observed, depth, stamp, retry),
            // Tesseron has no rounds, so this is never called.
            Self::Tesseron(protocol) => protocol.write_call(frames, id, call),
        }
    }

    /// Reads the round of input requests in a result. `own` are the capabilities of this end.
    pub(crate) fn read_round(self, result: &Json, own: &Capabilities) -> Result<InputRound, Violation> {
        match self {
            Self::Mcp(protocol) => protocol.read_round(result, own),
            Self::Tesseron(_) => Err(Violation::InvalidResponse),
        }
    }

    /// The answer to an input request of a round, as it is sent in a retry. `can_decline` is `true` if a user gives the answer, and may
    /// decline to give it. Returns an error if a retry cannot contain the answer.
    pub(crate) fn round_answer(self, answer: &InputResponse, can_decline: bool) -> Result<Json, RpcError> {
        match self {
            Self::Mcp(protocol) => protocol.round_answer(answer, can_decline),
            Self::Tesseron(protocol) => Err(protocol.no_such_call()),
        }
    }

    /// Returns `true` for a request whose result can be a round of input requests, so that it may be sent again as a retry.
    pub(crate) fn has_rounds(self, op: Op) -> bool {
        match self {
            Self::Mcp(protocol) => protocol.has_rounds(op),
            Self::Tesseron(_) => false,
        }
    }

    /// The method and the parameters of a request whose result can be a round, without the members that a session adds. Both are empty on
    /// Tesseron, which has no rounds.
    pub(crate) fn request_parts(self, request: &Outgoing) -> (&'static str, Json) {
        match self {
            Self::Mcp(protocol) => protocol.request_parts(request),
            Self::Tesseron(_) => ("", Json::empty_object()),
        }
    }

    /// Returns the request with this method and these parameters, if its result can be a round of input requests.
    pub(crate) fn request_with_rounds(method: &str, params: Json) -> Option<Outgoing> {
        mcp::Mcp::request_with_rounds(method, params)
    }

    /// An upper bound on the length, in bytes, of the frame that answers the request `id` with a round of input requests. The frame names
    /// this end, whose identity is `identity`.
    pub(crate) fn round_size(self, round: &InputRound, id: &WireId, identity: &Identity) -> usize {
        /// The length of `jsonrpc`, a number as the id, and the names of the members.
        const MEMBERS: usize = 256;
        let id = if let WireId::Str(id) = id { id } else { "" };
        let texts = [id, &identity.name, &identity.version, identity.title.as_deref().unwrap_or_default()];
        let others = texts.into_iter().map(|text| text_size(text.as_bytes())).fold(MEMBERS, usize::saturating_add);
        mcp::round_size(round).saturating_add(others)
    }

    /// Writes an input request. `parent` is the peer's id of the exchange that the input request belongs to or, if [`Rules::names_calls`]
    /// is `true`, the name of the call.
    pub(crate) fn write_ask(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        ask: &InputRequest,
        parent: &WireId,
        depth: u8,
    ) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_ask(frames, id, ask, parent, depth),
            Self::Tesseron(protocol) => protocol.write_ask(frames, id, ask, parent),
        }
    }

    /// Returns `true` if the protocol has a cancel for a request of the kind `op`.
    pub(crate) fn is_cancellable(self, op: Op) -> bool {
        delegate!(self, protocol => protocol.is_cancellable(op))
    }

    pub(crate) fn write_cancel(self, frames: &mut FrameBuffer, id: u64, reason: Option<&str>) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_cancel(frames, id, reason),
            Self::Tesseron(protocol) => protocol.write_cancel(frames, id),
        }
    }

    pub(crate) fn write_progress(
        self,
        frames: &mut FrameBuffer,
        token: &WireId,
        progress: &Progress,
        partial: Option<&Json>,
    ) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_progress(frames, token, progress, partial),
            Self::Tesseron(protocol) => protocol.write_progress(frames, token, progress, partial),
        }
    }

    /// Writes a reply.
    pub(crate) fn write_reply(
        self,
        frames: &mut FrameBuffer,
        request: Answered<'_>,
        reply: &Reply,
        partial: Option<&Json>,
        local: &LocalEnd<'_>,
    ) -> WrittenFrame {
        let Answered { id, token, op } = request;
        match self {
            Self::Mcp(protocol) => protocol.write_reply(frames, id, op, reply, partial, local),
            Self::Tesseron(protocol) => protocol.write_reply(frames, id, token, op, reply, partial),
        }
    }

    /// The reply to a call that this end has cut short.
    pub(crate) fn cut_short(self, op: Op, why: CutShort, partial: Option<&Json>) -> Reply {
        match self {
            Self::Mcp(protocol) => protocol.cut_short(op, why, partial),
            Self::Tesseron(protocol) => protocol.cut_short(why, partial),
        }
    }

    pub(crate) fn write_answer(self, frames: &mut FrameBuffer, id: &WireId, answer: &InputResponse) -> WrittenFrame {
        delegate!(self, protocol => protocol.write_answer(frames, id, answer))
    }

    pub(crate) fn write_result(self, frames: &mut FrameBuffer, id: &WireId, result: &Json) -> WrittenFrame {
        frames.response(id, result.as_bytes().len(), |out| crate::json::write::push_json(out, result.as_bytes()))
    }

    pub(crate) fn write_error(self, frames: &mut FrameBuffer, id: Option<&WireId>, error: &RpcError) -> WrittenFrame {
        frames.error(id, error)
    }

    /// Writes a log record. `invocation` is the name of the call that the record belongs to; MCP ignores it.
    pub(crate) fn write_log(self, frames: &mut FrameBuffer, record: &LogRecord, invocation: Option<&WireId>) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_log(frames, record),
            Self::Tesseron(protocol) => protocol.write_log(frames, record, invocation),
        }
    }

    pub(crate) fn write_notification(self, frames: &mut FrameBuffer, notification: &Notification) -> WrittenFrame {
        delegate!(self, protocol => protocol.write_notification(frames, notification))
    }

    /// Writes the acknowledgement of the subscription `id`, for the kinds in `accepted`.
    pub(crate) fn write_acknowledged(self, frames: &mut FrameBuffer, id: &WireId, accepted: &SubscriptionFilter) -> WrittenFrame {
        mcp::write_acknowledged(frames, id, accepted)
    }

    /// Writes a notification for the subscription `id`.
    pub(crate) fn write_published(self, frames: &mut FrameBuffer, id: &WireId, notification: &Notification) -> WrittenFrame {
        mcp::write_published(frames, id, notification)
    }

    // The errors of refusals, whose codes differ by protocol.

    pub(crate) fn too_deep(self, depth: u8, max: u8) -> RpcError {
        delegate!(self, protocol => protocol.too_deep(depth, max))
    }

    /// The error for a request over a limit.
    pub(crate) fn busy(self) -> RpcError {
        delegate!(self, protocol => protocol.busy(Text::from_static("too many requests at once")))
    }

    /// The error for a request beside which no more bytes of requests would be held than `most`.
    pub(crate) fn out_of_room(self, most: usize) -> RpcError {
        let why =
            alloc::format!("with this request, running calls would hold more than the {most} bytes of requests that they may");
        delegate!(self, protocol => protocol.busy(why.into()))
    }

    /// The error for a request that comes while the session closes.
    pub(crate) fn closing(self) -> RpcError {
        delegate!(self, protocol => protocol.busy(Text::from_static("closing")))
    }

    /// The error for an input request of a call that has ended.
    pub(crate) fn call_is_over(self) -> RpcError {
        delegate!(self, protocol => protocol.call_is_over())
    }

    /// The error for an input request that belongs to no call of ours.
    pub(crate) fn no_such_call(self) -> RpcError {
        delegate!(self, protocol => protocol.no_such_call())
    }

    /// The error for a message that is not allowed yet.
    pub(crate) fn too_early(self, what: EarlyMessage) -> RpcError {
        delegate!(self, protocol => protocol.too_early(what))
    }
}
