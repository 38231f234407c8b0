//! The other end of the channel, as the holder of an endpoint sees it.

mod call;

pub use call::Call;

use core::cell::Cell;
use core::fmt;
use core::pin::Pin;
use core::task::{Context as TaskContext, Poll};
use std::collections::BTreeMap;
use std::string::{String, ToString as _};
use std::sync::Arc;

use serde::Serialize;

use crate::state::diagnose::Span;
use crate::state::{CallError, CallSlot, Counters, Shared, State};
use protocol_core::dialect::{Capabilities, Identity, Level, LogRecord, Notice, Op, PeerInfo};
use protocol_core::error::RpcError;
use protocol_core::json::write::{write_string, write_value};
use protocol_core::json::{Json, JsonError};
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
        let span = Span::call(&call.op, &call.params);
        // Handed over only when the call is made: a span that ends must not end under the lock.
        let mut place = Some(span.clone());
        // Its clocks start when it leaves: a look at a clock takes longer than most of this.
        let (id, depth) = self.shared.quick_verb(
            |_| false,
            |state, _, after| {
                let depth = call.parent.and_then(|key| state.questions.get(&key)).map_or(0, |question| question.depth);
                // Neither held, as those are that have ended together and will be followed by others, nor detached.
                let is_alone = state.calls.is_empty() && !state.session.has_calls();
                let id = state.session.invoke_untimed(call)?;
                after.output_alone(is_alone);
                state.calls.insert(id, CallSlot { span: place.take().unwrap_or_default(), ..CallSlot::default() });
                Ok::<_, InvokeError>((id, depth))
            },
        )?;
        span.made(id, depth);
        Ok(Call::new(Arc::clone(&self.shared), id))
    }

    /// Starts a tool. `arguments` is an object.
    ///
    /// # Errors
    /// As for [`Peer::call`]; [`Refused::Params`] when `arguments` is no object.
    pub fn call_tool(&self, name: &str, arguments: Json) -> Result<Call, InvokeError> {
        self.call(tool_call(name, &arguments))
    }

    /// Starts a tool with arguments of a type of your own: a struct of named fields, a map, whatever becomes an object.
    ///
    /// # Errors
    /// As for [`Peer::call_tool`]; [`CallError::Unwritable`] when the arguments have no JSON.
    pub fn call_tool_with(&self, name: &str, arguments: &(impl Serialize + ?Sized)) -> Result<Call, CallError> {
        match tool_params(name, arguments) {
            Ok(params) => Ok(self.call(Invoke::new(Op::CallTool, params))?),
            Err(error) => Err(CallError::Unwritable(error.to_string())),
        }
    }

    /// Waits for the handshake.
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

    /// Who the peer is and what it can do now; `None` before the handshake.
    #[must_use]
    pub fn info(&self) -> Option<PeerInfo> {
        self.shared.look(|state| state.session.peer().cloned())
    }

    /// Waits for the end of the session.
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
    /// What finds no place is left out: the next value tells more.
    pub fn update(&self, uri: &str, value: &Json) -> usize {
        self.shared.verb(|state, now, after| {
            let subscribed = state.subscriptions.iter().filter(|(_, of)| of.as_str() == uri);
            let notices = subscribed.map(|(name, uri)| (name.clone(), uri.clone())).collect::<Vec<_>>();
            let told = notices.into_iter().filter(|(subscription, uri)| {
                let (subscription, uri, value) = (subscription.clone(), uri.clone(), value.clone());
                state.session.notify(Notice::ResourceValue { subscription, uri, value }, now).is_ok()
            });
            let told = told.count();
            if told > 0 {
                after.output();
            }
            told
        })
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

    /// What the session counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.look(|state| state.session.stats())
    }

    /// What the endpoint counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.look(|state| state.counters)
    }

    /// Every tool of the peer, as it describes them.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_tools(&self) -> Result<Vec<Json>, CallError> {
        self.list(Op::ListTools, "tools").await
    }

    /// Every prompt of the peer, as it describes them.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_prompts(&self) -> Result<Vec<Json>, CallError> {
        self.list(Op::ListPrompts, "prompts").await
    }

    /// Every resource of the peer, as it describes them.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_resources(&self) -> Result<Vec<Json>, CallError> {
        self.list(Op::ListResources, "resources").await
    }

    /// Every resource template of the peer, as it describes them.
    ///
    /// # Errors
    /// [`CallError`] of the first page that fails.
    pub async fn list_resource_templates(&self) -> Result<Vec<Json>, CallError> {
        self.list(Op::ListResourceTemplates, "resourceTemplates").await
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
        let mut params = member_text("uri", uri);
        params.push('}');
        self.call(Invoke::new(Op::ReadResource, Json::written(params.into_bytes())))
    }

    /// Sets the least severe log record that the peer sends.
    ///
    /// # Errors
    /// [`CallError`] if the peer does not agree.
    pub async fn set_log_level(&self, level: Level) -> Result<(), CallError> {
        let mut params = member_text("level", level.as_str());
        params.push('}');
        let call = self.call(Invoke::new(Op::SetLogLevel, Json::written(params.into_bytes())))?;
        call.await.result().map(drop)
    }

    /// Asks whether anybody is there.
    ///
    /// # Errors
    /// [`CallError`] if nobody answers in time.
    pub async fn ping(&self) -> Result<(), CallError> {
        self.call(Invoke::new(Op::Ping, Json::empty_object()))?.await.result().map(drop)
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

    /// What handlers deposited since it is remembered, in order.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn checkpoints(&self) -> Vec<(Instant, Json)> {
        self.shared.look(|state| state.checkpoints.clone().unwrap_or_default())
    }

    fn wait<T, L: Fn(&State) -> Option<T> + Unpin>(&self, look: L) -> ChangeWait<'_, L> {
        ChangeWait { shared: &self.shared, look, place: None }
    }

    /// All pages of a list.
    async fn list(&self, op: Op, member: &str) -> Result<Vec<Json>, CallError> {
        let mut items = Vec::new();
        let mut cursor: Option<Json> = None;
        for _ in 0..PAGES {
            let params = match &cursor {
                Some(cursor) => Json::written(format!(r#"{{"cursor":{cursor}}}"#).into_bytes()),
                None => Json::empty_object(),
            };
            let page = self.call(Invoke::new(op.clone(), params))?.await.result()?;
            let list = page.member(member).ok_or_else(|| CallError::Unreadable(format!("`{member}` is missing")))?;
            if !list.is_array() {
                return Err(CallError::Unreadable(format!("`{member}` is no array")));
            }
            items.extend(list.elements());
            // A cursor is a string, an empty one too.
            cursor = page.member("nextCursor").filter(|next| next.decode::<String>().is_ok());
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

/// `{"name":"text"`, open for more.
fn member_text(name: &str, text: &str) -> String {
    let mut out = Vec::from(b"{");
    write_string(&mut out, name);
    out.push(b':');
    write_string(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

pub(crate) fn get_prompt(name: &str, arguments: &BTreeMap<String, String>) -> Invoke {
    let mut params = member_text("name", name);
    params.push_str(r#","arguments":"#);
    params.push_str(&serde_json::to_string(arguments).unwrap_or_default());
    params.push('}');
    Invoke::new(Op::GetPrompt, Json::written(params.into_bytes()))
}

/// A call of a tool. Arguments that are no object make parameters that are none, which the session refuses.
pub(crate) fn tool_call(name: &str, arguments: &Json) -> Invoke {
    let params = if arguments.is_object() {
        const AROUND: usize = r#"{"name":"","arguments":}"#.len();
        // Just enough, unless the name needs escapes: room to spare would cost the text one allocation more.
        let mut out = Vec::with_capacity(name.len().saturating_add(arguments.as_bytes().len()).saturating_add(AROUND));
        begin_tool_call(&mut out, name);
        out.extend_from_slice(arguments.as_bytes());
        out.push(b'}');
        Json::written(out)
    } else {
        arguments.clone()
    };
    Invoke::new(Op::CallTool, params)
}

std::thread_local! {
    /// Where parameters are written whose length is not known before: with exact room, the text costs one allocation.
    static DRAFT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The parameters of such a call, whose arguments are still to be written. Arguments that are no object stand alone.
fn tool_params(name: &str, arguments: &(impl Serialize + ?Sized)) -> Result<Json, JsonError> {
    /// What a thread keeps of the room that long arguments took.
    const KEPT: usize = 4 * 1024;
    // Taken, since arguments may have code that calls a tool; and at the end of a thread it may be gone.
    let mut draft = DRAFT.try_with(Cell::take).unwrap_or_default();
    let params = write_tool_call(&mut draft, name, arguments);
    draft.clear();
    draft.shrink_to(KEPT);
    let _ = DRAFT.try_with(|place| place.set(draft));
    params
}

fn write_tool_call(out: &mut Vec<u8>, name: &str, arguments: &(impl Serialize + ?Sized)) -> Result<Json, JsonError> {
    begin_tool_call(out, name);
    let around = out.len();
    write_value(out, arguments)?;
    let arguments = out.get(around..).unwrap_or_default();
    if arguments.first() != Some(&b'{') {
        return Ok(Json::written(arguments.to_vec()));
    }
    out.push(b'}');
    Ok(Json::written(out.to_vec()))
}

/// The parameters up to the arguments.
fn begin_tool_call(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(br#"{"name":"#);
    write_string(out, name);
    out.extend_from_slice(br#","arguments":"#);
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
