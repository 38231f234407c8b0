//! The notices that lists of a service have changed, until they are sent.
//!
//! A change stores its notice here and wakes the driver, which sends the notice in its next turn. So several changes in quick succession
//! are announced once, and a notice for which the queue has no room is sent later.

use protocol_core::dialect::Notice;
use protocol_core::session::{SendError, Session};
use protocol_core::time::Instant;

/// A list of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
}

/// The notices that are to be sent, at most one for each list.
#[derive(Debug, Default)]
pub(crate) struct ListChanges {
    lists: [ListChange; 3],
    /// `true` if a list may have a pending notice. In most turns it is `false`, and the lists are not looked at.
    has_pending: bool,
}

#[derive(Debug, Default)]
struct ListChange {
    /// The number of the newest change for which a notice was stored. If two threads store their notices in the wrong order, the notice
    /// of the older change is dropped.
    newest: u64,
    pending: Option<Notice>,
    /// `true` if the pending notice was sent to subscriptions.
    is_published: bool,
}

impl ListChanges {
    /// Stores the notice that a list changed, in place of the notice of an earlier change. `number` is the number of the change, counted
    /// over all lists of the service.
    pub(crate) fn put(&mut self, list: ListKind, number: u64, notice: Notice) {
        let [tools, prompts, resources] = &mut self.lists;
        let change = match list {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
        };
        if change.newest < number {
            *change = ListChange { newest: number, pending: Some(notice), is_published: false };
            self.has_pending = true;
        }
    }

    /// Sends the notices. Returns `true` if one has to wait for room in the queue.
    pub(crate) fn send(&mut self, session: &mut Session, now: Instant) -> bool {
        if !self.has_pending {
            return false;
        }
        let mut waits_for_room = false;
        for change in &mut self.lists {
            let Some(notice) = &change.pending else { continue };
            if !core::mem::replace(&mut change.is_published, true) {
                session.publish(notice, now);
            }
            match session.notify(notice.clone(), now) {
                Err(SendError::Full) => waits_for_room = true,
                // The notice is sent once the handshake is complete.
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

    /// Two threads add a tool each, and store their notices in the opposite order.
    #[test]
    fn the_notice_of_the_later_change_of_a_list_is_kept() {
        let list = |names: &str| Notice::Actions(Json::parse(String::from(names)).unwrap());
        let mut changes = ListChanges::default();
        changes.put(ListKind::Tools, 2, list("[1,2]"));
        changes.put(ListKind::Tools, 1, list("[1]"));
        changes.put(ListKind::Resources, 1, Notice::ResourcesChanged);
        let [tools, prompts, resources] = &changes.lists;
        assert_eq!((&tools.pending, &prompts.pending), (&Some(list("[1,2]")), &None));
        assert_eq!(resources.pending, Some(Notice::ResourcesChanged));
    }
}
