//! Questions in both directions: those that our handlers ask the peer, and those that the peer asks us.

use bytes::Bytes;

use crate::dialect::Ask;
use crate::session::outbox::Ticket;
use crate::session::{InboundId, OutboundId};
use crate::time::Instant;
use crate::wire::WireId;

/// A question of ours.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// Who asks.
    pub(super) asker: InboundId,
    pub(super) ask: Ask,
    /// How many samplings a call is nested in that is made to answer it.
    pub(super) depth: u8,
    pub(super) state: QuestionState,
    /// Where the session's timers have it.
    pub(super) armed: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum QuestionState {
    /// Written, but it waits for the peer to confirm the handshake.
    Held(Bytes),
    /// Written to the outbox; whether it has left is the outbox's to say.
    Asked(Ticket),
}

impl Question {
    /// Its place in the outbox, once it is there.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.state {
            QuestionState::Held(_) => None,
            QuestionState::Asked(ticket) => Some(ticket),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, QuestionState::Held(_))
    }
}

/// A question of the peer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// What the peer calls it.
    pub(super) exchange: WireId,
    /// The call of ours that it belongs to, as far as that is known.
    pub(super) parent: Option<OutboundId>,
    /// The depth of a call that is made to answer it.
    pub(super) depth: u8,
}
