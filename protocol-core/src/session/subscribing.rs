//! The steps of a caller whose peer serves stateless requests. A call that subscribes to a resource, or ends such a subscription, changes
//! the one subscription of the session. A call that sets the log level adds a member to every later request (MCP 2026-07-28, Subscriptions
//! and Logging).

use super::Session;
use super::event::{Event, Invalid, Outcome};
use super::ids::{ExchangeId, OutboundId};
use super::lane_queue::Class;
use super::outbox::Ticket;
use super::route::Lane;
use super::subscriber::{Change, NoticeFit, Subscription};
use crate::dialect::{Notification, Op, Outgoing, Stamp, SubscriptionFilter};
use crate::error::Violation;
use crate::json::{Json, Text};
use crate::time::Instant;

impl Session {
    /// Stores the members of `_meta` with which every later request names this end.
    pub(super) fn stamp_requests(&mut self) {
        self.stamp = self.rules.dialect.stamp(&self.config.local_end());
    }

    /// Subscribes to the changes of all lists for which the peer declares notifications, if [`crate::Config::list_changes`] is set. A
    /// server of stateless requests sends no such notification without a subscription.
    pub(super) fn listen_for_lists(&mut self) {
        let is_wanted = self.config.list_changes && self.ending.is_open();
        let Some(peer) = self.peer.as_ref().filter(|_| is_wanted) else { return };
        let lists = SubscriptionFilter {
            tools: peer.capabilities.tools_list_changed,
            prompts: peer.capabilities.prompts_list_changed,
            resources: peer.capabilities.resources_list_changed,
            ..SubscriptionFilter::default()
        };
        if lists.is_empty() {
            return;
        }
        let exchange = ExchangeId(self.take_number());
        let requested = Subscription::requested(exchange, self.push_listen(exchange, &lists));
        // A tick at least, so that the deadline is later than `now` (G7).
        let until = self.config.timeouts.acknowledgement.map(|limit| self.now.saturating_add(limit.max(Instant::TICK)));
        self.subscriber.begin(requested, lists, until, &mut self.timers);
    }

    fn push_listen(&mut self, exchange: ExchangeId, filter: &SubscriptionFilter) -> Ticket {
        let stamp = Stamp { caller: &self.stamp, level: self.wanted_level };
        let frame = self.rules.dialect.write_listen(self.outbox.frames(), exchange.0, filter, stamp);
        self.outbox.push(Lane::CHANNEL, Class::Request(exchange), frame)
    }

    /// Handles a call for which no request is sent to a server of stateless requests: it sets the log level, or it leaves the subscription
    /// without any kind of notification. For any other call, does nothing and returns `false`.
    pub(super) fn serve_locally(&mut self, call: &Outgoing) -> bool {
        if let Some(level) = call.level() {
            self.wanted_level = Some(level);
            return true;
        }
        let Some(change @ Change::Remove(_)) = change_of(call) else { return false };
        if !self.subscriber.with_change(&change).is_empty() {
            return false;
        }
        if let Some(ended) = self.subscriber.stop(&mut self.timers) {
            self.end_subscription(&ended);
        }
        true
    }

    /// Returns `false` for a call with which the subscription would have more resources than [`crate::Limits::subscriptions`], or its
    /// request would be longer than a frame may be.
    pub(super) fn has_room_to_subscribe(&self, call: &Outgoing) -> bool {
        if !self.rules.stateless || call.op != Op::Subscribe {
            return true;
        }
        let Some(change) = change_of(call) else { return true };
        let (filter, limits) = (self.subscriber.with_change(&change), &self.config.limits);
        let length = self.rules.dialect.listen_size(&filter).saturating_add(Stamp::size_with(&self.stamp));
        filter.uris.len() <= limits.subscriptions && length <= limits.frame_bytes
    }

    /// Returns `false` for a held call that changes the subscription, while too much output is queued. The request of a change lists all
    /// notifications of the subscription, so its frame can be much longer than the bytes that were counted while the call was held.
    pub(super) fn has_room_for(&self, call: &Outgoing) -> bool {
        let is_change = self.rules.stateless && change_of(call).is_some();
        !is_change || self.outbox.bytes_of(Lane::CHANNEL) < self.config.limits.output_bytes
    }

    /// Queues the request of a call, and returns its ticket.
    pub(super) fn push_request(&mut self, id: OutboundId, call: &Outgoing, observed: bool, depth: u8) -> Ticket {
        if self.rules.stateless
            && let Some(change) = change_of(call)
        {
            let filter = self.subscriber.with_change(&change);
            self.subscriber.change(id, change);
            return self.push_listen(ExchangeId(id.0), &filter);
        }
        let stamp = Stamp { caller: &self.stamp, level: call.log_level.or(self.wanted_level) };
        let frame = self.rules.dialect.write_call(self.outbox.frames(), id.0, call, observed, depth, stamp);
        self.outbox.push(Lane::CHANNEL, Class::Request(ExchangeId(id.0)), frame)
    }

    /// Cancels a subscription of ours.
    fn end_subscription(&mut self, ended: &Subscription) {
        let unsent = self.outbox.withdraw(ended.ticket());
        self.use_room(Lane::CHANNEL);
        if !unsent {
            self.push_cancel(ended.exchange(), None);
        }
    }

    /// Ends the current subscription, which the peer has not acknowledged in time. A successor that was already requested still becomes
    /// current.
    pub(super) fn expire_subscription(&mut self) {
        if let Some(expired) = self.subscriber.expire() {
            self.end_subscription(&expired);
            self.violation(Violation::SubscriptionUnacknowledged);
        }
    }

    // ---- From the peer ----

    /// Handles the acknowledgement of a subscription. If a call has changed the subscription, the acknowledgement ends this call.
    pub(super) fn handle_acknowledged(&mut self, number: Option<u64>, accepted: &SubscriptionFilter) {
        let Some(exchange) = number.map(ExchangeId).filter(|exchange| exchange.0 < self.next) else {
            return self.violation(Violation::UnknownSubscription);
        };
        if self.is_unsent_subscription(exchange) {
            return self.violation(Violation::UnknownSubscription);
        }
        if self.subscriber.acknowledge(exchange, accepted, &mut self.timers) {
            return;
        }
        let id = OutboundId(exchange.0);
        let Some(call) = self.outbound_calls.get_mut(&id).filter(|call| !call.is_held() && !call.is_given_up()) else {
            self.stats.late_frames = self.stats.late_frames.saturating_add(1);
            return;
        };
        let Some(ticket) = call.ticket().filter(|ticket| !self.outbox.is_unpolled(*ticket)) else {
            return self.violation(Violation::UnknownSubscription);
        };
        let Some(change) = self.subscriber.change_of(id) else {
            if !call.op().is_subscription() {
                return self.violation(Violation::UnknownSubscription);
            }
            // The owner's own `Op::Listen` goes on until its result.
            call.stop_idle_clock();
            return call.arm(id, &mut self.timers);
        };
        if !change.is_accepted(accepted) {
            self.finish_call(id, Outcome::Invalid(Invalid::Unsupported));
            return self.push_cancel(exchange, None);
        }
        if let Some(ended) = self.subscriber.replace(id, ticket, accepted, &mut self.timers) {
            self.end_subscription(&ended);
        }
        self.finish_call(id, Outcome::Result(Json::empty_object()));
    }

    /// Handles a notification for a subscription.
    pub(super) fn handle_published(&mut self, number: Option<u64>, notification: Notification) {
        let Some(exchange) = number.map(ExchangeId).filter(|exchange| exchange.0 < self.next) else {
            return self.violation(Violation::UnknownSubscription);
        };
        let call = self.outbound_calls.get(&OutboundId(exchange.0));
        let is_listening = call.is_some_and(|call| {
            call.op().is_subscription() && call.ticket().is_some_and(|ticket| !self.outbox.is_unpolled(ticket))
        });
        let fit = match call {
            Some(_) if is_listening => NoticeFit::Wanted,
            Some(_) => NoticeFit::Unknown,
            None => self.subscriber.fit(exchange, &notification),
        };
        match fit {
            NoticeFit::Wanted => self.push_event(Event::Notification(notification)),
            NoticeFit::Late => self.stats.late_frames = self.stats.late_frames.saturating_add(1),
            NoticeFit::Unknown => self.violation(Violation::UnknownSubscription),
        }
    }

    /// Returns `true` if `exchange` is the current subscription and its request was not polled, so that the peer has guessed its number.
    fn is_unsent_subscription(&self, exchange: ExchangeId) -> bool {
        self.subscriber.ticket_of(exchange).is_some_and(|ticket| self.outbox.is_unpolled(ticket))
    }

    /// Handles the response to the current subscription: the peer has ended it, or refused the first one.
    pub(super) fn handle_subscription_response(&mut self, exchange: ExchangeId) {
        match self.is_unsent_subscription(exchange) {
            true => self.violation(Violation::UnknownResponse),
            false => self.handle_subscription_end(exchange),
        }
    }

    /// Handles the end of the current subscription: the peer has ended it, or its exchange is lost.
    pub(super) fn handle_subscription_end(&mut self, exchange: ExchangeId) {
        if self.subscriber.end(exchange, &mut self.timers) {
            self.push_event(Event::Notification(Notification::SubscriptionEnded));
        }
    }

    /// Handles a cancel from a peer that serves stateless requests. Such a peer sends no requests, so it can only cancel a subscription of
    /// ours. A cancel of anything else, or of a request that was not polled, is ignored.
    pub(super) fn handle_subscription_cancel(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        let id = OutboundId(number);
        let is_listening = |op: Op| op.is_subscription() || self.subscriber.change_of(id).is_some();
        match self.outbound_calls.get(&id) {
            Some(call) => {
                if is_listening(call.op()) && call.ticket().is_some_and(|ticket| !self.outbox.is_unpolled(ticket)) {
                    self.finish_call(id, Outcome::Lost);
                }
            }
            None if self.is_unsent_subscription(ExchangeId(number)) => {}
            None => self.handle_subscription_end(ExchangeId(number)),
        }
    }
}

/// The change of the subscription that a call asks for; `None` for a call that asks for none.
fn change_of(call: &Outgoing) -> Option<Change> {
    let uri = || call.target().map(|uri| Text::from(&*uri));
    match call.op {
        Op::Subscribe => uri().map(Change::Add),
        Op::Unsubscribe => uri().map(Change::Remove),
        _ => None,
    }
}
