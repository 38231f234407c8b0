//! The frames of `tesseron/bind`, with which a gateway proves on a Unix socket that it has the claim code of an app
//! (`docs/protocols/tesseron.md`, "Binding a Unix socket").

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::error::{RpcError, Violation};
use crate::json::read::{Kind, member, string};
use crate::json::write::Object;
use crate::wire::{self, Body, Element, Envelope, FrameBuffer, Malformed, Tolerated, WireId};

const METHOD: &str = "tesseron/bind";

/// The id of a bind. It differs from the ids of the session's requests, which are numbers.
const ID: &str = "bind";

const OPTIONS: wire::Options = wire::Options { depth: 128, id: 1024, batch: None, lenient: true };

/// A frame of a gateway that an app reads while it waits for a bind.
#[derive(Debug)]
pub enum BindRequest {
    /// A bind request.
    Bind {
        /// The gateway's id of the request.
        id: WireId,
        /// The claim code; `None` if it is missing or not text.
        code: Option<String>,
    },
    /// Any other frame.
    Other {
        /// The id to reply with; `null` if the frame has no id that can be read.
        id: WireId,
    },
}

/// A frame of an app that a gateway reads after it has sent a bind.
#[derive(Debug)]
pub enum BindReply {
    /// The bind was accepted.
    Bound,
    /// The bind was refused.
    Refused(RpcError),
    /// A response with the id of our bind that is neither the result `{ok: true}` nor an error.
    Malformed,
    /// Any other frame.
    Other,
}

/// Returns `true` if a frame may be a bind request. The frame is not parsed: it must be short, and contain the method without escapes.
#[must_use]
pub fn may_be_bind(frame: &[u8]) -> bool {
    const MAX_BYTES: usize = 512;
    frame.len() <= MAX_BYTES && core::str::from_utf8(frame).is_ok_and(|text| text.contains(METHOD))
}

/// Reads a frame of a gateway, while an app waits for a bind.
#[must_use]
pub fn read_bind(frame: &Bytes) -> BindRequest {
    let other = || BindRequest::Other { id: WireId::Null };
    let each = |element: Element<'_>| match element {
        Ok(Envelope::Request { id, method, params }) if method == METHOD.as_bytes() => {
            let code = params.and_then(|params| params.member("code")).and_then(string);
            BindRequest::Bind { id, code: code.map(Cow::into_owned) }
        }
        Ok(Envelope::Request { id, .. } | Envelope::Response { id, .. }) => BindRequest::Other { id },
        Err(Malformed { violation, answer: Some((Some(id), _)), .. }) => {
            // A bind whose parameters are not an object counts as a bind without a code.
            let is_bind = violation == Violation::InvalidParams && method_of(frame).as_deref() == Some(METHOD);
            if is_bind { BindRequest::Bind { id, code: None } } else { BindRequest::Other { id } }
        }
        _ => other(),
    };
    wire::read(frame, OPTIONS, &Tolerated::default(), each, |_| other())
}

fn method_of(frame: &[u8]) -> Option<Cow<'_, str>> {
    member(frame, "method").and_then(string)
}

/// Reads a frame of an app, after a gateway has sent a bind.
#[must_use]
pub fn read_bind_reply(frame: &Bytes) -> BindReply {
    let each = |element: Element<'_>| match element {
        Ok(Envelope::Response { id: WireId::Str(id), body }) if &*id == ID => match body {
            Body::Result(result) if Kind::of(result) == Kind::Object && member(result, "ok") == Some(b"true") => BindReply::Bound,
            Body::Error(error) => BindReply::Refused(error),
            Body::Result(_) | Body::Missing | Body::Malformed(_) => BindReply::Malformed,
        },
        _ => BindReply::Other,
    };
    wire::read(frame, OPTIONS, &Tolerated::default(), each, |_| BindReply::Other)
}

/// Writes the bind request, the first frame of a gateway.
#[must_use]
pub fn write_bind(code: &str) -> Bytes {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.string("jsonrpc", "2.0");
        object.string("id", ID);
        object.string("method", METHOD);
        object.object("params", |params| params.string("code", code));
    });
    out.into()
}

/// Writes the reply of an app that accepts a bind.
#[must_use]
pub fn write_bound(id: &WireId) -> Bytes {
    FrameBuffer::single(|frames| frames.response(id, 0, |out| Object::write(out, |result| result.boolean("ok", true))))
}

/// Writes the reply of an app that refuses a bind, or that waits for a bind and gets another frame.
#[must_use]
pub fn write_refused(id: &WireId, error: &RpcError) -> Bytes {
    FrameBuffer::single(|frames| frames.error(Some(id), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> String {
        match read_bind(&Bytes::copy_from_slice(text.as_bytes())) {
            BindRequest::Bind { id, code } => alloc::format!("bind {id:?} {code:?}"),
            BindRequest::Other { id } => alloc::format!("other {id:?}"),
        }
    }

    fn answered(text: &str) -> String {
        alloc::format!("{:?}", read_bind_reply(&Bytes::copy_from_slice(text.as_bytes())))
    }

    fn text(frame: &Bytes) -> &str {
        core::str::from_utf8(frame).unwrap()
    }

    #[test]
    fn a_bind_is_read_with_its_id_and_its_code() {
        let of = |params: &str| asked(&alloc::format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tesseron/bind"{params}}}"#));
        assert_eq!(of(r#","params":{"code":"PQ7N-4D"}"#), r#"bind Str("x") Some("PQ7N-4D")"#);
        assert_eq!(of(r#","params":{"code":"\u0041\n","more":[]}"#), r#"bind Str("x") Some("A\n")"#);
        for params in
            ["", r#","params":{}"#, r#","params":{"code":7}"#, r#","params":{"code":null}"#, r#","params":[]"#, r#","params":null"#]
        {
            assert_eq!(of(params), r#"bind Str("x") None"#, "{params}");
        }
    }

    #[test]
    fn a_bind_may_have_the_id_null() {
        let text = r#"{"jsonrpc":"2.0","id":null,"method":"tesseron/bind","params":{"code":"A"}}"#;
        assert_eq!(asked(text), r#"bind Null Some("A")"#);
    }

    #[test]
    fn any_other_first_frame_is_read_with_the_id_for_the_reply() {
        assert_eq!(asked(r#"{"jsonrpc":"2.0","id":7,"method":"actions/invoke","params":{}}"#), "other Int(7)");
        assert_eq!(asked(r#"{"jsonrpc":"2.0","id":7,"method":"actions/invoke","params":[]}"#), "other Int(7)");
        assert_eq!(asked(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#), r#"other Str("a")"#);
        for text in [
            r#"{"jsonrpc":"2.0","method":"tesseron/bind","params":{"code":"A"}}"#,
            r#"{"jsonrpc":"2.0","method":"tesseron/bind","params":[]}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"tesseron/bind","params":{"code":"A"}}]"#,
            r#"{"id":1,"id":2,"jsonrpc":"2.0","method":"tesseron/bind","params":{"code":"A"}}"#,
            "nope",
            "",
            "7",
        ] {
            assert_eq!(asked(text), "other Null", "{text}");
        }
    }

    #[test]
    fn only_a_response_with_our_id_answers_the_bind() {
        assert_eq!(answered(r#"{"jsonrpc":"2.0","id":"bind","result":{"ok":true}}"#), "Bound");
        assert!(answered(r#"{"jsonrpc":"2.0","id":"bind","error":{"code":-32009,"message":"no"}}"#).starts_with("Refused("));
        for result in ["{}", r#"{"ok":false}"#, "null", "true", r#"[{"ok":true}]"#] {
            let text = alloc::format!(r#"{{"jsonrpc":"2.0","id":"bind","result":{result}}}"#);
            assert_eq!(answered(&text), "Malformed", "{result}");
        }
        for text in [
            r#"{"jsonrpc":"2.0","id":"other","result":{"ok":true}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#,
            r#"{"jsonrpc":"2.0","id":"bind","method":"tesseron/hello","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#,
            "nope",
        ] {
            assert_eq!(answered(text), "Other", "{text}");
        }
    }

    #[test]
    fn each_end_reads_what_the_other_writes() {
        let bind = write_bind("PQ7N-4D");
        assert_eq!(text(&bind), r#"{"jsonrpc":"2.0","id":"bind","method":"tesseron/bind","params":{"code":"PQ7N-4D"}}"#);
        assert_eq!(asked(text(&bind)), r#"bind Str("bind") Some("PQ7N-4D")"#);
        let bound = write_bound(&WireId::Str("bind".into()));
        assert_eq!(text(&bound), r#"{"jsonrpc":"2.0","id":"bind","result":{"ok":true}}"#);
        assert_eq!(answered(text(&bound)), "Bound");
        let error = RpcError::fixed(-32009, "no \"entry\"");
        assert_eq!(
            text(&write_refused(&WireId::Int(3), &error)),
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32009,"message":"no \"entry\""}}"#
        );
        assert_eq!(
            text(&write_refused(&WireId::Null, &error)),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32009,"message":"no \"entry\""}}"#
        );
    }
}
