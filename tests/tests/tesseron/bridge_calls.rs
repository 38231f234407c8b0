//! Calls through a bridge: the invocation, its progress, cancels, input requests, log records and the end. Also the list of tools.
//!
//! Names that begin with `item_` and a number cite a rule (`docs/protocols/tesseron.md`, "Former numbers").

use protocol_core::{Level, LogRecord, Logged};
use serde_json::{Value, json};
use testkit::scripted::{self, cancelled, notification, request};
use tests::bridge::{DECLARES, Rig, answered, app_config, call_tool, config, refused, sampled, text_of, value};

/// A rig with one claimed app, `ledger`, and the index of that app.
fn rig() -> (Rig, usize) {
    let mut rig = Rig::new();
    let app = rig.join("ledger");
    (rig, app)
}

// ---- The call ----

#[test]
fn a_tool_call_becomes_an_invocation_and_its_output_becomes_the_result() {
    let (mut rig, app) = rig();
    rig.agent(&call_tool("7", "ledger__t", r#"{"cents":4200}"#, None));
    let call = rig.invoked(app);
    assert_eq!(call.name, "t");
    assert!(call.text.contains(r#""input":{"cents":4200}"#), "{}", call.text);
    assert!(rig.agent_received().is_empty());
    rig.app(app, &call.output(r#"{"entry":"e-19"}"#));
    assert_eq!(rig.response(7)["result"], json!({"content": [{"type": "text", "text": "{\n  \"entry\": \"e-19\"\n}"}]}));
    rig.assert_idle();
}

#[test]
fn ids_and_progress_tokens_of_one_leg_are_never_used_on_another() {
    let (mut rig, app) = rig();
    for id in ["\"call-of-the-agent\"", "9007199254740991", "-5", "\"1\"", "1"] {
        rig.agent(&call_tool(id, "ledger__t", "{}", Some("\"token-of-the-agent\"")));
        let call = rig.invoked(app);
        assert!(!call.text.contains("of-the-agent") && !call.text.contains("9007199254740991"), "{}", call.text);
        assert!(call.id.is_u64() && call.invocation != id, "{}", call.text);
        rig.app(app, &call.progress(r#","percent":1"#)).app(app, &call.output("1"));
        let received = rig.agent_received();
        assert_eq!(received.len(), 2);
        assert_eq!(value(&received[0])["params"]["progressToken"], "token-of-the-agent");
        assert_eq!(value(&received[1])["id"].to_string(), id, "the id has the value and the type of the request");
        assert!(!received.concat().contains(&call.invocation), "{received:?}");
    }
}

#[test]
fn the_arguments_of_a_call_are_forwarded_byte_for_byte() {
    let (mut rig, app) = rig();
    let odd = r#"{"n":123456789012345678901234567890.10,"e":1E+400,"half":"\ud800","a":1,"a":2,"\u0061":3,"s":"caf\u00e9 é","deep":[[[{}]]]}"#;
    rig.agent(&call_tool("1", "ledger__t", odd, None));
    let received = rig.app_received(app);
    assert!(received[0].contains(&format!(r#""input":{odd}"#)), "{received:?}");
}

#[test]
fn a_call_without_arguments_is_forwarded_with_an_empty_object_as_its_input() {
    let (mut rig, app) = rig();
    rig.agent(&request(1, "tools/call", r#"{"name":"ledger__t"}"#));
    assert_eq!(value(&rig.invoked(app).text)["params"]["input"], json!({}));
}

#[test]
fn an_output_becomes_text_by_its_type_and_never_structured_content() {
    let (mut rig, app) = rig();
    for (number, output, shown) in [
        (1, r#""plain text""#, "plain text"),
        (2, r#""é \u00e9 \n \"""#, "é é \n \""),
        (3, "null", "null"),
        (4, "12.50", "12.50"),
        (5, "123456789012345678901234567890", "123456789012345678901234567890"),
        (6, "[]", "[]"),
        (7, r#"[1,{"a":"b"}]"#, "[\n  1,\n  {\n    \"a\": \"b\"\n  }\n]"),
        (8, r#""""#, ""),
    ] {
        rig.call(number, "ledger__t");
        let call = rig.invoked(app);
        rig.app(app, &call.output(output));
        let response = rig.response(number);
        assert_eq!(text_of(&response["result"]), (shown.to_owned(), false), "{output}");
        assert!(response["result"].get("structuredContent").is_none());
    }
}

#[test]
fn a_call_of_an_unknown_action_is_forwarded_and_refused_by_the_app() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__nothing");
    let call = rig.invoked(app);
    assert_eq!(call.name, "nothing");
    rig.app(app, &call.error(-32003, "Action not found: nothing", None));
    assert_eq!(rig.response(1)["result"]["structuredContent"], json!({"code": -32003}));
}

#[test]
fn an_error_keeps_its_code_its_message_and_its_data() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    let data = r#"[{"message":"too small","path":["cents"],"n":1e400}]"#;
    rig.app(app, &call.error(-32004, "Invalid input", Some(data)));
    let received = rig.agent_received();
    assert!(received[0].contains(&format!(r#""structuredContent":{{"code":-32004,"data":{data}}}"#)), "{received:?}");
    // `serde_json` cannot read a number as large as 1e400.
    let result = received[0].replace("1e400", "0");
    let (text, failed) = text_of(&value(&result)["result"]);
    assert!(failed);
    assert!(text.starts_with("Invalid input\n{\n  \"code\": -32004,\n  \"data\": [\n"), "{text}");
}

#[test]
fn a_call_that_the_app_ends_by_itself_fails_with_its_partial_result() {
    let (mut rig, app) = rig();
    for (number, code, message) in [(1, -32001, "Action invocation was cancelled."), (2, -32002, "Action timed out after 60000ms.")]
    {
        rig.call(number, "ledger__t");
        let call = rig.invoked(app);
        rig.app(app, &call.error(code, message, Some(r#"{"partial":{"processed":3,"total":10}}"#)));
        let result = rig.response(number)["result"].clone();
        assert_eq!(result["isError"], true);
        let structured = json!({"code": code, "data": {"partial": {"processed": 3, "total": 10}}});
        assert_eq!(result["structuredContent"], structured);
        assert!(text_of(&result).0.starts_with(message));
    }
    rig.assert_idle();
}

// ---- Progress ----

#[test]
fn progress_is_forwarded_with_its_message_and_its_data() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.progress(r#","percent":33.3,"message":"7/20 pages","data":{"page":7,"n":1e400}"#));
    let received = rig.agent_received();
    assert_eq!(
        received,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":33.3,"total":100,"message":"7/20 pages","_meta":{"protocol-core/data":{"page":7,"n":1e400}}}}"#
        ]
    );
}

/// In the field an agent got 50 twice: once, and again with the message of an update whose value had not increased. MCP demands that the
/// value increases with each update, so the message comes with the next increase.
#[test]
fn no_value_of_progress_reaches_the_agent_twice() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for members in [r#","percent":0"#, r#","percent":50"#, r#","percent":50,"message":"regress""#, r#","percent":60.5"#] {
        rig.app(app, &call.progress(members));
    }
    assert_eq!(rig.progress(), [(0.0, None), (50.0, None), (60.5, Some("regress".to_owned()))]);
}

#[test]
fn an_update_with_only_a_message_starts_at_zero_or_waits_for_the_next_increase() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for members in [
        r#","message":"starting""#,
        r#","percent":30"#,
        r#","message":"still""#,
        r#","percent":30,"message":"and still""#,
        r#","percent":70"#,
        r#","message":"on""#,
    ] {
        rig.app(app, &call.progress(members));
    }
    let with_text = |text: &str| Some(text.to_owned());
    let expected = [(0.0, with_text("starting")), (30.0, None), (70.0, with_text("and still"))];
    assert_eq!(rig.progress(), expected);
    rig.app(app, &call.output("1"));
    assert_eq!(rig.agent_received().len(), 1, "a message that still waits is not sent with the result");
}

#[test]
fn data_waits_for_the_next_increase() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for members in
        [r#","percent":30"#, r#","data":1"#, r#","percent":30,"data":2"#, r#","message":"m""#, r#","data":3"#, r#","percent":40"#]
    {
        rig.app(app, &call.progress(members));
    }
    let forwarded = rig.notifications("notifications/progress");
    let shown: Vec<_> =
        forwarded.iter().map(|params| (params["progress"].as_f64(), &params["_meta"]["protocol-core/data"])).collect();
    assert_eq!(shown, [(Some(30.0), &Value::Null), (Some(40.0), &json!(3))]);
}

#[test]
fn an_update_with_a_lower_value_is_forwarded_with_the_next_increase() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.progress(r#","percent":50"#)).app(app, &call.progress(r#","percent":20,"message":"again""#));
    rig.app(app, &call.progress(r#","percent":40"#)).app(app, &call.progress(r#","percent":51"#));
    assert_eq!(rig.progress(), [(50.0, None), (51.0, Some("again".to_owned()))]);
}

#[test]
fn item_74_progress_values_are_limited_to_the_range_from_0_to_100() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for percent in ["-3", "0.5", "250", "1e300"] {
        rig.app(app, &call.progress(&format!(r#","percent":{percent}"#)));
    }
    let values: Vec<f64> = rig.progress().into_iter().map(|(value, _)| value).collect();
    assert_eq!(values, [0.0, 0.5, 100.0]);
}

#[test]
fn item_76_a_call_that_asks_for_no_progress_gets_none() {
    let (mut rig, app) = rig();
    rig.agent(&call_tool("1", "ledger__t", "{}", None));
    let call = rig.invoked(app);
    rig.app(app, &call.progress(r#","percent":10,"message":"m""#));
    assert!(rig.agent_received().is_empty());
}

#[test]
fn item_77_a_token_keeps_its_type_and_its_value() {
    let (mut rig, app) = rig();
    for (number, token) in ["0", "\"0\"", "\"\"", "-7", "\"t\\u0061\"", "9007199254740991"].into_iter().enumerate() {
        rig.agent(&call_tool(&number.to_string(), "ledger__t", "{}", Some(token)));
        let call = rig.invoked(app);
        rig.app(app, &call.progress(r#","percent":10"#));
        let received = rig.agent_received();
        assert_eq!(value(&received[0])["params"]["progressToken"], value(token));
        rig.app(app, &call.output("1")).drop_received();
    }
}

#[test]
fn item_75_two_calls_that_share_a_token_have_independent_progress() {
    let (mut rig, app) = rig();
    for id in ["1", "2"] {
        rig.agent(&call_tool(id, "ledger__t", "{}", Some("\"shared\"")));
    }
    let calls = rig.all_invoked(app);
    for (call, percent) in [(0, 60), (1, 5), (0, 61), (1, 6), (1, 4)] {
        rig.app(app, &calls[call].progress(&format!(r#","percent":{percent}"#)));
    }
    let values: Vec<f64> = rig.progress().into_iter().map(|(value, _)| value).collect();
    assert_eq!(values, [60.0, 5.0, 61.0, 6.0]);
    rig.app(app, &calls[0].output("1")).app(app, &calls[1].progress(r#","percent":7"#));
    assert_eq!(rig.progress(), [(7.0, None)], "the other call goes on");
}

#[test]
fn the_bridge_does_not_limit_the_rate_of_progress_since_the_app_does() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for percent in 1..=99 {
        rig.app(app, &call.progress(&format!(r#","percent":{percent}"#)));
        assert_eq!(rig.progress(), [(f64::from(percent), None)]);
    }
}

// ---- Cancel ----

#[test]
fn a_cancel_of_the_agent_is_forwarded_to_the_app_and_ends_the_call_at_once() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.agent(&cancelled(5));
    let cancel = json!({"jsonrpc": "2.0", "method": "actions/cancel", "params": {"invocationId": call.invocation}});
    let received: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)).collect();
    assert_eq!(received, [cancel]);
    rig.assert_idle();
    // Later frames of the app about this call are dropped.
    rig.agent(&cancelled(5)).app(app, &call.progress(r#","percent":90"#)).app(app, &call.output("1"));
    assert_eq!((rig.agent_received(), rig.app_received(app)), (vec![], vec![]));
    rig.assert_idle();
}

#[test]
fn a_cancel_of_an_unknown_or_ended_call_is_not_forwarded() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for id in ["99", "\"5\"", "-1", "null", "{}"] {
        rig.agent(&notification("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#)));
    }
    rig.agent(&notification("notifications/cancelled", "{}"));
    assert_eq!(rig.app_received(app), Vec::<String>::new());
    rig.app(app, &call.output("1"));
    assert!(rig.response(5).get("result").is_some());
    rig.agent(&cancelled(5));
    assert_eq!(rig.app_received(app), Vec::<String>::new());
}

// ---- Sampling ----

#[test]
fn a_sampling_request_is_forwarded_and_answered_with_the_text() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    let params = format!(r#"{{"invocationId":"{}","prompt":"Name the category","maxTokens":64}}"#, call.invocation);
    rig.app(app, &request(2, "sampling/request", &params));
    let (id, params) = rig.agent_request("sampling/createMessage");
    assert_eq!(params["messages"], json!([{"role": "user", "content": {"type": "text", "text": "Name the category"}}]));
    assert_eq!(params["maxTokens"], 64);
    assert!(!params.to_string().contains("invocationId") && !params.to_string().contains(&call.invocation), "{params}");
    rig.agent(&sampled(&id, "office supplies"));
    assert_eq!(rig.app_response(app, 2)["result"], json!({"content": "office supplies"}));
    rig.app(app, &call.output("1"));
    assert!(rig.response(5).get("result").is_some());
    rig.assert_idle();
}

#[test]
fn the_schema_of_a_sampling_request_is_added_to_its_prompt() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    let schema = r#"{"type":"object","properties":{"c":{"type":"string"}}}"#;
    let params = format!(r#"{{"invocationId":"{}","prompt":"Name it","schema":{schema}}}"#, call.invocation);
    rig.app(app, &request(2, "sampling/request", &params));
    let (_, params) = rig.agent_request("sampling/createMessage");
    let text = params["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("Name it") && text.contains(schema), "{text}");
    assert_eq!(params["maxTokens"], 1024);
}

#[test]
fn a_sampling_answer_that_is_not_text_is_forwarded_as_json() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.sample(2));
    let (id, _) = rig.agent_request("sampling/createMessage");
    let image = r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#;
    rig.agent(&answered(&id, &format!(r#"{{"role":"assistant","content":{image},"model":"m"}}"#)));
    assert_eq!(rig.app_response(app, 2)["result"]["content"], image);
}

/// A call that arrives while a sampling request is open counts as nested in that request. MCP has no rule for this.
#[test]
fn item_90_sampling_may_be_nested_three_deep_but_not_four() {
    let mut rig = Rig::new();
    let apps = [rig.join("a"), rig.join("b")];
    let mut open = Vec::new();
    for depth in 0..4_usize {
        let app = apps[depth % 2];
        rig.call(depth as u64, ["a__t", "b__t"][depth % 2]);
        let call = rig.invoked(app);
        rig.app(app, &call.sample(100 + depth as u64));
        open.push((app, call));
        if depth < 3 {
            rig.agent_request("sampling/createMessage");
        }
    }
    let (app, deepest) = open.pop().unwrap();
    assert_eq!(rig.agent_received(), Vec::<String>::new(), "no frame reached the agent");
    let error = rig.app_response(app, 103)["error"].clone();
    assert_eq!((error["code"].clone(), error["data"].clone()), (json!(-32008), json!({"depth": 4, "max": 3})));
    rig.app(app, &deepest.output("1"));
    assert!(rig.response(3).get("result").is_some());
}

#[test]
fn sampling_requests_side_by_side_or_in_sequence_have_the_same_depth() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    for round in 0..5 {
        let both = [10 + 2 * round, 11 + 2 * round];
        for id in both {
            rig.app(app, &call.sample(id));
        }
        let frames: Vec<Value> = rig.agent_received().iter().map(|text| value(text)).collect();
        assert_eq!(frames.len(), 2);
        for (frame, id) in frames.iter().zip(both) {
            rig.agent(&sampled(&frame["id"], "x"));
            assert_eq!(rig.app_response(app, id)["result"]["content"], "x");
        }
    }
}

#[test]
fn the_error_of_an_agent_that_refuses_to_sample_is_quoted_to_the_app() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.sample(2));
    let (asked, _) = rig.agent_request("sampling/createMessage");
    rig.agent(&refused(&asked, -1, "User rejected"));
    assert_eq!(rig.app_response(app, 2)["error"], json!({"code": -32603, "message": "MCP error -1: User rejected"}));
    rig.app(app, &call.sample(3));
    let (asked, _) = rig.agent_request("sampling/createMessage");
    rig.agent(&refused(&asked, -32601, "Method not found"));
    assert_eq!(rig.app_response(app, 3)["error"]["code"], -32006);
}

#[test]
fn an_invalid_answer_of_the_agent_becomes_an_error_for_the_app() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for (id, result) in [(2, "{}"), (3, r#"{"role":"assistant","content":7,"model":"m"}"#), (4, "[]")] {
        rig.app(app, &call.sample(id));
        let (asked, _) = rig.agent_request("sampling/createMessage");
        rig.agent(&answered(&asked, result));
        assert_eq!(rig.app_response(app, id)["error"]["code"], -32603, "{result}");
    }
}

#[test]
fn item_80_an_input_request_that_the_agent_did_not_declare_is_refused_with_the_name_of_the_agent() {
    let mut rig = Rig::for_agent(config(), "2025-11-25", "{}");
    let app = rig.join("ledger");
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.sample(2)).app(app, &call.confirm(3));
    let received: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)).collect();
    let errors: Vec<_> = received.iter().map(|frame| (frame["error"]["code"].clone(), frame["error"]["data"].clone())).collect();
    assert_eq!(errors, [(json!(-32006), json!({"clientName": "c"})), (json!(-32007), json!({"clientName": "c"}))]);
    assert!(rig.agent_received().is_empty());
}

/// A regression: an agent that probed for MCP 2026-07-28 found it, and input requests no longer reached the user of the agent. A
/// confirmation was declined although the user had not seen it.
#[test]
fn regression_an_agent_that_probes_finds_only_the_revisions_in_which_an_app_can_make_input_requests() {
    let (mut rig, _) = rig();
    let meta =
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    rig.agent(&request(7, "server/discover", &format!(r#"{{"_meta":{{{meta}}}}}"#)));
    assert_eq!(rig.response(7)["error"]["code"], -32601);
}

/// Revision 2025-03-26 has no elicitation, even if the agent declares it.
#[test]
fn a_form_for_an_agent_of_an_old_revision_is_refused_with_the_code_for_missing_elicitation() {
    let mut rig = Rig::for_agent(config(), "2025-03-26", DECLARES);
    let app = rig.join("ledger");
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.confirm(3));
    assert_eq!(rig.app_response(app, 3)["error"]["code"], -32007);
}

#[test]
fn an_agent_that_declares_only_url_mode_gets_no_form_and_no_form_is_sent_in_url_mode() {
    let mut rig = Rig::for_agent(config(), "2025-11-25", r#"{"elicitation":{"url":{}}}"#);
    let app = rig.join("ledger");
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.confirm(3));
    assert_eq!(rig.app_response(app, 3)["error"]["code"], -32007);
    // For an agent that declares both modes, a form with members of URL mode is still sent as a form.
    let mut rig = Rig::for_agent(config(), "2025-11-25", r#"{"elicitation":{"form":{},"url":{}}}"#);
    let app = rig.join("ledger");
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    let by_url = call.confirm(3).replacen(
        r#""invocationId""#,
        r#""mode":"url","url":"https://evil.example/","elicitationId":"1","invocationId""#,
        1,
    );
    rig.app(app, &by_url);
    let (_, params) = rig.agent_request("elicitation/create");
    assert_eq!((params.get("url"), params.get("mode")), (None, None), "only the members of a form are forwarded");
}

// ---- Forms ----

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string","minLength":2}},"required":["name"]}"#;

#[test]
fn a_form_and_each_kind_of_answer_are_forwarded() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for (id, answer, expected) in [
        (2, r#"{"action":"accept","content":{"name":"Ada"}}"#, json!({"action": "accept", "value": {"name": "Ada"}})),
        (3, r#"{"action":"decline"}"#, json!({"action": "decline"})),
        (4, r#"{"action":"cancel"}"#, json!({"action": "cancel"})),
    ] {
        rig.app(app, &call.elicit(id, FORM));
        let (asked, params) = rig.agent_request("elicitation/create");
        assert_eq!((params["message"].clone(), params["requestedSchema"].clone()), (json!("Sure?"), value(FORM)));
        rig.agent(&answered(&asked, answer));
        assert_eq!(rig.app_response(app, id)["result"], expected);
    }
}

#[test]
fn a_confirmation_is_forwarded_as_a_form_without_fields_and_accepted_without_content() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    for (id, answer, action) in [
        (2, r#"{"action":"accept"}"#, "accept"),
        (3, r#"{"action":"accept","content":{}}"#, "accept"),
        (4, r#"{"action":"decline"}"#, "decline"),
        (5, r#"{"action":"cancel"}"#, "cancel"),
    ] {
        rig.app(app, &call.confirm(id));
        let (asked, params) = rig.agent_request("elicitation/create");
        assert_eq!(params["requestedSchema"], json!({"type": "object", "properties": {}, "required": []}));
        rig.agent(&answered(&asked, answer));
        assert_eq!(rig.app_response(app, id)["result"]["action"], action);
    }
}

#[test]
fn an_agent_without_the_method_for_forms_counts_as_one_that_did_not_declare_forms() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.confirm(2));
    let (asked, _) = rig.agent_request("elicitation/create");
    rig.agent(&refused(&asked, -32601, "Method not found"));
    assert_eq!(rig.app_response(app, 2)["error"]["code"], -32007, "the code that makes a confirmation a no instead of a failure");
}

#[test]
fn an_answer_that_does_not_fit_its_form_is_not_forwarded() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    let answers = [r#"{"action":"accept","content":{"name":"x"}}"#, r#"{"action":"accept"}"#, r#"{"action":"perhaps"}"#, "{}"];
    for (id, answer) in (2..).zip(answers) {
        rig.app(app, &call.elicit(id, FORM));
        let (asked, _) = rig.agent_request("elicitation/create");
        rig.agent(&answered(&asked, answer));
        assert_eq!(rig.app_response(app, id)["error"]["code"], -32603, "{answer}");
    }
}

// ---- Input requests and the end of their call ----

#[test]
fn item_89_an_input_request_of_an_ended_or_unknown_invocation_is_refused() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.output("1")).drop_received();
    rig.app(app, &call.sample(2)).app(app, &call.confirm(3)).app(app, &testkit::tesseron::sample(4, "inv_nobody"));
    let codes: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)["error"]["code"].clone()).collect();
    assert_eq!(codes, [-32009, -32009, -32009]);
    assert!(rig.agent_received().is_empty());
}

#[test]
fn an_app_cannot_ask_report_progress_or_respond_for_an_invocation_of_another_app() {
    let mut rig = Rig::new();
    let (victim, thief) = (rig.join("victim"), rig.join("thief"));
    for number in 0..3 {
        rig.call(number, "victim__t");
    }
    let calls = rig.all_invoked(victim);
    for (id, call) in calls.iter().enumerate() {
        rig.app(thief, &call.sample(id as u64))
            .app(thief, &call.progress(r#","percent":99"#))
            .app(thief, &call.output("\"stolen\""));
    }
    assert!(rig.agent_received().is_empty(), "nothing is sent to the agent");
    let refusals: Vec<Value> = rig.app_received(thief).iter().map(|text| value(text)).collect();
    let codes: Vec<(Value, Value)> = refusals.iter().map(|frame| (frame["id"].clone(), frame["error"]["code"].clone())).collect();
    assert_eq!(codes, [(json!(0), json!(-32009)), (json!(1), json!(-32009)), (json!(2), json!(-32009))], "{refusals:?}");
    for (number, call) in (0..).zip(&calls) {
        rig.app(victim, &call.output("\"mine\""));
        assert_eq!(rig.response(number)["result"]["content"][0]["text"], "mine");
    }
}

#[test]
fn item_91_the_end_of_a_call_cancels_its_input_request_at_the_agent() {
    type End = fn(&mut Rig, usize, &tests::bridge::Invoked);
    let ends: [(&str, End); 3] = [
        ("a result", |rig, app, call| {
            rig.app(app, &call.output("1"));
        }),
        ("an error", |rig, app, call| {
            rig.app(app, &call.error(-32002, "too late", None));
        }),
        ("the end of the app", |rig, app, _| {
            rig.lose(app);
        }),
    ];
    for (name, end) in ends {
        let (mut rig, app) = rig();
        rig.call(5, "ledger__t");
        let call = rig.invoked(app);
        rig.app(app, &call.sample(2));
        let (asked, _) = rig.agent_request("sampling/createMessage");
        end(&mut rig, app, &call);
        let frames: Vec<Value> = rig.agent_received().iter().map(|text| value(text)).collect();
        let place =
            |wanted: &dyn Fn(&Value) -> bool| frames.iter().position(wanted).unwrap_or_else(|| panic!("{name}: {frames:?}"));
        let cancel = place(&|frame| frame["method"] == "notifications/cancelled" && frame["params"]["requestId"] == asked);
        assert!(cancel < place(&|frame| frame["id"] == 5 && frame.get("result").is_some()), "{name}: before the response");
        // The agent's answer comes although the request was cancelled.
        rig.agent(&sampled(&asked, "late"));
        rig.assert_idle();
    }
}

#[test]
fn a_cancelled_call_cancels_its_input_request_at_the_agent_and_refuses_it_to_the_app() {
    let (mut rig, app) = rig();
    rig.call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &call.sample(2));
    let (asked, _) = rig.agent_request("sampling/createMessage");
    rig.agent(&cancelled(5));
    assert_eq!(rig.notifications("notifications/cancelled")[0]["requestId"], asked);
    let received: Vec<Value> = rig.app_received(app).iter().map(|text| value(text)).collect();
    assert_eq!(received.len(), 2);
    assert!(received.iter().any(|frame| frame["method"] == "actions/cancel"));
    assert!(received.iter().any(|frame| frame["id"] == 2 && frame["error"]["code"] == -32001));
    rig.agent(&sampled(&asked, "late"));
    assert_eq!(rig.app_received(app), Vec::<String>::new());
    rig.assert_idle();
}

// ---- Log records ----

#[test]
fn item_78_log_levels_are_translated_and_meta_cannot_replace_the_message() {
    let (mut rig, app) = rig();
    rig.agent(&request(8, "logging/setLevel", r#"{"level":"debug"}"#)).call(5, "ledger__t");
    let call = rig.invoked(app);
    rig.drop_received();
    for (level, expected) in [("debug", "debug"), ("info", "info"), ("warn", "warning"), ("error", "error"), ("loud", "info")] {
        let params = format!(
            r#"{{"invocationId":"{}","level":"{level}","message":"retrying","meta":{{"attempt":2,"message":"fake"}}}}"#,
            call.invocation
        );
        rig.app(app, &notification("log", &params));
        let forwarded = json!({"level": expected, "logger": "ledger", "data": {"message": "retrying", "attempt": 2}});
        assert_eq!(rig.notifications("notifications/message"), [forwarded]);
    }
}

#[test]
fn item_79_a_record_that_belongs_to_no_call_is_forwarded() {
    let (mut rig, app) = rig();
    rig.app(app, &notification("log", r#"{"level":"warn","message":"disk"}"#));
    assert_eq!(rig.notifications("notifications/message")[0]["data"], json!({"message": "disk"}));
}

#[test]
fn an_agent_that_has_set_no_level_gets_every_record() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut rig = Rig::for_agent(config(), revision, DECLARES);
        let app = rig.join("ledger");
        for (level, expected) in [("debug", "debug"), ("info", "info"), ("warn", "warning"), ("error", "error")] {
            rig.app(app, &notification("log", &format!(r#"{{"level":"{level}","message":"m"}}"#)));
            let forwarded = json!({"level": expected, "logger": "ledger", "data": {"message": "m"}});
            assert_eq!(rig.notifications("notifications/message"), [forwarded], "{revision}");
        }
    }
}

#[test]
fn a_logged_value_reaches_the_agent_as_json_and_not_as_json_in_text() {
    let mut rig = Rig::new();
    let app = rig.join_session(app_config("ledger"));
    for (data, forwarded) in [
        (r#"{"item":{"id":3}}"#, r#"{"message":"","item":{"id":3}}"#),
        (r#"["a",{"b":1}]"#, r#"{"message":"","data":["a",{"b":1}]}"#),
        (r#""words""#, r#"{"message":"words"}"#),
        (r#"{"message":"words","n":1.50}"#, r#"{"message":"words","n":1.50}"#),
    ] {
        let record = LogRecord::new(Level::Debug, scripted::json(data));
        let end = rig.app_end(app);
        assert_eq!(end.session.log(None, record, end.now), Ok(Logged::Sent));
        rig.deliver();
        let received = rig.agent_received();
        assert!(received.len() == 1 && received[0].contains(&format!(r#""data":{forwarded}}}"#)), "{received:?}");
    }
}

// ---- The list of tools ----

#[test]
fn the_actions_of_an_app_are_listed_as_tools_with_their_descriptions_and_hints() {
    let actions = r#"[
        {"name":"post","description":"Book an entry","inputSchema":{"type":"object","properties":{"c":{"type":"integer"}}},"annotations":{"readOnly":false,"destructive":true,"requiresConfirmation":true},"timeoutMs":60000},
        {"name":"look","description":"","inputSchema":{},"annotations":{"readOnly":true}},
        {"name":"any","description":"d","inputSchema":{"type":"object","properties":{"c":true}}},
        {"name":"bare","description":"d"}
    ]"#
    .replace('\n', " ");
    let mut rig = Rig::new();
    rig.join_with("ledger", &actions, "[]");
    rig.agent(&request(1, "tools/list", "{}"));
    // The first five tools are those of the bridge itself.
    let tools = rig.response(1)["result"]["tools"].as_array().unwrap()[5..].to_vec();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{tools:?}")).clone();
    let anything = json!({"type": "object", "additionalProperties": true});
    assert_eq!(
        named("ledger__post"),
        json!({"name": "ledger__post", "description": "Book an entry", "inputSchema": {"type": "object", "properties": {"c": {"type": "integer"}}}, "annotations": {"readOnlyHint": false, "destructiveHint": true}})
    );
    assert_eq!(
        named("ledger__look"),
        json!({"name": "ledger__look", "description": "Action look from LEDGER", "inputSchema": anything, "annotations": {"readOnlyHint": true}})
    );
    for name in ["ledger__any", "ledger__bare"] {
        assert_eq!(named(name), json!({"name": name, "description": "d", "inputSchema": anything}));
    }
}

#[test]
fn tools_are_listed_in_the_order_of_the_apps_actions() {
    let mut rig = Rig::new();
    rig.join_with(
        "ledger",
        r#"[{"name":"zebra","description":""},{"name":"ant","description":""},{"name":"bee","description":""}]"#,
        "[]",
    );
    assert_eq!(rig.app_tools(), ["ledger__zebra", "ledger__ant", "ledger__bee"]);
}

#[test]
fn item_100_a_new_list_of_actions_replaces_the_old_one_and_the_agent_is_notified() {
    let (mut rig, app) = rig();
    let list = r#"{"actions":[{"name":"void_entry","description":"","inputSchema":{"type":"object"}}]}"#;
    rig.later(100).app(app, &notification("actions/list_changed", list));
    assert_eq!(rig.agent_received(), [r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#]);
    assert_eq!(rig.app_tools(), ["ledger__void_entry"]);
    rig.app(app, &notification("actions/list_changed", r#"{"actions":[]}"#));
    assert_eq!(rig.app_tools(), Vec::<String>::new());
}

#[test]
fn actions_without_a_name_or_with_a_repeated_name_are_not_listed() {
    let mut rig = Rig::new();
    rig.join_with(
        "ledger",
        r#"[{"name":"t","description":"first"},7,{"description":"no name"},{"name":9},{"name":"t","description":"second"}]"#,
        "[]",
    );
    rig.agent(&request(1, "tools/list", "{}"));
    // The first five tools are those of the bridge itself.
    let tools = rig.response(1)["result"]["tools"].as_array().unwrap()[5..].to_vec();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0]["description"], "first");
}

#[test]
fn unsupported_methods_and_invalid_calls_are_refused_and_resource_templates_and_pings_are_answered() {
    let (mut rig, _) = rig();
    for (id, method) in [(1, "prompts/list"), (2, "prompts/get"), (3, "completion/complete"), (4, "nonsense")] {
        rig.agent(&request(id, method, "{}"));
        assert_eq!(rig.response(id)["error"]["code"], -32601, "{method}");
    }
    rig.agent(&request(5, "tools/call", r#"{"name":7}"#));
    assert_eq!(rig.response(5)["error"]["code"], -32602);
    rig.agent(&request(6, "resources/templates/list", "{}"));
    assert_eq!(rig.response(6)["result"], json!({"resourceTemplates": []}));
    rig.agent(&request(7, "ping", "{}"));
    assert_eq!(rig.response(7)["result"], json!({}));
}

#[test]
fn bug_20_a_missing_output_is_null() {
    let (mut rig, app) = rig();
    rig.call(1, "ledger__t");
    let call = rig.invoked(app);
    rig.app(app, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"invocationId":"{}"}}}}"#, call.id, call.invocation));
    assert_eq!(rig.response(1)["result"], json!({"content": [{"type": "text", "text": "null"}]}));
    // A result that is not an object with an `output` becomes a tool error, which is a valid result.
    for (id, result) in [(2, r#"{"entry":1}"#), (3, "null"), (4, "7"), (5, "[]"), (6, r#""text""#)] {
        rig.call(id, "ledger__t");
        let call = rig.invoked(app);
        rig.app(app, &answered(&call.id, result));
        let response = rig.response(id)["result"].clone();
        assert_eq!((response["content"].is_array(), response["isError"].clone()), (true, json!(true)), "{result}");
    }
}
