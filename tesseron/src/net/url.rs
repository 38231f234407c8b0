use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::string::String;
use std::vec;
use std::vec::Vec;

use protocol_core::url::Url;

/// The maximum length of a URL, in bytes.
const MAX_BYTES: usize = 1024;

/// The URL of a WebSocket on this machine: `ws://`, a loopback address or `localhost`, a port, and perhaps a path and a query. `localhost`
/// is not resolved: it stands for the loopback addresses of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopbackUrl {
    url: String,
    /// The number of bytes of `url` before its path.
    authority_end: usize,
    port: u16,
    /// `None` for `localhost`.
    address: Option<IpAddr>,
}

/// The error for a URL that may lead to another machine, or is not the URL of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no URL of a WebSocket on this machine (ws://127.0.0.1:PORT/)")]
pub struct NotLoopback;

const SCHEME: &str = "ws://";

impl LoopbackUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`NotLoopback`], also for a URL with more than 1024 bytes, a user name, a fragment, or an invalid character.
    pub fn parse(url: &str) -> Result<Self, NotLoopback> {
        if url.len() > MAX_BYTES || !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(NotLoopback);
        }
        let Url { scheme: "ws", authority, host, port: Some(port @ 1..), .. } = Url::parse(url).map_err(|_| NotLoopback)? else {
            return Err(NotLoopback);
        };
        let ip = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse().map(IpAddr::V6),
            None => host.parse().map(IpAddr::V4),
        };
        let address = match ip {
            _ if host == "localhost" => None,
            Ok(ip) if ip.is_loopback() => Some(ip),
            _ => return Err(NotLoopback),
        };
        let authority_end = SCHEME.len().saturating_add(authority.len());
        Ok(Self { url: url.into(), authority_end, port, address })
    }

    /// The URL of a listening socket.
    #[cfg(feature = "websocket")]
    pub(super) fn at(address: SocketAddr) -> Result<Self, NotLoopback> {
        Self::parse(&std::format!("{SCHEME}{address}/"))
    }

    /// The URL as it was parsed.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// The addresses to try, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let here = |address| SocketAddr::new(address, self.port);
        self.address.map_or_else(|| vec![here(Ipv4Addr::LOCALHOST.into()), here(Ipv6Addr::LOCALHOST.into())], |one| vec![here(one)])
    }

    /// The value of the header `Host` in a request.
    #[cfg(feature = "websocket")]
    pub(super) fn authority(&self) -> &str {
        self.url.get(SCHEME.len()..self.authority_end).unwrap_or_default()
    }

    /// The path and query of a request.
    #[cfg(feature = "websocket")]
    pub(super) fn target(&self) -> String {
        let path = self.url.get(self.authority_end..).unwrap_or_default();
        if path.starts_with('/') { path.into() } else { std::format!("/{path}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn urls_of_this_machine_are_read() {
        for (url, addresses) in [
            ("ws://127.0.0.1:45987/", &["127.0.0.1:45987"][..]),
            ("ws://127.0.0.1:45987", &["127.0.0.1:45987"]),
            ("ws://127.8.9.10:1/a/b?c=d", &["127.8.9.10:1"]),
            ("ws://[::1]:80/", &["[::1]:80"]),
            ("ws://localhost:5173/@tesseron/ws/inst-1", &["127.0.0.1:5173", "[::1]:5173"]),
        ] {
            let read = LoopbackUrl::parse(url).unwrap();
            assert_eq!(read.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), addresses, "{url}");
            assert_eq!(read.as_str(), url);
        }
    }

    #[test]
    fn invalid_urls_and_urls_that_may_lead_to_another_machine_are_errors() {
        for url in [
            "",
            "ws://",
            "ws:///",
            "wss://127.0.0.1:1/",
            "http://127.0.0.1:1/",
            "WS://127.0.0.1:1/",
            "ws://127.0.0.1/",
            "ws://127.0.0.1:0/",
            "ws://127.0.0.1:65536/",
            "ws://127.1:80/",
            "ws://0x7f.0.0.1:80/",
            "ws://0.0.0.0:80/",
            "ws://10.0.0.1:80/",
            "ws://[::ffff:127.0.0.1]:80/",
            "ws://[::]:80/",
            "ws://example.com:80/",
            "ws://localhost.example.com:80/",
            "ws://localhost:80@example.com/",
            "ws://127.0.0.1:80@example.com:80/",
            "ws://user@127.0.0.1:80/",
            "ws://127.0.0.1:80\\@example.com/",
            "ws://127.0.0.1:80/#fragment",
            "ws://127.0.0.1:80/ HTTP/1.1\r\nHost: example.com",
            "ws://127.0.0.1:80/\u{e9}",
        ] {
            assert_eq!(LoopbackUrl::parse(url), Err(NotLoopback), "{url}");
        }
        assert_eq!(LoopbackUrl::parse(&std::format!("ws://127.0.0.1:80/{}", "a".repeat(MAX_BYTES))), Err(NotLoopback));
    }

    #[cfg(feature = "websocket")]
    #[test]
    fn the_host_and_the_path_of_a_request_are_taken_from_the_url() {
        for (url, authority, target) in [
            ("ws://127.0.0.1:1", "127.0.0.1:1", "/"),
            ("ws://127.0.0.1:1?a", "127.0.0.1:1", "/?a"),
            ("ws://[::1]:1/a/b?c", "[::1]:1", "/a/b?c"),
        ] {
            let read = LoopbackUrl::parse(url).unwrap();
            assert_eq!((read.authority(), read.target()), (authority, target.into()), "{url}");
        }
    }
}
