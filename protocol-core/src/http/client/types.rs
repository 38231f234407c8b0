//! The requests of a client, and what may be wrong with their responses.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use crate::http::head::{Headers, Method};
use crate::http::header::InvalidAnnotation;
use crate::http::sse::DecodeError;
use crate::json::Text;

/// The number of an HTTP request of a client. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpRequestId(pub(super) u64);

impl fmt::Display for HttpRequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http-{}", self.0)
    }
}

/// An HTTP request to make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpClientRequest {
    /// The number of the request.
    pub id: HttpRequestId,
    /// The method.
    pub method: Method,
    /// The path and the query. The scheme, the host and the port are those of
    /// [`HttpClientConfig::url`](crate::http::HttpClientConfig::url), even after a redirection.
    pub target: Text,
    /// The header fields, without those that name the host or the length of the body.
    pub headers: Headers<'static>,
    /// The body; empty for a request without one.
    pub body: Bytes,
}

/// The fault of a response, or of an HTTP exchange without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpFault {
    /// The status is an error.
    #[error("the server answers with the status {0}")]
    Status(u16),
    /// The server has too much to do, and names the time after which a request may be made again. The client does not repeat a call:
    /// its caller decides whether to make it again.
    #[error("the server is overloaded (status {status}), and may be asked again after {} s", .retry_after.as_secs())]
    Overloaded {
        /// 429 or 503.
        status: u16,
        /// The value of `Retry-After`, in whole seconds. If the header has a date, it is not read, and the fault is
        /// [`Status`](Self::Status).
        retry_after: Duration,
    },
    /// The caller must authenticate itself, or may not make this request.
    #[error("the server requires an authorization (status {status})")]
    Unauthorized {
        /// 401 or 403.
        status: u16,
        /// The values of `WWW-Authenticate`, at most eight.
        challenges: Vec<Text>,
    },
    /// The server redirects to another origin, to no valid address, too often, or in a way that does not keep the body.
    #[error("the server redirects the request to an address that the client does not follow (status {status})")]
    Redirected {
        /// The status.
        status: u16,
        /// The value of `Location`.
        location: Option<Text>,
    },
    /// The HTTP response has ended, and did not contain the response to the request.
    #[error("the response ends without an answer")]
    NoResponse,
    /// The server has not answered a request in time, or has not acknowledged a notification or an answer.
    #[error("the server does not answer in time")]
    NoAnswer,
    /// The content type is none of MCP.
    #[error("the content type is neither that of JSON nor that of a stream of events")]
    MediaType,
    /// The body has an encoding, such as gzip. The client asks for none, and reads none.
    #[error("the body has an encoding that the client did not ask for")]
    Encoded,
    /// The connection could not be made, or broke. Contains the error of the transport, at most 200 bytes of it.
    #[error("the connection fails{}{}", if .0.is_empty() { "" } else { ": " }, .0)]
    Disconnected(Text),
    /// The body is longer than the limit.
    #[error("the body of a response is longer than the limit")]
    TooLong,
    /// The stream cannot be read.
    #[error("the stream cannot be read: {0}")]
    Stream(#[source] DecodeError),
    /// A batch, or the response to another request, came on the stream of a request without a handshake. It was dropped.
    #[error("a response comes on the stream of another request")]
    ForeignResponse,
    /// The id of the HTTP session is empty, not visible ASCII, too long, or repeated. The id was ignored.
    #[error("the id of the session is malformed")]
    SessionId,
    /// The annotations of a tool are invalid. The tool was left out of the list.
    #[error("the tool {name} is left out of the list: {why}")]
    Tool {
        /// The name of the tool.
        name: Text,
        /// The reason.
        why: InvalidAnnotation,
    },
    /// Too many requests wait for a response, or too many answers wait until the server has acknowledged earlier ones.
    #[error("too many requests at once")]
    TooMany,
}

impl HttpFault {
    pub(super) const fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Unauthorized { .. })
    }

    /// Returns `true` if [`HttpClientEvent::Fault`] is queued for the fault even if the body of the response has an error.
    pub(super) const fn is_always_reported(&self) -> bool {
        self.is_unauthorized() || matches!(self, Self::Overloaded { .. })
    }

    /// Returns `true` if a response to the probe with this fault may have come because of the probe.
    pub(super) const fn leaves_era_in_doubt(&self) -> bool {
        !matches!(
            self,
            Self::Disconnected(_)
                | Self::Redirected { .. }
                | Self::Unauthorized { .. }
                | Self::Overloaded { .. }
                | Self::Status(429 | 502..=504)
        )
    }

    /// Returns `true` if the text of the fault has the status.
    pub(super) const fn has_status(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Overloaded { .. } | Self::Unauthorized { .. } | Self::Redirected { .. })
    }

    /// Returns `true` if the same request may be accepted a little later.
    pub(super) const fn is_temporary(&self) -> bool {
        matches!(self, Self::Disconnected(_) | Self::Overloaded { .. } | Self::Status(429 | 500..))
    }

    /// The time for which the server asks clients to make no request.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}
