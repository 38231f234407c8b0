//! Two sessions under a storm of random verbs, with frames in flight in both directions, watched by somebody who only sees the wire and
//! the events. Every storm is a pure function of its seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use protocol_core::{
    Answer, Ask, Close, Elicit, Elicited, Event, InboundId, InputKey, Instant, Invoke, Json, Level, LogRecord, Op, OutboundId,
    Progress, Reply, RpcError, Sample, Sampled, Session, ToolOutput, TransportEnd, Violation,
};
use serde_json::Value;

use crate::end::json;

/// A small generator (SplitMix64): the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// One that begins at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count.max(1) as u64) as usize
    }

    /// One of `all`, if there are any.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }
}

/// One end and what its application knows.
#[derive(Debug)]
struct Side {
    session: Session,
    /// On their way here.
    inbox: VecDeque<Bytes>,
    calls: BTreeSet<OutboundId>,
    done: BTreeSet<OutboundId>,
    serves: BTreeSet<InboundId>,
    cancelled: BTreeSet<InboundId>,
    questions: BTreeMap<InputKey, Ask>,
    closed: bool,
    last_timeout: Instant,
}

/// What the wire has shown of one direction's exchanges.
#[derive(Debug, Default)]
struct Exchanges {
    /// Ids whose request has left, with their progress token if they have one.
    open: BTreeMap<String, Option<String>>,
    answered: BTreeSet<String>,
    cancelled: BTreeSet<String>,
    /// The last value for each token.
    progress: BTreeMap<String, f64>,
    /// Tokens whose exchange was answered or whose cancel was delivered.
    ended: BTreeSet<String>,
}

/// The storm.
#[derive(Debug)]
pub struct Storm {
    rng: Rng,
    now: Instant,
    sides: [Side; 2],
    wire: [Exchanges; 2],
    /// Everything that crossed and everything that was told, for comparing two storms.
    pub trace: Vec<String>,
}

impl Storm {
    /// A storm over two sessions that have just begun.
    #[must_use]
    pub fn new(seed: u64, client: Session, server: Session) -> Self {
        let side = |session| Side {
            session,
            inbox: VecDeque::new(),
            calls: BTreeSet::new(),
            done: BTreeSet::new(),
            serves: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            questions: BTreeMap::new(),
            closed: false,
            last_timeout: Instant::ZERO,
        };
        Self {
            rng: Rng::new(seed),
            now: Instant::ZERO,
            sides: [side(client), side(server)],
            wire: [Exchanges::default(), Exchanges::default()],
            trace: Vec::new(),
        }
    }

    /// Lets `steps` random things happen, then ends both sides and checks what must hold at the end.
    pub fn run(mut self, steps: usize) -> Vec<String> {
        for _ in 0..steps {
            let side = self.rng.below(2);
            self.step(side);
            self.poll(side);
        }
        self.finish();
        self.trace
    }

    fn step(&mut self, at: usize) {
        let choice = self.rng.below(24);
        let calls: Vec<_> = self.sides[at].calls.difference(&self.sides[at].done).copied().collect();
        let serves: Vec<_> = self.sides[at].serves.iter().copied().collect();
        let questions: Vec<_> = self.sides[at].questions.keys().copied().collect();
        let (call, serve, question) = (self.rng.pick(&calls), self.rng.pick(&serves), self.rng.pick(&questions));
        let number = self.rng.number();
        let now = self.now;
        let side = &mut self.sides[at];
        match choice {
            0..=5 => {
                if let Some(frame) = side.inbox.pop_front() {
                    let text = String::from_utf8(frame.to_vec()).unwrap();
                    let orphans = side.session.stats().orphans;
                    match side.session.handle_frame(frame, now) {
                        Ok(()) if side.session.stats().orphans > orphans => self.cancel_was_read(at, &text),
                        Ok(()) => {}
                        Err(full) => side.inbox.push_front(full.0),
                    }
                }
            }
            6 | 7 => {
                let parent = question.filter(|_| number.is_multiple_of(2));
                let op = if at == 0 { Op::CallTool } else { Op::Custom("x/y".into()) };
                let mut invoke = Invoke::new(op, json(r#"{"name":"t","arguments":{"a":[1,2,{"b":null}]}}"#));
                invoke.parent = parent;
                invoke.progress = !number.is_multiple_of(3);
                if let Ok(id) = side.session.invoke(invoke, now) {
                    assert!(side.calls.insert(id), "an id was used twice");
                }
            }
            8 => {
                if let Some(id) = call {
                    side.session
                        .cancel(id, (number.is_multiple_of(2)).then_some("why"), now)
                        .expect("a call that is not done can be cancelled");
                }
            }
            9..=12 => {
                if let Some(id) = serve {
                    let update = Progress {
                        value: Some((number % 50) as f64),
                        total: (number.is_multiple_of(2)).then_some(49.0),
                        ..Progress::default()
                    };
                    let live = !side.cancelled.contains(&id);
                    assert_eq!(side.session.progress(id, update, now) != Err(protocol_core::ProgressError::NotLive), live);
                }
            }
            13 | 14 => {
                if let Some(id) = serve {
                    let reply = match number % 3 {
                        0 => Reply::Error(RpcError::internal("x")),
                        _ => Reply::Tool(ToolOutput::text("ok")),
                    };
                    let live = !side.cancelled.remove(&id);
                    assert_eq!(side.session.respond(id, reply, now).is_ok(), live);
                    side.serves.remove(&id);
                }
            }
            15 | 16 => {
                if let Some(id) = serve {
                    let ask = match number % 4 {
                        0 => Ask::Sample(Sample::new("?")),
                        1 => Ask::Elicit(Elicit::new("?", json(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#))),
                        2 => Ask::Confirm { message: "?".into() },
                        _ => Ask::Roots,
                    };
                    let _ = side.session.request_input(id, ask, now);
                }
            }
            17 | 18 => {
                if let Some(key) = question {
                    let answer = match side.questions.remove(&key).unwrap() {
                        Ask::Sample(_) => Answer::Sample(Sampled::new("!", "m")),
                        Ask::Elicit(_) if number.is_multiple_of(2) => Answer::Elicit(Elicited::Accept(json(r#"{"a":"b"}"#))),
                        Ask::Elicit(_) => Answer::Elicit(Elicited::Decline),
                        _ => Answer::Roots(json("[]")),
                    };
                    side.session.provide_input(key, answer, now).expect("a question that is not gone can be answered");
                }
            }
            19 => {
                if let Some(id) = serve {
                    let _ = side.session.checkpoint(id, json(r#"{"processed":1}"#));
                }
            }
            20 => {
                let record = LogRecord { level: Level::Warning, logger: None, data: Json::null() };
                let _ = side.session.log(None, record, now);
            }
            21 => {
                let _ = side.session.set_alarm(now.saturating_add(std::time::Duration::from_millis(number % 500)));
            }
            _ => self.wait(at, number),
        }
    }

    /// Jumps to the next deadline of one side, or a little further; the other side may come late.
    fn wait(&mut self, at: usize, number: u64) {
        let due = self.sides[at].session.poll_timeout();
        let step = std::time::Duration::from_millis(number % 300);
        self.now = due.map_or_else(|| self.now.saturating_add(step), |due| due.max(self.now));
        let side = &mut self.sides[at];
        side.session.handle_timeout(self.now);
        side.last_timeout = side.last_timeout.max(self.now);
        if let Some(next) = side.session.poll_timeout() {
            assert!(next > side.last_timeout, "G7: a deadline at {next} after {}", side.last_timeout);
        }
    }

    fn poll(&mut self, at: usize) {
        if self.rng.below(4) > 0 {
            while let Some(out) = self.sides[at].session.poll_transmit() {
                let text = String::from_utf8(out.frame.to_vec()).unwrap();
                self.left(at, &text);
                self.trace.push(format!("{at}> {text}"));
                self.sides[1 - at].inbox.push_back(out.frame);
                if self.rng.below(8) == 0 {
                    break;
                }
            }
        }
        while let Some(event) = self.sides[at].session.poll_event() {
            self.trace.push(format!("{at}: {event:?}"));
            self.told(at, event);
        }
        let stats = self.sides[at].session.stats();
        let limits = self.sides[at].session.config().limits;
        assert!(stats.calls <= limits.in_flight && stats.serves <= limits.in_flight, "G5: {stats:?}");
    }

    fn told(&mut self, at: usize, event: Event) {
        let side = &mut self.sides[at];
        assert!(!side.closed, "G4: {event:?} after the end");
        match event {
            Event::Request { id, .. } => assert!(side.serves.insert(id)),
            Event::Cancelled { id, .. } => assert!(side.cancelled.insert(id), "cancelled twice"),
            Event::InputRequested { key, ask, depth, .. } => {
                assert!(!matches!(ask, Ask::Sample(_)) || (1..=3).contains(&depth), "G12: depth {depth}");
                side.questions.insert(key, ask);
            }
            // An answer of ours may have crossed with the news that it is wanted no longer only before the event was told.
            Event::InputGone { key } => drop(side.questions.remove(&key)),
            Event::Progress { id, .. } => assert!(!side.done.contains(&id), "progress after the end of its call"),
            Event::Done { id, .. } => assert!(side.calls.contains(&id) && side.done.insert(id), "G1: {id} is done twice"),
            // A cancelled handler keeps its place with the callee while the caller's is free again.
            Event::Violation(Violation::TooManyRequests) => {}
            Event::Violation(rule) => panic!("two of our own ends keep the rules: {rule}"),
            Event::Closed(_) => side.closed = true,
            _ => {}
        }
    }

    /// Judges a frame as it leaves `at`.
    fn left(&mut self, at: usize, text: &str) {
        let frame: Value = serde_json::from_str(text).expect("G13: every frame is JSON");
        assert!(!text.contains('\n'), "one frame is one line");
        let id = frame.get("id").map(Value::to_string);
        match (frame["method"].as_str(), id) {
            (Some(_), Some(id)) => {
                let token = frame["params"]["_meta"].get("progressToken").map(Value::to_string);
                assert!(self.wire[at].open.insert(id, token).is_none(), "an id was used twice: {text}");
            }
            (Some("notifications/cancelled"), None) => {
                let id = frame["params"]["requestId"].to_string();
                assert!(self.wire[at].open.contains_key(&id), "a cancel before its request: {text}");
                assert!(self.wire[at].cancelled.insert(id), "G2: cancelled twice: {text}");
            }
            (Some("notifications/progress"), None) => {
                let token = frame["params"]["progressToken"].to_string();
                let value = frame["params"]["progress"].as_f64().unwrap();
                let peer = &mut self.wire[1 - at];
                assert!(!peer.ended.contains(&token), "G3: progress after the end: {text}");
                let before = peer.progress.insert(token, value);
                assert!(before.is_none_or(|before| value > before), "G3: {before:?} then {text}");
            }
            (None, Some(id)) => {
                let peer = &mut self.wire[1 - at];
                let token = peer.open.get(&id).cloned().expect("an answer to a request");
                assert!(peer.answered.insert(id), "G2: answered twice: {text}");
                peer.ended.extend(token);
            }
            _ => {}
        }
    }

    /// A cancel ended an invocation that `at` served: from now on nothing of it may leave.
    fn cancel_was_read(&mut self, at: usize, text: &str) {
        let frame: Value = serde_json::from_str(text).unwrap();
        let id = frame["params"]["requestId"].to_string();
        let caller = &mut self.wire[1 - at];
        caller.ended.extend(caller.open.get(&id).cloned().flatten());
        caller.answered.insert(id);
    }

    fn finish(&mut self) {
        let how = self.rng.below(3);
        for at in 0..2 {
            let side = &mut self.sides[at];
            match how {
                0 => side.session.handle_end(TransportEnd::Failed, self.now),
                1 => side.session.close(Close::Now, self.now),
                _ => side.session.handle_end(TransportEnd::Eof, self.now),
            }
        }
        for _ in 0..64 {
            for at in 0..2 {
                while let Some(out) = self.sides[at].session.poll_transmit() {
                    let text = String::from_utf8(out.frame.to_vec()).unwrap();
                    self.left(at, &text);
                }
                while let Some(event) = self.sides[at].session.poll_event() {
                    self.told(at, event);
                }
                if self.sides[at].session.poll_timeout().is_some() {
                    self.wait(at, 0);
                }
            }
        }
        for side in &self.sides {
            assert!(side.closed, "the session closes");
            assert_eq!(side.calls, side.done, "G1: every call is done");
            assert_eq!(side.session.poll_timeout(), None, "G4");
        }
    }
}
