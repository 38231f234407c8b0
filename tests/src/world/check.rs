//! The guarantees, watched at the boundary of a session: every verb, every frame and every event passes here, is compared with the
//! [model](super::model) and judged by the [`Judge`], who knows nothing but what has crossed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::drive::Machine;
use protocol_core::{
    AlarmId, Answer, Ask, Close, Config, Event, ExchangeId, Full, Gone, InboundId, InputKey, Instant, Invoke, Json, Lane, Level,
    LogRecord, NotLive, Notice, OutboundId, Outcome, Progress, Protocol, Received, Reply, ReplyKind, Route, RouteKind,
    ServeOptions, Session, Transmit, TransportEnd, Violation,
};
use serde_json::Value;

use super::model::{Answered, Model};
use super::told;
use crate::tesseron::{agent, agent_capabilities};

/// What is watched: a session, or something around one that is broken on purpose. Each verb is that of [`Session`] unless a wrapper says
/// otherwise.
pub trait Subject: Clone + Debug {
    /// The session inside.
    fn session(&self) -> &Session;
    /// The session inside.
    fn session_mut(&mut self) -> &mut Session;
    /// [`Session::handle_frame`].
    ///
    /// # Errors
    /// As there.
    fn handle_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        self.session_mut().handle_frame(frame, lane, now)
    }
    /// [`Session::set_writable`].
    ///
    /// # Errors
    /// As there.
    fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        self.session_mut().set_writable(lane, is_writable, now)
    }
    /// [`Session::handle_gone`] of a lane.
    ///
    /// # Errors
    /// As there.
    fn lose_lane(&mut self, lane: Lane, now: Instant) -> Result<(), NotLive> {
        self.session_mut().handle_gone(Gone::Lane(lane), now)
    }
    /// [`Session::handle_timeout`].
    fn handle_timeout(&mut self, now: Instant) {
        self.session_mut().handle_timeout(now);
    }
    /// [`Session::handle_end`].
    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.session_mut().handle_end(end, now);
    }
    /// [`Session::poll_transmit`].
    fn poll_transmit(&mut self) -> Option<Transmit> {
        self.session_mut().poll_transmit()
    }
    /// [`Session::poll_event`].
    fn poll_event(&mut self) -> Option<Event> {
        self.session_mut().poll_event()
    }
    /// [`Session::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        self.session().poll_timeout()
    }
}

impl Subject for Session {
    fn session(&self) -> &Session {
        self
    }
    fn session_mut(&mut self) -> &mut Session {
        self
    }
}

/// What both ends of a world have in common.
#[derive(Debug, Default)]
pub struct Shared {
    /// Frames that were sent: whatever else arrives was altered on its way.
    sent: HashSet<Bytes>,
    /// Something that was not sent has arrived. From then on there are no models, only the judges.
    pub altered: bool,
    /// Frames came twice, in another order, not at all, or from somebody else: then rules may be broken without our ends' fault.
    pub unfaithful: bool,
}

/// What a judge remembers of what has crossed. Hashable, since what it would object to later is part of a state that is explored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Judge {
    calls: BTreeSet<u64>,
    newest: u64,
    /// Invocations that run, and the lanes of their requests.
    live_serves: BTreeMap<u64, Lane>,
    cancelled_serves: BTreeSet<u64>,
    /// The lanes of requests that were taken in and whose news are still to come.
    arrived: VecDeque<Lane>,
    /// Lanes beside the channel by which invocations came.
    served: BTreeSet<Lane>,
    /// Lanes whose frames may not leave.
    stopped: BTreeSet<Lane>,
    /// Lanes by which nothing leaves until something comes by them again.
    gone: BTreeSet<Lane>,
    questions: BTreeMap<u64, u64>,
    /// Requests of ours on the wire.
    requests: Requests,
    /// Requests of the peer that may be answered, oldest first. A peer that uses an id or a name again may do so while the answer to its
    /// first use waits to leave: then only the newest runs.
    pending: Vec<Pending>,
    closed: bool,
    /// A damaged frame could not be read here: it may have been a request.
    missed: bool,
}

/// Requests of ours that have left. Those that are over differ in nothing that anybody could object to later, so they have no part in what
/// a judge is.
#[derive(Clone, Debug, Default)]
struct Requests {
    all: BTreeSet<u64>,
    /// The lanes of questions.
    lanes: BTreeMap<u64, Lane>,
    /// Neither cancelled nor answered.
    open: BTreeSet<u64>,
}

impl PartialEq for Requests {
    fn eq(&self, other: &Self) -> bool {
        self.open == other.open
    }
}

impl Eq for Requests {}

impl Hash for Requests {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.open.hash(state);
    }
}

/// A request of the peer that may be answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    /// The lane that it came by.
    lane: Lane,
    id: String,
    /// It began an invocation.
    taken: bool,
    /// What its progress is called, if it was taken in.
    token: Option<String>,
    /// The bits of the last value.
    last: Option<u64>,
}

/// What the application at one end knows, for choosing what to do next.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Calls that are not done.
    pub calls: Vec<OutboundId>,
    /// Invocations whose handler runs, cancelled or not.
    pub serves: Vec<InboundId>,
    /// Questions that were asked and not answered.
    pub questions: Vec<InputKey>,
    /// Questions of the peer.
    pub asked: Vec<(InputKey, &'static str)>,
    /// Alarms that were set.
    pub alarms: Vec<AlarmId>,
    /// The newest of each that has ended: for verbs that come too late.
    pub gone: (Option<OutboundId>, Option<InboundId>, Option<InputKey>),
}

/// Arguments with everything that a careless hand would change.
pub const ODD: &str = r#"{ "n" : 1.50e+3, "u":"\u00e9\ud83d\ude00 é","d":1,"d":2 , "z":[ ] }"#;
/// A result with the same.
pub const ODD_RESULT: &str = r#"{"content":[ ],"odd":{ "n" : 1.50e+3, "u":"\u00e9\ud83d\ude00 é","d":1,"d":2 , "z":[ ] }}"#;

/// A session with somebody who watches it. Objections are panics that begin with the guarantee.
#[derive(Clone, Debug)]
pub struct Watched<S> {
    subject: S,
    model: Option<Model>,
    /// What has crossed, as the judge remembers it.
    pub judge: Judge,
    /// What the application knows.
    pub known: Known,
    /// Everything that happened, in order, if it is kept.
    pub trace: Option<Vec<String>>,
    shared: Option<Rc<RefCell<Shared>>>,
    /// Looks after every verb whether a needless `handle_timeout` is invisible. Slow.
    pub probes: bool,
    now: Instant,
    timed: Option<Instant>,
}

impl<S: Subject> Watched<S> {
    /// Watches a session that began at `now`.
    pub fn new(subject: S, now: Instant, shared: Option<Rc<RefCell<Shared>>>) -> Self {
        let config: &Config = subject.session().config();
        let model = Model::new(config, now.as_micros());
        let (judge, known) = (Judge::default(), Known::default());
        let watched =
            Self { subject, model: Some(model), judge, known, trace: Some(Vec::new()), shared, probes: false, now, timed: None };
        watched.agree();
        watched
    }

    /// Returns `true` if it speaks Tesseron.
    pub fn is_tesseron(&self) -> bool {
        matches!(self.subject.session().config().protocol, Protocol::Tesseron(_))
    }

    /// What is watched.
    pub fn subject(&self) -> &S {
        &self.subject
    }

    /// The prediction, unless it was given up.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// Does without the prediction: only the judge goes on.
    pub fn forget_model(&mut self) {
        self.model = None;
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{} {}", self.now.as_micros(), what()));
        }
    }

    /// Runs a verb on the session and on the model, and compares.
    fn verb(
        &mut self,
        now: Instant,
        name: &str,
        run: impl FnOnce(&mut S) -> Answered,
        predict: impl FnOnce(&mut Model) -> Answered,
    ) -> Answered {
        self.now = self.now.max(now);
        let got = run(&mut self.subject);
        self.note(|| format!("{name} -> {got:?}"));
        if let Some(model) = &mut self.model {
            assert_eq!(got, predict(model), "the model has another answer of `{name}`");
        }
        self.after();
        got
    }

    /// What must hold after every call.
    fn after(&mut self) {
        self.agree();
        if self.probes && self.subject.poll_timeout().is_none_or(|at| at > self.now) {
            let mut twin = self.subject.clone();
            twin.handle_timeout(self.now);
            assert_eq!(format!("{twin:?}"), format!("{:?}", self.subject), "G8: a needless handle_timeout changed something");
        }
    }

    fn agree(&self) {
        let session = self.subject.session();
        let (stats, limits, due) = (session.stats(), &session.config().limits, self.subject.poll_timeout());
        assert!(stats.outbound_calls <= limits.in_flight && stats.inbound_calls <= limits.in_flight, "G5: {stats:?}");
        assert!(stats.orphans <= stats.inbound_calls && stats.queued_bytes <= limits.output_bytes_hard, "G5: {stats:?}");
        if let Some(timed) = self.timed {
            assert!(due.is_none_or(|due| due > timed), "G7: a deadline at {due:?} after handle_timeout({timed})");
        }
        assert!(!self.judge.closed || due.is_none(), "G4: a deadline after the end");
        if let Some(model) = &self.model {
            assert_eq!(due.map(Instant::as_micros), model.poll_timeout(), "the model has another deadline");
            assert_eq!((stats.outbound_calls, stats.inbound_calls, stats.orphans), model.sizes(), "the model has other tables");
            assert_eq!(
                session.wants_input(Lane::CHANNEL),
                model.wants_input(Lane::CHANNEL),
                "the model differs about wanting input"
            );
            for lane in model.open_lanes() {
                assert_eq!(session.replies_owed(lane), model.replies_owed(lane), "the model differs about what {lane} is owed");
                assert_eq!(session.wants_input(lane), model.wants_input(lane), "the model differs about input by {lane}");
            }
            assert_eq!(session.is_closed(), model.is_closed(), "the model differs about the end");
        }
    }

    fn check_new(&mut self, id: u64) {
        assert!(id > self.judge.newest, "G1: an id was used twice");
        self.judge.newest = id;
    }

    // ---- The verbs ----

    /// [`Session::invoke`].
    pub fn invoke(&mut self, call: Invoke, now: Instant) -> Option<OutboundId> {
        let mut made = None;
        let copy = call.clone();
        let run = |subject: &mut S| match subject.session_mut().invoke(call, now) {
            Ok(id) => {
                made = Some(id);
                Ok(told::number(id))
            }
            Err(refused) => Err(format!("{:?}", refused.why)),
        };
        let result = self.verb(now, "invoke", run, |model| model.invoke(&copy, now.as_micros()));
        if let Ok(id) = result {
            self.check_new(id);
            self.judge.calls.insert(id);
        }
        self.known.calls.extend(made);
        made
    }

    /// [`Session::cancel`].
    pub fn cancel(&mut self, id: OutboundId, now: Instant) {
        let run = |subject: &mut S| answered(subject.session_mut().cancel(id, Some("why"), now));
        let _ = self.verb(now, "cancel", run, |model| model.cancel(told::number(id), now.as_micros()));
    }

    /// [`Session::provide_input`].
    pub fn provide_input(&mut self, key: InputKey, answer: Answer, now: Instant) {
        self.known.asked.retain(|(open, _)| *open != key);
        let copy = answer.clone();
        let run = |subject: &mut S| answered(subject.session_mut().provide_input(key, answer, now));
        let _ = self.verb(now, "provide_input", run, |model| model.provide_input(told::number(key), &copy, now.as_micros()));
    }

    /// [`Session::configure`].
    pub fn configure(&mut self, id: InboundId, options: ServeOptions, now: Instant) {
        let run = |subject: &mut S| answered(subject.session_mut().configure(id, options, now));
        let _ = self.verb(now, "configure", run, |model| model.configure(told::number(id), options, now.as_micros()));
    }

    /// [`Session::progress`].
    pub fn progress(&mut self, id: InboundId, update: Progress, now: Instant) {
        let copy = update.clone();
        let run = |subject: &mut S| match subject.session_mut().progress(id, update, now) {
            Ok(reported) => Err(format!("{reported:?}")),
            Err(error) => Err(format!("{error:?}")),
        };
        let _ = self.verb(now, "progress", run, |model| model.progress(told::number(id), &copy, now.as_micros()));
    }

    /// [`Session::checkpoint`] of an object.
    pub fn checkpoint(&mut self, id: InboundId, partial: Json) {
        let run = |subject: &mut S| answered(subject.session_mut().checkpoint(id, partial));
        let _ = self.verb(self.now, "checkpoint", run, |model| model.checkpoint(told::number(id)));
    }

    /// [`Session::request_input`].
    pub fn request_input(&mut self, id: InboundId, ask: Ask, now: Instant) -> Option<InputKey> {
        let mut made = None;
        let copy = ask.clone();
        let run = |subject: &mut S| match subject.session_mut().request_input(id, ask, now) {
            Ok(key) => {
                made = Some(key);
                Ok(told::number(key))
            }
            Err(error) => Err(format!("{error:?}")),
        };
        let result = self.verb(now, "request_input", run, |model| model.request_input(told::number(id), &copy, now.as_micros()));
        if let Ok(key) = result {
            self.check_new(key);
            self.judge.questions.insert(key, told::number(id));
            let lane = self.judge.live_serves.get(&told::number(id)).copied();
            self.judge.requests.lanes.extend(lane.map(|lane| (key, lane)));
        }
        self.known.questions.extend(made);
        made
    }

    /// [`Session::abandon_input`].
    pub fn abandon_input(&mut self, key: InputKey, now: Instant) {
        let run = |subject: &mut S| answered(subject.session_mut().abandon_input(key, now));
        let taken = self.verb(now, "abandon_input", run, |model| model.abandon_input(told::number(key), now.as_micros()));
        if taken.is_ok() {
            self.judge.questions.remove(&told::number(key));
            self.known.questions.retain(|open| *open != key);
        }
    }

    /// [`Session::respond`]. It succeeds exactly if the invocation was neither answered nor cancelled.
    pub fn respond(&mut self, id: InboundId, reply: Reply, now: Instant) {
        let copy = reply.clone();
        let run = |subject: &mut S| answered(subject.session_mut().respond(id, reply, now));
        let result = self.verb(now, "respond", run, |model| model.respond(told::number(id), &copy, now.as_micros()));
        // One that is cancelled, but not yet told so, stays: the news are still to come.
        let was_live = self.judge.live_serves.contains_key(&told::number(id)) || result.is_err();
        if result.is_ok() {
            self.judge.live_serves.remove(&told::number(id));
        }
        assert!(was_live, "G2: {id} was answered although it was over");
        self.judge.cancelled_serves.remove(&told::number(id));
        self.known.serves.retain(|open| *open != id);
        self.known.gone.1 = Some(id);
    }

    /// [`Session::log`], perhaps on behalf of an invocation.
    pub fn log(&mut self, id: Option<InboundId>, now: Instant) {
        let record = LogRecord { level: Level::Warning, logger: None, data: Json::null() };
        let copy = record.clone();
        let run = |subject: &mut S| match subject.session_mut().log(id, record, now) {
            Ok(logged) => Err(format!("{logged:?}")),
            Err(error) => Err(format!("{error:?}")),
        };
        let _ = self.verb(now, "log", run, |model| model.log(id.map(told::number), &copy, now.as_micros()));
    }

    /// [`Session::notify`] with news of ours.
    pub fn notify(&mut self, now: Instant) {
        let notice = Notice::Custom { method: "notifications/x".into(), params: None };
        let run = |subject: &mut S| answered(subject.session_mut().notify(notice, now));
        let _ = self.verb(now, "notify", run, |model| model.notify("notifications/x", now.as_micros()));
    }

    /// [`Session::set_alarm`].
    pub fn set_alarm(&mut self, at: Instant) {
        let mut made = None;
        let run = |subject: &mut S| match subject.session_mut().set_alarm(at) {
            Ok(id) => {
                made = Some(id);
                Ok(told::number(id))
            }
            Err(error) => Err(format!("{error:?}")),
        };
        if let Ok(id) = self.verb(self.now, "set_alarm", run, |model| model.set_alarm(at.as_micros())) {
            self.check_new(id);
        }
        self.known.alarms.extend(made);
    }

    /// [`Session::clear_alarm`].
    pub fn clear_alarm(&mut self, id: AlarmId) {
        self.known.alarms.retain(|set| *set != id);
        let run = |subject: &mut S| {
            subject.session_mut().clear_alarm(id);
            Ok(0)
        };
        let _ = self.verb(self.now, "clear_alarm", run, |model| {
            model.clear_alarm(told::number(id));
            Ok(0)
        });
    }

    /// [`Session::close`]; no grace is [`Close::Now`].
    pub fn close(&mut self, grace: Duration, now: Instant) {
        let how = if grace.is_zero() { Close::Now } else { Close::Graceful { grace } };
        let run = |subject: &mut S| {
            subject.session_mut().close(how, now);
            Ok(0)
        };
        let _ = self.verb(now, "close", run, |model| {
            model.close(grace, now.as_micros());
            Ok(0)
        });
    }

    /// [`Session::claim`], for an agent that can answer everything.
    pub fn claim(&mut self, now: Instant) {
        let run = |subject: &mut S| answered(subject.session_mut().claim(agent(), agent_capabilities(), 1, now));
        let _ = self.verb(now, "claim", run, |model| model.claim(now.as_micros()));
    }

    // ---- Lanes ----

    /// [`Session::set_writable`]. Says whether the lane is open.
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> bool {
        let run = |subject: &mut S| answered(subject.set_writable(lane, is_writable, now));
        let name = format!("set_writable {lane} {is_writable}");
        let result = self.verb(now, &name, run, |model| model.set_writable(lane, is_writable, now.as_micros()));
        if is_writable {
            self.judge.stopped.remove(&lane);
        } else if result.is_ok() {
            self.judge.stopped.insert(lane);
        }
        result.is_ok()
    }

    /// [`Session::handle_gone`] of a lane. Says whether it was open.
    pub fn lose_lane(&mut self, lane: Lane, now: Instant) -> bool {
        let run = |subject: &mut S| answered(subject.lose_lane(lane, now));
        let name = format!("handle_gone {lane}");
        let result = self.verb(now, &name, run, |model| model.handle_gone(Gone::Lane(lane), now.as_micros()));
        if result.is_ok() {
            self.judge.stopped.remove(&lane);
        }
        if result.is_ok() && self.is_tesseron() {
            self.judge.lose(lane);
        }
        result.is_ok()
    }

    /// [`Session::handle_gone`] of the way by which the reply to a call was to come.
    pub fn lose_exchange(&mut self, id: OutboundId, now: Instant) {
        let gone = Gone::Exchange(ExchangeId::from_number(told::number(id)));
        let run = |subject: &mut S| answered(subject.session_mut().handle_gone(gone, now));
        let _ = self.verb(now, "handle_gone", run, |model| model.handle_gone(gone, now.as_micros()));
    }

    fn is_open(&self, lane: Lane) -> bool {
        self.subject.clone().session_mut().set_writable(lane, true, self.now).is_ok()
    }

    /// Its end waits to be heard.
    fn is_given_up(&self, lane: Lane) -> bool {
        let mut twin = self.subject.clone();
        std::iter::from_fn(|| twin.session_mut().poll_event())
            .any(|event| matches!(event, Event::LaneClosed { lane: closed, .. } if closed == lane))
    }

    /// Lanes that are done are forgotten, and others are not.
    ///
    /// # Panics
    /// If the model differs about that.
    pub fn check_lanes(&self, lanes: impl Iterator<Item = Lane>) {
        let Some(model) = &self.model else { return };
        let mut twin = self.subject.clone();
        for lane in lanes {
            let is_open = twin.session_mut().set_writable(lane, true, self.now).is_ok();
            assert_eq!(is_open, model.is_open(lane) && !model.is_closed(), "the model differs about whether {lane} is open");
        }
    }

    // ---- What happens outside ----

    /// [`Session::handle_end`].
    pub fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        let run = |subject: &mut S| {
            subject.handle_end(end, now);
            Ok(0)
        };
        let _ = self.verb(now, "handle_end", run, |model| {
            model.handle_end(end, now.as_micros());
            Ok(0)
        });
    }

    /// [`Session::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.timed = self.timed.max(Some(now));
        let run = |subject: &mut S| {
            subject.handle_timeout(now);
            Ok(0)
        };
        let _ = self.verb(now, "handle_timeout", run, |model| {
            model.handle_timeout(now.as_micros());
            Ok(0)
        });
    }

    /// [`Session::handle_frame`] by the channel.
    ///
    /// # Errors
    /// As there.
    pub fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        self.handle_frame_by(frame, Lane::CHANNEL, now)
    }

    /// [`Session::handle_frame`].
    ///
    /// # Errors
    /// As there.
    pub fn handle_frame_by(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<(), Full> {
        let session = self.subject.session();
        let (wanted, closed, before) = (session.wants_input(lane), session.is_closed(), session.stats());
        let copy = frame.clone();
        let is_given_up = lane != Lane::CHANNEL && !self.is_open(lane) && self.is_given_up(lane);
        if let Some(shared) = &self.shared {
            let mut shared = shared.borrow_mut();
            shared.altered |= !shared.sent.contains(&copy);
            if shared.altered {
                self.model = None;
            }
        }
        self.now = self.now.max(now);
        let received = match self.subject.handle_frame(frame, lane, now) {
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
            assert_eq!(received, Received::default(), "a frame of a lane that was given up is dropped until that is heard");
            self.after();
            return Ok(());
        }
        if let Some(model) = &mut self.model {
            let text = std::str::from_utf8(&copy).expect("a frame that was sent is UTF-8");
            assert_eq!(model.wants_input(lane), wanted, "the model differs about input by {lane}");
            let replies = model.handle_frame(text, lane, now.as_micros());
            assert_eq!(received.replies, replies, "the model differs about the replies to {text}");
        }
        self.after();
        if !closed {
            let (stats, altered) = (self.subject.session().stats(), self.is_altered());
            let was_cancelled = stats.orphans > before.orphans;
            let is_duplicate = stats.violations(Violation::DuplicateRequest) > before.violations(Violation::DuplicateRequest);
            let was_dropped = is_duplicate && stats.queued_bytes == before.queued_bytes;
            let was_taken = stats.inbound_calls > before.inbound_calls;
            let heard = Heard { lane, received, was_taken, was_cancelled, was_dropped, altered };
            self.judge.hear(&copy, heard);
        }
        Ok(())
    }

    /// A frame of somebody else arrives: it counts as sent.
    ///
    /// # Panics
    /// If no input is wanted.
    pub fn handle_injected(&mut self, frame: Bytes, lane: Lane, now: Instant) {
        if let Some(shared) = &self.shared {
            shared.borrow_mut().sent.insert(frame.clone());
        }
        self.handle_frame_by(frame, lane, now).expect("input is wanted");
    }

    // ---- What there is to do ----

    /// [`Session::poll_transmit`].
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let out = self.subject.poll_transmit();
        let text = out.as_ref().map(|out| String::from_utf8(out.frame.to_vec()).expect("G13: frames are UTF-8"));
        let route = out.as_ref().map(|out| out.route);
        if let Some(text) = &text {
            let lane = route.map_or(Lane::CHANNEL, |route| route.lane);
            self.note(|| if lane == Lane::CHANNEL { format!("> {text}") } else { format!("> by {lane} {text}") });
        }
        if let Some(model) = &mut self.model {
            let predicted = model.poll_transmit(route.map(|route| route.lane));
            let said =
                text.as_deref().zip(route).map(|(text, route)| format!("{} as {}", told::frame(text), told::part(route.kind)));
            assert_eq!(said, predicted, "the model has another frame: {text:?}");
        }
        if let (Some(out), Some(text)) = (&out, &text) {
            if let Some(shared) = &self.shared {
                shared.borrow_mut().sent.insert(out.frame.clone());
            }
            let depth = self.subject.session().config().depth.max;
            let altered = self.is_altered();
            self.judge.say(text, out.route, depth, altered);
        }
        self.after();
        out
    }

    fn is_altered(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.borrow().altered)
    }

    fn is_unfaithful(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.borrow().unfaithful)
    }

    /// [`Session::poll_event`].
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.subject.poll_event();
        if let Some(event) = &event {
            self.note(|| format!("{event:?}"));
        }
        if let Some(model) = &mut self.model {
            assert_eq!(event.as_ref().map(told::event), model.poll_event(), "the model has another event: {event:?}");
        }
        if let Some(event) = &event {
            let (depth, altered) = (self.subject.session().config().depth.max, self.is_altered());
            let faithful = !altered && !self.is_unfaithful();
            self.judge.told(event, depth, faithful);
            if let Event::LaneClosed { lane, .. } = event {
                self.judge.lose(*lane);
            }
            self.learn(event);
        }
        self.after();
        event
    }

    fn learn(&mut self, event: &Event) {
        let known = &mut self.known;
        match event {
            Event::Request { id, .. } => known.serves.push(*id),
            Event::Input { key, .. } => {
                known.questions.retain(|open| open != key);
                known.gone.2 = Some(*key);
            }
            Event::InputRequested { key, ask, .. } => known.asked.push((*key, told::ask(ask))),
            Event::InputGone { key } => known.asked.retain(|(open, _)| open != key),
            Event::Done { id, .. } => {
                known.calls.retain(|open| open != id);
                known.gone.0 = Some(*id);
            }
            Event::Alarm(id) => known.alarms.retain(|set| set != id),
            _ => {}
        }
    }

    /// What must hold once the session has closed and its last event was polled.
    pub fn check_end(&self) {
        assert!(self.judge.closed, "the session does not close");
        assert!(self.judge.calls.is_empty(), "G1: never done: {:?}", self.judge.calls);
        assert_eq!(self.subject.poll_timeout(), None, "G4");
    }
}

fn answered<E: Debug>(result: Result<(), E>) -> Answered {
    result.map(|()| 0).map_err(|error| format!("{error:?}"))
}

impl Judge {
    /// A frame leaves.
    fn say(&mut self, text: &str, Route { lane, kind, .. }: Route, max_depth: u8, altered: bool) {
        assert!(!self.closed, "G4: a frame after the end: {text}");
        assert!(!self.stopped.contains(&lane), "routes: it leaves although {lane} is stopped: {text}");
        assert!(!self.gone.contains(&lane), "routes: it leaves although {lane} is gone: {text}");
        let belongs = |expected: Lane, part: bool| {
            assert!(lane == expected && part, "routes: it belongs to {expected} and leaves by {lane} as {kind:?}: {text}");
        };
        assert!(!text.contains(['\n', '\r']), "G13: one frame is one line: {text:?}");
        let frame: Value = serde_json::from_str(text).expect("G13: every frame is JSON");
        let params = &frame["params"];
        match (frame["method"].as_str(), frame.get("id")) {
            (Some(_), Some(id)) => {
                let id = id.as_u64().expect("ids of ours are numbers");
                assert!(self.requests.all.insert(id), "G2: an id was used twice: {text}");
                self.requests.open.insert(id);
                match self.requests.lanes.get(&id) {
                    Some(lane) => belongs(*lane, kind == RouteKind::Within),
                    None => belongs(Lane::CHANNEL, kind == RouteKind::Request(ExchangeId::from_number(id))),
                }
                let depth = params["_meta"]["protocol-core/samplingDepth"].as_u64().unwrap_or(0);
                assert!(depth <= max_depth.into(), "G12: {text}");
            }
            (Some("notifications/cancelled" | "actions/cancel"), None) => {
                let named = || params["invocationId"].as_str()?.strip_prefix("inv_")?.parse().ok();
                let request = params["requestId"].as_u64().or_else(named).filter(|id| self.requests.all.contains(id));
                let Some(id) = request else { panic!("G2: a cancel without a request: {text}") };
                assert!(self.requests.open.remove(&id), "G2: cancelled although it was cancelled or answered: {text}");
                match self.requests.lanes.get(&id) {
                    Some(lane) => belongs(*lane, kind == RouteKind::Within),
                    None => belongs(Lane::CHANNEL, kind == RouteKind::Cancel(ExchangeId::from_number(id))),
                }
            }
            (Some(method @ ("notifications/progress" | "actions/progress")), None) => {
                let is_percent = method == "actions/progress";
                let token = Some(params[if is_percent { "invocationId" } else { "progressToken" }].to_string());
                let value = params[if is_percent { "percent" } else { "progress" }].as_f64();
                assert!(!is_percent || value.is_none_or(|value| (0.0..=100.0).contains(&value)), "G3: no percent: {text}");
                // The oldest of that name: what a newer one says leaves behind the answer to it.
                let of_name = |pending: &&mut Pending| pending.token == token && pending.lane == lane;
                let Some(pending) = self.pending.iter_mut().find(of_name) else {
                    if self.missed {
                        return;
                    }
                    if let Some(other) = self.pending.iter().find(|pending| pending.token == token) {
                        belongs(other.lane, false);
                    }
                    panic!("G3: progress before its request or after its end: {text}")
                };
                belongs(pending.lane, kind == RouteKind::Within);
                let Some(value) = value else {
                    assert!(is_percent, "G3: progress without a value: {text}");
                    return;
                };
                let rises = pending.last.is_none_or(|last| value > f64::from_bits(last));
                assert!(altered || rises, "G3: not above the last value: {text}");
                pending.last = Some(value.to_bits());
            }
            (None, Some(id)) if !id.is_null() => {
                let id = id.to_string();
                let oldest = self.pending.iter().position(|pending| pending.id == id && pending.lane == lane);
                if oldest.is_none()
                    && !self.missed
                    && let Some(other) = self.pending.iter().find(|pending| pending.id == id)
                {
                    belongs(other.lane, false);
                }
                let Some(pending) = oldest.map(|at| self.pending.remove(at)) else {
                    assert!(self.missed, "G2: an answer that nobody waits for: {text}");
                    return;
                };
                let is_error = frame.get("error").is_some();
                let part = match kind {
                    RouteKind::Answer(_) => !pending.taken,
                    RouteKind::Reply(ReplyKind::Result) => !is_error,
                    RouteKind::Reply(ReplyKind::Error) => is_error && pending.taken,
                    RouteKind::Reply(ReplyKind::Refused) => is_error && !pending.taken,
                    _ => false,
                };
                belongs(pending.lane, part);
            }
            // What is no answer and has no id is news, or a log record.
            (Some("log" | "notifications/message"), None) if kind == RouteKind::Within => {
                let is_known = lane == Lane::CHANNEL || self.served.contains(&lane);
                assert!(is_known, "routes: a log record by {lane}, by which no invocation came: {text}");
                if let Some(name) = params.get("invocationId").map(Value::to_string) {
                    let of_name = |pending: &Pending| pending.token.as_ref() == Some(&name) && pending.lane == lane;
                    let is_known = altered || self.missed || self.pending.iter().any(of_name);
                    assert!(is_known, "routes: a log record by {lane} of another invocation: {text}");
                }
            }
            (Some(_), None) => belongs(Lane::CHANNEL, kind == RouteKind::Notice),
            _ => {}
        }
    }

    /// Nothing more leaves by a lane for what came by it.
    fn lose(&mut self, lane: Lane) {
        self.pending.retain(|pending| pending.lane != lane);
        self.stopped.remove(&lane);
        self.gone.insert(lane);
    }

    /// A frame was read.
    fn hear(&mut self, frame: &[u8], heard: Heard) {
        let Heard { lane, received, was_taken: taken, was_cancelled: cancelled, was_dropped: dropped, altered } = heard;
        self.gone.remove(&lane);
        if taken {
            self.arrived.push_back(lane);
            self.served.extend(Some(lane).filter(|lane| *lane != Lane::CHANNEL));
        }
        let Ok(frame) = serde_json::from_slice::<Value>(frame) else {
            // Half a surrogate pair is JSON by its grammar, and a session reads it, but it is no text of ours.
            self.missed = true;
            return;
        };
        let params = &frame["params"];
        // What was damaged so that it is no request any longer is answered nevertheless if it has an id.
        let is_request = frame.get("method").is_some() || (frame.get("result").is_none() && frame.get("error").is_none());
        let is_owed = frame.get("id").is_some() && is_request && !dropped;
        assert!(altered || received.replies == usize::from(is_owed), "routes: {received:?} for {frame}");
        match frame.get("id") {
            Some(id) if (is_request || altered) && !dropped => {
                let token = params["_meta"].get("progressToken").or_else(|| params.get("invocationId")).map(Value::to_string);
                self.pending.push(Pending { lane, id: id.to_string(), taken, token: token.filter(|_| taken), last: None });
            }
            _ if cancelled && frame["method"] == "notifications/cancelled" => {
                let id = params["requestId"].to_string();
                // By its own lane, or else by any.
                let runs = |pending: &Pending| pending.id == id && pending.taken;
                let of_lane = self.pending.iter().rposition(|pending| runs(pending) && pending.lane == lane);
                if let Some(newest) = of_lane.or_else(|| self.pending.iter().rposition(runs)) {
                    self.pending.remove(newest);
                }
            }
            _ => {}
        }
    }

    /// An event was polled. `faithful`: the link has done nothing wrong so far.
    fn told(&mut self, event: &Event, max_depth: u8, faithful: bool) {
        assert!(!self.closed, "G4: an event after the end: {event:?}");
        match event {
            Event::Request { id, request, .. } => {
                let params = request.params();
                let lane = self.arrived.pop_front().unwrap_or(Lane::CHANNEL);
                assert!(self.live_serves.insert(told::number(id), lane).is_none(), "G2: {id} twice");
                assert!(!faithful || params.as_str().contains(ODD), "G13: {}", params.as_str());
            }
            Event::Cancelled { id, .. } => {
                assert!(self.live_serves.remove(&told::number(id)).is_some(), "cancelled although it is over: {id}");
                self.cancelled_serves.insert(told::number(id));
            }
            Event::Input { id, key, .. } => {
                let asker = self.questions.remove(&told::number(key));
                assert_eq!(asker, Some(told::number(id)), "G1: an answer that nobody waits for: {event:?}");
            }
            Event::InputRequested { ask: Ask::Sample(_), depth, .. } => {
                assert!((1..=max_depth).contains(depth), "G12: {event:?}");
            }
            Event::Progress { id, .. } => assert!(self.calls.contains(&told::number(id)), "progress after the end: {event:?}"),
            Event::Done { id, outcome, .. } => {
                assert!(self.calls.remove(&told::number(id)), "G1: done twice, or never begun: {event:?}");
                if matches!(outcome, Outcome::Result(_) | Outcome::Error(_)) {
                    self.requests.open.remove(&told::number(id));
                }
                if let (Outcome::Result(result), true) = (outcome, faithful) {
                    let text = result.as_str();
                    let output = format!(r#""output":{ODD}}}"#);
                    let is_plain = !text.contains("odd") && (!text.contains("output") || text.ends_with(r#""output":"ok"}"#));
                    assert!(is_plain || text == ODD_RESULT || text.ends_with(&output), "G13: {text}");
                }
            }
            // A cancelled handler keeps its place with the callee while the caller's is free again; and people may pull the plug.
            Event::Violation(Violation::TooManyRequests | Violation::PingUnanswered) => {}
            Event::Violation(rule) => assert!(!faithful, "two of our own ends keep the rules: {rule}"),
            Event::Closed(_) => self.closed = true,
            _ => {}
        }
    }
}

/// What became of a frame that was read.
#[derive(Clone, Copy, Debug)]
struct Heard {
    lane: Lane,
    received: Received,
    /// It began an invocation.
    was_taken: bool,
    /// It made one an orphan.
    was_cancelled: bool,
    /// Its id was that of a request in flight, so it is never answered.
    was_dropped: bool,
    altered: bool,
}

impl<S: Subject> Machine for Watched<S> {
    type Event = Event;

    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        Self::handle_frame(self, frame, now)
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

    fn register(&mut self, _waker: &Waker) {}
}
