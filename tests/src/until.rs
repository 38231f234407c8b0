//! Waiting for something that another process does.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that a test waits for, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again until there is something to be found, and blocks meanwhile. For files and processes, of which nothing tells that
/// they have changed; all the rest can be waited for.
///
/// # Panics
/// If there is nothing within [`PATIENCE`]: `what` was expected.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "it never came to that: {what}");
        // Soon enough for a test, and rarely enough to leave the processor to the process that is waited for.
        thread::sleep(Duration::from_millis(5));
    }
}
