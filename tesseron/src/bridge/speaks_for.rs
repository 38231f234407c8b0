//! The agent as the apps know it.
//!
//! It is pending until the agent says hello. Apps that are claimed from then on belong to that agent; sessions that were claimed before
//! know no other.

use protocol_core::dialect::tesseron::pending_agent;
use protocol_core::dialect::{Capabilities, Identity, PeerInfo};

/// For whom the bridge speaks to the apps.
#[derive(Clone, Debug)]
pub(super) struct SpeaksFor {
    identity: Identity,
    /// Sampling and elicitation, as far as the apps are concerned.
    capabilities: Capabilities,
}

impl SpeaksFor {
    /// Stands for an agent that has not said its name yet.
    pub(super) fn pending() -> Self {
        Self { identity: pending_agent(), capabilities: Capabilities::default() }
    }

    /// Takes the name of the agent, and what it can do for apps.
    pub(super) fn introduce(&mut self, peer: &PeerInfo) {
        self.identity.name.clone_from(&peer.identity.name);
        self.identity.title = Some(peer.identity.name.clone());
        self.capabilities = Capabilities::default();
        self.capabilities.sampling = peer.capabilities.sampling;
        self.capabilities.elicitation = peer.capabilities.elicitation;
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn name(&self) -> &str {
        &self.identity.name
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}
