//! The machine that serves one session: an endpoint, or a machine of the application.

use core::convert::Infallible;
use std::boxed::Box;
use std::task::Waker;

use bytes::Bytes;
use endpoint::{Endpoint, Extensions};
use protocol_core::drive::{LaneMachine, Machine as _};
use protocol_core::{Close, Full, Instant, Lane, Received, Transmit, TransportEnd};

/// A machine that is not an endpoint. It returns no events to its driver.
pub(crate) type OtherMachine = Box<dyn LaneMachine<Event = Infallible> + Send + Sync>;

pub(super) enum Machine {
    Endpoint(Endpoint),
    Other(OtherMachine),
}

macro_rules! either {
    ($of:expr, $machine:ident => $call:expr) => {
        match $of {
            Machine::Endpoint($machine) => $call,
            Machine::Other($machine) => $call,
        }
    };
}

impl Machine {
    pub(super) fn handle_frame(&mut self, frame: Bytes, lane: Lane, values: Extensions, now: Instant) -> Result<Received, Full> {
        match self {
            Self::Endpoint(endpoint) => endpoint.handle_frame_by(frame, lane, values, now),
            Self::Other(machine) => machine.handle_lane_frame(frame, lane, now),
        }
    }

    /// Returns `true` if the session has closed. For an endpoint it returns `true` only once, and before the handlers have had their grace;
    /// [`is_closed`](Self::is_closed) returns `true` only after that grace.
    pub(super) fn poll_end(&mut self) -> bool {
        match self {
            Self::Endpoint(endpoint) => endpoint.poll_event().is_some(),
            Self::Other(machine) => machine.is_closed(),
        }
    }

    pub(super) fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) {
        match self {
            Self::Endpoint(endpoint) => LaneMachine::set_writable(endpoint, lane, is_writable, now),
            Self::Other(machine) => machine.set_writable(lane, is_writable, now),
        }
    }

    pub(super) fn handle_end(&mut self, end: TransportEnd, now: Instant) {
        either!(self, machine => machine.handle_end(end, now));
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        either!(self, machine => machine.handle_timeout(now));
    }

    pub(super) fn close(&mut self, how: Close, now: Instant) {
        either!(self, machine => machine.close(how, now));
    }

    pub(super) fn register_waker(&mut self, waker: &Waker) {
        either!(self, machine => machine.register_waker(waker));
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Transmit> {
        either!(self, machine => machine.poll_transmit())
    }

    pub(super) fn poll_closed_lane(&mut self) -> Option<Lane> {
        either!(self, machine => machine.poll_closed_lane())
    }

    pub(super) fn take_cancelled(&mut self) -> bool {
        either!(self, machine => machine.take_cancelled())
    }

    pub(super) fn replies_owed(&self, lane: Lane) -> usize {
        either!(self, machine => machine.replies_owed(lane))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        either!(self, machine => machine.poll_timeout())
    }

    pub(super) fn is_closed(&self) -> bool {
        either!(self, machine => machine.is_closed())
    }
}
