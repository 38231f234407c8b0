//! A call of ours: a future of its end and a stream of its progress.

use core::fmt;
use core::mem::{replace, swap, take};
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll, ready};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use crate::shared::{CallSlot, CallStage, Counters, Shared};
use engine::park;
use protocol_core::dialect::Progress;
use protocol_core::error::RpcError;
use protocol_core::json::{Json, JsonError};
use protocol_core::session::{InvokeError, OutboundId, Outcome};
use protocol_core::table::Table;

/// How a call ended, and what was heard of it before.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Done {
    /// How.
    pub outcome: Outcome,
    /// What was done before it failed, if the peer told.
    pub partial: Option<Json>,
    /// The last progress that was accepted.
    pub last: Option<Box<Progress>>,
}

impl Done {
    pub(crate) fn new(outcome: Outcome, partial: Option<Json>, last: Option<Box<Progress>>) -> Self {
        Self { outcome, partial, last }
    }

    /// The result object, or why there is none.
    ///
    /// # Errors
    /// [`CallError`] for every outcome but [`Outcome::Result`].
    pub fn result(self) -> Result<Json, CallError> {
        match self.outcome {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err(CallError::Rpc(error)),
            outcome => Err(CallError::Ended(outcome)),
        }
    }
}

/// Why a call brought no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was not made.
    #[error("not sent: {0}")]
    NotSent(#[from] InvokeError),
    /// The peer answered with an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// It ended without an answer: cancelled, timed out, lost, invalid.
    #[error("{}", ended(.0))]
    Ended(Outcome),
    /// It was not made: the arguments have no JSON.
    #[error("not sent, since its arguments are no JSON: {0}")]
    Unwritable(String),
    /// The answer came and has not the shape that the protocol gives it.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

impl From<JsonError> for CallError {
    fn from(error: JsonError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

const fn ended(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Cancelled => "the call was cancelled",
        Outcome::TimedOut(_) => "the call timed out",
        Outcome::Lost => "the connection ended before the call did",
        Outcome::Result(_) | Outcome::Error(_) => "the call ended",
        _ => "the call could not be made or its answer could not be read",
    }
}

/// A call on its way: a future of [`Done`].
///
/// Awaiting it yields its end; [`Call::next_progress`] yields its progress first, every update in order. Dropping it cancels the
/// call, unless it has ended; [`Call::detach`] lets it go on. Progress that nobody reads is kept up to a bound, then merged
/// into the newest ([`Counters::progress_merged`]).
#[must_use = "dropping a call cancels it"]
pub struct Call {
    shared: Arc<Shared>,
    id: OutboundId,
    polled: bool,
    /// It has no place among the calls any longer: its end was read, or nobody listens.
    left: bool,
    /// Updates taken from its place, all at once, and not yet read. `None` before there are any.
    unread: Option<Box<Unread>>,
}

/// Updates kept for a reader who is slow, and as many again of those that it has taken and not looked at. One more merges into the newest.
const UNREAD: usize = 1024;

impl Call {
    pub(crate) fn new(shared: Arc<Shared>, id: OutboundId) -> Self {
        Self { shared, id, polled: false, left: false, unread: None }
    }

    /// Names the call in the session, in [`crate::Asked::parent`] for one.
    #[must_use]
    pub fn id(&self) -> OutboundId {
        self.id
    }

    /// Cancels the call, at once and for good: it resolves with [`Outcome::Cancelled`]. Nothing happens when it has ended.
    pub fn cancel(&self, reason: Option<&str>) {
        self.shared.verb(|state, now, after| {
            if state.session.cancel(self.id, reason, now).is_ok() {
                after.output();
            }
        });
    }

    /// The next update; `None` once the call has ended and all were read. Nothing is lost when the future is dropped.
    pub async fn next_progress(&mut self) -> Option<Progress> {
        core::future::poll_fn(|cx| self.poll_progress(cx)).await
    }

    /// What [`Call::next_progress`] does, for hand-written futures. Only the task that polled the call last is woken.
    pub fn poll_progress(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Progress>> {
        if self.unread.as_ref().is_none_or(|unread| unread.0.is_empty()) && !self.left {
            let mut unread = take(&mut self.unread);
            let heard = self.poll_place(cx, true, |calls, id| match calls.get_mut(id) {
                Some(slot) if slot.unread.as_ref().is_none_or(|unread| unread.0.is_empty()) && slot.is_open() => false,
                Some(slot) => {
                    swap(&mut slot.unread, &mut unread);
                    true
                }
                None => true,
            });
            self.unread = unread;
            ready!(heard);
        }
        Poll::Ready(self.unread.as_mut().and_then(|unread| unread.0.pop_front()))
    }

    /// Lets the call go on without anybody listening.
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

/// What came of a look at the place of a call.
enum Seen {
    Found,
    /// Nothing yet, and the task is woken when there is.
    Parked,
    /// Nothing yet, and there is no waker to leave.
    Nothing,
}

impl Future for Call {
    type Output = Done;

    /// Updates that were not read before are given up. Polled again after it was ready it stays pending.
    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Done> {
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
            _ => Done::new(Outcome::Lost, None, None),
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

impl CallSlot {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, CallStage::Open(_))
    }

    /// Takes whoever waits.
    pub(crate) fn waiting(&mut self) -> Option<Waker> {
        match &mut self.stage {
            CallStage::Open(waiting) => waiting.take(),
            CallStage::Ended(_) => None,
        }
    }

    /// Open -> Ended. Gives whoever waits.
    pub(crate) fn end(&mut self, done: Done) -> Option<Waker> {
        let waiting = self.waiting();
        self.stage = CallStage::Ended(done);
        waiting
    }
}

/// Updates that nobody has read, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unread(VecDeque<Progress>);

impl Unread {
    /// Keeps an update until it is read.
    pub(crate) fn push(&mut self, update: Progress, counters: &mut Counters) {
        if self.0.len() < UNREAD {
            self.0.push_back(update);
        } else if let Some(newest) = self.0.back_mut() {
            counters.progress_merged = counters.progress_merged.saturating_add(1);
            merge(newest, update);
        }
    }
}

/// The newest of each member. A value without a total says that the total is not known any longer.
fn merge(into: &mut Progress, update: Progress) {
    if update.value.is_some() {
        into.value = update.value;
        into.total = update.total;
    }
    into.total = update.total.or(into.total);
    into.message = update.message.or_else(|| into.message.take());
    into.data = update.data.or_else(|| into.data.take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_progress_is_bounded_and_the_newest_wins() {
        let mut unread = Unread::default();
        let mut counters = Counters::default();
        for value in 0..2000_u32 {
            let update = Progress::value(f64::from(value));
            unread.push(if value == 1500 { update.with_message("half past") } else { update }, &mut counters);
        }
        assert_eq!(unread.0.len(), UNREAD);
        assert_eq!(counters.progress_merged, 2000 - 1024);
        assert_eq!(unread.0.front(), Some(&Progress::value(0.0)));
        assert_eq!(unread.0.back(), Some(&Progress::value(1999.0).with_message("half past")));
    }
}
