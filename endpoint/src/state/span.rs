//! The spans of an endpoint for a `tracing` subscriber; see [`super::diagnose`]. Without the feature `tracing` a span is empty.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::Span;
#[cfg(feature = "tracing")]
pub(crate) use on::Span;
#[cfg(feature = "tracing")]
pub(super) use on::{TARGET, cut};

#[cfg(feature = "tracing")]
mod on {
    use std::borrow::Cow;
    use std::sync::OnceLock;

    use tracing::field::{Empty, debug, display};
    use tracing::info_span;
    use tracing::level_filters::LevelFilter;

    use protocol_core::dialect::{Caller, InputRequest, Op, Request};
    use protocol_core::session::{InboundId, InputKey, Invoke, OutboundId};

    /// The target of all spans and events.
    pub(in crate::state) const TARGET: &str = "protocol_core";

    /// The maximum number of characters that are recorded of a text of the peer.
    const MAX_CHARACTERS: usize = 200;

    /// A span, once it is open. Boxed, since most programs have no subscriber.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Span(OnceLock<Box<tracing::Span>>);

    /// A guard: the span is entered until the guard is dropped.
    pub(crate) struct Entered<'a>(#[allow(dead_code, reason = "held for its drop")] Option<tracing::span::Entered<'a>>);

    impl Span {
        /// Opens the span of an inbound call.
        pub(crate) fn serve(&self, id: InboundId, request: &Request, depth: u8, caller: &Caller) {
            self.open(|| {
                let span = info_span!(
                    target: TARGET, "invocation", %id, op = Empty, name = Empty, depth, traceparent = Empty, tracestate = Empty,
                    baggage = Empty
                );
                describe(&span, request.op(), || request.target());
                trace(&span, caller);
                span
            });
        }

        /// Opens the span of an inbound input request.
        pub(crate) fn answer(&self, key: InputKey, parent: Option<OutboundId>, ask: &InputRequest, depth: u8) {
            self.open(|| {
                let ask = match ask {
                    InputRequest::Sample(_) => "sample",
                    InputRequest::Elicit(_) => "elicit",
                    InputRequest::OpenUrl(_) => "open_url",
                    InputRequest::Confirm { .. } => "confirm",
                    InputRequest::Roots => "roots",
                    _ => "other",
                };
                info_span!(target: TARGET, "input_request", id = %key, parent = parent.map(display), ask, depth)
            });
        }

        /// Opens the span of an outbound call that is about to be made.
        pub(crate) fn call(call: &Invoke) -> Self {
            let span = Self::default();
            span.open(|| {
                let span = info_span!(target: TARGET, "call", id = Empty, op = Empty, name = Empty, depth = Empty);
                describe(&span, call.op(), || call.target());
                span
            });
            span
        }

        /// Records the id and the depth, which are known only once the call is made.
        pub(crate) fn made(&self, id: OutboundId, depth: u8) {
            if let Some(span) = self.0.get() {
                span.record("id", display(id)).record("depth", depth);
            }
        }

        /// Enters the span, if it has been opened.
        pub(crate) fn enter(&self) -> Entered<'_> {
            Entered(self.0.get().map(|span| span.enter()))
        }

        fn open(&self, open: impl FnOnce() -> tracing::Span) {
            // Checked first, since most programs have no subscriber.
            if LevelFilter::current() >= LevelFilter::INFO {
                let _ = self.0.get_or_init(|| Box::new(open()));
            }
        }

        pub(in crate::state) fn id(&self) -> Option<tracing::Id> {
            self.0.get().and_then(|span| span.id())
        }
    }

    /// Records the operation, and the name of the tool, prompt or resource.
    fn describe<'a>(span: &tracing::Span, op: Op, name: impl FnOnce() -> Option<Cow<'a, str>>) {
        if span.is_disabled() {
            return;
        }
        span.record("op", debug(op));
        if let Some(name) = name() {
            span.record("name", cut(&name));
        }
    }

    /// Records the trace context that the caller sent.
    fn trace(span: &tracing::Span, caller: &Caller) {
        if span.is_disabled() || caller.meta().is_none() {
            return;
        }
        for (name, text) in
            [("traceparent", caller.trace_parent()), ("tracestate", caller.trace_state()), ("baggage", caller.baggage())]
        {
            if let Some(text) = text {
                span.record(name, cut(&text));
            }
        }
    }

    /// The beginning of a text of the peer, as much as is recorded of it.
    pub(in crate::state) fn cut(text: &str) -> &str {
        text.char_indices().nth(MAX_CHARACTERS).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use protocol_core::dialect::{Caller, InputRequest, Request};
    use protocol_core::session::{InboundId, InputKey, Invoke, OutboundId};

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Span(());

    pub(crate) struct Entered;

    impl Span {
        pub(crate) fn serve(&self, _: InboundId, _: &Request, _: u8, _: &Caller) {}
        pub(crate) fn answer(&self, _: InputKey, _: Option<OutboundId>, _: &InputRequest, _: u8) {}
        pub(crate) fn call(_: &Invoke) -> Self {
            Self(())
        }
        pub(crate) fn made(&self, _: OutboundId, _: u8) {}
        pub(crate) fn enter(&self) -> Entered {
            Entered
        }
    }
}
