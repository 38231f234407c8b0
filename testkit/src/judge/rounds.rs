//! Input rounds in frames (MCP 2026-07-28, Multi Round-Trip Requests): the results of the peer that ask for input, and the retries of this
//! end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

use protocol_core::PendingInput;
use serde_json::Value;

use super::fact::Fact;
use super::reading::Read;

/// The requests that may be answered with a round, and the rounds that have no retry yet. When judges are compared, only `asked` is
/// compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// The requests of ours that may be answered with a round, and that were neither answered nor cancelled: by id, in the form of
    /// [`request_of`]. A frame in which the session has found a violation may be no response, or be ignored, even if it has the id of a
    /// request. So its request is kept until another response, the retry or the end of the call.
    open: BTreeMap<u64, String>,
    /// The calls of retries, by the ids of the retries.
    calls: BTreeMap<u64, u64>,
    /// The rounds that have no retry yet. Only one of those of one call is the round that the session has taken.
    asked: Vec<Round>,
    /// The number of answers to the last round of each call.
    answered: BTreeMap<u64, usize>,
}

/// The state of a call between two exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// An input request of the round has no answer.
    Asked,
    /// The round had no input request, so the retry waits for a moment.
    Delayed,
    /// The retry is in the outbox.
    Written,
}

impl PartialEq for Rounds {
    fn eq(&self, other: &Self) -> bool {
        self.asked == other.asked
    }
}

impl Eq for Rounds {}

impl Hash for Rounds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.asked.hash(state);
    }
}

/// A round that has no retry yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Round {
    call: u64,
    /// The request that was answered with the round, in the form of [`request_of`].
    request: String,
    state: Option<String>,
    /// The names of its input requests.
    names: BTreeSet<String>,
}

impl Round {
    /// The round of `call` for which `frame` is the retry.
    fn of_retry(frame: &Value, call: u64) -> Self {
        let params = &frame["params"];
        Self {
            call,
            request: request_of(frame),
            state: params.get("requestState").map(Value::to_string),
            names: names(&params["inputResponses"]),
        }
    }
}

/// The method and the parameters of a request, without the members that its retry may change.
fn request_of(frame: &Value) -> String {
    let mut params = frame["params"].clone();
    if let Some(params) = params.as_object_mut() {
        ["_meta", "inputResponses", "requestState"].iter().for_each(|name| drop(params.remove(*name)));
    }
    format!("{} {params}", frame["method"])
}

fn names(object: &Value) -> BTreeSet<String> {
    object.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

/// Returns `true` for a request that may be answered with a round.
pub(super) fn has_rounds(frame: &Value) -> bool {
    ["tools/call", "prompts/get", "resources/read"].iter().any(|method| frame["method"] == *method)
}

/// Returns `true` for a result that asks for input.
pub(super) fn is_round(frame: &Value) -> bool {
    frame["result"]["resultType"] == "input_required"
}

impl Rounds {
    /// The call to which the exchange with this number belongs.
    pub(super) fn call_of(&self, id: u64) -> u64 {
        self.calls.get(&id).copied().unwrap_or(id)
    }

    /// The call of which `frame` is a retry.
    pub(super) fn call_of_retry(&self, frame: &Value) -> Option<u64> {
        self.index_of_retried(frame).map(|at| self.asked[at].call)
    }

    /// The state of a call whose last round has no retry yet.
    pub(super) fn between(&self, call: u64) -> Option<Between> {
        let round = self.asked.iter().find(|round| round.call == call)?;
        let answered = self.answered.get(&call).copied().unwrap_or_default();
        Some(match round.names.len() {
            0 => Between::Delayed,
            asked if answered < asked => Between::Asked,
            _ => Between::Written,
        })
    }

    /// Notes an answer to an input request that belongs to a call.
    pub(super) fn answer(&mut self, call: u64) {
        *self.answered.entry(call).or_default() += 1;
    }

    /// The index of the round for which `frame` is the retry.
    fn index_of_retried(&self, frame: &Value) -> Option<usize> {
        self.asked.iter().position(|round| *round == Round::of_retry(frame, round.call))
    }

    /// Returns `true` if `frame` is the retry of a round.
    pub(super) fn has_retried(&self, frame: &Value) -> bool {
        self.index_of_retried(frame).is_some()
    }

    /// The rounds that have no retry yet, for a message.
    pub(super) fn asked(&self) -> &impl fmt::Debug {
        &self.asked
    }

    /// Adds a call that was kept between two rounds, with the answers that it already has.
    pub(super) fn resume(&mut self, call: u64, pending: &PendingInput) {
        let kept = serde_json::to_value(pending).unwrap_or_default();
        let (round, answers) = (&kept["round"], &kept["answers"]);
        let state = round.get("requestState").map(Value::to_string);
        self.asked.push(Round { call, request: request_of(&kept), state, names: names(&round["inputRequests"]) });
        self.answered.insert(call, names(answers).len());
    }

    /// Ends a call; returns its exchanges.
    pub(super) fn end(&mut self, call: u64) -> Vec<u64> {
        self.close(call);
        self.answered.remove(&call);
        let all = self.calls.iter().filter(|(_, of)| **of == call).map(|(id, _)| *id);
        all.chain([call]).collect()
    }

    /// Ends the open exchange of a call, and its rounds.
    fn close(&mut self, call: u64) {
        self.asked.retain(|round| round.call != call);
        let calls = &self.calls;
        self.open.retain(|id, _| calls.get(id).unwrap_or(id) != &call);
    }

    pub(super) fn enter(&mut self, fact: &Fact<'_>, read: Option<&Read<'_>>) {
        let Some(Read { value, .. }) = read else { return };
        if let (Fact::Sent { .. }, "notifications/cancelled") = (fact, value["method"].as_str().unwrap_or_default()) {
            // No retry follows a round that answers a cancelled request.
            self.open.remove(&value["params"]["requestId"].as_u64().unwrap_or_default());
        }
        let Some(id) = value["id"].as_u64() else { return };
        match fact {
            Fact::Sent { .. } if has_rounds(value) => {
                if let Some(call) = self.call_of_retry(value) {
                    self.close(call);
                    self.calls.insert(id, call);
                }
                self.open.insert(id, request_of(value));
            }
            Fact::Received { effect, .. } if value.get("method").is_none() => {
                let request = if effect.violated { self.open.get(&id).cloned() } else { self.open.remove(&id) };
                let Some(request) = request.filter(|_| is_round(value)) else { return };
                let result = &value["result"];
                let state = result.get("requestState").map(Value::to_string);
                let call = self.call_of(id);
                self.answered.remove(&call);
                self.asked.push(Round { call, request, state, names: names(&result["inputRequests"]) });
            }
            _ => {}
        }
    }
}

/// Returns `true` if a request has only the state and the answers in the parameters that its owner gave.
pub(super) fn has_only_given(frame: &Value, given: &Value) -> bool {
    let retried = Round::of_retry(frame, 0);
    retried.state == given.get("requestState").map(Value::to_string) && retried.names == names(&given["inputResponses"])
}
