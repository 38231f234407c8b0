//! The session: one end of one channel to one peer, as a pure state machine.
//!
//! | Files | |
//! |---|---|
//! | `outbound_call`, `inbound_call`, `input` | the machines of calls: outbound, inbound, and the input requests that nest in both |
//! | `handshake`, `ending`, `overload` | the machines of the channel |
//! | `outbox`, `lane_queue`, `event_queue`, `timers`, `progress_queue` | the queues of frames, events and progress, and the deadlines |
//! | `progress`, `depth`, `peer_ids`, `stats`, `monotonic_map` | the rules of progress and of nesting, the peer's names, counters, a table |
//! | `caller`, `callee`, `gateway`, `notices`, `alarms`, `closing`, `input_output`, `inspect` | the methods of [`Session`], each with the steps that only it takes |
//! | `receive` | the effect of each message of the peer |
//! | `verbs`, `event`, `route` | the types that methods take and return, and those that are polled |
//!
//! The state of a machine is private to its file and changes by its methods alone; the table of its transitions opens the file. The
//! methods of the session join the machines.

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
mod inbound_call;
mod input;
mod input_output;
mod inspect;
mod lane_queue;
mod monotonic_map;
mod notices;
mod outbound_call;
mod outbox;
mod overload;
mod peer_ids;
mod progress;
mod progress_queue;
mod receive;
mod request_rate;
mod route;
mod stats;
mod timers;
mod verbs;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::config::Config;
use crate::dialect::{Dialect, Level, PeerChange, PeerInfo, Rules};
use crate::shared::Arc;
use crate::table::Table;
use crate::time::Instant;
use crate::wire::WireId;

use ending::Ending;
pub use event::{
    AlarmId, CancelReason, CloseReason, Event, ExchangeId, InboundId, InputFailed, InputKey, Invalid, OutboundId, Outcome,
    TimeoutKind,
};
use event_queue::EventQueue;
use handshake::Handshake;
use inbound_call::InboundCall;
use input::{InboundInput, OutboundInput};
use outbound_call::OutboundCall;
use outbox::Outbox;
use peer_ids::PeerIds;
use progress_queue::ProgressQueue;
use request_rate::RequestRate;
pub use route::{Gone, Lane, Received, ReplyKind, Route, RouteKind, Transmit};
pub use stats::Stats;
use timers::Timers;
pub use verbs::{
    AskError, CheckpointError, Close, Full, Invoke, InvokeError, Logged, NotLive, ProgressError, Refused, Reported, ServeOptions,
    TooManyAlarms, TransportEnd,
};

/// One end of one channel to one peer.
///
/// It is fed frames and time, and gives frames, events and one deadline. It owns no socket, clock, task or lock.
///
/// * `handle_*` brings what happened outside: [`handle_frame`](Self::handle_frame), [`handle_end`](Self::handle_end),
///   [`handle_gone`](Self::handle_gone), [`handle_timeout`](Self::handle_timeout); and [`set_writable`](Self::set_writable).
/// * As a caller: [`invoke`](Self::invoke), [`cancel`](Self::cancel), [`provide_input`](Self::provide_input).
/// * As a callee: [`progress`](Self::progress), [`checkpoint`](Self::checkpoint), [`request_input`](Self::request_input),
///   [`respond`](Self::respond), [`configure`](Self::configure).
/// * As a gateway of Tesseron: [`welcome`](Self::welcome), [`claim`](Self::claim).
/// * As either: [`log`](Self::log), [`notify`](Self::notify), [`set_alarm`](Self::set_alarm), [`close`](Self::close).
/// * `poll_*` takes what there is to do: [`poll_transmit`](Self::poll_transmit), [`poll_event`](Self::poll_event),
///   [`poll_timeout`](Self::poll_timeout). In any order, at any time; `None` until something happens again.
///
/// Any method may follow any other: nothing has to be polled in between. A clone is an independent session in the same state, for a
/// search through states, not for two ends of one channel.
///
/// # What always holds
///
/// | | |
/// |---|---|
/// | G1 | Every [`OutboundId`] yields exactly one [`Event::Done`], at the latest just before [`Event::Closed`]. |
/// | G2 | At most one response leaves for each exchange of the peer, at most one cancel for each of ours, and nothing after either. |
/// | G3 | The value of progress of one call strictly increases on the wire, after its request and before its response or cancel. Updates without a value, and those of [`crate::ProgressPolicy::repeat_value_for_message`], are excepted. |
/// | G4 | After [`Event::Closed`], which comes once and last, there is no frame, no event and no deadline. |
/// | G5 | Queues, tables and memories never exceed [`crate::Limits`]; nothing grows with the age of a session. |
/// | G6 | No input, however hostile, panics or recurses without bound. |
/// | G7 | [`poll_timeout`](Self::poll_timeout) is `None` or later than the greatest `now` given to [`handle_timeout`](Self::handle_timeout). A method whose deadline would not lie after its `now` settles at once. |
/// | G8 | Output is ready when a method returns. Only deadlines wait for [`handle_timeout`](Self::handle_timeout). |
/// | G9 | Only [`handle_timeout`](Self::handle_timeout) expires anything: frames and method calls before it win, whatever their `now`. |
/// | G10 | Equal operations, polls included, give byte-equal output. Nothing depends on hashing, addresses or a clock. |
/// | G11 | Ids and tokens are typed: `1` is not `"1"`. The ids of the two directions never meet. |
/// | G12 | Sampling never nests deeper than [`crate::DepthPolicy::max`], on either side, as far as the wire or the owner names parents. |
/// | G13 | Payload bytes cross unchanged, except CR and LF between tokens, which become spaces. A repeated member of the envelope or a repeated `_meta` is refused. |
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
///         if let Event::Done { id, outcome: how, .. } = event {
///             assert_eq!(id, call);
///             outcome = Some(how);
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
    /// A change that the peer announced before it answered our handshake request.
    change: Option<Box<PeerChange>>,
    ending: Ending,
    /// The frame that is being read.
    arriving: Arriving,

    /// The number of the next id of ours, of any kind: none is used twice.
    next: u64,
    outbound_calls: Table<OutboundId, OutboundCall>,
    /// Bytes of calls and of input requests that wait for the handshake.
    held_bytes: usize,
    /// The peer's ids of exchanges that wait for a response.
    peer_ids: PeerIds,
    /// The peer's names of calls by lane, where progress tokens name calls. A part of `inbound_calls`.
    names: BTreeMap<(Lane, WireId), InboundId>,
    inbound_calls: Table<InboundId, InboundCall>,
    /// Requests of the peer in the last second, if they are bounded.
    request_rate: RequestRate,
    /// The number of cancelled inbound calls whose handler has not ended.
    orphans: usize,
    /// Our input requests.
    outbound_inputs: BTreeMap<InputKey, OutboundInput>,
    /// The peer's input requests.
    inbound_inputs: BTreeMap<InputKey, InboundInput>,
    alarms: BTreeMap<AlarmId, Option<Instant>>,

    /// Calls whose progress waits for the session's window or for room on their lane.
    progress_queue: ProgressQueue,
    /// The least severe log record that the peer wants.
    log_level: Level,

    outbox: Outbox,
    timers: Timers,
    events: EventQueue,
    /// The end of the time in which progress that belongs to no call is counted and not reported.
    quiet_until: Instant,
    stats: Stats,
}

/// The frame that is being read: its lane, and the number of replies that the lane is owed for it so far.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    lane: Lane,
    replies: usize,
}

impl Default for Arriving {
    fn default() -> Self {
        Self { lane: Lane::CHANNEL, replies: 0 }
    }
}

impl Session {
    /// Makes a session that begins at `now`. The handshake request of an end that opens the handshake is ready to be polled. Sessions can
    /// share one configuration.
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
            next: config.first_id(),
            outbound_calls: Table::new(),
            held_bytes: 0,
            peer_ids: PeerIds::new(config.limits.tombstones),
            names: BTreeMap::new(),
            inbound_calls: Table::new(),
            request_rate: RequestRate::default(),
            orphans: 0,
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
