//! What the gateway carries while a call runs: the call, its progress, its cancel, its questions, its log records, its end.

use protocol_core::{Level, LogRecord, Logged};
use serde_json::{Value, json};
use testkit::scripted::{self, cancelled, notification, request};
use tests::bridge::{DECLARES, House, answered, app_config, call_tool, config, refused, sampled, text_of, value};

/// A house with one claimed app, `ledger`.
fn house() -> (House, usize) {
    let mut house = House::new();
    let app = house.join("ledger");
    (house, app)
}

// ---- The call ----

#[test]
fn a_call_becomes_an_invocation_and_its_output_the_result() {
    let (mut house, app) = house();
    house.agent(&call_tool("7", "ledger__t", r#"{"cents":4200}"#, None));
    let call = house.invoked(app);
    assert_eq!(call.name, "t");
    assert!(call.text.contains(r#""input":{"cents":4200}"#), "{}", call.text);
    assert!(house.heard().is_empty());
    house.app(app, &call.output(r#"{"entry":"e-19"}"#));
    assert_eq!(house.response(7)["result"], json!({"content": [{"type": "text", "text": "{\n  \"entry\": \"e-19\"\n}"}]}));
    house.assert_idle();
}

#[test]
fn ids_of_one_leg_never_stand_on_another() {
    let (mut house, app) = house();
    for id in ["\"call-of-the-agent\"", "9007199254740991", "-5", "\"1\"", "1"] {
        house.agent(&call_tool(id, "ledger__t", "{}", Some("\"token-of-the-agent\"")));
        let call = house.invoked(app);
        assert!(!call.text.contains("of-the-agent") && !call.text.contains("9007199254740991"), "{}", call.text);
        assert!(call.id.is_u64() && call.invocation != id, "{}", call.text);
        house.app(app, &call.progress(r#","percent":1"#)).app(app, &call.output("1"));
        let heard = house.heard();
        assert_eq!(heard.len(), 2);
        assert_eq!(value(&heard[0])["params"]["progressToken"], "token-of-the-agent");
        assert_eq!(value(&heard[1])["id"].to_string(), id, "in value and type");
        assert!(!heard.concat().contains(&call.invocation), "{heard:?}");
    }
}

#[test]
fn the_bytes_of_arguments_cross_unchanged() {
    let (mut house, app) = house();
    let odd = r#"{"n":123456789012345678901234567890.10,"e":1E+400,"half":"\ud800","a":1,"a":2,"\u0061":3,"s":"caf\u00e9 é","deep":[[[{}]]]}"#;
    house.agent(&call_tool("1", "ledger__t", odd, None));
    let heard = house.app_heard(app);
    assert!(heard[0].contains(&format!(r#""input":{odd}"#)), "{heard:?}");
}

#[test]
fn a_call_without_arguments_has_none() {
    let (mut house, app) = house();
    house.agent(&request(1, "tools/call", r#"{"name":"ledger__t"}"#));
    assert_eq!(value(&house.invoked(app).text)["params"]["input"], json!({}));
}

#[test]
fn an_output_is_shown_as_what_it_is() {
    let (mut house, app) = house();
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
        house.call(number, "ledger__t");
        let call = house.invoked(app);
        house.app(app, &call.output(output));
        let response = house.response(number);
        assert_eq!(text_of(&response["result"]), (shown.to_owned(), false), "{output}");
        assert!(response["result"].get("structuredContent").is_none());
    }
}

#[test]
fn an_action_that_the_app_does_not_know_is_the_apps_to_refuse() {
    let (mut house, app) = house();
    house.call(1, "ledger__nothing");
    let call = house.invoked(app);
    assert_eq!(call.name, "nothing");
    house.app(app, &call.error(-32003, "Action not found: nothing", None));
    assert_eq!(house.response(1)["result"]["structuredContent"], json!({"code": -32003}));
}

#[test]
fn an_error_keeps_its_code_its_message_and_its_data() {
    let (mut house, app) = house();
    house.call(1, "ledger__t");
    let call = house.invoked(app);
    let data = r#"[{"message":"too small","path":["cents"],"n":1e400}]"#;
    house.app(app, &call.error(-32004, "Invalid input", Some(data)));
    let heard = house.heard();
    assert!(heard[0].contains(&format!(r#""structuredContent":{{"code":-32004,"data":{data}}}"#)), "{heard:?}");
    let result = heard[0].replace("1e400", "0");
    let (text, failed) = text_of(&value(&result)["result"]);
    assert!(failed);
    assert!(text.starts_with("Invalid input\n{\n  \"code\": -32004,\n  \"data\": [\n"), "{text}");
}

#[test]
fn an_app_ends_a_call_on_its_own_account_and_the_agent_is_told_how_far_it_was() {
    let (mut house, app) = house();
    for (number, code, message) in [(1, -32001, "Action invocation was cancelled."), (2, -32002, "Action timed out after 60000ms.")]
    {
        house.call(number, "ledger__t");
        let call = house.invoked(app);
        house.app(app, &call.error(code, message, Some(r#"{"partial":{"processed":3,"total":10}}"#)));
        let result = house.response(number)["result"].clone();
        assert_eq!(result["isError"], true);
        let said = json!({"code": code, "data": {"partial": {"processed": 3, "total": 10}}});
        assert_eq!(result["structuredContent"], said);
        assert!(text_of(&result).0.starts_with(message));
    }
    house.assert_idle();
}

#[test]
fn answers_come_back_in_any_order_and_each_to_its_own_call() {
    let mut house = House::new();
    let apps = ["a", "b"].map(|id| house.join(id));
    for number in 0..20 {
        house.call(number, if number % 2 == 0 { "a__t" } else { "b__t" });
    }
    for (place, app) in apps.into_iter().enumerate() {
        let calls = house.all_invoked(app);
        assert_eq!(calls.len(), 10);
        for (number, call) in calls.iter().enumerate().rev() {
            house.app(app, &call.output(&format!("{}", number * 2 + place)));
        }
    }
    let answers: Vec<Value> = house.heard().iter().map(|text| value(text)).collect();
    assert_eq!(answers.len(), 20);
    for answer in answers {
        assert_eq!(answer["result"]["content"][0]["text"], answer["id"].to_string());
    }
    house.assert_idle();
}

// ---- Progress ----

#[test]
fn progress_crosses_with_its_message_and_its_data() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.progress(r#","percent":33.3,"message":"7/20 pages","data":{"page":7,"n":1e400}"#));
    let heard = house.heard();
    assert_eq!(
        heard,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":33.3,"total":100,"message":"7/20 pages","_meta":{"protocol-core/data":{"page":7,"n":1e400}}}}"#
        ]
    );
}

#[test]
fn an_update_with_only_a_message_repeats_the_last_value_and_the_first_has_none_of_it() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for members in [
        r#","message":"starting""#,
        r#","percent":30"#,
        r#","message":"still""#,
        r#","percent":30,"message":"and still""#,
        r#","percent":70"#,
        r#","message":"on""#,
    ] {
        house.app(app, &call.progress(members));
    }
    let said = |text: &str| Some(text.to_owned());
    let expected =
        [(0.0, said("starting")), (30.0, None), (30.0, said("still")), (30.0, said("and still")), (70.0, None), (70.0, said("on"))];
    assert_eq!(house.progress(), expected);
}

/// MCP says that each update increases: the reference sends every one of these, and none tells the agent anything.
#[test]
fn an_update_without_a_new_value_or_message_is_withheld() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for members in ["", r#","data":{"row":0}"#] {
        house.app(app, &call.progress(members));
    }
    assert_eq!(house.progress(), [], "the first has a value or words");
    for members in [r#","percent":30,"message":"m""#, "", r#","message":"m""#, r#","percent":30"#, r#","percent":20,"message":"m""#]
    {
        house.app(app, &call.progress(members));
    }
    assert_eq!(house.progress(), [(30.0, Some("m".to_owned()))]);
    for members in
        [r#","message":"n""#, r#","message":"m""#, r#","percent":31"#, r#","message":"m""#, r#","percent":32,"message":"m""#]
    {
        house.app(app, &call.progress(members));
    }
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(house.progress(), [(30.0, said("n")), (30.0, said("m")), (31.0, None), (32.0, said("m"))]);
    house.app(app, &call.output("1"));
    assert_eq!(house.heard().len(), 1, "what was withheld does not come with the result");
}

#[test]
fn data_alone_waits_for_the_next_value_or_message() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for members in
        [r#","percent":30"#, r#","data":1"#, r#","percent":30,"data":2"#, r#","message":"m""#, r#","data":3"#, r#","percent":40"#]
    {
        house.app(app, &call.progress(members));
    }
    let told = house.notifications("notifications/progress");
    let shown: Vec<_> = told.iter().map(|params| (params["progress"].as_f64(), &params["_meta"]["protocol-core/data"])).collect();
    assert_eq!(shown, [(Some(30.0), &Value::Null), (Some(30.0), &json!(2)), (Some(40.0), &json!(3))]);
}

/// The reference keeps the value and forwards the words (`docs/protocols/tesseron.md`, "Progress").
#[test]
fn an_update_that_goes_back_keeps_the_value_and_loses_no_words() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.progress(r#","percent":50"#)).app(app, &call.progress(r#","percent":20,"message":"again""#));
    house.app(app, &call.progress(r#","percent":40"#));
    assert_eq!(house.progress(), [(50.0, None), (50.0, Some("again".to_owned()))]);
}

#[test]
fn item_74_values_are_clamped_to_a_hundred() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for percent in ["-3", "0.5", "250", "1e300"] {
        house.app(app, &call.progress(&format!(r#","percent":{percent}"#)));
    }
    let values: Vec<f64> = house.progress().into_iter().map(|(value, _)| value).collect();
    assert_eq!(values, [0.0, 0.5, 100.0]);
}

#[test]
fn item_76_a_call_that_asks_for_no_progress_gets_none() {
    let (mut house, app) = house();
    house.agent(&call_tool("1", "ledger__t", "{}", None));
    let call = house.invoked(app);
    house.app(app, &call.progress(r#","percent":10,"message":"m""#));
    assert!(house.heard().is_empty());
}

#[test]
fn item_77_a_token_keeps_its_type_and_its_value() {
    let (mut house, app) = house();
    for (number, token) in ["0", "\"0\"", "\"\"", "-7", "\"t\\u0061\"", "9007199254740991"].into_iter().enumerate() {
        house.agent(&call_tool(&number.to_string(), "ledger__t", "{}", Some(token)));
        let call = house.invoked(app);
        house.app(app, &call.progress(r#","percent":10"#));
        let heard = house.heard();
        assert_eq!(value(&heard[0])["params"]["progressToken"], value(token));
        house.app(app, &call.output("1")).forget();
    }
}

#[test]
fn item_75_two_calls_that_share_a_token_have_a_floor_each() {
    let (mut house, app) = house();
    for id in ["1", "2"] {
        house.agent(&call_tool(id, "ledger__t", "{}", Some("\"shared\"")));
    }
    let calls = house.all_invoked(app);
    for (call, percent) in [(0, 60), (1, 5), (0, 61), (1, 6), (1, 4)] {
        house.app(app, &calls[call].progress(&format!(r#","percent":{percent}"#)));
    }
    let values: Vec<f64> = house.progress().into_iter().map(|(value, _)| value).collect();
    assert_eq!(values, [60.0, 5.0, 61.0, 6.0]);
    house.app(app, &calls[0].output("1")).app(app, &calls[1].progress(r#","percent":7"#));
    assert_eq!(house.progress(), [(7.0, None)], "the end of one is not the end of the other");
}

#[test]
fn the_gateway_throttles_nothing_since_the_app_does() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for percent in 1..=99 {
        house.app(app, &call.progress(&format!(r#","percent":{percent}"#)));
        assert_eq!(house.progress(), [(f64::from(percent), None)]);
    }
}

// ---- Cancel ----

#[test]
fn a_cancel_reaches_the_app_and_frees_the_agent_at_once() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.agent(&cancelled(5));
    let cancel = json!({"jsonrpc": "2.0", "method": "actions/cancel", "params": {"invocationId": call.invocation}});
    let heard: Vec<Value> = house.app_heard(app).iter().map(|text| value(text)).collect();
    assert_eq!(heard, [cancel]);
    house.assert_idle();
    // Whatever else is said of it is said to nobody.
    house.agent(&cancelled(5)).app(app, &call.progress(r#","percent":90"#)).app(app, &call.output("1"));
    assert_eq!((house.heard(), house.app_heard(app)), (vec![], vec![]));
    house.assert_idle();
}

#[test]
fn a_success_that_lost_against_the_cancel_is_not_surfaced_and_the_id_is_free() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let first = house.invoked(app);
    house.agent(&cancelled(5)).call(5, "ledger__t");
    let heard = house.all_invoked(app);
    assert_eq!(heard.len(), 1);
    house.app(app, &first.output("\"the first\"")).app(app, &heard[0].output("\"the second\""));
    assert_eq!(house.response(5)["result"]["content"][0]["text"], "the second");
}

#[test]
fn cancels_of_what_was_never_called_or_is_over_go_nowhere() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for id in ["99", "\"5\"", "-1", "null", "{}"] {
        house.agent(&notification("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#)));
    }
    house.agent(&notification("notifications/cancelled", "{}"));
    assert_eq!(house.app_heard(app), Vec::<String>::new());
    house.app(app, &call.output("1"));
    assert!(house.response(5).get("result").is_some());
    house.agent(&cancelled(5));
    assert_eq!(house.app_heard(app), Vec::<String>::new());
}

// ---- Sampling ----

#[test]
fn a_sampling_crosses_and_its_answer_is_the_text() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    let params = format!(r#"{{"invocationId":"{}","prompt":"Name the category","maxTokens":64}}"#, call.invocation);
    house.app(app, &request(2, "sampling/request", &params));
    let (id, params) = house.asked("sampling/createMessage");
    assert_eq!(params["messages"], json!([{"role": "user", "content": {"type": "text", "text": "Name the category"}}]));
    assert_eq!(params["maxTokens"], 64);
    assert!(!params.to_string().contains("invocationId") && !params.to_string().contains(&call.invocation), "{params}");
    house.agent(&sampled(&id, "office supplies"));
    assert_eq!(house.app_response(app, 2)["result"], json!({"content": "office supplies"}));
    house.app(app, &call.output("1"));
    assert!(house.response(5).get("result").is_some());
    house.assert_idle();
}

#[test]
fn the_schema_of_a_sampling_is_told_to_the_model() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    let schema = r#"{"type":"object","properties":{"c":{"type":"string"}}}"#;
    let params = format!(r#"{{"invocationId":"{}","prompt":"Name it","schema":{schema}}}"#, call.invocation);
    house.app(app, &request(2, "sampling/request", &params));
    let (_, params) = house.asked("sampling/createMessage");
    let text = params["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("Name it") && text.contains(schema), "{text}");
    assert_eq!(params["maxTokens"], 1024);
}

#[test]
fn an_answer_of_another_kind_is_its_json() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.sample(2));
    let (id, _) = house.asked("sampling/createMessage");
    let image = r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#;
    house.agent(&answered(&id, &format!(r#"{{"role":"assistant","content":{image},"model":"m"}}"#)));
    assert_eq!(house.app_response(app, 2)["result"]["content"], image);
}

/// A call that arrives while the agent samples belongs to that sampling: MCP does not say so.
#[test]
fn item_90_sampling_nests_three_deep_and_not_four() {
    let mut house = House::new();
    let apps = [house.join("a"), house.join("b")];
    let mut open = Vec::new();
    for depth in 0..4_usize {
        let app = apps[depth % 2];
        house.call(depth as u64, ["a__t", "b__t"][depth % 2]);
        let call = house.invoked(app);
        house.app(app, &call.sample(100 + depth as u64));
        open.push((app, call));
        if depth < 3 {
            house.asked("sampling/createMessage");
        }
    }
    let (app, deepest) = open.pop().unwrap();
    assert_eq!(house.heard(), Vec::<String>::new(), "nothing reached the agent");
    let refused = house.app_response(app, 103)["error"].clone();
    assert_eq!((refused["code"].clone(), refused["data"].clone()), (json!(-32008), json!({"depth": 4, "max": 3})));
    house.app(app, &deepest.output("1"));
    assert!(house.response(3).get("result").is_some());
}

#[test]
fn samplings_side_by_side_share_a_depth_and_those_one_after_another_do_not_add_up() {
    let (mut house, app) = house();
    house.call(1, "ledger__t");
    let call = house.invoked(app);
    for round in 0..5 {
        let both = [10 + 2 * round, 11 + 2 * round];
        for id in both {
            house.app(app, &call.sample(id));
        }
        let frames: Vec<Value> = house.heard().iter().map(|text| value(text)).collect();
        assert_eq!(frames.len(), 2);
        for (frame, id) in frames.iter().zip(both) {
            house.agent(&sampled(&frame["id"], "x"));
            assert_eq!(house.app_response(app, id)["result"]["content"], "x");
        }
    }
}

#[test]
fn an_agent_that_refuses_to_sample_is_quoted() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.sample(2));
    let (asked, _) = house.asked("sampling/createMessage");
    house.agent(&refused(&asked, -1, "User rejected"));
    assert_eq!(house.app_response(app, 2)["error"], json!({"code": -32603, "message": "MCP error -1: User rejected"}));
    house.app(app, &call.sample(3));
    let (asked, _) = house.asked("sampling/createMessage");
    house.agent(&refused(&asked, -32601, "Method not found"));
    assert_eq!(house.app_response(app, 3)["error"]["code"], -32006);
}

#[test]
fn an_answer_that_makes_no_sense_is_an_error_and_nothing_hangs() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for (id, result) in [(2, "{}"), (3, r#"{"role":"assistant","content":7,"model":"m"}"#), (4, "[]")] {
        house.app(app, &call.sample(id));
        let (asked, _) = house.asked("sampling/createMessage");
        house.agent(&answered(&asked, result));
        assert_eq!(house.app_response(app, id)["error"]["code"], -32603, "{result}");
    }
}

#[test]
fn item_80_what_the_agent_did_not_declare_is_refused_with_its_name() {
    let mut house = House::for_agent(config(), "2025-11-25", "{}");
    let app = house.join("ledger");
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.sample(2)).app(app, &call.confirm(3));
    let heard: Vec<Value> = house.app_heard(app).iter().map(|text| value(text)).collect();
    let errors: Vec<_> = heard.iter().map(|frame| (frame["error"]["code"].clone(), frame["error"]["data"].clone())).collect();
    assert_eq!(errors, [(json!(-32006), json!({"clientName": "c"})), (json!(-32007), json!({"clientName": "c"}))]);
    assert!(house.heard().is_empty());
}

/// An agent that probed for MCP 2026-07-28 found it, and its user was not asked any more: a deletion was declined unseen.
#[test]
fn regression_an_agent_that_probes_finds_only_the_revisions_in_which_an_app_can_ask_it() {
    let (mut house, _) = house();
    let meta =
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    house.agent(&request(7, "server/discover", &format!(r#"{{"_meta":{{{meta}}}}}"#)));
    assert_eq!(house.response(7)["error"]["code"], -32601);
}

/// Elicitation is younger than this revision, whatever the agent says.
#[test]
fn an_agent_of_an_old_revision_cannot_be_asked_by_form_and_the_app_hears_the_number_of_that() {
    let mut house = House::for_agent(config(), "2025-03-26", DECLARES);
    let app = house.join("ledger");
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.confirm(3));
    assert_eq!(house.app_response(app, 3)["error"]["code"], -32007);
}

#[test]
fn an_agent_that_only_opens_addresses_is_asked_nothing_by_an_app() {
    let mut house = House::for_agent(config(), "2025-11-25", r#"{"elicitation":{"url":{}}}"#);
    let app = house.join("ledger");
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.confirm(3));
    assert_eq!(house.app_response(app, 3)["error"]["code"], -32007);
    // Nor does an address get through as a form.
    let mut house = House::for_agent(config(), "2025-11-25", r#"{"elicitation":{"form":{},"url":{}}}"#);
    let app = house.join("ledger");
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    let by_url = call.confirm(3).replacen(
        r#""invocationId""#,
        r#""mode":"url","url":"https://evil.example/","elicitationId":"1","invocationId""#,
        1,
    );
    house.app(app, &by_url);
    let (_, params) = house.asked("elicitation/create");
    assert_eq!((params.get("url"), params.get("mode")), (None, None), "it is the form that it is on Tesseron");
}

// ---- Forms ----

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string","minLength":2}},"required":["name"]}"#;

#[test]
fn a_form_crosses_and_so_does_every_answer() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for (id, answer, expected) in [
        (2, r#"{"action":"accept","content":{"name":"Ada"}}"#, json!({"action": "accept", "value": {"name": "Ada"}})),
        (3, r#"{"action":"decline"}"#, json!({"action": "decline"})),
        (4, r#"{"action":"cancel"}"#, json!({"action": "cancel"})),
    ] {
        house.app(app, &call.elicit(id, FORM));
        let (asked, params) = house.asked("elicitation/create");
        assert_eq!((params["message"].clone(), params["requestedSchema"].clone()), (json!("Sure?"), value(FORM)));
        house.agent(&answered(&asked, answer));
        assert_eq!(house.app_response(app, id)["result"], expected);
    }
}

#[test]
fn a_confirmation_is_a_form_without_fields_and_may_be_accepted_with_nothing() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    for (id, answer, action) in [
        (2, r#"{"action":"accept"}"#, "accept"),
        (3, r#"{"action":"accept","content":{}}"#, "accept"),
        (4, r#"{"action":"decline"}"#, "decline"),
        (5, r#"{"action":"cancel"}"#, "cancel"),
    ] {
        house.app(app, &call.confirm(id));
        let (asked, params) = house.asked("elicitation/create");
        assert_eq!(params["requestedSchema"], json!({"type": "object", "properties": {}, "required": []}));
        house.agent(&answered(&asked, answer));
        assert_eq!(house.app_response(app, id)["result"]["action"], action);
    }
}

#[test]
fn an_agent_that_has_no_forms_after_all_is_one_that_does_not_offer_them() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.confirm(2));
    let (asked, _) = house.asked("elicitation/create");
    house.agent(&refused(&asked, -32601, "Method not found"));
    assert_eq!(house.app_response(app, 2)["error"]["code"], -32007, "so that a confirmation is a no, and not a failure");
}

#[test]
fn an_answer_that_does_not_fit_its_form_does_not_reach_the_app() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    let answers = [r#"{"action":"accept","content":{"name":"x"}}"#, r#"{"action":"accept"}"#, r#"{"action":"perhaps"}"#, "{}"];
    for (id, answer) in (2..).zip(answers) {
        house.app(app, &call.elicit(id, FORM));
        let (asked, _) = house.asked("elicitation/create");
        house.agent(&answered(&asked, answer));
        assert_eq!(house.app_response(app, id)["error"]["code"], -32603, "{answer}");
    }
}

// ---- Questions and the life of their call ----

#[test]
fn item_89_a_question_for_a_call_that_is_over_or_never_was_is_refused() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.output("1")).forget();
    house.app(app, &call.sample(2)).app(app, &call.confirm(3)).app(app, &testkit::tesseron::sample(4, "inv_nobody"));
    let codes: Vec<Value> = house.app_heard(app).iter().map(|text| value(text)["error"]["code"].clone()).collect();
    assert_eq!(codes, [-32009, -32009, -32009]);
    assert!(house.heard().is_empty());
}

#[test]
fn a_question_in_the_name_of_another_apps_call_is_refused() {
    let mut house = House::new();
    let (victim, thief) = (house.join("victim"), house.join("thief"));
    // Its own numbers are other ones.
    for number in 0..3 {
        house.call(number, "victim__t");
    }
    let calls = house.all_invoked(victim);
    for (id, call) in calls.iter().enumerate() {
        house
            .app(thief, &call.sample(id as u64))
            .app(thief, &call.progress(r#","percent":99"#))
            .app(thief, &call.output("\"stolen\""));
    }
    assert!(house.heard().is_empty(), "the agent hears nothing of it");
    for (number, call) in (0..).zip(&calls) {
        house.app(victim, &call.output("\"mine\""));
        assert_eq!(house.response(number)["result"]["content"][0]["text"], "mine");
    }
}

#[test]
fn item_91_the_end_of_a_call_takes_its_question_back_at_the_agent() {
    type End = fn(&mut House, usize, &tests::bridge::Invoked);
    let ends: [(&str, End); 3] = [
        ("a result", |house, app, call| {
            house.app(app, &call.output("1"));
        }),
        ("an error", |house, app, call| {
            house.app(app, &call.error(-32002, "too late", None));
        }),
        ("the end of the app", |house, app, _| {
            house.lose(app);
        }),
    ];
    for (name, end) in ends {
        let (mut house, app) = house();
        house.call(5, "ledger__t");
        let call = house.invoked(app);
        house.app(app, &call.sample(2));
        let (asked, _) = house.asked("sampling/createMessage");
        end(&mut house, app, &call);
        let frames: Vec<Value> = house.heard().iter().map(|text| value(text)).collect();
        let place =
            |wanted: &dyn Fn(&Value) -> bool| frames.iter().position(wanted).unwrap_or_else(|| panic!("{name}: {frames:?}"));
        let taken = place(&|frame| frame["method"] == "notifications/cancelled" && frame["params"]["requestId"] == asked);
        assert!(taken < place(&|frame| frame["id"] == 5 && frame.get("result").is_some()), "{name}: before the answer");
        // The model answers all the same.
        house.agent(&sampled(&asked, "late"));
        house.assert_idle();
    }
}

#[test]
fn a_cancel_takes_the_question_of_its_call_back_and_answers_it_to_the_app() {
    let (mut house, app) = house();
    house.call(5, "ledger__t");
    let call = house.invoked(app);
    house.app(app, &call.sample(2));
    let (asked, _) = house.asked("sampling/createMessage");
    house.agent(&cancelled(5));
    assert_eq!(house.notifications("notifications/cancelled")[0]["requestId"], asked);
    let heard: Vec<Value> = house.app_heard(app).iter().map(|text| value(text)).collect();
    assert_eq!(heard.len(), 2);
    assert!(heard.iter().any(|frame| frame["method"] == "actions/cancel"));
    assert!(heard.iter().any(|frame| frame["id"] == 2 && frame["error"]["code"] == -32001));
    house.agent(&sampled(&asked, "late"));
    assert_eq!(house.app_heard(app), Vec::<String>::new());
    house.assert_idle();
}

// ---- Log records ----

#[test]
fn item_78_log_levels_are_mapped_and_what_lies_beside_the_message_cannot_be_taken_for_it() {
    let (mut house, app) = house();
    house.agent(&request(8, "logging/setLevel", r#"{"level":"debug"}"#)).call(5, "ledger__t");
    let call = house.invoked(app);
    house.forget();
    for (level, expected) in [("debug", "debug"), ("info", "info"), ("warn", "warning"), ("error", "error"), ("loud", "info")] {
        let params = format!(
            r#"{{"invocationId":"{}","level":"{level}","message":"retrying","meta":{{"attempt":2,"message":"fake"}}}}"#,
            call.invocation
        );
        house.app(app, &notification("log", &params));
        let told = json!({"level": expected, "logger": "ledger", "data": {"message": "retrying", "attempt": 2}});
        assert_eq!(house.notifications("notifications/message"), [told]);
    }
}

#[test]
fn item_79_a_record_that_belongs_to_no_call_is_told_too() {
    let (mut house, app) = house();
    house.app(app, &notification("log", r#"{"level":"warn","message":"disk"}"#));
    assert_eq!(house.notifications("notifications/message")[0]["data"], json!({"message": "disk"}));
}

#[test]
fn an_agent_that_has_set_no_level_hears_every_record() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut house = House::for_agent(config(), revision, DECLARES);
        let app = house.join("ledger");
        for (level, expected) in [("debug", "debug"), ("info", "info"), ("warn", "warning"), ("error", "error")] {
            house.app(app, &notification("log", &format!(r#"{{"level":"{level}","message":"m"}}"#)));
            let told = json!({"level": expected, "logger": "ledger", "data": {"message": "m"}});
            assert_eq!(house.notifications("notifications/message"), [told], "{revision}");
        }
    }
}

/// Both hops: a handler of an app of ours logs a value, and the agent reads that value, not a text of it.
#[test]
fn what_an_app_of_ours_logs_is_encoded_once_on_its_way_to_the_agent() {
    let mut house = House::new();
    let app = house.join_session(app_config("ledger"));
    for (data, told) in [
        (r#"{"item":{"id":3}}"#, r#"{"message":"","item":{"id":3}}"#),
        (r#"["a",{"b":1}]"#, r#"{"message":"","data":["a",{"b":1}]}"#),
        (r#""words""#, r#"{"message":"words"}"#),
        (r#"{"message":"words","n":1.50}"#, r#"{"message":"words","n":1.50}"#),
    ] {
        let record = LogRecord::new(Level::Debug, scripted::json(data));
        let end = house.app_end(app);
        assert_eq!(end.session.log(None, record, end.now), Ok(Logged::Sent));
        house.carry();
        let heard = house.heard();
        assert!(heard.len() == 1 && heard[0].contains(&format!(r#""data":{told}}}"#)), "{heard:?}");
    }
}

#[test]
fn records_below_the_level_of_the_agent_are_kept_from_it() {
    let (mut house, app) = house();
    house.agent(&request(8, "logging/setLevel", r#"{"level":"error"}"#)).forget();
    house.app(app, &notification("log", r#"{"level":"warn","message":"w"}"#));
    assert!(house.heard().is_empty());
    house.app(app, &notification("log", r#"{"level":"error","message":"e"}"#));
    assert_eq!(house.notifications("notifications/message").len(), 1);
}

// ---- The list of tools ----

#[test]
fn the_actions_of_an_app_are_tools_with_its_words_and_hints() {
    let actions = r#"[
        {"name":"post","description":"Book an entry","inputSchema":{"type":"object","properties":{"c":{"type":"integer"}}},"annotations":{"readOnly":false,"destructive":true,"requiresConfirmation":true},"timeoutMs":60000},
        {"name":"look","description":"","inputSchema":{},"annotations":{"readOnly":true}},
        {"name":"bare","description":"d"}
    ]"#
    .replace('\n', " ");
    let mut house = House::new();
    house.join_with("ledger", &actions, "[]");
    house.agent(&request(1, "tools/list", "{}"));
    let tools = house.response(1)["result"]["tools"].as_array().unwrap()[5..].to_vec();
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
    assert_eq!(named("ledger__bare"), json!({"name": "ledger__bare", "description": "d", "inputSchema": anything}));
}

#[test]
fn tools_are_listed_in_the_order_in_which_the_app_names_them() {
    let mut house = House::new();
    house.join_with(
        "ledger",
        r#"[{"name":"zebra","description":""},{"name":"ant","description":""},{"name":"bee","description":""}]"#,
        "[]",
    );
    assert_eq!(house.app_tools(), ["ledger__zebra", "ledger__ant", "ledger__bee"]);
}

#[test]
fn item_100_a_new_list_of_actions_replaces_the_old_one_and_the_agent_is_told() {
    let (mut house, app) = house();
    let list = r#"{"actions":[{"name":"void_entry","description":"","inputSchema":{"type":"object"}}]}"#;
    house.app(app, &notification("actions/list_changed", list));
    assert_eq!(house.heard(), [r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#]);
    assert_eq!(house.app_tools(), ["ledger__void_entry"]);
    house.app(app, &notification("actions/list_changed", r#"{"actions":[]}"#));
    assert_eq!(house.app_tools(), Vec::<String>::new());
}

#[test]
fn actions_without_a_name_and_second_ones_of_a_name_are_left_out() {
    let mut house = House::new();
    house.join_with(
        "ledger",
        r#"[{"name":"t","description":"first"},7,{"description":"no name"},{"name":9},{"name":"t","description":"second"}]"#,
        "[]",
    );
    house.agent(&request(1, "tools/list", "{}"));
    let tools = house.response(1)["result"]["tools"].as_array().unwrap()[5..].to_vec();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0]["description"], "first");
}

#[test]
fn methods_that_a_gateway_has_no_use_for_are_refused() {
    let (mut house, _) = house();
    for (id, method) in [(1, "prompts/list"), (2, "prompts/get"), (3, "completion/complete"), (4, "nonsense")] {
        house.agent(&request(id, method, "{}"));
        assert_eq!(house.response(id)["error"]["code"], -32601, "{method}");
    }
    house.agent(&request(5, "tools/call", r#"{"name":7}"#));
    assert_eq!(house.response(5)["error"]["code"], -32602);
    house.agent(&request(6, "resources/templates/list", "{}"));
    assert_eq!(house.response(6)["result"], json!({"resourceTemplates": []}));
    house.agent(&request(7, "ping", "{}"));
    assert_eq!(house.response(7)["result"], json!({}));
}
