//! Notifications that wait until the agent's session has room for them.

use alloc::collections::BTreeSet;

use protocol_core::dialect::Notice;
use protocol_core::json::Text;
use protocol_core::session::{SendError, Session};
use protocol_core::time::Instant;

/// The waiting notifications, each at most once.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    tools: bool,
    resources: bool,
    /// The URIs of resources that have a new value.
    updated: BTreeSet<Text>,
}

impl Notices {
    pub(super) fn is_empty(&self) -> bool {
        !self.tools && !self.resources && self.updated.is_empty()
    }

    /// Adds a change of the list of tools.
    pub(super) fn change_tools(&mut self) {
        self.tools = true;
    }

    /// Adds a change of the list of resources.
    pub(super) fn change_resources(&mut self) {
        self.resources = true;
    }

    /// Adds a new value of a resource.
    pub(super) fn update(&mut self, uri: Text) {
        self.updated.insert(uri);
    }

    /// Removes the notification for a resource, because its subscription has ended.
    pub(super) fn forget(&mut self, uri: &Text) {
        self.updated.remove(uri);
    }

    /// Sends as many notifications as there is room for. The others stay queued; one that is refused for another reason is dropped.
    pub(super) fn send(&mut self, agent: &mut Session, now: Instant) {
        if self.tools {
            self.tools = agent.notify(Notice::ToolsChanged, now) == Err(SendError::Full);
        }
        if self.resources {
            self.resources = agent.notify(Notice::ResourcesChanged, now) == Err(SendError::Full);
        }
        while let Some(uri) = self.updated.pop_first() {
            let sent = agent.notify(Notice::ResourceUpdated { uri: uri.clone() }, now);
            if sent == Err(SendError::Full) {
                self.updated.insert(uri);
                break;
            }
        }
    }
}
