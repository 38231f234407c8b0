//! The queue of calls whose progress or notifications wait for the session's rate window and room on their lane, or only for room.
//!
//! | Ticket of the call | `join_for_window` | `join_for_room` | `leave` |
//! |---|---|---|---|
//! | none | a new ticket for the window | a new ticket for room | none |
//! | for the window | stays | a new ticket for room | none |
//! | for room | a new ticket for the window | stays | none |
//!
//! Calls are served in the order of their tickets, so that a call that reports rarely is served even if another reports often. Final
//! updates and the notifications of a subscription wait only for room, and come before all others.
//!
//! Each lane has a queue, and the tickets of all lanes are numbered together. A lane without room is skipped until it has room again
//! (`block`, `unblock`), so that a peer that reads one lane slowly delays no other lane.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::config::RateWindow;
use crate::session::progress::Window;
use crate::session::timers::{TimerKey, Timers};
use crate::session::{InboundId, Lane};
use crate::time::Instant;

/// A ticket in a queue. Tickets that wait only for room come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueTicket {
    /// `true` if the call waits for room on the lane and for the session's window, `false` if only for room.
    awaits_window: bool,
    number: u64,
}

#[derive(Clone, Debug)]
pub(super) struct ProgressQueue {
    window: Window,
    /// The queues of the lanes. An empty queue is removed.
    lanes: BTreeMap<Lane, BTreeMap<QueueTicket, InboundId>>,
    /// The first ticket of each lane that is not blocked.
    heads: BTreeMap<QueueTicket, Lane>,
    /// Lanes that had no room when they were last checked.
    blocked: BTreeSet<Lane>,
    next: u64,
    /// The next opening of the window, if it is armed in the session's timers.
    armed: Option<Instant>,
}

impl ProgressQueue {
    pub(super) fn new(rate: RateWindow) -> Self {
        Self {
            window: Window::new(rate),
            lanes: BTreeMap::new(),
            heads: BTreeMap::new(),
            blocked: BTreeSet::new(),
            next: 0,
            armed: None,
        }
    }

    /// Returns `true` if a call waits on a lane that is not blocked, or the timer is armed: then the queue must be served, or its timer
    /// updated.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.heads.is_empty() || self.armed.is_some()
    }

    /// Returns `true` if no call at the head of the queue of a lane waits for the window. Blocked lanes are left out.
    pub(super) fn is_free(&self) -> bool {
        self.heads.last_key_value().is_none_or(|(ticket, _)| !ticket.awaits_window)
    }

    /// The call that is next, and its lane.
    pub(super) fn first(&self) -> Option<(InboundId, Lane)> {
        let (ticket, lane) = self.heads.first_key_value()?;
        Some((*self.lanes.get(lane)?.get(ticket)?, *lane))
    }

    /// Appends a call that waits for room to the queue of a lane. A call that already does keeps its ticket.
    pub(super) fn join_for_room(&mut self, id: InboundId, lane: Lane, ticket: &mut Option<QueueTicket>) {
        self.join(id, lane, false, ticket);
    }

    /// Appends a call that also waits for the session's window to the queue of a lane. A call that already does keeps its ticket.
    pub(super) fn join_for_window(&mut self, id: InboundId, lane: Lane, ticket: &mut Option<QueueTicket>) {
        self.join(id, lane, true, ticket);
    }

    fn join(&mut self, id: InboundId, lane: Lane, awaits_window: bool, ticket: &mut Option<QueueTicket>) {
        if ticket.is_none_or(|ticket| ticket.awaits_window != awaits_window) {
            self.leave(lane, ticket);
            let last = QueueTicket { awaits_window, number: self.next };
            self.next = self.next.saturating_add(1);
            self.change(lane, |queue| {
                queue.insert(last, id);
            });
            *ticket = Some(last);
        }
    }

    /// Removes a call from the queue of its lane, and takes its ticket.
    #[inline]
    pub(super) fn leave(&mut self, lane: Lane, ticket: &mut Option<QueueTicket>) {
        if let Some(ticket) = ticket.take() {
            self.change(lane, |queue| {
                queue.remove(&ticket);
            });
        }
    }

    /// Changes the queue of a lane, and updates `heads`.
    fn change(&mut self, lane: Lane, change: impl FnOnce(&mut BTreeMap<QueueTicket, InboundId>)) {
        let queue = self.lanes.entry(lane).or_default();
        let before = queue.first_key_value().map(|(ticket, _)| *ticket);
        change(queue);
        let after = queue.first_key_value().map(|(ticket, _)| *ticket);
        if after.is_none() {
            self.lanes.remove(&lane);
            self.blocked.remove(&lane);
        }
        if let Some(before) = before.filter(|before| Some(*before) != after) {
            self.heads.remove(&before);
        }
        if let Some(after) = after.filter(|_| !self.blocked.contains(&lane)) {
            self.heads.insert(after, lane);
        }
    }

    /// Skips a lane from now on, since it has no room.
    pub(super) fn block(&mut self, lane: Lane) {
        if let Some((first, _)) = self.lanes.get(&lane).and_then(BTreeMap::first_key_value) {
            self.heads.remove(first);
            self.blocked.insert(lane);
        }
    }

    /// Serves a lane again, since it has room.
    pub(super) fn unblock(&mut self, lane: Lane) {
        if self.blocked.remove(&lane)
            && let Some((first, _)) = self.lanes.get(&lane).and_then(BTreeMap::first_key_value)
        {
            self.heads.insert(*first, lane);
        }
    }

    /// Returns `true` if any lane is skipped.
    #[inline]
    pub(super) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Returns `true` if this lane is skipped.
    pub(super) fn is_blocked(&self, lane: Lane) -> bool {
        self.blocked.contains(&lane)
    }

    /// Returns `true` if the session's window allows an update.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.window.opens(now) == Some(now)
    }

    /// Counts an update in the session's window.
    pub(super) fn count(&mut self, now: Instant) {
        self.window.count(now);
    }

    /// Arms the next opening of the window, if a call at the head of a queue waits for it.
    pub(super) fn arm(&mut self, now: Instant, timers: &mut Timers) {
        let opens = self.window.opens(now).filter(|at| *at > now && !self.is_free());
        timers.set(TimerKey::ProgressQueue, &mut self.armed, opens);
    }

    /// Records that the opening of the window was removed from the timers.
    pub(super) fn forget_armed(&mut self) {
        self.armed = None;
    }

    pub(super) fn clear(&mut self, timers: &mut Timers) {
        self.lanes.clear();
        self.heads.clear();
        self.blocked.clear();
        timers.set(TimerKey::ProgressQueue, &mut self.armed, None);
    }
}

#[cfg(test)]
mod tests {
    use super::{ProgressQueue, QueueTicket};
    use crate::config::RateWindow;
    use crate::session::{InboundId, Lane};

    fn queue() -> ProgressQueue {
        ProgressQueue::new(RateWindow::UNLIMITED)
    }

    /// The calls that wait on the channel, in their order.
    fn order(mut queue: ProgressQueue, tickets: &mut [(InboundId, Option<QueueTicket>)]) -> alloc::vec::Vec<u64> {
        let mut order = alloc::vec::Vec::new();
        while let Some((id, lane)) = queue.first() {
            let (_, ticket) = tickets.iter_mut().find(|(call, _)| *call == id).unwrap();
            queue.leave(lane, ticket);
            order.push(id.0);
        }
        order
    }

    #[test]
    fn a_call_that_reports_again_keeps_its_place_and_starves_no_other() {
        let (mut queue, mut tickets) = (queue(), [1, 2].map(|id| (InboundId(id), None)));
        for _ in 0..3 {
            for (id, ticket) in &mut tickets {
                queue.join_for_window(*id, Lane::CHANNEL, ticket);
            }
        }
        let (id, ticket) = &mut tickets[0];
        queue.join_for_window(*id, Lane::CHANNEL, ticket);
        assert_eq!(order(queue, &mut tickets), [1, 2]);
    }

    #[test]
    fn a_call_that_waits_for_room_goes_before_those_that_wait_for_the_window() {
        let (mut queue, mut tickets) = (queue(), [1, 2, 3].map(|id| (InboundId(id), None)));
        for ((id, ticket), awaits_window) in tickets.iter_mut().zip([true, false, true]) {
            queue.join(*id, Lane::CHANNEL, awaits_window, ticket);
        }
        let (id, ticket) = &mut tickets[2];
        queue.join_for_room(*id, Lane::CHANNEL, ticket);
        assert_eq!(order(queue, &mut tickets), [2, 3, 1]);
    }
}
