//! What a session should do, said a second time: plain maps, no timers, no queue that is clever.
//!
//! A [`Model`] is told exactly what a session is told, in the same order, and predicts every event, every frame, every answer of a verb
//! and the next deadline, each in a few words ([`super::told`]). Deadlines are looked for afresh each time among all that is live. It
//! knows frames that our own ends send and the hostile ones of [`super::ops`]; it does not know bytes, congestion or limits on sizes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol_core::{
    Answer, Ask, CallTimeouts, Config, Invoke, Level, LogRecord, Op, Progress, RateWindow, Reply, ServeOptions, TransportEnd,
    Violation,
};
use serde_json::Value;

use super::told;

/// What a verb gives: the number of an id, or the name of an error.
pub type Answered = Result<u64, String>;

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
    started: u64,
    heard: u64,
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
    wire: String,
    is_tool: bool,
    token: Option<String>,
    depth: u8,
    received: u64,
    deadline: Option<u64>,
    floor: Option<f64>,
    kept: Option<Progress>,
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
    kind: &'static str,
    at: Option<u64>,
    /// What waits for the handshake.
    held: Option<String>,
}

#[derive(Clone, Debug)]
struct Asked {
    wire: String,
    parent: Option<u64>,
    depth: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Serve(u64),
    Asked(u64),
}

/// What a waiting frame is, for taking it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Request(u64),
    Progress(u64),
}

/// What one end should do.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    client: bool,
    now: u64,
    phase: Phase,
    handshake_at: Option<u64>,
    greeting_open: bool,
    greeting_of_peer: Option<String>,
    ending: Ending,
    peer_ended: bool,
    close_at: Option<u64>,
    next: u64,
    calls: BTreeMap<u64, Call>,
    serves: BTreeMap<u64, Serve>,
    questions: BTreeMap<u64, Question>,
    asked: BTreeMap<u64, Asked>,
    alarms: BTreeMap<u64, u64>,
    live: BTreeMap<String, Owner>,
    past: VecDeque<String>,
    highest: Option<i64>,
    quiet_until: u64,
    out: VecDeque<(Kind, String)>,
    events: VecDeque<String>,
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
    pub fn new(config: &Config, client: bool, now: u64) -> Self {
        let mut model = Self {
            config: config.clone(),
            client,
            now,
            phase: Phase::Fresh,
            handshake_at: config.timeouts.handshake.map(|span| now + micros(span)),
            greeting_open: client,
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
        };
        if client {
            model.phase = Phase::Opened;
            let id = model.number();
            model.say(format!("request {id} initialize"));
        }
        model
    }

    /// Everything that it predicts from, in words that say times as they are seen from `now`.
    #[must_use]
    pub fn digest(&self, now: u64) -> String {
        let from_now = |at: &mut u64| *at = at.wrapping_sub(now);
        let (mut calls, mut serves, mut questions) = (self.calls.clone(), self.serves.clone(), self.questions.clone());
        for call in calls.values_mut() {
            [Some(&mut call.started), Some(&mut call.heard), call.quiet_until.as_mut()].into_iter().flatten().for_each(from_now);
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
        let phases = (self.phase, self.ending, self.peer_ended, handshake, close, self.next, self.now.wrapping_sub(now));
        let peer = (&self.asked, &self.live, &self.past, self.highest);
        format!("{phases:?} {calls:?} {serves:?} {questions:?} {peer:?} {:?} {:?} {:?}", self.alarms, self.out, self.events)
    }

    // ---- What is polled ----

    /// The next event.
    pub fn poll_event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    /// The next frame.
    pub fn poll_transmit(&mut self) -> Option<String> {
        let (_, said) = self.out.pop_front()?;
        self.settle_ending();
        Some(said)
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.due().map(|(at, _)| at)
    }

    /// Whether it takes frames.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.ending != Ending::Closed && self.events.len() < self.config.limits.events
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ending == Ending::Closed
    }

    /// How many calls, invocations and orphans there are.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.calls.len(), self.serves.len(), self.orphans())
    }

    fn orphans(&self) -> usize {
        self.serves.values().filter(|serve| matches!(serve.state, Serving::Cancelled)).count()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn say(&mut self, said: String) {
        self.out.push_back((Kind::Plain, said));
    }

    fn tell(&mut self, told: String) {
        self.events.push_back(told);
    }

    fn violation(&mut self, rule: Violation) {
        self.tell(format!("violation {rule:?}"));
    }

    fn waits(&self, request: u64) -> bool {
        self.out.iter().any(|(kind, _)| *kind == Kind::Request(request))
    }

    /// Whether the request was still there.
    fn take_back(&mut self, request: u64) -> bool {
        let before = self.out.len();
        self.out.retain(|(kind, _)| *kind != Kind::Request(request));
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
        let idle = call.clocks.idle.filter(|_| call.questions.is_empty()).map(|idle| (call.heard + micros(idle), "idle"));
        let total = call.clocks.max_total.map(|total| (call.started + micros(total), "in all"));
        match (idle, total) {
            (Some(idle), Some(total)) if idle.0 < total.0 => Some(idle),
            (idle, total) => total.or(idle),
        }
    }

    fn can_go(serve: &Serve) -> bool {
        serve.kept.as_ref().is_some_and(|kept| kept.value.is_some())
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
                    all.extend(fills.filter(|_| Self::can_go(serve)).map(|at| (*at + micros(serve.rate.length), Due::Flush(*id))));
                }
                Serving::Answered { at, .. } => all.extend([(*at, Due::Release(*id))]),
                Serving::Cancelled => {}
            }
        }
        all.first().copied()
    }

    /// Lets everything happen whose time has come.
    pub fn handle_timeout(&mut self, now: u64) {
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
    pub fn invoke(&mut self, call: &Invoke, now: u64) -> Answered {
        self.advance(now);
        if self.ending != Ending::Open {
            return state_error("Closing");
        }
        let depth = match call.parent {
            None => 0,
            Some(key) => match self.asked.get(&told::number(key)) {
                Some(asked) => asked.depth,
                None => return state_error("NoParent"),
            },
        };
        if !self.client && !matches!(call.op, Op::Ping | Op::Custom(_)) {
            return state_error("WrongEnd");
        }
        if self.calls.len() + self.settled_waiting() >= self.config.limits.in_flight {
            return state_error("Full");
        }
        let id = self.number();
        let clocks = call.timeouts.unwrap_or(self.config.timeouts.call);
        let observed = call.progress || (clocks.reset_on_progress && clocks.idle.is_some());
        let method = told::op(&call.op);
        let held = !(self.phase == Phase::Ready || method == "ping");
        let (now, last, questions) = (self.now, None, Vec::new());
        let made = Call {
            method,
            started: now,
            heard: now,
            clocks,
            observed,
            depth,
            held,
            floor: None,
            last,
            quiet_until: None,
            questions,
        };
        let over = Self::call_deadline(&made).filter(|(at, _)| *at <= now);
        self.calls.insert(id, made);
        if let Some((_, clock)) = over {
            self.calls.entry(id).and_modify(|call| call.held = true);
            self.settle_call(id, &format!("timed out {clock}"));
        } else if !held {
            self.send_call(id);
        }
        Ok(id)
    }

    fn send_call(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.held = false;
        let mut said = format!("request {id} {}", call.method);
        if call.observed {
            said += &format!(" token {id}");
        }
        if call.depth > 0 {
            said += &format!(" depth {}", call.depth);
        }
        self.out.push_back((Kind::Request(id), said));
    }

    /// [`protocol_core::Session::cancel`].
    pub fn cancel(&mut self, id: u64, now: u64) -> Answered {
        self.advance(now);
        if !self.calls.contains_key(&id) {
            return state_error("NotLive");
        }
        self.settle_call(id, "cancelled");
        self.settle_ending();
        Ok(0)
    }

    /// [`protocol_core::Session::provide_input`].
    pub fn provide_input(&mut self, key: u64, answer: &Answer, now: u64) -> Answered {
        self.advance(now);
        let Some(asked) = self.asked.remove(&key) else { return state_error("NotLive") };
        self.say(match answer {
            Answer::Refused(error) => format!("error {} {}", asked.wire, error.code),
            _ => format!("result {}", asked.wire),
        });
        self.retire(&asked.wire);
        self.close_question_of_call(asked.parent, key);
        self.settle_ending();
        Ok(0)
    }

    fn settle_call(&mut self, id: u64, outcome: &str) {
        let Some(call) = self.calls.get(&id) else { return };
        let speaks = !call.held && call.method != "ping" && outcome != "lost";
        if !self.take_back(id) && speaks {
            self.say(format!("cancel {id}"));
        }
        self.finish_call(id, outcome);
    }

    fn finish_call(&mut self, id: u64, outcome: &str) {
        let Some(call) = self.calls.remove(&id) else { return };
        for key in call.questions {
            self.refuse_asked(key);
        }
        let last = call.last.map_or_else(String::new, |last| format!(" last {}", told::progress(&last)));
        self.tell(format!("done {id} {outcome}{last}"));
    }

    fn refuse_asked(&mut self, key: u64) {
        if let Some(asked) = self.withdraw_asked(key)
            && self.may_write()
        {
            self.say(format!("error {} -32800", asked.wire));
        }
    }

    fn withdraw_asked(&mut self, key: u64) -> Option<Asked> {
        let asked = self.asked.remove(&key)?;
        self.retire(&asked.wire);
        self.tell(format!("gone {key}"));
        Some(asked)
    }

    fn close_question_of_call(&mut self, parent: Option<u64>, key: u64) {
        if let Some(call) = parent.and_then(|id| self.calls.get_mut(&id)) {
            call.questions.retain(|open| *open != key);
            if call.questions.is_empty() {
                call.heard = self.now;
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
    pub fn configure(&mut self, id: u64, options: ServeOptions, now: u64) -> Answered {
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
    pub fn progress(&mut self, id: u64, update: &Progress, now: u64) -> Answered {
        self.advance(now);
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
        if update.value.is_some_and(|value| serve.floor.is_some_and(|floor| value <= floor)) {
            (update.value, update.total) = (None, None);
            if update.message.is_none() {
                return state_error("NotIncreasing");
            }
        }
        if update.value.is_none() && serve.floor.is_none() {
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
        let is_kept = self.serves.get(&id).is_some_and(|serve| serve.kept.is_some());
        state_error(if is_kept { "Kept" } else { "Sent" })
    }

    fn flush(&mut self, id: u64) {
        let now = self.now;
        let Some(serve) = self.active(id).filter(|serve| Self::can_go(serve)) else { return };
        let is_final = serve.kept.as_ref().is_some_and(|kept| kept.value == kept.total) && !serve.final_passed;
        let unlimited = serve.rate.length.is_zero();
        let recent = serve.counted.iter().filter(|at| **at + micros(serve.rate.length) > now).count();
        if !is_final && !unlimited && recent >= serve.rate.updates as usize {
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
        serve.last_sent = Some(now);
        let said = format!("progress {token} {}", told::progress(&kept));
        self.out.push_back((Kind::Progress(id), said));
    }

    /// [`protocol_core::Session::checkpoint`] of an object.
    pub fn checkpoint(&mut self, id: u64) -> Answered {
        let Some(serve) = self.active(id) else { return state_error("NotLive") };
        serve.checkpoint = true;
        Ok(0)
    }

    /// [`protocol_core::Session::request_input`].
    pub fn request_input(&mut self, id: u64, ask: &Ask, now: u64) -> Answered {
        self.advance(now);
        let (wire, depth) = match self.active(id) {
            Some(serve) => (serve.wire.clone(), serve.depth),
            None => return state_error("NotLive"),
        };
        if self.peer_ended {
            return state_error("Disconnected");
        }
        if self.client || !matches!(self.phase, Phase::Answered | Phase::Ready) {
            return state_error("Unsupported");
        }
        let (kind, method) = match ask {
            Ask::Sample(_) => ("sample", "sampling/createMessage"),
            Ask::Elicit(_) => ("elicit", "elicitation/create"),
            Ask::Confirm { .. } => ("confirm", "elicitation/create"),
            _ => ("roots", "roots/list"),
        };
        let depth = if kind == "sample" { depth.saturating_add(1) } else { depth };
        let max = self.config.depth.max;
        if kind == "sample" && depth > max {
            return state_error(&format!("TooDeep {{ depth: {depth}, max: {max} }}"));
        }
        if self.questions.len() + self.settled_waiting() >= self.config.limits.in_flight {
            return state_error("Full");
        }
        let key = self.number();
        let shown = if depth > 0 { format!(" depth {depth}") } else { String::new() };
        let said = format!("request {key} {method}{shown} parent {wire}");
        let at = self.config.timeouts.input.map(|span| self.now + micros(span));
        let ready = self.phase == Phase::Ready;
        let held = (!ready).then(|| said.clone());
        self.questions.insert(key, Question { asker: id, kind, at, held });
        if let Some(serve) = self.serves.get_mut(&id) {
            serve.questions.push(key);
        }
        if ready {
            self.out.push_back((Kind::Request(key), said));
        }
        Ok(key)
    }

    /// [`protocol_core::Session::abandon_input`].
    pub fn abandon_input(&mut self, key: u64, now: u64) -> Answered {
        self.advance(now);
        let taken = self.take_question_back(key).map(|_| 0).ok_or_else(|| "NotLive".to_owned());
        self.settle_ending();
        taken
    }

    /// [`protocol_core::Session::respond`].
    pub fn respond(&mut self, id: u64, reply: &Reply, now: u64) -> Answered {
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
                let wire = serve.wire.clone();
                self.serves.remove(&id);
                if self.live.get(&wire) == Some(&Owner::Serve(id)) {
                    self.retire(&wire);
                }
                state_error("NotLive")
            }
        };
        self.settle_ending();
        result
    }

    /// What is kept goes out, and questions are taken back.
    fn last_words(&mut self, id: u64) {
        if self.serves.get(&id).is_some_and(|serve| serve.token.is_some() && Self::can_go(serve)) {
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
        let Some(Serve { wire, state: Serving::Answered { frame, .. }, .. }) = self.serves.get(&id).cloned() else { return };
        self.serves.remove(&id);
        self.retire(&wire);
        self.say(frame);
    }

    fn cancel_serve(&mut self, id: u64, why: &str) {
        let Some(serve) = self.active(id) else { return };
        serve.state = Serving::Cancelled;
        self.out.retain(|(kind, _)| *kind != Kind::Progress(id));
        self.take_questions_back(id);
        self.tell(format!("cancelled {id} {why}"));
    }

    fn cut_short(&mut self, id: u64, why: &str) {
        let Some(serve) = self.active(id) else { return };
        let partial = if serve.checkpoint { " partial" } else { "" };
        let frame = if serve.is_tool { format!("result {}", serve.wire) } else { format!("error {} -32603{partial}", serve.wire) };
        let wire = serve.wire.clone();
        self.last_words(id);
        if let Some(serve) = self.serves.get_mut(&id) {
            serve.state = Serving::Cancelled;
        }
        self.say(frame);
        self.retire(&wire);
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
        if question.held.is_none() && !self.take_back(key) {
            self.say(format!("cancel {key}"));
        }
        Some(question)
    }

    fn bring(&mut self, key: u64, question: &Question, answer: &str) {
        let is_answer = matches!(answer, "confirm true" | "confirm false");
        let answer = if question.kind == "confirm" && !is_answer { "confirm false" } else { answer };
        self.tell(format!("input {} {key} {answer}", question.asker));
    }

    // ---- As either ----

    /// [`protocol_core::Session::log`] without an invocation.
    pub fn log(&mut self, record: &LogRecord, now: u64) -> Answered {
        self.advance(now);
        if self.client || record.level < Level::Info || !self.may_write() {
            return state_error("Unwanted");
        }
        self.say("log".to_owned());
        state_error("Sent")
    }

    /// [`protocol_core::Session::notify`] with custom news.
    pub fn notify(&mut self, method: &str, now: u64) -> Answered {
        self.advance(now);
        if self.ending != Ending::Open {
            return state_error("Closing");
        }
        if !matches!(self.phase, Phase::Answered | Phase::Ready) {
            return state_error("NotReady");
        }
        self.say(format!("notice {method}"));
        Ok(0)
    }

    /// [`protocol_core::Session::set_alarm`].
    pub fn set_alarm(&mut self, at: u64) -> Answered {
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
    pub fn clear_alarm(&mut self, id: u64) {
        self.alarms.remove(&id);
    }

    /// [`protocol_core::Session::close`].
    pub fn close(&mut self, grace: std::time::Duration, now: u64) {
        self.advance(now);
        self.begin_end("Local", micros(grace));
        self.settle_ending();
    }

    /// [`protocol_core::Session::handle_end`].
    pub fn handle_end(&mut self, end: TransportEnd, now: u64) {
        self.advance(now);
        if self.is_closed() {
            return;
        }
        match end {
            TransportEnd::Eof => {
                self.peer_ended = true;
                self.lose();
                self.begin_end("Eof", micros(self.config.timeouts.close_grace));
            }
            TransportEnd::Failed => self.fail("Failed"),
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
        self.serves.clear();
        self.alarms.clear();
        self.live.clear();
        self.past.clear();
        self.tell(format!("closed {reason}"));
    }

    // ---- What arrives ----

    fn retire(&mut self, wire: &str) {
        if self.live.remove(wire).is_some() {
            if self.past.len() >= self.config.limits.tombstones {
                self.past.pop_front();
            }
            self.past.push_back(wire.to_owned());
        }
    }

    fn take_id(&mut self, wire: &str, owner: Owner) -> bool {
        if self.live.contains_key(wire) {
            self.violation(Violation::DuplicateRequest);
            return false;
        }
        let number = wire.parse::<i64>().ok();
        let fresh = number.is_some_and(|number| self.highest.is_none_or(|highest| number > highest));
        self.highest = self.highest.max(number);
        let reused = !fresh && self.past.iter().any(|past| past == wire);
        self.live.insert(wire.to_owned(), owner);
        if reused {
            self.violation(Violation::ReusedId);
        }
        true
    }

    /// An answer that belongs to no invocation.
    fn answer(&mut self, wire: &str, said: String) {
        if self.live.contains_key(wire) {
            self.violation(Violation::DuplicateRequest);
        } else {
            self.say(said);
        }
    }

    fn refuse(&mut self, wire: &str, rule: Option<Violation>, code: i64) {
        if let Some(rule) = rule {
            self.violation(rule);
        }
        self.answer(wire, format!("error {wire} {code}"));
    }

    /// [`protocol_core::Session::handle_frame`] of a frame that one of our ends, or [`super::ops`], can have made.
    pub fn handle_frame(&mut self, text: &str, now: u64) {
        if self.is_closed() {
            return;
        }
        self.advance(now);
        let frame: Value = serde_json::from_str(text).expect("a frame that a model reads is JSON");
        let id = frame.get("id").map(Value::to_string);
        let params = &frame["params"];
        match (frame["method"].as_str(), id) {
            (Some(method), Some(id)) => self.take_request(method, &id, params),
            (Some(method), None) => self.take_notification(method, params),
            (None, id) => self.take_response(&frame, &id.unwrap_or_default()),
        }
        self.settle_ending();
    }

    fn serves_peer(&self) -> bool {
        matches!(self.phase, Phase::Answered | Phase::Ready)
    }

    fn take_request(&mut self, method: &str, wire: &str, params: &Value) {
        let claimed = params["_meta"]["protocol-core/samplingDepth"].as_u64().map_or(0, |depth| depth.min(255) as u8);
        let is_question = matches!(method, "sampling/createMessage" | "elicitation/create" | "roots/list");
        match method {
            "ping" => self.answer(wire, format!("result {wire}")),
            "initialize" if !self.client => {
                if self.phase != Phase::Fresh {
                    return self.refuse(wire, Some(Violation::OutOfPhase), -32600);
                }
                self.say(format!("result {wire}"));
                self.phase = Phase::Answered;
                self.greeting_of_peer = Some(wire.to_owned());
                self.handshake_at = None;
                self.tell("ready".to_owned());
            }
            _ if is_question && self.client => self.take_question(method, wire, params, claimed),
            _ if is_question || method == "initialize" || (self.client && method.starts_with("tools/")) => {
                self.refuse(wire, Some(Violation::WrongDirection), -32601);
            }
            "tools/call" | "tools/list" => self.take_call(method, wire, params, claimed),
            _ => self.refuse(wire, None, -32601),
        }
    }

    fn take_call(&mut self, method: &str, wire: &str, params: &Value, depth: u8) {
        if !self.serves_peer() {
            return self.refuse(wire, Some(Violation::OutOfPhase), -32600);
        }
        if self.ending != Ending::Open {
            return self.refuse(wire, None, -32809);
        }
        if self.serves.len() >= self.config.limits.in_flight {
            return self.refuse(wire, Some(Violation::TooManyRequests), -32809);
        }
        if !self.take_id(wire, Owner::Serve(self.next)) {
            return;
        }
        let id = self.number();
        let token = params["_meta"].get("progressToken").map(Value::to_string);
        self.tell(format!("request {id} {method} depth {depth} observed {}", token.is_some()));
        let serve = Serve {
            wire: wire.to_owned(),
            is_tool: method == "tools/call",
            token,
            depth,
            received: self.now,
            deadline: self.config.timeouts.serve.map(|span| self.now + micros(span)),
            floor: None,
            kept: None,
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

    fn take_question(&mut self, method: &str, wire: &str, params: &Value, claimed: u8) {
        if !self.serves_peer() {
            return self.refuse(wire, Some(Violation::OutOfPhase), -32600);
        }
        if !self.may_write() {
            return self.refuse(wire, None, -32809);
        }
        let named = params["_meta"]["protocol-core/parent"].as_u64();
        let has_left = |id: &u64, call: &Call| call.method != "ping" && !call.held && !self.waits(*id);
        let left = || self.calls.iter().filter(|(id, call)| has_left(id, call));
        let named = named.filter(|named| left().any(|(id, _)| id == named));
        let parent = named.or_else(|| left().max_by_key(|(id, call)| (call.depth, **id)).map(|(id, _)| *id));
        let inherited = parent.map_or(0, |id| self.calls[&id].depth);
        let kind = match method {
            "sampling/createMessage" => "sample",
            "elicitation/create" => "elicit",
            _ => "roots",
        };
        let depth = claimed.max(if kind == "sample" { inherited.saturating_add(1) } else { inherited });
        if kind == "sample" && depth > self.config.depth.max {
            return self.refuse(wire, Some(Violation::SamplingTooDeep), -32808);
        }
        if self.asked.len() >= self.config.limits.in_flight {
            return self.refuse(wire, Some(Violation::TooManyRequests), -32809);
        }
        if !self.take_id(wire, Owner::Asked(self.next)) {
            return;
        }
        let key = self.number();
        self.asked.insert(key, Asked { wire: wire.to_owned(), parent, depth });
        if let Some(call) = parent.and_then(|id| self.calls.get_mut(&id)) {
            call.questions.push(key);
        }
        self.tell(format!("asked {key} parent {} {kind} depth {depth}", parent.unwrap_or(0)));
    }

    fn take_notification(&mut self, method: &str, params: &Value) {
        match method {
            "notifications/progress" => self.take_progress(params),
            "notifications/cancelled" => {
                let wire = params["requestId"].to_string();
                match self.live.get(&wire).copied() {
                    Some(Owner::Serve(id)) => self.cancel_serve(id, "peer"),
                    Some(Owner::Asked(key)) => {
                        if let Some(asked) = self.withdraw_asked(key) {
                            self.close_question_of_call(asked.parent, key);
                        }
                    }
                    None if self.phase == Phase::Answered && self.greeting_of_peer.as_ref() == Some(&wire) => {
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
                self.out.push_back((Kind::Request(*key), said));
            }
        }
    }

    fn ours(&self, wire: &str) -> Option<u64> {
        wire.parse::<u64>().ok().filter(|number| *number < self.next)
    }

    fn take_progress(&mut self, params: &Value) {
        let update = told::read_progress(params);
        let Some(id) = self.ours(&params["progressToken"].to_string()) else {
            return self.stray_progress();
        };
        let unfit = self.waits(id);
        let (now, quiet) = (self.now, micros(self.config.progress.window.length));
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.held) else { return };
        if !call.observed || unfit {
            return self.stray_progress();
        }
        if call.floor.is_none_or(|floor| update.value.is_some_and(|value| value > floor)) {
            call.floor = update.value;
            call.last = Some(update.clone());
            if call.clocks.reset_on_progress {
                call.heard = now;
            }
            return self.tell(format!("progress {id} {}", told::progress(&update)));
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
        if self.client && id == 1 && self.greeting_open {
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
            self.say("initialized".to_owned());
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
                None => read_answer(question.kind, &frame["result"]).to_owned(),
            };
            if read == "invalid" {
                self.violation(Violation::InvalidResponse);
            }
            return self.bring(id, &question, &read);
        }
        let outcome = match error {
            Some(error) => format!("error {}{}", error["code"], if told::has_partial(error) { " partial" } else { "" }),
            None if malformed => {
                self.violation(Violation::InvalidResponse);
                "invalid".to_owned()
            }
            None => "result".to_owned(),
        };
        self.finish_call(id, &outcome);
    }
}

fn read_answer(kind: &str, result: &Value) -> &'static str {
    match (kind, result["action"].as_str()) {
        ("sample", _) if result["content"].is_object() => "sample",
        ("roots", _) if result["roots"].is_array() => "roots",
        ("confirm", Some("accept")) => "confirm true",
        ("confirm", Some(_)) => "confirm false",
        ("elicit", Some("accept")) if result["content"].is_object() => "accept",
        ("elicit", Some("decline" | "cancel")) => "decline",
        _ => "invalid",
    }
}
