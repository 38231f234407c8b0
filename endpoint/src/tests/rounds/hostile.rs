//! Callers that send the states of other calls, or text that is no state. Regression tests of rounds and of effects follow.

use protocol_core::drive::Machine as _;

use super::*;

const REFUSED: &str = "the state of this request is not accepted";

/// Random numbers, the same in every run.
struct Random(Arc<dyn engine::Runtime>);

impl Random {
    fn new() -> Self {
        Self(Executor::new().runtime())
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_random(&mut bytes).unwrap();
        bytes
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(u16::from_be_bytes(self.bytes(2).try_into().unwrap())) % bound
    }
}

/// Changes a real state at random, in some cases by mixing in the state `other`.
fn mutated(random: &mut Random, state: &str, other: &str) -> String {
    const LETTERS: &[u8] = b"ABCabc019-_=+/ .\"\\{";
    let mut bytes = state.as_bytes().to_vec();
    let at = random.below(bytes.len());
    match random.below(7) {
        0 => bytes[at] = LETTERS[random.below(LETTERS.len())],
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, LETTERS[random.below(LETTERS.len())]),
        3 => bytes.truncate(at),
        4 => bytes.extend_from_slice(&other.as_bytes()[..at.min(other.len())]),
        5 => bytes.splice(at.., other.bytes().skip(at)).for_each(drop),
        _ => bytes.rotate_left(at.max(1)),
    }
    String::from_utf8(bytes).unwrap()
}

/// Random text that is no state. Some of it begins like `state`.
fn invented(random: &mut Random, state: &str) -> String {
    let count = random.below(200);
    let noise = random.bytes(count);
    match random.below(3) {
        0 => crate::state::rounds::encode(&noise),
        1 => format!("{}{}", &state[..random.below(60)], crate::state::rounds::encode(&noise)),
        _ => String::from_utf8_lossy(&noise).into_owned(),
    }
}

impl Process {
    /// The number of inbound calls that are open.
    pub(super) fn serves(&self) -> usize {
        self.endpoint.shared().with_state(|state| state.served_calls.len())
    }

    /// Sends a request, which must be refused with [`REFUSED`].
    pub(super) fn refuses(&mut self, params: &Value, extensions: Extensions) {
        let frames = self.request_as(1_000, "tools/call", params, &json!({"sampling": {}}), extensions);
        let error = &response(&frames)["error"];
        assert_eq!((frames.len(), &error["code"], &error["message"]), (1, &json!(-32602), &json!(REFUSED)), "{params}: {frames:?}");
        assert_eq!(error.get("data"), None);
    }
}

#[test]
fn any_text_but_a_state_of_the_request_is_refused_with_one_message_and_nothing_runs() {
    let runs = Arc::new(AtomicUsize::new(0));
    let tool = |name: &str| {
        let runs = Arc::clone(&runs);
        Tool::new(name, move |context: Context, given: BTreeMap<String, u8>| {
            runs.fetch_add(1, Ordering::Relaxed);
            async move { Ok(format!("{given:?} {}", context.sample(Sample::new("?")).await?.text)) }
        })
    };
    let service = |key: u8| Service::new("s", "1").tool(tool("t")).tool(tool("other")).seal_keys(SealKeys::new([key; 32]));
    let callers = [None, Some("alice"), Some("bob"), Some("")];
    let extensions = |caller: Option<&str>| match caller {
        Some(caller) => Extensions::new().with(Principal::new(caller)),
        None => Extensions::new(),
    };
    let mut processes = [7, 8].map(|key| Process::new(service(key)));
    // A retry of each kind of call, by each caller, to each process, with the index of the process.
    let mut known = Vec::new();
    for (index, process) in processes.iter_mut().enumerate() {
        for (name, x) in [("t", 1), ("t", 2), ("other", 1)] {
            for caller in callers {
                let params = json!({"name": name, "arguments": {"x": x}});
                let frames = process.request_as(1, "tools/call", &params, &json!({"sampling": {}}), extensions(caller));
                known.push((index, caller, retry(&params, &frames, agree)));
            }
        }
    }
    let text = |params: &Value| params["requestState"].as_str().unwrap().to_owned();
    runs.store(0, Ordering::Relaxed);
    for (mine, (index, caller, params)) in known.iter().enumerate() {
        for (_, _, foreign) in known.iter().enumerate().filter(|(other, _)| *other != mine).map(|(_, other)| other) {
            let mut params = params.clone();
            params["requestState"] = foreign["requestState"].clone();
            processes[*index].refuses(&params, extensions(*caller));
        }
    }
    let mut random = Random::new();
    for attempt in 0..1500 {
        let (index, caller, params) = &known[random.below(known.len())];
        let (state, other) = (text(params), text(&known[random.below(known.len())].2));
        let changed = if attempt % 3 == 0 { invented(&mut random, &state) } else { mutated(&mut random, &state, &other) };
        if known.iter().any(|(_, _, params)| text(params) == changed) {
            continue;
        }
        let mut params = params.clone();
        params["requestState"] = json!(changed);
        processes[*index].refuses(&params, extensions(*caller));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0, "nothing runs");
    for (index, caller, params) in &known {
        let frames = processes[*index].request_as(2, "tools/call", params, &json!({"sampling": {}}), extensions(*caller));
        assert!(response(&frames).get("result").is_some(), "each opens where it belongs: {frames:?}");
    }
    assert_eq!(processes.map(|process| process.serves()), [0, 0]);
}

/// A tool with two input requests and an effect between them. It adds the key of the effect to `noted`.
fn charges(noted: &Arc<Mutex<Vec<String>>>) -> Tool {
    let noted = Arc::clone(noted);
    Tool::new("t", move |context: Context, (): ()| {
        let noted = Arc::clone(&noted);
        async move {
            let first = context.sample(Sample::new("before")).await?.text;
            let note = async |key: crate::EffectKey| {
                noted.lock().unwrap().push(key.to_string());
                Ok(())
            };
            context.once("charge", note).await?;
            let last = context.sample(Sample::new("after")).await?.text;
            Ok(format!("{first}, {last}"))
        }
    })
}

#[test]
fn an_effect_runs_again_only_from_a_state_before_it_and_then_with_the_same_key() {
    let noted = Arc::default();
    let mut process = Process::new(plain(charges(&noted)));
    let params = json!({"name": "t"});
    let count = || noted.lock().unwrap().len();
    // Five equal first requests are five calls.
    let first: Vec<_> = (1..6).map(|id| process.request(id, "tools/call", &params)).collect();
    let states: std::collections::BTreeSet<_> =
        first.iter().map(|frames| response(frames)["result"]["requestState"].to_string()).collect();
    assert_eq!((states.len(), count()), (5, 0));
    // The state from before the effect is sent three times, the second and the third time together.
    let before = retry(&params, &first[0], agree);
    let second = process.request(10, "tools/call", &before);
    assert_eq!(count(), 1);
    let frame = |id: u64, params: &Value| {
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        });
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let now = process.executor.now();
    for id in [11, 12] {
        process.endpoint.handle_frame(frame(id, &before).into(), now).unwrap();
    }
    // The two requests that were sent together run the effect once.
    assert_eq!(process.sent().len(), 2);
    let keys = noted.lock().unwrap().clone();
    assert!(
        keys.len() == 2 && keys.iter().all(|key| *key == keys[0]),
        "an older state runs it again, with the key of the call: {keys:?}"
    );
    // The state from after the effect is sent twice together, and once more after the call has succeeded.
    let after = retry(&params, &second, agree);
    for id in [13, 14] {
        process.endpoint.handle_frame(frame(id, &after).into(), now).unwrap();
    }
    let both = process.sent();
    let done = |frame: &Value| frame["result"]["content"][0]["text"] == "answer to before, answer to after";
    assert!(both.len() == 2 && both[0]["error"]["code"] == -32603 && done(&both[1]), "the newest goes on: {both:?}");
    assert!(done(response(&process.request(15, "tools/call", &after))));
    assert_eq!(count(), 2, "nothing runs again");
    // Another call has another key.
    process.request(16, "tools/call", &retry(&params, &first[1], agree));
    let keys = noted.lock().unwrap().clone();
    assert!(keys.len() == 3 && keys[2] != keys[0], "{keys:?}");
    assert_eq!(process.serves(), 0);
}

/// A regression: if a request was cancelled before its event was handled, the endpoint did not detect that the call makes its input
/// requests in rounds. The state in the request was ignored, and the handler, which has a grace after the cancel, ran its effects again.
#[test]
fn a_retry_that_is_cancelled_in_the_same_turn_runs_no_effect_again() {
    let charged = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&charged);
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let noted = Arc::clone(&noted);
        async move {
            let charge = async |_| {
                noted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            context.once("charge", charge).await?;
            Ok(context.sample(Sample::new("?")).await?.text)
        }
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let mut params = retry(&params, &frames, agree);
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
    });
    let request = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}});
    let now = process.executor.now();
    for frame in [request, cancel] {
        process.endpoint.handle_frame(frame.to_string().into(), now).unwrap();
    }
    assert_eq!(process.sent(), [Value::Null; 0]);
    assert_eq!(charged.load(Ordering::Relaxed), 1, "the effect stands in the state");
}

/// A regression: the seal did not distinguish arguments with a number beyond `f64` or a broken escape, so that the state of one request
/// opened for another. Numbers beyond 64 bits were rounded, and of repeated members only the last counted.
#[test]
fn a_state_opens_only_for_arguments_that_are_the_same_json() {
    let echo = Tool::from_schema("t", Json::parse(r#"{"type":"object"}"#).unwrap(), async |context: Context, given: Json| {
        context.sample(Sample::new("?")).await?;
        Ok(protocol_core::ToolOutput::text(given.as_str()))
    });
    let mut process = Process::new(plain(echo.unwrap()));
    let mut id = 0;
    let mut send = |arguments: &str, state: Option<&Value>| {
        id += 1;
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}"#;
        let answer = r#"{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}"#;
        let retry =
            state.map_or_else(String::new, |state| format!(r#","inputResponses":{{"input-1":{answer}}},"requestState":{state}"#));
        let params = format!(r#"{{"name":"t","arguments":{arguments},{meta}{retry}}}"#);
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let now = process.executor.now();
        process.endpoint.handle_frame(frame.into(), now).unwrap();
        response(&process.sent()).clone()
    };
    let nested = |inside: &str| format!(r#"{{"x":{}{inside}{}}}"#, "[".repeat(100), "]".repeat(100));
    let (one, other) = (nested("1"), nested("2"));
    let pairs = [
        (r#"{"x":1e999,"n":1}"#, r#"{"x":1e999,"n":2}"#),
        (r#"{"x":"\ud800","n":1}"#, r#"{"x":"\ud800","n":2}"#),
        (r#"{"x":18446744073709551616}"#, r#"{"x":18446744073709551617}"#),
        (r#"{"x":0.1}"#, r#"{"x":0.10000000000000000001}"#),
        (r#"{"x":1,"x":2}"#, r#"{"x":3,"x":2}"#),
        (r#"{"x":[1,[2]]}"#, r#"{"x":[1,2]}"#),
        (r#"{"x":{"a":"b,c"}}"#, r#"{"x":{"a":"b","c":""}}"#),
        (&one, &other),
    ];
    let mut sealed = 0;
    for (one, other) in pairs {
        let first = send(one, None);
        let state = &first["result"]["requestState"];
        if state.is_null() {
            assert!(first.get("error").is_some() || first["result"]["isError"] == true, "refused before it runs: {first}");
            continue;
        }
        sealed += 1;
        assert_eq!(send(other, Some(state))["error"]["message"], REFUSED, "{one} and {other}");
        assert!(send(one, Some(state)).get("result").is_some(), "{one}");
    }
    assert!(sealed > 3, "{sealed}");
    // Arguments with the same meaning in JSON are the same call.
    let first = send(r#"{"a":"\u0041/\n","b":[true,null,{"d":1,"c":2}]}"#, None);
    let same = send(r#"{ "b" : [ true, null , {"c":2,"d":1} ], "\u0061":"A\/\u000a" }"#, Some(&first["result"]["requestState"]));
    assert!(same.get("result").is_some(), "{same}");
}

/// A regression: names were numbered from 1 in each run, so that a new input request could get the name of an unanswered one.
#[test]
fn a_new_input_request_never_gets_the_name_of_an_unanswered_request() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let third = async {
            context.sample(Sample::new("c")).await?;
            context.sample(Sample::new("d")).await
        };
        let (first, (second, third)) = join(context.sample(Sample::new("a")), join(context.sample(Sample::new("b")), third)).await;
        Ok([first?, second?, third?].map(|sampled| sampled.text).join(", "))
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let but_b = |name: &str, method: &str, params: &Value| {
        if params["messages"][0]["content"]["text"] == "b" { None } else { agree(name, method, params) }
    };
    let frames = process.request(2, "tools/call", &retry(&params, &frames, but_b));
    assert_eq!(response(&frames)["result"]["inputRequests"].as_object().map(|asked| asked.len()), Some(2), "{frames:?}");
    let frames = process.request(3, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "answer to a, answer to b, answer to d");
}

/// A regression: if a handler did not make an input request of the last run again, for example because its user had signed in meanwhile,
/// all its reports up to its end were taken for repetitions and not sent.
#[test]
fn progress_of_a_handler_that_takes_a_shorter_path_is_sent() {
    let is_signed_in = Arc::new(AtomicUsize::new(0));
    let signed_in = Arc::clone(&is_signed_in);
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let signed_in = Arc::clone(&signed_in);
        async move {
            context.step(1, 3);
            if signed_in.load(Ordering::Relaxed) == 0 {
                context.sample(Sample::new("sign in")).await?;
            }
            context.step(2, 3);
            context.log(Level::Info, "signed in");
            Ok("done")
        }
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    is_signed_in.store(1, Ordering::Relaxed);
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    let shown: Vec<_> = frames.iter().filter_map(|frame| frame["method"].as_str()).collect();
    assert_eq!(shown, ["notifications/progress", "notifications/message"], "{frames:?}");
    assert_eq!(frames[0]["params"]["progress"], 2);
}

/// A process whose handler runs `work`, which spawns a task with an effect. Only that task can wake the handler for its last poll.
fn process_with_task(executor: &Executor, work: fn(Context, Executor) -> BoxFuture<'static, Result<String, ToolError>>) -> Process {
    let spawner = executor.clone();
    let tool = Tool::new("t", move |context: Context, (): ()| work(context, spawner.clone()));
    let service = plain(tool).configure(|config: &mut Config| config.era = Era::Auto);
    Process { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor: executor.clone() }
}

/// A regression: a round waits for the effects that are under way, but the end of an effect in another task did not wake the handler.
#[test]
fn a_round_is_sent_when_an_effect_in_another_task_has_ended() {
    let executor = Executor::new();
    let mut process = process_with_task(&executor, |context, spawner| {
        Box::pin(async move {
            let payer = context.clone();
            spawner.spawn(async move {
                let _: Result<(), _> = payer
                    .once("charge", async |_| {
                        payer.sleep(Duration::from_secs(1)).await?;
                        Ok(())
                    })
                    .await;
            });
            context.sleep(Duration::from_millis(1)).await?;
            Ok(context.sample(Sample::new("?")).await?.text)
        })
    });
    assert_eq!(process.request(1, "tools/call", &json!({"name": "t"})), [Value::Null; 0]);
    assert_eq!(process.wait(Duration::from_millis(1)), [Value::Null; 0], "the input request waits for the effect");
    let frames = process.wait(Duration::from_secs(1));
    assert!(frames.len() == 1 && is_round(&frames), "{frames:?}");
}

/// A regression: `once_sealed` in another task did not wake the handler, although the handler's request has to end with a round before the
/// effect can run.
#[test]
fn a_round_without_input_requests_is_sent_for_a_sealed_effect_in_another_task() {
    let executor = Executor::new();
    let mut process = process_with_task(&executor, |context, spawner| {
        Box::pin(async move {
            let payer = context.clone();
            spawner.spawn(async move {
                let _ = payer.sleep(Duration::from_secs(1)).await;
                let _: Result<(), _> = payer.once_sealed("charge", async |_| Ok(())).await;
            });
            std::future::pending().await
        })
    });
    assert_eq!(process.request(1, "tools/call", &json!({"name": "t"})), [Value::Null; 0]);
    let frames = process.wait(Duration::from_secs(2));
    assert!(frames.len() == 1 && is_round(&frames), "{frames:?}");
}

/// A regression: without random bytes every call had the same name, so the effects of two calls had the same keys, and a payment service
/// would have treated the second charge as a repetition of the first.
#[test]
fn without_random_bytes_an_effect_is_refused_and_has_no_key() {
    struct WithoutRandom(Arc<dyn engine::Runtime>);
    impl engine::Runtime for WithoutRandom {
        fn now(&self) -> protocol_core::Instant {
            self.0.now()
        }
        fn spawn(&self, task: engine::BoxFuture<'static, ()>) {
            self.0.spawn(task);
        }
        fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
            self.0.spawn_blocking(job);
        }
    }
    let tool = Tool::new("t", async |context: Context, (): ()| context.once("charge", async |key| Ok(key.to_string())).await);
    let executor = Executor::new();
    let service = plain(tool).configure(|config: &mut Config| config.era = Era::Auto);
    let endpoint = Endpoint::server(Arc::new(service), Arc::new(WithoutRandom(executor.runtime())));
    let frames = Process { endpoint, executor }.request(1, "tools/call", &json!({"name": "t"}));
    assert_eq!(response(&frames)["result"]["isError"], true, "{frames:?}");
    assert!(response(&frames).to_string().contains("random bytes"), "{frames:?}");
}

/// A regression: a blocking handler cannot be dropped, so its request did not end with the round. The input request was never sent, and the
/// thread waited for its answer.
#[test]
fn an_input_request_and_a_sealed_effect_of_a_blocking_handler_fail_without_waiting() {
    let tool = Tool::blocking("t", |context: Context, (): ()| {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let asked = std::pin::pin!(context.sample(Sample::new("?"))).poll(&mut cx);
        let charged = std::pin::pin!(context.once_sealed("charge", async |_| Ok(1))).poll(&mut cx);
        Ok(format!("{asked:?} {charged:?}"))
    });
    let mut process = Process::new(plain(tool));
    let frames = process.request(1, "tools/call", &json!({"name": "t"}));
    let text = response(&frames)["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("cannot wait for an answer") && text.contains("cannot wait for a sealed key"), "{text}");
}

/// A regression: after a round was made and before its request ended, another task could run an effect that was not in the state, and that
/// the retry would run again.
#[test]
fn nothing_is_added_to_a_log_after_its_round_was_made() {
    use crate::state::rounds::{AskStep, Asking, EffectStep, RoundLog, RunEnd};
    let (now, ask) = (Duration::from_secs(1), || Asking::new(Sample::new("?").into(), None, None, false));
    let mut log = RoundLog::begin(Some([1; 16]), now);
    assert!(matches!(log.begin_effect("a", false), Some(EffectStep::Run { nth: 0, .. })));
    assert!(matches!(log.ask(ask(), now), AskStep::Open(..)));
    assert!(!log.can_end(), "an effect is under way");
    assert!(log.end_effect("a", 0, None), "the round has waited for it");
    assert!(log.can_end());
    log.end_run(RunEnd { depth: 0, most: 8, reports: 0, partial: None }, now);
    assert!(log.begin_effect("b", false).is_none());
    assert!(matches!(log.ask(ask(), now), AskStep::Failed(AskFailed::Over)));
}

/// A regression: the mark of a thread that polls an effect did not name the call. If an effect drove another endpoint, the input requests
/// of that endpoint were refused; and after an effect of that endpoint, the outer effect was not marked any more.
#[test]
fn an_effect_may_drive_an_endpoint_that_makes_input_requests() {
    let noted = Arc::default();
    let other = Arc::new(Mutex::new(Process::new(plain(charges(&noted)))));
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let other = Arc::clone(&other);
        async move {
            context
                .once("charge", async |_| {
                    let params = json!({"name": "t"});
                    let mut frames = other.lock().unwrap().request(1, "tools/call", &params);
                    for id in 2..4 {
                        assert!(is_round(&frames), "{frames:?}");
                        frames = other.lock().unwrap().request(id, "tools/call", &retry(&params, &frames, agree));
                    }
                    let asked = context.sample(Sample::new("?")).await;
                    Ok(format!("{} | {asked:?}", response(&frames)["result"]["content"][0]["text"]))
                })
                .await
        }
    });
    let mut process = Process::new(plain(tool));
    let frames = process.request(1, "tools/call", &json!({"name": "t"}));
    let text = response(&frames)["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("answer to after") && text.contains("made within an effect"), "{text}");
}
