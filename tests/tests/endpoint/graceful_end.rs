//! How a connection ends in an orderly way: what runs may finish, what is left is cancelled, and every caller hears how its call ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint::testing::{Executor, pipe};
use endpoint::{Call, CallOutcome, Context, Endpoint, Peer, Service, Tool};
use protocol_core::drive::Driver;
use protocol_core::{
    CallTimeouts, CancelReason, Close, CloseReason, Config, Identity, Instant, Invoke, Json, Outcome, Refused, RpcError,
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
    /// how long
    ms: u64,
}

/// Why naps were cut short, in order.
type Told = Arc<Mutex<Vec<CancelReason>>>;

/// `nap` sleeps as long as it is told; `stuck` never looks.
fn service(told: &Told) -> Service {
    let told = Arc::clone(told);
    let nap = Tool::new("nap", move |context: Context, nap: Nap| {
        let told = Arc::clone(&told);
        async move {
            if let Err(stopped) = context.sleep(ms(nap.ms)).await {
                told.lock().unwrap().push(stopped.0);
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
    told: Told,
    /// When the driver of the callee was done.
    over: Arc<Mutex<Option<Instant>>>,
}

fn ends() -> Ends {
    let executor = Executor::new();
    let told = Told::default();
    let server = Endpoint::server(Arc::new(service(&told)), executor.runtime());
    let mut config = Config::mcp_client(Identity::new("caller", "1"));
    config.timeouts.call = CallTimeouts::NONE;
    let client = Endpoint::client(Arc::new(()), config, executor.runtime());
    let (caller, callee) = (client.peer(), server.peer());
    let (near, far) = pipe();
    let over = Arc::new(Mutex::new(None));
    let mut near = Driver::new(client, near, executor.timer());
    executor.spawn(async move { while let Ok(Some(_)) = near.next_event().await {} });
    let mut far = Driver::new(server, far, executor.timer());
    executor.spawn({
        let (executor, over) = (executor.clone(), Arc::clone(&over));
        async move {
            while let Ok(Some(_)) = far.next_event().await {}
            *over.lock().unwrap() = Some(executor.now());
        }
    });
    executor.run_until_stalled();
    Ends { executor, caller, callee, told, over }
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
    assert_eq!(ends.executor.now(), at(4000), "it does not wait out its grace");
    assert_eq!((ends.told.lock().unwrap().len(), ends.callee.stats().inbound_calls), (0, 0));
}

#[test]
fn what_has_not_finished_within_the_grace_is_cancelled_and_its_caller_is_answered() {
    let ends = ends();
    let (quick, slow) = (ends.nap(1000), ends.nap(60_000));
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(2000) });
    let slow = ends.wait(slow);
    assert_eq!(ends.executor.now(), at(2000));
    let Outcome::Result(result) = &slow.outcome else { panic!("{slow:?}") };
    assert_eq!(result.member("isError").as_ref().map(Json::as_str), Some("true"), "a result that says so: {result}");
    assert!(is_result(&ends.wait(quick)));
    ends.executor.run_until_stalled();
    assert_eq!(*ends.told.lock().unwrap(), [CancelReason::Closing]);
    assert_eq!(*ends.over.lock().unwrap(), Some(at(2000)));
}

#[test]
fn a_server_that_closes_refuses_what_is_new_and_goes_on_with_the_rest() {
    let ends = ends();
    let running = ends.nap(1000);
    ends.executor.run_until_stalled();
    ends.callee.close(Close::Graceful { grace: ms(5000) });
    assert!(is_busy(&ends.wait(ends.nap(1))), "told at once, so that it may go elsewhere");
    assert_eq!(ends.executor.now(), at(0));
    assert!(is_result(&ends.wait(running)));
}

#[test]
fn a_client_that_closes_lets_its_calls_finish_and_makes_no_new_ones() {
    let ends = ends();
    let (short, long) = (ends.nap(1000), ends.nap(60_000));
    ends.executor.run_until_stalled();
    ends.caller.close(Close::Graceful { grace: ms(2000) });
    let refused = ends.caller.call(Invoke::list_tools(None)).unwrap_err();
    assert_eq!(refused.why, Refused::Closing);
    assert!(is_result(&ends.wait(short)));
    assert_eq!(ends.wait(long).outcome, Outcome::Cancelled);
    assert_eq!(ends.executor.now(), at(2000));
    ends.executor.run_until_stalled();
    assert!(matches!(ends.told.lock().unwrap()[..], [CancelReason::Peer(_)]), "the cancel was still sent");
}

#[test]
fn a_second_close_hastens_the_first() {
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
fn of_many_calls_around_the_end_each_ends_exactly_once_and_is_done_or_refused_or_lost() {
    let ends = ends();
    let early: Vec<_> = (0..200).map(|call| ends.nap(call * 20)).collect();
    ends.executor.run_for(ms(500));
    ends.callee.close(Close::Graceful { grace: ms(1000) });
    // Made after the close: some reach a server that refuses, and those after its end reach nobody.
    let late: Vec<_> = (0..100).map(|_| ends.nap(10)).collect();
    ends.executor.run_for(ms(10_000));
    let (caller, executor) = (ends.caller.clone(), ends.executor.clone());
    let mut results = 0;
    for (number, call) in early.into_iter().enumerate() {
        let done = ends.wait(call);
        // At the same moment the end counts.
        let in_time = number * 20 < 1500;
        results += usize::from(in_time);
        let Outcome::Result(result) = &done.outcome else { panic!("{number}: {done:?}") };
        assert_eq!(result.member("isError").is_none(), in_time, "{number}: {result}");
    }
    assert!(late.into_iter().all(|call| is_busy(&ends.wait(call))));
    assert_eq!((results, ends.told.lock().unwrap().len()), (75, 125));
    assert_eq!(caller.call_tool("nap", Json::empty_object()).unwrap_err().why, Refused::Closing);
    assert_eq!((caller.stats().outbound_calls, caller.stats().exchanges_out), (0, 0));
    assert_eq!(executor.block_on(caller.closed()), Some(CloseReason::Eof));
}

#[test]
fn calls_that_wait_for_the_handshake_or_to_be_written_hear_how_it_ended() {
    // Nobody reads at the other end, so nothing that is queued leaves.
    for (how, outcome) in [(None, Outcome::Lost), (Some(Close::Now), Outcome::Cancelled)] {
        let executor = Executor::new();
        let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("caller", "1")), executor.runtime());
        let peer = client.peer();
        let (near, far) = pipe();
        let mut driver = Driver::new(client, near, executor.timer());
        executor.spawn(async move { while let Ok(Some(_)) = driver.next_event().await {} });
        let calls: Vec<_> = (0..50).map(|_| peer.call_tool("any", Json::empty_object()).unwrap()).collect();
        executor.run_until_stalled();
        match how {
            Some(how) => peer.close(how),
            None => drop(far),
        }
        for call in calls {
            assert_eq!(executor.block_on(call).expect("it ends").outcome, outcome);
        }
    }
}

#[test]
fn results_that_a_peer_does_not_read_are_lost_to_their_callers_and_no_call_stays_open() {
    let ends = ends();
    let calls: Vec<_> = (0..20).map(|_| ends.nap(100)).collect();
    ends.executor.run_for(ms(50));
    // Both drivers and every handler go at once, as when a process is killed.
    ends.executor.shutdown();
    for call in calls {
        assert_eq!(ends.executor.block_on(call).expect("it ends").outcome, Outcome::Lost);
    }
    assert_eq!((ends.caller.stats().outbound_calls, ends.callee.stats().inbound_calls), (0, 0));
}

#[test]
fn a_stuck_handler_holds_the_connection_for_its_grace_counted_from_when_it_was_told() {
    let ends = ends();
    let call = ends.caller.call_tool("stuck", Json::empty_object()).unwrap();
    ends.executor.run_for(ms(1000));
    call.cancel(None);
    ends.executor.run_for(ms(2000));
    ends.callee.close(Close::Graceful { grace: ms(60_000) });
    ends.executor.run_until_stalled();
    assert_eq!(ends.executor.block_on(ends.callee.closed()), Some(CloseReason::Local), "the session waits for no orphan");
    ends.executor.run_for(ms(60_000));
    assert_eq!(*ends.over.lock().unwrap(), Some(at(6000)), "told after one second, and given five");
}

/// When the driver of a server is done whose client calls `stuck`, perhaps cancels it after a second, and leaves after two.
fn left_by_a_client(cancels: bool) -> Option<Instant> {
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service(&Told::default())), executor.runtime());
    let (mut near, far) = pipe();
    let over = Arc::new(Mutex::new(None));
    let mut driver = Driver::new(server, far, executor.timer());
    executor.spawn({
        let (executor, over) = (executor.clone(), Arc::clone(&over));
        async move {
            while let Ok(Some(_)) = driver.next_event().await {}
            *over.lock().unwrap() = Some(executor.now());
        }
    });
    let mut say = |text: &str| near.send(text.to_owned().into()).unwrap();
    say(&initialize(1, "2025-11-25", "{}"));
    say(&notification("notifications/initialized", "{}"));
    say(&request(2, "tools/call", r#"{"name":"stuck"}"#));
    executor.run_for(ms(1000));
    if cancels {
        say(&cancelled(2));
    }
    executor.run_for(ms(1000));
    near.end();
    executor.run_for(ms(60_000));
    *over.lock().unwrap()
}

#[test]
fn at_the_end_of_input_a_stuck_handler_is_told_after_the_close_grace_and_then_has_its_own() {
    assert_eq!(left_by_a_client(false), Some(at(2000 + 5000 + 5000)), "what was read may still be answered for five seconds");
    assert_eq!(left_by_a_client(true), Some(at(1000 + 5000)), "one that was told before has no more than it had");
}
