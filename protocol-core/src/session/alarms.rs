//! Alarms of the owner.

use super::Session;
use super::event::{AlarmId, Event};
use super::timers::TimerKey;
use super::verbs::TooManyAlarms;
use crate::time::Instant;

impl Session {
    /// Asks for [`Event::Alarm`] at `at`. An alarm that is not after the greatest `now` seen is due at once.
    ///
    /// # Errors
    /// [`TooManyAlarms`] beyond [`crate::Limits::alarms`], and once the session has closed.
    pub fn set_alarm(&mut self, at: Instant) -> Result<AlarmId, TooManyAlarms> {
        if self.is_closed() || self.alarms.len().saturating_add(self.events.rung()) >= self.config.limits.alarms {
            return Err(TooManyAlarms);
        }
        let id = AlarmId(self.number());
        if at <= self.now {
            self.push_event(Event::Alarm(id));
        } else {
            let mut armed = None;
            self.timers.set(TimerKey::Alarm(id), &mut armed, Some(at));
            self.alarms.insert(id, armed);
        }
        Ok(id)
    }

    /// Clears an alarm. One that is over, or was cleared before, is ignored.
    pub fn clear_alarm(&mut self, id: AlarmId) {
        if let Some(mut armed) = self.alarms.remove(&id) {
            self.timers.set(TimerKey::Alarm(id), &mut armed, None);
        }
    }
}
