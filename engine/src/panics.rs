//! Dropping values of users, and catching their panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value of a user. A panic of its `Drop` is caught and discarded.
pub fn drop_quietly<T>(thing: T) {
    drop_with(|| drop(thing));
}

/// Runs `drop`, which only drops values of users. A panic is caught and discarded.
pub(crate) fn drop_with(drop: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(drop)) {
        // The payload of the panic is leaked, since dropping it could panic, too.
        core::mem::forget(panic);
    }
}
