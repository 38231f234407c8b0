//! Every interleaving of two sessions within bounds, breadth first.
//!
//! What is explored is the real [`Session`], cloned at each step, with its model and its judge: no specification stands in for it, and
//! a state in which anything is not as predicted ends the search with the shortest way to it. `stateright` was considered: it wants a
//! state that is small, hashable and comparable, and an event loop of its own; ours is neither small nor hashable, and what is left
//! to write once it is, a queue and a set, is this file.
//!
//! Two states are one if their [digest](State::digest) is equal: the texts of both sessions, their models and their judges, and the
//! frames in flight. Left out is what cannot decide anything that follows: counters, absolute time (deadlines are said as they are
//! seen from now), and the numbers of tickets of the outbox (only their order counts). Ids keep their numbers: the order in which they
//! were given is part of what a session does.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{
    Answer, Ask, CallTimeouts, Config, Instant, Invoke, Json, Op, Progress, Reply, Sample, Sampled, Session, ToolOutput,
    TransportEnd,
};

use super::check::{ODD, Subject, Watched};
use crate::end::{client_config, server_config};
use crate::tesseron::{app_config, gateway_config};

/// How much may happen on the way from the first state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Calls of the client, those made while it answers a sampling included.
    pub calls: u8,
    /// Updates of progress, in all.
    pub updates: u8,
    /// Samplings, in all.
    pub samples: u8,
    /// Cancels, in all.
    pub cancels: u8,
    /// Deadlines that pass, in all.
    pub deadlines: u8,
    /// Ends that are closed.
    pub closes: u8,
}

/// Something that can happen next. The number is the end, or the place of what it happens to among its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client calls; on behalf of that sampling, if one is named.
    Call(Option<u8>),
    /// The client gives that call up.
    Cancel(u8),
    /// That handler reports progress.
    Update(u8),
    /// That handler asks for a sampling.
    Sample(u8),
    /// That handler ends.
    Respond(u8),
    /// The client answers that sampling.
    Answer(u8),
    /// That end's next frame leaves it.
    Leave(u8),
    /// A frame, or the end, arrives at that end.
    Arrive(u8),
    /// That end's next deadline passes, at that end alone: the other comes late.
    Deadline(u8),
    /// That end closes, with a grace.
    Close(u8),
}

/// Two ends and what is between them.
#[derive(Debug)]
pub struct State<S: Subject = Session> {
    ends: [Rc<Watched<S>>; 2],
    /// From the client, and from the server.
    flight: [VecDeque<Bytes>; 2],
    /// Ends that have heard that there is nothing more.
    ended: [bool; 2],
    now: Instant,
    left: Bounds,
    /// The digest of each end as seen from `now`.
    digests: [u128; 2],
}

impl<S: Subject> Clone for State<S> {
    fn clone(&self) -> Self {
        let Self { ends, flight, ended, now, left, digests } = self;
        Self { ends: ends.clone(), flight: flight.clone(), ended: *ended, now: *now, left: *left, digests: *digests }
    }
}

/// The clocks that make deadlines of both ends meet.
#[must_use]
pub fn configs() -> (Config, Config) {
    timed(client_config(), server_config())
}

/// The same for a gateway and an app.
#[must_use]
pub fn tesseron_configs() -> (Config, Config) {
    timed(gateway_config(), app_config())
}

fn timed(mut client: Config, mut server: Config) -> (Config, Config) {
    let idle = Some(Duration::from_millis(10));
    client.timeouts.call = CallTimeouts { idle, max_total: None, reset_on_progress: true };
    server.timeouts.serve = Some(Duration::from_millis(7));
    server.timeouts.input = None;
    for config in [&mut client, &mut server] {
        config.timeouts.close_grace = Duration::from_millis(5);
        config.limits.tombstones = 2;
    }
    (client, server)
}

impl<S: Subject> State<S> {
    /// Two ends with the handshake behind them.
    ///
    /// # Panics
    /// If the handshake goes wrong.
    #[must_use]
    pub fn ready(client: S, server: S, left: Bounds) -> Self {
        let mut watched = [client, server].map(|subject| {
            let mut watched = Watched::new(subject, Instant::ZERO, None);
            watched.trace = None;
            watched
        });
        for _ in 0..3 {
            for at in 0..2 {
                while let Some(out) = watched[at].poll_transmit() {
                    watched[1 - at].handle_frame(out.frame, Instant::ZERO).expect("the handshake is read");
                }
            }
        }
        if watched[0].is_tesseron() {
            watched[0].claim(Instant::ZERO);
            while let Some(out) = watched[0].poll_transmit() {
                watched[1].handle_frame(out.frame, Instant::ZERO).expect("the claim is read");
            }
        }
        for end in &mut watched {
            while end.poll_event().is_some() {}
            assert!(end.subject().session().is_ready());
        }
        let digests = watched.each_ref().map(|end| digest_of(end, Instant::ZERO));
        Self { ends: watched.map(Rc::new), flight: Default::default(), ended: [false; 2], now: Instant::ZERO, left, digests }
    }

    fn session(&self, at: usize) -> &Session {
        self.ends[at].subject().session()
    }

    /// Everything that can happen next.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        let (client, server) = (&self.ends[0].known, &self.ends[1].known);
        let places = |count: usize| 0..u8::try_from(count).unwrap_or(u8::MAX);
        let closed = [0, 1].map(|at| self.session(at).is_closed());
        if self.left.calls > 0 && !closed[0] {
            all.push(Action::Call(None));
            all.extend(places(client.asked.len()).map(|place| Action::Call(Some(place))));
        }
        if self.left.cancels > 0 {
            all.extend(places(client.calls.len()).map(Action::Cancel));
        }
        for place in places(server.serves.len()) {
            if self.left.updates > 0 {
                all.push(Action::Update(place));
            }
            if self.left.samples > 0 {
                all.push(Action::Sample(place));
            }
            all.push(Action::Respond(place));
        }
        all.extend(places(client.asked.len()).map(Action::Answer));
        for at in 0..2_u8 {
            let here = usize::from(at);
            if self.session(here).stats().queued_bytes > 0 {
                all.push(Action::Leave(at));
            }
            let peer_is_over = closed[1 - here] && !self.ended[here] && !closed[here];
            if !self.flight[1 - here].is_empty() || peer_is_over {
                all.push(Action::Arrive(at));
            }
            if self.left.deadlines > 0 && self.ends[here].subject().poll_timeout().is_some() {
                all.push(Action::Deadline(at));
            }
            if self.left.closes > 0 && !closed[here] {
                all.push(Action::Close(at));
            }
        }
        all
    }

    /// The state after `action`. Only the end that it concerns is cloned.
    #[must_use]
    pub fn after(&self, action: Action) -> Self {
        let mut next = self.clone();
        let left = &mut next.left;
        let at = match action {
            Action::Call(_) | Action::Cancel(_) | Action::Answer(_) => 0,
            Action::Update(_) | Action::Sample(_) | Action::Respond(_) => 1,
            Action::Leave(at) | Action::Arrive(at) | Action::Deadline(at) | Action::Close(at) => usize::from(at),
        };
        let budget = match action {
            Action::Call(_) => Some(&mut left.calls),
            Action::Cancel(_) => Some(&mut left.cancels),
            Action::Update(_) => Some(&mut left.updates),
            Action::Sample(_) => Some(&mut left.samples),
            Action::Deadline(_) => Some(&mut left.deadlines),
            Action::Close(_) => Some(&mut left.closes),
            _ => None,
        };
        if let Some(budget) = budget {
            *budget -= 1;
        }
        let (updates, now) = (self.left.updates, self.now);
        let end = Rc::make_mut(&mut next.ends[at]);
        match action {
            Action::Call(parent) => {
                let params = Json::parse(format!(r#"{{"name":"t","arguments":{ODD}}}"#)).expect("JSON");
                let mut call = Invoke::new(Op::CallTool, params);
                call.parent = parent.map(|place| end.known.asked[usize::from(place)].0);
                end.invoke(call, now);
            }
            Action::Cancel(place) => {
                let id = end.known.calls[usize::from(place)];
                end.cancel(id, now);
            }
            Action::Update(place) => {
                let id = end.known.serves[usize::from(place)];
                end.progress(id, Progress::value(f64::from(u8::MAX - updates)), now);
            }
            Action::Sample(place) => {
                let id = end.known.serves[usize::from(place)];
                end.request_input(id, Ask::Sample(Sample::new("?")), now);
            }
            Action::Respond(place) => {
                let id = end.known.serves[usize::from(place)];
                end.respond(id, Reply::Tool(ToolOutput::text("ok")), now);
            }
            Action::Answer(place) => {
                let key = end.known.asked[usize::from(place)].0;
                end.provide_input(key, Answer::Sample(Sampled::new("!", "m")), now);
            }
            Action::Leave(_) => {
                let out = end.poll_transmit().expect("a frame waits");
                // A broken pipe swallows it.
                if !self.session(1 - at).is_closed() {
                    next.flight[at].push_back(out.frame);
                }
            }
            Action::Arrive(_) => match next.flight[1 - at].pop_front() {
                Some(frame) => end.handle_frame(frame, now).expect("there is room"),
                None => {
                    next.ended[at] = true;
                    end.handle_end(TransportEnd::Eof, now);
                }
            },
            Action::Deadline(_) => {
                next.now = now.max(end.subject().poll_timeout().expect("a deadline"));
                end.handle_timeout(next.now);
            }
            Action::Close(_) => end.close(Duration::from_millis(5), now),
        }
        // Events are looked at as they come: what an application knows is part of neither session.
        while end.poll_event().is_some() {}
        next.digests[at] = digest_of(&next.ends[at], next.now);
        if next.now != self.now {
            next.digests[1 - at] = digest_of(&next.ends[1 - at], next.now);
        }
        next
    }

    /// What the state is, as far as it decides what follows.
    #[must_use]
    pub fn digest(&self) -> u128 {
        hash(&(self.digests, &self.flight, self.ended, self.left))
    }

    /// What must hold where nothing can happen any more, unless a bound is in the way.
    fn check_rest(&self) {
        if self.left.deadlines == 0 {
            return;
        }
        for at in 0..2 {
            let stats = self.session(at).stats();
            assert_eq!((stats.calls, stats.serves), (0, 0), "G1: nothing can happen any more, and something is open");
        }
    }
}

fn hash(what: &impl Hash) -> u128 {
    let [high, low] = [0_u8, 1].map(|half| {
        let mut hasher = DefaultHasher::new();
        (half, what).hash(&mut hasher);
        u128::from(hasher.finish())
    });
    high << 64 | low
}

fn digest_of(end: &Watched<impl Subject>, now: Instant) -> u128 {
    let mut text = String::with_capacity(4 * 1024);
    canonical(&format!("{:?}", end.subject()), now, &mut text);
    let model = end.model().map(|model| model.digest(now.as_micros()));
    hash(&(text, model, &end.judge))
}

/// Copies what a session looks like, without its config and its counters; instants as seen from `now`; tickets as places in the queue.
fn canonical(text: &str, now: Instant, out: &mut String) {
    let from = text.find("handshake: ").unwrap_or(0);
    let to = text.rfind("stats: Stats").unwrap_or(text.len());
    let mut rest = &text[from..to];
    let number = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    // The first ticket of the queue; whatever is below it has left.
    let first = rest.find("queue: [Waiting { ticket: Ticket(").map(|at| {
        let digits = &rest[at + "queue: [Waiting { ticket: Ticket(".len()..];
        digits[..number(digits)].parse::<i128>().unwrap_or_default()
    });
    const KINDS: [(&str, bool); 3] = [("Instant(", true), ("Ticket(", false), ("], next: ", false)];
    while let Some((at, word, is_time)) =
        KINDS.iter().filter_map(|(word, is_time)| rest.find(word).map(|at| (at, *word, *is_time))).min()
    {
        let digits = at + word.len();
        out.push_str(&rest[..digits]);
        let length = number(&rest[digits..]);
        let value = rest[digits..digits + length].parse::<i128>().unwrap_or_default();
        if is_time {
            let _ = write!(out, "{}", value - i128::from(now.as_micros()));
        } else if let Some(place) = first.map(|first| value - first).filter(|place| *place >= 0) {
            let _ = write!(out, "{place}");
        }
        rest = &rest[digits + length..];
    }
    out.push_str(rest);
}

/// What a search has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Distinct states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// States in which nothing can happen any more.
    pub rests: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
}

/// A way to something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// What is wrong.
    pub what: String,
    /// The shortest way to it.
    pub way: Vec<Action>,
}

/// Searches everything that can be reached, breadth first.
///
/// # Errors
/// The first objection of a judge or a model.
pub fn explore<S: Subject>(first: State<S>) -> Result<Found, Objection> {
    let mut seen = HashSet::from([first.digest()]);
    // How each state was reached first.
    let mut ways: Vec<(usize, Option<Action>, u16)> = vec![(0, None, 0)];
    let mut queue = VecDeque::from([(0_usize, first)]);
    let mut found = Found { states: 1, ..Found::default() };
    while let Some((from, state)) = queue.pop_front() {
        let actions = state.actions();
        let depth = ways[from].2;
        found.depth = found.depth.max(depth.into());
        let object = |what: Box<dyn std::any::Any + Send>, last: Option<Action>, ways: &[(usize, Option<Action>, u16)]| {
            let what =
                what.downcast_ref::<String>().cloned().or_else(|| what.downcast_ref::<&str>().map(|what| (*what).to_owned()));
            let mut way = Vec::from_iter(last);
            let mut at = from;
            while let (before, Some(action), _) = ways[at] {
                way.push(action);
                at = before;
            }
            way.reverse();
            Objection { what: what.unwrap_or_default(), way }
        };
        if actions.is_empty() {
            found.rests += 1;
            catch_unwind(AssertUnwindSafe(|| state.check_rest())).map_err(|what| object(what, None, &ways))?;
        }
        for action in actions {
            found.steps += 1;
            let next = catch_unwind(AssertUnwindSafe(|| state.after(action))).map_err(|what| object(what, Some(action), &ways))?;
            if seen.insert(next.digest()) {
                found.states += 1;
                ways.push((from, Some(action), depth + 1));
                queue.push_back((ways.len() - 1, next));
            }
        }
    }
    Ok(found)
}
