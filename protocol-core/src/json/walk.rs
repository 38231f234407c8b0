//! Text that passed a scan, read again: what was checked is not checked twice, so a value ends where its quotes and brackets say. It
//! stays bytes, since to make a `str` of them is to look at each.
//!
//! Whatever the bytes, nothing panics and every walk comes to an end. Of text that never passed a scan the answers mean nothing.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::scan::{behind_plain, byte, next};

/// An object key as it stands in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(super) quoted: &'a [u8],
    pub(super) escaped: bool,
}

impl<'a> Key<'a> {
    /// The key with its quotes and escapes, exactly as it stands.
    pub(crate) fn quoted(self) -> &'a [u8] {
        self.quoted
    }

    /// The key itself. One that names half a surrogate pair is no text at all and reads as empty.
    #[inline]
    pub(crate) fn name(self) -> Cow<'a, str> {
        match self.plain() {
            Some(plain) => Cow::Borrowed(core::str::from_utf8(plain).unwrap_or_default()),
            None => Cow::Owned(unescape(self.quoted).unwrap_or_default()),
        }
    }

    /// The key itself, if nothing in it is escaped.
    #[inline]
    pub(crate) fn plain(self) -> Option<&'a [u8]> {
        match self.quoted {
            [b'"', inside @ .., b'"'] if !self.escaped => Some(inside),
            _ => None,
        }
    }

    /// Whether it is `name`.
    #[inline]
    pub(crate) fn is(self, name: &str) -> bool {
        match self.plain() {
            Some(plain) => plain == name.as_bytes(),
            None => self.says(name),
        }
    }

    #[cold]
    fn says(self, name: &str) -> bool {
        self.name() == name
    }
}

/// The members of an object, in order.
pub(crate) struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    /// `None` if `text` is no object.
    pub(crate) fn of(text: &'a [u8]) -> Option<Self> {
        let start = behind_signs(text, 0);
        (byte(text, start) == b'{').then_some(Self { text, at: next(start) })
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Key<'a>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.text;
        let key = behind_signs(text, self.at);
        if byte(text, key) != b'"' {
            return None;
        }
        let end = behind_plain(text, next(key));
        let escaped = byte(text, end) != b'"';
        let behind = if escaped { behind_escapes(text, end)? } else { next(end) };
        let value = behind_signs(text, behind);
        self.at = behind_value(text, value)?;
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        Some((Key { quoted: part(key, behind), escaped }, part(value, self.at)))
    }
}

/// Passes over what may be between two tokens.
#[inline]
fn behind_signs(text: &[u8], mut at: usize) -> usize {
    while matches!(byte(text, at), b' ' | b'\t' | b'\n' | b'\r' | b',' | b':') {
        at = next(at);
    }
    at
}

/// Of the string whose opening quote is at `at`.
#[inline]
fn behind_string(text: &[u8], at: usize) -> Option<usize> {
    let end = behind_plain(text, next(at));
    if byte(text, end) == b'"' { Some(next(end)) } else { behind_escapes(text, end) }
}

/// What comes behind a string, from its first escape on. The digits of an escape look plain.
#[inline(never)]
fn behind_escapes(text: &[u8], mut at: usize) -> Option<usize> {
    while *text.get(at)? != b'"' {
        at = behind_plain(text, at.wrapping_add(2));
    }
    Some(next(at))
}

fn behind_value(text: &[u8], mut at: usize) -> Option<usize> {
    match byte(text, at) {
        b'"' => return behind_string(text, at),
        b'{' | b'[' => {}
        _ => {
            let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
            while text.get(at).is_some_and(|byte| !is_end(byte)) {
                at = next(at);
            }
            return Some(at);
        }
    }
    let mut open = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = behind_string(text, at)?;
                continue;
            }
            b'{' | b'[' => open = open.saturating_add(1),
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        at = next(at);
        if open == 0 {
            return Some(at);
        }
    }
}

/// Calls `each` with the name and the value of every member of the object `text`.
pub(crate) fn for_each_member<'a>(text: &'a [u8], mut each: impl FnMut(&str, &'a [u8])) {
    for_each_key(text, |key, value| each(&key.name(), value));
}

/// The same with the keys as they stand, for writing them again.
pub(crate) fn for_each_key<'a>(text: &'a [u8], mut each: impl FnMut(Key<'a>, &'a [u8])) {
    if let Some(members) = Members::of(text) {
        members.for_each(|(key, value)| each(key, value));
    }
}

/// The member `name` of the object `text`; the last one where it is repeated. `None` if `text` is no object.
pub(crate) fn member<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    Members::of(text)?.filter(|(key, _)| key.is(name)).last().map(|(_, value)| value)
}

/// The elements of an array.
pub(crate) fn elements(text: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut at = behind_signs(text, 0);
    if byte(text, at) != b'[' {
        return all;
    }
    at = next(at);
    loop {
        let value = behind_signs(text, at);
        at = behind_value(text, value).unwrap_or(value);
        if at == value {
            return all;
        }
        all.push(text.get(value..at).unwrap_or_default());
    }
}

/// What a JSON string says, in bytes that are text: most are between its quotes as they are. `None` if `value` is none, or names half a
/// surrogate pair.
#[inline]
pub(crate) fn said(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    if byte(value, 0) != b'"' {
        return None;
    }
    let end = behind_plain(value, 1);
    if byte(value, end) == b'"' {
        value.get(1..end).map(Cow::Borrowed)
    } else {
        unescape(value).map(|text| Cow::Owned(text.into_bytes()))
    }
}

/// The same as text.
pub(crate) fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    match said(value)? {
        Cow::Borrowed(text) => core::str::from_utf8(text).ok().map(Cow::Borrowed),
        Cow::Owned(text) => String::from_utf8(text).ok().map(Cow::Owned),
    }
}

fn unescape(quoted: &[u8]) -> Option<String> {
    serde_json::from_slice(quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::super::scan::Cursor;
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn members_and_elements_end_where_the_scan_said() {
        let object = br#" { "a" : [1,{"b":"]"}] , "\u0062\"" : "x\\" , "c":-1e3,"":{}, "a":null } "#;
        let value = Cursor::new(object, 128).whole().unwrap();
        let all: Vec<_> = Members::of(value).unwrap().map(|(key, value)| (key.name().to_string(), value)).collect();
        let expected: [(&str, &[u8]); 5] =
            [("a", br#"[1,{"b":"]"}]"#), ("b\"", br#""x\\""#), ("c", b"-1e3"), ("", b"{}"), ("a", b"null")];
        assert_eq!(all, expected.map(|(key, value)| (key.into(), value)));
        assert_eq!(member(value, "a"), Some(&b"null"[..]), "the last one counts");
        assert_eq!(member(value, "b\""), Some(&br#""x\\""#[..]));
        assert_eq!(member(value, "d"), None);
        let expected: [&[u8]; 5] = [b"1", br#""],""#, b"[2,[3]]", br#"{"a":[]}"#, b"true"];
        assert_eq!(elements(br#"[ 1 ,"],", [2,[3]],{"a":[]},true ]"#), expected);
        assert!(elements(b"[ ]").is_empty() && elements(b"{}").is_empty());
        assert!(Members::of(b"[]").is_none() && Members::of(b"{ }").unwrap().next().is_none());
        assert_eq!(string(br#""a\tb""#).as_deref(), Some("a\tb"));
        assert_eq!(string(br#""\ud800""#), None);
        assert_eq!(string(b"1"), None);
    }

    #[test]
    fn g6_every_walk_ends_whatever_the_bytes() {
        let alphabet = *b"{}[]\":,\\a\xff ";
        let mut index = 0_usize;
        loop {
            let mut rest = index;
            let text: Vec<u8> = (0..6).map(|_| (alphabet[rest % alphabet.len()], rest /= alphabet.len()).0).collect();
            if rest > 0 {
                break;
            }
            for (key, value) in Members::of(&text).into_iter().flatten() {
                assert!(key.quoted().len() + value.len() + key.name().len() <= 3 * text.len());
            }
            assert!(elements(&text).len() <= text.len());
            let _ = (member(&text, "a"), string(&text));
            index += 1;
        }
    }
}
