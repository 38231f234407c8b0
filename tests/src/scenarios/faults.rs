//! Faults of other SDKs with tasks and threads: a row for each fault that was measured, which our ends do not have. Each row runs on one
//! thread and on two, in memory and with a child process at the far end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use endpoint::{Context, Service, Tool, ToolError};
use protocol_core::{CallTimeouts, Invoke, Json, Op, Outcome, RateWindow, Sample};
use serde_json::json;

use crate::harness::{Book, Calling, FarEnd, Stage, Wire, client, identity};
use crate::until::PATIENCE;
use programs::adapter::{Adapter, turn};

crate::harness::rows! { $ each_fault ():
    a_thousand_requests_are_sent_in_the_order_in_which_they_were_made
    a_request_is_sent_before_its_cancel_or_neither_is_sent
    a_thousand_dropped_calls_cancel_their_handlers_and_leave_no_state
    a_thousand_updates_in_a_tight_loop_arrive_in_order_before_the_result
    a_call_times_out_at_its_deadline_although_the_peer_does_not_read
    a_panic_of_a_handler_is_an_error_for_its_caller_and_the_server_goes_on
    a_quick_call_does_not_wait_for_slow_ones
    calls_that_were_read_before_the_end_of_input_are_answered
    a_handler_that_awaits_an_answer_ends_at_once_at_the_end_of_input
}

pub(super) fn script(row: &str) -> Option<fn(Wire, &Book)> {
    Some(match row {
        "a_thousand_requests_are_sent_in_the_order_in_which_they_were_made" => notes_numbers,
        "a_request_is_sent_before_its_cancel_or_neither_is_sent" => pairs_cancels,
        "a_call_times_out_at_its_deadline_although_the_peer_does_not_read" => reads_nothing_until_told,
        _ => return None,
    })
}

pub(super) fn service(row: &str, book: &Book) -> Option<Service> {
    if !has(row) {
        return None;
    }
    let (begun, cancel_notes) = (book.clone(), book.clone());
    Some(
        Service::new(identity().name, identity().version)
            .configure(|config| config.timeouts.handler_grace = Duration::from_secs(5))
            .tool(Tool::new("greet", async |_: Context, ()| Ok("hello")))
            .tool(Tool::new("wait", move |context: Context, ()| {
                begun.note("begun");
                let cancel_notes = cancel_notes.clone();
                async move {
                    context.cancelled().await;
                    cancel_notes.note("told");
                    Err::<(), _>(ToolError::Cancelled)
                }
            }))
            .tool(Tool::new("never", async |context: Context, ()| {
                context.cancelled().await;
                Err::<(), _>(ToolError::Cancelled)
            }))
            .tool(Tool::new("tight", tight).rate_window(RateWindow::UNLIMITED))
            .tool(Tool::new("panic", async |_: Context, ()| -> Result<(), ToolError> { panic!("on purpose") }))
            .tool(Tool::blocking("panic_on_its_thread", |_: Context, ()| -> Result<(), ToolError> { panic!("on purpose") }))
            // Runs longer than the rest of its test, so that it still runs after the end of input.
            .tool(Tool::new("nap", async |context: Context, ()| Ok(context.sleep(Duration::from_secs(1)).await.is_ok())))
            .tool(Tool::new("ask", async |context: Context, ()| {
                let failed = context.sample(Sample::new("anybody?")).await.is_err();
                if failed { Err(ToolError::from("nobody is there")) } else { Ok("somebody") }
            })),
    )
}

async fn tight(context: Context, (): ()) -> Result<&'static str, ToolError> {
    for step in 1..=1000 {
        context.step(step, 1000);
    }
    Ok("done")
}

fn no_arguments() -> Json {
    Json::parse("{}").expect("JSON")
}

async fn calling<A: Adapter>(stage: &Stage<A>) -> Calling {
    let calling = stage.call(Arc::new(()), client()).await;
    calling.peer.ready().await.expect("a handshake");
    calling
}

/// Runs a scripted client against the service, and waits for the end of both.
async fn with_scripted_client<A: Adapter>(stage: &Stage<A>, play: impl FnOnce(&mut Wire, &Book) + Send + 'static) {
    let (mut wire, far): (Wire, FarEnd) = stage.wire().await;
    let book = far.book.clone();
    stage
        .block(move || {
            wire.as_client();
            play(&mut wire, &book);
            wire.end();
            wire.rest();
        })
        .await;
    assert_eq!(far.ended().await.last().map(String::as_str), Some("far: the peer ended the connection"));
}

/// Notes each call whose number is not the next one, and then that a thousand calls have come.
fn notes_numbers(mut wire: Wire, book: &Book) {
    wire.as_server();
    for number in 0..1000 {
        let message = wire.read().expect("a call");
        if message["params"]["arguments"]["number"] != number {
            book.note(format!("{message} instead of {number}"));
        }
    }
    book.note("a thousand");
    wire.rest();
}

async fn a_thousand_requests_are_sent_in_the_order_in_which_they_were_made<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    let number = |number| Json::parse(format!(r#"{{"number":{number}}}"#)).expect("JSON");
    let calls: Vec<_> = (0..1000).map(|at| calling.peer.call_tool("any", number(at)).expect("a call")).collect();
    calling.far.book.until_noted(1).await;
    assert_eq!(calling.far.book.read()[0], "a thousand");
    drop(calls);
    calling.close().await;
}

/// Answers pings, and notes unexpected messages. At the end of input, notes the number of calls that were not cancelled, and the number of
/// those that were cancelled after their request.
fn pairs_cancels(mut wire: Wire, book: &Book) {
    wire.as_server();
    let (mut open, mut cancelled) = (BTreeSet::new(), 0);
    while let Some(message) = wire.read() {
        if message["method"] == "tools/call" {
            open.insert(message["id"].as_u64());
        } else if message["method"] == "notifications/cancelled" && open.remove(&message["params"]["requestId"].as_u64()) {
            cancelled += 1;
        } else if message["method"] == "ping" {
            wire.answer(&message["id"], &json!({}));
        } else {
            book.note(format!("out of order: {message}"));
        }
    }
    book.note(format!("{} open", open.len()));
    book.note(format!("{cancelled} cancelled"));
}

async fn a_request_is_sent_before_its_cancel_or_neither_is_sent<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    for number in 0..1000 {
        let call = calling.peer.call_tool("any", no_arguments()).expect("a call");
        match number % 3 {
            // The request was certainly sent (0), may have been sent (1), or was not sent (2).
            0 => calling.peer.ping().await.expect("an answer"),
            1 => turn().await,
            _ => {}
        }
        call.cancel(None);
        assert_eq!(call.await.outcome, Outcome::Cancelled);
    }
    assert_eq!(calling.close().await[0], "far: 0 open");
}

async fn a_thousand_dropped_calls_cancel_their_handlers_and_leave_no_state<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    // A call makes two notes: when its handler begins, and when its handler is cancelled. The second pass has room only if the calls of the
    // first are gone.
    for pass in 1..=2 {
        let calls: Vec<_> = (0..1000).map(|_| calling.peer.call_tool("wait", no_arguments()).expect("a call")).collect();
        calling.far.book.until_noted(2000 * pass - 1000).await;
        drop(calls);
        calling.far.book.until_noted(2000 * pass).await;
    }
    assert_eq!(calling.peer.stats().outbound_calls, 0);
    let notes = calling.close().await;
    assert_eq!(notes.iter().filter(|note| *note == "far: told").count(), 2000);
}

async fn a_thousand_updates_in_a_tight_loop_arrive_in_order_before_the_result<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    let mut call = calling.peer.call_tool("tight", no_arguments()).expect("a call");
    for step in 1..=1000 {
        assert_eq!(call.next_progress().await.expect("an update").value, Some(f64::from(step)));
    }
    assert!(call.next_progress().await.is_none());
    assert!(matches!(call.await.outcome, Outcome::Result(_)));
    calling.close().await;
}

fn reads_nothing_until_told(mut wire: Wire, book: &Book) {
    wire.as_server();
    book.wait(1);
    wire.rest();
}

async fn a_call_times_out_at_its_deadline_although_the_peer_does_not_read<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    let params = json!({"name": "any", "arguments": {"text": "x".repeat(1 << 20)}}).to_string();
    let mut timeouts = CallTimeouts::NONE;
    timeouts.idle = Some(Duration::from_millis(100));
    let call = Invoke::new(Op::CallTool, Json::parse(params).expect("JSON")).with_timeouts(timeouts);
    let begin = Instant::now();
    let done = calling.peer.call(call).expect("a call").await;
    assert!(matches!(done.outcome, Outcome::TimedOut(_)), "{:?}", done.outcome);
    assert!(begin.elapsed() < PATIENCE / 3, "{:?}", begin.elapsed());
    calling.far.book.note("read on");
    calling.close().await;
}

async fn a_panic_of_a_handler_is_an_error_for_its_caller_and_the_server_goes_on<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    for tool in ["panic", "panic_on_its_thread"] {
        let done = calling.peer.call_tool(tool, no_arguments()).expect("a call").await;
        let Outcome::Error(error) = done.outcome else { panic!("{tool}: {:?}", done.outcome) };
        assert_eq!(error.code, -32603);
        let done = calling.peer.call_tool("greet", no_arguments()).expect("a call").await;
        assert!(matches!(done.outcome, Outcome::Result(_)), "{:?}", done.outcome);
    }
    calling.close().await;
}

async fn a_quick_call_does_not_wait_for_slow_ones<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    let slow: Vec<_> = (0..64).map(|_| calling.peer.call_tool("never", no_arguments()).expect("a call")).collect();
    let begin = Instant::now();
    for _ in 0..2 {
        let done = calling.peer.call_tool("greet", no_arguments()).expect("a call").await;
        assert!(matches!(done.outcome, Outcome::Result(_)), "{:?}", done.outcome);
    }
    // The two calls take a millisecond on an idle machine. The slow calls end only when they are dropped.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    drop(slow);
    calling.close().await;
}

async fn calls_that_were_read_before_the_end_of_input_are_answered<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        for id in 0..20 {
            wire.call(id, "nap", &json!({}));
        }
        wire.end();
        let answers = wire.rest();
        let answered: BTreeSet<_> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
        assert_eq!((answers.len(), answered.len()), (20, 20));
        assert!(answers.iter().all(|answer| answer["result"]["structuredContent"]["result"] == true));
    })
    .await;
}

async fn a_handler_that_awaits_an_answer_ends_at_once_at_the_end_of_input<A: Adapter>(stage: Stage<A>) {
    let begin = Instant::now();
    with_scripted_client(&stage, |wire, _| {
        wire.call(1, "ask", &json!({}));
        assert_eq!(wire.read().expect("an input request")["method"], "sampling/createMessage");
        wire.end();
        let answers = wire.rest();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["result"]["isError"], true);
    })
    .await;
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}
