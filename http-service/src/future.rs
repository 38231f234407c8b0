//! The future of a response.
//!
//! ```text
//!   Reading --- the body was read, or is not needed ---> Waiting --- there is a head ---> (done)
//!      |                                                                                     ^
//!      '--- there are no random bytes for the id of a session: the response is 503 ----------|
//!                                                                                            |
//!   Unauthorized --- the response is 401 ----------------------------------------------------'
//! ```

use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use pin_project_lite::pin_project;
use protocol_core::http::{ResponseHead, ResponsePart};

use crate::body::HttpBody;
use crate::request::PartialBody;
use crate::server::{Exchange, Owner};

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
        Reading { owner: Arc<Owner>, parts: Option<Parts>, #[pin] body: B, needs_body: bool, read: PartialBody },
        /// There is no head yet. The exchange is taken out with the head.
        Waiting { exchange: Option<Exchange> },
        /// The request was not admitted.
        Unauthorized,
    }
}

impl<B> HttpFuture<B> {
    pub(crate) fn new(owner: Arc<Owner>, parts: Parts, body: B) -> Self {
        let needs_body = owner.needs_body(&parts);
        Self { state: State::Reading { owner, parts: Some(parts), body, needs_body, read: PartialBody::default() } }
    }

    pub(crate) fn unauthorized() -> Self {
        Self { state: State::Unauthorized }
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

impl<B: Body> Future for HttpFuture<B> {
    type Output = Result<Response<HttpBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let exchange = match state.as_mut().project() {
                StateProjection::Unauthorized => return Poll::Ready(Ok(unauthorized())),
                StateProjection::Reading { owner, parts, body, needs_body, read } => {
                    let body = if *needs_body { ready!(read.poll_read(body, owner.body_limit(), cx)) } else { Bytes::new() };
                    let Some(parts) = parts.take() else { return Poll::Pending };
                    match owner.begin(parts, body) {
                        Ok(exchange) => Some(exchange),
                        Err(_) => return Poll::Ready(Ok(unavailable())),
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
    let mut whole = None;
    while let Poll::Ready(part) = exchange.poll_part(cx) {
        match part {
            ResponsePart::Chunk(chunk) => whole = Some(chunk),
            _ => break,
        }
    }
    HttpBody::whole(whole)
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
