//! A session with many lanes: each frame is sent on the lane that it belongs to, and an error on one lane does not affect the others.

use bytes::Bytes;
use protocol_core::{
    CancelReason, CloseReason, Event, ExchangeId, Gone, InboundId, InputRequest, InputResponse, Invoke, Json, Lane, Level,
    LogRecord, NotLive, Notification, Op, Outcome, Progress, Received, Reply, ReplyKind, Reported, RouteKind, RpcError,
    ServeOptions, ToolOutput, Violation,
};
use testkit::Scripted;
use testkit::config::{app_config, gateway_config};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, initialize, json, notification, request, result};
use testkit::tesseron::invoke;

/// A polled frame: its lane, its role and its text.
type Sent = (u32, RouteKind, String);

/// The transport of these tests, which has a stream for each lane.
trait Lanes {
    /// Passes the session a frame that came by `lane`.
    fn by(&mut self, lane: u32, frame: &str) -> Received;
    /// Polls all frames.
    fn polled(&mut self) -> Vec<Sent>;
    /// Receives a call of a tool by `lane`, with the request id and the progress token `id`.
    fn call_by(&mut self, lane: u32, id: u64) -> InboundId;
    /// Stops the output on `lane`, or resumes it.
    fn set_lane_writable(&mut self, lane: u32, is_writable: bool);
    /// Reports the loss of `lane`.
    fn lose(&mut self, lane: u32);
}

impl Lanes for Scripted {
    fn by(&mut self, lane: u32, frame: &str) -> Received {
        self.session
            .handle_frame(Bytes::copy_from_slice(frame.as_bytes()), Lane::new(lane), self.now)
            .expect("the lane takes frames")
    }

    fn polled(&mut self) -> Vec<Sent> {
        let sent = core::iter::from_fn(|| self.session.poll_transmit());
        sent.map(|sent| (sent.route.lane.number(), sent.route.kind, String::from_utf8(sent.frame.to_vec()).unwrap())).collect()
    }

    fn call_by(&mut self, lane: u32, id: u64) -> InboundId {
        assert_eq!(self.by(lane, &call_tool(id, true)).replies, 1);
        self.request()
    }

    fn set_lane_writable(&mut self, lane: u32, is_writable: bool) {
        self.session.set_writable(Lane::new(lane), is_writable, self.now).expect("the lane is open");
    }

    fn lose(&mut self, lane: u32) {
        self.session.handle_gone(Gone::Lane(Lane::new(lane)), self.now).expect("the lane is open");
    }
}

/// The lane and the role of each frame.
fn routes(sent: &[Sent]) -> Vec<(u32, RouteKind)> {
    sent.iter().map(|(lane, kind, _)| (*lane, *kind)).collect()
}

const RESULT: RouteKind = RouteKind::Reply(ReplyKind::Result);
const ERROR: RouteKind = RouteKind::Reply(ReplyKind::Error);
const REFUSED: RouteKind = RouteKind::Reply(ReplyKind::Refused);

fn server() -> Scripted {
    Scripted::server(server_config())
}

/// An app of Tesseron. Its exchanges are *lane-bound*: they end when their lane is lost (`Rules::lane_bound`).
fn app() -> Scripted {
    let mut app = Scripted::app(app_config());
    app.drain();
    app
}

// ---- Routes ----

#[test]
fn every_frame_of_an_inbound_call_is_sent_on_the_lane_that_the_call_came_by() {
    let mut server = server();
    let ids = [3, 1, 2].map(|lane| (lane, server.call_by(lane, 7)));
    for (lane, id) in ids {
        server.report(id, Progress::step(1, 2));
        server.ask(id, InputRequest::Roots);
        let record = LogRecord::new(Level::Error, json("1"));
        server.session.log(Some(id), record, server.now).unwrap();
        server.respond(id);
        let sent = server.polled();
        assert!(sent.iter().all(|(sent_on, ..)| *sent_on == lane), "{sent:?}");
        // The input request was not sent yet when its call was answered, so it is withdrawn without a frame.
        assert_eq!(routes(&sent), [(lane, RouteKind::Within), (lane, RouteKind::Within), (lane, RESULT)]);
    }
}

#[test]
fn a_frame_that_belongs_to_no_request_is_sent_on_the_channel() {
    let config = with(server_config(), |config| config.capabilities.tools_list_changed = true);
    let mut server = Scripted::server(config);
    server.call_by(5, 1);
    server.session.notify(Notification::ToolsChanged, server.now).unwrap();
    let record = LogRecord::new(Level::Error, json("1"));
    server.session.log(None, record, server.now).unwrap();
    let ping = server.invoke(Invoke::new(Op::Ping, Json::empty_object()));
    let sent = server.polled();
    assert!(matches!(
        routes(&sent)[..],
        [(0, RouteKind::Notification), (0, RouteKind::Notification), (0, RouteKind::Request(ExchangeId { .. }))]
    ));
    // The id in the frame of the ping is the number of the call.
    assert_eq!(ping.to_string().trim_start_matches("out-"), sent[2].2.split(r#""id":"#).nth(1).unwrap().split(',').next().unwrap());
}

#[test]
fn the_role_of_a_reply_is_result_error_or_refusal() {
    let mut server = server();
    for (frame, kind) in [
        (request(1, "ping", "{}"), RESULT),
        (request(2, "no/such", "{}"), REFUSED),
        (request(3, "tools/call", "[]"), REFUSED),
        (initialize(4, "2025-11-25", "{}"), REFUSED),
        ("nonsense".to_owned(), REFUSED),
    ] {
        assert_eq!(server.by(9, &frame).replies, 1, "{frame}");
        assert_eq!(routes(&server.polled()), [(9, kind)], "{frame}");
    }
    let failed = server.call_by(9, 5);
    server.reply(failed, Reply::Error(RpcError::internal("no")));
    assert_eq!(routes(&server.polled()), [(9, ERROR)]);
    let is_error = server.call_by(9, 6);
    server.reply(is_error, Reply::Tool(ToolOutput::error("no")));
    assert_eq!(routes(&server.polled()), [(9, RESULT)], "a tool that fails has a result");
}

#[test]
fn a_handshake_is_answered_on_the_lane_that_it_came_by() {
    let mut server = Scripted::new(server_config());
    assert_eq!(server.by(4, &initialize(0, "2025-11-25", "{}")).replies, 1);
    assert_eq!(routes(&server.polled()), [(4, RESULT)]);
    assert_eq!(server.by(5, &notification("notifications/initialized", "{}")).replies, 0);
    assert!(server.session.is_ready());
}

#[test]
fn the_route_of_a_call_has_its_exchange_and_that_of_an_answer_has_its_input_request() {
    let mut client = Scripted::client(client_config());
    let call = client.call();
    // Number 1 is the handshake.
    let exchange = ExchangeId::from_number(2);
    assert_eq!(routes(&client.polled()), [(0, RouteKind::Request(exchange))]);
    assert_eq!(client.by(6, &request(9, "roots/list", "{}")).replies, 1);
    let key = client.input_request();
    client.session.provide_input(key, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(routes(&client.polled()), [(6, RouteKind::InputResponse(key))]);
    client.session.cancel(call, None, client.now).unwrap();
    assert_eq!(routes(&client.polled()), [(0, RouteKind::Cancel(exchange))]);
}

#[test]
fn handling_a_frame_returns_the_number_of_replies_that_its_lane_will_get() {
    let mut server = Scripted::server_at(server_config(), "2025-03-26", "{}");
    let batch = format!("[{},{},{}]", call_tool(1, false), notification("notifications/x", "{}"), request(2, "ping", "{}"));
    assert_eq!(server.by(1, &batch).replies, 2);
    assert_eq!(server.session.replies_owed(Lane::new(1)), 1, "the ping is already answered");
    assert_eq!(server.by(1, &result(77)).replies, 0);
    assert_eq!(server.by(1, &call_tool(1, false)).replies, 0, "a second request with a running id is not answered");
    server.drain();
    assert_eq!(server.by(1, &cancelled(1)).replies, 0);
    assert_eq!(server.session.replies_owed(Lane::new(1)), 0, "a request that was cancelled is not replied to");
    assert_eq!(server.session.set_writable(Lane::new(1), true, server.now), Err(NotLive), "nothing keeps the lane open");
}

// ---- Ids ----

#[test]
fn the_same_id_on_two_lanes_identifies_two_exchanges() {
    let mut server = server();
    let [one, two] = [1, 2].map(|lane| server.call_by(lane, 7));
    server.by(2, &cancelled(7));
    assert_eq!(server.events(), [Event::Cancelled { id: two, why: CancelReason::Peer(None) }]);
    server.respond(one);
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
}

#[test]
fn a_cancel_on_another_lane_reaches_the_exchange_of_its_id_only_if_there_is_just_one() {
    let mut server = server();
    let [_, _, alone] = [(1, 7), (2, 7), (3, 8)].map(|(lane, id)| server.call_by(lane, id));
    server.by(9, &cancelled(7));
    assert_eq!(server.events(), []);
    server.by(9, &cancelled(8));
    assert_eq!(server.events(), [Event::Cancelled { id: alone, why: CancelReason::Peer(None) }]);
}

#[test]
fn a_lane_bound_exchange_cannot_be_cancelled_from_another_lane() {
    let mut app = app();
    app.by(1, &invoke(7, "a"));
    let id = app.request();
    let cancel = notification("actions/cancel", r#"{"invocationId":"a"}"#);
    app.by(2, &cancel);
    assert_eq!(app.events(), []);
    app.by(1, &cancel);
    assert_eq!(app.events(), [Event::Cancelled { id, why: CancelReason::Peer(None) }]);
    assert_eq!(routes(&app.polled()), [(1, ERROR)]);
}

#[test]
fn a_request_that_repeats_a_running_id_of_its_lane_is_a_violation_and_not_answered() {
    let mut server = server();
    server.call_by(1, 7);
    assert_eq!(server.by(1, &call_tool(7, false)), Received::default());
    assert_eq!((server.violations(), server.polled()), (vec![Violation::DuplicateRequest], vec![]));
}

// ---- A lane that stalls ----

#[test]
fn a_stopped_lane_keeps_its_frames_and_delays_no_other_lane() {
    let mut server = server();
    let lanes: Vec<u32> = (1..=20).collect();
    let ids: Vec<_> = lanes.iter().map(|lane| server.call_by(*lane, 1)).collect();
    for stalled in &lanes {
        server.set_lane_writable(*stalled, false);
        for (lane, id) in lanes.iter().zip(&ids) {
            let reported = server.report(*id, Progress::value(f64::from(*stalled)));
            let expected = if lane <= stalled { Reported::Congested } else { Reported::Sent };
            assert_eq!(reported, expected, "{lane} while {stalled} are stopped");
        }
        let sent = server.polled();
        assert_eq!(sent.len(), lanes.len() - *stalled as usize);
        assert!(sent.iter().all(|(lane, ..)| lane > stalled), "{sent:?}");
    }
    // A lane that is resumed sends its newest update.
    for (lane, id) in lanes.iter().zip(&ids) {
        server.set_lane_writable(*lane, true);
        let sent = server.polled();
        assert_eq!(routes(&sent), [(*lane, RouteKind::Within)]);
        assert!(sent[0].2.contains(r#""progress":20"#), "{sent:?}");
        server.respond(*id);
        assert_eq!(routes(&server.polled()), [(*lane, RESULT)]);
    }
}

#[test]
fn the_response_on_a_stopped_lane_is_sent_after_its_earlier_updates() {
    let mut server = server();
    let id = server.call_by(1, 1);
    server.report(id, Progress::step(1, 3));
    server.set_lane_writable(1, false);
    server.report(id, Progress::step(2, 3));
    server.respond(id);
    assert_eq!(server.polled(), []);
    server.set_lane_writable(1, true);
    let sent = server.polled();
    assert_eq!(routes(&sent), [(1, RouteKind::Within), (1, RouteKind::Within), (1, RESULT)]);
    assert!(sent[1].2.contains(r#""progress":2"#));
}

#[test]
fn a_stopped_lane_uses_no_update_of_the_rate_window_of_the_session() {
    let config = with(server_config(), |config| {
        config.progress.session_window = protocol_core::RateWindow::new(1, core::time::Duration::from_secs(1));
    });
    let mut server = Scripted::server(config);
    let [stopped, other] = [1, 2].map(|lane| server.call_by(lane, 1));
    server.report(other, Progress::value(1.0));
    assert_eq!(routes(&server.polled()), [(2, RouteKind::Within)]);
    // On each lane an update waits for the window. The update on lane 1 began to wait first, but then lane 1 is stopped.
    server.report(stopped, Progress::value(1.0));
    server.report(other, Progress::value(2.0));
    server.set_lane_writable(1, false);
    server.at(1000);
    assert_eq!(routes(&server.polled()), [(2, RouteKind::Within)]);
    server.set_lane_writable(1, true);
    server.at(2000);
    assert_eq!(routes(&server.polled()), [(1, RouteKind::Within)]);
}

#[test]
fn a_stopped_lane_with_too_much_queued_output_is_closed_and_the_other_lanes_go_on() {
    let config = with(server_config(), |config| {
        config.limits.output_bytes = 4 << 10;
        config.limits.output_bytes_hard = 64 << 10;
    });
    let mut server = Scripted::server(config);
    let [stopped, other] = [1, 2].map(|lane| server.call_by(lane, 1));
    let [stopped_too, other_too] = [1, 2].map(|lane| server.call_by(lane, 2));
    server.set_lane_writable(1, false);
    let output = "x".repeat(40 << 10);
    server.reply(stopped, Reply::Tool(ToolOutput::text(output.as_str())));
    assert_eq!(server.session.request_input(stopped_too, InputRequest::Roots, server.now), Err(protocol_core::AskError::Full));
    assert_eq!((server.events(), server.polled()), (vec![], vec![]));
    server.reply(stopped_too, Reply::Tool(ToolOutput::text(output.as_str())));
    let reason = CloseReason::Overload;
    assert_eq!(server.events(), [Event::LaneClosed { lane: Lane::new(1), reason }]);
    assert_eq!(server.session.set_writable(Lane::new(1), true, server.now), Err(NotLive));
    for id in [other, other_too] {
        server.respond(id);
    }
    assert_eq!(routes(&server.polled()), [(2, RESULT), (2, RESULT)]);
    // The transport may use the number again, and no frame of the closed lane is sent.
    let again = server.call_by(1, 1);
    server.respond(again);
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
    assert_eq!(server.session.stats().queued_bytes, 0);
}

#[test]
fn a_handler_on_a_lane_that_is_closed_for_overload_is_cancelled() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes_hard = 16 << 10));
    let [runs, ends] = [1, 2].map(|id| server.call_by(1, id));
    server.set_lane_writable(1, false);
    server.reply(ends, Reply::Tool(ToolOutput::text("x".repeat(20 << 10))));
    let lane = Lane::new(1);
    let expected =
        [Event::Cancelled { id: runs, why: CancelReason::Disconnected }, Event::LaneClosed { lane, reason: CloseReason::Overload }];
    assert_eq!(server.events(), expected);
    assert_eq!(server.session.respond(runs, Reply::Done, server.now), Err(NotLive));
    assert_eq!(server.polled(), []);
}

#[test]
fn too_many_unread_refusals_on_a_lane_close_only_that_lane() {
    let config = with(server_config(), |config| config.limits.unsolicited_replies = 4);
    let mut server = Scripted::server(config);
    server.call_by(1, 1);
    server.set_lane_writable(1, false);
    for id in 10..14 {
        server.by(1, &request(id, "no/such", "{}"));
    }
    assert!(!server.session.wants_input(Lane::new(1)) && server.session.wants_input(Lane::CHANNEL));
    let full = server.session.handle_frame(Bytes::from_static(b"{}"), Lane::new(1), server.now);
    assert!(full.is_err());
    // No refusal is read within `Timeouts::close_grace`.
    server.at(5000);
    assert!(server.events().contains(&Event::LaneClosed { lane: Lane::new(1), reason: CloseReason::Overload }));
    assert!(!server.session.is_closed());
    let id = server.call_by(2, 1);
    server.respond(id);
    assert_eq!(routes(&server.polled()), [(2, RESULT)]);
}

// ---- A lost lane ----

#[test]
fn an_exchange_of_mcp_with_a_handshake_goes_on_when_its_lane_is_lost() {
    let mut server = server();
    let ids: Vec<_> = (1..=5).map(|lane| (lane, server.call_by(lane, 1))).collect();
    for (lane, id) in &ids {
        server.lose(*lane);
        assert_eq!(server.events(), []);
        // A transport that can deliver frames later polls them as before.
        server.report(*id, Progress::step(1, 2));
        server.respond(*id);
        assert_eq!(routes(&server.polled()), [(*lane, RouteKind::Within), (*lane, RESULT)]);
    }
}

#[test]
fn a_lane_bound_exchange_ends_with_its_lane_and_no_more_frames_are_sent() {
    let mut app = app();
    let ids: Vec<_> = (1..=5)
        .map(|lane| {
            app.by(lane, &invoke(1, "a"));
            (lane, app.request())
        })
        .collect();
    for (lane, id) in &ids {
        app.report(*id, Progress::percent(10.0));
        app.lose(*lane);
        assert_eq!(app.events(), [Event::Cancelled { id: *id, why: CancelReason::Disconnected }], "lane {lane}");
        assert_eq!(app.polled(), []);
        assert_eq!(app.session.respond(*id, Reply::Done, app.now), Err(NotLive));
    }
    assert_eq!(app.session.stats().inbound_calls, 0);
}

/// A regression: a response that was delayed by `response_gap` was sent on the next lane with the same number.
#[test]
fn regression_a_response_delayed_by_its_gap_is_lost_with_its_lane() {
    let config = with(app_config(), |config| config.timeouts.response_gap = core::time::Duration::from_millis(50));
    let mut app = Scripted::app(config);
    app.drain();
    app.by(1, &invoke(1, "a"));
    let id = app.request();
    app.report(id, Progress::percent(10.0));
    app.polled();
    app.respond(id);
    app.lose(1);
    app.by(1, &invoke(2, "b"));
    let next = app.request();
    app.at(100);
    assert_eq!(app.polled(), []);
    app.respond(next);
    let sent = app.polled();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].2.contains(r#""id":2"#), "{sent:?}");
}

#[test]
fn a_call_whose_exchange_is_lost_ends_only_if_it_is_lane_bound() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.polled();
    let exchange = Gone::Exchange(ExchangeId::from_number(2));
    assert_eq!(client.session.handle_gone(exchange, client.now), Ok(()));
    assert_eq!(client.events(), []);
    client.by(8, &result(2));
    assert!(matches!(client.outcome(), Outcome::Result(_)));
    assert_eq!(client.session.handle_gone(exchange, client.now), Err(NotLive));

    let mut gateway = Scripted::gateway(gateway_config());
    gateway.drain();
    let call = gateway.invoke_action();
    // The first exchange of a call has the number of the call.
    let exchange = ExchangeId::from_number(call.to_string().trim_start_matches("out-").parse().unwrap());
    gateway.session.handle_gone(Gone::Exchange(exchange), gateway.now).unwrap();
    assert!(matches!(&gateway.events()[..], [Event::Done { id, outcome: Outcome::Lost, .. }] if *id == call));
    assert_eq!(gateway.polled(), [], "no cancel is sent after the transport has lost the exchange");
}

#[test]
fn a_call_whose_response_will_not_come_by_any_stream_ends_without_a_cancel() {
    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.polled();
    let response = Gone::Response(ExchangeId::from_number(2));
    assert_eq!(client.session.handle_gone(response, client.now), Ok(()));
    assert!(matches!(&client.events()[..], [Event::Done { id, outcome: Outcome::Lost, .. }] if *id == call));
    assert_eq!(client.polled(), []);
    assert_eq!(client.session.handle_gone(response, client.now), Err(NotLive));
}

#[test]
fn the_input_requests_of_a_lane_bound_exchange_are_withdrawn_when_its_lane_is_lost() {
    let mut app = app();
    app.by(3, &invoke(1, "a"));
    let id = app.request();
    app.ask(id, InputRequest::Confirm { message: "sure?".to_owned() });
    let sent = app.polled();
    assert_eq!(routes(&sent), [(3, RouteKind::Within)]);
    app.lose(3);
    assert_eq!(app.events(), [Event::Cancelled { id, why: CancelReason::Disconnected }]);
    assert_eq!(app.polled(), []);
}

// ---- Unknown lanes and bounds ----

#[test]
fn naming_a_lane_that_was_never_opened_returns_an_error_and_changes_nothing() {
    let mut server = server();
    let lane = Lane::new(99);
    assert_eq!(server.session.set_writable(lane, false, server.now), Err(NotLive));
    assert_eq!(server.session.handle_gone(Gone::Lane(lane), server.now), Err(NotLive));
    assert_eq!(server.session.replies_owed(lane), 0);
    let exchange = ExchangeId::from_number(99);
    assert_eq!(server.session.handle_gone(Gone::Exchange(exchange), server.now), Err(NotLive));
    server.expect_silence();
}

#[test]
fn the_number_of_open_lanes_is_bounded_and_lanes_that_are_open_go_on() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.lanes = 3));
    let ids = [1, 2, 3].map(|lane| (lane, server.call_by(lane, 1)));
    let frame = Bytes::from(call_tool(1, false));
    assert!(!server.session.wants_input(Lane::new(4)));
    assert_eq!(server.session.handle_frame(frame.clone(), Lane::new(4), server.now).unwrap_err().0, frame);
    server.by(2, &notification("notifications/x", "{}"));
    server.drain();
    for (lane, id) in ids {
        server.respond(id);
        assert_eq!(routes(&server.polled()), [(lane, RESULT)]);
    }
    server.call_by(4, 1);
}

#[test]
fn lanes_that_have_ended_are_forgotten() {
    let mut server = server();
    for round in 0..10_000 {
        let lane = round % 1_000 + 1;
        match round % 4 {
            0 => {
                let id = server.call_by(lane, 1);
                server.respond(id);
            }
            1 => drop(server.by(lane, &request(1, "ping", "{}"))),
            2 => {
                let id = server.call_by(lane, 1);
                server.by(lane, &cancelled(1));
                assert_eq!(server.session.respond(id, Reply::Done, server.now), Err(NotLive));
            }
            _ => drop(server.by(lane, "{")),
        }
        server.drain();
        assert_eq!(server.session.handle_gone(Gone::Lane(Lane::new(lane)), server.now), Err(NotLive));
    }
    assert_eq!((server.session.stats().inbound_calls, server.session.stats().exchanges_in), (0, 0));
}

#[test]
fn a_frame_that_is_too_large_on_one_lane_does_not_affect_the_others() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.frame_bytes = 256));
    let id = server.call_by(1, 1);
    assert_eq!(server.by(2, &"x".repeat(300)).replies, 1);
    assert_eq!(server.violations(), [Violation::FrameTooLarge]);
    assert_eq!(routes(&server.polled()), [(2, REFUSED)]);
    server.respond(id);
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
}

// ---- Closing and deadlines ----

#[test]
fn a_session_that_closes_answers_the_calls_of_each_lane() {
    let mut server = server();
    let ids = [1, 2].map(|lane| server.call_by(lane, 1));
    server.session.close(protocol_core::Close::Now, server.now);
    let sent = server.polled();
    assert_eq!(routes(&sent), [(1, RESULT), (2, RESULT)]);
    let cancelled = server.events().iter().filter(|event| matches!(event, Event::Cancelled { .. })).count();
    assert_eq!((cancelled, ids.len()), (2, 2));
    assert!(server.session.is_closed());
}

#[test]
fn the_response_at_the_deadline_of_a_call_is_sent_on_the_lane_of_the_call() {
    let mut server = server();
    let id = server.call_by(6, 1);
    let options = ServeOptions::default().with_deadline(core::time::Duration::from_secs(1));
    server.session.configure(id, options, server.now).unwrap();
    server.at(1000);
    assert_eq!(routes(&server.polled()), [(6, RESULT)]);
}

// ---- Regressions ----

#[test]
fn regression_the_ids_of_a_lost_exchange_can_be_reused_while_its_handler_runs() {
    let mut app = app();
    app.by(1, &invoke(1, "a"));
    let lost = app.request();
    app.lose(1);
    app.drain();
    assert_eq!(app.by(1, &invoke(1, "a")).replies, 1);
    let next = app.request();
    app.respond(next);
    assert_eq!(routes(&app.polled()), [(1, RESULT)]);
    assert_eq!(app.session.respond(lost, Reply::Done, app.now), Err(NotLive));
    // Both exchanges have ended, so their ids can be used again.
    assert_eq!(app.by(1, &invoke(1, "a")).replies, 1);
}

#[test]
fn regression_the_invocation_id_of_a_lost_exchange_can_be_reused_after_its_handler_has_ended() {
    let mut app = app();
    app.by(1, &invoke(1, "a"));
    let lost = app.request();
    app.lose(1);
    app.drain();
    assert_eq!(app.session.respond(lost, Reply::Done, app.now), Err(NotLive));
    assert_eq!(app.by(1, &invoke(2, "a")).replies, 1);
    let next = app.request();
    app.respond(next);
    assert_eq!(routes(&app.polled()), [(1, RESULT)]);
}

#[test]
fn regression_a_lane_is_forgotten_when_its_input_request_is_cancelled_on_another_lane() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.polled();
    client.by(6, &request(9, "roots/list", "{}"));
    client.input_request();
    client.by(7, &cancelled(9));
    client.drain();
    assert_eq!(client.session.replies_owed(Lane::new(6)), 0);
    assert_eq!(client.session.set_writable(Lane::new(6), true, client.now), Err(NotLive), "nothing keeps the lane open");
}

/// A regression: a frame that came before the owner had polled `LaneClosed` opened the lane again, and the reply to the frame was sent on
/// the stopped lane.
#[test]
fn regression_a_closed_lane_stays_closed_until_the_owner_has_polled_lane_closed() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes_hard = 16 << 10));
    let id = server.call_by(1, 1);
    server.set_lane_writable(1, false);
    server.reply(id, Reply::Tool(ToolOutput::text("x".repeat(20 << 10))));
    assert_eq!(server.by(1, &request(3, "ping", "{}")), Received::default());
    assert_eq!(server.polled(), [], "the transport has stopped the lane");
    assert_eq!(server.events(), [Event::LaneClosed { lane: Lane::new(1), reason: CloseReason::Overload }]);
    assert_eq!(server.by(1, &request(3, "ping", "{}")).replies, 1, "the number is used again");
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
}

#[test]
fn regression_input_requests_on_many_stopped_lanes_stay_within_the_bound_of_the_session() {
    let mut server = Scripted::server(with(server_config(), |config| {
        config.limits.output_bytes = 500;
        config.limits.output_bytes_hard = 1_000;
    }));
    let ids = (1..=12).map(|lane| {
        let id = server.call_by(lane, 1);
        server.set_lane_writable(lane, false);
        id
    });
    for id in ids.collect::<Vec<_>>() {
        let _ = server.session.request_input(id, InputRequest::Roots, server.now);
        let queued = server.session.stats().queued_bytes;
        assert!(queued <= 1_000, "{queued}");
    }
    assert!(server.events().iter().any(|event| matches!(event, Event::LaneClosed { .. })));
}

#[test]
fn regression_the_rest_of_a_batch_is_handled_after_a_cancel_that_leaves_its_lane_idle() {
    let mut server = Scripted::server_at(server_config(), "2025-03-26", "{}");
    server.call_by(1, 1);
    let batch = format!("[{},{},{}]", cancelled(1), call_tool(2, true), request(3, "ping", "{}"));
    assert_eq!(server.by(1, &batch).replies, 2);
    let two = server.request();
    server.respond(two);
    let sent = server.polled();
    assert_eq!(sent.len(), 2, "{sent:?}");
}

#[test]
fn regression_an_input_request_of_a_cancelled_call_is_answered_on_its_lane() {
    let mut client = Scripted::client(client_config());
    let call = client.call();
    client.polled();
    client.by(6, &request(9, "roots/list", "{}"));
    let key = client.input_request();
    client.session.cancel(call, None, client.now).unwrap();
    let sent = client.polled();
    assert!(sent.iter().any(|(lane, kind, _)| *lane == 6 && *kind == RouteKind::InputResponse(key)), "{sent:?}");
}

#[test]
fn regression_an_input_request_of_a_call_that_ends_is_answered_on_its_lane() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.polled();
    client.by(6, &request(9, "roots/list", "{}"));
    let key = client.input_request();
    client.by(5, &result(2));
    let sent = client.polled();
    assert!(sent.iter().any(|(lane, kind, _)| *lane == 6 && *kind == RouteKind::InputResponse(key)), "{sent:?}");
}

#[test]
fn regression_progress_is_sent_when_a_withdrawn_request_makes_room() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes = 10));
    let id = server.receive_call(1);
    let ping = server.invoke(Invoke::new(Op::Ping, Json::empty_object()));
    assert_eq!(server.report(id, Progress::step(1, 2)), Reported::Congested);
    server.session.cancel(ping, None, server.now).unwrap();
    assert!(server.session.stats().queued_bytes > 0, "G8: the update is ready");
    assert_eq!(server.polled().len(), 1);
}

#[test]
fn regression_the_list_of_lanes_that_are_polled_in_turn_does_not_grow_with_lanes_that_end() {
    let mut server = server();
    let mut sizes = vec![];
    for round in 0..4_000_u64 {
        let id = server.call_by(1, round + 10);
        server.report(id, Progress::step(1, 2));
        server.by(1, &cancelled(round + 10));
        let _ = server.session.respond(id, Reply::Done, server.now);
        server.events();
        if round % 1000 == 100 {
            sizes.push(format!("{:?}", server.session.subject()).len());
        }
    }
    assert!(sizes[3] < sizes[0] + 200, "{sizes:?}");
}

#[test]
fn regression_a_lane_that_was_forgotten_and_opened_again_is_polled_no_more_often_than_another() {
    let mut server = server();
    for round in 0..3_u64 {
        let id = server.call_by(1, round + 10);
        server.report(id, Progress::step(1, 2));
        server.by(1, &cancelled(round + 10));
        let _ = server.session.respond(id, Reply::Done, server.now);
        server.events();
    }
    for id in 0..4 {
        server.by(2, &request(50 + id, "ping", "{}"));
    }
    for id in 0..4 {
        server.by(1, &request(70 + id, "ping", "{}"));
    }
    let lanes: Vec<u32> = server.polled().iter().map(|sent| sent.0).collect();
    assert_eq!(lanes.iter().take(4).filter(|lane| **lane == 1).count(), 2, "{lanes:?}");
}

#[test]
fn regression_a_lost_stopped_lane_without_frames_is_forgotten() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.lanes = 3));
    for lane in 1..=3 {
        server.call_by(lane, u64::from(lane));
        server.set_lane_writable(lane, false);
        server.by(lane, &cancelled(u64::from(lane)));
        server.lose(lane);
    }
    server.drain();
    assert!(server.session.wants_input(Lane::new(4)), "three lost lanes still count as open");
}

#[test]
fn regression_a_handshake_request_is_forgotten_with_its_lane() {
    let mut gateway = Scripted::new(testkit::config::asking_gateway_config());
    gateway.by(3, &testkit::tesseron::hello(1, "1.2.0"));
    gateway.events();
    gateway.lose(3);
    gateway.by(3, &testkit::tesseron::hello(2, "1.2.0"));
    gateway.polled();
    assert!(
        gateway.events().iter().any(|event| matches!(event, Event::HandshakeRequest { .. })),
        "the second handshake is accepted"
    );
}

#[test]
fn regression_a_welcome_is_never_sent_on_the_next_lane_with_the_same_number() {
    let mut gateway = Scripted::new(testkit::config::asking_gateway_config());
    gateway.by(3, &testkit::tesseron::hello(1, "1.2.0"));
    gateway.events();
    gateway.lose(3);
    gateway.by(3, &request(1, "no/such", "{}"));
    gateway.by(3, &request(2, "no/such", "{}"));
    let before = gateway.events();
    let welcomed = gateway.session.welcome(Ok(testkit::config::welcome()), gateway.now);
    gateway.polled();
    assert_eq!(welcomed, Err(NotLive), "{before:?}");
}

#[test]
fn regression_held_input_requests_do_not_overload_the_session() {
    let mut server = Scripted::new(with(server_config(), |config| {
        config.limits.output_bytes = 500;
        config.limits.output_bytes_hard = 2_000;
    }));
    server.frame(&initialize(0, "2025-11-25", r#"{"roots":{}}"#));
    server.drain();
    let id = server.receive_call(1);
    let asked = (0..100).take_while(|_| server.session.request_input(id, InputRequest::Roots, server.now).is_ok()).count();
    server.frame(&notification("notifications/initialized", "{}"));
    let events = server.events();
    assert!(!server.session.is_closed(), "{asked} {:?}", events.last());
}

#[test]
fn regression_an_input_request_of_a_lane_bound_exchange_is_answered_only_on_its_lane() {
    let mut app = app();
    app.by(3, &invoke(1, "a"));
    let id = app.request();
    let key = app.ask(id, InputRequest::Confirm { message: "sure?".to_owned() });
    let sent = app.polled();
    let number = sent[0].2.split(r#""id":"#).nth(1).unwrap().split([',', '}']).next().unwrap().to_owned();
    app.by(4, &format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"action":"accept","value":{{}}}}}}"#));
    let events = app.events();
    assert!(!events.iter().any(|event| matches!(event, Event::Input { .. })), "{key:?} {events:?}");
}

#[test]
fn regression_a_batch_can_cancel_an_input_request_and_then_make_another() {
    let mut client = Scripted::client_at(client_config(), "2025-03-26", r#"{"tools":{}}"#);
    client.call();
    client.polled();
    client.by(6, &request(9, "roots/list", "{}"));
    client.input_request();
    client.by(6, &format!("[{},{}]", cancelled(9), request(10, "roots/list", "{}")));
    let key = client.input_request();
    client.session.provide_input(key, InputResponse::Roots(json("[]")), client.now).unwrap();
    assert_eq!(routes(&client.polled()), [(6, RouteKind::InputResponse(key))]);
}

#[test]
fn regression_a_method_that_closes_the_last_lane_ends_a_closing_session() {
    let mut server = Scripted::server(with(server_config(), |config| {
        config.limits.output_bytes = 100_000;
        config.limits.output_bytes_hard = 1_000;
    }));
    let id = server.call_by(1, 1);
    server.set_lane_writable(1, false);
    server.session.close(protocol_core::Close::Graceful { grace: core::time::Duration::from_secs(60) }, server.now);
    for _ in 0..100 {
        let _ = server.session.request_input(id, InputRequest::Roots, server.now);
    }
    let events = server.events();
    assert!(server.session.is_closed(), "{:?} {:?}", events.last(), server.session.poll_timeout());
}

#[test]
fn regression_a_reply_to_a_batch_with_a_cancel_does_not_close_the_lane_of_a_later_call() {
    let mut server = Scripted::server_at(server_config(), "2025-03-26", "{}");
    server.call_by(1, 1);
    server.by(1, &format!("[{},{}]", cancelled(1), call_tool(2, false)));
    let two = server.request();
    let four = server.call_by(1, 4);
    assert_eq!(server.session.replies_owed(Lane::new(1)), 2);
    server.respond(two);
    server.polled();
    server.respond(four);
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
}

#[test]
fn regression_each_reply_after_a_batch_with_a_cancel_lowers_the_replies_owed_by_one() {
    let owed = |server: &Scripted| server.session.replies_owed(Lane::new(1));
    let mut server = Scripted::server_at(server_config(), "2025-03-26", "{}");
    server.call_by(1, 1);
    server.by(1, &format!("[{},{}]", cancelled(1), call_tool(2, false)));
    assert_eq!(owed(&server), 1, "the cancelled call gets no reply");
    let two = server.request();
    let four = server.call_by(1, 4);
    assert_eq!(owed(&server), 2);
    server.respond(two);
    assert_eq!(owed(&server), 1);
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
    assert_eq!(owed(&server), 1, "the lane stays open for the other call");
    server.respond(four);
    assert_eq!(owed(&server), 0);
    assert_eq!(routes(&server.polled()), [(1, RESULT)]);
    assert_eq!(server.session.set_writable(Lane::new(1), true, server.now), Err(NotLive), "nothing keeps the lane open");
}
