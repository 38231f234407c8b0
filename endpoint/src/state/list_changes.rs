//! The notifications that lists of a service have changed, until they are sent.
//!
//! A change stores its notification here and wakes the driver, which sends the notification in its next turn. So several changes in quick
//! succession are announced once, and a notification for which the queue has no room is sent later.

use protocol_core::dialect::Notification;
use protocol_core::session::{SendError, Session};
use protocol_core::time::Instant;

/// A list of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
}

/// The notifications that are to be sent, at most one for each list.
#[derive(Debug, Default)]
pub(crate) struct ListChanges {
    lists: [ListChange; 3],
    /// `true` if a list may have a pending notification. In most turns it is `false`, and the lists are not looked at.
    has_pending: bool,
}

#[derive(Debug, Default)]
struct ListChange {
    /// The number of the newest change for which a notification was stored. If two threads store their notifications in the wrong order,
    /// the notification of the older change is dropped.
    newest: u64,
    pending: Option<Notification>,
    /// `true` if the pending notification was sent to subscriptions.
    is_published: bool,
}

impl ListChanges {
    /// Stores the notification that a list changed, in place of the notification of an earlier change. `number` is the number of the
    /// change, counted over all lists of the service.
    pub(crate) fn put(&mut self, list: ListKind, number: u64, notification: Notification) {
        let [tools, prompts, resources] = &mut self.lists;
        let change = match list {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
        };
        if change.newest < number {
            *change = ListChange { newest: number, pending: Some(notification), is_published: false };
            self.has_pending = true;
        }
    }

    /// Sends the notifications. Returns `true` if one has to wait for room in the queue.
    pub(crate) fn send(&mut self, session: &mut Session, now: Instant) -> bool {
        if !self.has_pending {
            return false;
        }
        let mut waits_for_room = false;
        for change in &mut self.lists {
            let Some(notification) = &change.pending else { continue };
            if !core::mem::replace(&mut change.is_published, true) {
                session.publish(notification, now);
            }
            match session.notify(notification.clone(), now) {
                Err(SendError::Full) => waits_for_room = true,
                // The notification is sent once the handshake is complete.
                Err(SendError::NotReady) => {}
                Ok(()) | Err(_) => change.pending = None,
            }
        }
        self.has_pending = self.lists.iter().any(|change| change.pending.is_some());
        waits_for_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol_core::json::Json;

    /// Two threads add a tool each, and store their notifications in the opposite order.
    #[test]
    fn the_notice_of_the_later_change_of_a_list_is_kept() {
        let list = |names: &str| Notification::Actions(Json::parse(String::from(names)).unwrap());
        let mut changes = ListChanges::default();
        changes.put(ListKind::Tools, 2, list("[1,2]"));
        changes.put(ListKind::Tools, 1, list("[1]"));
        changes.put(ListKind::Resources, 1, Notification::ResourcesChanged);
        let [tools, prompts, resources] = &changes.lists;
        assert_eq!((&tools.pending, &prompts.pending), (&Some(list("[1,2]")), &None));
        assert_eq!(resources.pending, Some(Notification::ResourcesChanged));
    }
}
