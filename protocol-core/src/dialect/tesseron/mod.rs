//! Tesseron 1.2, both ends. Tesseron is a JSON-RPC protocol by which a running app offers actions and resources to AI agents. A *gateway*
//! calls the actions and reads the resources on behalf of an agent.
//!
//! The session uses the terms of MCP: an action is a tool, its input is the arguments, and the name of a resource is its URI.

mod app_id;
pub mod bind;
mod manifest;
mod read;
mod rules;
mod write;

pub use manifest::{action, resource, value};

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::dialect::{Identity, Op};
use crate::json::{Json, Text};

pub use app_id::{AppId, AppIdError};

/// The version of the protocol that this crate speaks.
pub const VERSION: &str = "1.2.0";

/// The codes of the errors that only Tesseron has (page "Errors" of its specification).
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
    /// The result of the action, or the answer to one of its input requests, does not fit its schema.
    pub const HANDLER_ERROR: i64 = -32005;
    /// The agent does not serve sampling.
    pub const SAMPLING_NOT_AVAILABLE: i64 = -32006;
    /// The agent does not serve elicitation.
    pub const ELICITATION_NOT_AVAILABLE: i64 = -32007;
    /// Sampling is nested too deep.
    pub const SAMPLING_TOO_DEEP: i64 = -32008;
    /// There was no hello, or the session is not claimed, or the request names no active call of this session, or a bind is refused.
    pub const UNAUTHORIZED: i64 = -32009;
    /// The channel ended before the response. This code is never sent on the channel; a bridge sends it to its agent.
    pub const TRANSPORT_CLOSED: i64 = -32010;
    /// The session cannot be resumed.
    pub const RESUME_FAILED: i64 = -32011;
}

/// An end of Tesseron, with its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that runs actions, and opens the handshake.
    App(Box<App>),
    /// The end that calls actions on behalf of an agent.
    Gateway(GatewayConfig),
}

/// The description of an app in its hello, in addition to the fields of [`Config`](crate::Config).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct App {
    /// The origin of the app; `unknown` if there is none.
    pub origin: String,
    /// The URL of the app's icon.
    pub icon_url: Option<String>,
    /// The actions: an array of `{name, description, inputSchema, ..}`.
    pub actions: Json,
    /// The resources: an array of `{name, description, subscribable, ..}`.
    pub resources: Json,
    /// The credentials of the session to resume; `None` to begin a new session.
    pub resume: Option<ResumeCredentials>,
}

impl Default for App {
    /// An app of unknown origin, without actions and resources.
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

/// The configuration of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// The answer to every hello; every request to resume a session is then refused. If it is `None`, the owner answers each hello and each
    /// resume with [`crate::Session::welcome`].
    pub welcome: Option<Welcome>,
}

impl GatewayConfig {
    /// A gateway that answers every hello with `welcome`.
    #[must_use]
    pub const fn welcoming(welcome: Welcome) -> Self {
        Self { welcome: Some(welcome) }
    }
}

/// The identity that stands for the agent before the session is claimed (Tesseron specification, page "Handshake").
#[must_use]
pub fn pending_agent() -> Identity {
    Identity { title: Some(String::from("Awaiting agent")), ..Identity::new("pending", "") }
}

/// The credentials that resume a session (Tesseron specification, page "Resume").
#[derive(Clone, PartialEq, Eq)]
pub struct ResumeCredentials {
    /// The id of the session.
    pub session_id: Text,
    /// The token that resumes the session. It is secret, and can be used once.
    pub resume_token: Text,
}

impl fmt::Debug for ResumeCredentials {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeCredentials").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The answer of a gateway to a hello or a resume that it accepts.
#[derive(Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The id of the session. It stays the same when the session is resumed on another channel.
    pub session_id: Text,
    /// The token with which the app can resume the session once; `None` if it cannot.
    pub resume_token: Option<Text>,
    /// The state of the session's claim.
    pub claim_state: ClaimState,
}

impl fmt::Debug for Welcome {
    /// Hides the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The state of a session's claim when its app is accepted.
#[derive(Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// The session is not claimed. An agent that is given the claim code may claim the session ([`crate::Session::claim`]).
    Unclaimed {
        /// The claim code, which a person reads off the app and gives to an agent.
        claim_code: Text,
    },
    /// The session was claimed before its app was accepted: the gateway has connected with the app's claim code. Call
    /// [`crate::Session::claim`] next.
    Bound,
    /// The session was claimed on an earlier channel, and is claimed again.
    Resumed,
}

impl fmt::Debug for ClaimState {
    /// Hides the code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unclaimed { .. } => "Unclaimed",
            Self::Bound => "Bound",
            Self::Resumed => "Resumed",
        })
    }
}

/// The dialect of one end of Tesseron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tesseron {
    App,
    Gateway,
}

impl Tesseron {
    const fn is_app(self) -> bool {
        matches!(self, Self::App)
    }

    /// Returns `true` for a call of an action. No other request has a name, and a cancel must name its call.
    pub(crate) fn is_cancellable(self, op: Op) -> bool {
        op == Op::CallTool
    }
}

/// The name of an outbound call (`invocationId`), made from the number of its exchange.
fn invocation_name(exchange: u64) -> String {
    alloc::format!("inv_{exchange}")
}

/// The number of the exchange of the call with this name; `None` if the name cannot be one of ours.
fn named_exchange(name: &str) -> Option<u64> {
    let number = name.strip_prefix("inv_")?;
    let exchange: u64 = number.parse().ok()?;
    // `+5` and `05` parse as 5, but only `inv_5` is a name of ours.
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

/// Returns `true` for a method of the protocol that is not in [`METHODS`]. A custom message may have neither such a method nor one of
/// [`METHODS`].
fn is_reserved(method: &str) -> bool {
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

/// The major number of a version. As in the reference implementation, text without a number counts as 0 (page "Handshake", section "Version
/// negotiation").
fn major(version: &str) -> u64 {
    let digits = version.split('.').next().unwrap_or_default().trim_start();
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Returns `true` for a version that we speak: one with our major number.
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
    fn only_names_that_we_gave_identify_an_exchange() {
        assert_eq!(named_exchange(&invocation_name(17)), Some(17));
        for name in ["", "inv_", "inv_017", "inv_+17", "inv_17 ", "INV_17", "17", "inv_99999999999999999999"] {
            assert_eq!(named_exchange(name), None, "{name}");
        }
    }
}
