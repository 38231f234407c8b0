//! The future of a response.
//!
//! ```text
//!   Reading --- the body was read, or is not needed ---> Waiting --- there is a head ---> (done)
//!      |                                                                                     ^
//!      '--- the body is refused, or does not arrive in time, or no session can be opened ----|
//!                                                                                            |
//!   Refused --- the head is refused, or there is no room for the request --------------------'
//! ```

use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::Body;
use pin_project_lite::pin_project;
use protocol_core::http::{HttpRefusal, HttpServerConfig, ResponseHead, ResponsePart};
use protocol_core::json::Text;

use crate::body::HttpBody;
use crate::budget::{Payer, Unit};
use crate::request::{BodyLimits, METHOD, PartialBody, SESSION_ID, SUBSCRIBE, Unread, head};
use crate::server::{Charges, Exchange, NotBegun, Owner};

/// The longest body, in bytes, for which some exchanges are kept free: an answer that a running call may wait for.
const MAX_ANSWER: u64 = 64 << 10;

pin_project! {
    /// The future of the response to one request, which [`HttpService`](crate::HttpService) returns.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future means that the client has disconnected. A request of a client without a handshake is cancelled.
    /// One of a client with a handshake goes on, except `initialize`, whose session ends. A request whose body was not read yet has no
    /// effect.
    #[must_use = "nothing is served until it is polled"]
    pub struct HttpFuture<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<B> {
        /// The body is being read, if `needs_body` is `true`.
        Reading {
            owner: Arc<Owner>,
            parts: Option<Parts>,
            #[pin]
            body: B,
            needs_body: bool,
            read: PartialBody,
            charges: Option<Charges>,
        },
        /// There is no head yet. The exchange is taken out with the head.
        Waiting { exchange: Option<Exchange> },
        /// The request is not served.
        Refused { response: Option<Response<HttpBody>> },
    }
}

impl<B> HttpFuture<B> {
    pub(crate) fn unauthorized() -> Self {
        Self::refused(unauthorized())
    }

    /// The response to a request of a connection that is one too many.
    #[cfg(feature = "hyper")]
    pub(crate) fn surplus(parts: &Parts, retry_after: Duration) -> Self {
        Self::refused(refusal(parts, 503, "too many connections", Some(retry_after)))
    }

    fn refused(response: Response<HttpBody>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    /// Returns `true` until the body of the request was read, or, if the body is not needed, until the first poll.
    #[cfg(feature = "hyper")]
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading { .. })
    }

    /// Reports that the client has closed its side of the connection.
    #[cfg(feature = "hyper")]
    pub(crate) fn half_close(&self) {
        if let State::Waiting { exchange: Some(exchange) } = &self.state {
            exchange.half_close();
        }
    }
}

impl<B: Body> HttpFuture<B> {
    /// Charges `payer` for the request, and begins to read its body. Otherwise refuses it, without reading anything.
    pub(crate) fn new(owner: Arc<Owner>, parts: Parts, body: B, payer: Payer) -> Self {
        if let Err(refusal) = owner.check(&parts) {
            return Self::refused(refused(refusal));
        }
        let needs_body = parts.method == Method::POST;
        let limits = owner.body_limits(&payer);
        let mut charges = Charges { call: payer.charge(), exchange: payer.charge() };
        let begun = match charges.begin(&parts, &body, needs_body, limits) {
            Err(Unread::NoRoom(refused)) => charges.begin_answer(&parts, &body).ok_or(Unread::NoRoom(refused)),
            begun => begun,
        };
        match begun {
            Ok(read) => {
                let (parts, charges) = (Some(parts), Some(charges));
                Self { state: State::Reading { owner, parts, body, needs_body, read, charges } }
            }
            Err(why) => Self::refused(unread(&parts, &why, limits)),
        }
    }
}

impl Charges {
    /// Charges for the exchange, and for what its head announces.
    fn begin<B: Body>(&mut self, parts: &Parts, body: &B, needs_body: bool, limits: BodyLimits) -> Result<PartialBody, Unread> {
        self.exchange.add(Unit::Exchanges, 1).map_err(Unread::NoRoom)?;
        if needs_body { self.begin_call(parts, body, limits) } else { Ok(PartialBody::default()) }
    }

    /// Charges for a request in a session that has little in it, and for which there is no room among the others: it may be the answer that
    /// running calls wait for, a cancel, or the end of the session, after which there is more room. If it is a call, there is none for it.
    fn begin_answer<B: Body>(&mut self, parts: &Parts, body: &B) -> Option<PartialBody> {
        let length = body.size_hint().exact().filter(|length| *length <= MAX_ANSWER)?;
        if !parts.headers.contains_key(SESSION_ID) || parts.method == Method::GET {
            return None;
        }
        let [call, exchange] = [self.call.payer().charge(), self.exchange.payer().charge()];
        *self = Self { call, exchange };
        self.exchange.add(Unit::Answers, 1).ok()?;
        Some(PartialBody::uncharged(length))
    }

    /// Charges for the call and the body that a head announces. A POST in a session may be an answer that a running call waits for, so it
    /// is charged for a call only when it is known to be a request.
    fn begin_call<B: Body>(&mut self, parts: &Parts, body: &B, limits: BodyLimits) -> Result<PartialBody, Unread> {
        // A subscription must have this header, or it is refused.
        if parts.headers.get(METHOD).is_some_and(|method| method == SUBSCRIBE) {
            self.exchange.add(Unit::Subscriptions, 1).map_err(Unread::NoRoom)?;
        }
        if !parts.headers.contains_key(SESSION_ID) {
            self.call.add(Unit::Calls, 1).map_err(Unread::NoRoom)?;
        }
        PartialBody::begin(body, limits, &mut self.call)
    }
}

impl<B: Body> Future for HttpFuture<B> {
    type Output = Result<Response<HttpBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let exchange = match state.as_mut().project() {
                StateProjection::Refused { response } => {
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Reading { owner, parts, body, needs_body, read, charges } => {
                    let Some(charged) = charges else { return Poll::Pending };
                    let limits = owner.body_limits(charged.call.payer());
                    let body = match needs_body {
                        true => ready!(read.poll_read(body, limits, &mut charged.call, &**owner.runtime(), cx)),
                        false => Ok(Bytes::new()),
                    };
                    let (Some(parts), Some(charges)) = (parts.take(), charges.take()) else { return Poll::Pending };
                    let parts = Arc::new(parts);
                    let begun = match body {
                        Ok(body) => owner.begin(&parts, body, charges),
                        Err(why) => return Poll::Ready(Ok(unread(&parts, &why, limits))),
                    };
                    match begun {
                        Ok(exchange) => Some(exchange),
                        Err(NotBegun::NoRoom(refused)) => {
                            return Poll::Ready(Ok(unread(&parts, &Unread::NoRoom(refused), limits)));
                        }
                        Err(NotBegun::Refused(refusal)) => return Poll::Ready(Ok(refused(refusal))),
                        Err(NotBegun::NoRandomBytes) => return Poll::Ready(Ok(unavailable())),
                    }
                }
                StateProjection::Waiting { exchange } => {
                    let Some(waiting) = exchange else { return Poll::Pending };
                    let ResponsePart::Head { head, length } = ready!(waiting.poll_part(cx)) else { return Poll::Pending };
                    let Some(waiting) = exchange.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(response(head, body_of(waiting, length, cx))));
                }
            };
            state.set(State::Waiting { exchange });
        }
    }
}

/// The body after a head. If `length` is known, the whole body is already available. Otherwise the body is a stream, and the driver of the
/// session becomes a task.
fn body_of(mut exchange: Exchange, length: Option<usize>, cx: &mut Context<'_>) -> HttpBody {
    if length.is_none() {
        exchange.hand_over();
        return HttpBody::stream(exchange);
    }
    let (mut whole, charge) = (None, exchange.take_charge());
    while let Poll::Ready(part) = exchange.poll_part(cx) {
        match part {
            ResponsePart::Chunk(chunk) => whole = Some(chunk),
            _ => break,
        }
    }
    HttpBody::charged(whole, charge)
}

fn response(head: ResponseHead<'static>, body: HttpBody) -> Response<HttpBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in head.headers.iter() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// The response to a request whose body was not read to its end, or for which there is no room.
fn unread(parts: &Parts, why: &Unread, limits: BodyLimits) -> Response<HttpBody> {
    match why {
        Unread::NoRoom(refused) => {
            let status = if refused.is_share { 429 } else { 503 };
            refusal(parts, status, refused.why(), Some(refused.retry_after))
        }
        Unread::TooLong => refusal(parts, 413, format!("a body has at most {} bytes", limits.bytes), None),
        Unread::TooLate => refusal(parts, 408, format!("a body must arrive within {:?}", limits.time), None),
    }
}

/// The response to a request that does not reach the HTTP server of the core.
fn refusal(parts: &Parts, status: u16, why: impl Into<Text>, retry_after: Option<Duration>) -> Response<HttpBody> {
    refused(HttpServerConfig::refuse(&head(parts), status, why, retry_after))
}

fn refused(refusal: HttpRefusal) -> Response<HttpBody> {
    response(refusal.head, HttpBody::whole(Some(refusal.body)))
}

/// The response to a request that was not admitted.
fn unauthorized() -> Response<HttpBody> {
    const TEXT: &[u8] = b"this server serves only its own user, or clients with its bearer token\n";
    let mut response = Response::new(HttpBody::whole(Some(Bytes::from_static(TEXT))));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// The response if no session can be opened, since there are no random bytes for its id.
fn unavailable() -> Response<HttpBody> {
    let mut response = Response::new(HttpBody::whole(None));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

impl<B> fmt::Debug for HttpFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFuture").finish_non_exhaustive()
    }
}
