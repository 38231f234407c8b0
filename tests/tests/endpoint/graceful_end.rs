//! The graceful end of a connection: running calls may finish, remaining ones are cancelled, and every caller gets the outcome of its call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint::testing::{Executor, pipe};
use endpoint::{Call, CallOutcome, Context, Endpoint, Peer, Service, Tool};
use protocol_core::drive::Driver;
use protocol_core::{
    CallTimeouts, CancelReason, Close, CloseReason, Config, Identity, Instant, Invoke, Json, Outcome, RpcError, SendError,
};
use testkit::scripted::{cancelled, initialize, notification, request};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

#[derive(schemars::JsonSchema, serde::Deserialize)]
struct Nap {
    /// how long, in milliseconds
    ms: u64,
}

/// The reasons for which naps were cancelled, in order.
type CancelReasons = Arc<Mutex<Vec<CancelReason>>>;

/// A service with `nap`, which sleeps for the given time, and `stuck`, which ignores its cancellation.
fn service(cancel_reasons: &CancelReasons) -> Service {
    let cancel_reasons = Arc::clone(cancel_reasons);
    let nap = Tool::new("nap", move |context: Context, nap: Nap| {
        let cancel_reasons = Arc::clone(&cancel_reasons);
        async move {
            if let Err(stopped) = context.sleep(ms(nap.ms)).await {
                cancel_reasons.lock().unwrap().push(stopped.0);
            }
            Ok(nap.ms)
        }
    });
    let stuck = Tool::new("stuck", async |_: Context, (): ()| {
        std::future::pending::<()>().await;
        Ok(())
    });
    Service::new(Identity::new("service", "1")).tool(nap).tool(stuck)
}

struct Ends {
    executor: Executor,
    caller: Peer,
    callee: Peer,
    cancel_reasons: CancelReasons,
    /// The time at which the driver of the callee ended.
    ended_at: Arc<Mutex<Option<Instant>>>,
}

fn ends() -> Ends {
    let executor = Executor::new();
    let cancel_reasons = CancelReasons::default();
    let server = Endpoint::server(Arc::new(service(&cancel_reasons)), executor.runtime());
    let mut config = Config::mcp_client(Identity::new("caller", "1"));
    config.timeouts.call = CallTimeouts::NONE;
    let client = Endpoint::client(Arc::new(()), config, executor.runtime());
    let (caller, callee) = (client.peer(), server.peer());
    let (near, far) = pipe();
    let ended_at = Arc::new(Mutex::new(None));
    let mut near = Driver::new(client, near, executor.timer());
    executor.spawn(async move { while let Ok(Some(_)) = near.next_event().await {} });
    let mut far = Driver::new(server, far, executor.timer());
    executor.spawn({
        let (executor, ended_at) = (executor.clone(), Arc::clone(&ended_at));
        async move {
            while let Ok(Some(_)) = far.next_event().await {}
            *ended_at.lock().unwrap() = Some(executor.now());
        }
    });
    executor.run_until_stalled();
    Ends { executor, caller, callee, cancel_reasons, ended_at }
}

impl Ends {
    fn nap(&self, millis: u64) -> Call {
        self.caller.call_tool("nap", Json::parse(format!(r#"{{"ms":{millis}}}"#)).unwrap()).unwrap()
    }

    fn wait(&self, call: Call) -> CallOutcome {
        self.executor.block_on(call).expect("it ends")
    }
}

fn is_result(done: &CallOutcome) -> bool {
    matches!(done.outcome, Outcome::Result(_))
}

fn is_busy(done: &CallOutcome) -> bool {
    matches!(&done.outcome, Outcome::Error(error) if error.code == RpcError::BUSY)
}

#[test]
fn a_server_that_closes_lets_running_calls_finish_and_is_closed_with_the_last() {
    let ends = ends();
    let (short, long) = (ends.nap(1000), ends.nap(4000));
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(5000) });
    assert!(is_result(&ends.wait(short)));
    assert_eq!(ends.executor.now(), at(1000));
    assert!(is_result(&ends.wait(long)));
    assert_eq!(ends.executor.block_on(ends.callee.closed()), Some(CloseReason::Local));
    assert_eq!(ends.executor.block_on(ends.caller.closed()), Some(CloseReason::Eof));
    assert_eq!(ends.executor.now(), at(4000), "the server does not wait for the rest of the grace");
    assert_eq!((ends.cancel_reasons.lock().unwrap().len(), ends.callee.stats().inbound_calls), (0, 0));
}

#[test]
fn a_call_that_has_not_finished_within_the_grace_is_cancelled_and_answered() {
    let ends = ends();
    let (quick, slow) = (ends.nap(1000), ends.nap(60_000));
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(2000) });
    let slow = ends.wait(slow);
    assert_eq!(ends.executor.now(), at(2000));
    let Outcome::Result(result) = &slow.outcome else { panic!("{slow:?}") };
    assert_eq!(result.member("isError").as_ref().map(Json::as_str), Some("true"), "the result of a failed tool: {result}");
    assert!(is_result(&ends.wait(quick)));
    ends.executor.run_until_stalled();
    assert_eq!(*ends.cancel_reasons.lock().unwrap(), [CancelReason::Closing]);
    assert_eq!(*ends.ended_at.lock().unwrap(), Some(at(2000)));
}

#[test]
fn a_closing_server_refuses_new_calls_and_goes_on_with_running_ones() {
    let ends = ends();
    let running = ends.nap(1000);
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(5000) });
    assert!(is_busy(&ends.wait(ends.nap(1))), "the new call is refused at once");
    assert_eq!(ends.executor.now(), at(0));
    assert!(is_result(&ends.wait(running)));
}

#[test]
fn a_closing_client_lets_its_calls_finish_and_makes_no_new_ones() {
    let ends = ends();
    let (short, long) = (ends.nap(1000), ends.nap(60_000));
    ends.executor.run_until_stalled();
    ends.caller.close(Close::Graceful { grace: ms(2000) });
    let refused = ends.caller.call(Invoke::list_tools(None)).unwrap_err();
    assert_eq!(refused.why, SendError::Closing);
    assert!(is_result(&ends.wait(short)));
    assert_eq!(ends.wait(long).outcome, Outcome::Cancelled);
    assert_eq!(ends.executor.now(), at(2000));
    ends.executor.run_until_stalled();
    assert!(matches!(ends.cancel_reasons.lock().unwrap()[..], [CancelReason::Peer(_)]), "the cancel was still sent");
}

#[test]
fn a_second_close_can_shorten_the_grace_of_the_first() {
    let ends = ends();
    let call = ends.nap(60_000);
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(30_000) });
    ends.executor.run_for(ms(500));
    ends.callee.close(Close::Graceful { grace: ms(1000) });
    ends.callee.close(Close::Graceful { grace: ms(50_000) });
    ends.wait(call);
    assert_eq!(ends.executor.now(), at(1500));
    let ends = self::ends();
    let call = ends.nap(60_000);
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(30_000) });
    ends.executor.run_for(ms(500));
    ends.callee.close(Close::Now);
    ends.wait(call);
    assert_eq!(ends.executor.now(), at(500));
}

#[test]
fn each_of_many_calls_around_the_close_ends_once_as_done_cancelled_or_refused() {
    let ends = ends();
    let before_close: Vec<_> = (0..200).map(|call| ends.nap(call * 20)).collect();
    ends.executor.run_for(ms(500));
    ends.callee.close(Close::Graceful { grace: ms(1000) });
    // These calls are made after the close, so the server refuses them.
    let after_close: Vec<_> = (0..100).map(|_| ends.nap(10)).collect();
    ends.executor.run_for(ms(10_000));
    let (caller, executor) = (ends.caller.clone(), ends.executor.clone());
    let mut results = 0;
    for (number, call) in before_close.into_iter().enumerate() {
        let done = ends.wait(call);
        // A call that would end when the grace ends, or later, is cancelled, and gets the result of a failed tool.
        let in_time = number * 20 < 1500;
        results += usize::from(in_time);
        let Outcome::Result(result) = &done.outcome else { panic!("{number}: {done:?}") };
        assert_eq!(result.member("isError").is_none(), in_time, "{number}: {result}");
    }
    assert!(after_close.into_iter().all(|call| is_busy(&ends.wait(call))));
    assert_eq!((results, ends.cancel_reasons.lock().unwrap().len()), (75, 125));
    assert_eq!(caller.call_tool("nap", Json::empty_object()).unwrap_err().why, SendError::Closing);
    assert_eq!((caller.stats().outbound_calls, caller.stats().exchanges_out), (0, 0));
    assert_eq!(executor.block_on(caller.closed()), Some(CloseReason::Eof));
}

#[test]
fn calls_that_are_held_for_the_handshake_end_with_the_session() {
    // The other end never answers the first request, so all calls stay held.
    for (close, outcome) in [(None, Outcome::Lost), (Some(Close::Now), Outcome::Cancelled)] {
        let executor = Executor::new();
        let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
        let peer = client.peer();
        let (near, far) = pipe();
        let mut driver = Driver::new(client, near, executor.timer());
        executor.spawn(async move { while let Ok(Some(_)) = driver.next_event().await {} });
        let calls: Vec<_> = (0..50).map(|_| peer.call_tool("any", Json::empty_object()).unwrap()).collect();
        executor.run_until_stalled();
        match close {
            Some(close) => peer.close(close),
            None => drop(far),
        }
        for call in calls {
            assert_eq!(executor.block_on(call).expect("it ends").outcome, outcome);
        }
    }
}

#[test]
fn calls_are_lost_if_both_drivers_are_dropped_and_none_stays_open() {
    let ends = ends();
    let calls: Vec<_> = (0..20).map(|_| ends.nap(100)).collect();
    ends.executor.run_for(ms(50));
    // Both drivers and all handlers are dropped together, as when a process is killed.
    ends.executor.shutdown();
    for call in calls {
        assert_eq!(ends.executor.block_on(call).expect("it ends").outcome, Outcome::Lost);
    }
    assert_eq!((ends.caller.stats().outbound_calls, ends.callee.stats().inbound_calls), (0, 0));
}

#[test]
fn a_stuck_handler_keeps_the_driver_for_its_grace_counted_from_its_cancellation() {
    let ends = ends();
    let call = ends.caller.call_tool("stuck", Json::empty_object()).unwrap();
    ends.executor.run_for(ms(1000));
    call.cancel(None);
    ends.executor.run_for(ms(2000));
    ends.callee.close(Close::Graceful { grace: ms(60_000) });
    ends.executor.run_until_stalled();
    assert_eq!(
        ends.executor.block_on(ends.callee.closed()),
        Some(CloseReason::Local),
        "the session does not wait for the cancelled handler"
    );
    ends.executor.run_for(ms(60_000));
    assert_eq!(*ends.ended_at.lock().unwrap(), Some(at(6000)), "cancelled after one second, and dropped five seconds later");
}

/// The time at which the driver of a server ends. The client calls `stuck`, cancels the call after one second if `cancels`, and disconnects
/// after two seconds.
fn end_of_driver_after_disconnect(cancels: bool) -> Option<Instant> {
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service(&CancelReasons::default())), executor.runtime());
    let (mut near, far) = pipe();
    let ended_at = Arc::new(Mutex::new(None));
    let mut driver = Driver::new(server, far, executor.timer());
    executor.spawn({
        let (executor, ended_at) = (executor.clone(), Arc::clone(&ended_at));
        async move {
            while let Ok(Some(_)) = driver.next_event().await {}
            *ended_at.lock().unwrap() = Some(executor.now());
        }
    });
    let mut send = |text: &str| near.send(text.to_owned().into()).unwrap();
    send(&initialize(1, "2025-11-25", "{}"));
    send(&notification("notifications/initialized", "{}"));
    send(&request(2, "tools/call", r#"{"name":"stuck"}"#));
    executor.run_for(ms(1000));
    if cancels {
        send(&cancelled(2));
    }
    executor.run_for(ms(1000));
    near.end();
    executor.run_for(ms(60_000));
    *ended_at.lock().unwrap()
}

#[test]
fn after_the_end_of_input_a_stuck_handler_has_the_close_grace_and_then_its_own_grace() {
    assert_eq!(
        end_of_driver_after_disconnect(false),
        Some(at(2000 + 5000 + 5000)),
        "the close grace of 5 s, then the handler's own of 5 s"
    );
    assert_eq!(
        end_of_driver_after_disconnect(true),
        Some(at(1000 + 5000)),
        "a handler that was cancelled before gets no additional time"
    );
}
