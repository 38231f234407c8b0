//! Tables by ids of ours.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

/// A table whose keys are numbers that we count up: no peer can choose them, so one multiplication is hash enough, and two
/// equal runs walk it in the same order.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: spreads neighbours over all bits.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
