//! Clients over HTTP, with servers of one era and of both, over real sockets: without TLS over HTTP/1.1, and with TLS over HTTP/2 or
//! HTTP/1.1.

use std::future::pending;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use adapter_io::{Error, HttpServerAddress};
use endpoint::{BoxFuture, Call, Client, Context, InputContext, Peer, Service, Tool, ToolError};
use http_service::{ConnectionLimits, HttpListener, HttpServerConfig, HttpService};
use protocol_core::mcp::Era;
use protocol_core::{CallTimeouts, Capabilities, Close, Config, Json, Outcome, Progress, RpcError, Sample, SampleResult};
use tokio::sync::Semaphore;

use super::front::{Authority, EITHER, Front, OLD};
use crate::harness::{Stage, client, identity};
use crate::until::PATIENCE;
use programs::adapter::{Adapter, Link, first};

crate::harness::rows! { $ each_http_client_row ():
    a_call_is_answered_and_a_cancel_reaches_its_handler_in_either_era
    dropping_a_connection_cancels_its_requests
    a_server_that_is_not_there_ends_the_connection_with_an_error
    an_address_a_header_or_a_certificate_that_cannot_be_used_is_refused
    over_tls_calls_share_a_connection_and_are_cancelled_one_by_one
    over_tls_a_server_without_http_2_is_called_in_either_era
    a_proxy_gets_whole_addresses_and_makes_tunnels_for_tls
    more_calls_than_a_connection_has_streams_delay_no_other_call
    many_calls_that_are_cancelled_leave_their_connection_open
    frames_that_a_server_sends_long_after_a_cancel_leave_the_connection_open
    calls_that_are_cancelled_while_a_connection_is_made_leave_the_others_alone
    calls_at_the_same_time_share_one_new_connection
    a_certificate_that_is_unknown_or_of_another_host_is_refused
    clients_without_a_free_lane_do_not_block_their_threads
}

/// A server with the tools `quick`, which answers at once, and `slow`, which reports progress and then waits for a permit or its cancel.
struct Server {
    service: HttpService,
    listener: HttpListener,
    /// Each permit lets one call of `slow` end.
    gate: Arc<Semaphore>,
    /// The numbers of calls of `slow` that have started, and that were cancelled.
    started: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
}

impl Server {
    async fn start<A: Adapter>(stage: &Stage<A>, era: Era, limits: ConnectionLimits) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let [started, cancelled] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let (passes, starts, cancels) = (Arc::clone(&gate), Arc::clone(&started), Arc::clone(&cancelled));
        let service = Service::new(identity().name, identity().version)
            .tool(Tool::new("quick", async |_: Context, (): ()| Ok("done")))
            .tool(Tool::new("slow", move |context: Context, (): ()| {
                let (gate, started, cancelled) = (Arc::clone(&passes), Arc::clone(&starts), Arc::clone(&cancels));
                async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    context.progress(Progress::step(1, 2));
                    let was_cancelled = async {
                        context.cancelled().await;
                        true
                    };
                    let passed = async {
                        gate.acquire().await.expect("it is never closed").forget();
                        false
                    };
                    if first(was_cancelled, passed).await {
                        cancelled.fetch_add(1, Ordering::Relaxed);
                        return Err(ToolError::failed("cancelled"));
                    }
                    Ok("done")
                }
            }));
        let mut config = HttpServerConfig::default();
        config.era = era;
        let service = HttpService::with_config(Arc::new(service), stage.adapter.timed_runtime(), config);
        let listener = stage.adapter.http_listen("127.0.0.1:0".into(), service.clone(), limits).await.expect("a listener");
        Self { service, listener, gate, started, cancelled }
    }

    /// Waits until `calls` calls of `slow` have started.
    async fn until_started<A: Adapter>(&self, stage: &Stage<A>, calls: usize) {
        until(stage, "the handlers run", || self.started.load(Ordering::Relaxed) == calls).await;
    }

    /// Waits until `calls` calls of `slow` were cancelled.
    async fn until_cancelled<A: Adapter>(&self, stage: &Stage<A>, calls: usize) {
        until(stage, "the handlers are cancelled", || self.cancelled.load(Ordering::Relaxed) == calls).await;
    }

    /// Waits until all clients have disconnected.
    async fn until_left<A: Adapter>(&self, stage: &Stage<A>) {
        until(stage, "the clients are gone", || (self.service.stats().sessions, self.service.stats().exchanges) == (0, 0)).await;
    }
}

/// Waits until `is_so` returns `true`. The server and the `Front` run at the same time as the test, so the condition is polled.
async fn until<A: Adapter>(stage: &Stage<A>, what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "not within the time limit: {what}");
        stage.adapter.sleep(Duration::from_millis(5)).await;
    }
}

fn config(era: Era) -> Config {
    let mut config = client();
    config.era = era;
    config.timeouts.call = CallTimeouts::NONE;
    config
}

fn connect<A: Adapter>(stage: &Stage<A>, era: Era, server: HttpServerAddress) -> Link {
    stage.adapter.http_connect(Arc::new(()), config(era), server).expect("an address that can be used")
}

/// The address of a server at `localhost` with TLS, and the root certificate of an authority.
fn secure(address: SocketAddr, authority: &Authority) -> HttpServerAddress {
    let server = HttpServerAddress::new(&format!("https://localhost:{}/mcp", address.port()));
    server.root_certificates(authority.root().0.as_bytes()).expect("a certificate")
}

fn call(peer: &Peer, tool: &str) -> Call {
    peer.call_tool(tool, Json::empty_object()).expect("the connection is open")
}

/// Expects a connection to fail: a call cannot be made, or is lost.
async fn loses_calls(peer: &Peer) {
    if let Ok(call) = peer.call_tool("quick", Json::empty_object()) {
        let done = call.await;
        assert!(done.outcome == Outcome::Lost && done.why.is_some(), "{done:?}");
    }
}

/// Starts a call of `slow`, and waits until it runs.
async fn slow(peer: &Peer) -> Call {
    let mut slow = call(peer, "slow");
    assert!(slow.next_progress().await.is_some(), "a response in parts is read before its end");
    slow
}

/// The text of the result of a call.
async fn text(call: Call) -> String {
    call.await.tool().expect("a result").text().to_string()
}

/// Makes calls of each kind, of which one is cancelled, and closes the connection.
async fn play_client<A: Adapter>(stage: &Stage<A>, server: &Server, Link { peer, end }: Link, spoken: Era) {
    assert_eq!(text(call(&peer, "quick")).await, "done");
    assert_eq!(peer.era(), Some(spoken));
    let [cancelled, other] = [slow(&peer).await, slow(&peer).await];
    cancelled.cancel(None);
    assert_eq!(cancelled.await.outcome, Outcome::Cancelled);
    server.until_cancelled(stage, 1).await;
    assert_eq!(text(call(&peer, "quick")).await, "done", "the call overtakes the other");
    server.gate.add_permits(1);
    assert_eq!(text(other).await, "done");
    peer.close(Close::Now);
    end.await.expect("a proper end");
    server.until_left(stage).await;
    assert_eq!(server.cancelled.load(Ordering::Relaxed), 1);
}

/// The eras of a server and of a client, and the era that they then speak.
const ERAS: [(Era, Era, Era); 4] = [
    (Era::Auto, Era::Auto, Era::Modern),
    (Era::Legacy, Era::Auto, Era::Legacy),
    (Era::Modern, Era::Modern, Era::Modern),
    (Era::Auto, Era::Legacy, Era::Legacy),
];

async fn a_call_is_answered_and_a_cancel_reaches_its_handler_in_either_era<A: Adapter>(stage: Stage<A>) {
    for (at_server, at_client, spoken) in ERAS {
        let server = Server::start(&stage, at_server, ConnectionLimits::default()).await;
        let front = Front::start(server.listener.local_addr(), None);
        let address = HttpServerAddress::new(&format!("http://{}/mcp", front.address));
        let link = connect(&stage, at_client, address.header("Authorization", "Bearer t").expect("a header"));
        play_client(&stage, &server, link, spoken).await;
        let sent = String::from_utf8(front.passed().sent.clone()).expect("text");
        let requests = sent.matches("/mcp HTTP/1.1\r\n").count();
        assert!(requests >= 5, "{sent}");
        assert_eq!(sent.matches("\r\nauthorization: Bearer t\r\n").count(), requests, "{sent}");
    }
}

async fn dropping_a_connection_cancels_its_requests<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let authority = Authority::new("ours");
    let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
    let plain = HttpServerAddress::new(&format!("http://{}/mcp", server.listener.local_addr()));
    for (number, address) in [plain, secure(front.address, &authority)].into_iter().enumerate() {
        let Link { peer, end } = connect(&stage, Era::Auto, address);
        let slow = slow(&peer).await;
        drop(end);
        server.until_cancelled(&stage, number + 1).await;
        assert_eq!(slow.await.outcome, Outcome::Lost);
        server.until_left(&stage).await;
    }
}

async fn a_server_that_is_not_there_ends_the_connection_with_an_error<A: Adapter>(stage: Stage<A>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = HttpServerAddress::new(&format!("http://{}/mcp", listener.local_addr().expect("an address")));
    drop(listener);
    let Link { peer, end } = connect(&stage, Era::Auto, address);
    loses_calls(&peer).await;
    let error = end.await.expect_err("nothing listens there");
    assert!(matches!(error, Error::Server(_)) && error.to_string().contains("refused"), "{error}");
}

async fn an_address_a_header_or_a_certificate_that_cannot_be_used_is_refused<A: Adapter>(stage: Stage<A>) {
    for url in ["", "localhost", "ftp://localhost", "http://"] {
        let refused = stage.adapter.http_connect(Arc::new(()), config(Era::Auto), HttpServerAddress::new(url));
        assert!(matches!(refused.map(|_| ()), Err(Error::Connect { .. })), "{url}");
    }
    let address = || HttpServerAddress::new("https://localhost/mcp");
    assert!(address().header("a b", "x").is_err() && address().header("a", "x\ny").is_err());
    let shown = format!("{:?}", address().header("Authorization", "secret").expect("a header"));
    assert!(!shown.contains("secret"), "{shown}");
    // Neither `Debug` nor an error shows a password.
    for url in
        ["http://user:secret@localhost/mcp", "https://user:secret@localhost:1/", "user:secret@localhost", "ftp://a:se/cret@b"]
    {
        let address = HttpServerAddress::new(url);
        let mut shown = format!("{address:?}");
        let error = stage.adapter.http_connect(Arc::new(()), config(Era::Auto), address).map(|_| ()).expect_err(url);
        shown.push_str(&format!("{error} {error:?}"));
        assert!(matches!(error, Error::Connect { .. }) && !shown.contains("cret"), "{shown}");
    }
    let (pem, der) = Authority::new("ours").root();
    assert!(address().root_certificates(pem.as_bytes()).is_ok() && address().root_certificates(&der).is_ok());
    assert!(address().root_certificates(format!("{pem}{pem}").as_bytes()).is_ok());
    let other_pem = "-----BEGIN RSA PUBLIC KEY-----\nAAAA\n-----END RSA PUBLIC KEY-----\n";
    for malformed in ["", "words", &pem[..pem.len() / 2], &pem.replace("MII", "AAA"), other_pem] {
        let error = address().root_certificates(malformed.as_bytes()).expect_err(malformed);
        assert!(matches!(error, Error::Connect { .. }) && error.to_string().contains("root certificate"), "{error}");
    }
}

async fn over_tls_calls_share_a_connection_and_are_cancelled_one_by_one<A: Adapter>(stage: Stage<A>) {
    let authority = Authority::new("ours");
    for (at_server, at_client, spoken) in ERAS {
        let server = Server::start(&stage, at_server, ConnectionLimits::default()).await;
        let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
        play_client(&stage, &server, connect(&stage, at_client, secure(front.address, &authority)), spoken).await;
        assert_eq!(front.passed().protocols, ["h2"]);
    }
}

async fn over_tls_a_server_without_http_2_is_called_in_either_era<A: Adapter>(stage: Stage<A>) {
    let authority = Authority::new("ours");
    for (at_server, at_client, spoken) in ERAS {
        let server = Server::start(&stage, at_server, ConnectionLimits::default()).await;
        let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", OLD)));
        play_client(&stage, &server, connect(&stage, at_client, secure(front.address, &authority)), spoken).await;
        let passed = front.passed();
        assert!(passed.protocols.len() > 1 && passed.protocols.iter().all(|protocol| protocol == "http/1.1"));
    }
}

/// A proxy that makes tunnels to `server`, whatever address it is asked for. Returns its address, and the heads that it gets.
fn tunnels(server: SocketAddr) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (heads, seen) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                (&client).read_exact(&mut byte).expect("a head");
                head.extend(byte);
            }
            if heads.send(String::from_utf8(head).expect("text")).is_err() {
                return;
            }
            let server = TcpStream::connect(server).expect("the server listens");
            (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("it is written");
            let pair = [(&client, &server), (&server, &client)].map(|(from, to)| (from.try_clone(), to.try_clone()));
            for (from, to) in pair {
                let (mut from, mut to) = (from.expect("a socket"), to.expect("a socket"));
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, seen)
}

async fn a_proxy_gets_whole_addresses_and_makes_tunnels_for_tls<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let front = Front::start(server.listener.local_addr(), None);
    // Nothing listens there: only the proxy is connected to.
    let address = HttpServerAddress::new("http://localhost:1/mcp").proxy(&format!("http://user:word@{}", front.address));
    play_client(&stage, &server, connect(&stage, Era::Auto, address), Era::Modern).await;
    let sent = String::from_utf8(front.passed().sent.clone()).expect("text");
    let requests = sent.matches("POST http://localhost:1/mcp HTTP/1.1\r\n").count();
    assert!(requests >= 5, "{sent}");
    assert_eq!(sent.matches("\r\nproxy-authorization: Basic dXNlcjp3b3Jk\r\n").count(), requests, "{sent}");

    let authority = Authority::new("ours");
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
    let (proxy, heads) = tunnels(front.address);
    let address = secure(front.address, &authority).proxy(&format!("http://user:word@{proxy}"));
    play_client(&stage, &server, connect(&stage, Era::Auto, address), Era::Modern).await;
    let head = heads.try_recv().expect("a tunnel");
    assert!(head.starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", front.address.port())), "{head}");
    assert!(head.contains("Basic dXNlcjp3b3Jk"), "{head}");

    let error = stage.adapter.http_connect(
        Arc::new(()),
        config(Era::Auto),
        HttpServerAddress::new("http://a.example/mcp").proxy("socks5://b"),
    );
    assert!(error.is_err_and(|error| error.to_string().contains("only proxies over http:// are supported")));
}

async fn more_calls_than_a_connection_has_streams_delay_no_other_call<A: Adapter>(stage: Stage<A>) {
    const CALLS: usize = 150;
    let mut limits = ConnectionLimits::default();
    limits.streams = 100;
    for era in [Era::Modern, Era::Legacy] {
        let server = Server::start(&stage, Era::Auto, limits).await;
        let authority = Authority::new("ours");
        let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
        let Link { peer, end } = connect(&stage, era, secure(front.address, &authority));
        assert_eq!(text(call(&peer, "quick")).await, "done");
        let mut calls: Vec<Call> = (0..CALLS).map(|_| call(&peer, "slow")).collect();
        for call in &mut calls {
            assert!(call.next_progress().await.is_some());
        }
        assert_eq!(text(call(&peer, "quick")).await, "done");
        assert_eq!(front.passed().protocols, ["h2", "h2"]);
        server.gate.add_permits(CALLS);
        for call in calls {
            assert_eq!(text(call).await, "done");
        }
        peer.close(Close::Now);
        end.await.expect("a proper end");
    }
}

async fn many_calls_that_are_cancelled_leave_their_connection_open<A: Adapter>(stage: Stage<A>) {
    const CALLS: usize = 200;
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let authority = Authority::new("ours");
    let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
    let Link { peer, end } = connect(&stage, Era::Modern, secure(front.address, &authority));
    let other = slow(&peer).await;
    for _ in 0..CALLS {
        let slow = slow(&peer).await;
        slow.cancel(None);
        assert_eq!(slow.await.outcome, Outcome::Cancelled);
    }
    server.until_cancelled(&stage, CALLS).await;
    server.gate.add_permits(1);
    assert_eq!(text(other).await, "done");
    assert_eq!(front.passed().protocols, ["h2"]);
    peer.close(Close::Now);
    end.await.expect("a proper end");
}

async fn frames_that_a_server_sends_long_after_a_cancel_leave_the_connection_open<A: Adapter>(stage: Stage<A>) {
    const ROUNDS: usize = 12;
    const CALLS: usize = 90;
    /// The time for which the client ignores late frames of a stream that it has reset.
    const IGNORED: Duration = Duration::from_secs(1);
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let authority = Authority::new("ours");
    let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
    let Link { peer, end } = connect(&stage, Era::Modern, secure(front.address, &authority));
    let other = slow(&peer).await;
    front.set_paused(true);
    for round in 1..=ROUNDS {
        let calls: Vec<Call> = (0..CALLS).map(|_| call(&peer, "slow")).collect();
        server.until_started(&stage, 1 + round * CALLS).await;
        drop(calls);
        server.until_cancelled(&stage, round * CALLS).await;
    }
    stage.adapter.sleep(IGNORED + IGNORED / 4).await;
    let last = call(&peer, "slow");
    server.until_started(&stage, 2 + ROUNDS * CALLS).await;
    front.set_paused(false);
    server.gate.add_permits(2);
    assert_eq!((text(other).await, text(last).await), ("done".into(), "done".into()));
    assert_eq!(front.passed().protocols, ["h2"]);
    peer.close(Close::Now);
    end.await.expect("a proper end");
}

async fn calls_that_are_cancelled_while_a_connection_is_made_leave_the_others_alone<A: Adapter>(stage: Stage<A>) {
    const ROUNDS: u64 = 40;
    const CALLS: usize = 8;
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let authority = Authority::new("ours");
    let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
    for round in 0..ROUNDS {
        let Link { peer, end } = connect(&stage, Era::Modern, secure(front.address, &authority));
        let calls: Vec<Call> = (0..CALLS).map(|_| call(&peer, "quick")).collect();
        // Each round cancels at another time of the TLS handshake.
        stage.adapter.sleep(Duration::from_micros(round * 250)).await;
        calls.iter().step_by(2).for_each(|call| call.cancel(None));
        for call in calls.into_iter().skip(1).step_by(2) {
            assert_eq!(text(call).await, "done");
        }
        peer.close(Close::Now);
        end.await.expect("a proper end");
    }
}

async fn calls_at_the_same_time_share_one_new_connection<A: Adapter>(stage: Stage<A>) {
    const CALLS: usize = 50;
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let authority = Authority::new("ours");
    let front = Front::start(server.listener.local_addr(), Some(authority.server("localhost", EITHER)));
    let Link { peer, end } = connect(&stage, Era::Modern, secure(front.address, &authority));
    let calls: Vec<Call> = (0..CALLS).map(|_| call(&peer, "quick")).collect();
    for call in calls {
        assert_eq!(text(call).await, "done");
    }
    assert_eq!(front.passed().protocols, ["h2"]);
    peer.close(Close::Now);
    end.await.expect("a proper end");
}

async fn a_certificate_that_is_unknown_or_of_another_host_is_refused<A: Adapter>(stage: Stage<A>) {
    let server = Server::start(&stage, Era::Auto, ConnectionLimits::default()).await;
    let [authority, other] = ["ours", "theirs"].map(Authority::new);
    for (host, trusted, why) in [("localhost", &other, "UnknownIssuer"), ("example.com", &authority, "not valid for name")] {
        let front = Front::start(server.listener.local_addr(), Some(authority.server(host, EITHER)));
        let Link { peer, end } = connect(&stage, Era::Auto, secure(front.address, trusted));
        loses_calls(&peer).await;
        let error = end.await.expect_err("it is not trusted").to_string();
        assert!(error.contains("certificate") && error.contains(why), "{error}");
        assert!(front.passed().sent.is_empty(), "nothing is sent to a server that is not trusted");
    }
}

/// Each server makes an input request in one HTTP session after another. No input request is answered, so each one keeps the lane of its
/// session. The client has two lanes, the channel and one more, so none is free for the input request in the third session.
async fn clients_without_a_free_lane_do_not_block_their_threads<A: Adapter>(stage: Stage<A>) {
    /// More clients than threads.
    const CLIENTS: usize = 4;
    struct Silent;
    impl Client for Silent {
        fn capabilities(&self) -> Capabilities {
            let mut capabilities = Capabilities::default();
            capabilities.sampling = true;
            capabilities
        }

        fn sample(&self, _: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
            Box::pin(pending())
        }
    }
    let (mut links, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let gets = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&gets);
        let address = scripted(move |method, body| {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\nmcp-session-id: s\r\ncontent-type:";
            match method {
                // The stream ends after its input request, and cannot be resumed.
                "GET" if counted.fetch_add(1, Ordering::Relaxed) % 2 == 0 => {
                    let params = r#"{"messages":[],"maxTokens":1}"#;
                    let question = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{params}}}"#);
                    format!("{head} text/event-stream\r\n\r\nretry: 10\ndata: {question}\n\n")
                }
                // The server has forgotten the session, so the client opens another.
                "GET" => "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
                _ if body.contains(r#""initialize""#) => {
                    let result = r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
                    format!("{head} application/json\r\n\r\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}")
                }
                _ => "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
            }
        });
        let mut config = config(Era::Legacy);
        config.limits.lanes = 1;
        let server = HttpServerAddress::new(&format!("http://{address}/mcp"));
        links.push(stage.adapter.http_connect(Arc::new(Silent), config, server).expect("an address that can be used"));
        counts.push(gets);
    }
    for gets in &counts {
        // The third input request is the response to the fifth GET.
        until(&stage, "the server asks", || gets.load(Ordering::Relaxed) >= 5).await;
    }
    // Gives the clients time to read the last input request.
    stage.adapter.sleep(Duration::from_millis(200)).await;
    for Link { peer, end } in links {
        peer.close(Close::Now);
        end.await.expect("a proper end");
    }
}

/// Serves raw HTTP/1.1. `respond` gets the method and the body of each request, and returns the whole response.
fn scripted(respond: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let respond = Arc::new(respond);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let respond = Arc::clone(&respond);
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or_default()];
                // Fails if the client has disconnected, here and below.
                let _ = reader.read_exact(&mut body);
                let method = head.split(' ').next().unwrap_or_default();
                let _ = stream.write_all(respond(method, &String::from_utf8_lossy(&body)).as_bytes());
            });
        }
    });
    address
}
