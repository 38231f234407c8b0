//! Alarms: the deadlines of the endpoint itself, for handlers that wait with a time limit, and for the grace of cancelled handlers.
//!
//! They are not deadlines of the session, since a handler may still clean up after the session has closed, and a closed session has no
//! deadlines.

use std::collections::BTreeMap;
use std::task::Waker;

use protocol_core::session::InboundId;
use protocol_core::time::Instant;

/// The key of one alarm. Keys are ordered by time, and alarms of the same time by age.
pub(crate) type AlarmKey = (Instant, u64);

/// The purpose of an alarm.
#[derive(Debug)]
pub(crate) enum Alarmed {
    /// Wakes a handler that sleeps, or waits with a time limit.
    Sleeper(Option<Waker>),
    /// Ends the grace of a cancelled handler.
    Grace(InboundId),
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    next: u64,
    pending: BTreeMap<AlarmKey, Alarmed>,
}

impl Alarms {
    pub(crate) fn set(&mut self, at: Instant, what: Alarmed) -> AlarmKey {
        self.next = self.next.wrapping_add(1);
        let key = (at, self.next);
        self.pending.insert(key, what);
        key
    }

    /// Removes an alarm and returns it, to be dropped outside of the lock. `None` if it has gone off.
    pub(crate) fn clear(&mut self, key: AlarmKey) -> Option<Alarmed> {
        self.pending.remove(&key)
    }

    /// The waker of a sleeper. `None` if its alarm has gone off.
    pub(crate) fn sleeper(&mut self, key: AlarmKey) -> Option<&mut Option<Waker>> {
        match self.pending.get_mut(&key)? {
            Alarmed::Sleeper(waker) => Some(waker),
            Alarmed::Grace(_) => None,
        }
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes and returns the earliest alarm that is due at `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Alarmed> {
        let first = self.pending.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Removes and returns all alarms.
    pub(crate) fn take(&mut self) -> Vec<Alarmed> {
        core::mem::take(&mut self.pending).into_values().collect()
    }
}
