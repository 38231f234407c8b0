//! The checks of a request that need no session: pure functions of the configuration and the request.
//!
//! ```text
//!   head --- check ---> the body is read --- admit ---> Admitted ---> HttpServer::handle_admitted
//!     |                                        |
//!     `----------------------------------------'----> HttpRefusal
//! ```

use alloc::format;
use core::time::Duration;

use bytes::Bytes;

use super::refusal::{HttpRefusal, Refusal};
use super::types::{HttpContext, HttpRequest, HttpServerConfig};
use crate::error::RpcError;
use crate::http::accept::{Accepted, JSON, is_media_type};
use crate::http::era::{Destination, Era, NamedVersion, Posted, classify};
use crate::http::head::{Headers, Method, RequestHead};
use crate::http::header::{self, Mismatch};
use crate::http::message::{self, Body, ErrorId, Message};
use crate::http::origin;
use crate::json::Text;
use crate::mcp::{self, Revision};

impl HttpServerConfig {
    /// Makes the checks of a request that need only its head. Read the body of a POST only after them: at most
    /// [`HttpLimits::body_bytes`](crate::http::HttpLimits::body_bytes) and one more byte of it. Other requests need no body.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub fn check(&self, head: &RequestHead<'_>) -> Result<(), HttpRefusal> {
        check_head(head, self).map_err(|refusal| refusal.respond(absent_id_for(head)))
    }

    /// Reads the body of a request whose head has passed [`check`](Self::check), once, and makes all checks that need no session. Calls
    /// [`HttpContext::param_headers`].
    ///
    /// # Errors
    /// The response to a request that is refused. If the request has several faults, the first check that fails determines it.
    pub fn admit<'a>(&self, request: &'a HttpRequest<'a>, context: &mut dyn HttpContext) -> Result<Admitted<'a>, HttpRefusal> {
        admit(request, context, self).map_err(|refusal| refusal.respond(absent_id_for(&request.head)))
    }

    /// The response to a request that is refused for a reason that the owner has. `retry_after`, rounded up to whole seconds, is the time
    /// after which the client may try again, if this can help.
    #[must_use]
    pub fn refuse(head: &RequestHead<'_>, status: u16, why: impl Into<Text>, retry_after: Option<Duration>) -> HttpRefusal {
        let refusal = match retry_after {
            Some(wait) => Refusal::for_now(status, why, wait),
            None => Refusal::new(status, why),
        };
        refusal.respond(absent_id_for(head))
    }
}

/// A request that has passed the checks that need no session, with the contents of its body
/// ([`HttpServer::handle_admitted`](crate::http::HttpServer::handle_admitted)).
#[derive(Debug)]
pub struct Admitted<'a> {
    request: &'a HttpRequest<'a>,
    contents: Contents,
    client: Option<Text>,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) enum Contents {
    Get,
    Delete,
    /// A request without a handshake.
    Stateless(message::Request),
    /// A body that belongs to a session, opens one, or is a notification.
    InSession(Body),
}

impl<'a> Admitted<'a> {
    pub(super) fn request(&self) -> &'a HttpRequest<'a> {
        self.request
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The number of requests in the body, each of which causes a reply of a session.
    #[must_use]
    pub fn calls(&self) -> usize {
        match &self.contents {
            Contents::Get | Contents::Delete => 0,
            Contents::Stateless(_) => 1,
            Contents::InSession(body) => body.requests(),
        }
    }

    /// Returns `true` for the request that opens a session with a handshake, for which [`HttpContext::random`] is called.
    #[must_use]
    pub fn opens_session(&self) -> bool {
        matches!(&self.contents, Contents::InSession(body) if body.opens_session())
    }

    /// Sets the name of the client that a session counts for, such as its address
    /// ([`HttpLimits::sessions`](crate::http::HttpLimits::sessions)). Without it, the session counts for the authenticated caller, if there
    /// is one. Has an effect only on a request that [opens a session](Self::opens_session).
    pub fn set_client(&mut self, client: impl Into<Text>) {
        self.client = Some(client.into());
    }

    /// The client that a session counts for.
    pub(super) fn client(&self) -> Option<Text> {
        self.client.clone().or_else(|| self.request.principal.map(Text::from))
    }
}

/// The id in the error for a request that has none: it depends on the era that the head names.
pub(super) fn absent_id_for(head: &RequestHead<'_>) -> ErrorId {
    absent_id(if names_modern(&head.headers) { Era::Modern } else { Era::Legacy })
}

/// The id in an error that belongs to no request.
pub(super) const fn absent_id(era: Era) -> ErrorId {
    match era {
        Era::Legacy => ErrorId::Null,
        Era::Modern => ErrorId::Absent,
    }
}

pub(super) fn admit<'a>(
    request: &'a HttpRequest<'a>,
    context: &mut dyn HttpContext,
    config: &HttpServerConfig,
) -> Result<Admitted<'a>, Refusal> {
    let contents = match request.head.method {
        Method::Get => Contents::Get,
        Method::Delete => Contents::Delete,
        Method::Post | Method::Other => read(&request.body, &request.head.headers, context, config)?,
    };
    Ok(Admitted { request, contents, client: None })
}

fn read(
    body: &Bytes,
    headers: &Headers<'_>,
    context: &mut dyn HttpContext,
    config: &HttpServerConfig,
) -> Result<Contents, Refusal> {
    if body.len() > config.limits.body_bytes {
        return Err(Refusal::new(413, format!("a body has at most {} bytes", config.limits.body_bytes)));
    }
    let body = message::read(body, config.limits.batch);
    let posted = match &body {
        Body::Malformed { id, error, .. } => return Err(Refusal::with_error(400, error.clone(), id.clone())),
        // Its destination depends on the session that it names.
        Body::Message(Message::Notification) => return Ok(Contents::InSession(body)),
        Body::Message(Message::Request(request)) => request.posted(),
        Body::Message(Message::Response) => Posted::Response,
        Body::Batch(_) => Posted::Batch,
    };
    match (classify(posted, named_version(headers), false, config.era), body) {
        (Destination::Serve(Era::Modern), Body::Message(Message::Request(message))) => {
            check_required_copies(&message, headers, context).map_err(|mismatch| contradiction(&message, &mismatch))?;
            Ok(Contents::Stateless(message))
        }
        (Destination::Serve(Era::Modern), _) => Err(Refusal::new(400, "the body must be one request or notification")),
        (_, body) => Ok(Contents::InSession(body)),
    }
}

/// Makes the checks of a request that need neither the body nor a session.
pub(super) fn check_head(head: &RequestHead<'_>, config: &HttpServerConfig) -> Result<(), Refusal> {
    origin::check(head, &config.hosts, &config.origins).map_err(|forbidden| Refusal::new(403, format!("{forbidden}")))?;
    let accepted = || Accepted::read(head.headers.get_all(header::ACCEPT));
    match (head.method, config.era) {
        (Method::Post, _) => {
            let types = head.headers.only(header::CONTENT_TYPE);
            if !types.ok().flatten().is_some_and(|value| is_media_type(value.as_bytes(), JSON)) {
                return Err(Refusal::new(415, "the header Content-Type must be application/json"));
            }
            if !(accepted().json && accepted().event_stream) {
                return Err(Refusal::new(406, "the header Accept must list application/json and text/event-stream"));
            }
            Ok(())
        }
        (_, mcp::Era::Modern) => Err(Refusal::method("POST")),
        (Method::Get, _) if !accepted().event_stream => Err(Refusal::new(406, "the header Accept must list text/event-stream")),
        (Method::Get | Method::Delete, _) => Ok(()),
        (Method::Other, _) => Err(Refusal::method("GET, POST, DELETE")),
    }
}

/// The version that the header `MCP-Protocol-Version` names.
pub(super) fn named_version(headers: &Headers<'_>) -> NamedVersion {
    headers.only(header::VERSION).map_or(NamedVersion::Unknown, NamedVersion::of)
}

/// Returns `true` if the header `MCP-Protocol-Version` names a revision without a handshake.
fn names_modern(headers: &Headers<'_>) -> bool {
    matches!(named_version(headers), NamedVersion::Known(revision) if !revision.has_handshake())
}

/// Checks the version of a request within a session. The header may name any [known](NamedVersion::Known) version, but the version of the
/// session applies.
pub(super) fn check_version(headers: &Headers<'_>) -> Result<(), Refusal> {
    match named_version(headers) {
        NamedVersion::Absent | NamedVersion::Known(_) => Ok(()),
        NamedVersion::Newer | NamedVersion::Unknown => {
            Err(Refusal::new(400, "the header MCP-Protocol-Version names no version that is served"))
        }
    }
}

/// The refusal of a request whose headers contradict its body.
pub(super) fn contradiction(message: &message::Request, mismatch: &Mismatch) -> Refusal {
    let error = RpcError::new(RpcError::HEADER_MISMATCH, format!("{mismatch}"));
    Refusal::with_error(400, error, Some(message.id.clone()))
}

/// Checks the headers `Mcp-Method` and `Mcp-Name` of a request in the era with a handshake. Neither is required, but a header that is there
/// must agree with the body, since a proxy may rely on it.
pub(super) fn check_optional_copies(message: &message::Request, headers: &Headers<'_>) -> Result<(), Mismatch> {
    let method = headers.only(header::METHOD).map_err(|_| Mismatch::Unreadable(Text::from_static(header::METHOD)))?;
    if method.is_some_and(|method| method != &*message.method) {
        return Err(Mismatch::Different(Text::from_static(header::METHOD)));
    }
    // Without a name in the body there is nothing to compare. If the method needs a name, the session refuses the request.
    let Some(expected) = message.name.as_deref() else { return Ok(()) };
    match header::decoded(headers, header::NAME)? {
        Some(name) if name != expected => Err(Mismatch::Different(Text::from_static(header::NAME))),
        _ => Ok(()),
    }
}

/// Checks the headers that repeat a part of a request without a handshake. A header that is missing or cannot be read is reported first,
/// then a missing member of `_meta`, which the session reports, and then a header that contradicts the body.
fn check_required_copies(message: &message::Request, headers: &Headers<'_>, context: &mut dyn HttpContext) -> Result<(), Mismatch> {
    let plain = |name: &'static str| match headers.only(name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(Mismatch::Missing(Text::from_static(name))),
        Err(_) => Err(Mismatch::Unreadable(Text::from_static(name))),
    };
    let version = plain(header::VERSION)?;
    let method = plain(header::METHOD)?;
    let name = match message.has_name() {
        true => Some(header::decoded(headers, header::NAME)?.ok_or(Mismatch::Missing(Text::from_static(header::NAME)))?),
        false => None,
    };
    let Some(version_in_meta) = message.version.as_deref() else { return Ok(()) };
    let differs = |name| Err(Mismatch::Different(Text::from_static(name)));
    if version != version_in_meta {
        return differs(header::VERSION);
    }
    if method != &*message.method {
        return differs(header::METHOD);
    }
    // Without a name in the body there is nothing to compare. If the method needs a name, the session refuses the request.
    let expected = message.name.as_deref();
    if expected.is_some() && expected != name.as_deref() {
        return differs(header::NAME);
    }
    let tool = expected.filter(|_| message.calls_tool() && version_in_meta == Revision::NEWEST.as_str());
    match tool.and_then(|tool| context.param_headers(tool)) {
        Some(params) => params.check(message.arguments(), headers),
        None => Ok(()),
    }
}
