//! The resources that the peer watches.
//!
//! ```text
//!   (none) --- subscribe ---> InputContext for --- unsubscribe -------------------------.
//!                                ^                                               v
//!   (of the session before) --- carry over ---> Carried --- unsubscribe ---> (forgotten)
//!                                |                 |                             ^
//!                                |                 |  subscribe, by another name |
//!                                '-- subscribe, ---+-----------------------------'
//!                                    by its name
//! ```
//!
//! A gateway of Tesseron may go on with what it subscribed to on the channel before, or subscribe to it again. So what was carried over is
//! told until the same resource is subscribed to, and no resource is told twice for a gateway that subscribes again.

use std::collections::BTreeMap;

use protocol_core::error::RpcError;
use protocol_core::json::Text;

/// Subscriptions by their names.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(BTreeMap<Text, Subscription>);

#[derive(Debug)]
struct Subscription {
    uri: Text,
    /// Made in a session before this one, and not again in this one.
    is_carried: bool,
}

impl Subscriptions {
    /// From now on the peer hears of `uri`, under the name of the subscription; where it gives it none, under that of the resource. There are
    /// at most so many.
    pub(crate) fn subscribe(&mut self, name: Option<Text>, uri: Text, most: usize) -> Result<(), RpcError> {
        if let Some(name) = &name
            && self.0.get(name).is_some_and(|active| !active.is_carried)
        {
            return Err(RpcError::fixed(RpcError::INVALID_REQUEST, "a subscription of that name is active"));
        }
        let name = name.unwrap_or_else(|| uri.clone());
        self.0.retain(|of, active| !active.is_carried || (*of != name && active.uri != uri));
        if self.0.len() >= most {
            return Err(RpcError::fixed(RpcError::INTERNAL, "too many subscriptions"));
        }
        self.0.insert(name, Subscription { uri, is_carried: false });
        Ok(())
    }

    /// From now on the peer hears no more of those that are meant, told by their name and the uri of their resource.
    pub(crate) fn unsubscribe(&mut self, is_meant: impl Fn(&Text, &Text) -> bool) {
        self.0.retain(|name, active| !is_meant(name, &active.uri));
    }

    /// The names under which the peer hears of `uri`, each with the uri.
    pub(crate) fn to(&self, uri: &str) -> Vec<(Text, Text)> {
        let told = self.0.iter().filter(|(_, active)| active.uri.as_str() == uri);
        told.map(|(name, active)| (name.clone(), active.uri.clone())).collect()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<(Text, Text)> {
        self.0.iter().map(|(name, active)| (name.clone(), active.uri.clone())).collect()
    }

    /// Goes on with those of a session before, as far as there is room and their resources are not subscribed to already.
    pub(crate) fn carry_over(&mut self, before: Vec<(Text, Text)>, most: usize) {
        for (name, uri) in before {
            let is_asked_for = self.0.contains_key(&name) || self.0.values().any(|active| !active.is_carried && active.uri == uri);
            if !is_asked_for && self.0.len() < most {
                self.0.insert(name, Subscription { uri, is_carried: true });
            }
        }
    }
}
