//! The ledger of a judge: the facts so far that a later fact can contradict.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use protocol_core::{
    Config, Event, Instant, Lane, Notification, Op, OutboundId, Outcome, Progress, Protocol, Reply, Reported, RouteKind,
};
use serde_json::Value;

use super::fact::{Effect, Fact};
use super::reading::Read;
use super::rounds::{Rounds, is_round};
use super::stateless::{Eras, REVISION, Stamp};
use crate::summary::{number, published};

/// The facts so far. [`Ledger::enter`] adds a fact. The judge also changes `terms`, `altered`, `missed`, `closed` and `requests.open`
/// itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    /// Calls of ours that are not done.
    pub(super) calls: BTreeMap<u64, Call>,
    /// The last number that a method has returned for a new call, input request or alarm.
    pub(super) newest: u64,
    /// Calls of the peer that were not cancelled and whose handler runs.
    pub(super) inbound_calls: BTreeMap<u64, InboundCall>,
    /// Calls of the peer that were cancelled, and whose handler runs.
    pub(super) cancelled: BTreeMap<u64, Kind>,
    /// Calls of the peer that began and whose events were not polled yet.
    pub(super) arrived: VecDeque<Arrived>,
    /// Lanes other than the channel on which calls came.
    pub(super) served: BTreeSet<Lane>,
    /// Lanes that are stopped.
    pub(super) stopped: BTreeSet<Lane>,
    /// Lost or closed lanes: no frame may be sent on them before another frame arrives on them.
    pub(super) gone: BTreeSet<Lane>,
    /// Input requests of ours that are open.
    pub(super) input_requests: BTreeMap<u64, InputRequest>,
    /// Input requests of ours that ended with their calls. The events about their answers may still be polled.
    withdrawn: BTreeMap<u64, InputRequest>,
    /// Open input requests of the peer, each with the call of ours that it belongs to, if it belongs to one.
    pub(super) peer_input_requests: BTreeMap<u64, Option<u64>>,
    /// The handshake is done.
    pub(super) ready: bool,
    /// The eras of MCP that this end speaks.
    pub(super) era: Eras,
    /// Log records that belong to no call, were queued before the first stateless request, and may still be sent.
    pub(super) early_records: u32,
    /// Input rounds of the peer.
    pub(super) rounds: Rounds,
    /// Alarms that are set.
    pub(super) alarms: BTreeMap<u64, Expiry>,
    /// Requests of ours on the wire.
    pub(super) requests: Requests,
    /// Requests of the peer that may be answered, oldest first. If the peer repeats an id while the answer to the first request is queued,
    /// both requests are in the list.
    pub(super) pending: Vec<Pending>,
    /// The greatest time that was given to `handle_timeout`.
    pub(super) timed: Option<Aside<Instant>>,
    /// A `handle_timeout` was due, so the handshake may have expired.
    pub(super) was_due: bool,
    /// The owner has called `close`.
    pub(super) closing: bool,
    /// The session is closed: [`Event::Closed`] was polled.
    pub(super) closed: bool,
    /// The judge could not read a frame, which may have been a request.
    pub(super) missed: bool,
    /// The peer may have broken rules, or frames may have been damaged on the way.
    pub(super) altered: bool,
    /// Parts of the configuration.
    pub(super) terms: Terms,
    /// The limit for the length of frames, once a method has returned.
    pub(super) frame_bytes: Aside<Option<usize>>,
    /// The number of events that were polled without another method in between.
    pub(super) in_a_row: Aside<usize>,
}

/// Parts of the configuration of a session that a check depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    /// Progress is a percentage.
    pub(super) is_percent: bool,
    /// Three flags: `true` if the time limit of the handshake, of calls of the peer, and of input requests of ours is zero. Such a limit
    /// expires without a `handle_timeout`.
    pub(super) zero: [bool; 3],
}

impl Terms {
    pub(super) fn of(config: &Config) -> Self {
        let timeouts = &config.timeouts;
        let zero = [timeouts.handshake, timeouts.serve, timeouts.input].map(|limit| limit.is_some_and(|limit| limit.is_zero()));
        let is_percent = matches!(config.protocol, Protocol::Tesseron(_));
        Self { is_percent, zero }
    }
}

/// A value that is ignored when judges are compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aside<T>(pub(super) T);

impl<T> PartialEq for Aside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Aside<T> {}

impl<T> Hash for Aside<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The possibility that something has expired by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Expiry {
    /// `true` if a due `handle_timeout` was called since the call, input request or alarm began, if its deadline had passed at the
    /// beginning, or if `configure` has set a deadline. For a call of the peer, a due `handle_timeout` before its event counts, too.
    pub(super) is_possible: bool,
}

/// A call of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) expiry: Expiry,
    pub(super) cancelled: bool,
    /// It changes a subscription or the log level. If requests are stateless, the session itself answers such a call.
    pub(super) may_be_answered_by_session: bool,
    /// It was made before this end became a server that serves only stateless requests.
    pub(super) is_early: bool,
    /// The number of open input requests of the peer that belong to it.
    pub(super) input_requests: u32,
    /// The bits of the last progress value in an event.
    pub(super) last: Option<u64>,
    /// The parameters that the owner passed to `invoke`, until the request is sent.
    pub(super) payload: Option<String>,
}

/// The kind of a call of the peer. Each kind has a table in `docs/transitions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A call after a handshake.
    Served,
    /// A call whose request named its caller.
    Stateless,
    /// A subscription.
    Listen,
}

/// A call of the peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InboundCall {
    pub(super) kind: Kind,
    /// It is a subscription that was accepted.
    pub(super) accepted: bool,
    /// It is a subscription with a notification that waits for its lane.
    pub(super) waits: bool,
    pub(super) lane: Lane,
    /// The id of its request, as JSON.
    pub(super) wire: String,
    pub(super) expiry: Expiry,
    /// Its options were changed.
    pub(super) configured: bool,
    /// A progress update of the call is kept.
    pub(super) kept: bool,
    /// A progress update of the call was sent.
    pub(super) reported: bool,
}

/// A call of the peer whose event was not polled yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Arrived {
    pub(super) lane: Lane,
    /// The id of its request, as JSON.
    pub(super) wire: String,
    /// The frame. Empty if it was a batch or could not be read, so that the request of the call is not known.
    pub(super) frame: String,
    pub(super) stamp: Option<Stamp>,
}

/// An input request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct InputRequest {
    pub(super) asker: u64,
    pub(super) expiry: Expiry,
}

/// Requests of ours that were sent. Requests that are over are ignored when judges are compared, since no later fact can contradict them.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub(super) all: BTreeSet<u64>,
    /// The lanes of input requests, and the ids of the requests that they belong to. Such an id is empty if it is not known.
    pub(super) within: BTreeMap<u64, (Lane, String)>,
    /// Requests that were neither cancelled nor answered.
    pub(super) open: BTreeSet<u64>,
    /// Responses that have arrived for calls that are not done. A session may ignore some of them, if they are malformed.
    pub(super) responses: BTreeMap<u64, Vec<String>>,
}

impl PartialEq for Requests {
    fn eq(&self, other: &Self) -> bool {
        self.open == other.open && self.responses == other.responses
    }
}

impl Eq for Requests {}

impl Hash for Requests {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.open.hash(state);
        self.responses.hash(state);
    }
}

/// A request of the peer that may be answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    /// The lane on which it came.
    pub(super) lane: Lane,
    /// Its id as JSON, so that `1` is not `"1"`.
    pub(super) id: String,
    /// `true` if it began a call; `None` if that is not known, for a request in a batch.
    pub(super) began_call: Option<bool>,
    /// Its progress token or invocation id, as JSON, if it began a call, or may have.
    pub(super) token: Option<String>,
    /// `true` if another request with this lane and token was pending at the same time: an update may then be about either of them.
    pub(super) shares_token: bool,
    /// The bits of the last progress value that was sent for it.
    pub(super) last: Option<u64>,
    /// The caller that it names, if it is stateless.
    pub(super) stamp: Option<Stamp>,
    /// It came before this end, a client, chose stateless requests.
    pub(super) is_early: bool,
    /// The result of its handler, if this was a [`Reply::Raw`], which is sent unchanged.
    pub(super) result: Option<String>,
}

/// The number of the request that a cancel of ours names.
pub(super) fn cancelled_request(params: &Value) -> Option<u64> {
    let named = || params["invocationId"].as_str()?.strip_prefix("inv_")?.parse().ok();
    params["requestId"].as_u64().or_else(named)
}

/// The progress token or invocation id of a progress update, and `true` if its value is a percentage.
pub(super) fn progress_of(method: &str, params: &Value) -> (String, bool) {
    let is_percent = method == "actions/progress";
    (params[if is_percent { "invocationId" } else { "progressToken" }].to_string(), is_percent)
}

/// The maximum number of withdrawn input requests that are kept because their events may still be polled.
const UNPOLLED: usize = 10_000;

pub(super) const CANCELS: [&str; 2] = ["notifications/cancelled", "actions/cancel"];
pub(super) const PROGRESS: [&str; 2] = ["notifications/progress", "actions/progress"];

/// Returns `true` if a frame that has an id may be a request, perhaps an invalid one.
pub(super) fn is_request(frame: &Value) -> bool {
    frame.get("method").is_some() || (frame.get("result").is_none() && frame.get("error").is_none())
}

impl Ledger {
    /// The index of the oldest request of the peer with this lane and id.
    pub(super) fn pending_of(&self, lane: Lane, id: &str) -> Option<usize> {
        self.pending.iter().position(|pending| pending.id == id && pending.lane == lane)
    }

    /// The index of the oldest request of the peer with this lane and progress token. If another has the same token, nothing tells which of
    /// them an update is about ([`Pending::shares_token`]).
    pub(super) fn reported_by(&self, lane: Lane, token: &str) -> Option<usize> {
        self.pending.iter().position(|pending| pending.token.as_deref() == Some(token) && pending.lane == lane)
    }

    /// Returns `true` for a call of ours that the session answers itself: with stateless requests, a call that changes a subscription or
    /// the log level.
    pub(super) fn is_answered_by_session(&self, id: u64) -> bool {
        self.era.calls_stateless && self.calls.get(&id).is_some_and(|call| call.may_be_answered_by_session)
    }

    /// An input request of ours that is open, or whose event may still be polled.
    pub(super) fn input_request(&self, key: u64) -> Option<&InputRequest> {
        self.input_requests.get(&key).or_else(|| self.withdrawn.get(&key))
    }

    fn withdraw_input_requests(&mut self, asker: u64) {
        let withdrawn = self.input_requests.iter().filter(|(_, input)| input.asker == asker).map(|(key, input)| (*key, *input));
        self.withdrawn.extend(withdrawn);
        self.input_requests.retain(|_, input| input.asker != asker);
        while self.withdrawn.len() > UNPOLLED {
            self.withdrawn.pop_first();
        }
    }

    /// The accepted subscriptions that ask for a notification.
    pub(super) fn subscriptions_for<'a>(&'a self, notification: &Notification) -> impl Iterator<Item = (u64, &'a InboundCall)> {
        // `published` returns a URI only for a changed resource. For a changed list, `wants` does not read the URI.
        let (uri_or_list, method) = published(notification);
        let notification = serde_json::json!({ "method": method, "params": { "uri": uri_or_list } });
        let accepted = self.inbound_calls.iter().filter(|(_, inbound)| inbound.accepted);
        let wants = move |inbound: &InboundCall| {
            let request = self.pending_of(inbound.lane, &inbound.wire).map(|at| &self.pending[at]);
            request.and_then(|request| request.stamp.as_ref()).is_some_and(|stamp| stamp.wants(&notification))
        };
        accepted.filter(move |(_, inbound)| wants(inbound)).map(|(id, inbound)| (*id, inbound))
    }

    /// Adds a fact to the ledger.
    pub(super) fn enter(&mut self, fact: &Fact<'_>, read: Option<&Read<'_>>) {
        self.rounds.enter(fact, read);
        match fact {
            Fact::Polled { .. } => self.in_a_row.0 += 1,
            Fact::Returned { limits, .. } => self.frame_bytes.0 = Some(limits.frame_bytes),
            _ => self.in_a_row.0 = 0,
        }
        match fact {
            Fact::Called { id, call, at_once } => {
                let payload = call.given().map(|given| given.as_str().to_owned());
                let may_be_answered_by_session = matches!(call.op(), Op::Subscribe | Op::Unsubscribe | Op::SetLogLevel);
                self.enter_call(*id, *at_once, may_be_answered_by_session, payload);
            }
            Fact::Resumed { id, pending, at_once } => {
                self.enter_call(*id, *at_once, false, None);
                self.rounds.resume(number(id), pending);
            }
            Fact::Cancelled { id } => {
                if let Some(call) = self.calls.get_mut(&number(id)) {
                    call.cancelled = true;
                }
            }
            Fact::Asked { key, id } => {
                self.newest = number(key);
                let expiry = Expiry { is_possible: self.terms.zero[2] };
                self.input_requests.insert(number(key), InputRequest { asker: number(id), expiry });
                let within = self.inbound_calls.get(&number(id)).map(|inbound| (inbound.lane, inbound.wire.clone()));
                self.requests.within.extend(within.map(|within| (number(key), within)));
            }
            Fact::Accepted { id } => {
                if let Some(inbound) = self.inbound_calls.get_mut(&number(id)) {
                    inbound.accepted = true;
                }
            }
            Fact::Published { notification } => {
                let waiting = self.subscriptions_for(notification).filter(|(_, inbound)| self.stopped.contains(&inbound.lane));
                let waiting: Vec<_> = waiting.map(|(id, _)| id).collect();
                for id in waiting {
                    self.inbound_calls.entry(id).and_modify(|inbound| inbound.waits = true);
                }
            }
            Fact::Abandoned { key } => drop(self.input_requests.remove(&number(key))),
            Fact::Responded { id, reply, accepted } => {
                let inbound = if *accepted { self.inbound_calls.remove(&number(id)) } else { None };
                self.cancelled.remove(&number(id));
                self.withdraw_input_requests(number(id));
                if let (Some(InboundCall { lane, wire, .. }), Reply::Raw(result)) = (inbound, reply) {
                    // If the peer has repeated the id, it is uncertain which request is answered.
                    let mut same = self.pending.iter_mut().filter(|pending| pending.id == wire && pending.lane == lane);
                    if let (Some(pending), None) = (same.next(), same.next()) {
                        pending.result = Some(result.as_str().to_owned());
                    }
                }
            }
            Fact::Configured { id } => {
                if let Some(inbound) = self.inbound_calls.get_mut(&number(id)) {
                    (inbound.expiry.is_possible, inbound.configured) = (true, true);
                }
            }
            Fact::AlarmSet { id, at_once } => {
                self.newest = number(id);
                self.alarms.insert(number(id), Expiry { is_possible: *at_once });
            }
            Fact::Logged { id: None } if !self.era.serves_stateless_alone() => self.early_records += 1,
            Fact::Closing { .. } => self.closing = true,
            Fact::Answered { key, .. } => {
                if let Some(call) = self.peer_input_requests.get(&number(key)).copied().flatten() {
                    self.rounds.answer(call);
                }
                self.end_peer_input_request(number(key));
            }
            Fact::Reported { id, reported } => {
                if let Some(inbound) = self.inbound_calls.get_mut(&number(id)) {
                    inbound.kept |= matches!(reported, Reported::RateLimited);
                }
            }
            Fact::Received { lane, effect, .. } => self.receive(read, *lane, *effect),
            Fact::Sent { transmit, .. } => {
                if let Some(read) = read {
                    self.send(read, transmit.route.lane);
                    let is_record =
                        read.value["method"] == "notifications/message" && transmit.route.kind == RouteKind::Notification;
                    self.early_records = self.early_records.saturating_sub(u32::from(is_record));
                }
            }
            Fact::Polled { event, .. } => self.poll(event),
            Fact::Timeout { now, due } => {
                self.timed = Some(Aside(self.timed.map_or(*now, |timed| timed.0.max(*now))));
                if due.is_some_and(|due| due <= *now) {
                    self.was_due = true;
                    let calls = self.calls.values_mut().map(|call| &mut call.expiry);
                    let inbound_calls = self.inbound_calls.values_mut().map(|inbound| &mut inbound.expiry);
                    let input_requests = self.input_requests.values_mut().map(|input| &mut input.expiry);
                    let all = calls.chain(inbound_calls).chain(input_requests).chain(self.alarms.values_mut());
                    all.for_each(|expiry| expiry.is_possible = true);
                }
            }
            Fact::Writable { lane, is_writable: true } => {
                self.stopped.remove(lane);
                self.inbound_calls.values_mut().filter(|inbound| inbound.lane == *lane).for_each(|inbound| inbound.waits = false);
            }
            Fact::Writable { lane, is_writable: false } => drop(self.stopped.insert(*lane)),
            Fact::LaneLost { lane } => {
                self.pending.retain(|pending| pending.lane != *lane);
                self.stopped.remove(lane);
                self.gone.insert(*lane);
            }
            Fact::Returned { .. }
            | Fact::Panicked { .. }
            | Fact::Probed { .. }
            | Fact::Checkpointed { .. }
            | Fact::Logged { .. }
            | Fact::Gone { .. }
            | Fact::Ended { .. } => {}
        }
    }

    fn enter_call(&mut self, id: OutboundId, at_once: bool, may_be_answered_by_session: bool, payload: Option<String>) {
        self.newest = number(id);
        let is_early = !self.era.serves_stateless_alone();
        let expiry = Expiry { is_possible: at_once };
        self.calls.insert(
            number(id),
            Call { expiry, cancelled: false, is_early, may_be_answered_by_session, input_requests: 0, last: None, payload },
        );
    }

    fn end_peer_input_request(&mut self, key: u64) {
        let parent = self.peer_input_requests.remove(&key).flatten().and_then(|id| self.calls.get_mut(&id));
        if let Some(call) = parent {
            call.input_requests = call.input_requests.saturating_sub(1);
        }
    }

    fn send(&mut self, Read { value, .. }: &Read<'_>, lane: Lane) {
        self.era.send(value);
        let params = &value["params"];
        match (value["method"].as_str(), value.get("id")) {
            (Some(_), Some(id)) => {
                if let Some(id) = id.as_u64() {
                    self.requests.all.insert(id);
                    self.requests.open.insert(id);
                    if let Some(call) = self.calls.get_mut(&id) {
                        call.payload = None;
                    }
                }
            }
            (Some(method), None) if CANCELS.contains(&method) => {
                if let Some(id) = cancelled_request(params) {
                    self.requests.open.remove(&id);
                }
            }
            (Some(method), None) if PROGRESS.contains(&method) => {
                let (token, is_percent) = progress_of(method, params);
                let value = params[if is_percent { "percent" } else { "progress" }].as_f64();
                if let (Some(at), Some(value)) = (self.reported_by(lane, &token), value) {
                    self.pending[at].last = Some(value.to_bits());
                    let wire = &self.pending[at].id;
                    if let Some(inbound) =
                        self.inbound_calls.values_mut().find(|inbound| inbound.wire == *wire && inbound.lane == lane)
                    {
                        (inbound.kept, inbound.reported) = (false, true);
                    }
                }
            }
            (None, Some(id)) if !id.is_null() => {
                if let Some(at) = self.pending_of(lane, &id.to_string()) {
                    self.pending.remove(at);
                }
            }
            _ => {}
        }
    }

    /// Records that a frame has arrived that is JSON, but that the judge cannot read.
    pub(super) fn miss(&mut self) {
        self.missed = true;
    }

    fn receive(&mut self, read: Option<&Read<'_>>, lane: Lane, effect: Effect) {
        self.gone.remove(&lane);
        if effect.began > 0 {
            self.served.extend(Some(lane).filter(|lane| *lane != Lane::CHANNEL));
        }
        match read {
            Some(Read { text, value: Value::Array(all) }) => {
                // It is not known which of the messages have an effect.
                let unknown = || Arrived { lane, wire: String::new(), frame: String::new(), stamp: None };
                self.arrived.extend((0..effect.began).map(|_| unknown()));
                let began_call = if effect.began > 0 { None } else { Some(false) };
                let effect = Effect { cancelled: false, dropped: false, ..effect };
                all.iter().for_each(|value| self.receive_message(text, value, began_call, lane, effect));
            }
            Some(Read { text, value }) => {
                if effect.began > 0 {
                    let wire = value.get("id").map(Value::to_string).unwrap_or_default();
                    self.arrived.push_back(Arrived { lane, wire, frame: (*text).to_owned(), stamp: Stamp::read(value) });
                }
                self.receive_message(text, value, Some(effect.began > 0), lane, effect);
            }
            None => {
                let unknown = || Arrived { lane, wire: String::new(), frame: String::new(), stamp: None };
                self.arrived.extend((0..effect.began).map(|_| unknown()));
                self.altered = true;
            }
        }
    }

    fn receive_message(&mut self, text: &str, value: &Value, began_call: Option<bool>, lane: Lane, effect: Effect) {
        if !is_proper(value) {
            self.altered = true;
        }
        self.era.receive(value, effect.began > 0);
        let params = &value["params"];
        // A damaged request that is not a request any more is still answered if it has an id.
        match value.get("id") {
            Some(id) if (is_request(value) || !is_proper(value)) && !effect.dropped => {
                let token = params["_meta"].get("progressToken").or_else(|| params.get("invocationId")).map(Value::to_string);
                let token = token.filter(|_| began_call != Some(false));
                let mut shares_token = false;
                for other in self.pending.iter_mut().filter(|other| token.is_some() && other.token == token && other.lane == lane) {
                    (other.shares_token, shares_token) = (true, true);
                }
                self.pending.push(Pending {
                    lane,
                    id: id.to_string(),
                    began_call,
                    token,
                    shares_token,
                    last: None,
                    stamp: Stamp::read(value),
                    is_early: !self.era.calls_stateless,
                    result: None,
                });
            }
            _ if effect.cancelled && value["method"] == "notifications/cancelled" => {
                let id = params["requestId"].to_string();
                // The cancelled request came on the lane of the cancel. If there is none on that lane, it is a request with a handshake on
                // any lane.
                let runs = |pending: &Pending| pending.id == id && pending.began_call != Some(false);
                let of_lane = self.pending.iter().rposition(|pending| runs(pending) && pending.lane == lane);
                let elsewhere = |pending: &Pending| runs(pending) && pending.stamp.is_none();
                if let Some(newest) = of_lane.or_else(|| self.pending.iter().rposition(elsewhere)) {
                    self.pending.remove(newest);
                }
            }
            _ => {}
        }
        // A response to a request that was not sent does not count, and a response that is a round does not end its call.
        let is_answer = value.get("method").is_none() && !(self.era.calls_stateless && is_round(value));
        let answered = value["id"].as_u64().filter(|id| is_answer && self.requests.all.contains(id));
        let call = answered.map(|id| self.rounds.call_of(id)).filter(|call| self.calls.contains_key(call));
        if let Some(call) = call {
            self.requests.responses.entry(call).or_default().push(text.to_owned());
        }
    }

    fn poll(&mut self, event: &Event) {
        match event {
            Event::Request { id, caller, request, .. } => {
                let nothing = || Arrived { lane: Lane::CHANNEL, wire: String::new(), frame: String::new(), stamp: None };
                let Arrived { lane, wire, .. } = self.arrived.pop_front().unwrap_or_else(nothing);
                let kind = match caller.protocol() == REVISION {
                    true if request.op() == Op::Listen => Kind::Listen,
                    true => Kind::Stateless,
                    false => Kind::Served,
                };
                // Its deadline counts from its frame, and may have passed before this event was polled.
                let expiry = Expiry { is_possible: self.was_due || self.terms.zero[1] };
                self.inbound_calls.insert(
                    number(id),
                    InboundCall {
                        kind,
                        accepted: false,
                        waits: false,
                        lane,
                        wire,
                        expiry,
                        configured: false,
                        kept: false,
                        reported: false,
                    },
                );
            }
            Event::Cancelled { id, .. } => {
                let kind = self.inbound_calls.remove(&number(id)).map_or(Kind::Served, |inbound| inbound.kind);
                self.cancelled.insert(number(id), kind);
                self.withdraw_input_requests(number(id));
            }
            Event::Input { key, .. } => {
                self.input_requests.remove(&number(key));
                self.withdrawn.remove(&number(key));
            }
            Event::Done { id, outcome, .. } => {
                // A change of a subscription is done at the acknowledgement. Its exchange goes on, and may still be cancelled while the
                // result that ends the exchange arrives.
                let is_answered_by_session = self.is_answered_by_session(number(id));
                self.calls.remove(&number(id));
                let had_response = self.requests.responses.remove(&number(id)).is_some();
                let exchanges = self.rounds.end(number(id));
                if had_response && !is_answered_by_session && matches!(outcome, Outcome::Result(_) | Outcome::Error(_)) {
                    self.requests.open.retain(|id| !exchanges.contains(id));
                }
            }
            Event::Ready(peer) => {
                self.ready = true;
                self.era.begin(&peer.protocol);
            }
            Event::InputRequested { key, parent, .. } => {
                self.peer_input_requests.insert(number(key), parent.map(number));
                if let Some(call) = parent.and_then(|id| self.calls.get_mut(&number(id))) {
                    call.input_requests += 1;
                }
            }
            Event::Progress { id, progress: Progress { value: Some(value), .. } } => {
                if let Some(call) = self.calls.get_mut(&number(id)) {
                    call.last = Some(value.to_bits());
                }
            }
            Event::InputGone { key } => self.end_peer_input_request(number(key)),
            Event::Alarm(id) => drop(self.alarms.remove(&number(id))),
            Event::Closed(_) => self.closed = true,
            _ => {}
        }
    }
}

/// Returns `true` if a frame is a valid request, notification or response of JSON-RPC.
fn is_proper(frame: &Value) -> bool {
    let has = |name: &str| frame.get(name).is_some();
    let id_fits = frame.get("id").is_none_or(|id| id.is_string() || id.is_u64() || id.is_i64());
    let is_response = has("id") && !has("method") && has("result") != has("error");
    let is_method =
        frame["method"].is_string() && !has("result") && !has("error") && frame.get("params").is_none_or(Value::is_object);
    frame["jsonrpc"] == "2.0" && id_fits && (is_response || is_method)
}
