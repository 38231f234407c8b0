//! Faults of other SDKs with tasks and threads: a row for each fault that was measured, which our ends do not have. Each row runs on one
//! thread and on two, in memory and with a child process at the far end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use endpoint::{Context, Service, Tool, ToolError};
use protocol_core::{CallTimeouts, Invoke, Json, Op, Outcome, Progress, RateWindow, Sample};
use serde_json::{Value, json};

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
    of_two_requests_with_one_id_the_first_is_answered
    calls_that_were_read_before_the_end_of_input_are_answered
    a_handler_that_awaits_an_answer_ends_at_once_at_the_end_of_input
    invalid_lines_blank_lines_unknown_notifications_and_a_batch_do_not_stop_the_server
    of_too_many_requests_as_many_run_as_allowed_and_the_others_are_refused
    calls_that_time_out_are_cancelled_and_leave_no_state
    a_final_update_is_sent_once_and_progress_never_falls
    the_newest_of_many_updates_is_sent_when_the_window_opens
    tiny_steps_are_sent_and_a_value_above_the_total_by_rounding_is_clamped
    reports_of_two_threads_at_once_never_make_progress_fall
    with_a_window_shorter_than_a_millisecond_progress_rises_to_the_last_value
    updates_that_arrive_in_one_read_with_the_result_are_all_received
    a_callee_sends_nothing_for_a_call_after_its_cancel
    a_caller_ignores_frames_about_a_call_after_its_cancel
    a_probe_for_another_revision_is_answered_and_the_handshake_goes_on
}

pub(super) fn script(row: &str) -> Option<fn(Wire, &Book)> {
    Some(match row {
        "a_thousand_requests_are_sent_in_the_order_in_which_they_were_made" => notes_numbers,
        "a_request_is_sent_before_its_cancel_or_neither_is_sent" => pairs_cancels,
        "a_call_times_out_at_its_deadline_although_the_peer_does_not_read" => reads_nothing_until_told,
        "calls_that_time_out_are_cancelled_and_leave_no_state" => pairs_cancels,
        "updates_that_arrive_in_one_read_with_the_result_are_all_received" => writes_updates_and_result_at_once,
        "a_caller_ignores_frames_about_a_call_after_its_cancel" => answers_after_cancels,
        _ => return None,
    })
}

pub(super) fn service(row: &str, book: &Book) -> Option<Service> {
    if !has(row) {
        return None;
    }
    let (begun, cancel_notes) = (book.clone(), book.clone());
    let fast = RateWindow::new(10, Duration::from_micros(3));
    Some(
        Service::new(identity())
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
            .tool(Tool::new("hurried", tight).rate_window(fast))
            .tool(Tool::new("panic", async |_: Context, ()| -> Result<(), ToolError> { panic!("on purpose") }))
            .tool(Tool::blocking("panic_on_its_thread", |_: Context, ()| -> Result<(), ToolError> { panic!("on purpose") }))
            // Runs longer than the rest of its test, so that it still runs after the end of input.
            .tool(Tool::new("nap", async |context: Context, ()| Ok(context.sleep(Duration::from_secs(1)).await.is_ok())))
            .tool(Tool::new("ask", async |context: Context, ()| {
                let failed = context.sample(Sample::new("anybody?")).await.is_err();
                if failed { Err(ToolError::from("nobody is there")) } else { Ok("somebody") }
            }))
            .tool(Tool::new("finish", finish).rate_window(RateWindow::UNLIMITED))
            // The window is long enough for all updates on a busy machine.
            .tool(Tool::new("much", much).rate_window(RateWindow::new(1, Duration::from_secs(1))))
            .tool(Tool::new("tiny", tiny).rate_window(RateWindow::UNLIMITED))
            .tool(Tool::blocking("twins", twins).rate_window(RateWindow::UNLIMITED)),
    )
}

async fn tight(context: Context, (): ()) -> Result<&'static str, ToolError> {
    for step in 1..=1000 {
        context.step(step, 1000);
    }
    Ok("done")
}

async fn finish(context: Context, (): ()) -> Result<&'static str, ToolError> {
    for _ in 0..3 {
        context.step(50, 50);
    }
    context.step(20, 20);
    context.step(60, 100);
    Ok("done")
}

async fn much(context: Context, (): ()) -> Result<&'static str, ToolError> {
    for step in 1..=99 {
        context.step(step, 1000);
    }
    context.cancelled().await;
    Err(ToolError::Cancelled)
}

async fn tiny(context: Context, (): ()) -> Result<&'static str, ToolError> {
    for step in 1..=5 {
        let mut update = Progress::value(f64::from(step) * 1e-10);
        update.total = Some(1.0);
        context.progress(update);
    }
    let mut over = Progress::value(1.0 + 1e-15);
    over.total = Some(1.0);
    context.progress(over);
    Ok("done")
}

fn twins(context: Context, (): ()) -> Result<&'static str, ToolError> {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (1..=500).for_each(|step| context.progress(Progress::value(f64::from(step)))));
        }
    });
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

async fn of_two_requests_with_one_id_the_first_is_answered<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        wire.call(1, "nap", &json!({}));
        wire.call(1, "greet", &json!({}));
        wire.call(2, "nap", &json!({}));
        let mut answers = [wire.read(), wire.read()].map(|answer| answer.expect("an answer"));
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(answers.each_ref().map(|answer| answer["id"].as_u64()), [Some(1), Some(2)]);
        assert_eq!(answers[0]["result"]["structuredContent"]["result"], true, "the nap");
        wire.end();
        assert_eq!(wire.rest(), [] as [Value; 0]);
    })
    .await;
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

async fn invalid_lines_blank_lines_unknown_notifications_and_a_batch_do_not_stop_the_server<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        wire.bytes(b"\n\r\n  \n\xff\xfe not JSON\n");
        let parse_error = wire.read().expect("an answer");
        assert_eq!((&parse_error["error"]["code"], &parse_error["id"]), (&json!(-32700), &Value::Null));
        wire.write(&json!({"jsonrpc": "2.0", "method": "notifications/from_the_future", "params": {}}));
        wire.write(&json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]));
        wire.call(2, "greet", &json!({}));
        loop {
            let answer = wire.read().expect("an answer of the running server");
            if answer["id"] == 2 {
                assert_eq!(answer["result"]["isError"], Value::Null);
                break;
            }
        }
    })
    .await;
}

/// The number of requests, far beyond the limit; in an optimised build as many as were measured with other SDKs.
const REQUESTS: usize = if cfg!(debug_assertions) { 3_000 } else { 50_000 };
/// The limit: the default of `Limits::in_flight`.
const IN_FLIGHT: usize = 1024;

async fn of_too_many_requests_as_many_run_as_allowed_and_the_others_are_refused<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        for id in 0..IN_FLIGHT {
            wire.call(id, "never", &json!({}));
        }
        // A connection with more than `Limits::unsolicited_replies` unread refusals is closed, so the peer reads after each burst.
        for burst in (IN_FLIGHT..REQUESTS).collect::<Vec<_>>().chunks(100) {
            for id in burst {
                wire.call(*id, "never", &json!({}));
            }
            for id in burst {
                let answer = wire.read().expect("an answer");
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32809)));
            }
        }
        for id in 0..IN_FLIGHT {
            wire.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        }
    })
    .await;
}

async fn calls_that_time_out_are_cancelled_and_leave_no_state<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    let mut timeouts = CallTimeouts::NONE;
    // Long enough to send all calls first, even on a busy machine, since no cancel is sent for a call that was not sent.
    timeouts.idle = Some(Duration::from_secs(2));
    let call = Invoke::new(Op::CallTool, Json::parse(r#"{"name":"any","arguments":{}}"#).expect("JSON")).with_timeouts(timeouts);
    let calls: Vec<_> = (0..100).map(|_| calling.peer.call(call.clone()).expect("a call")).collect();
    for call in calls {
        assert!(matches!(call.await.outcome, Outcome::TimedOut(_)));
    }
    assert_eq!(calling.peer.stats().outbound_calls, 0);
    let notes = calling.close().await;
    assert_eq!(notes[..2], ["far: 0 open", "far: 100 cancelled"]);
}

/// Every progress value of one call, with its total.
fn values(wire: &mut Wire, tool: &str) -> Vec<(f64, Option<f64>)> {
    let params = json!({"name": tool, "_meta": {"progressToken": tool}});
    wire.write(&json!({"jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": params}));
    let mut values = Vec::new();
    loop {
        let message = wire.read().expect("an update or the answer");
        if message["id"] == tool {
            return values;
        }
        let params = &message["params"];
        values.push((params["progress"].as_f64().expect("a value"), params["total"].as_f64()));
    }
}

async fn a_final_update_is_sent_once_and_progress_never_falls<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        let values = values(wire, "finish");
        assert_eq!(values.iter().filter(|(value, _)| *value == 50.0).count(), 1, "{values:?}");
        assert!(values.is_sorted_by(|(one, _), (other, _)| one < other), "{values:?}");
    })
    .await;
}

async fn the_newest_of_many_updates_is_sent_when_the_window_opens<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    let mut call = calling.peer.call_tool("much", no_arguments()).expect("a call");
    let received = [call.next_progress().await, call.next_progress().await];
    assert_eq!(received.map(|update| update.and_then(|update| update.value)), [Some(1.0), Some(99.0)]);
    drop(call);
    calling.close().await;
}

async fn tiny_steps_are_sent_and_a_value_above_the_total_by_rounding_is_clamped<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        let values: Vec<_> = values(wire, "tiny").into_iter().map(|(value, _)| value).collect();
        assert_eq!(values.len(), 6);
        assert_eq!(values[5], 1.0, "clamped");
        assert!(values.is_sorted_by(|one, other| one < other), "{values:?}");
    })
    .await;
}

async fn reports_of_two_threads_at_once_never_make_progress_fall<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        let values: Vec<_> = values(wire, "twins").into_iter().map(|(value, _)| value).collect();
        assert_eq!(values.last(), Some(&500.0));
        assert!(values.is_sorted_by(|one, other| one < other), "{values:?}");
    })
    .await;
}

async fn with_a_window_shorter_than_a_millisecond_progress_rises_to_the_last_value<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, _| {
        let values: Vec<_> = values(wire, "hurried").into_iter().map(|(value, _)| value).collect();
        assert_eq!(values.last(), Some(&1000.0));
        assert!(values.is_sorted_by(|one, other| one < other), "{values:?}");
    })
    .await;
}

fn writes_updates_and_result_at_once(mut wire: Wire, _book: &Book) {
    wire.as_server();
    let call = wire.read().expect("a call");
    let mut all = String::new();
    for step in 1..=20 {
        let params = json!({"progressToken": call["params"]["_meta"]["progressToken"], "progress": step, "total": 20});
        all += &format!("{}\n", json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
    }
    all += &format!("{}\n", json!({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}));
    wire.bytes(all.as_bytes());
    wire.rest();
}

async fn updates_that_arrive_in_one_read_with_the_result_are_all_received<A: Adapter>(stage: Stage<A>) {
    let stage = stage.with_room(1 << 16);
    let calling = calling(&stage).await;
    let mut call = calling.peer.call_tool("any", no_arguments()).expect("a call");
    let mut received = Vec::new();
    while let Some(update) = call.next_progress().await {
        received.extend(update.value);
    }
    assert_eq!(received, (1..=20).map(f64::from).collect::<Vec<_>>());
    assert!(matches!(call.await.outcome, Outcome::Result(_)));
    calling.close().await;
}

async fn a_callee_sends_nothing_for_a_call_after_its_cancel<A: Adapter>(stage: Stage<A>) {
    with_scripted_client(&stage, |wire, book| {
        wire.call(1, "wait", &json!({}));
        book.wait(1);
        wire.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
        book.wait(2);
        wire.call(2, "greet", &json!({}));
        assert_eq!(wire.read().expect("an answer")["id"], 2);
        wire.end();
        assert_eq!(wire.rest(), [] as [Value; 0]);
    })
    .await;
}

/// Answers cancelled calls as other servers do: the first with an error, the later ones with a result.
fn answers_after_cancels(mut wire: Wire, book: &Book) {
    wire.as_server();
    let mut cancelled = 0;
    while let Some(message) = wire.read() {
        let id = &message["id"];
        if message["method"] == "tools/call" {
            book.note("called");
        } else if message["method"] == "notifications/cancelled" {
            let id = &message["params"]["requestId"];
            cancelled += 1;
            if cancelled == 1 {
                wire.write(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": 0, "message": "Request cancelled"}}));
            } else {
                wire.answer(id, &json!({"isError": true, "content": []}));
            }
        } else if message["method"] == "ping" {
            wire.answer(id, &json!({}));
        }
    }
}

async fn a_caller_ignores_frames_about_a_call_after_its_cancel<A: Adapter>(stage: Stage<A>) {
    let calling = calling(&stage).await;
    for calls in 1..=2 {
        let call = calling.peer.call_tool("any", no_arguments()).expect("a call");
        calling.far.book.until_noted(calls).await;
        call.cancel(None);
        assert_eq!(call.await.outcome, Outcome::Cancelled);
        calling.peer.ping().await.expect("an answer");
    }
    let stats = calling.peer.stats();
    assert_eq!(stats.late_frames, 2);
    calling.close().await;
}

async fn a_probe_for_another_revision_is_answered_and_the_handshake_goes_on<A: Adapter>(stage: Stage<A>) {
    let (mut wire, far) = stage.wire().await;
    stage
        .block(move || {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            wire.write(&json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}));
            let answer = wire.read().expect("an answer");
            assert_eq!((&answer["id"], &answer["result"]["supportedVersions"]), (&json!(0), &json!(["2026-07-28"])));
            wire.as_client();
            wire.call(1, "greet", &json!({}));
            assert_eq!(wire.read().expect("an answer")["id"], 1);
            wire.end();
            wire.rest();
        })
        .await;
    far.ended().await;
}
