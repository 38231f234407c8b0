//! The rows of `docs/transitions` that a fact belongs to: the state of a call, and the input.

use protocol_core::{CancelReason, Event, Outcome, Reported, TimeoutKind, TransportEnd};

use super::ledger::{Call, InboundCall, Ledger, PROGRESS, is_request, progress_of};
use super::{Fact, Read};
use crate::coverage::Transition;
use crate::summary::number;

const CALL: &str = "call";
const SERVE: &str = "serve";

impl Ledger {
    fn state_of_call(&self, id: u64, call: &Call) -> &'static str {
        match () {
            () if call.cancelled => "GivenUp",
            () if self.requests.all.contains(&id) && call.input_requests > 0 => "Asked",
            () if self.requests.all.contains(&id) => "InFlight",
            () if self.ready => "Written",
            () => "Held",
        }
    }

    fn state_of_inbound_call(&self, id: u64, inbound: &InboundCall) -> &'static str {
        match () {
            () if self.input_requests.values().any(|input| input.asker == id) => "Asking",
            () if inbound.kept => "Keeping",
            () if inbound.reported => "Reported",
            () => "Active",
        }
    }

    /// The call of ours that an input request of the peer belongs to.
    fn question_of(&self, key: u64) -> Option<u64> {
        self.peer_input_requests.get(&key).copied().flatten()
    }

    /// The row of one call of ours.
    fn of_call(&self, id: u64, input: &'static str) -> Vec<Transition> {
        let state = self.calls.get(&id).map(|call| self.state_of_call(id, call));
        state.map(|state| [CALL, state, input]).into_iter().collect()
    }

    /// The row of one call of the peer.
    fn of_inbound_call(&self, id: u64, input: &'static str) -> Vec<Transition> {
        let state = self.inbound_calls.get(&id).map(|inbound| self.state_of_inbound_call(id, inbound));
        let state = state.or_else(|| self.cancelled.contains(&id).then_some("Cancelled"));
        state.map(|state| [SERVE, state, input]).into_iter().collect()
    }

    /// The rows of all calls that are open.
    fn of_all(&self, input: &'static str) -> Vec<Transition> {
        let calls = self.calls.keys().flat_map(|id| self.of_call(*id, input));
        let inbound_calls = self.inbound_calls.keys().chain(&self.cancelled).flat_map(|id| self.of_inbound_call(*id, input));
        calls.chain(inbound_calls).collect()
    }
}

/// The rows that a fact belongs to. Inputs that differ only in time count as one input.
pub(super) fn met(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Vec<Transition> {
    match fact {
        Fact::Sent { .. } => {
            let request = read.filter(|read| read.value.get("method").is_some()).and_then(|read| read.value["id"].as_u64());
            request.map(|id| ledger.of_call(id, "the request is polled")).unwrap_or_default()
        }
        Fact::Received { effect, lane, .. } => {
            let Some(Read { value, .. }) = read else { return Vec::new() };
            let id = value.get("id");
            if let Some(method) = value["method"].as_str().filter(|method| PROGRESS.contains(method)) {
                let (name, _) = progress_of(method, &value["params"]);
                let id = name.trim_matches('"').trim_start_matches("inv_").parse().ok();
                return id.map(|id| ledger.of_call(id, "progress")).unwrap_or_default();
            }
            if let Some(id) = id.and_then(serde_json::Value::as_u64).filter(|_| !is_request(value)) {
                let input = match (value.get("result"), value.get("error")) {
                    (Some(result), None) if result.is_object() => "a result",
                    (None, Some(error)) if error["code"].is_i64() => "an error",
                    _ => "a broken answer",
                };
                return ledger.of_call(id, input);
            }
            let wire = id.map(ToString::to_string).filter(|_| effect.dropped);
            let again =
                ledger.inbound_calls.iter().find(|(_, inbound)| Some(&inbound.wire) == wire.as_ref() && inbound.lane == *lane);
            again.map(|(id, _)| ledger.of_inbound_call(*id, "the peer uses the id again")).unwrap_or_default()
        }
        Fact::Cancelled { id } => ledger.of_call(number(id), "cancel"),
        Fact::Answered { key } => {
            ledger.question_of(number(key)).map(|id| ledger.of_call(id, "our answer to it")).unwrap_or_default()
        }
        Fact::Asked { id, .. } => ledger.of_inbound_call(number(id), "ask"),
        Fact::Abandoned { key } => ledger
            .input_requests
            .get(&number(key))
            .map(|input| ledger.of_inbound_call(input.asker, "take it back"))
            .unwrap_or_default(),
        Fact::Reported { id, reported: Reported::NotIncreasing, .. } => {
            ledger.of_inbound_call(number(id), "the same progress twice")
        }
        Fact::Reported { id, .. } => ledger.of_inbound_call(number(id), "progress"),
        Fact::Checkpointed { id } => ledger.of_inbound_call(number(id), "a checkpoint"),
        Fact::Responded { id, .. } => ledger.of_inbound_call(number(id), "respond"),
        Fact::Closing { is_graceful: true } => ledger.of_all("close, with a grace of 5 s"),
        Fact::Closing { is_graceful: false } => ledger.of_all("close now"),
        Fact::Ended { end: TransportEnd::Eof } => ledger.of_all("the peer ends its side"),
        Fact::Ended { .. } => ledger.of_all("the transport fails"),
        Fact::Polled { event, .. } => match event {
            Event::Ready(_) => ledger.calls.keys().flat_map(|id| ledger.of_call(*id, "the peer is ready")).collect(),
            Event::InputRequested { parent: Some(id), .. } => ledger.of_call(number(id), "a question of the peer"),
            Event::InputGone { key } => {
                ledger.question_of(number(key)).map(|id| ledger.of_call(id, "the peer takes it back")).unwrap_or_default()
            }
            Event::Input { id, .. } => ledger.of_inbound_call(number(id), "the answer to it"),
            Event::Cancelled { id, why: CancelReason::Peer(_) } => ledger.of_inbound_call(number(id), "the peer cancels"),
            Event::Cancelled { id, why: CancelReason::Deadline } => {
                let was_set = ledger.inbound_calls.get(&number(id)).is_some_and(|inbound| inbound.configured);
                ledger.of_inbound_call(
                    number(id),
                    if was_set { "a deadline that has passed is set" } else { "60 s since its receipt" },
                )
            }
            Event::Cancelled { id, why: CancelReason::Closing } => {
                ledger.of_inbound_call(number(id), "close, and the grace is over")
            }
            Event::Done { id, outcome: Outcome::TimedOut(TimeoutKind::Idle), .. } => ledger.of_call(number(id), "nothing for 60 s"),
            Event::Done { id, outcome: Outcome::TimedOut(TimeoutKind::MaxTotal), .. } => ledger.of_call(number(id), "600 s in all"),
            Event::Done { id, outcome: Outcome::Cancelled, .. } if ledger.closing => {
                ledger.of_call(number(id), "close, and the grace is over")
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
