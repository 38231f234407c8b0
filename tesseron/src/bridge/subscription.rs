//! A resource that the agent has subscribed to.
//!
//! ```text
//!                 the app agrees            its channel ends              its app reconnects
//!   subscribe --> Asked -----> Agreed ----------------------------> Lapsed ------------------> Renewing
//!                                ^                                    ^                         |    |
//!                                |                                    '---- its channel ends ---'    |
//!                                '----------------------- the app agrees ----------------------------'
//! ```
//!
//! |                                  | Asked          | Agreed    | Lapsed    | Unwanted            | Renewing  |
//! |----------------------------------|----------------|-----------|-----------|---------------------|-----------|
//! | the agent subscribes             | waits, too     | succeeds  | succeeds  | Lapsed, succeeds    | succeeds  |
//! | the agent unsubscribes           | forgotten      | forgotten | Unwanted  |                     | forgotten |
//! | all its requests are cancelled   | forgotten      |           |           |                     |           |
//! | the app agrees                   | Agreed         |           |           |                     | Agreed    |
//! | the app refuses                  | forgotten      |           |           |                     | forgotten |
//! | its channel ends                 | forgotten      | Lapsed    |           |                     | Lapsed    |
//! | its app reconnects               |                |           | Renewing  | ended at the app    |           |
//! | its session is forgotten         |                |           | forgotten | forgotten           |           |
//!
//! A cell has the next state, or the effect. *Succeeds* means that the agent's request succeeds immediately; *forgotten* means that the
//! bridge removes the subscription; *ended at the app* means that it also sends an unsubscribe request. In an empty cell nothing changes.
//! An app *reconnects* when its session gets a channel again. The diagram leaves out `Unwanted`, and every step to *forgotten*.
//!
//! The table leaves out two cases. If the resource is now served by another session, a subscribe request of the agent replaces a `Lapsed`
//! or `Unwanted` subscription by a new one, which is `Asked`. If an app reconnects and does not support subscriptions, those of its session
//! are forgotten.
//!
//! For the agent a subscription continues while its app is disconnected.

use alloc::vec::Vec;

use crate::claims::{ChannelId, SessionId};
use protocol_core::json::Text;
use protocol_core::session::InboundId;

/// The subscription at an app for a resource. There is only one for each resource, even if the agent has sent several subscribe requests.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    session: SessionId,
    /// The name of the subscription at the app. It is the same on all channels of the session, so that an app that has kept the
    /// subscription does not have it twice after the renewal.
    name: Text,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// The app was asked to subscribe; these requests of the agent wait for its response.
    Asked(ChannelId, Vec<InboundId>),
    Agreed(ChannelId),
    Lapsed,
    /// Lapsed, and the agent has unsubscribed: the subscription is ended at the app once the app is connected again.
    Unwanted,
    /// The app was asked to subscribe again.
    Renewing(ChannelId),
}

impl Subscription {
    /// A subscription for the agent's request `id`, which is sent to the app of `session` on `channel`.
    pub(super) fn new(session: SessionId, channel: ChannelId, name: Text, id: InboundId) -> Self {
        Self { session, name, state: State::Asked(channel, alloc::vec![id]) }
    }

    /// The channel of the app; `None` while the app is disconnected.
    pub(super) fn channel(&self) -> Option<ChannelId> {
        match self.state {
            State::Asked(channel, _) | State::Agreed(channel) | State::Renewing(channel) => Some(channel),
            State::Lapsed | State::Unwanted => None,
        }
    }

    /// The session that the subscription belongs to.
    pub(super) fn session(&self) -> &SessionId {
        &self.session
    }

    /// The name of the subscription at the app.
    pub(super) fn name(&self) -> &Text {
        &self.name
    }

    pub(super) fn is_unwanted(&self) -> bool {
        matches!(self.state, State::Unwanted)
    }

    /// The number of requests of the agent that wait for the app's response.
    pub(super) fn waiting(&self) -> usize {
        if let State::Asked(_, waiting) = &self.state { waiting.len() } else { 0 }
    }

    pub(super) fn has_waiting(&self, id: InboundId) -> bool {
        matches!(&self.state, State::Asked(_, waiting) if waiting.contains(&id))
    }

    /// Adds `id` to the requests that wait for the app's response. Returns `false` if the app has already agreed, so that the request can
    /// succeed immediately. An `Unwanted` subscription becomes `Lapsed` again.
    pub(super) fn await_response(&mut self, id: InboundId) -> bool {
        match &mut self.state {
            State::Asked(_, waiting) => {
                waiting.push(id);
                true
            }
            State::Unwanted => {
                self.state = State::Lapsed;
                false
            }
            State::Agreed(_) | State::Lapsed | State::Renewing(_) => false,
        }
    }

    /// Removes `id` from the requests that wait.
    pub(super) fn leave(&mut self, id: InboundId) {
        if let State::Asked(_, waiting) = &mut self.state {
            waiting.retain(|waiting| *waiting != id);
        }
    }

    /// Records that the app on `channel` has agreed. Returns the requests that waited for its response.
    pub(super) fn agree(&mut self, channel: ChannelId) -> Vec<InboundId> {
        match core::mem::replace(&mut self.state, State::Agreed(channel)) {
            State::Asked(_, waiting) => waiting,
            State::Agreed(_) | State::Lapsed | State::Unwanted | State::Renewing(_) => Vec::new(),
        }
    }

    /// Records the end of the channel. A subscription to which the app has not agreed is not changed: it ends with the call that requested
    /// it.
    pub(super) fn lapse(&mut self) {
        if let State::Agreed(_) | State::Renewing(_) = self.state {
            self.state = State::Lapsed;
        }
    }

    /// Marks the subscription as unwanted, if its app is disconnected.
    pub(super) fn mark_unwanted(&mut self) {
        if let State::Lapsed = self.state {
            self.state = State::Unwanted;
        }
    }

    /// Records that the app has reconnected on `channel`, and that it is asked to subscribe again.
    pub(super) fn renew(&mut self, channel: ChannelId) {
        if let State::Lapsed = self.state {
            self.state = State::Renewing(channel);
        }
    }

    /// Ends the subscription, and returns the requests that still wait.
    pub(super) fn end(self) -> Vec<InboundId> {
        if let State::Asked(_, waiting) = self.state { waiting } else { Vec::new() }
    }
}
