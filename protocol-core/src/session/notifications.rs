//! The methods that send log records and other notifications.

use super::Session;
use super::ids::InboundId;
use super::inbound_call::InboundCall;
use super::lane_queue::Class;
use super::route::Lane;
use super::types::{Logged, NotLive, SendError};
use crate::dialect::{LogRecord, Notification};
use crate::time::Instant;

impl Session {
    /// Sends a log record, on behalf of the inbound call `id` if there is one. If the lane is stopped or too much output is queued on it,
    /// the oldest queued records are dropped until at least as many bytes are freed as this record has. If all of them together have fewer
    /// bytes, they stay, and this record is dropped. On behalf of a stateless request, a record is sent if it is at least as severe as the
    /// level that the request asks for. A peer that sends only stateless requests gets only records that belong to a request.
    ///
    /// # Errors
    /// [`NotLive`] if the call `id` is over.
    pub fn log(&mut self, id: Option<InboundId>, record: LogRecord, now: Instant) -> Result<Logged, NotLive> {
        self.advance(now);
        let inbound = id.map(|id| self.inbound_calls.get(&id).filter(|inbound| inbound.is_active()).ok_or(NotLive)).transpose()?;
        let (rules, level) = match inbound {
            Some(inbound) => (inbound.rules(), inbound.log_level(self.log_level)),
            None => (self.rules, Some(self.log_level).filter(|_| !self.handshake.is_forgone())),
        };
        let is_wanted = self.config.capabilities.logging && level.is_some_and(|level| record.level >= level);
        if !is_wanted || !self.ending.may_write() || self.ending.has_peer_ended() {
            return Ok(Logged::Unwanted);
        }
        let lane = inbound.map_or(Lane::CHANNEL, InboundCall::lane);
        let frame = rules.dialect.write_log(self.outbox.frames(), &record, inbound.and_then(InboundCall::token));
        let mut logged = Logged::Sent;
        if frame.len() > self.config.limits.frame_bytes {
            self.outbox.frames().discard(frame);
            return Ok(self.count_dropped_logs(1));
        }
        if !self.outbox.has_room(lane) {
            let dropped = self.outbox.drop_oldest_logs(lane, frame.len());
            logged = self.count_dropped_logs(dropped.max(1));
            if dropped == 0 {
                self.outbox.frames().discard(frame);
                return Ok(logged);
            }
        }
        self.outbox.push(lane, Class::Log(id), frame);
        if let Some(inbound) = id.and_then(|id| self.inbound_calls.get_mut(&id)) {
            inbound.note_log();
        }
        self.tidy();
        Ok(logged)
    }

    /// Sends a notification that belongs to no call.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn notify(&mut self, notification: Notification, now: Instant) -> Result<(), SendError> {
        self.advance(now);
        if !self.ending.is_open() {
            return Err(SendError::Closing);
        }
        let is_valid = match &notification {
            Notification::Custom { params: Some(params), .. } => params.is_object(),
            Notification::Actions(list) | Notification::Resources(list) => list.is_array(),
            _ => true,
        };
        if !is_valid {
            return Err(SendError::Params);
        }
        self.rules.dialect.check_notification(&notification, &self.config.capabilities).map_err(SendError::from)?;
        if !self.handshake.serves_requests() {
            return Err(SendError::NotReady);
        }
        if self.outbox.is_congested(Lane::CHANNEL) {
            return Err(SendError::Full);
        }
        let frame = self.rules.dialect.write_notification(self.outbox.frames(), &notification);
        if frame.len() > self.config.limits.frame_bytes {
            self.outbox.frames().discard(frame);
            return Err(SendError::TooLarge);
        }
        self.outbox.push(Lane::CHANNEL, Class::Notification, frame);
        self.tidy();
        Ok(())
    }

    fn count_dropped_logs(&mut self, count: usize) -> Logged {
        self.stats.logs_dropped = self.stats.logs_dropped.saturating_add(count as u64);
        Logged::Dropped
    }
}
