//! One HTTP request of a client, and the response that is read for it.
//!
//! ```text
//!          read_text: a body that is read as a whole
//!   Sent ------------------------------------------> Text ---- end ----> (gone)
//!    |
//!    | read_events: a stream of events           rest: its response has come
//!    `----------------------------------> Events ---------------------------> Rest ---- end, linger is over ----> (gone)
//! ```
//!
//! The loss of the connection, and an abort, lead from every state to the end.

use alloc::vec::Vec;

use bytes::Bytes;

use super::{HttpClientRequest, HttpFault};
use crate::http::sse::Decoder;
use crate::http::timers::Armed;
use crate::session::ExchangeId;

#[derive(Debug)]
pub(super) struct Exchange {
    purpose: Purpose,
    state: State,
    redirects: u8,
    deadline: Armed,
}

/// The reason why a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It carries a request of the session.
    Call(ExchangeId),
    /// It carries a notification or an answer of the session, in the HTTP session of that generation.
    Message(u32),
    /// It carries the confirmation of the handshake.
    Confirmation,
    /// It resumes the stream of a call.
    Resume(ExchangeId),
    /// It opens or resumes the stream of messages that belong to no call.
    News,
    /// It carries the handshake once more.
    Reopening,
    /// It asks for a page of the list of tools.
    Lookup,
    /// It ends the HTTP session.
    Delete,
    /// It opens the stream of the transport of 2024-11-05.
    OldStream,
    /// It carries a frame over that transport: the request with that number, or none.
    OldMessage(Option<ExchangeId>),
}

#[derive(Debug)]
enum State {
    /// The head of the response has not come. The request is kept for a redirect.
    Sent(HttpClientRequest),
    Text {
        status: u16,
        /// The fault of the status.
        fault: HttpFault,
        body: Vec<u8>,
        limit: usize,
    },
    Events(Decoder),
    Rest,
}

/// A body is longer than the limit.
pub(super) struct TooLong;

impl Exchange {
    pub(super) fn new(purpose: Purpose, request: HttpClientRequest, redirects: u8) -> Self {
        Self { purpose, state: State::Sent(request), redirects, deadline: Armed::default() }
    }

    // ---- Transitions ----

    /// Sent -> Text.
    pub(super) fn read_text(&mut self, status: u16, fault: HttpFault, limit: usize) {
        self.state = State::Text { status, fault, body: Vec::new(), limit };
    }

    /// Sent -> Events.
    pub(super) fn read_events(&mut self, decoder: Decoder) {
        self.state = State::Events(decoder);
    }

    /// Any -> Rest.
    pub(super) fn rest(&mut self) {
        self.state = State::Rest;
    }

    /// Adds a piece of the body of a text.
    pub(super) fn add_text(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        if let State::Text { body, limit, .. } = &mut self.state {
            if body.len().saturating_add(piece.len()) > *limit {
                return Err(TooLong);
            }
            body.extend_from_slice(piece);
        }
        Ok(())
    }

    /// The whole body of a text, with its status and the fault of that.
    pub(super) fn into_text(self) -> Option<(u16, HttpFault, Bytes)> {
        match self.state {
            State::Text { status, fault, body, .. } => Some((status, fault, body.into())),
            State::Sent(_) | State::Events(_) | State::Rest => None,
        }
    }

    pub(super) fn deadline(&mut self) -> &mut Armed {
        &mut self.deadline
    }

    // ---- State ----

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns `true` if the rest of its response has no meaning.
    pub(super) fn is_resting(&self) -> bool {
        matches!(self.state, State::Rest)
    }

    /// The number of redirections that were followed for it.
    pub(super) fn redirects(&self) -> u8 {
        self.redirects
    }

    /// The request, until the head of the response comes.
    pub(super) fn request(&self) -> Option<&HttpClientRequest> {
        match &self.state {
            State::Sent(request) => Some(request),
            State::Text { .. } | State::Events(_) | State::Rest => None,
        }
    }

    /// The decoder of a stream of events.
    pub(super) fn events(&mut self) -> Option<&mut Decoder> {
        match &mut self.state {
            State::Events(decoder) => Some(decoder),
            State::Sent(_) | State::Text { .. } | State::Rest => None,
        }
    }
}
