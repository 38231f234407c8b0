//! Invocations that are kept to be begun with again.

use std::sync::Arc;

use super::WORK_AT_ONCE;
use crate::state::{Invocation, Shared};
use protocol_core::session::InboundId;

/// Invocations that are over and that nobody holds any longer. Most are over as soon as they have begun, and to begin with the same one
/// again costs less than to make another.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Arc<Invocation>>);

impl Spares {
    /// All of `shared`.
    pub(super) fn begin(&mut self, shared: &Arc<Shared>, id: InboundId, depth: u8, observed: bool) -> Arc<Invocation> {
        let mut spare = self.0.pop();
        match spare.as_mut().and_then(Arc::get_mut) {
            Some(invocation) => (invocation.id, invocation.depth, invocation.observed) = (id, depth, observed),
            None => spare = None,
        }
        spare.unwrap_or_else(|| Arc::new(Invocation::new(Arc::clone(shared), id, depth, observed)))
    }

    /// Keeps one that is over for the next, if nobody else has it and it is as it was when it began.
    pub(super) fn keep(&mut self, invocation: Arc<Invocation>) {
        let is_sole = Arc::strong_count(&invocation) == 1;
        // A task is aborted only after its invocation was cancelled.
        let is_changed = invocation.is_cancelled() || invocation.span.is_open();
        // As many as are taken up together.
        if is_sole && !is_changed && self.0.len() < WORK_AT_ONCE {
            self.0.push(invocation);
        }
    }
}
