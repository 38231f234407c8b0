//! A resource that the agent watches.
//!
//! ```text
//!                 the app agrees            its channel ends              its session is back
//!   subscribe --> Asked -----> Agreed ----------------------------> Lapsed ------------------> Renewing
//!                                ^                                    ^                         |    |
//!                                |                                    '---- its channel ends ---'    |
//!                                '----------------------- the app agrees ----------------------------'
//! ```
//!
//! |                                  | Asked          | Agreed    | Lapsed    | Unwanted            | Renewing  |
//! |----------------------------------|----------------|-----------|-----------|---------------------|-----------|
//! | the agent subscribes             | waits, too     | agreed to | agreed to | Lapsed, agreed to   | agreed to |
//! | the agent unsubscribes           | forgotten      | forgotten | Unwanted  |                     | forgotten |
//! | no request waits any longer      | forgotten      |           |           |                     |           |
//! | the app agrees                   | Agreed         |           |           |                     | Agreed    |
//! | the app says no                  | forgotten      |           |           |                     | forgotten |
//! | its channel ends                 | forgotten      | Lapsed    |           |                     | Lapsed    |
//! | its session is back              |                |           | Renewing  | told, and forgotten |           |
//! | its session is forgotten         |                |           | forgotten | forgotten           |           |
//!
//! To the agent a subscription lives on while its app is away.

use alloc::vec::Vec;

use crate::claims::{ChannelId, SessionId};
use protocol_core::json::Text;
use protocol_core::session::InboundId;

/// A resource of which the agent wants to be told: one subscription at the app, however often the agent asked for it.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    session: SessionId,
    /// The app's name for it, over all channels of the session: asked again, an app that has kept it has it once.
    name: Text,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// The app was asked; these wait for it to agree.
    Asked(ChannelId, Vec<InboundId>),
    Agreed(ChannelId),
    Lapsed,
    /// Lapsed, and taken back meanwhile: an app that has kept it hears so when it is back.
    Unwanted,
    /// The app was asked again.
    Renewing(ChannelId),
}

impl Subscription {
    /// One that `id` asks for, and that the app of `session` on `channel` is about to be asked for.
    pub(super) fn new(session: SessionId, channel: ChannelId, name: Text, id: InboundId) -> Self {
        Self { session, name, state: State::Asked(channel, alloc::vec![id]) }
    }

    /// The channel of the app; `None` while it is away.
    pub(super) fn channel(&self) -> Option<ChannelId> {
        match self.state {
            State::Asked(channel, _) | State::Agreed(channel) | State::Renewing(channel) => Some(channel),
            State::Lapsed | State::Unwanted => None,
        }
    }

    /// The session that it belongs to.
    pub(super) fn session(&self) -> &SessionId {
        &self.session
    }

    /// The app's name for it.
    pub(super) fn name(&self) -> &Text {
        &self.name
    }

    pub(super) fn is_unwanted(&self) -> bool {
        matches!(self.state, State::Unwanted)
    }

    /// The number of requests of the agent that wait for it.
    pub(super) fn waiting(&self) -> usize {
        if let State::Asked(_, waiting) = &self.state { waiting.len() } else { 0 }
    }

    pub(super) fn has_waiting(&self, id: InboundId) -> bool {
        matches!(&self.state, State::Asked(_, waiting) if waiting.contains(&id))
    }

    /// Lets `id` wait with the others. Says whether it does: the app may have agreed before.
    pub(super) fn join(&mut self, id: InboundId) -> bool {
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

    /// `id` does not wait any longer.
    pub(super) fn leave(&mut self, id: InboundId) {
        if let State::Asked(_, waiting) = &mut self.state {
            waiting.retain(|waiting| *waiting != id);
        }
    }

    /// The app on `channel` has agreed. Gives those who waited for that.
    pub(super) fn agree(&mut self, channel: ChannelId) -> Vec<InboundId> {
        match core::mem::replace(&mut self.state, State::Agreed(channel)) {
            State::Asked(_, waiting) => waiting,
            State::Agreed(_) | State::Lapsed | State::Unwanted | State::Renewing(_) => Vec::new(),
        }
    }

    /// Its channel has ended. What the app has not agreed to yet ends with it, once that is told.
    pub(super) fn lapse(&mut self) {
        if let State::Agreed(_) | State::Renewing(_) = self.state {
            self.state = State::Lapsed;
        }
    }

    /// The agent wants it no longer while its app is away.
    pub(super) fn disown(&mut self) {
        if let State::Lapsed = self.state {
            self.state = State::Unwanted;
        }
    }

    /// The app is back on `channel`, and is asked again.
    pub(super) fn renew(&mut self, channel: ChannelId) {
        if let State::Lapsed = self.state {
            self.state = State::Renewing(channel);
        }
    }

    /// Ends it. Gives those who still wait.
    pub(super) fn end(self) -> Vec<InboundId> {
        if let State::Asked(_, waiting) = self.state { waiting } else { Vec::new() }
    }
}
