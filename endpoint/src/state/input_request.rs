//! An input request of the peer, from its arrival to its answer.

use std::any::Any;
use std::sync::Arc;

use super::Shared;
use super::diagnose::{self, Span};
use engine::{AbortHandle, TaskEnd, TaskOwner};
use protocol_core::dialect::InputResponse;
use protocol_core::error::RpcError;
use protocol_core::session::{InputKey, OutboundId};

/// An input request of the peer that is to be answered by the [`Client`](crate::Client).
pub(crate) struct ServedInput {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: InputKey,
    /// The outbound call that the input request belongs to; `None` if no call was in flight.
    pub(crate) parent: Option<OutboundId>,
    /// The sampling depth.
    pub(crate) depth: u8,
    pub(crate) span: Span,
    abort: AbortHandle,
}

impl ServedInput {
    pub(crate) fn new(shared: Arc<Shared>, key: InputKey, parent: Option<OutboundId>, depth: u8) -> Self {
        Self { shared, key, parent, depth, span: Span::default(), abort: AbortHandle::default() }
    }
}

impl TaskOwner for ServedInput {
    type Output = InputResponse;

    fn abort_handle(&self) -> &AbortHandle {
        &self.abort
    }

    fn enter(&self) -> impl Sized + '_ {
        self.span.enter()
    }

    fn panicked(&self, panic: &(dyn Any + Send)) {
        diagnose::panicked(&self.span, panic);
    }

    fn settle(&self, end: TaskEnd<InputResponse>) {
        let panicked = matches!(end, TaskEnd::Panicked);
        let answer = match end {
            TaskEnd::Value(answer) => answer,
            TaskEnd::Panicked => InputResponse::Refused(RpcError::fixed(RpcError::INTERNAL, "internal error: the answer panicked")),
            TaskEnd::Dropped => {
                InputResponse::Refused(RpcError::fixed(RpcError::INTERNAL, "internal error: the answer was dropped"))
            }
        };
        let removed = self.shared.verb(|state, now, effects| {
            if panicked {
                state.counters.panics = state.counters.panics.saturating_add(1);
            }
            // `provide_input` fails if the input request was cancelled or is answered already. Then nothing is sent.
            if state.session.provide_input(self.key, answer, now).is_ok() {
                effects.output();
            }
            state.input_requests.end(&self.key, |input_request| Arc::clone(input_request))
        });
        drop(removed);
    }
}
