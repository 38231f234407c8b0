//! Inbound calls, from their receipt to the end of their handlers (Basic, "Requests"; Utilities, "Cancellation" and "Ping").

use std::time::Duration;

use protocol_core::{
    AskError, CancelReason, CheckpointError, Content, Event, InboundId, InputRequest, Level, LogRecord, NotLive, Op, Progress,
    ProgressError, Reply, RpcError, ServeOptions, ToolOutput, TransportEnd, Violation,
};
use testkit::Scripted;
use testkit::config::{server_config, with};
use testkit::scripted::{call_tool, cancelled, error, json, ok, request};

const TIMED_OUT: &str =
    r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"the time for this call has run out"}],"isError":true}}"#;

/// A step of a test with a server.
type Step = fn(&mut Scripted);

/// The configuration of a server that delays a response until 50 ms after the last update of its call.
fn gap() -> protocol_core::Config {
    with(server_config(), |config| config.timeouts.response_gap = Duration::from_millis(50))
}

#[test]
fn each_method_is_reported_as_its_operation_with_unchanged_parameters() {
    for (method, op) in [
        ("tools/call", Op::CallTool),
        ("tools/list", Op::ListTools),
        ("prompts/get", Op::GetPrompt),
        ("prompts/list", Op::ListPrompts),
        ("resources/read", Op::ReadResource),
        ("resources/list", Op::ListResources),
        ("resources/templates/list", Op::ListResourceTemplates),
        ("resources/subscribe", Op::Subscribe),
        ("resources/unsubscribe", Op::Unsubscribe),
        ("completion/complete", Op::Complete),
    ] {
        let mut server = Scripted::server(server_config());
        let given =
            r#"{ "a" : [1.50],"name":"n","uri":"u:x","ref":{"type":"ref/prompt","name":"n"},"argument":{"name":"a","value":""} }"#;
        server.frame(&request(1, method, given));
        let events = server.events();
        let [Event::Request { request: read, depth: 0, observed: false, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!((read.op(), read.params().as_str()), (op, given));
        server.frame(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}"}}"#));
        let events = server.events();
        match op {
            Op::ListTools | Op::ListPrompts | Op::ListResources | Op::ListResourceTemplates => {
                let [Event::Request { request, .. }] = &events[..] else { panic!("{events:?}") };
                assert_eq!(request.params().as_str(), "{}");
            }
            _ => assert_eq!(events, [Event::Violation(Violation::InvalidParams)], "{method}"),
        }
    }
}

#[test]
fn a_response_has_the_id_of_its_request_with_its_type() {
    for id in ["1", "0", "-5", "9007199254740993", r#""1""#, r#""""#, r#""é\"\\""#] {
        let mut server = Scripted::server(server_config());
        server.frame(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#));
        let inbound = server.request();
        server.reply(inbound, Reply::Raw(json(r#"{"tools":[]}"#)));
        assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[]}}}}"#)]);
    }
}

#[test]
fn a_refused_request_is_answered_with_the_reason_and_its_id_can_be_reused() {
    for (method, params, code, rule) in [
        ("tools/unknown", "{}", -32601, None),
        ("initialized", "{}", -32601, None),
        ("prompts/list", "{}", -32601, None),
        ("completion/complete", "{}", -32601, None),
        ("logging/setLevel", "{}", -32601, None),
        ("sampling/createMessage", "{}", -32601, Some(Violation::WrongDirection)),
        ("elicitation/create", "{}", -32601, Some(Violation::WrongDirection)),
        ("roots/list", "{}", -32601, Some(Violation::WrongDirection)),
        ("tools/call", "[]", -32602, Some(Violation::InvalidParams)),
        ("tools/call", r#"{"_meta":1}"#, -32602, Some(Violation::InvalidParams)),
        ("tools/call", r#"{"_meta":{"progressToken":1.5}}"#, -32602, Some(Violation::InvalidParams)),
        ("tools/call", r#"{"_meta":{},"_meta":{}}"#, -32600, Some(Violation::RepeatedMember)),
    ] {
        let mut server = Scripted::server(with(server_config(), |config| {
            config.capabilities = protocol_core::Capabilities::default();
            config.capabilities.tools = true;
        }));
        server.frame(&request(1, method, params));
        let sent = server.sent();
        assert!(
            sent.len() == 1 && sent[0].starts_with(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"#)),
            "{sent:?}"
        );
        assert_eq!(server.events(), rule.map(Event::Violation).into_iter().collect::<Vec<_>>(), "{method} {params}");
        server.frame(&call_tool(1, false));
        let events = server.events();
        assert!(matches!(&events[..], [Event::Request { .. }]), "the id is free: {events:?}");
    }
}

#[test]
fn a_second_request_with_a_running_id_is_not_answered_and_the_first_goes_on() {
    let duplicates = ["tools/call", "tools/list", "ping", "logging/setLevel", "nothing/known", "initialize"]
        .map(|method| request(1, method, "{}"));
    for second in duplicates {
        // A second call also exceeds this limit, but the refusal for that reason must not be sent either.
        let mut server = Scripted::server(with(server_config(), |config| config.limits.in_flight = 1));
        let id = server.receive_call(1);
        server.frame(&second);
        assert_eq!(server.sent(), Vec::<String>::new(), "{second}");
        assert_eq!(server.violations().last(), Some(&Violation::DuplicateRequest), "{second}");
        assert_eq!(server.session.stats().inbound_calls, 1);
        server.respond(id);
        assert_eq!(server.sent(), [ok(1)]);
    }
}

#[test]
fn an_id_is_in_use_while_its_response_is_delayed_or_its_cancelled_handler_runs() {
    let mut server = Scripted::server(gap());
    let id = server.receive_call(1);
    server.report(id, Progress::value(1.0));
    server.respond(id).drain().frame(&call_tool(1, false));
    assert_eq!((server.sent(), server.events()), (vec![], vec![Event::Violation(Violation::DuplicateRequest)]));

    let id = server.receive_call(2);
    server.frame(&cancelled(2)).drain().frame(&call_tool(2, false));
    assert_eq!((server.sent(), server.events()), (vec![], vec![Event::Violation(Violation::DuplicateRequest)]));
    server.session.respond(id, Reply::Raw(json("{}")), server.now).unwrap_err();
    server.frame(&call_tool(2, false));
    server.request();
}

#[test]
fn an_id_that_is_reused_after_its_response_is_a_violation_but_served() {
    let config = with(server_config(), |config| config.timeouts.serve = Some(Duration::from_secs(1)));
    let answer: Step = |server| {
        let id = server.request();
        server.respond(id);
    };
    let endings: [(&str, Step); 3] = [
        ("answered", answer),
        ("timed out", |server| {
            server.at(1_000);
        }),
        ("cancelled, and its handler has ended", |server| {
            let id = server.request();
            server.frame(&cancelled(1));
            server.session.respond(id, Reply::Raw(json("{}")), server.now).unwrap_err();
        }),
    ];
    for (name, end) in endings {
        let mut server = Scripted::server(config.clone());
        server.frame(&call_tool(1, false));
        end(&mut server);
        server.drain().frame(&call_tool(1, false));
        let events = server.events();
        let [Event::Violation(Violation::ReusedId), Event::Request { id, .. }] = events[..] else { panic!("{name}: {events:?}") };
        server.respond(id);
        assert_eq!(server.sent(), [ok(1)], "{name}");
    }
}

#[test]
fn a_handler_that_ends_after_its_deadline_does_not_affect_the_next_request_with_its_id() {
    let mut server = Scripted::server(with(server_config(), |config| config.timeouts.serve = Some(Duration::from_secs(1))));
    let first = server.receive_call(1);
    server.at(1_000).drain();
    let second = server.receive_call(1);
    assert_eq!(server.session.respond(first, Reply::Raw(json("{}")), server.now), Err(NotLive));
    server.frame(&call_tool(1, false));
    assert_eq!(server.violations(), [Violation::DuplicateRequest]);
    server.respond(second);
    assert_eq!(server.sent(), [ok(1)]);
}

#[test]
fn a_cancel_is_reported_once_and_later_methods_for_the_call_are_refused() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}"#);
    assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Peer(Some("enough".into())) }]);
    server.frame(&cancelled(1));
    let now = server.now;
    let session = &mut server.session;
    assert_eq!(session.progress(id, Progress::value(1.0), now), Err(ProgressError::NotLive));
    assert_eq!(session.checkpoint(id, json("{}")), Err(CheckpointError::NotLive));
    assert_eq!(session.request_input(id, InputRequest::Roots, now), Err(AskError::NotLive));
    assert_eq!(session.configure(id, ServeOptions::default(), now), Err(NotLive));
    let record = LogRecord::new(Level::Error, json("1"));
    assert_eq!(session.log(Some(id), record, now), Err(NotLive));
    assert_eq!((session.stats().inbound_calls, session.stats().cancelled_calls), (1, 1));
    assert_eq!(session.respond(id, Reply::Tool(ToolOutput::text("late")), now), Err(NotLive));
    assert_eq!((session.stats().inbound_calls, session.stats().cancelled_calls), (0, 0));
    server.at(1_000_000).expect_silence();
}

#[test]
fn no_frame_is_sent_for_a_call_after_its_cancel_at_any_point() {
    type Reach = fn(&mut Scripted, InboundId);
    let points: [(&str, Reach); 5] = [
        ("at once", |_, _| {}),
        ("progress waits to be sent", |server, id| {
            server.report(id, Progress::value(1.0));
        }),
        ("progress is kept for later", |server, id| {
            let window = protocol_core::RateWindow::new(0, Duration::from_secs(1));
            server.session.configure(id, ServeOptions::default().with_window(window), server.now).unwrap();
            server.report(id, Progress::value(1.0));
        }),
        ("a question waits to be sent", |server, id| {
            server.ask(id, InputRequest::Roots);
        }),
        ("a deadline is set", |server, id| {
            let deadline = ServeOptions::default().with_deadline(Duration::from_secs(1));
            server.session.configure(id, deadline, server.now).unwrap();
        }),
    ];
    for (name, reach) in points {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        reach(&mut server, id);
        server.frame(&cancelled(1)).at(1_000_000);
        server.session.respond(id, Reply::Tool(ToolOutput::text("late")), server.now).unwrap_err();
        assert_eq!(server.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }], "{name}");
        assert_eq!(server.sent(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_deadline_answers_a_tool_call_with_a_failed_result_and_anything_else_with_an_error() {
    let config = with(server_config(), |config| config.timeouts.serve = Some(Duration::from_secs(1)));
    for (frame, answer) in [
        (call_tool(1, true), TIMED_OUT.to_owned()),
        (
            request(1, "prompts/get", r#"{"name":"p"}"#),
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the time for this call has run out","data":{"reason":"timeout"}}}"#
                .to_owned(),
        ),
    ] {
        let mut server = Scripted::server(config.clone());
        server.frame(&frame);
        let id = server.request();
        assert_eq!(server.session.poll_timeout(), Some(protocol_core::Instant::from_millis(1_000)));
        server.at(999).expect_silence();
        server.at(1_000);
        assert_eq!((server.sent(), server.events()), (vec![answer], vec![Event::Cancelled { id, why: CancelReason::Deadline }]));
        assert_eq!(server.session.progress(id, Progress::value(1.0), server.now), Err(ProgressError::NotLive));
        assert_eq!((server.session.stats().inbound_calls, server.session.stats().cancelled_calls), (1, 1));
        assert_eq!(server.session.respond(id, Reply::Tool(ToolOutput::text("late")), server.now), Err(NotLive));
        assert_eq!((server.session.stats().inbound_calls, server.session.stats().cancelled_calls), (0, 0));
        server.at(1_000_000).expect_silence();
    }
}

#[test]
fn a_deadline_of_zero_answers_a_call_on_receipt() {
    let mut server = Scripted::server(with(server_config(), |config| config.timeouts.serve = Some(Duration::ZERO)));
    server.frame(&call_tool(1, true));
    let events = server.events();
    let [Event::Request { id, .. }, Event::Cancelled { id: ended, why: CancelReason::Deadline }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((id, server.sent()), (ended, vec![TIMED_OUT.to_owned()]));
    assert_eq!(server.session.poll_timeout(), None);
}

#[test]
fn the_deadline_of_one_call_counts_from_its_receipt_and_can_be_made_earlier_or_later() {
    let mut server = Scripted::server(with(server_config(), |config| config.timeouts.serve = Some(Duration::from_secs(1))));
    let id = server.receive_call(1);
    let other = server.receive_call(2);
    let set_deadline = |server: &mut Scripted, millis| {
        let options = ServeOptions::default().with_deadline(Duration::from_millis(millis));
        server.session.configure(id, options, server.now).unwrap();
    };
    server.at(900);
    set_deadline(&mut server, 5_000);
    server.at(1_000);
    assert_eq!(
        server.events(),
        [Event::Cancelled { id: other, why: CancelReason::Deadline }],
        "only the other call has the default deadline"
    );
    set_deadline(&mut server, 1_500);
    server.drain().at(1_499).expect_silence();
    server.at(1_500);
    assert_eq!(
        (server.sent(), server.events()),
        (vec![TIMED_OUT.to_owned()], vec![Event::Cancelled { id, why: CancelReason::Deadline }])
    );
    assert_eq!(server.session.configure(id, ServeOptions::default(), server.now), Err(NotLive));
}

#[test]
fn a_response_larger_than_a_frame_is_sent_as_an_internal_error() {
    let config = with(server_config(), |config| config.limits.frame_bytes = 400);
    let long = "x".repeat(400);
    let replies = [
        Reply::Tool(ToolOutput::text(long.clone())),
        Reply::Raw(json(&format!(r#"{{"content":[],"long":"{long}"}}"#))),
        Reply::Error(RpcError::new(1, long.clone())),
    ];
    for reply in replies {
        let mut server = Scripted::server_at(config.clone(), "2025-11-25", "{}");
        let id = server.receive_call(1);
        server.reply(id, reply);
        let sent = server.sent();
        assert!(sent.len() == 1 && sent[0].contains("-32603") && sent[0].contains("larger than a frame may be (4"), "{sent:?}");
        assert!(sent[0].contains(" of 400 bytes)"), "{sent:?}");
    }
    let mut server = Scripted::server_at(config, "2025-11-25", "{}");
    let id = server.receive_call(1);
    server.session.checkpoint(id, json(&format!(r#"{{"long":"{long}"}}"#))).unwrap();
    server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), server.now).unwrap();
    let sent = server.sent();
    assert!(sent.len() == 1 && sent[0].contains("-32603") && sent[0].contains("larger than a frame may be ("), "{sent:?}");
}

#[test]
fn a_reply_of_the_wrong_kind_is_sent_as_an_internal_error() {
    let mut server = Scripted::server(server_config());
    for not_an_object in ["[]", "1", "null", r#""{}""#] {
        let id = server.receive_call(1);
        server.reply(id, Reply::Raw(json(not_an_object)));
        assert_eq!(server.sent(), [error(1, -32603, "the handler's result is not an object")]);
    }
    server.frame(&request(2, "prompts/list", "{}"));
    let id = server.request();
    server.reply(id, Reply::Tool(ToolOutput::text("ok")));
    assert_eq!(server.sent(), [error(2, -32603, "a tool's output answers only a call of a tool")]);
}

#[test]
fn the_output_of_a_tool_is_written_for_the_revision() {
    let mut output =
        ToolOutput::blocks([Content::Text("a".into()), Content::Raw(json(r#"{"type":"image","data":"","mimeType":"m"}"#))]);
    output.structured = Some(json(r#"{"n":1}"#));
    output.is_error = true;
    output = output.with_meta("a.b/c", json("7"));
    let content = r#""content":[{"type":"text","text":"a"},{"type":"image","data":"","mimeType":"m"}]"#;
    for (revision, structured) in [
        ("2024-11-05", ""),
        ("2025-03-26", ""),
        ("2025-06-18", r#","structuredContent":{"n":1}"#),
        ("2025-11-25", r#","structuredContent":{"n":1}"#),
    ] {
        let mut server = Scripted::server_at(server_config(), revision, "{}");
        let id = server.receive_call(1);
        server.reply(id, Reply::Tool(output.clone()));
        let meta = r#""isError":true,"_meta":{"a.b/c":7}"#;
        assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{content}{structured},{meta}}}}}"#)]);
    }
}

#[test]
fn an_error_is_sent_with_its_code_its_message_and_its_data() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    server.reply(id, Reply::Error(RpcError::new(-32002, "no \"such\" thing").with_data(json(r#"{"uri":"x"}"#))));
    assert_eq!(
        server.sent(),
        [r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no \"such\" thing","data":{"uri":"x"}}}"#]
    );
}

#[test]
fn a_response_is_sent_exactly_response_gap_after_the_last_update() {
    let mut server = Scripted::server(gap());
    let id = server.receive_call(1);
    server.at(100).report(id, Progress::value(1.0));
    server.at(120).respond(id);
    assert_eq!(server.sent().len(), 1, "the update");
    assert_eq!(server.session.poll_timeout(), Some(protocol_core::Instant::from_millis(150)));
    server.at(149).expect_silence();
    server.at(150);
    assert_eq!((server.sent(), server.session.poll_timeout()), (vec![ok(1)], None));

    let (quiet, long_ago) = (server.receive_call(2), server.receive_call(3));
    server.respond(quiet).report(long_ago, Progress::value(1.0));
    server.at(200).drain().respond(long_ago);
    assert_eq!(server.sent(), [ok(3)], "a response is not delayed after the gap has passed");
}

#[test]
fn a_delayed_response_is_sent_despite_a_cancel_the_deadline_or_the_end_of_input() {
    let races: [(&str, Step); 3] = [
        ("cancel", |server| {
            server.frame(&cancelled(1));
        }),
        ("deadline", |server| {
            server.at(40);
        }),
        ("end of input", |server| server.session.handle_end(TransportEnd::Eof, server.now)),
    ];
    for (name, race) in races {
        let mut server = Scripted::server(with(gap(), |config| config.timeouts.serve = Some(Duration::from_millis(40))));
        let id = server.receive_call(1);
        server.report(id, Progress::value(1.0));
        server.respond(id).drain();
        race(&mut server);
        assert_eq!((server.sent(), server.events()), (vec![], vec![]), "{name}");
        server.at(50);
        assert_eq!(server.sent(), [ok(1)], "{name}");
        assert_eq!(server.session.progress(id, Progress::value(2.0), server.now), Err(ProgressError::NotLive));
    }
}
