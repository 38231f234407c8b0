//! The handle on one HTTP exchange, by which its response is polled.

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use bytes::Bytes;
use endpoint::{Extensions, Principal};
use http::request::Parts;
use protocol_core::Arc as CoreArc;
use protocol_core::http::era::Era;
use protocol_core::http::header::ParamHeaders;
use protocol_core::http::{HttpContext, HttpExchangeId, HttpRefusal, HttpRequest, ResponsePart};

use super::Owner;
use super::driver::SessionDriver;
use super::shared::Source;
use crate::budget::{Charge, Refused, Unit};
use crate::request::head;

/// What a request is charged for.
pub(crate) struct Charges {
    /// The call and the body, until nothing of the call is left.
    pub(crate) call: Charge,
    /// The exchange, until its response was written.
    pub(crate) exchange: Charge,
}

/// The reason for which a request whose body was read has no exchange.
#[derive(Debug)]
pub(crate) enum NotBegun {
    NoRoom(Refused),
    Refused(HttpRefusal),
    /// The runtime has no random bytes now, so that no session can be opened.
    NoRandomBytes,
}

/// A handle on one HTTP exchange. Dropping it before the end of the response means that the client has disconnected.
pub(crate) struct Exchange {
    owner: Arc<Owner>,
    id: HttpExchangeId,
    /// The driver of the session of a request without a handshake, while this handle polls it.
    driver: Option<SessionDriver>,
    is_over: bool,
    /// `None` once the exchange is over, or a whole body has it.
    charge: Option<Charge>,
}

impl Owner {
    /// Takes a request with its body. If the request opens a session, makes the driver of the session: a task if the session has a
    /// handshake; otherwise the exchange polls it.
    pub(crate) fn begin(self: &Arc<Self>, parts: &Arc<Parts>, body: Bytes, charges: Charges) -> Result<Exchange, NotBegun> {
        let shared = self.shared();
        let Charges { mut call, exchange: charge } = charges;
        let mut request = HttpRequest::new(head(parts), body);
        request.principal = parts.extensions.get::<Principal>().map(Principal::as_str);
        let mut context = RequestContext { random: [0; 16], source: &shared.source };
        // Read and checked here, and not under the lock.
        let mut admitted = shared.config.admit(&request, &mut context).map_err(NotBegun::Refused)?;
        if admitted.opens_session() {
            if let Some(client) = charge.payer().name() {
                admitted.set_client(client);
            }
            shared.runtime.fill_random(&mut context.random).map_err(|_| NotBegun::NoRandomBytes)?;
        }
        let uncharged = admitted.calls().saturating_sub(call.amount(Unit::Calls));
        call.add(Unit::Calls, uncharged).map_err(NotBegun::NoRoom)?;
        // What handlers hold is charged for as long as they hold it.
        let mut extensions = Extensions::new().with_shared(Arc::clone(parts)).with(call);
        if let Some(principal) = parts.extensions.get::<Principal>() {
            extensions = extensions.with(principal.clone());
        }
        let (id, opened, unused) = shared.verb(|state, now| {
            let mut extensions = Some(extensions);
            let (id, opened) = state.begin(&admitted, &mut context, &mut extensions, now);
            (id, opened, extensions)
        });
        // The extensions, if no session has taken them, are dropped outside of the lock.
        drop(unused);
        // Made before the machine: if making the machine panics, the exchange is dropped, and so ends at the server.
        let payer = charge.payer().client();
        let mut exchange = Exchange::new(Arc::clone(self), id, charge);
        if let Some((key, era)) = opened
            && let Some(driver) = shared.driver(key, era, &payer)
        {
            match era {
                Era::Legacy => shared.runtime.spawn(Box::pin(driver)),
                Era::Modern => exchange.drive(driver),
            }
        }
        Ok(exchange)
    }
}

impl Exchange {
    fn new(owner: Arc<Owner>, id: HttpExchangeId, charge: Charge) -> Self {
        Self { owner, id, driver: None, is_over: false, charge: Some(charge) }
    }

    /// Polls the driver of a session from now on.
    pub(super) fn drive(&mut self, driver: SessionDriver) {
        self.driver = Some(driver);
    }

    /// The next part of the response.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<ResponsePart> {
        if self.driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
            self.driver = None;
        }
        let mut waker = Some(cx.waker().clone());
        match self.owner.shared().poll_response(self.id, &mut waker) {
            Some(part) => {
                if part == ResponsePart::End {
                    self.is_over = true;
                    self.charge = None;
                }
                Poll::Ready(part)
            }
            None => Poll::Pending,
        }
    }

    /// Reports that the client has closed its side of the connection.
    #[cfg(feature = "hyper")]
    pub(crate) fn half_close(&self) {
        self.owner.shared().half_close(self.id);
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The charge, for a whole body, which takes room until it is written.
    pub(crate) const fn take_charge(&mut self) -> Option<Charge> {
        self.charge.take()
    }

    /// Starts a task for the driver, if this handle has one. For a response that is a stream this is necessary, since the client may not
    /// read it for a long time, while the deadlines of the session must still be handled.
    pub(crate) fn hand_over(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.owner.shared().runtime().spawn(Box::pin(driver));
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.is_over() {
            self.owner.shared().lose(self.id);
        }
        // The driver goes on as a task, so that the cancelled handler has its grace.
        self.hand_over();
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
