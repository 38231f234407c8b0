//! Input requests in both directions: those of our handlers to the peer, and those of the peer to this end.
//!
//! ```text
//!   ours:        request_input
//!                     |
//!                     v     release: immediately, or when the handshake is done
//!                   Held ------------------------------------> Sent
//!                     |                                          |  its answer | the calls are lost |
//!                     |                                          |  taken back, time is over: sends a cancel, if the protocol has one
//!                     | taken back, time is over, the calls      |
//!                     v are lost: nothing was sent               v
//!                                       (gone)
//!
//!   the peer's:  open --- provide_input | the peer withdraws it | its call, its lane or the session ends ---> (gone)
//! ```
//!
//! An input request of the peer comes as a request, or with the result of an exchange of ours.

use bytes::Bytes;

use crate::dialect::{InputRequest, Rules};
use crate::session::lane_queue::Class;
use crate::session::outbox::{Outbox, Ticket};
use crate::session::timers::{TimerKey, Timers};
use crate::session::{Arriving, InboundId, InputKey, Lane, OutboundId};
use crate::time::Instant;
use crate::wire::WireId;

/// An input request of ours.
#[derive(Clone, Debug)]
pub(super) struct OutboundInput {
    /// The call that it belongs to.
    asker: InboundId,
    /// The lane of its call.
    lane: Lane,
    ask: InputRequest,
    /// The rules of its call.
    rules: &'static Rules,
    /// The sampling depth of a call that is made to answer the input request.
    depth: u8,
    state: State,
    /// The time for which its deadline is armed in the session's timers.
    armed: Option<Instant>,
}

#[derive(Clone, Debug)]
enum State {
    /// Its frame is written, and waits until the peer has confirmed the handshake.
    Held(Bytes),
    /// Its frame was queued in the outbox, where this ticket identifies it.
    Sent(Ticket),
}

impl OutboundInput {
    pub(super) fn held(asker: InboundId, lane: Lane, ask: InputRequest, depth: u8, rules: &'static Rules, frame: Bytes) -> Self {
        Self { asker, lane, ask, rules, depth, state: State::Held(frame), armed: None }
    }

    /// Held -> Sent.
    pub(super) fn release(&mut self, outbox: &mut Outbox) {
        if let State::Held(frame) = &mut self.state {
            self.state = State::Sent(outbox.push_taken(self.lane, Class::InputRequest, core::mem::take(frame)));
        }
    }

    /// Sets its deadline to `at`, or clears it.
    pub(super) fn arm(&mut self, key: InputKey, at: Option<Instant>, timers: &mut Timers) {
        timers.set(TimerKey::OutboundInput(key), &mut self.armed, at);
    }

    /// Records that its deadline was removed from the timers.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    /// The call that it belongs to.
    pub(super) fn asker(&self) -> InboundId {
        self.asker
    }

    /// The lane of its call.
    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    pub(super) fn ask(&self) -> &InputRequest {
        &self.ask
    }

    /// The rules of its call.
    pub(super) fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// The sampling depth of a call that is made to answer the input request.
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// Its ticket in the outbox, once it is queued.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.state {
            State::Held(_) => None,
            State::Sent(ticket) => Some(ticket),
        }
    }

    /// The length of its frame in bytes while it is held; 0 afterwards.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.state {
            State::Held(frame) => frame.len(),
            State::Sent(_) => 0,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }
}

/// An input request of the peer.
#[derive(Clone, Debug)]
pub(super) struct InboundInput {
    carrier: Carrier,
    parent: Option<OutboundId>,
    depth: u8,
    /// The rules of its exchange.
    rules: &'static Rules,
}

/// The message in which an input request came. It determines the message in which the answer is sent.
#[derive(Clone, Debug)]
enum Carrier {
    /// A request of the peer. The answer is sent in the response.
    Request { lane: Lane, exchange: WireId, frame_bytes: usize },
    /// The result of an exchange of ours. The answer is sent in the retry of the call. `can_be_declined` is `true` if a user gives the
    /// answer.
    Result { can_be_declined: bool },
}

impl InboundInput {
    /// An input request that came as a request.
    pub(super) fn requested(
        arriving: Arriving,
        exchange: WireId,
        parent: Option<OutboundId>,
        depth: u8,
        rules: &'static Rules,
    ) -> Self {
        let carrier = Carrier::Request { lane: arriving.lane(), exchange, frame_bytes: arriving.bytes() };
        Self { carrier, parent, depth, rules }
    }

    /// An input request that came with a result of `parent`.
    pub(super) fn of_round(parent: OutboundId, can_be_declined: bool, depth: u8, rules: &'static Rules) -> Self {
        Self { carrier: Carrier::Result { can_be_declined }, parent: Some(parent), depth, rules }
    }

    /// The lane and the peer's id of the request; `None` if the input request came with a result.
    pub(super) fn exchange(&self) -> Option<(Lane, &WireId)> {
        match &self.carrier {
            Carrier::Request { lane, exchange, .. } => Some((*lane, exchange)),
            Carrier::Result { .. } => None,
        }
    }

    /// The size of the frame of the request; 0 if the input request came with a result.
    pub(super) fn frame_bytes(&self) -> usize {
        match &self.carrier {
            Carrier::Request { frame_bytes, .. } => *frame_bytes,
            Carrier::Result { .. } => 0,
        }
    }

    /// Returns `true` if it came by `lane`, as a request.
    pub(super) fn came_by(&self, lane: Lane) -> bool {
        self.exchange().is_some_and(|(by, _)| by == lane)
    }

    /// Returns `true` if the input request came with a result, and a user answers it and can decline or dismiss it; `false` for one that
    /// came as a request.
    pub(super) fn can_be_declined(&self) -> bool {
        matches!(self.carrier, Carrier::Result { can_be_declined: true })
    }

    /// The outbound call that it belongs to, if that is known.
    pub(super) fn parent(&self) -> Option<OutboundId> {
        self.parent
    }

    /// The rules of its exchange.
    pub(super) fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// The sampling depth of a call that is made to answer the input request.
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }
}
