//! Turns of the driver: its task is woken if and only if a turn is needed.

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};

use bytes::Bytes;

use super::gate::{Act, Gate, UNLIMITED};
use super::{WELCOME, hello, ms, service};
use crate::state::Shared;
use crate::testing::{Executor, Pipe, VirtualTimer, pipe};
use crate::{Call, Context, Endpoint, Peer, Service, Tool};
use protocol_core::config::Config;
use protocol_core::dialect::Identity;
use protocol_core::drive::{Driver, Machine as _};
use protocol_core::json::Json;
use protocol_core::session::{Close, Lane, Outcome, Session};

/// A waker that counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An endpoint whose driver the test polls turn by turn, and the far end of its channel.
struct Bench {
    driver: Driver<Endpoint, Gate, VirtualTimer>,
    far: Pipe,
    /// The number of frames that the transport still accepts.
    room: Arc<AtomicUsize>,
    /// A closure that the transport calls once, in its flush.
    during_flush: Act,
    wakes: Arc<Wakes>,
    executor: Executor,
}

impl Bench {
    fn new(endpoint: impl FnOnce(&Executor) -> Endpoint) -> Self {
        let executor = Executor::new();
        let (pipe, far) = pipe();
        let sends_anywhere = false;
        let gate = Gate::new(pipe, sends_anywhere);
        let (room, during_flush) = (Arc::clone(&gate.room), Arc::clone(&gate.during_flush));
        let driver = Driver::new(endpoint(&executor), gate, executor.timer());
        Self { driver, far, room, during_flush, wakes: Arc::default(), executor }
    }

    /// A server after its handshake, with an inline tool.
    fn server() -> Self {
        Self::serving("2025-06-18", [], |_| {})
    }

    /// A server after its handshake with `revision`, with the inline tool and `tools`, and a configuration that `configure` has changed.
    fn serving(revision: &str, tools: impl IntoIterator<Item = Tool>, configure: impl FnOnce(&mut Config)) -> Self {
        let quick = Tool::new("quick", async |_: Context, (): ()| Ok("done")).inline();
        let service = tools.into_iter().fold(service().tool(quick), Service::tool);
        let mut config = service.config();
        configure(&mut config);
        let mut bench = Self::new(|executor| Endpoint::serving(Arc::new(service), config, executor.runtime()));
        for frame in hello(revision) {
            bench.arrives(&frame);
        }
        bench.turn();
        bench.far.try_recv().unwrap();
        bench
    }

    /// A client after its handshake.
    fn client() -> (Self, Peer) {
        let mut peer = None;
        let mut bench = Self::new(|executor| {
            let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
            peer = Some(client.peer());
            client
        });
        bench.turn();
        bench.far.try_recv().unwrap();
        bench.arrives(WELCOME);
        bench.turn();
        bench.far.try_recv().unwrap();
        (bench, peer.unwrap())
    }

    fn turn(&mut self) {
        let waker = Waker::from(Arc::clone(&self.wakes));
        assert!(self.driver.poll_event(&mut TaskContext::from_waker(&waker)).is_pending());
    }

    fn turn_panics(&mut self) {
        assert!(catch_unwind(AssertUnwindSafe(|| self.turn())).is_err());
    }

    fn arrives(&mut self, frame: &str) {
        self.far.send(Bytes::copy_from_slice(frame.as_bytes())).unwrap();
    }

    /// The number of times that the driver was woken since the last call of this method.
    fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::Relaxed)
    }

    /// The number of frames that the endpoint has sent since the last call of this method.
    fn sent(&mut self) -> usize {
        core::iter::from_fn(|| self.far.try_recv()).count()
    }

    fn during_flush(&self, act: impl FnOnce() + Send + 'static) {
        *self.during_flush.lock().unwrap() = Some(Box::new(act));
    }
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"quick"}}"#;

fn call(peer: &Peer) -> Call {
    peer.call_tool("any", Json::empty_object()).unwrap()
}

/// Polls a future that must be pending, with `waker`.
fn assert_pending(future: Pin<&mut impl Future>, waker: Arc<impl Wake + Send + Sync + 'static>) {
    assert!(future.poll(&mut TaskContext::from_waker(&Waker::from(waker))).is_pending());
}

#[test]
fn the_reply_of_an_inline_tool_is_sent_in_the_same_turn_and_needs_no_other_turn() {
    let mut bench = Bench::server();
    bench.wakes();
    for _ in 0..3 {
        bench.arrives(CALL);
        assert_eq!(bench.wakes(), 1, "by the transport");
        bench.turn();
        assert_eq!((bench.sent(), bench.wakes()), (1, 0));
    }
}

#[test]
fn a_reply_made_while_the_transport_is_not_ready_is_sent_later() {
    let mut bench = Bench::server();
    bench.room.store(0, Ordering::Relaxed);
    for id in 10..30 {
        bench.arrives(&CALL.replace('7', &id.to_string()));
    }
    bench.turn();
    assert_eq!(bench.sent(), 0);
    bench.room.store(UNLIMITED, Ordering::Relaxed);
    bench.turn();
    assert_eq!(bench.sent(), 20);
}

/// Each time that the peer reads a reply, it gets five more seconds to read the next one. The driver did not pass the time to the session
/// before it wrote, so the session counted these seconds from an earlier turn.
#[test]
fn regression_a_turn_passes_the_time_to_the_session_before_it_writes() {
    let mut bench = Bench::serving("2025-03-26", [], |config| (config.limits.unsolicited_replies, config.limits.batch) = (4, 100));
    bench.room.store(0, Ordering::Relaxed);
    let pings: Vec<_> = (0..100).map(|n| format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"ping"}}"#)).collect();
    bench.arrives(&format!("[{}]", pings.join(",")));
    bench.turn();
    assert_eq!(bench.driver.machine().poll_timeout(), Some(protocol_core::Instant::from_millis(5000)));
    bench.executor.advance_to(protocol_core::Instant::from_millis(4000));
    bench.room.store(1, Ordering::Relaxed);
    bench.turn();
    assert_eq!((bench.sent(), bench.driver.machine().poll_timeout()), (1, Some(protocol_core::Instant::from_millis(9000))));
}

/// The driver has already polled the frames of this turn when the second call is made.
#[test]
fn a_call_that_is_made_during_the_write_wakes_the_driver() {
    let (mut bench, peer) = Bench::client();
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let calls_in_flush = Arc::clone(&calls);
    calls.lock().unwrap().push(call(&peer));
    bench.during_flush(move || calls_in_flush.lock().unwrap().push(call(&peer)));
    bench.wakes();
    bench.turn();
    assert_eq!((bench.sent(), bench.wakes()), (1, 1));
    bench.turn();
    assert_eq!((bench.sent(), bench.wakes()), (1, 0));
    assert_eq!(calls.lock().unwrap().len(), 2);
}

/// A waker that makes a call when it is woken, and keeps it.
struct CallingWaker(Peer, Mutex<Option<Call>>);

impl Wake for CallingWaker {
    fn wake(self: Arc<Self>) {
        *self.1.lock().unwrap() = Some(call(&self.0));
    }
}

/// A client that has made a call, and the waker of that call. The waker makes another call as soon as the first ends.
fn client_that_calls_again() -> (Bench, Arc<CallingWaker>, Pin<Box<Call>>) {
    let (bench, peer) = Bench::client();
    let waker = Arc::new(CallingWaker(peer.clone(), Mutex::default()));
    let mut first = Box::pin(call(&peer));
    assert_pending(first.as_mut(), Arc::clone(&waker));
    (bench, waker, first)
}

#[test]
fn a_call_that_is_made_while_events_are_handled_is_sent() {
    for ends_in_flush in [false, true] {
        let (mut bench, waker, first) = client_that_calls_again();
        if ends_in_flush {
            let first = Arc::new(Mutex::new(first));
            let first_in_flush = Arc::clone(&first);
            bench.during_flush(move || first_in_flush.lock().unwrap().cancel(None));
            bench.wakes();
            bench.turn();
            assert_eq!((bench.sent(), bench.wakes()), (1, 1), "only the first call; the next turn sends the rest");
            assert!(waker.1.lock().unwrap().is_none());
            bench.turn();
            assert!(waker.1.lock().unwrap().is_some());
            assert_eq!((bench.sent(), bench.wakes()), (2, 0), "the cancel and the second call");
        } else {
            bench.turn();
            assert_eq!(bench.sent(), 1);
            bench.arrives(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
            bench.wakes();
            bench.turn();
            assert!(waker.1.lock().unwrap().is_some());
            assert_eq!((bench.sent(), bench.wakes()), (1, 0), "in the same turn");
        }
    }
}

/// A waker that makes a call with itself as the waker, and cancels the call, whenever it is woken.
struct RestlessWaker(Peer, Mutex<Option<Pin<Box<Call>>>>);

impl Wake for RestlessWaker {
    fn wake(self: Arc<Self>) {
        // A call fails once the session is closed.
        let Ok(next) = self.0.call_tool("any", Json::empty_object()) else { return };
        let mut next = Box::pin(next);
        assert_pending(next.as_mut(), Arc::clone(&self));
        next.cancel(None);
        *self.1.lock().unwrap() = Some(next);
    }
}

/// A call that is cancelled before it was sent ends at once. The event of its end woke a waker that made and cancelled another call, and so
/// on: the turn did not end.
#[test]
fn regression_events_that_cause_events_do_not_keep_a_turn_from_ending() {
    let (mut bench, peer) = Bench::client();
    Arc::new(RestlessWaker(peer, Mutex::default())).wake();
    for _ in 0..3 {
        bench.turn();
        assert!(bench.wakes() > 0, "there is more to do");
    }
}

#[test]
fn an_endpoint_closed_through_a_handle_between_turns_wants_no_input() {
    let (mut bench, peer) = Bench::client();
    bench.turn();
    assert!(bench.driver.machine().wants_input());
    peer.close(Close::Now);
    assert!(!bench.driver.machine().wants_input());
}

#[test]
fn the_driver_waits_for_a_deadline_set_while_events_are_handled() {
    let (mut bench, waker, _first) = client_that_calls_again();
    bench.turn();
    bench.executor.advance_to(protocol_core::Instant::from_millis(10));
    bench.arrives(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    bench.turn();
    assert!(waker.1.lock().unwrap().is_some());
    // The timer is still set as it was in the handshake, and fires once without effect.
    bench.wakes();
    bench.executor.advance_to(protocol_core::Instant::from_millis(10_000));
    assert_eq!(bench.wakes(), 1);
    bench.turn();
    assert_eq!(bench.executor.next_timer(), Some(protocol_core::Instant::from_millis(10).saturating_add(ms(60_000))));
}

/// The last time that was passed to the session is long before the call.
#[test]
fn the_time_limits_of_a_call_start_when_the_call_is_made() {
    let (mut bench, peer) = Bench::client();
    bench.turn();
    bench.executor.advance_to(protocol_core::Instant::from_millis(10_000));
    let mut first = Box::pin(call(&peer));
    let deadline = protocol_core::Instant::from_millis(70_000);
    // The deadline is set before the next turn of the driver. An earlier time that is passed to the endpoint does not change it.
    let endpoint = bench.driver.machine_mut();
    endpoint.handle_timeout(protocol_core::Instant::from_millis(9_000));
    assert_eq!(endpoint.poll_timeout(), Some(deadline));
    bench.turn();
    bench.executor.advance_to(protocol_core::Instant::from_millis(69_999));
    bench.turn();
    assert_pending(first.as_mut(), Arc::new(Wakes::default()));
    bench.executor.advance_to(deadline);
    bench.turn();
    let mut cx = TaskContext::from_waker(Waker::noop());
    let Poll::Ready(done) = first.as_mut().poll(&mut cx) else { panic!("the deadline has passed") };
    assert!(matches!(done.outcome, Outcome::TimedOut(_)), "{done:?}");
}

#[test]
fn a_call_that_is_made_in_a_turn_has_its_deadline_in_that_turn() {
    let (mut bench, waker, _first) = client_that_calls_again();
    bench.turn();
    bench.executor.advance_to(protocol_core::Instant::from_millis(100_000));
    bench.turn();
    assert!(waker.1.lock().unwrap().is_some(), "the first has timed out");
    assert_eq!(bench.driver.machine().poll_timeout(), Some(protocol_core::Instant::from_millis(160_000)));
}

const MANY: usize = 20;

fn numbered(id: usize) -> Bytes {
    CALL.replace(":7", &format!(":{id}")).into()
}

/// A server that has received [`MANY`] calls of an inline tool. Before each is answered, `look` is called with its index and the session.
fn server_of_many(look: impl Fn(usize, &mut Session) + Send + Sync + 'static) -> Endpoint {
    let (shared, count) = (Arc::new(OnceLock::<Arc<Shared>>::new()), AtomicUsize::new(0));
    let shared_with_tool = Arc::clone(&shared);
    let tool = Tool::new("quick", move |_: Context, (): ()| {
        look(count.fetch_add(1, Ordering::Relaxed), &mut shared_with_tool.get().unwrap().lock().session);
        core::future::ready(Ok("done"))
    });
    let mut endpoint = Endpoint::server(Arc::new(service().tool(tool.inline())), Executor::new().runtime());
    assert!(shared.set(Arc::clone(endpoint.shared())).is_ok());
    for frame in hello("2025-06-18").map(Bytes::from).into_iter().chain((1..=MANY).map(numbered)) {
        endpoint.handle_frame(frame, protocol_core::Instant::ZERO).unwrap();
    }
    endpoint
}

/// Events are served a few at a time, so that a call can use the memory that an earlier call has freed, and other threads get the lock in
/// between.
#[test]
fn many_events_are_served_a_few_at_a_time_and_none_is_left() {
    let unread = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&unread);
    let mut endpoint = server_of_many(move |_, session| seen.lock().unwrap().push(session.unread_events()));
    assert_eq!(endpoint.poll_event(), None);
    let unread = unread.lock().unwrap();
    assert!(unread.len() == MANY && unread[0] > MANY / 2 && unread[MANY - 1] == 0, "{unread:?}");
}

#[test]
fn events_that_come_as_fast_as_they_are_taken_do_not_keep_a_turn_from_ending() {
    let served = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&served);
    let mut endpoint = server_of_many(move |count, session| {
        counted.store(count + 1, Ordering::Relaxed);
        session.handle_frame(numbered(MANY + 1 + count), Lane::CHANNEL, protocol_core::Instant::ZERO).unwrap();
    });
    assert_eq!(endpoint.poll_event(), None);
    assert!((MANY..=2 * MANY).contains(&served.load(Ordering::Relaxed)), "{served:?}");
}

/// A waker that panics when it is woken.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

/// A client whose next turn panics: the response to a call has arrived, and the waker of that call panics.
fn about_to_panic() -> (Bench, Peer, Pin<Box<Call>>) {
    let (mut bench, peer) = Bench::client();
    let mut first = Box::pin(call(&peer));
    assert_pending(first.as_mut(), Arc::new(PanickingWaker));
    bench.turn();
    bench.arrives(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#);
    (bench, peer, first)
}

/// If the program caught the panic and went on, its driver was never woken again.
#[test]
fn regression_a_driver_is_still_woken_after_a_waker_has_panicked() {
    let (mut bench, peer, _first) = about_to_panic();
    bench.turn_panics();
    bench.turn();
    bench.wakes();
    let _second = call(&peer);
    assert_eq!(bench.wakes(), 1);
}

/// A turn closed the session and then panicked. The endpoint still wanted input, as after the turn before.
#[test]
fn regression_an_endpoint_closed_in_a_turn_that_panicked_wants_no_input() {
    let (mut bench, _peer, _first) = about_to_panic();
    assert!(bench.driver.machine().wants_input());
    bench.arrives(&" ".repeat(bench.driver.machine().frame_limit() + 1));
    bench.turn_panics();
    assert!(!bench.driver.machine().wants_input());
}

/// A server with one call whose handler never ends, and the context of that call.
fn server_with_context() -> (Bench, Context) {
    let slot: Arc<Mutex<Option<Context>>> = Arc::default();
    let slot_of_handler = Arc::clone(&slot);
    let hold = Tool::new("hold", move |context: Context, (): ()| {
        *slot_of_handler.lock().unwrap() = Some(context);
        core::future::pending::<Result<(), _>>()
    });
    let mut bench = Bench::serving("2025-06-18", [hold], |_| {});
    bench.arrives(&CALL.replace("quick", "hold"));
    bench.turn();
    assert!(bench.executor.run_until_stalled());
    let context = slot.lock().unwrap().take().unwrap();
    (bench, context)
}

/// A waker panicked. Other wakers that were taken together with it were lost.
#[test]
fn regression_other_wakers_are_woken_although_one_panics() {
    let (mut bench, peer) = Bench::client();
    let wakes: Arc<Wakes> = Arc::default();
    let (mut first, mut second) = (Box::pin(call(&peer)), Box::pin(call(&peer)));
    assert_pending(first.as_mut(), Arc::new(PanickingWaker));
    assert_pending(second.as_mut(), Arc::clone(&wakes));
    bench.turn();
    for id in [2, 3] {
        bench.arrives(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#));
    }
    bench.turn_panics();
    bench.turn();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

/// A waker panicked. A request that was taken together with it was lost, and never answered.
#[test]
fn regression_a_request_is_answered_although_a_waker_in_its_turn_panics() {
    for is_dropped in [false, true] {
        let (mut bench, context) = server_with_context();
        let mut cancelled = Box::pin(context.cancelled());
        assert_pending(cancelled.as_mut(), Arc::new(PanickingWaker));
        bench.arrives(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
        bench.arrives(&CALL.replace('7', "8"));
        bench.turn_panics();
        let peer = bench.driver.machine().peer();
        assert_eq!((bench.sent(), peer.running()), (0, 2));
        if is_dropped {
            drop(bench);
        } else {
            bench.turn();
            assert_eq!(bench.sent(), 1);
        }
        assert_eq!(peer.running(), 1, "the one that was cancelled is within its grace");
    }
}

/// A waker of a sleeping handler panicked. Other sleeping handlers were not woken.
#[test]
fn regression_other_sleepers_are_woken_although_the_waker_of_one_panics() {
    let (mut bench, context) = server_with_context();
    let wakes: Arc<Wakes> = Arc::default();
    let (mut first, mut second) = (Box::pin(context.sleep(ms(1_000))), Box::pin(context.sleep(ms(1_000))));
    assert_pending(first.as_mut(), Arc::new(PanickingWaker));
    assert_pending(second.as_mut(), Arc::clone(&wakes));
    bench.executor.advance_to(protocol_core::Instant::from_millis(1_000));
    bench.turn_panics();
    bench.turn();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

/// A waker panicked while the endpoint was dropped. The wakers after it were not woken, so their tasks waited forever.
#[test]
fn regression_other_wakers_are_woken_although_one_panics_while_the_endpoint_is_dropped() {
    let (mut bench, peer) = Bench::client();
    let wakes: Arc<Wakes> = Arc::default();
    let panicking = || Waker::from(Arc::new(PanickingWaker));
    let mut calls = Vec::new();
    for waker in [panicking(), panicking(), Waker::from(Arc::clone(&wakes)), panicking()] {
        let mut call = Box::pin(call(&peer));
        assert!(call.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
        calls.push(call);
    }
    bench.turn();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(bench))).is_err());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}
