//! Partial results: if a call is cut short, the checkpoint of its handler is sent in the result or the error of the call. If configured, it
//! is also sent with each update (`docs/protocols/mcp.md`, "Partial results").

use std::time::Duration;

use protocol_core::{
    CheckpointError, Close, Config, Event, InboundId, Json, PartialResult, Progress, RateWindow, Reply, RpcError, ServeOptions,
    ToolOutput,
};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, json, ok, request};

/// A partial result of three items: one succeeded, one failed, one remains.
fn two_of_three() -> Json {
    let mut partial = PartialResult::new(3);
    partial.succeed("a");
    partial.fail("b", "no");
    partial.checkpoint().unwrap()
}

/// The members of [`two_of_three`] as JSON, without a status.
const MEMBERS: &str =
    r#""total":3,"processed":1,"failed":1,"remaining":1,"results":[{"id":"a","status":"ok"}],"errors":[{"id":"b","error":"no"}]"#;

/// The configuration of a server that sends the checkpoint with each update.
fn sends_checkpoints() -> Config {
    with(server_config(), |config| config.progress.partial_on_progress = true)
}

fn store(server: &mut Scripted, id: InboundId, text: &str) {
    server.session.checkpoint(id, json(text)).unwrap();
}

/// Makes the deadline of the call pass.
fn pass_deadline(server: &mut Scripted, id: InboundId) {
    server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), server.now).unwrap();
}

/// Returns `text` as a JSON string.
fn quoted(text: &str) -> String {
    Json::string(text).as_str().to_owned()
}

#[test]
fn a_tool_call_that_times_out_returns_its_checkpoint_and_fails_unless_an_item_was_processed() {
    for (checkpoint, with_status, is_error) in [
        (two_of_three(), format!(r#"{{"status":"timeout",{MEMBERS}}}"#), ""),
        (
            PartialResult::new(3).checkpoint().unwrap(),
            r#"{"status":"timeout","total":3,"processed":0,"failed":0,"remaining":3,"results":[]}"#.into(),
            r#","isError":true"#,
        ),
        (json(r#"{"lines": 7}"#), r#"{"status":"timeout","lines":7}"#.into(), r#","isError":true"#),
        (json(r#"{"status":"mine","a":1}"#), r#"{"status":"timeout","a":1}"#.into(), r#","isError":true"#),
    ] {
        for (revision, structured) in
            [("2025-11-25", format!(r#","structuredContent":{with_status}"#)), ("2025-03-26", String::new())]
        {
            let mut server = Scripted::server_at(server_config(), revision, "{}");
            let id = server.receive_call(1);
            server.session.checkpoint(id, checkpoint.clone()).unwrap();
            pass_deadline(&mut server, id);
            let text = quoted(&with_status);
            let content = format!(r#""content":[{{"type":"text","text":{text}}}]"#);
            assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{content}{structured}{is_error}}}}}"#)]);
        }
    }
}

#[test]
fn any_other_request_that_times_out_returns_its_checkpoint_in_the_data_of_its_error() {
    let mut server = Scripted::server(server_config());
    server.frame(&request(1, "prompts/list", "{}"));
    let id = server.request();
    store(&mut server, id, r#"{"a":1}"#);
    pass_deadline(&mut server, id);
    let data = r#"{"reason":"timeout","partial":{"status":"timeout","a":1}}"#;
    assert_eq!(
        server.sent(),
        [format!(
            r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32603,"message":"the time for this call has run out","data":{data}}}}}"#
        )]
    );
}

#[test]
fn a_server_that_closes_returns_the_checkpoint_with_the_status_cancelled() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    store(&mut server, id, r#"{"processed":1}"#);
    server.session.close(Close::Now, server.now);
    let partial = r#"{"status":"cancelled","processed":1}"#;
    let content = format!(r#"[{{"type":"text","text":{}}}]"#, quoted(partial));
    assert_eq!(
        server.sent(),
        [format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":{content},"structuredContent":{partial}}}}}"#)]
    );
}

#[test]
fn the_error_of_a_handler_carries_the_checkpoint_as_failed_unless_it_has_structured_content() {
    let mut with_structured_content = ToolOutput::structured(json("{}"));
    with_structured_content.is_error = true;
    for (reply, body) in [
        (
            Reply::Tool(ToolOutput::error("no")),
            r#""result":{"content":[{"type":"text","text":"no"}],"structuredContent":{"status":"failed","a":1},"isError":true}"#,
        ),
        (
            Reply::Tool(with_structured_content),
            r#""result":{"content":[{"type":"text","text":"{}"}],"structuredContent":{},"isError":true}"#,
        ),
        (
            Reply::Error(RpcError::fixed(7, "no")),
            r#""error":{"code":7,"message":"no","data":{"partial":{"status":"failed","a":1}}}"#,
        ),
        (
            Reply::Error(RpcError::fixed(7, "no").with_data(json(r#"{"b":2,"partial":3}"#))),
            r#""error":{"code":7,"message":"no","data":{"b":2,"partial":{"status":"failed","a":1}}}"#,
        ),
        (
            Reply::Error(RpcError::fixed(7, "no").with_data(json("[2]"))),
            r#""error":{"code":7,"message":"no","data":{"data":[2],"partial":{"status":"failed","a":1}}}"#,
        ),
    ] {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        store(&mut server, id, r#"{"a":1}"#);
        server.reply(id, reply);
        assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#)]);
    }
}

#[test]
fn a_success_and_a_cancelled_call_carry_no_checkpoint() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    store(&mut server, id, r#"{"a":1}"#);
    server.respond(id);
    assert_eq!(server.sent(), [ok(1)]);
    let id = server.receive_call(2);
    store(&mut server, id, r#"{"a":1}"#);
    server.frame(&cancelled(2));
    assert_eq!(server.sent(), Vec::<String>::new());
}

#[test]
fn the_last_checkpoint_counts_and_an_invalid_one_leaves_it_unchanged() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.checkpoint_bytes = 9));
    let id = server.receive_call(1);
    store(&mut server, id, r#"{"a":1}"#);
    store(&mut server, id, r#"{"a":234}"#);
    assert_eq!(server.session.checkpoint(id, json(r#"{"a":2345}"#)), Err(CheckpointError::TooLarge));
    for text in ["[]", "1", "null", r#""{}""#] {
        assert_eq!(server.session.checkpoint(id, json(text)), Err(CheckpointError::NotAnObject), "{text}");
    }
    server.reply(id, Reply::Error(RpcError::fixed(7, "no")));
    assert!(server.sent()[0].ends_with(r#""data":{"partial":{"status":"failed","a":234}}}}"#));
    assert_eq!(server.session.checkpoint(id, json("{}")), Err(CheckpointError::NotLive));
}

#[test]
fn an_update_carries_the_newest_checkpoint_only_if_the_config_allows_it() {
    for (config, meta) in [(server_config(), ""), (sends_checkpoints(), r#","_meta":{"protocol-core/partial":{"a":2}}"#)] {
        // No update is sent before the response.
        let mut server =
            Scripted::server(with(config, |config| config.progress.window = RateWindow::new(0, Duration::from_secs(1))));
        let id = server.receive_call(1);
        store(&mut server, id, r#"{"a":1}"#);
        server.report(id, Progress::value(1.0));
        store(&mut server, id, r#"{"a":2}"#);
        server.respond(id);
        let frame =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":1{meta}}}}}"#);
        assert_eq!(server.sent()[0], frame);
    }
}

#[test]
fn data_and_partial_results_share_the_meta_of_an_update() {
    let mut server = Scripted::server(sends_checkpoints());
    let id = server.receive_call(1);
    store(&mut server, id, r#"{"a":1}"#);
    server.report(id, Progress::value(1.0).with_data(json("[1]")));
    let sent = server.sent();
    assert!(sent[0].ends_with(r#""_meta":{"protocol-core/data":[1],"protocol-core/partial":{"a":1}}}}"#), "{sent:?}");
}

/// Progress on call 2 with a partial result.
const PARTIAL: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1,"total":3,"_meta":{"protocol-core/partial":{"a":1}}}}"#;

#[test]
fn the_partial_result_of_an_error_replaces_that_of_earlier_progress() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.drain().frame(PARTIAL);
    client.frame(r#"{"jsonrpc":"2.0","id":2,"error":{"code":7,"message":"no","data":{"partial":{"a":2}}}}"#);
    let events = client.events();
    assert!(matches!(&events[1], Event::Done { partial: Some(partial), .. } if partial.as_str() == r#"{"a":2}"#), "{events:?}");
}

#[test]
fn storing_a_checkpoint_sends_no_frame_while_the_call_goes_on() {
    let mut server = Scripted::server(server_config());
    server.frame(&call_tool(1, true));
    let id = server.request();
    for _ in 0..1_000 {
        store(&mut server, id, r#"{"a":1}"#);
    }
    server.expect_silence();
}
