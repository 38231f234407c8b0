use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use endpoint::{BoxFuture, Runtime, TimedRuntime};
use protocol_core::Instant;
use protocol_core::drive::Timer;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::Sleep;

/// The longest time for which a timer is set, since tokio's clock has a limited range. A timer with a later deadline wakes its task after
/// this time, and is set again.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The [`Runtime`] of an endpoint on tokio: tokio's clock, whose time is counted from the creation of this value, and the tasks of the
/// tokio runtime in which it was created. Tests can pause and advance tokio's clock (`tokio::time::pause`). All values that belong to one
/// connection must use clones of one `TokioRuntime`.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    origin: tokio::time::Instant,
    runtime: Handle,
}

impl TokioRuntime {
    /// A clock that starts now.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now(), runtime: Handle::current() }
    }

    /// A timer on this clock, for one driver.
    #[must_use]
    pub fn timer(&self) -> TokioTimer {
        TokioTimer { clock: self.clone(), sleep: None }
    }
}

impl Runtime for TokioRuntime {
    /// The time, rounded down to a microsecond, so that no deadline is handled too early.
    fn now(&self) -> Instant {
        let elapsed = self.origin.elapsed();
        Instant::from_micros(elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros()))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.runtime.spawn_blocking(job);
    }

    fn unix_time(&self) -> Option<Duration> {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::from)
    }
}

impl TimedRuntime for TokioRuntime {
    fn timer(&self) -> Box<dyn Timer + Send + Sync> {
        Box::new(self.timer())
    }
}

/// A timer for one driver. Tokio rounds deadlines up to the next millisecond.
#[derive(Debug)]
pub struct TokioTimer {
    clock: TokioRuntime,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer for TokioTimer {
    fn now(&self) -> Instant {
        Runtime::now(&self.clock)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let since_origin = Duration::from_micros(at.as_micros());
        let due = match self.clock.origin.checked_add(since_origin) {
            // Less than `FAR` after the origin is also less than `FAR` after now.
            Some(due) if since_origin < FAR => due,
            due => {
                let far = tokio::time::Instant::now() + FAR;
                due.map_or(far, |due| due.min(far))
            }
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        // Polled without tokio's cooperative budget: if the budget of the task is used up, polling a sleep does not register the waker.
        pin!(unconstrained(sleep.as_mut())).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::sync::mpsc;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The bug: if the budget was used up, polling the timer did not set it, but woke the task immediately. If the task did not poll the
    /// timer again, it hung.
    #[tokio::test(start_paused = true)]
    async fn regression_a_timer_is_set_by_a_task_that_has_used_up_its_budget() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        (0..1000).for_each(|number| sender.send(number).unwrap());
        let mut timer = TokioRuntime::start().timer();
        let wakes = Arc::new(Wakes::default());
        let first_poll = poll_fn(|cx| {
            while receiver.poll_recv(cx).is_ready() {}
            let waker = Waker::from(Arc::clone(&wakes));
            Poll::Ready(timer.poll_until(&mut Context::from_waker(&waker), Instant::from_millis(10_000)))
        });
        assert_eq!(first_poll.await, Poll::Pending);
        assert!(!receiver.is_empty(), "the budget was used up first");
        for (seconds, wake_count) in [(9, 0), (2, 1)] {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), wake_count);
        }
    }

    #[tokio::test]
    async fn random_bytes_fill_the_buffer_and_differ_each_time() {
        let (clock, mut bytes) = (TokioRuntime::start(), [[0; 32]; 2]);
        for bytes in &mut bytes {
            Runtime::fill_random(&clock, bytes).unwrap();
        }
        assert!(bytes[0] != bytes[1] && !bytes.contains(&[0; 32]), "{bytes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_wakes_its_task_once_it_is_due_and_at_the_latest_after_a_year() {
        const DAY: u64 = 24 * 3600;
        for (days, woken_after) in [(300, 300), (1000, 365)] {
            let mut timer = TokioRuntime::start().timer();
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let mut poll = || timer.poll_until(&mut Context::from_waker(&waker), Instant::from_millis(days * DAY * 1000));
            assert_eq!(poll(), Poll::Pending);
            tokio::time::sleep(Duration::from_secs((woken_after - 1) * DAY)).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            tokio::time::sleep(Duration::from_secs(2 * DAY)).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
            assert_eq!(poll().is_ready(), days == woken_after);
        }
    }
}
