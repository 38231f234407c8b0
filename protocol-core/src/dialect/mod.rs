//! Between JSON-RPC envelopes and what they mean in one protocol. Knows strings and shapes, and no state.
//!
//! [`Dialect`] is an enum, not a trait: the set of protocols is closed, the revision is chosen at run time, and the compiler lists
//! what a further one has to answer.

mod blocks;
mod checkpoint;
mod form;
pub mod mcp;
mod message;
mod params;
mod terms;
pub mod tesseron;

use bytes::Bytes;

use crate::error::RpcError;
use crate::json::{Json, Text};
use crate::limits::Limits;
use crate::wire::{Draft, Frames, WireId};

pub use blocks::Blocks;
pub(crate) use message::{
    Change, Confirmation, Greeting, GreetingAnswer, GreetingFailed, GreetingRefused, Message, ResponseBody, Rules,
};
pub use params::Params;
pub use terms::{
    Answer, Ask, Capabilities, Content, Elicit, Elicited, Identity, Level, LogRecord, NotFound, Notice, Op, Pass, PeerInfo,
    Progress, Reply, Sample, Sampled, ToolOutput,
};

/// Which protocol a session speaks, and as which of its ends.
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

/// The parts of a configuration that a dialect writes and checks against.
pub(crate) struct LocalEnd<'a> {
    /// The name that the peer is told.
    pub(crate) identity: &'a Identity,
    /// The capabilities that the peer is told.
    pub(crate) capabilities: Capabilities,
    /// The instructions of a server, the description of an app.
    pub(crate) instructions: Option<&'a str>,
    /// The bounds of a frame.
    pub(crate) limits: Limits,
    /// Whether progress that repeats the last value is taken (MCP).
    pub(crate) accepts_equal: bool,
}

/// How an invocation was cut short, in the words of its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutShort {
    /// By the peer, where it waits for an answer.
    Cancelled,
    Deadline,
    Closing,
}

/// The protocol of a session, with the revision that was agreed on.
#[derive(Clone, Debug)]
pub(crate) enum Dialect {
    Mcp(mcp::Mcp),
    Tesseron(tesseron::Tesseron),
}

/// Hands a call on to the protocol that is spoken; the next one is an arm more.
macro_rules! delegate {
    ($self:ident, $protocol:ident => $call:expr) => {
        match $self {
            Dialect::Mcp($protocol) => $call,
            Dialect::Tesseron($protocol) => $call,
        }
    };
}

impl Dialect {
    pub(crate) fn new(protocol: &Protocol, local: &LocalEnd<'_>) -> Self {
        match protocol {
            Protocol::Mcp { side, newest } => Self::Mcp(mcp::Mcp::new(*side, *newest, local)),
            Protocol::Tesseron(end) => Self::Tesseron(tesseron::Tesseron::new(end.clone(), local)),
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        delegate!(self, protocol => protocol.rules())
    }

    // From the peer.

    pub(crate) fn read(&self, frame: &Bytes) -> Message {
        delegate!(self, protocol => protocol.read(frame))
    }

    /// Reads the answer to [`Self::write_greeting`]; on success the revision is agreed.
    pub(crate) fn read_greeting_answer(&self, result: &Json) -> Result<PeerInfo, GreetingFailed> {
        delegate!(self, protocol => protocol.read_greeting_answer(result))
    }

    /// From here on the revision that `peer` speaks is spoken.
    pub(crate) fn agree(&mut self, peer: &PeerInfo) {
        match self {
            Self::Mcp(protocol) => protocol.agree(peer),
            // There is one version of it.
            Self::Tesseron(_) => {}
        }
    }

    /// Whether a result can be the one of this operation, as far as the protocol says.
    pub(crate) fn fit(&self, exchange: u64, op: &Op, result: &Json) -> Fit {
        delegate!(self, protocol => protocol.fit(exchange, op, result))
    }

    /// How many bytes of a frame the operation takes beside its parameters, at the most.
    pub(crate) fn envelope_size(&self, op: &Op) -> usize {
        delegate!(self, protocol => protocol.envelope_size(op))
    }

    /// Reads the answer to a question of ours. What is wrong with it, if it has the wrong shape.
    pub(crate) fn read_answer(&self, ask: &Ask, result: &Json) -> Result<Answer, Text> {
        delegate!(self, protocol => protocol.read_answer(ask, result))
    }

    /// What the error of a call tells of its partial result.
    pub(crate) fn read_partial(&self, error: &RpcError) -> Option<Json> {
        checkpoint::read_partial(error)
    }

    /// Whether a peer with these capabilities can be asked for this. Says why not.
    pub(crate) fn check_op(&self, op: &Op, peer: &Capabilities) -> Result<(), Unfit> {
        delegate!(self, protocol => protocol.check_op(op, peer))
    }

    pub(crate) fn check_ask(&self, ask: &Ask, peer: &Capabilities) -> Result<(), AskUnfit> {
        delegate!(self, protocol => protocol.check_ask(ask, peer))
    }

    pub(crate) fn check_notice(&self, notice: &Notice) -> Result<(), Unfit> {
        delegate!(self, protocol => protocol.check_notice(notice))
    }

    // To the peer.

    pub(crate) fn write_greeting(&self, frames: &mut Frames, id: u64) -> Draft {
        delegate!(self, protocol => protocol.write_greeting(frames, id))
    }

    /// What follows a handshake that went well, if anything does.
    pub(crate) fn write_greeted(&self, frames: &mut Frames) -> Option<Draft> {
        match self {
            Self::Mcp(protocol) => protocol.write_greeted(frames),
            Self::Tesseron(_) => None,
        }
    }

    /// The `result` of a greeting that the owner answers. `None` where no owner does.
    pub(crate) fn welcome(&self, welcome: &tesseron::Welcome) -> Option<Json> {
        match self {
            Self::Mcp(_) => None,
            Self::Tesseron(protocol) => Some(protocol.welcome(welcome)),
        }
    }

    /// From here on we speak for `agent`, where somebody does so.
    pub(crate) fn speak_for(&mut self, agent: Identity, capabilities: Capabilities) {
        match self {
            Self::Mcp(_) => {}
            Self::Tesseron(protocol) => protocol.speak_for(agent, capabilities),
        }
    }

    /// Tells the peer for whom we speak.
    pub(crate) fn write_claimed(&self, frames: &mut Frames, at_millis: u64) -> Option<Draft> {
        match self {
            Self::Mcp(_) => None,
            Self::Tesseron(protocol) => Some(protocol.write_claimed(frames, at_millis)),
        }
    }

    pub(crate) fn write_call(&self, frames: &mut Frames, id: u64, op: &Op, params: &Json, observed: bool, depth: u8) -> Draft {
        match self {
            Self::Mcp(protocol) => protocol.write_call(frames, id, op, params, observed, depth),
            // Every invocation is observed there, and depth has no place.
            Self::Tesseron(protocol) => protocol.write_call(frames, id, op, params),
        }
    }

    /// `parent` is what the peer calls the invocation that the question belongs to.
    pub(crate) fn write_ask(&self, frames: &mut Frames, id: u64, ask: &Ask, parent: &WireId, depth: u8) -> Draft {
        match self {
            Self::Mcp(protocol) => protocol.write_ask(frames, id, ask, parent, depth),
            Self::Tesseron(protocol) => protocol.write_ask(frames, id, ask, parent),
        }
    }

    /// Whether the peer can be told that a call of this kind is given up.
    pub(crate) fn is_cancellable(&self, op: &Op) -> bool {
        delegate!(self, protocol => protocol.is_cancellable(op))
    }

    pub(crate) fn write_cancel(&self, frames: &mut Frames, id: u64, reason: Option<&str>) -> Draft {
        match self {
            Self::Mcp(protocol) => protocol.write_cancel(frames, id, reason),
            Self::Tesseron(protocol) => protocol.write_cancel(frames, id),
        }
    }

    pub(crate) fn write_progress(&self, frames: &mut Frames, token: &WireId, progress: &Progress, partial: Option<&Json>) -> Draft {
        match self {
            Self::Mcp(protocol) => protocol.write_progress(frames, token, progress, partial),
            Self::Tesseron(protocol) => protocol.write_progress(frames, token, progress, partial),
        }
    }

    /// `token` is what the peer calls the progress of the invocation.
    pub(crate) fn write_reply(
        &self,
        frames: &mut Frames,
        id: &WireId,
        token: Option<&WireId>,
        op: &Op,
        reply: &Reply,
        partial: Option<&Json>,
    ) -> Draft {
        match self {
            Self::Mcp(protocol) => protocol.write_reply(frames, id, op, reply, partial),
            Self::Tesseron(protocol) => protocol.write_reply(frames, id, token, op, reply, partial),
        }
    }

    /// The reply to an invocation that is cut short on our side.
    pub(crate) fn cut_short(&self, op: &Op, why: CutShort, partial: Option<&Json>) -> Reply {
        match self {
            Self::Mcp(protocol) => protocol.cut_short(op, why, partial),
            Self::Tesseron(protocol) => protocol.cut_short(why, partial),
        }
    }

    pub(crate) fn write_answer(&self, frames: &mut Frames, id: &WireId, answer: &Answer) -> Draft {
        delegate!(self, protocol => protocol.write_answer(frames, id, answer))
    }

    pub(crate) fn write_result(&self, frames: &mut Frames, id: &WireId, result: &Json) -> Draft {
        frames.response(id, result.as_bytes().len(), |out| crate::json::write::push_json(out, result.as_bytes()))
    }

    pub(crate) fn write_error(&self, frames: &mut Frames, id: Option<&WireId>, error: &RpcError) -> Draft {
        frames.error(id, error)
    }

    /// `invocation` is what the peer calls the invocation on whose behalf it is logged.
    pub(crate) fn write_log(&self, frames: &mut Frames, record: &LogRecord, invocation: Option<&WireId>) -> Draft {
        match self {
            Self::Mcp(protocol) => protocol.write_log(frames, record),
            Self::Tesseron(protocol) => protocol.write_log(frames, record, invocation),
        }
    }

    pub(crate) fn write_notice(&self, frames: &mut Frames, notice: &Notice) -> Draft {
        delegate!(self, protocol => protocol.write_notice(frames, notice))
    }

    // Errors that the session answers with; their numbers are the protocol's.

    pub(crate) fn too_deep(&self, depth: u8, max: u8) -> RpcError {
        delegate!(self, protocol => protocol.too_deep(depth, max))
    }

    pub(crate) fn busy(&self, closing: bool) -> RpcError {
        delegate!(self, protocol => protocol.busy(closing))
    }

    /// The answer to a question of the peer whose call is over.
    pub(crate) fn call_is_over(&self) -> RpcError {
        delegate!(self, protocol => protocol.call_is_over())
    }

    /// The answer to a question of the peer that names no call of ours.
    pub(crate) fn no_such_call(&self) -> RpcError {
        delegate!(self, protocol => protocol.no_such_call())
    }

    /// The answer to what may not come yet.
    pub(crate) fn too_early(&self, why: &'static str) -> RpcError {
        delegate!(self, protocol => protocol.too_early(why))
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

/// What the peer wrote, as far as it is needed to recognise it: no more of it goes into what is said of it.
fn shown(said: &str) -> alloc::string::String {
    said.chars().take(64).collect()
}

/// Whether a result can be the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Fits,
    /// It breaks a rule, and is of use all the same.
    Odd,
    Wrong,
}

/// Why something cannot be asked of this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Not with what it declared.
    Unsupported,
    /// Not from this end.
    WrongEnd,
}

/// Why a question cannot be asked of this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskUnfit {
    /// Not with what it declared.
    Unsupported,
    /// The protocol forbids its shape.
    Invalid(alloc::string::String),
}
