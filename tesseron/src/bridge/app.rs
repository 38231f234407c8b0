//! Handles the events of an app's session.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::app_state::App;
use super::manifest::Manifest;
use super::notifications::Change;
use super::translate::{self, Purpose};
use super::{Bridge, BridgeEvent, Leg, RelayedInput, Route, ShownCode};
use crate::claims::{Admission, ChannelId, Departure};
use protocol_core::dialect::tesseron::{ClaimState, ResumeCredentials};
use protocol_core::dialect::{InputRequest, InputResponse, LogRecord, Notification, PeerInfo, Progress};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::{Close, CloseReason, Event, InboundId, InputKey, OutboundId, Outcome, SendError};

impl Bridge {
    pub(super) fn on_app(&mut self, channel: ChannelId, event: Event) {
        match event {
            Event::HandshakeRequest { peer, resume } => self.on_handshake(channel, peer, resume),
            Event::Progress { id, progress } => self.pass_progress(channel, id, progress),
            Event::Done { id, outcome, partial, last } => self.end_call(channel, id, outcome, partial, last),
            Event::InputRequested { key, parent, ask, .. } => self.ask_agent(channel, key, parent, ask),
            Event::InputGone { key } => self.withdraw_input(channel, key),
            Event::Log(record) => self.pass_log(channel, record),
            Event::Notification(notification) => self.on_notification(channel, notification),
            Event::Violation(rule) => self.emit(BridgeEvent::Violation { leg: Leg::App(channel), rule }),
            Event::Unreadable(frame) => self.emit(BridgeEvent::Violation { leg: Leg::App(channel), rule: frame.rule }),
            Event::Closed(reason) => self.on_app_closed(channel, reason),
            // No other event of an app concerns the agent, so all other events are ignored.
            _ => {}
        }
    }

    // ---- The handshake, lists and the end of an app's session ----

    fn on_handshake(&mut self, channel: ChannelId, peer: Box<PeerInfo>, resume: Option<ResumeCredentials>) {
        let (epoch_ms, id) = (self.epoch_ms(), &peer.identity.name);
        let admitted = match &resume {
            None => self.registry.hello(channel, id, epoch_ms, &mut *self.random).map_err(|why| why.error()),
            Some(credentials) => self.registry.resume(channel, credentials, id, &mut *self.random).map_err(|why| why.error()),
        };
        let now = self.now;
        let Some(app) = self.apps.get_mut(&channel) else { return };
        match admitted {
            Err(error) => {
                app.refuse(error.clone(), now);
                self.fail_claim_on(channel, &error.message);
                self.emit(BridgeEvent::AppRefused { channel, error });
            }
            Ok(admission) => self.admit(channel, peer, admission),
        }
    }

    fn admit(&mut self, channel: ChannelId, peer: Box<PeerInfo>, admission: Admission) {
        if let Some(superseded) = admission.supersedes {
            self.close_app(superseded, Close::Now, self.now);
        }
        let now = self.now;
        let Some(app) = self.apps.get_mut(&channel) else { return };
        let claim_state = admission.welcome.claim_state.clone();
        app.accept(Manifest::read(&peer), admission.welcome, now);
        if let (ClaimState::Bound, Some(at)) = (&claim_state, admission.claimed_at) {
            app.claim(&self.agent_profile, at, now);
        }
        let code = if let ClaimState::Unclaimed { claim_code } = claim_state { Some(ShownCode::new(claim_code)) } else { None };
        self.emit(BridgeEvent::AppReady { channel, app: peer, code });
        if admission.claimed_at.is_some() {
            self.change_surface();
            self.renew_subscriptions(channel);
        }
        self.complete_claim_on(channel);
    }

    fn on_notification(&mut self, channel: ChannelId, notification: Notification) {
        let Some(app) = self.apps.get_mut(&channel).filter(|app| app.is_accepted()) else { return };
        match notification {
            Notification::Actions(list) => {
                app.set_actions(&list);
                if self.registry.is_claimed(channel) {
                    self.notifications.add(Change::Tools);
                }
                self.mark_unprocessed(Leg::Agent);
            }
            Notification::Resources(list) => {
                app.set_resources(&list);
                if self.registry.is_claimed(channel) {
                    self.notifications.add(Change::Resources);
                }
                self.mark_unprocessed(Leg::Agent);
            }
            Notification::ResourceValue { subscription, .. } => self.pass_update(channel, &subscription),
            _ => {}
        }
    }

    fn on_app_closed(&mut self, channel: ChannelId, reason: CloseReason) {
        self.unroute(channel);
        // The calls at the app have already ended, and its input requests were withdrawn.
        self.apps.remove(&channel);
        self.subscriptions.retain(|_, subscription| subscription.channel() != Some(channel));
        let has_timed_out = reason == CloseReason::HandshakeTimeout;
        self.fail_claim_on(
            channel,
            if has_timed_out { "the app is connected, but sent no hello in time" } else { "the app closed the connection" },
        );
        self.emit(BridgeEvent::AppClosed { channel, reason });
    }

    /// Stops routing calls to a session that is closing. Later calls may go to an older session of the same app.
    pub(super) fn unroute(&mut self, channel: ChannelId) {
        if matches!(self.registry.handle_closed(channel, self.now), Departure::Kept | Departure::Forgotten) {
            self.change_surface();
        }
        self.lapse_subscriptions(channel);
    }

    // ---- Calls ----

    /// The agent's call that our call `id` to the app serves. `None` for calls about subscriptions, which may serve several calls of the
    /// agent.
    fn invocation(&self, channel: ChannelId, id: OutboundId) -> Option<InboundId> {
        self.apps.get(&channel)?.invocation(id)
    }

    fn pass_progress(&mut self, channel: ChannelId, id: OutboundId, mut progress: Progress) {
        let Some(invocation) = self.invocation(channel, id) else { return };
        // The total is 100 on Tesseron, even in an update without a value.
        progress.total = Some(100.0);
        // The result is ignored, since an app gets no answer to progress. An error means that the agent's call is over, or that a number
        // is not valid.
        let _ = self.agent.progress(invocation, progress, self.now);
        self.mark_unprocessed(Leg::Agent);
    }

    fn end_call(
        &mut self,
        channel: ChannelId,
        id: OutboundId,
        outcome: Outcome,
        partial: Option<Json>,
        last: Option<Box<Progress>>,
    ) {
        let Some(purpose) = self.apps.get_mut(&channel).and_then(|app| app.end_call(id)) else { return };
        if let Some(invocation) = purpose.invocation() {
            self.routes.remove(&invocation);
        }
        match purpose {
            Purpose::Tool(invocation) => self.reply(invocation, translate::tool(outcome, partial, last.as_deref())),
            Purpose::Resource { invocation, uri } => self.reply(invocation, translate::resource(outcome, &uri)),
            Purpose::ResourceText(invocation) => self.reply(invocation, translate::resource_text(outcome)),
            Purpose::Subscribe { uri, name } => self.end_subscribe(channel, &uri, &name, outcome),
            Purpose::Renew { uri, name } => self.end_renewal(channel, uri, &name, &outcome),
            Purpose::Unsubscribe => {}
        }
    }

    // ---- Input requests ----

    fn ask_agent(&mut self, channel: ChannelId, key: InputKey, parent: Option<OutboundId>, ask: InputRequest) {
        let now = self.now;
        let unavailable = translate::unavailable(&ask);
        let asked = match parent.and_then(|parent| self.invocation(channel, parent)) {
            Some(invocation) => self
                .agent
                .request_input(invocation, translate::ask(ask), now)
                .map_err(|error| translate::not_asked(&error, unavailable, self.agent_profile.name())),
            None => Err(RpcError::fixed(RpcError::INTERNAL, "this call has ended")),
        };
        self.mark_unprocessed(Leg::Agent);
        match asked {
            Ok(at_agent) => {
                self.inputs.insert(at_agent, RelayedInput { channel, key, unavailable });
                if let Some(app) = self.apps.get_mut(&channel) {
                    app.open_input(key, at_agent);
                }
            }
            Err(error) => self.answer_app(channel, key, InputResponse::Refused(error)),
        }
    }

    pub(super) fn answer_app(&mut self, channel: ChannelId, key: InputKey, answer: InputResponse) {
        let now = self.now;
        if let Some(app) = self.apps.get_mut(&channel) {
            app.answer_input(key, answer, now);
            self.mark_unprocessed(Leg::App(channel));
        }
    }

    fn withdraw_input(&mut self, channel: ChannelId, key: InputKey) {
        let at_agent = self.apps.get_mut(&channel).and_then(|app| app.withdraw_input(key));
        if let Some(at_agent) = at_agent {
            self.inputs.remove(&at_agent);
            // This fails if the input request has already ended at the agent.
            let _ = self.agent.abandon_input(at_agent, self.now);
            self.mark_unprocessed(Leg::Agent);
        }
    }

    // ---- Notifications ----

    fn pass_log(&mut self, channel: ChannelId, mut record: LogRecord) {
        if !self.registry.is_claimed(channel) {
            return;
        }
        record.logger = self.apps.get(&channel).and_then(App::name).map(Text::from);
        let _ = self.agent.log(None, record, self.now);
        self.mark_unprocessed(Leg::Agent);
    }

    // ---- For the handlers of the agent's messages ----

    /// Cancels the call `id` at the app on `channel`. The agent no longer waits for the call.
    pub(super) fn cancel_at_app(&mut self, channel: ChannelId, id: OutboundId, reason: Option<&str>) {
        let now = self.now;
        if let Some(app) = self.apps.get_mut(&channel) {
            app.cancel_call(id, reason, now);
            self.mark_unprocessed(Leg::App(channel));
        }
    }

    /// Starts a call at an app. If it serves exactly one call of the agent, adds a route from the agent's call to the new one. Returns the
    /// error for the agent if the app's session refuses the call, or has ended.
    pub(super) fn start_at_app(
        &mut self,
        channel: ChannelId,
        call: protocol_core::session::Invoke,
        purpose: Purpose,
    ) -> Result<OutboundId, RpcError> {
        let now = self.now;
        let Some(app) = self.apps.get_mut(&channel) else { return Err(translate::not_started(SendError::Closing)) };
        let invocation = purpose.invocation();
        let id = app.start_call(call, purpose, now).map_err(translate::not_started)?;
        if let Some(invocation) = invocation {
            self.routes.insert(invocation, Route::App(channel, id));
        }
        self.mark_unprocessed(Leg::App(channel));
        Ok(id)
    }

    /// Closes the sessions of all apps.
    pub(super) fn close_apps(&mut self) {
        for channel in self.apps.keys().copied().collect::<Vec<_>>() {
            self.close_app(channel, Close::Now, self.now);
        }
    }
}
