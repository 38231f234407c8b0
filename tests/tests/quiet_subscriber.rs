//! A subscriber of `tracing` whose level is lowered while a call runs. The test has a process of its own, since the level is global.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use endpoint::testing::{Executor, connect};
use endpoint::{Client, Context, Endpoint, Peer, Service, Tool};
use protocol_core::{Config, Identity, Json};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// The state of the subscriber.
#[derive(Default)]
struct Inspector {
    /// `true` once no level is enabled.
    is_quiet: AtomicBool,
    /// The number of spans that were made.
    spans: AtomicU64,
    peer: Mutex<Option<Peer>>,
}

/// The subscriber of the process. Reads the statistics of a peer whenever a span is closed, which would block if the lock of the peer were
/// held.
struct Inspecting(Arc<Inspector>);

impl Subscriber for Inspecting {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        !self.0.is_quiet.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if self.0.is_quiet.load(Ordering::Relaxed) { LevelFilter::OFF } else { LevelFilter::TRACE })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1 + self.0.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        let peer = self.0.peer.lock().unwrap().clone();
        if let Some(peer) = peer {
            let _ = peer.stats();
        }
        true
    }
}

/// A client without capabilities.
struct Plain;

impl Client for Plain {}

/// The bug: if the level was lowered while a call ran, so that its end was not logged, the span of the call did not end with the call. It
/// was dropped later, together with the state of the call and under the lock.
#[test]
fn regression_the_span_of_a_call_that_ends_without_a_log_event_is_not_dropped_under_the_lock() {
    let inspector = Arc::new(Inspector::default());
    tracing::subscriber::set_global_default(Inspecting(Arc::clone(&inspector))).unwrap();
    let (sender, done) = channel();
    // A subscriber that blocks on the lock would wait for ever, so it runs in a thread that the test does not join.
    thread::spawn(move || {
        let executor = Executor::new();
        let service = Service::new("service", "1").tool(Tool::new("tool", async |_: Context, (): ()| Ok(())));
        let server = Endpoint::server(Arc::new(service), executor.runtime());
        let client = Endpoint::client(Arc::new(Plain), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
        let caller = client.peer();
        connect(&executor, server, client);
        *inspector.peer.lock().unwrap() = Some(caller.clone());
        let call = caller.call_tool("tool", Json::empty_object()).unwrap();
        let spans = inspector.spans.load(Ordering::Relaxed);
        inspector.is_quiet.store(true, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
        executor.block_on(call).expect("it ends").result().unwrap();
        *inspector.peer.lock().unwrap() = None;
        sender.send(spans).unwrap();
    });
    let spans = done.recv_timeout(Duration::from_secs(30)).expect("the subscriber blocks on no lock");
    assert_eq!(spans, 1, "the call has a span");
}
