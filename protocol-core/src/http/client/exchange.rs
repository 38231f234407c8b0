//! One HTTP request of a client, and the response that is read for it.
//!
//! ```text
//!          read_text: a body that is read as a whole
//!   Sent ------------------------------------------> Text
//!    |
//!    | read_excerpt: the body has no response, and its first bytes are read for the reason
//!    |----------------------------------> Excerpt
//!    |
//!    | read_events: a stream of events         ignore_rest: the response has come
//!    `----------------------------------> Events ---------------------------> Rest
//! ```
//!
//! An exchange is removed, in any state, when the HTTP response ends, when the connection is lost, and when the client gives the request up
//! ([`HttpClientEvent::Abort`](super::HttpClientEvent::Abort)). In `Rest` the client gives the request up after
//! [`HttpClientTimeouts::linger`](crate::http::HttpClientTimeouts::linger).

use alloc::vec::Vec;

use bytes::Bytes;

use super::reason::HttpExcerpt;
use super::types::{HttpClientRequest, HttpFault};
use crate::http::sse::Decoder;
use crate::http::timers::Armed;
use crate::session::ExchangeId;

#[derive(Debug)]
pub(super) struct Exchange {
    purpose: Purpose,
    state: State,
    /// The beginning of the response, for the reason of a loss; `None` before the head has come.
    seen: Option<HttpExcerpt>,
    redirects: u8,
    deadline: Armed,
}

/// The reason why a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Sends a request of the session.
    Call(ExchangeId),
    /// Sends a notification or an answer of the session, in the HTTP session of this generation.
    Message(u32),
    /// Sends the confirmation of the handshake.
    Confirmation,
    /// Resumes the stream of a call.
    Resume(ExchangeId),
    /// Opens or resumes the GET stream.
    GetStream,
    /// Repeats the handshake.
    Reopening,
    /// Reads a page of the list of tools.
    Lookup,
    /// Ends the HTTP session.
    Delete,
    /// Opens the stream of the transport of 2024-11-05.
    OldStream,
    /// Sends a frame over the transport of 2024-11-05: the request with this number or, for `None`, another frame.
    OldMessage(Option<ExchangeId>),
}

#[derive(Debug)]
enum State {
    /// The head of the response has not come. The request is kept, since a redirection may repeat it.
    Sent(HttpClientRequest),
    /// The body is read as a whole.
    Text {
        status: u16,
        /// The fault to report if the body has no response.
        fault: HttpFault,
        body: Vec<u8>,
        /// The maximum length of the body in bytes.
        limit: usize,
    },
    /// The body has no response. Its first bytes are read.
    Excerpt { status: u16, fault: HttpFault },
    /// The body is a stream of events.
    Events(Decoder),
    /// The response to the request has come, and the rest of the body is ignored.
    Rest,
}

/// The error for a body that is longer than the limit.
pub(super) struct TooLong;

impl Exchange {
    pub(super) fn new(purpose: Purpose, request: HttpClientRequest, redirects: u8) -> Self {
        Self { purpose, state: State::Sent(request), seen: None, redirects, deadline: Armed::default() }
    }

    // ---- Transitions ----

    /// Sent -> Text.
    pub(super) fn read_text(&mut self, status: u16, fault: HttpFault, limit: usize) {
        self.state = State::Text { status, fault, body: Vec::new(), limit };
    }

    /// Sent -> Excerpt.
    pub(super) fn read_excerpt(&mut self, status: u16, fault: HttpFault) {
        self.state = State::Excerpt { status, fault };
    }

    /// Records the head of the response, for the reason of a loss.
    pub(super) fn see(&mut self, head: HttpExcerpt) {
        self.seen = Some(head);
    }

    /// Records a piece of the body, for the reason of a loss. Returns `true` if nothing else is read of the body, and enough of it was read.
    pub(super) fn see_body(&mut self, piece: &[u8]) -> bool {
        let is_full = self.seen.as_mut().is_none_or(|seen| seen.add(piece));
        is_full && matches!(self.state, State::Excerpt { .. })
    }

    /// Sent -> Events.
    pub(super) fn read_events(&mut self, decoder: Decoder) {
        self.state = State::Events(decoder);
    }

    /// Events -> Rest.
    pub(super) fn ignore_rest(&mut self) {
        self.state = State::Rest;
    }

    /// Text -> Text: adds a piece of the body.
    pub(super) fn add_text(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        if let State::Text { body, limit, .. } = &mut self.state {
            if body.len().saturating_add(piece.len()) > *limit {
                return Err(TooLong);
            }
            body.extend_from_slice(piece);
        }
        Ok(())
    }

    /// The status, the fault and the whole body; `None` if the body is not read as a whole.
    pub(super) fn take_text(&mut self) -> Option<(u16, HttpFault, Bytes)> {
        match &mut self.state {
            State::Text { status, fault, body, .. } => Some((*status, fault.clone(), core::mem::take(body).into())),
            State::Sent(_) | State::Excerpt { .. } | State::Events(_) | State::Rest => None,
        }
    }

    pub(super) fn deadline(&mut self) -> &mut Armed {
        &mut self.deadline
    }

    // ---- State ----

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns `true` if the rest of the response is ignored.
    pub(super) fn ignores_rest(&self) -> bool {
        matches!(self.state, State::Rest)
    }

    /// The number of redirections that were followed.
    pub(super) fn redirects(&self) -> u8 {
        self.redirects
    }

    /// The request; `None` once the head of the response has come.
    pub(super) fn request(&self) -> Option<&HttpClientRequest> {
        match &self.state {
            State::Sent(request) => Some(request),
            State::Text { .. } | State::Excerpt { .. } | State::Events(_) | State::Rest => None,
        }
    }

    /// The status and the fault of a response whose body has no response of the session, and is not read as a whole.
    pub(super) fn excerpt(&self) -> Option<(u16, HttpFault)> {
        match &self.state {
            State::Excerpt { status, fault } => Some((*status, fault.clone())),
            State::Sent(_) | State::Text { .. } | State::Events(_) | State::Rest => None,
        }
    }

    /// The beginning of the response.
    pub(super) fn seen(&self) -> Option<HttpExcerpt> {
        self.seen.clone()
    }

    /// The decoder, if the body is a stream of events.
    pub(super) fn events(&mut self) -> Option<&mut Decoder> {
        match &mut self.state {
            State::Events(decoder) => Some(decoder),
            State::Sent(_) | State::Text { .. } | State::Excerpt { .. } | State::Rest => None,
        }
    }
}
