//! The address at which a server serves MCP, and references to other addresses of the same origin (RFC 3986, section 5).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::origin::Origin;
use crate::json::Text;
use crate::url::{Url, UrlFault};

/// The longest reference that is followed, in bytes.
const MAX_REFERENCE: usize = 8 * 1024;

/// The error for text that is not a URL of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address of the form http://HOST/PATH or https://HOST/PATH")]
pub struct InvalidUrl;

/// A URL for people: without a name and a password, which may stand before its host. It need not be a valid URL.
#[must_use]
pub fn without_credentials(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at.saturating_add(3));
    let (scheme, rest) = url.split_at_checked(start).unwrap_or(("", url));
    let (authority, _) = rest.split_once(['/', '?', '#']).unwrap_or((rest, ""));
    // A password with an unescaped slash looks like a port that is no number.
    let is_cut =
        authority.rsplit_once(':').is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit() || byte == b']'));
    let searched = if is_cut { rest } else { authority };
    match searched.rfind('@').and_then(|at| rest.get(at..)) {
        Some(host) => format!("{scheme}...{host}"),
        None => String::from(url),
    }
}

/// The address at which a server serves MCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// Scheme, host and port, as they were written.
    origin: Text,
    /// The path and the query.
    target: Text,
}

impl Location {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let parts = Url::parse(url).ok().filter(|parts| is_proper(url) && Origin::of(parts).is_web()).ok_or(InvalidUrl)?;
        let origin = url.strip_suffix(parts.rest).unwrap_or(url);
        Ok(Self { origin: origin.into(), target: rooted(parts.rest).into() })
    }

    /// The path and the query, as a request names them.
    pub(super) fn target(&self) -> &Text {
        &self.target
    }

    /// Replaces the target, for all later requests.
    pub(super) fn move_to(&mut self, target: Text) {
        self.target = target;
    }

    /// Resolves a reference relative to the target `base`; `None` if the reference is malformed, or leads to another origin.
    pub(super) fn resolve(&self, base: &str, reference: &str) -> Option<Text> {
        if !is_proper(reference) {
            return None;
        }
        let network;
        let reference = match reference.strip_prefix("//") {
            Some(rest) => {
                let (scheme, _) = self.origin.split_once("://")?;
                network = format!("{scheme}://{rest}");
                &network
            }
            None => reference,
        };
        match Url::parse(reference) {
            Ok(url) => return (Origin::of(&url) == Origin::parse(&self.origin)?).then(|| rooted(url.rest).into()),
            Err(UrlFault::Relative) => {}
            Err(_) => return None,
        }
        let reference = reference.split('#').next().unwrap_or_default();
        let (path, _) = base.split_once('?').unwrap_or((base, ""));
        let joined = match reference.as_bytes().first() {
            None => String::from(base),
            Some(b'/') => String::from(reference),
            Some(b'?') => format!("{path}{reference}"),
            // With a colon in its first segment, the reference is not a relative path: it begins with a scheme.
            Some(_) if reference.split(['/', '?']).next()?.contains(':') => return None,
            Some(_) => format!("{}/{reference}", path.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Some(rooted(&joined).into())
    }
}

/// Returns `true` for text that can be a reference: visible ASCII without a backslash, and not too long.
fn is_proper(reference: &str) -> bool {
    reference.len() <= MAX_REFERENCE && reference.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

/// Makes a path and a query from a reference: begins the path with `/`, drops the fragment, and resolves the segments `.` and `..`.
fn rooted(reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or_default();
    let end = reference.find('?').unwrap_or(reference.len());
    let (path, query) = reference.split_at_checked(end).unwrap_or((reference, ""));
    let mut segments: Vec<&str> = Vec::new();
    let given: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for (at, segment) in given.iter().enumerate() {
        let is_last = at.saturating_add(1) == given.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}{query}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_scheme_http_or_https_a_host_and_a_target() {
        for (url, target) in [
            ("http://localhost", "/"),
            ("https://Example.com:8443/mcp", "/mcp"),
            ("http://[::1]:1/a/../b/./c?d=/../e#f", "/b/c?d=/../e"),
            ("http://h?x", "/?x"),
        ] {
            assert_eq!(Location::parse(url).map(|location| location.target().clone()), Ok(Text::from(target)), "{url}");
        }
        for url in ["", "localhost/mcp", "ftp://h/", "http://user@h/", "http://h/ x"] {
            assert_eq!(Location::parse(url), Err(InvalidUrl), "{url:?}");
        }
    }

    /// A password in an address was printed in the error about that address.
    #[test]
    fn an_address_is_shown_without_a_password() {
        for (url, shown) in [
            ("http://user:secret@h/mcp", "http://...@h/mcp"),
            ("https://secret@h:1/mcp?a=b", "https://...@h:1/mcp?a=b"),
            ("http://user:se@cret@h/", "http://...@h/"),
            ("http://user:se/cret@h/", "http://...@h/"),
            ("http://user:se?c#ret@h/", "http://...@h/"),
            ("user:secret@h", "...@h"),
            ("ftp://user:secret@h/", "ftp://...@h/"),
            ("http://h/@scope/x", "http://h/@scope/x"),
            ("http://h:80/a@b", "http://h:80/a@b"),
            ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
            ("http://[::1]/a", "http://[::1]/a"),
            ("", ""),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }

    #[test]
    fn a_reference_is_resolved_to_a_target_of_the_same_origin_or_not_at_all() {
        let base = Location::parse("https://Example.com/a/b?c=d").unwrap();
        for (reference, expected) in [
            ("", Some("/a/b?c=d")),
            ("/x?y#z", Some("/x?y")),
            ("x", Some("/a/x")),
            ("../x/", Some("/x/")),
            ("../../../x", Some("/x")),
            (".", Some("/a/")),
            ("?q=1", Some("/a/b?q=1")),
            ("x?y:z", Some("/a/x?y:z")),
            ("https://example.COM:443/x", Some("/x")),
            ("//example.com/x", Some("/x")),
            ("https://example.com", Some("/")),
            ("http://example.com/x", None),
            ("https://example.com:444/x", None),
            ("//evil.example/x", None),
            ("https://user@example.com/x", None),
            ("https:x", None),
            ("javascript:alert(1)", None),
            ("/x y", None),
            ("/\\evil.example", None),
            ("/\u{e4}", None),
        ] {
            assert_eq!(base.resolve(base.target(), reference).as_deref(), expected, "{reference:?}");
        }
        assert_eq!(base.resolve("/", &"x".repeat(MAX_REFERENCE + 1)), None);
    }
}
