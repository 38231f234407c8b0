//! Progress that a callee reports, in frames (Utilities, "Progress").

use std::time::Duration;

use protocol_core::{Config, Event, InboundId, Instant, Progress, ProgressError, RateWindow, Reported, ServeOptions};
use testkit::config::{server_config, with};
use testkit::scripted::{call_tool, cancelled, json, ok, progress, request};
use testkit::{Rng, Scripted};

/// A rate window with at most `updates` updates in any `millis` milliseconds.
fn at_most(updates: u32, millis: u64) -> RateWindow {
    RateWindow::new(updates, Duration::from_millis(millis))
}

fn windowed(window: RateWindow) -> Config {
    with(server_config(), |config| config.progress.window = window)
}

/// The configuration of a server whose output limit is reached by a single frame.
fn narrow() -> Config {
    with(server_config(), |config| config.limits.output_bytes = 1)
}

fn of(value: f64, total: f64) -> Progress {
    Progress::value(value).with_total(total)
}

/// The value and the message of each queued frame of progress; there must be no other frame.
fn updates(server: &mut Scripted) -> Vec<(f64, Option<String>)> {
    let read = |text: &String| {
        let frame: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(frame["method"], "notifications/progress", "{text}");
        let params = &frame["params"];
        (params["progress"].as_f64().unwrap(), params["message"].as_str().map(str::to_owned))
    };
    server.sent().iter().map(read).collect()
}

fn values(server: &mut Scripted) -> Vec<f64> {
    updates(server).into_iter().map(|(value, _)| value).collect()
}

#[test]
fn an_update_is_sent_as_one_notification_with_its_members() {
    for (update, members) in [
        (Progress::step(1, 3), r#""progress":1,"total":3"#),
        (Progress::percent(12.5), r#""progress":12.5,"total":100"#),
        (Progress::value(0.0), r#""progress":0"#),
        (Progress::value(0.1 + 0.2).with_message("a \"b\""), r#""progress":0.30000000000000004,"message":"a \"b\"""#),
        (Progress::message("m"), r#""progress":0,"message":"m""#),
        (Progress::value(1.0).with_data(json(r#"{"a" : 1.0}"#)), r#""progress":1,"_meta":{"protocol-core/data":{"a" : 1.0}}"#),
    ] {
        let mut server = Scripted::server(server_config());
        let id = server.receive_call(1);
        assert_eq!(server.report(id, update), Reported::Sent);
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,{members}}}}}"#);
        assert_eq!(server.sent(), [frame]);
    }
}

#[test]
fn in_the_first_revision_progress_is_sent_without_a_message() {
    let mut server = Scripted::server_at(server_config(), "2024-11-05", "{}");
    let id = server.receive_call(1);
    server.report(id, Progress::value(1.0).with_message("m"));
    assert_eq!(server.sent(), [progress(1, 1.0)]);
}

#[test]
fn a_progress_token_keeps_its_type_and_may_be_zero_or_empty() {
    for token in ["7", "-7", "0", "9007199254740993", r#""abc""#, r#""7""#, r#""""#] {
        let mut server = Scripted::server(server_config());
        server.frame(&request(1, "tools/list", &format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#)));
        let events = server.events();
        let [Event::Request { id, observed: true, .. }] = events[..] else { panic!("{events:?}") };
        server.report(id, Progress::value(1.0));
        let frame =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#);
        assert_eq!(server.sent(), [frame]);
    }
}

#[test]
fn without_a_token_no_progress_is_sent_and_invalid_progress_is_still_refused() {
    let mut server = Scripted::server(server_config());
    server.frame(&call_tool(1, false));
    let id = server.request();
    assert_eq!(server.report(id, Progress::step(1, 2)), Reported::Unobserved);
    assert_eq!(server.session.progress(id, Progress::value(f64::NAN), server.now), Err(ProgressError::NotFinite));
    server.respond(id);
    assert_eq!((server.sent(), server.session.stats().progress_out_dropped), (vec![ok(1)], 1));
}

#[test]
fn invalid_numbers_are_refused_and_do_not_affect_the_next_update() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    for (update, error) in [
        (Progress::value(f64::NAN), ProgressError::NotFinite),
        (of(1.0, f64::INFINITY), ProgressError::NotFinite),
        (Progress::value(-1.0), ProgressError::Negative),
        (of(0.0, -1.0), ProgressError::Negative),
        (of(3.0, 2.0).with_message("m"), ProgressError::AboveTotal),
    ] {
        assert_eq!(server.session.progress(id, update, server.now), Err(error));
    }
    server.report(id, Progress::value(0.0));
    assert_eq!(server.sent(), [progress(1, 0.0)]);
}

#[test]
fn an_update_that_does_not_increase_is_omitted_and_its_message_sent_with_the_next_increase() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    let reported: Vec<_> = [
        of(5.0, 10.0).with_message("downloading"),
        of(5.0, 10.0),
        of(4.0, 4.0),
        of(5.0, 10.0).with_message("0/2000"),
        Progress::message("1/2000"),
        of(6.0, 10.0),
    ]
    .map(|update| server.report(id, update))
    .into();
    use Reported::{NotIncreasing, RateLimited, Sent};
    assert_eq!(reported, [Sent, NotIncreasing, NotIncreasing, RateLimited, RateLimited, Sent]);
    assert_eq!(updates(&mut server), [(5.0, Some("downloading".into())), (6.0, Some("1/2000".into()))]);
    assert_eq!(server.session.stats().progress_out_dropped, 2);
    // A message is dropped, and not sent with the response, if no increase follows it.
    server.report(id, Progress::message("done"));
    server.respond(id);
    assert_eq!(server.sent(), [ok(1)]);
}

#[test]
fn a_first_update_with_only_a_message_is_sent_with_the_value_zero() {
    let mut server = Scripted::server(server_config());
    let id = server.receive_call(1);
    for update in [Progress::message("a"), Progress::message("b"), Progress::value(0.0), Progress::value(1.0)] {
        server.report(id, update);
    }
    assert_eq!(updates(&mut server), [(0.0, Some("a".into())), (1.0, Some("b".into()))]);
}

#[test]
fn a_message_without_a_value_is_merged_into_the_kept_update() {
    let mut server = Scripted::server(windowed(at_most(1, 1_000)));
    let id = server.receive_call(1);
    server.report(id, of(1.0, 10.0));
    server.report(id, of(5.0, 10.0));
    server.report(id, Progress::message("m"));
    assert_eq!(server.report(id, of(4.0, 10.0)), Reported::NotIncreasing);
    server.drain().at(1_000);
    assert_eq!(updates(&mut server), [(5.0, Some("m".into()))]);
}

/// A regression: a total below the kept value was merged into the update, which was then sent with a value above its own total.
#[test]
fn regression_a_total_below_the_kept_value_does_not_replace_the_previous_total() {
    let value_and_total = |newer: f64| {
        let mut server = Scripted::server(windowed(at_most(1, 1_000)));
        let id = server.receive_call(1);
        server.report(id, of(1.0, 10.0));
        server.report(id, of(5.0, 10.0));
        server.report(id, Progress::message("m").with_total(newer));
        server.at(1_000);
        let frame: serde_json::Value = serde_json::from_str(&server.sent().pop().unwrap()).unwrap();
        (frame["params"]["progress"].as_f64(), frame["params"]["total"].as_f64())
    };
    assert_eq!(value_and_total(4.0), (Some(5.0), Some(10.0)));
    assert_eq!(value_and_total(5.0), (Some(5.0), Some(5.0)));
    assert_eq!(value_and_total(20.0), (Some(5.0), Some(20.0)));
}

#[test]
fn a_full_window_keeps_the_newest_update_and_sends_it_when_the_window_opens() {
    let mut server = Scripted::server(windowed(at_most(2, 100)));
    let id = server.receive_call(1);
    let first = server.report(id, Progress::value(1.0));
    let second = server.at(30).report(id, Progress::value(2.0));
    let others: Vec<_> = (3..100).map(|value| server.report(id, Progress::value(f64::from(value)))).collect();
    assert_eq!((first, second), (Reported::Sent, Reported::Sent));
    assert!(others.iter().all(|reported| *reported == Reported::RateLimited));
    assert_eq!(values(&mut server), [1.0, 2.0]);
    assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(100)));
    server.at(99).expect_silence();
    server.at(100);
    assert_eq!((values(&mut server), server.session.poll_timeout()), (vec![99.0], None));
    assert_eq!(server.session.stats().progress_out_merged, 96, "each of them replaced the one before");
    // The window slides: the update that was sent at 30 ms leaves it at 130 ms.
    server.report(id, Progress::value(100.0));
    assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(130)));
}

#[test]
fn a_kept_update_is_merged_member_by_member() {
    let mut server = Scripted::server(windowed(at_most(1, 100)));
    let id = server.receive_call(1);
    server.report(id, Progress::value(1.0));
    server.drain();
    server.report(id, of(2.0, 9.0).with_message("two").with_data(json("2")));
    server.report(id, Progress::value(3.0));
    server.report(id, Progress::message("three"));
    server.at(100);
    assert_eq!(
        server.sent(),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":3,"message":"three","_meta":{"protocol-core/data":2}}}"#
        ]
    );
}

#[test]
fn a_kept_update_is_sent_before_the_response_that_the_handler_or_the_deadline_makes() {
    type Ending = fn(&mut Scripted, InboundId);
    let ends: [(&str, Ending); 2] = [
        ("the handler", |server, id| {
            server.respond(id);
        }),
        ("the deadline", |server, id| {
            server.session.configure(id, ServeOptions::default().with_deadline(Duration::ZERO), server.now).unwrap();
        }),
    ];
    for (name, end) in ends {
        let mut server = Scripted::server(windowed(at_most(0, 1_000)));
        let id = server.receive_call(1);
        server.report(id, Progress::value(1.0));
        server.report(id, Progress::value(2.0));
        assert_eq!(server.session.poll_timeout(), None, "a window of zero updates opens only for the response");
        end(&mut server, id);
        let sent = server.sent();
        assert_eq!((sent.len(), sent[0].as_str()), (2, progress(1, 2.0).as_str()), "{name}");
        assert!(sent[1].contains(r#""id":1,"result""#), "{name}: {sent:?}");
    }
}

#[test]
fn no_window_has_more_updates_than_allowed_and_the_last_update_is_always_sent() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (most, length) = (1 + rng.below(4), 20 + rng.below(100) as u64);
        let mut server = Scripted::server(windowed(at_most(most as u32, length)));
        let id = server.receive_call(1);
        let mut sent: Vec<(u64, f64)> = Vec::new();
        let mut value = 0.0;
        for _ in 0..300 {
            // Stops at the deadlines on the way, so that each frame is polled at the instant at which it is queued.
            let target = Instant::from_millis(server.now.as_micros() / 1000 + [0, 1, 3, 40, 200][rng.below(5)]);
            while let Some(due) = server.session.poll_timeout().filter(|due| *due <= target) {
                server.now = due;
                server.session.handle_timeout(due);
                sent.extend(values(&mut server).into_iter().map(|value| (due.as_micros(), value)));
            }
            server.now = target;
            value += 1.0;
            server.report(id, Progress::value(value));
            sent.extend(values(&mut server).into_iter().map(|value| (target.as_micros(), value)));
        }
        for span in sent.windows(most + 1) {
            assert!(span[most].0 - span[0].0 >= length * 1000, "seed {seed}: {} in a window of {most}: {span:?}", most + 1);
            assert!(span[0].1 < span[1].1);
        }
        let end = server.now.as_micros() / 1000 + length;
        server.at(end);
        let last = values(&mut server).pop().or_else(|| sent.last().map(|(_, value)| *value));
        assert_eq!(last, Some(value), "seed {seed}");
    }
}

/// The final update of a call is the first whose value equals its total.
#[test]
fn the_final_update_is_sent_at_once_despite_a_full_window_and_only_once() {
    let mut server = Scripted::server(windowed(at_most(1, 1_000)));
    let id = server.receive_call(1);
    let reported = [of(1.0, 3.0), of(2.0, 3.0), of(3.0, 3.0), of(3.0, 3.0), of(3.0, 3.0), of(2.0, 2.0), of(4.0, 4.0)]
        .map(|update| server.report(id, update));
    use Reported::{NotIncreasing, RateLimited, Sent};
    assert_eq!(reported, [Sent, RateLimited, Sent, NotIncreasing, NotIncreasing, NotIncreasing, RateLimited]);
    assert_eq!(values(&mut server), [1.0, 3.0]);
    server.respond(id);
    assert_eq!(server.sent().len(), 2, "the update to 4 of 4, then the response");
}

#[test]
fn a_final_update_without_room_is_sent_despite_a_full_window_once_there_is_room() {
    let mut server = Scripted::server(with(windowed(at_most(1, 1_000)), |config| config.limits.output_bytes = 1));
    let id = server.receive_call(1);
    server.report(id, of(1.0, 3.0));
    server.report(id, of(3.0, 3.0));
    assert_eq!(values(&mut server), [1.0, 3.0]);
}

/// A regression: an update that was before the final one in the queue, and waited for the window of the session, delayed the final one.
#[test]
fn regression_a_final_update_that_waits_for_room_is_sent_before_those_that_wait_for_the_window() {
    for updates in [1, 0] {
        let mut server = Scripted::server(with(narrow(), |config| config.progress.session_window = at_most(updates, 3_600_000)));
        let (first, second) = (server.receive_call(1), server.receive_call(2));
        server.report(first, of(1.0, 10.0));
        // With a window of zero updates, only the reply to this ping fills the outbox.
        server.frame(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#);
        server.report(first, of(2.0, 10.0));
        server.report(second, of(10.0, 10.0));
        let last = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":10,"total":10}}"#;
        assert_eq!(server.sent().last().map(String::as_str), Some(last), "{updates}");
    }
}

#[test]
fn an_update_is_sent_without_its_message_only_if_its_frame_would_exceed_the_limit() {
    let message = "x".repeat(1_000);
    let sent = |limit| {
        let mut server = Scripted::server(with(server_config(), |config| config.limits.frame_bytes = limit));
        let id = server.receive_call(1);
        server.report(id, Progress::value(1.0).with_message(message.clone()));
        server.sent()
    };
    let whole = sent(4_096);
    let length = whole[0].len();
    assert!(whole[0].contains(&message));
    assert_eq!(sent(length), whole);
    assert_eq!(sent(length - 1), [progress(1, 1.0)]);
    assert_eq!(sent(length - 2), [progress(1, 1.0)]);
}

#[test]
fn a_window_of_the_session_limits_all_its_calls_together() {
    let mut server = Scripted::server(with(server_config(), |config| config.progress.session_window = at_most(2, 100)));
    let calls: Vec<_> = (1..=4).map(|id| server.receive_call(id)).collect();
    let reported: Vec<_> = calls.iter().map(|id| server.report(*id, Progress::value(1.0))).collect();
    use Reported::{RateLimited, Sent};
    assert_eq!(reported, [Sent, Sent, RateLimited, RateLimited]);
    assert_eq!(server.sent(), [progress(1, 1.0), progress(2, 1.0)]);
    // Both kept updates are sent when the window has room for two. The second update of the first call waits until the window has room
    // again.
    server.at(100);
    assert_eq!(server.sent(), [progress(3, 1.0), progress(4, 1.0)]);
    assert_eq!(server.report(calls[0], Progress::value(2.0)), RateLimited);
    server.at(199).expect_silence();
    server.at(200);
    assert_eq!(server.sent(), [progress(1, 2.0)]);
}

#[test]
fn the_window_of_a_session_has_a_deadline_only_while_an_update_is_kept() {
    let mut server = Scripted::server(with(server_config(), |config| {
        config.progress.session_window = at_most(1, 100);
        config.timeouts.serve = None;
    }));
    let (first, second) = (server.receive_call(1), server.receive_call(2));
    assert_eq!(server.report(first, Progress::value(1.0)), Reported::Sent);
    assert_eq!(server.session.poll_timeout(), None, "the window is full, but no update is kept");
    assert_eq!(server.report(second, Progress::value(1.0)), Reported::RateLimited);
    assert_eq!(server.session.poll_timeout(), Some(Instant::from_millis(100)));
    server.at(100);
    assert_eq!(server.sent(), [progress(1, 1.0), progress(2, 1.0)]);
    assert_eq!(server.session.poll_timeout(), None);
}

#[test]
fn the_window_of_a_session_is_never_exceeded_and_the_last_update_of_each_call_is_sent() {
    let (most, length) = (3, 50);
    let mut server =
        Scripted::server(with(windowed(at_most(2, 40)), |config| config.progress.session_window = at_most(most as u32, length)));
    let calls: Vec<_> = (1..=5).map(|id| server.receive_call(id)).collect();
    let (mut rng, mut sent, mut last) = (Rng::new(5), Vec::new(), [0.0; 5]);
    for millis in 1..3_000 {
        server.at(millis);
        if millis < 2_500 && rng.below(2) == 0 {
            let which = rng.below(calls.len());
            last[which] = millis as f64;
            server.report(calls[which], Progress::value(last[which]));
        }
        sent.extend(server.sent().into_iter().map(|frame| (millis, frame)));
    }
    assert!(sent.windows(most + 1).all(|span| span[most].0 - span[0].0 >= length), "{sent:?}");
    for (index, value) in last.into_iter().enumerate() {
        let token = index as u64 + 1;
        assert!(sent.iter().any(|(_, frame)| *frame == progress(token, value)), "the last update of call {token}");
    }
}

/// The number of updates that are sent for each of two calls, in 1000 steps. In each step both calls report progress, `step` is called, and
/// one frame is polled.
fn sent_updates(mut server: Scripted, mut step: impl FnMut(&mut Scripted, u64)) -> [usize; 2] {
    let calls = [server.receive_call(1), server.receive_call(2)];
    let mut sent = Vec::new();
    for millis in 1..=1_000 {
        for call in calls {
            server.report(call, Progress::value(millis as f64));
        }
        step(&mut server, millis);
        sent.extend(server.session.poll_transmit().map(|out| String::from_utf8(out.frame.to_vec()).unwrap()));
    }
    [1, 2].map(|token| sent.iter().filter(|frame| frame.contains(&format!(r#""progressToken":{token},"#))).count())
}

#[test]
fn calls_that_report_all_the_time_take_turns_if_there_is_not_room_for_all() {
    // If no update of a call were sent, the call could time out at its caller.
    let contended = with(server_config(), |config| config.progress.session_window = at_most(1, 10));
    let by_window = sent_updates(Scripted::server(contended), |server, millis| {
        server.at(millis);
    });
    let by_outbox = sent_updates(Scripted::server(narrow()), |_, _| {});
    let fair = |[first, second]: [usize; 2], least: usize| first.abs_diff(second) <= 1 && first + second >= least;
    assert!(
        fair(by_window, 100) && fair(by_outbox, 1_000),
        "a window of the session: {by_window:?}; a narrow outbox: {by_outbox:?}"
    );
}

#[test]
fn a_window_can_be_set_for_one_call_and_a_wider_one_sends_the_kept_update_at_once() {
    let mut server = Scripted::server(windowed(at_most(1, 1_000)));
    let (id, other) = (server.receive_call(1), server.receive_call(2));
    for call in [id, other] {
        server.report(call, Progress::value(1.0));
        assert_eq!(server.report(call, Progress::value(2.0)), Reported::RateLimited);
    }
    server.drain();
    server.session.configure(id, ServeOptions::default().with_window(at_most(5, 1_000)), server.now).unwrap();
    assert_eq!(server.sent(), [progress(1, 2.0)]);
    assert_eq!(server.report(id, Progress::value(3.0)), Reported::Sent);
    assert_eq!(server.report(other, Progress::value(3.0)), Reported::RateLimited);
}

#[test]
fn beyond_the_output_limit_updates_are_merged_into_one_that_is_sent_when_there_is_room() {
    let mut server = Scripted::server(narrow());
    let (id, other) = (server.receive_call(1), server.receive_call(2));
    assert_eq!(server.report(id, Progress::value(1.0)), Reported::Sent);
    for value in 2..=9 {
        assert_eq!(server.report(id, Progress::value(f64::from(value))), Reported::Congested);
    }
    assert_eq!(server.report(other, Progress::value(1.0)), Reported::Congested);
    assert_eq!(server.sent(), [progress(1, 1.0), progress(1, 9.0), progress(2, 1.0)]);
    assert_eq!(server.session.stats().progress_out_merged, 7);
    assert_eq!(server.report(id, Progress::value(10.0)), Reported::Sent);
}

#[test]
fn merged_updates_also_obey_the_window() {
    let mut server = Scripted::server(with(windowed(at_most(2, 100)), |config| config.limits.output_bytes = 1));
    let id = server.receive_call(1);
    for value in 1..=4 {
        server.report(id, Progress::value(f64::from(value)));
    }
    assert_eq!(values(&mut server), [1.0, 4.0]);
    server.report(id, Progress::value(5.0));
    assert_eq!((values(&mut server), server.session.poll_timeout()), (vec![], Some(Instant::from_millis(100))));
    server.at(100);
    assert_eq!(values(&mut server), [5.0]);
}

#[test]
fn an_update_that_waits_for_room_is_sent_before_the_response() {
    let mut server = Scripted::server(narrow());
    let id = server.receive_call(1);
    server.report(id, Progress::value(1.0));
    server.report(id, Progress::value(2.0));
    server.respond(id);
    assert_eq!(server.sent(), [progress(1, 1.0), progress(1, 2.0), ok(1)]);
}

#[test]
fn when_a_cancel_makes_room_the_kept_updates_are_sent() {
    let mut server = Scripted::server(narrow());
    let (id, other) = (server.receive_call(1), server.receive_call(2));
    server.report(id, Progress::value(1.0));
    assert_eq!(server.report(other, Progress::value(1.0)), Reported::Congested);
    server.frame(&cancelled(1));
    assert_eq!(server.sent(), [progress(2, 1.0)]);
}

#[test]
fn a_cancel_withdraws_only_the_unsent_updates_of_its_call() {
    let mut server = Scripted::server(server_config());
    let (id, other) = (server.receive_call(1), server.receive_call(2));
    for value in [1.0, 2.0] {
        server.report(id, Progress::value(value));
        server.report(other, Progress::value(value));
    }
    let _ = server.session.poll_transmit();
    server.frame(&cancelled(1));
    assert_eq!(server.sent(), [progress(2, 1.0), progress(2, 2.0)]);
    assert_eq!(server.session.stats().queued_bytes, 0);
}
