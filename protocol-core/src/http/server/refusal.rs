//! The error responses that the server makes by itself, without a session.

use alloc::format;
use alloc::string::ToString as _;
use core::time::Duration;

use bytes::Bytes;

use crate::error::RpcError;
use crate::http::accept::JSON;
use crate::http::head::{Headers, ResponseHead};
use crate::http::header;
use crate::http::message::{self, ErrorId};
use crate::json::Text;
use crate::wire::WireId;

/// The whole response to a request that is not served: a head, and a body, which is a JSON-RPC error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRefusal {
    /// The head.
    pub head: ResponseHead<'static>,
    /// The body.
    pub body: Bytes,
}

/// An error response that the server makes by itself: a status, and an error for the body.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) error: RpcError,
    /// The id of the request; `None` if it is not known, or if the error must not name it.
    pub(super) id: Option<WireId>,
    pub(super) headers: Headers<'static>,
}

impl Refusal {
    pub(super) fn new(status: u16, why: impl Into<Text>) -> Self {
        Self { status, error: RpcError::new(RpcError::INVALID_REQUEST, why), id: None, headers: Headers::new() }
    }

    /// The refusal of an HTTP method that is not served; `allowed` lists those that are.
    pub(super) fn method(allowed: &'static str) -> Self {
        let mut refusal = Self::new(405, format!("only {allowed} is served here"));
        refusal.headers.push(header::ALLOW, allowed);
        refusal
    }

    /// The refusal of a request that may be accepted later: a limit is reached, the server is stopping, or the session of the request has
    /// ended without a reply. The client may try again after a second.
    pub(super) fn overloaded(why: &'static str) -> Self {
        Self::for_now(503, why, Duration::from_secs(1))
    }

    /// The refusal of a request that the client may repeat after `wait`, which is rounded up to whole seconds.
    pub(super) fn for_now(status: u16, why: impl Into<Text>, wait: Duration) -> Self {
        let mut refusal = Self { error: RpcError::new(RpcError::INTERNAL, why), ..Self::new(status, "") };
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
        refusal.headers.push(header::RETRY_AFTER, seconds.max(1).to_string());
        refusal
    }

    pub(super) fn with_error(status: u16, error: RpcError, id: Option<WireId>) -> Self {
        Self { status, error, id, headers: Headers::new() }
    }

    /// Sets the id of the request that is refused.
    pub(super) fn of(self, id: WireId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// The response. If the refusal has no id, the error has the id `otherwise`.
    pub(super) fn respond(self, otherwise: ErrorId) -> HttpRefusal {
        let Self { status, error, id, mut headers } = self;
        let body = message::error(&id.map_or(otherwise, ErrorId::Of), &error);
        headers.push(header::CONTENT_TYPE, JSON);
        HttpRefusal { head: ResponseHead::new(status, headers), body }
    }
}
