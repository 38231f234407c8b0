//! A session whose methods, frames and events are all judged.

use std::collections::HashSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use protocol_core::drive::Machine;
use protocol_core::mcp::{Era, Side};
use protocol_core::tesseron::Welcome;
use protocol_core::{
    AlarmId, AskError, CallTimeouts, Capabilities, CheckpointError, Close, Config, Event, ExchangeId, FrameSink, Full, Gone,
    Identity, InboundId, InputKey, InputMode, InputRequest, InputResponse, InputRound, Instant, Invoke, InvokeError, Json, Lane,
    LogRecord, Logged, NotLive, Notification, Op, OutboundId, PeerInfo, PendingInput, Progress, ProgressError, Protocol, Received,
    Reply, Reported, RpcError, SendError, ServeOptions, Session, Stats, SubscriptionFilter, TooManyAlarms, Transmit, TransportEnd,
    Violation,
};

use crate::coverage::Coverage;
use crate::judge::{Effect, Fact, Judge, Verdict};
use crate::panics::message;
use crate::subject::Subject;
use crate::summary::{self, number};

/// The frames that the two ends of a world have sent.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The frames. Any other frame that arrives was altered on its way.
    sent: HashSet<Bytes>,
    /// A frame that was not sent has arrived. From then on, the judges distrust the peer.
    pub(crate) altered: bool,
    /// Frames were duplicated, reordered, lost or injected. Then rules may seem to be broken although both ends keep them.
    pub(crate) unfaithful: bool,
}

/// The maximum length of [`KnownIds::input_requests`].
const MAX_INPUT_REQUESTS: usize = 1_000;

/// Locks the frames, even after a panic: a broken guarantee is a panic, which leaves the frames as they are.
pub(crate) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ids from which random operations choose at one end.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KnownIds {
    /// Outbound calls that are not done.
    pub outbound_calls: Vec<OutboundId>,
    /// Inbound calls whose handler runs, cancelled or not.
    pub inbound_calls: Vec<InboundId>,
    /// Input requests of this end without an answer: the open ones, and those whose call has ended since. Of these, the newest thousand.
    pub input_requests: Vec<InputKey>,
    /// Open input requests of the peer, with their kind: `sample`, `elicit`, `open` or `roots`.
    pub peer_input_requests: Vec<(InputKey, &'static str)>,
    /// Subscriptions of the peer that are open; `true` for those that were accepted.
    pub subscriptions: Vec<(InboundId, bool)>,
    /// Alarms that are set, and have neither fired nor been cleared.
    pub alarms: Vec<AlarmId>,
    /// The outbound call, inbound call and input request that ended last, for operations that call a method too late.
    pub last_ended: (Option<OutboundId>, Option<InboundId>, Option<InputKey>),
}

/// Arguments that parsing and serializing would change: with blanks, escapes, a repeated member, a number with trailing zeros.
pub const ODD: &str = r#"{ "n" : 1.50e+3, "u":"\u00e9\ud83d\ude00 é","d":1,"d":2 , "z":[ ] }"#;
/// A result that contains the same members as [`ODD`].
pub const ODD_RESULT: &str = r#"{"content":[ ],"odd":{ "n" : 1.50e+3, "u":"\u00e9\ud83d\ude00 é","d":1,"d":2 , "z":[ ] }}"#;

/// A session whose method calls, frames and events are judged. It has the methods of [`Session`] except [`Session::last_checkpoint`], and
/// can replace it.
///
/// A loop that names the type of its session only once can be tested with this type: `type Session = testkit::Watched;` under `cfg(test)`.
///
/// # Panics
/// Each method panics if a [guarantee](crate::Guarantee) is broken; the message begins with the name of the guarantee.
///
/// ```
/// use protocol_core::{Instant, Invoke, Json, Session};
/// use testkit::{Happening, Watched, config};
///
/// let now = Instant::ZERO;
/// let mut client = Watched::new(Session::new(config::client_config(), now), now);
/// let call = client.invoke(Invoke::call_tool("t", Json::empty_object()), now)?;
/// client.cancel(call, None, now)?;
/// while client.poll_event().is_some() {}
/// assert_eq!(client.coverage().of(Happening::Cancel), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watched<S = Session> {
    subject: S,
    judge: Judge,
    /// The ids from which random operations choose.
    pub ids: KnownIds,
    trace: Option<Vec<String>>,
    shared: Option<Arc<Mutex<Shared>>>,
    checks_needless_timeouts: bool,
    now: Instant,
}

impl<S: Subject> Watched<S> {
    /// Watches a session that began at `now`.
    #[must_use]
    pub fn new(subject: S, now: Instant) -> Self {
        let (judge, ids) = (Judge::of(subject.session().config()), KnownIds::default());
        Self { subject, judge, ids, trace: Some(Vec::new()), shared: None, checks_needless_timeouts: false, now }
    }

    /// Watches one end of a world. `shared` has the frames of both ends.
    pub(crate) fn of_world(subject: S, now: Instant, shared: Arc<Mutex<Shared>>) -> Self {
        Self { shared: Some(shared), ..Self::new(subject, now) }
    }

    /// Returns `true` if the session speaks Tesseron.
    pub fn is_tesseron(&self) -> bool {
        matches!(self.subject.session().config().protocol, Protocol::Tesseron(_))
    }

    /// The session, or the wrapper around it.
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// Returns the session, or the wrapper around it.
    pub fn into_subject(self) -> S {
        self.subject
    }

    /// The judge of the session.
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    /// The judge, for [`Judge::leave_out`] and [`Judge::distrust_peer`].
    pub fn judge_mut(&mut self) -> &mut Judge {
        &mut self.judge
    }

    /// The counts of happenings so far.
    pub fn coverage(&self) -> &Coverage {
        self.judge.coverage()
    }

    /// Everything that happened, in order, with the time in microseconds; empty after [`Self::forget_trace`].
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Keeps no trace from now on, which saves memory in long runs.
    pub fn forget_trace(&mut self) {
        self.trace = None;
    }

    /// Checks G8 after every method, unless a deadline has passed: a clone whose `handle_timeout` is called without need must have the same
    /// state and the same output. Slow.
    pub fn check_needless_timeouts(&mut self) {
        self.checks_needless_timeouts = true;
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{} {}", self.now.as_micros(), what()));
        }
    }

    #[track_caller]
    fn see(&mut self, fact: &Fact<'_>) {
        must(self.judge.see(fact));
    }

    /// Runs a method of the session, which must not panic.
    #[track_caller]
    fn run<T>(&mut self, method: &str, run: impl FnOnce(&mut S) -> T) -> T {
        match catch_unwind(AssertUnwindSafe(|| run(&mut self.subject))) {
            Ok(value) => value,
            Err(panic) => {
                self.see(&Fact::Panicked { method, message: &message(&*panic) });
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Calls a method of the session, and notes its result in the trace.
    #[track_caller]
    fn call<T: Debug>(&mut self, now: Instant, name: &str, run: impl FnOnce(&mut S) -> T) -> T {
        self.now = self.now.max(now);
        let value = self.run(name, run);
        self.note(|| format!("{name} -> {value:?}"));
        value
    }

    /// Checks the guarantees after a method.
    #[track_caller]
    fn after(&mut self) {
        let (stats, due) = (self.subject.stats(), self.subject.poll_timeout());
        let limits = &self.subject.session().config().limits;
        must(self.judge.see(&Fact::Returned { stats: &stats, limits, due }));
        if self.checks_needless_timeouts && due.is_none_or(|at| at > self.now) {
            let (mut untouched, mut timed) = (self.subject.clone(), self.subject.clone());
            timed.handle_timeout(self.now);
            let (state, timed_state) = (format!("{:?}", untouched.session()), format!("{:?}", timed.session()));
            self.see(&Fact::Probed { before: &state, after: &timed_state });
            let (before, after) = (output(&mut untouched), output(&mut timed));
            self.see(&Fact::Probed { before: &before, after: &after });
        }
    }

    // ---- As a caller ----

    /// [`Session::invoke`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn invoke(&mut self, call: Invoke, now: Instant) -> Result<OutboundId, InvokeError> {
        let copy = call.clone();
        let run = |subject: &mut S| subject.session_mut().invoke(call, now);
        let made = self.call(now, "invoke", run);
        if let Ok(id) = &made {
            let at_once = is_over_at_once(copy.timeouts.unwrap_or_else(|| self.config().timeouts.call));
            self.see(&Fact::Called { id: *id, call: &copy, at_once });
            self.ids.outbound_calls.push(*id);
        }
        self.after();
        made
    }

    /// [`Session::cancel`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn cancel(&mut self, id: OutboundId, reason: Option<&str>, now: Instant) -> Result<(), NotLive> {
        let run = |subject: &mut S| subject.session_mut().cancel(id, reason, now);
        let done = self.call(now, "cancel", run);
        if done.is_ok() {
            self.see(&Fact::Cancelled { id });
        }
        self.after();
        done
    }

    /// [`Session::pending_input`].
    #[must_use]
    pub fn pending_input(&self, id: OutboundId) -> Option<PendingInput> {
        self.subject.session().pending_input(id)
    }

    /// [`Session::resume_input`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn resume_input(&mut self, pending: &PendingInput, now: Instant) -> Result<OutboundId, SendError> {
        let run = |subject: &mut S| subject.session_mut().resume_input(pending, now);
        let resumed = self.call(now, "resume_input", run);
        if let Ok(id) = &resumed {
            let at_once = is_over_at_once(self.config().timeouts.call);
            self.see(&Fact::Resumed { id: *id, pending, at_once });
            self.ids.outbound_calls.push(*id);
        }
        self.after();
        resumed
    }

    /// [`Session::provide_input`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn provide_input(&mut self, key: InputKey, answer: InputResponse, now: Instant) -> Result<(), NotLive> {
        self.ids.peer_input_requests.retain(|(open, _)| *open != key);
        let is_refusal = matches!(answer, InputResponse::Refused(_));
        let run = |subject: &mut S| subject.session_mut().provide_input(key, answer, now);
        let done = self.call(now, "provide_input", run);
        if done.is_ok() {
            self.see(&Fact::Answered { key, is_refusal });
        }
        self.after();
        done
    }

    // ---- As a callee ----

    /// [`Session::configure`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn configure(&mut self, id: InboundId, options: ServeOptions, now: Instant) -> Result<(), NotLive> {
        let run = |subject: &mut S| subject.session_mut().configure(id, options, now);
        let done = self.call(now, "configure", run);
        if done.is_ok() && options.deadline.is_some() {
            self.see(&Fact::Configured { id });
        }
        self.after();
        done
    }

    /// [`Session::progress`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn progress(&mut self, id: InboundId, update: Progress, now: Instant) -> Result<Reported, ProgressError> {
        let run = |subject: &mut S| subject.session_mut().progress(id, update, now);
        let reported = self.call(now, "progress", run);
        if let Ok(reported) = &reported {
            self.see(&Fact::Reported { id, reported: *reported });
        }
        self.after();
        reported
    }

    /// [`Session::checkpoint`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn checkpoint(&mut self, id: InboundId, partial: Json) -> Result<(), CheckpointError> {
        let run = |subject: &mut S| subject.session_mut().checkpoint(id, partial);
        let done = self.call(self.now, "checkpoint", run);
        if done.is_ok() {
            self.see(&Fact::Checkpointed { id });
        }
        self.after();
        done
    }

    /// [`Session::request_input`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn request_input(&mut self, id: InboundId, ask: InputRequest, now: Instant) -> Result<InputKey, AskError> {
        let run = |subject: &mut S| subject.session_mut().request_input(id, ask, now);
        let made = self.call(now, "request_input", run);
        if let Ok(key) = &made {
            self.see(&Fact::Asked { key: *key, id });
            self.ids.input_requests.push(*key);
            if self.ids.input_requests.len() > MAX_INPUT_REQUESTS {
                self.ids.input_requests.remove(0);
            }
        }
        self.after();
        made
    }

    /// [`Session::abandon_input`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn abandon_input(&mut self, key: InputKey, now: Instant) -> Result<(), NotLive> {
        let run = |subject: &mut S| subject.session_mut().abandon_input(key, now);
        let done = self.call(now, "abandon_input", run);
        if done.is_ok() {
            self.see(&Fact::Abandoned { key });
            self.ids.input_requests.retain(|open| *open != key);
        }
        self.after();
        done
    }

    /// [`Session::respond`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn respond(&mut self, id: InboundId, reply: Reply, now: Instant) -> Result<(), NotLive> {
        let copy = reply.clone();
        let run = |subject: &mut S| subject.session_mut().respond(id, reply, now);
        let done = self.call(now, "respond", run);
        self.see(&Fact::Responded { id, reply: &copy, accepted: done.is_ok() });
        self.ids.inbound_calls.retain(|open| *open != id);
        self.ids.subscriptions.retain(|(open, _)| *open != id);
        self.ids.last_ended.1 = Some(id);
        self.after();
        done
    }

    /// [`Session::finish_round`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn finish_round(&mut self, id: InboundId, round: InputRound, now: Instant) -> Result<(), AskError> {
        let reply = Reply::Input(Box::new(round.clone()));
        let run = |subject: &mut S| subject.session_mut().finish_round(id, round, now);
        let done = self.call(now, "finish_round", run);
        if done.is_ok() {
            self.see(&Fact::Responded { id, reply: &reply, accepted: true });
            self.ids.inbound_calls.retain(|open| *open != id);
            self.ids.last_ended.1 = Some(id);
        }
        self.after();
        done
    }

    /// [`Session::log`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn log(&mut self, id: Option<InboundId>, record: LogRecord, now: Instant) -> Result<Logged, NotLive> {
        let run = |subject: &mut S| subject.session_mut().log(id, record, now);
        let logged = self.call(now, "log", run);
        if logged == Ok(Logged::Sent) {
            self.see(&Fact::Logged { id });
        }
        self.after();
        logged
    }

    /// [`Session::accept_subscription`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn accept_subscription(&mut self, id: InboundId, offered: &SubscriptionFilter, now: Instant) -> Result<(), NotLive> {
        let run = |subject: &mut S| subject.session_mut().accept_subscription(id, offered, now);
        let done = self.call(now, "accept_subscription", run);
        if done.is_ok() {
            self.see(&Fact::Accepted { id });
            self.ids.subscriptions.iter_mut().filter(|(open, _)| *open == id).for_each(|(_, is_accepted)| *is_accepted = true);
        }
        self.after();
        done
    }

    /// [`Session::publish`].
    #[track_caller]
    pub fn publish(&mut self, notification: &Notification, now: Instant) -> usize {
        self.see(&Fact::Published { notification });
        let run = |subject: &mut S| subject.session_mut().publish(notification, now);
        let reached = self.call(now, "publish", run);
        self.after();
        reached
    }

    /// [`Session::notify`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn notify(&mut self, notification: Notification, now: Instant) -> Result<(), SendError> {
        let run = |subject: &mut S| subject.session_mut().notify(notification, now);
        let done = self.call(now, "notify", run);
        self.after();
        done
    }

    /// [`Session::set_alarm`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn set_alarm(&mut self, at: Instant) -> Result<AlarmId, TooManyAlarms> {
        let run = |subject: &mut S| subject.session_mut().set_alarm(at);
        let made = self.call(self.now, "set_alarm", run);
        if let Ok(id) = &made {
            self.see(&Fact::AlarmSet { id: *id, at_once: at <= self.now });
            self.ids.alarms.push(*id);
        }
        self.after();
        made
    }

    /// [`Session::clear_alarm`].
    #[track_caller]
    pub fn clear_alarm(&mut self, id: AlarmId) {
        self.ids.alarms.retain(|set| *set != id);
        self.call(self.now, "clear_alarm", |subject| subject.session_mut().clear_alarm(id));
        self.after();
    }

    /// [`Session::close`].
    #[track_caller]
    pub fn close(&mut self, how: Close, now: Instant) {
        self.see(&Fact::Closing { is_graceful: matches!(how, Close::Graceful { .. }) });
        self.call(now, "close", |subject| subject.session_mut().close(how, now));
        self.after();
    }

    /// [`Session::claim`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn claim(&mut self, agent: Identity, capabilities: Capabilities, at_millis: u64, now: Instant) -> Result<(), SendError> {
        let run = |subject: &mut S| subject.session_mut().claim(agent, capabilities, at_millis, now);
        let done = self.call(now, "claim", run);
        self.after();
        done
    }

    /// [`Session::welcome`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn welcome(&mut self, answer: Result<Welcome, RpcError>, now: Instant) -> Result<(), NotLive> {
        let run = |subject: &mut S| subject.session_mut().welcome(answer, now);
        let done = self.call(now, "welcome", run);
        self.after();
        done
    }

    // ---- Lanes ----

    /// [`Session::set_writable`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        let name = format!("set_writable {lane} {is_writable}");
        let run = |subject: &mut S| subject.set_writable(lane, is_writable, now);
        let done = self.call(now, &name, run);
        // An error means that the lane is not open. The judge must then forget that it was stopped, but not record a new stop.
        if is_writable || done.is_ok() {
            self.see(&Fact::Writable { lane, is_writable });
        }
        self.after();
        done
    }

    /// [`Session::handle_gone`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn handle_gone(&mut self, gone: Gone, now: Instant) -> Result<(), NotLive> {
        let name = match gone {
            Gone::Lane(lane) => format!("handle_gone {lane}"),
            _ => "handle_gone".to_owned(),
        };
        let run = |subject: &mut S| match gone {
            Gone::Lane(lane) => subject.lose_lane(lane, now),
            _ => subject.session_mut().handle_gone(gone, now),
        };
        let done = self.call(now, &name, run);
        if done.is_ok() {
            self.see(&Fact::Gone { gone });
        }
        if let (Gone::Lane(lane), Ok(())) = (gone, done) {
            // A lane that is lost is no longer stopped.
            self.see(&Fact::Writable { lane, is_writable: true });
            if self.is_tesseron() {
                self.see(&Fact::LaneLost { lane });
            }
        }
        self.after();
        done
    }

    /// Loses the exchange of a call, so that its reply cannot arrive.
    pub(crate) fn lose_exchange(&mut self, id: OutboundId, now: Instant) {
        let _ = self.handle_gone(Gone::Exchange(ExchangeId::from_number(number(id))), now);
    }

    fn is_open(&self, lane: Lane) -> bool {
        self.subject.clone().session_mut().set_writable(lane, true, self.now).is_ok()
    }

    /// Returns `true` if the session has closed the lane, and the event about it was not polled yet.
    fn is_given_up(&self, lane: Lane) -> bool {
        let mut twin = self.subject.clone();
        std::iter::from_fn(|| twin.session_mut().poll_event())
            .any(|event| matches!(event, Event::LaneClosed { lane: closed, .. } if closed == lane))
    }

    // ---- Input ----

    /// [`Session::handle_end`].
    #[track_caller]
    pub fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.see(&Fact::Ended { end });
        self.call(now, "handle_end", |subject| subject.handle_end(end, now));
        self.after();
    }

    /// [`Session::handle_timeout`].
    #[track_caller]
    pub fn handle_timeout(&mut self, now: Instant) {
        self.see(&Fact::Timeout { now, due: self.subject.poll_timeout() });
        self.call(now, "handle_timeout", |subject| subject.handle_timeout(now));
        self.after();
    }

    /// [`Session::handle_frame`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn handle_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        self.take_frame(frame, lane, now, |subject, frame| subject.handle_frame(frame, lane, now))
    }

    /// [`Session::handle_frame_within`].
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn handle_frame_within(
        &mut self,
        frame: Bytes,
        lane: Lane,
        exchange: Option<ExchangeId>,
        now: Instant,
    ) -> Result<Received, Full> {
        if exchange.is_none() {
            return self.handle_frame(frame, lane, now);
        }
        self.take_frame(frame, lane, now, |subject, frame| subject.session_mut().handle_frame_within(frame, lane, exchange, now))
    }

    #[track_caller]
    fn take_frame(
        &mut self,
        frame: Bytes,
        lane: Lane,
        now: Instant,
        take: impl FnOnce(&mut S, Bytes) -> Result<Received, Full>,
    ) -> Result<Received, Full> {
        let session = self.subject.session();
        let (wanted, closed, before) = (session.wants_input(lane), session.is_closed(), self.subject.stats());
        let copy = frame.clone();
        let is_given_up = lane != Lane::CHANNEL && !self.is_open(lane) && self.is_given_up(lane);
        if let Some(shared) = &self.shared {
            let mut shared = lock(shared);
            shared.altered |= !shared.sent.contains(&copy);
            if shared.altered {
                self.judge.distrust_peer();
            }
        }
        self.now = self.now.max(now);
        let received = match self.run("handle_frame", |subject| take(subject, frame)) {
            Ok(received) => received,
            Err(full) => {
                assert!(!wanted && full.0 == copy, "a frame was refused although input was wanted");
                return Err(full);
            }
        };
        assert!(wanted || closed, "a frame was taken although no input was wanted");
        self.note(|| match lane {
            Lane::CHANNEL => format!("handle_frame {}", String::from_utf8_lossy(&copy)),
            _ => format!("handle_frame by {lane} {}", String::from_utf8_lossy(&copy)),
        });
        if is_given_up {
            assert_eq!(received, Received::default(), "a frame of a lane that was given up is dropped until its event is polled");
            self.after();
            return Ok(received);
        }
        if !closed {
            let effect = Effect::between(&before, &self.subject.stats(), received);
            self.see(&Fact::Received { frame: &copy, lane, effect });
        }
        self.after();
        Ok(received)
    }

    /// Passes a frame to the session as if the other end had sent it.
    pub(crate) fn handle_injected(&mut self, frame: Bytes, lane: Lane, now: Instant) {
        if let Some(shared) = &self.shared {
            lock(shared).sent.insert(frame.clone());
        }
        self.handle_frame(frame, lane, now).expect("input is wanted");
    }

    // ---- Output ----

    /// [`Session::poll_transmit`].
    #[track_caller]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let out = self.run("poll_transmit", Subject::poll_transmit);
        if let Some(out) = &out {
            let max_depth = self.subject.session().config().depth.max;
            let (text, lane) = (String::from_utf8_lossy(&out.frame), out.route.lane);
            self.note(|| if lane == Lane::CHANNEL { format!("> {text}") } else { format!("> by {lane} {text}") });
            if let Some(shared) = &self.shared {
                lock(shared).sent.insert(out.frame.clone());
            }
            self.see(&Fact::Sent { transmit: out, max_depth });
        }
        self.after();
        out
    }

    /// [`Session::poll_transmits`], but also with the frames of lanes other than the channel.
    #[track_caller]
    pub fn poll_transmits(&mut self, into: &mut impl FrameSink) -> bool {
        into.fill(|into| self.poll_transmit().map(|out| into.push(out.frame)).is_some())
    }

    /// [`Session::release_memory`].
    pub fn release_memory(&mut self) {
        self.subject.session_mut().release_memory();
    }

    /// [`Session::poll_event`].
    #[track_caller]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.run("poll_event", Subject::poll_event);
        if let Some(event) = &event {
            self.note(|| format!("{event:?}"));
        }
        if let Some(event) = &event {
            if let Some(shared) = &self.shared {
                let shared = lock(shared);
                // These violations occur although both ends keep the rules. The handler of a cancelled call still counts toward the
                // callee's limit, when the call no longer counts toward the caller's. If the link is stopped or has ended, a ping stays
                // unanswered, and a subscription unacknowledged.
                let is_fault = !matches!(
                    event,
                    Event::Violation(
                        Violation::TooManyRequests | Violation::PingUnanswered | Violation::SubscriptionUnacknowledged
                    )
                );
                let is_excused = matches!(event, Event::Violation(Violation::WrongDirection)) && self.judge.has_left_a_handshake();
                // A client whose probe was not answered in time makes a handshake, even at a server that has only stateless requests.
                let config = self.subject.session().config();
                let is_server = matches!(config.protocol, Protocol::Mcp { side: Side::Server, .. });
                let is_modern = config.era == Era::Modern && is_server;
                let is_excused = is_excused || (is_modern && matches!(event, Event::Violation(Violation::InvalidParams)));
                let is_fault = is_fault && !is_excused && event.violation().is_some() && !shared.altered && !shared.unfaithful;
                assert!(!is_fault, "two proper ends keep the rules: {event:?}");
            }
            let max_depth = self.subject.session().config().depth.max;
            self.see(&Fact::Polled { event, max_depth });
            if let Event::LaneClosed { lane, .. } = event {
                self.see(&Fact::LaneLost { lane: *lane });
            }
            if let Some(rule) = event.violation() {
                assert!(self.subject.stats().violations(rule) > 0, "a violation was reported, but not counted: {rule}");
            }
            self.update_ids(event);
        }
        self.after();
        event
    }

    /// [`Session::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.subject.poll_timeout()
    }

    /// [`Session::wants_input`].
    pub fn wants_input(&self, lane: Lane) -> bool {
        self.subject.session().wants_input(lane)
    }

    // ---- State ----

    /// [`Session::is_ready`].
    pub fn is_ready(&self) -> bool {
        self.subject.session().is_ready()
    }

    /// Returns `true` if this end can call the other. A server of stateless requests is never ready itself, since it has no handshake.
    pub(crate) fn has_met(&self, server: &Self) -> bool {
        self.is_ready() && (server.is_ready() || self.era() == Some(Era::Modern))
    }

    /// [`Session::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.subject.session().is_closed()
    }

    /// [`Session::era`].
    pub fn era(&self) -> Option<Era> {
        self.subject.session().era()
    }

    /// [`Session::peer`].
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.subject.session().peer()
    }

    /// [`Session::config`].
    pub fn config(&self) -> &Config {
        self.subject.session().config()
    }

    /// [`Session::stats`].
    pub fn stats(&self) -> Stats {
        self.subject.stats()
    }

    /// [`Session::time`].
    pub fn time(&self) -> Instant {
        self.subject.session().time()
    }

    /// [`Session::lane`].
    pub fn lane(&self, id: InboundId) -> Option<Lane> {
        self.subject.session().lane(id)
    }

    /// [`Session::has_calls`].
    pub fn has_calls(&self) -> bool {
        self.subject.session().has_calls()
    }

    /// [`Session::unread_events`].
    pub fn unread_events(&self) -> usize {
        self.subject.session().unread_events()
    }

    /// [`Session::replies_owed`].
    pub fn replies_owed(&self, lane: Lane) -> usize {
        self.subject.session().replies_owed(lane)
    }

    /// [`Session::input_mode`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn input_mode(&self, id: InboundId) -> Result<InputMode, NotLive> {
        self.subject.session().input_mode(id)
    }

    /// [`Session::check_round_input`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn check_round_input(&self, id: InboundId, ask: &InputRequest) -> Result<u8, AskError> {
        self.subject.session().check_round_input(id, ask)
    }

    fn update_ids(&mut self, event: &Event) {
        let ids = &mut self.ids;
        match event {
            Event::Request { id, request, .. } => {
                ids.inbound_calls.push(*id);
                ids.subscriptions.extend((request.op() == Op::Listen).then_some((*id, false)));
            }
            Event::Cancelled { id, .. } => ids.subscriptions.retain(|(open, _)| open != id),
            Event::Input { key, .. } => {
                ids.input_requests.retain(|open| open != key);
                ids.last_ended.2 = Some(*key);
            }
            Event::InputRequested { key, ask, .. } => ids.peer_input_requests.push((*key, summary::ask(ask))),
            Event::InputGone { key } => ids.peer_input_requests.retain(|(open, _)| open != key),
            Event::Done { id, .. } => {
                ids.outbound_calls.retain(|open| open != id);
                ids.last_ended.0 = Some(*id);
            }
            Event::Alarm(id) => ids.alarms.retain(|set| set != id),
            _ => {}
        }
    }

    /// Checks that the session has closed with every call done, and that no deadline is left. Poll all events first.
    #[track_caller]
    pub fn check_end(&self) {
        must(self.judge.see_end(self.subject.poll_timeout()));
    }
}

#[track_caller]
fn must(verdict: Verdict) {
    if let Err(objection) = verdict {
        panic!("{objection}");
    }
}

/// All frames and events that a session returns now, and its next deadline.
fn output<S: Subject>(subject: &mut S) -> String {
    let due = subject.poll_timeout();
    let frames: Vec<_> = std::iter::from_fn(|| subject.poll_transmit()).take(1_000).collect();
    let events: Vec<_> = std::iter::from_fn(|| subject.poll_event()).take(1_000).collect();
    format!("{due:?} {frames:?} {events:?}")
}

impl<S: Subject> Machine for Watched<S> {
    type Event = Event;

    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        Self::handle_frame(self, frame, Lane::CHANNEL, now).map(|_| ())
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        Self::handle_end(self, end, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        Self::poll_transmit(self)
    }

    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.subject.poll_timeout()
    }

    fn wants_input(&self) -> bool {
        self.subject.session().wants_input(Lane::CHANNEL)
    }

    fn is_closed(&self) -> bool {
        self.subject.session().is_closed()
    }

    fn frame_limit(&self) -> usize {
        self.subject.session().config().limits.frame_bytes
    }

    fn register_waker(&mut self, _waker: &Waker) {}
}

/// Returns `true` if one of the time limits is zero, so that a call is over when it begins.
fn is_over_at_once(timeouts: CallTimeouts) -> bool {
    [timeouts.idle, timeouts.max_total].iter().flatten().any(std::time::Duration::is_zero)
}
