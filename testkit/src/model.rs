//! A second implementation of a session, for its outcomes alone: plain maps, no timers, no clever queue.
//!
//! A [`Model`] is given exactly what a session is given, in the same order, and predicts every event, every frame, every answer of a verb
//! and the next deadline, each in a few words ([`super::told`]). Deadlines are looked for afresh each time among all that is live. It
//! knows frames that our own ends send and the hostile ones of [`super::ops`]; it does not know bytes, congestion or limits on sizes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol_core::{
    Answer, Ask, CallTimeouts, Config, Gone, Invoke, Lane, Level, LogRecord, Op, Progress, Protocol, RateWindow, Reply,
    ServeOptions, TransportEnd, Violation, mcp, tesseron,
};
use serde_json::Value;

use crate::summary;

/// The answer of a method: the number of an id, or the name of an error.
pub(crate) type Answered = Result<u64, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Opened,
    Answered,
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    Finishing(&'static str),
    Draining(&'static str),
    Closed,
}

/// The order in which things happen that are due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Handshake,
    Close,
    Call(u64),
    Question(u64),
    Serve(u64),
    Flush(u64),
    Release(u64),
    Alarm(u64),
}

#[derive(Clone, Debug)]
struct Call {
    method: &'static str,
    /// The instant at which it has taken too long in all.
    latest: Option<u64>,
    heard: u64,
    /// The instant of the first of the questions that are open.
    asked: u64,
    clocks: CallTimeouts,
    observed: bool,
    depth: u8,
    held: bool,
    floor: Option<f64>,
    last: Option<Progress>,
    quiet_until: Option<u64>,
    questions: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Serving {
    Active,
    Answered { at: u64, frame: String },
    Cancelled,
}

#[derive(Clone, Debug)]
struct Serve {
    lane: Lane,
    wire: String,
    is_tool: bool,
    token: Option<String>,
    depth: u8,
    received: u64,
    deadline: Option<u64>,
    floor: Option<f64>,
    kept: Option<Progress>,
    /// Its place among those that could go on if their lanes were not stopped. Final updates (`false`) come first.
    place: Option<(bool, u64)>,
    rate: RateWindow,
    counted: VecDeque<u64>,
    final_passed: bool,
    last_sent: Option<u64>,
    checkpoint: bool,
    questions: Vec<u64>,
    state: Serving,
}

#[derive(Clone, Debug)]
struct Question {
    asker: u64,
    lane: Lane,
    kind: &'static str,
    at: Option<u64>,
    /// A frame that waits for the handshake.
    held: Option<String>,
}

#[derive(Clone, Debug)]
struct Asked {
    lane: Lane,
    wire: String,
    parent: Option<u64>,
    depth: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Serve(u64),
    Asked(u64),
}

/// The kind of a waiting frame, for taking it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Request(u64),
    Progress(u64),
    /// A log record; the length of the name of its invocation is all that its length depends on.
    Log(usize),
}

/// A frame that waits, and its lane. `part` is the part that it plays there.
#[derive(Clone, Debug)]
struct Waiting {
    kind: Kind,
    lane: Lane,
    part: String,
    said: String,
}

/// Differences between the protocols that decide outcomes.
#[derive(Clone, Copy, Debug)]
struct Terms {
    greeting: &'static str,
    /// The frame of the greeting end once it was welcomed.
    greeted: Option<&'static str>,
    call: &'static str,
    sample: &'static str,
    elicit: &'static str,
    cancel: &'static str,
    progress: &'static str,
    log: &'static str,
    /// Invocations have names: questions and cancels name a live one, and no call waits for the handshake.
    names: bool,
    /// The codes of what ends without its handler: answered like that, or for `None` as MCP says.
    cancelled: Option<i64>,
    deadline: Option<i64>,
    closing: Option<i64>,
    cancels_questions: bool,
    answers_after_eof: bool,
    /// Progress is a share of a hundred, goes without one, and is worth something when it says no more than before.
    percent: bool,
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
    cancels_questions: true,
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
    cancels_questions: false,
    answers_after_eof: false,
    percent: true,
    over: -32001,
    busy: -32603,
    too_deep: -32008,
    too_early: -32009,
};

/// The prediction of one end.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    config: Config,
    terms: Terms,
    /// Calls, and answers questions. The other end runs what is called, and asks.
    client: bool,
    /// The questions that the other end can answer: sampling, elicitation.
    peer_can: [bool; 2],
    /// News of the other end that came before its welcome.
    early_change: bool,
    now: u64,
    phase: Phase,
    handshake_at: Option<u64>,
    greeting_open: bool,
    greeting_of_peer: Option<(Lane, String)>,
    ending: Ending,
    peer_ended: bool,
    close_at: Option<u64>,
    next: u64,
    calls: BTreeMap<u64, Call>,
    serves: BTreeMap<u64, Serve>,
    questions: BTreeMap<u64, Question>,
    asked: BTreeMap<u64, Asked>,
    alarms: BTreeMap<u64, u64>,
    live: BTreeMap<(Lane, String), Owner>,
    past: VecDeque<String>,
    highest: Option<i64>,
    quiet_until: u64,
    out: VecDeque<Waiting>,
    events: VecDeque<String>,
    /// Lanes whose frames are not taken.
    stopped: BTreeSet<Lane>,
    /// Places that were given to progress of stopped lanes.
    places: u64,
    /// The lane of the frame that is read, and how many replies it is owed for it.
    arriving: (Lane, usize),
}

fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn state_error(why: &str) -> Answered {
    Err(why.to_owned())
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
            peer_can: [!terms.names; 2],
            early_change: false,
            now,
            phase: Phase::Fresh,
            handshake_at: config.timeouts.handshake.map(|span| now + micros(span)),
            greeting_open: opens,
            greeting_of_peer: None,
            ending: Ending::Open,
            peer_ended: false,
            close_at: None,
            next: 1,
            calls: BTreeMap::new(),
            serves: BTreeMap::new(),
            questions: BTreeMap::new(),
            asked: BTreeMap::new(),
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
        if opens {
            model.phase = Phase::Opened;
            let id = model.number();
            model.say(Lane::CHANNEL, format!("request {id}"), format!("request {id} {}", terms.greeting));
        }
        model
    }

    /// Everything that it predicts from, in words that say times as they are seen from `now`.
    #[must_use]
    pub(crate) fn digest(&self, now: u64) -> String {
        let from_now = |at: &mut u64| *at = at.wrapping_sub(now);
        let (mut calls, mut serves, mut questions) = (self.calls.clone(), self.serves.clone(), self.questions.clone());
        for call in calls.values_mut() {
            [call.latest.as_mut(), Some(&mut call.heard), Some(&mut call.asked), call.quiet_until.as_mut()]
                .into_iter()
                .flatten()
                .for_each(from_now);
        }
        for serve in serves.values_mut() {
            [Some(&mut serve.received), serve.deadline.as_mut(), serve.last_sent.as_mut()].into_iter().flatten().for_each(from_now);
            serve.counted.iter_mut().for_each(from_now);
            if let Serving::Answered { at, .. } = &mut serve.state {
                from_now(at);
            }
        }
        questions.values_mut().filter_map(|question| question.at.as_mut()).for_each(from_now);
        let [handshake, close] = [self.handshake_at, self.close_at].map(|at| at.map(|at| at.wrapping_sub(now)));
        let phases =
            (self.phase, self.ending, self.peer_ended, handshake, close, self.next, self.now.wrapping_sub(now), self.peer_can);
        let peer = (&self.asked, &self.live, &self.past, self.highest);
        format!(
            "{phases:?} {calls:?} {serves:?} {questions:?} {peer:?} {:?} {:?} {:?} {:?}",
            self.alarms, self.out, self.events, self.stopped
        )
    }

    // ---- What is polled ----

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    /// The next frame of a lane, or of any, and the part that it plays there. In which order lanes take turns is not predicted.
    pub(crate) fn poll_transmit(&mut self, lane: Option<Lane>) -> Option<String> {
        let may_leave = |waiting: &Waiting| !self.stopped.contains(&waiting.lane) && lane.is_none_or(|lane| lane == waiting.lane);
        let Waiting { part, said, .. } = self.out.iter().position(may_leave).and_then(|next| self.out.remove(next))?;
        self.settle_ending();
        Some(format!("{said} as {part}"))
    }

    /// The next deadline.
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.due().map(|(at, _)| at)
    }

    /// Returns `true` if it takes frames of a lane.
    #[must_use]
    pub(crate) fn wants_input(&self, lane: Lane) -> bool {
        let is_known = self.is_open(lane) || self.open_lanes().len() < self.config.limits.lanes;
        is_known && self.ending != Ending::Closed && self.events.len() < self.config.limits.events
    }

    /// The lanes beside the channel by which something is still to leave, or that are stopped.
    #[must_use]
    pub(crate) fn open_lanes(&self) -> BTreeSet<Lane> {
        let serves = self.serves.values().filter(|serve| !matches!(serve.state, Serving::Cancelled)).map(|serve| serve.lane);
        let asked = self.asked.values().map(|asked| asked.lane);
        let waiting = self.out.iter().map(|waiting| waiting.lane);
        let all = serves.chain(asked).chain(waiting).chain(self.stopped.iter().copied());
        all.filter(|lane| *lane != Lane::CHANNEL).collect()
    }

    /// Returns `true` if a lane is one of them, or the channel.
    #[must_use]
    pub(crate) fn is_open(&self, lane: Lane) -> bool {
        lane == Lane::CHANNEL || self.open_lanes().contains(&lane)
    }

    /// The number of requests that came by a lane and wait for their reply.
    #[must_use]
    pub(crate) fn replies_owed(&self, lane: Lane) -> usize {
        let serves = self.serves.values().filter(|serve| serve.lane == lane && !matches!(serve.state, Serving::Cancelled));
        serves.count() + self.asked.values().filter(|asked| asked.lane == lane).count()
    }

    /// Returns `true` if it is over.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.ending == Ending::Closed
    }

    /// The number of outbound calls, inbound calls and orphans.
    #[must_use]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.calls.len(), self.serves.len(), self.orphans())
    }

    fn orphans(&self) -> usize {
        self.serves.values().filter(|serve| matches!(serve.state, Serving::Cancelled)).count()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn say(&mut self, lane: Lane, part: impl Into<String>, said: String) {
        self.push(Kind::Plain, lane, part, said);
    }

    fn push(&mut self, kind: Kind, lane: Lane, part: impl Into<String>, said: String) {
        self.out.push_back(Waiting { kind, lane, part: part.into(), said });
    }

    /// Says the reply to an invocation.
    fn reply(&mut self, lane: Lane, said: String) {
        self.say(lane, if said.starts_with("error ") { "error" } else { "result" }, said);
    }

    fn tell(&mut self, told: String) {
        self.events.push_back(told);
    }

    fn violation(&mut self, rule: Violation) {
        self.tell(format!("violation {rule:?}"));
    }

    fn waits(&self, request: u64) -> bool {
        self.out.iter().any(|waiting| waiting.kind == Kind::Request(request))
    }

    /// Returns `true` if the request was still there.
    fn take_back(&mut self, request: u64) -> bool {
        let before = self.out.len();
        self.out.retain(|waiting| waiting.kind != Kind::Request(request));
        self.out.len() < before
    }

    fn settled_waiting(&self) -> usize {
        self.events.iter().filter(|told| told.starts_with("done ") || told.starts_with("input ")).count()
    }

    // ---- Time ----

    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn call_deadline(call: &Call) -> Option<(u64, &'static str)> {
        if call.held || !call.questions.is_empty() {
            return None;
        }
        let idle = call.clocks.idle.map(|idle| (call.heard + micros(idle), "idle"));
        let total = call.latest.map(|latest| (latest, "in all"));
        match (idle, total) {
            (Some(idle), Some(total)) if idle.0 < total.0 => Some(idle),
            (idle, total) => total.or(idle),
        }
    }

    fn can_go(&self, serve: &Serve) -> bool {
        serve.kept.as_ref().is_some_and(|kept| kept.value.is_some() || self.terms.percent)
    }

    fn due(&self) -> Option<(u64, Due)> {
        if self.ending == Ending::Closed {
            return None;
        }
        let mut all: BTreeSet<(u64, Due)> = BTreeSet::new();
        all.extend(self.handshake_at.map(|at| (at, Due::Handshake)));
        all.extend(self.close_at.map(|at| (at, Due::Close)));
        all.extend(self.calls.iter().filter_map(|(id, call)| Self::call_deadline(call).map(|(at, _)| (at, Due::Call(*id)))));
        all.extend(self.questions.iter().filter_map(|(key, question)| question.at.map(|at| (at, Due::Question(*key)))));
        all.extend(self.alarms.iter().map(|(id, at)| (*at, Due::Alarm(*id))));
        for (id, serve) in &self.serves {
            match &serve.state {
                Serving::Active => {
                    all.extend(serve.deadline.map(|at| (at, Due::Serve(*id))));
                    let fills = serve.counted.len().checked_sub(serve.rate.updates as usize).and_then(|at| serve.counted.get(at));
                    let waits = serve.place.is_none() && self.can_go(serve);
                    all.extend(fills.filter(|_| waits).map(|at| (*at + micros(serve.rate.length), Due::Flush(*id))));
                }
                Serving::Answered { at, .. } => all.extend([(*at, Due::Release(*id))]),
                Serving::Cancelled => {}
            }
        }
        all.first().copied()
    }

    /// Lets everything happen whose time has come.
    pub(crate) fn handle_timeout(&mut self, now: u64) {
        self.advance(now);
        while let Some((_, due)) = self.due().filter(|(at, _)| *at <= self.now) {
            match due {
                Due::Handshake => self.fail("HandshakeTimeout"),
                Due::Close => {
                    self.close_at = None;
                    self.close_is_due();
                }
                Due::Call(id) => {
                    let call = &self.calls[&id];
                    let clock = Self::call_deadline(call).map_or("", |(_, clock)| clock);
                    let is_ping = call.method == "ping";
                    self.settle_call(id, &format!("timed out {clock}"));
                    if is_ping {
                        self.violation(Violation::PingUnanswered);
                    }
                }
                Due::Question(key) => {
                    if let Some(question) = self.take_question_back(key) {
                        self.bring(key, &question, "timed out");
                    }
                }
                Due::Serve(id) => self.cut_short(id, "deadline"),
                Due::Flush(id) => self.flush(id),
                Due::Release(id) => self.release(id),
                Due::Alarm(id) => {
                    self.alarms.remove(&id);
                    self.tell(format!("alarm {id}"));
                }
            }
        }
        self.settle_ending();
    }

    // ---- As a caller ----

    /// [`protocol_core::Session::invoke`].
    pub(crate) fn invoke(&mut self, call: &Invoke, now: u64) -> Answered {
        self.advance(now);
        if self.ending != Ending::Open {
            return state_error("Closing");
        }
        let depth = match call.parent {
            None => 0,
            Some(key) => match self.asked.get(&summary::number(key)) {
                Some(asked) => asked.depth,
                None => return state_error("NoParent"),
            },
        };
        if !self.client && (self.terms.names || !matches!(call.op(), Op::Ping | Op::Custom)) {
            return state_error("WrongEnd");
        }
        if self.terms.names && self.phase != Phase::Ready {
            return state_error("NotReady");
        }
        if self.terms.names && call.op() != Op::CallTool {
            return state_error("Unsupported");
        }
        if self.calls.len() + self.settled_waiting() >= self.config.limits.in_flight {
            return state_error("Full");
        }
        let id = self.number();
        let clocks = call.timeouts.unwrap_or(self.config.timeouts.call);
        let observed = self.terms.names || call.progress || (clocks.reset_on_progress && clocks.idle.is_some());
        let method = if call.op() == Op::CallTool { self.terms.call } else { summary::op(call.op()) };
        let held = !(self.phase == Phase::Ready || method == "ping");
        let (now, last, questions) = (self.now, None, Vec::new());
        let made = Call {
            method,
            latest: None,
            heard: now,
            asked: now,
            clocks,
            observed,
            depth,
            held: true,
            floor: None,
            last,
            quiet_until: None,
            questions,
        };
        self.calls.insert(id, made);
        if !held {
            self.send_call(id);
        }
        Ok(id)
    }

    fn send_call(&mut self, id: u64) {
        let (name, names) = (self.name(id), self.terms.names);
        let Some(call) = self.calls.get_mut(&id) else { return };
        (call.heard, call.asked, call.held) = (self.now, self.now, false);
        call.latest = call.clocks.max_total.map(|total| self.now + micros(total));
        if let Some((_, clock)) = Self::call_deadline(call).filter(|(at, _)| *at <= self.now) {
            // Nothing was sent.
            call.held = true;
            return self.settle_call(id, &format!("timed out {clock}"));
        }
        let mut said = format!("request {id} {}", call.method);
        if call.observed {
            said += &format!(" token {name}");
        }
        if call.depth > 0 && !names {
            said += &format!(" depth {}", call.depth);
        }
        self.push(Kind::Request(id), Lane::CHANNEL, format!("request {id}"), said);
    }

    /// The name that the other end uses for a call of ours.
    fn name(&self, id: u64) -> String {
        if self.terms.names { format!("\"inv_{id}\"") } else { id.to_string() }
    }

    /// [`protocol_core::Session::claim`], for an agent that can answer everything.
    pub(crate) fn claim(&mut self, now: u64) -> Answered {
        self.advance(now);
        if !self.client || !self.terms.names {
            return state_error("WrongEnd");
        }
        if self.ending != Ending::Open {
            return state_error("Closing");
        }
        match self.phase {
            Phase::Ready => return Ok(0),
            Phase::Answered => {}
            Phase::Fresh | Phase::Opened => return state_error("NotReady"),
        }
        self.say(Lane::CHANNEL, "notice", "notice tesseron/claimed".to_owned());
        self.phase = Phase::Ready;
        self.settle_ending();
        Ok(0)
    }

    /// [`protocol_core::Session::cancel`].
    pub(crate) fn cancel(&mut self, id: u64, now: u64) -> Answered {
        self.advance(now);
        if !self.calls.contains_key(&id) {
            return state_error("NotLive");
        }
        self.settle_call(id, "cancelled");
        self.settle_ending();
        Ok(0)
    }

    /// [`protocol_core::Session::provide_input`].
    pub(crate) fn provide_input(&mut self, key: u64, answer: &Answer, now: u64) -> Answered {
        self.advance(now);
        let Some(asked) = self.asked.remove(&key) else { return state_error("NotLive") };
        let said = match answer {
            Answer::Refused(error) => format!("error {} {}", asked.wire, error.code),
            _ => format!("result {}", asked.wire),
        };
        self.say(asked.lane, format!("answer {key}"), said);
        self.retire(asked.lane, &asked.wire);
        self.close_question_of_call(asked.parent, key);
        self.settle_ending();
        Ok(0)
    }

    fn settle_call(&mut self, id: u64, outcome: &str) {
        let Some(call) = self.calls.get(&id) else { return };
        let speaks = !call.held && call.method != "ping" && outcome != "lost";
        if !self.take_back(id) && speaks {
            self.say(Lane::CHANNEL, format!("cancel {id}"), format!("cancel {}", self.name(id)));
        }
        self.finish_call(id, outcome);
    }

    fn finish_call(&mut self, id: u64, outcome: &str) {
        let Some(call) = self.calls.remove(&id) else { return };
        for key in call.questions {
            self.refuse_asked(key);
        }
        let last = call.last.map_or_else(String::new, |last| format!(" last {}", summary::progress(&last)));
        self.tell(format!("done {id} {outcome}{last}"));
    }

    fn refuse_asked(&mut self, key: u64) {
        if let Some(asked) = self.withdraw_asked(key)
            && self.may_write()
        {
            self.say(asked.lane, format!("answer {key}"), format!("error {} {}", asked.wire, self.terms.over));
        }
    }

    fn withdraw_asked(&mut self, key: u64) -> Option<Asked> {
        let asked = self.asked.remove(&key)?;
        self.retire(asked.lane, &asked.wire);
        self.tell(format!("gone {key}"));
        Some(asked)
    }

    fn close_question_of_call(&mut self, parent: Option<u64>, key: u64) {
        if let Some(call) = parent.and_then(|id| self.calls.get_mut(&id)) {
            call.questions.retain(|open| *open != key);
            if call.questions.is_empty() {
                call.heard = self.now;
                call.latest = call.latest.map(|latest| self.now + latest.saturating_sub(call.asked).max(1));
            }
        }
    }

    fn may_write(&self) -> bool {
        matches!(self.ending, Ending::Open | Ending::Finishing(_))
    }

    // ---- As a callee ----

    fn active(&mut self, id: u64) -> Option<&mut Serve> {
        self.serves.get_mut(&id).filter(|serve| matches!(serve.state, Serving::Active))
    }

    /// [`protocol_core::Session::configure`].
    pub(crate) fn configure(&mut self, id: u64, options: ServeOptions, now: u64) -> Answered {
        self.advance(now);
        let now = self.now;
        let Some(serve) = self.active(id) else { return state_error("NotLive") };
        if let Some(window) = options.window {
            serve.rate = window;
            while serve.counted.len() > window.updates as usize {
                serve.counted.pop_front();
            }
        }
        let at = options.deadline.map(|deadline| serve.received + micros(deadline));
        serve.deadline = at.or(serve.deadline);
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

    /// [`protocol_core::Session::progress`], for numbers that make sense. Gives the name of what became of it as an error.
    pub(crate) fn progress(&mut self, id: u64, update: &Progress, now: u64) -> Answered {
        self.advance(now);
        let percent = self.terms.percent;
        let Some(serve) = self.active(id) else { return state_error("NotLive") };
        if let (Some(value), Some(total)) = (update.value, update.total)
            && value > total
        {
            return state_error("AboveTotal");
        }
        if serve.token.is_none() {
            return state_error("Unobserved");
        }
        let mut update = update.clone();
        if percent {
            let share = |value: f64| update.total.map_or(value, |total| 100.0 * value / total).clamp(0.0, 100.0);
            update.value = update.value.map(share);
            update.total = update.value.map(|_| 100.0);
        }
        if update.value.is_some_and(|value| serve.floor.is_some_and(|floor| value <= floor)) {
            (update.value, update.total) = (None, None);
            if update.message.is_none() {
                return state_error("NotIncreasing");
            }
        }
        if update.value.is_none() && serve.floor.is_none() && !percent {
            update.value = Some(0.0);
        }
        serve.floor = update.value.or(serve.floor);
        let kept = serve.kept.get_or_insert_default();
        if update.value.is_some() {
            (kept.value, kept.total) = (update.value, update.total);
        } else if update.total.is_some() {
            kept.total = update.total;
        }
        if update.message.is_some() {
            kept.message = update.message;
        }
        self.flush(id);
        state_error(match self.serves.get(&id) {
            Some(Serve { place: Some(_), .. }) => "Coalesced",
            Some(Serve { kept: Some(_), .. }) => "Kept",
            _ => "Sent",
        })
    }

    fn flush(&mut self, id: u64) {
        let (now, next) = (self.now, self.places);
        let can_go = self.serves.get(&id).is_some_and(|serve| self.can_go(serve));
        let is_stopped = self.serves.get(&id).is_some_and(|serve| self.stopped.contains(&serve.lane));
        let Some(serve) = self.active(id).filter(|_| can_go) else { return };
        let is_whole = |kept: &Progress| kept.value.is_some() && kept.value == kept.total;
        let is_final = serve.kept.as_ref().is_some_and(is_whole) && !serve.final_passed;
        let unlimited = serve.rate.length.is_zero();
        let recent = serve.counted.iter().filter(|at| **at + micros(serve.rate.length) > now).count();
        if !is_final && !unlimited && recent >= serve.rate.updates as usize {
            serve.place = None;
            return;
        }
        if is_stopped {
            if serve.place.is_none_or(|(waits_for_turn, _)| waits_for_turn == is_final) {
                serve.place = Some((!is_final, next));
                self.places += 1;
            }
            return;
        }
        if is_final {
            serve.final_passed = true;
        } else if !unlimited {
            serve.counted.push_back(now);
            while serve.counted.len() > serve.rate.updates as usize {
                serve.counted.pop_front();
            }
        }
        self.send_progress(id);
    }

    fn send_progress(&mut self, id: u64) {
        let now = self.now;
        let Some(serve) = self.serves.get_mut(&id) else { return };
        let (Some(kept), Some(token)) = (serve.kept.take(), &serve.token) else { return };
        (serve.last_sent, serve.place) = (Some(now), None);
        let (lane, said) = (serve.lane, format!("progress {token} {}", summary::progress(&kept)));
        self.push(Kind::Progress(id), lane, "within", said);
    }

    /// [`protocol_core::Session::checkpoint`] of an object.
    pub(crate) fn checkpoint(&mut self, id: u64) -> Answered {
        let Some(serve) = self.active(id) else { return state_error("NotLive") };
        serve.checkpoint = true;
        Ok(0)
    }

    /// [`protocol_core::Session::request_input`].
    pub(crate) fn request_input(&mut self, id: u64, ask: &Ask, now: u64) -> Answered {
        self.advance(now);
        let names = self.terms.names;
        let (lane, wire, depth) = match self.active(id) {
            Some(serve) => (serve.lane, serve.token.clone().filter(|_| names).unwrap_or_else(|| serve.wire.clone()), serve.depth),
            None => return state_error("NotLive"),
        };
        if self.peer_ended {
            return state_error("Disconnected");
        }
        if self.client || !matches!(self.phase, Phase::Answered | Phase::Ready) {
            return state_error("Unsupported");
        }
        let (kind, method) = match ask {
            Ask::Sample(_) => ("sample", self.terms.sample),
            Ask::Elicit(_) => ("elicit", self.terms.elicit),
            Ask::OpenUrl(_) => ("open", self.terms.elicit),
            Ask::Confirm { .. } => ("confirm", self.terms.elicit),
            _ => ("roots", "roots/list"),
        };
        let [samples, elicits] = self.peer_can;
        let can = match kind {
            "sample" => samples,
            "roots" | "open" => !names,
            _ => elicits,
        };
        if !can {
            return state_error("Unsupported");
        }
        let depth = if kind == "sample" { depth.saturating_add(1) } else { depth };
        let max = self.config.depth.max;
        if kind == "sample" && depth > max {
            return state_error(&format!("TooDeep {{ depth: {depth}, max: {max} }}"));
        }
        if self.questions.len() + self.settled_waiting() >= self.config.limits.in_flight {
            return state_error("Full");
        }
        let key = self.number();
        let shown = if depth > 0 && !names { format!(" depth {depth}") } else { String::new() };
        let said = format!("request {key} {method}{shown} parent {wire}");
        let at = self.config.timeouts.input.map(|span| self.now + micros(span));
        let ready = self.phase == Phase::Ready;
        let held = (!ready).then(|| said.clone());
        self.questions.insert(key, Question { asker: id, lane, kind, at, held });
        if let Some(serve) = self.serves.get_mut(&id) {
            serve.questions.push(key);
        }
        if ready {
            self.push(Kind::Request(key), lane, "within", said);
        }
        Ok(key)
    }

    /// [`protocol_core::Session::abandon_input`].
    pub(crate) fn abandon_input(&mut self, key: u64, now: u64) -> Answered {
        self.advance(now);
        let taken = self.take_question_back(key).map(|_| 0).ok_or_else(|| "NotLive".to_owned());
        self.settle_ending();
        taken
    }

    /// [`protocol_core::Session::respond`].
    pub(crate) fn respond(&mut self, id: u64, reply: &Reply, now: u64) -> Answered {
        self.advance(now);
        let Some(serve) = self.serves.get(&id) else { return state_error("NotLive") };
        let result = match serve.state {
            Serving::Active => {
                let (wire, partial) = (&serve.wire, if serve.checkpoint { " partial" } else { "" });
                let frame = match reply {
                    Reply::Error(error) => format!("error {wire} {}{partial}", error.code),
                    Reply::Tool(_) if !serve.is_tool => format!("error {wire} -32603"),
                    _ => format!("result {wire}"),
                };
                self.last_words(id);
                let gap = micros(self.config.timeouts.response_gap);
                let at = self.serves.get(&id).and_then(|serve| serve.last_sent).map_or(0, |at| at + gap);
                if let Some(serve) = self.serves.get_mut(&id) {
                    serve.state = Serving::Answered { at, frame };
                }
                if at <= self.now {
                    self.release(id);
                }
                Ok(0)
            }
            Serving::Answered { .. } => state_error("NotLive"),
            Serving::Cancelled => {
                let (lane, wire) = (serve.lane, serve.wire.clone());
                self.serves.remove(&id);
                if self.live.get(&(lane, wire.clone())) == Some(&Owner::Serve(id)) {
                    self.retire(lane, &wire);
                }
                state_error("NotLive")
            }
        };
        self.settle_ending();
        result
    }

    /// Sends what is kept, and takes questions back.
    fn last_words(&mut self, id: u64) {
        if self.serves.get(&id).is_some_and(|serve| serve.token.is_some() && self.can_go(serve)) {
            self.send_progress(id);
        }
        self.take_questions_back(id);
    }

    fn take_questions_back(&mut self, id: u64) {
        let questions = self.serves.get_mut(&id).map(|serve| std::mem::take(&mut serve.questions)).unwrap_or_default();
        for key in questions {
            self.take_question_back(key);
        }
    }

    fn release(&mut self, id: u64) {
        let Some(Serve { lane, wire, state: Serving::Answered { frame, .. }, .. }) = self.serves.get(&id).cloned() else { return };
        self.serves.remove(&id);
        self.retire(lane, &wire);
        self.reply(lane, frame);
    }

    fn cancel_serve(&mut self, id: u64, why: &str) {
        let Some(serve) = self.active(id) else { return };
        (serve.state, serve.place) = (Serving::Cancelled, None);
        self.out.retain(|waiting| waiting.kind != Kind::Progress(id));
        self.take_questions_back(id);
        self.tell(format!("cancelled {id} {why}"));
    }

    fn cut_short(&mut self, id: u64, why: &str) {
        let Some(serve) = self.active(id) else { return };
        let partial = if serve.checkpoint { " partial" } else { "" };
        let (lane, wire, is_tool) = (serve.lane, serve.wire.clone(), serve.is_tool);
        let code = match why {
            "deadline" => self.terms.deadline,
            "closing" => self.terms.closing,
            _ => self.terms.cancelled,
        };
        let frame = match code {
            Some(code) => format!("error {wire} {code}{partial}"),
            None if is_tool => format!("result {wire}"),
            None => format!("error {wire} -32603{partial}"),
        };
        self.last_words(id);
        if let Some(serve) = self.serves.get_mut(&id) {
            (serve.state, serve.place) = (Serving::Cancelled, None);
        }
        self.reply(lane, frame);
        self.retire(lane, &wire);
        self.tell(format!("cancelled {id} {why}"));
    }

    fn close_question(&mut self, key: u64) -> Option<Question> {
        let question = self.questions.remove(&key)?;
        if let Some(serve) = self.serves.get_mut(&question.asker) {
            serve.questions.retain(|open| *open != key);
        }
        Some(question)
    }

    fn take_question_back(&mut self, key: u64) -> Option<Question> {
        let question = self.close_question(key)?;
        if question.held.is_none() && !self.take_back(key) && self.terms.cancels_questions {
            self.say(question.lane, "within", format!("cancel {key}"));
        }
        Some(question)
    }

    fn bring(&mut self, key: u64, question: &Question, answer: &str) {
        let is_answer = matches!(answer, "confirm true" | "confirm false");
        let answer = if question.kind == "confirm" && !is_answer { "confirm false" } else { answer };
        self.tell(format!("input {} {key} {answer}", question.asker));
    }

    // ---- As either ----

    /// [`protocol_core::Session::log`], of records that are equal.
    pub(crate) fn log(&mut self, id: Option<u64>, record: &LogRecord, now: u64) -> Answered {
        self.advance(now);
        let names = self.terms.names;
        let (lane, name) = match id.map(|id| self.active(id)) {
            None => (Lane::CHANNEL, 0),
            Some(None) => return state_error("NotLive"),
            Some(Some(serve)) => (serve.lane, serve.token.as_ref().filter(|_| names).map_or(0, String::len)),
        };
        if self.client || record.level < Level::Info || !self.may_write() {
            return state_error("Unwanted");
        }
        let is_stopped = self.stopped.contains(&lane);
        if is_stopped && !self.drop_logs(lane, name) {
            return state_error("Dropped");
        }
        self.push(Kind::Log(name), lane, if id.is_some() { "within" } else { "notice" }, "log".to_owned());
        state_error(if is_stopped { "Dropped" } else { "Sent" })
    }

    /// On a lane that is stopped the oldest records make room for a new one, if that is enough.
    fn drop_logs(&mut self, lane: Lane, name: usize) -> bool {
        let lengths = self.out.iter().enumerate().filter_map(|(at, waiting)| match waiting.kind {
            Kind::Log(length) if waiting.lane == lane => Some((at, length)),
            _ => None,
        });
        let oldest: Vec<_> = lengths.take(2).collect();
        // All else in them is equal, and longer than any name.
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

    /// [`protocol_core::Session::notify`] with custom news.
    pub(crate) fn notify(&mut self, method: &str, now: u64) -> Answered {
        self.advance(now);
        if self.ending != Ending::Open {
            return state_error("Closing");
        }
        if !matches!(self.phase, Phase::Answered | Phase::Ready) {
            return state_error("NotReady");
        }
        self.say(Lane::CHANNEL, "notice", format!("notice {method}"));
        Ok(0)
    }

    /// [`protocol_core::Session::set_alarm`].
    pub(crate) fn set_alarm(&mut self, at: u64) -> Answered {
        let rung = self.events.iter().filter(|told| told.starts_with("alarm ")).count();
        if self.is_closed() || self.alarms.len() + rung >= self.config.limits.alarms {
            return state_error("TooManyAlarms");
        }
        let id = self.number();
        if at <= self.now {
            self.tell(format!("alarm {id}"));
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
                self.lose();
                if !self.terms.answers_after_eof {
                    for id in self.serves.keys().copied().collect::<Vec<_>>() {
                        self.cancel_serve(id, "disconnected");
                    }
                }
                self.begin_end("Eof", micros(self.config.timeouts.close_grace));
            }
            _ => self.fail("Failed"),
        }
        self.settle_ending();
    }

    fn begin_end(&mut self, reason: &'static str, grace: u64) {
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
                for id in self.serves.keys().copied().collect::<Vec<_>>() {
                    match reason {
                        "Local" => self.cut_short(id, "closing"),
                        _ => self.cancel_serve(id, "disconnected"),
                    }
                }
                for key in self.asked.keys().copied().collect::<Vec<_>>() {
                    self.refuse_asked(key);
                }
                self.drain(reason);
            }
            Ending::Draining(reason) => self.close_now(reason),
            Ending::Open | Ending::Closed => {}
        }
    }

    fn drain(&mut self, reason: &'static str) {
        self.ending = Ending::Draining(reason);
        for id in self.serves.keys().copied().collect::<Vec<_>>() {
            self.release(id);
        }
        self.handshake_at = None;
        let grace = micros(self.config.timeouts.close_grace);
        self.close_at = Some(self.now + grace);
        if grace == 0 {
            self.close_now(reason);
        }
    }

    fn settle_ending(&mut self) {
        if let Ending::Finishing(reason) = self.ending
            && self.calls.is_empty()
            && self.asked.is_empty()
            && self.serves.len() == self.orphans()
        {
            self.drain(reason);
        }
        if let Ending::Draining(reason) = self.ending
            && self.out.is_empty()
        {
            self.close_now(reason);
        }
    }

    fn lose(&mut self) {
        for key in self.questions.keys().copied().collect::<Vec<_>>() {
            if let Some(question) = self.close_question(key) {
                self.take_back(key);
                self.bring(key, &question, "lost");
            }
        }
        for key in self.asked.keys().copied().collect::<Vec<_>>() {
            self.withdraw_asked(key);
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
        for id in self.serves.keys().copied().collect::<Vec<_>>() {
            self.cancel_serve(id, "disconnected");
        }
        self.close_now(reason);
    }

    fn close_now(&mut self, reason: &str) {
        self.ending = Ending::Closed;
        self.out.clear();
        self.stopped.clear();
        self.serves.clear();
        self.alarms.clear();
        self.live.clear();
        self.past.clear();
        self.tell(format!("closed {reason}"));
    }

    // ---- Lanes ----

    /// [`protocol_core::Session::set_writable`].
    pub(crate) fn set_writable(&mut self, lane: Lane, is_writable: bool, now: u64) -> Answered {
        self.advance(now);
        if self.is_closed() || !self.is_open(lane) {
            return state_error("NotLive");
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
        let waits = self.serves.iter().filter(|(_, serve)| serve.lane == lane);
        let line: BTreeSet<_> = waits.filter_map(|(id, serve)| Some((serve.place?, *id))).collect();
        for (_, id) in line {
            self.flush(id);
        }
    }

    /// [`protocol_core::Session::handle_gone`].
    pub(crate) fn handle_gone(&mut self, gone: Gone, now: u64) -> Answered {
        self.advance(now);
        if self.is_closed() {
            return state_error("NotLive");
        }
        // On Tesseron an exchange lives with its lane.
        let ends = self.terms.names;
        match gone {
            Gone::Lane(lane) if !self.is_open(lane) => return state_error("NotLive"),
            Gone::Lane(lane) => {
                if ends {
                    self.lose_lane(lane);
                }
                // A lane that is gone is stopped no longer.
                self.resume(lane);
            }
            Gone::Exchange(exchange) | Gone::Response(exchange) => {
                let id = summary::number(exchange);
                if self.calls.get(&id).is_none_or(|call| call.held) {
                    return state_error("NotLive");
                }
                if ends || matches!(gone, Gone::Response(_)) {
                    self.settle_call(id, "lost");
                }
            }
        }
        self.settle_ending();
        Ok(0)
    }

    fn lose_lane(&mut self, lane: Lane) {
        let on_it = |serve: &Serve| serve.lane == lane;
        for id in self.serves.iter().filter(|(_, serve)| on_it(serve)).map(|(id, _)| *id).collect::<Vec<_>>() {
            let wire = self.serves[&id].wire.clone();
            match self.serves[&id].state {
                Serving::Active => self.cancel_serve(id, "disconnected"),
                Serving::Answered { .. } => drop(self.serves.remove(&id)),
                Serving::Cancelled => continue,
            }
            self.retire(lane, &wire);
        }
        for key in self.asked.iter().filter(|(_, asked)| asked.lane == lane).map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some(asked) = self.withdraw_asked(key) {
                self.close_question_of_call(asked.parent, key);
            }
        }
        if lane != Lane::CHANNEL {
            self.out.retain(|waiting| waiting.lane != lane);
            self.stopped.remove(&lane);
        }
    }

    // ---- What arrives ----

    /// Ids of other lanes than the channel are not remembered.
    fn retire(&mut self, lane: Lane, wire: &str) {
        if self.live.remove(&(lane, wire.to_owned())).is_some() && lane == Lane::CHANNEL {
            if self.past.len() >= self.config.limits.tombstones {
                self.past.pop_front();
            }
            self.past.push_back(wire.to_owned());
        }
    }

    fn take_id(&mut self, wire: &str, owner: Owner) -> bool {
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
        if reused {
            self.violation(Violation::ReusedId);
        }
        true
    }

    /// An answer that belongs to no invocation.
    fn answer(&mut self, wire: &str, said: String) {
        let lane = self.arriving.0;
        if self.live.contains_key(&(lane, wire.to_owned())) {
            self.violation(Violation::DuplicateRequest);
        } else {
            self.arriving.1 += 1;
            self.say(lane, if said.starts_with("error ") { "refusal" } else { "result" }, said);
        }
    }

    fn refuse(&mut self, wire: &str, rule: Option<Violation>, code: i64) {
        if let Some(rule) = rule {
            self.violation(rule);
        }
        self.answer(wire, format!("error {wire} {code}"));
    }

    /// [`protocol_core::Session::handle_frame`] of a frame that one of our ends, or [`super::ops`], can have made. Gives how many
    /// replies its lane is owed for it.
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

    fn take_request(&mut self, method: &str, wire: &str, params: &Value) {
        let claimed = params["_meta"]["protocol-core/samplingDepth"].as_u64().map_or(0, |depth| depth.min(255) as u8);
        let Terms { greeting, call, sample, elicit, names, .. } = self.terms;
        let is_question = method == sample || method == elicit || (method == "roots/list" && !names);
        let is_known =
            method == greeting || is_question || method == call || (self.client && method.starts_with("tools/") && !names);
        match method {
            "ping" if !names => self.answer(wire, format!("result {wire}")),
            _ if method == greeting && self.client == names => {
                if self.phase != Phase::Fresh {
                    return self.refuse(wire, Some(Violation::OutOfPhase), -32600);
                }
                if names && !params["protocolVersion"].is_string() {
                    return self.refuse(wire, Some(Violation::InvalidParams), -32602);
                }
                let lane = self.arriving.0;
                self.arriving.1 += 1;
                self.say(lane, "result", format!("result {wire}"));
                self.phase = Phase::Answered;
                self.greeting_of_peer = Some((lane, wire.to_owned()));
                self.handshake_at = None;
                self.tell("ready".to_owned());
            }
            _ if is_question && self.client => self.take_question(method, wire, params, claimed),
            _ if !self.client && (method == call || (method == "tools/list" && !names)) => {
                self.take_call(method, wire, params, claimed);
            }
            _ if is_known => self.refuse(wire, Some(Violation::WrongDirection), -32601),
            _ => self.refuse(wire, None, -32601),
        }
    }

    fn take_call(&mut self, method: &str, wire: &str, params: &Value, depth: u8) {
        if !self.serves_peer() {
            return self.refuse(wire, Some(Violation::OutOfPhase), self.terms.too_early);
        }
        if self.ending != Ending::Open {
            return self.refuse(wire, None, self.terms.busy);
        }
        if self.serves.len() >= self.config.limits.in_flight {
            return self.refuse(wire, Some(Violation::TooManyRequests), self.terms.busy);
        }
        let named = params.get("invocationId").map(Value::to_string).filter(|_| self.terms.names);
        if named.as_ref().is_some_and(|name| self.named(name).is_some()) {
            return self.refuse(wire, Some(Violation::DuplicateRequest), -32600);
        }
        if !self.take_id(wire, Owner::Serve(self.next)) {
            return;
        }
        let id = self.number();
        let token = named.or_else(|| params["_meta"].get("progressToken").map(Value::to_string));
        let method = if method == self.terms.call { "tools/call" } else { method };
        self.tell(format!("request {id} {method} depth {depth} observed {}", token.is_some()));
        let serve = Serve {
            lane: self.arriving.0,
            wire: wire.to_owned(),
            is_tool: method == "tools/call",
            token,
            depth,
            received: self.now,
            deadline: self.config.timeouts.serve.map(|span| self.now + micros(span)),
            floor: None,
            kept: None,
            place: None,
            rate: self.config.progress.window,
            counted: VecDeque::new(),
            final_passed: false,
            last_sent: None,
            checkpoint: false,
            questions: Vec::new(),
            state: Serving::Active,
        };
        let is_over = serve.deadline.is_some_and(|at| at <= self.now);
        self.serves.insert(id, serve);
        if is_over {
            self.cut_short(id, "deadline");
        }
    }

    /// The invocation that the other end calls so on the lane of the frame that is read, until it was answered.
    fn named(&self, name: &str) -> Option<u64> {
        let lane = self.arriving.0;
        let is_live = |serve: &Serve, id: &u64| self.live.get(&(lane, serve.wire.clone())) == Some(&Owner::Serve(*id));
        let on_it = self.serves.iter().filter(|(_, serve)| serve.lane == lane);
        let mut all = on_it.filter(|(id, serve)| serve.token.as_deref() == Some(name) && is_live(serve, id));
        all.next().map(|(id, _)| *id)
    }

    /// The owner of an id: on the lane of the frame that is read, or else on the only lane where it is live.
    fn owner(&self, wire: &str) -> Option<Owner> {
        let of_lane = self.live.get(&(self.arriving.0, wire.to_owned()));
        let mut all = self.live.iter().filter(|((_, id), _)| id == wire).map(|(_, owner)| owner);
        of_lane.or_else(|| all.next().filter(|_| all.next().is_none())).copied()
    }

    /// The call of ours that a question or an update names, if the name is one of ours.
    fn call_named(&self, params: &Value, member: &Value) -> Option<u64> {
        if !self.terms.names {
            return member.as_u64();
        }
        params["invocationId"].as_str()?.strip_prefix("inv_")?.parse().ok()
    }

    fn take_question(&mut self, method: &str, wire: &str, params: &Value, claimed: u8) {
        if !self.serves_peer() || (self.terms.names && self.phase != Phase::Ready) {
            return self.refuse(wire, Some(Violation::OutOfPhase), self.terms.too_early);
        }
        if !self.may_write() {
            return self.refuse(wire, None, self.terms.busy);
        }
        let named = self.call_named(params, &params["_meta"]["protocol-core/parent"]);
        let is_late = named.is_some_and(|named| (1..self.next).contains(&named) && !self.calls.contains_key(&named));
        let has_left = |id: &u64, call: &Call| call.method != "ping" && !call.held && !self.waits(*id);
        let left = || self.calls.iter().filter(|(id, call)| has_left(id, call));
        let named = named.filter(|named| left().any(|(id, _)| id == named));
        if named.is_none() && self.terms.names {
            return self.refuse(wire, (!is_late).then_some(Violation::UndeclaredInput), -32009);
        }
        let parent = named.or_else(|| left().max_by_key(|(id, call)| (call.depth, **id)).map(|(id, _)| *id));
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
        if self.asked.len() >= self.config.limits.in_flight {
            return self.refuse(wire, Some(Violation::TooManyRequests), self.terms.busy);
        }
        if !self.take_id(wire, Owner::Asked(self.next)) {
            return;
        }
        let key = self.number();
        self.asked.insert(key, Asked { lane: self.arriving.0, wire: wire.to_owned(), parent, depth });
        if let Some(call) = parent.and_then(|id| self.calls.get_mut(&id)) {
            if call.questions.is_empty() {
                call.asked = self.now;
            }
            call.questions.push(key);
        }
        self.tell(format!("asked {key} parent {} {kind} depth {depth}", parent.unwrap_or(0)));
    }

    fn take_notification(&mut self, method: &str, params: &Value) {
        let Terms { cancel, progress, log, names, .. } = self.terms;
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
                let can = |what: &str| params["agentCapabilities"][what] == true;
                self.peer_can = [can("sampling"), can("elicitation")];
                if self.phase == Phase::Ready {
                    self.tell("changed".to_owned());
                } else {
                    self.early_change = true;
                }
            }
            _ if method == log && names => {
                // One on behalf of a call that is over comes too late.
                let named = params.get("invocationId").and_then(|_| self.call_named(params, &Value::Null));
                if named.is_none_or(|id| self.calls.get(&id).is_some_and(|call| !call.held)) {
                    self.tell("log".to_owned());
                }
            }
            _ if names && self.serves_peer() => self.tell("notice".to_owned()),
            _ if names => self.violation(Violation::OutOfPhase),
            "notifications/cancelled" => {
                let wire = params["requestId"].to_string();
                match self.owner(&wire) {
                    Some(Owner::Serve(id)) => self.cancel_serve(id, "peer"),
                    Some(Owner::Asked(key)) => {
                        if let Some(asked) = self.withdraw_asked(key) {
                            self.close_question_of_call(asked.parent, key);
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
            "notifications/message" => self.tell("log".to_owned()),
            _ if self.serves_peer() => self.tell("notice".to_owned()),
            _ => self.violation(Violation::OutOfPhase),
        }
    }

    fn release_held(&mut self) {
        for id in self.calls.iter().filter(|(_, call)| call.held).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send_call(id);
        }
        for (key, question) in &mut self.questions {
            if let Some(said) = question.held.take() {
                let (kind, lane, part) = (Kind::Request(*key), question.lane, "within".to_owned());
                self.out.push_back(Waiting { kind, lane, part, said });
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
            return self.stray_progress();
        };
        let unfit = self.waits(id);
        let (now, quiet) = (self.now, micros(self.config.progress.window.length));
        let percent = self.terms.percent;
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.held) else { return };
        if !call.observed || unfit {
            return self.stray_progress();
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
            if is_above && call.clocks.reset_on_progress {
                call.heard = now;
            }
            return self.tell(format!("progress {id} {}", summary::progress(&update)));
        }
        if is_above {
            call.floor = update.value;
            call.last = Some(update.clone());
            if call.clocks.reset_on_progress {
                call.heard = now;
            }
            return self.tell(format!("progress {id} {}", summary::progress(&update)));
        }
        if call.quiet_until.is_none_or(|until| now >= until) {
            call.quiet_until = Some(now + quiet);
            self.violation(Violation::ProgressNotIncreasing);
        }
    }

    fn stray_progress(&mut self) {
        if self.now >= self.quiet_until {
            self.quiet_until = self.now + micros(self.config.progress.window.length);
            self.violation(Violation::UnknownProgress);
        }
    }

    fn take_response(&mut self, frame: &Value, wire: &str) {
        let Some(id) = self.ours(wire) else { return self.violation(Violation::UnknownResponse) };
        let error = frame.get("error");
        let malformed = error.is_none() && !frame["result"].is_object();
        if id == 1 && self.greeting_open {
            self.greeting_open = false;
            if let Some(error) = error {
                self.tell(format!("refused {}", error["code"]));
            }
            if error.is_some() || !frame["result"]["protocolVersion"].is_string() {
                return self.fail("HandshakeRefused");
            }
            self.phase = Phase::Ready;
            self.handshake_at = None;
            self.tell("ready".to_owned());
            if let Some(greeted) = self.terms.greeted {
                self.say(Lane::CHANNEL, "notice", greeted.to_owned());
            }
            if self.early_change {
                self.tell("changed".to_owned());
            } else if self.terms.names {
                let can = |what: &str| frame["result"]["capabilities"][what] == true;
                self.peer_can = [can("sampling"), can("elicitation")];
            }
            return self.release_held();
        }
        let is_live = self.questions.get(&id).is_some_and(|question| question.held.is_none())
            || self.calls.get(&id).is_some_and(|call| !call.held);
        if !is_live {
            return;
        }
        if self.waits(id) {
            return self.violation(Violation::UnknownResponse);
        }
        if let Some(question) = self.close_question(id) {
            let read = match error {
                Some(error) => format!("refused {}", error["code"]),
                None => read_answer(question.kind, &frame["result"], self.terms.names).to_owned(),
            };
            if read == "invalid" {
                self.violation(Violation::InvalidResponse);
            }
            return self.bring(id, &question, &read);
        }
        let outcome = match error {
            Some(error) => format!("error {}{}", error["code"], if summary::has_partial(error) { " partial" } else { "" }),
            None if self.terms.names => {
                let result = &frame["result"];
                let fits = result["invocationId"].as_str() == Some(&*format!("inv_{id}"));
                let is_odd = result.get("invocationId").is_some() || result.get("output").is_some();
                if !fits {
                    self.violation(Violation::InvalidResponse);
                }
                if fits || is_odd { "result".to_owned() } else { "invalid".to_owned() }
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
