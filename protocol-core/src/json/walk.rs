//! Text that passed a scan, read again: what was checked is not checked twice, so a value ends where its quotes and brackets say.
//!
//! Whatever the bytes, nothing panics and every walk comes to an end. Of text that never passed a scan the answers mean nothing.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::scan::{behind_plain, byte, next};

/// Text that passed a scan: as `str`, or as its bytes where nobody asks for more, since to make a `str` of them is to look at each.
pub(crate) trait Checked<'a>: Copy {
    fn bytes(self) -> &'a [u8];
    /// The part between two places, which are both beside ASCII.
    fn part(self, from: usize, to: usize) -> Self;
    fn text(self) -> Option<&'a str>;
}

impl<'a> Checked<'a> for &'a str {
    fn bytes(self) -> &'a [u8] {
        self.as_bytes()
    }

    fn part(self, from: usize, to: usize) -> Self {
        self.get(from..to).unwrap_or_default()
    }

    fn text(self) -> Option<&'a str> {
        Some(self)
    }
}

impl<'a> Checked<'a> for &'a [u8] {
    fn bytes(self) -> &'a [u8] {
        self
    }

    fn part(self, from: usize, to: usize) -> Self {
        self.get(from..to).unwrap_or_default()
    }

    fn text(self) -> Option<&'a str> {
        core::str::from_utf8(self).ok()
    }
}

/// An object key as it stands in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<T> {
    pub(super) quoted: T,
    pub(super) escaped: bool,
}

impl<'a, T: Checked<'a>> Key<T> {
    /// The key with its quotes and escapes, exactly as it stands.
    pub(crate) fn quoted(self) -> T {
        self.quoted
    }

    /// The key itself. One that names half a surrogate pair is no text at all and reads as empty.
    #[inline]
    pub(crate) fn name(self) -> Cow<'a, str> {
        if self.escaped {
            Cow::Owned(unescape(self.quoted.bytes()).unwrap_or_default())
        } else {
            Cow::Borrowed(self.quoted.part(1, self.quoted.bytes().len().saturating_sub(1)).text().unwrap_or_default())
        }
    }

    /// The key itself, if nothing in it is escaped.
    #[inline]
    pub(crate) fn plain(self) -> Option<&'a [u8]> {
        match self.quoted.bytes() {
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
pub(crate) struct Members<T> {
    text: T,
    at: usize,
}

impl<'a, T: Checked<'a>> Members<T> {
    /// `None` if `text` is no object.
    pub(crate) fn of(text: T) -> Option<Self> {
        let start = behind_signs(text.bytes(), 0);
        (byte(text.bytes(), start) == b'{').then_some(Self { text, at: next(start) })
    }
}

impl<'a, T: Checked<'a>> Iterator for Members<T> {
    type Item = (Key<T>, T);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.text.bytes();
        let key = behind_signs(text, self.at);
        if byte(text, key) != b'"' {
            return None;
        }
        let end = behind_plain(text, next(key));
        let escaped = byte(text, end) != b'"';
        let behind = if escaped { behind_escapes(text, end)? } else { next(end) };
        let value = behind_signs(text, behind);
        self.at = behind_value(text, value)?;
        Some((Key { quoted: self.text.part(key, behind), escaped }, self.text.part(value, self.at)))
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
pub(crate) fn for_each_member<'a>(text: &'a str, mut each: impl FnMut(&str, &'a str)) {
    for_each_key(text, |key, value| each(&key.name(), value));
}

/// The same with the keys as they stand, for writing them again.
pub(crate) fn for_each_key<'a>(text: &'a str, mut each: impl FnMut(Key<&'a str>, &'a str)) {
    Members::of(text).into_iter().flatten().for_each(|(key, value)| each(key, value));
}

/// The member `name` of the object `text`; the last one where it is repeated. `None` if `text` is no object.
pub(crate) fn member<'a, T: Checked<'a>>(text: T, name: &str) -> Option<T> {
    Members::of(text)?.filter(|(key, _)| key.is(name)).last().map(|(_, value)| value)
}

/// The elements of an array.
pub(crate) fn elements<'a, T: Checked<'a>>(array: T) -> Vec<T> {
    let mut all = Vec::new();
    let text = array.bytes();
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
        all.push(array.part(value, at));
    }
}

/// The text of a JSON string, or `None` if `value` is none, or names half a surrogate pair.
pub(crate) fn string<'a, T: Checked<'a>>(value: T) -> Option<Cow<'a, str>> {
    let text = value.bytes();
    if byte(text, 0) != b'"' {
        return None;
    }
    let end = behind_plain(text, 1);
    if byte(text, end) == b'"' { value.part(1, end).text().map(Cow::Borrowed) } else { unescape(text).map(Cow::Owned) }
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
        let object = r#" { "a" : [1,{"b":"]"}] , "\u0062\"" : "x\\" , "c":-1e3,"":{}, "a":null } "#;
        let value = Cursor::new(object, 128).whole().unwrap();
        let all: Vec<_> = Members::of(value).unwrap().map(|(key, value)| (key.name().to_string(), value)).collect();
        let expected = [("a", r#"[1,{"b":"]"}]"#), ("b\"", r#""x\\""#), ("c", "-1e3"), ("", "{}"), ("a", "null")]
            .map(|(key, value)| (key.into(), value));
        assert_eq!(all, expected);
        assert_eq!(member(value, "a"), Some("null"), "the last one counts");
        assert_eq!(member(value.as_bytes(), "b\""), Some(&br#""x\\""#[..]));
        assert_eq!(member(value, "d"), None);
        assert_eq!(elements(r#"[ 1 ,"],", [2,[3]],{"a":[]},true ]"#), ["1", r#""],""#, "[2,[3]]", r#"{"a":[]}"#, "true"]);
        assert!(elements("[ ]").is_empty() && elements("{}").is_empty());
        assert!(Members::of("[]").is_none() && Members::of("{ }").unwrap().next().is_none());
        assert_eq!(string(r#""a\tb""#).as_deref(), Some("a\tb"));
        assert_eq!(string(r#""\ud800""#), None);
        assert_eq!(string("1"), None);
    }

    #[test]
    fn g6_every_walk_ends_whatever_the_bytes() {
        let alphabet = *b"{}[]\":,\\a1 ";
        let mut index = 0_usize;
        loop {
            let mut rest = index;
            let text: Vec<u8> = (0..6).map(|_| (alphabet[rest % alphabet.len()], rest /= alphabet.len()).0).collect();
            if rest > 0 {
                break;
            }
            let text = core::str::from_utf8(&text).unwrap();
            let of_str = Members::of(text).map(|all| all.map(|(key, value)| (key.quoted(), value)).collect::<Vec<_>>());
            let of_bytes =
                Members::of(text.as_bytes()).map(|all| all.map(|(key, value)| (key.quoted(), value)).collect::<Vec<_>>());
            assert_eq!(of_str.map(|all| all.len()), of_bytes.map(|all| all.len()));
            assert!(elements(text).len() <= text.len());
            let _ = (member(text, "a"), string(text));
            index += 1;
        }
    }
}
