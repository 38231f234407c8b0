//! A client of Streamable HTTP: an endpoint, an [`HttpClient`] and a pool of connections, driven by one task.
//!
//! Each HTTP request runs in a task of its own, which ends when it is given up; that closes its connection. The parts of all responses come
//! by one queue, which is bounded, so that a server is read no faster than its frames are handled.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use endpoint::{Client, Endpoint};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use protocol_core::drive::{Machine as _, Timer as _};
use protocol_core::http::{
    Headers, HttpClient, HttpClientConfig, HttpClientEvent, HttpClientRequest, HttpFailure, HttpFault, HttpRequestId, ResponseHead,
};
use protocol_core::time::earlier;
use protocol_core::{Bytes, CloseReason, Config, ExchangeId, Full as NoRoom, Gone, Instant, Lane, TransportEnd};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::{Alarm, Clock, Connection, Error};

/// The longest time that a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// The number of parts of responses that wait to be handled.
const PARTS: usize = 16;

/// An HTTP endpoint of a server, and the fields of every request to it.
#[derive(Clone, Debug)]
pub struct HttpServerAddress {
    config: HttpClientConfig,
    headers: HeaderMap,
}

impl HttpServerAddress {
    /// An endpoint at an address of the form `http://HOST/PATH`, or with the feature `http-client-tls` `https://HOST/PATH`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { config: HttpClientConfig::new(url), headers: HeaderMap::new() }
    }

    /// Adds a field to every request, such as `Authorization`. It follows redirections, which never leave the origin.
    ///
    /// # Errors
    /// [`Error::Connect`] if the name or the value cannot stand in a head.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let name = HeaderName::try_from(name).map_err(|_| self.invalid("a header has an invalid name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| self.invalid("a header has an invalid value"))?;
        // It is not shown by `Debug`.
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }

    /// Changes the configuration of the client.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut HttpClientConfig)) -> Self {
        change(&mut self.config);
        self
    }

    fn invalid(&self, why: &'static str) -> Error {
        Error::connecting_to(&self.config.url)(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// Connects to an MCP server over Streamable HTTP as a caller, in a new task. `client` answers the input requests of the server.
///
/// The era is that of [`Config::era`]; with [`Auto`](protocol_core::mcp::Era::Auto) the server is asked which it speaks. Nothing is sent
/// before this function returns: a server that cannot be reached, or does not speak MCP, ends the connection with [`Error::Broken`]. A call
/// that the server has not accepted ends with an error that names the status.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use adapter_tokio::{HttpServerAddress, http_connect};
/// use protocol_core::{Config, Identity, Json, mcp::Era};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = Config::mcp_client(Identity::new("client", "1.0"));
/// config.era = Era::Auto;
/// let server = HttpServerAddress::new("http://localhost:8080/mcp").header("Authorization", "Bearer TOKEN")?;
/// let connection = http_connect(Arc::new(()), config, server)?;
/// let result = connection.peer().call_tool("greet", Json::empty_object())?.await.tool()?;
/// println!("{}", result.text());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Connect`] if the address is malformed, or if the system has no root certificates for one that begins with `https://`.
///
/// # Panics
/// Outside of a tokio runtime.
#[track_caller]
pub fn http_connect(client: Arc<dyn Client>, config: Config, server: HttpServerAddress) -> Result<Connection, Error> {
    let clock = Clock::start();
    let uri: Uri = server.config.url.parse().map_err(|_| server.invalid("the address is malformed"))?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(server.invalid("the address has no scheme or no host"));
    };
    let connector = connector(&scheme).map_err(Error::connecting_to(&server.config.url))?;
    let alarm = clock.alarm();
    let now = alarm.now();
    let invalid = server.invalid("the address is malformed");
    let http = HttpClient::new(server.config, now).map_err(|_| invalid)?;
    let endpoint = Endpoint::client(client, config, Arc::new(clock));
    let web = legacy::Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
    let (sender, receiver) = mpsc::channel(PARTS);
    let peer = endpoint.peer();
    let mut driver = Driver {
        endpoint,
        http,
        web,
        scheme,
        authority,
        headers: server.headers,
        alarm,
        requests: HashMap::new(),
        sender,
        receiver,
        waiting: None,
        end: None,
        failure: None,
        last_loss: String::new(),
    };
    let closed = peer.clone();
    let task = tokio::spawn(async move {
        let end = poll_fn(|cx| driver.poll(cx)).await;
        drop(driver);
        closed.closed().await;
        end
    });
    Ok(Connection::of(peer, task))
}

/// A part of a response.
enum Part {
    Head(StatusCode, HeaderMap),
    Chunk(Bytes),
    End,
    /// The connection could not be made, or broke, for this reason.
    Loss(String),
}

/// A frame, and the request on whose stream it came.
struct Arrived {
    frame: Bytes,
    lane: Lane,
    exchange: Option<ExchangeId>,
}

type Web = legacy::Client<Connector, Full<Bytes>>;
#[cfg(not(feature = "http-client-tls"))]
type Connector = HttpConnector;
#[cfg(feature = "http-client-tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;

/// A connector for addresses of this scheme.
fn connector(scheme: &Scheme) -> io::Result<Connector> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    over_tls(connector, *scheme == Scheme::HTTPS)
}

#[cfg(not(feature = "http-client-tls"))]
fn over_tls(connector: HttpConnector, is_wanted: bool) -> io::Result<Connector> {
    if is_wanted {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "TLS is not supported (feature `http-client-tls`)"));
    }
    Ok(connector)
}

#[cfg(feature = "http-client-tls")]
fn over_tls(mut connector: HttpConnector, is_wanted: bool) -> io::Result<Connector> {
    use hyper_rustls::ConfigBuilderExt as _;
    use rustls::{ClientConfig, RootCertStore};

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(io::Error::other)?;
    // Reading the certificates of the system takes a while.
    let roots = if is_wanted { versions.with_native_roots()? } else { versions.with_root_certificates(RootCertStore::empty()) };
    connector.enforce_http(false);
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(roots.with_no_client_auth());
    Ok(builder.https_or_http().enable_http1().wrap_connector(connector))
}
type Parts = mpsc::Sender<(HttpRequestId, Part)>;

struct Driver {
    endpoint: Endpoint,
    http: HttpClient,
    web: Web,
    scheme: Scheme,
    authority: Authority,
    headers: HeaderMap,
    alarm: Alarm,
    /// The tasks of requests that are not over.
    requests: HashMap<HttpRequestId, AbortHandle>,
    sender: Parts,
    receiver: mpsc::Receiver<(HttpRequestId, Part)>,
    /// A frame for which the session has no room.
    waiting: Option<Arrived>,
    end: Option<CloseReason>,
    failure: Option<Error>,
    /// The reason of the last loss of a connection.
    last_loss: String,
}

impl Driver {
    /// Runs until the session and the client are closed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<CloseReason, Error>> {
        loop {
            // First, so that a change by another thread after the endpoint was read causes a wake.
            self.endpoint.register(cx.waker());
            let now = self.alarm.now();
            self.endpoint.handle_timeout(now);
            self.http.handle_timeout(now);
            let mut has_moved = false;
            while let Some(transmit) = self.endpoint.poll_transmit() {
                self.http.handle_transmit(transmit, now);
                has_moved = true;
            }
            while self.waiting.is_none()
                && let Some(event) = self.http.poll_event()
            {
                self.follow(event, now);
                has_moved = true;
            }
            if let Some(reason) = self.endpoint.poll_event() {
                self.end = Some(reason);
                self.waiting = None;
                self.http.close(now);
                continue;
            }
            if let Some(arrived) = self.waiting.take() {
                has_moved |= self.endpoint.wants_input();
                self.pass(arrived, now);
            }
            if has_moved {
                continue;
            }
            if let Some(reason) = self.end.filter(|_| self.http.is_closed()) {
                return Poll::Ready(self.failure.take().map_or(Ok(reason), Err));
            }
            if self.waiting.is_none()
                && let Poll::Ready(Some((request, part))) = self.receiver.poll_recv(cx)
            {
                self.take_part(request, part, now);
                continue;
            }
            let until = earlier(self.endpoint.poll_timeout(), self.http.poll_timeout());
            if until.is_some_and(|at| self.alarm.poll_until(cx, at).is_ready()) {
                continue;
            }
            return Poll::Pending;
        }
    }

    fn follow(&mut self, event: HttpClientEvent, now: Instant) {
        match event {
            HttpClientEvent::Send(request) => self.send(request),
            HttpClientEvent::Abort(request) => {
                if let Some(task) = self.requests.remove(&request) {
                    task.abort();
                }
            }
            HttpClientEvent::Frame { frame, lane, exchange } => self.pass(Arrived { frame, lane, exchange }, now),
            HttpClientEvent::Lost(exchange) => {
                // The session may have ended the call by itself.
                let _ = self.endpoint.handle_gone(Gone::Response(exchange), now);
            }
            HttpClientEvent::Writable(is_writable) => {
                // Fails only on a session that is closed.
                let _ = self.endpoint.set_writable(Lane::CHANNEL, is_writable, now);
            }
            HttpClientEvent::Failed(failure) => {
                self.failure = Some(match failure {
                    HttpFailure::Refused(HttpFault::Disconnected) => Error::broken(std::mem::take(&mut self.last_loss)),
                    failure => Error::broken(failure),
                });
                self.endpoint.handle_end(TransportEnd::Failed, now);
            }
            _ => {}
        }
    }

    fn pass(&mut self, arrived: Arrived, now: Instant) {
        let Arrived { frame, lane, exchange } = arrived;
        if let Err(NoRoom(frame)) = self.endpoint.handle_frame_within(frame, lane, exchange, now) {
            self.waiting = Some(Arrived { frame, lane, exchange });
        }
    }

    fn send(&mut self, request: HttpClientRequest) {
        let id = request.id;
        let request = self.request_of(request);
        let (web, sender) = (self.web.clone(), self.sender.clone());
        let task = tokio::spawn(async move {
            let last = match request {
                Some(request) => exchange(&web, request, id, &sender).await,
                None => Part::Loss("the request is malformed".to_owned()),
            };
            // The driver is gone, or has read all.
            let _ = sender.send((id, last)).await;
        });
        self.requests.insert(id, task.abort_handle());
    }

    /// The request as hyper takes it. `None` if it cannot stand in a head, which the client has checked.
    fn request_of(&self, request: HttpClientRequest) -> Option<Request<Full<Bytes>>> {
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(&*request.target);
        let method = Method::from_bytes(request.method.as_str().as_bytes()).ok()?;
        let mut built = Request::builder().method(method).uri(uri.build().ok()?).body(Full::new(request.body)).ok()?;
        let headers = built.headers_mut();
        for (name, value) in request.headers.iter() {
            headers.append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
        headers.extend(self.headers.clone());
        Some(built)
    }

    fn take_part(&mut self, request: HttpRequestId, part: Part, now: Instant) {
        match part {
            Part::Head(status, fields) => {
                let fields: Headers<'_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
                self.http.handle_head(request, &ResponseHead::new(status.as_u16(), fields), now);
            }
            Part::Chunk(chunk) => self.http.handle_chunk(request, chunk, now),
            Part::End => {
                self.requests.remove(&request);
                self.http.handle_end(request, now);
            }
            Part::Loss(why) => {
                self.requests.remove(&request);
                self.last_loss = why;
                self.http.handle_loss(request, now);
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.requests.values().for_each(AbortHandle::abort);
    }
}

/// Makes a request, and passes on the parts of its response but for the last, which is returned.
async fn exchange(web: &Web, request: Request<Full<Bytes>>, id: HttpRequestId, parts: &Parts) -> Part {
    let response = match web.request(request).await {
        Ok(response) => response,
        Err(error) => return Part::Loss(causes(&error)),
    };
    let (head, mut body) = response.into_parts();
    if parts.send((id, Part::Head(head.status, head.headers))).await.is_err() {
        // The driver is gone.
        return Part::End;
    }
    while !body.is_end_stream() {
        match body.frame().await {
            None => break,
            Some(Err(error)) => return Part::Loss(causes(&error)),
            Some(Ok(frame)) => {
                // Trailers mean nothing here.
                let Ok(chunk) = frame.into_data() else { continue };
                if !chunk.is_empty() && parts.send((id, Part::Chunk(chunk))).await.is_err() {
                    return Part::End;
                }
            }
        }
    }
    Part::End
}

/// An error with its causes, in a line. Those of hyper name no cause by themselves.
fn causes(error: &dyn StdError) -> String {
    let all = std::iter::successors(Some(error), |error: &&dyn StdError| (*error).source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
