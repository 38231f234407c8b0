//! The URIs of resources.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// The scheme of the URIs of resources.
const SCHEME: &str = "tesseron://";

/// The URI of a resource. Bytes that a path may not have are percent-encoded (RFC 3986, sections 2.1 and 3.3).
pub(super) fn uri_of(app: &str, name: &str) -> String {
    let mut uri = alloc::format!("{SCHEME}{app}/");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&alloc::format!("%{byte:02X}"));
        }
    }
    uri
}

/// The app in the URI of a resource, and the name of the resource there. `None` if the URI does not have the form of [`uri_of`].
pub(super) fn parts_of(uri: &str) -> Option<(&str, String)> {
    let (app, name) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some((app, decoded(name)))
}

/// Decodes a name. A `%` that is not followed by two hexadecimal digits stays as it is. If the decoded bytes are not UTF-8, returns `name`.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => String::from(text),
        // Such bytes are the name of no resource, since the names in an app's list are UTF-8.
        Cow::Owned(_) => String::from(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_name_can_be_read_back_from_its_uri() {
        for name in ["balance", "a b", "100%", "x?y#z", "ü/ö", "%41", "a%2", "\u{1f600}"] {
            let uri = uri_of("app", name);
            assert!(!uri.contains(' ') && !uri.contains('#') && !uri.contains('?'), "{uri}");
            assert_eq!(decoded(uri.strip_prefix("tesseron://app/").unwrap()), name);
        }
        assert_eq!(decoded("%ff"), "%ff");
        assert_eq!(decoded("a%+1"), "a%+1");
    }
}
