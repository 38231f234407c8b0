//! The types that the methods of the server take and return.

use core::fmt;

use bytes::Bytes;

use crate::http::era::Era;
use crate::http::head::{RequestHead, ResponseHead};
use crate::http::header::ParamHeaders;
use crate::http::limits::{HttpLimits, HttpTimeouts};
use crate::http::origin::Allowed;
use crate::mcp;
use crate::session::Lane;
use crate::shared::Arc;

/// The number of an HTTP exchange: one request and its response. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpExchangeId(pub(super) u64);

impl fmt::Display for HttpExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http-{}", self.0)
    }
}

/// The number of a session of a server. It is not the id in the header `Mcp-Session-Id`. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub(super) u64);

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session-{}", self.0)
    }
}

/// The configuration of an [`HttpServer`](crate::http::HttpServer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpServerConfig {
    /// The eras that are served. Default: both. The era of one session has another type, [`Era`].
    pub era: mcp::Era,
    /// The hosts that requests may be made to. Default: only this machine.
    pub hosts: Allowed,
    /// The origins of pages that may make requests. Default: only this machine.
    pub origins: Allowed,
    /// `true` if streams of sessions with a handshake can be resumed. Default: `true`.
    pub resumable: bool,
    /// The bounds on memory and concurrency.
    pub limits: HttpLimits,
    /// The time limits.
    pub timeouts: HttpTimeouts,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self {
            era: mcp::Era::Auto,
            hosts: Allowed::default(),
            origins: Allowed::default(),
            resumable: true,
            limits: HttpLimits::default(),
            timeouts: HttpTimeouts::default(),
        }
    }
}

/// An HTTP request to the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpRequest<'a> {
    /// The head.
    pub head: RequestHead<'a>,
    /// The body. It may be cut off after [`HttpLimits::body_bytes`] and one more byte.
    pub body: Bytes,
    /// The name of the authenticated caller, if there is one. A session belongs to the caller that opened it. A request of any other caller
    /// that names the session is answered as if there were no such session.
    pub principal: Option<&'a str>,
}

impl<'a> HttpRequest<'a> {
    /// A request without an authenticated caller.
    #[must_use]
    pub const fn new(head: RequestHead<'a>, body: Bytes) -> Self {
        Self { head, body, principal: None }
    }
}

/// The values that the owner provides for a request.
pub trait HttpContext {
    /// Returns bytes of a cryptographically secure generator, for the id of a new session. Called only for a request that may open one
    /// ([`Admitted::opens_session`](crate::http::Admitted::opens_session)).
    fn random(&mut self) -> [u8; 16];

    /// Returns the arguments of `tool` that a client must repeat in headers, according to the list of tools for this caller. `None` if the
    /// list does not contain the tool.
    fn param_headers(&mut self, tool: &str) -> Option<Arc<ParamHeaders>> {
        let _ = tool;
        None
    }
}

/// A part of a response. Each HTTP exchange has one head, then any number of chunks, then one end. Once an exchange is
/// [lost](crate::http::HttpServer::handle_lost), no further part comes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponsePart {
    /// The head. If the length of the body is known, the body is one chunk, or no chunk if the length is 0.
    Head {
        /// The head.
        head: ResponseHead<'static>,
        /// The length of the body in bytes; `None` for a stream of events.
        length: Option<usize>,
    },
    /// A part of the body, which is never empty.
    Chunk(Bytes),
    /// The end of the response. The exchange is over.
    End,
}

/// An instruction to the owner of an [`HttpServer`](crate::http::HttpServer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpEvent {
    /// Create the session: an MCP server with the configuration [`Era::config`].
    Open {
        /// The number of the session.
        session: SessionKey,
        /// The era of the session.
        era: Era,
    },
    /// Pass the frame to the session, and the result to [`HttpServer::handle_received`](crate::http::HttpServer::handle_received) or
    /// [`HttpServer::handle_full`](crate::http::HttpServer::handle_full). If the session has closed, drop the frame:
    /// [`HttpServer::handle_closed`](crate::http::HttpServer::handle_closed) ends its exchange.
    Frame {
        /// The session.
        session: SessionKey,
        /// The exchange in whose request the frame came.
        exchange: HttpExchangeId,
        /// The lane to pass to the session.
        lane: Lane,
        /// The frame.
        frame: Bytes,
    },
    /// Stop or resume the lane of the session ([`Session::set_writable`](crate::Session::set_writable)). The lane may be closed already.
    Writable {
        /// The session.
        session: SessionKey,
        /// The lane.
        lane: Lane,
        /// `false` to stop the lane, `true` to resume it.
        is_writable: bool,
    },
    /// Drop the session, and cancel its calls. No further event names the session.
    Close {
        /// The session.
        session: SessionKey,
    },
    /// Poll the response of this exchange. The event is not repeated until
    /// [`HttpServer::poll_response`](crate::http::HttpServer::poll_response) has returned `None`.
    Readable {
        /// The exchange.
        exchange: HttpExchangeId,
    },
}

/// The error for an HTTP exchange whose stream cannot be resumed: the exchange has no stream any longer or never had one, or its request is
/// not a POST, or [`HttpServerConfig::resumable`] is `false`, or the session has no handshake or a revision before 2025-11-25.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream of this exchange cannot be resumed")]
pub struct NotResumable;
