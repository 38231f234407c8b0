//! A client of Streamable HTTP against responses of any bytes, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol_core::http::{Headers, HttpClient, HttpClientConfig, HttpClientEvent, HttpRequestId, ResponseHead};
use protocol_core::mcp::Era;
use protocol_core::{
    Event, Gone, InputKey, InputResponse, Instant, Invoke, Json, Lane, OutboundId, RpcError, Session, TransportEnd,
};
use testkit::config::{client_config, with};

const STATUSES: [u16; 16] = [200, 202, 204, 400, 401, 403, 404, 405, 406, 413, 429, 500, 503, 307, 308, 103];
const MEDIA_TYPES: [&str; 4] = ["application/json", "text/event-stream", "text/html", ""];
const FIELDS: [&str; 4] = ["mcp-session-id", "location", "www-authenticate", "retry-after"];

/// A client with its session, and the requests that are open.
struct Bench {
    client: HttpClient,
    session: Session,
    now: Instant,
    /// Every request so far.
    sent: BTreeSet<HttpRequestId>,
    /// The requests whose responses have not ended.
    open: Vec<HttpRequestId>,
    /// The number of outcomes of each call.
    calls: BTreeMap<OutboundId, usize>,
    input_requests: Vec<InputKey>,
    /// The owner has closed the client.
    is_closing: bool,
    is_closed: bool,
}

/// Byte 0: the era (bits 0 and 1), small limits (bit 2), and the cache (bit 3). The rest: lines, each of which is a step. The first byte of
/// a line is the kind of the step; `|` in arguments and in a body stands for a line feed.
///
/// The session calls a tool (`c`), lists the tools (`v`), cancels a call (`x`), or refuses an input request (`q`). The server sends the
/// head of a response (`h`) or a piece of its body (`b`), or ends the response (`e`). The response is lost (`l`). Time passes (`t`). The
/// owner closes the client (`z`).
pub fn http_client(data: &[u8]) {
    let ([kind], rest) = super::head(data);
    let era = [Era::Legacy, Era::Auto, Era::Modern, Era::Auto][usize::from(kind & 3)];
    let mut config = HttpClientConfig::new("http://localhost/mcp");
    if kind & 4 != 0 {
        (config.limits.calls, config.limits.messages, config.limits.waiting_frames) = (3, 1, 2);
        (config.limits.frame_bytes, config.limits.error_bytes, config.limits.id_bytes) = (600, 80, 8);
        (config.limits.tools, config.limits.pages, config.limits.attempts) = (1, 2, 2);
        (config.limits.cache_results, config.limits.cache_bytes) = (1, 300);
    }
    config.cache = kind & 8 != 0;
    let session = Session::new(with(client_config(), |config| config.era = era), Instant::ZERO);
    let mut bench = Bench {
        client: HttpClient::new(config, Instant::ZERO).expect("an address"),
        session,
        now: Instant::ZERO,
        sent: BTreeSet::new(),
        open: Vec::new(),
        calls: BTreeMap::new(),
        input_requests: Vec::new(),
        is_closing: false,
        is_closed: false,
    };
    bench.pump();
    for line in rest.split(|byte| *byte == b'\n') {
        bench.step(line);
        bench.pump();
    }
    bench.finish();
}

impl Bench {
    fn step(&mut self, line: &[u8]) {
        let ([step, which, status, form], rest) = super::head::<4>(line);
        let request = self.open.len().checked_sub(1 + usize::from(which % 8)).map(|at| self.open[at]);
        match (step, request) {
            (b'c', _) => {
                let text: Vec<_> = line[1..].iter().map(|byte| if *byte == b'|' { b'\n' } else { *byte }).collect();
                let arguments = Json::parse(text).ok().filter(Json::is_object).unwrap_or_else(Json::empty_object);
                if let Ok(id) = self.session.invoke(Invoke::call_tool("t", arguments), self.now) {
                    self.calls.insert(id, 0);
                }
            }
            (b'v', _) => {
                if let Ok(id) = self.session.invoke(Invoke::list_tools(None), self.now) {
                    self.calls.insert(id, 0);
                }
            }
            (b'x', _) => {
                let at = self.calls.len().checked_sub(1 + usize::from(which % 8));
                if let Some(id) = at.and_then(|at| self.calls.keys().nth(at)) {
                    let _ = self.session.cancel(*id, None, self.now);
                }
            }
            (b'q', _) => {
                if let Some(key) = self.input_requests.pop() {
                    let _ = self.session.provide_input(key, InputResponse::Refused(RpcError::fixed(-1, "no")), self.now);
                }
            }
            (b't', _) => {
                self.now = self.now.saturating_add(Duration::from_millis(1 << (which % 18)));
                self.client.handle_timeout(self.now);
                self.session.handle_timeout(self.now);
            }
            (b'z', _) => self.close(),
            (b'h', Some(request)) => {
                let value = core::str::from_utf8(rest).unwrap_or_default();
                let mut headers = Headers::new();
                headers.push("content-type", MEDIA_TYPES[usize::from(form % 4)]);
                if !value.is_empty() {
                    headers.push(FIELDS[usize::from(form / 4) % 4], value);
                }
                let status = STATUSES[usize::from(status % 16)];
                self.client.handle_head(request, &ResponseHead::new(status, headers), self.now);
            }
            (b'b', Some(request)) => {
                let body = line.get(2..).unwrap_or_default().iter().map(|byte| if *byte == b'|' { b'\n' } else { *byte });
                self.client.handle_chunk(request, body.collect(), self.now);
            }
            (b'e' | b'l', Some(request)) => {
                self.open.retain(|open| *open != request);
                match step {
                    b'e' => self.client.handle_end(request, self.now),
                    _ => self.client.handle_loss(request, "", self.now),
                }
            }
            _ => {}
        }
    }

    fn pump(&mut self) {
        loop {
            while let Some(event) = self.session.poll_event() {
                match event {
                    Event::Done { id, .. } => *self.calls.get_mut(&id).expect("a call") += 1,
                    Event::InputRequested { key, .. } => self.input_requests.push(key),
                    Event::Closed(_) => self.close(),
                    _ => {}
                }
            }
            if let Some(transmit) = self.session.poll_transmit() {
                self.client.handle_transmit(transmit, self.now);
                continue;
            }
            let Some(event) = self.client.poll_event() else { break };
            assert!(!self.is_closed, "nothing follows the end, but {event:?}");
            match event {
                HttpClientEvent::Send(request) => {
                    assert!(self.sent.insert(request.id), "a number is used once");
                    assert!(request.target.starts_with('/'), "{}", request.target);
                    for (name, value) in request.headers.iter() {
                        assert!(value.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t'), "{name} of {request:?}");
                    }
                    self.open.push(request.id);
                }
                HttpClientEvent::Abort(request) => {
                    let at = self.open.iter().position(|open| *open == request).expect("it is open");
                    self.open.remove(at);
                }
                HttpClientEvent::Frame { frame, lane, exchange } => {
                    let _ = self.session.handle_frame_within(frame, lane, exchange, self.now);
                }
                HttpClientEvent::Lost { exchange, .. } => {
                    let _ = self.session.handle_gone(Gone::Response(exchange), self.now);
                }
                HttpClientEvent::Writable(is_writable) => {
                    let _ = self.session.set_writable(Lane::CHANNEL, is_writable, self.now);
                }
                HttpClientEvent::Failed(_) => {
                    // A client that was closed before this event was polled is ending its HTTP session.
                    let open = (self.client.requests(), self.client.calls());
                    assert!(self.is_closing || open == (0, 0), "a failed client has nothing open, but {open:?}");
                    self.session.handle_end(TransportEnd::Failed, self.now);
                }
                HttpClientEvent::Closed => self.is_closed = true,
                _ => {}
            }
        }
        assert!(self.client.poll_timeout().is_none_or(|at| at > self.now), "no deadline is left in the past");
        assert!(self.client.requests() <= self.open.len(), "every request that is not over is open");
    }

    fn close(&mut self) {
        self.is_closing = true;
        self.client.close(self.now);
    }

    fn finish(mut self) {
        self.close();
        self.pump();
        self.session.handle_end(TransportEnd::Failed, self.now);
        self.pump();
        assert!(self.calls.values().all(|outcomes| *outcomes == 1), "G1: {:?}", self.calls);
        // The first wait is for open requests, the second for the end of the HTTP session.
        for _ in 0..2 {
            self.now = self.now.saturating_add(Duration::from_secs(2));
            self.client.handle_timeout(self.now);
            self.pump();
        }
        assert!(self.is_closed && self.client.is_closed(), "the client ends in time");
        assert_eq!((self.client.requests(), self.client.calls(), self.client.poll_timeout()), (0, 0, None));
    }
}
