//! Checks that the core and `serde_json` agree on the meaning of a frame.

use bytes::Bytes;
use protocol_core::{Event, Invalid, Json, Lane, Outcome, Reply, Violation};
use serde_json::value::RawValue;

use super::judge::{Body, FrameKind, Id, Members, Message, classify, depth, members, object};
use testkit::Scripted;
use testkit::config::{client_config, server_config};

/// Reads the bytes as JSON, as a frame to a server, and as a frame to a client with a call in flight. The core and `serde_json` must accept
/// the same inputs with the same meaning, and the session must react as JSON-RPC demands.
pub fn envelope(data: &[u8]) {
    json(data);
    let kind = classify(data);
    to_a_server(data, &kind);
    to_a_client(data, &kind);
}

fn json(data: &[u8]) {
    let theirs = serde_json::from_slice::<&RawValue>(data).ok().map(RawValue::get).filter(|text| depth(text) <= PAYLOAD_DEPTH);
    let ours = Json::parse(data.to_vec()).ok();
    assert_eq!(ours.as_ref().map(Json::as_str), theirs, "both accept the same text, or refuse it");
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.is_object(), theirs.starts_with('{'));
    let value = serde_json::from_str::<serde_json::Value>(theirs).ok();
    assert_eq!(ours.decode::<serde_json::Value>().ok(), value);
    if let Ok(text) = serde_json::from_str::<String>(theirs) {
        assert_eq!(Json::string(&text).decode::<String>().as_deref(), Ok(&*text), "a written string is read unchanged");
    }
    for (name, _) in members(theirs).unwrap_or_default() {
        let last = members(theirs).and_then(|all| all.into_iter().rev().find(|(key, _)| *key == name));
        assert_eq!(ours.member(&name).as_ref().map(Json::as_str), last.map(|(_, value)| value.get()), "the last {name:?} counts");
    }
}

/// The methods whose requests a server passes to its owner.
const SERVED: [&str; 11] = [
    "subscriptions/listen",
    "tools/call",
    "tools/list",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
];

/// The deepest nesting of a payload. The frame around it adds a few levels.
const PAYLOAD_DEPTH: usize = 120;

/// The id of a response, and its code if it is an error.
type Answer = (Option<Id>, Option<i64>);

fn to_a_server(data: &[u8], kind: &FrameKind<'_>) {
    let mut end = Scripted::server(server_config());
    end.session.handle_frame(Bytes::copy_from_slice(data), Lane::CHANNEL, end.now).expect("the session takes frames");
    let mut rules = Vec::new();
    let (mut served, mut is_stateless) = (None, false);
    for event in end.events() {
        match event {
            Event::Violation(rule) => rules.push(rule),
            Event::Unreadable(frame) => rules.push(frame.rule),
            Event::Request { id, request, caller, .. } => {
                // The parameters are returned as the result. A stateless result also names the server in its `_meta`.
                is_stateless = caller.protocol() == "2026-07-28";
                end.session.respond(id, Reply::Raw(request.params().clone()), end.now).expect("the call is running");
                served = Some(request.params().clone());
            }
            Event::Log(_) | Event::Notification(_) | Event::Cancelled { .. } => {}
            Event::Ready(_) if matches!(kind, FrameKind::Object(Message::Request { method, .. }) if method.as_str() == "initialize") =>
                {}
            other => panic!("a frame does not cause {other:?}"),
        }
    }
    let raw = end.sent();
    let answered = answers(&raw);
    let assert_refused = |answer: Answer, rule| {
        assert_eq!(answered, [answer]);
        assert_eq!(rules, [rule]);
        assert_eq!(served, None);
    };
    match kind {
        FrameKind::NotJson => {
            let rule = rules.first().copied().expect("a rule is broken");
            assert!(matches!(rule, Violation::NotJson | Violation::TooDeep), "{rule:?}");
            assert_refused((None, Some(-32700)), rule);
        }
        FrameKind::TooDeep => assert_refused((None, Some(-32700)), Violation::TooDeep),
        FrameKind::Scalar => assert_refused((None, Some(-32600)), Violation::InvalidEnvelope),
        FrameKind::Array => assert_refused((None, Some(-32600)), Violation::BatchUnsupported),
        // `serde_json` cannot read the object, so no meaning is expected.
        FrameKind::Unknown => {}
        FrameKind::Object(message) => match message {
            Message::Repeated { is_request } => {
                assert_eq!(rules, [Violation::RepeatedMember]);
                assert_eq!(answered, if *is_request { vec![(None, Some(-32600))] } else { vec![] });
            }
            Message::Invalid(id) => assert_refused((id.clone(), Some(-32600)), Violation::InvalidEnvelope),
            Message::WrongParams(id) => assert_refused((Some(id.clone()), Some(-32602)), Violation::InvalidParams),
            Message::InvalidNotification | Message::Notification | Message::LostResponse | Message::Response { .. } => {
                assert_eq!(answered, [], "a notification and a response are never answered");
                assert_eq!(served, None);
            }
            Message::Request { id, method, params } => {
                // The session also reports a `_meta` that the parameters repeat, for which `classify` does not look.
                assert_eq!(answered.len(), 1, "a request is answered once");
                assert!(answered[0].0.as_ref() == Some(id), "the answer has the id of the request: {answered:?}");
                if let Some(served) = served {
                    assert!(SERVED.contains(&method.as_str()), "{method} is not served");
                    assert_eq!(served.as_str(), params.unwrap_or("{}"), "G13");
                    // A frame contains no line break, so the session writes those between members as spaces.
                    let params = params.unwrap_or("{}").replace(['\r', '\n'], " ");
                    if is_stateless {
                        // If a name has half of a surrogate pair, `serde_json` cannot read the parameters, and none of them is checked.
                        for (key, value) in members(&params).unwrap_or_default().iter().filter(|(key, _)| key != "_meta") {
                            assert!(raw[0].contains(value.get()), "G13: {key}: {raw:?}");
                        }
                    } else {
                        assert!(raw[0].contains(&params), "G13: {raw:?}");
                    }
                }
            }
        },
    }
}

fn answers(frames: &[String]) -> Vec<Answer> {
    let read = |frame: &String| answer(&members(frame).expect("an object"), frame);
    frames.iter().map(read).collect()
}

fn answer(all: &Members<'_>, frame: &str) -> Answer {
    match object(all) {
        Message::Response { id, body: Body::Result(_) } => (Some(id), None),
        Message::Response { id, body: Body::Error { code, .. } } => (Some(id), Some(code)),
        Message::LostResponse => {
            let frame: serde_json::Value = serde_json::from_str(frame).expect("JSON");
            let id = all.iter().find(|(name, _)| name == "id").and_then(|(_, id)| Id::echoed(id));
            (id, frame.get("error").map(|error| error["code"].as_i64().expect("a code")))
        }
        other => panic!("a server with nothing to do only answers: {other:?}"),
    }
}

fn to_a_client(data: &[u8], kind: &FrameKind<'_>) {
    let mut end = Scripted::client(client_config());
    let call = end.invoke(protocol_core::Invoke::custom("x/y", Json::empty_object()));
    end.drain();
    end.session.handle_frame(Bytes::copy_from_slice(data), Lane::CHANNEL, end.now).expect("the session takes frames");
    let done = end.events().into_iter().find_map(|event| match event {
        Event::Done { id, outcome, .. } => {
            assert_eq!(id, call);
            Some(outcome)
        }
        _ => None,
    });
    let body = match kind {
        // The id of the call: the handshake has used 1.
        FrameKind::Object(Message::Response { id: Id::Number(2), body }) => body,
        FrameKind::Unknown => return,
        // A frame that is no message may have been meant as the response.
        FrameKind::NotJson
        | FrameKind::TooDeep
        | FrameKind::Array
        | FrameKind::Object(Message::Repeated { .. } | Message::Invalid(Some(Id::Number(2)))) => {
            return assert!(matches!(done, None | Some(Outcome::Invalid(Invalid::Unreadable(_)))), "{done:?}");
        }
        _ => return assert_eq!(done, None, "only the response to a call ends it"),
    };
    match (done.expect("a response ends its call"), body) {
        (Outcome::Result(ours), Body::Result(theirs)) => assert_eq!(ours.as_str(), *theirs, "G13"),
        (Outcome::Error(ours), Body::Error { code, message, data }) => {
            assert_eq!((ours.code, ours.message.as_str()), (*code, message.as_str()));
            assert_eq!(ours.data.as_deref().map(Json::as_str), *data);
        }
        (Outcome::Invalid(Invalid::Unreadable(_)), Body::Malformed) | (_, Body::Unknown) => {}
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}
