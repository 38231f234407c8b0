//! The slot of an outbound call under the lock, and its unread progress.

use std::collections::VecDeque;
use std::task::Waker;

use super::call_outcome::CallOutcome;
use super::counters::Counters;
use super::span::Span;
use protocol_core::dialect::Progress;

/// The slot of an outbound call that has a handle.
#[derive(Debug, Default)]
pub(crate) struct CallSlot {
    /// Unread updates. `None` until the first one, since most calls have none.
    pub(crate) unread: Option<Box<Unread>>,
    pub(crate) stage: CallStage,
    /// `true` if each update wakes the task that awaits the call.
    pub(crate) wants_progress: bool,
    pub(crate) span: Span,
}

/// The stage of an outbound call.
#[derive(Debug)]
pub(crate) enum CallStage {
    /// The call has not ended. Holds the waker of the task that awaits it; `None` if no task does.
    Open(Option<Waker>),
    /// The call has ended, and its outcome was not read yet.
    Ended(CallOutcome),
}

impl Default for CallStage {
    fn default() -> Self {
        Self::Open(None)
    }
}

impl CallSlot {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, CallStage::Open(_))
    }

    /// Takes the waker of the task that awaits the call.
    pub(crate) fn waiting(&mut self) -> Option<Waker> {
        match &mut self.stage {
            CallStage::Open(waiting) => waiting.take(),
            CallStage::Ended(_) => None,
        }
    }

    /// Open -> Ended. Returns the waker of the task that awaits the call.
    pub(crate) fn end(&mut self, done: CallOutcome) -> Option<Waker> {
        let waiting = self.waiting();
        self.stage = CallStage::Ended(done);
        waiting
    }
}

/// The maximum number of unread updates of a call in its slot. Further updates are merged into the newest. The [`Call`](crate::Call) may
/// hold as many again, which were taken out of the slot and not read yet.
const MAX_UNREAD: usize = 1024;

/// Unread updates, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unread(VecDeque<Progress>);

impl Unread {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the oldest update.
    pub(crate) fn pop(&mut self) -> Option<Progress> {
        self.0.pop_front()
    }

    /// Stores an update until it is read.
    pub(crate) fn push(&mut self, update: Progress, counters: &mut Counters) {
        if self.0.len() < MAX_UNREAD {
            self.0.push_back(update);
        } else if let Some(newest) = self.0.back_mut() {
            counters.progress_merged = counters.progress_merged.saturating_add(1);
            merge(newest, update);
        }
    }
}

/// Merges `update` into `into`, member by member. A new value without a total means that the total is no longer known.
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
    fn unread_progress_is_bounded_and_merged_into_the_newest() {
        let mut unread = Unread::default();
        let mut counters = Counters::default();
        for value in 0..2000_u32 {
            let update = Progress::value(f64::from(value));
            unread.push(if value == 1500 { update.with_message("half past") } else { update }, &mut counters);
        }
        assert_eq!(unread.0.len(), MAX_UNREAD);
        assert_eq!(counters.progress_merged, 2000 - 1024);
        assert_eq!(unread.0.front(), Some(&Progress::value(0.0)));
        assert_eq!(unread.0.back(), Some(&Progress::value(1999.0).with_message("half past")));
    }
}
