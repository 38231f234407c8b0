//! The status of a response, which depends on the frame in it (Streamable HTTP 2026-07-28, "Error Handling").

use super::era::Era;
use crate::error::RpcError;
use crate::json::read::{integer, member};
use crate::session::ReplyKind;

/// The status of a response whose first frame is this reply.
///
/// In the era with a handshake the status is always 200. In the era without a handshake it is
/// * 404 if a session refuses a request because its method is unknown;
/// * 400 if a session refuses a request as invalid, and for every error of a session or a handler with the code
///   [`HEADER_MISMATCH`](RpcError::HEADER_MISMATCH), [`MISSING_CAPABILITY`](RpcError::MISSING_CAPABILITY) or
///   [`UNSUPPORTED_VERSION`](RpcError::UNSUPPORTED_VERSION);
/// * 200 for everything else, such as any other error of a handler: clients read a 4xx as a sign of the other era, and a 5xx as a reason to
///   repeat the request.
#[must_use]
pub fn of_reply(era: Era, kind: ReplyKind, frame: &[u8]) -> u16 {
    match (era, kind) {
        (Era::Legacy, _) | (_, ReplyKind::Result) => 200,
        (Era::Modern, ReplyKind::Error | ReplyKind::Refused) => {
            of_error(kind, member(frame, "error").and_then(|error| member(error, "code")).and_then(integer))
        }
    }
}

fn of_error(kind: ReplyKind, code: Option<i64>) -> u16 {
    match code {
        Some(RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | RpcError::UNSUPPORTED_VERSION) => 400,
        Some(RpcError::METHOD_NOT_FOUND) if kind == ReplyKind::Refused => 404,
        Some(RpcError::PARSE | RpcError::INVALID_REQUEST | RpcError::INVALID_PARAMS) if kind == ReplyKind::Refused => 400,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn without_a_handshake_the_status_follows_from_the_code_and_the_source_of_an_error() {
        use ReplyKind::{Error, Refused, Result};
        for (code, refused, handler) in [
            (-32700, 400, 200),
            (-32600, 400, 200),
            (-32601, 404, 200),
            (-32602, 400, 200),
            (-32603, 200, 200),
            (-32020, 400, 400),
            (-32021, 400, 400),
            (-32022, 400, 400),
            (-32809, 200, 200),
            (7, 200, 200),
        ] {
            let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no"}}}}"#);
            assert_eq!(of_reply(Era::Modern, Refused, frame.as_bytes()), refused, "{code}");
            assert_eq!(of_reply(Era::Modern, Error, frame.as_bytes()), handler, "{code}");
            assert_eq!(of_reply(Era::Legacy, Refused, frame.as_bytes()), 200, "{code}");
        }
        for era in [Era::Modern, Era::Legacy] {
            assert_eq!(of_reply(era, Result, br#"{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32601}}}"#), 200);
        }
    }
}
