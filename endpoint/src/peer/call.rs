//! An outbound call: a future of its outcome, and a stream of its progress.

use core::fmt;
use core::mem::{replace, swap, take};
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll, ready};
use std::sync::Arc;

use crate::state::{CallOutcome, CallSlot, CallStage, Shared, Unread};
use engine::park;
use protocol_core::dialect::Progress;
use protocol_core::session::{OutboundId, Outcome, PendingInput};
use protocol_core::table::Table;

/// An outbound call: a future of its [`CallOutcome`].
///
/// [`Call::next_progress`] returns its progress, update by update, in order; awaiting the call discards updates that were not read. At
/// least 1024 unread updates are stored, at most 2048; later ones are merged into the newest
/// ([`Counters::progress_merged`](crate::Counters::progress_merged)).
///
/// # Cancel safety
/// Not cancel safe: dropping this future cancels the call, unless the call has ended. To stop waiting and go on later, await `&mut call`
/// instead. To let the call run without its handle, use [`Call::detach`].
#[must_use = "dropping a call cancels it"]
pub struct Call {
    shared: Arc<Shared>,
    id: OutboundId,
    /// `true` once the slot of the call has been removed: its outcome was read, or the call was detached.
    has_no_slot: bool,
    /// Updates that were taken from the slot, all at once, and are not yet read. `None` before there are any.
    unread: Option<Box<Unread>>,
}

impl Call {
    pub(crate) fn new(shared: Arc<Shared>, id: OutboundId) -> Self {
        Self { shared, id, has_no_slot: false, unread: None }
    }

    /// The id of the call in its session, as in [`InputContext::parent`](crate::InputContext::parent).
    #[must_use]
    pub fn id(&self) -> OutboundId {
        self.id
    }

    /// Cancels the call. The call then resolves with [`Outcome::Cancelled`]: immediately, or, on protocols that answer a cancelled call,
    /// within [`Timeouts::cancel_grace`](protocol_core::Timeouts::cancel_grace). No effect if the call has ended.
    pub fn cancel(&self, reason: Option<&str>) {
        cancel(&self.shared, self.id, reason);
    }

    /// The state of the call between two rounds of input requests, to be kept and continued later with
    /// [`Peer::resume_input`](crate::Peer::resume_input), for example by another process (MCP 2026-07-28). `None` unless the peer has ended
    /// a request of the call with a round and the retry was not sent yet. Reading this value does not end the call. To stop the call at
    /// this end, drop or [`cancel`](Self::cancel) it, which sends nothing in this state.
    ///
    /// If the user is to answer much later, take this value while the futures of the [`Client`](crate::Client) that answers the input
    /// requests are pending.
    #[must_use]
    pub fn pending_input(&self) -> Option<PendingInput> {
        self.shared.with_state(|state| state.session.pending_input(self.id))
    }

    /// Returns a handle that can cancel the call while its progress or its outcome is awaited.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { shared: Arc::clone(&self.shared), id: self.id }
    }

    /// Waits for the next update. Returns `None` once the call has ended and all updates were read.
    ///
    /// # Cancel safety
    /// Cancel safe: no update is lost.
    pub async fn next_progress(&mut self) -> Option<Progress> {
        core::future::poll_fn(|cx| self.poll_progress(cx)).await
    }

    /// Polls for the next update as [`Call::next_progress`] does, for hand-written futures. Only the task that polled the call last is
    /// woken.
    pub fn poll_progress(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Progress>> {
        if self.unread.as_ref().is_none_or(|unread| unread.is_empty()) && !self.has_no_slot {
            let mut unread = take(&mut self.unread);
            let has_news = self.poll_slot(cx, true, |calls, id| match calls.get_mut(id) {
                Some(slot) if slot.unread.as_ref().is_none_or(|unread| unread.is_empty()) && slot.is_open() => false,
                Some(slot) => {
                    swap(&mut slot.unread, &mut unread);
                    true
                }
                None => true,
            });
            self.unread = unread;
            ready!(has_news);
        }
        Poll::Ready(self.unread.as_mut().and_then(|unread| unread.pop()))
    }

    /// Lets the call run without its handle. Its progress and its outcome are dropped.
    pub fn detach(mut self) {
        self.has_no_slot = true;
        drop(self.remove_slot());
    }

    /// Ready once `is_ready` returns `true`. Until then, this task is woken when the call ends and, if `wants_progress`, at each update.
    /// `is_ready` must return `true` if there is no slot.
    fn poll_slot(
        &mut self,
        cx: &mut TaskContext<'_>,
        wants_progress: bool,
        mut is_ready: impl FnMut(&mut Table<OutboundId, CallSlot>, &OutboundId) -> bool,
    ) -> Poll<()> {
        let mut waker = Some(cx.waker().clone());
        self.shared.with_state(|state| {
            if is_ready(&mut state.calls, &self.id) {
                return Poll::Ready(());
            }
            let Some(slot) = state.calls.get_mut(&self.id) else { return Poll::Ready(()) };
            let CallStage::Open(waiting) = &mut slot.stage else { return Poll::Ready(()) };
            slot.wants_progress = wants_progress;
            park(waiting, &mut waker);
            Poll::Pending
        })
    }

    fn remove_slot(&self) -> Option<CallSlot> {
        self.shared.with_state(|state| state.calls.end(&self.id, take))
    }
}

fn cancel(shared: &Shared, id: OutboundId, reason: Option<&str>) {
    shared.verb(|state, now, effects| {
        // `Session::cancel` fails if the call has ended. Then nothing is sent.
        if state.session.cancel(id, reason, now).is_ok() {
            effects.output();
        }
    });
}

/// A handle to cancel one call. Cloneable; dropping it has no effect.
#[derive(Clone)]
pub struct Canceller {
    shared: Arc<Shared>,
    id: OutboundId,
}

impl Canceller {
    /// Cancels the call as [`Call::cancel`] does. No effect if it has ended.
    pub fn cancel(&self, reason: Option<&str>) {
        cancel(&self.shared, self.id, reason);
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Future for Call {
    type Output = CallOutcome;

    /// Discards updates that were not read. A call that is polled again after it was ready stays pending.
    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<CallOutcome> {
        let this = self.get_mut();
        if this.has_no_slot {
            return Poll::Pending;
        }
        // Taken out of the slot under the lock, to be dropped outside of it.
        let (mut ended, mut unread_and_span) = (None, None);
        ready!(this.poll_slot(cx, false, |calls, id| match calls.get(id) {
            Some(slot) if slot.is_open() => false,
            _ => {
                // The fields are taken one by one, since the slot is large and mostly empty. The rest of the slot is dropped under the
                // lock, so each field of a type with a `Drop` must be taken here.
                calls.end(id, |CallSlot { unread, stage, wants_progress: _, span }| {
                    ended = Some(replace(stage, CallStage::Open(None)));
                    unread_and_span = Some((unread.take(), take(span)));
                });
                true
            }
        }));
        this.has_no_slot = true;
        drop(unread_and_span);
        Poll::Ready(match ended {
            Some(CallStage::Ended(done)) => done,
            _ => CallOutcome::new(Outcome::Lost, None, None),
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.has_no_slot {
            return;
        }
        let slot = self.shared.verb(|state, now, effects| {
            // `Session::cancel` fails if the call has ended. Then nothing is sent.
            if state.session.cancel(self.id, None, now).is_ok() {
                effects.output();
            }
            state.calls.end(&self.id, take)
        });
        drop(slot);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("id", &self.id).finish_non_exhaustive()
    }
}
