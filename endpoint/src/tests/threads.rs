//! An endpoint used by several threads at once: no wake is lost, and the progress of each call arrives in order.

use core::pin::{Pin, pin};
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use serde_json::json;

use super::{json as text, service};
use crate::testing::pipe;
use crate::{BoxFuture, Call, Context, Endpoint, Peer, Runtime, Service, Tool, drive};
use protocol_core::config::{Config, RateWindow};
use protocol_core::dialect::Identity;
use protocol_core::drive::Timer;
use protocol_core::json::Json;
use protocol_core::session::{Outcome, Reported};
use protocol_core::time::Instant;

/// A runtime of a few threads that take tasks from one queue. Its time stands still, so no deadline passes.
#[derive(Clone)]
struct Threads {
    queue: Arc<Mutex<Sender<Arc<Task>>>>,
    polls: Arc<Polls>,
}

/// Counts the polls of tasks and the jobs that have ended. A test waits for the next poll or job before it checks its condition again.
#[derive(Default)]
struct Polls {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Polls {
    fn add(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    /// Waits until `condition` returns `true`, and calls it again after each poll or job.
    fn until(&self, condition: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        loop {
            let seen = *self.count.lock().unwrap();
            if condition() {
                return;
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            let waited = self.changed.wait_timeout_while(self.count.lock().unwrap(), left, |count| *count == seen).unwrap();
            assert!(!waited.1.timed_out(), "the condition was not met in time");
        }
    }
}

/// The time after which a wake counts as lost. Longer than a wake takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
    queue: Arc<Mutex<Sender<Arc<Self>>>>,
}

impl Threads {
    fn start(workers: usize) -> Self {
        let (queue, tasks) = channel::<Arc<Task>>();
        let tasks = Arc::new(Mutex::new(tasks));
        let polls = Arc::new(Polls::default());
        for _ in 0..workers {
            let tasks: Arc<Mutex<Receiver<Arc<Task>>>> = Arc::clone(&tasks);
            let polls = Arc::clone(&polls);
            thread::spawn(move || {
                loop {
                    let task = tasks.lock().unwrap().recv();
                    let Ok(task) = task else { return };
                    task.run();
                    polls.add();
                }
            });
        }
        Self { queue: Arc::new(Mutex::new(queue)), polls }
    }
}

impl Runtime for Threads {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        let queue = Arc::clone(&self.queue);
        let task = Arc::new(Task { future: Mutex::new(Some(future)), queued: AtomicBool::new(false), queue });
        task.wake();
    }
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        let polls = Arc::clone(&self.polls);
        thread::spawn(move || {
            job();
            polls.add();
        });
    }
}

impl Timer for Threads {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
    fn poll_until(&mut self, _: &mut TaskContext<'_>, _: Instant) -> Poll<()> {
        Poll::Pending
    }
}

impl Task {
    fn run(self: Arc<Self>) {
        let mut place = self.future.lock().unwrap();
        self.queued.store(false, Ordering::Release);
        let Some(future) = &mut *place else { return };
        let waker = Waker::from(Arc::clone(&self));
        if future.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_ready() {
            *place = None;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let queue = Arc::clone(&self.queue);
            let _ = queue.lock().unwrap().send(self);
        }
    }
}

struct Unpark(Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` is ready. Panics after [`PATIENCE`], since then a wake was lost.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let start = std::time::Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return value;
        }
        thread::park_timeout(PATIENCE);
        assert!(start.elapsed() < PATIENCE, "a wake was lost");
    }
}

/// Connects a client to a server of `service` on two threads. Returns the handle of the client, then that of the server.
fn pair(service: Service) -> (Peer, Peer, Arc<Polls>) {
    pair_on(&Threads::start(2), service)
}

fn pair_on(threads: &Threads, service: Service) -> (Peer, Peer, Arc<Polls>) {
    let server = Endpoint::server(Arc::new(service), Arc::new(threads.clone()));
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("t", "1")), Arc::new(threads.clone()));
    let peers = (client.peer(), server.peer(), Arc::clone(&threads.polls));
    let (here, there) = pipe();
    for (endpoint, io) in [(client, here), (server, there)] {
        let driven = drive(endpoint, io, threads.clone());
        threads.spawn(Box::pin(async move {
            let _ = driven.await;
        }));
    }
    peers
}

/// Is pending once, so that other tasks run first.
async fn yield_once() {
    let mut first = true;
    core::future::poll_fn(|cx| {
        if core::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

fn reporter() -> Tool {
    Tool::new("report", async |context: Context, given: serde_json::Map<String, serde_json::Value>| {
        let steps = given["steps"].as_u64().unwrap_or_default();
        for step in 1..=steps {
            if step % 7 == 0 {
                yield_once().await;
            }
            context.step(step, steps);
        }
        Ok(steps)
    })
    .rate_window(RateWindow::UNLIMITED)
}

#[test]
fn calls_of_several_threads_all_end_with_all_their_progress_in_order() {
    let (client, server, _) = pair(service().tool(reporter()).tool(Tool::new("quick", async |_: Context, (): ()| Ok(())).inline()));
    wait(client.ready()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for steps in 0..100_u64 {
                    let mut call = client.call_tool("report", text(json!({"steps": steps}))).unwrap();
                    let quick = client.call_tool("quick", Json::empty_object()).unwrap();
                    let mut seen = Vec::new();
                    while let Some(update) = wait(call.next_progress()) {
                        seen.push(update.value.unwrap());
                    }
                    assert_eq!(seen, (1..=steps).map(|step| step as f64).collect::<Vec<_>>());
                    assert!(matches!(wait(call).outcome, Outcome::Result(_)));
                    assert!(matches!(wait(quick).outcome, Outcome::Result(_)));
                }
            });
        }
    });
    assert_eq!((client.stats().outbound_calls, server.stats().inbound_calls, server.running()), (0, 0, 0));
}

/// The thread of the test writes some of its calls itself, by early sends, while answers and other calls wake the driver's task.
#[test]
fn each_call_of_one_thread_is_answered_while_another_thread_keeps_the_driver_busy() {
    let (client, server, polls) =
        pair(service().tool(reporter()).tool(Tool::new("quick", async |_: Context, (): ()| Ok(())).inline()));
    wait(client.ready()).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(client.call_tool("report", text(json!({"steps": 1}))));
                // Waits for progress of the second call before the next two are made, so that there are never too many calls.
                if let Ok(mut call) = client.call_tool("report", text(json!({"steps": 1}))) {
                    wait(call.next_progress());
                }
            }
        });
        for number in 0..3000 {
            let name = if number % 2 == 0 { "quick" } else { "report" };
            let call = client.call_tool(name, text(json!({"steps": number % 3}))).unwrap();
            assert!(matches!(wait(call).outcome, Outcome::Result(_)));
        }
        over.store(true, Ordering::Relaxed);
    });
    polls.until(|| (client.stats().outbound_calls, server.stats().inbound_calls, server.running()) == (0, 0, 0));
}

#[test]
fn calls_dropped_together_cancel_every_handler_and_leave_no_state() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let inside = Arc::clone(&cancelled);
    let waits = Tool::new("waits", move |context: Context, (): ()| {
        let cancelled = Arc::clone(&inside);
        async move {
            context.cancelled().await;
            cancelled.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    });
    let quick = Tool::new("quick", async |_: Context, (): ()| Ok(())).inline();
    let (client, server, polls) = pair(service().tool(waits).tool(quick));
    wait(client.ready()).unwrap();
    for _ in 0..5 {
        cancelled.store(0, Ordering::Relaxed);
        let calls: Vec<Call> = (0..1000).map(|_| client.call_tool("waits", Json::empty_object()).unwrap()).collect();
        polls.until(|| server.running() == 1000);
        drop(calls);
        polls.until(|| server.running() == 0);
        assert_eq!(cancelled.load(Ordering::Relaxed), 1000);
        polls.until(|| (client.stats().outbound_calls, server.stats().inbound_calls) == (0, 0));
    }
    // Each of these calls is cancelled as soon as it is made. When the call after them is answered, the server has read all their
    // frames that were sent.
    for _ in 0..1000 {
        client.call_tool("waits", Json::empty_object()).unwrap().cancel(None);
    }
    let after = client.call_tool("quick", Json::empty_object()).unwrap();
    assert!(matches!(wait(after).outcome, Outcome::Result(_)));
    polls.until(|| (client.stats().outbound_calls, server.stats().inbound_calls, server.running()) == (0, 0, 0));
}

#[test]
fn two_threads_that_report_at_once_share_one_increasing_progress() {
    let both = Tool::blocking("both", |context: Context, (): ()| {
        let mut sent = 0;
        thread::scope(|scope| {
            let report = |context: Context| {
                (1..=500)
                    .filter(|step| context.try_progress(protocol_core::Progress::step(*step, 500)) == Ok(Reported::Sent))
                    .count()
            };
            let (one, other) = (context.clone(), context.clone());
            let threads = [scope.spawn(move || report(one)), scope.spawn(move || report(other))];
            sent = threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>();
        });
        Ok(sent)
    })
    .rate_window(RateWindow::UNLIMITED);
    let (client, _server, _) = pair(service().tool(both));
    let mut call = client.call_tool("both", Json::empty_object()).unwrap();
    let mut last = 0.0;
    let mut count = 0;
    while let Some(update) = wait(call.next_progress()) {
        assert!(update.value.unwrap() > last);
        last = update.value.unwrap();
        count += 1;
    }
    assert_eq!((last, count), (500.0, 500));
    assert!(wait(Pin::new(&mut call)).result().is_ok());
}

#[test]
fn a_blocking_handler_sees_its_cancellation_and_delays_no_other_call() {
    let seen = Arc::new(AtomicUsize::new(0));
    let inside = Arc::clone(&seen);
    let threads = Threads::start(2);
    let polls = Arc::clone(&threads.polls);
    let looks = Tool::blocking("looks", move |context: Context, (): ()| {
        context.step(1, 2);
        polls.until(|| context.is_cancelled());
        inside.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let (client, server, polls) = pair_on(&threads, service().tool(looks).tool(reporter()));
    let mut calls: Vec<Call> = (0..8).map(|_| client.call_tool("looks", Json::empty_object()).unwrap()).collect();
    for call in &mut calls {
        assert!(wait(call.next_progress()).is_some(), "they all run at once");
    }
    let other = client.call_tool("report", text(json!({"steps": 1}))).unwrap();
    assert!(wait(other).result().is_ok());
    for call in calls {
        call.cancel(Some("enough"));
        assert_eq!(wait(call).outcome, Outcome::Cancelled);
    }
    polls.until(|| server.running() == 0);
    assert_eq!(seen.load(Ordering::Relaxed), 8);
}
