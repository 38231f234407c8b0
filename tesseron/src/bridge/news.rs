//! Changes for the agent, kept until its session has room for them.

use alloc::collections::BTreeSet;

use protocol_core::dialect::Notice;
use protocol_core::json::Text;
use protocol_core::session::{Refused, Session};
use protocol_core::time::Instant;

/// The notifications for the agent, each once however often it happened.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    tools: bool,
    resources: bool,
    /// Resources with a new value, by uri.
    updated: BTreeSet<Text>,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        !self.tools && !self.resources && self.updated.is_empty()
    }

    /// The tools are others now.
    pub(super) fn change_tools(&mut self) {
        self.tools = true;
    }

    /// The resources are others now.
    pub(super) fn change_resources(&mut self) {
        self.resources = true;
    }

    /// The resource has a new value.
    pub(super) fn update(&mut self, uri: Text) {
        self.updated.insert(uri);
    }

    /// The agent does not want to hear of the resource any longer.
    pub(super) fn forget(&mut self, uri: &Text) {
        self.updated.remove(uri);
    }

    /// Tells the agent as much as there is room for; the rest stays.
    pub(super) fn tell(&mut self, agent: &mut Session, now: Instant) {
        if self.tools {
            self.tools = agent.notify(Notice::ToolsChanged, now) == Err(Refused::Full);
        }
        if self.resources {
            self.resources = agent.notify(Notice::ResourcesChanged, now) == Err(Refused::Full);
        }
        while let Some(uri) = self.updated.pop_first() {
            let told = agent.notify(Notice::ResourceUpdated { uri: uri.clone() }, now);
            if told == Err(Refused::Full) {
                self.updated.insert(uri);
                break;
            }
        }
    }
}
