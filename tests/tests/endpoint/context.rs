//! The methods of a handler's `Context`, over MCP, in virtual time.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint::testing::{Executor, Harness, connect};
use endpoint::{
    AskFailed, Call, Cancellation, Cancelled, Context, Endpoint, Peer, Prompt, PromptMessage, PromptOutput, Service, Subrange,
    TimeoutError, Tool, ToolError,
};
use protocol_core::drive::Timer;
use protocol_core::{
    CallTimeouts, CancelReason, CheckpointError, Config, Elicit, ElicitResult, Identity, InputRequest, InputResponse, Json, Level,
    NotLive, Outcome, Progress, ProgressError, RateWindow, Reported, RpcError, Sample, SampleResult, ServeOptions,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn service() -> Service {
    Service::new(Identity::new("service", "1"))
}

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// Values that handlers note for a test to check afterwards. Clones share them.
#[derive(Clone)]
struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T> Seen<T> {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn add(&self, value: T) {
        self.0.lock().unwrap().push(value);
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A client and a server on one clock.
struct Pair {
    executor: Executor,
    client: Peer,
    server: Peer,
}

fn pair(service: Service) -> Pair {
    pair_on(Executor::new(), service)
}

/// A pair on an executor that its handlers can use as well.
fn pair_on(executor: Executor, service: Service) -> Pair {
    let service = service.configure(|config| config.timeouts.handshake = None);
    let server = Endpoint::server(Arc::new(service), executor.runtime());
    let mut config = Config::mcp_client(Identity::new("caller", "1"));
    config.timeouts.call = CallTimeouts::NONE;
    // Without this, `next_timer` would return the timeout of the handshake, whose timer stays armed.
    config.timeouts.handshake = None;
    let client = Endpoint::client(Arc::new(()), config, executor.runtime());
    let (client_peer, server_peer) = (client.peer(), server.peer());
    connect(&executor, server, client);
    Pair { executor, client: client_peer, server: server_peer }
}

impl Pair {
    fn call(&self, name: &str) -> Call {
        self.client.call_tool(name, Json::empty_object()).unwrap()
    }

    /// Starts a call, and runs until all tasks wait.
    fn begin(&self, name: &str) -> Call {
        let call = self.call(name);
        self.executor.run_until_stalled();
        call
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.executor.block_on(future).expect("it ends")
    }
}

/// Sleeps without a `Context`, so that a cancel does not end the sleep.
async fn sleep(executor: &Executor, span: Duration) {
    let mut timer = executor.timer();
    let at = timer.now().saturating_add(span);
    poll_fn(|cx| timer.poll_until(cx, at)).await;
}

/// A tool that runs until it is cancelled, and then cleans up for `span`.
fn cleans_up(name: &str, executor: &Executor, seen: &Seen<&'static str>, span: Duration) -> Tool {
    let (executor, seen) = (executor.clone(), seen.clone());
    Tool::new(name, move |context: Context, (): ()| {
        let (executor, seen) = (executor.clone(), seen.clone());
        async move {
            context.cancelled().await;
            seen.add("told");
            sleep(&executor, span).await;
            seen.add("tidy");
            Ok(())
        }
    })
}

fn stuck(name: &str) -> Tool {
    Tool::new(name, async |_: Context, (): ()| {
        std::future::pending::<()>().await;
        Ok(())
    })
}

// ---- Progress, input requests, log, limits, cancellation ----

#[test]
fn percent_count_message_and_progress_report_updates() {
    let tool = Tool::new("reports", async |context: Context, (): ()| {
        assert!(context.is_observed());
        context.step(1, 8);
        context.percent(50.0);
        context.progress(Progress::value(60.0).with_message("no total"));
        context.message("rides on the next");
        assert_eq!(context.try_progress(Progress::step(70, 80)), Ok(Reported::Sent));
        assert_eq!(context.try_progress(Progress::step(70, 80)), Ok(Reported::NotIncreasing));
        Ok(())
    });
    let run = Harness::new(service().tool(tool.rate_window(RateWindow::UNLIMITED))).call_tool("reports", Json::empty_object());
    let received: Vec<Progress> = run.progress.into_iter().map(|(_, progress)| progress).collect();
    assert_eq!(
        received,
        [
            Progress::step(1, 8),
            Progress::percent(50.0),
            Progress::value(60.0).with_message("no total"),
            Progress::step(70, 80).with_message("rides on the next"),
        ]
    );
}

#[test]
fn each_part_of_a_job_reports_its_own_subrange_of_the_whole() {
    async fn work(context: &Context, part: Subrange, steps: u64) -> Result<(), Cancelled> {
        for step in 1..=steps {
            context.sleep(ms(1000)).await?;
            part.step(step, steps);
        }
        Ok(())
    }
    let tool = Tool::new("pipeline", async |context: Context, (): ()| {
        work(&context, context.subrange(0.0..0.5), 5).await?;
        work(&context, context.subrange(0.5..0.8), 3).await?;
        work(&context, context.subrange(0.8..1.0), 2).await?;
        Ok(())
    });
    let run = Harness::new(service().tool(tool)).call_tool("pipeline", Json::empty_object());
    let received: Vec<_> = run.progress.iter().map(|(at, progress)| (at.as_secs(), progress.value.unwrap().round())).collect();
    let percent = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0];
    assert_eq!(received, (1..).zip(percent).collect::<Vec<_>>());
    assert_eq!(run.progress.last().map(|(_, progress)| progress.clone()), Some(Progress::percent(100.0)), "exactly");
}

#[test]
fn agent_client_capabilities_and_depth_describe_the_caller() {
    let tool = Tool::new("who", async |context: Context, (): ()| {
        let offers = context.capabilities();
        Ok((context.client().name, context.client().name, offers.sampling, offers.elicitation, offers.roots, context.depth()))
    });
    let run = Harness::new(service().tool(tool))
        .configure(|config| config.capabilities.roots = false)
        .call_tool("who", Json::empty_object());
    assert_eq!(run.text(), r#"{"result":["harness","harness",true,true,false,0]}"#);
}

#[test]
fn sample_confirm_and_elicit_return_the_answers_of_the_caller() {
    let tool = Tool::new("asks", async |context: Context, (): ()| {
        let sampled = context.sample(Sample::new("how?")).await?;
        let confirmed = context.confirm("sure?").await;
        let form = Elicit::new("where?", json(r#"{"type":"object","properties":{"city":{"type":"string"}}}"#));
        let content = context.elicit(form).await?.map(|content| content.to_string());
        let declined = context.confirm("really?").await;
        Ok((sampled.text, confirmed, content, declined))
    });
    let run = Harness::new(service().tool(tool))
        .answer(InputResponse::Sample(SampleResult::new("so", "m")))
        .answer(InputResponse::Elicit(ElicitResult::Accept(Json::empty_object())))
        .answer(InputResponse::Elicit(ElicitResult::Accept(json(r#"{"city":"Ulm"}"#))))
        .answer(InputResponse::Elicit(ElicitResult::Decline))
        .call_tool("asks", Json::empty_object());
    assert_eq!(run.text(), r#"{"result":["so",true,"{\"city\":\"Ulm\"}",false]}"#);
    assert!(matches!(
        run.asks[..],
        [(_, InputRequest::Sample(_)), (_, InputRequest::Elicit(_)), (_, InputRequest::Elicit(_)), (_, InputRequest::Elicit(_))]
    ));
}

#[test]
fn a_log_record_reaches_the_client_and_a_checkpoint_is_stored() {
    let tool = Tool::new("notes", async |context: Context, (): ()| {
        context.log(Level::Notice, "begun");
        context.log_as(Level::Error, "disk", serde_json::json!({ "free": 0 }));
        context.checkpoint(&serde_json::json!({ "done": 1 }));
        assert!(context.try_checkpoint(&[1]).is_err());
        Ok(())
    });
    let run = Harness::new(service().tool(tool)).call_tool("notes", Json::empty_object());
    let logged: Vec<_> =
        run.logs.iter().map(|(_, record)| (record.level, record.logger.as_deref(), record.data.as_str())).collect();
    assert_eq!(logged, [(Level::Notice, None, r#""begun""#), (Level::Error, Some("disk"), r#"{"free":0}"#)]);
    let stored: Vec<_> = run.checkpoints.iter().map(|(_, checkpoint)| checkpoint.as_str()).collect();
    assert_eq!((stored, run.counters.values_refused), (vec![r#"{"done":1}"#], 1));
}

#[test]
fn a_handler_may_set_its_own_deadline_and_rate() {
    let tool = Tool::new("strict", async |context: Context, (): ()| {
        let options = ServeOptions::default().with_deadline(ms(500)).with_window(RateWindow::new(1, ms(200)));
        context.configure(options).map_err(|_| "over")?;
        for step in 1..=100 {
            context.step(step, 100);
            context.sleep(ms(100)).await?;
        }
        Ok(())
    });
    let run = Harness::new(service().tool(tool)).call_tool("strict", Json::empty_object());
    assert_eq!(run.progress.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(0), ms(200), ms(400), ms(500)]);
    assert_eq!(run.done.as_ref().map(|(at, _)| *at), Some(ms(500)));
}

#[test]
fn a_cancel_and_its_reason_reach_the_handler_and_another_task() {
    let seen: Seen<(bool, Option<CancelReason>)> = Seen::new();
    let handed_on: Seen<Cancellation> = Seen::new();
    let (saw, handed) = (seen.clone(), handed_on.clone());
    let pair = pair(service().tool(Tool::new("watches", move |context: Context, (): ()| {
        let (saw, handed) = (saw.clone(), handed.clone());
        async move {
            handed.add(context.cancellation());
            saw.add((context.is_cancelled(), context.cancellation().reason()));
            let why = context.cancelled().await;
            saw.add((context.is_cancelled(), Some(why)));
            Ok(())
        }
    })));
    let call = pair.begin("watches");
    let handle = handed_on.take().pop().unwrap();
    assert!(!handle.is_cancelled());
    let saw = seen.clone();
    pair.executor.spawn({
        let handle = handle.clone();
        async move { saw.add((handle.is_cancelled(), Some(handle.cancelled().await))) }
    });
    pair.executor.run_until_stalled();
    call.cancel(Some("enough"));
    pair.executor.run_until_stalled();
    let enough = Some(CancelReason::Peer(Some("enough".into())));
    let values = seen.take();
    assert_eq!(values[0], (false, None));
    assert!(values[1..].iter().all(|(_, why)| *why == enough), "{values:?}");
    assert_eq!((values.len(), handle.reason()), (3, enough));
}

#[test]
fn the_handler_of_a_prompt_has_a_context_with_progress_and_time_limits() {
    let prompt = Prompt::new("slow", async |context: Context, _: BTreeMap<String, String>| {
        context.step(1, 2);
        context.with_timeout(context.sleep(ms(5000)), ms(100)).await.unwrap_err();
        context.step(2, 2);
        Ok::<_, ToolError>(PromptOutput::new([PromptMessage::user("done")]))
    });
    let run = Harness::new(service().prompt(prompt)).get_prompt("slow", &BTreeMap::new());
    assert_eq!((run.values(), run.ended), (vec![1.0, 2.0], Some(ms(100))));
}

// ---- Time ----

#[test]
fn sleep_and_with_timeout_are_deadlines_of_the_endpoint_in_virtual_time() {
    let day = Duration::from_secs(86_400);
    let pair = pair(service().tool(Tool::new("long", move |context: Context, (): ()| async move {
        context.sleep(day).await?;
        let result = context.with_timeout(std::future::pending::<()>(), day).await;
        Ok(result == Err(TimeoutError::Elapsed))
    })));
    let call = pair.begin("long");
    let at = |days: u64| protocol_core::Instant::from_millis(days * 86_400_000);
    assert_eq!(pair.executor.next_timer(), Some(at(1)), "no other timer is armed");
    pair.executor.advance_to(at(1));
    pair.executor.run_until_stalled();
    assert_eq!(pair.executor.next_timer(), Some(at(2)));
    let done = pair.wait(call);
    assert_eq!(pair.executor.now(), at(2));
    assert!(done.result().unwrap().as_str().contains(r#""result":true"#));
    assert_eq!(pair.executor.next_timer(), None, "no timer remains");
}

/// The result of `with_timeout` with a limit of one second on a future that is ready after `ready`, and the time of the result. The call
/// has the deadline `deadline`, and its caller cancels it after `cancel`. All times are in milliseconds.
fn limited(ready: u64, deadline: Option<u64>, cancel: Option<u64>) -> (Result<&'static str, TimeoutError>, Duration) {
    let executor = Executor::new();
    let seen = Seen::new();
    let (clock, saw) = (executor.clone(), seen.clone());
    let mut tool = Tool::new("limits", move |context: Context, (): ()| {
        let (clock, saw) = (clock.clone(), saw.clone());
        async move {
            let inner = async {
                sleep(&clock, ms(ready)).await;
                "value"
            };
            let result = context.with_timeout(inner, ms(1000)).await;
            saw.add((result, clock.now().saturating_duration_since(protocol_core::Instant::ZERO)));
            Ok(())
        }
    });
    if let Some(deadline) = deadline {
        tool = tool.deadline(ms(deadline));
    }
    let pair = pair_on(executor, service().tool(tool));
    let call = pair.begin("limits");
    if let Some(cancel) = cancel {
        pair.executor.run_for(ms(cancel));
        call.cancel(None);
    }
    pair.executor.run_for(ms(10_000));
    seen.take().pop().expect("the handler goes on")
}

#[test]
fn with_timeout_returns_the_value_if_the_future_is_first() {
    assert_eq!(limited(300, Some(400), None), (Ok("value"), ms(300)));
}

#[test]
fn with_timeout_returns_elapsed_if_the_limit_is_first() {
    assert_eq!(limited(5000, Some(5000), None), (Err(TimeoutError::Elapsed), ms(1000)));
}

#[test]
fn with_timeout_returns_cancelled_if_the_cancel_is_first() {
    assert_eq!(limited(5000, Some(5000), Some(400)), (Err(TimeoutError::Cancelled(CancelReason::Peer(None))), ms(400)));
}

#[test]
fn with_timeout_returns_timed_out_if_the_deadline_of_the_call_is_first() {
    assert_eq!(limited(5000, Some(700), None), (Err(TimeoutError::TimedOut), ms(700)));
}

#[test]
fn with_timeout_drops_a_stuck_future_and_the_handler_can_return_its_result() {
    let tool = Tool::new("goes_on", async |context: Context, (): ()| {
        let outside = Arc::new(());
        let inside = Arc::clone(&outside);
        let stuck = async move {
            let _inside = inside;
            std::future::pending::<()>().await;
        };
        let result = context.with_timeout(stuck, ms(10)).await;
        let dropped = Arc::strong_count(&outside) == 1;
        context.sleep(ms(5)).await?;
        Ok((dropped, result == Err(TimeoutError::Elapsed)))
    });
    let run = Harness::new(service().tool(tool)).call_tool("goes_on", Json::empty_object());
    assert_eq!((run.text().as_str(), run.ended), (r#"{"result":[true,true]}"#, Some(ms(15))));
}

#[test]
fn after_with_timeout_has_dropped_an_input_request_another_is_answered() {
    let tool = Tool::new("impatient", async |context: Context, (): ()| {
        let first = context.with_timeout(context.sample(Sample::new("one")), ms(100)).await;
        assert!(matches!(first, Err(TimeoutError::Elapsed)));
        Ok(context.sample(Sample::new("two")).await?.text)
    });
    let answer = |ask: &InputRequest| match ask {
        InputRequest::Sample(sample) if sample.prompt == "two" => Some(InputResponse::Sample(SampleResult::new("second", "m"))),
        _ => None,
    };
    let run = Harness::new(service().tool(tool)).answer_with(answer).call_tool("impatient", Json::empty_object());
    assert_eq!((run.text().as_str(), run.ended), ("second", Some(ms(100))));
}

// ---- Stopping ----

#[test]
fn the_cleanup_of_a_cancelled_handler_is_awaited_within_its_grace() {
    let executor = Executor::new();
    let seen = Seen::new();
    let quick = cleans_up("quick", &executor, &seen, ms(4999));
    let slow = cleans_up("slow", &executor, &seen, ms(5001));
    let pair = pair_on(executor, service().tool(quick).tool(slow));
    for (name, saw, abandoned) in [("quick", vec!["told", "tidy"], 0), ("slow", vec!["told"], 1)] {
        let call = pair.begin(name);
        call.cancel(None);
        assert_eq!(pair.wait(call).outcome, Outcome::Cancelled, "the call ends at once although its handler cleans up");
        pair.executor.run_for(ms(4000));
        assert_eq!(pair.server.stats().cancelled_calls, 1, "the handler still cleans up");
        pair.executor.run_for(ms(6000));
        assert_eq!(
            (seen.take(), pair.server.counters().abandoned, pair.server.stats().cancelled_calls),
            (saw, abandoned, 0),
            "{name}"
        );
    }
}

#[test]
fn cancelled_handlers_that_still_run_are_counted_and_bounded() {
    let tools = service().tool(stuck("stuck")).tool(Tool::new("quick", async |_: Context, (): ()| Ok(())));
    let pair = pair(tools.configure(|config| config.limits.in_flight = 3));
    let calls: Vec<Call> = (0..3).map(|_| pair.begin("stuck")).collect();
    calls.iter().for_each(|call| call.cancel(None));
    pair.executor.run_until_stalled();
    assert_eq!((pair.server.stats().inbound_calls, pair.server.stats().cancelled_calls), (3, 3));
    assert_eq!(pair.client.stats().outbound_calls, 0, "the calls have ended at the caller");
    let busy = pair.wait(pair.call("quick"));
    assert!(matches!(&busy.outcome, Outcome::Error(error) if error.code == RpcError::BUSY), "{busy:?}");
    pair.executor.run_for(ms(5000));
    assert_eq!((pair.server.stats().cancelled_calls, pair.server.counters().abandoned), (0, 3));
    assert!(matches!(pair.wait(pair.call("quick")).outcome, Outcome::Result(_)));
}

#[test]
fn once_its_call_has_ended_a_context_sends_no_frame_and_returns_errors() {
    let kept: Seen<Context> = Seen::new();
    let keep = kept.clone();
    let pair = pair(service().tool(Tool::new("leaks", move |context: Context, (): ()| {
        keep.add(context);
        std::future::ready(Ok(()))
    })));
    pair.wait(pair.call("leaks"));
    pair.executor.run_until_stalled();
    let before = pair.server.stats().frames_out;
    let context = kept.take().pop().unwrap();
    // These methods return no error. They have no effect.
    context.step(1, 2);
    context.log(Level::Error, "not sent");
    context.checkpoint(&serde_json::json!({}));
    assert_eq!(context.try_progress(Progress::step(1, 2)), Err(ProgressError::NotLive));
    assert_eq!(context.try_checkpoint(&serde_json::json!({})), Err(CheckpointError::NotLive));
    assert_eq!(context.configure(ServeOptions::default()), Err(NotLive));
    assert!(!pair.wait(context.confirm("anybody?")));
    assert_eq!(pair.wait(context.sample(Sample::new("anybody?"))).unwrap_err(), AskFailed::Over);
    pair.executor.run_until_stalled();
    assert_eq!(pair.server.stats().frames_out, before, "no frame is sent");
}

#[test]
fn dropping_a_call_cancels_it_and_dropping_the_peer_does_not() {
    let executor = Executor::new();
    let seen = Seen::new();
    let sleeper = Tool::new("sleeps", async |context: Context, (): ()| {
        context.sleep(ms(1000)).await?;
        Ok(())
    });
    let pair = pair_on(executor.clone(), service().tool(cleans_up("waits", &executor, &seen, ms(1))).tool(sleeper));
    drop(pair.begin("waits"));
    executor.run_for(ms(1));
    assert_eq!(seen.take(), ["told", "tidy"]);
    let call = pair.begin("sleeps");
    drop((pair.client, pair.server));
    assert!(matches!(executor.block_on(call).unwrap().outcome, Outcome::Result(_)));
}

#[test]
fn a_panic_of_a_handler_becomes_an_internal_error_of_its_call_only() {
    let panics = Tool::new("panics", async |context: Context, (): ()| -> Result<(), ToolError> {
        context.sleep(ms(50)).await?;
        panic!("a planned panic")
    });
    let steady = Tool::new("steady", async |context: Context, (): ()| {
        context.sleep(ms(100)).await?;
        Ok(())
    });
    let pair = pair(service().tool(panics).tool(steady));
    let (before, panicking, after) = (pair.call("steady"), pair.call("panics"), pair.call("steady"));
    let done = pair.wait(panicking);
    assert!(matches!(&done.outcome, Outcome::Error(error) if error.code == RpcError::INTERNAL), "{done:?}");
    for call in [before, after, pair.call("steady")] {
        assert!(matches!(pair.wait(call).outcome, Outcome::Result(_)));
    }
    assert_eq!((pair.server.counters().panics, pair.server.stats().inbound_calls), (1, 0));
}
