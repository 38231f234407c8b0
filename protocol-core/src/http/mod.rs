//! MCP over Streamable HTTP, as sans-IO machines: everything between the head and the body of an HTTP request and the frames of a session.
//!
//! [`HttpServer`] is the server's end, and [`HttpClient`] the client's. Parsing HTTP and keeping its connections is left to a library. Every
//! other module takes values and returns values:
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

pub use client::{HttpClient, HttpClientConfig, HttpClientEvent, HttpClientRequest, HttpFailure, HttpFault, HttpRequestId};
pub use head::{AmbiguousHeader, Headers, Method, RequestHead, ResponseHead};
pub use limits::{HttpClientLimits, HttpClientTimeouts, HttpLimits, HttpTimeouts};
pub use location::InvalidUrl;
pub use server::{
    HttpContext, HttpEvent, HttpExchangeId, HttpRequest, HttpServer, HttpServerConfig, NotResumable, ResponsePart, SessionKey,
};
