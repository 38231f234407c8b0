//! Alarms: deadlines that the owner sets in the session for purposes of the owner.

use super::Session;
use super::event::Event;
use super::ids::AlarmId;
use super::timers::TimerKey;
use super::types::TooManyAlarms;
use crate::time::Instant;

impl Session {
    /// Sets an alarm: [`Event::Alarm`] is queued at the time `at`, or immediately if `at` is not after the latest time that the
    /// session was given.
    ///
    /// # Errors
    /// [`TooManyAlarms`] if [`crate::Limits::alarms`] alarms are set or wait to be polled as events, or if the session has closed.
    pub fn set_alarm(&mut self, at: Instant) -> Result<AlarmId, TooManyAlarms> {
        if self.is_closed() || self.alarms.len().saturating_add(self.events.due_alarms()) >= self.config.limits.alarms {
            return Err(TooManyAlarms);
        }
        let id = AlarmId(self.take_number());
        if at <= self.now {
            self.push_event(Event::Alarm(id));
        } else {
            let mut armed = None;
            self.timers.set(TimerKey::Alarm(id), &mut armed, Some(at));
            self.alarms.insert(id, armed);
        }
        Ok(id)
    }

    /// Clears an alarm. Has no effect if the event of the alarm is already queued, or the alarm was cleared before.
    pub fn clear_alarm(&mut self, id: AlarmId) {
        if let Some(mut armed) = self.alarms.remove(&id) {
            self.timers.set(TimerKey::Alarm(id), &mut armed, None);
        }
    }
}
