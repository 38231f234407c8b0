//! The HTTP server under its lock, with the verbs of the handles and tasks of a service, and the task that waits for its deadlines. That
//! task runs while there are deadlines.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use endpoint::{Endpoint, Runtime, Service, TimedRuntime};
use engine::Engine;
use protocol_core::drive::Timer;
use protocol_core::http::era::Era;
use protocol_core::http::{HttpExchangeId, HttpServerConfig, ResponsePart, SessionKey};
use protocol_core::{Arc as CoreArc, Config, Instant};

use super::machine::{Machine, OtherMachine};
use super::state::{Order, Report, State};
use crate::budget::Budget;

/// The HTTP server of a service, under the lock of an [`Engine`], and the source of its sessions.
pub(super) struct Shared {
    pub(super) engine: Engine<State>,
    pub(super) source: Source,
    pub(super) runtime: Arc<dyn TimedRuntime>,
    pub(super) config: Arc<HttpServerConfig>,
    pub(super) budget: Arc<Budget>,
}

/// The source of the machines that serve sessions.
pub(super) enum Source {
    /// Endpoints of a service, with the configurations of sessions with a handshake and of sessions without.
    Service { service: Arc<Service>, sessions: [CoreArc<Config>; 2] },
    /// Machines of the application, made by this function. It returns `None` to refuse a session.
    Machines(Box<dyn Fn() -> Option<OtherMachine> + Send + Sync>),
}

impl Source {
    pub(super) fn of(service: Arc<Service>) -> Self {
        // Once a service is shared, it changes only through its `Catalog`, and a service with a `Catalog` declares tools, prompts and
        // resources even while there are none of them. So the configurations stay valid.
        let sessions = [Era::Legacy, Era::Modern].map(|era| {
            let mut config = service.config();
            config.era = era.config();
            CoreArc::new(config)
        });
        Self::Service { service, sessions }
    }

    pub(super) fn open(&self, era: Era, runtime: Arc<dyn Runtime>) -> Option<Machine> {
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

impl Shared {
    /// Changes the state with `change`, distributes the events of the HTTP server, wakes the tasks that have something to do, and starts
    /// the task that waits for deadlines if it is needed. `change` must not drop wakers or values of users, but return them.
    pub(super) fn verb<T>(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant) -> T) -> T {
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

    pub(super) fn runtime(&self) -> &Arc<dyn TimedRuntime> {
        &self.runtime
    }

    // In the verbs below that take a `waker`, it is at first a clone that was made before the lock is taken. After the verb, it holds a waker
    // that must be dropped outside of the lock.

    // ---- Verbs of exchanges ----

    pub(super) fn poll_response(self: &Arc<Self>, exchange: HttpExchangeId, waker: &mut Option<Waker>) -> Option<ResponsePart> {
        self.verb(|state, now| state.poll_response(exchange, waker, now))
    }

    #[cfg(feature = "hyper")]
    pub(super) fn half_close(self: &Arc<Self>, exchange: HttpExchangeId) {
        self.verb(|state, now| state.half_close(exchange, now));
    }

    pub(super) fn lose(self: &Arc<Self>, exchange: HttpExchangeId) {
        let waker = self.verb(|state, now| state.lose(exchange, now));
        drop(waker);
    }

    // ---- Verbs of drivers ----

    /// Passes the reports of a driver to the HTTP server, and moves all orders of the session into `orders`.
    pub(super) fn pass_reports(
        self: &Arc<Self>,
        session: SessionKey,
        reports: &mut Vec<Report>,
        orders: &mut VecDeque<Order>,
        waker: &mut Option<Waker>,
    ) {
        self.verb(|state, now| {
            for report in core::mem::take(reports) {
                state.apply(session, report, now);
            }
            // The orders that follow from the reports are moved with the earlier ones.
            state.distribute();
            state.take_orders(session, orders, waker);
        });
    }

    pub(super) fn forget(self: &Arc<Self>, session: SessionKey) {
        let forgotten = self.verb(|state, now| state.forget(session, now));
        drop(forgotten);
    }

    // ---- Verbs of the task that waits for deadlines ----

    pub(super) fn expire(self: &Arc<Self>, waker: &mut Option<Waker>) -> Option<Instant> {
        self.verb(|state, now| state.expire(now, waker))
    }

    pub(super) fn end_deadlines(self: &Arc<Self>) {
        let waker = self.engine.with_state(State::end_deadlines);
        drop(waker);
    }
}

/// Waits for the deadlines of the HTTP server, and handles them.
///
/// # Cancel safety
/// Cancel safe: the next verb of the service starts another such task, if there is a deadline.
struct Deadlines {
    shared: Arc<Shared>,
    timer: Box<dyn Timer + Send + Sync>,
    has_ended: bool,
}

impl Deadlines {
    fn new(shared: Arc<Shared>, timer: Box<dyn Timer + Send + Sync>) -> Self {
        Self { shared, timer, has_ended: false }
    }
}

impl Future for Deadlines {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let mut waker = Some(cx.waker().clone());
            match this.shared.expire(&mut waker) {
                Some(at) => ready!(this.timer.poll_until(cx, at)),
                None => {
                    this.has_ended = true;
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.end_deadlines();
        }
    }
}
