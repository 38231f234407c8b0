//! A single-threaded runtime in virtual time.

use core::fmt;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use engine::{BoxFuture, Runtime, TimedRuntime};
use protocol_core::drive::Timer;
use protocol_core::time::Instant;

/// Runs tasks on the thread that calls its methods, in the order in which the tasks were woken. Only the methods move the virtual time. So
/// equal runs poll the same tasks in the same order. Clones share the same tasks and time.
///
/// A task that never ends is dropped by [`Executor::shutdown`], or with the last clone of the executor. While a task itself holds a clone,
/// only [`Executor::shutdown`] drops the tasks.
#[derive(Clone, Default)]
pub struct Executor {
    shared: Arc<Shared>,
}

/// The maximum number of polls in one [`Executor::run_until_stalled`], which panics after more.
const MAX_POLLS: u32 = 10_000_000;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Instant,
    /// The number that the latest task or timer got.
    latest: u64,
    /// The number of random words that were drawn.
    drawn: u64,
    tasks: BTreeMap<u64, Arc<Task>>,
    woken: VecDeque<Arc<Task>>,
    timers: BTreeMap<(Instant, u64), Waker>,
}

struct Task {
    id: u64,
    executor: Weak<Shared>,
    /// `None` while the future is polled, and after it has ended.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// `true` while the task is in [`State::woken`].
    queued: AtomicBool,
}

impl Executor {
    /// An executor at [`Instant::ZERO`], without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The virtual time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// This executor as the [`Runtime`] of an [`Endpoint`](crate::Endpoint).
    #[must_use]
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.clone())
    }

    /// A timer on the virtual time, for one driver.
    #[must_use]
    pub fn timer(&self) -> VirtualTimer {
        VirtualTimer { executor: self.clone(), armed: None }
    }

    /// Adds a task. It is first polled by the next method that runs tasks.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(future));
    }

    fn spawn_boxed(&self, future: BoxFuture<'static, ()>) {
        let mut state = self.shared.lock();
        state.latest = state.latest.wrapping_add(1);
        let id = state.latest;
        let task = Arc::new(Task {
            id,
            executor: Arc::downgrade(&self.shared),
            future: Mutex::new(Some(future)),
            queued: AtomicBool::new(true),
        });
        state.tasks.insert(id, Arc::clone(&task));
        state.woken.push_back(task);
    }

    /// Polls woken tasks until all of them wait, without moving the time. Returns `true` if any task was polled.
    ///
    /// # Panics
    /// After ten million polls: a task wakes itself without end.
    pub fn run_until_stalled(&self) -> bool {
        let mut polls = 0_u32;
        while self.run_next() {
            polls = polls.saturating_add(1);
            assert!(polls < MAX_POLLS, "a task wakes itself without end: {polls} polls while time stands still");
        }
        polls > 0
    }

    /// Polls the task that was woken first. Returns `false` if there is none.
    pub(super) fn run_next(&self) -> bool {
        let Some(task) = self.shared.lock().woken.pop_front() else { return false };
        task.run(&self.shared);
        true
    }

    /// The earliest instant for which a [`VirtualTimer`] is set; `None` if none is set.
    #[must_use]
    pub fn next_timer(&self) -> Option<Instant> {
        self.shared.lock().timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves the time forward to `at`, unless it is already later than `at`, and wakes the task of every [`VirtualTimer`] that is due.
    /// Polls no task.
    pub fn advance_to(&self, at: Instant) {
        {
            let mut state = self.shared.lock();
            state.now = state.now.max(at);
        }
        loop {
            let due = {
                let mut state = self.shared.lock();
                let now = state.now;
                match state.timers.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            due.wake();
        }
    }

    /// Runs tasks for `span` of virtual time. Whenever all of them wait, the time moves to the next timer that is set.
    pub fn run_for(&self, span: Duration) {
        let until = self.now().saturating_add(span);
        self.run_until_stalled();
        while let Some(at) = self.next_timer().filter(|at| *at <= until) {
            self.advance_to(at);
            self.run_until_stalled();
        }
        self.advance_to(until);
    }

    /// Runs tasks until `future` is ready, moving the time as [`run_for`](Self::run_for) does. Returns `None` if it can never be ready,
    /// because all tasks wait and no timer is set.
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
                self.advance_to(self.next_timer()?);
            }
        }
    }

    /// Drops all tasks, as a runtime does when it shuts down.
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
                // Dropped outside of the lock, since the drop of the future may spawn or wake other tasks.
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

    /// Runs the job as a task, since there is only one thread.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.spawn(async move { job() });
    }

    fn unix_time(&self) -> Option<Duration> {
        /// An arbitrary time.
        const START: Duration = Duration::from_secs(1_800_000_000);
        Some(START.saturating_add(self.now().saturating_duration_since(Instant::ZERO)))
    }

    /// Fills `bytes` with pseudorandom bytes, which are the same in every run.
    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        for chunk in bytes.chunks_mut(8) {
            let drawn = {
                let mut state = self.shared.lock();
                state.drawn = state.drawn.wrapping_add(1);
                state.drawn
            };
            let word = mix(drawn).to_le_bytes();
            chunk.iter_mut().zip(word).for_each(|(target, byte)| *target = byte);
        }
        Ok(())
    }
}

impl TimedRuntime for Executor {
    fn timer(&self) -> Box<dyn Timer + Send + Sync> {
        Box::new(Self::timer(self))
    }
}

/// The `number`th output of the generator SplitMix64 (Steele, Lea and Flood, 2014) with the seed 0.
const fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
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

/// A timer on the virtual time of an [`Executor`].
#[derive(Debug)]
pub struct VirtualTimer {
    executor: Executor,
    armed: Option<(Instant, u64)>,
}

impl VirtualTimer {
    fn disarm(&mut self) {
        if let Some(key) = self.armed.take() {
            let waker = self.executor.shared.lock().timers.remove(&key);
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
        state.latest = state.latest.wrapping_add(1);
        let key = (at, state.latest);
        state.timers.insert(key, waker);
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
    fn tasks_run_in_the_order_of_their_timers() {
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
    fn block_on_returns_none_if_the_future_can_never_be_ready() {
        let executor = Executor::new();
        assert_eq!(executor.block_on(core::future::pending::<u8>()), None);
        assert_eq!(executor.block_on(async { 1 }), Some(1));
        assert!(executor.block_on(sleep(&executor, Duration::from_secs(5))).is_some());
        assert_eq!(executor.now(), Instant::from_millis(5000));
    }

    #[test]
    fn shutdown_drops_all_tasks_that_have_not_ended() {
        let executor = Executor::new();
        let value = Arc::new(());
        let inside = Arc::clone(&value);
        executor.spawn(async move {
            let _inside = inside;
            core::future::pending::<()>().await;
        });
        executor.run_until_stalled();
        assert_eq!(Arc::strong_count(&value), 2);
        executor.shutdown();
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn random_bytes_are_the_output_of_splitmix64_with_seed_zero() {
        let (executor, mut bytes) = (Executor::new(), [0; 20]);
        executor.fill_random(&mut bytes).unwrap();
        let numbers = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f].map(u64::to_le_bytes).concat();
        assert_eq!(bytes[..], numbers[..20]);
    }
}
