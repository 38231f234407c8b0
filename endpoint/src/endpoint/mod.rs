//! The endpoint: a machine that passes the events of its session on to calls, handlers and the client.

mod begin;
mod replace;
mod work;

use core::fmt;
use core::future::poll_fn;
use core::task::Waker;
use core::time::Duration;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use self::begin::begin;
use self::replace::{Beginning, successor};
use self::work::{Work, add};
use crate::client::{Client, InputContext, answer, serve};
use crate::context::Context;
use crate::extensions::Extensions;
use crate::peer::Peer;
use crate::service::{Service, WatcherGuard};
use crate::state::diagnose::{self, Note};
use crate::state::rounds::InRounds;
use crate::state::{Alarmed, CallOutcome, Counters, ServedCall, ServedCallSlot, ServedInput, Shared, Span, State};
use engine::{Runtime, Task, TaskEnd, TaskOwner, drop_quietly};
use engine::{SendsEarly as _, each};
use protocol_core::config::Config;
use protocol_core::dialect::{Reply, Request, tesseron};
use protocol_core::drive::{Driver, FrameIo, LaneMachine, Machine, Timer, TurnOutcome};
use protocol_core::error::RpcError;
use protocol_core::json::Text;
use protocol_core::lines::LineEncoder;
use protocol_core::session::{
    CancelReason, Close, CloseReason, Event, ExchangeId, Full, Gone, InboundId, InputMode, Lane, NotLive, Outcome, Received,
    Session, Transmit, TransportEnd,
};
use protocol_core::time::Instant;

/// One end of a channel: a session with its handlers and calls, as a [`Machine`] for [`drive`](crate::drive) or a
/// [`Driver`]. [`Endpoint::peer`] returns the handle to call the peer with.
///
/// All its handles share one lock. Their methods change the state under the lock, and wake tasks or write frames after the lock is
/// released. No code of the application runs under the lock.
///
/// # The end
///
/// After the session has closed, cancelled handlers may still clean up, each for the grace
/// [`Timeouts::handler_grace`](protocol_core::Timeouts::handler_grace), counted from its cancellation. A handler with an effect under way
/// ([`Context::once`]) has a grace of at least 30 s. [`Machine::is_closed`] returns `true` once all handlers have ended or their grace has
/// passed. After the end of input, inbound calls may run for [`Timeouts::close_grace`](protocol_core::Timeouts::close_grace) (on Tesseron
/// they are cancelled at once). The session closes when no call runs and all frames were polled, at the latest after twice that time.
///
/// Dropping the endpoint has the effect of a failed transport: open calls end as [`Outcome::Lost`], and handlers are cancelled and dropped
/// at their next await point, without grace.
pub struct Endpoint {
    shared: Arc<Shared>,
    side: Side,
    /// The registration of this endpoint for changes of the service's catalog, which ends when it is dropped. `None` for a client, and if
    /// the catalog cannot change.
    watcher: Option<WatcherGuard>,
    /// The work to be done outside of the lock. A field, so that a piece of work that panics loses none of the pieces after it.
    work: VecDeque<Work>,
    /// Work to be done once all work in `work` is done.
    late: VecDeque<Work>,
    /// The reason for which the session closed, until the driver has polled it.
    end: Option<CloseReason>,
    /// Lanes that the session has closed, until they are polled. Their frames are dropped.
    closed_lanes: VecDeque<Lane>,
    /// A call was cancelled since the last [`Self::take_cancelled`].
    has_cancelled: bool,
    /// The time that the driver passed last.
    now: Instant,
    frame_limit: usize,
    /// [`Session::wants_input`] was `true` at the end of the last turn, and only verbs have changed the session since.
    wants_input: bool,
}

/// The number of pieces of work at which a batch ends. A batch is done before the next event is taken. Only the last batch of a turn takes
/// all events that are left. The number is small, so that a call reuses the memory of an earlier call while that memory is still in the
/// cache.
const MAX_WORK_AT_ONCE: usize = 6;

/// The shortest grace of a cancelled handler with an effect under way ([`Context::once`]).
const EFFECT_GRACE: Duration = Duration::from_secs(30);

enum Side {
    Server(Arc<Service>),
    Client(Arc<dyn Client>),
}

impl Endpoint {
    /// An endpoint that serves `service`: an MCP server.
    ///
    /// # Panics
    /// If a handler takes a [`State`](crate::State) that the service does not have ([`Service::check`]).
    #[must_use]
    #[track_caller]
    pub fn server(service: Arc<Service>, runtime: Arc<dyn Runtime>) -> Self {
        let config = service.shared_config();
        Self::serving(service, config, runtime)
    }

    /// An endpoint that serves `service` with the configuration `config`: for a Tesseron app, the configuration that [`Service::app`]
    /// returns. Endpoints can share one configuration.
    ///
    /// # Panics
    /// As [`Endpoint::server`].
    #[must_use]
    #[track_caller]
    pub fn serving(service: Arc<Service>, config: impl Into<protocol_core::Arc<Config>>, runtime: Arc<dyn Runtime>) -> Self {
        service.share();
        let round_setup = service.round_setup(&*runtime);
        let mut endpoint = Self::new(Side::Server(Arc::clone(&service)), config.into(), runtime);
        let effects = service.effects();
        endpoint.shared.with_state(|state| (state.round_setup, state.effects) = (round_setup, effects));
        endpoint.watcher = service.watch(endpoint.shared());
        endpoint
    }

    /// An endpoint that calls, and lets `client` answer the input requests of the peer: an MCP client. The capabilities in `config` are
    /// replaced by those of [`Client::capabilities`], and the methods of [`Client::methods`] are added to it.
    #[must_use]
    pub fn client(client: Arc<dyn Client>, mut config: Config, runtime: Arc<dyn Runtime>) -> Self {
        config.capabilities = client.capabilities();
        config.custom_methods.extend(client.methods());
        Self::new(Side::Client(client), config.into(), runtime)
    }

    fn new(side: Side, config: protocol_core::Arc<Config>, runtime: Arc<dyn Runtime>) -> Self {
        let frame_limit = config.limits.frame_bytes;
        let now = runtime.now();
        let session = Session::new(config, now);
        Self {
            shared: Arc::new(Shared::new(State::new(session), runtime)),
            side,
            watcher: None,
            work: VecDeque::new(),
            late: VecDeque::new(),
            end: None,
            closed_lanes: VecDeque::new(),
            has_cancelled: false,
            now,
            frame_limit,
            wants_input: false,
        }
    }

    /// The handle on the peer.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::new(Arc::clone(&self.shared))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Handles a frame of one lane, and starts the handlers of its requests. Replies that are ready at once can then be polled with
    /// [`Machine::poll_transmit`], each with its route. Handlers read `extensions` with
    /// [`Context::extensions`](crate::Context::extensions). Returns the number of replies that will be sent on the lane because of this
    /// frame. Frames of a lane that was closed are dropped until [`poll_closed_lane`](Self::poll_closed_lane) has returned that lane.
    ///
    /// This method is for transports with several lanes. A [`Driver`] uses lane 0 alone, through
    /// [`Machine::handle_frame`].
    ///
    /// # Errors
    /// [`Full`] returns the frame; see [`Session::handle_frame`].
    pub fn handle_frame_by(&mut self, frame: Bytes, lane: Lane, extensions: Extensions, now: Instant) -> Result<Received, Full> {
        self.receive(lane, extensions, now, |session| session.handle_frame(frame, lane, now))
    }

    /// Handles a frame that came on the stream of `exchange`, a request of ours, as over HTTP. If the frame is an input request that names
    /// no call, it belongs to the call of `exchange`; see [`Session::handle_frame_within`]. In all other respects equal to
    /// [`handle_frame_by`](Self::handle_frame_by) without extensions.
    ///
    /// # Errors
    /// [`Full`] returns the frame; see [`Session::handle_frame`].
    pub fn handle_frame_within(
        &mut self,
        frame: Bytes,
        lane: Lane,
        exchange: Option<ExchangeId>,
        now: Instant,
    ) -> Result<Received, Full> {
        self.receive(lane, Extensions::new(), now, |session| session.handle_frame_within(frame, lane, exchange, now))
    }

    fn receive(
        &mut self,
        lane: Lane,
        extensions: Extensions,
        now: Instant,
        handle_frame: impl FnOnce(&mut Session) -> Result<Received, Full>,
    ) -> Result<Received, Full> {
        // Earlier events are handled first, so that their requests do not get the extensions of this frame. Extensions that are left from
        // an earlier frame, if this method panicked then, are dropped.
        let stale = self.dispatch(true, |_, _| None, |state, _| state.arriving.take());
        drop(stale);
        if self.closed_lanes.contains(&lane) {
            return Ok(Received::default());
        }
        let mut received = Ok(Received::default());
        let attached = self.dispatch(
            true,
            |state, _| {
                received = handle_frame(&mut state.session);
                state.arriving = Some((lane, extensions));
                Some(now)
            },
            |state, _| state.arriving.take(),
        );
        // Dropped outside of the lock, since this may run code of the application.
        drop(attached);
        received
    }

    /// Stops the output of a lane, or resumes it; see [`Session::set_writable`].
    ///
    /// # Errors
    /// [`NotLive`] if the lane is not open.
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) -> Result<(), NotLive> {
        self.shared.lock().session.set_writable(lane, is_writable, now)
    }

    /// Handles the loss of a lane or of an exchange; see [`Session::handle_gone`].
    ///
    /// # Errors
    /// [`NotLive`] if the lane or the exchange is not open.
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

    /// Handles a response to a request of ours that will not come by any stream, for a reason that people can read: the call ends with
    /// [`CallError::Lost`](crate::CallError::Lost). In all other respects equal to [`handle_gone`](Self::handle_gone) with
    /// [`Gone::Response`].
    ///
    /// # Errors
    /// [`NotLive`] if the request is over.
    pub fn handle_lost(&mut self, exchange: ExchangeId, why: &str, now: Instant) -> Result<(), NotLive> {
        // Earlier events are handled first, so that no other call gets this reason.
        self.dispatch(true, |_, _| None, |_, _| ());
        let mut noted = Ok(());
        self.dispatch(
            true,
            |state, _| {
                noted = state.session.handle_gone(Gone::Response(exchange), now);
                state.loss = noted.is_ok().then(|| Text::from(why));
                Some(now)
            },
            |state, _| state.loss = None,
        );
        noted
    }

    /// Handles the failure of the transport for a reason that people can read: all calls end with
    /// [`CallError::Lost`](crate::CallError::Lost). In all other respects equal to [`Machine::handle_end`] with [`TransportEnd::Failed`].
    pub fn handle_failure(&mut self, why: &str, now: Instant) {
        self.shared.lock().loss = Some(Text::from(why));
        self.handle_end(TransportEnd::Failed, now);
    }

    /// The next lane that the session has closed because too much of its output was not read; `None` if there is none. The transport has to
    /// close the lane, too. Frames that arrive on the lane before this method has returned it are dropped.
    #[must_use]
    pub fn poll_closed_lane(&mut self) -> Option<Lane> {
        self.dispatch(true, |_, _| None, |_, _| ());
        self.closed_lanes.pop_front()
    }

    /// The number of requests of a lane that have no reply yet; see [`Session::replies_owed`].
    #[must_use]
    pub fn replies_owed(&self, lane: Lane) -> usize {
        self.shared.lock().session.replies_owed(lane)
    }

    /// Returns `true` if a call of the peer was cancelled since this method was last called. On MCP a call that its caller has cancelled
    /// gets no reply, so the number of [replies](Self::replies_owed) that its lane is owed may have decreased although no reply was sent.
    #[must_use]
    pub fn take_cancelled(&mut self) -> bool {
        self.dispatch(true, |_, _| None, |_, _| ());
        core::mem::take(&mut self.has_cancelled)
    }

    /// Changes the state with `first`, handles all events of the session, a few at a time, and then calls `then`.
    ///
    /// `first` returns the time, or `None` to keep the last one. `polling` means that the driver will poll for frames before it waits, so
    /// that the driver need not be woken for frames that are queued meanwhile.
    fn dispatch<T>(
        &mut self,
        polling: bool,
        first: impl FnOnce(&mut State, &mut VecDeque<Work>) -> Option<Instant>,
        then: impl FnOnce(&mut State, Instant) -> T,
    ) -> T {
        // The end of a turn sets this field again. A turn in which a waker panics does not reach its end, so the field stays `false`.
        self.wants_input = false;
        let mut state = self.shared.lock();
        self.now = first(&mut state, &mut self.late).unwrap_or(self.now);
        // Other threads may add events as fast as these are handled, so the number of batches is fixed beforehand. The last batch takes all
        // events that are left.
        for batches_left in (0..=state.session.unread_events() / MAX_WORK_AT_ONCE).rev() {
            while (self.work.len() < MAX_WORK_AT_ONCE || batches_left == 0)
                && let Some(event) = state.session.poll_event()
            {
                match event {
                    Event::Closed(reason) => self.end = Some(reason),
                    Event::LaneClosed { lane, .. } => self.closed_lanes.push_back(lane),
                    Event::Cancelled { .. } => self.has_cancelled = true,
                    _ => {}
                }
                state.handle_event(&self.shared, event, self.now, &mut self.work);
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
        // The flag may still be set, from the last batch, or from an earlier call in which a waker panicked.
        state.driver.set_polling(false);
        let value = then(&mut state, self.now);
        drop(state);
        value
    }

    /// Does the work in `late`.
    fn run_late(&mut self) {
        while let Some(piece) = self.late.pop_front() {
            self.run(piece);
        }
    }

    fn run(&mut self, piece: Work) {
        match piece {
            Work::Wake(_) | Work::Settle(_) | Work::Forget(_) | Work::Diagnose(_) => piece.finish(),
            Work::Serve(served, request) => {
                served.span.serve(served.id, &request, served.depth(), &served.caller);
                match &self.side {
                    Side::Server(service) => self.serve(service, served, request),
                    Side::Client(client) => match request {
                        Request::Custom(request) => {
                            let serving = serve(Arc::clone(client), Context::new(Arc::clone(&served)), request);
                            self.shared.runtime().spawn(Box::pin(Task::new(served, serving)));
                        }
                        _ => served.respond(Reply::Error(RpcError::fixed(RpcError::METHOD_NOT_FOUND, "method not found"))),
                    },
                }
            }
            Work::InputResponse(input_request, ask) => match &self.side {
                Side::Server(_) => input_request.settle(TaskEnd::Dropped),
                Side::Client(client) => {
                    input_request.span.answer(input_request.key, input_request.parent, &ask, input_request.depth);
                    let future = answer(Arc::clone(client), InputContext::new(Arc::clone(&input_request)), ask);
                    self.shared.runtime().spawn(Box::pin(Task::new(input_request, future)));
                }
            },
            Work::Log(record) => {
                if let Side::Client(client) = &self.side {
                    self.call_user(|| client.log(*record));
                }
            }
            Work::Unreadable(frame) => {
                if let Side::Client(client) = &self.side {
                    self.call_user(|| client.unreadable(&frame));
                }
            }
            Work::Notification(notification) => match &self.side {
                Side::Client(client) => self.call_user(|| client.notification(*notification)),
                Side::Server(service) => self.call_user(|| service.notified(*notification)),
            },
        }
    }

    fn serve(&self, service: &Arc<Service>, served: Arc<ServedCall>, request: Request) {
        if let Some(retry) = request.retry() {
            if let Err(refusal) = served.resume(retry) {
                return served.respond(Reply::Error(refusal));
            }
            let mut work = VecDeque::new();
            let older = self.shared.with_state(|state| state.replace_older(&served, self.now, &mut work));
            each(work, Work::finish);
            if !older.is_empty() {
                let beginning = Beginning { service: Arc::clone(service), served, request };
                return self.shared.runtime().spawn(successor(older, beginning));
            }
        }
        begin(&**self.shared.runtime(), service, served, request);
    }

    /// Calls code of the application. If the code panics, the panic is recorded, and the session goes on.
    fn call_user(&self, call: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            diagnose::panicked(&Span::default(), &*panic);
            drop_quietly(panic);
            self.shared.with_state(|state| state.counters.panics = state.counters.panics.saturating_add(1));
        }
    }
}

/// Drives `endpoint` over `transport` until the endpoint is closed, and returns the reason for which the session closed. By then all frames
/// are written, all handlers have ended or their grace has passed, and the transport is closed.
///
/// # Early sends
///
/// If the transport allows it ([`FrameIo::sends_anywhere`]), a frame may be written by the method that made it, on its thread, instead of
/// by this future: a call if no other is open, and the reply to the only call that is served. That saves a wake of the driver's task. If
/// the transport panics meanwhile, this future panics when it is polled next. If the transport must stay on one thread, use
/// [`drive_local`] instead.
///
/// # Cancel safety
/// Not cancel safe: dropping the future drops the endpoint and the transport. Calls end as lost, and handlers are cancelled and dropped at
/// their next await point. If an early send is under way at that moment, the endpoint and the transport are dropped by a new task of the
/// runtime, or by that send if the runtime starts no more tasks.
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

/// As [`drive`], for a transport or a timer that is not `Send`. Frames are written only when this future is polled.
///
/// # Cancel safety
/// Not cancel safe: dropping the future drops the endpoint and the transport, as for [`drive`].
///
/// # Errors
/// The first error of the transport.
pub async fn drive_local<I: FrameIo, T: Timer>(endpoint: Endpoint, transport: I, timer: T) -> Result<CloseReason, I::Error> {
    let peer = endpoint.peer();
    let mut driver = Driver::new(endpoint, transport, timer);
    while poll_fn(|cx| driver.poll_event(cx)).await?.is_some() {}
    drop(driver);
    Ok(peer.closed().await)
}

impl LaneMachine for Endpoint {
    fn handle_lane_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        self.handle_frame_by(frame, lane, Extensions::new(), now)
    }

    fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) {
        // It fails only for a lane that is not open.
        let _ = Self::set_writable(self, lane, is_writable, now);
    }

    fn replies_owed(&self, lane: Lane) -> usize {
        Self::replies_owed(self, lane)
    }

    fn poll_closed_lane(&mut self) -> Option<Lane> {
        Self::poll_closed_lane(self)
    }

    fn take_cancelled(&mut self) -> bool {
        Self::take_cancelled(self)
    }

    fn close(&mut self, how: Close, _: Instant) {
        self.peer().close(how);
    }
}

impl Machine for Endpoint {
    /// The end of the session. All other events go to calls, handlers and the [`Client`].
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
        // Events are handled first, so that replies which are made in place are sent in the same turn.
        self.dispatch(
            true,
            |_, _| None,
            |state, now| {
                state.send_changes(now);
                state.session.poll_transmit()
            },
        )
    }

    fn poll_event(&mut self) -> Option<CloseReason> {
        self.dispatch(false, |_, _| None, |_, _| ());
        self.end.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.shared.lock().arm()
    }

    fn wants_input(&self) -> bool {
        // No lock is needed after a turn. Verbs may have closed the session since then; `is_noted_closed` checks that without a lock. They
        // may also have used the last room for events, but then `handle_frame` returns the frame.
        if self.wants_input { !self.shared.is_noted_closed() } else { self.shared.lock().session.wants_input(Lane::CHANNEL) }
    }

    fn is_closed(&self) -> bool {
        self.shared.lock().is_over()
    }

    fn frame_limit(&self) -> usize {
        self.frame_limit
    }

    fn release_memory(&mut self) {
        self.shared.lock().session.release_memory();
    }

    fn register_waker(&mut self, waker: &Waker) {
        let mut parked = Some(waker.clone());
        self.shared.with_state(|state| state.driver.park(&mut parked));
    }

    fn turn(
        &mut self,
        waker: &Waker,
        frames: &mut VecDeque<Bytes>,
        clock: &dyn Fn() -> Instant,
        room: Option<&mut LineEncoder>,
    ) -> TurnOutcome<CloseReason> {
        let mut parked = Some(waker.clone());
        let (outcome, has_events) = self.dispatch(
            true,
            |state, late| {
                state.driver.park(&mut parked);
                let now = clock();
                state.session.handle_frames(frames, now);
                // `handle_timeout` also tells the session the time. A session that wants no input may have taken no frame, and would set
                // new deadlines relative to the time of an earlier turn.
                if !state.session.wants_input(Lane::CHANNEL) || state.driver_deadline().is_some_and(|at| at <= now) {
                    state.handle_timeout(now, late);
                }
                Some(now)
            },
            |state, now| state.finish_turn(now, room),
        );
        self.wants_input = outcome.wants_input;
        self.run_late();
        if has_events {
            waker.wake_by_ref();
        }
        TurnOutcome { event: self.end.take(), ..outcome }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.watcher.take());
        let now = self.shared.runtime().now();
        // Work that was not done because of a panic comes first.
        let mut work = core::mem::take(&mut self.work);
        work.append(&mut self.late);
        {
            let mut state = self.shared.lock();
            let state = &mut *state;
            state.session.handle_end(TransportEnd::Failed, now);
            while let Some(event) = state.session.poll_event() {
                state.handle_event(&self.shared, event, now, &mut work);
            }
            state.driver_gone = true;
            add(&mut work, state.driver.take().map(Work::Wake));
            for alarm in state.alarms.take() {
                if let Alarmed::Sleeper(Some(waker)) = alarm {
                    work.push_back(Work::Wake(waker));
                }
            }
            for slot in state.served_calls.values_mut() {
                abandon(slot, &mut state.counters, &mut work);
            }
            for (_, input_request) in state.input_requests.iter() {
                add(&mut work, input_request.abort_handle().abort().map(Work::Wake));
            }
        }
        each(work, |piece| match piece {
            // Handlers and answers that have not started will not start.
            Work::Serve(served, ..) => served.settle(TaskEnd::Dropped),
            Work::InputResponse(input_request, _) => input_request.settle(TaskEnd::Dropped),
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
    /// Handles one event: changes the state, and adds the work that is to be done outside of the lock. `now` is the time that the driver
    /// passed last; a verb may have passed a later time to the session.
    fn handle_event(&mut self, shared: &Arc<Shared>, event: Event, now: Instant, work: &mut VecDeque<Work>) {
        let now = now.max(self.session.time());
        let grace_ends = || now.saturating_add(self.handler_grace);
        match event {
            Event::Ready(_) => {
                self.ready = true;
                work.extend(self.on_change.take().map(Work::Wake));
            }
            Event::Request { id, request, caller, depth, observed } => {
                let extensions = self.extensions_of(id);
                // A request that was cancelled meanwhile has no input mode, but its handler still runs. If the request is stateless, the
                // handler may need the log in its sealed state.
                let mode = self.session.input_mode(id);
                let in_rounds =
                    self.round_setup.is_some() && mode.map_or_else(|_| caller.is_stateless(), |mode| mode == InputMode::Rounds);
                let in_rounds = in_rounds.then(|| InRounds::new(request.clone()));
                let served = Arc::new(ServedCall::new(Arc::clone(shared), id, depth, observed, caller, extensions, in_rounds));
                self.served_calls.insert(id, ServedCallSlot::new(Arc::clone(&served)));
                work.push_back(Work::Serve(served, request));
            }
            Event::Cancelled { id, why } => self.cancel(id, why, grace_ends(), work),
            Event::Input { id, key, answer } => {
                // The call may be over by now.
                let leftover = self.served_calls.get_mut(&id).map(|slot| slot.answered(key, answer));
                add(work, leftover.map(Work::Settle));
            }
            Event::InputRequested { key, parent, ask, depth } => {
                let input_request = Arc::new(ServedInput::new(Arc::clone(shared), key, parent, depth));
                self.input_requests.insert(key, Arc::clone(&input_request));
                work.push_back(Work::InputResponse(input_request, ask));
            }
            Event::InputGone { key } => {
                if let Some(input_request) = self.input_requests.end(&key, |input_request| Arc::clone(input_request)) {
                    add(work, input_request.abort_handle().abort().map(Work::Wake));
                    work.push_back(Work::Forget(input_request));
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
                    let why = if outcome == Outcome::Lost { self.loss.clone() } else { None };
                    add(work, slot.end(CallOutcome { outcome, partial, last, why }).map(Work::Wake));
                }
            }
            Event::Log(record) => work.push_back(Work::Log(Box::new(record))),
            Event::Notification(notification) => work.push_back(Work::Notification(Box::new(notification))),
            Event::Closed(reason) => {
                add(work, Note::closed(reason).map(Work::Diagnose));
                self.close(reason, grace_ends(), work);
            }
            Event::Violation(rule) => add(work, Note::violation(rule).map(Work::Diagnose)),
            Event::Unreadable(frame) => {
                add(work, Note::violation(frame.rule).map(Work::Diagnose));
                work.push_back(Work::Unreadable(frame));
            }
            Event::HandshakeRefused(error) => {
                add(work, Note::refused(&error).map(Work::Diagnose));
                self.refusal = Some(error);
            }
            Event::PeerChanged(peer) => self.changed_peer = Some(peer),
            Event::HandshakeRequest { .. } => {
                // An endpoint has one channel, so it cannot resume a session on another one.
                let error = RpcError::fixed(tesseron::code::UNAUTHORIZED, "this gateway accepts no sessions");
                let _ = self.session.welcome(Err(error), now);
            }
            // Events of features that an endpoint does not use.
            _ => {}
        }
    }

    /// Handles all deadlines that are due. The work of alarms goes to `late`, and is done after the work of events: if the deadline of a
    /// call passes at the same time as the alarm of its handler, the handler is cancelled before it is woken.
    fn handle_timeout(&mut self, now: Instant, late: &mut VecDeque<Work>) {
        self.session.handle_timeout(now);
        while let Some(alarm) = self.alarms.due(now) {
            match alarm {
                Alarmed::Sleeper(waker) => add(late, waker.map(Work::Wake)),
                Alarmed::Grace(id) => self.abandon(id, late),
            }
        }
    }

    fn cancel(&mut self, id: InboundId, why: CancelReason, grace_ends: Instant, work: &mut VecDeque<Work>) {
        let Some(slot) = self.served_calls.get_mut(&id) else { return };
        // An effect under way may be about to succeed, so its handler has a longer grace.
        let grace_ends = match slot.is_in_effect() {
            true => grace_ends.max(self.session.time().saturating_add(EFFECT_GRACE)),
            false => grace_ends,
        };
        let note = Note::cancelled(slot.served(), &why);
        // `None` if the call was cancelled before.
        let Some(leftover) = slot.cancel(why, || self.alarms.set(grace_ends, Alarmed::Grace(id))) else { return };
        add(work, note.map(Work::Diagnose));
        work.push_back(Work::Settle(leftover));
    }

    /// Ends the grace of a handler.
    fn abandon(&mut self, id: InboundId, work: &mut VecDeque<Work>) {
        if let Some(slot) = self.served_calls.get_mut(&id) {
            abandon(slot, &mut self.counters, work);
        }
    }

    /// Ends everything that is still open. Calls and input requests are ended here only as a safeguard, since the session has ended them by
    /// then.
    fn close(&mut self, reason: CloseReason, grace_ends: Instant, work: &mut VecDeque<Work>) {
        self.closed = Some(reason);
        work.extend(self.on_change.take().map(Work::Wake));
        for slot in self.calls.values_mut() {
            if slot.is_open() {
                add(work, slot.end(CallOutcome::new(Outcome::Lost, None, None)).map(Work::Wake));
            }
        }
        // Calls that are cancelled already are not affected.
        for id in self.served_calls.ids() {
            self.cancel(id, CancelReason::Disconnected, grace_ends, work);
        }
        for (_, input_request) in self.input_requests.iter() {
            add(work, input_request.abort_handle().abort().map(Work::Wake));
            work.push_back(Work::Forget(Arc::clone(input_request)));
        }
        self.input_requests.clear();
    }
}

/// Abandons a handler: it is dropped at its next await point.
fn abandon(slot: &mut ServedCallSlot<ServedCall>, counters: &mut Counters, work: &mut VecDeque<Work>) {
    let Some(leftover) = slot.abandon() else { return };
    counters.abandoned = counters.abandoned.saturating_add(1);
    add(work, Note::abandoned(slot.served()).map(Work::Diagnose));
    work.push_back(Work::Settle(leftover));
}
