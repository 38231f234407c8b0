//! A call of ours: a future of its end and a stream of its progress.

use core::fmt;
use core::mem::{replace, swap, take};
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll, ready};
use std::sync::Arc;

use crate::state::{CallOutcome, CallSlot, CallStage, Shared, Unread};
use engine::park;
use protocol_core::dialect::Progress;
use protocol_core::session::{OutboundId, Outcome};
use protocol_core::table::Table;

/// A call on its way: a future of [`CallOutcome`].
///
/// Awaiting it yields its end; [`Call::next_progress`] yields its progress first, every update in order. Dropping it cancels the
/// call, unless it has ended; [`Call::detach`] lets it go on. Progress that is not read is kept up to a bound, then merged
/// into the newest ([`Counters::progress_merged`](crate::Counters::progress_merged)).
///
/// # Cancel safety
/// Not cancel safe: dropping it cancels the call; poll a `&mut Call`, which is a future, too, where it shall go on.
#[must_use = "dropping a call cancels it"]
pub struct Call {
    shared: Arc<Shared>,
    id: OutboundId,
    polled: bool,
    /// It has no place among the calls any longer: its end was read, or it was detached.
    left: bool,
    /// Updates taken from its place, all at once, and not yet read. `None` before there are any.
    unread: Option<Box<Unread>>,
}

impl Call {
    pub(crate) fn new(shared: Arc<Shared>, id: OutboundId) -> Self {
        Self { shared, id, polled: false, left: false, unread: None }
    }

    /// Names the call in the session, in [`crate::InputContext::parent`] for one.
    #[must_use]
    pub fn id(&self) -> OutboundId {
        self.id
    }

    /// Cancels the call, at once and for good: it resolves with [`Outcome::Cancelled`]. Nothing happens when it has ended.
    pub fn cancel(&self, reason: Option<&str>) {
        cancel(&self.shared, self.id, reason);
    }

    /// Gives a handle that cancels the call from elsewhere, also while its progress or its end is awaited.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { shared: Arc::clone(&self.shared), id: self.id }
    }

    /// The next update; `None` once the call has ended and all were read.
    ///
    /// # Cancel safety
    /// Cancel safe: no update is lost.
    pub async fn next_progress(&mut self) -> Option<Progress> {
        core::future::poll_fn(|cx| self.poll_progress(cx)).await
    }

    /// Polls for the next update as [`Call::next_progress`] does, for hand-written futures. Only the task that polled the call last is woken.
    pub fn poll_progress(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Progress>> {
        if self.unread.as_ref().is_none_or(|unread| unread.is_empty()) && !self.left {
            let mut unread = take(&mut self.unread);
            let heard = self.poll_place(cx, true, |calls, id| match calls.get_mut(id) {
                Some(slot) if slot.unread.as_ref().is_none_or(|unread| unread.is_empty()) && slot.is_open() => false,
                Some(slot) => {
                    swap(&mut slot.unread, &mut unread);
                    true
                }
                None => true,
            });
            self.unread = unread;
            ready!(heard);
        }
        Poll::Ready(self.unread.as_mut().and_then(|unread| unread.pop()))
    }

    /// Lets the call go on. Its progress and its end are dropped.
    pub fn detach(mut self) {
        self.left = true;
        drop(self.leave());
    }

    /// Waits until `look` finds what it looks for in the place of the call; where it has none, `look` has to say yes.
    fn poll_place(
        &mut self,
        cx: &mut TaskContext<'_>,
        wants_progress: bool,
        mut look: impl FnMut(&mut Table<OutboundId, CallSlot>, &OutboundId) -> bool,
    ) -> Poll<()> {
        // The first time there is hardly anything yet: what is parked then is made before the lock is taken.
        let mut spare = (!replace(&mut self.polled, true)).then(|| cx.waker().clone());
        loop {
            let seen = self.shared.look(|state| {
                if look(&mut state.calls, &self.id) {
                    return Seen::Found;
                }
                let Some(slot) = state.calls.get_mut(&self.id) else { return Seen::Found };
                let CallStage::Open(waiting) = &mut slot.stage else { return Seen::Found };
                slot.wants_progress = wants_progress;
                if park(waiting, cx.waker(), &mut spare) { Seen::Parked } else { Seen::Nothing }
            });
            match seen {
                Seen::Found => return Poll::Ready(()),
                Seen::Parked => return Poll::Pending,
                Seen::Nothing => spare = Some(cx.waker().clone()),
            }
        }
    }

    fn leave(&self) -> Option<CallSlot> {
        self.shared.look(|state| state.calls.end(&self.id, take))
    }
}

fn cancel(shared: &Shared, id: OutboundId, reason: Option<&str>) {
    shared.verb(|state, now, after| {
        // One that has ended already, dispatched or not, is not live: then nothing is sent.
        if state.session.cancel(id, reason, now).is_ok() {
            after.output();
        }
    });
}

/// A handle that cancels one call. Cloneable; dropping it changes nothing.
#[derive(Clone)]
pub struct Canceller {
    shared: Arc<Shared>,
    id: OutboundId,
}

impl Canceller {
    /// Cancels the call as [`Call::cancel`] does. Nothing happens when it has ended, or when it was cancelled before.
    pub fn cancel(&self, reason: Option<&str>) {
        cancel(&self.shared, self.id, reason);
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The state of a call's slot when it was looked at.
enum Seen {
    Found,
    /// Nothing yet, and the task is woken when there is.
    Parked,
    /// Nothing yet, and there is no waker to leave.
    Nothing,
}

impl Future for Call {
    type Output = CallOutcome;

    /// Updates that were not read before are given up. Polled again after it was ready it stays pending.
    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<CallOutcome> {
        let this = self.get_mut();
        if this.left {
            return Poll::Pending;
        }
        // Nothing of it may end under the lock.
        let (mut ended, mut others) = (None, None);
        ready!(this.poll_place(cx, false, |calls, id| match calls.get(id) {
            Some(slot) if slot.is_open() => false,
            _ => {
                // One by one: as a whole it is large, and most of that is nothing. What is not named here ends under the lock.
                calls.end(id, |CallSlot { unread, stage, wants_progress: _, span }| {
                    ended = Some(replace(stage, CallStage::Open(None)));
                    others = Some((unread.take(), take(span)));
                });
                true
            }
        }));
        this.left = true;
        drop(others);
        Poll::Ready(match ended {
            Some(CallStage::Ended(done)) => done,
            _ => CallOutcome::new(Outcome::Lost, None, None),
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let slot = self.shared.verb(|state, now, after| {
            // One that has ended already, dispatched or not, is not live: then nothing is sent.
            if state.session.cancel(self.id, None, now).is_ok() {
                after.output();
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
