//! Questions in both directions: those that our handlers ask the peer, and those that the peer asks us.
//!
//! ```text
//!   ours:        request_input
//!                     |
//!                     v     release: the handshake is through
//!                   Held ------------------------------------> Asked
//!                     |                                          |  its answer | a cancel goes out | the end
//!                     | taken back, time is over, the end:       |
//!                     v nothing was sent                         v
//!                                       (gone)
//!
//!   the peer's:  open --- provide_input | the peer takes it back | its call is over | the end ---> (gone)
//! ```

use bytes::Bytes;

use crate::dialect::Ask;
use crate::session::outbox::{Class, Outbox, Ticket};
use crate::session::timers::{TimerKey, Timers};
use crate::session::{InboundId, InputKey, OutboundId};
use crate::time::Instant;
use crate::wire::WireId;

/// A question of ours.
#[derive(Clone, Debug)]
pub(super) struct Question {
    asker: InboundId,
    ask: Ask,
    /// The number of samplings that a call is nested in that is made to answer it.
    depth: u8,
    state: State,
    /// Its entry in the session's timers.
    armed: Option<Instant>,
}

#[derive(Clone, Debug)]
enum State {
    /// Written, but it waits for the peer to confirm the handshake.
    Held(Bytes),
    /// Written to the outbox; whether it has left is the outbox's to say.
    Asked(Ticket),
}

impl Question {
    pub(super) fn held(asker: InboundId, ask: Ask, depth: u8, frame: Bytes) -> Self {
        Self { asker, ask, depth, state: State::Held(frame), armed: None }
    }

    /// Held -> Asked.
    pub(super) fn release(&mut self, outbox: &mut Outbox) {
        if let State::Held(frame) = &mut self.state {
            self.state = State::Asked(outbox.push_apart(Class::Bound, core::mem::take(frame)));
        }
    }

    /// Moves its deadline to `at`.
    pub(super) fn arm(&mut self, key: InputKey, at: Option<Instant>, timers: &mut Timers) {
        timers.set(TimerKey::Question(key), &mut self.armed, at);
    }

    /// Notes that the timers have let go of its deadline.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    /// The invocation that asks.
    pub(super) fn asker(&self) -> InboundId {
        self.asker
    }

    pub(super) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// The number of samplings that a call is nested in that is made to answer it.
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// Its place in the outbox, once it is there.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.state {
            State::Held(_) => None,
            State::Asked(ticket) => Some(ticket),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }
}

/// A question of the peer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    exchange: WireId,
    parent: Option<OutboundId>,
    depth: u8,
}

impl Asked {
    pub(super) fn new(exchange: WireId, parent: Option<OutboundId>, depth: u8) -> Self {
        Self { exchange, parent, depth }
    }

    /// The peer's name for it.
    pub(super) fn exchange(&self) -> &WireId {
        &self.exchange
    }

    /// The call of ours that it belongs to, as far as that is known.
    pub(super) fn parent(&self) -> Option<OutboundId> {
        self.parent
    }

    /// The depth of a call that is made to answer it.
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }
}
