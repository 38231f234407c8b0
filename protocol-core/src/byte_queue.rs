//! A queue of bytes, whose memory is bounded while it is idle.

use alloc::vec::Vec;

use bytes::{Buf, Bytes};

/// The maximum capacity, in bytes, that an empty [`ByteQueue`] keeps until a burst has ended.
pub(crate) const KEPT_CAPACITY: usize = 64 * 1024;
/// The capacity, in bytes, that the buffer of an idle connection keeps.
pub(crate) const BASE_CAPACITY: usize = 4 * 1024;
/// A burst of reads ends after this many reads in a row that did not fill their space. A burst in a [`ByteQueue`] ends when the queue was
/// emptied this many times in a row without having held more than [`BASE_CAPACITY`].
pub(crate) const QUIET_COUNT: u8 = 16;

/// The length in bytes from which a frame is *long*: its memory is kept for the next long frame. Otherwise the allocator would return
/// memory of this size to the operating system, and each of its pages would be mapped and zeroed again.
pub(crate) const LONG: usize = 32 * 1024;
/// The memory of a long frame is freed after this many shorter frames, or when the driver calls `release_memory`.
pub(crate) const MAX_UNUSED_FRAMES: u8 = 64;

/// A queue of bytes, which are appended at its end and removed from its front. Its length is not bounded. The memory that a burst needed is
/// freed after the burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteQueue {
    bytes: Vec<u8>,
    /// The number of bytes at the beginning of `bytes` that were removed.
    consumed: usize,
    /// The number of times in a row that the queue was emptied without having held more than [`BASE_CAPACITY`].
    quiet_count: u8,
}

impl ByteQueue {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.consumed..).unwrap_or_default()
    }

    /// The first `length` bytes; empty if there are fewer.
    #[inline]
    pub(crate) fn first(&self, length: usize) -> &[u8] {
        self.bytes.get(self.consumed..self.consumed.saturating_add(length)).unwrap_or_default()
    }

    /// The buffer, to append to. The caller must not change the bytes that are in it already.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Takes all bytes, together with the memory.
    pub(crate) fn take(&mut self) -> Bytes {
        let mut bytes = Bytes::from(core::mem::take(&mut self.bytes));
        bytes.advance(core::mem::take(&mut self.consumed));
        bytes
    }

    /// Drops the first `count` bytes, at most all.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        self.consumed = self.consumed.saturating_add(count);
        if self.consumed >= self.bytes.len() {
            self.reset();
        } else if self.consumed >= KEPT_CAPACITY {
            self.compact();
        }
    }

    /// Resets the queue after its last byte was removed.
    #[inline]
    fn reset(&mut self) {
        if self.bytes.capacity() > BASE_CAPACITY {
            self.shrink();
        }
        self.consumed = 0;
        self.bytes.clear();
    }

    /// Empties the queue, and frees capacity above [`KEPT_CAPACITY`] or, once a burst has ended, above [`BASE_CAPACITY`].
    fn shrink(&mut self) {
        self.quiet_count = if self.bytes.len() > BASE_CAPACITY { 0 } else { self.quiet_count.saturating_add(1) };
        self.bytes.clear();
        self.bytes.shrink_to(if self.quiet_count < QUIET_COUNT { KEPT_CAPACITY } else { BASE_CAPACITY });
    }

    /// Frees the space of removed bytes once it is half of the buffer, so that the remaining bytes are moved rarely.
    fn compact(&mut self) {
        if self.consumed >= self.bytes.len() / 2 {
            self.bytes.drain(..core::mem::take(&mut self.consumed));
            self.free_excess();
        }
    }

    /// Drops all but the first `length` bytes.
    #[inline]
    pub(crate) fn truncate(&mut self, length: usize) {
        let end = self.consumed.saturating_add(length);
        if self.bytes.len() > end {
            self.bytes.truncate(end);
            self.free_excess();
        }
    }

    /// Frees capacity if there is more than four times what is needed.
    #[cold]
    fn free_excess(&mut self) {
        let needed = self.bytes.len().max(KEPT_CAPACITY);
        if self.bytes.capacity() / 4 > needed {
            self.bytes.shrink_to(needed);
        }
    }

    /// Drops some parts of the queue. `parts` gives, in order, the length of each part, and `true` if the part stays. Bytes after the last
    /// part stay.
    pub(crate) fn retain(&mut self, parts: impl Iterator<Item = (usize, bool)>) {
        let mut rest = self.as_slice();
        let mut stay = Vec::new();
        for (length, stays) in parts {
            let (part, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if stays {
                stay.extend_from_slice(part);
            }
            rest = after;
        }
        stay.extend_from_slice(rest);
        (self.bytes, self.consumed) = (stay, 0);
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_removed_in_order_and_parts_between_them_can_be_dropped() {
        let mut queue = ByteQueue::default();
        queue.buffer().extend_from_slice(b"abcdefgh");
        queue.advance(2);
        queue.retain([(1, true), (2, false), (1, true)].into_iter());
        assert_eq!(queue.as_slice(), b"cfgh");
        queue.retain([(1, false), (100, true)].into_iter());
        assert_eq!(queue.as_slice(), b"fgh");
        queue.truncate(2);
        assert_eq!(queue.as_slice(), b"fg");
        assert_eq!(queue.take(), "fg");
        queue.advance(usize::MAX);
        assert_eq!(queue.as_slice(), b"");
    }

    #[test]
    fn capacity_is_freed_if_it_is_more_than_four_times_the_need() {
        for (kept, reserved) in [(4, 4), (1, 8)] {
            let mut queue = ByteQueue::default();
            queue.buffer().reserve_exact(reserved * KEPT_CAPACITY);
            queue.buffer().extend_from_slice(b"words");
            queue.truncate(1);
            assert_eq!(queue.capacity(), kept * KEPT_CAPACITY);
        }
    }

    /// A regression: memory was freed only when the queue was empty, which never happens if the reader is as slow as the writer.
    #[test]
    fn regression_the_memory_of_a_burst_is_freed_although_the_queue_is_never_empty() {
        let mut queue = ByteQueue::default();
        queue.buffer().resize(30 << 20, b'x');
        queue.advance((30 << 20) - 10);
        assert!(queue.capacity() <= 4 * KEPT_CAPACITY, "{} bytes for 10", queue.capacity());
        for _ in 0..100_000 {
            queue.buffer().extend_from_slice(b"more");
            queue.advance(4);
        }
        assert_eq!(queue.as_slice().len(), 10);
        assert!(queue.capacity() <= 4 * KEPT_CAPACITY, "{} bytes for 10", queue.capacity());
    }
}
