//! Early sends: the verb that made a single frame writes it, without a turn of the driver.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use bytes::Bytes;
use serde_json::json;

use super::gate::{Act, Gate};
use super::{WELCOME, hello, json as text, ms, service};
use crate::testing::{Executor, Pipe, PipeBroken, pipe};
use crate::{BoxFuture, Call, Client, Context, Endpoint, Peer, Runtime, Tool, drive};
use protocol_core::config::{CallTimeouts, Config};
use protocol_core::dialect::{Identity, Op};
use protocol_core::drive::{FrameIo, Timer as _};
use protocol_core::json::Json;
use protocol_core::session::{Close, CloseReason, Invoke, Outcome, Transmit};

type Driven = BoxFuture<'static, Result<CloseReason, PipeBroken>>;

struct Quiet;
impl Client for Quiet {}

/// An idle client after its handshake, and the far end of its channel.
struct Bench {
    executor: Executor,
    client: Arc<Quiet>,
    peer: Peer,
    far: Pipe,
    /// The closure that the transport calls in its next flush.
    act: Act,
    /// The future that drives the client; the test may drop it.
    driven: Arc<Mutex<Option<Driven>>>,
    /// The result of that future; empty until it has ended.
    end: Arc<Mutex<Vec<Result<CloseReason, PipeBroken>>>>,
}

impl Bench {
    fn new() -> Self {
        Self::over(true)
    }

    /// A bench whose transport may be written by a verb if `sends_anywhere`; otherwise only the task of the driver writes it.
    fn over(sends_anywhere: bool) -> Self {
        let executor = Executor::new();
        let (near, mut far) = pipe();
        let client = Arc::new(Quiet);
        let endpoint = Endpoint::client(client.clone(), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
        let peer = endpoint.peer();
        let gate = Gate::new(near, sends_anywhere);
        let act = Arc::clone(&gate.during_flush);
        let driven: Driven = Box::pin(drive(endpoint, gate, executor.timer()));
        let driven = Arc::new(Mutex::new(Some(driven)));
        let (driven_by_task, end) = (Arc::clone(&driven), Arc::<Mutex<Vec<_>>>::default());
        let ended = Arc::clone(&end);
        executor.spawn(async move {
            let driving = poll_fn(|cx| match &mut *driven_by_task.lock().unwrap() {
                Some(driven) => driven.as_mut().poll(cx).map(Some),
                None => Poll::Ready(None),
            });
            let end = driving.await;
            ended.lock().unwrap().extend(end);
        });
        executor.run_until_stalled();
        far.try_recv().unwrap();
        far.send(Bytes::from_static(WELCOME.as_bytes())).unwrap();
        executor.run_until_stalled();
        far.try_recv().unwrap();
        let mut bench = Self { executor, client, peer, far, act, driven, end };
        // The first call makes the driver set its timer, so later calls need no turn for that.
        let first = bench.call();
        bench.executor.run_until_stalled();
        assert_eq!(bench.written().len(), 1);
        bench.answer(2);
        assert!(bench.outcome(first).is_some());
        bench
    }

    fn call(&self) -> Call {
        self.peer.call_tool("any", Json::empty_object()).unwrap()
    }

    /// The ids of the calls that were written since the last call of this method, in order.
    fn written(&mut self) -> Vec<u64> {
        let frames = core::iter::from_fn(|| self.far.try_recv());
        let calls = frames.map(|frame| serde_json::from_slice::<serde_json::Value>(&frame).unwrap());
        calls.filter_map(|frame| frame["id"].as_u64()).collect()
    }

    fn answer(&mut self, id: u64) {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#);
        self.far.send(Bytes::from(answer)).unwrap();
    }

    fn outcome(&self, call: Call) -> Option<Outcome> {
        self.executor.block_on(call).map(|done| done.outcome)
    }

    /// Makes the transport call `act` once, in its next flush.
    fn at_next_flush(&self, act: impl FnOnce() + Send + 'static) {
        *self.act.lock().unwrap() = Some(Box::new(act));
    }
}

#[test]
fn a_single_call_is_sent_before_the_verb_returns_and_needs_no_turn() {
    let mut bench = Bench::new();
    for id in 3..6 {
        let call = bench.call();
        assert_eq!(bench.written(), [id]);
        assert!(!bench.executor.run_until_stalled(), "no task was woken");
        bench.answer(id);
        assert!(matches!(bench.outcome(call), Some(Outcome::Result(_))));
    }
}

#[test]
fn a_call_made_while_another_is_open_is_sent_by_a_turn() {
    let mut bench = Bench::new();
    let calls: Vec<Call> = (0..3).map(|_| bench.call()).collect();
    assert_eq!(bench.written(), [3]);
    bench.executor.run_until_stalled();
    assert_eq!(bench.written(), [4, 5]);
    drop(calls);
}

/// Calls that were answered together are likely to be followed by others that can be written together.
#[test]
fn a_call_made_while_an_outcome_is_unread_is_sent_by_a_turn() {
    let mut bench = Bench::new();
    let (first, second) = (bench.call(), bench.call());
    bench.executor.run_until_stalled();
    assert_eq!(bench.written(), [3, 4]);
    (3..5).for_each(|id| bench.answer(id));
    assert!(bench.outcome(first).is_some());
    let third = bench.call();
    assert!(bench.written().is_empty());
    bench.executor.run_until_stalled();
    assert_eq!(bench.written(), [5]);
    drop((second, third));
}

#[test]
fn a_detached_call_made_while_another_is_open_is_sent_by_a_turn() {
    let mut bench = Bench::new();
    (0..3).for_each(|_| bench.call().detach());
    assert_eq!(bench.written(), [3]);
    bench.executor.run_until_stalled();
    assert_eq!(bench.written(), [4, 5]);
}

#[test]
fn a_call_made_after_the_driver_was_woken_is_sent_with_the_queued_frames() {
    let mut bench = Bench::new();
    drop(bench.call());
    assert_eq!(bench.written(), [3]);
    let call = bench.call();
    assert!(bench.far.try_recv().is_none());
    bench.executor.run_until_stalled();
    assert!(bench.far.try_recv().is_some(), "the cancel of the first");
    assert_eq!(bench.written(), [4]);
    drop(call);
}

#[test]
fn a_transport_without_sends_anywhere_is_written_by_its_task_only() {
    let mut bench = Bench::over(false);
    let call = bench.call();
    assert!(bench.written().is_empty());
    bench.executor.run_until_stalled();
    assert_eq!(bench.written(), [3]);
    drop(call);
}

#[test]
fn a_call_that_was_sent_early_times_out_at_its_deadline() {
    let bench = Bench::new();
    bench.executor.run_for(ms(59_000));
    // The timer is still set for the first call.
    let call = bench.call();
    assert!(matches!(bench.outcome(call), Some(Outcome::TimedOut(_))));
    assert_eq!(bench.executor.now(), protocol_core::Instant::from_millis(59_000 + 60_000));
    bench.executor.run_for(ms(100_000));
    // The timer has fired, and is not set any more.
    let call = bench.call();
    assert!(matches!(bench.outcome(call), Some(Outcome::TimedOut(_))));
    assert_eq!(bench.executor.now(), protocol_core::Instant::from_millis(219_000 + 60_000));
}

#[test]
fn a_call_made_during_an_early_send_is_sent_after_it() {
    let mut bench = Bench::new();
    let (peer, second) = (bench.peer.clone(), Arc::<Mutex<Option<Call>>>::default());
    let second_in_flush = Arc::clone(&second);
    bench.at_next_flush(move || {
        *second_in_flush.lock().unwrap() = Some(peer.call_tool("any", Json::empty_object()).unwrap());
    });
    let first = bench.call();
    assert_eq!(bench.written(), [3]);
    assert!(bench.executor.run_until_stalled());
    assert_eq!(bench.written(), [4]);
    drop((first, second));
}

/// Another thread may poll the task while a verb writes, and must not be blocked until the verb has written.
#[test]
fn a_task_that_is_polled_during_an_early_send_is_polled_again() {
    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut bench = Bench::new();
    let (driven, woken) = (Arc::clone(&bench.driven), Arc::new(Woken(AtomicUsize::new(0))));
    let waker = Waker::from(Arc::clone(&woken));
    bench.at_next_flush(move || {
        let mut driven = driven.lock().unwrap();
        let polled = driven.as_mut().unwrap().as_mut().poll(&mut TaskContext::from_waker(&waker));
        assert!(polled.is_pending());
    });
    let call = bench.call();
    assert_eq!((bench.written(), woken.0.load(Ordering::Relaxed)), (std::vec![3], 1));
    bench.answer(3);
    assert!(matches!(bench.outcome(call), Some(Outcome::Result(_))));
}

/// A waker that makes a call when its last clone is dropped.
struct CallsOnDrop(Peer);

impl Wake for CallsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for CallsOnDrop {
    fn drop(&mut self) {
        self.0.call_tool("any", Json::empty_object()).unwrap().detach();
    }
}

#[test]
fn a_waker_that_was_stored_during_an_early_send_is_dropped_outside_of_all_locks() {
    let mut bench = Bench::new();
    let (driven, peer) = (Arc::clone(&bench.driven), bench.peer.clone());
    bench.at_next_flush(move || {
        for _ in 0..3 {
            let waker = Waker::from(Arc::new(CallsOnDrop(peer.clone())));
            let mut driven = driven.lock().unwrap();
            assert!(driven.as_mut().unwrap().as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
        }
    });
    drop(bench.call());
    bench.executor.run_until_stalled();
    // The first call, and one call of each waker. The first two wakers are dropped when the next one replaces them, and the third by the
    // verb of the first call, which wakes it.
    assert_eq!(bench.written(), [3, 4, 5, 6]);
}

#[test]
fn a_task_that_ends_during_an_early_send_drops_the_connection() {
    let mut bench = Bench::new();
    let driven = Arc::clone(&bench.driven);
    bench.at_next_flush(move || *driven.lock().unwrap() = None);
    let call = bench.call();
    assert_eq!(bench.written(), [3]);
    // The verb has not dropped the connection: its caller may hold a lock that the drop of the client takes.
    assert_eq!(Arc::strong_count(&bench.client), 2);
    assert!(bench.executor.run_until_stalled());
    assert_eq!(Arc::strong_count(&bench.client), 1);
    assert!(bench.far.send(Bytes::new()).is_err(), "the transport is gone");
    assert_eq!(bench.outcome(call), Some(Outcome::Lost));
    assert!(bench.peer.call_tool("any", Json::empty_object()).is_err());
}

#[test]
fn a_transport_that_panics_during_an_early_send_ends_its_task_and_not_the_verb() {
    let bench = Bench::new();
    bench.at_next_flush(|| std::panic::panic_any("the transport"));
    let call = bench.call();
    let panic = catch_unwind(AssertUnwindSafe(|| bench.executor.run_until_stalled())).expect_err("the task panics");
    assert_eq!(panic.downcast_ref(), Some(&"the transport"));
    // Drops the task, as a runtime does with a task that has panicked.
    bench.driven.clear_poison();
    *bench.driven.lock().unwrap() = None;
    assert_eq!(bench.outcome(call), Some(Outcome::Lost));
}

#[test]
fn a_transport_that_fails_during_an_early_send_is_reported_as_broken() {
    let mut bench = Bench::new();
    // Drops the far end. In its place `bench` gets an end of another pipe, whose other end is dropped.
    let (unused, other) = pipe();
    drop(core::mem::replace(&mut bench.far, unused));
    drop(other);
    let call = bench.call();
    assert_eq!(bench.outcome(call), Some(Outcome::Lost));
    bench.executor.run_for(ms(1000));
    assert_eq!(*bench.end.lock().unwrap(), [Err(PipeBroken)]);
}

/// A server after its handshake, with some calls whose handlers sleep for a second, and the far end of its channel.
struct Napping {
    executor: Executor,
    peer: Peer,
    far: Pipe,
    turns: Arc<AtomicUsize>,
    end: Arc<Mutex<Vec<Result<CloseReason, PipeBroken>>>>,
}

impl Napping {
    fn new(naps: u64) -> Self {
        let executor = Executor::new();
        let (near, mut far) = pipe();
        let nap = Tool::new("nap", async |context: Context, (): ()| {
            context.sleep(ms(1000)).await?;
            Ok(())
        });
        let server = Endpoint::server(Arc::new(service().tool(nap)), executor.runtime());
        let peer = server.peer();
        let gate = Gate::new(near, true);
        let (turns, end) = (Arc::clone(&gate.turns), Arc::<Mutex<Vec<_>>>::default());
        let driven = drive(server, gate, executor.timer());
        let ended = Arc::clone(&end);
        executor.spawn(async move {
            let end = driven.await;
            ended.lock().unwrap().push(end);
        });
        let calls =
            (1..=naps).map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"nap"}}}}"#));
        for frame in hello("2025-06-18").into_iter().chain(calls) {
            far.send(Bytes::from(frame)).unwrap();
        }
        executor.run_until_stalled();
        far.try_recv().unwrap();
        turns.store(0, Ordering::Relaxed);
        Self { executor, peer, far, turns, end }
    }

    fn written(&mut self) -> usize {
        core::iter::from_fn(|| self.far.try_recv()).count()
    }
}

#[test]
fn the_answer_of_a_single_handler_is_sent_when_the_handler_ends() {
    let mut napping = Napping::new(1);
    napping.executor.run_for(ms(1000));
    assert_eq!((napping.written(), napping.turns.load(Ordering::Relaxed)), (1, 1), "the one turn expired the alarm");
}

#[test]
fn answers_of_handlers_that_end_together_are_sent_by_a_turn() {
    let mut napping = Napping::new(5);
    napping.executor.run_for(ms(1000));
    assert_eq!(
        (napping.written(), napping.turns.load(Ordering::Relaxed)),
        (5, 2),
        "one turn expired the alarms, one wrote the answers"
    );
}

/// A regression: the verb that wrote the last answer did not wake the driver, so the driver did not notice the end of the session.
#[test]
fn a_closing_session_ends_after_its_last_answer() {
    let mut napping = Napping::new(1);
    napping.peer.close(Close::Graceful { grace: ms(5000) });
    napping.executor.run_until_stalled();
    napping.turns.store(0, Ordering::Relaxed);
    napping.executor.run_for(ms(1000));
    assert_eq!(napping.written(), 1);
    assert_eq!(*napping.end.lock().unwrap(), [Ok(CloseReason::Local)]);
    // Another read could fail, if the peer had closed the connection, and the driver would then end with an error.
    assert_eq!(napping.turns.load(Ordering::Relaxed), 1, "nothing is read after the end of the session");
}

/// A task that is polled in place when it is woken, or, if it is being polled already, directly after that poll.
struct PolledByWake {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    polling: AtomicBool,
    again: AtomicBool,
    polls: AtomicUsize,
}

impl Wake for PolledByWake {
    fn wake(self: Arc<Self>) {
        self.again.store(true, Ordering::SeqCst);
        if self.polling.swap(true, Ordering::SeqCst) {
            return;
        }
        let waker = Waker::from(Arc::clone(&self));
        while self.again.swap(false, Ordering::SeqCst) {
            assert!(self.polls.fetch_add(1, Ordering::SeqCst) < 1000, "it is polled for ever");
            let mut place = self.future.lock().unwrap();
            let Some(future) = &mut *place else { break };
            if future.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_ready() {
                *place = None;
            }
        }
        self.polling.store(false, Ordering::SeqCst);
    }
}

/// A runtime that makes each task a [`PolledByWake`].
struct InPlaceRuntime;

impl Runtime for InPlaceRuntime {
    fn now(&self) -> protocol_core::Instant {
        protocol_core::Instant::ZERO
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let (polling, again) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(PolledByWake { future: Mutex::new(Some(task)), polling, again, polls: AtomicUsize::new(0) }).wake();
    }
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

/// The answer arrived while a verb further up on the same stack was still writing the call. The driver's task found the driver locked by
/// that verb, and woke itself without end.
#[test]
fn regression_a_task_that_is_polled_within_an_early_send_does_not_wake_itself() {
    let runtime = Arc::new(InPlaceRuntime);
    let greet = Tool::new("greet", async |_: Context, (): ()| Ok("hello"));
    let server = Endpoint::server(Arc::new(service().tool(greet)), runtime.clone());
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("c", "1")), runtime.clone());
    let peer = client.peer();
    let (near, far) = pipe();
    for (endpoint, io) in [(client, near), (server, far)] {
        let driven = drive(endpoint, io, Executor::new().timer());
        runtime.spawn(Box::pin(async move {
            let _ = driven.await;
        }));
    }
    for _ in 0..3 {
        let mut call = Box::pin(peer.call_tool("greet", Json::empty_object()).unwrap());
        let done = call.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
        assert!(matches!(done, Poll::Ready(done) if matches!(done.outcome, Outcome::Result(_))));
    }
}

/// A transport that, if it `stalls`, is sometimes not ready to write or to flush at the first poll.
struct Stalling {
    pipe: Pipe,
    /// The frames that were accepted, and are not flushed yet.
    taken: Vec<Bytes>,
    draw: Draw,
    stalls: bool,
    sends_anywhere: bool,
}

/// Pseudorandom numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

impl Stalling {
    fn poll_stall(&mut self, cx: &TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        if self.stalls && self.draw.below(3) == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl FrameIo for Stalling {
    type Error = PipeBroken;
    fn poll_recv(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Option<Bytes>, PipeBroken>> {
        self.pipe.poll_recv(cx)
    }
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        self.poll_stall(cx)
    }
    fn start_send(&mut self, transmit: Transmit) -> Result<(), PipeBroken> {
        self.taken.push(transmit.frame);
        Ok(())
    }
    fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        while !self.taken.is_empty() {
            core::task::ready!(self.poll_stall(cx))?;
            let frame = self.taken.remove(0);
            self.pipe.send(frame)?;
        }
        Poll::Ready(Ok(()))
    }
    fn poll_close(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), PipeBroken>> {
        self.pipe.poll_close(cx)
    }
    fn sends_anywhere(&self) -> bool {
        self.sends_anywhere
    }
}

/// Runs a few tasks that make calls, wait, and cancel calls at random times. Returns the outcome and the time of each call, and the reason
/// and the time of the close.
fn ends_of(seed: u64, stalls: bool, sends_anywhere: bool) -> Vec<String> {
    let executor = Executor::new();
    let nap = Tool::new("nap", async |context: Context, times: BTreeMap<String, u64>| {
        for _ in 0..times["times"] {
            context.sleep(Duration::from_micros(times["micros"])).await?;
        }
        Ok(())
    });
    let server = Endpoint::server(Arc::new(service().tool(nap)), executor.runtime());
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
    let peer = client.peer();
    let (near, far) = pipe();
    for (number, (endpoint, pipe)) in (0..).zip([(client, near), (server, far)]) {
        let io = Stalling { pipe, taken: Vec::new(), draw: Draw(seed ^ number), stalls, sends_anywhere };
        let driven = drive(endpoint, io, executor.timer());
        executor.spawn(async move {
            let _ = driven.await;
        });
    }
    let ends = Arc::<Mutex<Vec<String>>>::default();
    let callers = 1 + seed % 3;
    let callers_left = Arc::new(AtomicUsize::new(usize::try_from(callers).unwrap()));
    for caller in 0..callers {
        let (peer, ends, executor) = (peer.clone(), Arc::clone(&ends), executor.clone());
        let callers_left = Arc::clone(&callers_left);
        let mut draw = Draw(seed * 31 + caller);
        executor.clone().spawn(async move {
            let mut timer = executor.timer();
            for number in 0..30 {
                let max_pause = [0, 1000, 1_000_000, 90_000_000][usize::try_from(draw.below(4)).unwrap()];
                let at = timer.now().saturating_add(Duration::from_micros(draw.below(max_pause + 1) + 1));
                poll_fn(|cx| timer.poll_until(cx, at)).await;
                let micros = [7, 1000, 300_000, 3_000_000, 40_000_000][usize::try_from(draw.below(5)).unwrap()] + draw.below(1000);
                let params = json!({"name": "nap", "arguments": {"micros": micros, "times": draw.below(3)}});
                let mut call = Invoke::new(Op::CallTool, text(params));
                let mut limit = || {
                    let max_micros = [0, 2_000_000, 60_000_000][usize::try_from(draw.below(3)).unwrap()];
                    (max_micros > 0).then(|| Duration::from_micros(draw.below(max_micros) + 11))
                };
                let mut limits = CallTimeouts::NONE;
                (limits.idle, limits.max_total) = (limit(), limit());
                call.timeouts = Some(limits);
                let gives_up =
                    (draw.below(5) == 0).then(|| timer.now().saturating_add(Duration::from_micros(draw.below(1_000_000) + 1)));
                let mut call = peer.call(call).unwrap();
                let ended = poll_fn(|cx| match (Pin::new(&mut call).poll(cx), gives_up) {
                    (Poll::Ready(done), _) => Poll::Ready(Some(done.outcome)),
                    (Poll::Pending, Some(at)) => timer.poll_until(cx, at).map(|()| None),
                    (Poll::Pending, None) => Poll::Pending,
                });
                let ended = ended.await;
                drop(call);
                ends.lock().unwrap().push(format!("{caller} {number} {:?} {ended:?}", executor.now()));
            }
            if callers_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                peer.close(Close::Graceful { grace: ms(1000) });
            }
        });
    }
    let closed = executor.block_on(peer.closed());
    let mut ends = core::mem::take(&mut *ends.lock().unwrap());
    ends.push(format!("{closed:?} {:?}", executor.now()));
    // Calls that end at the same time may end in any order.
    ends.sort();
    ends
}

#[test]
fn early_sends_change_neither_the_outcome_nor_the_time_of_a_call() {
    for seed in 0..60 {
        for stalls in [false, true] {
            let [early, by_turns] = [true, false].map(|sends_anywhere| ends_of(seed, stalls, sends_anywhere));
            assert_eq!(early, by_turns, "seed {seed}, stalls: {stalls}");
        }
    }
}
