//! The wrapper around futures of users that run as tasks: it catches panics, ends when it is aborted, and settles with its owner
//! however it ends.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use pin_project_lite::pin_project;

use crate::panics::{drop_quietly, forgive};
use crate::wake::AbortHandle;

/// The owner of a task: an invocation that its handler answers, say, or a question that its future answers.
pub trait TaskOwner: Send + Sync + 'static {
    /// The output of the future.
    type Output: Send + 'static;

    /// Ends the task from outside.
    fn abort_handle(&self) -> &AbortHandle;

    /// Begins to run code of the user; what is given back is dropped when it returns. For spans of a tracing library.
    fn enter(&self) -> impl Sized + '_;

    /// Notes that code of the user panicked, and with what.
    fn panicked(&self, panic: &(dyn Any + Send));

    /// Takes the end of the future. Called exactly once.
    fn settle(&self, end: End<Self::Output>);
}

/// The end of a future of a user.
#[derive(Debug)]
pub enum End<T> {
    /// With its value.
    Value(T),
    /// With a panic.
    Panicked,
    /// Dropped before it was done: aborted, or by a runtime that shuts down.
    Dropped,
}

pin_project! {
    /// A future of a user on its way.
    ///
    /// Unwinding may leave the future's own state broken: it is never polled again.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped before its end it settles with its owner as [`End::Dropped`], and the future of the user is
    /// dropped.
    pub struct Task<D: TaskOwner, F> {
        owner: Arc<D>,
        // `None` once it is settled.
        #[pin]
        future: Option<F>,
        // The waker that the abort handle has.
        held: Option<Waker>,
    }

    impl<D: TaskOwner, F> PinnedDrop for Task<D, F> {
        fn drop(this: Pin<&mut Self>) {
            this.settle(End::Dropped);
        }
    }
}

impl<D: TaskOwner, F> Task<D, F> {
    /// A task that has not begun.
    pub fn new(owner: Arc<D>, future: F) -> Self {
        Self { owner, future: Some(future), held: None }
    }

    /// Begins where it stands, before it costs a task. Gives the task if it needs to go on.
    pub fn begin_in_place(owner: &Arc<D>, begin: impl FnOnce() -> Result<D::Output, F>) -> Option<Self> {
        if owner.abort_handle().is_aborted() {
            owner.settle(End::Dropped);
            return None;
        }
        match guarded(&**owner, begin) {
            Ok(Ok(value)) => owner.settle(End::Value(value)),
            Ok(Err(future)) => return Some(Self::new(Arc::clone(owner), future)),
            Err(panicked) => owner.settle(panicked),
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
            let _entered = this.owner.enter();
            forgive(|| this.future.set(None));
        }
        if this.held.take().is_some() {
            // It would keep the task in memory as long as a handle of its subject is kept.
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
            End::Dropped
        } else {
            match guarded(&**this.owner, || future.poll(cx)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(value)) => End::Value(value),
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
        if !this.held.as_ref().is_some_and(|held| held.will_wake(cx.waker())) {
            *this.held = Some(cx.waker().clone());
            if !this.owner.abort_handle().hold(cx.waker().clone()) {
                return self.step(cx);
            }
        }
        Poll::Pending
    }
}

/// A blocking job that settles with its owner as a [`Task`] does.
///
/// `Send` and not `Sync`, as its job need not be: one thread makes it, and another runs it.
pub struct BlockingTask<D: TaskOwner> {
    owner: Arc<D>,
    job: Option<Box<dyn FnOnce() -> D::Output + Send>>,
}

impl<D: TaskOwner> BlockingTask<D> {
    /// A job that has not begun.
    pub fn new(owner: Arc<D>, job: Box<dyn FnOnce() -> D::Output + Send>) -> Self {
        Self { owner, job: Some(job) }
    }

    /// Runs the job, unless it was aborted while it waited for a thread.
    pub fn run(mut self) {
        if self.owner.abort_handle().is_aborted() {
            return;
        }
        let Some(job) = self.job.take() else { return };
        let end = guarded(&*self.owner, job).map_or_else(|panicked| panicked, End::Value);
        self.owner.settle(end);
    }
}

impl<D: TaskOwner> Drop for BlockingTask<D> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            drop_quietly(job);
            self.owner.settle(End::Dropped);
        }
    }
}

/// Runs code of the user on behalf of `owner`. A panic is its end.
fn guarded<D: TaskOwner, T>(owner: &D, run: impl FnOnce() -> T) -> Result<T, End<D::Output>> {
    let _entered = owner.enter();
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        owner.panicked(&*panic);
        drop_quietly(panic);
        End::Panicked
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Owed {
        abort: AbortHandle,
        ends: Mutex<Vec<&'static str>>,
    }

    impl TaskOwner for Owed {
        type Output = u8;
        fn abort_handle(&self) -> &AbortHandle {
            &self.abort
        }
        fn enter(&self) -> impl Sized + '_ {}
        fn panicked(&self, _: &(dyn Any + Send)) {}
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
    fn an_aborted_task_ends_at_its_next_poll() {
        let owed = Arc::new(Owed::default());
        let mut task = Task::new(Arc::clone(&owed), Box::pin(core::future::pending()));
        assert!(poll(&mut task).is_pending());
        assert!(owed.abort.abort().is_some(), "the task's waker");
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
        let _ = owed.abort.abort();
        assert!(Begun::begin_in_place(&owed, || panic!("it does not begin")).is_none());
        assert_eq!(owed.ends(), vec!["value", "panicked", "value", "dropped"]);
    }

    #[test]
    fn a_blocking_job_settles_when_it_runs_panics_or_never_runs() {
        let owed = Arc::new(Owed::default());
        BlockingTask::new(Arc::clone(&owed), Box::new(|| 1)).run();
        BlockingTask::new(Arc::clone(&owed), Box::new(|| std::panic::panic_any(1))).run();
        drop(BlockingTask::new(Arc::clone(&owed), Box::new(|| 1)));
        let _ = owed.abort.abort();
        BlockingTask::new(Arc::clone(&owed), Box::new(|| 1)).run();
        assert_eq!(owed.ends(), vec!["value", "panicked", "dropped", "dropped"]);
    }
}
