//! Every order of the steps of a stateless client and its server over the input rounds of one call: answers, cancels, deadlines, late
//! frames, the loss of an exchange and the end of either session (MCP 2026-07-28, Multi Round-Trip Requests; G14).

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Close, Elicit, ElicitResult, Event, ExchangeId, Gone, InboundId, InputKey, InputRequest, InputResponse,
    InputRound, Instant, Invoke, Lane, OutboundId, Outcome, Progress, Reply, SendError, Session, TransportEnd,
};
use serde_json::Value;
use testkit::broken::{Broken, Fault};
use testkit::config::{client_config, server_config, with};
use testkit::explore::{Bounds, Explored, explore};
use testkit::scripted::json;
use testkit::{Pair, Scripted, Subject, Watched};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A round that the server may ask for: the names of its input requests, and its state.
type Asks = (&'static [&'static str], Option<&'static str>);

/// Two sessions with one call between them, and the state of the call as the frames and events show it.
struct Rounds {
    ends: [Scripted; 2],
    /// The frames that were sent to each end and have not arrived.
    under_way: [VecDeque<String>; 2],
    closed: [bool; 2],
    /// The rounds that the server has not yet asked for, in order.
    plan: VecDeque<Asks>,
    left: Left,
    call: OutboundId,
    outcome: Option<Outcome>,
    /// The requests whose handlers run.
    running: Vec<InboundId>,
    /// The ids of the requests that the client has sent, in order.
    requests: Vec<u64>,
    /// The newest round that the client has received: its state, and the answers that were given to its input requests.
    round: Option<(Value, BTreeMap<String, String>)>,
    /// `true` while the client has that round and has not made the retry.
    is_between: bool,
    /// The number of rounds that the client has received.
    rounds: u8,
    /// The open input requests at the client, and the answer that each will get.
    open: Vec<(InputKey, String)>,
    /// The frames that have arrived at the client. One about an ended exchange may arrive once more.
    old: Vec<String>,
    /// The exchange for which the client has sent a cancel.
    cancelled: Option<u64>,
}

/// The number of times that each kind of step may still be taken.
#[derive(Clone, Copy, Hash)]
struct Left {
    cancels: u8,
    deadlines: u8,
    progress: u8,
    /// Old frames that arrive once more.
    late: u8,
    losses: u8,
    closes: u8,
    /// Saving the pending input of the call between two rounds, and continuing from it as another call.
    keeps: u8,
}

const NOTHING: Left = Left { cancels: 0, deadlines: 0, progress: 0, late: 0, losses: 0, closes: 0, keeps: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The server asks for the next round of its plan.
    InputRequest,
    Respond,
    /// The handler sends an update.
    Update,
    /// The client answers the input request at this place of [`Rounds::open`].
    InputResponse(usize),
    Cancel,
    /// The next deadline of the client passes. This is always possible for the delay of a retry, and for a time limit as often as [`Left`]
    /// allows.
    Deadline,
    /// The frame at this place of [`Rounds::old`] arrives once more.
    Late(usize),
    /// The exchange of the newest request is lost.
    Lose,
    /// Saves the pending input of the call between two rounds, cancels the call, and continues from what was saved.
    Keep,
    Close(usize, Close),
    /// The transport of this end reports the end of input, after the other session has closed.
    End(usize),
    /// This end sends its next frame.
    Leave(usize),
    /// The next frame arrives at this end.
    Arrive(usize),
}

impl Rounds {
    fn new(plan: &[Asks], left: Left) -> Self {
        let client = Scripted::new(with(client_config(), |config| {
            (config.era, config.list_changes) = (Era::Modern, false);
        }));
        let mut pair = Pair { client, server: Scripted::new(server_config()), trace: Vec::new() };
        pair.run();
        pair.client.drain();
        pair.server.drain();
        let limit = CallTimeouts::NONE.with_max_total(Some(Duration::from_millis(120)));
        let call = pair.client.invoke(Invoke::call_tool("t", json(r#"{"x":1}"#)).with_timeouts(limit));
        Self {
            ends: [pair.client, pair.server],
            under_way: Default::default(),
            closed: [false; 2],
            plan: plan.iter().copied().collect(),
            left,
            call,
            outcome: None,
            running: Vec::new(),
            requests: Vec::new(),
            round: None,
            is_between: false,
            rounds: 0,
            open: Vec::new(),
            old: Vec::new(),
            cancelled: None,
        }
    }

    fn client(&mut self) -> &mut Scripted {
        &mut self.ends[CLIENT]
    }

    fn poll(&mut self) {
        for event in self.ends[CLIENT].events() {
            match event {
                Event::Done { id, outcome, .. } => {
                    assert_eq!(id, self.call);
                    assert_eq!(self.open, [], "an input request outlives its call");
                    (self.outcome, self.is_between) = (Some(outcome), false);
                }
                Event::InputRequested { key, parent, ask: InputRequest::Elicit(elicit), .. } => {
                    assert!(parent == Some(self.call) && self.outcome.is_none() && self.is_between);
                    self.open.push((key, format!("{} {}", self.rounds, elicit.message)));
                }
                Event::InputGone { key } => {
                    let before = self.open.len();
                    self.open.retain(|(open, _)| *open != key);
                    assert_eq!(self.open.len() + 1, before, "{key:?} is gone twice, or was answered");
                }
                Event::Progress { .. } => assert!(self.outcome.is_none() && !self.is_between),
                Event::Violation(rule) => panic!("the client objects to its server: {rule}"),
                Event::Closed(_) => {
                    self.closed[CLIENT] = true;
                }
                _ => {}
            }
        }
        for event in self.ends[SERVER].events() {
            match event {
                Event::Request { id, request, .. } => {
                    let retry = request.retry();
                    assert_eq!(retry.is_some(), self.requests.len() > 1, "a retry names a round, and a first request none");
                    self.running.push(id);
                }
                Event::Cancelled { id, .. } => {
                    self.running.retain(|running| *running != id);
                    let end = &mut self.ends[SERVER];
                    let _ = end.session.respond(id, Reply::Done, end.now);
                }
                Event::Violation(rule) => panic!("the server objects to its client: {rule}"),
                Event::Closed(_) => self.closed[SERVER] = true,
                _ => {}
            }
        }
        assert!(!self.is_between || self.ends[CLIENT].session.stats().exchanges_out == 0, "between two rounds no exchange is open");
    }

    /// Checks a frame that leaves the client.
    fn check_sent(&mut self, frame: &str) {
        let frame: Value = serde_json::from_str(frame).expect("it is JSON");
        let params = &frame["params"];
        if frame["method"] == "notifications/cancelled" {
            let id = params["requestId"].as_u64().expect("an id of ours");
            assert_eq!((Some(&id), self.cancelled), (self.requests.last(), None), "one cancel, of the open exchange");
            assert!(self.outcome.is_some(), "a cancel ends the call");
            self.cancelled = Some(id);
            return;
        }
        assert_eq!(frame["method"], "tools/call");
        assert!(self.outcome.is_none(), "a request leaves after the end of its call");
        let id = frame["id"].as_u64().expect("an id of ours");
        assert_eq!((&params["name"], &params["arguments"]["x"]), (&Value::from("t"), &Value::from(1)), "G13");
        let (state, answers) = self.round.clone().unwrap_or_default();
        assert_eq!(params["requestState"], state, "the state of the last round");
        let given = params.get("inputResponses").and_then(Value::as_object).cloned().unwrap_or_default();
        let given: BTreeMap<_, _> = given
            .into_iter()
            .map(|(name, answer)| (name, answer["content"]["v"].as_str().unwrap_or_default().to_owned()))
            .collect();
        assert_eq!(given, answers, "the answers of the last round, as they were given");
        self.requests.push(id);
    }

    /// Records a frame that is about to arrive at the client.
    fn record_arrival(&mut self, text: &str) {
        let frame: Value = serde_json::from_str(text).expect("it is JSON");
        let id = frame["id"].as_u64().or_else(|| frame["params"]["progressToken"].as_u64());
        let (result, is_open) = (&frame["result"], self.outcome.is_none() && id == self.requests.last().copied());
        if is_open && result["resultType"] == "input_required" && !self.closed[CLIENT] {
            self.round = Some((result["requestState"].clone(), BTreeMap::new()));
            self.is_between = true;
            self.rounds += 1;
        }
        self.old.push(text.to_owned());
    }

    /// The indices of the old frames whose exchange has ended at the client.
    fn late(&self) -> impl Iterator<Item = usize> {
        let ended = |text: &String| {
            let frame: Value = serde_json::from_str(text).expect("it is JSON");
            let id = frame["id"].as_u64().or_else(|| frame["params"]["progressToken"].as_u64());
            self.outcome.is_some() || self.is_between || id != self.requests.last().copied()
        };
        self.old.iter().enumerate().filter(move |(_, text)| ended(text)).map(|(place, _)| place)
    }

    /// The number of bytes in the outbox of the client, and the number of frames polled. If both are unchanged, no frame was made in
    /// between.
    fn queued(&self) -> (usize, u64) {
        let stats = self.ends[CLIENT].session.stats();
        (stats.queued_bytes, stats.frames_out)
    }
}

impl Explored for Rounds {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let (mut all, left, is_open) = (Vec::new(), self.left, self.outcome.is_none());
        if !self.running.is_empty() {
            all.extend((!self.plan.is_empty()).then_some(Step::InputRequest));
            all.extend([Step::Respond].into_iter().chain((left.progress > 0).then_some(Step::Update)));
        }
        all.extend((0..self.open.len()).map(Step::InputResponse));
        all.extend((left.cancels > 0 && is_open).then_some(Step::Cancel));
        let waits_for_retry = self.is_between && self.open.is_empty();
        let has_deadline = self.ends[CLIENT].session.poll_timeout().is_some();
        all.extend((has_deadline && (waits_for_retry || left.deadlines > 0)).then_some(Step::Deadline));
        all.extend(self.late().filter(|_| left.late > 0 && !self.closed[CLIENT]).map(Step::Late));
        all.extend((left.losses > 0 && is_open && !self.requests.is_empty()).then_some(Step::Lose));
        let is_kept = self.ends[CLIENT].session.pending_input(self.call).is_some();
        assert_eq!(is_kept, self.is_between && is_open, "a call can be kept between two rounds alone");
        all.extend((left.keeps > 0 && is_kept).then_some(Step::Keep));
        for end in [CLIENT, SERVER] {
            if left.closes > 0 && !self.closed[end] {
                let graceful = Close::Graceful { grace: Duration::from_millis(200) };
                all.extend([Step::Close(end, Close::Now), Step::Close(end, graceful)]);
            }
            let is_last = self.closed[1 - end] && self.under_way[end].is_empty() && !self.closed[end];
            all.extend(is_last.then_some(Step::End(end)));
            all.extend((self.ends[end].session.stats().queued_bytes > 0).then_some(Step::Leave(end)));
            all.extend((!self.under_way[end].is_empty()).then_some(Step::Arrive(end)));
        }
        all
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::InputRequest => {
                let (names, state) = self.plan.pop_front().expect("a round is left");
                let form = |name: &str| {
                    InputRequest::Elicit(Elicit::new(name, json(r#"{"type":"object","properties":{"v":{"type":"string"}}}"#)))
                };
                let round = names.iter().fold(InputRound::new(), |round, name| round.ask(*name, form(name)));
                let round = state.into_iter().fold(round, InputRound::with_state);
                let (id, end) = (self.running.remove(0), &mut self.ends[SERVER]);
                end.session.finish_round(id, round, end.now).expect("its handler runs");
            }
            Step::Respond => {
                let (id, end) = (self.running.remove(0), &mut self.ends[SERVER]);
                end.session.respond(id, Reply::Done, end.now).expect("its handler runs");
            }
            Step::Update => {
                self.left.progress -= 1;
                let (id, end) = (self.running[0], &mut self.ends[SERVER]);
                end.session.progress(id, Progress::value(1.0), end.now).expect("its handler runs");
            }
            Step::InputResponse(place) => {
                let (key, value) = self.open.remove(place);
                let name = value.split(' ').nth(1).expect("a name").to_owned();
                let (_, answers) = self.round.as_mut().expect("a round asks");
                answers.insert(name, value.clone());
                self.is_between = !self.open.is_empty();
                let answer = InputResponse::Elicit(ElicitResult::Accept(json(&format!(r#"{{"v":"{value}"}}"#))));
                let client = self.client();
                client.session.provide_input(key, answer, client.now).expect("it is open");
            }
            Step::Cancel => {
                self.left.cancels -= 1;
                let (before, is_between, call) = (self.queued(), self.is_between, self.call);
                let client = self.client();
                client.session.cancel(call, None, client.now).expect("it is not done");
                assert!(!is_between || self.queued() == before, "between two rounds there is nothing to cancel");
            }
            Step::Deadline => {
                let waits = self.is_between && self.open.is_empty();
                let is_limit = self.outcome.is_none() && !waits;
                self.left.deadlines -= u8::from(is_limit && self.left.deadlines > 0);
                let before = self.queued();
                let client = self.client();
                client.now = client.session.poll_timeout().expect("there is one");
                client.session.handle_timeout(client.now);
                let has_retried = self.queued() != before;
                self.is_between &= !(waits && has_retried);
            }
            Step::Late(place) => {
                self.left.late -= 1;
                let (text, before) = (self.old[place].clone(), self.queued());
                let client = self.client();
                let late = client.session.stats().late_frames;
                client.frame(&text);
                assert_eq!(client.session.stats().late_frames, late + 1, "{text} is late");
                assert_eq!(client.events(), [], "{text} is late");
                assert_eq!(self.queued(), before, "{text} is late");
            }
            Step::Lose => {
                self.left.losses -= 1;
                let gone = Gone::Exchange(ExchangeId::from_number(*self.requests.last().expect("one has left")));
                // If the retry was not sent yet, the lost exchange is one that has ended.
                let is_live = !self.is_between && self.queued().0 == 0;
                let client = self.client();
                let lost = client.session.handle_gone(gone, client.now);
                assert_eq!(lost.is_ok(), is_live, "{gone:?}");
                self.poll();
                assert!(lost.is_err() || self.outcome == Some(Outcome::Lost), "{:?}", self.outcome);
            }
            Step::Keep => {
                self.left.keeps -= 1;
                let (before, call, mut open) = (self.queued(), self.call, core::mem::take(&mut self.open));
                let mut is_closed = false;
                let client = self.client();
                let kept =
                    serde_json::to_string(&client.session.pending_input(call).expect("answers are missing")).expect("it is JSON");
                client.session.cancel(call, None, client.now).expect("it is not done");
                for event in client.events() {
                    match event {
                        Event::InputGone { key } => open.retain(|(open, _)| *open != key),
                        Event::Done { id, outcome: Outcome::Cancelled, .. } => assert_eq!(id, call),
                        // The session was closing, and the call was its last one.
                        Event::Closed(_) => is_closed = true,
                        event => panic!("{event:?}"),
                    }
                }
                assert_eq!(open, [], "an input request outlives its call");
                let kept = serde_json::from_str(&kept).expect("it is JSON");
                let resumed = client.session.resume_input(&kept, client.now);
                assert_eq!(self.queued(), before, "between two rounds nothing is sent");
                match resumed {
                    Ok(id) => self.call = id,
                    Err(why) => {
                        assert_eq!(why, SendError::Closing);
                        (self.outcome, self.is_between) = (Some(Outcome::Cancelled), false);
                    }
                }
                self.closed[CLIENT] |= is_closed;
            }
            Step::Close(end, how) => {
                self.left.closes -= 1;
                let (before, is_between) = (self.queued(), self.is_between);
                let closing = &mut self.ends[end];
                closing.session.close(how, closing.now);
                assert!(end == SERVER || !is_between || self.queued() == before, "between two rounds there is nothing to cancel");
            }
            Step::End(end) => {
                let ending = &mut self.ends[end];
                ending.session.handle_end(TransportEnd::Eof, ending.now);
            }
            Step::Leave(end) => {
                let frame = self.ends[end].next_sent().expect("output is queued");
                if end == CLIENT {
                    self.check_sent(&frame);
                }
                self.under_way[1 - end].push_back(frame);
            }
            Step::Arrive(end) => {
                let frame = self.under_way[end].pop_front().expect("a frame is under way");
                if end == CLIENT {
                    self.record_arrival(&frame);
                }
                let end = &mut self.ends[end];
                end.session.handle_frame(frame.into(), Lane::CHANNEL, end.now).expect("the session takes frames");
            }
        }
        self.poll();
    }

    fn state(&self) -> impl Hash {
        // The judge is part of the state: after different steps that lead to equal sessions, its verdict on the next step may differ.
        let sessions = [CLIENT, SERVER].map(|end| {
            let session = &self.ends[end].session;
            (format!("{:?}", session.subject()), session.judge().clone())
        });
        let observed = format!("{:?}{:?}{:?}{:?}", self.outcome, self.running, self.round, self.open);
        let old = if self.left.late > 0 { self.old.clone() } else { Vec::new() };
        (sessions, self.under_way.clone(), self.left, self.plan.len(), observed, old, self.cancelled)
    }

    fn check_rest(&self) {
        assert!(self.outcome.is_some(), "G1: the call is never done");
        let [client, server] = [CLIENT, SERVER].map(|end| self.ends[end].session.stats());
        assert_eq!((client.exchanges_out, client.outbound_calls), (0, 0));
        assert_eq!((server.exchanges_in, server.inbound_calls), (0, 0));
        assert!(!matches!(self.outcome, Some(Outcome::Invalid(_) | Outcome::Unanswered(_))), "{:?}", self.outcome);
    }
}

/// Takes the steps of `plan` and `left` in every order. More than `states` states must be reached.
fn search(plan: &[Asks], left: Left, states: usize) {
    let found = explore(|| Rounds::new(plan, left), Bounds::default()).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{found:?}");
    assert!(found.states > states && found.rests > 1 && found.cut == 0, "{found:?}");
}

#[test]
fn in_every_order_of_answers_over_two_rounds_a_retry_has_the_answers_and_the_state_of_the_last_round() {
    search(&[(&["a", "b"], Some("one")), (&["b", "a"], Some("two"))], Left { cancels: 1, deadlines: 1, ..NOTHING }, 100);
    search(&[(&["a", "b"], Some("one")), (&["a"], None)], Left { cancels: 1, ..NOTHING }, 50);
    search(&[(&["a"], None), (&["b", "c"], Some("two"))], Left { cancels: 1, ..NOTHING }, 50);
}

#[test]
fn every_order_of_rounds_without_an_input_request_sends_the_call_again_or_ends_it() {
    search(&[(&[], Some("one")), (&[], Some("two"))], Left { cancels: 1, deadlines: 1, ..NOTHING }, 30);
    search(&[(&["a"], Some("one")), (&[], Some("two"))], Left { cancels: 1, losses: 1, ..NOTHING }, 50);
    search(&[(&[], Some("one")), (&["a"], None)], Left { deadlines: 1, losses: 1, ..NOTHING }, 50);
}

#[test]
fn every_order_of_late_frames_and_losses_leaves_the_current_round_alone() {
    search(&[(&["a", "b"], Some("one")), (&["a"], Some("two"))], Left { progress: 2, late: 1, ..NOTHING }, 100);
    search(&[(&["a"], Some("one")), (&["a"], None)], Left { cancels: 1, late: 2, losses: 1, ..NOTHING }, 100);
}

#[test]
fn every_order_of_a_round_and_the_end_of_either_session_ends_the_call_once() {
    search(&[(&["a", "b"], Some("one"))], Left { cancels: 1, closes: 1, ..NOTHING }, 100);
    search(&[(&["a"], Some("one")), (&[], Some("two"))], Left { closes: 1, losses: 1, ..NOTHING }, 100);
}

#[test]
fn in_every_order_of_steps_a_call_that_was_kept_between_rounds_goes_on_with_its_answers() {
    search(&[(&["a", "b"], Some("one")), (&["a"], Some("two"))], Left { cancels: 1, keeps: 2, ..NOTHING }, 100);
    search(&[(&[], Some("one")), (&["a", "b"], None)], Left { deadlines: 1, losses: 1, keeps: 1, ..NOTHING }, 100);
    search(&[(&["a", "b"], Some("one"))], Left { late: 1, closes: 1, keeps: 1, ..NOTHING }, 100);
}

/// Runs two rounds of one call. A judge checks the client, whose session has `fault` if there is one.
fn judged(fault: Option<Fault>) {
    let now = Instant::ZERO;
    let config = with(client_config(), |config| (config.era, config.list_changes) = (Era::Modern, false));
    let session = Session::new(config, now);
    match fault {
        Some(fault) => run_two_rounds(&mut Watched::new(Broken::new(session, fault), now)),
        None => run_two_rounds(&mut Watched::new(session, now)),
    }
}

fn run_two_rounds<S: Subject>(client: &mut Watched<S>) {
    let (now, mut server) = (Instant::ZERO, Scripted::new(server_config()));
    let mut plan = VecDeque::from([("a", Some("one")), ("b", None)]);
    let mut call = None;
    for _ in 0..8 {
        while let Some(out) = client.poll_transmit() {
            server.session.handle_frame(out.frame, Lane::CHANNEL, now).expect("it takes frames");
        }
        for event in server.events() {
            let Event::Request { id, .. } = event else { continue };
            match plan.pop_front() {
                Some((name, state)) => {
                    let round = InputRound::new().ask(name, InputRequest::Roots);
                    let round = state.into_iter().fold(round, InputRound::with_state);
                    server.session.finish_round(id, round, now).expect("its handler runs");
                }
                None => server.session.respond(id, Reply::Done, now).expect("its handler runs"),
            }
        }
        for frame in server.sent() {
            client.handle_frame(frame.into(), Lane::CHANNEL, now).expect("it takes frames");
        }
        if client.is_ready() && call.is_none() {
            call = Some(client.invoke(Invoke::call_tool("t", json("{}")), now).expect("it is admitted"));
        }
        while let Some(event) = client.poll_event() {
            match event {
                Event::InputRequested { key, .. } => {
                    client.provide_input(key, InputResponse::Roots(json("[]")), now).expect("it is open");
                }
                Event::Done { outcome: Outcome::Result(_), .. } => return,
                _ => {}
            }
        }
    }
    panic!("the call is never done");
}

#[test]
fn the_check_of_g14_rejects_a_retry_with_anything_of_an_earlier_round() {
    judged(None);
    for fault in Fault::ALL.into_iter().filter(|fault| fault.is_of_rounds()) {
        let message = catch_unwind(AssertUnwindSafe(|| judged(Some(fault)))).expect_err("it is no fault");
        let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.starts_with("G14: "), "{fault:?}: {message}");
    }
}
