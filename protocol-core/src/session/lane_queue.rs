//! The queue of frames of one lane that wait to be polled.
//!
//! ```text
//!               push                next
//!   (none) -----------> queued ----------------------> (gone: polled)
//!                          |
//!                          | withdraw, withdraw_first: it is never sent
//!                          v             sweep, next
//!                      withdrawn ----------------------> (gone)
//! ```

use alloc::collections::VecDeque;

use crate::byte_queue::KEPT_CAPACITY;
use crate::session::overload::Overload;
use crate::session::{ExchangeId, InboundId, InputKey, ReplyKind, RouteKind};
use crate::wire::{FrameBuffer, QueuedFrame};

/// The kind of a frame. It determines the bounds that apply to the frame, and its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The reply to a call of the peer, or the result of its handshake request.
    Reply(ReplyKind),
    /// A reply for which the session keeps no call. [`crate::Limits::unsolicited_replies`] bounds the number of these replies.
    Unsolicited(ReplyKind),
    /// Progress of an inbound call, or the acknowledgement or a notification of a subscription.
    Progress(InboundId),
    /// An input request on behalf of an inbound call, or its cancel.
    InputRequest,
    /// A log record, and the call that it belongs to, if there is one. The oldest records are dropped to make room for the newest.
    Log(Option<InboundId>),
    /// A request of ours.
    Request(ExchangeId),
    /// The cancel of a request of ours.
    Cancel(ExchangeId),
    /// The answer to an input request of the peer.
    InputResponse(InputKey),
    /// Any other notification.
    Notification,
}

impl Class {
    /// Returns `true` if a frame of this kind tells or asks the peer something while a call runs, so that it is not sent any more once the
    /// peer has ended its side.
    pub(super) const fn is_report(self) -> bool {
        match self {
            Self::Reply(_) | Self::Unsolicited(_) | Self::InputResponse(_) | Self::Request(_) => false,
            Self::Progress(_) | Self::InputRequest | Self::Log(_) | Self::Cancel(_) | Self::Notification => true,
        }
    }

    pub(super) const fn route(self) -> RouteKind {
        match self {
            Self::Reply(kind) | Self::Unsolicited(kind) => RouteKind::Reply(kind),
            Self::Progress(_) | Self::InputRequest | Self::Log(Some(_)) => RouteKind::Within,
            Self::Request(exchange) => RouteKind::Request(exchange),
            Self::Cancel(exchange) => RouteKind::Cancel(exchange),
            Self::InputResponse(key) => RouteKind::InputResponse(key),
            Self::Log(None) | Self::Notification => RouteKind::Notification,
        }
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    number: u64,
    class: Class,
    frame: QueuedFrame,
    /// `true` if the frame was withdrawn, and is never sent. `sweep` removes withdrawn entries when there are many. Until then `frame` has
    /// the number of bytes that the entry occupies in the [`FrameBuffer`].
    withdrawn: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct LaneQueue {
    /// The frames, and withdrawn entries, ordered by number.
    queue: VecDeque<Waiting>,
    /// The number of bytes of all frames that are not withdrawn.
    bytes: usize,
    /// The number of bytes of log records.
    log_bytes: usize,
    unsolicited_replies: usize,
    /// The number of withdrawn entries.
    withdrawn: usize,
    /// The number of bytes of withdrawn frames in the [`FrameBuffer`].
    withdrawn_bytes: usize,
    /// `true` while the owner has stopped the lane.
    is_stopped: bool,
    /// `true` if the lane is in the outbox's list of lanes that are polled in turn.
    is_in_rotation: bool,
    /// The number of exchanges of the peer that came by the lane and have no reply yet.
    owed: usize,
    /// `true` if an unsolicited reply was polled since the last call of `take_unsolicited_polled`.
    unsolicited_polled: bool,
    /// The deadline by which the peer must read an unsolicited reply.
    overload: Overload,
}

impl LaneQueue {
    #[inline]
    pub(super) fn push(&mut self, number: u64, class: Class, frame: QueuedFrame) {
        let length = frame.len();
        self.bytes = self.bytes.saturating_add(length);
        match class {
            Class::Unsolicited(_) => self.unsolicited_replies = self.unsolicited_replies.saturating_add(1),
            Class::Log(_) => self.log_bytes = self.log_bytes.saturating_add(length),
            _ => {}
        }
        self.queue.push_back(Waiting { number, class, frame, withdrawn: false });
    }

    /// The next frame, and its kind.
    // Inlined: otherwise the call takes 3 % of the time in which a single frame is polled.
    #[inline(always)]
    pub(super) fn next(&mut self, frames: &mut FrameBuffer) -> Option<(Class, QueuedFrame)> {
        loop {
            let waiting = self.queue.pop_front()?;
            if !waiting.withdrawn {
                self.uncount(waiting.class, waiting.frame.len());
                return Some((waiting.class, waiting.frame));
            }
            self.drop_withdrawn(&waiting.frame, frames);
        }
    }

    #[cold]
    fn drop_withdrawn(&mut self, frame: &QueuedFrame, frames: &mut FrameBuffer) {
        self.withdrawn = self.withdrawn.saturating_sub(1);
        if let QueuedFrame::InBuffer(length) = *frame {
            self.withdrawn_bytes = self.withdrawn_bytes.saturating_sub(length);
            frames.drop_front(length);
        }
    }

    /// Withdraws a frame, and returns its length; `None` if it was polled or withdrawn before.
    pub(super) fn withdraw(&mut self, number: u64, frames: &mut FrameBuffer) -> Option<usize> {
        let place = self.queue.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        let withdrawn = self.withdraw_at(place);
        self.sweep(frames);
        withdrawn
    }

    /// Returns `true` if a frame has not been polled. The frame must not have been withdrawn.
    #[inline]
    pub(super) fn is_unpolled(&self, number: u64) -> bool {
        self.queue.front().is_some_and(|first| first.number <= number)
    }

    /// Withdraws the oldest frames of a kind until `bytes` bytes are freed, in one pass. Returns the number of withdrawn frames and their
    /// total length.
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
                && let Some(length) = self.withdraw_at(place)
            {
                freed = freed.saturating_add(length);
                count = count.saturating_add(1);
            }
        }
        self.sweep(frames);
        (count, freed)
    }

    /// Withdraws the frame at index `place` and returns its length; `None` if it was withdrawn before.
    fn withdraw_at(&mut self, place: usize) -> Option<usize> {
        let waiting = self.queue.get_mut(place).filter(|waiting| !waiting.withdrawn)?;
        let (class, length) = (waiting.class, waiting.frame.len());
        let memory = if let QueuedFrame::InBuffer(length) = waiting.frame { length } else { 0 };
        (waiting.frame, waiting.withdrawn) = (QueuedFrame::InBuffer(memory), true);
        self.withdrawn = self.withdrawn.saturating_add(1);
        self.withdrawn_bytes = self.withdrawn_bytes.saturating_add(memory);
        self.uncount(class, length);
        Some(length)
    }

    /// Removes withdrawn entries once their number exceeds half of the queue by more than 16, or once they take more memory than the other
    /// frames and [`KEPT_CAPACITY`] together. So each withdrawal has a constant cost on average.
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

    /// Subtracts a frame of `length` bytes, which was polled or withdrawn, from the counters.
    #[inline]
    fn uncount(&mut self, class: Class, length: usize) {
        self.bytes = self.bytes.saturating_sub(length);
        match class {
            Class::Unsolicited(_) => {
                self.unsolicited_replies = self.unsolicited_replies.saturating_sub(1);
                self.unsolicited_polled = true;
            }
            Class::Log(_) => self.log_bytes = self.log_bytes.saturating_sub(length),
            _ => {}
        }
    }

    // ---- The lane ----

    pub(super) fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// Counts an exchange of the peer that waits for a reply.
    #[inline]
    pub(super) fn owe(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Stops counting an exchange of the peer, which has its reply or will get none.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    pub(super) fn overload(&mut self) -> &mut Overload {
        &mut self.overload
    }

    /// Records that the lane is in the outbox's list of lanes that are polled in turn. Returns `false` if it was in the list before.
    pub(super) fn enter_rotation(&mut self) -> bool {
        !core::mem::replace(&mut self.is_in_rotation, true)
    }

    pub(super) fn is_in_rotation(&self) -> bool {
        self.is_in_rotation
    }

    /// Records that the lane is no longer in the outbox's list of lanes that are polled in turn.
    pub(super) fn leave_rotation(&mut self) {
        self.is_in_rotation = false;
    }

    // ---- State ----

    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.len() == self.withdrawn
    }

    /// Returns `true` if the lane can be removed: no frame is queued, no reply is owed, and the lane is not stopped.
    pub(super) fn is_idle(&self) -> bool {
        self.is_empty() && self.owed == 0 && !self.is_stopped
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

    /// Returns `true` while the time in which the peer must read an unsolicited reply runs.
    #[inline]
    pub(super) fn is_overload_timed(&self) -> bool {
        self.overload.is_counting()
    }

    /// Returns `true` if an unsolicited reply was polled since the last call of this method.
    #[inline]
    pub(super) fn take_unsolicited_polled(&mut self) -> bool {
        core::mem::take(&mut self.unsolicited_polled)
    }

    /// The number of entries, including withdrawn entries, and the number of bytes of withdrawn frames in the [`FrameBuffer`].
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.queue.len(), self.withdrawn_bytes)
    }
}
