//! Batches, which only revision 2025-03-26 has (Basic, "Batching").

use protocol_core::{Event, Violation};
use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, cancelled, error, initialize, ok, progress, request, result};

/// The reply to a batch that breaks `rule`.
fn refused(rule: Violation) -> String {
    format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32600,"message":"{rule}"}}}}"#)
}

fn server() -> Scripted {
    Scripted::server_at(server_config(), "2025-03-26", "{}")
}

fn batch(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

fn ping(id: u64) -> String {
    request(id, "ping", "{}")
}

#[test]
fn the_messages_of_a_batch_are_handled_in_order_as_if_each_had_come_alone() {
    let mut server = server();
    let unknown = request(3, "nothing/known", "{}");
    server.frame(&batch(&[ping(1), call_tool(2, true), unknown, "5".into(), cancelled(2), ping(4), call_tool(5, false)]));
    assert_eq!(
        server.sent(),
        [
            result(1),
            error(3, -32601, "method not found: nothing/known"),
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"a frame that is no JSON-RPC 2.0 message"}}"#.to_owned(),
            result(4),
        ],
        "each reply is a frame of its own, never part of a batch"
    );
    let events = server.events();
    let [
        Event::Request { id, .. },
        Event::Violation(Violation::InvalidEnvelope),
        Event::Cancelled { id: cancelled, .. },
        Event::Request { id: second, .. },
    ] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(id, cancelled);
    server.respond(second);
    assert_eq!(server.sent(), [ok(5)]);
}

#[test]
fn progress_and_responses_in_a_batch_reach_each_of_its_calls() {
    let mut client = Scripted::client_at(client_config(), "2025-03-26", r#"{"tools":{}}"#);
    let calls = [client.call(), client.call()];
    client.drain().frame(&batch(&[progress(2, 1.0), result(3), error(2, 7, "no")]));
    let events = client.events();
    let [Event::Progress { id: reported, .. }, Event::Done { id: second, .. }, Event::Done { id: first, .. }] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!([reported, first, second], [calls[0], calls[0], calls[1]]);
}

#[test]
fn an_id_that_occurs_twice_in_a_batch_is_a_duplicate() {
    let mut server = server();
    server.frame(&batch(&[call_tool(1, false), call_tool(1, false)]));
    let events = server.events();
    let [Event::Request { id, .. }, Event::Violation(Violation::DuplicateRequest)] = events[..] else { panic!("{events:?}") };
    server.respond(id);
    assert_eq!(server.sent(), [ok(1)]);
}

#[test]
fn an_empty_oversized_or_malformed_batch_gets_one_error_and_has_no_effect() {
    let limited = with(server_config(), |config| config.limits.batch = 3);
    let most = batch(&[ping(1), ping(2), ping(3)]);
    let one_more = batch(&[ping(1), ping(2), ping(3), ping(4)]);
    let unfinished = format!("[{},{}", ping(1), ping(2));
    let not_json = r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"a frame that is not JSON"}}"#;
    let [empty, too_long] = [Violation::EmptyBatch, Violation::BatchTooLong].map(refused);
    for (frame, answer, rule) in [
        ("[]", &*empty, Violation::EmptyBatch),
        (&one_more, &*too_long, Violation::BatchTooLong),
        (&unfinished, not_json, Violation::NotJson),
    ] {
        let mut server = Scripted::server_at(limited.clone(), "2025-03-26", "{}");
        server.frame(frame);
        assert_eq!((server.sent(), server.violations()), (vec![answer.to_owned()], vec![rule]), "{frame}");
        server.frame(&most);
        assert_eq!(server.sent(), [result(1), result(2), result(3)]);
    }
}

#[test]
fn in_other_revisions_a_batch_has_no_effect_and_only_a_server_replies_to_it() {
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut server = Scripted::server_at(server_config(), revision, "{}");
        server.frame(&batch(&[ping(1), call_tool(2, false)]));
        let rule = Violation::BatchUnsupported;
        assert_eq!((server.sent(), server.events()), (vec![refused(rule)], vec![Event::Violation(rule)]));
    }
    let mut client = Scripted::client(client_config());
    client.call();
    client.drain().frame(&batch(&[result(9)]));
    assert_eq!(
        (client.sent(), client.events()),
        (vec![], vec![Event::Violation(Violation::BatchUnsupported)]),
        "a client does not reply to a batch"
    );
    assert_eq!(client.session.stats().outbound_calls, 1);
}

#[test]
fn a_handshake_in_a_batch_is_refused() {
    let handshake = initialize(9, "2025-03-26", "{}");
    let mut fresh = Scripted::new(server_config());
    fresh.frame(&format!("[{handshake}]"));
    assert_eq!((fresh.sent(), fresh.session.peer()), (vec![refused(Violation::BatchUnsupported)], None));

    let mut server = server();
    server.frame(&batch(&[handshake, ping(1)]));
    assert_eq!(server.sent(), [error(9, -32600, "initialize must not be part of a batch"), result(1)]);
}

#[test]
fn a_batch_within_a_batch_is_an_invalid_element() {
    let mut server = server();
    server.frame(&format!("[[{}],{}]", ping(1), ping(2)));
    assert_eq!(
        server.sent(),
        [r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"a frame that is no JSON-RPC 2.0 message"}}"#.to_owned(), result(2)]
    );
}
