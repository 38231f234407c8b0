//! A session in the place of a recorded end: the session receives the frames that the end received, and its owner makes it send the frames
//! that the end sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ::tesseron::claims::{ClaimCode, DialGate, DialStep, Host, HostChannel, HostGate, HostNext, PeerUser, UnixChannel};
use bytes::Bytes;
use protocol_core::tesseron::ResumeCredentials;
use protocol_core::{
    Close, Config, Event, InboundId, InputKey, InputRequest, Instant, Invoke, Json, Lane, Notification, OutboundId, Outcome, Reply,
    Request, ServeOptions, Session, TransportEnd,
};
use serde_json::Value;

use super::recording::{Channel, Protocol, Turn, TurnKind};
use super::{mcp, tesseron};

/// A session and the state of its owner.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) protocol: Protocol,
    pub(super) is_caller: bool,
    pub(super) now: Instant,
    pub(super) session: Option<Session>,
    pub(super) gate: Option<Gate>,
    pub(super) config: Config,
    /// Frames that the session or its gate has sent, and that have no counterpart in the recording yet.
    sent: VecDeque<Value>,
    /// The methods of requests. The keys are `<` and the id for our requests, and `>` and the id for those of the peer. Each of our
    /// requests has two entries: one with its recorded id, and one with its id in the session.
    methods: BTreeMap<String, String>,
    /// The ids of our requests, by those of the recording.
    ids: BTreeMap<String, Value>,
    /// Our progress tokens and invocation ids, by those of the recording.
    names: BTreeMap<String, Value>,
    /// The ids of recorded requests that the session could not be made to send. Responses to them are skipped.
    unsent: BTreeSet<String>,
    /// Outbound calls, by their recorded request ids and invocation ids.
    pub(super) outbound: BTreeMap<String, OutboundId>,
    /// Inbound calls, by their request ids.
    pub(super) inbound: BTreeMap<String, InboundId>,
    /// Inbound calls, by their progress tokens and invocation ids.
    pub(super) named: BTreeMap<String, InboundId>,
    /// Inbound calls that are not answered, the newest last. Input requests of MCP, which name no call in the recordings, are made on
    /// behalf of the newest.
    pub(super) unanswered: Vec<InboundId>,
    /// Open input requests of the peer with their methods, by their request ids.
    pub(super) asked: BTreeMap<String, (InputKey, String)>,
    /// The handshake request that is not answered yet: `Some(None)` for a hello, `Some(Some(credentials))` for a resume.
    pub(super) greeting: Option<Option<ResumeCredentials>>,
    /// The number of times that each outbound call has ended.
    done: BTreeMap<OutboundId, usize>,
    /// The time limit of each action in milliseconds, as the recorded app declares it.
    pub(super) deadlines: BTreeMap<String, u64>,
    pub(super) differences: BTreeSet<String>,
}

/// The gate of a Unix socket. It handles the frames until the app is bound and the session begins; then it passes frames to the session,
/// except for further binds, which the app refuses.
#[derive(Debug)]
pub(super) enum Gate {
    /// At the app.
    Host(HostGate),
    /// At the gateway.
    Dial(Box<DialGate>),
}

/// The app's [`Host`], which decides who may claim the app, with our claim codes. It is kept from one connection to the next.
#[derive(Debug, Default)]
pub(super) struct AppHost {
    host: Option<Host>,
    /// Our claim codes, by those of the recording.
    codes: BTreeMap<String, String>,
    channel: Option<HostChannel>,
}

impl AppHost {
    /// Makes a claim code of ours for a code that the recorded app shows.
    fn show(&mut self, code: &str) {
        if !self.codes.contains_key(code) {
            let host =
                Host::with_claims(Default::default(), Instant::ZERO, 0, &mut |out: &mut [u8]| out.fill(self.codes.len() as u8));
            self.codes.insert(code.to_owned(), host.claim().expect("the host makes its own claim codes").code.reveal().to_owned());
            self.host = Some(host);
        }
    }

    /// Handles the end of a connection of the app.
    fn leave(&mut self, now: Instant) {
        if let (Some(host), Some(channel)) = (&mut self.host, self.channel.take()) {
            host.handle_closed(channel, now, 0, &mut |out: &mut [u8]| out.fill(200));
        }
    }
}

impl Player {
    pub(super) fn new(protocol: Protocol, is_caller: bool, channel: &Channel, config: Config) -> Self {
        Self {
            protocol,
            is_caller,
            now: channel.turns.first().map_or(Instant::ZERO, |turn| turn.at),
            session: None,
            gate: None,
            config,
            sent: VecDeque::new(),
            methods: BTreeMap::new(),
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            unsent: BTreeSet::new(),
            outbound: BTreeMap::new(),
            inbound: BTreeMap::new(),
            named: BTreeMap::new(),
            unanswered: Vec::new(),
            asked: BTreeMap::new(),
            greeting: None,
            done: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            differences: BTreeSet::new(),
        }
    }

    /// Plays a connection to its end.
    pub(super) fn play(mut self, channel: &Channel, app_host: &mut AppHost) -> BTreeSet<String> {
        let binds = channel.turns.iter().any(
            |turn| matches!(&turn.what, TurnKind::Received(frame) | TurnKind::Sent(frame) if frame["method"] == "tesseron/bind"),
        );
        match &channel.code {
            Some(code) if !self.is_caller => {
                app_host.show(code);
                let host = app_host.host.as_mut().expect("the app shows a code");
                let place = host.accept(PeerUser::ThisUser).expect("this user may connect").place;
                let UnixChannel::Gated(gate) = host.accept_unix(place, self.now) else {
                    unreachable!("the host makes its own claim codes")
                };
                self.gate = Some(Gate::Host(gate));
            }
            Some(_) if binds => {}
            _ => self.begin(),
        }
        for Turn { at, what } in &channel.turns {
            self.advance(*at);
            match what {
                TurnKind::Received(frame) => self.receive(frame, app_host),
                TurnKind::Sent(frame) => self.send(frame),
                TurnKind::PeerEnded => self.end(TransportEnd::Eof),
                TurnKind::Ended => {
                    if let Some(session) = &mut self.session {
                        session.close(Close::Now, self.now);
                    }
                    self.poll_events("the end");
                }
            }
        }
        self.end(TransportEnd::Failed);
        app_host.leave(self.now);
        for frame in std::mem::take(&mut self.sent) {
            let label = self.label('<', &frame);
            self.differ(format!("{label}: is sent, but not in the recording"));
        }
        assert!(self.done.values().all(|times| *times == 1), "each call ends once: {:?}", self.done);
        self.differences
    }

    /// Returns `true` if the peer's request of that id invokes an action.
    pub(super) fn invokes_action(&self, id: &Value) -> bool {
        self.methods.get(&format!(">{id}")).is_some_and(|method| method == "actions/invoke")
    }

    fn end(&mut self, how: TransportEnd) {
        if let Some(session) = &mut self.session {
            session.handle_end(how, self.now);
        }
        self.poll_events("the end");
    }

    /// Begins the session.
    pub(super) fn begin(&mut self) {
        self.session = Some(Session::new(self.config.clone(), self.now));
        self.poll();
    }

    /// Makes a call. If a sampling request is open, the call is made on its behalf.
    pub(super) fn invoke(&mut self, frame: &Value, mut call: Invoke) -> Result<(), String> {
        let samplings = self.asked.values().filter(|(_, method)| method.starts_with("sampling/"));
        call.parent = samplings.map(|(key, _)| *key).max();
        let now = self.now;
        let id = self.live()?.invoke(call, now).map_err(|error| error.to_string())?;
        self.done.insert(id, 0);
        for name in [frame.get("id"), frame.pointer("/params/invocationId")].into_iter().flatten() {
            self.outbound.insert(name.to_string(), id);
        }
        Ok(())
    }

    pub(super) fn live(&mut self) -> Result<&mut Session, String> {
        self.session.as_mut().ok_or_else(|| "there is no session".to_owned())
    }

    pub(super) fn differ(&mut self, what: String) {
        self.differences.insert(what);
    }

    /// Moves the clock, stopping at each deadline on the way.
    fn advance(&mut self, at: Instant) {
        while let Some(due) = self.session.as_ref().and_then(Session::poll_timeout).filter(|due| *due <= at) {
            self.now = due;
            self.session.as_mut().expect("it has a deadline").handle_timeout(due);
            self.poll_events("the clock");
        }
        self.now = at;
    }

    fn poll(&mut self) {
        while let Some(out) = self.session.as_mut().and_then(Session::poll_transmit) {
            self.sent.push_back(serde_json::from_slice(&out.frame).expect("a frame is JSON"));
        }
    }

    /// Describes `frame` for a difference: `<` marks a frame that this end sends, `>` one that it receives.
    fn label(&self, whose: char, frame: &Value) -> String {
        let Some(method) = frame["method"].as_str() else {
            if frame.get("id").is_none() {
                return format!("{whose} an invalid message");
            }
            let asker = if whose == '<' { '>' } else { '<' };
            let method = self.methods.get(&format!("{asker}{}", frame["id"])).map_or("no request", String::as_str);
            return match frame.pointer("/error/code") {
                Some(code) => format!("{whose} {code} to {method}"),
                None => format!("{whose} result of {method}"),
            };
        };
        format!("{whose} {method}")
    }

    // ---- Frames that the end received ----

    fn receive(&mut self, recorded: &Value, app_host: &mut AppHost) {
        let is_response = recorded.get("method").is_none() && recorded.get("id").is_some();
        let id = recorded["id"].to_string();
        if is_response && self.unsent.contains(&id) {
            return;
        }
        if let Some(method) = recorded["method"].as_str().filter(|_| recorded.get("id").is_some()) {
            self.methods.insert(format!(">{id}"), method.to_owned());
        }
        let label = self.label('>', recorded);
        let mut frame = recorded.clone();
        if is_response {
            self.rename(&mut frame, "/id", |player| &player.ids);
        }
        for path in ["/params/invocationId", "/result/invocationId", "/params/progressToken"] {
            self.rename(&mut frame, path, |player| &player.names);
        }
        let Some(bytes) = self.pass_gate(&mut frame, app_host) else { return };
        let Some(session) = &mut self.session else { return };
        if session.is_closed() {
            return;
        }
        let late = session.stats().late_frames;
        session.handle_frame(Bytes::from(bytes), Lane::CHANNEL, self.now).expect("the session takes frames");
        let (before, ready) = (self.sent.len(), session.is_ready());
        let reported = self.poll_events_after(&label, &frame);
        let answered = self.sent.iter().skip(before).any(|answer| answer.get("method").is_none() && answer["id"] == recorded["id"]);
        let session = self.session.as_ref().expect("it was there");
        let is_late = session.stats().late_frames > late;
        // A frame has an effect if an event reports it, if it is answered, or if it is counted as late. The confirmation of the handshake
        // only makes the session ready.
        if reported + usize::from(answered || is_late || ready && recorded["method"] == "notifications/initialized") == 0 {
            self.differ(format!("{label}: is ignored"));
        }
    }

    fn rename(&self, frame: &mut Value, path: &str, names: impl Fn(&Self) -> &BTreeMap<String, Value>) {
        if let Some(name) = frame.pointer_mut(path)
            && let Some(ours) = names(self).get(&name.to_string())
        {
            *name = ours.clone();
        }
    }

    /// Passes a frame to the gate, if there is one. Returns the frame if it is for the session.
    fn pass_gate(&mut self, frame: &mut Value, app_host: &mut AppHost) -> Option<String> {
        if let Some(code) = frame.pointer_mut("/params/code")
            && let Some(ours) = code.as_str().and_then(|code| app_host.codes.get(&code.to_uppercase()))
        {
            *code = ours.as_str().into();
        }
        let bytes = Bytes::from(frame.to_string());
        match &mut self.gate {
            None => return Some(frame.to_string()),
            Some(Gate::Host(gate)) => {
                let host = app_host.host.as_mut().expect("it has a gate");
                let mut step = gate.handle_frame(bytes, host, self.now);
                // Earlier wrong codes delay our answer, but not that of the reference implementation, which instead refuses every code for
                // a minute after the fifth wrong one within a minute. So the delay is skipped.
                if let (true, Some(due)) = (gate.is_deciding(), gate.poll_timeout()) {
                    step = gate.handle_timeout(host, due);
                }
                self.sent.extend(step.reply.map(|reply| serde_json::from_slice::<Value>(&reply).expect("a frame is JSON")));
                match step.next {
                    HostNext::Deliver(_) => return Some(frame.to_string()),
                    HostNext::Open(channel) => {
                        app_host.channel = Some(channel);
                        self.begin();
                    }
                    HostNext::Keep | HostNext::Close => {}
                }
            }
            Some(Gate::Dial(gate)) => match gate.handle_frame(bytes) {
                Ok(DialStep::Deliver(_)) => return Some(frame.to_string()),
                Ok(DialStep::Open) => self.begin(),
                Ok(DialStep::Wait) | Err(_) => {}
            },
        }
        None
    }

    /// Sends the bind with a claim code, the first frame of the gateway.
    pub(super) fn dial(&mut self, code: &str) -> Result<(), String> {
        let code = ClaimCode::parse(code).map_err(|error| error.to_string())?;
        let mut gate = DialGate::new(&code, DialGate::WAIT, self.now);
        self.sent.extend(gate.poll_transmit().map(|frame| serde_json::from_slice::<Value>(&frame).expect("a frame is JSON")));
        self.gate = Some(Gate::Dial(Box::new(gate)));
        Ok(())
    }

    fn poll_events(&mut self, cause: &str) {
        self.poll_events_after(cause, &Value::Null);
    }

    /// Polls and handles all events. Returns their number, not counting [`Event::Violation`] and [`Event::Closed`]. `cause` names their
    /// cause in differences; `received` is the frame that caused them, or null if no frame did.
    fn poll_events_after(&mut self, cause: &str, received: &Value) -> usize {
        let mut reported = 0;
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            reported += usize::from(!matches!(event, Event::Violation(_) | Event::Unreadable(_) | Event::Closed(_)));
            self.handle(cause, received, event);
        }
        self.poll();
        reported
    }

    fn handle(&mut self, cause: &str, received: &Value, event: Event) {
        let id = received["id"].to_string();
        if !has_contents_of(received, &event) {
            self.differ(format!("{cause}: is reported differently"));
        }
        match event {
            Event::Violation(rule) => self.differ(format!("{cause}: {rule}")),
            Event::Unreadable(frame) => self.differ(format!("{cause}: {frame}")),
            Event::HandshakeRequest { resume, .. } => self.greeting = Some(resume),
            Event::Request { id: inbound, request, .. } => {
                self.inbound.insert(id, inbound);
                self.unanswered.push(inbound);
                for path in ["/params/invocationId", "/params/_meta/progressToken"] {
                    if let Some(name) = received.pointer(path) {
                        self.named.insert(name.to_string(), inbound);
                    }
                }
                self.limit(inbound, &request);
            }
            Event::Cancelled { id: inbound, .. } => {
                self.unanswered.retain(|other| *other != inbound);
                if let Some(session) = &mut self.session {
                    // The handler ends immediately.
                    let _ = session.respond(inbound, Reply::Done, self.now);
                }
            }
            Event::InputRequested { key, .. } => {
                self.asked.insert(id, (key, received["method"].as_str().unwrap_or_default().to_owned()));
            }
            Event::Done { id: call, .. } => *self.done.entry(call).or_default() += 1,
            _ => {}
        }
    }

    /// Sets the deadline of an action that the recorded app declares.
    fn limit(&mut self, inbound: InboundId, request: &Request) {
        let deadline =
            request.target().and_then(|name| self.deadlines.get(&*name)).map(|millis| std::time::Duration::from_millis(*millis));
        if let (Some(deadline), Some(session)) = (deadline, &mut self.session) {
            let _ = session.configure(inbound, ServeOptions::default().with_deadline(deadline), self.now);
        }
    }

    // ---- Frames that the end sent ----

    fn send(&mut self, recorded: &Value) {
        let label = self.label('<', recorded);
        let is_request = recorded.get("method").is_some() && recorded.get("id").is_some();
        if is_request {
            self.methods.insert(format!("<{}", recorded["id"]), recorded["method"].as_str().unwrap_or_default().to_owned());
        }
        let mut found = self.counterpart(recorded);
        if found.is_none() {
            let done = match self.protocol {
                Protocol::Mcp => mcp::make(self, recorded),
                Protocol::Tesseron => tesseron::make(self, recorded),
            };
            self.poll_events(&label);
            found = self.counterpart(recorded);
            if found.is_none() {
                if let (Some(call), Some(session)) = (self.outbound.remove(&recorded["id"].to_string()), &mut self.session) {
                    // The call is cancelled, since it is held or queued and would be sent later.
                    let _ = session.cancel(call, None, self.now);
                }
                self.poll_events(&label);
                let why = done.err().map_or_else(String::new, |why| format!(" ({why})"));
                self.differ(format!("{label}: is not sent{why}"));
            }
        }
        let Some(ours) = found else {
            if is_request {
                self.unsent.insert(recorded["id"].to_string());
            }
            return;
        };
        if is_request {
            self.ids.insert(recorded["id"].to_string(), ours["id"].clone());
            self.methods.insert(format!("<{}", ours["id"]), recorded["method"].as_str().unwrap_or_default().to_owned());
        }
        for path in ["/params/invocationId", "/params/_meta/progressToken"] {
            if let (Some(theirs), Some(ours), true) = (recorded.pointer(path), ours.pointer(path), is_request && self.is_caller) {
                self.names.insert(theirs.to_string(), ours.clone());
            }
        }
        if recorded.get("method").is_none()
            && let Some(served) = self.inbound.remove(&recorded["id"].to_string())
        {
            self.unanswered.retain(|other| *other != served);
        }
        self.compare(&label, recorded, &ours);
    }

    /// Removes and returns the frame that the session or its gate sent in the place of a recorded one.
    fn counterpart(&mut self, recorded: &Value) -> Option<Value> {
        let wanted = self.translated(recorded);
        let is_counterpart = |frame: &&Value| {
            let same = |path: &str| frame.pointer(path) == wanted.pointer(path);
            match wanted.get("method") {
                None => frame.get("method").is_none() && frame.get("id") == wanted.get("id"),
                Some(method) => frame.get("method") == Some(method) && same("/params/progressToken") && same("/params/requestId"),
            }
        };
        let index = self.sent.iter().position(|frame| is_counterpart(&frame))?;
        self.sent.remove(index)
    }

    /// Translates a frame of the recorded end to the ids of the session.
    fn translated(&self, recorded: &Value) -> Value {
        let mut frame = recorded.clone();
        for path in ["/params/invocationId", "/params/_meta/progressToken"] {
            self.rename(&mut frame, path, |player| &player.names);
        }
        if recorded["method"] == "notifications/cancelled" {
            self.rename(&mut frame, "/params/requestId", |player| &player.ids);
        }
        if frame.get("method").is_some() {
            self.rename(&mut frame, "/id", |player| &player.ids);
        }
        frame
    }

    fn compare(&mut self, label: &str, recorded: &Value, ours: &Value) {
        let wanted = self.translated(recorded);
        if let (None, Some(error)) = (wanted.get("error"), ours.get("error")) {
            return self.differ(format!("{label}: is error {}", error["code"]));
        }
        if let (Some(_), Some(_)) = (wanted.get("error"), ours.get("result")) {
            return self.differ(format!("{label}: is a result"));
        }
        let mut found = Vec::new();
        differences(&wanted, ours, &mut Vec::new(), &mut found);
        for (path, how) in found {
            // The text of an error message may differ.
            if path != "error.message" {
                self.differ(format!("{label}: {path} {how}"));
            }
        }
    }
}

/// Returns `false` if the contents of the event, as far as they are compared, differ from the frame that caused it, or if a call ended in a
/// way that has no place in a recording, such as a timeout.
fn has_contents_of(received: &Value, event: &Event) -> bool {
    let params = &received["params"];
    let same = |reported: &Json, received: Option<&Value>| reported.decode::<Value>().ok().as_ref() == received;
    let text = |reported: Option<&str>, name: &str| reported == params[name].as_str();
    match event {
        Event::Done { outcome: Outcome::Result(result), .. } => same(result, received.get("result")),
        Event::Done { outcome: Outcome::Error(error), .. } => Some(error.code) == received["error"]["code"].as_i64(),
        Event::Done { outcome: Outcome::Cancelled | Outcome::Lost, .. } => true,
        Event::Done { .. } => false,
        Event::Progress { progress, .. } => {
            let value = params.get("progress").or_else(|| params.get("percent")).and_then(Value::as_f64);
            progress.value == value && text(progress.message.as_deref(), "message")
        }
        Event::Request { request: Request::CallTool(reported), .. } => {
            let arguments = params.get("arguments").or_else(|| params.get("input"));
            let absent = Json::null();
            params["name"] == *reported.name()
                && same(&reported.arguments().unwrap_or(absent), Some(arguments.unwrap_or(&Value::Null)))
        }
        Event::InputRequested { ask: InputRequest::Sample(asked), .. } => {
            asked.params.as_ref().is_some_and(|reported| same(reported, Some(params)))
        }
        Event::InputRequested { ask: InputRequest::Elicit(asked), .. } => {
            same(&asked.schema, params.get("schema").or_else(|| params.get("requestedSchema")))
        }
        Event::Log(record) => {
            let message = record.data.member("message").and_then(|message| message.as_text());
            same(&record.data, params.get("data")) || text(message.as_deref(), "message")
        }
        Event::Notification(Notification::ResourceValue { subscription, value, .. }) => {
            text(Some(&**subscription), "subscriptionId") && same(value, params.get("value"))
        }
        _ => true,
    }
}

/// Adds to `found` each path at which `ours` differs from `recorded`, with the kind of the difference.
fn differences(recorded: &Value, ours: &Value, path: &mut Vec<String>, found: &mut Vec<(String, String)>) {
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            for key in recorded.keys().chain(ours.keys().filter(|key| !recorded.contains_key(*key))) {
                path.push(key.clone());
                match (recorded.get(key), ours.get(key)) {
                    (Some(recorded), Some(ours)) => differences(recorded, ours, path, found),
                    (Some(_), None) => found.push((path.join("."), "is omitted".to_owned())),
                    _ => found.push((path.join("."), "is added".to_owned())),
                }
                path.pop();
            }
        }
        (Value::Array(recorded), Value::Array(ours)) if recorded.len() == ours.len() => {
            for (index, (recorded, ours)) in recorded.iter().zip(ours).enumerate() {
                path.push(index.to_string());
                differences(recorded, ours, path, found);
                path.pop();
            }
        }
        (Value::Number(recorded), Value::Number(ours)) if recorded.as_f64() == ours.as_f64() => {}
        _ if recorded == ours => {}
        _ if *path == ["error", "code"] => found.push((path.join("."), format!("is {ours}"))),
        _ => found.push((path.join("."), "differs".to_owned())),
    }
}

/// Converts JSON of a recording for the session.
pub(super) fn json(value: &Value) -> Json {
    Json::encode(value).expect("a recording contains JSON")
}
