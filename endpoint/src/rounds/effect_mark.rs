//! The mark of a thread on which an effect is polled, so that no input request and no other effect of the same call stands in it.

use core::cell::Cell;

std::thread_local! {
    /// The address of the call whose effect is polled.
    static IN_EFFECT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns `true` while an effect of `call` is polled on this thread.
pub(crate) fn is_in_effect<T>(call: &T) -> bool {
    IN_EFFECT.with(Cell::get) == Some(address(call))
}

/// Marks the thread while an effect is polled. An effect that drives another endpoint on its thread polls the calls and effects of that one, too:
/// after them, the mark is what it was.
pub(crate) struct EffectMark {
    before: Option<usize>,
}

impl EffectMark {
    pub(crate) fn set<T>(call: &T) -> Self {
        Self { before: IN_EFFECT.with(|marked| marked.replace(Some(address(call)))) }
    }
}

impl Drop for EffectMark {
    fn drop(&mut self) {
        IN_EFFECT.with(|marked| marked.set(self.before));
    }
}

fn address<T>(call: &T) -> usize {
    core::ptr::from_ref(call).addr()
}
