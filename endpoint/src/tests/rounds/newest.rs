//! Callers that present a state again while a run of the call is under way, or after a newer state was sealed. A *run* is the execution of
//! a handler for one request of the call.

use super::*;

/// Counts the runs of a handler and of its effect.
#[derive(Clone, Default)]
struct Effects {
    /// The key of each run of the effect.
    keys: Arc<Mutex<Vec<String>>>,
    /// The number of effects under way.
    under_way: Arc<AtomicUsize>,
    /// The maximum of `under_way` so far.
    most: Arc<AtomicUsize>,
    /// The number of runs of the handler.
    runs: Arc<AtomicUsize>,
}

impl Effects {
    /// The number of runs of the handler, that of the effect, and the maximum number of effects under way at the same time.
    fn counts(&self) -> (usize, usize, usize) {
        (self.runs.load(Ordering::Relaxed), self.keys.lock().unwrap().len(), self.most.load(Ordering::Relaxed))
    }
}

/// A tool that asks, runs an effect of 3 s that a cancel does not end, and asks again.
fn pays(effects: &Effects) -> Tool {
    let effects = effects.clone();
    Tool::new("t", move |context: Context, (): ()| {
        let effects = effects.clone();
        async move {
            effects.runs.fetch_add(1, Ordering::Relaxed);
            let first = context.sample(Sample::new("before")).await?.text;
            let charge = async |key: crate::EffectKey| {
                effects.keys.lock().unwrap().push(key.to_string());
                let under_way = effects.under_way.fetch_add(1, Ordering::Relaxed) + 1;
                effects.most.fetch_max(under_way, Ordering::Relaxed);
                for _ in 0..3 {
                    context.served().alarm(Duration::from_secs(1)).await;
                }
                effects.under_way.fetch_sub(1, Ordering::Relaxed);
                Ok(effects.keys.lock().unwrap().len())
            };
            let paid: usize = context.once("charge", charge).await?;
            context.message("paid");
            let last = context.sample(Sample::new("after")).await?.text;
            Ok(format!("{first}, payment {paid}, {last}"))
        }
    })
}

impl Process {
    /// Lets `count` seconds pass, one after the other. Returns the frames that are sent meanwhile.
    fn seconds(&mut self, count: usize) -> Vec<Value> {
        (0..count).flat_map(|_| self.wait(Duration::from_secs(1))).collect()
    }
}

/// The id of each response among `frames`, with the code of its error, or 0.
fn ends(frames: &[Value]) -> Vec<(u64, i64)> {
    let responses = frames.iter().filter_map(|frame| Some((frame["id"].as_u64()?, frame["error"]["code"].as_i64().unwrap_or(0))));
    responses.collect()
}

/// The error code of a request whose run is replaced by a newer one.
const REPLACED: i64 = RpcError::INTERNAL;

/// Answers as [`agree`] does, but with another text.
fn differ(name: &str, method: &str, params: &Value) -> Option<Value> {
    let mut answer = agree(name, method, params)?;
    answer["content"]["text"] = json!("another answer");
    Some(answer)
}

#[test]
fn presenting_a_state_again_cancels_the_run_under_way_and_the_new_run_begins_after_its_effect() {
    let effects = Effects::default();
    let mut process = Process::new(plain(pays(&effects)));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    let before = retry(&params, &frames, agree);
    assert_eq!(process.request(2, "tools/call", &before), [Value::Null; 0]);
    let runs = effects.counts().0;
    process.seconds(1);
    assert_eq!(process.request(3, "tools/call", &before), [Value::Null; 0]);
    process.seconds(1);
    assert_eq!(effects.counts(), (runs, 1, 1), "nothing begins while the effect is under way");
    let frames = process.seconds(1);
    let mut ended = ends(&frames);
    ended.sort_unstable();
    assert_eq!(ended, [(2, REPLACED), (3, 0)]);
    // The older run may not report, since a newer one goes on in its place.
    let reports: Vec<_> =
        frames.iter().filter(|frame| frame.get("id").is_none()).map(|frame| &frame["params"]["progressToken"]).collect();
    assert_eq!(reports, [&json!(3)]);
    let round = frames.iter().find(|frame| frame["id"] == 3).cloned().unwrap();
    let frames = process.request(4, "tools/call", &retry(&params, &[round], agree));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "answer to before, payment 1, answer to after");
    assert_eq!((effects.counts().1, process.serves()), (1, 0), "one effect");
}

#[test]
fn of_many_requests_with_one_state_the_last_goes_on_and_the_effect_runs_once() {
    let effects = Effects::default();
    let mut process = Process::new(plain(pays(&effects)));
    let params = json!({"name": "t"});
    let before = retry(&params, &process.request(1, "tools/call", &params), agree);
    let mut frames: Vec<_> = (2..=6).flat_map(|id| process.request(id, "tools/call", &before)).collect();
    frames.extend(process.seconds(3));
    let mut ended = ends(&frames);
    ended.sort_unstable();
    assert_eq!(ended, [(2, REPLACED), (3, REPLACED), (4, REPLACED), (5, REPLACED), (6, 0)]);
    assert_eq!((effects.counts().1, effects.counts().2, process.serves()), (1, 1, 0));
}

#[test]
fn a_retry_with_other_answers_runs_the_effect_again_with_the_same_key_but_only_after_the_first_run() {
    let effects = Effects::default();
    let mut process = Process::new(plain(pays(&effects)));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    process.request(2, "tools/call", &retry(&params, &frames, agree));
    process.seconds(1);
    process.request(3, "tools/call", &retry(&params, &frames, differ));
    assert_eq!(ends(&process.seconds(2)), [(2, REPLACED)]);
    let frames = process.seconds(3);
    let frames = process.request(4, "tools/call", &retry(&params, &frames, agree));
    assert_eq!(response(&frames)["result"]["content"][0]["text"], "another answer, payment 2, answer to after");
    let keys = effects.keys.lock().unwrap();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    assert_eq!(effects.most.load(Ordering::Relaxed), 1);
}

#[test]
fn a_run_without_an_effect_under_way_is_replaced_at_once() {
    let tool = Tool::new("t", async |context: Context, (): ()| {
        let sampled = context.sample(Sample::new("?")).await?.text;
        context.sleep(Duration::from_secs(5)).await?;
        Ok(sampled)
    });
    let mut process = Process::new(plain(tool));
    let params = json!({"name": "t"});
    let frames = process.request(1, "tools/call", &params);
    process.request(2, "tools/call", &retry(&params, &frames, agree));
    // Another call of the tool is not affected.
    let others = process.request(10, "tools/call", &params);
    process.request(11, "tools/call", &retry(&params, &others, agree));
    process.seconds(1);
    assert_eq!(ends(&process.request(3, "tools/call", &retry(&params, &frames, differ))), [(2, REPLACED)]);
    assert_eq!(ends(&process.seconds(4)), [(11, 0)]);
    let frames = process.seconds(1);
    assert_eq!((ends(&frames), &response(&frames)["result"]["content"][0]["text"]), (vec![(3, 0)], &json!("another answer")));
}

#[test]
fn a_run_that_is_cancelled_while_it_waits_for_an_effect_never_begins_even_if_the_endpoint_is_dropped() {
    for endpoint_is_dropped in [false, true] {
        let effects = Effects::default();
        let mut process = Process::new(plain(pays(&effects)));
        let params = json!({"name": "t"});
        let before = retry(&params, &process.request(1, "tools/call", &params), agree);
        process.request(2, "tools/call", &before);
        process.request(3, "tools/call", &before);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}).to_string();
        let now = process.executor.now();
        process.endpoint.handle_frame(cancel.into(), now).unwrap();
        let shared = Arc::downgrade(process.endpoint.shared());
        let mut frames = process.sent();
        if endpoint_is_dropped {
            let Process { endpoint, executor } = process;
            drop(endpoint);
            executor.run_until_stalled();
            executor.run_for(Duration::from_secs(60));
            assert!(shared.upgrade().is_none(), "nothing keeps the endpoint in memory");
        } else {
            frames.extend(process.seconds(4));
            assert_eq!(ends(&frames), [(2, REPLACED)]);
            assert_eq!(process.serves(), 0);
        }
        assert_eq!(effects.counts().1, 1);
    }
}
