//! The configuration of a session, fixed before it begins.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::dialect::tesseron::AppId;
use crate::dialect::{Capabilities, Identity, Level, LocalEnd, Protocol, mcp, tesseron};
use crate::limits::Limits;

/// The configuration of a session, which it is given when it is made.
///
/// Made by [`Config::mcp_client`], [`Config::mcp_server`], [`Config::tesseron_app`] or [`Config::tesseron_gateway`], then changed field by
/// field.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The protocol and the end of it that this session is.
    pub protocol: Protocol,
    /// Our name and version, as the peer is told. Of a Tesseron app the name is its id; of a gateway this is the agent.
    pub identity: Identity,
    /// Our capabilities, as the peer is told. A request that needs one that is not declared is refused on arrival. A Tesseron app
    /// declares here the capabilities of its gateway that it uses: sampling, elicitation, subscriptions.
    pub capabilities: Capabilities,
    /// A server's description of itself, for the model of its client; the description of a Tesseron app.
    pub instructions: Option<String>,
    /// The bounds, each with a default.
    pub limits: Limits,
    /// The timeouts and grace periods.
    pub timeouts: Timeouts,
    /// The rules for progress, sent and received.
    pub progress: ProgressPolicy,
    /// The rules for sampling depth.
    pub depth: DepthPolicy,
    /// The least severe log record that is sent until the peer sets a level of its own.
    pub log_level: Level,
    /// Methods beside those of the protocol whose requests become events ([`crate::Request::Custom`]). Any other is answered as unknown.
    /// A method of the protocol keeps its meaning, listed or not. None by default.
    pub custom_methods: Vec<String>,
    /// Notifications beside those of the protocol that become events ([`crate::Notice::Custom`]). Any other is ignored. None by default.
    pub custom_notifications: Vec<String>,
    /// The id of our first request, from 1 to 2^52: programs in JavaScript count exactly up to 2^53. 1 by default. A gateway that speaks
    /// to one app over several channels, one after the other, gives each channel ids of its own: a late frame about the last channel then
    /// matches no request of the next.
    pub first_id: u64,
}

/// The highest id that a first request may have.
const HIGHEST_FIRST_ID: u64 = 1 << 52;

impl Config {
    /// The id of our first request, brought into its range.
    pub(crate) fn first_id(&self) -> u64 {
        self.first_id.clamp(1, HIGHEST_FIRST_ID)
    }

    /// The parts that the dialect writes, and checks frames against.
    pub(crate) fn local_end(&self) -> LocalEnd<'_> {
        LocalEnd {
            protocol: &self.protocol,
            identity: &self.identity,
            capabilities: &self.capabilities,
            instructions: self.instructions.as_deref(),
            limits: &self.limits,
            custom_methods: &self.custom_methods,
            custom_notifications: &self.custom_notifications,
        }
    }

    /// The client end of MCP: it calls tools, and answers sampling, elicitation and roots requests. It declares no capability yet.
    ///
    /// Offers the newest revision first: 2025-11-25. Calls time out after 60 s without progress and after 600 s in all.
    #[must_use]
    pub fn mcp_client(identity: Identity) -> Self {
        Self::mcp(mcp::Side::Client, identity, Capabilities::default())
    }

    /// The server end of MCP: it serves tools. It declares tools and logging.
    #[must_use]
    pub fn mcp_server(identity: Identity) -> Self {
        let capabilities = Capabilities { tools: true, logging: true, ..Capabilities::default() };
        Self::mcp(mcp::Side::Server, identity, capabilities)
    }

    /// The app end of Tesseron 1.2: it runs actions. Its version goes into [`Config::identity`], its description into
    /// [`Config::instructions`].
    ///
    /// Calls time out after 60 s (actions page); progress goes out at most once in 500 ms (progress page: about twice a second).
    #[must_use]
    pub fn tesseron_app(id: &AppId, name: impl Into<String>, app: tesseron::App) -> Self {
        let identity = Identity { name: id.as_str().into(), version: String::new(), title: Some(name.into()) };
        let capabilities =
            Capabilities { sampling: true, elicitation: true, resources_subscribe: true, logging: true, ..Capabilities::default() };
        let mut config = Self::tesseron(tesseron::End::App(alloc::boxed::Box::new(app)), identity, capabilities);
        config.timeouts.serve = Some(Duration::from_secs(60));
        config
    }

    /// The gateway end of Tesseron 1.2: it calls actions for an agent, whose [`Identity`] and whose capabilities (sampling, elicitation)
    /// are those of the configuration. At first there is no agent: see [`crate::Session::claim`].
    ///
    /// Calls have no time limit unless they are given one: the app has its own.
    #[must_use]
    pub fn tesseron_gateway(gateway: tesseron::GatewayConfig) -> Self {
        let mut config = Self::tesseron(tesseron::End::Gateway(gateway), tesseron::pending_agent(), Capabilities::default());
        config.timeouts.call = CallTimeouts::NONE;
        config
    }

    fn tesseron(end: tesseron::End, identity: Identity, capabilities: Capabilities) -> Self {
        let progress = ProgressPolicy { window: RateWindow::new(1, Duration::from_millis(500)), ..ProgressPolicy::default() };
        Self { progress, log_level: Level::Debug, ..Self::of(Protocol::Tesseron(end), identity, capabilities) }
    }

    fn mcp(side: mcp::Side, identity: Identity, capabilities: Capabilities) -> Self {
        Self::of(Protocol::Mcp { side, newest: mcp::Revision::NEWEST }, identity, capabilities)
    }

    fn of(protocol: Protocol, identity: Identity, capabilities: Capabilities) -> Self {
        Self {
            protocol,
            identity,
            capabilities,
            instructions: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            progress: ProgressPolicy::default(),
            depth: DepthPolicy::default(),
            log_level: Level::Info,
            custom_methods: Vec::new(),
            custom_notifications: Vec::new(),
            first_id: 1,
        }
    }
}

/// The time limits of a session. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// The longest time that the handshake may take; then the session closes. 10 s.
    pub handshake: Option<Duration>,
    /// The time limits of an outbound call that brings none of its own.
    pub call: CallTimeouts,
    /// The time limit of an inbound call, from its receipt. `None`: no limit.
    pub serve: Option<Duration>,
    /// The time limit of an input request of ours; people may be asked, so it is long. 600 s.
    pub input: Option<Duration>,
    /// The longest time that a cancelled call waits for a last frame of the peer about it, above all a partial result, on protocols that
    /// have one (Tesseron). The call ends as cancelled in any case. Zero, the default, ends it at once.
    pub cancel_grace: Duration,
    /// The time in which running calls are still answered after the end of input, or after a close without a grace of its own. 5 s.
    pub close_grace: Duration,
    /// The time that a cancelled handler has to clean up. Read by the endpoint. 5 s.
    pub handler_grace: Duration,
    /// The time that a response is held back after a last progress update, for clients that lose updates which they read together with
    /// the result. Zero by default.
    pub response_gap: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Some(Duration::from_secs(10)),
            call: CallTimeouts::default(),
            serve: None,
            input: Some(Duration::from_secs(600)),
            cancel_grace: Duration::ZERO,
            close_grace: Duration::from_secs(5),
            handler_grace: Duration::from_secs(5),
            response_gap: Duration::ZERO,
        }
    }
}

/// The two clocks of a call: `deadline = min(last activity + idle, start + max_total)`.
///
/// Both start when the call can leave: at once, or when the handshake that it waits for is done. Both stand still while an input request
/// of the peer is open under the call, since the time in which people think is not the peer's; after that the idle clock starts afresh
/// and the other goes on. MCP, Lifecycle, Timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimeouts {
    /// The longest time without an accepted update of progress. 60 s.
    pub idle: Option<Duration>,
    /// The longest time in all, progress or not. 600 s.
    pub max_total: Option<Duration>,
    /// `true` if accepted progress restarts the idle clock. The peer is then always asked for progress. `true` by default.
    pub reset_on_progress: bool,
}

impl Default for CallTimeouts {
    fn default() -> Self {
        Self { idle: Some(Duration::from_secs(60)), max_total: Some(Duration::from_secs(600)), reset_on_progress: true }
    }
}

impl CallTimeouts {
    /// No time limit.
    pub const NONE: Self = Self { idle: None, max_total: None, reset_on_progress: false };
}

/// The rules for progress, sent and received.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgressPolicy {
    /// The rate of updates for each inbound call that is given none of its own. 1 in 100 ms, on Tesseron 1 in 500 ms (progress page:
    /// about twice a second): updates are evenly spaced, since ten at once and then a second of nothing look like a hang. The first and
    /// the final update go out at once.
    pub window: RateWindow,
    /// The rate of updates for the whole session. Unlimited by default.
    pub session_window: RateWindow,
    /// Two values of progress count as equal if they differ by at most this fraction of the larger one. 1e-12: rounding errors and
    /// nothing else.
    pub epsilon: f64,
    /// `true` to send an update that has only a message with the last value again, instead of keeping the message for the next increase.
    /// MCP says that every update increases, so an update with neither a new value nor another message waits for one that has. `false` by
    /// default.
    pub repeat_value_for_message: bool,
    /// `true` to hand on an update that arrives with the last value again and a message, as an update with only a message. `false` by
    /// default.
    pub accept_equal: bool,
    /// `true` to send the last checkpoint with progress, since nothing may follow an MCP cancel. `false` by default.
    pub partial_on_progress: bool,
}

impl Default for ProgressPolicy {
    fn default() -> Self {
        Self {
            window: RateWindow::new(1, Duration::from_millis(100)),
            session_window: RateWindow::UNLIMITED,
            epsilon: 1e-12,
            repeat_value_for_message: false,
            accept_equal: false,
            partial_on_progress: false,
        }
    }
}

/// A rate: at most `updates` updates in any window of `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWindow {
    /// The number of updates; above [`RateWindow::MOST`] it counts as that. Zero keeps every update until the response, except the final
    /// one.
    pub updates: u32,
    /// The length of the window. Zero is no limit.
    pub length: Duration,
}

impl RateWindow {
    /// The most updates that a window counts, since each takes memory in each inbound call.
    pub const MOST: usize = 1024;

    /// No limit.
    pub const UNLIMITED: Self = Self::new(u32::MAX, Duration::ZERO);

    /// A rate of at most `updates` updates in any window of `length`.
    #[must_use]
    pub const fn new(updates: u32, length: Duration) -> Self {
        Self { updates, length }
    }

    /// Returns `true` if no update is ever held back.
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
        self.length.is_zero()
    }
}

/// The rules for sampling depth. No protocol has one; without a bound two models could call each other for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DepthPolicy {
    /// The deepest sampling that is asked or answered. 3.
    pub max: u8,
    /// The call that an arriving input request belongs to when the wire does not say.
    pub inference: DepthInference,
}

impl Default for DepthPolicy {
    fn default() -> Self {
        Self { max: 3, inference: DepthInference::Off }
    }
}

/// The call that an arriving input request belongs to when the wire does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepthInference {
    /// No call: its depth counts from 0.
    #[default]
    Off,
    /// The deepest sampling call of ours that waits for its response.
    DeepestOpen,
}
