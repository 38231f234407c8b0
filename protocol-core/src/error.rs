//! JSON-RPC errors, and violations: rules that the peer broke.
//!
//! The third kind of error is misuse of a method. Its types are defined in the modules of the methods that return them.

use alloc::boxed::Box;
use core::fmt;

use crate::json::{Json, Text};

/// A JSON-RPC error object (JSON-RPC 2.0 section 5.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// The code that programs read. The constants of this type are codes of JSON-RPC and MCP, and of this crate; Tesseron has more
    /// ([`crate::tesseron::code`]).
    pub code: i64,
    /// One sentence for people.
    pub message: Text,
    /// Further data. Boxed, since most errors have none.
    pub data: Option<Box<Json>>,
}

impl RpcError {
    /// The frame is not JSON.
    pub const PARSE: i64 = -32700;
    /// The frame is JSON, but not a JSON-RPC message, or the message is not allowed at this point.
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method, or this end does not offer it.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Parameters that have the wrong shape, or that name an unknown tool, prompt or cursor.
    pub const INVALID_PARAMS: i64 = -32602;
    /// An internal error.
    pub const INTERNAL: i64 = -32603;
    /// There is no such resource. Used in MCP up to 2025-11-25; later revisions use [`RpcError::INVALID_PARAMS`].
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The user must open URLs first (MCP 2025-11-25): see [`RpcError::required_urls`].
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// An HTTP header contradicts the body of the request, or is missing (MCP 2026-07-28, Streamable HTTP).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client did not declare (MCP 2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The version that the request names is not served (MCP 2026-07-28). The data of the error, `{supported, requested}`, has the versions
    /// that are served and the one that was requested.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The user declined to answer an input request.
    pub const USER_REJECTED: i64 = -1;
    /// The call that the input request belonged to has ended. This code is not part of MCP, but this crate's own.
    pub const CANCELLED: i64 = -32800;
    /// The request for sampling is nested too deep. This code is not part of MCP, but this crate's own.
    pub const TOO_DEEP: i64 = -32808;
    /// There are too many requests in flight, requests come too fast, or the session is closing. On Tesseron the code is
    /// [`RpcError::INTERNAL`] instead. This code is not part of MCP, but this crate's own.
    pub const BUSY: i64 = -32809;

    /// The peer has answered our request for its revisions without a response of JSON-RPC, such as with an HTTP status alone: this end has
    /// made the error, and the message says what came. It is never sent.
    pub const NO_RESPONSE: i64 = -32810;

    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<Text>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// An error with a message that is known at compile time, made without an allocation.
    #[must_use]
    pub const fn fixed(code: i64, message: &'static str) -> Self {
        Self { code, message: Text::from_static(message), data: None }
    }

    /// Adds data.
    #[must_use]
    pub fn with_data(mut self, data: Json) -> Self {
        self.data = Some(Box::new(data));
        self
    }

    /// [`RpcError::INVALID_PARAMS`] with a message.
    #[must_use]
    pub fn invalid_params(message: impl Into<Text>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    /// [`RpcError::INTERNAL`] with a message.
    #[must_use]
    pub fn internal(message: impl Into<Text>) -> Self {
        Self::new(Self::INTERNAL, message)
    }
}

macro_rules! violations {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A rule that the peer broke. The session continues, except after [`Violation::FrameTooLarge`] on the channel, and after a
        /// handshake request of a version that this end does not speak.
        ///
        /// There is one variant for each rule. [`crate::Stats::violations`] has a count for each variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Violation {
            $($(#[$doc])* $name,)*
        }

        impl Violation {
            /// Every rule, in the order in which [`crate::Stats`] counts them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The rule in words.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

/// The description of a frame that is no message of the protocol, or of a response of the wrong shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreadable {
    /// The rule that the frame or the response breaks.
    pub rule: Violation,
    /// The offset of the fault in the frame, in bytes; 0 if the rule is neither [`Violation::NotJson`] nor [`Violation::TooDeep`].
    pub position: usize,
    /// At most 80 bytes of the frame, or of the result in it, around the position, in which control characters and bytes that are not UTF-8
    /// are escaped, with `..` at each end where the frame goes on.
    pub excerpt: Text,
    /// The likely cause, if the frame has the marks of one.
    pub hint: Option<&'static str>,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule.as_str())?;
        if matches!(self.rule, Violation::NotJson | Violation::TooDeep) {
            write!(f, ", at byte {}", self.position)?;
        }
        write!(f, ": {}", self.excerpt)?;
        self.hint.map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

/// The fault of a member of the peer's answer to the handshake or to the request for its revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberFault {
    /// It is missing.
    Missing,
    /// It has the wrong type.
    WrongType,
    /// The whole answer cannot be read, for this reason, which is text for people.
    Unreadable(&'static str),
}

impl fmt::Display for MemberFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::WrongType => f.write_str("has the wrong type"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
        }
    }
}

violations! {
    /// A frame that is not JSON, or not UTF-8. An MCP server answers with -32700.
    NotJson = "a frame that is not JSON",
    /// A frame nested deeper than [`crate::Limits::json_depth`]. An MCP server answers with -32700.
    TooDeep = "a frame nested too deep",
    /// A frame longer than [`crate::Limits::frame_bytes`]. If the frame came by the channel, the session closes. An MCP server answers with
    /// -32600.
    FrameTooLarge = "a frame over the size limit",
    /// JSON that is neither a request, a notification nor a response (JSON-RPC 2.0 sections 4 and 5). An MCP server answers with -32600,
    /// unless the text looks like a notification or a response. An MCP client answers only a frame with a valid id, and no frame if its
    /// requests are stateless.
    InvalidEnvelope = "a frame that is no JSON-RPC 2.0 message",
    /// A message in which `id`, `method`, `params`, `result`, `error` or `jsonrpc` is repeated, or on MCP `_meta` in the parameters. An MCP
    /// server answers a request with -32600. An MCP client answers a request only if `_meta` is repeated, and no request if its own
    /// requests are stateless.
    RepeatedMember = "a message that repeats a member",
    /// An array in a revision without batches. An MCP server answers with -32600.
    BatchUnsupported = "a batch in a revision without batches",
    /// An empty array in a revision with batches. An MCP server answers with -32600.
    EmptyBatch = "an empty batch",
    /// An array longer than [`crate::Limits::batch`]. An MCP server answers with -32600.
    BatchTooLong = "a batch of more messages than the limit",
    /// A response without an id, with one that is not written as a whole number, or with a number above all that this session has used; a
    /// response to a call, an input request or a subscription whose request was not polled yet; or a response that came by another lane than
    /// its input request (Tesseron). A response with any other number that belongs to no request counts in [`crate::Stats::late_frames`].
    UnknownResponse = "a response to a request that was never made",
    /// A response of the wrong shape, such as one with neither a result object nor a valid error. A call whose result cannot be used
    /// settles as [`crate::Outcome::Invalid`].
    InvalidResponse = "a response of the wrong shape",
    /// An error response without an id: the peer could not read a frame of ours.
    ErrorWithoutId = "an error that names no request",
    /// A request with the id of a request that is still being served. It gets no reply, since a reply would settle the first request. Or a
    /// call with the invocation id of a call that runs (Tesseron); it is answered with -32600.
    DuplicateRequest = "a request with the id of one in flight",
    /// A request on the channel with an id that is still remembered from an earlier exchange ([`crate::Limits::ended_ids`]). The request is
    /// served. A stateless request may use an id again.
    ReusedId = "a request with an id that was used before",
    /// Parameters of the wrong shape. A request is answered with -32602 (on Tesseron, a handshake request may get another code), a
    /// notification is ignored.
    InvalidParams = "parameters of the wrong shape",
    /// A method that only the other end may send, or any request of a server without a handshake (MCP 2026-07-28).
    WrongDirection = "a method that only the other end may send",
    /// A message that is not allowed before the handshake, a second handshake, or a handshake in a batch. A request is answered with an
    /// error.
    OutOfPhase = "a message at the wrong point of the handshake",
    /// An attempt of the peer to cancel its own handshake request, after our answer and before the peer has confirmed the answer. Ignored.
    CancelledHandshake = "an attempt to cancel the handshake",
    /// More requests in flight than [`crate::Limits::in_flight`], with more bytes than [`crate::Limits::request_bytes`], or faster than
    /// [`crate::Limits::requests_per_second`]. Answered with [`RpcError::BUSY`]. Or a round with too many input requests, which ends its call.
    TooManyRequests = "more requests at once than the limit",
    /// Sampling nested deeper than [`crate::DepthPolicy::max`]. It is answered with an error or, if it came in a round, ends its call.
    SamplingTooDeep = "sampling nested too deep",
    /// An input request of a kind that we did not declare in our capabilities or, on Tesseron, that names no call of ours. It is answered
    /// with an error or, if it came in a round, ends its call.
    UndeclaredInput = "an input that was not offered",
    /// Progress without a valid token, whose value or total is not a finite number, or whose message is not text. Dropped.
    InvalidProgress = "progress of the wrong shape",
    /// Progress whose token is no number, or a number above all that this session has used; or progress for a call that asked for none or
    /// whose request was not polled yet. Dropped.
    UnknownProgress = "progress for a call that was never made",
    /// A notification or an acknowledgement for a subscription that was never made or whose request was not polled yet. Or a notification
    /// for the subscription that the session has made itself, before its acknowledgement or of a kind that the peer has not agreed to.
    /// Dropped.
    UnknownSubscription = "a notification for a subscription that was not agreed on",
    /// Progress that does not increase. Dropped. It becomes an event at most once per call within the length of our rate window
    /// ([`crate::ProgressPolicy::window`]).
    ProgressNotIncreasing = "progress that does not increase",
    /// A ping that was not answered in time. The peer may have stopped.
    PingUnanswered = "a ping that was not answered in time",
    /// A subscription to the changes of lists that was not acknowledged within [`crate::Timeouts::acknowledgement`]. It is cancelled.
    SubscriptionUnacknowledged = "a subscription that was not acknowledged in time",
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
