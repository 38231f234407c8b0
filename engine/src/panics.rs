//! Drops of things that belong to users: a panic of one of them ends here.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a thing of the user. A panic of its `Drop` ends here.
pub fn drop_quietly<T>(thing: T) {
    forgive(|| drop(thing));
}

/// Runs code that only drops things of the user. A panic of it ends here.
pub(crate) fn forgive(drop: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(drop)) {
        // A panic whose own payload panics when it is dropped is leaked.
        core::mem::forget(panic);
    }
}
