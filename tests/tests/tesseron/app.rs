//! The app end of Tesseron: invocations, progress, log, input requests and resources, as far as a session handles them
//! (`docs/protocols/tesseron.md`, "Invocations" to "Log"). The endpoint checks inputs and outputs against their schemas.
//! In names of tests, `item` and a number cite a rule of that page (section "Former numbers").

use std::time::Duration;

use protocol_core::{
    AskError, CancelReason, Content, Elicit, ElicitResult, Event, InboundId, InputFailed, InputKey, InputRequest, InputResponse,
    Level, LogRecord, Logged, NotFound, NotLive, Notification, Op, Progress, ProgressError, RateWindow, Reply, Reported, Request,
    RpcError, Sample, SendError, ServeOptions, ToolOutput, Violation,
};
use testkit::Scripted;
use testkit::config::app_config;
use testkit::scripted::{error, json, notification, request};
use testkit::tesseron::{WELCOME, cancel, invoke, invoked, progress};

const CANCELLED: &str = r#""error":{"code":-32001,"message":"Action invocation was cancelled."}"#;
const TIMED_OUT: &str = r#""error":{"code":-32002,"message":"Action timed out."}"#;

fn cancelled(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{CANCELLED}}}"#)
}

fn timed_out(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},{TIMED_OUT}}}"#)
}

/// An app that serves the invocation `i1`, which is request 7.
fn serving() -> (Scripted, InboundId) {
    let mut app = Scripted::app(app_config());
    let id = app.receive_invoke(7, "i1");
    (app, id)
}

fn record(level: Level, data: &str) -> LogRecord {
    LogRecord::new(level, json(data))
}

/// Checks that every method that a handler could call for the ended invocation `id` is refused, and that no frame is sent.
#[track_caller]
fn expect_ended(app: &mut Scripted, id: InboundId, why: &str) {
    app.drain();
    let now = app.now;
    assert_eq!(app.session.progress(id, Progress::percent(99.0), now), Err(ProgressError::NotLive), "{why}");
    assert_eq!(app.session.log(Some(id), record(Level::Error, "\"x\""), now), Err(NotLive), "{why}");
    for ask in [InputRequest::from(Sample::new("?")), InputRequest::Confirm { message: "?".into() }] {
        assert_eq!(app.session.request_input(id, ask, now), Err(AskError::NotLive), "{why}");
    }
    app.session.checkpoint(id, json("{}")).unwrap_err();
    assert_eq!(app.session.configure(id, ServeOptions::default(), now), Err(NotLive), "{why}");
    assert_eq!(app.session.respond(id, Reply::Tool(ToolOutput::text("late")), now), Err(NotLive), "{why}");
    app.at(1_000_000).expect_silence();
}

// ---- Results ----

#[test]
fn item_40_a_result_has_the_invocation_id_and_always_an_output() {
    let block = Content::Raw(json(r#"{"type":"image","data":"","mimeType":"image/png"}"#));
    for (reply, output) in [
        (Reply::Tool(ToolOutput::text("e-19 \"x\"")), r#""e-19 \"x\"""#),
        (Reply::Tool(ToolOutput::structured(json(r#"{"entry":"e-19"}"#))), r#"{"entry":"e-19"}"#),
        (Reply::Tool(ToolOutput::structured(json("null"))), "null"),
        (Reply::Tool(ToolOutput::structured(json("[1, 2]"))), "[1, 2]"),
        (Reply::Tool(ToolOutput::default()), "null"),
        (
            Reply::Tool(ToolOutput::blocks([Content::Text("a".into()), Content::Text("b".into())])),
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
        ),
        (Reply::Tool(ToolOutput::blocks([block])), r#"{"content":[{"type":"image","data":"","mimeType":"image/png"}]}"#),
        (Reply::Done, "null"),
    ] {
        let (mut app, id) = serving();
        assert_eq!(app.reply(id, reply.clone()).sent(), [invoked(7, "i1", output)], "{reply:?}");
        assert_eq!(app.session.stats().inbound_calls, 0);
    }
}

#[test]
fn item_40_a_result_has_the_invocation_id_as_it_was_written() {
    for (given, back) in
        [(r#""""#, r#""""#), (r#""\u0069nv \"1\"""#, r#""inv \"1\"""#), (r#""\n""#, r#""\n""#), ("\"\u{e9}\"", "\"\u{e9}\"")]
    {
        let mut app = Scripted::app(app_config());
        app.frame(&request(7, "actions/invoke", &format!(r#"{{"name":"t","input":1,"invocationId":{given}}}"#)));
        let id = app.request();
        app.report(id, Progress::percent(1.0));
        app.respond(id);
        assert_eq!(
            app.sent(),
            [
                notification("actions/progress", &format!(r#"{{"invocationId":{back},"percent":1}}"#)),
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"invocationId":{back},"output":"ok"}}}}"#)
            ]
        );
    }
}

#[test]
fn item_41_an_unknown_action_has_an_error_code_of_its_own() {
    let (mut app, id) = serving();
    app.reply(id, Reply::NotFound(NotFound::Tool("t".into())));
    assert_eq!(app.sent(), [error(7, -32003, "Action not found: t")]);
}

#[test]
fn item_43_the_input_reaches_the_handler_unchanged_and_a_missing_input_is_null() {
    for (given, arguments) in [
        (r#","input":{ "n" : 1.50e+3 }"#, r#"{ "n" : 1.50e+3 }"#),
        (r#","input":null"#, "null"),
        (r#","input":"x""#, r#""x""#),
        (r#","input":[]"#, "[]"),
        ("", "null"),
    ] {
        let mut app = Scripted::app(app_config());
        app.frame(&request(
            7,
            "actions/invoke",
            &format!(r#"{{"name":"t","invocationId":"i1"{given},"client":{{"route":"/a"}}}}"#),
        ));
        let events = app.events();
        let [Event::Request { request: Request::CallTool(call), depth: 0, observed: true, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((&*call.name(), call.arguments().unwrap_or_default().as_str()), ("t", arguments));
    }
}

#[test]
fn items_42_46_an_error_is_sent_with_its_code_its_message_and_its_data() {
    for (code, data) in [(-32004, r#"[{"message":"too small","path":["cents"]}]"#), (-32005, r#"{"raw":"x"}"#), (17, "null")] {
        let given = RpcError::new(code, "Invalid \"input\"").with_data(json(data));
        for reply in [Reply::Error(given.clone()), Reply::Tool(ToolOutput::rpc_error(given.clone()))] {
            let (mut app, id) = serving();
            app.reply(id, reply);
            assert_eq!(
                app.sent(),
                [format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":{code},"message":"Invalid \"input\"","data":{data}}}}}"#)]
            );
        }
    }
}

#[test]
fn item_47_a_failure_without_a_code_is_sent_as_an_internal_error() {
    let (mut app, id) = serving();
    app.reply(id, Reply::Tool(ToolOutput::error("disk full")));
    assert_eq!(app.sent(), [error(7, -32603, "disk full")]);
}

// ---- Deadlines, cancels and their races ----

#[test]
fn item_48_an_invocation_times_out_after_sixty_seconds_and_not_before() {
    let (mut app, id) = serving();
    app.at(59_999).expect_silence();
    assert_eq!(app.session.poll_timeout(), Some(protocol_core::Instant::from_millis(60_000)));
    app.at(60_000);
    assert_eq!((app.events(), app.sent()), (vec![Event::Cancelled { id, why: CancelReason::Deadline }], vec![timed_out(7)]));
}

#[test]
fn item_48_an_action_may_have_another_deadline_and_times_out_at_once_if_it_is_zero() {
    let (mut app, id) = serving();
    app.session.configure(id, ServeOptions::default().with_deadline(Duration::from_millis(250)), app.now).unwrap();
    app.at(249).expect_silence();
    assert_eq!(app.at(250).sent(), [timed_out(7)]);

    let (mut app, id) = serving();
    app.session.configure(id, ServeOptions::default().with_deadline(Duration::from_secs(7_200)), app.now).unwrap();
    app.at(7_199_999).expect_silence();
    assert_eq!(app.at(7_200_000).sent(), [timed_out(7)]);

    let (mut app, id) = serving();
    app.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), app.now).unwrap();
    assert_eq!((app.events(), app.sent()), (vec![Event::Cancelled { id, why: CancelReason::Deadline }], vec![timed_out(7)]));

    // A deadline that is too far away for an `Instant` counts as none.
    let (mut app, id) = serving();
    app.session.configure(id, ServeOptions::default().with_deadline(Duration::MAX), app.now).unwrap();
    app.at(u64::MAX / 2_000).expect_silence();
    assert_eq!(app.respond(id).sent().len(), 1);
}

#[test]
fn the_deadline_of_an_invocation_goes_on_while_an_input_request_is_open() {
    let (mut app, id) = serving();
    app.ask(id, InputRequest::Confirm { message: "?".into() });
    app.sent();
    assert_eq!(app.at(60_000).sent(), [timed_out(7)]);
}

#[test]
fn items_49_50_a_cancelled_or_timed_out_invocation_is_answered_at_once_even_if_its_handler_never_returns() {
    let (mut app, id) = serving();
    app.frame(&cancel("i1"));
    assert_eq!((app.events(), app.sent()), (vec![Event::Cancelled { id, why: CancelReason::Peer(None) }], vec![cancelled(7)]));
    let other = app.receive_invoke(8, "i2");
    app.at(60_000);
    assert_eq!((app.events(), app.sent()), (vec![Event::Cancelled { id: other, why: CancelReason::Deadline }], vec![timed_out(8)]));
    assert_eq!(app.session.stats().cancelled_calls, 2);
    app.at(1_000_000).expect_silence();
}

#[test]
fn items_51_52_a_cancel_takes_effect_before_the_owner_has_polled_the_invocation() {
    let mut app = Scripted::app(app_config());
    app.frame(&invoke(7, "i1")).frame(&cancel("i1"));
    assert_eq!(app.sent(), [cancelled(7)]);
    let events = app.events();
    let [Event::Request { id, .. }, Event::Cancelled { id: other, why: CancelReason::Peer(None) }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(id, other);
    expect_ended(&mut app, id, "cancelled");
}

/// A way to end an invocation: its name, the step, and the frame of the response to the request with a given id.
type Ends = (&'static str, fn(&mut Scripted, InboundId), fn(u64) -> String);

const ENDS: [Ends; 4] = [
    (
        "result",
        |app, id| _ = app.session.respond(id, Reply::Tool(ToolOutput::text("ok")), app.now),
        |id| invoked(id, "i1", "\"ok\""),
    ),
    ("error", |app, id| _ = app.session.respond(id, Reply::Error(RpcError::new(5, "no")), app.now), |id| error(id, 5, "no")),
    ("cancel", |app, _| _ = app.frame(&cancel("i1")), cancelled),
    ("timeout", |app, _| _ = app.at(60_000), timed_out),
];

#[test]
fn items_53_54_55_the_first_of_result_cancel_and_timeout_decides_and_there_is_one_response() {
    for (first, begin, frame) in ENDS {
        for (second, follow, _) in ENDS {
            for (third, last, _) in ENDS {
                let (mut app, id) = serving();
                begin(&mut app, id);
                follow(&mut app, id);
                last(&mut app, id);
                app.at(200_000);
                assert_eq!(app.sent(), [frame(7)], "{first}, {second}, {third}");
                let cancels = app.events().into_iter().filter(|event| matches!(event, Event::Cancelled { .. })).count();
                assert_eq!(cancels, usize::from(matches!(first, "cancel" | "timeout")), "{first}, {second}, {third}");
                let _ = app.session.respond(id, Reply::Done, app.now);
                assert_eq!((app.session.stats().inbound_calls, app.session.poll_timeout()), (0, None));
            }
        }
    }
}

#[test]
fn a_cancel_finds_its_invocation_even_if_the_id_is_written_with_escapes() {
    let (mut app, id) = serving();
    app.frame(r#"{"jsonrpc":"2.0","method":"actions/cancel","params":{"invocationId":"\u00691"}}"#);
    assert_eq!(app.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }]);
}

#[test]
fn item_56_a_second_invocation_with_an_id_in_use_is_refused_and_the_first_goes_on() {
    let (mut app, id) = serving();
    app.frame(&invoke(8, "i1"));
    assert_eq!(app.sent(), [error(8, -32600, "an invocation of that name is active")]);
    assert_eq!(app.events(), [Event::Violation(Violation::DuplicateRequest)]);
    app.report(id, Progress::percent(5.0));
    assert_eq!(app.sent(), [progress("i1", r#","percent":5"#)]);
    app.frame(&cancel("i1"));
    assert_eq!((app.events(), app.sent()), (vec![Event::Cancelled { id, why: CancelReason::Peer(None) }], vec![cancelled(7)]));
}

#[test]
fn item_56_a_second_request_with_a_request_id_in_use_is_not_answered_and_the_first_goes_on() {
    let (mut app, id) = serving();
    app.frame(&invoke(7, "i2"));
    assert_eq!((app.events(), app.sent()), (vec![Event::Violation(Violation::DuplicateRequest)], vec![]));
    app.frame(&cancel("i2")).expect_silence();
    assert_eq!(app.respond(id).sent(), [invoked(7, "i1", "\"ok\"")]);
    // The invocation id of the refused request is still free.
    let again = app.receive_invoke(8, "i2");
    assert_eq!(app.respond(again).sent(), [invoked(8, "i2", "\"ok\"")]);
}

#[test]
fn item_57_an_invocation_id_can_be_reused_once_settled_even_while_the_old_handler_runs() {
    for (name, ends, _) in ENDS {
        let (mut app, old) = serving();
        ends(&mut app, old);
        app.drain();
        let new = app.receive_invoke(8, "i1");
        // The end of the old handler must not end the new invocation.
        let _ = app.session.respond(old, Reply::Tool(ToolOutput::text("late")), app.now);
        assert_eq!(app.sent(), Vec::<String>::new(), "{name}");
        app.report(new, Progress::percent(5.0));
        assert_eq!(app.sent(), [progress("i1", r#","percent":5"#)], "{name}");
        app.frame(&cancel("i1"));
        assert_eq!(
            (app.events(), app.sent()),
            (vec![Event::Cancelled { id: new, why: CancelReason::Peer(None) }], vec![cancelled(8)]),
            "{name}"
        );
    }
}

#[test]
fn item_60_a_settled_invocation_sends_no_more_frames() {
    for (name, ends, _) in ENDS {
        let (mut app, id) = serving();
        ends(&mut app, id);
        expect_ended(&mut app, id, name);
    }
}

#[test]
fn a_checkpoint_is_sent_with_the_response_after_a_cancel_a_deadline_or_a_failure() {
    for ((_, ends, _), status) in ENDS.into_iter().skip(1).zip(["failed", "cancelled", "timeout"]) {
        let (mut app, id) = serving();
        app.session.checkpoint(id, json(r#"{"results":[1]}"#)).unwrap();
        ends(&mut app, id);
        let sent = app.sent();
        let data = format!(r#""data":{{"partial":{{"status":"{status}","results":[1]}}}}"#);
        assert!(sent.len() == 1 && sent[0].contains(&data), "{sent:?}");
    }
}

// ---- Progress and log ----

#[test]
fn item_69_progress_is_any_subset_of_percent_message_and_data() {
    let data = || json(r#"{"page":7}"#);
    for (update, members) in [
        (Progress::percent(35.0), r#","percent":35"#),
        (Progress::message("7/20 pages"), r#","message":"7/20 pages""#),
        (Progress::default().with_data(data()), r#","data":{"page":7}"#),
        (Progress::percent(33.3).with_message("m"), r#","percent":33.3,"message":"m""#),
        (Progress::percent(0.0).with_data(data()), r#","percent":0,"data":{"page":7}"#),
        (Progress::message("m").with_data(data()), r#","message":"m","data":{"page":7}"#),
        (Progress::percent(100.0).with_message("m").with_data(data()), r#","percent":100,"message":"m","data":{"page":7}"#),
        (Progress::default(), ""),
        (Progress::step(1, 4), r#","percent":25"#),
    ] {
        let (mut app, id) = serving();
        assert_eq!(app.report(id, update), Reported::Sent);
        assert_eq!(app.sent(), [progress("i1", members)]);
    }
}

#[test]
fn item_70_a_percentage_is_a_number_between_0_and_100() {
    let (mut app, id) = serving();
    for update in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Progress::percent) {
        assert_eq!(app.session.progress(id, update, app.now), Err(ProgressError::NotFinite));
    }
    assert_eq!(app.session.progress(id, Progress::percent(-1.0), app.now), Err(ProgressError::Negative));
    assert_eq!(app.session.progress(id, Progress::percent(101.0), app.now), Err(ProgressError::AboveTotal));
    assert_eq!(app.sent(), Vec::<String>::new());
    // Without a total, the value is the percentage, and at most 100 is sent.
    app.report(id, Progress::value(150.0));
    assert_eq!(app.sent(), [progress("i1", r#","percent":100"#)]);
}

#[test]
fn item_71_a_percentage_never_falls() {
    let (mut app, id) = serving();
    for value in [10.0, 5.0, 10.0, 55.0, 54.9, 0.0, 100.0, 100.0, 99.0] {
        app.report(id, Progress::percent(value));
    }
    assert_eq!(app.sent(), [10, 55, 100].map(|percent| progress("i1", &format!(r#","percent":{percent}"#))));
    // The message of an update whose percentage falls is still sent.
    app.report(id, Progress::percent(20.0).with_message("again"));
    assert_eq!(app.sent(), [progress("i1", r#","message":"again""#)]);
    // A greater total does not lower the percentage.
    let (mut app, id) = serving();
    app.report(id, Progress::step(5, 10));
    app.report(id, Progress::step(6, 100));
    app.report(id, Progress::step(60, 100));
    assert_eq!(app.sent(), [50, 60].map(|percent| progress("i1", &format!(r#","percent":{percent}"#))));
}

#[test]
fn progress_is_sent_about_twice_a_second_except_for_the_last_update() {
    let mut app = Scripted::app(testkit::config::with(app_config(), |config| {
        config.progress.window = RateWindow::new(10, Duration::from_secs(5))
    }));
    let id = app.receive_invoke(7, "i1");
    for percent in 1..=90_u32 {
        app.at(u64::from(percent) * 100);
        app.report(id, Progress::percent(percent.into()));
    }
    let sent = app.sent();
    assert!(sent.len() <= 20, "{} in nine seconds", sent.len());
    app.report(id, Progress::percent(100.0));
    assert_eq!(app.sent(), [progress("i1", r#","percent":100"#)]);
}

#[test]
fn item_79_a_log_record_is_sent_unchanged_with_or_without_an_invocation() {
    let (mut app, id) = serving();
    let now = app.now;
    for (invocation, level, data, params) in [
        (
            Some(id),
            Level::Warning,
            r#"{"message":"retrying","attempt":2}"#,
            r#"{"invocationId":"i1","level":"warn","message":"retrying","meta":{"attempt":2}}"#,
        ),
        (None, Level::Debug, r#""plain""#, r#"{"level":"debug","message":"plain"}"#),
        (None, Level::Info, r#""a""#, r#"{"level":"info","message":"a"}"#),
        (None, Level::Notice, r#""a""#, r#"{"level":"info","message":"a"}"#),
        (None, Level::Error, r#""a""#, r#"{"level":"error","message":"a"}"#),
        (None, Level::Emergency, r#""a""#, r#"{"level":"error","message":"a"}"#),
    ] {
        assert_eq!(app.session.log(invocation, record(level, data), now), Ok(Logged::Sent));
        assert_eq!(app.sent(), [notification("log", params)]);
    }
}

/// A regression: the data was sent as JSON text in `message`, and objects a second time in `meta`.
#[test]
fn regression_log_data_that_is_not_text_is_sent_once_and_unchanged() {
    let (mut app, _) = serving();
    let now = app.now;
    for (data, params) in [
        (r#"{"a":[1,{"b":"c"}]}"#, r#"{"level":"info","message":"","meta":{"a":[1,{"b":"c"}]}}"#),
        (r#"[1,"x"]"#, r#"{"level":"info","message":"","meta":{"data":[1,"x"]}}"#),
        ("7.50", r#"{"level":"info","message":"","meta":{"data":7.50}}"#),
        ("null", r#"{"level":"info","message":"","meta":{"data":null}}"#),
        ("{}", r#"{"level":"info","message":""}"#),
        (r#"{"message":[1],"a":2}"#, r#"{"level":"info","message":"","meta":{"data":{"message":[1],"a":2}}}"#),
        (r#"{"message":"m","logger":"own"}"#, r#"{"level":"info","message":"m","meta":{"logger":"own"}}"#),
    ] {
        assert_eq!(app.session.log(None, record(Level::Info, data), now), Ok(Logged::Sent));
        assert_eq!(app.sent(), [notification("log", params)], "{data}");
    }
}

// ---- Input requests ----

#[test]
fn item_80_an_input_request_that_the_agent_does_not_support_is_refused_and_not_sent() {
    for (missing, ask) in [
        ("sampling", InputRequest::from(Sample::new("?"))),
        ("elicitation", InputRequest::Confirm { message: "?".into() }),
        ("elicitation", InputRequest::Elicit(Elicit::new("?", json(r#"{"type":"object"}"#)))),
    ] {
        let mut app = Scripted::new(app_config());
        app.drain().frame(&WELCOME.replace(&format!(r#""{missing}":true"#), &format!(r#""{missing}":false"#))).drain();
        let id = app.receive_invoke(7, "i1");
        assert_eq!(app.session.request_input(id, ask, app.now), Err(AskError::Unsupported));
        app.expect_silence();
    }
}

#[test]
fn item_81_a_sampling_request_has_a_schema_and_a_maximum_only_if_they_were_given() {
    let mut with_all = Sample::new("Name the \"category\"");
    (with_all.schema, with_all.max_tokens) = (Some(json(r#"{"type":"string"}"#)), Some(64));
    let mut raw = Sample::new("not this");
    raw.params = Some(json(r#"{"invocationId":"forged","prompt":"raw","extra":1}"#));
    for (sample, params) in [
        (Sample::new("Name it"), r#"{"invocationId":"i1","prompt":"Name it"}"#),
        (with_all, r#"{"invocationId":"i1","prompt":"Name the \"category\"","schema":{"type":"string"},"maxTokens":64}"#),
        (raw, r#"{"invocationId":"i1","prompt":"raw","extra":1}"#),
    ] {
        let (mut app, id) = serving();
        app.ask(id, sample.into());
        assert_eq!(app.sent(), [request(3, "sampling/request", params)]);
    }
}

/// The answer to the input request `key`.
#[track_caller]
fn answer(app: &mut Scripted, key: InputKey) -> Result<InputResponse, InputFailed> {
    let events = app.events();
    let found = events.iter().find_map(|event| match event {
        Event::Input { key: other, answer, .. } if *other == key => Some(answer.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no answer among {events:?}"))
}

/// Answers the request 3, which is the first input request of an app.
fn respond_to_3(app: &mut Scripted, result: &str) {
    app.frame(&format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#));
}

#[test]
fn item_83_the_content_of_a_sampling_answer_is_handed_on_as_text_or_as_unchanged_json() {
    for (content, text) in [
        (r#""office supplies""#, "office supplies"),
        (r#""{\"a\":1}""#, r#"{"a":1}"#),
        (r#"{ "type":"text","text":"x"}"#, r#"{ "type":"text","text":"x"}"#),
        ("[1]", "[1]"),
        ("null", "null"),
        ("5", "5"),
    ] {
        let (mut app, id) = serving();
        let key = app.ask(id, InputRequest::from(Sample::new("?")));
        app.sent();
        respond_to_3(&mut app, &format!(r#"{{"content":{content}}}"#));
        let Ok(InputResponse::Sample(sampled)) = answer(&mut app, key) else { panic!("no sample") };
        assert_eq!(sampled.text, text);
        assert_eq!(sampled.result.unwrap().member("content").unwrap().as_str(), content);
    }
    for result in ["{}", "null", "[]", r#""x""#] {
        let (mut app, id) = serving();
        let key = app.ask(id, InputRequest::from(Sample::new("?")));
        app.sent();
        respond_to_3(&mut app, result);
        assert_eq!(answer(&mut app, key), Err(InputFailed::Invalid("`content` is missing".into())), "{result}");
    }
}

#[test]
fn item_84_a_confirmation_is_sent_as_an_empty_form_and_accepting_it_needs_no_value() {
    for result in [r#"{"action":"accept"}"#, r#"{"action":"accept","value":{}}"#, r#"{"action":"accept","value":null}"#] {
        let (mut app, id) = serving();
        let key = app.ask(id, InputRequest::Confirm { message: "Book it?".into() });
        let params = r#"{"invocationId":"i1","question":"Book it?","schema":{"type":"object","properties":{},"required":[]}}"#;
        assert_eq!(app.sent(), [request(3, "elicitation/request", params)]);
        respond_to_3(&mut app, result);
        assert_eq!(answer(&mut app, key), Ok(InputResponse::Confirm(true)), "{result}");
    }
}

#[test]
fn item_85_every_answer_to_a_confirmation_but_an_acceptance_is_a_no() {
    // A confirmation never fails (see `InputRequest::Confirm`), whatever the code of the error.
    let frames = [
        r#"{"jsonrpc":"2.0","id":3,"result":{"action":"decline"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":3,"result":{"action":"cancel"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":3,"result":{"action":"ACCEPT"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":3,"result":{"action":true}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":3,"result":null}"#.to_owned(),
        error(3, -32007, "not available"),
        error(3, -32603, "failed"),
    ];
    for frame in frames {
        let (mut app, id) = serving();
        let key = app.ask(id, InputRequest::Confirm { message: "?".into() });
        app.sent();
        app.frame(&frame);
        assert_eq!(answer(&mut app, key), Ok(InputResponse::Confirm(false)), "{frame}");
    }
}

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string"},"count":{"type":"integer"}},"required":["name"]}"#;

#[test]
fn item_86_an_answer_that_does_not_fit_its_form_is_invalid() {
    for (result, expected) in [
        (r#"{"action":"accept","value":{"name":"x","count":3}}"#, Ok(ElicitResult::Accept(json(r#"{"name":"x","count":3}"#)))),
        (r#"{"action":"decline"}"#, Ok(ElicitResult::Decline)),
        (r#"{"action":"cancel","value":{"name":"x"}}"#, Ok(ElicitResult::Cancel)),
        (r#"{"action":"accept"}"#, Err("`value` is missing or no object")),
        (r#"{"action":"accept","value":null}"#, Err("`value` is missing or no object")),
        (r#"{"action":"accept","value":[]}"#, Err("`value` is missing or no object")),
        (r#"{"action":"accept","value":{}}"#, Err("name is missing")),
        (r#"{"action":"accept","value":{"name":5}}"#, Err("name must be text")),
        (r#"{"action":"accept","value":{"name":"x","count":1.5}}"#, Err("count must be a whole number")),
        (r#"{"action":"accept","value":{"name":"x","more":1}}"#, Err(r#""more" was not asked for"#)),
        (r#"{"action":"later"}"#, Err("`action` is missing or unknown")),
        ("null", Err("`action` is missing or unknown")),
    ] {
        let (mut app, id) = serving();
        let key = app.ask(id, InputRequest::Elicit(Elicit::new("Who?", json(FORM))));
        assert_eq!(
            app.sent(),
            [request(3, "elicitation/request", &format!(r#"{{"invocationId":"i1","question":"Who?","schema":{FORM}}}"#))]
        );
        respond_to_3(&mut app, result);
        let expected = expected.map(InputResponse::Elicit).map_err(|why| InputFailed::Invalid(why.into()));
        assert_eq!(answer(&mut app, key), expected, "{result}");
    }
}

#[test]
fn item_87_a_form_that_is_not_a_flat_object_of_primitives_is_not_sent() {
    for (schema, fits) in [
        (r#"{"type":"object"}"#, true),
        (FORM, true),
        (r#"{"type":"object","properties":{"a":{"type":"boolean","default":true}}}"#, true),
        ("null", false),
        ("{}", false),
        (r#"{"type":"string"}"#, false),
        (r#"{"type":"object","anyOf":[]}"#, false),
        // MCP has these fields, and Tesseron has not.
        (r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}}}}"#, false),
        (r#"{"type":"object","properties":{"a":{"type":"string","oneOf":[{"const":"x"}]}}}"#, false),
        (r#"{"type":"object","properties":{"a":{"type":["string","null"]}}}"#, false),
    ] {
        let (mut app, id) = serving();
        let asked = app.session.request_input(id, InputRequest::Elicit(Elicit::new("?", json(schema))), app.now);
        assert!(if fits { asked.is_ok() } else { matches!(asked, Err(AskError::Invalid(_))) }, "{schema}: {asked:?}");
        assert_eq!(app.sent().len(), usize::from(fits), "{schema}");
    }
}

#[test]
fn item_84_an_empty_form_may_be_accepted_without_a_value() {
    let (mut app, id) = serving();
    let key = app.ask(id, InputRequest::Elicit(Elicit::new("?", json(r#"{"type":"object"}"#))));
    app.sent();
    respond_to_3(&mut app, r#"{"action":"accept"}"#);
    assert_eq!(answer(&mut app, key), Ok(InputResponse::Elicit(ElicitResult::Accept(json("{}")))));
}

#[test]
fn a_sampling_request_that_the_gateway_would_refuse_is_not_sent() {
    let sample = |change: fn(&mut Sample)| {
        let mut sample = Sample::new("?");
        change(&mut sample);
        sample
    };
    for bad in [
        sample(|sample| sample.max_tokens = Some(0)),
        sample(|sample| sample.params = Some(json("[]"))),
        sample(|sample| sample.params = Some(json("{}"))),
        sample(|sample| sample.params = Some(json(r#"{"prompt":1}"#))),
        sample(|sample| sample.params = Some(json(r#"{"prompt":"?","maxTokens":0}"#))),
    ] {
        let (mut app, id) = serving();
        let asked = app.session.request_input(id, bad.clone().into(), app.now);
        assert!(matches!(asked, Err(AskError::Invalid(_))), "{bad:?}: {asked:?}");
        app.expect_silence();
    }
}

#[test]
fn item_88_the_end_of_an_invocation_ends_its_input_requests_without_a_frame() {
    for (name, ends, frame) in ENDS {
        let (mut app, id) = serving();
        let keys = [app.ask(id, InputRequest::from(Sample::new("?"))), app.ask(id, InputRequest::Confirm { message: "?".into() })];
        app.sent();
        ends(&mut app, id);
        assert_eq!(app.sent(), [frame(7)], "{name}: Tesseron has no cancel for an input request");
        assert!(!app.events().iter().any(|event| matches!(event, Event::Input { .. })), "{name}");
        respond_to_3(&mut app, r#"{"content":"late"}"#);
        app.frame(&error(4, -32007, "late")).expect_silence();
        assert_eq!(app.session.stats().late_frames, 2, "{name}");
        for key in keys {
            assert_eq!(app.session.abandon_input(key, app.now), Err(NotLive));
        }
    }
}

#[test]
fn an_error_answer_of_the_gateway_is_reported_with_its_code_and_its_data() {
    for code in [-32006, -32007, -32008, -32009, -32602, -32603] {
        let (mut app, id) = serving();
        let key = app.ask(id, InputRequest::from(Sample::new("?")));
        app.sent();
        app.frame(&format!(r#"{{"jsonrpc":"2.0","id":3,"error":{{"code":{code},"message":"no","data":{{"clientName":"c"}}}}}}"#));
        let refused = RpcError::new(code, "no").with_data(json(r#"{"clientName":"c"}"#));
        assert_eq!(answer(&mut app, key), Err(InputFailed::Refused(refused)));
    }
}

// ---- Resources ----

/// Receives a request for a resource. Returns the id of the inbound call, its operation, and its URI and subscription id as `URI ID`.
fn receive(app: &mut Scripted, id: u64, method: &str, params: &str) -> (InboundId, Op, String) {
    app.frame(&request(id, method, params));
    let events = app.events();
    let [Event::Request { id, request, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(request.params().as_str(), params, "verbatim");
    let named = match request {
        Request::Subscribe(request) => request.subscription(),
        Request::Unsubscribe(request) => request.subscription(),
        _ => None,
    };
    (*id, request.op(), format!("{} {}", request.target().unwrap_or_default(), named.unwrap_or_default()))
}

#[test]
fn item_93_a_read_of_a_resource_is_answered_with_its_value_or_an_error() {
    let cases = [
        (
            Reply::Contents(json(r#"[{"uri":"balance","mimeType":"application/json","text":"{\"cents\":991}"}]"#)),
            r#""result":{"value":{"cents":991}}"#,
        ),
        (Reply::Contents(json(r#"[{"uri":"balance","mimeType":"text/plain","text":"{}"}]"#)), r#""result":{"value":"{}"}"#),
        (Reply::Contents(json(r#"[{"uri":"balance","text":"x"}]"#)), r#""result":{"value":"x"}"#),
        (Reply::Contents(json(r#"[{"uri":"balance","mimeType":"application/json","text":"{"}]"#)), r#""result":{"value":"{"}"#),
        (Reply::Contents(json(r#"[{"uri":"b","blob":"AA=="}]"#)), r#""result":{"value":{"uri":"b","blob":"AA=="}}"#),
        (Reply::Contents(json("[]")), r#""result":{"value":[]}"#),
        (
            Reply::NotFound(NotFound::Resource("balance".into())),
            r#""error":{"code":-32003,"message":"Resource not readable: balance"}"#,
        ),
        (Reply::Error(RpcError::internal("disk")), r#""error":{"code":-32603,"message":"disk"}"#),
    ];
    for (reply, body) in cases {
        let mut app = Scripted::app(app_config());
        let (id, op, params) = receive(&mut app, 20, "resources/read", r#"{"name":"balance"}"#);
        assert_eq!((op, params.as_str()), (Op::ReadResource, "balance "));
        app.reply(id, reply);
        assert_eq!(app.sent(), [format!(r#"{{"jsonrpc":"2.0","id":20,{body}}}"#)]);
    }
}

#[test]
fn items_94_95_a_subscription_is_acknowledged_with_null_and_a_value_may_be_sent_before_that() {
    let mut app = Scripted::app(app_config());
    let (id, op, params) = receive(&mut app, 21, "resources/subscribe", r#"{"name":"balance","subscriptionId":"s"}"#);
    assert_eq!((op, params.as_str()), (Op::Subscribe, "balance s"));
    let value = |value: &str| Notification::ResourceValue { subscription: "s".into(), uri: "balance".into(), value: json(value) };
    app.session.notify(value(r#"{"cents":1000}"#), app.now).unwrap();
    app.reply(id, Reply::Done);
    app.session.notify(value("null"), app.now).unwrap();
    assert_eq!(
        app.sent(),
        [
            notification("resources/updated", r#"{"subscriptionId":"s","value":{"cents":1000}}"#),
            r#"{"jsonrpc":"2.0","id":21,"result":null}"#.to_owned(),
            notification("resources/updated", r#"{"subscriptionId":"s","value":null}"#),
        ]
    );
    let (id, op, params) = receive(&mut app, 22, "resources/unsubscribe", r#"{"subscriptionId":"s"}"#);
    assert_eq!((op, params.as_str()), (Op::Unsubscribe, " s"));
    app.reply(id, Reply::Done);
    assert_eq!(app.sent(), [r#"{"jsonrpc":"2.0","id":22,"result":null}"#]);
}

#[test]
fn only_an_invocation_can_be_cancelled_or_report_progress() {
    let mut app = Scripted::app(app_config());
    let (id, ..) = receive(&mut app, 20, "resources/read", r#"{"name":"balance","invocationId":"i1"}"#);
    app.frame(&cancel("i1")).frame(&cancel("balance")).expect_silence();
    assert_eq!(app.session.progress(id, Progress::percent(1.0), app.now), Ok(Reported::Unobserved));
    app.expect_silence();
}

#[test]
fn item_100_a_changed_list_is_a_whole_array_and_a_custom_notice_cannot_have_a_method_of_the_protocol() {
    let mut app = Scripted::app(app_config());
    let actions = r#"[{"name":"void_entry","description":"","inputSchema":{"type":"object"}}]"#;
    app.session.notify(Notification::Actions(json(actions)), app.now).unwrap();
    app.session.notify(Notification::Resources(json("[]")), app.now).unwrap();
    assert_eq!(
        app.sent(),
        [
            notification("actions/list_changed", &format!(r#"{{"actions":{actions}}}"#)),
            notification("resources/list_changed", r#"{"resources":[]}"#)
        ]
    );
    for list in ["{}", "null", "1"] {
        assert_eq!(app.session.notify(Notification::Actions(json(list)), app.now), Err(SendError::Params));
        assert_eq!(app.session.notify(Notification::Resources(json(list)), app.now), Err(SendError::Params));
    }
    for method in ["actions/cancel", "tesseron/claimed", "actions/invoke", "sampling/request", "log"] {
        let forged = Notification::Custom { method: method.into(), params: None };
        assert_eq!(app.session.notify(forged, app.now), Err(SendError::WrongEnd), "{method}");
    }
    app.expect_silence();
}

#[test]
fn an_app_cannot_call_a_method_of_the_protocol() {
    let mut app = Scripted::app(app_config());
    for op in [Op::CallTool, Op::ListTools, Op::ReadResource, Op::Ping] {
        let refused = app.session.invoke(protocol_core::Invoke::new(op, json("{}")), app.now).unwrap_err();
        assert_eq!(refused.why, SendError::WrongEnd);
    }
    for method in ["actions/invoke", "tesseron/hello", "sampling/request"] {
        let refused = app.session.invoke(protocol_core::Invoke::custom(method, json("{}")), app.now).unwrap_err();
        assert_eq!(refused.why, SendError::WrongEnd);
    }
    app.expect_silence();
}
