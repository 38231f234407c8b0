//! A search of all interleavings of two real sessions, within bounds.
//!
//! The search explores the real [`Session`], cloned at each step, with its judge. It ends at the first state that breaks a guarantee,
//! with the steps to that state. The crate `stateright` needs small, hashable states, and a
//! session is neither. With digests of the states, the search itself needs only a queue and a set.
//!
//! A state of the search consists of the state of each [end](End) and the frames in flight in each direction. The ends meet only through
//! frames, so the effect of a step depends only on the state of one end and a frame. Each step is tried once for each state of an end, and
//! its effect is looked up in all other states of the search. Two states of an end are equal if their [digests](End::digest) are.
//! `docs/proof.md` lists the parts that a digest leaves out, explains how the search is made smaller, and why it still finds every fault.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::Hash;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Close, Config, InputRequest, InputResponse, Instant, Invoke, Json, Lane, Notification, Op, Progress, Reply,
    Sample, SampleResult, Session, SubscriptionFilter, ToolOutput, TransportEnd,
};

use super::{Space, Stopped, Way, breadth_first, guarded, hash, small};
use crate::config::{agent, agent_capabilities};
use crate::config::{app_config, gateway_config};
use crate::config::{client_config, server_config};
use crate::scripted::initialize;
use crate::{ODD, Subject, Watched};

/// The maximum number of steps of each kind from the first state on, and the choice of the first state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Calls of the client, including calls that it makes to answer a sampling request.
    pub calls: u8,
    /// Subscriptions and unsubscriptions of the client: it subscribes to two resources, then unsubscribes from both, and so on.
    pub changes: u8,
    /// Subscriptions to the changes of tools, which the client makes as calls.
    pub listens: u8,
    /// Notifications that the server publishes, alternately about the tools and about the second resource. The last notification is about the
    /// resource.
    pub notifications: u8,
    /// Progress updates, for all calls together.
    pub updates: u8,
    /// Sampling requests, for all calls together.
    pub samples: u8,
    /// Cancels, for all calls together.
    pub cancels: u8,
    /// Handshakes of another client, which shares the channel and declares nothing. The server answers them to the first client, since
    /// there is no bridge here.
    pub handshakes: u8,
    /// Deadlines that pass at the client, and at the server.
    pub deadlines: [u8; 2],
    /// The number of times that the client closes, and the server.
    pub closes: [u8; 2],
    /// The maximum sum of all of these except `calls`, `changes` and `listens`, at the client and at the server.
    pub events: [u8; 2],
    /// `true` if the first state is the one before the handshake; `false` if it is the one after the handshake.
    pub opening: bool,
}

/// A step. Its number is that of the end (0 the client), or the index of a call, subscription or sampling request among the open ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client makes a call, which may belong to a sampling request.
    Call(Option<u8>),
    /// The client subscribes to a resource, or unsubscribes from it.
    Change,
    /// The client makes a subscription as a call.
    Listen,
    /// The server accepts a subscription.
    Accept(u8),
    /// The server publishes a notification.
    Publish,
    /// The client cancels a call.
    Cancel(u8),
    /// The handshake request of another client arrives at the server.
    Handshake,
    /// A handler reports progress.
    Update(u8),
    /// A handler makes a sampling request.
    Sample(u8),
    /// A handler ends.
    Respond(u8),
    /// The client answers a sampling request.
    InputResponse(u8),
    /// The next frame of an end is polled, and is then in flight.
    Leave(u8),
    /// The next deadline of an end passes, and `handle_timeout` is not called yet.
    Due(u8),
    /// `handle_timeout` of an end is called.
    Timeout(u8),
    /// An end closes, with a grace.
    Close(u8),
    /// A frame, or the end of the channel, arrives at an end.
    Arrive(u8),
}

/// Configurations of a client and a server in which a call has a deadline at both ends.
#[must_use]
pub fn configs() -> (Config, Config) {
    timed(client_config(), server_config())
}

/// Configurations like those of [`configs`], for a gateway and an app.
#[must_use]
pub fn tesseron_configs() -> (Config, Config) {
    timed(gateway_config(), app_config())
}

/// Configurations like those of [`configs`], for a client without a handshake and a server of both eras. The client subscribes to nothing
/// by itself.
#[must_use]
pub fn stateless_configs() -> (Config, Config) {
    let (mut client, server) = configs();
    (client.era, client.list_changes) = (Era::Modern, false);
    (client, server)
}

/// Configurations like those of [`configs`], for a client that chooses its era and a server of both eras. The time limit of a probe ends
/// before that of a call.
#[must_use]
pub fn choosing_configs() -> (Config, Config) {
    let (mut client, server) = stateless_configs();
    client.era = Era::Auto;
    client.timeouts.probe = Some(Duration::from_millis(6));
    (client, server)
}

/// Configurations like those of [`configs`], for a client without a handshake that subscribes to the changes of lists by itself, and a
/// server of both eras.
#[must_use]
pub fn listening_configs() -> (Config, Config) {
    let (mut client, server) = stateless_configs();
    client.list_changes = true;
    (client, server)
}

/// The resources that the client subscribes to.
const RESOURCES: [&str; 2] = ["u:", "v:"];

fn timed(mut client: Config, mut server: Config) -> (Config, Config) {
    let idle = Some(Duration::from_millis(10));
    client.timeouts.call = CallTimeouts::NONE.with_idle(idle).with_reset_on_progress(true);
    server.timeouts.serve = Some(Duration::from_millis(7));
    server.timeouts.input = None;
    for config in [&mut client, &mut server] {
        config.timeouts.close_grace = Duration::from_millis(5);
        // Neither end uses an id twice, so the ids of ended requests need not be remembered.
        config.limits.ended_ids = 0;
    }
    (client, server)
}

/// The state of one end, without the frames in flight.
#[derive(Clone, Debug)]
struct End<S> {
    /// Its number: the client is 0.
    at: u8,
    watched: Watched<S>,
    /// Its own clock.
    now: Instant,
    /// The numbers of steps that are still allowed at this end.
    left: Bounds,
    /// [`Bounds::changes`] in the first state.
    first_changes: u8,
    /// `true` once the end of the channel has arrived.
    ended: bool,
}

impl<S: Subject> End<S> {
    fn session(&self) -> &Session {
        self.watched.subject().session()
    }

    /// Returns `true` if no frame will come from this end any more.
    fn is_over(&self) -> bool {
        self.session().is_closed() && !self.has_output()
    }

    fn has_output(&self) -> bool {
        self.session().stats().queued_bytes > 0
    }

    /// Returns `true` if the end of the channel can still arrive.
    fn expects_end(&self) -> bool {
        !self.ended && !self.session().is_closed()
    }

    /// All steps that this end can take next, except arrivals.
    fn actions(&self) -> Vec<Action> {
        let (at, ids, left) = (self.at, &self.watched.ids, &self.left);
        let here = usize::from(at);
        let indexes = |count: usize| 0..u8::try_from(count).unwrap_or(u8::MAX);
        let (is_open, due) = (!self.session().is_closed(), self.watched.subject().poll_timeout());
        let has_events_left = left.events[here] > 0;
        let mut all = Vec::new();
        if here == 0 {
            if left.calls > 0 && is_open {
                all.push(Action::Call(None));
                all.extend(indexes(ids.peer_input_requests.len()).map(|index| Action::Call(Some(index))));
            }
            all.extend((left.changes > 0 && is_open).then_some(Action::Change));
            all.extend((left.listens > 0 && is_open).then_some(Action::Listen));
            if left.cancels > 0 && has_events_left {
                all.extend(indexes(ids.outbound_calls.len()).map(Action::Cancel));
            }
            all.extend(indexes(ids.peer_input_requests.len()).map(Action::InputResponse));
        }
        if here == 1 && has_events_left && is_open {
            all.extend((left.notifications > 0).then_some(Action::Publish));
            all.extend((left.handshakes > 0).then_some(Action::Handshake));
        }
        let open = ids.subscriptions.iter().zip(0..);
        all.extend(open.filter(|((_, is_accepted), _)| !is_accepted).map(|(_, index)| Action::Accept(index)));
        for index in indexes(ids.inbound_calls.len()) {
            if left.updates > 0 && has_events_left {
                all.push(Action::Update(index));
            }
            if left.samples > 0 && has_events_left {
                all.push(Action::Sample(index));
            }
            all.push(Action::Respond(index));
        }
        if self.has_output() {
            all.push(Action::Leave(at));
        }
        match due {
            Some(due) if due <= self.now => all.push(Action::Timeout(at)),
            Some(_) if left.deadlines[here] > 0 && has_events_left => all.push(Action::Due(at)),
            _ => {}
        }
        if left.closes[here] > 0 && is_open && has_events_left {
            all.push(Action::Close(at));
        }
        all
    }

    /// This end after a step, and the frame that the step sends. For [`Action::Arrive`], `arrived` is the frame, or `None` for the end of
    /// the channel.
    fn after(&self, action: Action, arrived: Option<Bytes>) -> (Self, Option<Bytes>) {
        let mut next = self.clone();
        let Self { watched: end, left, now, ended, .. } = &mut next;
        let here = usize::from(self.at);
        let before = *left;
        let (remaining, is_event) = match action {
            Action::Call(_) => (Some(&mut left.calls), false),
            Action::Change => (Some(&mut left.changes), false),
            Action::Listen => (Some(&mut left.listens), false),
            Action::Publish => (Some(&mut left.notifications), true),
            Action::Cancel(_) => (Some(&mut left.cancels), true),
            Action::Handshake => (Some(&mut left.handshakes), true),
            Action::Update(_) => (Some(&mut left.updates), true),
            Action::Sample(_) => (Some(&mut left.samples), true),
            Action::Due(_) => (Some(&mut left.deadlines[here]), true),
            Action::Close(_) => (Some(&mut left.closes[here]), true),
            _ => (None, false),
        };
        if let Some(remaining) = remaining {
            *remaining -= 1;
        }
        left.events[here] -= u8::from(is_event);
        let mut leaves = None;
        match action {
            Action::Call(parent) => {
                let mut call = Invoke::call_tool("t", Json::parse(ODD).expect("JSON"));
                call.parent = parent.map(|index| end.ids.peer_input_requests[usize::from(index)].0);
                _ = end.invoke(call, *now);
            }
            Action::Change => {
                let made = usize::from(self.first_changes - before.changes);
                let resource = RESOURCES[made % 2];
                let change = if made % 4 < 2 { Invoke::subscribe(resource) } else { Invoke::unsubscribe(resource) };
                _ = end.invoke(change, *now);
            }
            Action::Listen => {
                let wanted = Json::parse(r#"{"notifications":{"toolsListChanged":true}}"#).expect("JSON");
                _ = end.invoke(Invoke::new(Op::Listen, wanted), *now);
            }
            Action::Accept(index) => {
                let id = end.ids.subscriptions[usize::from(index)].0;
                let mut offered = SubscriptionFilter::default();
                (offered.tools, offered.uris) = (true, Vec::from(RESOURCES.map(Into::into)));
                _ = end.accept_subscription(id, &offered, *now);
            }
            Action::Publish => {
                let notification = match before.notifications % 2 {
                    0 => Notification::ToolsChanged,
                    _ => Notification::ResourceUpdated { uri: RESOURCES[1].into() },
                };
                end.publish(&notification, *now);
            }
            Action::Cancel(index) => {
                let id = end.ids.outbound_calls[usize::from(index)];
                _ = end.cancel(id, None, *now);
            }
            Action::Handshake => {
                let request = initialize(1_000 + u64::from(before.handshakes), "2025-11-25", "{}");
                end.handle_injected(request.into(), Lane::CHANNEL, *now);
            }
            Action::Update(index) => {
                let id = end.ids.inbound_calls[usize::from(index)];
                _ = end.progress(id, Progress::value(f64::from(u8::MAX - before.updates)), *now);
            }
            Action::Sample(index) => {
                let id = end.ids.inbound_calls[usize::from(index)];
                _ = end.request_input(id, InputRequest::from(Sample::new("?")), *now);
            }
            Action::Respond(index) => {
                let id = end.ids.inbound_calls[usize::from(index)];
                let is_call = end.ids.subscriptions.iter().all(|(subscription, _)| *subscription != id);
                let reply = if is_call { Reply::Tool(ToolOutput::text("ok")) } else { Reply::Done };
                _ = end.respond(id, reply, *now);
            }
            Action::InputResponse(index) => {
                let key = end.ids.peer_input_requests[usize::from(index)].0;
                _ = end.provide_input(key, InputResponse::Sample(SampleResult::new("!", "m")), *now);
            }
            Action::Leave(_) => leaves = Some(end.poll_transmit().expect("a frame waits").frame),
            Action::Arrive(_) => match arrived {
                Some(frame) => _ = end.handle_frame(frame, Lane::CHANNEL, *now).expect("there is room"),
                None => {
                    *ended = true;
                    end.handle_end(TransportEnd::Eof, *now);
                }
            },
            Action::Due(_) => *now = end.subject().poll_timeout().expect("a deadline"),
            Action::Timeout(_) => end.handle_timeout(*now),
            Action::Close(_) => end.close(Close::Graceful { grace: Duration::from_millis(5) }, *now),
        }
        // Events are polled immediately: the search has no steps for an application that polls late.
        while end.poll_event().is_some() {}
        (next, leaves)
    }

    /// A digest of the parts of this end on which its later steps depend.
    fn digest(&self) -> u128 {
        let mut text = String::with_capacity(4 * 1024);
        canonical(&format!("{:?}", self.watched.subject()), self.now, &mut text);
        hash(&(text, self.watched.judge(), self.left, self.ended))
    }

    /// Checks a state in which no step is possible any more. No call may be open, unless the bounds allow no further deadline. A closed
    /// session must have ended properly.
    fn check_rest(&self) {
        let stats = self.session().stats();
        let here = usize::from(self.at);
        if self.left.deadlines[here] > 0 && self.left.events[here] > 0 {
            assert_eq!(
                (stats.outbound_calls, stats.inbound_calls, self.watched.ids.outbound_calls.len()),
                (0, 0, 0),
                "G1: nothing can happen any more, and something is open, or a call is not done"
            );
        }
        if self.session().is_closed() {
            self.watched.check_end();
        }
    }
}

/// Copies the debug text of a session, without its config and its counters, so that equal states have equal texts. Instants are written
/// relative to `now`, and the numbers of queued frames as indexes in the queue. The number of a frame that was sent is replaced by its
/// order relative to the request of the current subscription, or left out if there is no such subscription. The bytes of frames that were
/// sent are left out.
fn canonical(text: &str, now: Instant, out: &mut String) {
    let from = text.find("handshake: ").unwrap_or(0);
    let to = text.rfind("stats: Stats").unwrap_or(text.len());
    let text = &text[from..to];
    // The numbers of the first frame in the queue, and of the request of the current subscription.
    let (first, subscription) = (number_after(text, QUEUE), number_after_each(text, &[CURRENT, TICKET]));
    let mut rest = text;
    while let Some((at, word)) =
        [INSTANT, TICKET, WAITING, NEXT, SHORT].into_iter().filter_map(|word| Some((rest.find(word)?, word))).min()
    {
        let digits = at + word.len();
        out.push_str(&rest[..digits]);
        rest = &rest[digits..];
        if word == SHORT {
            rest = without_consumed(rest, out);
            continue;
        }
        let (value, length) = leading_number(rest);
        rest = &rest[length..];
        let place = first.map(|first| value - first).filter(|place| *place >= 0);
        match (word, place, subscription) {
            // These instants have no effect once they have passed, so they are then written as 0.
            (INSTANT, ..) if out.ends_with(QUIET) || out.ends_with(RATE) => {
                _ = write!(out, "{}", (value - i128::from(now.as_micros())).max(0));
            }
            (INSTANT, ..) => _ = write!(out, "{}", value - i128::from(now.as_micros())),
            (_, Some(place), _) => _ = write!(out, "{place}"),
            (TICKET, None, Some(subscription)) => _ = write!(out, "{:?}", value.cmp(&subscription)),
            _ => {}
        }
    }
    out.push_str(rest);
}

const CURRENT: &str = "current: Some(";
const INSTANT: &str = "Instant(";
const TICKET: &str = "Ticket { number: ";
const WAITING: &str = "Waiting { number: ";
const QUEUE: &str = "channel: LaneQueue { queue: [Waiting { number: ";
/// The text before the number of the next frame.
const NEXT: &str = "others_were_first: false, next: ";
const QUIET: &str = "quiet_until: Instant(";
const RATE: &str = "full_at: Instant(";
/// The text before the bytes of frames that were sent, after which come the bytes of queued frames.
const SHORT: &str = "short: ByteQueue { bytes: [";

/// The number that a text begins with, and its length.
fn leading_number(text: &str) -> (i128, usize) {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (text[..length].parse().unwrap_or_default(), length)
}

fn number_after(text: &str, word: &str) -> Option<i128> {
    number_after_each(text, &[word])
}

/// The number after the last of these words, each of which comes after the one before it.
fn number_after_each(text: &str, words: &[&str]) -> Option<i128> {
    let rest = words.iter().try_fold(text, |rest, word| Some(&rest[rest.find(word)? + word.len()..]))?;
    Some(leading_number(rest).0)
}

/// Copies the bytes of queued frames, and returns the text after the buffer.
fn without_consumed<'a>(text: &'a str, out: &mut String) -> &'a str {
    const CONSUMED: &str = "], consumed: ";
    let Some(end) = text.find(CONSUMED) else { return text };
    let (bytes, rest) = (&text[..end], &text[end + CONSUMED.len()..]);
    let count = usize::try_from(leading_number(rest).0).unwrap_or_default();
    bytes.split(", ").skip(count).for_each(|byte| {
        out.push_str(byte);
        out.push(' ');
    });
    &rest[rest.find('}').unwrap_or(0)..]
}

/// Stores each distinct value once, under a number.
#[derive(Debug)]
struct Numbers<T> {
    all: Vec<T>,
    known: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    /// The number of `value`, which is stored if it is new.
    fn of(&mut self, value: T) -> u32 {
        if let Some(number) = self.known.get(&value) {
            return *number;
        }
        let number = small(self.all.len());
        self.all.push(value.clone());
        self.known.insert(value, number);
        number
    }

    /// The value with this number.
    fn named(&self, number: u32) -> &T {
        &self.all[number as usize]
    }
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { all: Vec::new(), known: HashMap::new() }
    }
}

/// The effect of a step at one end: the next state of the end, and the frame that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effect {
    to: u32,
    leaves: Option<u32>,
}

/// A step at one end, with its effect. `via` is the state of the end before the step.
#[derive(Clone, Copy, Debug)]
struct Step {
    via: u32,
    action: Action,
    effect: Effect,
}

/// A state of one end, and the steps from it. The steps are tried when they are first needed.
#[derive(Debug)]
struct Reached<S> {
    end: End<S>,
    is_over: bool,
    /// The effects of all steps except arrivals.
    effects: Option<Rc<[(Action, Effect)]>>,
    /// The effects of arrivals: of a frame, or for `None` of the end of the channel.
    arrivals: Vec<(Option<u32>, Effect)>,
    /// The states that this end can reach by *silent* steps, which the other end cannot notice. This state is the first.
    alone: Option<Rc<[u32]>>,
    /// The steps from any state in `alone` that the other end can notification, without those that [`Search::undelayed`] leaves out.
    departures: Option<Rc<[Step]>>,
    /// The arrivals of a frame (`None` for the end of the channel) in any state in `alone`, without those that [`Search::undelayed`] leaves
    /// out.
    receipts: Vec<(Option<u32>, Rc<[Step]>)>,
}

/// The states of one end.
#[derive(Debug)]
struct Side<S> {
    all: Vec<Reached<S>>,
    known: HashMap<u128, u32>,
}

impl<S: Subject> Side<S> {
    fn number(&mut self, end: End<S>) -> u32 {
        let next = small(self.all.len());
        let number = *self.known.entry(end.digest()).or_insert(next);
        if number == next {
            let (is_over, none) = (end.is_over(), (None, None, None));
            let (arrivals, receipts) = Default::default();
            let (effects, alone, departures) = none;
            self.all.push(Reached { end, is_over, effects, arrivals, alone, departures, receipts });
        }
        number
    }

    fn at(&self, number: u32) -> &Reached<S> {
        &self.all[number as usize]
    }

    fn at_mut(&mut self, number: u32) -> &mut Reached<S> {
        &mut self.all[number as usize]
    }

    /// Returns `true` if the step is silent: the other end cannot notice it, since no frame is sent, and `is_over` stays as it was.
    fn is_silent(&self, from: u32, action: Action, effect: Effect) -> bool {
        !matches!(action, Action::Leave(_)) && self.at(from).is_over == self.at(effect.to).is_over
    }

    /// The states after one silent step, if the steps were tried already.
    fn silently(&self, from: u32) -> impl Iterator<Item = (Action, u32)> {
        let effects = self.at(from).effects.iter().flat_map(|effects| effects.iter());
        effects.filter(move |(action, effect)| self.is_silent(from, *action, *effect)).map(|(action, effect)| (*action, effect.to))
    }

    /// The silent steps from one state to another.
    fn path(&self, from: u32, to: u32) -> Vec<Action> {
        let mut ways = vec![(from, Vec::new())];
        let mut next = 0;
        while let Some((at, way)) = ways.get(next).cloned() {
            if at == to {
                return way;
            }
            for (action, then) in self.silently(at) {
                if ways.iter().all(|(known, _)| *known != then) {
                    ways.push((then, [&way[..], &[action]].concat()));
                }
            }
            next += 1;
        }
        Vec::new()
    }
}

/// A state of the search: the state of each end, and the frames in flight from the client and from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    ends: [u32; 2],
    flight: [u32; 2],
}

/// The orders of steps that are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orders {
    /// Every order of steps.
    All,
    /// Of the orders that neither end can distinguish, only one.
    Enough,
}

/// The figures of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Distinct states of the search, for both ends together.
    pub states: usize,
    /// Steps between these states.
    pub steps: usize,
    /// Distinct states of the client, and of the server.
    pub ends: [usize; 2],
    /// A digest of the states of both ends, which does not depend on the order in which they were found.
    pub digest: u128,
    /// States in which no step is possible any more.
    pub rests: usize,
}

/// A violated guarantee, and the steps to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The text of the panic.
    pub what: String,
    /// The steps to the violation: the shortest sequence, if every order was searched.
    pub way: Vec<Action>,
}

/// A panic in a state of an end, or in a step from that state.
struct Wrong {
    at: usize,
    state: u32,
    action: Option<Action>,
    what: String,
    /// The state of the end before `state`, and the step from it, if the search has not reached `state` yet.
    after: Option<(u32, Action)>,
}

/// Runs a step or a check. Returns a panic as an error.
fn judged<T>(at: usize, state: u32, action: Option<Action>, run: impl FnOnce() -> T) -> Result<T, Wrong> {
    guarded(run).map_err(|what| Wrong { at, state, action, what, after: None })
}

/// A search under way.
#[derive(Debug)]
struct Search<S> {
    sides: [Side<S>; 2],
    frames: Numbers<Bytes>,
    flights: Numbers<Vec<u32>>,
    orders: Orders,
}

impl<S: Subject> Search<S> {
    /// Tries a step of an end, for the first time in this state of the end.
    fn attempt(&mut self, at: usize, from: u32, action: Action, frame: Option<u32>) -> Result<Effect, Wrong> {
        let end = &self.sides[at].at(from).end;
        let frame = frame.map(|frame| self.frames.named(frame).clone());
        let (next, leaves) = judged(at, from, Some(action), || end.after(action, frame))?;
        Ok(Effect { to: self.sides[at].number(next), leaves: leaves.map(|frame| self.frames.of(frame)) })
    }

    fn effects(&mut self, at: usize, from: u32) -> Result<Rc<[(Action, Effect)]>, Wrong> {
        if let Some(effects) = &self.sides[at].at(from).effects {
            return Ok(Rc::clone(effects));
        }
        let actions = self.sides[at].at(from).end.actions();
        let tried = actions.into_iter().map(|action| Ok((action, self.attempt(at, from, action, None)?)));
        let tried: Rc<[_]> = tried.collect::<Result<_, _>>()?;
        self.sides[at].at_mut(from).effects = Some(Rc::clone(&tried));
        Ok(tried)
    }

    fn arrival(&mut self, at: usize, from: u32, frame: Option<u32>) -> Result<Effect, Wrong> {
        if let Some((_, effect)) = self.sides[at].at(from).arrivals.iter().find(|(known, _)| *known == frame) {
            return Ok(*effect);
        }
        let effect = self.attempt(at, from, Action::Arrive(self.sides[at].at(from).end.at), frame)?;
        self.sides[at].at_mut(from).arrivals.push((frame, effect));
        Ok(effect)
    }

    fn alone(&mut self, at: usize, from: u32) -> Result<Rc<[u32]>, Wrong> {
        if let Some(alone) = &self.sides[at].at(from).alone {
            return Ok(Rc::clone(alone));
        }
        let (mut all, mut known, mut next) = (vec![from], HashSet::from([from]), 0);
        while let Some(state) = all.get(next).copied() {
            self.effects(at, state)?;
            all.extend(self.sides[at].silently(state).map(|(_, to)| to).filter(|to| known.insert(*to)));
            next += 1;
        }
        let alone: Rc<[_]> = all.into();
        self.sides[at].at_mut(from).alone = Some(Rc::clone(&alone));
        Ok(alone)
    }

    /// Leaves out each step that has the same result if it is taken one silent step earlier. Either all `steps` send a frame, or all are
    /// arrivals.
    fn undelayed(&mut self, at: usize, steps: &[Step]) -> Result<Vec<Step>, Wrong> {
        let mut delayed = HashSet::new();
        let taken: HashMap<u32, Effect> = steps.iter().map(|step| (step.via, step.effect)).collect();
        for early in steps {
            self.effects(at, early.effect.to).map_err(|wrong| Wrong { after: Some((early.via, early.action)), ..wrong })?;
            let side = &self.sides[at];
            for (_, late) in side.silently(early.via) {
                let Some(effect) = taken.get(&late).filter(|effect| effect.leaves == early.effect.leaves) else { continue };
                if side.silently(early.effect.to).any(|(_, to)| to == effect.to) {
                    delayed.insert(late);
                }
            }
        }
        Ok(steps.iter().filter(|step| !delayed.contains(&step.via)).copied().collect())
    }

    fn departures(&mut self, at: usize, from: u32) -> Result<Rc<[Step]>, Wrong> {
        if let Some(departures) = &self.sides[at].at(from).departures {
            return Ok(Rc::clone(departures));
        }
        let (mut leaving, mut ending) = (Vec::new(), Vec::new());
        for via in self.alone(at, from)?.iter().copied() {
            for (action, effect) in self.effects(at, via)?.iter().copied() {
                let step = Step { via, action, effect };
                match action {
                    Action::Leave(_) => leaving.push(step),
                    _ if !self.sides[at].is_silent(via, action, effect) => ending.push(step),
                    _ => {}
                }
            }
        }
        ending.extend(self.undelayed(at, &leaving)?);
        let departures: Rc<[_]> = ending.into();
        self.sides[at].at_mut(from).departures = Some(Rc::clone(&departures));
        Ok(departures)
    }

    fn receipts(&mut self, at: usize, from: u32, frame: Option<u32>) -> Result<Rc<[Step]>, Wrong> {
        if let Some((_, receipts)) = self.sides[at].at(from).receipts.iter().find(|(known, _)| *known == frame) {
            return Ok(Rc::clone(receipts));
        }
        let mut arriving = Vec::new();
        for via in self.alone(at, from)?.iter().copied() {
            let end = &self.sides[at].at(via).end;
            let action = Action::Arrive(end.at);
            if frame.is_some() || end.expects_end() {
                arriving.push(Step { via, action, effect: self.arrival(at, via, frame)? });
            }
        }
        let receipts: Rc<[_]> = self.undelayed(at, &arriving)?.into();
        self.sides[at].at_mut(from).receipts.push((frame, Rc::clone(&receipts)));
        Ok(receipts)
    }

    /// The next arrival at an end: a frame, or `Some(None)` for the end of the channel.
    fn next_arrival(&self, state: State, at: usize) -> Option<Option<u32>> {
        let [here, peer] = [at, 1 - at].map(|at| self.sides[at].at(state.ends[at]));
        match self.flights.named(state.flight[1 - at]).first() {
            Some(frame) => Some(Some(*frame)),
            None => (peer.is_over && here.end.expects_end()).then_some(None),
        }
    }

    /// Adds the steps from `state` to `next`, each with the state after it: every possible step, or with [`Orders::Enough`] those that are
    /// enough.
    fn follow(&mut self, state: State, next: &mut Vec<(Move, State)>) -> Result<(), Wrong> {
        let arrivals = [0, 1].map(|at| self.next_arrival(state, at));
        // If something can arrive at an end, only that end takes steps: rule 1 in "Which orders are omitted" of `docs/proof.md`.
        let only = (0..2).rev().find(|at| arrivals[*at].is_some()).filter(|_| self.orders == Orders::Enough);
        for at in only.map_or(0..2, |at| at..at + 1) {
            let from = state.ends[at];
            let end = self.sides[at].at(from).end.at;
            let departures = match self.orders {
                Orders::Enough => self.departures(at, from)?,
                Orders::All => {
                    let effects = self.effects(at, from)?;
                    effects.iter().map(|(action, effect)| Step { via: from, action: *action, effect: *effect }).collect()
                }
            };
            for step in departures.iter() {
                let mut then = state;
                then.ends[at] = step.effect.to;
                if let Some(frame) = step.effect.leaves {
                    let flight = [&self.flights.named(state.flight[at])[..], &[frame]].concat();
                    then.flight[at] = self.flights.of(flight);
                }
                next.push((Move { at: end, via: step.via, action: step.action }, then));
            }
            let Some(frame) = arrivals[at] else { continue };
            let receipts = match self.orders {
                Orders::Enough => self.receipts(at, from, frame)?,
                Orders::All => {
                    let (action, effect) = (Action::Arrive(end), self.arrival(at, from, frame)?);
                    Rc::from([Step { via: from, action, effect }])
                }
            };
            for step in receipts.iter() {
                let mut then = state;
                then.ends[at] = step.effect.to;
                if frame.is_some() {
                    let flight = self.flights.named(state.flight[1 - at])[1..].to_vec();
                    then.flight[1 - at] = self.flights.of(flight);
                }
                next.push((Move { at: end, via: step.via, action: step.action }, then));
            }
        }
        Ok(())
    }

    /// The states that an end can reach from `from` by silent steps, and in which no step but an arrival is possible. With [`Orders::All`]
    /// only `from` itself is considered.
    fn rests(&mut self, at: usize, from: u32) -> Result<Vec<u32>, Wrong> {
        let alone = match self.orders {
            Orders::Enough => self.alone(at, from)?,
            Orders::All => Rc::from([from]),
        };
        let mut rests = Vec::new();
        for state in alone.iter().copied() {
            if self.effects(at, state)?.is_empty() {
                rests.push(state);
            }
        }
        Ok(rests)
    }

    /// Checks the states that [`Self::rests`] returns for both ends, if nothing can arrive at either end.
    fn check_rests(&mut self, state: State, rests: &mut HashSet<[u32; 2]>) -> Result<(), Wrong> {
        if (0..2).any(|at| self.next_arrival(state, at).is_some()) {
            return Ok(());
        }
        let (client, server) = (self.rests(0, state.ends[0])?, self.rests(1, state.ends[1])?);
        for pair in client.iter().flat_map(|client| server.iter().map(|server| [*client, *server])) {
            if rests.insert(pair) {
                for (at, state) in pair.into_iter().enumerate() {
                    judged(at, state, None, || self.sides[at].at(state).end.check_rest())?;
                }
            }
        }
        Ok(())
    }
}

/// A step of the search: the end that takes it, the state of that end before the step (`via`), and the step.
#[derive(Clone, Copy, Debug)]
struct Move {
    at: u8,
    via: u32,
    action: Action,
}

/// The states of two sessions, as a space that can be searched.
struct Whole<S> {
    search: Search<S>,
    rests: HashSet<[u32; 2]>,
}

impl<S: Subject> Space for Whole<S> {
    type State = State;
    type Step = Move;
    type Wrong = Wrong;

    fn follow(&mut self, state: State, next: &mut Vec<(Move, State)>) -> Result<(), Wrong> {
        self.search.follow(state, next)?;
        self.search.check_rests(state, &mut self.rests)
    }
}

/// Searches all states that two sessions can reach, breadth first, after their handshake or from the beginning ([`Bounds::opening`]).
///
/// # Errors
/// [`Counterexample`] with the first guarantee that a judge found violated, or if no step is possible within the bounds.
///
/// # Panics
/// If the handshake goes wrong.
pub fn explore_pair<S: Subject>(client: S, server: S, bounds: Bounds, orders: Orders) -> Result<Found, Counterexample> {
    let sides = [0, 1].map(|_| Side { all: Vec::new(), known: HashMap::new() });
    let mut search = Search { sides, frames: Numbers::default(), flights: Numbers::default(), orders };
    let mut watched = begun(client, server);
    if !bounds.opening {
        shake_hands(&mut watched);
    }
    let [client, server] = watched;
    let ends = [(0, client), (1, server)].map(|(at, watched)| {
        let end = End { at, watched, now: Instant::ZERO, left: bounds, first_changes: bounds.changes, ended: false };
        search.sides[usize::from(at)].number(end)
    });
    if ends.iter().enumerate().all(|(at, end)| search.sides[at].at(*end).end.actions().is_empty()) {
        return Err(Counterexample {
            what: "nothing was searched: nothing can happen within these bounds".to_owned(),
            way: Vec::new(),
        });
    }
    let first = State { ends, flight: [search.flights.of(Vec::new()); 2] };
    let mut whole = Whole { search, rests: HashSet::new() };
    let walk = match breadth_first(&mut whole, first, usize::MAX) {
        Ok(walk) => walk,
        Err(Stopped::Wrong { walk, at, wrong }) => return Err(counterexample(&whole.search, &walk.ways, at, wrong)),
        Err(Stopped::TooMany) => unreachable!("no bound was given"),
    };
    let Whole { search, rests } = whole;
    let ends = search.sides.each_ref().map(|side| side.all.len());
    let digest = search.sides.iter().flat_map(|side| side.known.keys()).fold(0, |all, one| all ^ one);
    Ok(Found { states: walk.ways.len(), steps: walk.steps, ends, digest, rests: rests.len() })
}

/// Makes the counterexample for a fault, with the steps from the first state to it.
fn counterexample<S: Subject>(search: &Search<S>, ways: &[Way<State, Move>], found: usize, wrong: Wrong) -> Counterexample {
    let silent_steps = |at: usize, from: State, to: u32| search.sides[at].path(from.ends[at], to);
    let mut parts = vec![Vec::from_iter(wrong.action)];
    match wrong.after {
        Some((via, action)) => parts.extend([vec![action], silent_steps(wrong.at, ways[found].state, via)]),
        None => parts.push(silent_steps(wrong.at, ways[found].state, wrong.state)),
    }
    let mut at = &ways[found];
    while let Some(last) = at.last {
        let before = &ways[at.from as usize];
        parts.extend([vec![last.action], silent_steps(last.at.into(), before.state, last.via)]);
        at = before;
    }
    parts.reverse();
    Counterexample { what: wrong.what, way: parts.concat() }
}

/// Two ends that have just begun.
fn begun<S: Subject>(client: S, server: S) -> [Watched<S>; 2] {
    [client, server].map(|subject| {
        let mut watched = Watched::new(subject, Instant::ZERO);
        watched.forget_trace();
        watched
    })
}

fn shake_hands<S: Subject>(watched: &mut [Watched<S>; 2]) {
    for _ in 0..3 {
        for at in 0..2 {
            while let Some(out) = watched[at].poll_transmit() {
                watched[1 - at].handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).expect("the handshake is read");
            }
        }
    }
    if watched[0].is_tesseron() {
        watched[0].claim(agent(), agent_capabilities(), 1, Instant::ZERO).expect("the session can be claimed");
        while let Some(out) = watched[0].poll_transmit() {
            watched[1].handle_frame(out.frame, Lane::CHANNEL, Instant::ZERO).expect("the claim is read");
        }
    }
    // A server of stateless requests is never ready itself, since it has no handshake.
    let is_stateless = watched[0].subject().session().era() == Some(Era::Modern);
    for end in watched {
        while end.poll_event().is_some() {}
        assert!(is_stateless || end.subject().session().is_ready());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a word did not occur in the debug text, the numbers that should follow the word would stay in the digest, and equal states would
    /// be searched again.
    #[test]
    fn every_word_that_canonical_searches_for_occurs_in_the_debug_text_of_a_session() {
        let mut pair = crate::Pair::ready();
        pair.client.call();
        let text = format!("{:?}", pair.client.session);
        for word in [INSTANT, TICKET, WAITING, QUEUE, NEXT, QUIET, RATE, SHORT] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
        let mut listening = Session::new(listening_configs().0, Instant::ZERO);
        _ = listening.poll_transmit().expect("the probe");
        let discovered = r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}}"#;
        listening.handle_frame(discovered.into(), Lane::CHANNEL, Instant::ZERO).expect("it takes frames");
        let text = format!("{listening:?}");
        assert!(number_after_each(&text, &[CURRENT, TICKET]).is_some(), "{text}");
    }
}
