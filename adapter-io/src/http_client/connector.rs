//! The connector that a runtime passes to the client.

use core::time::Duration;
use std::error::Error as StdError;

use hyper::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::Connection;
use tower_service::Service;

/// The time limit for making a connection over HTTP: 10 s for all addresses of a host together. The connector that is passed to
/// [`http_client`](super::http_client) should enforce it. The client itself allows twice as long for the name look-up, the connection and
/// the TLS handshake together.
pub const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time within which a connection must end whose server is gone without a word, because its machine was switched off or its network
/// broke: 60 s. The connector that is passed to [`http_client`](super::http_client) should set up its sockets so: with probes on a connection
/// on which nothing is sent, and, where the system can (Linux), a limit on the time for which what was sent is not acknowledged.
pub const HTTP_DEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// A connector of hyper-util, which opens a connection to the host and the port of an address. The connection is without TLS, even for
/// `https://`: [`http_client`](super::http_client) adds TLS.
pub trait HttpConnector:
    Service<
        Uri,
        Response: Read + Write + Connection + Unpin + Send + 'static,
        Error: Into<Box<dyn StdError + Send + Sync>>,
        Future: Unpin + Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<C> HttpConnector for C where
    C: Service<
            Uri,
            Response: Read + Write + Connection + Unpin + Send + 'static,
            Error: Into<Box<dyn StdError + Send + Sync>>,
            Future: Unpin + Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}
