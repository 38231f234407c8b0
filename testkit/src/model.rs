//! A second, simple implementation of a session, which predicts the behaviour of the session: plain maps, no timers, no efficient queue.
//!
//! The methods of a [`Model`] are called with the same arguments and in the same order as those of a session. The model predicts every
//! event, every frame, every result of a method and the next deadline, each as a short text ([`crate::summary`]). It searches all open
//! calls for the next deadline each time. It can read the frames that our own ends send and the hostile frames of [`crate::world::ops`]. It
//! does not count bytes: it has no limits on sizes, and no congestion except on a stopped lane.
//!
//! In the names of this module a *call* is an outbound call unless it is named inbound, and an *input request* is an outbound one unless it
//! is named one of the peer. A *wire* is the id of a request of the peer, as JSON text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol_core::mcp::{self, Era};
use protocol_core::{
    Answer, Ask, CallTimeouts, Config, Gone, Invoke, Lane, Level, LogRecord, Notice, Op, Progress, Protocol, RateWindow, Reply,
    RpcError, ServeOptions, SubscriptionFilter, TransportEnd, Violation, tesseron,
};
use serde_json::Value;

use crate::summary::{self, Kinds};

/// The result of a method: the number of an id, a count, or 0; or as an `Err` the name of an error, or of a value that is not a number.
pub(crate) type MethodResult = Result<u64, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No handshake has begun.
    Fresh,
    /// This end has sent a probe or the handshake request, which has no answer yet.
    Opened,
    /// This end has answered the handshake request, and is not ready: MCP still needs `initialized`, and Tesseron a claim.
    Answered,
    Ready,
}

/// The request of ours with which the session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// The request for the revisions of the server. If `is_last`, no handshake follows it.
    Probe { exchange: u64, is_last: bool },
    /// The handshake, perhaps after a probe that was not answered in time.
    Greeting { exchange: u64, late_probe: Option<u64> },
}

impl Opening {
    /// Returns `true` for the id of the request, and of the probe before it.
    fn has(&self, id: u64) -> bool {
        match *self {
            Self::Probe { exchange, .. } => exchange == id,
            Self::Greeting { exchange, late_probe } => exchange == id || late_probe == Some(id),
        }
    }
}

/// The subscription of a client whose requests are stateless.
#[derive(Clone, Debug, Default)]
struct Subscriber {
    /// The kinds of notices that the client wants.
    wanted: Kinds,
    current: Option<Subscription>,
    /// The time by which the current subscription must be acknowledged.
    acknowledge_by: Option<u64>,
    /// Calls in flight that ask for other kinds, oldest first.
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Subscription {
    exchange: u64,
    /// The index of its request among all sent requests.
    index: u64,
    /// The kinds of notices that the server has accepted, once it has. Of these, the client receives the wanted kinds.
    accepted: Option<Kinds>,
}

#[derive(Clone, Debug)]
struct Change {
    call: u64,
    uri: String,
    adds: bool,
    /// A later change for the same resource has taken effect.
    is_superseded: bool,
}

impl Change {
    fn apply(&self, kinds: &mut Kinds) {
        if self.adds {
            kinds.insert(self.uri.clone());
        } else {
            kinds.remove(&self.uri);
        }
    }
}

fn common_kinds(one: &Kinds, other: &Kinds) -> Kinds {
    one.intersection(other).cloned().collect()
}

/// The subscription of an inbound call that asks for one.
#[derive(Clone, Debug)]
struct Listener {
    kinds: Kinds,
    is_accepted: bool,
    /// Frames that wait until their lane is resumed.
    waiting: VecDeque<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// The session takes no more calls, and waits for the open ones to end. The text is the reason of the close.
    Finishing(&'static str),
    /// The session only sends its queued frames.
    Draining(&'static str),
    Closed,
}

/// The deadlines, in the order in which those that pass at the same time are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Handshake,
    Close,
    Call(u64),
    InputRequest(u64),
    InboundCall(u64),
    /// The kept update of an inbound call may be sent.
    Flush(u64),
    /// The reply to an inbound call may be sent.
    Release(u64),
    Alarm(u64),
    Acknowledgement,
}

#[derive(Clone, Debug)]
struct Call {
    op: Op,
    method: &'static str,
    /// The parameters that were passed to `invoke`; null if there were none.
    given: Value,
    /// The resource that it names.
    uri: String,
    /// Its request is stateless, or would be if a held call were sent now.
    is_stateless: bool,
    /// The index of its request among all sent requests.
    index: u64,
    /// The instant at which `max_total` passes.
    latest: Option<u64>,
    /// The instant from which the idle timeout counts.
    last_activity: u64,
    /// The instant since which it has had open input requests.
    asked_since: u64,
    timeouts: CallTimeouts,
    /// Its request asks for progress.
    observed: bool,
    depth: u8,
    held: bool,
    /// The greatest progress value so far.
    floor: Option<f64>,
    last: Option<Progress>,
    /// The instant until which progress that does not increase is not reported again.
    quiet_until: Option<u64>,
    /// The open input requests of the peer that belong to it.
    peer_input_requests: Vec<u64>,
}

#[derive(Clone, Debug)]
enum InboundState {
    Active,
    /// The reply is sent at the instant `at`.
    Answered {
        at: u64,
        frame: String,
    },
    /// The call has ended, and its handler still runs.
    Cancelled,
}

#[derive(Clone, Debug)]
struct InboundCall {
    lane: Lane,
    wire: String,
    is_tool: bool,
    is_stateless: bool,
    /// What its caller had declared when its request arrived.
    peer_can: Declared,
    /// The least severe level of log records that its caller asks for, if it is stateless.
    level: Option<Level>,
    listener: Option<Listener>,
    /// The progress token or invocation id.
    token: Option<String>,
    depth: u8,
    /// The instant at which its request arrived.
    received: u64,
    deadline: Option<u64>,
    /// The greatest progress value so far.
    floor: Option<f64>,
    kept: Option<Progress>,
    /// Its place in the order of the calls whose progress or notices wait only because their lanes are stopped. The first part is `false`
    /// for a final update and for notices, which come before all others.
    place: Option<(bool, u64)>,
    rate: RateWindow,
    /// The instants of the last updates that count toward `rate`.
    counted: VecDeque<u64>,
    /// The final update was sent.
    final_passed: bool,
    /// The instant of the last update, acknowledgement or notice.
    last_sent: Option<u64>,
    checkpoint: bool,
    input_requests: Vec<u64>,
    state: InboundState,
}

#[derive(Clone, Debug)]
struct InputRequest {
    /// The inbound call that it belongs to.
    asker: u64,
    lane: Lane,
    kind: &'static str,
    /// Its deadline.
    at: Option<u64>,
    /// The frame of a held input request.
    held: Option<String>,
}

#[derive(Clone, Debug)]
struct PeerInputRequest {
    lane: Lane,
    wire: String,
    /// The outbound call that it belongs to.
    parent: Option<u64>,
    depth: u8,
}

/// The user of an id of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    InboundCall(u64),
    PeerInputRequest(u64),
}

/// The kind of a queued frame, by which a frame is found when it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Request(u64),
    Progress(u64),
    /// A log record of an inbound call, or of none. The second value is the length of the invocation id in the record. The length of the
    /// record depends on nothing else.
    Log(Option<u64>, usize),
}

/// A queued frame and its lane. `route` is the kind of its route, and `summary` the frame, in a few words.
#[derive(Clone, Debug)]
struct Waiting {
    kind: Kind,
    lane: Lane,
    route: String,
    summary: String,
}

/// The differences between the protocols that affect predictions.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// The method of the handshake request.
    greeting: &'static str,
    /// The notification that the client sends after the answer to its handshake request.
    greeted: Option<&'static str>,
    call: &'static str,
    sample: &'static str,
    elicit: &'static str,
    cancel: &'static str,
    progress: &'static str,
    log: &'static str,
    /// Calls have names (invocation ids): input requests and cancels name an open call, and no call waits for the handshake.
    names: bool,
    /// The error codes of calls that end without their handler; `None` for the reply that MCP prescribes.
    cancelled: Option<i64>,
    deadline: Option<i64>,
    closing: Option<i64>,
    /// A withdrawn input request is cancelled by a frame.
    cancels_input_requests: bool,
    /// Inbound calls continue after the peer has ended its side.
    answers_after_eof: bool,
    /// Progress is a percentage, an update may have no value, and an update with an unchanged value and a message is accepted.
    percent: bool,
    /// The error codes of refusals: the call of the input request is over, the session has no room or is closing, the sampling is nested
    /// too deep, and the request comes before the handshake or claim.
    over: i64,
    busy: i64,
    too_deep: i64,
    too_early: i64,
}

const MCP: Terms = Terms {
    greeting: "initialize",
    greeted: Some("initialized"),
    call: "tools/call",
    sample: "sampling/createMessage",
    elicit: "elicitation/create",
    cancel: "notifications/cancelled",
    progress: "notifications/progress",
    log: "notifications/message",
    names: false,
    cancelled: None,
    deadline: None,
    closing: None,
    cancels_input_requests: true,
    answers_after_eof: true,
    percent: false,
    over: -32800,
    busy: -32809,
    too_deep: -32808,
    too_early: -32600,
};

const TESSERON: Terms = Terms {
    greeting: "tesseron/hello",
    greeted: None,
    call: "actions/invoke",
    sample: "sampling/request",
    elicit: "elicitation/request",
    cancel: "actions/cancel",
    progress: "actions/progress",
    log: "log",
    names: true,
    cancelled: Some(-32001),
    deadline: Some(-32002),
    closing: Some(-32001),
    cancels_input_requests: false,
    answers_after_eof: false,
    percent: true,
    over: -32001,
    busy: -32603,
    too_deep: -32008,
    too_early: -32009,
};

/// The kinds of input requests that an end has declared.
#[derive(Clone, Copy, Debug, Default)]
struct Declared {
    sample: bool,
    elicit: bool,
    open: bool,
    roots: bool,
}

impl Declared {
    /// What a handshake request of MCP declares.
    fn in_handshake(params: &Value) -> Self {
        let own = &params["capabilities"];
        let [form, url] = ["form", "url"].map(|mode| own["elicitation"][mode].is_object());
        Self {
            sample: own["sampling"].is_object(),
            elicit: own["elicitation"].is_object() && (form || !url),
            open: url,
            roots: own["roots"].is_object(),
        }
    }

    /// What an agent of Tesseron has declared.
    fn of_agent(own: &Value) -> Self {
        Self { sample: own["sampling"] == true, elicit: own["elicitation"] == true, ..Self::default() }
    }
}

/// The model of one end.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    config: Config,
    terms: Terms,
    /// This end is the caller; if `false`, the callee.
    client: bool,
    /// What the other end has declared.
    peer_can: Declared,
    /// This end is an app, and the gateway has announced the claim before its answer to the handshake request.
    early_change: bool,
    now: u64,
    phase: Phase,
    handshake_at: Option<u64>,
    opening: Option<Opening>,
    /// This end is a client that has chosen stateless requests.
    is_stateless: bool,
    /// This end is a server whose peer need not make the handshake.
    is_handshake_optional: bool,
    /// The least severe level of log records that this end sends (`level`), and asks for (`wanted_level`).
    level: Level,
    wanted_level: Option<Level>,
    subscriber: Subscriber,
    /// The number of requests that were sent.
    requests: u64,
    /// The lane and the id of the peer's handshake request.
    greeting_of_peer: Option<(Lane, String)>,
    ending: Ending,
    peer_ended: bool,
    close_at: Option<u64>,
    /// The number of the next id.
    next: u64,
    calls: BTreeMap<u64, Call>,
    inbound_calls: BTreeMap<u64, InboundCall>,
    input_requests: BTreeMap<u64, InputRequest>,
    peer_input_requests: BTreeMap<u64, PeerInputRequest>,
    alarms: BTreeMap<u64, u64>,
    /// The ids of the peer that are in use.
    live: BTreeMap<(Lane, String), Owner>,
    /// The remembered ids of ended requests of the peer.
    past: VecDeque<String>,
    /// The highest number that the peer has used as an id.
    highest: Option<i64>,
    /// The instant until which progress of unknown calls is not reported again.
    quiet_until: u64,
    out: VecDeque<Waiting>,
    events: VecDeque<String>,
    /// Lanes that are stopped.
    stopped: BTreeSet<Lane>,
    /// The number of places ([`InboundCall::place`]) that were assigned.
    places: u64,
    /// The lane of the frame that is being handled, and the number of replies that will be sent because of it.
    arriving: (Lane, usize),
}

/// The revision without a handshake.
const REVISION: &str = "2026-07-28";

impl Call {
    /// The change of the subscription that this call, with the number `id`, asks for.
    fn change(&self, id: u64) -> Change {
        Change { call: id, uri: self.uri.clone(), adds: self.op == Op::Subscribe, is_superseded: false }
    }
}

fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The result that a model predicts by a name: the name of an error, or of a value that is not an id.
fn by_name(name: &str) -> MethodResult {
    Err(name.to_owned())
}

impl Model {
    /// The model of a session that begins at `now`.
    #[must_use]
    pub(crate) fn new(config: &Config, now: u64) -> Self {
        let (terms, client, opens) = match &config.protocol {
            Protocol::Mcp { side, .. } => (MCP, *side == mcp::Side::Client, *side == mcp::Side::Client),
            Protocol::Tesseron(tesseron::End::App(_)) => (TESSERON, false, true),
            _ => (TESSERON, true, false),
        };
        let mut model = Self {
            config: config.clone(),
            terms,
            client,
            peer_can: Declared::default(),
            early_change: false,
            now,
            phase: Phase::Fresh,
            handshake_at: None,
            opening: None,
            is_stateless: false,
            is_handshake_optional: false,
            level: config.log_level,
            wanted_level: None,
            subscriber: Subscriber::default(),
            requests: 0,
            greeting_of_peer: None,
            ending: Ending::Open,
            peer_ended: false,
            close_at: None,
            next: 1,
            calls: BTreeMap::new(),
            inbound_calls: BTreeMap::new(),
            input_requests: BTreeMap::new(),
            peer_input_requests: BTreeMap::new(),
            alarms: BTreeMap::new(),
            live: BTreeMap::new(),
            past: VecDeque::new(),
            highest: None,
            quiet_until: now,
            out: VecDeque::new(),
            events: VecDeque::new(),
            stopped: BTreeSet::new(),
            places: 0,
            arriving: (Lane::CHANNEL, 0),
        };
        match opens {
            true if client && !terms.names && config.era != Era::Legacy => model.probe(false),
            true => model.greet(None),
            false if config.era == Era::Modern => model.is_handshake_optional = true,
            false => model.limit_handshake(),
        }
        model
    }

    // ---- The choice of an era ----

    /// Sends a probe. If `is_last`, no handshake follows it.
    fn probe(&mut self, is_last: bool) {
        let exchange = self.number();
        let summary = format!("request {exchange} server/discover stateless");
        self.push(Kind::Request(exchange), Lane::CHANNEL, format!("request {exchange}"), summary);
        (self.phase, self.opening) = (Phase::Opened, Some(Opening::Probe { exchange, is_last }));
        self.limit_handshake();
    }

    /// Sends the handshake request. `late_probe` is the probe before it, if that has no answer yet.
    fn greet(&mut self, late_probe: Option<u64>) {
        let exchange = self.number();
        let summary = format!("request {exchange} {}", self.terms.greeting);
        self.push(Kind::Request(exchange), Lane::CHANNEL, format!("request {exchange}"), summary);
        (self.phase, self.opening) = (Phase::Opened, Some(Opening::Greeting { exchange, late_probe }));
        self.limit_handshake();
    }

    /// The exchange of a probe after which a handshake may still follow.
    fn first_probe(&self) -> Option<u64> {
        match self.opening {
            Some(Opening::Probe { exchange, is_last: false }) if self.config.era != Era::Modern => Some(exchange),
            _ => None,
        }
    }

    fn is_probing(&self) -> bool {
        matches!(self.opening, Some(Opening::Probe { .. }))
    }

    fn limit_handshake(&mut self) {
        let timeouts = &self.config.timeouts;
        let probe = timeouts.probe.filter(|_| self.first_probe().is_some());
        let span = [timeouts.handshake, probe].into_iter().flatten().min();
        self.handshake_at = span.map(|span| self.now + micros(span));
        if span.is_some_and(|span| span.is_zero()) {
            self.expire_handshake();
        }
    }

    fn expire_handshake(&mut self) {
        self.handshake_at = None;
        match self.first_probe() {
            Some(probe) => self.greet(Some(probe)),
            None => self.fail("HandshakeTimeout"),
        }
    }

    /// Chooses the era by the answer to a probe.
    fn take_probe_answer(&mut self, frame: &Value, is_last: bool, is_late: bool) {
        let (result, error) = (&frame["result"], frame.get("error"));
        let has_revision = |versions: &Value| versions.as_array().is_some_and(|all| all.contains(&Value::from(REVISION)));
        if result.is_object() && has_revision(&result["supportedVersions"]) {
            return self.begin_stateless(&result["capabilities"]);
        }
        if is_late {
            if let Some(Opening::Greeting { late_probe, .. }) = &mut self.opening {
                *late_probe = None;
            }
            return;
        }
        if error.is_some_and(|error| error["code"] == RpcError::UNSUPPORTED_VERSION && has_revision(&error["data"]["supported"]))
            && !is_last
        {
            return self.probe(true);
        }
        if !is_last && self.config.era != Era::Modern {
            return self.greet(None);
        }
        if let Some(error) = error {
            self.push_event(format!("refused {}", error["code"]));
        }
        self.fail("VersionMismatch");
    }

    fn begin_stateless(&mut self, server: &Value) {
        if let Some(Opening::Greeting { exchange, .. }) = self.opening {
            self.take_back(exchange);
        }
        (self.phase, self.opening, self.handshake_at, self.is_stateless) = (Phase::Ready, None, None, true);
        self.push_event("ready".to_owned());
        let lists = ["tools", "prompts", "resources"].into_iter().filter(|kind| server[*kind]["listChanged"] == true);
        let lists: Kinds = lists.map(str::to_owned).collect();
        if self.config.list_changes && self.ending == Ending::Open && !lists.is_empty() {
            let exchange = self.number();
            let index = self.ask_to_listen(exchange, &lists);
            self.subscriber.wanted = lists;
            self.subscriber.current = Some(Subscription { exchange, index, accepted: None });
            let limit = self.config.timeouts.acknowledgement;
            self.subscriber.acknowledge_by = limit.map(|limit| self.now + micros(limit).max(1));
        }
        self.release_held();
    }

    /// Returns `true` for a server whose peer has made no handshake, and sends stateless requests instead.
    fn is_without_handshake(&self) -> bool {
        self.is_handshake_optional && self.phase == Phase::Fresh
    }

    // ---- The subscription of a client ----

    fn level_words(&self) -> String {
        self.wanted_level.map_or_else(String::new, |level| format!(" level {}", level.as_str()))
    }

    fn ask_to_listen(&mut self, exchange: u64, kinds: &Kinds) -> u64 {
        let summary =
            format!("request {exchange} {} stateless{} wants {}", summary::LISTEN, self.level_words(), summary::kinds(kinds));
        self.push(Kind::Request(exchange), Lane::CHANNEL, format!("request {exchange}"), summary);
        self.requests += 1;
        self.requests
    }

    /// The wanted kinds after all changes in flight, and then `change`.
    fn wanted_with(&self, change: &Change) -> Kinds {
        let mut kinds = self.subscriber.wanted.clone();
        self.subscriber.changes.iter().filter(|change| !change.is_superseded).for_each(|change| change.apply(&mut kinds));
        change.apply(&mut kinds);
        kinds
    }

    /// Handles a call that needs no request. Returns `false` if the call needs one.
    fn serve_locally(&mut self, call: &Call) -> bool {
        match call.op {
            Op::SetLogLevel => {
                self.wanted_level = call.given["level"].as_str().and_then(Level::from_name);
                true
            }
            Op::Unsubscribe if self.wanted_with(&call.change(0)).is_empty() => {
                self.subscriber.wanted.clear();
                self.subscriber.changes.iter_mut().for_each(|change| change.is_superseded = true);
                self.subscriber.acknowledge_by = None;
                if let Some(ended) = self.subscriber.current.take() {
                    self.end_subscription(ended.exchange);
                }
                true
            }
            _ => false,
        }
    }

    /// Withdraws the request of a subscription, or cancels the subscription.
    fn end_subscription(&mut self, exchange: u64) {
        if !self.take_back(exchange) {
            self.push_plain(Lane::CHANNEL, format!("cancel {exchange}"), format!("cancel {exchange}"));
        }
    }

    fn is_current(&self, exchange: u64) -> bool {
        self.subscriber.current.as_ref().is_some_and(|current| current.exchange == exchange)
    }

    fn forget_unwanted(&mut self) {
        let Subscriber { wanted, current, changes, .. } = &mut self.subscriber;
        if current.is_none() && changes.iter().all(|change| change.is_superseded) {
            wanted.clear();
        }
    }

    fn take_acknowledged(&mut self, exchange: Option<u64>, accepted: &Kinds) {
        let unknown = Violation::UnknownSubscription;
        let Some(id) = exchange.filter(|exchange| *exchange < self.next && !(self.is_current(*exchange) && self.waits(*exchange)))
        else {
            return self.violation(unknown);
        };
        let Subscriber { current, changes, acknowledge_by, .. } = &mut self.subscriber;
        if let Some(current) = current.as_mut().filter(|current| current.exchange == id && current.accepted.is_none()) {
            current.accepted = Some(accepted.clone());
            *acknowledge_by = None;
            return;
        }
        let Some((op, index)) = self.calls.get(&id).filter(|call| !call.held).map(|call| (call.op, call.index)) else { return };
        let at = changes.iter().position(|change| change.call == id);
        let Some(at) = at.filter(|_| !self.waits(id)) else {
            if op != Op::Listen || self.waits(id) {
                self.violation(unknown);
            } else if let Some(call) = self.calls.get_mut(&id) {
                call.timeouts.idle = None;
            }
            return;
        };
        let Subscriber { wanted, current, changes, acknowledge_by } = &mut self.subscriber;
        if changes[at].adds && !accepted.contains(&changes[at].uri) {
            self.finish_call(id, "invalid");
            return self.push_plain(Lane::CHANNEL, format!("cancel {id}"), format!("cancel {id}"));
        }
        let change = changes.remove(at);
        let ended = if change.is_superseded {
            Some(id)
        } else {
            change.apply(wanted);
            changes[..at].iter_mut().filter(|older| older.uri == change.uri).for_each(|older| older.is_superseded = true);
            let accepted = Some(accepted.clone());
            match current {
                Some(current) if current.index > index => Some(id),
                _ => {
                    *acknowledge_by = None;
                    current.replace(Subscription { exchange: id, index, accepted }).map(|ended| ended.exchange)
                }
            }
        };
        if let Some(ended) = ended {
            self.end_subscription(ended);
        }
        self.finish_call(id, "result");
    }

    fn take_published(&mut self, exchange: Option<u64>, kind: &str) {
        let Some(id) = exchange.filter(|exchange| *exchange < self.next) else {
            return self.violation(Violation::UnknownSubscription);
        };
        let call = self.calls.get(&id);
        let listens = call.is_some_and(|call| call.op == Op::Listen && !call.held) && !self.waits(id);
        let Subscriber { wanted, current, .. } = &self.subscriber;
        let current = current.as_ref().filter(|current| current.exchange == id);
        let accepted = current.and_then(|current| current.accepted.clone()).unwrap_or_default();
        let is_list = |kind: &str| ["tools", "prompts", "resources"].contains(&kind);
        // A notice may be about a part of the resource that the subscription names, so any resource counts.
        let has = |kinds: &Kinds| if is_list(kind) { kinds.contains(kind) } else { kinds.iter().any(|kind| !is_list(kind)) };
        let is_known = current.is_some() || call.is_some();
        if listens || has(&common_kinds(&accepted, wanted)) {
            self.push_event("notice".to_owned());
        } else if is_known && (is_list(kind) || !has(&accepted)) {
            self.violation(Violation::UnknownSubscription);
        }
    }

    /// Handles the end of the current subscription by the server, or by a loss.
    fn end_current(&mut self, exchange: u64) {
        let ended = self.subscriber.current.take_if(|current| current.exchange == exchange);
        if ended.is_some() {
            self.subscriber.acknowledge_by = None;
        }
        self.forget_unwanted();
        if ended.is_some_and(|ended| ended.accepted.is_some()) {
            self.push_event("notice".to_owned());
        }
    }

    fn take_subscription_cancel(&mut self, exchange: Option<u64>) {
        let Some(id) = exchange else { return };
        let changes = self.subscriber.changes.iter().any(|change| change.call == id);
        match self.calls.get(&id) {
            Some(call) if (call.op == Op::Listen || changes) && !call.held && !self.waits(id) => self.finish_call(id, "lost"),
            Some(_) => {}
            None if self.is_current(id) && self.waits(id) => {}
            None => self.end_current(id),
        }
    }

    /// The state on which predictions depend, as text. Times are relative to `now`, except those of alarms.
    #[must_use]
    pub(crate) fn digest(&self, now: u64) -> String {
        let from_now = |at: &mut u64| *at = at.wrapping_sub(now);
        let (mut calls, mut inbound_calls, mut input_requests) =
            (self.calls.clone(), self.inbound_calls.clone(), self.input_requests.clone());
        for call in calls.values_mut() {
            [call.latest.as_mut(), Some(&mut call.last_activity), Some(&mut call.asked_since), call.quiet_until.as_mut()]
                .into_iter()
                .flatten()
                .for_each(from_now);
        }
        for inbound in inbound_calls.values_mut() {
            [Some(&mut inbound.received), inbound.deadline.as_mut(), inbound.last_sent.as_mut()]
                .into_iter()
                .flatten()
                .for_each(from_now);
            inbound.counted.iter_mut().for_each(from_now);
            if let InboundState::Answered { at, .. } = &mut inbound.state {
                from_now(at);
            }
        }
        input_requests.values_mut().filter_map(|input| input.at.as_mut()).for_each(from_now);
        let [handshake, close] = [self.handshake_at, self.close_at].map(|at| at.map(|at| at.wrapping_sub(now)));
        let phases =
            (self.phase, self.ending, self.peer_ended, handshake, close, self.next, self.now.wrapping_sub(now), self.peer_can);
        let peer = (&self.peer_input_requests, &self.live, &self.past, self.highest);
        // Of the index of a request only this matters: whether it is greater than that of the current subscription.
        let mut subscriber = self.subscriber.clone();
        subscriber.acknowledge_by.iter_mut().for_each(from_now);
        if let Some(current) = &mut subscriber.current {
            let index = std::mem::take(&mut current.index);
            calls.values_mut().for_each(|call| call.index = u64::from(call.index > index));
        } else {
            calls.values_mut().for_each(|call| call.index = 0);
        }
        let eras = (self.opening, &self.greeting_of_peer, self.is_stateless, self.is_handshake_optional);
        let levels = (self.level, self.wanted_level);
        format!(
            "{phases:?} {calls:?} {inbound_calls:?} {input_requests:?} {peer:?} {:?} {:?} {:?} {:?} {eras:?} {levels:?} {subscriber:?}",
            self.alarms, self.out, self.events, self.stopped
        )
    }

    // ---- Polling ----

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    /// The next frame of a lane, or of any lane for `None`, with the kind of its route. The order between lanes is not predicted.
    pub(crate) fn poll_transmit(&mut self, lane: Option<Lane>) -> Option<String> {
        let may_leave = |waiting: &Waiting| !self.stopped.contains(&waiting.lane) && lane.is_none_or(|lane| lane == waiting.lane);
        let Waiting { route, summary, .. } = self.out.iter().position(may_leave).and_then(|next| self.out.remove(next))?;
        self.settle_ending();
        Some(format!("{summary} as {route}"))
    }

    /// The next deadline.
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.due().map(|(at, _)| at)
    }

    /// Returns `true` if the session takes frames of this lane.
    #[must_use]
    pub(crate) fn wants_input(&self, lane: Lane) -> bool {
        let is_known = self.is_open(lane) || self.open_lanes().len() < self.config.limits.lanes;
        is_known && self.ending != Ending::Closed && self.events.len() < self.config.limits.events
    }

    /// The lanes other than the channel that have queued frames or open requests, or that are stopped.
    #[must_use]
    pub(crate) fn open_lanes(&self) -> BTreeSet<Lane> {
        let inbound_calls = self
            .inbound_calls
            .values()
            .filter(|inbound| !matches!(inbound.state, InboundState::Cancelled))
            .map(|inbound| inbound.lane);
        let peer_input = self.peer_input_requests.values().map(|peer_input| peer_input.lane);
        let waiting = self.out.iter().map(|waiting| waiting.lane);
        let all = inbound_calls.chain(peer_input).chain(waiting).chain(self.stopped.iter().copied());
        all.filter(|lane| *lane != Lane::CHANNEL).collect()
    }

    /// Returns `true` for the channel, and for each of [`Self::open_lanes`].
    #[must_use]
    pub(crate) fn is_open(&self, lane: Lane) -> bool {
        lane == Lane::CHANNEL || self.open_lanes().contains(&lane)
    }

    /// The number of requests that came on a lane and have no reply yet.
    #[must_use]
    pub(crate) fn replies_owed(&self, lane: Lane) -> usize {
        let inbound_calls =
            self.inbound_calls.values().filter(|inbound| inbound.lane == lane && !matches!(inbound.state, InboundState::Cancelled));
        inbound_calls.count() + self.peer_input_requests.values().filter(|peer_input| peer_input.lane == lane).count()
    }

    /// Returns `true` once the session is closed.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.ending == Ending::Closed
    }

    /// The numbers of outbound calls, of inbound calls, and of inbound calls that are cancelled.
    #[must_use]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.calls.len(), self.inbound_calls.len(), self.cancelled())
    }

    fn cancelled(&self) -> usize {
        self.inbound_calls.values().filter(|inbound| matches!(inbound.state, InboundState::Cancelled)).count()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Queues a frame of [`Kind::Plain`].
    fn push_plain(&mut self, lane: Lane, route: impl Into<String>, summary: String) {
        self.push(Kind::Plain, lane, route, summary);
    }

    fn push(&mut self, kind: Kind, lane: Lane, route: impl Into<String>, summary: String) {
        self.out.push_back(Waiting { kind, lane, route: route.into(), summary });
    }

    /// Queues the reply to an inbound call.
    fn reply(&mut self, lane: Lane, summary: String) {
        self.push_plain(lane, if summary.starts_with("error ") { "error" } else { "result" }, summary);
    }

    /// Queues an event.
    fn push_event(&mut self, event: String) {
        self.events.push_back(event);
    }

    fn violation(&mut self, rule: Violation) {
        self.push_event(format!("violation {rule:?}"));
    }

    /// Returns `true` if the frame of a request of ours is still queued.
    fn waits(&self, request: u64) -> bool {
        self.out.iter().any(|waiting| waiting.kind == Kind::Request(request))
    }

    /// Withdraws a request of ours that is still queued. Returns `false` if it is not queued.
    fn take_back(&mut self, request: u64) -> bool {
        let before = self.out.len();
        self.out.retain(|waiting| waiting.kind != Kind::Request(request));
        self.out.len() < before
    }

    /// The number of unpolled events about the end of calls and of outbound input requests.
    fn settled_waiting(&self) -> usize {
        self.events.iter().filter(|event| event.starts_with("done ") || event.starts_with("input ")).count()
    }

    // ---- Time ----

    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// The instant of the earlier time limit of a call, and the name of that limit.
    fn call_deadline(call: &Call) -> Option<(u64, &'static str)> {
        if call.held || !call.peer_input_requests.is_empty() {
            return None;
        }
        let idle = call.timeouts.idle.map(|idle| (call.last_activity + micros(idle), "idle"));
        let total = call.latest.map(|latest| (latest, "in all"));
        match (idle, total) {
            (Some(idle), Some(total)) if idle.0 < total.0 => Some(idle),
            (idle, total) => total.or(idle),
        }
    }

    /// Returns `true` if there is a kept update, and it has a value, which MCP requires.
    fn can_flush(&self, inbound: &InboundCall) -> bool {
        inbound.kept.as_ref().is_some_and(|kept| kept.value.is_some() || self.terms.percent)
    }

    fn due(&self) -> Option<(u64, Due)> {
        if self.ending == Ending::Closed {
            return None;
        }
        let mut all: BTreeSet<(u64, Due)> = BTreeSet::new();
        all.extend(self.handshake_at.map(|at| (at, Due::Handshake)));
        all.extend(self.close_at.map(|at| (at, Due::Close)));
        all.extend(self.calls.iter().filter_map(|(id, call)| Self::call_deadline(call).map(|(at, _)| (at, Due::Call(*id)))));
        all.extend(self.input_requests.iter().filter_map(|(key, input)| input.at.map(|at| (at, Due::InputRequest(*key)))));
        all.extend(self.alarms.iter().map(|(id, at)| (*at, Due::Alarm(*id))));
        all.extend(self.subscriber.acknowledge_by.map(|at| (at, Due::Acknowledgement)));
        for (id, inbound) in &self.inbound_calls {
            match &inbound.state {
                InboundState::Active => {
                    all.extend(inbound.deadline.map(|at| (at, Due::InboundCall(*id))));
                    // The oldest of the updates that fill the window.
                    let oldest =
                        inbound.counted.len().checked_sub(inbound.rate.updates as usize).and_then(|at| inbound.counted.get(at));
                    let waits = inbound.place.is_none() && self.can_flush(inbound);
                    all.extend(oldest.filter(|_| waits).map(|at| (*at + micros(inbound.rate.length), Due::Flush(*id))));
                }
                InboundState::Answered { at, .. } => all.extend([(*at, Due::Release(*id))]),
                InboundState::Cancelled => {}
            }
        }
        all.first().copied()
    }

    /// [`protocol_core::Session::handle_timeout`].
    pub(crate) fn handle_timeout(&mut self, now: u64) {
        self.advance(now);
        while let Some((_, due)) = self.due().filter(|(at, _)| *at <= self.now) {
            match due {
                Due::Handshake => self.expire_handshake(),
                Due::Close => {
                    self.close_at = None;
                    self.close_is_due();
                }
                Due::Call(id) => {
                    let call = &self.calls[&id];
                    let limit = Self::call_deadline(call).map_or("", |(_, limit)| limit);
                    let is_ping = call.method == "ping";
                    self.settle_call(id, &format!("timed out {limit}"));
                    if is_ping {
                        self.violation(Violation::PingUnanswered);
                    }
                }
                Due::InputRequest(key) => {
                    if let Some(input) = self.withdraw_input_request(key) {
                        self.push_answer(key, &input, "timed out");
                    }
                }
                Due::InboundCall(id) => self.cut_short(id, "deadline"),
                Due::Flush(id) => self.flush(id),
                Due::Release(id) => self.release(id),
                Due::Alarm(id) => {
                    self.alarms.remove(&id);
                    self.push_event(format!("alarm {id}"));
                }
                Due::Acknowledgement => {
                    self.subscriber.acknowledge_by = None;
                    if let Some(expired) = self.subscriber.current.take() {
                        self.end_subscription(expired.exchange);
                        self.forget_unwanted();
                        self.violation(Violation::SubscriptionUnacknowledged);
                    }
                }
            }
        }
        self.settle_ending();
    }

    // ---- As a caller ----

    /// [`protocol_core::Session::invoke`].
    pub(crate) fn invoke(&mut self, call: &Invoke, now: u64) -> MethodResult {
        self.advance(now);
        if self.ending != Ending::Open {
            return by_name("Closing");
        }
        let depth = match call.parent {
            None => 0,
            Some(key) => match self.peer_input_requests.get(&summary::number(key)) {
                Some(peer_input) => peer_input.depth,
                None => return by_name("NoParent"),
            },
        };
        if self.is_without_handshake() && call.op() == Op::Ping {
            return by_name("NotReady");
        }
        if !self.client && (self.terms.names || !matches!(call.op(), Op::Ping | Op::Custom)) {
            return by_name("WrongEnd");
        }
        if self.client && self.phase == Phase::Ready && !self.offers(call.op()) {
            return by_name("Unsupported");
        }
        if self.terms.names && self.phase != Phase::Ready {
            return by_name("NotReady");
        }
        if self.terms.names && call.op() != Op::CallTool {
            return by_name("Unsupported");
        }
        if self.calls.len() + self.settled_waiting() >= self.config.limits.in_flight {
            return by_name("Full");
        }
        let id = self.number();
        let timeouts = self.config.timeouts;
        let until_acknowledged = CallTimeouts::NONE.with_idle(timeouts.acknowledgement);
        let ordinary = if call.op() == Op::Listen { until_acknowledged } else { timeouts.call };
        let call_timeouts = call.timeouts.unwrap_or(ordinary);
        let observed = self.terms.names || call.progress || (call_timeouts.reset_on_progress && call_timeouts.idle.is_some());
        let method = if call.op() == Op::CallTool { self.terms.call } else { summary::op(call.op()) };
        let held = !(self.phase == Phase::Ready || (method == "ping" && !self.is_probing()));
        let (now, last, peer_input_requests) = (self.now, None, Vec::new());
        let given = call.given().and_then(|given| serde_json::from_str(given.as_str()).ok()).unwrap_or_default();
        let made = Call {
            op: call.op(),
            method,
            given,
            uri: call.target().map_or_else(String::new, std::borrow::Cow::into_owned),
            is_stateless: self.is_stateless,
            index: 0,
            latest: None,
            last_activity: now,
            asked_since: now,
            timeouts: call_timeouts,
            observed,
            depth,
            held: true,
            floor: None,
            last,
            quiet_until: None,
            peer_input_requests,
        };
        if !held && self.is_stateless && self.serve_locally(&made) {
            self.push_event(format!("done {id} result"));
            return Ok(id);
        }
        self.calls.insert(id, made);
        if !held {
            self.send_call(id);
        }
        Ok(id)
    }

    /// Returns `true` if the server has requests of this kind in the chosen era. The server declares all capabilities.
    fn offers(&self, op: Op) -> bool {
        match op {
            Op::Ping => self.terms.names || !self.is_stateless,
            Op::Listen => self.is_stateless,
            _ => true,
        }
    }

    /// Sends a held call, if the server has requests of its kind in the chosen era.
    fn release_call(&mut self, id: u64) {
        let Some(mut call) = self.calls.get(&id).cloned() else { return };
        if !self.offers(call.op) {
            return self.settle_call(id, "invalid");
        }
        let is_over = [call.timeouts.idle, call.timeouts.max_total].into_iter().flatten().any(|span| span.is_zero());
        if self.is_stateless && !is_over && self.serve_locally(&call) {
            return self.finish_call(id, "result");
        }
        call.is_stateless = self.is_stateless;
        self.calls.insert(id, call);
        self.send_call(id);
    }

    fn send_call(&mut self, id: u64) {
        let (name, names) = (self.name(id), self.terms.names);
        let (level, is_stateless) = (self.level_words(), self.is_stateless);
        let Some(call) = self.calls.get_mut(&id) else { return };
        (call.last_activity, call.asked_since, call.held) = (self.now, self.now, false);
        call.latest = call.timeouts.max_total.map(|total| self.now + micros(total));
        if let Some((_, limit)) = Self::call_deadline(call).filter(|(at, _)| *at <= self.now) {
            // `settle_call` sends no cancel for a held call, and the request of this call is not sent.
            call.held = true;
            return self.settle_call(id, &format!("timed out {limit}"));
        }
        if is_stateless && matches!(call.op, Op::Subscribe | Op::Unsubscribe) {
            let change = call.change(id);
            let kinds = self.wanted_with(&change);
            self.subscriber.changes.push(change);
            let index = self.ask_to_listen(id, &kinds);
            if let Some(call) = self.calls.get_mut(&id) {
                call.index = index;
            }
            return;
        }
        let mut summary = format!("request {id} {}", call.method);
        if is_stateless {
            summary += " stateless";
        }
        if call.observed {
            summary += &format!(" token {name}");
        }
        if call.depth > 0 && !names {
            summary += &format!(" depth {}", call.depth);
        }
        if is_stateless {
            summary += &level;
        }
        if call.op == Op::Listen {
            summary += &format!(" wants {}", summary::kinds(&summary::read_kinds(&call.given)));
        }
        self.requests += 1;
        call.index = self.requests;
        self.push(Kind::Request(id), Lane::CHANNEL, format!("request {id}"), summary);
    }

    /// The name that the other end uses for a call of ours.
    fn name(&self, id: u64) -> String {
        if self.terms.names { format!("\"inv_{id}\"") } else { id.to_string() }
    }

    /// [`protocol_core::Session::claim`], for an agent with all capabilities.
    pub(crate) fn claim(&mut self, now: u64) -> MethodResult {
        self.advance(now);
        if !self.client || !self.terms.names {
            return by_name("WrongEnd");
        }
        if self.ending != Ending::Open {
            return by_name("Closing");
        }
        match self.phase {
            Phase::Ready => return Ok(0),
            Phase::Answered => {}
            Phase::Fresh | Phase::Opened => return by_name("NotReady"),
        }
        self.push_plain(Lane::CHANNEL, "notice", "notice tesseron/claimed".to_owned());
        self.phase = Phase::Ready;
        self.settle_ending();
        Ok(0)
    }

    /// [`protocol_core::Session::cancel`].
    pub(crate) fn cancel(&mut self, id: u64, now: u64) -> MethodResult {
        self.advance(now);
        if !self.calls.contains_key(&id) {
            return by_name("NotLive");
        }
        self.settle_call(id, "cancelled");
        self.settle_ending();
        Ok(0)
    }

    /// [`protocol_core::Session::provide_input`].
    pub(crate) fn provide_input(&mut self, key: u64, answer: &Answer, now: u64) -> MethodResult {
        self.advance(now);
        let Some(peer_input) = self.peer_input_requests.remove(&key) else { return by_name("NotLive") };
        let summary = match answer {
            Answer::Refused(error) => format!("error {} {}", peer_input.wire, error.code),
            _ => format!("result {}", peer_input.wire),
        };
        self.push_plain(peer_input.lane, format!("answer {key}"), summary);
        self.retire(peer_input.lane, &peer_input.wire);
        self.remove_from_call(peer_input.parent, key);
        self.settle_ending();
        Ok(0)
    }

    /// Ends a call at this end: withdraws its request, or else cancels it at the peer, unless it is held, a ping, or lost.
    fn settle_call(&mut self, id: u64, outcome: &str) {
        let Some(call) = self.calls.get(&id) else { return };
        let sends_cancel = !call.held && call.method != "ping" && outcome != "lost";
        if !self.take_back(id) && sends_cancel {
            self.push_plain(Lane::CHANNEL, format!("cancel {id}"), format!("cancel {}", self.name(id)));
        }
        self.finish_call(id, outcome);
    }

    /// Removes a call that has ended, and queues the event about it.
    fn finish_call(&mut self, id: u64, outcome: &str) {
        let Some(call) = self.calls.remove(&id) else { return };
        if !self.subscriber.changes.is_empty() {
            self.subscriber.changes.retain(|change| change.call != id);
            self.forget_unwanted();
        }
        for key in call.peer_input_requests {
            self.refuse_peer_input_request(key);
        }
        let last = call.last.map_or_else(String::new, |last| format!(" last {}", summary::progress(&last)));
        self.push_event(format!("done {id} {outcome}{last}"));
    }

    fn refuse_peer_input_request(&mut self, key: u64) {
        if let Some(peer_input) = self.withdraw_peer_input_request(key)
            && self.may_write()
        {
            self.push_plain(peer_input.lane, format!("answer {key}"), format!("error {} {}", peer_input.wire, self.terms.over));
        }
    }

    fn withdraw_peer_input_request(&mut self, key: u64) -> Option<PeerInputRequest> {
        let peer_input = self.peer_input_requests.remove(&key)?;
        self.retire(peer_input.lane, &peer_input.wire);
        self.push_event(format!("gone {key}"));
        Some(peer_input)
    }

    fn remove_from_call(&mut self, parent: Option<u64>, key: u64) {
        if let Some(call) = parent.and_then(|id| self.calls.get_mut(&id)) {
            call.peer_input_requests.retain(|open| *open != key);
            if call.peer_input_requests.is_empty() {
                call.last_activity = self.now;
                call.latest = call.latest.map(|latest| self.now + latest.saturating_sub(call.asked_since).max(1));
            }
        }
    }

    fn may_write(&self) -> bool {
        matches!(self.ending, Ending::Open | Ending::Finishing(_))
    }

    // ---- As a callee ----

    fn active(&mut self, id: u64) -> Option<&mut InboundCall> {
        self.inbound_calls.get_mut(&id).filter(|inbound| matches!(inbound.state, InboundState::Active))
    }

    /// [`protocol_core::Session::configure`].
    pub(crate) fn configure(&mut self, id: u64, options: ServeOptions, now: u64) -> MethodResult {
        self.advance(now);
        let now = self.now;
        let Some(inbound) = self.active(id) else { return by_name("NotLive") };
        if let Some(window) = options.window {
            inbound.rate = window;
            while inbound.counted.len() > window.updates as usize {
                inbound.counted.pop_front();
            }
        }
        let at = options.deadline.map(|deadline| inbound.received + micros(deadline));
        inbound.deadline = at.or(inbound.deadline);
        if options.window.is_some() {
            self.flush(id);
        }
        if at.is_some_and(|at| at <= now) {
            self.cut_short(id, "deadline");
        }
        if at.is_some() {
            self.settle_ending();
        }
        Ok(0)
    }

    /// [`protocol_core::Session::progress`], for numbers that are finite and not negative. Returns the name of the `Reported` value as an
    /// error.
    pub(crate) fn progress(&mut self, id: u64, update: &Progress, now: u64) -> MethodResult {
        self.advance(now);
        let (percent, has_peer_ended) = (self.terms.percent, self.peer_ended);
        let Some(inbound) = self.active(id) else { return by_name("NotLive") };
        if let (Some(value), Some(total)) = (update.value, update.total)
            && value > total
        {
            return by_name("AboveTotal");
        }
        if inbound.token.is_none() || has_peer_ended {
            return by_name("Unobserved");
        }
        let mut update = update.clone();
        if percent {
            let share = |value: f64| update.total.map_or(value, |total| 100.0 * value / total).clamp(0.0, 100.0);
            update.value = update.value.map(share);
            update.total = update.value.map(|_| 100.0);
        }
        if update.value.is_some_and(|value| inbound.floor.is_some_and(|floor| value <= floor)) {
            (update.value, update.total) = (None, None);
            if update.message.is_none() {
                return by_name("NotIncreasing");
            }
        }
        if update.value.is_none() && inbound.floor.is_none() && !percent {
            update.value = Some(0.0);
        }
        inbound.floor = update.value.or(inbound.floor);
        let kept = inbound.kept.get_or_insert_default();
        if update.value.is_some() {
            (kept.value, kept.total) = (update.value, update.total);
        } else if update.total.is_some() {
            kept.total = update.total;
        }
        if update.message.is_some() {
            kept.message = update.message;
        }
        self.flush(id);
        by_name(match self.inbound_calls.get(&id) {
            Some(InboundCall { place: Some(_), .. }) => "Congested",
            Some(InboundCall { kept: Some(_), .. }) => "RateLimited",
            _ => "Sent",
        })
    }

    fn flush(&mut self, id: u64) {
        if self
            .inbound_calls
            .get(&id)
            .is_some_and(|inbound| inbound.listener.as_ref().is_some_and(|listener| !listener.waiting.is_empty()))
        {
            return self.flush_notices(id);
        }
        let (now, next) = (self.now, self.places);
        let can_flush = self.inbound_calls.get(&id).is_some_and(|inbound| self.can_flush(inbound));
        let is_stopped = self.inbound_calls.get(&id).is_some_and(|inbound| self.stopped.contains(&inbound.lane));
        let Some(inbound) = self.active(id).filter(|_| can_flush) else { return };
        let is_whole = |kept: &Progress| kept.value.is_some() && kept.value == kept.total;
        let is_final = inbound.kept.as_ref().is_some_and(is_whole) && !inbound.final_passed;
        let unlimited = inbound.rate.length.is_zero();
        let recent = inbound.counted.iter().filter(|at| **at + micros(inbound.rate.length) > now).count();
        if !is_final && !unlimited && recent >= inbound.rate.updates as usize {
            inbound.place = None;
            return;
        }
        if is_stopped {
            // An update that becomes final while it waits gets a new place.
            if inbound.place.is_none_or(|(comes_later, _)| comes_later == is_final) {
                inbound.place = Some((!is_final, next));
                self.places += 1;
            }
            return;
        }
        if is_final {
            inbound.final_passed = true;
        } else if !unlimited {
            inbound.counted.push_back(now);
            while inbound.counted.len() > inbound.rate.updates as usize {
                inbound.counted.pop_front();
            }
        }
        self.send_progress(id);
    }

    // ---- The subscriptions of a server ----

    /// [`protocol_core::Session::accept_subscription`].
    pub(crate) fn accept_subscription(&mut self, id: u64, offered: &SubscriptionFilter, now: u64) -> MethodResult {
        self.advance(now);
        let now = self.now;
        let Some(inbound) = self.active(id) else { return by_name("NotLive") };
        let Some(listener) = inbound.listener.as_mut().filter(|listener| !listener.is_accepted) else {
            return by_name("NotLive");
        };
        listener.kinds = common_kinds(&listener.kinds, &summary::filter(offered));
        listener.is_accepted = true;
        let summary = format!("notice {} of {} wants {}", summary::ACKNOWLEDGED, inbound.wire, summary::kinds(&listener.kinds));
        inbound.last_sent = Some(now);
        let lane = inbound.lane;
        self.push(Kind::Progress(id), lane, "within", summary);
        self.settle_ending();
        Ok(0)
    }

    /// [`protocol_core::Session::publish`].
    pub(crate) fn publish(&mut self, notice: &Notice, now: u64) -> MethodResult {
        self.advance(now);
        let (kind, method) = summary::published(notice);
        let mut reached = 0;
        for id in self.inbound_calls.keys().copied().collect::<Vec<_>>() {
            let Some(inbound) = self.active(id) else { continue };
            let wire = &inbound.wire;
            let Some(listener) = inbound.listener.as_mut().filter(|one| one.is_accepted && one.kinds.contains(&kind)) else {
                continue;
            };
            let summary = format!("notice {method} of {wire} about {kind}");
            if !listener.waiting.contains(&summary) {
                listener.waiting.push_back(summary);
            }
            self.flush_notices(id);
            reached += 1;
        }
        self.settle_ending();
        Ok(reached)
    }

    fn flush_notices(&mut self, id: u64) {
        let (now, next) = (self.now, self.places);
        let stopped = self.stopped.clone();
        let Some(inbound) = self.active(id) else { return };
        let lane = inbound.lane;
        if stopped.contains(&lane) {
            if inbound.place.is_none() {
                inbound.place = Some((false, next));
                self.places += 1;
            }
            return;
        }
        inbound.place = None;
        let waiting = inbound.listener.as_mut().map(|listener| std::mem::take(&mut listener.waiting)).unwrap_or_default();
        if !waiting.is_empty() {
            inbound.last_sent = Some(now);
        }
        for summary in waiting {
            self.push(Kind::Progress(id), lane, "within", summary);
        }
    }

    /// Ends all subscriptions, since the session takes no more requests.
    fn end_subscriptions(&mut self, why: &str) {
        for id in self.inbound_calls.iter().filter(|(_, inbound)| inbound.listener.is_some()).map(|(id, _)| *id).collect::<Vec<_>>()
        {
            self.cut_short(id, why);
        }
    }

    fn send_progress(&mut self, id: u64) {
        let now = self.now;
        let Some(inbound) = self.inbound_calls.get_mut(&id) else { return };
        let (Some(kept), Some(token)) = (inbound.kept.take(), &inbound.token) else { return };
        (inbound.last_sent, inbound.place) = (Some(now), None);
        let (lane, summary) = (inbound.lane, format!("progress {token} {}", summary::progress(&kept)));
        self.push(Kind::Progress(id), lane, "within", summary);
    }

    /// [`protocol_core::Session::checkpoint`] of an object.
    pub(crate) fn checkpoint(&mut self, id: u64) -> MethodResult {
        let Some(inbound) = self.active(id) else { return by_name("NotLive") };
        inbound.checkpoint = true;
        Ok(0)
    }

    /// [`protocol_core::Session::request_input`].
    pub(crate) fn request_input(&mut self, id: u64, ask: &Ask, now: u64) -> MethodResult {
        self.advance(now);
        let names = self.terms.names;
        let of_session = self.peer_can;
        let Some(inbound) = self.active(id) else { return by_name("NotLive") };
        // A claim also changes the capabilities for running calls.
        let (lane, depth, peer_can) = (inbound.lane, inbound.depth, if names { of_session } else { inbound.peer_can });
        let wire = inbound.token.clone().filter(|_| names).unwrap_or_else(|| inbound.wire.clone());
        if self.peer_ended {
            return by_name("Disconnected");
        }
        if self.inbound_calls.get(&id).is_some_and(|inbound| inbound.is_stateless) {
            return by_name("Unsupported");
        }
        if self.client || !matches!(self.phase, Phase::Answered | Phase::Ready) {
            return by_name("Unsupported");
        }
        let (kind, method) = match ask {
            Ask::Sample(_) => ("sample", self.terms.sample),
            Ask::Elicit(_) => ("elicit", self.terms.elicit),
            Ask::OpenUrl(_) => ("open", self.terms.elicit),
            Ask::Confirm { .. } => ("confirm", self.terms.elicit),
            _ => ("roots", "roots/list"),
        };
        let can = match kind {
            "sample" => peer_can.sample,
            "roots" => peer_can.roots,
            "open" => peer_can.open,
            _ => peer_can.elicit,
        };
        if !can {
            return by_name("Unsupported");
        }
        let depth = if kind == "sample" { depth.saturating_add(1) } else { depth };
        let max = self.config.depth.max;
        if kind == "sample" && depth > max {
            return by_name(&format!("TooDeep {{ depth: {depth}, max: {max} }}"));
        }
        if self.input_requests.len() + self.settled_waiting() >= self.config.limits.in_flight {
            return by_name("Full");
        }
        let key = self.number();
        let shown = if depth > 0 && !names { format!(" depth {depth}") } else { String::new() };
        let summary = format!("request {key} {method}{shown} parent {wire}");
        let at = self.config.timeouts.input.map(|span| self.now + micros(span));
        let ready = self.phase == Phase::Ready;
        let held = (!ready).then(|| summary.clone());
        self.input_requests.insert(key, InputRequest { asker: id, lane, kind, at, held });
        if let Some(inbound) = self.inbound_calls.get_mut(&id) {
            inbound.input_requests.push(key);
        }
        if ready {
            self.push(Kind::Request(key), lane, "within", summary);
        }
        Ok(key)
    }

    /// [`protocol_core::Session::abandon_input`].
    pub(crate) fn abandon_input(&mut self, key: u64, now: u64) -> MethodResult {
        self.advance(now);
        let taken = self.withdraw_input_request(key).map(|_| 0).ok_or_else(|| "NotLive".to_owned());
        self.settle_ending();
        taken
    }

    /// [`protocol_core::Session::respond`].
    pub(crate) fn respond(&mut self, id: u64, reply: &Reply, now: u64) -> MethodResult {
        self.advance(now);
        let Some(inbound) = self.inbound_calls.get(&id) else { return by_name("NotLive") };
        let result = match inbound.state {
            InboundState::Active => {
                let (wire, partial) = (&inbound.wire, if inbound.checkpoint { " partial" } else { "" });
                let frame = match reply {
                    Reply::Error(error) => format!("error {wire} {}{partial}", error.code),
                    Reply::Tool(_) if !inbound.is_tool => format!("error {wire} -32603"),
                    _ => format!("result {wire}"),
                };
                self.flush_and_withdraw(id);
                let gap = micros(self.config.timeouts.response_gap);
                let at = self.inbound_calls.get(&id).and_then(|inbound| inbound.last_sent).map_or(0, |at| at + gap);
                if let Some(inbound) = self.inbound_calls.get_mut(&id) {
                    inbound.state = InboundState::Answered { at, frame };
                }
                if at <= self.now {
                    self.release(id);
                }
                Ok(0)
            }
            InboundState::Answered { .. } => by_name("NotLive"),
            InboundState::Cancelled => {
                let (lane, wire) = (inbound.lane, inbound.wire.clone());
                self.inbound_calls.remove(&id);
                if self.live.get(&(lane, wire.clone())) == Some(&Owner::InboundCall(id)) {
                    self.retire(lane, &wire);
                }
                by_name("NotLive")
            }
        };
        self.settle_ending();
        result
    }

    /// Sends the kept update, and withdraws the input requests.
    fn flush_and_withdraw(&mut self, id: u64) {
        if self.inbound_calls.get(&id).is_some_and(|inbound| inbound.token.is_some() && self.can_flush(inbound)) {
            self.send_progress(id);
        }
        self.withdraw_input_requests(id);
    }

    fn withdraw_input_requests(&mut self, id: u64) {
        let input_requests =
            self.inbound_calls.get_mut(&id).map(|inbound| std::mem::take(&mut inbound.input_requests)).unwrap_or_default();
        for key in input_requests {
            self.withdraw_input_request(key);
        }
    }

    fn release(&mut self, id: u64) {
        let Some(InboundCall { lane, wire, state: InboundState::Answered { frame, .. }, .. }) =
            self.inbound_calls.get(&id).cloned()
        else {
            return;
        };
        self.inbound_calls.remove(&id);
        self.retire(lane, &wire);
        self.reply(lane, frame);
    }

    /// Ends an inbound call without a reply. Its handler still runs.
    fn cancel_inbound(&mut self, id: u64, why: &str) {
        let Some(inbound) = self.active(id) else { return };
        (inbound.state, inbound.place) = (InboundState::Cancelled, None);
        self.out
            .retain(|waiting| waiting.kind != Kind::Progress(id) && !matches!(waiting.kind, Kind::Log(Some(of), _) if of == id));
        self.withdraw_input_requests(id);
        self.push_event(format!("cancelled {id} {why}"));
    }

    /// Ends an inbound call with a reply that its handler did not make. The handler still runs.
    fn cut_short(&mut self, id: u64, why: &str) {
        let Some(inbound) = self.active(id) else { return };
        let partial = if inbound.checkpoint { " partial" } else { "" };
        let (lane, wire) = (inbound.lane, inbound.wire.clone());
        // On MCP a tool call that is cut short is answered with a result, and so is a subscription.
        let is_result = inbound.is_tool || inbound.listener.is_some();
        let code = match why {
            "deadline" => self.terms.deadline,
            "closing" => self.terms.closing,
            _ => self.terms.cancelled,
        };
        let frame = match code {
            Some(code) => format!("error {wire} {code}{partial}"),
            None if is_result => format!("result {wire}"),
            None => format!("error {wire} -32603{partial}"),
        };
        self.flush_and_withdraw(id);
        if let Some(inbound) = self.inbound_calls.get_mut(&id) {
            (inbound.state, inbound.place) = (InboundState::Cancelled, None);
        }
        self.reply(lane, frame);
        self.retire(lane, &wire);
        self.push_event(format!("cancelled {id} {why}"));
    }

    fn close_input_request(&mut self, key: u64) -> Option<InputRequest> {
        let input = self.input_requests.remove(&key)?;
        if let Some(inbound) = self.inbound_calls.get_mut(&input.asker) {
            inbound.input_requests.retain(|open| *open != key);
        }
        Some(input)
    }

    fn withdraw_input_request(&mut self, key: u64) -> Option<InputRequest> {
        let input = self.close_input_request(key)?;
        if input.held.is_none() && !self.take_back(key) && self.terms.cancels_input_requests {
            self.push_plain(input.lane, "within", format!("cancel {key}"));
        }
        Some(input)
    }

    /// Queues the event about the answer to an outbound input request.
    fn push_answer(&mut self, key: u64, input: &InputRequest, answer: &str) {
        let is_answer = matches!(answer, "confirm true" | "confirm false");
        let answer = if input.kind == "confirm" && !is_answer { "confirm false" } else { answer };
        self.push_event(format!("input {} {key} {answer}", input.asker));
    }

    // ---- As caller or callee ----

    /// [`protocol_core::Session::log`], for records that differ only in their invocation ids.
    pub(crate) fn log(&mut self, id: Option<u64>, record: &LogRecord, now: u64) -> MethodResult {
        self.advance(now);
        let names = self.terms.names;
        let of_session = self.level;
        let (lane, name, level) = match id.map(|id| self.active(id)) {
            None => (Lane::CHANNEL, 0, Some(of_session).filter(|_| !self.is_without_handshake())),
            Some(None) => return by_name("NotLive"),
            Some(Some(inbound)) => {
                let level = if inbound.is_stateless { inbound.level } else { Some(of_session) };
                (inbound.lane, inbound.token.as_ref().filter(|_| names).map_or(0, String::len), level)
            }
        };
        if self.client || level.is_none_or(|level| record.level < level) || !self.may_write() || self.peer_ended {
            return by_name("Unwanted");
        }
        let is_stopped = self.stopped.contains(&lane);
        if is_stopped && !self.drop_logs(lane, name) {
            return by_name("Dropped");
        }
        self.push(Kind::Log(id, name), lane, if id.is_some() { "within" } else { "notice" }, "log".to_owned());
        by_name(if is_stopped { "Dropped" } else { "Sent" })
    }

    /// On a stopped lane, drops the oldest log records to make room for a new one. Returns `false` if that is not enough.
    fn drop_logs(&mut self, lane: Lane, name: usize) -> bool {
        let lengths = self.out.iter().enumerate().filter_map(|(at, waiting)| match waiting.kind {
            Kind::Log(_, length) if waiting.lane == lane => Some((at, length)),
            _ => None,
        });
        let oldest: Vec<_> = lengths.take(2).collect();
        // Records differ only in their invocation ids, and are longer than any such id. So one dropped record makes room if its id is not
        // shorter than that of the new record, and two always do.
        let count = match oldest[..] {
            [(_, first), ..] if first >= name => 1,
            [_, _] => 2,
            _ => return false,
        };
        for (at, _) in oldest[..count].iter().rev() {
            self.out.remove(*at);
        }
        true
    }

    /// [`protocol_core::Session::notify`] with a custom notice.
    pub(crate) fn notify(&mut self, method: &str, now: u64) -> MethodResult {
        self.advance(now);
        if self.ending != Ending::Open {
            return by_name("Closing");
        }
        if self.is_stateless {
            return by_name("Unsupported");
        }
        if !matches!(self.phase, Phase::Answered | Phase::Ready) {
            return by_name("NotReady");
        }
        self.push_plain(Lane::CHANNEL, "notice", format!("notice {method}"));
        Ok(0)
    }

    /// [`protocol_core::Session::set_alarm`].
    pub(crate) fn set_alarm(&mut self, at: u64) -> MethodResult {
        let fired = self.events.iter().filter(|event| event.starts_with("alarm ")).count();
        if self.is_closed() || self.alarms.len() + fired >= self.config.limits.alarms {
            return by_name("TooManyAlarms");
        }
        let id = self.number();
        if at <= self.now {
            self.push_event(format!("alarm {id}"));
        } else {
            self.alarms.insert(id, at);
        }
        Ok(id)
    }

    /// [`protocol_core::Session::clear_alarm`].
    pub(crate) fn clear_alarm(&mut self, id: u64) {
        self.alarms.remove(&id);
    }

    /// [`protocol_core::Session::close`].
    pub(crate) fn close(&mut self, grace: std::time::Duration, now: u64) {
        self.advance(now);
        self.begin_end("Local", micros(grace));
        self.settle_ending();
    }

    /// [`protocol_core::Session::handle_end`].
    pub(crate) fn handle_end(&mut self, end: TransportEnd, now: u64) {
        self.advance(now);
        if self.is_closed() {
            return;
        }
        match end {
            TransportEnd::Eof => {
                self.peer_ended = true;
                self.drop_reports();
                self.lose();
                if !self.terms.answers_after_eof {
                    for id in self.inbound_calls.keys().copied().collect::<Vec<_>>() {
                        self.cancel_inbound(id, "disconnected");
                    }
                }
                self.begin_end("Eof", micros(self.config.timeouts.close_grace));
            }
            _ => self.fail("Failed"),
        }
        self.settle_ending();
    }

    /// Drops kept progress, and all queued frames but replies, answers and requests, since the peer has ended its side.
    fn drop_reports(&mut self) {
        for inbound in self.inbound_calls.values_mut() {
            (inbound.kept, inbound.place) = (None, None);
        }
        let is_report = |route: &str| route == "notice" || route == "within" || route.starts_with("cancel ");
        self.out.retain(|waiting| matches!(waiting.kind, Kind::Request(_)) || !is_report(&waiting.route));
    }

    fn begin_end(&mut self, reason: &'static str, grace: u64) {
        self.end_subscriptions(if reason == "Local" { "closing" } else { "disconnected" });
        let reason = match self.ending {
            Ending::Open => reason,
            Ending::Finishing(first) => first,
            Ending::Draining(_) | Ending::Closed => return,
        };
        self.ending = Ending::Finishing(reason);
        if grace == 0 {
            return self.close_is_due();
        }
        let at = self.now + grace;
        self.close_at = Some(self.close_at.map_or(at, |armed| armed.min(at)));
    }

    fn close_is_due(&mut self) {
        match self.ending {
            Ending::Finishing(reason) => {
                for id in self.calls.keys().copied().collect::<Vec<_>>() {
                    self.settle_call(id, "cancelled");
                }
                for id in self.inbound_calls.keys().copied().collect::<Vec<_>>() {
                    match reason {
                        "Local" => self.cut_short(id, "closing"),
                        _ => self.cancel_inbound(id, "disconnected"),
                    }
                }
                for key in self.peer_input_requests.keys().copied().collect::<Vec<_>>() {
                    self.refuse_peer_input_request(key);
                }
                self.drain(reason);
            }
            Ending::Draining(reason) => self.close_now(reason),
            Ending::Open | Ending::Closed => {}
        }
    }

    fn drain(&mut self, reason: &'static str) {
        self.ending = Ending::Draining(reason);
        for id in self.inbound_calls.keys().copied().collect::<Vec<_>>() {
            self.release(id);
        }
        self.handshake_at = None;
        let grace = micros(self.config.timeouts.close_grace);
        self.close_at = Some(self.now + grace);
        if grace == 0 {
            self.close_now(reason);
        }
    }

    /// Drains the session if it is finishing and no call is open, and closes it if it is draining and no frame is queued.
    fn settle_ending(&mut self) {
        if let Ending::Finishing(reason) = self.ending
            && self.calls.is_empty()
            && self.peer_input_requests.is_empty()
            && self.inbound_calls.len() == self.cancelled()
        {
            self.drain(reason);
        }
        if let Ending::Draining(reason) = self.ending
            && self.out.is_empty()
        {
            self.close_now(reason);
        }
    }

    /// Ends everything that cannot continue without the peer: outbound calls, and the input requests of both directions.
    fn lose(&mut self) {
        for key in self.input_requests.keys().copied().collect::<Vec<_>>() {
            if let Some(input) = self.close_input_request(key) {
                self.take_back(key);
                self.push_answer(key, &input, "lost");
            }
        }
        for key in self.peer_input_requests.keys().copied().collect::<Vec<_>>() {
            self.withdraw_peer_input_request(key);
        }
        for id in self.calls.keys().copied().collect::<Vec<_>>() {
            self.settle_call(id, "lost");
        }
    }

    fn fail(&mut self, reason: &'static str) {
        if self.is_closed() {
            return;
        }
        self.lose();
        for id in self.inbound_calls.keys().copied().collect::<Vec<_>>() {
            self.cancel_inbound(id, "disconnected");
        }
        self.close_now(reason);
    }

    fn close_now(&mut self, reason: &str) {
        self.ending = Ending::Closed;
        self.out.clear();
        self.stopped.clear();
        self.inbound_calls.clear();
        self.alarms.clear();
        self.live.clear();
        self.past.clear();
        self.subscriber = Subscriber::default();
        self.push_event(format!("closed {reason}"));
    }

    // ---- Lanes ----

    /// [`protocol_core::Session::set_writable`].
    pub(crate) fn set_writable(&mut self, lane: Lane, is_writable: bool, now: u64) -> MethodResult {
        self.advance(now);
        if self.is_closed() || !self.is_open(lane) {
            return by_name("NotLive");
        }
        if is_writable {
            self.resume(lane);
        } else {
            self.stopped.insert(lane);
        }
        self.settle_ending();
        Ok(0)
    }

    fn resume(&mut self, lane: Lane) {
        self.stopped.remove(&lane);
        let waits = self.inbound_calls.iter().filter(|(_, inbound)| inbound.lane == lane);
        let in_order: BTreeSet<_> = waits.filter_map(|(id, inbound)| Some((inbound.place?, *id))).collect();
        for (_, id) in in_order {
            self.flush(id);
        }
    }

    /// [`protocol_core::Session::handle_gone`].
    pub(crate) fn handle_gone(&mut self, gone: Gone, now: u64) -> MethodResult {
        self.advance(now);
        if self.is_closed() {
            return by_name("NotLive");
        }
        match gone {
            Gone::Lane(lane) if !self.is_open(lane) => return by_name("NotLive"),
            Gone::Lane(lane) => {
                self.lose_lane(lane);
                // A lost lane is not stopped any more.
                self.resume(lane);
            }
            Gone::Exchange(exchange) | Gone::Response(exchange) => {
                let id = summary::number(exchange);
                if self.is_current(id) {
                    self.end_current(id);
                    self.settle_ending();
                    return Ok(0);
                }
                match self.calls.get(&id).filter(|call| !call.held) {
                    None => return by_name("NotLive"),
                    Some(call) if self.terms.names || call.is_stateless || matches!(gone, Gone::Response(_)) => {
                        self.settle_call(id, "lost")
                    }
                    Some(_) => {}
                }
            }
        }
        self.settle_ending();
        Ok(0)
    }

    /// Ends the exchanges of a lost lane, on Tesseron and if requests are stateless.
    fn lose_lane(&mut self, lane: Lane) {
        let names = self.terms.names;
        let on_it = |inbound: &InboundCall| inbound.lane == lane && (names || inbound.is_stateless);
        for id in self.inbound_calls.iter().filter(|(_, inbound)| on_it(inbound)).map(|(id, _)| *id).collect::<Vec<_>>() {
            let wire = self.inbound_calls[&id].wire.clone();
            match self.inbound_calls[&id].state {
                InboundState::Active => self.cancel_inbound(id, "disconnected"),
                InboundState::Answered { .. } => drop(self.inbound_calls.remove(&id)),
                InboundState::Cancelled => continue,
            }
            self.retire(lane, &wire);
        }
        if !names {
            return;
        }
        for key in self
            .peer_input_requests
            .iter()
            .filter(|(_, peer_input)| peer_input.lane == lane)
            .map(|(key, _)| *key)
            .collect::<Vec<_>>()
        {
            if let Some(peer_input) = self.withdraw_peer_input_request(key) {
                self.remove_from_call(peer_input.parent, key);
            }
        }
        if lane != Lane::CHANNEL {
            self.out.retain(|waiting| waiting.lane != lane);
            self.stopped.remove(&lane);
        }
    }

    // ---- Arriving frames ----

    /// Removes the id of a request that has ended. Ids of the channel are remembered, ids of other lanes are not.
    fn retire(&mut self, lane: Lane, wire: &str) {
        if self.live.remove(&(lane, wire.to_owned())).is_some() && lane == Lane::CHANNEL {
            if self.past.len() >= self.config.limits.ended_ids {
                self.past.pop_front();
            }
            self.past.push_back(wire.to_owned());
        }
    }

    /// Registers the id of a request. Returns `false` if the id is in use. If `is_stateless`, an id may be used again after its request was
    /// answered.
    fn take_id(&mut self, wire: &str, owner: Owner, is_stateless: bool) -> bool {
        let lane = self.arriving.0;
        if self.live.contains_key(&(lane, wire.to_owned())) {
            self.violation(Violation::DuplicateRequest);
            return false;
        }
        self.arriving.1 += 1;
        self.live.insert((lane, wire.to_owned()), owner);
        if lane != Lane::CHANNEL {
            return true;
        }
        let number = wire.parse::<i64>().ok();
        let fresh = number.is_some_and(|number| self.highest.is_none_or(|highest| number > highest));
        self.highest = self.highest.max(number);
        let reused = !fresh && self.past.iter().any(|past| past == wire);
        if reused && !is_stateless {
            self.violation(Violation::ReusedId);
        }
        true
    }

    /// Queues an unsolicited reply, unless the id is in use by an open request.
    fn answer(&mut self, wire: &str, summary: String) {
        let lane = self.arriving.0;
        if self.live.contains_key(&(lane, wire.to_owned())) {
            self.violation(Violation::DuplicateRequest);
        } else {
            self.arriving.1 += 1;
            self.push_plain(lane, if summary.starts_with("error ") { "refusal" } else { "result" }, summary);
        }
    }

    fn refuse(&mut self, wire: &str, rule: Option<Violation>, code: i64) {
        if let Some(rule) = rule {
            self.violation(rule);
        }
        self.answer(wire, format!("error {wire} {code}"));
    }

    /// [`protocol_core::Session::handle_frame`], for a frame of one of our ends or of [`crate::world::ops`]. Returns the number of replies
    /// that will be sent on its lane because of it.
    pub(crate) fn handle_frame(&mut self, text: &str, lane: Lane, now: u64) -> usize {
        if self.is_closed() {
            return 0;
        }
        self.advance(now);
        self.arriving = (lane, 0);
        let frame: Value = serde_json::from_str(text).expect("a frame that a model reads is JSON");
        let id = frame.get("id").map(Value::to_string);
        let params = &frame["params"];
        match (frame["method"].as_str(), id) {
            (Some(method), Some(id)) => self.take_request(method, &id, params),
            (Some(method), None) => self.take_notification(method, params),
            (None, id) => self.take_response(&frame, &id.unwrap_or_default()),
        }
        self.settle_ending();
        std::mem::take(&mut self.arriving.1)
    }

    fn serves_peer(&self) -> bool {
        matches!(self.phase, Phase::Answered | Phase::Ready)
    }

    /// Handles a stateless request.
    fn take_stateless(&mut self, method: &str, wire: &str, params: &Value, depth: u8) {
        let names_caller = summary::names_caller(params);
        match method {
            "initialize" => {
                self.refuse(wire, None, if names_caller { RpcError::METHOD_NOT_FOUND } else { RpcError::UNSUPPORTED_VERSION });
            }
            _ if !names_caller => self.refuse(wire, Some(Violation::InvalidParams), RpcError::INVALID_PARAMS),
            "server/discover" => {
                self.await_no_handshake();
                self.answer(wire, format!("result {wire}"));
            }
            "tools/call" | "tools/list" | summary::LISTEN => {
                self.await_no_handshake();
                self.take_call(method, wire, params, depth, true);
            }
            _ => self.refuse(wire, None, RpcError::METHOD_NOT_FOUND),
        }
    }

    /// Records that the peer need not make the handshake, since it has sent a stateless request.
    fn await_no_handshake(&mut self) {
        if self.phase == Phase::Fresh {
            (self.is_handshake_optional, self.handshake_at) = (true, None);
        }
    }

    fn take_request(&mut self, method: &str, wire: &str, params: &Value) {
        if self.is_stateless {
            return self.violation(Violation::WrongDirection);
        }
        let claimed = params["_meta"]["protocol-core/samplingDepth"].as_u64().map_or(0, |depth| depth.min(255) as u8);
        let Terms { greeting, call, sample, elicit, names, .. } = self.terms;
        let is_input_request = method == sample || method == elicit || (method == "roots/list" && !names);
        let of_modern = summary::names_caller(params) || method == "server/discover" || method == summary::LISTEN;
        let is_stateless = match self.config.era {
            _ if self.client || names => false,
            Era::Legacy => false,
            Era::Modern => true,
            _ => of_modern,
        };
        if is_stateless {
            return self.take_stateless(method, wire, params, claimed);
        }
        let of_legacy = ["resources/subscribe", "resources/unsubscribe"];
        let is_known =
            method == greeting || is_input_request || method == call || (self.client && method.starts_with("tools/") && !names);
        match method {
            "ping" if !names => self.answer(wire, format!("result {wire}")),
            _ if method == greeting && self.client == names => {
                let is_first = self.phase == Phase::Fresh;
                let lane = self.arriving.0;
                if !is_first && (names || lane != Lane::CHANNEL) {
                    return self.refuse(wire, Some(Violation::OutOfPhase), -32600);
                }
                if !self.may_write() {
                    return self.refuse(wire, None, self.terms.busy);
                }
                if names && !params["protocolVersion"].is_string() {
                    return self.refuse(wire, Some(Violation::InvalidParams), -32602);
                }
                if self.live.contains_key(&(lane, wire.to_owned())) {
                    return self.violation(Violation::DuplicateRequest);
                }
                self.answer(wire, format!("result {wire}"));
                if !names {
                    self.peer_can = Declared::in_handshake(params);
                }
                if self.phase != Phase::Ready {
                    self.phase = Phase::Answered;
                    self.greeting_of_peer = Some((lane, wire.to_owned()));
                }
                self.handshake_at = None;
                self.push_event("ready".to_owned());
            }
            _ if is_input_request && self.client => self.take_peer_input_request(method, wire, params, claimed),
            "logging/setLevel" if !self.client && !names => {
                if !self.serves_peer() {
                    return self.refuse(wire, Some(Violation::OutOfPhase), self.terms.too_early);
                }
                self.level = params["level"].as_str().and_then(Level::from_name).unwrap_or(self.level);
                self.answer(wire, format!("result {wire}"));
            }
            _ if !self.client && (method == call || ((method == "tools/list" || of_legacy.contains(&method)) && !names)) => {
                self.take_call(method, wire, params, claimed, false);
            }
            _ if is_known => self.refuse(wire, Some(Violation::WrongDirection), -32601),
            _ => self.refuse(wire, None, -32601),
        }
    }

    fn take_call(&mut self, method: &str, wire: &str, params: &Value, depth: u8, is_stateless: bool) {
        if !is_stateless && !self.serves_peer() {
            return self.refuse(wire, Some(Violation::OutOfPhase), self.terms.too_early);
        }
        if self.ending != Ending::Open {
            return self.refuse(wire, None, self.terms.busy);
        }
        if self.inbound_calls.len() >= self.config.limits.in_flight {
            return self.refuse(wire, Some(Violation::TooManyRequests), self.terms.busy);
        }
        let named = params.get("invocationId").map(Value::to_string).filter(|_| self.terms.names);
        if named.as_ref().is_some_and(|name| self.named(name).is_some()) {
            return self.refuse(wire, Some(Violation::DuplicateRequest), -32600);
        }
        if !self.take_id(wire, Owner::InboundCall(self.next), is_stateless) {
            return;
        }
        let id = self.number();
        let listens = is_stateless && method == summary::LISTEN;
        let token = named.or_else(|| params["_meta"].get("progressToken").map(Value::to_string)).filter(|_| !listens);
        let level = params["_meta"][summary::LOG_LEVEL].as_str().and_then(Level::from_name);
        let method = if method == self.terms.call { "tools/call" } else { method };
        self.push_event(format!("request {id} {method} depth {depth} observed {}", token.is_some()));
        let inbound = InboundCall {
            lane: self.arriving.0,
            wire: wire.to_owned(),
            is_tool: method == "tools/call",
            is_stateless,
            peer_can: self.peer_can,
            level: level.filter(|_| is_stateless && !listens),
            listener: listens.then(|| Listener {
                kinds: summary::read_kinds(params),
                is_accepted: false,
                waiting: VecDeque::new(),
            }),
            token,
            depth,
            received: self.now,
            deadline: self.config.timeouts.serve.filter(|_| !listens).map(|span| self.now + micros(span)),
            floor: None,
            kept: None,
            place: None,
            rate: self.config.progress.window,
            counted: VecDeque::new(),
            final_passed: false,
            last_sent: None,
            checkpoint: false,
            input_requests: Vec::new(),
            state: InboundState::Active,
        };
        let is_over = inbound.deadline.is_some_and(|at| at <= self.now);
        self.inbound_calls.insert(id, inbound);
        if is_over {
            self.cut_short(id, "deadline");
        }
    }

    /// The open inbound call with this name, on the lane of the frame that is being handled.
    fn named(&self, name: &str) -> Option<u64> {
        let lane = self.arriving.0;
        let is_live =
            |inbound: &InboundCall, id: &u64| self.live.get(&(lane, inbound.wire.clone())) == Some(&Owner::InboundCall(*id));
        let on_it = self.inbound_calls.iter().filter(|(_, inbound)| inbound.lane == lane);
        let mut all = on_it.filter(|(id, inbound)| inbound.token.as_deref() == Some(name) && is_live(inbound, id));
        all.next().map(|(id, _)| *id)
    }

    /// The user of an id: the request with this id on the lane of the frame that is being handled, or else the only request with this id on
    /// other lanes that is not stateless. A stateless request on another lane may be that of another caller.
    fn owner(&self, wire: &str) -> Option<Owner> {
        let of_lane = self.live.get(&(self.arriving.0, wire.to_owned()));
        let is_of_stateless_call = |owner: &&Owner| matches!(owner, Owner::InboundCall(id) if self.inbound_calls[id].is_stateless);
        let mut all =
            self.live.iter().filter(|((_, id), _)| id == wire).map(|(_, owner)| owner).filter(|owner| !is_of_stateless_call(owner));
        of_lane.or_else(|| all.next().filter(|_| all.next().is_none())).copied()
    }

    /// The call of ours that an input request or an update names, if it names one. On MCP `member` has the number of the call.
    fn call_named(&self, params: &Value, member: &Value) -> Option<u64> {
        if !self.terms.names {
            return member.as_u64();
        }
        params["invocationId"].as_str()?.strip_prefix("inv_")?.parse().ok()
    }

    fn take_peer_input_request(&mut self, method: &str, wire: &str, params: &Value, claimed: u8) {
        if !self.serves_peer() || (self.terms.names && self.phase != Phase::Ready) {
            return self.refuse(wire, Some(Violation::OutOfPhase), self.terms.too_early);
        }
        if !self.may_write() {
            return self.refuse(wire, None, self.terms.busy);
        }
        let named = self.call_named(params, &params["_meta"]["protocol-core/parent"]);
        let is_late = named.is_some_and(|named| (1..self.next).contains(&named) && !self.calls.contains_key(&named));
        let was_sent = |id: &u64, call: &Call| call.method != "ping" && !call.held && !self.waits(*id);
        let sent = || self.calls.iter().filter(|(id, call)| was_sent(id, call));
        let named = named.filter(|named| sent().any(|(id, _)| id == named));
        if named.is_none() && self.terms.names {
            return self.refuse(wire, (!is_late).then_some(Violation::UndeclaredInput), -32009);
        }
        let parent = named.or_else(|| sent().max_by_key(|(id, call)| (call.depth, **id)).map(|(id, _)| *id));
        let inherited = parent.map_or(0, |id| self.calls[&id].depth);
        let kind = match method {
            _ if method == self.terms.sample => "sample",
            _ if method == self.terms.elicit && params["mode"] == "url" => "open",
            _ if method == self.terms.elicit => "elicit",
            _ => "roots",
        };
        let depth = claimed.max(if kind == "sample" { inherited.saturating_add(1) } else { inherited });
        if kind == "sample" && depth > self.config.depth.max {
            return self.refuse(wire, Some(Violation::SamplingTooDeep), self.terms.too_deep);
        }
        if self.peer_input_requests.len() >= self.config.limits.in_flight {
            return self.refuse(wire, Some(Violation::TooManyRequests), self.terms.busy);
        }
        if !self.take_id(wire, Owner::PeerInputRequest(self.next), false) {
            return;
        }
        let key = self.number();
        self.peer_input_requests.insert(key, PeerInputRequest { lane: self.arriving.0, wire: wire.to_owned(), parent, depth });
        if let Some(call) = parent.and_then(|id| self.calls.get_mut(&id)) {
            if call.peer_input_requests.is_empty() {
                call.asked_since = self.now;
            }
            call.peer_input_requests.push(key);
        }
        self.push_event(format!("asked {key} parent {} {kind} depth {depth}", parent.unwrap_or(0)));
    }

    fn take_notification(&mut self, method: &str, params: &Value) {
        let Terms { cancel, progress, log, names, .. } = self.terms;
        let subscription = || params["_meta"][summary::SUBSCRIPTION].as_u64();
        match method {
            summary::ACKNOWLEDGED if self.is_stateless => {
                return self.take_acknowledged(subscription(), &summary::read_kinds(params));
            }
            "notifications/cancelled" if self.is_stateless => return self.take_subscription_cancel(params["requestId"].as_u64()),
            _ if self.is_stateless && !summary::kind_of(method, params).is_empty() => {
                return self.take_published(subscription(), &summary::kind_of(method, params));
            }
            _ => {}
        }
        match method {
            _ if names && !self.client && (method == progress || method == log) => self.violation(Violation::WrongDirection),
            _ if names && self.client && (method == cancel || method == "tesseron/claimed") => {
                self.violation(Violation::WrongDirection);
            }
            _ if method == progress => self.take_progress(params),
            _ if method == cancel && names => {
                if let Some(id) = self.named(&params["invocationId"].to_string()) {
                    self.cut_short(id, "peer");
                }
            }
            "tesseron/claimed" if names && !self.client => {
                self.peer_can = Declared::of_agent(&params["agentCapabilities"]);
                if self.phase == Phase::Ready {
                    self.push_event("changed".to_owned());
                } else {
                    self.early_change = true;
                }
            }
            _ if method == log && names => {
                // A record on behalf of an ended call is a late frame.
                let named = params.get("invocationId").and_then(|_| self.call_named(params, &Value::Null));
                if named.is_none_or(|id| self.calls.get(&id).is_some_and(|call| !call.held)) {
                    self.push_event("log".to_owned());
                }
            }
            _ if names && self.serves_peer() => self.push_event("notice".to_owned()),
            _ if names => self.violation(Violation::OutOfPhase),
            "notifications/cancelled" => {
                let wire = params["requestId"].to_string();
                match self.owner(&wire) {
                    Some(Owner::InboundCall(id)) => self.cancel_inbound(id, "peer"),
                    Some(Owner::PeerInputRequest(key)) => {
                        if let Some(peer_input) = self.withdraw_peer_input_request(key) {
                            self.remove_from_call(peer_input.parent, key);
                        }
                    }
                    None if self.phase == Phase::Answered && self.greeting_of_peer == Some((self.arriving.0, wire)) => {
                        self.violation(Violation::CancelledHandshake);
                    }
                    None => {}
                }
            }
            "notifications/initialized" if self.client => self.violation(Violation::WrongDirection),
            "notifications/message" if !self.client => self.violation(Violation::WrongDirection),
            "notifications/initialized" => match self.phase {
                Phase::Answered => {
                    self.phase = Phase::Ready;
                    self.release_held();
                }
                Phase::Ready => {}
                Phase::Fresh | Phase::Opened => self.violation(Violation::OutOfPhase),
            },
            "notifications/message" => self.push_event("log".to_owned()),
            _ if self.serves_peer() => self.push_event("notice".to_owned()),
            _ => self.violation(Violation::OutOfPhase),
        }
    }

    fn release_held(&mut self) {
        for id in self.calls.iter().filter(|(_, call)| call.held).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.release_call(id);
        }
        for (key, input) in &mut self.input_requests {
            if let Some(summary) = input.held.take() {
                let (kind, lane, route) = (Kind::Request(*key), input.lane, "within".to_owned());
                self.out.push_back(Waiting { kind, lane, route, summary });
            }
        }
    }

    fn ours(&self, wire: &str) -> Option<u64> {
        wire.parse::<u64>().ok().filter(|number| *number < self.next)
    }

    fn take_progress(&mut self, params: &Value) {
        let update = summary::read_progress(params);
        let named = self.call_named(params, &params["progressToken"]);
        let Some(id) = named.filter(|number| *number < self.next) else {
            return self.unknown_progress();
        };
        let is_queued = self.waits(id);
        let (now, quiet) = (self.now, micros(self.config.progress.window.length));
        let percent = self.terms.percent;
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.held) else { return };
        if !call.observed || is_queued {
            return self.unknown_progress();
        }
        let is_above = match (update.value, call.floor) {
            (None, _) => percent,
            (Some(value), floor) => floor.is_none_or(|floor| value > floor),
        };
        if percent && (update.value.is_none() || (!is_above && update.message.is_some())) {
            let mut update = update;
            (update.value, update.total) = (None, None);
            match &mut call.last {
                Some(last) => last.message = update.message.clone().or_else(|| last.message.take()),
                last if is_above => *last = Some(update.clone()),
                _ => {}
            }
            if is_above && call.timeouts.reset_on_progress {
                call.last_activity = now;
            }
            return self.push_event(format!("progress {id} {}", summary::progress(&update)));
        }
        if is_above {
            call.floor = update.value;
            call.last = Some(update.clone());
            if call.timeouts.reset_on_progress {
                call.last_activity = now;
            }
            return self.push_event(format!("progress {id} {}", summary::progress(&update)));
        }
        if call.quiet_until.is_none_or(|until| now >= until) {
            call.quiet_until = Some(now + quiet);
            self.violation(Violation::ProgressNotIncreasing);
        }
    }

    fn unknown_progress(&mut self) {
        if self.now >= self.quiet_until {
            self.quiet_until = self.now + micros(self.config.progress.window.length);
            self.violation(Violation::UnknownProgress);
        }
    }

    fn take_greeting_answer(&mut self, frame: &Value) {
        let error = frame.get("error");
        let modern = |error: &Value| error["data"]["supported"].as_array().is_some_and(|all| all.contains(&Value::from(REVISION)));
        if self.config.era != Era::Legacy
            && error.is_some_and(|error| error["code"] == RpcError::UNSUPPORTED_VERSION && modern(error))
        {
            return self.probe(true);
        }
        self.opening = None;
        if let Some(error) = error {
            self.push_event(format!("refused {}", error["code"]));
        }
        if error.is_some() {
            return self.fail("HandshakeRefused");
        }
        if !frame["result"]["protocolVersion"].is_string() {
            return self.fail(r#"AnswerInvalid("protocolVersion", Missing)"#);
        }
        self.phase = Phase::Ready;
        self.handshake_at = None;
        self.push_event("ready".to_owned());
        if let Some(greeted) = self.terms.greeted {
            self.push_plain(Lane::CHANNEL, "notice", greeted.to_owned());
        }
        if self.early_change {
            self.push_event("changed".to_owned());
        } else if self.terms.names {
            self.peer_can = Declared::of_agent(&frame["result"]["capabilities"]);
        }
        self.release_held();
    }

    fn take_response(&mut self, frame: &Value, wire: &str) {
        let Some(id) = self.ours(wire) else { return self.violation(Violation::UnknownResponse) };
        let error = frame.get("error");
        let malformed = error.is_none() && !frame["result"].is_object();
        if self.is_current(id) {
            match self.waits(id) {
                true => self.violation(Violation::UnknownResponse),
                false => self.end_current(id),
            }
            return;
        }
        let opening = self.opening.filter(|opening| self.may_write() && opening.has(id));
        match opening {
            Some(_) if self.waits(id) => return self.violation(Violation::UnknownResponse),
            Some(Opening::Probe { is_last, .. }) => return self.take_probe_answer(frame, is_last, false),
            Some(Opening::Greeting { late_probe, .. }) if late_probe == Some(id) => {
                return self.take_probe_answer(frame, false, true);
            }
            Some(Opening::Greeting { .. }) => return self.take_greeting_answer(frame),
            None => {}
        }
        let is_live = self.input_requests.get(&id).is_some_and(|input| input.held.is_none())
            || self.calls.get(&id).is_some_and(|call| !call.held);
        if !is_live {
            return;
        }
        if self.waits(id) {
            return self.violation(Violation::UnknownResponse);
        }
        if let Some(input) = self.close_input_request(id) {
            let read = match error {
                Some(error) => format!("refused {}", error["code"]),
                None => read_answer(input.kind, &frame["result"], self.terms.names).to_owned(),
            };
            if read == "invalid" {
                self.violation(Violation::InvalidResponse);
            }
            return self.push_answer(id, &input, &read);
        }
        let outcome = match error {
            Some(error) => format!("error {}{}", error["code"], if summary::has_partial(error) { " partial" } else { "" }),
            None if self.terms.names => {
                let result = &frame["result"];
                let fits = result["invocationId"].as_str() == Some(&*format!("inv_{id}"));
                let has_known_member = result.get("invocationId").is_some() || result.get("output").is_some();
                if !fits {
                    self.violation(Violation::InvalidResponse);
                }
                if fits || has_known_member { "result".to_owned() } else { "invalid".to_owned() }
            }
            None if malformed => {
                self.violation(Violation::InvalidResponse);
                "invalid".to_owned()
            }
            None => "result".to_owned(),
        };
        self.finish_call(id, &outcome);
    }
}

fn read_answer(kind: &str, result: &Value, names: bool) -> &'static str {
    let (content, filled) = (&result["content"], &result[if names { "value" } else { "content" }]);
    match (kind, result["action"].as_str()) {
        ("sample", _) if content.is_object() || (names && !content.is_null()) => "sample",
        ("roots", _) if result["roots"].is_array() => "roots",
        ("confirm", Some("accept")) => "confirm true",
        ("confirm", Some(_)) => "confirm false",
        ("elicit", Some("accept")) if filled.is_object() => "accept",
        ("elicit", Some("decline" | "cancel")) => "decline",
        ("open", Some("accept")) => "open accept",
        ("open", Some("decline")) => "open decline",
        ("open", Some("cancel")) => "open cancel",
        _ => "invalid",
    }
}
