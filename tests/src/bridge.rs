//! A gateway with everything around it: an agent, apps, virtual time, and legs that nobody reads for a while.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol_core::tesseron::App;
use protocol_core::{Config, Identity, Instant, Invoke, Op, RateWindow, Session, Stats, TransportEnd};
use serde_json::Value;
use tesseron::bridge::{Bridge, BridgeConfig, BridgeEvent, ClaimId, Leg};
use tesseron::claims::{AppId, BoundDial, ChannelId, ClaimCode, OpenRefused, ResumeToken, SessionId};

use testkit::config::client_config;
use testkit::scripted::{initialize, json, notification, request};
use testkit::{Rng, Scripted};

/// The actions of an app that is told nothing else.
pub const ACTIONS: &str = r#"[{"name":"t","description":"","inputSchema":{"type":"object"}}]"#;
/// The resources of an app that is told nothing else.
pub const RESOURCES: &str = r#"[{"name":"balance","description":"Money","subscribable":true}]"#;
/// An agent that can answer everything.
pub const DECLARES: &str = r#"{"sampling":{},"elicitation":{}}"#;
/// The wall clock at the birth of a house, in milliseconds of the epoch.
pub const EPOCH_MS: u64 = 1_795_259_462_592;

/// A frame that was sent to a leg, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// In milliseconds.
    pub at: u64,
    /// The frame.
    pub text: String,
}

/// What is at the far end of a leg.
#[derive(Debug, Default)]
struct Peer {
    /// A session of its own; without one the test says what it says.
    end: Option<Box<Scripted>>,
    /// What it has said and the bridge does not read yet.
    said: VecDeque<String>,
    heard: Vec<Heard>,
    /// Reads nothing.
    stalled: bool,
}

/// An app at the far end of a channel.
#[derive(Debug)]
pub struct Guest {
    /// Its channel.
    pub channel: ChannelId,
    /// What claims it, as the owner of the bridge was told.
    pub code: Option<String>,
    /// Its channel is over, as the owner of the bridge was told.
    pub gone: bool,
    peer: Peer,
}

/// A bridge, its agent, its apps and its clock. What anybody says is carried at once to whoever reads.
#[derive(Debug)]
pub struct House {
    /// The gateway.
    pub bridge: Bridge,
    /// What its verbs are given as `now`.
    pub now: Instant,
    /// The apps, in the order in which they were dialled.
    pub guests: Vec<Guest>,
    /// Every frame on every leg, in order: `agent > ..` towards the bridge, `app 0 < ..` from it.
    pub trace: Vec<String>,
    /// What its owner was told and no test has asked for.
    pub told: Vec<BridgeEvent>,
    agent: Peer,
    claims: u64,
}

/// The configuration of a house that is told nothing else.
#[must_use]
pub fn config() -> BridgeConfig {
    BridgeConfig::new(Identity::new("gateway", "1"), EPOCH_MS)
}

/// The configuration of an app with a session of its own, which reports progress without a rate window.
#[must_use]
pub fn app_config(id: &str) -> Config {
    let mut app = App::default();
    (app.actions, app.resources) = (json(ACTIONS), json(RESOURCES));
    let mut config = Config::tesseron_app(&AppId::parse(id).expect("a proper id"), id.to_uppercase(), app);
    config.progress.window = RateWindow::UNLIMITED;
    config
}

impl House {
    /// A bridge whose agent, played by the test, has introduced itself and can answer everything.
    #[must_use]
    pub fn new() -> Self {
        Self::with(config())
    }

    /// The same, of this configuration.
    #[must_use]
    pub fn with(config: BridgeConfig) -> Self {
        Self::for_agent(config, "2025-11-25", DECLARES)
    }

    /// The same, with another revision and other capabilities of the agent.
    #[must_use]
    pub fn for_agent(config: BridgeConfig, revision: &str, declares: &str) -> Self {
        let mut house = Self::empty(config);
        house.agent(&initialize(0, revision, declares));
        house.agent(&notification("notifications/initialized", "{}"));
        house.forget();
        house
    }

    /// A bridge whose agent has said nothing yet.
    #[must_use]
    pub fn empty(config: BridgeConfig) -> Self {
        let mut rng = Rng::new(7);
        let random = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.number() as u8));
        Self {
            bridge: Bridge::new(config, random, Instant::ZERO),
            now: Instant::ZERO,
            guests: Vec::new(),
            trace: Vec::new(),
            told: Vec::new(),
            agent: Peer::default(),
            claims: 0,
        }
    }

    /// A bridge whose agent is a bare session.
    #[must_use]
    pub fn of_sessions(config: BridgeConfig) -> Self {
        let mut house = Self::empty(config);
        house.agent.end = Some(Box::new(Scripted::new(client_config())));
        house.carry();
        house.forget();
        house
    }

    // ---- What is carried ----

    /// Carries what anybody has to say until nobody has anything. What waits for a stalled leg stays.
    #[track_caller]
    pub fn carry(&mut self) -> &mut Self {
        for _ in 0..100_000 {
            if !self.carry_once() {
                return self;
            }
        }
        panic!("a livelock: the legs go on talking for ever");
    }

    fn carry_once(&mut self) -> bool {
        let mut moved = false;
        for leg in self.legs() {
            let at = self.now.as_micros() / 1000;
            while !self.peer(leg).stalled {
                let Some(out) = self.bridge.poll_transmit(leg) else { break };
                let text = String::from_utf8(out.frame.to_vec()).expect("frames are UTF-8");
                self.trace.push(format!("{} < {text}", self.name(leg)));
                let now = self.now;
                let peer = self.peer_mut(leg);
                if let Some(end) = &mut peer.end {
                    end.now = now;
                    end.frame(&text);
                }
                peer.heard.push(Heard { at, text });
                moved = true;
            }
            while let Some(text) = self.peer_mut(leg).end.as_mut().and_then(|end| end.next_sent()) {
                self.peer_mut(leg).said.push_back(text);
            }
            moved |= self.listen(leg);
        }
        while let Some(event) = self.bridge.poll_event() {
            self.on_event(event);
            moved = true;
        }
        moved
    }

    fn on_event(&mut self, event: BridgeEvent) {
        for guest in &mut self.guests {
            match &event {
                BridgeEvent::AppReady { channel, code, .. } if *channel == guest.channel => {
                    guest.code = code.as_ref().map(|code| code.to_string());
                }
                BridgeEvent::AppClosed { channel, .. } => guest.gone |= *channel == guest.channel,
                _ => {}
            }
        }
        self.told.push(event);
    }

    fn say(&mut self, leg: Leg, text: &str) -> &mut Self {
        self.peer_mut(leg).said.push_back(text.to_owned());
        self.listen(leg);
        self.carry()
    }

    /// Hands the bridge what was said on a leg as far as it reads it. What is said on a leg that is over is not heard.
    fn listen(&mut self, leg: Leg) -> bool {
        let mut moved = false;
        while self.bridge.wants_input(leg) || self.bridge.is_closed(leg) {
            let Some(text) = self.peer_mut(leg).said.pop_front() else { break };
            self.trace.push(format!("{} > {text}", self.name(leg)));
            self.bridge.handle_frame(leg, Bytes::from(text), self.now).expect("the bridge reads");
            moved = true;
        }
        moved
    }

    /// The number of frames that wait on a leg for the bridge to read them.
    #[must_use]
    pub fn unread(&self, leg: Leg) -> usize {
        self.peer(leg).said.len()
    }

    /// Every leg that ever was.
    #[must_use]
    pub fn legs(&self) -> Vec<Leg> {
        let apps = self.guests.iter().map(|guest| Leg::App(guest.channel));
        [Leg::Agent].into_iter().chain(apps).collect()
    }

    fn name(&self, leg: Leg) -> String {
        match leg {
            Leg::Agent => String::from("agent"),
            Leg::App(channel) => {
                let place = self.guests.iter().position(|guest| guest.channel == channel);
                format!("app {}", place.expect("a channel of ours"))
            }
        }
    }

    fn peer(&self, leg: Leg) -> &Peer {
        match leg {
            Leg::Agent => &self.agent,
            Leg::App(of) => &self.guests.iter().find(|guest| guest.channel == of).expect("a channel of ours").peer,
        }
    }

    fn peer_mut(&mut self, leg: Leg) -> &mut Peer {
        match leg {
            Leg::Agent => &mut self.agent,
            Leg::App(of) => &mut self.guests.iter_mut().find(|guest| guest.channel == of).expect("a channel of ours").peer,
        }
    }

    /// The leg of an app.
    #[must_use]
    pub fn leg(&self, app: usize) -> Leg {
        Leg::App(self.guests[app].channel)
    }

    // ---- Time ----

    /// Moves the clock to `millis` after the beginning, stopping wherever anybody has a deadline.
    #[track_caller]
    pub fn at(&mut self, millis: u64) -> &mut Self {
        let target = Instant::from_millis(millis);
        loop {
            let ends = self.legs().into_iter().filter_map(|leg| self.peer(leg).end.as_ref()?.session.poll_timeout());
            let next = ends.chain(self.bridge.poll_timeout()).min().filter(|due| *due <= target);
            let Some(due) = next else { break };
            assert!(due > self.now || self.now == Instant::ZERO, "G7: a deadline that lies in the past");
            self.tick(due);
        }
        self.tick(target);
        self
    }

    fn tick(&mut self, now: Instant) {
        self.now = now;
        self.bridge.handle_timeout(now);
        for leg in self.legs() {
            if let Some(end) = &mut self.peer_mut(leg).end {
                end.now = now;
                end.session.handle_timeout(now);
            }
        }
        self.carry();
    }

    /// So many milliseconds later.
    #[track_caller]
    pub fn later(&mut self, millis: u64) -> &mut Self {
        self.at(self.now.as_micros() / 1000 + millis)
    }

    /// The leg is read no longer.
    pub fn stall(&mut self, leg: Leg) -> &mut Self {
        self.peer_mut(leg).stalled = true;
        self
    }

    /// The leg is read again.
    pub fn read(&mut self, leg: Leg) -> &mut Self {
        self.peer_mut(leg).stalled = false;
        self.carry()
    }

    // ---- The agent ----

    /// The agent says this.
    pub fn agent(&mut self, text: &str) -> &mut Self {
        self.say(Leg::Agent, text)
    }

    /// The agent's session, if it is one.
    #[track_caller]
    pub fn agent_end(&mut self) -> &mut Scripted {
        let now = self.now;
        let end = self.agent.end.as_mut().expect("the agent is a session");
        end.now = now;
        end
    }

    /// What the agent has heard since it was asked for.
    pub fn heard(&mut self) -> Vec<String> {
        std::mem::take(&mut self.agent.heard).into_iter().map(|heard| heard.text).collect()
    }

    /// The same, with times.
    pub fn heard_at(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.agent.heard)
    }

    /// Calls a tool; the number is the id, and the progress token too.
    pub fn call(&mut self, id: u64, tool: &str) -> &mut Self {
        self.agent(&call_tool(&id.to_string(), tool, "{}", Some(&id.to_string())))
    }

    /// Calls a tool that answers at once, and gives its result.
    #[track_caller]
    pub fn ask(&mut self, id: u64, tool: &str, arguments: &str) -> Value {
        self.agent(&call_tool(&id.to_string(), tool, arguments, None));
        self.response(id)["result"].clone()
    }

    /// The text of the only block of the result of a tool that answers at once, and whether it failed.
    #[track_caller]
    pub fn ask_text(&mut self, id: u64, tool: &str, arguments: &str) -> (String, bool) {
        text_of(&self.ask(id, tool, arguments))
    }

    /// The names of the tools that are listed.
    #[track_caller]
    pub fn tools(&mut self) -> Vec<String> {
        self.agent(&request(900, "tools/list", "{}"));
        let list = self.response(900)["result"]["tools"].clone();
        list.as_array().expect("tools").iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// The names of the listed tools that are not those of the bridge.
    #[track_caller]
    pub fn app_tools(&mut self) -> Vec<String> {
        self.tools().into_iter().filter(|name| !name.starts_with("tesseron__")).collect()
    }

    /// The one response with this id among what the agent has heard; the rest is forgotten.
    #[track_caller]
    pub fn response(&mut self, id: u64) -> Value {
        let heard = self.heard();
        let mut found = heard.iter().map(|text| value(text)).filter(|frame| frame["id"] == id && frame.get("method").is_none());
        match (found.next(), found.next()) {
            (Some(response), None) => response,
            _ => panic!("not one response {id} among {heard:?}"),
        }
    }

    /// The progress among what the agent has heard, as `value`, `total` and `message`; the rest is forgotten.
    pub fn progress(&mut self) -> Vec<(f64, Option<String>)> {
        let shown = |params: Value| {
            assert_eq!(params["total"], 100.0);
            (params["progress"].as_f64().expect("a number"), params["message"].as_str().map(ToOwned::to_owned))
        };
        self.notifications("notifications/progress").into_iter().map(shown).collect()
    }

    /// The parameters of the notifications of this method among what the agent has heard; the rest is forgotten.
    pub fn notifications(&mut self, method: &str) -> Vec<Value> {
        let frames = self.heard().into_iter().map(|text| value(&text));
        frames.filter(|frame| frame["method"] == method).map(|frame| frame["params"].clone()).collect()
    }

    /// The one request of this method that the agent has heard: its id and its parameters; the rest is forgotten.
    #[track_caller]
    pub fn asked(&mut self, method: &str) -> (Value, Value) {
        one_request(&self.heard(), method)
    }

    // ---- Apps ----

    /// Dials an app that the test plays.
    #[track_caller]
    pub fn dial(&mut self) -> usize {
        let channel = self.bridge.open(self.now).expect("a channel");
        self.seat(channel, None)
    }

    /// Dials an app with a session of its own; it says hello at once.
    #[track_caller]
    pub fn dial_session(&mut self, config: Config) -> usize {
        let channel = self.bridge.open(self.now).expect("a channel");
        self.seat(channel, Some(config))
    }

    /// Tells the bridge that an app which it wanted was dialled.
    ///
    /// # Errors
    /// Those of the bridge.
    pub fn dial_claimed(&mut self, claim: ClaimId, dial: BoundDial) -> Result<usize, OpenRefused> {
        let opened = self.bridge.open_claimed(claim, dial, self.now);
        let app = opened.map(|channel| self.seat(channel, None));
        self.carry();
        app
    }

    /// An app sits at the far end of a channel that was opened. Without a configuration the test plays it.
    pub fn seat(&mut self, channel: ChannelId, config: Option<Config>) -> usize {
        let now = self.now;
        let end = config.map(|config| Box::new(Scripted { session: Session::new(config, now), now }));
        let peer = Peer { end, ..Peer::default() };
        self.guests.push(Guest { channel, code: None, gone: false, peer });
        self.carry();
        self.guests.len() - 1
    }

    /// An app says this.
    pub fn app(&mut self, app: usize, text: &str) -> &mut Self {
        self.say(self.leg(app), text)
    }

    /// An app's session, if it is one.
    #[track_caller]
    pub fn app_end(&mut self, app: usize) -> &mut Scripted {
        let now = self.now;
        let end = self.guests[app].peer.end.as_mut().expect("the app is a session");
        end.now = now;
        end
    }

    /// What an app has heard since it was asked for.
    pub fn app_heard(&mut self, app: usize) -> Vec<String> {
        std::mem::take(&mut self.guests[app].peer.heard).into_iter().map(|heard| heard.text).collect()
    }

    /// Dials an app which says hello, and forgets what that caused.
    #[track_caller]
    pub fn greet(&mut self, id: &str) -> usize {
        let app = self.dial();
        self.app(app, &hello(id, ACTIONS, RESOURCES)).forget();
        app
    }

    /// An app that the test plays, claimed; what that caused is forgotten.
    #[track_caller]
    pub fn join(&mut self, id: &str) -> usize {
        self.join_with(id, ACTIONS, RESOURCES)
    }

    /// The same, with these actions and resources.
    #[track_caller]
    pub fn join_with(&mut self, id: &str, actions: &str, resources: &str) -> usize {
        let app = self.dial();
        self.app(app, &hello(id, actions, resources));
        self.claim(app);
        app
    }

    /// An app with a session of its own, claimed; what that caused is forgotten.
    #[track_caller]
    pub fn join_session(&mut self, config: Config) -> usize {
        let app = self.dial_session(config);
        self.claim(app);
        app
    }

    /// The agent claims an app, and what that caused is forgotten.
    #[track_caller]
    pub fn claim(&mut self, app: usize) -> &mut Self {
        let code = self.guests[app].code.clone().expect("a code");
        self.claims += 1;
        if self.agent.end.is_some() {
            let params = format!(r#"{{"name":"tesseron__claim_session","arguments":{{"code":"{code}"}}}}"#);
            self.agent_end().invoke(Invoke::new(Op::CallTool, json(&params)));
            self.carry();
        } else {
            let id = format!(r#""claim-{}""#, self.claims);
            self.agent(&call_tool(&id, "tesseron__claim_session", &format!(r#"{{"code":"{code}"}}"#), None));
        }
        assert!(self.told.iter().any(|event| matches!(event, BridgeEvent::AppClaimed { .. })), "{:?}", self.told);
        self.forget()
    }

    /// The one invocation that an app has heard; the rest is forgotten.
    #[track_caller]
    pub fn invoked(&mut self, app: usize) -> Invoked {
        let mut all = self.all_invoked(app);
        assert_eq!(all.len(), 1, "not one invocation: {all:?}");
        all.remove(0)
    }

    /// The invocations that an app has heard; the rest is forgotten.
    pub fn all_invoked(&mut self, app: usize) -> Vec<Invoked> {
        self.app_heard(app).iter().filter_map(|text| Invoked::read(text)).collect()
    }

    /// The one request of this method that an app has heard: its id and its parameters; the rest is forgotten.
    #[track_caller]
    pub fn app_asked(&mut self, app: usize, method: &str) -> (Value, Value) {
        one_request(&self.app_heard(app), method)
    }

    /// The one response with this id among what an app has heard; the rest is forgotten.
    #[track_caller]
    pub fn app_response(&mut self, app: usize, id: u64) -> Value {
        let heard = self.app_heard(app);
        let mut found = heard.iter().map(|text| value(text)).filter(|frame| frame["id"] == id && frame.get("method").is_none());
        match (found.next(), found.next()) {
            (Some(response), None) => response,
            _ => panic!("not one response {id} among {heard:?}"),
        }
    }

    /// The transport of a leg ends.
    pub fn end(&mut self, leg: Leg, how: TransportEnd) -> &mut Self {
        self.trace.push(format!("{} ends: {how:?}", self.name(leg)));
        self.bridge.handle_end(leg, how, self.now);
        self.carry()
    }

    /// An app is gone all of a sudden.
    pub fn lose(&mut self, app: usize) -> &mut Self {
        self.end(self.leg(app), TransportEnd::Failed)
    }

    // ---- The owner ----

    /// What the owner was told since it was asked for.
    pub fn events(&mut self) -> Vec<BridgeEvent> {
        std::mem::take(&mut self.told)
    }

    /// The one claim that the owner is to work on; what else it was told is forgotten.
    #[track_caller]
    pub fn wanted(&mut self) -> (ClaimId, ClaimCode) {
        let events = self.events();
        let mut wanted = events.iter().filter_map(|event| match event {
            BridgeEvent::ClaimWanted { claim, code } => Some((*claim, code.clone())),
            _ => None,
        });
        match (wanted.next(), wanted.next()) {
            (Some(wanted), None) => wanted,
            _ => panic!("not one claim is wanted: {events:?}"),
        }
    }

    /// Forgets what everybody has heard and the owner was told.
    pub fn forget(&mut self) -> &mut Self {
        self.told.clear();
        self.agent.heard.clear();
        for guest in &mut self.guests {
            guest.peer.heard.clear();
        }
        if let Some(end) = &mut self.agent.end {
            end.events();
        }
        self
    }

    /// What the session of a leg has counted.
    #[track_caller]
    pub fn stats(&self, leg: Leg) -> Stats {
        self.bridge.stats(leg).unwrap_or_default()
    }

    /// Nothing runs, nothing waits, nothing is kept.
    #[track_caller]
    pub fn assert_idle(&self) {
        assert_eq!(self.bridge.in_flight(), 0, "the bridge keeps something");
        for leg in self.legs() {
            let stats = self.stats(leg);
            let held = [
                stats.outbound_calls,
                stats.inbound_calls,
                stats.orphans,
                stats.exchanges_in,
                stats.exchanges_out,
                stats.queued_bytes,
            ];
            assert_eq!(held, [0; 6], "{} keeps something", self.name(leg));
        }
    }
}

impl Default for House {
    fn default() -> Self {
        Self::new()
    }
}

/// An invocation as an app hears it.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// What the response names.
    pub id: Value,
    /// What progress and questions name.
    pub invocation: String,
    /// Which action.
    pub name: String,
    /// The whole frame.
    pub text: String,
}

impl Invoked {
    /// Reads a frame, if it is one.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let frame = value(text);
        let text = text.to_owned();
        let part = |name: &str| frame["params"][name].as_str().map(ToOwned::to_owned);
        (frame["method"] == "actions/invoke").then(|| Self {
            id: frame["id"].clone(),
            invocation: part("invocationId").expect("it has a name"),
            name: part("name").expect("an action"),
            text,
        })
    }

    /// Its end with this output.
    #[must_use]
    pub fn output(&self, output: &str) -> String {
        let Self { id, invocation, .. } = self;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"invocationId":"{invocation}","output":{output}}}}}"#)
    }

    /// Its end with this error.
    #[must_use]
    pub fn error(&self, code: i64, message: &str, data: Option<&str>) -> String {
        let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"{message}"{data}}}}}"#, self.id)
    }

    /// Its progress; `members` is what comes after its name, each with a comma before it.
    #[must_use]
    pub fn progress(&self, members: &str) -> String {
        testkit::tesseron::progress(&self.invocation, members)
    }

    /// Asks the agent's model on its behalf.
    #[must_use]
    pub fn sample(&self, id: u64) -> String {
        testkit::tesseron::sample(id, &self.invocation)
    }

    /// Asks the agent's user on its behalf.
    #[must_use]
    pub fn elicit(&self, id: u64, schema: &str) -> String {
        let params = format!(r#"{{"invocationId":"{}","question":"Sure?","schema":{schema}}}"#, self.invocation);
        request(id, "elicitation/request", &params)
    }

    /// Asks the agent's user for a yes on its behalf.
    #[must_use]
    pub fn confirm(&self, id: u64) -> String {
        self.elicit(id, r#"{"type":"object","properties":{},"required":[]}"#)
    }
}

// ---- Frames ----

/// A frame as a value.
#[must_use]
pub fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn one_request(heard: &[String], method: &str) -> (Value, Value) {
    let mut found = heard.iter().map(|text| value(text)).filter(|frame| frame["method"] == method && frame.get("id").is_some());
    match (found.next(), found.next()) {
        (Some(frame), None) => (frame["id"].clone(), frame["params"].clone()),
        _ => panic!("not one {method} among {heard:?}"),
    }
}

/// The text of the only block of a tool's result, and whether it failed.
#[must_use]
pub fn text_of(result: &Value) -> (String, bool) {
    let blocks = result["content"].as_array().expect("content");
    assert_eq!(blocks.len(), 1, "{result}");
    (blocks[0]["text"].as_str().expect("text").to_owned(), result["isError"] == true)
}

/// A frame that calls a tool. `id` and `token` are JSON.
#[must_use]
pub fn call_tool(id: &str, tool: &str, arguments: &str, token: Option<&str>) -> String {
    let meta = token.map(|token| format!(r#","_meta":{{"progressToken":{token}}}"#)).unwrap_or_default();
    let name = Value::from(tool);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name},"arguments":{arguments}{meta}}}}}"#)
}

/// A frame with the result of a question. `id` is JSON.
#[must_use]
pub fn answered(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A frame with the refusal of a question. `id` is JSON.
#[must_use]
pub fn refused(id: &Value, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

/// The answer of a model.
#[must_use]
pub fn sampled(id: &Value, text: &str) -> String {
    answered(id, &format!(r#"{{"role":"assistant","content":{{"type":"text","text":"{text}"}},"model":"m"}}"#))
}

/// The hello of an app.
#[must_use]
pub fn hello(app: &str, actions: &str, resources: &str) -> String {
    request(1, "tesseron/hello", &manifest(app, actions, resources, ""))
}

/// The hello of an app that comes back.
#[must_use]
pub fn resume(app: &str, session_id: &str, resume_token: &str) -> String {
    let credentials = format!(r#""sessionId":"{session_id}","resumeToken":"{resume_token}","#);
    request(1, "tesseron/resume", &manifest(app, ACTIONS, RESOURCES, &credentials))
}

/// What an app says of itself.
#[must_use]
pub fn manifest(app: &str, actions: &str, resources: &str, credentials: &str) -> String {
    let name = app.to_uppercase();
    format!(
        r#"{{"protocolVersion":"1.2.0",{credentials}"app":{{"id":"{app}","name":"{name}","origin":"here"}},"actions":{actions},"resources":{resources},"capabilities":{{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true}}}}"#
    )
}

/// The claim of an app that is dialled with its code.
#[must_use]
pub fn bound(code: &str, session_id: &str, token: &str) -> BoundDial {
    BoundDial {
        code: ClaimCode::parse(code).expect("a code"),
        session_id: SessionId::parse(session_id).expect("an id"),
        resume_token: ResumeToken::parse(token).expect("a token"),
    }
}

/// What an app was welcomed with: the id of its session, and what resumes it.
#[must_use]
pub fn credentials(welcome: &Value) -> (String, String) {
    let part = |name: &str| welcome["result"][name].as_str().expect("a welcome").to_owned();
    (part("sessionId"), part("resumeToken"))
}
