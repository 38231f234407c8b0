//! The session: one end of one channel to one peer, as a pure state machine.
//!
//! `call` and `serve` are the two machines of an invocation, `input` the questions that nest in them, `handshake` the phase of the
//! channel, `progress` and `depth` the rules of two subjects, `outbox` and `timers` what leaves and when. `receive` turns messages into
//! transitions, `settle` ends things. This file holds the verbs.

mod call;
mod depth;
mod ending;
mod event;
mod handshake;
mod input;
mod line;
mod outbox;
mod overload;
mod peer_ids;
mod progress;
mod receive;
mod rising;
mod serve;
mod settle;
mod stats;
mod timers;
mod verbs;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
#[cfg(feature = "endpoint")]
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::config::Config;
use crate::dialect::tesseron::{Standing, Welcome};
use crate::dialect::{
    Answer, Ask, AskUnfit, Capabilities, Change, Confirmation, Dialect, Identity, Level, LogRecord, Notice, PeerInfo, Progress,
    Reply, Rules, Unfit,
};
use crate::error::{RpcError, Violation};
use crate::json::Json;
use crate::lines::LineEncoder;
use crate::table::Table;
use crate::time::Instant;
use crate::wire::WireId;

use call::{Call, Clocks};
use ending::Ending;
pub use event::{AlarmId, Clock, CloseReason, Event, InboundId, InputFailed, InputKey, Invalid, OutboundId, Outcome, Why};
use handshake::Handshake;
use input::{Asked, Question};
use line::Line;
use outbox::{Class, Outbox};
use overload::Overload;
use peer_ids::PeerIds;
use progress::{Next, Opens, Reporter};
use serve::{Ended, Serve, Taken};
pub use stats::Stats;
use timers::{TimerKey, Timers};
pub use verbs::{
    AskError, CheckpointError, Close, Full, Invoke, InvokeError, Logged, NotLive, ProgressError, Refused, Reported, Route,
    ServeOptions, TooManyAlarms, Transmit, TransportEnd,
};

/// One end of one channel to one peer.
///
/// It is fed frames and time, and gives frames, events and one deadline. It owns no socket, clock, task or lock.
///
/// * `handle_*` brings what happened outside: [`handle_frame`](Self::handle_frame), [`handle_end`](Self::handle_end),
///   [`handle_timeout`](Self::handle_timeout).
/// * As a caller: [`invoke`](Self::invoke), [`cancel`](Self::cancel), [`provide_input`](Self::provide_input).
/// * As a callee: [`progress`](Self::progress), [`checkpoint`](Self::checkpoint), [`request_input`](Self::request_input),
///   [`respond`](Self::respond), [`configure`](Self::configure).
/// * As a gateway of Tesseron: [`welcome`](Self::welcome), [`claim`](Self::claim).
/// * As either: [`log`](Self::log), [`notify`](Self::notify), [`set_alarm`](Self::set_alarm), [`close`](Self::close).
/// * `poll_*` takes what there is to do: [`poll_transmit`](Self::poll_transmit), [`poll_event`](Self::poll_event),
///   [`poll_timeout`](Self::poll_timeout). In any order, at any time; `None` until something happens again.
///
/// Two verbs in a row are always legal: there is no duty to drain in between. A clone is an independent session in the same state: for
/// whoever searches through states, not for two ends of one channel.
///
/// # What always holds
///
/// | | |
/// |---|---|
/// | G1 | Every [`OutboundId`] yields exactly one [`Event::Done`], at the latest just before [`Event::Closed`]. |
/// | G2 | At most one response leaves for each exchange of the peer, at most one cancel for each of ours, and nothing after either. |
/// | G3 | The value of progress of one invocation strictly increases on the wire, after its request and before its response or cancel. Updates without a value, and those of [`crate::ProgressPolicy::repeat_value_for_message`], are excepted. |
/// | G4 | After [`Event::Closed`], which comes once and last, there is no frame, no event and no deadline. |
/// | G5 | Queues, tables and memories never exceed [`crate::Limits`]; nothing grows with the age of a session. |
/// | G6 | No input, however hostile, panics or recurses without bound. |
/// | G7 | [`poll_timeout`](Self::poll_timeout) is `None` or later than the greatest `now` given to [`handle_timeout`](Self::handle_timeout). A verb whose deadline would not lie after its `now` settles at once. |
/// | G8 | Output is ready when a verb returns. Only deadlines wait for [`handle_timeout`](Self::handle_timeout). |
/// | G9 | Only [`handle_timeout`](Self::handle_timeout) expires anything: frames and verbs handled before it win, whatever their `now`. |
/// | G10 | Equal operations, polls included, give byte-equal output. Nothing depends on hashing, addresses or a clock. |
/// | G11 | Ids and tokens are typed: `1` is not `"1"`. The ids of the two directions never meet. |
/// | G12 | Sampling never nests deeper than [`crate::DepthPolicy::max`], on either side, as far as the wire or the owner names parents. |
/// | G13 | Payload bytes cross unchanged, except CR and LF between tokens, which become spaces. A repeated member of the envelope or a repeated `_meta` is refused. |
///
/// # Example
///
/// ```
/// use protocol_core::{Config, Event, Identity, Instant, Json, Op, Outcome, Reply, Session, ToolOutput};
/// use protocol_core::Invoke;
///
/// let now = Instant::ZERO;
/// let mut client = Session::new(Config::mcp_client(Identity::new("client", "1")), now);
/// let mut server = Session::new(Config::mcp_server(Identity::new("server", "1")), now);
/// let call = client.invoke(Invoke::new(Op::CallTool, Json::parse(r#"{"name":"hello"}"#)?), now)?;
///
/// let mut outcome = None;
/// while outcome.is_none() {
///     while let Some(out) = client.poll_transmit() {
///         server.handle_frame(out.frame, now)?;
///     }
///     while let Some(event) = server.poll_event() {
///         if let Event::Request { id, .. } = event {
///             server.respond(id, Reply::Tool(ToolOutput::text("hello")), now)?;
///         }
///     }
///     while let Some(out) = server.poll_transmit() {
///         client.handle_frame(out.frame, now)?;
///     }
///     while let Some(event) = client.poll_event() {
///         if let Event::Done { id, outcome: how, .. } = event {
///             assert_eq!(id, call);
///             outcome = Some(how);
///         }
///     }
/// }
/// assert_eq!(outcome, Some(Outcome::Result(Json::parse(r#"{"content":[{"type":"text","text":"hello"}]}"#)?)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    config: Config,
    dialect: Dialect,
    /// What differs between protocols, read off the dialect once.
    rules: Rules,
    /// The greatest `now` seen.
    now: Instant,
    handshake: Handshake,
    peer: Option<Box<PeerInfo>>,
    /// What the peer told of itself before it answered our greeting.
    change: Option<Box<Change>>,
    ending: Ending,
    overload: Overload,

    /// The number of the next id of ours, of whatever kind: none is used twice.
    next: u64,
    calls: Table<OutboundId, Call>,
    /// Calls whose clocks have not started, and when they would have.
    #[cfg(feature = "endpoint")]
    untimed: Vec<(OutboundId, Instant)>,
    /// Bytes of calls that wait for the handshake.
    held_bytes: usize,
    /// The peer's exchanges that wait for a response.
    peer_ids: PeerIds,
    /// What it calls the invocations that it can name, where their tokens are names. A part of `serves`.
    names: BTreeMap<WireId, InboundId>,
    serves: Table<InboundId, Serve>,
    /// How many of them were cancelled and have a handler that has not ended.
    orphans: usize,
    /// Our questions.
    questions: BTreeMap<InputKey, Question>,
    /// The peer's questions.
    asked: BTreeMap<InputKey, Asked>,
    alarms: BTreeMap<AlarmId, Option<Instant>>,

    /// Invocations whose progress waits for what all share.
    line: Line,
    /// The least severe log record that the peer wants.
    log_level: Level,

    outbox: Outbox,
    timers: Timers,
    events: VecDeque<Event>,
    /// How many of the events end a call or a question; see [`Self::waiting`].
    settled_events: usize,
    /// How many of the events are alarms.
    rung_alarms: usize,
    /// Until when progress that belongs to no call is only counted.
    quiet_until: Instant,
    stats: Stats,
}

/// What a response to an exchange of ours ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Greeting,
    Call(OutboundId),
    Question(InputKey),
}

impl Session {
    /// A session that begins at `now`. An end that speaks first has its greeting ready to be polled.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let dialect = Dialect::new(&config);
        let mut session = Self {
            rules: dialect.rules(),
            dialect,
            now,
            handshake: Handshake::new(),
            peer: None,
            change: None,
            ending: Ending::new(),
            overload: Overload::new(),
            next: config.first_id(),
            calls: Table::new(),
            #[cfg(feature = "endpoint")]
            untimed: Vec::new(),
            held_bytes: 0,
            peer_ids: PeerIds::new(config.limits.tombstones),
            names: BTreeMap::new(),
            serves: Table::new(),
            orphans: 0,
            questions: BTreeMap::new(),
            asked: BTreeMap::new(),
            alarms: BTreeMap::new(),
            line: Line::new(config.progress.session_window),
            log_level: config.log_level,
            outbox: Outbox::new(config.limits.output_bytes),
            timers: Timers::new(),
            events: VecDeque::new(),
            settled_events: 0,
            rung_alarms: 0,
            quiet_until: now,
            stats: Stats::default(),
            config,
        };
        session.begin();
        session
    }

    fn begin(&mut self) {
        let deadline = self.config.timeouts.handshake.map(|span| self.now.saturating_add(span));
        if self.rules.opens {
            let exchange = self.number();
            let frame = self.dialect.write_greeting(self.outbox.frames(), exchange);
            self.outbox.push(Class::Bound, frame);
            self.handshake.open();
        }
        match deadline {
            Some(at) if at <= self.now => self.fail(CloseReason::HandshakeTimeout),
            at => self.handshake.arm(at, &mut self.timers),
        }
    }

    // ---- What happened outside ----

    /// Takes a frame that arrived: one message (or, on MCP 2025-03-26, one batch), without its line feed. Faults of the peer become
    /// [`Event::Violation`]. After the session has closed the frame is dropped.
    ///
    /// # Errors
    /// [`Full`] hands the frame back while [`wants_input`](Self::wants_input) is false. Nothing has changed.
    pub fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        if self.is_closed() {
            return Ok(());
        }
        if !self.wants_input() {
            return Err(Full(frame));
        }
        self.advance(now);
        self.receive(frame);
        self.tidy();
        Ok(())
    }

    /// The transport has ended. [`TransportEnd::Eof`]: calls of ours are lost at once; what was read before is still answered within
    /// [`crate::Timeouts::close_grace`]. [`TransportEnd::Failed`]: everything ends at once and what waits is discarded. Later ends of a
    /// session that is over change nothing.
    pub fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.advance(now);
        if self.is_closed() {
            return;
        }
        match end {
            TransportEnd::Eof => self.end_of_input(),
            TransportEnd::Failed => self.fail(CloseReason::Failed),
        }
        self.tidy();
    }

    /// Lets everything happen whose time has come by `now`. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        while let Some(key) = self.timers.take_due(self.now) {
            self.expire(key);
        }
        self.tidy();
    }

    // ---- As a caller ----

    /// Starts a call. Both its clocks start now, also while it is held for the handshake. It ends with exactly one
    /// [`Event::Done`] (G1).
    ///
    /// # Errors
    /// [`InvokeError`] says why it was not made, and hands it back. Nothing has changed.
    pub fn invoke(&mut self, call: Invoke, now: Instant) -> Result<OutboundId, InvokeError> {
        self.advance(now);
        self.make(call, true)
    }

    /// The same for whoever did not look at the clock: both clocks of the call start at the next [`start_clocks`](Self::start_clocks), which
    /// has to come before the next frame.
    #[cfg(feature = "endpoint")]
    pub(crate) fn invoke_untimed(&mut self, call: Invoke) -> Result<OutboundId, InvokeError> {
        let id = self.make(call, false)?;
        if self.untimed.len() > self.calls.len().saturating_mul(2).saturating_add(16) {
            self.forget_untimed();
        }
        self.untimed.push((id, self.now));
        Ok(id)
    }

    /// Calls that have ended before their clocks started are forgotten once they are most.
    #[cfg(feature = "endpoint")]
    #[cold]
    fn forget_untimed(&mut self) {
        self.untimed.retain(|(id, _)| self.calls.get(id).is_some());
    }

    /// Whether there are calls of ours on their way.
    #[cfg(feature = "endpoint")]
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether there are calls whose clocks have not started.
    #[cfg(feature = "endpoint")]
    pub(crate) fn has_clocks_to_start(&self) -> bool {
        !self.untimed.is_empty()
    }

    /// Starts the clocks of calls that were made without a look at one. It must be `now` since all of them were made.
    #[cfg(feature = "endpoint")]
    #[inline]
    pub(crate) fn start_clocks(&mut self, now: Instant) {
        if self.has_clocks_to_start() {
            self.start_each_clock(now);
        }
    }

    #[cfg(feature = "endpoint")]
    fn start_each_clock(&mut self, now: Instant) {
        // In the order of the calls: deadlines that rise are the quickest to note.
        for (id, then) in &self.untimed {
            let Some(call) = self.calls.get_mut(id) else { continue };
            call.restart(*id, *then, now, &mut self.timers);
        }
        self.untimed.clear();
    }

    fn make(&mut self, call: Invoke, is_timed: bool) -> Result<OutboundId, InvokeError> {
        match self.admit(&call) {
            Ok(depth) => Ok(self.start(call, depth, is_timed)),
            Err(why) => Err(InvokeError { why, call: Box::new(call) }),
        }
    }

    fn admit(&self, call: &Invoke) -> Result<u8, Refused> {
        if !self.ending.is_open() {
            return Err(Refused::Closing);
        }
        if !call.params.is_object() {
            return Err(Refused::Params);
        }
        let depth = match call.parent {
            None => call.depth,
            Some(key) => self.asked.get(&key).map(|asked| asked.depth().max(call.depth)).ok_or(Refused::NoParent)?,
        };
        if self.rules.confirmation == Confirmation::Owner && !self.handshake.asks() {
            let wrong_end = self.dialect.check_op(&call.op, &Capabilities::default()) == Err(Unfit::WrongEnd);
            return Err(if wrong_end { Refused::WrongEnd } else { Refused::NotReady });
        }
        if let Some(peer) = &self.peer {
            self.dialect.check_op(&call.op, &peer.capabilities).map_err(Refused::from)?;
        } else if self.dialect.check_op(&call.op, &Capabilities::default()) == Err(Unfit::WrongEnd) {
            return Err(Refused::WrongEnd);
        }
        let size = call.params.as_bytes().len().saturating_add(self.dialect.envelope_size(&call.op));
        if size > self.config.limits.frame_bytes {
            return Err(Refused::TooLarge);
        }
        let in_flight = self.calls.len().saturating_add(self.settled_events);
        let waiting = self.outbox.bytes().saturating_add(self.held_bytes);
        if in_flight >= self.config.limits.in_flight || waiting >= self.config.limits.output_bytes {
            return Err(Refused::Full);
        }
        Ok(depth)
    }

    fn start(&mut self, call: Invoke, depth: u8, is_timed: bool) -> OutboundId {
        let id = OutboundId(self.number());
        let timeouts = call.timeouts.unwrap_or(self.config.timeouts.call);
        let observed = match self.rules.names_invocations {
            // Whoever has a name may tell, wanted or not.
            true => self.dialect.is_cancellable(&call.op),
            false => call.progress || (timeouts.reset_on_progress && timeouts.idle.is_some()),
        };
        let clocks = Clocks::start(timeouts, self.now);
        if let Some((_, clock)) = clocks.deadline(false).filter(|(at, _)| *at <= self.now) {
            self.tell(Event::Done { id, outcome: Outcome::TimedOut(clock), partial: None, last: None });
            return id;
        }
        let mut made = if self.handshake.asks() || call.op.is_probe() {
            let frame = self.dialect.write_call(self.outbox.frames(), id.0, &call.op, &call.params, observed, depth);
            Call::in_flight(call.op, self.outbox.push(Class::Bound, frame), depth, clocks, observed)
        } else {
            self.held_bytes = self.held_bytes.saturating_add(call.params.as_bytes().len());
            Call::held(call.op, call.params, depth, clocks, observed)
        };
        if is_timed {
            made.arm(id, &mut self.timers);
        }
        self.calls.insert(id, made);
        id
    }

    /// Gives a call up: [`Outcome::Cancelled`] at once, whatever the transport does, or after [`crate::Timeouts::cancel_grace`] if there is
    /// any. A call that has not been polled out is never sent; otherwise one cancel follows it, with `reason` for the peer's log. A late
    /// answer is swallowed.
    ///
    /// # Errors
    /// [`NotLive`] if it has ended or was given up before.
    pub fn cancel(&mut self, id: OutboundId, reason: Option<&str>, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if self.calls.get(&id).is_none_or(Call::is_given_up) {
            return Err(NotLive);
        }
        self.give_call_up(id, reason);
        self.tidy();
        Ok(())
    }

    /// Answers a question of the peer ([`Event::InputRequested`]).
    ///
    /// # Errors
    /// [`NotLive`] if it was answered before, or is wanted no longer ([`Event::InputGone`]).
    pub fn provide_input(&mut self, key: InputKey, answer: Answer, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let asked = self.asked.remove(&key).ok_or(NotLive)?;
        let frame = self.dialect.write_answer(self.outbox.frames(), asked.exchange(), &answer);
        self.push_bound(frame, asked.exchange());
        self.peer_ids.retire(asked.exchange());
        self.close_question_of_call(asked.parent(), key);
        self.tidy();
        Ok(())
    }

    // ---- As a callee ----

    /// Changes how an invocation is served: its deadline, counted from its receipt, and its rate of progress.
    ///
    /// # Errors
    /// [`NotLive`] if it is over.
    pub fn configure(&mut self, id: InboundId, options: ServeOptions, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let serve = self.serves.get_mut(&id).filter(|serve| serve.is_active()).ok_or(NotLive)?;
        if let Some(window) = options.window {
            serve.set_rate(window);
            self.flush(id, false);
        }
        if let Some(deadline) = options.deadline {
            self.arm_serve(id, deadline);
        }
        self.tidy();
        Ok(())
    }

    /// Reports progress. See [`crate::ProgressPolicy`] for when it goes out.
    ///
    /// # Errors
    /// [`ProgressError`] for numbers that make no sense, and if the invocation is over. Nothing was sent.
    pub fn progress(&mut self, id: InboundId, update: Progress, now: Instant) -> Result<Reported, ProgressError> {
        self.advance(now);
        let serve = self.serves.get_mut(&id).filter(|serve| serve.is_active()).ok_or(ProgressError::NotLive)?;
        let policy = &self.config.progress;
        let update = Reporter::check(update, self.rules, policy)?;
        if !serve.is_observed() {
            self.stats.progress_left_out = self.stats.progress_left_out.saturating_add(1);
            return Ok(Reported::Unobserved);
        }
        match serve.report(update, self.rules, policy) {
            Taken::NotIncreasing => {
                self.stats.progress_left_out = self.stats.progress_left_out.saturating_add(1);
                return Ok(Reported::NotIncreasing);
            }
            Taken::Merged => self.stats.progress_coalesced = self.stats.progress_coalesced.saturating_add(1),
            Taken::New => {}
        }
        let congested = self.outbox.is_congested();
        let sent = self.flush(id, false);
        let in_line = !sent && self.serves.get(&id).is_some_and(Serve::is_in_line);
        self.tidy();
        Ok(match sent {
            true => Reported::Sent,
            false if congested && in_line => Reported::Coalesced,
            false => Reported::Kept,
        })
    }

    /// Deposits what is done so far. When the invocation is cut short, the last deposit travels where the protocol has a place
    /// for it, with a `status` of why.
    ///
    /// # Errors
    /// [`CheckpointError`]; the deposit before stays.
    pub fn checkpoint(&mut self, id: InboundId, partial: Json) -> Result<(), CheckpointError> {
        let serve = self.serves.get_mut(&id).filter(|serve| serve.is_active()).ok_or(CheckpointError::NotLive)?;
        if !partial.is_object() {
            return Err(CheckpointError::NotAnObject);
        }
        if partial.as_bytes().len() > self.config.limits.checkpoint_bytes {
            return Err(CheckpointError::TooLarge);
        }
        serve.deposit(partial, self.config.progress.window);
        Ok(())
    }

    /// Asks the caller something. The answer comes as [`Event::Input`], unless the invocation ends before: then nothing comes, and
    /// the question is taken back.
    ///
    /// # Errors
    /// [`AskError`]; nothing was sent.
    pub fn request_input(&mut self, id: InboundId, ask: Ask, now: Instant) -> Result<InputKey, AskError> {
        self.advance(now);
        let serve = self.serves.get(&id).filter(|serve| serve.is_active()).ok_or(AskError::NotLive)?;
        if self.ending.has_peer_ended() {
            return Err(AskError::Disconnected);
        }
        let peer = self.peer.as_ref().ok_or(AskError::Unsupported)?;
        self.dialect.check_ask(&ask, &peer.capabilities).map_err(|unfit| match unfit {
            AskUnfit::Unsupported => AskError::Unsupported,
            AskUnfit::Invalid(why) => AskError::Invalid(why),
        })?;
        let (depth, max) = (depth::of_question(&ask, serve.depth(), 0), self.config.depth.max);
        if !depth::is_allowed(&ask, depth, max) {
            return Err(AskError::TooDeep { depth, max });
        }
        let open = self.questions.len().saturating_add(self.settled_events);
        if open >= self.config.limits.in_flight || self.outbox.is_congested() {
            return Err(AskError::Full);
        }
        let named = if self.rules.names_invocations { serve.token() } else { Some(serve.exchange()) };
        let frame = self.dialect.write_ask(self.outbox.frames(), self.next, &ask, named.ok_or(AskError::Unsupported)?, depth);
        if frame.len() > self.config.limits.frame_bytes {
            self.outbox.frames().throw_away(frame);
            return Err(AskError::TooLarge);
        }
        let key = InputKey(self.number());
        let frame = self.outbox.frames().take(frame);
        let mut question = Question::held(id, ask, depth, frame);
        let deadline = self.config.timeouts.input.map(|span| self.now.saturating_add(span));
        if deadline.is_some_and(|at| at <= self.now) {
            self.bring_answer(key, &question, Err(InputFailed::TimedOut));
            return Ok(key);
        }
        question.arm(key, deadline, &mut self.timers);
        self.questions.insert(key, question);
        if let Some(serve) = self.serves.get_mut(&id) {
            serve.open_question(key, self.config.progress.window);
        }
        if self.handshake.asks() {
            self.release_question(key);
        }
        Ok(key)
    }

    /// Takes a question back that nobody waits for any longer. Nothing comes for it; the peer hears a cancel where the protocol has one.
    ///
    /// # Errors
    /// [`NotLive`] if it was answered, or its invocation is over.
    pub fn abandon_input(&mut self, key: InputKey, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let taken = self.take_question_back(key, None).map(drop).ok_or(NotLive);
        self.tidy();
        taken
    }

    /// Ends an invocation. What is kept of its progress goes out before the response; its open questions are taken back.
    ///
    /// # Errors
    /// [`NotLive`] if it is over. If it was [cancelled](Event::Cancelled) this says that its handler has ended, and frees its place.
    pub fn respond(&mut self, id: InboundId, reply: Reply, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let result = match self.serves.get(&id).map(Serve::end) {
            Some(Ended::Reply) => {
                self.settle_serve(id, &reply);
                Ok(())
            }
            Some(Ended::Swallowed) => {
                self.free_orphan(id);
                Err(NotLive)
            }
            Some(Ended::Twice) | None => Err(NotLive),
        };
        self.tidy();
        result
    }

    // ---- As either ----

    /// Answers [`Event::Greeting`]: the app is taken in, or hears why not and may greet anew.
    ///
    /// # Errors
    /// [`NotLive`] if no greeting waits, or the session is closing.
    pub fn welcome(&mut self, answer: Result<Welcome, RpcError>, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if !self.ending.is_open() {
            return Err(NotLive);
        }
        let (greeting, peer) = self.handshake.take_asked().ok_or(NotLive)?;
        match answer {
            Err(error) => {
                let frame = self.dialect.write_error(self.outbox.frames(), Some(&greeting), &error);
                self.push_stray(frame);
            }
            Ok(welcome) => {
                let result = self.dialect.welcome(&welcome).ok_or(NotLive)?;
                self.answer_greeting(greeting, &result, peer);
                if welcome.standing == Standing::Resumed {
                    self.dialect.speak_for(self.config.identity.clone(), self.config.capabilities);
                    self.confirm();
                }
            }
        }
        self.tidy();
        Ok(())
    }

    /// Says that the session was claimed, by `agent`, which can do so much: the app is told, and its actions may be called. `at_millis`
    /// counts from 1970 (Tesseron handshake page, "Claim"). A session that is claimed already stays as it is.
    ///
    /// # Errors
    /// [`Refused::WrongEnd`] but for a gateway, [`Refused::NotReady`] before an app was taken in, [`Refused::Closing`].
    pub fn claim(&mut self, agent: Identity, capabilities: Capabilities, at_millis: u64, now: Instant) -> Result<(), Refused> {
        self.advance(now);
        if self.rules.opens || self.rules.confirmation != Confirmation::Owner {
            return Err(Refused::WrongEnd);
        }
        if !self.ending.is_open() {
            return Err(Refused::Closing);
        }
        if self.handshake.asks() {
            return Ok(());
        }
        if !self.handshake.serves() {
            return Err(Refused::NotReady);
        }
        self.config.identity = agent.clone();
        self.config.capabilities = capabilities;
        self.dialect.speak_for(agent, capabilities);
        if let Some(frame) = self.dialect.write_claimed(self.outbox.frames(), at_millis) {
            self.outbox.push(Class::Bound, frame);
        }
        self.confirm();
        self.tidy();
        Ok(())
    }

    /// Sends a log record, on behalf of invocation `id` if one is named. It never waits: while too much output waits, the oldest
    /// records that wait make room, or this one is left out.
    ///
    /// # Errors
    /// [`NotLive`] if `id` is over.
    pub fn log(&mut self, id: Option<InboundId>, record: LogRecord, now: Instant) -> Result<Logged, NotLive> {
        self.advance(now);
        let serve = id.map(|id| self.serves.get(&id).filter(|serve| serve.is_active()).ok_or(NotLive)).transpose()?;
        if !self.config.capabilities.logging || record.level < self.log_level || !self.ending.may_write() {
            return Ok(Logged::Unwanted);
        }
        let frame = self.dialect.write_log(self.outbox.frames(), &record, serve.and_then(Serve::token));
        let mut logged = Logged::Sent;
        if frame.len() > self.config.limits.frame_bytes {
            self.outbox.frames().throw_away(frame);
            return Ok(self.drop_logs(1));
        }
        if self.outbox.is_congested() {
            let dropped = self.outbox.drop_oldest_logs(frame.len());
            logged = self.drop_logs(dropped.max(1));
            if dropped == 0 {
                self.outbox.frames().throw_away(frame);
                return Ok(logged);
            }
        }
        self.outbox.push(Class::Log, frame);
        Ok(logged)
    }

    /// Sends news that belong to no invocation.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent.
    pub fn notify(&mut self, notice: Notice, now: Instant) -> Result<(), Refused> {
        self.advance(now);
        if !self.ending.is_open() {
            return Err(Refused::Closing);
        }
        let proper = match &notice {
            Notice::Custom { params: Some(params), .. } => params.is_object(),
            Notice::Actions(list) | Notice::Resources(list) => list.is_array(),
            _ => true,
        };
        if !proper {
            return Err(Refused::Params);
        }
        self.dialect.check_notice(&notice).map_err(Refused::from)?;
        if !self.handshake.serves() {
            return Err(Refused::NotReady);
        }
        if self.outbox.is_congested() {
            return Err(Refused::Full);
        }
        let frame = self.dialect.write_notice(self.outbox.frames(), &notice);
        if frame.len() > self.config.limits.frame_bytes {
            self.outbox.frames().throw_away(frame);
            return Err(Refused::TooLarge);
        }
        self.outbox.push(Class::Bound, frame);
        Ok(())
    }

    /// Begins the end; see [`Close`]. [`Event::Closed`] comes when everything has settled and the last frame has been polled. A second
    /// call can only hasten it.
    pub fn close(&mut self, how: Close, now: Instant) {
        self.advance(now);
        self.begin_end(
            CloseReason::Local,
            match how {
                Close::Graceful { grace } => grace,
                Close::Now => Duration::ZERO,
            },
        );
        self.tidy();
    }

    /// Asks to be woken at `at`, with [`Event::Alarm`]. One that does not lie after the greatest `now` seen rings at once.
    ///
    /// # Errors
    /// [`TooManyAlarms`] beyond [`crate::Limits::alarms`], and once the session has closed.
    pub fn set_alarm(&mut self, at: Instant) -> Result<AlarmId, TooManyAlarms> {
        if self.is_closed() || self.alarms.len().saturating_add(self.rung_alarms) >= self.config.limits.alarms {
            return Err(TooManyAlarms);
        }
        let id = AlarmId(self.number());
        if at <= self.now {
            self.tell(Event::Alarm(id));
        } else {
            let mut armed = None;
            self.timers.set(TimerKey::Alarm(id), &mut armed, Some(at));
            self.alarms.insert(id, armed);
        }
        Ok(id)
    }

    /// Takes an alarm back. One that has rung, or was taken back before, is left alone.
    pub fn clear_alarm(&mut self, id: AlarmId) {
        if let Some(mut armed) = self.alarms.remove(&id) {
            self.timers.set(TimerKey::Alarm(id), &mut armed, None);
        }
    }

    // ---- What there is to do ----

    /// The next frame to write. Frames leave in the order in which they came to be.
    #[must_use = "a frame that is polled and not written is lost"]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let strays = self.outbox.strays();
        let frame = self.outbox.pop()?;
        self.leave(frame.len(), strays);
        Some(Transmit::new(frame))
    }

    /// The next frames to write, for a transport of lines: like [`poll_transmit`](Self::poll_transmit) until `into` has taken 64 of them, or
    /// 32 KiB, and cheaper. Says whether there may be more.
    pub fn poll_transmits(&mut self, into: &mut LineEncoder) -> bool {
        into.fill(|into| {
            let strays = self.outbox.strays();
            let Some(length) = self.outbox.pop_into(into) else { return false };
            self.leave(length, strays);
            true
        })
    }

    /// A frame has been polled; before that there were so many strays.
    fn leave(&mut self, length: usize, strays: usize) {
        self.stats.frames_out = self.stats.frames_out.saturating_add(1);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(length as u64);
        if self.outbox.strays() < strays {
            self.restart_overload();
        }
        self.tidy();
    }

    /// The next event.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Some(waiting) = self.waiting(&event) {
            *waiting = waiting.saturating_sub(1);
        }
        Some(event)
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do; exact, and `None` when nothing is pending.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    // ---- How it stands ----

    /// The time that it was last told.
    #[cfg(feature = "endpoint")]
    pub(crate) fn time(&self) -> Instant {
        self.now
    }

    /// Whether it matters when progress of `id` is reported: there is a rate to be kept, or a gap before the response, or the time counts
    /// that the peer has to read.
    #[cfg(feature = "endpoint")]
    pub(crate) fn is_progress_timed(&self, id: InboundId) -> bool {
        let window = self.serves.get(&id).and_then(Serve::rate).unwrap_or(self.config.progress.window);
        let is_limited = !window.is_unlimited() || !self.config.progress.session_window.is_unlimited();
        is_limited || !self.config.timeouts.response_gap.is_zero() || self.is_overrun()
    }

    /// Whether it matters when `id` is answered: a gap behind its progress is to be kept, somebody waits in line for room that this may
    /// make, the time counts that the peer has to read, or the end has begun.
    #[cfg(feature = "endpoint")]
    pub(crate) fn is_response_timed(&self, id: InboundId) -> bool {
        let has_gap = !self.config.timeouts.response_gap.is_zero();
        let waits = has_gap && self.serves.get(&id).is_some_and(Serve::has_said);
        waits || self.line.is_busy() || self.is_overrun() || !self.ending.is_open()
    }

    /// Events that wait to be polled.
    #[cfg(feature = "endpoint")]
    pub(crate) fn unread_events(&self) -> usize {
        self.events.len()
    }

    /// Whether [`handle_frame`](Self::handle_frame) takes frames: false while [`crate::Limits::events`] events or
    /// [`crate::Limits::strays`] refusals wait to be polled, and once the session has closed. Otherwise a long outbox is no reason: two
    /// peers that wait for each other to read would wait for ever.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.is_closed() && self.events.len() < self.config.limits.events && !self.is_overrun()
    }

    /// Whether the handshake is through.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.handshake.asks()
    }

    /// Whether it is over. Events may still wait to be polled.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ending.is_closed()
    }

    /// The peer, once its half of the handshake has come.
    #[must_use]
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.peer.as_deref()
    }

    /// What the session was told at its birth.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.calls = self.calls.len();
        stats.serves = self.serves.len();
        stats.orphans = self.orphans;
        stats.exchanges_out = self.exchanges_out();
        stats.exchanges_in = self.serves.len().saturating_sub(self.orphans).saturating_add(self.asked.len());
        stats.queued_bytes = self.outbox.bytes();
        stats
    }

    // ---- Shared by the verbs ----

    /// What waits for the response to an exchange of ours: whoever began it, for its first exchange has its own number. A number below
    /// `next` that nobody has is late.
    fn exchange(&self, number: u64) -> Option<Exchange> {
        let (call, key) = (OutboundId(number), InputKey(number));
        if self.calls.get(&call).is_some_and(|call| !call.is_held()) {
            Some(Exchange::Call(call))
        } else if self.questions.get(&key).is_some_and(|question| !question.is_held()) {
            Some(Exchange::Question(key))
        } else {
            (self.handshake.is_opened() && number == self.config.first_id()).then_some(Exchange::Greeting)
        }
    }

    fn exchanges_out(&self) -> usize {
        let open = self.calls.len().saturating_add(self.questions.len());
        if self.handshake.asks() {
            return open;
        }
        // What is held for the handshake is no exchange yet.
        let calls = self.calls.iter().filter(|(_, call)| call.is_held()).count();
        let questions = self.questions.values().filter(|question| question.is_held()).count();
        let greeting = usize::from(self.handshake.is_opened() && !self.is_closed());
        open.saturating_sub(calls).saturating_sub(questions).saturating_add(greeting)
    }

    /// Gives a peer that makes us refuse more than it reads the time to read another refusal.
    fn restart_overload(&mut self) {
        let is_overrun = self.is_overrun();
        self.overload.restart(is_overrun, self.config.timeouts.close_grace, self.now, &mut self.timers);
    }

    /// Whether the peer makes us refuse more than it reads.
    fn is_overrun(&self) -> bool {
        self.outbox.strays() >= self.config.limits.strays
    }

    /// Time never runs backwards here, whatever the owner says.
    fn advance(&mut self, now: Instant) {
        if now < self.now {
            self.stats.clock_went_back = self.stats.clock_went_back.saturating_add(1);
        }
        self.now = self.now.max(now);
    }

    /// What every verb leaves to be done once its transitions are complete: an end in their midst would cut their news short.
    fn tidy(&mut self) {
        if self.outbox.bytes() > self.config.limits.output_bytes_hard {
            self.fail(CloseReason::Overload);
        }
        // Nearly always nobody waits in line, and the end has not begun.
        if self.line.is_busy() {
            self.serve_line();
        }
        if !self.ending.is_open() {
            self.settle_ending();
        }
    }

    /// Whoever waits in line goes, as far as there is room and the window lets them.
    fn serve_line(&mut self) {
        while let Some(id) = self.line.first() {
            if !self.flush(id, true) && self.line.first() == Some(id) {
                break;
            }
        }
        self.line.arm(self.now, &mut self.timers);
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    fn tell(&mut self, event: Event) {
        if let Some(waiting) = self.waiting(&event) {
            *waiting = waiting.saturating_add(1);
        }
        self.events.push_back(event);
    }

    /// The count of events that keep the place of what they settle until they are polled: an owner that starts things and does not
    /// poll cannot make the queue grow without bound.
    fn waiting(&mut self, event: &Event) -> Option<&mut usize> {
        match event {
            Event::Done { .. } | Event::Input { .. } => Some(&mut self.settled_events),
            Event::Alarm(_) => Some(&mut self.rung_alarms),
            _ => None,
        }
    }

    fn violation(&mut self, rule: Violation) {
        self.stats.count(rule);
        self.events.push_back(Event::Violation(rule));
    }

    fn arm_call(&mut self, id: OutboundId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.arm(id, &mut self.timers);
    }

    /// Arms the deadline of an invocation, or lets it pass at once.
    fn arm_serve(&mut self, id: InboundId, deadline: Duration) {
        let Some(serve) = self.serves.get_mut(&id) else { return };
        if !serve.arm(id, deadline, self.now, &mut self.timers) {
            self.pass_deadline(id);
        }
    }

    /// Sends what is kept of an invocation's progress if it may go, and says so. Otherwise it waits: for its own window, or in line for
    /// what all share.
    fn flush(&mut self, id: InboundId, is_first: bool) -> bool {
        let has_room = !self.outbox.is_congested();
        let Some(serve) = self.serves.get_mut(&id) else { return false };
        let Some(next) = serve.next_update(self.now, self.rules) else { return false };
        let goes = match next {
            Next::Final => has_room,
            Next::Ready => has_room && (is_first || self.line.is_free()) && self.line.opens(self.now) == Opens::Now,
            Next::Nothing | Next::Waits(_) => false,
        };
        if !goes {
            serve.keep_update(id, next, &mut self.line, &mut self.timers);
            return false;
        }
        if let Some(progress) = serve.take_update(id, next, self.now, &mut self.line, &mut self.timers) {
            serve.push_progress(id, &progress, self.now, &mut self.outbox, &self.dialect, &self.config);
        }
        true
    }

    /// Held -> InFlight, or the end of a call that this peer does not serve.
    fn release_call(&mut self, id: OutboundId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some((op, params, observed)) = call.request() else { return };
        let bytes = call.held_bytes();
        if self.peer.as_ref().is_some_and(|peer| self.dialect.check_op(op, &peer.capabilities).is_err()) {
            return self.settle_call(id, Outcome::Invalid(Invalid::Unsupported), None);
        }
        let frame = self.dialect.write_call(self.outbox.frames(), id.0, op, params, observed, call.depth());
        let ticket = self.outbox.push(Class::Bound, frame);
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        call.release(ticket);
    }

    fn release_question(&mut self, key: InputKey) {
        let Some(question) = self.questions.get_mut(&key) else { return };
        question.release(&mut self.outbox);
    }

    fn drop_logs(&mut self, count: usize) -> Logged {
        self.stats.logs_dropped = self.stats.logs_dropped.saturating_add(count as u64);
        Logged::Dropped
    }
}

impl From<Unfit> for Refused {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Unsupported => Self::Unsupported,
            Unfit::WrongEnd => Self::WrongEnd,
        }
    }
}
