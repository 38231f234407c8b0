//! The scenarios. Each has the steps of a client or a script at the near end, and a trace: the events that both ends must observe. The
//! trace is the same on every transport of every adapter. It has no times, and no events whose order depends on threads.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use endpoint::Call;
use protocol_core::{CallTimeouts, Invoke, Json, Op, Outcome, Progress, Violation};
use serde_json::{Value, json};

use super::tools::TOGETHER;
use crate::harness::{Book, Calling, FarEnd, Stage, Wire, client};
use programs::adapter::{Adapter, block_on, start_thread};

crate::harness::rows! { $ each_scenario ():
    success
    cancel_midway
    caller_timeout
    callee_deadline_of_a_handler_that_ignores_its_cancellation
    peer_that_closes_mid_call
    peer_that_closes_mid_frame
    half_close
    reader_that_stalls
    one_byte_reads_and_writes
    calls_at_once_answered_in_reverse_order
    large_blocks_and_empty_ones_byte_for_byte
    handler_that_blocks_its_thread_while_others_run
    calls_one_at_a_time_from_a_thread_that_has_no_runtime
}

/// The script at the far end of a row; `None` for a row with a service there.
pub(super) fn script(row: &str) -> Option<fn(Wire, &Book)> {
    Some(match row {
        "peer_that_closes_mid_call" => closes_mid_call,
        "peer_that_closes_mid_frame" => closes_mid_frame,
        _ => return None,
    })
}

/// Compares a trace with the expected lines. Empty lines and the indentation of lines do not count.
fn expect(trace: &[String], expected: &str) {
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(trace, expected);
}

fn tool(name: &str, arguments: &Value) -> Invoke {
    let params = json!({"name": name, "arguments": arguments});
    Invoke::new(Op::CallTool, Json::parse(params.to_string()).expect("JSON"))
}

/// Describes the result of a tool: its kind and its text.
fn text(result: &Json) -> String {
    let result: Value = result.decode().expect("a result");
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: Vec<_> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let kind = if result["isError"] == true { "tool error" } else { "result" };
    // A text in the member `result` of the structured content is preferred to the blocks of text.
    let plain = result["structuredContent"]["result"].as_str();
    format!("{kind}: {}", plain.map_or_else(|| text.join(" | "), str::to_owned))
}

fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Result(result) => text(result),
        Outcome::Error(error) => format!("error {}: {}", error.code, error.message),
        outcome => format!("{outcome:?}"),
    }
}

fn update(progress: &Progress) -> String {
    let number = |number: Option<f64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let message = progress.message.as_ref().map(|message| format!(" {message}")).unwrap_or_default();
    format!("progress {}/{}{message}", number(progress.value), number(progress.total))
}

/// Describes all updates of a call and its outcome.
async fn observed(mut call: Call) -> Vec<String> {
    let mut trace = Vec::new();
    while let Some(progress) = call.next_progress().await {
        trace.push(update(&progress));
    }
    trace.push(ended(&call.await.outcome));
    trace
}

impl Calling {
    async fn observed_call(&self, name: &str, arguments: Value) -> Vec<String> {
        observed(self.peer.call(tool(name, &arguments)).expect("a call")).await
    }

    /// Waits until `lines` lines are noted at the far end.
    async fn noted(&self, lines: usize) {
        self.far.book.until_noted(lines).await;
    }
}

async fn call_without_client<A: Adapter>(stage: &Stage<A>) -> Calling {
    stage.call(Arc::new(()), client()).await
}

async fn success<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let mut trace = calling.observed_call("greet", json!({})).await;
    trace.extend(calling.close().await);
    expect(
        &trace,
        "result: hello
         far: the peer ended the connection
         near: closed by this end",
    );
}

async fn cancel_midway<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let mut call = calling.peer.call(tool("hold", &json!({}))).expect("a call");
    let mut trace = vec![update(&call.next_progress().await.expect("progress"))];
    call.cancel(Some("enough"));
    trace.extend(observed(call).await);
    calling.noted(1).await;
    trace.extend(calling.close().await);
    expect(
        &trace,
        "progress 1/2
         Cancelled
         far: cancelled by the peer: enough
         far: the peer ended the connection
         near: closed by this end",
    );
}

async fn caller_timeout<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    calling.peer.ready().await.expect("a handshake");
    let call = calling
        .peer
        .call(tool("hold", &json!({})).with_timeouts(CallTimeouts::NONE.with_idle(Some(Duration::from_secs(1)))))
        .expect("a call");
    let mut trace = observed(call).await;
    calling.noted(1).await;
    trace.extend(calling.observed_call("greet", json!({})).await);
    let mut notes = calling.close().await;
    // The rest of the line is the reason, whose text the session chooses.
    notes[0].truncate("far: cancelled by the peer".len());
    trace.extend(notes);
    expect(
        &trace,
        "progress 1/2
         TimedOut(Idle)
         result: hello
         far: cancelled by the peer
         far: the peer ended the connection
         near: closed by this end",
    );
}

async fn callee_deadline_of_a_handler_that_ignores_its_cancellation<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let mut trace = calling.observed_call("deaf", json!({})).await;
    trace.extend(calling.observed_call("greet", json!({})).await);
    trace.extend(calling.close().await);
    expect(
        &trace,
        "tool error: the time for this call has run out
         result: hello
         far: the peer ended the connection
         near: closed by this end",
    );
}

fn closes_mid_call(mut wire: Wire, book: &Book) {
    wire.as_server();
    for _ in 0..2 {
        book.note(wire.read().expect("a call")["method"].as_str().unwrap_or_default());
    }
}

async fn peer_that_closes_mid_call<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let calls: Vec<_> = (0..2).map(|_| calling.peer.call(tool("any", &json!({}))).expect("a call")).collect();
    let mut trace = Vec::new();
    for call in calls {
        trace.extend(observed(call).await);
    }
    trace.extend(calling.ended().await);
    expect(
        &trace,
        "Lost
         Lost
         far: tools/call
         far: tools/call
         near: the peer ended the connection",
    );
}

fn closes_mid_frame(mut wire: Wire, _book: &Book) {
    wire.as_server();
    wire.read();
    wire.bytes(br#"{"jsonrpc":"2.0","id":1,"result":{"cont"#);
}

async fn peer_that_closes_mid_frame<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let peer = calling.peer.clone();
    peer.ready().await.expect("a handshake");
    // In a child process, the test harness has written lines that are not JSON before the script began.
    let seen = peer.stats().violations(Violation::NotJson);
    let mut trace = calling.observed_call("any", json!({})).await;
    trace.extend(calling.ended().await);
    assert_eq!(peer.stats().violations(Violation::NotJson), seen + 1, "half a frame is not JSON");
    expect(
        &trace,
        "Lost
         near: the peer ended the connection",
    );
}

/// The ids of answers, in order.
fn ids(answers: &[Value]) -> String {
    answers.iter().map(|answer| answer["id"].to_string()).collect::<Vec<_>>().join(" ")
}

/// Adds what the far end has observed until its end.
async fn finish(far: FarEnd, mut trace: Vec<String>) -> Vec<String> {
    trace.extend(far.ended().await);
    trace
}

async fn half_close<A: Adapter>(stage: Stage<A>) {
    let (mut wire, far) = stage.wire().await;
    let trace = stage
        .block(move || {
            wire.as_client();
            wire.call(1, "steps", &json!({"steps": 3, "step_ms": 20}));
            wire.call(2, "greet", &json!({}));
            wire.end();
            let mut answers = wire.rest();
            answers.sort_by_key(|answer| answer["id"].as_u64());
            vec![ids(&answers)]
        })
        .await;
    expect(
        &finish(far, trace).await,
        "1 2
         far: the peer ended the connection",
    );
}

async fn reader_that_stalls<A: Adapter>(stage: Stage<A>) {
    let (mut wire, far) = stage.wire().await;
    let book = far.book.clone();
    let trace = stage
        .block(move || {
            wire.as_client();
            wire.call(1, "long_output", &json!({"blocks": 50, "chars": 65536}));
            wire.call(2, "greet", &json!({}));
            wire.call(3, "note", &json!({}));
            // The client reads nothing meanwhile, but the server still reads: it runs `note`.
            book.wait(1);
            let mut answers: Vec<_> = (0..3).map(|_| wire.read().expect("an answer")).collect();
            answers.sort_by_key(|answer| answer["id"].as_u64());
            let blocks = answers[0]["result"]["content"].as_array().expect("blocks");
            let bytes: usize = blocks.iter().filter_map(|block| block["text"].as_str()).map(str::len).sum();
            let trace = vec![ids(&answers), format!("{bytes} bytes")];
            wire.end();
            wire.rest();
            trace
        })
        .await;
    expect(
        &finish(far, trace).await,
        "1 2 3
         3276800 bytes
         far: noted
         far: the peer ended the connection",
    );
}

async fn one_byte_reads_and_writes<A: Adapter>(stage: Stage<A>) {
    let stage = stage.with_room(1);
    let (mut wire, far) = stage.wire().await;
    let trace = stage
        .block(move || {
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "greet"}});
            let mut trace = Vec::new();
            for (message, answered) in [(Wire::hello(), true), (initialized, false), (call, true)] {
                for byte in format!("{message}\n").bytes() {
                    wire.bytes(&[byte]);
                }
                if answered {
                    trace.push(ids(&[wire.read_slowly().expect("an answer")]));
                }
            }
            wire.end();
            wire.rest();
            trace
        })
        .await;
    expect(
        &finish(far, trace).await,
        r#""hello"
           1
           far: the peer ended the connection"#,
    );
}

async fn calls_at_once_answered_in_reverse_order<A: Adapter>(stage: Stage<A>) {
    let (mut wire, far) = stage.wire().await;
    let trace = stage
        .block(move || {
            wire.as_client();
            for number in 0..TOGETHER {
                wire.call(number, "reverse", &json!({"number": number}));
            }
            let answers: Vec<_> = (0..TOGETHER).map(|_| wire.read().expect("an answer")).collect();
            let reversed = answers
                .iter()
                .rev()
                .enumerate()
                .all(|(number, answer)| answer["id"] == number && answer["result"]["structuredContent"]["result"] == number);
            wire.end();
            vec![format!("{} more, in reverse: {reversed}", wire.rest().len())]
        })
        .await;
    expect(
        &finish(far, trace).await,
        "0 more, in reverse: true
         far: the peer ended the connection",
    );
}

async fn large_blocks_and_empty_ones_byte_for_byte<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let call = calling.peer.call(tool("long_output", &json!({"blocks": 50, "chars": 65536}))).expect("a call");
    let result: Value = call.await.result().expect("a result").decode().expect("JSON");
    let expected: Vec<_> = (0..50)
        .map(|number| format!("[block {number}] ").chars().chain("abcdefghij".chars().cycle()).take(65536).collect::<String>())
        .collect();
    let blocks: Vec<_> = result["content"].as_array().expect("blocks").iter().map(|block| block["text"].as_str()).collect();
    let equal = blocks.iter().zip(&expected).filter(|(block, expected)| **block == Some(expected)).count();
    let mut trace = vec![format!("{equal} of {} are equal", blocks.len())];
    let call = calling.peer.call(tool("empty", &json!({}))).expect("a call");
    trace.push(call.await.result().expect("a result").member("content").expect("blocks").to_string());
    drop(calling.close().await);
    expect(
        &trace,
        r#"50 of 50 are equal
           [{"type":"text","text":""},{"type":"text","text":""},{"type":"text","text":""}]"#,
    );
}

async fn handler_that_blocks_its_thread_while_others_run<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let mut calls: Vec<_> = ["block", "greet", "greet"]
        .map(|name| Some(Box::pin(observed(calling.peer.call(tool(name, &json!({}))).expect("a call")))))
        .into();
    let mut trace = Vec::new();
    while calls.iter().any(Option::is_some) {
        // Both calls of `greet` have ended, while the handler of `block` still blocks.
        if trace.len() == 2 {
            calling.observed_call("release", json!({})).await;
        }
        trace.extend(
            poll_fn(|cx| {
                for call in &mut calls {
                    if let Some(running) = call
                        && let Poll::Ready(observed) = running.as_mut().poll(cx)
                    {
                        *call = None;
                        return Poll::Ready(observed);
                    }
                }
                Poll::Pending
            })
            .await,
        );
    }
    drop(calling.close().await);
    expect(
        &trace,
        "result: hello
         result: hello
         result: blocked",
    );
}

/// If there is no other output, a call sends its frame early, so the transport is used on the thread of the caller.
async fn calls_one_at_a_time_from_a_thread_that_has_no_runtime<A: Adapter>(stage: Stage<A>) {
    let calling = call_without_client(&stage).await;
    let peer = calling.peer.clone();
    let calls =
        move || (0..50).map(|_| block_on(observed(peer.call(tool("greet", &json!({}))).expect("a call"))).concat()).collect();
    let mut trace: Vec<String> = start_thread(calls).await;
    assert_eq!(trace.len(), 50);
    trace.dedup();
    drop(calling.close().await);
    expect(&trace, "result: hello");
}
