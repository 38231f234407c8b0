//! Frames of one lane that wait to be polled, in the order in which they were made.
//!
//! ```text
//!               push                next         
//!   (none) ------------> waits ----------------------> (gone: it has left)
//!                          |
//!                          | withdraw, withdraw_first: it is never sent
//!                          v                sweep
//!                      withdrawn ----------------------> (gone)
//! ```

use alloc::collections::VecDeque;

use crate::byte_queue::KEPT_CAPACITY;
use crate::session::overload::Overload;
use crate::session::{ExchangeId, InboundId, InputKey, ReplyKind, RouteKind};
use crate::wire::{FrameBuffer, QueuedFrame};

/// The kind of a frame: it decides which bounds count it, and the route that the transport is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The reply to an exchange of the peer that has a place in a table.
    Reply(ReplyKind),
    /// A reply that belongs to no exchange in a table. These are counted.
    Unsolicited(ReplyKind),
    /// Progress of an inbound call.
    Progress(InboundId),
    /// An input request on behalf of an inbound call, or its cancel.
    InputRequest,
    /// A log record, perhaps on behalf of a call. The oldest records make room for the newest.
    Log { within: bool },
    /// A request of ours.
    Request(ExchangeId),
    /// The cancel of a request of ours.
    Cancel(ExchangeId),
    /// The answer to an input request of the peer.
    Answer(InputKey),
    /// A notice that belongs to nothing else.
    Notice,
}

impl Class {
    pub(super) const fn route(self) -> RouteKind {
        match self {
            Self::Reply(kind) | Self::Unsolicited(kind) => RouteKind::Reply(kind),
            Self::Progress(_) | Self::InputRequest | Self::Log { within: true } => RouteKind::Within,
            Self::Request(exchange) => RouteKind::Request(exchange),
            Self::Cancel(exchange) => RouteKind::Cancel(exchange),
            Self::Answer(key) => RouteKind::Answer(key),
            Self::Log { within: false } | Self::Notice => RouteKind::Notice,
        }
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    number: u64,
    class: Class,
    frame: QueuedFrame,
    /// `true` if it is never sent. Such entries are swept when they are many; until then `frame` has the number of bytes that it takes of
    /// the shared memory.
    withdrawn: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LaneQueue {
    /// Ordered by number.
    queue: VecDeque<Waiting>,
    bytes: usize,
    /// Bytes of log records among them.
    log_bytes: usize,
    unsolicited_replies: usize,
    withdrawn: usize,
    /// Bytes of withdrawn frames in the shared memory.
    withdrawn_bytes: usize,
    /// `true` while the transport takes no frame of the lane.
    is_stalled: bool,
    /// `true` if the lane is in the list of those that take turns.
    has_turn: bool,
    /// Exchanges of the peer that came by the lane and have no reply yet.
    owed: usize,
    /// `true` if a refusal has left since this was read.
    unsolicited_left: bool,
    /// The time that the peer has to read one of its refusals.
    overload: Overload,
}

impl LaneQueue {
    #[inline]
    pub(super) fn push(&mut self, number: u64, class: Class, frame: QueuedFrame) {
        let length = frame.len();
        self.bytes = self.bytes.saturating_add(length);
        match class {
            Class::Unsolicited(_) => self.unsolicited_replies = self.unsolicited_replies.saturating_add(1),
            Class::Log { .. } => self.log_bytes = self.log_bytes.saturating_add(length),
            _ => {}
        }
        self.queue.push_back(Waiting { number, class, frame, withdrawn: false });
    }

    /// The next frame, and its kind.
    // Inlined: the call is 3 % of a frame that is polled alone.
    #[inline(always)]
    pub(super) fn next(&mut self, frames: &mut FrameBuffer) -> Option<(Class, QueuedFrame)> {
        loop {
            let waiting = self.queue.pop_front()?;
            if !waiting.withdrawn {
                self.uncount(waiting.class, waiting.frame.len());
                return Some((waiting.class, waiting.frame));
            }
            self.pass_withdrawn(&waiting.frame, frames);
        }
    }

    #[cold]
    fn pass_withdrawn(&mut self, frame: &QueuedFrame, frames: &mut FrameBuffer) {
        self.withdrawn = self.withdrawn.saturating_sub(1);
        if let QueuedFrame::InBuffer(length) = *frame {
            self.withdrawn_bytes = self.withdrawn_bytes.saturating_sub(length);
            frames.drop_front(length);
        }
    }

    /// Withdraws a frame, and returns its length; `None` if it has been polled.
    pub(super) fn withdraw(&mut self, number: u64, frames: &mut FrameBuffer) -> Option<usize> {
        let place = self.queue.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        let withdrawn = self.empty(place);
        self.sweep(frames);
        withdrawn
    }

    /// Returns `true` if a frame that was not withdrawn has not been polled.
    #[inline]
    pub(super) fn holds(&self, number: u64) -> bool {
        self.queue.front().is_some_and(|first| first.number <= number)
    }

    /// Withdraws the oldest frames of a kind until `bytes` are free, in one pass. Returns their number, and their length together.
    pub(super) fn withdraw_first(
        &mut self,
        bytes: usize,
        is_of_kind: impl Fn(Class) -> bool,
        frames: &mut FrameBuffer,
    ) -> (usize, usize) {
        let (mut count, mut freed) = (0_usize, 0_usize);
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
        self.sweep(frames);
        (count, freed)
    }

    /// Withdraws the frame at `place`, unless it was before, and returns its length.
    fn empty(&mut self, place: usize) -> Option<usize> {
        let waiting = self.queue.get_mut(place).filter(|waiting| !waiting.withdrawn)?;
        let (class, length) = (waiting.class, waiting.frame.len());
        let memory = if let QueuedFrame::InBuffer(length) = waiting.frame { length } else { 0 };
        (waiting.frame, waiting.withdrawn) = (QueuedFrame::InBuffer(memory), true);
        self.withdrawn = self.withdrawn.saturating_add(1);
        self.withdrawn_bytes = self.withdrawn_bytes.saturating_add(memory);
        self.uncount(class, length);
        Some(length)
    }

    /// Removes withdrawn frames once they are most of the queue, or of its memory. Amortised: as many must have been withdrawn since the
    /// last time.
    fn sweep(&mut self, frames: &mut FrameBuffer) {
        let are_many = self.withdrawn > self.queue.len().saturating_div(2).saturating_add(16);
        if are_many || self.withdrawn_bytes > self.bytes.saturating_add(KEPT_CAPACITY) {
            frames.retain(self.queue.iter().filter_map(|waiting| match waiting.frame {
                QueuedFrame::InBuffer(length) => Some((length, !waiting.withdrawn)),
                QueuedFrame::Separate(_) => None,
            }));
            self.queue.retain(|waiting| !waiting.withdrawn);
            (self.withdrawn, self.withdrawn_bytes) = (0, 0);
        }
    }

    /// Takes a frame of so many bytes off the counters.
    #[inline]
    fn uncount(&mut self, class: Class, length: usize) {
        self.bytes = self.bytes.saturating_sub(length);
        match class {
            Class::Unsolicited(_) => {
                self.unsolicited_replies = self.unsolicited_replies.saturating_sub(1);
                self.unsolicited_left = true;
            }
            Class::Log { .. } => self.log_bytes = self.log_bytes.saturating_sub(length),
            _ => {}
        }
    }

    // ---- The lane ----

    pub(super) fn set_stalled(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
    }

    /// Notes that an exchange of the peer waits for its reply.
    #[inline]
    pub(super) fn owe(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Notes that an exchange was replied to, or never will be.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    pub(super) fn overload(&mut self) -> &mut Overload {
        &mut self.overload
    }

    /// Gives the lane a turn. `false` if it has one.
    pub(super) fn take_turn(&mut self) -> bool {
        !core::mem::replace(&mut self.has_turn, true)
    }

    pub(super) fn has_turn(&self) -> bool {
        self.has_turn
    }

    /// Ends the turn of the lane.
    pub(super) fn end_turn(&mut self) {
        self.has_turn = false;
    }

    // ---- State ----

    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.len() == self.withdrawn
    }

    /// Returns `true` if the lane can be forgotten: no frame waits, no reply is owed, and the transport has not stopped it.
    pub(super) fn is_idle(&self) -> bool {
        self.is_empty() && self.owed == 0 && !self.is_stalled
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn log_bytes(&self) -> usize {
        self.log_bytes
    }

    #[inline]
    pub(super) fn unsolicited_replies(&self) -> usize {
        self.unsolicited_replies
    }

    /// Returns `true` if as many refusals wait as may, and the peer's time to read one is running.
    #[inline]
    pub(super) fn is_counting(&self) -> bool {
        self.overload.is_counting()
    }

    /// Returns `true` if a refusal has left since the last call of this.
    #[inline]
    pub(super) fn take_unsolicited_left(&mut self) -> bool {
        core::mem::take(&mut self.unsolicited_left)
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> (usize, usize) {
        (self.queue.len(), self.withdrawn_bytes)
    }
}
