//! Absolute URLs with a host (RFC 3986, section 3).

/// The parts of an absolute URL with a host. No part is decoded.
///
/// The host is a name of ASCII letters, digits, `-`, `.` and `_`, or an IPv6 address in brackets. A URL with a user name is refused: a user
/// name can look like a host. The characters of the path, the query and the fragment are not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Url<'a> {
    /// The text before `://`.
    pub scheme: &'a str,
    /// The host and the port, as they were written.
    pub authority: &'a str,
    /// The host; an IPv6 address with its brackets.
    pub host: &'a str,
    /// The port, from 0 to 65535; `None` if there is none.
    pub port: Option<u16>,
    /// The path, the query and the fragment.
    pub rest: &'a str,
}

/// The fault of text that is no absolute URL with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlFault {
    /// It does not begin with a scheme and `://`.
    #[error("must be absolute, as in https://example.com/")]
    Relative,
    /// It has a user name before its host.
    #[error("must not have a user name before its host")]
    UserName,
    /// The host is missing or malformed.
    #[error("has no proper host")]
    Host,
    /// The port is no number up to 65535.
    #[error("has no proper port after its host")]
    Port,
}

impl<'a> Url<'a> {
    /// Splits a URL into its parts.
    ///
    /// # Errors
    /// The first [`UrlFault`], in the order of its variants.
    pub fn parse(text: &'a str) -> Result<Self, UrlFault> {
        let (scheme, after) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).ok_or(UrlFault::Relative)?;
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let (authority, rest) = after.split_at_checked(end).unwrap_or((after, ""));
        let (host, port) = split_authority(authority)?;
        Ok(Self { scheme, authority, host, port, rest })
    }

    /// The port or, if there is none, the usual one of `http` or `https`; `None` for other schemes.
    #[must_use]
    pub fn port_or_usual(&self) -> Option<u16> {
        self.port.or_else(|| match () {
            () if self.scheme.eq_ignore_ascii_case("http") => Some(80),
            () if self.scheme.eq_ignore_ascii_case("https") => Some(443),
            () => None,
        })
    }
}

/// Splits a host from its port.
///
/// # Errors
/// The first [`UrlFault`], in the order of its variants; never [`UrlFault::Relative`].
pub(crate) fn split_authority(authority: &str) -> Result<(&str, Option<u16>), UrlFault> {
    if authority.contains('@') {
        return Err(UrlFault::UserName);
    }
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if !is_host(host) {
        return Err(UrlFault::Host);
    }
    let number = |port: &str| if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse().ok() } else { None };
    let port = port.map(|port| number(port).ok_or(UrlFault::Port)).transpose()?;
    Ok((host, port))
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| address.parse::<core::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_its_parts() {
        for (text, parts) in [
            ("https://example.com", ("https", "example.com", None, "")),
            ("HTTPS://EXAMPLE.com:8443/a?b#c", ("HTTPS", "EXAMPLE.com", Some(8443), "/a?b#c")),
            ("ws://127.0.0.1:80?x", ("ws", "127.0.0.1", Some(80), "?x")),
            ("http://[::1]:080/", ("http", "[::1]", Some(80), "/")),
            ("http://[2001:db8::7]#x", ("http", "[2001:db8::7]", None, "#x")),
            ("vscode+x.y-z://some_extension/?to=https://a:b@c/", ("vscode+x.y-z", "some_extension", None, "/?to=https://a:b@c/")),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.scheme, url.host, url.port, url.rest), parts, "{text}");
            assert_eq!(alloc::format!("{}://{}{}", url.scheme, url.authority, url.rest), text);
        }
    }

    #[test]
    fn text_that_is_no_absolute_url_with_a_host_is_refused_with_its_first_fault() {
        use UrlFault::{Host, Port, Relative, UserName};
        let refused = [
            (
                Relative,
                &["", "example.com/a", "/a", "//example.com/", "mailto:a@b", "1ttps://a", "x=1//://a/", "://h", "http:/h"][..],
            ),
            (UserName, &["https://good.example@evil.example/", "https://user:password@evil.example/", "http://@h"]),
            (Host, &["file:///etc", "https://", "https://?a", "https://:80/", "https://ex%61mple.com/", "https://a,b/"]),
            (Host, &["https://[::1/", "https://[1]/", "https://[::1]x/", "https://[fe80::1%1]/", "http://h\\x", "http://h x"]),
            (Port, &["https://a:0x50/", "https://a:+80/", "https://a:/", "https://a:65536/"]),
        ];
        for (fault, texts) in refused {
            for text in texts {
                assert_eq!(Url::parse(text), Err(fault), "{text}");
            }
        }
    }
}
