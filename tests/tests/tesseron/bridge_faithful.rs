//! Faithful forwarding: a bridge must not keep progress until the end, invent tokens, merge, reorder or drop content, change text, or lose
//! the progress of a cancelled call. The tests use sessions without endpoints, or frames, at all ends, in virtual time.

use protocol_core::{CallTimeouts, Event, InboundId, Invoke, Json, Op, OutboundId, Outcome, Progress, Reply};
use serde_json::{Value, json};
use tesseron::bridge::Leg;
use testkit::scripted;
use tests::bridge::{Rig, app_config, config, value};

/// A bridge between sessions of the agent and of the app `ledger`, and a running call of its action.
fn running() -> (Rig, usize, OutboundId, InboundId) {
    let mut rig = Rig::of_sessions(config());
    let app = rig.join_session(app_config("ledger"));
    let (call, invocation) = call(&mut rig, app);
    (rig, app, call, invocation)
}

fn call(rig: &mut Rig, app: usize) -> (OutboundId, InboundId) {
    rig.app_end(app).events();
    let params = scripted::json(r#"{"name":"ledger__t","arguments":{}}"#);
    let call = rig.agent_end().invoke(Invoke::new(Op::CallTool, params).with_timeouts(CallTimeouts::NONE));
    rig.deliver();
    (call, rig.app_end(app).request())
}

/// The result of the one call that has ended.
fn result(rig: &mut Rig) -> Json {
    rig.deliver();
    match rig.agent_end().outcome() {
        Outcome::Result(result) => result,
        other => panic!("no result: {other:?}"),
    }
}

#[test]
fn content_blocks_of_each_kind_are_forwarded_unchanged_and_other_outputs_as_json() {
    let mut rig = Rig::new();
    let app = rig.join("ledger");
    let image = r#"{"type":"image","data":"AA==","mimeType":"image/png","annotations":{"n":1.50}}"#;
    let link = r#"{"type":"resource_link","uri":"file:///x","name":"x","_meta":{"a":"\u00e9"}}"#;
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.output(&format!(r#"{{"content":[{image},{{"type":"text","text":"\u00e9"}},{link}]}}"#)));
    let received = rig.agent_received();
    assert!(received[0].contains(&format!(r#""content":[{image},{{"type":"text","text":"\u00e9"}},{link}]"#)), "{received:?}");
    for (id, output) in [
        (2, r#"{"content":[{"type":"text","text":"a"}],"more":1}"#),
        (3, r#"{"content":[{"type":"unknown"}]}"#),
        (4, r#"{"content":"text"}"#),
        (5, r#"{"content":[1]}"#),
    ] {
        rig.call(id, "ledger__t");
        let call = rig.invoked(app);
        rig.app(app, &call.output(output));
        let (text, _) = tests::bridge::text_of(&rig.response(id)["result"]);
        assert_eq!(value(&text), value(output));
    }
}

#[test]
fn a_call_that_times_out_at_the_app_returns_its_partial_result() {
    let mut rig = Rig::of_sessions(config());
    let mut app_config = app_config("ledger");
    app_config.timeouts.serve = Some(std::time::Duration::from_secs(3));
    let app = rig.join_session(app_config);
    let (_, invocation) = call(&mut rig, app);
    let partial = scripted::json(r#"{"processed":2,"total":5,"results":["é"]}"#);
    rig.app_end(app).session.checkpoint(invocation, partial).unwrap();
    rig.later(3000);
    let result = result(&mut rig);
    let content = value(result.as_str())["structuredContent"].clone();
    assert_eq!((&content["code"], &content["data"]["partial"]["processed"]), (&json!(-32002), &json!(2)));
    assert_eq!(content["data"]["partial"]["status"], "timeout");
}

#[test]
fn the_last_progress_of_a_call_is_in_its_outcome_when_its_app_is_lost_or_the_call_is_cancelled() {
    let (mut rig, app, _, invocation) = running();
    rig.app_end(app).report(invocation, Progress::step(2, 5).with_message("2/5"));
    rig.deliver().lose(app);
    let result = result(&mut rig);
    let content = value(result.as_str())["structuredContent"].clone();
    assert_eq!((&content["code"], content["progress"].as_f64()), (&json!(-32010), Some(40.0)));

    // On MCP no frame may follow a cancel, so the agent has the last update instead of a partial result.
    let (mut rig, app, call, invocation) = running();
    let data = scripted::json(r#"{"processed":2}"#);
    rig.app_end(app).report(invocation, Progress::step(2, 5).with_message("2/5").with_data(data.clone()));
    rig.deliver();
    let agent = rig.agent_end();
    agent.session.cancel(call, Some("enough"), agent.now).unwrap();
    rig.deliver();
    let done = rig.agent_end().events().into_iter().find_map(|event| match event {
        Event::Done { outcome: Outcome::Cancelled, last, .. } => last,
        _ => None,
    });
    let last = done.expect("the session keeps the last update");
    assert_eq!((last.value, last.message.as_deref(), last.data), (Some(40.0), Some("2/5"), Some(data)));
    let received = rig.app_end(app).events();
    assert!(received.iter().any(|event| matches!(event, Event::Cancelled { .. })), "{received:?}");
    rig.app_end(app).session.respond(invocation, Reply::Done, protocol_core::Instant::ZERO).unwrap_err();
    rig.assert_idle();
}

/// The bridge's session with the agent merges them, as any session does for a peer that does not read.
#[test]
fn updates_are_merged_only_while_the_agent_does_not_read() {
    let mut slow = config();
    slow.agent_limits.output_bytes = 2048;
    let mut rig = Rig::of_sessions(slow);
    let app = rig.join_session(app_config("ledger"));
    let (_, invocation) = call(&mut rig, app);
    rig.agent_received();
    rig.stall(Leg::Agent);
    for step in 1..=1000 {
        rig.app_end(app).report(invocation, Progress::step(step, 1000).with_message(format!("{step}")));
        rig.deliver();
        assert!(rig.stats(Leg::Agent).queued_bytes <= 2048 + 256);
    }
    rig.app_end(app).respond(invocation);
    rig.deliver().resume(Leg::Agent);
    let frames: Vec<Value> = rig.agent_received().iter().map(|text| value(text)).collect();
    let values: Vec<f64> = frames.iter().filter_map(|frame| frame["params"]["progress"].as_f64()).collect();
    assert!(values.len() < 50 && values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    assert_eq!(values.last(), Some(&100.0), "the newest is not lost");
    assert!(frames.last().unwrap().get("result").is_some());
}
