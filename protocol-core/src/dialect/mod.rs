//! The protocols: from JSON-RPC envelopes to messages and back. Knows method names and shapes, and no state.
//!
//! [`Dialect`] is an enum, not a trait: the set of protocols is closed, the revision is chosen at run time, and the compiler lists the
//! places that a further protocol has to fill.

mod blocks;
mod caller;
mod checkpoint;
mod content;
mod form;
mod list;
pub mod mcp;
mod message;
mod open_url;
mod outgoing;
mod request;
mod terms;
pub mod tesseron;

use alloc::string::String;

use bytes::Bytes;

use crate::error::RpcError;
use crate::json::{Json, Text};
use crate::limits::Limits;
use crate::wire::{FrameBuffer, WireId, WrittenFrame};

pub use blocks::Blocks;
pub use caller::Caller;
pub use content::Content;
pub(crate) use list::list_of;
pub use list::{Page, PromptArgument, PromptInfo, ResourceInfo, ResourceTemplateInfo, ToolInfo, ToolResult};
pub(crate) use message::{
    Confirmation, EarlyMessage, HandshakeAnswer, HandshakeFailed, HandshakeRejected, HandshakeRequest, Message, PeerChange,
    Refusal, ResponseBody, Rules,
};
pub use open_url::{Consent, OpenUrl};
pub(crate) use outgoing::{Outgoing, Parts};
pub use request::{
    CallTool, Complete, CompletionOf, CompletionRequest, Custom, GetPrompt, List, ReadResource, Request, Subscribe, Unsubscribe,
};
pub use terms::{
    Answer, Ask, Capabilities, Completion, Elicit, Elicited, Identity, Level, LogRecord, NotFound, Notice, Op, PeerInfo, Progress,
    Reply, Sample, Sampled, SessionCredentials, ToolOutput,
};

/// The protocol that a session speaks, and the end of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The Model Context Protocol.
    Mcp {
        /// Client or server.
        side: mcp::Side,
        /// The newest revision to agree on; older ones are spoken too.
        newest: mcp::Revision,
    },
    /// Tesseron 1.2.
    Tesseron(tesseron::End),
}

/// The parts of a configuration that a dialect writes, and checks frames against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalEnd<'a> {
    /// The protocol, and what belongs to one end of it alone.
    pub(crate) protocol: &'a Protocol,
    /// The name that the peer is told.
    pub(crate) identity: &'a Identity,
    /// The capabilities that the peer is told.
    pub(crate) capabilities: &'a Capabilities,
    /// The instructions of a server, or the description of an app.
    pub(crate) instructions: Option<&'a str>,
    /// The bounds of a frame.
    pub(crate) limits: &'a Limits,
    /// The served methods beside those of the protocol.
    pub(crate) custom_methods: &'a [String],
    /// The notifications beside those of the protocol that become events.
    pub(crate) custom_notifications: &'a [String],
}

impl LocalEnd<'_> {
    /// The newest revision of MCP to agree on.
    fn newest(&self) -> mcp::Revision {
        if let Protocol::Mcp { newest, .. } = self.protocol { *newest } else { mcp::Revision::NEWEST }
    }

    /// The description that an app of Tesseron gives of itself.
    fn app(&self) -> Option<&tesseron::App> {
        if let Protocol::Tesseron(tesseron::End::App(app)) = self.protocol { Some(app) } else { None }
    }

    /// The answer of a Tesseron gateway to every hello, unless its owner decides on each.
    fn welcome(&self) -> Option<&tesseron::Welcome> {
        if let Protocol::Tesseron(tesseron::End::Gateway(gateway)) = self.protocol { gateway.welcome.as_ref() } else { None }
    }
}

/// The reason why a call was cut short, for the status of its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutShort {
    /// By the peer, which waits for an answer.
    Cancelled,
    Deadline,
    Closing,
}

/// One end of one protocol in one revision: reads and writes frames. It has no other state, so a handshake changes nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Mcp(mcp::Mcp),
    Tesseron(tesseron::Tesseron),
}

/// Passes a call on to the dialect of the protocol.
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

    pub(crate) fn read(self, frame: &Bytes, local: &LocalEnd<'_>) -> Message {
        delegate!(self, protocol => protocol.read(frame, local))
    }

    /// Reads the answer to [`Self::write_handshake_request`]; on success the revision is agreed.
    pub(crate) fn read_handshake_answer(self, result: &Json, local: &LocalEnd<'_>) -> Result<PeerInfo, HandshakeFailed> {
        match self {
            Self::Mcp(protocol) => protocol.read_handshake_answer(result, local.newest()),
            Self::Tesseron(protocol) => protocol.read_handshake_answer(result),
        }
    }

    /// The rules in the revision that `peer` speaks.
    pub(crate) fn agree(self, peer: &PeerInfo, before: &'static Rules) -> &'static Rules {
        match self {
            Self::Mcp(protocol) => protocol.agree(&peer.protocol),
            // Tesseron has one version.
            Self::Tesseron(_) => before,
        }
    }

    /// Judges whether a result can be the result of this operation, as far as the protocol says.
    pub(crate) fn check_result(self, exchange: u64, op: Op, result: &Json) -> ResultFit {
        delegate!(self, protocol => protocol.check_result(exchange, op, result))
    }

    /// The largest number of bytes that a request of ours takes in a frame.
    pub(crate) fn call_size(self, call: &Outgoing) -> usize {
        /// `jsonrpc`, the id, and the members that the session writes.
        const MEMBERS: usize = 256;
        // A character takes up to six bytes when it is escaped. No method of a protocol has such a character.
        let method = call.custom_method().map_or(MEMBERS, |method| method.len().saturating_mul(6).saturating_add(MEMBERS));
        call.size().saturating_add(method)
    }

    /// Reads the answer to an input request of ours. The error names the fault of its shape.
    pub(crate) fn read_answer(self, ask: &Ask, result: &Json) -> Result<Answer, Text> {
        delegate!(self, protocol => protocol.read_answer(ask, result))
    }

    /// Reads the partial result from the error of a call.
    pub(crate) fn read_partial(self, error: &RpcError) -> Option<Json> {
        checkpoint::read_partial(error)
    }

    /// Returns `true` if a request of ours has the types that the protocol demands.
    pub(crate) fn is_proper(self, call: &Outgoing) -> bool {
        // The schema of an action may allow any JSON as its input.
        call.is_proper(matches!(self, Self::Tesseron(_)))
    }

    /// Checks that a peer with these capabilities can serve this; the error is the reason why not.
    pub(crate) fn check_call(self, call: &Outgoing, peer: &Capabilities) -> Result<(), Unfit> {
        delegate!(self, protocol => protocol.check_call(call.op, call.custom_method(), peer))
    }

    pub(crate) fn check_ask(self, ask: &Ask, peer: &Capabilities) -> Result<(), AskUnfit> {
        delegate!(self, protocol => protocol.check_ask(ask, peer))
    }

    pub(crate) fn check_notice(self, notice: &Notice, own: &Capabilities) -> Result<(), Unfit> {
        match self {
            Self::Mcp(protocol) => protocol.check_notice(notice, own),
            Self::Tesseron(protocol) => protocol.check_notice(notice),
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

    /// The `result` of a handshake request that the owner answers; `None` if the protocol has no such owner.
    pub(crate) fn welcome(self, welcome: &tesseron::Welcome, local: &LocalEnd<'_>) -> Option<Json> {
        match self {
            Self::Mcp(_) => None,
            Self::Tesseron(protocol) => Some(protocol.welcome(welcome, local)),
        }
    }

    /// Writes the notification that an agent has claimed the session.
    pub(crate) fn write_claimed(self, frames: &mut FrameBuffer, at_millis: u64, local: &LocalEnd<'_>) -> Option<WrittenFrame> {
        match self {
            Self::Mcp(_) => None,
            Self::Tesseron(protocol) => Some(protocol.write_claimed(frames, at_millis, local)),
        }
    }

    pub(crate) fn write_call(self, frames: &mut FrameBuffer, id: u64, call: &Outgoing, observed: bool, depth: u8) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_call(frames, id, call, observed, depth),
            // On Tesseron every call is observed; depth and `_meta` have no place.
            Self::Tesseron(protocol) => protocol.write_call(frames, id, call),
        }
    }

    /// Writes an input request. `parent` is the peer's id of the call that it belongs to.
    pub(crate) fn write_ask(self, frames: &mut FrameBuffer, id: u64, ask: &Ask, parent: &WireId, depth: u8) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_ask(frames, id, ask, parent, depth),
            Self::Tesseron(protocol) => protocol.write_ask(frames, id, ask, parent),
        }
    }

    /// Returns `true` if the protocol has a cancel for such a call.
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

    /// Writes a reply. `token` is the peer's progress token of the call.
    pub(crate) fn write_reply(
        self,
        frames: &mut FrameBuffer,
        id: &WireId,
        token: Option<&WireId>,
        op: Op,
        reply: &Reply,
        partial: Option<&Json>,
    ) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_reply(frames, id, op, reply, partial),
            Self::Tesseron(protocol) => protocol.write_reply(frames, id, token, op, reply, partial),
        }
    }

    /// The reply to a call that was cut short by us.
    pub(crate) fn cut_short(self, op: Op, why: CutShort, partial: Option<&Json>) -> Reply {
        match self {
            Self::Mcp(protocol) => protocol.cut_short(op, why, partial),
            Self::Tesseron(protocol) => protocol.cut_short(why, partial),
        }
    }

    pub(crate) fn write_answer(self, frames: &mut FrameBuffer, id: &WireId, answer: &Answer) -> WrittenFrame {
        delegate!(self, protocol => protocol.write_answer(frames, id, answer))
    }

    pub(crate) fn write_result(self, frames: &mut FrameBuffer, id: &WireId, result: &Json) -> WrittenFrame {
        frames.response(id, result.as_bytes().len(), |out| crate::json::write::push_json(out, result.as_bytes()))
    }

    pub(crate) fn write_error(self, frames: &mut FrameBuffer, id: Option<&WireId>, error: &RpcError) -> WrittenFrame {
        frames.error(id, error)
    }

    /// Writes a log record. `invocation` is the peer's id of the call that it is about.
    pub(crate) fn write_log(self, frames: &mut FrameBuffer, record: &LogRecord, invocation: Option<&WireId>) -> WrittenFrame {
        match self {
            Self::Mcp(protocol) => protocol.write_log(frames, record),
            Self::Tesseron(protocol) => protocol.write_log(frames, record, invocation),
        }
    }

    pub(crate) fn write_notice(self, frames: &mut FrameBuffer, notice: &Notice) -> WrittenFrame {
        delegate!(self, protocol => protocol.write_notice(frames, notice))
    }

    // The errors that the session answers with; their codes differ by protocol.

    pub(crate) fn too_deep(self, depth: u8, max: u8) -> RpcError {
        delegate!(self, protocol => protocol.too_deep(depth, max))
    }

    pub(crate) fn busy(self, closing: bool) -> RpcError {
        delegate!(self, protocol => protocol.busy(closing))
    }

    /// The answer to an input request of a call that is over.
    pub(crate) fn call_is_over(self) -> RpcError {
        delegate!(self, protocol => protocol.call_is_over())
    }

    /// The answer to an input request that names no call of ours.
    pub(crate) fn no_such_call(self) -> RpcError {
        delegate!(self, protocol => protocol.no_such_call())
    }

    /// The answer to a message that is not allowed yet.
    pub(crate) fn too_early(self, what: EarlyMessage) -> RpcError {
        delegate!(self, protocol => protocol.too_early(what))
    }
}

/// The data of an error about a sampling that is nested too deep: `{depth, max}`.
#[must_use]
pub fn depth_data(depth: u8, max: u8) -> Json {
    crate::json::write::Object::value(|object| {
        object.integer("depth", depth.into());
        object.integer("max", max.into());
    })
}

/// Shortens text of the peer to what identifies it, for messages of ours.
fn excerpt(said: &str) -> String {
    said.chars().take(64).collect()
}

/// The verdict on a result as the result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultFit {
    Fits,
    /// It breaks a rule, and is usable all the same.
    Tolerated,
    Wrong,
}

/// A message that is unknown and not listed in the configuration: it is ignored, and breaks no rule.
fn ignored_message() -> Message {
    Message::Reject { violation: None, answer: None }
}

/// Returns `true` if the owner has listed a method.
fn lists(listed: &[String], method: &str) -> bool {
    listed.iter().any(|one| one == method)
}

/// The reason why a request or a notice cannot be sent to this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The peer did not declare the capability.
    Unsupported,
    /// Only the other end may send it.
    WrongEnd,
}

/// The reason why an input request cannot be sent to this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskUnfit {
    /// The peer did not declare the capability.
    Unsupported,
    /// The protocol forbids its shape.
    Invalid(String),
}
