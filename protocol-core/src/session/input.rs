//! Questions in both directions: those that our handlers ask the peer, and those that the peer asks us.

use crate::dialect::Ask;
use crate::session::outbox::Ticket;
use crate::session::{InboundId, OutboundId};
use crate::time::Instant;
use crate::wire::WireId;

/// A question of ours.
#[derive(Debug)]
pub(super) struct Question {
    /// Who asks.
    pub(super) asker: InboundId,
    pub(super) ask: Ask,
    pub(super) depth: u8,
    pub(super) state: QuestionState,
    /// Where the session's timers have it.
    pub(super) armed: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum QuestionState {
    /// Waits for the peer to confirm the handshake.
    Held,
    /// Written to the outbox; whether it has left is the outbox's to say.
    Asked { exchange: u64, ticket: Ticket },
}

/// A question of the peer.
#[derive(Debug)]
pub(super) struct Asked {
    /// What the peer calls it.
    pub(super) exchange: WireId,
    /// The call of ours that it belongs to, as far as that is known.
    pub(super) parent: Option<OutboundId>,
    /// The depth of a call that is made to answer it.
    pub(super) depth: u8,
}
