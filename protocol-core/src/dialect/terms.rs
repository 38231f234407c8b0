//! The terms that all dialects share: capabilities, input requests, answers, replies, progress and notifications.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Elicit, Icon, OpenUrl, OpenUrlResult};
use crate::error::RpcError;
use crate::json::{Json, Text};

/// The name and version of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The name, for programs.
    pub name: String,
    /// The version, in any form.
    pub version: String,
    /// The title, for people. Sent on MCP 2025-06-18 and later, and on Tesseron. On Tesseron the name is sent if the title is missing.
    pub title: Option<String>,
    /// The address of a page about it, for people. As `icons`, it is sent on MCP 2025-11-25 and later, where this end introduces itself: in
    /// a handshake, and in the answer to `server/discover`.
    pub website: Option<String>,
    /// Its icons.
    pub icons: Vec<Icon>,
}

impl Identity {
    /// An identity without a title, a website and icons.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), title: None, website: None, icons: Vec::new() }
    }
}

/// The capabilities of one end. A client declares those marked *Client* and a server those marked *Server*; the others stay `false`. On
/// Tesseron the gateway is the client, and the app the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Client: answers sampling requests.
    pub sampling: bool,
    /// Client: answers sampling requests with tools (MCP 2025-11-25 and later).
    pub sampling_tools: bool,
    /// Client: answers elicitation in form mode, which includes confirmations.
    pub elicitation: bool,
    /// Client: answers elicitation in URL mode (MCP 2025-11-25 and later).
    pub elicitation_url: bool,
    /// Client: lists its roots.
    pub roots: bool,
    /// Client: announces changes of its roots.
    pub roots_list_changed: bool,
    /// Server: has tools.
    pub tools: bool,
    /// Server: announces changes of its tools.
    pub tools_list_changed: bool,
    /// Server: has prompts.
    pub prompts: bool,
    /// Server: announces changes of its prompts.
    pub prompts_list_changed: bool,
    /// Server: has resources.
    pub resources: bool,
    /// Server: supports subscriptions to resources.
    pub resources_subscribe: bool,
    /// Server: announces changes of its resources.
    pub resources_list_changed: bool,
    /// Server: completes arguments.
    pub completions: bool,
    /// Server: sends log records.
    pub logging: bool,
}

impl Capabilities {
    /// These capabilities, and sampling.
    #[must_use]
    pub const fn with_sampling(mut self) -> Self {
        self.sampling = true;
        self
    }

    /// These capabilities, and elicitation in form mode.
    #[must_use]
    pub const fn with_elicitation(mut self) -> Self {
        self.elicitation = true;
        self
    }

    /// These capabilities, and elicitation in URL mode.
    #[must_use]
    pub const fn with_elicitation_url(mut self) -> Self {
        self.elicitation_url = true;
        self
    }

    /// These capabilities, and roots.
    #[must_use]
    pub const fn with_roots(mut self) -> Self {
        self.roots = true;
        self
    }
}

/// The peer: its identity, its revision and its current capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The name and version of the peer.
    pub identity: Identity,
    /// The revision of MCP that was agreed on or that a stateless request named, such as `2025-11-25`; on Tesseron the version that the
    /// peer named.
    pub protocol: Text,
    /// The capabilities that the peer declared, without those for which [`Capabilities`] has no field.
    pub capabilities: Capabilities,
    /// The capabilities that the peer declared, verbatim: a JSON object. If the peer is a Tesseron app, the parameters of its hello or
    /// resume, without secrets.
    pub declared: Json,
    /// A server's description of itself, for the model; on Tesseron the description of an app.
    pub instructions: Option<Text>,
    /// The credentials that a Tesseron gateway gave to its app. MCP has none.
    pub credentials: Option<SessionCredentials>,
}

impl PeerInfo {
    /// The settings, a JSON object, with which the peer declared the extension `identifier` (MCP 2026-07-28, Extensions). `None` if the
    /// peer did not declare the extension.
    #[must_use]
    pub fn extension(&self, identifier: &str) -> Option<Json> {
        self.declared.member("extensions")?.member(identifier).filter(Json::is_object)
    }
}

/// The credentials that a Tesseron gateway gives to an app. With them the app can resume its session, and an agent can claim the session
/// (Tesseron specification, pages "Handshake" and "Resume").
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCredentials {
    /// The id of the session. It stays the same when the session is resumed on another channel.
    pub session_id: Text,
    /// The claim code, which a person reads off the app and gives to an agent; `None` once the session is claimed.
    pub claim_code: Option<Text>,
    /// The token that resumes the session. It is secret, and can be used once.
    pub resume_token: Option<Text>,
}

impl fmt::Debug for SessionCredentials {
    /// Hides the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCredentials").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Run a tool; on Tesseron an action.
    CallTool,
    /// List the tools.
    ListTools,
    /// Get a prompt.
    GetPrompt,
    /// List the prompts.
    ListPrompts,
    /// Read a resource.
    ReadResource,
    /// List the resources.
    ListResources,
    /// List the resource templates.
    ListResourceTemplates,
    /// Subscribe to changes of a resource.
    Subscribe,
    /// End a subscription.
    Unsubscribe,
    /// Complete an argument.
    Complete,
    /// Set the level of the least severe log record that the peer sends.
    SetLogLevel,
    /// Ping the peer. A ping is never cancelled. If no response comes in time, the call times out, and [`crate::Violation::PingUnanswered`]
    /// is reported.
    Ping,
    /// Listen for notifications, until the subscription ends (MCP 2026-07-28).
    Listen,
    /// A method outside the protocol.
    Custom,
}

impl Op {
    /// Returns `true` for a request that stays open until the subscription ends. Such a request reports no progress and has no deadline.
    pub(crate) const fn is_subscription(self) -> bool {
        matches!(self, Self::Listen)
    }

    /// Returns `true` for a ping. A ping may be sent before the handshake is done, is never cancelled, causes no input request, and has a
    /// violation of its own for a missing response.
    pub(crate) const fn is_ping(self) -> bool {
        matches!(self, Self::Ping)
    }
}

/// An input request: a request of a callee to its caller while a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputRequest {
    /// Sampling: ask the caller's model.
    Sample(Box<Sample>),
    /// Elicitation in form mode: ask the caller's user to fill in a form.
    Elicit(Elicit),
    /// Elicitation in URL mode: ask the caller's user to open a URL (MCP 2025-11-25 and later).
    OpenUrl(Box<OpenUrl>),
    /// Confirmation: ask the caller's user for yes or no. An error reply counts as no. The caller receives a confirmation as
    /// [`InputRequest::Elicit`] with a form without fields.
    Confirm {
        /// The message for the user.
        message: String,
    },
    /// Roots: ask for the folders that the caller works in.
    Roots,
}

impl InputRequest {
    /// The capabilities that a caller must declare to receive this input request.
    #[must_use]
    pub fn required_capabilities(&self) -> Capabilities {
        let mut required = Capabilities::default();
        match self {
            Self::Sample(sample) => {
                required.sampling = true;
                let has = |name| sample.params.as_ref().is_some_and(|params| params.member(name).is_some());
                required.sampling_tools = has("tools") || has("toolChoice");
            }
            Self::Elicit(_) | Self::Confirm { .. } => required.elicitation = true,
            Self::OpenUrl(_) => required.elicitation_url = true,
            Self::Roots => required.roots = true,
        }
        required
    }

    /// Returns `true` if a user, who can decline or make no decision, gives the answer.
    pub(crate) fn can_be_declined(&self) -> bool {
        matches!(self, Self::Elicit(_) | Self::OpenUrl(_) | Self::Confirm { .. })
    }
}

impl From<Sample> for InputRequest {
    fn from(sample: Sample) -> Self {
        Self::Sample(Box::new(sample))
    }
}

impl From<OpenUrl> for InputRequest {
    fn from(open: OpenUrl) -> Self {
        Self::OpenUrl(Box::new(open))
    }
}

/// A sampling request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// The prompt. In a sampling request that arrives on MCP, the content of all messages, joined by line feeds: blocks that are not text
    /// are included as JSON.
    pub prompt: String,
    /// The maximum length of the answer, in tokens. If it is `None`, 1024 is sent on MCP, which demands a number.
    pub max_tokens: Option<u64>,
    /// The JSON Schema that the answer's text should fit. MCP has no field for a schema, so the schema becomes part of the prompt.
    pub schema: Option<Json>,
    /// The exact parameters. They are always set in a sampling request that arrives. If they are set in a request to send, the other fields
    /// are ignored.
    pub params: Option<Json>,
}

impl Sample {
    /// A request with one user message.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }
}

/// The answer to an [`InputRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputResponse {
    /// The answer to [`InputRequest::Sample`].
    Sample(SampleResult),
    /// The answer to [`InputRequest::Elicit`].
    Elicit(ElicitResult),
    /// The answer to [`InputRequest::OpenUrl`].
    OpenUrl(OpenUrlResult),
    /// The answer to [`InputRequest::Confirm`], as the callee gets it. The caller gives an [`InputResponse::Elicit`].
    Confirm(bool),
    /// The answer to [`InputRequest::Roots`]: an array of `{uri, name?}`.
    Roots(Json),
    /// The caller refuses to answer, with this error. The callee gets [`crate::InputFailed::Refused`], or for [`InputRequest::Confirm`] a
    /// no. A retry (MCP 2026-07-28) cannot contain an error: for elicitation the retry says that the user made no decision, and for
    /// sampling and roots the refusal ends the call.
    Refused(RpcError),
}

/// A model's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleResult {
    /// The text. Blocks of content that are not text are included as JSON.
    pub text: String,
    /// The name of the model.
    pub model: String,
    /// The exact result. It is always set in an answer that arrives. If it is set in an answer to send, the other fields are ignored.
    pub result: Option<Json>,
}

impl SampleResult {
    /// An answer that is text.
    #[must_use]
    pub fn new(text: impl Into<String>, model: impl Into<String>) -> Self {
        Self { text: text.into(), model: model.into(), result: None }
    }
}

/// A user's answer to a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElicitResult {
    /// The form, filled in.
    Accept(Json),
    /// The user declined.
    Decline,
    /// The user made no decision.
    Cancel,
}

/// One update of progress. Any of its members may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The current value, which must be higher in each update. If this end reports a value that is not higher, only the message and the
    /// data of the update count. For such an update of the peer, see [`ProgressPolicy::accept_equal`](crate::ProgressPolicy::accept_equal).
    /// A value that this end reports must be at least 0.
    pub value: Option<f64>,
    /// The value at the end of the work, if it is known. A later update may change or omit it.
    pub total: Option<f64>,
    /// The current step, for people.
    pub message: Option<Text>,
    /// Any data for programs. On MCP the data is sent in `_meta["protocol-core/data"]`.
    pub data: Option<Json>,
}

impl Progress {
    /// An update with the value `current` of `total`.
    #[must_use]
    pub fn step(current: u64, total: u64) -> Self {
        Self { value: Some(current as f64), total: Some(total as f64), ..Self::default() }
    }

    /// An update with the value `percent` of 100.
    #[must_use]
    pub fn percent(percent: f64) -> Self {
        Self { value: Some(percent), total: Some(100.0), ..Self::default() }
    }

    /// An update with a value, without a total.
    #[must_use]
    pub fn value(value: f64) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    /// An update with a message, without a value.
    #[must_use]
    pub fn message(message: impl Into<Text>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }

    /// Adds a total.
    #[must_use]
    pub const fn with_total(mut self, total: f64) -> Self {
        self.total = Some(total);
        self
    }

    /// Adds a message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Text>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds data.
    #[must_use]
    pub fn with_data(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }
}

/// The severity of a log record, in rising order, with the names of RFC 5424.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    /// Every level, least severe first.
    pub const ALL: [Self; 8] =
        [Self::Debug, Self::Info, Self::Notice, Self::Warning, Self::Error, Self::Critical, Self::Alert, Self::Emergency];

    /// The name in MCP: the variant's name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// The level with the name `name`; `None` if there is no such level.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One log record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRecord {
    /// The severity.
    pub level: Level,
    /// The name of the part of the program that logged the record.
    pub logger: Option<Text>,
    /// The content, any JSON.
    pub data: Json,
}

impl LogRecord {
    /// A record without a logger.
    #[must_use]
    pub const fn new(level: Level, data: Json) -> Self {
        Self { level, logger: None, data }
    }

    /// Sets [`LogRecord::logger`].
    #[must_use]
    pub fn with_logger(mut self, logger: impl Into<Text>) -> Self {
        self.logger = Some(logger.into());
        self
    }
}

/// A notification that belongs to no call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// The tools of the server changed.
    ToolsChanged,
    /// The current actions of a Tesseron app: an array.
    Actions(Json),
    /// The current resources of a Tesseron app: an array.
    Resources(Json),
    /// The prompts of the server changed.
    PromptsChanged,
    /// The resources of the server changed.
    ResourcesChanged,
    /// A subscribed resource changed.
    ResourceUpdated {
        /// The URI of the resource.
        uri: Text,
    },
    /// The new value of a subscribed resource. To a peer of MCP that has made a handshake, this notification is sent as
    /// [`Notification::ResourceUpdated`], without the value. The subscriptions of MCP 2026-07-28 do not include this notification: publish
    /// `ResourceUpdated` instead ([`Session::publish`](crate::Session::publish)).
    ResourceValue {
        /// The name of the subscription. Ignored on MCP.
        subscription: Text,
        /// The URI of the resource. Empty on arrival, since Tesseron sends only the name of the subscription.
        uri: Text,
        /// The new value.
        value: Json,
    },
    /// The server has ended the subscription (MCP 2026-07-28): no notification of a change follows until this end subscribes again. This
    /// notification cannot be sent.
    SubscriptionEnded,
    /// The roots of the client changed.
    RootsChanged,
    /// The user has finished at a URL (MCP 2025-11-25). The session does not check an `id` that arrives: ignore unknown ids.
    ElicitationComplete {
        /// The id of the [`OpenUrl`].
        id: Text,
    },
    /// A notification outside the protocol. One that arrives becomes an event only if
    /// [`Config::custom_notifications`](crate::Config::custom_notifications) lists its method.
    Custom {
        /// The method.
        method: Text,
        /// The parameters.
        params: Option<Json>,
    },
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;

    use super::*;
    use crate::dialect::Sample;

    /// A regression: a sampling request with `toolChoice` and without `tools` was refused for lack of the capability `sampling_tools`, but
    /// [`InputRequest::required_capabilities`] did not contain that capability.
    #[test]
    fn sampling_with_tools_or_a_tool_choice_requires_the_capability_for_tools() {
        let needs_tools = |params: &str| {
            let sample = Sample { params: Some(Json::parse(params.to_owned()).unwrap()), ..Sample::new("?") };
            InputRequest::Sample(sample.into()).required_capabilities().sampling_tools
        };
        assert_eq!([r#"{"tools":[]}"#, r#"{"toolChoice":{}}"#, r#"{"maxTokens":1}"#].map(needs_tools), [true, true, false]);
    }
}
