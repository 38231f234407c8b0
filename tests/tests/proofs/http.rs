//! G17 and G18: every HTTP exchange gets one head and one end, and nothing after the end. For each resumption of a stream an event is
//! replayed at most once, in order, and only on the stream and in the session that it belongs to.
//!
//! A server with real sessions gets random requests of three clients in virtual time: calls in both eras, streams that are lost, stalled,
//! suspended and resumed from any event, invalid requests, sessions that end. Each frame contains a mark that names its call, so that a
//! frame on the wrong stream is found.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol_core::http::sse::{Decoder, DecoderLimits, EventId, Item};
use protocol_core::http::{
    Headers, HttpContext, HttpEvent, HttpExchangeId, HttpRequest, HttpServer, HttpServerConfig, Method, RequestHead, ResponsePart,
    SessionKey,
};
use protocol_core::{Event, InboundId, Instant, Lane, Progress, Reply, Session, ToolOutput};
use testkit::Rng;
use testkit::config::{server_config, with};

/// An `HttpContext` with random bytes from a seed.
struct Context<'a>(&'a mut Rng);

impl HttpContext for Context<'_> {
    fn random(&mut self) -> [u8; 16] {
        let (high, low) = (self.0.number(), self.0.number());
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

/// The client's end of a session.
#[derive(Default)]
struct Client {
    id: String,
    /// The mark of the call to which each stream belongs, by the lane of the stream. Known once a frame of the call was seen on it.
    marks: BTreeMap<Lane, String>,
    /// All events that were seen.
    seen: BTreeMap<EventId, Bytes>,
}

/// The client's end of an HTTP exchange.
#[derive(Default)]
struct Exchange {
    /// The client in whose session the exchange is. `None` without a handshake, and for a request that gets no stream.
    client: Option<usize>,
    /// The mark of the call that the request has made.
    mark: Option<String>,
    /// The event after which the exchange resumes a stream.
    after: Option<EventId>,
    status: Option<u16>,
    decoder: Option<Decoder>,
    /// The last event.
    last: Option<EventId>,
    body: Vec<u8>,
    has_ended: bool,
    is_lost: bool,
    /// `true` if the session was replaced, so that the events are no longer checked.
    is_stale: bool,
}

/// The number of times that each kind of response or event occurred in the campaign.
#[derive(Debug, Default)]
struct Coverage {
    json: usize,
    streams: usize,
    lost: usize,
    replayed: usize,
    refused: usize,
    suspended: usize,
    stopped: usize,
}

/// A running handler of a request.
struct Handler {
    session: SessionKey,
    id: InboundId,
    mark: String,
    /// The number of updates that the handler has reported.
    updates: u64,
}

struct World {
    rng: Rng,
    now: Instant,
    server: HttpServer,
    sessions: BTreeMap<SessionKey, Session>,
    handlers: Vec<Handler>,
    clients: Vec<Client>,
    exchanges: BTreeMap<HttpExchangeId, Exchange>,
    marks: usize,
    coverage: Coverage,
}

const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

impl World {
    fn new(seed: u64) -> Self {
        let mut config = HttpServerConfig::default();
        config.limits.replay_events = 6;
        config.limits.replay_bytes = 3000;
        config.limits.inactive_streams = 4;
        config.limits.output_bytes = 400;
        config.limits.get_streams = 2;
        config.limits.waiting_frames = 2;
        let mut world = Self {
            rng: Rng::new(seed),
            now: Instant::ZERO,
            server: HttpServer::new(config, Instant::ZERO),
            sessions: BTreeMap::new(),
            handlers: Vec::new(),
            clients: Vec::new(),
            exchanges: BTreeMap::new(),
            marks: 0,
            coverage: Coverage::default(),
        };
        for _ in 0..3 {
            world.open();
        }
        world
    }

    fn send(&mut self, method: Method, fields: &[(&str, &str)], body: &str, exchange: Exchange) -> HttpExchangeId {
        let usual =
            [("host", "localhost"), ("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let headers: Headers<'_> = usual.iter().chain(fields).copied().collect();
        let request = HttpRequest::new(RequestHead::new(method, headers), Bytes::copy_from_slice(body.as_bytes()));
        let id = self.server.handle_request(&request, &mut Context(&mut self.rng), self.now);
        assert!(self.exchanges.insert(id, exchange).is_none(), "a number that is used twice");
        self.pump();
        id
    }

    /// Opens a session for a new client.
    fn open(&mut self) {
        let revision = self.rng.pick(&REVISIONS).expect("a revision");
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        let exchange = self.send(Method::Post, &[], &body, Exchange::default());
        let Some(ResponsePart::Head { head, .. }) = self.server.poll_response(exchange, self.now) else { panic!("a head") };
        let id = head.headers.only("mcp-session-id").expect("one").expect("an id").to_owned();
        self.exchanges.get_mut(&exchange).expect("it is there").status = Some(head.status);
        self.clients.push(Client { id: id.clone(), ..Client::default() });
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.send(Method::Post, &[("mcp-session-id", &id)], initialized, Exchange::default());
    }

    fn mark(&mut self) -> String {
        self.marks += 1;
        format!("[m{}]", self.marks)
    }

    /// Passes frames and events between the server and its sessions, until there are no more.
    fn pump(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                HttpEvent::Open { session, era } => {
                    let config = with(server_config(), |config| config.era = era.config());
                    assert!(self.sessions.insert(session, Session::new(config, self.now)).is_none());
                }
                HttpEvent::Frame { session, exchange, lane, frame } => {
                    let Some(real) = self.sessions.get_mut(&session) else { continue };
                    match real.handle_frame(frame, lane, self.now) {
                        Ok(received) => self.server.handle_received(exchange, received.replies, self.now),
                        Err(_) => self.server.handle_full(exchange, self.now),
                    }
                    self.pump_session(session);
                }
                HttpEvent::Writable { session, lane, is_writable } => {
                    self.coverage.stopped += usize::from(!is_writable);
                    if let Some(real) = self.sessions.get_mut(&session) {
                        // Fails if the session has already closed the lane, since no frame of it was left.
                        let _ = real.set_writable(lane, is_writable, self.now);
                    }
                    self.pump_session(session);
                }
                HttpEvent::Close { session } => {
                    assert!(self.sessions.remove(&session).is_some(), "a session is closed once");
                    self.handlers.retain(|handler| handler.session != session);
                }
                _ => {}
            }
        }
    }

    fn pump_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let mut has_cancelled = false;
        while let Some(event) = session.poll_event() {
            match event {
                Event::Request { id, request, .. } => {
                    let mark = request.params().member("name").and_then(|name| name.as_text()).expect("a name").to_string();
                    self.handlers.push(Handler { session: key, id, mark, updates: 0 });
                }
                Event::Cancelled { id, .. } => {
                    has_cancelled = true;
                    let _ = session.respond(id, Reply::Tool(ToolOutput::text("")), self.now);
                    self.handlers.retain(|handler| (handler.session, handler.id) != (key, id));
                }
                _ => {}
            }
        }
        while let Some(transmit) = session.poll_transmit() {
            self.server.handle_transmit(key, transmit, self.now);
        }
        if has_cancelled {
            // A cancelled request gets no reply, so its lane may no longer expect one.
            for lane in self.server.lanes_at_work(key).collect::<Vec<_>>() {
                if session.replies_owed(lane) == 0 {
                    self.server.handle_settled(key, lane, self.now);
                }
            }
        }
    }

    fn call(&mut self, client: usize) {
        let mark = self.mark();
        let number = self.marks;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{mark}","_meta":{{"progressToken":"{mark}"}}}}}}"#
        );
        let session = self.clients[client].id.clone();
        let exchange = Exchange { client: Some(client), mark: Some(mark), ..Exchange::default() };
        self.send(Method::Post, &[("mcp-session-id", &session)], &body, exchange);
    }

    fn call_modern(&mut self) {
        let mark = self.mark();
        let (number, prefix) = (self.marks, "io.modelcontextprotocol");
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{mark}","_meta":{{"progressToken":"{mark}","{prefix}/protocolVersion":"2026-07-28","{prefix}/clientCapabilities":{{}}}}}}}}"#
        );
        // A header with another name than that in the body is refused.
        let name = if self.rng.chance(20) { "another".to_owned() } else { mark.clone() };
        let fields = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", &*name)];
        self.send(Method::Post, &fields, &body, Exchange { mark: Some(mark), ..Exchange::default() });
    }

    /// Polls at most `most` parts of a response, and checks them.
    fn poll(&mut self, id: HttpExchangeId, most: usize) {
        for _ in 0..most {
            let part = self.server.poll_response(id, self.now);
            let exchange = self.exchanges.get_mut(&id).expect("it is known");
            let Some(part) = part else { break };
            assert!(!exchange.has_ended && !exchange.is_lost, "G17: {part:?} after the end or the loss");
            match part {
                ResponsePart::Head { head, .. } => {
                    assert_eq!(exchange.status.replace(head.status), None, "G17: one head");
                    let is_stream = head.headers.only("content-type") == Ok(Some("text/event-stream"));
                    exchange.decoder = is_stream.then(|| Decoder::new(DecoderLimits::default()));
                    self.coverage.streams += usize::from(is_stream);
                    self.coverage.json += usize::from(!is_stream && head.status == 200);
                    self.coverage.refused += usize::from(head.status >= 400);
                }
                ResponsePart::Chunk(chunk) => {
                    assert!(exchange.status.is_some(), "G17: the head comes first");
                    exchange.body.extend_from_slice(&chunk);
                    self.check_events(id, chunk);
                }
                ResponsePart::End => {
                    assert!(exchange.status.is_some(), "G17: the head comes first");
                    exchange.has_ended = true;
                    let body = String::from_utf8_lossy(&exchange.body);
                    if let (Some(200), None, Some(mark)) = (exchange.status, &exchange.decoder, &exchange.mark) {
                        assert!(body.contains(mark.as_str()), "the reply to {mark} is {body}");
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        self.pump();
    }

    /// Checks the events in a piece of a stream.
    fn check_events(&mut self, id: HttpExchangeId, chunk: Bytes) {
        let exchange = self.exchanges.get_mut(&id).expect("it is known");
        let Some(decoder) = exchange.decoder.as_mut().filter(|_| !exchange.is_stale) else { return };
        decoder.feed(chunk);
        while let Some(item) = decoder.next_item().expect("a proper stream") {
            let Item::Event(event) = item else { continue };
            let Some(client) = exchange.client else {
                assert_eq!(decoder.last_event_id(), None, "a stream without a handshake has no ids");
                let (mark, data) = (exchange.mark.as_deref().expect("a call"), String::from_utf8_lossy(&event.data));
                assert!(data.contains(mark), "G16: {data} on the stream of {mark}");
                continue;
            };
            let client = &mut self.clients[client];
            let event_id = decoder.last_event_id().and_then(EventId::parse).expect("an id");
            if let Some(before) = exchange.last.or(exchange.after) {
                assert_eq!(event_id, EventId::new(before.stream, before.number + 1), "G18: the next event of the stream");
            } else {
                // A stream that primes its client begins with event 0, which has no data.
                assert!(event_id.number <= 1, "G18: a stream begins with its first event");
            }
            self.coverage.replayed += usize::from(exchange.after.is_some() && exchange.last.is_none());
            exchange.last = Some(event_id);
            if event.data.is_empty() {
                continue;
            }
            let first = client.seen.entry(event_id).or_insert_with(|| event.data.clone());
            assert_eq!(*first, event.data, "G18: an event is replayed as it was");
            if let Some(mark) = &exchange.mark {
                client.marks.insert(event_id.stream, mark.clone());
            }
            if let Some(mark) = client.marks.get(&event_id.stream) {
                let data = String::from_utf8_lossy(&event.data);
                assert!(data.contains(mark.as_str()), "G18: {data} on the stream of {mark}");
            }
        }
    }

    fn lose(&mut self, id: HttpExchangeId) {
        let exchange = self.exchanges.get_mut(&id).expect("it is known");
        self.coverage.lost += usize::from(!exchange.has_ended);
        exchange.is_lost = true;
        self.server.handle_lost(id, self.now);
        self.pump();
    }

    /// Resumes a stream after one of the last events that an exchange has seen, sometimes in the session of another client.
    fn resume(&mut self, id: HttpExchangeId) {
        let exchange = &self.exchanges[&id];
        let (Some(mut client), Some(mut last)) = (exchange.client, exchange.last) else { return };
        last.number -= self.rng.below(3).min(usize::try_from(last.number).unwrap_or_default()) as u64;
        if self.rng.chance(30) {
            client = self.rng.below(self.clients.len());
        }
        let session = self.clients[client].id.clone();
        let fields = [("mcp-session-id", &*session), ("last-event-id", &last.to_string())];
        self.send(Method::Get, &fields, "", Exchange { client: Some(client), after: Some(last), ..Exchange::default() });
    }

    fn advance(&mut self) {
        let millis = 1 << self.rng.below(17);
        self.wait(Duration::from_millis(millis));
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        self.server.handle_timeout(self.now);
        assert!(self.server.poll_timeout().is_none_or(|at| at > self.now), "no deadline is left in the past");
        self.pump();
        for key in self.sessions.keys().copied().collect::<Vec<_>>() {
            if let Some(session) = self.sessions.get_mut(&key) {
                session.handle_timeout(self.now);
            }
            self.pump_session(key);
        }
        self.pump();
    }

    /// The index of one of the newest handlers.
    fn pick_handler(&mut self) -> Option<usize> {
        let count = self.handlers.len();
        (count > 0).then(|| count - 1 - self.rng.below(count.min(4)))
    }

    /// Reports an update of a handler.
    fn report(&mut self) {
        let Some(at) = self.pick_handler() else { return };
        let handler = &mut self.handlers[at];
        handler.updates += 1;
        let key = handler.session;
        let session = self.sessions.get_mut(&key).expect("its session lives");
        session.progress(handler.id, Progress::step(handler.updates, 1000), self.now).expect("it is live");
        self.pump_session(key);
        self.pump();
    }

    /// Ends a handler.
    fn respond(&mut self) {
        let Some(at) = self.pick_handler() else { return };
        let handler = self.handlers.remove(at);
        let session = self.sessions.get_mut(&handler.session).expect("its session lives");
        session.respond(handler.id, Reply::Tool(ToolOutput::text(&*handler.mark)), self.now).expect("it is live");
        self.pump_session(handler.session);
        self.pump();
    }

    fn step(&mut self) {
        let client = self.rng.below(self.clients.len());
        let session = self.clients[client].id.clone();
        let fields = [("mcp-session-id", &*session)];
        let mut all: Vec<_> = self.exchanges.keys().copied().collect();
        if !self.rng.chance(60) {
            // About three steps of four choose only from the exchanges that may still get a head or events.
            all.retain(|id| self.exchanges[id].decoder.is_some() || self.exchanges[id].status.is_none());
        }
        let Some(recent) = all.len().checked_sub(1 + self.rng.below(all.len().min(12))).map(|at| all[at]) else { return };
        match self.rng.below(40) {
            0..=2 => self.call(client),
            3 => self.call_modern(),
            4..=15 => (0..=self.rng.below(4)).for_each(|_| {
                self.report();
                self.wait(Duration::from_millis(120));
            }),
            16..=18 => self.respond(),
            19..=26 => {
                let most = 1 + self.rng.below(4);
                self.poll(recent, most);
            }
            27..=28 => self.lose(recent),
            29..=32 => self.resume(recent),
            33 => self.coverage.suspended += usize::from(self.server.suspend(recent, self.now).is_ok()),
            34 => {
                self.send(Method::Get, &fields, "", Exchange { client: Some(client), ..Exchange::default() });
            }
            35 => {
                let body = self.rng.pick(&["", "{", "[]", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]).expect("a body");
                self.send(Method::Post, &fields, body, Exchange { client: Some(client), ..Exchange::default() });
            }
            36 => {
                let number = 1 + self.rng.below(self.marks + 1);
                let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number}}}}}"#);
                self.send(Method::Post, &fields, &body, Exchange::default());
            }
            37 if self.rng.chance(60) => {
                self.send(Method::Delete, &fields, "", Exchange::default());
                self.open();
                let opened = self.clients.pop().expect("it was opened");
                self.clients[client] = opened;
                for exchange in self.exchanges.values_mut().filter(|exchange| exchange.client == Some(client)) {
                    (exchange.is_stale, exchange.last) = (true, None);
                }
            }
            _ => self.advance(),
        }
        self.pump();
    }

    /// Ends all sessions, and checks that every exchange has ended.
    fn finish(mut self) -> Coverage {
        for key in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.server.close_session(key, self.now);
        }
        self.pump();
        for id in self.exchanges.keys().copied().collect::<Vec<_>>() {
            self.poll(id, usize::MAX);
            let exchange = &self.exchanges[&id];
            assert!(exchange.is_lost || (exchange.status.is_some() && exchange.has_ended), "G17: {id} has one head and one end");
        }
        assert_eq!((self.server.sessions(), self.server.exchanges(), self.server.poll_timeout()), (0, 0, None));
        assert!(self.sessions.is_empty());
        self.coverage
    }
}

#[test]
fn every_exchange_has_one_head_and_one_end_and_replays_its_own_events_once_and_in_order() {
    let mut total = Coverage::default();
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        let Coverage { json, streams, lost, replayed, refused, suspended, stopped } = world.finish();
        total.json += json;
        total.streams += streams;
        total.lost += lost;
        total.replayed += replayed;
        total.refused += refused;
        total.suspended += suspended;
        total.stopped += stopped;
    }
    let Coverage { json, streams, lost, replayed, refused, suspended, stopped } = total;
    let rarest = [json, streams, lost, replayed, refused, suspended, stopped].into_iter().min();
    assert!(rarest > Some(100), "the campaign met everything that it is about: {total:?}");
}
