//! Endpoints that are closed, dropped, or lose their channel.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::json;

use super::{hello, ms, service, value};
use crate::testing::{Executor, Pipe, connect, pipe};
use crate::{Call, CallError, Cancellation, Context, Endpoint, Peer, Tool};
use protocol_core::config::Config;
use protocol_core::dialect::Identity;
use protocol_core::drive::{Driver, Machine};
use protocol_core::json::Json;
use protocol_core::session::{CancelReason, Close, CloseReason, ExchangeId, Gone, Outcome};

/// The reasons for which handlers were cancelled.
type Seen = Arc<Mutex<Vec<CancelReason>>>;

/// The behaviour of a handler that is cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnCancel {
    Returns,
    NeverReturns,
}

/// A tool that sleeps for 50 seconds. When it is cancelled, it adds the reason to `seen`, and then does as `on_cancel` says.
fn sleeper(seen: &Seen, on_cancel: OnCancel) -> Tool {
    let seen = Arc::clone(seen);
    Tool::new("sleep", move |context: Context, (): ()| {
        let seen = Arc::clone(&seen);
        async move {
            let Err(stopped) = context.sleep(ms(50_000)).await else { return Ok(()) };
            seen.lock().unwrap().push(stopped.0);
            if on_cancel == OnCancel::NeverReturns {
                core::future::pending::<()>().await;
            }
            Ok(())
        }
    })
}

/// A client and a server that are connected. The server has the tool of [`sleeper`].
struct Ends {
    executor: Executor,
    client: Peer,
    server: Peer,
    seen: Seen,
}

fn ends(on_cancel: OnCancel) -> Ends {
    let executor = Executor::new();
    let seen = Seen::default();
    let server = Endpoint::server(Arc::new(service().tool(sleeper(&seen, on_cancel))), executor.runtime());
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
    let ends = Ends { executor: executor.clone(), client: client.peer(), server: server.peer(), seen };
    connect(&executor, server, client);
    ends
}

impl Ends {
    /// Calls the tool, and lets it run for a second.
    fn call(&self) -> Call {
        let call = self.client.call_tool("sleep", Json::empty_object()).unwrap();
        self.executor.run_for(ms(1000));
        assert_eq!(self.server.running(), 1);
        call
    }
}

#[test]
fn a_graceful_close_waits_for_running_calls() {
    let ends = ends(OnCancel::Returns);
    let call = ends.call();
    ends.server.close(Close::Graceful { grace: ms(120_000) });
    let done = ends.executor.block_on(call).unwrap();
    assert!(matches!(done.outcome, Outcome::Result(_)), "{done:?}");
    assert_eq!(ends.executor.now(), protocol_core::Instant::from_millis(50_000));
    assert_eq!(ends.executor.block_on(ends.server.closed()), Some(CloseReason::Local));
    assert_eq!(*ends.seen.lock().unwrap(), []);
}

#[test]
fn a_graceful_close_cancels_a_call_that_takes_too_long() {
    let ends = ends(OnCancel::Returns);
    let call = ends.call();
    ends.server.close(Close::Graceful { grace: ms(2000) });
    let done = ends.executor.block_on(call).unwrap();
    assert!(!matches!(done.outcome, Outcome::Lost), "it is answered before the end: {done:?}");
    assert_eq!(ends.executor.now(), protocol_core::Instant::from_millis(3000));
    ends.executor.run_until_stalled();
    assert_eq!(*ends.seen.lock().unwrap(), [CancelReason::Closing]);
}

/// The session is given no new time while the handler runs. If the grace for writing the answer counted from the last time that the session
/// was given, it would be over when the handler answers.
#[test]
fn the_grace_for_the_last_answer_counts_from_the_answer() {
    let executor = Executor::new();
    let (may_end, waker) = (Arc::new(Mutex::new(false)), Arc::<Mutex<Option<Waker>>>::default());
    let for_tool = (Arc::clone(&may_end), Arc::clone(&waker));
    let tool = Tool::new("wait", move |_: Context, (): ()| {
        let (may_end, waker) = for_tool.clone();
        poll_fn(move |cx| {
            *waker.lock().unwrap() = Some(cx.waker().clone());
            if *may_end.lock().unwrap() { Poll::Ready(Ok("late")) } else { Poll::Pending }
        })
    });
    let server = Endpoint::server(Arc::new(service().tool(tool)), executor.runtime());
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
    let (caller, callee) = (client.peer(), server.peer());
    connect(&executor, server, client);
    executor.run_until_stalled();
    let call = caller.call_tool("wait", Json::empty_object()).unwrap();
    executor.run_until_stalled();
    callee.close(Close::Graceful { grace: ms(120_000) });
    executor.run_until_stalled();
    executor.advance_to(protocol_core::Instant::from_millis(50_000));
    *may_end.lock().unwrap() = true;
    waker.lock().unwrap().take().unwrap().wake();
    let done = executor.block_on(call).unwrap();
    assert!(matches!(done.outcome, Outcome::Result(_)), "{done:?}");
}

/// A value of a handler. When it is dropped, it adds the reason of the call's cancel, if the call was cancelled, to its list.
struct NotedOnDrop(Cancellation, Seen);

impl Drop for NotedOnDrop {
    fn drop(&mut self) {
        self.1.lock().unwrap().extend(self.0.reason());
    }
}

#[test]
fn dropping_an_endpoint_loses_its_calls_and_cancels_its_handlers() {
    let executor = Executor::new();
    let seen = Seen::default();
    let list = Arc::clone(&seen);
    let tool = Tool::new("sleep", move |context: Context, (): ()| {
        let noted = NotedOnDrop(context.cancellation(), Arc::clone(&list));
        async move {
            let _noted = noted;
            let _ = context.sleep(ms(50_000)).await;
            core::future::pending::<()>().await;
            Ok(())
        }
    });
    let server = Endpoint::server(Arc::new(service().tool(tool)), executor.runtime());
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
    let (here, there) = pipe();
    let mut near = Driver::new(client, here, executor.timer());
    let mut far = Driver::new(server, there, executor.timer());
    let (caller, callee) = (near.machine().peer(), far.machine().peer());
    let call = caller.call_tool("sleep", Json::empty_object()).unwrap();
    // Polls both drivers ten times. They are not tasks of the executor.
    let mut poll_both = |executor: &Executor| {
        for _ in 0..10 {
            let mut cx = core::task::Context::from_waker(core::task::Waker::noop());
            assert!(near.poll_event(&mut cx).is_pending());
            assert!(far.poll_event(&mut cx).is_pending());
            executor.run_until_stalled();
        }
    };
    poll_both(&executor);
    assert_eq!(callee.running(), 1);
    drop(far);
    executor.run_until_stalled();
    // Without a driver there is no grace: the handler was cancelled, and dropped at its next await point.
    assert_eq!((callee.running(), callee.counters().abandoned), (0, 1));
    assert_eq!(*seen.lock().unwrap(), [CancelReason::Disconnected]);
    drop(near);
    assert_eq!(executor.block_on(call).unwrap().outcome, Outcome::Lost);
    assert_eq!(executor.block_on(caller.closed()), Some(CloseReason::Failed));
    assert_eq!(executor.block_on(callee.closed()), Some(CloseReason::Failed));
    assert!(executor.block_on(caller.ready()).unwrap().is_err());
}

/// A server with a running call of [`sleeper`]. The test writes the frames of its peer. Returns the executor, the handle of the server, the
/// peer's end of the pipe, and a place for the time at which the server's driver ends.
fn served(seen: &Seen, on_cancel: OnCancel) -> (Executor, Peer, Pipe, Arc<Mutex<Option<protocol_core::Instant>>>) {
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service().tool(sleeper(seen, on_cancel))), executor.runtime());
    let peer = server.peer();
    let (mut near, far) = pipe();
    let end = Arc::new(Mutex::new(None));
    let (clock, set_end) = (executor.clone(), Arc::clone(&end));
    let mut driver = Driver::new(server, far, executor.timer());
    executor.spawn(async move {
        while let Ok(Some(_)) = driver.next_event().await {}
        *set_end.lock().unwrap() = Some(clock.now());
    });
    for frame in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep"}}"#,
    ] {
        near.send(Bytes::from_static(frame.as_bytes())).unwrap();
    }
    executor.run_until_stalled();
    assert_eq!(peer.running(), 1);
    (executor, peer, near, end)
}

#[test]
fn at_the_end_of_input_a_handler_may_finish_within_the_close_grace() {
    let seen = Seen::default();
    let (executor, peer, mut near, end) = served(&seen, OnCancel::Returns);
    executor.run_for(ms(48_000));
    near.end();
    executor.run_for(ms(5000));
    assert_eq!(*seen.lock().unwrap(), []);
    let answers = core::iter::from_fn(|| near.try_recv()).count();
    assert_eq!(answers, 2, "initialize and the call");
    assert_eq!(*end.lock().unwrap(), Some(protocol_core::Instant::from_millis(50_000)));
    assert_eq!(peer.running(), 0);
}

#[test]
fn requests_read_before_the_end_of_input_are_answered() {
    let seen = Seen::default();
    let (executor, peer, mut near, end) = served(&seen, OnCancel::Returns);
    for id in 3..23 {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        near.send(Bytes::from(frame)).unwrap();
    }
    near.end();
    executor.run_until_stalled();
    assert_eq!(core::iter::from_fn(|| near.try_recv()).count(), 21, "initialize and the twenty");
    executor.run_for(ms(5000));
    assert_eq!((peer.running(), *end.lock().unwrap()), (0, Some(protocol_core::Instant::from_millis(5000))));
}

/// A transport that accepts only one frame to write, the request of the handshake.
struct Stalled {
    pipe: Pipe,
    is_full: bool,
}

impl protocol_core::drive::FrameIo for Stalled {
    type Error = crate::testing::PipeBroken;
    fn poll_recv(&mut self, cx: &mut core::task::Context<'_>) -> core::task::Poll<Result<Option<Bytes>, Self::Error>> {
        self.pipe.poll_recv(cx)
    }
    fn poll_ready(&mut self, _: &mut core::task::Context<'_>) -> core::task::Poll<Result<(), Self::Error>> {
        if self.is_full { core::task::Poll::Pending } else { core::task::Poll::Ready(Ok(())) }
    }
    fn start_send(&mut self, _: protocol_core::Transmit) -> Result<(), Self::Error> {
        self.is_full = true;
        Ok(())
    }
    fn poll_flush(&mut self, _: &mut core::task::Context<'_>) -> core::task::Poll<Result<(), Self::Error>> {
        core::task::Poll::Pending
    }
    fn poll_close(&mut self, _: &mut core::task::Context<'_>) -> core::task::Poll<Result<(), Self::Error>> {
        core::task::Poll::Ready(Ok(()))
    }
}

#[test]
fn a_call_times_out_at_its_deadline_while_the_peer_does_not_read() {
    let executor = Executor::new();
    let mut config = Config::mcp_client(Identity::new("caller", "1"));
    config.timeouts.handshake = None;
    let client = Endpoint::client(Arc::new(()), config, executor.runtime());
    let peer = client.peer();
    let (near, mut far) = pipe();
    let mut driver = Driver::new(client, Stalled { pipe: near, is_full: false }, executor.timer());
    executor.spawn(async move { while let Ok(Some(_)) = driver.next_event().await {} });
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    executor.run_until_stalled();
    far.send(answer.into()).unwrap();
    executor.block_on(peer.ready()).unwrap().unwrap();
    let call = peer.call_tool("any", Json::empty_object()).unwrap();
    let done = executor.block_on(call).unwrap();
    assert_eq!(done.outcome, Outcome::TimedOut(protocol_core::TimeoutKind::Idle));
    assert_eq!(executor.now(), protocol_core::Instant::from_millis(60_000));
}

#[test]
fn the_driver_runs_until_the_grace_of_a_cancelled_handler_is_over() {
    let seen = Seen::default();
    let (executor, peer, mut near, end) = served(&seen, OnCancel::NeverReturns);
    near.end();
    executor.run_for(ms(5000));
    assert_eq!(*seen.lock().unwrap(), [CancelReason::Disconnected]);
    assert_eq!(executor.block_on(peer.closed()), Some(CloseReason::Eof), "the session does not wait");
    executor.run_for(ms(4999));
    assert_eq!((peer.running(), *end.lock().unwrap()), (1, None));
    executor.run_for(ms(1));
    assert_eq!((peer.running(), *end.lock().unwrap()), (0, Some(protocol_core::Instant::from_millis(10_000))));
    assert_eq!(peer.counters().abandoned, 1);
}

#[test]
fn a_runtime_that_drops_all_tasks_ends_the_handlers_and_the_session() {
    let seen = Seen::default();
    let (executor, peer, mut near, _) = served(&seen, OnCancel::NeverReturns);
    let _ = near.try_recv();
    // The driver's task owns the endpoint, which is dropped with it.
    executor.shutdown();
    assert_eq!(peer.running(), 0);
    assert_eq!(executor.block_on(peer.closed()), Some(CloseReason::Failed));
}

/// There is no driver, so the handler is the only task of the runtime.
#[test]
fn a_call_whose_handler_is_dropped_by_the_runtime_is_answered_with_an_error() {
    let (executor, seen) = (Executor::new(), Seen::default());
    let mut server = Endpoint::server(Arc::new(service().tool(sleeper(&seen, OnCancel::NeverReturns))), executor.runtime());
    let peer = server.peer();
    let mut sent = |frame: &str| {
        server.handle_frame(Bytes::copy_from_slice(frame.as_bytes()), executor.now()).unwrap();
        core::iter::from_fn(|| server.poll_transmit()).count()
    };
    let [initialize, initialized] = hello("2025-06-18");
    assert_eq!((sent(&initialize), sent(&initialized)), (1, 0));
    assert_eq!(sent(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep"}}"#), 0);
    executor.run_until_stalled();
    assert_eq!(peer.running(), 1);
    executor.shutdown();
    assert_eq!(peer.running(), 0);
    let answers = core::iter::from_fn(|| server.poll_transmit()).map(|sent| value(&Json::parse(sent.frame).unwrap()));
    let answers: Vec<_> = answers.collect();
    let error = json!({"code": -32603, "message": "internal error: the handler ended without an answer"});
    assert_eq!(answers, [json!({"jsonrpc": "2.0", "id": 2, "error": error})]);
    assert_eq!(*seen.lock().unwrap(), [], "the handler was not cancelled");
}

#[test]
fn an_endpoint_is_a_machine_whose_only_event_is_the_end() {
    let executor = Executor::new();
    let mut server = Endpoint::server(Arc::new(service()), executor.runtime());
    assert!(server.wants_input() && !server.is_closed());
    server.handle_end(protocol_core::TransportEnd::Failed, executor.now());
    assert_eq!(server.poll_event(), Some(CloseReason::Failed));
    assert_eq!(server.poll_event(), None);
    assert!(server.is_closed() && !server.wants_input());
    assert_eq!((server.poll_timeout(), server.poll_transmit()), (None, None));
}

/// A caller learned only that the connection had ended, although the transport knew why.
#[test]
fn a_lost_call_has_the_reason_of_its_transport() {
    let executor = Executor::new();
    let mut endpoint = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
    let now = executor.now();
    while endpoint.poll_transmit().is_some() {}
    endpoint.handle_frame(super::WELCOME.into(), now).unwrap();
    let peer = endpoint.peer();
    let [first, second, third] = [(); 3].map(|()| peer.call_tool("t", Json::empty_object()).unwrap());
    while endpoint.poll_transmit().is_some() {}
    endpoint.handle_lost(ExchangeId::from_number(2), "status 500", now).unwrap();
    assert!(endpoint.handle_lost(ExchangeId::from_number(2), "again", now).is_err(), "it is over");
    endpoint.handle_gone(Gone::Response(ExchangeId::from_number(3)), now).unwrap();
    endpoint.handle_failure("the server has ended the session", now);
    assert!(endpoint.poll_event().is_some());
    let error = |call: Call| executor.block_on(call).unwrap().result().unwrap_err();
    assert_eq!(error(first).to_string(), "the call was lost: status 500");
    assert_eq!(error(second), CallError::Ended(Outcome::Lost), "no reason was given");
    assert_eq!(error(third).to_string(), "the call was lost: the server has ended the session");
}
