//! One outbound call, from `invoke` to its outcome.
//!
//! ```text
//!            invoke (peer not ready)         invoke (peer ready): its clocks start
//!                  |                               |
//!                  v   release: its clocks start   v
//!                Held  ----------------------->  InFlight --- progress; input requests, which pause the clocks -+
//!                  |                               |  ^                                                    |
//!                  | cancel, end:                  |  +----------------------------------------------------+
//!                  | nothing was sent              |
//!                  v                               v  response | cancel, deadline: a cancel is sent | end
//!                              (gone)
//!
//!   InFlight -- the response asks for input --> Asked -- every answer is there: a retry, with a new exchange --> InFlight
//!                                                 |
//!                                                 |  cancel, deadline, end: nothing is sent | an answer that a retry cannot carry
//!                                                 v
//!                                              (gone)
//!
//!   resume_input (a call that was kept between two rounds) --> Asked
//! ```
//!
//! A call in `Held` that cannot or need not be sent when the handshake is done, or that has a time limit of zero, ends without being
//! released. If a round has no input requests, its retry is sent after a short delay.
//!
//! The diagram does not show the state `GivenUp`. A cancel by the owner moves the call from `InFlight` to `GivenUp` if the peer answers
//! cancelled calls, [`cancel_grace`](crate::Timeouts::cancel_grace) is not zero, and the request was polled. There the call waits for the
//! peer's reply, which may have a partial result. The call ends as cancelled, with or without a partial result.
//!
//! In the diagram, *end* means that the channel or the exchange is lost, or that the session closes. Nothing about a call is stored after
//! its outcome. This end numbers the exchanges of its calls, so a frame is late if its number was used before and is in no table.

use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::time::Duration;

use crate::config::CallTimeouts;
use crate::dialect::{Op, Outgoing, Progress, RetryMembers, Rules};
use crate::json::{Json, Text};
use crate::session::outbox::Ticket;
use crate::session::pending::PendingInput;
use crate::session::progress::{UpdateVerdict, Watcher};
use crate::session::timers::{TimerKey, Timers};
use crate::session::{ExchangeId, InputKey, OutboundId, TimeoutKind};
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct OutboundCall {
    op: Op,
    /// The current exchange: the first one or the last retry. It is open in the states `InFlight` and `GivenUp`.
    exchange: ExchangeId,
    /// The request, if it may have to be sent again. Boxed to keep all other calls small.
    repeatable: Option<Box<Repeatable>>,
    /// The number of sampling requests that the call is nested in.
    depth: u8,
    /// The rules of the exchange.
    rules: &'static Rules,
    /// The time for which the deadline is armed in the session's timers.
    armed: Option<Instant>,
    /// Allocated when it is first needed: most calls receive only their response.
    caller_progress: Option<Box<CallerProgress>>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Waits for the handshake, and has no deadline of its own. Boxed to keep the state of all other calls small.
    Held(Box<Held>),
    /// The request was queued in the outbox, where `ticket` identifies it. `observed`, here and in `Held` and `Asked`, is `true` if the
    /// peer is asked for progress or, on Tesseron, may report it unasked.
    InFlight { ticket: Ticket, observed: bool, clocks: Clocks },
    /// The peer has ended the exchange with a round of input requests. Boxed to keep the state of all other calls small.
    Asked(Box<Asked>),
    /// The call was cancelled. The peer has until `until` to send a partial result; then the call is gone.
    GivenUp { until: Instant },
}

/// The request of a call to which the peer may respond with a round of input requests.
#[derive(Clone, Debug)]
struct Repeatable {
    request: Outgoing,
    /// The number of rounds of input requests so far.
    rounds: u8,
}

/// The round of a call whose peer has asked for input.
#[derive(Clone, Debug)]
struct Asked {
    observed: bool,
    clocks: Clocks,
    /// The input requests of the round that have no answer yet, with their names.
    inputs: Vec<(InputKey, Text)>,
    /// The answers so far.
    answers: Vec<(Text, Json)>,
    /// The state to return with the answers.
    state: Option<Text>,
    /// The time of the retry, if the round has no input requests.
    again_at: Option<Instant>,
    /// The result that asks for input.
    round: Json,
}

/// A round that the peer has sent.
pub(super) struct RoundOfPeer {
    /// The input requests, with the names of their answers.
    inputs: Vec<(InputKey, Text)>,
    state: Option<Text>,
    /// The time of the retry, if there are no input requests.
    again_at: Option<Instant>,
    /// The result that asks for input.
    result: Json,
}

impl RoundOfPeer {
    pub(super) fn new(inputs: Vec<(InputKey, Text)>, state: Option<Text>, again_at: Option<Instant>, result: Json) -> Self {
        Self { inputs, state, again_at, result }
    }
}

/// The parts of a retry.
pub(super) struct RetryParts<'a> {
    request: &'a Outgoing,
    answers: &'a [(Text, Json)],
    state: Option<&'a Text>,
}

impl<'a> RetryParts<'a> {
    pub(super) fn request(&self) -> &'a Outgoing {
        self.request
    }

    /// The members that the retry adds to the parameters of its request.
    pub(super) fn members(&self) -> RetryMembers<'_> {
        RetryMembers { answers: self.answers, state: self.state }
    }
}

/// A call that waits for the handshake.
#[derive(Clone, Debug)]
struct Held {
    request: Outgoing,
    observed: bool,
    timeouts: CallTimeouts,
}

/// The two clocks of a call, one for each time limit of [`CallTimeouts`]. Both pause while an input request of the call is open.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    /// The maximum time since `activity`.
    idle: Option<Duration>,
    /// The deadline from [`CallTimeouts::max_total`]; each pause postpones it.
    latest: Option<Instant>,
    /// The time from which the idle clock counts: the clocks were started or resumed then, or progress restarted the idle clock.
    activity: Instant,
    /// `true` if accepted progress restarts the idle clock, unless only its message or data is new.
    reset_on_progress: bool,
}

/// The input requests, progress and partial result that arrived for a call before its response.
#[derive(Clone, Debug, Default)]
pub(super) struct CallerProgress {
    /// The open input requests of the peer.
    open_inputs: Vec<InputKey>,
    /// The time since which at least one input request is open.
    asked_since: Instant,
    watcher: Watcher,
    /// The newest partial result that came with progress.
    partial: Option<Json>,
}

impl CallerProgress {
    /// Takes the newest partial result, the last accepted progress, and the open input requests.
    pub(super) fn take_parts(&mut self) -> (Option<Json>, Option<Box<Progress>>, Vec<InputKey>) {
        (self.partial.take(), self.watcher.take_last(), core::mem::take(&mut self.open_inputs))
    }
}

/// The step to take for the request of a call that ends before its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withdrawal {
    /// No step: the request was never queued, its exchange has ended, or a cancel was already sent.
    Nothing,
    /// Withdraw the request if it was not polled; otherwise send a cancel, unless the operation cannot be cancelled or the call is lost.
    Request(Ticket),
}

impl Repeatable {
    fn of(request: &Outgoing, rules: &Rules) -> Option<Box<Self>> {
        rules.dialect.has_rounds(request.op).then(|| Box::new(Self { request: request.clone(), rounds: 0 }))
    }
}

impl Asked {
    fn new(observed: bool, clocks: Clocks, round: RoundOfPeer) -> Self {
        let RoundOfPeer { inputs, state, again_at, result } = round;
        Self { observed, clocks, inputs, answers: Vec::new(), state, again_at, round: result }
    }
}

impl Clocks {
    #[inline]
    pub(super) fn start(timeouts: CallTimeouts, now: Instant) -> Self {
        Self {
            idle: timeouts.idle,
            latest: timeouts.max_total.map(|total| now.saturating_add(total)),
            activity: now,
            reset_on_progress: timeouts.reset_on_progress,
        }
    }

    /// The clock that has run out by `now`; `None` if both still run.
    #[inline]
    pub(super) fn expired(&self, now: Instant) -> Option<TimeoutKind> {
        self.deadline().filter(|(at, _)| *at <= now).map(|(_, clock)| clock)
    }

    /// Resumes the clocks, which paused at `since`. The idle clock restarts from zero, and the other clock continues with the time that it
    /// had left. If it had none left, it gets one tick, since a deadline must be later than `now` (G7).
    fn resume(&mut self, since: Instant, now: Instant) {
        self.activity = now;
        self.latest = self.latest.map(|latest| now.saturating_add(latest.saturating_duration_since(since).max(Instant::TICK)));
    }

    /// The earlier of the ends of the two clocks, and the clock that ends then.
    fn deadline(&self) -> Option<(Instant, TimeoutKind)> {
        let idle = self.idle.map(|idle| (self.activity.saturating_add(idle), TimeoutKind::Idle));
        let total = self.latest.map(|latest| (latest, TimeoutKind::MaxTotal));
        match (idle, total) {
            (Some(idle), Some(total)) => Some(if total.0 <= idle.0 { total } else { idle }),
            (idle, total) => idle.or(total),
        }
    }
}

impl OutboundCall {
    pub(super) fn held(
        id: OutboundId,
        request: Outgoing,
        depth: u8,
        rules: &'static Rules,
        timeouts: CallTimeouts,
        observed: bool,
    ) -> Self {
        Self::new(id, request.op, depth, rules, State::Held(Box::new(Held { request, observed, timeouts })))
    }

    pub(super) fn in_flight(
        id: OutboundId,
        request: &Outgoing,
        ticket: Ticket,
        depth: u8,
        rules: &'static Rules,
        clocks: Clocks,
        observed: bool,
    ) -> Self {
        let repeatable = Repeatable::of(request, rules);
        Self { repeatable, ..Self::new(id, request.op, depth, rules, State::InFlight { ticket, observed, clocks }) }
    }

    fn new(id: OutboundId, op: Op, depth: u8, rules: &'static Rules, state: State) -> Self {
        let exchange = ExchangeId(id.0);
        Self { op, exchange, repeatable: None, depth, rules, armed: None, caller_progress: None, state }
    }

    /// The current exchange: the first one or the last retry.
    #[inline]
    pub(super) fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    /// Returns `true` if `exchange` is the current exchange, and is open.
    #[inline]
    pub(super) fn is_open_as(&self, exchange: ExchangeId) -> bool {
        self.exchange == exchange && self.has_exchange()
    }

    /// Returns `true` if a request of the call is queued or was sent, and has no response.
    #[inline]
    pub(super) fn has_exchange(&self) -> bool {
        matches!(self.state, State::InFlight { .. } | State::GivenUp { .. })
    }

    #[inline]
    pub(super) fn op(&self) -> Op {
        self.op
    }

    /// The rules of the exchange.
    #[inline]
    pub(super) fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// The number of sampling requests that the call is nested in.
    #[inline]
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// The request of a held call, and the time limits that start when it is released.
    pub(super) fn request(&self) -> Option<(&Outgoing, CallTimeouts)> {
        match &self.state {
            State::Held(held) => Some((&held.request, held.timeouts)),
            State::InFlight { .. } | State::Asked(_) | State::GivenUp { .. } => None,
        }
    }

    /// Held -> InFlight, under the rules that the handshake has chosen.
    pub(super) fn release(&mut self, request: &Outgoing, ticket: Ticket, rules: &'static Rules, clocks: Clocks) {
        self.rules = rules;
        self.repeatable = Repeatable::of(request, rules);
        self.state = State::InFlight { ticket, observed: self.is_observed(), clocks };
    }

    /// A call that is continued ([`crate::Session::resume_input`]). The peer has sent `rounds` rounds for it, of which `round` is the last.
    /// `answers` are the answers to `round` so far.
    #[allow(clippy::too_many_arguments, reason = "those of a call, and those of its round")]
    pub(super) fn asked(
        id: OutboundId,
        request: &Outgoing,
        depth: u8,
        rules: &'static Rules,
        clocks: Clocks,
        observed: bool,
        round: RoundOfPeer,
        rounds: u8,
        answers: Vec<(Text, Json)>,
    ) -> Self {
        let asked = Asked { answers, ..Asked::new(observed, clocks, round) };
        let repeatable = Some(Box::new(Repeatable { request: request.clone(), rounds }));
        Self { repeatable, ..Self::new(id, request.op, depth, rules, State::Asked(Box::new(asked))) }
    }

    /// InFlight -> Asked: the peer asks for input, or only for a retry.
    pub(super) fn ask(&mut self, round: RoundOfPeer) {
        if let State::InFlight { observed, clocks, .. } = &self.state {
            self.state = State::Asked(Box::new(Asked::new(*observed, clocks.clone(), round)));
        }
        if let Some(repeatable) = &mut self.repeatable {
            repeatable.rounds = repeatable.rounds.saturating_add(1);
        }
    }

    /// Asked -> Asked: takes the answer to an input request. Returns `true` if it was the last answer that was missing.
    pub(super) fn answer(&mut self, key: InputKey, answer: Json) -> bool {
        let State::Asked(asked) = &mut self.state else { return false };
        let Some(at) = asked.inputs.iter().position(|(input, _)| *input == key) else { return false };
        let (_, name) = asked.inputs.remove(at);
        asked.answers.push((name, answer));
        asked.inputs.is_empty()
    }

    /// The call as a value to be kept, if the peer has sent a round and the retry was not sent yet.
    pub(super) fn pending(&self) -> Option<PendingInput> {
        let (State::Asked(asked), Some(repeatable)) = (&self.state, &self.repeatable) else { return None };
        let answers = asked.answers.iter().map(|(name, answer)| (name.to_string(), answer.clone())).collect();
        let (round, rounds, dialect) = (asked.round.clone(), repeatable.rounds, self.rules.dialect);
        Some(PendingInput::new(dialect, &repeatable.request, self.depth, asked.observed, rounds, round, answers))
    }

    /// The parts of the retry; `None` while an answer is missing, and in other states than `Asked`.
    pub(super) fn retry(&self) -> Option<RetryParts<'_>> {
        let (State::Asked(asked), Some(repeatable)) = (&self.state, &self.repeatable) else { return None };
        let parts = RetryParts { request: &repeatable.request, answers: &asked.answers, state: asked.state.as_ref() };
        asked.inputs.is_empty().then_some(parts)
    }

    /// Asked -> InFlight: the retry has the number `exchange`.
    pub(super) fn restart(&mut self, exchange: ExchangeId, ticket: Ticket) {
        let State::Asked(asked) = &self.state else { return };
        let (observed, clocks) = (asked.observed, asked.clocks.clone());
        self.state = State::InFlight { ticket, observed, clocks };
        self.exchange = exchange;
        if let Some(caller_progress) = &mut self.caller_progress {
            caller_progress.watcher.begin_exchange();
        }
    }

    /// Returns `true` if the retry is due, and no time limit of the call has passed.
    pub(super) fn is_retry_due(&self, now: Instant) -> bool {
        let State::Asked(asked) = &self.state else { return false };
        asked.again_at.is_some_and(|at| at <= now) && asked.clocks.expired(now).is_none()
    }

    /// The number of rounds of input requests so far.
    pub(super) fn rounds(&self) -> u8 {
        self.repeatable.as_ref().map_or(0, |repeatable| repeatable.rounds)
    }

    /// InFlight -> GivenUp. No frame of the peer changes the outcome any longer.
    pub(super) fn give_up(&mut self, until: Instant) {
        if let State::InFlight { .. } = self.state {
            self.state = State::GivenUp { until };
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// Returns `true` for a cancelled call that waits for the reply of the peer (Tesseron).
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp { .. })
    }

    /// Returns `true` if the peer was or will be asked for progress or, on Tesseron, may report it unasked. `false` once the call is given
    /// up.
    pub(super) fn is_observed(&self) -> bool {
        match &self.state {
            State::Held(held) => held.observed,
            State::InFlight { observed, .. } => *observed,
            State::Asked(asked) => asked.observed,
            State::GivenUp { .. } => false,
        }
    }

    /// The ticket of the request in the outbox; `None` in any state but `InFlight`.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.state {
            State::InFlight { ticket, .. } => Some(ticket),
            State::Held(_) | State::Asked(_) | State::GivenUp { .. } => None,
        }
    }

    /// The size of the request in bytes while the call is held; 0 afterwards.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.state {
            State::Held(held) => held.request.size(),
            State::InFlight { .. } | State::Asked(_) | State::GivenUp { .. } => 0,
        }
    }

    fn caller_progress(&mut self) -> &mut CallerProgress {
        self.caller_progress.get_or_insert_default()
    }

    /// InFlight -> InFlight: accepts an update of progress or drops it. An accepted update that counts as activity
    /// ([`UpdateVerdict::Accepted`]) restarts the idle clock, if [`CallTimeouts::reset_on_progress`] is set. Within `quiet` after a
    /// reported violation, further ones are only counted.
    pub(super) fn judge(
        &mut self,
        progress: Progress,
        partial: Option<Json>,
        now: Instant,
        accepts_equal: bool,
        quiet: Duration,
    ) -> UpdateVerdict {
        let rules = self.rules;
        let verdict = self.caller_progress().watcher.judge(progress, now, rules, accepts_equal, quiet);
        if let UpdateVerdict::Accepted { is_activity, .. } = verdict {
            self.note_partial(partial);
            if let State::InFlight { clocks, .. } = &mut self.state
                && is_activity
                && clocks.reset_on_progress
            {
                clocks.activity = now;
            }
        }
        verdict
    }

    /// Stops the idle clock. Called when the peer has acknowledged a subscription.
    pub(super) fn stop_idle_clock(&mut self) {
        if let State::InFlight { clocks, .. } = &mut self.state {
            clocks.idle = None;
        }
    }

    /// Stores a newer partial result, if there is one, in place of the last one.
    pub(super) fn note_partial(&mut self, partial: Option<Json>) {
        if partial.is_some() {
            self.caller_progress().partial = partial;
        }
    }

    /// Opens an input request. The first open input request pauses the clocks.
    pub(super) fn open_inbound_input(&mut self, key: InputKey, now: Instant) {
        let caller_progress = self.caller_progress();
        if caller_progress.open_inputs.is_empty() {
            caller_progress.asked_since = now;
        }
        caller_progress.open_inputs.push(key);
    }

    /// Closes an input request. If no other is open, the clocks resume.
    pub(super) fn close_inbound_input(&mut self, key: InputKey, now: Instant) {
        let caller_progress = self.caller_progress();
        caller_progress.open_inputs.retain(|open| *open != key);
        let (is_last, since) = (caller_progress.open_inputs.is_empty(), caller_progress.asked_since);
        match &mut self.state {
            State::InFlight { clocks, .. } if is_last => clocks.resume(since, now),
            State::Asked(asked) if is_last => asked.clocks.resume(since, now),
            _ => {}
        }
    }

    /// Returns `true` if an input request of the peer is open.
    fn has_open_input(&self) -> bool {
        self.caller_progress.as_ref().is_some_and(|caller_progress| !caller_progress.open_inputs.is_empty())
    }

    pub(super) fn take_open_inputs(&mut self) -> Vec<InputKey> {
        self.caller_progress.as_mut().map(|caller_progress| core::mem::take(&mut caller_progress.open_inputs)).unwrap_or_default()
    }

    /// Takes everything that arrived before the response.
    pub(super) fn take_caller_progress(&mut self) -> Option<Box<CallerProgress>> {
        self.caller_progress.take()
    }

    /// The deadline of the current state, and the time limit that ends the call then. At the end of the cancel grace, and when a retry is
    /// due, no time limit ends the call, and the [`TimeoutKind`] is not used.
    pub(super) fn deadline(&self) -> Option<(Instant, TimeoutKind)> {
        match &self.state {
            State::GivenUp { until } => Some((*until, TimeoutKind::MaxTotal)),
            State::InFlight { clocks, .. } if !self.has_open_input() => clocks.deadline(),
            State::Asked(asked) if !self.has_open_input() => match (asked.again_at, asked.clocks.deadline()) {
                (Some(at), None) => Some((at, TimeoutKind::MaxTotal)),
                (Some(at), Some((limit, kind))) => Some((at.min(limit), kind)),
                (None, limit) => limit,
            },
            State::Held(_) | State::InFlight { .. } | State::Asked(_) => None,
        }
    }

    /// The step to take for the request if the call ends now.
    pub(super) fn withdrawal(&self) -> Withdrawal {
        match self.state {
            State::Held(_) | State::Asked(_) | State::GivenUp { .. } => Withdrawal::Nothing,
            State::InFlight { ticket, .. } => Withdrawal::Request(ticket),
        }
    }

    // ---- Deadline ----

    /// Arms the deadline of the current state.
    #[inline]
    pub(super) fn arm(&mut self, id: OutboundId, timers: &mut Timers) {
        let at = self.deadline().map(|(at, _)| at);
        timers.set(TimerKey::OutboundCall(id), &mut self.armed, at);
    }

    #[inline]
    pub(super) fn disarm(&mut self, id: OutboundId, timers: &mut Timers) {
        timers.set(TimerKey::OutboundCall(id), &mut self.armed, None);
    }

    /// Records that the deadline was removed from the timers.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }
}

/// The transition table of the machine, recorded from a real session, which is brought into every state and given every input.
/// `docs/transitions/README.md` shows it as a diagram.
#[cfg(test)]
pub(super) mod transitions {
    use core::time::Duration;
    use std::fmt::Write as _;
    use std::string::{String, ToString as _};
    use std::vec::Vec;
    use std::{format, fs, println};

    use super::State;
    use crate::dialect::tesseron::{ClaimState, GatewayConfig, Welcome};
    use crate::session::{Close, Event, Invalid, OutboundId, Outcome, Session};
    use crate::{CancelReason, Capabilities, Config, Identity, InputResponse, Instant, Invoke, Json, Op, RpcError, TransportEnd};

    /// A session with one call. On MCP the call and its progress token have the id 2; at a Tesseron gateway the call has the id 1.
    struct Caller {
        session: Session,
        call: OutboundId,
        now: Instant,
    }

    const STATES: [&str; 5] = ["Held", "Written", "InFlight", "Asked", "gone"];

    /// The name of the state in the tables. There, `InFlight` is *Written* while the request was not polled, and *Asked* while an input
    /// request is open. The state [`State::Asked`] is *Delayed* if the round has no input requests, and otherwise *AskedByResult*. The
    /// `match` has no wildcard, so that a new state must be named here and appear in the table.
    fn state(caller: &Caller) -> &'static str {
        match caller.session.outbound_calls.get(&caller.call) {
            None => "gone",
            Some(call) => match &call.state {
                State::Held(_) => "Held",
                State::InFlight { ticket, .. } if caller.session.outbox.is_unpolled(*ticket) => "Written",
                State::InFlight { .. } if call.has_open_input() => "Asked",
                State::InFlight { .. } => "InFlight",
                State::Asked(asked) if asked.again_at.is_some() => "Delayed",
                State::Asked(_) => "AskedByResult",
                State::GivenUp { .. } => "GivenUp",
            },
        }
    }

    const GREETING: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    const INPUT_REQUEST: &str = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;

    fn in_state(name: &str) -> Caller {
        let mut config = Config::mcp_client(Identity::new("client", "1"));
        config.capabilities.roots = true;
        config.timeouts.handshake = None;
        let now = Instant::from_millis(1);
        let mut session = Session::new(config, Instant::ZERO);
        let call = session.invoke(Invoke::new(Op::CallTool, Json::empty_object()), now).unwrap();
        let mut caller = Caller { session, call, now };
        let steps: &[Input] = match name {
            "Held" => &[],
            "Written" => &[READY],
            "InFlight" => &[READY, POLLED],
            "Asked" => &[READY, POLLED, ASKED],
            _ => &[READY, POLLED, |caller| caller.frame(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#)],
        };
        let _ = caller.session.poll_transmit();
        caller.brought_to(name, steps)
    }

    type Input = fn(&mut Caller);

    const READY: Input = |caller| {
        caller.frame(GREETING);
    };
    const POLLED: Input = |caller| while caller.session.poll_transmit().is_some() {};
    const ASKED: Input = |caller| caller.frame(INPUT_REQUEST);

    const INPUTS: [(&str, Input); 19] = [
        ("the peer is ready", READY),
        ("the request is polled", POLLED),
        ("progress", |caller| caller.frame(&progress(1))),
        ("the same progress twice", |caller| {
            caller.frame(&progress(1));
            caller.frame(&progress(1));
        }),
        ("an input request of the peer", ASKED),
        ("our answer to the input request", |caller| {
            let open = caller.session.inbound_inputs.keys().next().copied();
            if let Some(key) = open {
                caller.session.provide_input(key, InputResponse::Refused(RpcError::internal("no")), caller.now).unwrap();
            }
        }),
        ("the peer withdraws the input request", |caller| {
            caller.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}"#);
        }),
        ("a result", |caller| caller.frame(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#)),
        ("an error", |caller| caller.frame(r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}"#)),
        ("a broken answer", |caller| caller.frame(r#"{"jsonrpc":"2.0","id":2,"result":1}"#)),
        ("cancel", |caller| {
            let _ = caller.session.cancel(caller.call, None, caller.now);
        }),
        ("nothing for 59 s", |caller| caller.wait(59)),
        ("nothing for 60 s", |caller| caller.wait(60)),
        ("600 s in all", |caller| caller.wait(600)),
        ("the peer ends its side", |caller| caller.session.handle_end(TransportEnd::Eof, caller.now)),
        ("the transport fails", |caller| caller.session.handle_end(TransportEnd::Failed, caller.now)),
        ("close, with a grace of 5 s", |caller| {
            caller.session.close(Close::Graceful { grace: Duration::from_secs(5) }, caller.now);
        }),
        ("close, and the grace is over", |caller| {
            caller.session.close(Close::Graceful { grace: Duration::from_secs(5) }, caller.now);
            caller.wait(5);
        }),
        ("close now", |caller| caller.session.close(Close::Now, caller.now)),
    ];

    fn progress(value: u8) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":2,"progress":{value}}}}}"#)
    }

    impl Caller {
        /// Takes the steps, discards their events and (except for the state `Written`) their frames, and checks that the call is in the
        /// state `name`.
        fn brought_to(mut self, name: &str, steps: &[Input]) -> Self {
            for step in steps {
                step(&mut self);
            }
            while self.session.poll_event().is_some() {}
            if name != "Written" {
                while self.session.poll_transmit().is_some() {}
            }
            assert_eq!(state(&self), name);
            self
        }

        fn frame(&mut self, text: &str) {
            self.session.handle_frame(text.to_string().into(), crate::Lane::CHANNEL, self.now).unwrap();
        }

        fn wait(&mut self, seconds: u64) {
            self.now = self.now.saturating_add(Duration::from_secs(seconds));
            self.session.handle_timeout(self.now);
        }
    }

    /// All events and frames that wait to be polled.
    pub(in crate::session) fn output(session: &mut Session) -> (String, String) {
        let (mut events, mut sent) = (Vec::new(), Vec::new());
        while let Some(event) = session.poll_event() {
            events.push(name_event(&event));
        }
        while let Some(out) = session.poll_transmit() {
            sent.push(name_frame(&out.frame));
        }
        // `Event::Closed` may come only after the last frame was polled.
        while let Some(event) = session.poll_event() {
            events.push(name_event(&event));
        }
        (events.join(", "), sent.join(", "))
    }

    fn name_event(event: &Event) -> String {
        match event {
            Event::Done { outcome, .. } => match outcome {
                Outcome::Result(_) => "Done: Result".into(),
                Outcome::Error(_) => "Done: Error".into(),
                Outcome::Invalid(Invalid::Unreadable(frame)) => format!("Done: Unreadable({:?})", frame.rule),
                other => format!("Done: {other:?}"),
            },
            Event::Cancelled { why: CancelReason::Peer(_), .. } => "Cancelled: Peer".into(),
            Event::Cancelled { why, .. } => format!("Cancelled: {why:?}"),
            Event::Violation(rule) => format!("Violation: {rule:?}"),
            Event::Closed(why) => format!("Closed: {why:?}"),
            other => {
                let text = format!("{other:?}");
                text.split([' ', '(', '{']).next().unwrap_or_default().to_string()
            }
        }
    }

    fn name_frame(frame: &[u8]) -> String {
        let frame: serde_json::Value = serde_json::from_slice(frame).unwrap();
        match (frame["method"].as_str(), &frame["error"]["code"]) {
            (Some(method), _) => method.to_string(),
            (None, serde_json::Value::Null) => "result".into(),
            (None, code) => format!("error {code}"),
        }
    }

    /// Compares a table with a file in `docs/transitions`. If `UPDATE_GOLDEN` is set, writes the file first.
    pub(in crate::session) fn compare(file: &str, title: &str, rows: &[[String; 5]]) {
        let head = ["state", "input", "next", "events", "sent"];
        let width =
            |column: usize| rows.iter().map(|row| row[column].len()).chain([head[column].len()]).max().unwrap_or_default() + 2;
        let mut text = format!("{title}\n\n");
        for row in [head.map(str::to_string)].iter().chain(rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let cell = if cell.is_empty() { "-" } else { cell };
                write!(line, "{cell:<0$}", width(column)).unwrap();
            }
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
        let path = format!("{}/../docs/transitions/{file}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        if golden != text {
            println!("{text}");
        }
        assert!(golden == text, "the machine is not the one in docs/transitions/{file}; UPDATE_GOLDEN=1 writes what it is now");
    }

    fn table(states: &[&str], inputs: &[(&str, Input)], in_state: impl Fn(&str) -> Caller) -> Vec<[String; 5]> {
        let mut rows = Vec::new();
        for from in states {
            for (name, input) in inputs {
                let mut caller = in_state(from);
                input(&mut caller);
                let next = state(&caller);
                let (events, sent) = output(&mut caller.session);
                rows.push([(*from).into(), (*name).into(), next.into(), events, sent]);
            }
        }
        rows
    }

    #[test]
    fn the_transitions_of_an_outbound_call_are_those_in_the_docs() {
        compare("call.txt", "A call of ours: every state, every input.", &table(&STATES, &INPUTS, in_state));
    }

    /// Brings a call into a state, in a revision without a handshake, in which the peer asks for input by results. The call has the id 2.
    fn over_rounds(name: &str) -> Caller {
        const DISCOVERED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}}"#;
        let mut config = Config::mcp_client(Identity::new("client", "1"));
        config.capabilities.roots = true;
        config.era = crate::mcp::Era::Modern;
        let now = Instant::from_millis(1);
        let mut session = Session::new(config, Instant::ZERO);
        while session.poll_transmit().is_some() {}
        session.handle_frame(DISCOVERED.into(), crate::Lane::CHANNEL, now).unwrap();
        let call = session.invoke(Invoke::new(Op::CallTool, Json::parse(r#"{"name":"t"}"#).unwrap()), now).unwrap();
        let caller = Caller { session, call, now };
        let steps: &[Input] = match name {
            "Written" => &[],
            "InFlight" => &[POLLED],
            "AskedByResult" => &[POLLED, ROUND],
            "Delayed" => &[POLLED, DELAY],
            _ => &[POLLED, |caller| caller.frame(COMPLETE)],
        };
        caller.brought_to(name, steps)
    }

    const COMPLETE: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}"#;
    const ROUND: Input = |caller| caller.asks(r#""inputRequests":{"a":{"method":"roots/list"}},"requestState":"s""#);
    const DELAY: Input = |caller| caller.asks(r#""requestState":"s""#);

    const OVER_ROUNDS: [(&str, Input); 18] = [
        ("the request is polled", POLLED),
        ("progress", |caller| caller.frame(&progress(1))),
        ("a result", |caller| caller.frame(COMPLETE)),
        ("an error", |caller| caller.frame(r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no"}}"#)),
        ("a round", ROUND),
        ("a round with a state alone", DELAY),
        ("a round with nothing", |caller| caller.asks(r#""_meta":{}"#)),
        ("our answer to the round", |caller| caller.answer(InputResponse::Roots(Json::parse("[]").unwrap()))),
        ("our refusal to answer the round", |caller| caller.answer(InputResponse::Refused(RpcError::internal("no")))),
        ("50 ms", |caller| {
            caller.now = caller.now.saturating_add(Duration::from_millis(50));
            caller.session.handle_timeout(caller.now);
        }),
        ("cancel", CANCEL),
        ("nothing for 60 s", |caller| caller.wait(60)),
        ("600 s in all", |caller| caller.wait(600)),
        ("the exchange is lost", |caller| {
            let gone = crate::Gone::Exchange(crate::ExchangeId::from_number(2));
            let _ = caller.session.handle_gone(gone, caller.now);
        }),
        ("the peer ends its side", |caller| caller.session.handle_end(TransportEnd::Eof, caller.now)),
        ("the transport fails", |caller| caller.session.handle_end(TransportEnd::Failed, caller.now)),
        ("close, and the grace is over", |caller| {
            caller.session.close(Close::Graceful { grace: Duration::from_secs(5) }, caller.now);
            caller.wait(5);
        }),
        ("close now", |caller| caller.session.close(Close::Now, caller.now)),
    ];

    impl Caller {
        fn asks(&mut self, members: &str) {
            self.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"resultType":"input_required",{members}}}}}"#));
        }

        fn answer(&mut self, answer: InputResponse) {
            let open = self.session.inbound_inputs.keys().next().copied();
            if let Some(key) = open {
                self.session.provide_input(key, answer, self.now).unwrap();
            }
        }
    }

    #[test]
    fn the_transitions_of_a_call_over_rounds_are_those_in_the_docs() {
        let states = ["Written", "InFlight", "AskedByResult", "Delayed", "gone"];
        let title = "A call of ours whose peer asks by results (MCP 2026-07-28): every state, every input.";
        compare("call-over-rounds.txt", title, &table(&states, &OVER_ROUNDS, over_rounds));
    }

    /// Brings a call of a Tesseron gateway into a state. The peer must answer a cancelled call within 5 s. The call has the id 1.
    fn at_a_gateway(name: &str) -> Caller {
        const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tesseron/hello","params":{"protocolVersion":"1.2.0","app":{"id":"a","name":"A","origin":"unknown"},"actions":[],"resources":[],"capabilities":{}}}"#;
        let welcome = Welcome { session_id: "s".into(), resume_token: None, claim_state: ClaimState::Bound };
        let mut config = Config::tesseron_gateway(GatewayConfig::welcoming(welcome));
        config.timeouts.call.max_total = Some(Duration::from_secs(600));
        config.timeouts.cancel_grace = Duration::from_secs(5);
        let now = Instant::from_millis(1);
        let mut session = Session::new(config, Instant::ZERO);
        session.handle_frame(HELLO.into(), crate::Lane::CHANNEL, now).unwrap();
        let agent = Capabilities { sampling: true, ..Capabilities::default() };
        session.claim(Identity::new("agent", ""), agent, 0, now).unwrap();
        while session.poll_transmit().is_some() {}
        let call = session.invoke(Invoke::new(Op::CallTool, Json::empty_object()), now).unwrap();
        let caller = Caller { session, call, now };
        let steps: &[Input] = match name {
            "Written" => &[],
            "InFlight" => &[POLLED],
            "Asked" => &[POLLED, SAMPLED],
            "GivenUp" => &[POLLED, CANCEL],
            _ => &[POLLED, |caller| caller.frame(OUTPUT)],
        };
        caller.brought_to(name, steps)
    }

    const OUTPUT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"invocationId":"inv_1","output":1}}"#;
    const SAMPLED: Input = |caller| {
        caller.frame(r#"{"jsonrpc":"2.0","id":"q","method":"sampling/request","params":{"invocationId":"inv_1","prompt":"?"}}"#);
    };
    const CANCEL: Input = |caller| {
        let _ = caller.session.cancel(caller.call, None, caller.now);
    };

    const AT_A_GATEWAY: [(&str, Input); 15] = [
        ("the request is polled", POLLED),
        ("progress", |caller| {
            caller.frame(r#"{"jsonrpc":"2.0","method":"actions/progress","params":{"invocationId":"inv_1","percent":1}}"#);
        }),
        ("an input request of the peer", SAMPLED),
        ("a result", |caller| caller.frame(OUTPUT)),
        ("the answer to a cancel", |caller| {
            caller.frame(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"cancelled"}}"#)
        }),
        ("a broken answer", |caller| caller.frame(r#"{"jsonrpc":"2.0","id":1,"result":1}"#)),
        ("cancel", CANCEL),
        ("5 s", |caller| caller.wait(5)),
        ("600 s in all", |caller| caller.wait(600)),
        ("the peer ends its side", |caller| caller.session.handle_end(TransportEnd::Eof, caller.now)),
        ("the transport fails", |caller| caller.session.handle_end(TransportEnd::Failed, caller.now)),
        ("close, with a grace of 4 s", |caller| {
            caller.session.close(Close::Graceful { grace: Duration::from_secs(4) }, caller.now);
        }),
        ("close, and the grace is over", |caller| {
            caller.session.close(Close::Graceful { grace: Duration::from_secs(4) }, caller.now);
            caller.wait(4);
        }),
        ("close now", |caller| caller.session.close(Close::Now, caller.now)),
        ("the app is claimed once more", |caller| {
            caller.session.claim(Identity::new("other", ""), Capabilities::default(), 1, caller.now).unwrap();
        }),
    ];

    #[test]
    fn the_transitions_of_a_call_of_a_gateway_are_those_in_the_docs() {
        let states = ["Written", "InFlight", "Asked", "GivenUp", "gone"];
        let title = "A call of a Tesseron gateway, which waits 5 s for the answer to a cancel: every state, every input.";
        compare("call-of-a-gateway.txt", title, &table(&states, &AT_A_GATEWAY, at_a_gateway));
    }
}
