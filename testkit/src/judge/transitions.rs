//! The rows of `docs/transitions` that a fact belongs to: the state of a call, and the input.

use protocol_core::{CancelReason, Event, Gone, Outcome, Reported, TimeoutKind, TransportEnd};

use super::fact::Fact;
use super::ledger::{Call, InboundCall, Kind, Ledger, PROGRESS, is_request, progress_of};
use super::reading::Read;
use super::rounds::{Between, is_round};
use crate::coverage::Transition;
use crate::summary::number;

const CALL: &str = "call";
const CALL_OVER_ROUNDS: &str = "call-over-rounds";
const SERVE: &str = "serve";
const SERVE_STATELESS: &str = "serve-stateless";
const LISTEN: &str = "listen";

const fn table(kind: Kind) -> &'static str {
    match kind {
        Kind::Served => SERVE,
        Kind::Stateless => SERVE_STATELESS,
        Kind::Listen => LISTEN,
    }
}

impl Ledger {
    fn state_of_call(&self, id: u64, call: &Call) -> &'static str {
        match (self.rounds.between(id), self.era.calls_stateless) {
            (Some(Between::Asked), _) => return "AskedByResult",
            (Some(Between::Delayed), _) => return "Delayed",
            (Some(Between::Written), _) => return "Written",
            (None, true) if !call.cancelled => return if self.requests.all.contains(&id) { "InFlight" } else { "Written" },
            (None, _) => {}
        }
        match () {
            () if call.cancelled => "GivenUp",
            () if self.requests.all.contains(&id) && call.input_requests > 0 => "Asked",
            () if self.requests.all.contains(&id) => "InFlight",
            () if self.ready => "Written",
            () => "Held",
        }
    }

    fn state_of_inbound_call(&self, id: u64, inbound: &InboundCall) -> &'static str {
        if inbound.kind == Kind::Listen {
            return match (inbound.accepted, inbound.waits) {
                (false, _) => "Requested",
                (true, false) => "Listening",
                (true, true) => "Waiting",
            };
        }
        match () {
            () if self.input_requests.values().any(|input| input.asker == id) => "Asking",
            () if inbound.kept => "Keeping",
            () if inbound.reported => "Reported",
            () => "Active",
        }
    }

    /// The row of a call whose peer makes or withdraws an input request. Empty for a stateless or cancelled call, since the event about its
    /// input request is caused by a round or by the cancel.
    fn of_input_request(&self, id: u64, input: &'static str) -> Vec<Transition> {
        let is_cancelled = self.calls.get(&id).is_some_and(|call| call.cancelled);
        if self.era.calls_stateless || is_cancelled { Vec::new() } else { self.of_call(id, input) }
    }

    /// The call of ours that an input request of the peer belongs to.
    fn call_of_input_request(&self, key: u64) -> Option<u64> {
        self.peer_input_requests.get(&key).copied().flatten()
    }

    /// The row of one call of ours.
    fn of_call(&self, id: u64, input: &'static str) -> Vec<Transition> {
        let state = self.calls.get(&id).map(|call| self.state_of_call(id, call));
        let table = if self.era.calls_stateless { CALL_OVER_ROUNDS } else { CALL };
        state.map(|state| [table, state, input]).into_iter().collect()
    }

    /// The row of one call of the peer.
    fn of_inbound_call(&self, id: u64, input: &'static str) -> Vec<Transition> {
        let running = self.inbound_calls.get(&id).map(|inbound| (inbound.kind, self.state_of_inbound_call(id, inbound)));
        let state = running.or_else(|| self.cancelled.get(&id).map(|kind| (*kind, "Cancelled")));
        state.map(|(kind, state)| [table(kind), state, input]).into_iter().collect()
    }

    /// The rows of all calls that are open.
    fn of_all(&self, input: &'static str) -> Vec<Transition> {
        let calls = self.calls.keys().flat_map(|id| self.of_call(*id, input));
        let inbound_calls = self.inbound_calls.keys().chain(self.cancelled.keys()).flat_map(|id| self.of_inbound_call(*id, input));
        calls.chain(inbound_calls).collect()
    }
}

/// The rows that a fact belongs to. Inputs that differ only in time count as one input.
pub(super) fn met(ledger: &Ledger, fact: &Fact<'_>, read: Option<&Read<'_>>) -> Vec<Transition> {
    match fact {
        Fact::Sent { .. } => {
            let Some(Read { value, .. }) = read.filter(|read| read.value.get("method").is_some()) else { return Vec::new() };
            let Some(id) = value["id"].as_u64() else { return Vec::new() };
            match ledger.rounds.call_of_retry(value).filter(|_| !ledger.calls.contains_key(&id)) {
                // Two rows: the delay of 50 ms has passed, which made the retry; and the retry is polled.
                Some(call) if ledger.rounds.between(call) == Some(Between::Delayed) => {
                    let polled = [CALL_OVER_ROUNDS, "Written", "the request is polled"];
                    ledger.of_call(call, "50 ms").into_iter().chain([polled]).collect()
                }
                Some(call) => ledger.of_call(call, "the request is polled"),
                None => ledger.of_call(id, "the request is polled"),
            }
        }
        Fact::Received { effect, lane, .. } => {
            let Some(Read { value, .. }) = read else { return Vec::new() };
            let id = value.get("id");
            if let Some(method) = value["method"].as_str().filter(|method| PROGRESS.contains(method)) {
                let (name, _) = progress_of(method, &value["params"]);
                let id = name.trim_matches('"').trim_start_matches("inv_").parse().ok();
                return id.map(|id| ledger.of_call(ledger.rounds.call_of(id), "progress")).unwrap_or_default();
            }
            if let Some(id) = id.and_then(serde_json::Value::as_u64).filter(|_| !is_request(value)) {
                let input = match (value.get("result"), value.get("error")) {
                    (Some(result), None) if ledger.era.calls_stateless && is_round(value) => {
                        let names = result["inputRequests"].as_object().map_or(0, serde_json::Map::len);
                        match (names, result.get("requestState")) {
                            (0, None) => "a round with nothing",
                            (0, Some(_)) => "a round with a state alone",
                            _ => "a round",
                        }
                    }
                    (Some(result), None) if result.is_object() => "a result",
                    (None, Some(error)) if error["code"].is_i64() => "an error",
                    _ => "a broken answer",
                };
                return ledger.of_call(ledger.rounds.call_of(id), input);
            }
            let wire = id.map(ToString::to_string).filter(|_| effect.dropped);
            let again =
                ledger.inbound_calls.iter().find(|(_, inbound)| Some(&inbound.wire) == wire.as_ref() && inbound.lane == *lane);
            again.map(|(id, _)| ledger.of_inbound_call(*id, "the peer uses the id again")).unwrap_or_default()
        }
        Fact::Cancelled { id } => ledger.of_call(number(id), "cancel"),
        Fact::Answered { key, is_refusal } => {
            let is_of_round = |id| ledger.rounds.between(id).is_some();
            let input = |id| match (is_of_round(id), is_refusal) {
                (false, _) => "our answer to the input request",
                (true, false) => "our answer to the round",
                (true, true) => "our refusal to answer the round",
            };
            ledger.call_of_input_request(number(key)).map(|id| ledger.of_call(id, input(id))).unwrap_or_default()
        }
        Fact::Accepted { id } => ledger.of_inbound_call(number(id), "accept"),
        Fact::Published { notification } => {
            let wanted: Vec<_> = ledger.subscriptions_for(notification).map(|(id, _)| id).collect();
            let input = |id: u64, inbound: &InboundCall| match wanted.contains(&id) {
                true if ledger.stopped.contains(&inbound.lane) => "publish a wanted notification, with its lane stopped",
                true => "publish a wanted notification",
                false => "publish another notification",
            };
            let all = ledger.inbound_calls.iter().filter(|(_, inbound)| inbound.kind == Kind::Listen);
            all.flat_map(|(id, inbound)| ledger.of_inbound_call(*id, input(*id, inbound))).collect()
        }
        Fact::Writable { lane, is_writable: true } => {
            let is_on_lane = |inbound: &InboundCall| inbound.kind == Kind::Listen && inbound.lane == *lane;
            let all = ledger.inbound_calls.iter().filter(|(_, inbound)| is_on_lane(inbound));
            all.flat_map(|(id, _)| ledger.of_inbound_call(*id, "its lane is resumed")).collect()
        }
        Fact::Gone { gone: Gone::Exchange(exchange) } => {
            ledger.of_call(ledger.rounds.call_of(number(exchange)), "the exchange is lost")
        }
        Fact::Gone { gone: Gone::Lane(lane) } => {
            let is_on_lane = |inbound: &InboundCall| inbound.kind != Kind::Served && inbound.lane == *lane;
            let all = ledger.inbound_calls.iter().filter(|(_, inbound)| is_on_lane(inbound));
            all.flat_map(|(id, _)| ledger.of_inbound_call(*id, "its lane is lost")).collect()
        }
        Fact::Asked { id, .. } => ledger.of_inbound_call(number(id), "ask"),
        Fact::Abandoned { key } => ledger
            .input_requests
            .get(&number(key))
            .map(|input| ledger.of_inbound_call(input.asker, "withdraw our input request"))
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
            Event::InputRequested { parent: Some(id), .. } => ledger.of_input_request(number(id), "an input request of the peer"),
            Event::InputGone { key } => ledger
                .call_of_input_request(number(key))
                .map(|id| ledger.of_input_request(id, "the peer withdraws the input request"))
                .unwrap_or_default(),
            Event::Input { id, .. } => ledger.of_inbound_call(number(id), "the answer to our input request"),
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
