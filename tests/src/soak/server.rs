//! The server process of the soak test: a service over HTTP, with a tool that returns the numbers of sessions, exchanges and tasks of the
//! server, and the size of its heap.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use endpoint::{BoxFuture, Context, Runtime, Service, TimedRuntime, Tool};
use http_service::{ConnectionLimits, HttpServerConfig, HttpService};
use programs::adapter::Adapter;
use protocol_core::drive::Timer;
use protocol_core::{Instant, Progress};
use serde_json::json;

use super::Heap;

pub(super) async fn run<A: Adapter>(adapter: A, heap: &'static Heap) -> ExitCode {
    let runtime = Arc::new(CountingRuntime { inner: adapter.timed_runtime(), tasks: Arc::default() });
    // The tool `count` reads the `HttpService` that it is part of, which is made later.
    let own = Arc::new(OnceLock::<HttpService>::new());
    let (counted, tasks) = (Arc::clone(&own), Arc::clone(&runtime.tasks));
    let count = Tool::new("count", move |_: Context, (): ()| {
        let (tasks, heap) = (tasks.load(Ordering::Relaxed), heap.allocated());
        let counts = counted
            .get()
            .map(|service| json!({"sessions": service.stats().sessions, "exchanges": service.stats().exchanges, "tasks": tasks, "heap": heap}));
        async move { Ok(counts.unwrap_or_default()) }
    });
    let mut service = Service::new("soak", "1")
        .tool(Tool::new("quick", async |_: Context, (): ()| Ok("done")))
        .tool(count)
        .tool(Tool::new("steps", async |context: Context, (): ()| {
            for step in 1..=5 {
                context.progress(Progress::step(step, 5));
                context.sleep(Duration::from_millis(20)).await?;
            }
            Ok("done")
        }))
        .tool(Tool::new("ask", async |context: Context, (): ()| Ok(context.confirm("Go on?").key("go").await)))
        .tool(Tool::new("stuck", async |context: Context, (): ()| {
            context.progress(Progress::step(1, 2));
            context.cancelled().await;
            Ok("cancelled")
        }));
    // With a catalog the service declares that its lists may change, so that clients can subscribe.
    let _catalog = service.catalog();
    let mut config = HttpServerConfig::default();
    // All clients come from one address, which may hold at most half, and each connection of it a part of that.
    config.limits.subscriptions = 50_000;
    config.limits.sessions = 50_000;
    config.limits.exchanges = 100_000;
    config.limits.calls = 50_000;
    let mut limits = ConnectionLimits::default();
    limits.connections = 50_000;
    let service = HttpService::with_config(Arc::new(service), runtime, config);
    let _ = own.set(service.clone());
    match adapter.http_listen("127.0.0.1:0".to_owned(), service, limits).await {
        Ok(listener) => {
            println!("{}", listener.local_addr());
            listener.closed().await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A runtime that counts its tasks and its blocking jobs, from their start until they have ended or are dropped.
struct CountingRuntime {
    inner: Arc<dyn TimedRuntime>,
    tasks: Arc<AtomicUsize>,
}

impl CountingRuntime {
    fn count(&self) -> Counted {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.tasks))
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Runtime for CountingRuntime {
    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let counted = self.count();
        self.inner.spawn(Box::pin(async move {
            task.await;
            drop(counted);
        }));
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        let counted = self.count();
        self.inner.spawn_blocking(Box::new(move || {
            job();
            drop(counted);
        }));
    }

    fn unix_time(&self) -> Option<Duration> {
        self.inner.unix_time()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.fill_random(bytes)
    }
}

impl TimedRuntime for CountingRuntime {
    fn timer(&self) -> Box<dyn Timer + Send + Sync> {
        self.inner.timer()
    }
}
