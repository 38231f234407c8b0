//! The HTTP session of a client whose session has a handshake (Transports 2025-11-25, "Session Management").
//!
//! ```text
//!             open              agree: its result        confirm: `initialized` was acknowledged     begin
//!   Unopened -------> Opening --------------------> Agreed ----------------------------> Confirmed -------> Open
//!      ^                 |                            ^                                                      |
//!      `-----------------'                            | agree                                                | reopen: the server
//!        forget: its error                            `-------------------- Reopening <----------------------' has forgotten it
//! ```
//!
//! Requests and notifications wait until the session is open. In `Confirmed` the stream of messages that belong to no call is being opened:
//! most servers lose a message for that stream, such as an input request, as long as there is none. In `Reopening` the client repeats the handshake with the frame of the first
//! one, unknown to the session of its owner, which has agreed on a version for good: so the new version must be the same.

use bytes::Bytes;

use super::resumption::Resumption;
use crate::http::timers::Armed;
use crate::json::Text;
use crate::mcp::Revision;

#[derive(Debug, Default)]
pub(super) struct HttpSession {
    state: State,
    id: Option<Text>,
    version: Option<Revision>,
    /// The frame of the handshake.
    initialize: Bytes,
    /// The number of sessions before this one.
    generation: u32,
    /// The attempts to repeat the handshake.
    attempts: Resumption,
    timer: Armed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unopened,
    Opening,
    Agreed,
    Confirmed,
    Open,
    Reopening,
}

/// The handshake was repeated with another result than before.
pub(super) struct AnotherVersion;

impl HttpSession {
    // ---- Transitions ----

    /// Unopened -> Opening.
    pub(super) fn open(&mut self, initialize: Bytes) {
        (self.state, self.id, self.version, self.initialize) = (State::Opening, None, None, initialize);
    }

    /// Opening -> Unopened.
    pub(super) fn forget(&mut self) {
        (self.state, self.id, self.version, self.initialize) = (State::Unopened, None, None, Bytes::new());
    }

    /// Opening, Reopening -> Agreed, on the version in the result. A session does not go on with one that it does not know.
    pub(super) fn agree(&mut self, version: Option<Revision>) -> Result<(), AnotherVersion> {
        if self.state == State::Reopening && version != self.version {
            return Err(AnotherVersion);
        }
        (self.state, self.version) = (State::Agreed, version);
        Ok(())
    }

    /// Agreed -> Confirmed. Returns `true` if it was.
    pub(super) fn confirm(&mut self) -> bool {
        let was_agreed = self.state == State::Agreed;
        if was_agreed {
            self.state = State::Confirmed;
        }
        was_agreed
    }

    /// Confirmed -> Open. Returns `true` if it was.
    pub(super) fn begin(&mut self) -> bool {
        let was_confirmed = self.state == State::Confirmed;
        if was_confirmed {
            self.state = State::Open;
        }
        was_confirmed
    }

    /// Open -> Reopening. `false`, and no change, in any other state.
    pub(super) fn reopen(&mut self) -> bool {
        let was_open = self.state == State::Open;
        if was_open {
            (self.state, self.id, self.attempts) = (State::Reopening, None, Resumption::default());
            self.generation = self.generation.saturating_add(1);
        }
        was_open
    }

    pub(super) fn attempts(&mut self) -> &mut Resumption {
        &mut self.attempts
    }

    pub(super) fn timer(&mut self) -> &mut Armed {
        &mut self.timer
    }

    /// Sets the id, which comes with the head of the response to the handshake.
    pub(super) fn set_id(&mut self, id: Option<Text>) {
        if matches!(self.state, State::Opening | State::Reopening) {
            self.id = id;
        }
    }

    // ---- State ----

    /// The frame of the handshake.
    pub(super) fn initialize(&self) -> &Bytes {
        &self.initialize
    }

    pub(super) fn id(&self) -> Option<&Text> {
        self.id.as_ref()
    }

    /// The version that was agreed on; while the handshake is repeated, that of the last one.
    pub(super) fn version(&self) -> Option<Revision> {
        self.version
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn is_unopened(&self) -> bool {
        self.state == State::Unopened
    }

    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.state, State::Confirmed | State::Open)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns `true` if the handshake was repeated at least once.
    pub(super) fn was_reopened(&self) -> bool {
        self.generation > 0
    }
}
