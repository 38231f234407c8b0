//! Conversion of the head of a request to the type of the core, and reading of its body.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::borrow::Cow;

use bytes::{Buf as _, Bytes};
use endpoint::TimedRuntime;
use http::request::Parts;
use http_body::Body;
use protocol_core::Instant;
use protocol_core::drive::Timer;
use protocol_core::http::{Method, RequestHead};

use crate::budget::{Charge, Refused, Unit};

/// The header that repeats the method of a request without a handshake.
pub(crate) const METHOD: &str = "mcp-method";
/// The method of a subscription.
pub(crate) const SUBSCRIBE: &str = "subscriptions/listen";
/// The header that names a session with a handshake.
pub(crate) const SESSION_ID: &str = "mcp-session-id";

/// The head of a request, as the type of the core.
pub(crate) fn head(parts: &Parts) -> RequestHead<'_> {
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let mut head = RequestHead::new(Method::from_name(parts.method.as_str()), headers);
    head.authority = parts.uri.authority().map(|authority| Cow::Borrowed(authority.as_str()));
    head
}

/// The reason for which a body was not read to its end.
#[derive(Debug)]
pub(crate) enum Unread {
    NoRoom(Refused),
    TooLong,
    TooLate,
}

/// The bounds on the bodies of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// The part of a body that was read.
#[derive(Default)]
pub(crate) struct PartialBody {
    /// The first piece. Most bodies have only one piece, which is not copied.
    first: Bytes,
    /// All pieces, if there are several.
    all: Vec<u8>,
    /// The number of bytes that are charged for.
    charged: usize,
    /// The time by which the whole body must have arrived; `None` until the body is waited for.
    deadline: Option<(Box<dyn Timer + Send + Sync>, Instant)>,
}

impl PartialBody {
    /// Charges for the length that the head of the request names, before anything is read.
    pub(crate) fn begin<B: Body>(body: &B, limits: BodyLimits, charge: &mut Charge) -> Result<Self, Unread> {
        let length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if length > limits.bytes {
            return Err(Unread::TooLong);
        }
        charge.add(Unit::RequestBytes, length).map_err(Unread::NoRoom)?;
        Ok(Self { charged: length, ..Self::default() })
    }

    /// A body of `length` bytes that is not charged for.
    pub(crate) fn uncharged(length: u64) -> Self {
        Self { charged: usize::try_from(length).unwrap_or(usize::MAX), ..Self::default() }
    }

    /// Reads `body` to its end. If reading fails, returns an empty body, so that the part that was read has no effect.
    pub(crate) fn poll_read<B: Body>(
        &mut self,
        mut body: Pin<&mut B>,
        limits: BodyLimits,
        charge: &mut Charge,
        runtime: &dyn TimedRuntime,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Unread>> {
        loop {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(mut data) = frame.into_data() {
                        let length = self.len().saturating_add(data.remaining());
                        if length > limits.bytes {
                            return Poll::Ready(Err(Unread::TooLong));
                        }
                        if let Err(refused) = charge.add(Unit::RequestBytes, length.saturating_sub(self.charged)) {
                            return Poll::Ready(Err(Unread::NoRoom(refused)));
                        }
                        self.charged = self.charged.max(length);
                        self.push(data.copy_to_bytes(data.remaining()));
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Ok(Bytes::new())),
                Poll::Ready(None) => return Poll::Ready(Ok(self.take())),
                Poll::Pending => {
                    let (timer, until) = self.deadline.get_or_insert_with(|| {
                        let timer = runtime.timer();
                        let until = timer.now().saturating_add(limits.time);
                        (timer, until)
                    });
                    ready!(timer.poll_until(cx, *until));
                    return Poll::Ready(Err(Unread::TooLate));
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() && self.all.is_empty() {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve_exact(self.charged);
            self.all.extend_from_slice(&core::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&piece);
    }

    fn take(&mut self) -> Bytes {
        if self.all.is_empty() { core::mem::take(&mut self.first) } else { core::mem::take(&mut self.all).into() }
    }
}
