//! The core on its own: no std, no runtime, no clock, and a heap of 256 KiB that is a static.
//!
//! It runs two ends against each other through a call with progress, a call that times out and a close; then each end alone with
//! eight calls in flight. It prints the peak heap of each and fails if one session needs [`BAR`] or more.
#![no_std]
#![no_main]

extern crate alloc;

mod bare;
mod heap;
mod scenes;

use core::fmt::Write;

use bare::Out;
use heap::HEAP;

/// The largest number of bytes that one session may take with eight calls in flight.
const BAR: usize = if cfg!(feature = "bar-canary") { 1024 } else { 64 * 1024 };

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
    let fits = caller < BAR && callee < BAR && left == 0;
    writeln!(Out, "{}: the bar is {BAR} bytes for one session, and nothing left behind", if fits { "passed" } else { "FAILED" })?;
    Ok(fits)
}
