//! The queues of frames that wait to be polled: one for the channel, and one for each other open lane.
//!
//! ```text
//!            open: a frame arrived on it
//!   unknown ---------------------------------------------------> open --+ push, pop, owe, settle, set_writable
//!      ^                                                          |  ^  |
//!      |  forget_idle: nothing is queued or owed, and the lane    |  `--'
//!      |  is not stopped; close                                   |
//!      `----------------------------------------------------------'
//! ```
//!
//! The channel is always open. Frames of one lane are polled in the order in which they were queued; lanes are polled in turn.
//!
//! There are three kinds of frames. Frames that must be sent (responses, cancels, the handshake) are always queued: the tables of
//! exchanges, and the limit on unsolicited replies, bound the number of these frames. Calls, input requests and notifications are refused
//! while their lane is [congested](Outbox::is_congested). Progress is merged and log records are dropped while their lane has no
//! [room](Outbox::has_room).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use super::lane_queue::{Class, LaneQueue};
use crate::session::{InboundId, Lane, Route, Transmit};
use crate::sink::FrameSink;
use crate::wire::{FrameBuffer, QueuedFrame, WrittenFrame};

/// Identifies a queued frame, by its lane and its number among all frames of the session. A frame that is queued later has a greater
/// ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    number: u64,
    lane: Lane,
}

#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// The writer of frames, and the shared buffer for short frames of the channel.
    frames: FrameBuffer,
    channel: LaneQueue,
    /// Every other lane that is open.
    others: BTreeMap<Lane, LaneQueue>,
    /// Lanes that may be removed at the end of the running method.
    idle: Vec<Lane>,
    /// Lanes other than the channel that may have a frame to poll, each once. The first lane is polled next, and is then moved to the end
    /// if it has more frames.
    rotation: VecDeque<Lane>,
    /// `true` if the last poll preferred the other lanes to the channel, so that the next poll prefers the channel.
    others_were_first: bool,
    next: u64,
    /// The number of bytes that are queued on all lanes together.
    bytes: usize,
    /// The number of bytes from which a lane is congested.
    limit: usize,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            frames: FrameBuffer::default(),
            channel: LaneQueue::default(),
            others: BTreeMap::new(),
            idle: Vec::new(),
            rotation: VecDeque::new(),
            others_were_first: false,
            next: 0,
            bytes: 0,
            limit,
        }
    }

    /// The writer of frames. Writing a frame discards the frame that was written before, unless that was [pushed](Self::push) or taken.
    pub(super) fn frames(&mut self) -> &mut FrameBuffer {
        &mut self.frames
    }

    /// Frees the memory that is kept for the next long frame.
    pub(super) fn release_memory(&mut self) {
        self.frames.release_memory();
    }

    // ---- Frames ----

    /// Queues the frame that was written last. If the lane is not open, drops the frame.
    #[inline]
    pub(super) fn push(&mut self, lane: Lane, class: Class, frame: WrittenFrame) -> Ticket {
        let frame = if lane == Lane::CHANNEL { self.frames.queue(frame) } else { QueuedFrame::Separate(self.frames.take(frame)) };
        self.add(lane, class, frame)
    }

    /// Queues a frame that was taken from the writer earlier, so that it is not in the shared buffer.
    pub(super) fn push_taken(&mut self, lane: Lane, class: Class, frame: Bytes) -> Ticket {
        self.add(lane, class, QueuedFrame::Separate(frame))
    }

    #[inline]
    fn add(&mut self, lane: Lane, class: Class, frame: QueuedFrame) -> Ticket {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        let length = frame.len();
        if lane == Lane::CHANNEL {
            self.channel.push(number, class, frame);
            self.bytes = self.bytes.saturating_add(length);
        } else if let Some(queue) = self.others.get_mut(&lane) {
            queue.push(number, class, frame);
            self.bytes = self.bytes.saturating_add(length);
            if queue.enter_rotation() {
                self.rotation.push_back(lane);
            }
        }
        Ticket { number, lane }
    }

    /// The next frame of any lane that is not stopped.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Transmit> {
        if self.rotation.is_empty() { self.pop_channel() } else { self.pop_alternately() }
    }

    /// The next frame of any lane, for the case that lanes other than the channel may have frames. One poll prefers the channel, and the
    /// next poll prefers the other lanes.
    #[cold]
    fn pop_alternately(&mut self) -> Option<Transmit> {
        self.others_were_first = !self.others_were_first;
        if self.others_were_first {
            self.pop_other().or_else(|| self.pop_channel())
        } else {
            self.pop_channel().or_else(|| self.pop_other())
        }
    }

    #[inline]
    fn pop_channel(&mut self) -> Option<Transmit> {
        if self.channel.is_stopped() {
            return None;
        }
        let (class, frame) = self.channel.next(&mut self.frames)?;
        let frame = match frame {
            QueuedFrame::InBuffer(length) => self.frames.take_front(length),
            QueuedFrame::Separate(frame) => frame,
        };
        self.bytes = self.bytes.saturating_sub(frame.len());
        Some(Transmit { frame, route: Route { lane: Lane::CHANNEL, kind: class.route() } })
    }

    fn pop_other(&mut self) -> Option<Transmit> {
        loop {
            let lane = self.rotation.pop_front()?;
            let Some(queue) = self.others.get_mut(&lane) else { continue };
            queue.leave_rotation();
            if queue.is_stopped() {
                continue;
            }
            // Only the channel has frames in the shared buffer.
            let Some((class, QueuedFrame::Separate(frame))) = queue.next(&mut self.frames) else { continue };
            if !queue.is_empty() && queue.enter_rotation() {
                self.rotation.push_back(lane);
            }
            self.bytes = self.bytes.saturating_sub(frame.len());
            return Some(Transmit { frame, route: Route { lane, kind: class.route() } });
        }
    }

    /// Takes the next frame of the channel, appends it to `into`, and returns its length.
    #[inline]
    pub(super) fn pop_into(&mut self, into: &mut impl FrameSink) -> Option<usize> {
        if self.channel.is_stopped() {
            return None;
        }
        let (_, frame) = self.channel.next(&mut self.frames)?;
        let length = frame.len();
        match frame {
            QueuedFrame::InBuffer(length) => {
                into.push_slice(self.frames.first(length));
                self.frames.drop_front(length);
            }
            QueuedFrame::Separate(frame) => into.push(frame),
        }
        self.bytes = self.bytes.saturating_sub(length);
        Some(length)
    }

    /// Withdraws a frame. Returns `false` if the frame was polled or withdrawn before, or its lane is no longer open.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let Some((queue, frames)) = self.parts(ticket.lane) else { return false };
        let withdrawn = queue.withdraw(ticket.number, frames);
        self.bytes = self.bytes.saturating_sub(withdrawn.unwrap_or_default());
        withdrawn.is_some()
    }

    /// Returns `true` if a frame has not been polled. The frame must not have been withdrawn.
    #[inline]
    pub(super) fn is_unpolled(&self, ticket: Ticket) -> bool {
        self.queue(ticket.lane).is_some_and(|queue| queue.is_unpolled(ticket.number))
    }

    /// Withdraws the progress and the log records of the call `id`, which came by `lane`. `last` is the ticket of the newest progress of
    /// the call, and `has_logged` is `true` if log records were queued on its behalf.
    pub(super) fn withdraw_reports(&mut self, id: InboundId, lane: Lane, last: Option<Ticket>, has_logged: bool) {
        let holds_logs = has_logged && self.queue(lane).is_some_and(|queue| queue.log_bytes() > 0);
        if holds_logs || last.is_some_and(|last| self.is_unpolled(last)) {
            self.withdraw_first(lane, usize::MAX, |class| class == Class::Progress(id) || class == Class::Log(Some(id)));
        }
    }

    /// Withdraws every report ([`Class::is_report`]) on every lane.
    pub(super) fn withdraw_all_reports(&mut self) {
        for lane in self.others.keys().copied().chain([Lane::CHANNEL]).collect::<Vec<_>>() {
            self.withdraw_first(lane, usize::MAX, Class::is_report);
            self.note_idle(lane);
        }
    }

    /// Withdraws the oldest log records of a lane until at least `bytes` bytes are freed, and returns the number of these records. If all
    /// its log records have fewer bytes, withdraws none and returns 0.
    pub(super) fn drop_oldest_logs(&mut self, lane: Lane, bytes: usize) -> usize {
        match self.queue(lane) {
            Some(queue) if queue.log_bytes() >= bytes => self.withdraw_first(lane, bytes, |class| matches!(class, Class::Log(_))),
            _ => 0,
        }
    }

    fn withdraw_first(&mut self, lane: Lane, bytes: usize, is_of_kind: impl Fn(Class) -> bool) -> usize {
        let Some((queue, frames)) = self.parts(lane) else { return 0 };
        let (count, freed) = queue.withdraw_first(bytes, is_of_kind, frames);
        self.bytes = self.bytes.saturating_sub(freed);
        count
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit);
    }

    // ---- Lanes ----

    /// Opens a lane, if it is not open already.
    #[inline]
    pub(super) fn open(&mut self, lane: Lane) {
        if lane != Lane::CHANNEL {
            self.others.entry(lane).or_default();
        }
    }

    /// Stops the frames of a lane, or lets them be polled again.
    pub(super) fn set_writable(&mut self, lane: Lane, is_writable: bool) {
        let Some((queue, _)) = self.parts(lane) else { return };
        queue.set_stopped(!is_writable);
        if is_writable && lane != Lane::CHANNEL && !queue.is_empty() && queue.enter_rotation() {
            self.rotation.push_back(lane);
        }
    }

    /// Counts an exchange of the peer that came by a lane and waits for a reply.
    #[inline]
    pub(super) fn owe(&mut self, lane: Lane) {
        if let Some((queue, _)) = self.parts(lane) {
            queue.owe();
        }
    }

    /// Stops counting an exchange of the peer, which has its reply or will get none.
    #[inline]
    pub(super) fn settle(&mut self, lane: Lane) {
        if let Some((queue, _)) = self.parts(lane) {
            queue.settle();
        }
    }

    /// Marks a lane for removal if it is idle. The lane stays open until [`Self::forget_idle`], since the running method may still use it.
    #[inline]
    pub(super) fn note_idle(&mut self, lane: Lane) {
        if lane != Lane::CHANNEL && self.others.get(&lane).is_some_and(LaneQueue::is_idle) {
            self.idle.push(lane);
        }
    }

    /// Returns `true` if a lane is marked for removal.
    #[inline]
    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Removes the marked lanes that are still idle.
    pub(super) fn forget_idle(&mut self) {
        while let Some(lane) = self.idle.pop() {
            if self.others.get(&lane).is_some_and(LaneQueue::is_idle) {
                self.close(lane);
            }
        }
    }

    /// Removes a lane other than the channel, and drops its frames.
    pub(super) fn close(&mut self, lane: Lane) {
        let Some(queue) = self.others.remove(&lane) else { return };
        self.bytes = self.bytes.saturating_sub(queue.bytes());
        if queue.is_in_rotation() {
            self.rotation.retain(|other| *other != lane);
        }
    }

    /// The open lane with the longest queue in bytes. The channel if no other lane has a longer queue.
    pub(super) fn longest(&self) -> Lane {
        let others = self.others.iter().max_by_key(|(_, queue)| queue.bytes());
        match others {
            Some((lane, queue)) if queue.bytes() > self.channel.bytes() => *lane,
            _ => Lane::CHANNEL,
        }
    }

    /// The number of open lanes, not counting the channel.
    pub(super) fn lanes(&self) -> usize {
        self.others.len()
    }

    #[inline]
    pub(super) fn is_open(&self, lane: Lane) -> bool {
        self.queue(lane).is_some()
    }

    /// The queue of a lane, if it is open.
    #[inline]
    pub(super) fn queue(&self, lane: Lane) -> Option<&LaneQueue> {
        if lane == Lane::CHANNEL { Some(&self.channel) } else { self.others.get(&lane) }
    }

    /// A mutable reference to the queue of a lane, if it is open.
    #[inline]
    pub(super) fn queue_mut(&mut self, lane: Lane) -> Option<&mut LaneQueue> {
        self.parts(lane).map(|(queue, _)| queue)
    }

    /// The queue of a lane, if it is open, and the writer of frames.
    #[inline]
    fn parts(&mut self, lane: Lane) -> Option<(&mut LaneQueue, &mut FrameBuffer)> {
        let queue = if lane == Lane::CHANNEL { Some(&mut self.channel) } else { self.others.get_mut(&lane) };
        Some((queue?, &mut self.frames))
    }

    // ---- State ----

    /// Returns `true` if no frame is queued on any lane.
    pub(super) fn is_empty(&self) -> bool {
        self.channel.is_empty() && self.others.values().all(LaneQueue::is_empty)
    }

    /// Returns `true` if so much output is queued on a lane that new calls, input requests and notifications on it are refused, or if the
    /// lane is not open.
    #[inline]
    pub(super) fn is_congested(&self, lane: Lane) -> bool {
        self.queue(lane).is_none_or(|queue| queue.bytes() >= self.limit)
    }

    /// Returns `true` if progress and log records may be queued on a lane: it is neither congested nor stopped.
    #[inline]
    pub(super) fn has_room(&self, lane: Lane) -> bool {
        self.queue(lane).is_some_and(|queue| queue.bytes() < self.limit && !queue.is_stopped())
    }

    /// The number of bytes that are queued on all lanes together.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of bytes that are queued on one lane.
    #[inline]
    pub(super) fn bytes_of(&self, lane: Lane) -> usize {
        self.queue(lane).map_or(0, LaneQueue::bytes)
    }

    /// The number of unsolicited replies that are queued on a lane.
    #[inline]
    pub(super) fn unsolicited_replies(&self, lane: Lane) -> usize {
        self.queue(lane).map_or(0, LaneQueue::unsolicited_replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_queue::KEPT_CAPACITY;
    use crate::lines::LineEncoder;
    use crate::session::{ReplyKind, RouteKind};

    fn outbox(limit: usize) -> Outbox {
        Outbox::new(limit)
    }

    fn frame(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn push(outbox: &mut Outbox, class: Class, text: &str) -> Ticket {
        let frame = outbox.frames().frame_of(text);
        outbox.push(Lane::CHANNEL, class, frame)
    }

    fn pop(outbox: &mut Outbox) -> Option<Bytes> {
        outbox.pop().map(|transmit| transmit.frame)
    }

    #[test]
    fn frames_are_polled_in_the_order_in_which_they_were_queued() {
        let mut outbox = outbox(100);
        for text in ["a", "b", "c"] {
            push(&mut outbox, Class::Notification, text);
        }
        assert_eq!(
            [pop(&mut outbox), pop(&mut outbox), pop(&mut outbox), pop(&mut outbox)],
            [Some(frame("a")), Some(frame("b")), Some(frame("c")), None]
        );
    }

    #[test]
    fn a_withdrawn_frame_is_never_polled_and_a_polled_one_cannot_be_withdrawn() {
        let mut outbox = outbox(100);
        let (a, b) = (push(&mut outbox, Class::Notification, "a"), push(&mut outbox, Class::Notification, "b"));
        assert!(outbox.is_unpolled(a));
        assert!(outbox.withdraw(a));
        assert!(!outbox.withdraw(a));
        assert_eq!(outbox.bytes(), 1);
        assert_eq!(pop(&mut outbox), Some(frame("b")));
        assert!(!outbox.withdraw(b) && !outbox.is_unpolled(b) && outbox.is_empty());
        assert_eq!(pop(&mut outbox), None);
    }

    #[test]
    fn entries_of_withdrawn_frames_do_not_pile_up_after_a_frame_that_stays() {
        let mut outbox = outbox(100);
        push(&mut outbox, Class::Notification, "stays");
        for _ in 0..10_000 {
            let ticket = push(&mut outbox, Class::Notification, "goes");
            assert!(outbox.withdraw(ticket));
        }
        // The first length is the number of entries.
        assert!(outbox.channel.lengths().0 < 64, "{}", outbox.channel.lengths().0);
        assert_eq!((pop(&mut outbox), pop(&mut outbox)), (Some(frame("stays")), None));
    }

    #[test]
    fn progress_of_one_call_is_withdrawn_and_progress_of_other_calls_stays() {
        let mut outbox = outbox(100);
        push(&mut outbox, Class::Progress(InboundId(1)), "1a");
        push(&mut outbox, Class::Progress(InboundId(2)), "2a");
        let last = push(&mut outbox, Class::Progress(InboundId(1)), "1b");
        outbox.withdraw_reports(InboundId(1), Lane::CHANNEL, Some(last), false);
        assert_eq!((pop(&mut outbox), pop(&mut outbox)), (Some(frame("2a")), None));
    }

    /// If entries were removed while an index goes over the queue, the entries after them would move to before the index and be missed.
    #[test]
    fn regression_all_updates_of_a_call_are_withdrawn_however_many_there_are() {
        let mut outbox = outbox(1);
        let mut last = push(&mut outbox, Class::Notification, "stays");
        for _ in 0..1_000 {
            last = push(&mut outbox, Class::Progress(InboundId(1)), "goes");
        }
        outbox.withdraw_reports(InboundId(1), Lane::CHANNEL, Some(last), false);
        assert_eq!((pop(&mut outbox), pop(&mut outbox)), (Some(frame("stays")), None));
    }

    /// Withdrawn frames lie between other frames in the buffer, so their memory is free only after a sweep.
    #[test]
    fn memory_of_withdrawn_frames_does_not_pile_up_after_a_frame_that_stays() {
        let mut outbox = outbox(100);
        push(&mut outbox, Class::Notification, "stays");
        let text = "goes".repeat(200);
        for _ in 0..10_000 {
            let ticket = push(&mut outbox, Class::Notification, &text);
            assert!(outbox.withdraw(ticket));
            // The second length is the number of bytes of withdrawn frames.
            assert!(outbox.channel.lengths().1 <= KEPT_CAPACITY + text.len());
        }
        push(&mut outbox, Class::Notification, "stays, too");
        let mut lines = LineEncoder::new();
        assert_eq!(
            (outbox.pop_into(&mut lines), outbox.pop_into(&mut lines), outbox.pop_into(&mut lines)),
            (Some(5), Some(10), None)
        );
        assert_eq!((lines.next_frame(), lines.next_frame()), (Some(frame("stays")), Some(frame("stays, too"))));
    }

    #[test]
    fn frames_of_every_kind_keep_their_order_with_pop_and_with_pop_into() {
        let long = "long".repeat(1_000);
        // Bit `n` of `ways` decides how the `n`th frame is taken.
        for ways in 0..16_u32 {
            let mut outbox = outbox(100);
            push(&mut outbox, Class::Notification, "a");
            let gone = push(&mut outbox, Class::Log(None), "gone");
            push(&mut outbox, Class::Unsolicited(ReplyKind::Refused), &long);
            let long_gone = push(&mut outbox, Class::Unsolicited(ReplyKind::Refused), &long);
            outbox.push_taken(Lane::CHANNEL, Class::Notification, frame("apart"));
            push(&mut outbox, Class::Log(None), "b");
            assert!(outbox.withdraw(gone) && outbox.withdraw(long_gone));
            assert_eq!((outbox.bytes(), outbox.unsolicited_replies(Lane::CHANNEL)), (7 + long.len(), 1));
            let mut lines = LineEncoder::new();
            for (place, expected) in ["a", &long, "apart", "b"].into_iter().enumerate() {
                if ways >> place & 1 == 0 {
                    assert_eq!(pop(&mut outbox).unwrap(), expected);
                } else {
                    assert_eq!(outbox.pop_into(&mut lines), Some(expected.len()));
                    assert_eq!(lines.next_frame().unwrap(), expected);
                }
            }
            assert_eq!(
                (outbox.pop_into(&mut lines), pop(&mut outbox), outbox.bytes(), outbox.unsolicited_replies(Lane::CHANNEL)),
                (None, None, 0, 0)
            );
        }
    }

    #[test]
    fn the_oldest_log_records_are_dropped_only_if_that_frees_enough_bytes() {
        let mut outbox = outbox(2);
        push(&mut outbox, Class::Log(None), "a");
        push(&mut outbox, Class::Notification, "kept");
        push(&mut outbox, Class::Log(None), "bb");
        push(&mut outbox, Class::Log(None), "ccc");
        assert_eq!(outbox.drop_oldest_logs(Lane::CHANNEL, 7), 0);
        assert_eq!(outbox.drop_oldest_logs(Lane::CHANNEL, 2), 2);
        assert_eq!((pop(&mut outbox), pop(&mut outbox), pop(&mut outbox)), (Some(frame("kept")), Some(frame("ccc")), None));
        assert_eq!(outbox.drop_oldest_logs(Lane::CHANNEL, 1), 0);
    }

    #[test]
    fn lanes_take_turns_and_a_stopped_lane_does_not_hold_back_the_others() {
        let mut outbox = outbox(100);
        let [one, two] = [1, 2].map(Lane::new);
        for lane in [one, two] {
            outbox.open(lane);
            for text in ["a", "b"] {
                outbox.push_taken(lane, Class::InputRequest, frame(text));
            }
        }
        push(&mut outbox, Class::Notification, "channel");
        outbox.set_writable(one, false);
        let polled = |outbox: &mut Outbox| {
            core::iter::from_fn(|| outbox.pop())
                .map(|transmit| (transmit.route.lane, transmit.frame))
                .collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(polled(&mut outbox), [(two, frame("a")), (Lane::CHANNEL, frame("channel")), (two, frame("b"))]);
        assert_eq!(outbox.bytes(), 2);
        outbox.set_writable(one, true);
        assert_eq!(polled(&mut outbox), [(one, frame("a")), (one, frame("b"))]);
        outbox.note_idle(one);
        outbox.forget_idle();
        assert!(outbox.is_empty() && !outbox.is_open(one));
    }

    #[test]
    fn frames_for_a_lane_that_is_not_open_are_dropped() {
        let mut outbox = outbox(100);
        let ticket = outbox.push_taken(Lane::new(7), Class::Reply(ReplyKind::Result), frame("lost"));
        assert!(!outbox.is_unpolled(ticket) && !outbox.withdraw(ticket));
        assert_eq!((outbox.bytes(), outbox.pop()), (0, None));
    }

    #[test]
    fn a_log_record_of_a_call_has_the_route_of_its_call_and_any_other_that_of_a_notice() {
        let mut outbox = outbox(100);
        push(&mut outbox, Class::Log(Some(InboundId(1))), "of a call");
        push(&mut outbox, Class::Log(None), "of none");
        let routes = [outbox.pop(), outbox.pop()].map(|transmit| transmit.unwrap().route.kind);
        assert_eq!(routes, [RouteKind::Within, RouteKind::Notification]);
    }
}
