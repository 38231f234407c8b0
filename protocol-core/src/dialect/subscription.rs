//! The kinds of notifications that a subscription includes (MCP 2026-07-28, Subscriptions).

use alloc::vec::Vec;

use super::Notification;
use crate::json::Text;

/// The kinds of notifications that a subscription includes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionFilter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Changes of the resources with these URIs.
    pub uris: Vec<Text>,
}

impl SubscriptionFilter {
    /// Returns `true` if the filter has the kind of this notification. Always `false` for a kind that no filter can have, such as
    /// [`Notification::ResourceValue`], which belongs to a subscription of Tesseron.
    #[must_use]
    pub fn wants(&self, notification: &Notification) -> bool {
        match notification {
            Notification::ToolsChanged => self.tools,
            Notification::PromptsChanged => self.prompts,
            Notification::ResourcesChanged => self.resources,
            Notification::ResourceUpdated { uri } => self.uris.contains(uri),
            _ => false,
        }
    }

    /// Returns `true` if the filter has no kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.tools && !self.prompts && !self.resources && self.uris.is_empty()
    }

    /// The filter of the kinds that both filters have. The URIs are in the order of this filter.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            tools: self.tools && other.tools,
            prompts: self.prompts && other.prompts,
            resources: self.resources && other.resources,
            uris: self.uris.iter().filter(|uri| other.uris.contains(uri)).cloned().collect(),
        }
    }
}
