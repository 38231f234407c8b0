//! One call. Here a *call* is one exchange of the session: one JSON-RPC request and its response. It takes one HTTP exchange, or several if
//! the request is sent again or its stream is resumed.
//!
//! ```text
//!             send            2xx with events
//!   Held ------------> Sent -------------------> Streaming <-------- 2xx with events ---------.
//!     ^                 |                            |                                        |
//!     `-----------------'                            | wait: it ended or broke,               |
//!      hold, at most once for each reason:           | and can be resumed                     |
//!      the HTTP session is gone; or the              v               resume                   |
//!      server refused the headers, which          Waiting -------------------------------> Resuming
//!      follow from the list of tools                 ^                                        |
//!                                                    `----------------------------------------'
//!                                                     wait: the GET failed for now, or broke
//! ```
//!
//! A call is removed when its response has come, when the client ends it with an error, when it is cancelled, when it is lost, and when the
//! client fails, closes, or changes to the transport of 2024-11-05. A call is lost
//!
//! * if its HTTP exchange ended or broke without the response: in the era without a handshake, or before an event with an id has come;
//! * if its HTTP response is too long, or its stream cannot be read or resumed;
//! * if its stream is broken when the HTTP session is gone, or breaks after that;
//! * if the HTTP session is gone again after the call was sent again;
//! * if the HTTP response does not contain its response, and the server may have done the work.

use bytes::Bytes;

use super::cache::CachePermit;
use super::reason::FirstReason;
use super::resumption::Resumption;
use super::types::HttpRequestId;
use crate::http::era::Era;
use crate::http::message::Request;
use crate::http::timers::Armed;
use crate::json::Text;

/// One exchange of the session: one JSON-RPC request and its response.
#[derive(Debug)]
pub(super) struct Call {
    era: Era,
    kind: Kind,
    /// The method of the request.
    method: Text,
    /// The reason for which the stream broke, until there is a new event: the first one, if attempts to resume it have failed.
    cause: FirstReason,
    /// The frame. It is dropped once the stream begins, since the call is not sent again then.
    frame: Bytes,
    /// The generation of the HTTP session that the call was sent in: the number of earlier HTTP sessions.
    generation: u32,
    /// `true` once the call was held to be sent again, because the server had forgotten the HTTP session.
    was_moved: bool,
    /// `true` once the call was held to wait for the list of tools.
    was_looked_up: bool,
    /// The right to cache the result of the call.
    permit: Option<CachePermit>,
    state: State,
    resumption: Resumption,
    timer: Armed,
}

/// The kinds of requests that are treated differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The probe: the request for the revisions of the server.
    Probe,
    /// The handshake request.
    Initialize,
    /// A call of this tool.
    Tool(Text),
    /// A request for a page of the list of tools.
    Tools,
    /// A ping. The session does not cancel a ping that times out, so the HTTP exchange of a ping has a deadline.
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
            "tools/call" => request.name.clone().map_or(Self::Other, Self::Tool),
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
    pub(super) fn new(era: Era, kind: Kind, method: Text, frame: Bytes, permit: Option<CachePermit>) -> Self {
        Self {
            era,
            kind,
            method,
            cause: FirstReason::default(),
            frame,
            generation: 0,
            was_moved: false,
            was_looked_up: false,
            permit,
            state: State::Held,
            resumption: Resumption::default(),
            timer: Armed::default(),
        }
    }

    // ---- Transitions ----

    /// Held -> Sent. After a redirection also Sent -> Sent.
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

    /// Waiting -> Resuming. After a redirection also Resuming -> Resuming.
    pub(super) fn resume(&mut self, request: HttpRequestId) {
        self.state = State::Resuming(request);
    }

    /// Sent -> Held, until there is a new HTTP session. If the call was held for this reason before, changes nothing and returns `false`.
    pub(super) fn hold_for_session(&mut self) -> bool {
        let may_move = !self.was_moved;
        if may_move {
            (self.was_moved, self.state) = (true, State::Held);
        }
        may_move
    }

    /// Sent -> Held, until the list of tools is read: the server refused the headers, which follow from that list. If the call was held for
    /// this reason before, or is not a call of a tool, changes nothing and returns `false`.
    pub(super) fn hold_for_tools(&mut self) -> bool {
        let may_look_up = !self.was_looked_up && matches!(self.kind, Kind::Tool(_));
        if may_look_up {
            (self.was_looked_up, self.state) = (true, State::Held);
        }
        may_look_up
    }

    /// The reason for which the stream broke, if there was no new event since.
    pub(super) fn cause(&mut self) -> &mut FirstReason {
        &mut self.cause
    }

    /// Takes the right to cache the result of the call.
    pub(super) fn take_permit(&mut self) -> Option<CachePermit> {
        self.permit.take()
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

    pub(super) fn method(&self) -> &Text {
        &self.method
    }

    pub(super) fn frame(&self) -> &Bytes {
        &self.frame
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns `true` if the call was held to be sent again because the server had forgotten the HTTP session.
    pub(super) fn was_moved(&self) -> bool {
        self.was_moved
    }

    pub(super) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Returns `true` if the stream of the call broke, and is not resumed yet.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.state, State::Waiting | State::Resuming(_))
    }

    /// The current HTTP request of the call; `None` while the call is held, or waits to be resumed.
    pub(super) fn request(&self) -> Option<HttpRequestId> {
        match self.state {
            State::Sent(request) | State::Streaming(request) | State::Resuming(request) => Some(request),
            State::Held | State::Waiting => None,
        }
    }
}
