//! The parts of the target `session` that are specific to Tesseron: configurations, the handshake, actions of the application, and one
//! additional rule: an invocation that is cut short is answered with the code of the reason.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol_core::tesseron::{ClaimState, End, ResumeCredentials, Welcome, code};
use protocol_core::{
    CancelReason, Capabilities, Close, Config, ElicitResult, Event, InboundId, InputResponse, Invoke, Json, NotFound, Notification,
    Op, Progress, Protocol, Reply, RpcError, SampleResult, Stats, ToolOutput, Violation,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::judge::{Id, Message, members, object};
use super::Fuzzed;
use testkit::config::{agent, agent_capabilities, app_config, asking_gateway_config, gateway_config, welcome};
use testkit::scripted::{json, request};
use testkit::tesseron::{CLAIMED, WELCOME, hello, invoke, sample};

/// Bits 2 and 3 of the first byte. With a handshake, the numbers 0 to 3 mean, for a gateway: it is claimed, waits for a claim, has an open
/// handshake request, has a resumed app; and for an app: it is claimed, waits for a claim, has an agent without capabilities, has resumed.
/// Without a handshake, an odd number is a gateway that asks its owner, or an app that resumes.
fn variant(kind: u8) -> u8 {
    kind >> 2 & 3
}

/// The configuration of a gateway, or of an app.
pub(super) fn config(kind: u8, options: u8) -> Config {
    let (greeted, odd) = (kind & 2 != 0, kind & 4 != 0);
    let mut config = match kind & 1 {
        0 if (greeted && variant(kind) >= 2) || (!greeted && odd) => asking_gateway_config(),
        0 => gateway_config(),
        _ => app_config(),
    };
    if let Protocol::Tesseron(End::App(app)) = &mut config.protocol
        && (variant(kind) == 3 || (!greeted && odd))
    {
        app.resume = Some(ResumeCredentials { session_id: "s_1".into(), resume_token: "rt_0".into() });
    }
    if options & 8 != 0 {
        config.timeouts.cancel_grace = Duration::from_millis(80);
    }
    config
}

/// An invocation of the peer.
struct Invocation {
    /// Its invocation id.
    name: String,
    /// The number of its handler, once the application has polled the request.
    handler: Option<InboundId>,
    /// The code that its response must have, once it was cut short; `Some(None)` if it gets no response.
    cut: Option<Option<i64>>,
    /// The code of the error in its response, or 0 for a result, once it was answered.
    response: Option<i64>,
}

/// The invocations of the peer so far.
#[derive(Default)]
pub(super) struct Invocations {
    all: Vec<Invocation>,
    /// The open requests of the peer by id, each with the index of its invocation, if it is one. A peer may use an id again while the
    /// response to its first use is queued, so there may be several, the oldest first.
    owed: BTreeMap<Id, VecDeque<Option<usize>>>,
    /// Requests that the application has not polled yet, each with the index of its invocation, if it is one.
    arriving: VecDeque<Option<usize>>,
    /// `true` after a frame that cannot be read here. Requests are then no longer matched with their events.
    has_skipped: bool,
}

impl Invocations {
    /// Checks a response that is sent.
    pub(super) fn handle_response(&mut self, frame: &[u8]) {
        let frame: Value = serde_json::from_slice(frame).unwrap_or_default();
        if frame.get("method").is_some() {
            return;
        }
        let id = match &frame["id"] {
            Value::Null => Id::Null,
            Value::String(name) => Id::Text(name.clone()),
            number => match number.as_i64() {
                Some(number) => Id::Number(number),
                None => Id::Large(number.as_u64().expect("ids of ours are those of the peer")),
            },
        };
        let request = self.owed.get_mut(&id).and_then(VecDeque::pop_front);
        if let Some(invocation) = request.flatten().map(|index| &mut self.all[index]) {
            let code = frame["error"]["code"].as_i64().unwrap_or(0);
            assert!(invocation.cut.is_none_or(|cut| cut == Some(code)), "cut short, but answered with another code: {frame}");
            invocation.response = Some(code);
        }
    }

    /// Checks a notification of the peer. If the notification has cancelled a call (`has_cancelled`), it must be a cancel of an open
    /// invocation. Otherwise it must not be a cancel of an invocation in `was_active`.
    fn check_notification(&mut self, text: &str, has_cancelled: bool, was_active: &[InboundId]) {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let (method, name) = (&frame["method"], frame["params"]["invocationId"].as_str());
        let is_open_with_name = |invocation: &&mut Invocation| {
            Some(&*invocation.name) == name && invocation.response.is_none() && invocation.cut.is_none()
        };
        let invocation = self.all.iter_mut().rev().find(is_open_with_name);
        if has_cancelled {
            assert_eq!(method, "actions/cancel", "only this method cancels");
            match invocation {
                Some(invocation) => invocation.cut = Some(Some(code::CANCELLED)),
                None => assert!(self.has_skipped, "an invocation with that id"),
            }
        } else if method == "actions/cancel" {
            let is_active =
                invocation.and_then(|invocation| invocation.handler).is_some_and(|handler| was_active.contains(&handler));
            assert!(!is_active, "a cancel without effect: {text}");
        }
    }

    /// Checks an event that was polled.
    pub(super) fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Request { id, .. } => {
                // After a request that cannot be read here, requests cannot be matched by their order.
                match self.arriving.pop_front() {
                    Some(Some(index)) if !self.has_skipped => self.all[index].handler = Some(*id),
                    Some(_) => {}
                    None => assert!(self.has_skipped, "a request arrived"),
                }
            }
            Event::Cancelled { id, why } => {
                let cut = match why {
                    CancelReason::Peer(_) | CancelReason::Closing => Some(code::CANCELLED),
                    CancelReason::Deadline => Some(code::TIMEOUT),
                    _ => None,
                };
                if let Some(index) = self.all.iter().position(|invocation| invocation.handler == Some(*id)) {
                    let invocation = &mut self.all[index];
                    assert!(
                        invocation.response.is_none_or(|code| cut == Some(code)),
                        "the event and the response have different reasons: {why:?}"
                    );
                    invocation.cut = Some(cut);
                    if cut.is_none() {
                        self.owed.values_mut().for_each(|owed| owed.retain(|owed| *owed != Some(index)));
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks that each invocation that was cut short is answered, after everything was polled.
    pub(super) fn check_polled(&self) {
        for invocation in &self.all {
            let owed = matches!(invocation.cut, Some(Some(_))) && invocation.response.is_none();
            assert!(!owed, "G8: cut short, and not answered: {}", invocation.name);
        }
    }
}

impl Fuzzed {
    /// Brings a Tesseron session to the phase that the bytes select.
    pub(super) fn greet_tesseron(&mut self, kind: u8, options: u8) {
        self.poll();
        if kind & 2 != 0 {
            match (kind & 1, variant(kind)) {
                (0, 3) => {
                    let manifest = hello(7, "1.2.0").replace("tesseron/hello", "tesseron/resume");
                    let credentials = r#""params":{"sessionId":"s_1","resumeToken":"rt_0","#;
                    self.frame(manifest.replace(r#""params":{"#, credentials).as_bytes());
                    self.poll();
                    // The owner accepts the app as resumed.
                    self.act(16, 2);
                }
                (0, variant) => {
                    self.frame(hello(7, "1.2.0").as_bytes());
                    if variant == 0 {
                        // An agent with sampling and elicitation claims the app.
                        self.act(15, 3);
                    }
                }
                (_, 2) => self.frame(WELCOME.replace(r#"":true"#, r#"":false"#).as_bytes()),
                (_, variant) => {
                    self.frame(WELCOME.as_bytes());
                    if variant != 1 {
                        self.frame(CLAIMED.as_bytes());
                    }
                }
            }
            self.poll();
        }
        // Opens calls in both directions, with an input request and progress.
        if kind & 0x40 != 0 {
            self.act(1, 0);
            self.act(17, 0);
            self.poll();
            self.frame(sample(900, "inv_1").as_bytes());
            self.frame(invoke(901, "i").as_bytes());
            self.frame(request(902, "resources/read", r#"{"name":"balance"}"#).as_bytes());
            self.poll();
            self.act(6, 0);
            self.act(7, 1);
            self.poll();
        }
        if options & 0x10 != 0 {
            self.session.close(Close::Graceful { grace: Duration::from_millis(200) }, self.now);
        }
    }

    /// Records the requests of the peer, and checks its notifications. Other frames are ignored.
    pub(super) fn handle_tesseron_frame(&mut self, frame: &[u8], before: &Stats, was_active: &[InboundId]) {
        let after = self.session.stats();
        let Some(invocations) = &mut self.invocations else { return };
        let Ok(text) = serde_json::from_slice::<&RawValue>(frame).map(RawValue::get) else { return };
        let Some(all) = members(text) else {
            invocations.has_skipped |= text.starts_with('{');
            return;
        };
        let is_null = |name: &str| all.iter().any(|(key, value)| key == name && value.get() == "null");
        let has = |name: &str| all.iter().any(|(key, _)| key == name);
        let (id, invoke_params) = match object(&all) {
            Message::Request { id, method, params } => (id, (method == "actions/invoke").then_some(params).flatten()),
            Message::WrongParams(id) => (id, None),
            // On Tesseron the id of a request may be `null`.
            Message::Invalid(None) if is_null("id") && has("method") => {
                let params = all.iter().find(|(key, _)| key == "params").map(|(_, value)| value.get());
                (Id::Null, params.filter(|_| text.contains("actions/invoke")))
            }
            Message::Notification if after.cancelled_calls > before.cancelled_calls || !was_active.is_empty() => {
                return invocations.check_notification(text, after.cancelled_calls > before.cancelled_calls, was_active);
            }
            _ => return,
        };
        let duplicates = after.violations(Violation::DuplicateRequest) > before.violations(Violation::DuplicateRequest);
        let is_new = after.inbound_calls > before.inbound_calls;
        // If the name of a member has half of a surrogate pair, the invocation cannot be read here.
        invocations.has_skipped |= invoke_params.is_some_and(|params| params.starts_with('{') && members(params).is_none());
        let name = invoke_params.filter(|_| is_new).and_then(members).and_then(|params| {
            let (_, name) = params.into_iter().rev().find(|(key, _)| key == "invocationId")?;
            serde_json::from_str::<String>(name.get()).ok()
        });
        let index = name.as_ref().map(|_| invocations.all.len());
        invocations.all.extend(name.map(|name| Invocation { name, handler: None, cut: None, response: None }));
        if is_new {
            invocations.arriving.push_back(index);
        }
        // A duplicate gets no response if no refusal was queued for it.
        if !(duplicates && after.queued_bytes == before.queued_bytes) {
            invocations.owed.entry(id).or_default().push_back(index);
        }
    }

    /// The inbound calls whose handlers run, according to the events polled so far. Empty if the application polls only in its actions,
    /// or if the session is closed.
    pub(super) fn active(&self) -> Vec<InboundId> {
        let is_active = |id: &&InboundId| !self.cancelled_handlers.contains(id);
        if self.polls_by_actions || self.session.is_closed() {
            Vec::new()
        } else {
            self.handlers.iter().filter(is_active).copied().collect()
        }
    }

    /// Actions of an application that exist only on Tesseron.
    pub(super) fn act_tesseron(&mut self, action: u8, detail: u8) {
        let now = self.now;
        match action {
            15 => {
                let mut able = Capabilities::default();
                (able.sampling, able.elicitation) = (detail & 1 != 0, detail & 2 != 0);
                let able = if detail & 4 == 0 { able } else { agent_capabilities() };
                let _ = self.session.claim(agent(), able, 1, now);
            }
            16 => {
                let claim_state = match detail % 4 {
                    0 => welcome().claim_state,
                    1 => ClaimState::Bound,
                    _ => ClaimState::Resumed,
                };
                let refused = RpcError::fixed(code::RESUME_FAILED, "no");
                let answer = if detail % 4 == 3 { Err(refused) } else { Ok(Welcome { claim_state, ..welcome() }) };
                let _ = self.session.welcome(answer, now);
            }
            17 => {
                let call = match detail % 6 {
                    0 => Invoke::read_resource("balance"),
                    1 => Invoke::subscribe("balance").with_subscription("sub"),
                    2 => Invoke::unsubscribe("balance").with_subscription("sub"),
                    3 => Invoke::custom("actions/cancel", json("{}")),
                    4 => Invoke::call_tool("t", json("[1]")),
                    _ => Invoke::new(Op::CallTool, json(r#"{"arguments":[1],"invocationId":"inv_9","input":2,"name":"t"}"#)),
                };
                let _ = self.session.invoke(call, now);
            }
            18 => {
                let notification = match detail % 4 {
                    0 => Notification::Actions(json("[]")),
                    1 => Notification::Resources(json(r#"[{"name":"balance"}]"#)),
                    2 => Notification::ResourceValue { subscription: "sub".into(), uri: "balance".into(), value: Json::null() },
                    _ => Notification::Custom { method: "x/y".into(), params: None },
                };
                let _ = self.session.notify(notification, now);
            }
            19 => {
                if let Some(id) = self.handlers.front() {
                    let update = match detail % 4 {
                        0 => Progress::message("m"),
                        1 => Progress::default().with_data(json(r#"{"d":[]}"#)),
                        2 => Progress::percent(f64::from(detail) / 2.55),
                        _ => Progress::step(detail.into(), 1000).with_message("m"),
                    };
                    let _ = self.session.progress(*id, update, now);
                }
            }
            20 => {
                if let Some(id) = self.handlers.pop_front() {
                    let reply = match detail % 6 {
                        0 => Reply::Done,
                        1 => Reply::Tool(ToolOutput::error("no")),
                        2 => Reply::Tool(ToolOutput::rpc_error(RpcError::fixed(code::INPUT_VALIDATION, "no"))),
                        3 => Reply::Tool(ToolOutput::structured(json(r#"{"a":1}"#))),
                        4 => Reply::Contents(json(r#"[{"uri":"balance","text":"1"}]"#)),
                        _ => Reply::NotFound(NotFound::Tool("t".into())),
                    };
                    self.end_handler(id, reply);
                }
            }
            21 => {
                self.poll_events();
                if let Some((key, _)) = self.session.ids.peer_input_requests.first().copied() {
                    let answer = match detail % 4 {
                        0 => InputResponse::Sample(SampleResult::new("!", "m")),
                        1 => InputResponse::Elicit(ElicitResult::Accept(json("{}"))),
                        2 => InputResponse::Elicit(ElicitResult::Cancel),
                        _ => InputResponse::Confirm(true),
                    };
                    self.session.provide_input(key, answer, now).expect("an open input request can be answered");
                }
            }
            _ => {}
        }
    }
}
