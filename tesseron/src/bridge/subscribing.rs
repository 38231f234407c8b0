//! The subscriptions of the agent: its requests, and their renewal when an app reconnects.

use super::notifications::Change;
use super::resource_uri::parts_of;
use super::subscription::Subscription;
use super::translate::{self, Purpose};
use super::{Bridge, Leg};
use crate::claims::ChannelId;
use protocol_core::dialect::{NotFound, Reply};
use protocol_core::error::RpcError;
use protocol_core::json::Text;
use protocol_core::session::{InboundId, Invoke, Outcome};

impl Bridge {
    // ---- For the agent ----

    pub(super) fn subscribe(&mut self, id: InboundId, uri: Text) {
        let found = self.find_resource(&uri);
        let found = found.and_then(|(channel, resource)| Some((channel, self.registry.session_on(channel)?.clone(), resource)));
        if let Some(subscription) = self.subscriptions.get_mut(&uri) {
            // A subscription at a session without a channel is replaced by one at a session that has a channel.
            let is_replaced = found.as_ref().is_some_and(|(_, session, _)| session != subscription.session());
            if subscription.channel().is_some() || !is_replaced {
                // If no response of the app is awaited, the reply is sent immediately.
                if !subscription.await_response(id) {
                    self.reply(id, Reply::Done);
                }
                return;
            }
            self.subscriptions.remove(&uri);
        }
        if self.subscriptions.len() >= self.config.agent_limits.in_flight {
            return self.reply(id, Reply::Error(RpcError::fixed(RpcError::BUSY, "too many subscriptions")));
        }
        let Some((channel, session, resource)) = found else {
            return self.reply(id, Reply::NotFound(NotFound::Resource(uri)));
        };
        self.subscribed = self.subscribed.saturating_add(1);
        let name = Text::from(alloc::format!("sub_{}", self.subscribed));
        // Stored before the request is sent, since the first value may come before the response.
        self.subscriptions.insert(uri.clone(), Subscription::new(session, channel, name.clone(), id));
        let call = Invoke::subscribe(resource).with_subscription(name.clone());
        if let Err(why) = self.start_at_app(channel, call, Purpose::Subscribe { uri: uri.clone(), name }) {
            self.subscriptions.remove(&uri);
            self.reply(id, Reply::Error(why));
        }
    }

    /// Handles the outcome of a subscribe request to an app, and replies to all requests of the agent that wait for it. Any outcome but a
    /// result ends the subscription.
    pub(super) fn end_subscribe(&mut self, channel: ChannelId, uri: &Text, name: &Text, outcome: Outcome) {
        let Some(subscription) = self.subscription_at(channel, uri, name) else { return };
        // If the app has not agreed, the subscription is removed below.
        let waiting = subscription.agree(channel);
        let reply = match outcome {
            Outcome::Result(_) => Reply::Done,
            Outcome::Error(error) => translate::error_reply(error),
            _ => Reply::Error(RpcError::fixed(RpcError::INTERNAL, "Transport closed: the app is gone")),
        };
        if reply != Reply::Done {
            self.subscriptions.remove(uri);
        }
        for id in waiting {
            self.reply(id, reply.clone());
        }
    }

    /// Handles the cancel of a subscribe request of the agent that waits for the app's response. If no other request waits for that
    /// response, ends the subscription. No effect if `id` is no such request.
    pub(super) fn forget_subscriber(&mut self, id: InboundId) {
        let found = self.subscriptions.iter_mut().find(|(_, subscription)| subscription.has_waiting(id));
        let Some((uri, subscription)) = found else { return };
        subscription.leave(id);
        if subscription.waiting() == 0 {
            let uri = uri.clone();
            // An error means that the app's session has no room for the request. Then the agent may still get notifications.
            let _ = self.drop_subscription(&uri);
        }
    }

    /// Ends a subscription. Succeeds if there is none.
    pub(super) fn unsubscribe(&mut self, id: InboundId, uri: &Text) {
        let dropped = self.drop_subscription(uri);
        self.reply(id, dropped.map_or_else(Reply::Error, |()| Reply::Done));
    }

    /// Ends a subscription at its app, or, if the app is disconnected, once it has reconnected. Returns an error if the app's session has
    /// no room for the request.
    fn drop_subscription(&mut self, uri: &Text) -> Result<(), RpcError> {
        let Some(subscription) = self.subscriptions.get_mut(uri) else { return Ok(()) };
        let Some(channel) = subscription.channel() else {
            subscription.mark_unwanted();
            self.notifications.forget(uri);
            return Ok(());
        };
        let name = subscription.name().clone();
        let call = Invoke::unsubscribe(uri.clone()).with_subscription(name);
        if let Err(error) = self.start_at_app(channel, call, Purpose::Unsubscribe)
            && error.code == RpcError::BUSY
        {
            return Err(error);
        }
        // Any other refusal means that the app's session is closing, which ends its subscriptions.
        self.notifications.forget(uri);
        for waiting in self.subscriptions.remove(uri).map(Subscription::end).unwrap_or_default() {
            self.reply(waiting, Reply::Done);
        }
        Ok(())
    }

    /// Queues a notification for the agent: the resource of the subscription `name` has a new value.
    pub(super) fn pass_update(&mut self, channel: ChannelId, name: &Text) {
        let subscribed = |subscription: &Subscription| subscription.channel() == Some(channel) && subscription.name() == name;
        let uri = self.subscriptions.iter().find(|(_, subscription)| subscribed(subscription)).map(|(uri, _)| uri.clone());
        if let Some(uri) = uri {
            self.notifications.add(Change::Value(uri));
            self.mark_unprocessed(Leg::Agent);
        }
    }

    /// The subscription with this URI, if it was made on `channel` under this name.
    fn subscription_at(&mut self, channel: ChannelId, uri: &Text, name: &Text) -> Option<&mut Subscription> {
        self.subscriptions
            .get_mut(uri)
            .filter(|subscription| subscription.channel() == Some(channel) && subscription.name() == name)
    }

    // ---- Apps that disconnect and reconnect ----

    /// Handles the end of a channel: the subscriptions that are `Agreed` or `Renewing` become `Lapsed` (`subscription.rs`), until their
    /// session has a channel again.
    pub(super) fn lapse_subscriptions(&mut self, channel: ChannelId) {
        for subscription in self.subscriptions.values_mut().filter(|subscription| subscription.channel() == Some(channel)) {
            subscription.lapse();
        }
        self.forget_subscriptions();
    }

    /// Forgets the subscriptions of sessions that cannot be resumed any longer.
    pub(super) fn forget_subscriptions(&mut self) {
        let registry = &self.registry;
        self.subscriptions.retain(|_, subscription| subscription.channel().is_some() || registry.contains(subscription.session()));
    }

    /// Queues renewals of the subscriptions of the session on `channel`, after the session was resumed or claimed anew. An app may have
    /// forgotten them at the end of the previous channel.
    pub(super) fn renew_subscriptions(&mut self, channel: ChannelId) {
        let (Some(session), Some(app)) = (self.registry.session_on(channel), self.apps.get_mut(&channel)) else { return };
        let waits = |subscription: &Subscription| subscription.channel().is_none() && subscription.session() == session;
        app.queue_renewals(self.subscriptions.iter().filter(|(_, subscription)| waits(subscription)).map(|(uri, _)| uri.clone()));
        self.mark_unprocessed(Leg::App(channel));
    }

    /// Sends queued renewals until the maximum number of them is in flight, or until the app's session has no room.
    pub(super) fn send_renewals(&mut self, channel: ChannelId) {
        while let Some(uri) = self.apps.get_mut(&channel).and_then(super::App::next_renewal) {
            let Err(error) = self.renew(channel, &uri) else { continue };
            if error.code == RpcError::BUSY {
                if let Some(app) = self.apps.get_mut(&channel) {
                    app.put_renewal_back(uri);
                }
                return;
            }
            // An app that does not support subscriptions will always refuse. After any other error the app may reconnect, so its
            // subscription stays.
            if error.code == RpcError::METHOD_NOT_FOUND {
                self.subscriptions.remove(&uri);
            }
        }
    }

    /// Subscribes at the app again, or unsubscribes if the agent has unsubscribed while the app was disconnected.
    fn renew(&mut self, channel: ChannelId, uri: &Text) -> Result<(), RpcError> {
        // After the renewal was queued, the subscription may have moved to another session, or the channel may have lost its session.
        let session = self.registry.session_on(channel);
        let waits = |subscription: &&Subscription| subscription.channel().is_none() && Some(subscription.session()) == session;
        let Some(subscription) = self.subscriptions.get(uri).filter(waits) else { return Ok(()) };
        let (name, is_unwanted) = (subscription.name().clone(), subscription.is_unwanted());
        let Some((_, resource)) = parts_of(uri) else { return Ok(()) };
        let call = if is_unwanted { Invoke::unsubscribe(resource) } else { Invoke::subscribe(resource) };
        let purpose = Purpose::Renew { uri: uri.clone(), name: name.clone() };
        self.start_at_app(channel, call.with_subscription(name), purpose)?;
        if is_unwanted {
            self.subscriptions.remove(uri);
        } else if let Some(subscription) = self.subscriptions.get_mut(uri) {
            subscription.renew(channel);
        }
        Ok(())
    }

    /// Handles the outcome of a renewal. Unless the channel is closing, notifies the agent, since the resource may have changed while the
    /// app was disconnected.
    pub(super) fn end_renewal(&mut self, channel: ChannelId, uri: Text, name: &Text, outcome: &Outcome) {
        let Some(subscription) = self.subscription_at(channel, &uri, name) else { return };
        match outcome {
            Outcome::Result(_) => {
                subscription.agree(channel);
            }
            // The channel of the app is closing. The subscription lapses when the channel is closed.
            Outcome::Lost => return,
            _ => {
                self.subscriptions.remove(&uri);
            }
        }
        self.notifications.add(Change::Value(uri));
        self.mark_unprocessed(Leg::Agent);
    }
}
