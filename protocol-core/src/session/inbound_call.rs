//! One inbound call, from its receipt to the end of its handler.
//!
//! ```text
//!   receipt
//!      |
//!      v      respond, and no gap to wait for
//!    Active ------------------------------------------------> (gone)
//!      |  \   respond, within the gap after the last progress    ^
//!      |   `---------------------------------> Answered ---------+   the gap has passed
//!      |                                                         |
//!      |  a cancel | the deadline | its lane or session ends     |
//!      v                                                         |
//!   Cancelled ---------------------------------------------------+   respond: the handler has ended
//! ```
//!
//! The gap is [`crate::Timeouts::response_gap`]. Frames are sent only for an `Active` call, except for the delayed response of an
//! `Answered` call. The delayed response is sent even if a cancel comes, and at once when an ending session stops its calls. It is dropped
//! only if its lane or the channel is lost. A `Cancelled` call stays in the table until its handler has ended or the session has closed, so
//! the bound on the table also bounds the number of handlers that run on after a cancel.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::config::{Config, ProgressPolicy, RateWindow};
use crate::dialect::{Answered, Capabilities, Level, Notification, Op, Progress, Rules, SubscriptionFilter};
use crate::json::Json;
use crate::session::lane_queue::Class;
use crate::session::listener::Listener;
use crate::session::outbox::{Outbox, Ticket};
use crate::session::progress::{Reporter, UpdateStep};
use crate::session::progress_queue::{ProgressQueue, QueueTicket};
use crate::session::terms::Terms;
use crate::session::timers::{TimerKey, Timers};
use crate::session::{Arriving, InboundId, InputKey, InputMode, Lane, ReplyKind};
use crate::time::Instant;
use crate::wire::WireId;

#[derive(Clone, Debug)]
pub(super) struct InboundCall {
    /// The lane that the request came by.
    lane: Lane,
    /// The peer's id of the exchange.
    exchange: WireId,
    op: Op,
    /// The peer's progress token or, on Tesseron, the name of the call; `None` if the peer did not ask for progress, and for a
    /// subscription.
    token: Option<WireId>,
    /// The number of sampling requests that the call is nested in.
    depth: u8,
    /// The rules of the exchange.
    rules: &'static Rules,
    /// The capabilities of the caller when the request arrived. Used only with [`Rules::keeps_capabilities`].
    capabilities: Capabilities,
    /// The level of the least severe log record that the request asks for. Used only if the request is stateless.
    log_level: Option<Level>,
    /// `true` once a log record was queued on behalf of the call.
    has_logged: bool,
    received: Instant,
    /// The size of the frame that the request came in.
    frame_bytes: usize,
    /// The time for which the deadline is armed in the session's timers.
    armed: Option<Instant>,
    /// Allocated when it is first needed: many calls send nothing before their response.
    callee_progress: Option<Box<CalleeProgress>>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Active,
    /// The response waits for the gap after the last progress. Boxed to keep the state of all other calls small.
    Answered(Box<(Bytes, ReplyKind)>),
    Cancelled,
}

/// The progress, checkpoint, input requests and notifications of a call, which come before its response.
#[derive(Clone, Debug)]
struct CalleeProgress {
    reporter: Reporter,
    /// The last progress update, acknowledgement or notification that was queued for this call, and the time when it was written.
    last_progress: Option<(Ticket, Instant)>,
    /// The time at which the kept update or the delayed response is to be sent, if this is armed in the session's timers.
    armed: Option<Instant>,
    /// The ticket in the progress queue, while the call waits in it.
    queue_ticket: Option<QueueTicket>,
    /// The newest checkpoint, as the handler stored it.
    checkpoint: Option<Json>,
    /// Our open input requests.
    open_inputs: Vec<InputKey>,
    /// The state of the subscription, if this call is one.
    listener: Option<Box<Listener>>,
}

/// The effect of [`Session::respond`](super::Session::respond), which depends on the state of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandlerEnd {
    /// The call is active: the reply is sent.
    Reply,
    /// The call is cancelled: no frame is sent, and the call is removed.
    Cancelled,
    /// The handler has already replied.
    Repeated,
}

/// The effect of a progress update of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportEffect {
    /// The update is kept, and none was kept before.
    New,
    /// The update is kept, merged with the update that was kept before.
    Merged,
    /// The update has nothing new.
    NotIncreasing,
}

impl InboundCall {
    #[inline]
    pub(super) fn new(
        arriving: Arriving,
        exchange: WireId,
        op: Op,
        token: Option<WireId>,
        depth: u8,
        terms: &Terms,
        now: Instant,
    ) -> Self {
        let (rules, log_level) = (terms.rules(), terms.log_level());
        Self {
            lane: arriving.lane(),
            exchange,
            op,
            token,
            depth,
            rules,
            capabilities: terms.capabilities(),
            log_level,
            has_logged: false,
            received: now,
            frame_bytes: arriving.bytes(),
            armed: None,
            callee_progress: None,
            state: State::Active,
        }
    }

    // ---- Transitions ----

    /// Active -> Cancelled. Returns `false` if the call was not active.
    pub(super) fn cancel(&mut self) -> bool {
        let was_active = self.is_active();
        if was_active {
            self.state = State::Cancelled;
        }
        was_active
    }

    /// Active -> Answered: `response` is delayed until `at`.
    pub(super) fn delay_response(&mut self, id: InboundId, response: (Bytes, ReplyKind), at: Instant, timers: &mut Timers) {
        self.state = State::Answered(Box::new(response));
        if let Some(callee_progress) = &mut self.callee_progress {
            timers.set(TimerKey::Release(id), &mut callee_progress.armed, Some(at));
        }
    }

    /// Answered -> gone. Returns the delayed response, and the calling code then removes the call. In any other state, changes nothing and
    /// returns `None`.
    pub(super) fn take_delayed_response(&mut self, id: InboundId, timers: &mut Timers) -> Option<(Bytes, ReplyKind)> {
        match core::mem::replace(&mut self.state, State::Cancelled) {
            State::Answered(response) => {
                if let Some(callee_progress) = &mut self.callee_progress {
                    timers.set(TimerKey::Release(id), &mut callee_progress.armed, None);
                }
                Some(*response)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    // ---- Progress ----

    /// The progress of the call. It is allocated by the first call of this method, with the rate `rate`.
    #[inline]
    fn callee_progress_mut(&mut self, rate: RateWindow) -> &mut CalleeProgress {
        self.callee_progress.get_or_insert_with(|| Box::new(CalleeProgress::new(rate)))
    }

    pub(super) fn set_rate(&mut self, rate: RateWindow) {
        self.callee_progress_mut(rate).reporter.set_rate(rate);
    }

    /// Keeps an update that passed [`Reporter::check`], merged with the update that was kept before.
    #[inline]
    pub(super) fn report(&mut self, update: Progress, policy: &ProgressPolicy) -> ReportEffect {
        let rules = self.rules;
        let reporter = &mut self.callee_progress_mut(policy.window).reporter;
        let merges = reporter.keeps();
        match reporter.report(update, rules, policy) {
            true if merges => ReportEffect::Merged,
            true => ReportEffect::New,
            false => ReportEffect::NotIncreasing,
        }
    }

    /// The next step for the kept update, without regard to the session's window and the room on the lane. `None` if the call is not
    /// active, or nothing was stored about its progress.
    #[inline]
    pub(super) fn next_update(&self, now: Instant) -> Option<UpdateStep> {
        let callee_progress = self.callee_progress.as_ref().filter(|_| self.is_active())?;
        Some(callee_progress.reporter.next(now, self.rules))
    }

    /// Makes the kept update wait: for the call's own window, or in the progress queue, depending on the step `next`.
    pub(super) fn keep_update(&mut self, id: InboundId, next: UpdateStep, progress_queue: &mut ProgressQueue, timers: &mut Timers) {
        let Some(callee_progress) = &mut self.callee_progress else { return };
        let opens = if let UpdateStep::Waits(at) = next { at } else { None };
        timers.set(TimerKey::Flush(id), &mut callee_progress.armed, opens);
        match next {
            UpdateStep::Final => progress_queue.join_for_room(id, self.lane, &mut callee_progress.queue_ticket),
            UpdateStep::Ready => progress_queue.join_for_window(id, self.lane, &mut callee_progress.queue_ticket),
            UpdateStep::Waits(_) => progress_queue.leave(self.lane, &mut callee_progress.queue_ticket),
        }
    }

    /// Takes the kept update to be sent; `next` is the step that [`Self::next_update`] returned.
    #[inline]
    pub(super) fn take_update(
        &mut self,
        id: InboundId,
        next: UpdateStep,
        now: Instant,
        progress_queue: &mut ProgressQueue,
        timers: &mut Timers,
    ) -> Option<Progress> {
        let callee_progress = self.callee_progress.as_mut()?;
        timers.set(TimerKey::Flush(id), &mut callee_progress.armed, None);
        progress_queue.leave(self.lane, &mut callee_progress.queue_ticket);
        if next == UpdateStep::Ready {
            progress_queue.count(now);
        }
        callee_progress.reporter.release(next, now)
    }

    /// Takes the kept update to be sent just before the response, even if the windows are closed.
    #[inline]
    pub(super) fn take_last_update(&mut self) -> Option<Progress> {
        let callee_progress = self.callee_progress.as_mut().filter(|_| self.token.is_some())?;
        callee_progress.reporter.release_last(self.rules)
    }

    /// Drops the kept update of an active call, so that none is sent later.
    pub(super) fn drop_update(&mut self, id: InboundId, progress_queue: &mut ProgressQueue, timers: &mut Timers) {
        let is_active = self.is_active();
        let Some(callee_progress) = self.callee_progress.as_mut().filter(|_| is_active) else { return };
        timers.set(TimerKey::Flush(id), &mut callee_progress.armed, None);
        progress_queue.leave(self.lane, &mut callee_progress.queue_ticket);
        callee_progress.reporter.forget();
    }

    /// Writes an update that was taken, and queues the frame.
    pub(super) fn push_progress(&mut self, id: InboundId, progress: &Progress, now: Instant, outbox: &mut Outbox, config: &Config) {
        let (Some(token), Some(callee_progress)) = (&self.token, &mut self.callee_progress) else { return };
        let partial = callee_progress.checkpoint.as_ref().filter(|_| config.progress.partial_on_progress);
        let mut frame = self.rules.dialect.write_progress(outbox.frames(), token, progress, partial);
        if frame.len() > config.limits.frame_bytes {
            // An update without message and data still shows that the call is alive.
            let shorter = Progress { message: None, data: None, ..progress.clone() };
            frame = self.rules.dialect.write_progress(outbox.frames(), token, &shorter, None);
        }
        callee_progress.last_progress = Some((outbox.push(self.lane, Class::Progress(id), frame), now));
    }

    /// Stops the timers and leaves the queue for progress. Returns the open input requests, which the calling code must take back.
    pub(super) fn stop(&mut self, id: InboundId, timers: &mut Timers, progress_queue: &mut ProgressQueue) -> Vec<InputKey> {
        timers.set(TimerKey::InboundCall(id), &mut self.armed, None);
        let Some(callee_progress) = &mut self.callee_progress else { return Vec::new() };
        timers.set(TimerKey::Flush(id), &mut callee_progress.armed, None);
        progress_queue.leave(self.lane, &mut callee_progress.queue_ticket);
        core::mem::take(&mut callee_progress.open_inputs)
    }

    /// Notes that a log record was queued on behalf of the call.
    pub(super) fn note_log(&mut self) {
        self.has_logged = true;
    }

    // ---- Checkpoints and input requests ----

    /// Stores a checkpoint in place of the last one.
    pub(super) fn store_checkpoint(&mut self, partial: Json, rate: RateWindow) {
        self.callee_progress_mut(rate).checkpoint = Some(partial);
    }

    pub(super) fn drop_checkpoint(&mut self) {
        if let Some(callee_progress) = &mut self.callee_progress {
            callee_progress.checkpoint = None;
        }
    }

    pub(super) fn open_outbound_input(&mut self, key: InputKey, rate: RateWindow) {
        self.callee_progress_mut(rate).open_inputs.push(key);
    }

    pub(super) fn close_outbound_input(&mut self, key: InputKey) {
        if let Some(callee_progress) = &mut self.callee_progress {
            callee_progress.open_inputs.retain(|open| *open != key);
        }
    }

    // ---- Subscriptions ----

    /// Makes the call a subscription to the kinds of notifications in `filter`. A subscription sends no progress and no log records.
    pub(super) fn listen(&mut self, filter: SubscriptionFilter, rate: RateWindow) {
        (self.token, self.log_level) = (None, None);
        self.callee_progress_mut(rate).listener = Some(Box::new(Listener::new(filter)));
    }

    fn listener(&mut self) -> Option<&mut Listener> {
        self.callee_progress.as_mut()?.listener.as_deref_mut()
    }

    /// Accepts the subscription, and sends the acknowledgement. Returns `None` if the call is not a subscription, or was accepted before.
    pub(super) fn accept_subscription(
        &mut self,
        id: InboundId,
        offered: &SubscriptionFilter,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Option<()> {
        let callee_progress = self.callee_progress.as_mut()?;
        let accepted = callee_progress.listener.as_mut()?.accept(offered)?;
        let frame = self.rules.dialect.write_acknowledged(outbox.frames(), &self.exchange, accepted);
        callee_progress.last_progress = Some((outbox.push(self.lane, Class::Progress(id), frame), now));
        Some(())
    }

    /// Adds a notification to the notifications that wait to be sent. Returns `false` unless the call is an accepted subscription that
    /// includes the notification.
    pub(super) fn publish(&mut self, notification: &Notification) -> bool {
        self.listener().is_some_and(|listener| listener.publish(notification))
    }

    /// Returns `true` if the call is an accepted subscription that includes the notification.
    pub(super) fn wants(&self, notification: &Notification) -> bool {
        let listener = self.callee_progress.as_ref().and_then(|progress| progress.listener.as_ref());
        listener.is_some_and(|listener| listener.wants(notification))
    }

    /// Returns `true` if a notification waits to be sent.
    pub(super) fn has_notifications(&self) -> bool {
        self.callee_progress.as_ref().and_then(|progress| progress.listener.as_ref()).is_some_and(|listener| listener.has_waiting())
    }

    /// Sends waiting notifications while the lane has room. If any are left, the call waits in the progress queue. Returns `true` if at
    /// least one notification was sent.
    pub(super) fn flush_notifications(
        &mut self,
        id: InboundId,
        now: Instant,
        outbox: &mut Outbox,
        progress_queue: &mut ProgressQueue,
    ) -> bool {
        let Some(callee_progress) = &mut self.callee_progress else { return false };
        let Some(listener) = &mut callee_progress.listener else { return false };
        let mut sent = false;
        while outbox.has_room(self.lane)
            && let Some(notification) = listener.take()
        {
            let frame = self.rules.dialect.write_published(outbox.frames(), &self.exchange, &notification);
            callee_progress.last_progress = Some((outbox.push(self.lane, Class::Progress(id), frame), now));
            sent = true;
        }
        match listener.has_waiting() {
            true => progress_queue.join_for_room(id, self.lane, &mut callee_progress.queue_ticket),
            false => progress_queue.leave(self.lane, &mut callee_progress.queue_ticket),
        }
        sent
    }

    // ---- Deadline ----

    /// Arms the deadline, counted from the receipt of the call. If it has already passed, arms nothing and returns `false`.
    pub(super) fn arm(&mut self, id: InboundId, deadline: Duration, now: Instant, timers: &mut Timers) -> bool {
        let at = Some(self.received.saturating_add(deadline)).filter(|at| *at > now);
        timers.set(TimerKey::InboundCall(id), &mut self.armed, at);
        at.is_some()
    }

    /// Records that the deadline was removed from the timers.
    pub(super) fn forget_deadline(&mut self) {
        self.armed = None;
    }

    /// Records that the timer for kept progress or for a delayed response has fired.
    pub(super) fn forget_timer(&mut self) {
        if let Some(callee_progress) = &mut self.callee_progress {
            callee_progress.armed = None;
        }
    }

    // ---- State ----

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        matches!(self.state, State::Active)
    }

    /// The effect that the end of the handler has in this state.
    #[inline]
    pub(super) fn end(&self) -> HandlerEnd {
        match self.state {
            State::Active => HandlerEnd::Reply,
            State::Cancelled => HandlerEnd::Cancelled,
            State::Answered(_) => HandlerEnd::Repeated,
        }
    }

    /// The size of the frame that the request came in.
    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// The lane that the request came by.
    #[inline]
    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// The peer's id of the exchange.
    #[inline]
    pub(super) fn exchange(&self) -> &WireId {
        &self.exchange
    }

    #[inline]
    pub(super) fn op(&self) -> Op {
        self.op
    }

    /// The peer's progress token or, on Tesseron, the name of the call.
    #[inline]
    pub(super) fn token(&self) -> Option<&WireId> {
        self.token.as_ref()
    }

    /// Returns the peer's id of the exchange, and takes the token. Called when the call ends.
    #[inline]
    pub(super) fn take_names(&mut self) -> (WireId, Option<WireId>) {
        (self.exchange.clone(), self.token.take())
    }

    /// The parts of the request that a reply needs.
    #[inline]
    pub(super) fn answered(&self) -> Answered<'_> {
        Answered { id: &self.exchange, token: self.token.as_ref(), op: self.op }
    }

    /// The rules of the exchange.
    #[inline]
    pub(super) fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// The level of the least severe log record that is sent on behalf of the call; `of_session` is that of the session. `None` if no
    /// records are sent.
    pub(super) fn log_level(&self, of_session: Level) -> Option<Level> {
        if self.rules.stateless { self.log_level } else { Some(of_session) }
    }

    /// The number of sampling requests that the call is nested in.
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// Raises the sampling depth of the call to `depth`, unless it is higher already.
    pub(super) fn raise_depth(&mut self, depth: u8) {
        self.depth = self.depth.max(depth);
    }

    /// The capabilities of the caller; `of_session` are those of the peer of the session.
    pub(super) fn capabilities(&self, of_session: Option<Capabilities>) -> Capabilities {
        if self.rules.keeps_capabilities { self.capabilities } else { of_session.unwrap_or_default() }
    }

    /// The way in which input can be requested from the caller.
    pub(super) fn input_mode(&self) -> InputMode {
        match self.rules.stateless {
            false => InputMode::Nested,
            true if self.rules.dialect.has_rounds(self.op) => InputMode::Rounds,
            true => InputMode::Unsupported,
        }
    }

    /// Returns `true` if the peer asked for progress.
    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.token.is_some()
    }

    /// Returns `true` if the call waits in the progress queue.
    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        self.callee_progress.as_ref().is_some_and(|callee_progress| callee_progress.queue_ticket.is_some())
    }

    /// Returns `true` if a log record was queued on behalf of the call.
    pub(super) fn has_logged(&self) -> bool {
        self.has_logged
    }

    #[inline]
    pub(super) fn last_progress(&self) -> Option<(Ticket, Instant)> {
        self.callee_progress.as_ref()?.last_progress
    }

    #[inline]
    pub(super) fn checkpoint(&self) -> Option<&Json> {
        self.callee_progress.as_ref()?.checkpoint.as_ref()
    }
}

impl CalleeProgress {
    fn new(rate: RateWindow) -> Self {
        let reporter = Reporter::new(rate);
        Self {
            reporter,
            last_progress: None,
            armed: None,
            queue_ticket: None,
            checkpoint: None,
            open_inputs: Vec::new(),
            listener: None,
        }
    }
}

/// The transition table of the machine, recorded from a real session, which is brought into every state and given every input.
/// `docs/transitions/README.md` shows it as a diagram.
#[cfg(test)]
mod transitions {
    use core::time::Duration;
    use std::string::{String, ToString as _};
    use std::vec::Vec;

    use super::{InboundCall, State};
    use crate::dialect::mcp::Era;
    use crate::session::outbound_call::transitions::{compare, output};
    use crate::session::{Close, Event, InboundId, Lane, ServeOptions, Session};
    use crate::{
        Config, Gone, Identity, InputRequest, Instant, Json, Notification, Progress, RateWindow, Reply, SubscriptionFilter,
        TransportEnd,
    };

    /// A session with one inbound call. The peer's id of the call is `c`, and the progress token is `t`.
    struct Callee {
        session: Session,
        inbound: InboundId,
        now: Instant,
        /// The value of the last progress.
        value: f64,
        /// The frame of the request.
        request: &'static str,
    }

    const STATES: [&str; 7] = ["Active", "Reported", "Keeping", "Asking", "Answered", "Cancelled", "gone"];

    /// The name of the state in the tables. `Active` has four substates: an input request is open (*Asking*), an update is kept
    /// (*Keeping*), an update was sent (*Reported*), or none of these (*Active*). The `match` has no wildcard, so that a new state must be
    /// named here and appear in the table.
    fn state(callee: &Callee) -> &'static str {
        match callee.session.inbound_calls.get(&callee.inbound) {
            None => "gone",
            Some(inbound) => match &inbound.state {
                State::Active
                    if inbound.callee_progress.as_ref().is_some_and(|callee_progress| !callee_progress.open_inputs.is_empty()) =>
                {
                    "Asking"
                }
                State::Active
                    if inbound.callee_progress.as_ref().is_some_and(|callee_progress| callee_progress.reporter.keeps()) =>
                {
                    "Keeping"
                }
                State::Active if inbound.last_progress().is_some() => "Reported",
                State::Active => "Active",
                State::Answered(_) => "Answered",
                State::Cancelled => "Cancelled",
            },
        }
    }

    fn in_state(name: &str) -> Callee {
        const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}"#;
        const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let callee = brought_to(name, &[HELLO, READY, REQUEST]);
        assert_eq!(state(&callee), name);
        callee
    }

    /// Brings a callee without a handshake into a state.
    fn in_stateless_state(name: &str) -> Callee {
        let callee = brought_to(name, &[STATELESS_REQUEST]);
        assert_eq!(state(&callee), name);
        callee
    }

    /// Makes a callee from these frames, of which the last is the request, and brings its call into a state.
    fn brought_to(name: &str, frames: &[&'static str]) -> Callee {
        let mut config = Config::mcp_server(Identity::new("server", "1"));
        config.era = Era::Auto;
        config.timeouts.serve = Some(Duration::from_secs(60));
        config.timeouts.response_gap = Duration::from_millis(500);
        config.progress.window = RateWindow::new(1, Duration::from_secs(1));
        let now = Instant::from_millis(1);
        let mut session = Session::new(config, Instant::ZERO);
        for frame in frames {
            session.handle_frame((*frame).into(), Lane::CHANNEL, now).unwrap();
        }
        let requests = core::iter::from_fn(|| session.poll_event());
        let inbound =
            requests.filter_map(|event| if let Event::Request { id, .. } = event { Some(id) } else { None }).next().unwrap();
        let mut callee = Callee { session, inbound, now, value: 0.0, request: frames.last().unwrap() };
        let steps: &[Input] = match name {
            "Active" | "Requested" => &[],
            "Listening" => &[ACCEPT],
            // The acknowledgement is polled before the lane stops.
            "Waiting" => &[ACCEPT, |callee| drop(callee.session.poll_transmit()), STOP, PUBLISH],
            "Answered" if frames.contains(&LISTEN) => &[ACCEPT, RESPOND],
            "Reported" => &[PROGRESS],
            "Keeping" => &[PROGRESS, PROGRESS],
            "Asking" => &[ASK],
            "Answered" => &[PROGRESS, RESPOND],
            "Cancelled" => &[CANCEL],
            // "gone"
            _ => &[RESPOND],
        };
        for step in steps {
            step(&mut callee);
        }
        output(&mut callee.session);
        callee
    }

    type Input = fn(&mut Callee);

    const STATELESS_REQUEST: &str = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"work","_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    const LISTEN: &str = r#"{"jsonrpc":"2.0","id":"c","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

    const REQUEST: &str =
        r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"work","_meta":{"progressToken":"t"}}}"#;
    const PROGRESS: Input = |callee| {
        callee.value += 1.0;
        let _ = callee.session.progress(callee.inbound, Progress::value(callee.value), callee.now);
    };
    const ASK: Input = |callee| drop(callee.session.request_input(callee.inbound, InputRequest::Roots, callee.now));
    const RESPOND: Input = |callee| {
        let _ = callee.session.respond(callee.inbound, Reply::Raw(Json::empty_object()), callee.now);
    };
    const CANCEL: Input =
        |callee| callee.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}"#);

    const INPUTS: [(&str, Input); 20] = [
        ("progress", PROGRESS),
        ("the same progress twice", |callee| {
            PROGRESS(callee);
            callee.value -= 1.0;
            PROGRESS(callee);
        }),
        ("a checkpoint", |callee| {
            let _ = callee.session.checkpoint(callee.inbound, Json::empty_object());
        }),
        ("ask", ASK),
        ("the answer to our input request", |callee| {
            let open = callee.session.outbound_inputs.keys().next().map(|key| key.0);
            if let Some(key) = open {
                callee.frame(&std::format!(r#"{{"jsonrpc":"2.0","id":{key},"result":{{"roots":[]}}}}"#));
            }
        }),
        ("withdraw our input request", |callee| {
            let open = callee.session.outbound_inputs.keys().next().copied();
            if let Some(key) = open {
                callee.session.abandon_input(key, callee.now).unwrap();
            }
        }),
        ("respond", RESPOND),
        ("the peer cancels", CANCEL),
        ("the peer uses the id again", |callee| callee.frame(callee.request)),
        ("the peer makes a handshake", |callee| {
            callee.frame(r#"{"jsonrpc":"2.0","id":"h","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#);
        }),
        ("the response gap has passed", |callee| callee.wait(500)),
        ("the rate window has passed", |callee| callee.wait(1000)),
        ("a deadline that has passed is set", |callee| {
            let options = ServeOptions::default().with_deadline(Duration::ZERO);
            let _ = callee.session.configure(callee.inbound, options, callee.now);
        }),
        ("60 s since its receipt", |callee| callee.wait(60_000)),
        ("the peer ends its side", |callee| callee.session.handle_end(TransportEnd::Eof, callee.now)),
        ("the peer ends its side, and the close grace of 5 s is over", |callee| {
            callee.session.handle_end(TransportEnd::Eof, callee.now);
            callee.wait(5000);
        }),
        ("the transport fails", |callee| callee.session.handle_end(TransportEnd::Failed, callee.now)),
        ("close, with a grace of 5 s", |callee| {
            callee.session.close(Close::Graceful { grace: Duration::from_secs(5) }, callee.now);
        }),
        ("close, and the grace is over", |callee| {
            callee.session.close(Close::Graceful { grace: Duration::from_secs(5) }, callee.now);
            callee.wait(5000);
        }),
        ("close now", |callee| callee.session.close(Close::Now, callee.now)),
    ];

    const LOSE_LANE: (&str, Input) =
        ("its lane is lost", |callee| callee.session.handle_gone(Gone::Lane(Lane::CHANNEL), callee.now).unwrap());

    const ACCEPT: Input = |callee| {
        let offered = SubscriptionFilter { tools: true, ..SubscriptionFilter::default() };
        let _ = callee.session.accept_subscription(callee.inbound, &offered, callee.now);
    };
    const PUBLISH: Input = |callee| _ = callee.session.publish(&Notification::ToolsChanged, callee.now);
    const STOP: Input = |callee| callee.session.set_writable(Lane::CHANNEL, false, callee.now).unwrap();

    /// Inputs that only a subscription has.
    const OF_SUBSCRIPTIONS: [(&str, Input); 5] = [
        ("accept", ACCEPT),
        ("publish a wanted notification", PUBLISH),
        ("publish another notification", |callee| _ = callee.session.publish(&Notification::PromptsChanged, callee.now)),
        ("publish a wanted notification, with its lane stopped", |callee| {
            STOP(callee);
            PUBLISH(callee);
        }),
        ("its lane is resumed", |callee| callee.session.set_writable(Lane::CHANNEL, true, callee.now).unwrap()),
    ];

    /// The state of a subscription. It is `Requested` until it is accepted. `Waiting` is the substate of `Listening` in which a
    /// notification waits for room.
    fn state_of_subscription(callee: &Callee) -> &'static str {
        let is_requested = |callee: &Callee| {
            callee.session.clone().accept_subscription(callee.inbound, &SubscriptionFilter::default(), callee.now).is_ok()
        };
        match state(callee) {
            "Active" if is_requested(callee) => "Requested",
            "Reported" if callee.session.inbound_calls.get(&callee.inbound).is_some_and(InboundCall::has_notifications) => {
                "Waiting"
            }
            "Reported" => "Listening",
            other => other,
        }
    }

    impl Callee {
        fn frame(&mut self, text: &str) {
            self.session.handle_frame(text.to_string().into(), crate::Lane::CHANNEL, self.now).unwrap();
        }

        fn wait(&mut self, millis: u64) {
            self.now = self.now.saturating_add(Duration::from_millis(millis));
            self.session.handle_timeout(self.now);
        }
    }

    fn table(
        states: &[&'static str],
        inputs: &[(&str, Input)],
        in_state: impl Fn(&str) -> Callee,
        state: impl Fn(&Callee) -> &'static str,
    ) -> Vec<[String; 5]> {
        let mut rows = Vec::new();
        for from in states {
            for (name, input) in inputs {
                let mut callee = in_state(from);
                input(&mut callee);
                let next = state(&callee);
                let (events, sent) = output(&mut callee.session);
                rows.push([(*from).into(), (*name).into(), next.into(), events, sent]);
            }
        }
        rows
    }

    #[test]
    fn the_transitions_of_an_inbound_call_are_those_in_the_docs() {
        let rows = table(&STATES, &INPUTS, in_state, state);
        compare("serve.txt", "An inbound call: every state, every input.", &rows);
    }

    #[test]
    fn the_transitions_of_a_stateless_inbound_call_are_those_in_the_docs() {
        // A stateless call asks for input in rounds, so it never has an open input request.
        let states = STATES.map(|state| Some(state).filter(|state| *state != "Asking"));
        let states: Vec<_> = states.into_iter().flatten().collect();
        let inputs: Vec<_> = INPUTS.into_iter().chain([LOSE_LANE]).collect();
        let rows = table(&states, &inputs, in_stateless_state, state);
        compare("serve-stateless.txt", "An inbound call without a handshake: every state, every input.", &rows);
    }

    #[test]
    fn the_transitions_of_a_subscription_are_those_in_the_docs() {
        let states = ["Requested", "Listening", "Waiting", "Answered", "Cancelled", "gone"];
        let is_of_calls = |name: &str| {
            ["ask", "the answer to our input request", "withdraw our input request", "the rate window has passed"].contains(&name)
        };
        let inputs = INPUTS.into_iter().filter(|(name, _)| !is_of_calls(name));
        let inputs: Vec<_> = OF_SUBSCRIPTIONS.into_iter().chain(inputs).chain([LOSE_LANE]).collect();
        let in_state = |name: &str| {
            let callee = brought_to(name, &[LISTEN]);
            assert_eq!(state_of_subscription(&callee), name);
            callee
        };
        let rows = table(&states, &inputs, in_state, state_of_subscription);
        compare("listen.txt", "A subscription that we serve (MCP 2026-07-28): every state, every input.", &rows);
    }
}
