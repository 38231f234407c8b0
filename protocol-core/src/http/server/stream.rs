//! One stream of frames to a client: the stream of a POST, or one that a GET has opened. In a session with a handshake, a stream can
//! outlive its exchange.
//!
//! ```text
//!         any frame that cannot be the whole response,
//!         no frame for `HttpTimeouts::keep_alive`, or a half-closed client
//!   Waiting -----------------------------------------------------> Live --- frame: written, and kept for replay
//!    |   |                                                         |  ^ |
//!    |   |        the exchange is lost, or its response was ended  |  | |
//!    |   `------------------> Detached <---------------------------'  | |  last reply
//!    |                        |  |  |                                | |
//!    |   the reply as JSON    |  |  `--- resumed: the missed events --' |
//!    |   (not kept)           |  |       are written                    |
//!    |                        |  |  last reply                          v
//!    `---> (gone)             |  `---------------------------------> Done --- resumed: the rest is written, end
//!                             |  kept for long enough                 |
//!                             `---------------> (gone) <--------------'  kept for long enough
//! ```
//!
//! The stream of a GET begins as `Live`, and no reply is owed on it. The response of a POST is ended before the last reply by
//! `HttpServer::suspend`, and that of the oldest GET by a GET above `HttpLimits::get_streams`. A `Live` stream can be resumed, too: then
//! its earlier exchange ends. If a stream cannot be resumed, frames that arrive in `Detached` are dropped, and the stream is removed as
//! soon as it is `Done` or, if a GET has opened it, `Detached`. A stream is also removed when its request is cancelled or refused (even
//! after its exchange was lost), when a limit on replay is exceeded, and when its session ends.

use alloc::collections::VecDeque;

use bytes::Bytes;

use super::timers::Armed;
use super::types::HttpExchangeId;
use crate::http::sse::{Encoder, EventId};
use crate::session::Lane;

#[derive(Debug)]
pub(super) struct Stream {
    lane: Lane,
    state: State,
    kind: Kind,
    /// The exchange in whose request the frame came, until the session has taken the frame. `None` for the stream of a GET.
    untaken: Option<HttpExchangeId>,
    /// The events that are kept, if the stream can be resumed.
    replay: Option<Replay>,
    /// `true` while the lane of a POST is stopped. For the stream of a GET it is always `false`.
    is_stopped: bool,
    /// The time until which the stream is kept without an exchange.
    retention: Armed,
}

/// The state of a stream, and the exchange in whose response it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No response has begun.
    Waiting(HttpExchangeId),
    /// Frames are written as they come.
    Live(HttpExchangeId),
    /// The stream has no exchange, and replies are owed or, on the stream of a GET, further frames may come.
    Detached,
    /// All replies were made. If the stream had an exchange, the response ends.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The stream of a POST, on which `owed` replies are owed. `is_single` is `true` if the body was not a batch, so that the reply may be
    /// sent as JSON.
    Post { owed: usize, is_single: bool },
    /// The stream of a GET.
    Get,
}

impl Stream {
    /// The stream of a POST.
    pub(super) fn post(lane: Lane, exchange: HttpExchangeId, owed: usize, is_single: bool, can_resume: bool) -> Self {
        let kind = Kind::Post { owed, is_single };
        Self { untaken: Some(exchange), ..Self::new(lane, State::Waiting(exchange), kind, can_resume) }
    }

    /// The stream of a GET.
    pub(super) fn get(lane: Lane, exchange: HttpExchangeId, can_resume: bool) -> Self {
        Self::new(lane, State::Live(exchange), Kind::Get, can_resume)
    }

    fn new(lane: Lane, state: State, kind: Kind, can_resume: bool) -> Self {
        let replay = can_resume.then(Replay::default);
        Self { lane, state, kind, untaken: None, replay, is_stopped: false, retention: Armed::default() }
    }

    pub(super) fn retention(&mut self) -> &mut Armed {
        &mut self.retention
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Returns `true` while the stream has an exchange, or a reply is owed.
    pub(super) fn is_active(&self) -> bool {
        self.exchange().is_some() || self.is_at_work()
    }

    pub(super) fn exchange(&self) -> Option<HttpExchangeId> {
        match self.state {
            State::Waiting(exchange) | State::Live(exchange) => Some(exchange),
            State::Detached | State::Done => None,
        }
    }

    pub(super) fn is_get(&self) -> bool {
        self.kind == Kind::Get
    }

    /// Returns `true` while a reply is owed.
    pub(super) fn is_at_work(&self) -> bool {
        matches!(self.kind, Kind::Post { owed, .. } if owed > 0)
    }

    /// Returns `true` if the next reply can be the whole response, as JSON.
    pub(super) fn fits_json(&self) -> bool {
        self.kind == Kind::Post { owed: 1, is_single: true } && matches!(self.state, State::Waiting(_))
    }

    pub(super) fn can_resume(&self) -> bool {
        self.replay.is_some()
    }

    /// The exchange in whose request the frame came; `None` once the session has taken the frame, and for the stream of a GET.
    pub(super) fn untaken(&self) -> Option<HttpExchangeId> {
        self.untaken
    }

    /// Records that the session has taken the frame, and owes `replies` replies.
    pub(super) fn take(&mut self, replies: usize) {
        self.untaken = None;
        if let Kind::Post { owed, .. } = &mut self.kind {
            *owed = replies;
        }
    }

    /// Records that the lane is stopped, or may be written again. Returns `true` if this is a change, for which an event must be queued.
    pub(super) fn set_stopped(&mut self, is_stopped: bool) -> bool {
        core::mem::replace(&mut self.is_stopped, is_stopped) != is_stopped
    }

    // ---- Transitions ----

    /// Waiting -> Live.
    pub(super) fn begin(&mut self) {
        if let State::Waiting(exchange) = self.state {
            self.state = State::Live(exchange);
        }
    }

    /// Counts a reply. If it was the last one: any state -> Done, and returns `true`.
    pub(super) fn count_reply(&mut self) -> bool {
        let Kind::Post { owed, .. } = &mut self.kind else { return false };
        *owed = owed.saturating_sub(1);
        let is_last = *owed == 0;
        if is_last {
            self.state = State::Done;
        }
        is_last
    }

    /// Waiting, Live -> Detached: the exchange was lost, or its response was ended by `HttpServer::suspend` or by a further GET.
    pub(super) fn detach(&mut self) {
        if matches!(self.state, State::Waiting(_) | State::Live(_)) {
            self.state = State::Detached;
        }
    }

    /// Live, Detached -> Live, in another exchange. Returns `false` if the stream is `Done`, so that only kept events are sent.
    pub(super) fn resume(&mut self, exchange: HttpExchangeId) -> bool {
        let goes_on = self.state != State::Done;
        if goes_on {
            self.state = State::Live(exchange);
        }
        goes_on
    }

    // ---- Events ----

    /// Keeps the frame of the next event, and returns the id of the event; `None` if the stream cannot be resumed.
    pub(super) fn keep(&mut self, frame: &Bytes) -> Option<EventId> {
        let number = self.replay.as_mut()?.push(frame.clone());
        Some(EventId::new(self.lane, number))
    }

    /// The id of the event with the number 0. It has no frame, and is sent only to prime a client to resume the stream.
    pub(super) fn first_id(&self) -> EventId {
        EventId::new(self.lane, 0)
    }

    /// Returns `true` if every event after `number` is kept, and `number` is that of an event, or 0.
    pub(super) fn has_all_after(&self, number: u64) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.has_all_after(number))
    }

    /// Writes every event after `number`.
    pub(super) fn write_after(&self, number: u64, encoder: &mut Encoder) {
        for (number, frame) in self.replay.iter().flat_map(|replay| replay.after(number)) {
            encoder.event(Some(EventId::new(self.lane, number)), frame);
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.replay.as_ref().map_or(0, |replay| replay.bytes)
    }

    pub(super) fn kept_events(&self) -> usize {
        self.replay.as_ref().map_or(0, |replay| replay.events.len())
    }

    pub(super) fn drop_oldest_event(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.drop_oldest();
        }
    }
}

/// The newest events of a stream, kept for replay. Events with a frame are numbered from 1 on.
#[derive(Debug, Default)]
struct Replay {
    /// The frames of the events, oldest first.
    events: VecDeque<Bytes>,
    /// The number of bytes in `events`.
    bytes: usize,
    /// The number of the newest event; 0 if there was none.
    newest: u64,
}

impl Replay {
    fn push(&mut self, frame: Bytes) -> u64 {
        self.newest = self.newest.saturating_add(1);
        self.bytes = self.bytes.saturating_add(frame.len());
        self.events.push_back(frame);
        self.newest
    }

    fn drop_oldest(&mut self) {
        if let Some(frame) = self.events.pop_front() {
            self.bytes = self.bytes.saturating_sub(frame.len());
        }
    }

    /// The number of the last event that was dropped; 0 if none was.
    fn dropped(&self) -> u64 {
        self.newest.saturating_sub(self.events.len() as u64)
    }

    fn has_all_after(&self, number: u64) -> bool {
        (self.dropped()..=self.newest).contains(&number)
    }

    fn after(&self, number: u64) -> impl Iterator<Item = (u64, Bytes)> {
        let first = self.dropped().saturating_add(1);
        (first..).zip(self.events.iter().cloned()).filter(move |(at, _)| *at > number)
    }
}
