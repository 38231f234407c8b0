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
//! A Tesseron gateway that resumes a session on a new channel may rely on the subscriptions that it made before, or subscribe again. So its
//! earlier subscriptions are carried over. Each is removed as soon as the gateway subscribes to its resource again, so that no value is
//! sent twice.

use std::collections::BTreeMap;

use protocol_core::error::RpcError;
use protocol_core::json::Text;

/// Subscriptions by their names.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(BTreeMap<Text, Subscription>);

#[derive(Debug)]
struct Subscription {
    uri: Text,
    /// `true` in the state Carried: it was made in the session before this one.
    is_carried: bool,
}

impl Subscriptions {
    /// Adds a subscription to `uri`. Its default name is the URI, and a subscription without a given name replaces an earlier one of its
    /// name. Fails if a subscription with the given name is active, or if there are `max` others already.
    pub(crate) fn subscribe(&mut self, name: Option<Text>, uri: Text, max: usize) -> Result<(), RpcError> {
        if let Some(name) = &name
            && self.0.get(name).is_some_and(|subscription| !subscription.is_carried)
        {
            return Err(RpcError::fixed(RpcError::INVALID_REQUEST, "a subscription of that name is active"));
        }
        let name = name.unwrap_or_else(|| uri.clone());
        self.0.retain(|key, subscription| !subscription.is_carried || (*key != name && subscription.uri != uri));
        if self.0.len() >= max && !self.0.contains_key(&name) {
            return Err(RpcError::fixed(RpcError::INTERNAL, "too many subscriptions"));
        }
        self.0.insert(name, Subscription { uri, is_carried: false });
        Ok(())
    }

    /// Removes the subscriptions for which `is_meant`, given their name and URI, returns `true`.
    pub(crate) fn unsubscribe(&mut self, is_meant: impl Fn(&Text, &Text) -> bool) {
        self.0.retain(|name, subscription| !is_meant(name, &subscription.uri));
    }

    /// Returns `true` if there is a subscription to `uri`.
    pub(crate) fn includes(&self, uri: &str) -> bool {
        self.0.values().any(|subscription| subscription.uri.as_str() == uri)
    }

    /// The subscriptions to `uri`, as pairs of name and URI.
    pub(crate) fn to(&self, uri: &str) -> Vec<(Text, Text)> {
        let to = self.0.iter().filter(|(_, subscription)| subscription.uri.as_str() == uri);
        to.map(|(name, subscription)| (name.clone(), subscription.uri.clone())).collect()
    }

    /// All subscriptions, as pairs of name and URI.
    pub(crate) fn all(&self) -> Vec<(Text, Text)> {
        self.0.iter().map(|(name, subscription)| (name.clone(), subscription.uri.clone())).collect()
    }

    /// Adds the subscriptions of the session before this one, until there are `max` with those of this session. A subscription is left out
    /// if its name is in use, or if the gateway has already subscribed to its resource again.
    pub(crate) fn carry_over(&mut self, before: Vec<(Text, Text)>, max: usize) {
        for (name, uri) in before {
            let is_renewed = |subscription: &Subscription| !subscription.is_carried && subscription.uri == uri;
            let is_left_out = self.0.contains_key(&name) || self.0.values().any(is_renewed);
            if !is_left_out && self.0.len() < max {
                self.0.insert(name, Subscription { uri, is_carried: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Subscriptions;

    /// A regression: the peer was refused, although it asked for a subscription that it has.
    #[test]
    fn at_the_maximum_a_subscription_that_exists_can_be_made_again() {
        let mut subscriptions = Subscriptions::default();
        for _ in 0..2 {
            subscriptions.subscribe(None, "file:a".into(), 1).unwrap();
        }
        assert_eq!(subscriptions.all(), [("file:a".into(), "file:a".into())]);
        assert!(subscriptions.subscribe(None, "file:b".into(), 1).is_err());
    }
}
