//! A server of Streamable HTTP that gets requests of any bytes. Its sessions are real, or are scripted and send any frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::http::header::ParamHeaders;
use protocol_core::http::sse::{Decoder, DecoderLimits, EventId, Item};
use protocol_core::http::{
    HttpContext, HttpEvent, HttpExchangeId, HttpRequest, HttpServer, HttpServerConfig, Method, RequestHead, ResponsePart,
    SessionKey,
};
use protocol_core::mcp::Era;
use protocol_core::{
    Event, ExchangeId, InboundId, InputRequest, Instant, Json, Lane, Notification, Progress, Reply, ReplyKind, RouteKind, RpcError,
    Sample, Session, SubscriptionFilter, ToolOutput, Transmit,
};
use testkit::config::{server_config, with};

/// The fields that a step `a` can set, or `A` add. The last one stands for the authenticated caller.
const FIELDS: [&str; 12] = [
    "host",
    "origin",
    "accept",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
    "mcp-param-region",
    "Mcp-Session-Id",
    "principal",
];

/// The context of the server: random bytes that are different each time, and one tool with an argument that a header repeats.
struct Context<'a>(&'a mut u64);

impl HttpContext for Context<'_> {
    fn random(&mut self) -> [u8; 16] {
        *self.0 += 1;
        u128::from(*self.0).to_be_bytes()
    }

    fn param_headers(&mut self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let schema = Json::parse(r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#).expect("JSON");
        (tool == "t").then(|| Arc::new(ParamHeaders::of_schema(&schema).expect("a schema")))
    }
}

/// An HTTP exchange as its client sees it.
#[derive(Default)]
struct Exchange {
    /// The session id in the request.
    session: Option<String>,
    /// The event after which the exchange resumes a stream.
    after: Option<EventId>,
    /// `true` if the request must be refused because of its head.
    is_refused: bool,
    status: Option<u16>,
    /// The length of the body according to the head.
    length: Option<usize>,
    body: Vec<u8>,
    decoder: Option<Decoder>,
    /// The id of the last event.
    last: Option<EventId>,
    has_ended: bool,
    is_lost: bool,
}

/// A server with its sessions, and the exchanges as their clients see them.
struct Bench {
    server: HttpServer,
    config: Arc<HttpServerConfig>,
    now: Instant,
    /// `true` if requests are admitted before the server gets them.
    reads_first: bool,
    is_scripted: bool,
    /// The open sessions; `None` for a scripted session, whose frames the steps choose.
    sessions: BTreeMap<SessionKey, Option<Session>>,
    /// The lanes that are not writable.
    stopped: BTreeSet<(SessionKey, Lane)>,
    /// The lanes of the frames that scripted sessions have received.
    given: Vec<(SessionKey, Lane)>,
    /// The exchanges of the frames that scripted sessions have received and not yet taken or refused.
    untaken: Vec<(SessionKey, HttpExchangeId)>,
    /// The requests that real sessions serve, each with the value of its last progress.
    work: Vec<(SessionKey, InboundId, f64)>,
    /// The session ids in the responses so far.
    ids: Vec<String>,
    exchanges: BTreeMap<HttpExchangeId, Exchange>,
    /// The exchanges that an event has announced as readable.
    readable: BTreeSet<HttpExchangeId>,
    /// Fields for the next request: the index of the name in [`FIELDS`], the value, and `true` if the field is added to the usual ones,
    /// `false` if it replaces one of them.
    fields: Vec<(usize, Vec<u8>, bool)>,
    /// Every event of every session so far.
    seen: BTreeMap<(String, EventId), Bytes>,
    random: u64,
    /// The number of messages sent so far, which is the id of the last one.
    number: u64,
    /// The greatest length in bytes of an event so far.
    longest: usize,
    /// The greatest number of bytes of events that a session has passed on at once, before it could be stopped.
    burst: usize,
}

/// Byte 0: the era (bits 0 and 1), small limits (bit 2), no resuming (bit 3), scripted sessions (bit 4), the way in which the run ends
/// (bits 5 and 6), and requests that are admitted first (bit 7). The rest: lines. Each is a step, whose first byte is its kind; `|` in a body or
/// a frame stands for a line feed.
///
/// A client sets or adds a field of its next request (`a`, `A`), or sends a POST with any body (`p`) or with a message (`m`), a GET (`g`),
/// a DELETE (`d`) or a request of another method (`o`). A session sends a frame or acts (`s`). A scripted session also takes or refuses a
/// frame (`v`), and reports that a lane owes no more replies (`k`). The owner closes a session, or reports that it is closed (`c`), stops
/// the server (`z`), polls a response (`y`), suspends it (`w`), or reports its loss (`l`). Time passes (`t`).
pub fn http_server(data: &[u8]) {
    let ([kind], rest) = super::head(data);
    let mut config = HttpServerConfig::default();
    config.era = [Era::Auto, Era::Legacy, Era::Modern, Era::Auto][usize::from(kind & 3)];
    config.resumable = kind & 8 == 0;
    if kind & 4 != 0 {
        (config.limits.body_bytes, config.limits.batch, config.limits.exchanges, config.limits.sessions) = (600, 2, 12, 2);
        (config.limits.subscriptions, config.limits.get_streams, config.limits.waiting_frames) = (1, 2, 2);
        (config.limits.output_bytes, config.limits.replay_events) = (400, 6);
        (config.limits.inactive_streams, config.limits.replay_bytes) = (4, 3000);
    }
    let config = Arc::new(config);
    let mut bench = Bench {
        server: HttpServer::new(Arc::clone(&config), Instant::ZERO),
        config,
        now: Instant::ZERO,
        reads_first: kind & 128 != 0,
        is_scripted: kind & 16 != 0,
        sessions: BTreeMap::new(),
        stopped: BTreeSet::new(),
        given: Vec::new(),
        untaken: Vec::new(),
        work: Vec::new(),
        ids: Vec::new(),
        exchanges: BTreeMap::new(),
        readable: BTreeSet::new(),
        fields: Vec::new(),
        seen: BTreeMap::new(),
        random: 0,
        number: 0,
        longest: 0,
        burst: 0,
    };
    for line in rest.split(|byte| *byte == b'\n') {
        bench.step(line);
        bench.pump();
        bench.check();
    }
    bench.finish(kind & 32 != 0, kind & 64 != 0);
}

/// The element among the newest eight that a byte selects.
fn recent<T: Copy>(all: impl DoubleEndedIterator<Item = T>, which: u8) -> Option<T> {
    all.rev().nth(usize::from(which % 8))
}

fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| if *byte == b'|' { b'\n' } else { *byte }).collect()
}

impl Bench {
    fn step(&mut self, line: &[u8]) {
        let ([step, which, form, more], _) = super::head::<4>(line);
        let exchange = recent(self.exchanges.keys().copied(), which);
        let body = |skipped: usize| text(line.get(skipped..).unwrap_or_default());
        match (step, exchange) {
            (b'a' | b'A', _) => {
                self.fields.push((usize::from(which) % FIELDS.len(), line.get(2..).unwrap_or_default().to_vec(), step == b'A'));
            }
            (b'p', _) => self.send(Method::Post, which, &[], body(2)),
            (b'm', _) => self.send_message(which, form % 16),
            (b'g', _) => {
                let last = recent(self.exchanges.keys(), more).and_then(|id| self.exchanges[id].last);
                let after = match (form % 4, last) {
                    (0, _) | (_, None) => None,
                    (back, Some(last)) => {
                        Some(EventId::new(last.stream, last.number.saturating_sub(u64::from(back - 1))).to_string())
                    }
                };
                let fields: Vec<_> = after.iter().map(|after| ("last-event-id", &**after)).collect();
                self.send(Method::Get, which, &fields, Vec::new());
            }
            (b'd', _) => self.send(Method::Delete, which, &[], Vec::new()),
            (b'o', _) => self.send(Method::Other, which, &[], body(2)),
            (b'v', _) => {
                if let Some(at) = self.untaken.len().checked_sub(1 + usize::from(which % 8)) {
                    let (_, exchange) = self.untaken.remove(at);
                    match form % 8 {
                        7 => self.server.handle_full(exchange, self.now),
                        replies => self.server.handle_received(exchange, usize::from(replies), self.now),
                    }
                }
            }
            (b's', _) if self.is_scripted => self.transmit(which, form % 8, body(3)),
            (b's', _) => self.act(which, form % 8, body(3)),
            (b'k', _) => {
                if let Some((session, lane)) = recent(self.given.iter().copied(), which) {
                    self.server.handle_settled(session, lane, self.now);
                }
            }
            (b'c', _) => {
                let Some(session) = recent(self.sessions.keys().copied(), which) else { return };
                if form % 2 == 0 {
                    self.server.close_session(session, self.now);
                } else {
                    self.server.handle_closed(session, self.now);
                    self.forget(session);
                }
            }
            (b't', _) => self.wait(Duration::from_millis(1 << (which % 22))),
            (b'z', _) => self.server.stop(),
            (b'y', Some(exchange)) => {
                let most = if form % 8 == 7 { usize::MAX } else { 1 + usize::from(form % 8) };
                self.poll(exchange, most);
            }
            (b'l', Some(exchange)) => self.lose(exchange),
            (b'w', Some(exchange)) => {
                let _ = self.server.suspend(exchange, self.now);
            }
            _ => {}
        }
    }

    /// Sends a request with the usual fields, some of which earlier steps have replaced or repeated.
    fn send(&mut self, method: Method, which: u8, fields: &[(&str, &str)], body: Vec<u8>) {
        let session = match which % 8 {
            0 => None,
            7 => Some("nobody".to_owned()),
            back => recent(self.ids.iter(), back - 1).cloned(),
        };
        let mut all: Vec<(&str, &[u8])> = Vec::from([
            ("host", b"localhost" as &[u8]),
            ("content-type", b"application/json"),
            ("accept", b"application/json, text/event-stream"),
        ]);
        all.extend(session.as_deref().map(|id| ("mcp-session-id", id.as_bytes())));
        all.extend(fields.iter().map(|(name, value)| (*name, value.as_bytes())));
        let chosen = std::mem::take(&mut self.fields);
        let mut principal = None;
        for (name, value, is_added) in &chosen {
            let name = FIELDS[*name];
            if name == "principal" {
                principal = core::str::from_utf8(value).ok();
                continue;
            }
            if !is_added {
                all.retain(|(field, _)| *field != name);
            }
            all.push((name, value));
        }
        let head = RequestHead::new(method, all.into_iter().collect());
        let only = |name| head.headers.only(name).ok().flatten();
        let exchange = Exchange {
            session: only("mcp-session-id").map(str::to_owned),
            after: only("last-event-id").and_then(EventId::parse),
            is_refused: method == Method::Other || (method == Method::Post && self.config.check(&head).is_err()),
            ..Exchange::default()
        };
        let mut request = HttpRequest::new(head, body.into());
        request.principal = principal;
        let admitted = (self.reads_first && self.config.check(&request.head).is_ok())
            .then(|| self.config.admit(&request, &mut Context(&mut self.random)));
        let id = match admitted {
            Some(Ok(admitted)) => self.server.handle_admitted(&admitted, &mut Context(&mut self.random), self.now),
            _ => self.server.handle_request(&request, &mut Context(&mut self.random), self.now),
        };
        assert!(self.exchanges.insert(id, exchange).is_none(), "a number is used once");
    }

    fn send_message(&mut self, which: u8, shape: u8) {
        self.number += 1;
        let number = self.number;
        let request =
            |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{{{params}}}}}"#);
        let notification = |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#);
        let initialize = |revision: &str| {
            let client = r#""capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}"#;
            request("initialize", &format!(r#""protocolVersion":"{revision}",{client}"#))
        };
        let call = |name: &str| request("tools/call", &format!(r#""name":"{name}","_meta":{{"progressToken":{number}}}"#));
        let modern = |method: &str, params: &str| {
            let prefix = "io.modelcontextprotocol";
            let meta = format!(
                r#""_meta":{{"progressToken":{number},"{prefix}/protocolVersion":"2026-07-28","{prefix}/clientCapabilities":{{}}}}"#
            );
            request(method, &format!("{params}{meta}"))
        };
        let mut fields = Vec::new();
        let body = match shape {
            0 => initialize("2025-11-25"),
            1 => initialize("2025-06-18"),
            2 => initialize("2025-03-26"),
            3 => notification("notifications/initialized", ""),
            4 => call("x"),
            5 => request("ping", ""),
            6 => notification("notifications/cancelled", &format!(r#""requestId":{}"#, number - 1)),
            7 => format!("[{},{}]", call("x"), request("ping", "").replacen(&number.to_string(), r#""b""#, 1)),
            8 | 15 => {
                fields.extend([("mcp-method", "tools/call"), ("mcp-name", if shape == 8 { "x" } else { "t" })]);
                if shape == 15 {
                    fields.push(("mcp-param-region", "here"));
                    modern("tools/call", r#""name":"t","arguments":{"region":"here"},"#)
                } else {
                    modern("tools/call", r#""name":"x","#)
                }
            }
            9 => {
                fields.push(("mcp-method", "subscriptions/listen"));
                modern("subscriptions/listen", r#""notifications":{"toolsListChanged":true},"#)
            }
            10 => {
                fields.push(("mcp-method", "server/discover"));
                modern("server/discover", "")
            }
            11 => {
                fields.push(("mcp-method", "tools/list"));
                modern("tools/list", "")
            }
            12 => r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
            13 => request("logging/setLevel", r#""level":"debug""#),
            14 => request("tools/list", ""),
            _ => String::new(),
        };
        if !fields.is_empty() {
            fields.push(("mcp-protocol-version", "2026-07-28"));
        }
        self.send(Method::Post, which, &fields, body.into_bytes());
    }

    /// Sends a frame of a scripted session, unless its lane is stopped.
    fn transmit(&mut self, which: u8, form: u8, frame: Vec<u8>) {
        let (session, lane, kind) = match form {
            4..=6 => {
                let Some(session) = recent(self.sessions.keys().copied(), which) else { return };
                let kind = if form == 6 { RouteKind::Request(ExchangeId::from_number(1)) } else { RouteKind::Notification };
                (session, Lane::CHANNEL, kind)
            }
            _ => {
                let Some((session, lane)) = recent(self.given.iter().copied().filter(|(_, lane)| *lane != Lane::CHANNEL), which)
                else {
                    return;
                };
                let kinds = [ReplyKind::Result, ReplyKind::Error, ReplyKind::Refused].map(RouteKind::Reply);
                (session, lane, kinds.get(usize::from(form)).copied().unwrap_or(RouteKind::Within))
            }
        };
        if self.stopped.contains(&(session, lane)) {
            return;
        }
        // A session sends only valid text.
        let mut transmit = Transmit::new(String::from_utf8_lossy(&frame).into_owned().into());
        (transmit.route.lane, transmit.route.kind) = (lane, kind);
        let _ = self.pass_on(session, transmit);
    }

    /// Passes a frame on, and returns the number of bytes that it can have as an event: with the fields of the event, and `data: ` before
    /// each line.
    fn pass_on(&mut self, session: SessionKey, transmit: Transmit) -> usize {
        let lines = transmit.frame.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
        let bytes = transmit.frame.len() + 8 * lines + 100;
        self.longest = self.longest.max(bytes);
        self.server.handle_transmit(session, transmit, self.now);
        bytes
    }

    /// Lets a real session act, most often for a request that is being served.
    fn act(&mut self, which: u8, form: u8, text: Vec<u8>) {
        let now = self.now;
        let message = String::from_utf8_lossy(&text).into_owned();
        if form == 4 {
            let Some(key) = recent(self.sessions.keys().copied(), which) else { return };
            let Some(Some(session)) = self.sessions.get_mut(&key) else { return };
            session.publish(&Notification::ToolsChanged, now);
            let notification = Notification::Custom { method: "notifications/x".into(), params: Some(Json::empty_object()) };
            let _ = session.notify(notification, now);
            return self.pump_session(key);
        }
        let Some(at) = self.work.len().checked_sub(1 + usize::from(which % 8)) else { return };
        let (key, id, value) = self.work[at];
        let Some(Some(session)) = self.sessions.get_mut(&key) else { return };
        let reply = match form {
            0 => Some(Reply::Tool(ToolOutput::text(message))),
            1 => Some(Reply::Error(RpcError::fixed(-1, "no"))),
            2 => Json::parse(text).ok().map(Reply::Raw),
            3 => {
                self.work[at].2 += 1.0;
                let _ = session.progress(id, Progress::step(value as u64 + 1, 1_000_000), now);
                None
            }
            5 => {
                let _ = session.request_input(id, InputRequest::from(Sample::new(message)), now);
                None
            }
            _ => {
                let mut filter = SubscriptionFilter::default();
                filter.tools = true;
                let _ = session.accept_subscription(id, &filter, now);
                None
            }
        };
        if let Some(reply) = reply {
            let _ = session.respond(id, reply, now);
            self.work.remove(at);
        }
        self.pump_session(key);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        self.server.handle_timeout(self.now);
        assert!(self.server.poll_timeout().is_none_or(|at| at > self.now), "no deadline is left in the past");
        self.pump();
        for key in self.sessions.keys().copied().collect::<Vec<_>>() {
            if let Some(Some(session)) = self.sessions.get_mut(&key) {
                session.handle_timeout(self.now);
            }
            self.pump_session(key);
        }
    }

    /// Passes frames and events on between the server and its sessions, until there are none.
    fn pump(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                HttpEvent::Open { session, era } => {
                    let config = with(server_config(), |config| config.era = era.config());
                    let real = (!self.is_scripted).then(|| Session::new(config, self.now));
                    assert!(self.sessions.insert(session, real).is_none(), "a session is opened once");
                }
                HttpEvent::Frame { session, exchange, lane, frame } => match self.sessions.get_mut(&session) {
                    Some(None) => {
                        self.given.push((session, lane));
                        self.untaken.push((session, exchange));
                    }
                    Some(Some(real)) => {
                        match real.handle_frame(frame, lane, self.now) {
                            Ok(received) => self.server.handle_received(exchange, received.replies, self.now),
                            Err(_) => self.server.handle_full(exchange, self.now),
                        }
                        self.pump_session(session);
                    }
                    None => {}
                },
                HttpEvent::Writable { session, lane, is_writable } => {
                    let is_changed = match is_writable {
                        true => self.stopped.remove(&(session, lane)),
                        false => self.stopped.insert((session, lane)),
                    };
                    assert!(is_changed, "{lane} of {session} is writable or not: {is_writable} already");
                    if let Some(Some(real)) = self.sessions.get_mut(&session) {
                        // Fails if the lane is closed.
                        let _ = real.set_writable(lane, is_writable, self.now);
                    }
                    self.pump_session(session);
                }
                HttpEvent::Close { session } => {
                    assert!(self.sessions.contains_key(&session), "a session is closed once");
                    self.forget(session);
                }
                HttpEvent::Readable { exchange } => {
                    let is_lost = self.exchanges.get(&exchange).is_some_and(|found| found.is_lost);
                    assert!(is_lost || self.readable.insert(exchange), "{exchange} is readable, twice");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn pump_session(&mut self, key: SessionKey) {
        let Some(Some(session)) = self.sessions.get_mut(&key) else { return };
        let (mut has_cancelled, mut has_closed, mut transmits) = (false, false, Vec::new());
        while let Some(event) = session.poll_event() {
            match event {
                Event::Request { id, .. } => self.work.push((key, id, 0.0)),
                Event::Cancelled { id, .. } => {
                    has_cancelled = true;
                    let _ = session.respond(id, Reply::Tool(ToolOutput::text("")), self.now);
                    self.work.retain(|(session, work, _)| (*session, *work) != (key, id));
                }
                Event::Closed(_) => has_closed = true,
                _ => {}
            }
        }
        while let Some(transmit) = session.poll_transmit() {
            transmits.push(transmit);
        }
        // The lanes on which the session owes no reply any more, since requests were cancelled.
        let lanes: Vec<_> =
            self.server.lanes_at_work(key).filter(|lane| has_cancelled && session.replies_owed(*lane) == 0).collect();
        let bytes = transmits.into_iter().map(|transmit| self.pass_on(key, transmit)).sum();
        self.burst = self.burst.max(bytes);
        for lane in lanes {
            self.server.handle_settled(key, lane, self.now);
        }
        if has_closed {
            self.server.handle_closed(key, self.now);
            self.forget(key);
        }
    }

    fn forget(&mut self, session: SessionKey) {
        self.sessions.remove(&session);
        self.stopped.retain(|(stopped, _)| *stopped != session);
        self.work.retain(|(work, _, _)| *work != session);
        // The frames for the session are dropped with it.
        self.untaken.retain(|(untaken, _)| *untaken != session);
    }

    /// Polls at most `most` parts of a response, and checks them.
    fn poll(&mut self, id: HttpExchangeId, most: usize) {
        let mut polled = 0;
        for _ in 0..most {
            let part = self.server.poll_response(id, self.now);
            let exchange = self.exchanges.get_mut(&id).expect("it is known");
            let Some(part) = part else {
                assert!(polled <= self.max_queued(id), "{polled} bytes waited on {id}");
                self.readable.remove(&id);
                break;
            };
            assert!(self.readable.contains(&id), "an event has announced {part:?}");
            assert!(!exchange.has_ended && !exchange.is_lost, "G17: {part:?} after the end or the loss");
            match part {
                ResponsePart::Head { head, length } => {
                    assert_eq!(exchange.status.replace(head.status), None, "G17: one head");
                    exchange.length = length;
                    let is_stream = head.headers.only("content-type") == Ok(Some("text/event-stream"));
                    assert_eq!(is_stream, length.is_none(), "a stream has no length");
                    assert!(!exchange.is_refused || head.status >= 400, "the head is refused, but {head:?}");
                    exchange.decoder = is_stream.then(|| Decoder::new(DecoderLimits::default()));
                    for (name, value) in head.headers.iter() {
                        assert!(value.iter().all(|byte| matches!(byte, b' '..=b'~')), "{name} of {head:?}");
                    }
                    self.ids.extend(head.headers.only("mcp-session-id").expect("one").map(str::to_owned));
                }
                ResponsePart::Chunk(chunk) => {
                    assert!(exchange.status.is_some() && !chunk.is_empty(), "G17: the head comes first");
                    polled += chunk.len();
                    exchange.body.extend_from_slice(&chunk);
                    self.check_events(id, chunk);
                }
                ResponsePart::End => {
                    assert!(exchange.status.is_some(), "G17: the head comes first");
                    assert!(exchange.length.is_none_or(|length| length == exchange.body.len()), "the body is as long as was said");
                    exchange.has_ended = true;
                }
                other => panic!("{other:?}"),
            }
        }
        self.pump();
    }

    /// The maximum number of bytes that may be queued for an exchange: the limit, and the frames that a session passes on before it is
    /// stopped; the events that a stream has missed; the frames that have waited for a GET.
    fn max_queued(&self, id: HttpExchangeId) -> usize {
        let (exchange, limits) = (&self.exchanges[&id], &self.config.limits);
        if let Some(length) = exchange.length {
            return length;
        }
        let replayed = if exchange.after.is_some() { limits.replay_events } else { 0 };
        limits.output_bytes + self.burst + self.longest * (2 + replayed + 2 * limits.waiting_frames) + 200
    }

    /// Checks the events in a piece of a stream.
    fn check_events(&mut self, id: HttpExchangeId, chunk: Bytes) {
        let exchange = self.exchanges.get_mut(&id).expect("it is known");
        let Some(decoder) = exchange.decoder.as_mut() else { return };
        decoder.feed(chunk);
        while let Some(item) = decoder.next_item().expect("a proper stream") {
            let Item::Event(event) = item else { continue };
            let Some(event_id) = decoder.last_event_id().map(|id| EventId::parse(id).expect("an id of ours")) else { continue };
            if let Some(before) = exchange.last.or(exchange.after) {
                assert_eq!(event_id, EventId::new(before.stream, before.number + 1), "G18: the next event of the stream");
            } else {
                assert!(event_id.number <= 1, "G18: a stream begins with its first event");
            }
            exchange.last = Some(event_id);
            let session = exchange.session.clone().expect("only streams of a session have ids");
            let first = self.seen.entry((session, event_id)).or_insert_with(|| event.data.clone());
            assert_eq!(*first, event.data, "G18: an event is replayed as it was");
        }
    }

    fn lose(&mut self, id: HttpExchangeId) {
        self.exchanges.get_mut(&id).expect("it is known").is_lost = true;
        self.readable.remove(&id);
        self.server.handle_lost(id, self.now);
    }

    fn check(&mut self) {
        let open = self.exchanges.values().filter(|exchange| !exchange.has_ended && !exchange.is_lost).count();
        assert_eq!(self.server.exchanges(), open, "exactly the exchanges are there that are not over");
        assert!(self.server.session_keys().eq(self.sessions.keys().copied()), "exactly the sessions are there that are not closed");
        assert!(self.ids.len() <= self.exchanges.len());
    }

    /// Ends everything. If `are_lost`, all exchanges are lost first. The sessions end by their timeouts if `are_lost` and `by_time`;
    /// otherwise the owner closes them.
    fn finish(mut self, are_lost: bool, by_time: bool) {
        let all: Vec<_> = self.exchanges.keys().copied().collect();
        for id in &all {
            self.poll(*id, usize::MAX);
        }
        if are_lost {
            for id in &all {
                self.lose(*id);
            }
            self.pump();
            self.check();
        }
        if are_lost && by_time {
            while let Some(at) = self.server.poll_timeout() {
                self.wait(at.saturating_duration_since(self.now));
                self.check();
            }
        } else {
            for key in self.sessions.keys().copied().collect::<Vec<_>>() {
                self.server.close_session(key, self.now);
            }
        }
        self.pump();
        for id in all {
            self.poll(id, usize::MAX);
            let exchange = &self.exchanges[&id];
            assert!(exchange.is_lost || exchange.has_ended, "G17: {id} has one head and one end");
        }
        self.check();
        assert_eq!((self.server.sessions(), self.server.exchanges(), self.server.poll_timeout()), (0, 0, None));
    }
}
