//! JSON documents of others, of which only flat members are read.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

/// A JSON object. A member of another type than asked for counts as absent. The values of members that nobody asks for are not built, so that
/// neither their depth nor their numbers matter.
pub(crate) struct Document<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Document<'a> {
    /// Reads an object of at most `limit` bytes.
    pub(crate) fn parse(body: &'a [u8], limit: usize) -> Option<Self> {
        let text = core::str::from_utf8(Some(body).filter(|body| body.len() <= limit)?).ok()?;
        // A byte order mark is no JSON, but some servers send one.
        serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(text)).ok().map(Self)
    }

    fn raw(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.get())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|value| value != "null")
    }

    /// A string that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.raw(name).and_then(|value| serde_json::from_str(value).ok()).filter(|text: &String| !text.is_empty())
    }

    /// The literal `true`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.raw(name) == Some("true")
    }

    /// The strings of a list, or one string. What is no string makes the list absent.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<String>> {
        self.raw(name).and_then(|value| serde_json::from_str(value).ok())
    }

    /// Whole seconds: a number, or digits in a string. A fraction is cut off; a number that no integer can be becomes the largest or 0.
    pub(crate) fn seconds(&self, name: &str) -> Option<u64> {
        let raw = self.raw(name)?;
        let text = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or(raw);
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        match text.split_at_checked(digits)? {
            ("", rest) if rest.starts_with('-') && raw == text => Some(0),
            ("", _) => None,
            (whole, "") => Some(whole.parse().unwrap_or(u64::MAX)),
            // `1e400` is JSON, but no number that a processor has.
            (_, _) if raw == text && text.contains(['e', 'E']) => Some(if text.contains("-") { 0 } else { u64::MAX }),
            (whole, rest) if rest.starts_with('.') && raw == text => Some(whole.parse().unwrap_or(u64::MAX)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_taken_from_a_number_or_from_digits() {
        for (text, seconds) in [
            ("3600", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("3600.9", Some(3600)),
            ("-1", Some(0)),
            ("1e400", Some(u64::MAX)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("\"abc\"", None),
            ("\"1e9\"", None),
            ("\"-1\"", None),
            ("null", None),
            ("[1]", None),
            ("true", None),
        ] {
            let body = alloc::format!("{{\"s\":{text}}}");
            assert_eq!(Document::parse(body.as_bytes(), 99).unwrap().seconds("s"), seconds, "{text}");
        }
    }

    #[test]
    fn only_a_json_object_within_its_limit_is_a_document() {
        for body in ["", "[]", "<html>", "{", "{}x", "\u{feff}[]", "null"] {
            assert!(Document::parse(body.as_bytes(), 99).is_none(), "{body}");
        }
        assert!(Document::parse(b"{\"a\":1}", 6).is_none());
        // A document as deep as its limit does no harm.
        let deep = alloc::format!("{{\"a\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
        assert!(Document::parse(deep.as_bytes(), 65_536).is_none_or(|document| document.has("a")));
    }
}
