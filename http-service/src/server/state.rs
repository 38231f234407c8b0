//! The state of a service under its one lock: the HTTP server of the core, the orders for the drivers of its sessions, and the wakers of
//! the tasks that wait for responses.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use endpoint::Extensions;
use engine::{DriverSlot, Guarded, VerbEffects, park};
use protocol_core::http::era::Era;
use protocol_core::http::{Admitted, HttpContext, HttpEvent, HttpExchangeId, HttpServer, NotResumable, ResponsePart, SessionKey};
use protocol_core::{Instant, Lane, Transmit};

/// The state under the lock.
pub(super) struct State {
    server: HttpServer,
    sessions: BTreeMap<SessionKey, SessionSlot>,
    /// The open exchanges, each with the waker of the task that waits for its response.
    exchanges: BTreeMap<HttpExchangeId, Option<Waker>>,
    /// The task that waits for the deadlines of `server`.
    deadlines: DriverSlot,
    /// `true` if the task that waits for deadlines runs, or is about to be started.
    has_deadline_task: bool,
    /// Wakers of tasks that have something to do after this verb.
    woken: Vec<Waker>,
}

/// The orders of a session that its driver has not taken, and the waker of the driver.
#[derive(Default)]
struct SessionSlot {
    orders: VecDeque<Order>,
    waker: Option<Waker>,
}

/// An instruction to the driver of a session.
pub(super) enum Order {
    /// Take a frame, and report how many replies there will be.
    Frame { exchange: HttpExchangeId, lane: Lane, frame: Bytes, extensions: Extensions },
    /// Stop or resume a lane.
    Writable { lane: Lane, is_writable: bool },
    /// Report [`Report::Settled`] for each of these lanes on which no reply is owed.
    Settle(Vec<Lane>),
    /// Close the session gracefully, within this time.
    Finish(Duration),
    /// End the session at once. No order follows.
    Close,
}

/// A message of the driver of a session to the HTTP server.
pub(super) enum Report {
    /// A frame was taken, and `replies` replies will follow.
    Received { exchange: HttpExchangeId, replies: usize },
    /// A frame was not taken, since the machine has no room for it.
    Full { exchange: HttpExchangeId },
    /// A frame to send.
    Transmit(Transmit),
    /// A call was cancelled, so some lanes may no longer get the reply that they wait for.
    Cancelled,
    /// No further frame will be sent on this lane.
    Settled(Lane),
    /// The machine has closed the session.
    Closed,
}

impl Guarded for State {
    type Wakers = Vec<Waker>;

    fn is_closed(&self) -> bool {
        false
    }

    fn take_wakers(&mut self, _: &VerbEffects) -> Vec<Waker> {
        let mut woken = core::mem::take(&mut self.woken);
        if self.deadlines.must_wake(false, || self.server.poll_timeout()) {
            woken.extend(self.deadlines.take());
        }
        woken
    }
}

impl State {
    pub(super) fn new(server: HttpServer) -> Self {
        Self {
            server,
            sessions: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            deadlines: DriverSlot::default(),
            has_deadline_task: false,
            woken: Vec::new(),
        }
    }

    // ---- Requests ----

    /// Takes a request. Returns its exchange, and the session that the request opens, if it opens one: the caller then makes a driver for
    /// that session. `extensions` are passed on with the frame.
    pub(super) fn begin(
        &mut self,
        admitted: &Admitted<'_>,
        context: &mut dyn HttpContext,
        extensions: &mut Option<Extensions>,
        now: Instant,
    ) -> (HttpExchangeId, Option<(SessionKey, Era)>) {
        let exchange = self.server.handle_admitted(admitted, context, now);
        self.exchanges.insert(exchange, None);
        (exchange, self.distribute_with(extensions))
    }

    /// The next part of a response. If there is none yet, keeps `waker` (see [`park`]), to wake the task that waits for the part.
    pub(super) fn poll_response(
        &mut self,
        exchange: HttpExchangeId,
        waker: &mut Option<Waker>,
        now: Instant,
    ) -> Option<ResponsePart> {
        let part = self.server.poll_response(exchange, now);
        match (&part, self.exchanges.get_mut(&exchange)) {
            (None, Some(slot)) => park(slot, waker),
            (Some(ResponsePart::End), _) => *waker = self.exchanges.remove(&exchange).flatten(),
            _ => {}
        }
        part
    }

    #[cfg(feature = "hyper")]
    pub(super) fn half_close(&mut self, exchange: HttpExchangeId, now: Instant) {
        self.server.handle_half_close(exchange, now);
    }

    /// Handles the loss of an exchange. Returns the waker of the task that waited for its response, to be dropped after the lock is
    /// released.
    pub(super) fn lose(&mut self, exchange: HttpExchangeId, now: Instant) -> Option<Waker> {
        self.server.handle_lost(exchange, now);
        self.exchanges.remove(&exchange).flatten()
    }

    /// Ends the response in which the stream of `lane` is sent now, so that the client reconnects for the rest.
    pub(super) fn suspend(&mut self, session: SessionKey, lane: Lane, now: Instant) -> Result<(), NotResumable> {
        let exchange = self.server.current_exchange(session, lane).ok_or(NotResumable)?;
        self.server.suspend(exchange, now)
    }

    // ---- Sessions ----

    pub(super) fn apply(&mut self, session: SessionKey, report: Report, now: Instant) {
        match report {
            Report::Received { exchange, replies } => self.server.handle_received(exchange, replies, now),
            Report::Full { exchange } => self.server.handle_full(exchange, now),
            Report::Transmit(transmit) => self.server.handle_transmit(session, transmit, now),
            Report::Cancelled => {
                let lanes = self.server.lanes_at_work(session).collect();
                self.order(session, Order::Settle(lanes));
            }
            Report::Settled(lane) => self.server.handle_settled(session, lane, now),
            Report::Closed => self.server.handle_closed(session, now),
        }
    }

    /// Moves the orders of a session into `orders`. After [`Order::Close`], the last order, the session is forgotten; otherwise `waker` is
    /// kept to wake its driver when there are further orders.
    pub(super) fn take_orders(&mut self, session: SessionKey, orders: &mut VecDeque<Order>, waker: &mut Option<Waker>) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        orders.append(&mut slot.orders);
        if matches!(orders.back(), Some(Order::Close)) {
            *waker = self.sessions.remove(&session).and_then(|slot| slot.waker);
        } else {
            park(&mut slot.waker, waker);
        }
    }

    /// Forgets a session whose driver was dropped. Returns its orders and its waker, to be dropped after the lock is released.
    pub(super) fn forget(&mut self, session: SessionKey, now: Instant) -> impl Sized + use<> {
        self.server.handle_closed(session, now);
        self.sessions.remove(&session)
    }

    /// Refuses new sessions, requests without a handshake and new GET streams from now on, and closes every session gracefully.
    pub(super) fn stop(&mut self, grace: Duration) {
        self.server.stop();
        for session in self.server.session_keys().collect::<Vec<_>>() {
            self.order(session, Order::Finish(grace));
        }
    }

    /// Ends every session at once.
    pub(super) fn end(&mut self, now: Instant) {
        self.server.stop();
        for session in self.server.session_keys().collect::<Vec<_>>() {
            self.server.close_session(session, now);
        }
        // No deadline is left, so the task that waits for deadlines ends when it is woken.
        self.woken.extend(self.deadlines.take());
    }

    fn order(&mut self, session: SessionKey, order: Order) {
        if let Some(slot) = self.sessions.get_mut(&session) {
            slot.orders.push_back(order);
            self.woken.extend(slot.waker.take());
        }
    }

    /// Distributes the events of the server, of which none passes on the frame of a new request.
    pub(super) fn distribute(&mut self) {
        self.distribute_with(&mut None);
    }

    /// Distributes the events of the server to the sessions and to the tasks that wait for responses. Returns the session
    /// that was opened, if there is one. `extensions` go with the first frame.
    fn distribute_with(&mut self, extensions: &mut Option<Extensions>) -> Option<(SessionKey, Era)> {
        let mut opened = None;
        while let Some(event) = self.server.poll_event() {
            match event {
                HttpEvent::Open { session, era } => {
                    self.sessions.insert(session, SessionSlot::default());
                    opened = Some((session, era));
                }
                HttpEvent::Frame { session, exchange, lane, frame } => {
                    let extensions = extensions.take().unwrap_or_default();
                    self.order(session, Order::Frame { exchange, lane, frame, extensions });
                }
                HttpEvent::Writable { session, lane, is_writable } => self.order(session, Order::Writable { lane, is_writable }),
                HttpEvent::Close { session } => self.order(session, Order::Close),
                HttpEvent::Readable { exchange } => {
                    self.woken.extend(self.exchanges.get_mut(&exchange).and_then(Option::take));
                }
                _ => {}
            }
        }
        opened
    }

    // ---- Deadlines ----

    /// Returns `true` if the task that waits for deadlines must be started now. From then on the task counts as running.
    pub(super) fn starts_deadlines(&mut self) -> bool {
        let starts = !self.has_deadline_task && self.server.poll_timeout().is_some();
        self.has_deadline_task |= starts;
        starts
    }

    /// Handles the deadlines that are due. Returns the next deadline, and keeps `waker` to wake the task if an earlier deadline is added.
    /// If there is no next deadline, the task ends.
    pub(super) fn expire(&mut self, now: Instant, waker: &mut Option<Waker>) -> Option<Instant> {
        self.server.handle_timeout(now);
        let next = self.deadlines.arm(self.server.poll_timeout());
        match next {
            Some(_) => self.deadlines.park(waker),
            None => *waker = self.end_deadlines(),
        }
        next
    }

    /// Notes that the task that waits for deadlines has ended. Returns its waker, to be dropped after the lock is released.
    pub(super) fn end_deadlines(&mut self) -> Option<Waker> {
        self.has_deadline_task = false;
        self.deadlines.take()
    }

    /// The numbers of sessions, of subscriptions, and of bytes kept for replay.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.server.sessions(), self.server.subscriptions(), self.server.kept_bytes())
    }
}
