//! Outbound calls and the handle `Peer`.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;
use std::collections::BTreeMap;
use std::string::{String, ToString as _};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{json as text, ms, service, value};
use crate::testing::{Executor, connect};
use crate::{BoxFuture, Call, CallError, Client, Context, Endpoint, Peer, Service, Tool};
use protocol_core::config::{CallTimeouts, Config, RateWindow};
use protocol_core::dialect::{Identity, Level, LogRecord, Notification, Op};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{Close, CloseReason, Invoke, Outcome, SendError, TimeoutKind};

/// A client and a server that are connected.
pub(super) struct Pair {
    pub(super) executor: Executor,
    pub(super) client: Peer,
    server: Peer,
}

pub(super) fn pair_of(service: Service, client: Arc<dyn Client>) -> Pair {
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service), executor.runtime());
    let mut config = Config::mcp_client(Identity::new("caller", "1"));
    config.custom_notifications = vec!["notifications/x/y".into()];
    let client = Endpoint::client(client, config, executor.runtime());
    let pair = Pair { executor: executor.clone(), client: client.peer(), server: server.peer() };
    connect(&executor, server, client);
    pair
}

fn pair(tools: impl IntoIterator<Item = Tool>) -> Pair {
    pair_of(tools.into_iter().fold(service(), Service::tool), Arc::new(()))
}

fn echo() -> Tool {
    Tool::new("echo", async |_: Context, given: serde_json::Map<String, serde_json::Value>| Ok(serde_json::Value::Object(given)))
}

/// A tool that counts to 5, one step a second, and notes in `ends` whether it was cancelled ("told") or not ("done").
fn counter(ends: &Arc<Mutex<Vec<&'static str>>>) -> Tool {
    let ends = Arc::clone(ends);
    Tool::new("count", move |context: Context, (): ()| {
        let ends = Arc::clone(&ends);
        async move {
            for step in 1..=5 {
                context.step(step, 5);
                if context.sleep(ms(1000)).await.is_err() {
                    ends.lock().unwrap().push("told");
                    return Ok(());
                }
            }
            ends.lock().unwrap().push("done");
            Ok(())
        }
    })
}

impl Pair {
    fn call(&self, name: &str) -> Call {
        self.client.call_tool(name, Json::empty_object()).unwrap()
    }

    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.executor.block_on(future).expect("it ends")
    }
}

#[test]
fn a_canceller_ends_a_call_whose_progress_is_awaited() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let mut call = pair.call("count");
    let canceller = call.canceller();
    let mut updates = 0;
    pair.wait(async {
        while call.next_progress().await.is_some() {
            updates += 1;
            if updates == 2 {
                canceller.clone().cancel(Some("enough"));
            }
        }
    });
    assert_eq!((updates, pair.wait(call).outcome), (2, Outcome::Cancelled));
    canceller.cancel(None); // the call has ended, so this has no effect
    assert_eq!(*ends.lock().unwrap(), ["told"]);
}

#[test]
fn the_result_of_a_tool_is_read_as_a_type() {
    let raw = |text: &'static str| async move |_: Context, ()| Ok(serde_json::Value::String(text.into()));
    let fails = Tool::new("fails", async |_: Context, ()| Err::<(), _>(crate::ToolError::failed("no disk")));
    let tools = [echo(), Tool::new("seven", async |_: Context, ()| Ok(7)), Tool::new("text", raw("plain")), fails];
    let pair = pair(tools);
    let peer = &pair.client;
    let nothing = serde_json::Map::new();
    let echoed: BTreeMap<String, u8> = pair.wait(peer.call_tool_as("echo", &json!({"a": 1}))).unwrap();
    assert_eq!(echoed, BTreeMap::from([("a".to_string(), 1)]));
    assert_eq!(pair.wait(peer.call_tool_as::<u8>("seven", &nothing)), Ok(7));
    assert_eq!(pair.wait(peer.call_tool_as::<String>("text", &nothing)), Ok("plain".to_string()));
    let error = pair.wait(peer.call_tool_as::<u8>("text", &nothing)).unwrap_err();
    assert!(matches!(error, CallError::Unreadable(_)), "{error}");
    let error = pair.wait(peer.call_tool_as::<()>("fails", &nothing)).unwrap_err();
    assert_eq!(error.to_string(), "the tool failed: no disk");
}

#[test]
fn a_call_made_before_the_handshake_is_held_and_then_answered() {
    let pair = pair([echo()]);
    assert_eq!(pair.client.info(), None);
    let call = pair.client.call_tool("echo", text(json!({"a": 1}))).unwrap();
    let done = pair.wait(call);
    assert_eq!(value(&done.result().unwrap())["structuredContent"], json!({"a": 1}));
    assert_eq!(pair.wait(pair.client.ready()).unwrap().identity.name, "tested");
    assert_eq!(pair.wait(pair.server.ready()).unwrap().identity.name, "caller");
    assert_eq!(pair.client.info().unwrap().identity.name, "tested");
}

#[test]
fn a_call_yields_all_its_progress_and_then_its_outcome() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let mut call = pair.call("count");
    let mut seen = Vec::new();
    pair.wait(async {
        while let Some(update) = call.next_progress().await {
            seen.push(update.value.unwrap());
        }
        assert_eq!(call.next_progress().await, None);
    });
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0, 5.0]);
    let done = pair.wait(&mut call);
    assert_eq!(done.last.and_then(|last| last.value), Some(5.0));
    assert!(matches!(done.outcome, Outcome::Result(_)));
    assert_eq!(pair.executor.block_on(&mut call), None, "the outcome is returned only once");
}

#[test]
fn progress_that_arrives_with_the_result_is_yielded_before_the_result() {
    let burst = Tool::new("burst", async |context: Context, (): ()| {
        (1..=100).for_each(|step| context.step(step, 100));
        Ok(())
    })
    .rate_window(RateWindow::UNLIMITED);
    let pair = pair([burst]);
    let mut call = pair.call("burst");
    // Everything has arrived before the call is first polled.
    pair.executor.run_until_stalled();
    let mut seen = 0;
    pair.wait(async {
        while call.next_progress().await.is_some() {
            seen += 1;
        }
    });
    assert_eq!(seen, 100);
}

#[test]
fn a_cancel_settles_the_call_and_reaches_the_handler_once() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let mut call = pair.call("count");
    pair.executor.run_for(ms(1500));
    call.cancel(Some("enough"));
    call.cancel(None);
    let done = pair.wait(&mut call);
    assert_eq!(done.outcome, Outcome::Cancelled);
    assert_eq!(done.last.and_then(|last| last.value), Some(2.0));
    drop(call);
    pair.executor.run_for(ms(10_000));
    assert_eq!(*ends.lock().unwrap(), ["told"]);
    assert_eq!((pair.server.running(), pair.server.stats().inbound_calls, pair.client.stats().outbound_calls), (0, 0, 0));
}

#[test]
fn calls_that_are_dropped_on_another_thread_are_cancelled() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let calls: Vec<Call> = (0..100).map(|_| pair.call("count")).collect();
    pair.executor.run_for(ms(500));
    assert_eq!(pair.server.running(), 100);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(calls));
    });
    pair.executor.run_until_stalled();
    assert_eq!(*ends.lock().unwrap(), ["told"; 100]);
    assert_eq!((pair.server.running(), pair.client.stats().outbound_calls), (0, 0));
}

#[test]
fn a_call_dropped_before_its_frame_is_written_is_never_sent() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    drop(pair.call("count"));
    pair.executor.run_for(ms(100));
    assert_eq!(pair.server.stats().frames_in, 2, "the two frames of the handshake");
}

#[test]
fn dropping_a_call_that_has_ended_sends_nothing() {
    let pair = pair([echo()]);
    let call = pair.call("echo");
    pair.executor.run_until_stalled();
    let before = pair.client.stats().frames_out;
    drop(call);
    pair.executor.run_until_stalled();
    assert_eq!(pair.client.stats().frames_out, before);
}

#[test]
fn a_detached_call_continues() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    pair.call("count").detach();
    pair.executor.run_for(ms(10_000));
    assert_eq!(*ends.lock().unwrap(), ["done"]);
    assert_eq!(pair.client.stats().outbound_calls, 0);
}

#[test]
fn a_call_continues_when_the_handles_of_both_ends_are_dropped() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let Pair { executor, client, server } = pair;
    let call = client.call_tool("count", Json::empty_object()).unwrap();
    drop((client, server));
    assert!(matches!(executor.block_on(call).unwrap().outcome, Outcome::Result(_)));
}

#[test]
fn a_call_with_its_own_time_limit_times_out_by_that_limit() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let timeouts = CallTimeouts::default().with_idle(Some(ms(900)));
    let params = text(json!({"name": "count"}));
    let call = pair.client.call(Invoke::new(Op::CallTool, params).with_timeouts(timeouts)).unwrap();
    assert_eq!(pair.wait(call).outcome, Outcome::TimedOut(TimeoutKind::Idle));
    assert_eq!(pair.executor.now(), protocol_core::Instant::from_millis(900));
    pair.executor.run_until_stalled();
    assert_eq!(*ends.lock().unwrap(), ["told"]);
}

#[test]
fn a_task_that_awaits_the_outcome_of_a_call_is_not_woken_by_progress() {
    let ends = Arc::default();
    let pair = pair([counter(&ends)]);
    let mut call = pair.call("count");
    let mut polls = 0;
    pair.wait(poll_fn(|cx| {
        polls += 1;
        match Pin::new(&mut call).poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }));
    assert_eq!(polls, 2);
}

#[test]
fn a_quick_call_overtakes_a_slow_call_and_calls_are_sent_in_order() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::clone(&order);
    let notes = Tool::new("notes", move |_: Context, given: serde_json::Map<String, serde_json::Value>| {
        inside.lock().unwrap().push(given["n"].as_u64().unwrap());
        core::future::ready(Ok(()))
    });
    let slow = Tool::new("slow", async |context: Context, (): ()| Ok(context.sleep(ms(500)).await?));
    let pair = pair([notes, slow]);
    let slow = pair.call("slow");
    let calls: Vec<Call> = (0..900).map(|n| pair.client.call_tool("notes", text(json!({"n": n}))).unwrap()).collect();
    for call in calls {
        assert!(pair.wait(call).result().is_ok());
    }
    assert_eq!(pair.executor.now(), protocol_core::Instant::ZERO, "nothing waited for the slow one");
    assert_eq!(*order.lock().unwrap(), (0..900).collect::<Vec<_>>());
    assert!(pair.wait(slow).result().is_ok());
}

#[test]
fn calls_above_the_limit_are_refused_and_returned_to_the_caller() {
    let stuck = Tool::new("stuck", async |_: Context, (): ()| {
        core::future::pending::<()>().await;
        Ok(())
    });
    let pair = pair([stuck]);
    let calls: Vec<Call> = (0..1024).map(|_| pair.call("stuck")).collect();
    let refused = pair.client.call_tool("stuck", Json::empty_object()).unwrap_err();
    assert_eq!((refused.why, refused.call.op()), (SendError::Full, Op::CallTool));
    pair.executor.run_until_stalled();
    drop(calls);
    pair.executor.run_until_stalled();
    assert_eq!(pair.client.stats().outbound_calls, 0);
    // The handlers ignore their cancellation, so they count as calls in flight until their grace is over.
    assert_eq!((pair.server.running(), pair.server.stats().cancelled_calls), (1024, 1024));
    let busy = pair.wait(pair.call("stuck")).result().unwrap_err();
    assert!(matches!(&busy, CallError::Rpc(error) if error.code == RpcError::BUSY), "{busy}");
    pair.executor.run_for(ms(5000));
    assert_eq!((pair.server.running(), pair.server.stats().inbound_calls), (0, 0));
    assert_eq!(pair.server.counters().abandoned, 1024);
}

#[test]
fn arguments_that_are_not_an_object_are_refused() {
    let pair = pair([echo()]);
    let refused = pair.client.call_tool("echo", Json::parse("[1]").unwrap()).unwrap_err();
    assert_eq!(refused.why, SendError::Params);
    let refused = pair.client.call_tool_with("echo", &[1]).unwrap_err();
    assert!(
        matches!(&refused, CallError::NotSent(error) if error.why == SendError::Params && error.call.given().unwrap().as_str() == "[1]")
    );
}

#[test]
fn typed_arguments_arrive_as_json_unless_they_cannot_be_written() {
    let pair = pair([echo()]);
    let written = |arguments| pair.wait(pair.client.call_tool_with("echo", arguments).unwrap()).result().unwrap();
    let arguments = BTreeMap::from([("a", "x".repeat(300)), ("b \"\n", String::new())]);
    let result = pair.wait(pair.client.call_tool("echo", Json::encode(&arguments).unwrap()).unwrap()).result().unwrap();
    assert_eq!(written(&arguments), result);
    assert!(result.as_str().contains(&"x".repeat(300)));
    let no_json = pair.client.call_tool_with("echo", &BTreeMap::from([([1], 2)])).unwrap_err();
    let expected = "not sent, since its arguments are no JSON: cannot be written as JSON: key must be a string";
    assert_eq!(no_json.to_string(), expected);
    // An object that contains arrays: `depth` levels in all.
    let nested = |depth| json!({ "a": (1..depth).fold(json!(1), |inner, _| json!([inner])) });
    assert_eq!(pair.wait(pair.client.call_tool_with("echo", &nested(120)).unwrap()).result(), {
        pair.wait(pair.client.call_tool("echo", Json::encode(&nested(120)).unwrap()).unwrap()).result()
    });
    assert!(matches!(pair.client.call_tool_with("echo", &nested(121)), Err(CallError::Unwritable(_))));
}

/// The thread-local buffer for arguments may be destroyed before another thread-local value of the same thread is dropped.
#[test]
fn a_call_is_made_while_its_thread_ends() {
    /// Makes a call when it is dropped, and reports whether that succeeded.
    struct CallsOnDrop(Peer, Arc<Mutex<Vec<bool>>>);

    impl Drop for CallsOnDrop {
        fn drop(&mut self) {
            let made = self.0.call_tool_with("echo", &BTreeMap::from([("bye", true)])).is_ok();
            self.1.lock().unwrap().push(made);
        }
    }

    std::thread_local! {
        static CALLS_ON_DROP: core::cell::Cell<Option<CallsOnDrop>> = const { core::cell::Cell::new(None) };
    }

    // A thread may drop its values in the order of their first use, or in reverse. The call below makes the buffer.
    for is_buffer_last in [false, true] {
        let pair = pair([echo()]);
        let made = Arc::default();
        let (client, calls_on_drop) = (pair.client.clone(), CallsOnDrop(pair.client.clone(), Arc::clone(&made)));
        let calls = move || {
            if is_buffer_last {
                CALLS_ON_DROP.set(Some(calls_on_drop));
                drop(client.call_tool_with("echo", &BTreeMap::from([("still", true)])).unwrap());
            } else {
                drop(client.call_tool_with("echo", &BTreeMap::from([("still", true)])).unwrap());
                CALLS_ON_DROP.set(Some(calls_on_drop));
            }
        };
        std::thread::spawn(calls).join().unwrap();
        assert_eq!(*made.lock().unwrap(), [true]);
    }
}

#[test]
fn a_peer_lists_all_pages_pings_and_sets_the_log_level() {
    let tool = |n| Tool::new(format!("t{n:02}"), async |_: Context, (): ()| Ok(()));
    let pair = pair_of((0..25).map(tool).fold(service().page_size(4), Service::tool), Arc::new(()));
    let tools = pair.wait(pair.client.list_tools()).unwrap();
    assert_eq!(
        tools.iter().map(|tool| String::from(&*tool.name)).collect::<Vec<_>>(),
        (0..25).map(|n| format!("t{n:02}")).collect::<Vec<_>>()
    );
    let missing = pair.wait(pair.client.list_prompts()).unwrap_err();
    assert!(matches!(missing.why, CallError::NotSent(ref refused) if refused.why == SendError::Unsupported), "{missing}");
    assert!(pair.wait(pair.client.ping()).is_ok());
    assert!(pair.wait(pair.server.ping()).is_ok());
    assert!(pair.wait(pair.client.set_log_level(Level::Error)).is_ok());
}

#[test]
fn logs_and_notices_reach_the_client_in_order() {
    #[derive(Default)]
    struct RecordingClient(Mutex<Vec<String>>);
    impl Client for RecordingClient {
        fn log(&self, record: LogRecord) {
            self.0.lock().unwrap().push(format!("{} {}", record.level, record.data));
            assert!(record.data.as_str() != "\"panic\"", "a client that panics stops nothing");
        }
        fn notification(&self, notification: Notification) {
            self.0.lock().unwrap().push(format!("{notification:?}"));
        }
    }
    let client = Arc::new(RecordingClient::default());
    let pair = pair_of(service().tool(echo()), Arc::clone(&client) as Arc<dyn Client>);
    pair.wait(pair.server.ready()).unwrap();
    pair.executor.run_until_stalled();
    for data in ["\"one\"", "\"panic\"", "\"two\""] {
        pair.server.log(LogRecord::new(Level::Warning, Json::parse(data).unwrap()));
    }
    let custom = Notification::Custom { method: "notifications/x/y".into(), params: None };
    pair.server.notify(custom).unwrap();
    pair.executor.run_until_stalled();
    let recorded = client.0.lock().unwrap().clone();
    assert_eq!(recorded[..3], ["warning \"one\"", "warning \"panic\"", "warning \"two\""].map(String::from));
    assert!(recorded[3].contains("notifications/x/y"), "{recorded:?}");
    assert_eq!(pair.client.counters().panics, 1);
}

#[test]
fn a_close_by_the_client_closes_the_sessions_of_both_ends() {
    let pair = pair([echo()]);
    pair.wait(pair.client.ready()).unwrap();
    pair.client.close(Close::Now);
    assert_eq!(pair.wait(pair.client.closed()), CloseReason::Local);
    assert_eq!(pair.wait(pair.server.closed()), CloseReason::Eof);
    assert_eq!(pair.wait(pair.client.ready()), Err(CloseReason::Local));
    assert_eq!(pair.client.call_tool("echo", Json::empty_object()).unwrap_err().why, SendError::Closing);
}

#[test]
fn the_result_of_a_failed_tool_has_the_error_flag() {
    let pair = pair([echo(), Tool::new("fails", async |_: Context, (): ()| Err::<(), _>("no ink".into()))]);
    let tool = |name: &str| pair.wait(pair.client.call_tool(name, text(json!({}))).unwrap()).tool().unwrap();
    let failed = tool("fails");
    assert_eq!((failed.text().as_str(), failed.is_error, failed.structured), ("no ink", true, None));
    let echoed = tool("echo");
    assert_eq!((echoed.text().as_str(), echoed.is_error, echoed.structured.as_ref().map(Json::as_str)), ("{}", false, Some("{}")));
    assert!(matches!(pair.wait(pair.client.call_tool("missing", text(json!({}))).unwrap()).tool(), Err(CallError::Rpc(_))));
}

#[test]
fn custom_methods_are_served_by_services_and_by_clients() {
    struct ServingClient;
    impl Client for ServingClient {
        fn methods(&self) -> Vec<String> {
            vec!["acme/ask".into()]
        }
        fn request(&self, context: Context, method: &str, params: Json) -> BoxFuture<'static, Result<Json, RpcError>> {
            let method = String::from(method);
            Box::pin(async move {
                context.sleep(ms(10)).await.map_err(|_| RpcError::internal("stopped"))?;
                Ok(text(json!({"method": method, "given": value(&params)})))
            })
        }
    }
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&received);
    let service =
        service().notification("acme/news", move |params| recorder.lock().unwrap().push(params.map(|params| value(&params))));
    let service = service.tool(echo()).method("acme/do", async |context: Context, params: Json| {
        context.sleep(ms(10)).await?;
        if params.member("fail").is_some() {
            return Err("as you wish".into());
        }
        Ok(params)
    });
    let pair = pair_of(service, Arc::new(ServingClient));
    let exchange = |peer: &Peer, method: &str, params| pair.wait(peer.call(Invoke::custom(method, text(params))).unwrap()).result();
    let done = exchange(&pair.client, "acme/do", json!({"a": [1]})).unwrap();
    assert_eq!(value(&done)["a"], json!([1]));
    let failed = exchange(&pair.client, "acme/do", json!({"fail": true})).unwrap_err();
    assert!(matches!(failed, CallError::Rpc(ref error) if &*error.message == "as you wish"), "{failed}");
    let answered = value(&exchange(&pair.server, "acme/ask", json!({"b": 2})).unwrap());
    assert_eq!((&answered["method"], &answered["given"]["b"]), (&json!("acme/ask"), &json!(2)));
    for method in ["acme/news", "acme/other"] {
        pair.client.notify(Notification::Custom { method: method.into(), params: Some(text(json!({"n": 1}))) }).unwrap();
    }
    assert!(exchange(&pair.client, "acme/do", json!({})).is_ok());
    assert_eq!(*received.lock().unwrap(), [Some(json!({"n": 1}))]);
    for (peer, method) in [(&pair.client, "acme/other"), (&pair.server, "acme/do")] {
        let unknown = exchange(peer, method, json!({})).unwrap_err();
        assert!(matches!(unknown, CallError::Rpc(ref error) if error.code == RpcError::METHOD_NOT_FOUND), "{unknown}");
    }
}

#[test]
fn a_handler_gets_its_caller_and_the_meta_of_its_request() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&seen);
    let look = Tool::new("look", move |context: Context, (): ()| {
        let caller = context.caller();
        let meta = context.meta().map(|meta| meta.member("x").unwrap_or_default().to_string());
        saw.lock().unwrap().push((caller.identity().name.clone(), caller.trace_parent().map(String::from), meta));
        async { Ok(()) }
    });
    let pair = pair([look.inline()]);
    let call = || Invoke::call_tool("look", text(json!({}))).without_progress().with_timeouts(CallTimeouts::NONE);
    pair.wait(pair.client.call(call().with_meta(text(json!({"traceparent": "00-1", "x": [1]})))).unwrap()).result().unwrap();
    pair.wait(pair.client.call(call()).unwrap()).result().unwrap();
    let caller = String::from("caller");
    assert_eq!(*seen.lock().unwrap(), [(caller.clone(), Some("00-1".into()), Some("[1]".into())), (caller, None, None)]);
}
