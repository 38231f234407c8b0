//! A gateway between one MCP client, called the agent, and any number of Tesseron apps. It is a sans-IO state machine with the methods of a
//! [`Session`], most of which also take a [`Leg`].
//!
//! A bridge owns the sessions of its legs. A method of a bridge returns only after each event on one leg has had its effects on the
//! others, so no message of a call is queued between the legs. Only notifications about lists and resources, and renewals of subscriptions,
//! wait until a session has room for them; the same notification is sent at most once in 100 ms. The messages correspond as follows:
//!
//! | the agent | an app |
//! |---|---|
//! | `tools/call` | `actions/invoke` |
//! | `notifications/progress` | `actions/progress` |
//! | `notifications/cancelled` | `actions/cancel` |
//! | `sampling/createMessage`, `elicitation/create` | `sampling/request`, `elicitation/request` |
//! | `resources/*` | `resources/*` |
//! | `notifications/resources/updated` | `resources/updated` |
//! | `notifications/message` | `log` |
//! | `notifications/*/list_changed` | `*/list_changed`, a claim, a claimed app that reconnects or disconnects |
//!
//! Payloads are passed on as bytes; ids, tokens and names of calls are replaced. Progress for a slow agent is merged in the agent's session
//! and delays no app. If an app disconnects, the agent gets one error for each call that ran there.
//!
//! The [`SessionRegistry`] decides which apps are accepted, and which app a call is passed to. All I/O is the owner's: for example,
//! [`BridgeEvent::ClaimWanted`] requests a connection to the app with a claim code.

mod agent;
mod agent_profile;
mod app;
mod app_state;
mod event;
mod iso;
mod manifest;
mod meta;
mod notifications;
mod resource_uri;
mod subscribing;
mod subscription;
mod surface;
mod tool_name;
mod translate;
mod types;

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
use protocol_core::mcp::Era;
use protocol_core::session::{Close, Full, InboundId, InputKey, Lane, Received, Session, Stats, Transmit, TransportEnd};
use protocol_core::time::Instant;

use agent_profile::AgentProfile;
use app_state::App;
pub use event::{BridgeEvent, ClaimId, Leg, ShownCode};
use notifications::Notifications;
use subscription::Subscription;
use types::Claiming;
pub use types::{Advertised, Surface};

/// A function that fills the whole slice with random bytes that cannot be guessed, for codes and tokens.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// The configuration of a bridge.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BridgeConfig {
    /// The name and version of the gateway, for the agent.
    pub identity: Identity,
    /// The tools that are listed. Tools that are not listed can be called, too.
    pub surface: Surface,
    /// The bounds on channels and app sessions, and the time for which an app session may be resumed.
    pub registry: RegistryPolicy,
    /// The limits of the agent's session. [`Limits::in_flight`] also bounds its subscriptions. The default of that limit is four times that
    /// of [`Self::app_limits`], so that one stuck app leaves room for other apps.
    pub agent_limits: Limits,
    /// The limits of the session of each app. Of each app only the first 4096 actions and the first 4096 resources are used.
    pub app_limits: Limits,
    /// The time limits of each call to an app. Default: none, since the app has deadlines.
    pub call: CallTimeouts,
    /// The time in which an app must send its hello or resume once it is connected. Default: 5 s.
    pub hello: Duration,
    /// The rule for the sampling depth of a call that the agent makes while sampling for an app, since MCP does not transmit the depth.
    /// Default: [`DepthInference::DeepestOpen`].
    pub inference: DepthInference,
    /// The wall-clock time at the creation of the bridge, in milliseconds since 1970. It is used for times that are shown to the agent or
    /// sent to apps, and for no deadline.
    pub epoch_ms: u64,
}

impl BridgeConfig {
    /// A configuration with the defaults for everything but `identity` and `epoch_ms`.
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
        // An app cannot run an action again for each round of input requests. So the agent must make a handshake, after which it gets input
        // requests while the call runs.
        config.era = Era::Legacy;
        let can = &mut config.capabilities;
        (can.tools, can.tools_list_changed) = (true, true);
        (can.resources, can.resources_subscribe, can.resources_list_changed) = (true, true, true);
        config.limits = self.agent_limits;
        // Until the agent sets a level, every record is sent. The reference implementation does the same.
        config.log_level = Level::Debug;
        // No limit here, since the app limits the rate.
        config.progress.window = RateWindow::UNLIMITED;
        config.depth.inference = self.inference;
        config
    }

    fn app(&self, agent: &AgentProfile, channel: ChannelId) -> Config {
        let mut config = Config::tesseron_gateway(GatewayConfig::default());
        config.identity = agent.identity().clone();
        config.capabilities = agent.capabilities();
        config.limits = self.app_limits;
        config.timeouts.call = self.call;
        config.timeouts.handshake = Some(self.hello);
        config.first_id = channel.number().saturating_mul(IDS_PER_CHANNEL).saturating_add(1);
        config
    }
}

/// The number of request ids that are reserved for each channel, so that a late frame of a resumed app about a call of its previous channel
/// matches no new call. The ids stay below 2^53 for 2^25 channels.
const IDS_PER_CHANNEL: u64 = 1 << 28;

/// An input request of an app that was passed on to the agent and has no answer yet.
#[derive(Clone, Copy, Debug)]
struct RelayedInput {
    channel: ChannelId,
    /// The key of the input request in the app's session.
    key: InputKey,
    /// The code of the error that is sent to the app if the agent does not support the input request.
    unavailable: i64,
}

/// The target of a call of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// A call to an app.
    App(ChannelId, protocol_core::session::OutboundId),
    /// A claim, while the owner looks for the app or the bridge waits for the app's hello.
    Claim,
}

/// A gateway, which owns the sessions of its legs; see the [module](self).
///
/// The methods that take a [`Leg`] have the effects of the methods of [`Session`] with the same names; on a leg that has ended they do
/// nothing. After [`Leg::Agent`] has closed, the sessions of all apps are closed, too.
///
/// A bridge is `Send`, but not `Sync`, since [`Random`] need not be `Sync`. With the feature `std`, `legs::SharedBridge` is both.
pub struct Bridge {
    config: BridgeConfig,
    random: Random,
    now: Instant,
    created: Instant,
    agent: Session,
    agent_profile: AgentProfile,
    registry: SessionRegistry,
    apps: BTreeMap<ChannelId, App>,
    /// Calls of the agent that run at an app, and calls that claim an app, until the claim ends.
    routes: BTreeMap<InboundId, Route>,
    /// Input requests of apps that were passed on to the agent, by their keys in the agent's session.
    inputs: BTreeMap<InputKey, RelayedInput>,
    /// The subscriptions of the agent, by URI.
    subscriptions: BTreeMap<Text, Subscription>,
    /// The number of subscriptions that were made since the bridge was created.
    subscribed: u64,
    /// Claims for which the owner looks for the app, or the bridge waits for the app's hello.
    claiming: BTreeMap<InboundId, Claiming>,
    /// The code of the last failed claim, unless another claim has succeeded since.
    last_refused: Option<ClaimCode>,
    /// Apps that the owner has announced with [`Self::advertise`].
    advertised: Vec<Advertised>,
    /// Notifications for the agent that wait.
    notifications: Notifications,
    /// Legs whose sessions may have events that are not handled yet. Each method call that may cause events adds its leg; only
    /// [`Self::process_events`] removes it.
    unprocessed: BTreeSet<Leg>,
    /// Legs whose drivers must run, until [`Self::poll_touched`] returns them. A leg that has ended stays here, too, since its driver must
    /// close the connection. An owner that drives all legs in one loop does not poll this set; for such an owner, legs that have ended are
    /// removed when the next app connects.
    touched: BTreeSet<Leg>,
    /// The deadline of each leg's session.
    due: BTreeMap<Leg, Instant>,
    /// The same deadlines in their order, each with its leg.
    deadlines: BTreeSet<(Instant, Leg)>,
    /// Lanes of the agent's leg that its session has closed, until [`Self::poll_closed_lane`] returns them.
    closed_lanes: BTreeSet<Lane>,
    /// `true` if a request of the agent was cancelled since the last [`Self::take_cancelled`].
    has_cancelled: bool,
    events: VecDeque<BridgeEvent>,
}

impl Bridge {
    /// Creates a bridge at the time `now`, without apps.
    #[must_use]
    pub fn new(config: BridgeConfig, random: Random, now: Instant) -> Self {
        let mut bridge = Self {
            agent: Session::new(config.agent(), now),
            registry: SessionRegistry::new(config.registry),
            config,
            random,
            now,
            created: now,
            agent_profile: AgentProfile::pending(),
            apps: BTreeMap::new(),
            routes: BTreeMap::new(),
            inputs: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            subscribed: 0,
            claiming: BTreeMap::new(),
            last_refused: None,
            advertised: Vec::new(),
            notifications: Notifications::default(),
            unprocessed: BTreeSet::new(),
            touched: BTreeSet::new(),
            due: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            closed_lanes: BTreeSet::new(),
            has_cancelled: false,
            events: VecDeque::new(),
        };
        bridge.mark_unprocessed(Leg::Agent);
        bridge.process_events();
        bridge
    }

    // ---- Input ----

    /// Adds the channel of an app to which the owner has connected. The app sends the first frame.
    ///
    /// # Errors
    /// [`OpenRefused`]; close the connection.
    pub fn open(&mut self, now: Instant) -> Result<ChannelId, OpenRefused> {
        self.open_as(Dial::Unbound, now)
    }

    /// Adds the channel of the app that [`BridgeEvent::ClaimWanted`] asked for. The owner has connected to the app, and the app has
    /// accepted the code. If the claim has ended meanwhile, the session on the channel closes at once.
    ///
    /// # Errors
    /// [`OpenRefused`]; close the connection. The agent's claim has failed.
    pub fn open_claimed(&mut self, claim: ClaimId, dial: BoundDial, now: Instant) -> Result<ChannelId, OpenRefused> {
        let opened = self.open_as(Dial::Bound(dial), now);
        match &opened {
            Ok(channel) => self.wait_for_hello(claim, *channel),
            Err(why) => self.fail_claim(claim, &alloc::string::ToString::to_string(why)),
        }
        self.process_events();
        opened
    }

    fn open_as(&mut self, dial: Dial, now: Instant) -> Result<ChannelId, OpenRefused> {
        self.advance(now);
        if self.agent.is_closed() {
            return Err(OpenRefused::Closed);
        }
        let channel = self.registry.open(dial)?;
        // Removes the legs of apps that have ended, since an owner that drives all legs in one loop does not poll `touched`.
        let apps = &self.apps;
        self.touched.retain(|leg| matches!(leg, Leg::App(known) if apps.contains_key(known)) || *leg == Leg::Agent);
        let session = Session::new(self.config.app(&self.agent_profile, channel), self.now);
        self.apps.insert(channel, App::new(session));
        self.mark_unprocessed(Leg::App(channel));
        self.process_events();
        Ok(channel)
    }

    /// Fails the claim of [`BridgeEvent::ClaimWanted`]: no app has its code, or connecting to the app has failed. `why` is shown to the
    /// agent. No effect if the claim has ended.
    pub fn refuse_claim(&mut self, claim: ClaimId, why: &str, now: Instant) {
        self.advance(now);
        self.fail_claim(claim, why);
        self.process_events();
    }

    /// Sets the list of apps that wait for a gateway, for the texts and tools that show them to the agent. Replaces the previous list.
    pub fn advertise(&mut self, apps: Vec<Advertised>) {
        self.advertised = apps;
    }

    /// Takes a frame that arrived on a leg. Frames of a leg that has ended are dropped.
    ///
    /// # Errors
    /// [`Full`] returns the frame if the session of the leg cannot take it ([`Session::handle_frame`]), or if the number of unpolled events
    /// of the bridge has reached the [`Limits::events`] of [`BridgeConfig::agent_limits`].
    pub fn handle_frame(&mut self, leg: Leg, frame: Bytes, now: Instant) -> Result<(), Full> {
        self.receive(leg, frame, Lane::CHANNEL, now).map(drop)
    }

    /// Takes a frame that arrived on a lane of the agent's leg. Frames of a lane that was closed are dropped until
    /// [`Self::poll_closed_lane`] has returned that lane.
    ///
    /// # Errors
    /// [`Full`] returns the frame, for the same reasons as [`Self::handle_frame`].
    pub fn handle_lane_frame(&mut self, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        if self.closed_lanes.contains(&lane) {
            return Ok(Received::default());
        }
        self.receive(Leg::Agent, frame, lane, now)
    }

    fn receive(&mut self, leg: Leg, frame: Bytes, lane: Lane, now: Instant) -> Result<Received, Full> {
        self.advance(now);
        if let Leg::App(channel) = leg
            && let Some(app) = self.apps.get_mut(&channel)
            && app.is_accepted()
        {
            // The app has sent a frame after its welcome, so it has the new token.
            self.registry.confirm(channel);
        }
        if self.is_full() {
            return Err(Full(frame));
        }
        let at = self.now;
        let Some(session) = self.session_mut(leg) else { return Ok(Received::default()) };
        let received = session.handle_frame(frame, lane, at)?;
        self.mark_unprocessed(leg);
        self.process_events();
        Ok(received)
    }

    /// Stops the output of a lane of the agent's leg, or resumes it; see [`Session::set_writable`]. No effect on a lane that is not open.
    pub fn set_writable(&mut self, lane: Lane, is_writable: bool, now: Instant) {
        self.advance(now);
        // Fails only for a lane that is not open.
        let _ = self.agent.set_writable(lane, is_writable, self.now);
        self.mark_unprocessed(Leg::Agent);
        self.process_events();
    }

    /// Handles the end of the transport of a leg; see [`Session::handle_end`].
    pub fn handle_end(&mut self, leg: Leg, end: TransportEnd, now: Instant) {
        self.advance(now);
        let at = self.now;
        if let Some(session) = self.session_mut(leg) {
            session.handle_end(end, at);
        }
        if let Leg::App(channel) = leg {
            self.unroute(channel);
        }
        self.mark_unprocessed(leg);
        self.process_events();
    }

    /// Handles every deadline that is not after `now`: those of all legs, and those of app sessions that may be resumed. Harmless if
    /// called early or repeatedly.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let forgets = self.registry.poll_timeout().is_some_and(|due| due <= self.now);
        self.registry.handle_timeout(self.now);
        if forgets {
            self.forget_subscriptions();
        }
        if self.notifications.poll_timeout().is_some_and(|due| due <= self.now) {
            self.mark_unprocessed(Leg::Agent);
            self.process_events();
        }
        while let Some((_, leg)) = self.deadlines.first().copied().filter(|(due, _)| *due <= self.now) {
            let at = self.now;
            if let Some(session) = self.session_mut(leg) {
                session.handle_timeout(at);
            }
            self.mark_unprocessed(leg);
            self.process_events();
        }
    }

    /// Closes the agent's session, and then those of all apps; see [`Session::close`].
    pub fn close(&mut self, how: Close, now: Instant) {
        self.advance(now);
        self.agent.close(how, self.now);
        self.mark_unprocessed(Leg::Agent);
        self.process_events();
    }

    /// Closes the session of one app.
    pub fn close_app(&mut self, channel: ChannelId, how: Close, now: Instant) {
        self.advance(now);
        let at = self.now;
        if let Some(app) = self.apps.get_mut(&channel) {
            app.close(how, at);
        }
        self.unroute(channel);
        self.mark_unprocessed(Leg::App(channel));
        self.process_events();
    }

    // ---- Output ----

    /// Frees the memory that the session of a leg keeps for its next long frame ([`Session::release_memory`]).
    pub fn release_memory(&mut self, leg: Leg) {
        if let Some(session) = self.session_mut(leg) {
            session.release_memory();
        }
    }

    /// The next frame to write on a leg.
    #[must_use = "a frame that is polled and not written is lost"]
    pub fn poll_transmit(&mut self, leg: Leg) -> Option<Transmit> {
        let session = self.session_mut(leg)?;
        let frame = session.poll_transmit();
        // Polling the last frame may close the session, and polling any frame of the agent makes room for notifications.
        let closed = session.is_closed();
        if leg == Leg::Agent && self.notifications.has_ready() {
            self.send_notifications();
        }
        // Subscriptions that are renewed at a resumed app wait for room, too.
        let may_wait_for_room = match leg {
            Leg::Agent => true,
            Leg::App(channel) => self.apps.get(&channel).is_some_and(App::has_queued_renewals),
        };
        if closed || (frame.is_some() && may_wait_for_room) {
            self.mark_unprocessed(leg);
            self.process_events();
        } else if frame.is_some() {
            self.note_deadline(leg);
        }
        frame
    }

    /// The number of requests of a lane of the agent's leg that have no reply yet; see [`Session::replies_owed`].
    #[must_use]
    pub fn replies_owed(&self, lane: Lane) -> usize {
        self.agent.replies_owed(lane)
    }

    /// The next lane of the agent's leg that its session has closed because too much of its output was not read. Poll this method if the
    /// transport has several lanes.
    #[must_use]
    pub fn poll_closed_lane(&mut self) -> Option<Lane> {
        self.closed_lanes.pop_first()
    }

    /// Returns `true` if a request of the agent was cancelled since the last call of this method. Then [`Self::replies_owed`] of a lane may
    /// have decreased without a reply.
    #[must_use]
    pub fn take_cancelled(&mut self) -> bool {
        core::mem::take(&mut self.has_cancelled)
    }

    /// The next event for the owner.
    #[must_use = "an event that is polled is not repeated"]
    pub fn poll_event(&mut self) -> Option<BridgeEvent> {
        if self.is_full() {
            // While too many events were unpolled, no leg could take input. After this event each may be able to, so all drivers must run.
            self.touched.insert(Leg::Agent);
            self.touched.extend(self.apps.keys().copied().map(Leg::App));
        }
        self.events.pop_front()
    }

    /// The next leg that has changed since it was last returned, for an owner that has a driver for each leg.
    pub fn poll_touched(&mut self) -> Option<Leg> {
        self.touched.pop_first()
    }

    /// Returns `true` if [`Self::poll_event`] would return an event.
    #[must_use]
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next deadline of all legs, of the app sessions that may be resumed, and of notifications for the agent, at which
    /// [`Self::handle_timeout`] must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let legs = self.deadlines.first().map(|(due, _)| *due);
        let notifications = self.notifications.poll_timeout().filter(|_| self.agent.is_ready());
        [legs, self.registry.poll_timeout(), notifications].into_iter().flatten().min()
    }

    // ---- State ----

    /// Returns `true` if [`handle_frame`](Self::handle_frame) takes frames of a leg; see [`Session::wants_input`]. Returns `false` while
    /// the number of unpolled events of the bridge has reached the [`Limits::events`] of [`BridgeConfig::agent_limits`].
    #[must_use]
    pub fn wants_input(&self, leg: Leg) -> bool {
        !self.is_full() && self.session(leg).is_some_and(|session| session.wants_input(Lane::CHANNEL))
    }

    /// The maximum length of a frame on a leg, in bytes.
    #[must_use]
    pub fn frame_limit(&self, leg: Leg) -> usize {
        let limits = if leg == Leg::Agent { &self.config.agent_limits } else { &self.config.app_limits };
        limits.frame_bytes
    }

    /// Returns `true` if the session of a leg has closed, so that it has no frame left, or if there is no such leg.
    #[must_use]
    pub fn is_closed(&self, leg: Leg) -> bool {
        self.session(leg).is_none_or(Session::is_closed)
    }

    /// The counters of the session of a leg; `None` if there is no such leg.
    #[must_use]
    pub fn stats(&self, leg: Leg) -> Option<Stats> {
        self.session(leg).map(Session::stats)
    }

    /// The open channels to apps.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        self.apps.keys().copied()
    }

    /// The app sessions that wait to be claimed, newest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.registry.pending()
    }

    /// The number of entries for calls, input requests, claims and waiting subscribe requests in the tables of the bridge, to test for
    /// leaks. The tables of its sessions are not counted, nor are subscriptions for which no request waits.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let subscribing = self.subscriptions.values().map(Subscription::waiting).fold(0, usize::saturating_add);
        [self.routes.len(), self.inputs.len(), self.claiming.len(), subscribing].into_iter().fold(0, usize::saturating_add)
    }

    // ---- Private steps ----

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

    /// Returns `true` if too many events are unpolled.
    fn is_full(&self) -> bool {
        self.events.len() >= self.config.agent_limits.events
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// The wall-clock time now, in milliseconds since 1970.
    fn epoch_ms(&self) -> u64 {
        let since = self.now.saturating_duration_since(self.created);
        self.config.epoch_ms.saturating_add(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn mark_unprocessed(&mut self, leg: Leg) {
        self.unprocessed.insert(leg);
    }

    /// Handles the events of all sessions until there are none. The loop ends, since handling an event adds events only about the end of
    /// calls, input requests and sessions, and each of these ends once.
    fn process_events(&mut self) {
        while let Some(leg) = self.unprocessed.pop_first() {
            match leg {
                Leg::Agent => {
                    while let Some(event) = self.agent.poll_event() {
                        self.on_agent(event);
                    }
                    self.send_notifications();
                }
                Leg::App(channel) => {
                    while let Some(event) = self.apps.get_mut(&channel).and_then(App::poll_event) {
                        self.on_app(channel, event);
                    }
                    self.send_renewals(channel);
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

    fn emit(&mut self, event: BridgeEvent) {
        self.events.push_back(event);
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge")
            .field("agent", self.agent_profile.identity())
            .field("apps", &self.apps.keys())
            .finish_non_exhaustive()
    }
}
