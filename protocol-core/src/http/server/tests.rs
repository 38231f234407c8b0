use super::*;
use crate::error::RpcError;
use crate::http::header::ParamHeaders;
use crate::http::{HttpLimits, Method, RequestHead};
use crate::mcp;
use crate::session::ReplyKind;
use crate::session::Route;
use crate::{Config, Event, Gone, Identity, InboundId, InputRequest, Progress, Reply, Sample, Session, ToolOutput};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Random bytes that differ from call to call, and one tool with an argument that a header repeats.
struct Context(u8);

impl HttpContext for Context {
    fn random(&mut self) -> [u8; 16] {
        self.0 += 1;
        [self.0; 16]
    }

    fn param_headers(&mut self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#;
        (tool == "t").then(|| Arc::new(ParamHeaders::of_schema(&crate::Json::parse(schema).unwrap()).unwrap()))
    }
}

/// The response of an exchange so far.
#[derive(Debug, Default, PartialEq)]
struct Response {
    /// 0 before the head.
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
    has_ended: bool,
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// A server. The test passes its frames to real sessions ([`Bench::pump`]), or acts in place of the sessions.
struct Bench {
    server: HttpServer,
    context: Context,
    now: Instant,
    real: BTreeMap<SessionKey, Session>,
    /// The requests that the real sessions have returned as events.
    requests: Vec<(SessionKey, InboundId)>,
    /// The number of requests that were sent.
    sent: usize,
}

/// Header fields of a request. They replace the usual fields of the same names. The value `-` stands for no field of this name.
type Fields<'a> = &'a [(&'a str, &'a str)];

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
const MODERN: Fields<'static> = &[("mcp-protocol-version", "2026-07-28")];

/// A request without a handshake.
fn modern(method: &str, params: &str) -> String {
    modern_of("2026-07-28", method, params)
}

fn modern_of(version: &str, method: &str, params: &str) -> String {
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}}}"#
    );
    format!(r#"{{"jsonrpc":"2.0","id":9,"method":"{method}","params":{{{params}{meta}}}}}"#)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HttpServerConfig)) -> Self {
        let mut config = HttpServerConfig::default();
        change(&mut config);
        Self {
            server: HttpServer::new(config, Instant::ZERO),
            context: Context(0),
            now: Instant::ZERO,
            real: BTreeMap::new(),
            requests: Vec::new(),
            sent: 0,
        }
    }

    fn send(&mut self, method: Method, fields: Fields<'_>, body: &str) -> HttpExchangeId {
        self.send_as(None, method, fields, body)
    }

    fn send_as(&mut self, principal: Option<&str>, method: Method, fields: Fields<'_>, body: &str) -> HttpExchangeId {
        let usual =
            [("host", "localhost"), ("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let headers =
            usual.into_iter().filter(|(name, _)| !fields.iter().any(|(field, _)| field == name)).chain(fields.iter().copied());
        let head = RequestHead::new(method, headers.filter(|(_, value)| *value != "-").collect());
        let mut request = HttpRequest::new(head, Bytes::copy_from_slice(body.as_bytes()));
        request.principal = principal;
        // Every other request is admitted before the server gets it, which must make no difference.
        self.sent += 1;
        let config = Arc::clone(&self.server.config);
        let is_checked = self.sent.is_multiple_of(2) && config.check(&request.head).is_ok();
        match config.admit(&request, &mut self.context) {
            Ok(admitted) if is_checked => {
                let drawn = self.context.0;
                let id = self.server.handle_admitted(&admitted, &mut self.context, self.now);
                assert!(self.context.0 == drawn || admitted.opens_session(), "random bytes for {body}");
                id
            }
            _ => self.server.handle_request(&request, &mut self.context, self.now),
        }
    }

    fn post(&mut self, fields: Fields<'_>, body: &str) -> HttpExchangeId {
        self.send(Method::Post, fields, body)
    }

    fn events(&mut self) -> Vec<HttpEvent> {
        let all = core::iter::from_fn(|| self.server.poll_event());
        all.filter(|event| !matches!(event, HttpEvent::Readable { .. })).collect()
    }

    /// Tells the server that the only frame among the events causes `replies` replies, and returns the session and the lane of the frame.
    fn accept(&mut self, replies: usize) -> (SessionKey, Lane) {
        let frames = self.events().into_iter().filter_map(|event| match event {
            HttpEvent::Frame { session, lane, exchange, .. } => Some((session, lane, exchange)),
            _ => None,
        });
        let [(session, lane, exchange)] = frames.collect::<Vec<_>>()[..] else { panic!("one frame") };
        self.server.handle_received(exchange, replies, self.now);
        (session, lane)
    }

    fn transmit(&mut self, session: SessionKey, lane: Lane, kind: RouteKind, frame: &str) {
        let frame = Bytes::copy_from_slice(frame.as_bytes());
        self.server.handle_transmit(session, Transmit { frame, route: Route { lane, kind } }, self.now);
    }

    fn reply(&mut self, (session, lane): (SessionKey, Lane), frame: &str) {
        self.transmit(session, lane, RouteKind::Reply(ReplyKind::Result), frame);
    }

    /// Sends a frame within a call.
    fn within(&mut self, (session, lane): (SessionKey, Lane), frame: &str) {
        self.transmit(session, lane, RouteKind::Within, frame);
    }

    /// Everything that can be polled of an exchange.
    fn response(&mut self, id: HttpExchangeId) -> Response {
        let mut response = Response::default();
        while let Some(part) = self.server.poll_response(id, self.now) {
            assert!(!response.has_ended, "nothing follows the end");
            match part {
                ResponsePart::Head { head, .. } => {
                    assert_eq!((response.status, &*response.body), (0, ""), "one head, before everything");
                    response.status = head.status;
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    response.fields = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
                }
                ResponsePart::Chunk(chunk) => response.body.push_str(core::str::from_utf8(&chunk).unwrap()),
                ResponsePart::End => response.has_ended = true,
            }
        }
        response
    }

    /// The status and the body of a response that is complete.
    fn complete(&mut self, id: HttpExchangeId) -> (u16, String) {
        let response = self.response(id);
        assert!(response.has_ended, "{response:?}");
        (response.status, response.body)
    }

    /// The part of a stream that is new, and `true` if the stream has ended.
    fn stream(&mut self, id: HttpExchangeId) -> (String, bool) {
        let response = self.response(id);
        (response.body, response.has_ended)
    }

    /// Opens a session of a revision, and returns its key and its id.
    fn open(&mut self, revision: &str) -> (SessionKey, String) {
        self.open_by(None, revision)
    }

    /// Opens a session of a client.
    fn open_as(&mut self, principal: &str) -> (SessionKey, String) {
        self.open_by(Some(principal), "2025-11-25")
    }

    fn open_by(&mut self, principal: Option<&str>, revision: &str) -> (SessionKey, String) {
        let id = self.send_as(principal, Method::Post, &[], INITIALIZE);
        let lane = self.accept(1);
        self.reply(lane, &format!(r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{revision}"}}}}"#));
        let response = self.response(id);
        assert_eq!((response.status, response.has_ended), (200, true));
        (lane.0, response.field("mcp-session-id").expect("an id").to_string())
    }

    /// Posts a call in a session, and returns its exchange and its lane.
    fn call(&mut self, session: &str) -> (HttpExchangeId, (SessionKey, Lane)) {
        let id = self.post(&[("mcp-session-id", session)], CALL);
        (id, self.accept(1))
    }

    /// Sends a GET. `last` is the id of the last event that the client has received, if it resumes a stream.
    fn get(&mut self, session: &str, last: Option<&str>) -> HttpExchangeId {
        let mut fields = vec![("mcp-session-id", session)];
        fields.extend(last.map(|last| ("last-event-id", last)));
        self.send(Method::Get, &fields, "")
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now.saturating_add(by);
        self.server.handle_timeout(self.now);
        assert!(self.server.poll_timeout().is_none_or(|at| at > self.now), "no deadline is left in the past");
    }

    /// Passes everything on between the server and real sessions.
    fn pump(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                HttpEvent::Open { session, era } => {
                    let mut config = Config::mcp_server(Identity::new("server", "1"));
                    config.era = era.config();
                    self.real.insert(session, Session::new(config, self.now));
                }
                HttpEvent::Frame { session, exchange, lane, frame } => {
                    let Some(real) = self.real.get_mut(&session) else { continue };
                    match real.handle_frame(frame, lane, self.now) {
                        Ok(received) => self.server.handle_received(exchange, received.replies, self.now),
                        Err(_) => self.server.handle_full(exchange, self.now),
                    }
                    self.pump_session(session);
                }
                HttpEvent::Close { session } => {
                    self.real.remove(&session);
                    self.requests.retain(|(of, _)| *of != session);
                }
                _ => {}
            }
        }
    }

    fn pump_session(&mut self, key: SessionKey) {
        let Some(real) = self.real.get_mut(&key) else { return };
        let mut has_cancelled = false;
        while let Some(event) = real.poll_event() {
            match event {
                Event::Request { id, .. } => self.requests.push((key, id)),
                Event::Cancelled { .. } => has_cancelled = true,
                _ => {}
            }
        }
        while let Some(transmit) = real.poll_transmit() {
            self.server.handle_transmit(key, transmit, self.now);
        }
        if has_cancelled {
            for lane in self.server.lanes_at_work(key).collect::<Vec<_>>() {
                if real.replies_owed(lane) == 0 {
                    self.server.handle_settled(key, lane, self.now);
                }
            }
        }
    }

    /// Posts a body to real sessions, and returns the response.
    fn ask(&mut self, fields: Fields<'_>, body: &str) -> Response {
        let id = self.post(fields, body);
        self.pump();
        self.response(id)
    }

    /// Posts a request without a handshake, with the headers that repeat parts of it. Returns the status, which is 0 if there is
    /// no response yet, and the code of the error.
    fn ask_modern(&mut self, fields: Fields<'_>, body: &str) -> (u16, Option<i64>) {
        let usual = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
        let mut all: Vec<_> = usual.into_iter().filter(|(name, _)| !fields.iter().any(|(field, _)| field == name)).collect();
        all.extend(fields);
        let response = self.ask(&all, body);
        let code = response.body.split(r#""code":"#).nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
        assert!(response.has_ended || response.status == 0, "{response:?}");
        assert_eq!(response.field("mcp-session-id"), None);
        (response.status, code)
    }
}

// ---- The order of the checks ----

#[test]
fn faults_of_a_post_are_reported_in_their_order() {
    let long = "x".repeat(100);
    // Each row has a part of the request, a wrong value for it, and the status. The request of a row has the faults of this row and of all
    // later rows, and the fault of the row is reported.
    let faults: [(&str, &str, u16); 8] = [
        ("host", "evil.example.com", 403),
        ("origin", "http://evil.example.com", 403),
        ("content-type", "text/plain", 415),
        ("accept", "application/json", 406),
        ("body", &long, 413),
        ("body", "{", 400),
        ("body", "[]", 400),
        ("mcp-session-id", "unknown", 404),
    ];
    for (at, (part, value, status)) in faults.into_iter().enumerate() {
        let mut bench = Bench::with(|config| config.limits.body_bytes = 90);
        // A part that is in several rows gets the value of the first of them.
        let mut wrong: Vec<(&str, &str)> = vec![(part, value)];
        for (part, value, _) in &faults[at..] {
            if !wrong.iter().any(|(name, _)| name == part) {
                wrong.push((part, value));
            }
        }
        let body = wrong.iter().find(|(part, _)| *part == "body").map_or(CALL, |(_, body)| body);
        wrong.retain(|(part, _)| *part != "body");
        let id = bench.post(&wrong, body);
        let (seen, answer) = bench.complete(id);
        assert_eq!(seen, status, "{part}: {value}");
        assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32"#), "{answer}");
        assert_eq!(bench.server.sessions(), 0);
        assert_eq!(bench.events(), [], "a request that is refused has no effect");
    }
}

/// A request that may have several faults.
#[derive(Clone, Debug)]
struct Faulty {
    method: Method,
    fields: Vec<(&'static str, String)>,
    body: String,
    /// `true` if another request is being served, and the server has room for only one.
    is_crowded: bool,
    is_stopping: bool,
}

impl Faulty {
    /// Sets a field, or drops it if the value is empty.
    fn set(&mut self, name: &'static str, value: &str) {
        self.fields.retain(|(field, _)| *field != name);
        if !value.is_empty() {
            self.fields.push((name, value.to_string()));
        }
    }

    /// Repeats a field.
    fn repeat(&mut self, name: &'static str) {
        let again = self.fields.iter().filter(|(field, _)| *field == name).cloned().collect::<Vec<_>>();
        self.fields.extend(again);
    }
}

/// A fault, and the response to it: the status, and a part of the body.
type Fault = (fn(&mut Faulty), u16, &'static str);

const ANY_REQUEST: [Fault; 4] = [
    (|it| it.repeat("host"), 403, "this host"),
    (|it| it.set("host", "evil.example.com"), 403, "this host"),
    (|it| it.repeat("origin"), 403, "this origin"),
    (|it| it.set("origin", "http://evil.example.com"), 403, "this origin"),
];
const ANY_POST: [Fault; 6] = [
    (|it| it.set("content-type", "text/plain"), 415, "Content-Type"),
    (|it| it.set("accept", "application/json"), 406, "Accept"),
    (|it| it.is_crowded = true, 503, "too many requests"),
    (|it| it.body.push_str(&" ".repeat(2000)), 413, "2000 bytes"),
    (|it| it.body = it.body.replacen('{', "[", 1), 400, "-32700"),
    (|it| it.body = it.body.replace(r#""2.0""#, r#""1.0""#), 400, "-32600"),
];
const ANY_SESSION: [Fault; 3] = [
    (|it| it.repeat("mcp-session-id"), 400, "repeated"),
    (|it| it.set("mcp-session-id", "unknown"), 404, "no such session"),
    (|it| it.set("mcp-protocol-version", "x"), 400, "MCP-Protocol-Version"),
];

/// Checks for each of `faults` that a request with this fault, alone or together with the next fault, is answered for this fault and has no
/// effect. `sound` makes a request without a fault.
#[track_caller]
fn each_fault_comes_before_the_next(of: &str, sound: &dyn Fn(&mut Bench) -> Faulty, faults: &[Fault]) {
    for (at, (earlier, status, text)) in faults.iter().enumerate() {
        for later in [None, faults.get(at + 1)] {
            let mut bench = Bench::with(|config| config.limits.body_bytes = 2000);
            let mut request = sound(&mut bench);
            // The earlier fault is made last, so that the later one does not undo it.
            if let Some((later, ..)) = later {
                later(&mut request);
            }
            earlier(&mut request);
            if request.is_crowded {
                bench.server.config = Arc::new(HttpServerConfig {
                    limits: HttpLimits { exchanges: 1, ..bench.server.config.limits },
                    ..(*bench.server.config).clone()
                });
                bench.post(&[], INITIALIZE);
                bench.pump();
            }
            if request.is_stopping {
                bench.server.stop();
            }
            let sessions = bench.server.sessions();
            let fields: Vec<_> = request.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let id = bench.send(request.method, &fields, &request.body);
            bench.pump();
            let response = bench.response(id);
            let is_answered = response.has_ended && response.status == *status && response.body.contains(text);
            assert!(is_answered, "{of}, fault {at}, with the next: {}: {response:?}", later.is_some());
            assert_eq!((bench.server.sessions(), bench.requests.len()), (sessions, 0), "{of} {at} has no effect");
        }
    }
}

#[test]
fn of_two_faults_in_one_request_the_one_that_is_checked_first_is_answered() {
    let with_origin = |fields: &[(&'static str, &str)]| {
        let usual = [("host", "localhost"), ("origin", "http://localhost")];
        usual.iter().chain(fields).map(|(name, value)| (*name, value.to_string())).collect()
    };
    let json = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let faulty = |method, fields, body: &str| Faulty { method, fields, body: body.into(), is_crowded: false, is_stopping: false };

    let sound = |_: &mut Bench| {
        let mirrors = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
        let fields = with_origin(&[&json[..], &mirrors, &[("mcp-param-region", "x")]].concat());
        faulty(Method::Post, fields, &modern("tools/call", r#""name":"t","arguments":{"region":"x"},"#))
    };
    let without_handshake: [Fault; 12] = [
        (|it| it.set("mcp-protocol-version", ""), 400, "mcp-protocol-version is missing"),
        (|it| it.set("mcp-method", ""), 400, "mcp-method is missing"),
        (|it| it.set("mcp-name", ""), 400, "mcp-name is missing"),
        (|it| it.body = it.body.replace("clientCapabilities", "other"), 400, "-32602"),
        (|it| it.set("mcp-protocol-version", "2025-11-25"), 400, "mcp-protocol-version"),
        (|it| it.set("mcp-method", "tools/list"), 400, "mcp-method"),
        (|it| it.set("mcp-name", "x"), 400, "mcp-name"),
        (|it| it.set("mcp-param-region", "y"), 400, "mcp-param-Region"),
        (|it| it.is_stopping = true, 503, "stopping"),
        (
            |it| {
                it.set("mcp-protocol-version", "v999.0.0");
                it.body = it.body.replace("2026-07-28", "v999.0.0");
            },
            400,
            "-32022",
        ),
        (
            |it| {
                it.set("mcp-method", "no/such");
                it.body = it.body.replace("tools/call", "no/such");
            },
            404,
            "-32601",
        ),
        (|it| it.body = it.body.replace(r#""name":"t","#, ""), 400, "-32602"),
    ];
    each_fault_comes_before_the_next("without", &sound, &[&ANY_REQUEST[..], &ANY_POST, &without_handshake].concat());
    let opened = |bench: &mut Bench| {
        let id = bench.ask(&[], INITIALIZE).field("mcp-session-id").expect("an id").to_string();
        bench.ask(&[("mcp-session-id", &id)], INITIALIZED);
        id
    };
    let sound = |bench: &mut Bench| {
        let session = [("mcp-session-id", &*opened(bench)), ("mcp-protocol-version", "2025-11-25"), ("mcp-name", "x")];
        faulty(Method::Post, with_origin(&[&json[..], &session].concat()), CALL)
    };
    let with_handshake: [Fault; 2] =
        [(|it| it.set("mcp-method", "x"), 400, "mcp-method"), (|it| it.set("mcp-name", "y"), 400, "mcp-name")];
    each_fault_comes_before_the_next("with", &sound, &[&ANY_REQUEST[..], &ANY_POST, &ANY_SESSION, &with_handshake].concat());

    let sound = |bench: &mut Bench| {
        let session = [("accept", "text/event-stream"), ("mcp-session-id", &*opened(bench))];
        faulty(Method::Get, with_origin(&session), "")
    };
    // The faults of a POST that are not about its body.
    let get: [Fault; 2] = [ANY_POST[1], ANY_POST[2]];
    let stopping: [Fault; 1] = [(|it| it.is_stopping = true, 503, "stopping")];
    each_fault_comes_before_the_next("GET", &sound, &[&ANY_REQUEST[..], &get, &ANY_SESSION, &stopping].concat());
    each_fault_comes_before_the_next(
        "DELETE",
        &|bench| Faulty { method: Method::Delete, ..sound(bench) },
        &[&ANY_REQUEST[..], &ANY_POST[2..3], &ANY_SESSION].concat(),
    );
    let other_method: [Fault; 2] = [(|it| it.method = Method::Other, 405, "-32"), ANY_POST[2]];
    each_fault_comes_before_the_next("another method", &sound, &[&ANY_REQUEST[..], &other_method].concat());
}

#[test]
fn a_refusal_for_the_media_types_names_those_that_are_needed() {
    let mut bench = Bench::new();
    let (_, session) = bench.open("2025-11-25");
    for (method, accept, needed) in [
        (Method::Post, "text/html", &["Accept", "application/json", "text/event-stream"][..]),
        (Method::Post, "application/json;q=0, text/event-stream", &["Accept", "application/json", "text/event-stream"]),
        (Method::Get, "application/json", &["Accept", "text/event-stream"]),
    ] {
        let refused = bench.send(method, &[("accept", accept), ("mcp-session-id", &session)], CALL);
        let (status, body) = bench.complete(refused);
        assert!(status == 406 && needed.iter().all(|needed| body.contains(needed)), "{accept}: {body}");
    }
    let refused = bench.post(&[("content-type", "application/jsonx")], CALL);
    let (status, body) = bench.complete(refused);
    assert!(status == 415 && body.contains("Content-Type must be application/json"), "{body}");
}

#[test]
fn only_a_head_that_passes_its_checks_is_admitted() {
    let bench = Bench::new();
    let head = |method, host| {
        let fields = [("host", host), ("content-type", "application/json"), ("accept", "*/*")];
        RequestHead::new(method, fields.into_iter().collect())
    };
    let refusal = |method, host| bench.server.config.check(&head(method, host)).err().map(|refusal| refusal.head.status);
    assert_eq!(refusal(Method::Post, "localhost"), None);
    assert_eq!(refusal(Method::Post, "evil.example.com"), Some(403));
    assert_eq!(refusal(Method::Other, "localhost"), Some(405));
}

#[test]
fn a_method_that_is_not_served_is_refused_with_405_and_a_list_of_those_that_are() {
    for (era, method, allowed) in [
        (mcp::Era::Auto, Method::Other, "GET, POST, DELETE"),
        (mcp::Era::Legacy, Method::Other, "GET, POST, DELETE"),
        (mcp::Era::Modern, Method::Other, "POST"),
        (mcp::Era::Modern, Method::Get, "POST"),
        (mcp::Era::Modern, Method::Delete, "POST"),
    ] {
        let mut bench = Bench::with(|config| config.era = era);
        let id = bench.send(method, &[("mcp-session-id", "x"), ("last-event-id", "1-1")], "");
        let response = bench.response(id);
        assert_eq!((response.status, response.field("allow")), (405, Some(allowed)), "{era:?} {method:?}");
    }
}

#[test]
fn an_error_for_a_body_without_an_id_has_the_id_null_or_in_the_modern_era_no_id() {
    let mut bench = Bench::new();
    let id = bench.post(&[], "\u{feff}{}x");
    let (status, body) = bench.complete(id);
    assert!(status == 400 && body.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700"#), "{body}");
    let id = bench.post(MODERN, "nonsense");
    let (status, body) = bench.complete(id);
    assert!(status == 400 && body.starts_with(r#"{"jsonrpc":"2.0","error":{"code":-32700"#), "{body}");
    let id = bench.post(&[], r#"{"jsonrpc":"1.0","id":3,"method":"x"}"#);
    let (status, body) = bench.complete(id);
    assert!(status == 400 && body.starts_with(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32600"#), "{body}");
}

/// If an id such as `1.0` were read as a float and rounded, it would be the id of another request.
#[test]
fn an_id_that_is_no_integer_is_refused_and_names_no_other_request() {
    let mut bench = Bench::new();
    let id = bench.ask(&[], INITIALIZE).field("mcp-session-id").expect("an id").to_string();
    let with = [("mcp-session-id", &*id)];
    bench.ask(&with, INITIALIZED);
    let call = bench.post(&with, CALL);
    bench.pump();
    let [(key, _)] = bench.requests[..] else { panic!("one request") };
    for number in ["1.0", "1e0", "1.5", "10e-1", "-0"] {
        let refused = bench.ask(&with, &CALL.replace(r#""id":1,"#, &format!(r#""id":{number},"#)));
        let code = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600"#;
        assert!(refused.status == 400 && refused.body.starts_with(code), "{number}: {refused:?}");
        let cancel = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number}}}}}"#);
        assert_eq!(bench.ask(&with, &cancel).status, 202);
        bench.pump_session(key);
    }
    assert_eq!((bench.response(call), bench.requests.len()), (Response::default(), 1), "it is neither repeated nor cancelled");
    let text = bench.ask(&with, r#"{"jsonrpc":"2.0","id":"1.0","method":"ping"}"#);
    assert_eq!(text.body, r#"{"jsonrpc":"2.0","id":"1.0","result":{}}"#, "text keeps its spelling");
}

// ---- Sessions ----

#[test]
fn the_id_of_a_session_comes_with_the_result_of_the_handshake_and_not_with_an_error() {
    let mut bench = Bench::new();
    let response = bench.ask(&[("mcp-protocol-version", "nonsense")], INITIALIZE);
    assert_eq!(
        (response.status, response.field("content-type")),
        (200, Some("application/json")),
        "the header is not checked here"
    );
    let id = response.field("mcp-session-id").expect("an id").to_string();
    assert_eq!(id, "01".repeat(16));
    assert!(response.body.contains(r#""protocolVersion":"2025-11-25""#));
    let with = [("mcp-session-id", &*id)];
    assert_eq!(bench.ask(&with, INITIALIZED), Response { status: 202, has_ended: true, ..Response::default() });
    let again = bench.ask(&with, INITIALIZE);
    assert!(
        again.status == 200 && again.body.contains("-32600"),
        "a second handshake within a session is refused by it: {again:?}"
    );
    assert_eq!((again.field("mcp-session-id"), bench.server.sessions()), (None, 1));
    let stale = bench.ask(&[("mcp-session-id", "stale")], INITIALIZE);
    assert_eq!(stale.field("mcp-session-id"), Some(&*"02".repeat(16)), "one with an id that is not known opens another session");
    let failed = bench.ask(&[], r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    assert!(failed.status == 200 && failed.body.contains(r#""error""#), "{failed:?}");
    assert_eq!((failed.field("mcp-session-id"), bench.server.sessions(), bench.real.len()), (None, 2, 2), "nothing is left of it");
}

#[test]
fn only_initialize_opens_a_session_and_each_request_in_a_body_is_a_call() {
    let config = HttpServerConfig::default();
    let admitted = |method, body: &str| {
        let request = HttpRequest::new(RequestHead::new(method, Headers::new()), body.to_string().into());
        config.admit(&request, &mut Context(0)).map(|admitted| (admitted.opens_session(), admitted.calls())).ok()
    };
    let batch = format!("[{CALL},{INITIALIZED}]");
    for (body, expected) in [
        (INITIALIZE, Some((true, 1))),
        (CALL, Some((false, 1))),
        (INITIALIZED, Some((false, 0))),
        (RESULT, Some((false, 0))),
        (&*batch, Some((false, 1))),
        ("no JSON", None),
    ] {
        assert_eq!(admitted(Method::Post, body), expected, "{body}");
    }
    assert_eq!([Method::Get, Method::Delete].map(|method| admitted(method, INITIALIZE)), [Some((false, 0)); 2]);
}

#[test]
fn a_request_must_name_an_open_session_of_its_own_principal() {
    let mut bench = Bench::new();
    let opened = bench.send_as(Some("ann"), Method::Post, &[], INITIALIZE);
    let lane = bench.accept(1);
    bench.reply(lane, r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18"}}"#);
    let id = bench.response(opened).field("mcp-session-id").unwrap().to_string();
    for method in [Method::Post, Method::Get, Method::Delete] {
        let mut status = |principal, fields: Fields<'_>| {
            let id = bench.send_as(principal, method, fields, CALL);
            bench.complete(id).0
        };
        assert_eq!(status(Some("ann"), &[]), 400);
        assert_eq!(status(Some("ann"), &[("mcp-session-id", "x")]), 404);
        assert_eq!(status(Some("ann"), &[("mcp-session-id", &id), ("Mcp-Session-Id", &id)]), 400);
        assert_eq!(status(Some("bob"), &[("mcp-session-id", &id)]), 404, "it belongs to another");
        assert_eq!(status(None, &[("mcp-session-id", &id)]), 404);
    }
    assert_eq!(bench.server.sessions(), 1, "and no other caller has ended it");
}

/// Regression: a handshake agreed on 2024-11-05, and each request that then named this revision was refused.
#[test]
fn every_revision_that_a_handshake_agrees_on_can_then_be_named_in_the_header() {
    let mut bench = Bench::new();
    for revision in crate::mcp::Revision::ALL.into_iter().filter(|revision| revision.has_handshake()) {
        let name = revision.as_str();
        let opened = bench.ask(&[], &INITIALIZE.replace("2025-11-25", name));
        assert!(opened.body.contains(&format!(r#""protocolVersion":"{name}""#)), "{opened:?}");
        let id = opened.field("mcp-session-id").expect("an id").to_string();
        let with = [("mcp-session-id", &*id), ("mcp-protocol-version", name)];
        assert_eq!(bench.ask(&with, INITIALIZED).status, 202, "{name}");
        assert_eq!(bench.ask(&with, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 200, "{name}");
    }
}

#[test]
fn the_version_header_of_a_later_request_must_name_a_known_version() {
    let mut bench = Bench::new();
    let (_, id) = bench.open("2025-06-18");
    for (version, status) in [("-", 202), ("2025-06-18", 202), ("2025-03-26", 202), ("2099-01-01", 400), ("x", 400)] {
        let posted = bench.post(&[("mcp-session-id", &id), ("mcp-protocol-version", version)], INITIALIZED);
        if status == 202 {
            bench.accept(0);
        }
        assert_eq!(bench.complete(posted).0, status, "{version}");
    }
    let twice = [("mcp-session-id", &*id), ("mcp-protocol-version", "2025-06-18"), ("mcp-protocol-version", "2025-06-18")];
    let posted = bench.post(&twice, INITIALIZED);
    assert_eq!(bench.complete(posted).0, 400);
    let got = bench.send(Method::Get, &[("mcp-session-id", &id), ("mcp-protocol-version", "x")], "");
    assert_eq!(bench.complete(got).0, 400);
    // Regression: a DELETE ended the session whatever the header named.
    let delete = |bench: &mut Bench, version| {
        let deleted = bench.send(Method::Delete, &[("mcp-session-id", &id), ("mcp-protocol-version", version)], "");
        (bench.complete(deleted).0, bench.server.sessions())
    };
    assert_eq!(delete(&mut bench, "x"), (400, 1));
    assert_eq!(delete(&mut bench, "2025-06-18"), (204, 0));
}

/// Regression: a wrong `Mcp-Method` was ignored. A proxy that relies on this header would let a request pass that it should stop.
#[test]
fn a_header_that_a_request_with_a_handshake_does_not_need_must_not_contradict_it() {
    let mut bench = Bench::new();
    for fields in [
        &[("mcp-method", "tools/list")][..],
        &[("mcp-method", "Initialize")],
        &[("mcp-method", "initialize"), ("Mcp-Method", "initialize")],
    ] {
        let refused = bench.post(fields, INITIALIZE);
        let (status, body) = bench.complete(refused);
        assert!(status == 400 && body.starts_with(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32020"#), "{fields:?}: {body}");
        assert_eq!((bench.server.sessions(), bench.events()), (0, vec![]), "nothing is opened");
    }
    let opened = bench.ask(&[("mcp-method", "initialize"), ("mcp-name", "of nothing")], INITIALIZE);
    let id = opened.field("mcp-session-id").expect("an id").to_string();
    bench.ask(&[("mcp-session-id", &id)], INITIALIZED);
    // The status 0 stands for a call that is served, and has no response yet.
    for (name, value, status) in [
        ("mcp-method", "tools/list", 400),
        ("mcp-method", "tools/call", 0),
        ("mcp-name", "y", 400),
        ("mcp-name", "=?base64?*?=", 400),
        ("mcp-name", "=?base64?eA==?=", 0),
    ] {
        let called = bench.ask(&[("mcp-session-id", &id), (name, value)], CALL);
        assert_eq!(called.status, status, "{name}: {value}");
        bench.ask(&[("mcp-session-id", &id)], r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    }
    let unknown = bench.post(&[("mcp-session-id", "x"), ("mcp-method", "tools/list")], CALL);
    assert_eq!(bench.complete(unknown).0, 404, "a session that is gone is reported first");
}

#[test]
fn a_delete_ends_the_session_with_all_its_streams() {
    let mut bench = Bench::new();
    let (key, id) = bench.open("2025-11-25");
    let (waiting, _) = bench.call(&id);
    let (live, lane) = bench.call(&id);
    bench.within(lane, PROGRESS);
    let listening = bench.get(&id, None);
    let deleted = bench.send(Method::Delete, &[("mcp-session-id", &id)], "");
    assert_eq!(bench.complete(deleted), (204, String::new()));
    assert!(bench.events().contains(&HttpEvent::Close { session: key }), "its handlers are cancelled");
    assert_eq!(bench.complete(waiting).0, 404);
    assert!(bench.complete(live).0 == 200 && bench.complete(listening).0 == 200);
    for method in [Method::Post, Method::Get, Method::Delete] {
        let late = bench.send(method, &[("mcp-session-id", &id)], CALL);
        assert_eq!(bench.complete(late).0, 404, "{method:?}");
    }
    assert_eq!((bench.server.sessions(), bench.server.exchanges(), bench.server.poll_timeout()), (0, 0, None));
}

#[test]
fn exchanges_and_subscriptions_are_bounded() {
    let overloaded = |bench: &mut Bench, id| {
        let response = bench.response(id);
        assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
    };
    let mut bench = Bench::with(|config| config.limits.subscriptions = 1);
    let listen = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let body = modern("subscriptions/listen", r#""notifications":{},"#);
    let first = bench.post(&listen, &body);
    let second = bench.post(&listen, &body);
    overloaded(&mut bench, second);
    bench.server.handle_lost(first, bench.now);
    let next = bench.post(&listen, &body);
    assert_eq!(bench.response(next), Response::default(), "there is room again");
    let mut bench = Bench::with(|config| config.limits.exchanges = 1);
    let first = bench.post(&[], INITIALIZE);
    let second = bench.post(&[], INITIALIZE);
    overloaded(&mut bench, second);
    bench.server.handle_lost(first, bench.now);
    assert_eq!((bench.server.sessions(), bench.server.exchanges()), (0, 0));
}

#[test]
fn a_session_keeps_at_most_as_many_bytes_for_replay_as_are_left_for_all_others() {
    let mut bench = Bench::with(|config| config.limits.kept_bytes = 40 * PROGRESS.len());
    let mut streams = Vec::new();
    for _ in 0..9 {
        let (_, session) = bench.open("2025-11-25");
        let (exchange, lane) = bench.call(&session);
        bench.server.handle_lost(exchange, bench.now);
        streams.push((session, lane));
    }
    // They take turns until each would have 100 events.
    for _ in 0..100 {
        for (_, lane) in &streams {
            bench.within(*lane, PROGRESS);
        }
    }
    let kept = bench.server.kept_bytes() / PROGRESS.len();
    assert!((30..=40).contains(&kept), "{kept}");
    let (session, (_, lane)) = &streams[0];
    let resumed = bench.get(session, Some(&format!("{}-99", lane.number())));
    assert_eq!(bench.stream(resumed).0.matches("progress").count(), 1, "the newest are kept");
    let resumed = bench.get(session, Some(&format!("{}-1", lane.number())));
    assert_eq!(bench.stream(resumed), (String::new(), true), "the oldest are not");
    for (session, _) in &streams {
        let ended = bench.send(Method::Delete, &[("mcp-session-id", session)], "");
        assert_eq!(bench.complete(ended).0, 204);
    }
    assert_eq!(bench.server.kept_bytes(), 0);
}

/// 10 000 sessions kept everybody who needed a handshake out for 30 minutes.
#[test]
fn a_further_session_ends_the_idle_one_that_would_end_first() {
    let mut bench = Bench::with(|config| config.limits.sessions = 4);
    let (_, busy) = bench.open("2025-11-25");
    let (working, lane) = bench.call(&busy);
    let (_, old) = bench.open("2025-11-25");
    let notified = bench.post(&[("mcp-session-id", &old)], INITIALIZED);
    bench.accept(0);
    assert_eq!(bench.complete(notified).0, 202);
    bench.advance(millis(1000));
    // The clients of these two have not used them, so they would end after 60 s, and the older one in 30 minutes.
    let (_, unused) = bench.open("2025-11-25");
    bench.advance(millis(1000));
    bench.open("2025-11-25");
    let status = |bench: &mut Bench, id: &str| {
        let notified = bench.post(&[("mcp-session-id", id)], INITIALIZED);
        if bench.server.poll_response(notified, bench.now).is_some() {
            return 404;
        }
        bench.accept(0);
        bench.complete(notified).0
    };
    bench.open("2025-11-25");
    assert_eq!((bench.server.sessions(), status(&mut bench, &unused)), (4, 404));
    assert_eq!(status(&mut bench, &old), 202);
    for _ in 0..20 {
        bench.open("2025-11-25");
    }
    assert_eq!((bench.server.sessions(), status(&mut bench, &old)), (4, 202), "the newer ones would end first");
    bench.reply(lane, RESULT);
    assert_eq!(bench.complete(working).0, 200, "a session in use does not end");
}

#[test]
fn if_every_session_is_in_use_a_further_one_is_refused() {
    let mut bench = Bench::with(|config| config.limits.sessions = 2);
    let opening = [(); 3].map(|()| bench.post(&[], INITIALIZE));
    let response = bench.response(opening[2]);
    assert_eq!((response.status, response.field("retry-after")), (503, Some("10")));
    bench.server.handle_lost(opening[0], bench.now);
    bench.events();
    bench.open_as("a");
}

#[test]
fn a_client_has_at_most_as_many_sessions_as_are_left_for_all_others() {
    let mut bench = Bench::with(|config| config.limits.sessions = 6);
    let (_, first) = bench.open_as("a");
    for _ in 0..50 {
        bench.advance(millis(10));
        bench.open_as("greedy");
    }
    assert_eq!(bench.server.sessions(), 1 + 3, "half, rounded up, of what is left");
    let in_use = [(); 5].map(|()| bench.send_as(Some("hog"), Method::Post, &[], INITIALIZE));
    assert_eq!(bench.response(in_use[0]), Response::default());
    let refused = bench.response(in_use[4]);
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("10")));
    let answered = bench.send_as(Some("a"), Method::Delete, &[("mcp-session-id", &first)], "");
    assert_eq!(bench.complete(answered).0, 204, "its session was not touched");
}

#[test]
fn a_server_that_stops_opens_nothing_and_serves_the_sessions_that_there_are() {
    let mut bench = Bench::new();
    let (key, id) = bench.open("2025-11-25");
    let (_, lane) = bench.call(&id);
    bench.within(lane, PROGRESS);
    assert_eq!(bench.server.session_keys().collect::<Vec<_>>(), [key]);
    bench.server.stop();
    let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
    let stateless = bench.post(&fields, &modern("tools/call", r#""name":"t","#));
    let opening = bench.post(&[], INITIALIZE);
    let listening = bench.get(&id, None);
    for refused in [stateless, opening, listening] {
        let response = bench.response(refused);
        assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
    }
    let (waiting, lane) = bench.call(&id);
    bench.reply(lane, RESULT);
    assert_eq!(bench.complete(waiting).0, 200);
    let resumed = bench.get(&id, Some("1-0"));
    assert_eq!(bench.response(resumed).status, 200, "what was missed can still be fetched");
}

/// If the only fault of a request without a handshake is that `_meta` has no version or no capabilities, the answer is 503: a session would
/// have to report the fault, and a server that stops opens none.
#[test]
fn a_server_that_stops_still_reports_the_faults_that_it_finds_without_a_session() {
    let mut bench = Bench::new();
    let (_, id) = bench.open("2025-11-25");
    bench.server.stop();
    let sound = modern("tools/call", r#""name":"t","#);
    let without_capabilities = sound.replace("clientCapabilities", "other");
    for (fields, body, expected) in [
        (&[("mcp-protocol-version", "-")][..], &*sound, (400, Some(-32020))),
        (&[("mcp-method", "-")], &sound, (400, Some(-32020))),
        (&[("mcp-name", "-")], &sound, (400, Some(-32020))),
        (&[("mcp-protocol-version", "-")], &without_capabilities, (400, Some(-32020))),
        (&[("mcp-protocol-version", "2025-11-25")], &sound, (400, Some(-32020))),
        (&[], &without_capabilities, (503, Some(-32603))),
        (&[], &sound, (503, Some(-32603))),
        // No version at all: a request with a handshake, which names no session.
        (&[("mcp-protocol-version", "-")], CALL, (400, Some(-32600))),
        (&[("mcp-method", "tools/call")], INITIALIZE, (400, Some(-32020))),
        (&[("mcp-method", "-"), ("mcp-name", "-")], INITIALIZE, (503, Some(-32603))),
    ] {
        assert_eq!(bench.ask_modern(fields, body), expected, "{fields:?} {body}");
    }
    for (version, status) in [("x", 400), ("-", 503)] {
        let got = bench.send(Method::Get, &[("mcp-session-id", &id), ("mcp-protocol-version", version)], "");
        assert_eq!(bench.complete(got).0, status);
    }
    let refused = bench.ask(&[MODERN, &[("mcp-method", "tools/call"), ("mcp-name", "t")]].concat(), &without_capabilities);
    assert!(refused.body.starts_with(r#"{"jsonrpc":"2.0","id":9,"error""#), "the request is named: {}", refused.body);
}

#[test]
fn a_session_ends_when_it_was_idle_but_not_while_a_stream_is_open_or_a_request_is_at_work() {
    let mut bench = Bench::new();
    let (key, _) = bench.open("2025-11-25");
    bench.advance(millis(59_999));
    assert_eq!(bench.events(), []);
    bench.advance(millis(1));
    assert_eq!(bench.events(), [HttpEvent::Close { session: key }], "it was never used");

    let mut bench = Bench::with(|config| config.timeouts.detached = Duration::from_secs(36_000));
    let (key, id_of_used) = bench.open("2025-11-25");
    let listening = bench.get(&id_of_used, None);
    let (lost, lane) = bench.call(&id_of_used);
    bench.server.handle_lost(lost, bench.now);
    let hour = Duration::from_secs(3600);
    bench.advance(hour);
    bench.stream(listening);
    bench.server.handle_lost(listening, bench.now);
    bench.advance(hour);
    assert_eq!(bench.events(), [], "a request is at work");
    bench.reply(lane, RESULT);
    let again = bench.get(&id_of_used, None);
    bench.advance(hour);
    assert_eq!(bench.events(), [], "a stream is open");
    bench.server.handle_lost(again, bench.now);
    bench.advance(Duration::from_secs(29 * 60));
    assert_eq!(bench.events(), [], "not idle for long enough yet");
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.events(), [HttpEvent::Close { session: key }]);
    let late = bench.post(&[("mcp-session-id", &id_of_used)], CALL);
    assert_eq!(bench.complete(late).0, 404);
}

#[test]
fn a_handshake_leaves_no_session_if_its_client_has_left_and_its_response_is_never_a_stream() {
    let mut bench = Bench::new();
    let id = bench.post(&[], INITIALIZE);
    let lane = bench.accept(1);
    bench.server.handle_lost(id, bench.now);
    assert_eq!(bench.events(), [HttpEvent::Close { session: lane.0 }]);
    bench.reply(lane, RESULT);
    assert_eq!((bench.server.sessions(), bench.response(id)), (0, Response::default()));
    let id = bench.post(&[], INITIALIZE);
    bench.advance(Duration::from_secs(100));
    assert_eq!(bench.response(id), Response::default(), "its response never becomes a stream: the id would be missing");
}

/// Regression: `handle_full` and `handle_received` had no effect on the stream of a lost exchange, so it counted as at work until
/// `HttpTimeouts::detached` was over, though its session would never reply.
#[test]
fn a_frame_that_the_session_refuses_after_its_client_has_left_is_not_at_work() {
    // The session has no room for the frame, or will not reply to it.
    let refusals: [fn(&mut HttpServer, HttpExchangeId); 2] =
        [|server, id| server.handle_full(id, Instant::ZERO), |server, id| server.handle_received(id, 0, Instant::ZERO)];
    for refuse in refusals {
        let mut bench = Bench::with(|config| config.timeouts.detached = Duration::from_secs(36_000));
        let (key, session) = bench.open("2025-11-25");
        let id = bench.post(&[("mcp-session-id", &session)], CALL);
        assert_eq!(bench.events().len(), 1, "a frame");
        bench.server.handle_lost(id, bench.now);
        assert_eq!(bench.server.lanes_at_work(key).count(), 1, "the session may still take the frame");
        refuse(&mut bench.server, id);
        assert_eq!((bench.server.lanes_at_work(key).count(), bench.response(id)), (0, Response::default()));
        refuse(&mut bench.server, id);
        assert!(bench.server.untaken.is_empty());
        bench.advance(bench.server.config.timeouts.session_idle);
        assert_eq!(bench.events(), [HttpEvent::Close { session: key }], "the session was idle from then on");

        // The same after the response has begun, also if the client has resumed its stream since then.
        let (key, session) = bench.open("2025-11-25");
        for resumes in [false, true] {
            let id = bench.post(&[("mcp-session-id", &session)], CALL);
            bench.advance(bench.server.config.timeouts.keep_alive);
            let begun = bench.response(id).body;
            let last = begun.strip_prefix("id: ").and_then(|begun| begun.lines().next()).expect("an id");
            let current = if resumes { bench.get(&session, Some(last)) } else { id };
            refuse(&mut bench.server, id);
            assert!(bench.response(current).has_ended, "there will be no reply");
            assert_eq!((bench.server.lanes_at_work(key).count(), bench.server.untaken.len()), (0, 0));
        }
    }
}

#[test]
fn a_frame_that_the_session_takes_after_its_client_has_left_is_at_work_until_its_last_reply() {
    let mut bench = Bench::new();
    let (key, session) = bench.open("2025-03-26");
    let batch = format!("[{CALL},{}]", CALL.replace(r#""id":1"#, r#""id":2"#));
    let id = bench.post(&[("mcp-session-id", &session)], &batch);
    bench.server.handle_lost(id, bench.now);
    // The session answers only one of the two requests.
    let lane = bench.accept(1);
    assert_eq!(bench.server.lanes_at_work(key).collect::<Vec<_>>(), [lane.1]);
    bench.reply(lane, RESULT);
    assert_eq!((bench.server.lanes_at_work(key).count(), bench.server.untaken.len()), (0, 0));
    // Nothing is stored for a frame that was taken before its exchange is lost, nor after the end of the session.
    let (taken, _) = bench.call(&session);
    bench.server.handle_lost(taken, bench.now);
    assert!(bench.server.untaken.is_empty());
    let untaken = bench.post(&[("mcp-session-id", &session)], CALL);
    bench.server.handle_lost(untaken, bench.now);
    assert_eq!(bench.server.untaken.len(), 1);
    bench.server.close_session(key, bench.now);
    assert!(bench.server.untaken.is_empty());
    bench.server.handle_received(untaken, 1, bench.now);
    assert_eq!((bench.server.sessions(), bench.server.exchanges(), bench.server.poll_timeout()), (0, 0, None));
}

// ---- The states of a stream, as in the table of `mod.rs` ----

/// Makes a call in a new session of a revision, and brings its stream into a state. Returns the exchange, the lane, and the id of the
/// session.
fn in_state(bench: &mut Bench, state: &str, revision: &str) -> (HttpExchangeId, (SessionKey, Lane), String) {
    let (_, session) = bench.open(revision);
    let (id, lane) = bench.call(&session);
    if state != "waiting" {
        bench.within(lane, "1");
        bench.stream(id);
    }
    if matches!(state, "detached" | "done") {
        bench.server.handle_lost(id, bench.now);
    }
    if state == "done" {
        bench.reply(lane, RESULT);
    }
    bench.events();
    (id, lane, session)
}

#[test]
fn a_reply_on_a_waiting_stream_is_sent_as_json() {
    for kind in [ReplyKind::Result, ReplyKind::Error, ReplyKind::Refused] {
        let mut bench = Bench::new();
        let (id, lane, session) = in_state(&mut bench, "waiting", "2025-11-25");
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#;
        bench.transmit(lane.0, lane.1, RouteKind::Reply(kind), error);
        assert_eq!(bench.complete(id), (200, error.to_string()), "with a handshake, every reply is 200");
        bench.within(lane, "late");
        let resumed = bench.get(&session, Some(&format!("{}-0", lane.1.number())));
        assert_eq!(bench.stream(resumed), (String::new(), true), "nothing of it is kept");
    }
}

#[test]
fn any_other_frame_or_silence_on_a_waiting_stream_begins_a_stream_of_events() {
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        // The empty event with which a stream begins from 2025-11-25 on.
        let primer =
            |lane: Lane| if revision == "2025-11-25" { format!("id: {}-0\ndata:\n\n", lane.number()) } else { String::new() };
        let mut bench = Bench::new();
        let (id, lane, _) = in_state(&mut bench, "waiting", revision);
        bench.within(lane, "1");
        let response = bench.response(id);
        assert_eq!((response.status, response.field("content-type")), (200, Some("text/event-stream")));
        assert_eq!(response.field("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(response.field("x-accel-buffering"), Some("no"));
        assert_eq!(response.body, format!("{}id: {}-1\ndata: 1\n\n", primer(lane.1), lane.1.number()));

        let (id, lane, _) = in_state(&mut bench, "waiting", revision);
        bench.advance(millis(14_999));
        assert_eq!(bench.response(id), Response::default());
        bench.advance(millis(1));
        let response = bench.response(id);
        let silence = if revision == "2025-11-25" { primer(lane.1) } else { ":\n\n".to_string() };
        assert_eq!((response.status, response.body), (200, silence), "{revision}");
    }
}

#[test]
fn the_loss_of_the_exchange_of_a_waiting_stream_does_not_cancel_its_request() {
    let mut bench = Bench::new();
    let (id, lane, session) = in_state(&mut bench, "waiting", "2025-11-25");
    bench.server.handle_lost(id, bench.now);
    assert_eq!(bench.events(), []);
    bench.reply(lane, RESULT);
    assert_eq!(bench.response(id), Response::default(), "no byte after the loss");
    let resumed = bench.get(&session, Some(&format!("{}-0", lane.1.number())));
    assert_eq!(bench.stream(resumed), (format!("id: {}-1\ndata: {RESULT}\n\n", lane.1.number()), true));
}

#[test]
fn on_a_live_stream_frames_are_written_silence_causes_a_comment_and_the_last_reply_is_the_end() {
    let mut bench = Bench::new();
    let (id, lane, _) = in_state(&mut bench, "live", "2025-06-18");
    bench.within(lane, "2");
    assert_eq!(bench.stream(id), (format!("id: {}-2\ndata: 2\n\n", lane.1.number()), false));
    bench.advance(millis(15_000));
    assert_eq!(bench.stream(id), (":\n\n".to_string(), false));
    bench.advance(millis(10_000));
    bench.within(lane, "3");
    bench.advance(millis(10_000));
    bench.advance(millis(100_000));
    assert_eq!(
        bench.stream(id),
        (format!("id: {}-3\ndata: 3\n\n", lane.1.number()), false),
        "output that is not read needs no comment"
    );
    bench.reply(lane, RESULT);
    bench.within(lane, "late");
    assert_eq!(bench.stream(id), (format!("id: {}-4\ndata: {RESULT}\n\n", lane.1.number()), true));
    bench.advance(millis(15_000));
    assert_eq!(bench.response(id), Response::default());
}

/// Clients that shut down their side of the connection after a request got no response to it.
#[test]
fn a_half_closed_client_gets_comments_after_times_that_double_and_its_reply() {
    for state in ["waiting", "live"] {
        let mut bench = Bench::new();
        let (id, lane, _) = in_state(&mut bench, state, "2025-06-18");
        bench.server.handle_half_close(id, bench.now);
        bench.server.handle_half_close(id, bench.now);
        assert_eq!(bench.stream(id), (":\n\n".to_string(), false), "{state}: at once, and once");
        for pause in [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000] {
            bench.advance(millis(pause - 1));
            assert_eq!(bench.stream(id), (String::new(), false), "{state}: {pause} ms");
            bench.advance(millis(1));
            assert_eq!(bench.stream(id), (":\n\n".to_string(), false), "{state}: {pause} ms");
        }
        bench.reply(lane, RESULT);
        let (text, has_ended) = bench.stream(id);
        assert!(text.contains(RESULT) && has_ended, "{state}: {text}");
        bench.server.handle_half_close(id, bench.now);
        assert_eq!(bench.stream(id), (String::new(), false), "it is over");
    }
    // The head of the response to `initialize` has the id of the session, so it cannot begin before the result.
    let mut bench = Bench::new();
    let id = bench.post(&[], INITIALIZE);
    let lane = bench.accept(1);
    bench.server.handle_half_close(id, bench.now);
    assert_eq!(bench.response(id), Response::default());
    bench.reply(lane, r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}"#);
    assert_eq!(bench.response(id).status, 200);
}

#[test]
fn suspend_ends_the_response_of_a_live_or_waiting_stream_and_a_get_resumes_the_stream() {
    let mut bench = Bench::new();
    let (id, lane, session) = in_state(&mut bench, "live", "2025-11-25");
    assert_eq!(bench.server.suspend(id, bench.now), Ok(()));
    assert_eq!(bench.stream(id), ("retry: 1000\n\n".to_string(), true));
    bench.within(lane, "2");
    let resumed = bench.get(&session, Some(&format!("{}-1", lane.1.number())));
    assert_eq!(bench.stream(resumed), (format!("id: {}-2\ndata: 2\n\n", lane.1.number()), false));
    assert_eq!(bench.server.suspend(id, bench.now), Err(NotResumable), "it is over");
    let (waiting, lane, _) = in_state(&mut bench, "waiting", "2025-11-25");
    assert_eq!(bench.server.suspend(waiting, bench.now), Ok(()));
    assert_eq!(bench.stream(waiting), (format!("id: {}-0\ndata:\n\nretry: 1000\n\n", lane.1.number()), true));
    let (old, ..) = in_state(&mut bench, "live", "2025-06-18");
    assert_eq!(bench.server.suspend(old, bench.now), Err(NotResumable), "its client would not resume it");
}

#[test]
fn frames_on_a_detached_stream_are_kept_and_a_get_with_an_id_of_the_stream_resumes_it() {
    let mut bench = Bench::new();
    let (_, lane, session) = in_state(&mut bench, "detached", "2025-11-25");
    let number = lane.1.number();
    for frame in ["2", "3"] {
        bench.within(lane, frame);
    }
    let first = bench.get(&session, Some(&format!("{number}-1")));
    assert_eq!(bench.stream(first), (format!("id: {number}-2\ndata: 2\n\nid: {number}-3\ndata: 3\n\n"), false));
    bench.within(lane, "4");
    assert_eq!(bench.stream(first), (format!("id: {number}-4\ndata: 4\n\n"), false));
    // The client resumes the stream before the loss of the first exchange was noticed.
    let second = bench.get(&session, Some(&format!("{number}-3")));
    assert_eq!(bench.stream(first), (String::new(), true));
    bench.server.handle_lost(first, bench.now);
    assert_eq!(bench.stream(second), (format!("id: {number}-4\ndata: 4\n\n"), false));
    bench.reply(lane, RESULT);
    assert_eq!(bench.stream(second), (format!("id: {number}-5\ndata: {RESULT}\n\n"), true));
}

#[test]
fn frames_on_a_detached_stream_are_dropped_without_replay_and_after_the_time_limit() {
    let mut bench = Bench::with(|config| config.resumable = false);
    let (_, lane, session) = in_state(&mut bench, "detached", "2025-11-25");
    bench.reply(lane, RESULT);
    let resumed = bench.get(&session, Some(&format!("{}-0", lane.1.number())));
    assert_eq!(bench.stream(resumed), (String::new(), true));

    let mut bench = Bench::new();
    let (_, lane, session) = in_state(&mut bench, "detached", "2025-11-25");
    bench.advance(Duration::from_secs(30 * 60) - millis(1));
    bench.within(lane, "2");
    bench.advance(millis(1));
    bench.within(lane, "3");
    let resumed = bench.get(&session, Some(&format!("{}-1", lane.1.number())));
    assert_eq!(bench.stream(resumed), (String::new(), true));
}

#[test]
fn the_rest_of_a_done_stream_is_replayed_until_its_time_limit() {
    let mut bench = Bench::new();
    let (_, lane, session) = in_state(&mut bench, "done", "2025-11-25");
    let number = lane.1.number();
    for _ in 0..2 {
        let resumed = bench.get(&session, Some(&format!("{number}-1")));
        assert_eq!(bench.stream(resumed), (format!("id: {number}-2\ndata: {RESULT}\n\n"), true));
    }
    let all_seen = bench.get(&session, Some(&format!("{number}-2")));
    assert_eq!(bench.stream(all_seen), (String::new(), true));
    bench.advance(Duration::from_secs(120));
    let late = bench.get(&session, Some(&format!("{number}-1")));
    assert_eq!(bench.stream(late), (String::new(), true));
}

// ---- Replay ----

#[test]
fn an_id_of_another_session_or_of_no_event_replays_nothing_and_affects_no_stream() {
    let mut bench = Bench::new();
    let (live, lane, _) = in_state(&mut bench, "live", "2025-11-25");
    let number = lane.1.number();
    let (_, other) = bench.open("2025-11-25");
    let (waiting, _) = bench.call(&other);
    let mut foreign = vec![format!("{number}-0"), format!("{number}-1")];
    foreign.extend(["", "x", "99-0", "1-99", "2-0", "18446744073709551616-0"].map(str::to_string));
    for id in foreign {
        let resumed = bench.get(&other, Some(&id));
        let response = bench.response(resumed);
        assert_eq!((response.status, &*response.body, response.has_ended), (200, "", true), "{id:?}");
    }
    bench.within(lane, "2");
    assert_eq!(bench.stream(live), (format!("id: {number}-2\ndata: 2\n\n"), false));
    assert_eq!(bench.response(waiting), Response::default());
}

#[test]
fn events_that_are_kept_are_bounded_and_a_gap_is_not_replayed() {
    let mut bench = Bench::with(|config| (config.limits.replay_events, config.limits.replay_bytes) = (3, 20));
    let (_, lane, session) = in_state(&mut bench, "detached", "2025-11-25");
    let number = lane.1.number();
    for frame in ["2", "3", "4"] {
        bench.within(lane, frame);
    }
    let gap = bench.get(&session, Some(&format!("{number}-0")));
    assert_eq!(bench.stream(gap), (String::new(), true), "the first event is gone");
    let resumed = bench.get(&session, Some(&format!("{number}-1")));
    assert!(bench.stream(resumed).0.starts_with(&format!("id: {number}-2\n")));
    bench.server.handle_lost(resumed, bench.now);
    // To make room, a stream that has ended is dropped before events of a stream that has not ended are.
    let (ended, done) = bench.call(&session);
    bench.within(done, "12345678");
    bench.reply(done, "12345678");
    assert!(bench.stream(ended).1);
    bench.within(lane, "12345");
    let late = bench.get(&session, Some(&format!("{}-0", done.1.number())));
    assert_eq!(bench.stream(late), (String::new(), true));
    let resumed = bench.get(&session, Some(&format!("{number}-2")));
    assert_eq!(bench.stream(resumed).0.matches("data:").count(), 3);
    bench.server.handle_lost(resumed, bench.now);
    bench.within(lane, &"x".repeat(21));
    let resumed = bench.get(&session, Some(&format!("{number}-5")));
    assert_eq!(bench.stream(resumed), (String::new(), true), "one that is too long for the buffer is not kept");
}

#[test]
fn streams_that_are_kept_for_replay_alone_are_bounded() {
    let mut bench = Bench::with(|config| config.limits.inactive_streams = 2);
    let (_, session) = bench.open("2025-11-25");
    let mut lanes = Vec::new();
    for _ in 0..3 {
        let (id, lane) = bench.call(&session);
        bench.within(lane, "1");
        bench.reply(lane, RESULT);
        assert!(bench.stream(id).1);
        lanes.push(lane.1.number());
    }
    let are_forgotten: Vec<_> = lanes
        .into_iter()
        .map(|lane| {
            let id = bench.get(&session, Some(&format!("{lane}-1")));
            bench.stream(id).0.is_empty()
        })
        .collect();
    assert_eq!(are_forgotten, [true, false, false]);
}

// ---- The channel ----

#[test]
fn frames_that_belong_to_no_request_wait_for_a_get_stream_and_are_sent_on_the_newest() {
    let mut bench = Bench::with(|config| config.limits.waiting_frames = 2);
    let (key, session) = bench.open("2025-11-25");
    let notification = |bench: &mut Bench, text: &str| bench.transmit(key, Lane::CHANNEL, RouteKind::Notification, text);
    notification(&mut bench, "1");
    assert_eq!(bench.events(), []);
    notification(&mut bench, "2");
    let writable = |is_writable| HttpEvent::Writable { session: key, lane: Lane::CHANNEL, is_writable };
    assert_eq!(bench.events(), [writable(false)]);
    let first = bench.get(&session, None);
    assert_eq!(bench.events(), [writable(true)]);
    let (text, _) = bench.stream(first);
    assert_eq!(text.matches("data:").count(), 3, "a primer and both: {text}");
    let second = bench.get(&session, None);
    bench.stream(second);
    notification(&mut bench, "3");
    assert_eq!((bench.stream(first).0, bench.stream(second).0.contains("data: 3")), (String::new(), true), "never on two streams");
    bench.server.handle_lost(second, bench.now);
    notification(&mut bench, "4");
    assert!(bench.stream(first).0.contains("data: 4"));
}

/// If the channel were resumed, a client that opens GET streams and leaves them could add a frame each time to the output of an older
/// stream that it never reads.
#[test]
fn the_channel_stays_stopped_if_the_get_stream_that_becomes_the_newest_again_is_full() {
    let mut bench = Bench::with(|config| config.limits.output_bytes = 100);
    let (key, session) = bench.open("2025-06-18");
    let first = bench.get(&session, None);
    bench.transmit(key, Lane::CHANNEL, RouteKind::Notification, &"1".repeat(200));
    let writable = |is_writable| HttpEvent::Writable { session: key, lane: Lane::CHANNEL, is_writable };
    assert_eq!(bench.events(), [writable(false)]);
    let second = bench.get(&session, None);
    assert_eq!(bench.events(), [writable(true)], "the newest has room");
    bench.server.handle_lost(second, bench.now);
    assert_eq!(bench.events(), [writable(false)], "the first has none");
    let third = bench.get(&session, None);
    bench.transmit(key, Lane::CHANNEL, RouteKind::Notification, &"2".repeat(200));
    assert_eq!(bench.events(), [writable(true), writable(false)]);
    bench.server.handle_lost(third, bench.now);
    assert_eq!(bench.events(), [], "one is as full as the other");
    bench.stream(first);
    assert_eq!(bench.events(), [writable(true)]);
}

#[test]
fn a_get_stream_is_resumed_by_an_id_of_its_own_and_a_new_get_stream_above_the_limit_ends_the_oldest() {
    let mut bench = Bench::with(|config| config.limits.get_streams = 2);
    let (key, session) = bench.open("2025-06-18");
    let first = bench.get(&session, None);
    bench.transmit(key, Lane::CHANNEL, RouteKind::Notification, "1");
    let (text, _) = bench.stream(first);
    // The id before that of the first event, so that both events are replayed.
    let id = text.strip_prefix("id: ").and_then(|rest| rest.split('\n').next()).unwrap().replace("-1", "-0");
    bench.server.handle_lost(first, bench.now);
    bench.transmit(key, Lane::CHANNEL, RouteKind::Notification, "2");
    let again = bench.get(&session, Some(&id));
    assert_eq!(
        bench.stream(again).0.replace(|digit: char| digit.is_ascii_digit() || digit == '-', "").matches("id: \ndata: \n\n").count(),
        2
    );
    let second = bench.get(&session, None);
    let third = bench.get(&session, None);
    assert!(bench.stream(again).1, "the oldest");
    assert!(!bench.stream(second).1 && !bench.stream(third).1);
    let not_accepted = bench.send(Method::Get, &[("accept", "application/json"), ("mcp-session-id", &session)], "");
    assert_eq!(bench.complete(not_accepted).0, 406);
}

/// If the GET stream ended, a client that resumes the stream of a call would have to open its GET stream again each time.
#[test]
fn the_get_stream_is_not_affected_when_the_stream_of_a_call_is_resumed() {
    let mut bench = Bench::new();
    let (key, session) = bench.open("2025-11-25");
    let get_stream = bench.get(&session, None);
    bench.stream(get_stream);
    let (call, lane) = bench.call(&session);
    bench.within(lane, "1");
    bench.stream(call);
    for _ in 0..5 {
        let resumed = bench.get(&session, Some(&format!("{}-1", lane.1.number())));
        assert_eq!(bench.stream(resumed), (String::new(), false), "there is no `retry`, and nothing is repeated");
        bench.server.handle_lost(resumed, bench.now);
    }
    assert_eq!(bench.stream(get_stream), (String::new(), false));
    bench.transmit(key, Lane::CHANNEL, RouteKind::Notification, "news");
    assert!(bench.stream(get_stream).0.contains("data: news"));
    bench.within(lane, "2");
    assert_eq!(bench.stream(get_stream), (String::new(), false), "what belongs to the call waits for its own stream");
}

#[test]
fn streams_that_their_clients_have_left_make_room_for_others() {
    let mut bench = Bench::with(|config| (config.limits.exchanges, config.limits.get_streams) = (3, 1));
    let (_, session) = bench.open("2025-11-25");
    let (call, lane) = bench.call(&session);
    bench.within(lane, "1");
    bench.stream(call);
    for _ in 0..20 {
        for stream in [bench.get(&session, None), bench.get(&session, Some(&format!("{}-1", lane.1.number())))] {
            assert_eq!(bench.response(stream).status, 200);
            bench.server.handle_lost(stream, bench.now);
        }
        assert!(bench.server.exchanges() <= 1, "{}", bench.server.exchanges());
    }
}

#[test]
fn a_reader_that_is_slow_stops_only_its_own_lane_until_its_stream_is_read_or_over() {
    let mut bench = Bench::with(|config| config.limits.output_bytes = 100);
    let (_, session) = bench.open("2025-06-18");
    let (slow, lane) = bench.call(&session);
    let (other, free) = bench.call(&session);
    bench.events();
    for _ in 0..10 {
        bench.within(lane, "12345678901234567890");
        bench.within(free, "1");
        bench.stream(other);
    }
    let writable = |is_writable| HttpEvent::Writable { session: lane.0, lane: lane.1, is_writable };
    assert_eq!(bench.events(), [writable(false)]);
    bench.stream(slow);
    assert_eq!(bench.events(), [writable(true)]);
    for _ in 0..10 {
        bench.within(lane, "12345678901234567890");
    }
    assert_eq!(bench.events(), [writable(false)]);
    bench.server.handle_lost(slow, bench.now);
    assert_eq!(bench.events(), [writable(true)], "a lost exchange stops no lane");
    let (ending, lane) = bench.call(&session);
    bench.events();
    for _ in 0..10 {
        bench.within(lane, "12345678901234567890");
    }
    bench.reply(lane, RESULT);
    let writable = |is_writable| HttpEvent::Writable { session: lane.0, lane: lane.1, is_writable };
    assert_eq!(bench.events(), [writable(false), writable(true)], "nor does a stream that is over");
    assert!(bench.stream(ending).1);
}

#[test]
fn a_stopped_lane_is_resumed_once_half_of_the_limit_was_read() {
    // Each long frame is a chunk of its own.
    let frame = "x".repeat(10_000);
    let (_, lane, _) = in_state(&mut Bench::new(), "waiting", "2025-06-18");
    let last = format!("\n\nid: {}-3\ndata: {frame}\n\n", lane.1.number()).len();
    // The last event is exactly half of the limit, or one byte more.
    for (half, is_half) in [(last, true), (last - 1, false)] {
        let mut bench = Bench::with(|config| config.limits.output_bytes = 2 * half);
        let (slow, lane, _) = in_state(&mut bench, "waiting", "2025-06-18");
        for _ in 0..3 {
            bench.within(lane, &frame);
        }
        let writable = |is_writable| HttpEvent::Writable { session: lane.0, lane: lane.1, is_writable };
        assert_eq!(bench.events(), [writable(false)]);
        // The head, the first event in two chunks, and the beginning of the second event.
        for _ in 0..4 {
            assert!(bench.server.poll_response(slow, bench.now).is_some());
            assert_eq!(bench.events(), []);
        }
        assert_eq!(bench.server.poll_response(slow, bench.now), Some(ResponsePart::Chunk(frame.clone().into())));
        let resumed = |is_due: bool| Vec::from_iter(is_due.then(|| writable(true)));
        assert_eq!(bench.events(), resumed(is_half));
        assert_eq!(bench.stream(slow).0.len(), last);
        assert_eq!(bench.events(), resumed(!is_half));
    }
}

/// `HttpLimits::output_bytes` is the number of bytes above which a lane is stopped, and not a bound on the bytes that wait.
#[test]
fn output_exceeds_its_limit_by_at_most_one_event_and_by_the_events_that_a_get_adds_at_once() {
    let frame = "x".repeat(70);
    let mut bench = Bench::with(|config| config.limits.output_bytes = 1000);
    let (slow, lane, session) = in_state(&mut bench, "live", "2025-06-18");
    let buffered = |bench: &Bench, id| bench.server.exchanges.get(&id).expect("it is open").buffered_bytes();
    bench.stream(slow);
    let mut longest = 0;
    while bench.events().is_empty() {
        let before = buffered(&bench, slow);
        bench.within(lane, &frame);
        longest = longest.max(buffered(&bench, slow) - before);
    }
    assert!((1001..=1000 + longest).contains(&buffered(&bench, slow)), "{}", buffered(&bench, slow));
    // The client leaves, and misses more than the limit. A GET adds everything at once, and the next frame stops the lane again.
    let first = bench.stream(slow).0;
    let last = first.strip_prefix("id: ").and_then(|first| first.lines().next()).expect("an id").to_string();
    bench.server.handle_lost(slow, bench.now);
    (0..30).for_each(|_| bench.within(lane, &frame));
    let resumed = bench.get(&session, Some(&last));
    let missed = buffered(&bench, resumed);
    assert!(missed > 2000, "{missed}");
    bench.events();
    bench.within(lane, &frame);
    let stopped = HttpEvent::Writable { session: lane.0, lane: lane.1, is_writable: false };
    assert_eq!((bench.events(), buffered(&bench, resumed) - missed), (vec![stopped], longest));
}

// ---- Posts without replies, and with several ----

#[test]
fn a_notification_that_its_session_has_not_taken_is_answered_when_the_session_ends() {
    let mut bench = Bench::new();
    for is_deleted in [true, false] {
        let (key, session) = bench.open("2025-11-25");
        let posts: Vec<_> = (0..3).map(|_| bench.post(&[("mcp-session-id", &session)], INITIALIZED)).collect();
        bench.server.handle_received(posts[0], 0, bench.now);
        bench.server.handle_lost(posts[1], bench.now);
        if is_deleted {
            let deleted = bench.send(Method::Delete, &[("mcp-session-id", &session)], "");
            assert_eq!(bench.complete(deleted).0, 204);
        } else {
            bench.server.handle_closed(key, bench.now);
        }
        assert_eq!(bench.complete(posts[0]), (202, String::new()));
        assert_eq!(bench.complete(posts[2]).0, 404);
        bench.events();
    }
    assert_eq!((bench.server.sessions(), bench.server.exchanges(), bench.server.poll_timeout()), (0, 0, None));
}

#[test]
fn a_notification_is_202_once_the_session_has_taken_it_and_503_if_it_does_not() {
    let mut bench = Bench::new();
    let (_, session) = bench.open("2025-11-25");
    for body in [INITIALIZED, r#"{"jsonrpc":"2.0","id":77,"result":{}}"#] {
        let id = bench.post(&[("mcp-session-id", &session)], body);
        assert_eq!(bench.response(id), Response::default());
        assert_eq!(bench.accept(0).1, Lane::CHANNEL);
        assert_eq!(bench.complete(id), (202, String::new()));
    }
    for body in [INITIALIZED, CALL] {
        let id = bench.post(&[("mcp-session-id", &session)], body);
        bench.server.handle_full(id, bench.now);
        assert_eq!(bench.complete(id).0, 503);
    }
    let id = bench.post(&[("mcp-session-id", &session)], CALL);
    bench.events();
    bench.server.handle_received(id, 0, bench.now);
    assert_eq!(bench.complete(id).0, 400, "a request that gets no reply does not hang");
}

#[test]
fn a_batch_is_taken_only_in_the_revision_that_has_it_and_answered_by_a_stream() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
    let mut bench = Bench::new();
    for revision in ["2025-06-18", "2025-11-25"] {
        let (_, session) = bench.open(revision);
        let id = bench.post(&[("mcp-session-id", &session)], batch);
        let (status, body) = bench.complete(id);
        assert!(status == 400 && body.contains("-32600"), "{revision}");
    }
    let (_, session) = bench.open("2025-03-26");
    let id = bench.post(&[("mcp-session-id", &session)], batch);
    let lane = bench.accept(2);
    bench.reply(lane, "1");
    assert!(!bench.stream(id).1);
    bench.reply(lane, "2");
    assert!(bench.stream(id).1);
    let none = bench.post(&[("mcp-session-id", &session)], &format!("[{INITIALIZED}]"));
    bench.accept(0);
    assert_eq!(bench.complete(none).0, 202);
    let malformed = bench.post(&[("mcp-session-id", &session)], "[7]");
    let lane = bench.accept(1);
    bench.reply(lane, "the error of an element without an id");
    assert!(bench.stream(malformed).1, "a malformed element is answered on the stream of its batch");
    let many = format!("[{}]", [INITIALIZED; 65].join(","));
    let id = bench.post(&[("mcp-session-id", &session)], &many);
    assert_eq!(bench.complete(id).0, 400);
}

#[test]
fn a_request_that_its_client_cancels_ends_without_a_reply() {
    let mut bench = Bench::new();
    let response = bench.ask(&[], INITIALIZE);
    let id = response.field("mcp-session-id").unwrap().to_string();
    let with = [("mcp-session-id", &*id)];
    bench.ask(&with, INITIALIZED);
    let call = bench.post(&with, CALL);
    bench.pump();
    assert_eq!(bench.response(call), Response::default());
    bench.ask(&with, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let key = bench.requests[0].0;
    bench.pump_session(key);
    let response = bench.response(call);
    assert_eq!((response.status, &*response.body, response.has_ended), (200, "", true));
}

// ---- Without a handshake ----

#[test]
fn headers_that_are_missing_or_contradict_the_body_are_refused_in_their_order() {
    let call = modern("tools/call", r#""name":"t","arguments":{},"#);
    let mut bench = Bench::new();
    let mismatch = Some(-32020);
    for (fields, body, expected) in [
        (&[("mcp-method", "-")][..], call.clone(), (400, mismatch)),
        (&[("mcp-method", "TOOLS/CALL")], call.clone(), (400, mismatch)),
        (&[("mcp-method", "tools/list")], call.clone(), (400, mismatch)),
        (&[("mcp-method", "tools/call"), ("Mcp-Method", "tools/call")], call.clone(), (400, mismatch)),
        (&[("mcp-name", "-")], call.clone(), (400, mismatch)),
        (&[("mcp-name", "T")], call.clone(), (400, mismatch)),
        (&[("mcp-name", "=?base64?*?=")], call.clone(), (400, mismatch)),
        (&[("mcp-protocol-version", "-")], call.clone(), (400, mismatch)),
        (&[("mcp-protocol-version", "2025-11-25")], call.clone(), (400, mismatch)),
        (&[("mcp-param-region", "x")], call.clone(), (400, mismatch)),
        (&[], modern("tools/call", r#""name":"t","arguments":{"region":"x"},"#), (400, mismatch)),
        // A mismatch is reported before a version that is not served, and a missing member of `_meta` before a mismatch.
        (&[], modern_of("v999.0.0", "tools/call", r#""name":"t","#), (400, mismatch)),
        (&[("mcp-protocol-version", "v999.0.0")], modern_of("v999.0.0", "tools/call", r#""name":"t","#), (400, Some(-32022))),
        (&[("mcp-method", "x")], call.replace("clientCapabilities", "other"), (400, Some(-32602))),
        (&[("mcp-method", "-")], call.replace("clientCapabilities", "other"), (400, mismatch)),
        (&[], CALL.replace("\"x\"", "\"t\""), (400, Some(-32602))),
        (&[("mcp-protocol-version", "2099-01-01")], CALL.replace("\"x\"", "\"t\""), (400, Some(-32602))),
        (&[("mcp-method", "no/such")], modern("no/such", ""), (404, Some(-32601))),
        (&[("mcp-method", "initialize")], modern("initialize", ""), (404, Some(-32601))),
        (&[], modern("tools/call", ""), (400, Some(-32602))),
    ] {
        assert_eq!(bench.ask_modern(fields, &body), expected, "{fields:?} {body}");
        assert_eq!((bench.server.sessions(), bench.real.len()), (0, 0), "nothing is left of it");
    }
    for fields in
        [&[("mcp-name", " \tt ")][..], &[("mcp-name", "=?base64?dA==?=")], &[("mcp-session-id", "x"), ("last-event-id", "1-1")]]
    {
        assert_eq!(bench.ask_modern(fields, &call), (0, None), "{fields:?} is served");
    }
}

#[test]
fn a_body_without_a_handshake_is_one_request_and_a_notification_is_dropped() {
    let mut bench = Bench::with(|config| config.era = mcp::Era::Modern);
    for body in [r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "[]", &format!("[{CALL}]")] {
        assert_eq!(bench.ask_modern(&[], body), (400, Some(-32600)), "{body}");
    }
    let dropped = bench.ask(MODERN, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#);
    assert_eq!(dropped, Response { status: 202, has_ended: true, ..Response::default() });
    assert_eq!(bench.server.sessions(), 0);
    let (status, code) = bench.ask_modern(&[("mcp-method", "initialize")], INITIALIZE);
    assert_eq!((status, code), (400, Some(-32022)), "an error that names the versions that are served");
}

#[test]
fn an_error_of_a_handler_is_200_and_its_session_is_gone_with_the_response() {
    let mut bench = Bench::new();
    let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
    let id = bench.post(&fields, &modern("tools/call", r#""name":"t","#));
    bench.pump();
    let [(key, inbound)] = bench.requests[..] else { panic!("one request") };
    let now = bench.now;
    bench.real.get_mut(&key).unwrap().respond(inbound, Reply::Error(RpcError::invalid_params("unknown tool")), now).unwrap();
    bench.pump_session(key);
    bench.pump();
    assert_eq!(bench.complete(id).0, 200);
    assert_eq!((bench.server.sessions(), bench.real.len(), bench.server.poll_timeout()), (0, 0, None));
}

#[test]
fn a_stream_without_a_handshake_has_no_ids_and_its_loss_cancels_before_the_head_and_after() {
    let mut bench = Bench::new();
    let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
    for has_begun in [false, true] {
        let id = bench.post(&fields, &modern("tools/call", r#""name":"t","_meta2":0,"#));
        let lane = bench.accept(1);
        if has_begun {
            bench.within(lane, PROGRESS);
            let response = bench.response(id);
            assert_eq!((response.status, &*response.body), (200, &*format!("data: {PROGRESS}\n\n")));
            bench.transmit(lane.0, Lane::CHANNEL, RouteKind::Notification, "of no request");
            assert_eq!(bench.stream(id), (String::new(), false));
            assert_eq!(bench.server.suspend(id, bench.now), Err(NotResumable));
        }
        bench.server.handle_lost(id, bench.now);
        assert_eq!(bench.events(), [HttpEvent::Close { session: lane.0 }]);
        bench.reply(lane, RESULT);
        assert_eq!((bench.response(id), bench.server.exchanges()), (Response::default(), 0));
    }
    let id = bench.post(&fields, &modern("tools/call", r#""name":"t","#));
    let lane = bench.accept(1);
    bench.within(lane, PROGRESS);
    bench.transmit(lane.0, lane.1, RouteKind::Reply(ReplyKind::Refused), r#"{"error":{"code":-32602}}"#);
    let response = bench.response(id);
    assert_eq!((response.status, response.has_ended), (200, true), "a status that was sent is final");
}

#[test]
fn a_session_that_closes_or_is_closed_ends_its_exchanges() {
    let mut bench = Bench::new();
    let (key, session) = bench.open("2025-11-25");
    let (id, _) = bench.call(&session);
    bench.server.handle_closed(key, bench.now);
    assert_eq!((bench.complete(id).0, bench.events()), (404, vec![]));
    let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
    let id = bench.post(&fields, &modern("tools/call", r#""name":"t","#));
    let (key, _) = bench.accept(1);
    bench.server.close_session(key, bench.now);
    assert_eq!((bench.complete(id).0, bench.events()), (503, vec![HttpEvent::Close { session: key }]));
}

#[test]
fn both_eras_are_served_side_by_side() {
    let mut bench = Bench::new();
    let response = bench.ask(&[], INITIALIZE);
    let id = response.field("mcp-session-id").unwrap().to_string();
    let discover = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "server/discover")];
    assert_eq!(bench.ask(&discover, &modern("server/discover", "")).status, 200);
    let with = [("mcp-session-id", &*id), ("mcp-protocol-version", "2025-11-25")];
    assert_eq!(bench.ask(&with, INITIALIZED).status, 202);
    let ping = bench.ask(&with, r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#);
    assert_eq!((ping.status, &*ping.body), (200, r#"{"jsonrpc":"2.0","id":5,"result":{}}"#));
    let probe = bench.ask(&[("mcp-method", "server/discover")], r#"{"jsonrpc":"2.0","id":5,"method":"server/discover"}"#);
    assert_eq!(probe.status, 400);
}

/// The era of a request does not determine the era of the next one, even of the same client.
#[test]
fn a_client_that_was_served_without_a_handshake_may_open_a_session_and_go_back() {
    let mut bench = Bench::new();
    let discover = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "server/discover")];
    for _ in 0..2 {
        assert_eq!(bench.ask(&discover, &modern("server/discover", "")).status, 200);
        let id = bench.ask(&[], INITIALIZE).field("mcp-session-id").expect("a session").to_string();
        // A request without a handshake ignores the header that names a session.
        let both = [&discover[..], &[("mcp-session-id", &id)]].concat();
        let discovered = bench.ask(&both, &modern("server/discover", ""));
        assert_eq!((discovered.status, discovered.field("mcp-session-id")), (200, None));
        assert_eq!(bench.ask(&[("mcp-session-id", &id)], INITIALIZED).status, 202);
        let ping = bench.ask(&[("mcp-session-id", &id)], r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#);
        assert_eq!((ping.status, &*ping.body), (200, r#"{"jsonrpc":"2.0","id":5,"result":{}}"#));
    }
    assert_eq!(bench.server.sessions(), 2);
}

#[test]
fn an_input_request_that_the_server_withdraws_is_cancelled_on_the_stream_of_its_call() {
    let mut bench = Bench::new();
    let id = bench.ask(&[], &INITIALIZE.replace(r#""capabilities":{}"#, r#""capabilities":{"sampling":{}}"#));
    let id = id.field("mcp-session-id").expect("an id").to_string();
    let with = [("mcp-session-id", &*id)];
    bench.ask(&with, INITIALIZED);
    let get_stream = bench.get(&id, None);
    bench.stream(get_stream);
    let call = bench.post(&with, CALL);
    bench.pump();
    let [(key, inbound)] = bench.requests[..] else { panic!("one request") };
    let now = bench.now;
    let real = bench.real.get_mut(&key).unwrap();
    let question = real.request_input(inbound, InputRequest::from(Sample::new("?")), now).unwrap();
    bench.pump_session(key);
    let (asked, _) = bench.stream(call);
    let number = asked.split(r#""id":"#).nth(1).and_then(|rest| rest.split([',', '}']).next()).expect("an id").to_string();
    bench.real.get_mut(&key).unwrap().abandon_input(question, now).unwrap();
    bench.pump_session(key);
    let (withdrawn, has_ended) = bench.stream(call);
    let cancel = format!(r#""method":"notifications/cancelled","params":{{"requestId":{number}"#);
    assert!(withdrawn.contains(&cancel) && !has_ended, "{asked}{withdrawn}");
    assert_eq!(bench.stream(get_stream), (String::new(), false));
    let late = bench.ask(&with, &format!(r#"{{"jsonrpc":"2.0","id":{number},"error":{{"code":1,"message":"late"}}}}"#));
    assert_eq!(late.status, 202);
    bench.real.get_mut(&key).unwrap().respond(inbound, Reply::Tool(ToolOutput::text("done")), now).unwrap();
    bench.pump_session(key);
    assert!(bench.stream(call).0.contains("done"), "the call goes on");
}

#[test]
fn a_slow_call_with_progress_goes_over_real_sessions_and_is_resumed() {
    let mut bench = Bench::new();
    let id = bench.ask(&[], INITIALIZE).field("mcp-session-id").unwrap().to_string();
    let with = [("mcp-session-id", &*id)];
    bench.ask(&with, INITIALIZED);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7}}}"#;
    let call = bench.post(&with, body);
    bench.pump();
    let [(key, inbound)] = bench.requests[..] else { panic!("one request") };
    let now = bench.now;
    bench.real.get_mut(&key).unwrap().progress(inbound, Progress::step(1, 2), now).unwrap();
    bench.pump_session(key);
    let (text, _) = bench.stream(call);
    let last = text.rsplit("id: ").next().unwrap().split('\n').next().unwrap().to_string();
    bench.server.handle_lost(call, now);
    let real = bench.real.get_mut(&key).unwrap();
    assert!(real.handle_gone(Gone::Lane(Lane::new(99)), now).is_err());
    real.respond(inbound, Reply::Tool(ToolOutput::text("done")), now).unwrap();
    bench.pump_session(key);
    let resumed = bench.get(&id, Some(&last));
    let (text, has_ended) = bench.stream(resumed);
    assert!(has_ended && text.contains(r#""text":"done""#) && text.matches("data:").count() == 1, "{text}");
}
