//! Waiting for a change that another process or another thread makes.

use std::thread;
use std::time::{Duration, Instant};

/// The time limit, generous enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Blocks, and calls `look` again and again until it returns a value. Use this only for changes that cannot be awaited, such as those of
/// files, processes and sockets.
///
/// # Panics
/// If there is no value within [`PATIENCE`]. The message contains `what`.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "not within the time limit: {what}");
        // Short enough for a test, and long enough to leave the processor to the other process.
        thread::sleep(Duration::from_millis(5));
    }
}
