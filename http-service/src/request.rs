//! Conversion of the head of a request to the type of the core, and reading of its body.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::borrow::Cow;

use bytes::{Buf as _, Bytes};
use http::request::Parts;
use http_body::Body;
use protocol_core::http::{Method, RequestHead};

/// The head of a request, as the type of the core.
pub(crate) fn head(parts: &Parts) -> RequestHead<'_> {
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let mut head = RequestHead::new(Method::from_name(parts.method.as_str()), headers);
    head.authority = parts.uri.authority().map(|authority| Cow::Borrowed(authority.as_str()));
    head
}

/// The part of a body that was read.
#[derive(Debug, Default)]
pub(crate) struct PartialBody {
    /// The first piece. Most bodies have only one piece, which is not copied.
    first: Bytes,
    /// All pieces, if there are several.
    all: Vec<u8>,
}

impl PartialBody {
    /// Reads `body` to its end, or until more than `limit` bytes were read. If reading fails, returns an empty body, so that the part that
    /// was read has no effect.
    pub(crate) fn poll_read<B: Body>(&mut self, mut body: Pin<&mut B>, limit: usize, cx: &mut Context<'_>) -> Poll<Bytes> {
        while self.len() <= limit {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data() {
                        self.push(data.copy_to_bytes(data.remaining()));
                    }
                }
                Some(Err(_)) => return Poll::Ready(Bytes::new()),
                None => break,
            }
        }
        Poll::Ready(if self.all.is_empty() { core::mem::take(&mut self.first) } else { core::mem::take(&mut self.all).into() })
    }

    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&piece);
    }
}
