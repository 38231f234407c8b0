//! Frames that wait to be polled, in the order in which they were made.
//!
//! ```text
//!           push, push_apart              pop, pop_into
//!   (none) ------------------> waits ----------------------> (gone: it has left)
//!                                |
//!                                | withdraw, withdraw_progress, drop_oldest_logs: it is never sent
//!                                v            sweep
//!                            withdrawn ----------------> (gone)
//! ```
//!
//! Three kinds, told apart by who may be refused: what must go out (responses, cancels, the handshake) always has a place, since its
//! number is bounded by the tables; what is asked for (calls, questions) is refused while the outbox is [congested](Outbox::is_congested);
//! what can be replaced (progress, log records) merges or drops. The queue itself is the signal: nothing else counts it.

use alloc::collections::VecDeque;

use bytes::Bytes;

use crate::byte_queue::KEPT;
use crate::session::InboundId;
use crate::sink::FrameSink;
use crate::wire::{Draft, Frames, Kept};

/// A frame's place in the order of all frames of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The kind of a frame, as far as its place in the queue is concerned.
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
    frame: Kept,
    /// Such places are swept when they are many. What is left of `frame` is how much of the others' memory it takes.
    withdrawn: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// The writer of frames, and their memory.
    frames: Frames,
    /// Ordered by ticket.
    queue: VecDeque<Waiting>,
    next: u64,
    bytes: usize,
    /// Those of them that are of log records.
    log_bytes: usize,
    strays: usize,
    withdrawn: usize,
    /// Memory of those among the others.
    withdrawn_bytes: usize,
    /// From this many bytes on it is congested.
    limit: usize,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            frames: Frames::default(),
            queue: VecDeque::new(),
            next: 0,
            bytes: 0,
            log_bytes: 0,
            strays: 0,
            withdrawn: 0,
            withdrawn_bytes: 0,
            limit,
        }
    }

    /// The writer of frames. The one that was written last is [pushed](Self::push), or not.
    pub(super) fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// Takes the frame that was written last.
    pub(super) fn push(&mut self, class: Class, frame: Draft) -> Ticket {
        let (length, frame) = (frame.len(), self.frames.keep(frame));
        self.add(class, length, frame)
    }

    /// Takes a frame that was written before.
    pub(super) fn push_apart(&mut self, class: Class, frame: Bytes) -> Ticket {
        self.add(class, frame.len(), Kept::Apart(frame))
    }

    fn add(&mut self, class: Class, length: usize, frame: Kept) -> Ticket {
        let ticket = Ticket(self.next);
        self.next = self.next.saturating_add(1);
        self.bytes = self.bytes.saturating_add(length);
        match class {
            Class::Stray => self.strays = self.strays.saturating_add(1),
            Class::Log => self.log_bytes = self.log_bytes.saturating_add(length),
            Class::Bound | Class::Progress(_) => {}
        }
        self.queue.push_back(Waiting { ticket, class, frame, withdrawn: false });
        ticket
    }

    /// The next frame.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        Some(match self.next()? {
            Kept::Behind(length) => self.frames.cut(length),
            Kept::Apart(frame) => frame,
        })
    }

    /// The next frame goes behind those in `into`; says how long it is.
    pub(super) fn pop_into(&mut self, into: &mut impl FrameSink) -> Option<usize> {
        let next = self.next()?;
        let length = next.len();
        match next {
            Kept::Behind(length) => {
                into.push_slice(self.frames.first(length));
                self.frames.leave(length);
            }
            Kept::Apart(frame) => into.push(frame),
        }
        Some(length)
    }

    #[inline]
    fn next(&mut self) -> Option<Kept> {
        loop {
            let waiting = self.queue.pop_front()?;
            if !waiting.withdrawn {
                self.uncount(waiting.class, waiting.frame.len());
                return Some(waiting.frame);
            }
            self.pass_withdrawn(&waiting.frame);
        }
    }

    #[cold]
    fn pass_withdrawn(&mut self, frame: &Kept) {
        self.withdrawn = self.withdrawn.saturating_sub(1);
        if let Kept::Behind(length) = *frame {
            self.withdrawn_bytes = self.withdrawn_bytes.saturating_sub(length);
            self.frames.leave(length);
        }
    }

    /// Takes a frame back. `false` if it has been polled.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let Ok(place) = self.queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) else { return false };
        let withdrawn = self.empty(place).is_some();
        self.sweep();
        withdrawn
    }

    /// Says whether the frame has neither been polled nor withdrawn.
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
        for place in 0..self.queue.len() {
            if freed >= bytes {
                break;
            }
            if self.queue.get(place).is_some_and(|waiting| is_of_kind(waiting.class))
                && let Some(length) = self.empty(place)
            {
                freed = freed.saturating_add(length);
                count = count.saturating_add(1);
            }
        }
        self.sweep();
        count
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.frames = Frames::default();
        (self.bytes, self.log_bytes, self.strays, self.withdrawn, self.withdrawn_bytes) = (0, 0, 0, 0, 0);
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

    /// Takes the frame at `place` back, unless it was before, and says how long it was.
    fn empty(&mut self, place: usize) -> Option<usize> {
        let waiting = self.queue.get_mut(place).filter(|waiting| !waiting.withdrawn)?;
        let (class, length) = (waiting.class, waiting.frame.len());
        let memory = if let Kept::Behind(length) = waiting.frame { length } else { 0 };
        (waiting.frame, waiting.withdrawn) = (Kept::Behind(memory), true);
        self.withdrawn = self.withdrawn.saturating_add(1);
        self.withdrawn_bytes = self.withdrawn_bytes.saturating_add(memory);
        self.uncount(class, length);
        Some(length)
    }

    /// Frees the places of withdrawn frames once they are most, and their memory. Amortised: as many must have been withdrawn since the
    /// last time.
    fn sweep(&mut self) {
        let are_many = self.withdrawn > self.queue.len().saturating_div(2).saturating_add(16);
        if are_many || self.withdrawn_bytes > self.bytes.saturating_add(KEPT) {
            self.frames.retain(self.queue.iter().filter_map(|waiting| match waiting.frame {
                Kept::Behind(length) => Some((length, !waiting.withdrawn)),
                Kept::Apart(_) => None,
            }));
            self.queue.retain(|waiting| !waiting.withdrawn);
            (self.withdrawn, self.withdrawn_bytes) = (0, 0);
        }
    }

    /// One of so many bytes waits no longer.
    fn uncount(&mut self, class: Class, length: usize) {
        self.bytes = self.bytes.saturating_sub(length);
        match class {
            Class::Stray => self.strays = self.strays.saturating_sub(1),
            Class::Log => self.log_bytes = self.log_bytes.saturating_sub(length),
            Class::Bound | Class::Progress(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LineEncoder;

    fn outbox(limit: usize) -> Outbox {
        Outbox::new(limit)
    }

    fn frame(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn push(outbox: &mut Outbox, class: Class, text: &str) -> Ticket {
        let frame = outbox.frames().as_it_is(text);
        outbox.push(class, frame)
    }

    #[test]
    fn frames_leave_in_the_order_in_which_they_came() {
        let mut outbox = outbox(100);
        for text in ["a", "b", "c"] {
            push(&mut outbox, Class::Bound, text);
        }
        assert_eq!(
            [outbox.pop(), outbox.pop(), outbox.pop(), outbox.pop()],
            [Some(frame("a")), Some(frame("b")), Some(frame("c")), None]
        );
    }

    #[test]
    fn a_withdrawn_frame_is_never_polled_and_a_polled_one_cannot_be_withdrawn() {
        let mut outbox = outbox(100);
        let (a, b) = (push(&mut outbox, Class::Bound, "a"), push(&mut outbox, Class::Bound, "b"));
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
        push(&mut outbox, Class::Bound, "stays");
        for _ in 0..10_000 {
            let ticket = push(&mut outbox, Class::Bound, "goes");
            assert!(outbox.withdraw(ticket));
        }
        assert!(outbox.queue.len() < 64, "{}", outbox.queue.len());
        assert_eq!((outbox.pop(), outbox.pop()), (Some(frame("stays")), None));
    }

    #[test]
    fn progress_of_one_invocation_is_withdrawn_and_that_of_others_stays() {
        let mut outbox = outbox(100);
        push(&mut outbox, Class::Progress(InboundId(1)), "1a");
        push(&mut outbox, Class::Progress(InboundId(2)), "2a");
        let last = push(&mut outbox, Class::Progress(InboundId(1)), "1b");
        outbox.withdraw_progress(InboundId(1), last);
        assert_eq!((outbox.pop(), outbox.pop()), (Some(frame("2a")), None));
    }

    /// Sweeping amid the pass moved the frames behind it forward, past the place that was looked at next.
    #[test]
    fn regression_all_of_many_updates_are_withdrawn_at_once() {
        let mut outbox = outbox(1);
        let mut last = push(&mut outbox, Class::Bound, "stays");
        for _ in 0..1_000 {
            last = push(&mut outbox, Class::Progress(InboundId(1)), "goes");
        }
        outbox.withdraw_progress(InboundId(1), last);
        assert_eq!((outbox.pop(), outbox.pop()), (Some(frame("stays")), None));
    }

    /// They lie amid the others, so their memory is not free by itself.
    #[test]
    fn memory_of_withdrawn_frames_does_not_pile_up_behind_one_that_stays() {
        let mut outbox = outbox(100);
        push(&mut outbox, Class::Bound, "stays");
        let text = "goes".repeat(200);
        for _ in 0..10_000 {
            let ticket = push(&mut outbox, Class::Bound, &text);
            assert!(outbox.withdraw(ticket));
            assert!(outbox.withdrawn_bytes <= KEPT + text.len());
        }
        push(&mut outbox, Class::Bound, "stays, too");
        let mut lines = LineEncoder::new();
        assert_eq!(
            (outbox.pop_into(&mut lines), outbox.pop_into(&mut lines), outbox.pop_into(&mut lines)),
            (Some(5), Some(10), None)
        );
        assert_eq!((lines.next_frame(), lines.next_frame()), (Some(frame("stays")), Some(frame("stays, too"))));
    }

    #[test]
    fn frames_of_every_kind_leave_in_order_and_either_way() {
        let long = "long".repeat(1_000);
        for ways in 0..32_u32 {
            let mut outbox = outbox(100);
            push(&mut outbox, Class::Bound, "a");
            let gone = push(&mut outbox, Class::Log, "gone");
            push(&mut outbox, Class::Stray, &long);
            let long_gone = push(&mut outbox, Class::Stray, &long);
            outbox.push_apart(Class::Bound, frame("apart"));
            push(&mut outbox, Class::Log, "b");
            assert!(outbox.withdraw(gone) && outbox.withdraw(long_gone));
            assert_eq!((outbox.bytes(), outbox.strays()), (7 + long.len(), 1));
            let mut lines = LineEncoder::new();
            for (place, expected) in ["a", &long, "apart", "b"].into_iter().enumerate() {
                if ways >> place & 1 == 0 {
                    assert_eq!(outbox.pop().unwrap(), expected);
                } else {
                    assert_eq!(outbox.pop_into(&mut lines), Some(expected.len()));
                    assert_eq!(lines.next_frame().unwrap(), expected);
                }
            }
            assert_eq!((outbox.pop_into(&mut lines), outbox.pop(), outbox.bytes(), outbox.strays()), (None, None, 0, 0));
        }
    }

    #[test]
    fn the_oldest_log_records_make_room_as_far_as_that_is_enough() {
        let mut outbox = outbox(2);
        push(&mut outbox, Class::Log, "a");
        push(&mut outbox, Class::Bound, "kept");
        push(&mut outbox, Class::Log, "bb");
        push(&mut outbox, Class::Log, "ccc");
        assert_eq!(outbox.drop_oldest_logs(7), 0);
        assert_eq!(outbox.drop_oldest_logs(2), 2);
        assert_eq!((outbox.pop(), outbox.pop(), outbox.pop()), (Some(frame("kept")), Some(frame("ccc")), None));
        assert_eq!(outbox.drop_oldest_logs(1), 0);
    }
}
