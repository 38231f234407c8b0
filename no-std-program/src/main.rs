//! The core on its own: no std, no runtime, no clock, and a heap of 256 KiB that is a static.
//!
//! The program connects two sessions, which make a call with progress, a call that times out, and a close. Then it runs each of the two
//! ends alone, with eight calls in flight. It prints the peak heap of each run, and fails if one session alone needs [`MAX_HEAP`] or more,
//! or if memory is left allocated.
#![no_std]
#![no_main]

extern crate alloc;

mod bare;
mod heap;
mod scenes;

use core::fmt::Write;

use bare::Out;
use heap::HEAP;

/// The number of bytes of heap that one session with eight calls in flight must stay below. With the feature `low-limit` it is so low that
/// the program must fail.
const MAX_HEAP: usize = if cfg!(feature = "low-limit") { 1024 } else { 64 * 1024 };

#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    match run() {
        Ok(true) => 0,
        Ok(false) | Err(_) => 1,
    }
}

fn run() -> Result<bool, core::fmt::Error> {
    let before = HEAP.live();
    let both = HEAP.peak_of(scenes::whole_life_of_two_ends);
    let caller = HEAP.peak_of(scenes::caller_with_eight_calls_in_flight);
    let callee = HEAP.peak_of(scenes::callee_with_eight_calls_in_flight);
    let left = HEAP.live() - before;

    writeln!(Out, "peak heap, both ends, a call with progress, a timeout and a close: {both} bytes")?;
    writeln!(Out, "peak heap, one caller with 8 calls in flight: {caller} bytes")?;
    writeln!(Out, "peak heap, one callee with 8 calls in flight: {callee} bytes")?;
    writeln!(Out, "left behind: {left} bytes")?;
    let fits = caller < MAX_HEAP && callee < MAX_HEAP && left == 0;
    let verdict = if fits { "passed" } else { "FAILED" };
    writeln!(Out, "{verdict}: the limit is {MAX_HEAP} bytes for one session, and nothing left behind")?;
    Ok(fits)
}
