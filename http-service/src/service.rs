//! The HTTP service.

use core::convert::Infallible;
use core::fmt;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use endpoint::{Principal, Service, TimedRuntime};
use http::{Request, Response};
use http_body::Body;
use protocol_core::drive::LaneMachine;
use protocol_core::http::HttpServerConfig;

use crate::body::{BufferedBody, HttpBody};
use crate::budget::{Account, Budget, Payer, Who};
use crate::future::HttpFuture;
use crate::guard::{Guard, admits};
use crate::server::{OtherMachine, Owner};
use crate::stats::HttpStats;

/// MCP over Streamable HTTP, as a [`tower_service::Service`] for requests with any type of body. It is always ready, and never returns an
/// error.
///
/// It answers requests for every path: routing is up to the application. Clones share the sessions. When the last clone, the last
/// future and the last body are dropped, the sessions end.
///
/// By default it serves only requests whose host is this machine, and whose origin is this machine or absent, so that web pages of other
/// origins cannot use it ([`HttpServerConfig::hosts`], [`HttpServerConfig::origins`]).
#[derive(Clone)]
pub struct HttpService {
    owner: Arc<Owner>,
    guard: Option<Arc<dyn Guard>>,
}

impl HttpService {
    /// Serves `service` with the default configuration. The tasks of sessions and handlers run on `runtime`, which also provides the random
    /// bytes for the ids of sessions. If `runtime` has no random bytes, `initialize` is answered with 503.
    ///
    /// # Panics
    /// If a handler takes a state that the service does not have ([`Service::check`]).
    #[must_use]
    #[track_caller]
    pub fn new(service: Arc<Service>, runtime: Arc<dyn TimedRuntime>) -> Self {
        Self::with_config(service, runtime, HttpServerConfig::default())
    }

    /// Serves `service` with the configuration `config`. The era of `config` replaces the era that `service` is configured with.
    #[must_use]
    pub fn with_config(service: Arc<Service>, runtime: Arc<dyn TimedRuntime>, config: HttpServerConfig) -> Self {
        Self::of(Owner::of_service(service, runtime, config))
    }

    /// Serves sessions by machines of your own, such as the agent's leg of a gateway: `open` makes a machine for each session, or refuses
    /// the session with `None`. Set [`HttpServerConfig::era`] to the era that the machines serve. The machines get frames by
    /// [`LaneMachine::handle_lane_frame`]; extensions of requests are dropped.
    #[must_use]
    pub fn with_machines<M: LaneMachine<Event = Infallible> + Send + Sync + 'static>(
        open: impl Fn() -> Option<M> + Send + Sync + 'static,
        runtime: Arc<dyn TimedRuntime>,
        config: HttpServerConfig,
    ) -> Self {
        let open = move || open().map(|machine| Box::new(machine) as OtherMachine);
        Self::of(Owner::of_machines(open, runtime, config))
    }

    fn of(owner: Owner) -> Self {
        Self { owner: Arc::new(owner), guard: None }
    }

    /// Serves only the requests that `guard` admits; see [`Guard`]. Without a guard, all requests are served.
    #[must_use]
    pub fn guarded(self, guard: impl Guard) -> Self {
        Self { guard: Some(Arc::new(guard)), ..self }
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn guard(&self) -> Option<&Arc<dyn Guard>> {
        self.guard.as_ref()
    }

    fn answer<B: Body>(&self, request: Request<B>) -> HttpFuture<B> {
        self.answer_on(request, None, None)
    }

    /// Answers a request of a client, on a connection.
    pub(crate) fn answer_on<B: Body>(
        &self,
        request: Request<B>,
        client: Option<&Arc<Account>>,
        connection: Option<&Arc<Account>>,
    ) -> HttpFuture<B> {
        let (parts, body) = request.into_parts();
        if !self.guard.as_ref().is_none_or(|guard| admits(&**guard, &parts)) {
            return HttpFuture::unauthorized();
        }
        let budget = self.budget();
        let principal = parts.extensions.get::<Principal>().map(|principal| budget.account(Who::Principal(principal.clone())));
        let payer = Payer::new(Arc::clone(budget), principal.or_else(|| client.cloned()), connection.cloned());
        HttpFuture::new(Arc::clone(&self.owner), parts, body, payer)
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.owner.budget()
    }

    /// Answers one request, for servers without tower: takes a head and a body, and returns a head and a [body in
    /// pieces](HttpBody::next_chunk).
    ///
    /// A server that keeps no state from one request to the next, such as a cloud function, should serve only
    /// [`Era::Modern`](protocol_core::mcp::Era::Modern), with the same keys in all its processes
    /// ([`Service::seal_keys`](endpoint::Service::seal_keys)).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future, or later the body, means that the client has disconnected, as for an [`HttpFuture`].
    pub async fn respond(&self, request: Request<Bytes>) -> Response<HttpBody> {
        let request = request.map(BufferedBody::new);
        let Ok(response) = self.answer(request).await;
        response
    }

    /// Ends the service gracefully. Requests without a handshake, new sessions and new GET streams are answered with 503, and every session
    /// closes, so that it refuses calls. Requests that are being served have `grace` to end. Subscriptions and GET streams end
    /// immediately, unless a call of their session runs. Calling this method again can only shorten the time.
    pub fn close(&self, grace: Duration) {
        self.owner.stop(grace);
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn runtime(&self) -> &Arc<dyn TimedRuntime> {
        self.owner.runtime()
    }

    /// The counts of what clients make the service hold now, and of what was refused.
    #[must_use]
    pub fn stats(&self) -> HttpStats {
        self.owner.stats()
    }
}

impl<B: Body> tower_service::Service<Request<B>> for HttpService {
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = HttpFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> HttpFuture<B> {
        self.answer(request)
    }
}

#[cfg(feature = "hyper")]
impl<B: Body> hyper::service::Service<Request<B>> for HttpService {
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = HttpFuture<B>;

    fn call(&self, request: Request<B>) -> HttpFuture<B> {
        self.answer(request)
    }
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owner.fmt(f)
    }
}
