//! The terms that all dialects share: capabilities, input requests, answers, replies, progress and notices.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Blocks, Consent, Content, OpenUrl, Page};
use crate::error::RpcError;
use crate::json::{Json, Text};

/// A name and a version, of us or of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The name, for programs.
    pub name: String,
    /// The version, in any form.
    pub version: String,
    /// The name for people. Sent from MCP 2025-06-18 on.
    pub title: Option<String>,
}

impl Identity {
    /// An identity without a title.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), title: None }
    }
}

/// The capabilities of one end. Each end declares its own half and leaves the other half `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Client: answers sampling.
    pub sampling: bool,
    /// Client: answers sampling that brings tools (2025-11-25).
    pub sampling_tools: bool,
    /// Client: answers elicitation by form, and so confirmation.
    pub elicitation: bool,
    /// Client: asks its user to open addresses (2025-11-25).
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
    /// Server: lets resources be subscribed.
    pub resources_subscribe: bool,
    /// Server: announces changes of its resources.
    pub resources_list_changed: bool,
    /// Server: completes arguments.
    pub completions: bool,
    /// Server: sends log records.
    pub logging: bool,
}

/// The peer: its identity, its revision and its current capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// Its name and version.
    pub identity: Identity,
    /// The agreed revision of the protocol, as it is written on the wire.
    pub protocol: Text,
    /// The capabilities that it declared, typed.
    pub capabilities: Capabilities,
    /// The capabilities that it declared, verbatim.
    pub declared: Json,
    /// A server's description of itself, for the model; on Tesseron the description of an app.
    pub instructions: Option<Text>,
    /// The credentials that outlive the channel, as a Tesseron gateway gave them to its app. MCP has none.
    pub credentials: Option<SessionCredentials>,
}

/// The credentials of an app, which resume its session and let an agent claim it (Tesseron, handshake and resume).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCredentials {
    /// The id of the session, which stays the same over every channel.
    pub session_id: Text,
    /// The code that a person tells the agent to claim the session; `None` once it is claimed.
    pub claim_code: Option<Text>,
    /// The token that resumes the session once. Secret.
    pub resume_token: Option<Text>,
}

impl fmt::Debug for SessionCredentials {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCredentials").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The kind of a request, which is all that an exchange keeps of it.
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
    /// Set the least severe log record that the peer sends.
    SetLogLevel,
    /// Ask for a sign of life. Never cancelled. Without a response in time it is also a [`crate::Violation::PingUnanswered`].
    Ping,
    /// A method that the protocol does not have.
    Custom,
}

impl Op {
    /// Returns `true` for a ping, which is sent in every phase, is never cancelled, causes no input request, and has a violation of its
    /// own for a missing response.
    pub(crate) const fn is_probe(self) -> bool {
        matches!(self, Self::Ping)
    }
}

/// A callee's input request to its caller while it serves a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// Ask the caller's model.
    Sample(Box<Sample>),
    /// Ask the caller's user to fill in a form.
    Elicit(Elicit),
    /// Ask the caller's user to open an address (MCP 2025-11-25).
    OpenUrl(Box<OpenUrl>),
    /// Ask the caller's user for a yes. Every fault counts as a no. It arrives as [`Ask::Elicit`] with an empty form.
    Confirm {
        /// The text that the user is shown.
        message: String,
    },
    /// Ask for the folders that the caller works in.
    Roots,
}

impl From<Sample> for Ask {
    fn from(sample: Sample) -> Self {
        Self::Sample(Box::new(sample))
    }
}

/// A request for a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// The prompt; on arrival the texts of all messages, joined by line feeds.
    pub prompt: String,
    /// The longest answer, in tokens. `None` sends 1024 if the protocol demands a number.
    pub max_tokens: Option<u64>,
    /// The JSON Schema that the answer's text should follow. MCP has no place for it, and gets it as a part of the prompt; Tesseron has
    /// one.
    pub schema: Option<Json>,
    /// The parameters exactly as they are on the wire: always set on arrival; on sending they replace everything above.
    pub params: Option<Json>,
}

impl Sample {
    /// A request with one user message.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), ..Self::default() }
    }
}

/// A form for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elicit {
    /// The text that the user is shown.
    pub message: String,
    /// A JSON Schema: a flat object of primitives (MCP elicitation page, "Requested Schema").
    pub schema: Json,
}

impl Elicit {
    /// A form with the schema `schema`.
    #[must_use]
    pub fn new(message: impl Into<String>, schema: Json) -> Self {
        Self { message: message.into(), schema }
    }

    /// Returns `true` if the form has no field, so that it only asks for yes or no.
    #[must_use]
    pub fn is_confirmation(&self) -> bool {
        self.schema.member("properties").is_none_or(|properties| {
            crate::json::read::Members::of(properties.as_bytes()).is_none_or(|mut fields| fields.next().is_none())
        })
    }
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// For [`Ask::Sample`].
    Sample(Sampled),
    /// For [`Ask::Elicit`].
    Elicit(Elicited),
    /// For [`Ask::OpenUrl`].
    OpenUrl(Consent),
    /// For [`Ask::Confirm`], to the callee only; a caller answers with [`Answer::Elicit`].
    Confirm(bool),
    /// For [`Ask::Roots`]: the array of `{uri, name?}`.
    Roots(Json),
    /// The caller refuses to answer, for a reason. Given by a caller; the callee receives [`crate::InputFailed::Refused`].
    Refused(RpcError),
}

/// A model's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sampled {
    /// The text; content of another kind as its JSON.
    pub text: String,
    /// The name of the model.
    pub model: String,
    /// The result exactly as it is on the wire: always set on arrival; on sending it replaces everything above.
    pub result: Option<Json>,
}

impl Sampled {
    /// An answer of text.
    #[must_use]
    pub fn new(text: impl Into<String>, model: impl Into<String>) -> Self {
        Self { text: text.into(), model: model.into(), result: None }
    }
}

/// A user's answer to a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elicited {
    /// The form, filled in.
    Accept(Json),
    /// The user declined.
    Decline,
    /// The user closed the form.
    Cancel,
}

/// The reply to an inbound call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The exact `result`. On MCP it must be an object.
    Raw(Json),
    /// A tool's output, shaped by the dialect.
    Tool(ToolOutput),
    /// Success without a value.
    Done,
    /// The contents of a resource, shaped by the dialect: an array of `{uri, mimeType?, text | blob}`.
    Contents(Json),
    /// A page of the requested list.
    Page(Page),
    /// Values for an argument.
    Completion(Completion),
    /// The tool or the resource does not exist here.
    NotFound(NotFound),
    /// A protocol error.
    Error(RpcError),
}

/// Values for an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The best ones first. Of more than 100 the first 100 are sent, and the peer is told that there are more.
    pub values: Vec<String>,
    /// The number of all values, if it is known.
    pub total: Option<u64>,
    /// `true` if there are more values than these.
    pub has_more: bool,
}

impl Completion {
    /// All the values that there are.
    pub fn all<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), total: None, has_more: false }
    }
}

/// A name or an address that does not exist here, as the peer wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotFound {
    /// The name of a tool.
    Tool(Text),
    /// The uri of a resource.
    Resource(Text),
}

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The content for the model, in order.
    pub content: Blocks,
    /// The result for programs. MCP 2025-06-18 and later.
    pub structured: Option<Json>,
    /// `true` if the tool failed. On MCP a failure is a result, so that the model can read it and try again.
    pub is_error: bool,
    /// The failure for programs, on protocols where a failure is an error (Tesseron). `None` sends an internal error with the text.
    pub fault: Option<Box<RpcError>>,
}

impl ToolOutput {
    /// One block of text.
    #[must_use]
    pub fn text(text: impl Into<Text>) -> Self {
        Self { content: Content::Text(text.into()).into(), ..Self::default() }
    }

    /// Several blocks, kept in order.
    #[must_use]
    pub fn blocks(content: impl IntoIterator<Item = Content>) -> Self {
        Self { content: content.into_iter().collect(), ..Self::default() }
    }

    /// Structured content, and the same JSON as one block of text for clients that read only text.
    #[must_use]
    pub fn structured(value: Json) -> Self {
        let mut output = Self::text(value.as_str());
        output.structured = Some(value);
        output
    }

    /// A failure with a message for the model.
    #[must_use]
    pub fn error(message: impl Into<Text>) -> Self {
        let mut output = Self::text(message);
        output.is_error = true;
        output
    }

    /// A failure with an error code of its own, for protocols that send it. The model reads the message.
    #[must_use]
    pub fn fault(error: RpcError) -> Self {
        let mut output = Self::error(error.message.clone());
        output.fault = Some(Box::new(error));
        output
    }
}

/// One progress update. Any of its members may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The position. It only increases. At least 0 when we send it.
    pub value: Option<f64>,
    /// The end of the scale, if it is known. It may change or vanish from one update to the next.
    pub total: Option<f64>,
    /// The current step, for people.
    pub message: Option<Text>,
    /// Anything else, for programs. On MCP it travels in `_meta["protocol-core/data"]`.
    pub data: Option<Json>,
}

impl Progress {
    /// The position `current` of `total`.
    #[must_use]
    pub fn count(current: u64, total: u64) -> Self {
        Self { value: Some(current as f64), total: Some(total as f64), ..Self::default() }
    }

    /// The position `percent` of 100.
    #[must_use]
    pub fn percent(percent: f64) -> Self {
        Self { value: Some(percent), total: Some(100.0), ..Self::default() }
    }

    /// A position without a known total.
    #[must_use]
    pub fn value(value: f64) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    /// A message without a position.
    #[must_use]
    pub fn message(message: impl Into<Text>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
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

/// The severity of a log record, least severe first (RFC 5424 names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
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

    /// The name on the wire, which is the name in lower case.
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

    /// The level of that name.
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
pub struct LogRecord {
    /// The severity.
    pub level: Level,
    /// The part of the program that it is from.
    pub logger: Option<Text>,
    /// The content, any JSON.
    pub data: Json,
}

/// News that belong to no call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
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
        /// The uri of the resource.
        uri: Text,
    },
    /// The new value of a subscribed resource. On MCP it is sent as [`Notice::ResourceUpdated`], without the value.
    ResourceValue {
        /// The subscriber's name for the subscription. MCP has no such name.
        subscription: Text,
        /// The uri of the resource. Empty on arrival: Tesseron names only the subscription.
        uri: Text,
        /// The new value.
        value: Json,
    },
    /// The roots of the client changed.
    RootsChanged,
    /// The user has finished at an address (MCP 2025-11-25). On arrival `id` may be any; ignore one that you do not wait for.
    ElicitationComplete {
        /// The id of the [`OpenUrl`].
        id: Text,
    },
    /// A notification that the protocol does not have. On arrival only those that [`Config`](crate::Config) lists.
    Custom {
        /// The method.
        method: Text,
        /// The parameters.
        params: Option<Json>,
    },
}
