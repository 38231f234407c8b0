//! A mark on the thread that polls an effect. While it is set, input requests and other effects of the same call are refused.

use core::cell::Cell;

std::thread_local! {
    /// The address of the call whose effect is polled.
    static IN_EFFECT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns `true` while an effect of `call` is polled on this thread.
pub(crate) fn is_in_effect<T>(call: &T) -> bool {
    IN_EFFECT.with(Cell::get) == Some(address(call))
}

/// Marks the thread while an effect is polled. The effect may drive another endpoint on the same thread, whose effects set marks of their
/// own. So dropping a mark restores the one that was set before.
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
