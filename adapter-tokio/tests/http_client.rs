//! A client over HTTP at a server of sessions, over real sockets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use adapter_tokio::{Connection, Error, HttpServerAddress, http_connect};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use protocol_core::http::{
    Headers, HttpContext, HttpEvent, HttpExchangeId, HttpRequest, HttpServer, HttpServerConfig, Method, RequestHead, ResponsePart,
    SessionKey,
};
use protocol_core::mcp::Era;
use protocol_core::{
    Bytes, CallTimeouts, Config, Event, Identity, InboundId, Instant, Json, Outcome, Progress, Reply, Session, ToolOutput,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Random bytes that are all different.
#[derive(Default)]
struct Numbers(u8);

impl HttpContext for Numbers {
    fn random(&mut self) -> [u8; 16] {
        self.0 += 1;
        [self.0; 16]
    }
}

/// A server with the tools `echo`, which answers at once, and `slow`, which reports progress and then waits for its cancel.
struct Server {
    http: HttpServer,
    context: Numbers,
    sessions: BTreeMap<SessionKey, Session>,
    slow: Vec<(SessionKey, InboundId)>,
    bodies: BTreeMap<HttpExchangeId, mpsc::UnboundedSender<ResponsePart>>,
    cancelled: usize,
    ended: usize,
    /// The values of `Authorization` of all requests.
    authorizations: Vec<String>,
}

const NOW: Instant = Instant::ZERO;

impl Server {
    fn pump(&mut self) {
        while let Some(event) = self.http.poll_event() {
            match event {
                HttpEvent::Open { session, era } => {
                    let mut config = Config::mcp_server(Identity::new("server", "1"));
                    config.era = era.config();
                    self.sessions.insert(session, Session::new(config, NOW));
                }
                HttpEvent::Frame { session, exchange, lane, frame } => {
                    let Some(real) = self.sessions.get_mut(&session) else { continue };
                    let received = real.handle_frame(frame, lane, NOW).expect("there is room");
                    self.http.handle_received(exchange, received.replies, NOW);
                    self.pump_session(session);
                }
                HttpEvent::Close { session } => {
                    self.sessions.remove(&session);
                    self.ended += 1;
                    let before = self.slow.len();
                    self.slow.retain(|(owner, _)| *owner != session);
                    self.cancelled += before - self.slow.len();
                }
                HttpEvent::Readable { exchange } => {
                    while let Some(part) = self.http.poll_response(exchange, NOW) {
                        if let Some(body) = self.bodies.get(&exchange) {
                            let _ = body.send(part);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn pump_session(&mut self, key: SessionKey) {
        let session = self.sessions.get_mut(&key).expect("it lives");
        let mut has_cancelled = false;
        while let Some(event) = session.poll_event() {
            match event {
                Event::Request { id, request, .. } => {
                    if request.params().member("name").and_then(|name| name.as_text()).is_some_and(|name| *name == *"slow") {
                        session.progress(id, Progress::count(1, 2), NOW).expect("it is live");
                        self.slow.push((key, id));
                    } else {
                        session.respond(id, Reply::Tool(ToolOutput::text("hello")), NOW).expect("it is live");
                    }
                }
                Event::Cancelled { id, .. } => {
                    has_cancelled = true;
                    self.slow.retain(|slow| *slow != (key, id));
                    self.cancelled += 1;
                    let _ = session.respond(id, Reply::Done, NOW);
                }
                _ => {}
            }
        }
        while let Some(transmit) = session.poll_transmit() {
            self.http.handle_transmit(key, transmit, NOW);
        }
        if has_cancelled {
            for lane in self.http.lanes_at_work(key).collect::<Vec<_>>() {
                self.http.handle_settled(key, lane, NOW);
            }
        }
    }
}

/// The body of a response. When it is dropped before its end, the exchange is lost.
struct Parts {
    server: Arc<Mutex<Server>>,
    exchange: HttpExchangeId,
    parts: mpsc::UnboundedReceiver<ResponsePart>,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.parts.poll_recv(cx).map(|part| match part {
            Some(ResponsePart::Chunk(chunk)) => Some(Ok(Frame::data(chunk))),
            _ => None,
        })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let mut server = self.server.lock().unwrap();
        server.bodies.remove(&self.exchange);
        server.http.handle_lost(self.exchange, NOW);
        server.pump();
    }
}

async fn answer(server: Arc<Mutex<Server>>, request: Request<Incoming>) -> Result<Response<Parts>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let fields: Headers<'_> = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let (sender, parts) = mpsc::unbounded_channel();
    let exchange = {
        let mut server = server.lock().unwrap();
        let server = &mut *server;
        server.authorizations.extend(head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned()));
        let request = HttpRequest::new(RequestHead::new(Method::from_name(head.method.as_str()), fields), body);
        let exchange = server.http.handle_request(&request, &mut server.context, NOW);
        server.bodies.insert(exchange, sender);
        server.pump();
        exchange
    };
    let mut parts = Parts { server, exchange, parts };
    let Some(ResponsePart::Head { head, .. }) = parts.parts.recv().await else { panic!("a head") };
    let mut response = Response::builder().status(head.status);
    for (name, value) in head.headers.iter() {
        response = response.header(name, value);
    }
    Ok(response.body(parts).expect("a proper head"))
}

/// Starts a server that speaks these eras.
async fn serve(era: Era) -> (Arc<Mutex<Server>>, SocketAddr) {
    let mut config = HttpServerConfig::default();
    config.era = era;
    let server = Arc::new(Mutex::new(Server {
        http: HttpServer::new(config, NOW),
        context: Numbers::default(),
        sessions: BTreeMap::new(),
        slow: Vec::new(),
        bodies: BTreeMap::new(),
        cancelled: 0,
        ended: 0,
        authorizations: Vec::new(),
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shared = Arc::clone(&server);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = Arc::clone(&shared);
            let service = service_fn(move |request| answer(Arc::clone(&server), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (server, address)
}

fn connect(address: SocketAddr, era: Era) -> Connection {
    let server = HttpServerAddress::new(&format!("http://{address}/mcp")).header("Authorization", "Bearer t").expect("a header");
    http_connect(Arc::new(()), config(era), server).expect("an address")
}

fn config(era: Era) -> Config {
    let mut config = Config::mcp_client(Identity::new("client", "1"));
    config.era = era;
    config.timeouts.call = CallTimeouts::NONE;
    config
}

/// Waits for something that the server sees a moment later.
async fn until(server: &Mutex<Server>, is_so: impl Fn(&Server) -> bool) {
    let waits = async {
        while !is_so(&server.lock().unwrap()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waits).await.expect("it comes about");
}

#[tokio::test]
async fn a_call_is_answered_and_a_cancel_reaches_its_handler_in_either_era() {
    for (at_server, at_client, spoken) in [
        (Era::Auto, Era::Auto, Era::Modern),
        (Era::Legacy, Era::Auto, Era::Legacy),
        (Era::Modern, Era::Modern, Era::Modern),
        (Era::Auto, Era::Legacy, Era::Legacy),
    ] {
        let (server, address) = serve(at_server).await;
        let connection = connect(address, at_client);
        let peer = connection.peer();
        let result = peer.call_tool("echo", Json::empty_object()).unwrap().await.tool().unwrap();
        assert_eq!(result.text(), "hello");
        assert_eq!(peer.era(), Some(spoken));
        let mut slow = peer.call_tool("slow", Json::empty_object()).unwrap();
        assert!(slow.next_progress().await.is_some(), "a response in parts is read before its end");
        slow.cancel(None);
        assert_eq!(slow.await.outcome, Outcome::Cancelled);
        until(&server, |server| server.cancelled == 1).await;
        peer.close(protocol_core::Close::Now);
        connection.await.expect("a proper end");
        until(&server, |server| server.sessions.is_empty()).await;
        let server = server.lock().unwrap();
        assert!(server.authorizations.len() >= 3 && server.authorizations.iter().all(|value| value == "Bearer t"));
    }
}

#[tokio::test]
async fn a_connection_that_is_dropped_gives_its_requests_up() {
    let (server, address) = serve(Era::Auto).await;
    let connection = connect(address, Era::Auto);
    let mut slow = connection.peer().call_tool("slow", Json::empty_object()).unwrap();
    assert!(slow.next_progress().await.is_some());
    drop(connection);
    until(&server, |server| server.cancelled == 1).await;
    assert_eq!(slow.await.outcome, Outcome::Lost);
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_the_connection_with_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let connection = connect(address, Era::Auto);
    let call = connection.peer().call_tool("echo", Json::empty_object()).unwrap();
    assert_eq!(call.await.outcome, Outcome::Lost);
    assert!(matches!(connection.await, Err(Error::Broken { .. })));
}

#[tokio::test]
async fn an_address_or_a_header_that_cannot_be_used_is_refused() {
    for url in ["", "localhost", "ftp://localhost", "http://"] {
        let refused = http_connect(Arc::new(()), config(Era::Auto), HttpServerAddress::new(url));
        assert!(matches!(refused, Err(Error::Connect { .. })), "{url}");
    }
    let is_supported = http_connect(Arc::new(()), config(Era::Auto), HttpServerAddress::new("https://localhost:1/mcp")).is_ok();
    assert_eq!(is_supported, cfg!(feature = "http-client-tls"));
    let address = || HttpServerAddress::new("http://localhost/mcp");
    assert!(address().header("a b", "x").is_err() && address().header("a", "x\ny").is_err());
    let shown = format!("{:?}", address().header("Authorization", "secret").unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}
