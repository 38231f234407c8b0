//! Frames that wait to be polled, in the order in which they came to be.
//!
//! Three kinds, told apart by who may be refused: what must go out (responses, cancels, the handshake) always has a place, since its
//! number is bounded by the tables; what is asked for (calls, questions) is refused while the outbox is [congested](Outbox::is_congested);
//! what can be replaced (progress, log records) merges or drops. The queue itself is the signal: nothing else counts it.

use alloc::collections::VecDeque;

use bytes::Bytes;

use crate::session::InboundId;

/// A frame's place in the order of all frames of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// What a frame is, as far as its place in the queue is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Belongs to an invocation or the handshake: its number is bounded elsewhere.
    Bound,
    /// A reply that belongs to nothing; they are counted.
    Stray,
    /// Progress of an invocation that we serve.
    Progress(InboundId),
    /// A log record; the oldest makes room for the newest.
    Log,
}

#[derive(Clone, Debug)]
struct Waiting {
    ticket: Ticket,
    class: Class,
    /// `None` once withdrawn; such places are swept when they are many.
    frame: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// Ordered by ticket.
    queue: VecDeque<Waiting>,
    next: u64,
    bytes: usize,
    /// Those of them that are of log records.
    log_bytes: usize,
    strays: usize,
    withdrawn: usize,
    /// From this many bytes on it is congested.
    limit: usize,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        Self { queue: VecDeque::new(), next: 0, bytes: 0, log_bytes: 0, strays: 0, withdrawn: 0, limit }
    }

    pub(super) fn push(&mut self, class: Class, frame: Bytes) -> Ticket {
        let ticket = Ticket(self.next);
        self.next = self.next.saturating_add(1);
        self.bytes = self.bytes.saturating_add(frame.len());
        match class {
            Class::Stray => self.strays = self.strays.saturating_add(1),
            Class::Log => self.log_bytes = self.log_bytes.saturating_add(frame.len()),
            Class::Bound | Class::Progress(_) => {}
        }
        self.queue.push_back(Waiting { ticket, class, frame: Some(frame) });
        ticket
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        loop {
            let mut waiting = self.queue.pop_front()?;
            match self.take(&mut waiting) {
                Some(frame) => return Some(frame),
                None => self.withdrawn = self.withdrawn.saturating_sub(1),
            }
        }
    }

    /// Takes a frame back. `false` if it has been polled.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let Ok(place) = self.queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) else { return false };
        self.empty(place)
    }

    /// Whether the frame has not been polled, nor withdrawn.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        self.queue.front().is_some_and(|first| first.ticket <= ticket)
    }

    /// Takes back all progress of `id`, of which `last` is the newest.
    pub(super) fn withdraw_progress(&mut self, id: InboundId, last: Ticket) {
        if self.holds(last) {
            self.withdraw_first(usize::MAX, |class| class == Class::Progress(id));
        }
    }

    /// Takes back the oldest log records until at least as many `bytes` are free, and says how many; none if that cannot be.
    pub(super) fn drop_oldest_logs(&mut self, bytes: usize) -> usize {
        if self.log_bytes < bytes { 0 } else { self.withdraw_first(bytes, |class| class == Class::Log) }
    }

    /// Takes back the oldest frames of a kind until `bytes` are free, in one pass, and says how many.
    fn withdraw_first(&mut self, bytes: usize, is_of_kind: impl Fn(Class) -> bool) -> usize {
        let (mut freed, mut count) = (0_usize, 0_usize);
        let mut queue = core::mem::take(&mut self.queue);
        for waiting in queue.iter_mut().filter(|waiting| is_of_kind(waiting.class)) {
            if freed >= bytes {
                break;
            }
            if let Some(frame) = self.take(waiting) {
                freed = freed.saturating_add(frame.len());
                count = count.saturating_add(1);
            }
        }
        self.queue = queue;
        self.withdrawn = self.withdrawn.saturating_add(count);
        self.sweep();
        count
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        (self.bytes, self.log_bytes, self.strays, self.withdrawn) = (0, 0, 0, 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.len() == self.withdrawn
    }

    pub(super) fn is_congested(&self) -> bool {
        self.bytes >= self.limit
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn strays(&self) -> usize {
        self.strays
    }

    fn empty(&mut self, place: usize) -> bool {
        let Some(mut waiting) = self.queue.get_mut(place).map(|waiting| Waiting { frame: waiting.frame.take(), ..*waiting }) else {
            return false;
        };
        if self.take(&mut waiting).is_none() {
            return false;
        }
        self.withdrawn = self.withdrawn.saturating_add(1);
        self.sweep();
        true
    }

    /// Frees the places of withdrawn frames once they are most. Amortised: as many must have been withdrawn since the last time.
    fn sweep(&mut self) {
        if self.withdrawn > self.queue.len().saturating_div(2).saturating_add(16) {
            self.queue.retain(|waiting| waiting.frame.is_some());
            self.withdrawn = 0;
        }
    }

    fn take(&mut self, waiting: &mut Waiting) -> Option<Bytes> {
        let frame = waiting.frame.take()?;
        self.bytes = self.bytes.saturating_sub(frame.len());
        match waiting.class {
            Class::Stray => self.strays = self.strays.saturating_sub(1),
            Class::Log => self.log_bytes = self.log_bytes.saturating_sub(frame.len()),
            Class::Bound | Class::Progress(_) => {}
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(limit: usize) -> Outbox {
        Outbox::new(limit)
    }

    fn frame(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn frames_leave_in_the_order_in_which_they_came() {
        let mut outbox = outbox(100);
        for text in ["a", "b", "c"] {
            outbox.push(Class::Bound, frame(text));
        }
        assert_eq!(
            [outbox.pop(), outbox.pop(), outbox.pop(), outbox.pop()],
            [Some(frame("a")), Some(frame("b")), Some(frame("c")), None]
        );
    }

    #[test]
    fn a_withdrawn_frame_is_never_polled_and_a_polled_one_cannot_be_withdrawn() {
        let mut outbox = outbox(100);
        let (a, b) = (outbox.push(Class::Bound, frame("a")), outbox.push(Class::Bound, frame("b")));
        assert!(outbox.holds(a));
        assert!(outbox.withdraw(a));
        assert!(!outbox.withdraw(a));
        assert_eq!(outbox.bytes(), 1);
        assert_eq!(outbox.pop(), Some(frame("b")));
        assert!(!outbox.withdraw(b) && !outbox.holds(b) && outbox.is_empty());
        assert_eq!(outbox.pop(), None);
    }

    #[test]
    fn places_of_withdrawn_frames_do_not_pile_up_behind_one_that_stays() {
        let mut outbox = outbox(100);
        outbox.push(Class::Bound, frame("stays"));
        for _ in 0..10_000 {
            let ticket = outbox.push(Class::Bound, frame("goes"));
            assert!(outbox.withdraw(ticket));
        }
        assert!(outbox.queue.len() < 64, "{}", outbox.queue.len());
        assert_eq!((outbox.pop(), outbox.pop()), (Some(frame("stays")), None));
    }

    #[test]
    fn progress_of_one_invocation_is_withdrawn_and_that_of_others_stays() {
        let mut outbox = outbox(100);
        outbox.push(Class::Progress(InboundId(1)), frame("1a"));
        outbox.push(Class::Progress(InboundId(2)), frame("2a"));
        let last = outbox.push(Class::Progress(InboundId(1)), frame("1b"));
        outbox.withdraw_progress(InboundId(1), last);
        assert_eq!((outbox.pop(), outbox.pop()), (Some(frame("2a")), None));
    }

    /// Sweeping amid the pass moved the frames behind it forward, past the place that was looked at next.
    #[test]
    fn regression_all_of_many_updates_are_withdrawn_at_once() {
        let mut outbox = outbox(1);
        let mut last = outbox.push(Class::Bound, frame("stays"));
        for _ in 0..1_000 {
            last = outbox.push(Class::Progress(InboundId(1)), frame("goes"));
        }
        outbox.withdraw_progress(InboundId(1), last);
        assert_eq!((outbox.pop(), outbox.pop()), (Some(frame("stays")), None));
    }

    #[test]
    fn the_oldest_log_records_make_room_as_far_as_that_is_enough() {
        let mut outbox = outbox(2);
        outbox.push(Class::Log, frame("a"));
        outbox.push(Class::Bound, frame("kept"));
        outbox.push(Class::Log, frame("bb"));
        outbox.push(Class::Log, frame("ccc"));
        assert_eq!(outbox.drop_oldest_logs(7), 0);
        assert_eq!(outbox.drop_oldest_logs(2), 2);
        assert_eq!((outbox.pop(), outbox.pop(), outbox.pop()), (Some(frame("kept")), Some(frame("ccc")), None));
        assert_eq!(outbox.drop_oldest_logs(1), 0);
    }
}
