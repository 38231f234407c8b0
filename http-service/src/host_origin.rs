//! A layer that checks `Host` and `Origin`.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use protocol_core::http::origin::{self, Allowed};
use tower_layer::Layer;
use tower_service::Service;

use crate::request::head;

/// Refuses with 403 requests to hosts that are not allowed, requests without a host, and requests from pages of origins that are not
/// allowed, before any inner layer gets them.
///
/// [`HttpService`](crate::HttpService) makes the same checks. Use this layer, as the outermost, if an application has other layers with
/// effects, such as authentication, or other routes to protect. Then the service itself can be configured with [`Allowed::Any`].
#[derive(Clone, Debug)]
pub struct HostOriginLayer {
    allowed: Arc<(Allowed, Allowed)>,
}

impl HostOriginLayer {
    /// Lets requests pass whose host is in `hosts`, and whose origin is in `origins` or absent.
    #[must_use]
    pub fn new(hosts: Allowed, origins: Allowed) -> Self {
        Self { allowed: Arc::new((hosts, origins)) }
    }

    /// Lets requests pass whose host is this machine ([`Allowed::Loopback`]), and whose origin is this machine or absent.
    #[must_use]
    pub fn loopback() -> Self {
        Self::new(Allowed::Loopback, Allowed::Loopback)
    }
}

impl<S> Layer<S> for HostOriginLayer {
    type Service = HostOriginService<S>;

    fn layer(&self, inner: S) -> HostOriginService<S> {
        HostOriginService { inner, allowed: Arc::clone(&self.allowed) }
    }
}

/// The service of a [`HostOriginLayer`].
#[derive(Clone, Debug)]
pub struct HostOriginService<S> {
    inner: S,
    allowed: Arc<(Allowed, Allowed)>,
}

impl<S, B, R> Service<Request<B>> for HostOriginService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<HostOriginBody<R>>;
    type Error = S::Error;
    type Future = HostOriginFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let (hosts, origins) = &*self.allowed;
        match origin::check(&head(&parts), hosts, origins) {
            Ok(()) => HostOriginFuture { inner: Some(self.inner.call(Request::from_parts(parts, body))), refusal: None },
            Err(forbidden) => HostOriginFuture { inner: None, refusal: Some(forbidden.to_string()) },
        }
    }
}

pin_project! {
    /// The future of a [`HostOriginService`].
    ///
    /// # Cancel safety
    /// Cancel safe if the future of the inner service is.
    #[derive(Debug)]
    pub struct HostOriginFuture<F> {
        #[pin]
        inner: Option<F>,
        refusal: Option<String>,
    }
}

impl<F, R, E> Future for HostOriginFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<HostOriginBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(inner) = this.inner.as_pin_mut() {
            let passed = ready!(inner.poll(cx))?;
            return Poll::Ready(Ok(passed.map(|inner| HostOriginBody { inner: Some(inner), refusal: None })));
        }
        let refusal = this.refusal.take().map(Bytes::from);
        let mut response = Response::new(HostOriginBody { inner: None, refusal });
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Poll::Ready(Ok(response))
    }
}

pin_project! {
    /// The body of a response of a [`HostOriginService`]: the body of the inner service, or one line of text with the reason of the
    /// refusal.
    #[derive(Debug)]
    pub struct HostOriginBody<R> {
        #[pin]
        inner: Option<R>,
        refusal: Option<Bytes>,
    }
}

impl<R: Body<Data = Bytes>> Body for HostOriginBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let this = self.project();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll_frame(cx),
            None => Poll::Ready(this.refusal.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or_else(|| self.refusal.is_none(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let refusal = || SizeHint::with_exact(self.refusal.as_ref().map_or(0, |text| text.len() as u64));
        self.inner.as_ref().map_or_else(refusal, Body::size_hint)
    }
}
