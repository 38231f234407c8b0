//! One stream of frames to a client: that of a POST, or one that a GET has opened. It outlives its HTTP exchange if its session has a
//! handshake.
//!
//! ```text
//!              first frame is no reply, or nothing for a while
//!   Waiting -----------------------------------------------------> Live --- frame: written, and kept for replay
//!    |   |                                                         |  ^ |
//!    |   |  the exchange is lost        the exchange is lost,      |  | |
//!    |   `------------------> Detached <---- or was suspended -----'  | |  last reply
//!    |                        |  |  |                                | |
//!    |   last reply           |  |  `--- resumed: what was missed is -' |
//!    |   (not kept)           |  |       written again                  |
//!    |                        |  |  last reply                          v
//!    `---> (gone)             |  `---------------------------------> Done --- resumed: the rest is written, end
//!                             |  kept for long enough                 |
//!                             `---------------> (gone) <--------------'  kept for long enough
//! ```
//!
//! A stream of a GET begins as `Live`, and never gets a reply. Without replay, what arrives in `Detached` is dropped, and `Done` is gone at
//! once.

use alloc::collections::VecDeque;

use bytes::Bytes;

use super::HttpExchangeId;
use super::timers::Armed;
use crate::http::sse::{Encoder, EventId};
use crate::session::Lane;

#[derive(Debug)]
pub(super) struct Stream {
    lane: Lane,
    state: State,
    kind: Kind,
    /// The events that are kept, if the stream can be resumed.
    replay: Option<Replay>,
    /// `true` if the owner was told to stop the lane.
    is_stopped: bool,
    retention: Armed,
}

/// The state of a stream, and the exchange that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No response has begun.
    Waiting(HttpExchangeId),
    /// Frames are written as they come.
    Live(HttpExchangeId),
    /// No exchange carries it, and replies are owed.
    Detached,
    /// All replies were made. The exchange, if there is one, is about to end.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A POST with that many requests whose replies are still owed. More than one come in a stream, and never as JSON.
    Post { owed: usize, is_single: bool },
    /// A GET.
    Get,
}

impl Stream {
    /// The stream of a POST.
    pub(super) fn post(lane: Lane, exchange: HttpExchangeId, owed: usize, is_single: bool, can_resume: bool) -> Self {
        let kind = Kind::Post { owed, is_single };
        Self::new(lane, State::Waiting(exchange), kind, can_resume)
    }

    /// The stream of a GET.
    pub(super) fn get(lane: Lane, exchange: HttpExchangeId, can_resume: bool) -> Self {
        Self::new(lane, State::Live(exchange), Kind::Get, can_resume)
    }

    fn new(lane: Lane, state: State, kind: Kind, can_resume: bool) -> Self {
        let replay = can_resume.then(Replay::default);
        Self { lane, state, kind, replay, is_stopped: false, retention: Armed::default() }
    }

    pub(super) fn retention(&mut self) -> &mut Armed {
        &mut self.retention
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Returns `true` while an exchange carries the stream, or a reply is owed.
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

    /// Returns `true` if the next reply can be the whole response.
    pub(super) fn fits_json(&self) -> bool {
        self.kind == Kind::Post { owed: 1, is_single: true } && matches!(self.state, State::Waiting(_))
    }

    pub(super) fn can_resume(&self) -> bool {
        self.replay.is_some()
    }

    pub(super) fn set_owed(&mut self, replies: usize) {
        if let Kind::Post { owed, .. } = &mut self.kind {
            *owed = replies;
        }
    }

    /// Returns `true` if the owner is to be told that the lane is writable or not.
    pub(super) fn set_stopped(&mut self, is_stopped: bool) -> bool {
        core::mem::replace(&mut self.is_stopped, is_stopped) != is_stopped
    }

    // ---- Transitions ----

    /// `Waiting` becomes `Live`.
    pub(super) fn begin(&mut self) {
        if let State::Waiting(exchange) = self.state {
            self.state = State::Live(exchange);
        }
    }

    /// Counts a reply. Returns `true` if it was the last one; then the stream is `Done`.
    pub(super) fn count_reply(&mut self) -> bool {
        let Kind::Post { owed, .. } = &mut self.kind else { return false };
        *owed = owed.saturating_sub(1);
        let is_last = *owed == 0;
        if is_last {
            self.state = State::Done;
        }
        is_last
    }

    /// The exchange is lost, or was ended on purpose.
    pub(super) fn detach(&mut self) {
        if matches!(self.state, State::Waiting(_) | State::Live(_)) {
            self.state = State::Detached;
        }
    }

    /// Another exchange carries the stream on. Returns `false` if only the rest is left.
    pub(super) fn resume(&mut self, exchange: HttpExchangeId) -> bool {
        let goes_on = self.state != State::Done;
        if goes_on {
            self.state = State::Live(exchange);
        }
        goes_on
    }

    // ---- Events ----

    /// The id of the next event, and keeps its frame.
    pub(super) fn keep(&mut self, frame: &Bytes) -> Option<EventId> {
        let number = self.replay.as_mut()?.push(frame.clone());
        Some(EventId::new(self.lane, number))
    }

    /// The id to begin with: that of an event without a frame, before the first one.
    pub(super) fn first_id(&self) -> EventId {
        EventId::new(self.lane, 0)
    }

    /// Returns `true` if every event after `number` is kept, and `number` was given to an event.
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

/// The newest events of a stream. They have consecutive numbers from 1 on.
#[derive(Debug, Default)]
struct Replay {
    events: VecDeque<Bytes>,
    /// Bytes of `events`.
    bytes: usize,
    /// The number of the newest event; 0 before the first.
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

    /// The number of the event before the oldest one that is kept.
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
