//! An endpoint: the machine that a driver turns, and the one place where the session's events become what people hold.

use core::fmt;
use core::task::Waker;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::client::{Client, InputContext, answer, serve};
use crate::context::Context;
use crate::extensions::Extensions;
use crate::peer::Peer;
use crate::service::{Service, Start};
use crate::state::diagnose::{self, Note};
use crate::state::{Alarmed, CallOutcome, Invocation, Question, ServeSlot, Shared, State};
use engine::Runtime;
use engine::{BlockingTask, End, Task, TaskOwner, drop_quietly};
use engine::{SendsEarly as _, each};
use protocol_core::config::Config;
use protocol_core::dialect::{Ask, LogRecord, Notice, Reply, Request, tesseron};
use protocol_core::drive::{FrameIo, Machine, Timer, TurnOutcome};
use protocol_core::error::RpcError;
use protocol_core::lines::LineEncoder;
use protocol_core::session::{
    CancelReason, CloseReason, Event, Full, Gone, InboundId, Lane, NotLive, Outcome, Received, Session, Transmit, TransportEnd,
};
use protocol_core::time::Instant;

/// One end of one channel. A [`Driver`](protocol_core::drive::Driver) turns it; [`Endpoint::peer`] gives the handle to call with.
///
/// Everything that its handles share is under one lock. Every verb locks, mutates, notes what the driver must hear of, unlocks and only
/// then wakes it, or sends for it what is alone on its way ([`drive`](crate::drive)); no code of the user runs under the lock, and
/// nothing is locked across a poll.
///
/// After the session has closed, the endpoint goes on until the handlers that were told to stop have ended or have used up their grace
/// ([`Timeouts::handler_grace`](protocol_core::Timeouts::handler_grace)): only then [`Machine::is_closed`]. The grace of each counts from when it was told: at its
/// cancel, at its deadline, or at the end of the session, which after the end of input comes when nothing runs any longer, at the
/// latest after [`Timeouts::close_grace`](protocol_core::Timeouts::close_grace). Dropping the endpoint is like a transport that failed: open calls end as
/// [`Outcome::Lost`], handlers are told, and dropped at their next await.
pub struct Endpoint {
    shared: Arc<Shared>,
    side: Side,
    /// The work that is done without the lock. Kept here and taken piece by piece, so that one that panics costs none of the others.
    work: VecDeque<Work>,
    /// The work that is done after everything that the events of the turn bring.
    late: VecDeque<Work>,
    /// The end, until it is handed out.
    end: Option<CloseReason>,
    /// Lanes that were given up, until they are handed out. Their frames are dropped.
    closed_lanes: VecDeque<Lane>,
    /// The last time that the driver gave.
    now: Instant,
    frame_limit: usize,
    /// In the last turn the session wanted input, and since then only verbs were called.
    wants_input: bool,
    /// Another waker of the driver.
    spare: Option<Waker>,
}

/// Pieces of work that are collected before the lock is let go to do them. Few: what one invocation gives back to the allocator, and
/// what is still in the cache, serves the next.
const WORK_AT_ONCE: usize = 6;

enum Side {
    Server(Arc<Service>),
    Client(Arc<dyn Client>),
}

/// Work that an event leaves, to be done once the lock is let go, in order.
enum Work {
    Wake(Waker),
    Serve(Arc<Invocation>, Request),
    Answer(Arc<Question>, Ask),
    // Boxed, since these are the largest and the rarest.
    Log(Box<LogRecord>),
    Notice(Box<Notice>),
    Diagnose(Note),
    /// A value that may hold a waker: dropped outside.
    Forget(Arc<Question>),
}

impl Endpoint {
    /// The end that serves `service`: an MCP server.
    #[must_use]
    pub fn server(service: Arc<Service>, runtime: Arc<dyn Runtime>) -> Self {
        let config = service.config();
        Self::new(Side::Server(service), config, runtime)
    }

    /// The end that serves `service` as `config` says: as an app of Tesseron with [`Service::app`], for one.
    #[must_use]
    pub fn serving(service: Arc<Service>, config: Config, runtime: Arc<dyn Runtime>) -> Self {
        Self::new(Side::Server(service), config, runtime)
    }

    /// The end that calls, and answers what the peer asks through `client`: an MCP client. What the client declares is its own to
    /// say, so the capabilities of `config` are replaced.
    #[must_use]
    pub fn client(client: Arc<dyn Client>, mut config: Config, runtime: Arc<dyn Runtime>) -> Self {
        config.capabilities = client.capabilities();
        config.custom_methods.extend(client.methods());
        Self::new(Side::Client(client), config, runtime)
    }

    fn new(side: Side, config: Config, runtime: Arc<dyn Runtime>) -> Self {
        let frame_limit = config.limits.frame_bytes;
        let now = runtime.now();
        let session = Session::new(config, now);
        Self {
            shared: Arc::new(Shared::new(State::new(session), runtime)),
            side,
            work: VecDeque::new(),
            late: VecDeque::new(),
            end: None,
            closed_lanes: VecDeque::new(),
            now,
            frame_limit,
            wants_input: false,
            spare: None,
        }
    }

    /// The handle of the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::new(Arc::clone(&self.shared))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes a frame that came by one of the lanes of a transport with many, and does at once what it asks for: what is answered in place
    /// is ready to be polled, by [`Machine::poll_transmit`], each frame with its route. Handlers of its requests see `extensions`
    /// ([`Context::extensions`](crate::Context::extensions)). Says how many replies the lane is owed. Lanes that are given up come by
    /// [`poll_closed_lane`](Self::poll_closed_lane).
    ///
    /// A [`Driver`](protocol_core::drive::Driver) needs none of this: it moves the frames of the channel.
    ///
    /// # Errors
    /// [`Full`] hands the frame back; see [`Session::handle_frame`].
    pub fn handle_frame_by(&mut self, frame: Bytes, lane: Lane, extensions: Extensions, now: Instant) -> Result<Received, Full> {
        // What came before has nothing to do with these values; and a panic may have left others.
        let stale = self.dispatch(true, |_, _| None, |state, _| state.arriving.take());
        drop(stale);
        if self.closed_lanes.contains(&lane) {
            return Ok(Received::default());
        }
        let mut received = Ok(Received::default());
        let attached = self.dispatch(
            true,
            |state, _| {
                received = state.session.handle_frame(frame, lane, now);
                state.arriving = Some((lane, extensions));
                Some(now)
            },
            |state, _| state.arriving.take(),
        );
        // Values of the transport are not dropped under the lock.
        drop(attached);
        received
    }

    /// Stops the frames of a lane, or lets them go on: [`Session::set_writable`].
    ///
    /// # Errors
    /// [`NotLive`] for a lane that is not open.
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        self.shared.lock().session.set_writable(lane, is_writable, now)
    }

    /// Notes that a part of the transport is gone: [`Session::handle_gone`].
    ///
    /// # Errors
    /// [`NotLive`] for what is not open.
    pub fn handle_gone(&mut self, gone: Gone, now: Instant) -> Result<(), NotLive> {
        let mut noted = Ok(());
        self.dispatch(
            true,
            |state, _| {
                noted = state.session.handle_gone(gone, now);
                Some(now)
            },
            |_, _| (),
        );
        noted
    }

    /// The next lane that was given up, since its peer does not read: it is to be hung up. Until it is polled, frames of it are dropped.
    #[must_use]
    pub fn poll_closed_lane(&mut self) -> Option<Lane> {
        self.dispatch(true, |_, _| None, |_, _| ());
        self.closed_lanes.pop_front()
    }

    /// The number of requests that came by a lane and wait for their reply: [`Session::replies_owed`].
    #[must_use]
    pub fn replies_owed(&self, lane: Lane) -> usize {
        self.shared.lock().session.replies_owed(lane)
    }

    /// Changes the state, takes every event of the session to where it belongs, a few at a time, and then looks at the state. The one
    /// place where that happens.
    ///
    /// `first` says what time it is, if it knows.
    ///
    /// `polling` says that the driver will ask for frames, too, before it waits: it need not be woken for those that come of this.
    fn dispatch<T>(
        &mut self,
        polling: bool,
        first: impl FnOnce(&mut State, &mut VecDeque<Work>) -> Option<Instant>,
        then: impl FnOnce(&mut State, Instant) -> T,
    ) -> T {
        // Until a turn says so again, also where a waker panics before that.
        self.wants_input = false;
        let mut state = self.shared.lock();
        self.now = first(&mut state, &mut self.late).unwrap_or(self.now);
        // Others may add events as fast as these are taken, so the last time takes all that there are, and is the last.
        for more in (0..=state.session.unread_events() / WORK_AT_ONCE).rev() {
            while (self.work.len() < WORK_AT_ONCE || more == 0)
                && let Some(event) = state.session.poll_event()
            {
                match event {
                    Event::Closed(reason) => self.end = Some(reason),
                    Event::LaneClosed { lane, .. } => self.closed_lanes.push_back(lane),
                    _ => {}
                }
                state.sort(&self.shared, event, self.now, &mut self.work);
            }
            if self.work.is_empty() {
                break;
            }
            state.driver.set_polling(polling);
            drop(state);
            while let Some(piece) = self.work.pop_front() {
                self.run(piece);
            }
            state = self.shared.lock();
        }
        // Also where a waker has panicked the last time.
        state.driver.set_polling(false);
        let value = then(&mut state, self.now);
        drop(state);
        value
    }

    /// Does the work that follows the events.
    fn run_late(&mut self) {
        while let Some(piece) = self.late.pop_front() {
            self.run(piece);
        }
    }

    /// A clone of the driver's waker. A wake takes the one that is parked, so the next is ready before the lock is taken.
    fn spare(&mut self, waker: &Waker) -> Option<Waker> {
        engine::spare(self.spare.take(), waker)
    }

    fn run(&mut self, piece: Work) {
        match piece {
            Work::Wake(waker) => waker.wake(),
            Work::Forget(question) => drop(question),
            Work::Diagnose(note) => note.tell(),
            Work::Serve(invocation, request) => {
                invocation.span.serve(invocation.id, &request, invocation.depth);
                match &self.side {
                    Side::Server(service) => self.serve(service, invocation, request),
                    Side::Client(client) => match request {
                        Request::Custom(request) => {
                            let serving = serve(Arc::clone(client), Context::new(Arc::clone(&invocation)), request);
                            self.shared.runtime().spawn(Box::pin(Task::new(invocation, serving)));
                        }
                        _ => invocation.respond(Reply::Error(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found"))),
                    },
                }
            }
            Work::Answer(question, ask) => match &self.side {
                Side::Server(_) => question.settle(End::Dropped),
                Side::Client(client) => {
                    question.span.answer(question.key, question.parent, &ask, question.depth);
                    let future = answer(Arc::clone(client), InputContext::new(Arc::clone(&question)), ask);
                    self.shared.runtime().spawn(Box::pin(Task::new(question, future)));
                }
            },
            // A service that needs the roots of its client asks for them anew each time.
            Work::Log(record) => {
                if let Side::Client(client) = &self.side {
                    self.tell(|| client.log(*record));
                }
            }
            Work::Notice(notice) => match &self.side {
                Side::Client(client) => self.tell(|| client.notice(*notice)),
                Side::Server(service) => self.tell(|| service.tell(*notice)),
            },
        }
    }

    fn serve(&self, service: &Service, invocation: Arc<Invocation>, request: Request) {
        let runtime = self.shared.runtime();
        match service.start(&invocation, request) {
            Start::Reply(reply) => invocation.respond(reply),
            Start::Task(task) => runtime.spawn(task),
            Start::Inline(handler, context, arguments) => {
                if let Some(task) = Task::begin_in_place(&invocation, || handler(context, arguments)) {
                    runtime.spawn(Box::pin(task));
                }
            }
            Start::Blocking(job) => {
                let task = BlockingTask::new(invocation, job);
                runtime.spawn_blocking(Box::new(move || task.run()));
            }
        }
    }

    /// Tells the user's code a piece of news. If it panics over that, the channel must go on.
    fn tell(&self, tell: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(tell)) {
            diagnose::panicked(&diagnose::Span::default(), &*panic);
            drop_quietly(panic);
            self.shared.look(|state| state.counters.panics = state.counters.panics.saturating_add(1));
        }
    }
}

/// Drives `endpoint` to its end: all is written, its handlers have ended and the transport is closed. Gives the reason for which the session
/// closed.
///
/// If the transport allows it ([`FrameIo::sends_anywhere`]) and nothing waits to be written, a call beside which no other is held or on its
/// way, and the answer to the only one that is served, are written by the verb that makes or gives them. A panic of the transport is then
/// that of the future, when it is polled next. Turn a [`Driver`](protocol_core::drive::Driver) instead where the transport must stay on its
/// thread.
///
/// # Cancel safety
/// Not cancel safe: with the future the endpoint and the transport are dropped, calls are lost, and handlers are told and dropped at their
/// next await. Where a verb is writing at that very moment, a task of the runtime drops the transport, or, if it takes none any longer, the
/// verb.
///
/// # Errors
/// The first error of the transport.
pub fn drive<I, T>(endpoint: Endpoint, transport: I, timer: T) -> impl Future<Output = Result<CloseReason, I::Error>>
where
    I: FrameIo<Error: Send> + Send + 'static,
    T: Timer + Send + 'static,
{
    let peer = endpoint.peer();
    let shared = Arc::clone(endpoint.shared());
    let driven = engine::drive(endpoint, &shared, transport, timer);
    async move {
        driven.await?;
        Ok(peer.closed().await)
    }
}

impl Machine for Endpoint {
    /// Nothing is handed out but the end; everything else goes to calls, handlers and the [`Client`].
    type Event = CloseReason;

    fn handle_frame(&mut self, frame: Bytes, now: Instant) -> Result<(), Full> {
        self.now = now;
        self.wants_input = false;
        self.shared.lock().session.handle_frame(frame, Lane::CHANNEL, now).map(drop)
    }

    fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        self.now = now;
        self.wants_input = false;
        self.shared.lock().session.handle_end(end, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.dispatch(
            true,
            |state, late| {
                state.handle_timeout(now, late);
                Some(now)
            },
            |_, _| (),
        );
        self.run_late();
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        // What a handler answers in place goes out in the same turn.
        self.dispatch(true, |_, _| None, |state, _| state.session.poll_transmit())
    }

    fn poll_event(&mut self) -> Option<CloseReason> {
        self.dispatch(false, |_, _| None, |_, _| ());
        self.end.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.shared.lock().arm()
    }

    fn wants_input(&self) -> bool {
        // Beside closing the session, verbs can only take the last room for events: a frame that finds none is handed back.
        if self.wants_input { !self.shared.is_noted_closed() } else { self.shared.lock().session.wants_input(Lane::CHANNEL) }
    }

    fn is_closed(&self) -> bool {
        self.shared.lock().is_over()
    }

    fn frame_limit(&self) -> usize {
        self.frame_limit
    }

    fn register(&mut self, waker: &Waker) {
        let mut spare = self.spare(waker);
        self.shared.look(|state| state.driver.park(waker, &mut spare));
        self.spare = spare;
    }

    fn turn(
        &mut self,
        waker: &Waker,
        frames: &mut VecDeque<Bytes>,
        clock: &dyn Fn() -> Instant,
        room: Option<&mut LineEncoder>,
    ) -> TurnOutcome<CloseReason> {
        let mut spare = self.spare(waker);
        let (standing, has_events) = self.dispatch(
            true,
            |state, late| {
                state.driver.park(waker, &mut spare);
                let now = clock();
                state.session.handle_frames(frames, now);
                // Where no frame tells the time, the deadline of what is written next must not count from a time before.
                if !state.session.wants_input(Lane::CHANNEL) || state.wanted().is_some_and(|at| at <= now) {
                    state.handle_timeout(now, late);
                }
                Some(now)
            },
            |state, now| state.finish_turn(now, room),
        );
        self.spare = spare;
        self.wants_input = standing.wants_input;
        self.run_late();
        if has_events {
            waker.wake_by_ref();
        }
        TurnOutcome { event: self.end.take(), ..standing }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let now = self.shared.runtime().now();
        // What a panic left comes first.
        let mut work = core::mem::take(&mut self.work);
        work.append(&mut self.late);
        {
            let mut state = self.shared.lock();
            let state = &mut *state;
            state.session.handle_end(TransportEnd::Failed, now);
            while let Some(event) = state.session.poll_event() {
                state.sort(&self.shared, event, now, &mut work);
            }
            state.driver_gone = true;
            add(&mut work, state.driver.take().map(Work::Wake));
            for alarm in state.alarms.take() {
                if let Alarmed::Sleeper(Some(waker)) = alarm {
                    work.push_back(Work::Wake(waker));
                }
            }
            for slot in state.serves.values_mut() {
                slot.grace = None;
                slot.abandon(&mut state.counters.abandoned, &mut work);
            }
            for (_, question) in state.questions.iter() {
                add(&mut work, question.abort_handle().abort().map(Work::Wake));
            }
        }
        each(work, |piece| match piece {
            // What has not begun will not begin.
            Work::Serve(invocation, ..) => invocation.settle(End::Dropped),
            Work::Answer(question, _) => question.settle(End::Dropped),
            piece => self.run(piece),
        });
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match &self.side {
            Side::Server(_) => "server",
            Side::Client(_) => "client",
        };
        f.debug_struct("Endpoint").field("side", &side).finish_non_exhaustive()
    }
}

impl State {
    /// It is `now`, by the last that the driver and the session have heard.
    fn sort(&mut self, shared: &Arc<Shared>, event: Event, now: Instant, work: &mut VecDeque<Work>) {
        let now = now.max(self.session.time());
        let grace_ends = || now.saturating_add(self.handler_grace);
        match event {
            Event::Ready(_) => {
                self.ready = true;
                work.extend(self.on_change.take().map(Work::Wake));
            }
            Event::Request { id, request, caller, depth, observed } => {
                let extensions = self.extensions_of(id);
                let invocation = Arc::new(Invocation::new(Arc::clone(shared), id, depth, observed, caller, extensions));
                self.serves.insert(id, ServeSlot::new(Arc::clone(&invocation)));
                work.push_back(Work::Serve(invocation, request));
            }
            Event::Cancelled { id, why } => self.cancel(id, why, grace_ends(), work),
            Event::Input { id, key, answer } => {
                let waits = self.serves.get_mut(&id).and_then(|slot| slot.waits.as_mut());
                let input = waits.and_then(|waits| waits.inputs.iter_mut().find(|(asked, _)| *asked == key));
                // The call that asked may be over by now.
                if let Some((_, input)) = input {
                    input.answer = Some(answer);
                    add(work, input.waker.take().map(Work::Wake));
                }
            }
            Event::InputRequested { key, parent, ask, depth } => {
                let question = Arc::new(Question::new(Arc::clone(shared), key, parent, depth));
                self.questions.insert(key, Arc::clone(&question));
                work.push_back(Work::Answer(question, ask));
            }
            Event::InputGone { key } => {
                if let Some(question) = self.questions.end(&key, |question| Arc::clone(question)) {
                    add(work, question.abort_handle().abort().map(Work::Wake));
                    work.push_back(Work::Forget(question));
                }
            }
            Event::Progress { id, progress } => {
                // A call whose handle was dropped has no slot.
                if let Some(slot) = self.calls.get_mut(&id) {
                    slot.unread.get_or_insert_default().push(progress, &mut self.counters);
                    if slot.wants_progress {
                        add(work, slot.waiting().map(Work::Wake));
                    }
                }
            }
            Event::Done { id, outcome, partial, last } => {
                if let Some(slot) = self.calls.get_mut(&id) {
                    add(work, Note::call_ended(id, &mut slot.span, &outcome).map(Work::Diagnose));
                    add(work, slot.end(CallOutcome::new(outcome, partial, last)).map(Work::Wake));
                }
            }
            Event::Log(record) => work.push_back(Work::Log(Box::new(record))),
            Event::Notice(notice) => work.push_back(Work::Notice(Box::new(notice))),
            Event::Closed(reason) => {
                add(work, Note::closed(reason).map(Work::Diagnose));
                self.close(reason, grace_ends(), work);
            }
            // The session has counted it.
            Event::Violation(rule) => add(work, Note::violation(rule).map(Work::Diagnose)),
            Event::HandshakeRefused(error) => {
                add(work, Note::refused(&error).map(Work::Diagnose));
                self.refusal = Some(error);
            }
            // The capabilities of the peer are read from the session.
            Event::PeerChanged(_) => {}
            Event::HandshakeRequest { .. } => {
                // The owner of all channels decides which sessions may come back.
                let error = RpcError::fixed(tesseron::code::UNAUTHORIZED, "this gateway takes nobody in");
                let _ = self.session.welcome(Err(error), now);
            }
            // Alarms of the session, which the endpoint never sets.
            _ => {}
        }
    }

    /// Work that follows the events that it brings goes to `late`: a sleeper finds the deadline that came with its alarm.
    fn handle_timeout(&mut self, now: Instant, late: &mut VecDeque<Work>) {
        // The session first: of a call's deadline and a handler's alarm at the same time, the deadline counts.
        self.session.handle_timeout(now);
        while let Some(alarm) = self.alarms.due(now) {
            match alarm {
                Alarmed::Sleeper(waker) => add(late, waker.map(Work::Wake)),
                Alarmed::Grace(id) => self.abandon(id, late),
            }
        }
    }

    fn cancel(&mut self, id: InboundId, why: CancelReason, grace: Instant, work: &mut VecDeque<Work>) {
        let Some(slot) = self.serves.get_mut(&id) else { return };
        let note = Note::cancelled(&slot.invocation, &why);
        if slot.invocation.why.set(why).is_err() {
            return;
        }
        add(work, note.map(Work::Diagnose));
        slot.grace = Some(self.alarms.set(grace, Alarmed::Grace(id)));
        if let Some(waits) = &mut slot.waits {
            work.extend(waits.on_cancel.take().map(Work::Wake));
            work.extend(waits.waiting().map(Work::Wake));
        }
    }

    /// A handler has used up its grace.
    fn abandon(&mut self, id: InboundId, work: &mut VecDeque<Work>) {
        if let Some(slot) = self.serves.get_mut(&id) {
            slot.grace = None;
            slot.abandon(&mut self.counters.abandoned, work);
        }
    }

    /// By now the session has ended every call, told every handler and taken back every question; so this only makes sure.
    fn close(&mut self, reason: CloseReason, grace: Instant, work: &mut VecDeque<Work>) {
        self.closed = Some(reason);
        work.extend(self.on_change.take().map(Work::Wake));
        for slot in self.calls.values_mut() {
            if slot.is_open() {
                add(work, slot.end(CallOutcome::new(Outcome::Lost, None, None)).map(Work::Wake));
            }
        }
        // Those that have been told before are passed over.
        for id in self.serves.ids() {
            self.cancel(id, CancelReason::Disconnected, grace, work);
        }
        for (_, question) in self.questions.iter() {
            add(work, question.abort_handle().abort().map(Work::Wake));
            work.push_back(Work::Forget(Arc::clone(question)));
        }
        self.questions.clear();
    }
}

/// One piece, if there is one. Not by `extend`, which in a queue prepares for many, and nearly every event comes by here.
#[inline]
fn add(work: &mut VecDeque<Work>, piece: Option<Work>) {
    if let Some(piece) = piece {
        work.push_back(piece);
    }
}

impl ServeSlot {
    /// The handler is given up: it ends at its next await.
    fn abandon(&mut self, count: &mut u64, work: &mut VecDeque<Work>) {
        if core::mem::replace(&mut self.abandoned, true) {
            return;
        }
        *count = count.saturating_add(1);
        add(work, Note::abandoned(&self.invocation).map(Work::Diagnose));
        add(work, self.invocation.abort_handle().abort().map(Work::Wake));
    }
}
