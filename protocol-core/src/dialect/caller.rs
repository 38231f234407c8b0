//! The caller of a request.

use alloc::borrow::Cow;

use alloc::boxed::Box;

use super::{Capabilities, Identity, Level, PeerInfo, StatelessCaller};
use crate::json::cursor::Span;
use crate::json::write::Object;
use crate::json::{Json, read};
use crate::shared::Arc;

/// The caller of a request, and the metadata of the request. A stateless request describes its caller. The caller of any other request is
/// the peer, as it was when the request arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    peer: Arc<PeerInfo>,
    is_stateless: bool,
    log_level: Option<Level>,
    /// The `_meta` of the request. Boxed, since it is `None` for most requests.
    meta: Option<Box<Json>>,
}

impl Caller {
    pub(crate) fn new(peer: Arc<PeerInfo>, is_stateless: bool, log_level: Option<Level>, meta: Option<Box<Json>>) -> Self {
        Self { peer, is_stateless, log_level, meta }
    }

    /// The peer as the caller of nothing: for a handler that runs without a request, such as the reader of a resource whose new value is
    /// pushed to the peer.
    #[must_use]
    pub fn without_request(peer: PeerInfo) -> Self {
        Self::new(Arc::new(peer), false, None, None)
    }

    /// The identity, the revision and the capabilities of the caller.
    #[must_use]
    pub fn peer(&self) -> &PeerInfo {
        &self.peer
    }

    /// The name and version of the caller. Both are empty if a stateless request does not give them.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.peer.identity
    }

    /// The revision of the protocol, such as `2025-11-25`.
    #[must_use]
    pub fn protocol(&self) -> &str {
        &self.peer.protocol
    }

    /// Returns `true` if the request is stateless (MCP 2026-07-28): the caller made no handshake, and the request itself names the revision
    /// and describes the caller.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    /// The capabilities that the caller declared.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.peer.capabilities
    }

    /// The level of the least severe log record that is sent to the caller. A stateless request names the level itself, and `None` means
    /// that no records are sent. For any other request, this is the level of the session when the request arrived.
    #[must_use]
    pub fn log_level(&self) -> Option<Level> {
        self.log_level
    }

    /// The `_meta` of the request exactly as it arrived. `None` if the session reads all of its members itself, such as a progress token
    /// and the members that name the caller. Also `None` after [`forget_meta`](Self::forget_meta), and on Tesseron, which has no `_meta`.
    #[must_use]
    pub fn meta(&self) -> Option<&Json> {
        self.meta.as_deref()
    }

    /// The trace that the request belongs to (`traceparent` in `_meta`, W3C Trace Context).
    #[must_use]
    pub fn trace_parent(&self) -> Option<Cow<'_, str>> {
        self.text("traceparent")
    }

    /// Vendor data of the trace (`tracestate` in `_meta`, W3C Trace Context).
    #[must_use]
    pub fn trace_state(&self) -> Option<Cow<'_, str>> {
        self.text("tracestate")
    }

    /// The properties of the trace (`baggage` in `_meta`, W3C Baggage).
    #[must_use]
    pub fn baggage(&self) -> Option<Cow<'_, str>> {
        self.text("baggage")
    }

    /// The members `traceparent`, `tracestate` and `baggage` of `_meta`, as an object; `None` if the request has none of them. Pass them to
    /// [`Invoke::with_meta`](crate::Invoke::with_meta) to make a call on behalf of this request a part of the same trace.
    #[must_use]
    pub fn trace_context(&self) -> Option<Json> {
        let members = ["traceparent", "tracestate", "baggage"].map(|name| self.text(name).map(|text| (name, text)));
        members
            .iter()
            .any(Option::is_some)
            .then(|| Object::value(|object| members.iter().flatten().for_each(|(name, text)| object.string(name, text))))
    }

    /// Drops the metadata of the request, which may keep the frame of the request alive.
    pub fn forget_meta(&mut self) {
        self.meta = None;
    }

    fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        read::string(read::member(self.meta.as_ref()?.as_bytes(), name)?)
    }
}

/// The caller of an earlier stateless request, with the text that named this caller. A later request with the same text has the same
/// caller, so that the text need not be read again.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller {
    /// The members of `_meta` that named the caller, exactly as in the frame, with the separator before the first. Never empty.
    text: Box<[u8]>,
    caller: StatelessCaller,
}

impl KnownCaller {
    /// The maximum length of the text in bytes. A longer text is read again in each request.
    const MAX_TEXT: usize = 4096;

    /// Copies `caller` and the text that names it in `frame`. `None` if this text is empty or too long.
    pub(crate) fn new(caller: &StatelessCaller, frame: &[u8]) -> Option<Self> {
        let text = caller.text.cut(frame);
        let is_fit = !text.is_empty() && text.len() <= Self::MAX_TEXT;
        is_fit.then(|| Self { text: text.into(), caller: StatelessCaller { text: Span::default(), ..caller.clone() } })
    }

    /// The text that names the caller.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The caller, with an empty [`StatelessCaller::text`], since this text is remembered already.
    pub(crate) fn caller(&self) -> StatelessCaller {
        self.caller.clone()
    }
}
