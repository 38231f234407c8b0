//! Optional members that are `null`: real peers have serializers that write every member. They count as absent, at both ends, and are
//! counted as tolerated.

use protocol_core::{ElicitResult, Event, InputRequest, InputResponse, Outcome, Request};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{json, request, result};

/// Checks that the end has reported no violation, and returns its events and the number of faults that it has tolerated.
fn tolerated(end: &mut Scripted, what: &str) -> (Vec<Event>, u64) {
    let events = end.events();
    assert!(!events.iter().any(|event| matches!(event, Event::Violation(_))), "{what}: {events:?}");
    (events, end.session.stats().tolerated)
}

/// Seen in the field: each of these requests, from clients whose serializers write nulls.
#[test]
fn a_request_with_null_for_an_optional_member_is_served_by_a_server() {
    for (method, params, faults) in [
        ("ping", "null", 1),
        ("ping", r#"{"_meta":null}"#, 1),
        ("ping", r#"{"_meta":{"progressToken":null}}"#, 1),
        ("tools/list", "null", 1),
        ("tools/list", r#"{"cursor":null,"_meta":null}"#, 2),
        ("tools/call", r#"{"name":"t","arguments":null,"_meta":{"progressToken":null,"protocol-core/samplingDepth":null}}"#, 3),
        ("prompts/get", r#"{"name":"p","arguments":null}"#, 1),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{"b":null}}}"#,
            0,
        ),
    ] {
        let mut server = Scripted::server(server_config());
        server.frame(&request(7, method, params));
        let (events, count) = tolerated(&mut server, params);
        assert_eq!(count, faults, "{method} {params}");
        match &events[..] {
            [] => assert_eq!(server.sent(), [result(7)], "{params}"),
            [Event::Request { depth: 0, observed: false, request, .. }] => {
                assert!(server.sent().is_empty());
                if let Request::CallTool(tool) = request {
                    assert_eq!(tool.arguments(), None);
                }
            }
            other => panic!("{method} {params}: {other:?}"),
        }
    }
}

/// Seen in the field: a handshake whose client writes `null` for what it does not have.
#[test]
fn a_handshake_with_null_for_optional_members_declares_nothing_by_them() {
    let mut server = Scripted::new(server_config());
    let capabilities = r#"{"sampling":null,"elicitation":{"form":null,"url":{}},"roots":null,"experimental":null}"#;
    let client = r#"{"name":"c","version":"1","title":null}"#;
    server.frame(&request(
        1,
        "initialize",
        &format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{client},"_meta":null}}"#),
    ));
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":null}"#);
    let (events, faults) = tolerated(&mut server, "the handshake");
    assert_eq!(faults, 2);
    let Some(Event::Ready(peer)) = events.last() else { panic!("{events:?}") };
    let declared = peer.capabilities;
    assert_eq!((declared.sampling, declared.elicitation, declared.elicitation_url, declared.roots), (false, false, true, false));
}

/// Seen in the field: each of these input requests; `tools` of sampling by an SDK whose client had not declared tools.
#[test]
fn an_input_request_with_null_for_an_optional_member_is_taken_by_a_client() {
    let sample = r#""messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":5"#;
    for (method, params) in [
        (
            "sampling/createMessage",
            format!(
                r#"{{{sample},"tools":null,"toolChoice":null,"systemPrompt":null,"modelPreferences":{{"costPriority":null}},"_meta":null}}"#
            ),
        ),
        ("sampling/createMessage", format!(r#"{{{sample},"modelPreferences":null}}"#)),
        ("elicitation/create", r#"{"mode":null,"message":"?","requestedSchema":{"type":"object","properties":{}}}"#.to_owned()),
        ("roots/list", "null".to_owned()),
    ] {
        let mut client = Scripted::client(client_config());
        client.call();
        client.sent();
        client.frame(&request(7, method, &params));
        let (events, faults) = tolerated(&mut client, &params);
        assert!(matches!(&events[..], [Event::InputRequested { .. }]) && faults > 0, "{params}: {events:?}");
    }
}

/// Seen in the field: pydantic writes an optional field as `anyOf` of its type and `null`, with `null` as its default.
#[test]
fn a_form_of_pydantic_reaches_the_application_as_the_protocol_writes_it() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.sent();
    let property = r#"{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null,"title":"Age"}"#;
    let schema = format!(r#"{{"type":"object","properties":{{"age":{property}}}}}"#);
    client.frame(&request(7, "elicitation/create", &format!(r#"{{"message":"?","requestedSchema":{schema}}}"#)));
    let events = client.events();
    let [Event::InputRequested { ask, .. }] = &events[..] else { panic!("{events:?}") };
    let InputRequest::Elicit(form) = ask else { panic!("{ask:?}") };
    assert_eq!(form.schema, json(r#"{"type":"object","properties":{"age":{"title":"Age","type":"integer"}}}"#));
    assert_eq!(form.defaults(), Ok(json("{}")));
}

/// Seen in the field: a server that writes every member of a response, and a client that answers an optional field with `null`.
#[test]
fn a_response_with_null_beside_its_result_is_a_result() {
    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.sent();
    client.frame(r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]},"error":null}"#);
    let (events, faults) = tolerated(&mut client, "the result");
    assert!(matches!(&events[..], [Event::Done { id, outcome: Outcome::Result(_), .. }] if *id == call), "{events:?}");
    assert_eq!(faults, 1);

    let mut server = Scripted::server(with(server_config(), |config| config.timeouts.serve = None));
    server.frame(&request(7, "tools/call", r#"{"name":"t"}"#));
    let events = server.events();
    let [Event::Request { id, .. }] = &events[..] else { panic!("{events:?}") };
    let schema = json(r#"{"type":"object","properties":{"age":{"type":"integer"}}}"#);
    server.ask(*id, InputRequest::Elicit(protocol_core::Elicit::new("?", schema)));
    let asked = json(&server.sent()[0]).member("id").unwrap();
    server.frame(&format!(r#"{{"jsonrpc":"2.0","id":{asked},"result":{{"action":"accept","content":{{"age":null}}}}}}"#));
    let (events, _) = tolerated(&mut server, "the answer");
    let accepted = InputResponse::Elicit(ElicitResult::Accept(json("{}")));
    assert!(matches!(&events[..], [Event::Input { answer: Ok(answer), .. }] if *answer == accepted), "{events:?}");
}

/// Seen in the field: a Tesseron app that writes `null` for members that it does not have.
#[test]
fn messages_of_an_app_with_null_for_optional_members_are_taken_by_a_gateway() {
    let mut gateway = Scripted::gateway(testkit::config::gateway_config());
    let call = gateway.invoke_action();
    gateway.frame(r#"{"jsonrpc":"2.0","method":"actions/progress","params":{"invocationId":"inv_1","percent":null,"message":"m","data":null}}"#);
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":{"invocationId":"inv_1","output":null},"error":null}"#);
    let (events, faults) = tolerated(&mut gateway, "an action");
    assert!(
        matches!(&events[..], [Event::Progress { progress, .. }, Event::Done { id, outcome: Outcome::Result(_), .. }]
            if *id == call && progress.data.is_none()),
        "{events:?}"
    );
    assert_eq!(faults, 3);
}
