//! No code of the application runs under the lock: if it did, this test would deadlock.

use core::pin::Pin;
use core::task::Poll;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use super::{ms, service};
use crate::testing::{Executor, connect};
use crate::{AskFailed, BoxFuture, Call, Client, Context, Endpoint, InputContext, Peer, Tool};
use protocol_core::config::Config;
use protocol_core::dialect::{Capabilities, Elicit, ElicitResult, Identity, Level, LogRecord, Sample, SampleResult};
use protocol_core::error::RpcError;
use protocol_core::json::Json;

/// A waker that takes the endpoint's lock whenever it is woken, and when its last clone is dropped.
struct LockingWaker {
    peer: Peer,
    woken: Arc<AtomicUsize>,
}

impl Wake for LockingWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.peer.stats();
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for LockingWaker {
    fn drop(&mut self) {
        let _ = self.peer.stats();
    }
}

fn locking_waker(peer: &Peer, woken: &Arc<AtomicUsize>) -> Waker {
    Waker::from(Arc::new(LockingWaker { peer: peer.clone(), woken: Arc::clone(woken) }))
}

/// Polls once with a new waker, which replaces the previous one.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>, peer: &Peer, woken: &Arc<AtomicUsize>) -> Poll<F::Output> {
    future.poll(&mut core::task::Context::from_waker(&locking_waker(peer, woken)))
}

/// Takes the lock when it is dropped.
struct HandlerLocksOnDrop(Context);

impl Drop for HandlerLocksOnDrop {
    fn drop(&mut self) {
        let _ = self.0.try_progress(protocol_core::Progress::step(1, 2));
    }
}

/// A client that takes the endpoint's lock in its methods, and when a future that it has returned is dropped.
struct LockingClient;

impl Client for LockingClient {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        (can.sampling, can.elicitation) = (true, true);
        can
    }
    fn sample(&self, asked: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        struct AnswerLocksOnDrop(InputContext);
        impl Drop for AnswerLocksOnDrop {
            fn drop(&mut self) {
                let _ = self.0.peer().stats();
            }
        }
        Box::pin(async move {
            let _locks = AnswerLocksOnDrop(asked);
            core::future::pending().await
        })
    }
    fn elicit(&self, asked: InputContext, _: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        let _ = asked.peer().stats();
        Box::pin(core::future::ready(Ok(ElicitResult::Decline)))
    }
}

#[test]
fn no_waker_and_no_drop_of_the_application_runs_under_the_lock() {
    let executor = Executor::new();
    let kept = Arc::new(Mutex::new(None));
    let inside = Arc::clone(&kept);
    let tool = Tool::new("odd", move |context: Context, (): ()| {
        *inside.lock().unwrap() = Some(context.clone());
        async move {
            let _locks = HandlerLocksOnDrop(context.clone());
            context.log(Level::Warning, "about to ask");
            assert!(!context.confirm("Sure?").await);
            let _ = context.sample(Sample::new("why?")).await;
            Ok(())
        }
    });
    let server = Endpoint::server(Arc::new(service().tool(tool)), executor.runtime());
    let client = Endpoint::client(Arc::new(LockingClient), Config::mcp_client(Identity::new("odd", "1")), executor.runtime());
    let (caller, callee) = (client.peer(), server.peer());
    connect(&executor, server, client);

    let woken = Arc::new(AtomicUsize::new(0));
    let mut ready = Box::pin(caller.ready());
    let mut closed = Box::pin(caller.closed());
    let mut call: Call = caller.call_tool("odd", Json::empty_object()).unwrap();
    for _ in 0..3 {
        assert!(poll(ready.as_mut(), &caller, &woken).is_pending());
        assert!(poll(closed.as_mut(), &caller, &woken).is_pending());
        assert!(poll(Pin::new(&mut call), &caller, &woken).is_pending());
    }
    executor.run_for(ms(10));
    assert!(poll(ready.as_mut(), &caller, &woken).is_ready());
    callee.log(LogRecord::new(Level::Error, Json::null()));

    // The wakers of a handler that waits for its cancellation, an alarm and answers. Each is replaced several times.
    let context = kept.lock().unwrap().take().unwrap();
    let mut cancelled = Box::pin(context.cancelled());
    let mut sleep = Box::pin(context.sleep(ms(50)));
    let mut asks = Box::pin(context.sample(Sample::new("me, too")));
    let mut given_up = Box::pin(context.sample(Sample::new("never mind")));
    for _ in 0..3 {
        assert!(poll(cancelled.as_mut(), &callee, &woken).is_pending());
        assert!(poll(sleep.as_mut(), &callee, &woken).is_pending());
        assert!(poll(asks.as_mut(), &callee, &woken).is_pending());
        assert!(poll(given_up.as_mut(), &callee, &woken).is_pending());
    }
    drop(given_up);
    executor.run_for(ms(100));
    assert_eq!(poll(sleep.as_mut(), &callee, &woken), Poll::Ready(Ok(())));
    let mut dropped = Box::pin(context.sleep(ms(50)));
    assert!(poll(dropped.as_mut(), &callee, &woken).is_pending());
    drop(dropped);

    drop(call);
    executor.run_for(ms(10));
    assert!(poll(cancelled.as_mut(), &callee, &woken).is_ready());
    assert!(matches!(poll(asks.as_mut(), &callee, &woken), Poll::Ready(Err(AskFailed::Cancelled(_)))));
    assert_eq!(callee.running(), 0);
    caller.close(protocol_core::Close::Now);
    executor.run_for(ms(10));
    assert!(poll(closed.as_mut(), &caller, &woken).is_ready());
    executor.shutdown();
    assert!(woken.load(Ordering::Relaxed) >= 4, "the handshake, the alarm, the cancel, the end");
}
