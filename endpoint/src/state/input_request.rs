//! An input request of the peer, from its arrival to its answer.

use std::any::Any;
use std::sync::Arc;

use super::diagnose;
use super::shared::ServedInput;
use engine::{AbortHandle, TaskEnd, TaskOwner};
use protocol_core::dialect::InputResponse;
use protocol_core::error::RpcError;

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
