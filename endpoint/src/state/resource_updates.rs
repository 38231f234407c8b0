//! The notifications that subscribed resources have changed, until they are sent.
//!
//! ```text
//!   (none) -- put --> Due -- send --> Quiet -- put --> Waiting -- its time, in send --> Due
//!     ^                 ^               |
//!     |                 '--- put, late -|
//!     '---------- its time is over -----'
//! ```
//!
//! The first update of a resource is sent in the next turn of the driver, and further ones at most once per [`INTERVAL`]. An update for which
//! the queue has no room stays due, and one that comes meanwhile takes its place. Only resources that the peer has subscribed to have an
//! entry, so there are no more entries than subscriptions.

use core::time::Duration;
use std::collections::BTreeMap;

use super::subscriptions::Subscriptions;
use protocol_core::dialect::Notification;
use protocol_core::json::{Json, Text};
use protocol_core::session::{SendError, Session};
use protocol_core::time::{Instant, earlier};

/// The shortest time between two notifications of one resource to one peer.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct ResourceUpdates {
    updates: BTreeMap<Text, Update>,
    /// The earliest time at which an update that waits is due.
    earliest: Option<Instant>,
    /// `true` if an update may be due. In most turns it is `false`, and the updates are not looked at.
    has_due: bool,
    /// The resources whose new value is being read for the peer. The value is `true` if the resource has changed again since.
    reads: BTreeMap<Text, bool>,
}

#[derive(Debug)]
enum Update {
    Due {
        value: Json,
        /// The subscriptions with a name that are still to be notified, as pairs of name and URI; `None` before the first attempt.
        left: Option<Vec<(Text, Text)>>,
        /// The value has changed since `left` was made: those that were notified follow once more, after those that were not.
        has_changed: bool,
    },
    /// Sent a short time ago.
    Quiet {
        until: Instant,
    },
    Waiting {
        until: Instant,
        value: Json,
    },
}

impl ResourceUpdates {
    /// Notes that the resource `uri` has changed. Its new `value` is sent on Tesseron only. Returns `true` if the update is due now.
    pub(crate) fn put(&mut self, uri: Text, value: Json, now: Instant) -> bool {
        self.updates.retain(|_, update| !matches!(update, Update::Quiet { until } if *until <= now));
        let update = match self.updates.get_mut(&uri) {
            None => Update::Due { value, left: None, has_changed: false },
            Some(Update::Due { left, .. }) => Update::Due { value, left: left.take(), has_changed: true },
            Some(Update::Quiet { until } | Update::Waiting { until, .. }) => Update::Waiting { until: *until, value },
        };
        match &update {
            Update::Waiting { until, .. } => self.earliest = earlier(self.earliest, Some(*until)),
            _ => self.has_due = true,
        }
        self.updates.insert(uri, update);
        self.has_due
    }

    /// The time at which the next update is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.earliest
    }

    /// Sends the updates that are due. Returns `true` if one has to wait for room in the queue.
    pub(crate) fn send(&mut self, session: &mut Session, subscriptions: &Subscriptions, now: Instant) -> bool {
        if self.earliest.is_some_and(|at| at <= now) {
            self.has_due = true;
        }
        if !self.has_due {
            return false;
        }
        (self.earliest, self.has_due) = (None, false);
        for (uri, update) in &mut self.updates {
            if let Update::Waiting { until, value } = update {
                if *until > now {
                    self.earliest = earlier(self.earliest, Some(*until));
                    continue;
                }
                *update = Update::Due { value: core::mem::take(value), left: None, has_changed: false };
            }
            let Update::Due { value, left, has_changed } = update else { continue };
            if left.is_none() || *has_changed {
                session.publish(&Notification::ResourceUpdated { uri: uri.clone() }, now);
                let left = left.get_or_insert_default();
                let again: Vec<_> = subscriptions.to(uri).into_iter().filter(|one| !left.contains(one)).collect();
                left.extend(again);
            }
            *has_changed = false;
            let left = left.get_or_insert_default();
            while let Some((subscription, uri)) = left.first().cloned() {
                match session.notify(Notification::ResourceValue { subscription, uri, value: value.clone() }, now) {
                    Err(SendError::Full) => break,
                    Ok(()) | Err(_) => _ = left.remove(0),
                }
            }
            match left.is_empty() {
                true => *update = Update::Quiet { until: now.saturating_add(INTERVAL) },
                false => self.has_due = true,
            }
        }
        self.has_due
    }

    /// Begins to read the new value of the resource `uri`. If it is being read already, returns `false`: it will be read once more.
    pub(crate) fn begin_read(&mut self, uri: &Text) -> bool {
        match self.reads.get_mut(uri) {
            Some(changed_again) => *changed_again = true,
            None => _ = self.reads.insert(uri.clone(), false),
        }
        !self.reads.get(uri).is_some_and(|changed_again| *changed_again)
    }

    /// Ends a read. Returns `true` if the resource has changed since it began.
    pub(crate) fn end_read(&mut self, uri: &Text) -> bool {
        self.reads.remove(uri).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn session() -> Session {
        Session::new(protocol_core::Config::mcp_server(protocol_core::Identity::new("s", "1")), at(0))
    }

    #[test]
    fn updates_of_a_resource_in_a_short_time_become_one_at_the_end_of_that_time() {
        let (mut session, mut updates) = (session(), ResourceUpdates::default());
        let put = |updates: &mut ResourceUpdates, ms| updates.put("a".into(), Json::null(), at(ms));
        assert!(put(&mut updates, 0) && put(&mut updates, 0));
        assert!(!updates.send(&mut session, &Subscriptions::default(), at(0)));
        assert_eq!(updates.deadline(), None);
        assert!(!put(&mut updates, 1) && !put(&mut updates, 2));
        assert_eq!(updates.deadline(), Some(at(50)), "one more at the end of the interval");
        updates.send(&mut session, &Subscriptions::default(), at(50));
        assert_eq!(updates.deadline(), None);
        assert!(put(&mut updates, 100), "the interval after the last one is over");
        assert!(updates.put("b".into(), Json::null(), at(100)), "another resource does not wait");
    }

    #[test]
    fn regression_an_update_that_replaces_one_on_its_way_goes_first_to_those_that_were_not_notified() {
        let mut updates = ResourceUpdates::default();
        let left = || Some(Vec::from([(Text::from("second"), Text::from("a"))]));
        updates.updates.insert("a".into(), Update::Due { value: Json::null(), left: left(), has_changed: false });
        assert!(updates.put("a".into(), Json::parse("7").unwrap(), at(1)));
        let Some(Update::Due { left: kept, has_changed: true, .. }) = updates.updates.get(&Text::from("a")) else {
            panic!("{updates:?}")
        };
        assert_eq!(*kept, left());
    }

    #[test]
    fn a_resource_that_changes_while_it_is_read_is_read_once_more() {
        let mut updates = ResourceUpdates::default();
        let uri = Text::from("a");
        assert!(updates.begin_read(&uri));
        assert!(!updates.begin_read(&uri) && !updates.begin_read(&uri));
        assert!(updates.end_read(&uri));
        assert!(updates.begin_read(&uri));
        assert!(!updates.end_read(&uri));
    }
}
