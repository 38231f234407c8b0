//! A client and a server of Streamable HTTP with their sessions, in virtual time, over a network that drops, splits, stalls and reorders
//! responses.
//!
//! However the network behaves, every call ends exactly once, its progress only rises, and no update comes twice. A cancel reaches the
//! handler in either era. The client repeats a request only after the server has forgotten its HTTP session, in another session. At the
//! end no exchange, request or session is open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol_core::http::{
    HttpClient, HttpClientConfig, HttpClientEvent, HttpClientRequest, HttpContext, HttpEvent, HttpExchangeId, HttpRequest,
    HttpRequestId, HttpServer, HttpServerConfig, Method, RequestHead, ResponseHead, ResponsePart, SessionKey,
};
use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Event, Gone, InboundId, InputKey, InputRequest, InputResponse, Instant, Invoke, Json, Lane, Notification,
    OutboundId, Outcome, Progress, Reply, Sample, SampleResult, Session, SubscriptionFilter, ToolOutput, TransportEnd,
};
use testkit::Rng;
use testkit::config::{client_config, server_config, with};

/// An `HttpContext` with random bytes from a seed.
struct Context<'a>(&'a mut Rng);

impl HttpContext for Context<'_> {
    fn random(&mut self) -> [u8; 16] {
        let (high, low) = (self.0.number(), self.0.number());
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

/// A part of a response on its way to the client.
enum Piece {
    Head(ResponseHead<'static>),
    Chunk(Bytes),
    End,
}

/// An HTTP request and its response on the network.
struct Connection {
    request: HttpClientRequest,
    /// The exchange at the server, once the request has arrived.
    exchange: Option<HttpExchangeId>,
    /// `true` once the connection is lost for the client. The server notifications this later.
    is_cut: bool,
    pieces: VecDeque<Piece>,
}

/// A request whose handler is running.
struct Work {
    session: SessionKey,
    id: InboundId,
    /// The mark of the call, which is the name of its tool.
    mark: String,
    /// The number of updates that the handler has sent.
    updates: u64,
}

/// A call of the client.
#[derive(Default)]
struct Call {
    /// A text that no other call has. It is the name of the tool, the message of each update, and the text of the result.
    mark: String,
    last_update: Option<f64>,
    outcome: Option<Outcome>,
}

/// The number of times that each kind of event occurred.
#[derive(Debug, Default)]
struct Coverage {
    results: usize,
    lost: usize,
    /// Cancels that have reached a running handler.
    cancels_seen: usize,
    /// Connections that were broken.
    cuts: usize,
    /// Requests with `Last-Event-ID`.
    resumed: usize,
    /// Streams that the server has suspended.
    suspended: usize,
    /// HTTP sessions that the client has opened anew.
    reopened: usize,
    /// Answers to input requests that have reached the server.
    answers: usize,
    notifications: usize,
    /// Clients whose connection to the server has failed.
    failed: usize,
}

impl Coverage {
    fn add(&mut self, other: &Self) {
        self.results += other.results;
        self.lost += other.lost;
        self.cancels_seen += other.cancels_seen;
        self.cuts += other.cuts;
        self.resumed += other.resumed;
        self.suspended += other.suspended;
        self.reopened += other.reopened;
        self.answers += other.answers;
        self.notifications += other.notifications;
        self.failed += other.failed;
    }
}

/// The client, the server and the network between them, with the calls as the test has observed them.
struct World {
    rng: Rng,
    now: Instant,
    era: Era,
    client: HttpClient,
    session: Session,
    server: HttpServer,
    sessions: BTreeMap<SessionKey, Session>,
    network: BTreeMap<HttpRequestId, Connection>,
    work: Vec<Work>,
    calls: BTreeMap<OutboundId, Call>,
    /// The marks of calls whose cancel has to reach the handler.
    cancelled: BTreeSet<String>,
    /// The HTTP sessions in which each call was sent, by the body of its request.
    sent: BTreeMap<Bytes, Vec<Option<String>>>,
    /// The input requests that are open at the client.
    input_requests: Vec<InputKey>,
    /// `true` once the client has reported that its connection to the server has failed.
    has_failed: bool,
    coverage: Coverage,
}

impl World {
    fn new(seed: u64, era: Era) -> Self {
        let mut server = HttpServerConfig::default();
        server.limits.replay_events = 12;
        server.limits.output_bytes = 2000;
        server.timeouts.resume_delay = Duration::from_millis(300);
        let client = with(client_config(), |config| {
            config.era = era;
            config.timeouts.call = CallTimeouts::NONE;
        });
        let mut http = HttpClientConfig::new("http://localhost/mcp");
        http.seed = seed;
        http.limits.messages = 2;
        http.limits.waiting_frames = 4;
        let mut world = Self {
            rng: Rng::new(seed),
            now: Instant::ZERO,
            era,
            client: HttpClient::new(http, Instant::ZERO).expect("an address"),
            session: Session::new(client, Instant::ZERO),
            server: HttpServer::new(server, Instant::ZERO),
            sessions: BTreeMap::new(),
            network: BTreeMap::new(),
            work: Vec::new(),
            calls: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            sent: BTreeMap::new(),
            input_requests: Vec::new(),
            has_failed: false,
            coverage: Coverage::default(),
        };
        world.pump_client();
        // In most cases the network first delivers everything until the client is ready, since few operations are possible before.
        if !world.rng.chance(20) {
            for _ in 0..8 {
                world.carry_all();
            }
            assert!(world.session.is_ready() && !world.has_failed);
        }
        world
    }

    // ---- The client ----

    /// Moves frames and events between the session of the client and its `HttpClient` until there are no more.
    fn pump_client(&mut self) {
        loop {
            while let Some(event) = self.session.poll_event() {
                self.take_event(event);
            }
            if let Some(transmit) = self.session.poll_transmit() {
                self.client.handle_transmit(transmit, self.now);
                continue;
            }
            let Some(event) = self.client.poll_event() else { break };
            match event {
                HttpClientEvent::Send(request) => self.send(request),
                HttpClientEvent::Abort(request) => {
                    let connection = self.network.get_mut(&request).expect("an open request is given up");
                    assert!(!std::mem::replace(&mut connection.is_cut, true), "it is given up once");
                    if connection.exchange.is_none() {
                        self.forget(request);
                    }
                }
                HttpClientEvent::Frame { frame, lane, exchange } => {
                    self.session.handle_frame_within(frame, lane, exchange, self.now).expect("its events were polled");
                }
                HttpClientEvent::Lost { exchange, .. } => {
                    let _ = self.session.handle_gone(Gone::Response(exchange), self.now);
                }
                HttpClientEvent::Writable(is_writable) => {
                    let _ = self.session.set_writable(Lane::CHANNEL, is_writable, self.now);
                }
                HttpClientEvent::Reopened => self.coverage.reopened += 1,
                HttpClientEvent::Failed(_) => {
                    assert!(!std::mem::replace(&mut self.has_failed, true), "it fails once");
                    self.coverage.failed += 1;
                    assert_eq!((self.client.requests(), self.client.calls()), (0, 0), "it gives everything up");
                    self.session.handle_end(TransportEnd::Failed, self.now);
                }
                HttpClientEvent::Closed => assert!(self.client.is_closed()),
                _ => {}
            }
        }
        assert!(self.client.poll_timeout().is_none_or(|at| at > self.now), "no deadline is left in the past");
    }

    fn send(&mut self, request: HttpClientRequest) {
        if self.is_call(&request) {
            let session = request.headers.only("mcp-session-id").expect("one HTTP session at most").map(str::to_owned);
            let sessions = self.sent.entry(request.body.clone()).or_default();
            assert!(!sessions.contains(&session), "a request is repeated only in another HTTP session: {request:?}");
            sessions.push(session);
            assert!(sessions.len() <= 2, "a request is repeated once at most: {request:?}");
            assert!(sessions.len() == 1 || self.era == Era::Legacy, "{request:?}");
        }
        self.coverage.resumed += usize::from(request.headers.only("last-event-id") != Ok(None));
        let connection = Connection { exchange: None, is_cut: false, pieces: VecDeque::new(), request };
        assert!(self.network.insert(connection.request.id, connection).is_none(), "a number is used once");
    }

    fn is_call(&self, request: &HttpClientRequest) -> bool {
        request.body.windows(12).any(|part| part == b"\"tools/call\"")
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Done { id, outcome, .. } => {
                let call = self.calls.get_mut(&id).expect("a call");
                match &outcome {
                    Outcome::Result(result) => {
                        assert!(
                            result.as_str().contains(&call.mark),
                            "{result:?} is the result of another call than {}",
                            call.mark
                        );
                        self.coverage.results += 1;
                    }
                    Outcome::Lost => self.coverage.lost += 1,
                    // The server has forgotten the HTTP session in which the call was repeated, too.
                    Outcome::Error(error) if &*error.message == "there is no such session" => {
                        let mark = call.mark.as_bytes();
                        let mut sent = self.sent.iter().filter(|(body, _)| body.windows(mark.len()).any(|part| part == mark));
                        assert!(sent.any(|(_, sessions)| sessions.len() == 2), "{} was not repeated", call.mark);
                    }
                    Outcome::Cancelled => {}
                    other => panic!("{} ends as {other:?}", call.mark),
                }
                assert_eq!(call.outcome.replace(outcome), None, "G1: {} ends once", call.mark);
            }
            Event::Progress { id, progress } => {
                let call = self.calls.get_mut(&id).expect("a call");
                assert_eq!(call.outcome, None, "nothing follows the outcome");
                let value = progress.value.expect("a value");
                assert!(call.last_update.is_none_or(|last| value > last), "the progress of {} rises", call.mark);
                call.last_update = Some(value);
                assert!(progress.message.is_some_and(|message| *message == *call.mark), "an update of another call");
            }
            Event::InputRequested { key, .. } => self.input_requests.push(key),
            Event::InputGone { key } => self.input_requests.retain(|open| *open != key),
            Event::Notification(_) => self.coverage.notifications += 1,
            Event::Violation(rule) => panic!("the client objects to its server: {rule}"),
            _ => {}
        }
    }

    fn call(&mut self) {
        let mark = format!("[m{}]", self.calls.len());
        // The call fails if the session has closed or has too much queued output.
        let Ok(id) = self.session.invoke(Invoke::call_tool(&*mark, Json::empty_object()), self.now) else { return };
        self.calls.insert(id, Call { mark, ..Call::default() });
        self.pump_client();
    }

    fn cancel(&mut self) {
        let open: Vec<_> = self.calls.iter().filter(|(_, call)| call.outcome.is_none()).map(|(id, _)| *id).collect();
        let Some(id) = self.rng.pick(&open) else { return };
        let mark = &self.calls[&id].mark;
        if self.work.iter().any(|work| work.mark == *mark) {
            self.cancelled.insert(mark.clone());
        }
        self.session.cancel(id, None, self.now).expect("it is open");
        self.pump_client();
    }

    // ---- The network ----

    /// Returns a random connection for which `fits` is true.
    fn pick(&mut self, fits: impl Fn(&Connection) -> bool) -> Option<HttpRequestId> {
        let all: Vec<_> = self.network.iter().filter(|(_, connection)| fits(connection)).map(|(id, _)| *id).collect();
        self.rng.pick(&all)
    }

    /// Delivers a request to the server.
    fn arrive(&mut self, id: HttpRequestId) {
        let connection = self.network.get_mut(&id).expect("it is under way");
        let request = &connection.request;
        let host = [("host", &b"localhost"[..])];
        let head = RequestHead::new(request.method, host.into_iter().chain(request.headers.iter()).collect());
        let request = HttpRequest::new(head, request.body.clone());
        connection.exchange = Some(self.server.handle_request(&request, &mut Context(&mut self.rng), self.now));
        self.pump_server();
    }

    /// Makes the server write some parts of a response, at most `most`.
    fn write(&mut self, id: HttpRequestId, most: usize) {
        for _ in 0..most {
            let Some(connection) = self.network.get_mut(&id) else { return };
            let Some(exchange) = connection.exchange.filter(|_| !connection.is_cut) else { return };
            let Some(part) = self.server.poll_response(exchange, self.now) else { break };
            connection.pieces.push_back(match part {
                ResponsePart::Head { head, .. } => Piece::Head(head),
                ResponsePart::Chunk(chunk) => Piece::Chunk(chunk),
                ResponsePart::End => Piece::End,
                part => panic!("{part:?}"),
            });
        }
        self.pump_server();
    }

    /// Makes the client read a piece of a response, or a part of a piece.
    fn read(&mut self, id: HttpRequestId) {
        let Some(connection) = self.network.get_mut(&id).filter(|connection| !connection.is_cut) else { return };
        match connection.pieces.pop_front() {
            None => return,
            Some(Piece::Head(head)) => self.client.handle_head(id, &head, self.now),
            Some(Piece::Chunk(mut chunk)) => {
                let first = chunk.split_to(1 + self.rng.below(chunk.len()));
                if !chunk.is_empty() {
                    connection.pieces.push_front(Piece::Chunk(chunk));
                }
                self.client.handle_chunk(id, first, self.now);
            }
            Some(Piece::End) => {
                self.network.remove(&id);
                self.client.handle_end(id, self.now);
            }
        }
        self.pump_client();
    }

    /// Breaks a connection. The client notifications this now, and the server later.
    fn cut(&mut self, id: HttpRequestId) {
        let connection = self.network.get_mut(&id).expect("it is open");
        self.coverage.cuts += 1;
        connection.is_cut = true;
        if connection.exchange.is_none() {
            self.forget(id);
        }
        self.client.handle_loss(id, "", self.now);
        self.pump_client();
    }

    /// Removes a request that never arrives. If the request is a cancel, the call of that cancel is no longer expected to be cancelled.
    fn forget(&mut self, id: HttpRequestId) {
        let Some(connection) = self.network.remove(&id) else { return };
        if let Some(mark) = cancel_of(&connection.request, &self.calls) {
            self.cancelled.remove(&mark);
        }
    }

    /// Makes the server notification that a connection is broken.
    fn notice_cut(&mut self, id: HttpRequestId) {
        let Some(exchange) = self.network.remove(&id).and_then(|connection| connection.exchange) else { return };
        self.server.handle_lost(exchange, self.now);
        self.pump_server();
    }

    // ---- The server ----

    /// Handles the events of the `HttpServer` until there are no more.
    fn pump_server(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                HttpEvent::Open { session, era } => {
                    let config = with(server_config(), |config| config.era = era.config());
                    self.sessions.insert(session, Session::new(config, self.now));
                }
                HttpEvent::Frame { session, exchange, lane, frame } => {
                    let Some(receiver) = self.sessions.get_mut(&session) else { continue };
                    match receiver.handle_frame(frame, lane, self.now) {
                        Ok(received) => self.server.handle_received(exchange, received.replies, self.now),
                        Err(_) => self.server.handle_full(exchange, self.now),
                    }
                    self.pump_session(session);
                }
                HttpEvent::Writable { session, lane, is_writable } => {
                    if let Some(sender) = self.sessions.get_mut(&session) {
                        // Fails if the lane is closed, since its last frame was sent.
                        let _ = sender.set_writable(lane, is_writable, self.now);
                    }
                    self.pump_session(session);
                }
                HttpEvent::Close { session } => {
                    self.sessions.remove(&session);
                    for work in self.work.extract_if(.., |work| work.session == session) {
                        self.coverage.cancels_seen += usize::from(self.cancelled.remove(&work.mark));
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles the events of one session of the server, and passes its frames to the `HttpServer`.
    fn pump_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let mut has_cancelled = false;
        while let Some(event) = session.poll_event() {
            match event {
                Event::Request { id, request, .. } => match request.params().member("name").and_then(|name| name.as_text()) {
                    Some(mark) => self.work.push(Work { session: key, id, mark: mark.to_string(), updates: 0 }),
                    // Only a subscription has no name. It stays open.
                    None => {
                        let mut offered = SubscriptionFilter::default();
                        offered.tools = true;
                        session.accept_subscription(id, &offered, self.now).expect("it is new");
                    }
                },
                Event::Cancelled { id, .. } => {
                    has_cancelled = true;
                    let _ = session.respond(id, Reply::Tool(ToolOutput::text("")), self.now);
                    for work in self.work.extract_if(.., |work| (work.session, work.id) == (key, id)) {
                        self.coverage.cancels_seen += usize::from(self.cancelled.remove(&work.mark));
                    }
                }
                Event::Input { answer: Ok(_), .. } => self.coverage.answers += 1,
                Event::Violation(rule) => panic!("the server objects to its client: {rule}"),
                _ => {}
            }
        }
        while let Some(transmit) = session.poll_transmit() {
            self.server.handle_transmit(key, transmit, self.now);
        }
        if has_cancelled {
            for lane in self.server.lanes_at_work(key).collect::<Vec<_>>() {
                if session.replies_owed(lane) == 0 {
                    self.server.handle_settled(key, lane, self.now);
                }
            }
        }
    }

    /// Sends an update of a random call.
    fn update(&mut self) {
        let at = self.rng.below(self.work.len());
        let Some(work) = self.work.get_mut(at) else { return };
        work.updates += 1;
        let (key, mut progress) = (work.session, Progress::step(work.updates, 1000));
        progress.message = Some((&*work.mark).into());
        self.sessions.get_mut(&key).expect("it lives").progress(work.id, progress, self.now).expect("it is live");
        self.pump_session(key);
        self.pump_server();
    }

    fn respond(&mut self, at: usize) {
        if at >= self.work.len() {
            return;
        }
        let work = self.work.remove(at);
        // A handler that ends before the cancel arrives is not cancelled.
        self.cancelled.remove(&work.mark);
        let session = self.sessions.get_mut(&work.session).expect("it lives");
        session.respond(work.id, Reply::Tool(ToolOutput::text(work.mark)), self.now).expect("it is live");
        self.pump_session(work.session);
        self.pump_server();
    }

    fn ask(&mut self) {
        let at = self.rng.below(self.work.len());
        let Some(work) = self.work.get(at) else { return };
        let (key, ask) = (work.session, InputRequest::Sample(Sample::new("?").into()));
        // Fails without a handshake: then a server cannot send requests.
        let _ = self.sessions.get_mut(&key).expect("it lives").request_input(work.id, ask, self.now);
        self.pump_session(key);
        self.pump_server();
    }

    fn answer(&mut self) {
        let at = self.rng.below(self.input_requests.len());
        if at < self.input_requests.len() {
            let key = self.input_requests.remove(at);
            let answer = InputResponse::Sample(SampleResult::new("!", "model"));
            self.session.provide_input(key, answer, self.now).expect("it is open");
            self.pump_client();
        }
    }

    fn publish(&mut self) {
        for key in self.sessions.keys().copied().collect::<Vec<_>>() {
            let session = self.sessions.get_mut(&key).expect("it lives");
            let _ = session.notify(Notification::ToolsChanged, self.now);
            self.pump_session(key);
        }
        self.pump_server();
    }

    // ---- Time ----

    fn wait(&mut self, span: Duration) {
        self.now = self.now.saturating_add(span);
        self.client.handle_timeout(self.now);
        self.session.handle_timeout(self.now);
        self.pump_client();
        self.server.handle_timeout(self.now);
        self.pump_server();
        for key in self.sessions.keys().copied().collect::<Vec<_>>() {
            if let Some(session) = self.sessions.get_mut(&key) {
                session.handle_timeout(self.now);
            }
            self.pump_session(key);
        }
        self.pump_server();
    }

    // ---- Runs ----

    fn step(&mut self) {
        match self.rng.below(44) {
            0..=3 => self.call(),
            4 => self.cancel(),
            5..=10 => {
                if let Some(id) = self.pick(|connection| connection.exchange.is_none()) {
                    self.arrive(id);
                }
            }
            11..=16 => {
                let most = 1 + self.rng.below(3);
                if let Some(id) = self.pick(|connection| connection.exchange.is_some()) {
                    self.write(id, most);
                }
            }
            17..=24 => {
                if let Some(id) = self.pick(|connection| !connection.pieces.is_empty()) {
                    self.read(id);
                }
            }
            25..=29 => self.update(),
            30 => {
                let at = self.rng.below(self.work.len());
                self.respond(at);
            }
            31 | 40 => self.ask(),
            32 | 41..=43 => self.answer(),
            33 if self.rng.chance(128) => {
                if let Some(id) = self.pick(|connection| !connection.is_cut) {
                    self.cut(id);
                }
            }
            34 => {
                if let Some(id) = self.pick(|connection| connection.is_cut) {
                    self.notice_cut(id);
                }
            }
            35 => {
                let exchange = self.pick(|connection| connection.exchange.is_some()).and_then(|id| self.network[&id].exchange);
                let is_suspended = exchange.is_some_and(|exchange| self.server.suspend(exchange, self.now).is_ok());
                self.coverage.suspended += usize::from(is_suspended);
                self.pump_server();
            }
            36 if self.era == Era::Legacy && self.rng.chance(20) => {
                // The server forgets the session.
                let key = self.sessions.keys().next().copied();
                key.into_iter().for_each(|key| self.server.close_session(key, self.now));
                self.pump_server();
            }
            37 => self.publish(),
            _ => {
                let millis = 1 << self.rng.below(12);
                self.wait(Duration::from_millis(millis));
            }
        }
    }

    /// Delivers all requests and responses that are on the network, once.
    fn carry_all(&mut self) {
        for id in self.network.keys().copied().collect::<Vec<_>>() {
            match self.network.get(&id) {
                Some(connection) if connection.is_cut => self.notice_cut(id),
                Some(connection) if connection.exchange.is_none() => self.arrive(id),
                _ => {}
            }
            self.write(id, usize::MAX);
            while self.network.get(&id).is_some_and(|connection| !connection.pieces.is_empty() && !connection.is_cut) {
                self.read(id);
            }
        }
    }

    /// Lets all calls and connections end, and checks the result.
    fn finish(mut self) -> Coverage {
        for _ in 0..30 {
            self.carry_all();
        }
        assert_eq!(self.cancelled, BTreeSet::new(), "every cancel that was not lost has reached its handler");
        for attempt in 0.. {
            let is_done = self.calls.values().all(|call| call.outcome.is_some());
            if is_done && self.work.is_empty() && self.network.values().all(|connection| !connection.is_cut) {
                break;
            }
            assert!(attempt < 200, "calls that never end: {}, works {}", self.client.calls(), self.work.len());
            while !self.input_requests.is_empty() {
                self.answer();
            }
            while !self.work.is_empty() {
                self.respond(0);
            }
            self.carry_all();
            self.wait(Duration::from_millis(1300));
        }
        let subscriptions = usize::from(self.era != Era::Legacy);
        assert!(self.client.calls() <= subscriptions, "only a subscription lasts");
        self.client.close(self.now);
        self.pump_client();
        for _ in 0..3 {
            self.carry_all();
        }
        assert!(self.client.is_closed());
        assert_eq!((self.client.requests(), self.client.poll_timeout()), (0, None));
        // If the response that opens a session was lost, the session stays idle until its timeout.
        self.wait(Duration::from_secs(31 * 60));
        assert!(self.sessions.is_empty(), "the server has forgotten the client");
        self.coverage
    }
}

/// The mark of the call that a request cancels.
fn cancel_of(request: &HttpClientRequest, calls: &BTreeMap<OutboundId, Call>) -> Option<String> {
    let body = Json::parse(request.body.clone()).ok().filter(|_| request.method == Method::Post)?;
    body.member("method").and_then(|method| method.as_text()).filter(|method| *method == "notifications/cancelled")?;
    let number = body.member("params")?.member("requestId")?;
    let id = calls.iter().find(|(id, _)| id.to_string() == format!("out-{}", number.as_str()));
    id.map(|(_, call)| call.mark.clone())
}

/// Makes 500 random steps with each of 60 seeds.
fn campaign(era: Era) -> Coverage {
    let mut total = Coverage::default();
    for seed in 0..60 {
        let mut world = World::new(seed, era);
        for _ in 0..500 {
            world.step();
        }
        total.add(&world.finish());
    }
    total
}

#[test]
fn calls_with_a_handshake_end_once_with_rising_progress_over_any_network() {
    let total = campaign(Era::Legacy);
    let Coverage { results, lost, cancels_seen, cuts, resumed, suspended, reopened, answers, notifications, failed: _ } = total;
    let rarest = [results, lost, cancels_seen, cuts, resumed, suspended, reopened, answers, notifications].into_iter().min();
    assert!(rarest > Some(10), "the campaign met everything that it is about: {total:?}");
}

#[test]
fn calls_without_a_handshake_end_once_with_rising_progress_over_any_network() {
    for era in [Era::Modern, Era::Auto] {
        let total = campaign(era);
        let rarest = [total.results, total.lost, total.cancels_seen, total.cuts, total.notifications].into_iter().min();
        assert!(rarest > Some(10), "the campaign met everything that it is about: {total:?}");
    }
}
