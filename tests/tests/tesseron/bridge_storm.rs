//! Storms over a bridge with one agent and up to four apps at a time: random steps, valid and invalid, with a check of all invariants after
//! each step. A storm is a pure function of its seed.

use std::collections::{BTreeMap, BTreeSet};

use protocol_core::{Close, TransportEnd};
use serde_json::{Value, json};
use tesseron::bridge::{BridgeEvent, Leg};
use testkit::Rng;
use testkit::scripted::{cancelled, notification, request};
use tests::bridge::{
    ACTIONS, Invoked, RESOURCES, Rig, answered, call_tool, config, credentials, hello, refused, resume, sampled, value,
};

/// A request of the agent that is not answered yet.
#[derive(Debug, Default)]
struct OpenRequest {
    /// The last value of its progress.
    last: Option<f64>,
    /// `true` if the agent has cancelled the request. A response that was already queued may still come, with progress before it.
    cancelled: bool,
    /// `true` if progress has come since the cancel. If no response follows, this is a bug.
    progress_after_cancel: bool,
}

/// The state of an app, as the app itself records it.
#[derive(Debug, Default)]
struct AppState {
    id: &'static str,
    calls: Vec<Invoked>,
    /// The invocation ids of calls that the gateway has cancelled.
    cancels: BTreeSet<String>,
    /// Open requests of the gateway other than calls.
    others: Vec<Value>,
    /// The ids of the app's open input requests.
    asked: BTreeSet<u64>,
    subscriptions: Vec<String>,
    credentials: Option<(String, String)>,
    gone: bool,
}

struct Storm {
    rig: Rig,
    rng: Rng,
    last_id: u64,
    /// The open requests of the agent, by their ids.
    open: BTreeMap<u64, OpenRequest>,
    /// Open input requests to the agent, by their ids.
    input_requests: BTreeMap<u64, &'static str>,
    /// The ids of input requests that the agent has answered.
    answered: BTreeSet<u64>,
    apps: Vec<AppState>,
    /// The app ids, session ids and resume tokens of apps that have disconnected.
    left: Vec<(&'static str, String, String)>,
    /// Every invocation id and every request id that the gateway has used.
    used_ids: BTreeSet<String>,
    /// Counts of frames and events by kind, to check that a storm is not idle.
    seen: BTreeMap<&'static str, u64>,
    stalled: BTreeSet<Leg>,
}

const IDS: [&str; 3] = ["a", "a_", "a__b"];

impl Storm {
    fn new(seed: u64) -> Self {
        let mut config = config();
        for limits in [&mut config.agent_limits, &mut config.app_limits] {
            (limits.output_bytes, limits.output_bytes_hard) = (8 << 10, 64 << 10);
            (limits.frame_bytes, limits.in_flight, limits.unsolicited_replies) = (16 << 10, 24, 8);
        }
        (config.agent_limits.in_flight, config.agent_limits.unsolicited_replies) = (48, 32);
        config.registry.max_channels = 6;
        Self {
            rig: Rig::with(config),
            rng: Rng::new(seed),
            last_id: 1,
            open: BTreeMap::new(),
            input_requests: BTreeMap::new(),
            answered: BTreeSet::new(),
            apps: Vec::new(),
            left: Vec::new(),
            used_ids: BTreeSet::new(),
            seen: BTreeMap::new(),
            stalled: BTreeSet::new(),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// A random connected app, if there is one.
    fn some_app(&mut self) -> Option<usize> {
        let alive: Vec<usize> = (0..self.apps.len()).filter(|app| !self.apps[*app].gone).collect();
        self.rng.pick(&alive)
    }

    /// A random open request that the agent has not cancelled, if there is one.
    fn some_open(&mut self) -> Option<u64> {
        let open: Vec<u64> = self.open.iter().filter(|(_, open)| !open.cancelled).map(|(id, _)| *id).collect();
        self.rng.pick(&open)
    }

    // ---- Random steps ----

    fn step(&mut self) {
        match self.rng.below(24) {
            0..=4 => self.agent_calls(),
            5 => self.agent_cancels(),
            6..=7 => self.agent_answers_input_request(),
            8 => self.agent_makes_another_request(),
            9..=11 => self.app_reports_progress(),
            12..=14 => self.app_responds(),
            15..=16 => self.app_requests_input(),
            17 => self.app_notifies(),
            18 => self.app_misbehaves(),
            19 => self.app_disconnects(),
            20 => self.app_connects(),
            21 => self.a_leg_stalls_or_reads_again(),
            _ => {
                let millis = [1, 50, 700, 6_000][self.rng.below(4)];
                self.rig.later(millis);
            }
        }
        self.rig.deliver();
        self.check_invariants();
    }

    fn agent_calls(&mut self) {
        let id = self.next_id();
        let app = IDS[self.rng.below(IDS.len())];
        let text = match self.rng.below(10) {
            0 => request(id, "resources/read", &json!({"uri": format!("tesseron://{app}/balance")}).to_string()),
            1 => request(id, "resources/subscribe", &json!({"uri": format!("tesseron://{app}/balance")}).to_string()),
            2 => request(id, "resources/unsubscribe", &json!({"uri": format!("tesseron://{app}/balance")}).to_string()),
            3 => call_tool(&id.to_string(), "tesseron__invoke_action", &json!({"app_id": app, "action": "t"}).to_string(), None),
            _ => call_tool(&id.to_string(), &format!("{app}__t"), "{}", Some(&id.to_string())),
        };
        self.open.insert(id, OpenRequest::default());
        self.rig.agent(&text);
    }

    fn agent_cancels(&mut self) {
        if self.rng.chance(64) {
            self.rig.agent(&cancelled(999_999_999));
        } else if let Some(id) = self.some_open().filter(|_| self.rig.unread(Leg::Agent) == 0) {
            self.open.get_mut(&id).expect("it is open").cancelled = true;
            self.rig.agent(&cancelled(id));
            self.count("cancel");
        }
    }

    fn agent_answers_input_request(&mut self) {
        let open: Vec<u64> = self.input_requests.keys().copied().collect();
        let Some(id) = self.rng.pick(&open) else { return };
        let method = self.input_requests.remove(&id);
        self.answered.insert(id);
        let frame = match (self.rng.below(6), method) {
            (0, _) => refused(&json!(id), -32601, "Method not found"),
            (1, _) => refused(&json!(id), -1, "User rejected"),
            (2, _) => answered(&json!(id), r#"{"action":"perhaps"}"#),
            (_, Some("sampling/createMessage")) => sampled(&json!(id), "x"),
            _ => answered(&json!(id), r#"{"action":"accept","content":{}}"#),
        };
        self.rig.agent(&frame);
    }

    fn agent_makes_another_request(&mut self) {
        let id = self.next_id();
        let text = match self.rng.below(7) {
            0 => request(id, "tools/list", "{}"),
            1 => request(id, "resources/list", "{}"),
            2 => request(id, "ping", "{}"),
            3 => call_tool(&id.to_string(), "tesseron__list_actions", "{}", None),
            4 => call_tool(&id.to_string(), "nobody__t", "{}", None),
            5 => {
                self.rig.agent("{");
                return;
            }
            _ => {
                let codes: Vec<String> = self.rig.apps.iter().filter_map(|app| app.code.clone()).collect();
                let code = codes.last().cloned().unwrap_or_else(|| String::from("NOBODY"));
                call_tool(&id.to_string(), "tesseron__claim_session", &json!({"code": code}).to_string(), None)
            }
        };
        self.open.insert(id, OpenRequest::default());
        self.rig.agent(&text);
        let claims = self.rig.untaken_events.iter().filter_map(|event| match event {
            BridgeEvent::ClaimWanted { claim, .. } => Some(*claim),
            _ => None,
        });
        for claim in claims.collect::<Vec<_>>() {
            self.rig.bridge.refuse_claim(claim, "no app has this", self.rig.now);
        }
    }

    fn some_call(&mut self, app: usize) -> Option<Invoked> {
        let at = self.rng.below(self.apps[app].calls.len());
        self.apps[app].calls.get(at).cloned()
    }

    fn app_reports_progress(&mut self) {
        let Some(app) = self.some_app() else { return };
        let Some(call) = self.some_call(app) else { return };
        for _ in 0..=self.rng.below(4) {
            let percent = self.rng.below(120);
            let members = match self.rng.below(4) {
                0 => format!(r#","percent":{percent},"message":"m{percent}""#),
                1 => String::from(r#","message":"only""#),
                2 => format!(r#","percent":{percent},"data":{{"n":{percent}}}"#),
                _ => format!(r#","percent":{percent}"#),
            };
            self.rig.app(app, &call.progress(&members));
        }
    }

    fn app_responds(&mut self) {
        let Some(app) = self.some_app() else { return };
        if let Some(other) = self.apps[app].others.pop() {
            let frame = match self.rng.below(3) {
                0 => refused(&other, -32003, "no"),
                1 => answered(&other, "null"),
                _ => answered(&other, r#"{"value":1}"#),
            };
            self.rig.app(app, &frame);
        }
        let Some(call) = self.some_call(app) else { return };
        let frame = match self.rng.below(5) {
            0 => call.error(-32005, "failed", Some(r#"{"a":1}"#)),
            1 => answered(&call.id, "7"),
            _ => call.output(r#""done""#),
        };
        self.rig.app(app, &frame);
        // Sometimes the call is kept, so that the app answers it twice.
        if !self.rng.chance(32) {
            self.apps[app].calls.retain(|other| other.invocation != call.invocation);
        }
    }

    fn app_requests_input(&mut self) {
        let Some(app) = self.some_app() else { return };
        let Some(call) = self.some_call(app) else { return };
        let id = self.next_id();
        let frame = if self.rng.chance(128) { call.sample(id) } else { call.confirm(id) };
        self.apps[app].asked.insert(id);
        self.rig.app(app, &frame);
    }

    fn app_notifies(&mut self) {
        let Some(app) = self.some_app() else { return };
        let subscription = self.apps[app].subscriptions.last().cloned().unwrap_or_else(|| String::from("sub_x"));
        let frame = match self.rng.below(4) {
            0 => notification("log", r#"{"level":"error","message":"m"}"#),
            1 => notification("actions/list_changed", &format!(r#"{{"actions":{ACTIONS}}}"#)),
            2 => notification("resources/list_changed", &format!(r#"{{"resources":{RESOURCES}}}"#)),
            _ => notification("resources/updated", &json!({"subscriptionId": subscription, "value": 1}).to_string()),
        };
        for _ in 0..=self.rng.below(30) {
            self.rig.app(app, &frame);
        }
    }

    fn app_misbehaves(&mut self) {
        let Some(app) = self.some_app() else { return };
        let foreign = self.apps.iter().flat_map(|state| state.calls.iter()).next().cloned();
        let id = self.next_id();
        let frame = match self.rng.below(9) {
            0 => String::from("{"),
            1 => String::from(r#"{"jsonrpc":"2.0","method":"actions/progress"}"#),
            2 => hello("a", ACTIONS, RESOURCES).replace(r#""id":1"#, &format!(r#""id":{id}"#)),
            3 => request(id, "no/such", "{}"),
            4 => testkit::tesseron::sample(id, "inv_nobody"),
            5 => answered(&json!(1), "{}"),
            6 if self.rng.chance(64) => format!(r#""{}""#, "x".repeat(17 << 10)),
            7 => resume("a", "s_1", "x").replace(r#""id":1"#, &format!(r#""id":{id}"#)),
            _ => match foreign {
                Some(call) if !self.apps[app].calls.iter().any(|own| own.invocation == call.invocation) => {
                    call.output("\"stolen\"")
                }
                _ => String::from("null"),
            },
        };
        self.rig.app(app, &frame);
    }

    fn app_disconnects(&mut self) {
        let Some(app) = self.some_app() else { return };
        if !self.rng.chance(100) {
            return;
        }
        let leg = self.rig.leg(app);
        match self.rng.below(3) {
            0 => self.rig.end(leg, TransportEnd::Eof),
            1 => self.rig.end(leg, TransportEnd::Failed),
            _ => {
                self.rig.bridge.close_app(self.rig.apps[app].channel, Close::Now, self.rig.now);
                self.rig.deliver()
            }
        };
    }

    fn app_connects(&mut self) {
        if self.apps.iter().filter(|state| !state.gone).count() >= 4 || self.rig.bridge.is_closed(Leg::Agent) {
            return;
        }
        let Ok(channel) = self.rig.bridge.open(self.rig.now) else { return };
        let app = self.rig.seat(channel, None);
        let mut state = AppState { id: IDS[self.rng.below(IDS.len())], ..AppState::default() };
        let at = self.rng.below(self.left.len());
        let frame = match self.left.get(at).cloned() {
            Some((id, session, token)) if self.rng.chance(160) => {
                state.id = id;
                resume(id, &session, &token)
            }
            _ => hello(state.id, ACTIONS, RESOURCES),
        };
        self.apps.push(state);
        self.rig.app(app, &frame);
        self.check_invariants();
        if let (Some(code), false) = (self.rig.apps[app].code.clone(), self.rng.chance(32)) {
            let id = self.next_id();
            self.open.insert(id, OpenRequest::default());
            let arguments = json!({"code": code}).to_string();
            self.rig.agent(&call_tool(&id.to_string(), "tesseron__claim_session", &arguments, None));
        }
    }

    fn a_leg_stalls_or_reads_again(&mut self) {
        let legs: Vec<Leg> = self.rig.legs();
        let Some(leg) = self.rng.pick(&legs) else { return };
        if self.stalled.remove(&leg) {
            self.rig.resume(leg);
        } else if self.rng.chance(128) {
            self.stalled.insert(leg);
            self.rig.stall(leg);
        }
    }

    // ---- Invariants ----

    fn check_invariants(&mut self) {
        for app in 0..self.apps.len() {
            for text in self.rig.app_received(app) {
                self.app_receives(app, &text);
            }
        }
        for text in self.rig.agent_received() {
            self.agent_receives(&text);
        }
        for event in self.rig.events() {
            if let BridgeEvent::AppClosed { channel, .. } = event {
                let app = self.rig.apps.iter().position(|app| app.channel == channel).expect("a known app");
                assert!(!self.apps[app].gone, "the end of an app comes once");
                self.apps[app].gone = true;
                self.count("lost");
                assert_eq!(self.rig.bridge.stats(Leg::App(channel)), None);
                if let Some((session, token)) = self.apps[app].credentials.clone() {
                    self.left.push((self.apps[app].id, session, token));
                }
            }
        }
        let due = self.rig.bridge.poll_timeout();
        assert!(due.is_none_or(|due| due > self.rig.now), "a deadline that lies in the past");
        for leg in self.rig.legs() {
            let stats = self.rig.stats(leg);
            // The limits that `Storm::new` sets.
            assert!(stats.queued_bytes <= 64 << 10, "{leg:?}: {stats:?}");
            assert!(stats.outbound_calls <= 24 && stats.inbound_calls <= 48 && stats.cancelled_calls == 0, "{leg:?}: {stats:?}");
        }
        if !self.stalled.contains(&Leg::Agent) && self.rig.unread(Leg::Agent) == 0 && !self.rig.bridge.is_closed(Leg::Agent) {
            let stats = self.rig.stats(Leg::Agent);
            let waiting = self.open.values().filter(|open| !open.cancelled).count();
            assert_eq!(stats.inbound_calls, waiting, "the running calls are those that the agent waits for");
            assert_eq!(
                stats.exchanges_out,
                self.input_requests.len(),
                "the open input requests are those that the agent has received"
            );
            assert!(self.rig.bridge.in_flight() <= 2 * waiting + self.input_requests.len());
        }
    }

    fn agent_receives(&mut self, text: &str) {
        let frame = value(text);
        let id = frame["id"].as_u64();
        match (frame["method"].as_str(), id) {
            (None, Some(id)) => {
                assert!(self.open.remove(&id).is_some(), "a response to no request: {text}");
                self.count("answer");
            }
            (None, None) => assert!(frame.get("error").is_some(), "{text}"),
            (Some("notifications/progress"), _) => {
                let token = frame["params"]["progressToken"].as_u64().expect("a token of the agent");
                let open = self.open.get_mut(&token).unwrap_or_else(|| panic!("progress of no call: {text}"));
                open.progress_after_cancel = open.cancelled;
                let progress = frame["params"]["progress"].as_f64().expect("a number");
                let may_repeat = frame["params"].get("message").is_some() || frame["params"].get("_meta").is_some();
                assert!(
                    open.last.is_none_or(|last| progress > last || (progress == last && may_repeat)),
                    "{:?}, then {text}",
                    open.last
                );
                assert!((0.0..=100.0).contains(&progress), "{text}");
                open.last = Some(progress);
                self.count("progress");
            }
            (Some("sampling/createMessage"), Some(id)) => {
                assert!(self.input_requests.insert(id, "sampling/createMessage").is_none());
                self.count("question");
            }
            (Some("elicitation/create"), Some(id)) => {
                assert!(self.input_requests.insert(id, "elicitation/create").is_none());
                self.count("question");
            }
            (Some("notifications/cancelled"), _) => {
                let cancelled_id = frame["params"]["requestId"].as_u64().expect("an id of the gateway");
                // The agent may have answered before the cancel came.
                assert!(
                    self.input_requests.remove(&cancelled_id).is_some() || self.answered.remove(&cancelled_id),
                    "a cancel of no request: {text}"
                );
            }
            (Some(_), Some(_)) => panic!("an unknown request: {text}"),
            (Some(_), None) => {}
        }
    }

    fn app_receives(&mut self, app: usize, text: &str) {
        assert!(!self.apps[app].gone, "a frame for an app that has disconnected: {text}");
        let frame = value(text);
        if let Some(call) = Invoked::read(text) {
            assert!(
                self.used_ids.insert(call.invocation.clone()) && self.used_ids.insert(call.id.to_string()),
                "used before: {text}"
            );
            self.apps[app].calls.push(call);
            self.count("call");
            return;
        }
        let state = &mut self.apps[app];
        match (frame["method"].as_str(), frame.get("id").cloned()) {
            (Some("actions/cancel"), None) => {
                let name = frame["params"]["invocationId"].as_str().expect("a name").to_owned();
                assert!(self.used_ids.contains(&name), "a cancel of no invocation: {text}");
                assert!(state.cancels.insert(name), "a second cancel: {text}");
            }
            (Some(_), Some(id)) => {
                assert!(self.used_ids.insert(id.to_string()), "used before: {text}");
                if let Some(name) = frame["params"]["subscriptionId"].as_str() {
                    state.subscriptions.push(name.to_owned());
                }
                state.others.push(id);
            }
            (None, Some(id)) => {
                if frame["result"].get("resumeToken").is_some() {
                    state.credentials = Some(credentials(&frame));
                }
                if let Some(id) = id.as_u64() {
                    // The id may also be that of a handshake or of a refused request, and is then not in the set.
                    state.asked.remove(&id);
                }
            }
            _ => {}
        }
    }

    /// Makes all ends read, answer the open requests and disconnect. Checks that no state remains.
    fn finish(&mut self) {
        for leg in self.rig.legs() {
            self.stalled.remove(&leg);
            self.rig.resume(leg);
        }
        self.check_invariants();
        for _ in 0..100 {
            for app in 0..self.apps.len() {
                for call in std::mem::take(&mut self.apps[app].calls) {
                    self.rig.app(app, &call.output("1"));
                }
                for other in std::mem::take(&mut self.apps[app].others) {
                    self.rig.app(app, &answered(&other, "null"));
                }
            }
            self.check_invariants();
            if self.rig.bridge.in_flight() == 0 && self.open.values().all(|open| open.cancelled) {
                break;
            }
        }
        if self.rig.bridge.is_closed(Leg::Agent) {
            // The agent left the refusals of its requests unread for too long, so the bridge has disconnected it.
            self.count("hung up on");
            self.open.clear();
            self.input_requests.clear();
        }
        let waiting: Vec<_> = self.open.iter().filter(|(_, open)| !open.cancelled).collect();
        assert!(waiting.is_empty(), "never answered: {waiting:?}");
        let late: Vec<_> = self.open.iter().filter(|(_, open)| open.progress_after_cancel).collect();
        assert!(late.is_empty(), "progress after the cancel: {late:?}");
        assert!(self.input_requests.is_empty(), "never cancelled: {:?}", self.input_requests);
        for state in self.apps.iter().filter(|state| !state.gone) {
            assert!(state.asked.is_empty(), "an app still waits: {:?}", state.asked);
        }
        self.rig.assert_idle();
        self.rig.end(Leg::Agent, TransportEnd::Eof).later(10_000);
        self.check_invariants();
        self.rig.assert_idle();
        assert_eq!(self.rig.bridge.channels().count(), 0);
        self.rig.later(24 * 60 * 60 * 1000);
        assert_eq!(self.rig.bridge.poll_timeout(), None);
    }
}

fn run(seed: u64, steps: usize) -> Storm {
    let mut storm = Storm::new(seed);
    for _ in 0..3 {
        storm.app_connects();
    }
    for _ in 0..steps {
        storm.step();
    }
    storm.finish();
    storm
}

#[test]
fn in_every_storm_each_call_ends_once_and_no_state_remains() {
    let mut seen = BTreeMap::new();
    for seed in 0..60 {
        for (what, count) in run(seed, 400).seen {
            *seen.entry(what).or_insert(0) += count;
        }
    }
    for what in ["answer", "call", "cancel", "lost", "progress", "question"] {
        assert!(seen.get(what).is_some_and(|count| *count > 300), "a storm with too few frames of a kind: {seen:?}");
    }
}

#[test]
fn a_storm_is_determined_by_its_seed() {
    let trace = |seed| run(seed, 400).rig.trace;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
