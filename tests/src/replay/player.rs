//! A session in the place of a recorded end: it hears what that end heard, and its owner does what makes it say what that end said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ::tesseron::claims::{ClaimCode, DialGate, DialStep, Host, HostChannel, HostGate, HostNext, Peer, UnixChannel};
use bytes::Bytes;
use protocol_core::tesseron::ResumeCredentials;
use protocol_core::{
    Ask, Close, Config, Event, InboundId, InputKey, Instant, Invoke, Json, Lane, Notice, OutboundId, Outcome, Reply, Request,
    ServeOptions, Session, TransportEnd,
};
use serde_json::Value;

use super::recording::{Channel, Protocol, Turn, What};
use super::{mcp, tesseron};

/// A session, and what its owner knows.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) protocol: Protocol,
    pub(super) calls: bool,
    pub(super) now: Instant,
    pub(super) session: Option<Session>,
    pub(super) gate: Option<Gate>,
    pub(super) config: Config,
    /// What the session has said that has no counterpart yet.
    said: VecDeque<Value>,
    /// The methods of requests, by `<` or `>` for ours or the peer's and their recorded id.
    methods: BTreeMap<String, String>,
    /// The ids of our requests, by those of the recording.
    ids: BTreeMap<String, Value>,
    /// What the peer must call our invocations, by what the recording does: tokens of progress, and names.
    names: BTreeMap<String, Value>,
    /// Requests of the recording that the session could not be made to say: their answers are nobody's.
    unsaid: BTreeSet<String>,
    pub(super) outbound: BTreeMap<String, OutboundId>,
    pub(super) inbound: BTreeMap<String, InboundId>,
    /// What we serve, by what the peer calls it: tokens and names.
    pub(super) named: BTreeMap<String, InboundId>,
    /// What was asked for last and is not answered: whatever is asked of the peer is asked on its behalf.
    pub(super) newest: Vec<InboundId>,
    pub(super) asked: BTreeMap<String, (InputKey, String)>,
    pub(super) greeting: Option<Option<ResumeCredentials>>,
    /// The number of times that each call that was made has ended.
    done: BTreeMap<OutboundId, usize>,
    /// The time that each action may take, as the recorded app said.
    pub(super) deadlines: BTreeMap<String, u64>,
    pub(super) differences: BTreeSet<String>,
}

/// What comes before the session on a socket that must be bound.
#[derive(Debug)]
pub(super) enum Gate {
    /// At the app.
    Host(HostGate),
    /// At the gateway.
    Dial(Box<DialGate>),
}

/// The app's door, over all its connections.
#[derive(Debug, Default)]
pub(super) struct Door {
    host: Option<Host>,
    /// The code of the recording, and the one that stands for it.
    codes: BTreeMap<String, String>,
    channel: Option<HostChannel>,
}

impl Door {
    /// The recorded app shows this code now.
    fn show(&mut self, code: &str) {
        if !self.codes.contains_key(code) {
            let host = Host::minting(Default::default(), Instant::ZERO, 0, &mut |out: &mut [u8]| out.fill(self.codes.len() as u8));
            self.codes.insert(code.to_owned(), host.claim().expect("it mints").code.reveal().to_owned());
            self.host = Some(host);
        }
    }

    fn leave(&mut self, now: Instant) {
        if let (Some(host), Some(channel)) = (&mut self.host, self.channel.take()) {
            host.handle_closed(channel, now, 0, &mut |out: &mut [u8]| out.fill(200));
        }
    }
}

impl Player {
    pub(super) fn new(protocol: Protocol, calls: bool, channel: &Channel, config: Config) -> Self {
        Self {
            protocol,
            calls,
            now: channel.turns.first().map_or(Instant::ZERO, |turn| turn.at),
            session: None,
            gate: None,
            config,
            said: VecDeque::new(),
            methods: BTreeMap::new(),
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            unsaid: BTreeSet::new(),
            outbound: BTreeMap::new(),
            inbound: BTreeMap::new(),
            named: BTreeMap::new(),
            newest: Vec::new(),
            asked: BTreeMap::new(),
            greeting: None,
            done: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            differences: BTreeSet::new(),
        }
    }

    /// Plays a connection to its end.
    pub(super) fn play(mut self, channel: &Channel, door: &mut Door) -> BTreeSet<String> {
        let binds = channel
            .turns
            .iter()
            .any(|turn| matches!(&turn.what, What::Heard(frame) | What::Said(frame) if frame["method"] == "tesseron/bind"));
        match &channel.code {
            Some(code) if !self.calls => {
                door.show(code);
                let host = door.host.as_mut().expect("it is shown");
                let place = host.accept(Peer::ThisUser).expect("it is for this user").place;
                let UnixChannel::Gated(gate) = host.accept_unix(place, self.now) else { unreachable!("it mints") };
                self.gate = Some(Gate::Host(gate));
            }
            Some(_) if binds => {}
            _ => self.begin(),
        }
        for Turn { at, what } in &channel.turns {
            self.pass(*at);
            match what {
                What::Heard(frame) => self.hear(frame, door),
                What::Said(frame) => self.say(frame),
                What::HeardEnd => self.end(TransportEnd::Eof),
                What::SaidEnd => {
                    if let Some(session) = &mut self.session {
                        session.close(Close::Now, self.now);
                    }
                    self.listen("its end");
                }
            }
        }
        self.end(TransportEnd::Failed);
        door.leave(self.now);
        for frame in std::mem::take(&mut self.said) {
            let label = self.label('<', &frame);
            self.differ(format!("{label}: is said, and was not"));
        }
        assert!(self.done.values().all(|times| *times == 1), "each call ends once: {:?}", self.done);
        self.differences
    }

    /// Returns `true` if the peer's request of that id runs a tool or an action.
    pub(super) fn runs(&self, id: &Value) -> bool {
        self.methods.get(&format!(">{id}")).is_some_and(|method| method == "actions/invoke")
    }

    fn end(&mut self, how: TransportEnd) {
        if let Some(session) = &mut self.session {
            session.handle_end(how, self.now);
        }
        self.listen("the end");
    }

    /// The session begins.
    pub(super) fn begin(&mut self) {
        self.session = Some(Session::new(self.config.clone(), self.now));
        self.poll();
    }

    /// Makes a call; what is called while a model is asked is called on its behalf.
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
    fn pass(&mut self, at: Instant) {
        while let Some(due) = self.session.as_ref().and_then(Session::poll_timeout).filter(|due| *due <= at) {
            self.now = due;
            self.session.as_mut().expect("it has a deadline").handle_timeout(due);
            self.listen("the clock");
        }
        self.now = at;
    }

    fn poll(&mut self) {
        while let Some(out) = self.session.as_mut().and_then(Session::poll_transmit) {
            self.said.push_back(serde_json::from_slice(&out.frame).expect("a frame is JSON"));
        }
    }

    /// What `frame` is, for a difference: `<` marks what this end says.
    fn label(&self, whose: char, frame: &Value) -> String {
        let Some(method) = frame["method"].as_str() else {
            if frame.get("id").is_none() {
                return format!("{whose} what is no message");
            }
            let asker = if whose == '<' { '>' } else { '<' };
            let method = self.methods.get(&format!("{asker}{}", frame["id"])).map_or("nothing", String::as_str);
            return match frame.pointer("/error/code") {
                Some(code) => format!("{whose} {code} to {method}"),
                None => format!("{whose} result of {method}"),
            };
        };
        format!("{whose} {method}")
    }

    // ---- What the end heard ----

    fn hear(&mut self, recorded: &Value, door: &mut Door) {
        let is_response = recorded.get("method").is_none() && recorded.get("id").is_some();
        let id = recorded["id"].to_string();
        if is_response && self.unsaid.contains(&id) {
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
        let Some(bytes) = self.through_the_gate(&mut frame, door) else { return };
        let Some(session) = &mut self.session else { return };
        if session.is_closed() {
            return;
        }
        let late = session.stats().late_frames;
        session.handle_frame(Bytes::from(bytes), Lane::CHANNEL, self.now).expect("the session takes frames");
        let (before, ready) = (self.said.len(), session.is_ready());
        let told = self.listen_to(&label, &frame);
        let answered = self.said.iter().skip(before).any(|answer| answer.get("method").is_none() && answer["id"] == recorded["id"]);
        let session = self.session.as_ref().expect("it was there");
        let is_late = session.stats().late_frames > late;
        if told + usize::from(answered || is_late || ready && recorded["method"] == "notifications/initialized") == 0 {
            self.differ(format!("{label}: is passed over"));
        }
    }

    fn rename(&self, frame: &mut Value, path: &str, names: impl Fn(&Self) -> &BTreeMap<String, Value>) {
        if let Some(name) = frame.pointer_mut(path)
            && let Some(ours) = names(self).get(&name.to_string())
        {
            *name = ours.clone();
        }
    }

    /// What of a frame reaches the session.
    fn through_the_gate(&mut self, frame: &mut Value, door: &mut Door) -> Option<String> {
        if let Some(code) = frame.pointer_mut("/params/code")
            && let Some(ours) = code.as_str().and_then(|code| door.codes.get(&code.to_uppercase()))
        {
            *code = ours.as_str().into();
        }
        let bytes = Bytes::from(frame.to_string());
        match &mut self.gate {
            None => return Some(frame.to_string()),
            Some(Gate::Host(gate)) => {
                let host = door.host.as_mut().expect("it has a gate");
                let mut step = gate.handle_frame(bytes, host, self.now);
                // Wrong codes of before delay it; the reference answers at once, until it answers no longer.
                if let (true, Some(due)) = (gate.is_deciding(), gate.poll_timeout()) {
                    step = gate.handle_timeout(host, due);
                }
                self.said.extend(step.reply.map(|reply| serde_json::from_slice::<Value>(&reply).expect("a frame is JSON")));
                match step.next {
                    HostNext::Deliver(_) => return Some(frame.to_string()),
                    HostNext::Open(channel) => {
                        door.channel = Some(channel);
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

    /// Dials with a code: the gateway's first frame.
    pub(super) fn dial(&mut self, code: &str) -> Result<(), String> {
        let code = ClaimCode::parse(code).map_err(|error| error.to_string())?;
        let mut gate = DialGate::new(&code, DialGate::WAIT, self.now);
        self.said.extend(gate.poll_transmit().map(|frame| serde_json::from_slice::<Value>(&frame).expect("a frame is JSON")));
        self.gate = Some(Gate::Dial(Box::new(gate)));
        Ok(())
    }

    fn listen(&mut self, at: &str) {
        self.listen_to(at, &Value::Null);
    }

    /// Takes what the session tells, and gives how much it is. `heard` is the frame that brought it, if one did.
    fn listen_to(&mut self, at: &str, heard: &Value) -> usize {
        let mut told = 0;
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            told += usize::from(!matches!(event, Event::Violation(_) | Event::Closed(_)));
            self.handle(at, heard, event);
        }
        self.poll();
        told
    }

    fn handle(&mut self, at: &str, heard: &Value, event: Event) {
        let id = heard["id"].to_string();
        if !is_told_as_heard(heard, &event) {
            self.differ(format!("{at}: is told otherwise"));
        }
        match event {
            Event::Violation(rule) => self.differ(format!("{at}: {rule}")),
            Event::HandshakeRequest { resume, .. } => self.greeting = Some(resume),
            Event::Request { id: inbound, request, .. } => {
                self.inbound.insert(id, inbound);
                self.newest.push(inbound);
                for path in ["/params/invocationId", "/params/_meta/progressToken"] {
                    if let Some(name) = heard.pointer(path) {
                        self.named.insert(name.to_string(), inbound);
                    }
                }
                self.limit(inbound, &request);
            }
            Event::Cancelled { id: inbound, .. } => {
                self.newest.retain(|other| *other != inbound);
                if let Some(session) = &mut self.session {
                    // Its handler ends at once.
                    let _ = session.respond(inbound, Reply::Done, self.now);
                }
            }
            Event::InputRequested { key, .. } => {
                self.asked.insert(id, (key, heard["method"].as_str().unwrap_or_default().to_owned()));
            }
            Event::Done { id: call, .. } => *self.done.entry(call).or_default() += 1,
            _ => {}
        }
    }

    /// An action may take as long as its app says.
    fn limit(&mut self, inbound: InboundId, request: &Request) {
        let deadline =
            request.target().and_then(|name| self.deadlines.get(&*name)).map(|millis| std::time::Duration::from_millis(*millis));
        if let (Some(deadline), Some(session)) = (deadline, &mut self.session) {
            let _ = session.configure(inbound, ServeOptions::default().with_deadline(deadline), self.now);
        }
    }

    // ---- What the end said ----

    fn say(&mut self, recorded: &Value) {
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
            self.listen(&label);
            found = self.counterpart(recorded);
            if found.is_none() {
                if let (Some(call), Some(session)) = (self.outbound.remove(&recorded["id"].to_string()), &mut self.session) {
                    // It would only come later.
                    let _ = session.cancel(call, None, self.now);
                }
                self.listen(&label);
                let why = done.err().map_or_else(String::new, |why| format!(" ({why})"));
                self.differ(format!("{label}: is not said{why}"));
            }
        }
        let Some(ours) = found else {
            if is_request {
                self.unsaid.insert(recorded["id"].to_string());
            }
            return;
        };
        if is_request {
            self.ids.insert(recorded["id"].to_string(), ours["id"].clone());
            self.methods.insert(format!("<{}", ours["id"]), recorded["method"].as_str().unwrap_or_default().to_owned());
        }
        for path in ["/params/invocationId", "/params/_meta/progressToken"] {
            if let (Some(theirs), Some(ours), true) = (recorded.pointer(path), ours.pointer(path), is_request && self.calls) {
                self.names.insert(theirs.to_string(), ours.clone());
            }
        }
        if recorded.get("method").is_none()
            && let Some(served) = self.inbound.remove(&recorded["id"].to_string())
        {
            self.newest.retain(|other| *other != served);
        }
        self.compare(&label, recorded, &ours);
    }

    /// Takes what the session said in the place of a frame.
    fn counterpart(&mut self, recorded: &Value) -> Option<Value> {
        let wanted = self.translated(recorded);
        let place = |frame: &&Value| {
            let same = |path: &str| frame.pointer(path) == wanted.pointer(path);
            match wanted.get("method") {
                None => frame.get("method").is_none() && frame.get("id") == wanted.get("id"),
                Some(method) => frame.get("method") == Some(method) && same("/params/progressToken") && same("/params/requestId"),
            }
        };
        let index = self.said.iter().position(|frame| place(&frame))?;
        self.said.remove(index)
    }

    /// A frame of the recorded end, with what we call its exchanges.
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
            // Words for people are anybody's own.
            if path != "error.message" {
                self.differ(format!("{label}: {path} {how}"));
            }
        }
    }
}

/// Returns `true` if the owner of a session is told what the frame says that brought the event.
fn is_told_as_heard(heard: &Value, event: &Event) -> bool {
    let params = &heard["params"];
    let same = |told: &Json, heard: Option<&Value>| told.decode::<Value>().ok().as_ref() == heard;
    let text = |told: Option<&str>, name: &str| told == params[name].as_str();
    match event {
        Event::Done { outcome: Outcome::Result(result), .. } => same(result, heard.get("result")),
        Event::Done { outcome: Outcome::Error(error), .. } => Some(error.code) == heard["error"]["code"].as_i64(),
        Event::Done { outcome: Outcome::Cancelled | Outcome::Lost, .. } => true,
        Event::Done { .. } => false,
        Event::Progress { progress, .. } => {
            let value = params.get("progress").or_else(|| params.get("percent")).and_then(Value::as_f64);
            progress.value == value && text(progress.message.as_deref(), "message")
        }
        Event::Request { request: Request::CallTool(told), .. } => {
            let arguments = params.get("arguments").or_else(|| params.get("input"));
            let unsaid = Json::null();
            params["name"] == *told.name() && same(&told.arguments().unwrap_or(unsaid), Some(arguments.unwrap_or(&Value::Null)))
        }
        Event::InputRequested { ask: Ask::Sample(asked), .. } => asked.params.as_ref().is_some_and(|told| same(told, Some(params))),
        Event::InputRequested { ask: Ask::Elicit(asked), .. } => {
            same(&asked.schema, params.get("schema").or_else(|| params.get("requestedSchema")))
        }
        Event::Log(record) => {
            let message = record.data.member("message").and_then(|message| message.as_text());
            same(&record.data, params.get("data")) || text(message.as_deref(), "message")
        }
        Event::Notice(Notice::ResourceValue { subscription, value, .. }) => {
            text(Some(&**subscription), "subscriptionId") && same(value, params.get("value"))
        }
        _ => true,
    }
}

fn differences(recorded: &Value, ours: &Value, path: &mut Vec<String>, found: &mut Vec<(String, String)>) {
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            for key in recorded.keys().chain(ours.keys().filter(|key| !recorded.contains_key(*key))) {
                path.push(key.clone());
                match (recorded.get(key), ours.get(key)) {
                    (Some(recorded), Some(ours)) => differences(recorded, ours, path, found),
                    (Some(_), None) => found.push((path.join("."), "is left out".to_owned())),
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
        _ => found.push((path.join("."), "is another".to_owned())),
    }
}

/// JSON of a recording, as the session takes it.
pub(super) fn json(value: &Value) -> Json {
    Json::encode(value).expect("what was recorded is JSON")
}
