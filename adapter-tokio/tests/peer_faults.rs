//! What other SDKs get wrong where tasks and threads meet, row by row of `peer-faults.md`: here with real threads. Each on a runtime of one
//! thread and on one of two workers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use adapter_tokio::{Connection, LineIo, connect, duplex, serve};
use protocol_core::endpoint::{Context, Peer, Service, Tool, ToolError};
use protocol_core::{Close, Config, Identity, Json, Outcome, Progress, RateWindow, Sample};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

/// As tasks: the future that a runtime blocks on runs on no worker, and on one thread only now and then.
macro_rules! on_one_thread_and_on_two {
    ($($row:ident)*) => {
        mod on_one_thread {$(
            #[tokio::test]
            async fn $row() {
                tokio::spawn(super::$row()).await.unwrap();
            }
        )*}
        mod on_two_workers {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $row() {
                tokio::spawn(super::$row()).await.unwrap();
            }
        )*}
    };
}

on_one_thread_and_on_two! {
    a_thousand_requests_leave_in_the_order_in_which_they_are_made
    a_request_leaves_before_its_cancel_or_neither_does
    every_handler_of_a_thousand_dropped_calls_is_told_and_both_tables_are_empty
    a_thousand_updates_in_a_tight_loop_arrive_in_order_before_the_result
    two_tasks_that_report_at_once_never_make_progress_go_backwards
    a_handler_that_panics_is_an_error_for_its_caller_and_the_server_lives
    a_quick_call_does_not_wait_behind_slow_ones
    calls_that_were_read_before_the_end_of_input_are_answered
    a_handler_that_awaits_its_caller_ends_at_once_when_the_input_does
    of_fifty_thousand_requests_that_never_end_as_many_run_as_may_and_the_rest_are_told
}

fn identity() -> Identity {
    Identity::new("test", "1")
}

fn nothing() -> Json {
    Json::parse("{}").unwrap()
}

/// A client and a server, joined in memory.
fn pair(service: Service) -> (Connection, Connection) {
    let (one, other) = duplex(4096);
    (connect(Arc::new(()), Config::mcp_client(identity()), one), serve(Arc::new(service), other))
}

/// Until `condition` holds, five seconds at most.
async fn until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(5), "it never came to that");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The wire itself at the other end.
struct Wire(BufReader<DuplexStream>);

impl Wire {
    fn new() -> (Self, LineIo<impl tokio::io::AsyncRead + Unpin + Send, impl tokio::io::AsyncWrite + Unpin + Send>) {
        let (one, other) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(one);
        (Self(BufReader::new(other)), LineIo::new(reader, writer))
    }

    async fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.0.read_line(&mut line).await.unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn write(&mut self, message: Value) {
        self.0.get_mut().write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Takes a client through the handshake.
    async fn client() -> (Self, Peer, Connection) {
        let (mut wire, transport) = Self::new();
        let connection = connect(Arc::new(()), Config::mcp_client(identity()), transport);
        let id = wire.read().await.unwrap()["id"].clone();
        let info = json!({"name": "wire", "version": "1"});
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info});
        wire.write(json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
        assert_eq!(wire.read().await.unwrap()["method"], "notifications/initialized");
        (wire, connection.peer(), connection)
    }

    /// Takes a server through the handshake.
    async fn server(service: Service) -> (Self, Connection) {
        let (mut wire, transport) = Self::new();
        let connection = serve(Arc::new(service), transport);
        let info = json!({"name": "wire", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": info});
        wire.write(json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params})).await;
        assert_eq!(wire.read().await.unwrap()["id"], "hello");
        wire.write(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        (wire, connection)
    }

    async fn call(&mut self, id: usize, tool: &str) {
        self.write(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}})).await;
    }
}

async fn a_thousand_requests_leave_in_the_order_in_which_they_are_made() {
    let (mut wire, peer, _connection) = Wire::client().await;
    let calls: Vec<_> =
        (0..1000).map(|number| peer.call_tool("any", Json::parse(format!(r#"{{"number":{number}}}"#)).unwrap()).unwrap()).collect();
    for number in 0..1000 {
        assert_eq!(wire.read().await.unwrap()["params"]["arguments"]["number"], number);
    }
    drop(calls);
}

async fn a_request_leaves_before_its_cancel_or_neither_does() {
    let (mut wire, peer, connection) = Wire::client().await;
    let calls = tokio::spawn(async move {
        for number in 0..1000 {
            let call = peer.call_tool("any", nothing()).unwrap();
            if number % 3 == 0 {
                tokio::task::yield_now().await;
            }
            call.cancel(None);
            assert_eq!(call.await.outcome, Outcome::Cancelled);
        }
        peer.close(Close::Now);
    });
    let (mut open, mut cancelled) = (BTreeSet::new(), 0);
    while let Some(message) = wire.read().await {
        if message["method"] == "tools/call" {
            assert!(open.insert(message["id"].as_u64().unwrap()));
        } else {
            assert_eq!(message["method"], "notifications/cancelled");
            assert!(open.remove(&message["params"]["requestId"].as_u64().unwrap()), "cancelled before it was asked");
            cancelled += 1;
        }
    }
    assert!(open.is_empty(), "{} calls were never cancelled", open.len());
    assert!(cancelled <= 1000);
    calls.await.unwrap();
    connection.await.unwrap();
}

async fn every_handler_of_a_thousand_dropped_calls_is_told_and_both_tables_are_empty() {
    let (begun, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (begun.clone(), told.clone());
    let service = Service::new(identity()).tool(Tool::new("wait", move |context: Context, ()| {
        let (begun, told) = counters.clone();
        async move {
            begun.fetch_add(1, Ordering::Relaxed);
            context.cancelled().await;
            told.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(ToolError::Cancelled)
        }
    }));
    let (calling, serving) = pair(service);
    let (caller, callee) = (calling.peer(), serving.peer());
    let calls: Vec<_> = (0..1000).map(|_| caller.call_tool("wait", nothing()).unwrap()).collect();
    until(|| begun.load(Ordering::Relaxed) == 1000).await;
    drop(calls);
    until(|| told.load(Ordering::Relaxed) == 1000).await;
    until(|| callee.stats().serves == 0 && caller.stats().calls == 0).await;
}

async fn a_thousand_updates_in_a_tight_loop_arrive_in_order_before_the_result() {
    let tool = Tool::new("tight", async |context: Context, ()| {
        for step in 1..=1000 {
            context.count(step, 1000);
        }
        Ok("done")
    });
    let (calling, _serving) = pair(Service::new(identity()).tool(tool.rate_window(RateWindow::UNLIMITED)));
    let mut call = calling.peer().call_tool("tight", nothing()).unwrap();
    for step in 1..=1000 {
        assert_eq!(call.next_progress().await.unwrap().value, Some(f64::from(step)));
    }
    assert!(call.next_progress().await.is_none());
    assert!(matches!(call.await.outcome, Outcome::Result(_)));
}

async fn two_tasks_that_report_at_once_never_make_progress_go_backwards() {
    let tool = Tool::new("twins", async |context: Context, ()| {
        let twins = [0, 1].map(|_| {
            let context = context.clone();
            tokio::spawn(async move {
                for step in 1..=500 {
                    context.progress(Progress::value(f64::from(step)));
                    tokio::task::yield_now().await;
                }
            })
        });
        for twin in twins {
            twin.await.unwrap();
        }
        Ok("done")
    });
    let (mut wire, _connection) = Wire::server(Service::new(identity()).tool(tool.rate_window(RateWindow::UNLIMITED))).await;
    let params = json!({"name": "twins", "_meta": {"progressToken": 7}});
    wire.write(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
    let mut last = 0.0;
    loop {
        let message = wire.read().await.unwrap();
        if message["id"] == 1 {
            break;
        }
        let value = message["params"]["progress"].as_f64().unwrap();
        assert!(value > last, "{value} after {last}");
        last = value;
    }
    assert_eq!(last, 500.0);
}

async fn a_handler_that_panics_is_an_error_for_its_caller_and_the_server_lives() {
    let service = Service::new(identity())
        .tool(Tool::new("panic", async |_: Context, ()| -> Result<(), ToolError> { panic!("on purpose") }))
        .tool(Tool::blocking("panic_on_its_thread", |_: Context, ()| -> Result<(), ToolError> { panic!("on purpose") }))
        .tool(Tool::new("greet", async |_: Context, ()| Ok("hello")));
    let (calling, _serving) = pair(service);
    for tool in ["panic", "panic_on_its_thread"] {
        let done = calling.peer().call_tool(tool, nothing()).unwrap().await;
        let Outcome::Error(error) = done.outcome else { panic!("{tool}: {:?}", done.outcome) };
        assert_eq!(error.code, -32603);
        let done = calling.peer().call_tool("greet", nothing()).unwrap().await;
        assert!(matches!(done.outcome, Outcome::Result(_)), "{:?}", done.outcome);
    }
}

async fn a_quick_call_does_not_wait_behind_slow_ones() {
    let service = Service::new(identity())
        .tool(Tool::new("slow", async |context: Context, ()| Ok(context.sleep(Duration::from_secs(100)).await.is_ok())))
        .tool(Tool::new("quick", async |_: Context, ()| Ok("hello")));
    let (calling, _serving) = pair(service);
    let peer = calling.peer();
    let slow: Vec<_> = (0..64).map(|_| peer.call_tool("slow", nothing()).unwrap()).collect();
    peer.call_tool("quick", nothing()).unwrap().await;
    let begin = Instant::now();
    peer.call_tool("quick", nothing()).unwrap().await;
    // A millisecond where nothing else runs.
    assert!(begin.elapsed() < Duration::from_millis(200), "{:?}", begin.elapsed());
    drop(slow);
}

async fn calls_that_were_read_before_the_end_of_input_are_answered() {
    let nap = Tool::new("nap", async |context: Context, ()| Ok(context.sleep(Duration::from_millis(30)).await.is_ok()));
    let (mut wire, connection) = Wire::server(Service::new(identity()).tool(nap)).await;
    for id in 0..20 {
        wire.call(id, "nap").await;
    }
    wire.0.get_mut().shutdown().await.unwrap();
    let mut answered = BTreeSet::new();
    while let Some(answer) = wire.read().await {
        assert_eq!(answer["result"]["structuredContent"]["result"], true);
        answered.insert(answer["id"].as_u64().unwrap());
    }
    assert_eq!(answered.len(), 20);
    connection.await.unwrap();
}

async fn a_handler_that_awaits_its_caller_ends_at_once_when_the_input_does() {
    let ask = Tool::new("ask", async |context: Context, ()| {
        let failed = context.sample(Sample::new("anybody?")).await.is_err();
        if failed { Err(ToolError::from("nobody is there")) } else { Ok("somebody") }
    });
    let (mut wire, connection) = Wire::server(Service::new(identity()).tool(ask)).await;
    wire.call(1, "ask").await;
    assert_eq!(wire.read().await.unwrap()["method"], "sampling/createMessage");
    let begin = Instant::now();
    wire.0.get_mut().shutdown().await.unwrap();
    let answer = wire.read().await.unwrap();
    assert_eq!(answer["result"]["isError"], true);
    assert!(wire.read().await.is_none());
    connection.await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

async fn of_fifty_thousand_requests_that_never_end_as_many_run_as_may_and_the_rest_are_told() {
    const ALL: usize = 50_000;
    const IN_FLIGHT: usize = 1024;
    let running = Arc::new(AtomicUsize::new(0));
    let counter = running.clone();
    let service = Service::new(identity()).tool(Tool::new("never", move |context: Context, ()| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            context.cancelled().await;
            Err::<(), _>(ToolError::Cancelled)
        }
    }));
    let (mut wire, _connection) = Wire::server(service).await;
    for id in 0..IN_FLIGHT {
        wire.call(id, "never").await;
    }
    // A peer that asks for more than `Limits::strays` refusals without reading them is closed, so it reads now and then.
    for burst in (IN_FLIGHT..ALL).collect::<Vec<_>>().chunks(100) {
        for id in burst {
            wire.call(*id, "never").await;
        }
        for id in burst {
            let answer = wire.read().await.unwrap();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32809)));
        }
    }
    until(|| running.load(Ordering::Relaxed) == IN_FLIGHT).await;
}
