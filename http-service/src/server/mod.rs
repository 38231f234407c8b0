//! The HTTP server of the core under one lock, with the verbs by which the handles and tasks of a service use it.

mod driver;
mod exchange;
mod machine;
mod response_stream;
mod shared;
mod state;

pub(crate) use exchange::{Charges, Exchange, NotBegun};
pub(crate) use machine::OtherMachine;
pub use response_stream::ResponseStream;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use endpoint::{Runtime, Service, TimedRuntime};
use engine::Engine;
use http::request::Parts;
use protocol_core::http::{HttpRefusal, HttpServer, HttpServerConfig};

use crate::budget::{Budget, Payer, Unit};
use crate::request::{BodyLimits, head};
use crate::stats::HttpStats;
use shared::{Shared, Source};
use state::State;

/// Ends all sessions when it is dropped. Services, futures of responses and exchanges share it, so it lives as long as any of them; tasks
/// hold only [`Shared`].
pub(crate) struct Owner(Arc<Shared>);

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
        let budget = Arc::new(Budget::new(&config.limits, Arc::clone(&runtime)));
        let untimed: Arc<dyn Runtime> = Arc::clone(&runtime) as _;
        Self(Arc::new(Shared { engine: Engine::new(State::new(server), untimed), source, runtime, config, budget }))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn TimedRuntime> {
        &self.0.runtime
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.0.budget
    }

    /// The bounds on the body of a request of `payer`.
    pub(crate) fn body_limits(&self, payer: &Payer) -> BodyLimits {
        let HttpServerConfig { limits, timeouts, .. } = &*self.0.config;
        // A body that is longer than the largest share never fits.
        let share = limits.request_bytes.div_ceil(payer.divisor());
        BodyLimits { bytes: limits.body_bytes.min(share), time: timeouts.body }
    }

    /// Makes the checks of a request that need only its head.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), HttpRefusal> {
        self.0.config.check(&head(parts))
    }

    /// Refuses new sessions, requests without a handshake and new GET streams from now on, and closes every session gracefully.
    pub(crate) fn stop(&self, grace: Duration) {
        self.0.verb(|state, _| state.stop(grace));
    }

    /// The counts of everything that clients make the service hold.
    pub(crate) fn stats(&self) -> HttpStats {
        let budget = &self.0.budget;
        let (sessions, subscriptions, kept_bytes) = self.0.engine.with_state(|state| state.counts());
        HttpStats {
            connections: budget.open_connections(),
            exchanges: budget.held(Unit::Exchanges).saturating_add(budget.held(Unit::Answers)),
            request_bytes: budget.held(Unit::RequestBytes),
            calls: budget.held(Unit::Calls),
            ended_sessions: budget.held(Unit::Ended),
            sessions,
            subscriptions,
            kept_bytes,
            refused: budget.refused(),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.verb(|state, now| state.end(now));
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
