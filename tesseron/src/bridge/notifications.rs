//! Notifications for the agent that wait: until the agent's session has room for them, or until the same notification may be sent again.
//!
//! ```text
//!            add                  there is room                 QUIET later
//!   nothing -----> ready to send ---------------> quiet -----------------------> nothing
//!                     ^                             | add
//!                     |        QUIET later          v
//!                     '---------------------- quiet, held
//! ```

use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use protocol_core::dialect::Notification;
use protocol_core::json::Text;
use protocol_core::session::{SendError, Session};
use protocol_core::time::Instant;

/// The minimum time between two equal notifications. An app can report changes as fast as it can write, and each one that reaches the agent
/// makes the agent read a list or a resource again; ten times a second is enough for a person to see them as immediate.
pub(super) const QUIET: Duration = Duration::from_millis(100);

/// A change that the agent is notified of. A notification has no contents, so that one stands for any number of changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// The list of tools.
    Tools,
    /// The list of resources.
    Resources,
    /// The value of the resource with this URI, which the agent has subscribed to.
    Value(Text),
}

impl Change {
    fn notification(&self) -> Notification {
        match self {
            Self::Tools => Notification::ToolsChanged,
            Self::Resources => Notification::ResourcesChanged,
            Self::Value(uri) => Notification::ResourceUpdated { uri: uri.clone() },
        }
    }
}

/// The waiting notifications, each at most once.
#[derive(Clone, Debug, Default)]
pub(super) struct Notifications {
    /// Those that only wait for room.
    ready: BTreeSet<Change>,
    /// Those that were sent less than [`QUIET`] ago, with the end of that time, which comes first for the first of them.
    sent: VecDeque<(Instant, Change)>,
    quiet: BTreeSet<Change>,
    /// Those of [`Self::quiet`] that are to be sent again.
    held: BTreeSet<Change>,
}

impl Notifications {
    /// Returns `true` if a notification waits for room.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a notification. If it waits already, one is sent for both.
    pub(super) fn add(&mut self, change: Change) {
        if self.quiet.contains(&change) {
            self.held.insert(change);
        } else {
            self.ready.insert(change);
        }
    }

    /// Removes the notification for a resource, because its subscription has ended.
    pub(super) fn forget(&mut self, uri: &Text) {
        let change = Change::Value(uri.clone());
        self.ready.remove(&change);
        self.held.remove(&change);
    }

    /// Sends as many notifications as there is room for. The others stay queued; one that is refused for another reason is dropped.
    pub(super) fn send(&mut self, agent: &mut Session, now: Instant) {
        while self.sent.front().is_some_and(|(until, _)| *until <= now)
            && let Some((_, change)) = self.sent.pop_front()
        {
            self.quiet.remove(&change);
            if self.held.remove(&change) {
                self.ready.insert(change);
            }
        }
        while let Some(change) = self.ready.pop_first() {
            if agent.notify(change.notification(), now) == Err(SendError::Full) {
                self.ready.insert(change);
                break;
            }
            self.quiet.insert(change.clone());
            self.sent.push_back((now.saturating_add(QUIET), change));
        }
    }

    /// The next time at which [`Self::send`] must be called. It may have nothing to send then.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.sent.front().filter(|_| !self.held.is_empty()).map(|(until, _)| *until)
    }
}
