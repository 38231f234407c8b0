//! MCP over Streamable HTTP, as sans-IO machines: they convert between the heads and bodies of HTTP messages and the frames of sessions.
//!
//! [`HttpServer`] is the server's end, and [`HttpClient`] the client's. An HTTP library must parse HTTP and keep the connections. The parts
//! of the protocol that can be used alone are in modules of their own:
//!
//! | Module | Contents |
//! |---|---|
//! | [`sse`] | streams of events: a decoder and an encoder |
//! | [`header`] | the names of header fields, and the values that repeat a part of the body |
//! | [`accept`], [`origin`], [`era`], [`status`] | the rules of media types, of hosts and origins, of the two eras, and of status codes |

pub mod accept;
mod client;
pub mod era;
mod head;
pub mod header;
mod limits;
mod location;
mod message;
pub mod origin;
mod server;
pub mod sse;
pub mod status;
mod timers;

pub use client::{
    HttpClient, HttpClientConfig, HttpClientEvent, HttpClientRequest, HttpExcerpt, HttpFailure, HttpFault, HttpReason,
    HttpRequestId,
};
pub use head::{AmbiguousHeader, Headers, Method, RequestHead, ResponseHead};
pub use limits::{HttpClientLimits, HttpClientTimeouts, HttpLimits, HttpTimeouts};
pub use location::{InvalidUrl, without_credentials};
pub use server::{
    Admitted, HttpContext, HttpEvent, HttpExchangeId, HttpRefusal, HttpRequest, HttpServer, HttpServerConfig, NotResumable,
    ResponsePart, SessionKey,
};
