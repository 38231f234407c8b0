//! The wrapper around futures of users that run as tasks. It catches panics and can be aborted, and its owner gets the end of the future
//! exactly once.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use pin_project_lite::pin_project;

use crate::panics::{drop_quietly, drop_with};
use crate::wake::AbortHandle;

/// The owner of a task, which receives the end of the task's future. For example, an inbound call owns the task of its handler, and
/// receives the reply.
pub trait TaskOwner: Send + Sync + 'static {
    /// The output of the future.
    type Output: Send + 'static;

    /// The handle that aborts the task.
    fn abort_handle(&self) -> &AbortHandle;

    /// Called before code of the user runs: before each poll, the `Drop` of a future, and a blocking job. Not called before the `Drop` of a
    /// blocking job that never ran. The returned guard is dropped when the code returns, so that it can be an entered span of a tracing
    /// library.
    fn enter(&self) -> impl Sized + '_;

    /// Called when code of the user has panicked, with the payload of the panic. Not called for a panic of a `Drop`, which is discarded.
    fn panicked(&self, panic: &(dyn Any + Send));

    /// Called after each poll of a [`Task`] that leaves the future pending, and once more whenever a new waker of the task has been stored.
    /// If this returns a value, the future is dropped, and the task ends with the value as if the future had returned it. Default: `None`.
    fn early_end(&self) -> Option<Self::Output> {
        None
    }

    /// Takes the end of the future. Called exactly once.
    fn settle(&self, end: TaskEnd<Self::Output>);
}

/// The end of a future of a user.
#[derive(Debug)]
pub enum TaskEnd<T> {
    /// The future returned this value.
    Value(T),
    /// The future panicked.
    Panicked,
    /// The future was dropped before it was ready: its task was aborted, or the runtime shuts down.
    Dropped,
}

pin_project! {
    /// A future of a user that runs as a task. When the task ends, it calls [`TaskOwner::settle`]. A future that has panicked is not polled
    /// again.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the task is dropped before its end, the future of the user is dropped, and the owner gets [`TaskEnd::Dropped`].
    pub struct Task<D: TaskOwner, F> {
        owner: Arc<D>,
        // `None` once the task has called `settle`.
        #[pin]
        future: Option<F>,
        // The waker that is registered with the abort handle.
        registered: Option<Waker>,
    }

    impl<D: TaskOwner, F> PinnedDrop for Task<D, F> {
        fn drop(this: Pin<&mut Self>) {
            this.settle(TaskEnd::Dropped);
        }
    }
}

impl<D: TaskOwner, F> Task<D, F> {
    /// A task that has not started.
    pub fn new(owner: Arc<D>, future: F) -> Self {
        Self { owner, future: Some(future), registered: None }
    }

    /// Calls `begin`, which polls a future once. If `begin` returns the pending future, returns a task that continues the future. If the
    /// future was ready, or `begin` panicked, passes the end to `owner`, and returns `None`. If the owner was aborted before, does not call
    /// `begin`, passes [`TaskEnd::Dropped`] to `owner`, and returns `None`.
    pub fn begin_in_place(owner: &Arc<D>, begin: impl FnOnce() -> Result<D::Output, F>) -> Option<Self> {
        if owner.abort_handle().is_aborted() {
            owner.settle(TaskEnd::Dropped);
            return None;
        }
        match run_caught(&**owner, begin) {
            Ok(Ok(value)) => owner.settle(TaskEnd::Value(value)),
            Ok(Err(future)) => return Some(Self::new(Arc::clone(owner), future)),
            Err(panicked) => owner.settle(panicked),
        }
        None
    }

    /// Drops the future, and then passes `end` to the owner, so that the owner gets `end` after the cleanup of the future. Has no effect
    /// the second time.
    fn settle(self: Pin<&mut Self>, end: TaskEnd<D::Output>) {
        let mut this = self.project();
        if this.future.is_none() {
            return;
        }
        {
            let _entered = this.owner.enter();
            drop_with(|| this.future.set(None));
        }
        if this.registered.take().is_some() {
            // Otherwise the waker would keep the task in memory as long as its owner exists.
            drop(this.owner.abort_handle().release());
        }
        this.owner.settle(end);
    }
}

impl<D: TaskOwner, F: Future<Output = D::Output>> Task<D, F> {
    fn step(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = self.as_mut().project();
        let Some(future) = this.future.as_pin_mut() else { return Poll::Ready(()) };
        let end = if this.owner.abort_handle().is_aborted() {
            TaskEnd::Dropped
        } else {
            match run_caught(&**this.owner, || future.poll(cx)) {
                Ok(Poll::Pending) => match this.owner.early_end() {
                    None => return Poll::Pending,
                    Some(value) => TaskEnd::Value(value),
                },
                Ok(Poll::Ready(value)) => TaskEnd::Value(value),
                Err(panicked) => panicked,
            }
        };
        self.settle(end);
        Poll::Ready(())
    }
}

impl<D: TaskOwner, F: Future<Output = D::Output>> Future for Task<D, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.as_mut().step(cx).is_ready() {
            return Poll::Ready(());
        }
        let this = self.as_mut().project();
        if !this.registered.as_ref().is_some_and(|registered| registered.will_wake(cx.waker())) {
            *this.registered = Some(cx.waker().clone());
            if !this.owner.abort_handle().hold(cx.waker().clone()) {
                // The task was aborted after the check in the step above.
                return self.step(cx);
            }
            // The event that would have woken the task may have happened before its waker was stored.
            if let Some(value) = this.owner.early_end() {
                self.settle(TaskEnd::Value(value));
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// A blocking job that passes its end to its owner as a [`Task`] does.
///
/// A blocking task is `Send`, but not `Sync`, since its job need not be `Sync`: one thread makes the task, and another runs it.
pub struct BlockingTask<D: TaskOwner> {
    owner: Arc<D>,
    job: Option<Box<dyn FnOnce() -> D::Output + Send>>,
}

impl<D: TaskOwner> BlockingTask<D> {
    /// A job that has not started.
    pub fn new(owner: Arc<D>, job: Box<dyn FnOnce() -> D::Output + Send>) -> Self {
        Self { owner, job: Some(job) }
    }

    /// Runs the job. If the owner was aborted before, the job is dropped instead, and the end is [`TaskEnd::Dropped`].
    pub fn run(mut self) {
        if self.owner.abort_handle().is_aborted() {
            return;
        }
        let Some(job) = self.job.take() else { return };
        let end = run_caught(&*self.owner, job).map_or_else(|panicked| panicked, TaskEnd::Value);
        self.owner.settle(end);
    }
}

impl<D: TaskOwner> Drop for BlockingTask<D> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            drop_quietly(job);
            self.owner.settle(TaskEnd::Dropped);
        }
    }
}

/// Runs code of the user for `owner`. Converts a panic into [`TaskEnd::Panicked`].
fn run_caught<D: TaskOwner, T>(owner: &D, run: impl FnOnce() -> T) -> Result<T, TaskEnd<D::Output>> {
    let _entered = owner.enter();
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        owner.panicked(&*panic);
        drop_quietly(panic);
        TaskEnd::Panicked
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Owner {
        abort: AbortHandle,
        ends: Mutex<Vec<&'static str>>,
    }

    impl TaskOwner for Owner {
        type Output = u8;
        fn abort_handle(&self) -> &AbortHandle {
            &self.abort
        }
        fn enter(&self) -> impl Sized + '_ {}
        fn panicked(&self, _: &(dyn Any + Send)) {}
        fn settle(&self, end: TaskEnd<u8>) {
            self.ends.lock().unwrap().push(match end {
                TaskEnd::Value(_) => "value",
                TaskEnd::Panicked => "panicked",
                TaskEnd::Dropped => "dropped",
            });
        }
    }

    impl Owner {
        fn ends(&self) -> Vec<&'static str> {
            self.ends.lock().unwrap().clone()
        }
    }

    fn poll<D: TaskOwner, F: Future<Output = D::Output> + Unpin>(task: &mut Task<D, F>) -> Poll<()> {
        Pin::new(task).poll(&mut TaskContext::from_waker(Waker::noop()))
    }

    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn a_future_that_returns_a_value_settles_its_task_once() {
        let owner = Arc::new(Owner::default());
        let mut task = Task::new(Arc::clone(&owner), Box::pin(async { 1 }));
        assert!(poll(&mut task).is_ready());
        assert!(poll(&mut task).is_ready());
        drop(task);
        assert_eq!(owner.ends(), vec!["value"]);
    }

    #[test]
    fn a_future_that_panics_settles_its_task_once_even_if_the_payload_panics_when_dropped() {
        let owner = Arc::new(Owner::default());
        let mut task = Task::new(Arc::clone(&owner), Box::pin(async { std::panic::panic_any(PanicsOnDrop) }));
        assert!(poll(&mut task).is_ready());
        assert!(poll(&mut task).is_ready());
        drop(task);
        assert_eq!(owner.ends(), vec!["panicked"]);
    }

    #[test]
    fn a_value_is_passed_on_although_the_future_panics_on_its_drop() {
        let owner = Arc::new(Owner::default());
        let mut inside = Some(PanicsOnDrop);
        let future = core::future::poll_fn(move |_| {
            let _ = &mut inside;
            Poll::Ready(1)
        });
        let mut task = Task::new(Arc::clone(&owner), future);
        assert!(poll(&mut task).is_ready());
        assert_eq!(owner.ends(), vec!["value"]);
    }

    #[test]
    fn a_task_that_is_dropped_before_its_end_settles_as_dropped() {
        let owner = Arc::new(Owner::default());
        let mut task = Task::new(Arc::clone(&owner), Box::pin(core::future::pending()));
        assert!(poll(&mut task).is_pending());
        drop(task);
        assert_eq!(owner.ends(), vec!["dropped"]);
    }

    #[test]
    fn a_task_whose_owner_ends_it_early_drops_its_future_and_settles_with_the_value() {
        /// An owner whose `early_end` returns `None` as often as the last field says, and then returns a value. The second field counts
        /// its calls.
        struct Early(Owner, std::sync::atomic::AtomicUsize, usize);
        impl TaskOwner for Early {
            type Output = u8;
            fn abort_handle(&self) -> &AbortHandle {
                self.0.abort_handle()
            }
            fn enter(&self) -> impl Sized + '_ {}
            fn panicked(&self, _: &(dyn Any + Send)) {}
            fn early_end(&self) -> Option<u8> {
                (self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == self.2).then_some(1)
            }
            fn settle(&self, end: TaskEnd<u8>) {
                self.0.settle(end);
            }
        }
        // In the second case the reason for the early end comes after the first poll of the future and before the waker is stored, so that
        // no task is woken.
        for (times, polls) in [(0, 1), (1, 1), (2, 2)] {
            let early = Arc::new(Early(Owner::default(), std::sync::atomic::AtomicUsize::new(0), times));
            let mut task = Task::new(Arc::clone(&early), Box::pin(core::future::pending()));
            for _ in 1..polls {
                assert!(poll(&mut task).is_pending());
            }
            assert!(poll(&mut task).is_ready(), "`early_end` first returned `None` {times} times");
            drop(task);
            assert_eq!(early.0.ends(), vec!["value"]);
        }
    }

    #[test]
    fn an_aborted_task_ends_at_its_next_poll() {
        let owner = Arc::new(Owner::default());
        let mut task = Task::new(Arc::clone(&owner), Box::pin(core::future::pending()));
        assert!(poll(&mut task).is_pending());
        assert!(owner.abort.abort().is_some(), "the task's waker");
        assert_eq!(owner.ends(), Vec::<&str>::new());
        assert!(poll(&mut task).is_ready());
        assert_eq!(owner.ends(), vec!["dropped"]);
    }

    type Begun = Task<Owner, Pin<Box<dyn Future<Output = u8>>>>;

    #[test]
    fn a_future_that_begins_in_place_settles_there_or_continues_as_a_task() {
        let owner = Arc::new(Owner::default());
        assert!(Begun::begin_in_place(&owner, || Ok(1)).is_none());
        assert!(Begun::begin_in_place(&owner, || std::panic::panic_any(PanicsOnDrop)).is_none());
        let mut task = Begun::begin_in_place(&owner, || Err(Box::pin(async { 1 }))).expect("it is pending");
        assert_eq!(owner.ends(), vec!["value", "panicked"]);
        assert!(poll(&mut task).is_ready());
        let _ = owner.abort.abort();
        assert!(Begun::begin_in_place(&owner, || panic!("it does not begin")).is_none());
        assert_eq!(owner.ends(), vec!["value", "panicked", "value", "dropped"]);
    }

    #[test]
    fn a_blocking_job_settles_when_it_runs_panics_or_never_runs() {
        let owner = Arc::new(Owner::default());
        BlockingTask::new(Arc::clone(&owner), Box::new(|| 1)).run();
        BlockingTask::new(Arc::clone(&owner), Box::new(|| std::panic::panic_any(1))).run();
        drop(BlockingTask::new(Arc::clone(&owner), Box::new(|| 1)));
        let _ = owner.abort.abort();
        BlockingTask::new(Arc::clone(&owner), Box::new(|| 1)).run();
        assert_eq!(owner.ends(), vec!["value", "panicked", "dropped", "dropped"]);
    }
}
