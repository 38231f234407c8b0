//! The body of a POST, as far as HTTP depends on it: the kind of message, and the parts of a request that headers repeat.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use bytes::Bytes;

use super::era::Posted;
use crate::error::{RpcError, Violation};
use crate::json::read::{Kind, member, string};
use crate::json::scan::IndexedObject;
use crate::json::write::{Object, write_integer};
use crate::json::{Frame, Json, Text};
use crate::wire::{self, Element, Envelope, Malformed, WireId};

/// The key of `_meta` that every request without a handshake has.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The other one.
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The deepest nesting of a body, that of [`crate::Limits::json_depth`].
const DEPTH: u8 = 128;
/// The longest id, that of [`crate::Limits::id_bytes`].
const ID_BYTES: usize = 1024;

/// The contents of a body.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Message(Message),
    Batch(Batch),
    /// Neither, with the id and the error to answer it with.
    Malformed(Option<WireId>, RpcError),
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
    /// The number of elements that are answered: requests, and those that are not well-formed.
    pub(super) replies: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: WireId,
    pub(super) method: Text,
    params: Json,
}

impl Request {
    /// The version that `_meta` names, if it does, even if not by text.
    fn meta(&self) -> Option<&[u8]> {
        member(self.params.as_bytes(), "_meta")
    }

    pub(super) fn names_version(&self) -> bool {
        self.meta().is_some_and(|meta| member(meta, META_VERSION).is_some())
    }

    /// The version that `_meta` names, if `_meta` has both members that are required, with the right types. Otherwise the session refuses
    /// the request, before its headers are compared.
    pub(super) fn version(&self) -> Option<Cow<'_, str>> {
        let meta = self.meta()?;
        member(meta, META_CAPABILITIES).filter(|value| Kind::of(value) == Kind::Object)?;
        string(member(meta, META_VERSION)?)
    }

    /// The member of the parameters that `Mcp-Name` repeats, if the method has one: its text, `None` if the session will refuse the request
    /// for lack of it.
    pub(super) fn name(&self) -> Option<Option<Cow<'_, str>>> {
        let key = match &*self.method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        Some(member(self.params.as_bytes(), key).and_then(string))
    }

    pub(super) fn calls_tool(&self) -> bool {
        &*self.method == "tools/call"
    }

    pub(super) fn opens_session(&self) -> bool {
        &*self.method == "initialize"
    }

    pub(super) fn listens(&self) -> bool {
        &*self.method == "subscriptions/listen"
    }

    pub(super) fn arguments(&self) -> &[u8] {
        member(self.params.as_bytes(), "arguments").unwrap_or(b"{}")
    }

    pub(super) fn posted(&self) -> Posted {
        let named = self.names_version();
        match &*self.method {
            "initialize" => Posted::Initialize { named },
            "server/discover" | "subscriptions/listen" => Posted::ModernRequest,
            _ => Posted::Request { named },
        }
    }
}

/// Reads a body that has at most `batch` messages.
pub(super) fn read(body: &Bytes, batch: usize) -> Body {
    let options = wire::Options { depth: DEPTH, id: ID_BYTES, batch: Some(batch), lenient: false };
    let frame = Frame::new(body);
    wire::read(
        body,
        options,
        |element| message(element, frame),
        |all: Vec<Body>| {
            let is_answered = |body: &&Body| matches!(body, Body::Message(Message::Request(_)) | Body::Malformed(Some(_), _));
            Body::Batch(Batch { replies: all.iter().filter(is_answered).count() })
        },
    )
}

fn message(element: Element<'_>, frame: Frame<'_>) -> Body {
    match element {
        Ok(Envelope::Request { id, method, params }) => {
            let method = Text::from(core::str::from_utf8(method).unwrap_or_default());
            let params = params.map_or_else(Json::empty_object, |params: &IndexedObject<'_>| frame.json(params.text()));
            Body::Message(Message::Request(Request { id, method, params }))
        }
        Ok(Envelope::Notification { .. }) => Body::Message(Message::Notification),
        Ok(Envelope::Response { .. }) => Body::Message(Message::Response),
        Err(Malformed { answer: Some((id, error)), .. }) => Body::Malformed(id, error),
        Err(Malformed { violation, answer: None }) => Body::Malformed(None, invalid(violation)),
    }
}

fn invalid(violation: Violation) -> RpcError {
    RpcError::fixed(RpcError::INVALID_REQUEST, violation.as_str())
}

/// The id in the body of a refusal.
#[derive(Clone, Debug)]
pub(super) enum ErrorId {
    /// No member `id`, as MCP 2026-07-28 has it where no request is meant.
    Absent,
    /// `null`, as JSON-RPC has it.
    Null,
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

/// The version that a handshake has agreed on, read from its response.
pub(super) fn agreed_version(response: &[u8]) -> Option<Cow<'_, str>> {
    member(member(response, "result")?, "protocolVersion").and_then(string)
}
