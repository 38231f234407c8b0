//! The gateway between one MCP client, the agent, and any number of Tesseron apps: as pure as a [`Session`], with the same verbs,
//! each told on which [`Leg`].
//!
//! A bridge owns the sessions of its legs. Whatever happens on one leg is carried to where it belongs before the verb returns, so
//! that there is nothing in between that could wait, grow or be lost:
//!
//! | the agent | an app |
//! |---|---|
//! | `tools/call` | `actions/invoke` |
//! | `notifications/progress` | `actions/progress` |
//! | `notifications/cancelled` | `actions/cancel` |
//! | `sampling/createMessage`, `elicitation/create` | `sampling/request`, `elicitation/request` |
//! | `resources/*` | `resources/*` |
//! | `notifications/message` | `log` |
//! | `notifications/*/list_changed` | `*/list_changed`, a claim, an app that comes or goes |
//!
//! Payloads cross as bytes; ids, tokens and names of invocations never do. A slow agent merges progress in its own outbox and stops no
//! app; an app that breaks off costs the agent one error for each call that ran there.
//!
//! The [`SessionRegistry`] decides which apps and agents may speak. A task that needs the world outside, such as to dial an app whose code a person has
//! said, is an [`BridgeEvent`].

mod agent;
mod app;
mod app_state;
mod event;
mod iso;
mod manifest;
mod meta;
mod news;
mod speaks_for;
mod subscription;
mod surface;
mod tool_name;
mod translate;
mod watch;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::claims::{BoundDial, ChannelId, ClaimCode, Dial, OpenRefused, Pending, RegistryPolicy, SessionRegistry};
use protocol_core::config::{CallTimeouts, Config, DepthInference, RateWindow};
use protocol_core::dialect::tesseron::GatewayConfig;
use protocol_core::dialect::{Identity, Level};
use protocol_core::json::Text;
use protocol_core::limits::Limits;
use protocol_core::session::{Close, Full, InboundId, InputKey, Lane, Session, Stats, Transmit, TransportEnd};
use protocol_core::time::Instant;

use app_state::App;
pub use event::{BridgeEvent, ClaimId, ShownCode};
use meta::Claiming;
pub use meta::{Advertised, Surface};
use news::News;
use speaks_for::SpeaksFor;
use subscription::Subscription;

/// One channel of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// To the MCP client.
    Agent,
    /// To an app, dialled by [`Bridge::open`].
    App(ChannelId),
}

/// Random bytes that cannot be guessed, for codes and tokens.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// The configuration of a bridge.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BridgeConfig {
    /// The name and version of the gateway, as the agent is told.
    pub identity: Identity,
    /// Which tools are listed. Hidden ones work all the same.
    pub surface: Surface,
    /// The rules for sessions that may come back.
    pub registry: RegistryPolicy,
    /// Every bound of the agent's session; as many subscriptions as calls. Four times as many calls at once as an app may have, so that one stuck app leaves room for
    /// others.
    pub agent_limits: Limits,
    /// Every bound of the session of each app. Of its manifest the first 4096 actions and as many resources are known.
    pub app_limits: Limits,
    /// The clocks of each call to an app. None: the app has its own.
    pub call: CallTimeouts,
    /// The time that an app has for its hello once it was dialled. 5 s.
    pub hello: Duration,
    /// Which call a call belongs to that the agent makes while it samples: MCP does not say. The deepest.
    pub inference: DepthInference,
    /// The wall clock at the birth of the bridge, in milliseconds of the epoch; it is only shown.
    pub epoch_ms: u64,
}

impl BridgeConfig {
    /// A gateway of this name, at this time.
    #[must_use]
    pub fn new(identity: Identity, epoch_ms: u64) -> Self {
        let limits = Limits::default();
        let mut agent_limits = limits;
        agent_limits.in_flight = limits.in_flight.saturating_mul(4);
        Self {
            identity,
            surface: Surface::default(),
            registry: RegistryPolicy::default(),
            agent_limits,
            app_limits: limits,
            call: CallTimeouts::NONE,
            hello: Duration::from_secs(5),
            inference: DepthInference::DeepestOpen,
            epoch_ms,
        }
    }

    fn agent(&self) -> Config {
        let mut config = Config::mcp_server(self.identity.clone());
        let can = &mut config.capabilities;
        (can.tools, can.tools_list_changed) = (true, true);
        (can.resources, can.resources_subscribe, can.resources_list_changed) = (true, true, true);
        config.limits = self.agent_limits;
        // Until the agent sets a level it hears everything, as from the reference.
        config.log_level = Level::Debug;
        // The app throttles; the reference repeats the value for a message, and so do we where the message is another.
        config.progress.window = RateWindow::UNLIMITED;
        config.progress.repeat_value_for_message = true;
        config.depth.inference = self.inference;
        config
    }

    fn app(&self, agent: &SpeaksFor, channel: ChannelId) -> Config {
        let mut config = Config::tesseron_gateway(GatewayConfig::default());
        config.identity = agent.identity().clone();
        config.capabilities = agent.capabilities();
        config.limits = self.app_limits;
        config.timeouts.call = self.call;
        config.timeouts.handshake = Some(self.hello);
        config.first_id = channel.number().saturating_mul(IDS_A_CHANNEL).saturating_add(1);
        config
    }
}

/// So many numbers each channel has for itself: an app that comes back may still talk of calls on the last one. They are exact in JSON for
/// sixteen million channels.
const IDS_A_CHANNEL: u64 = 1 << 28;

/// A question of an app that is open at the agent.
#[derive(Clone, Copy, Debug)]
struct Question {
    channel: ChannelId,
    /// The key of the input request there.
    key: InputKey,
    /// The code of the error that the app is sent when the agent cannot be asked this.
    unavailable: i64,
}

/// The target of a call of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// To an app.
    App(ChannelId, protocol_core::session::OutboundId),
    /// Nowhere yet: the owner looks for an app, or waits for its hello.
    Claim,
}

/// The whole gateway. Owns the sessions of its legs; see the [module](self).
///
/// The verbs of a leg are those of [`Session`]; on a leg that is gone they do nothing. After [`Leg::Agent`] has closed, every app is
/// closed, too.
///
/// `Send` and not `Sync`, as [`Random`] need not be. With the feature `std`, `legs::SharedBridge` is both.
pub struct Bridge {
    config: BridgeConfig,
    random: Random,
    now: Instant,
    born: Instant,
    agent: Session,
    speaks_for: SpeaksFor,
    registry: SessionRegistry,
    apps: BTreeMap<ChannelId, App>,
    /// Calls of the agent that run elsewhere.
    routes: BTreeMap<InboundId, Route>,
    /// Questions of apps that are open at the agent.
    questions: BTreeMap<InputKey, Question>,
    /// The subscriptions of the agent, by uri.
    subscriptions: BTreeMap<Text, Subscription>,
    /// The number of subscriptions that were made.
    subscribed: u64,
    /// Claims that the owner works on.
    claiming: BTreeMap<InboundId, Claiming>,
    /// The code that was refused last, unless one was right after it.
    missed: Option<ClaimCode>,
    /// Apps that the owner knows of and that wait to be dialled.
    advertised: Vec<Advertised>,
    /// News that the agent has not been told for want of room.
    news: News,
    /// Legs on which something has happened that was not carried on. Each change of a leg adds it; only [`Self::pump`] takes it out.
    stirred: BTreeSet<Leg>,
    /// Legs on which something has happened that their drivers were not told: whatever `pump` carried on, until it is polled. A leg that
    /// is gone stays until then, too, since its driver must hang up.
    touched: BTreeSet<Leg>,
    /// The deadline of the session of each leg, and the same by time.
    due: BTreeMap<Leg, Instant>,
    deadlines: BTreeSet<(Instant, Leg)>,
    events: VecDeque<BridgeEvent>,
}

impl Bridge {
    /// A bridge that begins at `now`, with no app yet.
    #[must_use]
    pub fn new(config: BridgeConfig, random: Random, now: Instant) -> Self {
        let mut bridge = Self {
            agent: Session::new(config.agent(), now),
            registry: SessionRegistry::new(config.registry),
            config,
            random,
            now,
            born: now,
            speaks_for: SpeaksFor::pending(),
            apps: BTreeMap::new(),
            routes: BTreeMap::new(),
            questions: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            subscribed: 0,
            claiming: BTreeMap::new(),
            missed: None,
            advertised: Vec::new(),
            news: News::default(),
            stirred: BTreeSet::new(),
            touched: BTreeSet::new(),
            due: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            events: VecDeque::new(),
        };
        bridge.stir(Leg::Agent);
        bridge.pump();
        bridge
    }

    // ---- What happened outside ----

    /// A channel to an app stands: the app speaks first.
    ///
    /// # Errors
    /// [`OpenRefused`]: hang up.
    pub fn open(&mut self, now: Instant) -> Result<ChannelId, OpenRefused> {
        self.open_as(Dial::Plain, now)
    }

    /// A channel to the app stands that [`BridgeEvent::ClaimWanted`] asked for, and its host has taken the code.
    ///
    /// # Errors
    /// [`OpenRefused`]: hang up. The agent has been told.
    pub fn open_claimed(&mut self, claim: ClaimId, dial: BoundDial, now: Instant) -> Result<ChannelId, OpenRefused> {
        let opened = self.open_as(Dial::Bound(dial), now);
        match &opened {
            Ok(channel) => self.wait_for_hello(claim, *channel),
            Err(why) => self.miss_claim(claim, &alloc::string::ToString::to_string(why)),
        }
        self.pump();
        opened
    }

    fn open_as(&mut self, dial: Dial, now: Instant) -> Result<ChannelId, OpenRefused> {
        self.advance(now);
        if self.agent.is_closed() {
            return Err(OpenRefused::Full);
        }
        let channel = self.registry.open(dial)?;
        // Drivers of legs that are gone know it by now; an owner who drives all legs at once never asks.
        let apps = &self.apps;
        self.touched.retain(|leg| matches!(leg, Leg::App(known) if apps.contains_key(known)) || *leg == Leg::Agent);
        let session = Session::new(self.config.app(&self.speaks_for, channel), self.now);
        self.apps.insert(channel, App::new(session));
        self.stir(Leg::App(channel));
        self.pump();
        Ok(channel)
    }

    /// No app was found for the code of [`BridgeEvent::ClaimWanted`], or it could not be dialled. Nothing happens when the agent waits for
    /// that no longer.
    pub fn refuse_claim(&mut self, claim: ClaimId, why: &str, now: Instant) {
        self.advance(now);
        self.miss_claim(claim, why);
        self.pump();
    }

    /// Says which apps wait to be dialled: what the agent may be told of them. Replaces what was said before.
    pub fn advertise(&mut self, apps: Vec<Advertised>) {
        self.advertised = apps;
    }

    /// Takes a frame that arrived on a leg. Frames of a leg that is gone are dropped.
    ///
    /// # Errors
    /// [`Full`] hands the frame back, as [`Session::handle_frame`] does.
    pub fn handle_frame(&mut self, leg: Leg, frame: Bytes, now: Instant) -> Result<(), Full> {
        self.advance(now);
        if let Leg::App(channel) = leg
            && let Some(app) = self.apps.get_mut(&channel)
            && app.is_taken_in()
        {
            // It has its welcome, so it has its new token.
            self.registry.confirm(channel);
        }
        if self.is_full() {
            return Err(Full(frame));
        }
        let at = self.now;
        let Some(session) = self.session_mut(leg) else { return Ok(()) };
        session.handle_frame(frame, Lane::CHANNEL, at)?;
        self.stir(leg);
        self.pump();
        Ok(())
    }

    /// The transport of a leg has ended, as [`Session::handle_end`] is told.
    pub fn handle_end(&mut self, leg: Leg, end: TransportEnd, now: Instant) {
        self.advance(now);
        let at = self.now;
        if let Some(session) = self.session_mut(leg) {
            session.handle_end(end, at);
        }
        if let Leg::App(channel) = leg {
            self.depart(channel);
        }
        self.stir(leg);
        self.pump();
    }

    /// Lets everything happen whose time has come by `now`, on every leg. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let forgets = self.registry.poll_timeout().is_some_and(|due| due <= self.now);
        self.registry.handle_timeout(self.now);
        if forgets {
            self.forget_subscriptions();
        }
        while let Some((_, leg)) = self.deadlines.first().copied().filter(|(due, _)| *due <= self.now) {
            let at = self.now;
            if let Some(session) = self.session_mut(leg) {
                session.handle_timeout(at);
            }
            self.stir(leg);
            self.pump();
        }
    }

    /// Ends the agent's session, and then every app's; see [`Session::close`].
    pub fn close(&mut self, how: Close, now: Instant) {
        self.advance(now);
        self.agent.close(how, self.now);
        self.stir(Leg::Agent);
        self.pump();
    }

    /// Ends the session with one app.
    pub fn close_app(&mut self, channel: ChannelId, how: Close, now: Instant) {
        self.advance(now);
        let at = self.now;
        if let Some(app) = self.apps.get_mut(&channel) {
            app.close(how, at);
        }
        self.depart(channel);
        self.stir(Leg::App(channel));
        self.pump();
    }

    // ---- What there is to do ----

    /// The next frame to write on a leg.
    #[must_use = "a frame that is polled and not written is lost"]
    pub fn poll_transmit(&mut self, leg: Leg) -> Option<Transmit> {
        let session = self.session_mut(leg)?;
        let frame = session.poll_transmit();
        let closed = session.is_closed();
        // Polling makes room, and the last frame may be the end.
        if leg == Leg::Agent && !self.news.is_empty() {
            self.tell_news();
        }
        let room_is_wanted = match leg {
            Leg::Agent => true,
            Leg::App(channel) => self.apps.get(&channel).is_some_and(App::keeps_renewals),
        };
        if closed || (frame.is_some() && room_is_wanted) {
            self.stir(leg);
            self.pump();
        } else if frame.is_some() {
            self.note_deadline(leg);
        }
        frame
    }

    /// The next thing that concerns the owner.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<BridgeEvent> {
        if self.is_full() {
            // No leg was read, and now each may be.
            self.touched.insert(Leg::Agent);
            self.touched.extend(self.apps.keys().copied().map(Leg::App));
        }
        self.events.pop_front()
    }

    /// A leg on which something has happened since it was last given: for an owner who drives each leg by itself.
    pub fn poll_touched(&mut self) -> Option<Leg> {
        self.touched.pop_first()
    }

    /// Returns `true` if [`Self::poll_event`] has something.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The deadline at which [`Self::handle_timeout`] has something to do, on any leg.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let legs = self.deadlines.first().map(|(due, _)| *due);
        [legs, self.registry.poll_timeout()].into_iter().flatten().min()
    }

    // ---- How it stands ----

    /// Returns `true` if frames of a leg are to be read, as [`Session::wants_input`] says; `false` while the owner leaves [`Limits::events`] events unpolled.
    #[must_use]
    pub fn wants_input(&self, leg: Leg) -> bool {
        !self.is_full() && self.session(leg).is_some_and(|session| session.wants_input(Lane::CHANNEL))
    }

    /// The longest frame that is taken on a leg.
    #[must_use]
    pub fn frame_limit(&self, leg: Leg) -> usize {
        let limits = if leg == Leg::Agent { &self.config.agent_limits } else { &self.config.app_limits };
        limits.frame_bytes
    }

    /// Returns `true` if a leg is over, and its last frame was polled.
    #[must_use]
    pub fn is_closed(&self, leg: Leg) -> bool {
        self.session(leg).is_none_or(Session::is_closed)
    }

    /// The counters of the session of a leg.
    #[must_use]
    pub fn stats(&self, leg: Leg) -> Option<Stats> {
        self.session(leg).map(Session::stats)
    }

    /// The channels to apps that stand.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        self.apps.keys().copied()
    }

    /// The sessions that wait to be claimed, newest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.registry.pending()
    }

    /// The number of entries that the bridge itself keeps, beside those that its sessions count: a check that nothing leaks.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let subscribing = self.subscriptions.values().map(Subscription::waiting).fold(0, usize::saturating_add);
        [self.routes.len(), self.questions.len(), self.claiming.len(), subscribing].into_iter().fold(0, usize::saturating_add)
    }

    // ---- Shared by the verbs ----

    fn session(&self, leg: Leg) -> Option<&Session> {
        match leg {
            Leg::Agent => Some(&self.agent),
            Leg::App(channel) => self.apps.get(&channel).map(App::session),
        }
    }

    fn session_mut(&mut self, leg: Leg) -> Option<&mut Session> {
        match leg {
            Leg::Agent => Some(&mut self.agent),
            Leg::App(channel) => self.apps.get_mut(&channel).map(App::session_mut),
        }
    }

    /// The owner leaves too many events lie.
    fn is_full(&self) -> bool {
        self.events.len() >= self.config.agent_limits.events
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The wall clock, as far as the owner told it.
    fn epoch_ms(&self) -> u64 {
        let since = self.now.saturating_duration_since(self.born);
        self.config.epoch_ms.saturating_add(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn stir(&mut self, leg: Leg) {
        self.stirred.insert(leg);
    }

    /// Carries on what has happened, until nothing more happens. Every step takes an event from a session, and no event of one leg causes
    /// more than one verb on another, so it ends.
    fn pump(&mut self) {
        while let Some(leg) = self.stirred.pop_first() {
            match leg {
                Leg::Agent => {
                    while let Some(event) = self.agent.poll_event() {
                        self.on_agent(event);
                    }
                    self.tell_news();
                }
                Leg::App(channel) => {
                    while let Some(event) = self.apps.get_mut(&channel).and_then(App::poll_event) {
                        self.on_app(channel, event);
                    }
                    self.go_on_renewing(channel);
                }
            }
            self.note_deadline(leg);
            self.touched.insert(leg);
        }
    }

    fn note_deadline(&mut self, leg: Leg) {
        let due = self.session(leg).and_then(Session::poll_timeout);
        let before = match due {
            Some(due) => self.due.insert(leg, due),
            None => self.due.remove(&leg),
        };
        if before != due {
            if let Some(before) = before {
                self.deadlines.remove(&(before, leg));
            }
            if let Some(due) = due {
                self.deadlines.insert((due, leg));
            }
        }
    }

    fn tell(&mut self, event: BridgeEvent) {
        self.events.push_back(event);
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("agent", self.speaks_for.identity()).field("apps", &self.apps.keys()).finish_non_exhaustive()
    }
}
