//! Input requests of a server to its client during a call: sampling, elicitation, confirmation and roots (Client Features).

use std::time::Duration;

use protocol_core::{
    AskError, Elicit, ElicitResult, Event, InboundId, InputFailed, InputKey, InputRequest, InputResponse, Instant, NotLive,
    Progress, Reply, RpcError, Sample, SampleResult, ServeOptions, TransportEnd, Violation,
};
use testkit::Scripted;
use testkit::config::{server_config, with};
use testkit::scripted::{cancelled, initialize, json, ok};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The capabilities of a client that has all of them, sampling with tools included.
const EVERYTHING: &str = r#"{"sampling":{"tools":{}},"elicitation":{},"roots":{}}"#;

fn sample() -> InputRequest {
    InputRequest::from(Sample::new("?"))
}

fn confirm() -> InputRequest {
    InputRequest::Confirm { message: "sure?".into() }
}

/// A form with one field, `f`, whose schema is `field`.
fn form(field: &str) -> InputRequest {
    elicit(&format!(r#"{{"type":"object","properties":{{"f":{field}}}}}"#))
}

fn elicit(schema: &str) -> InputRequest {
    InputRequest::Elicit(Elicit::new("m", json(schema)))
}

/// A sampling request with the parameters `params`.
fn sample_with(params: &str) -> InputRequest {
    let mut sample = Sample::default();
    sample.params = Some(json(params));
    sample.into()
}

/// A server that serves call 1 and makes the input request `ask` in exchange 2.
fn asking(ask: InputRequest) -> (Scripted, InboundId, InputKey) {
    let mut server = Scripted::server_at(server_config(), "2025-11-25", EVERYTHING);
    let id = server.receive_call(1);
    let key = server.ask(id, ask);
    (server, id, key)
}

/// The frame of a response with `body` to the input request of [`asking`].
fn answer(body: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":2,{body}}}"#)
}

/// Polls the answer to the input request `asked` of the call `asker`. Returns it with the violation that was reported before it, if any.
fn answer_received(
    server: &mut Scripted,
    asker: InboundId,
    asked: InputKey,
) -> (Option<Violation>, Result<InputResponse, InputFailed>) {
    let mut events = server.events();
    let Some(Event::Input { id, key, answer }) = events.pop() else { panic!("an answer") };
    assert_eq!((id, key), (asker, asked));
    match events[..] {
        [] => (None, answer),
        [Event::Violation(rule)] => (Some(rule), answer),
        _ => panic!("{events:?}"),
    }
}

#[test]
fn each_input_request_is_sent_as_one_request_that_names_its_call() {
    let schema = r#"{"type":"object","properties":{"f":{"type":"string"}}}"#;
    let meta = r#""_meta":{"protocol-core/parent":1}"#;
    let sampling_meta = r#""_meta":{"protocol-core/samplingDepth":1,"protocol-core/parent":1}"#;
    let text = |text: &str| format!(r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":"{text}"}}}}]"#);
    let mut with_schema = Sample::new("\"q\"");
    (with_schema.max_tokens, with_schema.schema) = (Some(5), Some(json(r#"{"type":"object"}"#)));
    let prompt = r#"\"q\"\n\nAnswer with JSON that fits this JSON Schema, and with nothing else:\n{\"type\":\"object\"}"#;
    let own = r#"{"messages":[],"maxTokens":7,"temperature":0.50"#;
    for (ask, method, params) in [
        (sample(), "sampling/createMessage", format!(r#"{},"maxTokens":1024,{sampling_meta}}}"#, text("?"))),
        (with_schema.into(), "sampling/createMessage", format!(r#"{},"maxTokens":5,{sampling_meta}}}"#, text(prompt))),
        (sample_with(&format!("{own}}}")), "sampling/createMessage", format!("{own},{sampling_meta}}}")),
        (elicit(schema), "elicitation/create", format!(r#"{{"message":"m","requestedSchema":{schema},{meta}}}"#)),
        (
            confirm(),
            "elicitation/create",
            format!(r#"{{"message":"sure?","requestedSchema":{{"type":"object","properties":{{}},"required":[]}},{meta}}}"#),
        ),
        (InputRequest::Roots, "roots/list", format!("{{{meta}}}")),
    ] {
        let (mut server, ..) = asking(ask);
        assert_eq!(server.sent(), [format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{params}}}"#)]);
    }
}

#[test]
fn a_server_makes_only_input_requests_that_the_client_has_declared_and_the_revision_has() {
    let admitted = |revision: &str, declares: &str| {
        let mut server = Scripted::server_at(server_config(), revision, declares);
        let id = server.receive_call(1);
        [sample(), form(r#"{"type":"string"}"#), confirm(), InputRequest::Roots].map(|ask| {
            let asked = server.session.request_input(id, ask, server.now);
            assert_eq!(server.sent().len(), usize::from(asked.is_ok()));
            match asked {
                Ok(_) => true,
                Err(AskError::Unsupported) => false,
                Err(other) => panic!("{other}"),
            }
        })
    };
    for (declares, expected) in [
        ("{}", [false; 4]),
        (r#"{"sampling":{}}"#, [true, false, false, false]),
        (r#"{"elicitation":{}}"#, [false, true, true, false]),
        (r#"{"elicitation":{"form":{}}}"#, [false, true, true, false]),
        (r#"{"elicitation":{"form":{},"url":{}}}"#, [false, true, true, false]),
        (r#"{"elicitation":{"url":{}}}"#, [false; 4]),
        (r#"{"roots":{}}"#, [false, false, false, true]),
        (r#"{"sampling":null,"elicitation":true,"roots":[]}"#, [false; 4]),
    ] {
        assert_eq!(admitted("2025-11-25", declares), expected, "{declares}");
    }
    for (revision, has_elicitation) in REVISIONS.into_iter().zip([false, false, true, true]) {
        assert_eq!(admitted(revision, EVERYTHING), [true, has_elicitation, has_elicitation, true], "{revision}");
    }
}

#[test]
fn an_input_request_that_cannot_be_made_returns_an_error_with_the_reason_and_is_never_sent() {
    let error_of = |server: &mut Scripted, id, ask| {
        let error = server.session.request_input(id, ask, server.now).unwrap_err();
        assert_eq!(server.sent(), Vec::<String>::new());
        error
    };
    let (mut server, id, _) = asking(InputRequest::Roots);
    server.drain();
    assert!(matches!(error_of(&mut server, id, elicit("[]")), AskError::Invalid(_)));
    server.respond(id).drain();
    assert_eq!(error_of(&mut server, id, InputRequest::Roots), AskError::NotLive);

    let (mut server, id, _) = asking(InputRequest::Roots);
    server.session.handle_end(TransportEnd::Eof, server.now);
    server.drain();
    assert_eq!(error_of(&mut server, id, InputRequest::Roots), AskError::Disconnected);

    // A missing capability is reported before an invalid form.
    let mut server = Scripted::server_at(server_config(), "2025-11-25", "{}");
    let id = server.receive_call(1);
    assert_eq!(error_of(&mut server, id, elicit("[]")), AskError::Unsupported);

    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes = 1));
    let id = server.receive_call(1);
    server.report(id, Progress::value(1.0));
    let full = server.session.request_input(id, InputRequest::Roots, server.now);
    assert_eq!((full, server.sent().len()), (Err(AskError::Full), 1), "too much output is queued");

    let mut server = Scripted::server(with(server_config(), |config| config.limits.in_flight = 2));
    let id = server.receive_call(1);
    let key = server.ask(id, InputRequest::Roots);
    server.ask(id, InputRequest::Roots);
    server.drain();
    assert_eq!(error_of(&mut server, id, InputRequest::Roots), AskError::Full, "the limit of open exchanges is reached");
    server.session.abandon_input(key, server.now).unwrap();
    server.ask(id, InputRequest::Roots);
}

/// `the_fields_of_a_form_are_the_primitives_of_its_revision` has all fields; these are of each kind, and those that only a peer may send.
#[test]
fn a_form_is_sent_only_if_it_is_a_flat_object_of_the_primitives_of_its_revision() {
    // Two flags, for 2025-06-18 and for 2025-11-25: `true` if the form is valid in that revision.
    const NEVER: [bool; 2] = [false, false];
    const NEWEST: [bool; 2] = [false, true];
    const ALWAYS: [bool; 2] = [true, true];
    let fields = [
        (r#"{"type":"string","title":"t","description":"d","minLength":1,"maxLength":2,"format":"email"}"#, ALWAYS),
        (r#"{"type":"string","enum":["a"],"enumNames":["A"],"default":"a"}"#, ALWAYS),
        (r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]},"default":["a"]}"#, NEWEST),
        (r#"{"type":"object","properties":{}}"#, NEVER),
        (r#"{"type":"string","format":"phone"}"#, NEVER),
        (r#"{"type":"integer","enum":[1,2]}"#, NEVER),
        (r#"{"type":"integer","default":1.5}"#, NEVER),
        (r#"{"type":["string","null"]}"#, NEVER),
        (r#"{"enum":["a"]}"#, NEVER),
        (r#"{"type":"number","minimum":"0"}"#, NEVER),
    ];
    let field = |field: &str| format!(r#"{{"type":"object","properties":{{"f":{field}}}}}"#);
    let whole = [
        (r#"{"type":"object","properties":{}}"#, ALWAYS),
        (r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#, ALWAYS),
        (r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["b"]}"#, NEVER),
        (r#"{"type":"object","properties":{"a":{"type":"string"}},"required":"a"}"#, NEVER),
        (r#"{"type":"object","properties":[]}"#, NEVER),
        (r#"{"type":"string"}"#, NEVER),
        (r#"{"properties":{}}"#, NEVER),
        (r#"{"type":"object","properties":{},"anyOf":[]}"#, NEVER),
        (r#"{"type":"object","properties":{},"$ref":"x"}"#, NEVER),
        ("[]", NEVER),
    ];
    let all = fields.map(|(text, fits)| (field(text), fits)).into_iter().chain(whole.map(|(text, fits)| (text.to_owned(), fits)));
    for (schema, fits) in all {
        for (revision, fits) in ["2025-06-18", "2025-11-25"].into_iter().zip(fits) {
            let mut server = Scripted::server_at(server_config(), revision, EVERYTHING);
            let id = server.receive_call(1);
            let asked = server.session.request_input(id, elicit(&schema), server.now);
            assert_eq!(server.sent().len(), usize::from(asked.is_ok()));
            let as_expected = if fits { asked.is_ok() } else { matches!(asked, Err(AskError::Invalid(_))) };
            assert!(as_expected, "{revision} {schema}: {asked:?}");
        }
    }
}

/// The rules are those of `every_use_of_a_tool_must_be_answered_in_the_next_message_which_has_only_answers` and its neighbours.
#[test]
fn a_sampling_request_with_invalid_messages_or_parameters_is_never_sent() {
    for (params, fits) in [
        (r#"{"messages":[],"maxTokens":1,"modelPreferences":{"costPriority":1},"tools":[],"toolChoice":{}}"#, true),
        (r#"{"maxTokens":1,"messages":[{"role":"user","content":{"type":"tool_result","toolUseId":"a","content":[]}}]}"#, false),
        (r#"{"maxTokens":1,"messages":[{"role":"system","content":{"type":"text","text":"t"}}]}"#, false),
        (r#"{"messages":[],"maxTokens":0}"#, false),
        (r#"{"messages":[],"maxTokens":1,"modelPreferences":{"speedPriority":1.1}}"#, false),
        ("[]", false),
    ] {
        let mut server = Scripted::server_at(server_config(), "2025-11-25", EVERYTHING);
        let id = server.receive_call(1);
        let asked = server.session.request_input(id, sample_with(params), server.now);
        assert!(if fits { asked.is_ok() } else { matches!(asked, Err(AskError::Invalid(_))) }, "{params}: {asked:?}");
        assert_eq!(server.sent().len(), usize::from(fits));
    }
}

#[test]
fn sampling_with_tools_needs_a_capability_and_several_content_blocks_need_revision_2025_11_25() {
    let tools = r#"{"messages":[],"maxTokens":1,"tools":[]}"#;
    let blocks = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"t"}]}],"maxTokens":1}"#;
    for (revision, declares, params, fits) in [
        ("2025-11-25", r#"{"sampling":{"tools":{}}}"#, tools, true),
        ("2025-11-25", r#"{"sampling":{}}"#, tools, false),
        ("2025-11-25", r#"{"sampling":{}}"#, blocks, true),
        ("2025-06-18", r#"{"sampling":{}}"#, blocks, false),
    ] {
        let mut server = Scripted::server_at(server_config(), revision, declares);
        let id = server.receive_call(1);
        let asked = server.session.request_input(id, sample_with(params), server.now);
        assert_eq!(asked.is_ok(), fits, "{revision} {declares} {params}");
    }
}

#[test]
fn a_sampling_request_for_zero_tokens_is_invalid() {
    let (mut server, id, _) = asking(InputRequest::Roots);
    let mut nothing = Sample::new("?");
    nothing.max_tokens = Some(0);
    let asked = server.session.request_input(id, nothing.into(), server.now);
    assert!(matches!(asked, Err(AskError::Invalid(_))), "{asked:?}");
}

#[test]
fn a_valid_answer_reaches_the_handler_that_made_the_input_request() {
    let sampled = |text: &str, model: &str, result: &str| {
        let mut sampled = SampleResult::new(text, model);
        sampled.result = Some(json(result));
        InputResponse::Sample(sampled)
    };
    let plain = r#"{"role":"assistant","content":{"type":"text","text":"a\nb"},"model":"m","stopReason":"endTurn"}"#;
    let blocks = r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"image","data":""}],"model":"m"}"#;
    let roots = r#"[{"uri":"file:///a","name":"a"},{"uri":"file:///b"}]"#;
    let field = form(r#"{"type":"string"}"#);
    for (ask, result, expected) in [
        (sample(), plain.into(), sampled("a\nb", "m", plain)),
        (sample(), blocks.into(), sampled("a\n{\"type\":\"image\",\"data\":\"\"}", "m", blocks)),
        (
            field.clone(),
            r#"{"action":"accept","content":{"f":"x"}}"#.into(),
            InputResponse::Elicit(ElicitResult::Accept(json(r#"{"f":"x"}"#))),
        ),
        (field.clone(), r#"{"action":"accept","content":{}}"#.into(), InputResponse::Elicit(ElicitResult::Accept(json("{}")))),
        (field.clone(), r#"{"action":"decline"}"#.into(), InputResponse::Elicit(ElicitResult::Decline)),
        (field.clone(), r#"{"action":"decline","content":{"f":1}}"#.into(), InputResponse::Elicit(ElicitResult::Decline)),
        (field, r#"{"action":"cancel","content":null}"#.into(), InputResponse::Elicit(ElicitResult::Cancel)),
        (confirm(), r#"{"action":"accept","content":{}}"#.into(), InputResponse::Confirm(true)),
        (confirm(), r#"{"action":"accept"}"#.into(), InputResponse::Confirm(true)),
        (InputRequest::Roots, format!(r#"{{"roots":{roots}}}"#), InputResponse::Roots(json(roots))),
        (InputRequest::Roots, r#"{"roots":[]}"#.into(), InputResponse::Roots(json("[]"))),
    ] {
        let (mut server, id, key) = asking(ask);
        server.drain().frame(&answer(&format!(r#""result":{result}"#)));
        assert_eq!(answer_received(&mut server, id, key), (None, Ok(expected)), "{result}");
        server.respond(id);
        assert_eq!(server.sent(), [ok(1)], "an answered input request is not cancelled");
    }
}

#[test]
fn an_answer_of_the_wrong_shape_is_invalid_and_the_call_goes_on() {
    let mut wrong = Vec::new();
    let [content, action, filled, roots] = [
        "`content` is missing or no content",
        "`action` is missing or unknown",
        "`content` is missing or no object",
        "`roots` is missing or no list of roots that are files",
    ];
    for (ask, result, why) in [
        (sample(), "{}", content),
        (sample(), r#"{"role":"assistant","model":"m","content":5}"#, content),
        (sample(), r#"{"role":"assistant","model":"m","content":"text"}"#, content),
        (sample(), r#"{"role":"assistant","model":"m","content":null}"#, content),
        (sample(), r#"{"role":"assistant","model":"m","content":{"type":"text"}}"#, content),
        (form(r#"{"type":"string"}"#), "{}", action),
        (form(r#"{"type":"string"}"#), r#"{"action":"ok","content":{"f":"x"}}"#, action),
        (form(r#"{"type":"string"}"#), r#"{"action":"accept"}"#, filled),
        (form(r#"{"type":"string"}"#), r#"{"action":"accept","content":[]}"#, filled),
        (InputRequest::Roots, "{}", roots),
        (InputRequest::Roots, r#"{"roots":{}}"#, roots),
        (InputRequest::Roots, r#"{"roots":[{"name":"no uri"}]}"#, roots),
        (InputRequest::Roots, r#"{"roots":[{"uri":"https://example.org/"}]}"#, roots),
    ] {
        let (mut server, id, key) = asking(ask.clone());
        server.drain().frame(&answer(&format!(r#""result":{result}"#)));
        let found = answer_received(&mut server, id, key);
        if found != (Some(Violation::InvalidResponse), Err(InputFailed::Invalid(why.into()))) {
            wrong.push(format!("{ask:?} {result}: {found:?}"));
        }
        server.respond(id);
        assert_eq!(server.sent(), [ok(1)]);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_filled_in_form_must_match_the_schema_that_was_sent() {
    for (field, content, why) in [
        (r#"{"type":"string","minLength":2,"maxLength":3}"#, r#"{"f":"éé"}"#, None),
        (r#"{"type":"string","minLength":2,"maxLength":3}"#, r#"{"f":"é"}"#, Some("f is too short")),
        (r#"{"type":"string","minLength":2,"maxLength":3}"#, r#"{"f":"aaaa"}"#, Some("f is too long")),
        (r#"{"type":"string"}"#, r#"{"f":1}"#, Some("f must be text")),
        (r#"{"type":"string"}"#, r#"{"f":"a","g":"b"}"#, Some(r#""g" was not asked for"#)),
        (r#"{"type":"number","minimum":0.5,"maximum":1}"#, r#"{"f":0.5}"#, None),
        (r#"{"type":"number","minimum":0.5,"maximum":1}"#, r#"{"f":0.4}"#, Some("f is too small")),
        (r#"{"type":"number","minimum":0.5,"maximum":1}"#, r#"{"f":2}"#, Some("f is too large")),
        (r#"{"type":"number"}"#, r#"{"f":"1"}"#, Some("f must be a number")),
        (r#"{"type":"integer"}"#, r#"{"f":2.0}"#, None),
        (r#"{"type":"integer"}"#, r#"{"f":2.5}"#, Some("f must be a whole number")),
        (r#"{"type":"boolean"}"#, r#"{"f":true}"#, None),
        (r#"{"type":"boolean"}"#, r#"{"f":"true"}"#, Some("f must be true or false")),
        (r#"{"type":"string","enum":["a"]}"#, r#"{"f":"a"}"#, None),
        (r#"{"type":"string","enum":["a"]}"#, r#"{"f":"b"}"#, Some("f is none of the choices")),
        (r#"{"type":"string","oneOf":[{"const":"a","title":"b"}]}"#, r#"{"f":"a"}"#, None),
        (r#"{"type":"string","oneOf":[{"const":"a","title":"b"}]}"#, r#"{"f":"b"}"#, Some("f is none of the choices")),
        (r#"{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1,"maxItems":1}"#, r#"{"f":["b"]}"#, None),
        (
            r#"{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1,"maxItems":1}"#,
            r#"{"f":[]}"#,
            Some("f has too few elements"),
        ),
        (
            r#"{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1,"maxItems":1}"#,
            r#"{"f":["a","b"]}"#,
            Some("f has too many elements"),
        ),
        (
            r#"{"type":"array","items":{"type":"string","enum":["a","b"]}}"#,
            r#"{"f":["c"]}"#,
            Some("f has an element that is none of the choices"),
        ),
        (r#"{"type":"array","items":{"type":"string","enum":["a","b"]}}"#, r#"{"f":"a"}"#, Some("f must be an array")),
    ] {
        let (mut server, id, key) = asking(form(field));
        server.drain().frame(&answer(&format!(r#""result":{{"action":"accept","content":{content}}}"#)));
        let expected = match why {
            None => (None, Ok(InputResponse::Elicit(ElicitResult::Accept(json(content))))),
            Some(why) => (Some(Violation::InvalidResponse), Err(InputFailed::Invalid(why.into()))),
        };
        assert_eq!(answer_received(&mut server, id, key), expected, "{field} {content}");
    }
    // The error quotes an unknown name only up to its 64th character.
    let (mut server, id, key) = asking(form(r#"{"type":"string"}"#));
    let name = "é\\n".repeat(1_000);
    server.drain().frame(&answer(&format!(r#""result":{{"action":"accept","content":{{"{name}":1}}}}"#)));
    let why = format!(r#""{}" was not asked for"#, "é\\n".repeat(32));
    assert_eq!(answer_received(&mut server, id, key).1, Err(InputFailed::Invalid(why.into())));
    let required = elicit(r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["b"]}"#);
    let (mut server, id, key) = asking(required);
    server.drain().frame(&answer(r#""result":{"action":"accept","content":{"a":"x"}}"#));
    assert_eq!(answer_received(&mut server, id, key).1, Err(InputFailed::Invalid("b is missing".into())));
}

#[test]
fn an_error_is_reported_as_a_refused_input_request_and_a_malformed_response_as_an_invalid_answer() {
    let (mut server, id, key) = asking(sample());
    server.drain().frame(&answer(r#""error":{"code":-1,"message":"no","data":[1]}"#));
    let error = RpcError::new(RpcError::USER_REJECTED, "no").with_data(json("[1]"));
    assert_eq!(answer_received(&mut server, id, key), (None, Err(InputFailed::Refused(error))));
    for (body, why) in [
        (r#""error":null"#, "`error` is null"),
        (r#""result":{},"error":{"code":1,"message":"no"}"#, "it has a result and an error"),
        (r#""result":1"#, "`result` is no object"),
        (r#""result":[]"#, "`result` is no object"),
    ] {
        let (mut server, id, key) = asking(sample());
        server.drain().frame(&answer(body));
        let failed = InputFailed::Invalid(format!("a response of the wrong shape: {} ({why})", answer(body)).into());
        assert_eq!(answer_received(&mut server, id, key), (Some(Violation::InvalidResponse), Err(failed)), "{body}");
    }
}

#[test]
fn a_confirmation_is_false_unless_the_user_accepts_it() {
    type Way = fn(&mut Scripted);
    let ways: [(&str, Way); 8] = [
        ("declined", |server| {
            server.frame(&answer(r#""result":{"action":"decline"}"#));
        }),
        ("closed", |server| {
            server.frame(&answer(r#""result":{"action":"cancel"}"#));
        }),
        ("refused", |server| {
            server.frame(&answer(r#""error":{"code":-32601,"message":"no"}"#));
        }),
        ("another word", |server| {
            server.frame(&answer(r#""result":{"action":"yes"}"#));
        }),
        ("no result", |server| {
            server.frame(&answer(r#""result":true"#));
        }),
        ("silence", |server| {
            server.at(600_000);
        }),
        ("end of input", |server| server.session.handle_end(TransportEnd::Eof, server.now)),
        ("failure", |server| server.session.handle_end(TransportEnd::Failed, server.now)),
    ];
    for (name, way) in ways {
        let (mut server, id, key) = asking(confirm());
        server.drain();
        way(&mut server);
        let events = server.events();
        let answers: Vec<_> = events.iter().filter(|event| matches!(event, Event::Input { .. })).collect();
        assert_eq!(answers, [&Event::Input { id, key, answer: Ok(InputResponse::Confirm(false)) }], "{name}");
    }
}

#[test]
fn an_input_request_that_times_out_is_cancelled_once_if_it_was_sent() {
    let (mut server, id, key) = asking(sample());
    assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(600_000)));
    server.drain().at(599_999).expect_silence();
    server.at(600_000);
    assert_eq!(
        server.sent(),
        [r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"timed out"}}"#]
    );
    assert_eq!(answer_received(&mut server, id, key), (None, Err(InputFailed::TimedOut)));
    server.frame(&answer(r#""result":{}"#)).expect_silence();
    assert_eq!(server.session.stats().late_frames, 1);

    let (mut server, id, key) = asking(sample());
    server.at(600_000);
    assert_eq!(server.sent(), Vec::<String>::new(), "an input request that was not polled before its timeout is never sent");
    assert_eq!(answer_received(&mut server, id, key), (None, Err(InputFailed::TimedOut)));
}

#[test]
fn when_a_call_ends_each_of_its_open_input_requests_that_was_sent_is_cancelled_once() {
    type Ending = fn(&mut Scripted, InboundId);
    let ends: [(&str, Ending, usize); 3] = [
        (
            "respond",
            |server, id| {
                server.respond(id);
            },
            1,
        ),
        (
            "deadline",
            |server, id| {
                server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), server.now).unwrap();
            },
            1,
        ),
        (
            "cancel",
            |server, _| {
                server.frame(&cancelled(1));
            },
            0,
        ),
    ];
    for (name, end, responses) in ends {
        for is_sent in [true, false] {
            let (mut server, id, first) = asking(sample());
            server.ask(id, confirm());
            // An input request of another call stays open.
            let other = server.receive_call(9);
            let stays = server.ask(other, InputRequest::Roots);
            if is_sent {
                server.sent();
            }
            end(&mut server, id);
            let mut sent = server.sent();
            sent.retain(|frame| !frame.contains("roots/list"));
            let cancels = if is_sent { vec![cancelled(2), cancelled(3)] } else { vec![] };
            assert_eq!(sent[..cancels.len()], cancels, "{name}: the cancels come before the response");
            assert_eq!(sent.len(), cancels.len() + responses, "{name} {sent:?}");
            assert!(
                !server.events().iter().any(|event| matches!(event, Event::Input { .. })),
                "{name}: an input request that ends with its call yields no event"
            );
            server.frame(&answer(r#""result":{}"#)).at(10_000_000);
            assert!(!server.events().iter().any(|event| matches!(event, Event::Input { id: asker, .. } if *asker == id)));
            assert_eq!(server.session.abandon_input(first, server.now), Err(NotLive));
            assert_eq!(server.session.abandon_input(stays, server.now), Err(NotLive), "`stays` has timed out");
        }
    }
}

#[test]
fn an_abandoned_input_request_yields_no_event_and_is_cancelled_if_it_was_sent() {
    let (mut server, id, key) = asking(sample());
    server.sent();
    server.session.abandon_input(key, server.now).unwrap();
    assert_eq!(server.sent(), [cancelled(2)]);
    assert_eq!(server.session.abandon_input(key, server.now), Err(NotLive));
    server.frame(&answer(r#""result":{"action":"accept"}"#)).expect_silence();
    assert_eq!((server.session.stats().late_frames, server.session.poll_timeout()), (1, None));

    let second = server.ask(id, sample());
    server.session.abandon_input(second, server.now).unwrap();
    server.expect_silence();
    server.respond(id);
    assert_eq!(server.sent(), [ok(1)]);
}

#[test]
fn an_answer_that_comes_before_its_input_request_was_sent_is_a_violation_without_effect() {
    let (mut server, id, key) = asking(sample());
    server.frame(&answer(r#""error":{"code":1,"message":"guessed"}"#));
    assert_eq!(server.violations(), [Violation::UnknownResponse]);
    server.drain().frame(&answer(r#""error":{"code":1,"message":"no"}"#));
    assert_eq!(answer_received(&mut server, id, key).1, Err(InputFailed::Refused(RpcError::new(1, "no"))));
}

#[test]
fn an_input_request_held_for_the_handshake_that_times_out_or_ends_with_its_call_is_never_sent() {
    for times_out in [true, false] {
        let mut server = Scripted::new(with(server_config(), |config| config.timeouts.input = Some(Duration::from_secs(1))));
        server.frame(&initialize(0, "2025-11-25", EVERYTHING));
        let id = server.receive_call(1);
        let key = server.ask(id, InputRequest::Roots);
        server.drain();
        if times_out {
            server.at(1_000);
            assert_eq!(answer_received(&mut server, id, key).1, Err(InputFailed::TimedOut));
        } else {
            server.reply(id, Reply::Raw(json("{}"))).drain();
        }
        server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(server.sent(), Vec::<String>::new());
    }
}
