//! Servers over HTTP, and scripted clients over real sockets: valid requests, invalid requests, and clients that disconnect.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint::{Context, Resource, ResourceContents, Service, Tool, ToolError};
use http_service::{ConnectionLimits, HttpListener, HttpServerConfig, HttpService};
use protocol_core::Progress;
use tokio::sync::Semaphore;

use crate::harness::{Stage, identity};
use crate::until::{PATIENCE, until};
use programs::adapter::{Adapter, start_blocking};

crate::harness::rows! { $ each_http_row ():
    a_session_is_opened_used_and_ended
    requests_without_a_handshake_share_a_connection
    a_slow_reply_is_a_stream_of_events
    a_client_that_closes_before_the_head_cancels_its_request
    a_client_that_closes_during_the_stream_cancels_its_request
    a_client_that_closes_its_writing_half_gets_the_response
    a_client_with_a_session_resumes_its_stream_after_a_disconnect
    an_update_of_a_resource_reaches_a_session_and_a_subscription_without_one
    other_hosts_and_origins_are_refused
    a_body_that_is_cut_has_no_effect
    a_request_with_two_lengths_or_an_invalid_one_is_refused
    a_body_that_is_too_long_is_refused
    a_head_that_is_too_long_is_refused
    an_invalid_head_is_refused
    invalid_chunks_are_refused
    a_body_that_is_no_message_is_refused
    half_requests_of_many_clients_delay_no_other
    a_connection_without_a_whole_request_is_closed_after_a_while
    a_connection_beyond_the_limit_ends_the_one_that_is_idle_for_longest
    connections_with_a_running_call_each_leave_nobody_without_an_answer
    bodies_that_do_not_arrive_leave_room_for_others_and_end_after_their_time
    calls_of_clients_that_disconnect_at_once_leave_few_handlers
    sessions_without_number_keep_nobody_from_a_handshake
    closing_ends_streams_and_connections_and_lets_requests_end
    dropping_the_listener_ends_every_connection
    many_clients_leave_only_the_sessions_that_they_did_not_end
    requests_over_http_2_run_at_the_same_time_and_are_cancelled_one_by_one
}

/// A running server.
struct Server {
    service: HttpService,
    listener: HttpListener,
    /// The lines that handlers have noted.
    seen: Receiver<String>,
    /// Each permit lets one call of `gated` end.
    gate: Arc<Semaphore>,
}

fn service(gate: &Arc<Semaphore>) -> (Service, Receiver<String>) {
    let (noted, seen) = mpsc::channel();
    let noted = Arc::new(Mutex::new(noted));
    let note = move |what: String| drop(noted.lock().expect("no panic").send(what));
    let gate = Arc::clone(gate);
    let note_of_wait = note.clone();
    let service = Service::new(identity().name, identity().version)
        .tool(Tool::new("quick", async |_: Context, (): ()| Ok("done")))
        .tool(Tool::new("deaf", async |_: Context, (): ()| {
            std::future::pending::<()>().await;
            Ok("never")
        }))
        .tool(Tool::new("wait", move |context: Context, (): ()| {
            let note = note_of_wait.clone();
            async move {
                note("started".into());
                note(format!("{:?}", context.cancelled().await));
                Err::<(), _>(ToolError::failed("cancelled"))
            }
        }))
        .tool(Tool::new("gated", move |context: Context, (): ()| {
            let (note, gate) = (note.clone(), Arc::clone(&gate));
            async move {
                context.progress(Progress::step(1, 2));
                note("started".into());
                gate.acquire().await.map_err(|_| ToolError::failed("no gate"))?.forget();
                note("passed".into());
                Ok("done")
            }
        }));
    (service, seen)
}

impl Server {
    async fn start<A: Adapter>(stage: &Stage<A>) -> Self {
        Self::start_with(stage, ConnectionLimits::default(), |_| {}).await
    }

    async fn start_with<A: Adapter>(
        stage: &Stage<A>,
        limits: ConnectionLimits,
        change: impl FnOnce(&mut HttpServerConfig),
    ) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let (service, seen) = service(&gate);
        let mut config = HttpServerConfig::default();
        change(&mut config);
        let service = HttpService::with_config(Arc::new(service), stage.adapter.timed_runtime(), config);
        let listener = stage.adapter.http_listen("127.0.0.1:0".into(), service.clone(), limits).await.expect("a listener");
        Self { service, listener, seen, gate }
    }

    fn connect(&self) -> Raw {
        Raw::connect(self.listener.local_addr())
    }

    /// The next line that a handler notes.
    fn seen(&self) -> String {
        self.seen.recv_timeout(PATIENCE).expect("a handler notes something")
    }
}

/// Runs a scripted client on a thread of its own, while the server runs.
async fn play_client<A: Adapter>(stage: Stage<A>, server: Server, client: impl FnOnce(&Server) + Send + 'static) -> Server {
    let played = start_blocking(&*stage.adapter.runtime(), move || {
        client(&server);
        server
    });
    played.await
}

/// Runs `hostile` while a call runs on another connection, and checks that the call goes on and that its connection serves more requests.
fn beside_a_call(server: &Server, hostile: impl FnOnce()) {
    let mut other = server.connect();
    let (fields, body) = modern("gated");
    other.request("POST", &fields, &body);
    let head = other.head();
    other.chunks_until("notifications/progress");
    assert_eq!(server.seen(), "started");
    hostile();
    assert!(server.seen.try_recv().is_err(), "no handler was started or ended");
    server.gate.add_permits(1);
    assert!(other.body(&head).contains("done"));
    assert_eq!(server.seen(), "passed");
    let (fields, body) = modern("quick");
    assert!(other.ask("POST", &fields, &body).1.contains("done"));
}

/// A connection.
struct Raw {
    stream: TcpStream,
    /// Bytes that were read and are not used yet.
    read: Vec<u8>,
}

/// The head of a response.
struct Head {
    status: u16,
    fields: Vec<(String, String)>,
}

impl Head {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
/// The usual fields of a request.
const USUAL: [(&str, &str); 3] =
    [("Host", "localhost"), ("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];

fn call(id: u32, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","_meta":{{"progressToken":{id}}}}}}}"#)
}

/// The fields and the body of a call without a handshake.
fn modern(tool: &str) -> ([(&str, &str); 3], String) {
    let fields = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)];
    let prefix = "io.modelcontextprotocol";
    let meta = format!(r#"{{"progressToken":1,"{prefix}/protocolVersion":"2026-07-28","{prefix}/clientCapabilities":{{}}}}"#);
    (fields, format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","_meta":{meta}}}}}"#))
}

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        Self { stream, read: Vec::new() }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("it is written");
    }

    /// Sends a text. It is no error if the server reads only a part of it before it closes the connection.
    fn send_as_far_as_it_is_read(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// Sends a request with the usual fields, some of which the given fields replace.
    fn request(&mut self, method: &str, fields: &[(&str, &str)], body: &str) {
        let usual = USUAL.iter().filter(|(name, _)| !fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name)));
        let fields: String = usual.chain(fields).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.send(&format!("{method} /mcp HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()));
    }

    /// Sends a request, and reads its whole response.
    fn ask(&mut self, method: &str, fields: &[(&str, &str)], body: &str) -> (Head, String) {
        self.request(method, fields, body);
        let head = self.head();
        let body = self.body(&head);
        (head, body)
    }

    /// Reads more bytes. Returns `false` at the end of the connection.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(read) => {
                self.read.extend_from_slice(&bytes[..read]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("reading: {error}"),
        }
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.take(end);
                self.take(2);
                return line;
            }
            assert!(self.more(), "the connection ends within a line: {}", String::from_utf8_lossy(&self.read));
        }
    }

    fn take(&mut self, length: usize) -> String {
        while self.read.len() < length {
            assert!(self.more(), "the connection ends within a body");
        }
        String::from_utf8(self.read.drain(..length).collect()).expect("text")
    }

    fn head(&mut self) -> Head {
        let status = self.line();
        let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status").parse().expect("a number");
        let mut fields = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { return Head { status, fields } };
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn body(&mut self, head: &Head) -> String {
        if let Some(length) = head.field("content-length") {
            return self.take(length.parse().expect("a number"));
        }
        if head.field("transfer-encoding").is_none() {
            assert!([202, 204].contains(&head.status), "there is no body");
            return String::new();
        }
        let mut all = String::new();
        while let Some(chunk) = self.chunk() {
            all.push_str(&chunk);
        }
        all
    }

    /// The next chunk of a chunked body; `None` at its end.
    fn chunk(&mut self) -> Option<String> {
        let length = usize::from_str_radix(&self.line(), 16).expect("a number");
        let chunk = self.take(length);
        self.line();
        (length > 0).then_some(chunk)
    }

    /// Reads a stream until it contains `words`.
    fn chunks_until(&mut self, words: &str) -> String {
        let mut all = String::new();
        while !all.contains(words) {
            all.push_str(&self.chunk().expect("the stream goes on"));
        }
        all
    }

    /// Waits for the end of the connection. Returns the text that was read before.
    fn ends(mut self) -> String {
        while self.more() {}
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Opens a session, and returns its id.
    fn open(&mut self) -> String {
        let (head, body) = self.ask("POST", &[], INITIALIZE);
        assert_eq!((head.status, head.field("content-type")), (200, Some("application/json")), "{body}");
        let id = head.field("mcp-session-id").expect("an id").to_owned();
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let (head, body) = self.ask("POST", &[("Mcp-Session-Id", &id)], initialized);
        assert_eq!((head.status, &*body), (202, ""));
        id
    }
}

async fn a_session_is_opened_used_and_ended<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        let id = client.open();
        let session = [("Mcp-Session-Id", &*id)];
        let (head, body) = client.ask("POST", &session, &call(1, "quick"));
        assert!(head.status == 200 && body.contains("done"), "{body}");
        client.request("POST", &session, &call(2, "gated"));
        let head = client.head();
        assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
        let first = client.chunks_until("notifications/progress");
        assert!(first.contains("id: "), "the stream can be resumed: {first}");
        server.gate.add_permits(1);
        let rest = client.body(&head);
        assert!(rest.contains("done"), "{rest}");
        let (head, _) = client.ask("DELETE", &session, "");
        assert_eq!(head.status, 204);
        let (head, _) = client.ask("POST", &session, &call(3, "quick"));
        assert_eq!(head.status, 404);
    })
    .await;
}

async fn requests_without_a_handshake_share_a_connection<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        let (fields, body) = modern("quick");
        for _ in 0..3 {
            let (head, body) = client.ask("POST", &fields, &body);
            assert_eq!(
                (head.status, head.field("content-type"), head.field("mcp-session-id")),
                (200, Some("application/json"), None)
            );
            assert!(body.contains("done"), "{body}");
        }
        let (head, _) = client.ask("GET", &[("MCP-Protocol-Version", "2026-07-28")], "");
        assert_eq!(head.status, 400, "there is no stream without a session");
        let (head, body) = client.ask("PUT", &[], "");
        assert_eq!((head.status, head.field("allow")), (405, Some("GET, POST, DELETE")), "{body}");
    })
    .await;
}

async fn a_slow_reply_is_a_stream_of_events<A: Adapter>(stage: Stage<A>) {
    let server = Server::start_with(&stage, ConnectionLimits::default(), |config| {
        config.timeouts.keep_alive = Duration::from_millis(10);
    });
    let server = server.await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        let (fields, body) = modern("gated");
        client.request("POST", &fields, &body);
        let head = client.head();
        assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
        let quiet = client.chunks_until(":\n\n:\n\n");
        assert!(!quiet.contains("id:"), "the stream cannot be resumed: {quiet}");
        server.gate.add_permits(1);
        assert!(client.body(&head).contains("done"));
        let (fields, body) = modern("quick");
        assert_eq!(client.ask("POST", &fields, &body).0.status, 200, "the connection goes on");
    })
    .await;
}

async fn a_client_that_closes_before_the_head_cancels_its_request<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        let (fields, body) = modern("wait");
        client.request("POST", &fields, &body);
        assert_eq!(server.seen(), "started");
        drop(client);
        assert_eq!(server.seen(), "Disconnected");
    })
    .await;
}

async fn a_client_that_closes_during_the_stream_cancels_its_request<A: Adapter>(stage: Stage<A>) {
    let server = Server::start_with(&stage, ConnectionLimits::default(), |config| {
        config.timeouts.keep_alive = Duration::from_millis(10);
    });
    let server = server.await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        let (fields, body) = modern("wait");
        client.request("POST", &fields, &body);
        assert_eq!(client.head().status, 200);
        assert_eq!(server.seen(), "started");
        drop(client);
        assert_eq!(server.seen(), "Disconnected");
    })
    .await;
}

/// Some clients shut down their side of the connection after a request, and then read. They got no response to a slow call: the end of
/// input counted as a disconnect.
async fn a_client_that_closes_its_writing_half_gets_the_response<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let half_closed = |fields: &[(&str, &str)], body: &str| {
            let mut client = server.connect();
            client.request("POST", fields, body);
            client.stream.shutdown(Shutdown::Write).expect("half a connection");
            client
        };
        let (fields, body) = modern("quick");
        assert!(half_closed(&fields, &body).ends().contains("done"));
        let (fields, body) = modern("gated");
        let mut client = half_closed(&fields, &body);
        assert_eq!(server.seen(), "started");
        assert_eq!(client.head().status, 200);
        // If the client were gone, the second comment could not be written.
        client.chunks_until(":\n\n:\n\n");
        server.gate.add_permits(1);
        assert_eq!(server.seen(), "passed", "the call was not cancelled");
        let response = client.ends();
        assert!(response.contains("done"), "{response}");
        let (fields, body) = modern("wait");
        let client = half_closed(&fields, &body);
        assert_eq!(server.seen(), "started");
        drop(client);
        assert_eq!(server.seen(), "Disconnected", "after both halves are closed");
        // A request that follows before the response to the first is served, too.
        let mut client = server.connect();
        let (fields, body) = modern("gated");
        client.request("POST", &fields, &body);
        assert_eq!(server.seen(), "started");
        let (fields, body) = modern("quick");
        client.request("POST", &fields, &body);
        client.stream.shutdown(Shutdown::Write).expect("half a connection");
        server.gate.add_permits(1);
        assert_eq!(server.seen(), "passed");
        let responses = client.ends();
        assert_eq!(responses.matches("\"done\"").count(), 2, "{responses}");
        // Such a request learned that its client is gone only when the stream was due for a comment, after 15 s.
        let mut client = server.connect();
        for tool in ["gated", "wait"] {
            let (fields, body) = modern(tool);
            client.request("POST", &fields, &body);
        }
        client.stream.shutdown(Shutdown::Write).expect("half a connection");
        assert_eq!(server.seen(), "started");
        server.gate.add_permits(1);
        assert_eq!(["passed", "started"], [server.seen(), server.seen()]);
        drop(client);
        assert_eq!(server.seen(), "Disconnected");
    })
    .await;
}

async fn a_client_with_a_session_resumes_its_stream_after_a_disconnect<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        let id = client.open();
        client.request("POST", &[("Mcp-Session-Id", &id)], &call(1, "gated"));
        let head = client.head();
        let text = client.chunks_until("notifications/progress");
        assert_eq!(head.status, 200);
        // The first event has only an id.
        let first_id = text.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id");
        drop(client);
        assert_eq!(server.seen(), "started");
        server.gate.add_permits(1);
        assert_eq!(server.seen(), "passed", "the call was not cancelled");
        let mut client = server.connect();
        client.request("GET", &[("Mcp-Session-Id", &id), ("Last-Event-ID", first_id)], "");
        assert_eq!(client.head().status, 200);
        let rest = client.chunks_until("done");
        assert!(rest.contains("notifications/progress"), "{rest}");
    })
    .await;
}

async fn an_update_of_a_resource_reaches_a_session_and_a_subscription_without_one<A: Adapter>(stage: Stage<A>) {
    let gate = Arc::new(Semaphore::new(0));
    let (service, seen) = service(&gate);
    let clock = Resource::new("clock:", "clock", async || Ok(ResourceContents::text("noon")));
    let mut service = service.resource(clock.subscribable());
    let updates = service.updates();
    let service = HttpService::with_config(Arc::new(service), stage.adapter.timed_runtime(), HttpServerConfig::default());
    let limits = ConnectionLimits::default();
    let listener = stage.adapter.http_listen("127.0.0.1:0".into(), service.clone(), limits).await.expect("a listener");
    play_client(stage, Server { service, listener, seen, gate }, move |server| {
        let mut client = server.connect();
        let id = client.open();
        let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"clock:"}}"#;
        let (head, body) = client.ask("POST", &[("Mcp-Session-Id", &id)], subscribe);
        assert_eq!(head.status, 200, "{body}");
        let mut of_session = server.connect();
        of_session.request("GET", &[("Mcp-Session-Id", &id)], "");
        assert_eq!(of_session.head().status, 200);
        let mut without = server.connect();
        let fields = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
        let prefix = "io.modelcontextprotocol";
        let meta = format!(r#"{{"{prefix}/protocolVersion":"2026-07-28","{prefix}/clientCapabilities":{{}}}}"#);
        let wanted = r#"{"resourceSubscriptions":["clock:"]}"#;
        let params = format!(r#"{{"notifications":{wanted},"_meta":{meta}}}"#);
        without.request(
            "POST",
            &fields,
            &format!(r#"{{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{params}}}"#),
        );
        assert_eq!(without.head().status, 200);
        without.chunks_until("acknowledged");
        assert_eq!(updates.resource("clock:"), Ok(2));
        of_session.chunks_until("notifications/resources/updated");
        let update = without.chunks_until("notifications/resources/updated");
        assert!(update.contains(r#"subscriptionId":7"#), "{update}");
    })
    .await;
}

async fn other_hosts_and_origins_are_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let own = server.listener.local_addr().to_string();
        let evil = "http://evil.example.com";
        for (fields, status) in [
            (vec![("Host", "evil.example.com")], 403),
            (vec![("Origin", evil)], 403),
            (vec![("Origin", "null")], 403),
            (vec![("Origin", evil), ("Origin", "http://localhost")], 403),
            (vec![("Host", "localhost"), ("Host", "evil.example.com")], 403),
            (vec![("Host", &own)], 200),
            (vec![("Host", &own), ("Origin", "http://localhost:3000")], 200),
        ] {
            let (head, body) = server.connect().ask("POST", &fields, INITIALIZE);
            assert_eq!(head.status, status, "{fields:?}: {body}");
        }
        let mut client = server.connect();
        client.send("POST http://evil.example.com/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.head().status, 403, "the target names another host");
    })
    .await;
}

/// The usual fields of a request, as text.
fn usual() -> String {
    USUAL.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

async fn a_body_that_is_cut_has_no_effect<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let (fields, body) = modern("wait");
            let fields: String = USUAL.iter().chain(&fields).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let chunk = format!("{:x}\r\n{body}\r\n", body.len());
            for framed in [
                // The message itself is complete.
                format!("Content-Length: {}\r\n\r\n{body}", body.len() + 1),
                format!("Content-Length: {}\r\n\r\n{body}", body.len() * 2),
                format!("Transfer-Encoding: chunked\r\n\r\n{chunk}"),
                format!("Transfer-Encoding: chunked\r\n\r\n{chunk}7"),
                // The message is cut in the middle.
                format!("Content-Length: {}\r\n\r\n{}", body.len(), &body[..body.len() / 2]),
                format!("Content-Length: {}\r\n\r\n", body.len()),
                format!("Transfer-Encoding: chunked\r\n\r\n{}", &chunk[..chunk.len() / 2]),
            ] {
                let mut client = server.connect();
                client.send(&format!("POST /mcp HTTP/1.1\r\n{fields}{framed}"));
                client.stream.shutdown(Shutdown::Write).expect("half a connection");
                let answer = client.ends();
                assert!(answer.starts_with("HTTP/1.1 400 "), "{framed}: {answer:?}");
            }
        });
    })
    .await;
}

async fn a_request_with_two_lengths_or_an_invalid_one_is_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let length = INITIALIZE.len();
            for framing in [
                format!("Content-Length: {length}\r\nContent-Length: {}\r\n", length - 1),
                format!("Content-Length: {length}, 7\r\n"),
                format!("Content-Length: +{length}\r\n"),
                format!("Content-Length: -{length}\r\n"),
                "Content-Length: 99999999999999999999999\r\n".to_owned(),
                "Transfer-Encoding: gzip\r\n".to_owned(),
                format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
                format!("Transfer-Encoding: chunked, chunked\r\nContent-Length: {length}\r\n"),
            ] {
                let mut client = server.connect();
                client.send(&format!("POST /mcp HTTP/1.1\r\n{}{framing}\r\n{INITIALIZE}", usual()));
                assert_eq!(client.head().status, 400, "{framing}");
                client.ends();
            }
        });
        assert_eq!(server.service.stats().sessions, 0);
    })
    .await;
}

async fn a_body_that_is_too_long_is_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start_with(&stage, ConnectionLimits::default(), |config| config.limits.body_bytes = 1000).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let mut client = server.connect();
            let (head, body) = client.ask("POST", &[], &" ".repeat(1001));
            assert_eq!(head.status, 413, "{body}");
            let mut client = server.connect();
            // All chunks are sent in one write, since the server closes the connection after its response.
            let chunks = format!("40\r\n{}\r\n", " ".repeat(64)).repeat(16);
            client.send(&format!("POST /mcp HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n{chunks}", usual()));
            assert_eq!(client.head().status, 413, "also if the head gives no length");
        });
    })
    .await;
}

async fn a_head_that_is_too_long_is_refused<A: Adapter>(stage: Stage<A>) {
    let mut limits = ConnectionLimits::default();
    (limits.headers, limits.head_bytes) = (20, 8 << 10);
    let server = Server::start_with(&stage, limits, |_| {}).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let mut client = server.connect();
            client.request("POST", &[("X", "y"); 20], INITIALIZE);
            assert_eq!(client.head().status, 431);
            let mut client = server.connect();
            client.request("POST", &[("X", &"y".repeat(20_000))], INITIALIZE);
            assert_eq!(client.head().status, 431);
            let mut client = server.connect();
            client.send(&format!("POST /{} HTTP/1.1\r\n{}\r\n", "m".repeat(20_000), usual()));
            assert!([414, 431].contains(&client.head().status));
        });
    })
    .await;
}

async fn an_invalid_head_is_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let length = format!("Content-Length: {}\r\n", INITIALIZE.len());
            for (field, status) in [
                ("X: a\0b\r\n", 400),
                ("X: a\rb\r\n", 400),
                ("X: a\x7fb\r\n", 400),
                ("X\0: a\r\n", 400),
                ("X : a\r\n", 400),
                ("X: a\r\n folded\r\n", 400),
                ("no field\r\n", 400),
                (": no name\r\n", 400),
                ("Mcp-Session-Id: \u{e4}\u{f6}\r\n", 404),
            ] {
                // A handshake opens a session whatever session id it has, so a ping is needed for 404.
                let body = if status == 404 { r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"# } else { INITIALIZE };
                let length = if status == 404 { format!("Content-Length: {}\r\n", body.len()) } else { length.clone() };
                let mut client = server.connect();
                client.send(&format!("POST /mcp HTTP/1.1\r\n{}{field}{length}\r\n{body}", usual()));
                assert_eq!(client.head().status, status, "{field:?}");
            }
            for line in ["POST /mcp HTTP/9.9", "POST /mcp", "POST  HTTP/1.1", "P\0ST /mcp HTTP/1.1", "\u{16}\u{3}\u{1}\u{2}"] {
                let mut client = server.connect();
                client.send(&format!("{line}\r\n{}{length}\r\n{INITIALIZE}", usual()));
                assert_eq!(client.head().status, 400, "{line:?}");
                client.ends();
            }
            let mut client = server.connect();
            client.send(&format!("POST /mcp HTTP/1.1\r\n{length}\r\n{INITIALIZE}"));
            assert_eq!(client.head().status, 403, "the request names no host");
        });
        assert_eq!(server.service.stats().sessions, 0);
    })
    .await;
}

async fn invalid_chunks_are_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let length = INITIALIZE.len();
            for chunks in [
                format!("zz\r\n{INITIALIZE}\r\n0\r\n\r\n"),
                format!("-{length:x}\r\n{INITIALIZE}\r\n0\r\n\r\n"),
                format!("\r\n{INITIALIZE}\r\n0\r\n\r\n"),
                format!("ffffffffffffffffff\r\n{INITIALIZE}\r\n0\r\n\r\n"),
                // The chunk is longer than the length before it.
                format!("{:x}\r\n{INITIALIZE}\r\n0\r\n\r\n", length - 3),
                format!("{length:x}\r\n{INITIALIZE}0\r\n\r\n"),
                format!("{length:x};{}\r\n{INITIALIZE}\r\n0\r\n\r\n", "x".repeat(20_000)),
                format!("{length:x}\r\n{INITIALIZE}\r\n0\r\nTrailer\0: x\r\n\r\n"),
            ] {
                let mut client = server.connect();
                let head = format!("POST /mcp HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n", usual());
                client.send(&head);
                client.send_as_far_as_it_is_read(&chunks);
                assert_eq!(client.head().status, 400, "{}", &chunks[..chunks.len().min(300)]);
                client.ends();
            }
        });
        assert_eq!(server.service.stats().sessions, 0);
    })
    .await;
}

async fn a_body_that_is_no_message_is_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let mut client = server.connect();
            let deep = "[".repeat(100_000);
            let bodies: [(&[u8], &str); 8] = [
                (b"", "-32700"),
                (b"\0", "-32700"),
                (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", "-32700"),
                (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0b\"}", "-32700"),
                (deep.as_bytes(), "-32700"),
                (INITIALIZE.as_bytes().split_last().map_or(&[], |(_, cut)| cut), "-32700"),
                (b"{}", "-32600"),
                (b"[]", "-32600"),
            ];
            for (body, code) in bodies {
                client.send(&format!("POST /mcp HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n", usual(), body.len()));
                client.stream.write_all(body).expect("it is written");
                let head = client.head();
                let answer = client.body(&head);
                assert!(head.status == 400 && answer.contains(code), "{:?}: {answer}", body.get(..60));
            }
            client.open();
        });
    })
    .await;
}

async fn half_requests_of_many_clients_delay_no_other<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        beside_a_call(server, || {
            let whole = format!("POST /mcp HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{INITIALIZE}", usual(), INITIALIZE.len());
            let halves: Vec<_> = (0..100)
                .map(|client| {
                    let mut half = server.connect();
                    half.send(&whole[..client * whole.len() / 100]);
                    half
                })
                .collect();
            server.connect().open();
            assert_eq!(server.service.stats().sessions, 2, "the session that was just opened, and that of the call");
            drop(halves);
        });
    })
    .await;
}

async fn a_connection_without_a_whole_request_is_closed_after_a_while<A: Adapter>(stage: Stage<A>) {
    let mut limits = ConnectionLimits::default();
    limits.idle = Duration::from_millis(500);
    let server = Server::start_with(&stage, limits, |_| {}).await;
    play_client(stage, server, |server| {
        let (fields, body) = modern("gated");
        let mut busy = server.connect();
        busy.request("POST", &fields, &body);
        let half = format!("POST /mcp HTTP/1.1\r\n{}Content-Length: 9\r\n\r\n{{", usual());
        for begin in ["", "POST /mcp HTTP/1.1\r\nHost: local", "PRI * HTTP/2.0\r\n\r\nSM", &half] {
            let mut client = server.connect();
            client.send(begin);
            client.ends();
        }
        let mut client = server.connect();
        assert_eq!(client.ask("POST", &[], INITIALIZE).0.status, 200);
        client.ends();
        // A request that is being served keeps its connection.
        server.gate.add_permits(1);
        assert_eq!(busy.head().status, 200);
        busy.chunks_until("done");
    })
    .await;
}

async fn a_connection_beyond_the_limit_ends_the_one_that_is_idle_for_longest<A: Adapter>(stage: Stage<A>) {
    let mut limits = ConnectionLimits::default();
    limits.connections = 1;
    let server = Server::start_with(&stage, limits, |_| {}).await;
    play_client(stage, server, |server| {
        let mut first = server.connect();
        first.open();
        server.connect().open();
        first.ends();
    })
    .await;
}

/// 4 096 connections with a running call each kept everybody else in the queue of the system, without an answer.
async fn connections_with_a_running_call_each_leave_nobody_without_an_answer<A: Adapter>(stage: Stage<A>) {
    let mut limits = ConnectionLimits::default();
    limits.connections = 8;
    let server = Server::start_with(&stage, limits, |config| config.limits.calls = 6).await;
    play_client(stage, server, |server| {
        let (fields, body) = modern("gated");
        let mut busy = Vec::new();
        // All of them come from one address, which may have four connections, and three calls.
        for number in 0..20 {
            let mut client = server.connect();
            client.request("POST", &fields, &body);
            let head = client.head();
            match head.status {
                200 => busy.push((client, head)),
                status => {
                    let wait: u64 = head.field("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
                    assert!([429, 503].contains(&status) && (1..=60).contains(&wait), "{number}: {status}, {wait}");
                }
            }
        }
        assert_eq!((busy.len(), server.service.stats().calls), (3, 3));
        assert!(server.service.stats().connections <= 9);
        server.gate.add_permits(3);
        for (mut client, head) in busy {
            assert!(client.body(&head).contains("done"));
        }
        let (fields, body) = modern("quick");
        assert_eq!(server.connect().ask("POST", &fields, &body).0.status, 200, "there is room again");
    })
    .await;
}

/// Three connections with unfinished bodies took 1.4 GiB; while a call ran on a connection, they never ended.
async fn bodies_that_do_not_arrive_leave_room_for_others_and_end_after_their_time<A: Adapter>(stage: Stage<A>) {
    const LENGTH: usize = 100_000;
    let server = Server::start_with(&stage, ConnectionLimits::default(), |config| {
        (config.limits.request_bytes, config.timeouts.body) = (10 * LENGTH, Duration::from_millis(1500));
    })
    .await;
    play_client(stage, server, |server| {
        let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let unfinished: Vec<_> = (0..30)
            .map(|_| {
                let mut client = server.connect();
                client.send(&format!("POST /mcp HTTP/1.1\r\n{}Content-Length: {LENGTH}\r\n\r\n{{", usual()));
                client
            })
            .collect();
        runtime.block_on(async {
            let stream = ::tokio::net::TcpStream::connect(server.listener.local_addr()).await.expect("a connection");
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.expect("a connection");
            ::tokio::spawn(connection);
            let mut send = |tool: &'static str, is_whole: bool| {
                let (fields, body) = modern(tool);
                let mut request = hyper::Request::post("http://localhost/mcp");
                for (name, value) in USUAL.iter().filter(|(name, _)| *name != "Host").chain(&fields) {
                    request = request.header(*name, *value);
                }
                let length = if is_whole { body.len() } else { LENGTH };
                let body = Sent { text: Some(body.into()), length };
                sender.send_request(request.header("content-length", length).body(body).expect("a request"))
            };
            let gated = send("gated", true).await.expect("a response");
            assert_eq!((gated.status().as_u16(), server.seen()), (200, "started".into()));
            let streams: Vec<_> = (0..20).map(|_| ::tokio::spawn(send("quick", false))).collect();
            assert_eq!(send("quick", true).await.expect("a response").status(), 200, "a small request is served");
            let mut late = 0;
            for stream in streams {
                let response = stream.await.expect("no panic").expect("a response");
                late += usize::from(response.status() == 408);
                assert!([408, 429, 503].contains(&response.status().as_u16()), "{}", response.status());
            }
            assert!(late <= 10, "{late} of the bodies were waited for");
            drop(gated);
        });
        let mut late = 0;
        for mut client in unfinished {
            let head = client.head();
            late += usize::from(head.status == 408);
            assert!([408, 429, 503].contains(&head.status), "{}", head.status);
        }
        assert!((1..=10).contains(&late), "{late} of the bodies were waited for");
        server.gate.add_permits(1);
    })
    .await;
}

/// The body of a request over HTTP/2, which is longer than what is sent.
struct Sent {
    text: Option<hyper::body::Bytes>,
    length: usize,
}

impl hyper::body::Body for Sent {
    type Data = hyper::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        match self.text.take() {
            Some(text) => {
                self.length -= text.len();
                std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(text))))
            }
            None if self.length == 0 => std::task::Poll::Ready(None),
            None => std::task::Poll::Pending,
        }
    }
}

/// Connections that opened 120 calls and closed at once left 90 000 handlers.
async fn calls_of_clients_that_disconnect_at_once_leave_few_handlers<A: Adapter>(stage: Stage<A>) {
    let server = Server::start_with(&stage, ConnectionLimits::default(), |config| {
        (config.limits.calls, config.limits.ended_sessions) = (60, 6);
    })
    .await;
    play_client(stage, server, |server| {
        let (fields, body) = modern("deaf");
        let (quick_fields, quick) = modern("quick");
        for _ in 0..200 {
            let mut client = server.connect();
            client.request("POST", &fields, &body);
            drop(client);
            assert!(server.service.stats().calls <= 60);
        }
        let mut patient = server.connect();
        // It comes from the same address, so it has to come back until the server has noticed that some of the others are gone.
        until("an honest client is served", || {
            let (head, _) = patient.ask("POST", &quick_fields, &quick);
            assert!(head.status == 200 || head.field("retry-after").is_some(), "{}", head.status);
            (head.status == 200).then_some(())
        });
        assert!(server.service.stats().ended_sessions <= 6);
    })
    .await;
}

async fn sessions_without_number_keep_nobody_from_a_handshake<A: Adapter>(stage: Stage<A>) {
    let server = Server::start_with(&stage, ConnectionLimits::default(), |config| config.limits.sessions = 8).await;
    play_client(stage, server, |server| {
        let mut client = server.connect();
        for _ in 0..100 {
            client.open();
        }
        assert_eq!(server.service.stats().sessions, 4, "half of them, as all come from one address");
        let id = client.open();
        let (head, body) = client.ask("POST", &[("Mcp-Session-Id", &id)], &call(1, "quick"));
        assert!(head.status == 200 && body.contains("done"), "{body}");
    })
    .await;
}

async fn closing_ends_streams_and_connections_and_lets_requests_end<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    let server = play_client(stage, server, |server| {
        let mut client = server.connect();
        let id = client.open();
        let mut stream = server.connect();
        stream.request("GET", &[("Mcp-Session-Id", &client.open())], "");
        assert_eq!(stream.head().status, 200);
        let idle = server.connect();
        client.request("POST", &[("Mcp-Session-Id", &id)], &call(1, "gated"));
        let head = client.head();
        client.chunks_until("notifications/progress");
        server.listener.close(PATIENCE);
        assert_eq!(stream.chunk().filter(|chunk| chunk.contains("data: {")), None);
        stream.ends();
        idle.ends();
        server.gate.add_permits(1);
        assert!(client.body(&head).contains("done"));
        client.ends();
    })
    .await;
    server.listener.closed().await;
    assert!(TcpStream::connect(server.listener.local_addr()).is_err(), "nothing listens there");
}

async fn dropping_the_listener_ends_every_connection<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    start_blocking(&*stage.adapter.runtime(), move || {
        let mut client = server.connect();
        let (fields, body) = modern("wait");
        client.request("POST", &fields, &body);
        assert_eq!(server.seen(), "started");
        let Server { listener, seen, service, .. } = server;
        drop(service);
        drop(listener);
        client.ends();
        assert_eq!(seen.recv_timeout(PATIENCE).as_deref(), Ok("Disconnected"));
    })
    .await;
}

/// Connects as a client of one of six kinds.
fn visit(address: SocketAddr, kind: usize) {
    let mut client = Raw::connect(address);
    let (fields, body) = modern(["quick", "wait", "gated"][kind % 3]);
    match kind {
        // Waits for the reply.
        0 => assert!(client.ask("POST", &fields, &body).1.contains("done")),
        // Disconnects before the head (1), or during the stream (2).
        1 => client.request("POST", &fields, &body),
        2 => {
            client.request("POST", &fields, &body);
            client.head();
        }
        // Opens a session, and leaves it open after a call (3), ends it while a call runs (4), or leaves it with an open stream (5).
        3 => {
            let id = client.open();
            let (head, _) = client.ask("POST", &[("Mcp-Session-Id", &id)], &call(1, "quick"));
            assert_eq!(head.status, 200);
        }
        4 => {
            let id = client.open();
            client.request("POST", &[("Mcp-Session-Id", &id)], &call(1, "wait"));
            assert_eq!(Raw::connect(address).ask("DELETE", &[("Mcp-Session-Id", &id)], "").0.status, 204);
        }
        _ => {
            let id = client.open();
            client.request("GET", &[("Mcp-Session-Id", &id)], "");
            client.head();
        }
    }
}

async fn many_clients_leave_only_the_sessions_that_they_did_not_end<A: Adapter>(stage: Stage<A>) {
    const CLIENTS: usize = 6;
    const REPEATS: usize = 10;
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let address = server.listener.local_addr();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || (0..REPEATS * 6).for_each(|visited| visit(address, (client + visited) % 6)));
            }
        });
        let open =
            |sessions| move || ((server.service.stats().sessions, server.service.stats().exchanges) == (sessions, 0)).then_some(());
        // Two of the six kinds of clients do not end their session.
        until("only those sessions are left", open(CLIENTS * REPEATS * 2));
        server.listener.close(PATIENCE);
        until("everything is over", open(0));
    })
    .await;
}

async fn requests_over_http_2_run_at_the_same_time_and_are_cancelled_one_by_one<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage).await;
    play_client(stage, server, |server| {
        let runtime = ::tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let stream = ::tokio::net::TcpStream::connect(server.listener.local_addr()).await.expect("a connection");
            let handshake =
                hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), hyper_util::rt::TokioIo::new(stream));
            let (mut sender, connection) = handshake.await.expect("a connection");
            ::tokio::spawn(connection);
            let mut send = |tool: &'static str| {
                let (fields, body) = modern(tool);
                let mut request = hyper::Request::post("http://localhost/mcp");
                for (name, value) in USUAL.iter().filter(|(name, _)| *name != "Host").chain(&fields) {
                    request = request.header(*name, *value);
                }
                sender.send_request(request.body(body).expect("a request"))
            };
            let waiting = ::tokio::spawn(send("wait"));
            assert_eq!(server.seen(), "started");
            let gated = send("gated").await.expect("a response");
            assert_eq!((gated.status().as_u16(), server.seen()), (200, "started".into()));
            assert_eq!(send("quick").await.expect("a response").status(), 200, "the call overtakes the others");
            // The stream is reset, and the connection goes on.
            waiting.abort();
            assert!(waiting.await.is_err());
            let quick = send("quick").await.expect("a response");
            assert_eq!((quick.status().as_u16(), server.seen()), (200, "Disconnected".into()));
            drop(gated);
            server.gate.add_permits(1);
        });
    })
    .await;
}
