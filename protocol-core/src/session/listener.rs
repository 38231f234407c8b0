//! The subscription that an inbound `subscriptions/listen` opens.
//!
//! ```text
//!   receipt ---> Requested --- accept: the acknowledgement is sent ---> Listening --- publish ---> Listening
//! ```
//!
//! While the lane has no room, notifications wait. A notification that waits already is not added again, so at most one notification waits
//! for each list and each resource in the filter. The subscription ends with its call.

use alloc::collections::VecDeque;

use crate::dialect::{Notification, SubscriptionFilter};

#[derive(Clone, Debug)]
pub(super) struct Listener {
    /// In `Requested`, the kinds of notifications that the caller wants; in `Listening`, the kinds that the caller gets.
    filter: SubscriptionFilter,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Requested,
    /// The notifications that wait for room, oldest first.
    Listening {
        waiting: VecDeque<Notification>,
    },
}

impl Listener {
    pub(super) fn new(filter: SubscriptionFilter) -> Self {
        Self { filter, state: State::Requested }
    }

    /// Requested -> Listening, for the wanted kinds that are offered. Returns these kinds, or `None` if the subscription was accepted
    /// before.
    pub(super) fn accept(&mut self, offered: &SubscriptionFilter) -> Option<&SubscriptionFilter> {
        let State::Requested = self.state else { return None };
        self.filter = self.filter.and(offered);
        self.state = State::Listening { waiting: VecDeque::new() };
        Some(&self.filter)
    }

    /// Adds a notification to those that wait, unless it waits already. Returns `false` if the subscription does not include the
    /// notification, or was not accepted yet.
    pub(super) fn publish(&mut self, notification: &Notification) -> bool {
        let State::Listening { waiting } = &mut self.state else { return false };
        let wants = self.filter.wants(notification);
        if wants && !waiting.contains(notification) {
            waiting.push_back(notification.clone());
        }
        wants
    }

    /// Returns `true` if the subscription was accepted and includes the notification.
    pub(super) fn wants(&self, notification: &Notification) -> bool {
        matches!(self.state, State::Listening { .. }) && self.filter.wants(notification)
    }

    /// Takes the oldest notification that waits.
    pub(super) fn take(&mut self) -> Option<Notification> {
        let State::Listening { waiting } = &mut self.state else { return None };
        waiting.pop_front()
    }

    pub(super) fn has_waiting(&self) -> bool {
        matches!(&self.state, State::Listening { waiting } if !waiting.is_empty())
    }
}
