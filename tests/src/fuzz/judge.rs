//! The kind of a frame according to `serde_json` and the JSON-RPC specification, written for clarity and independently of the core's
//! parser.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order, repeated ones included.
pub(super) type Members<'a> = Vec<(String, &'a RawValue)>;

/// The members of `text`. `None` if it is not an object, or if a name is not valid text (half of a surrogate pair).
pub(super) fn members(text: &str) -> Option<Members<'_>> {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = Members<'de>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(member) = map.next_entry()? {
                all.push(member);
            }
            Ok(all)
        }
    }
    impl<'de> DeserializeSeed<'de> for Object {
        type Value = Members<'de>;
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_map(self)
        }
    }
    Object.deserialize(&mut serde_json::Deserializer::from_str(text)).ok()
}

/// The deepest nesting of text that is JSON.
pub(super) fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth -= 1,
            _ => {}
        }
    }
    deepest
}

/// A request id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    Number(i64),
    Large(u64),
    Text(String),
    /// `null`, which a request may have only on Tesseron. [`Self::read`] and [`Self::echoed`] do not return it.
    Null,
}

impl Id {
    /// Reads an id. Returns `None` if it is neither an `i64` or a `u64` nor a string, or is longer than `Limits::id_bytes`.
    pub(super) fn read(value: &RawValue) -> Option<Self> {
        if value.get().len() > 1024 { None } else { Self::echoed(value) }
    }

    /// Reads an id in an answer of ours. The text of the id may be longer than in the request, since a control character may have a short
    /// escape in the request and a `\u` escape in the answer.
    pub(super) fn echoed(value: &RawValue) -> Option<Self> {
        let number = serde_json::from_str(value.get()).map(Self::Number);
        let number = number.or_else(|_| serde_json::from_str(value.get()).map(Self::Large));
        number.or_else(|_| serde_json::from_str(value.get()).map(Self::Text)).ok()
    }
}

/// The kind of a frame.
#[derive(Debug)]
pub(super) enum FrameKind<'a> {
    NotJson,
    TooDeep,
    /// JSON that is neither object nor array.
    Scalar,
    Array,
    /// An object that `serde_json` cannot read.
    Unknown,
    Object(Message<'a>),
}

/// The kind of an object.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// A member of the envelope is repeated.
    Repeated {
        is_request: bool,
    },
    /// An object that is no message, or an invalid request. The answer is an error, with this id if there is one.
    Invalid(Option<Id>),
    /// A malformed notification.
    InvalidNotification,
    Notification,
    /// A request whose parameters are not an object.
    WrongParams(Id),
    Request {
        id: Id,
        method: String,
        params: Option<&'a str>,
    },
    /// A response without an id that could be ours.
    LostResponse,
    Response {
        id: Id,
        body: Body<'a>,
    },
}

/// The body of a response.
#[derive(Debug)]
pub(super) enum Body<'a> {
    Result(&'a str),
    Error {
        code: i64,
        message: String,
        data: Option<&'a str>,
    },
    Malformed,
    /// An error that `serde_json` cannot read, or that lacks a member.
    Unknown,
}

/// The deepest nesting that a session accepts in a frame.
const DEPTH: usize = 128;

/// Returns the kind of a frame.
pub(super) fn classify(frame: &[u8]) -> FrameKind<'_> {
    let Ok(raw) = serde_json::from_slice::<&RawValue>(frame) else { return FrameKind::NotJson };
    let text = raw.get();
    match text.as_bytes().first() {
        _ if depth(text) > DEPTH => FrameKind::TooDeep,
        Some(b'{') => members(text).map_or(FrameKind::Unknown, |members| FrameKind::Object(object(&members))),
        Some(b'[') => FrameKind::Array,
        _ => FrameKind::Scalar,
    }
}

/// Returns the kind of the object with these members.
pub(super) fn object<'a>(members: &Members<'a>) -> Message<'a> {
    let written = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
    // `null` counts as absent, but for a version and an id.
    let get = |name: &str| written(name).filter(|value| value.get() != "null");
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    let is_object = |value: &RawValue| value.get().starts_with('{');
    let names = ["jsonrpc", "id", "method", "params", "result", "error"];
    let (id, params) = (written("id"), get("params"));
    // A message that has nothing but a method of `null` is no response.
    let is_alone = written("result").is_none() && written("error").is_none();
    let method = if is_alone { written("method") } else { get("method") };
    if names.iter().any(|name| members.iter().filter(|(key, _)| key == name).count() > 1) {
        return Message::Repeated { is_request: written("method").is_some() && id.is_some() };
    }
    let proper_id = id.and_then(Id::read);
    let is_version_2 = get("jsonrpc").and_then(text).is_some_and(|version| version == "2.0");
    let (mut result, mut error) = (get("result"), get("error"));
    let is_response = result.is_some() || error.is_some();
    if let Some(method) = method {
        let method = text(method).filter(|_| is_version_2 && !is_response);
        let fits = params.is_none_or(is_object);
        return match (method, id.is_some(), proper_id) {
            (Some(_), false, _) if fits => Message::Notification,
            (_, false, _) => Message::InvalidNotification,
            (Some(method), true, Some(id)) if fits => Message::Request { id, method, params: params.map(RawValue::get) },
            (Some(_), true, Some(id)) => Message::WrongParams(id),
            (_, true, id) => Message::Invalid(id),
        };
    }
    if !is_response {
        // With nothing else, a result or an error that is `null` is the fault of a response.
        (result, error) = (written("result"), written("error").filter(|_| written("result").is_none()));
    }
    if result.is_none() && error.is_none() {
        return Message::Invalid(proper_id);
    }
    let Some(id) = proper_id else { return Message::LostResponse };
    let body = match (result, error) {
        (Some(result), None) if is_version_2 && is_object(result) => Body::Result(result.get()),
        (None, Some(error)) if is_version_2 && error.get() != "null" => error_object(error.get()),
        _ => Body::Malformed,
    };
    Message::Response { id, body }
}

/// An error that has all of its members, as `serde_json` reads it. What a session makes of any other error is checked in its unit tests.
fn error_object(text: &str) -> Body<'_> {
    members(text).and_then(|all| read_error(&all)).unwrap_or(Body::Unknown)
}

fn read_error<'a>(all: &Members<'a>) -> Option<Body<'a>> {
    // The last of repeated members counts.
    let get = |name: &str| all.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.get());
    // `-0` is the whole number zero, but `serde_json` reads it as a float.
    let code = get("code").map(|code| if code == "-0" { "0" } else { code });
    let code = serde_json::from_str(code?).ok()?;
    let message = serde_json::from_str(get("message")?).ok()?;
    Some(Body::Error { code, message, data: get("data") })
}
