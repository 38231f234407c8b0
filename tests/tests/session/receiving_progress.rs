//! Progress at the caller (Utilities, "Progress"; `docs/protocols/mcp.md`, "Progress").

use std::time::Duration;

use protocol_core::{CallTimeouts, Event, Invoke, OutboundId, Progress, RateWindow, Violation};
use testkit::Scripted;
use testkit::config::{client_config, with};
use testkit::scripted::{ENDINGS, json, notification, progress};

const NOTIFICATION: &str = "notifications/progress";

/// A client with one call in flight, which has the request id and the progress token 2.
fn calling() -> (Scripted, OutboundId) {
    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.sent();
    (client, call)
}

fn accepted(client: &mut Scripted) -> Vec<Progress> {
    client
        .events()
        .into_iter()
        .filter_map(|event| if let Event::Progress { progress, .. } = event { Some(progress) } else { None })
        .collect()
}

#[test]
fn o5_progress_is_reported_with_all_its_members() {
    let (mut client, call) = calling();
    client.frame(&notification(
        NOTIFICATION,
        r#"{"progressToken":2,"progress":1.5,"total":3,"message":"half \"way\"","_meta":{"protocol-core/data":{ "a":[1] },"x":1},"extra":{}}"#,
    ));
    let progress = Progress::value(1.5).with_total(3.0);
    let progress = progress.with_message("half \"way\"").with_data(json(r#"{ "a":[1] }"#));
    assert_eq!(client.events(), [Event::Progress { id: call, progress }]);
}

#[test]
fn o5_every_increase_is_accepted_from_any_first_value() {
    for values in [
        &["0", "50", "100"][..],
        &["-5", "-4.5", "0"],
        &["1", "1.0000000000000002", "1.0000000000000004"],
        &["0", "5e-324"],
        &["1e300", "1.7976931348623157e308"],
        &["9007199254740992", "9007199254740994"],
    ] {
        let (mut client, _) = calling();
        for value in values {
            client.frame(&notification(NOTIFICATION, &format!(r#"{{"progressToken":2,"progress":{value}}}"#)));
        }
        let seen: Vec<_> = accepted(&mut client).into_iter().filter_map(|progress| progress.value).collect();
        assert_eq!(seen, values.iter().map(|value| value.parse().unwrap()).collect::<Vec<f64>>());
    }
}

#[test]
fn o5_a_total_may_change_disappear_or_be_exceeded() {
    let (mut client, _) = calling();
    let totals = [Some(10.0), Some(2.0), None, Some(-1.0), Some(0.0)];
    for (value, total) in (1..).zip(totals) {
        let total = total.map(|total| format!(r#","total":{total}"#)).unwrap_or_default();
        client.frame(&notification(NOTIFICATION, &format!(r#"{{"progressToken":2,"progress":{value}{total}}}"#)));
    }
    assert_eq!(accepted(&mut client).into_iter().map(|progress| progress.total).collect::<Vec<_>>(), totals);
}

// ---- Dropped progress ----

#[test]
fn o6_progress_that_does_not_increase_is_dropped_as_a_violation() {
    for value in [5.0, 4.999, 0.0, -5.0] {
        let (mut client, _) = calling();
        client.frame(&progress(2, 5.0)).events();
        client.frame(&progress(2, value));
        assert_eq!(client.events(), [Event::Violation(Violation::ProgressNotIncreasing)], "{value}");
        client.frame(&progress(2, 5.5));
        assert_eq!(accepted(&mut client), [Progress::value(5.5)], "a dropped update does not count as the last value");
        assert_eq!(client.session.stats().progress_in_dropped, 1);
    }
}

#[test]
fn o6_malformed_progress_is_dropped_as_a_violation_and_the_call_goes_on() {
    for params in [
        r#"{}"#,
        r#"{"progress":1}"#,
        r#"{"progressToken":2}"#,
        r#"{"progressToken":null,"progress":1}"#,
        r#"{"progressToken":true,"progress":1}"#,
        r#"{"progressToken":2.0,"progress":1}"#,
        r#"{"progressToken":2e0,"progress":1}"#,
        r#"{"progressToken":[2],"progress":1}"#,
        r#"{"progressToken":{},"progress":1}"#,
        r#"{"progressToken":2,"progress":null}"#,
        r#"{"progressToken":2,"progress":"1"}"#,
        r#"{"progressToken":2,"progress":true}"#,
        r#"{"progressToken":2,"progress":[1]}"#,
        r#"{"progressToken":2,"progress":{}}"#,
        r#"{"progressToken":2,"progress":1e999}"#,
        r#"{"progressToken":2,"progress":-1e999}"#,
        r#"{"progressToken":2,"progress":1,"total":"10"}"#,
        r#"{"progressToken":2,"progress":1,"total":1e999}"#,
        r#"{"progressToken":2,"progress":1,"total":[]}"#,
        r#"{"progressToken":2,"progress":1,"message":1}"#,
        r#"{"progressToken":2,"progress":1,"message":{}}"#,
    ] {
        let (mut client, _) = calling();
        client.frame(&notification(NOTIFICATION, params));
        assert_eq!(client.events(), [Event::Violation(Violation::InvalidProgress)], "{params}");
        assert_eq!(client.sent(), Vec::<String>::new());
        client.frame(&progress(2, 0.5));
        assert_eq!(accepted(&mut client), [Progress::value(0.5)], "{params}");
    }
    let (mut client, _) = calling();
    client.frame(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
    assert_eq!(client.events(), [Event::Violation(Violation::InvalidProgress)]);
    client.frame(&notification(NOTIFICATION, r#"{"progressToken":2,"progress":1,"_meta":{},"_meta":{}}"#));
    assert_eq!(client.events(), [Event::Violation(Violation::RepeatedMember)]);
}

#[test]
fn progress_with_an_unknown_token_is_dropped_as_a_violation() {
    for token in ["99", "3", "-2", "\"2\"", "\"\"", "\"tool-call-2\""] {
        let (mut client, _) = calling();
        client.frame(&notification(NOTIFICATION, &format!(r#"{{"progressToken":{token},"progress":1}}"#)));
        assert_eq!(client.events(), [Event::Violation(Violation::UnknownProgress)], "{token}");
    }
}

#[test]
fn progress_of_a_call_without_a_token_is_dropped_as_a_violation() {
    let mut client = Scripted::client(client_config());
    client.invoke(Invoke::list_tools(None).without_progress().with_timeouts(CallTimeouts::NONE));
    client.sent();
    client.frame(&progress(2, 1.0));
    assert_eq!(client.events(), [Event::Violation(Violation::UnknownProgress)]);
}

#[test]
fn o27_late_progress_is_dropped_without_a_violation_after_each_kind_of_end() {
    for (name, ending) in ENDINGS.into_iter().filter(|(name, _)| *name != "lost") {
        let (mut client, call) = calling();
        ending(&mut client, call);
        client.drain();
        client.frame(&progress(2, 1.0)).frame(&progress(2, 1.0));
        client.expect_silence();
        assert_eq!((client.session.stats().late_frames, client.session.stats().progress_in_dropped), (2, 0), "{name}");
    }
}

// ---- Floods ----

#[test]
fn dropped_progress_is_reported_once_in_each_window_and_always_counted() {
    let stale = || progress(2, 1.0);
    let unknown = || progress(77, 1.0);
    let malformed = || notification(NOTIFICATION, "{}");
    let floods: [(fn() -> String, Violation); 3] =
        [(stale, Violation::ProgressNotIncreasing), (unknown, Violation::UnknownProgress), (malformed, Violation::InvalidProgress)];
    for (flood, rule) in floods {
        let (mut client, _) = calling();
        client.frame(&progress(2, 1.0)).events();
        for (millis, reported) in [(0, 1), (99, 0), (100, 1), (199, 0), (200, 1)] {
            client.at(millis);
            for _ in 0..100 {
                client.frame(&flood());
            }
            assert_eq!(client.events(), vec![Event::Violation(rule); reported], "{rule} at {millis}");
        }
        let stats = client.session.stats();
        assert_eq!((stats.violations(rule), stats.progress_in_dropped), (500, 500), "{rule}");
    }
}

#[test]
fn a_flood_of_dropped_progress_of_one_call_does_not_hide_that_of_another_or_accepted_progress() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.call();
    client.sent();
    client.frame(&progress(2, 1.0)).frame(&progress(3, 1.0)).events();
    client.frame(&progress(2, 1.0)).frame(&progress(2, 1.0)).frame(&progress(3, 1.0)).frame(&progress(2, 2.0));
    let events = client.events();
    assert_eq!(
        events[..2],
        [Event::Violation(Violation::ProgressNotIncreasing), Event::Violation(Violation::ProgressNotIncreasing)]
    );
    assert!(matches!(events[2..], [Event::Progress { .. }]), "{events:?}");
}

#[test]
fn the_window_in_which_one_dropped_update_is_reported_can_be_configured() {
    let mut client = Scripted::client(with(client_config(), |config| {
        config.progress.window = RateWindow::new(1, Duration::from_secs(5));
    }));
    for (millis, reported) in [(0, 1), (4999, 0), (5000, 1)] {
        client.at(millis).frame(&progress(77, 1.0));
        assert_eq!(client.events().len(), reported, "{millis}");
    }
}

// ---- Repeated values ----

#[test]
fn an_equal_value_with_a_new_message_is_reported_only_if_configured() {
    let equal = notification(NOTIFICATION, r#"{"progressToken":2,"progress":5,"total":9,"message":"still"}"#);
    let lower = notification(NOTIFICATION, r#"{"progressToken":2,"progress":4,"message":"back"}"#);
    for accept_equal in [false, true] {
        let mut client = Scripted::client(with(client_config(), |config| config.progress.accept_equal = accept_equal));
        let call = client.call();
        client.sent();
        client.frame(&progress(2, 5.0)).events();
        client.frame(&equal);
        let message = Event::Progress { id: call, progress: Progress::message("still") };
        let dropped = Event::Violation(Violation::ProgressNotIncreasing);
        assert_eq!(client.events(), [if accept_equal { message } else { dropped.clone() }]);
        client.at(5000).frame(&progress(2, 5.0));
        assert_eq!(client.events(), std::slice::from_ref(&dropped), "without a message it is dropped");
        client.at(10_000).frame(&lower);
        assert_eq!(client.events(), [dropped]);
        client.frame(&progress(2, 6.0));
        assert_eq!(accepted(&mut client), [Progress::value(6.0)]);
    }
}

// ---- The end of a call ----

#[test]
fn the_partial_result_of_the_last_progress_is_reported_at_the_end_unless_there_is_a_result() {
    for (name, ending) in ENDINGS {
        let (mut client, call) = calling();
        for params in [
            r#"{"progressToken":2,"progress":1,"_meta":{"protocol-core/partial":{"processed":1}}}"#,
            r#"{"progressToken":2,"progress":2,"_meta":{"protocol-core/partial":{ "processed":2 }}}"#,
            r#"{"progressToken":2,"progress":3,"message":"on"}"#,
            r#"{"progressToken":2,"progress":4,"message":"on","_meta":{"protocol-core/partial":[4]}}"#,
            r#"{"progressToken":2,"progress":3,"_meta":{"protocol-core/partial":{"processed":"dropped"}}}"#,
        ] {
            client.frame(&notification(NOTIFICATION, params));
        }
        client.events();
        ending(&mut client, call);
        let events = client.events();
        let Some(Event::Done { partial, last, .. }) = events.iter().find(|event| matches!(event, Event::Done { .. })) else {
            panic!()
        };
        assert_eq!(*partial, (name != "result").then(|| json(r#"{ "processed":2 }"#)), "{name}");
        assert_eq!(last.as_deref(), Some(&Progress::value(4.0).with_message("on")), "{name}");
    }
}
