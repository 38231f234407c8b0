//! The state of an endpoint under its one lock.
//!
//! Also here: the values that the handles of an inbound call or of an inbound input request share ([`ServedCall`], [`ServedInput`]), with
//! the verbs that change the state for them; the outcomes of calls ([`CallOutcome`]); and the records for `tracing` ([`diagnose`]).

mod alarms;
mod call_outcome;
mod call_slot;
pub(crate) mod diagnose;
mod input_request;
mod list_changes;
pub(crate) mod rounds;
mod served_call;
mod served_call_slot;
mod subscriptions;

pub(crate) use alarms::Alarmed;
pub use call_outcome::{CallError, CallOutcome, ListFailed};
pub(crate) use call_slot::{CallSlot, CallStage, Unread};
pub(crate) use input_request::ServedInput;
pub(crate) use list_changes::ListKind;
#[cfg(any(test, feature = "testing"))]
pub(crate) use served_call::polls;
pub(crate) use served_call::{AlarmWait, AnswerWait, ServedCall};
pub(crate) use served_call_slot::{Leftover, ServedCallSlot};

use core::time::Duration;
use std::sync::Arc;
use std::task::Waker;

use self::alarms::Alarms;
use self::list_changes::ListChanges;
use self::rounds::{EffectSetup, RoundSetup};
use self::subscriptions::Subscriptions;
use crate::extensions::Extensions;
use engine::{DriverSlot, Engine, Guarded, SendsEarly, VerbEffects, Waiters};
use protocol_core::dialect::PeerInfo;
use protocol_core::drive::TurnOutcome;
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::lines::LineEncoder;
use protocol_core::session::{CloseReason, InboundId, InputKey, Lane, OutboundId, Session};
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
    pub(crate) served_calls: Table<InboundId, ServedCallSlot>,
    pub(crate) input_requests: Table<InputKey, Arc<ServedInput>>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) list_changes: ListChanges,
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

/// The counters of an endpoint since it was made, in addition to [`protocol_core::Stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Progress updates of handlers that were dropped because they were not valid: not finite, negative, or above their total.
    pub progress_refused: u64,
    /// Log records and checkpoints of handlers that were dropped because they cannot be serialized, or, for checkpoints, are not an object
    /// or are too large.
    pub values_refused: u64,
    /// Progress updates of the peer that were merged into a newer one because too many were unread.
    pub progress_merged: u64,
    /// Entries of lists of the peer that were left out, since they have no name or URI.
    pub entries_dropped: u64,
    /// Panics of handlers, also of those of notifications ([`crate::Service::notification`]), and of the methods of a [`crate::Client`].
    pub panics: u64,
    /// Handlers that were abandoned because they were still running after their grace, or when the endpoint was dropped.
    pub abandoned: u64,
}

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
        let waits_for_room = self.send_list_changes(now);
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

    /// Sends the notifications of changed lists. Returns `true` if one has to wait for room in the queue.
    pub(crate) fn send_list_changes(&mut self, now: Instant) -> bool {
        self.list_changes.send(&mut self.session, now)
    }

    /// The values that the transport attached to the frame of an inbound call.
    pub(crate) fn extensions_of(&self, id: InboundId) -> Extensions {
        match &self.arriving {
            Some((lane, extensions)) if self.session.lane(id) == Some(*lane) => extensions.clone(),
            _ => Extensions::new(),
        }
    }

    /// The earliest deadline of the session and of the alarms.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        earlier(self.session.poll_timeout(), self.alarms.earliest())
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
