//! The wrapper around user futures that run as tasks: it catches panics, ends when its leash is pulled, and settles what it
//! owes however it ends.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use pin_project_lite::pin_project;

use crate::endpoint::diagnose::{self, Span};
use crate::endpoint::wake::Leash;

/// Something owed to the peer that a user future brings.
pub(super) trait Duty: Send + Sync + 'static {
    /// What the future brings.
    type Output: Send + 'static;
    /// How the task is ended from outside.
    fn leash(&self) -> &Leash;
    /// What is told of the task.
    fn span(&self) -> &Span;
    /// Pays what is owed. Called exactly once.
    fn settle(&self, end: End<Self::Output>);
}

/// How a user future ended.
#[derive(Debug)]
pub(super) enum End<T> {
    /// With its value.
    Value(T),
    /// With a panic.
    Panicked,
    /// Dropped before it was done: by its leash, or by a runtime that shuts down.
    Dropped,
}

pin_project! {
    /// A user future on its way.
    ///
    /// Whether unwinding left the future's own state whole is of no matter: it is never polled again.
    pub(super) struct Task<D: Duty, F> {
        duty: Arc<D>,
        // `None` once it is settled.
        #[pin]
        future: Option<F>,
        // The waker that the leash has.
        held: Option<Waker>,
    }

    impl<D: Duty, F> PinnedDrop for Task<D, F> {
        fn drop(this: Pin<&mut Self>) {
            this.settle(End::Dropped);
        }
    }
}

impl<D: Duty, F> Task<D, F> {
    pub(super) fn new(duty: Arc<D>, future: F) -> Self {
        Self { duty, future: Some(future), held: None }
    }

    /// Begins where it stands, before it costs a task. Gives the task if it needs to go on.
    pub(super) fn begin_in_place(duty: &Arc<D>, begin: impl FnOnce() -> Result<D::Output, F>) -> Option<Self> {
        if duty.leash().is_pulled() {
            duty.settle(End::Dropped);
            return None;
        }
        match guarded(&**duty, begin) {
            Ok(Ok(value)) => duty.settle(End::Value(value)),
            Ok(Err(future)) => return Some(Self::new(Arc::clone(duty), future)),
            Err(panicked) => duty.settle(panicked),
        }
        None
    }

    /// The future goes first, with all that it holds, so that its cleanup lies before the settlement.
    fn settle(self: Pin<&mut Self>, end: End<D::Output>) {
        let mut this = self.project();
        if this.future.is_none() {
            return;
        }
        {
            let _entered = this.duty.span().enter();
            forgive(|| this.future.set(None));
        }
        if this.held.take().is_some() {
            // It would keep the task in memory as long as somebody keeps a handle of what it was about.
            drop(this.duty.leash().release());
        }
        this.duty.settle(end);
    }
}

impl<D: Duty, F: Future<Output = D::Output>> Task<D, F> {
    fn step(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = self.as_mut().project();
        let Some(future) = this.future.as_pin_mut() else { return Poll::Ready(()) };
        let end = if this.duty.leash().is_pulled() {
            End::Dropped
        } else {
            match guarded(&**this.duty, || future.poll(cx)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(value)) => End::Value(value),
                Err(panicked) => panicked,
            }
        };
        self.settle(end);
        Poll::Ready(())
    }
}

impl<D: Duty, F: Future<Output = D::Output>> Future for Task<D, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.as_mut().step(cx).is_ready() {
            return Poll::Ready(());
        }
        let this = self.as_mut().project();
        if !this.held.as_ref().is_some_and(|held| held.will_wake(cx.waker())) {
            *this.held = Some(cx.waker().clone());
            if !this.duty.leash().hold(cx.waker().clone()) {
                return self.step(cx);
            }
        }
        Poll::Pending
    }
}

/// A blocking job with the same duties as a [`Task`].
pub(super) struct BlockingTask<D: Duty> {
    duty: Arc<D>,
    job: Option<Box<dyn FnOnce() -> D::Output + Send>>,
}

impl<D: Duty> BlockingTask<D> {
    pub(super) fn new(duty: Arc<D>, job: Box<dyn FnOnce() -> D::Output + Send>) -> Self {
        Self { duty, job: Some(job) }
    }

    /// Runs the job, unless its leash was pulled while it waited for a thread.
    pub(super) fn run(mut self) {
        if self.duty.leash().is_pulled() {
            return;
        }
        let Some(job) = self.job.take() else { return };
        let end = guarded(&*self.duty, job).map_or_else(|panicked| panicked, End::Value);
        self.duty.settle(end);
    }
}

impl<D: Duty> Drop for BlockingTask<D> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let_go(job);
            self.duty.settle(End::Dropped);
        }
    }
}

/// Runs something of the user's in the span of what it is owed for. A panic is the end of that.
fn guarded<D: Duty, T>(duty: &D, run: impl FnOnce() -> T) -> Result<T, End<D::Output>> {
    let _entered = duty.span().enter();
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        diagnose::panicked(duty.span(), &*panic);
        let_go(panic);
        End::Panicked
    })
}

/// Drops something of the user's, which may panic once more: that must not keep us from settling.
pub(super) fn let_go<T>(thing: T) {
    forgive(|| drop(thing));
}

fn forgive(drop: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(drop)) {
        // A panic whose own payload panics when it is dropped is leaked.
        core::mem::forget(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::vec;
    use std::vec::Vec;

    #[derive(Default)]
    struct Owed {
        leash: Leash,
        span: Span,
        ends: Mutex<Vec<&'static str>>,
    }

    impl Duty for Owed {
        type Output = u8;
        fn leash(&self) -> &Leash {
            &self.leash
        }
        fn span(&self) -> &Span {
            &self.span
        }
        fn settle(&self, end: End<u8>) {
            self.ends.lock().unwrap().push(match end {
                End::Value(_) => "value",
                End::Panicked => "panicked",
                End::Dropped => "dropped",
            });
        }
    }

    impl Owed {
        fn ends(&self) -> Vec<&'static str> {
            self.ends.lock().unwrap().clone()
        }
    }

    fn poll<D: Duty, F: Future<Output = D::Output> + Unpin>(task: &mut Task<D, F>) -> Poll<()> {
        Pin::new(task).poll(&mut TaskContext::from_waker(Waker::noop()))
    }

    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn a_value_settles_once() {
        let owed = Arc::new(Owed::default());
        let mut task = Task::new(Arc::clone(&owed), Box::pin(async { 1 }));
        assert!(poll(&mut task).is_ready());
        assert!(poll(&mut task).is_ready());
        drop(task);
        assert_eq!(owed.ends(), vec!["value"]);
    }

    #[test]
    fn a_panic_settles_once_even_if_its_payload_panics_again() {
        let owed = Arc::new(Owed::default());
        let mut task = Task::new(Arc::clone(&owed), Box::pin(async { std::panic::panic_any(PanicsOnDrop) }));
        assert!(poll(&mut task).is_ready());
        assert_eq!(owed.ends(), vec!["panicked"]);
    }

    #[test]
    fn a_value_is_kept_when_what_the_future_held_panics_on_its_drop() {
        let owed = Arc::new(Owed::default());
        let mut held = Some(PanicsOnDrop);
        let future = core::future::poll_fn(move |_| {
            let _ = &mut held;
            Poll::Ready(1)
        });
        let mut task = Task::new(Arc::clone(&owed), future);
        assert!(poll(&mut task).is_ready());
        assert_eq!(owed.ends(), vec!["value"]);
    }

    #[test]
    fn a_task_dropped_on_its_way_settles() {
        let owed = Arc::new(Owed::default());
        let mut task = Task::new(Arc::clone(&owed), Box::pin(core::future::pending()));
        assert!(poll(&mut task).is_pending());
        drop(task);
        assert_eq!(owed.ends(), vec!["dropped"]);
    }

    #[test]
    fn a_pulled_leash_ends_the_task_at_its_next_poll() {
        let owed = Arc::new(Owed::default());
        let mut task = Task::new(Arc::clone(&owed), Box::pin(core::future::pending()));
        assert!(poll(&mut task).is_pending());
        assert!(owed.leash.pull().is_some(), "the task's waker");
        assert_eq!(owed.ends(), Vec::<&str>::new());
        assert!(poll(&mut task).is_ready());
        assert_eq!(owed.ends(), vec!["dropped"]);
    }

    type Begun = Task<Owed, Pin<Box<dyn Future<Output = u8>>>>;

    #[test]
    fn what_begins_in_place_settles_there_or_goes_on_as_a_task() {
        let owed = Arc::new(Owed::default());
        assert!(Begun::begin_in_place(&owed, || Ok(1)).is_none());
        assert!(Begun::begin_in_place(&owed, || std::panic::panic_any(PanicsOnDrop)).is_none());
        let mut task = Begun::begin_in_place(&owed, || Err(Box::pin(async { 1 }))).expect("it goes on");
        assert_eq!(owed.ends(), vec!["value", "panicked"]);
        assert!(poll(&mut task).is_ready());
        owed.leash.pull();
        assert!(Begun::begin_in_place(&owed, || panic!("it does not begin")).is_none());
        assert_eq!(owed.ends(), vec!["value", "panicked", "value", "dropped"]);
    }

    #[test]
    fn a_blocking_job_settles_when_it_runs_panics_or_never_runs() {
        let owed = Arc::new(Owed::default());
        BlockingTask::new(Arc::clone(&owed), Box::new(|| 1)).run();
        BlockingTask::new(Arc::clone(&owed), Box::new(|| std::panic::panic_any(1))).run();
        drop(BlockingTask::new(Arc::clone(&owed), Box::new(|| 1)));
        owed.leash.pull();
        BlockingTask::new(Arc::clone(&owed), Box::new(|| 1)).run();
        assert_eq!(owed.ends(), vec!["value", "panicked", "dropped", "dropped"]);
    }
}
