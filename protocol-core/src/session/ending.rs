//! The end of a session.
//!
//! | State | `finish` | `stop_work` | `close` |
//! |---|---|---|---|
//! | `Open` | `Finishing` | `Draining` | `Closed` |
//! | `Finishing` | stays, the earlier deadline counts | `Draining` | `Closed` |
//! | `Draining` | stays | stays | `Closed` |
//! | `Closed` | stays | stays | stays |
//!
//! `finish` is a close with a grace, or the end of input. `stop_work` follows when nothing runs any longer or the grace is over, and at once
//! where the framing is lost or no version is common to both. `close` follows when the outbox is empty or time is over, and at once where
//! the transport or the handshake fails, or there is too much output.

use crate::session::CloseReason;
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Ending {
    state: State,
    /// The peer says nothing more.
    peer_ended: bool,
    /// The entry in the session's timers of the deadline of this state.
    armed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Running calls go on; nothing new begins.
    Finishing(CloseReason),
    /// Nothing runs; what waits to be polled goes out.
    Draining(CloseReason),
    Closed,
}

impl Ending {
    pub(super) const fn new() -> Self {
        Self { state: State::Open, peer_ended: false, armed: None }
    }

    // ---- Transitions ----

    /// Notes that the peer says nothing more.
    pub(super) fn end_of_input(&mut self) {
        self.peer_ended = true;
    }

    /// Open -> Finishing. The first reason stays, and a later call can only bring the end nearer. Says whether the grace is over at once.
    pub(super) fn finish(&mut self, reason: CloseReason, until: Instant, now: Instant, timers: &mut Timers) -> bool {
        match self.state {
            State::Open => self.state = State::Finishing(reason),
            State::Finishing(_) => {}
            State::Draining(_) | State::Closed => return false,
        }
        if until <= now {
            return true;
        }
        let at = self.armed.map_or(until, |armed| armed.min(until));
        timers.set(TimerKey::Close, &mut self.armed, Some(at));
        false
    }

    /// Open, Finishing -> Draining, and `until` is the last moment of it. `false`, and no change, in any other state.
    pub(super) fn stop_work(&mut self, reason: CloseReason, until: Option<Instant>, timers: &mut Timers) -> bool {
        let is_first = self.may_write();
        if is_first {
            self.state = State::Draining(reason);
            timers.set(TimerKey::Close, &mut self.armed, until);
        }
        is_first
    }

    /// Any state -> Closed. `false` if it was closed before.
    pub(super) fn close(&mut self, timers: &mut Timers) -> bool {
        let is_first = !self.is_closed();
        self.state = State::Closed;
        timers.set(TimerKey::Close, &mut self.armed, None);
        is_first
    }

    /// Notes that the timers have let go of its deadline.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    // ---- State ----

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Says whether anything new may still be written.
    #[inline]
    pub(super) fn may_write(&self) -> bool {
        matches!(self.state, State::Open | State::Finishing(_))
    }

    /// The reason of the end, while what runs goes on.
    pub(super) fn finishing(&self) -> Option<CloseReason> {
        if let State::Finishing(reason) = self.state { Some(reason) } else { None }
    }

    /// The reason of the end, while nothing runs and output waits.
    pub(super) fn draining(&self) -> Option<CloseReason> {
        if let State::Draining(reason) = self.state { Some(reason) } else { None }
    }

    pub(super) fn has_peer_ended(&self) -> bool {
        self.peer_ended
    }
}
