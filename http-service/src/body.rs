//! The bodies of responses and requests.

use core::convert::Infallible;
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use protocol_core::http::ResponsePart;

use crate::budget::Charge;
use crate::server::Exchange;

/// The body of a response: one piece of JSON, a stream of events, or nothing.
///
/// Dropping a stream before its end means that the client has disconnected: a stateless request is cancelled, and a request of a
/// session with a handshake goes on.
pub struct HttpBody {
    kind: Kind,
    /// The charge for the exchange of a whole body, until the body is taken: over HTTP/2, once the client has a window for it.
    charge: Option<Charge>,
}

enum Kind {
    /// A body whose length is known; `None` if it is empty, or was returned.
    Whole(Option<Bytes>),
    /// The HTTP exchange whose response is a stream.
    Stream(Box<Exchange>),
}

impl HttpBody {
    pub(crate) fn whole(bytes: Option<Bytes>) -> Self {
        Self::charged(bytes, None)
    }

    pub(crate) fn charged(bytes: Option<Bytes>, charge: Option<Charge>) -> Self {
        let charge = charge.filter(|_| bytes.is_some());
        Self { kind: Kind::Whole(bytes), charge }
    }

    pub(crate) fn stream(exchange: Exchange) -> Self {
        Self { kind: Kind::Stream(Box::new(exchange)), charge: None }
    }

    /// Reports that the client has closed its side of the connection.
    #[cfg(feature = "hyper")]
    pub(crate) fn half_close(&self) {
        if let Kind::Stream(exchange) = &self.kind {
            exchange.half_close();
        }
    }

    /// Returns the next piece of the body, for servers that do not take a [`Body`]. `None` at the end of the body.
    ///
    /// # Cancel safety
    /// Cancel safe: no piece is lost.
    pub async fn next_chunk(&mut self) -> Option<Bytes> {
        let frame = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
        frame.and_then(|Ok(frame)| frame.into_data().ok())
    }
}

/// The body of a request, read into memory.
#[derive(Debug)]
pub(crate) struct BufferedBody(Option<Bytes>);

impl BufferedBody {
    pub(crate) const fn new(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl Body for BufferedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.charge = None;
        match &mut self.kind {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(exchange) if exchange.is_over() => Poll::Ready(None),
            Kind::Stream(exchange) => Poll::Ready(match ready!(exchange.poll_part(cx)) {
                ResponsePart::Chunk(chunk) => Some(Ok(Frame::data(chunk))),
                // The end. A head is not part of a body, and was returned before.
                _ => None,
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Stream(exchange) => exchange.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Whole(_) => "HttpBody::Whole",
            Kind::Stream(_) => "HttpBody::Stream",
        })
    }
}
