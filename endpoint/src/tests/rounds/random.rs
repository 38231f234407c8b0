//! Random callers of two processes: they present any state they have got, to any process, with any answers, at any time, while processes
//! restart. Whatever they do, each answer goes to its input request, each call has one result, and an effect of a
//! call has one key. An effect runs at most once if there is a store, or if the caller is careful: it sends each request of a call once.

use std::collections::BTreeSet;

use super::*;
use crate::{MemoryOnceStore, OnceStore};

/// A deterministic source of random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// A run of an effect.
struct Begun {
    call: u64,
    name: &'static str,
    key: String,
    has_ended: bool,
}

/// A record of what the handlers of all processes have done.
#[derive(Default)]
struct Seen {
    /// All runs of effects.
    begun: Vec<Begun>,
    /// The keys of effects under way, each with its process.
    under_way: BTreeSet<(usize, String)>,
    faults: Vec<String>,
}

/// A tool for call `n`: its handler makes an input request, runs an effect, makes two input requests at the same time, runs an effect with
/// a sealed key, and makes one more input request, of whose answer it keeps only the length. Every prompt names the call.
fn script(process: usize, seen: &Arc<Mutex<Seen>>) -> Tool {
    let seen = Arc::clone(seen);
    Tool::new("t", move |context: Context, given: BTreeMap<String, u64>| {
        let seen = Arc::clone(&seen);
        async move {
            let n = given.get("n").copied().unwrap_or_default();
            let ask = |name: &str| {
                let prompt = format!("{name} of {n}");
                (format!("answer to {prompt}"), context.sample(Sample::new(prompt)))
            };
            let check = |expected: &str, answer: &str| {
                if answer != expected {
                    seen.lock().unwrap().faults.push(format!("{answer:?} instead of {expected:?}"));
                }
            };
            let pay = |name: &'static str| {
                let (seen, context) = (Arc::clone(&seen), context.clone());
                async move |key: crate::EffectKey| {
                    let key = key.to_string();
                    {
                        let mut seen = seen.lock().unwrap();
                        seen.begun.push(Begun { call: n, name, key: key.clone(), has_ended: false });
                        if !seen.under_way.insert((process, key.clone())) {
                            seen.faults.push(format!("{name} of {n} is under way twice"));
                        }
                    }
                    let _under_way = UnderWay(&seen, process, &key);
                    for _ in 0..2 {
                        context.served().alarm(Duration::from_secs(1)).await;
                    }
                    if let Some(begun) = seen.lock().unwrap().begun.iter_mut().rfind(|begun| begun.key == key) {
                        begun.has_ended = true;
                    }
                    Ok(format!("{name} {n}"))
                }
            };
            context.step(1, 5);
            let (expected, first) = ask("first");
            check(&expected, &first.await?.text);
            let paid: String = context.once("plain", pay("plain")).await?;
            let ((one, a), (other, b)) = (ask("left"), ask("right"));
            let (a, b) = join(a.key("left"), b.key("right")).await;
            check(&one, &a?.text);
            check(&other, &b?.text);
            context.checkpoint(&json!({"processed": 1}));
            let sealed: String = context.once_sealed("sealed", pay("sealed")).await?;
            let (expected, last) = ask("last");
            let last = last.within(Duration::from_secs(3600)).keep(|sampled| sampled.text.len()).await?;
            check(&expected.len().to_string(), &last.to_string());
            Ok(format!("{n}: {paid}, {sealed}"))
        }
    })
}

/// An effect under way. It is dropped at its end, or with its process.
struct UnderWay<'a>(&'a Mutex<Seen>, usize, &'a str);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().under_way.remove(&(self.1, self.2.to_owned()));
    }
}

/// A request that was sent: its process and its call, and whether it may stay without a response or must be refused.
struct Sent {
    process: usize,
    call: u64,
    may_be_silent: bool,
    must_be_refused: bool,
}

/// A random caller, two processes, and all requests and responses so far.
struct World {
    dice: Dice,
    seen: Arc<Mutex<Seen>>,
    store: Option<Arc<dyn OnceStore>>,
    /// The caller sends each request of a call once.
    is_careful: bool,
    /// The number of processes so far.
    made: std::cell::Cell<usize>,
    processes: Vec<Process>,
    sent: BTreeMap<u64, Sent>,
    responses: BTreeMap<u64, Value>,
    /// The rounds so far: the call, and the response.
    rounds: Vec<(u64, Value)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let store = (dice.roll(2) == 0).then(|| Arc::new(MemoryOnceStore::default()) as Arc<dyn OnceStore>);
        let made = std::cell::Cell::new(0);
        let mut world = Self {
            dice,
            seen: Arc::default(),
            store,
            is_careful: seed.is_multiple_of(3),
            made,
            processes: Vec::new(),
            sent: BTreeMap::new(),
            responses: BTreeMap::new(),
            rounds: Vec::new(),
        };
        world.processes = (0..2).map(|place| world.make_process(place)).collect();
        world
    }

    /// Makes a new process.
    fn make_process(&self, place: usize) -> Process {
        let service = plain(script(place, &self.seen)).seal_keys(keys());
        // The steps may let any time pass before the first request to a process.
        let service = service.configure(|config: &mut Config| config.timeouts.handshake = None);
        let service = match &self.store {
            Some(store) => service.once_store(Arc::clone(store)),
            None => service,
        };
        let process = Process::new(service);
        // The executors of all processes give the same random bytes, so each process first skips a different number of them.
        let drawn = self.made.replace(self.made.get() + 1) * 10_000;
        process.executor.runtime().fill_random(&mut vec![0; 8 * drawn]).unwrap();
        process
    }

    fn send(&mut self, place: usize, call: u64, params: &Value, principal: &str, must_be_refused: bool) {
        let id = self.sent.len() as u64 + 1;
        self.sent.insert(id, Sent { process: place, call, may_be_silent: false, must_be_refused });
        let extensions = Extensions::new().with(Principal::new(principal));
        let frames = self.processes[place].request_as(id, "tools/call", params, &json!({"sampling": {}}), extensions);
        self.record(frames);
    }

    /// Records the responses and the rounds among `frames`.
    fn record(&mut self, frames: Vec<Value>) {
        for frame in frames {
            let Some(id) = frame["id"].as_u64() else { continue };
            let sent = &self.sent[&id];
            assert!(self.responses.insert(id, frame.clone()).is_none(), "request {id} is answered twice");
            assert_eq!(sent.must_be_refused, frame["error"]["message"] == "the state of this request is not accepted", "{frame}");
            if is_round(std::slice::from_ref(&frame)) {
                self.rounds.push((sent.call, frame));
            }
        }
    }

    /// Lets `count` seconds pass, one at a time in all processes, so that their clocks stay equal.
    fn seconds(&mut self, count: u64) {
        for _ in 0..count {
            for place in 0..self.processes.len() {
                let frames = self.processes[place].wait(Duration::from_secs(1));
                self.record(frames);
            }
        }
    }

    /// Sends a random request, cancels a request, restarts a process, or lets time pass.
    fn step(&mut self) {
        let place = self.dice.roll(2) as usize;
        let params = |call: u64| json!({"name": "t", "arguments": {"n": call}});
        match self.dice.roll(20) {
            0..2 => {
                let call = self.sent.len() as u64;
                self.send(place, call, &params(call), "alice", false);
            }
            2..13 if !self.rounds.is_empty() => {
                // In most cases the newest state, otherwise one of the two before it.
                let back = self.dice.roll(6).saturating_sub(3).min(self.rounds.len() as u64 - 1) as usize;
                let at = self.rounds.len() - 1 - back;
                let (call, round) = self.rounds[at].clone();
                let (missing, wrong) = (self.dice.roll(6) == 0, self.dice.roll(12) == 0);
                let answer = |name: &str, method: &str, params: &Value| match name {
                    "left" if missing => None,
                    "right" if wrong => Some(json!({"content": 7})),
                    _ => agree(name, method, params),
                };
                let mut retried = retry(&params(call), &[round], answer);
                // Two kinds of forged retries must be refused: with another principal, and with other arguments.
                let forgery = self.dice.roll(12);
                let principal = if forgery == 0 { "bob" } else { "alice" };
                if forgery == 1 {
                    retried["arguments"]["n"] = json!(call + 1_000);
                }
                // A careful caller uses each state for one retry, besides forged ones.
                if self.is_careful && forgery >= 2 {
                    self.rounds.remove(at);
                }
                self.send(place, call, &retried, principal, forgery < 2);
            }
            13..15 => {
                let open: Vec<_> = self.sent.keys().filter(|id| !self.responses.contains_key(id)).copied().collect();
                let Some(id) = open.get(self.dice.roll(open.len().max(1) as u64) as usize).copied() else { return };
                let sent = self.sent.get_mut(&id).unwrap();
                sent.may_be_silent = true;
                let process = &mut self.processes[sent.process];
                let cancel =
                    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string();
                let now = process.executor.now();
                process.endpoint.handle_frame(cancel.into(), now).unwrap();
                let frames = process.sent();
                self.record(frames);
            }
            15 if self.dice.roll(3) == 0 => {
                // A new process has the clock of the old one.
                let now = self.processes[place].executor.now();
                let new = self.make_process(place);
                new.executor.advance_to(now);
                let old = std::mem::replace(&mut self.processes[place], new);
                self.sent.values_mut().filter(|sent| sent.process == place).for_each(|sent| sent.may_be_silent = true);
                let Process { endpoint, executor } = old;
                drop(endpoint);
                executor.run_until_stalled();
            }
            16 if self.dice.roll(3) == 0 => self.seconds(61),
            _ => {
                let seconds = 1 + self.dice.roll(3);
                self.seconds(seconds);
            }
        }
    }

    /// Waits for the end of all handlers, and checks all responses, effects and keys. Returns the number of results, and of effects of a
    /// careful caller without a store.
    fn check(mut self) -> (usize, usize) {
        self.seconds(130);
        let mut results = 0;
        for process in &self.processes {
            let (serves, counters) = process.endpoint.shared().with_state(|state| (state.served_calls.len(), state.counters));
            assert_eq!((serves, counters.panics, counters.abandoned), (0, 0, 0));
        }
        let seen = self.seen.lock().unwrap();
        let has_ended =
            |call: u64, name: &str| seen.begun.iter().any(|begun| begun.call == call && begun.name == name && begun.has_ended);
        for (id, sent) in &self.sent {
            let Some(response) = self.responses.get(id) else {
                assert!(sent.may_be_silent, "request {id} has no response");
                continue;
            };
            let result = &response["result"];
            match (result["content"][0]["text"].as_str(), response["error"]["code"].as_i64()) {
                (Some(text), None) if result["isError"] == true => {
                    assert!(text.starts_with("it is not known whether") && self.store.is_some(), "{text}");
                    let name = if text.contains("plain") { "plain" } else { "sealed" };
                    assert!(!has_ended(sent.call, name), "{text}");
                }
                (Some(text), None) => {
                    results += 1;
                    let n = sent.call;
                    assert_eq!(text, format!("{n}: plain {n}, sealed {n}"));
                    assert!(has_ended(n, "plain") && has_ended(n, "sealed"), "{text}");
                }
                (None, None) => assert_eq!(result["resultType"], "input_required"),
                (_, code) => assert!(matches!(code, Some(-32602 | -32603)), "{response}"),
            }
        }
        assert_eq!(seen.faults, [""; 0]);
        assert!(seen.under_way.is_empty());
        let effects: BTreeSet<_> = seen.begun.iter().map(|begun| (begun.call, begun.name)).collect();
        let keys: BTreeSet<_> = seen.begun.iter().map(|begun| &begun.key).collect();
        let with_keys: BTreeSet<_> = seen.begun.iter().map(|begun| (begun.call, begun.name, &begun.key)).collect();
        assert_eq!((keys.len(), with_keys.len()), (effects.len(), effects.len()), "each effect has one key, in all its runs");
        if self.store.is_some() || self.is_careful {
            assert_eq!(effects.len(), seen.begun.len(), "an effect ran twice, with a store or for a careful caller");
        }
        let without_store = if self.store.is_none() && self.is_careful { effects.len() } else { 0 };
        (results, without_store)
    }
}

#[test]
fn random_callers_never_mix_answers_and_run_an_effect_once_if_it_has_a_store_or_they_are_careful() {
    let (mut results, mut without_store) = (0, 0);
    for seed in 1..=60 {
        let run = || {
            let mut world = World::new(seed);
            for _ in 0..80 {
                world.step();
            }
            world.check()
        };
        let (more_results, more_without_store) = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            println!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        (results, without_store) = (results + more_results, without_store + more_without_store);
    }
    let reached = format!("{results} results, {without_store} effects without a store");
    println!("{reached}");
    assert!(results > 100 && without_store > 10, "{reached}");
}
