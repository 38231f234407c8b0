//! The mark of a thread on which an effect is polled, so that no input request and no other effect stands in it.

use core::cell::Cell;

std::thread_local! {
    static IN_EFFECT: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` while an effect is polled on this thread.
pub(crate) fn is_in_effect() -> bool {
    IN_EFFECT.with(Cell::get)
}

/// Marks the thread while an effect is polled.
pub(crate) struct EffectMark;

impl EffectMark {
    pub(crate) fn set() -> Self {
        IN_EFFECT.with(|marked| marked.set(true));
        Self
    }
}

impl Drop for EffectMark {
    fn drop(&mut self) {
        IN_EFFECT.with(|marked| marked.set(false));
    }
}
