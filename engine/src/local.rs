//! Tasks that stay on one thread, since their futures are not `Send`.

use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use protocol_core::Instant;

use crate::panics::drop_quietly;
use crate::runtime::{BoxFuture, LocalBoxFuture, MakeLocal, Runtime};
use crate::task::{Task, TaskEnd, TaskOwner};
use crate::wake::park;

/// What makes the future of a [`Task`] of `owner`, for [`Runtime::spawn_local`]. If it is dropped without having been called, `owner` gets
/// `refusal` as if the future had returned it.
pub fn local_task<D, F>(owner: Arc<D>, make: impl FnOnce() -> F + Send + 'static, refusal: D::Output) -> MakeLocal
where
    D: TaskOwner,
    F: Future<Output = D::Output> + 'static,
{
    let mut unstarted = Unstarted { owner, parts: Some((make, refusal)) };
    Box::new(move || {
        let (owner, make) = (Arc::clone(&unstarted.owner), unstarted.parts.take().map(|(make, _)| make));
        // In the task, which catches a panic of `make`.
        Box::pin(Task::new(owner, async move {
            match make {
                Some(make) => make().await,
                None => core::future::pending().await,
            }
        }))
    })
}

struct Unstarted<D: TaskOwner, M> {
    owner: Arc<D>,
    /// `None` once the task was made.
    parts: Option<(M, D::Output)>,
}

impl<D: TaskOwner, M> Drop for Unstarted<D, M> {
    fn drop(&mut self) {
        if let Some((make, refusal)) = self.parts.take() {
            drop_quietly(make);
            self.owner.settle(TaskEnd::Value(refusal));
        }
    }
}

/// A queue of tasks that are to run on the thread of `LocalTasks`. Returns its two ends.
#[must_use]
pub fn local_tasks() -> (LocalSpawner, LocalTasks) {
    let queue = Arc::new(Mutex::new(Queue::default()));
    (LocalSpawner(Arc::clone(&queue)), LocalTasks { queue })
}

/// The end of a queue of [`local_tasks`] for all threads. Clones share the queue.
#[derive(Clone)]
pub struct LocalSpawner(Arc<Mutex<Queue>>);

/// The end of a queue of [`local_tasks`] for the thread that runs the tasks. While it is not run, tasks wait; once it is dropped, they are
/// dropped.
pub struct LocalTasks {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<MakeLocal>,
    waker: Option<Waker>,
    /// The other end is gone.
    is_closed: bool,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalSpawner {
    /// Adds a task, which `make` makes on the thread of the [`LocalTasks`]. If these are gone, drops `make`.
    pub fn spawn(&self, make: MakeLocal) {
        let mut queue = lock(&self.0);
        if queue.is_closed {
            drop(queue);
            return drop(make);
        }
        queue.waiting.push_back(make);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl LocalTasks {
    /// Makes each task on this thread, and passes it to `spawn`, which starts it there, such as `spawn_local` of the runtime. Never returns.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future closes the queue, and drops the tasks in it. Tasks that were started go on.
    pub async fn run(self, mut spawn: impl FnMut(LocalBoxFuture<'static, ()>)) {
        loop {
            let make = poll_fn(|cx| {
                let mut waker = Some(cx.waker().clone());
                let mut queue = lock(&self.queue);
                if let Some(make) = queue.waiting.pop_front() {
                    return Poll::Ready(make);
                }
                park(&mut queue.waker, &mut waker);
                Poll::Pending
            });
            let make = make.await;
            spawn(make());
        }
    }
}

impl Drop for LocalTasks {
    fn drop(&mut self) {
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        let waiting = core::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }
}

/// A runtime that also runs tasks whose futures are not `Send`: those of a [`LocalTasks`], which the program runs on the thread it chooses.
/// All else is done by another runtime.
pub struct LocalRuntime {
    inner: Arc<dyn Runtime>,
    local: LocalSpawner,
}

impl LocalRuntime {
    /// Adds a queue for such tasks to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Runtime>) -> (Self, LocalTasks) {
        let (local, tasks) = local_tasks();
        (Self { inner, local }, tasks)
    }
}

impl Runtime for LocalRuntime {
    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.inner.spawn(task);
    }

    fn spawn_local(&self, make: MakeLocal) {
        self.local.spawn(make);
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.inner.spawn_blocking(job);
    }

    fn unix_time(&self) -> Option<Duration> {
        self.inner.unix_time()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.fill_random(bytes)
    }
}
