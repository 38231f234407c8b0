//! Handlers that are kept between two requests of their call. Some tests compare them with handlers that run again.

use protocol_core::Caller;
use protocol_core::drive::Machine as _;

use super::*;

impl Process {
    /// The numbers of handlers that are frozen now, that were frozen so far, and that have thawed so far.
    fn frozen(&self) -> (usize, u64, u64) {
        self.endpoint.shared().with_state(|state| (state.frozen.len(), state.counters.frozen, state.counters.thawed))
    }

    fn cancel(&mut self, id: u64) -> Vec<Value> {
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string();
        let now = self.executor.now();
        self.endpoint.handle_frame(cancel.into(), now).unwrap();
        self.sent()
    }
}

/// Counts how often a handler began, and how often it was dropped before its end.
#[derive(Clone, Default)]
struct Life {
    began: Arc<AtomicUsize>,
    cut: Arc<AtomicUsize>,
}

impl Life {
    fn counts(&self) -> (usize, usize) {
        (self.began.load(Ordering::Relaxed), self.cut.load(Ordering::Relaxed))
    }
}

/// Counts a handler as cut if it is dropped before its end. The handler may be dropped only while it waits for its retry.
struct Guard(Option<(Life, Context)>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((life, context)) = self.0.take() {
            assert!(context.will_run_again(), "the call goes on");
            life.cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A tool that makes two input requests, one after the other.
fn asks_twice(life: &Life) -> Tool {
    let life = life.clone();
    Tool::new("t", move |context: Context, (): ()| {
        let life = life.clone();
        async move {
            life.began.fetch_add(1, Ordering::Relaxed);
            let mut guard = Guard(Some((life, context.clone())));
            let one = context.sample(Sample::new("one")).await?.text;
            let two = context.sample(Sample::new("two")).await?.text;
            guard.0 = None;
            Ok(format!("{one}, {two}"))
        }
    })
}

const BOTH: &str = "answer to one, answer to two";

fn text(frames: &[Value]) -> &str {
    response(frames)["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {frames:?}"))
}

#[test]
fn a_frozen_handler_goes_on_with_its_retry_and_no_call_is_served_between_two_rounds() {
    let life = Life::default();
    let mut process = Process::keeping(plain(asks_twice(&life)), 8);
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    assert_eq!((process.frozen(), process.serves()), ((1, 1, 0), 0));
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    assert_eq!((process.frozen(), process.serves()), ((1, 2, 1), 0));
    let frames = process.request(3, "tools/call", &retry(&params, &frames, agree));
    assert_eq!((text(&frames), process.frozen(), process.serves()), (BOTH, (0, 2, 2), 0));
    assert_eq!(life.counts(), (1, 0));
}

#[test]
fn a_build_with_debug_assertions_keeps_no_handler_unless_it_is_configured() {
    let config = Config::mcp_server(Identity::new("s", "1"));
    assert_eq!(config.limits.frozen_handlers, if cfg!(debug_assertions) { 0 } else { 1024 });
    assert_eq!(config.timeouts.frozen, Duration::from_secs(60));
    let life = Life::default();
    let mut process = Process::new(plain(asks_twice(&life)));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    assert_eq!((process.frozen(), life.counts()), ((0, 0, 0), (1, 1)));
    process.request(2, "tools/call", &retry(&params, &frames, agree));
    assert_eq!((process.frozen(), life.counts()), ((0, 0, 0), (2, 2)));
}

/// Over HTTP, each stateless request comes on a lane of its own.
#[test]
fn a_handler_of_a_request_that_came_on_another_lane_than_the_channel_is_not_kept() {
    let life = Life::default();
    let mut process = Process::keeping(plain(asks_twice(&life)), 8);
    let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
    }}});
    let now = process.executor.now();
    process.endpoint.handle_frame_by(frame.to_string().into(), Lane::new(1), Extensions::new(), now).unwrap();
    assert!(is_round(&process.sent()));
    assert_eq!((process.frozen(), life.counts()), ((0, 0, 0), (1, 1)));
}

#[test]
fn a_retry_without_all_answers_or_with_one_of_a_wrong_shape_runs_the_handler_again() {
    let tool = |runs: &Arc<AtomicUsize>| {
        let runs = Arc::clone(runs);
        Tool::new("t", move |context: Context, (): ()| {
            runs.fetch_add(1, Ordering::Relaxed);
            async move {
                let asks = join(context.sample(Sample::new("a")).key("one"), context.sample(Sample::new("b")).key("other"));
                let (one, other) = asks.await;
                Ok(format!("{}, {}", one?.text, other?.text))
            }
        })
    };
    let params = json!({"name": "t"});
    let half = |name: &str, method: &str, params: &Value| if name == "one" { agree(name, method, params) } else { None };
    let wrong = |name: &str, method: &str, params: &Value| {
        if name == "one" { agree(name, method, params) } else { Some(json!({"content": 7})) }
    };
    for answer in [half, wrong] {
        let runs = Arc::default();
        let mut process = Process::keeping(plain(tool(&runs)), 8);
        let frames = process.request(1, "tools/call", &params);
        let frames = process.request(2, "tools/call", &retry(&params, &frames, answer));
        let asked: Vec<_> = response(&frames)["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect();
        assert_eq!((asked, runs.load(Ordering::Relaxed)), (vec![String::from("other")], 2));
        // The handler of the second run was frozen, and got the first answer from the log.
        let frames = process.request(3, "tools/call", &retry(&params, &frames, agree));
        assert_eq!((text(&frames), runs.load(Ordering::Relaxed)), ("answer to a, answer to b", 2));
    }
}

#[test]
fn only_the_exact_state_for_the_same_principal_and_arguments_thaws_a_handler() {
    let life = Life::default();
    let service = || plain(asks_twice(&life)).seal_keys(keys());
    let mut process = Process::keeping(service(), 8);
    let (alice, all) = (|| Extensions::new().with(Principal::new("alice")), json!({"sampling": {}}));
    let params = json!({"name": "t"});
    let frames = process.request_as(1, "tools/call", &params, &all, alice());
    let mine = retry(&params, &frames, agree);
    process.refuses(&mine, Extensions::new().with(Principal::new("bob")));
    let mut changed = mine.clone();
    changed["arguments"] = json!({"x": 1});
    process.refuses(&changed, alice());
    assert_eq!((process.frozen(), life.counts()), ((1, 1, 0), (1, 0)));
    // A state of another call of the same tool, sealed by another process, runs the handler of that call again. The first call of the
    // other process is not used: it has the same random bytes as the call above, and so the same state.
    let mut elsewhere = Process::new(service());
    let [_, frames] = [1, 2].map(|id| elsewhere.request_as(id, "tools/call", &params, &all, alice()));
    assert_eq!(life.counts(), (3, 2));
    assert!(is_round(&process.request_as(2, "tools/call", &retry(&params, &frames, agree), &all, alice())));
    assert_eq!((process.frozen(), life.counts()), ((2, 2, 0), (4, 2)));
    assert!(is_round(&process.request_as(3, "tools/call", &mine, &all, alice())));
    assert_eq!((process.frozen(), life.counts()), ((2, 3, 1), (4, 2)));
}

#[test]
fn a_frozen_handler_is_dropped_after_its_time_and_its_call_goes_on_without_it() {
    let life = Life::default();
    let service = plain(asks_twice(&life)).configure(|config: &mut Config| config.timeouts.frozen = Duration::from_secs(60));
    let mut process = Process::keeping(service, 8);
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    process.wait(Duration::from_millis(59_999));
    assert_eq!((process.frozen().0, life.counts()), (1, (1, 0)));
    process.wait(Duration::from_millis(1));
    assert_eq!((process.frozen().0, life.counts()), (0, (1, 1)));
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    let frames = process.request(3, "tools/call", &retry(&params, &frames, agree));
    assert_eq!((text(&frames), life.counts()), (BOTH, (2, 1)));
}

#[test]
fn the_oldest_frozen_handler_makes_room_for_one_more() {
    let life = Life::default();
    let mut process = Process::keeping(plain(asks_twice(&life)), 2);
    let params = json!({"name": "t"});
    let rounds: Vec<_> = (1..=3).map(|id| process.request(id, "tools/call", &params)).collect();
    assert_eq!((process.frozen().0, life.counts()), (2, (3, 1)));
    // The handler of the first call runs again. When it is frozen, the handler of the second call is dropped to make room.
    for (number, frames) in (0_u64..).zip(&rounds) {
        let frames = process.request(10 + number, "tools/call", &retry(&params, frames, agree));
        let frames = process.request(20 + number, "tools/call", &retry(&params, &frames, agree));
        assert_eq!(text(&frames), BOTH);
    }
    assert_eq!(process.serves(), 0);
}

#[test]
fn a_session_that_ends_drops_its_frozen_handlers_and_does_not_wait_for_them() {
    let params = json!({"name": "t"});
    for how in 0..3 {
        let life = Life::default();
        let mut process = Process::keeping(plain(asks_twice(&life)), 2);
        assert!(is_round(&process.request(1, "tools/call", &params)));
        let now = process.executor.now();
        match how {
            0 => process.endpoint.peer().close(protocol_core::Close::Graceful { grace: Duration::from_secs(60) }),
            1 => process.endpoint.handle_end(protocol_core::TransportEnd::Eof, now),
            _ => {
                let endpoint = std::mem::replace(&mut process.endpoint, Process::new(plain(asks_twice(&life))).endpoint);
                drop(endpoint);
                assert_eq!(life.counts(), (1, 1));
                continue;
            }
        }
        process.sent();
        assert!(process.endpoint.is_closed(), "way {how}");
        assert_eq!((process.frozen().0, life.counts()), (0, (1, 1)), "way {how}");
    }
}

/// The call ends with an error instead of the round, so its handler does not go on.
#[test]
fn a_handler_whose_round_cannot_be_sent_is_dropped_and_not_frozen() {
    /// Notes when it is dropped whether its context says that the handler will run again.
    struct Notes(Arc<Mutex<Vec<bool>>>, Context);
    impl Drop for Notes {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1.will_run_again());
        }
    }
    let noted: Arc<Mutex<Vec<bool>>> = Arc::default();
    let notes = Arc::clone(&noted);
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let notes = Notes(Arc::clone(&notes), context.clone());
        async move {
            let _notes = notes;
            Ok(context.sample(Sample::new("x".repeat(5_000))).await?.text)
        }
    });
    let service = plain(tool).configure(|config: &mut Config| config.limits.frame_bytes = 4096);
    let mut process = Process::keeping(service, 8);
    let frames = process.request(1, "tools/call", &json!({"name": "t"}));
    assert!(response(&frames)["error"]["message"].as_str().unwrap().contains("cannot be sent"), "{frames:?}");
    assert_eq!((process.frozen(), process.serves()), ((0, 0, 0), 0));
    assert_eq!(*noted.lock().unwrap(), [false], "its end is the end of the call");
}

/// The data of its request that a handler reads from its context, as text.
fn seen(context: &Context) -> String {
    let caller: &Caller = context.caller();
    let meta: Value = caller.meta().map(|meta| serde_json::from_str(meta.as_str()).unwrap()).unwrap_or_default();
    let extension = context.extensions().get::<u8>().copied();
    format!("{} {:?} {} {}", meta["traceparent"], extension, context.capabilities().roots, context.is_observed())
}

#[test]
fn after_a_thaw_the_handler_and_all_clones_of_its_context_are_bound_to_the_retry() {
    let executor = Executor::new();
    let spawner = executor.clone();
    let noted: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = Arc::clone(&noted);
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let (spawner, noted) = (spawner.clone(), Arc::clone(&notes));
        async move {
            let (before, watcher, part) = (seen(&context), context.clone(), context.subrange(0.5..1.0));
            // A task that begins to wait for the cancellation before the round.
            let watched = Arc::clone(&noted);
            spawner.spawn(async move {
                let why = watcher.cancelled().await;
                watched.lock().unwrap().push(format!("watcher: {why:?}"));
            });
            let cancellation = context.cancellation();
            context.sample(Sample::new("?")).await?;
            noted.lock().unwrap().push(format!("{before} -> {}", seen(&context)));
            part.fraction(0.5);
            context.log(Level::Debug, "debug");
            context.log(Level::Error, "error");
            let why = cancellation.cancelled().await;
            noted.lock().unwrap().push(format!("handler: {why:?}"));
            Ok(String::new())
        }
    });
    let service = plain(tool).configure(|config: &mut Config| {
        (config.era, config.limits.frozen_handlers) = (Era::Auto, 8);
    });
    let mut process = Process { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor };
    let request = |process: &mut Process, id: u64, params: &Value, meta: Value, extension: u8| {
        let mut params = params.clone();
        params["_meta"] = meta;
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
        let (now, extensions) = (process.executor.now(), Extensions::new().with(extension));
        process.endpoint.handle_frame_by(frame.into(), Lane::CHANNEL, extensions, now).unwrap();
        process.sent()
    };
    let first = json!({"traceparent": "one", "io.modelcontextprotocol/clientCapabilities": {"sampling": {}}});
    let second = json!({
        "traceparent": "two",
        "progressToken": "token",
        "io.modelcontextprotocol/logLevel": "error",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "roots": {}},
    });
    let params = json!({"name": "t"});
    let frames = request(&mut process, 1, &params, first, 1);
    let frames = request(&mut process, 2, &retry(&params, &frames, agree), second, 2);
    assert_eq!(process.frozen(), (0, 1, 1));
    let notifications: Vec<_> = frames.iter().map(|frame| (frame["method"].as_str().unwrap(), &frame["params"])).collect();
    assert_eq!(notifications.len(), 2, "{notifications:?}");
    assert_eq!(
        (notifications[0].0, &notifications[0].1["progressToken"], &notifications[0].1["progress"]),
        ("notifications/progress", &json!("token"), &json!(75))
    );
    assert_eq!((notifications[1].0, &notifications[1].1["data"]), ("notifications/message", &json!("error")));
    // The first request is over, so its cancel has no effect. The cancel of the retry reaches the handler and all clones of its context.
    process.cancel(1);
    assert_eq!(*noted.lock().unwrap(), ["\"one\" Some(1) false false -> \"two\" Some(2) true true"]);
    process.cancel(2);
    let mut ends = noted.lock().unwrap().split_off(1);
    ends.sort();
    assert_eq!(ends, ["handler: Peer(None)", "watcher: Peer(None)"]);
}

/// Between two rounds, a handler is not polled, whatever it waits for, and its context belongs to no call.
#[test]
fn a_frozen_handler_is_not_polled_and_its_context_sends_nothing() {
    let executor = Executor::new();
    let polls = Arc::new(AtomicUsize::new(0));
    let (counted, spawner) = (Arc::clone(&polls), executor.clone());
    let tool = Tool::new("t", move |context: Context, (): ()| {
        let (polls, spawner) = (Arc::clone(&counted), spawner.clone());
        async move {
            let reporter = context.clone();
            spawner.spawn(async move {
                // This sleep cannot fail with `Cancelled`, since no call is served meanwhile.
                reporter.sleep(Duration::from_secs(2)).await.unwrap();
                reporter.message("between two rounds");
                reporter.log(Level::Error, "between two rounds");
            });
            let sleep = async {
                let mut sleep = Box::pin(context.sleep(Duration::from_secs(3)));
                std::future::poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    sleep.as_mut().poll(cx)
                })
                .await
            };
            let (sampled, slept) = join(context.sample(Sample::new("?")), sleep).await;
            slept?;
            Ok(sampled?.text)
        }
    });
    let service = plain(tool).configure(|config: &mut Config| (config.era, config.limits.frozen_handlers) = (Era::Auto, 8));
    let mut process = Process { endpoint: Endpoint::server(Arc::new(service), executor.runtime()), executor };
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let before = polls.load(Ordering::Relaxed);
    assert_eq!(process.wait(Duration::from_secs(5)), [Value::Null; 0]);
    assert_eq!(polls.load(Ordering::Relaxed), before);
    // The sleep is over by now.
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(text(&frames), "answer to ?");
}

/// Combinators such as `FuturesUnordered` poll only the parts whose own waker was woken.
#[test]
fn every_part_of_a_handler_that_waits_for_an_answer_is_woken_by_a_thaw() {
    struct Flag(std::sync::atomic::AtomicBool);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let asks = ["a", "b", "c"].map(|prompt| {
            let flag = Arc::new(Flag(std::sync::atomic::AtomicBool::new(true)));
            (Box::pin(context.sample(Sample::new(prompt)).key(prompt)), flag, None)
        });
        let mut asks = Vec::from(asks);
        std::future::poll_fn(move |_| {
            for (ask, flag, answer) in &mut asks {
                if flag.0.swap(false, Ordering::Relaxed) {
                    let waker = std::task::Waker::from(Arc::clone(flag));
                    if let std::task::Poll::Ready(sampled) = ask.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                        *answer = Some(sampled);
                    }
                }
            }
            match asks.iter().all(|(_, _, answer)| answer.is_some()) {
                true => std::task::Poll::Ready(
                    asks.drain(..).map(|(_, _, answer)| Ok(answer.unwrap()?.text)).collect::<Result<Vec<_>, ToolError>>(),
                ),
                false => std::task::Poll::Pending,
            }
        })
        .await
        .map(|texts| texts.join(", "))
    });
    let mut process = Process::keeping(plain(tool), 8);
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
    assert_eq!((text(&frames), process.frozen().2), ("answer to a, answer to b, answer to c", 1));
}

#[test]
fn a_frozen_handler_that_waits_for_a_sealed_key_runs_its_effect_in_the_retry() {
    let noted: Arc<Mutex<Vec<String>>> = Arc::default();
    let tool = |noted: &Arc<Mutex<Vec<String>>>| {
        let noted = Arc::clone(noted);
        Tool::new("t", move |context: Context, (): ()| {
            let noted = Arc::clone(&noted);
            async move {
                let charge = async |key: crate::EffectKey| {
                    noted.lock().unwrap().push(key.to_string());
                    Ok(7_u8)
                };
                let paid = context.once_sealed("charge", charge).await?;
                Ok(format!("{paid} {}", context.sample(Sample::new("?")).await?.text))
            }
        })
    };
    let service = || plain(tool(&noted)).seal_keys(keys());
    let mut process = Process::keeping(service(), 8);
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let second = retry(&params, &frames, agree);
    let frames = process.request(2, "tools/call", &second);
    let frames = process.request(3, "tools/call", &retry(&params, &frames, agree));
    assert_eq!((text(&frames), process.frozen()), ("7 answer to ?", (0, 2, 2)));
    // A process that runs the handler again gives the effect the same key.
    assert!(is_round(&Process::new(service()).request(2, "tools/call", &second)));
    let keys = noted.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[test]
fn a_late_answer_times_out_for_a_frozen_handler_too() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let failed = context.sample(Sample::new("?")).within(Duration::from_secs(10)).await;
        Ok(failed.map_or_else(|failed| failed.to_string(), |sampled| sampled.text))
    });
    for (waits, expected) in [(9, "answer to ?"), (12, "the caller did not answer in time")] {
        let mut process = Process::keeping(plain(tool.clone()), 8);
        let params = json!({"name": "t"});
        let frames = process.request(1, "tools/call", &params);
        process.wait(Duration::from_secs(waits));
        let frames = process.request(2, "tools/call", &retry(&params, &frames, agree));
        assert_eq!((text(&frames), process.frozen().2), (expected, 1));
    }
}

/// A handler that was frozen seals the same log as a handler that ran again, so any process can go on with it.
#[test]
fn a_call_goes_on_in_another_process_after_any_number_of_rounds_of_a_frozen_handler() {
    let (runs, charges) = (Arc::default(), Arc::default());
    let service = || plain(survey(&runs, &charges)).seal_keys(keys());
    let params = json!({"name": "survey", "arguments": {}});
    for handover in 0..=3 {
        let process = std::cell::RefCell::new(Some(Process::keeping(service(), 8)));
        // The first process serves the requests up to the handover, the second one the rest.
        let mut frames = Vec::new();
        let mut sent = params.clone();
        for request in 0.. {
            if request == handover {
                *process.borrow_mut() = Some(Process::keeping(service(), 8));
            }
            let mut process = process.borrow_mut();
            let process = process.as_mut().unwrap();
            frames = process.request(request + 1, "tools/call", &sent);
            while !frames.iter().any(|frame| frame.get("result").is_some() || frame.get("error").is_some()) {
                frames = process.wait(Duration::from_millis(1));
            }
            if !is_round(&frames) {
                break;
            }
            sent = retry(&params, &frames, agree);
        }
        assert_eq!(text(&frames), SURVEYED, "handover before request {handover}");
        let expected_runs = if handover == 0 { 1 } else { 2 };
        assert_eq!((runs.swap(0, Ordering::Relaxed), charges.swap(0, Ordering::Relaxed)), (expected_runs, 1));
    }
}

/// The handler takes a random path, and some of its states are sent to a process that runs it again.
#[test]
fn no_path_of_a_frozen_handler_gets_the_answer_to_another_input_request() {
    for seed in 0..200_u64 {
        let bits = Arc::new(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
        let random = move || {
            let mut bits = bits.lock().unwrap();
            *bits ^= *bits << 13;
            *bits ^= *bits >> 7;
            *bits ^= *bits << 17;
            *bits
        };
        let random_in_tool = random.clone();
        let tool = Tool::new("t", move |context: Context, (): ()| {
            let random = random_in_tool.clone();
            async move {
                for step in 0..4 {
                    let prompts = [format!("step {step} branch {}", random() % 3), format!("other {}", random() % 3)];
                    let asks = (context.sample(Sample::new(prompts[0].clone())), context.sample(Sample::new(prompts[1].clone())));
                    let (one, other) = join(asks.0, asks.1).await;
                    assert_eq!([one?.text, other?.text], prompts.map(|prompt| format!("answer to {prompt}")), "seed {seed}");
                }
                Ok("done")
            }
        });
        let service = || plain(tool.clone()).seal_keys(keys());
        let mut processes = [Process::keeping(service(), 8), Process::keeping(service(), 8)];
        let params = json!({"name": "t"});
        let mut sent = params.clone();
        let mut rounds = 0;
        let frames = loop {
            let frames = processes[(random() % 4 == 0) as usize].request(rounds + 1, "tools/call", &sent);
            if !is_round(&frames) {
                break frames;
            }
            rounds += 1;
            assert!(rounds <= 8, "it ends");
            sent = retry(&params, &frames, agree);
        };
        let last = response(&frames);
        assert!(last["result"]["content"][0]["text"] == "done" || last["error"]["code"] == -32603, "seed {seed}: {last}");
        for process in &processes {
            let panics = process.endpoint.shared().with_state(|state| state.counters.panics);
            assert_eq!(panics, 0, "seed {seed}: a handler got the answer to another input request");
        }
    }
}
