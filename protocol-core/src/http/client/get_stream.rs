//! The GET stream: the stream of messages that belong to no call, which a GET opens (Transports 2025-11-25, "Listening for Messages from
//! the Server").
//!
//! ```text
//!          ask            2xx with events
//!   Off ---------> Asked -----------------> Live
//!                   |  ^                      |
//!       wait: the   |  | ask: the wait        | wait: the stream
//!       GET failed  |  | is over              | broke
//!       for now     v  |                      |
//!                  Waiting <------------------'
//! ```
//!
//! `stop` leads from any state to `Off`: the server has no such stream, too many attempts have failed, the events cannot be read, the HTTP
//! session is over, or the client fails or closes.

use super::HttpRequestId;
use super::resumption::Resumption;
use crate::http::timers::Armed;

#[derive(Debug, Default)]
pub(super) struct GetStream {
    state: State,
    /// `true` once the stream was `Live` in this HTTP session.
    was_live: bool,
    resumption: Resumption,
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

    /// Any state -> Off. Returns the HTTP request that opens the stream or whose response it is, if there is one. In another HTTP
    /// session the stream begins anew.
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
