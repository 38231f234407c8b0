//! One app, as the bridge keeps it: its session, what it has, and what is open between it and the agent.
//!
//! ```text
//!            take_in                 claim, if it was not claimed before
//!   Dialled ---------> Taken in ------------------------------------------> Claimed
//!      | refuse
//!      v
//!   (its session closes)
//! ```
//!
//! The session knows whether it is claimed. Each call and each question is here from its start to its end, whatever the state.

use alloc::collections::{BTreeMap, VecDeque};

use super::manifest::Manifest;
use super::speaks_for::SpeaksFor;
use super::translate::Purpose;
use protocol_core::dialect::Answer;
use protocol_core::dialect::tesseron::Welcome;
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};
use protocol_core::session::{Close, Event, InboundId, InputKey, Invoke, OutboundId, Refused, Session};
use protocol_core::time::Instant;

/// One app, from the dial to the end of its session.
pub(super) struct App {
    session: Session,
    /// Its actions and resources, once it was accepted.
    manifest: Option<Manifest>,
    /// Our requests to it, each with its purpose.
    calls: BTreeMap<OutboundId, Purpose>,
    /// Its questions that are open at the agent, with their names there.
    questions: BTreeMap<InputKey, InputKey>,
    /// The uris that the agent watches there and that are still to be subscribed to again.
    renewals: VecDeque<Text>,
    /// The number of its calls that do so.
    renewing: usize,
}

/// So many of its subscriptions an app is asked for again at once: few of the calls that it may have, and of what it may have to read.
const RENEWALS: usize = 16;

impl App {
    pub(super) fn new(session: Session) -> Self {
        Self { session, manifest: None, calls: BTreeMap::new(), questions: BTreeMap::new(), renewals: VecDeque::new(), renewing: 0 }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The session, for the verbs that every leg has: frames, the end, time, output.
    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.session.poll_event()
    }

    pub(super) fn close(&mut self, how: Close, now: Instant) {
        self.session.close(how, now);
    }

    // ---- Who it is ----

    pub(super) fn is_taken_in(&self) -> bool {
        self.manifest.is_some()
    }

    /// Its actions and resources, once it was accepted.
    pub(super) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The name that it gives itself.
    pub(super) fn name(&self) -> Option<&str> {
        self.session.peer().map(|peer| &*peer.identity.name)
    }

    /// Answers its greeting.
    pub(super) fn take_in(&mut self, manifest: Manifest, welcome: Welcome, now: Instant) {
        self.manifest = Some(manifest);
        // A greeting that waits can be answered.
        let _ = self.session.welcome(Ok(welcome), now);
    }

    /// Turns its greeting down.
    pub(super) fn refuse(&mut self, error: RpcError, now: Instant) {
        // A greeting that waits can be answered.
        let _ = self.session.welcome(Err(error), now);
    }

    /// Tells it who has claimed it, and when, in milliseconds of the epoch.
    pub(super) fn claim(&mut self, agent: &SpeaksFor, at: u64, now: Instant) {
        // Only one that is about to go hears no claim, and it is missed when its end comes.
        let _ = self.session.claim(agent.identity().clone(), agent.capabilities(), at, now);
    }

    /// Takes its new actions; before it was taken in it has none.
    pub(super) fn set_actions(&mut self, list: &Json) {
        if let Some(manifest) = &mut self.manifest {
            manifest.set_actions(list);
        }
    }

    /// Takes its new resources; before it was taken in it has none.
    pub(super) fn set_resources(&mut self, list: &Json) {
        if let Some(manifest) = &mut self.manifest {
            manifest.set_resources(list);
        }
    }

    // ---- Calls ----

    /// Asks something of it.
    pub(super) fn start_call(&mut self, call: Invoke, purpose: Purpose, now: Instant) -> Result<OutboundId, Refused> {
        let id = self.session.invoke(call, now).map_err(|refused| refused.why)?;
        self.renewing = self.renewing.saturating_add(usize::from(purpose.is_renewal()));
        self.calls.insert(id, purpose);
        Ok(id)
    }

    /// The one invocation of the agent that waits for a call.
    pub(super) fn invocation(&self, id: OutboundId) -> Option<InboundId> {
        self.calls.get(&id)?.invocation()
    }

    /// Takes a call out that has ended.
    pub(super) fn end_call(&mut self, id: OutboundId) -> Option<Purpose> {
        let purpose = self.calls.remove(&id)?;
        self.renewing = self.renewing.saturating_sub(usize::from(purpose.is_renewal()));
        Some(purpose)
    }

    /// Tells it that a call is given up. The call stays in the table until it ends.
    pub(super) fn cancel_call(&mut self, id: OutboundId, reason: Option<&str>, now: Instant) {
        let _ = self.session.cancel(id, reason, now);
    }

    // ---- Subscriptions of before ----

    /// Keeps what it is to be asked for again.
    pub(super) fn keep_renewals(&mut self, uris: impl IntoIterator<Item = Text>) {
        self.renewals.extend(uris);
    }

    pub(super) fn keeps_renewals(&self) -> bool {
        !self.renewals.is_empty()
    }

    /// The next one, if it may be asked now.
    pub(super) fn next_renewal(&mut self) -> Option<Text> {
        if self.renewing < RENEWALS { self.renewals.pop_front() } else { None }
    }

    /// It had no room for this one.
    pub(super) fn put_renewal_back(&mut self, uri: Text) {
        self.renewals.push_front(uri);
    }

    // ---- Questions ----

    /// Its question `key` is open at the agent, where it is called `at_agent`.
    pub(super) fn open_question(&mut self, key: InputKey, at_agent: InputKey) {
        self.questions.insert(key, at_agent);
    }

    /// It does not ask any longer. Gives what the question is called at the agent, if it is open there.
    pub(super) fn withdraw_question(&mut self, key: InputKey) -> Option<InputKey> {
        self.questions.remove(&key)
    }

    pub(super) fn answer_question(&mut self, key: InputKey, answer: Answer, now: Instant) {
        self.questions.remove(&key);
        // It may have lost interest meanwhile.
        let _ = self.session.provide_input(key, answer, now);
    }
}
