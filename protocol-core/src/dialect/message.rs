//! The contract between a dialect and the session: what a frame means, and what the session must know of a protocol.

use alloc::vec::Vec;

use crate::dialect::{Ask, Level, LogRecord, Notice, Op, PeerInfo, Progress};
use crate::error::{RpcError, Violation};
use crate::json::{Json, Text};
use crate::wire::WireId;

/// What one message of the peer means.
#[derive(Debug)]
pub(crate) enum Message {
    /// The peer opens the handshake.
    Greeting {
        id: WireId,
        greeting: Result<Greeting, RpcError>,
    },
    /// The peer has seen our half of the handshake.
    Greeted,
    /// Are we there?
    Ping {
        id: WireId,
    },
    /// Send log records from this level on.
    SetLevel {
        id: WireId,
        level: Level,
    },
    /// Something to be served.
    Request {
        id: WireId,
        op: Op,
        params: Json,
        token: Option<WireId>,
        depth: u8,
    },
    /// A question of a callee. `parent` is the exchange of ours that it names; `depth` is what it says of itself.
    Ask {
        id: WireId,
        ask: Ask,
        parent: Option<u64>,
        depth: u8,
    },
    /// The end of an exchange of ours.
    Response {
        id: WireId,
        body: ResponseBody,
    },
    /// Progress on an exchange of ours.
    Progress {
        token: WireId,
        progress: Progress,
        partial: Option<Json>,
    },
    /// Stop serving.
    Cancel {
        id: WireId,
        reason: Option<Text>,
    },
    Log(LogRecord),
    Notice(Notice),
    /// Nothing to act on: a broken rule, an error to answer with, or both.
    Reject {
        violation: Option<Violation>,
        answer: Option<(Option<WireId>, RpcError)>,
    },
}

/// What the end of an exchange says, before anybody knows what it was about.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Result(Json),
    Error(RpcError),
    Malformed,
}

/// The peer's half of the handshake, and our answer to it.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) peer: PeerInfo,
    /// The `result` that answers it, if the peer waits for one.
    pub(crate) answer: Json,
}

/// Why a handshake failed on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GreetingFailed {
    Malformed,
    Version,
}

/// What differs between protocols and is a matter of state. The session reads it and never asks which protocol it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// We speak first.
    pub(crate) opens: bool,
    /// Our requests wait until the peer has confirmed the handshake, not only until we have answered it.
    pub(crate) waits_for_confirmation: bool,
    /// A question that is no longer wanted is taken back by a cancel; otherwise both sides forget it.
    pub(crate) cancels_questions: bool,
    /// What was read before the end of input is still answered.
    pub(crate) answers_after_eof: bool,
    /// Frames that cannot be read are answered with an error without an id.
    pub(crate) answers_garbage: bool,
    /// An update without a value goes out as it is. Otherwise it waits for the next increase.
    pub(crate) lone_messages: bool,
    /// What goes over the wire is a share of a hundred.
    pub(crate) percent: bool,
    /// An equal value with a message is an update with only a message.
    pub(crate) accepts_equal: bool,
}

/// Messages of one frame.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the large one is the common one, and lives on the stack for a moment")]
pub(crate) enum Messages {
    One(Message),
    Many(Vec<Message>),
}
