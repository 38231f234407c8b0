//! The meaning of a response to a probe, to a handshake or to any other request, which depends on its status and its body (MCP 2026-07-28,
//! Versioning; Transports 2025-11-25, "Backwards Compatibility").

use bytes::Bytes;

use crate::error::RpcError;
use crate::http::message::{self, Incoming};
use crate::session::ExchangeId;

/// The kind of the request that a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// The probe: the request for the revisions of the server.
    Probe,
    /// The handshake request.
    Initialize,
    /// A request without a handshake.
    Modern,
    /// A request after a handshake. `has_session` is `true` if it was sent in an HTTP session, and `was_moved` if it was sent again because
    /// the server had forgotten an HTTP session.
    Legacy { has_session: bool, was_moved: bool },
}

/// The body of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The body is a frame with the response to the request.
    Ours(Bytes),
    /// The body is a batch with the response to the request, or text that is no message and was meant as the response.
    Mixed(Bytes),
    /// The status is 400, and the body is about a session: an error that names no request or another one, or text that is not a frame, with
    /// the word "session". Old servers send such a response if they have forgotten the HTTP session. Contains the error, rewritten as the
    /// response to the request; `None` if the body has no error object of JSON-RPC.
    OfSession(Option<Bytes>),
    /// The body is another frame.
    Foreign(Bytes),
    /// The body is not a frame, or was not read.
    None,
}

/// The consequence of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Pass the frame, which ends the request, to the session.
    Pass(Bytes),
    /// Pass the batch or the text that is no message, which ends the request, to the session.
    PassMixed(Bytes),
    /// Read the list of tools, and repeat the request with the headers that follow from the list. The frame is the error of the server: a
    /// header is missing or wrong. If the request is not a call of a tool, or was repeated for this reason before, pass the frame instead.
    LookUp(Bytes),
    /// Lose the request: the server has sent no response in a frame. If the status is not 4xx, it may have done the work or not.
    Lose,
    /// Treat the server as one of the era with a handshake, since the body has no response to the probe.
    TakeForLegacy,
    /// Try the transport of 2024-11-05, which the server may speak.
    TryOldTransport,
    /// Repeat the handshake, since the server has forgotten the HTTP session, and then the request, once.
    Reopen,
    /// Fail: the server has not accepted the request.
    Fail,
    /// Fail: the server does not speak MCP.
    FailAsNotMcp,
}

impl Answer {
    /// Reads the body of a response to the request with this number. An error in the body that names no request is taken as the response
    /// to this request. If the status is an error, so is an error that names another request.
    pub(super) fn read(body: Bytes, exchange: ExchangeId, status: u16) -> Self {
        let number = exchange.0;
        let readdressed = |body: Bytes| match message::readdressed(&body, number) {
            Some(frame) => Self::Ours(frame),
            None => Self::Foreign(body),
        };
        let is_of_session = status == 400 && names_session(message::error_text(&body).as_deref().map_or(&*body, str::as_bytes));
        let refused = |body: Bytes| match is_of_session {
            true => Self::OfSession(message::readdressed(&body, number)),
            false => readdressed(body),
        };
        match message::incoming(&body) {
            Incoming::Malformed if is_of_session => Self::OfSession(None),
            Incoming::Malformed => Self::None,
            Incoming::Response(Some(named)) if named == number => Self::Ours(body),
            Incoming::Batch(named) if named.contains(&number) => Self::Mixed(body),
            Incoming::Error => refused(body),
            Incoming::Response(_) if status >= 400 => refused(body),
            Incoming::Response(_) | Incoming::Batch(_) | Incoming::Message => Self::Foreign(body),
        }
    }
}

/// Returns `true` if a text contains `session`, in upper or lower case.
fn names_session(text: &[u8]) -> bool {
    text.windows(7).any(|word| word.eq_ignore_ascii_case(b"session"))
}

/// The verdict on the response to a request.
pub(super) fn judge(subject: Subject, status: u16, answer: Answer) -> Verdict {
    use Subject::{Initialize, Legacy, Modern, Probe};
    match (subject, status, answer) {
        (Probe | Initialize, 300..=399 | 401 | 403 | 429 | 500.., _) => Verdict::Fail,
        // The error of the server ends a call that it has refused in two HTTP sessions.
        (Legacy { has_session: true, was_moved: true }, 404, Answer::Ours(frame)) => Verdict::Pass(frame),
        (Legacy { has_session: true, .. }, 404, _) => Verdict::Reopen,
        (Legacy { has_session: true, was_moved: false }, 400, Answer::OfSession(_)) => Verdict::Reopen,
        (Modern, 400, Answer::Ours(frame) | Answer::OfSession(Some(frame)))
            if message::error_code(&frame) == Some(RpcError::HEADER_MISMATCH) =>
        {
            Verdict::LookUp(frame)
        }
        (_, _, Answer::Ours(frame) | Answer::OfSession(Some(frame))) => Verdict::Pass(frame),
        (_, _, Answer::Mixed(frame)) => Verdict::PassMixed(frame),
        (Probe, ..) => Verdict::TakeForLegacy,
        (Initialize, 400 | 404 | 405, _) => Verdict::TryOldTransport,
        (Initialize, 400..=499, _) => Verdict::Fail,
        (Initialize, ..) => Verdict::FailAsNotMcp,
        (Modern | Legacy { .. }, ..) => Verdict::Lose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    const RESULT: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    const UNKNOWN_METHOD: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#;
    const WITHOUT_ID: &str = r#"{"jsonrpc":"2.0","error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}"#;
    const MISMATCH: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"no"}}"#;
    const NOT_JSON: &str = "<html>";
    const LEGACY: Subject = Subject::Legacy { has_session: true, was_moved: false };
    const MOVED: Subject = Subject::Legacy { has_session: true, was_moved: true };
    const WITHOUT_SESSION: Subject = Subject::Legacy { has_session: false, was_moved: false };

    fn shown(subject: Subject, status: u16, body: &'static str) -> String {
        let answer = Answer::read(body.into(), ExchangeId(7), status);
        match judge(subject, status, answer) {
            Verdict::Pass(frame) if frame == body => String::from("pass"),
            Verdict::Pass(frame) => format!("pass {}", core::str::from_utf8(&frame).unwrap()),
            Verdict::PassMixed(_) => String::from("pass mixed"),
            Verdict::LookUp(_) => String::from("look up"),
            verdict => format!("{verdict:?}"),
        }
    }

    #[test]
    fn the_answer_to_a_probe_determines_the_era_or_makes_the_client_fail() {
        let legacy = "TakeForLegacy";
        for (status, body, expected) in [
            (200, RESULT, "pass"),
            (200, UNKNOWN_METHOD, "pass"),
            (404, UNKNOWN_METHOD, "pass"),
            (400, MISMATCH, "pass"),
            (200, NOT_JSON, legacy),
            (202, "", legacy),
            (204, "", legacy),
            (200, r#"{"jsonrpc":"2.0","id":8,"result":{}}"#, legacy),
            (200, r#"{"jsonrpc":"2.0","method":"x"}"#, legacy),
            (400, NOT_JSON, legacy),
            (404, "", legacy),
            (405, "", legacy),
            (406, "", legacy),
            (415, "", legacy),
            (422, "{}", legacy),
            (401, UNKNOWN_METHOD, "Fail"),
            (403, "", "Fail"),
            (429, "", "Fail"),
            (500, UNKNOWN_METHOD, "Fail"),
            (503, "", "Fail"),
            (302, "", "Fail"),
        ] {
            assert_eq!(shown(Subject::Probe, status, body), expected, "{status} {body}");
        }
        let named = WITHOUT_ID.replace(r#""error""#, r#""id":7,"error""#);
        for id in ["", r#""id":null,"#, r#""id":"server-error","#] {
            let body = WITHOUT_ID.replace(r#""error""#, &format!(r#"{id}"error""#)).leak();
            assert_eq!(shown(Subject::Probe, 400, body), format!("pass {named}"), "the error belongs to the request");
        }
        assert_eq!(shown(Subject::Probe, 200, WITHOUT_ID), format!("pass {named}"));
    }

    #[test]
    fn the_answer_to_a_handshake_opens_a_session_leads_to_the_old_transport_or_fails() {
        for (status, body, expected) in [
            (200, RESULT, "pass"),
            (200, UNKNOWN_METHOD, "pass"),
            (400, UNKNOWN_METHOD, "pass"),
            (400, "", "TryOldTransport"),
            (404, NOT_JSON, "TryOldTransport"),
            (405, "", "TryOldTransport"),
            (406, "", "Fail"),
            (401, RESULT, "Fail"),
            (500, "", "Fail"),
            (307, "", "Fail"),
            (200, NOT_JSON, "FailAsNotMcp"),
            (202, "", "FailAsNotMcp"),
        ] {
            assert_eq!(shown(Subject::Initialize, status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn for_any_other_request_the_body_decides_before_the_status_except_for_404_in_a_session() {
        for (status, body, modern, legacy) in [
            (200, RESULT, "pass", "pass"),
            (404, UNKNOWN_METHOD, "pass", "Reopen"),
            (404, "", "Lose", "Reopen"),
            (400, MISMATCH, "look up", "pass"),
            (200, MISMATCH, "pass", "pass"),
            (400, "", "Lose", "Lose"),
            (413, NOT_JSON, "Lose", "Lose"),
            (401, "", "Lose", "Lose"),
            (401, UNKNOWN_METHOD, "pass", "pass"),
            (302, "", "Lose", "Lose"),
            (500, UNKNOWN_METHOD, "pass", "pass"),
            (502, NOT_JSON, "Lose", "Lose"),
            (200, NOT_JSON, "Lose", "Lose"),
            (202, "", "Lose", "Lose"),
        ] {
            assert_eq!(shown(Subject::Modern, status, body), modern, "{status} {body}");
            assert_eq!(shown(LEGACY, status, body), legacy, "{status} {body}");
        }
        assert_eq!(shown(WITHOUT_SESSION, 404, ""), "Lose", "there is no HTTP session to lose");
        assert_eq!([UNKNOWN_METHOD, ""].map(|body| shown(MOVED, 404, body)), ["pass", "Reopen"], "in the second HTTP session");
    }

    #[test]
    fn a_400_about_a_session_repeats_the_handshake_once_for_each_call_in_a_session() {
        let of = |id: &'static str, message: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32000,"message":"{message}"}}}}"#);
            &*body.leak()
        };
        let bad = "Bad Request: No valid session ID provided";
        let readdressed = format!("pass {}", of(r#""id":7,"#, bad));
        for id in ["", r#""id":null,"#, r#""id":"server-error","#] {
            assert_eq!(shown(LEGACY, 400, of(id, bad)), "Reopen");
            assert_eq!(shown(LEGACY, 400, of(id, "Unknown SESSION")), "Reopen");
            for other in [MOVED, WITHOUT_SESSION, Subject::Modern, Subject::Initialize, Subject::Probe] {
                assert_eq!(shown(other, 400, of(id, bad)), readdressed, "{other:?}: once for each call, and only in a session");
            }
            assert!(shown(LEGACY, 400, of(id, "Bad Request")).starts_with("pass"), "not about a session");
            assert!(shown(LEGACY, 422, of(id, bad)).starts_with("pass"), "another status");
        }
        assert_eq!(shown(LEGACY, 400, of(r#""id":7,"#, bad)), "pass", "the server has read the request");
        let plain = r#"{"error":"Session not found"}"#;
        assert_eq!([LEGACY, MOVED].map(|subject| shown(subject, 400, plain)), ["Reopen", "Lose"]);
    }

    #[test]
    fn a_batch_or_unreadable_text_is_the_answer_if_it_contains_the_response() {
        let ours = r#"[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":7,"result":{}}]"#;
        assert_eq!(shown(LEGACY, 200, ours), "pass mixed");
        // Seen in the field: an array with one response, and a result with `NaN`.
        for subject in [Subject::Probe, Subject::Initialize, Subject::Modern, LEGACY] {
            assert_eq!(shown(subject, 200, r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#), "pass mixed");
            assert_eq!(shown(subject, 200, r#"{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}"#), "pass mixed");
        }
        assert_eq!(shown(LEGACY, 200, r#"[{"jsonrpc":"2.0","id":8,"result":{}}]"#), "Lose");
        assert_eq!(shown(LEGACY, 200, "[]"), "Lose");
    }
}
