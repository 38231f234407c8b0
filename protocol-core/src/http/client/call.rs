//! One request of the session, from its frame to its response: over one HTTP exchange, or over several if its stream is resumed.
//!
//! ```text
//!             send            2xx with events
//!   Held ------------> Sent -------------------> Streaming <-------- 2xx with events ---------.
//!     ^                 |                            |                                        |
//!     `-----------------'                            | wait: it broke, and can be resumed     |
//!      hold: the HTTP session is gone, or the        v               resume                   |
//!      list of tools is read first; once each     Waiting -------------------------------> Resuming
//!                                                    ^                                        |
//!                                                    `---------------- broke -----------------'
//! ```
//!
//! A call is gone with its response, with its cancel, and when it is lost: its exchange broke in an era without sessions or before the first
//! id, or its stream was not resumed after some attempts.

use bytes::Bytes;

use super::HttpRequestId;
use super::cache::Claim;
use super::resumption::Resumption;
use crate::http::era::Era;
use crate::http::message::Request;
use crate::http::timers::Armed;
use crate::json::Text;

#[derive(Debug)]
pub(super) struct Call {
    era: Era,
    kind: Kind,
    /// The frame, as long as it may be sent again.
    frame: Bytes,
    /// The number of HTTP sessions before the one that it was sent in.
    generation: u32,
    /// `true` once it was sent again, because the server had forgotten the HTTP session.
    was_moved: bool,
    /// `true` once the list of tools was read for it.
    was_looked_up: bool,
    /// The right to keep its result.
    claim: Option<Claim>,
    state: State,
    resumption: Resumption,
    timer: Armed,
}

/// The requests that are treated in their own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request for the revisions of the server.
    Probe,
    /// The handshake.
    Initialize,
    /// A call of this tool.
    Tool(Text),
    /// A page of the list of tools.
    Tools,
    /// A ping, which a session cancels without a word.
    Ping,
    /// A subscription.
    Listen,
    Other,
}

impl Kind {
    pub(super) fn of(request: &Request) -> Self {
        match &*request.method {
            "server/discover" => Self::Probe,
            "initialize" => Self::Initialize,
            "tools/call" => request.name().flatten().map_or(Self::Other, |name| Self::Tool(Text::from(&*name))),
            "tools/list" => Self::Tools,
            "ping" => Self::Ping,
            "subscriptions/listen" => Self::Listen,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Sent(HttpRequestId),
    Streaming(HttpRequestId),
    Waiting,
    Resuming(HttpRequestId),
}

impl Call {
    pub(super) fn new(era: Era, kind: Kind, frame: Bytes, claim: Option<Claim>) -> Self {
        Self {
            era,
            kind,
            frame,
            generation: 0,
            was_moved: false,
            was_looked_up: false,
            claim,
            state: State::Held,
            resumption: Resumption::default(),
            timer: Armed::default(),
        }
    }

    // ---- Transitions ----

    /// Held -> Sent.
    pub(super) fn send(&mut self, request: HttpRequestId, generation: u32) {
        self.generation = generation;
        self.state = State::Sent(request);
    }

    /// Sent, Resuming -> Streaming.
    pub(super) fn stream(&mut self, request: HttpRequestId) {
        self.state = State::Streaming(request);
        self.frame = Bytes::new();
    }

    /// Streaming, Resuming -> Waiting.
    pub(super) fn wait(&mut self) {
        self.state = State::Waiting;
    }

    /// Waiting -> Resuming.
    pub(super) fn resume(&mut self, request: HttpRequestId) {
        self.state = State::Resuming(request);
    }

    /// Sent -> Held, for another HTTP session. `false`, and no change, if it was moved before.
    pub(super) fn hold_for_session(&mut self) -> bool {
        let may_move = !self.was_moved;
        if may_move {
            (self.was_moved, self.state) = (true, State::Held);
        }
        may_move
    }

    /// Sent -> Held, until the list of tools was read. `false`, and no change, if it was read before, or no tool is called.
    pub(super) fn hold_for_tools(&mut self) -> bool {
        let may_look_up = !self.was_looked_up && matches!(self.kind, Kind::Tool(_));
        if may_look_up {
            (self.was_looked_up, self.state) = (true, State::Held);
        }
        may_look_up
    }

    /// The right to keep its result, once.
    pub(super) fn take_claim(&mut self) -> Option<Claim> {
        self.claim.take()
    }

    pub(super) fn resumption(&mut self) -> &mut Resumption {
        &mut self.resumption
    }

    pub(super) fn timer(&mut self) -> &mut Armed {
        &mut self.timer
    }

    // ---- State ----

    pub(super) fn era(&self) -> Era {
        self.era
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(super) fn frame(&self) -> &Bytes {
        &self.frame
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns `true` if it was sent again because the server had forgotten the HTTP session.
    pub(super) fn was_moved(&self) -> bool {
        self.was_moved
    }

    pub(super) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Returns `true` if its stream is broken, and not yet read again.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.state, State::Waiting | State::Resuming(_))
    }

    /// Its current exchange.
    pub(super) fn request(&self) -> Option<HttpRequestId> {
        match self.state {
            State::Sent(request) | State::Streaming(request) | State::Resuming(request) => Some(request),
            State::Held | State::Waiting => None,
        }
    }
}
