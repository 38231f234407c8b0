//! The protocols: conversion between JSON-RPC envelopes and messages. All method names and message shapes are here, and no state.
//!
//! [`Dialect`] is an enum, not a trait: the set of protocols is closed, the revision is chosen at run time, and for a new protocol the
//! compiler lists every `match` to extend.

mod blocks;
mod caller;
mod checkpoint;
mod content;
mod description;
mod dispatch;
mod elicit;
mod form;
mod list;
pub mod mcp;
mod message;
mod open_url;
mod outgoing;
mod reply;
mod request;
mod round;
mod subscription;
mod terms;
pub mod tesseron;

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::json::Json;
use crate::limits::Limits;
use crate::wire::WireId;

pub use blocks::Blocks;
pub use caller::Caller;
pub(crate) use caller::KnownCaller;
pub use content::Content;
pub(crate) use description::write_meta_members;
pub use description::{Annotations, Icon, IconTheme, write_meta};
pub use elicit::{Elicit, NoDefault};
pub(crate) use list::list_of;
pub use list::{
    Page, PromptArgument, PromptInfo, PromptResult, PromptResultMessage, ResourceInfo, ResourceTemplateInfo, ToolInfo, ToolResult,
};
pub(crate) use mcp::RetryMembers;
pub(crate) use message::{
    EarlyMessage, HandshakeAnswer, HandshakeFailed, HandshakeRejected, HandshakeRequest, Message, PeerChange, ProbeVerdict,
    Refusal, RequestsStart, ResponseBody, Rules, StatelessCaller,
};
pub use open_url::{OpenUrl, OpenUrlResult};
pub(crate) use outgoing::{Outgoing, Parts, Stamp};
pub use reply::{Completion, NotFound, Reply, ToolOutput};
pub use request::{
    CallTool, Complete, CompletionOf, CompletionRequest, Custom, GetPrompt, List, Listen, ReadResource, Request, Subscribe,
    Unsubscribe,
};
pub use round::{InputRound, Retry};
pub use subscription::SubscriptionFilter;
pub use terms::{
    Capabilities, ElicitResult, Identity, InputRequest, InputResponse, Level, LogRecord, Notification, Op, PeerInfo, Progress,
    Sample, SampleResult, SessionCredentials,
};

/// The protocol that a session speaks, and the end of the protocol that the session is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The Model Context Protocol.
    Mcp {
        /// Client or server.
        side: mcp::Side,
        /// The newest revision to agree on in a handshake. Older revisions with a handshake are spoken, too. A revision without a
        /// handshake counts as [`mcp::Revision::NEWEST_LEGACY`]: [`Config::era`](crate::Config::era) alone determines whether this end
        /// speaks revisions without a handshake.
        newest: mcp::Revision,
    },
    /// Tesseron 1.2.
    Tesseron(tesseron::End),
}

/// The parts of a configuration that a dialect writes into frames, or needs in order to check frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalEnd<'a> {
    /// The protocol, and the end of the protocol that the session is.
    pub(crate) protocol: &'a Protocol,
    /// The name and version to send to the peer.
    pub(crate) identity: &'a Identity,
    /// The capabilities to declare to the peer.
    pub(crate) capabilities: &'a Capabilities,
    /// The extensions to declare to the peer: the settings of each, by the identifier of the extension.
    pub(crate) extensions: &'a BTreeMap<String, Json>,
    /// The instructions of a server, or the description of an app.
    pub(crate) instructions: Option<&'a str>,
    /// The members of `_meta` in the answer of a server that introduces itself.
    pub(crate) meta: &'a BTreeMap<String, Json>,
    /// The limits of the session.
    pub(crate) limits: &'a Limits,
    /// The revisions of MCP that are spoken.
    pub(crate) era: mcp::Era,
    /// The time for which a caller may cache results of a stateless server, and the permission to share them.
    pub(crate) cache: mcp::CacheHint,
    /// The methods outside the protocol whose requests become events.
    pub(crate) custom_methods: &'a [String],
    /// The notifications outside the protocol that become events.
    pub(crate) custom_notifications: &'a [String],
}

impl LocalEnd<'_> {
    /// The newest revision of MCP to agree on in a handshake.
    fn newest(&self) -> mcp::Revision {
        const NEWEST: mcp::Revision = mcp::Revision::NEWEST_LEGACY;
        if let Protocol::Mcp { newest, .. } = self.protocol { (*newest).min(NEWEST) } else { NEWEST }
    }

    /// The description of a Tesseron app.
    fn app(&self) -> Option<&tesseron::App> {
        if let Protocol::Tesseron(tesseron::End::App(app)) = self.protocol { Some(app) } else { None }
    }

    /// The answer of a Tesseron gateway to every hello. `None` if the owner of the gateway answers each hello.
    fn welcome(&self) -> Option<&tesseron::Welcome> {
        if let Protocol::Tesseron(tesseron::End::Gateway(gateway)) = self.protocol { gateway.welcome.as_ref() } else { None }
    }
}

/// The parts of a request that its reply needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    /// The peer's id of the exchange.
    pub(crate) id: &'a WireId,
    /// The peer's progress token; on Tesseron, the name of the call.
    pub(crate) token: Option<&'a WireId>,
    pub(crate) op: Op,
}

/// The reason why a call was cut short. It determines the reply, and the `status` of the checkpoint in the reply, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutShort {
    /// The peer cancelled the call, and expects a reply.
    Cancelled,
    Deadline,
    Closing,
}

/// One end of one protocol in one revision. Its methods read and write frames, and none changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Mcp(mcp::Mcp),
    Tesseron(tesseron::Tesseron),
}

/// The data of the error for sampling that is nested too deep: `{depth, max}`.
#[must_use]
pub fn depth_data(depth: u8, max: u8) -> Json {
    crate::json::write::Object::value(|object| {
        object.integer("depth", depth.into());
        object.integer("max", max.into());
    })
}

/// Shortens text of the peer to 64 characters, to quote it in messages of ours.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The verdict on the shape of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultFit {
    Fits,
    /// The result breaks a rule, but is usable.
    Tolerated,
    /// The result is a round of input requests; see [`Dialect::read_round`].
    AsksForInput,
    Wrong,
}

/// Returns `true` if a method is in the list.
fn lists(listed: &[String], method: &str) -> bool {
    listed.iter().any(|name| name == method)
}

/// The reason why a request or a notification cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The protocol or its revision does not have the request or the notification, or the capability for it was not declared: by the peer
    /// for a request, by this end for a notification.
    Unsupported,
    /// Only the other end may send the request or the notification, or the method of a custom message belongs to the protocol.
    WrongEnd,
}

/// The reason why an input request cannot be sent to this peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskUnfit {
    /// The peer did not declare the capability, the protocol or its revision does not have the input request, or this end may not send it.
    Unsupported,
    /// The protocol forbids the shape of the input request.
    Invalid(String),
}
