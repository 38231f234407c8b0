//! Tesseron 1.2, both ends: the app, which has actions and resources, and the gateway, which calls them for an agent.
//!
//! The session uses the terms of MCP: an action is a tool, its input is the arguments, and the name of a resource is its uri.

mod app_id;
pub mod bind;
mod manifest;
mod read;
mod write;

pub use manifest::{action, resource};

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::dialect::form::{self, Fields};
use crate::dialect::message::Confirmation;
use crate::dialect::{Ask, AskUnfit, Capabilities, Dialect, Identity, Notice, Op, Rules, Unfit};
use crate::json::{Json, Text};

pub use app_id::{AppId, AppIdError};

/// The version of the protocol that this crate speaks.
pub const VERSION: &str = "1.2.0";

/// The codes of the errors that only Tesseron has (errors page).
pub mod code {
    /// No major version is common to both ends.
    pub const PROTOCOL_MISMATCH: i64 = -32000;
    /// The call was cancelled.
    pub const CANCELLED: i64 = -32001;
    /// The call took too long.
    pub const TIMEOUT: i64 = -32002;
    /// No such action, or no such resource.
    pub const ACTION_NOT_FOUND: i64 = -32003;
    /// The input does not fit the schema of the action.
    pub const INPUT_VALIDATION: i64 = -32004;
    /// The result does not fit its schema.
    pub const HANDLER_ERROR: i64 = -32005;
    /// The agent does not serve sampling.
    pub const SAMPLING_NOT_AVAILABLE: i64 = -32006;
    /// The agent does not serve elicitation.
    pub const ELICITATION_NOT_AVAILABLE: i64 = -32007;
    /// Sampling is nested too deep.
    pub const SAMPLING_TOO_DEEP: i64 = -32008;
    /// The session has had no hello, or is not claimed, or the named object is not its own.
    pub const UNAUTHORIZED: i64 = -32009;
    /// The channel ended first. Never on the wire.
    pub const TRANSPORT_CLOSED: i64 = -32010;
    /// The session cannot be resumed.
    pub const RESUME_FAILED: i64 = -32011;
}

/// An end of Tesseron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Runs actions. It opens the handshake.
    App(Box<App>),
    /// Calls actions for an agent.
    Gateway(GatewayConfig),
}

/// The description of an app in its hello, beside the id, the name and the other fields of [`Config`](crate::Config).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct App {
    /// The origin of the app; `unknown` if there is none.
    pub origin: String,
    /// The address of a picture of it.
    pub icon_url: Option<String>,
    /// Its actions: an array of `{name, description, inputSchema, ..}`.
    pub actions: Json,
    /// Its resources: an array of `{name, description, subscribable, ..}`.
    pub resources: Json,
    /// The session to resume, instead of a new one.
    pub resume: Option<ResumeCredentials>,
}

impl Default for App {
    /// An app without an origin, actions and resources.
    fn default() -> Self {
        let none = || Json::written(alloc::vec::Vec::from(*b"[]"));
        Self { origin: String::from("unknown"), icon_url: None, actions: none(), resources: none(), resume: None }
    }
}

impl App {
    /// Replaces the actions and the resources.
    #[must_use]
    pub fn with_manifest(self, actions: impl Iterator<Item = Json>, resources: impl Iterator<Item = Json>) -> Self {
        Self { actions: Json::array(actions), resources: Json::array(resources), ..self }
    }
}

/// The answer of a gateway to its app. The [`Identity`] of its configuration is that of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// The answer to every hello; no session is resumed then. `None`: the owner answers each hello and resume by
    /// [`crate::Session::welcome`].
    pub welcome: Option<Welcome>,
}

impl GatewayConfig {
    /// A gateway that answers every hello with `welcome`.
    #[must_use]
    pub const fn welcoming(welcome: Welcome) -> Self {
        Self { welcome: Some(welcome) }
    }
}

/// The identity of the agent as long as there is none (handshake page).
#[must_use]
pub fn pending_agent() -> Identity {
    Identity { name: String::from("pending"), version: String::new(), title: Some(String::from("Awaiting agent")) }
}

/// The credentials that resume a session (resume page).
#[derive(Clone, PartialEq, Eq)]
pub struct ResumeCredentials {
    /// The id of the session.
    pub session_id: Text,
    /// The token, which is secret and can be used once.
    pub resume_token: Text,
}

impl fmt::Debug for ResumeCredentials {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeCredentials").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The answer of a gateway to an app that it accepts.
#[derive(Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The id of the session, over every channel.
    pub session_id: Text,
    /// The token that resumes the session once.
    pub resume_token: Option<Text>,
    /// The claim of the session.
    pub standing: ClaimState,
}

impl fmt::Debug for Welcome {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The claim of a session when its app is accepted.
#[derive(Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// Unclaimed: an agent with this code may claim it, by [`crate::Session::claim`].
    Unclaimed {
        /// The code that a person tells the agent.
        claim_code: Text,
    },
    /// Claimed before its app was accepted: the gateway dialled it with its code. [`crate::Session::claim`] follows at once.
    Bound,
    /// Claimed on an earlier channel, and claimed again.
    Resumed,
}

impl fmt::Debug for ClaimState {
    /// Leaves the code out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclaimed { .. } => "Unclaimed",
            Self::Bound => "Bound",
            Self::Resumed => "Resumed",
        })
    }
}

/// One end of Tesseron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tesseron {
    App,
    Gateway,
}

impl Tesseron {
    /// The rules of this end.
    pub(crate) const fn rules(self) -> &'static Rules {
        static APP: Rules = Tesseron::App.build_rules();
        static GATEWAY: Rules = Tesseron::Gateway.build_rules();
        match self {
            Self::App => &APP,
            Self::Gateway => &GATEWAY,
        }
    }

    const fn is_app(self) -> bool {
        matches!(self, Self::App)
    }

    const fn build_rules(self) -> Rules {
        Rules {
            dialect: Dialect::Tesseron(self),
            opens: self.is_app(),
            confirmation: Confirmation::Owner,
            names_calls: true,
            answers_cancelled: true,
            cancels_input_requests: false,
            outlives_input: false,
            lane_bound: true,
            answers_unreadable: false,
            lone_messages: true,
            percent: true,
            accepts_equal: true,
        }
    }

    /// Checks a request of ours. `custom` is its method, if the protocol does not have it.
    pub(crate) fn check_call(self, op: Op, custom: Option<&str>, peer: &Capabilities) -> Result<(), Unfit> {
        match op {
            Op::Custom if custom.is_none_or(|method| is_ours(method) || op_of(method).is_some()) => Err(Unfit::WrongEnd),
            Op::Custom => Ok(()),
            // An app has no other request.
            _ if self.is_app() => Err(Unfit::WrongEnd),
            Op::CallTool | Op::ReadResource => Ok(()),
            Op::Subscribe | Op::Unsubscribe if peer.resources_subscribe => Ok(()),
            _ => Err(Unfit::Unsupported),
        }
    }

    /// Returns `true` for a call of an action: nothing else has a name to be cancelled by.
    pub(crate) fn is_cancellable(self, op: Op) -> bool {
        op == Op::CallTool
    }

    pub(crate) fn check_ask(self, ask: &Ask, peer: &Capabilities) -> Result<(), AskUnfit> {
        let supported = self.is_app()
            && match ask {
                Ask::Sample(_) => peer.sampling,
                Ask::Elicit(_) | Ask::Confirm { .. } => peer.elicitation,
                Ask::OpenUrl(_) | Ask::Roots => false,
            };
        match ask {
            _ if !supported => Err(AskUnfit::Unsupported),
            Ask::Elicit(asked) => form::check(&asked.schema, Fields::Plain).map_err(AskUnfit::Invalid),
            Ask::Sample(sample) => read::check_sample(sample).map_err(AskUnfit::Invalid),
            Ask::Confirm { .. } | Ask::OpenUrl(_) | Ask::Roots => Ok(()),
        }
    }

    pub(crate) fn check_notice(self, notice: &Notice) -> Result<(), Unfit> {
        match notice {
            Notice::Actions(_) | Notice::Resources(_) | Notice::ResourceValue { .. } if self.is_app() => Ok(()),
            Notice::Actions(_) | Notice::Resources(_) | Notice::ResourceValue { .. } => Err(Unfit::WrongEnd),
            Notice::Custom { method, .. } if is_ours(method) || op_of(method).is_some() => Err(Unfit::WrongEnd),
            Notice::Custom { .. } => Ok(()),
            _ => Err(Unfit::Unsupported),
        }
    }
}

/// The peer's name for an outbound call: the number of its exchange.
fn invocation_name(exchange: u64) -> String {
    alloc::format!("inv_{exchange}")
}

/// The exchange of ours that a name of the peer stands for; `None` for a name that we never gave.
fn named_exchange(name: &str) -> Option<u64> {
    let number = name.strip_prefix("inv_")?;
    let exchange: u64 = number.parse().ok()?;
    // `+5` and `05` parse, too, but we never wrote them.
    (invocation_name(exchange) == name).then_some(exchange)
}

/// The methods of the requests of a gateway.
const METHODS: [(&str, Op); 4] = [
    ("actions/invoke", Op::CallTool),
    ("resources/read", Op::ReadResource),
    ("resources/subscribe", Op::Subscribe),
    ("resources/unsubscribe", Op::Unsubscribe),
];

fn op_of(method: &str) -> Option<Op> {
    METHODS.iter().find(|(name, _)| *name == method).map(|(_, op)| *op)
}

fn method_of(op: Op) -> &'static str {
    METHODS.iter().find(|(_, other)| *other == op).map_or("", |(method, _)| method)
}

/// Returns `true` for a method that the session sends by itself.
fn is_ours(method: &str) -> bool {
    matches!(
        method,
        "tesseron/hello"
            | "tesseron/resume"
            | "tesseron/bind"
            | "tesseron/claimed"
            | "actions/cancel"
            | "actions/progress"
            | "actions/list_changed"
            | "resources/updated"
            | "resources/list_changed"
            | "sampling/request"
            | "elicitation/request"
            | "log"
    )
}

/// The major number of a version, read as the reference implementation does: text without a number counts as 0 (handshake page, "Version
/// negotiation").
fn major(version: &str) -> u64 {
    let digits = version.split('.').next().unwrap_or_default().trim_start();
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Returns `true` for a version that we speak. Everything that minor versions add may be ignored.
fn is_compatible(version: &str) -> bool {
    major(version) == major(VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_major_number_alone() {
        for version in ["1.2.0", "1", "1.0.0", "1.9", "1.2.0-rc", "1.x"] {
            assert!(is_compatible(version), "{version}");
        }
        for version in ["", "v1.2", "2", "2.0.0", "0.9", ".1", "-1", "10.0", "one"] {
            assert!(!is_compatible(version), "{version}");
        }
    }

    #[test]
    fn only_names_that_we_gave_name_an_exchange() {
        assert_eq!(named_exchange(&invocation_name(17)), Some(17));
        for name in ["", "inv_", "inv_017", "inv_+17", "inv_17 ", "INV_17", "17", "inv_99999999999999999999"] {
            assert_eq!(named_exchange(name), None, "{name}");
        }
    }
}
