//! The types that the methods of a session take and return, and the errors of these methods.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use bytes::Bytes;

use crate::config::{CallTimeouts, RateWindow};
use crate::dialect::{CompletionRequest, Dialect, Level, Op, Outgoing, Parts};
use crate::json::{Json, Text};
use crate::session::InputKey;

/// A call to make, for [`Session::invoke`](crate::Session::invoke).
///
/// Most constructors take typed parts, which the session writes in the form of its protocol; [`Invoke::new`] takes the exact parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invoke {
    outgoing: Outgoing,
    /// The peer's input request that this call helps to answer. The call inherits the sampling depth of that input request.
    pub parent: Option<InputKey>,
    /// The least sampling depth of the call. The call has the depth of `parent` if that is greater. A gateway sets this field for the calls
    /// that it passes on.
    pub depth: u8,
    /// The time limits of the call. `None` for the default, which is [`crate::Timeouts::call`]. The default of an [`Op::Listen`] is only an
    /// idle limit, [`crate::Timeouts::acknowledgement`].
    pub timeouts: Option<CallTimeouts>,
    /// `true` to ask the peer for progress. The peer is asked in any case if the call has an idle limit that progress restarts
    /// ([`CallTimeouts::reset_on_progress`]). Has no effect on Tesseron, where the peer may report progress of every action unasked.
    pub progress: bool,
}

/// Constructors, one for each request except [`Op::Listen`], for which use [`Invoke::new`]. A new call has the default time limits and asks
/// for progress.
impl Invoke {
    /// A request with exactly these parameters, an object in the form of the session's protocol. The session adds members of its own: on
    /// MCP to `_meta`, whose other members stay; on Tesseron to an [`Op::CallTool`] the id of the invocation. For [`Op::Custom`] use
    /// [`Invoke::custom`], which takes the method.
    #[must_use]
    pub fn new(op: Op, params: Json) -> Self {
        Self::of(op, Parts::Exact(params))
    }

    /// Calls a tool; on Tesseron an action. `arguments`, which must be an object on MCP, is sent byte for byte.
    #[must_use]
    pub fn call_tool(name: impl Into<Text>, arguments: Json) -> Self {
        Self::of(Op::CallTool, Parts::Named { name: name.into(), arguments })
    }

    /// Lists the tools: the first page, or the page that begins at `cursor`.
    #[must_use]
    pub fn list_tools(cursor: Option<Text>) -> Self {
        Self::of(Op::ListTools, Parts::Page(cursor))
    }

    /// Gets a prompt. `arguments` is an object of strings.
    #[must_use]
    pub fn get_prompt(name: impl Into<Text>, arguments: Json) -> Self {
        Self::of(Op::GetPrompt, Parts::Named { name: name.into(), arguments })
    }

    /// Lists the prompts: the first page, or the page that begins at `cursor`.
    #[must_use]
    pub fn list_prompts(cursor: Option<Text>) -> Self {
        Self::of(Op::ListPrompts, Parts::Page(cursor))
    }

    /// Reads a resource. On Tesseron the name of the resource is its URI.
    #[must_use]
    pub fn read_resource(uri: impl Into<Text>) -> Self {
        Self::of(Op::ReadResource, Parts::Resource { uri: uri.into(), subscription: None })
    }

    /// Lists the resources: the first page, or the page that begins at `cursor`.
    #[must_use]
    pub fn list_resources(cursor: Option<Text>) -> Self {
        Self::of(Op::ListResources, Parts::Page(cursor))
    }

    /// Lists the resource templates: the first page, or the page that begins at `cursor`.
    #[must_use]
    pub fn list_resource_templates(cursor: Option<Text>) -> Self {
        Self::of(Op::ListResourceTemplates, Parts::Page(cursor))
    }

    /// Subscribes to changes of a resource.
    #[must_use]
    pub fn subscribe(uri: impl Into<Text>) -> Self {
        Self::of(Op::Subscribe, Parts::Resource { uri: uri.into(), subscription: None })
    }

    /// Ends a subscription.
    #[must_use]
    pub fn unsubscribe(uri: impl Into<Text>) -> Self {
        Self::of(Op::Unsubscribe, Parts::Resource { uri: uri.into(), subscription: None })
    }

    /// Asks for the values that an argument may have.
    #[must_use]
    pub fn complete(completion: CompletionRequest) -> Self {
        Self::of(Op::Complete, Parts::Completion(Box::new(completion)))
    }

    /// Sets the level of the least severe log record that the peer sends.
    #[must_use]
    pub fn set_log_level(level: Level) -> Self {
        Self::of(Op::SetLogLevel, Parts::Level(level))
    }

    /// Sends a ping. The session of a server refuses the call with [`SendError::NotReady`] if its peer has made no handshake and need not
    /// make one: the peer has sent a stateless request, or the server serves no other requests (MCP 2026-07-28).
    #[must_use]
    pub fn ping() -> Self {
        Self::of(Op::Ping, Parts::Nothing)
    }

    /// Calls a method that the protocol does not have. `params` is an object.
    #[must_use]
    pub fn custom(method: impl Into<Text>, params: Json) -> Self {
        Self::of(Op::Custom, Parts::Custom { method: method.into(), params })
    }

    fn of(op: Op, parts: Parts) -> Self {
        Self { outgoing: Outgoing::new(op, parts), parent: None, depth: 0, timeouts: None, progress: true }
    }
}

impl Invoke {
    /// Makes the call of a [`PendingInput`](crate::PendingInput) again, from its method and parameters. `None` for a method whose requests
    /// have no input rounds.
    pub(super) fn with_rounds(method: &str, params: Json, depth: u8, progress: bool) -> Option<Self> {
        let outgoing = Dialect::request_with_rounds(method, params)?;
        Some(Self { outgoing, parent: None, depth, timeouts: None, progress })
    }

    /// The kind of the request.
    #[must_use]
    pub fn op(&self) -> Op {
        self.outgoing.op
    }

    /// The name or the URI in the request, for logs; `None` for a request without one.
    #[must_use]
    pub fn target(&self) -> Option<Cow<'_, str>> {
        self.outgoing.target()
    }

    /// The JSON that was passed to the constructor: the exact parameters, the arguments of a tool or a prompt, or the parameters of a
    /// custom request. `None` for any other request.
    #[must_use]
    pub fn given(&self) -> Option<&Json> {
        self.outgoing.given()
    }

    #[inline]
    pub(super) fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Names a subscription ([`Invoke::subscribe`], [`Invoke::unsubscribe`]) on Tesseron, where subscriptions have names. By default the
    /// name is the URI. Has no effect on other requests.
    #[must_use]
    pub fn with_subscription(mut self, name: impl Into<Text>) -> Self {
        if let Parts::Resource { subscription, .. } = &mut self.outgoing.parts {
            *subscription = Some(name.into());
        }
        self
    }

    /// Sends `meta`, an object, as `_meta`, in place of a `_meta` in the parameters. Members that the session writes itself replace members
    /// of `meta`. Ignored on Tesseron, which has no `_meta`.
    #[must_use]
    pub fn with_meta(mut self, meta: Json) -> Self {
        self.outgoing.meta = Some(Box::new(meta));
        self
    }

    /// Asks for log records of this call that are at least as severe as `level` (MCP 2026-07-28, Logging), in place of the level of the
    /// last [`Invoke::set_log_level`]. Has no effect after a handshake, since one level then holds for the whole channel.
    #[must_use]
    pub fn with_log_level(mut self, level: Level) -> Self {
        self.outgoing.log_level = Some(level);
        self
    }

    /// Sets the time limits of this call.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: CallTimeouts) -> Self {
        self.timeouts = Some(timeouts);
        self
    }

    /// Sets [`Invoke::progress`] to `false`.
    #[must_use]
    pub fn without_progress(mut self) -> Self {
        self.progress = false;
        self
    }

    /// Sets [`Invoke::depth`].
    #[must_use]
    pub fn with_depth(mut self, depth: u8) -> Self {
        self.depth = depth;
        self
    }

    /// Makes the call on behalf of an input request of the peer.
    #[must_use]
    pub fn with_parent(mut self, parent: InputKey) -> Self {
        self.parent = Some(parent);
        self
    }
}

/// The error of a call that was not made. Nothing has changed, and the call is handed back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct InvokeError {
    /// The reason.
    pub why: SendError,
    /// The call as it was passed.
    pub call: Box<Invoke>,
}

/// The reason why the session did not send a call or a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The session is closing or closed.
    #[error("the session is closing")]
    Closing,
    /// Too many calls are in flight ([`crate::Limits::in_flight`]), or too much output is queued ([`crate::Limits::output_bytes`]). For
    /// [`resume_input`](crate::Session::resume_input) also: too many input requests are open. The same call may succeed later.
    #[error("too many calls in flight or too much output waiting")]
    Full,
    /// The peer did not declare the capability that the request needs, this end did not declare the one that the notification needs, or the
    /// protocol or its revision does not have the request or the notification.
    #[error("the peer does not offer this")]
    Unsupported,
    /// The handshake is not done, or the session is not claimed (Tesseron), or the call is a ping to a peer that need not make a handshake
    /// ([`Invoke::ping`]).
    #[error("the handshake is not done, or the session is not claimed")]
    NotReady,
    /// Only the other end of the protocol may send this request or notification, or a custom message has a method that the protocol
    /// reserves.
    #[error("only the other end of the protocol may send this")]
    WrongEnd,
    /// The parameters, the arguments or the `_meta` are not an object, the list of a notification is not an array, or [`Invoke::new`] was
    /// used for [`Op::Custom`]. If requests are stateless, this is also the error for an unknown log level, and for a subscription without
    /// a URI. [`resume_input`](crate::Session::resume_input) also returns it for a value that it cannot continue.
    #[error("parameters, arguments and _meta must be JSON objects")]
    Params,
    /// The frame would be longer than [`crate::Limits::frame_bytes`]. Where a single request lists all subscriptions (MCP 2026-07-28,
    /// Subscriptions), this is also the error for more resources than [`crate::Limits::subscriptions`].
    #[error("longer than a frame may be")]
    TooLarge,
    /// The input request in [`Invoke::parent`] is not open.
    #[error("the input request that the call belongs to is not open")]
    NoParent,
}

/// The error for a call, input request, lane or handshake that has ended or never existed, or for a subscription that was accepted before.
/// Nothing has changed, except that [`respond`](crate::Session::respond) records the end of the handler of a cancelled call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not live: it has ended or never existed")]
pub struct NotLive;

/// The error for a frame that was not taken: too many events or unsolicited replies wait to be polled, or too many lanes are open. The
/// frame is handed back: poll, or let another lane end, then pass it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events or replies wait to be polled, or too many lanes are open")]
pub struct Full(pub Bytes);

/// The error of [`set_alarm`](crate::Session::set_alarm) when [`crate::Limits::alarms`] alarms are set or wait to be polled as events, or
/// when the session has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many alarms")]
pub struct TooManyAlarms;

/// Changes to the options of one inbound call. A field that is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The longest time that the call may take, counted from its receipt. A deadline that has already passed ends the call immediately.
    pub deadline: Option<Duration>,
    /// The rate of the call's progress updates.
    pub window: Option<RateWindow>,
    /// The sampling depth of the call, if an earlier round has shown that it is greater than the depth in the request. The depth of a call
    /// can only rise.
    pub depth: Option<u8>,
}

/// The way in which input can be requested from the caller of an inbound call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputMode {
    /// Input requests are sent as requests while the call runs ([`Session::request_input`](crate::Session::request_input)).
    Nested,
    /// Input requests are sent in the result that ends the exchange ([`Session::finish_round`](crate::Session::finish_round)). The answers
    /// come in a retry, which is another call ([`Request::retry`](crate::Request::retry)).
    Rounds,
    /// No input can be requested.
    Unsupported,
}

impl ServeOptions {
    /// Sets the deadline.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the rate of progress.
    #[must_use]
    pub fn with_window(mut self, window: RateWindow) -> Self {
        self.window = Some(window);
        self
    }

    /// Raises the sampling depth.
    #[must_use]
    pub fn with_depth(mut self, depth: u8) -> Self {
        self.depth = Some(depth);
        self
    }
}

/// The treatment of a progress update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reported {
    /// The update is queued as a frame, to be polled.
    Sent,
    /// The update is kept, and merged with an update that was kept before. It is sent when the rate windows of the call and of the session
    /// are open, or just before the response. On MCP, an update without a new value is kept until the value increases.
    RateLimited,
    /// The update is kept, and merged with an update that was kept before, because the owner has stopped the lane of the call, or too much
    /// output is queued on that lane. The update is sent when there is room again, or just before the response.
    Congested,
    /// The update was dropped: its value does not increase, and it has neither a message nor data.
    NotIncreasing,
    /// The update was dropped: the peer did not ask for progress, or has ended its side.
    Unobserved,
}

/// The reason why a progress update was rejected. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressError {
    /// The call is over.
    #[error("the call is over")]
    NotLive,
    /// The value is NaN or infinite.
    #[error("progress must be a finite number")]
    NotFinite,
    /// The value is below zero.
    #[error("progress must not be negative")]
    Negative,
    /// The value is above the total.
    #[error("progress must not exceed its total")]
    AboveTotal,
}

/// The reason why a checkpoint was not stored. The previous checkpoint stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The call is over.
    #[error("the call is over")]
    NotLive,
    /// The checkpoint is not a JSON object.
    #[error("a checkpoint must be a JSON object")]
    NotAnObject,
    /// The checkpoint is longer than [`crate::Limits::checkpoint_bytes`].
    #[error("a checkpoint over the size limit")]
    TooLarge,
}

/// The reason why an input request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The call is over.
    #[error("the call is over")]
    NotLive,
    /// The peer has ended its side of the channel, so no answer would come.
    #[error("the peer has ended the connection")]
    Disconnected,
    /// The caller did not declare the capability to answer the input request, or the [`InputMode`] of the call is not the one that the
    /// called method is for.
    #[error("the peer does not offer this")]
    Unsupported,
    /// Sampling would be nested deeper than [`crate::DepthPolicy::max`].
    #[error("sampling would be nested {depth} deep; the maximum is {max}")]
    TooDeep {
        /// The depth that the input request would have.
        depth: u8,
        /// The maximum depth.
        max: u8,
    },
    /// The form, the input request or the round has a shape that the protocol forbids.
    #[error("{0}")]
    Invalid(String),
    /// The frame would be longer than [`crate::Limits::frame_bytes`].
    #[error("longer than a frame may be")]
    TooLarge,
    /// Too many input requests are open ([`crate::Limits::in_flight`]), or too much output is queued ([`crate::Limits::output_bytes`]).
    #[error("too many input requests open or too much output waiting")]
    Full,
}

/// The treatment of a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Logged {
    /// The record is queued as a frame, to be polled.
    Sent,
    /// The record was dropped: the peer gets no records, or only more severe ones; this end did not declare logging; the peer
    /// has ended its side; or the session no longer sends.
    Unwanted,
    /// This record was dropped, or it was queued and older queued records were dropped: the lane is stopped, too much output is queued, or
    /// the record is longer than [`crate::Limits::frame_bytes`].
    Dropped,
}

/// A way to close a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Close {
    /// Refuses new calls, lets running calls continue for `grace`, then cancels them.
    Graceful {
        /// The time that running calls have.
        grace: Duration,
    },
    /// Cancels all calls and input requests immediately. Queued frames can still be polled for [`crate::Timeouts::close_grace`].
    Now,
}

/// The way in which the transport ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportEnd {
    /// The peer has ended its side. Frames that we write may still reach the peer.
    Eof,
    /// Nothing can be written any longer.
    Failed,
}
