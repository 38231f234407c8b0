//! The parts of a message on which HTTP depends: its kind, the number of a request, and the members that headers repeat.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use bytes::Bytes;

use super::era::Posted;
use super::head::Headers;
use crate::error::{RpcError, Violation};
use crate::json::cursor::IndexedObject;
use crate::json::read::{Kind, Members, integer, member, string};
use crate::json::write::{Object, push_json, write_integer};
use crate::json::{Frame, Json, Text};
use crate::wire::{self, Element, Envelope, Malformed, Tolerated, WireId};

/// The key of the protocol version in `_meta`. Every request without a handshake has this member.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The key of the client's capabilities in `_meta`. Every request without a handshake has this member.
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The beginning of the keys of `_meta` that the protocol defines.
const META_PREFIX: &str = "io.modelcontextprotocol/";
/// The keys of `_meta` on which no result depends.
const META_NEUTRAL: [&str; 5] = ["progressToken", "traceparent", "tracestate", "baggage", "io.modelcontextprotocol/logLevel"];
/// The maximum number of messages in a batch of a server: the default of [`crate::Limits::batch`].
const MAX_BATCH: usize = 64;
/// The deepest nesting of a body: the default of [`crate::Limits::json_depth`].
const DEPTH: u8 = 128;
/// The members of `_meta` that headers of the same names repeat (W3C Trace Context, Baggage), for proxies and other intermediaries.
const META_TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// The longest id in bytes: the default of [`crate::Limits::id_bytes`].
const ID_BYTES: usize = 1024;

/// The contents of a body.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Message(Message),
    Batch(Batch),
    /// Neither a message nor a batch, with the error to refuse it with, and the id if it could be read. `is_answered` is `false` for a
    /// malformed response or notification, to which a session does not reply.
    Malformed {
        id: Option<WireId>,
        error: RpcError,
        is_answered: bool,
    },
}

impl Body {
    /// The number of requests.
    pub(super) fn requests(&self) -> usize {
        match self {
            Self::Message(Message::Request(_)) => 1,
            Self::Batch(batch) => batch.replies,
            Self::Message(_) | Self::Malformed { .. } => 0,
        }
    }

    /// Returns `true` for the request that opens a session.
    pub(super) fn opens_session(&self) -> bool {
        matches!(self, Self::Message(Message::Request(request)) if &*request.method == "initialize")
    }
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    Request(Request),
    Notification,
    Response,
}

/// An array of messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    /// The number of elements that a session may reply to: requests, and malformed elements that are no responses and no notifications.
    pub(super) replies: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: WireId,
    pub(super) method: Text,
    params: Json,
    /// The member of the parameters that the header `Mcp-Name` repeats. `None` if the method has no such member ([`Self::has_name`]). Also
    /// `None` if the member is missing or not text: the session of the server refuses such a request.
    pub(super) name: Option<Text>,
    /// `true` if `_meta` names a version, even if the version is not text.
    pub(super) names_version: bool,
    /// The version that `_meta` names; `None` if one of the two required members of `_meta` is missing or has the wrong type. In that case
    /// the headers of a request without a handshake are not compared with its body, and the session refuses the request.
    pub(super) version: Option<Text>,
}

impl Request {
    fn new(id: WireId, method: &[u8], params: Option<&IndexedObject<'_>>, frame: Frame<'_>) -> Self {
        let method = Text::from(core::str::from_utf8(method).unwrap_or_default());
        let value = |name: &str| params.and_then(|params| params.member(name));
        let text = |value: Option<&[u8]>| value.and_then(|value| frame.text(value));
        let name = key_of_name(&method).and_then(|key| text(value(key)));
        let (mut version, mut capabilities) = (None, None);
        for (key, value) in value("_meta").and_then(Members::of).into_iter().flatten() {
            if value == b"null" {
                // Counts as absent.
            } else if key.is(META_VERSION) {
                version = Some(value);
            } else if key.is(META_CAPABILITIES) {
                capabilities = Some(value);
            }
        }
        Self {
            id,
            method,
            params: params.map_or_else(Json::empty_object, |params| frame.json(params.text())),
            name,
            names_version: version.is_some(),
            version: text(version).filter(|_| capabilities.map(Kind::of) == Some(Kind::Object)),
        }
    }

    fn meta(&self) -> Option<&[u8]> {
        member(self.params.as_bytes(), "_meta")
    }

    /// Returns `true` if the header `Mcp-Name` repeats a member of the parameters of this method.
    pub(super) fn has_name(&self) -> bool {
        key_of_name(&self.method).is_some()
    }

    pub(super) fn calls_tool(&self) -> bool {
        &*self.method == "tools/call"
    }

    pub(super) fn is_subscription(&self) -> bool {
        &*self.method == "subscriptions/listen"
    }

    /// The arguments of a call of a tool, as owned JSON.
    pub(super) fn arguments_json(&self) -> Json {
        self.params.member("arguments").unwrap_or_else(Json::empty_object)
    }

    /// Copies the members of `_meta` whose keys the protocol defines, exactly as they are written. They describe the caller.
    pub(super) fn write_caller(&self, object: &mut Object<'_>) {
        for (key, value) in self.meta().and_then(Members::of).into_iter().flatten() {
            if key.name().starts_with(META_PREFIX) {
                object.copy(key, value);
            }
        }
    }

    /// Adds a header for each member of `_meta` that tells which trace the request belongs to, if its value is plain ASCII.
    pub(super) fn write_trace(&self, headers: &mut Headers<'static>) {
        for (key, value) in self.meta().and_then(Members::of).into_iter().flatten() {
            let Some(name) = META_TRACE.iter().find(|name| key.is(name)) else { continue };
            if let Some(value) = string(value).filter(|value| value.bytes().all(|byte| (b' '..=b'~').contains(&byte))) {
                headers.push(*name, value.into_owned());
            }
        }
    }

    /// The parameters on which the result depends, each exactly as it is written, with `_meta` at the end. `None` for a retry, whose result
    /// also depends on its answers.
    pub(super) fn identity(&self) -> Option<Bytes> {
        let mut out = Vec::new();
        let mut is_retry = false;
        Object::write(&mut out, |object| {
            for (key, value) in Members::of(self.params.as_bytes()).into_iter().flatten() {
                is_retry |= key.is("inputResponses") || key.is("requestState");
                if !key.is("_meta") {
                    object.copy(key, value);
                }
            }
            object.object("_meta", |object| {
                for (key, value) in self.meta().and_then(Members::of).into_iter().flatten() {
                    if !META_NEUTRAL.iter().any(|neutral| key.is(neutral)) {
                        object.copy(key, value);
                    }
                }
            });
        });
        (!is_retry).then(|| out.into())
    }

    pub(super) fn arguments(&self) -> &[u8] {
        member(self.params.as_bytes(), "arguments").unwrap_or(b"{}")
    }

    pub(super) fn posted(&self) -> Posted {
        let named = self.names_version;
        match &*self.method {
            "initialize" => Posted::Initialize { named },
            "server/discover" | "subscriptions/listen" => Posted::ModernRequest,
            _ => Posted::Request { named },
        }
    }
}

/// The key of the member of the parameters that the header `Mcp-Name` repeats.
fn key_of_name(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Reads the body of a POST, in which a batch may have at most `batch` messages.
pub(super) fn read(body: &Bytes, batch: usize) -> Body {
    let frame = Frame::new(body);
    wire::read(
        body,
        options(Some(batch)),
        &Tolerated::default(),
        |element| message(element, frame),
        |all: Vec<Body>| {
            let is_answered =
                |body: &&Body| matches!(body, Body::Message(Message::Request(_)) | Body::Malformed { is_answered: true, .. });
            Body::Batch(Batch { replies: all.iter().filter(is_answered).count() })
        },
    )
}

const fn options(batch: Option<usize>) -> wire::Options {
    wire::Options { depth: DEPTH, id: ID_BYTES, batch, lenient: false }
}

fn message(element: Element<'_>, frame: Frame<'_>) -> Body {
    match element {
        Ok(Envelope::Request { id, method, params }) => Body::Message(Message::Request(Request::new(id, method, params, frame))),
        Ok(Envelope::Notification { .. }) => Body::Message(Message::Notification),
        Ok(Envelope::Response { .. }) => Body::Message(Message::Response),
        Ok(Envelope::Misaddressed { .. }) => {
            Body::Malformed { id: None, error: invalid(Violation::InvalidEnvelope), is_answered: false }
        }
        Err(Malformed { answer: Some((id, error)), .. }) => Body::Malformed { id, error, is_answered: true },
        Err(Malformed { violation, answer: None, .. }) => {
            Body::Malformed { id: None, error: invalid(violation), is_answered: false }
        }
    }
}

fn invalid(violation: Violation) -> RpcError {
    RpcError::fixed(RpcError::INVALID_REQUEST, violation.as_str())
}

/// The id in the body of a refusal.
#[derive(Clone, Debug)]
pub(super) enum ErrorId {
    /// No member `id`: in MCP 2026-07-28, an error that belongs to no request.
    Absent,
    /// `null`: in earlier revisions and in JSON-RPC, an error that belongs to no request.
    Null,
    /// The id of the request.
    Of(WireId),
}

/// Writes an error response.
pub(super) fn error(id: &ErrorId, error: &RpcError) -> Bytes {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.word("jsonrpc", "2.0");
        match id {
            ErrorId::Absent => {}
            ErrorId::Null => WireId::Null.write(object.member("id")),
            ErrorId::Of(id) => id.write(object.member("id")),
        }
        object.object("error", |object| {
            write_integer(object.member("code"), error.code);
            object.string("message", &error.message);
            if let Some(data) = &error.data {
                object.json("data", data);
            }
        });
    });
    out.into()
}

/// A frame that the session of a client sends.
pub(super) enum Outgoing {
    /// A request, with its number.
    Request(u64, Request),
    /// The cancel of a request.
    Cancel(u64),
    /// The confirmation of the handshake.
    Confirmation,
    Notification,
    /// The answer to a request of the server.
    Answer,
    /// A batch, text that is no message, or a request whose id is no number of ours.
    Unknown,
}

/// Reads a frame that the session of a client sends.
pub(super) fn outgoing(frame: &Bytes) -> Outgoing {
    let text = Frame::new(frame);
    let one = |element: Element<'_>| match element {
        Ok(Envelope::Notification { method: b"notifications/initialized", .. }) => Outgoing::Confirmation,
        Ok(Envelope::Notification { method: b"notifications/cancelled", params }) => {
            let number = params.and_then(|params| params.member("requestId")).and_then(|id| WireId::read(id, ID_BYTES));
            number.and_then(|id| id.as_ours()).map_or(Outgoing::Notification, Outgoing::Cancel)
        }
        Ok(Envelope::Notification { .. }) => Outgoing::Notification,
        Ok(Envelope::Response { .. }) => Outgoing::Answer,
        Ok(Envelope::Request { id, method, params }) => match id.as_ours() {
            Some(number) => Outgoing::Request(number, Request::new(id, method, params, text)),
            None => Outgoing::Unknown,
        },
        Ok(Envelope::Misaddressed { .. }) | Err(_) => Outgoing::Unknown,
    };
    wire::read(frame, options(None), &Tolerated::default(), one, |_| Outgoing::Unknown)
}

/// A frame of a server, and the requests of the client that it ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// The frame is not a valid message, and ends no request.
    Malformed,
    /// A request or a notification, which ends no request.
    Message,
    /// The response to the request with this number; `None` if the id cannot be one of ours.
    Response(Option<u64>),
    /// An error that names no request.
    Error,
    /// The numbers of the responses in a batch, or in text that is no message; at least one if it is no message.
    Batch(Vec<u64>),
}

/// Reads a frame of a server.
pub(super) fn incoming(frame: &Bytes) -> Incoming {
    let one = |element: Element<'_>| match element {
        Ok(Envelope::Response { id, .. }) => Incoming::Response(id.as_ours()),
        // The session describes the frame.
        Ok(Envelope::Misaddressed { .. }) => Incoming::Malformed,
        Ok(Envelope::Request { .. } | Envelope::Notification { .. }) => Incoming::Message,
        Err(Malformed { violation: Violation::ErrorWithoutId, .. }) => Incoming::Error,
        Err(Malformed { recovered: Some(recovered), .. }) if !recovered.answered.is_empty() => Incoming::Batch(recovered.answered),
        Err(_) => Incoming::Malformed,
    };
    let number = |one: Incoming| if let Incoming::Response(number) = one { number } else { None };
    wire::read(frame, options(Some(MAX_BATCH)), &Tolerated::default(), one, |all| {
        Incoming::Batch(all.into_iter().filter_map(number).collect())
    })
}

/// Writes the error of a response as the error response to the request with this number. `None` if the response has no error.
pub(super) fn readdressed(frame: &[u8], number: u64) -> Option<Bytes> {
    let error = member(frame, "error").filter(|error| Kind::of(error) == Kind::Object)?;
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.word("jsonrpc", "2.0");
        object.integer("id", number);
        push_json(object.member("error"), error);
    });
    Some(out.into())
}

/// The code of the error in a response.
pub(super) fn error_code(frame: &[u8]) -> Option<i64> {
    member(member(frame, "error")?, "code").and_then(integer)
}

/// The message of the error in a response.
pub(super) fn error_text(frame: &[u8]) -> Option<Cow<'_, str>> {
    member(member(frame, "error")?, "message").and_then(string)
}

/// The version that a handshake has agreed on, read from its response.
pub(super) fn agreed_version(response: &[u8]) -> Option<Cow<'_, str>> {
    member(member(response, "result")?, "protocolVersion").and_then(string)
}
