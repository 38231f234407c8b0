//! Pings in both directions, in every phase of a session (Utilities, "Ping").

use bytes::Bytes;
use protocol_core::{CallTimeouts, Event, Invoke, Json, Lane, Outcome, Violation};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{error, initialize, request, result};

fn ping() -> Invoke {
    Invoke::ping().without_progress().with_timeouts(CallTimeouts::NONE)
}

/// Sessions of both ends in each phase of the handshake: a server before, within and after it, and a client within and after it.
fn phases() -> Vec<Scripted> {
    let mut server_within = Scripted::new(server_config());
    server_within.frame(&initialize(0, "2025-11-25", "{}"));
    let mut ends = vec![
        Scripted::new(server_config()),
        server_within,
        Scripted::server(server_config()),
        Scripted::new(client_config()),
        Scripted::client(client_config()),
    ];
    for end in &mut ends {
        end.drain();
    }
    ends
}

#[test]
fn a_ping_is_answered_with_its_id_in_every_phase_of_both_ends() {
    for id in ["7", "0", "-3", "9223372036854775807", "18446744073709551615", "\"7\"", "\"\"", "\"a \\\"b\\\"\""] {
        for params in ["", r#","params":{}"#, r#","params":{"_meta":{"progressToken":1}}"#, r#","params":{"extra":[1]}"#] {
            for mut end in phases() {
                end.frame(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"{params}}}"#));
                assert_eq!(end.sent(), [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)]);
                assert_eq!(end.events(), []);
            }
        }
    }
}

#[test]
fn a_ping_with_invalid_parameters_is_refused() {
    for (params, why) in [
        ("[]", "parameters of the wrong shape"),
        (r#"{"_meta":[]}"#, "_meta must be an object"),
        (r#"{"_meta":{"progressToken":1.5}}"#, "progressToken must be text or a whole number"),
    ] {
        for mut end in phases() {
            end.frame(&request(7, "ping", params));
            assert_eq!(end.sent(), [error(7, -32602, why)]);
            assert_eq!(end.events(), [Event::Violation(Violation::InvalidParams)]);
        }
    }
}

#[test]
fn a_peer_that_pings_and_never_reads_is_no_longer_read() {
    let mut server = Scripted::server(with(server_config(), |config| config.limits.unsolicited_replies = 8));
    let frame = Bytes::from(request(7, "ping", "{}"));
    let taken = (0..1000).take_while(|_| {
        server.session.handle_frame(frame.clone(), Lane::CHANNEL, server.now).is_ok() && !server.session.is_closed()
    });
    assert_eq!(taken.count(), 8);
    assert_eq!(server.sent().len(), 8);
}

// ---- Outbound pings ----

#[test]
fn an_outbound_ping_is_sent_in_every_phase_and_needs_no_capability() {
    // A client whose server has declared no capability.
    let mut without = Scripted::client_at(client_config(), "2025-11-25", "{}");
    without.drain();
    for mut end in phases().into_iter().chain([without]) {
        let id = end.invoke(ping());
        let number: u64 = id.to_string().replace("out-", "").parse().unwrap();
        assert_eq!(end.sent(), [request(number, "ping", "{}")]);
        end.frame(&result(number));
        assert_eq!(end.events(), [Event::Done { id, outcome: Outcome::Result(Json::empty_object()), partial: None, last: None }]);
        end.expect_silence();
    }
}

#[test]
fn an_outbound_ping_is_sent_before_the_calls_that_are_held_for_the_handshake() {
    let mut client = Scripted::new(client_config());
    client.sent();
    client.call();
    client.invoke(ping());
    assert_eq!(client.sent(), [request(3, "ping", "{}")]);
}
