//! The parts that std would provide: output, a panic handler, and two symbols of unwinding.

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
            // SAFETY: the pointer and the length are those of a slice that outlives the call.
            let count = unsafe { write(1, rest.as_ptr(), rest.len()) };
            rest = usize::try_from(count).ok().and_then(|count| rest.get(count..)).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let _ = fmt::write(&mut Out, format_args!("{info}\n"));
    // SAFETY: `_exit` has no preconditions.
    unsafe { _exit(101) }
}

// The `core` library is compiled for unwinding and refers to these symbols; with `panic = "abort"` they are never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}
