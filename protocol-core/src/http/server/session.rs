//! The HTTP side of a session: its id, its revision and its streams.
//!
//! ```text
//!   Opening --- initialize has a result ---> Open --- DELETE, or idle for too long ---> (gone)
//!      |
//!      `--- initialize fails, or its exchange is lost ---> (gone)
//!
//!   Stateless --- the reply was made, or the exchange is lost ---> (gone)
//! ```
//!
//! In any state, the session is also gone when the owner ends it, or when it closes by itself. In `Opening` and `Stateless` it is also gone
//! when it refuses its first frame, or when its request is cancelled.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use super::stream::{State as StreamState, Stream};
use super::timers::{Armed, Shared, TimerKey};
use super::types::{HttpExchangeId, SessionKey};
use crate::http::HttpLimits;
use crate::http::era::Era;
use crate::http::sse::EventId;
use crate::json::Text;
use crate::mcp::Revision;
use crate::session::Lane;

#[derive(Debug)]
pub(super) struct HttpSession {
    key: SessionKey,
    state: State,
    principal: Option<Box<str>>,
    /// The client that the session counts for.
    client: Option<Text>,
    streams: BTreeMap<Lane, Stream>,
    /// The number of streams that have an exchange, or on which a reply is owed.
    active: usize,
    /// The lanes of streams that are kept only for replay, oldest first.
    inactive: VecDeque<Lane>,
    /// The number of bytes of all events that are kept.
    kept_bytes: usize,
    /// The lanes of GET streams that have an exchange, newest last.
    gets: Vec<Lane>,
    /// The exchanges without a stream whose frames the session has not taken yet.
    unacknowledged: BTreeSet<HttpExchangeId>,
    /// Frames that wait for a GET stream.
    waiting: VecDeque<Bytes>,
    /// `true` while the channel is stopped.
    is_channel_stopped: bool,
    last_lane: u32,
    /// The deadline at which the session has been idle for too long.
    idle: Armed,
}

#[derive(Debug)]
enum State {
    /// `initialize` has no reply yet.
    Opening { id: Text },
    /// The client has been sent the id. `is_confirmed` is `true` once the client has used it.
    Open { id: Text, revision: Revision, is_confirmed: bool },
    /// The session serves one request without a handshake, and has no id.
    Stateless { is_subscription: bool },
}

impl HttpSession {
    pub(super) fn opening(key: SessionKey, id: Text, principal: Option<&str>, client: Option<Text>) -> Self {
        Self { client, ..Self::new(key, State::Opening { id }, principal) }
    }

    pub(super) fn stateless(key: SessionKey, is_subscription: bool) -> Self {
        Self::new(key, State::Stateless { is_subscription }, None)
    }

    fn new(key: SessionKey, state: State, principal: Option<&str>) -> Self {
        Self {
            key,
            state,
            principal: principal.map(Box::from),
            client: None,
            streams: BTreeMap::new(),
            active: 0,
            inactive: VecDeque::new(),
            kept_bytes: 0,
            gets: Vec::new(),
            unacknowledged: BTreeSet::new(),
            waiting: VecDeque::new(),
            is_channel_stopped: false,
            last_lane: 0,
            idle: Armed::default(),
        }
    }

    pub(super) fn era(&self) -> Era {
        if matches!(self.state, State::Stateless { .. }) { Era::Modern } else { Era::Legacy }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening { .. })
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.state, State::Open { is_confirmed: true, .. })
    }

    pub(super) fn is_subscription(&self) -> bool {
        matches!(self.state, State::Stateless { is_subscription: true })
    }

    pub(super) fn id(&self) -> Option<&Text> {
        match &self.state {
            State::Opening { id } | State::Open { id, .. } => Some(id),
            State::Stateless { .. } => None,
        }
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        match self.state {
            State::Open { revision, .. } => Some(revision),
            State::Opening { .. } | State::Stateless { .. } => None,
        }
    }

    pub(super) fn belongs_to(&self, principal: Option<&str>) -> bool {
        self.principal.as_deref() == principal
    }

    pub(super) fn client(&self) -> Option<&Text> {
        self.client.as_ref()
    }

    pub(super) fn idle(&mut self) -> &mut Armed {
        &mut self.idle
    }

    // ---- Transitions ----

    /// Opening -> Open.
    pub(super) fn open(&mut self, revision: Revision) {
        if let State::Opening { id } = &self.state {
            self.state = State::Open { id: id.clone(), revision, is_confirmed: false };
        }
    }

    /// Open -> Open: records that the client has used the id.
    pub(super) fn confirm(&mut self) {
        if let State::Open { is_confirmed, .. } = &mut self.state {
            *is_confirmed = true;
        }
    }

    // ---- Exchanges without a stream ----

    /// Adds an exchange that is acknowledged once the session has taken its frame.
    pub(super) fn add_unacknowledged(&mut self, exchange: HttpExchangeId) {
        self.unacknowledged.insert(exchange);
    }

    pub(super) fn note_taken(&mut self, exchange: HttpExchangeId) {
        self.unacknowledged.remove(&exchange);
    }

    /// Removes and returns the exchanges whose frames the session has not taken.
    pub(super) fn take_unacknowledged(&mut self) -> BTreeSet<HttpExchangeId> {
        core::mem::take(&mut self.unacknowledged)
    }

    // ---- Streams ----

    /// The number of a lane that no stream has.
    pub(super) fn next_lane(&mut self) -> Lane {
        loop {
            self.last_lane = self.last_lane.wrapping_add(1);
            let lane = Lane::new(self.last_lane);
            if lane != Lane::CHANNEL && !self.streams.contains_key(&lane) {
                return lane;
            }
        }
    }

    pub(super) fn stream(&self, lane: Lane) -> Option<&Stream> {
        self.streams.get(&lane)
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = Lane> {
        self.streams.keys().copied()
    }

    /// The lanes on which a reply is owed.
    pub(super) fn lanes_at_work(&self) -> impl Iterator<Item = Lane> {
        self.streams.iter().filter(|(_, stream)| stream.is_at_work()).map(|(lane, _)| *lane)
    }

    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    pub(super) fn add_stream(&mut self, lane: Lane, stream: Stream) {
        self.active = self.active.saturating_add(usize::from(stream.is_active()));
        if stream.is_get() {
            self.gets.push(lane);
        }
        self.streams.insert(lane, stream);
    }

    /// Calls `change`, which changes a stream by one of its transitions, and updates the counts and lists of streams.
    pub(super) fn with_stream<T>(&mut self, lane: Lane, change: impl FnOnce(&mut Stream) -> T) -> Option<T> {
        let stream = self.streams.get_mut(&lane)?;
        let was_active = stream.is_active();
        let had_exchange = stream.exchange().is_some();
        let changed = change(stream);
        let has_exchange = stream.exchange().is_some();
        match (was_active, stream.is_active()) {
            (true, false) => {
                self.active = self.active.saturating_sub(1);
                self.inactive.push_back(lane);
            }
            (false, true) => {
                self.active = self.active.saturating_add(1);
                self.inactive.retain(|inactive| *inactive != lane);
            }
            _ => {}
        }
        if stream.is_get() && (had_exchange || has_exchange) {
            self.gets.retain(|get| *get != lane);
            if has_exchange {
                self.gets.push(lane);
            }
        }
        Some(changed)
    }

    pub(super) fn remove_stream(&mut self, lane: Lane, shared: &mut Shared) {
        let Some(mut stream) = self.streams.remove(&lane) else { return };
        shared.set(stream.retention(), TimerKey::Retention(self.key, lane), None);
        self.forget(stream.kept_bytes(), shared);
        if stream.is_active() {
            self.active = self.active.saturating_sub(1);
        } else {
            self.inactive.retain(|inactive| *inactive != lane);
        }
        self.gets.retain(|get| *get != lane);
    }

    /// Keeps a frame for replay, if the stream can be resumed, and returns the id of its event. Beyond [`HttpLimits::replay_events`], drops
    /// the oldest events of this stream. Beyond [`HttpLimits::replay_bytes`], and beyond what [`HttpLimits::kept_bytes`] leaves for all other
    /// sessions, drops other streams that are kept only for replay, oldest first, and then the oldest events of this stream.
    pub(super) fn keep(&mut self, lane: Lane, frame: &Bytes, limits: &HttpLimits, shared: &mut Shared) -> Option<EventId> {
        let stream = self.streams.get_mut(&lane)?;
        let id = stream.keep(frame)?;
        let most = limits.replay_bytes.min(limits.kept_bytes.saturating_sub(shared.kept_bytes()));
        self.kept_bytes = self.kept_bytes.saturating_add(frame.len());
        shared.keep(frame.len());
        while self.streams.get(&lane).is_some_and(|stream| stream.kept_events() > limits.replay_events) {
            self.drop_oldest_event(lane, shared);
        }
        while self.kept_bytes > most {
            if let Some(inactive) = self.inactive.iter().copied().find(|inactive| *inactive != lane) {
                self.remove_stream(inactive, shared);
            } else if self.streams.get(&lane).is_some_and(|stream| stream.kept_events() > 0) {
                self.drop_oldest_event(lane, shared);
            } else {
                break;
            }
        }
        Some(id)
    }

    fn drop_oldest_event(&mut self, lane: Lane, shared: &mut Shared) {
        let Some(stream) = self.streams.get_mut(&lane) else { return };
        let before = stream.kept_bytes();
        stream.drop_oldest_event();
        let dropped = before.saturating_sub(stream.kept_bytes());
        self.forget(dropped, shared);
    }

    fn forget(&mut self, bytes: usize, shared: &mut Shared) {
        self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
        shared.forget(bytes);
    }

    /// Removes streams that are kept only for replay, oldest first, until `most` are left.
    pub(super) fn bound_inactive(&mut self, most: usize, shared: &mut Shared) {
        while self.inactive.len() > most {
            let Some(oldest) = self.inactive.front().copied() else { return };
            self.remove_stream(oldest, shared);
        }
    }

    // ---- The channel ----

    /// The lane of the newest GET stream that has an exchange.
    pub(super) fn newest_get(&self) -> Option<Lane> {
        self.gets.last().copied()
    }

    /// The lane of the oldest GET stream that has an exchange, if there are `most` or more.
    pub(super) fn surplus_get(&self, most: usize) -> Option<Lane> {
        self.gets.first().copied().filter(|_| self.gets.len() >= most)
    }

    /// Keeps a frame until there is a GET stream. The channel is stopped once `most` frames wait. If more than twice as many wait even so,
    /// drops the oldest.
    pub(super) fn keep_waiting(&mut self, frame: Bytes, most: usize) {
        self.waiting.push_back(frame);
        if self.waiting.len() > most.saturating_mul(2) {
            self.waiting.pop_front();
        }
    }

    pub(super) fn next_waiting(&mut self) -> Option<Bytes> {
        self.waiting.pop_front()
    }

    /// Returns `true` if `most` or more frames wait for a GET stream.
    pub(super) fn has_too_many_waiting(&self, most: usize) -> bool {
        self.waiting.len() >= most
    }

    /// Records that the channel is stopped or resumed. Returns `true` if this is a change, for which an event must be queued.
    pub(super) fn set_channel_stopped(&mut self, is_stopped: bool) -> bool {
        core::mem::replace(&mut self.is_channel_stopped, is_stopped) != is_stopped
    }

    /// Returns `true` if a client can resume the stream of a lane after event `number`: the stream does not wait for its first frame,
    /// and all later events are kept.
    pub(super) fn is_resumable(&self, lane: Lane, number: u64) -> bool {
        self.streams
            .get(&lane)
            .is_some_and(|stream| !matches!(stream.state(), StreamState::Waiting(_)) && stream.has_all_after(number))
    }
}
