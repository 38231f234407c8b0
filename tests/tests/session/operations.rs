//! Operations as types: inbound requests read from their text, outbound requests written from their parts, custom methods, callers, pages.

use bytes::Bytes;
use protocol_core::{
    Completion, CompletionOf, CompletionRequest, Config, Event, Invoke, Json, Lane, Level, Notification, Op, Outcome, Page, Reply,
    Request, SendError, ToolInfo, Violation,
};
use testkit::config::{app_config, gateway_config};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{error, initialize, json, notification, request};
use testkit::{Pair, Scripted};

/// The request that is the only queued event.
fn received(end: &mut Scripted) -> Request {
    let events = end.events();
    match &events[..] {
        [Event::Request { request, .. }] => request.clone(),
        _ => panic!("expected one request: {events:?}"),
    }
}

// ---- Inbound requests ----

#[test]
fn the_parameters_of_a_request_keep_unknown_members_and_meta() {
    let mut server = Scripted::server(server_config());
    let params = r#"{ "x":[ 1.50 ],"name":"t","task":{"ttl":1}, "_meta" : {"a.b/c":"\u00e9"},"arguments":{ "b" : 1e999 } }"#;
    server.frame(&request(1, "tools/call", params));
    let Request::CallTool(call) = received(&mut server) else { panic!("a call") };
    assert_eq!((&*call.name(), call.params().as_str()), ("t", params));
    assert_eq!(call.arguments().unwrap().as_str(), r#"{ "b" : 1e999 }"#);
}

#[test]
fn the_arguments_of_a_call_are_a_slice_of_the_frame() {
    let mut server = Scripted::server(server_config());
    let frame = Bytes::from(request(1, "tools/call", r#"{"name":"t","arguments":{"a":1}}"#));
    let memory = frame.as_ptr_range();
    server.session.handle_frame(frame, Lane::CHANNEL, server.now).unwrap();
    let Request::CallTool(call) = received(&mut server) else { panic!("a call") };
    assert!(memory.contains(&call.arguments().unwrap().as_bytes().as_ptr()));
    assert!(memory.contains(&call.into_arguments().unwrap().as_bytes().as_ptr()));
}

#[test]
fn a_frame_of_16_mib_is_freed_with_its_arguments_while_the_call_goes_on() {
    for (mut end, method, named) in [
        (Scripted::server(server_config()), "tools/call", r#""arguments""#),
        (Scripted::app(app_config()), "actions/invoke", r#""invocationId":"i1","input""#),
    ] {
        let end = &mut end;
        let long = "x".repeat((16 << 20) - 300);
        let params = format!(r#"{{"_meta":{{"progressToken":"p","traceparent":"00-1-2-3"}},"name":"t",{named}:{{"a":"{long}"}}}}"#);
        let frame = Bytes::from(request(1, method, &params));
        end.session.handle_frame(frame.clone(), Lane::CHANNEL, end.now).unwrap();
        let Some(Event::Request { id, request: Request::CallTool(call), caller, .. }) = end.session.poll_event() else {
            panic!("a call")
        };
        let arguments = call.into_arguments().unwrap();
        assert!(arguments.as_bytes().len() > 15 << 20 && !frame.is_unique());
        drop(arguments);
        assert!(frame.is_unique(), "neither the session nor the caller keeps a part of the frame");
        assert_eq!(end.session.stats().inbound_calls, 1, "the call goes on");
        drop(caller);
        end.respond(id);
    }
}

// ---- Outbound requests ----

#[test]
fn each_request_is_written_from_its_parts_with_the_members_of_mcp() {
    let mut completion = CompletionRequest::new(CompletionOf::Prompt("p\"".into()), "a", "x");
    completion.context.insert("b".into(), "c\n".into());
    for (call, method, params) in [
        (Invoke::call_tool("t\"", json(r#"{ "a" :1.0 }"#)), "tools/call", r#"{"name":"t\"","arguments":{ "a" :1.0 }}"#),
        (Invoke::list_tools(None), "tools/list", "{}"),
        (Invoke::list_tools(Some("c\"".into())), "tools/list", r#"{"cursor":"c\""}"#),
        (Invoke::get_prompt("p", json("{}")), "prompts/get", r#"{"name":"p","arguments":{}}"#),
        (Invoke::list_prompts(Some("".into())), "prompts/list", r#"{"cursor":""}"#),
        (Invoke::read_resource("u:x"), "resources/read", r#"{"uri":"u:x"}"#),
        (Invoke::list_resources(None), "resources/list", "{}"),
        (Invoke::list_resource_templates(None), "resources/templates/list", "{}"),
        (Invoke::subscribe("u:x").with_subscription("s"), "resources/subscribe", r#"{"uri":"u:x"}"#),
        (Invoke::unsubscribe("u:x"), "resources/unsubscribe", r#"{"uri":"u:x"}"#),
        (
            Invoke::complete(completion),
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p\""},"argument":{"name":"a","value":"x"},"context":{"arguments":{"b":"c\n"}}}"#,
        ),
        (
            Invoke::complete(CompletionRequest::new(CompletionOf::Resource("u:{a}".into()), "a", "")),
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"u:{a}"},"argument":{"name":"a","value":""}}"#,
        ),
        (Invoke::set_log_level(Level::Warning), "logging/setLevel", r#"{"level":"warning"}"#),
        (Invoke::ping(), "ping", "{}"),
        (Invoke::custom("acme/do", json(r#"{"a":1}"#)), "acme/do", r#"{"a":1}"#),
    ] {
        let mut client = Scripted::client(client_config());
        client.invoke(call.without_progress().with_timeouts(protocol_core::CallTimeouts::NONE));
        assert_eq!(client.sent(), [request(2, method, params)]);
    }
}

#[test]
fn the_meta_of_a_call_is_sent_except_for_members_that_belong_to_the_session() {
    let meta = || json(r#"{"traceparent":"00-1","progressToken":"mine"}"#);
    let merged = r#""_meta":{"traceparent":"00-1","progressToken":2}}"#;
    for (call, params) in [
        (Invoke::call_tool("t", json("{}")), r#"{"name":"t","arguments":{},"#),
        (Invoke::list_tools(None), "{"),
        (Invoke::new(Op::CallTool, json(r#"{"name":"t","_meta":{"x":1}}"#)), r#"{"name":"t","#),
    ] {
        let mut client = Scripted::client(client_config());
        client.invoke(call.with_meta(meta()));
        // Of these requests, only the one for the list of tools has no parameters but `_meta`.
        let method = if params == "{" { "tools/list" } else { "tools/call" };
        assert_eq!(client.sent(), [request(2, method, &format!("{params}{merged}"))]);
    }
}

#[test]
fn a_request_with_arguments_or_meta_that_are_no_object_or_without_a_method_is_refused() {
    let mut client = Scripted::client(client_config());
    for call in [
        Invoke::call_tool("t", json("[1]")),
        Invoke::get_prompt("p", json("null")),
        Invoke::custom("acme/do", json("[]")),
        Invoke::list_tools(None).with_meta(json("1")),
        Invoke::new(Op::Custom, json("{}")),
    ] {
        let refused = client.session.invoke(call.clone(), client.now).unwrap_err();
        assert_eq!((refused.why, *refused.call), (SendError::Params, call));
    }
    client.expect_silence();
}

// ---- Custom methods ----

/// Lists custom methods and custom notifications in `config`.
fn with_custom_methods(config: Config) -> Config {
    with(config, |config| {
        // The lists also have methods of the protocols. For these methods the lists change nothing.
        let listed = ["acme/do", "tools/call", "ping", "sampling/createMessage", "actions/invoke", "tesseron/hello", "initialize"];
        config.custom_methods = listed.map(String::from).into();
        let listed = ["acme/news", "notifications/cancelled", "tools/list", "actions/cancel", "log"];
        config.custom_notifications = listed.map(String::from).into();
    })
}

fn ready_pairs() -> [Pair; 2] {
    [
        Pair::with(with_custom_methods(client_config()), with_custom_methods(server_config())),
        Pair::tesseron_with(with_custom_methods(gateway_config()), with_custom_methods(app_config())),
    ]
}

#[test]
fn listed_methods_are_served_in_both_directions() {
    for mut pair in ready_pairs() {
        for from_client in [true, false] {
            let (from, to) = if from_client { (&mut pair.client, &mut pair.server) } else { (&mut pair.server, &mut pair.client) };
            to.events();
            from.invoke(Invoke::custom("acme/do", json(r#"{ "a" : 1 }"#)).without_progress());
            let sent = from.sent();
            assert!(sent[0].contains(r#""method":"acme/do","params":{ "a" : 1"#), "{sent:?}");
            to.frame(&sent[0]);
            let [Event::Request { id, request: Request::Custom(custom), .. }] = &to.events()[..] else {
                panic!("a custom request")
            };
            assert_eq!((custom.method(), custom.params().member("a").unwrap().as_str()), ("acme/do", "1"));
            to.session.respond(*id, Reply::Raw(json(r#"{"done":[ ]}"#)), to.now).unwrap();
            from.frame(&to.sent()[0]);
            assert_eq!(from.outcome(), Outcome::Result(json(r#"{"done":[ ]}"#)));
        }
    }
}

#[test]
fn unlisted_methods_are_unknown_and_unlisted_notifications_are_ignored() {
    for end in [
        Scripted::server(server_config()),
        Scripted::client(client_config()),
        Scripted::app(app_config()),
        Scripted::gateway(gateway_config()),
    ] {
        let mut end = end;
        end.drain();
        end.frame(&request(7, "acme/do", "{}"));
        let sent = end.sent();
        assert!(sent[0].contains(r#""id":7,"error":{"code":-32601"#), "{sent:?}");
        end.frame(&notification("acme/news", "{}")).expect_silence();
    }
}

#[test]
fn listed_notifications_are_reported_at_either_end() {
    for mut pair in ready_pairs() {
        for end in [&mut pair.client, &mut pair.server] {
            end.events();
            end.frame(&notification("acme/news", r#"{ "a":1 }"#));
            let notification = Notification::Custom { method: "acme/news".into(), params: Some(json(r#"{ "a":1 }"#)) };
            assert_eq!(end.events(), [Event::Notification(notification)]);
        }
    }
}

#[test]
fn listing_a_method_of_the_protocol_as_custom_changes_nothing() {
    let mut server = Scripted::server(with_custom_methods(server_config()));
    server.frame(&request(1, "tools/call", r#"{"name":"t"}"#));
    assert!(matches!(received(&mut server), Request::CallTool(_)));
    server.frame(&request(2, "ping", "{}"));
    server.frame(&request(3, "sampling/createMessage", "{}"));
    assert_eq!(server.sent().len(), 2);
    assert_eq!(server.events(), [Event::Violation(Violation::WrongDirection)]);
    server.frame(&notification("tools/list", "{}")).expect_silence();
    let mut client = Scripted::client(with_custom_methods(client_config()));
    client.frame(&request(3, "tools/call", r#"{"name":"t"}"#));
    assert_eq!(client.sent(), [error(3, -32601, "method not found: tools/call")]);
    let mut app = Scripted::app(with_custom_methods(app_config()));
    app.frame(&request(1, "actions/invoke", r#"{"name":"t","invocationId":"i1"}"#));
    assert!(matches!(received(&mut app), Request::CallTool(_)));
}

// ---- The caller ----

#[test]
fn a_request_comes_with_the_identity_and_the_meta_of_its_caller() {
    let mut server = Scripted::new(server_config());
    server.frame(&initialize(0, "2025-06-18", r#"{"sampling":{}}"#));
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).drain();
    server.frame(&request(1, "logging/setLevel", r#"{"level":"error"}"#)).drain();
    let meta = r#"{ "traceparent":"00-a-b-01","tracestate":"v=1","baggage":"k=v","progressToken":7 }"#;
    server.frame(&request(2, "tools/list", &format!(r#"{{"_meta":{meta}}}"#)));
    server.frame(&request(3, "tools/list", r#"{"_meta":{"progressToken":8,"protocol-core/samplingDepth":0}}"#));
    let events = server.events();
    let [Event::Request { caller, .. }, Event::Request { caller: other, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&*caller.identity().name, caller.protocol(), caller.log_level()), ("c", "2025-06-18", Some(Level::Error)));
    assert!(caller.capabilities().sampling && !caller.capabilities().elicitation);
    assert_eq!(caller.meta().map(Json::as_str), Some(meta));
    assert_eq!(caller.trace_parent().as_deref(), Some("00-a-b-01"));
    assert_eq!((caller.trace_state().as_deref(), caller.baggage().as_deref()), (Some("v=1"), Some("k=v")));
    assert_eq!((other.meta(), other.trace_parent()), (None, None), "without members of another request, and of the session");
}

#[test]
fn on_tesseron_the_caller_is_the_agent_for_which_the_app_is_claimed() {
    let mut pair = Pair::tesseron();
    pair.server.events();
    pair.client.invoke(testkit::tesseron::call_action());
    pair.run();
    let events = pair.server.events();
    let [Event::Request { caller, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&*caller.identity().name, caller.protocol(), caller.meta()), ("acme-cli", "1.2.0", None));
}

// ---- Replies ----

#[test]
fn pages_and_completions_are_sent_only_as_replies_to_their_own_operations() {
    let entry = |name: &str| json(&format!(r#"{{"name":"{name}","inputSchema":{{}}}}"#));
    for (method, list) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let mut server = Scripted::server(server_config());
        server.frame(&request(1, method, "{}"));
        let id = server.request();
        let page = Page::last([entry("a"), entry("b")]).followed_by("c\"");
        server.session.respond(id, Reply::Page(page), server.now).unwrap();
        let items = r#"{"name":"a","inputSchema":{}},{"name":"b","inputSchema":{}}"#;
        let written = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"{list}":[{items}],"nextCursor":"c\""}}}}"#);
        assert_eq!(server.sent(), [written]);
    }
    let mut server = Scripted::server(server_config());
    let params = r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"}}"#;
    server.frame(&request(1, "completion/complete", params));
    let id = server.request();
    server.session.respond(id, Reply::Completion(Completion::all(["x1"])), server.now).unwrap();
    let written = r#"{"jsonrpc":"2.0","id":1,"result":{"completion":{"values":["x1"],"hasMore":false}}}"#;
    assert_eq!(server.sent(), [written]);
    for reply in [Reply::Page(Page::default()), Reply::Completion(Completion::default())] {
        let id = server.receive_call(2);
        server.session.respond(id, reply, server.now).unwrap();
        assert!(server.sent()[0].contains("-32603"), "neither answers a call of a tool");
    }
}

#[test]
fn a_client_can_read_the_page_that_a_server_sends() {
    let mut pair = Pair::ready();
    pair.client.invoke(Invoke::list_tools(None));
    pair.run();
    let id = pair.server.request();
    let page = Page::last([json(r#"{"name":"a","inputSchema":{"type":"object"},"x":1}"#)]);
    pair.server.session.respond(id, Reply::Page(page.clone()), pair.server.now).unwrap();
    pair.run();
    let Outcome::Result(result) = pair.client.outcome() else { panic!("a result") };
    let read = Page::read(Op::ListTools, &result).unwrap();
    assert_eq!(read, page);
    assert_eq!(ToolInfo::read(read.items[0].clone()).unwrap().input_schema.as_str(), r#"{"type":"object"}"#);
}
