//! Every deadline of a session, in one ordered set.
//!
//! Each owner keeps the instant at which it is armed; that is how an entry is found again. Equal instants fire in the order of
//! [`TimerKey`], so that equal input gives equal output.

use alloc::collections::BTreeSet;

use crate::session::{AlarmId, InboundId, InputKey, OutboundId};
use crate::time::Instant;

/// When to do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// When to give up on the handshake.
    Handshake,
    /// When to stop waiting for the end.
    Close,
    /// When a peer that makes us refuse more than it reads is given up.
    Overload,
    /// When a call of ours has taken too long.
    Call(OutboundId),
    /// When a question of ours has waited too long.
    Question(InputKey),
    /// When an invocation that we serve has taken too long.
    Serve(InboundId),
    /// When the session's rate window opens for those in line.
    Line,
    /// When a kept update may go.
    Flush(InboundId),
    /// When a held response may go.
    Release(InboundId),
    /// When the owner wants to be woken.
    Alarm(AlarmId),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    armed: BTreeSet<(Instant, TimerKey)>,
}

impl Timers {
    /// Moves the deadline of `key` from where `armed` says it is to `at`.
    pub(super) fn set(&mut self, key: TimerKey, armed: &mut Option<Instant>, at: Option<Instant>) {
        if *armed == at {
            return;
        }
        if let Some(old) = core::mem::replace(armed, at) {
            self.armed.remove(&(old, key));
        }
        if let Some(new) = at {
            self.armed.insert((new, key));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.armed.first().map(|(at, _)| *at)
    }

    /// Takes the earliest deadline that is not after `now`. Its owner must forget that it was armed.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<TimerKey> {
        let (at, key) = *self.armed.first()?;
        if at > now {
            return None;
        }
        self.armed.pop_first();
        Some(key)
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }
}
