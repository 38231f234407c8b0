//! Dropping values of the application, and catching the panics of their `Drop`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value of the application. A panic of its `Drop` is caught and discarded.
pub fn drop_quietly<T>(value: T) {
    drop_with(|| drop(value));
}

/// Runs `drop`, which only drops values of the application. A panic is caught and discarded.
pub(crate) fn drop_with(drop: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(drop)) {
        // The payload of the panic is leaked, since dropping it could panic, too.
        core::mem::forget(panic);
    }
}
