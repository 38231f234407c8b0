//! The session: one end of one channel to one peer, as a sans-IO state machine.
//!
//! | Files | |
//! |---|---|
//! | `outbound_call`, `inbound_call`, `input`, `listener`, `subscriber` | the state machines of outbound calls, of inbound calls, of input requests, of the peer's subscriptions, and of our subscription |
//! | `handshake`, `ending`, `overload` | the state machines of the handshake, of closing, and of a lane whose peer does not read |
//! | `outbox`, `lane_queue`, `event_queue`, `timers`, `progress_queue` | the queues of frames, events and progress, and the deadlines |
//! | `progress`, `depth`, `request_rate` | the rules of progress, of sampling depth and of the rate of requests |
//! | `peer_ids`, `recent_caller`, `terms` | the peer's ids; the caller of the last stateless request; the rules, capabilities and log level under which a request is served |
//! | `stats`, `monotonic_map` | counters; a map for keys that nearly always come in rising order |
//! | `caller`, `rounds`, `callee`, `gateway`, `notifications`, `listening`, `subscribing`, `alarms`, `closing`, `input_output`, `inspect` | the methods of [`Session`], with their private steps |
//! | `receive`, `opening` | the effect of each message of the peer, and the steps of the handshake |
//! | `types`, `event`, `ids`, `route`, `pending` | the types that methods take and return |
//!
//! The state of a state machine is private to its file. Only its methods change the state, and the top of the file shows the transitions.
//! The methods of the session connect the state machines.

mod alarms;
mod callee;
mod caller;
mod closing;
mod depth;
mod ending;
mod event;
mod event_queue;
mod gateway;
mod handshake;
mod ids;
mod inbound_call;
mod input;
mod input_output;
mod inspect;
mod lane_queue;
mod listener;
mod listening;
mod monotonic_map;
mod notifications;
mod opening;
mod outbound_call;
mod outbox;
mod overload;
mod peer_ids;
mod pending;
mod progress;
mod progress_queue;
mod receive;
mod recent_caller;
mod request_rate;
mod rounds;
mod route;
mod stats;
mod subscriber;
mod subscribing;
mod terms;
mod timers;
mod types;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::config::Config;
use crate::dialect::{Dialect, Level, PeerChange, PeerInfo, Rules};
use crate::shared::Arc;
use crate::table::Table;
use crate::time::Instant;
use crate::wire::WireId;

use ending::Ending;
pub use event::{CancelReason, CloseReason, Event, InputFailed, Invalid, Outcome, TimeoutKind};
use event_queue::EventQueue;
use handshake::Handshake;
pub use ids::{AlarmId, ExchangeId, InboundId, InputKey, OutboundId};
use inbound_call::InboundCall;
use input::{InboundInput, OutboundInput};
use outbound_call::OutboundCall;
use outbox::Outbox;
use peer_ids::PeerIds;
pub use pending::PendingInput;
use progress_queue::ProgressQueue;
use recent_caller::RecentCaller;
use request_rate::RequestRate;
use route::Arriving;
pub use route::{Gone, Lane, Received, ReplyKind, Route, RouteKind, Transmit};
pub use stats::Stats;
use subscriber::Subscriber;
use timers::Timers;
pub use types::{
    AskError, CheckpointError, Close, Full, InputMode, Invoke, InvokeError, Logged, NotLive, ProgressError, Reported, SendError,
    ServeOptions, TooManyAlarms, TransportEnd,
};

/// One end of one channel to one peer.
///
/// Its owner passes in frames and the time, and polls frames, events and one deadline. It has no socket, clock, task or lock.
///
/// * Input, `handle_*`: [`handle_frame`](Self::handle_frame), [`handle_frame_within`](Self::handle_frame_within),
///   [`handle_end`](Self::handle_end), [`handle_gone`](Self::handle_gone), [`handle_timeout`](Self::handle_timeout), and
///   [`set_writable`](Self::set_writable).
/// * As a caller: [`invoke`](Self::invoke), [`cancel`](Self::cancel), [`provide_input`](Self::provide_input),
///   [`pending_input`](Self::pending_input), [`resume_input`](Self::resume_input).
/// * As a callee: [`progress`](Self::progress), [`checkpoint`](Self::checkpoint), [`request_input`](Self::request_input),
///   [`abandon_input`](Self::abandon_input), [`finish_round`](Self::finish_round), [`respond`](Self::respond),
///   [`configure`](Self::configure); for subscriptions [`accept_subscription`](Self::accept_subscription), [`publish`](Self::publish).
/// * As a Tesseron gateway: [`welcome`](Self::welcome), [`claim`](Self::claim).
/// * As any end: [`log`](Self::log), [`notify`](Self::notify), [`set_alarm`](Self::set_alarm), [`clear_alarm`](Self::clear_alarm),
///   [`close`](Self::close).
/// * Output, `poll_*`: [`poll_transmit`](Self::poll_transmit) or [`poll_transmits`](Self::poll_transmits),
///   [`poll_event`](Self::poll_event), [`poll_timeout`](Self::poll_timeout). Call them in any order after any method. Poll frames and
///   events until there are none left; `poll_timeout` does not remove the deadline that it returns.
///
/// Methods may be called in any order, and nothing has to be polled in between, except that some methods return an error while too much
/// waits to be polled. For example, [`handle_frame`](Self::handle_frame) returns [`Full`]. A clone is an independent session in the same
/// state, for tests that explore states.
///
/// # What always holds
///
/// | | |
/// |---|---|
/// | G1 | Every [`OutboundId`] yields exactly one [`Event::Done`], which comes before [`Event::Closed`]. |
/// | G2 | Each exchange of the peer gets at most one response, each of ours at most one cancel, and no frame for the exchange follows that response or cancel. |
/// | G3 | The progress values that are sent for one call strictly increase, and none is sent after its response or cancel. The exception are updates without a value, which only Tesseron allows. |
/// | G4 | [`Event::Closed`] comes once. After it there is no frame, no event and no deadline. |
/// | G5 | No queue or table exceeds [`crate::Limits`], and memory does not grow with the age of a session. |
/// | G6 | No input, however hostile, causes a panic or unbounded recursion. |
/// | G7 | [`poll_timeout`](Self::poll_timeout) returns `None` or a time after the greatest `now` passed to [`handle_timeout`](Self::handle_timeout). If a method would set a deadline at or before its `now`, the deadline takes effect at once and is not set, or it is set a little after `now`, depending on the method. |
/// | G8 | The output of a method can be polled as soon as it returns. Only deadlines wait for [`handle_timeout`](Self::handle_timeout). |
/// | G9 | Only [`handle_timeout`](Self::handle_timeout) expires a deadline that is set. A frame or method call that comes before the call of `handle_timeout` counts as in time, whatever its `now`. |
/// | G10 | The same sequence of methods, polls included, gives the same output byte for byte. Nothing depends on hash seeds, addresses or a clock. |
/// | G11 | The ids and tokens `1` and `"1"` are different. The ids of the two directions are independent. |
/// | G12 | Sampling never nests deeper than [`crate::DepthPolicy::max`], provided that the message or the owner names the call that a request belongs to. |
/// | G13 | Payloads are passed on byte for byte, except that CR and LF between tokens become spaces. A message is refused if a member of its envelope occurs twice, or if `_meta` occurs twice in its parameters. |
/// | G14 | A call of ours with input rounds yields one [`Event::Done`]. Each retry has a new id, the exact state of the last round (or no state, if that round had none), and only the answers of that round (MCP 2026-07-28). For a call that was continued with `resume_input`, the last round is the one in its [`PendingInput`]. |
/// | G15 | For a stateless exchange a server sends no request, and nothing after its result; a client sends no response (MCP 2026-07-28). |
/// | G16 | Nothing that is sent for one caller is visible to another: ids, progress tokens, log levels, capabilities and subscriptions never cross two requests of a stateless server (MCP 2026-07-28). |
///
/// # Example
///
/// ```
/// use protocol_core::{Config, Event, Identity, Instant, Json, Outcome, Reply, Session, ToolOutput};
/// use protocol_core::{Invoke, Lane};
///
/// let now = Instant::ZERO;
/// let mut client = Session::new(Config::mcp_client(Identity::new("client", "1")), now);
/// let mut server = Session::new(Config::mcp_server(Identity::new("server", "1")), now);
/// let call = client.invoke(Invoke::call_tool("hello", Json::empty_object()), now)?;
///
/// let mut outcome = None;
/// while outcome.is_none() {
///     while let Some(out) = client.poll_transmit() {
///         server.handle_frame(out.frame, Lane::CHANNEL, now)?;
///     }
///     while let Some(event) = server.poll_event() {
///         if let Event::Request { id, .. } = event {
///             server.respond(id, Reply::Tool(ToolOutput::text("hello")), now)?;
///         }
///     }
///     while let Some(out) = server.poll_transmit() {
///         client.handle_frame(out.frame, Lane::CHANNEL, now)?;
///     }
///     while let Some(event) = client.poll_event() {
///         if let Event::Done { id, outcome: received, .. } = event {
///             assert_eq!(id, call);
///             outcome = Some(received);
///         }
///     }
/// }
/// assert_eq!(outcome, Some(Outcome::Result(Json::parse(r#"{"content":[{"type":"text","text":"hello"}]}"#)?)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    config: Arc<Config>,
    /// The rules of exchanges that begin from now on.
    rules: &'static Rules,
    /// The greatest `now` seen.
    now: Instant,
    handshake: Handshake,
    peer: Option<Arc<PeerInfo>>,
    /// A change of the peer's identity or capabilities that arrived before the answer to our handshake request.
    change: Option<Box<PeerChange>>,
    ending: Ending,
    arriving: Arriving,
    /// The exchange of ours on whose stream the frame that is being read came, if the owner has named one.
    within: Option<ExchangeId>,

    /// The number of the next id that the session makes: of a call, an exchange, an input request or an alarm. An outbound call and its
    /// first exchange have the same number, and so do an input request of ours and its exchange. Otherwise no number is used twice.
    next: u64,
    outbound_calls: Table<OutboundId, OutboundCall>,
    /// The calls whose current exchange is a retry, by the number of the exchange. An index of `outbound_calls`.
    retries: BTreeMap<ExchangeId, OutboundId>,
    /// The number of bytes of held calls and held input requests.
    held_bytes: usize,
    /// The number of bytes of the frames of all inbound calls and inbound input requests.
    request_bytes: usize,
    /// The peer's ids of open exchanges, and the last ids of ended ones.
    peer_ids: PeerIds,
    /// The peer's names of calls, by lane, on protocols that name calls (Tesseron). An index of `inbound_calls`.
    names: BTreeMap<(Lane, WireId), InboundId>,
    inbound_calls: Table<InboundId, InboundCall>,
    /// The members of `_meta` that name this end in each stateless request of ours; empty unless our requests are stateless.
    stamp: Box<[u8]>,
    /// The level of the least severe log record that a stateless request of ours asks for, unless the request has a level of its own.
    wanted_level: Option<Level>,
    /// Our subscription at a peer with stateless requests.
    subscriber: Subscriber,
    /// The caller of the last stateless request.
    recent_caller: RecentCaller,
    /// The bound on the rate of the peer's requests.
    request_rate: RequestRate,
    /// The number of cancelled inbound calls whose handler has not ended.
    cancelled_calls: usize,
    /// Our input requests.
    outbound_inputs: BTreeMap<InputKey, OutboundInput>,
    /// The peer's input requests.
    inbound_inputs: BTreeMap<InputKey, InboundInput>,
    /// The owner's alarms, each with the instant that is recorded for it in `timers`, which is never `None`.
    alarms: BTreeMap<AlarmId, Option<Instant>>,

    /// Calls whose progress waits for the session's rate window or for room on their lane.
    progress_queue: ProgressQueue,
    /// The level of the least severe log record that is sent, except on behalf of a stateless request, which states a level itself.
    log_level: Level,

    outbox: Outbox,
    timers: Timers,
    events: EventQueue,
    /// Until this time, [`Violation::InvalidProgress`](crate::Violation::InvalidProgress) and
    /// [`Violation::UnknownProgress`](crate::Violation::UnknownProgress) are counted, but become no events.
    quiet_until: Instant,
    stats: Stats,
}

impl Session {
    /// Creates a session at the time `now`. If this end opens the handshake (an MCP client, a Tesseron app), its first frame is ready to be
    /// polled. Sessions can share one configuration.
    #[must_use]
    pub fn new(config: impl Into<Arc<Config>>, now: Instant) -> Self {
        let config = config.into();
        let mut session = Self {
            rules: Dialect::rules(&config.protocol),
            now,
            handshake: Handshake::new(),
            peer: None,
            change: None,
            ending: Ending::new(),
            arriving: Arriving::default(),
            within: None,
            next: config.first_id(),
            outbound_calls: Table::new(),
            retries: BTreeMap::new(),
            held_bytes: 0,
            request_bytes: 0,
            peer_ids: PeerIds::new(config.limits.ended_ids),
            names: BTreeMap::new(),
            inbound_calls: Table::new(),
            stamp: Box::default(),
            wanted_level: None,
            subscriber: Subscriber::default(),
            recent_caller: RecentCaller::default(),
            request_rate: RequestRate::default(),
            cancelled_calls: 0,
            outbound_inputs: BTreeMap::new(),
            inbound_inputs: BTreeMap::new(),
            alarms: BTreeMap::new(),
            progress_queue: ProgressQueue::new(config.progress.session_window),
            log_level: config.log_level,
            outbox: Outbox::new(config.limits.output_bytes),
            timers: Timers::new(),
            events: EventQueue::new(),
            quiet_until: now,
            stats: Stats::default(),
            config,
        };
        session.begin();
        session
    }
}
