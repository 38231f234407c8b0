//! The records of an endpoint for a `tracing` subscriber: spans and events.
//!
//! | Span | Fields |
//! |---|---|
//! | `invocation` (info), around each poll of the handler | `id`, `op`, `name` of the tool, prompt or resource, `depth`; `traceparent`, `tracestate`, `baggage` if the caller sent them |
//! | `input_request` (info), around each poll of the answer | `id`, `parent`, `ask`, `depth` |
//! | `call` (info) | `id`, `op`, `name`, `depth` |
//!
//! | Event | Level |
//! |---|---|
//! | a handler, an answer, or another method of the application panicked | error |
//! | progress, a log record or a checkpoint was refused; a store did not record the outcome of an effect | warn |
//! | a violation of the peer; a handler was abandoned, after its grace or when the endpoint was dropped | warn |
//! | the peer refused the handshake | warn |
//! | the session closed: by this end, or because the peer ended the connection | info |
//! | the session closed for any other reason | warn |
//! | an inbound call was answered; was cancelled, with the reason; was answered too late; an outbound call ended, with its outcome | debug |
//!
//! A subscriber is code of the application, so nothing here may be called under the lock, except the constructors of [`Note`]. A note is
//! recorded after the lock is released.
//!
//! Without the feature `tracing` the types are empty and the functions do nothing, so that no other file depends on the feature.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{Answered, Note, panicked, progress_refused, settled, value_refused};
#[cfg(feature = "tracing")]
pub(crate) use on::{Answered, Note, panicked, progress_refused, settled, value_refused};

#[cfg(feature = "tracing")]
mod on {
    use core::any::Any;
    use core::fmt;
    use std::sync::Arc;

    use tracing::field::debug;
    use tracing::level_filters::LevelFilter;
    use tracing::{debug, error, info, warn};

    use crate::ask_failed::cancel_reason;
    use crate::state::shared::ServedCall;
    use crate::state::span::{Span, TARGET, cut};
    use protocol_core::dialect::Reply;
    use protocol_core::error::{RpcError, Violation};
    use protocol_core::session::{CancelReason, CloseReason, NotLive, OutboundId, Outcome, ProgressError};

    /// The kind of reply that a handler made.
    #[derive(Clone, Copy)]
    pub(crate) struct Answered(&'static str);

    impl Answered {
        pub(crate) fn of(reply: &Reply) -> Self {
            Self(match reply {
                Reply::Tool(output) if output.is_error => "tool error",
                Reply::NotFound(_) => "not found",
                Reply::Error(_) => "error",
                _ => "result",
            })
        }
    }

    /// Records the end of a handler. `sent` is an error if the call was over by then.
    pub(crate) fn settled(served: &ServedCall, Answered(answer): Answered, sent: Result<(), NotLive>) {
        let id = served.id;
        match sent {
            Ok(()) => debug!(target: TARGET, parent: served.span.id(), %id, answer, "answered"),
            Err(NotLive) => {
                let why = served.why.get().map_or("the connection has ended", cancel_reason);
                debug!(target: TARGET, parent: served.span.id(), %id, answer, why, "late answer dropped");
            }
        }
    }

    /// Records that a handler reported invalid progress.
    pub(crate) fn progress_refused(served: &ServedCall, error: ProgressError) {
        // An update after the end of the call is not an error.
        if error != ProgressError::NotLive {
            warn!(target: TARGET, parent: served.span.id(), id = %served.id, %error, "progress refused");
        }
    }

    /// Records that a log record or a checkpoint of a handler cannot be sent, or that the outcome of an effect cannot be stored.
    pub(crate) fn value_refused(served: &ServedCall, error: impl fmt::Display) {
        warn!(target: TARGET, parent: served.span.id(), id = %served.id, %error, "value refused");
    }

    /// Records a panic of code of the application.
    pub(crate) fn panicked(span: &Span, panic: &(dyn Any + Send)) {
        let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        error!(target: TARGET, parent: span.id(), panic = cut(message.unwrap_or("no text")), "panicked");
    }

    /// An event that happened under the lock, to be recorded once it is released.
    pub(crate) enum Note {
        Violation(Violation),
        Cancelled(Arc<ServedCall>, CancelReason),
        Abandoned(Arc<ServedCall>),
        CallEnded(OutboundId, Span, &'static str, Option<i64>),
        Refused(RpcError),
        Closed(CloseReason),
    }

    impl Note {
        pub(crate) fn refused(error: &RpcError) -> Option<Self> {
            wanted(LevelFilter::WARN, || Self::Refused(error.clone()))
        }

        pub(crate) fn violation(rule: Violation) -> Option<Self> {
            wanted(LevelFilter::WARN, || Self::Violation(rule))
        }

        pub(crate) fn cancelled(served: &Arc<ServedCall>, why: &CancelReason) -> Option<Self> {
            wanted(LevelFilter::DEBUG, || Self::Cancelled(Arc::clone(served), why.clone()))
        }

        pub(crate) fn abandoned(served: &Arc<ServedCall>) -> Option<Self> {
            wanted(LevelFilter::WARN, || Self::Abandoned(Arc::clone(served)))
        }

        /// Takes the span, which is open from the level INFO on, out of the call's slot, so that it is dropped outside of the lock.
        pub(crate) fn call_ended(id: OutboundId, span: &mut Span, outcome: &Outcome) -> Option<Self> {
            wanted(LevelFilter::INFO, || {
                let (how, code) = match outcome {
                    Outcome::Result(_) => ("result", None),
                    Outcome::Error(error) => ("error", Some(error.code)),
                    Outcome::Cancelled => ("cancelled", None),
                    Outcome::TimedOut(_) => ("timed out", None),
                    Outcome::Lost => ("lost", None),
                    Outcome::Unanswered(error) => ("unanswered", Some(error.code)),
                    _ => ("invalid", None),
                };
                Self::CallEnded(id, core::mem::take(span), how, code)
            })
        }

        pub(crate) fn closed(reason: CloseReason) -> Option<Self> {
            wanted(LevelFilter::WARN, || Self::Closed(reason))
        }

        pub(crate) fn record(self) {
            match self {
                Self::Violation(rule) => warn!(target: TARGET, rule = rule.as_str(), "the peer broke a rule"),
                Self::Refused(error) => {
                    warn!(target: TARGET, code = error.code, error = cut(&error.message), "the peer refused the handshake");
                }
                Self::Cancelled(served, why) => {
                    let reason = if let CancelReason::Peer(Some(reason)) = &why { Some(debug(cut(reason))) } else { None };
                    debug!(
                        target: TARGET, parent: served.span.id(), id = %served.id, why = cancel_reason(&why), reason, "cancelled"
                    );
                }
                Self::Abandoned(served) => {
                    warn!(target: TARGET, parent: served.span.id(), id = %served.id, "abandoned while it was still running");
                }
                Self::CallEnded(id, span, outcome, code) => {
                    debug!(target: TARGET, parent: span.id(), %id, outcome, code, "call ended");
                }
                Self::Closed(reason @ (CloseReason::Local | CloseReason::Eof)) => info!(target: TARGET, %reason, "closed"),
                Self::Closed(reason) => warn!(target: TARGET, %reason, "closed"),
            }
        }
    }

    /// Makes a note if a subscriber may record `level`. This reads an atomic, and does not call a subscriber.
    fn wanted(level: LevelFilter, note: impl FnOnce() -> Note) -> Option<Note> {
        (LevelFilter::current() >= level).then(note)
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use core::any::Any;
    use core::fmt;
    use std::sync::Arc;

    use crate::state::shared::ServedCall;
    use crate::state::span::Span;
    use protocol_core::dialect::Reply;
    use protocol_core::error::{RpcError, Violation};
    use protocol_core::session::{CancelReason, CloseReason, NotLive, OutboundId, Outcome, ProgressError};

    #[derive(Clone, Copy)]
    pub(crate) struct Answered;

    impl Answered {
        pub(crate) fn of(_: &Reply) -> Self {
            Self
        }
    }

    pub(crate) fn settled(_: &ServedCall, _: Answered, _: Result<(), NotLive>) {}
    pub(crate) fn progress_refused(_: &ServedCall, _: ProgressError) {}
    pub(crate) fn value_refused(_: &ServedCall, _: impl fmt::Display) {}
    pub(crate) fn panicked(_: &Span, _: &(dyn Any + Send)) {}

    /// Never made.
    pub(crate) enum Note {}

    impl Note {
        pub(crate) fn refused(_: &RpcError) -> Option<Self> {
            None
        }
        pub(crate) fn violation(_: Violation) -> Option<Self> {
            None
        }
        pub(crate) fn cancelled(_: &Arc<ServedCall>, _: &CancelReason) -> Option<Self> {
            None
        }
        pub(crate) fn abandoned(_: &Arc<ServedCall>) -> Option<Self> {
            None
        }
        pub(crate) fn call_ended(_: OutboundId, _: &mut Span, _: &Outcome) -> Option<Self> {
            None
        }
        pub(crate) fn closed(_: CloseReason) -> Option<Self> {
            None
        }
        pub(crate) fn record(self) {
            match self {}
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn without_the_feature_tracing_a_span_and_a_note_have_no_size() {
            assert_eq!((size_of::<Span>(), size_of::<Answered>(), size_of::<Option<Note>>()), (0, 0, 0));
        }
    }
}
