//! A bridge with an agent and three apps. The bytes choose the steps, which include the faults of a leg: it stalls, is lost, or carries
//! invalid frames. Each leg has a judge, which checks the guarantees of its session. This file checks the rules of the bridge itself: the
//! calls that end when a leg is lost, and the state that is freed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::{CallTimeouts, Close, Instant, TransportEnd, Violation};
use serde_json::Value;
use tesseron::bridge::{Bridge, BridgeConfig, BridgeEvent, ClaimId, Leg, Surface};
use tesseron::claims::ChannelId;

use crate::bridge::{ACTIONS, DECLARES, Invoked, RESOURCES, answered, bound, call_tool, config, hello, refused, resume, value};
use testkit::config::server_config;
use testkit::scripted::{initialize, notification, request};
use testkit::{Leg as Judged, Rng};

/// One operation: `[opcode, a, b, c]`. The two lowest bits of `a` are the leg that acts, with 0 for the agent; for most operations `b`
/// chooses one of the open calls or input requests of this leg, and `c` the variant.
type Operation = [u8; 4];

/// The maximum number of operations of one input. The others are ignored.
const OPERATIONS: usize = 250;
/// The number of opcodes, some of which do nothing.
const OPCODES: u8 = 32;
const APPS: [&str; 3] = ["one", "two", "three"];

/// Runs a bridge with the operations in `data`, twice, and compares the results.
///
/// Byte 0: limits (bit 0), the surface (bits 1 and 2), the timeouts of calls (bit 3), a short time limit for the hello of an app (bit 4).
/// Byte 1: the seed of codes and tokens. Byte 2: the way in which the run ends. Byte 3: the number of apps that are claimed at the
/// beginning. The rest: operations of four bytes.
pub fn bridge(data: &[u8]) {
    let ([variant, seed, ending, claimed], rest) = super::head(data);
    let (operations, _) = rest.as_chunks::<4>();
    let run = || {
        let mut fuzzed = Fuzzed::new(variant, seed, claimed);
        for operation in operations.iter().take(OPERATIONS) {
            fuzzed.apply(*operation);
        }
        fuzzed.finish(ending)
    };
    assert_eq!(run(), run(), "G10: equal operations have given different results");
}

/// One of the three apps.
struct AppState {
    judge: Judged,
    channel: Option<ChannelId>,
    /// `true` while the app reads nothing.
    stalled: bool,
    /// The claim code of its session.
    code: Option<String>,
    /// The credentials that resume the last session of the app.
    credentials: Option<(String, String)>,
    /// The invocations that the app has received and not answered.
    invoked: Vec<Invoked>,
    /// The newest invocation that has ended.
    gone: Option<Invoked>,
    /// The number of its last input request.
    last_input_request: u64,
    subscription: Option<String>,
}

impl AppState {
    fn new() -> Self {
        Self {
            judge: Judged::new(&server_config()),
            channel: None,
            stalled: false,
            code: None,
            credentials: None,
            invoked: Vec::new(),
            gone: None,
            last_input_request: 0,
            subscription: None,
        }
    }
}

struct Fuzzed {
    bridge: Bridge,
    settings: BridgeConfig,
    now: Instant,
    apps: [AppState; 3],
    agent: Judged,
    /// `true` while the agent reads nothing.
    stalled: bool,
    /// `true` while the owner polls no events.
    ignores_events: bool,
    /// The number of requests of the agent that wait for their responses, by id. If an id is used again, the response to its first use may
    /// still be queued.
    pending: BTreeMap<String, usize>,
    /// The next request id of the agent.
    next: u64,
    /// Input requests that the agent has received and not answered.
    asked: Vec<(Value, String)>,
    /// The claims for which the bridge has requested a connection to an app, with their codes.
    wanted: Vec<(ClaimId, String)>,
    /// `true` once the agent's session has ended.
    closed: bool,
    trace: Vec<String>,
}

fn settings(variant: u8) -> BridgeConfig {
    let mut config = config();
    if variant & 1 != 0 {
        for limits in [&mut config.agent_limits, &mut config.app_limits] {
            (limits.in_flight, limits.events, limits.unsolicited_replies, limits.ended_ids) = (4, 12, 6, 2);
            (limits.output_bytes, limits.output_bytes_hard) = (1500, 20_000);
        }
    }
    config.surface = [Surface::Both, Surface::Dynamic, Surface::Meta, Surface::Both][usize::from(variant >> 1 & 3)];
    if variant & 8 != 0 {
        let (idle, max_total) = (Some(Duration::from_millis(700)), Some(Duration::from_secs(3)));
        config.call = CallTimeouts::NONE.with_idle(idle).with_max_total(max_total).with_reset_on_progress(true);
    }
    if variant & 16 != 0 {
        config.hello = Duration::from_millis(300);
    }
    config
}

impl Fuzzed {
    fn new(variant: u8, seed: u8, claimed: u8) -> Self {
        let mut rng = Rng::new(seed.into());
        let random = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.number() as u8));
        let settings = settings(variant);
        let mut fuzzed = Self {
            bridge: Bridge::new(settings.clone(), random, Instant::ZERO),
            now: Instant::ZERO,
            apps: [(); 3].map(|()| AppState::new()),
            agent: Judged::new(&server_config()),
            settings,
            stalled: false,
            ignores_events: false,
            pending: BTreeMap::new(),
            next: 1,
            asked: Vec::new(),
            wanted: Vec::new(),
            closed: false,
            trace: Vec::new(),
        };
        fuzzed.send(None, &initialize(0, "2025-11-25", DECLARES));
        fuzzed.send(None, &notification("notifications/initialized", "{}"));
        fuzzed.deliver();
        for app in 0..usize::from(claimed % 4) {
            fuzzed.dial(app, 0);
            fuzzed.claim(app, 0);
        }
        fuzzed
    }

    // ---- Delivery of frames ----

    /// The leg of the agent (`None`) or of an app, if it has a channel.
    fn leg(&self, app: Option<usize>) -> Option<Leg> {
        app.map_or(Some(Leg::Agent), |app| self.apps[app].channel.map(Leg::App))
    }

    /// Sends a frame of the agent (`None`) or of an app, if the bridge reads its leg.
    fn send(&mut self, app: Option<usize>, text: &str) {
        self.send_if_read(app, text);
    }

    /// Sends a frame as [`Self::send`] does. Returns `true` if the frame was sent.
    fn send_if_read(&mut self, app: Option<usize>, text: &str) -> bool {
        let Some(leg) = self.leg(app).filter(|leg| self.bridge.wants_input(*leg)) else { return false };
        let before = self.bridge.stats(leg).unwrap_or_default();
        self.trace.push(format!("{app:?} > {text}"));
        let taken = self.bridge.handle_frame(leg, Bytes::copy_from_slice(text.as_bytes()), self.now);
        assert!(taken.is_ok(), "a frame was refused although input was wanted");
        let after = self.bridge.stats(leg).unwrap_or_default();
        self.judge(app).receive(text.as_bytes(), &before, &after);
        // A request with one of these violations is not answered, or not with its id.
        let mut rules = [Violation::DuplicateRequest, Violation::RepeatedMember].into_iter();
        // If the frame has closed the leg, `after` is all zero.
        let dropped = rules.any(|rule| after.violations(rule) > before.violations(rule));
        let Ok(frame) = serde_json::from_str::<Value>(text) else { return true };
        if app.is_none() {
            let (method, id, params) = (frame["method"].as_str(), &frame["id"], &frame["params"]);
            if method == Some("notifications/cancelled") && after.inbound_calls < before.inbound_calls {
                self.end_request(&params["requestId"].to_string());
            } else if method.is_some() && !id.is_null() && !dropped {
                *self.pending.entry(id.to_string()).or_default() += 1;
            }
        }
        true
    }

    fn judge(&mut self, app: Option<usize>) -> &mut Judged {
        app.map_or(&mut self.agent, |app| &mut self.apps[app].judge)
    }

    fn end_request(&mut self, id: &str) {
        if let Some(count) = self.pending.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                self.pending.remove(id);
            }
        }
    }

    /// Delivers frames, and checks the guarantees.
    fn deliver(&mut self) {
        loop {
            let mut moved = false;
            for app in [None, Some(0), Some(1), Some(2)] {
                let stalled = app.map_or(self.stalled, |app| self.apps[app].stalled);
                while let Some(leg) = self.leg(app).filter(|_| !stalled)
                    && let Some(out) = self.bridge.poll_transmit(leg)
                {
                    self.judge(app).send(&out);
                    let text = core::str::from_utf8(&out.frame).expect("UTF-8").to_owned();
                    self.trace.push(format!("{app:?} < {text}"));
                    match app {
                        None => self.agent_receives(&text),
                        Some(app) => self.app_receives(app, &text),
                    }
                    moved = true;
                }
            }
            while !self.ignores_events
                && let Some(event) = self.bridge.poll_event()
            {
                self.handle_event(&event);
                moved = true;
            }
            if !moved {
                break;
            }
        }
        let due = self.bridge.poll_timeout();
        for app in [None, Some(0), Some(1), Some(2)] {
            let limits = if app.is_none() { self.settings.agent_limits } else { self.settings.app_limits };
            if let Some(stats) = self.leg(app).and_then(|leg| self.bridge.stats(leg)) {
                self.judge(app).check(&stats, &limits, due);
            }
        }
    }

    fn agent_receives(&mut self, text: &str) {
        let frame = value(text);
        let (id, params) = (&frame["id"], &frame["params"]);
        match frame["method"].as_str() {
            Some("notifications/progress") => {
                let value = params["progress"].as_f64().expect("a number");
                assert!((0.0..=100.0).contains(&value), "not the percentage of an app: {text}");
            }
            Some(method) if !id.is_null() => self.asked.push((id.clone(), method.to_owned())),
            Some("notifications/cancelled") => self.asked.retain(|(open, _)| *open != params["requestId"]),
            Some(_) => {}
            None => self.end_request(&id.to_string()),
        }
    }

    fn app_receives(&mut self, app: usize, text: &str) {
        let (frame, state) = (value(text), &mut self.apps[app]);
        let params = &frame["params"];
        match frame["method"].as_str() {
            Some("actions/invoke") => {
                state.invoked.push(Invoked::read(text).expect("an invocation"));
            }
            Some("resources/subscribe") => {
                state.subscription = params["subscriptionId"].as_str().map(ToOwned::to_owned);
                self.record_app_request(app, &frame["id"]);
            }
            Some("resources/read" | "resources/unsubscribe") => self.record_app_request(app, &frame["id"]),
            Some(_) => {}
            None => {
                if let (Some(session), Some(token)) =
                    (frame["result"]["sessionId"].as_str(), frame["result"]["resumeToken"].as_str())
                {
                    state.credentials = Some((session.to_owned(), token.to_owned()));
                }
            }
        }
    }

    /// Records a request to an app that is not an invocation, so that the operations that answer invocations answer this request, too.
    fn record_app_request(&mut self, app: usize, id: &Value) {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"actions/invoke","params":{{"name":"","invocationId":""}}}}"#);
        let mut request = Invoked::read(&frame).expect("an invocation");
        request.invocation = format!("no invocation {id}");
        self.apps[app].invoked.push(request);
    }

    fn handle_event(&mut self, event: &BridgeEvent) {
        self.trace.push(format!("{event:?}"));
        match event {
            BridgeEvent::AppReady { channel, code, .. } => {
                if let Some(state) = self.apps.iter_mut().find(|state| state.channel == Some(*channel)) {
                    state.code = code.as_ref().map(|code| code.as_str().to_owned());
                }
            }
            BridgeEvent::AppClosed { channel, .. } => {
                assert!(self.bridge.is_closed(Leg::App(*channel)), "G4: the end of {channel:?}, which is not closed");
                if let Some(state) = self.apps.iter_mut().find(|state| state.channel == Some(*channel)) {
                    state.judge.close();
                }
            }
            BridgeEvent::ClaimWanted { claim, code } => self.wanted.push((*claim, code.reveal().to_owned())),
            BridgeEvent::ClaimGone { claim } => self.wanted.retain(|(open, _)| open != claim),
            BridgeEvent::AgentClosed(_) => {
                assert!(!self.closed, "G4: the agent's session ends twice");
                self.closed = true;
                self.agent.close();
            }
            _ => {}
        }
    }

    // ---- Operations ----

    fn apply(&mut self, [opcode, a, b, c]: Operation) {
        let app = usize::from(a & 3).checked_sub(1);
        let span = Duration::from_millis(u64::from(b) * 16 + u64::from(c));
        match (opcode % OPCODES, app) {
            (0, _) => self.run_for(span),
            // The timeout is handled late: the time goes beyond the next deadline in one step.
            (1, _) => self.timeout(self.bridge.poll_timeout().unwrap_or(self.now).max(self.now).saturating_add(span)),
            // The timeout is handled early, and twice.
            (2, _) => (0..2).for_each(|_| self.timeout(self.now)),
            (3, _) => self.call(b, c),
            (4, _) => self.cancel(b, c),
            (5, Some(app)) => self.progress(app, b, c),
            (6, Some(app)) => self.respond(app, b, c),
            (7, Some(app)) => self.ask(app, b, c),
            (8, _) => self.answer(b, c),
            (9, Some(app)) => self.notify(app, c),
            (10, None) => self.stalled = b & 1 == 1,
            (10, Some(app)) => self.apps[app].stalled = b & 1 == 1,
            (11, _) => self.send(app, GARBAGE[usize::from(c) % GARBAGE.len()]),
            (12, Some(app)) => self.lose(app, c),
            // The agent disconnects rarely, since nothing can happen afterwards.
            (12, None) if c == 255 => self.bridge.handle_end(Leg::Agent, TransportEnd::Eof, self.now),
            (13, Some(app)) => self.dial(app, c),
            (14, Some(app)) => self.claim(app, c),
            (15, None) => (0..c % 32).for_each(|more| self.call(b, more & 3)),
            (15, Some(app)) => (0..c % 64).for_each(|more| self.progress(app, b, more)),
            (16, _) => self.read(b, c),
            (17, Some(app)) => {
                if let Some(channel) = self.apps[app].channel {
                    let grace = Duration::from_millis(c.into());
                    self.bridge.close_app(channel, Close::Graceful { grace }, self.now);
                }
            }
            (18, Some(app)) => self.dial_wanted(app, c),
            (19, Some(app)) => {
                if let Some(gone) = self.apps[app].gone.clone() {
                    self.send(Some(app), &if c & 1 == 0 { gone.output("1") } else { gone.progress(r#","percent":99"#) });
                }
            }
            (20, _) => self.ignores_events = b & 1 == 1,
            _ => {}
        }
        self.deliver();
    }

    fn timeout(&mut self, now: Instant) {
        self.now = now;
        [None, Some(0), Some(1), Some(2)].into_iter().for_each(|app| self.judge(app).timeout(now));
        self.bridge.handle_timeout(now);
    }

    fn run_for(&mut self, span: Duration) {
        let target = self.now.saturating_add(span);
        while let Some(due) = self.bridge.poll_timeout().filter(|due| *due <= target) {
            self.timeout(due.max(self.now));
            self.deliver();
        }
        self.timeout(target);
    }

    fn call(&mut self, b: u8, c: u8) {
        let app = APPS[usize::from(b) % 3];
        let (tool, arguments) = match b / 3 % 6 {
            0..=2 => (format!("{app}__t"), r#"{"n":1}"#.to_owned()),
            3 => ("tesseron__invoke_action".to_owned(), format!(r#"{{"app_id":"{app}","action":"t","args":{{}}}}"#)),
            4 => ("tesseron__read_resource".to_owned(), format!(r#"{{"app_id":"{app}","name":"balance"}}"#)),
            _ => {
                (["tesseron__list_actions", "tesseron__list_pending_claims", "no"][usize::from(b) % 3].to_owned(), "{}".to_owned())
            }
        };
        // Sometimes an id is used again, even while its call is in flight.
        let id = if c & 0x30 == 0x30 { self.next.saturating_sub(1 + u64::from(c >> 6)) } else { self.next };
        self.next = self.next.max(id + 1);
        let token = match c & 3 {
            0 => None,
            1 => Some(r#""shared""#.to_owned()),
            _ => Some(id.to_string()),
        };
        self.send(None, &call_tool(&id.to_string(), &tool, &arguments, token.as_deref()));
    }

    fn cancel(&mut self, b: u8, c: u8) {
        let open = self.pending.keys().nth(usize::from(b) % self.pending.len().max(1)).cloned();
        let id = open.filter(|_| c & 7 != 7).unwrap_or_else(|| c.to_string());
        self.send(None, &notification("notifications/cancelled", &format!(r#"{{"requestId":{id},"reason":"why"}}"#)));
    }

    /// The place of one of the open invocations of an app.
    fn invocation(&self, app: usize, b: u8) -> Option<usize> {
        let count = self.apps[app].invoked.len();
        (count > 0).then(|| usize::from(b) % count)
    }

    fn progress(&mut self, app: usize, b: u8, c: u8) {
        let Some(at) = self.invocation(app, b) else { return };
        let members = match c % 4 {
            0 | 1 => format!(r#","percent":{}"#, c / 2),
            2 => format!(r#","percent":{},"message":"m{c}","data":{{"a":1}}"#, c / 3),
            _ => r#","message":"m""#.to_owned(),
        };
        let text = self.apps[app].invoked[at].progress(&members);
        self.send(Some(app), &text);
    }

    fn respond(&mut self, app: usize, b: u8, c: u8) {
        let Some(at) = self.invocation(app, b) else { return };
        let ended = self.apps[app].invoked[at].clone();
        let text = match c % 6 {
            0 => ended.output(r#""done""#),
            1 => ended.output(r#"{"content":[{"type":"text","text":"é"},{"type":"image","data":"","mimeType":"image/png"}]}"#),
            2 => ended.output(r#"{"value":[1.50e+3]}"#),
            3 => ended.error(-32001, "cancelled", Some(r#"{"partial":{"processed":1}}"#)),
            4 => ended.error(-32603, "no", None),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"value":7}}}}"#, ended.id),
        };
        if self.send_if_read(Some(app), &text) {
            let state = &mut self.apps[app];
            state.invoked.remove(at);
            state.gone = Some(ended);
        }
    }

    fn ask(&mut self, app: usize, b: u8, c: u8) {
        let Some(at) = self.invocation(app, b) else { return };
        let state = &mut self.apps[app];
        // Sometimes the id of the last input request is used again.
        let id = if c & 0x70 == 0x70 { state.last_input_request } else { state.last_input_request + 1 };
        state.last_input_request = id;
        let (id, invocation) = (id + 100, &state.invoked[at]);
        let text = match c % 4 {
            0 | 1 => invocation.sample(id),
            2 => invocation.confirm(id),
            _ => invocation.elicit(id, r#"{"type":"object","properties":{"a":{"type":"string"}},"required":[]}"#),
        };
        self.send(Some(app), &text);
    }

    fn answer(&mut self, b: u8, c: u8) {
        if self.asked.is_empty() {
            return;
        }
        let at = usize::from(b) % self.asked.len();
        let (id, method) = self.asked[at].clone();
        let result = match (c % 4, &*method) {
            (0, "sampling/createMessage") => r#"{"role":"assistant","content":{"type":"text","text":"!"},"model":"m"}"#,
            (0, _) => r#"{"action":"accept","content":{}}"#,
            (1, _) => r#"{"action":"decline"}"#,
            (2, _) => "7",
            _ => "",
        };
        let text = match result {
            "" => refused(&id, -1, "no"),
            _ => answered(&id, result),
        };
        if self.send_if_read(None, &text) {
            self.asked.remove(at);
        }
    }

    fn notify(&mut self, app: usize, c: u8) {
        let text = match c % 6 {
            0 => notification("log", r#"{"level":"warn","message":"w","meta":{"a":1}}"#),
            1 => notification("actions/list_changed", &format!(r#"{{"actions":{ACTIONS}}}"#)),
            2 => notification("actions/list_changed", r#"{"actions":[]}"#),
            3 => notification("resources/list_changed", &format!(r#"{{"resources":{RESOURCES}}}"#)),
            4 => notification("tesseron/nonsense", "{}"),
            _ => {
                let name = self.apps[app].subscription.clone().unwrap_or_default();
                notification("resources/updated", &format!(r#"{{"subscriptionId":"{name}","value":{c}}}"#))
            }
        };
        self.send(Some(app), &text);
    }

    fn lose(&mut self, app: usize, c: u8) {
        if let Some(leg) = self.leg(Some(app)) {
            let how = if c & 1 == 0 { TransportEnd::Failed } else { TransportEnd::Eof };
            self.bridge.handle_end(leg, how, self.now);
        }
    }

    /// Connects an app. If the app already has a channel, that channel stays open, and the app no longer reads it.
    fn dial(&mut self, app: usize, c: u8) {
        let Ok(channel) = self.bridge.open(self.now) else { return };
        self.set_channel(app, channel);
        let text = match (c % 8, &self.apps[app].credentials) {
            (1 | 2, Some((session, token))) => resume(APPS[app], session, token),
            (3, _) => hello(APPS[(app + 1) % 3], ACTIONS, RESOURCES),
            (4, _) => hello(APPS[app], ACTIONS, RESOURCES).replace("1.2.0", "2.0.0"),
            (5, _) => return,
            (6, _) => hello(APPS[app], "7", RESOURCES),
            _ => hello(APPS[app], ACTIONS, RESOURCES),
        };
        self.send(Some(app), &text);
        self.deliver();
    }

    /// Gives an app a new channel. Of its state, only the fields that outlive a channel are kept.
    fn set_channel(&mut self, app: usize, channel: ChannelId) {
        let old = core::mem::replace(&mut self.apps[app], AppState::new());
        self.apps[app] = AppState {
            channel: Some(channel),
            credentials: old.credentials,
            gone: old.gone,
            last_input_request: old.last_input_request,
            ..AppState::new()
        };
    }

    /// Claims an app with its code, or with a code that no app is likely to have.
    fn claim(&mut self, app: usize, c: u8) {
        let code = self.apps[app].code.clone().filter(|_| c & 3 != 3).unwrap_or_else(|| format!("AB{}X-7K", c / 4 % 6 + 3));
        let id = self.next;
        self.next += 1;
        self.send(None, &call_tool(&id.to_string(), "tesseron__claim_session", &format!(r#"{{"code":"{code}"}}"#), None));
        self.deliver();
    }

    /// Takes the oldest claim for which the bridge has requested a connection. Connects the app with a channel that was bound with the code
    /// of the claim, or refuses the claim.
    fn dial_wanted(&mut self, app: usize, c: u8) {
        if self.wanted.is_empty() {
            return;
        }
        let (claim, code) = self.wanted.remove(0);
        if c & 3 == 0 {
            return self.bridge.refuse_claim(claim, "no app has this", self.now);
        }
        let dial = bound(&code, &format!("s_{c}"), "rt_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        if let Ok(channel) = self.bridge.open_claimed(claim, dial, self.now) {
            self.set_channel(app, channel);
            if c & 3 != 3 {
                self.send(Some(app), &hello(APPS[app], ACTIONS, RESOURCES));
            }
        }
    }

    fn read(&mut self, b: u8, c: u8) {
        let id = self.next;
        self.next += 1;
        let uri = format!(r#"{{"uri":"tesseron://{}/balance"}}"#, APPS[usize::from(b) % 3]);
        let text = match c % 8 {
            0 => request(id, "tools/list", "{}"),
            1 => request(id, "resources/list", "{}"),
            2 => request(id, "resources/read", &uri),
            3 | 4 => request(id, "resources/subscribe", &uri),
            5 => request(id, "resources/unsubscribe", &uri),
            6 => request(id, "ping", "{}"),
            _ => request(id, "logging/setLevel", r#"{"level":"debug"}"#),
        };
        self.send(None, &text);
    }

    // ---- The end ----

    /// Lets all ends read again, and ends the bridge in one of three ways.
    fn finish(mut self, how: u8) -> Vec<String> {
        (self.stalled, self.ignores_events) = (false, false);
        for state in &mut self.apps {
            state.stalled = false;
        }
        self.deliver();
        match how % 3 {
            // All apps disconnect, so each call of the agent ends immediately.
            0 => {
                for channel in self.bridge.channels().collect::<Vec<_>>() {
                    self.bridge.handle_end(Leg::App(channel), TransportEnd::Failed, self.now);
                }
                for (claim, _) in core::mem::take(&mut self.wanted) {
                    self.bridge.refuse_claim(claim, "it is late", self.now);
                }
                self.deliver();
                assert_eq!(self.bridge.in_flight(), 0, "the bridge keeps state of apps that have disconnected");
                assert!(self.closed || self.pending.is_empty(), "G1: never answered: {:?}", self.pending);
                self.bridge.handle_end(Leg::Agent, TransportEnd::Eof, self.now);
            }
            1 => self.bridge.handle_end(Leg::Agent, TransportEnd::Failed, self.now),
            _ => self.bridge.close(Close::Graceful { grace: Duration::from_millis(50) }, self.now),
        }
        self.deliver();
        for _ in 0..1000 {
            let Some(due) = self.bridge.poll_timeout() else { break };
            self.timeout(due.max(self.now));
            self.deliver();
        }
        assert_eq!(self.bridge.poll_timeout(), None, "a deadline remains");
        assert!(self.closed && self.bridge.is_closed(Leg::Agent), "the agent's session closes");
        assert_eq!((self.bridge.in_flight(), self.bridge.channels().count()), (0, 0), "the bridge keeps calls or channels");
        let legs = [None, Some(0), Some(1), Some(2)].into_iter().filter_map(|app| self.leg(app)).collect::<Vec<_>>();
        for leg in legs {
            let taken = self.bridge.handle_frame(leg, Bytes::from_static(b"{}"), self.now);
            assert!(taken.is_ok() && self.bridge.poll_transmit(leg).is_none(), "G4: a frame after the end");
        }
        assert!(self.bridge.poll_event().is_none(), "G4: an event after the end");
        self.trace
    }
}

/// Frames that are invalid, or that the agent or an app may not send.
const GARBAGE: [&str; 12] = [
    "{",
    "[]",
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#,
    r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"actions/invoke"}"#,
    r#"{"jsonrpc":"2.0","method":"actions/progress","params":{"invocationId":"inv_1","percent":1e999}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    r#"{"jsonrpc":"2.0","method":"actions/cancel","params":{"invocationId":"inv_1"}}"#,
    r#"{"jsonrpc":"2.0","method":"tesseron/claimed","params":{}}"#,
    r#"{"jsonrpc":"2.0","id":"x","method":"sampling/request","params":[]}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"1.0","id":5,"method":"tools/call"}"#,
];
