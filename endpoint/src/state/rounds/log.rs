//! The log of a call, and the state of its current run.

use core::time::Duration;

use protocol_core::dialect::{Capabilities, InputRequest, InputResponse, InputRound, Request, Retry};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::InboundId;
use serde::{Deserialize, Serialize};

use super::canonical::canonical;
use super::seal::{self, Digest, StateId, digest, encode};
use crate::ask_failed::AskFailed;

/// The longest sealed state, in bytes of text.
pub(crate) const MAX_STATE_BYTES: usize = 16 << 10;
/// The time that the caller has for one round.
const ROUND: Duration = Duration::from_secs(600);
/// The time that a call may take, from its first request to its last retry.
const WHOLE: Duration = Duration::from_secs(3600);
/// The tolerated difference between the clocks of two processes.
const SKEW: Duration = Duration::from_secs(30);

/// The log of a call, and the state of its current run.
#[derive(Debug, Default)]
pub(crate) struct RoundLog {
    past: Past,
    /// For each answer in the log, `true` if this run has used it.
    used_answers: Vec<bool>,
    /// For each effect in the log, `true` if this run has used its outcome.
    used_effects: Vec<bool>,
    /// The number of times that this run has made each input request, by the digest of the request.
    ask_counts: Vec<(String, u32)>,
    /// The number of times that this run has begun each effect, by the name of the effect.
    effect_counts: Vec<(String, u32)>,
    /// Input requests without an answer.
    open: Vec<Open>,
    /// The number of input requests that were opened in this run.
    opened: u64,
    /// Effects that are under way.
    running: Vec<String>,
    /// `true` if the handler needs a round even without an input request, since an effect waits for a sealed state
    /// (`Context::once_sealed`).
    needs_round: bool,
    /// `true` once the run has ended: nothing is added to the log any more.
    has_ended: bool,
    /// The id of the state in the request of this run, and all answers up to that request; `None` for a first request.
    request: Option<(StateId, Vec<Option<Json>>)>,
    /// The newer run that has replaced this one, if its request has the same state and answers.
    replacement: Option<InboundId>,
    /// The error that ends the request instead of a round.
    error: Option<RpcError>,
    /// The failure of an input request for which the caller lacks a capability.
    missing: Option<(AskFailed, Capabilities)>,
}

/// The part of a log that is sealed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Past {
    /// The id of the call, the same in all its requests: made from the key that the caller gave (`Service::call_key`), or random. Empty if
    /// there were no random bytes.
    invocation: String,
    rounds: u8,
    /// The sampling depth of the request that ended with the last round.
    depth: u8,
    /// The number of progress updates, log records and checkpoints of the last run.
    reports: u32,
    /// The last checkpoint, unless the state would be too long with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial: Option<Json>,
    /// The time at which the call began, in seconds since 1970.
    began: u64,
    /// The time after which the state is not accepted any more, in seconds since 1970.
    expires: u64,
    answers: Vec<PastAnswer>,
    effects: Vec<PastEffect>,
    /// The input requests of the last round.
    asked: Vec<PastAsk>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PastAnswer {
    /// The digest of the input request ([`Asking::digest`]).
    of: String,
    /// The number of equal input requests before it in a run.
    nth: u32,
    /// `None` if there was no answer in time.
    answer: Option<Json>,
    /// `true` if `answer` is only the part that the handler has kept.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    is_kept: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct PastEffect {
    name: String,
    nth: u32,
    outcome: Outcome,
}

/// The outcome of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Value(Json),
    Failed(String),
    Error { code: i64, message: String, data: Option<Json> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PastAsk {
    name: String,
    /// The digest of the input request ([`Asking::digest`]).
    of: String,
    nth: u32,
    /// The number of answers so far that had the wrong shape.
    misfits: u8,
    /// The time after which an answer comes too late, in seconds since 1970.
    until: Option<u64>,
}

/// An input request without an answer.
#[derive(Debug)]
struct Open {
    number: u64,
    ask: InputRequest,
    entry: PastAsk,
}

/// An input request of a handler, before its answer is looked up.
pub(crate) struct Asking {
    pub(crate) ask: InputRequest,
    /// The name of the answer, if the handler gave one.
    pub(crate) key: Option<Text>,
    pub(crate) within: Option<Duration>,
    /// The digest of its kind, name and parameters, and of whether the handler keeps only a part of the answer.
    digest: String,
}

/// An input request of a run, by its digest and the number of equal ones before it.
#[derive(Clone, Debug)]
pub(crate) struct AskPlace {
    of: String,
    nth: u32,
}

impl Asking {
    pub(crate) fn new(ask: InputRequest, key: Option<Text>, within: Option<Duration>, is_kept: bool) -> Self {
        let (method, params) = ask.method_and_params();
        let name = key.as_deref().unwrap_or_default();
        let kept = is_kept.then_some(b"kept".as_slice());
        let digest = digest([method.as_bytes(), name.as_bytes(), params.as_bytes()].into_iter().chain(kept));
        let digest = digest.first_chunk::<16>().map(|half| encode(half)).unwrap_or_default();
        Self { ask, key, within, digest }
    }
}

/// The step that follows an input request of a handler.
pub(crate) enum AskStep {
    /// Its answer is in the log.
    InputResponse(AskPlace, InputResponse),
    /// The part of its answer that the handler has kept is in the log.
    Kept(Json),
    Failed(AskFailed),
    /// It is open under this number, and will be sent in the round.
    Open(AskPlace, u64),
}

/// The step that follows the beginning of an effect.
pub(crate) enum EffectStep {
    /// The outcome of the effect is in the log.
    Done(Outcome),
    /// The effect has to run, with this key. It is the `nth` of its name, from 0.
    Run { key: String, nth: u32 },
    /// Another effect of the same name is under way.
    Busy,
    /// The key would be different after a repeated first request: a round must come first.
    NeedsRound,
    /// There were no random bytes for the key.
    NoKey,
}

/// The reply to a request whose handler waits for input.
pub(crate) enum RoundEnd {
    /// A round: its input requests, and the log to seal.
    Round {
        round: InputRound,
        log: Vec<u8>,
    },
    Error(RpcError),
}

/// A run of a handler whose request ends with a round.
pub(crate) struct RunEnd {
    /// The sampling depth of the call.
    pub(crate) depth: u8,
    /// The maximum number of rounds.
    pub(crate) most: u8,
    /// The number of progress updates, log records and checkpoints.
    pub(crate) reports: u32,
    /// The last checkpoint.
    pub(crate) partial: Option<Json>,
}

/// The error for every state that does not open, has expired, or belongs to another request.
pub(crate) fn not_accepted() -> RpcError {
    RpcError::fixed(RpcError::INVALID_PARAMS, "the state of this request is not accepted")
}

/// The digest of everything that a state is bound to.
pub(crate) fn bound_to(service: &str, version: &str, request: &Request, principal: Option<&str>) -> Digest {
    /// The members that may differ between a request and its retry.
    const OF_RETRIES: [&str; 3] = ["_meta", "inputResponses", "requestState"];
    let method = protocol_core::mcp::method_of(request.op());
    let target = request.target().unwrap_or_default();
    let params = canonical(request.params().as_bytes(), &OF_RETRIES);
    let parts = [service, version, method, &target].map(str::as_bytes).into_iter().chain([params.as_slice()]);
    digest(parts.chain(principal.map(str::as_bytes)))
}

impl RoundLog {
    /// The log of a new call.
    pub(crate) fn begin(invocation: Option<[u8; 16]>, now: Duration) -> Self {
        let invocation = invocation.map(|bytes| format!("{:032x}", u128::from_be_bytes(bytes))).unwrap_or_default();
        let past = Past { invocation, began: now.as_secs(), ..Past::default() };
        Self { past, ..Self::default() }
    }

    /// The log of a call after `retry`, whose state contained `log`. `None` if `log` cannot be read or has expired, or if its call began in
    /// the future.
    pub(crate) fn resume(log: &[u8], retry: &Retry, now: Duration) -> Option<Self> {
        let mut past: Past = serde_json::from_slice(log).ok()?;
        let (now, skew) = (now.as_secs(), SKEW.as_secs());
        if now > past.expires.saturating_add(skew) || now.saturating_add(skew) < past.began {
            return None;
        }
        for asked in core::mem::take(&mut past.asked) {
            let is_late = asked.until.is_some_and(|until| now > until);
            match retry.answer(&asked.name) {
                _ if is_late => past.answers.push(PastAnswer { of: asked.of, nth: asked.nth, answer: None, is_kept: false }),
                Some(answer) => {
                    past.answers.push(PastAnswer { of: asked.of.clone(), nth: asked.nth, answer: Some(answer), is_kept: false });
                    // If the answer has the wrong shape, the input request is opened again: with this name, number of misfits and time
                    // limit.
                    past.asked.push(asked);
                }
                None => past.asked.push(asked),
            }
        }
        let (used_answers, used_effects) = (vec![false; past.answers.len()], vec![false; past.effects.len()]);
        let given = past.answers.iter().map(|answer| answer.answer.clone()).collect();
        let request = retry.state().and_then(|state| StateId::of(state)).map(|state| (state, given));
        Some(Self { past, used_answers, used_effects, request, ..Self::default() })
    }

    // ---- Several runs of one call ----

    /// Returns `true` if both are logs of one call.
    pub(crate) fn is_of_the_call_of(&self, other: &Self) -> bool {
        self.past.invocation == other.past.invocation
    }

    /// Takes over the outcomes of effects that an older run has recorded, if its request had the same state and answers. With other
    /// answers, the handler may run other effects.
    pub(crate) fn take_over(&mut self, older: &Self) {
        if self.request != older.request {
            return;
        }
        for PastEffect { name, nth, outcome } in &older.past.effects {
            self.take_over_effect(name, *nth, outcome.clone());
        }
    }

    /// Takes over the outcome of an effect.
    pub(crate) fn take_over_effect(&mut self, name: &str, nth: u32, outcome: Outcome) {
        if !self.past.effects.iter().any(|effect| effect.name == name && effect.nth == nth) {
            self.past.effects.push(PastEffect { name: String::from(name), nth, outcome });
            self.used_effects.push(false);
        }
    }

    /// Ends this run, since the run `newer`, whose log is `log`, replaces it. If both requests had the same state and answers, `newer`
    /// takes over the outcome of the effect that is under way.
    pub(crate) fn replace_by(&mut self, newer: InboundId, log: &Self) {
        self.has_ended = true;
        self.replacement = (self.request == log.request).then_some(newer);
    }

    /// The newer run that takes over the outcomes of effects.
    pub(crate) fn replacement(&self) -> Option<InboundId> {
        self.replacement
    }

    /// The sampling depth of the previous request of the call.
    pub(crate) fn depth(&self) -> u8 {
        self.past.depth
    }

    /// The last checkpoint of the previous request of the call.
    pub(crate) fn partial(&self) -> Option<&Json> {
        self.past.partial.as_ref()
    }

    /// Returns `true` if the `nth` report of the handler (a progress update, log record or checkpoint) repeats one of the previous request:
    /// the previous request had at least `nth` of them, and entries of the log are still unused. The number is needed since a handler that
    /// takes another path may never use some entries.
    pub(crate) fn is_replaying(&self, nth: u32) -> bool {
        nth <= self.past.reports && self.used_answers.iter().chain(&self.used_effects).any(|used| !used)
    }

    // ---- Input requests ----

    /// Looks up the answer to an input request, and opens the input request if there is no answer. An answer of the wrong shape is removed,
    /// and the input request is opened again; the second such answer also ends the request with an error.
    pub(crate) fn ask(&mut self, asking: Asking, now: Duration) -> AskStep {
        if self.has_ended {
            return AskStep::Failed(AskFailed::Over);
        }
        let Asking { ask, key, within, digest: of } = asking;
        let nth = count(&mut self.ask_counts, &of);
        let misfits = match self.recorded(&of, nth) {
            None => self.past_ask(&of, nth).map_or(0, |asked| asked.misfits),
            Some((at, None)) => {
                note_used(&mut self.used_answers, at);
                return AskStep::Failed(AskFailed::TimedOut);
            }
            Some((at, Some(kept))) if self.past.answers.get(at).is_some_and(|answer| answer.is_kept) => {
                note_used(&mut self.used_answers, at);
                return AskStep::Kept(kept);
            }
            Some((at, Some(answer))) => match ask.read_answer(&answer) {
                Ok(answer) => {
                    note_used(&mut self.used_answers, at);
                    return AskStep::InputResponse(AskPlace { of, nth }, answer);
                }
                Err(why) => {
                    self.past.answers.remove(at);
                    self.used_answers.remove(at);
                    let misfits = self.past_ask(&of, nth).map_or(0, |asked| asked.misfits).saturating_add(1);
                    if misfits > 1 {
                        self.error = Some(RpcError::invalid_params(format!("an answer has the wrong shape: {why}")));
                    }
                    misfits
                }
            },
        };
        self.opened = self.opened.saturating_add(1);
        let number = self.opened;
        let before = self.past_ask(&of, nth);
        let until = before.map_or_else(|| within.map(|within| now.saturating_add(within).as_secs()), |asked| asked.until);
        let name = match (key, before) {
            (Some(key), _) => key.to_string(),
            (None, Some(before)) => before.name.clone(),
            (None, None) => self.free_name(),
        };
        if self.open.iter().any(|open| open.entry.name == name) {
            return AskStep::Failed(AskFailed::Invalid(format!("two open input requests have the name {name:?}")));
        }
        let place = AskPlace { of: of.clone(), nth };
        self.open.push(Open { number, ask, entry: PastAsk { name, of, nth, misfits, until } });
        AskStep::Open(place, number)
    }

    /// Replaces the answer to an input request by what the handler keeps of it.
    pub(crate) fn keep(&mut self, place: &AskPlace, kept: Json) {
        if let Some((at, _)) = self.recorded(&place.of, place.nth)
            && let Some(answer) = self.past.answers.get_mut(at)
        {
            (answer.answer, answer.is_kept) = (Some(kept), true);
        }
    }

    /// A name that is free: no open input request has it, and no input request of the last round whose time limit had not passed.
    fn free_name(&self) -> String {
        let is_taken =
            |name: &String| self.open.iter().map(|open| &open.entry).chain(&self.past.asked).any(|asked| asked.name == *name);
        (1_u64..).map(|number| format!("input-{number}")).find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// Removes an input request that its handler no longer waits for.
    pub(crate) fn forget(&mut self, number: u64) {
        self.open.retain(|open| open.number != number);
    }

    /// Notes that the caller lacks the capabilities for an input request.
    pub(crate) fn note_missing(&mut self, failed: &AskFailed, required: Capabilities) {
        self.missing = Some((failed.clone(), required));
    }

    /// The failure of an input request for which the caller lacks capabilities.
    pub(crate) fn missing(&self) -> Option<&(AskFailed, Capabilities)> {
        self.missing.as_ref()
    }

    fn recorded(&self, of: &str, nth: u32) -> Option<(usize, Option<Json>)> {
        let at = self.past.answers.iter().position(|answer| answer.of == of && answer.nth == nth)?;
        self.past.answers.get(at).map(|found| (at, found.answer.clone()))
    }

    fn past_ask(&self, of: &str, nth: u32) -> Option<&PastAsk> {
        self.past.asked.iter().find(|asked| asked.of == of && asked.nth == nth)
    }

    // ---- Effects ----

    /// Begins an effect. If `must_be_sealed`, a state of the call, which fixes the key of the effect, must have been sealed before. `None`
    /// once this run has ended, since the effect would not be in the log.
    pub(crate) fn begin_effect(&mut self, name: &str, must_be_sealed: bool) -> Option<EffectStep> {
        if self.has_ended {
            return None;
        }
        if self.running.iter().any(|running| running == name) {
            return Some(EffectStep::Busy);
        }
        if self.past.invocation.is_empty() {
            return Some(EffectStep::NoKey);
        }
        if must_be_sealed && self.past.rounds == 0 {
            self.needs_round = true;
            return Some(EffectStep::NeedsRound);
        }
        let nth = count(&mut self.effect_counts, name);
        if let Some(at) = self.past.effects.iter().position(|effect| effect.name == name && effect.nth == nth)
            && let Some(effect) = self.past.effects.get(at)
        {
            note_used(&mut self.used_effects, at);
            return Some(EffectStep::Done(effect.outcome.clone()));
        }
        self.running.push(String::from(name));
        let place = self.effect_counts.iter().position(|(begun, _)| begun == name).unwrap_or_default();
        Some(EffectStep::Run { key: seal::effect_key(&self.past.invocation, name, place, nth), nth })
    }

    /// Ends an effect. `outcome` is `None` if the effect was cancelled or dropped. Returns `true` if the request must end before its
    /// handler does: its reply may have waited for this effect.
    pub(crate) fn end_effect(&mut self, name: &str, nth: u32, outcome: Option<Outcome>) -> bool {
        self.running.retain(|running| running != name);
        if let Some(outcome) = outcome {
            self.past.effects.push(PastEffect { name: String::from(name), nth, outcome });
            self.used_effects.push(true);
        }
        self.is_waiting()
    }

    /// Returns `true` while an effect is under way.
    pub(crate) fn is_in_effect(&self) -> bool {
        !self.running.is_empty()
    }

    // ---- The end of the request ----

    /// Returns `true` if the request must end before its handler does.
    fn is_waiting(&self) -> bool {
        !self.open.is_empty() || self.needs_round || self.error.is_some()
    }

    /// Returns `true` if the handler waits for input and no effect is under way, so that the request can end.
    pub(crate) fn can_end(&self) -> bool {
        !self.is_in_effect() && self.is_waiting()
    }

    /// Ends the run and returns the reply to the request.
    pub(crate) fn end_run(&mut self, run: RunEnd, now: Duration) -> RoundEnd {
        let RunEnd { depth, most, reports, partial } = run;
        self.has_ended = true;
        if let Some(error) = self.error.take() {
            return RoundEnd::Error(error);
        }
        if self.past.rounds >= most {
            return RoundEnd::Error(RpcError::fixed(RpcError::INTERNAL, "the tool asked for input in too many rounds"));
        }
        let mut round = InputRound::new();
        let mut asked = Vec::with_capacity(self.open.len());
        for open in core::mem::take(&mut self.open) {
            round = round.ask(&*open.entry.name, open.ask);
            asked.push(open.entry);
        }
        let past = &mut self.past;
        let expires = now.saturating_add(ROUND).as_secs().min(past.began.saturating_add(WHOLE.as_secs()));
        (past.rounds, past.depth, past.expires, past.asked) = (past.rounds.saturating_add(1), depth, expires, asked);
        (past.reports, past.partial) = (reports, partial);
        let mut log = serde_json::to_vec(past);
        if past.partial.is_some() && log.as_ref().is_ok_and(|log| seal::sealed_length(log.len()) > MAX_STATE_BYTES) {
            past.partial = None;
            log = serde_json::to_vec(past);
        }
        match log {
            Ok(log) => RoundEnd::Round { round, log },
            Err(error) => RoundEnd::Error(RpcError::internal(format!("the log of the call cannot be written: {error}"))),
        }
    }
}

fn note_used(used: &mut [bool], at: usize) {
    if let Some(used) = used.get_mut(at) {
        *used = true;
    }
}

/// Counts one more occurrence of `name`; returns the number of earlier occurrences.
fn count(all: &mut Vec<(String, u32)>, name: &str) -> u32 {
    if let Some((_, number)) = all.iter_mut().find(|(known, _)| known == name) {
        let nth = *number;
        *number = number.saturating_add(1);
        return nth;
    }
    all.push((String::from(name), 1));
    0
}
