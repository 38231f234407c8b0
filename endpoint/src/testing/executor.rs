//! A runtime on one thread and in virtual time.

use core::fmt;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use engine::{BoxFuture, Runtime};
use protocol_core::drive::Timer;
use protocol_core::time::Instant;

/// Runs tasks on the thread that asks it to, first woken first, in a time that only moves when it is told to. Two equal runs
/// are equal to the last poll. Cloneable; the clones are one.
///
/// A task that never ends is kept until [`Executor::shutdown`].
#[derive(Clone, Default)]
pub struct Executor {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Instant,
    next: u64,
    tasks: BTreeMap<u64, Arc<Task>>,
    woken: VecDeque<Arc<Task>>,
    alarms: BTreeMap<(Instant, u64), Waker>,
}

struct Task {
    id: u64,
    executor: Weak<Shared>,
    /// Taken out while it is polled.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
}

impl Executor {
    /// At the beginning of time, with nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// As what an [`Endpoint`](crate::Endpoint) wants lent.
    #[must_use]
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.clone())
    }

    /// A clock with one alarm, for a driver.
    #[must_use]
    pub fn timer(&self) -> VirtualTimer {
        VirtualTimer { executor: self.clone(), armed: None }
    }

    /// Adds a task. It is polled when the executor runs.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(future));
    }

    fn spawn_boxed(&self, future: BoxFuture<'static, ()>) {
        let mut state = self.shared.lock();
        state.next = state.next.wrapping_add(1);
        let id = state.next;
        let task = Arc::new(Task {
            id,
            executor: Arc::downgrade(&self.shared),
            future: Mutex::new(Some(future)),
            queued: AtomicBool::new(true),
        });
        state.tasks.insert(id, Arc::clone(&task));
        state.woken.push_back(task);
    }

    /// Polls woken tasks until none is left. Time stands still. Says whether there were any.
    pub fn run_until_stalled(&self) -> bool {
        let mut any = false;
        loop {
            let Some(task) = self.shared.lock().woken.pop_front() else { return any };
            any = true;
            task.run(&self.shared);
        }
    }

    /// The instant at which the next alarm of a [`VirtualTimer`] is due.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Instant> {
        self.shared.lock().alarms.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves time to `at`, unless it is there already, and rings every alarm that is due. Runs nothing.
    pub fn advance_to(&self, at: Instant) {
        {
            let mut state = self.shared.lock();
            state.now = state.now.max(at);
        }
        loop {
            let due = {
                let mut state = self.shared.lock();
                let now = state.now;
                match state.alarms.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            due.wake();
        }
    }

    /// Runs, and moves time from alarm to alarm, for `span` of virtual time.
    pub fn run_for(&self, span: Duration) {
        let until = self.now().saturating_add(span);
        self.run_until_stalled();
        while let Some(at) = self.next_alarm().filter(|at| *at <= until) {
            self.advance_to(at);
            self.run_until_stalled();
        }
        self.advance_to(until);
    }

    /// Runs, and moves time from alarm to alarm, until `future` is ready. `None` if it never will be: every task waits, and no alarm
    /// is set.
    pub fn block_on<F: Future>(&self, future: F) -> Option<F::Output> {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Release);
            }
        }
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if woken.0.swap(false, Ordering::AcqRel) {
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Some(value);
                }
            } else if !self.run_until_stalled() {
                self.advance_to(self.next_alarm()?);
            }
        }
    }

    /// Drops every task where it stands, as a runtime does that ends.
    pub fn shutdown(&self) {
        loop {
            let tasks = {
                let mut state = self.shared.lock();
                state.woken.clear();
                core::mem::take(&mut state.tasks)
            };
            if tasks.is_empty() {
                return;
            }
            for task in tasks.into_values() {
                // Its drop may spawn or wake others.
                let future = task.future().take();
                drop(future);
            }
        }
    }
}

impl Runtime for Executor {
    fn now(&self) -> Instant {
        Self::now(self)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.spawn_boxed(task);
    }

    /// There is one thread: the job is run on it, in its turn.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.spawn(async move { job() });
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        f.debug_struct("Executor").field("now", &state.now).field("tasks", &state.tasks.len()).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn future(&self) -> MutexGuard<'_, Option<BoxFuture<'static, ()>>> {
        self.future.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>, executor: &Shared) {
        self.queued.store(false, Ordering::Release);
        let Some(mut future) = self.future().take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending() {
            *self.future() = Some(future);
        } else {
            let task = executor.lock().tasks.remove(&self.id);
            drop(task);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel)
            && let Some(executor) = self.executor.upgrade()
        {
            executor.lock().woken.push_back(self);
        }
    }
}

/// The clock of an [`Executor`], and one alarm.
#[derive(Debug)]
pub struct VirtualTimer {
    executor: Executor,
    armed: Option<(Instant, u64)>,
}

impl VirtualTimer {
    fn disarm(&mut self) {
        if let Some(key) = self.armed.take() {
            let waker = self.executor.shared.lock().alarms.remove(&key);
            drop(waker);
        }
    }
}

impl Timer for VirtualTimer {
    fn now(&self) -> Instant {
        self.executor.now()
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        self.disarm();
        let waker = cx.waker().clone();
        let mut state = self.executor.shared.lock();
        if at <= state.now {
            drop(state);
            return Poll::Ready(());
        }
        state.next = state.next.wrapping_add(1);
        let key = (at, state.next);
        state.alarms.insert(key, waker);
        self.armed = Some(key);
        Poll::Pending
    }
}

impl Drop for VirtualTimer {
    fn drop(&mut self) {
        self.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sleep(executor: &Executor, span: Duration) {
        let mut timer = executor.timer();
        let at = timer.now().saturating_add(span);
        core::future::poll_fn(|cx| timer.poll_until(cx, at)).await;
    }

    #[test]
    fn tasks_run_in_the_order_in_which_their_time_comes() {
        let executor = Executor::new();
        let seen = Arc::new(Mutex::new(Vec::new()));
        for seconds in [3, 1, 2] {
            let (executor, seen) = (executor.clone(), Arc::clone(&seen));
            executor.clone().spawn(async move {
                sleep(&executor, Duration::from_secs(seconds)).await;
                seen.lock().unwrap().push((seconds, executor.now()));
            });
        }
        executor.run_for(Duration::from_secs(2));
        assert_eq!(*seen.lock().unwrap(), vec![(1, Instant::from_millis(1000)), (2, Instant::from_millis(2000))]);
        executor.run_for(Duration::from_secs(2));
        assert_eq!(seen.lock().unwrap().len(), 3);
        assert_eq!(executor.now(), Instant::from_millis(4000));
    }

    #[test]
    fn block_on_says_when_nothing_will_ever_happen() {
        let executor = Executor::new();
        assert_eq!(executor.block_on(core::future::pending::<u8>()), None);
        assert_eq!(executor.block_on(async { 1 }), Some(1));
        assert!(executor.block_on(sleep(&executor, Duration::from_secs(5))).is_some());
        assert_eq!(executor.now(), Instant::from_millis(5000));
    }

    #[test]
    fn shutdown_drops_what_has_not_ended() {
        let executor = Executor::new();
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        executor.spawn(async move {
            let _inside = inside;
            core::future::pending::<()>().await;
        });
        executor.run_until_stalled();
        assert_eq!(Arc::strong_count(&held), 2);
        executor.shutdown();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
