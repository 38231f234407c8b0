//! Wakers that are kept so that none of their code ever runs under the lock: cloned before it is taken, woken and dropped
//! after it is let go.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use crate::panics::drop_quietly;

/// Keeps `waker` in `place` so that it is woken later.
///
/// Gives true when `place` wakes the same task already, or took the clone in `spare`, which then holds what was there
/// before. Gives false when there is no clone yet: let the lock go, put one into `spare` and come again.
pub fn park(place: &mut Option<Waker>, waker: &Waker, spare: &mut Option<Waker>) -> bool {
    if place.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
        return true;
    }
    if spare.is_none() {
        return false;
    }
    core::mem::swap(place, spare);
    true
}

/// A clone of `waker` for [`park`], made before a lock is taken: the one that is `kept` if it wakes the same task, and else a new one.
#[must_use]
pub fn spare(kept: Option<Waker>, waker: &Waker) -> Option<Waker> {
    kept.filter(|kept| kept.will_wake(waker)).or_else(|| Some(waker.clone()))
}

/// Calls `act`, which may run foreign code, with each of `things`. One that panics keeps none of the others from its turn: the panic
/// goes on after the last, of several the last one, unless another is on its way already.
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

/// Wakes all of `wakers`, as [`each`] does.
pub fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    each(wakers, Waker::wake);
}

/// Any number of tasks that wait for the same thing.
#[derive(Debug, Default)]
pub struct Waiters {
    next: u64,
    waiting: Vec<(u64, Waker)>,
}

impl Waiters {
    /// Like [`park`], for the waiter that `place` names from its first time on.
    pub fn park(&mut self, place: &mut Option<u64>, waker: &Waker, spare: &mut Option<Waker>) -> bool {
        let found = place.and_then(|key| self.waiting.iter_mut().find(|(waiting, _)| *waiting == key));
        if let Some((_, kept)) = found {
            if kept.will_wake(waker) {
                return true;
            }
            let Some(fresh) = spare.take() else { return false };
            *spare = Some(core::mem::replace(kept, fresh));
            return true;
        }
        let Some(fresh) = spare.take() else { return false };
        self.next = self.next.wrapping_add(1);
        *place = Some(self.next);
        self.waiting.push((self.next, fresh));
        true
    }

    /// Forgets a waiter. Its waker is given out, to be dropped outside the lock.
    #[must_use]
    pub fn leave(&mut self, place: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(key, _)| *key == place)?;
        Some(self.waiting.swap_remove(at).1)
    }

    /// Takes all that wait, to be woken outside the lock.
    pub fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        core::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }
}

/// Ends a task from outside: it drops its future the next time it is polled.
#[derive(Debug, Default)]
pub struct AbortHandle {
    aborted: AtomicBool,
    /// A leaf: nothing else is locked while this is, and no foreign code runs.
    task: Mutex<Option<Waker>>,
}

impl AbortHandle {
    /// Returns `true` if the task is to end.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Ends the task at its next poll. Gives the waker to wake, outside every lock.
    #[must_use]
    pub fn abort(&self) -> Option<Waker> {
        self.aborted.store(true, Ordering::Release);
        self.task().take()
    }

    /// Keeps the task's waker. False when the task was aborted meanwhile, so that nothing would wake it.
    pub fn hold(&self, waker: Waker) -> bool {
        let before = self.task().replace(waker);
        drop(before);
        !self.is_aborted()
    }

    /// Gives the task's waker back: the task has ended.
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

    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    /// Without a look at the flag a task that was aborted between its poll and the keeping of its waker slept for ever.
    #[test]
    fn a_task_that_was_aborted_before_its_waker_is_kept_is_told_so() {
        let handle = AbortHandle::default();
        assert!(handle.hold(Waker::noop().clone()), "it goes on, and is woken by an abort");
        assert!(handle.abort().is_some());
        assert!(!handle.hold(Waker::noop().clone()), "the abort came first: the task must end by itself");
        assert!(handle.is_aborted());
    }

    #[test]
    fn what_panics_keeps_none_of_the_others_from_its_turn() {
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
        let panic = catch_unwind(act).expect_err("it goes on");
        assert_eq!(panic.downcast_ref(), Some(&"the last"));
        assert_eq!(acted, vec![0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_panic_behind_another_that_is_on_its_way_ends_there() {
        struct WakesOnDrop;
        impl Drop for WakesOnDrop {
            fn drop(&mut self) {
                each([1, 2], |_| panic!("the second"));
            }
        }
        let panic = catch_unwind(|| {
            let _wakes = WakesOnDrop;
            std::panic::panic_any("the first");
        });
        assert_eq!(panic.expect_err("it goes on").downcast_ref(), Some(&"the first"));
    }
}
