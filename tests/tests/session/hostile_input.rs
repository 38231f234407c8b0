//! Invalid frames. Each is ignored, or gets the answer that JSON-RPC 2.0 (sections 4 to 6) and MCP prescribe. No session panics (G6), and
//! running calls go on unless the frame is too long.

use std::time::Duration;

use bytes::Bytes;
use protocol_core::{CloseReason, Event, InboundId, Lane, Level, LogRecord, Notification, Outcome, RpcError, Violation, mcp};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{
    call_tool, discovered, error, initialize, json, notification, ok, progress, request, result, stateless_request,
    stateless_result,
};

/// Requests that only clients make.
const CALLS: &str = "tools/call tools/list prompts/get prompts/list resources/read resources/list resources/templates/list \
                     resources/subscribe resources/unsubscribe completion/complete logging/setLevel";

/// Requests that only servers make.
const INPUT_REQUESTS: &str = "sampling/createMessage elicitation/create roots/list";

/// Notifications that only clients send.
const FROM_CLIENTS: &str = "notifications/initialized notifications/roots/list_changed";

/// Notifications that only servers send.
const FROM_SERVERS: &str = "notifications/message notifications/tools/list_changed notifications/prompts/list_changed \
                            notifications/resources/list_changed notifications/resources/updated";

/// Values of each type of JSON.
pub(super) const VALUES: [&str; 8] = ["null", "true", "1", "-1", "1.5", r#""x""#, "[]", "{}"];

/// Those of [`VALUES`] that do not begin with a byte of `right`: `wrong("{")` returns all values but objects.
pub(super) fn wrong(right: &str) -> impl Iterator<Item = &'static str> {
    VALUES.into_iter().filter(move |value| !right.contains(&value[..1]))
}

/// An end in some phase of its session, with a running call if the phase allows one.
struct Victim {
    end: Scripted,
    running: Running,
    answers: Answers,
}

/// The call that runs at a victim.
enum Running {
    None,
    /// The victim serves it, and this frame is its response.
    Served(InboundId, String),
    /// The victim has made it.
    Made,
}

/// The faulty frames that a victim answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answers {
    All,
    /// Those with the id of a request.
    Requests,
    None,
}

impl Victim {
    fn new(mut end: Scripted, running: Running, answers: Answers) -> Self {
        end.drain();
        Self { end, running, answers }
    }

    /// Servers in each phase of the handshake, and a server of both eras that serves a stateless request. The last server of the list has
    /// done the handshake, and serves a call.
    fn servers() -> Vec<Self> {
        let mut answered = Scripted::new(server_config());
        answered.frame(&initialize(0, "2025-11-25", "{}"));
        let mut ready = Scripted::server(server_config());
        let call = ready.receive_call(1);
        vec![
            Self::new(Scripted::new(server_config()), Running::None, Answers::All),
            Self::new(answered, Running::None, Answers::All),
            Self::stateless_server(mcp::Era::Auto),
            Self::new(ready, Running::Served(call, ok(1)), Answers::All),
        ]
    }

    /// A server that serves a stateless request.
    fn stateless_server(era: mcp::Era) -> Self {
        let mut server = Scripted::new(with(server_config(), |config| config.era = era));
        server.frame(&stateless_request(1, "tools/call", r#""name":"t","#, "{}", ""));
        let call = server.request();
        let response = stateless_result(1, r#""content":[{"type":"text","text":"ok"}],"#);
        Self::new(server, Running::Served(call, response), Answers::All)
    }

    /// A client that waits for the answer to its handshake, and one that has done the handshake and made a call.
    fn clients() -> Vec<Self> {
        let mut ready = Scripted::client(client_config());
        ready.call();
        vec![
            Self::new(Scripted::new(client_config()), Running::None, Answers::Requests),
            Self::new(ready, Running::Made, Answers::Requests),
        ]
    }

    /// A client that has made a stateless request. It answers no request.
    fn stateless_client() -> Self {
        let mut client = Scripted::new(with(client_config(), |config| config.era = mcp::Era::Modern));
        client.drain().frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{}}"#));
        client.call();
        Self::new(client, Running::Made, Answers::None)
    }

    /// Servers and clients in every phase of both eras.
    fn all() -> impl Iterator<Item = Self> {
        let stateless = [Self::stateless_server(mcp::Era::Modern), Self::stateless_client()];
        Self::servers().into_iter().chain(Self::clients()).chain(stateless)
    }

    /// Returns `true` if the victim sends `answer` to a faulty frame that demands it.
    fn sends(&self, answer: &str) -> bool {
        match self.answers {
            Answers::All => true,
            Answers::Requests => answer.contains(r#""id":"#),
            Answers::None => false,
        }
    }

    /// Checks that a ping is answered, if the era has pings, and that the running call, if any, ends as usual.
    #[track_caller]
    fn check_alive(&mut self, why: &str) {
        self.end.drain();
        if self.end.session.config().era != mcp::Era::Modern {
            self.end.frame(&request(1000, "ping", "{}"));
            assert_eq!(self.end.sent(), [result(1000)], "{why}");
        }
        match &self.running {
            Running::None => {}
            Running::Served(id, response) => {
                self.end.respond(*id);
                assert_eq!((self.end.sent(), self.end.events()), (vec![response.clone()], vec![]), "{why}");
            }
            Running::Made => {
                self.end.frame(&progress(2, 1.0)).frame(&result(2).replace("{}", r#"{"resultType":"complete"}"#));
                let events = self.end.events();
                assert!(
                    matches!(events[..], [Event::Progress { .. }, Event::Done { outcome: Outcome::Result(_), .. }]),
                    "{why}: {events:?}"
                );
            }
        }
    }
}

/// Passes `frame` to both ends in every phase of both eras. Each end must report `rule`, and its running call must go on. Servers must send
/// `answer`; clients only if `answer` has an id, and stateless clients never.
#[track_caller]
fn refused(frame: impl Into<Bytes>, rule: Violation, answer: Option<&str>) {
    refused_by(Victim::all(), frame, rule, answer);
}

/// [`refused`], by the given ends alone.
#[track_caller]
fn refused_by(victims: impl IntoIterator<Item = Victim>, frame: impl Into<Bytes>, rule: Violation, answer: Option<&str>) {
    let frame = frame.into();
    let shown = String::from_utf8_lossy(&frame[..frame.len().min(200)]).into_owned();
    for mut victim in victims {
        victim.end.session.handle_frame(frame.clone(), Lane::CHANNEL, victim.end.now).unwrap();
        let expected = answer.filter(|answer| victim.sends(answer));
        assert_eq!(victim.end.sent(), expected.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{shown}");
        let events = victim.end.events();
        assert_eq!(events.iter().map(Event::violation).collect::<Vec<_>>(), [Some(rule)], "{shown}");
        victim.check_alive(&shown);
    }
}

/// An error reply without an id.
fn without_id(code: i64, rule: Violation) -> String {
    format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"{rule}"}}}}"#)
}

// ---- Frames that are no message ----

#[test]
fn a_server_answers_invalid_json_with_a_parse_error_without_an_id_and_a_client_does_not() {
    let nul = "\0".to_owned();
    for frame in [
        "",
        " ",
        "garbage",
        "npm WARN deprecated",
        "{",
        "}",
        "[",
        "[}",
        "{}{}",
        "{} x",
        r#"{"jsonrpc":"2.0","id":7,"method":"ping""#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping"},"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping",}"#,
        r#"{"jsonrpc":"2.0","id":7 "method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,,"method":"ping"}"#,
        r#"{jsonrpc:"2.0","id":7,"method":"ping"}"#,
        r#"{'jsonrpc':'2.0','id':7,'method':'ping'}"#,
        r#"{"jsonrpc":"2.0","id":07,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":+7,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":.7,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7.,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":0x7,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":NaN,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":Infinity,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":undefined,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":True,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping" /* hi */}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"\x70ing"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"\u12g4"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping\"}"#,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pi\nng\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pi\0ng\"}",
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}",
        "\u{a0}{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}",
        &nul,
    ] {
        refused(frame.to_owned(), Violation::NotJson, Some(&without_id(-32700, Violation::NotJson)));
    }
}

#[test]
fn a_frame_that_is_not_utf_8_is_invalid_json() {
    let around = |inside: &[u8]| [br#"{"jsonrpc":"2.0","id":7,"method":"ping","x":""#, inside, br#""}"#].concat();
    for frame in [
        vec![0xff],
        vec![0xff, 0xfe, b'{', 0, b'}', 0],
        around(b"\xff"),
        around(b"\x80"),
        around(b"\xc3"),
        around(b"\xc0\xaf"),
        around(b"\xe0\x80\x80"),
        around(b"\xed\xa0\x80"),
        around(b"\xf4\x90\x80\x80"),
        around(b"\xf0\x9f\x98"),
        br#"{"jsonrpc":"2.0","id":7,"method":"p"#.iter().copied().chain([0xe2, 0x82]).collect(),
    ] {
        refused(frame, Violation::NotJson, Some(&without_id(-32700, Violation::NotJson)));
    }
}

#[test]
fn a_truncated_message_is_invalid_json() {
    for frame in [
        request(7, "tools/call", r#"{"name":"t","arguments":{"a":[1.5e3,"\u00e9é",null]},"_meta":{"progressToken":"x"}}"#),
        progress(2, 1.0),
        // One of a call that runs ends that call: see `calling.rs`.
        result(9),
        error(9, -32603, "no"),
        initialize(7, "2025-11-25", r#"{"sampling":{}}"#),
        "[{},{}]".to_owned(),
    ] {
        let frame = Bytes::from(frame);
        for mut victim in Victim::all() {
            let answers = usize::from(victim.answers == Answers::All);
            for end in 0..frame.len() {
                victim.end.session.handle_frame(frame.slice(..end), Lane::CHANNEL, victim.end.now).unwrap();
                assert_eq!(victim.end.sent(), vec![without_id(-32700, Violation::NotJson); answers]);
                let events = victim.end.events();
                assert_eq!(events.iter().map(Event::violation).collect::<Vec<_>>(), [Some(Violation::NotJson)]);
            }
            victim.check_alive("the beginnings of a message");
        }
    }
}

#[test]
fn a_frame_of_two_hundred_thousand_brackets_is_refused_with_an_error() {
    let many = |text: &str| text.repeat(200_000);
    for frame in [
        many("["),
        format!("{}{}", many("["), many("]")),
        many(r#"{"a":"#),
        format!("{}1{}", many(r#"{"a":"#), many("}")),
        many(r#"[{"a":"#),
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"a":{}{}}}}}"#, many("["), many("]")),
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}"#, many(r#"{"_meta":"#)),
        format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{"a":{}"#, many("[")),
        format!(r#"{{"jsonrpc":"2.0","id":9,"error":{{"code":1,"message":"","data":{}"#, many("[")),
        format!(r#"{{"jsonrpc":"2.0","id":{}"#, many("[")),
        format!(r#"{{"x":{}"#, many("[")),
    ] {
        refused(frame, Violation::TooDeep, Some(&without_id(-32700, Violation::TooDeep)));
    }
}

#[test]
fn nesting_is_accepted_up_to_the_configured_depth() {
    // The message and its parameters are two levels.
    let nested = |depth: usize| request(7, "tools/list", &format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 2), "]".repeat(depth - 2)));
    // The handshake of `Scripted::server` needs five levels, for the capabilities that the client declares.
    for limit in [5, 8, 128] {
        let mut server = Scripted::server(with(server_config(), |config| config.limits.json_depth = limit));
        server.frame(&nested(limit.into()));
        server.request();
        server.frame(&nested(usize::from(limit) + 1));
        assert_eq!(server.violations(), [Violation::TooDeep]);
        assert_eq!(server.sent(), [without_id(-32700, Violation::TooDeep)]);
    }
}

#[test]
fn json_that_is_no_message_is_answered_as_an_invalid_request() {
    for frame in [
        "null",
        "true",
        "0",
        "-1.5e300",
        r#""ping""#,
        "{}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":null}"#,
        r#"{"jsonrpc":"2.0","params":{}}"#,
        r#"{"JSONRPC":"2.0","ID":7,"METHOD":"ping"}"#,
        // A message whose id is invalid is neither a request nor a notification.
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":-0,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[7],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#,
    ] {
        refused(frame.to_owned(), Violation::InvalidEnvelope, Some(&without_id(-32600, Violation::InvalidEnvelope)));
    }
}

#[test]
fn an_id_or_a_progress_token_that_is_too_long_is_invalid() {
    let limit = server_config().limits.id_bytes;
    let id = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    let frame = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    refused(frame(&id(limit + 1)), Violation::InvalidEnvelope, Some(&without_id(-32600, Violation::InvalidEnvelope)));
    let mut server = Scripted::server(server_config());
    server.frame(&frame(&id(limit)));
    assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id(limit))]);

    server.frame(&request(7, "tools/call", &format!(r#"{{"_meta":{{"progressToken":{}}}}}"#, id(limit + 1))));
    assert_eq!(server.sent(), [error(7, -32602, "progressToken must be text or a whole number")]);
    server.frame(&notification("notifications/cancelled", &format!(r#"{{"requestId":{}}}"#, id(limit + 1))));
    assert_eq!((server.sent(), server.violations()), (vec![], vec![Violation::InvalidParams, Violation::InvalidParams]));
}

#[test]
fn a_request_of_the_wrong_shape_is_answered_with_its_id() {
    for id in ["7", r#""seven""#] {
        for members in [
            r#""method":"ping""#,
            r#""jsonrpc":"1.0","method":"ping""#,
            r#""jsonrpc":"2","method":"ping""#,
            r#""jsonrpc":2.0,"method":"ping""#,
            r#""jsonrpc":null,"method":"ping""#,
            r#""jsonrpc":["2.0"],"method":"ping""#,
            r#""jsonrpc":"2.0","method":null"#,
            r#""jsonrpc":"2.0","method":7"#,
            r#""jsonrpc":"2.0","method":["ping"]"#,
            r#""jsonrpc":"2.0","method":{}"#,
            r#""jsonrpc":"2.0","method":"\ud800""#,
            r#""jsonrpc":"2.0","method":"ping","result":{}"#,
            r#""jsonrpc":"2.0","method":"ping","error":{"code":1,"message":""}"#,
        ] {
            let answer =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"{}"}}}}"#, Violation::InvalidEnvelope);
            refused(format!(r#"{{"id":{id},{members}}}"#), Violation::InvalidEnvelope, Some(&answer));
        }
    }
}

#[test]
fn parameters_that_are_not_an_object_are_invalid_for_every_method() {
    for method in ["ping", "initialize", "tools/call", "sampling/createMessage", "roots/list", "acme/what"] {
        for params in wrong("{n") {
            let answer = error(7, -32602, Violation::InvalidParams.as_str());
            refused(request(7, method, params), Violation::InvalidParams, Some(&answer));
        }
    }
}

#[test]
fn a_message_that_repeats_a_member_of_its_envelope_is_refused() {
    for frame in [
        r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"\u0069d":8,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping","m\u0065thod":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{},"params":{}}"#,
    ] {
        refused(frame.to_owned(), Violation::RepeatedMember, Some(&without_id(-32600, Violation::RepeatedMember)));
    }
    for frame in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":9,"result":{},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"id":3,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":""},"error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{},"_meta":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1,"_meta":{},"\u005fmeta":{}}}"#,
    ] {
        refused(frame.to_owned(), Violation::RepeatedMember, None);
    }
    for method in ["ping", "initialize", "tools/call", "sampling/createMessage", "acme/what"] {
        let answer = error(7, -32600, "_meta is repeated");
        for params in [r#"{"_meta":{},"_meta":{}}"#, r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"_meta":{},"\u005fmeta":{}}"#] {
            let answering = Victim::all().filter(|victim| victim.answers != Answers::None);
            refused_by(answering, request(7, method, params), Violation::RepeatedMember, Some(&answer));
            refused_by([Victim::stateless_client()], request(7, method, params), Violation::WrongDirection, None);
        }
    }
}

#[test]
fn in_a_revision_without_batches_an_array_is_one_invalid_request() {
    for frame in
        ["[]", "[1]", "[[]]", r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, r#" [ {"jsonrpc":"2.0","id":9,"result":{}} , 1 ] "#]
    {
        refused(frame.to_owned(), Violation::BatchUnsupported, Some(&without_id(-32600, Violation::BatchUnsupported)));
    }
    for revision in ["2024-11-05", "2025-06-18"] {
        let mut server = Scripted::server_at(server_config(), revision, "{}");
        server.frame(&format!("[{}]", call_tool(7, false)));
        assert_eq!(
            (server.sent(), server.events()),
            (vec![without_id(-32600, Violation::BatchUnsupported)], vec![Event::Violation(Violation::BatchUnsupported)])
        );
    }
}

#[test]
fn in_a_revision_with_batches_a_client_does_not_answer_invalid_elements_of_a_batch() {
    let config = with(client_config(), |config| {
        config.protocol = protocol_core::Protocol::Mcp { side: mcp::Side::Client, newest: mcp::Revision::R2025_03_26 };
    });
    let mut client = Scripted::client_at(config, "2025-03-26", r#"{"tools":{}}"#);
    client.call();
    client.sent();
    client.frame(&format!(r#"[1,"x",{{}},{},{}]"#, request(7, "ping", "{}"), result(2)));
    assert_eq!(client.sent(), [result(7)]);
    assert!(matches!(client.events()[..], [_, _, _, Event::Done { .. }]));
}

// ---- Frames that are too long ----

#[test]
fn a_line_of_64_mib_is_refused_without_parsing() {
    let mut server = Scripted::server(server_config());
    server.session.handle_frame(vec![b'['; 64 << 20].into(), Lane::CHANNEL, server.now).unwrap();
    assert_eq!(server.sent(), [without_id(-32600, Violation::FrameTooLarge)]);
    assert!(server.session.is_closed());
}

// ---- Messages that are never answered ----

#[test]
fn a_notification_is_never_answered_and_never_served() {
    let methods =
        [CALLS, INPUT_REQUESTS, FROM_CLIENTS, FROM_SERVERS, "initialize ping notifications/cancelled notifications/progress"];
    let others = ["", "\\u0000", "rpc.discover", "notifications/elicitation/complete", "notifications/tasks/status"];
    let params = [
        "",
        r#","params":{}"#,
        r#","params":[]"#,
        r#","params":null"#,
        r#","params":{"_meta":5}"#,
        r#","params":{"_meta":{},"_meta":{}}"#,
    ];
    for mut victim in Victim::all() {
        for method in methods.into_iter().flat_map(|methods| methods.split(' ')).chain(others) {
            for params in params {
                for version in [r#""jsonrpc":"2.0","#, r#""jsonrpc":"1.0","#, ""] {
                    let frame = format!(r#"{{{version}"method":"{method}"{params}}}"#);
                    victim.end.frame(&frame);
                    assert_eq!(victim.end.sent(), Vec::<String>::new(), "{frame}");
                    let events = victim.end.events();
                    let served = events.iter().any(|event| matches!(event, Event::Request { .. } | Event::InputRequested { .. }));
                    assert!(!served, "{frame}: {events:?}");
                }
            }
        }
        victim.check_alive("notifications");
    }
}

#[test]
fn a_response_to_no_request_of_ours_is_reported_and_never_answered() {
    for (frame, rule) in [
        (r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"no"}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":99,"result":5}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":99,"error":5}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":99,"result":{},"error":{}}"#, Violation::UnknownResponse),
        (r#"{"id":99,"result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":-1,"result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","id":[],"result":{}}"#, Violation::UnknownResponse),
        (r#"{"jsonrpc":"2.0","result":{}}"#, Violation::UnknownResponse),
        (r#"{"level":"info","result":{}}"#, Violation::InvalidEnvelope),
        (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}"#, Violation::ErrorWithoutId),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#, Violation::ErrorWithoutId),
    ] {
        refused(frame.to_owned(), rule, None);
    }
}

// ---- Messages to the wrong end ----

#[test]
fn a_request_to_the_wrong_end_is_not_found_and_a_notification_to_it_is_ignored() {
    let not_found = |method: &str| error(7, -32601, &format!("method not found: {method}"));
    for (mut end, methods, notifications) in [
        (Scripted::server(server_config()), INPUT_REQUESTS, FROM_SERVERS),
        (Scripted::client(client_config()), &format!("initialize {CALLS}"), FROM_CLIENTS),
    ] {
        for method in methods.split(' ') {
            end.frame(&request(7, method, "{}"));
            assert_eq!((end.sent(), end.events()), (vec![not_found(method)], vec![Event::Violation(Violation::WrongDirection)]));
        }
        for method in notifications.split(' ') {
            end.frame(&notification(method, "{}"));
            assert_eq!((end.sent(), end.events()), (vec![], vec![Event::Violation(Violation::WrongDirection)]), "{method}");
        }
    }
}

#[test]
fn an_unknown_method_is_not_found_and_only_the_start_of_its_name_is_quoted() {
    for mut victim in Victim::servers().into_iter().chain(Victim::clients()) {
        for (method, shown) in [
            ("acme/what", "acme/what".to_owned()),
            ("", String::new()),
            ("tools/call ", "tools/call ".to_owned()),
            ("TOOLS/CALL", "TOOLS/CALL".to_owned()),
            ("a\\\"\\n\\u0000", "a\\\"\\n\\u0000".to_owned()),
            (&"é".repeat(100_000), "é".repeat(64)),
        ] {
            victim.end.frame(&request(7, method, "{}"));
            assert_eq!(victim.end.sent(), [error(7, -32601, &format!("method not found: {shown}"))]);
            assert_eq!(victim.end.events(), []);
        }
        victim.check_alive("unknown methods");
    }
}

// ---- Wrong types in the fields that the session reads ----

#[test]
fn meta_or_a_progress_token_of_the_wrong_type_is_refused_for_every_method() {
    // The last victims of the lists have done the handshake.
    let server = |method| (Victim::servers().pop().unwrap(), method);
    let client = |method| (Victim::clients().pop().unwrap(), method);
    let servers = CALLS.split(' ').chain(["initialize", "ping"]).map(server);
    for (mut victim, method) in servers.chain(INPUT_REQUESTS.split(' ').chain(["ping"]).map(client)) {
        for meta in wrong("{n") {
            victim.end.frame(&request(7, method, &format!(r#"{{"_meta":{meta}}}"#)));
            assert_eq!(victim.end.sent(), [error(7, -32602, "_meta must be an object")], "{method} {meta}");
            assert_eq!(victim.end.events(), [Event::Violation(Violation::InvalidParams)]);
        }
        for token in wrong("\"n").filter(|value| !["1", "-1"].contains(value)).chain(["1.0", "\"\\ud800\"", "18446744073709551616"])
        {
            victim.end.frame(&request(7, method, &format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#)));
            assert_eq!(victim.end.sent(), [error(7, -32602, "progressToken must be text or a whole number")], "{method} {token}");
            assert_eq!(victim.end.events(), [Event::Violation(Violation::InvalidParams)]);
        }
        victim.check_alive(method);
    }
}

#[test]
fn a_required_member_of_the_wrong_type_is_refused_and_other_members_are_passed_on_unchanged() {
    let completion = r#""argument":{"name":"a","value":""}"#;
    for (method, needed, others) in [
        ("tools/call", Some("name"), &["arguments", "task"][..]),
        ("tools/list", None, &["x"]),
        ("prompts/get", Some("name"), &["arguments"]),
        ("prompts/list", None, &["x"]),
        ("resources/read", Some("uri"), &["x"]),
        ("resources/list", None, &["x"]),
        ("resources/templates/list", None, &["x"]),
        ("resources/subscribe", Some("uri"), &["x"]),
        ("resources/unsubscribe", Some("uri"), &["x"]),
        ("completion/complete", Some("ref"), &["context"]),
    ] {
        let mut server = Scripted::server(server_config());
        if let Some(needed) = needed {
            let why = match needed {
                "ref" => "invalid completion request: `ref` is missing or no object".to_owned(),
                needed => format!("`{needed}` is missing or no string"),
            };
            let proper = if needed == "ref" { "{" } else { "\"" };
            let wrong = wrong(proper).map(|value| format!(r#"{{"{needed}":{value},{completion}}}"#));
            for params in wrong.chain(["{}".to_owned()]) {
                server.frame(&request(7, method, &params));
                assert_eq!(server.sent(), [error(7, -32602, &why)], "{method} {params}");
                assert_eq!(server.events(), [Event::Violation(Violation::InvalidParams)], "{method} {params}");
            }
        }
        let proper = match needed {
            Some("ref") => format!(r#","ref":{{"type":"ref/prompt","name":"p"}},{completion}"#),
            Some(needed) => format!(r#","{needed}":"n""#),
            None => String::new(),
        };
        let mut numbers = 8..;
        for value in VALUES {
            for other in others {
                let params = format!(r#"{{ "{other}":{value}{proper} }}"#);
                server.frame(&request(numbers.next().unwrap(), method, &params));
                let events = server.events();
                let [Event::Request { id, request, depth: 0, observed: false, .. }] = &events[..] else { panic!("{events:?}") };
                assert_eq!(request.params().as_str(), params);
                server.respond(*id).sent();
            }
        }
    }
    for cursor in wrong("\"").filter(|value| *value != "null") {
        let mut server = Scripted::server(server_config());
        server.frame(&request(7, "tools/list", &format!(r#"{{"cursor":{cursor}}}"#)));
        assert_eq!(
            (server.sent(), server.violations()),
            (vec![error(7, -32602, "invalid cursor")], vec![Violation::InvalidParams])
        );
    }
}

#[test]
fn a_handshake_with_a_member_of_the_wrong_type_is_refused_and_can_be_repeated() {
    let handshake = |version: &str, capabilities: &str, info: &str| {
        request(7, "initialize", &format!(r#"{{"protocolVersion":{version},"capabilities":{capabilities},"clientInfo":{info}}}"#))
    };
    let (version, capabilities, info) = (r#""2025-11-25""#, "{}", r#"{"name":"c","version":"1"}"#);
    let identity = "clientInfo must be an object with a name and a version";
    let mut cases = Vec::new();
    cases.extend(wrong("\"").map(|value| (handshake(value, capabilities, info), "protocolVersion must be text")));
    cases.extend(wrong("{").map(|value| (handshake(version, value, info), "capabilities must be an object")));
    cases.extend(wrong("{").map(|value| (handshake(version, capabilities, value), identity)));
    for field in ["name", "version"] {
        let other = if field == "name" { "version" } else { "name" };
        cases.extend(
            wrong("\"")
                .map(|value| (handshake(version, capabilities, &format!(r#"{{"{field}":{value},"{other}":"x"}}"#)), identity)),
        );
        cases.push((handshake(version, capabilities, &format!(r#"{{"{other}":"x"}}"#)), identity));
    }
    let mut server = Scripted::new(server_config());
    for (frame, why) in cases {
        server.frame(&frame);
        assert_eq!((server.sent(), server.violations()), (vec![error(7, -32602, why)], vec![Violation::InvalidParams]), "{frame}");
    }
    // Other members may have any value. A capability is declared only if its member is an object.
    for value in VALUES {
        let mut server = Scripted::new(server_config());
        server.frame(&handshake(
            version,
            &format!(r#"{{"sampling":{value},"elicitation":{value},"roots":{value},"experimental":{value},"x":{value}}}"#),
            &format!(r#"{{"name":"c","version":"1","title":{value},"icons":{value}}}"#),
        ));
        assert!(server.sent()[0].contains(r#""id":7,"result""#), "{value}");
        let declared = server.session.peer().unwrap().capabilities;
        assert_eq!(
            (declared.sampling, declared.elicitation, declared.roots),
            (value == "{}", value == "{}", value == "{}"),
            "{value}"
        );
    }
}

#[test]
fn a_response_to_the_handshake_with_a_member_of_the_wrong_type_is_invalid() {
    let answer = |version: &str, capabilities: &str, info: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":{version},"capabilities":{capabilities},"serverInfo":{info}}}}}"#
        )
    };
    let (version, capabilities, info) = (r#""2025-11-25""#, "{}", r#"{"name":"s","version":"1"}"#);
    let mut cases = Vec::new();
    cases.extend(wrong("\"").map(|value| answer(value, capabilities, info)));
    cases.extend(wrong("{").map(|value| answer(version, value, info)));
    cases.extend(wrong("{").map(|value| answer(version, capabilities, value)));
    cases.extend(wrong("\"").map(|value| answer(version, capabilities, &format!(r#"{{"name":{value},"version":"1"}}"#))));
    cases.extend(wrong("\"").map(|value| answer(version, capabilities, &format!(r#"{{"name":"s","version":{value}}}"#))));
    for frame in cases {
        let mut client = Scripted::new(client_config());
        client.sent();
        client.frame(&frame);
        let (sent, events) = (client.sent(), client.events());
        assert!(sent.is_empty() && matches!(events[..], [Event::Closed(CloseReason::AnswerInvalid(..))]), "{frame}: {events:?}");
    }
}

#[test]
fn a_request_before_the_handshake_is_out_of_phase_even_if_its_parameters_are_invalid() {
    for (method, params) in
        [("logging/setLevel", r#"{"level":"verbose"}"#), ("logging/setLevel", r#"{"level":"info"}"#), ("tools/call", "{}")]
    {
        let mut server = Scripted::new(server_config());
        server.frame(&request(7, method, params));
        assert_eq!(server.sent(), [error(7, -32600, "the first request must be the handshake")], "{method} {params}");
        assert_eq!(server.events(), [Event::Violation(Violation::OutOfPhase)]);
    }
}

#[test]
fn a_log_record_with_a_member_of_the_wrong_type_is_invalid() {
    let mut client = Scripted::client(client_config());
    let levels = VALUES.map(|level| format!(r#"{{"level":{level},"data":1}}"#));
    let others = [r#"{}"#, r#"{"data":1}"#, r#"{"level":"info"}"#, r#"{"level":"Info","data":1}"#].map(str::to_owned);
    for params in levels.into_iter().chain(others) {
        client.frame(&notification("notifications/message", &params));
        assert_eq!((client.sent(), client.events()), (vec![], vec![Event::Violation(Violation::InvalidParams)]), "{params}");
    }
    // `data` may be any JSON; if `logger` is not text, the record is passed on without it.
    for data in VALUES {
        client.frame(&notification("notifications/message", &format!(r#"{{"level":"info","logger":5,"data":{data}}}"#)));
        assert_eq!(client.events(), [Event::Log(LogRecord::new(Level::Info, json(data)))]);
    }
}

#[test]
fn a_notice_of_a_changed_resource_is_invalid_if_its_uri_is_not_text() {
    let mut client = Scripted::client(client_config());
    for uri in wrong("\"").chain(["\"\\udfff\""]) {
        client.frame(&notification("notifications/resources/updated", &format!(r#"{{"uri":{uri}}}"#)));
        assert_eq!((client.sent(), client.events()), (vec![], vec![Event::Violation(Violation::InvalidParams)]), "{uri}");
    }
    client.frame(r#"{"jsonrpc":"2.0","method":"notifications/resources/updated"}"#);
    assert_eq!(client.violations(), [Violation::InvalidParams]);
    client.frame(&notification("notifications/resources/updated", r#"{"uri":"a:\u0062"}"#));
    assert_eq!(client.events(), [Event::Notification(Notification::ResourceUpdated { uri: "a:b".into() })]);
}

#[test]
fn the_parameters_of_a_notification_that_needs_none_are_ignored() {
    for params in ["", r#","params":{}"#, r#","params":{"a":1,"_meta":{"x":[]}}"#] {
        let mut client = Scripted::client(client_config());
        for (method, notification) in [
            ("notifications/tools/list_changed", Notification::ToolsChanged),
            ("notifications/prompts/list_changed", Notification::PromptsChanged),
            ("notifications/resources/list_changed", Notification::ResourcesChanged),
        ] {
            client.frame(&format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#));
            assert_eq!(client.events(), [Event::Notification(notification)]);
        }
        let mut server = Scripted::server(server_config());
        server.frame(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/roots/list_changed"{params}}}"#));
        assert_eq!(server.events(), [Event::Notification(Notification::RootsChanged)]);
    }
}

// ---- Many frames, and large ones ----

#[test]
fn g5_ten_thousand_invalid_frames_change_only_counters() {
    let garbage =
        ["garbage", "{}", "[]", r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, r#"{"jsonrpc":"2.0","id":7,"method":"no/such"}"#];
    for mut victim in Victim::all() {
        let before = victim.end.session.stats().frames_in;
        for frame in garbage.iter().cycle().take(10_000) {
            victim.end.frame(frame).drain();
        }
        let stats = victim.end.session.stats();
        for rule in [Violation::NotJson, Violation::InvalidEnvelope, Violation::BatchUnsupported, Violation::UnknownResponse] {
            assert_eq!(stats.violations(rule), 2000, "{rule}");
        }
        assert_eq!((stats.queued_bytes, stats.frames_in - before), (0, 10_000));
        victim.check_alive("ten thousand bad frames");
    }
}

/// Measures real time, with a wide margin: a check that is quadratic would take far longer.
#[test]
fn checking_a_form_with_many_required_fields_or_defaults_takes_time_proportional_to_its_length() {
    const COUNT: usize = 10_000;
    let list = |item: &dyn Fn(usize) -> String| (0..COUNT).map(item).collect::<Vec<_>>().join(",");
    let form = |properties: String, required: String| {
        let schema = format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#);
        Bytes::from(request(7, "elicitation/create", &format!(r#"{{"message":"?","requestedSchema":{schema}}}"#)))
    };
    let took = |frame: Bytes| {
        let mut client = Scripted::client(client_config());
        let start = std::time::Instant::now();
        client.session.handle_frame(frame, Lane::CHANNEL, client.now).unwrap();
        client.input_request();
        start.elapsed()
    };
    let fields = || list(&|field| format!(r#""f{field}":{{"type":"boolean"}}"#));
    let plain = took(form(fields(), String::new()));
    let last = COUNT - 1;
    let required = form(fields(), list(&|_| format!(r#""f{last}""#)));
    let (choices, chosen) = (list(&|choice| format!(r#""c{choice}""#)), list(&|_| format!(r#""c{last}""#)));
    let chosen = form(format!(r#""a":{{"type":"array","items":{{"enum":[{choices}]}},"default":[{chosen}]}}"#), String::new());
    for (name, frame) in [("required", required), ("chosen", chosen)] {
        let took = took(frame);
        assert!(took < plain * 10 + Duration::from_secs(1), "{name}: {took:?}, and {plain:?} for as many plain fields");
    }
}

// ---- Unusual text ----

#[test]
fn the_message_of_an_error_may_be_any_text() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(r#"{"jsonrpc":"2.0","id":2,"error":{"message":"\u0000\n\ud83d\ude00 \"","code":-32603}}"#);
    assert_eq!(client.outcome(), Outcome::Error(RpcError::new(-32603, "\0\n😀 \"")));
}
