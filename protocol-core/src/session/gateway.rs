//! The methods of a Tesseron gateway.

use super::Session;
use super::lane_queue::Class;
use super::route::{Lane, ReplyKind};
use super::types::{NotLive, SendError};
use crate::dialect::tesseron::{ClaimState, Welcome};
use crate::dialect::{Capabilities, Identity, RequestsStart};
use crate::error::RpcError;
use crate::shared::Arc;
use crate::time::Instant;

impl Session {
    /// Answers [`crate::Event::HandshakeRequest`]: accepts the app, or refuses it with an error. An app that was refused may send another
    /// hello.
    ///
    /// # Errors
    /// [`NotLive`] if no handshake request waits for an answer, or if the session is closing or closed.
    pub fn welcome(&mut self, answer: Result<Welcome, RpcError>, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if !self.ending.is_open() {
            return Err(NotLive);
        }
        let (lane, request, peer) = self.handshake.take_asked().ok_or(NotLive)?;
        self.outbox.settle(lane);
        match answer {
            Err(error) => {
                let frame = self.rules.dialect.write_error(self.outbox.frames(), Some(&request), &error);
                self.push_unsolicited(lane, ReplyKind::Refused, frame);
            }
            Ok(welcome) => {
                let result = self.rules.dialect.welcome(&welcome, &self.config.local_end()).ok_or(NotLive)?;
                self.answer_handshake(lane, request, &result, peer);
                if welcome.claim_state == ClaimState::Resumed {
                    self.confirm();
                }
            }
        }
        self.tidy();
        Ok(())
    }

    /// Records that `agent`, which has these capabilities, has claimed the app of this session. A notification is sent to the app, whose
    /// actions may be called from now on. `at_millis` is the time of the claim, in milliseconds since 1970 (Tesseron specification, page
    /// "Handshake", section "Claim"). Has no effect if the app is already claimed.
    ///
    /// # Errors
    /// [`SendError::WrongEnd`] if this end is not a gateway, [`SendError::NotReady`] before an app was accepted, [`SendError::Closing`] if
    /// the session is closing or closed.
    pub fn claim(&mut self, agent: Identity, capabilities: Capabilities, at_millis: u64, now: Instant) -> Result<(), SendError> {
        self.advance(now);
        if self.rules.opens || self.rules.requests_start != RequestsStart::Claimed {
            return Err(SendError::WrongEnd);
        }
        if !self.ending.is_open() {
            return Err(SendError::Closing);
        }
        if self.handshake.may_send_requests() {
            return Ok(());
        }
        if !self.handshake.serves_requests() {
            return Err(SendError::NotReady);
        }
        // If other sessions share the configuration, this session gets a copy, and only the copy is changed.
        let config = Arc::make_mut(&mut self.config);
        (config.identity, config.capabilities) = (agent, capabilities);
        if let Some(frame) = self.rules.dialect.write_claimed(self.outbox.frames(), at_millis, &self.config.local_end()) {
            self.outbox.push(Lane::CHANNEL, Class::Notification, frame);
        }
        self.confirm();
        self.tidy();
        Ok(())
    }
}
