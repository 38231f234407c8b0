//! The allocator: free lists of powers of two over one fixed piece of memory. This is the one place with unsafe code.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// All the memory there is.
const ARENA: usize = 256 * 1024;
/// Blocks of 16 bytes, 32 bytes, and so on up to the whole arena.
const CLASSES: usize = 15;
const SMALLEST: usize = 16;

/// The heap of this program, which has one thread.
#[global_allocator]
pub static HEAP: Heap = Heap {
    arena: Arena(UnsafeCell::new([0; ARENA])),
    fresh: AtomicUsize::new(0),
    free: [const { AtomicPtr::new(null_mut()) }; CLASSES],
    live: AtomicUsize::new(0),
    peak: AtomicUsize::new(0),
};

pub struct Heap {
    arena: Arena,
    /// The offset in the arena from which on no memory was ever given out.
    fresh: AtomicUsize,
    /// The first free block of each class. Each holds the address of the next in its first bytes.
    free: [AtomicPtr<u8>; CLASSES],
    /// The bytes in use, counted by the sizes that were requested, not by those of the blocks.
    live: AtomicUsize,
    peak: AtomicUsize,
}

#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; ARENA]>);

// SAFETY: the program has one thread.
unsafe impl Sync for Arena {}

impl Heap {
    /// Runs `work` and gives the most memory that was in use at once while it ran, beyond what was in use before.
    pub fn peak_of(&self, work: impl FnOnce()) -> usize {
        let before = self.live.load(Relaxed);
        self.peak.store(before, Relaxed);
        work();
        self.peak.load(Relaxed) - before
    }

    /// Bytes in use.
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    fn class(layout: Layout) -> (usize, usize) {
        let size = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
        (size, (size / SMALLEST).trailing_zeros() as usize)
    }
}

// SAFETY: the size of a block is a power of two, at least the size and the alignment of its layout. The block starts at a multiple of
// that size or of 4096, whichever is less. That aligns it, since `alloc` refuses alignments above 4096, the alignment of the arena. A
// block is on a free list or with one owner, never both; there is one thread.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, class) = Self::class(layout);
        let Some(list) = self.free.get(class).filter(|_| layout.align() <= 4096) else { return null_mut() };
        let first = list.load(Relaxed);
        let block = if first.is_null() {
            let start = self.fresh.load(Relaxed).next_multiple_of(size.min(4096));
            if start + size > ARENA {
                return null_mut();
            }
            self.fresh.store(start + size, Relaxed);
            // SAFETY: within the arena.
            unsafe { self.arena.0.get().cast::<u8>().add(start) }
        } else {
            // SAFETY: a free block holds the address of the next.
            list.store(unsafe { first.cast::<*mut u8>().read() }, Relaxed);
            first
        };
        let live = self.live.load(Relaxed) + layout.size();
        self.live.store(live, Relaxed);
        self.peak.fetch_max(live, Relaxed);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (_, class) = Self::class(layout);
        if let Some(list) = self.free.get(class) {
            // SAFETY: the block is ours again, and every block has room for an address.
            unsafe { block.cast::<*mut u8>().write(list.load(Relaxed)) };
            list.store(block, Relaxed);
            self.live.fetch_sub(layout.size(), Relaxed);
        }
    }
}
