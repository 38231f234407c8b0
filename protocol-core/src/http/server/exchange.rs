//! One HTTP exchange: a request, and the response that is polled for it.
//!
//! ```text
//!            open                finish
//!   Pending -------> Open -----------------> Ending ---- everything was polled ---> (gone)
//!      |             |  ^                      ^
//!      |             `--' write                |
//!      `--------------- complete --------------'
//! ```
//!
//! The loss of the exchange removes it in any state. Only `open` and `complete` make a head, and both lead out of `Pending`: so there is
//! exactly one head. The end is polled after everything else, and the exchange is over with it.

use alloc::borrow::Cow;
use core::time::Duration;

use bytes::Bytes;

use super::timers::Armed;
use super::types::{ResponsePart, SessionKey};
use crate::http::accept::{EVENT_STREAM, JSON};
use crate::http::head::{Headers, ResponseHead};
use crate::http::header;
use crate::http::sse::Encoder;
use crate::session::Lane;
use crate::sink::FrameSink;
use crate::time::Instant;

#[derive(Debug)]
pub(super) struct Exchange {
    state: State,
    /// The head until it is polled, with the length of the body in bytes; for a stream of events the length is `None`.
    head: Option<(ResponseHead<'static>, Option<usize>)>,
    body: Option<Bytes>,
    events: Encoder,
    /// The session and the stream that the response comes from; `None` if the request was refused or is only acknowledged, and in `Ending`.
    source: Option<(SessionKey, Lane)>,
    /// The session that must take the frame before the frame is acknowledged; `None` once it has taken the frame, and for an exchange that
    /// is answered in another way.
    receiver: Option<SessionKey>,
    /// The time of the last output.
    last_output: Instant,
    keep_alive: Armed,
    /// The time without output after which the next comment is written, if the client has closed its side of the connection.
    probe: Option<Duration>,
    /// `true` from the time at which [`HttpEvent::Readable`](super::HttpEvent::Readable) is queued until everything was polled.
    is_announced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Open,
    Ending,
}

impl Exchange {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: State::Pending,
            head: None,
            body: None,
            events: Encoder::new(),
            source: None,
            receiver: None,
            last_output: now,
            keep_alive: Armed::default(),
            probe: None,
            is_announced: false,
        }
    }

    pub(super) fn source(&self) -> Option<(SessionKey, Lane)> {
        self.source
    }

    /// Sets the stream that the response comes from.
    pub(super) fn set_source(&mut self, session: SessionKey, lane: Lane) {
        self.source = Some((session, lane));
    }

    /// Sets the session that must take the frame before the frame is acknowledged.
    pub(super) fn set_receiver(&mut self, session: SessionKey) {
        self.receiver = Some(session);
    }

    /// Returns `true` while a session must take the frame before the frame is acknowledged.
    pub(super) fn has_receiver(&self) -> bool {
        self.receiver.is_some()
    }

    pub(super) fn take_receiver(&mut self) -> Option<SessionKey> {
        self.receiver.take()
    }

    pub(super) fn keep_alive(&mut self) -> &mut Armed {
        &mut self.keep_alive
    }

    /// Records that the client has closed its side of the connection. Returns `false` if that was recorded before.
    pub(super) fn half_close(&mut self, first_probe: Duration) -> bool {
        let is_new = self.probe.is_none();
        self.probe.get_or_insert(first_probe);
        is_new
    }

    /// Doubles the time until the next comment, if the client has closed its side of the connection.
    pub(super) fn lengthen_probe(&mut self) {
        self.probe = self.probe.map(|probe| probe.saturating_mul(2));
    }

    /// The time of the next comment, if there is no other output until then. `longest` is the time without output after which a comment is
    /// written in any case.
    pub(super) fn silent_until(&self, longest: Duration) -> Instant {
        self.last_output.saturating_add(self.probe.map_or(longest, |probe| probe.min(longest)))
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state == State::Pending
    }

    /// The number of bytes of events that wait to be polled.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.events.buffered_bytes()
    }

    /// Makes the whole response, if no response was begun.
    pub(super) fn complete(&mut self, status: u16, mut headers: Headers<'static>, body: Option<Bytes>) {
        if self.state != State::Pending {
            return;
        }
        if body.is_some() {
            headers.push(header::CONTENT_TYPE, JSON);
        }
        self.head = Some((ResponseHead::new(status, headers), Some(body.as_ref().map_or(0, Bytes::len))));
        self.body = body.filter(|body| !body.is_empty());
        self.state = State::Ending;
        self.source = None;
    }

    /// Begins a stream of events, if no response was begun.
    pub(super) fn open(&mut self, now: Instant) {
        if self.state != State::Pending {
            return;
        }
        let mut headers = Headers::new();
        headers.push(header::CONTENT_TYPE, EVENT_STREAM);
        headers.push(header::CACHE_CONTROL, Cow::Borrowed("no-cache, no-transform"));
        headers.push(header::X_ACCEL_BUFFERING, "no");
        self.head = Some((ResponseHead::new(200, headers), None));
        self.state = State::Open;
        self.last_output = now;
    }

    /// Writes events on an open stream.
    pub(super) fn write(&mut self, now: Instant, write: impl FnOnce(&mut Encoder)) {
        if self.state == State::Open {
            write(&mut self.events);
            self.last_output = now;
        }
    }

    /// Ends an open stream.
    pub(super) fn finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Ending;
            self.source = None;
        }
    }

    /// Returns `true` if there is something to poll and [`HttpEvent::Readable`](super::HttpEvent::Readable) was not queued for it yet.
    /// Records that the event is queued now.
    pub(super) fn announce(&mut self) -> bool {
        let has_output = self.state == State::Ending || self.head.is_some() || self.events.buffered_bytes() > 0;
        has_output && !core::mem::replace(&mut self.is_announced, true)
    }

    /// The next part of the response; `None` if no part is ready. The exchange is over once [`ResponsePart::End`] was returned.
    pub(super) fn poll(&mut self) -> Option<ResponsePart> {
        if let Some((head, length)) = self.head.take() {
            return Some(ResponsePart::Head { head, length });
        }
        if let Some(chunk) = self.body.take().or_else(|| self.events.next_chunk()) {
            return Some(ResponsePart::Chunk(chunk));
        }
        if self.state == State::Ending {
            return Some(ResponsePart::End);
        }
        self.is_announced = false;
        None
    }
}
