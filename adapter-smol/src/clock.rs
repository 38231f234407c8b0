use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use endpoint::{BoxFuture, Runtime};
use protocol_core::Instant;
use protocol_core::drive::Timer;
use smol::Executor;

/// The system's clock, counted from the making of this value, and an executor, for the handlers of an endpoint. All that belongs to
/// one connection must share one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: std::time::Instant,
    /// `None` is smol's global one. Weak: its own tasks hold this clock, and would keep it and so each other for ever.
    executor: Option<Weak<Executor<'static>>>,
}

impl Clock {
    /// Begins now. Handlers run on smol's global executor.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now(), executor: None }
    }

    /// Begins now. Handlers run on `executor`, which the owner must run; when it is dropped, so are they.
    #[must_use]
    pub fn start_on(executor: &Arc<Executor<'static>>) -> Self {
        Self { executor: Some(Arc::downgrade(executor)), ..Self::start() }
    }

    /// An alarm on this clock, for one driver.
    #[must_use]
    pub fn alarm(&self) -> Alarm {
        Alarm { clock: self.clone(), timer: smol::Timer::never(), at: None }
    }
}

impl Runtime for Clock {
    /// Rounded down to a microsecond, so that no deadline is reached too early.
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

    /// On the threads that all of smol shares for what blocks.
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        smol::unblock(job).detach();
    }
}

/// One alarm.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    timer: smol::Timer,
    /// The instant that `timer` is set to.
    at: Option<Instant>,
}

impl Timer for Alarm {
    fn now(&self) -> Instant {
        Runtime::now(&self.clock)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        if self.at != Some(at) {
            // What is beyond the system's clock does not ring.
            let Some(due) = self.clock.origin.checked_add(Duration::from_micros(at.as_micros())) else { return Poll::Pending };
            self.timer.set_at(due);
            self.at = Some(at);
        }
        let rings = Pin::new(&mut self.timer).poll(cx);
        if rings.is_ready() {
            // One that has rung stays silent from then on.
            self.at = None;
        }
        rings.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use protocol_core::Instant;
    use protocol_core::drive::Timer;

    use super::Clock;

    /// A deadline that has passed by the time that its alarm is set rings at once, again and again, and none before it is kept.
    #[test]
    fn a_deadline_that_has_passed_rings_at_once_whatever_was_set_before() {
        let mut alarm = Clock::start().alarm();
        let mut cx = Context::from_waker(Waker::noop());
        let far = Instant::from_micros(3_600_000_000);
        for _ in 0..3 {
            assert_eq!(alarm.poll_until(&mut cx, far), Poll::Pending);
            assert_eq!(alarm.poll_until(&mut cx, Instant::ZERO), Poll::Ready(()));
            assert_eq!(alarm.poll_until(&mut cx, Instant::ZERO), Poll::Ready(()));
        }
    }
}
