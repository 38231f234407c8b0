//! Examples of the guarantees that are different on Tesseron. Storms are in `tests/tests/proofs/storms.rs`.

use std::time::Duration;

use bytes::Bytes;
use protocol_core::{CallTimeouts, Elicit, Event, InputRequest, Lane, Outcome, Progress};
use testkit::config::{app_config, asking_gateway_config, gateway_config, welcome};
use testkit::scripted::{json, notification, request};
use testkit::tesseron::{CLAIMED, WELCOME, call_action, cancel, hello, invoke, invoked, named, progress, sample};
use testkit::{Rng, Scripted};

#[test]
fn g9_a_frame_or_a_method_call_after_a_deadline_counts_as_in_time_before_handle_timeout() {
    let mut gateway = Scripted::gateway(gateway_config());
    let timeouts = CallTimeouts::NONE.with_max_total(Some(Duration::from_millis(10)));
    gateway.invoke(call_action().with_timeouts(timeouts));
    gateway.sent();
    gateway.skip_to(3_600_000).frame(&invoked(1, &named(1), "1"));
    assert!(matches!(gateway.outcome(), Outcome::Result(_)));
    let now = gateway.now;
    gateway.session.handle_timeout(now);
    gateway.expect_silence();

    let mut app = Scripted::app(app_config());
    let id = app.receive_invoke(7, "i1");
    app.skip_to(3_600_000).report(id, Progress::percent(1.0));
    app.respond(id);
    assert_eq!(app.sent(), [progress("i1", r#","percent":1"#), invoked(7, "i1", "\"ok\"")]);
}

#[test]
fn g6_no_bytes_cause_a_panic() {
    let samples: Vec<String> = vec![
        hello(1, "1.2.0"),
        hello(1, "1.2.0")
            .replace("tesseron/hello", "tesseron/resume")
            .replace(r#""app""#, r#""sessionId":"s","resumeToken":"t","app""#),
        WELCOME.into(),
        CLAIMED.into(),
        invoke(9, "i2"),
        cancel("i1"),
        invoked(1, &named(1), "1"),
        progress(&named(1), r#","percent":0.5,"message":"m","data":{}"#),
        sample(9, &named(1)),
        request(
            9,
            "elicitation/request",
            r#"{"invocationId":"inv_1","question":"?","schema":{"type":"object","properties":{"a":{"type":"string","enum":["x"]}}}}"#,
        ),
        request(9, "resources/subscribe", r#"{"name":"balance","subscriptionId":"s"}"#),
        notification("resources/updated", r#"{"subscriptionId":"s","value":1}"#),
        notification("log", r#"{"level":"warn","message":"m","meta":{"a":1}}"#),
        notification("actions/list_changed", r#"{"actions":[{}]}"#),
        r#"{"jsonrpc":"2.0","id":3,"result":{"content":"x","action":"accept","value":{}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":{"partial":{}}}}"#.into(),
        r#"{"jsonrpc":"2.0","id":1}"#.into(),
    ];
    let mut rng = Rng::new(6);
    for case in 0..4_000 {
        let mut end = match case % 5 {
            0 => Scripted::new(app_config()),
            1 => Scripted::app(app_config()),
            2 => Scripted::new(asking_gateway_config()),
            3 => Scripted::unclaimed_gateway(gateway_config()),
            _ => Scripted::gateway(gateway_config()),
        };
        match case % 5 {
            1 => {
                let id = end.receive_invoke(7, "i1");
                end.ask(id, InputRequest::Elicit(Elicit::new("?", json(r#"{"type":"object"}"#))));
            }
            4 => drop(end.invoke_action()),
            _ => {}
        }
        end.sent();
        for _ in 0..8 {
            let mut bytes = samples[rng.below(samples.len())].clone().into_bytes();
            for _ in 0..rng.below(5) {
                if bytes.is_empty() {
                    break;
                }
                let place = rng.below(bytes.len());
                match rng.below(4) {
                    0 => bytes[place] = rng.number() as u8,
                    1 => drop(bytes.remove(place)),
                    2 => bytes.insert(place, b"{}[]\",:0123456789eE+-.\\tfnu"[rng.below(27)]),
                    _ => bytes.truncate(place.max(1)),
                }
            }
            end.session.handle_frame(Bytes::from(bytes), Lane::CHANNEL, end.now).unwrap();
            if end.events().iter().any(|event| matches!(event, Event::HandshakeRequest { .. })) {
                end.session.welcome(Ok(welcome()), end.now).unwrap();
            }
        }
        end.at(100_000);
    }
}
