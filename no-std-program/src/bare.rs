//! The parts that a program without std has to bring along: a way to print, a way to stop.

use core::fmt;
use core::panic::PanicInfo;

#[link(name = "c")]
unsafe extern "C" {
    fn write(file: i32, bytes: *const u8, count: usize) -> isize;
    fn _exit(status: i32) -> !;
}

/// Standard output.
pub struct Out;

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // SAFETY: the bytes live across the call.
            let count = unsafe { write(1, rest.as_ptr(), rest.len()) };
            rest = usize::try_from(count).ok().and_then(|count| rest.get(count..)).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let _ = fmt::write(&mut Out, format_args!("{info}\n"));
    // SAFETY: ends the process.
    unsafe { _exit(101) }
}

// The core library comes compiled for unwinding and names these; with `panic = "abort"` nobody calls them.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}
