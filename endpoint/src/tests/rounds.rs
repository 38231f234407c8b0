//! Handlers that make input requests in MCP 2026-07-28: an input request ends the request of the call, and its answer comes with a retry.

mod hostile;
mod newest;
mod random;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol_core::drive::Machine as _;
use protocol_core::mcp::Era;
use protocol_core::{
    Config, Elicit, ElicitResult, Identity, InputRequest, InputResponse, Json, Lane, Level, OpenUrl, OpenUrlResult, RpcError,
    Sample, SampleResult,
};
use serde_json::{Value, json};

use crate::testing::{Executor, Harness, connect, every_round};
use crate::{
    AskFailed, BoxFuture, Client, Context, Endpoint, Extensions, InputContext, Principal, Prompt, PromptMessage, PromptOutput,
    SealKeys, Service, Tool, ToolError,
};

/// One process that serves a service.
struct Process {
    endpoint: Endpoint,
    executor: Executor,
}

impl Process {
    fn new(service: Service) -> Self {
        let executor = Executor::new();
        let service = service.configure(|config: &mut Config| config.era = Era::Auto);
        Self { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor }
    }

    /// Sends a request of a client that has declared all capabilities, and returns the frames that come back.
    fn request(&mut self, id: u64, method: &str, params: &Value) -> Vec<Value> {
        let all = json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}});
        self.request_as(id, method, params, &all, Extensions::new())
    }

    /// Sends a request of a client that declares the capabilities `declares`, with the values that the transport attaches to its frame.
    fn request_as(&mut self, id: u64, method: &str, params: &Value, declares: &Value, extensions: Extensions) -> Vec<Value> {
        let mut params = params.clone();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": declares,
            "io.modelcontextprotocol/logLevel": "debug",
            "progressToken": id,
        });
        params["_meta"] = meta;
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let now = self.executor.now();
        self.endpoint.handle_frame_by(frame.to_string().into(), Lane::CHANNEL, extensions, now).unwrap();
        self.sent()
    }

    /// Takes the frames in the outbox.
    fn sent(&mut self) -> Vec<Value> {
        while self.endpoint.poll_event().is_some() {}
        self.executor.run_until_stalled();
        let frames = std::iter::from_fn(|| self.endpoint.poll_transmit());
        frames.map(|frame| serde_json::from_slice(&frame.frame).unwrap()).collect()
    }

    /// Lets `span` pass, and returns the frames that are sent meanwhile.
    fn wait(&mut self, span: Duration) -> Vec<Value> {
        self.executor.run_for(span);
        let now = self.executor.now();
        self.endpoint.handle_timeout(now);
        self.sent()
    }
}

/// The last frame, which is the response.
fn response(frames: &[Value]) -> &Value {
    frames.last().unwrap_or_else(|| panic!("no response"))
}

fn is_round(frames: &[Value]) -> bool {
    response(frames)["result"]["resultType"] == "input_required"
}

/// The parameters of the retry of a request that was answered with a round. `answer` gets the name, the method and the parameters of each
/// input request, and returns `None` if the input request stays unanswered.
fn retry(params: &Value, frames: &[Value], mut answer: impl FnMut(&str, &str, &Value) -> Option<Value>) -> Value {
    let result = &response(frames)["result"];
    let mut params = params.clone();
    let mut answers = BTreeMap::new();
    for (name, input) in result["inputRequests"].as_object().into_iter().flatten() {
        if let Some(answer) = answer(name, input["method"].as_str().unwrap(), &input["params"]) {
            answers.insert(name.clone(), answer);
        }
    }
    params["inputResponses"] = json!(answers);
    params["requestState"] = result["requestState"].clone();
    params
}

/// The answers of an agreeable user and model.
fn agree(_: &str, method: &str, params: &Value) -> Option<Value> {
    Some(match method {
        "sampling/createMessage" => {
            let prompt = params["messages"][0]["content"]["text"].as_str().unwrap();
            json!({"role": "assistant", "content": {"type": "text", "text": format!("answer to {prompt}")}, "model": "m"})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///home"}]}),
        _ if params["mode"] == "url" => json!({"action": "accept"}),
        _ => json!({"action": "accept", "content": {"name": "Ada"}}),
    })
}

/// Calls a tool, and sends each request of the call to the process that `next` returns. Returns the last response and the number of rounds.
fn call_over(mut next: impl FnMut(usize) -> Process, params: &Value) -> (Value, usize) {
    let mut process = next(0);
    let mut frames = process.request(1, "tools/call", params);
    let mut rounds = 0;
    while is_round(&frames) {
        rounds += 1;
        process = next(rounds);
        frames = process.request(1 + rounds as u64, "tools/call", &retry(params, &frames, agree));
    }
    (response(&frames).clone(), rounds)
}

// ---- One handler in every era ----

/// A client of either era that answers as [`agree`] does.
struct Agreeable;

impl Client for Agreeable {
    fn capabilities(&self) -> protocol_core::Capabilities {
        let mut all = protocol_core::Capabilities::default();
        (all.sampling, all.elicitation, all.elicitation_url, all.roots) = (true, true, true, true);
        all
    }

    fn sample(&self, _: InputContext, sample: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        Box::pin(async move { Ok(SampleResult::new(format!("answer to {}", sample.prompt), "m")) })
    }

    fn elicit(&self, _: InputContext, _: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        Box::pin(async { Ok(ElicitResult::Accept(Json::parse(r#"{"name":"Ada"}"#).unwrap())) })
    }

    fn open_url(&self, _: InputContext, _: OpenUrl) -> BoxFuture<'static, Result<OpenUrlResult, RpcError>> {
        Box::pin(async { Ok(OpenUrlResult::Accept) })
    }

    fn roots(&self, _: InputContext) -> BoxFuture<'static, Result<Json, RpcError>> {
        Box::pin(async { Ok(Json::parse(r#"[{"uri":"file:///home"}]"#).unwrap()) })
    }
}

/// A tool with three input requests, one of them joined with a sleep, and one effect. `runs` counts the runs of the handler, `charges`
/// those of the effect.
fn survey(runs: &Arc<AtomicUsize>, charges: &Arc<AtomicUsize>) -> Tool {
    let (runs, charges) = (Arc::clone(runs), Arc::clone(charges));
    Tool::new("survey", move |context: Context, (): ()| {
        let (runs, charges) = (Arc::clone(&runs), Arc::clone(&charges));
        async move {
            runs.fetch_add(1, Ordering::Relaxed);
            context.step(1, 4);
            let form = Json::parse(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#)?;
            let named = context.elicit(Elicit::new("Who are you?", form)).key("user_name").await?;
            context.step(2, 4);
            let paid: u32 = context
                .once("charge", async |_key| {
                    charges.fetch_add(1, Ordering::Relaxed);
                    context.sleep(Duration::from_millis(5)).await?;
                    Ok(41)
                })
                .await?;
            let (sampled, slept) = join(context.sample(Sample::new("why?")), context.sleep(Duration::from_millis(5))).await;
            slept?;
            context.step(3, 4);
            let roots = context.roots().await?;
            let name = named.map_or_else(String::new, |json| json.as_str().to_owned());
            Ok(format!("{name}, {paid}, {}, {}", sampled?.text, roots.as_str()))
        }
    })
}

/// A client whose user does not answer.
struct Absent;

impl Client for Absent {
    fn capabilities(&self) -> protocol_core::Capabilities {
        Agreeable.capabilities()
    }

    fn elicit(&self, _: InputContext, _: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_call_that_waits_for_its_user_is_continued_by_another_client_and_another_server() {
    let (runs, charges) = (Arc::default(), Arc::default());
    let service = || plain(survey(&runs, &charges)).seal_keys(keys());
    let client = |client: Arc<dyn Client>, executor: &Executor| {
        let mut config = Config::mcp_client(Identity::new("c", "1"));
        config.era = Era::Modern;
        Endpoint::client(client, config, executor.runtime())
    };
    let Process { endpoint: server, executor } = Process::new(service());
    let first = client(Arc::new(Absent), &executor);
    let peer = first.peer();
    connect(&executor, server, first);
    let call = peer.call_tool("survey", Json::empty_object()).unwrap();
    assert_eq!(call.pending_input(), None);
    executor.run_for(Duration::from_secs(600));
    let kept = serde_json::to_string(&call.pending_input().unwrap()).unwrap();
    drop(call);
    // The first client and the first server are not run any more.
    let Process { endpoint: server, executor } = Process::new(service());
    let second = client(Arc::new(Agreeable), &executor);
    let peer = second.peer();
    connect(&executor, server, second);
    executor.block_on(peer.ready()).unwrap().unwrap();
    let call = peer.resume_input(&serde_json::from_str(&kept).unwrap()).unwrap();
    let outcome = executor.block_on(call).unwrap();
    assert_eq!(outcome.tool_as::<String>().unwrap(), SURVEYED);
    assert_eq!(charges.load(Ordering::Relaxed), 1);
    // A client with a handshake cannot continue the call.
    let Process { endpoint: server, executor } = Process::new(service());
    let legacy = Endpoint::client(Arc::new(Agreeable), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
    let peer = legacy.peer();
    connect(&executor, server, legacy);
    executor.run_for(Duration::from_secs(1));
    assert_eq!(peer.resume_input(&serde_json::from_str(&kept).unwrap()).err(), Some(protocol_core::SendError::Unsupported));
}

/// Polls both futures until both are ready.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut one, mut other) = (None, None);
    std::future::poll_fn(|cx| {
        if one.is_none()
            && let std::task::Poll::Ready(value) = a.as_mut().poll(cx)
        {
            one = Some(value);
        }
        if other.is_none()
            && let std::task::Poll::Ready(value) = b.as_mut().poll(cx)
        {
            other = Some(value);
        }
        if one.is_some() && other.is_some() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    (one.unwrap(), other.unwrap())
}

/// The result of [`survey`] for a caller that answers as [`agree`] does.
const SURVEYED: &str = r#"{"name":"Ada"}, 41, answer to why?, [{"uri":"file:///home"}]"#;

fn keys() -> SealKeys {
    SealKeys::new([7; 32])
}

/// A service with this tool alone.
fn plain(tool: Tool) -> Service {
    Service::new("s", "1").tool(tool)
}

#[test]
fn one_handler_gives_the_same_result_in_every_era_and_over_several_processes() {
    let (runs, charges) = (Arc::default(), Arc::default());
    let service = || plain(survey(&runs, &charges)).seal_keys(keys());
    let params = json!({"name": "survey", "arguments": {}});
    for (era, expected) in [(Era::Legacy, (1, 1)), (Era::Modern, (4, 1))] {
        let Process { endpoint: server, executor } = Process::new(service());
        let mut config = Config::mcp_client(Identity::new("c", "1"));
        config.era = era;
        let client = Endpoint::client(Arc::new(Agreeable), config, executor.runtime());
        let peer = client.peer();
        connect(&executor, server, client);
        let text: String = executor.block_on(peer.call_tool_as("survey", &json!({}))).unwrap().unwrap();
        assert_eq!(text, SURVEYED, "{era:?}");
        assert_eq!((runs.swap(0, Ordering::Relaxed), charges.swap(0, Ordering::Relaxed)), expected, "{era:?}");
    }
    // A new process for each request; the process of the request before is gone.
    let (last, rounds) = call_over_waiting(|_| Process::new(service()), &params);
    assert_eq!((last["result"]["content"][0]["text"].as_str(), rounds), (Some(SURVEYED), 3));
    assert_eq!((runs.load(Ordering::Relaxed), charges.load(Ordering::Relaxed)), (4, 1), "the effect happened once");
}

/// As [`call_over`], for handlers that take some time.
fn call_over_waiting(mut next: impl FnMut(usize) -> Process, params: &Value) -> (Value, usize) {
    let mut process = next(0);
    let mut frames = process.request(1, "tools/call", params);
    let mut rounds = 0;
    loop {
        while !frames.iter().any(|frame| frame.get("result").is_some() || frame.get("error").is_some()) {
            frames = process.wait(Duration::from_millis(1));
        }
        if !is_round(&frames) {
            return (response(&frames).clone(), rounds);
        }
        rounds += 1;
        process = next(rounds);
        frames = process.request(1 + rounds as u64, "tools/call", &retry(params, &frames, agree));
    }
}

#[test]
fn a_prompt_can_make_an_input_request() {
    let prompt = Prompt::new("p", async |context: Context, _: std::collections::BTreeMap<String, String>| {
        let sampled = context.sample(Sample::new("which?")).await?;
        Ok(PromptOutput::new([PromptMessage::user(sampled.text)]))
    });
    let mut process = Process::new(Service::new("s", "1").prompt(prompt));
    let params = json!({"name": "p"});
    let frames = process.request(1, "prompts/get", &params);
    let frames = process.request(2, "prompts/get", &retry(&params, &frames, agree));
    assert_eq!(response(&frames)["result"]["messages"][0]["content"]["text"], "answer to which?");
}

// ---- Rounds ----

#[test]
fn open_input_requests_are_sent_in_one_round_and_unanswered_requests_again() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let (one, other) = join(context.sample(Sample::new("a")).key("one"), context.sample(Sample::new("b")).key("other")).await;
        Ok(format!("{}, {}", one?.text, other?.text))
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let asked: Vec<_> = response(&frames)["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(asked, ["one", "other"]);
    let half = retry(&params, &frames, |name, method, params| if name == "one" { agree(name, method, params) } else { None });
    let frames = process.request(2, "tools/call", &half);
    let asked: Vec<_> = response(&frames)["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(asked, ["other"], "the first answer stands in the log");
    // An answer with the name of no input request is ignored.
    let mut whole = retry(&params, &frames, agree);
    whole["inputResponses"]["stranger"] = json!(7);
    let frames = process.request(3, "tools/call", &whole);
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "answer to a, answer to b");
}

#[test]
fn progress_and_log_records_of_an_earlier_run_are_not_sent_again() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        context.step(1, 2);
        context.log(Level::Info, "begins");
        context.sample(Sample::new("?")).await?;
        context.step(2, 2);
        context.log(Level::Info, "ends");
        Ok("done")
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let shown = |frames: &[Value]| -> Vec<Value> {
        let content = |frame: &Value| {
            if frame["params"]["data"].is_null() { frame["params"]["progress"].clone() } else { frame["params"]["data"].clone() }
        };
        frames[..frames.len() - 1].iter().map(content).collect()
    };
    let frames = process.request(1, "tools/call", &params);
    assert_eq!(shown(&frames), [json!(1), json!("begins")]);
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(shown(&frames), [json!(2), json!("ends")]);
}

/// In the last retry, a handler that runs again is cut short before it comes to its second checkpoint again.
#[test]
fn the_last_checkpoint_before_a_round_is_sent_if_a_retry_is_cut_short() {
    let tool = |text: &str| {
        let text = text.to_owned();
        Tool::new("t", move |context: Context, (): ()| {
            let text = text.clone();
            async move {
                context.checkpoint(&json!({"processed": 1}));
                context.sleep(Duration::from_secs(2)).await?;
                context.sample(Sample::new("a")).await?;
                context.checkpoint(&json!({"processed": 2, "text": text}));
                context.sample(Sample::new("b")).await?;
                context.sleep(Duration::from_secs(2)).await?;
                Ok("done")
            }
        })
        .deadline(Duration::from_secs(3))
    };
    let params = json!({"name": "t"});
    // A checkpoint that does not fit into the state is left out of it. Then the last checkpoint of the current run is sent.
    for (text, expected) in [("x", 2), (&*"x".repeat(13_000), 1), (&*"x".repeat(20_000), 1)] {
        let mut process = Process::new(plain(tool(text)));
        process.request(1, "tools/call", &params);
        let mut frames = process.wait(Duration::from_secs(2));
        for id in [2, 3] {
            frames = process.request(id, "tools/call", &retry(&params, &frames, agree));
            if id == 2 && frames.is_empty() {
                frames = process.wait(Duration::from_secs(2));
            }
        }
        assert_eq!(frames, [Value::Null; 0]);
        process.wait(Duration::from_secs(1));
        process.endpoint.peer().close(protocol_core::Close::Now);
        let frames = process.sent();
        let result = &response(&frames)["result"];
        assert_eq!(
            (&result["structuredContent"]["processed"], &result["structuredContent"]["status"]),
            (&json!(expected), &json!("cancelled")),
            "{frames:?}"
        );
    }
}

#[test]
fn a_task_that_the_handler_spawned_can_make_an_input_request() {
    let executor = Executor::new();
    let spawner = executor.clone();
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let (text, spawner) = (Arc::new(Mutex::new(None)), spawner.clone());
        let (found, asker) = (Arc::clone(&text), context.clone());
        async move {
            spawner.spawn(async move {
                let sampled = asker.sample(Sample::new("?")).await;
                *found.lock().unwrap() = sampled.ok().map(|sampled| sampled.text);
            });
            while text.lock().unwrap().is_none() {
                context.sleep(Duration::from_secs(1)).await?;
            }
            let text = text.lock().unwrap().take();
            Ok(text.unwrap_or_default())
        }
    });
    let service = plain(tool).configure(|config: &mut Config| config.era = Era::Auto);
    let mut process = Process { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor };
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    assert!(is_round(&frames), "{frames:?}");
    let mut frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    if frames.is_empty() {
        frames = process.wait(Duration::from_secs(2));
    }
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "answer to ?");
}

#[test]
fn the_time_limit_of_an_answer_is_checked_when_the_retry_arrives() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        Ok(match context.sample(Sample::new("?")).within(Duration::from_secs(60)).await {
            Ok(sampled) => sampled.text,
            Err(failed) => failed.to_string(),
        })
    });
    for (waits, expected) in [(59, "answer to ?"), (62, "the caller did not answer in time")] {
        let mut process = Process::new(plain(tool.clone()));
        let params = json!({"name": "t"});
        let frames = process.request(1, "tools/call", &params);
        process.wait(Duration::from_secs(waits));
        let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
        assert_eq!(response(&frames)["result"]["content"][0]["text"], expected);
    }
}

#[test]
fn a_guard_of_a_handler_that_is_dropped_in_a_round_knows_that_the_handler_will_run_again() {
    /// Notes when it is dropped whether its context says that the handler will run again.
    struct Guard(Arc<Mutex<Vec<bool>>>, Context);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1.will_run_again());
        }
    }
    let noted: Arc<Mutex<Vec<bool>>> = Arc::default();
    let notes = Arc::clone(&noted);
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let guard = Guard(Arc::clone(&notes), context.clone());
        async move {
            let _guard = guard;
            Ok(context.sample(Sample::new("?")).await?.text)
        }
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    assert_eq!(*noted.lock().unwrap(), [true]);
    assert!(!is_round(&process.request(2, "tools/call", &retry(&params, &frames, agree))));
    assert_eq!(*noted.lock().unwrap(), [true, false]);
}

#[test]
fn the_ninth_round_is_an_error() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        for turn in 0..9 {
            context.sample(Sample::new(format!("turn {turn}"))).await?;
        }
        Ok("done")
    });
    let (last, rounds) = {
        let service = || plain(tool.clone()).seal_keys(keys());
        call_over(|_| Process::new(service()), &json!({"name": "t"}))
    };
    assert_eq!((rounds, last["error"]["code"].as_i64()), (8, Some(-32603)));
}

// ---- Answers ----

#[test]
fn an_answer_of_a_wrong_shape_is_asked_for_once_more_and_then_refused() {
    let tool = Tool::new("t", async |context: Context, (): ()| Ok(context.sample(Sample::new("?")).await?.text));
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let frames = process.request(2, "tools/call", &retry(&params, &frames, |_, _, _| Some(json!({"content": 7}))));
    assert!(is_round(&frames), "{frames:?}");
    let again = process.request(3, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(response(&again)["result"]["content"][0]["text"], "answer to ?");
    let frames = process.request(4, "tools/call", &retry(&params, &frames, |_, _, _| Some(json!("no object"))));
    assert_eq!(response(&frames)["error"]["code"], -32602);
}

#[test]
fn a_declined_input_request_is_not_made_again() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let agreed = context.confirm("Delete?").await;
        let sure = context.confirm("Sure?").await;
        Ok(format!("{agreed} {sure}"))
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let frames = process.request(2, "tools/call", &retry(&params, &frames, |_, _, _| Some(json!({"action": "decline"}))));
    let frames = process.request(3, "tools/call", &retry(&params, &frames, |_, _, _| Some(json!({"action": "accept"}))));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "false true");
}

/// The handler takes a random path in each run, and makes different input requests on each path.
#[test]
fn no_path_of_a_handler_gets_the_answer_to_another_input_request() {
    for seed in 0..200_u64 {
        let bits = Arc::new(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
        let tool = Tool::new("t", move |context: Context, (): ()| {
            let bits = Arc::clone(&bits);
            async move {
                for step in 0..4 {
                    let branch = {
                        let mut bits = bits.lock().unwrap();
                        *bits ^= *bits << 13;
                        *bits ^= *bits >> 7;
                        *bits ^= *bits << 17;
                        *bits % 3
                    };
                    let prompt = format!("step {step} branch {branch}");
                    let sampled = context.sample(Sample::new(prompt.clone())).await?;
                    assert_eq!(sampled.text, format!("answer to {prompt}"), "seed {seed}");
                }
                Ok("done")
            }
        });
        let service = || plain(tool.clone()).seal_keys(keys());
        let (last, rounds) = call_over(|_| Process::new(service()), &json!({"name": "t"}));
        assert!(rounds <= 8, "it ends");
        let text = last["result"]["content"][0]["text"].as_str();
        assert!(text == Some("done") || last["error"]["code"] == -32603, "seed {seed}: {last}");
    }
}

// ---- Capabilities and depth ----

#[test]
fn a_missing_capability_is_a_protocol_error_unless_the_handler_handles_it() {
    let unhandled = Tool::new("u", async |context: Context, (): ()| Ok(context.sample(Sample::new("?")).await?.text));
    let handled =
        Tool::new("h", async |context: Context, (): ()| Ok(matches!(context.roots().await, Err(AskFailed::NoRoots)).to_string()));
    let mut process = Process::new(plain(unhandled).tool(handled));
    let none = json!({});
    let frames = process.request_as(1, "tools/call", &json!({"name": "u"}), &none, Extensions::new());
    assert_eq!(response(&frames)["error"]["code"], -32021);
    assert_eq!(response(&frames)["error"]["data"], json!({"requiredCapabilities": {"sampling": {}}}));
    let frames = process.request_as(2, "tools/call", &json!({"name": "h"}), &none, Extensions::new());
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "true");
}

#[test]
fn a_tool_that_needs_a_capability_is_not_run_without_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut needs = protocol_core::Capabilities::default();
    (needs.sampling, needs.roots) = (true, true);
    let tool = Tool::new("t", move |_: Context, (): ()| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok("ran") }
    })
    .needs(needs);
    let harness = Harness::new(plain(tool.clone())).configure(|config| config.capabilities.roots = false);
    let run = harness.call_tool("t", Json::empty_object());
    assert_eq!((run.is_tool_error(), run.text().as_str()), (true, "the caller does not offer roots"));
    let mut process = Process::new(plain(tool));
    let frames = process.request_as(1, "tools/call", &json!({"name": "t"}), &json!({"sampling": {}}), Extensions::new());
    assert_eq!(response(&frames)["error"]["code"], -32021);
    assert_eq!(response(&frames)["error"]["data"]["requiredCapabilities"], json!({"sampling": {}, "roots": {}}));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    let frames = process.request(2, "tools/call", &json!({"name": "t"}));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "ran");
}

/// The specification ("Basic", "Error Codes") puts -32021 before the errors about the parameters of a tool.
#[test]
fn a_missing_capability_is_named_before_wrong_arguments_are() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Arguments {
        #[expect(dead_code)]
        count: u32,
    }
    let mut needs = protocol_core::Capabilities::default();
    needs.sampling = true;
    let tool = Tool::new("t", |_: Context, _: Arguments| async { Ok("ran") }).needs(needs);
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t", "arguments": {"count": "many"}});
    let frames = process.request_as(1, "tools/call", &params, &json!({}), Extensions::new());
    assert_eq!(response(&frames)["error"]["code"], -32021);
    let frames = process.request_as(2, "tools/call", &params, &json!({"sampling": {}}), Extensions::new());
    assert_ne!(response(&frames)["error"]["code"], -32021);
    assert!(response(&frames).to_string().contains("count"), "{frames:?}");
}

#[test]
fn the_sampling_depth_of_the_first_request_holds_for_its_retries() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        context.sample(Sample::new("first")).await?;
        let second = context.sample(Sample::new("second")).await;
        Ok(format!("{} {}", context.depth(), second.is_ok()))
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frame = |params: &Value, depth: u8| {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
            "protocol-core/samplingDepth": depth,
        });
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
    };
    let send = |process: &mut Process, text: String| {
        let now = process.executor.now();
        process.endpoint.handle_frame(text.into(), now).unwrap();
        process.sent()
    };
    let frames = send(&mut process, frame(&params, 2));
    // The retry names a smaller depth.
    let frames = send(&mut process, frame(&retry(&params, &frames, agree), 0));
    assert!(is_round(&frames), "a second sampling request at depth 3 is allowed");
    let frames = send(&mut process, frame(&retry(&params, &frames, agree), 0));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "2 true");
    let frames = send(&mut process, frame(&params, 3));
    assert!(response(&frames)["result"]["isError"] == true, "depth 4 is too deep: {frames:?}");
}

// ---- States ----

fn asks_and_echoes() -> Tool {
    Tool::new("t", async |context: Context, given: BTreeMap<String, u8>| {
        let sampled = context.sample(Sample::new("?")).await?;
        Ok(format!("{given:?} {}", sampled.text))
    })
}

#[test]
fn a_state_of_another_request_caller_service_or_version_is_refused_and_nothing_runs() {
    let runs = Arc::new(AtomicUsize::new(0));
    let service = |name: &str, version: &str| {
        let runs = Arc::clone(&runs);
        let other = Tool::new("other", move |context: Context, (): ()| {
            runs.fetch_add(1, Ordering::Relaxed);
            async move { Ok(context.sample(Sample::new("?")).await?.text) }
        });
        Service::new(name, "1").tool(asks_and_echoes()).tool(other).seal_keys(keys()).handlers_version(version)
    };
    let alice = || Extensions::new().with(Principal::new("alice"));
    let bob = || Extensions::new().with(Principal::new("bob"));
    let all = json!({"sampling": {}});
    let params = json!({"name": "t", "arguments": {"x": 1, "a": 2}});
    let mut process = Process::new(service("s", "1"));
    let frames = process.request_as(1, "tools/call", &params, &all, alice());
    let good = retry(&params, &frames, agree);
    let refused = |process: &mut Process, params: &Value, extensions| {
        let frames = process.request_as(2, "tools/call", params, &all, extensions);
        assert_eq!((frames.len(), &response(&frames)["error"]["code"]), (1, &json!(-32602)), "{params}");
        assert_eq!(response(&frames)["error"]["message"], "the state of this request is not accepted", "one text for every reason");
    };
    let with = |change: &dyn Fn(&mut Value)| {
        let mut params = good.clone();
        change(&mut params);
        params
    };
    refused(&mut process, &with(&|params| params["arguments"]["x"] = json!(2)), alice());
    refused(&mut process, &with(&|params| params["name"] = json!("other")), alice());
    refused(&mut process, &with(&|params| params["more"] = json!(true)), alice());
    refused(&mut process, &with(&|params| params["requestState"] = json!("")), alice());
    refused(&mut process, &with(&|params| params["requestState"] = json!("x".repeat(1 << 20))), alice());
    let state = good["requestState"].as_str().unwrap().to_owned();
    refused(&mut process, &with(&|params| params["requestState"] = json!(state[..state.len() - 1])), alice());
    refused(&mut process, &good, bob());
    refused(&mut process, &good, Extensions::new());
    refused(&mut Process::new(service("other", "1")), &good, alice());
    refused(&mut Process::new(service("s", "2")), &good, alice());
    refused(&mut Process::new(service("s", "1").seal_keys(SealKeys::new([8; 32]))), &good, alice());
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    // The order of members does not matter, and an older key opens the state.
    let reordered = with(&|params| params["arguments"] = json!({"a": 2, "x": 1}));
    let rotated = service("s", "1").seal_keys(SealKeys::new([8; 32]).also_opens([7; 32]));
    let frames = Process::new(rotated).request_as(3, "tools/call", &reordered, &all, alice());
    assert_eq!(response(&frames)["result"]["content"][0]["text"], r#"{"a": 2, "x": 1} answer to ?"#);
    // A state may be sent several times, and each time the handler runs.
    for id in 4..6 {
        let frames = process.request_as(id, "tools/call", &good, &all, alice());
        assert_eq!(response(&frames)["result"]["content"][0]["text"], r#"{"a": 2, "x": 1} answer to ?"#);
    }
}

#[test]
fn a_state_expires_after_ten_minutes_and_thirty_seconds_of_clock_skew() {
    for (seconds, opens) in [(629, true), (632, false)] {
        let mut process = Process::new(plain(asks_and_echoes()));
        let params = json!({"name": "t", "arguments": {}});
        let frames = process.request(1, "tools/call", &params);
        process.wait(Duration::from_secs(seconds));
        let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
        assert_eq!(response(&frames).get("result").is_some(), opens, "{seconds} s: {frames:?}");
    }
}

#[test]
fn answers_without_a_state_begin_a_new_call() {
    let mut process = Process::new(plain(asks_and_echoes()));
    let params = json!({"name": "t", "arguments": {}, "inputResponses": {"input-1": {"content": {"type": "text", "text": "x"}}}});
    assert!(is_round(&process.request(1, "tools/call", &params)));
}

#[test]
fn a_state_that_grows_beyond_its_limit_is_an_error() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let long: String = context.once("long", async |_| Ok("x".repeat(20_000))).await?;
        context.sample(Sample::new("?")).await?;
        Ok(long.len().to_string())
    });
    let mut process = Process::new(plain(tool));
    let frames = process.request(1, "tools/call", &json!({"name": "t"}));
    assert!(response(&frames)["error"]["message"].as_str().unwrap().contains("too large"), "{frames:?}");
}

/// A model answers with 12,000 letters, of which the handler needs one.
#[test]
fn a_handler_can_keep_a_part_of_a_long_answer_in_the_log() {
    let reduced = Arc::new(AtomicUsize::new(0));
    let tool = |is_kept: bool| {
        let reduced = Arc::clone(&reduced);
        Tool::new("t", move |context: Context, (): ()| {
            let reduced = Arc::clone(&reduced);
            async move {
                let reduce = move |sampled: SampleResult| {
                    reduced.fetch_add(1, Ordering::Relaxed);
                    sampled.text.chars().next().unwrap()
                };
                let sampled = context.sample(Sample::new("long")).key("long");
                let first = if is_kept { sampled.keep(reduce).await? } else { reduce(sampled.await?) };
                let declined = context
                    .elicit(Elicit::new("?", Json::parse(r#"{"type":"object","properties":{"name":{"type":"string"}}}"#)?))
                    .keep(|form| form.is_none())
                    .await?;
                let last = context.sample(Sample::new("last")).keep(|sampled| sampled.text.len()).await?;
                Ok(format!("{first} {declined} {last}"))
            }
        })
    };
    let long = |_: &str, method: &str, params: &Value| match method {
        "elicitation/create" => Some(json!({"action": "decline"})),
        _ => {
            let mut answer = agree("", method, params)?;
            answer["content"]["text"] = json!("x".repeat(12_000));
            Some(answer)
        }
    };
    let params = json!({"name": "t"});
    // Without `keep`, the whole answer does not fit into the state.
    for (is_kept, expected) in [(true, Ok("x true 12000")), (false, Err(-32603))] {
        reduced.store(0, Ordering::Relaxed);
        let mut process = Process::new(plain(tool(is_kept)).seal_keys(keys()));
        let mut frames = process.request(1, "tools/call", &params);
        for id in 2..5 {
            if is_round(&frames) {
                frames = process.request(id, "tools/call", &retry(&params, &frames, long));
            }
        }
        let last = response(&frames);
        let text = last["result"]["content"][0]["text"].as_str().ok_or_else(|| last["error"]["code"].as_i64().unwrap());
        assert_eq!(text, expected);
        assert_eq!(reduced.load(Ordering::Relaxed), 1, "an answer that was kept is not reduced again");
    }
    every_round(|| plain(tool(true)), "t", &Json::empty_object(), agree_as_client);
}

/// The kept part of an answer is no answer to the same input request without `keep`.
#[test]
fn a_kept_answer_is_not_the_answer_to_an_input_request_that_needs_the_whole() {
    let runs = Arc::new(AtomicUsize::new(0));
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let runs = Arc::clone(&runs);
        async move {
            let keeps = runs.fetch_add(1, Ordering::Relaxed) < 2;
            if keeps {
                context.sample(Sample::new("a")).keep(|sampled| sampled.text.len()).await?;
                context.sample(Sample::new("b")).await?;
            }
            Ok(context.sample(Sample::new("a")).await?.text)
        }
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    let frames = process.request(3, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(response(&frames)["result"]["inputRequests"].as_object().unwrap().len(), 1, "it is asked again: {frames:?}");
    let frames = process.request(4, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "answer to a");
}

// ---- Effects ----

#[test]
fn an_effect_that_failed_is_not_run_again_and_fails_in_the_same_way() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let runs = Arc::clone(&counted);
        async move {
            let failed = context
                .once("charge", async |_| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    Err::<(), _>(ToolError::from("no money"))
                })
                .await;
            context.sample(Sample::new("?")).await?;
            Ok(failed.unwrap_err().to_string())
        }
    });
    let service = || plain(tool.clone()).seal_keys(keys());
    let (last, rounds) = call_over(|_| Process::new(service()), &json!({"name": "t"}));
    assert_eq!((last["result"]["content"][0]["text"].as_str(), rounds), (Some("no money"), 1));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn the_key_of_an_effect_differs_for_each_call_but_repetitions_of_a_retry_have_the_same_sealed_key() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let tool = Tool::new("t", move |context: Context, sealed: BTreeMap<String, bool>| {
        let noted = Arc::clone(&noted);
        async move {
            let note = async |key: crate::EffectKey| {
                noted.lock().unwrap().push(key.to_string());
                Ok(())
            };
            match sealed.contains_key("sealed") {
                true => context.once_sealed("charge", note).await?,
                false => context.once("charge", note).await?,
            }
            context.sample(Sample::new("?")).await?;
            Ok("done")
        }
    });
    let service = || plain(tool.clone()).seal_keys(keys());
    let mut process = Process::new(service());
    let unsealed = json!({"name": "t", "arguments": {}});
    process.request(1, "tools/call", &unsealed);
    process.request(2, "tools/call", &unsealed);
    let keys = std::mem::take(&mut *seen.lock().unwrap());
    assert!(keys.len() == 2 && keys[0] != keys[1], "a repeated first request is another call: {keys:?}");
    let sealed = json!({"name": "t", "arguments": {"sealed": true}});
    let frames = process.request(3, "tools/call", &sealed);
    assert!(is_round(&frames) && response(&frames)["result"].get("inputRequests").is_none(), "a state alone: {frames:?}");
    assert_eq!(seen.lock().unwrap().len(), 0, "the effect has not begun");
    let second = retry(&sealed, &frames, agree);
    for id in 4..6 {
        process.request(id, "tools/call", &second);
    }
    let keys = seen.lock().unwrap().clone();
    assert!(keys.len() == 2 && keys[0] == keys[1], "both runs of the effect have one key: {keys:?}");
}

#[test]
fn an_effect_cannot_make_an_input_request_or_run_another_effect_or_run_twice_at_the_same_time() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let asked: Result<(), _> =
            context.once("a", async |_| context.sample(Sample::new("?")).await.map(drop).map_err(Into::into)).await;
        let nested: Result<(), _> = context.once("b", async |_| context.once("c", async |_| Ok(())).await).await;
        let (one, other) = join(
            context.once("same", async |_| Ok(context.sleep(Duration::from_millis(1)).await?)),
            context.once("same", async |_| Ok(())),
        )
        .await;
        Ok(format!("{} | {} | {} {}", asked.unwrap_err(), nested.unwrap_err(), one.is_ok(), other.unwrap_err()))
    });
    let mut process = Process::new(plain(tool));
    let mut frames = process.request(1, "tools/call", &json!({"name": "t"}));
    if frames.is_empty() {
        frames = process.wait(Duration::from_millis(5));
    }
    let text = response(&frames)["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(
        text.contains("made within an effect")
            && text.contains("within another effect")
            && text.contains("true the effect \"same\""),
        "{text}"
    );
}

#[test]
fn a_round_waits_for_the_end_of_an_effect() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let (paid, sampled) = join(
            context.once("charge", async |_| {
                context.sleep(Duration::from_secs(3)).await?;
                Ok(7_u8)
            }),
            context.sample(Sample::new("?")),
        )
        .await;
        Ok(format!("{} {}", paid?, sampled?.text))
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    assert_eq!(process.request(1, "tools/call", &params), [Value::Null; 0], "nothing is sent before the effect has ended");
    let frames = process.wait(Duration::from_secs(3));
    assert!(is_round(&frames), "{frames:?}");
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "7 answer to ?");
}

#[test]
fn a_cancelled_handler_may_end_an_effect_under_way_within_thirty_seconds() {
    for (length, has_ended) in [(29_999, true), (30_001, false)] {
        let ended = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&ended);
        let tool = Tool::new("t", move |context: Context, (): ()| {
            let (noted, timer) = (Arc::clone(&noted), context.clone());
            async move {
                context
                    .once("charge", async |_| {
                        // An effect that does not notice its cancellation.
                        timer.served().alarm(Duration::from_millis(length)).await;
                        noted.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    })
                    .await
            }
        });
        let mut process = Process::new(plain(tool));
        let peer = process.endpoint.peer();
        process.request(1, "tools/call", &json!({"name": "t"}));
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).to_string();
        let now = process.executor.now();
        process.endpoint.handle_frame(cancel.into(), now).unwrap();
        process.sent();
        process.wait(Duration::from_millis(29_999));
        assert_eq!((peer.running(), ended.load(Ordering::Relaxed)), if has_ended { (0, 1) } else { (1, 0) });
        process.wait(Duration::from_millis(1));
        assert_eq!((peer.running(), peer.counters().abandoned), (0, u64::from(!has_ended)));
        process.wait(Duration::from_millis(1));
        assert_eq!(ended.load(Ordering::Relaxed), usize::from(has_ended), "an effect of {length} ms");
    }
}

// ---- Every way to answer, by `every_round` ----

/// Answers an [`InputRequest`] as [`agree`] answers a message.
fn agree_as_client(ask: &InputRequest) -> InputResponse {
    match ask {
        InputRequest::Sample(sample) => InputResponse::Sample(SampleResult::new(format!("answer to {}", sample.prompt), "m")),
        InputRequest::Roots => InputResponse::Roots(Json::parse(r#"[{"uri":"file:///home"}]"#).unwrap()),
        _ => InputResponse::Elicit(ElicitResult::Accept(Json::parse(r#"{"name":"Ada"}"#).unwrap())),
    }
}

#[test]
fn every_round_accepts_a_handler_with_the_same_result_in_every_way() {
    let (runs, charges) = (Arc::default(), Arc::default());
    let rounds = every_round(|| plain(survey(&runs, &charges)), "survey", &Json::empty_object(), agree_as_client);
    assert_eq!(rounds.rounds, 3);
}

#[test]
#[should_panic(expected = "the call ends differently")]
fn every_round_detects_a_handler_that_counts_its_runs() {
    let runs = Arc::new(AtomicUsize::new(0));
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        async move {
            context.sample(Sample::new("?")).await?;
            Ok(run.to_string())
        }
    });
    every_round(|| plain(tool.clone()), "t", &Json::empty_object(), agree_as_client);
}
