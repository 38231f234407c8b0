//! The subscriptions of the peer to resources.
//!
//! ```text
//!   subscribe ---------------------------> Active ---- unsubscribe ----> (removed)
//!                                            ^                               ^
//!                                            | subscribe, same name          |
//!   carry over, from the session before -> Carried --- unsubscribe, or ------'
//!                                                      subscribe to the same resource by another name
//! ```
//!
//! A Tesseron gateway that resumes a session on a new channel may rely on the subscriptions that it made before, or subscribe again. So those
//! subscriptions are carried over, and one of them is removed as soon as the gateway subscribes to its resource: no value is sent twice.

use std::collections::BTreeMap;

use protocol_core::error::RpcError;
use protocol_core::json::Text;

/// Subscriptions by their names.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(BTreeMap<Text, Subscription>);

#[derive(Debug)]
struct Subscription {
    uri: Text,
    /// Carried over from the session before.
    is_carried: bool,
}

impl Subscriptions {
    /// Adds a subscription to `uri`. Its default name is the URI. Fails if there would be more than `max` subscriptions.
    pub(crate) fn subscribe(&mut self, name: Option<Text>, uri: Text, max: usize) -> Result<(), RpcError> {
        if let Some(name) = &name
            && self.0.get(name).is_some_and(|active| !active.is_carried)
        {
            return Err(RpcError::fixed(RpcError::INVALID_REQUEST, "a subscription of that name is active"));
        }
        let name = name.unwrap_or_else(|| uri.clone());
        self.0.retain(|of, active| !active.is_carried || (*of != name && active.uri != uri));
        if self.0.len() >= max {
            return Err(RpcError::fixed(RpcError::INTERNAL, "too many subscriptions"));
        }
        self.0.insert(name, Subscription { uri, is_carried: false });
        Ok(())
    }

    /// Removes the subscriptions for which `is_meant`, given their name and URI, returns `true`.
    pub(crate) fn unsubscribe(&mut self, is_meant: impl Fn(&Text, &Text) -> bool) {
        self.0.retain(|name, active| !is_meant(name, &active.uri));
    }

    /// The subscriptions to `uri`, as pairs of name and URI.
    pub(crate) fn to(&self, uri: &str) -> Vec<(Text, Text)> {
        let to = self.0.iter().filter(|(_, active)| active.uri.as_str() == uri);
        to.map(|(name, active)| (name.clone(), active.uri.clone())).collect()
    }

    /// All subscriptions, as pairs of name and URI.
    pub(crate) fn all(&self) -> Vec<(Text, Text)> {
        self.0.iter().map(|(name, active)| (name.clone(), active.uri.clone())).collect()
    }

    /// Adds the subscriptions of the session before, up to `max` in all, except those whose name or resource is subscribed to already.
    pub(crate) fn carry_over(&mut self, before: Vec<(Text, Text)>, max: usize) {
        for (name, uri) in before {
            let is_asked_for = self.0.contains_key(&name) || self.0.values().any(|active| !active.is_carried && active.uri == uri);
            if !is_asked_for && self.0.len() < max {
                self.0.insert(name, Subscription { uri, is_carried: true });
            }
        }
    }
}
