use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use protocol_core::Instant;
use protocol_core::drive::Timer;
use protocol_core::endpoint::{BoxFuture, Runtime};
use tokio::runtime::Handle;
use tokio::time::Sleep;

/// Where an alarm lies that is due beyond what the system's clock can say.
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

    /// It stays set where it is as long as it lies before `at`, and is set anew once it has rung: a deadline that moves on with every
    /// call then costs one needless turn now and then, and not two changes of the runtime's timers each time.
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
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}
