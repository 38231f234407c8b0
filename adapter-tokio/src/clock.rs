use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use endpoint::{BoxFuture, Runtime};
use protocol_core::Instant;
use protocol_core::drive::Timer;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::Sleep;

/// The distance of an alarm that is due beyond the range of the system's clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The clock of tokio, counted from the making of this value, so that tests can pause and move it; and the runtime it was made in,
/// for the handlers of an endpoint. All that belongs to one connection must share one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
    runtime: Handle,
}

impl Clock {
    /// Begins now.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now(), runtime: Handle::current() }
    }

    /// An alarm on this clock, for one driver.
    #[must_use]
    pub fn alarm(&self) -> Alarm {
        Alarm { clock: self.clone(), sleep: None }
    }
}

impl Runtime for Clock {
    /// Rounded down to a microsecond, so that no deadline is reached too early.
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
}

/// One alarm. Tokio rounds it up to its next millisecond.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer for Alarm {
    fn now(&self) -> Instant {
        Runtime::now(&self.clock)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let at = Duration::from_micros(at.as_micros());
        let at = match self.clock.origin.checked_add(at) {
            Some(due) if at < FAR => due,
            due => {
                let far = tokio::time::Instant::now() + FAR;
                due.map_or(far, |due| due.min(far))
            }
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        // Whatever this task has done before in its turn: a sleep that lets others go first has set nothing.
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

    /// It was not set, woke the task at once, and was not asked again.
    #[tokio::test(start_paused = true)]
    async fn regression_an_alarm_is_set_by_a_task_that_has_used_up_its_turn() {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        (0..1000).for_each(|number| sender.send(number).unwrap());
        let mut alarm = Clock::start().alarm();
        let wakes = Arc::new(Wakes::default());
        let rings = poll_fn(|cx| {
            while receiver.poll_recv(cx).is_ready() {}
            let waker = Waker::from(Arc::clone(&wakes));
            Poll::Ready(alarm.poll_until(&mut Context::from_waker(&waker), Instant::from_millis(10_000)))
        });
        assert_eq!(rings.await, Poll::Pending);
        assert!(!receiver.is_empty(), "the turn ended first");
        for (seconds, woken) in [(9, 0), (2, 1)] {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), woken);
        }
    }
}
