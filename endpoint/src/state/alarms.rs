//! The deadlines of the endpoint itself: sleeping handlers, and handlers that were told to stop.
//!
//! They are not alarms of the session, since a handler may clean up for a while after the session has closed, and a
//! closed session has no deadlines.

use std::collections::BTreeMap;
use std::task::Waker;

use protocol_core::session::InboundId;
use protocol_core::time::Instant;

/// Names one alarm; ordered by time, and equal times by age.
pub(crate) type AlarmKey = (Instant, u64);

/// A deadline that is due.
#[derive(Debug)]
pub(crate) enum Alarmed {
    /// A handler sleeps.
    Sleeper(Option<Waker>),
    /// A cancelled handler has used up its grace.
    Grace(InboundId),
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    next: u64,
    set: BTreeMap<AlarmKey, Alarmed>,
}

impl Alarms {
    pub(crate) fn set(&mut self, at: Instant, what: Alarmed) -> AlarmKey {
        self.next = self.next.wrapping_add(1);
        let key = (at, self.next);
        self.set.insert(key, what);
        key
    }

    /// The alarm as it was, to be dropped outside the lock. `None`: it has gone off.
    pub(crate) fn clear(&mut self, key: AlarmKey) -> Option<Alarmed> {
        self.set.remove(&key)
    }

    /// The place of a sleeper's waker. `None`: its alarm has gone off.
    pub(crate) fn sleeper(&mut self, key: AlarmKey) -> Option<&mut Option<Waker>> {
        match self.set.get_mut(&key)? {
            Alarmed::Sleeper(waker) => Some(waker),
            Alarmed::Grace(_) => None,
        }
    }

    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.set.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out the earliest alarm that is due at `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Alarmed> {
        let first = self.set.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Takes out every alarm, since nothing will tell when they are due.
    pub(crate) fn take(&mut self) -> Vec<Alarmed> {
        core::mem::take(&mut self.set).into_values().collect()
    }
}
