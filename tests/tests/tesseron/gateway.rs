//! The gateway end of Tesseron: calls, their cancels, deadlines and graces, progress, log, and what an app asks, as far as a session
//! has them (`docs/protocols/tesseron.md`, "Invocations" to "Log"). What the agent hears of it is the bridge's.

use std::time::Duration;

use protocol_core::{
    Answer, Ask, CallTimeouts, Capabilities, Elicited, Event, InputKey, Invalid, Invoke, Lane, Level, LogRecord, Logged, NotLive,
    Notice, Op, OutboundId, Outcome, Progress, Refused, RpcError, Sample, Sampled, TimeoutKind, TransportEnd, Violation,
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

/// The same, where a call that is cancelled waits two seconds for what the app did.
fn patient() -> (Scripted, OutboundId) {
    let mut gateway = Scripted::gateway(with(gateway_config(), |config| config.timeouts.cancel_grace = Duration::from_secs(2)));
    let id = gateway.invoke_action();
    (gateway, id)
}

fn done(id: OutboundId, outcome: Outcome) -> Event {
    Event::Done { id, outcome, partial: None, last: None }
}

fn within(idle: Option<u64>, total: Option<u64>) -> CallTimeouts {
    CallTimeouts::NONE
        .with_idle(idle.map(Duration::from_millis))
        .with_max_total(total.map(Duration::from_millis))
        .with_reset_on_progress(idle.is_some())
}

const OVER: &str = r#""error":{"code":-32001,"message":"the invocation that this belongs to is over"}"#;

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

// ---- What is asked of an app ----

#[test]
fn calls_are_written_in_the_words_of_tesseron() {
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
fn what_tesseron_has_no_word_for_and_what_the_session_says_itself_is_refused() {
    let mut gateway = Scripted::gateway(gateway_config());
    for op in [Op::ListTools, Op::GetPrompt, Op::ListResources, Op::Complete, Op::SetLogLevel, Op::Ping] {
        let refused = gateway.session.invoke(Invoke::new(op, json("{}")), gateway.now).unwrap_err();
        assert_eq!(refused.why, Refused::Unsupported, "{op:?}");
    }
    for method in ["tesseron/hello", "tesseron/bind", "tesseron/claimed", "actions/cancel", "sampling/request", "log"] {
        let refused = gateway.session.invoke(Invoke::custom(method, json("{}")), gateway.now).unwrap_err();
        assert_eq!(refused.why, Refused::WrongEnd, "{method}");
    }
    for notice in [Notice::Actions(json("[]")), Notice::Resources(json("[]"))] {
        assert_eq!(gateway.session.notify(notice, gateway.now), Err(Refused::WrongEnd));
    }
    gateway.expect_silence();
}

#[test]
fn no_subscription_is_asked_of_an_app_that_has_none() {
    let mut gateway = Scripted::new(gateway_config());
    gateway.frame(&hello(1, "1.2.0").replace(r#""subscriptions":true"#, r#""subscriptions":false"#));
    gateway.claim().drain();
    let subscribe = Invoke::subscribe("balance").with_subscription("s");
    assert_eq!(gateway.session.invoke(subscribe, gateway.now).unwrap_err().why, Refused::Unsupported);
    gateway.expect_silence();
}

// ---- Cancels ----

#[test]
fn item_61_a_call_that_is_cancelled_before_it_was_sent_is_never_sent() {
    for grace in [0, 2] {
        let mut gateway =
            Scripted::gateway(with(gateway_config(), |config| config.timeouts.cancel_grace = Duration::from_secs(grace)));
        let id = gateway.invoke(call_action());
        gateway.session.cancel(id, None, gateway.now).unwrap();
        assert_eq!((gateway.events(), gateway.sent()), (vec![done(id, Outcome::Cancelled)], vec![]));
    }
}

#[test]
fn item_62_a_call_that_was_sent_is_cancelled_once_and_over_at_once() {
    let (mut gateway, id) = calling();
    gateway.session.cancel(id, Some("changed my mind"), gateway.now).unwrap();
    assert_eq!((gateway.events(), gateway.sent()), (vec![done(id, Outcome::Cancelled)], vec![cancel(&named(1))]));
    assert_eq!(gateway.session.cancel(id, None, gateway.now), Err(NotLive));
    gateway.at(1_000_000).expect_silence();
}

#[test]
fn items_63_64_whatever_comes_after_a_cancel_is_passed_over() {
    for late in [
        invoked(1, &named(1), "1"),
        error(1, -32001, "Action invocation was cancelled."),
        error(1, -32603, "x"),
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#.to_owned(),
        progress(&named(1), r#","percent":50"#),
    ] {
        let (mut gateway, id) = calling();
        gateway.session.cancel(id, None, gateway.now).unwrap();
        gateway.drain();
        gateway.frame(&late).frame(&late).expect_silence();
        assert_eq!((gateway.session.stats().late_frames, gateway.session.stats().outbound_calls), (2, 0), "{late}");
    }
}

/// Calls that are no invocations.
fn unnamed() -> [Invoke; 4] {
    [
        Invoke::read_resource("balance"),
        Invoke::subscribe("balance").with_subscription("s"),
        Invoke::unsubscribe("balance").with_subscription("s"),
        Invoke::custom("x/y", json("{}")),
    ]
}

#[test]
fn a_resource_cannot_be_cancelled_by_name_so_the_call_is_only_forgotten() {
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

// ---- A grace for what a cancelled app has done ----

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
    assert_eq!((gateway.session.stats().outbound_calls, gateway.session.poll_timeout()), (0, None), "nothing is left");
}

#[test]
fn with_a_grace_a_cancelled_call_ends_as_cancelled_whatever_comes_or_does_not() {
    type Ends = fn(&mut Scripted);
    let ends: [(&str, Ends); 8] = [
        ("a result", |gateway| _ = gateway.frame(&invoked(1, &named(1), "1"))),
        ("a bare result", |gateway| _ = gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":7}"#)),
        ("an error", |gateway| _ = gateway.frame(&error(1, -32001, "cancelled"))),
        ("a broken error", |gateway| _ = gateway.frame(r#"{"jsonrpc":"2.0","id":1,"error":7}"#)),
        ("nothing", |gateway| _ = gateway.at(2_000)),
        ("the end of input", |gateway| gateway.session.handle_end(TransportEnd::Eof, gateway.now)),
        ("the end of the transport", |gateway| gateway.session.handle_end(TransportEnd::Failed, gateway.now)),
        ("the end", |gateway| gateway.session.close(protocol_core::Close::Now, gateway.now)),
    ];
    for (name, ending) in ends {
        let (mut gateway, id) = patient();
        gateway.session.cancel(id, None, gateway.now).unwrap();
        assert_eq!(gateway.sent().len(), 1);
        gateway.at(1_999);
        assert_eq!(gateway.events(), [], "{name}");
        ending(&mut gateway);
        let over: Vec<_> = gateway.events().into_iter().filter(|event| !matches!(event, Event::Closed(_))).collect();
        assert_eq!(over, [done(id, Outcome::Cancelled)], "{name}");
        assert_eq!(gateway.sent(), Vec::<String>::new(), "{name}: one cancel is enough");
        gateway.frame(&invoked(1, &named(1), "1")).at(1_000_000).expect_silence();
    }
}

#[test]
fn with_a_grace_a_deadline_is_still_over_at_once() {
    let (mut gateway, _) = patient();
    let id = gateway.invoke(call_action().with_timeouts(within(None, Some(50))));
    gateway.sent();
    gateway.at(50);
    assert_eq!(
        (gateway.events(), gateway.sent()),
        (vec![done(id, Outcome::TimedOut(TimeoutKind::MaxTotal))], vec![cancel(&named(2))])
    );
}

#[test]
fn with_a_grace_what_a_cancelled_call_asks_is_refused_at_once() {
    let (mut gateway, id) = patient();
    gateway.frame(&sample(50, &named(1)));
    let key = gateway.question();
    gateway.session.cancel(id, None, gateway.now).unwrap();
    assert_eq!((gateway.events(), gateway.sent()), (vec![Event::InputGone { key }], vec![cancel(&named(1)), over(50)]));
    gateway.frame(&sample(51, &named(1)));
    expect_refused(&mut gateway, 51, -32009, "given up");
    assert!(!gateway.events().iter().any(|event| matches!(event, Event::InputRequested { .. })));
}

#[test]
fn with_a_grace_a_call_given_up_keeps_its_place_until_it_is_done() {
    let mut gateway = Scripted::gateway(with(gateway_config(), |config| {
        config.timeouts.cancel_grace = Duration::from_secs(2);
        config.limits.in_flight = 1;
    }));
    let id = gateway.invoke_action();
    gateway.session.cancel(id, None, gateway.now).unwrap();
    let call = call_action;
    assert_eq!(gateway.session.invoke(call(), gateway.now).unwrap_err().why, Refused::Full);
    gateway.at(2_000).drain();
    gateway.invoke(call());
}

// ---- Ends of calls ----

#[test]
fn item_65_the_end_of_the_transport_loses_a_call() {
    let (mut gateway, id) = calling();
    gateway.frame(&progress(&named(1), r#","percent":40"#)).events();
    gateway.session.handle_end(TransportEnd::Failed, gateway.now);
    let lost = Event::Done { id, outcome: Outcome::Lost, partial: None, last: Some(Box::new(Progress::percent(40.0))) };
    assert_eq!(gateway.events()[0], lost);
    assert_eq!(gateway.sent(), Vec::<String>::new(), "and no cancel");
}

#[test]
fn item_66_a_result_that_is_no_object_around_an_output_is_invalid() {
    for result in ["null", "true", "7", r#""x""#, "[]", "{}", r#"{"value":1}"#, r#"{"invocationid":"inv_1"}"#] {
        let (mut gateway, id) = calling();
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        assert_eq!(
            gateway.events(),
            [Event::Violation(Violation::InvalidResponse), done(id, Outcome::Invalid(Invalid::Response))],
            "{result}"
        );
    }
}

#[test]
fn item_66_an_output_may_be_missing() {
    let (mut gateway, id) = calling();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":{"invocationId":"inv_1"}}"#);
    assert_eq!(gateway.events(), [done(id, Outcome::Result(json(r#"{"invocationId":"inv_1"}"#)))]);
}

#[test]
fn item_67_a_result_with_a_foreign_name_or_none_is_tolerated_and_flagged() {
    for named in [r#""invocationId":"inv_2","#, r#""invocationId":"other","#, r#""invocationId":null,"#, r#""invocationId":1,"#, ""]
    {
        let (mut gateway, id) = calling();
        let result = format!(r#"{{{named}"output":5}}"#);
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        assert_eq!(
            gateway.events(),
            [Event::Violation(Violation::InvalidResponse), done(id, Outcome::Result(json(&result)))],
            "{result}"
        );
    }
}

#[test]
fn item_67_an_answer_counts_by_the_number_of_its_request() {
    let (mut gateway, first) = calling();
    let second = gateway.invoke_action();
    gateway.frame(&invoked(2, &named(2), "2")).frame(&invoked(1, &named(1), "1"));
    let result = |number: u64| Outcome::Result(json(&format!(r#"{{"invocationId":"inv_{number}","output":{number}}}"#)));
    assert_eq!(gateway.events(), [done(second, result(2)), done(first, result(1))]);
}

#[test]
fn an_error_keeps_its_number_its_message_and_its_data() {
    for code in [-32001, -32002, -32003, -32004, -32005, -32603, 17] {
        let (mut gateway, id) = calling();
        gateway.frame(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no","data":[{{"path":["a"]}}]}}}}"#));
        let error = RpcError::new(code, "no").with_data(json(r#"[{"path":["a"]}]"#));
        assert_eq!(gateway.events(), [done(id, Outcome::Error(error))]);
    }
}

#[test]
fn a_partial_result_comes_with_the_error_that_brought_it() {
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
fn a_call_waits_for_ever_unless_it_is_told_otherwise() {
    let (mut gateway, _) = calling();
    assert_eq!(gateway.session.poll_timeout(), None);
    gateway.at(1_000_000_000).expect_silence();
}

#[test]
fn item_68_a_deadline_cancels_once_and_is_exact() {
    for (clocks, clock) in [(within(None, Some(250)), TimeoutKind::MaxTotal), (within(Some(250), None), TimeoutKind::Idle)] {
        let mut gateway = Scripted::gateway(gateway_config());
        let id = gateway.invoke(call_action().with_timeouts(clocks));
        gateway.sent();
        gateway.at(249).expect_silence();
        gateway.at(250);
        assert_eq!((gateway.events(), gateway.sent()), (vec![done(id, Outcome::TimedOut(clock))], vec![cancel(&named(1))]));
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

#[test]
fn item_68_progress_keeps_an_idle_clock_from_running_out_and_a_question_stops_it() {
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke(call_action().with_timeouts(within(Some(100), Some(10_000))));
    gateway.sent();
    gateway.at(90).frame(&progress(&named(1), r#","percent":1"#));
    gateway.at(180).frame(&progress(&named(1), r#","percent":1"#));
    gateway.at(189).frame(&sample(50, &named(1)));
    let key = gateway.question();
    gateway.at(5_000).expect_silence();
    gateway.session.provide_input(key, Answer::Sample(Sampled::new("a", "")), gateway.now).unwrap();
    gateway.sent();
    gateway.at(5_099).expect_silence();
    gateway.at(5_100);
    let last = Some(Box::new(Progress::percent(1.0)));
    assert_eq!(gateway.events(), [Event::Done { id, outcome: Outcome::TimedOut(TimeoutKind::Idle), partial: None, last }]);
}

// ---- Progress ----

#[test]
fn item_73_progress_of_nothing_that_runs_is_dropped() {
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
fn item_73_progress_under_a_name_longer_than_an_id_may_be_is_of_the_wrong_shape() {
    let most = gateway_config().limits.id_bytes;
    // As it is written, with its quotes.
    for (length, rule) in
        [(0, Violation::UnknownProgress), (most - 2, Violation::UnknownProgress), (most - 1, Violation::InvalidProgress)]
    {
        let (mut gateway, _) = calling();
        gateway.frame(&progress(&"x".repeat(length), r#","percent":1"#));
        assert_eq!(gateway.events(), [Event::Violation(rule)], "{length}");
    }
}

#[test]
fn item_73_progress_that_names_what_is_no_invocation_is_dropped() {
    // Only an invocation was given a name.
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
fn item_73_progress_of_a_call_that_has_not_left_was_guessed() {
    let mut gateway = Scripted::gateway(gateway_config());
    gateway.invoke(call_action());
    gateway.frame(&progress(&named(1), r#","percent":1"#));
    assert_eq!(gateway.events(), [Event::Violation(Violation::UnknownProgress)]);
    gateway.frame(&invoked(1, &named(1), "1"));
    assert_eq!(gateway.events(), [Event::Violation(Violation::UnknownResponse)]);
}

#[test]
fn item_74_the_percent_that_is_told_never_falls_and_stays_within_its_scale() {
    let (mut gateway, id) = calling();
    for (members, told) in [
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
        let heard: Vec<_> = gateway.events().into_iter().filter(|event| !matches!(event, Event::Violation(_))).collect();
        assert_eq!(heard, told.map(|progress| Event::Progress { id, progress }).into_iter().collect::<Vec<_>>(), "{members}");
    }
    for percent in ["1e999", "-1e999", r#""40""#, "true", "[]"] {
        gateway.frame(&progress(&named(1), &format!(r#","percent":{percent}"#)));
        assert!(!gateway.events().iter().any(|event| matches!(event, Event::Progress { .. })), "{percent}");
    }
}

#[test]
fn items_75_76_every_call_has_its_own_progress_and_needs_no_token() {
    let mut gateway = Scripted::gateway(gateway_config());
    let first = gateway.invoke(call_action().without_progress());
    let second = gateway.invoke(call_action());
    gateway.sent();
    for (number, percent) in [(1, 60), (2, 5), (1, 61), (2, 6)] {
        gateway.frame(&progress(&named(number), &format!(r#","percent":{percent}"#)));
    }
    let told: Vec<_> = gateway
        .events()
        .into_iter()
        .map(|event| if let Event::Progress { id, progress } = event { (id, progress.value) } else { panic!("{event:?}") })
        .collect();
    assert_eq!(told, [(first, Some(60.0)), (second, Some(5.0)), (first, Some(61.0)), (second, Some(6.0))]);
}

// ---- Log ----

#[test]
fn item_78_a_log_record_has_its_level_in_our_words_and_nothing_can_take_the_place_of_its_message() {
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
fn a_log_record_of_an_invocation_that_is_not_active_is_dropped_and_one_of_none_is_told() {
    let (mut gateway, id) = calling();
    let log = |named: &str| notification("log", &format!(r#"{{"level":"info","message":"m"{named}}}"#));
    for named in ["", r#","invocationId":"inv_1""#] {
        gateway.frame(&log(named));
        assert!(matches!(gateway.events()[..], [Event::Log(_)]), "{named}");
    }
    gateway.session.cancel(id, None, gateway.now).unwrap();
    gateway.drain();
    for named in [r#","invocationId":"inv_1""#, r#","invocationId":"inv_9""#, r#","invocationId":"other""#, r#","invocationId":7"#]
    {
        gateway.frame(&log(named));
        assert!(!gateway.events().iter().any(|event| matches!(event, Event::Log(_))), "{named}");
    }
}

#[test]
fn a_gateway_logs_nothing_to_its_app() {
    let mut gateway = Scripted::gateway(gateway_config());
    let record = LogRecord::new(Level::Error, json("\"x\""));
    assert_eq!(gateway.session.log(None, record, gateway.now), Ok(Logged::Unwanted));
    gateway.expect_silence();
}

// ---- What an app asks ----

#[test]
fn a_question_is_read_with_what_it_belongs_to() {
    let (mut gateway, id) = calling();
    let params = r#"{"invocationId":"inv_1","prompt":"Name it","schema":{"type":"string"},"maxTokens":64}"#;
    gateway.frame(&request(50, "sampling/request", params));
    let events = gateway.events();
    let [Event::InputRequested { parent, ask: Ask::Sample(sample), depth: 1, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*parent, sample.prompt.as_str(), sample.max_tokens), (Some(id), "Name it", Some(64)));
    assert_eq!((sample.schema.clone(), sample.params.clone()), (Some(json(r#"{"type":"string"}"#)), Some(json(params))));

    let params = r#"{"invocationId":"inv_1","question":"Sure?","schema":{"type":"object","properties":{},"required":[]}}"#;
    gateway.frame(&request(51, "elicitation/request", params));
    let events = gateway.events();
    let [Event::InputRequested { parent, ask: Ask::Elicit(form), depth: 0, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*parent, form.message.as_str()), (Some(id), "Sure?"));
    assert!(form.is_confirmation());
}

#[test]
fn a_question_is_answered_in_the_words_of_tesseron() {
    let elicited = |answer| Answer::Elicit(answer);
    let mut image = Sampled::new("ignored", "m");
    image.result = Some(json(r#"{"content":"{\"type\":\"image\"}"}"#));
    for (answer, body) in [
        (Answer::Sample(Sampled::new("office \"supplies\"", "model")), r#""result":{"content":"office \"supplies\""}"#),
        (Answer::Sample(image), r#""result":{"content":"{\"type\":\"image\"}"}"#),
        (elicited(Elicited::Accept(json(r#"{"a":1}"#))), r#""result":{"action":"accept","value":{"a":1}}"#),
        (elicited(Elicited::Decline), r#""result":{"action":"decline"}"#),
        (elicited(Elicited::Cancel), r#""result":{"action":"cancel"}"#),
        (Answer::Confirm(true), r#""result":{"action":"accept"}"#),
        (Answer::Confirm(false), r#""result":{"action":"decline"}"#),
        (Answer::Refused(RpcError::new(-32006, "no")), r#""error":{"code":-32006,"message":"no"}"#),
        (Answer::Roots(json("[]")), r#""error":{"code":-32603,"message":"the answer has the wrong shape"}"#),
        (elicited(Elicited::Accept(json("[]"))), r#""error":{"code":-32603,"message":"the answer has the wrong shape"}"#),
    ] {
        let (mut gateway, _) = calling();
        gateway.frame(&sample(50, &named(1)));
        let key = gateway.question();
        gateway.session.provide_input(key, answer, gateway.now).unwrap();
        assert_eq!(gateway.sent(), [format!(r#"{{"jsonrpc":"2.0","id":50,{body}}}"#)]);
        assert_eq!(gateway.session.provide_input(key, Answer::Confirm(true), gateway.now), Err(NotLive));
    }
}

#[test]
fn item_80_what_the_agent_does_not_offer_is_refused_with_its_name() {
    let mut gateway = Scripted::unclaimed_gateway(gateway_config());
    gateway.session.claim(agent(), Capabilities::default(), 1, gateway.now).unwrap();
    gateway.invoke_action();
    for (method, code) in [("sampling/request", -32006), ("elicitation/request", -32007)] {
        let params = r#"{"invocationId":"inv_1","prompt":"?","question":"?","schema":{"type":"object"}}"#;
        gateway.frame(&request(50, method, params));
        assert_eq!(
            gateway.sent(),
            [format!(
                r#"{{"jsonrpc":"2.0","id":50,"error":{{"code":{code},"message":"the agent does not offer this","data":{{"clientName":"acme-cli"}}}}}}"#
            )]
        );
        assert_eq!(gateway.events(), [Event::Violation(Violation::UndeclaredInput)]);
    }
}

#[test]
fn item_87_a_form_that_is_no_flat_object_of_primitives_is_refused() {
    let (mut gateway, _) = calling();
    let property = |schema: &str| format!(r#"{{"type":"object","properties":{{"a":{schema}}}}}"#);
    for schema in [
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"type":"array"}"#.to_owned(),
        r#"{"type":["object"]}"#.to_owned(),
        r#"{"type":"object","oneOf":[]}"#.to_owned(),
        r#"{"type":"object","anyOf":[]}"#.to_owned(),
        r#"{"type":"object","allOf":[]}"#.to_owned(),
        r#"{"type":"object","not":{}}"#.to_owned(),
        property(r#"{"type":"object"}"#),
        property(r#"{"type":"array","items":{"type":"string"}}"#),
        property(r#"{"type":["string","null"]}"#),
        property(r#"{"enum":["x"]}"#),
    ] {
        gateway.frame(&request(
            50,
            "elicitation/request",
            &format!(r#"{{"invocationId":"inv_1","question":"?","schema":{schema}}}"#),
        ));
        expect_refused(&mut gateway, 50, -32602, &schema);
    }
    for schema in
        [r#"{"type":"object"}"#.to_owned(), r#"{"type":"object","properties":{}}"#.to_owned(), property(r#"{"type":"integer"}"#)]
    {
        gateway.drain();
        gateway.frame(&request(
            50,
            "elicitation/request",
            &format!(r#"{{"invocationId":"inv_1","question":"?","schema":{schema}}}"#),
        ));
        let key = gateway.question();
        gateway.session.provide_input(key, Answer::Elicit(Elicited::Decline), gateway.now).unwrap();
    }
}

/// Asks on behalf of `name` and expects to be told that there is no such invocation.
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
fn a_question_that_crosses_the_end_of_its_call_breaks_no_rule() {
    let mut pair = Pair::tesseron();
    for cancelled in [true, false] {
        let clocks = within(None, Some(50));
        let call = pair.client.invoke(call_action().with_timeouts(clocks));
        pair.run();
        let id = pair.server.request();
        pair.server.ask(id, Ask::from(Sample::new("?")));
        let question = pair.server.sent();
        if cancelled {
            pair.client.session.cancel(call, None, pair.client.now).unwrap();
        } else {
            pair.client.at(50);
        }
        pair.client.frame(&question[0]);
        pair.run();
        let events = pair.client.events();
        assert!(matches!(events[..], [Event::Done { .. }]), "{events:?}");
        let events = pair.server.events();
        assert!(matches!(events[..], [Event::Cancelled { .. }]), "{events:?}");
    }
}

#[test]
fn item_89_a_question_of_an_invocation_that_is_not_active_is_refused() {
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
    // One that has not left cannot have asked.
    gateway.invoke(call_action());
    let mut unsent = gateway.session.clone();
    unsent.handle_frame(sample(50, &named(3)).into(), Lane::CHANNEL, gateway.now).unwrap();
    assert!(!std::iter::from_fn(|| unsent.poll_event()).any(|event| matches!(event, Event::InputRequested { .. })));
    gateway.sent();
    gateway.frame(&sample(50, &named(3)));
    gateway.question();
}

#[test]
fn item_89_a_question_that_names_what_is_no_invocation_is_refused() {
    for call in unnamed() {
        let mut gateway = Scripted::gateway(gateway_config());
        gateway.invoke(call);
        gateway.sent();
        expect_no_such(&mut gateway, &named(1));
    }
}

// ---- Depth ----

/// Asks under call `number`, as question `id`, at a depth that must be admitted.
#[track_caller]
fn asked(gateway: &mut Scripted, id: u64, number: u64, expected: u8) -> InputKey {
    gateway.frame(&sample(id, &named(number)));
    let events = gateway.events();
    let [Event::InputRequested { key, depth, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(depth, expected);
    key
}

fn nested(gateway: &mut Scripted, parent: InputKey) {
    gateway.invoke(call_action().with_parent(parent));
    gateway.sent();
}

#[test]
fn item_90_sampling_nests_three_deep_and_the_fourth_is_refused() {
    let (mut gateway, _) = calling();
    // Numbers are given to calls and questions alike: the calls are 1, 3, 5 and 7.
    for (id, number, depth) in [(51, 1, 1), (52, 3, 2), (53, 5, 3)] {
        let key = asked(&mut gateway, id, number, depth);
        nested(&mut gateway, key);
    }
    gateway.frame(&sample(54, &named(7)));
    assert_eq!(
        gateway.sent(),
        [r#"{"jsonrpc":"2.0","id":54,"error":{"code":-32008,"message":"sampling is nested too deep","data":{"depth":4,"max":3}}}"#]
    );
    assert_eq!(gateway.events(), [Event::Violation(Violation::SamplingTooDeep)]);
    // A form does not nest, wherever it is asked.
    gateway.frame(&request(55, "elicitation/request", r#"{"invocationId":"inv_7","question":"?","schema":{"type":"object"}}"#));
    let events = gateway.events();
    assert!(matches!(events[..], [Event::InputRequested { depth: 3, .. }]), "{events:?}");
}

#[test]
fn item_90_siblings_share_a_depth_and_one_after_the_other_does_not_add_up() {
    let (mut gateway, _) = calling();
    let keys: Vec<_> = (51..60).map(|id| asked(&mut gateway, id, 1, 1)).collect();
    for key in keys {
        gateway.session.provide_input(key, Answer::Sample(Sampled::new("a", "")), gateway.now).unwrap();
    }
    gateway.drain();
    asked(&mut gateway, 60, 1, 1);
    // A call that nobody's question caused starts anew.
    let key = asked(&mut gateway, 61, 1, 1);
    nested(&mut gateway, key);
    let number = gateway.session.stats().outbound_calls;
    assert_eq!(number, 2);
    let root = gateway.invoke(call_action());
    let sent = gateway.sent();
    let name = sent[0].split(r#""invocationId":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
    gateway.frame(&sample(62, &name));
    let events = gateway.events();
    assert!(matches!(events[..], [Event::InputRequested { parent: Some(parent), depth: 1, .. }] if parent == root), "{events:?}");
}

#[test]
fn a_call_cannot_be_made_for_a_question_that_is_over() {
    let (mut gateway, _) = calling();
    let key = asked(&mut gateway, 51, 1, 1);
    gateway.session.provide_input(key, Answer::Sample(Sampled::new("a", "")), gateway.now).unwrap();
    gateway.sent();
    let call = call_action().with_parent(key);
    assert_eq!(gateway.session.invoke(call, gateway.now).unwrap_err().why, Refused::NoParent);
    gateway.expect_silence();
}

#[test]
fn item_91_however_a_call_ends_its_open_questions_are_gone_before_it_is_done() {
    type Ends = fn(&mut Scripted, OutboundId);
    let ends: [(&str, Ends); 6] = [
        ("result", |gateway, _| _ = gateway.frame(&invoked(1, &named(1), "1"))),
        ("error", |gateway, _| _ = gateway.frame(&error(1, -32002, "late"))),
        ("bare result", |gateway, _| _ = gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":7}"#)),
        ("cancel", |gateway, id| gateway.session.cancel(id, None, gateway.now).unwrap()),
        ("close", |gateway, _| gateway.session.close(protocol_core::Close::Now, gateway.now)),
        ("lost", |gateway, _| gateway.session.handle_end(TransportEnd::Failed, gateway.now)),
    ];
    for (name, ending) in ends {
        let (mut gateway, id) = calling();
        gateway.frame(&sample(51, &named(1)));
        let first = gateway.question();
        gateway.frame(&request(52, "elicitation/request", r#"{"invocationId":"inv_1","question":"?","schema":{"type":"object"}}"#));
        let second = gateway.question();
        ending(&mut gateway, id);
        let events: Vec<_> =
            gateway.events().into_iter().filter(|event| !matches!(event, Event::Violation(_) | Event::Closed(_))).collect();
        assert_eq!(events[..2], [Event::InputGone { key: first }, Event::InputGone { key: second }], "{name}");
        assert!(matches!(events[2..], [Event::Done { id: other, .. }] if other == id), "{name}: {events:?}");
        let answers: Vec<_> = gateway.sent().into_iter().filter(|frame| !frame.contains("actions/cancel")).collect();
        assert_eq!(answers, if name == "lost" { vec![] } else { vec![over(51), over(52)] }, "{name}");
        for key in [first, second] {
            assert_eq!(gateway.session.provide_input(key, Answer::Confirm(true), gateway.now), Err(NotLive), "{name}");
        }
    }
}

// ---- Resources and lists ----

#[test]
fn items_94_98_99_a_subscription_may_be_told_of_a_value_before_it_is_acknowledged_and_its_failure_is_an_error() {
    let subscribe = || Invoke::subscribe("balance").with_subscription("s");
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke(subscribe());
    gateway.sent();
    gateway.frame(&notification("resources/updated", r#"{"subscriptionId":"s","value":{"cents":1000}}"#));
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":null}"#);
    gateway.frame(&notification("resources/updated", r#"{"subscriptionId":"s"}"#));
    let value = |value: &str| Event::Notice(Notice::ResourceValue { subscription: "s".into(), uri: "".into(), value: json(value) });
    assert_eq!(gateway.events(), [value(r#"{"cents":1000}"#), done(id, Outcome::Result(json("null"))), value("null")]);

    let id = gateway.invoke(subscribe());
    gateway.sent();
    gateway.frame(&error(2, -32003, "Resource not subscribable: balance"));
    assert_eq!(gateway.events(), [done(id, Outcome::Error(RpcError::new(-32003, "Resource not subscribable: balance")))]);
    assert_eq!(gateway.session.stats().outbound_calls, 0);
}

#[test]
fn item_93_the_value_of_a_resource_is_handed_on_as_it_is() {
    let mut gateway = Scripted::gateway(gateway_config());
    let id = gateway.invoke(Invoke::read_resource("balance"));
    gateway.sent();
    gateway.frame(r#"{"jsonrpc":"2.0","id":1,"result":{"value":{ "cents" : 9.910e2 }}}"#);
    assert_eq!(gateway.events(), [done(id, Outcome::Result(json(r#"{"value":{ "cents" : 9.910e2 }}"#)))]);
}

#[test]
fn item_100_a_list_that_changed_is_told_as_a_whole_claimed_or_not() {
    for mut gateway in [Scripted::gateway(gateway_config()), Scripted::unclaimed_gateway(gateway_config())] {
        gateway.frame(&notification("actions/list_changed", r#"{"actions":[{"name":"void_entry"}],"more":1}"#));
        gateway.frame(&notification("resources/list_changed", r#"{"resources":[]}"#));
        assert_eq!(
            gateway.events(),
            [Event::Notice(Notice::Actions(json(r#"[{"name":"void_entry"}]"#))), Event::Notice(Notice::Resources(json("[]")))]
        );
    }
}

// ---- Both ends ----

#[test]
fn a_cancel_that_crosses_the_result_leaves_both_ends_empty() {
    let mut pair = Pair::tesseron();
    let now = pair.client.now;
    let call = pair.client.invoke(call_action());
    pair.run();
    let id = pair.server.request();
    pair.server.respond(id);
    pair.client.session.cancel(call, None, now).unwrap();
    pair.run();
    assert_eq!(pair.client.outcome(), Outcome::Cancelled);
    assert_eq!(pair.server.events(), []);
    assert_eq!((pair.client.session.stats().outbound_calls, pair.server.session.stats().inbound_calls), (0, 0));
}

#[test]
fn a_partial_result_crosses_the_wire_when_a_gateway_waits_for_it() {
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

#[test]
fn an_app_that_times_out_tells_its_gateway_and_a_gateway_that_times_out_tells_its_app() {
    let mut pair = Pair::tesseron();
    let call = pair.client.invoke(call_action());
    pair.run();
    pair.server.request();
    pair.at(60_000);
    assert_eq!(pair.client.events(), [done(call, Outcome::Error(RpcError::new(-32002, "Action timed out.")))]);

    let call = pair.client.invoke(call_action().with_timeouts(within(None, Some(10))));
    pair.run();
    pair.server.events();
    pair.at(60_010);
    assert_eq!(pair.client.events(), [done(call, Outcome::TimedOut(TimeoutKind::MaxTotal))]);
    assert!(matches!(pair.server.events()[..], [Event::Cancelled { why: protocol_core::CancelReason::Peer(None), .. }]));
}
