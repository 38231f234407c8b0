//! The session at the gateway end of Tesseron: calls, their cancels, deadlines and graces, progress, log, and input requests of an app
//! (`docs/protocols/tesseron.md`, "Invocations" to "Log"). The files `bridge_*.rs` test that a bridge forwards all of these to its agent.

use std::time::Duration;

use protocol_core::{
    CallTimeouts, Capabilities, ElicitResult, Event, InputRequest, InputResponse, Invalid, Invoke, Lane, Level, LogRecord, Logged,
    NotLive, Notification, Op, OutboundId, Outcome, Progress, RpcError, Sample, SampleResult, SendError, TimeoutKind, Violation,
};
use testkit::config::with;
use testkit::config::{agent, gateway_config};
use testkit::scripted::{error, json, notification, request};
use testkit::tesseron::{call_action, cancel, hello, invoked, named, progress, sample};
use testkit::{Pair, Scripted};

/// A gateway with its call 1 in flight.
fn calling() -> (Scripted, OutboundId) {
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke_action();
    (gateway, id)
}

/// A gateway like that of [`calling`] that waits two seconds for the partial result of a cancelled call.
fn patient() -> (Scripted, OutboundId) {
    let mut gateway = Scripted::gateway(with(gateway_config(), |config| config.timeouts.cancel_grace = Duration::from_secs(2)));
    let id = gateway.invoke_action();
    (gateway, id)
}

fn done(id: OutboundId, outcome: Outcome) -> Event {
    Event::Done { id, outcome, partial: None, last: None }
}

/// Time limits in milliseconds: `idle` restarts with progress, and `total` does not.
fn within(idle: Option<u64>, total: Option<u64>) -> CallTimeouts {
    CallTimeouts::NONE
        .with_idle(idle.map(Duration::from_millis))
        .with_max_total(total.map(Duration::from_millis))
        .with_reset_on_progress(idle.is_some())
}

const OVER: &str = r#""error":{"code":-32001,"message":"the invocation that this belongs to is over"}"#;

/// The refusal of the input request `id`, whose invocation has ended.
fn over(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{OVER}}}"#)
}

#[track_caller]
fn expect_refused(gateway: &mut Scripted, id: u64, code: i64, why: &str) {
    let sent = gateway.sent();
    assert!(
        sent.len() == 1 && sent[0].starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#)),
        "{why}: {sent:?}"
    );
}

// ---- Requests to an app ----

#[test]
fn each_call_is_written_with_the_method_and_the_members_of_tesseron() {
    for (call, method, written) in [
        (
            Invoke::call_tool("t", json(r#"{ "cents" : 4200 }"#)),
            "actions/invoke",
            r#"{"name":"t","input":{ "cents" : 4200 },"invocationId":"inv_1"}"#,
        ),
        (
            Invoke::call_tool("a__b c", json("null")).with_meta(json("{}")),
            "actions/invoke",
            r#"{"name":"a__b c","input":null,"invocationId":"inv_1"}"#,
        ),
        (
            Invoke::new(Op::CallTool, json(r#"{"input": 1,"invocationId":"mine","name":"t","x":[ ]}"#)),
            "actions/invoke",
            r#"{"input":1,"name":"t","x":[ ],"invocationId":"inv_1"}"#,
        ),
        (Invoke::read_resource("balance").with_meta(json("{}")), "resources/read", r#"{"name":"balance"}"#),
        (Invoke::new(Op::ReadResource, json(r#"{"name": "balance"}"#)), "resources/read", r#"{"name": "balance"}"#),
        (Invoke::subscribe("balance").with_subscription("s"), "resources/subscribe", r#"{"name":"balance","subscriptionId":"s"}"#),
        (Invoke::subscribe("balance"), "resources/subscribe", r#"{"name":"balance","subscriptionId":"balance"}"#),
        (Invoke::unsubscribe("balance").with_subscription("s"), "resources/unsubscribe", r#"{"subscriptionId":"s"}"#),
        (Invoke::custom("x/y", json(r#"{"a":1}"#)), "x/y", r#"{"a":1}"#),
    ] {
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke(call);
        assert_eq!(gateway.sent(), [request(1, method, written)]);
    }
}

#[test]
fn operations_that_tesseron_lacks_and_methods_that_a_gateway_must_not_call_return_an_error() {
    let mut gateway = Scripted::gateway(gateway_config());
    for op in [Op::ListTools, Op::GetPrompt, Op::ListResources, Op::Complete, Op::SetLogLevel, Op::Ping] {
        let error = gateway.session.invoke(Invoke::new(op, json("{}")), gateway.now).unwrap_err();
        assert_eq!(error.why, SendError::Unsupported, "{op:?}");
    }
    for method in ["tesseron/hello", "tesseron/bind", "tesseron/claimed", "actions/cancel", "sampling/request", "log"] {
        let error = gateway.session.invoke(Invoke::custom(method, json("{}")), gateway.now).unwrap_err();
        assert_eq!(error.why, SendError::WrongEnd, "{method}");
    }
    for notification in [Notification::Actions(json("[]")), Notification::Resources(json("[]"))] {
        assert_eq!(gateway.session.notify(notification, gateway.now), Err(SendError::WrongEnd));
    }
    gateway.expect_silence();
}

#[test]
fn a_subscribe_is_not_sent_to_an_app_that_does_not_support_subscriptions() {
    let mut gateway = Scripted::new(gateway_config());
    gateway.frame(&hello(1, "1.2.0").replace(r#""subscriptions":true"#, r#""subscriptions":false"#));
    gateway.claim().drain();
    let subscribe = Invoke::subscribe("balance").with_subscription("s");
    assert_eq!(gateway.session.invoke(subscribe, gateway.now).unwrap_err().why, SendError::Unsupported);
    gateway.expect_silence();
}

// ---- Cancels ----

/// Calls of other methods than `actions/invoke`, which have no invocation id.
fn unnamed() -> [Invoke; 4] {
    [
        Invoke::read_resource("balance"),
        Invoke::subscribe("balance").with_subscription("s"),
        Invoke::unsubscribe("balance").with_subscription("s"),
        Invoke::custom("x/y", json("{}")),
    ]
}

#[test]
fn cancelling_a_call_that_is_no_invocation_sends_no_cancel() {
    for call in unnamed() {
        let (mut gateway, _) = patient();
        let id = gateway.invoke(call.clone());
        gateway.sent();
        gateway.session.cancel(id, None, gateway.now).unwrap();
        assert_eq!((gateway.events(), gateway.sent()), (vec![done(id, Outcome::Cancelled)], vec![]), "{call:?}");
        let id = gateway.invoke(call.with_timeouts(within(None, Some(5))));
        gateway.sent();
        gateway.at(5);
        assert_eq!((gateway.events(), gateway.sent()), (vec![done(id, Outcome::TimedOut(TimeoutKind::MaxTotal))], vec![]));
    }
}

// ---- A grace for the partial result of a cancelled call ----

#[test]
fn with_a_grace_a_cancelled_call_waits_for_its_partial_result_and_ends_as_cancelled() {
    let (mut gateway, id) = patient();
    gateway.frame(&progress(&named(1), r#","percent":40"#)).events();
    gateway.session.cancel(id, None, gateway.now).unwrap();
    assert_eq!((gateway.events(), gateway.sent()), (vec![], vec![cancel(&named(1))]));
    assert_eq!(gateway.session.cancel(id, None, gateway.now), Err(NotLive), "once");
    gateway.frame(&progress(&named(1), r#","percent":60"#)).expect_silence();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"cancelled","data":{"partial":{"status":"cancelled","results":[1]}}}}"#);
    let partial = Some(json(r#"{"status":"cancelled","results":[1]}"#));
    assert_eq!(
        gateway.events(),
        [Event::Done { id, outcome: Outcome::Cancelled, partial, last: Some(Box::new(Progress::percent(40.0))) }]
    );
    assert_eq!(
        (gateway.session.stats().outbound_calls, gateway.session.poll_timeout()),
        (0, None),
        "no call and no deadline remain"
    );
}

#[test]
fn with_a_grace_input_requests_of_a_cancelled_call_are_refused_at_once() {
    let (mut gateway, id) = patient();
    gateway.frame(&sample(50, &named(1)));
    let key = gateway.input_request();
    gateway.session.cancel(id, None, gateway.now).unwrap();
    assert_eq!((gateway.events(), gateway.sent()), (vec![Event::InputGone { key }], vec![cancel(&named(1)), over(50)]));
    gateway.frame(&sample(51, &named(1)));
    expect_refused(&mut gateway, 51, -32009, "given up");
    assert!(!gateway.events().iter().any(|event| matches!(event, Event::InputRequested { .. })));
}

#[test]
fn with_a_grace_a_cancelled_call_counts_toward_the_limit_until_it_is_done() {
    let mut gateway = Scripted::gateway(with(gateway_config(), |config| {
        config.timeouts.cancel_grace = Duration::from_secs(2);
        config.limits.in_flight = 1;
    }));
    let id = gateway.invoke_action();
    gateway.session.cancel(id, None, gateway.now).unwrap();
    let call = call_action;
    assert_eq!(gateway.session.invoke(call(), gateway.now).unwrap_err().why, SendError::Full);
    gateway.at(2_000).drain();
    gateway.invoke(call());
}

// ---- Ends of calls ----

#[test]
fn item_66_a_result_with_neither_an_invocation_id_nor_an_output_is_invalid() {
    for result in ["null", "true", "7", r#""x""#, "[]", "{}", r#"{"value":1}"#, r#"{"invocationid":"inv_1"}"#] {
        let (mut gateway, id) = calling();
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        let events = gateway.events();
        let [
            Event::Violation(Violation::InvalidResponse),
            Event::Done { id: ended, outcome: Outcome::Invalid(Invalid::Unreadable(found)), .. },
        ] = &events[..]
        else {
            panic!("{result}: {events:?}")
        };
        assert_eq!((*ended, &*found.excerpt), (id, result));
    }
}

#[test]
fn item_67_a_result_with_another_or_no_invocation_id_is_accepted_and_reported_as_a_violation() {
    for member in
        [r#""invocationId":"inv_2","#, r#""invocationId":"other","#, r#""invocationId":null,"#, r#""invocationId":1,"#, ""]
    {
        let (mut gateway, id) = calling();
        let result = format!(r#"{{{member}"output":5}}"#);
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        assert_eq!(
            gateway.events(),
            [Event::Violation(Violation::InvalidResponse), done(id, Outcome::Result(json(&result)))],
            "{result}"
        );
    }
}

#[test]
fn an_error_of_an_app_is_reported_with_its_code_its_message_and_its_data() {
    for code in [-32001, -32002, -32003, -32004, -32005, -32603, 17] {
        let (mut gateway, id) = calling();
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no","data":[{{"path":["a"]}}]}}}}"#));
        let error = RpcError::new(code, "no").with_data(json(r#"[{"path":["a"]}]"#));
        assert_eq!(gateway.events(), [done(id, Outcome::Error(error))]);
    }
}

#[test]
fn the_partial_result_in_an_error_is_reported_with_that_error() {
    let (mut gateway, id) = calling();
    let data = r#"{"partial":{"status":"timeout","results":[]}}"#;
    gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32002,"message":"late","data":{data}}}}}"#));
    let outcome = Outcome::Error(RpcError::new(-32002, "late").with_data(json(data)));
    assert_eq!(
        gateway.events(),
        [Event::Done { id, outcome, partial: Some(json(r#"{"status":"timeout","results":[]}"#)), last: None }]
    );
}

#[test]
fn a_call_has_no_timeout_by_default() {
    let (mut gateway, _) = calling();
    assert_eq!(gateway.session.poll_timeout(), None);
    gateway.at(1_000_000_000).expect_silence();
}

#[test]
fn item_68_a_timeout_is_exact_and_sends_one_cancel() {
    for (call_timeouts, kind) in [(within(None, Some(250)), TimeoutKind::MaxTotal), (within(Some(250), None), TimeoutKind::Idle)] {
        let mut gateway = Scripted::gateway(gateway_config());
        let id = gateway.invoke(call_action().with_timeouts(call_timeouts));
        gateway.sent();
        gateway.at(249).expect_silence();
        gateway.at(250);
        assert_eq!((gateway.events(), gateway.sent()), (vec![done(id, Outcome::TimedOut(kind))], vec![cancel(&named(1))]));
        gateway.frame(&error(1, -32001, "cancelled")).at(1_000_000).expect_silence();
    }
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke(call_action().with_timeouts(within(None, Some(0))));
    assert_eq!(
        (gateway.events(), gateway.sent()),
        (vec![done(id, Outcome::TimedOut(TimeoutKind::MaxTotal))], vec![]),
        "never sent"
    );
}

// ---- Progress ----

#[test]
fn item_73_progress_of_an_unknown_invocation_is_dropped() {
    let (mut gateway, _) = calling();
    for name in ["inv_2", "inv_0", "inv_99", "inv_01", "inv_", "INV_1", "1", "", "inv_1 ", "inv_-1", "inv_18446744073709551616"] {
        gateway.frame(&progress(name, r#","percent":1"#));
        let events = gateway.events();
        assert!(matches!(events[..], [] | [Event::Violation(Violation::UnknownProgress)]), "{name}: {events:?}");
    }
    gateway.frame(&notification("actions/progress", r#"{"invocationId":1,"percent":1}"#));
    assert!(!gateway.events().iter().any(|event| matches!(event, Event::Progress { .. })));
    gateway.frame(&invoked(1, &named(1), "1")).events();
    let before = gateway.session.stats().late_frames;
    gateway.frame(&progress(&named(1), r#","percent":99"#)).expect_silence();
    assert_eq!(gateway.session.stats().late_frames, before + 1);
}

#[test]
fn item_73_progress_with_an_invocation_id_that_is_too_long_is_invalid() {
    let most = gateway_config().limits.id_bytes;
    // The limit applies to the id as it is written in the frame, with its quotes.
    for (length, rule) in
        [(0, Violation::UnknownProgress), (most - 2, Violation::UnknownProgress), (most - 1, Violation::InvalidProgress)]
    {
        let (mut gateway, _) = calling();
        gateway.frame(&progress(&"x".repeat(length), r#","percent":1"#));
        assert_eq!(gateway.events(), [Event::Violation(rule)], "{length}");
    }
}

#[test]
fn item_73_progress_of_a_call_that_is_no_invocation_is_dropped() {
    // Only an invocation has an invocation id.
    for call in unnamed() {
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke(call.clone());
        gateway.sent();
        gateway.frame(&progress(&named(1), r#","percent":1"#));
        let events = gateway.events();
        assert!(!events.iter().any(|event| matches!(event, Event::Progress { .. })), "{call:?}: {events:?}");
    }
}

#[test]
fn item_73_progress_of_a_call_that_was_not_sent_is_a_violation() {
    let mut gateway = Scripted::gateway(gateway_config());
    gateway.invoke(call_action());
    gateway.frame(&progress(&named(1), r#","percent":1"#));
    assert_eq!(gateway.events(), [Event::Violation(Violation::UnknownProgress)]);
    gateway.frame(&invoked(1, &named(1), "1"));
    assert_eq!(gateway.events(), [Event::Violation(Violation::UnknownResponse)]);
}

#[test]
fn item_74_the_reported_percentage_never_falls_and_stays_between_0_and_100() {
    let (mut gateway, id) = calling();
    for (members, reported) in [
        (r#","message":"starting""#, Some(Progress::message("starting"))),
        (r#","percent":-5"#, Some(Progress::percent(0.0))),
        (r#","percent":30"#, Some(Progress::percent(30.0))),
        (r#","message":"m""#, Some(Progress::message("m"))),
        (r#","percent":30,"message":"n""#, Some(Progress::message("n"))),
        (r#","percent":30"#, None),
        (r#","percent":20"#, None),
        (r#","percent":20,"message":"again""#, Some(Progress::message("again"))),
        (r#","percent":20,"data":[0]"#, Some(Progress::default().with_data(json("[0]")))),
        (r#","percent":33.3,"data":[1]"#, Some(Progress::percent(33.3).with_data(json("[1]")))),
        (r#","percent":150"#, Some(Progress::percent(100.0))),
        (r#","percent":200"#, None),
        (r#","data":{"a":1}"#, Some(Progress::default().with_data(json(r#"{"a":1}"#)))),
        (r#","percent":null,"message":null"#, Some(Progress::default())),
        ("", Some(Progress::default())),
    ] {
        gateway.frame(&progress(&named(1), members));
        let received: Vec<_> = gateway.events().into_iter().filter(|event| !matches!(event, Event::Violation(_))).collect();
        assert_eq!(
            received,
            reported.map(|progress| Event::Progress { id, progress }).into_iter().collect::<Vec<_>>(),
            "{members}"
        );
    }
    for percent in ["1e999", "-1e999", r#""40""#, "true", "[]"] {
        gateway.frame(&progress(&named(1), &format!(r#","percent":{percent}"#)));
        assert!(!gateway.events().iter().any(|event| matches!(event, Event::Progress { .. })), "{percent}");
    }
}

#[test]
fn items_75_76_each_call_has_its_own_progress_and_needs_no_token() {
    let mut gateway = Scripted::gateway(gateway_config());
    let first = gateway.invoke(call_action().without_progress());
    let second = gateway.invoke(call_action());
    gateway.sent();
    for (number, percent) in [(1, 60), (2, 5), (1, 61), (2, 6)] {
        gateway.frame(&progress(&named(number), &format!(r#","percent":{percent}"#)));
    }
    let reported: Vec<_> = gateway
        .events()
        .into_iter()
        .map(|event| if let Event::Progress { id, progress } = event { (id, progress.value) } else { panic!("{event:?}") })
        .collect();
    assert_eq!(reported, [(first, Some(60.0)), (second, Some(5.0)), (first, Some(61.0)), (second, Some(6.0))]);
}

// ---- Log ----

#[test]
fn item_78_a_log_record_has_a_translated_level_and_its_meta_cannot_replace_its_message() {
    let (mut gateway, _) = calling();
    for (params, level, data) in [
        (r#"{"level":"warn","message":"m"}"#, Level::Warning, r#"{"message":"m"}"#),
        (r#"{"level":"debug","message":"m","invocationId":"inv_1"}"#, Level::Debug, r#"{"message":"m"}"#),
        (r#"{"level":"info","message":"m","meta":{"a":1}}"#, Level::Info, r#"{"message":"m","a":1}"#),
        (
            r#"{"level":"error","message":"m","meta":{"message":"forged","me\u0073sage":"forged"}}"#,
            Level::Error,
            r#"{"message":"m"}"#,
        ),
        (r#"{"level":"shout","message":"m"}"#, Level::Info, r#"{"message":"m"}"#),
        (r#"{"level":"","message":"m","meta":[1]}"#, Level::Info, r#"{"message":"m"}"#),
        (r#"{"level":"warn","message":"m","meta":null}"#, Level::Warning, r#"{"message":"m"}"#),
    ] {
        gateway.frame(&notification("log", params));
        let events = gateway.events();
        let [Event::Log(record)] = &events[..] else { panic!("{params}: {events:?}") };
        assert_eq!((record.level, record.data.as_str()), (level, data), "{params}");
    }
}

#[test]
fn a_log_record_of_an_inactive_invocation_is_dropped_and_one_of_no_invocation_is_reported() {
    let (mut gateway, id) = calling();
    let log = |member: &str| notification("log", &format!(r#"{{"level":"info","message":"m"{member}}}"#));
    for member in ["", r#","invocationId":"inv_1""#] {
        gateway.frame(&log(member));
        assert!(matches!(gateway.events()[..], [Event::Log(_)]), "{member}");
    }
    gateway.session.cancel(id, None, gateway.now).unwrap();
    gateway.drain();
    for member in [r#","invocationId":"inv_1""#, r#","invocationId":"inv_9""#, r#","invocationId":"other""#, r#","invocationId":7"#]
    {
        gateway.frame(&log(member));
        assert!(!gateway.events().iter().any(|event| matches!(event, Event::Log(_))), "{member}");
    }
}

#[test]
fn a_gateway_sends_no_log_records_to_its_app() {
    let mut gateway = Scripted::gateway(gateway_config());
    let record = LogRecord::new(Level::Error, json("\"x\""));
    assert_eq!(gateway.session.log(None, record, gateway.now), Ok(Logged::Unwanted));
    gateway.expect_silence();
}

// ---- Input requests of an app ----

#[test]
fn an_input_request_is_reported_with_its_call_and_its_members() {
    let (mut gateway, id) = calling();
    let params = r#"{"invocationId":"inv_1","prompt":"Name it","schema":{"type":"string"},"maxTokens":64}"#;
    gateway.frame(&request(50, "sampling/request", params));
    let events = gateway.events();
    let [Event::InputRequested { parent, ask: InputRequest::Sample(sample), depth: 1, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*parent, sample.prompt.as_str(), sample.max_tokens), (Some(id), "Name it", Some(64)));
    assert_eq!((sample.schema.clone(), sample.params.clone()), (Some(json(r#"{"type":"string"}"#)), Some(json(params))));

    let params = r#"{"invocationId":"inv_1","question":"Sure?","schema":{"type":"object","properties":{},"required":[]}}"#;
    gateway.frame(&request(51, "elicitation/request", params));
    let events = gateway.events();
    let [Event::InputRequested { parent, ask: InputRequest::Elicit(form), depth: 0, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*parent, form.message.as_str()), (Some(id), "Sure?"));
    assert!(form.is_confirmation());
}

#[test]
fn an_input_request_is_answered_with_the_members_of_tesseron() {
    let elicited = |answer| InputResponse::Elicit(answer);
    let mut image = SampleResult::new("ignored", "m");
    image.result = Some(json(r#"{"content":"{\"type\":\"image\"}"}"#));
    for (answer, body) in [
        (InputResponse::Sample(SampleResult::new("office \"supplies\"", "model")), r#""result":{"content":"office \"supplies\""}"#),
        (InputResponse::Sample(image), r#""result":{"content":"{\"type\":\"image\"}"}"#),
        (elicited(ElicitResult::Accept(json(r#"{"a":1}"#))), r#""result":{"action":"accept","value":{"a":1}}"#),
        (elicited(ElicitResult::Decline), r#""result":{"action":"decline"}"#),
        (elicited(ElicitResult::Cancel), r#""result":{"action":"cancel"}"#),
        (InputResponse::Confirm(true), r#""result":{"action":"accept"}"#),
        (InputResponse::Confirm(false), r#""result":{"action":"decline"}"#),
        (InputResponse::Refused(RpcError::new(-32006, "no")), r#""error":{"code":-32006,"message":"no"}"#),
        (InputResponse::Roots(json("[]")), r#""error":{"code":-32603,"message":"the answer has the wrong shape"}"#),
        (elicited(ElicitResult::Accept(json("[]"))), r#""error":{"code":-32603,"message":"the answer has the wrong shape"}"#),
    ] {
        let (mut gateway, _) = calling();
        gateway.frame(&sample(50, &named(1)));
        let key = gateway.input_request();
        gateway.session.provide_input(key, answer, gateway.now).unwrap();
        assert_eq!(gateway.sent(), [format!(r#"{{"jsonrpc":"2.0","id":50,{body}}}"#)]);
        assert_eq!(gateway.session.provide_input(key, InputResponse::Confirm(true), gateway.now), Err(NotLive));
    }
}

#[test]
fn item_80_an_input_request_that_the_agent_does_not_support_is_refused_with_the_agents_name() {
    let mut gateway = Scripted::unclaimed_gateway(gateway_config());
    gateway.session.claim(agent(), Capabilities::default(), 1, gateway.now).unwrap();
    gateway.invoke_action();
    for (method, code) in [("sampling/request", -32006), ("elicitation/request", -32007)] {
        let params = r#"{"invocationId":"inv_1","prompt":"?","question":"?","schema":{"type":"object"}}"#;
        gateway.frame(&request(50, method, params));
        assert_eq!(
            gateway.sent(),
            [format!(
                r#"{{"jsonrpc":"2.0","id":50,"error":{{"code":{code},"message":"the agent does not support this input request","data":{{"clientName":"acme-cli"}}}}}}"#
            )]
        );
        assert_eq!(gateway.events(), [Event::Violation(Violation::UndeclaredInput)]);
    }
}

#[test]
fn item_87_a_form_that_is_not_a_flat_object_of_primitives_is_refused() {
    let (mut gateway, _) = calling();
    let ask = |schema: &str| {
        request(50, "elicitation/request", &format!(r#"{{"invocationId":"inv_1","question":"?","schema":{schema}}}"#))
    };
    for schema in [
        "null",
        "{}",
        r#"{"type":"array"}"#,
        r#"{"type":"object","not":{}}"#,
        r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}"#,
        r#"{"type":"object","properties":{"a":{"type":["string","null"]}}}"#,
        r#"{"type":"object","properties":{"a":{"enum":["x"]}}}"#,
    ] {
        gateway.frame(&ask(schema));
        expect_refused(&mut gateway, 50, -32602, schema);
    }
    for schema in [r#"{"type":"object"}"#, r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#] {
        gateway.drain().frame(&ask(schema));
        let key = gateway.input_request();
        gateway.session.provide_input(key, InputResponse::Elicit(ElicitResult::Decline), gateway.now).unwrap();
    }
}

/// Checks that an input request for the invocation `name` is refused, since there is no such invocation.
#[track_caller]
fn expect_no_such(gateway: &mut Scripted, name: &str) {
    for method in ["sampling/request", "elicitation/request"] {
        let params = format!(r#"{{"invocationId":"{name}","prompt":"?","question":"?","schema":{{"type":"object"}}}}"#);
        gateway.frame(&request(50, method, &params));
        expect_refused(gateway, 50, -32009, name);
        let events = gateway.events();
        assert!(matches!(events[..], [] | [Event::Violation(_)]), "{name}: {events:?}");
    }
}

#[test]
fn an_input_request_that_crosses_the_end_of_its_call_is_no_violation() {
    let mut pair = Pair::tesseron();
    for cancelled in [true, false] {
        let call_timeouts = within(None, Some(50));
        let call = pair.client.invoke(call_action().with_timeouts(call_timeouts));
        pair.run();
        let id = pair.server.request();
        pair.server.ask(id, InputRequest::from(Sample::new("?")));
        let input_request = pair.server.sent();
        if cancelled {
            pair.client.session.cancel(call, None, pair.client.now).unwrap();
        } else {
            pair.client.at(50);
        }
        pair.client.frame(&input_request[0]);
        pair.run();
        let events = pair.client.events();
        assert!(matches!(events[..], [Event::Done { .. }]), "{events:?}");
        let events = pair.server.events();
        assert!(matches!(events[..], [Event::Cancelled { .. }]), "{events:?}");
    }
}

#[test]
fn item_89_an_input_request_of_an_inactive_invocation_is_refused() {
    let (mut gateway, id) = calling();
    for name in ["inv_2", "inv_0", "i1", "", "inv_01", "1", "inv_1 "] {
        expect_no_such(&mut gateway, name);
    }
    gateway.session.cancel(id, None, gateway.now).unwrap();
    gateway.drain();
    expect_no_such(&mut gateway, &named(1));
    gateway.invoke_action();
    gateway.frame(&invoked(2, &named(2), "1")).drain();
    expect_no_such(&mut gateway, &named(2));
    // An invocation that was not sent yet cannot have made an input request.
    gateway.invoke(call_action());
    let mut unsent = gateway.session.clone();
    unsent.handle_frame(sample(50, &named(3)).into(), Lane::CHANNEL, gateway.now).unwrap();
    assert!(!std::iter::from_fn(|| unsent.poll_event()).any(|event| matches!(event, Event::InputRequested { .. })));
    gateway.sent();
    gateway.frame(&sample(50, &named(3)));
    gateway.input_request();
}

#[test]
fn item_89_an_input_request_of_a_call_that_is_no_invocation_is_refused() {
    for call in unnamed() {
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke(call);
        gateway.sent();
        expect_no_such(&mut gateway, &named(1));
    }
}

// ---- Resources and lists ----

#[test]
fn items_94_98_99_a_value_may_come_before_the_response_to_a_subscribe_and_an_error_ends_the_call() {
    let subscribe = || Invoke::subscribe("balance").with_subscription("s");
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke(subscribe());
    gateway.sent();
    gateway.frame(&notification("resources/updated", r#"{"subscriptionId":"s","value":{"cents":1000}}"#));
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":null}"#);
    gateway.frame(&notification("resources/updated", r#"{"subscriptionId":"s"}"#));
    let value = |value: &str| {
        Event::Notification(Notification::ResourceValue { subscription: "s".into(), uri: "".into(), value: json(value) })
    };
    assert_eq!(gateway.events(), [value(r#"{"cents":1000}"#), done(id, Outcome::Result(json("null"))), value("null")]);

    let id = gateway.invoke(subscribe());
    gateway.sent();
    gateway.frame(&error(2, -32003, "Resource not subscribable: balance"));
    assert_eq!(gateway.events(), [done(id, Outcome::Error(RpcError::new(-32003, "Resource not subscribable: balance")))]);
    assert_eq!(gateway.session.stats().outbound_calls, 0);
}

#[test]
fn item_93_the_value_of_a_resource_is_reported_byte_for_byte() {
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke(Invoke::read_resource("balance"));
    gateway.sent();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":{"value":{ "cents" : 9.910e2 }}}"#);
    assert_eq!(gateway.events(), [done(id, Outcome::Result(json(r#"{"value":{ "cents" : 9.910e2 }}"#)))]);
}

#[test]
fn item_100_a_changed_list_is_reported_as_a_whole_before_and_after_the_claim() {
    for mut gateway in [Scripted::gateway(gateway_config()), Scripted::unclaimed_gateway(gateway_config())] {
        gateway.frame(&notification("actions/list_changed", r#"{"actions":[{"name":"void_entry"}],"more":1}"#));
        gateway.frame(&notification("resources/list_changed", r#"{"resources":[]}"#));
        assert_eq!(
            gateway.events(),
            [
                Event::Notification(Notification::Actions(json(r#"[{"name":"void_entry"}]"#))),
                Event::Notification(Notification::Resources(json("[]")))
            ]
        );
    }
}

// ---- Both ends ----

#[test]
fn the_partial_result_of_a_cancelled_call_reaches_a_gateway_that_waits_for_it() {
    let patient = with(gateway_config(), |config| config.timeouts.cancel_grace = Duration::from_secs(2));
    let mut pair = Pair::tesseron_with(patient, testkit::config::app_config());
    let now = pair.client.now;
    let call = pair.client.invoke(call_action());
    pair.run();
    let id = pair.server.request();
    pair.server.session.checkpoint(id, json(r#"{"results":[1,2]}"#)).unwrap();
    pair.client.session.cancel(call, None, now).unwrap();
    pair.run();
    let partial = Some(json(r#"{"status":"cancelled","results":[1,2]}"#));
    assert_eq!(pair.client.events(), [Event::Done { id: call, outcome: Outcome::Cancelled, partial, last: None }]);
}
