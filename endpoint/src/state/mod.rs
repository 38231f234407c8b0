//! The one lock of an endpoint, and what stands under it.
//!
//! Beside that, what the handles of one call, one invocation or one question share: [`Invocation`] and [`Question`], with the verbs that
//! change the state for them; what they end with ([`CallOutcome`], [`AskFailed`]); and what a subscriber is told of them ([`diagnose`]).

mod alarms;
mod ask_failed;
mod call_outcome;
mod call_slot;
pub(crate) mod diagnose;
mod invocation;
mod question;
mod serve_slot;
mod subscriptions;

pub(crate) use alarms::Alarmed;
pub use ask_failed::AskFailed;
pub use call_outcome::{CallError, CallOutcome};
pub(crate) use call_slot::{CallSlot, CallStage, Unread};
pub(crate) use invocation::{Invocation, stopped};
pub(crate) use question::Question;
pub(crate) use serve_slot::ServeSlot;

use core::time::Duration;
use std::sync::Arc;
use std::task::Waker;

use self::alarms::Alarms;
use self::subscriptions::Subscriptions;
use crate::extensions::Extensions;
use engine::{After, DriverSlot, Engine, Guarded, SendsEarly, Waiters};
use protocol_core::drive::TurnOutcome;
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::lines::LineEncoder;
use protocol_core::session::{CloseReason, InboundId, InputKey, Lane, OutboundId, Session};
use protocol_core::table::Table;
use protocol_core::time::{Instant, earlier};

/// The state of an endpoint under its lock, as every handle shares it.
pub(crate) type Shared = Engine<State>;

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) session: Session,
    pub(crate) driver: DriverSlot,
    /// There is no driver any longer: nothing goes out, and no deadline comes.
    pub(crate) driver_gone: bool,
    /// The time that a cancelled handler may go on.
    pub(crate) handler_grace: Duration,
    pub(crate) closed: Option<CloseReason>,
    /// The error with which the peer refused our handshake.
    pub(crate) refusal: Option<RpcError>,
    pub(crate) calls: Table<OutboundId, CallSlot>,
    pub(crate) serves: Table<InboundId, ServeSlot>,
    pub(crate) questions: Table<InputKey, Arc<Question>>,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) alarms: Alarms,
    /// The handshake is through.
    pub(crate) ready: bool,
    /// Tasks that wait for the handshake or the end.
    pub(crate) on_change: Waiters,
    pub(crate) counters: Counters,
    /// The lane of the frame that was taken last, and what its transport attached to it, until its events are sorted.
    pub(crate) arriving: Option<(Lane, Extensions)>,
    /// The checkpoints of handlers, recorded under test.
    pub(crate) checkpoints: Option<Vec<(Instant, Json)>>,
}

/// The counters of an endpoint beside [`protocol_core::Stats`], since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Updates of handlers that made no sense: not finite, negative, above their total. Dropped.
    pub progress_refused: u64,
    /// Log records and checkpoints of handlers that have no JSON, are no object or are too long. Dropped.
    pub values_refused: u64,
    /// Updates of the peer that were merged into the newest one since they were not read.
    pub progress_merged: u64,
    /// Handlers, and answers of a [`crate::Client`], that panicked.
    pub panics: u64,
    /// Cancelled handlers that were still running after their grace.
    pub abandoned: u64,
}

impl Guarded for State {
    type Wakers = Option<Waker>;

    fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    fn take_wakers(&mut self, after: &After) -> Option<Waker> {
        if self.driver.is_news(after.has_output(), || self.deadline()) { self.driver.take() } else { None }
    }

    fn early_slot(&mut self) -> Option<&mut DriverSlot> {
        Some(&mut self.driver)
    }
}

impl SendsEarly for State {
    type Event = CloseReason;

    fn finish_turn(&mut self, now: Instant, room: Option<&mut LineEncoder>) -> (TurnOutcome<CloseReason>, bool) {
        let has_output = room.is_none_or(|room| self.session.poll_transmits(room));
        let until = self.arm();
        let wants_input = self.session.wants_input(Lane::CHANNEL);
        let standing = TurnOutcome { now, has_output, event: None, is_closed: self.is_over(), until, wants_input };
        (standing, self.session.unread_events() > 0)
    }
}

impl State {
    /// The state of an endpoint that has just begun.
    pub(crate) fn new(session: Session) -> Self {
        Self {
            handler_grace: session.config().timeouts.handler_grace,
            session,
            driver: DriverSlot::default(),
            driver_gone: false,
            closed: None,
            refusal: None,
            calls: Table::new(),
            serves: Table::new(),
            questions: Table::new(),
            subscriptions: Subscriptions::default(),
            alarms: Alarms::default(),
            ready: false,
            on_change: Waiters::default(),
            counters: Counters::default(),
            arriving: None,
            checkpoints: None,
        }
    }

    /// The values that the transport attached to what brought an invocation.
    pub(crate) fn extensions_of(&self, id: InboundId) -> Extensions {
        match &self.arriving {
            Some((lane, extensions)) if self.session.lane(id) == Some(*lane) => extensions.clone(),
            _ => Extensions::new(),
        }
    }

    /// The earliest deadline, of the session and of the endpoint.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        earlier(self.session.poll_timeout(), self.alarms.earliest())
    }

    /// The deadline that the driver is to wait for; none once all is over.
    pub(crate) fn wanted(&self) -> Option<Instant> {
        if self.is_over() { None } else { self.deadline() }
    }

    /// The same, and from now on the driver waits for it.
    pub(crate) fn arm(&mut self) -> Option<Instant> {
        let until = self.wanted();
        self.driver.arm(until)
    }

    /// Returns `true` once nothing can happen any more: the session is closed, and no handler is within its grace.
    pub(crate) fn is_over(&self) -> bool {
        self.closed.is_some() && self.serves.iter().all(|(_, slot)| slot.abandoned)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::serve_slot::{InputSlot, Waits};
    use super::*;
    use crate::testing::Executor;

    #[derive(Default)]
    struct Woken {
        count: AtomicUsize,
        panics: bool,
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.count.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "a waker that panics");
        }
    }

    /// A verb that woke the driver and others: behind the first that panicked nobody was woken any longer.
    #[test]
    fn regression_a_waker_that_panics_keeps_no_other_of_a_verb_from_being_woken() {
        let (panics, sleeps) = (Arc::new(Woken { panics: true, ..Woken::default() }), Arc::new(Woken::default()));
        let [panicking, sleeping] = [&panics, &sleeps].map(|woken| Waker::from(Arc::clone(woken)));
        let config = protocol_core::Config::mcp_server(protocol_core::Identity::new("s", "1"));
        let shared = Shared::new(State::new(Session::new(config, Instant::default())), Executor::new().runtime());
        let mut waits = Waits::default();
        for (key, waker) in (1..).zip([&panicking, &sleeping, &panicking, &sleeping]) {
            waits.inputs.push((InputKey::from_number(key), InputSlot { answer: None, waker: Some(waker.clone()) }));
        }
        shared.look(|state| state.driver.park(&panicking, &mut Some(panicking.clone())));
        let verb = AssertUnwindSafe(|| {
            drop(shared.verb(|_, _, after| {
                after.output();
                waits
            }));
        });
        assert!(catch_unwind(verb).is_err());
        assert_eq!([&panics, &sleeps].map(|woken| woken.count.load(Ordering::Relaxed)), [3, 2]);
    }
}
