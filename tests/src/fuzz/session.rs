//! Hostile bytes against one end, in every role and phase of both protocols, with an application whose actions are chosen by the bytes. The
//! judge in [`Watched`] checks the end. This file checks what that judge cannot check: which methods the session refuses.

mod tesseron;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Close, Config, ElicitResult, Event, InboundId, InputKey, InputRequest, InputResponse, InputRound, Instant,
    Invoke, Json, Lane, Level, LogRecord, Op, OpenUrl, OpenUrlResult, OutboundId, Progress, RateWindow, Received, Reply, RpcError,
    Sample, SampleResult, ServeOptions, Session, ToolOutput, TransportEnd, Violation,
};

use tesseron::Invocations;
use testkit::Watched;
use testkit::config::{client_config, server_config};
use testkit::scripted::{initialize, json};

/// Byte 0: the role (bit 0), the handshake is made first (bit 1), the revision (bits 2 and 3), the limits (bit 4), the application polls
/// only in its actions (bit 5), an outbound call, an inbound one and an input request are open at the beginning (bit 6), Tesseron (bit 7;
/// then bits 2 and 3 are the state of the session, see [`tesseron`]). Byte 1: the timeouts (bit 0), the response gap and a rate window (bit
/// 1), and the policies of depth and progress (bit 2); on Tesseron also a grace for cancelled calls (bit 3, which on MCP lets a client
/// choose the era), and a session that is closing (bit 4). Then lines: each is a frame, but a line whose first byte has the value 1
/// consists of actions, two bytes each, see [`Fuzzed::act`].
pub fn session(data: &[u8]) {
    let ([kind, options], rest) = super::head(data);
    let mut fuzzed = Fuzzed::new(kind, options);
    for line in rest.split(|byte| *byte == b'\n') {
        match line.split_first() {
            Some((1, actions)) => actions.chunks_exact(2).for_each(|action| fuzzed.act(action[0], action[1])),
            _ => fuzzed.frame(line),
        }
        if !fuzzed.polls_by_actions {
            fuzzed.poll();
        }
    }
    fuzzed.finish();
}

const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The answer to a probe that leads to stateless requests and a subscription.
const DISCOVERED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}},"ttlMs":0,"cacheScope":"private"}}"#;

struct Fuzzed {
    session: Watched,
    now: Instant,
    /// `true` if the application polls only in its actions.
    polls_by_actions: bool,
    /// The outbound calls that the application has cancelled.
    cancelled_calls: BTreeSet<OutboundId>,
    /// The handlers that run, including those whose calls were cancelled.
    handlers: VecDeque<InboundId>,
    /// The handlers whose calls were cancelled, until they end.
    cancelled_handlers: BTreeSet<InboundId>,
    /// The open input requests of the application, the oldest first.
    input_requests: VecDeque<InputKey>,
    /// The invocations of the peer, if the protocol is Tesseron.
    invocations: Option<Invocations>,
}

impl Fuzzed {
    fn new(kind: u8, options: u8) -> Self {
        let (is_client, is_tesseron) = (kind & 1 == 0, kind & 0x80 != 0);
        let mut config = match is_client {
            _ if is_tesseron => tesseron::config(kind, options),
            true => client_config(),
            false => server_config(),
        };
        if kind & 0x10 != 0 {
            tighten(&mut config);
        }
        if options & 1 != 0 {
            config.timeouts.serve = Some(Duration::from_millis(300));
            config.timeouts.call.idle = Some(Duration::from_millis(200));
            config.timeouts.input = Some(Duration::from_millis(250));
        }
        if options & 2 != 0 {
            config.timeouts.response_gap = Duration::from_millis(50);
            config.progress.window = RateWindow::new(2, Duration::from_millis(400));
        }
        if options & 4 != 0 {
            config.depth.inference = protocol_core::DepthInference::DeepestOpen;
            config.progress.accept_equal = true;
            config.progress.partial_on_progress = true;
        }
        if is_client && !is_tesseron && options & 8 != 0 {
            config.era = Era::Auto;
        }
        let now = Instant::ZERO;
        let mut session = Watched::new(Session::new(config, now), now);
        session.judge_mut().distrust_peer();
        session.forget_trace();
        let mut fuzzed = Self {
            session,
            now,
            polls_by_actions: kind & 0x20 != 0,
            cancelled_calls: BTreeSet::new(),
            handlers: VecDeque::new(),
            cancelled_handlers: BTreeSet::new(),
            input_requests: VecDeque::new(),
            invocations: is_tesseron.then(Invocations::default),
        };
        if is_tesseron {
            fuzzed.greet_tesseron(kind, options);
            return fuzzed;
        }
        if kind & 2 != 0 {
            fuzzed.greet(is_client, REVISIONS[usize::from(kind >> 2 & 3)]);
        }
        if kind & 0x40 != 0 {
            for action in [[1, 0], [1, 1], [7, 0]] {
                fuzzed.act(action[0], action[1]);
            }
            if !is_client && kind & 2 != 0 {
                fuzzed.frame(
                    br#"{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"t"}}}"#,
                );
                fuzzed.poll();
                fuzzed.act(6, 0);
            }
            fuzzed.poll();
        }
        fuzzed
    }

    /// Makes the handshake, or answers the probe.
    fn greet(&mut self, is_client: bool, revision: &str) {
        self.poll();
        if is_client && self.session.config().era == Era::Auto {
            self.frame(DISCOVERED.as_bytes());
        } else if is_client {
            let greeting = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{revision}","capabilities":{{"tools":{{}},"prompts":{{}},"resources":{{"subscribe":true}},"completions":{{}},"logging":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
            );
            self.frame(greeting.as_bytes());
        } else {
            let declares = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#;
            self.frame(initialize(0, revision, declares).as_bytes());
            self.frame(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        self.poll();
        assert!(self.session.is_ready());
    }

    fn frame(&mut self, frame: &[u8]) {
        let (before, active) = (self.session.stats(), self.active());
        let taken = self.session.handle_frame(Bytes::copy_from_slice(frame), Lane::CHANNEL, self.now).is_ok();
        if taken && self.invocations.is_some() {
            self.handle_tesseron_frame(frame, &before, &active);
        }
    }

    /// Takes an action: mostly one of the application on an open call or input request; a few let time pass, end the channel, or answer for
    /// the peer.
    fn act(&mut self, action: u8, detail: u8) {
        let now = self.now;
        match action {
            0 => self.poll(),
            1 => {
                let params = json(r#"{"name":"t"}"#);
                let mut invoke = match detail % 4 {
                    0 => Invoke::new(Op::CallTool, params),
                    1 => Invoke::custom("x/y", params),
                    2 => Invoke::ping(),
                    _ => Invoke::list_tools(None),
                };
                invoke.parent = self.session.ids.peer_input_requests.first().filter(|_| detail & 4 != 0).map(|(key, _)| *key);
                invoke.progress = detail & 8 == 0;
                if detail & 16 != 0 {
                    let (idle, max_total) = (Some(Duration::from_millis(100)), Some(Duration::from_millis(detail.into())));
                    invoke.timeouts =
                        Some(CallTimeouts::NONE.with_idle(idle).with_max_total(max_total).with_reset_on_progress(detail & 32 != 0));
                }
                let _ = self.session.invoke(invoke, now);
            }
            2 => {
                // The event of the call's end may be queued.
                self.poll_events();
                if let Some(id) = self.session.ids.outbound_calls.first().copied() {
                    let reason = (detail & 1 == 0).then_some("why");
                    let is_first = self.cancelled_calls.insert(id);
                    assert_eq!(
                        self.session.cancel(id, reason, now).is_ok(),
                        is_first,
                        "a call can be cancelled once, until it has ended"
                    );
                }
            }
            3 => {
                self.now = now.saturating_add(Duration::from_millis(u64::from(detail) * 4));
                self.timeout();
            }
            4 => self.timeout_when_due(),
            5 => {
                if let Some(id) = self.handlers.pop_front() {
                    if detail & 0x80 != 0 && self.ask_in_round(id, detail) {
                        return;
                    }
                    let reply = match detail % 3 {
                        0 => Reply::Tool(ToolOutput::text("ok")),
                        1 => Reply::Raw(Json::empty_object()),
                        _ => Reply::Error(RpcError::internal("no")),
                    };
                    self.end_handler(id, reply);
                }
            }
            6 => {
                if let Some(id) = self.handlers.front() {
                    let ask = match detail % 4 {
                        0 => InputRequest::from(Sample::new("?")),
                        1 => InputRequest::Confirm { message: "?".into() },
                        2 => InputRequest::Roots,
                        _ if detail & 64 != 0 => OpenUrl::new("?", "https://a/").with_id("e").into(),
                        _ => InputRequest::Elicit(protocol_core::Elicit::new("?", json(r#"{"type":"object","properties":{}}"#))),
                    };
                    self.input_requests.extend(self.session.request_input(*id, ask, now));
                }
            }
            7 => {
                if let Some(id) = self.handlers.front() {
                    let mut update = Progress::value(f64::from(detail % 50));
                    update.total = (detail & 64 != 0).then_some(50.0);
                    update.message = (detail & 128 != 0).then(|| "m".into());
                    let _ = self.session.progress(*id, update, now);
                }
            }
            8 => {
                self.poll_events();
                if let Some((key, kind)) = self.session.ids.peer_input_requests.first().copied() {
                    let answer = match kind {
                        _ if detail & 1 == 1 => InputResponse::Refused(RpcError::internal("no")),
                        "sample" => InputResponse::Sample(SampleResult::new("!", "m")),
                        "elicit" => InputResponse::Elicit(ElicitResult::Decline),
                        "open" => InputResponse::OpenUrl(OpenUrlResult::Accept),
                        _ => InputResponse::Roots(json("[]")),
                    };
                    self.session.provide_input(key, answer, now).expect("an open input request can be answered");
                }
            }
            9 => {
                if let Some(key) = self.input_requests.pop_front() {
                    let _ = self.session.abandon_input(key, now);
                }
            }
            10 => {
                if let Some(id) = self.handlers.front() {
                    let _ = self.session.checkpoint(*id, json(r#"{"processed":1}"#));
                    let options = ServeOptions::default().with_deadline(Duration::from_millis(u64::from(detail) * 8));
                    if detail & 1 == 0 {
                        let _ = self.session.configure(*id, options, now);
                    }
                }
            }
            11 => {
                let _ = self.session.set_alarm(now.saturating_add(Duration::from_millis(detail.into())));
                let record = LogRecord::new(Level::Error, Json::null());
                let _ = self.session.log(self.handlers.front().copied().filter(|_| detail & 1 == 1), record, now);
            }
            12 => self.session.close(Close::Graceful { grace: Duration::from_millis(detail.into()) }, now),
            13 => self.session.handle_end(TransportEnd::Eof, now),
            // The peer answers the last input request, so that the bytes need not guess its id.
            14 => {
                if let Some(key) = self.input_requests.back() {
                    let number = key.to_string().trim_start_matches("input-").to_owned();
                    let result = match detail % 4 {
                        0 if self.invocations.is_some() => r#"{"content":"!"}"#,
                        1 if self.invocations.is_some() => r#"{"action":"accept","value":{}}"#,
                        0 => r#"{"role":"assistant","content":{"type":"text","text":"!"},"model":"m"}"#,
                        1 => r#"{"action":"accept","content":{}}"#,
                        2 => r#"{"roots":[]}"#,
                        _ => "{}",
                    };
                    self.frame(format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{result}}}"#).as_bytes());
                }
            }
            _ if self.invocations.is_some() => self.act_tesseron(action, detail),
            _ => {}
        }
    }

    /// Ends a call with a round, as a handler that makes input requests does. Returns `false` if that is impossible.
    fn ask_in_round(&mut self, id: InboundId, detail: u8) -> bool {
        let form = || InputRequest::Elicit(protocol_core::Elicit::new("?", json(r#"{"type":"object","properties":{}}"#)));
        let asks = [form(), InputRequest::from(Sample::new("?")), InputRequest::Roots].into_iter().zip(["a", "b", "c"]);
        let asks = asks.enumerate().filter(|(bit, _)| detail >> bit & 1 == 1).map(|(_, ask)| ask);
        let round = asks.fold(InputRound::new(), |round, (ask, name)| round.ask(name, ask));
        let round = if detail & 8 == 0 { round.with_state("s") } else { round };
        self.session.finish_round(id, round, self.now).is_ok()
    }

    /// Ends a handler with this reply.
    fn end_handler(&mut self, id: InboundId, reply: Reply) {
        self.poll_events();
        let is_live = !self.cancelled_handlers.remove(&id);
        let is_accepted = self.session.respond(id, reply, self.now).is_ok();
        assert_eq!(is_accepted, is_live && !self.session.is_closed(), "a handler can reply until its call has ended");
    }

    fn timeout(&mut self) {
        self.session.handle_timeout(self.now);
    }

    fn timeout_when_due(&mut self) {
        if let Some(due) = self.session.poll_timeout() {
            self.now = self.now.max(due);
            self.timeout();
        }
    }

    fn poll(&mut self) {
        while let Some(out) = self.session.poll_transmit() {
            if let Some(invocations) = &mut self.invocations {
                invocations.handle_response(&out.frame);
            }
        }
        self.poll_events();
        if let Some(invocations) = self.invocations.as_ref().filter(|_| !self.session.is_closed()) {
            invocations.check_polled();
        }
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            if let Some(invocations) = &mut self.invocations {
                invocations.handle_event(&event);
            }
            match event {
                Event::Request { id, .. } => self.handlers.push_back(id),
                Event::Cancelled { id, .. } => _ = self.cancelled_handlers.insert(id),
                Event::Input { key, .. } => self.input_requests.retain(|open| *open != key),
                Event::Violation(rule) => assert!(Violation::ALL.contains(&rule)),
                Event::Unreadable(frame) => assert!(frame.position <= 20_000_000 && frame.excerpt.len() <= 80 * 6 + 4),
                _ => {}
            }
        }
    }

    fn finish(mut self) {
        self.session.close(Close::Graceful { grace: Duration::from_millis(50) }, self.now);
        for _ in 0..10_000 {
            self.poll();
            if self.session.poll_timeout().is_none() {
                break;
            }
            self.timeout_when_due();
        }
        self.session.check_end();
        assert_eq!(self.session.handle_frame(Bytes::from_static(b"{}"), Lane::CHANNEL, self.now), Ok(Received::default()));
        assert!(self.session.poll_transmit().is_none() && self.session.poll_event().is_none(), "G4");
    }
}

/// Sets limits that are soon reached.
fn tighten(config: &mut Config) {
    let limits = &mut config.limits;
    (limits.in_flight, limits.events, limits.unsolicited_replies, limits.ended_ids, limits.alarms) = (3, 6, 4, 2, 3);
    (limits.output_bytes, limits.output_bytes_hard, limits.frame_bytes, limits.batch) = (600, 6000, 2000, 5);
    (limits.checkpoint_bytes, limits.request_bytes) = (64, 1500);
}
