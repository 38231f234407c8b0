//! The subscription of this end at a peer with stateless requests (MCP 2026-07-28, Subscriptions).
//!
//! ```text
//!   None --- begin ---> Current, requested --- acknowledge ---> Current, acknowledged --- end ---> None
//!                        |                                       |                 ^
//!   None <--- expire ----'                                       `--- replace -----'
//! ```
//!
//! Not drawn: `replace` can also begin the first subscription, and take the place of one that is only requested. `end` can end a requested
//! subscription, too. `stop` ends any.
//!
//! One subscription includes all the kinds of notifications that are wanted. To change these kinds, another subscription is requested, the
//! *successor* (`change`). The current subscription is ended only once the successor is acknowledged (`replace`), so that no notification
//! is missed. Each change is a call of the owner. Unless the change leaves no kind, the exchange of that call is the successor. If the call
//! fails or is cancelled, the current subscription stays as it is.

use alloc::vec::Vec;

use crate::dialect::{Notification, SubscriptionFilter};
use crate::json::Text;
use crate::session::outbox::Ticket;
use crate::session::timers::{TimerKey, Timers};
use crate::session::{ExchangeId, OutboundId};
use crate::time::Instant;

#[derive(Clone, Debug, Default)]
pub(super) struct Subscriber {
    /// The kinds that are wanted. Changes that are not acknowledged yet are not included.
    wanted: SubscriptionFilter,
    current: Option<Subscription>,
    /// The time by which the peer must acknowledge `current`, if it is armed in the session's timers. `None` once `current` is
    /// acknowledged.
    armed: Option<Instant>,
    /// The changes whose call has not ended, oldest first.
    changes: Vec<PendingChange>,
}

/// A change, whose call waits for the acknowledgement of the successor.
#[derive(Clone, Debug)]
struct PendingChange {
    call: OutboundId,
    change: Change,
    /// `true` if a later change of the same resource has taken effect, or if the subscription was stopped because no kind was left. This
    /// change then has no effect, even if it is acknowledged.
    is_superseded: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Subscription {
    exchange: ExchangeId,
    ticket: Ticket,
    /// The kinds that the peer has agreed to; `None` until it has acknowledged the subscription.
    agreed: Option<SubscriptionFilter>,
    /// The kinds that the peer has agreed to and that are wanted.
    included: SubscriptionFilter,
}

impl Subscription {
    pub(super) fn requested(exchange: ExchangeId, ticket: Ticket) -> Self {
        Self { exchange, ticket, agreed: None, included: SubscriptionFilter::default() }
    }

    /// Requested -> acknowledged. The peer has agreed to the kinds in `agreed`; of these, the subscription includes those in `wanted`.
    fn acknowledge(&mut self, agreed: &SubscriptionFilter, wanted: &SubscriptionFilter) {
        self.agreed = Some(agreed.clone());
        self.want(wanted);
    }

    fn has_agreed_on_resources(&self) -> bool {
        self.agreed.as_ref().is_some_and(|agreed| !agreed.uris.is_empty())
    }

    /// Updates the included kinds after a change of the wanted kinds.
    fn want(&mut self, wanted: &SubscriptionFilter) {
        self.included = self.agreed.as_ref().map(|agreed| agreed.and(wanted)).unwrap_or_default();
    }

    pub(super) fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    /// The ticket of the request for this subscription.
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

/// A change of the wanted kinds: a resource is added or removed.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Add(Text),
    Remove(Text),
}

impl Change {
    fn uri(&self) -> &Text {
        match self {
            Self::Add(uri) | Self::Remove(uri) => uri,
        }
    }

    fn apply(&self, filter: &mut SubscriptionFilter) {
        match self {
            Self::Add(uri) if filter.uris.contains(uri) => {}
            Self::Add(uri) => filter.uris.push(uri.clone()),
            Self::Remove(uri) => filter.uris.retain(|other| other != uri),
        }
    }

    /// Returns `true` if the peer has agreed to the change, since it has accepted the kinds in `accepted`.
    pub(super) fn is_accepted(&self, accepted: &SubscriptionFilter) -> bool {
        match self {
            Self::Add(uri) => accepted.uris.contains(uri),
            Self::Remove(_) => true,
        }
    }
}

impl Subscriber {
    /// None -> Current, requested. The peer has until `until` to acknowledge it.
    pub(super) fn begin(
        &mut self,
        requested: Subscription,
        wanted: SubscriptionFilter,
        until: Option<Instant>,
        timers: &mut Timers,
    ) {
        self.wanted = wanted;
        self.current = Some(requested);
        timers.set(TimerKey::Acknowledgement, &mut self.armed, until);
    }

    /// Current, requested -> Current, acknowledged. If `exchange` is not the current subscription, or it is already acknowledged,
    /// changes nothing and returns `false`.
    pub(super) fn acknowledge(&mut self, exchange: ExchangeId, accepted: &SubscriptionFilter, timers: &mut Timers) -> bool {
        let current = self.current.as_mut().filter(|current| current.exchange == exchange && current.agreed.is_none());
        let Some(current) = current else { return false };
        current.acknowledge(accepted, &self.wanted);
        self.disarm(timers);
        true
    }

    /// Current, requested -> None: the time for its acknowledgement is over. Returns the subscription to end.
    pub(super) fn expire(&mut self) -> Option<Subscription> {
        self.armed = None;
        let expired = self.current.take();
        self.forget_unwanted();
        expired
    }

    fn disarm(&mut self, timers: &mut Timers) {
        timers.set(TimerKey::Acknowledgement, &mut self.armed, None);
    }

    /// The kinds that a successor with `change` asks for: the wanted kinds, with all changes that are not acknowledged yet, and `change`.
    pub(super) fn with_change(&self, change: &Change) -> SubscriptionFilter {
        let mut filter = self.wanted.clone();
        let pending = self.changes.iter().filter(|pending| !pending.is_superseded).map(|pending| &pending.change);
        pending.chain([change]).for_each(|change| change.apply(&mut filter));
        filter
    }

    /// Records that the exchange of a call is a successor with this change.
    pub(super) fn change(&mut self, id: OutboundId, change: Change) {
        self.changes.push(PendingChange { call: id, change, is_superseded: false });
    }

    /// The change that a call is made for.
    pub(super) fn change_of(&self, id: OutboundId) -> Option<&Change> {
        self.changes.iter().find(|pending| pending.call == id).map(|pending| &pending.change)
    }

    /// Forgets the change of a call that ends.
    #[inline]
    pub(super) fn forget_change(&mut self, id: OutboundId) {
        if !self.changes.is_empty() {
            self.changes.retain(|pending| pending.call != id);
            self.forget_unwanted();
        }
    }

    /// Forgets the wanted kinds if there is no subscription, and no pending change can begin one.
    fn forget_unwanted(&mut self) {
        if self.current.is_none() && self.changes.iter().all(|pending| pending.is_superseded) {
            self.wanted = SubscriptionFilter::default();
        }
    }

    /// Handles the acknowledgement of the successor that a call has requested: the successor becomes the current subscription. Returns the
    /// subscription to end, if there is one: the previous one, or the successor itself if a newer successor was acknowledged earlier, or if
    /// a later change of the same resource has taken effect.
    pub(super) fn replace(
        &mut self,
        id: OutboundId,
        ticket: Ticket,
        accepted: &SubscriptionFilter,
        timers: &mut Timers,
    ) -> Option<Subscription> {
        let mut successor = Subscription::requested(ExchangeId(id.0), ticket);
        let Some(at) = self.changes.iter().position(|pending| pending.call == id) else { return Some(successor) };
        let PendingChange { change, is_superseded, .. } = self.changes.remove(at);
        if is_superseded {
            return Some(successor);
        }
        change.apply(&mut self.wanted);
        successor.acknowledge(accepted, &self.wanted);
        for older in self.changes.iter_mut().take(at).filter(|older| older.change.uri() == change.uri()) {
            older.is_superseded = true;
        }
        match &mut self.current {
            // Tickets are compared, and not exchanges: a call that was held has a lower number than the first subscription, but was sent
            // later.
            Some(current) if current.ticket > successor.ticket => {
                current.want(&self.wanted);
                Some(successor)
            }
            _ => {
                self.disarm(timers);
                self.current.replace(successor)
            }
        }
    }

    /// Current -> None: with the last change, and all changes that are not acknowledged yet, no kind is left. Returns the subscription to
    /// end.
    pub(super) fn stop(&mut self, timers: &mut Timers) -> Option<Subscription> {
        self.disarm(timers);
        self.wanted = SubscriptionFilter::default();
        self.changes.iter_mut().for_each(|pending| pending.is_superseded = true);
        self.current.take()
    }

    /// Current -> None: the peer has ended the subscription. A successor that is requested still becomes current. Returns `true` if the
    /// ended subscription was acknowledged.
    pub(super) fn end(&mut self, exchange: ExchangeId, timers: &mut Timers) -> bool {
        let ended = self.current.take_if(|current| current.exchange == exchange);
        if ended.is_some() {
            self.disarm(timers);
        }
        self.forget_unwanted();
        ended.is_some_and(|ended| ended.agreed.is_some())
    }

    /// Forgets everything, since the session has closed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns `true` if `exchange` is the current subscription.
    pub(super) fn is_open(&self, exchange: ExchangeId) -> bool {
        self.current.as_ref().is_some_and(|current| current.exchange == exchange)
    }

    /// The ticket of the request of `exchange`, if that is the current subscription.
    pub(super) fn ticket_of(&self, exchange: ExchangeId) -> Option<Ticket> {
        self.current.as_ref().filter(|current| current.exchange == exchange).map(Subscription::ticket)
    }

    /// The number of exchanges of the subscription that belong to no call.
    pub(super) fn open_exchanges(&self) -> usize {
        usize::from(self.current.is_some())
    }

    /// The meaning of a notification for the subscription `exchange`. The URI in the notification is not compared, since it may name a part
    /// of a resource.
    pub(super) fn fit(&self, exchange: ExchangeId, notification: &Notification) -> NoticeFit {
        let Some(current) = self.current.as_ref().filter(|current| current.exchange == exchange) else { return NoticeFit::Late };
        let (is_included, is_agreed) = match notification {
            Notification::ResourceUpdated { .. } => (!current.included.uris.is_empty(), current.has_agreed_on_resources()),
            // Only resources can be removed from the wanted kinds, so any other notification that is not included is unknown.
            notification => (current.included.wants(notification), false),
        };
        match (is_included, is_agreed) {
            (true, _) => NoticeFit::Wanted,
            (false, true) => NoticeFit::Late,
            (false, false) => NoticeFit::Unknown,
        }
    }
}

/// The meaning of a notification for a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoticeFit {
    Wanted,
    /// The subscription is no longer current, or the notification is about a resource that is no longer wanted.
    Late,
    /// The peer has not agreed to notifications of this kind.
    Unknown,
}
