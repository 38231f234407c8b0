//! Input requests of a server at its client (Client Features: "Sampling", "Elicitation", "Roots"): refusals, the call that each belongs to,
//! sampling depth, and answers.

use protocol_core::{
    Elicit, ElicitResult, Event, ExchangeId, InputRequest, InputResponse, Invoke, Lane, NotLive, OutboundId, RpcError, Sample,
    SampleResult, Violation,
};
use testkit::Scripted;
use testkit::config::{client_config, with};
use testkit::scripted::{cancelled, json, request, result};

const SAMPLING: &str = "sampling/createMessage";
const ELICITATION: &str = "elicitation/create";
const ROOTS: &str = "roots/list";
/// The capabilities of the server.
const SERVER: &str = r#"{"tools":{}}"#;

/// Parameters of an elicitation.
const FORM: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;

/// Parameters of a sampling request. `members` are further members of them, with a comma before each.
fn sample(members: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":"?"}}}}],"maxTokens":5{members}}}"#)
}

/// Returns `true` if the only frame refuses the parameters of request 7.
fn refuses_params(frames: &[String]) -> bool {
    matches!(frames, [frame] if frame.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":""#))
}

/// The call, the contents and the depth of the one input request among the events.
fn asked(client: &mut Scripted) -> (Option<OutboundId>, InputRequest, u8) {
    let events = client.events();
    match &events[..] {
        [Event::InputRequested { parent, ask, depth, .. }] => (*parent, ask.clone(), *depth),
        _ => panic!("not one input request: {events:?}"),
    }
}

/// Returns `true` if a client of `revision` accepts this input request. Otherwise checks that it has refused the parameters.
/// `sampling_tools` is `true` if the client declares sampling with tools.
fn takes(revision: &str, method: &str, params: &str, sampling_tools: bool) -> bool {
    let config = with(client_config(), |config| config.capabilities.sampling_tools = sampling_tools);
    let mut client = Scripted::client_at(config, revision, SERVER);
    client.frame(&request(7, method, params));
    let (sent, events) = (client.sent(), client.events());
    match &events[..] {
        [Event::InputRequested { .. }] => assert_eq!(sent, Vec::<String>::new(), "{params}"),
        [Event::Violation(Violation::InvalidParams)] => assert!(refuses_params(&sent), "{params}: {sent:?}"),
        _ => panic!("{params}: {events:?}"),
    }
    sent.is_empty()
}

// ---- The stream of an input request ----

#[test]
fn an_input_request_belongs_to_the_call_on_whose_stream_it_comes_unless_it_names_another() {
    let input_request = |meta: &str| request(7, SAMPLING, &sample(meta));
    let within = |exchange: u64, meta: &str| {
        let mut client = Scripted::client(client_config());
        let calls = [client.call(), client.call()];
        client.sent();
        let exchange = Some(ExchangeId::from_number(exchange));
        client.session.handle_frame_within(input_request(meta).into(), Lane::CHANNEL, exchange, client.now).expect("it is taken");
        let (parent, ..) = asked(&mut client);
        calls.iter().position(|call| Some(*call) == parent)
    };
    assert_eq!(within(2, ""), Some(0));
    assert_eq!(within(3, ""), Some(1));
    assert_eq!(within(2, r#","_meta":{"protocol-core/parent":3}"#), Some(1));
    assert_eq!(within(99, ""), Some(1), "else to the newest");
}

// ---- Receipt ----

#[test]
fn o8_each_kind_of_input_request_is_reported_with_its_contents() {
    let mut client = Scripted::client(client_config());
    client.frame(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#);
    assert_eq!(asked(&mut client), (None, InputRequest::Roots, 0));

    client.frame(&request(
        8,
        ELICITATION,
        r#"{"mode":"form","message":"who?","requestedSchema":{ "type":"object","properties":{"name":{"type":"string"}}}}"#,
    ));
    let form = Elicit::new("who?", json(r#"{ "type":"object","properties":{"name":{"type":"string"}}}"#));
    assert_eq!(asked(&mut client), (None, InputRequest::Elicit(form), 0));

    let params = r#"{"messages":[{"role":"user","content":{"type":"text","text":"a\nb"}},{"role":"assistant","content":{"type":"text","text":"c"}},
        {"role":"user","content":{"type":"image","data":"AA==","mimeType":"image/png"}}],"maxTokens":100,"temperature":0.5}"#;
    client.frame(&request(9, SAMPLING, params));
    let mut expected = Sample::new("a\nb\nc\n{\"type\":\"image\",\"data\":\"AA==\",\"mimeType\":\"image/png\"}");
    (expected.max_tokens, expected.params) = (Some(100), Some(json(params)));
    assert_eq!(asked(&mut client), (None, expected.into(), 1));
    assert_eq!(client.sent(), Vec::<String>::new());
}

#[test]
fn a_form_without_a_field_is_a_confirmation() {
    for (properties, confirms) in [(r#"{}"#, true), (r#"{"a":{"type":"boolean"}}"#, false)] {
        let mut client = Scripted::client(client_config());
        client.frame(&request(
            7,
            ELICITATION,
            &format!(r#"{{"message":"?","requestedSchema":{{"type":"object","properties":{properties}}}}}"#),
        ));
        let (_, InputRequest::Elicit(form), _) = asked(&mut client) else { panic!() };
        assert_eq!(form.is_confirmation(), confirms);
    }
}

#[test]
fn an_undeclared_input_request_is_refused_as_an_unknown_method() {
    for (method, params) in [(SAMPLING, sample("")), (ELICITATION, FORM.to_owned()), (ROOTS, "{}".to_owned())] {
        let config = with(client_config(), |config| {
            let all = &mut config.capabilities;
            match method {
                SAMPLING => all.sampling = false,
                ELICITATION => (all.elicitation, all.elicitation_url) = (false, false),
                _ => all.roots = false,
            }
        });
        let mut client = Scripted::client(config);
        client.frame(&request(7, method, &params));
        assert_eq!(
            client.sent(),
            [format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-32601,"message":"method not found: {method}"}}}}"#)]
        );
        assert_eq!(client.events(), [Event::Violation(Violation::UndeclaredInput)]);
    }
}

#[test]
fn elicitation_is_accepted_from_revision_2025_06_18_on() {
    for (revision, is_known) in [("2024-11-05", false), ("2025-03-26", false), ("2025-06-18", true), ("2025-11-25", true)] {
        let mut client = Scripted::client_at(client_config(), revision, SERVER);
        client.frame(&request(7, ELICITATION, FORM));
        assert_eq!(client.sent().is_empty(), is_known, "{revision}");
        assert_eq!(client.violations().is_empty(), is_known, "{revision}");
    }
}

#[test]
fn an_input_request_before_the_end_of_the_handshake_is_refused_even_if_it_is_malformed() {
    for method in [SAMPLING, ELICITATION, ROOTS] {
        for params in [sample(""), FORM.to_owned(), "{}".to_owned()] {
            let mut client = Scripted::new(client_config());
            client.sent();
            client.frame(&request(7, method, &params));
            assert_eq!(
                client.sent(),
                [r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"the handshake is not done"}}"#],
                "{method} {params}"
            );
            assert_eq!(client.events(), [Event::Violation(Violation::OutOfPhase)]);
        }
    }
}

#[test]
fn an_input_request_with_the_id_of_an_open_one_is_not_answered_and_the_open_one_goes_on() {
    let mut client = Scripted::client(client_config());
    client.frame(&request(7, ROOTS, "{}"));
    let first = client.input_request();
    for again in
        [request(7, ROOTS, "{}"), request(7, SAMPLING, &sample("")), request(7, "acme/what", "{}"), request(7, SAMPLING, "{}")]
    {
        client.frame(&again);
        assert_eq!(client.sent(), Vec::<String>::new(), "{again}");
        assert!(client.violations().contains(&Violation::DuplicateRequest), "{again}");
    }
    client.session.provide_input(first, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(client.sent().len(), 1);
    client.frame(&request(7, ROOTS, "{}"));
    let events = client.events();
    assert!(matches!(events[..], [Event::Violation(Violation::ReusedId), Event::InputRequested { .. }]), "{events:?}");
}

// ---- Forms ----

#[test]
fn the_mode_of_an_elicitation_is_form_or_url() {
    for mode in [r#""voice""#, r#""""#, "1", "{}"] {
        let params = format!(
            r#"{{"mode":{mode},"message":"?","url":"https://x","elicitationId":"1","requestedSchema":{{"type":"object","properties":{{}}}}}}"#
        );
        assert!(!takes("2025-11-25", ELICITATION, &params, false), "{mode}");
    }
}

#[test]
fn a_form_needs_a_message_and_a_flat_object_as_its_schema() {
    for (params, fits) in [
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#, true),
        (
            r#"{"message":"","requestedSchema":{"type":"object","properties":{},"required":[],"$schema":"x","title":"t","additionalProperties":false}}"#,
            true,
        ),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}"#, true),
        (r#"{"requestedSchema":{"type":"object","properties":{}}}"#, false),
        (r#"{"message":5,"requestedSchema":{"type":"object","properties":{}}}"#, false),
        (r#"{"message":"?"}"#, false),
        (r#"{"message":"?","requestedSchema":null}"#, false),
        (r#"{"message":"?","requestedSchema":"object"}"#, false),
        (r#"{"message":"?","requestedSchema":[]}"#, false),
        (r#"{"message":"?","requestedSchema":true}"#, false),
        (r#"{"message":"?","requestedSchema":{}}"#, false),
        (r#"{"message":"?","requestedSchema":{"properties":{}}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"array","properties":{}}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":["object"],"properties":{}}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":[]}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":null}}"#, true),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{},"required":["a"]}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":"a"}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":[1]}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{},"oneOf":[{}]}}"#, false),
        (r#"{"message":"?","requestedSchema":{"type":"object","properties":{},"allOf":[]}}"#, false),
        (r##"{"message":"?","requestedSchema":{"type":"object","properties":{},"$ref":"#/x"}}"##, false),
    ] {
        for revision in ["2025-06-18", "2025-11-25"] {
            assert_eq!(takes(revision, ELICITATION, params, false), fits, "{revision} {params}");
        }
    }
}

#[test]
fn the_fields_of_a_form_are_the_primitives_of_its_revision() {
    // Two flags, for 2025-06-18 and for 2025-11-25: `true` if the field is accepted in that revision.
    const BOTH: [bool; 2] = [true, true];
    const NEWEST: [bool; 2] = [false, true];
    const NEITHER: [bool; 2] = [false, false];
    for (field, fits) in [
        (r#"{"type":"string"}"#, BOTH),
        (r#"{"type":"string","title":"T","description":"D","minLength":1,"maxLength":5}"#, BOTH),
        (r#"{"type":"string","format":"email"}"#, BOTH),
        (r#"{"type":"string","format":"uri"}"#, BOTH),
        (r#"{"type":"string","format":"date"}"#, BOTH),
        (r#"{"type":"string","format":"date-time"}"#, BOTH),
        (r#"{"type":"string","pattern":"^a"}"#, BOTH),
        (r#"{"type":"number","minimum":-1.5,"maximum":1e3}"#, BOTH),
        (r#"{"type":"integer","minimum":0}"#, BOTH),
        (r#"{"type":"boolean"}"#, BOTH),
        (r#"{"type":"boolean","default":true}"#, BOTH),
        (r#"{"type":"string","enum":["a","b"]}"#, BOTH),
        (r#"{"type":"string","enum":["a","b"],"enumNames":["A","B"]}"#, BOTH),
        (r#"{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]}"#, NEWEST),
        (r#"{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1,"maxItems":2}"#, NEWEST),
        (r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}"#, NEWEST),
        // Fields as serializers of types write them.
        (r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#, BOTH),
        (r#"{"type":["string","null"]}"#, BOTH),
        (r#"{"type":"integer","maximum":null}"#, BOTH),
        (r#"{"enum":["a","b"]}"#, BOTH),
        // Fields that are not primitive.
        (r#"{"type":"object","properties":{}}"#, NEITHER),
        (r#"{"type":"array"}"#, NEITHER),
        (r#"{"type":"array","items":{"type":"string"}}"#, NEITHER),
        (r#"{"type":"array","items":{"type":"object","properties":{}}}"#, NEITHER),
        (r#"{"type":"array","items":[{"enum":["a"]}]}"#, NEITHER),
        (r##"{"$ref":"#/$defs/a"}"##, NEITHER),
        (r##"{"type":"string","$ref":"#/$defs/a"}"##, NEITHER),
        (r#"{"type":"string","anyOf":[{"const":"a"}]}"#, NEITHER),
        (r#"{"type":"number","oneOf":[{"const":1}]}"#, NEITHER),
        (r#"{"type":"string","not":{}}"#, NEITHER),
        // Unknown or missing types.
        (r#"{}"#, NEITHER),
        (r#"{"type":"null"}"#, NEITHER),
        (r#"{"type":"text"}"#, NEITHER),
        (r#"{"type":1}"#, NEITHER),
        (r#"true"#, NEITHER),
        (r#"null"#, NEITHER),
        (r#"[]"#, NEITHER),
        (r#""string""#, NEITHER),
        // Keywords of the wrong type.
        (r#"{"type":"string","minLength":-1}"#, NEITHER),
        (r#"{"type":"string","minLength":"1"}"#, NEITHER),
        (r#"{"type":"string","maxLength":1.5}"#, NEITHER),
        (r#"{"type":"number","minimum":"0"}"#, NEITHER),
        (r#"{"type":"string","enum":"a"}"#, NEITHER),
        (r#"{"type":"string","enum":[1]}"#, NEITHER),
        (r#"{"type":"string","oneOf":{"const":"a"}}"#, NEITHER),
        (r#"{"type":"string","oneOf":[{"title":"A"}]}"#, NEITHER),
        (r#"{"type":"string","oneOf":[{"const":1}]}"#, NEITHER),
        (r#"{"type":"array","items":{"enum":["a"]},"minItems":"1"}"#, NEITHER),
        // Defaults that do not satisfy their own field.
        (r#"{"type":"boolean","default":"yes"}"#, NEITHER),
        (r#"{"type":"string","default":1}"#, NEITHER),
        (r#"{"type":"string","minLength":2,"default":"é"}"#, NEITHER),
        (r#"{"type":"string","maxLength":1,"default":"ab"}"#, NEITHER),
        (r#"{"type":"number","maximum":1,"default":2}"#, NEITHER),
        (r#"{"type":"integer","default":1.5}"#, NEITHER),
        (r#"{"type":"string","enum":["a"],"default":"b"}"#, NEITHER),
        (r#"{"type":"string","oneOf":[{"const":"a"}],"default":"A"}"#, NEITHER),
        (r#"{"type":"array","items":{"enum":["a"]},"default":["b"]}"#, NEITHER),
        (r#"{"type":"array","items":{"enum":["a"]},"minItems":1,"default":[]}"#, NEITHER),
    ] {
        let params = format!(
            r#"{{"message":"?","requestedSchema":{{"type":"object","properties":{{"ok":{{"type":"boolean"}},"a":{field}}}}}}}"#
        );
        let taken = ["2025-06-18", "2025-11-25"].map(|revision| takes(revision, ELICITATION, &params, false));
        assert_eq!(taken, fits, "{field}");
    }
    for field in [
        r#"{"type":"string","minLength":2,"maxLength":2,"default":"éé"}"#,
        r#"{"type":"number","minimum":0,"default":0}"#,
        r#"{"type":"integer","default":3.0}"#,
        r#"{"type":"string","enum":["a","b"],"default":"\u0062"}"#,
        r#"{"type":"string","oneOf":[{"const":"a","title":"A"}],"default":"a"}"#,
        r#"{"type":"array","items":{"enum":["a","b"]},"maxItems":2,"default":["b","a"]}"#,
    ] {
        let params = format!(r#"{{"message":"?","requestedSchema":{{"type":"object","properties":{{"a":{field}}}}}}}"#);
        assert!(takes("2025-11-25", ELICITATION, &params, false), "{field}");
    }
}

// ---- Sampling ----

#[test]
fn a_sampling_request_needs_a_positive_number_of_tokens() {
    for (most, fits) in [
        ("1", true),
        ("4294967296", true),
        ("0", false),
        ("-1", false),
        ("1.5", false),
        ("\"5\"", false),
        ("null", false),
        ("[5]", false),
        ("true", false),
    ] {
        let params = format!(r#"{{"messages":[],"maxTokens":{most}}}"#);
        assert_eq!(takes("2025-11-25", SAMPLING, &params, false), fits, "{most}");
    }
    assert!(!takes("2025-11-25", SAMPLING, r#"{"messages":[]}"#, false));
}

#[test]
fn the_messages_of_a_sampling_request_need_roles_and_content() {
    let text = r#"{"type":"text","text":"?"}"#;
    for (messages, fits) in [
        ("[]".to_owned(), true),
        (format!(r#"[{{"role":"user","content":{text}}},{{"role":"assistant","content":{text}}}]"#), true),
        (r#"[{"role":"user","content":{"type":"hologram","data":1}}]"#.to_owned(), true),
        ("null".to_owned(), false),
        ("{}".to_owned(), false),
        ("\"?\"".to_owned(), false),
        ("[1]".to_owned(), false),
        ("[null]".to_owned(), false),
        ("[[]]".to_owned(), false),
        ("[{}]".to_owned(), false),
        (format!(r#"[{{"role":"system","content":{text}}}]"#), false),
        (format!(r#"[{{"role":1,"content":{text}}}]"#), false),
        (format!(r#"[{{"content":{text}}}]"#), false),
        (r#"[{"role":"user"}]"#.to_owned(), false),
        (r#"[{"role":"user","content":"?"}]"#.to_owned(), false),
        (r#"[{"role":"user","content":null}]"#.to_owned(), false),
        (r#"[{"role":"user","content":{}}]"#.to_owned(), false),
        (r#"[{"role":"user","content":{"type":5}}]"#.to_owned(), false),
    ] {
        let params = format!(r#"{{"messages":{messages},"maxTokens":5}}"#);
        for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            assert_eq!(takes(revision, SAMPLING, &params, false), fits, "{revision} {messages}");
        }
    }
    assert!(!takes("2025-11-25", SAMPLING, r#"{"maxTokens":5}"#, false));
}

#[test]
fn a_message_may_have_several_blocks_from_revision_2025_11_25_on() {
    let params =
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"maxTokens":5}"#;
    for (revision, fits) in [("2024-11-05", false), ("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)] {
        assert_eq!(takes(revision, SAMPLING, params, false), fits, "{revision}");
    }
}

#[test]
fn the_priorities_of_a_sampling_request_are_between_0_and_1() {
    for name in ["costPriority", "speedPriority", "intelligencePriority"] {
        for (value, fits) in
            [("0", true), ("1", true), ("0.5", true), ("1.01", false), ("-0.1", false), ("\"1\"", false), ("null", true)]
        {
            let params = sample(&format!(r#","modelPreferences":{{"{name}":{value},"hints":[{{"name":"x"}}]}}"#));
            assert_eq!(takes("2025-11-25", SAMPLING, &params, false), fits, "{name} {value}");
        }
    }
}

#[test]
fn a_sampling_request_with_tools_needs_the_capability_for_them() {
    for part in [
        r#","tools":[]"#,
        r#","toolChoice":{"mode":"auto"}"#,
        r#","tools":[{"name":"t","inputSchema":{"type":"object"}}],"toolChoice":{}"#,
    ] {
        assert!(!takes("2025-11-25", SAMPLING, &sample(part), false), "{part}");
        assert!(takes("2025-11-25", SAMPLING, &sample(part), true), "{part}");
    }
}

#[test]
fn every_use_of_a_tool_must_be_answered_in_the_next_message_which_has_only_answers() {
    let used = |ids: &[&str]| {
        let blocks: Vec<_> = ids.iter().map(|id| format!(r#"{{"type":"tool_use","id":"{id}","name":"t","input":{{}}}}"#)).collect();
        blocks.join(",")
    };
    let answered = |ids: &[&str]| {
        let blocks: Vec<_> = ids.iter().map(|id| format!(r#"{{"type":"tool_result","toolUseId":"{id}","content":[]}}"#)).collect();
        blocks.join(",")
    };
    let user = |blocks: String| format!(r#"{{"role":"user","content":[{blocks}]}}"#);
    let assistant = |blocks: String| format!(r#"{{"role":"assistant","content":[{blocks}]}}"#);
    let text = || r#"{"type":"text","text":"?"}"#.to_owned();
    let both = |a: String, b: String| format!("{a},{b}");
    for (name, messages, fits) in [
        ("one", vec![assistant(used(&["1"])), user(answered(&["1"]))], true),
        ("two in another order", vec![assistant(used(&["1", "2"])), user(answered(&["2", "1"]))], true),
        ("an assistant may say something, too", vec![assistant(both(text(), used(&["1"]))), user(answered(&["1"]))], true),
        (
            "twice the same id, one after the other",
            vec![assistant(used(&["1"])), user(answered(&["1"])), assistant(used(&["1"])), user(answered(&["1"]))],
            true,
        ),
        ("unanswered at the end", vec![assistant(used(&["1"]))], false),
        ("answered too late", vec![assistant(used(&["1"])), user(text()), user(answered(&["1"]))], false),
        ("an assistant goes on instead", vec![assistant(used(&["1"])), assistant(text())], false),
        ("one is missing", vec![assistant(used(&["1", "2"])), user(answered(&["1"]))], false),
        ("one too many", vec![assistant(used(&["1"])), user(answered(&["1", "2"]))], false),
        ("answered twice", vec![assistant(used(&["1"])), user(answered(&["1", "1"]))], false),
        ("another id", vec![assistant(used(&["1"])), user(answered(&["2"]))], false),
        ("answered in two messages", vec![assistant(used(&["1", "2"])), user(answered(&["1"])), user(answered(&["2"]))], false),
        ("nothing was used", vec![user(answered(&["1"]))], false),
        ("mixed", vec![assistant(used(&["1"])), user(both(answered(&["1"]), text()))], false),
        ("two uses share an id", vec![assistant(used(&["1", "1"])), user(answered(&["1", "1"]))], false),
        ("a user uses", vec![user(used(&["1"])), user(answered(&["1"]))], false),
        ("an assistant answers", vec![assistant(used(&["1"])), assistant(answered(&["1"]))], false),
        ("a use without an id", vec![assistant(r#"{"type":"tool_use","name":"t","input":{}}"#.into())], false),
        ("an answer without an id", vec![assistant(used(&["1"])), user(r#"{"type":"tool_result","content":[]}"#.into())], false),
        ("an id that is no text", vec![assistant(r#"{"type":"tool_use","id":1,"name":"t","input":{}}"#.into())], false),
    ] {
        let params = format!(r#"{{"messages":[{}],"maxTokens":5,"tools":[]}}"#, messages.join(","));
        assert_eq!(takes("2025-11-25", SAMPLING, &params, true), fits, "{name}");
    }
}

// ---- The call of an input request ----

/// The call to which a roots request with the parameters `params` belongs. Cancels the roots request afterwards.
fn parent_of(client: &mut Scripted, params: &str) -> Option<OutboundId> {
    client.frame(&request(77, ROOTS, params));
    let events = client.events();
    client.frame(&cancelled(77)).drain();
    match events.last() {
        Some(Event::InputRequested { parent, .. }) => *parent,
        _ => panic!("no input request: {events:?}"),
    }
}

#[test]
fn a_parent_that_is_no_call_in_flight_is_ignored() {
    let mut client = Scripted::client(client_config());
    let ended = client.call();
    let call = client.call();
    client.sent();
    client.frame(&result(2)).events();
    for parent in ["2", "1", "0", "99", "-3", "\"3\"", "3.0", "null", "{}", "1e99"] {
        assert_eq!(
            parent_of(&mut client, &format!(r#"{{"_meta":{{"protocol-core/parent":{parent}}}}}"#)),
            Some(call),
            "{parent} {ended}"
        );
    }
}

#[test]
fn neither_a_ping_nor_an_unsent_call_can_be_the_parent_of_an_input_request() {
    let mut client = Scripted::client(client_config());
    client.invoke(Invoke::ping());
    client.sent();
    assert_eq!(parent_of(&mut client, "{}"), None);
    let call = client.call();
    client.sent();
    client.call();
    client.frame(&request(7, ROOTS, "{}"));
    let (parent, ..) = asked(&mut client);
    assert_eq!(parent, Some(call));
}

// ---- Depth ----

#[test]
fn g12_a_depth_that_a_request_names_can_only_raise_its_depth_and_an_invalid_one_counts_as_the_greatest() {
    for (given, depth) in
        [("0", Some(1)), ("1", Some(1)), ("2", Some(2)), ("3", Some(3)), ("4", None), ("255", None), ("256", None)]
            .into_iter()
            .chain(["-1", "1.0", "\"1\"", "[]"].map(|nonsense| (nonsense, None)))
    {
        let mut client = Scripted::client(client_config());
        client.frame(&request(7, SAMPLING, &sample(&format!(r#","_meta":{{"protocol-core/samplingDepth":{given}}}"#))));
        match depth {
            Some(depth) => assert_eq!(asked(&mut client).2, depth, "{given}"),
            None => assert_eq!(client.violations(), [Violation::SamplingTooDeep], "{given}"),
        }
    }
}

// ---- Answers ----

/// An answer whose result is exactly the text `result`.
fn raw(result: &str) -> InputResponse {
    let mut sampled = SampleResult::new("not this", "nor this");
    sampled.result = Some(json(result));
    InputResponse::Sample(sampled)
}

#[test]
fn each_kind_of_answer_is_sent_as_the_result_of_its_input_request() {
    let exact = raw(r#"{ "role":"assistant","content":[],"model":"m","stopReason":"toolUse" }"#);
    let error = RpcError::new(-1, "the user said \"no\"").with_data(json("[1]"));
    for (method, answer, body) in [
        (
            SAMPLING,
            InputResponse::Sample(SampleResult::new("hi \"you\"", "m-1")),
            r#""result":{"role":"assistant","content":{"type":"text","text":"hi \"you\""},"model":"m-1","stopReason":"endTurn"}"#,
        ),
        (SAMPLING, exact, r#""result":{ "role":"assistant","content":[],"model":"m","stopReason":"toolUse" }"#),
        (SAMPLING, InputResponse::Refused(error), r#""error":{"code":-1,"message":"the user said \"no\"","data":[1]}"#),
        (ELICITATION, InputResponse::Elicit(ElicitResult::Accept(json("{ }"))), r#""result":{"action":"accept","content":{ }}"#),
        (ELICITATION, InputResponse::Elicit(ElicitResult::Decline), r#""result":{"action":"decline"}"#),
        (ELICITATION, InputResponse::Elicit(ElicitResult::Cancel), r#""result":{"action":"cancel"}"#),
        (ELICITATION, InputResponse::Confirm(true), r#""result":{"action":"accept","content":{}}"#),
        (ELICITATION, InputResponse::Confirm(false), r#""result":{"action":"decline"}"#),
        (
            ROOTS,
            InputResponse::Roots(json(r#"[{"uri":"file:///a","name":"A"}]"#)),
            r#""result":{"roots":[{"uri":"file:///a","name":"A"}]}"#,
        ),
    ] {
        let mut client = Scripted::client(client_config());
        let params = match method {
            SAMPLING => sample(""),
            _ => FORM.to_owned(),
        };
        client.frame(&format!(r#"{{"jsonrpc":"2.0","id":"q-7","method":"{method}","params":{params}}}"#));
        let key = client.input_request();
        client.session.provide_input(key, answer.clone(), client.now).unwrap();
        assert_eq!((client.sent(), client.events()), (vec![format!(r#"{{"jsonrpc":"2.0","id":"q-7",{body}}}"#)], vec![]));
        assert_eq!(client.session.provide_input(key, answer, client.now), Err(NotLive));
        client.expect_silence();
    }
}

#[test]
fn an_answer_of_the_wrong_shape_is_sent_as_an_internal_error() {
    for (method, answer) in [
        (SAMPLING, raw("[]")),
        (SAMPLING, raw("null")),
        (ELICITATION, InputResponse::Elicit(ElicitResult::Accept(json("[]")))),
        (ELICITATION, InputResponse::Elicit(ElicitResult::Accept(json("null")))),
        (ROOTS, InputResponse::Roots(json("{}"))),
        (ROOTS, InputResponse::Roots(json("null"))),
    ] {
        let mut client = Scripted::client(client_config());
        client.frame(&request(7, method, &if method == SAMPLING { sample("") } else { FORM.to_owned() }));
        let key = client.input_request();
        client.session.provide_input(key, answer.clone(), client.now).unwrap();
        let sent = client.sent();
        assert!(
            sent.len() == 1 && sent[0].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"#),
            "{answer:?}: {sent:?}"
        );
    }
}

#[test]
fn an_answer_longer_than_a_frame_is_sent_as_an_internal_error() {
    let mut client = Scripted::client(with(client_config(), |config| config.limits.frame_bytes = 4096));
    client.frame(&request(7, SAMPLING, &sample("")));
    let key = client.input_request();
    client.session.provide_input(key, InputResponse::Sample(SampleResult::new("x".repeat(5000), "m")), client.now).unwrap();
    let sent = client.sent();
    assert!(sent[0].starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"#) && sent.len() == 1, "{sent:?}");
}
