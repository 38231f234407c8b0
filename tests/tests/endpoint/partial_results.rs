//! Partial results of tools whose calls are cut short: those that the caller receives, and those in the audit log.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint::testing::{Executor, Harness, connect};
use endpoint::{Call, CallOutcome, Context, Endpoint, Peer, Service, Tool, ToolError};
use programs::audit::Audit;
use programs::tools::{Options, service};
use protocol_core::{CallTimeouts, Close, Config, Identity, Json, Level, Outcome, Progress, RpcError, TimeoutKind};
use serde_json::{Value, json};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The audit log, in memory. Clones share it.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// The one line that was written.
    fn line(&self) -> Value {
        serde_json::from_slice(&self.0.lock().unwrap()).expect("one line of JSON")
    }
}

/// A service and a caller that is connected to it.
struct World {
    executor: Executor,
    caller: Peer,
    callee: Peer,
    audit: Lines,
}

/// The example tools, with an audit log and these options.
fn world(deadline: Option<Duration>, partial_on_progress: bool) -> World {
    let audit = Lines::default();
    let options = Options { deadline, audit: Audit::to(audit.clone()), partial_on_progress };
    World { audit, ..joined(service(&options)) }
}

fn joined(service: Service) -> World {
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service), executor.runtime());
    let mut config = Config::mcp_client(Identity::new("caller", "1"));
    config.timeouts.call = CallTimeouts::NONE.with_idle(Some(Duration::from_secs(60))).with_max_total(Some(Duration::from_secs(1)));
    let client = Endpoint::client(Arc::new(()), config, executor.runtime());
    let world = World { caller: client.peer(), callee: server.peer(), executor: executor.clone(), audit: Lines::default() };
    connect(&executor, server, client);
    world
}

impl World {
    /// Starts a job: calls the tool `bulk` with four items, each of which takes 200 ms. The second one fails.
    fn bulk(&self) -> Call {
        let arguments = json!({ "items": ["a", "b", "c", "d"], "fail": ["b"], "step_ms": 200 });
        self.caller.call_tool("bulk", Json::encode(&arguments).unwrap()).unwrap()
    }

    fn wait(&self, call: Call) -> CallOutcome {
        self.executor.block_on(call).expect("it ends")
    }

    fn now(&self) -> Duration {
        self.executor.now().saturating_duration_since(protocol_core::Instant::ZERO)
    }
}

fn value(json: &Json) -> Value {
    json.decode().unwrap()
}

/// The checkpoint of the call of `bulk` after this number of its items.
fn after(items: usize) -> Value {
    let ok = |id| json!({ "id": id, "status": "ok" });
    let results = ["a", "c", "d"].iter().filter(|id| ["a", "b", "c", "d"][..items].contains(id)).map(ok);
    let results: Vec<_> = results.collect();
    let failed = usize::from(items > 1);
    let mut all = json!({ "total": 4, "processed": results.len(), "failed": failed, "remaining": 4 - items, "results": results });
    if failed > 0 {
        all["errors"] = json!([{ "id": "b", "error": "it was asked to fail" }]);
    }
    all
}

fn with_status(mut partial: Value, status: &str) -> Value {
    partial["status"] = status.into();
    partial
}

#[test]
fn a_job_with_failed_items_is_complete_and_lists_them() {
    let world = world(None, false);
    let done = world.wait(world.bulk());
    let Outcome::Result(result) = &done.outcome else { panic!("{done:?}") };
    assert_eq!(value(&result.member("structuredContent").unwrap()), with_status(after(4), "complete"));
    assert_eq!((result.member("isError"), done.partial), (None, None), "a call with a result has no partial result");
    assert_eq!(world.audit.line(), json!({ "tool": "bulk", "outcome": "ok", "done": true, "steps": 4, "partial": null }));
}

#[test]
fn a_cancelled_job_returns_the_checkpoint_of_its_last_progress_which_is_also_in_the_audit() {
    let world = world(None, true);
    let call = world.bulk();
    world.executor.run_for(ms(700));
    call.cancel(Some("enough"));
    let done = world.wait(call);
    assert_eq!(done.outcome, Outcome::Cancelled);
    assert_eq!(world.now(), ms(700), "the call ends at once");
    assert_eq!(done.partial.as_ref().map(value), Some(after(3)));
    assert_eq!(done.last.as_deref(), Some(&Progress::step(3, 4).with_message("c done")));
    world.executor.run_until_stalled();
    assert_eq!(
        world.audit.line(),
        json!({ "tool": "bulk", "outcome": "cancelled", "done": false, "steps": 3, "partial": after(3) })
    );
}

#[test]
fn without_partial_on_progress_only_the_audit_has_the_checkpoint_of_a_cancelled_job() {
    let world = world(None, false);
    let call = world.bulk();
    world.executor.run_for(ms(700));
    call.cancel(None);
    let done = world.wait(call);
    assert_eq!((done.outcome, done.partial), (Outcome::Cancelled, None));
    assert_eq!(done.last.as_deref(), Some(&Progress::step(3, 4).with_message("c done")));
    world.executor.run_until_stalled();
    assert_eq!(world.audit.line()["partial"], after(3));
}

#[test]
fn a_job_that_passes_the_deadline_of_its_callee_returns_its_checkpoint_as_the_result() {
    let world = world(Some(ms(500)), false);
    let done = world.wait(world.bulk());
    assert_eq!(world.now(), ms(500));
    let Outcome::Result(result) = &done.outcome else { panic!("{done:?}") };
    let expected = with_status(after(2), "timeout");
    assert_eq!(value(&result.member("structuredContent").unwrap()), expected);
    let text: Value = value(&result.member("content").unwrap());
    assert_eq!(serde_json::from_str::<Value>(text[0]["text"].as_str().unwrap()).unwrap(), expected, "the text has the same value");
    assert_eq!(result.member("isError"), None, "a result with processed items is no error");
    world.executor.run_until_stalled();
    assert_eq!(world.audit.line()["outcome"], "timeout");
    assert_eq!(world.audit.line()["partial"], after(2));
}

#[test]
fn a_job_that_passes_the_deadline_without_a_processed_item_is_a_tool_error() {
    let world = world(Some(ms(100)), false);
    let Outcome::Result(result) = world.wait(world.bulk()).outcome else { panic!("no result") };
    assert_eq!(value(&result.member("structuredContent").unwrap()), with_status(after(0), "timeout"));
    assert_eq!(result.member("isError").as_ref().map(Json::as_str), Some("true"));
}

#[test]
fn a_job_that_times_out_at_its_caller_returns_the_checkpoint_of_its_last_progress() {
    for (partial_on_progress, expected) in [(true, Some(after(3))), (false, None)] {
        let service = service(&Options { partial_on_progress, ..Options::default() });
        let world = joined(service);
        let arguments = json!({ "items": ["a", "b", "c", "d"], "fail": ["b"], "step_ms": 300 });
        let call = world.caller.call_tool("bulk", Json::encode(&arguments).unwrap()).unwrap();
        let done = world.wait(call);
        assert_eq!((done.outcome, world.now()), (Outcome::TimedOut(TimeoutKind::MaxTotal), ms(1000)));
        assert_eq!(done.partial.as_ref().map(value), expected);
    }
}

#[test]
fn a_job_that_loses_its_connection_returns_the_checkpoint_of_its_last_progress() {
    let world = world(None, true);
    let call = world.bulk();
    world.executor.run_for(ms(500));
    world.executor.shutdown();
    let done = world.executor.block_on(call).expect("it ends");
    assert_eq!((done.outcome, done.partial.as_ref().map(value)), (Outcome::Lost, Some(after(2))));
}

#[test]
fn a_job_whose_server_closes_returns_its_checkpoint_with_the_status_cancelled() {
    let world = world(None, false);
    let call = world.bulk();
    world.executor.run_for(ms(500));
    world.callee.close(Close::Now);
    let Outcome::Result(result) = world.wait(call).outcome else { panic!("no result") };
    assert_eq!(value(&result.member("structuredContent").unwrap()), with_status(after(2), "cancelled"));
    world.executor.run_until_stalled();
    assert_eq!(
        world.audit.line(),
        json!({ "tool": "bulk", "outcome": "cancelled", "done": false, "steps": 2, "partial": after(2) })
    );
}

#[test]
fn the_error_of_a_handler_comes_with_its_last_checkpoint() {
    let failing = |name: &str, error: fn() -> ToolError| {
        Tool::new(name, move |context: Context, (): ()| async move {
            context.checkpoint(&json!({ "lines": 1 }));
            context.sleep(ms(10)).await?;
            context.checkpoint(&json!({ "lines": 2 }));
            Err::<(), _>(error())
        })
    };
    let says = failing("says", || ToolError::from("the disk is full"));
    let breaks = failing("breaks", || RpcError::new(-31_999, "the disk is gone").into());
    let service = || Service::new(Identity::new("s", "1")).tool(says.clone()).tool(breaks.clone());
    let checkpoint = json!({ "status": "failed", "lines": 2 });

    let run = Harness::new(service()).call_tool("says", Json::empty_object());
    assert!(run.is_tool_error());
    assert_eq!((run.text().as_str(), run.structured().as_ref().map(value)), ("the disk is full", Some(checkpoint.clone())));

    let run = Harness::new(service()).call_tool("breaks", Json::empty_object());
    let (_, done) = run.done.expect("it ended");
    assert!(matches!(&done.outcome, Outcome::Error(error) if error.code == -31_999), "{done:?}");
    assert_eq!(done.partial.as_ref().map(value), Some(checkpoint), "the caller gets the checkpoint with the outcome");
}

#[test]
fn a_panic_of_a_handler_comes_with_its_last_checkpoint() {
    let panics = Tool::new("panics", async |context: Context, (): ()| -> Result<(), ToolError> {
        context.checkpoint(&json!({ "lines": 7 }));
        panic!("a planned panic")
    });
    let run = Harness::new(Service::new(Identity::new("s", "1")).tool(panics)).call_tool("panics", Json::empty_object());
    let (_, done) = run.done.expect("it ended");
    assert_eq!(done.partial.as_ref().map(value), Some(json!({ "status": "failed", "lines": 7 })));
}

#[test]
fn each_failed_item_is_logged_as_it_happens() {
    let items = json!({ "items": ["a", "b", "c"], "fail": ["c", "a"], "step_ms": 100 });
    let run = Harness::new(service(&Options::default())).call_tool("bulk", Json::encode(&items).unwrap());
    let logged: Vec<_> = run.logs.iter().map(|(at, record)| (*at, record.level, value(&record.data))).collect();
    assert_eq!(logged, [(ms(100), Level::Warning, json!({ "item": "a" })), (ms(300), Level::Warning, json!({ "item": "c" }))]);
}
