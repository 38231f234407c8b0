//! Tests each tool against its contract, in virtual time.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint::testing::{Executor, Harness, Run, connect, every_round};
use endpoint::{BoxFuture, Client, Endpoint, InputContext};
use protocol_core::mcp::Era;
use protocol_core::{
    Capabilities, Config, ElicitResult, Identity, InputRequest, InputResponse, Json, Level, Notification, OpenUrl, OpenUrlResult,
    Outcome, Progress, RpcError, SampleResult,
};
use serde_json::{Value, json};

use super::{Options, service};
use crate::audit::Audit;

/// The lines that were written to the audit.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn options(&self, deadline: Option<Duration>) -> Options {
        Options { deadline, audit: Audit::to(self.clone()), ..Options::default() }
    }

    /// The only line.
    fn line(&self) -> Value {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 1, "{text}");
        lines.remove(0)
    }
}

fn harness() -> Harness {
    Harness::new(service(&Options::default()))
}

fn within(deadline: Duration) -> Harness {
    Harness::new(service(&Options { deadline: Some(deadline), ..Options::default() }))
}

fn arguments(value: &Value) -> Json {
    Json::encode(value).unwrap()
}

fn call(name: &str, given: &Value) -> Run {
    harness().call_tool(name, arguments(given))
}

fn structured(run: &Run) -> Value {
    let structured = run.structured().unwrap_or_else(|| panic!("no structured content in {:?}", run.done));
    structured.decode().unwrap()
}

fn texts(run: &Run) -> Vec<String> {
    let content: Vec<Value> = run.result().member("content").unwrap().decode().unwrap();
    content.iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect()
}

/// The time at which the call ended for its caller.
fn ended_at(run: &Run) -> Duration {
    run.done.as_ref().unwrap_or_else(|| panic!("it never ended: {run:?}")).0
}

fn messages(run: &Run) -> Vec<&str> {
    run.progress.iter().map(|(_, progress)| progress.message.as_deref().unwrap_or_default()).collect()
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn progress_reports_each_step_before_its_sleep_and_sleeps_after_the_last() {
    let run = call("progress", &json!({ "steps": 3, "step_ms": 40 }));
    let step = |number: u64| {
        let message = format!("step {number}/3");
        (ms(40 * (number - 1)), Progress::step(number, 3).with_message(message))
    };
    assert_eq!(run.progress, [step(1), step(2), step(3)]);
    assert_eq!(ended_at(&run), ms(120));
    assert_eq!(run.structured().unwrap().as_str(), r#"{"steps":3,"notified":true,"done":true}"#);
    assert_eq!(texts(&run), [r#"{"steps":3,"notified":true,"done":true}"#]);
    assert!(!run.is_tool_error());
}

#[test]
fn progress_is_not_delayed_by_a_rate_window() {
    let run = call("progress", &json!({ "steps": 100, "step_ms": 1 }));
    assert_eq!(run.values(), (1..=100).map(f64::from).collect::<Vec<_>>());
    assert_eq!(run.counters.progress_refused, 0);
}

#[test]
fn progress_without_a_token_reports_nothing_and_takes_as_long() {
    let run = harness().unobserved().call_tool("progress", arguments(&json!({ "steps": 3, "step_ms": 20 })));
    assert_eq!(run.progress, []);
    assert_eq!(structured(&run), json!({ "steps": 3, "notified": false, "done": true }));
    assert_eq!(ended_at(&run), ms(60));
}

#[test]
fn absent_zero_and_negative_arguments_take_the_default_and_large_ones_the_maximum() {
    for given in [json!({}), json!({ "steps": 0, "step_ms": 0 }), json!({ "steps": -1, "step_ms": -1e30 })] {
        let run = call("progress", &given);
        assert_eq!((run.progress.len(), ended_at(&run)), (5, ms(1000)), "{given}");
    }
    for given in [json!({ "steps": 101, "step_ms": 5001 }), json!({ "steps": 1e30, "step_ms": u64::MAX })] {
        let run = call("progress", &given);
        assert_eq!((run.progress.len(), ended_at(&run)), (100, ms(500_000)), "{given}");
    }
    let run = call("progress", &json!({ "steps": 3.0, "step_ms": 1 }));
    assert_eq!(structured(&run)["steps"], 3);
}

#[test]
fn a_wrong_type_or_an_unknown_or_missing_argument_is_a_tool_error_that_names_it() {
    let wrong: &[(&str, Value, &str)] = &[
        ("progress", json!({ "steps": "3" }), "steps"),
        ("progress", json!({ "steps": 1.5 }), "steps"),
        ("progress", json!({ "steps": null }), "steps"),
        ("progress", json!({ "Steps": 3 }), "Steps"),
        ("long_output", json!({ "chars": true }), "chars"),
        ("chatty", json!({ "surprise": 1 }), "surprise"),
        ("countdown", json!({ "from": [] }), "from"),
        ("bulk", json!({}), "items"),
        ("bulk", json!({ "items": "a" }), "items"),
        ("bulk", json!({ "items": [1] }), "items"),
        ("bulk", json!({ "items": vec!["a"; 10_001] }), "items"),
        ("whoami", json!({ "who": 1 }), "who"),
        ("stuck", json!({ "ms": "long" }), "ms"),
        ("summarise", json!({ "max_tokens": 3 }), "text"),
        ("delete", json!({ "name": 1 }), "name"),
        ("rename", json!({ "name": "a", "to": "b" }), "to"),
        ("connect", json!({ "url": 1 }), "url"),
    ];
    for (tool, given, named) in wrong {
        let run = call(tool, given);
        assert!(run.is_tool_error(), "{tool} {given}: {:?}", run.done);
        assert!(run.text().contains(named), "{tool} {given}: {}", run.text());
        assert_eq!((run.structured(), run.progress.len()), (None, 0), "{tool} {given}");
    }
}

#[test]
fn progress_that_is_cut_short_records_the_steps_whose_sleep_was_completed() {
    let lines = Lines::default();
    let given = arguments(&json!({ "steps": 5, "step_ms": 100 }));
    let run = Harness::new(service(&lines.options(None))).cancel_after(ms(250)).call_tool("progress", given.clone());
    assert_eq!(run.outcome(), Some(&Outcome::Cancelled));
    assert_eq!(run.values(), [1.0, 2.0, 3.0]);
    assert_eq!(run.ended, Some(ms(250)), "the handler stops in its sleep");
    let partial = json!({ "steps": 2, "notified": true, "done": false });
    assert_eq!(lines.line(), json!({ "tool": "progress", "outcome": "cancelled", "done": false, "steps": 2, "partial": partial }));

    let lines = Lines::default();
    let run = Harness::new(service(&lines.options(Some(ms(250))))).call_tool("progress", given);
    assert_eq!(ended_at(&run), ms(250));
    let content = structured(&run);
    assert_eq!((&content["steps"], &content["done"], &content["status"]), (&json!(2), &json!(false), &json!("timeout")));
    assert_eq!(lines.line()["outcome"], "timeout");
}

#[test]
fn long_output_is_exact_to_the_byte() {
    let first = |chars: u64| texts(&call("long_output", &json!({ "blocks": 1, "chars": chars }))).remove(0);
    for (chars, text) in [
        (1, "["),
        (5, "[bloc"),
        (10, "[block 0] "),
        (11, "[block 0] a"),
        (21, "[block 0] abcdefghija"),
        (22, "[block 0] abcdefghijab"),
    ] {
        assert_eq!(first(chars), text);
    }
    let blocks = texts(&call("long_output", &json!({ "blocks": 12, "chars": 12 })));
    assert_eq!((blocks.len(), blocks[9].as_str(), blocks[11].as_str()), (12, "[block 9] ab", "[block 11] a"));
    let blocks = texts(&call("long_output", &json!({})));
    assert!(blocks.len() == 3 && blocks.iter().all(|block| block.len() == 256));
    let run = call("long_output", &json!({ "blocks": 9999, "chars": 9_999_999 }));
    let blocks = texts(&run);
    assert!(blocks.len() == 50 && blocks.iter().all(|block| block.len() == 65536));
    assert_eq!(run.structured(), None);
    assert!(run.result().member("isError").is_none_or(|is_error| is_error.as_str() == "false"));
}

#[test]
fn chatty_returns_four_blocks_one_of_them_with_text_that_is_not_ascii() {
    let run = call("chatty", &json!({}));
    let blocks = texts(&run);
    assert_eq!(
        blocks,
        [
            "first block: short",
            "second block: a slightly longer string with multiple words",
            "third block: numbers 1 2 3 4 5",
            "fourth block: unicode; caf\u{e9} r\u{e9}sum\u{e9} na\u{ef}ve",
        ]
    );
    assert_eq!(run.structured(), None);
}

#[test]
fn countdown_reports_progress_from_0_to_the_total_and_does_not_sleep_after_the_last_number() {
    let run = call("countdown", &json!({ "from": 3, "step_ms": 200 }));
    assert_eq!(messages(&run), ["Counting down: 3", "Counting down: 2", "Counting down: 1", "Countdown complete! 🎉"]);
    assert_eq!(run.values(), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(ended_at(&run), ms(600));
    assert_eq!(structured(&run), json!({ "result": "Countdown completed successfully", "from": 3 }));
}

#[test]
fn countdown_from_0_ends_immediately_and_without_arguments_takes_ten_seconds() {
    let run = call("countdown", &json!({ "from": 0 }));
    assert_eq!((messages(&run), ended_at(&run)), (vec!["Countdown complete! 🎉"], ms(0)));
    let run = call("countdown", &json!({}));
    assert_eq!((run.progress.len(), ended_at(&run)), (11, ms(10_000)));
    let run = call("countdown", &json!({ "from": 9999, "step_ms": 9999 }));
    assert_eq!((run.values().last().copied(), ended_at(&run)), (Some(3600.0), ms(3600 * 5000)));
}

#[test]
fn a_cancelled_countdown_stops_immediately_and_records_where_it_stopped() {
    let lines = Lines::default();
    let service = service(&lines.options(None));
    let run =
        Harness::new(service).cancel_after_updates(3).call_tool("countdown", arguments(&json!({ "from": 50, "step_ms": 150 })));
    assert_eq!(run.outcome(), Some(&Outcome::Cancelled));
    assert_eq!((run.progress.len(), run.ended), (3, Some(ms(300))));
    let partial = json!({ "result": "Countdown stopped", "from": 50, "at": 48 });
    assert_eq!(lines.line(), json!({ "tool": "countdown", "outcome": "cancelled", "done": false, "steps": 2, "partial": partial }));
}

#[test]
fn bulk_records_the_items_that_fail_and_processes_the_rest() {
    let run = call("bulk", &json!({ "items": ["a", "b", "c"], "fail": ["b", "b", "z"], "step_ms": 100 }));
    let mut content = structured(&run);
    let errors = content["errors"].take();
    assert_eq!(errors[0]["id"], "b");
    assert!(errors.as_array().unwrap().len() == 1 && errors[0]["error"].as_str().is_some_and(|why| !why.is_empty()), "{errors}");
    let ok = |id: &str| json!({ "id": id, "status": "ok" });
    assert_eq!(
        content,
        json!({ "status": "complete", "total": 3, "processed": 2, "failed": 1, "remaining": 0, "results": [ok("a"), ok("c")], "errors": null })
    );
    let pretty: Value = serde_json::from_str(&run.text()).unwrap();
    assert_eq!(pretty, run.structured().unwrap().decode::<Value>().unwrap());
    assert!(run.text().starts_with("{\n  "), "{}", run.text());
    assert!(!run.is_tool_error());
    assert_eq!(ended_at(&run), ms(300));
    let logged: Vec<_> = run.logs.iter().map(|(at, record)| (*at, record.level, record.data.as_str())).collect();
    assert_eq!(logged, [(ms(200), Level::Warning, r#"{"item":"b"}"#)]);
    assert_eq!(run.values(), [1.0, 2.0, 3.0]);
}

#[test]
fn bulk_without_items_is_complete_and_without_failures_has_no_errors() {
    let run = call("bulk", &json!({ "items": [] }));
    assert_eq!(
        structured(&run),
        json!({ "status": "complete", "total": 0, "processed": 0, "failed": 0, "remaining": 0, "results": [] })
    );
    assert!(!run.is_tool_error());
    let run = call("bulk", &json!({ "items": ["a"], "fail": ["a"] }));
    assert_eq!(structured(&run)["failed"], 1);
    assert!(!run.is_tool_error(), "complete, though nothing was processed");
}

#[test]
fn bulk_cut_by_the_deadline_returns_what_is_done_and_counts_the_interrupted_item_as_remaining() {
    let given = arguments(&json!({ "items": ["a", "b", "c", "d"], "fail": ["b"], "step_ms": 100 }));
    let run = within(ms(250)).call_tool("bulk", given.clone());
    assert_eq!(ended_at(&run), ms(250));
    let content = structured(&run);
    assert_eq!((&content["status"], &content["processed"], &content["failed"]), (&json!("timeout"), &json!(1), &json!(1)));
    assert_eq!((&content["total"], &content["remaining"]), (&json!(4), &json!(2)));
    assert_eq!(content["results"], json!([{ "id": "a", "status": "ok" }]));
    assert_eq!(content["errors"][0]["id"], "b");
    assert!(!run.is_tool_error(), "something was processed");

    let run = within(ms(50)).call_tool("bulk", given);
    assert_eq!(structured(&run)["remaining"], 4);
    assert!(run.is_tool_error(), "nothing was processed");
}

#[test]
fn bulk_cancelled_by_its_caller_records_its_last_checkpoint() {
    let lines = Lines::default();
    let given = arguments(&json!({ "items": ["a", "b", "c", "d"], "fail": ["a"], "step_ms": 100 }));
    let run = Harness::new(service(&lines.options(None))).cancel_after(ms(350)).call_tool("bulk", given);
    assert_eq!(run.outcome(), Some(&Outcome::Cancelled));
    assert_eq!(run.ended, Some(ms(350)));
    assert_eq!(run.checkpoints.len(), 4, "one before the first item and one after each");
    let (at, last) = run.checkpoints.last().unwrap();
    let last: Value = last.decode().unwrap();
    assert_eq!((*at, &last["processed"], &last["failed"], &last["remaining"]), (ms(300), &json!(2), &json!(1), &json!(1)));
    assert_eq!(lines.line(), json!({ "tool": "bulk", "outcome": "cancelled", "done": false, "steps": 3, "partial": last }));
}

#[test]
fn a_long_job_stores_a_hundred_checkpoints_and_not_one_for_each_item() {
    let items: Vec<_> = (0..1000).map(|item| item.to_string()).collect();
    let run = call("bulk", &json!({ "items": items, "step_ms": 1 }));
    assert_eq!(structured(&run)["processed"], 1000);
    assert_eq!(run.checkpoints.len(), 101, "a hundred, and one before the first item");
}

#[test]
fn whoami_returns_who_calls_and_what_the_caller_can_be_asked_for() {
    let content = structured(&call("whoami", &json!({})));
    let harness = json!({ "name": "harness", "version": "1" });
    assert_eq!(content["agent"], harness);
    assert_eq!(content["client"], harness);
    assert_eq!(content["capabilities"], json!({ "sampling": true, "elicitation": true, "elicitation_url": true, "roots": true }));
}

/// A caller without capabilities.
fn mute() -> Harness {
    harness().configure(|config| config.capabilities = Capabilities::default())
}

#[test]
fn stuck_is_an_error_at_the_deadline_and_its_handler_is_dropped_after_the_grace() {
    let lines = Lines::default();
    let run = Harness::new(service(&lines.options(Some(ms(1000))))).call_tool("stuck", Json::empty_object());
    assert_eq!(ended_at(&run), ms(1000));
    assert!(run.is_tool_error(), "{:?}", run.done);
    assert_eq!(run.ended, Some(ms(6000)), "five seconds of grace");
    assert_eq!(lines.line(), json!({ "tool": "stuck", "outcome": "timeout", "done": false, "steps": null, "partial": null }));
}

#[test]
fn stuck_ends_by_itself_after_the_requested_time() {
    let run = call("stuck", &json!({ "ms": 70 }));
    assert_eq!((ended_at(&run), run.is_tool_error()), (ms(70), false));
    assert_eq!(ended_at(&call("stuck", &json!({}))), ms(60_000));
}

#[test]
fn summarise_asks_the_model_once_and_returns_its_text() {
    let run = harness()
        .answer(InputResponse::Sample(SampleResult::new("Two foxes.", "m")))
        .call_tool("summarise", arguments(&json!({ "text": "Once there were two foxes." })));
    assert_eq!((texts(&run), run.is_tool_error()), (vec!["Two foxes.".to_owned()], false));
    let [(_, InputRequest::Sample(asked))] = &run.asks[..] else { panic!("{:?}", run.asks) };
    assert!(asked.prompt.contains("Once there were two foxes."));
    assert_eq!(asked.max_tokens, Some(400));
}

#[test]
fn summarise_that_cannot_ask_a_model_is_a_tool_error_with_the_reason() {
    let given = arguments(&json!({ "text": "a" }));
    let run = mute().call_tool("summarise", given.clone());
    assert!(run.is_tool_error() && run.text().contains("sampling"), "{}", run.text());
    assert_eq!(run.asks, [], "nothing was sent");
    let refused = InputResponse::Refused(RpcError::new(RpcError::USER_REJECTED, "not today"));
    let run = harness().answer(refused).call_tool("summarise", given.clone());
    assert!(run.is_tool_error() && run.text().contains("not today"), "{}", run.text());
    let too_deep = Harness::new(service(&Options::default()).configure(|config| config.depth.max = 0));
    let run = too_deep.call_tool("summarise", given);
    assert!(run.is_tool_error() && run.text().contains("deep"), "{}", run.text());
    assert_eq!(run.asks, [], "nothing was sent");
}

#[test]
fn delete_deletes_only_when_it_is_confirmed() {
    let given = arguments(&json!({ "name": "old.txt" }));
    let accept = || InputResponse::Elicit(ElicitResult::Accept(Json::empty_object()));
    let run = harness().answer(accept()).call_tool("delete", given.clone());
    assert_eq!(structured(&run), json!({ "deleted": "old.txt" }));
    let [(_, InputRequest::Elicit(asked))] = &run.asks[..] else { panic!("{:?}", run.asks) };
    assert!(asked.is_confirmation() && asked.message.contains("old.txt"), "{asked:?}");

    let refused = InputResponse::Refused(RpcError::internal("the form broke"));
    for answer in [InputResponse::Elicit(ElicitResult::Decline), InputResponse::Elicit(ElicitResult::Cancel), refused] {
        let run = harness().answer(answer.clone()).call_tool("delete", given.clone());
        assert_eq!((structured(&run), run.is_tool_error()), (json!({ "cancelled": true }), false), "{answer:?}");
    }
    let run = mute().call_tool("delete", given);
    assert_eq!(structured(&run), json!({ "cancelled": true }));
    assert_eq!(run.asks, [], "nothing was sent");
}

#[test]
fn rename_takes_the_name_that_the_user_gives() {
    let given = arguments(&json!({ "name": "old.txt" }));
    let accept = InputResponse::Elicit(ElicitResult::Accept(arguments(&json!({ "newName": "new.txt" }))));
    let run = harness().answer(accept).call_tool("rename", given.clone());
    assert_eq!(structured(&run), json!({ "renamed": { "from": "old.txt", "to": "new.txt" } }));
    let [(_, InputRequest::Elicit(asked))] = &run.asks[..] else { panic!("{:?}", run.asks) };
    let schema: Value = asked.schema.decode().unwrap();
    assert_eq!(schema["type"], "object");
    assert_eq!(
        (&schema["properties"]["newName"]["type"], &schema["properties"]["newName"]["minLength"]),
        (&json!("string"), &json!(1))
    );
    assert_eq!(schema["required"], json!(["newName"]));

    for answer in [ElicitResult::Decline, ElicitResult::Cancel] {
        let run = harness().answer(InputResponse::Elicit(answer.clone())).call_tool("rename", given.clone());
        assert_eq!((structured(&run), run.is_tool_error()), (json!({ "cancelled": true }), false), "{answer:?}");
    }
    let run = mute().call_tool("rename", given.clone());
    assert!(run.is_tool_error() && run.text().contains("elicitation"), "{}", run.text());
    let empty = InputResponse::Elicit(ElicitResult::Accept(arguments(&json!({ "newName": "" }))));
    let run = harness().answer(empty).call_tool("rename", given);
    assert!(run.is_tool_error(), "a name is not empty: {:?}", run.done);
}

#[test]
fn connect_returns_what_the_user_decided_or_why_it_cannot_ask() {
    for (consent, decided) in
        [(OpenUrlResult::Accept, "accept"), (OpenUrlResult::Decline, "decline"), (OpenUrlResult::Cancel, "cancel")]
    {
        let run = harness().answer(InputResponse::OpenUrl(consent)).call_tool("connect", Json::empty_object());
        assert_eq!((structured(&run), run.is_tool_error()), (json!({ "decided": decided }), false));
        let [(_, InputRequest::OpenUrl(asked))] = &run.asks[..] else { panic!("{:?}", run.asks) };
        assert_eq!((&*asked.url, asked.host()), ("https://example.com/connect", Some("example.com")));
    }
    let run = mute().call_tool("connect", Json::empty_object());
    assert!(run.is_tool_error() && run.text().contains("elicitation by URL"), "{}", run.text());
    let run = call("connect", &json!({ "url": "javascript:alert(1)" }));
    assert!(run.is_tool_error() && run.text().contains("url must be absolute"), "{}", run.text());
    assert_eq!(run.asks, [], "nothing was sent");
}

/// The ids of the URLs that a client was asked to open, and those for which the server has reported the completion.
type Urls = Arc<Mutex<(Vec<String>, Vec<String>)>>;

/// A client whose user makes the same decision about each URL.
struct User(OpenUrlResult, Urls);

impl Client for User {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        can.elicitation_url = true;
        can
    }

    fn open_url(&self, _: InputContext, open: OpenUrl) -> BoxFuture<'static, Result<OpenUrlResult, RpcError>> {
        self.1.lock().unwrap().0.push(open.id);
        let decision = self.0;
        Box::pin(async move { Ok(decision) })
    }

    fn notification(&self, notification: Notification) {
        if let Notification::ElicitationComplete { id } = notification {
            self.1.lock().unwrap().1.push(id.to_string());
        }
    }
}

#[test]
fn connect_reports_the_completion_only_if_the_user_has_agreed() {
    for consent in [OpenUrlResult::Accept, OpenUrlResult::Decline, OpenUrlResult::Cancel] {
        let (executor, urls) = (Executor::new(), Urls::default());
        let server = Endpoint::server(Arc::new(service(&Options::default())), executor.runtime());
        let config = Config::mcp_client(Identity::new("user", "1"));
        let client = Endpoint::client(Arc::new(User(consent, Arc::clone(&urls))), config, executor.runtime());
        let peer = client.peer();
        connect(&executor, server, client);
        let done = executor.block_on(peer.call_tool("connect", Json::empty_object()).unwrap()).unwrap();
        assert!(matches!(done.outcome, Outcome::Result(_)), "{done:?}");
        executor.run_until_stalled();
        let (asked, completed) = urls.lock().unwrap().clone();
        let expected = if consent == OpenUrlResult::Accept { asked.clone() } else { Vec::new() };
        assert_eq!((asked.len(), completed), (1, expected), "{consent:?}");
    }
}

#[test]
fn connect_may_require_that_the_address_is_opened_first() {
    let given = arguments(&json!({ "url": "https://example.com/first", "require": true }));
    let run = harness().call_tool("connect", given.clone());
    let urls = run.error().map(RpcError::required_urls).unwrap_or_default();
    assert_eq!(urls.iter().map(|open| &*open.url).collect::<Vec<_>>(), ["https://example.com/first"]);
    assert_eq!(run.asks, [], "nothing is asked");
    let run = mute().call_tool("connect", given);
    assert!(run.is_tool_error() && run.text().contains("elicitation by URL"), "{}", run.text());
}

fn workflow(harness: Harness, given: &[(&str, &str)]) -> Run {
    let given: BTreeMap<_, _> = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    harness.get_prompt("analysis_workflow", &given)
}

#[test]
fn the_workflow_reports_five_steps_and_returns_the_exact_text() {
    let run = workflow(harness(), &[("topic", "wire formats"), ("step_ms", "50")]);
    let steps = [
        ("gather", "Gathering information and context"),
        ("analyze", "Analyzing data and patterns"),
        ("synthesize", "Synthesizing insights"),
        ("validate", "Validating conclusions"),
        ("format", "Formatting final report"),
    ];
    let expected: Vec<_> = (1..).zip(steps).map(|(number, (_, what))| format!("Step {number}/5: {what}")).collect();
    assert_eq!(messages(&run), expected);
    assert_eq!(run.values(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(run.progress[4].1.total, Some(5.0));
    assert_eq!(ended_at(&run), ms(250));
    let result: Value = run.result().decode().unwrap();
    let text = "Analysis Workflow Complete\n\nTopic: wire formats\n\nSteps:\n\
                ✓ gather - Gathering information and context\n✓ analyze - Analyzing data and patterns\n\
                ✓ synthesize - Synthesizing insights\n✓ validate - Validating conclusions\n✓ format - Formatting final report\n\n\
                Ready for review.";
    assert_eq!(
        result,
        json!({
            "description": "Multi-step analysis workflow for: wire formats",
            "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
        })
    );
}

#[test]
fn the_workflow_has_default_arguments_and_its_errors_name_the_wrong_argument() {
    for given in [&[][..], &[("topic", ""), ("step_ms", "0")], &[("step_ms", "-3")]] {
        let run = workflow(harness(), given);
        assert_eq!(ended_at(&run), ms(5000));
        let result: Value = run.result().decode().unwrap();
        assert_eq!(result["description"], "Multi-step analysis workflow for: general analysis");
    }
    for (given, named) in [(("step_ms", "soon"), "step_ms"), (("subject", "a"), "subject")] {
        let run = workflow(harness(), &[given]);
        let error = run.error().unwrap_or_else(|| panic!("{:?}", run.done));
        assert_eq!(error.code, RpcError::INVALID_PARAMS);
        assert!(error.message.contains(named), "{error}");
    }
}

#[test]
fn the_workflow_is_cancelled_between_its_steps() {
    let lines = Lines::default();
    let run = workflow(Harness::new(service(&lines.options(None))).cancel_after_updates(3), &[]);
    assert_eq!(run.outcome(), Some(&Outcome::Cancelled));
    assert_eq!((run.values(), run.ended), (vec![1.0, 2.0, 3.0], Some(ms(2000))));
    assert_eq!(
        lines.line(),
        json!({ "tool": "analysis_workflow", "outcome": "cancelled", "done": false, "steps": 2, "partial": null })
    );
}

#[test]
fn the_audit_has_one_line_for_a_call_that_succeeds_fails_or_loses_its_connection() {
    let lines = Lines::default();
    let _ = Harness::new(service(&lines.options(None))).call_tool("progress", arguments(&json!({ "steps": 3 })));
    assert_eq!(lines.line(), json!({ "tool": "progress", "outcome": "ok", "done": true, "steps": 3, "partial": null }));

    let lines = Lines::default();
    let without_capabilities =
        Harness::new(service(&lines.options(None))).configure(|config| config.capabilities = Capabilities::default());
    let _ = without_capabilities.call_tool("summarise", arguments(&json!({ "text": "a" })));
    assert_eq!(lines.line(), json!({ "tool": "summarise", "outcome": "error", "done": false, "steps": null, "partial": null }));

    let lines = Lines::default();
    let leaving = Harness::new(service(&lines.options(None))).disconnect_after(ms(1500));
    let _ = leaving.call_tool("countdown", arguments(&json!({ "from": 60 })));
    let line = lines.line();
    assert_eq!((&line["outcome"], &line["done"]), (&json!("cancelled"), &json!(false)), "{line}");
}

#[test]
fn a_tool_with_input_requests_ends_in_the_same_way_in_every_era_and_with_a_new_process_for_each_round() {
    let filled = |content: Value| InputResponse::Elicit(ElicitResult::Accept(arguments(&content)));
    let agree = |ask: &InputRequest| match ask {
        InputRequest::Sample(_) => InputResponse::Sample(SampleResult::new("Fine.", "m")),
        InputRequest::OpenUrl(_) => InputResponse::OpenUrl(OpenUrlResult::Accept),
        InputRequest::Elicit(form) if form.message.contains("new name") => filled(json!({ "newName": "final" })),
        InputRequest::Elicit(form) if form.is_confirmation() => filled(json!({})),
        _ => filled(json!({ "name": "Ada" })),
    };
    let decline = |ask: &InputRequest| match ask {
        InputRequest::Sample(_) => InputResponse::Sample(SampleResult::new("Fine.", "m")),
        InputRequest::OpenUrl(_) => InputResponse::OpenUrl(OpenUrlResult::Decline),
        _ => InputResponse::Elicit(ElicitResult::Decline),
    };
    let tools = || service(&Lines::default().options(None));
    for (tool, given, rounds) in [
        ("summarise", json!({ "text": "a" }), 1),
        ("delete", json!({ "name": "draft" }), 1),
        ("rename", json!({ "name": "draft" }), 1),
        ("connect", json!({}), 1),
        ("survey", json!({ "topic": "tea" }), 3),
    ] {
        assert_eq!(every_round(tools, tool, &arguments(&given), agree).rounds, rounds, "{tool}");
        assert_eq!(every_round(tools, tool, &arguments(&given), decline).rounds, rounds, "{tool}");
    }
}

#[test]
fn a_survey_is_registered_once_and_audited_once_whatever_the_number_of_its_rounds() {
    for era in [Era::Legacy, Era::Modern] {
        let lines = Lines::default();
        let harness = Harness::new(service(&lines.options(None))).configure(|config| config.era = era);
        let run = harness
            .answer(InputResponse::Elicit(ElicitResult::Accept(arguments(&json!({ "name": "Ada" })))))
            .answer(InputResponse::Sample(SampleResult::new("Fine.", "m")))
            .answer(InputResponse::Elicit(ElicitResult::Accept(Json::empty_object())))
            .call_tool("survey", arguments(&json!({ "topic": "tea" })));
        let expected = json!({ "participant": "Ada", "number": 1, "opinion": "Fine.", "publish": true });
        assert_eq!(run.structured().map(|result| result.decode::<Value>().unwrap()), Some(expected), "{era:?}");
        assert_eq!(run.values().last(), Some(&3.0), "{era:?}");
        assert_eq!(lines.line()["outcome"], "ok", "{era:?}");
    }
}

#[test]
fn each_tool_and_argument_is_described_and_no_schema_bounds_a_number() {
    let run = harness().request(protocol_core::Op::ListTools, Json::empty_object());
    let tools: Vec<Value> = run.result().member("tools").unwrap().decode().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "bulk",
            "chatty",
            "connect",
            "countdown",
            "delete",
            "long_output",
            "progress",
            "rename",
            "stuck",
            "summarise",
            "survey",
            "whoami"
        ]
    );
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        assert!(tool["description"].as_str().is_some_and(|description| !description.is_empty()), "{name}");
        let input = &tool["inputSchema"];
        assert_eq!((&input["type"], &input["additionalProperties"]), (&json!("object"), &json!(false)), "{name}");
        for (field, property) in input["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].is_string(), "{name}.{field}: {property}");
            assert!(
                ["minimum", "maximum"].iter().all(|bound| property.get(bound).is_none()),
                "{name}.{field}: sizes are not refused: {property}"
            );
        }
        let read_only = tool["annotations"]["readOnlyHint"] == true;
        assert_eq!(read_only, ["chatty", "long_output", "whoami"].contains(&name), "{name}");
        assert!(tool["outputSchema"].is_null() || tool["outputSchema"]["type"] == "object", "{name}");
    }
    let progress = &tools[6]["inputSchema"];
    assert_eq!(progress["properties"]["steps"]["description"], "number of progress notifications to emit; default 5; max 100");
    assert_eq!(
        (&progress["properties"]["steps"]["type"], &progress["properties"]["steps"]["default"]),
        (&json!("integer"), &json!(5))
    );
    assert!(progress.get("required").is_none(), "{progress}");
}
