//! Effects that are claimed in a store: whatever the caller repeats, an effect with one key runs at most once.

use super::*;
use crate::{Claim, Lease, MemoryOnceStore, OnceStore, StoreError};

/// A memory store that counts claims, and can fail.
#[derive(Default)]
struct Store {
    inner: MemoryOnceStore,
    claims: AtomicUsize,
    fails_to_claim: std::sync::atomic::AtomicBool,
    fails_to_record: std::sync::atomic::AtomicBool,
}

impl OnceStore for Store {
    fn claim<'a>(&'a self, key: &'a str, lease: Lease) -> BoxFuture<'a, Result<Claim, StoreError>> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        if self.fails_to_claim.load(Ordering::Relaxed) {
            return Box::pin(async { Err("the database is down".into()) });
        }
        self.inner.claim(key, lease)
    }

    fn record<'a>(&'a self, key: &'a str, outcome: Option<Json>) -> BoxFuture<'a, Result<(), StoreError>> {
        if self.fails_to_record.load(Ordering::Relaxed) {
            return Box::pin(async { Err("the database is down".into()) });
        }
        self.inner.record(key, outcome)
    }
}

/// A tool with an effect of 3 s, the charge, and then an input request. With the argument `sealed` the effect has a sealed key, and with
/// `fails` it fails. `charges` counts the charges.
fn charging_tool(charges: &Arc<AtomicUsize>) -> Tool {
    let charges = Arc::clone(charges);
    Tool::new("t", move |context: Context, given: BTreeMap<String, bool>| {
        let charges = Arc::clone(&charges);
        async move {
            let charge = async |_: crate::EffectKey| {
                let nth = charges.fetch_add(1, Ordering::Relaxed) + 1;
                for _ in 0..3 {
                    context.sleep(Duration::from_secs(1)).await?;
                }
                match given.contains_key("fails") {
                    true => Err(ToolError::failed(format!("charge {nth} failed"))),
                    false => Ok(nth),
                }
            };
            let paid = match given.contains_key("sealed") {
                true => context.once_sealed("charge", charge).await,
                false => context.once("charge", charge).await,
            };
            let text = context.sample(Sample::new("?")).await?.text;
            Ok(format!("charge {}, {text}", paid?))
        }
    })
}

/// Reads the key of a call from its metadata.
fn key_in_meta(context: &Context) -> Option<String> {
    context.meta()?.member("example.org/call")?.decode().ok()
}

/// Sends a request, with `key` in its metadata if there is one.
fn send(process: &mut Process, id: u64, params: &Value, key: Option<&str>) -> Vec<Value> {
    send_with(process, id, params, key, Extensions::new())
}

/// Sends a request as [`send`] does, with the values that the transport attaches to its frame.
fn send_with(process: &mut Process, id: u64, params: &Value, key: Option<&str>, extensions: Extensions) -> Vec<Value> {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
    });
    if let Some(key) = key {
        params["_meta"]["example.org/call"] = json!(key);
    }
    let frame = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
    let now = process.executor.now();
    process.endpoint.handle_frame_by(frame.into(), Lane::CHANNEL, extensions, now).unwrap();
    process.sent()
}

/// The service of each process that shares `store`.
fn sharing(charged: &Arc<AtomicUsize>, store: &Arc<Store>) -> Service {
    plain(charging_tool(charged)).once_store(Arc::clone(store) as Arc<dyn OnceStore>).seal_keys(keys())
}

/// Makes a first request, and returns its retry, whose state contains the sealed key of the effect.
fn retry_with_sealed_key(service: Service, params: &Value) -> Value {
    retry(params, &send(&mut Process::new(service), 1, params, None), agree)
}

/// Lets time pass in small steps.
fn wait(process: &mut Process, seconds: usize) -> Vec<Value> {
    (0..seconds * 20).flat_map(|_| process.wait(Duration::from_millis(50))).collect()
}

fn text(frame: &Value) -> &str {
    frame["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {frame}"))
}

#[test]
fn five_equal_first_requests_run_the_effect_once_with_a_key_of_the_caller_and_five_times_without() {
    for key in [Some("order 7"), None] {
        let (charged, store) = (Arc::default(), Arc::new(Store::default()));
        let service = plain(charging_tool(&charged)).once_store(Arc::clone(&store) as Arc<dyn OnceStore>).call_key(key_in_meta);
        let mut process = Process::new(service);
        let params = json!({"name": "t", "arguments": {}});
        for id in 1..=5 {
            assert_eq!(send(&mut process, id, &params, key), [Value::Null; 0]);
        }
        let rounds = wait(&mut process, 5);
        assert_eq!(rounds.len(), 5);
        // Without a key of the caller, five equal requests are five calls: the caller may want to buy five times.
        assert_eq!(charged.load(Ordering::Relaxed), if key.is_some() { 1 } else { 5 });
        for (id, round) in (6..).zip(&rounds) {
            let frames = send(&mut process, id, &retry(&params, std::slice::from_ref(round), agree), key);
            if key.is_some() {
                assert_eq!(text(response(&frames)), "charge 1, answer to ?");
            }
        }
        assert_eq!(charged.load(Ordering::Relaxed), if key.is_some() { 1 } else { 5 });
    }
}

#[test]
fn requests_with_another_key_with_other_arguments_or_of_another_principal_are_different_calls() {
    let (charged, store) = (Arc::default(), Arc::new(Store::default()));
    let mut process = Process::new(plain(charging_tool(&charged)).once_store(store).call_key(key_in_meta));
    let (params, other) = (json!({"name": "t", "arguments": {}}), json!({"name": "t", "arguments": {"x": true}}));
    let by = |name: &str| Extensions::new().with(Principal::new(name));
    send_with(&mut process, 1, &params, Some("order 7"), by("alice"));
    send_with(&mut process, 2, &other, Some("order 7"), by("alice"));
    send_with(&mut process, 3, &params, Some("order 8"), by("alice"));
    send_with(&mut process, 4, &params, Some("order 7"), by("bob"));
    send(&mut process, 5, &params, Some("order 7"));
    assert_eq!((wait(&mut process, 5).len(), charged.load(Ordering::Relaxed)), (5, 5));
    assert!(is_round(&send_with(&mut process, 6, &params, Some("order 7"), by("bob"))));
    assert_eq!(charged.load(Ordering::Relaxed), 5, "a repetition is the same call");
}

/// Five processes get the same retry at the same time, as a load balancer could send it.
#[test]
fn of_five_presentations_of_a_state_to_five_processes_one_runs_the_effect() {
    for arguments in [json!({"sealed": true}), json!({"sealed": true, "fails": true})] {
        let (charged, store) = (Arc::default(), Arc::new(Store::default()));
        let service = || sharing(&charged, &store);
        let params = json!({"name": "t", "arguments": arguments});
        let sealed_retry = retry_with_sealed_key(service(), &params);
        let mut processes: Vec<_> = (0..5).map(|_| Process::new(service())).collect();
        for process in &mut processes {
            assert_eq!(send(process, 2, &sealed_retry, None), [Value::Null; 0]);
        }
        // Each process waits by the clock of its own executor. All these clocks begin at the same time.
        let rounds: Vec<_> = processes.iter_mut().map(|process| wait(process, 5)).collect();
        assert_eq!(charged.load(Ordering::Relaxed), 1);
        for (process, round) in processes.iter_mut().zip(rounds) {
            let claims = store.claims.load(Ordering::Relaxed);
            let frames = send(process, 3, &retry(&params, &round, agree), None);
            let expected = if arguments.get("fails").is_some() { "charge 1 failed" } else { "charge 1, answer to ?" };
            assert_eq!(text(response(&frames)), expected);
            assert_eq!(store.claims.load(Ordering::Relaxed), claims, "what stands in the log is not claimed again");
        }
    }
}

/// The process that runs the effect crashes. Another process waits for the outcome, and never runs the effect.
#[test]
fn an_outcome_that_is_not_recorded_is_unknown_after_the_lease_and_the_effect_never_runs_again() {
    let (charged, store) = (Arc::default(), Arc::new(Store::default()));
    let service = || sharing(&charged, &store);
    let params = json!({"name": "t", "arguments": {"sealed": true}});
    let sealed_retry = retry_with_sealed_key(service(), &params);
    let mut first = Process::new(service());
    send(&mut first, 2, &sealed_retry, None);
    std::mem::forget(first);
    const UNKNOWN: &str = "it is not known whether \"charge\" has happened";
    let mut other = Process::new(service());
    send(&mut other, 3, &sealed_retry, None);
    assert_eq!(wait(&mut other, 58), [Value::Null; 0], "it waits");
    let frames = wait(&mut other, 4);
    assert_eq!(text(response(&send(&mut other, 4, &retry(&params, &frames, agree), None))), UNKNOWN);
    // A process that gets the request after the lease does not wait.
    let mut late = Process::new(service());
    late.executor.run_for(Duration::from_secs(60));
    let frames = send(&mut late, 5, &sealed_retry, None);
    assert_eq!(text(response(&send(&mut late, 6, &retry(&params, &frames, agree), None))), UNKNOWN);
    assert_eq!(charged.load(Ordering::Relaxed), 1);
}

#[test]
fn an_effect_that_stops_because_its_call_was_cancelled_has_no_outcome() {
    for has_store in [false, true] {
        let (charged, store) = (Arc::default(), Arc::new(Store::default()));
        let service = plain(charging_tool(&charged)).seal_keys(keys());
        let service = if has_store { service.once_store(store) } else { service };
        let mut process = Process::new(service);
        let params = json!({"name": "t", "arguments": {"sealed": true}});
        let sealed_retry = retry(&params, &send(&mut process, 1, &params, None), agree);
        send(&mut process, 2, &sealed_retry, None);
        // The newer request cancels the older one, whose effect stops at its sleep.
        let mut frames = send(&mut process, 3, &sealed_retry, None);
        frames.extend(wait(&mut process, 3));
        let round = frames.iter().find(|frame| frame["id"] == 3).cloned().unwrap();
        let frames = send(&mut process, 4, &retry(&params, &[round], agree), None);
        let expected = match has_store {
            // Without a store the effect runs again, with the same key.
            false => ("charge 2, answer to ?", 2),
            true => ("it is not known whether \"charge\" has happened", 1),
        };
        assert_eq!((text(response(&frames)), charged.load(Ordering::Relaxed)), expected);
    }
}

#[test]
fn the_outcome_of_an_effect_that_is_dropped_is_unknown_without_waiting_for_the_lease() {
    let (charged, store) = (Arc::default(), Arc::new(Store::default()));
    let service = || sharing(&charged, &store);
    let params = json!({"name": "t", "arguments": {"sealed": true}});
    let sealed_retry = retry_with_sealed_key(service(), &params);
    let mut first = Process::new(service());
    send(&mut first, 2, &sealed_retry, None);
    let Process { endpoint, executor } = first;
    drop(endpoint);
    executor.run_until_stalled();
    let mut process = Process::new(service());
    let frames = send(&mut process, 3, &sealed_retry, None);
    let frames = send(&mut process, 4, &retry(&params, &frames, agree), None);
    assert_eq!(text(response(&frames)), "it is not known whether \"charge\" has happened");
    assert_eq!(charged.load(Ordering::Relaxed), 1);
}

#[test]
fn without_a_working_store_no_effect_begins_and_an_outcome_that_is_not_recorded_is_unknown_to_others() {
    let (charged, store) = (Arc::default(), Arc::new(Store::default()));
    let service = || sharing(&charged, &store);
    let params = json!({"name": "t", "arguments": {"sealed": true}});
    let sealed_retry = retry_with_sealed_key(service(), &params);
    store.fails_to_claim.store(true, Ordering::Relaxed);
    let mut process = Process::new(service());
    let frames = send(&mut process, 2, &sealed_retry, None);
    let frames = send(&mut process, 3, &retry(&params, &frames, agree), None);
    assert_eq!(text(response(&frames)), "the effect cannot be claimed: the database is down");
    assert_eq!(charged.load(Ordering::Relaxed), 0);
    // The failure is in no log, so the effect is tried again with the earlier state.
    store.fails_to_claim.store(false, Ordering::Relaxed);
    store.fails_to_record.store(true, Ordering::Relaxed);
    send(&mut process, 4, &sealed_retry, None);
    let frames = wait(&mut process, 3);
    let frames = send(&mut process, 5, &retry(&params, &frames, agree), None);
    assert_eq!(text(response(&frames)), "charge 1, answer to ?");
    let mut other = Process::new(service());
    assert_eq!(send(&mut other, 6, &sealed_retry, None), [Value::Null; 0]);
    let frames = wait(&mut other, 65);
    let frames = send(&mut other, 7, &retry(&params, &frames, agree), None);
    assert_eq!(text(response(&frames)), "it is not known whether \"charge\" has happened");
    assert_eq!(charged.load(Ordering::Relaxed), 1);
}

#[test]
fn a_call_that_waits_for_the_effect_of_another_claimant_ends_when_it_is_cancelled() {
    let (charged, store) = (Arc::default(), Arc::new(Store::default()));
    let service = || sharing(&charged, &store);
    let params = json!({"name": "t", "arguments": {"sealed": true}});
    let sealed_retry = retry_with_sealed_key(service(), &params);
    let (mut first, mut other) = (Process::new(service()), Process::new(service()));
    send(&mut first, 2, &sealed_retry, None);
    send(&mut other, 3, &sealed_retry, None);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}).to_string();
    let now = other.executor.now();
    other.endpoint.handle_frame(cancel.into(), now).unwrap();
    other.sent();
    assert_eq!(other.serves(), 0);
    // The cancelled call held no claim, so the call of the first process, which holds the claim, is not affected.
    let frames = wait(&mut first, 3);
    let frames = send(&mut first, 4, &retry(&params, &frames, agree), None);
    assert_eq!((text(response(&frames)), charged.load(Ordering::Relaxed)), ("charge 1, answer to ?", 1));
}
