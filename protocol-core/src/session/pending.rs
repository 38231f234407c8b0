//! A call of ours whose peer has asked for input, to be kept and continued later (MCP 2026-07-28, Multi Round-Trip Requests).

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::types::Invoke;
use crate::dialect::{Dialect, Level, Outgoing};
use crate::json::Json;

/// A call of ours between two rounds: its request, the newest round, and the answers to it so far. It can be serialized with serde_json,
/// and continued in another session with the same server, also in another process
/// ([`Session::resume_input`](crate::Session::resume_input)).
///
/// The value contains the arguments of the call and the answers of the user, and is all that is needed to continue the call. Store it as a
/// secret. The server decides how long the state in the newest round is valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingInput {
    method: String,
    params: Json,
    /// The number of sampling requests that the call is nested in.
    depth: u8,
    /// `true` if the peer is asked for progress.
    observed: bool,
    /// The level of log records that the call asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_level: Option<String>,
    /// The number of rounds so far, at least 1.
    rounds: u8,
    /// The result that asks for input.
    round: Json,
    /// The answers to `round` so far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    answers: BTreeMap<String, Json>,
}

impl PendingInput {
    pub(super) fn new(
        dialect: Dialect,
        request: &Outgoing,
        depth: u8,
        observed: bool,
        rounds: u8,
        round: Json,
        answers: BTreeMap<String, Json>,
    ) -> Self {
        let (method, params) = dialect.request_parts(request);
        let log_level = request.log_level.map(|level| String::from(level.as_str()));
        Self { method: String::from(method), params, depth, observed, log_level, rounds, round, answers }
    }

    /// The call as it was made, without its time limits. `None` if the serialized value was changed, and its method now has no rounds or
    /// its log level is unknown.
    #[must_use]
    pub fn call(&self) -> Option<Invoke> {
        let call = Invoke::with_rounds(&self.method, self.params.clone(), self.depth, self.observed)?;
        match &self.log_level {
            None => Some(call),
            Some(level) => Level::from_name(level).map(|level| call.with_log_level(level)),
        }
    }

    pub(super) fn rounds(&self) -> u8 {
        self.rounds
    }

    pub(super) fn round(&self) -> &Json {
        &self.round
    }

    pub(super) fn answer(&self, name: &str) -> Option<&Json> {
        self.answers.get(name)
    }
}
