//! A client of Streamable HTTP: an endpoint, an [`HttpClient`] and pools of connections, driven by one task.
//!
//! Each HTTP request runs in a task of its own. When the request is given up, the task ends, which closes its connection over HTTP/1.1, and
//! resets its stream over HTTP/2. The parts of all responses pass through one queue. It is bounded, so that responses are read no faster
//! than their frames are handled.

mod address;
mod connector;
mod limited;
mod pools;
mod proxy;
#[cfg(feature = "http-client-tls")]
mod tls;

use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use endpoint::{Client, Endpoint, Peer, TimedRuntime};
use futures_channel::mpsc;
use futures_util::Stream as _;
use futures_util::future::{AbortHandle, abortable};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Method, Request, StatusCode, Uri};
use protocol_core::drive::{Machine as _, Timer};
use protocol_core::http::{Headers, HttpClient, HttpClientEvent, HttpClientRequest, HttpRequestId, ResponseHead};
use protocol_core::time::earlier;
use protocol_core::url::{Url, UrlFault};
use protocol_core::{Bytes, CloseReason, Config, ExchangeId, Full as NoRoom, Instant, Lane};

pub use self::address::HttpServerAddress;
use self::address::OnResume;
pub use self::connector::{HTTP_CONNECT_TIMEOUT, HTTP_DEAD_TIMEOUT, HttpConnector};
use self::pools::{Pools, Taken, chain};
#[cfg(feature = "http-client-tls")]
use self::proxy::OverTls;
use self::proxy::{Proxied, authorization};
use crate::Error;

/// The number of parts of responses that may wait to be handled, in addition to one for each request.
const PARTS: usize = 16;
/// The maximum number of parts that are handled in one turn.
const PARTS_PER_TURN: usize = 64;

/// Makes a client of an MCP server over Streamable HTTP, with connections of `connector` and tasks of `runtime`. `client` answers the input
/// requests of the server. `hyper_timer` makes the timers of hyper, by which connections over HTTP/2 are tested and unused connections are
/// closed. A connection breaks if the server reads nothing for 30 s while bytes wait to be sent.
///
/// The future runs the client. Its output is the reason for which the session closed, or [`Error::Server`]. If the future is dropped, all
/// requests are given up.
///
/// # Errors
/// [`Error::Connect`] if the address is malformed; if a proxy is to be used whose address does not begin with `http://`; and, for an
/// address that begins with `https://`, if there are no root certificates or the feature `http-client-tls` is off.
pub fn http_client<C: HttpConnector>(
    client: Arc<dyn Client>,
    config: Config,
    server: HttpServerAddress,
    runtime: Arc<dyn TimedRuntime>,
    connector: C,
    hyper_timer: impl hyper::rt::Timer + Clone + Send + Sync + 'static,
) -> Result<(Peer, impl Future<Output = Result<CloseReason, Error>> + Send + 'static), Error> {
    let malformed = || server.invalid("the address is malformed");
    let url = Url::parse(&server.config.url).map_err(|fault| match fault {
        UrlFault::Relative | UrlFault::Host => server.invalid("the address has no scheme or no host"),
        UrlFault::UserName => server.invalid("a name and a password belong into the header `Authorization`"),
        _ => malformed(),
    })?;
    // Any other scheme is refused below.
    let scheme = if url.scheme.eq_ignore_ascii_case("https") { Scheme::HTTPS } else { Scheme::HTTP };
    let authority = Authority::try_from(url.authority).map_err(|_| malformed())?;
    let origin = Uri::builder().scheme(scheme.clone()).authority(authority.clone()).path_and_query("/").build();
    let origin = origin.map_err(|_| malformed())?;
    let proxy = server.proxy.of(&origin).map_err(Error::connecting_to(server.shown()))?;
    let mut headers = server.headers.clone();
    headers.extend(proxy.as_ref().and_then(|proxy| authorization(proxy, &origin)).map(|value| (PROXY_AUTHORIZATION, value)));
    let connector =
        over_tls(Proxied::new(connector, proxy), &server, scheme == Scheme::HTTPS).map_err(Error::connecting_to(server.shown()))?;
    let timer = runtime.timer();
    let now = timer.now();
    let invalid = malformed();
    let http = HttpClient::new(server.config, now).map_err(|_| invalid)?;
    let endpoint = Endpoint::client(client, config, Arc::clone(&runtime) as _);
    let (sender, receiver) = mpsc::channel(PARTS);
    let pools = Pools::new(connector, scheme == Scheme::HTTPS, &runtime, hyper_timer);
    let peer = endpoint.peer();
    let mut driver = Driver {
        endpoint,
        http,
        pools,
        runtime,
        scheme,
        authority,
        headers,
        on_resume: server.on_resume,
        timer,
        requests: HashMap::new(),
        sender,
        receiver,
        waiting: None,
        end: None,
        failure: None,
    };
    let driven = async move { poll_fn(|cx| driver.poll(cx)).await };
    Ok((peer, driven))
}

/// A part of a response.
enum Part {
    Head(StatusCode, HeaderMap),
    Chunk(Bytes),
    End,
    /// The connection could not be made, or broke, for this reason.
    Loss(String),
}

type Parts = mpsc::Sender<(HttpRequestId, Part)>;

/// A frame, its lane, and the exchange (of the session) on whose stream the frame came, if there is one.
struct Arrived {
    frame: Bytes,
    lane: Lane,
    exchange: Option<ExchangeId>,
}

#[cfg(not(feature = "http-client-tls"))]
fn over_tls<C>(connector: Proxied<C>, _server: &HttpServerAddress, is_wanted: bool) -> std::io::Result<Proxied<C>> {
    if is_wanted {
        return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "TLS is not supported (feature `http-client-tls`)"));
    }
    Ok(connector)
}
#[cfg(feature = "http-client-tls")]
fn over_tls<C>(connector: Proxied<C>, server: &HttpServerAddress, is_wanted: bool) -> std::io::Result<OverTls<C>> {
    tls::over(connector, &server.roots, is_wanted)
}

/// The task of a request that has not ended, and the number of its pool.
struct Running {
    task: AbortHandle,
    pool: usize,
}

/// The state of the task that drives an endpoint and its [`HttpClient`].
struct Driver<C> {
    endpoint: Endpoint,
    http: HttpClient,
    pools: Pools<C>,
    runtime: Arc<dyn TimedRuntime>,
    scheme: Scheme,
    authority: Authority,
    headers: HeaderMap,
    on_resume: Option<OnResume>,
    timer: Box<dyn Timer + Send + Sync>,
    requests: HashMap<HttpRequestId, Running>,
    sender: Parts,
    receiver: mpsc::Receiver<(HttpRequestId, Part)>,
    /// A frame for which the session has had no room. Events of `http` wait until it is passed on.
    waiting: Option<Arrived>,
    end: Option<CloseReason>,
    failure: Option<Error>,
}

impl<C: HttpConnector> Driver<C> {
    /// Runs until the session and the [`HttpClient`] are closed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<CloseReason, Error>> {
        let mut parts: usize = 0;
        loop {
            // Called before the endpoint is read, so that a later change by another thread wakes this task.
            self.endpoint.register_waker(cx.waker());
            let now = self.timer.now();
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
                self.handle_event(event, now);
                has_moved = true;
            }
            if let Some(reason) = self.endpoint.poll_event() {
                self.end = Some(reason);
                self.waiting = None;
                self.http.close(now);
                continue;
            }
            if let Some(arrived) = self.waiting.take() {
                self.pass_frame(arrived, now);
                has_moved |= self.waiting.is_none();
            }
            if has_moved {
                continue;
            }
            if let Some(reason) = self.end.filter(|_| self.http.is_closed()) {
                return Poll::Ready(self.failure.take().map_or(Ok(reason), Err));
            }
            if parts >= PARTS_PER_TURN {
                // Lets other tasks run even if the server is never silent.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.waiting.is_none()
                && let Poll::Ready(Some((request, part))) = Pin::new(&mut self.receiver).poll_next(cx)
            {
                self.take_part(request, part, now);
                parts = parts.saturating_add(1);
                continue;
            }
            let until = earlier(self.endpoint.poll_timeout(), self.http.poll_timeout());
            if until.is_some_and(|at| self.timer.poll_until(cx, at).is_ready()) {
                continue;
            }
            return Poll::Pending;
        }
    }

    fn handle_event(&mut self, event: HttpClientEvent, now: Instant) {
        match event {
            HttpClientEvent::Send(request) => self.send(request),
            HttpClientEvent::Abort(request) => {
                if let Some(task) = self.forget(request) {
                    task.abort();
                }
            }
            HttpClientEvent::Frame { frame, lane, exchange } => self.pass_frame(Arrived { frame, lane, exchange }, now),
            HttpClientEvent::Lost { exchange, why } => {
                // Fails if the session has already ended the call.
                let _ = self.endpoint.handle_lost(exchange, &why.to_string(), now);
            }
            HttpClientEvent::Resuming { why, .. } => {
                if let Some(on_resume) = &self.on_resume {
                    on_resume(&why);
                }
            }
            HttpClientEvent::Writable(is_writable) => {
                // Fails only if the session is closed.
                let _ = self.endpoint.set_writable(Lane::CHANNEL, is_writable, now);
            }
            HttpClientEvent::Failed(failure) => {
                self.endpoint.handle_failure(&failure.to_string(), now);
                self.failure = Some(Error::Server(failure));
            }
            _ => {}
        }
    }

    fn pass_frame(&mut self, arrived: Arrived, now: Instant) {
        let Arrived { frame, lane, exchange } = arrived;
        if let Err(NoRoom(frame)) = self.endpoint.handle_frame_within(frame, lane, exchange, now) {
            self.waiting = Some(Arrived { frame, lane, exchange });
        }
    }

    fn send(&mut self, request: HttpClientRequest) {
        let id = request.id;
        let request = self.request_of(request);
        let taken = self.pools.take();
        let pool = taken.number;
        let mut parts = self.sender.clone();
        let (task, handle) = abortable(async move {
            let last = match request {
                Some(request) => run_request(taken, request, id, &mut parts).await,
                None => Part::Loss("the request is malformed".to_owned()),
            };
            // Fails if the driver is gone.
            let _ = send_part(&mut parts, id, last).await;
        });
        self.runtime.spawn(Box::pin(async move {
            // An error means that the request was given up.
            let _ = task.await;
        }));
        self.requests.insert(id, Running { task: handle, pool });
    }

    /// The request as a value of hyper. `None` if its target or one of its fields is malformed, which the [`HttpClient`] has already ruled
    /// out.
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
                self.forget(request);
                self.http.handle_end(request, now);
            }
            Part::Loss(why) => {
                self.forget(request);
                self.http.handle_loss(request, &why, now);
            }
        }
    }

    /// Forgets a request, and returns its task; `None` if the request had already ended.
    fn forget(&mut self, request: HttpRequestId) -> Option<AbortHandle> {
        let Running { task, pool } = self.requests.remove(&request)?;
        self.pools.give_back(pool);
        Some(task)
    }
}

impl<C> Drop for Driver<C> {
    fn drop(&mut self) {
        self.requests.values().for_each(|request| request.task.abort());
    }
}

/// Puts a part of a response into the queue, when there is room. Fails if the driver is gone.
async fn send_part(parts: &mut Parts, id: HttpRequestId, part: Part) -> Result<(), mpsc::SendError> {
    poll_fn(|cx| parts.poll_ready(cx)).await?;
    parts.start_send((id, part))
}

/// Makes a request, puts all parts of its response but the last into the queue, and returns the last.
async fn run_request<C: HttpConnector>(
    pool: Taken<C>,
    request: Request<Full<Bytes>>,
    id: HttpRequestId,
    parts: &mut Parts,
) -> Part {
    let response = match pool.response(request).await {
        Ok(response) => response,
        Err(error) => return Part::Loss(causes(&error)),
    };
    let (head, mut body) = response.into_parts();
    if send_part(parts, id, Part::Head(head.status, head.headers)).await.is_err() {
        // The driver is gone.
        return Part::End;
    }
    while !body.is_end_stream() {
        match body.frame().await {
            None => break,
            Some(Err(error)) => return Part::Loss(causes(&error)),
            Some(Ok(frame)) => {
                // Trailers are ignored.
                let Ok(chunk) = frame.into_data() else { continue };
                if !chunk.is_empty() && send_part(parts, id, Part::Chunk(chunk)).await.is_err() {
                    return Part::End;
                }
            }
        }
    }
    Part::End
}

/// An error with its causes, in one line. The text of hyper's errors does not contain their causes.
fn causes(error: &(dyn StdError + 'static)) -> String {
    chain(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
#[cfg(not(feature = "http-client-tls"))]
mod tests {
    use super::*;

    #[test]
    fn an_https_address_is_refused_without_the_feature_for_tls() {
        for (url, is_refused) in [("https://localhost/mcp", true), ("http://localhost/mcp", false)] {
            let server = HttpServerAddress::new(url);
            assert_eq!(over_tls(Proxied::new((), None), &server, url.starts_with("https")).is_err(), is_refused, "{url}");
        }
    }
}
