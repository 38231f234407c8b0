//! Replaces a run of a handler when another retry of the same call arrives meanwhile (MCP 2026-07-28), as when a caller sends its retry
//! twice. The older run is cancelled, and the newer one begins: at once or, if an effect of the older run is under way, after that effect.
//!
//! A *call* and a *run* are here what they are in [`crate::state::rounds`].
//!
//! ```text
//!   the older run:   runs --- a newer request of its call ---> cancelled --- its effect ends ---> its request ends with an error
//!                                                                   |                |
//!   the newer run:                                                waits ------------ begins
//! ```
//!
//! If both requests have the same state and the same answers, the newer run begins with the outcomes of the older one's effects.
//!
//! A run replaces only runs of the same endpoint. Runs in another process, or in another session over HTTP, go on; see
//! [`crate::OnceStore`].

use core::pin::Pin;
use core::task::{Context as TaskContext, Poll, ready};
use std::collections::VecDeque;
use std::sync::Arc;

use super::begin::begin;
use super::work::Work;
use crate::service::Service;
use crate::state::rounds::EffectWait;
use crate::state::{ServedCall, State};
use engine::{BoxFuture, TaskEnd, TaskOwner as _};
use protocol_core::dialect::Request;
use protocol_core::session::CancelReason;
use protocol_core::time::Instant;

/// A handler that has not begun, with its request.
pub(super) struct Beginning {
    pub(super) service: Arc<Service>,
    pub(super) served: Arc<ServedCall>,
    pub(super) request: Request,
}

/// Begins a run once the effects of the runs that it replaces have ended.
struct Successor {
    waits: Vec<EffectWait>,
    beginning: Option<Beginning>,
}

/// Returns the task that begins a run once the effects of the runs `older` have ended.
pub(super) fn successor(older: Vec<Arc<ServedCall>>, beginning: Beginning) -> BoxFuture<'static, ()> {
    let waits = older.into_iter().map(EffectWait::new).collect();
    Box::pin(Successor { waits, beginning: Some(beginning) })
}

impl Future for Successor {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = self.get_mut();
        while let Some(wait) = this.waits.last_mut() {
            ready!(Pin::new(wait).poll(cx));
            this.waits.pop();
        }
        if let Some(Beginning { service, served, request }) = this.beginning.take() {
            let shared = Arc::clone(&served.shared);
            begin(&**shared.runtime(), &service, served, request);
        }
        Poll::Ready(())
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // The runtime is shutting down, and has dropped this task before the run began.
        if let Some(Beginning { served, .. }) = self.beginning.take() {
            served.settle(TaskEnd::Dropped);
        }
    }
}

impl State {
    /// Cancels all older runs of the call whose newest request is `served`. Returns the older runs that have an effect under way.
    pub(super) fn replace_older(&mut self, served: &ServedCall, now: Instant, work: &mut VecDeque<Work>) -> Vec<Arc<ServedCall>> {
        let Some(mut log) = self.served_calls.get_mut(&served.id).and_then(|slot| slot.log.take()) else { return Vec::new() };
        let mut waits_for = Vec::new();
        let grace = now.max(self.session.time()).saturating_add(self.handler_grace);
        for id in self.served_calls.ids() {
            let Some(slot) = self.served_calls.get_mut(&id) else { continue };
            let Some(older) = slot.log.as_mut().filter(|older| older.is_of_the_call_of(&log)) else { continue };
            log.take_over(older);
            older.replace_by(served.id, &log);
            if older.is_in_effect() {
                waits_for.push(Arc::clone(slot.served()));
            }
            self.cancel(id, CancelReason::Replaced, grace, work);
        }
        if let Some(slot) = self.served_calls.get_mut(&served.id) {
            slot.log = Some(log);
        }
        waits_for
    }
}
