//! The configuration of a session, fixed before it begins.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::dialect::tesseron::AppId;
use crate::dialect::{Capabilities, Identity, Level, LocalEnd, Protocol, mcp, tesseron};
use crate::json::Json;
use crate::limits::Limits;

/// The configuration of a session, which [`Session::new`](crate::Session::new) takes.
///
/// Made by [`Config::mcp_client`], [`Config::mcp_server`], [`Config::tesseron_app`] or [`Config::tesseron_gateway`], then changed field by
/// field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The protocol, and the end of the protocol that this session is: client or server, app or gateway.
    pub protocol: Protocol,
    /// The revisions of MCP to speak: revisions with a handshake (the default of a client), revisions without a handshake, or both (the
    /// default of a server). In a revision without a handshake no state is kept between requests (MCP 2026-07-28, Versioning). A client
    /// that speaks both begins by asking the server for its revisions. Some old servers exit on an unknown method. So if the server is a
    /// child process, and its output ends before it has answered that request, start the process once more, with [`mcp::Era::Legacy`].
    /// Ignored on Tesseron.
    pub era: mcp::Era,
    /// `true` if a client subscribes to notifications that a list of the server has changed (MCP 2026-07-28, Subscriptions). Used only
    /// without a handshake: after a handshake a server sends these notifications without a subscription. Default: `true`.
    pub list_changes: bool,
    /// The time for which a peer may cache a list or a resource that we send, and the permission to share the cached result among callers
    /// (MCP 2026-07-28, Caching). Default: the peer may not cache.
    pub cache: mcp::CacheHint,
    /// The name and version that this end sends to the peer. Of a Tesseron app, the name is the id of the app; of a Tesseron gateway, this
    /// is the identity of the agent.
    pub identity: Identity,
    /// The capabilities that this end declares to the peer. A request of the peer that needs an undeclared capability is refused. A
    /// Tesseron app declares instead which capabilities of its gateway it uses: sampling, elicitation, subscriptions.
    pub capabilities: Capabilities,
    /// The extensions of MCP that this end declares to the peer (MCP 2026-07-28, Extensions). The key is the identifier of an extension,
    /// such as `com.example/undo`, and the value its settings, a JSON object. An extension whose settings are no object is not declared.
    /// [`crate::PeerInfo::extension`] returns the settings that the peer declared. Default: none. Ignored on Tesseron.
    pub extensions: BTreeMap<String, Json>,
    /// A server's description of itself, for the model of its client; the description of a Tesseron app.
    pub instructions: Option<String>,
    /// Members of `_meta` in the answer with which a server introduces itself: to a handshake, and to `server/discover`. Default: none.
    /// Ignored for a client, and on Tesseron.
    pub meta: BTreeMap<String, Json>,
    /// The bounds on memory and concurrency.
    pub limits: Limits,
    /// The timeouts and grace periods.
    pub timeouts: Timeouts,
    /// The rules for progress, sent and received.
    pub progress: ProgressPolicy,
    /// The rules for sampling depth.
    pub depth: DepthPolicy,
    /// The level of the least severe log record that is sent, until the peer sets another level. It does not apply to stateless requests,
    /// which name the level themselves (MCP 2026-07-28, Logging). Default: info; on Tesseron debug.
    pub log_level: Level,
    /// Methods outside the protocol whose requests become events ([`crate::Request::Custom`]). A request for any other unknown method is
    /// answered with [`crate::RpcError::METHOD_NOT_FOUND`]. Listing a method of the protocol has no effect. Default: none.
    pub custom_methods: Vec<String>,
    /// Notifications outside the protocol that become events ([`crate::Notification::Custom`]). Any other unknown notification is ignored.
    /// Default: none.
    pub custom_notifications: Vec<String>,
    /// The id of our first request, from 1 to 2^52; a number outside of this range is clamped. So all ids stay below 2^53, up to which
    /// JavaScript represents integers exactly. Default: 1. A gateway that reconnects to an app begins each channel with a different id, so
    /// that a late response from the previous channel matches no request of the new one.
    pub first_id: u64,
}

/// The highest id that a first request may have.
const MAX_FIRST_ID: u64 = 1 << 52;

impl Config {
    /// The id of our first request, clamped to its range.
    pub(crate) fn first_id(&self) -> u64 {
        self.first_id.clamp(1, MAX_FIRST_ID)
    }

    /// The parts of the configuration that a dialect writes into frames, or needs in order to check frames.
    pub(crate) fn local_end(&self) -> LocalEnd<'_> {
        LocalEnd {
            protocol: &self.protocol,
            identity: &self.identity,
            capabilities: &self.capabilities,
            extensions: &self.extensions,
            instructions: self.instructions.as_deref(),
            meta: &self.meta,
            limits: &self.limits,
            era: self.era,
            cache: self.cache,
            custom_methods: &self.custom_methods,
            custom_notifications: &self.custom_notifications,
        }
    }

    /// The client end of MCP, which calls tools, and may answer requests for sampling, elicitation and roots. It declares no capability:
    /// set [`Config::capabilities`] for the requests that it answers.
    ///
    /// Offers revision 2025-11-25 in the handshake. A call times out after 60 s without progress, or after 600 s in all.
    #[must_use]
    pub fn mcp_client(identity: Identity) -> Self {
        Self::mcp(mcp::Side::Client, identity, Capabilities::default())
    }

    /// The server end of MCP. It declares the capabilities tools and logging.
    #[must_use]
    pub fn mcp_server(identity: Identity) -> Self {
        let capabilities = Capabilities { tools: true, logging: true, ..Capabilities::default() };
        Self::mcp(mcp::Side::Server, identity, capabilities)
    }

    /// The app end of Tesseron 1.2, which runs actions. Set the version of the app in [`Config::identity`], and its description in
    /// [`Config::instructions`].
    ///
    /// Inbound calls time out after 60 s (Tesseron specification, page "Actions"); progress of a call is sent at most once in 500 ms (page
    /// "Progress": about twice a second).
    #[must_use]
    pub fn tesseron_app(id: &AppId, name: impl Into<String>, app: tesseron::App) -> Self {
        let identity = Identity { title: Some(name.into()), ..Identity::new(id.as_str(), "") };
        let capabilities =
            Capabilities { sampling: true, elicitation: true, resources_subscribe: true, logging: true, ..Capabilities::default() };
        let mut config = Self::tesseron(tesseron::End::App(alloc::boxed::Box::new(app)), identity, capabilities);
        config.timeouts.serve = Some(Duration::from_secs(60));
        config
    }

    /// The gateway end of Tesseron 1.2, which calls actions on behalf of an agent. The agent is unknown at first: [`crate::Session::claim`]
    /// sets its identity and its capabilities (sampling, elicitation) in the configuration.
    ///
    /// Outbound calls have no time limit by default, since the app has its own.
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
        let era = if side == mcp::Side::Server { mcp::Era::Auto } else { mcp::Era::Legacy };
        Self { era, ..Self::of(Protocol::Mcp { side, newest: mcp::Revision::NEWEST_LEGACY }, identity, capabilities) }
    }

    fn of(protocol: Protocol, identity: Identity, capabilities: Capabilities) -> Self {
        Self {
            protocol,
            era: mcp::Era::Legacy,
            list_changes: true,
            cache: mcp::CacheHint::default(),
            identity,
            capabilities,
            extensions: BTreeMap::new(),
            instructions: None,
            meta: BTreeMap::new(),
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

/// The time limits of a session. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// The longest time that the handshake may take; afterwards the session closes. Default: 10 s.
    pub handshake: Option<Duration>,
    /// The longest time that a client of both eras of MCP waits for the server to name its revisions. If `handshake` is shorter, the client
    /// waits only that long. Afterwards the client opens the handshake, which then has the full time of `handshake`: old servers may ignore
    /// an unknown method (MCP 2026-07-28, Versioning). Default: 10 s.
    pub probe: Option<Duration>,
    /// The time limits of an outbound call that sets none of its own, except for [`Op::Listen`](crate::Op::Listen), which `acknowledgement`
    /// limits.
    pub call: CallTimeouts,
    /// The longest time that a peer may take to acknowledge a subscription (MCP 2026-07-28, Subscriptions). Afterwards the subscription is
    /// cancelled. If the session has made it ([`Config::list_changes`]), the session reports
    /// [`Violation::SubscriptionUnacknowledged`](crate::Violation::SubscriptionUnacknowledged). If it is a call of
    /// [`Op::Listen`](crate::Op::Listen), the call times out; such a call may have time limits of its own instead. Default: 10 s.
    pub acknowledgement: Option<Duration>,
    /// The time limit of an inbound call, counted from its receipt. A subscription has none. Default: `None`, except for a Tesseron app,
    /// which has 60 s.
    pub serve: Option<Duration>,
    /// The time limit of an input request of ours. The default is long, since a person may have to answer. Default: 600 s.
    pub input: Option<Duration>,
    /// The longest time that a cancelled outbound call waits for a partial result, on protocols where the callee still answers a cancelled
    /// call (Tesseron). The outcome of the call is [`Outcome::Cancelled`](crate::Outcome::Cancelled) in any case. Zero ends the call at
    /// once. Default: zero.
    pub cancel_grace: Duration,
    /// The longest time that inbound calls may take after the end of input; on Tesseron the end of input cancels them. When the last call
    /// has ended, the owner has the same time again to poll the queued frames. The owner also has this time to poll one unsolicited reply
    /// while [`Limits::unsolicited_replies`] are queued. Default: 5 s.
    pub close_grace: Duration,
    /// The time that a cancelled handler has to clean up. The session does not use it; the crate `endpoint` does. Default: 5 s.
    pub handler_grace: Duration,
    /// The minimum time between the last progress update of a call and its response, for clients that drop an update if they read it
    /// together with the result. Default: zero.
    pub response_gap: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Some(Duration::from_secs(10)),
            probe: Some(Duration::from_secs(10)),
            call: CallTimeouts::default(),
            acknowledgement: Some(Duration::from_secs(10)),
            serve: None,
            input: Some(Duration::from_secs(600)),
            cancel_grace: Duration::ZERO,
            close_grace: Duration::from_secs(5),
            handler_grace: Duration::from_secs(5),
            response_gap: Duration::ZERO,
        }
    }
}

impl Timeouts {
    /// The time limits of a call of [`Op::Listen`](crate::Op::Listen). Its idle limit ends when the peer acknowledges the subscription.
    pub(crate) const fn of_listen(&self) -> CallTimeouts {
        CallTimeouts::NONE.with_idle(self.acknowledgement)
    }
}

/// The two time limits of a call: `deadline = min(last activity + idle, start + max_total)`. The last activity is the start or, if
/// `reset_on_progress` is set, the last accepted progress that advanced: the value increased or, on Tesseron, there was no value.
///
/// The start is the moment when the request is queued: when the call is made, or, if the call waits for the handshake, when the handshake
/// is done. Both limits pause while an input request of the call is open, since the peer is then waiting for us. Afterwards `idle` is
/// counted from zero again, and `max_total` continues. A subscription is limited by `idle` only until it is acknowledged. See MCP,
/// "Lifecycle", section "Timeouts".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTimeouts {
    /// The longest time since the last activity. Default: 60 s.
    pub idle: Option<Duration>,
    /// The longest time in all, with or without progress. Default: 600 s.
    pub max_total: Option<Duration>,
    /// `true` if accepted progress restarts `idle`, unless only its message or data is new. If `idle` is set, the request then always asks
    /// for progress. Default: `true`.
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

    /// Sets [`CallTimeouts::idle`]; `None` for no limit.
    #[must_use]
    pub const fn with_idle(mut self, idle: Option<Duration>) -> Self {
        self.idle = idle;
        self
    }

    /// Sets [`CallTimeouts::max_total`]; `None` for no limit.
    #[must_use]
    pub const fn with_max_total(mut self, max_total: Option<Duration>) -> Self {
        self.max_total = max_total;
        self
    }

    /// Sets [`CallTimeouts::reset_on_progress`].
    #[must_use]
    pub const fn with_reset_on_progress(mut self, reset_on_progress: bool) -> Self {
        self.reset_on_progress = reset_on_progress;
        self
    }
}

/// The rules for progress, sent and received.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgressPolicy {
    /// The rate of updates of each inbound call that sets no rate of its own. Default: 1 in 100 ms, on Tesseron 1 in 500 ms (Tesseron
    /// specification, page "Progress": about twice a second). A window of one update spaces updates evenly. A window of ten updates in a
    /// second would allow ten at once and then none for a second, as if the call had stopped. The first update, and the first whose value
    /// reaches its total, are not delayed by a window of at least one update.
    pub window: RateWindow,
    /// The rate of updates of all inbound calls together. Default: unlimited.
    pub session_window: RateWindow,
    /// Two values of progress that this end sends count as equal if they differ by at most this fraction of the larger one. Default: 1e-12,
    /// which absorbs rounding errors and nothing else.
    pub epsilon: f64,
    /// `true` to accept an update of the peer that repeats the last value and has a message; the event then has the message and no value.
    /// If `false`, such an update is dropped, and is a violation. Has no effect on Tesseron, where such updates are always accepted.
    /// Default: `false`.
    pub accept_equal: bool,
    /// `true` to send the last checkpoint with each progress update on MCP. No frame may follow a cancel on MCP, so a cancelled call cannot
    /// send its checkpoint at the end. Default: `false`.
    pub partial_on_progress: bool,
}

impl Default for ProgressPolicy {
    fn default() -> Self {
        Self {
            window: RateWindow::new(1, Duration::from_millis(100)),
            session_window: RateWindow::UNLIMITED,
            epsilon: 1e-12,
            accept_equal: false,
            partial_on_progress: false,
        }
    }
}

/// A rate: at most `updates` updates in any window of `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWindow {
    /// The maximum number of updates in a window; a larger number counts as [`RateWindow::MAX_UPDATES`]. With zero, updates
    /// are kept and merged, and sent just before the response; only the first whose value reaches its total is sent at once.
    pub updates: u32,
    /// The length of the window. Zero means no limit.
    pub length: Duration,
}

impl RateWindow {
    /// The maximum of [`RateWindow::updates`]: each update that a window counts takes memory in each inbound call.
    pub const MAX_UPDATES: usize = 1024;

    /// No limit.
    pub const UNLIMITED: Self = Self::new(u32::MAX, Duration::ZERO);

    /// A rate of at most `updates` updates in any window of `length`.
    #[must_use]
    pub const fn new(updates: u32, length: Duration) -> Self {
        Self { updates, length }
    }

    /// Returns `true` if the window never delays an update.
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
        self.length.is_zero()
    }
}

/// The bound on sampling depth: the number of sampling requests that a call is nested in. Neither protocol bounds it, and without a bound
/// two models could call each other for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DepthPolicy {
    /// The maximum depth of a sampling request, ours or the peer's. Default: 3.
    pub max: u8,
    /// The least sampling depth of an inbound call. Its request may name a greater one.
    pub inference: DepthInference,
}

impl Default for DepthPolicy {
    fn default() -> Self {
        Self { max: 3, inference: DepthInference::Off }
    }
}

/// The least sampling depth of an inbound call. Its request may name a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DepthInference {
    /// The depth is 0.
    #[default]
    Off,
    /// The depth is that of our deepest open sampling request, on whose behalf the peer may be calling us; 0 if none is open.
    DeepestOpen,
}
