//! A resource that the agent watches.
//!
//! ```text
//!                    the app agrees
//!   Asked ------------------------------------> Agreed
//!     |                                            |
//!     | the app says no, or is gone;               | the agent unsubscribes,
//!     | nobody waits any longer                    | or the app is gone
//!     v                                            v
//!  (forgotten)                                 (forgotten)
//! ```
//!
//! A request for a resource that is Asked waits with the others; for one that is Agreed it is answered at once.

use alloc::vec::Vec;

use crate::claims::ChannelId;
use protocol_core::json::Text;
use protocol_core::session::InboundId;

/// A resource of which the agent wants to be told: one subscription at the app, however often the agent asked for it.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    channel: ChannelId,
    /// What the app calls it.
    name: Text,
    /// Who waits for the app to agree; nobody once it has.
    waiting: Vec<InboundId>,
    agreed: bool,
}

impl Subscription {
    /// One that `id` asks for, and that the app is about to be asked for.
    pub(super) fn new(channel: ChannelId, name: Text, id: InboundId) -> Self {
        Self { channel, name, waiting: alloc::vec![id], agreed: false }
    }

    /// Where the app is.
    pub(super) fn channel(&self) -> ChannelId {
        self.channel
    }

    /// What the app calls it.
    pub(super) fn name(&self) -> &Text {
        &self.name
    }

    /// How many requests of the agent wait for it.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has_waiting(&self, id: InboundId) -> bool {
        self.waiting.contains(&id)
    }

    /// Lets `id` wait with the others. Says whether it does: the app may have agreed before.
    pub(super) fn join(&mut self, id: InboundId) -> bool {
        if !self.agreed {
            self.waiting.push(id);
        }
        !self.agreed
    }

    /// `id` does not wait any longer.
    pub(super) fn leave(&mut self, id: InboundId) {
        self.waiting.retain(|waiting| *waiting != id);
    }

    /// The app has agreed. Gives those who waited for that.
    pub(super) fn agree(&mut self) -> Vec<InboundId> {
        self.agreed = true;
        core::mem::take(&mut self.waiting)
    }

    /// Ends it. Gives those who still wait.
    pub(super) fn end(self) -> Vec<InboundId> {
        self.waiting
    }
}
