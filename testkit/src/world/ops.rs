//! Operations of a world, four bytes each: `[opcode, a, b, c]`. Every value is legal. No value may change its meaning, since stored cases
//! and fuzzing corpora consist of operations: new opcodes only get numbers that did nothing before.
//!
//! For most opcodes the lowest bit of `a` is the end that acts (0 the client), `b` chooses among the open calls or input requests there,
//! and `c` chooses the variant. Opcodes about lanes (33 to 36) concern end 1, and 32 (a claim) and 37 (a lost exchange) end 0; in 18, 19
//! and 30, `b` and `c` are a span of time. An operation without anything to choose from does nothing. A method may be called at the wrong
//! time.

use std::time::Duration;

use protocol_core::{
    CallTimeouts, Close, Elicit, ElicitResult, InboundId, InputMode, InputRequest, InputResponse, InputRound, Instant, Invoke,
    Json, Lane, Level, LogRecord, Notification, Op, OpenUrl, OpenUrlResult, Progress, RateWindow, Reply, RpcError, Sample,
    SampleResult, ServeOptions, SubscriptionFilter, ToolOutput,
};

use super::World;
use crate::Rng;
use crate::config::{agent, agent_capabilities};
use crate::scripted::json;
use crate::{ODD, ODD_RESULT, Subject, Watched};

/// Makes an input request to open a URL.
pub const OPEN_URL: u8 = 38;

/// Subscribes to a resource, or unsubscribes from it.
pub const SUBSCRIBE: u8 = 39;
/// Makes a subscription as a call.
pub const LISTEN: u8 = 40;
/// Sets the level of log records.
pub const SET_LEVEL: u8 = 41;
/// Accepts a subscription.
pub const ACCEPT: u8 = 42;
/// Publishes a notification to the subscriptions.
pub const PUBLISH: u8 = 43;
/// Sends a log record on behalf of a call.
pub const LOG: u8 = 44;

/// One operation.
pub type Operation = [u8; 4];

/// The number of possible opcodes: the first byte of an operation is taken modulo this number.
pub const PLACES: u8 = 64;
/// The number of opcodes that [`random`] chooses from, apart from [`OPEN_URL`]. Some higher opcodes do something, too.
pub const OPCODES: u8 = 32;

/// A random operation, for tests with a seed. Most operations are about time, calls and answers.
#[must_use]
pub fn random(rng: &mut Rng) -> Operation {
    // Calls, input requests, answers to them, replies, single updates, and many updates in a row.
    const OFTEN: [u8; 10] = [0, 0, 6, 6, 7, 7, 7, 5, 4, 28];
    let any = rng.below(OPCODES.into()) as u8;
    let opcode = match rng.below(26) {
        0 => any,
        // The opcodes 26 and 27, which close something, are chosen less often than others.
        1..=9 if !(26..28).contains(&any) => any,
        10..=15 => 17,
        16 => 18,
        _ => OFTEN[rng.below(OFTEN.len())],
    };
    let [a, mut b, c, alters, opens, ..] = rng.number().to_le_bytes();
    // One input request in eight is a URL to open.
    let opcode = if opcode == 6 && opens < 32 { OPEN_URL } else { opcode };
    // Faults that alter frames are rare, since the peer is distrusted after them.
    if opcode == 24 && alters > 8 {
        b = [0, 1, 2, 3, 4, 7, 9][usize::from(b % 7)];
    }
    [opcode, a, b, c]
}

/// A random operation for worlds with many lanes: about lanes, calls that open lanes, and frames on them.
#[must_use]
pub fn random_of_lanes(rng: &mut Rng) -> Operation {
    // The opcodes about lanes; calls, single updates, many updates in a row, and input requests.
    const OFTEN: [u8; 16] = [33, 33, 33, 33, 34, 34, 35, 36, 37, 0, 0, 0, 0, 4, 28, 6];
    let [a, b, c, ..] = rng.number().to_le_bytes();
    match OFTEN[rng.below(OFTEN.len())] {
        // A call of the client with progress, without a parent and without time limits of its own.
        0 => [0, 0, b & !1, c & !15],
        opcode => [opcode, a | 1, b, c],
    }
}

/// A random operation about subscriptions and log levels.
#[must_use]
pub fn random_of_subscriptions(rng: &mut Rng) -> Operation {
    const OFTEN: [u8; 12] = [SUBSCRIBE, SUBSCRIBE, LISTEN, SET_LEVEL, ACCEPT, ACCEPT, ACCEPT, PUBLISH, PUBLISH, PUBLISH, LOG, LOG];
    let [a, b, c, ..] = rng.number().to_le_bytes();
    match OFTEN[rng.below(OFTEN.len())] {
        opcode @ (SUBSCRIBE | LISTEN | SET_LEVEL) => [opcode, a & !1, b, c],
        // In three cases of four, all kinds are offered.
        ACCEPT => [ACCEPT, a | 1, b, if rng.chance(192) { 0 } else { c }],
        opcode => [opcode, a | 1, b, c],
    }
}

/// Returns `true` if an operation closes an end or a link.
#[must_use]
pub const fn ends([opcode, ..]: Operation) -> bool {
    matches!(opcode % PLACES, 26 | 27)
}

fn pick<T: Copy>(all: &[T], which: u8) -> Option<T> {
    all.get(usize::from(which) % all.len().max(1)).copied()
}

fn call(watched: &Watched<impl Subject>, op: Op, b: u8, c: u8) -> Invoke {
    let mut call = match op {
        Op::CallTool => Invoke::call_tool("t", json(ODD)),
        _ => Invoke::new(op, json(&format!(r#"{{"name":"t","arguments":{ODD}}}"#))),
    };
    call.progress = c & 1 == 0;
    call.parent = (b & 1 == 1).then(|| pick(&watched.ids.peer_input_requests, b >> 1)).flatten().map(|(key, _)| key);
    let millis = |count: u8| Some(Duration::from_millis(count.into()));
    call.timeouts = match c >> 1 & 7 {
        1 => Some(CallTimeouts::NONE),
        2 => Some(CallTimeouts::NONE.with_idle(millis(c)).with_reset_on_progress(true)),
        3 => Some(CallTimeouts::NONE.with_max_total(millis(c))),
        4 => Some(CallTimeouts::NONE.with_idle(millis(0)).with_max_total(millis(c))),
        _ => None,
    };
    call
}

/// One of two resources.
fn resource(c: u8) -> String {
    format!("u:{}", c & 1)
}

/// The kinds of notifications that a server offers to a subscription; all of them for 0.
fn offered(c: u8) -> SubscriptionFilter {
    let mut offered = SubscriptionFilter::default();
    (offered.tools, offered.prompts) = (c & 1 == 0, c & 2 == 0);
    let uris = (0..2).filter(|resource| c >> (resource + 2) & 1 == 0);
    offered.uris = uris.map(|number| resource(number).into()).collect();
    offered
}

fn record() -> LogRecord {
    LogRecord::new(Level::Warning, Json::null())
}

fn update(b: u8, c: u8) -> Progress {
    let mut update = Progress::default();
    if b & 3 != 3 {
        update.value = Some(f64::from(c % 32));
        update.total = (c & 32 != 0).then_some(31.0);
    }
    if b & 2 == 2 {
        update.message = Some(format!("m{c}").into());
    }
    update
}

fn input_request(c: u8) -> InputRequest {
    match c % 4 {
        0 => InputRequest::from(Sample::new("?")),
        1 => InputRequest::Elicit(Elicit::new("?", json(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#))),
        2 => InputRequest::Confirm { message: "?".into() },
        _ => InputRequest::Roots,
    }
}

/// A round of up to two input requests. Its state is unique, since a judge identifies the call of a retry by the state.
fn round(id: InboundId, c: u8) -> InputRound {
    let asks = ["a", "b"].into_iter().take(usize::from(c >> 2) % 3).zip([c >> 4, c >> 6]);
    let round = asks.fold(InputRound::new(), |round, (name, kind)| round.ask(name, input_request(kind)));
    round.with_state(format!("state of {id}"))
}

fn answer(kind: &str, c: u8) -> InputResponse {
    match (kind, c % 4) {
        (_, 3) => InputResponse::Refused(RpcError::new(RpcError::USER_REJECTED, "no")),
        ("sample", _) => InputResponse::Sample(SampleResult::new("!", "m")),
        ("elicit", 0) => InputResponse::Elicit(ElicitResult::Accept(json(r#"{"a":"b"}"#))),
        ("elicit", 1) => InputResponse::Elicit(ElicitResult::Decline),
        ("elicit", _) => InputResponse::Elicit(ElicitResult::Cancel),
        ("open", 0) => InputResponse::OpenUrl(OpenUrlResult::Accept),
        ("open", 1) => InputResponse::OpenUrl(OpenUrlResult::Decline),
        ("open", _) => InputResponse::OpenUrl(OpenUrlResult::Cancel),
        _ => InputResponse::Roots(json("[]")),
    }
}

/// [`hostile`] on Tesseron.
fn hostile_tesseron(b: u8, c: u8) -> String {
    let b = if b < 224 { b % 32 } else { b };
    let id = if c & 0x80 == 0 { b.to_string() } else { format!("\"{b}\"") };
    let name = format!("inv_{b}");
    match c % 12 {
        3 => format!(r#"{{"jsonrpc":"2.0","method":"actions/cancel","params":{{"invocationId":"{name}"}}}}"#),
        4 => format!(
            r#"{{"jsonrpc":"2.0","method":"actions/progress","params":{{"invocationId":"{name}","percent":{}}}}}"#,
            i32::from(c >> 4 & 7) * 20 - 10
        ),
        5 => crate::tesseron::invoke(b.into(), &format!("inv_{}", c >> 4)),
        6 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"invocationId":"{name}","output":"ok"}}}}"#),
        7 => crate::tesseron::CLAIMED.to_owned(),
        8 => crate::tesseron::sample(b.into(), &format!("inv_{}", c >> 4)),
        9 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tesseron/hello","params":{{}}}}"#),
        _ => hostile(b, c),
    }
}

/// A frame that the other end has not sent, mostly one that it would not send. `b` is the number in it, usually that of an open or ended
/// call.
fn hostile(b: u8, c: u8) -> String {
    let b = if b < 224 { b % 32 } else { b };
    let id = if c & 0x80 == 0 { b.to_string() } else { format!("\"{b}\"") };
    match c % 12 {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
        1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no"}}}}"#),
        2 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1}}"#),
        3 => format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#),
        4 => format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{}}}}}"#,
            c >> 4 & 7
        ),
        5 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{id},"protocol-core/samplingDepth":{}}}}}}}"#,
            c >> 5 & 3
        ),
        6 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#),
        7 => r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        8 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{{"messages":[{{"role":"user","content":{{"type":"text","text":"?"}}}}],"maxTokens":5,"_meta":{{"protocol-core/samplingDepth":{}}}}}}}"#,
            c >> 4 & 7
        ),
        9 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#),
        10 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x/y"}}"#),
        // Another client on the same channel, which can do less than the first.
        11 if c & 0x10 != 0 => format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{"sampling":{{}}}},"clientInfo":{{"name":"d","version":"1"}}}}}}"#
        ),
        _ => r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned(),
    }
}

impl<S: Subject> World<S> {
    /// Applies one operation, and delivers the resulting frames.
    pub fn apply(&mut self, [opcode, a, b, c]: Operation) {
        let at = usize::from(a & 1);
        let now = self.now();
        let span = Duration::from_millis(u64::from(b) * 16 + u64::from(c));
        match opcode % PLACES {
            // Subscriptions on Tesseron are different, and are not tested here.
            SUBSCRIBE..=PUBLISH if self.end(0).is_tesseron() => {}
            0..=8 | 10..=16 | 28 | OPEN_URL | SUBSCRIBE..=LOG => self.apply_to_end(opcode % PLACES, at, b, c, now),
            9 => _ = self.end_mut(at).log(None, record(), now),
            17 => {
                if let Some(next) = self.next() {
                    self.jump(next);
                }
            }
            18 => self.run_until(now.saturating_add(span)),
            // Late: jumps beyond the next deadline or arrival.
            19 => {
                let next = self.next().unwrap_or(now);
                self.jump(next.saturating_add(span));
            }
            // Early: moves halfway to the next deadline or arrival, and calls `handle_timeout` twice although nothing is due.
            20 => {
                if let Some(next) = self.next() {
                    self.jump(Instant::from_micros(now.as_micros().midpoint(next.as_micros())));
                }
                let now = self.now();
                for at in 0..2 {
                    self.end_mut(at).handle_timeout(now);
                    self.end_mut(at).handle_timeout(now);
                }
            }
            21 => self.stall(at, b & 1 == 1),
            22 => self.set_ignores_events(at, b & 1 == 1),
            23 => self.timeouts_first(b & 1 == 1),
            24 => self.fault(at, b, c),
            25 if self.end(at).is_tesseron() => self.inject(at, &hostile_tesseron(b, c)),
            25 => self.inject(at, &hostile(b, c)),
            26 if c == 0 => self.end_mut(at).close(Close::Now, now),
            26 => self.end_mut(at).close(Close::Graceful { grace: Duration::from_millis(u64::from(c) * 10) }, now),
            27 if c % 4 == 0 => self.reset(),
            27 => self.half_close(at),
            29 => {
                let notification = Notification::Custom { method: "notifications/x".into(), params: None };
                _ = self.end_mut(at).notify(notification, now);
            }
            30 => _ = self.end_mut(at).set_alarm(now.saturating_add(span)),
            31 => {
                if let Some(id) = pick(&self.end(at).ids.alarms, b) {
                    self.end_mut(at).clear_alarm(id);
                }
            }
            // A gateway claims the app for its agent.
            32 if self.end(0).is_tesseron() => _ = self.end_mut(0).claim(agent(), agent_capabilities(), 1, now),
            33..=37 => self.apply_to_lanes(opcode % PLACES, b, c, now),
            _ => {}
        }
        self.deliver_all();
    }

    fn apply_to_end(&mut self, opcode: u8, at: usize, b: u8, c: u8, now: Instant) {
        let watched = self.end_mut(at);
        let (open, last_ended) = (pick(&watched.ids.outbound_calls, b), watched.ids.last_ended);
        let inbound = pick(&watched.ids.inbound_calls, b);
        match opcode {
            0 => drop(watched.invoke(call(watched, Op::CallTool, b, c), now)),
            1 => drop(watched.invoke(call(watched, Op::ListTools, b, c), now)),
            2 => drop(watched.invoke(call(watched, Op::Ping, 0, c), now)),
            3 => {
                if let Some(id) = open {
                    _ = watched.cancel(id, Some("why"), now);
                }
            }
            4 => {
                if let Some(id) = inbound {
                    _ = watched.progress(id, update(c >> 6, c), now);
                }
            }
            5 => {
                if let Some(id) = inbound {
                    let is_subscription = watched.ids.subscriptions.iter().any(|(open, _)| *open == id);
                    let session = watched.subject().session();
                    let has_rounds = session.input_mode(id) == Ok(InputMode::Rounds);
                    let reply = match c % 3 {
                        0 if is_subscription => Reply::Done,
                        _ if has_rounds && c % 2 == 1 => Reply::Input(Box::new(round(id, c))),
                        0 => Reply::Tool(ToolOutput::text("ok")),
                        1 if watched.is_tesseron() => Reply::Tool(ToolOutput::structured(json(ODD))),
                        1 => Reply::Raw(json(ODD_RESULT)),
                        _ => Reply::Error(RpcError::internal("no")),
                    };
                    _ = watched.respond(id, reply, now);
                }
            }
            6 => {
                if let Some(id) = inbound {
                    _ = watched.request_input(id, input_request(c), now);
                }
            }
            OPEN_URL => {
                if let Some(id) = inbound {
                    _ = watched.request_input(id, OpenUrl::new("?", "https://a/").with_id("e").into(), now);
                }
            }
            7 => {
                if let Some((key, kind)) = pick(&watched.ids.peer_input_requests, b) {
                    _ = watched.provide_input(key, answer(kind, c), now);
                }
            }
            8 => {
                if let Some(key) = pick(&watched.ids.input_requests, b) {
                    _ = watched.abandon_input(key, now);
                }
            }
            10 => {
                if let Some(id) = inbound {
                    _ = watched.checkpoint(id, json(r#"{"processed":1}"#));
                }
            }
            11 => {
                if let Some(id) = inbound {
                    _ = watched.configure(id, ServeOptions::default().with_deadline(Duration::from_millis(u64::from(c) * 20)), now);
                }
            }
            12 => {
                if let Some(id) = inbound {
                    let window = RateWindow::new(u32::from(c % 5), Duration::from_millis(u64::from(c) * 4));
                    _ = watched.configure(id, ServeOptions::default().with_window(window), now);
                }
            }
            // Methods that are called too late.
            13 => last_ended.0.into_iter().for_each(|id| _ = watched.cancel(id, Some("why"), now)),
            14 => last_ended.1.into_iter().for_each(|id| _ = watched.respond(id, Reply::Tool(ToolOutput::text("late")), now)),
            15 => last_ended.1.into_iter().for_each(|id| _ = watched.progress(id, Progress::value(1.0), now)),
            16 => last_ended.2.into_iter().for_each(|key| _ = watched.abandon_input(key, now)),
            SUBSCRIBE => {
                let change = if b & 1 == 0 { Invoke::subscribe(resource(c)) } else { Invoke::unsubscribe(resource(c)) };
                drop(watched.invoke(change, now));
            }
            LISTEN => {
                let wanted = format!(
                    r#"{{"notifications":{{"toolsListChanged":{},"resourceSubscriptions":["{}"]}}}}"#,
                    c & 2 == 0,
                    resource(c)
                );
                drop(watched.invoke(Invoke::new(Op::Listen, json(&wanted)), now));
            }
            SET_LEVEL => {
                let level = Level::ALL[usize::from(c) % Level::ALL.len()];
                let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
                drop(watched.invoke(Invoke::new(Op::SetLogLevel, json(&params)), now));
            }
            ACCEPT => {
                if let Some((id, _)) = pick(&watched.ids.subscriptions, b) {
                    _ = watched.accept_subscription(id, &offered(c), now);
                }
            }
            PUBLISH => {
                let notification = match b % 4 {
                    0 => Notification::ToolsChanged,
                    1 => Notification::PromptsChanged,
                    _ => Notification::ResourceUpdated { uri: resource(c).into() },
                };
                watched.publish(&notification, now);
            }
            LOG => {
                if let Some(id) = inbound {
                    _ = watched.log(Some(id), record(), now);
                }
            }
            // 28: many updates in a row.
            _ => {
                for value in 0..u32::from(c % 16) {
                    if let Some(id) = inbound {
                        _ = watched.progress(id, Progress::value(f64::from(u32::from(b) + value)), now);
                    }
                }
            }
        }
    }

    /// Applies an operation on the lanes of end 1, or loses an exchange of end 0, if the world has many lanes.
    fn apply_to_lanes(&mut self, opcode: u8, b: u8, c: u8, now: Instant) {
        let session = self.ends[1].watched().subject().session();
        let Some(lanes) = &mut self.lanes else { return };
        let (lane, stopped) = (lanes.choose(b, c, session), lanes.choose_stopped(b));
        match opcode {
            33 => lane.into_iter().for_each(|lane| self.set_writable(lane, false)),
            34 => stopped.or(lane).into_iter().for_each(|lane| self.set_writable(lane, true)),
            // The channel is lost only with the whole transport.
            35 => lane.into_iter().filter(|lane| *lane != Lane::CHANNEL).for_each(|lane| self.lose_lane(lane)),
            36 => {
                if let Some(id) = pick(&self.end(1).ids.inbound_calls, b) {
                    _ = self.end_mut(1).log(Some(id), record(), now);
                }
            }
            // 37.
            _ => {
                if let Some(id) = pick(&self.end(0).ids.outbound_calls, b) {
                    self.end_mut(0).lose_exchange(id, now);
                }
            }
        }
    }

    /// Sets a fault: `b` chooses its kind, and `c` its extent; zero removes it. The kinds 8 and 9 remove all faults.
    fn fault(&mut self, at: usize, b: u8, c: u8) {
        let span = Duration::from_millis(c.into());
        self.faults(at, |faults| match b % 10 {
            0 => faults.latency = span,
            1 => faults.jitter = span,
            2 => faults.drop = (c / 2).into(),
            3 => faults.duplicate = c.into(),
            4 => faults.reorder = c.into(),
            5 => faults.corrupt = (c / 2).into(),
            6 => faults.truncate = (c / 4).into(),
            7 => faults.piece = c,
            _ => *faults = crate::link::Faults::default(),
        });
    }
}
