//! The handle on the other end of the channel.

mod call;

pub use call::{Call, Canceller};

use core::cell::Cell;
use core::fmt;
use core::hash::{Hash as _, Hasher as _};
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::DefaultHasher;
use std::string::{String, ToString as _};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::resource_contents::ResourceContents;
use crate::state::{CallError, CallSlot, Counters, ListFailed, Shared, Span, State};
use engine::VerbEffects;
use protocol_core::dialect::mcp::Era;
use protocol_core::dialect::{
    Capabilities, Completion, CompletionRequest, Identity, Level, LogRecord, Notification, Page, PeerInfo, PromptInfo,
    PromptResult, ResourceInfo, ResourceTemplateInfo, ToolInfo,
};
use protocol_core::error::RpcError;
use protocol_core::json::write::write_value;
use protocol_core::json::{Json, JsonError, Text};
use protocol_core::session::{Close, CloseReason, Invoke, InvokeError, Logged, OutboundId, PendingInput, SendError, Stats};
use protocol_core::time::Instant;

/// A handle on the peer of an endpoint: calls it, notifies it, and closes the session. Cloneable; dropping it has no effect.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

impl Peer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Starts a call. Calls are sent in the order in which they are made, and not before the handshake is done.
    ///
    /// A call is normally written by the next turn of the driver, together with others. If no other call is open, it may be written before
    /// this method returns; in that case the method itself writes to the transport. See [`drive`](crate::drive).
    ///
    /// # Errors
    /// [`InvokeError`], which returns the call and the reason ([`SendError`]): for example, the session is closing, too many calls are in
    /// flight, or the peer has not declared the capability for this kind of call.
    pub fn call(&self, call: Invoke) -> Result<Call, InvokeError> {
        self.begin(Span::call(&call), |state, now, effects| {
            let depth = call.parent.and_then(|key| state.input_requests.get(&key)).map_or(0, |input_request| input_request.depth);
            // A call is alone if no other is open. Detached calls count as open. So do ended calls whose outcomes are unread: if several
            // calls ended in one turn, often each is followed by another call, and these should be written together.
            let is_alone = state.calls.is_empty() && !state.session.has_calls();
            let id = state.session.invoke(call, now)?;
            effects.output_alone(is_alone);
            Ok((id, depth))
        })
    }

    /// Continues a call that was kept between two rounds of input requests ([`Call::pending_input`]), in this process or another one, with
    /// the same server (MCP 2026-07-28). The [`Client`](crate::Client) of this end is asked for the answers that are missing, and the call
    /// goes on. Its time limits are those of [`Timeouts::call`](protocol_core::Timeouts::call), and begin now.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent. See [`Session::resume_input`](protocol_core::Session::resume_input).
    pub fn resume_input(&self, pending: &PendingInput) -> Result<Call, SendError> {
        let call = pending.call();
        let (span, depth) = call.map(|call| (Span::call(&call), call.depth)).unwrap_or_default();
        self.begin(span, |state, now, effects| {
            let id = state.session.resume_input(pending, now)?;
            effects.output();
            Ok((id, depth))
        })
    }

    /// Begins a call with `begin`, which returns its id and its sampling depth.
    fn begin<E>(
        &self,
        span: Span,
        begin: impl FnOnce(&mut State, Instant, &mut VerbEffects) -> Result<(OutboundId, u8), E>,
    ) -> Result<Call, E> {
        // The span is moved into the slot of the call once the call is made. Otherwise it is dropped outside of the lock.
        let mut unused = Some(span.clone());
        let (id, depth) = self.shared.verb(|state, now, effects| {
            let (id, depth) = begin(state, now, effects)?;
            state.calls.insert(id, CallSlot { span: unused.take().unwrap_or_default(), ..CallSlot::default() });
            Ok((id, depth))
        })?;
        span.made(id, depth);
        Ok(Call::new(Arc::clone(&self.shared), id))
    }

    /// Starts the call of a tool. `arguments` is an object.
    ///
    /// # Errors
    /// As for [`Peer::call`]; [`SendError::Params`] if `arguments` is not an object.
    pub fn call_tool(&self, name: &str, arguments: Json) -> Result<Call, InvokeError> {
        self.call(Invoke::call_tool(name, arguments))
    }

    /// Starts the call of a tool with arguments of any type that serializes to an object: a struct with named fields, or a map.
    ///
    /// # Errors
    /// As for [`Peer::call_tool`]; [`CallError::Unwritable`] if the arguments cannot be serialized.
    pub fn call_tool_with(&self, name: &str, arguments: &(impl Serialize + ?Sized)) -> Result<Call, CallError> {
        match encode(arguments) {
            Ok(arguments) => Ok(self.call_tool(name, arguments)?),
            Err(error) => Err(CallError::Unwritable(error.to_string())),
        }
    }

    /// Calls a tool as [`call_tool_with`](Self::call_tool_with) does, waits for its outcome, and decodes its result as a `T`
    /// ([`CallOutcome::tool_as`](crate::CallOutcome::tool_as)).
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
    /// Not cancel safe: dropping the future cancels the call.
    ///
    /// # Errors
    /// [`CallError`] as for [`Peer::call_tool_with`] and [`CallOutcome::tool_as`](crate::CallOutcome::tool_as).
    pub async fn call_tool_as<T: DeserializeOwned + JsonSchema + 'static>(
        &self,
        name: &str,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<T, CallError> {
        self.call_tool_with(name, arguments)?.await.tool_as()
    }

    /// Waits until the session is ready: one end has answered the handshake request of the other or, at a client whose server needs no
    /// handshake, the server has named its revisions. Returns immediately if the session is ready already. At a server whose callers make
    /// no handshake this method only returns when the session closes.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    ///
    /// # Errors
    /// The reason for which the session has closed, even if it closed after the handshake.
    pub async fn ready(&self) -> Result<PeerInfo, CloseReason> {
        self.wait(|state| match state.closed {
            Some(reason) => Some(Err(reason)),
            None if state.ready => state.session.peer().cloned().map(Ok),
            None => None,
        })
        .await
    }

    /// The peer and its capabilities now; `None` before the session is ready ([`Peer::ready`]).
    #[must_use]
    pub fn info(&self) -> Option<PeerInfo> {
        self.shared.with_state(|state| state.session.peer().cloned())
    }

    /// The era of MCP that this client has chosen for its server. `None` until it has chosen, and at an end that is no MCP client. A client
    /// that connects to the same server again needs no `server/discover` if it sets this as [`Config::era`](protocol_core::Config::era).
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.shared.with_state(|state| state.session.era())
    }

    /// Waits until the session is closed, and returns the reason.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and it can be called again at any time.
    pub async fn closed(&self) -> CloseReason {
        self.wait(|state| state.closed).await
    }

    /// The error with which the peer refused our handshake ([`CloseReason::HandshakeRefused`]) or our request for its revisions
    /// ([`CloseReason::ProbeRefused`], [`CloseReason::VersionMismatch`]); `None` if it did not.
    #[must_use]
    pub fn refusal(&self) -> Option<RpcError> {
        self.shared.with_state(|state| state.refusal.clone())
    }

    /// Closes the session, gracefully or at once. No effect if it is closed.
    pub fn close(&self, how: Close) {
        self.shared.verb(|state, now, effects| {
            state.session.close(how, now);
            effects.output();
        });
    }

    /// Sends a notification that belongs to no call.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn notify(&self, notification: Notification) -> Result<(), SendError> {
        self.shared.verb(|state, now, effects| {
            let sent = state.session.notify(notification, now);
            if sent.is_ok() {
                effects.output();
            }
            sent
        })
    }

    /// Notifies each subscription of this session to the resource `uri` of a change, on Tesseron with the new value. For all sessions of a
    /// service use [`Updates`](crate::Updates). Returns the number of notified subscriptions. If the queue has no room, a subscription of a
    /// peer with a handshake is left out and not counted; the notification to a subscription of MCP 2026-07-28 waits for room.
    pub fn update(&self, uri: &str, value: &Json) -> usize {
        self.shared.verb(|state, now, effects| {
            let subscribed = state.subscriptions.to(uri).into_iter();
            let notified = subscribed.filter_map(|(subscription, uri)| {
                state.session.notify(Notification::ResourceValue { subscription, uri, value: value.clone() }, now).ok()
            });
            let notified = notified.count();
            let notified = notified.saturating_add(state.session.publish(&Notification::ResourceUpdated { uri: uri.into() }, now));
            if notified > 0 {
                effects.output();
            }
            notified
        })
    }

    /// Copies the subscriptions of the session `before` to this one. For a Tesseron app that resumes a session on a new channel, since not
    /// every gateway subscribes again then. If the gateway does subscribe again, its new subscription replaces the copied one.
    ///
    /// This method may be called at any time, and more than once. Subscriptions beyond the limit
    /// ([`Limits::in_flight`](protocol_core::Limits::in_flight)) are left out.
    pub fn carry_over(&self, before: &Self) {
        let subscriptions = before.shared.with_state(|state| state.subscriptions.all());
        self.shared.with_state(|state| {
            let max = state.session.config().limits.in_flight;
            state.subscriptions.carry_over(subscriptions, max);
        });
    }

    /// For a Tesseron gateway: notifies the app that `agent` has claimed it. From now on the actions of the app may be called.
    ///
    /// # Errors
    /// As for [`Session::claim`](protocol_core::Session::claim).
    pub fn claim(&self, agent: Identity, capabilities: Capabilities, at_millis: u64) -> Result<(), SendError> {
        self.shared.verb(|state, now, effects| {
            let claimed = state.session.claim(agent, capabilities, at_millis, now);
            if claimed.is_ok() {
                effects.output();
            }
            claimed
        })
    }

    /// Sends a log record that belongs to no call. This method never fails and never waits. A record below the level that the peer has set
    /// is dropped, and so is every record to a peer that sends only stateless requests. If the queue has no room, older records are dropped
    /// or, if that is not enough, this one.
    pub fn log(&self, record: LogRecord) {
        self.shared.verb(|state, now, effects| {
            if state.session.log(None, record, now) == Ok(Logged::Sent) {
                effects.output();
            }
        });
    }

    /// The counters of the session, now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.with_state(|state| state.session.stats())
    }

    /// The counters of the endpoint, now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.with_state(|state| state.counters)
    }

    /// Lists all tools of the peer, from all pages of its list. Entries without a name are left out and counted
    /// ([`Counters::entries_dropped`]).
    ///
    /// # Cancel safety
    /// Not cancel safe: the request for the current page is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`ListFailed`] with the [`CallError`] of the first page that fails; [`CallError::Unreadable`] if there are more than 1000 pages, or
    /// a cursor is repeated.
    pub async fn list_tools(&self) -> Result<Vec<ToolInfo>, ListFailed<ToolInfo>> {
        self.list(Invoke::list_tools, ToolInfo::read).await
    }

    /// Lists all prompts of the peer, from all pages of its list. Entries without a name are left out and counted
    /// ([`Counters::entries_dropped`]).
    ///
    /// # Cancel safety
    /// Not cancel safe: the request for the current page is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`ListFailed`] with the [`CallError`] of the first page that fails; [`CallError::Unreadable`] if there are more than 1000 pages, or
    /// a cursor is repeated.
    pub async fn list_prompts(&self) -> Result<Vec<PromptInfo>, ListFailed<PromptInfo>> {
        self.list(Invoke::list_prompts, PromptInfo::read).await
    }

    /// Lists all resources of the peer, from all pages of its list. Entries without a URI are left out and counted
    /// ([`Counters::entries_dropped`]).
    ///
    /// # Cancel safety
    /// Not cancel safe: the request for the current page is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`ListFailed`] with the [`CallError`] of the first page that fails; [`CallError::Unreadable`] if there are more than 1000 pages, or
    /// a cursor is repeated.
    pub async fn list_resources(&self) -> Result<Vec<ResourceInfo>, ListFailed<ResourceInfo>> {
        self.list(Invoke::list_resources, ResourceInfo::read).await
    }

    /// Lists all resource templates of the peer, from all pages of its list. Entries without a template are left out and
    /// counted ([`Counters::entries_dropped`]).
    ///
    /// # Cancel safety
    /// Not cancel safe: the request for the current page is cancelled, and the pages that were read are lost.
    ///
    /// # Errors
    /// [`ListFailed`] with the [`CallError`] of the first page that fails; [`CallError::Unreadable`] if there are more than 1000 pages, or
    /// a cursor is repeated.
    pub async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplateInfo>, ListFailed<ResourceTemplateInfo>> {
        self.list(Invoke::list_resource_templates, ResourceTemplateInfo::read).await
    }

    /// Starts the call of a prompt (MCP `prompts/get`). Its result is an object with `messages` and perhaps a `description`.
    ///
    /// # Errors
    /// As for [`Peer::call`].
    pub fn get_prompt(&self, name: &str, arguments: &BTreeMap<String, String>) -> Result<Call, InvokeError> {
        self.call(get_prompt(name, arguments))
    }

    /// Gets a prompt, and reads its result.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request is cancelled.
    ///
    /// # Errors
    /// [`CallError`] if the peer answers with an error, or not at all; [`CallError::Unreadable`] if the result has no list of messages.
    pub async fn prompt(&self, name: &str, arguments: &BTreeMap<String, String>) -> Result<PromptResult, CallError> {
        let result = self.get_prompt(name, arguments)?.await.result()?;
        PromptResult::read(&result).ok_or_else(|| CallError::Unreadable("the prompt has no list of messages".into()))
    }

    /// Reads a resource of an MCP server: its contents, usually one.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request is cancelled.
    ///
    /// # Errors
    /// [`CallError`] if the peer answers with an error, or not at all; [`CallError::Unreadable`] if the result has no contents of text or
    /// bytes.
    pub async fn resource(&self, uri: &str) -> Result<Vec<ResourceContents>, CallError> {
        #[derive(Deserialize)]
        struct Read {
            contents: Vec<ResourceContents>,
        }
        let result = self.read_resource(uri)?.await.result()?;
        result.decode::<Read>().map(|read| read.contents).map_err(|why| CallError::Unreadable(why.to_string()))
    }

    /// Asks for the values that an argument of a prompt, or a variable of a resource template, may have (MCP `completion/complete`).
    ///
    /// # Cancel safety
    /// Cancel safe: the request is cancelled, which has no effect at either end.
    ///
    /// # Errors
    /// [`CallError`] if the peer answers with an error, or not at all; [`CallError::Unreadable`] if the result has no values.
    pub async fn complete(&self, request: CompletionRequest) -> Result<Completion, CallError> {
        let result = self.call(Invoke::complete(request))?.await.result()?;
        Completion::read(&result).map_err(|why| CallError::Unreadable(why.to_string()))
    }

    /// Starts to read a resource (MCP `resources/read`). Its result is an object with `contents`.
    ///
    /// # Errors
    /// As for [`Peer::call`].
    pub fn read_resource(&self, uri: &str) -> Result<Call, InvokeError> {
        self.call(Invoke::read_resource(uri))
    }

    /// Subscribes to a resource: [`Client::notification`](crate::Client::notification) receives its changes from now on. Where requests are
    /// stateless, the peer may end the subscription before the connection ends
    /// ([`Notification::SubscriptionEnded`](protocol_core::Notification::SubscriptionEnded)).
    ///
    /// # Cancel safety
    /// Not cancel safe: the request is cancelled, but the peer may have made the subscription already.
    ///
    /// # Errors
    /// [`CallError`] if the peer answers with an error, does not offer subscriptions to this resource, or does not answer at all.
    pub async fn subscribe(&self, uri: &str) -> Result<(), CallError> {
        self.call(Invoke::subscribe(uri))?.await.result().map(drop)
    }

    /// Ends a subscription to a resource.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request is cancelled, but the peer may have ended the subscription already.
    ///
    /// # Errors
    /// As for [`Peer::subscribe`].
    pub async fn unsubscribe(&self, uri: &str) -> Result<(), CallError> {
        self.call(Invoke::unsubscribe(uri))?.await.result().map(drop)
    }

    /// Sets the minimum level of the log records that the peer sends: by a request (MCP `logging/setLevel`), or, where requests are
    /// stateless, in every later request.
    ///
    /// # Cancel safety
    /// Not cancel safe: the request is cancelled, but the peer may have set the level already.
    ///
    /// # Errors
    /// [`CallError`] if the peer answers with an error, or not at all.
    pub async fn set_log_level(&self, level: Level) -> Result<(), CallError> {
        self.call(Invoke::set_log_level(level))?.await.result().map(drop)
    }

    /// Sends a ping and waits for its answer.
    ///
    /// # Cancel safety
    /// Cancel safe: the ping is cancelled, which has no effect at either end.
    ///
    /// # Errors
    /// [`CallError`] if no answer comes in time, or the answer is an error.
    pub async fn ping(&self) -> Result<(), CallError> {
        self.call(Invoke::ping())?.await.result().map(drop)
    }

    /// The number of handlers that have not ended.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn running(&self) -> usize {
        self.shared.with_state(|state| state.served_calls.len())
    }

    /// Starts to record the checkpoints of handlers.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn record_checkpoints(&self) {
        self.shared.with_state(|state| state.checkpoints = Some(Vec::new()));
    }

    /// The recorded checkpoints, in order.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn checkpoints(&self) -> Vec<(Instant, Json)> {
        self.shared.with_state(|state| state.checkpoints.clone().unwrap_or_default())
    }

    fn wait<T, L: Fn(&State) -> Option<T> + Unpin>(&self, find: L) -> ChangeWait<'_, L> {
        ChangeWait { shared: &self.shared, find, waiter: None }
    }

    /// Requests all pages of a list.
    async fn list<T>(&self, page_from: fn(Option<Text>) -> Invoke, read: fn(Json) -> Option<T>) -> Result<Vec<T>, ListFailed<T>> {
        let mut items = Vec::new();
        match self.list_into(&mut items, page_from, read).await {
            Ok(()) => Ok(items),
            Err(why) => Err(ListFailed { items, why }),
        }
    }

    async fn list_into<T>(
        &self,
        items: &mut Vec<T>,
        page_from: fn(Option<Text>) -> Invoke,
        read: fn(Json) -> Option<T>,
    ) -> Result<(), CallError> {
        let (mut cursor, mut cursors) = (None, BTreeSet::new());
        for _ in 0..MAX_PAGES {
            let call = page_from(cursor);
            let op = call.op();
            let result = self.call(call)?.await.result()?;
            let page = Page::read(op, &result).map_err(|why| CallError::Unreadable(why.to_string()))?;
            let (before, entries) = (items.len(), page.items.len());
            items.extend(page.items.into_iter().filter_map(read));
            let dropped = entries.saturating_sub(items.len().saturating_sub(before));
            self.shared.with_state(|state| {
                let counter = &mut state.counters.entries_dropped;
                *counter = counter.saturating_add(u64::try_from(dropped).unwrap_or(u64::MAX));
            });
            let Some(next) = page.next else { return Ok(()) };
            // The hash is enough: a peer that makes two of them equal cuts its own list short.
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if !cursors.insert(hasher.finish()) {
                let shown: String = next.chars().take(SHOWN_CURSOR).collect();
                return Err(CallError::Unreadable(format!("the list never ends: its cursor {shown:?} is repeated")));
            }
            cursor = Some(next);
        }
        Err(CallError::Unreadable(format!("the list has more than {MAX_PAGES} pages")))
    }
}

/// The maximum number of pages of a list. There is a maximum, since a faulty peer may return cursors without end.
const MAX_PAGES: usize = 1000;

/// The maximum number of characters of a cursor in an error.
const SHOWN_CURSOR: usize = 100;

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

pub(crate) fn get_prompt(name: &str, arguments: &BTreeMap<String, String>) -> Invoke {
    Invoke::get_prompt(name, Json::encode(arguments).unwrap_or_default())
}

std::thread_local! {
    /// A buffer to serialize arguments into, so that their JSON is then allocated once, with its exact length.
    static DRAFT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn encode(value: &(impl Serialize + ?Sized)) -> Result<Json, JsonError> {
    /// The capacity of the buffer that a thread keeps, in bytes.
    const KEPT: usize = 4 * 1024;
    // Taken and not borrowed, since the serialization of the arguments may itself call a tool. At the end of a thread the buffer may have
    // been destroyed already.
    let mut draft = DRAFT.try_with(Cell::take).unwrap_or_default();
    let written = write_value(&mut draft, value).map(|()| match draft.len() > KEPT {
        // For long arguments, the buffer itself becomes the JSON.
        true => Json::written(core::mem::take(&mut draft)),
        false => Json::written(draft.to_vec()),
    });
    draft.clear();
    draft.shrink_to(KEPT);
    let _ = DRAFT.try_with(|cell| cell.set(draft));
    written
}

/// Waits until `find`, which is called at each poll, returns a value. The task is woken when the session becomes ready and when it closes.
struct ChangeWait<'a, L> {
    shared: &'a Shared,
    find: L,
    waiter: Option<u64>,
}

impl<T, L: Fn(&State) -> Option<T> + Unpin> Future for ChangeWait<'_, L> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut waker = Some(cx.waker().clone());
        this.shared.with_state(|state| match (this.find)(state) {
            Some(found) => Poll::Ready(found),
            None => {
                state.on_change.park(&mut this.waiter, &mut waker);
                Poll::Pending
            }
        })
    }
}

impl<L> Drop for ChangeWait<'_, L> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let waker = self.shared.with_state(|state| state.on_change.leave(waiter));
        drop(waker);
    }
}
