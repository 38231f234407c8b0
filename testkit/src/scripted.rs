//! One session with the test as its peer: frames are text, and the test sets the time.

use bytes::Bytes;
use protocol_core::lines::LineDecoder;
use protocol_core::{
    Config, Event, InboundId, InputKey, InputRequest, Instant, Invoke, Json, Lane, Op, OutboundId, Outcome, Progress, Reply,
    Reported, Session, ToolOutput, TransportEnd, Violation,
};

use crate::Watched;

/// A session under test. It is [`Watched`], so that each method checks the guarantees, whatever the test is about. The test may break every
/// rule of a peer.
#[derive(Debug)]
pub struct Scripted {
    /// The session.
    pub session: Watched,
    /// The time that is passed to its methods.
    pub now: Instant,
}

const CLIENT_DECLARES: &str = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#;
const SERVER_DECLARES: &str = r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}"#;

impl Scripted {
    /// A new session.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::since(config, Instant::ZERO)
    }

    /// A new session that begins at `now`.
    #[must_use]
    pub fn since(config: Config, now: Instant) -> Self {
        let mut session = Watched::new(Session::new(config, now), now);
        session.judge_mut().distrust_peer();
        session.forget_trace();
        Self { session, now }
    }

    /// A server after the handshake of 2025-11-25 with a client that declares sampling, elicitation by forms and URLs, and roots. The test
    /// is the client.
    #[must_use]
    pub fn server(config: Config) -> Self {
        Self::server_at(config, "2025-11-25", CLIENT_DECLARES)
    }

    /// A server like that of [`Self::server`], with another revision and other capabilities of the client.
    #[must_use]
    pub fn server_at(config: Config, revision: &str, declares: &str) -> Self {
        let mut end = Self::new(config);
        end.frame(&initialize(0, revision, declares));
        end.frame(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert!(end.session.is_ready());
        end.drain();
        end
    }

    /// A client after the handshake of 2025-11-25 with a server that declares tools, prompts, resources, completions and logging. The test
    /// is the server. The first call has id 2.
    #[must_use]
    pub fn client(config: Config) -> Self {
        Self::client_at(config, "2025-11-25", SERVER_DECLARES)
    }

    /// A client like that of [`Self::client`], with another revision and other capabilities of the server.
    #[must_use]
    pub fn client_at(config: Config, revision: &str, declares: &str) -> Self {
        let mut end = Self::new(config);
        end.drain();
        end.frame(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{revision}","capabilities":{declares},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
        ));
        assert!(end.session.is_ready());
        end.drain();
        end
    }

    /// Passes a frame to the session, which must accept it.
    pub fn frame(&mut self, text: &str) -> &mut Self {
        self.session
            .handle_frame(Bytes::copy_from_slice(text.as_bytes()), Lane::CHANNEL, self.now)
            .expect("the session takes frames");
        self
    }

    /// Passes a frame to the session as a transport of lines does, whose reader gets `piece` bytes at once.
    ///
    /// # Panics
    /// If `piece` is zero.
    pub fn frame_in_pieces(&mut self, text: &str, piece: usize) -> &mut Self {
        let mut decoder = LineDecoder::new(usize::MAX);
        for bytes in format!("{text}\n").as_bytes().chunks(piece) {
            decoder.feed(bytes);
            while let Some(frame) = decoder.next_frame() {
                self.session.handle_frame(frame, Lane::CHANNEL, self.now).expect("the session takes frames");
            }
        }
        self
    }

    /// Stops the output of the session, as if the peer had stopped reading, or resumes it if `is_writable` is `true`. While it is stopped,
    /// no frame is sent.
    pub fn set_writable(&mut self, is_writable: bool) -> &mut Self {
        self.session.set_writable(Lane::CHANNEL, is_writable, self.now).expect("the channel is open");
        self
    }

    /// Moves the clock to `millis` after [`Instant::ZERO`], with a stop at each deadline on the way, as a driver would.
    pub fn at(&mut self, millis: u64) -> &mut Self {
        let target = Instant::from_millis(millis);
        while let Some(due) = self.session.poll_timeout().filter(|due| *due <= target) {
            self.now = self.now.max(due);
            self.session.handle_timeout(due);
        }
        self.now = target;
        self.session.handle_timeout(target);
        self
    }

    /// Moves the clock to `millis` after [`Instant::ZERO`] without calling `handle_timeout`, so that deadlines may have passed when the
    /// next frame arrives or the next method is called.
    pub fn skip_to(&mut self, millis: u64) -> &mut Self {
        self.now = Instant::from_millis(millis);
        self
    }

    /// Polls the next frame.
    pub fn next_sent(&mut self) -> Option<String> {
        let out = self.session.poll_transmit()?;
        Some(String::from_utf8(out.frame.to_vec()).expect("frames are UTF-8"))
    }

    /// Polls all frames.
    pub fn sent(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next_sent()).collect()
    }

    /// Polls all events.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    /// Polls and drops all frames and events.
    pub fn drain(&mut self) -> &mut Self {
        self.sent();
        self.events();
        self
    }

    /// Starts a call of a tool with the session's timeouts. Its request id and its progress token are the number of the returned id.
    pub fn call(&mut self) -> OutboundId {
        self.invoke(Invoke::new(Op::CallTool, json(r#"{"name":"t"}"#)))
    }

    /// Starts a call, which the session must accept.
    pub fn invoke(&mut self, call: Invoke) -> OutboundId {
        self.session.invoke(call, self.now).expect("the call is accepted")
    }

    /// Receives a call of a tool with the request id and the progress token `id`. Drops the other queued events.
    #[track_caller]
    pub fn receive_call(&mut self, id: u64) -> InboundId {
        self.frame(&call_tool(id, true));
        self.request()
    }

    /// The first request among the queued events. All other events are dropped.
    #[track_caller]
    pub fn request(&mut self) -> InboundId {
        let events = self.events();
        let found = events.iter().find_map(|event| if let Event::Request { id, .. } = event { Some(*id) } else { None });
        let Some(id) = found else { panic!("no request among {events:?}") };
        id
    }

    /// The first input request among the queued events. All other events are dropped.
    #[track_caller]
    pub fn input_request(&mut self) -> InputKey {
        let events = self.events();
        let found = events.iter().find_map(|event| if let Event::InputRequested { key, .. } = event { Some(*key) } else { None });
        let Some(key) = found else { panic!("no input request among {events:?}") };
        key
    }
}

/// A frame with the handshake request of a client.
#[must_use]
pub fn initialize(id: u64, revision: &str, declares: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{declares},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    )
}

/// A frame that calls a tool. If `observed`, it has the progress token `id`.
#[must_use]
pub fn call_tool(id: u64, observed: bool) -> String {
    let meta = if observed { format!(r#","_meta":{{"progressToken":{id}}}"#) } else { String::new() };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"{meta}}}}}"#)
}

/// A frame with progress.
#[must_use]
pub fn progress(token: u64, value: f64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{value}}}}}"#)
}

/// A frame with an empty result.
#[must_use]
pub fn result(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

/// A frame that cancels the request `id`.
#[must_use]
pub fn cancelled(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// Parses JSON, which must be valid.
#[must_use]
pub fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("JSON")
}

/// A frame with any request.
#[must_use]
pub fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A frame with a stateless request (MCP 2026-07-28) of a client with the capabilities `declares`. `params` are members of the parameters,
/// each with a comma after it; `meta` are further members of `_meta`, each with a comma before it.
#[must_use]
pub fn stateless_request(id: u64, method: &str, params: &str, declares: &str, meta: &str) -> String {
    let caller = format!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{declares}"#
    );
    request(id, method, &format!(r#"{{{params}"_meta":{{{caller}{meta}}}}}"#))
}

/// A frame with the result of a stateless request, by a server with the identity of
/// [`server_config`](crate::config::server_config). `members` are members of the result, each with a comma after it.
#[must_use]
pub fn stateless_result(id: u64, members: &str) -> String {
    let server = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"server","version":"1"}}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete",{members}{server}}}}}"#)
}

/// A frame with the answer to `server/discover` of a server with these versions and capabilities.
#[must_use]
pub fn discovered(id: u64, versions: &str, declares: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","supportedVersions":[{versions}],"capabilities":{declares},"instructions":"be brief","ttlMs":0,"cacheScope":"private","_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"s","version":"9"}}}}}}}}"#
    )
}

/// A frame with any notification.
#[must_use]
pub fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// A frame with an error.
#[must_use]
pub fn error(id: u64, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

impl Scripted {
    /// The outcome of the one call that has ended, among the queued events; the others are dropped.
    #[track_caller]
    pub fn outcome(&mut self) -> Outcome {
        let events = self.events();
        let mut done = events.iter().filter_map(|event| if let Event::Done { outcome, .. } = event { Some(outcome) } else { None });
        match (done.next(), done.next()) {
            (Some(outcome), None) => outcome.clone(),
            _ => panic!("not one call done among {events:?}"),
        }
    }

    /// The violations among the queued events; the others are dropped.
    pub fn violations(&mut self) -> Vec<Violation> {
        self.events().iter().filter_map(Event::violation).collect()
    }

    /// Checks that neither a frame nor an event is queued.
    #[track_caller]
    pub fn expect_silence(&mut self) {
        assert_eq!((self.sent(), self.events()), (vec![], vec![]));
    }
}

// ---- As a callee ----

impl Scripted {
    /// Reports progress, which must be valid.
    pub fn report(&mut self, id: InboundId, update: Progress) -> Reported {
        self.session.progress(id, update, self.now).expect("valid progress")
    }

    /// Makes an input request, which the session must accept.
    pub fn ask(&mut self, id: InboundId, ask: InputRequest) -> InputKey {
        self.session.request_input(id, ask, self.now).expect("the input request is accepted")
    }

    /// Ends an inbound call with the text `ok`.
    pub fn respond(&mut self, id: InboundId) -> &mut Self {
        self.reply(id, Reply::Tool(ToolOutput::text("ok")))
    }

    /// Ends an inbound call.
    pub fn reply(&mut self, id: InboundId, reply: Reply) -> &mut Self {
        self.session.respond(id, reply, self.now).expect("the invocation is running");
        self
    }
}

/// The frame of [`Scripted::respond`].
#[must_use]
pub fn ok(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"ok"}}]}}}}"#)
}

/// The ways in which a call ends, except [`Outcome::Unanswered`], for the first call of a client that was made by [`Scripted::client`] or
/// [`Scripted::client_at`].
pub const ENDINGS: [(&str, Ending); 6] = [
    ("result", |end, _| {
        end.frame(&result(2));
    }),
    ("error", |end, _| {
        end.frame(&error(2, 1, "no"));
    }),
    ("invalid", |end, _| {
        end.frame(r#"{"jsonrpc":"2.0","id":2,"result":1}"#);
    }),
    ("cancelled", |end, call| end.session.cancel(call, None, end.now).expect("the call is open")),
    ("timed out", |end, _| {
        end.at(60_000);
    }),
    ("lost", |end, _| end.session.handle_end(TransportEnd::Failed, end.now)),
];

/// Ends a call.
pub type Ending = fn(&mut Scripted, OutboundId);
