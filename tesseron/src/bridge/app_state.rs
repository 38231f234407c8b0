//! The state of one app: its session, its actions and resources, and the calls and input requests that are open between it and the agent.
//!
//! ```text
//!            accept                  claim, if it was not claimed before
//!   Dialled ---------> Accepted ------------------------------------------> Claimed
//!      | refuse
//!      v
//!   (its session closes)
//! ```
//!
//! An app whose session was claimed before is `Claimed` as soon as it is accepted. In each of these states the session may close. No field
//! here stores the claim: the app's [`Session`] does. Calls and input requests stay in the tables until they end, in every state.

use alloc::collections::{BTreeMap, VecDeque};

use super::agent_profile::AgentProfile;
use super::manifest::Manifest;
use super::translate::Purpose;
use protocol_core::dialect::InputResponse;
use protocol_core::dialect::tesseron::Welcome;
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::{Close, Event, InboundId, InputKey, Invoke, OutboundId, SendError, Session};
use protocol_core::time::Instant;

/// One app, from the connection to the end of its session.
pub(super) struct App {
    session: Session,
    /// The actions and resources of the app; `None` until its hello or resume is accepted.
    manifest: Option<Manifest>,
    /// Our requests to the app, each with its purpose.
    calls: BTreeMap<OutboundId, Purpose>,
    /// The app's input requests that were passed on to the agent, with their keys in the agent's session.
    inputs: BTreeMap<InputKey, InputKey>,
    /// The URIs of the agent's subscriptions that are still to be renewed after a resume.
    renewals: VecDeque<Text>,
    /// The number of calls in flight that renew subscriptions.
    renewing: usize,
}

/// The maximum number of subscriptions that are renewed at the same time, so that they use only a small part of the limits on calls and
/// output.
const MAX_RENEWALS: usize = 16;

impl App {
    pub(super) fn new(session: Session) -> Self {
        Self { session, manifest: None, calls: BTreeMap::new(), inputs: BTreeMap::new(), renewals: VecDeque::new(), renewing: 0 }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The session, for what a bridge does on every leg: pass in frames, the time and the end of the transport, and poll output.
    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.session.poll_event()
    }

    pub(super) fn close(&mut self, how: Close, now: Instant) {
        self.session.close(how, now);
    }

    // ---- The handshake, the claim and lists ----

    /// Returns `true` once the app's hello or resume was accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.manifest.is_some()
    }

    /// The actions and resources of the app; `None` until its hello or resume is accepted.
    pub(super) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The id of the app; `None` until its hello or resume is accepted.
    pub(super) fn name(&self) -> Option<&str> {
        self.session.peer().map(|peer| &*peer.identity.name)
    }

    /// Accepts the app's hello or resume.
    pub(super) fn accept(&mut self, manifest: Manifest, welcome: Welcome, now: Instant) {
        self.manifest = Some(manifest);
        // An error means that the session is closing.
        let _ = self.session.welcome(Ok(welcome), now);
    }

    /// Refuses the app's hello or resume.
    pub(super) fn refuse(&mut self, error: RpcError, now: Instant) {
        // An error means that the session is closing.
        let _ = self.session.welcome(Err(error), now);
    }

    /// Records in the session that `agent` has claimed the app at the time `at`, in milliseconds since 1970.
    pub(super) fn claim(&mut self, agent: &AgentProfile, at: u64, now: Instant) {
        // An error means that the session is closing. `Event::Closed` follows.
        let _ = self.session.claim(agent.identity().clone(), agent.capabilities(), at, now);
    }

    /// Replaces the app's actions. No effect before the app was accepted.
    pub(super) fn set_actions(&mut self, list: &Json) {
        if let Some(manifest) = &mut self.manifest {
            manifest.set_actions(list);
        }
    }

    /// Replaces the app's resources. No effect before the app was accepted.
    pub(super) fn set_resources(&mut self, list: &Json) {
        if let Some(manifest) = &mut self.manifest {
            manifest.set_resources(list);
        }
    }

    // ---- Calls ----

    /// Makes a call.
    pub(super) fn start_call(&mut self, call: Invoke, purpose: Purpose, now: Instant) -> Result<OutboundId, SendError> {
        let id = self.session.invoke(call, now).map_err(|refused| refused.why)?;
        self.renewing = self.renewing.saturating_add(usize::from(purpose.is_renewal()));
        self.calls.insert(id, purpose);
        Ok(id)
    }

    /// The agent's call that our call `id` serves, if it serves exactly one.
    pub(super) fn invocation(&self, id: OutboundId) -> Option<InboundId> {
        self.calls.get(&id)?.invocation()
    }

    /// Removes a call that has ended.
    pub(super) fn end_call(&mut self, id: OutboundId) -> Option<Purpose> {
        let purpose = self.calls.remove(&id)?;
        self.renewing = self.renewing.saturating_sub(usize::from(purpose.is_renewal()));
        Some(purpose)
    }

    /// Cancels a call, which stays in the table until it ends.
    pub(super) fn cancel_call(&mut self, id: OutboundId, reason: Option<&str>, now: Instant) {
        let _ = self.session.cancel(id, reason, now);
    }

    // ---- Renewed subscriptions ----

    /// Adds subscriptions to renew.
    pub(super) fn queue_renewals(&mut self, uris: impl IntoIterator<Item = Text>) {
        self.renewals.extend(uris);
    }

    pub(super) fn has_queued_renewals(&self) -> bool {
        !self.renewals.is_empty()
    }

    /// The next subscription to renew, if fewer than [`MAX_RENEWALS`] are in flight.
    pub(super) fn next_renewal(&mut self) -> Option<Text> {
        if self.renewing < MAX_RENEWALS { self.renewals.pop_front() } else { None }
    }

    /// Puts back a subscription for whose renewal the session had no room.
    pub(super) fn put_renewal_back(&mut self, uri: Text) {
        self.renewals.push_front(uri);
    }

    // ---- Input requests ----

    /// Records that the app's input request `key` is open in the agent's session under the key `at_agent`.
    pub(super) fn open_input(&mut self, key: InputKey, at_agent: InputKey) {
        self.inputs.insert(key, at_agent);
    }

    /// Removes an input request of the app. Returns its key in the agent's session, if it is open there.
    pub(super) fn withdraw_input(&mut self, key: InputKey) -> Option<InputKey> {
        self.inputs.remove(&key)
    }

    pub(super) fn answer_input(&mut self, key: InputKey, answer: InputResponse, now: Instant) {
        self.inputs.remove(&key);
        // An error means that the input request no longer needs an answer, for example because the app has withdrawn it.
        let _ = self.session.provide_input(key, answer, now);
    }
}
