//! Bytes that wait to leave.

use alloc::vec::Vec;

use bytes::{Buf, Bytes};

/// What is kept of the room that a burst took.
pub(crate) const KEPT: usize = 64 * 1024;
/// Room that is kept in any case.
pub(crate) const PLAIN: usize = 4 * 1024;
/// So often in a row all has left and had been short: then the burst is over.
pub(crate) const CALM: u8 = 16;

/// Bytes that are added behind and leave from the front. It has no bound of its own, and gives back what a burst needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteQueue {
    bytes: Vec<u8>,
    /// Bytes of `bytes`, from its beginning, that have left.
    left: usize,
    /// How often in a row all has left and had been short.
    calm: u8,
}

impl ByteQueue {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.left..).unwrap_or_default()
    }

    /// Where to add something: only behind what there is.
    pub(crate) fn behind(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Takes all of it, and the memory with it.
    pub(crate) fn take(&mut self) -> Bytes {
        let mut bytes = Bytes::from(core::mem::take(&mut self.bytes));
        bytes.advance(core::mem::take(&mut self.left));
        bytes
    }

    /// Drops the first `count` bytes, at most all.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        self.left = self.left.saturating_add(count);
        if self.left >= self.bytes.len() {
            self.rest();
        } else if self.left >= KEPT {
            self.move_up();
        }
    }

    /// All has left.
    fn rest(&mut self) {
        self.calm = if self.bytes.len() > PLAIN { 0 } else { self.calm.saturating_add(1) };
        self.left = 0;
        self.bytes.clear();
        // What a burst needed is given back, unless the next one follows at its heels.
        self.bytes.shrink_to(if self.calm < CALM { KEPT } else { PLAIN });
    }

    /// What has left goes, too, where somebody never catches up; what waits moves up, and is no longer than that.
    fn move_up(&mut self) {
        if self.left >= self.bytes.len() / 2 {
            self.bytes.drain(..core::mem::take(&mut self.left));
        }
    }

    /// Drops all but the first `length` bytes.
    #[inline]
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(self.left.saturating_add(length));
        if self.left > 0 && self.left == self.bytes.len() {
            self.rest();
        }
    }

    /// Drops parts amid the others. `parts` says of each, from the first on, how long it is and whether it stays; what is behind them stays.
    pub(crate) fn retain(&mut self, parts: impl Iterator<Item = (usize, bool)>) {
        let mut rest = self.as_slice();
        let mut stay = Vec::new();
        for (length, stays) in parts {
            let (part, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if stays {
                stay.extend_from_slice(part);
            }
            rest = behind;
        }
        stay.extend_from_slice(rest);
        (self.bytes, self.left) = (stay, 0);
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
