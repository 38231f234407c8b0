//! Framing and JSON-RPC on Tesseron, at both ends (`docs/protocols/tesseron.md`, "Framing and JSON-RPC"). Each frame is answered as the
//! specification of the wire format demands, or ignored; no session panics, and running calls go on unless the frame is too long. The
//! section "Former numbers" of that page explains `item_N` in the names of tests.

use bytes::Bytes;
use protocol_core::{
    CloseReason, Elicit, Event, InboundId, InputFailed, InputRequest, InputResponse, Invalid, Invoke, Lane, Level, LogRecord,
    MemberFault, Notification, Op, Outcome, Progress, Reply, Sample, SampleResult, ToolOutput, Violation,
};
use serde_json::Value;
use testkit::config::with;
use testkit::config::{app_config, asking_gateway_config, gateway_config, welcome};
use testkit::scripted::{error, json, notification, request};
use testkit::tesseron::{CLAIMED, WELCOME, call_action, cancel, hello, invoke, invoked, named, progress};
use testkit::{Pair, Scripted};

/// An end in some phase of its session, with a running call if the phase allows one.
struct Victim {
    phase: Phase,
    end: Scripted,
}

enum Phase {
    /// An app whose hello was sent.
    HelloSent,
    /// An app that was welcomed and serves the invocation `i1`, which is request 100 of the gateway.
    Serving(InboundId),
    /// A gateway that has received nothing.
    Fresh,
    /// A gateway whose owner has not answered the hello.
    HelloReceived,
    /// A gateway whose app is not claimed.
    Unclaimed,
    /// A gateway with its call 1 in flight.
    Calling,
}

impl Victim {
    fn apps() -> Vec<Self> {
        let mut serving = Scripted::app(app_config());
        let id = serving.receive_invoke(100, "i1");
        Self::drained([(Phase::HelloSent, Scripted::new(app_config())), (Phase::Serving(id), serving)])
    }

    fn gateways() -> Vec<Self> {
        let mut asked = Scripted::new(asking_gateway_config());
        asked.frame(&hello(1, "1.2.0"));
        let mut calling = Scripted::gateway(gateway_config());
        calling.invoke_action();
        Self::drained([
            (Phase::Fresh, Scripted::new(gateway_config())),
            (Phase::HelloReceived, asked),
            (Phase::Unclaimed, Scripted::unclaimed_gateway(gateway_config())),
            (Phase::Calling, calling),
        ])
    }

    fn all() -> impl Iterator<Item = Self> {
        Self::apps().into_iter().chain(Self::gateways())
    }

    fn drained<const N: usize>(all: [(Phase, Scripted); N]) -> Vec<Self> {
        let drain = |(phase, mut end): (Phase, Scripted)| {
            end.drain();
            Self { phase, end }
        };
        all.into_iter().map(drain).collect()
    }

    /// Checks that the handshake or the claim succeeds, or that the running call ends as usual.
    #[track_caller]
    fn check_alive(mut self, why: &str) {
        let end = &mut self.end;
        end.drain();
        match self.phase {
            Phase::HelloSent => assert!(end.frame(WELCOME).session.is_ready(), "{why}"),
            Phase::Serving(id) => assert_eq!(end.respond(id).sent(), [invoked(100, "i1", "\"ok\"")], "{why}"),
            Phase::Fresh => assert!(end.frame(&hello(1, "1.2.0")).sent()[0].contains(r#""id":1,"result""#), "{why}"),
            Phase::HelloReceived => {
                end.session.welcome(Ok(welcome()), end.now).unwrap();
                assert!(end.sent()[0].contains(r#""id":1,"result""#), "{why}");
            }
            Phase::Unclaimed => assert_eq!(end.claim().sent(), [CLAIMED], "{why}"),
            Phase::Calling => {
                end.frame(&progress(&named(1), r#","percent":1"#)).frame(&invoked(1, &named(1), "1"));
                let events = end.events();
                assert!(
                    matches!(events[..], [Event::Progress { .. }, Event::Done { outcome: Outcome::Result(_), .. }]),
                    "{why}: {events:?}"
                );
            }
        }
    }
}

/// Passes `frame` to both ends in every phase. Checks that no end answers, that each reports at most one violation, and goes on.
#[track_caller]
fn expect_ignored(frame: impl Into<Bytes>) {
    expect_ignored_by(Victim::all(), frame);
}

#[track_caller]
fn expect_ignored_by(victims: impl IntoIterator<Item = Victim>, frame: impl Into<Bytes>) {
    let frame = frame.into();
    let shown = String::from_utf8_lossy(&frame[..frame.len().min(200)]).into_owned();
    for mut victim in victims {
        victim.end.session.handle_frame(frame.clone(), Lane::CHANNEL, victim.end.now).unwrap();
        assert_eq!(victim.end.sent(), Vec::<String>::new(), "{shown}");
        let events = victim.end.events();
        assert!(matches!(events[..], [] | [Event::Violation(_) | Event::Unreadable(_)]), "{shown}: {events:?}");
        victim.check_alive(&shown);
    }
}

/// The kind of a frame, which must be an envelope of exactly one of the four kinds.
#[track_caller]
fn kind(frame: &str) -> &'static str {
    let Ok(Value::Object(frame)) = serde_json::from_str(frame) else { panic!("no object: {frame}") };
    assert_eq!(frame["jsonrpc"], "2.0");
    let has = |name: &str| frame.contains_key(name);
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    assert!(frame.keys().all(|name| known.contains(&name.as_str())), "{frame:?}");
    match (has("id"), has("method"), has("result"), has("error")) {
        (true, true, false, false) => "request",
        (false, true, false, false) => "notification",
        (true, false, true, false) => "result",
        (true, false, false, true) if frame["error"]["code"].is_i64() && frame["error"]["message"].is_string() => "error",
        _ => panic!("no envelope: {frame:?}"),
    }
}

/// All frames of a pair that makes a handshake, a claim, invocations, input requests, requests for resources, and notifications.
fn everything() -> Vec<String> {
    let mut pair = Pair { client: Scripted::new(gateway_config()), server: Scripted::new(app_config()), trace: Vec::new() };
    pair.run().client.claim();
    pair.run();
    let now = pair.client.now;
    for odd in ["{}", "[\n1,\r\n2]", "\"a\\nb\"", "null"] {
        let call = pair.client.invoke(Invoke::call_tool("t\n", json(odd)));
        pair.run();
        let id = pair.server.request();
        let progress = Progress::percent(5.0).with_message("a\nb\r").with_data(json(odd));
        pair.server.session.progress(id, progress, now).unwrap();
        pair.server.session.progress(id, Progress::message("\u{2028}\u{85}"), now).unwrap();
        let record = LogRecord::new(Level::Warning, json("{\n\"message\":\"a\\nb\",\r\"x\":[\n]}"));
        pair.server.session.log(Some(id), record, now).unwrap();
        let mut input_request = Sample::new("a\nb");
        (input_request.max_tokens, input_request.schema) = (Some(5), Some(json("{\n}")));
        for ask in [
            input_request.into(),
            InputRequest::Confirm { message: "sure\n?".into() },
            InputRequest::Elicit(Elicit::new("\r\n", json("{\"type\":\n\"object\"}"))),
        ] {
            pair.server.session.request_input(id, ask, now).unwrap();
            pair.run();
            let asked = pair.client.input_request();
            let answer = InputResponse::Sample(SampleResult::new("a\nb", ""));
            pair.client.session.provide_input(asked, answer, now).unwrap();
            pair.run();
        }
        match odd {
            "{}" => _ = pair.client.session.cancel(call, Some("a\nb"), now),
            "null" => pair.server.session.respond(id, Reply::Tool(ToolOutput::error("a\nb")), now).unwrap(),
            _ => pair.server.session.respond(id, Reply::Tool(ToolOutput::structured(json(odd))), now).unwrap(),
        }
        pair.run();
        pair.client.events();
        pair.server.events();
    }
    for call in [
        Invoke::read_resource("balance"),
        Invoke::new(Op::ReadResource, json("{\"name\":\n\"balance\"}")),
        Invoke::subscribe("balance").with_subscription("s\n"),
        Invoke::unsubscribe("balance").with_subscription("s\n"),
    ] {
        let op = call.op();
        pair.client.invoke(call);
        pair.run();
        let id = pair.server.request();
        let reply = if op == Op::ReadResource { Reply::Contents(json("[\n{\"uri\":\"x\",\"text\":\"y\"}]")) } else { Reply::Done };
        pair.server.session.respond(id, reply, now).unwrap();
    }
    for notification in [
        Notification::Actions(json("[\n]")),
        Notification::Resources(json("[\r]")),
        Notification::ResourceValue { subscription: "s\n".into(), uri: "balance".into(), value: json("[\n1]") },
        Notification::Custom { method: "x/y".into(), params: Some(json("{\n}")) },
    ] {
        pair.server.session.notify(notification, now).unwrap();
    }
    pair.run();
    pair.client.frame(&request(77, "x/y", "{}")).frame(&request(78, "tesseron/hello", "{}"));
    pair.server.frame(&request(79, "x/y", "{}")).frame(&request(80, "actions/invoke", "{}"));
    pair.run();
    pair.trace
}

// ---- Envelopes, ids and methods ----

#[test]
fn item_1_every_frame_is_exactly_one_envelope_of_json_rpc_2() {
    let frames = everything();
    // Each frame in the trace follows its direction, which takes two bytes.
    let mut kinds: Vec<_> = frames.iter().map(|frame| kind(&frame[2..])).collect();
    assert!(kinds.len() > 60, "only {} frames", kinds.len());
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, ["error", "notification", "request", "result"]);
}

/// Ids that a response can repeat exactly as they were written, of every valid type.
const IDS: [&str; 10] = [
    "0",
    "1",
    "-7",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "null",
    r#""""#,
    r#""1""#,
    r#""\u00e9\n\"""#,
];

#[test]
fn item_2_a_response_has_the_id_of_its_request_in_type_and_value() {
    let assert_has_id = |frame: &str, id: &str| {
        let given: Value = serde_json::from_str(id).unwrap();
        let frame: Value = serde_json::from_str(frame).unwrap();
        assert_eq!(frame.get("id"), Some(&given));
    };
    for id in IDS {
        let mut gateway = Scripted::new(gateway_config());
        gateway.frame(&hello(1, "1.2.0").replacen(r#""id":1"#, &format!(r#""id":{id}"#), 1));
        assert_has_id(&gateway.sent()[0], id);
        for (method, params) in [("sampling/request", "{}"), ("x/y", "{}"), ("tesseron/hello", "{}"), ("sampling/request", "[]")] {
            gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
            let sent = gateway.sent();
            assert_eq!(sent.len(), 1, "{id} {method}");
            assert_has_id(&sent[0], id);
        }

        let mut app = Scripted::app(app_config());
        app.frame(&invoke(1, "i").replacen(r#""id":1"#, &format!(r#""id":{id}"#), 1));
        let serve = app.request();
        assert_has_id(&app.respond(serve).sent()[0], id);
        for (method, params) in [("actions/invoke", "{}"), ("x/y", "{}"), ("resources/read", "[]")] {
            app.frame(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
            assert_has_id(&app.sent()[0], id);
        }
    }
}

#[test]
fn item_2_a_request_whose_id_cannot_be_repeated_exactly_is_ignored() {
    for id in ["1.5", "1.0", "1e3", "-0", "18446744073709551616", "1e999", "true", "{}", "[1]", r#""\ud800""#] {
        for method in ["tesseron/hello", "actions/invoke", "x/y"] {
            expect_ignored(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#));
        }
    }
}

#[test]
fn item_3_an_unknown_request_is_refused_as_not_found_in_every_phase() {
    for mut victim in Victim::all() {
        for method in ["x/y", "", "actions/list", "resources/list", "sampling/cancel", "ping", "tesseron/welcome", "TESSERON/HELLO"]
        {
            victim.end.frame(&request(50, method, "{}"));
            assert_eq!(victim.end.sent(), [error(50, -32601, &format!("Method not found: {method}"))]);
            assert_eq!(victim.end.events(), []);
        }
        victim.check_alive("unknown requests");
    }
}

#[test]
fn item_3_a_notification_with_an_id_is_refused_as_not_found_and_a_request_without_one_is_ignored() {
    let notifications = [
        "actions/cancel",
        "actions/progress",
        "actions/list_changed",
        "resources/updated",
        "resources/list_changed",
        "tesseron/claimed",
        "log",
    ];
    for mut victim in Victim::all() {
        for method in notifications {
            victim.end.frame(&request(50, method, r#"{"invocationId":"i1"}"#));
            assert_eq!(victim.end.sent(), [error(50, -32601, &format!("Method not found: {method}"))]);
            assert_eq!(victim.end.events(), [Event::Violation(Violation::WrongDirection)], "{method}");
        }
        victim.check_alive("notifications with an id");
    }
    for method in [
        "tesseron/hello",
        "tesseron/resume",
        "tesseron/bind",
        "actions/invoke",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "sampling/request",
        "elicitation/request",
    ] {
        let without_id = invoke(1, "i9").replacen(r#""id":1,"#, "", 1).replacen("actions/invoke", method, 1);
        expect_ignored(without_id);
    }
}

#[test]
fn item_3_requests_that_only_the_other_end_may_send_are_refused_as_not_found() {
    for mut victim in Victim::apps() {
        for method in ["tesseron/hello", "tesseron/resume", "sampling/request", "elicitation/request"] {
            victim.end.frame(&request(50, method, "{}"));
            assert_eq!(victim.end.sent(), [error(50, -32601, &format!("Method not found: {method}"))]);
        }
        victim.check_alive("methods of a gateway");
    }
    for mut victim in Victim::gateways() {
        for method in ["actions/invoke", "resources/read", "resources/subscribe", "resources/unsubscribe", "tesseron/bind"] {
            victim.end.frame(&request(50, method, "{}"));
            assert_eq!(victim.end.sent(), [error(50, -32601, &format!("Method not found: {method}"))]);
        }
        victim.check_alive("methods of an app");
    }
}

#[test]
fn a_session_refuses_a_bind_as_an_unknown_method() {
    // If a channel is bound by a claim code, `tesseron::claims::HostGate` answers the bind, which does not reach the session.
    for mut victim in Victim::all() {
        for params in [r#"{"code":"AB3X-7K"}"#, "{}"] {
            victim.end.frame(&request(50, "tesseron/bind", params));
            assert_eq!(victim.end.sent(), [error(50, -32601, "Method not found: tesseron/bind")]);
            assert_eq!(victim.end.events(), []);
        }
        victim.check_alive("a bind");
    }
}

#[test]
fn item_3_an_unknown_notification_or_one_that_only_the_other_end_may_send_is_never_answered() {
    for mut victim in Victim::all() {
        for params in ["", r#","params":{"a":1}"#] {
            victim.end.frame(&format!(r#"{{"jsonrpc":"2.0","method":"x/y"{params}}}"#));
            assert_eq!(victim.end.sent(), Vec::<String>::new());
        }
        victim.check_alive("unknown notifications");
    }
    for method in ["actions/cancel", "tesseron/claimed"] {
        expect_ignored_by(Victim::gateways(), notification(method, r#"{"invocationId":"i1","agent":{"id":"a","name":"a"}}"#));
    }
    for method in ["actions/progress", "actions/list_changed", "resources/list_changed", "resources/updated", "log"] {
        let params = r#"{"invocationId":"i1","actions":[],"resources":[],"subscriptionId":"s","level":"info","message":"m"}"#;
        expect_ignored_by(Victim::apps(), notification(method, params));
    }
}

// ---- Frames that are no message ----

#[test]
fn item_4_a_batch_has_no_effect() {
    for batch in [
        "[]".to_owned(),
        "[1]".to_owned(),
        "[[]]".to_owned(),
        format!("[{}]", hello(1, "1.2.0")),
        format!("[{},{}]", invoke(1, "i9"), cancel("i1")),
        format!("[{WELCOME}]"),
        format!("[{}]", invoked(1, &named(1), "1")),
        format!("[{CLAIMED}]"),
    ] {
        expect_ignored(batch);
    }
}

#[test]
fn item_5_a_frame_without_the_right_jsonrpc_member_is_ignored() {
    let frames =
        [hello(1, "1.2.0"), invoke(1, "i9"), cancel("i1"), WELCOME.to_owned(), invoked(1, &named(1), "1"), error(1, -32000, "no")];
    for frame in frames {
        expect_ignored(frame.replacen(r#""jsonrpc":"2.0","#, "", 1));
        for version in [r#""1.0""#, r#""2""#, r#""2.00""#, r#"" 2.0""#, "2.0", "2", "null", "[]", "{}"] {
            expect_ignored(frame.replacen(r#""2.0""#, version, 1));
        }
    }
}

#[test]
fn a_frame_that_is_not_json_is_ignored() {
    let text = invoke(1, "i9");
    for cut in 0..text.len() {
        expect_ignored(text[..cut].to_owned());
    }
    for frame in ["", " ", "garbage", "null", "7", r#""hello""#, "{}", "{} {}", "\0", "\u{feff}{}", r#"{"jsonrpc":"2.0"}"#] {
        expect_ignored(frame);
    }
    for frame in [&b"\xff"[..], b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\"}", b"\xef\xbb\xbf{}"] {
        expect_ignored(Bytes::from_static(frame));
    }
    expect_ignored("[".repeat(200_000));
    expect_ignored(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#, "[".repeat(500), "]".repeat(500)));
}

#[test]
fn an_envelope_of_two_kinds_or_with_a_repeated_member_is_ignored() {
    for frame in [
        r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
        r#"{"jsonrpc":"2.0","method":"actions/cancel","params":{"invocationId":"i1"},"result":1}"#,
        r#"{"jsonrpc":"2.0","method":"actions/cancel","params":{"invocationId":"i1"},"error":{"code":1,"message":""}}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"actions/cancel"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"result":2}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","method":["x"]}"#,
        r#"{"jsonrpc":"2.0","id":1}"#.replace("1}", "true}").as_str(),
    ] {
        expect_ignored(frame.to_owned());
    }
}

// ---- Parameters of the wrong type ----

/// Values of each type of JSON.
const VALUES: [&str; 7] = ["null", "true", "1", "1.5", r#""x""#, "[]", "{}"];

/// The [`VALUES`] whose first byte is not in `right`.
fn wrong(right: &str) -> impl Iterator<Item = &'static str> {
    VALUES.into_iter().filter(move |value| !right.contains(&value[..1]))
}

/// A member of parameters: its name, a valid value, and the first bytes of the [`VALUES`] that are valid, with a `-` if it may be missing.
type Member = (&'static str, &'static str, &'static str);

/// All variants of parameters in which one member is missing or has another type.
fn ill_typed(members: &[Member]) -> Vec<String> {
    let without = |index: usize| {
        let others = members.iter().enumerate().filter(move |(other, _)| *other != index);
        others.map(|(_, (name, value, _))| format!(r#""{name}":{value}"#)).collect::<Vec<_>>().join(",")
    };
    let mut all = Vec::new();
    for (index, (name, _, right)) in members.iter().enumerate() {
        let rest = without(index);
        if !right.contains('-') {
            all.push(format!("{{{rest}}}"));
        }
        let comma = if rest.is_empty() { "" } else { "," };
        all.extend(wrong(right).map(|value| format!(r#"{{{rest}{comma}"{name}":{value}}}"#)));
    }
    all
}

#[test]
fn item_6_a_notification_with_missing_or_ill_typed_params_is_ignored() {
    let to_apps: [(&str, &[Member]); 2] = [
        ("actions/cancel", &[("invocationId", r#""i1""#, "\"")]),
        ("tesseron/claimed", &[("agent", r#"{"id":"a","name":"a"}"#, ""), ("agentCapabilities", "{}", "-{n")]),
    ];
    let to_gateways: [(&str, &[Member]); 5] = [
        ("actions/progress", &[("invocationId", r#""inv_1""#, "\""), ("percent", "1", "-1n"), ("message", r#""m""#, "-\"n")]),
        ("actions/list_changed", &[("actions", "[]", "[")]),
        ("resources/list_changed", &[("resources", "[]", "[")]),
        ("resources/updated", &[("subscriptionId", r#""s""#, "\"")]),
        ("log", &[("level", r#""info""#, "\""), ("message", r#""m""#, "\"")]),
    ];
    let none = ["", r#","params":null"#, r#","params":[]"#, r#","params":1"#, r#","params":"x""#, r#","params":{}"#];
    for (method, _) in to_apps.iter().chain(&to_gateways) {
        for params in none {
            expect_ignored(format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#));
        }
    }
    for (method, members) in to_apps {
        for params in ill_typed(members) {
            expect_ignored_by(Victim::apps(), notification(method, &params));
        }
    }
    for (method, members) in to_gateways {
        for params in ill_typed(members) {
            expect_ignored_by(Victim::gateways(), notification(method, &params));
        }
    }
}

/// Checks that each victim answers the request with one error of `code`, and that its session goes on.
#[track_caller]
fn expect_refused(victims: impl Fn() -> Vec<Victim>, method: &str, params: &str, code: i64) {
    for mut victim in victims() {
        victim.end.frame(&format!(r#"{{"jsonrpc":"2.0","id":50,"method":"{method}"{params}}}"#));
        let sent = victim.end.sent();
        assert_eq!(sent.len(), 1, "{method} {params}: {sent:?}");
        let prefix = format!(r#"{{"jsonrpc":"2.0","id":50,"error":{{"code":{code},"#);
        assert!(sent[0].starts_with(&prefix), "{method} {params}: {sent:?}");
        let events = victim.end.events();
        assert!(matches!(events[..], [Event::Violation(_)]), "{method} {params}: {events:?}");
        victim.check_alive(params);
    }
}

#[test]
fn item_7_a_request_to_an_app_with_ill_typed_params_is_refused_as_invalid() {
    let serving = || Victim::apps().into_iter().skip(1).collect::<Vec<_>>();
    let text = |name: &'static str| (name, r#""x""#, "\"");
    let all: [(&str, &[Member]); 4] = [
        ("actions/invoke", &[text("name"), text("invocationId")]),
        ("resources/read", &[text("name")]),
        ("resources/subscribe", &[text("name"), text("subscriptionId")]),
        ("resources/unsubscribe", &[text("subscriptionId")]),
    ];
    for (method, members) in all {
        for params in ill_typed(members) {
            expect_refused(serving, method, &format!(r#","params":{params}"#), -32602);
        }
        for params in ["", r#","params":null"#, r#","params":[]"#, r#","params":1"#, r#","params":"x""#] {
            expect_refused(serving, method, params, -32602);
        }
    }
    let long = format!(r#","params":{{"name":"t","invocationId":"{}"}}"#, "i".repeat(2000));
    expect_refused(serving, "actions/invoke", &long, -32602);
    // Half of a surrogate pair cannot be repeated in the result.
    expect_refused(serving, "actions/invoke", r#","params":{"name":"t","invocationId":"\ud800"}"#, -32602);
}

#[test]
fn item_7_an_input_request_to_a_gateway_with_ill_typed_params_is_refused_as_invalid() {
    let calling = || Victim::gateways().into_iter().skip(3).collect::<Vec<_>>();
    let invocation_id = ("invocationId", r#""inv_1""#, "\"");
    let all: [(&str, &[Member]); 2] = [
        ("sampling/request", &[invocation_id, ("prompt", r#""?""#, "\""), ("maxTokens", "1", "-1n")]),
        ("elicitation/request", &[invocation_id, ("question", r#""?""#, "\""), ("schema", r#"{"type":"object"}"#, "")]),
    ];
    for (method, members) in all {
        for params in ill_typed(members) {
            expect_refused(calling, method, &format!(r#","params":{params}"#), -32602);
        }
        for params in ["", r#","params":null"#, r#","params":[]"#, r#","params":1"#] {
            expect_refused(calling, method, params, -32602);
        }
    }
    for max_tokens in ["0", "-1", "1.5", "1e3", "99999999999999999999"] {
        let params = format!(r#","params":{{"invocationId":"inv_1","prompt":"?","maxTokens":{max_tokens}}}"#);
        expect_refused(calling, "sampling/request", &params, -32602);
    }
}

#[test]
fn item_7_a_hello_with_ill_typed_params_is_refused_as_invalid_and_a_resume_as_failed() {
    let fresh = || Victim::gateways().into_iter().take(1).collect::<Vec<_>>();
    let manifest = [
        ("protocolVersion", r#""1.2.0""#, "\""),
        ("app", r#"{"id":"ledger","name":"Ledger","origin":"o"}"#, ""),
        ("actions", "[]", "["),
        ("resources", "[]", "["),
        ("capabilities", "{}", "{"),
    ];
    for params in ill_typed(&manifest) {
        expect_refused(fresh, "tesseron/hello", &format!(r#","params":{params}"#), -32602);
    }
    let credentials = [("sessionId", r#""s""#, "\""), ("resumeToken", r#""t""#, "\"")];
    for params in ill_typed(&[&manifest[..], &credentials[..]].concat()) {
        expect_refused(fresh, "tesseron/resume", &format!(r#","params":{params}"#), -32011);
    }
    for app in [r#"{"name":"n"}"#, r#"{"id":1,"name":"n"}"#, r#"{"id":"a"}"#, r#"{"id":"a","name":[]}"#] {
        let params =
            format!(r#","params":{{"protocolVersion":"1.2.0","app":{app},"actions":[],"resources":[],"capabilities":{{}}}}"#);
        expect_refused(fresh, "tesseron/hello", &params, -32602);
    }
    expect_refused(fresh, "tesseron/hello", "", -32602);
    expect_refused(fresh, "tesseron/hello", r#","params":[]"#, -32602);
}

// ---- Responses ----

#[test]
fn item_8_a_response_with_an_unknown_id_is_ignored() {
    for id in ["0", "2", "99", "-1", r#""1""#, r#""""#, "null", "1.0", "[1]", "9223372036854775807", "18446744073709551616"] {
        expect_ignored(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"invocationId":"inv_1","output":1}}}}"#));
        expect_ignored(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"no"}}}}"#));
    }
    expect_ignored(r#"{"jsonrpc":"2.0","id":99}"#);
    expect_ignored(r#"{"jsonrpc":"2.0","result":{}}"#);
    expect_ignored(r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"}}"#);
}

#[test]
fn item_9_a_response_with_a_malformed_error_is_still_a_failure() {
    let errors =
        ["null", "1", r#""no""#, "[]", "{}", r#"{"code":"x","message":"m"}"#, r#"{"code":1.5,"message":"m"}"#, r#"{"code":1}"#];
    for error in errors {
        let mut gateway = Scripted::gateway(gateway_config());
        let id = gateway.invoke_action();
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        let events = gateway.events();
        match &events[..] {
            [
                Event::Violation(Violation::InvalidResponse),
                Event::Done { id: done, outcome: Outcome::Invalid(Invalid::Unreadable(_)), .. },
            ] => {
                assert_eq!((*done, error), (id, "null"));
            }
            // The error is read with what it has.
            [Event::Done { id: done, outcome: Outcome::Error(_), .. }] => assert_eq!(*done, id, "{error}"),
            other => panic!("{error}: {other:?}"),
        }

        let mut app = Scripted::new(app_config());
        app.sent();
        app.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        let refused = if error == "null" {
            CloseReason::AnswerInvalid("result", MemberFault::Unreadable("`error` is null"))
        } else {
            CloseReason::HandshakeRefused
        };
        assert_eq!(app.events().last(), Some(&Event::Closed(refused)), "{error}");

        let mut app = Scripted::app(app_config());
        let id = app.receive_invoke(100, "i1");
        let keys = [app.ask(id, InputRequest::from(Sample::new("?"))), app.ask(id, InputRequest::Confirm { message: "?".into() })];
        app.sent();
        for exchange in [3, 4] {
            app.frame(&format!(r#"{{"jsonrpc":"2.0","id":{exchange},"error":{error}}}"#));
        }
        let answers: Vec<_> = app.events().into_iter().filter(|event| matches!(event, Event::Input { .. })).collect();
        let declined = Event::Input { id, key: keys[1], answer: Ok(InputResponse::Confirm(false)) };
        let [Event::Input { key, answer: Err(failed), .. }, last] = &answers[..] else { panic!("{error}: {answers:?}") };
        assert_eq!((*key, last), (keys[0], &declined), "{error}");
        assert_eq!(matches!(failed, InputFailed::Invalid(_)), error == "null", "{error}: {failed:?}");
    }
}

#[test]
fn a_response_with_a_result_and_an_error_is_an_error() {
    let mut gateway = Scripted::gateway(gateway_config());
    gateway.invoke_action();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":{"invocationId":"inv_1","output":1},"error":{"code":5,"message":"no"}}"#);
    assert!(matches!(gateway.outcome(), Outcome::Error(error) if error.code == 5));
}

#[test]
fn item_10_a_missing_result_is_null() {
    for call in [
        Invoke::read_resource("balance"),
        Invoke::subscribe("balance").with_subscription("s"),
        Invoke::unsubscribe("balance").with_subscription("s"),
    ] {
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke(call);
        gateway.sent();
        gateway.frame(r#"{"jsonrpc":"2.0","id":1}"#);
        assert_eq!(gateway.outcome(), Outcome::Result(json("null")));
    }
    // The result of an invocation must be an object, and so must the answer to an input request.
    let mut gateway = Scripted::gateway(gateway_config());
    gateway.invoke_action();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1}"#);
    assert!(matches!(gateway.outcome(), Outcome::Invalid(Invalid::Unreadable(_))));
    let mut app = Scripted::app(app_config());
    let id = app.receive_invoke(100, "i1");
    app.ask(id, InputRequest::from(Sample::new("?")));
    app.sent();
    app.frame(r#"{"jsonrpc":"2.0","id":3}"#);
    let missing = "`content` is missing";
    assert!(matches!(app.events().last(), Some(Event::Input { answer: Err(InputFailed::Invalid(why)), .. }) if *why == missing));
    let mut app = Scripted::new(app_config());
    app.drain().frame(r#"{"jsonrpc":"2.0","id":1}"#);
    assert_eq!(app.events(), [Event::Closed(CloseReason::AnswerInvalid("protocolVersion", MemberFault::Missing))]);
}

/// Returns `frame` with unknown members in its envelope and at the start of its parameters and its result.
fn with_unknown_members(frame: &str) -> String {
    let more = |opening: &str| format!(r#"{opening}"x-more":{{"params":[],"id":7,"method":"x"}},"#);
    frame
        .replacen('{', &more("{"), 1)
        .replace(r#""params":{"#, &more(r#""params":{"#))
        .replace(r#""result":{"#, &more(r#""result":{"#))
}

#[test]
fn item_11_unknown_members_are_ignored_everywhere() {
    let mut plain = Pair { client: Scripted::new(gateway_config()), server: Scripted::new(app_config()), trace: Vec::new() };
    let mut extended = Pair { client: Scripted::new(gateway_config()), server: Scripted::new(app_config()), trace: Vec::new() };
    let mut events_of_both = Vec::new();
    for (pair, extends) in [(&mut plain, false), (&mut extended, true)] {
        let deliver = |pair: &mut Pair| {
            for _ in 0..4 {
                for frame in pair.client.sent() {
                    pair.server.frame(&if extends { with_unknown_members(&frame) } else { frame });
                }
                for frame in pair.server.sent() {
                    pair.client.frame(&if extends { with_unknown_members(&frame) } else { frame });
                }
            }
        };
        let mut events_so_far = Vec::new();
        let poll_events = |pair: &mut Pair, events_so_far: &mut Vec<String>| {
            let events = pair.client.events().into_iter().chain(pair.server.events());
            // `Ready` and `PeerChanged` contain the declaration of the peer with its unknown members, so these events differ.
            events_so_far.extend(
                events.filter(|event| !matches!(event, Event::Ready(_) | Event::PeerChanged(_))).map(|event| format!("{event:?}")),
            );
        };
        deliver(pair);
        pair.client.claim();
        deliver(pair);
        poll_events(pair, &mut events_so_far);
        pair.client.invoke(call_action());
        deliver(pair);
        let id = pair.server.request();
        pair.server.report(id, Progress::percent(5.0).with_message("m"));
        pair.server.ask(id, InputRequest::Confirm { message: "?".into() });
        deliver(pair);
        let asked = pair.client.input_request();
        let now = pair.client.now;
        pair.client.session.provide_input(asked, InputResponse::Confirm(true), now).unwrap();
        deliver(pair);
        poll_events(pair, &mut events_so_far);
        pair.server.respond(id);
        deliver(pair);
        let outcome = pair.client.outcome();
        assert!(matches!(&outcome, Outcome::Result(result) if result.member("output") == Some(json("\"ok\""))), "{outcome:?}");
        events_of_both.push(events_so_far);
    }
    assert_eq!(events_of_both[0], events_of_both[1]);
}

// ---- The end of a channel, the limit of a frame, and frames that are sent ----

#[test]
fn item_14_a_frame_over_the_limit_closes_the_session_without_an_answer() {
    for config in [app_config(), gateway_config()] {
        let mut end = Scripted::new(with(config, |config| config.limits.frame_bytes = 512));
        end.sent();
        end.drain();
        end.frame(&notification("x/y", &format!(r#"{{"a":"{}"}}"#, "a".repeat(512))));
        assert_eq!(end.sent(), Vec::<String>::new());
        assert_eq!(end.events(), [Event::Violation(Violation::FrameTooLarge), Event::Closed(CloseReason::FrameTooLarge)]);
    }
    let mut fits = Scripted::new(with(gateway_config(), |config| config.limits.frame_bytes = 512));
    let frame = hello(1, "1.2.0");
    let padded = format!("{frame}{}", " ".repeat(512 - frame.len()));
    assert!(fits.frame(&padded).sent()[0].contains("result"));
}
