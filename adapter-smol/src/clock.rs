use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use endpoint::{BoxFuture, Runtime, TimedRuntime};
use protocol_core::Instant;
use protocol_core::drive::Timer;
use smol::Executor;

/// The [`Runtime`] of an endpoint on smol: the system's monotonic clock, whose time is counted from the creation of this value, and an
/// executor. All values that belong to one connection must use clones of one `SmolRuntime`.
#[derive(Clone, Debug)]
pub struct SmolRuntime {
    origin: std::time::Instant,
    /// `None` for smol's global executor. The reference is weak, since the tasks of the executor hold this clock: with a strong one they
    /// would keep the executor, and so themselves, alive forever.
    executor: Option<Weak<Executor<'static>>>,
}

impl SmolRuntime {
    /// A clock that starts now, with tasks on smol's global executor.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now(), executor: None }
    }

    /// A clock that starts now, with tasks on `executor`, which the caller must run. When the executor is dropped, its tasks are dropped,
    /// too.
    #[must_use]
    pub fn start_on(executor: &Arc<Executor<'static>>) -> Self {
        Self { executor: Some(Arc::downgrade(executor)), ..Self::start() }
    }

    /// A timer on this clock, for one driver.
    #[must_use]
    pub fn timer(&self) -> SmolTimer {
        SmolTimer { clock: self.clone(), timer: smol::Timer::never(), at: None }
    }
}

impl Runtime for SmolRuntime {
    /// The time, rounded down to a microsecond, so that no deadline is handled too early.
    fn now(&self) -> Instant {
        let elapsed = self.origin.elapsed();
        Instant::from_micros(elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros()))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        match &self.executor {
            None => smol::spawn(task).detach(),
            Some(executor) => {
                if let Some(executor) = executor.upgrade() {
                    executor.spawn(task).detach();
                }
            }
        }
    }

    /// Runs the job on one of smol's threads for blocking code.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        smol::unblock(job).detach();
    }

    fn unix_time(&self) -> Option<Duration> {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::from)
    }
}

impl TimedRuntime for SmolRuntime {
    fn timer(&self) -> Box<dyn Timer + Send + Sync> {
        Box::new(self.timer())
    }
}

/// A timer for one driver.
#[derive(Debug)]
pub struct SmolTimer {
    clock: SmolRuntime,
    timer: smol::Timer,
    /// The instant that `timer` is set to.
    at: Option<Instant>,
}

impl Timer for SmolTimer {
    fn now(&self) -> Instant {
        Runtime::now(&self.clock)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        if self.at != Some(at) {
            // A deadline beyond the range of the system's clock never passes.
            let Some(due) = self.clock.origin.checked_add(Duration::from_micros(at.as_micros())) else { return Poll::Pending };
            self.timer.set_at(due);
            self.at = Some(at);
        }
        let fired = Pin::new(&mut self.timer).poll(cx);
        if fired.is_ready() {
            // A timer that has fired does not fire again, so the next poll must set it.
            self.at = None;
        }
        fired.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use protocol_core::Instant;
    use protocol_core::drive::Timer;

    use super::SmolRuntime;
    use endpoint::Runtime;

    /// A deadline that has already passed is ready at once, each time that it is polled, and replaces a later deadline that was set before.
    #[test]
    fn a_deadline_that_has_passed_is_ready_at_once_also_after_a_later_deadline_was_set() {
        let mut timer = SmolRuntime::start().timer();
        let mut cx = Context::from_waker(Waker::noop());
        let far = Instant::from_micros(3_600_000_000);
        for _ in 0..3 {
            assert_eq!(timer.poll_until(&mut cx, far), Poll::Pending);
            assert_eq!(timer.poll_until(&mut cx, Instant::ZERO), Poll::Ready(()));
            assert_eq!(timer.poll_until(&mut cx, Instant::ZERO), Poll::Ready(()));
        }
    }

    #[test]
    fn random_bytes_fill_the_buffer_and_differ_each_time() {
        let (clock, mut bytes) = (SmolRuntime::start(), [[0; 32]; 2]);
        for bytes in &mut bytes {
            Runtime::fill_random(&clock, bytes).unwrap();
        }
        assert!(bytes[0] != bytes[1] && !bytes.contains(&[0; 32]), "{bytes:?}");
    }
}
