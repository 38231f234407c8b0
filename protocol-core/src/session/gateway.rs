//! The verbs of a gateway of Tesseron, where the owner of the session decides who is taken in.

use super::Session;
use super::lane_queue::Class;
use super::route::{Lane, ReplyKind};
use super::verbs::{NotLive, Refused};
use crate::dialect::tesseron::{ClaimState, Welcome};
use crate::dialect::{Capabilities, Confirmation, Identity};
use crate::error::RpcError;
use crate::shared::Arc;
use crate::time::Instant;

impl Session {
    /// Answers [`crate::Event::HandshakeRequest`]: the app is taken in, or hears why not and may greet anew.
    ///
    /// # Errors
    /// [`NotLive`] if no greeting waits, or the session is closing.
    pub fn welcome(&mut self, answer: Result<Welcome, RpcError>, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        if !self.ending.is_open() {
            return Err(NotLive);
        }
        let (lane, greeting, peer) = self.handshake.take_asked().ok_or(NotLive)?;
        self.outbox.settle(lane);
        match answer {
            Err(error) => {
                let frame = self.rules.dialect.write_error(self.outbox.frames(), Some(&greeting), &error);
                self.push_unsolicited(lane, ReplyKind::Refused, frame);
            }
            Ok(welcome) => {
                let result = self.rules.dialect.welcome(&welcome, &self.config.local_end()).ok_or(NotLive)?;
                self.answer_handshake(lane, greeting, &result, peer);
                if welcome.standing == ClaimState::Resumed {
                    self.confirm();
                }
            }
        }
        self.tidy();
        Ok(())
    }

    /// Says that the session was claimed, by `agent`, which can do so much: the app is told, and its actions may be called. `at_millis`
    /// counts from 1970 (Tesseron handshake page, "Claim"). A session that is claimed already stays as it is.
    ///
    /// # Errors
    /// [`Refused::WrongEnd`] but for a gateway, [`Refused::NotReady`] before an app was taken in, [`Refused::Closing`].
    pub fn claim(&mut self, agent: Identity, capabilities: Capabilities, at_millis: u64, now: Instant) -> Result<(), Refused> {
        self.advance(now);
        if self.rules.opens || self.rules.confirmation != Confirmation::Owner {
            return Err(Refused::WrongEnd);
        }
        if !self.ending.is_open() {
            return Err(Refused::Closing);
        }
        if self.handshake.asks() {
            return Ok(());
        }
        if !self.handshake.serves() {
            return Err(Refused::NotReady);
        }
        // What is shared with other sessions stays as it is for them.
        let config = Arc::make_mut(&mut self.config);
        (config.identity, config.capabilities) = (agent, capabilities);
        if let Some(frame) = self.rules.dialect.write_claimed(self.outbox.frames(), at_millis, &self.config.local_end()) {
            self.outbox.push(Lane::CHANNEL, Class::Notice, frame);
        }
        self.confirm();
        self.tidy();
        Ok(())
    }
}
