//! A test rig around a bridge: an agent, apps, virtual time, and legs that can be stalled.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol_core::tesseron::App;
use protocol_core::{Config, Identity, Instant, Invoke, Op, RateWindow, Stats, TransportEnd};
use serde_json::Value;
use tesseron::bridge::{Bridge, BridgeConfig, BridgeEvent, ClaimId, Leg};
use tesseron::claims::{AppId, BoundDial, ChannelId, ClaimCode, OpenRefused, ResumeToken, SessionId};

use testkit::config::client_config;
use testkit::scripted::{initialize, json, notification, request};
use testkit::{Rng, Scripted};

/// The default actions of an app.
pub const ACTIONS: &str = r#"[{"name":"t","description":"","inputSchema":{"type":"object"}}]"#;
/// The default resources of an app.
pub const RESOURCES: &str = r#"[{"name":"balance","description":"Money","subscribable":true}]"#;
/// The capabilities of an agent that supports every input request.
pub const DECLARES: &str = r#"{"sampling":{},"elicitation":{}}"#;
/// The wall clock at the beginning of a test, in milliseconds since 1970.
pub const EPOCH_MS: u64 = 1_795_259_462_592;

/// A fault of a gateway: returns the frames that the far end of a leg gets in place of a frame that the bridge sends.
pub type GatewayFault = fn(Leg, String) -> Vec<String>;

/// A frame that the far end of a leg has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// The time of its arrival, in milliseconds after the beginning of the test.
    pub at: u64,
    /// The frame.
    pub text: String,
}

/// The far end of a leg.
#[derive(Debug, Default)]
struct Peer {
    /// The session of the peer; if `None`, the test writes the frames of the peer.
    end: Option<Box<Scripted>>,
    /// The frames that the peer has sent and the bridge has not read yet.
    unread_frames: VecDeque<String>,
    received: Vec<ReceivedFrame>,
    /// `true` while the peer reads nothing.
    stalled: bool,
}

/// An app at the far end of a channel.
#[derive(Debug)]
pub struct ConnectedApp {
    /// The channel.
    pub channel: ChannelId,
    /// The claim code, from [`BridgeEvent::AppReady`]. `None` before this event, and if the app was already claimed then.
    pub code: Option<String>,
    /// `true` if the bridge has reported that the channel is closed.
    pub gone: bool,
    peer: Peer,
}

/// A bridge, its agent, its apps and its clock. Each frame is delivered at once, unless its leg is stalled.
#[derive(Debug)]
pub struct Rig {
    /// The bridge.
    pub bridge: Bridge,
    /// The current virtual time, which methods of the bridge and of the sessions get.
    pub now: Instant,
    /// The apps, in the order in which they were dialled.
    pub apps: Vec<ConnectedApp>,
    /// Every frame on every leg, and the end of each transport, in order: `agent > ..` to the bridge, `app 0 < ..` from it.
    pub trace: Vec<String>,
    /// The events that no test has taken yet.
    pub untaken_events: Vec<BridgeEvent>,
    /// A fault that a test must detect. `None` by default.
    pub fault: Option<GatewayFault>,
    agent: Peer,
    claims: u64,
}

/// The default configuration of the bridge.
#[must_use]
pub fn config() -> BridgeConfig {
    BridgeConfig::new(Identity::new("gateway", "1"), EPOCH_MS)
}

/// The configuration of an app with a session of its own, which reports progress without a rate window.
#[must_use]
pub fn app_config(id: &str) -> Config {
    let mut app = App::default();
    (app.actions, app.resources) = (json(ACTIONS), json(RESOURCES));
    let mut config = Config::tesseron_app(&AppId::parse(id).expect("a valid id"), id.to_uppercase(), app);
    config.progress.window = RateWindow::UNLIMITED;
    config
}

impl Rig {
    /// A bridge whose agent has made its handshake and supports every input request. The test writes the frames of the agent.
    #[must_use]
    pub fn new() -> Self {
        Self::with(config())
    }

    /// A bridge like that of [`Self::new`], with this configuration.
    #[must_use]
    pub fn with(config: BridgeConfig) -> Self {
        Self::for_agent(config, "2025-11-25", DECLARES)
    }

    /// A bridge like that of [`Self::with`], whose agent has this revision and these capabilities.
    #[must_use]
    pub fn for_agent(config: BridgeConfig, revision: &str, declares: &str) -> Self {
        let mut rig = Self::empty(config);
        rig.agent(&initialize(0, revision, declares));
        rig.agent(&notification("notifications/initialized", "{}"));
        rig.drop_received();
        rig
    }

    /// A bridge whose agent has sent nothing yet.
    #[must_use]
    pub fn empty(config: BridgeConfig) -> Self {
        let mut rng = Rng::new(7);
        let random = Box::new(move |bytes: &mut [u8]| bytes.fill_with(|| rng.number() as u8));
        Self {
            bridge: Bridge::new(config, random, Instant::ZERO),
            now: Instant::ZERO,
            apps: Vec::new(),
            trace: Vec::new(),
            untaken_events: Vec::new(),
            fault: None,
            agent: Peer::default(),
            claims: 0,
        }
    }

    /// A bridge whose agent has a session of its own.
    #[must_use]
    pub fn of_sessions(config: BridgeConfig) -> Self {
        let mut rig = Self::empty(config);
        rig.agent.end = Some(Box::new(Scripted::new(client_config())));
        rig.deliver();
        rig.drop_received();
        rig
    }

    // ---- Delivery of frames ----

    /// Delivers frames until there are no more, except for those of stalled legs.
    #[track_caller]
    pub fn deliver(&mut self) -> &mut Self {
        for _ in 0..100_000 {
            if !self.deliver_once() {
                return self;
            }
        }
        panic!("a livelock: the legs send frames without end");
    }

    /// Delivers the frames that are queued on each leg, once. Returns `false` if there were no frames and no events.
    fn deliver_once(&mut self) -> bool {
        let mut moved = false;
        for leg in self.legs() {
            let at = self.now.as_micros() / 1000;
            while !self.peer(leg).stalled {
                let Some(out) = self.bridge.poll_transmit(leg) else { break };
                let text = String::from_utf8(out.frame.to_vec()).expect("frames are UTF-8");
                let arriving = if let Some(fault) = self.fault { fault(leg, text) } else { vec![text] };
                for text in arriving {
                    self.trace.push(format!("{} < {text}", self.name(leg)));
                    let now = self.now;
                    let peer = self.peer_mut(leg);
                    if let Some(end) = &mut peer.end {
                        end.now = now;
                        end.frame(&text);
                    }
                    peer.received.push(ReceivedFrame { at, text });
                }
                moved = true;
            }
            while let Some(text) = self.peer_mut(leg).end.as_mut().and_then(|end| end.next_sent()) {
                self.peer_mut(leg).unread_frames.push_back(text);
            }
            moved |= self.read_from(leg);
        }
        while let Some(event) = self.bridge.poll_event() {
            self.handle_event(event);
            moved = true;
        }
        moved
    }

    fn handle_event(&mut self, event: BridgeEvent) {
        for app in &mut self.apps {
            match &event {
                BridgeEvent::AppReady { channel, code, .. } if *channel == app.channel => {
                    app.code = code.as_ref().map(|code| code.to_string());
                }
                BridgeEvent::AppClosed { channel, .. } => app.gone |= *channel == app.channel,
                _ => {}
            }
        }
        self.untaken_events.push(event);
    }

    fn send_from(&mut self, leg: Leg, text: &str) -> &mut Self {
        self.peer_mut(leg).unread_frames.push_back(text.to_owned());
        self.read_from(leg);
        self.deliver()
    }

    /// Passes the frames of a far end to the bridge, as far as the bridge reads them. On a closed leg the frames have no effect. Returns
    /// `true` if there was a frame to pass.
    fn read_from(&mut self, leg: Leg) -> bool {
        let mut moved = false;
        while self.bridge.wants_input(leg) || self.bridge.is_closed(leg) {
            let Some(text) = self.peer_mut(leg).unread_frames.pop_front() else { break };
            self.trace.push(format!("{} > {text}", self.name(leg)));
            self.bridge.handle_frame(leg, Bytes::from(text), self.now).expect("the bridge reads");
            moved = true;
        }
        moved
    }

    /// The number of frames that the far end of a leg has sent and the bridge has not read.
    #[must_use]
    pub fn unread(&self, leg: Leg) -> usize {
        self.peer(leg).unread_frames.len()
    }

    /// Every leg since the beginning, open or closed.
    #[must_use]
    pub fn legs(&self) -> Vec<Leg> {
        let apps = self.apps.iter().map(|app| Leg::App(app.channel));
        [Leg::Agent].into_iter().chain(apps).collect()
    }

    fn name(&self, leg: Leg) -> String {
        match leg {
            Leg::Agent => String::from("agent"),
            Leg::App(channel) => {
                let place = self.apps.iter().position(|app| app.channel == channel);
                format!("app {}", place.expect("a channel of ours"))
            }
        }
    }

    fn peer(&self, leg: Leg) -> &Peer {
        match leg {
            Leg::Agent => &self.agent,
            Leg::App(of) => &self.apps.iter().find(|app| app.channel == of).expect("a channel of ours").peer,
        }
    }

    fn peer_mut(&mut self, leg: Leg) -> &mut Peer {
        match leg {
            Leg::Agent => &mut self.agent,
            Leg::App(of) => &mut self.apps.iter_mut().find(|app| app.channel == of).expect("a channel of ours").peer,
        }
    }

    /// The leg of an app.
    #[must_use]
    pub fn leg(&self, app: usize) -> Leg {
        Leg::App(self.apps[app].channel)
    }

    // ---- Time ----

    /// Moves the clock to `millis` after the beginning, and stops at each deadline on the way.
    #[track_caller]
    pub fn at(&mut self, millis: u64) -> &mut Self {
        let target = Instant::from_millis(millis);
        loop {
            let ends = self.legs().into_iter().filter_map(|leg| self.peer(leg).end.as_ref()?.session.poll_timeout());
            let next = ends.chain(self.bridge.poll_timeout()).min().filter(|due| *due <= target);
            let Some(due) = next else { break };
            assert!(due > self.now || self.now == Instant::ZERO, "G7: a deadline in the past");
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
        self.deliver();
    }

    /// Moves the clock forward by `millis`.
    #[track_caller]
    pub fn later(&mut self, millis: u64) -> &mut Self {
        self.at(self.now.as_micros() / 1000 + millis)
    }

    /// Stops reading at the far end of a leg.
    pub fn stall(&mut self, leg: Leg) -> &mut Self {
        self.peer_mut(leg).stalled = true;
        self
    }

    /// Reads at the far end of a leg again.
    pub fn resume(&mut self, leg: Leg) -> &mut Self {
        self.peer_mut(leg).stalled = false;
        self.deliver()
    }

    // ---- The agent ----

    /// Sends a frame of the agent.
    pub fn agent(&mut self, text: &str) -> &mut Self {
        self.send_from(Leg::Agent, text)
    }

    /// The session of the agent.
    #[track_caller]
    pub fn agent_end(&mut self) -> &mut Scripted {
        let now = self.now;
        let end = self.agent.end.as_mut().expect("the agent is a session");
        end.now = now;
        end
    }

    /// Takes the frames that the agent has received.
    pub fn agent_received(&mut self) -> Vec<String> {
        std::mem::take(&mut self.agent.received).into_iter().map(|received| received.text).collect()
    }

    /// Takes the frames that the agent has received, with their times.
    pub fn agent_received_at(&mut self) -> Vec<ReceivedFrame> {
        std::mem::take(&mut self.agent.received)
    }

    /// Calls a tool; `id` is also the progress token.
    pub fn call(&mut self, id: u64, tool: &str) -> &mut Self {
        self.agent(&call_tool(&id.to_string(), tool, "{}", Some(&id.to_string())))
    }

    /// Calls a tool that answers at once, and returns its result.
    #[track_caller]
    pub fn call_result(&mut self, id: u64, tool: &str, arguments: &str) -> Value {
        self.agent(&call_tool(&id.to_string(), tool, arguments, None));
        self.response(id)["result"].clone()
    }

    /// Calls a tool that answers at once. Returns the text of the only block of its result, and `true` if it failed.
    #[track_caller]
    pub fn call_text(&mut self, id: u64, tool: &str, arguments: &str) -> (String, bool) {
        text_of(&self.call_result(id, tool, arguments))
    }

    /// The names of the listed tools.
    #[track_caller]
    pub fn tools(&mut self) -> Vec<String> {
        self.agent(&request(900, "tools/list", "{}"));
        let list = self.response(900)["result"]["tools"].clone();
        list.as_array().expect("tools").iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// The names of the listed tools without those of the bridge itself.
    #[track_caller]
    pub fn app_tools(&mut self) -> Vec<String> {
        self.tools().into_iter().filter(|name| !name.starts_with("tesseron__")).collect()
    }

    /// The one response with this id among the frames that the agent has received; the other frames are dropped.
    #[track_caller]
    pub fn response(&mut self, id: u64) -> Value {
        let received = self.agent_received();
        let mut found = received.iter().map(|text| value(text)).filter(|frame| frame["id"] == id && frame.get("method").is_none());
        match (found.next(), found.next()) {
            (Some(response), None) => response,
            _ => panic!("not one response {id} among {received:?}"),
        }
    }

    /// The progress among the frames that the agent has received, as value and message; the other frames are dropped.
    pub fn progress(&mut self) -> Vec<(f64, Option<String>)> {
        let shown = |params: Value| {
            assert_eq!(params["total"], 100.0);
            (params["progress"].as_f64().expect("a number"), params["message"].as_str().map(ToOwned::to_owned))
        };
        self.notifications("notifications/progress").into_iter().map(shown).collect()
    }

    /// The parameters of the notifications of this method that the agent has received; the other frames are dropped.
    pub fn notifications(&mut self, method: &str) -> Vec<Value> {
        let frames = self.agent_received().into_iter().map(|text| value(&text));
        frames.filter(|frame| frame["method"] == method).map(|frame| frame["params"].clone()).collect()
    }

    /// The id and the parameters of the one request of this method that the agent has received; the other frames are dropped.
    #[track_caller]
    pub fn agent_request(&mut self, method: &str) -> (Value, Value) {
        one_request(&self.agent_received(), method)
    }

    // ---- Apps ----

    /// Connects an app whose frames the test writes. Returns its place in [`Self::apps`].
    #[track_caller]
    pub fn dial(&mut self) -> usize {
        let channel = self.bridge.open(self.now).expect("a channel");
        self.seat(channel, None)
    }

    /// Connects an app with a session of its own, which sends its hello at once. Returns its place in [`Self::apps`].
    #[track_caller]
    pub fn dial_session(&mut self, config: Config) -> usize {
        let channel = self.bridge.open(self.now).expect("a channel");
        self.seat(channel, Some(config))
    }

    /// Passes to the bridge a channel to an app, after the bridge has requested the claim of the app by [`BridgeEvent::ClaimWanted`].
    ///
    /// # Errors
    /// Those of the bridge.
    pub fn dial_claimed(&mut self, claim: ClaimId, dial: BoundDial) -> Result<usize, OpenRefused> {
        let opened = self.bridge.open_claimed(claim, dial, self.now);
        let app = opened.map(|channel| self.seat(channel, None));
        self.deliver();
        app
    }

    /// Adds an app at the far end of an open channel. Without a configuration the test writes the frames of the app.
    pub fn seat(&mut self, channel: ChannelId, config: Option<Config>) -> usize {
        let now = self.now;
        let end = config.map(|config| Box::new(Scripted::since(config, now)));
        let peer = Peer { end, ..Peer::default() };
        self.apps.push(ConnectedApp { channel, code: None, gone: false, peer });
        self.deliver();
        self.apps.len() - 1
    }

    /// Sends a frame of an app.
    pub fn app(&mut self, app: usize, text: &str) -> &mut Self {
        self.send_from(self.leg(app), text)
    }

    /// The session of an app.
    #[track_caller]
    pub fn app_end(&mut self, app: usize) -> &mut Scripted {
        let now = self.now;
        let end = self.apps[app].peer.end.as_mut().expect("the app is a session");
        end.now = now;
        end
    }

    /// Takes the frames that an app has received.
    pub fn app_received(&mut self, app: usize) -> Vec<String> {
        std::mem::take(&mut self.apps[app].peer.received).into_iter().map(|received| received.text).collect()
    }

    /// Connects an app and sends its hello. The resulting frames and events are dropped.
    #[track_caller]
    pub fn greet(&mut self, id: &str) -> usize {
        let app = self.dial();
        self.app(app, &hello(id, ACTIONS, RESOURCES)).drop_received();
        app
    }

    /// Connects and claims an app whose frames the test writes. The resulting frames and events are dropped.
    #[track_caller]
    pub fn join(&mut self, id: &str) -> usize {
        self.join_with(id, ACTIONS, RESOURCES)
    }

    /// Connects and claims an app like [`Self::join`], with these actions and resources.
    #[track_caller]
    pub fn join_with(&mut self, id: &str, actions: &str, resources: &str) -> usize {
        let app = self.dial();
        self.app(app, &hello(id, actions, resources));
        self.claim(app);
        app
    }

    /// Connects and claims an app with a session of its own. The resulting frames and events are dropped.
    #[track_caller]
    pub fn join_session(&mut self, config: Config) -> usize {
        let app = self.dial_session(config);
        self.claim(app);
        app
    }

    /// Claims an app for the agent. The resulting frames and events are dropped.
    #[track_caller]
    pub fn claim(&mut self, app: usize) -> &mut Self {
        let code = self.apps[app].code.clone().expect("a code");
        self.claims += 1;
        if self.agent.end.is_some() {
            let params = format!(r#"{{"name":"tesseron__claim_session","arguments":{{"code":"{code}"}}}}"#);
            self.agent_end().invoke(Invoke::new(Op::CallTool, json(&params)));
            self.deliver();
        } else {
            let id = format!(r#""claim-{}""#, self.claims);
            self.agent(&call_tool(&id, "tesseron__claim_session", &format!(r#"{{"code":"{code}"}}"#), None));
        }
        assert!(
            self.untaken_events.iter().any(|event| matches!(event, BridgeEvent::AppClaimed { .. })),
            "{:?}",
            self.untaken_events
        );
        self.drop_received()
    }

    /// The one invocation that an app has received; the other frames are dropped.
    #[track_caller]
    pub fn invoked(&mut self, app: usize) -> Invoked {
        let mut all = self.all_invoked(app);
        assert_eq!(all.len(), 1, "not one invocation: {all:?}");
        all.remove(0)
    }

    /// The invocations that an app has received; the other frames are dropped.
    pub fn all_invoked(&mut self, app: usize) -> Vec<Invoked> {
        self.app_received(app).iter().filter_map(|text| Invoked::read(text)).collect()
    }

    /// The id and the parameters of the one request of this method that an app has received; the other frames are dropped.
    #[track_caller]
    pub fn app_request(&mut self, app: usize, method: &str) -> (Value, Value) {
        one_request(&self.app_received(app), method)
    }

    /// The one response with this id that an app has received; the other frames are dropped.
    #[track_caller]
    pub fn app_response(&mut self, app: usize, id: u64) -> Value {
        let received = self.app_received(app);
        let mut found = received.iter().map(|text| value(text)).filter(|frame| frame["id"] == id && frame.get("method").is_none());
        match (found.next(), found.next()) {
            (Some(response), None) => response,
            _ => panic!("not one response {id} among {received:?}"),
        }
    }

    /// Ends the transport of a leg.
    pub fn end(&mut self, leg: Leg, how: TransportEnd) -> &mut Self {
        self.trace.push(format!("{} ends: {how:?}", self.name(leg)));
        self.bridge.handle_end(leg, how, self.now);
        self.deliver()
    }

    /// Breaks the connection of an app.
    pub fn lose(&mut self, app: usize) -> &mut Self {
        self.end(self.leg(app), TransportEnd::Failed)
    }

    // ---- The owner ----

    /// Takes the events of the bridge.
    pub fn events(&mut self) -> Vec<BridgeEvent> {
        std::mem::take(&mut self.untaken_events)
    }

    /// The one claim for which the bridge has requested a channel from its owner; the other events are dropped.
    #[track_caller]
    pub fn wanted_claim(&mut self) -> (ClaimId, ClaimCode) {
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

    /// Drops all received frames, the events of the bridge, and those of the session of the agent.
    pub fn drop_received(&mut self) -> &mut Self {
        self.untaken_events.clear();
        self.agent.received.clear();
        for app in &mut self.apps {
            app.peer.received.clear();
        }
        if let Some(end) = &mut self.agent.end {
            end.events();
        }
        self
    }

    /// The statistics of the session of a leg; all zero if the bridge no longer has that session.
    #[track_caller]
    pub fn stats(&self, leg: Leg) -> Stats {
        self.bridge.stats(leg).unwrap_or_default()
    }

    /// Checks that the bridge and its legs have no calls, no queued frames and no other state of calls.
    #[track_caller]
    pub fn assert_idle(&self) {
        assert_eq!(self.bridge.in_flight(), 0, "the bridge has calls");
        for leg in self.legs() {
            let stats = self.stats(leg);
            let counts = [
                stats.outbound_calls,
                stats.inbound_calls,
                stats.cancelled_calls,
                stats.exchanges_in,
                stats.exchanges_out,
                stats.queued_bytes,
            ];
            assert_eq!(counts, [0; 6], "{} has state", self.name(leg));
        }
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

/// An invocation that an app has received.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// The request id.
    pub id: Value,
    /// The invocation id.
    pub invocation: String,
    /// The name of the action.
    pub name: String,
    /// The whole frame.
    pub text: String,
}

impl Invoked {
    /// Reads a frame. Returns `None` if it is no invocation.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let frame = value(text);
        let text = text.to_owned();
        let part = |name: &str| frame["params"][name].as_str().map(ToOwned::to_owned);
        (frame["method"] == "actions/invoke").then(|| Self {
            id: frame["id"].clone(),
            invocation: part("invocationId").expect("an invocation id"),
            name: part("name").expect("an action"),
            text,
        })
    }

    /// A response with this output.
    #[must_use]
    pub fn output(&self, output: &str) -> String {
        let Self { id, invocation, .. } = self;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"invocationId":"{invocation}","output":{output}}}}}"#)
    }

    /// A response with this error.
    #[must_use]
    pub fn error(&self, code: i64, message: &str, data: Option<&str>) -> String {
        let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"{message}"{data}}}}}"#, self.id)
    }

    /// Progress; `members` are the members after the invocation id, each with a comma before it.
    #[must_use]
    pub fn progress(&self, members: &str) -> String {
        testkit::tesseron::progress(&self.invocation, members)
    }

    /// A sampling request on behalf of the invocation.
    #[must_use]
    pub fn sample(&self, id: u64) -> String {
        testkit::tesseron::sample(id, &self.invocation)
    }

    /// An elicitation request on behalf of the invocation.
    #[must_use]
    pub fn elicit(&self, id: u64, schema: &str) -> String {
        let params = format!(r#"{{"invocationId":"{}","question":"Sure?","schema":{schema}}}"#, self.invocation);
        request(id, "elicitation/request", &params)
    }

    /// A confirmation request on behalf of the invocation.
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
fn one_request(received: &[String], method: &str) -> (Value, Value) {
    let mut found = received.iter().map(|text| value(text)).filter(|frame| frame["method"] == method && frame.get("id").is_some());
    match (found.next(), found.next()) {
        (Some(frame), None) => (frame["id"].clone(), frame["params"].clone()),
        _ => panic!("not one {method} among {received:?}"),
    }
}

/// The text of the only block of a tool's result, and `true` if the tool failed.
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

/// A frame with the answer to an input request. `id` is JSON.
#[must_use]
pub fn answered(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A frame with the refusal of an input request. `id` is JSON.
#[must_use]
pub fn refused(id: &Value, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

/// A frame with the answer to a sampling request.
#[must_use]
pub fn sampled(id: &Value, text: &str) -> String {
    answered(id, &format!(r#"{{"role":"assistant","content":{{"type":"text","text":"{text}"}},"model":"m"}}"#))
}

/// The hello of an app.
#[must_use]
pub fn hello(app: &str, actions: &str, resources: &str) -> String {
    request(1, "tesseron/hello", &manifest(app, actions, resources, ""))
}

/// The resume request of an app.
#[must_use]
pub fn resume(app: &str, session_id: &str, resume_token: &str) -> String {
    let credentials = format!(r#""sessionId":"{session_id}","resumeToken":"{resume_token}","#);
    request(1, "tesseron/resume", &manifest(app, ACTIONS, RESOURCES, &credentials))
}

/// The parameters of a hello or a resume. `credentials` are the members that only a resume has, each with a comma after it.
#[must_use]
pub fn manifest(app: &str, actions: &str, resources: &str, credentials: &str) -> String {
    let name = app.to_uppercase();
    format!(
        r#"{{"protocolVersion":"1.2.0",{credentials}"app":{{"id":"{app}","name":"{name}","origin":"here"}},"actions":{actions},"resources":{resources},"capabilities":{{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true}}}}"#
    )
}

/// The claim of an app to which the gateway has connected with the app's code.
#[must_use]
pub fn bound(code: &str, session_id: &str, token: &str) -> BoundDial {
    BoundDial {
        code: ClaimCode::parse(code).expect("a code"),
        session_id: SessionId::parse(session_id).expect("an id"),
        resume_token: ResumeToken::parse(token).expect("a token"),
    }
}

/// The session id and the resume token in a welcome.
#[must_use]
pub fn credentials(welcome: &Value) -> (String, String) {
    let part = |name: &str| welcome["result"][name].as_str().expect("a welcome").to_owned();
    (part("sessionId"), part("resumeToken"))
}
