//! The methods of a server whose callers listen for notifications (MCP 2026-07-28, Subscriptions).

use super::Session;
use super::event::CancelReason;
use super::ids::InboundId;
use super::types::NotLive;
use crate::dialect::{CutShort, Notification, SubscriptionFilter};
use crate::time::Instant;

impl Session {
    /// Accepts a subscription ([`crate::Request::Listen`]) for those of its kinds of notifications that are in `offered`. Sends the
    /// acknowledgement to the caller, and from now on the notifications that are [published](Self::publish). To end the subscription, call
    /// [`respond`](Self::respond) with [`crate::Reply::Done`]. The caller ends it with a cancel ([`crate::Event::Cancelled`]).
    ///
    /// # Errors
    /// [`NotLive`] if the call `id` is over, is not a subscription, or was accepted before.
    pub fn accept_subscription(&mut self, id: InboundId, offered: &SubscriptionFilter, now: Instant) -> Result<(), NotLive> {
        self.advance(now);
        let inbound = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()).ok_or(NotLive)?;
        inbound.accept_subscription(id, offered, self.now, &mut self.outbox).ok_or(NotLive)?;
        self.tidy();
        Ok(())
    }

    /// Sends a notification to every accepted subscription that includes it, and returns the number of these subscriptions. While a lane
    /// has no room, the notification waits; the same notification waits only once. For a change of a resource pass
    /// [`Notification::ResourceUpdated`]; [`Notification::ResourceValue`] reaches no subscription. For a peer that has made a handshake,
    /// use [`notify`](Self::notify).
    pub fn publish(&mut self, notification: &Notification, now: Instant) -> usize {
        self.advance(now);
        let mut reached: usize = 0;
        for id in self.inbound_calls.ids() {
            let Some(inbound) = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()) else { continue };
            if inbound.publish(notification) {
                reached = reached.saturating_add(1);
                // `is_first` has no effect on notifications.
                self.flush(id, false);
            }
        }
        self.tidy();
        reached
    }

    /// Returns `true` if at least one accepted subscription includes the notification, so that [`publish`](Self::publish) would send it.
    #[must_use]
    pub fn has_subscription(&self, notification: &Notification) -> bool {
        self.inbound_calls.iter().any(|(_, inbound)| inbound.is_active() && inbound.wants(notification))
    }
}

impl Session {
    /// Sends the waiting notifications of a subscription while its lane has room. Returns `true` if at least one was sent.
    pub(super) fn flush_notifications(&mut self, id: InboundId) -> bool {
        let Some(inbound) = self.inbound_calls.get_mut(&id).filter(|inbound| inbound.is_active()) else { return false };
        inbound.flush_notifications(id, self.now, &mut self.outbox, &mut self.progress_queue)
    }

    /// Ends every subscription with a result, since the session closes.
    pub(super) fn end_subscriptions(&mut self, why: &CancelReason) {
        for id in self.inbound_calls.ids() {
            if self.inbound_calls.get(&id).is_some_and(|inbound| inbound.op().is_subscription()) {
                self.cut_short(id, CutShort::Closing, why.clone());
            }
        }
    }
}
