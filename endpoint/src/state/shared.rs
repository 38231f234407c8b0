//! The state of an endpoint under its one lock, and the values with a handle on it, which it contains in turn: an inbound call and an
//! inbound input request. Their verbs are in files above this one.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::alarms::Alarms;
use super::call_slot::CallSlot;
use super::counters::Counters;
use super::list_changes::ListChanges;
use super::resource_updates::ResourceUpdates;
use super::rounds::{InRounds, OnceStore, RoundSetup};
use super::served_call_slot::ServedCallSlot;
use super::span::Span;
use super::subscriptions::Subscriptions;
use crate::extensions::Extensions;
use engine::{AbortHandle, DriverSlot, Engine, Guarded, SendsEarly, VerbEffects, Waiters};
use protocol_core::dialect::{Caller, Notification, PeerInfo};
use protocol_core::drive::TurnOutcome;
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::lines::LineEncoder;
use protocol_core::session::{CancelReason, CloseReason, InboundId, InputKey, Lane, OutboundId, Session};
use protocol_core::table::Table;
use protocol_core::time::{Instant, earlier};

/// The state of an endpoint with its lock, which all handles share.
pub(crate) type Shared = Engine<State>;

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) session: Session,
    pub(crate) driver: DriverSlot,
    /// The endpoint was dropped: no frame is sent any more, and no deadline passes.
    pub(crate) driver_gone: bool,
    /// The time for which a cancelled handler may go on.
    pub(crate) handler_grace: Duration,
    /// The reason for which the session closed; `None` before that.
    pub(crate) closed: Option<CloseReason>,
    /// The error with which the peer refused our handshake; `None` if it did not.
    pub(crate) refusal: Option<RpcError>,
    /// The reason for which calls are lost, given by the transport: while the loss of one call is handled, or of the transport for ever.
    pub(crate) loss: Option<Text>,
    /// The peer after its last change ([`Event::PeerChanged`](protocol_core::Event::PeerChanged)), which also applies to running calls.
    pub(crate) changed_peer: Option<Box<PeerInfo>>,
    pub(crate) calls: Table<OutboundId, CallSlot>,
    pub(crate) served_calls: Table<InboundId, ServedCallSlot<ServedCall>>,
    pub(crate) input_requests: Table<InputKey, Arc<ServedInput>>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) list_changes: ListChanges,
    pub(crate) resource_updates: ResourceUpdates,
    pub(crate) alarms: Alarms,
    /// The session is ready, in the sense of [`Peer::ready`](crate::Peer::ready).
    pub(crate) ready: bool,
    /// Tasks that wait until the session is ready or closed.
    pub(crate) on_change: Waiters,
    pub(crate) counters: Counters,
    /// The lane of the last frame and the values that its transport attached to it, until its events have been handled.
    pub(crate) arriving: Option<(Lane, Extensions)>,
    /// The checkpoints of handlers, recorded under test.
    pub(crate) checkpoints: Option<Vec<(Instant, Json)>>,
    /// The keys and names to seal states with, if input requests can be made in rounds.
    pub(crate) round_setup: Option<RoundSetup>,
    /// The store of the effects of handlers, and the function that reads the keys of calls.
    pub(crate) effects: EffectSetup,
}

/// The store of effects, and the function that reads the key with which the caller marks repetitions of a call
/// ([`Service::call_key`](crate::Service::call_key)).
#[derive(Clone, Default)]
pub(crate) struct EffectSetup {
    pub(crate) store: Option<Arc<dyn OnceStore>>,
    pub(crate) call_key: Option<CallKey>,
}

type CallKey = Arc<dyn Fn(&Arc<ServedCall>) -> Option<String> + Send + Sync>;

impl Guarded for State {
    type Wakers = Option<Waker>;

    fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    fn take_wakers(&mut self, effects: &VerbEffects) -> Option<Waker> {
        if self.driver.must_wake(effects.has_output(), || self.deadline()) { self.driver.take() } else { None }
    }

    fn early_slot(&mut self) -> Option<&mut DriverSlot> {
        Some(&mut self.driver)
    }
}

impl SendsEarly for State {
    type Event = CloseReason;

    fn finish_turn(&mut self, now: Instant, room: Option<&mut LineEncoder>) -> (TurnOutcome<CloseReason>, bool) {
        let waits_for_room = self.send_changes(now);
        let has_output = room.is_none_or(|room| self.session.poll_transmits(room)) || waits_for_room;
        let until = self.arm();
        let wants_input = self.session.wants_input(Lane::CHANNEL);
        let outcome = TurnOutcome { now, has_output, event: None, is_closed: self.is_over(), until, wants_input };
        (outcome, self.session.unread_events() > 0)
    }
}

impl State {
    /// The state of a new endpoint.
    pub(crate) fn new(session: Session) -> Self {
        Self {
            handler_grace: session.config().timeouts.handler_grace,
            session,
            driver: DriverSlot::default(),
            driver_gone: false,
            closed: None,
            refusal: None,
            loss: None,
            changed_peer: None,
            calls: Table::new(),
            served_calls: Table::new(),
            input_requests: Table::new(),
            subscriptions: Subscriptions::default(),
            list_changes: ListChanges::default(),
            resource_updates: ResourceUpdates::default(),
            alarms: Alarms::default(),
            ready: false,
            on_change: Waiters::default(),
            counters: Counters::default(),
            arriving: None,
            checkpoints: None,
            round_setup: None,
            effects: EffectSetup::default(),
        }
    }

    /// Sends the notifications of changed lists and resources. Returns `true` if one has to wait for room in the queue.
    pub(crate) fn send_changes(&mut self, now: Instant) -> bool {
        let list_waits = self.list_changes.send(&mut self.session, now);
        self.resource_updates.send(&mut self.session, &self.subscriptions, now) || list_waits
    }

    /// Returns `true` if the peer has subscribed to the resource `uri`.
    pub(crate) fn is_subscribed(&self, uri: &Text) -> bool {
        self.subscriptions.includes(uri) || self.session.has_subscription(&Notification::ResourceUpdated { uri: uri.clone() })
    }

    /// The values that the transport attached to the frame of an inbound call.
    pub(crate) fn extensions_of(&self, id: InboundId) -> Extensions {
        match &self.arriving {
            Some((lane, extensions)) if self.session.lane(id) == Some(*lane) => extensions.clone(),
            _ => Extensions::new(),
        }
    }

    /// The earliest deadline of the session, of the alarms and of updates of resources.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        earlier(self.session.poll_timeout(), earlier(self.alarms.earliest(), self.resource_updates.deadline()))
    }

    /// The deadline that the driver has to wait for; `None` once the endpoint is over.
    pub(crate) fn driver_deadline(&self) -> Option<Instant> {
        if self.is_over() { None } else { self.deadline() }
    }

    /// Returns the deadline that the driver has to wait for, and notes that the driver waits for this deadline.
    pub(crate) fn arm(&mut self) -> Option<Instant> {
        let until = self.driver_deadline();
        self.driver.arm(until)
    }

    /// Returns `true` once the session is closed and no handler is within its grace.
    pub(crate) fn is_over(&self) -> bool {
        self.closed.is_some() && self.served_calls.iter().all(|(_, slot)| slot.is_abandoned())
    }
}

/// An inbound call that a handler serves. Shared by its contexts and its task.
pub(crate) struct ServedCall {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: InboundId,
    /// The sampling depth of the call. A retry can raise it before its handler starts.
    depth: AtomicU8,
    /// `None` if its caller is not asked in rounds.
    pub(super) in_rounds: Option<InRounds>,
    /// `true` if its caller asked for progress.
    pub(crate) observed: bool,
    /// The values that the transport attached to the frame of its request.
    pub(crate) extensions: Extensions,
    pub(crate) caller: Caller,
    /// The reason of its cancellation. Set once, under the lock; read without it.
    pub(crate) why: OnceLock<CancelReason>,
    pub(crate) span: Span,
    pub(super) abort: AbortHandle,
}

impl ServedCall {
    pub(crate) fn new(
        shared: Arc<Shared>,
        id: InboundId,
        depth: u8,
        observed: bool,
        caller: Caller,
        extensions: Extensions,
        in_rounds: Option<InRounds>,
    ) -> Self {
        Self {
            shared,
            id,
            depth: AtomicU8::new(depth),
            in_rounds,
            observed,
            caller,
            extensions,
            why: OnceLock::new(),
            span: Span::default(),
            abort: AbortHandle::default(),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.why.get().is_some()
    }

    /// The waker of its task, to be woken outside of the lock.
    pub(super) fn task_waker(&self) -> Option<Waker> {
        self.abort.waker()
    }

    pub(crate) fn depth(&self) -> u8 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Raises the sampling depth, before the handler starts.
    pub(super) fn raise_depth(&self, depth: u8) {
        self.depth.fetch_max(depth, Ordering::Relaxed);
    }
}

impl fmt::Debug for ServedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCall").field("id", &self.id).field("cancelled", &self.why.get()).finish_non_exhaustive()
    }
}

/// An input request of the peer that is to be answered by the [`Client`](crate::Client).
pub(crate) struct ServedInput {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: InputKey,
    /// The outbound call that the input request belongs to; `None` if no call was in flight.
    pub(crate) parent: Option<OutboundId>,
    /// The sampling depth.
    pub(crate) depth: u8,
    pub(crate) span: Span,
    pub(super) abort: AbortHandle,
}

impl ServedInput {
    pub(crate) fn new(shared: Arc<Shared>, key: InputKey, parent: Option<OutboundId>, depth: u8) -> Self {
        Self { shared, key, parent, depth, span: Span::default(), abort: AbortHandle::default() }
    }
}
