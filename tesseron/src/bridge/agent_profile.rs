//! The name and the capabilities of the agent, for the apps.
//!
//! A placeholder is used until the agent has completed its handshake. App sessions that are claimed earlier keep the placeholder.

use protocol_core::dialect::tesseron::pending_agent;
use protocol_core::dialect::{Capabilities, Identity, PeerInfo};

/// The agent on whose behalf the bridge calls apps.
#[derive(Clone, Debug)]
pub(super) struct AgentProfile {
    identity: Identity,
    /// The capabilities of the agent that matter to apps: sampling and elicitation.
    capabilities: Capabilities,
}

impl AgentProfile {
    /// The placeholder before the agent's handshake.
    pub(super) fn pending() -> Self {
        Self { identity: pending_agent(), capabilities: Capabilities::default() }
    }

    /// Stores the name of the agent, and its capabilities that matter to apps.
    pub(super) fn update(&mut self, peer: &PeerInfo) {
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
