//! Wakers that are stored under a lock. Their code does not run under the lock of an engine: a waker is cloned before the lock is taken,
//! and woken or dropped after the lock is released. Only [`AbortHandle::waker`] clones a waker under a lock: the lock of the handle
//! itself.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::panics::drop_quietly;

/// Stores `waker`, a clone that was made before the lock was taken, in `slot`, so that its task can be woken later. Afterwards `waker` holds
/// the waker that was in `slot` before, to be dropped after the lock is released.
pub fn park(slot: &mut Option<Waker>, waker: &mut Option<Waker>) {
    core::mem::swap(slot, waker);
}

/// Calls `act`, which may run code of users, with each of `things`, even after a call has panicked. After the last call, the panic is
/// resumed (if there were several, the last one). If the thread was already panicking, the panics are discarded.
pub fn each<T>(things: impl IntoIterator<Item = T>, mut act: impl FnMut(T)) {
    let mut panicked = None;
    for thing in things {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(thing))) {
            drop_quietly(panicked.replace(panic));
        }
    }
    match panicked {
        Some(panic) if !std::thread::panicking() => resume_unwind(panic),
        panicked => drop_quietly(panicked),
    }
}

/// Wakes all of `wakers`, even after one has panicked; see [`each`].
pub fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    each(wakers, Waker::wake);
}

/// The wakers of all tasks that wait for the same event.
#[derive(Debug, Default)]
pub struct Waiters {
    /// The key of the newest waiter.
    last_key: u64,
    waiting: Vec<(u64, Waker)>,
}

impl Waiters {
    /// Stores `waker` as [`park`] does. `waiter` is the key of the waiting task, which is `None` at first and set by this method.
    pub fn park(&mut self, waiter: &mut Option<u64>, waker: &mut Option<Waker>) {
        let Some(fresh) = waker.take() else { return };
        if let Some((_, kept)) = waiter.and_then(|key| self.waiting.iter_mut().find(|(waiting, _)| *waiting == key)) {
            *waker = Some(core::mem::replace(kept, fresh));
            return;
        }
        self.last_key = self.last_key.wrapping_add(1);
        *waiter = Some(self.last_key);
        self.waiting.push((self.last_key, fresh));
    }

    /// Removes a waiter by its key, and returns its waker, to be dropped after the lock is released. `None` if the waker was taken before.
    #[must_use]
    pub fn leave(&mut self, waiter: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(key, _)| *key == waiter)?;
        Some(self.waiting.swap_remove(at).1)
    }

    /// Takes all wakers, to be woken after the lock is released.
    pub fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        core::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }
}

/// Aborts a task: the task drops its future the next time that it is polled.
#[derive(Debug, Default)]
pub struct AbortHandle {
    aborted: AtomicBool,
    /// While this is locked, no other lock is taken, and no code of users runs but the clone of a waker.
    task: Mutex<Option<Waker>>,
}

impl AbortHandle {
    /// Returns `true` if the task was aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Aborts the task, and returns its waker, to be woken while no lock is held.
    #[must_use]
    pub fn abort(&self) -> Option<Waker> {
        self.aborted.store(true, Ordering::Release);
        self.task().take()
    }

    /// Stores the task's waker. Returns `false` if the task was aborted before or meanwhile, so that this waker may never be woken.
    pub fn hold(&self, waker: Waker) -> bool {
        let before = self.task().replace(waker);
        drop(before);
        !self.is_aborted()
    }

    /// A clone of the task's waker, to be woken while no lock is held. Waking it causes one more poll of the task. `None` before the first
    /// poll, after an abort, and after the end of the task.
    #[must_use]
    pub fn waker(&self) -> Option<Waker> {
        self.task().clone()
    }

    /// Takes the waker of a task that has ended.
    #[must_use]
    pub fn release(&self) -> Option<Waker> {
        self.task().take()
    }

    fn task(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a panic, whose drop panics, too.
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    /// If `hold` did not check `aborted`, a task that is aborted after its poll and before its waker is stored would never be woken.
    #[test]
    fn hold_returns_false_for_a_task_that_was_aborted_before() {
        let handle = AbortHandle::default();
        assert!(handle.hold(Waker::noop().clone()), "an abort will wake it");
        assert!(handle.abort().is_some());
        assert!(!handle.hold(Waker::noop().clone()), "the abort came first: the task must end by itself");
        assert!(handle.is_aborted());
    }

    #[test]
    fn a_call_that_panics_does_not_keep_the_later_calls_from_being_made() {
        let mut acted = Vec::new();
        let act = AssertUnwindSafe(|| {
            each(0..5, |thing| {
                acted.push(thing);
                match thing {
                    1 => std::panic::panic_any(PanicsOnDrop),
                    3 => std::panic::panic_any("the last"),
                    _ => {}
                }
            });
        });
        let panic = catch_unwind(act).expect_err("the panic is resumed");
        assert_eq!(panic.downcast_ref(), Some(&"the last"));
        assert_eq!(acted, vec![0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_panic_while_the_thread_unwinds_from_another_one_is_discarded() {
        struct PanicsInEach;
        impl Drop for PanicsInEach {
            fn drop(&mut self) {
                each([1, 2], |_| panic!("the second"));
            }
        }
        let panic = catch_unwind(|| {
            let _panics = PanicsInEach;
            std::panic::panic_any("the first");
        });
        assert_eq!(panic.expect_err("the panic is resumed").downcast_ref(), Some(&"the first"));
    }
}
