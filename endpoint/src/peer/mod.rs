//! The other end of the channel, as the holder of an endpoint sees it.

mod call;

pub use call::{Call, Canceller};

use core::cell::Cell;
use core::fmt;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::collections::BTreeMap;
use std::string::{String, ToString as _};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::diagnose::Span;
use crate::state::{CallError, CallSlot, Counters, Shared, State};
use protocol_core::dialect::{
    Capabilities, Identity, Level, LogRecord, Notice, Page, PeerInfo, PromptInfo, ResourceInfo, ResourceTemplateInfo, ToolInfo,
};
use protocol_core::error::RpcError;
use protocol_core::json::write::write_value;
use protocol_core::json::{Json, JsonError, Text};
use protocol_core::session::{Close, CloseReason, Invoke, InvokeError, Logged, Refused, Stats};
#[cfg(any(test, feature = "testing"))]
use protocol_core::time::Instant;

/// The other end of the channel. Cloneable; dropping it changes nothing.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

impl Peer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Starts a call. Calls leave in the order in which they are made, held back until the handshake is through. One beside which no other
    /// is held or on its way may do so before this returns, so this may write to the transport ([`drive`](crate::drive)); others
    /// leave together, with the next turn of the driver.
    ///
    /// # Errors
    /// [`InvokeError`] with the call: the session is closing, too much is in flight, or the peer does not offer it.
    pub fn call(&self, call: Invoke) -> Result<Call, InvokeError> {
        let span = Span::call(&call);
        // Handed over only when the call is made: a span that ends must not end under the lock.
        let mut place = Some(span.clone());
        let (id, depth) = self.shared.verb(|state, now, after| {
            let depth = call.parent.and_then(|key| state.questions.get(&key)).map_or(0, |question| question.depth);
            // Neither held, as those are that have ended together and will be followed by others, nor detached.
            let is_alone = state.calls.is_empty() && !state.session.has_calls();
            let id = state.session.invoke(call, now)?;
            after.output_alone(is_alone);
            state.calls.insert(id, CallSlot { span: place.take().unwrap_or_default(), ..CallSlot::default() });
            Ok::<_, InvokeError>((id, depth))
        })?;
        span.made(id, depth);
        Ok(Call::new(Arc::clone(&self.shared), id))
    }

    /// Starts a tool. `arguments` is an object.
    ///
    /// # Errors
    /// As for [`Peer::call`]; [`Refused::Params`] when `arguments` is no object.
    pub fn call_tool(&self, name: &str, arguments: Json) -> Result<Call, InvokeError> {
        self.call(Invoke::call_tool(name, arguments))
    }

    /// Starts a tool with arguments of a type of your own: a struct of named fields, a map, whatever becomes an object.
    ///
    /// # Errors
    /// As for [`Peer::call_tool`]; [`CallError::Unwritable`] when the arguments have no JSON.
    pub fn call_tool_with(&self, name: &str, arguments: &(impl Serialize + ?Sized)) -> Result<Call, CallError> {
        match encode(arguments) {
            Ok(arguments) => Ok(self.call_tool(name, arguments)?),
            Err(error) => Err(CallError::Unwritable(error.to_string())),
        }
    }

    /// Calls a tool with arguments of a type of your own, waits for its end, and reads its result as a `T` ([`CallOutcome::tool_as`](crate::CallOutcome::tool_as)).
    ///
    /// ```
    /// # async fn sum(peer: endpoint::Peer) -> Result<(), endpoint::CallError> {
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Sum {
    ///     sum: i64,
    /// }
    /// let Sum { sum } = peer.call_tool_as("add", &serde_json::json!({"a": 2, "b": 3})).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping it cancels the call.
    ///
    /// # Errors
    /// [`CallError`] as for [`Peer::call_tool_with`] and [`CallOutcome::tool_as`](crate::CallOutcome::tool_as).
    pub async fn call_tool_as<T: DeserializeOwned + JsonSchema>(
        &self,
        name: &str,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<T, CallError> {
        self.call_tool_with(name, arguments)?.await.tool_as()
    }

    /// Waits for the handshake.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    ///
    /// # Errors
    /// Why the session closed, if it has.
    pub async fn ready(&self) -> Result<PeerInfo, CloseReason> {
        self.wait(|state| match state.closed {
            Some(reason) => Some(Err(reason)),
            None if state.ready => state.session.peer().cloned().map(Ok),
            None => None,
        })
        .await
    }

    /// The peer and its capabilities now; `None` before the handshake.
    #[must_use]
    pub fn info(&self) -> Option<PeerInfo> {
        self.shared.look(|state| state.session.peer().cloned())
    }

    /// Waits for the end of the session.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    pub async fn closed(&self) -> CloseReason {
        self.wait(|state| state.closed).await
    }

    /// The error with which the peer refused our handshake; `None` unless it did ([`CloseReason::HandshakeRefused`]).
    #[must_use]
    pub fn refusal(&self) -> Option<RpcError> {
        self.shared.look(|state| state.refusal.clone())
    }

    /// Ends the session. Nothing happens when it has ended.
    pub fn close(&self, how: Close) {
        self.shared.verb(|state, now, after| {
            state.session.close(how, now);
            after.output();
        });
    }

    /// Tells news that belong to no call.
    ///
    /// # Errors
    /// [`Refused`]: nothing was sent.
    pub fn notify(&self, notice: Notice) -> Result<(), Refused> {
        self.shared.verb(|state, now, after| {
            let sent = state.session.notify(notice, now);
            if sent.is_ok() {
                after.output();
            }
            sent
        })
    }

    /// Tells everybody at the other end who has subscribed to the resource `uri` that it is `value` now, and says how many that were.
    /// Subscribers whose queue is full are left out: the next value tells more.
    pub fn update(&self, uri: &str, value: &Json) -> usize {
        self.shared.verb(|state, now, after| {
            let subscribed = state.subscriptions.to(uri).into_iter();
            let told = subscribed.filter_map(|(subscription, uri)| {
                state.session.notify(Notice::ResourceValue { subscription, uri, value: value.clone() }, now).ok()
            });
            let told = told.count();
            if told > 0 {
                after.output();
            }
            told
        })
    }

    /// Goes on with what the other end of the session `before` had subscribed to: for an app of Tesseron that resumes a session on a new
    /// channel, since not every gateway subscribes again. A gateway that does takes the place of what was carried over. It may be said
    /// at any time, and again; what finds no room ([`Limits::in_flight`](protocol_core::Limits::in_flight)) is left out.
    pub fn carry_over(&self, before: &Self) {
        let subscriptions = before.shared.look(|state| state.subscriptions.all());
        self.shared.look(|state| {
            let most = state.session.config().limits.in_flight;
            state.subscriptions.carry_over(subscriptions, most);
        });
    }

    /// Says that `agent` has claimed the session: from now on its actions may be called. For a gateway of Tesseron.
    ///
    /// # Errors
    /// As for [`Session::claim`](protocol_core::Session::claim).
    pub fn claim(&self, agent: Identity, capabilities: Capabilities, at_millis: u64) -> Result<(), Refused> {
        self.shared.verb(|state, now, after| {
            let claimed = state.session.claim(agent, capabilities, at_millis, now);
            if claimed.is_ok() {
                after.output();
            }
            claimed
        })
    }

    /// Sends a log record that belongs to no invocation. It never fails and never waits: what the peer does not want, or what
    /// finds no place, is left out.
    pub fn log(&self, record: LogRecord) {
        self.shared.verb(|state, now, after| {
            if state.session.log(None, record, now) == Ok(Logged::Sent) {
                after.output();
            }
        });
    }

    /// The counters of the session.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.look(|state| state.session.stats())
    }

    /// The counters of the endpoint.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.look(|state| state.counters)
    }

    /// Every tool of the peer, as it describes them. One without a name is left out.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request on its way is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_tools(&self) -> Result<Vec<ToolInfo>, CallError> {
        self.list(Invoke::list_tools, ToolInfo::read).await
    }

    /// Every prompt of the peer, as it describes them. One without a name is left out.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request on its way is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_prompts(&self) -> Result<Vec<PromptInfo>, CallError> {
        self.list(Invoke::list_prompts, PromptInfo::read).await
    }

    /// Every resource of the peer, as it describes them. One without a uri is left out.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request on its way is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_resources(&self) -> Result<Vec<ResourceInfo>, CallError> {
        self.list(Invoke::list_resources, ResourceInfo::read).await
    }

    /// Every resource template of the peer, as it describes them. One without a template is left out.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request on its way is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplateInfo>, CallError> {
        self.list(Invoke::list_resource_templates, ResourceTemplateInfo::read).await
    }

    /// Starts to get a prompt; its result has `description` and `messages`. A call, since a prompt may report progress.
    ///
    /// # Errors
    /// As for [`Peer::call`].
    pub fn get_prompt(&self, name: &str, arguments: &BTreeMap<String, String>) -> Result<Call, InvokeError> {
        self.call(get_prompt(name, arguments))
    }

    /// Starts to read a resource; its result has `contents`.
    ///
    /// # Errors
    /// As for [`Peer::call`].
    pub fn read_resource(&self, uri: &str) -> Result<Call, InvokeError> {
        self.call(Invoke::read_resource(uri))
    }

    /// Sets the least severe log record that the peer sends.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request is cancelled, and the peer may have set the level or not.
    ///
    /// # Errors
    /// [`CallError`] if the peer does not agree.
    pub async fn set_log_level(&self, level: Level) -> Result<(), CallError> {
        self.call(Invoke::set_log_level(level))?.await.result().map(drop)
    }

    /// Asks the peer for a sign of life.
    ///
    /// # Cancel safety
    /// Cancel safe: the ping is cancelled, which changes nothing at either end.
    ///
    /// # Errors
    /// [`CallError`] if there is no answer in time.
    pub async fn ping(&self) -> Result<(), CallError> {
        self.call(Invoke::ping())?.await.result().map(drop)
    }

    /// Handlers of ours that have not ended.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn running(&self) -> usize {
        self.shared.look(|state| state.serves.len())
    }

    /// From now on remembers what handlers deposit with their checkpoints.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn record_checkpoints(&self) {
        self.shared.look(|state| state.checkpoints = Some(Vec::new()));
    }

    /// The checkpoints that handlers deposited since they are recorded, in order.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn checkpoints(&self) -> Vec<(Instant, Json)> {
        self.shared.look(|state| state.checkpoints.clone().unwrap_or_default())
    }

    fn wait<T, L: Fn(&State) -> Option<T> + Unpin>(&self, look: L) -> ChangeWait<'_, L> {
        ChangeWait { shared: &self.shared, look, place: None }
    }

    /// All pages of a list. An entry that has no name is left out: it could not be asked for.
    async fn list<T>(&self, page_from: fn(Option<Text>) -> Invoke, read: fn(Json) -> Option<T>) -> Result<Vec<T>, CallError> {
        let mut items = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES {
            let call = page_from(cursor);
            let op = call.op();
            let result = self.call(call)?.await.result()?;
            let page = Page::read(op, &result).map_err(|why| CallError::Unreadable(why.to_string()))?;
            items.extend(page.items.into_iter().filter_map(read));
            cursor = page.next;
            if cursor.is_none() {
                return Ok(items);
            }
        }
        Err(CallError::Unreadable(format!("the list has more than {PAGES} pages")))
    }
}

/// More pages than any list has: a peer that hands out cursors for ever is not followed for ever.
const PAGES: usize = 1000;

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

pub(crate) fn get_prompt(name: &str, arguments: &BTreeMap<String, String>) -> Invoke {
    Invoke::get_prompt(name, Json::encode(arguments).unwrap_or_default())
}

std::thread_local! {
    /// A buffer for arguments whose length is not known before: with exact room, they cost one allocation.
    static DRAFT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn encode(value: &(impl Serialize + ?Sized)) -> Result<Json, JsonError> {
    /// Bytes of room for long arguments that a thread keeps.
    const KEPT: usize = 4 * 1024;
    // Taken, since arguments may have code that calls a tool; and at the end of a thread it may be gone.
    let mut draft = DRAFT.try_with(Cell::take).unwrap_or_default();
    let written = write_value(&mut draft, value).map(|()| Json::written(draft.to_vec()));
    draft.clear();
    draft.shrink_to(KEPT);
    let _ = DRAFT.try_with(|place| place.set(draft));
    written
}

/// Waits until `look` finds what it looks for, which a handshake or an end may bring.
struct ChangeWait<'a, L> {
    shared: &'a Shared,
    look: L,
    place: Option<u64>,
}

impl<T, L: Fn(&State) -> Option<T> + Unpin> Future for ChangeWait<'_, L> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut spare = None;
        loop {
            let seen = this.shared.look(|state| match (this.look)(state) {
                Some(found) => Ok(found),
                None => Err(state.on_change.park(&mut this.place, cx.waker(), &mut spare)),
            });
            match seen {
                Ok(found) => return Poll::Ready(found),
                Err(true) => return Poll::Pending,
                Err(false) => spare = Some(cx.waker().clone()),
            }
        }
    }
}

impl<L> Drop for ChangeWait<'_, L> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker = self.shared.look(|state| state.on_change.leave(place));
        drop(waker);
    }
}
