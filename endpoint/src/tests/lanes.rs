//! An endpoint with a transport of several lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::{hello, ms, service};
use crate::testing::Executor;
use crate::{Context, Endpoint, Extensions, Tool};
use protocol_core::drive::Machine as _;
use protocol_core::session::{Gone, Lane, Received, ReplyKind, RouteKind};

/// The caller that the transport has authenticated.
struct Principal(&'static str);

/// Subtracts 1 from a number when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A server without a driver: the test itself passes the frames to it, and polls the frames to send.
struct Bench {
    endpoint: Endpoint,
    executor: Executor,
}

impl Bench {
    fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let executor = Executor::new();
        let service = tools.into_iter().fold(service(), crate::Service::tool);
        let endpoint = Endpoint::server(Arc::new(service), executor.runtime());
        let mut bench = Self { endpoint, executor };
        for frame in hello("2025-11-25") {
            bench.receive(9, &frame, Extensions::new());
        }
        bench.sent();
        bench
    }

    /// Passes `frame` to the endpoint as a frame that came by `lane`.
    fn receive(&mut self, lane: u32, frame: &str, extensions: Extensions) -> Received {
        let now = self.executor.now();
        let frame = Bytes::copy_from_slice(frame.as_bytes());
        self.endpoint.handle_frame_by(frame, Lane::new(lane), extensions, now).unwrap()
    }

    fn call(&mut self, lane: u32, tool: &str, extensions: Extensions) -> Received {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
        self.receive(lane, &frame, extensions)
    }

    /// The replies that are to be sent, with their lanes.
    fn sent(&mut self) -> Vec<(u32, String)> {
        self.executor.run_until_stalled();
        let sent = std::iter::from_fn(|| self.endpoint.poll_transmit());
        sent.map(|sent| {
            assert_eq!(sent.route.kind, RouteKind::Reply(ReplyKind::Result));
            (sent.route.lane.number(), String::from_utf8(sent.frame.to_vec()).unwrap())
        })
        .collect()
    }
}

fn whoami() -> Tool {
    Tool::new("whoami", async |context: Context, (): ()| {
        context.sleep(ms(1)).await?;
        Ok(context.extensions().get::<Principal>().map_or("nobody", |principal| principal.0))
    })
}

#[test]
fn each_handler_gets_the_extensions_of_its_own_frame() {
    let mut bench = Bench::new([whoami()]);
    for (lane, name) in [(1, "ada"), (2, "grace")] {
        let extensions = Extensions::new().with(Principal(name)).with(7_u8);
        assert_eq!(bench.call(lane, "whoami", extensions).replies, 1);
    }
    assert_eq!(bench.call(3, "whoami", Extensions::new()).replies, 1);
    assert_eq!(bench.sent(), []);
    bench.executor.run_for(ms(1));
    bench.endpoint.handle_timeout(bench.executor.now());
    let mut sent = bench.sent();
    sent.sort();
    for ((lane, text), (expected, name)) in sent.iter().zip([(1, "ada"), (2, "grace"), (3, "nobody")]) {
        assert!(*lane == expected && text.contains(name), "{sent:?}");
    }
    assert_eq!(sent.len(), 3);
}

#[test]
fn the_extensions_of_a_frame_are_dropped_when_its_handler_ends() {
    let (quick_alive, slow_alive) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(1)));
    let quick = Tool::new("quick", async |_: Context, (): ()| Ok("done")).inline();
    let mut bench = Bench::new([quick, whoami()]);
    bench.call(1, "quick", Extensions::new().with(Counted(Arc::clone(&quick_alive))));
    assert_eq!((bench.sent().len(), quick_alive.load(Ordering::Relaxed)), (1, 0), "answered in place");
    bench.call(1, "whoami", Extensions::new().with(Counted(Arc::clone(&slow_alive))).with(Principal("ada")));
    bench.sent();
    assert_eq!(slow_alive.load(Ordering::Relaxed), 1);
    bench.executor.run_for(ms(1));
    bench.endpoint.handle_timeout(bench.executor.now());
    let sent = bench.sent();
    assert_eq!((sent.len(), slow_alive.load(Ordering::Relaxed)), (1, 0));
    assert!(sent[0].1.contains("ada"), "{sent:?}");
    // The handler of a later call of the same lane, without extensions, gets none.
    bench.call(1, "whoami", Extensions::new());
    bench.sent();
    bench.executor.run_for(ms(1));
    bench.endpoint.handle_timeout(bench.executor.now());
    let sent = bench.sent();
    assert!(sent.len() == 1 && sent[0].1.contains("nobody"), "{sent:?}");
}

#[test]
fn a_stopped_lane_keeps_its_reply_until_the_lane_is_writable() {
    let quick = Tool::new("quick", async |_: Context, (): ()| Ok("done")).inline();
    let mut bench = Bench::new([quick, whoami()]);
    bench.call(1, "whoami", Extensions::new());
    let now = bench.executor.now();
    bench.endpoint.set_writable(Lane::new(1), false, now).unwrap();
    bench.executor.run_for(ms(1));
    bench.endpoint.handle_timeout(bench.executor.now());
    bench.call(2, "quick", Extensions::new());
    assert_eq!(bench.sent().iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [2]);
    assert_eq!(bench.endpoint.replies_owed(Lane::new(1)), 0);
    bench.endpoint.set_writable(Lane::new(1), true, now).unwrap();
    assert_eq!(bench.sent().iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [1]);
    // The lane is closed after its last reply, so it cannot be lost.
    assert!(bench.endpoint.handle_gone(Gone::Lane(Lane::new(1)), now).is_err());
}

#[test]
fn a_lane_whose_call_was_cancelled_is_owed_no_reply() {
    let mut bench = Bench::new([whoami()]);
    bench.call(1, "whoami", Extensions::new());
    assert_eq!((bench.endpoint.take_cancelled(), bench.endpoint.replies_owed(Lane::new(1))), (false, 1));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    bench.receive(0, cancel, Extensions::new());
    assert_eq!((bench.endpoint.take_cancelled(), bench.endpoint.replies_owed(Lane::new(1))), (true, 0));
    assert!(!bench.endpoint.take_cancelled(), "a cancel is reported once");
    assert_eq!(bench.sent(), []);
}

#[test]
fn extensions_hold_one_value_of_each_type_shared_or_not() {
    let shared = Arc::new(Principal("ada"));
    let extensions = Extensions::new().with(7_u8).with_shared(Arc::clone(&shared)).with(Principal("grace"));
    assert_eq!((extensions.get::<Principal>().map(|principal| principal.0), extensions.get::<u8>()), (Some("grace"), Some(&7)));
    assert_eq!(Arc::strong_count(&shared), 1, "the shared value was replaced");
    let extensions = extensions.with_shared(shared);
    assert_eq!(extensions.get::<Principal>().map(|principal| principal.0), Some("ada"));
}
