//! The checks of `Host` and `Origin`. They keep web pages in a browser from reaching a server on the same machine (Transports 2025-11-25,
//! "Security Warning").
//!
//! A page can make its browser send requests to any address. If the page also rebinds the name of its own host to that address, it can even
//! read the replies. `Host` has the name of the host that the browser asks for, and `Origin` the origin of the page. The checks come before
//! everything else, so a request that fails them has no effect.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::head::{Headers, RequestHead};
use super::header;
use crate::json::Text;
use crate::url::{Url, split_authority};

/// The hosts or origins that a server accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowed {
    /// This machine, with any port: `localhost`, `127.0.0.1` and `[::1]`. This is the default.
    #[default]
    Loopback,
    /// The entries of a list and, if `loopback` is `true`, this machine.
    Listed {
        /// Hosts such as `example.com` (any port) or `example.com:8443`; origins such as `https://example.com`, or `null`.
        list: Vec<Text>,
        /// `true` to accept this machine, too.
        loopback: bool,
    },
    /// Everything, without a check. Use it only if a proxy makes the check, or if no browser can reach the server.
    Any,
}

impl Allowed {
    /// Accepts only the entries of `list`.
    pub fn only(list: impl IntoIterator<Item = impl Into<Text>>) -> Self {
        Self::Listed { list: list.into_iter().map(Into::into).collect(), loopback: false }
    }

    fn admits(&self, is_loopback: bool, is_listed: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => is_loopback,
            Self::Listed { list, loopback } => (*loopback && is_loopback) || list.iter().any(|entry| is_listed(entry)),
        }
    }
}

/// The reason why a request is refused before it is read. The status is 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Forbidden {
    /// The request names no host, has several fields `Host`, or names a host that is not accepted.
    #[error("this host is not served")]
    Host,
    /// The request has several fields `Origin`, or names an origin that is not accepted.
    #[error("this origin is not allowed")]
    Origin,
}

/// Checks the host and the origin of a request. A request without an origin passes the check of the origin, since programs other than
/// browsers send none.
///
/// # Errors
/// [`Forbidden`] if the host or the origin is not accepted.
pub fn check(head: &RequestHead<'_>, hosts: &Allowed, origins: &Allowed) -> Result<(), Forbidden> {
    check_host(head, hosts)?;
    check_origin(&head.headers, origins)
}

fn check_host(head: &RequestHead<'_>, allowed: &Allowed) -> Result<(), Forbidden> {
    if matches!(allowed, Allowed::Any) {
        return Ok(());
    }
    let named = head.headers.only(header::HOST).map_err(|_| Forbidden::Host)?;
    let mut has_host = false;
    for host in [head.authority.as_deref(), named].into_iter().flatten() {
        let host = Host::parse(host).ok_or(Forbidden::Host)?;
        let is_listed = |entry: &str| Host::parse(entry).is_some_and(|entry| entry.admits(&host));
        if !allowed.admits(host.is_loopback(), is_listed) {
            return Err(Forbidden::Host);
        }
        has_host = true;
    }
    if has_host { Ok(()) } else { Err(Forbidden::Host) }
}

fn check_origin(headers: &Headers<'_>, allowed: &Allowed) -> Result<(), Forbidden> {
    if matches!(allowed, Allowed::Any) {
        return Ok(());
    }
    let Some(text) = headers.only(header::ORIGIN).map_err(|_| Forbidden::Origin)? else { return Ok(()) };
    let origin = Origin::parse(text);
    let is_loopback = origin.as_ref().is_some_and(Origin::is_loopback);
    let is_listed = |entry: &str| match &origin {
        Some(origin) => Origin::parse(entry).is_some_and(|entry| entry == *origin),
        None => text == "null" && entry == "null",
    };
    if allowed.admits(is_loopback, is_listed) { Ok(()) } else { Err(Forbidden::Origin) }
}

/// A host with an optional port. The name is in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host<'a> {
    name: Cow<'a, str>,
    port: Option<u16>,
}

impl<'a> Host<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (name, port) = split_authority(text).ok()?;
        Some(Self::of(name, port))
    }

    fn of(name: &'a str, port: Option<u16>) -> Self {
        let has_upper_case = name.bytes().any(|byte| byte.is_ascii_uppercase());
        let name = if has_upper_case { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) };
        Self { name, port }
    }

    fn is_loopback(&self) -> bool {
        matches!(&*self.name, "localhost" | "127.0.0.1" | "[::1]")
    }

    /// Returns `true` if this entry of a list accepts `host`. If the entry has a port, the port must be equal, too.
    fn admits(&self, host: &Host<'_>) -> bool {
        self.name == host.name && (self.port.is_none() || self.port == host.port)
    }
}

/// A scheme, a host and a port (RFC 6454, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin<'a> {
    scheme: Cow<'a, str>,
    host: Host<'a>,
}

impl<'a> Origin<'a> {
    /// Reads an origin, and adds the default port of the scheme if the origin has no port. `None` for `null` and for any other text that is
    /// not an origin.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        Url::parse(text).ok().filter(|url| url.rest.is_empty()).map(|url| Self::of(&url))
    }

    /// The origin of a URL.
    pub(super) fn of(url: &Url<'a>) -> Self {
        let (host, scheme) = (Host::of(url.host, url.port_or_usual()), url.scheme);
        let scheme: Cow<'a, str> = match () {
            () if scheme.eq_ignore_ascii_case("http") => "http".into(),
            () if scheme.eq_ignore_ascii_case("https") => "https".into(),
            () => scheme.into(),
        };
        Self { scheme, host }
    }

    /// Returns `true` for an origin with the scheme `http` or `https`.
    pub(super) fn is_web(&self) -> bool {
        matches!(&*self.scheme, "http" | "https")
    }

    fn is_loopback(&self) -> bool {
        self.is_web() && self.host.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::Method;
    use super::*;

    /// Checks a request with these fields against a list of hosts and a list of origins.
    fn verdict(fields: &[(&'static str, &'static str)], hosts: &Allowed, origins: &Allowed) -> Result<(), Forbidden> {
        check(&RequestHead::new(Method::Post, fields.iter().copied().collect()), hosts, origins)
    }

    /// Returns `true` if a request to the host `name` is accepted.
    fn host(name: &'static str, allowed: &Allowed) -> bool {
        verdict(&[("Host", name)], allowed, &Allowed::Loopback).is_ok()
    }

    /// Returns `true` if a request from the origin `name` is accepted.
    fn origin(name: &'static str, allowed: &Allowed) -> bool {
        verdict(&[("host", "localhost"), ("Origin", name)], &Allowed::Loopback, allowed).is_ok()
    }

    #[test]
    fn this_machine_is_accepted_under_its_three_names_with_any_port() {
        for good in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"] {
            assert!(host(good, &Allowed::Loopback), "{good}");
        }
        for bad in [
            "evil.example.com",
            "localhost.evil.example.com",
            "evil-localhost",
            "localhost:x",
            "localhost:",
            "localhost:65536",
            "localhost:80:80",
            "127.0.0.1.nip.io",
            "127.0.0.2",
            "[::1",
            "[::1]x",
            "::1",
            "localhost@evil.example.com",
            "evil.example.com#localhost",
            "localhost.",
            "",
        ] {
            assert!(!host(bad, &Allowed::Loopback), "{bad}");
        }
    }

    #[test]
    fn the_field_or_the_authority_must_name_a_host_and_if_both_do_both_are_checked() {
        let check_all = |fields: &[(&'static str, &'static str)], authority: Option<&'static str>| {
            let mut head = RequestHead::new(Method::Post, fields.iter().copied().collect());
            head.authority = authority.map(Into::into);
            check(&head, &Allowed::Loopback, &Allowed::Loopback)
        };
        assert_eq!(check_all(&[], None), Err(Forbidden::Host), "none is named");
        assert_eq!(check_all(&[("host", "localhost"), ("Host", "localhost")], None), Err(Forbidden::Host));
        assert_eq!(check_all(&[], Some("localhost:80")), Ok(()));
        assert_eq!(check_all(&[("host", "localhost")], Some("evil.example.com")), Err(Forbidden::Host), "both are checked");
        assert_eq!(check_all(&[("host", "evil.example.com")], Some("localhost")), Err(Forbidden::Host));
        assert_eq!(verdict(&[], &Allowed::Any, &Allowed::Loopback), Ok(()), "the check is off");
    }

    #[test]
    fn a_listed_host_is_accepted_with_its_own_port_or_if_it_has_none_with_any_port() {
        let listed = Allowed::only(["example.com", "Other.example.com:8443", "not a host"]);
        for good in ["example.com", "EXAMPLE.com:1", "other.example.com:8443"] {
            assert!(host(good, &listed), "{good}");
        }
        for bad in ["other.example.com", "other.example.com:443", "localhost", "not a host", "x.example.com"] {
            assert!(!host(bad, &listed), "{bad}");
        }
        let both = Allowed::Listed { list: [Text::from("example.com")].into(), loopback: true };
        assert!(host("localhost", &both) && host("example.com", &both) && !host("x", &both));
    }

    #[test]
    fn origins_of_this_machine_are_accepted_and_those_of_other_pages_refused() {
        for good in ["http://localhost", "https://localhost:3000", "http://127.0.0.1:80", "HTTP://[::1]:5173"] {
            assert!(origin(good, &Allowed::Loopback), "{good}");
        }
        for bad in [
            "http://evil.example.com",
            "null",
            "",
            "localhost",
            "http://localhost.evil.example.com",
            "http://localhost:80/path",
            "http://user@localhost",
            "chrome-extension://localhost",
            "http://localhost http://localhost",
        ] {
            assert!(!origin(bad, &Allowed::Loopback), "{bad}");
        }
        let bare = [("host", "localhost")];
        assert_eq!(verdict(&bare, &Allowed::Loopback, &Allowed::Loopback), Ok(()), "without an origin");
        let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(verdict(&twice, &Allowed::Loopback, &Allowed::Loopback), Err(Forbidden::Origin));
        assert!(origin("null", &Allowed::Any), "the check is off");
    }

    #[test]
    fn origins_are_compared_by_scheme_host_and_port_with_default_ports_filled_in() {
        let listed = Allowed::only(["https://example.com", "http://example.com:8080", "null"]);
        for good in ["https://example.com", "https://EXAMPLE.com:443", "http://example.com:8080", "null"] {
            assert!(origin(good, &listed), "{good}");
        }
        for bad in
            ["http://example.com", "https://example.com:8443", "https://x.example.com", "http://localhost", "Null", "example.com"]
        {
            assert!(!origin(bad, &listed), "{bad}");
        }
    }
}
