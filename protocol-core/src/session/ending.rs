//! The end of a session.
//!
//! | State | `finish` | `stop_work` | `close` |
//! |---|---|---|---|
//! | `Open` | `Finishing` | `Draining` | `Closed` |
//! | `Finishing` | stays, the earlier deadline counts | `Draining` | `Closed` |
//! | `Draining` | stays | stays | `Closed` |
//! | `Closed` | stays | stays | stays |
//!
//! `finish` is called when the owner closes the session, and at the end of input. `stop_work` is called when no call runs any longer or the
//! grace is over, and at once if a frame on the channel is too large, or a handshake request asks for a version that this end does not
//! speak. `close` is called when the outbox is empty or the time for polling it is over, and at once if the transport fails, our handshake
//! request fails, the handshake takes too long, too much output is queued, or the peer does not read our replies.

use crate::session::CloseReason;
use crate::session::timers::{TimerKey, Timers};
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Ending {
    state: State,
    /// `true` once the peer has ended its side.
    peer_ended: bool,
    /// The time for which the deadline of this state is armed in the session's timers.
    armed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Running calls continue, and no call starts.
    Finishing(CloseReason),
    /// No call runs, and queued frames can still be polled.
    Draining(CloseReason),
    Closed,
}

impl Ending {
    pub(super) const fn new() -> Self {
        Self { state: State::Open, peer_ended: false, armed: None }
    }

    // ---- Transitions ----

    /// Records that the peer has ended its side.
    pub(super) fn end_of_input(&mut self) {
        self.peer_ended = true;
    }

    /// Open -> Finishing. If this method is called again, the first reason stays, and the grace can only become shorter. Returns `true` if
    /// the grace is already over.
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

    /// Open, Finishing -> Draining, at most until `until`; `None` if the calling code closes the session next. In any other state, changes
    /// nothing and returns `false`.
    pub(super) fn stop_work(&mut self, reason: CloseReason, until: Option<Instant>, timers: &mut Timers) -> bool {
        let is_first = self.may_write();
        if is_first {
            self.state = State::Draining(reason);
            timers.set(TimerKey::Close, &mut self.armed, until);
        }
        is_first
    }

    /// Any state -> Closed. Returns `false` if the session was closed before.
    pub(super) fn close(&mut self, timers: &mut Timers) -> bool {
        let is_first = !self.is_closed();
        self.state = State::Closed;
        timers.set(TimerKey::Close, &mut self.armed, None);
        is_first
    }

    /// Records that the deadline was removed from the timers.
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

    /// Returns `true` if new frames may still be written.
    #[inline]
    pub(super) fn may_write(&self) -> bool {
        matches!(self.state, State::Open | State::Finishing(_))
    }

    /// The reason why the session ends, in the state `Finishing`.
    pub(super) fn finishing(&self) -> Option<CloseReason> {
        if let State::Finishing(reason) = self.state { Some(reason) } else { None }
    }

    /// The reason why the session ends, in the state `Draining`.
    pub(super) fn draining(&self) -> Option<CloseReason> {
        if let State::Draining(reason) = self.state { Some(reason) } else { None }
    }

    pub(super) fn has_peer_ended(&self) -> bool {
        self.peer_ended
    }
}
