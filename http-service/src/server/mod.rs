//! The HTTP server of the core under one lock, with the verbs by which the handles and tasks of a service use it.

mod deadlines;
mod driver;
mod exchange;
mod machine;
mod response_stream;
mod state;

pub(crate) use exchange::Exchange;
pub(crate) use machine::OtherMachine;
pub use response_stream::ResponseStream;

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use endpoint::{Endpoint, Extensions, Principal, Runtime, Service, TimedRuntime};
use engine::Engine;
use http::request::Parts;
use protocol_core::http::era::Era;
use protocol_core::http::header::ParamHeaders;
use protocol_core::http::{HttpContext, HttpExchangeId, HttpRequest, HttpServer, HttpServerConfig, ResponsePart, SessionKey};
use protocol_core::{Arc as CoreArc, Config, Instant};

use crate::request::head;
use deadlines::Deadlines;
use driver::SessionDriver;
use machine::Machine;
use state::{Order, Report, State};

/// The HTTP server of a service, under the lock of an [`Engine`], and the source of its sessions.
struct Shared {
    engine: Engine<State>,
    source: Source,
    runtime: Arc<dyn TimedRuntime>,
    config: Arc<HttpServerConfig>,
}

/// The source of the machines that serve sessions.
enum Source {
    /// Endpoints of a service, with the configurations of sessions with a handshake and of sessions without.
    Service { service: Arc<Service>, sessions: [CoreArc<Config>; 2] },
    /// Machines of the application, made by this function. It returns `None` to refuse a session.
    Machines(Box<dyn Fn() -> Option<OtherMachine> + Send + Sync>),
}

impl Source {
    fn of(service: Arc<Service>) -> Self {
        // Once a service is shared, it changes only through its `Catalog`, and a service with a `Catalog` declares tools, prompts and
        // resources even while there are none of them. So the configurations stay valid.
        let sessions = [Era::Legacy, Era::Modern].map(|era| {
            let mut config = service.config();
            config.era = era.config();
            CoreArc::new(config)
        });
        Self::Service { service, sessions }
    }

    fn open(&self, era: Era, runtime: Arc<dyn Runtime>) -> Option<Machine> {
        match self {
            Self::Service { service, sessions: [legacy, modern] } => {
                let config = match era {
                    Era::Legacy => legacy,
                    Era::Modern => modern,
                };
                Some(Machine::Endpoint(Endpoint::serving(Arc::clone(service), CoreArc::clone(config), runtime)))
            }
            Self::Machines(open) => open().map(Machine::Other),
        }
    }
}

/// Ends all sessions when it is dropped. Services, futures of responses and exchanges share it, so it lives as long as any of them; tasks
/// hold only [`Shared`].
pub(crate) struct Owner(Arc<Shared>);

/// The error of a runtime that has no random bytes now, so that no session can be opened.
#[derive(Debug)]
pub(crate) struct NoRandomBytes;

impl Owner {
    pub(crate) fn of_service(service: Arc<Service>, runtime: Arc<dyn TimedRuntime>, config: HttpServerConfig) -> Self {
        Self::new(Source::of(service), runtime, config)
    }

    pub(crate) fn of_machines(
        open: impl Fn() -> Option<OtherMachine> + Send + Sync + 'static,
        runtime: Arc<dyn TimedRuntime>,
        config: HttpServerConfig,
    ) -> Self {
        Self::new(Source::Machines(Box::new(open)), runtime, config)
    }

    fn new(source: Source, runtime: Arc<dyn TimedRuntime>, config: HttpServerConfig) -> Self {
        let config = Arc::new(config);
        let server = HttpServer::new(Arc::clone(&config), runtime.now());
        let untimed: Arc<dyn Runtime> = Arc::clone(&runtime) as _;
        Self(Arc::new(Shared { engine: Engine::new(State::new(server), untimed), source, runtime, config }))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn runtime(&self) -> &Arc<dyn TimedRuntime> {
        &self.0.runtime
    }

    /// The maximum number of bytes of a body.
    pub(crate) fn body_limit(&self) -> usize {
        self.0.config.limits.body_bytes
    }

    /// Returns `true` if the body of a request must be read.
    pub(crate) fn needs_body(&self, parts: &Parts) -> bool {
        self.0.config.needs_body(&head(parts))
    }

    /// Takes a request with its body. If the request opens a session, makes the driver of the session: a task if the session has a
    /// handshake; otherwise the exchange polls it.
    pub(crate) fn begin(self: &Arc<Self>, parts: Parts, body: Bytes) -> Result<Exchange, NoRandomBytes> {
        let shared = &self.0;
        let parts = Arc::new(parts);
        let mut extensions = Extensions::new().with_shared(Arc::clone(&parts));
        if let Some(principal) = parts.extensions.get::<Principal>() {
            extensions = extensions.with(principal.clone());
        }
        let mut request = HttpRequest::new(head(&parts), body);
        // Parsed here, and not under the lock.
        request.read_body(&shared.config.limits);
        request.principal = parts.extensions.get::<Principal>().map(Principal::as_str);
        let mut context = RequestContext { random: shared.random_for(&request)?, source: &shared.source };
        let (id, opened, unused) = shared.verb(|state, now| {
            let mut extensions = Some(extensions);
            let (id, opened) = state.begin(&request, &mut context, &mut extensions, now);
            (id, opened, extensions)
        });
        // The extensions, if no session has taken them, are dropped outside of the lock.
        drop(unused);
        // Made before the machine: if making the machine panics, the exchange is dropped, and so ends at the server.
        let mut exchange = Exchange::new(Arc::clone(self), id);
        if let Some((key, era)) = opened
            && let Some(driver) = shared.driver(key, era)
        {
            match era {
                Era::Legacy => shared.runtime.spawn(Box::pin(driver)),
                Era::Modern => exchange.drive(driver),
            }
        }
        Ok(exchange)
    }

    /// Refuses new sessions, requests without a handshake and new GET streams from now on, and closes every session gracefully.
    pub(crate) fn stop(&self, grace: Duration) {
        self.0.verb(|state, _| state.stop(grace));
    }

    /// The numbers of open sessions and of open exchanges.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.0.engine.with_state(|state| state.counts())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.verb(|state, now| state.end(now));
    }
}

impl Shared {
    /// Changes the state with `change`, distributes the events of the HTTP server, wakes the tasks that have something to do, and starts
    /// the task that waits for deadlines if it is needed. `change` must not drop wakers or values of users, but return them.
    fn verb<T>(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let (value, starts_deadlines) = self.engine.verb(|state, now, _| {
            let value = change(state, now);
            state.distribute();
            (value, state.starts_deadlines())
        });
        if starts_deadlines {
            self.runtime.spawn(Box::pin(Deadlines::new(Arc::clone(self), self.runtime.timer())));
        }
        value
    }

    fn runtime(&self) -> &Arc<dyn TimedRuntime> {
        &self.runtime
    }

    /// The driver of a new session. `None` if the application refuses the session, which then has ended.
    fn driver(self: &Arc<Self>, key: SessionKey, era: Era) -> Option<SessionDriver> {
        let mut unserved = Unserved { shared: Some(self), key };
        let machine = self.source.open(era, Arc::clone(&self.runtime) as _)?;
        unserved.shared = None;
        Some(SessionDriver::new(Arc::clone(self), key, machine, self.config.resumable && era == Era::Legacy))
    }

    /// Random bytes for the id of the session that a request may open; zeros if it opens none.
    fn random_for(&self, request: &HttpRequest<'_>) -> Result<[u8; 16], NoRandomBytes> {
        let mut bytes = [0; 16];
        if request.may_open_session() {
            self.runtime.fill_random(&mut bytes).map_err(|_| NoRandomBytes)?;
        }
        Ok(bytes)
    }

    // In the verbs below that take a `waker`, `spare` is at first a clone of `waker`, made before the lock is taken. After the verb, it
    // holds a waker that must be dropped outside of the lock.

    // ---- Verbs of exchanges ----

    fn poll_response(self: &Arc<Self>, exchange: HttpExchangeId, waker: &Waker, spare: &mut Option<Waker>) -> Option<ResponsePart> {
        self.verb(|state, now| state.poll_response(exchange, waker, spare, now))
    }

    #[cfg(feature = "hyper")]
    fn half_close(self: &Arc<Self>, exchange: HttpExchangeId) {
        self.verb(|state, now| state.half_close(exchange, now));
    }

    fn lose(self: &Arc<Self>, exchange: HttpExchangeId) {
        let waker = self.verb(|state, now| state.lose(exchange, now));
        drop(waker);
    }

    // ---- Verbs of drivers ----

    /// Passes the reports of a driver to the HTTP server, and moves all orders of the session into `orders`.
    fn pass_reports(
        self: &Arc<Self>,
        session: SessionKey,
        reports: &mut Vec<Report>,
        orders: &mut VecDeque<Order>,
        waker: &Waker,
        spare: &mut Option<Waker>,
    ) {
        self.verb(|state, now| {
            for report in core::mem::take(reports) {
                state.apply(session, report, now);
            }
            // The orders that follow from the reports are moved with the earlier ones.
            state.distribute();
            state.take_orders(session, orders, waker, spare);
        });
    }

    fn forget(self: &Arc<Self>, session: SessionKey) {
        let forgotten = self.verb(|state, now| state.forget(session, now));
        drop(forgotten);
    }

    // ---- Verbs of the task that waits for deadlines ----

    fn expire(self: &Arc<Self>, waker: &Waker, spare: &mut Option<Waker>) -> Option<Instant> {
        self.verb(|state, now| state.expire(now, waker, spare))
    }

    fn end_deadlines(self: &Arc<Self>) {
        let waker = self.engine.with_state(State::end_deadlines);
        drop(waker);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HttpService");
        if let Source::Service { service, .. } = &self.0.source {
            shown.field("service", service);
        }
        shown.finish_non_exhaustive()
    }
}

/// A session whose machine is being made. Dropping it before that is done, for example because of a panic, ends the session.
struct Unserved<'a> {
    /// `None` once the machine is made.
    shared: Option<&'a Arc<Shared>>,
    key: SessionKey,
}

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.forget(self.key);
        }
    }
}

/// The values that the HTTP server needs while it takes a request.
struct RequestContext<'a> {
    random: [u8; 16],
    source: &'a Source,
}

impl HttpContext for RequestContext<'_> {
    fn random(&mut self) -> [u8; 16] {
        self.random
    }

    fn param_headers(&mut self, tool: &str) -> Option<CoreArc<ParamHeaders>> {
        match self.source {
            Source::Service { service, .. } => service.param_headers(tool),
            Source::Machines(_) => None,
        }
    }
}
