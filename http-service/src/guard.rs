//! The check of who may send requests.

use core::pin::Pin;
use std::net::SocketAddr;

use http::request::Parts;
use http::{HeaderMap, header};

/// Decides which requests an [`HttpService`](crate::HttpService) serves. A request that is not admitted is answered with 401, before its
/// body is read and before a session is opened or ended. Install it with [`HttpService::guarded`](crate::HttpService::guarded).
pub trait Guard: Send + Sync + 'static {
    /// Resolves to `true` if all requests of a connection are admitted. [`HttpListener`](crate::HttpListener) asks this once for each
    /// connection, before it reads from the connection; without this listener nobody asks. `local` and `remote` are the addresses of our
    /// end and of the client's end.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: when the connection has been idle for too long
    /// ([`ConnectionLimits::idle`](crate::ConnectionLimits::idle)), when the listener closes, or when the runtime shuts down.
    fn trusts(&self, local: SocketAddr, remote: SocketAddr) -> Pin<Box<dyn Future<Output = bool> + Send>>;

    /// Returns `true` if a request is admitted although its connection is not trusted. `token` is the bearer token in its header
    /// `Authorization`; `None` if it has none. Compare secrets in constant time.
    fn admits(&self, token: Option<&str>) -> bool;
}

/// Marks the requests of a trusted connection, in their extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trusted;

/// Returns `true` if a guard admits the request with this head.
pub(crate) fn admits(guard: &dyn Guard, head: &Parts) -> bool {
    head.extensions.get::<Trusted>().is_some() || guard.admits(bearer(&head.headers))
}

/// The bearer token of a request. A request with two headers `Authorization` has none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_read_from_one_header_of_its_scheme() {
        let rows: [(&[&str], Option<&str>); 8] = [
            (&["Bearer abc"], Some("abc")),
            (&["bearer  abc"], Some("abc")),
            (&["Basic abc"], None),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["abc"], None),
            (&["Bearer abc", "Bearer abc"], None),
            (&[], None),
        ];
        for (values, token) in rows {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(bearer(&headers), token, "{values:?}");
        }
    }
}
