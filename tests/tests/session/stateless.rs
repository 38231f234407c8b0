//! MCP 2026-07-28, in which every request names its caller: the server's end (Basic, Versioning, Discovery).

use protocol_core::mcp::{CacheHint, Era};
use protocol_core::{
    AskError, CancelReason, Close, CloseReason, Event, Gone, InboundId, InputRequest, Instant, Invoke, Lane, Level, LogRecord,
    Logged, NotFound, NotLive, Notification, Page, Progress, Reply, ReplyKind, Reported, RouteKind, RpcError, SendError,
    SubscriptionFilter, Text, ToolOutput, Violation,
};
use std::time::Duration;

use crate::hostile_input::wrong;
use testkit::Scripted;
use testkit::config::{server_config, with};
use testkit::scripted::{call_tool, error, initialize, json, request, stateless_request, stateless_result};

/// A `_meta` with the version `version` (JSON), no capability, and the further members `more`, each with a comma before it.
fn meta(version: &str, more: &str) -> String {
    let version = format!(r#""io.modelcontextprotocol/protocolVersion":{version}"#);
    format!(r#""_meta":{{{version},"io.modelcontextprotocol/clientCapabilities":{{}}{more}}}"#)
}

/// A stateless request of a client that declares nothing. `params` are members of the parameters, each with a comma after it; `more` are
/// further members of `_meta`, each with a comma before it.
fn stateless(id: u64, method: &str, params: &str, more: &str) -> String {
    stateless_request(id, method, params, "{}", more)
}

fn call(id: u64, more: &str) -> String {
    stateless(id, "tools/call", r#""name":"t","arguments":{},"#, more)
}

/// The id of the request that is the only queued event.
fn requested(server: &mut Scripted) -> InboundId {
    let events = server.events();
    let [Event::Request { id, .. }] = events.as_slice() else { panic!("{events:?}") };
    *id
}

/// A server that speaks only the modern era.
fn modern() -> Scripted {
    Scripted::new(with(server_config(), |config| config.era = Era::Modern))
}

#[test]
fn a_request_is_served_without_a_handshake_and_its_result_names_the_type_and_the_server() {
    let mut server = Scripted::new(server_config());
    server.frame(&call(7, ""));
    let id = requested(&mut server);
    server.session.respond(id, Reply::Tool(ToolOutput::text("done")), server.now).unwrap();
    assert_eq!(server.sent(), [stateless_result(7, r#""content":[{"type":"text","text":"done"}],"#)]);
    assert!(!server.session.is_ready(), "no handshake was made");
}

/// Logging: a server sends a record only for a request that asks for records. A regression: a peer that had sent only the probe got records
/// that belonged to no request.
#[test]
fn a_peer_that_sends_only_stateless_requests_gets_no_record_outside_of_a_request() {
    let record = || LogRecord::new(Level::Error, json("1"));
    let mut server = Scripted::new(server_config());
    assert_eq!(server.session.log(None, record(), server.now), Ok(Logged::Sent), "the peer may yet make a handshake");
    server.drain();
    server.frame(&stateless(1, "server/discover", "", ""));
    server.drain();
    assert_eq!(server.session.log(None, record(), server.now), Ok(Logged::Unwanted));
    let mut server = modern();
    assert_eq!(server.session.log(None, record(), server.now), Ok(Logged::Unwanted), "no handshake can follow");
    server.expect_silence();
}

#[test]
fn the_caller_of_a_request_is_reported_with_its_identity_its_capabilities_and_its_trace() {
    let mut server = Scripted::new(server_config());
    let more =
        r#","io.modelcontextprotocol/clientInfo":{"name":"c","version":"2","title":"C"},"traceparent":"00-1-2-03","baggage":"k=v""#;
    server.frame(&call(1, more));
    let events = server.events();
    let [Event::Request { caller, observed: false, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((caller.identity().name.as_str(), caller.identity().title.as_deref()), ("c", Some("C")));
    assert_eq!((caller.protocol(), caller.log_level()), ("2026-07-28", None));
    assert_eq!((caller.trace_parent().as_deref(), caller.baggage().as_deref()), (Some("00-1-2-03"), Some("k=v")));
    assert!(!caller.capabilities().sampling);
}

#[test]
fn both_ends_declare_their_extensions_in_both_eras() {
    let extend = |config: &mut protocol_core::Config| {
        config.extensions.insert("a.b/c".into(), json(r#"{"depth":2}"#));
        config.extensions.insert("a.b/d".into(), json("7"));
    };
    for era in [Era::Legacy, Era::Modern] {
        let mut server = Scripted::new(with(server_config(), |config| extend(config)));
        let mut client = Scripted::new(with(testkit::config::client_config(), |config| {
            config.era = era;
            extend(config);
        }));
        for _ in 0..4 {
            client.sent().iter().for_each(|frame| _ = server.frame(frame));
            server.sent().iter().for_each(|frame| _ = client.frame(frame));
        }
        let settings = Some(json(r#"{"depth":2}"#));
        let peer = client.session.peer().unwrap();
        assert_eq!((peer.extension("a.b/c"), peer.extension("a.b/d")), (settings.clone(), None), "{era:?}");
        server.drain();
        client.invoke(Invoke::list_tools(None));
        client.sent().iter().for_each(|frame| _ = server.frame(frame));
        let events = server.events();
        let [Event::Request { caller, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((caller.peer().extension("a.b/c"), caller.peer().extension("a.b/d")), (settings, None), "{era:?}");
    }
}

#[test]
fn a_request_is_read_alike_alone_and_after_any_other_request() {
    const VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    const OTHER_VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2027-01-01""#;
    const NO_CAPABILITIES: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    const SAMPLING: &str = r#""io.modelcontextprotocol/clientCapabilities":{"sampling":{}}"#;
    const EXTENSION: &str = r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"a.b/c":{"depth":2}}}"#;
    const NAME: &str = r#""io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"}"#;
    const OTHER_NAME: &str = r#""io.modelcontextprotocol/clientInfo":{"name":"b","version":"1"}"#;
    const INVALID_INFO: &str = r#""io.modelcontextprotocol/clientInfo":{"version":"1"}"#;
    const LEVEL: &str = r#""io.modelcontextprotocol/logLevel":"debug""#;
    const INVALID_LEVEL: &str = r#""io.modelcontextprotocol/logLevel":7"#;
    const TOKEN: &str = r#""progressToken":7"#;
    const INVALID_TOKEN: &str = r#""progressToken":[]"#;
    const TRACE: &str = r#""traceparent":"00-1-2-03""#;
    let long_name = format!(r#""io.modelcontextprotocol/clientInfo":{{"name":"{}","version":"1"}}"#, "a".repeat(5000));
    let metas = [
        &[VERSION, NO_CAPABILITIES][..],
        &[VERSION, NO_CAPABILITIES, TOKEN],
        &[TOKEN, VERSION, NO_CAPABILITIES],
        &[VERSION, NO_CAPABILITIES, NAME, LEVEL],
        &[TOKEN, VERSION, NO_CAPABILITIES, NAME, LEVEL],
        &[VERSION, NO_CAPABILITIES, NAME, LEVEL, TRACE],
        &[TRACE, VERSION, SAMPLING, NAME],
        &[VERSION, SAMPLING, OTHER_NAME],
        &[VERSION, SAMPLING, &long_name],
        &[VERSION, EXTENSION],
        &[VERSION, EXTENSION, NAME],
        &[LEVEL, VERSION, NO_CAPABILITIES],
        // Another member stands between those that name the caller.
        &[VERSION, TOKEN, NO_CAPABILITIES, NAME],
        &[VERSION, NO_CAPABILITIES, TRACE, NAME, LEVEL],
        // Of a repeated member the last value counts.
        &[VERSION, NO_CAPABILITIES, NAME, LEVEL, OTHER_NAME],
        &[OTHER_NAME, VERSION, NO_CAPABILITIES, NAME, LEVEL],
        &[VERSION, NO_CAPABILITIES, VERSION, NO_CAPABILITIES],
        &[VERSION, NO_CAPABILITIES, NAME, TRACE, SAMPLING],
        &[VERSION, NO_CAPABILITIES, TOKEN, OTHER_VERSION],
        &[OTHER_VERSION, TOKEN, VERSION, NO_CAPABILITIES],
        // Requests that are refused.
        &[VERSION],
        &[NO_CAPABILITIES, NAME],
        &[OTHER_VERSION, NO_CAPABILITIES],
        &[VERSION, NO_CAPABILITIES, INVALID_INFO],
        &[VERSION, NO_CAPABILITIES, NAME, INVALID_LEVEL],
        &[VERSION, NO_CAPABILITIES, INVALID_TOKEN],
        &[VERSION, NO_CAPABILITIES, NAME, LEVEL, INVALID_TOKEN, OTHER_NAME],
        &[],
    ];
    let frame =
        |id: u64, meta: &[&str], comma: &str| request(id, "tools/list", &format!(r#"{{"_meta":{{{}}}}}"#, meta.join(comma)));
    let receive = |server: &mut Scripted, frame: &str| {
        server.frame(frame);
        let events = server.events().into_iter().map(|event| match event {
            Event::Request { caller, observed, .. } => format!("{caller:?} {observed}"),
            other => format!("{other:?}"),
        });
        (events.collect::<Vec<_>>(), server.sent())
    };
    for (meta, comma) in metas.into_iter().flat_map(|meta| [(meta, ","), (meta, " , ")]) {
        let frames = [frame(2, meta, comma), frame(3, meta, comma)];
        let alone = frames.each_ref().map(|frame| receive(&mut modern(), frame));
        for earlier in metas {
            let mut server = modern();
            receive(&mut server, &frame(1, earlier, comma));
            let after = frames.each_ref().map(|frame| receive(&mut server, frame));
            assert_eq!(after, alone, "{meta:?} after {earlier:?}");
        }
    }
}

/// Basic, "Error Codes": a missing or malformed member of `_meta` is reported before an unknown version, an unknown version before an
/// unknown method, and an unknown method before wrong parameters.
#[test]
fn the_first_fault_in_the_order_caller_version_method_parameters_is_reported() {
    let version = |version: &str, more: &str| format!("{{{}}}", meta(version, more));
    let unsupported = r#"{"supported":["2026-07-28"],"requested":"2027-01-01"}"#;
    let cases = [
        (
            "nope",
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#.to_owned(),
            -32602,
            "_meta must name the protocol version, as text",
        ),
        ("nope", version("7", ""), -32602, "_meta must name the protocol version, as text"),
        (
            "nope",
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}}"#.to_owned(),
            -32602,
            "_meta must hold the capabilities of the client, as an object",
        ),
        (
            "nope",
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":[]}}"#
                .to_owned(),
            -32602,
            "_meta must hold the capabilities of the client, as an object",
        ),
        (
            "nope",
            version(r#""2027-01-01""#, r#","io.modelcontextprotocol/clientInfo":{"name":"c"}"#),
            -32602,
            "clientInfo must be an object with a name and a version",
        ),
        (
            "nope",
            version(r#""2027-01-01""#, r#","io.modelcontextprotocol/clientInfo":"c""#),
            -32602,
            "clientInfo must be an object with a name and a version",
        ),
        (
            "nope",
            version(r#""2027-01-01""#, r#","io.modelcontextprotocol/logLevel":"loud""#),
            -32602,
            "logLevel must be one of the eight log levels",
        ),
        ("nope", version(r#""2027-01-01""#, ""), -32022, unsupported),
        ("nope", version(r#""2026-07-28""#, ""), -32601, "method not found: nope"),
        ("tools/call", version(r#""2026-07-28""#, ""), -32602, "`name` is missing or no string"),
        ("tools/call", r#"{"name":"t","_meta":[]}"#.to_owned(), -32602, "_meta must be an object"),
        ("tools/call", r#"{"name":"t"}"#.to_owned(), -32602, "_meta must name the protocol version, as text"),
    ];
    for (method, params, code, text) in cases {
        let mut server = modern();
        server.frame(&request(3, method, &params));
        let sent = server.sent();
        assert_eq!(sent.len(), 1, "{params}");
        assert!(
            sent[0].starts_with(r#"{"jsonrpc":"2.0","id":3,"error":{"code":"#) && sent[0].contains(&format!("{code}")),
            "{params}: {sent:?}"
        );
        assert!(sent[0].contains(text), "{params}: {sent:?}");
        assert!(server.events().iter().all(|event| matches!(event, Event::Violation(Violation::InvalidParams))), "{params}");
    }
}

#[test]
fn a_stateless_request_with_a_method_of_the_legacy_era_or_of_tasks_is_refused_as_unknown() {
    let tasks = ["tasks/get", "tasks/list", "tasks/result", "tasks/cancel"];
    let removed = ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "initialize"];
    for method in removed.into_iter().chain(tasks) {
        let mut server = Scripted::new(server_config());
        server.frame(&stateless(1, method, r#""level":"debug","uri":"u:","#, ""));
        let sent = server.sent();
        assert!(sent[0].contains(&format!(r#""code":-32601,"message":"method not found: {method}""#)), "{sent:?}");
    }
}

#[test]
fn a_modern_server_refuses_initialize_with_the_versions_that_it_speaks() {
    let mut server = modern();
    server.frame(&initialize(1, "2025-11-25", "{}"));
    let data = r#""data":{"supported":["2026-07-28"],"requested":"2025-11-25"}"#;
    let sent = server.sent();
    assert!(sent[0].contains(r#""code":-32022"#) && sent[0].contains(data), "{sent:?}");
    server.frame(&call(2, ""));
    requested(&mut server);
}

#[test]
fn the_answer_to_discover_has_the_versions_the_capabilities_the_instructions_and_the_cache_hint() {
    let config = with(server_config(), |config| {
        config.instructions = Some("be kind".into());
        config.cache = CacheHint::public(Duration::from_secs(2));
    });
    let mut server = Scripted::new(config);
    server.frame(&stateless(1, "server/discover", "", ""));
    let capabilities =
        r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}"#;
    let members = format!(
        r#""supportedVersions":["2026-07-28"],"capabilities":{capabilities},"instructions":"be kind","ttlMs":2000,"cacheScope":"public","#
    );
    assert_eq!(server.sent(), [stateless_result(1, &members)]);
    assert_eq!(server.events(), []);
}

#[test]
fn results_of_lists_and_reads_have_a_cache_hint_and_those_of_tool_calls_have_none() {
    let public = with(server_config(), |config| config.cache = CacheHint::public(Duration::from_secs(2)));
    check_hints(server_config(), r#""ttlMs":0,"cacheScope":"private","#);
    check_hints(public, r#""ttlMs":2000,"cacheScope":"public","#);
}

/// Checks that the results of a list and of a read have the cache hint `hint`, and that the result of a tool call has none.
fn check_hints(config: protocol_core::Config, hint: &str) {
    let mut server = Scripted::new(config);
    server.frame(&stateless(1, "tools/list", "", ""));
    let id = requested(&mut server);
    server.session.respond(id, Reply::Page(Page::last([json(r#"{"name":"t"}"#)])), server.now).unwrap();
    assert_eq!(server.sent(), [stateless_result(1, &format!(r#""tools":[{{"name":"t"}}],{hint}"#))]);
    server.frame(&stateless(2, "resources/read", r#""uri":"u:","#, ""));
    let id = requested(&mut server);
    server.session.respond(id, Reply::Contents(json("[]")), server.now).unwrap();
    assert_eq!(server.sent(), [stateless_result(2, &format!(r#""contents":[],{hint}"#))]);
    server.frame(&call(3, ""));
    let id = requested(&mut server);
    server.session.respond(id, Reply::Tool(ToolOutput::text("x")), server.now).unwrap();
    assert_eq!(server.sent(), [stateless_result(3, r#""content":[{"type":"text","text":"x"}],"#)]);
}

#[test]
fn a_raw_result_keeps_the_members_that_it_has_itself() {
    for (given, expected) in [
        (
            r#"{"a":1}"#,
            r#"{"resultType":"complete","a":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"server","version":"1"}}}"#,
        ),
        (
            r#"{"resultType":"task","_meta":{"x":1}}"#,
            r#"{"resultType":"task","_meta":{"x":1,"io.modelcontextprotocol/serverInfo":{"name":"server","version":"1"}}}"#,
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":7}}"#,
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":7}}"#,
        ),
    ] {
        let mut server = Scripted::new(server_config());
        server.frame(&call(1, ""));
        let id = requested(&mut server);
        server.session.respond(id, Reply::Raw(json(given)), server.now).unwrap();
        assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":1,"result":{expected}}}"#)]);
    }
}

/// Tests all orders in which the three messages of the peer with a handshake keep their order, each with responses that are sent
/// immediately and with responses that are sent after the last message.
#[test]
fn the_requests_of_both_eras_are_served_alike_in_every_order_of_the_messages() {
    const MESSAGES: [&str; 6] = ["initialize", "initialized", "legacy", "call", "discover", "listen"];
    fn orders(chosen: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if chosen.len() == MESSAGES.len() {
            return all.push(chosen.clone());
        }
        for next in 0..MESSAGES.len() {
            let is_early = (1..3).contains(&next) && !chosen.contains(&(next - 1));
            if !chosen.contains(&next) && !is_early {
                chosen.push(next);
                orders(chosen, all);
                chosen.pop();
            }
        }
    }
    let mut all = Vec::new();
    orders(&mut Vec::new(), &mut all);
    assert_eq!(all.len(), 120);
    let content = r#""content":[{"type":"text","text":"x"}]"#;
    for (order, responds_immediately) in all.into_iter().flat_map(|order| [(order.clone(), true), (order, false)]) {
        let mut server = Scripted::new(server_config());
        let (mut sent, mut waiting) = (Vec::new(), Vec::new());
        for message in &order {
            server.frame(&match MESSAGES[*message] {
                "initialize" => initialize(1, "2025-06-18", r#"{"sampling":{}}"#),
                "initialized" => r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into(),
                "legacy" => call_tool(2, false),
                "call" => call(3, ""),
                "discover" => stateless(4, "server/discover", "", ""),
                _ => listen(5, r#""toolsListChanged":true"#),
            });
            for event in server.events() {
                match event {
                    Event::Request { id, request: protocol_core::Request::Listen(_), .. } => {
                        server.session.accept_subscription(id, &everything(), server.now).unwrap();
                    }
                    Event::Request { id, caller, .. } => {
                        assert_eq!(caller.capabilities().sampling, !caller.is_stateless(), "{order:?}");
                        waiting.push(id);
                    }
                    Event::Ready(_) => {}
                    other => panic!("{order:?}: {other:?}"),
                }
            }
            let served = if responds_immediately { core::mem::take(&mut waiting) } else { Vec::new() };
            for id in served {
                server.session.respond(id, Reply::Tool(ToolOutput::text("x")), server.now).unwrap();
            }
            sent.extend(server.sent());
        }
        for id in waiting {
            server.session.respond(id, Reply::Tool(ToolOutput::text("x")), server.now).unwrap();
        }
        sent.extend(server.sent());
        server.session.publish(&Notification::ToolsChanged, server.now);
        assert_eq!(server.sent(), [published(5, "tools/list_changed", "")], "{order:?}");
        sent.sort();
        let names_no_revision =
            |frame: &&String| !frame.contains(r#""supportedVersions""#) && !frame.contains(r#""protocolVersion""#);
        let mut expected = vec![
            format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{{content}}}}}"#),
            stateless_result(3, &format!("{content},")),
            published(5, "subscriptions/acknowledged", r#""notifications":{"toolsListChanged":true},"#),
        ];
        expected.sort();
        assert_eq!(sent.len(), 5, "{order:?}: {sent:?}");
        assert_eq!(sent.iter().filter(names_no_revision).cloned().collect::<Vec<_>>(), expected, "{order:?}");
    }
}

/// Basic, "Request Metadata": a request is refused if its progress token or a member that names the caller has the wrong type. Any other
/// member of `_meta` with the wrong type is ignored.
#[test]
fn a_member_of_meta_of_the_wrong_type_is_refused_or_ignored_and_the_next_request_is_served() {
    const PREFIX: &str = "io.modelcontextprotocol/";
    let mut refusals = Vec::new();
    let named = [
        ("protocolVersion", "\"", "_meta must name the protocol version, as text"),
        ("clientCapabilities", "{", "_meta must hold the capabilities of the client, as an object"),
        ("clientInfo", "n", "clientInfo must be an object with a name and a version"),
        ("logLevel", "n", "logLevel must be one of the eight log levels"),
    ];
    for (name, right, why) in named {
        refusals.extend(wrong(right).map(|value| (format!("{PREFIX}{name}"), value.to_owned(), why)));
    }
    for field in ["name", "version"] {
        let other = if field == "name" { "version" } else { "name" };
        let infos = wrong("\"").map(|value| format!(r#"{{"{field}":{value},"{other}":"x"}}"#));
        refusals.extend(infos.map(|info| (format!("{PREFIX}clientInfo"), info, named[2].2)));
    }
    let tokens = wrong("\"n").filter(|value| !["1", "-1"].contains(value));
    refusals.extend(tokens.map(|token| ("progressToken".into(), token.into(), "progressToken must be text or a whole number")));
    let request_with = |id: u64, name: &str, value: &str| {
        let members = [
            (format!("{PREFIX}protocolVersion"), r#""2026-07-28""#),
            (format!("{PREFIX}clientCapabilities"), "{}"),
            (format!("{PREFIX}clientInfo"), r#"{"name":"c","version":"1"}"#),
        ];
        let members = members.iter().filter(|(other, _)| other != name).map(|(name, value)| format!(r#""{name}":{value}"#));
        let members: Vec<_> = members.chain([format!(r#""{name}":{value}"#)]).collect();
        request(id, "tools/call", &format!(r#"{{"name":"t","_meta":{{{}}}}}"#, members.join(",")))
    };
    let mut server = modern();
    let mut numbers = 10..;
    for (name, value, why) in refusals {
        server.frame(&request_with(7, &name, &value));
        assert_eq!(server.events(), [Event::Violation(Violation::InvalidParams)], "{name} {value}");
        assert_eq!(server.sent(), [error(7, -32602, why)], "{name} {value}");
        server.frame(&call(numbers.next().unwrap(), ""));
        let id = requested(&mut server);
        server.respond(id).sent();
    }
    for (name, value) in ["traceparent", "tracestate", "baggage", "com.example/x"]
        .into_iter()
        .flat_map(|name| wrong("\"").map(move |value| (name, value)))
    {
        server.frame(&request_with(numbers.next().unwrap(), name, value));
        let events = server.events();
        let [Event::Request { id, caller, .. }] = events.as_slice() else { panic!("{name} {value}: {events:?}") };
        assert_eq!((caller.trace_parent(), caller.trace_state(), caller.baggage()), (None, None, None), "{name} {value}");
        assert_eq!(caller.meta().unwrap().member(name).unwrap().as_str(), value, "verbatim");
        server.respond(*id).sent();
    }
}

/// G15: without a handshake only clients send requests.
#[test]
fn a_stateless_call_cannot_ask_its_caller_even_if_another_caller_could_be_asked() {
    let mut server = Scripted::server(server_config());
    let info = r#","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}"#;
    server.frame(&call(1, info));
    let id = requested(&mut server);
    for ask in [InputRequest::Roots, InputRequest::Confirm { message: "?".into() }, protocol_core::Sample::new("?").into()] {
        assert_eq!(server.session.request_input(id, ask, server.now), Err(AskError::Unsupported));
    }
    assert_eq!(server.sent(), [""; 0]);
}

/// G15. A regression: the server sent the ping on the channel to a peer that answers no requests.
#[test]
fn a_server_pings_no_peer_that_sends_stateless_requests_until_there_is_a_handshake() {
    for first in [call(1, ""), stateless(1, "server/discover", "", "")] {
        let mut server = Scripted::new(server_config());
        server.frame(&first).drain();
        assert_eq!(server.session.invoke(Invoke::ping(), server.now).unwrap_err().why, SendError::NotReady, "{first}");
        server.frame(&initialize(2, "2025-06-18", "{}")).frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).drain();
        server.invoke(Invoke::ping());
        assert_eq!(server.sent().len(), 1);
    }
    assert_eq!(modern().session.invoke(Invoke::ping(), Instant::ZERO).unwrap_err().why, SendError::NotReady);
}

#[test]
fn a_record_is_sent_only_for_a_request_that_asks_for_its_level() {
    let mut server = Scripted::new(server_config());
    let level = |level: &str| format!(r#","io.modelcontextprotocol/logLevel":"{level}""#);
    let mut calls = Vec::new();
    for (id, more) in [(1, level("error")), (2, level("debug")), (3, String::new())] {
        server.frame(&call(id, &more));
        calls.push(requested(&mut server));
    }
    let mut log = |id: Option<InboundId>, level| server.session.log(id, LogRecord::new(level, json("1")), Instant::ZERO).unwrap();
    assert_eq!((log(Some(calls[0]), Level::Warning), log(Some(calls[0]), Level::Error)), (Logged::Unwanted, Logged::Sent));
    assert_eq!(log(Some(calls[1]), Level::Debug), Logged::Sent);
    assert_eq!(log(Some(calls[2]), Level::Emergency), Logged::Unwanted);
    assert_eq!(log(None, Level::Emergency), Logged::Unwanted, "no request asked for it");
}

#[test]
fn progress_and_cancel_work_as_with_a_handshake() {
    let mut server = Scripted::new(server_config());
    server.frame(&call(1, r#","progressToken":"p""#));
    let id = requested(&mut server);
    server.session.progress(id, Progress::step(1, 2), server.now).unwrap();
    assert_eq!(
        server.sent(),
        [r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2}}"#]
    );
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}"#);
    assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Peer(Some(Text::from("enough"))) }]);
    assert_eq!(server.session.respond(id, Reply::Done, server.now), Err(NotLive));
    assert_eq!(server.sent(), [""; 0], "nothing follows a cancel");
}

#[test]
fn an_id_may_be_used_again_after_its_response_and_not_before() {
    let mut server = Scripted::new(server_config());
    server.frame(&call(1, ""));
    let id = requested(&mut server);
    server.frame(&call(1, ""));
    assert_eq!(server.events(), [Event::Violation(Violation::DuplicateRequest)]);
    server.session.respond(id, Reply::Done, server.now).unwrap();
    server.frame(&call(1, ""));
    requested(&mut server);
}

/// Basic, "Error Codes": codes of the legacy era are not sent, and neither are codes that the revision reserves without a definition.
#[test]
fn codes_that_the_revision_does_not_have_are_replaced() {
    let error_of = |reply| {
        let mut server = Scripted::new(server_config());
        server.frame(&stateless(1, "resources/read", r#""uri":"u:","#, ""));
        let id = requested(&mut server);
        server.session.respond(id, reply, server.now).unwrap();
        server.sent().remove(0)
    };
    let missing = Reply::NotFound(NotFound::Resource(Text::from("u:")));
    assert_eq!(
        error_of(missing),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"resource not found","data":{"uri":"u:"}}}"#
    );
    for (code, sent) in
        [(-32002, -32602), (-32042, -32603), (-32099, -32603), (-32020, -32603), (-32021, -32021), (-32019, -32019), (4, 4)]
    {
        assert_eq!(error_of(Reply::Error(RpcError::new(code, "x"))), error(1, sent, "x"), "{code}");
    }
}

#[test]
fn a_stateless_call_ends_with_its_lane_and_one_with_a_handshake_goes_on() {
    let mut server = Scripted::server(server_config());
    let lane = Lane::new(4);
    for frame in [call(1, ""), call_tool(2, false)] {
        server.session.handle_frame(frame.into(), lane, server.now).unwrap();
    }
    let ids: Vec<_> =
        server.events().iter().filter_map(|event| if let Event::Request { id, .. } = event { Some(*id) } else { None }).collect();
    server.session.handle_gone(Gone::Lane(lane), server.now).unwrap();
    assert_eq!(server.events(), [Event::Cancelled { id: ids[0], why: CancelReason::Disconnected }]);
    assert_eq!(server.session.respond(ids[1], Reply::Done, server.now), Ok(()), "the other one goes on");
}

/// G16. A regression: a cancel by one caller ended the request of another caller on another lane, if no other open request had the id.
#[test]
fn a_stateless_call_cannot_be_cancelled_from_another_lane() {
    let mut server = Scripted::server(server_config());
    server.session.handle_frame(call(1, "").into(), Lane::new(4), server.now).unwrap();
    let id = requested(&mut server);
    for (lane, events) in [(5, vec![]), (4, vec![Event::Cancelled { id, why: CancelReason::Peer(None) }])] {
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        server.session.handle_frame(cancel.into(), Lane::new(lane), server.now).unwrap();
        assert_eq!(server.events(), events, "on lane {lane}");
    }
}

#[test]
fn a_stateless_call_with_the_same_id_hinders_no_cancel_of_a_call_with_a_handshake() {
    let mut server = Scripted::server(server_config());
    server.session.handle_frame(call_tool(1, false).into(), Lane::new(3), server.now).unwrap();
    let id = requested(&mut server);
    server.session.handle_frame(call(1, "").into(), Lane::new(4), server.now).unwrap();
    requested(&mut server);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    server.session.handle_frame(cancel.into(), Lane::new(5), server.now).unwrap();
    assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }]);
}

#[test]
fn a_refusal_by_the_session_and_an_error_of_a_handler_have_different_routes() {
    let mut server = Scripted::new(server_config());
    server.frame(&stateless(1, "nope", "", ""));
    let kind = |server: &mut Scripted| server.session.poll_transmit().unwrap().route.kind;
    assert_eq!(kind(&mut server), RouteKind::Reply(ReplyKind::Refused));
    server.frame(&call(2, ""));
    let id = requested(&mut server);
    server.session.respond(id, Reply::Error(RpcError::invalid_params("x")), server.now).unwrap();
    assert_eq!(kind(&mut server), RouteKind::Reply(ReplyKind::Error));
}

#[test]
fn a_response_to_no_request_is_reported_and_never_answered() {
    let mut server = Scripted::new(server_config());
    server.frame(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!((server.events(), server.sent()), (vec![Event::Violation(Violation::UnknownResponse)], vec![]));
}

#[test]
fn a_legacy_server_refuses_a_stateless_request_as_one_before_the_handshake() {
    let mut server = Scripted::new(with(server_config(), |config| config.era = Era::Legacy));
    server.frame(&call(1, ""));
    assert_eq!(server.sent(), [error(1, -32600, "the first request must be the handshake")]);
}

// ---- Subscriptions ----

fn listen(id: u64, kinds: &str) -> String {
    stateless(id, "subscriptions/listen", &format!(r#""notifications":{{{kinds}}},"#), "")
}

/// A filter for every list and the resource `u:`.
fn everything() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    (filter.tools, filter.prompts, filter.resources) = (true, true, true);
    filter.uris = vec![Text::from("u:")];
    filter
}

/// The frame with the notification `method` for the subscription `id`; `member` is empty, or a member of the parameters with a comma after
/// it.
fn published(id: u64, method: &str, member: &str) -> String {
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{member}{meta}}}}}"#)
}

/// A server with a subscription of id 1 to these kinds, whose acknowledgement was sent.
fn listening(kinds: &str) -> (Scripted, InboundId) {
    let mut server = Scripted::new(server_config());
    server.frame(&listen(1, kinds));
    let id = requested(&mut server);
    server.session.accept_subscription(id, &everything(), server.now).unwrap();
    server.drain();
    (server, id)
}

#[test]
fn a_subscription_is_acknowledged_first_with_the_kinds_that_are_offered_and_wanted() {
    let mut server = Scripted::new(server_config());
    server.frame(&listen(
        1,
        r#""toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["v:","u:"],"taskIds":["t"]"#,
    ));
    let id = requested(&mut server);
    assert_eq!(server.session.publish(&Notification::ToolsChanged, server.now), 0, "it is not accepted yet");
    server.session.accept_subscription(id, &everything(), server.now).unwrap();
    assert_eq!(server.session.accept_subscription(id, &everything(), server.now), Err(NotLive), "once");
    let wanted = r#""notifications":{"toolsListChanged":true,"resourceSubscriptions":["u:"]},"#;
    assert_eq!(server.sent(), [published(1, "subscriptions/acknowledged", wanted)]);
    assert_eq!(server.session.publish(&Notification::ToolsChanged, server.now), 1);
    assert_eq!(server.session.publish(&Notification::PromptsChanged, server.now), 0, "not wanted");
    for (uri, reached) in [("u:", 1), ("v:", 0)] {
        assert_eq!(server.session.publish(&Notification::ResourceUpdated { uri: Text::from(uri) }, server.now), reached);
    }
    assert_eq!(server.sent(), [published(1, "tools/list_changed", ""), published(1, "resources/updated", r#""uri":"u:","#)]);
}

/// `publish` does not send a `Notification::ResourceValue`: a value names one subscription, and two values of a resource would wait as two
/// notifications. (`notify` sends it as a change of the resource.)
#[test]
fn the_value_of_a_resource_reaches_no_subscription_but_a_change_of_the_resource_does() {
    let (mut server, _) = listening(r#""resourceSubscriptions":["u:"]"#);
    let value = Notification::ResourceValue { subscription: Text::from("s"), uri: Text::from("u:"), value: json("1") };
    assert_eq!((server.session.publish(&value, server.now), server.sent()), (0, vec![]));
    assert_eq!(server.session.publish(&Notification::ResourceUpdated { uri: Text::from("u:") }, server.now), 1);
    assert_eq!(server.sent(), [published(1, "resources/updated", r#""uri":"u:","#)]);
}

#[test]
fn each_of_several_subscriptions_gets_the_notices_that_it_includes_and_a_peer_with_a_handshake_gets_none() {
    let mut server = Scripted::server(server_config());
    for (id, kinds) in [(1, r#""toolsListChanged":true"#), (2, r#""promptsListChanged":true"#), (3, r#""toolsListChanged":true"#)] {
        server.frame(&listen(id, kinds));
        let id = requested(&mut server);
        server.session.accept_subscription(id, &everything(), server.now).unwrap();
    }
    server.drain();
    assert_eq!(server.session.publish(&Notification::ToolsChanged, server.now), 2);
    assert_eq!(server.sent(), [published(1, "tools/list_changed", ""), published(3, "tools/list_changed", "")]);
}

#[test]
fn a_subscription_ends_with_its_result_when_its_handler_responds_or_the_session_closes() {
    let result = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1,"io.modelcontextprotocol/serverInfo":{"name":"server","version":"1"}}}}"#;
    let (mut server, id) = listening(r#""toolsListChanged":true"#);
    server.session.respond(id, Reply::Done, server.now).unwrap();
    assert_eq!(server.sent(), [result]);
    assert_eq!(server.session.publish(&Notification::ToolsChanged, server.now), 0);
    let (mut server, id) = listening(r#""toolsListChanged":true"#);
    server.session.close(Close::Graceful { grace: Duration::from_secs(5) }, server.now);
    assert_eq!(server.sent(), [result]);
    assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Closing }, Event::Closed(CloseReason::Local)]);
}

#[test]
fn a_subscription_that_its_caller_cancels_ends_without_a_frame() {
    let (mut server, id) = listening(r#""toolsListChanged":true"#);
    server.session.publish(&Notification::ToolsChanged, server.now);
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }]);
    server.session.publish(&Notification::ToolsChanged, server.now);
    assert_eq!(server.sent(), [""; 0], "not even what was queued");
}

#[test]
fn notices_without_room_are_kept_once_each_and_sent_in_their_order() {
    let (mut server, _) = listening(r#""toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["u:"]"#);
    server.frame(&call(2, ""));
    let id = requested(&mut server);
    server.session.respond(id, Reply::Tool(ToolOutput::text("x".repeat(2 << 20))), server.now).unwrap();
    for _ in 0..3 {
        for notification in
            [Notification::ToolsChanged, Notification::ResourceUpdated { uri: Text::from("u:") }, Notification::ResourcesChanged]
        {
            assert_eq!(server.session.publish(&notification, server.now), 1);
        }
    }
    let sent = server.sent();
    let updated = published(1, "resources/updated", r#""uri":"u:","#);
    assert_eq!(sent[1..], [published(1, "tools/list_changed", ""), updated, published(1, "resources/list_changed", "")]);
}

#[test]
fn a_subscription_has_no_deadline_no_progress_and_no_records() {
    let mut server = Scripted::new(with(server_config(), |config| config.timeouts.serve = Some(Duration::from_secs(1))));
    let more = r#","progressToken":9,"io.modelcontextprotocol/logLevel":"debug""#;
    server.frame(&stateless(1, "subscriptions/listen", r#""notifications":{},"#, more));
    let id = requested(&mut server);
    server.session.accept_subscription(id, &everything(), server.now).unwrap();
    assert_eq!(server.sent(), [published(1, "subscriptions/acknowledged", r#""notifications":{},"#)], "even for nothing");
    assert_eq!(server.session.progress(id, Progress::step(1, 2), server.now), Ok(Reported::Unobserved));
    let record = LogRecord::new(Level::Emergency, json("1"));
    assert_eq!(server.session.log(Some(id), record, server.now), Ok(Logged::Unwanted));
    assert_eq!(server.session.poll_timeout(), None);
}

#[test]
fn a_subscription_of_the_wrong_shape_is_refused() {
    for (params, why) in [
        ("", "`notifications` is missing or no object"),
        (r#""notifications":[],"#, "`notifications` is missing or no object"),
        (
            r#""notifications":{"toolsListChanged":1},"#,
            "`toolsListChanged`, `promptsListChanged` and `resourcesListChanged` must be booleans",
        ),
        (r#""notifications":{"resourceSubscriptions":"u:"},"#, "`resourceSubscriptions` must be an array of strings"),
        (r#""notifications":{"resourceSubscriptions":[1]},"#, "`resourceSubscriptions` must be an array of strings"),
        (r#""notifications":{"resourceSubscriptions":["a","b","c"]},"#, "too many resources in one subscription"),
    ] {
        let mut server = Scripted::new(with(server_config(), |config| config.limits.subscriptions = 2));
        server.frame(&stateless(1, "subscriptions/listen", params, ""));
        assert_eq!(server.sent(), [error(1, -32602, why)], "{params}");
    }
}

/// The deadline of the handshake does not apply once the peer has sent a stateless request, nor at a server that speaks only the modern
/// era.
#[test]
fn a_channel_of_stateless_requests_alone_stays_open() {
    for first in [stateless(1, "server/discover", "", ""), call(1, "")] {
        let mut server = Scripted::new(server_config());
        server.frame(&first).at(60_000);
        assert!(!server.session.is_closed());
    }
    let mut silent = Scripted::new(server_config());
    silent.at(60_000);
    assert!(silent.session.is_closed());
    assert_eq!(modern().session.poll_timeout(), None, "no handshake is waited for");
}
