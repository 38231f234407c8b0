//! The GET stream: the stream of messages that belong to no call, which a GET opens (Transports 2025-11-25, "Listening for Messages from
//! the Server").
//!
//! ```text
//!          ask            2xx with events
//!   Off ---------> Asked -----------------> Live
//!                   |  ^                      |
//!       wait: the   |  | ask: the wait        | wait: the stream
//!       GET is to   |  | is over              | ended or broke
//!       be repeated v  |                      |
//!                  Waiting <------------------'
//! ```
//!
//! `stop` leads from any state to `Off`: the server refuses the stream for good, too many attempts have failed, the events cannot be read,
//! the HTTP session is over, or the client fails or closes.

use super::resumption::Resumption;
use super::types::HttpRequestId;
use crate::http::timers::Armed;

#[derive(Debug, Default)]
pub(super) struct GetStream {
    state: State,
    /// `true` once the stream was `Live` in this HTTP session.
    was_live: bool,
    resumption: Resumption,
    /// The timer of the wait.
    timer: Armed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    Asked(HttpRequestId),
    Live(HttpRequestId),
    Waiting,
}

impl GetStream {
    /// Off, Waiting -> Asked. After a redirection also Asked -> Asked.
    pub(super) fn ask(&mut self, request: HttpRequestId) {
        self.state = State::Asked(request);
    }

    /// Asked -> Live.
    pub(super) fn live(&mut self, request: HttpRequestId) {
        (self.state, self.was_live) = (State::Live(request), true);
    }

    /// Asked, Live -> Waiting.
    pub(super) fn wait(&mut self) {
        self.state = State::Waiting;
    }

    /// Any state -> Off. Returns the HTTP request of the stream, if one is open. Forgets the resumption point and `was_live`, since they
    /// are of no use in another HTTP session.
    pub(super) fn stop(&mut self) -> Option<HttpRequestId> {
        let request = self.request();
        (self.state, self.was_live, self.resumption) = (State::Off, false, Resumption::default());
        request
    }

    pub(super) fn request(&self) -> Option<HttpRequestId> {
        match self.state {
            State::Asked(request) | State::Live(request) => Some(request),
            State::Off | State::Waiting => None,
        }
    }

    pub(super) fn was_live(&self) -> bool {
        self.was_live
    }

    pub(super) fn resumption(&mut self) -> &mut Resumption {
        &mut self.resumption
    }

    pub(super) fn timer(&mut self) -> &mut Armed {
        &mut self.timer
    }
}
