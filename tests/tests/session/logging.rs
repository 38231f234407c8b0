//! Log records from a server to its client (Server Utilities, "Logging").

use protocol_core::{Event, InboundId, Level, LogRecord, Logged, NotLive, Reply, ToolOutput};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, error, initialize, json, notification, request, result};
use testkit::{Pair, Scripted};

fn record(level: Level) -> LogRecord {
    LogRecord::new(level, json("1"))
}

/// The frame of [`record`].
fn written(level: Level) -> String {
    notification("notifications/message", &format!(r#"{{"level":"{level}","data":1}}"#))
}

fn log(server: &mut Scripted, level: Level) -> Logged {
    server.session.log(None, record(level), server.now).unwrap()
}

/// Logs a record whose data is `number`.
fn log_number(server: &mut Scripted, number: usize) -> Logged {
    let record = LogRecord::new(Level::Error, json(&number.to_string()));
    server.session.log(None, record, server.now).unwrap()
}

fn set_level(id: u64, level: &str) -> String {
    request(id, "logging/setLevel", &format!(r#"{{"level":{level}}}"#))
}

#[test]
fn a_record_is_sent_with_its_level_its_logger_and_any_json_as_data() {
    let mut server = Scripted::server(server_config());
    for data in [r#"{"a" : 1.0}"#, "null", r#""text""#, "[]"] {
        let record = LogRecord::new(Level::Warning, json(data)).with_logger("a \"b\"");
        assert_eq!(server.session.log(None, record, server.now), Ok(Logged::Sent));
        let params = format!(r#"{{"level":"warning","logger":"a \"b\"","data":{data}}}"#);
        assert_eq!(server.sent(), [notification("notifications/message", &params)]);
    }
}

#[test]
fn records_of_the_level_that_the_client_sets_and_of_higher_levels_are_sent() {
    for (threshold, level) in Level::ALL.into_iter().enumerate() {
        let mut server = Scripted::server(server_config());
        server.frame(&set_level(1, &format!("\"{level}\"")));
        assert_eq!((server.sent(), server.events()), (vec![result(1)], vec![]));
        for (severity, each) in Level::ALL.into_iter().enumerate() {
            let passes = severity >= threshold;
            assert_eq!(log(&mut server, each), if passes { Logged::Sent } else { Logged::Unwanted }, "{each} under {level}");
            assert_eq!(server.sent(), if passes { vec![written(each)] } else { vec![] });
        }
    }
}

#[test]
fn the_level_of_the_config_applies_until_a_client_sets_one_and_then_the_last_one_set() {
    let mut server = Scripted::server(with(server_config(), |config| config.log_level = Level::Error));
    assert_eq!((log(&mut server, Level::Warning), log(&mut server, Level::Error)), (Logged::Unwanted, Logged::Sent));
    server.frame(&set_level(1, "\"debug\""));
    assert_eq!(log(&mut server, Level::Debug), Logged::Sent);
    server.frame(&set_level(2, "\"emergency\""));
    assert_eq!(log(&mut server, Level::Alert), Logged::Unwanted);
    let mut defaults = Scripted::server(server_config());
    assert_eq!((log(&mut defaults, Level::Debug), log(&mut defaults, Level::Info)), (Logged::Unwanted, Logged::Sent));
}

/// No frame for a request is sent after its cancel (MCP, Cancellation). A regression: a queued record was still sent.
#[test]
fn records_that_wait_are_withdrawn_when_the_peer_cancels_their_call() {
    let mut server = Scripted::server(server_config());
    server.frame(&call_tool(5, false)).frame(&call_tool(6, false));
    let calls: Vec<_> =
        server.events().iter().map(|event| if let Event::Request { id, .. } = event { *id } else { panic!("{event:?}") }).collect();
    for id in [Some(calls[0]), None, Some(calls[1]), Some(calls[0])] {
        server.session.log(id, record(Level::Error), server.now).unwrap();
    }
    server.frame(&cancelled(5));
    assert_eq!(server.sent(), [written(Level::Error), written(Level::Error)], "the record of no call, and that of the other");
    assert_eq!(server.session.stats().queued_bytes, 0);
}

#[test]
fn an_unknown_level_is_refused_and_the_previous_one_stays() {
    let mut server = Scripted::server(server_config());
    server.frame(&set_level(1, "\"error\"")).drain();
    for level in ["\"warn\"", "\"ERROR\"", "\"\"", "3", "null", "[\"info\"]"] {
        server.frame(&set_level(2, level));
        assert_eq!(server.sent(), [error(2, -32602, "level must be one of the eight log levels")], "{level}");
    }
    server.frame(&request(3, "logging/setLevel", "{}"));
    assert_eq!(server.sent(), [error(3, -32602, "level must be one of the eight log levels")]);
    assert_eq!((log(&mut server, Level::Warning), log(&mut server, Level::Error)), (Logged::Unwanted, Logged::Sent));
}

#[test]
fn a_server_that_did_not_declare_logging_has_no_level_and_sends_nothing() {
    let mut server = Scripted::server(with(server_config(), |config| config.capabilities.logging = false));
    server.frame(&set_level(1, "\"debug\""));
    assert_eq!(server.sent(), [error(1, -32601, "method not found: logging/setLevel")]);
    assert_eq!(log(&mut server, Level::Emergency), Logged::Unwanted);
    server.expect_silence();
}

#[test]
fn records_are_sent_in_each_phase_of_the_handshake_but_a_level_can_be_set_only_once_it_has_begun() {
    let mut server = Scripted::new(server_config());
    assert_eq!(log(&mut server, Level::Info), Logged::Sent);
    assert_eq!(server.sent(), [written(Level::Info)]);
    server.frame(&set_level(1, "\"debug\""));
    assert_eq!(server.sent(), [error(1, -32600, "the first request must be the handshake")]);
    server.frame(&initialize(0, "2025-11-25", "{}")).drain();
    server.frame(&set_level(2, "\"debug\""));
    assert_eq!((server.sent(), log(&mut server, Level::Debug)), (vec![result(2)], Logged::Sent));
}

#[test]
fn a_record_on_behalf_of_a_call_that_has_ended_is_refused() {
    let mut server = Scripted::server(server_config());
    let id: InboundId = server.receive_call(1);
    assert_eq!(server.session.log(Some(id), record(Level::Error), server.now), Ok(Logged::Sent));
    server.respond(id).drain();
    assert_eq!(server.session.log(Some(id), record(Level::Error), server.now), Err(NotLive));
    server.expect_silence();
}

#[test]
fn while_too_much_output_is_queued_a_new_record_replaces_the_oldest() {
    let frame = |number| notification("notifications/message", &format!(r#"{{"level":"error","data":{number}}}"#));
    // A record is queued if the output before it is below the limit: so three records are queued, and with the third the output exceeds
    // the limit.
    let room = frame(1).len() * 2 + 1;
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes = room));
    let logged: Vec<_> = (1..=7).map(|number| log_number(&mut server, number)).collect();
    assert_eq!(logged[..3], [Logged::Sent; 3]);
    // Each of these was queued in place of an older record.
    assert_eq!(logged[3..], [Logged::Dropped; 4]);
    assert_eq!(server.session.stats().logs_dropped, 4);
    assert_eq!(server.sent(), [5, 6, 7].map(frame));
    assert_eq!(log_number(&mut server, 8), Logged::Sent);
}

#[test]
fn a_record_without_room_replaces_only_as_many_older_ones_as_it_needs() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes = 200));
    let id = server.receive_call(1);
    log_number(&mut server, 1);
    log_number(&mut server, 2);
    // The output exceeds the limit even without the records. The new record has the length of one older record, so it replaces only one.
    server.reply(id, Reply::Tool(ToolOutput::text("x".repeat(200))));
    assert_eq!(log_number(&mut server, 3), Logged::Dropped);
    let sent = server.sent();
    let records: Vec<_> = sent.iter().filter(|frame| frame.contains("notifications/message")).collect();
    assert!(records.len() == 2 && records[1].contains(r#""data":3"#), "{sent:?}");
    assert_eq!(server.session.stats().logs_dropped, 1);
}

#[test]
fn a_record_is_dropped_if_there_is_no_room_and_no_older_record_to_replace() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.output_bytes = 1));
    let id = server.receive_call(1);
    server.respond(id);
    assert_eq!(log(&mut server, Level::Emergency), Logged::Dropped);
    assert_eq!((server.sent(), server.session.stats().logs_dropped), (vec![testkit::scripted::ok(1)], 1));
}

#[test]
fn records_arrive_in_order_and_malformed_ones_are_dropped_as_violations() {
    let mut pair = Pair::ready();
    for level in [Level::Info, Level::Error] {
        log(&mut pair.server, level);
    }
    pair.run();
    assert_eq!(pair.client_events(), [Level::Info, Level::Error].map(|level| Event::Log(record(level))));

    let mut client = Scripted::client(client_config());
    for params in [r#"{"level":"info"}"#, r#"{"level":"warn","data":1}"#, r#"{"data":1}"#, "{}"] {
        client.frame(&notification("notifications/message", params));
        assert_eq!(client.events(), [Event::Violation(protocol_core::Violation::InvalidParams)], "{params}");
    }
}
