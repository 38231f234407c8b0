//! Drops of values of users, whose panics are caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value of the user. A panic of its `Drop` is caught and discarded.
pub fn drop_quietly<T>(thing: T) {
    drop_with(|| drop(thing));
}

/// Runs `drop`, which only drops values of the user. A panic is caught and discarded.
pub(crate) fn drop_with(drop: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(drop)) {
        // Leaked, since the drop of the payload could panic, too.
        core::mem::forget(panic);
    }
}
