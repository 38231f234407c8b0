use super::*;
use crate::mcp::Era as ClientEra;
use crate::{
    CallTimeouts, Capabilities, CloseReason, Config, Event, Gone, Identity, InputKey, InputResponse, Invalid, Invoke, Json, Lane,
    MemberFault, NotLive, OutboundId, Outcome, RpcError, SampleResult, Session, TransportEnd,
};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// A client with a real session, against a server that the test plays.
struct Bench {
    client: HttpClient,
    session: Session,
    now: Instant,
    /// All HTTP requests, in the order of their ids. The tests refer to a request by its index.
    sent: Vec<HttpClientRequest>,
    /// The requests and other instructions of the client, and the end of the session, since the last call of `take_log`.
    log: Vec<String>,
    /// The reasons of lost calls, of streams that are resumed, and of the failure.
    lost: Vec<String>,
    may_be_legacy: bool,
    done: Vec<(OutboundId, Outcome)>,
    asked: Vec<(InputKey, Option<OutboundId>)>,
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const LATEST: &str = "2025-11-25";

/// The text of a response with a result.
fn result(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn error(id: u64, code: i64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#)
}

/// The response to a handshake request, which chooses this version.
fn agreed(id: u64, version: &str) -> String {
    let capabilities = r#"{"tools":{},"resources":{},"logging":{}}"#;
    result(
        id,
        &format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"s","version":"1"}}}}"#),
    )
}

/// The response to a probe.
fn discovered(id: u64) -> String {
    let rest = r#""capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private""#;
    result(id, &format!(r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],{rest}}}"#))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    fn new(era: ClientEra) -> Self {
        Self::with(era, |_| {})
    }

    fn with(era: ClientEra, change: impl FnOnce(&mut HttpClientConfig)) -> Self {
        let mut config = Config::mcp_client(Identity::new("c", "1"));
        config.era = era;
        config.capabilities = Capabilities { sampling: true, ..Capabilities::default() };
        config.timeouts.call = CallTimeouts::NONE;
        let mut http = HttpClientConfig::new("https://example.com/mcp");
        change(&mut http);
        let mut bench = Self {
            client: HttpClient::new(http, Instant::ZERO).unwrap(),
            session: Session::new(config, Instant::ZERO),
            now: Instant::ZERO,
            sent: Vec::new(),
            log: Vec::new(),
            lost: Vec::new(),
            may_be_legacy: false,
            done: Vec::new(),
            asked: Vec::new(),
        };
        bench.pump();
        bench
    }

    /// A client in an open HTTP session with the id `s1`. The id of its next JSON-RPC request is 2. It has made the HTTP requests 0 to 2:
    /// the handshake, its confirmation, and the GET, which was refused.
    fn legacy() -> Self {
        let mut bench = Self::new(ClientEra::Legacy);
        bench.open("s1");
        bench.head(2, 405, "");
        bench.take_log();
        bench
    }

    /// A client without a handshake. The id of its next JSON-RPC request is 2. It has made the HTTP request 0, the probe.
    fn modern() -> Self {
        let mut bench = Self::new(ClientEra::Modern);
        bench.json(0, 200, &discovered(1));
        bench.take_log();
        bench
    }

    /// Answers the handshake, which opens an HTTP session with this id.
    fn open(&mut self, id: &str) {
        self.head_with(0, 200, &[("content-type", JSON), ("mcp-session-id", id)]);
        self.body(0, &agreed(1, LATEST));
        self.head(1, 202, "");
    }

    fn pump(&mut self) {
        loop {
            while let Some(event) = self.session.poll_event() {
                match event {
                    Event::Done { id, outcome, .. } => self.done.push((id, outcome)),
                    Event::InputRequested { key, parent, .. } => self.asked.push((key, parent)),
                    // The log has the failure already: see `HttpClientEvent::Failed` below.
                    Event::Closed(CloseReason::Failed) => {}
                    Event::Closed(reason) => self.log.push(format!("the session closes: {reason}")),
                    _ => {}
                }
            }
            if let Some(transmit) = self.session.poll_transmit() {
                self.client.handle_transmit(transmit, self.now);
                continue;
            }
            let Some(event) = self.client.poll_event() else { break };
            match event {
                HttpClientEvent::Send(request) => {
                    self.log.push(shown(&request));
                    self.sent.push(request);
                }
                // The ids of HTTP requests begin with 1, and the indices with 0.
                HttpClientEvent::Abort(request) => self.log.push(format!("abort {}", request.0 - 1)),
                HttpClientEvent::Frame { frame, lane, exchange } => {
                    self.session.handle_frame_within(frame, lane, exchange, self.now).unwrap();
                }
                HttpClientEvent::Lost { exchange, why } => {
                    self.lost.push(why.to_string());
                    let _ = self.session.handle_gone(Gone::Response(exchange), self.now);
                }
                HttpClientEvent::Writable(is_writable) => {
                    self.session.set_writable(Lane::CHANNEL, is_writable, self.now).unwrap();
                    self.log.push(format!("writable: {is_writable}"));
                }
                HttpClientEvent::Fault { fault, .. } => self.log.push(format!("fault: {fault}")),
                HttpClientEvent::Failed(failure) => {
                    self.lost.push(format!("failed: {failure}"));
                    self.may_be_legacy = failure.may_be_legacy();
                    self.log.push(match failure {
                        HttpFailure::Refused(why) => format!("failed: {}", why.fault),
                        HttpFailure::NotMcp(_) => format!("failed: {}", HttpFailure::NotMcp(None)),
                        HttpFailure::SessionLost(_) => format!("failed: {}", HttpFailure::SessionLost(None)),
                        failure => format!("failed: {failure}"),
                    });
                    self.session.handle_end(TransportEnd::Failed, self.now);
                }
                HttpClientEvent::Resuming { why, .. } => self.lost.push(format!("resuming: {why}")),
                HttpClientEvent::Reopened => self.log.push("reopened".to_string()),
                HttpClientEvent::Closed => self.log.push("closed".to_string()),
            }
        }
        assert!(self.client.poll_timeout().is_none_or(|at| at > self.now), "no deadline is left in the past");
    }

    fn take_log(&mut self) -> Vec<String> {
        core::mem::take(&mut self.log)
    }

    fn head(&mut self, request: usize, status: u16, media_type: &str) {
        // A head without a type belongs to a response without a body.
        let fields = if media_type.is_empty() { ("content-length", "0") } else { ("content-type", media_type) };
        self.head_with(request, status, &[fields]);
    }

    fn head_with(&mut self, request: usize, status: u16, fields: &[(&str, &str)]) {
        let head = ResponseHead::new(status, fields.iter().copied().collect());
        self.client.handle_head(self.sent[request].id, &head, self.now);
        self.pump();
    }

    fn chunk(&mut self, request: usize, chunk: &str) {
        self.client.handle_chunk(self.sent[request].id, Bytes::copy_from_slice(chunk.as_bytes()), self.now);
        self.pump();
    }

    fn event(&mut self, request: usize, id: &str, frame: &str) {
        let id = if id.is_empty() { String::new() } else { format!("id: {id}\n") };
        self.chunk(request, &format!("{id}data: {frame}\n\n"));
    }

    fn end(&mut self, request: usize) {
        self.client.handle_end(self.sent[request].id, self.now);
        self.pump();
    }

    fn lose(&mut self, request: usize) {
        self.client.handle_loss(self.sent[request].id, "", self.now);
        self.pump();
    }

    fn body(&mut self, request: usize, body: &str) {
        self.chunk(request, body);
        self.end(request);
    }

    fn json(&mut self, request: usize, status: u16, body: &str) {
        self.head(request, status, JSON);
        self.body(request, body);
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now.saturating_add(span);
        self.client.handle_timeout(self.now);
        self.session.handle_timeout(self.now);
        self.pump();
    }

    fn call(&mut self, tool: &str) -> OutboundId {
        self.call_with(tool, "{}")
    }

    fn call_with(&mut self, tool: &str, arguments: &'static str) -> OutboundId {
        let id = self.session.invoke(Invoke::call_tool(tool, Json::parse(arguments).unwrap()), self.now).unwrap();
        self.pump();
        id
    }

    fn cancel(&mut self, id: OutboundId) {
        self.session.cancel(id, None, self.now).unwrap();
        self.pump();
    }

    fn close(&mut self) {
        self.client.close(self.now);
        self.pump();
    }

    /// Takes the only outcome since the last call of this method.
    fn outcome(&mut self) -> Outcome {
        let [(_, outcome)] = &self.done[..] else { panic!("one outcome: {:?}", self.done) };
        let outcome = outcome.clone();
        self.done.clear();
        outcome
    }

    fn field(&self, request: usize, name: &str) -> Option<&str> {
        self.sent[request].headers.only(name).unwrap()
    }
}

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;

/// A request in one line: its HTTP method, its target if that is not `/mcp`, the HTTP session, the last event, and the JSON-RPC method.
fn shown(request: &HttpClientRequest) -> String {
    let field = |name: &str| request.headers.only(name).unwrap();
    let mut shown = String::from(request.method.as_str());
    if request.target != "/mcp" {
        shown += &format!(" {}", request.target);
    }
    if let Some(id) = field("mcp-session-id") {
        shown += &format!(" [{id}]");
    }
    if let Some(id) = field("last-event-id") {
        shown += &format!(" after {id}");
    }
    if !request.body.is_empty() {
        let body = Json::parse(request.body.clone()).unwrap();
        let method = body.member("method").and_then(|method| method.as_text());
        shown += &format!(" {}", method.as_deref().unwrap_or("answer"));
    }
    shown
}

// ---- The choice of an era ----

#[test]
fn the_answer_to_the_probe_chooses_the_era_or_ends_the_session() {
    let (handshake, modern) = ("POST initialize", "POST tools/call");
    let end = |why: &str| format!("failed: {why}");
    let unsupported = |versions: &str| {
        let data = format!(r#"{{"supported":{versions},"requested":"2026-07-28"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32022,"message":"no","data":{data}}}}}"#)
    };
    let only_legacy = result(1, r#"{"resultType":"complete","supportedVersions":["2025-11-25"],"capabilities":{}}"#);
    let only_newer = result(1, r#"{"resultType":"complete","supportedVersions":["2030-01-01"],"capabilities":{}}"#);
    let without_id = error(1, -32601).replace(r#""id":1,"#, "");
    for (status, media_type, body, expected) in [
        (200, JSON, discovered(1), modern),
        (200, "application/json; charset=utf-8", discovered(1), modern),
        (200, JSON, only_legacy, handshake),
        (200, JSON, only_newer, "the session closes: no protocol revision is common to both ends"),
        // The revision that the server refuses is one that it supports, so the probe is repeated.
        (400, JSON, unsupported(r#"["2026-07-28"]"#), "POST server/discover"),
        (400, JSON, unsupported(r#"["2025-06-18"]"#), handshake),
        (400, JSON, error(1, -32020), "the session closes: the peer refused the request for its revisions"),
        (400, JSON, error(1, -32021), "the session closes: the peer refused the request for its revisions"),
        (404, JSON, error(1, -32601), handshake),
        (404, JSON, without_id.clone(), handshake),
        (200, JSON, error(1, -32601), handshake),
        (200, JSON, without_id, handshake),
        (400, JSON, error(1, -32600), handshake),
        (400, "text/plain", "missing session id".to_string(), handshake),
        (405, "", String::new(), handshake),
        (406, "", String::new(), handshake),
        (415, "", String::new(), handshake),
        (422, "", String::new(), handshake),
        (200, "text/html", "<html>".to_string(), handshake),
        (200, JSON, "<html>".to_string(), handshake),
        (202, "", String::new(), handshake),
        (401, JSON, error(1, -32600), &end("the server requires an authorization (status 401)")),
        (403, "", String::new(), &end("the server requires an authorization (status 403)")),
        (500, JSON, error(1, -32603), &end("the server answers with the status 500")),
        (503, "", String::new(), &end("the server answers with the status 503")),
        (
            302,
            "",
            String::new(),
            &end("the server redirects the request to an address that the client does not follow (status 302)"),
        ),
    ] {
        let mut bench = Bench::new(ClientEra::Auto);
        assert_eq!(bench.take_log(), ["POST server/discover"]);
        bench.call("t");
        bench.head(0, status, media_type);
        bench.body(0, &body);
        assert_eq!(bench.take_log().last().map(String::as_str), Some(expected), "{status} {media_type} {body}");
    }
}

#[test]
fn a_probe_may_be_answered_by_a_stream() {
    let mut bench = Bench::new(ClientEra::Auto);
    bench.head(0, 200, "Text/Event-Stream; charset=utf-8");
    bench.chunk(0, ": alive\n\n");
    bench.event(0, "", &discovered(1));
    bench.take_log();
    bench.call("t");
    assert_eq!(bench.take_log(), ["POST tools/call"]);
}

#[test]
fn a_client_whose_probe_is_lost_or_not_answered_fails_without_choosing_an_era() {
    let mut bench = Bench::new(ClientEra::Auto);
    bench.lose(0);
    assert_eq!(bench.take_log()[1..], ["failed: the connection fails"]);
    let mut bench = Bench::new(ClientEra::Auto);
    bench.wait(seconds(10));
    assert_eq!(bench.take_log()[1..], ["abort 0", "failed: the server does not answer server/discover"]);
    bench.client.handle_transmit(Transmit::new(result(1, "{}").into()), bench.now);
    bench.pump();
    assert_eq!(bench.take_log(), [""; 0], "nothing follows a failure");
}

#[test]
fn a_server_that_refuses_both_eras_is_tried_with_the_transport_of_2024() {
    let mut bench = Bench::new(ClientEra::Auto);
    bench.head(0, 405, "");
    bench.head(1, 405, "");
    assert_eq!(bench.take_log(), ["POST server/discover", "abort 0", "POST initialize", "abort 1", "GET"]);
    assert_eq!(bench.field(2, "accept"), Some(EVENTS));
    bench.head(2, 200, EVENTS);
    bench.chunk(2, "event: endpoint\ndata: messages?id=1\n\n");
    assert_eq!(bench.take_log(), ["POST /messages?id=1 initialize"]);
    bench.head(3, 202, "");
    bench.event(2, "", &agreed(2, "2024-11-05"));
    assert_eq!(bench.take_log(), ["abort 3", "POST /messages?id=1 notifications/initialized"]);
    assert_eq!((bench.field(4, "mcp-protocol-version"), bench.field(4, "mcp-session-id")), (None, None));
    bench.call("t");
    assert_eq!(bench.take_log(), [""; 0], "requests wait until it is acknowledged");
    bench.head(4, 202, "");
    assert_eq!(bench.take_log(), ["abort 4", "POST /messages?id=1 tools/call"]);
    bench.head(5, 202, "");
    bench.chunk(
        2,
        &format!("event: message\ndata: {}\n\nevent: endpoint\ndata: https://evil.example\n\n", result(3, r#"{"content":[]}"#)),
    );
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
    bench.call("t");
    bench.head(6, 500, "");
    assert_eq!(bench.outcome(), Outcome::Lost);
    bench.take_log();
    bench.end(2);
    assert_eq!(bench.take_log(), ["failed: the server has ended the connection"]);
}

#[test]
fn requests_wait_until_a_confirmation_that_an_old_server_redirects_is_acknowledged() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head(0, 404, "");
    bench.head(1, 200, EVENTS);
    bench.chunk(1, "event: endpoint\ndata: /a\n\n");
    bench.event(1, "", &agreed(1, "2024-11-05"));
    bench.take_log();
    bench.head_with(3, 307, &[("location", "/b")]);
    assert_eq!(bench.take_log(), ["abort 3", "POST /b notifications/initialized"]);
    bench.call("t");
    bench.head(2, 202, "");
    assert_eq!(bench.take_log(), ["abort 2"], "it is not acknowledged yet");
    bench.head(4, 202, "");
    assert_eq!(bench.take_log(), ["abort 4", "POST /a tools/call"]);
}

#[test]
fn the_address_that_an_old_server_names_is_relative_to_the_address_of_its_stream() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head(0, 404, "");
    bench.head_with(1, 307, &[("location", "/v2/sse")]);
    bench.head(2, 200, EVENTS);
    bench.take_log();
    bench.chunk(2, "event: endpoint\ndata: messages\n\n");
    assert_eq!(bench.take_log(), ["POST /v2/messages initialize"]);
}

#[test]
fn an_old_server_may_name_no_address_of_another_origin_and_must_name_one_in_time() {
    for (data, is_refused) in [("https://example.com:443/m", false), ("//evil.example/m", true), ("http://example.com/m", true)] {
        let mut bench = Bench::new(ClientEra::Legacy);
        bench.head(0, 404, "");
        bench.head(1, 200, EVENTS);
        bench.take_log();
        bench.chunk(1, &format!("event: endpoint\ndata: {data}\n\n"));
        let expected = if is_refused { "failed: the server does not speak MCP at this address" } else { "POST /m initialize" };
        assert_eq!(bench.take_log().last().map(String::as_str), Some(expected), "{data}");
    }
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head(0, 404, "");
    bench.head(1, 200, EVENTS);
    bench.take_log();
    bench.client.handle_timeout(Instant::ZERO.saturating_add(seconds(10)));
    bench.pump();
    assert_eq!(bench.take_log(), ["abort 1", "failed: the server does not answer in time"]);
    // A wrong address was reported with the status of the attempt that followed.
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head(0, 404, "");
    bench.head(1, 405, "");
    assert_eq!(bench.take_log().last().map(String::as_str), Some("failed: the server answers with the status 404"));
    // A client that may not use the old transport fails instead of trying it.
    let mut bench = Bench::with(ClientEra::Legacy, |config| config.old_transport = false);
    bench.head(0, 404, "");
    assert_eq!(bench.take_log().last().map(String::as_str), Some("failed: the server answers with the status 404"));
}

// ---- With a handshake ----

#[test]
fn each_message_is_a_post_and_those_after_the_handshake_name_the_session_and_its_version() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.call("t");
    assert_eq!(bench.take_log(), ["POST initialize"]);
    let fields = |bench: &Bench, request: usize| {
        let names = ["content-type", "accept", "mcp-session-id", "mcp-protocol-version", "mcp-method"];
        names.map(|name| bench.field(request, name).map(str::to_string))
    };
    let [json, both] = [Some("application/json".to_string()), Some("application/json, text/event-stream".to_string())];
    assert_eq!(fields(&bench, 0), [json.clone(), both.clone(), None, None, None]);
    bench.head_with(0, 200, &[("Content-Type", JSON), ("Mcp-Session-Id", "s1")]);
    bench.body(0, &agreed(1, "2025-06-18"));
    assert_eq!(bench.take_log(), ["POST [s1] notifications/initialized"], "requests wait until it is acknowledged");
    assert_eq!(fields(&bench, 1), [json, both, Some("s1".to_string()), Some("2025-06-18".to_string()), None]);
    bench.head(1, 204, "");
    assert_eq!(bench.take_log(), ["abort 1", "GET [s1]"]);
    bench.head(2, 405, "");
    assert_eq!(bench.take_log(), ["POST [s1] tools/call", "abort 2"]);
    assert_eq!(bench.field(3, "mcp-protocol-version"), Some("2025-06-18"));
}

#[test]
fn every_revision_that_a_handshake_agrees_on_is_then_named_in_the_header() {
    for revision in crate::mcp::Revision::ALL.into_iter().filter(|revision| revision.has_handshake()) {
        let mut bench = Bench::new(ClientEra::Legacy);
        bench.call("t");
        bench.json(0, 200, &agreed(1, revision.as_str()));
        bench.head(1, 202, "");
        bench.head(2, 405, "");
        assert_eq!(bench.take_log().last().map(String::as_str), Some("abort 2"), "{revision:?}");
        assert_eq!([1, 2, 3].map(|request| bench.field(request, "mcp-protocol-version")), [Some(revision.as_str()); 3]);
    }
}

/// Regression: the call and the GET were under way at the same time. A server that sends the input requests of a call on the GET stream
/// usually drops them as long as that stream is not open, so one call in five waited for its response for ever.
#[test]
fn requests_wait_until_the_get_stream_is_open_refused_or_lost_or_a_time_limit_is_over() {
    type Step = fn(&mut Bench);
    let steps: [(&str, Step, &[&str]); 4] = [
        ("opened", |bench| bench.head(2, 200, EVENTS), &["POST [s1] tools/call"]),
        ("refused", |bench| bench.head(2, 405, ""), &["POST [s1] tools/call", "abort 2"]),
        ("lost", |bench| bench.lose(2), &["POST [s1] tools/call"]),
        ("not answered", |bench| bench.wait(Duration::from_millis(1)), &["POST [s1] tools/call"]),
    ];
    for (name, step, expected) in steps {
        let mut bench = Bench::new(ClientEra::Legacy);
        bench.open("s1");
        bench.call("t");
        assert_eq!(bench.take_log().last().map(String::as_str), Some("GET [s1]"), "{name}");
        bench.wait(Duration::from_millis(249));
        assert_eq!(bench.take_log(), [""; 0], "{name}");
        step(&mut bench);
        assert_eq!(bench.take_log(), expected, "{name}");
    }
    let mut bench = Bench::with(ClientEra::Legacy, |config| config.get_stream = false);
    bench.open("s1");
    bench.take_log();
    bench.call("t");
    assert_eq!(bench.take_log(), ["POST [s1] tools/call"], "no stream, no wait");
}

/// Regression: the client put the version that the server had named into a header of its own requests, even if the version was not a known
/// one.
#[test]
fn a_version_that_is_not_known_is_never_put_into_a_header() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head_with(0, 200, &[("content-type", JSON), ("mcp-session-id", "s1")]);
    bench.body(0, &agreed(1, "2025-1\\u007f-25"));
    assert_eq!(bench.take_log()[1..], ["the session closes: no protocol revision is common to both ends"]);
    bench.close();
    assert_eq!((bench.take_log(), bench.field(1, "mcp-protocol-version")), (vec!["DELETE [s1]".to_string()], None));
}

#[test]
fn a_server_may_do_without_a_session_id_and_a_malformed_one_is_ignored() {
    for (id, fault) in [("", false), ("a b", true), ("\u{e4}", true)] {
        let mut bench = Bench::new(ClientEra::Legacy);
        let fields = [("content-type", JSON), ("mcp-session-id", id)];
        bench.head_with(0, 200, if id.is_empty() { &fields[..1] } else { &fields });
        bench.body(0, &agreed(1, LATEST));
        let log = bench.take_log();
        assert_eq!(log.contains(&"fault: the id of the session is malformed".to_string()), fault);
        assert_eq!(log.last().map(String::as_str), Some("POST notifications/initialized"));
        bench.head(1, 202, "");
        bench.head(2, 405, "");
        bench.call("t");
        bench.head(3, 404, "");
        assert_eq!(bench.outcome(), Outcome::Lost, "there is no session to lose");
    }
}

#[test]
fn a_response_comes_as_json_or_in_a_stream_after_other_frames() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.json(3, 200, &result(2, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
    bench.call("t");
    bench.head(4, 200, EVENTS);
    bench.chunk(4, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n");
    bench.chunk(4, &format!("\n: c\n\nevent: other\ndata: {{}}\n\ndata: {}\r\n\r\n", result(3, r#"{"content":[]}"#)));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
    bench.take_log();
    bench.end(4);
    assert_eq!((bench.take_log(), bench.client.requests(), bench.client.poll_timeout()), (vec![], 0, None));
}

#[test]
fn a_stream_that_goes_on_after_its_response_is_closed_after_a_while() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.event(3, "", &result(2, r#"{"content":[]}"#));
    bench.take_log();
    bench.event(3, "", &result(2, r#"{"content":[]}"#));
    bench.wait(Duration::from_millis(999));
    assert_eq!(bench.take_log(), [""; 0]);
    bench.wait(Duration::from_millis(1));
    assert_eq!((bench.take_log(), bench.done.len()), (vec!["abort 3".to_string()], 1));
}

#[test]
fn a_cancel_is_posted_before_the_stream_is_closed_and_waits_for_no_other_post() {
    let mut bench = Bench::legacy();
    let (first, second) = (bench.call("t"), bench.call("t"));
    bench.head(3, 200, EVENTS);
    bench.take_log();
    bench.cancel(first);
    bench.cancel(second);
    assert_eq!(
        bench.take_log(),
        ["POST [s1] notifications/cancelled", "abort 3", "POST [s1] notifications/cancelled", "abort 4"],
        "before the head of its response, too"
    );
    bench.event(3, "", &result(2, r#"{"content":[]}"#));
    assert_eq!(bench.done.len(), 2, "nothing is read of a stream that was given up");
}

/// Regression: the channel of the session was stopped before the cancel and resumed after the loss of the call. The client then dropped the
/// cancel, because it no longer had the call.
#[test]
fn a_cancel_that_waits_is_posted_even_if_its_call_is_lost_in_the_meantime() {
    let mut bench = Bench::with(ClientEra::Legacy, |config| {
        (config.limits.messages, config.limits.waiting_frames) = (1, 1);
    });
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    let calls: Vec<_> = (0..3).map(|_| bench.call("t")).collect();
    for call in calls {
        bench.cancel(call);
    }
    bench.lose(5);
    bench.take_log();
    let cancel = "POST [s1] notifications/cancelled";
    bench.head(6, 202, "");
    assert_eq!(bench.take_log(), ["abort 6", cancel, "writable: true", "writable: false"]);
    bench.head(7, 202, "");
    assert_eq!(bench.take_log(), ["abort 7", cancel, "writable: true"]);
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_for_the_handshake_is_never_sent() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head_with(0, 200, &[("content-type", JSON), ("mcp-session-id", "s1")]);
    bench.body(0, &agreed(1, LATEST));
    let call = bench.call("t");
    bench.cancel(call);
    bench.head(1, 202, "");
    assert_eq!(bench.take_log()[1..], ["POST [s1] notifications/initialized", "abort 1", "GET [s1]"]);
}

#[test]
fn a_broken_stream_is_resumed_from_its_last_event_after_the_time_that_the_server_names() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.chunk(3, "id: a\ndata:\n\nretry: 500\n\n");
    bench.take_log();
    bench.end(3);
    bench.wait(Duration::from_millis(499));
    assert_eq!(bench.take_log(), [""; 0]);
    // A wait may be up to a quarter longer, which is random.
    bench.wait(Duration::from_millis(126));
    assert_eq!(bench.take_log(), ["GET [s1] after a"]);
    bench.head(4, 200, EVENTS);
    bench.lose(4);
    bench.wait(Duration::from_millis(1250));
    assert_eq!(bench.take_log(), ["GET [s1] after a"], "a stream that breaks before its first id keeps the old one");
    bench.head(5, 200, EVENTS);
    bench.event(5, "b", r#"{"jsonrpc":"2.0","method":"x"}"#);
    bench.lose(5);
    bench.wait(Duration::from_millis(625));
    assert_eq!(bench.take_log(), ["GET [s1] after b"], "something new begins the waits anew");
    bench.head(6, 503, "");
    bench.take_log();
    bench.wait(Duration::from_millis(1250));
    assert_eq!(bench.take_log(), ["GET [s1] after b"]);
    bench.head(7, 200, EVENTS);
    bench.event(7, "c", &result(2, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
}

#[test]
fn each_stream_is_resumed_after_its_own_last_event() {
    let frame = r#"{"jsonrpc":"2.0","method":"x"}"#;
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    let calls = [bench.call("t"), bench.call("t")];
    for (request, id) in [(2, "news"), (3, "first"), (4, "second")] {
        bench.head(request, 200, EVENTS);
        bench.event(request, id, frame);
    }
    bench.take_log();
    for request in [4, 2, 3] {
        bench.lose(request);
        bench.wait(Duration::from_millis(1250));
    }
    assert_eq!(bench.take_log(), ["GET [s1] after second", "GET [s1] after news", "GET [s1] after first"]);
    for (request, number, call) in [(5, 3, calls[1]), (7, 2, calls[0])] {
        bench.head(request, 200, EVENTS);
        bench.event(request, "", &result(number, r#"{"content":[]}"#));
        assert!(matches!(bench.done[..], [(id, Outcome::Result(_))] if id == call), "{:?}", bench.done);
        bench.done.clear();
    }
}

#[test]
fn a_call_is_lost_if_its_broken_stream_has_no_event_id_cannot_be_resumed_or_breaks_too_often() {
    let lost = |breaks: &dyn Fn(&mut Bench)| {
        let mut bench = Bench::legacy();
        bench.call("t");
        breaks(&mut bench);
        assert_eq!(bench.outcome(), Outcome::Lost);
        assert_eq!((bench.client.calls(), bench.client.requests(), bench.client.poll_timeout()), (0, 0, None));
    };
    let begun = |bench: &mut Bench, id: &str| {
        bench.head(3, 200, EVENTS);
        bench.event(3, id, r#"{"jsonrpc":"2.0","method":"x"}"#);
    };
    lost(&|bench| bench.lose(3));
    lost(&|bench| {
        begun(bench, "");
        bench.end(3);
    });
    lost(&|bench| {
        begun(bench, "a");
        bench.chunk(3, "id\n\n");
        bench.end(3);
    });
    lost(&|bench| {
        begun(bench, "a\u{7}");
        bench.end(3);
    });
    lost(&|bench| {
        begun(bench, "a");
        bench.end(3);
        bench.wait(seconds(2));
        bench.head(4, 405, "");
    });
    lost(&|bench| {
        begun(bench, "a");
        bench.end(3);
        for attempt in 0..5 {
            bench.wait(seconds(20));
            bench.head(4 + attempt, 200, EVENTS);
            assert_eq!(bench.done.len(), 0);
            bench.end(4 + attempt);
        }
    });
}

#[test]
fn a_call_that_waits_for_its_stream_to_be_resumed_can_be_cancelled() {
    let mut bench = Bench::legacy();
    let call = bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.chunk(3, "id: a\n\n");
    bench.end(3);
    bench.take_log();
    bench.cancel(call);
    assert_eq!(bench.take_log(), ["POST [s1] notifications/cancelled"]);
    bench.head(4, 202, "");
    assert_eq!((bench.client.requests(), bench.client.poll_timeout()), (0, None));
}

#[test]
fn the_get_stream_is_resumed_unless_the_server_has_none() {
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    bench.event(2, "a", notification);
    bench.take_log();
    bench.end(2);
    bench.wait(Duration::from_millis(1250));
    assert_eq!(bench.take_log(), ["GET [s1] after a"]);
    bench.head(3, 500, "");
    bench.take_log();
    bench.wait(Duration::from_millis(2500));
    assert_eq!(bench.take_log(), ["GET [s1] after a"]);
    bench.lose(4);
    bench.wait(Duration::from_millis(5000));
    assert_eq!(bench.take_log(), ["GET [s1] after a"]);
    for status in [400, 405, 404, 409, 302, 200] {
        let mut bench = Bench::new(ClientEra::Legacy);
        bench.open("s1");
        bench.take_log();
        bench.head(2, status, "");
        bench.wait(seconds(100));
        assert_eq!(bench.take_log(), ["abort 2"], "{status}");
    }
}

#[test]
fn a_server_that_names_a_time_to_wait_is_asked_again_only_after_that_time() {
    let later = [("retry-after", "60")];
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    bench.event(2, "a", r#"{"jsonrpc":"2.0","method":"x"}"#);
    bench.end(2);
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.event(3, "b", r#"{"jsonrpc":"2.0","method":"x"}"#);
    bench.end(3);
    bench.take_log();
    bench.wait(Duration::from_millis(1250));
    let both = ["GET [s1] after b", "GET [s1] after a"];
    assert_eq!(bench.take_log(), both, "the stream of the call, and the GET stream");
    bench.head_with(4, 503, &later);
    bench.head_with(5, 429, &later);
    bench.take_log();
    bench.wait(Duration::from_millis(59_999));
    assert_eq!(bench.take_log(), [""; 0]);
    bench.wait(seconds(15));
    let mut again = bench.take_log();
    again.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(again, both, "at most a quarter later");
    // A repeated handshake waits for that time, too.
    bench.head(6, 404, "");
    assert_eq!(bench.take_log().last().map(String::as_str), Some("POST initialize"));
    bench.head_with(8, 503, &later);
    bench.wait(Duration::from_millis(59_999));
    assert_eq!(bench.take_log(), ["abort 8"]);
    bench.wait(seconds(15));
    assert_eq!(bench.take_log(), ["POST initialize"]);
}

#[test]
fn an_overload_is_reported_once_with_the_time_to_wait_and_the_call_is_not_repeated() {
    let fault = "fault: the server is overloaded (status 503), and may be asked again after 7 s".to_string();
    let body = error(2, -32603);
    for (status, retry_after, body, is_reported, is_lost) in [
        (503, "7", "", true, true),
        (503, "7", &*body, true, false),
        (503, "Wed, 25 Nov 2026 20:00:00 GMT", "", false, true),
        (503, "-7", "", false, true),
        (503, "", "", false, true),
        (500, "7", "", false, true),
        (429, "7", "", true, true),
    ] {
        let mut bench = Bench::modern();
        bench.call("t");
        bench.take_log();
        bench.head_with(1, status, &[("content-type", JSON), ("retry-after", retry_after)]);
        bench.body(1, body);
        let fault = fault.replace("503", &status.to_string());
        let faults: Vec<_> = bench.take_log().into_iter().filter(|line| line.starts_with("fault")).collect();
        assert_eq!(faults.contains(&fault), is_reported, "{status} {retry_after}: {faults:?}");
        assert!(faults.len() <= 1, "{faults:?}");
        assert_eq!(bench.outcome() == Outcome::Lost, is_lost, "{status} {retry_after} {body}");
        bench.wait(seconds(100));
        assert_eq!(bench.sent.len(), 2);
    }
    let mut bench = Bench::new(ClientEra::Auto);
    bench.head_with(0, 503, &[("retry-after", "99999999999999999999"), ("content-length", "0")]);
    let failed = "failed: the server is overloaded (status 503), and may be asked again after 18446744073709551615 s";
    assert_eq!(bench.take_log().last().map(String::as_str), Some(failed), "the probe has failed");
}

#[test]
fn with_a_handshake_a_response_on_the_get_stream_or_on_the_stream_of_another_call_ends_its_call() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.take_log();
    bench.event(2, "", &result(2, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
    assert_eq!(bench.take_log(), ["abort 3"]);
    bench.call("t");
    bench.call("t");
    bench.head(4, 200, EVENTS);
    bench.event(4, "", &format!("[{},{}]", result(4, "{}"), result(9, "{}")));
    assert_eq!(bench.take_log().last().map(String::as_str), Some("abort 5"));
    assert_eq!(bench.client.calls(), 1);
}

#[test]
fn a_404_in_an_http_session_repeats_the_handshake_and_then_each_refused_request_once() {
    let mut bench = Bench::legacy();
    bench.call("first");
    bench.call("second");
    bench.call("third");
    bench.head(3, 200, EVENTS);
    bench.event(3, "a", r#"{"jsonrpc":"2.0","method":"x"}"#);
    bench.take_log();
    bench.json(4, 404, &error(0, -32600).replace(r#""id":0"#, r#""id":null"#));
    assert_eq!(bench.take_log(), ["POST initialize"], "without the id");
    bench.head(5, 404, "");
    bench.call("fourth");
    assert_eq!(bench.take_log(), ["abort 5"], "one handshake is enough, and later calls wait for it");
    bench.head_with(6, 200, &[("content-type", EVENTS), ("mcp-session-id", "s2")]);
    bench.event(6, "", &agreed(1, LATEST));
    assert_eq!(bench.take_log(), ["POST [s2] notifications/initialized"]);
    bench.head(7, 202, "");
    let call = "POST [s2] tools/call";
    assert_eq!(bench.take_log(), ["abort 7", "reopened", "GET [s2]"]);
    bench.head(8, 405, "");
    assert_eq!(bench.take_log(), [call, call, call, "abort 8"]);
    bench.json(9, 200, &result(3, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
    bench.head(10, 404, "");
    assert_eq!(bench.outcome(), Outcome::Lost, "once for each request");
    bench.lose(3);
    assert_eq!(bench.outcome(), Outcome::Lost, "a stream of the session before is not resumed in the next");
}

#[test]
fn a_400_that_mentions_the_session_repeats_the_handshake_once_for_each_call() {
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.take_log();
    bench.json(3, 400, body);
    assert_eq!(bench.take_log(), ["POST initialize"], "without the id");
    bench.head_with(4, 200, &[("content-type", JSON), ("mcp-session-id", "s2")]);
    bench.body(4, &agreed(1, LATEST));
    bench.head(5, 202, "");
    assert_eq!(bench.take_log()[2..], ["reopened", "GET [s2]"]);
    bench.head(6, 405, "");
    assert_eq!(bench.take_log(), ["POST [s2] tools/call", "abort 6"]);
    bench.json(7, 400, body);
    assert!(matches!(bench.outcome(), Outcome::Error(RpcError { code: -32000, .. })), "once for each call");
}

#[test]
fn a_repeated_handshake_may_open_a_session_without_an_id() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.call("t");
    bench.head(3, 404, "");
    bench.json(5, 200, &agreed(1, LATEST));
    bench.head(6, 202, "");
    bench.head(7, 405, "");
    bench.take_log();
    bench.head(4, 404, "");
    assert_eq!(bench.take_log(), ["abort 4", "POST tools/call"], "it was sent in the session before");
    bench.head(8, 404, "");
    assert_eq!(bench.outcome(), Outcome::Lost, "now there is none to lose");
}

#[test]
fn a_client_fails_if_its_session_cannot_be_opened_again() {
    /// The status and the media type of an answer to the repeated handshake, and the version that it chooses.
    type Handshake = (u16, &'static str, &'static str);
    let answers: [(Handshake, bool); 4] = [
        ((404, "", LATEST), true),
        ((200, JSON, "2025-06-18"), true),
        ((200, "text/html", LATEST), true),
        ((200, JSON, LATEST), false),
    ];
    for ((status, media_type, version), fails) in answers {
        let mut bench = Bench::legacy();
        bench.call("t");
        bench.head(3, 404, "");
        bench.head(4, status, media_type);
        bench.body(4, &agreed(1, version));
        let has_failed = bench.take_log().contains(&"failed: the server has ended the session".to_string());
        assert_eq!(has_failed, fails, "{status} {media_type} {version}");
    }
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 404, "");
    bench.take_log();
    bench.wait(seconds(10));
    assert_eq!(bench.take_log(), ["abort 4", "failed: the server has ended the session"]);
}

#[test]
fn a_repeated_handshake_that_is_lost_is_tried_again_a_few_times() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 404, "");
    bench.take_log();
    bench.lose(4);
    assert_eq!(bench.take_log(), [""; 0]);
    bench.wait(Duration::from_millis(1250));
    assert_eq!(bench.take_log(), ["POST initialize"]);
    bench.head(5, 503, "");
    bench.wait(Duration::from_millis(2500));
    assert_eq!(bench.take_log(), ["abort 5", "POST initialize"]);
    bench.head_with(6, 200, &[("content-type", JSON), ("mcp-session-id", "s2")]);
    bench.body(6, &agreed(1, LATEST));
    bench.head(7, 202, "");
    bench.head(8, 405, "");
    assert_eq!(bench.take_log()[2..], ["reopened", "GET [s2]", "POST [s2] tools/call", "abort 8"]);
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 404, "");
    for attempt in 4..9 {
        bench.lose(attempt);
        bench.wait(seconds(20));
    }
    bench.take_log();
    bench.lose(9);
    assert_eq!(bench.take_log(), ["failed: the server has ended the session"]);
}

#[test]
fn a_404_for_a_notification_or_for_the_get_stream_repeats_the_handshake_too() {
    let mut bench = Bench::legacy();
    let call = bench.call("t");
    bench.cancel(call);
    bench.take_log();
    bench.head(4, 404, "");
    assert_eq!(bench.take_log(), ["abort 4", "POST initialize"]);
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    bench.end(2);
    bench.wait(seconds(2));
    bench.take_log();
    bench.head(3, 404, "");
    assert_eq!(bench.take_log(), ["abort 3", "POST initialize"]);
}

#[test]
fn an_input_request_belongs_to_the_call_on_whose_stream_it_comes_and_its_answer_is_posted() {
    let question = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    let mut bench = Bench::legacy();
    let (older, _newer) = (bench.call("t"), bench.call("t"));
    bench.head(3, 200, EVENTS);
    bench.event(3, "", question);
    let [(key, parent)] = bench.asked[..] else { panic!("one question") };
    assert_eq!(parent, Some(older), "and not to the newest");
    bench.take_log();
    bench.session.provide_input(key, InputResponse::Sample(SampleResult::new("x", "m")), bench.now).unwrap();
    bench.pump();
    assert_eq!(bench.take_log(), ["POST [s1] answer"]);
}

#[test]
fn an_input_request_that_the_server_withdraws_is_gone_and_its_call_goes_on() {
    let question = r#"{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.event(3, "", question);
    let [(key, _)] = bench.asked[..] else { panic!("one question") };
    bench.take_log();
    bench.event(3, "", cancel);
    assert_eq!(bench.session.provide_input(key, InputResponse::Sample(SampleResult::new("x", "m")), bench.now), Err(NotLive));
    bench.pump();
    assert_eq!(
        (bench.take_log(), bench.done.len()),
        (vec![], 0),
        "the call has the same number as the question, and is not cancelled"
    );
    bench.event(3, "", &result(2, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
}

#[test]
fn an_answer_to_an_input_request_of_a_forgotten_http_session_is_not_sent_in_the_next_one() {
    let question = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    let mut bench = Bench::legacy();
    bench.call("first");
    bench.head(3, 200, EVENTS);
    bench.event(3, "", question);
    bench.call("second");
    bench.head(4, 404, "");
    bench.head_with(5, 200, &[("content-type", JSON), ("mcp-session-id", "s2")]);
    bench.body(5, &agreed(1, LATEST));
    bench.head(6, 202, "");
    bench.head(7, 200, EVENTS);
    bench.event(7, "", question);
    let [(old, _), (new, _)] = bench.asked[..] else { panic!("two questions with the same id") };
    bench.take_log();
    for key in [old, new] {
        bench.session.provide_input(key, InputResponse::Sample(SampleResult::new("x", "m")), bench.now).unwrap();
        bench.pump();
    }
    assert_eq!(bench.take_log(), ["POST [s2] answer"]);
}

#[test]
fn a_ping_during_the_handshake_is_answered_before_the_handshake_is_done() {
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.head_with(0, 200, &[("content-type", EVENTS), ("mcp-session-id", "s1")]);
    bench.take_log();
    bench.event(0, "", r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    assert_eq!(bench.take_log(), ["POST [s1] answer"]);
}

#[test]
fn messages_wait_while_too_many_are_unacknowledged_and_if_many_wait_the_channel_is_stopped() {
    let mut bench = Bench::with(ClientEra::Legacy, |config| {
        (config.limits.messages, config.limits.waiting_frames) = (1, 2);
    });
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    let calls: Vec<_> = (0..5).map(|_| bench.call("t")).collect();
    bench.take_log();
    let cancel = "POST [s1] notifications/cancelled";
    bench.cancel(calls[0]);
    assert_eq!(bench.take_log(), [cancel, "abort 3"]);
    bench.cancel(calls[1]);
    bench.cancel(calls[2]);
    assert_eq!(bench.take_log(), ["abort 4", "writable: false", "abort 5"]);
    bench.head(8, 202, "");
    assert_eq!(bench.take_log(), ["abort 8", cancel, "writable: true"]);
    bench.wait(seconds(30));
    assert_eq!(bench.take_log(), ["abort 9", "fault: the server does not answer in time", cancel]);
}

#[test]
fn answers_wait_while_twice_as_many_messages_as_the_limit_are_unacknowledged() {
    let mut bench = Bench::with(ClientEra::Legacy, |config| {
        (config.limits.messages, config.limits.waiting_frames, config.limits.calls) = (1, 2, 3);
    });
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    bench.take_log();
    let answer = "POST [s1] answer";
    let ping = |number: usize| format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#);
    for number in 0..4 {
        bench.event(2, "", &ping(number));
    }
    assert_eq!(bench.take_log(), [answer, answer, "writable: false"], "the others wait");
    bench.head(3, 202, "");
    bench.wait(seconds(30));
    assert_eq!(
        bench.take_log(),
        [
            "abort 3",
            answer,
            "writable: true",
            "abort 4",
            "fault: the server does not answer in time",
            answer,
            "abort 5",
            "fault: the server does not answer in time"
        ]
    );
    bench.head(6, 404, "");
    assert_eq!(bench.take_log(), ["abort 6", "abort 2", "POST initialize"]);
}

#[test]
fn answers_that_wait_are_bounded_and_are_dropped_with_their_http_session() {
    let mut bench = Bench::with(ClientEra::Legacy, |config| (config.limits.messages, config.limits.calls) = (1, 3));
    bench.open("s1");
    bench.head(2, 200, EVENTS);
    bench.take_log();
    let pings = (0..6).map(|number| format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#));
    for ping in pings {
        bench.event(2, "", &ping);
    }
    let answer = "POST [s1] answer";
    assert_eq!(bench.take_log(), [answer, answer, "fault: too many requests at once"]);
    bench.head(3, 404, "");
    bench.head_with(5, 200, &[("content-type", JSON), ("mcp-session-id", "s2")]);
    bench.body(5, &agreed(1, LATEST));
    bench.head(6, 202, "");
    bench.head(4, 202, "");
    assert_eq!(bench.take_log().iter().filter(|done| done.contains("answer")).count(), 0, "they belong to the old session");
    bench.close();
    bench.head(8, 204, "");
    assert!(bench.client.is_closed());
}

#[test]
fn the_error_of_a_call_is_one_that_the_server_has_sent_and_any_other_answer_loses_the_call() {
    let mut bench = Bench::legacy();
    for (at, (status, body, expected)) in [
        // Seen in the field: these had the code -32603, which the server had never sent.
        (400, "", None),
        (413, "<html>", None),
        (403, "", None),
        (400, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#, Some((-1, "no"))),
        (500, r#"{"jsonrpc":"2.0","error":{"code":-2,"message":"no"}}"#, Some((-2, "no"))),
        (500, "", None),
        (502, "<html>", None),
        (202, "", None),
        (200, "{", None),
        (200, r#"{"jsonrpc":"2.0","method":"x"}"#, None),
    ]
    .into_iter()
    .enumerate()
    {
        bench.call("t");
        bench.json(3 + at, status, body);
        let outcome = match bench.outcome() {
            Outcome::Error(error) => Some((error.code, error.message.to_string())),
            Outcome::Lost => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(outcome, expected.map(|(code, message): (i64, &str)| (code, message.to_string())), "{status} {body}");
    }
    let reasons = [
        r#"400 (application/json, no body)"#,
        r#"413 (application/json, "<html>")"#,
        r#"500 (application/json, no body)"#,
        r#"502 (application/json, "<html>")"#,
    ];
    for reason in reasons {
        let reason = format!("tools/call: the server answers with the status {reason}");
        assert!(bench.lost.contains(&reason), "{reason}: {:?}", bench.lost);
    }
}

/// In the field nearly all of these were reported with the same words: that the connection was closed by this end.
#[test]
fn the_reason_of_a_lost_call_has_the_request_and_what_was_heard_instead_of_its_response() {
    type Row = (&'static str, fn(&mut Bench), &'static str);
    fn typed(bench: &mut Bench, status: u16, fields: &[(&str, &str)], body: &[u8]) {
        bench.head_with(1, status, fields);
        bench.client.handle_chunk(bench.sent[1].id, Bytes::copy_from_slice(body), bench.now);
        bench.pump();
        bench.end(1);
    }
    let rows: [Row; 19] = [
        (
            "500",
            |b| typed(b, 500, &[("content-type", "text/plain")], b"out of\r\nmemory\n"),
            "tools/call: the server answers with the status 500 (text/plain, \"out of memory\")",
        ),
        (
            "502 with HTML",
            |b| {
                typed(
                    b,
                    502,
                    &[("content-type", "text/html; charset=utf-8")],
                    "<h1>Bad\u{a0} gateway\u{202e}\u{1b}</h1>".as_bytes(),
                )
            },
            "tools/call: the server answers with the status 502 (text/html; charset=utf-8, \"<h1>Bad gateway\u{202e}\\u{1b}</h1>\")",
        ),
        (
            "503 without a body",
            |b| b.head(1, 503, ""),
            "tools/call: the server answers with the status 503 (no content type, no body)",
        ),
        (
            "503 with a time",
            |b| typed(b, 503, &[("content-type", JSON), ("retry-after", "7")], b"{}"),
            "tools/call: the server is overloaded (status 503), and may be asked again after 7 s (application/json, \"{}\")",
        ),
        (
            "no type",
            |b| typed(b, 200, &[], b"{\"jsonrpc\":\"2.0\"}"),
            "tools/call: the content type is neither that of JSON nor that of a stream of events (status 200, no content type, \"{\"jsonrpc\":\"2.0\"}\")",
        ),
        (
            "another type",
            |b| typed(b, 200, &[("content-type", "text/html")], b"<html>"),
            "tools/call: the content type is neither that of JSON nor that of a stream of events (status 200, text/html, \"<html>\")",
        ),
        (
            "gzip",
            |b| typed(b, 200, &[("content-type", JSON), ("content-encoding", "gzip")], b"\x1f\x8b\x08\x00{"),
            "tools/call: the body has an encoding that the client did not ask for (status 200, application/json, encoding gzip)",
        ),
        (
            // The call waited out its time limit.
            "a stream in gzip that does not end",
            |b| {
                b.head_with(1, 200, &[("content-type", EVENTS), ("content-encoding", "gzip")]);
                b.client.handle_chunk(b.sent[1].id, Bytes::from_static(b"\x1f\x8b\x08\x00"), b.now);
                b.wait(seconds(1));
            },
            "tools/call: the body has an encoding that the client did not ask for (status 200, text/event-stream, encoding gzip)",
        ),
        (
            "an error in gzip",
            |b| typed(b, 500, &[("content-type", JSON), ("content-encoding", "gzip")], b"\x1f\x8b\x08\x00{"),
            "tools/call: the server answers with the status 500 (application/json, encoding gzip)",
        ),
        (
            "an empty body",
            |b| typed(b, 200, &[("content-type", JSON)], b""),
            "tools/call: the response ends without an answer (status 200, application/json, no body)",
        ),
        (
            "an acknowledgement",
            |b| b.head(1, 202, ""),
            "tools/call: the response ends without an answer (status 202, no content type, no body)",
        ),
        (
            "no message",
            |b| typed(b, 200, &[("content-type", JSON)], b"{\"result\":1"),
            "tools/call: the response ends without an answer (status 200, application/json, \"{\"result\":1\")",
        ),
        (
            "a long body",
            |b| typed(b, 200, &[("content-type", JSON)], &[b'x'; 300]),
            concat!(
                "tools/call: the response ends without an answer (status 200, application/json, \"",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\")"
            ),
        ),
        (
            "a cut body",
            |b| {
                b.head(1, 200, JSON);
                b.chunk(1, "{\"jsonrpc\":");
                b.client.handle_loss(b.sent[1].id, "end of file\n", b.now);
                b.pump();
            },
            "tools/call: the connection fails: end of file (status 200, application/json, \"{\"jsonrpc\":\")",
        ),
        (
            "a stream that ends",
            |b| {
                b.head(1, 200, EVENTS);
                b.chunk(1, ": hello\n\n");
                b.end(1);
            },
            "tools/call: the response ends without an answer (status 200, text/event-stream, \": hello\")",
        ),
        (
            "a result over the limit",
            |b| {
                b.head(1, 200, JSON);
                for _ in 0..17 {
                    b.client.handle_chunk(b.sent[1].id, vec![b' '; 1 << 20].into(), b.now);
                }
                b.pump();
            },
            "tools/call: the body of a response is longer than the limit (status 200, application/json, \"...\")",
        ),
        (
            "no response",
            |b| {
                b.client.handle_loss(b.sent[1].id, &"refused ".repeat(100), b.now);
                b.pump();
            },
            concat!(
                "tools/call: the connection fails: refused refused refused refused refused refused refused refused refused ",
                "refused refused refused refused refused refused refused refused refused refused refused refused refused refused refused refused"
            ),
        ),
        (
            "a page that never ends",
            |b| {
                b.head(1, 500, "text/html");
                b.chunk(1, "<html>");
                b.wait(seconds(1));
            },
            "tools/call: the server answers with the status 500 (text/html, \"<html>\")",
        ),
        (
            "a long page",
            |b| {
                b.head(1, 500, "a/b");
                b.chunk(1, &" ".repeat(200));
            },
            "tools/call: the server answers with the status 500 (a/b, \"...\")",
        ),
    ];
    for (what, happens, why) in rows {
        let mut bench = Bench::modern();
        bench.call("t");
        happens(&mut bench);
        assert_eq!(bench.lost, [why], "{what}");
        assert_eq!(bench.outcome(), Outcome::Lost, "{what}");
    }
}

/// A server died in the middle of a call: for half a minute nothing was said, and then only the failure of the last attempt.
#[test]
fn a_person_learns_at_once_that_a_stream_is_resumed_and_at_the_end_why_it_broke() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.event(3, "1", NOTE);
    bench.client.handle_loss(bench.sent[3].id, "connection reset", bench.now);
    bench.pump();
    let broke = "tools/call: the connection fails: connection reset (status 200, text/event-stream, \"id: 1 data: ";
    assert!(bench.lost.len() == 1 && bench.lost[0].starts_with(&format!("resuming: {broke}")), "{:?}", bench.lost);
    bench.wait(seconds(2));
    bench.head(4, 200, EVENTS);
    bench.event(4, "2", NOTE);
    bench.end(4);
    assert_eq!(bench.lost.len(), 2, "after a new event, the stream breaks for another reason");
    assert!(bench.lost[1].starts_with("resuming: tools/call: the response ends without an answer"), "{:?}", bench.lost);
    for attempt in 5..10 {
        bench.wait(seconds(40));
        bench.client.handle_loss(bench.sent[attempt].id, "connection refused", bench.now);
        bench.pump();
    }
    assert_eq!(bench.outcome(), Outcome::Lost);
    let [_, _, last] = &bench.lost[..] else { panic!("{:?}", bench.lost) };
    assert!(last.starts_with("tools/call: the response ends without an answer (status 200, text/event-stream, "), "{last}");
    assert!(last.ends_with("; the stream could not be resumed"), "{last}");

    // A server that forgets each session, and one that is gone when the handshake is repeated.
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 404, "text/plain");
    bench.body(3, "who?");
    bench.head_with(4, 200, &[("content-type", JSON), ("mcp-session-id", "s2")]);
    bench.body(4, &agreed(1, LATEST));
    bench.head(5, 202, "");
    bench.head(6, 405, "");
    bench.head(7, 404, "text/plain");
    bench.body(7, "who?");
    assert_eq!(bench.lost, ["tools/call: the server answers with the status 404 (text/plain, \"who?\")"]);
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 404, "");
    for attempt in 4..10 {
        let why = if attempt == 4 { "connection reset" } else { "connection refused" };
        bench.client.handle_loss(bench.sent[attempt].id, why, bench.now);
        bench.pump();
        bench.wait(seconds(20));
    }
    let why = "initialize: the connection fails: connection reset";
    assert_eq!(bench.lost, [format!("resuming: {why}"), format!("failed: the server has ended the session: {why}")]);
}

/// The program `call` names the flag `--era legacy` if this may help. Seen in the field: it also did so for an overload and for errors of
/// a gateway.
#[test]
fn a_failure_says_whether_the_server_may_be_one_of_the_other_era() {
    type Row = (ClientEra, fn(&mut Bench), bool, &'static str);
    let rows: [Row; 11] = [
        (
            ClientEra::Auto,
            |b| b.head_with(0, 503, &[("retry-after", "7"), ("content-length", "0")]),
            false,
            "server/discover: the server is overloaded (status 503), and may be asked again after 7 s (no content type, no body)",
        ),
        (
            ClientEra::Auto,
            |b| b.head(0, 429, ""),
            false,
            "server/discover: the server answers with the status 429 (no content type, no body)",
        ),
        (
            ClientEra::Auto,
            |b| b.head(0, 502, ""),
            false,
            "server/discover: the server answers with the status 502 (no content type, no body)",
        ),
        (
            ClientEra::Auto,
            |b| b.head(0, 504, ""),
            false,
            "server/discover: the server answers with the status 504 (no content type, no body)",
        ),
        (
            ClientEra::Auto,
            |b| b.head(0, 401, ""),
            false,
            "server/discover: the server requires an authorization (status 401) (no content type, no body)",
        ),
        (
            ClientEra::Auto,
            |b| b.client.handle_loss(b.sent[0].id, "refused", b.now),
            false,
            "server/discover: the connection fails: refused",
        ),
        (
            ClientEra::Auto,
            |b| b.head(0, 500, ""),
            true,
            "server/discover: the server answers with the status 500 (no content type, no body)",
        ),
        (ClientEra::Auto, |b| b.wait(seconds(10)), true, "the server does not answer server/discover"),
        (
            ClientEra::Legacy,
            |b| b.head(0, 500, ""),
            false,
            "initialize: the server answers with the status 500 (no content type, no body)",
        ),
        (
            ClientEra::Legacy,
            |b| {
                b.head(0, 200, "text/html");
                b.body(0, "<html>");
            },
            false,
            "the server does not speak MCP at this address: initialize: the content type is neither that of JSON nor that of a stream of events (status 200, text/html, \"<html>\")",
        ),
        (
            ClientEra::Auto,
            |b| {
                for request in [0, 1] {
                    b.head_with(request, 200, &[("content-type", JSON), ("content-encoding", "gzip")]);
                    b.body(request, "{");
                }
            },
            false,
            "initialize: the body has an encoding that the client did not ask for (status 200, application/json, encoding gzip)",
        ),
    ];
    for (era, happens, may_be_legacy, why) in rows {
        let mut bench = Bench::new(era);
        happens(&mut bench);
        bench.pump();
        assert_eq!((bench.lost, bench.may_be_legacy), (vec![format!("failed: {why}")], may_be_legacy));
    }
}

#[test]
fn a_challenge_is_passed_on_and_the_body_decides_the_outcome() {
    let mut bench = Bench::legacy();
    bench.call("t");
    let challenge = r#"Bearer resource_metadata="https://example.com/r", scope="x""#;
    let head: Headers<'_> = [("content-type", JSON), ("www-authenticate", challenge)].into_iter().collect();
    bench.client.handle_head(bench.sent[3].id, &ResponseHead::new(401, head), bench.now);
    let Some(HttpClientEvent::Fault { exchange: Some(_), fault }) = bench.client.poll_event() else { panic!("a fault") };
    assert_eq!(fault, HttpFault::Unauthorized { status: 401, challenges: vec![Text::from(challenge)] });
    bench.body(3, &error(2, -7));
    assert!(matches!(bench.outcome(), Outcome::Error(RpcError { code: -7, .. })));
}

#[test]
fn bodies_and_events_over_the_limit_are_not_read() {
    let with = || {
        let mut bench = Bench::with(ClientEra::Legacy, |config| {
            (config.limits.frame_bytes, config.limits.error_bytes) = (400, 20);
        });
        bench.open("s1");
        bench.head(2, 405, "");
        bench.call("t");
        bench.take_log();
        bench
    };
    let mut bench = with();
    bench.head(3, 200, JSON);
    bench.chunk(3, &" ".repeat(401));
    assert_eq!(bench.take_log(), ["abort 3", "fault: the body of a response is longer than the limit"]);
    assert_eq!(bench.outcome(), Outcome::Lost);
    let mut bench = with();
    bench.head(3, 400, JSON);
    bench.chunk(3, &error(2, -7));
    assert_eq!(bench.take_log(), ["abort 3", "fault: the server answers with the status 400"]);
    assert_eq!(bench.outcome(), Outcome::Lost);
    let mut bench = with();
    bench.head(3, 200, EVENTS);
    bench.chunk(3, &format!("id: 1\n\ndata: {}", " ".repeat(500)));
    assert_eq!(bench.take_log(), ["abort 3", "fault: the stream cannot be read: an event is longer than the limit"]);
    assert_eq!(bench.outcome(), Outcome::Lost, "it would be as long if it were resumed");
}

#[test]
fn malformed_lines_and_incomplete_events_of_a_stream_have_no_effect() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 200, EVENTS);
    let odd = [
        "\u{feff}retry: soon\r\r",
        "id: a\rdata\r\r",
        "id: b\0\rdata:\r\n\r\n",
        "data: {\r\r",
        "data: \0\n\n",
        ":\r:\n:\r\n\r",
        "event: message\rdata: {\"jsonrpc\":\"2.0\",\rdata: \"method\":\"x\"}\r\r",
        "id: c\rdata: half of an ev",
    ];
    for piece in odd.concat().split_inclusive(['\r', '\n', ' ']) {
        bench.chunk(3, piece);
    }
    bench.take_log();
    bench.lose(3);
    bench.wait(Duration::from_millis(1250));
    assert_eq!(bench.take_log(), ["GET [s1] after a"], "neither an id with NUL nor that of half an event");
    bench.head(4, 200, EVENTS);
    bench.chunk(4, &format!("data: {}\r\r", result(2, r#"{"content":[]}"#)));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
}

#[test]
fn a_line_is_read_up_to_16_mebibytes() {
    let piece = "x".repeat(1 << 20);
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.call("t");
    bench.head(3, 200, EVENTS);
    bench.head(4, 200, EVENTS);
    bench.take_log();
    bench.chunk(3, "data: ");
    for _ in 0..16 {
        bench.chunk(3, &piece);
    }
    assert_eq!((bench.take_log(), bench.client.requests()), (vec![], 2));
    // The limit is for the data of an event. A line may be 9 bytes longer, for a byte order mark and `data: `.
    bench.chunk(3, "0123456789");
    assert_eq!(bench.take_log(), ["abort 3", "fault: the stream cannot be read: an event is longer than the limit"]);
    assert_eq!(bench.outcome(), Outcome::Lost);
    bench.event(4, "", &result(3, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)), "another stream is not affected");
}

#[test]
fn closing_a_client_ends_its_http_session_and_waits_for_that_only_for_a_limited_time() {
    for answer in [Some(204), Some(405), Some(404), None] {
        let mut bench = Bench::legacy();
        bench.call("t");
        bench.take_log();
        bench.close();
        assert_eq!(bench.take_log(), ["abort 3", "DELETE [s1]"]);
        assert_eq!(bench.field(4, "mcp-protocol-version"), Some(LATEST));
        match answer {
            Some(status) => bench.head(4, status, ""),
            None => bench.wait(seconds(2)),
        }
        assert_eq!(bench.take_log(), ["abort 4", "closed"]);
        assert!(bench.client.is_closed() && bench.client.poll_timeout().is_none());
        bench.close();
        assert_eq!(bench.take_log(), [""; 0]);
    }
    let mut bench = Bench::modern();
    bench.close();
    assert_eq!(bench.take_log(), ["closed"], "there is no session to end");
}

#[test]
fn a_closing_client_waits_for_its_posted_cancels_only_for_a_limited_time() {
    let closing = || {
        let mut bench = Bench::with(ClientEra::Legacy, |config| config.limits.messages = 1);
        bench.open("s1");
        bench.head(2, 200, EVENTS);
        let calls = [bench.call("t"), bench.call("t")];
        calls.into_iter().for_each(|call| bench.cancel(call));
        bench.take_log();
        bench.close();
        assert_eq!(bench.take_log(), ["abort 2"]);
        bench
    };
    let mut bench = closing();
    bench.head(5, 202, "");
    assert_eq!(bench.take_log(), ["abort 5", "POST [s1] notifications/cancelled"], "one that waits, too");
    bench.head(6, 404, "");
    assert_eq!(bench.take_log(), ["abort 6", "DELETE [s1]"], "no handshake is repeated");
    let mut bench = closing();
    bench.wait(seconds(2));
    assert_eq!(bench.take_log(), ["abort 5", "DELETE [s1]"]);
    bench.wait(seconds(2));
    assert_eq!(bench.take_log(), ["abort 6", "closed"]);
}

// ---- Without a handshake ----

#[test]
fn a_request_without_a_handshake_repeats_parts_of_its_body_in_headers() {
    let mut bench = Bench::modern();
    bench.call("gr\u{fc}n");
    let fields = ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"].map(|name| bench.field(1, name));
    assert_eq!(fields, [Some("2026-07-28"), Some("tools/call"), Some("=?base64?Z3LDvG4=?="), None]);
    let fields = ["mcp-protocol-version", "mcp-method", "mcp-name"].map(|name| bench.field(0, name));
    assert_eq!(fields, [Some("2026-07-28"), Some("server/discover"), None]);
}

#[test]
fn headers_repeat_the_trace_of_a_request_in_either_era() {
    let meta = r#"{"traceparent":"00-1-2-01","tracestate":"a=b","baggage":"k=gr\u00fcn","x":"y"}"#;
    for (mut bench, request) in [(Bench::modern(), 1), (Bench::legacy(), 3)] {
        let call = Invoke::call_tool("t", Json::empty_object()).with_meta(Json::parse(meta).unwrap());
        bench.session.invoke(call, bench.now).unwrap();
        bench.pump();
        let fields = ["traceparent", "tracestate", "baggage", "x"].map(|name| bench.field(request, name));
        assert_eq!(fields, [Some("00-1-2-01"), Some("a=b"), None, None], "{:?}", bench.sent[request]);
    }
}

const LIST: &str = r#"{"resultType":"complete","tools":[
    {"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}},
    {"name":"bad","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":""}}}}]}"#;

#[test]
fn arguments_are_repeated_in_headers_once_the_list_of_tools_has_named_them() {
    let mut bench = Bench::modern();
    bench.session.invoke(Invoke::list_tools(None), bench.now).unwrap();
    bench.pump();
    bench.json(1, 200, &result(2, &LIST.replace('\n', "")));
    let Outcome::Result(list) = bench.outcome() else { panic!("a list") };
    assert!(list.as_str().contains(r#""t""#) && !list.as_str().contains("bad"), "{list:?}");
    assert!(bench.take_log().iter().any(|line| line.starts_with("fault: the tool bad is left out of the list")));
    bench.call_with("t", r#"{"r":"eu"}"#);
    assert_eq!(bench.field(2, "mcp-param-region"), Some("eu"));
    bench.call_with("t", r#"{"r":null}"#);
    assert_eq!(bench.field(3, "mcp-param-region"), None);
    bench.call_with("t", r#"{"r":7}"#);
    assert!(matches!(bench.outcome(), Outcome::Error(RpcError { code: RpcError::INVALID_PARAMS, .. })));
    assert_eq!(bench.sent.len(), 4, "an argument of the wrong type is not sent");
}

#[test]
fn a_header_that_the_server_misses_is_looked_up_in_the_list_of_tools_once() {
    let mut bench = Bench::modern();
    bench.call_with("t", r#"{"r":"eu"}"#);
    bench.call_with("t", r#"{"r":"us"}"#);
    bench.take_log();
    bench.json(1, 400, &error(2, -32020));
    bench.json(2, 400, &error(3, -32020));
    assert_eq!(bench.take_log(), ["POST tools/list"], "one lookup for all");
    assert_eq!(bench.field(3, "mcp-method"), Some("tools/list"));
    assert_eq!(bench.field(3, "mcp-protocol-version"), Some("2026-07-28"));
    let body = core::str::from_utf8(&bench.sent[3].body).unwrap().to_string();
    assert!(body.contains("io.modelcontextprotocol/clientCapabilities") && !body.contains("progressToken"), "{body}");
    let page = r#"{"jsonrpc":"2.0","id":"http-client/tools","result":{"resultType":"complete","tools":[],"nextCursor":"n"}}"#;
    bench.json(3, 200, page);
    assert_eq!(bench.take_log(), ["POST tools/list"]);
    assert!(core::str::from_utf8(&bench.sent[4].body).unwrap().contains(r#""cursor":"n""#));
    bench.json(4, 200, &result(0, &LIST.replace('\n', "")).replace(r#""id":0"#, r#""id":"http-client/tools""#));
    assert_eq!(bench.take_log(), ["POST tools/call", "POST tools/call"]);
    assert_eq!((bench.field(5, "mcp-param-region"), bench.field(6, "mcp-param-region")), (Some("eu"), Some("us")));
    bench.json(5, 400, &error(2, -32020));
    assert!(matches!(bench.outcome(), Outcome::Error(RpcError { code: RpcError::HEADER_MISMATCH, .. })), "once for each call");
}

#[test]
fn a_call_keeps_its_error_if_the_list_of_tools_cannot_be_read() {
    for status in [200, 500] {
        let mut bench = Bench::modern();
        bench.call("t");
        bench.json(1, 400, &error(2, -32020));
        bench.json(2, status, "{}");
        assert!(matches!(bench.outcome(), Outcome::Error(RpcError { code: RpcError::HEADER_MISMATCH, .. })));
    }
    let mut bench = Bench::modern();
    let call = bench.call("t");
    bench.json(1, 400, &error(2, -32020));
    bench.cancel(call);
    bench.take_log();
    bench.json(2, 200, r#"{"jsonrpc":"2.0","id":"x","result":{"tools":[],"nextCursor":"n"}}"#);
    assert_eq!(
        (bench.take_log(), bench.client.calls(), bench.client.requests()),
        (vec![], 0, 0),
        "a call that is cancelled is not repeated"
    );
}

// ---- The cache ----

/// A list of tools that may be cached for `millis` milliseconds. Lists with different `tag`s differ.
fn list(tag: &str, millis: &str) -> String {
    let tools = format!(r#"[{{"name":"{tag}","inputSchema":{{"type":"object"}}}}]"#);
    format!(r#"{{"resultType":"complete","tools":{tools},"ttlMs":{millis},"cacheScope":"private"}}"#)
}

/// A client with a cache, and with an acknowledged subscription to changes, which is the HTTP request 1.
fn caching(change: impl FnOnce(&mut HttpClientConfig)) -> Bench {
    let mut bench = Bench::with(ClientEra::Modern, |config| {
        config.cache = true;
        change(config);
    });
    let capabilities = r#""tools":{"listChanged":true},"resources":{"listChanged":true},"prompts":{"listChanged":true}"#;
    bench.json(0, 200, &discovered(1).replace(r#""tools":{}"#, capabilities));
    bench.head(1, 200, EVENTS);
    let listen = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}"#;
    bench.event(1, "", &notification(&bench, "subscriptions/acknowledged", &format!(r#""notifications":{listen},"#)));
    bench.take_log();
    bench
}

/// A notification on the subscription that `caching` has opened.
fn notification(bench: &Bench, method: &str, params: &str) -> String {
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{}}}"#, bench.id(1));
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}{meta}}}}}"#)
}

impl Bench {
    /// The id of the JSON-RPC request in an HTTP request.
    fn id(&self, request: usize) -> u64 {
        let id = Json::parse(self.sent[request].body.clone()).unwrap().member("id").unwrap();
        id.as_str().parse().unwrap()
    }

    /// Makes a request of the session. Returns the index of the last HTTP request, which carries this request unless the cache has answered
    /// it.
    fn ask(&mut self, invoke: Invoke) -> usize {
        self.session.invoke(invoke, self.now).unwrap();
        self.pump();
        self.sent.len() - 1
    }

    /// Makes a request, and answers it with the result `answer` if it is sent. Returns the outcome, and `true` if the request was sent.
    fn fetch(&mut self, invoke: Invoke, answer: &str) -> (Outcome, bool) {
        let before = self.sent.len();
        let asked = self.ask(invoke);
        let is_sent = asked == before;
        if is_sent {
            self.json(asked, 200, &result(self.id(asked), answer));
        }
        (self.outcome(), is_sent)
    }

    /// Asks for the list of tools. Returns `true` if the request was sent.
    fn lists(&mut self, answer: &str) -> bool {
        self.fetch(Invoke::list_tools(None), answer).1
    }
}

#[test]
fn a_cached_result_is_used_as_long_as_the_server_allows_and_has_the_time_that_is_left() {
    let mut bench = caching(|_| {});
    let (first, is_sent) = bench.fetch(Invoke::list_tools(None), &list("old", "60000"));
    assert!(is_sent && matches!(first, Outcome::Result(_)));
    bench.wait(Duration::from_millis(59_999));
    let (kept, is_sent) = bench.fetch(Invoke::list_tools(None), &list("new", "60000"));
    let Outcome::Result(kept) = kept else { panic!("a list: {kept:?}") };
    assert!(!is_sent && kept.as_str().contains("old") && kept.as_str().contains(r#""ttlMs":1,"#), "{kept:?}");
    assert_eq!((bench.client.calls(), bench.client.requests()), (1, 1), "only the subscription");
    bench.wait(Duration::from_millis(1));
    let (fresh, is_sent) = bench.fetch(Invoke::list_tools(None), &list("new", "60000"));
    assert!(is_sent && format!("{fresh:?}").contains("new"));
    assert!(Bench::modern().lists(&list("x", "60000")));
    let mut off = Bench::modern();
    assert!(off.lists(&list("x", "60000")) && off.lists(&list("x", "60000")), "nothing is kept by default");
    let mut legacy = Bench::with(ClientEra::Legacy, |config| config.cache = true);
    legacy.open("s1");
    legacy.head(2, 405, "");
    assert!(legacy.lists(&list("x", "60000")) && legacy.lists(&list("x", "60000")), "nor with a handshake");
}

#[test]
fn a_result_that_must_not_be_cached_is_not_cached() {
    let input = r#"{"resultType":"input_required","inputRequests":{},"requestState":"s","ttlMs":60000}"#;
    let read = || Invoke::read_resource("u:");
    for (answer, is_kept) in [
        (r#"{"contents":[],"ttlMs":60000}"#, true),
        (r#"{"resultType":"complete","contents":[],"ttlMs":60000,"cacheScope":"public"}"#, true),
        (r#"{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"public"}"#, false),
        (r#"{"resultType":"complete","contents":[]}"#, false),
        (r#"{"resultType":"complete","contents":[],"ttlMs":-1}"#, false),
        (r#"{"resultType":"complete","contents":[],"ttlMs":"60000"}"#, false),
        (r#"{"resultType":"task","contents":[],"ttlMs":60000}"#, false),
        (input, false),
    ] {
        let mut bench = caching(|_| {});
        let asked = bench.ask(read());
        bench.json(asked, 200, &result(bench.id(asked), answer));
        assert_eq!(bench.ask(read()) == asked, is_kept, "{answer}");
    }
    let mut bench = caching(|_| {});
    for _ in 0..2 {
        let asked = bench.ask(read());
        bench.json(asked, 200, &result(bench.id(asked), r#"{"resultType":"input_required","requestState":"s"}"#));
        bench.wait(Duration::from_millis(50));
        let retried = asked + 1;
        let body = core::str::from_utf8(&bench.sent[retried].body).unwrap();
        assert!(body.contains(r#""requestState":"s""#), "the next round, whose result depends on more than the request: {body}");
        bench.json(retried, 200, &result(bench.id(retried), r#"{"resultType":"complete","contents":[],"ttlMs":60000}"#));
        assert!(matches!(bench.outcome(), Outcome::Result(_)));
    }
    let mut bench = caching(|_| {});
    let asked = bench.ask(Invoke::list_tools(None));
    bench.json(asked, 200, &error(bench.id(asked), -7));
    bench.done.clear();
    assert!(bench.lists(&list("x", "1")), "an error is not kept");
    let call = || Invoke::call_tool("t", Json::parse("{}").unwrap());
    let done = r#"{"resultType":"complete","content":[],"ttlMs":60000}"#;
    assert!(bench.fetch(call(), done).1 && bench.fetch(call(), done).1, "a tool is called each time");
}

#[test]
fn only_an_equal_request_is_answered_by_a_cached_result() {
    let mut bench = caching(|_| {});
    let read = |uri: &str| Invoke::read_resource(uri);
    let contents = r#"{"resultType":"complete","contents":[],"ttlMs":60000}"#;
    assert!(bench.lists(&list("x", "60000")));
    assert!(bench.fetch(Invoke::list_tools(Some("2".into())), &list("y", "60000")).1, "another page");
    assert!(bench.fetch(read("u:"), contents).1 && bench.fetch(read("u:2"), contents).1);
    assert!(!bench.fetch(read("u:"), contents).1 && !bench.fetch(Invoke::list_tools(Some("2".into())), "").1 && !bench.lists(""));
}

#[test]
fn a_change_drops_the_cached_results_that_it_is_about_and_no_result_under_way_is_cached() {
    let contents = r#"{"resultType":"complete","contents":[],"ttlMs":60000}"#;
    let request_and_answer = |what: &str| match what {
        "tools" => (Invoke::list_tools(None), list("x", "60000")),
        "prompts" => (Invoke::list_prompts(None), r#"{"resultType":"complete","prompts":[],"ttlMs":60000}"#.to_string()),
        "resources" => (Invoke::list_resources(None), r#"{"resultType":"complete","resources":[],"ttlMs":60000}"#.to_string()),
        other => (Invoke::read_resource(other), contents.to_string()),
    };
    let everything = ["tools", "prompts", "resources", "u:", "u:a", "v:"];
    for (method, params, dropped) in [
        ("tools/list_changed", "", &["tools"][..]),
        ("prompts/list_changed", "", &["prompts"]),
        ("resources/list_changed", "", &["resources", "u:", "u:a", "v:"]),
        ("resources/updated", r#""uri":"u:a","#, &["u:", "u:a"]),
        ("progress", "", &[]),
    ] {
        let mut bench = caching(|_| {});
        for what in everything {
            let (invoke, answer) = request_and_answer(what);
            assert!(bench.fetch(invoke, &answer).1);
        }
        let frame = notification(&bench, method, params);
        bench.event(1, "", &frame);
        for what in everything {
            let (invoke, answer) = request_and_answer(what);
            assert_eq!(bench.fetch(invoke, &answer).1, dropped.contains(&what), "{what} after {method}");
        }
    }
    // The result was made before the change, and comes after it.
    let mut bench = caching(|_| {});
    let asked = bench.ask(Invoke::list_tools(None));
    let frame = notification(&bench, "tools/list_changed", "");
    bench.event(1, "", &frame);
    bench.json(asked, 200, &result(bench.id(asked), &list("old", "60000")));
    bench.done.clear();
    assert!(bench.lists(&list("new", "60000")));
}

#[test]
fn cached_results_are_dropped_when_a_subscription_ends() {
    let ends: [fn(&mut Bench); 3] = [
        |bench| bench.lose(1),
        |bench| bench.end(1),
        |bench| {
            let end = result(bench.id(1), r#"{"resultType":"complete"}"#);
            bench.event(1, "", &end);
        },
    ];
    for end in ends {
        let mut bench = caching(|_| {});
        assert!(bench.lists(&list("old", "60000")) && !bench.lists(""));
        end(&mut bench);
        bench.done.clear();
        assert!(bench.lists(&list("new", "60000")), "the old result was dropped");
        assert!(!bench.lists(""), "new results are kept");
    }
}

#[test]
fn all_cached_results_are_dropped_after_a_401_or_403_and_only_the_list_of_tools_after_a_header_mismatch() {
    let prompts = r#"{"resultType":"complete","prompts":[],"ttlMs":60000,"cacheScope":"private"}"#;
    let lists_prompts = |bench: &mut Bench| bench.fetch(Invoke::list_prompts(None), prompts).1;
    for (status, code, drops_all) in [(401, -7, true), (403, -7, true), (400, -32020, false)] {
        let mut bench = caching(|_| {});
        assert!(bench.lists(&list("t", "60000")) && !bench.lists(""));
        assert!(lists_prompts(&mut bench) && !lists_prompts(&mut bench));
        let called = bench.ask(Invoke::call_tool("t", Json::parse("{}").unwrap()));
        bench.json(called, status, &error(bench.id(called), code));
        if status == 400 {
            // After a header mismatch the client looks up the list of tools.
            bench.json(called + 1, 500, "");
        }
        bench.done.clear();
        assert_eq!(lists_prompts(&mut bench), drops_all, "{status}");
        assert!(bench.lists(&list("t", "60000")), "{status}");
    }
}

#[test]
fn cached_results_are_dropped_after_a_401_for_a_lookup_of_the_list_of_tools() {
    let mut bench = caching(|_| {});
    let prompts = r#"{"resultType":"complete","prompts":[],"ttlMs":60000,"cacheScope":"private"}"#;
    let is_sent = |bench: &mut Bench| bench.fetch(Invoke::list_prompts(None), prompts).1;
    assert!(is_sent(&mut bench) && !is_sent(&mut bench));
    let called = bench.ask(Invoke::call_tool("t", Json::parse("{}").unwrap()));
    bench.json(called, 400, &error(bench.id(called), -32020));
    bench.head(called + 1, 401, "");
    bench.done.clear();
    assert!(is_sent(&mut bench), "the list of prompts was dropped, too");
}

#[test]
fn cached_results_are_bounded() {
    let page = |number: usize| Invoke::list_tools(Some(number.to_string().into()));
    let mut bench = caching(|config| {
        (config.limits.cache_results, config.timeouts.cache_max) = (2, seconds(1));
    });
    for number in 1..=3 {
        bench.wait(Duration::from_millis(1));
        assert!(bench.fetch(page(number), &list("x", "60000")).1);
    }
    assert!(!bench.fetch(page(2), "").1 && !bench.fetch(page(3), "").1);
    assert!(bench.fetch(page(1), &list("x", "1")).1, "the oldest has made room");
    bench.wait(seconds(1));
    assert!(bench.fetch(page(3), &list("x", "60000")).1, "kept no longer than the client allows");
    let mut bench = caching(|config| config.limits.cache_bytes = 600);
    let long = list(&"x".repeat(600), "60000");
    assert!(bench.fetch(page(1), &list("x", "60000")).1 && bench.fetch(page(2), &long).1);
    assert!(!bench.fetch(page(1), "").1 && bench.fetch(page(2), &long).1, "one that is too long drops no other");
    for number in 3..20 {
        bench.wait(Duration::from_millis(1));
        assert!(bench.fetch(page(number), &list("x", "60000")).1);
    }
    assert!(!bench.fetch(page(19), "").1 && bench.fetch(page(1), &list("x", "60000")).1);
}

// ---- Cancels and streams without a handshake ----

#[test]
fn a_cancel_without_a_handshake_closes_the_stream_and_posts_nothing() {
    let mut bench = Bench::modern();
    let (first, second) = (bench.call("t"), bench.call("t"));
    bench.head(2, 200, EVENTS);
    bench.take_log();
    bench.cancel(first);
    bench.cancel(second);
    assert_eq!(bench.take_log(), ["abort 1", "abort 2"]);
}

#[test]
fn a_stream_without_a_handshake_is_not_resumed() {
    let mut bench = Bench::modern();
    bench.call("t");
    bench.head(1, 200, EVENTS);
    bench.event(1, "a", r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}"#);
    bench.end(1);
    assert_eq!(bench.outcome(), Outcome::Lost);
    bench.call("t");
    bench.lose(2);
    assert_eq!(bench.outcome(), Outcome::Lost);
    assert_eq!(bench.client.poll_timeout(), None);
}

#[test]
fn without_a_handshake_a_response_to_another_request_is_dropped() {
    let mut bench = Bench::modern();
    bench.call("t");
    bench.call("t");
    bench.head(1, 200, EVENTS);
    bench.take_log();
    bench.event(1, "", &result(3, r#"{"resultType":"complete","content":[]}"#));
    assert_eq!(
        (bench.take_log(), bench.done.len()),
        (vec!["fault: a response comes on the stream of another request".to_string()], 0)
    );
    bench.event(1, "", &result(2, r#"{"resultType":"complete","content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
}

#[test]
fn the_stream_of_a_subscription_stays_open_without_events_until_it_is_lost_or_closed() {
    type End = fn(&mut Bench);
    let ends: [(End, &[&str]); 2] =
        [(|bench| bench.lose(1), &["fault: the connection fails"]), (|bench| bench.close(), &["abort 1", "closed"])];
    for (end, expected) in ends {
        let mut bench = Bench::new(ClientEra::Modern);
        bench.json(0, 200, &discovered(1).replace(r#""tools":{}"#, r#""tools":{"listChanged":true}"#));
        assert_eq!(bench.take_log().last().map(String::as_str), Some("POST subscriptions/listen"));
        bench.head(1, 200, EVENTS);
        let kinds = r#""notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":2}"#;
        let acknowledged =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{kinds}}}}}"#);
        bench.event(1, "", &acknowledged);
        bench.wait(seconds(3600));
        assert_eq!((bench.take_log(), bench.client.requests()), (vec![], 1), "no event comes for an hour");
        end(&mut bench);
        assert_eq!(bench.take_log(), expected);
        assert_eq!((bench.client.requests(), bench.client.calls(), bench.client.poll_timeout()), (0, 0, None));
    }
}

#[test]
fn the_stream_of_a_subscription_that_is_not_acknowledged_in_time_is_closed() {
    let mut bench = Bench::new(ClientEra::Modern);
    bench.json(0, 200, &discovered(1).replace(r#""tools":{}"#, r#""tools":{"listChanged":true}"#));
    bench.take_log();
    bench.head(1, 200, EVENTS);
    bench.wait(seconds(10));
    assert_eq!((bench.take_log(), bench.client.requests(), bench.client.poll_timeout()), (vec!["abort 1".to_owned()], 0, None));
}

// ---- Both eras ----

#[test]
fn a_redirection_is_followed_to_the_same_origin_if_it_keeps_the_body() {
    let not_followed =
        |code: u16| format!("the server redirects the request to an address that the client does not follow (status {code})");
    for (code, location, expected) in [
        (307, "/other?x=1", Ok("POST /other?x=1 [s1] tools/call")),
        (308, "https://example.com/other", Ok("POST /other [s1] tools/call")),
        (307, "mcp/", Ok("POST /mcp/ [s1] tools/call")),
        (307, "https://evil.example/mcp", Err(not_followed(307))),
        (307, "http://example.com/mcp", Err(not_followed(307))),
        (307, "", Err(not_followed(307))),
        (301, "/other", Err(not_followed(301))),
        (302, "/other", Err(not_followed(302))),
        (303, "/other", Err(not_followed(303))),
    ] {
        let mut bench = Bench::legacy();
        bench.call("t");
        bench.take_log();
        let fields = [("location", location)];
        bench.head_with(3, code, if location.is_empty() { &[] } else { &fields });
        match expected {
            Ok(request) => {
                assert_eq!(bench.take_log(), ["abort 3", request], "{code} {location}");
                assert_eq!(bench.sent[4].body, bench.sent[3].body);
                bench.json(4, 200, &result(2, r#"{"content":[]}"#));
                assert!(matches!(bench.outcome(), Outcome::Result(_)));
            }
            Err(why) => {
                assert_eq!(bench.take_log(), ["abort 3".to_string(), format!("fault: {why}")], "{code} {location}");
                assert_eq!(bench.outcome(), Outcome::Lost);
            }
        }
        bench.take_log();
        bench.call("t");
        let moved = if code == 308 { "POST /other [s1] tools/call" } else { "POST [s1] tools/call" };
        assert_eq!(bench.take_log(), [moved], "only a permanent redirection holds for others");
    }
}

#[test]
fn a_request_follows_a_limited_number_of_redirections() {
    let mut bench = Bench::legacy();
    bench.call("t");
    for hop in 3..6 {
        bench.head_with(hop, 307, &[("location", "/mcp")]);
    }
    assert_eq!(bench.done.len(), 0);
    bench.head_with(6, 307, &[("location", "/mcp")]);
    assert_eq!(bench.outcome(), Outcome::Lost);
}

#[test]
fn an_informational_head_and_input_for_a_request_that_is_over_have_no_effect() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.head(3, 103, "");
    bench.json(3, 200, &result(2, r#"{"content":[]}"#));
    assert!(matches!(bench.outcome(), Outcome::Result(_)));
    bench.take_log();
    bench.head(3, 500, JSON);
    bench.body(3, "{}");
    bench.lose(3);
    bench.head(3, 200, EVENTS);
    assert_eq!((bench.take_log(), bench.client.requests()), (vec![], 0));
}

#[test]
fn a_call_above_the_limit_is_lost_and_not_sent() {
    let mut bench = Bench::with(ClientEra::Legacy, |config| config.limits.calls = 1);
    bench.open("s1");
    bench.call("t");
    bench.take_log();
    bench.call("t");
    assert_eq!((bench.take_log(), bench.outcome()), (vec!["fault: too many requests at once".to_string()], Outcome::Lost));
}

#[test]
fn a_ping_that_is_not_answered_is_given_up() {
    let mut bench = Bench::legacy();
    bench.session.invoke(Invoke::ping(), bench.now).unwrap();
    bench.pump();
    bench.take_log();
    bench.client.handle_timeout(bench.now.saturating_add(seconds(30)));
    bench.now = bench.now.saturating_add(seconds(30));
    bench.pump();
    assert_eq!(bench.take_log(), ["abort 3", "fault: the server does not answer in time"]);
    assert_eq!(bench.outcome(), Outcome::Lost);
}

#[test]
fn an_address_that_is_not_of_http_is_refused() {
    for url in ["", "example.com", "ftp://example.com", "unix:/x"] {
        assert_eq!(HttpClient::new(HttpClientConfig::new(url), Instant::ZERO).err(), Some(InvalidUrl), "{url}");
    }
}

#[test]
fn a_result_of_the_wrong_shape_is_passed_to_the_session() {
    let mut bench = Bench::legacy();
    bench.call("t");
    bench.json(3, 200, &result(2, "7"));
    assert!(matches!(bench.outcome(), Outcome::Invalid(Invalid::Unreadable(_))));
}

/// Seen in the field: a server answers one request with an array of one response. The call waited out its time limit.
#[test]
fn an_array_with_the_response_ends_its_call_at_once_as_json_and_as_an_event() {
    for (mut bench, first) in [(Bench::modern(), 1), (Bench::legacy(), 3)] {
        bench.call("t");
        bench.json(first, 200, &format!("[{}]", result(2, "{}")));
        assert!(matches!(bench.outcome(), Outcome::Invalid(Invalid::Unreadable(_))));
        bench.call("t");
        bench.head(first + 1, 200, EVENTS);
        bench.event(first + 1, "", &format!("[{}]", result(3, "{}")));
        assert!(matches!(bench.outcome(), Outcome::Invalid(Invalid::Unreadable(_))));
        assert_eq!(bench.client.calls(), 0);
    }
    let mut bench = Bench::new(ClientEra::Legacy);
    bench.json(0, 200, &format!("[{}]", agreed(1, LATEST)));
    let closed = format!(
        "the session closes: {}",
        CloseReason::AnswerInvalid("result", MemberFault::Unreadable("a batch in a revision without batches"))
    );
    assert!(bench.take_log().contains(&closed));
}

#[test]
fn the_lookup_of_tools_ends_when_a_cursor_is_repeated() {
    let mut bench = Bench::modern();
    bench.call("t");
    bench.json(1, 400, &error(2, -32020));
    let page = r#"{"jsonrpc":"2.0","id":"http-client/tools","result":{"tools":[],"nextCursor":""}}"#;
    bench.json(2, 200, page);
    bench.take_log();
    bench.json(3, 200, page);
    assert_eq!(bench.take_log(), ["POST tools/call"]);
}
