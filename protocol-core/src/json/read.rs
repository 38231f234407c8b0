//! Reading JSON text that was scanned before, by [`Json::parse`](super::Json::parse) or when its frame was read: it is UTF-8 and one value.
//! The syntax is not checked again, and most functions return bytes, since making a `str` would check each byte again.
//!
//! No input makes a function of this module panic or loop for ever. The results for text that was not scanned are unspecified.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

pub use super::scan::Kind;
use super::scan::{self, byte, next, skip_plain};

/// The key of a member, as it is written in the text.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub(super) quoted: &'a [u8],
    pub(super) escaped: bool,
}

impl<'a> Key<'a> {
    /// The key with its quotes and escapes, exactly as it is written.
    pub fn quoted(self) -> &'a [u8] {
        self.quoted
    }

    /// The key without quotes and escapes. Empty for a key with an unpaired surrogate, which is not Unicode text.
    #[inline]
    pub fn name(self) -> Cow<'a, str> {
        match self.plain() {
            Some(plain) => Cow::Borrowed(core::str::from_utf8(plain).unwrap_or_default()),
            None => Cow::Owned(unescape(self.quoted).and_then(|name| String::from_utf8(name).ok()).unwrap_or_default()),
        }
    }

    /// The bytes of the key, without quotes. `None` if the key has escapes.
    #[inline]
    pub fn plain(self) -> Option<&'a [u8]> {
        match self.quoted {
            [b'"', inside @ .., b'"'] if !self.escaped => Some(inside),
            _ => None,
        }
    }

    /// Returns `true` if the key is `name`.
    #[inline]
    pub fn is(self, name: &str) -> bool {
        match self.plain() {
            Some(plain) => plain == name.as_bytes(),
            None => self.unescapes_to(name),
        }
    }

    #[cold]
    fn unescapes_to(self, name: &str) -> bool {
        self.name() == name
    }
}

/// The members of an object, in order.
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    /// The members of `text`; `None` if it is not an object.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        let start = skip_separators(text, 0);
        (byte(text, start) == b'{').then_some(Self { text, at: next(start) })
    }

    /// The offset of the end of the last member that was read or skipped.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Skips `written`, which is one or more members with the separators before them, if the text continues with exactly these bytes.
    /// Returns `true` if it was skipped. The last value in `written` must be a string or a container, since a longer number may begin like
    /// a shorter one.
    pub(crate) fn skip_written(&mut self, written: &[u8]) -> bool {
        let continues = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(written));
        if continues {
            self.at = self.at.wrapping_add(written.len());
        }
        continues
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Key<'a>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.text;
        let key = skip_separators(text, self.at);
        if byte(text, key) != b'"' {
            return None;
        }
        let (key, end) = key_at(text, key)?;
        let value = skip_separators(text, end);
        self.at = skip_value(text, value)?;
        Some((key, text.get(value..self.at).unwrap_or_default()))
    }
}

/// A walk through a value and into its containers, which reads each byte once, at any depth of nesting.
///
/// The position of a new walk is before a value. The documentation of each method says where the position is afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// A walk whose position is before the value `text`.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: skip_separators(text, 0) }
    }

    /// The kind of the value after the position.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::of(self.text.get(self.at..).unwrap_or_default())
    }

    /// Moves into the object or the array after the position. Continue with [`Self::next_key`] or [`Self::next_element`].
    pub fn enter(&mut self) {
        self.at = next(self.at);
    }

    /// Returns the key of the next member, and moves before its value. If there are no more members, returns `None`, and moves after the
    /// object.
    pub fn next_key(&mut self) -> Option<Key<'a>> {
        let text = self.text;
        let start = skip_separators(text, self.at);
        if byte(text, start) != b'"' {
            self.at = next(start);
            return None;
        }
        let (key, end) = key_at(text, start)?;
        self.at = skip_separators(text, end);
        Some(key)
    }

    /// Moves before the next element, and returns `true`. If there are no more elements, returns `false`, and moves after the array.
    pub fn next_element(&mut self) -> bool {
        self.at = skip_separators(self.text, self.at);
        // The byte after the end of the text counts as 0.
        let has_ended = matches!(byte(self.text, self.at), b']' | 0);
        if has_ended {
            self.at = next(self.at);
        }
        !has_ended
    }

    /// Returns the whole value after the position, and moves after the value. `None` if there is no value.
    pub fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.at = skip_value(self.text, start)?;
        self.text.get(start..self.at).filter(|value| !value.is_empty())
    }

    /// The text between `start`, an earlier position of this walk, and the position.
    pub(crate) fn since(&self, start: Self) -> &'a [u8] {
        self.text.get(start.at..self.at).unwrap_or_default()
    }

    /// Moves after a string of Unicode text, and returns `true`. If the value is not a string, or has an unpaired surrogate, does not move,
    /// and returns `false`.
    pub fn skip_unicode_string(&mut self) -> bool {
        let end = skip_unicode(self.text, self.at);
        self.at = end.unwrap_or(self.at);
        end.is_some()
    }
}

/// Returns the key whose opening quote is at `start`, and the offset of its end.
#[inline]
fn key_at(text: &[u8], start: usize) -> Option<(Key<'_>, usize)> {
    let plain = skip_plain(text, next(start));
    let escaped = byte(text, plain) != b'"';
    let end = if escaped { skip_escapes(text, plain)? } else { next(plain) };
    Some((Key { quoted: text.get(start..end).unwrap_or_default(), escaped }, end))
}

/// Skips the bytes that may stand between two tokens.
#[inline]
fn skip_separators(text: &[u8], mut at: usize) -> usize {
    while matches!(byte(text, at), b' ' | b'\t' | b'\n' | b'\r' | b',' | b':') {
        at = next(at);
    }
    at
}

/// Returns the end of the string whose opening quote is at `at`.
#[inline]
fn skip_string(text: &[u8], at: usize) -> Option<usize> {
    let end = skip_plain(text, next(at));
    if byte(text, end) == b'"' { Some(next(end)) } else { skip_escapes(text, end) }
}

/// Returns the end of a string that has an escape at `at`. The digits of a `\u` escape are skipped as plain bytes.
#[inline(never)]
fn skip_escapes(text: &[u8], mut at: usize) -> Option<usize> {
    while *text.get(at)? != b'"' {
        at = skip_plain(text, at.wrapping_add(2));
    }
    Some(next(at))
}

fn skip_value(text: &[u8], mut at: usize) -> Option<usize> {
    match byte(text, at) {
        b'"' => return skip_string(text, at),
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
                at = skip_string(text, at)?;
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
pub fn for_each_member<'a>(text: &'a [u8], mut each: impl FnMut(&str, &'a [u8])) {
    for_each_key(text, |key, value| each(&key.name(), value));
}

/// Calls `each` with the key, as it is written, and the value of every member of the object `text`.
pub fn for_each_key<'a>(text: &'a [u8], mut each: impl FnMut(Key<'a>, &'a [u8])) {
    if let Some(members) = Members::of(text) {
        members.for_each(|(key, value)| each(key, value));
    }
}

/// The member `name` of the object `text`; the last one if it is repeated. `None` if `text` is not an object.
pub fn member<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    Members::of(text)?.filter(|(key, _)| key.is(name)).last().map(|(_, value)| value)
}

/// The elements of an array; none if `text` is not an array.
pub fn elements(text: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut at = skip_separators(text, 0);
    if byte(text, at) != b'[' {
        return all;
    }
    at = next(at);
    loop {
        let value = skip_separators(text, at);
        at = skip_value(text, value).unwrap_or(value);
        if at == value {
            return all;
        }
        all.push(text.get(value..at).unwrap_or_default());
    }
}

/// Decodes a JSON string into UTF-8 bytes, borrowed if nothing is escaped. `None` if `value` is not a string, or has an unpaired surrogate.
#[inline]
pub fn string_bytes(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    if byte(value, 0) != b'"' {
        return None;
    }
    let end = skip_plain(value, 1);
    if byte(value, end) == b'"' { value.get(1..end).map(Cow::Borrowed) } else { unescape(value).map(Cow::Owned) }
}

/// Decodes a JSON string. `None` if `value` is not a string, or has an unpaired surrogate.
pub fn string(value: &[u8]) -> Option<Cow<'_, str>> {
    match string_bytes(value)? {
        Cow::Borrowed(text) => core::str::from_utf8(text).ok().map(Cow::Borrowed),
        Cow::Owned(text) => String::from_utf8(text).ok().map(Cow::Owned),
    }
}

/// Like [`string`], with U+FFFD for each unpaired surrogate.
pub fn string_lossy(value: &[u8]) -> Option<Cow<'_, str>> {
    string(value).or_else(|| string(&mend(value)?).map(|text| Cow::Owned(text.into_owned())))
}

/// `json` with U+FFFD instead of each unpaired surrogate in its strings and keys. `None` if there is none.
pub fn mend(json: &[u8]) -> Option<Vec<u8>> {
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    // Backslashes occur only in strings.
    while let Some(found) = json.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        let escape = at.wrapping_add(found);
        let length = match json.get(escape..).unwrap_or_default() {
            [b'\\', b'u', digits @ ..] => escaped_letter(digits).map(|(_, length)| length),
            _ => Some(2),
        };
        if length.is_none() {
            /// As long as the digits of an escape, so that the length stays the same.
            const REPLACEMENT: &[u8] = b"fffd";
            let digits = escape.wrapping_add(2);
            let mended = mended.get_or_insert_with(|| json.to_vec());
            if let Some(digits) = mended.get_mut(digits..digits.wrapping_add(REPLACEMENT.len())) {
                digits.copy_from_slice(REPLACEMENT);
            }
        }
        at = escape.wrapping_add(length.unwrap_or(6));
    }
    mended
}

/// The member `name` of the object `text`, unless it is `null`, which counts as absent. `None` if `text` is not an object.
pub fn given<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    member(text, name).filter(|value| *value != b"null")
}

/// Returns `true` for a JSON string that is Unicode text: no surrogate in it is unpaired.
#[must_use]
pub fn is_unicode(value: &[u8]) -> bool {
    skip_unicode(value, 0).is_some()
}

/// Returns the end of the string at `at`. `None` if there is no string, or if it has an unpaired surrogate.
fn skip_unicode(text: &[u8], mut at: usize) -> Option<usize> {
    if byte(text, at) != b'"' {
        return None;
    }
    at = next(at);
    loop {
        at = skip_plain(text, at);
        at = at.wrapping_add(match text.get(at..)? {
            [b'"', ..] => return Some(next(at)),
            [b'\\', b'u', digits @ ..] => escaped_letter(digits)?.1,
            [b'\\', ..] => 2,
            _ => return None,
        });
    }
}

/// Decodes a string with escapes. `None` if it has an unpaired surrogate.
fn unescape(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(quoted.len());
    let mut at = 1;
    loop {
        let end = skip_plain(quoted, at);
        out.extend_from_slice(quoted.get(at..end).unwrap_or_default());
        let (letter, length) = match quoted.get(end..).unwrap_or_default() {
            [b'"', ..] => return Some(out),
            [b'\\', b'u', digits @ ..] => escaped_letter(digits)?,
            [b'\\', byte, ..] => (simple_escape(*byte)?, 2),
            _ => return None,
        };
        match u8::try_from(letter) {
            Ok(byte) if byte.is_ascii() => out.push(byte),
            _ => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        at = end.wrapping_add(length);
    }
}

/// The character that a backslash and `byte` stand for.
fn simple_escape(byte: u8) -> Option<char> {
    Some(match byte {
        b'n' => '\n',
        b'"' | b'\\' | b'/' => char::from(byte),
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\x08',
        b'f' => '\x0c',
        _ => return None,
    })
}

/// The character of a `\u` escape, and the length of the escape in bytes. A surrogate pair is two escapes, which are read together.
/// `digits` is the text after the first `\u`.
fn escaped_letter(digits: &[u8]) -> Option<(char, usize)> {
    let unit = |digits: &[u8]| u32::from_str_radix(core::str::from_utf8(digits.get(..4)?).ok()?, 16).ok();
    let first = unit(digits)?;
    if let Some(letter) = char::from_u32(first) {
        return Some((letter, 6));
    }
    let second = unit(digits.get(4..)?.strip_prefix(b"\\u")?)?;
    let pair = char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second).ok()?]).next()?.ok()?;
    Some((pair, 12))
}

/// The value of a JSON number. `None` if `value` is not a number, or is too large to be finite.
pub fn number(value: &[u8]) -> Option<f64> {
    // Most numbers are counts, and reading those as integers is several times quicker.
    if let Some(count) = count(value) {
        return Some(count as f64);
    }
    if Kind::of(value) != Kind::Number {
        return None;
    }
    core::str::from_utf8(value).ok()?.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// The value of a JSON number that has no fraction and no exponent. `None` for any other value, and if the number is out of range for `T`.
pub fn integer<T: FromStr + TryFrom<u64>>(value: &[u8]) -> Option<T> {
    match count(value) {
        Some(count) => T::try_from(count).ok(),
        None => core::str::from_utf8(value).ok()?.parse().ok(),
    }
}

/// The value of 1 to 15 digits. `None` for any other text.
#[inline]
fn count(digits: &[u8]) -> Option<u64> {
    /// The number of digits up to which every value is exact as an `f64`.
    const MAX_DIGITS: usize = 15;
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    if let (true, Some(first), Some(last)) = (digits.len() <= 8, digits.first_chunk(), digits.last_chunk()) {
        return few_digits(digits.len(), *first, *last);
    }
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte & 0xf));
    digits.iter().try_fold(0_u64, |count, byte| Some(count.wrapping_mul(10).wrapping_add(digit(*byte)?)))
}

/// The value of four to eight digits, of which `first` has the first four and `last` the last four. All digits are converted together, in
/// one word.
#[inline]
fn few_digits(length: usize, first: [u8; 4], last: [u8; 4]) -> Option<u64> {
    // The last digit is the highest byte of `ones`. The bytes below the first digit are zero.
    let missing = 64_usize.wrapping_sub(length << 3);
    let first = (u64::from(u32::from_le_bytes(first)) ^ 0x3030_3030) << missing;
    let last = (u64::from(u32::from_le_bytes(last)) ^ 0x3030_3030) << 32;
    let ones = first | last;
    if scan::above_nine(ones) != 0 {
        return None;
    }
    let twos = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = twos.wrapping_mul(100).wrapping_add(twos >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::super::cursor::Cursor;
    use super::*;
    use alloc::string::ToString;

    /// Seen in the field: servers that cut text between the two halves of a surrogate pair.
    #[test]
    fn half_of_a_surrogate_pair_is_mended_in_keys_and_values_and_nothing_else_changes() {
        let mended = |json: &str| mend(json.as_bytes()).map(|mended| String::from_utf8(mended).unwrap());
        for (json, expected) in [
            (r#"{"a":"cut \ud83d"}"#, r#"{"a":"cut \ufffd"}"#),
            (r#"{"\uDC00":["\ud83d\u0041","\ud83d\ud83d\ude00"]}"#, r#"{"\ufffd":["\ufffd\u0041","\ufffd\ud83d\ude00"]}"#),
        ] {
            assert_eq!(mended(json).as_deref(), Some(expected));
        }
        for whole in ["1", r#"{"a":"\ud83d\ude00","b":"\\ud83d","c":"\n\\\"\u0000"}"#] {
            assert_eq!(mended(whole), None, "{whole}");
        }
    }

    #[test]
    fn members_elements_and_strings_of_a_scanned_text_are_read() {
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
    fn a_walk_enters_containers_and_continues_after_each_value() {
        let text = br#" { "a" : [1, {"b":"]"} ,[], "x\"" ] , "\u0062":{ } ,"c":"\ud83d\ude00","d":"\ud83d"} "#;
        let mut walk = Walk::new(text);
        let key = |walk: &mut Walk<'_>| walk.next_key().map(|key| key.name().into_owned());
        assert_eq!(walk.kind(), Kind::Object);
        walk.enter();
        assert_eq!((key(&mut walk).as_deref(), walk.kind()), (Some("a"), Kind::Array));
        walk.enter();
        assert!(walk.next_element() && walk.kind() == Kind::Number && !walk.skip_unicode_string());
        assert_eq!(walk.value(), Some(&b"1"[..]));
        assert!(walk.next_element());
        walk.enter();
        assert_eq!(key(&mut walk).as_deref(), Some("b"));
        assert!(walk.skip_unicode_string());
        assert_eq!(key(&mut walk), None, "the object has ended");
        assert!(walk.next_element());
        assert_eq!(walk.value(), Some(&b"[]"[..]));
        assert!(walk.next_element());
        assert_eq!(walk.value(), Some(&br#""x\"""#[..]));
        assert!(!walk.next_element(), "the array has ended");
        assert_eq!((key(&mut walk).as_deref(), walk.kind()), (Some("b"), Kind::Object));
        walk.enter();
        assert_eq!(key(&mut walk), None);
        assert_eq!(key(&mut walk).as_deref(), Some("c"));
        assert!(walk.skip_unicode_string());
        assert_eq!(key(&mut walk).as_deref(), Some("d"));
        assert!(!walk.skip_unicode_string(), "half a pair");
        assert_eq!(walk.value(), Some(&br#""\ud83d""#[..]));
        assert_eq!(key(&mut walk), None);
        assert_eq!(walk.value(), None, "nothing follows");
    }

    #[test]
    fn escapes_are_read_as_serde_json_reads_them() {
        let pieces = [
            "",
            "plain and a little more",
            "\\n",
            "\\\"",
            "\\\\",
            "\\/",
            "\\b\\f\\r\\t",
            "\\u0041",
            "\\u00e9",
            "\\u20AC",
            "\\ud83d",
            "\\uDE00",
            "\\u0000",
            "\u{e9}",
        ];
        for (one, two, three) in pieces
            .iter()
            .flat_map(|one| pieces.iter().map(move |two| (one, two)))
            .flat_map(|(one, two)| pieces.iter().map(move |three| (one, two, three)))
        {
            let text = alloc::format!("\"{one}{two}{three}\"");
            let expected: Option<String> = serde_json::from_str(&text).ok();
            assert_eq!(string(text.as_bytes()).as_deref(), expected.as_deref(), "{text}");
            assert_eq!(is_unicode(text.as_bytes()), expected.is_some(), "{text}");
        }
    }

    /// Walks through a value and everything in it. Stops and returns `false` at the first part that is missing or is not Unicode text.
    fn takes_all(walk: &mut Walk<'_>) -> bool {
        match walk.kind() {
            Kind::Object => {
                walk.enter();
                while walk.next_key().is_some() {
                    if !takes_all(walk) {
                        return false;
                    }
                }
                true
            }
            Kind::Array => {
                walk.enter();
                while walk.next_element() {
                    if !takes_all(walk) {
                        return false;
                    }
                }
                true
            }
            Kind::String => walk.skip_unicode_string(),
            Kind::Number | Kind::Bool | Kind::Null => walk.value().is_some(),
        }
    }

    #[test]
    fn g6_reading_ends_for_any_bytes() {
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
            takes_all(&mut Walk::new(&text));
            let _ = (member(&text, "a"), string(&text), is_unicode(&text));
            index += 1;
        }
    }
}
