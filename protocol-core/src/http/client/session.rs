//! The HTTP session of a client whose session has a handshake (Transports 2025-11-25, "Session Management").
//!
//! ```text
//!             open              agree: a result          confirm: `initialized` was acknowledged     begin
//!   Unopened -------> Opening --------------------> Agreed ----------------------------> Confirmed -------> Open
//!      ^                 |                            ^                                                      |
//!      `-----------------'                            | agree                                                | reopen: the server
//!        forget: an error                             `-------------------- Reopening <----------------------' has forgotten it
//! ```
//!
//! The confirmation also counts as acknowledged if the server refuses it or does not answer it in time, and if the connection is lost.
//! `forget` also leads from `Opening` to `Unopened` when the client changes to the transport of 2024-11-05.
//!
//! Requests and notifications after the handshake wait until the HTTP session is open. In `Confirmed` the GET stream is being opened:
//! before it is open, most servers lose messages for it, such as input requests.
//!
//! In `Reopening` the client repeats the handshake with the frame of the first one. The [`Session`](crate::Session) takes no part in this
//! and keeps the version that it has agreed on, so the new handshake must lead to the same version.

use bytes::Bytes;

use super::reason::FirstReason;
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
    /// The number of HTTP sessions before this one.
    generation: u32,
    /// The attempts to repeat the handshake.
    attempts: Resumption,
    /// The reason for which the first attempt to repeat the handshake failed, or the first handshake was refused.
    cause: FirstReason,
    /// Set for the end of the wait for the GET stream, or for the next attempt to repeat the handshake.
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

/// The error for a repeated handshake that leads to another version than before.
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

    /// Opening, Reopening -> Agreed, on the version in the result; `None` if the version is not a [`Revision`]. In `Reopening` it must be
    /// the same version as before.
    pub(super) fn agree(&mut self, version: Option<Revision>) -> Result<(), AnotherVersion> {
        if self.state == State::Reopening && version != self.version {
            return Err(AnotherVersion);
        }
        (self.state, self.version) = (State::Agreed, version);
        Ok(())
    }

    /// Agreed -> Confirmed. In any other state, changes nothing and returns `false`.
    pub(super) fn confirm(&mut self) -> bool {
        let was_agreed = self.state == State::Agreed;
        if was_agreed {
            self.state = State::Confirmed;
        }
        was_agreed
    }

    /// Confirmed -> Open. In any other state, changes nothing and returns `false`.
    pub(super) fn begin(&mut self) -> bool {
        let was_confirmed = self.state == State::Confirmed;
        if was_confirmed {
            self.state = State::Open;
        }
        was_confirmed
    }

    /// Open -> Reopening. In any other state, changes nothing and returns `false`.
    pub(super) fn reopen(&mut self) -> bool {
        let was_open = self.state == State::Open;
        if was_open {
            (self.state, self.id, self.attempts, self.cause) =
                (State::Reopening, None, Resumption::default(), FirstReason::default());
            self.generation = self.generation.saturating_add(1);
        }
        was_open
    }

    /// The reason for which the session cannot be used.
    pub(super) fn cause(&mut self) -> &mut FirstReason {
        &mut self.cause
    }

    pub(super) fn attempts(&mut self) -> &mut Resumption {
        &mut self.attempts
    }

    pub(super) fn timer(&mut self) -> &mut Armed {
        &mut self.timer
    }

    /// Opening, Reopening: stores the id of the HTTP session, which comes in the head of the response to the handshake. In any other state,
    /// changes nothing.
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

    /// The version that was agreed on. While the handshake is repeated, the version of the last handshake.
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
