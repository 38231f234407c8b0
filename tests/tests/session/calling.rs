//! Outbound calls, from `Session::invoke` to their outcome: the frames that are sent, refused calls, and responses (Basic, "Messages" and
//! "_meta"; Lifecycle, "Capability Negotiation"; `docs/protocols/mcp.md`, "Transitions of an outgoing call"). The prefix of a test name,
//! such as `o3`, is a number in the table "Former row numbers" of that page.

use std::time::Duration;

use protocol_core::{
    CallTimeouts, Close, CloseReason, Event, ExchangeId, InputFailed, InputRequest, InputResponse, Invalid, Invoke, InvokeError,
    Json, Lane, Level, LogRecord, Notification, Op, Outcome, Reply, RpcError, SendError, Violation, mcp,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, discovered, error, initialize, json, notification, request, result};
use testkit::{Pair, Scripted};

/// A call that asks for no progress and has no timeouts.
fn plain(op: Op, params: &str) -> Invoke {
    let call = if op == Op::Custom { Invoke::custom("acme/do", json(params)) } else { Invoke::new(op, json(params)) };
    call.without_progress().with_timeouts(CallTimeouts::NONE)
}

/// Makes a call that the session must not accept, and returns the reason.
fn invoke_error(end: &mut Scripted, call: Invoke) -> SendError {
    let InvokeError { why, call: back } = end.session.invoke(call.clone(), end.now).unwrap_err();
    assert_eq!(*back, call, "the call is handed back");
    why
}

/// Every operation except [`Op::Ping`] and [`Op::Listen`], with the capabilities that the server must have declared for it.
fn needs() -> [(Op, &'static str); 12] {
    [
        (Op::CallTool, r#"{"tools":{}}"#),
        (Op::ListTools, r#"{"tools":{}}"#),
        (Op::GetPrompt, r#"{"prompts":{}}"#),
        (Op::ListPrompts, r#"{"prompts":{}}"#),
        (Op::ReadResource, r#"{"resources":{}}"#),
        (Op::ListResources, r#"{"resources":{}}"#),
        (Op::ListResourceTemplates, r#"{"resources":{}}"#),
        (Op::Subscribe, r#"{"resources":{"subscribe":true}}"#),
        (Op::Unsubscribe, r#"{"resources":{"subscribe":true}}"#),
        (Op::Complete, r#"{"completions":{}}"#),
        (Op::SetLogLevel, r#"{"logging":{}}"#),
        (Op::Custom, "{}"),
    ]
}

// ---- Frames that are sent ----

#[test]
fn o1_a_call_is_sent_at_once_and_its_id_is_also_its_progress_token() {
    let mut client = Scripted::client(client_config());
    client.call();
    assert_eq!(
        client.sent(),
        [r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":2}}}"#]
    );
    client.expect_silence();
    assert_eq!(client.session.stats().outbound_calls, 1);
}

#[test]
fn every_operation_is_sent_with_its_own_method() {
    let methods = [
        (Op::CallTool, "tools/call"),
        (Op::ListTools, "tools/list"),
        (Op::GetPrompt, "prompts/get"),
        (Op::ListPrompts, "prompts/list"),
        (Op::ReadResource, "resources/read"),
        (Op::ListResources, "resources/list"),
        (Op::ListResourceTemplates, "resources/templates/list"),
        (Op::Subscribe, "resources/subscribe"),
        (Op::Unsubscribe, "resources/unsubscribe"),
        (Op::Complete, "completion/complete"),
        (Op::SetLogLevel, "logging/setLevel"),
        (Op::Ping, "ping"),
        (Op::Custom, "acme/do"),
    ];
    for (op, method) in methods {
        let mut client = Scripted::client(client_config());
        client.invoke(plain(op, r#"{"a": 1}"#));
        assert_eq!(client.sent(), [request(2, method, r#"{"a": 1}"#)]);
    }
}

#[test]
fn a_call_has_a_progress_token_if_its_caller_or_its_idle_timeout_needs_progress() {
    let timeouts_with = |idle: Option<u64>, reset_on_progress| {
        CallTimeouts::NONE.with_idle(idle.map(Duration::from_secs)).with_reset_on_progress(reset_on_progress)
    };
    for (progress, timeouts, asks) in [
        (true, CallTimeouts::NONE, true),
        (false, CallTimeouts::NONE, false),
        (false, CallTimeouts::default(), true),
        (false, timeouts_with(Some(1), true), true),
        (false, timeouts_with(Some(1), false), false),
        (false, timeouts_with(None, true), false),
        (true, timeouts_with(None, false), true),
    ] {
        let mut client = Scripted::client(client_config());
        let mut call = Invoke::list_tools(None).with_timeouts(timeouts);
        call.progress = progress;
        client.invoke(call);
        let params = if asks { r#"{"_meta":{"progressToken":2}}"# } else { "{}" };
        assert_eq!(client.sent(), [request(2, "tools/list", params)], "{progress} {timeouts:?}");
    }
}

#[test]
fn the_meta_of_the_caller_is_sent_without_the_members_that_belong_to_the_session() {
    for (given, sent) in [
        (r#"{"a":1}"#, r#"{"a":1,"_meta":{"progressToken":2}}"#),
        (r#"{"_meta":{"traceparent":"00-1"},"a":1}"#, r#"{"a":1,"_meta":{"traceparent":"00-1","progressToken":2}}"#),
        (r#"{"_meta":{"progressToken":"mine","x":{}}}"#, r#"{"_meta":{"x":{},"progressToken":2}}"#),
        (r#"{"_meta":{"protocol-core/samplingDepth":7,"protocol-core/parent":9}}"#, r#"{"_meta":{"progressToken":2}}"#),
        (r#"{"_meta":{"progress\u0054oken":0}}"#, r#"{"_meta":{"progressToken":2}}"#),
        (r#"{"_meta":5,"a":1}"#, r#"{"a":1,"_meta":{"progressToken":2}}"#),
        (r#"{"\u005fmeta":{"x":1}}"#, r#"{"_meta":{"x":1,"progressToken":2}}"#),
    ] {
        let mut client = Scripted::client(client_config());
        client.invoke(Invoke::new(Op::CallTool, json(given)));
        assert_eq!(client.sent(), [request(2, "tools/call", sent)], "{given}");
    }
}

#[test]
fn a_progress_token_in_the_meta_of_the_caller_is_never_sent() {
    let mut client = Scripted::client(client_config());
    client.invoke(plain(Op::CallTool, r#"{"name":"t","_meta":{"progressToken":0,"x":1}}"#));
    assert_eq!(client.sent(), [request(2, "tools/call", r#"{"name":"t","_meta":{"x":1}}"#)]);
}

#[test]
fn g13_parameters_are_sent_byte_for_byte_with_or_without_members_added_to_them() {
    let values = r#""n":1e999,"t":"\u00e9\ud800","o":{ "k" :[1.50 , -0]},"twice":1,"twice":2,"\u006eame":3,"\ud800":4"#;
    let mut client = Scripted::client(client_config());
    client.invoke(plain(Op::CallTool, &format!("{{{values}}}")));
    client.invoke(Invoke::new(Op::CallTool, json(&format!("{{{values}}}"))));
    let sent = client.sent();
    assert_eq!(sent[0], request(2, "tools/call", &format!("{{{values}}}")));
    assert_eq!(sent[1], request(3, "tools/call", &format!(r#"{{{values},"_meta":{{"progressToken":3}}}}"#)));
}

#[test]
fn a_frame_is_one_line_even_if_the_parameters_had_several() {
    let mut client = Scripted::client(client_config());
    client.invoke(plain(Op::CallTool, "{\n\t\"name\": \"t\",\r\n\t\"arguments\": {\n\t}\n}"));
    client.invoke(Invoke::new(Op::CallTool, json("{\"arguments\":{\n}}")));
    let sent = client.sent();
    assert_eq!(sent[0], request(2, "tools/call", "{ \t\"name\": \"t\",  \t\"arguments\": { \t} }"));
    assert_eq!(sent[1], request(3, "tools/call", r#"{"arguments":{ },"_meta":{"progressToken":3}}"#));
}

#[test]
fn calls_are_sent_in_the_order_in_which_they_were_made_even_after_being_held() {
    let mut client = Scripted::new(client_config());
    client.sent();
    let made: Vec<_> = (0..20).map(|_| client.call()).collect();
    assert_eq!(client.sent(), Vec::<String>::new());
    client.frame(&handshake_answer("2025-11-25", r#"{"tools":{}}"#));
    client.call();
    let sent = client.sent();
    for (place, frame) in sent.iter().skip(1).enumerate() {
        assert!(frame.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{},"#, place + 2)), "{frame}");
    }
    assert_eq!((sent.len(), made.len()), (22, 20));
}

// ---- Held calls ----

fn handshake_answer(revision: &str, declares: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{revision}","capabilities":{declares},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
    )
}

#[test]
fn o2_a_held_call_keeps_its_meta_and_its_token() {
    let mut client = Scripted::new(client_config());
    client.sent();
    client.invoke(Invoke::new(Op::CallTool, json(r#"{"name":"t","_meta":{"x":1}}"#)));
    client.frame(&handshake_answer("2025-11-25", r#"{"tools":{}}"#));
    assert_eq!(client.sent()[1], request(2, "tools/call", r#"{"name":"t","_meta":{"x":1,"progressToken":2}}"#));
}

#[test]
fn o3_a_held_call_is_checked_against_the_capabilities_once_the_server_declares_them() {
    for (op, declares) in needs() {
        for (declared, fits) in [(declares, true), ("{}", declares == "{}")] {
            let mut client = Scripted::new(client_config());
            client.sent();
            let call = client.invoke(plain(op, "{}"));
            client.frame(&handshake_answer("2025-11-25", declared));
            assert_eq!(client.sent().len(), if fits { 2 } else { 1 }, "{op:?} {declared}");
            let is_invalid = client.events().into_iter().any(|event| {
                event == Event::Done { id: call, outcome: Outcome::Invalid(Invalid::Unsupported), partial: None, last: None }
            });
            assert_eq!(is_invalid, !fits, "{op:?} {declared}");
        }
    }
}

#[test]
fn held_calls_count_toward_the_limits_of_output_and_of_calls_in_flight() {
    let mut client = Scripted::new(with(client_config(), |config| config.limits.output_bytes = 2000));
    client.sent();
    let big = || Invoke::new(Op::CallTool, json(&format!(r#"{{"name":"{}"}}"#, "t".repeat(1500))));
    client.invoke(big());
    client.invoke(big());
    assert_eq!(invoke_error(&mut client, big()), SendError::Full);
    let mut client = Scripted::new(with(client_config(), |config| config.limits.in_flight = 1));
    client.call();
    assert_eq!(invoke_error(&mut client, big()), SendError::Full);
}

// ---- Refused calls ----

#[test]
fn o3_an_operation_is_sent_only_to_a_server_that_declared_its_capability() {
    for (op, declares) in needs() {
        let mut client = Scripted::client_at(client_config(), "2025-11-25", declares);
        client.invoke(plain(op, "{}"));
        assert_eq!(client.sent().len(), 1, "{op:?}");

        // A subscription needs `subscribe`; for it, `resources` without that member is among the other capabilities. The first eight bytes
        // of a part tell the capabilities apart.
        let everything_else = [r#""tools":{}"#, r#""prompts":{}"#, r#""completions":{}"#, r#""logging":{}"#, r#""resources":{}"#]
            .into_iter()
            .filter(|part| !declares.contains(&part[..8]) || declares.contains("subscribe"));
        let others = format!("{{{}}}", everything_else.collect::<Vec<_>>().join(","));
        let mut client = Scripted::client_at(client_config(), "2025-11-25", &others);
        if declares != "{}" {
            assert_eq!(invoke_error(&mut client, plain(op, "{}")), SendError::Unsupported, "{op:?} {others}");
            client.expect_silence();
        }
    }
}

#[test]
fn a_capability_that_is_not_an_object_counts_as_undeclared() {
    for declares in [r#"{"tools":true}"#, r#"{"tools":null}"#, r#"{"tools":[]}"#, r#"{"tools":"yes"}"#] {
        let mut client = Scripted::client_at(client_config(), "2025-11-25", declares);
        assert_eq!(invoke_error(&mut client, plain(Op::CallTool, "{}")), SendError::Unsupported, "{declares}");
    }
    for declares in [r#"{"resources":{"subscribe":false}}"#, r#"{"resources":{"subscribe":1}}"#, r#"{"resources":{}}"#] {
        let mut client = Scripted::client_at(client_config(), "2025-11-25", declares);
        assert_eq!(invoke_error(&mut client, plain(Op::Subscribe, "{}")), SendError::Unsupported, "{declares}");
    }
}

#[test]
fn completion_needs_no_capability_in_the_first_revision_since_that_revision_has_none_for_it() {
    for (revision, fits) in [("2024-11-05", true), ("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", false)] {
        let mut client = Scripted::client_at(client_config(), revision, "{}");
        assert_eq!(client.session.invoke(plain(Op::Complete, "{}"), client.now).is_ok(), fits, "{revision}");
    }
}

#[test]
fn a_refused_call_changes_nothing() {
    let mut client = Scripted::client_at(client_config(), "2025-11-25", r#"{"tools":{}}"#);
    let before = client.session.stats();
    invoke_error(&mut client, plain(Op::GetPrompt, "{}"));
    client.expect_silence();
    assert_eq!((client.session.stats(), client.session.poll_timeout()), (before, None));
    client.invoke(plain(Op::CallTool, "{}"));
    assert_eq!(client.sent(), [request(2, "tools/call", "{}")]);
}

#[test]
fn parameters_must_be_an_object() {
    for params in ["[]", "null", "1", "\"x\"", "true"] {
        let mut client = Scripted::client(client_config());
        assert_eq!(invoke_error(&mut client, plain(Op::CallTool, params)), SendError::Params, "{params}");
    }
}

#[test]
fn a_server_can_never_start_an_operation_of_clients() {
    let mut fresh = Scripted::new(server_config());
    let mut ready = Scripted::server(server_config());
    for (op, _) in needs() {
        for server in [&mut fresh, &mut ready] {
            let refused = server.session.invoke(plain(op, "{}"), server.now).map_err(|error| error.why);
            let expected = if op == Op::Custom { Ok(()) } else { Err(SendError::WrongEnd) };
            assert_eq!(refused.map(drop), expected, "{op:?}");
        }
    }
}

#[test]
fn a_method_of_the_protocol_cannot_be_sent_as_a_custom_one() {
    let custom = |method: &str| Invoke::custom(method, json("{}"));
    let mut client = Scripted::client_at(client_config(), "2025-11-25", r#"{"tools":{}}"#);
    for method in ["prompts/get", "logging/setLevel", "initialize", "sampling/createMessage", "notifications/cancelled"] {
        assert!(client.session.invoke(custom(method), client.now).is_err(), "{method}");
    }
    let mut server = Scripted::server(server_config());
    for method in
        ["sampling/createMessage", "elicitation/create", "roots/list", "tools/call", "initialize", "notifications/progress"]
    {
        assert!(server.session.invoke(custom(method), server.now).is_err(), "{method}");
    }
    for method in
        ["notifications/cancelled", "notifications/progress", "notifications/initialized", "notifications/message", "tools/call"]
    {
        let notification = Notification::Custom { method: method.into(), params: Some(Json::empty_object()) };
        assert!(server.session.notify(notification, server.now).is_err(), "{method}");
    }
    client.expect_silence();
    server.expect_silence();
}

#[test]
fn parameters_of_a_notification_must_be_an_object() {
    for params in ["[]", "null", "1", "\"x\""] {
        let mut server = Scripted::server(server_config());
        let notification = Notification::Custom { method: "acme/news".into(), params: Some(json(params)) };
        assert_eq!(server.session.notify(notification, server.now), Err(SendError::Params), "{params}");
        server.expect_silence();
    }
}

#[test]
fn a_call_on_behalf_of_an_answered_or_cancelled_input_request_is_refused() {
    let mut client = Scripted::client(client_config());
    client.frame(&request(7, "roots/list", "{}"));
    let input_request = client.input_request();
    client.session.provide_input(input_request, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(invoke_error(&mut client, plain(Op::CallTool, "{}").with_parent(input_request)), SendError::NoParent);
    client.frame(&request(8, "elicitation/create", r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#));
    let input_request = client.input_request();
    client.frame(&cancelled(8));
    assert_eq!(invoke_error(&mut client, plain(Op::CallTool, "{}").with_parent(input_request)), SendError::NoParent);
}

#[test]
fn a_call_whose_parameters_or_method_are_longer_than_a_frame_is_refused() {
    let mut client = Scripted::client(with(client_config(), |config| config.limits.frame_bytes = 4096));
    let long = "x".repeat(4096);
    assert_eq!(invoke_error(&mut client, plain(Op::CallTool, &format!(r#"{{"name":"{long}"}}"#))), SendError::TooLarge);
    assert_eq!(invoke_error(&mut client, Invoke::custom(long, json("{}"))), SendError::TooLarge);
    assert_eq!(invoke_error(&mut client, Invoke::custom("\u{1}".repeat(1000), json("{}"))), SendError::TooLarge, "escaped");
    client.expect_silence();
}

#[test]
fn payloads_of_the_greatest_depth_that_can_be_built_are_accepted_by_the_other_end() {
    let nested = |depth: usize| format!("{}{}", r#"{"a":"#.repeat(depth - 1), "{}") + &"}".repeat(depth - 1);
    for depth in [1, 100, 120] {
        let server = with(server_config(), |config| config.custom_methods = vec!["acme/do".to_owned()]);
        let mut pair = Pair::with(client_config(), server);
        pair.client.invoke(Invoke::custom("acme/do", json(&nested(depth))));
        pair.run();
        let id = pair.server.request();
        let failure = RpcError::internal("x").with_data(json(&nested(depth)));
        pair.server.session.checkpoint(id, json(&nested(depth))).unwrap();
        pair.server.session.respond(id, Reply::Error(failure), pair.server.now).unwrap();
        pair.run();
        assert!(matches!(pair.client_events()[..], [Event::Done { .. }]), "{depth}");
    }
    assert!(Json::parse(nested(121)).is_err());
    assert!(Json::encode(&serde_json::from_str::<serde_json::Value>(&nested(121)).unwrap()).is_err());
}

#[test]
fn a_notification_fails_before_the_handshake_at_the_wrong_end_without_a_capability_if_too_long_or_while_closing() {
    let mut fresh = Scripted::new(server_config());
    assert_eq!(fresh.session.notify(Notification::ToolsChanged, fresh.now), Err(SendError::NotReady));
    let mut client = Scripted::client(with(client_config(), |config| {
        config.capabilities.roots_list_changed = false;
        config.limits.frame_bytes = 2000;
    }));
    assert_eq!(client.session.notify(Notification::ToolsChanged, client.now), Err(SendError::WrongEnd));
    assert_eq!(client.session.notify(Notification::RootsChanged, client.now), Err(SendError::Unsupported));
    let long = Notification::Custom { method: "a".repeat(2000).as_str().into(), params: None };
    assert_eq!(client.session.notify(long, client.now), Err(SendError::TooLarge));
    client.session.close(Close::Graceful { grace: Duration::ZERO }, client.now);
    assert_eq!(client.session.notify(Notification::RootsChanged, client.now), Err(SendError::Closing));
    assert_eq!(client.sent(), Vec::<String>::new());
}

// ---- Responses ----

#[test]
fn o9_a_result_is_handed_on_byte_for_byte() {
    let body = r#"{ "content":[],"n":1e999,"t":"\ud800","twice":1,"twice":2,"unknown":{"a":[ null ]} }"#;
    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.sent();
    client.frame(&format!(r#"{{"id":2,"result":{body} , "jsonrpc":"2.0","extra":[{{}}]}}"#));
    let done = Event::Done { id: call, outcome: Outcome::Result(json(body)), partial: None, last: None };
    assert_eq!((client.events(), client.sent()), (vec![done], vec![]));
    assert_eq!(client.session.poll_timeout(), None);
}

#[test]
fn o12_a_response_of_the_wrong_shape_ends_only_its_own_call_as_invalid() {
    let (no_object, version) = ("`result` is no object", r#"`jsonrpc` is not "2.0""#);
    for (body, why) in [
        (r#""jsonrpc":"2.0","result":[]"#, no_object),
        (r#""jsonrpc":"2.0","result":null"#, no_object),
        (r#""jsonrpc":"2.0","result":"done""#, no_object),
        (r#""jsonrpc":"2.0","result":1"#, no_object),
        (r#""jsonrpc":"2.0","result":true"#, no_object),
        (r#""jsonrpc":"2.0","result":{},"error":{"code":1,"message":""}"#, "it has a result and an error"),
        (r#""jsonrpc":"2.0","error":null"#, "`error` is null"),
        (r#""jsonrpc":"1.0","result":{}"#, version),
        (r#""jsonrpc":"1.0","error":{"code":1,"message":"no"}"#, version),
        (r#""error":{"code":1,"message":"no"}"#, version),
        (r#""jsonrpc":2.0,"result":{}"#, version),
        (r#""result":{}"#, version),
    ] {
        let mut client = Scripted::client(client_config());
        let (failed, other) = (client.call(), client.call());
        client.sent();
        client.frame(&format!(r#"{{"id":2,{body}}}"#));
        let events = client.events();
        let [
            Event::Violation(Violation::InvalidResponse),
            Event::Done { id, outcome: Outcome::Invalid(Invalid::Unreadable(found)), .. },
        ] = &events[..]
        else {
            panic!("{body}: {events:?}")
        };
        assert_eq!(*id, failed, "{body}");
        // Without these bytes nobody could tell what the peer had sent.
        assert_eq!(found.to_string(), format!(r#"a response of the wrong shape: {{"id":2,{body}}} ({why})"#));
        assert_eq!(client.sent(), Vec::<String>::new(), "{body}");
        client.frame(&result(3));
        assert!(matches!(client.events()[..], [Event::Done { id, .. }] if id == other));
    }
}

#[test]
fn o11_a_task_instead_of_a_result_is_an_invalid_response() {
    let task =
        r#"{"taskId":"1","status":"working","createdAt":"2025-11-25T00:00:00Z","lastUpdatedAt":"2025-11-25T00:00:00Z","ttl":null}"#;
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"task":{task}}}}}"#));
    let Outcome::Invalid(Invalid::Unreadable(found)) = client.outcome() else { panic!("a task is no result") };
    assert_eq!(found.rule, Violation::InvalidResponse);
    assert!(found.excerpt.starts_with(r#"{"task":{"taskId":"1","#), "{found}");
    client.expect_silence();
}

#[test]
fn o13_an_error_of_the_peer_is_handed_on_with_its_data() {
    for (given, data) in [
        ("", None),
        (r#","data":null"#, Some("null")),
        (r#","data":{ "uri":"x" }"#, Some(r#"{ "uri":"x" }"#)),
        (r#","data":[],"extra":1"#, Some("[]")),
    ] {
        for code in [-32602, -32042, -32800, 0, i64::MAX, i64::MIN] {
            let mut client = Scripted::client(client_config());
            client.call();
            client.sent();
            client.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":{code},"message":"no \"way\""{given}}}}}"#));
            let mut error = RpcError::new(code, "no \"way\"");
            error.data = data.map(json).map(Box::new);
            assert_eq!(client.outcome(), Outcome::Error(error));
            client.expect_silence();
        }
    }
}

#[test]
fn o13_the_partial_result_in_the_data_of_an_error_is_handed_on_with_the_error() {
    for (data, partial) in [
        (r#"{"partial":{"processed":3},"x":1}"#, Some(r#"{"processed":3}"#)),
        (r#"{"partial":[]}"#, None),
        (r#"[{"partial":{}}]"#, None),
        ("null", None),
    ] {
        let mut client = Scripted::client(client_config());
        client.call();
        client.sent();
        client.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":-32603,"message":"","data":{data}}}}}"#));
        let [Event::Done { partial: reported, .. }] = &client.events()[..] else { panic!() };
        assert_eq!(*reported, partial.map(json), "{data}");
    }
}

#[test]
fn o7_a_log_record_is_handed_on_and_the_call_goes_on() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(&notification("notifications/message", r#"{"level":"warning","logger":"db","data":{"a":[1]}}"#));
    let record = LogRecord::new(Level::Warning, json(r#"{"a":[1]}"#)).with_logger("db");
    assert_eq!(client.events(), [Event::Log(record)]);
    client.frame(&result(2));
    assert_eq!(client.outcome(), Outcome::Result(Json::empty_object()));
}

#[test]
fn o22_a_cancel_from_the_peer_has_no_effect_on_an_outbound_call() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(&cancelled(2));
    client.expect_silence();
    // The peer's own request with the same number is another exchange.
    client.frame(&request(2, "roots/list", "{}"));
    let input_request = client.input_request();
    client.frame(&cancelled(2));
    assert_eq!((client.events(), client.sent()), (vec![Event::InputGone { key: input_request }], vec![]));
    client.frame(&result(2));
    assert_eq!(client.outcome(), Outcome::Result(Json::empty_object()));
}

#[test]
fn o26_a_late_response_is_dropped_and_counted() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(&result(2)).events();
    for late in [result(2), error(2, 1, ""), r#"{"jsonrpc":"2.0","id":2,"result":5}"#.to_owned()] {
        client.frame(&late);
        client.expect_silence();
    }
    assert_eq!(client.session.stats().late_frames, 3);
}

/// Seen in the field: servers that make text or a fraction of each id, or that lose it. The only sign of their answers was the timeout.
#[test]
fn o28_a_response_to_no_request_ends_nothing_and_is_shown_while_a_request_is_open_that_it_may_be_meant_for() {
    let text = Some("its id is text, and the ids of our requests are numbers");
    let fraction = Some("its id is not written as a whole number");
    let unknown = Some("no request has this id");
    for (id, why) in [
        (r#""id":"2","#, text),
        (r#""id":"02","#, text),
        (r#""id":"4","#, text),
        (r#""id":"","#, text),
        (r#""id":2.0,"#, fraction),
        (r#""id":20e-1,"#, fraction),
        (r#""id":4.0,"#, fraction),
        ("", Some("it has no id")),
        (r#""id":null,"#, Some("its id is null")),
        (r#""id":4,"#, unknown),
        (r#""id":99,"#, unknown),
        (r#""id":-1,"#, unknown),
        (r#""id":2.5,"#, unknown),
        (r#""id":9007199254740993,"#, unknown),
        (r#""id":18446744073709551618,"#, unknown),
        (r#""id":true,"#, unknown),
        (r#""id":[2],"#, unknown),
        // The request was answered.
        (r#""id":"1","#, None),
        (r#""id":1.0,"#, None),
    ] {
        let mut client = Scripted::client(client_config());
        let calls = [client.call(), client.call()];
        let answer = format!(r#"{{"jsonrpc":"2.0",{id}"result":{{}}}}"#);
        client.drain().frame(&answer);
        match (&client.events()[..], why) {
            ([Event::Unreadable(found)], Some(why)) => {
                let shown = format!("a response to a request that was never made: {answer} ({why})");
                assert_eq!((found.rule, found.to_string()), (Violation::UnknownResponse, shown));
            }
            (events, why) => {
                assert_eq!((events, why), (&[Event::Violation(Violation::UnknownResponse)][..], None), "{id}");
            }
        }
        assert_eq!(client.session.stats().violations(Violation::UnknownResponse), 1);
        client.frame(&result(2)).frame(&result(3));
        let done = client.events();
        assert!(
            done.iter().zip(calls).all(|(event, call)| matches!(event, Event::Done { id, .. } if *id == call)),
            "{id}: {done:?}"
        );
        client.frame(&answer);
        assert_eq!(client.events(), [Event::Violation(Violation::UnknownResponse)], "{id}: nothing is open");
    }
    let mut opening = Scripted::new(client_config());
    opening.drain().frame(r#"{"jsonrpc":"2.0","result":{}}"#);
    assert!(matches!(opening.events()[..], [Event::Unreadable(_)]), "the handshake");
}

#[test]
fn o28_a_response_that_comes_before_its_request_was_sent_is_a_violation() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.frame(&result(2));
    assert_eq!(client.violations(), [Violation::UnknownResponse]);
    client.sent();
    client.frame(&result(2));
    assert_eq!(client.outcome(), Outcome::Result(Json::empty_object()));
}

#[test]
fn an_error_without_an_id_ends_no_call() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    for id in ["", r#""id":null,"#] {
        client.frame(&format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32700,"message":"?"}}}}"#));
        assert_eq!((client.violations(), client.sent()), (vec![Violation::ErrorWithoutId], vec![]));
    }
    assert_eq!(client.session.stats().outbound_calls, 1);
}

#[test]
fn g11_a_response_whose_id_was_turned_into_text_ends_no_call() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    client.frame(r#"{"jsonrpc":"2.0","id":"2","result":{}}"#);
    client.frame(&notification("notifications/progress", r#"{"progressToken":"2","progress":1}"#));
    assert_eq!(client.violations(), [Violation::UnknownResponse, Violation::UnknownProgress]);
}

#[test]
fn a_server_may_call_a_custom_method_of_its_client_and_gets_the_response() {
    let mut server = Scripted::server(server_config());
    let call = server.invoke(plain(Op::Custom, "{}"));
    assert_eq!(server.sent(), [request(1, "acme/do", "{}")]);
    // The ids of the client's requests are independent of the server's.
    server.frame(&call_tool(1, false));
    server.request();
    server.frame(&result(1));
    assert!(matches!(server.events()[..], [Event::Done { id, .. }] if id == call));
}

#[test]
fn a_call_of_a_server_is_held_until_the_client_has_confirmed_the_handshake() {
    let mut server = Scripted::new(server_config());
    server.invoke(plain(Op::Custom, "{}"));
    server.frame(&initialize(0, "2025-11-25", "{}"));
    assert_eq!(server.sent().len(), 1, "the response to the handshake");
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(server.sent(), [request(1, "acme/do", "{}")]);
}

/// Seen in the field: a result with `NaN`, with a byte of Latin-1, nested 129 deep, or in an array waited out the time limit of its call.
/// So did a result that its serialiser had left out since it was null, and two messages in one line.
#[test]
fn an_answer_that_cannot_be_read_ends_its_call_at_once_with_the_position_of_the_fault_and_the_bytes_around_it() {
    let deep = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    for (frame, rule, position) in [
        (br#"{"jsonrpc":"2.0","id":2,"result":{"n":NaN}}"#.to_vec(), Violation::NotJson, 38),
        (br#"{"result":{"n":-Infinity},"jsonrpc":"2.0","id":2}"#.to_vec(), Violation::NotJson, 16),
        (b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"n\":\"caf\xe9\"}}".to_vec(), Violation::NotJson, 42),
        (format!("{}{}", result(2), result(9)).into_bytes(), Violation::NotJson, 36),
        (format!("{} <- sent", result(2)).into_bytes(), Violation::NotJson, 37),
        (deep.into_bytes(), Violation::TooDeep, 160),
        (format!("[{}]", result(2)).into_bytes(), Violation::BatchUnsupported, 0),
        (br#"{"jsonrpc":"2.0","id":2}"#.to_vec(), Violation::InvalidEnvelope, 0),
        (br#"{"jsonrpc":"2.0","id":2,"result":{},"result":{}}"#.to_vec(), Violation::RepeatedMember, 0),
    ] {
        let shown = String::from_utf8_lossy(&frame).into_owned();
        let mut client = Scripted::client(client_config());
        let (failed, other) = (client.call(), client.call());
        client.sent();
        client.session.handle_frame(frame.into(), Lane::CHANNEL, client.now).unwrap();
        let events = client.events();
        let [Event::Violation(reported), Event::Done { id, outcome: Outcome::Invalid(Invalid::Unreadable(found)), .. }] =
            &events[..]
        else {
            panic!("{shown}: {events:?}")
        };
        assert_eq!((*reported, *id, found.rule, found.position), (rule, failed, rule, position), "{shown}");
        let begin = if shown.len() > 80 { "..[[[[" } else { &shown[..24] };
        assert!(found.excerpt.starts_with(begin), "{shown}: {found}");
        client.frame(&result(3));
        assert!(matches!(client.events()[..], [Event::Done { id, .. }] if id == other), "{shown}");
    }
}

/// Seen in the field: a banner before the first message, and a server that frames its messages by headers. A line that may be a log or a
/// request of the peer ends no call.
#[test]
fn a_line_that_is_no_message_is_reported_with_an_excerpt_and_ends_no_call() {
    for line in [
        "Server started",
        "Content-Length: 52",
        r#"sending {"jsonrpc":"2.0","id":2,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"ping","params":{"n":NaN},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{"n":NaN}}"#,
        r#"{"jsonrpc":"2.0","id":"2","result":{"n":NaN}}"#,
    ] {
        let mut client = Scripted::client(client_config());
        let call = client.call();
        client.drain().frame(line);
        let events = client.events();
        assert!(matches!(&events[..], [Event::Unreadable(found)] if found.excerpt == *line), "{line}: {events:?}");
        client.frame(&result(2));
        assert!(matches!(client.events()[..], [Event::Done { id, outcome: Outcome::Result(_), .. }] if id == call), "{line}");
    }
}

/// Otherwise the stream of one call could end another one.
#[test]
fn on_the_stream_of_a_stateless_request_an_unreadable_answer_ends_this_request_alone() {
    let mut client = Scripted::new(with(client_config(), |config| config.era = mcp::Era::Modern));
    client.drain().frame(&discovered(1, r#""2026-07-28""#, r#"{"tools":{}}"#));
    let (first, _) = (client.call(), client.call());
    client.drain();
    let answers = format!("[{},{}]", result(2), result(3));
    let within = Some(ExchangeId::from_number(2));
    client.session.handle_frame_within(answers.into(), Lane::CHANNEL, within, client.now).unwrap();
    let done: Vec<_> = client.events().into_iter().filter(|event| matches!(event, Event::Done { .. })).collect();
    assert!(
        matches!(done[..], [Event::Done { id, outcome: Outcome::Invalid(Invalid::Unreadable(_)), .. }] if id == first),
        "{done:?}"
    );
}

#[test]
fn an_unreadable_answer_to_the_handshake_or_to_an_input_request_ends_these_at_once() {
    let mut client = Scripted::new(client_config());
    client.drain().frame(r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
    let events = client.events();
    assert!(
        matches!(&events[..], [Event::Unreadable(found), Event::Closed(CloseReason::AnswerInvalid("result", _))]
        if found.rule == Violation::BatchUnsupported),
        "{events:?}"
    );
    let mut server = Scripted::server(server_config());
    server.frame(&request(7, "tools/call", r#"{"name":"t"}"#));
    let id = server.request();
    let key = server.session.request_input(id, InputRequest::Roots, server.now).unwrap();
    server.drain().frame(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":NaN}}"#, key.to_string().trim_start_matches("input-")));
    let events = server.events();
    assert!(
        matches!(&events[..], [Event::Violation(Violation::NotJson), Event::Input { answer: Err(InputFailed::Invalid(why)), .. }]
        if why.contains("at byte 33")),
        "{events:?}"
    );
}
