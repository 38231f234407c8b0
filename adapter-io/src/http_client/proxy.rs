//! Proxies between the client and the server: that of the environment, or one that the application names.
//!
//! A server over TLS is reached through a tunnel (`CONNECT`), so that the proxy sees its host and nothing else. Requests to any other server
//! are sent to the proxy with the whole address of the server.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tower_service::Service;

use super::connector::HttpConnector;

/// The choice of a proxy.
#[derive(Clone, Debug, Default)]
pub(super) enum Proxy {
    /// That of the environment, for servers on other machines.
    #[default]
    Environment,
    None,
    /// The one with this address.
    At(String),
}

impl Proxy {
    /// The proxy for a server.
    pub(super) fn of(&self, server: &Uri) -> io::Result<Option<Intercept>> {
        let found = match self {
            Self::None => None,
            Self::Environment if is_here(server) => None,
            Self::Environment => Matcher::from_env().intercept(server),
            Self::At(address) => {
                let found = Matcher::builder().all(address.as_str()).build().intercept(server);
                Some(found.ok_or_else(|| invalid("the address of the proxy is malformed"))?)
            }
        };
        match found {
            Some(found) if found.uri().scheme() != Some(&Scheme::HTTP) => Err(invalid("only proxies over http:// are supported")),
            found => Ok(found),
        }
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Returns `true` if a server is on this machine.
fn is_here(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The value of `Proxy-Authorization` in requests that are sent to a proxy without a tunnel.
pub(super) fn authorization(proxy: &Intercept, server: &Uri) -> Option<HeaderValue> {
    let is_tunnelled = server.scheme() == Some(&Scheme::HTTPS);
    let mut value = proxy.basic_auth().filter(|_| !is_tunnelled)?.clone();
    value.set_sensitive(true);
    Some(value)
}

/// A connector that makes its connections through a proxy, if there is one.
#[derive(Clone)]
pub(super) struct Proxied<C> {
    connector: C,
    proxy: Option<Intercept>,
}

impl<C> Proxied<C> {
    pub(super) const fn new(connector: C, proxy: Option<Intercept>) -> Self {
        Self { connector, proxy }
    }
}

impl<C: HttpConnector> Service<Uri> for Proxied<C> {
    type Response = Through<C::Response>;
    type Error = Box<dyn StdError + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.connector.call(server);
            return Box::pin(async { Ok(Through { connection: connecting.await.map_err(Into::into)?, is_proxy: false }) });
        };
        if server.scheme() == Some(&Scheme::HTTPS) {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), self.connector.clone());
            if let Some(authorization) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            return Box::pin(async move {
                poll_fn(|cx| tunnel.poll_ready(cx)).await?;
                Ok(Through { connection: tunnel.call(server).await?, is_proxy: false })
            });
        }
        let connecting = self.connector.call(proxy.uri().clone());
        Box::pin(async { Ok(Through { connection: connecting.await.map_err(Into::into)?, is_proxy: true }) })
    }
}

/// A connector through a proxy, with TLS if the feature `http-client-tls` is on.
#[cfg(not(feature = "http-client-tls"))]
pub(super) type OverTls<C> = Proxied<C>;
/// A connector through a proxy, with TLS if the feature `http-client-tls` is on.
#[cfg(feature = "http-client-tls")]
pub(super) type OverTls<C> = hyper_rustls::HttpsConnector<Proxied<C>>;

/// A connection to a server, or to the proxy before it.
pub(super) struct Through<T> {
    connection: T,
    /// `true` if requests must name the whole address of the server.
    is_proxy: bool,
}

impl<T: Connection> Connection for Through<T> {
    fn connected(&self) -> Connected {
        self.connection.connected().proxy(self.is_proxy)
    }
}

impl<T: Read + Unpin> Read for Through<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for Through<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(cx, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_of_the_environment_is_not_used_for_this_machine() {
        for (server, is_local) in [
            ("http://localhost/mcp", true),
            ("http://LOCALHOST:80/mcp", true),
            ("http://127.0.0.2/", true),
            ("https://[::1]:8443/", true),
            ("http://[::ffff:127.0.0.1]/", true),
            ("http://localhost.:1/", true),
            ("http://mcp.localhost/", true),
            ("http://notlocalhost/", false),
            ("http://localhost.example.com/", false),
            ("http://10.0.0.1/", false),
            ("http://[2001:db8::1]/", false),
        ] {
            assert_eq!(is_here(&server.parse().unwrap()), is_local, "{server}");
        }
    }

    #[test]
    fn a_proxy_that_is_named_is_used_for_every_server_and_must_be_over_http() {
        let server: Uri = "http://localhost/mcp".parse().unwrap();
        let tls: Uri = "https://example.com/mcp".parse().unwrap();
        let at = |address: &str| Proxy::At(address.to_owned());
        let proxy = at("http://user:word@proxy.example.com:3128").of(&server).unwrap().unwrap();
        assert_eq!((proxy.uri().host(), proxy.uri().port_u16()), (Some("proxy.example.com"), Some(3128)));
        let value = authorization(&proxy, &server).unwrap();
        assert!(value == "Basic dXNlcjp3b3Jk" && value.is_sensitive());
        assert_eq!(authorization(&proxy, &tls), None, "the tunnel has it");
        for (address, why) in [
            ("https://proxy.example.com", "only proxies over http:// are supported"),
            ("socks5://proxy.example.com", "only proxies over http:// are supported"),
            ("http://", "the address of the proxy is malformed"),
        ] {
            assert_eq!(at(address).of(&tls).unwrap_err().to_string(), why, "{address}");
        }
        assert!(Proxy::None.of(&tls).unwrap().is_none());
    }
}
