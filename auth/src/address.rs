//! Addresses from documents that anyone may have written: which of them may be requested, and those that are derived from a server's.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use protocol_core::url::Url;

/// The longest address that is taken from a document, in bytes.
const MAX_ADDRESS: usize = 2048;

/// Which machines an address may lead to. A later one includes the earlier ones.
///
/// A name tells nothing about this: whoever opens a connection resolves the name, checks each address by [`Reach::admits`], and connects to
/// the address that was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// Addresses of the internet.
    #[default]
    Public,
    /// Also those of private networks.
    Private,
    /// Also those of this machine, and without TLS there.
    Loopback,
}

impl Reach {
    /// The reach that the host of an address has by its text. A name other than `localhost` counts as public.
    pub(crate) fn of(host: &str) -> Self {
        let host = host.to_ascii_lowercase();
        if host == "localhost" || host.ends_with(".localhost") {
            return Self::Loopback;
        }
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        match literal.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => Self::Loopback,
            Ok(address) if !is_public(address) => Self::Private,
            _ => Self::Public,
        }
    }

    /// Returns `true` if a connection to `address` may be opened. Link-local addresses, among them those at which clouds give out
    /// credentials, multicast and unspecified ones are admitted by none.
    #[must_use]
    pub fn admits(self, address: IpAddr) -> bool {
        let address = unmapped(address);
        let is_never = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_multicast() || v4.is_broadcast() || v4.octets().first() == Some(&0),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified() || v6 == CREDENTIALS,
        };
        match self {
            _ if is_never => false,
            Self::Public => is_public(address),
            Self::Private => !address.is_loopback(),
            Self::Loopback => true,
        }
    }
}

/// An address of unique local ones at which a cloud gives out credentials.
const CREDENTIALS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The IPv4 address in an IPv6 address that stands for one, also by NAT64.
fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.segments() {
            [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            _ => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        },
        IpAddr::V4(_) => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match unmapped(address) {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            let is_reserved = a == 0 || a >= 240 || (a == 100 && (64..128).contains(&b)) || (a == 198 && (b == 18 || b == 19));
            let is_protocol = (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
            let is_near = address.is_private() || address.is_loopback() || address.is_link_local();
            !(is_near || is_reserved || is_protocol || address.is_multicast() || address.is_documentation())
        }
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            match first {
                // 6to4 has an IPv4 address in it.
                0x2002 => false,
                0x2001 => second >= 0x200 && second != 0x0db8,
                // Only this eighth is in use: loopback, unique local, link-local, site-local and multicast are outside of it.
                _ => (first & 0xe000) == 0x2000,
            }
        }
    }
}

/// Returns `true` for an address that may be requested by someone of this reach: https, or http on this machine; a proper host, no user
/// name, no fragment.
pub(crate) fn is_fit(address: &str, reach: Reach) -> bool {
    if address.len() > MAX_ADDRESS || !address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') || address.contains('#')
    {
        return false;
    }
    let Ok(url) = Url::parse(address) else { return false };
    let own = Reach::of(url.host);
    // A resolver takes a name that ends in a number for an IPv4 address in one of its older forms.
    let last = url.host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with(|digit: char| digit.is_ascii_digit())
        && !url.host.starts_with('[')
        && url.host.parse::<Ipv4Addr>().is_err()
        && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X"));
    if is_number || own > reach || (url.host.parse::<Ipv4Addr>().is_ok_and(|address| !reach.admits(IpAddr::V4(address)))) {
        return false;
    }
    let is_secure = url.scheme.eq_ignore_ascii_case("https");
    is_secure || (url.scheme.eq_ignore_ascii_case("http") && own == Reach::Loopback && reach == Reach::Loopback)
}

/// The scheme, the host and the port of an address, in one form.
pub(crate) fn origin(address: &str) -> Option<(String, String, Option<u16>)> {
    let url = Url::parse(address).ok()?;
    Some((url.scheme.to_ascii_lowercase(), url.host.to_ascii_lowercase(), url.port_or_usual()))
}

/// An address in two pieces: its origin as it was written, and its path without query and fragment.
fn split(address: &str) -> Option<(&str, &str)> {
    let url = Url::parse(address).ok()?;
    let origin = address.strip_suffix(url.rest)?;
    Some((origin, url.rest.split(['?', '#']).next().unwrap_or_default()))
}

/// An address without its query and its fragment: for people, and for proofs of possession.
pub(crate) fn bare(address: &str) -> &str {
    address.split(['?', '#']).next().unwrap_or_default()
}

/// The origin as it is written in an address: the issuer where a server names none (2025-03-26).
pub(crate) fn written_origin(address: &str) -> String {
    split(address).map_or_else(String::new, |(origin, _)| origin.to_owned())
}

/// Where the metadata of a protected resource can be, if nothing names its place (RFC 9728, section 3.1).
pub(crate) fn resource_metadata(server: &str) -> Vec<String> {
    let Some((origin, path)) = split(server) else { return Vec::new() };
    let query =
        server.split('#').next().unwrap_or_default().split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    let root = format!("{origin}/.well-known/oauth-protected-resource");
    if path.is_empty() || path == "/" {
        return Vec::from([root]);
    }
    Vec::from([format!("{root}{path}{query}"), root])
}

/// Where the metadata of an issuer can be (RFC 8414, section 3; OpenID Connect Discovery, section 4).
pub(crate) fn issuer_metadata(issuer: &str) -> Vec<String> {
    let Some((origin, path)) = split(issuer) else { return Vec::new() };
    let path = path.strip_suffix('/').unwrap_or(path);
    let oauth = format!("{origin}/.well-known/oauth-authorization-server{path}");
    let openid = format!("{origin}/.well-known/openid-configuration{path}");
    if path.is_empty() {
        return Vec::from([oauth, openid]);
    }
    Vec::from([oauth, openid, format!("{origin}{path}/.well-known/openid-configuration")])
}

/// Returns `true` if a resource is the server or a folder that the server is in.
pub(crate) fn covers(resource: &str, server: &str) -> bool {
    if resource.len() > MAX_ADDRESS || resource.contains('#') || !resource.bytes().all(|byte| byte.is_ascii_graphic()) {
        return false;
    }
    let (Some((_, folder)), Some((_, path))) = (split(resource), split(server)) else { return false };
    let folder = folder.strip_suffix('/').unwrap_or(folder);
    let below = path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    below && origin(resource) == origin(server)
}

/// Returns `true` for equal issuers. They are compared as text, but for a slash that alone follows the host.
pub(crate) fn is_issuer(named: &str, found: &str) -> bool {
    let bare =
        |issuer: &str| split(issuer).is_some_and(|(origin, path)| path == "/" && issuer.len() == origin.len().saturating_add(1));
    let trimmed = |issuer: &str| if bare(issuer) { issuer.trim_end_matches('/').to_owned() } else { issuer.to_owned() };
    named == found || trimmed(named) == trimmed(found)
}

/// Where a redirect leads, if it stays within the origin of the address that it is an answer to.
pub(crate) fn redirected(from: &str, location: &str) -> Option<String> {
    let address = match location.strip_prefix('/') {
        Some(rest) if !rest.starts_with('/') => format!("{}{location}", written_origin(from)),
        _ => location.to_owned(),
    };
    (origin(&address)? == origin(from)?).then_some(address)
}

/// Encodes text for a form or a query (`application/x-www-form-urlencoded`).
pub(crate) fn encode(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                out.push(char::from(DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0')));
            }
        }
    }
}

/// Joins names and values to a form.
pub(crate) fn form<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        encode(name, &mut out);
        out.push('=');
        encode(value, &mut out);
    }
    out
}

/// The names and values of a query, each decoded once; `None` if an escape is malformed or the text is no UTF-8.
pub(crate) fn query(address: &str) -> Option<Vec<(String, String)>> {
    let text = address.split('#').next().unwrap_or_default().split_once('?').map_or("", |(_, query)| query);
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| Some((decode(name)?, decode(value)?)))
        .collect()
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from((high << 4) | low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_requested_only_if_it_is_https_or_stays_on_this_machine() {
        for (address, reach, fit) in [
            ("https://a.example/x?y=z", Reach::Public, true),
            ("http://a.example/x", Reach::Public, false),
            ("http://a.example/x", Reach::Loopback, false),
            ("http://127.0.0.1:9/x", Reach::Loopback, true),
            ("http://localhost:9/x", Reach::Loopback, true),
            ("http://[::1]:9/x", Reach::Loopback, true),
            ("http://localhost/x", Reach::Public, false),
            ("https://localhost/x", Reach::Public, false),
            ("https://10.0.0.1/", Reach::Public, false),
            ("https://10.0.0.1/", Reach::Private, true),
            ("https://169.254.169.254/", Reach::Loopback, false),
            ("https://[::ffff:127.0.0.1]/", Reach::Public, false),
            ("https://[64:ff9b::7f00:1]/", Reach::Public, false),
            ("https://[fd00::1]/", Reach::Public, false),
            ("https://2130706433/", Reach::Public, false),
            ("https://0x7f.1/", Reach::Public, false),
            ("https://127.1/", Reach::Public, false),
            ("https://user@a.example/", Reach::Public, false),
            ("https://a.example/#x", Reach::Public, false),
            ("https://a.example/a\\b", Reach::Public, false),
            ("https://a.example/a b", Reach::Public, false),
            ("file:///etc/passwd", Reach::Loopback, false),
            ("javascript:alert(1)", Reach::Loopback, false),
            ("javascript://a.example/%0aalert(1)", Reach::Loopback, false),
        ] {
            assert_eq!(is_fit(address, reach), fit, "{address} for {reach:?}");
        }
        assert!(!is_fit(&format!("https://a.example/{}", "x".repeat(MAX_ADDRESS)), Reach::Public));
    }

    #[test]
    fn a_name_that_resolves_to_a_nearer_machine_than_the_server_is_not_connected_to() {
        for (address, public, private, loopback) in [
            ("93.184.216.34", true, true, true),
            ("10.1.2.3", false, true, true),
            ("100.64.0.1", false, true, true),
            ("127.0.0.1", false, false, true),
            ("169.254.169.254", false, false, false),
            ("0.0.0.0", false, false, false),
            ("224.0.0.1", false, false, false),
            ("2606:2800::1", true, true, true),
            ("fc00::1", false, true, true),
            ("::1", false, false, true),
            ("fe80::1", false, false, false),
            ("::ffff:169.254.169.254", false, false, false),
            ("::ffff:10.0.0.1", false, true, true),
            ("2002:7f00:1::", false, true, true),
            ("64:ff9b::a9fe:a9fe", false, false, false),
            ("64:ff9b::7f00:1", false, false, true),
            ("64:ff9b::808:808", true, true, true),
            ("64:ff9b:1::808:808", false, true, true),
            ("fd00:ec2::254", false, false, false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let admitted = [Reach::Public, Reach::Private, Reach::Loopback].map(|reach| reach.admits(address));
            assert_eq!(admitted, [public, private, loopback], "{address}");
        }
    }

    #[test]
    fn the_places_of_metadata_are_those_of_the_documents() {
        let resource = "/.well-known/oauth-protected-resource";
        assert_eq!(
            resource_metadata("https://h/a/mcp?q"),
            [format!("https://h{resource}/a/mcp?q"), format!("https://h{resource}")]
        );
        assert_eq!(resource_metadata("https://h/"), [format!("https://h{resource}")]);
        let (oauth, openid) = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration");
        assert_eq!(issuer_metadata("https://h/"), [format!("https://h{oauth}"), format!("https://h{openid}")]);
        let three = [format!("https://h{oauth}/t"), format!("https://h{openid}/t"), format!("https://h/t{openid}")];
        assert_eq!(issuer_metadata("https://h/t/"), three);
    }

    #[test]
    fn a_resource_fits_its_server_and_all_below_it() {
        let server = "https://h/a/mcp";
        for resource in ["https://h/a/mcp", "https://h/a/mcp/", "https://h/a", "https://h", "https://H:443/", "https://h/a/mcp?x"] {
            assert!(covers(resource, server), "{resource}");
        }
        for resource in
            ["https://h/a/mc", "https://h/b", "http://h/a/mcp", "https://h:444/a", "https://g/a/mcp", "https://h/a#x", "h"]
        {
            assert!(!covers(resource, server), "{resource}");
        }
    }

    #[test]
    fn issuers_are_compared_as_text() {
        assert!(is_issuer("https://h", "https://h/") && is_issuer("https://h/t", "https://h/t"));
        for other in ["https://H", "https://h:443", "https://h/t", "https://h//", "https://h?", "https://h/%2F"] {
            assert!(!is_issuer("https://h", other), "{other}");
        }
        assert!(!is_issuer("https://h/t", "https://h/t/"));
    }

    #[test]
    fn a_redirect_is_followed_only_within_its_origin() {
        let from = "https://h/a";
        assert_eq!(redirected(from, "/b").as_deref(), Some("https://h/b"));
        assert_eq!(redirected(from, "https://h:443/b").as_deref(), Some("https://h:443/b"));
        for location in ["//evil/b", "http://h/b", "https://evil/b", "b", "", "https://169.254.169.254/"] {
            assert_eq!(redirected(from, location), None, "{location}");
        }
    }

    #[test]
    fn a_form_is_read_as_it_is_written() {
        let written = format!("http://h/?{}", form([("a b", "ä&="), ("c", "")]));
        assert_eq!(query(&written).unwrap(), [("a b".into(), "ä&=".into()), ("c".into(), String::new())]);
        for malformed in ["http://h/?a=%", "http://h/?a=%zz", "http://h/?a=%ff"] {
            assert_eq!(query(malformed), None);
        }
    }
}
