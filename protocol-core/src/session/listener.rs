//! The subscription that an inbound `subscriptions/listen` opens.
//!
//! ```text
//!   receipt ---> Requested --- accept: the acknowledgement is sent ---> Listening --- publish ---> Listening
//! ```
//!
//! While the lane has no room, notices wait. A notice that waits already is not added again, so at most one notice waits for each list and
//! each resource in the filter. The subscription ends with its call.

use alloc::collections::VecDeque;

use crate::dialect::{Notice, SubscriptionFilter};

#[derive(Clone, Debug)]
pub(super) struct Listener {
    /// In `Requested`, the kinds of notices that the caller wants; in `Listening`, the kinds that the caller gets.
    filter: SubscriptionFilter,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Requested,
    /// The notices that wait for room, oldest first.
    Listening {
        waiting: VecDeque<Notice>,
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

    /// Adds a notice to those that wait, unless it waits already. Returns `false` if the subscription does not include the notice, or was
    /// not accepted yet.
    pub(super) fn publish(&mut self, notice: &Notice) -> bool {
        let State::Listening { waiting } = &mut self.state else { return false };
        let wants = self.filter.wants(notice);
        if wants && !waiting.contains(notice) {
            waiting.push_back(notice.clone());
        }
        wants
    }

    /// Takes the oldest notice that waits.
    pub(super) fn take(&mut self) -> Option<Notice> {
        let State::Listening { waiting } = &mut self.state else { return None };
        waiting.pop_front()
    }

    pub(super) fn has_waiting(&self) -> bool {
        matches!(&self.state, State::Listening { waiting } if !waiting.is_empty())
    }
}
