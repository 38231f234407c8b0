//! The allocator: blocks whose sizes are powers of two, with a free list for each size, in one static array.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// The size of the heap in bytes.
const ARENA: usize = 256 * 1024;
/// The number of block sizes, the *classes*: 16 bytes, 32 bytes, and so on up to the whole arena.
const CLASSES: usize = 15;
/// The size of the smallest blocks in bytes.
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
    /// The offset in the arena at which the memory begins that was never allocated.
    fresh: AtomicUsize,
    /// The first free block of each class. The first bytes of a free block are the address of the next one.
    free: [AtomicPtr<u8>; CLASSES],
    /// The number of bytes in use, counted by the sizes that were requested, not by those of the blocks.
    live: AtomicUsize,
    /// The maximum of `live` since `peak_of` was last called.
    peak: AtomicUsize,
}

#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; ARENA]>);

// SAFETY: the program has one thread.
unsafe impl Sync for Arena {}

impl Heap {
    /// Runs `work`, and returns the maximum number of bytes in use meanwhile, less the number in use before.
    pub fn peak_of(&self, work: impl FnOnce()) -> usize {
        let before = self.live.load(Relaxed);
        self.peak.store(before, Relaxed);
        work();
        self.peak.load(Relaxed) - before
    }

    /// The number of bytes in use.
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// The size and the class of the blocks for a layout.
    fn class(layout: Layout) -> (usize, usize) {
        let size = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
        (size, (size / SMALLEST).trailing_zeros() as usize)
    }
}

// SAFETY: the size of a block is a power of two, at least the size and the alignment of its layout. A block starts at a multiple of its
// size or of 4096, whichever is less. So it is aligned, since `alloc` refuses alignments above 4096, the alignment of the arena. A block
// is either free or allocated once; there is one thread.
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
            // SAFETY: the first bytes of a free block are the address of the next one.
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
            // SAFETY: the block is no longer in use, and every block has room for an address.
            unsafe { block.cast::<*mut u8>().write(list.load(Relaxed)) };
            list.store(block, Relaxed);
            self.live.fetch_sub(layout.size(), Relaxed);
        }
    }
}
