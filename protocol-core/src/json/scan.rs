//! One pass over JSON text that checks its syntax, bounds its depth and hands out members.
//!
//! The grammar is RFC 8259. Nothing recurses: the open brackets are bits of one `u128`, which is why the depth limit
//! is at most 128. Input is `&str`, so UTF-8 is checked before a scan begins.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// The deepest nesting that a scan can follow.
pub(crate) const MAX_DEPTH: u8 = 128;

/// Why a text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanError {
    Syntax,
    TooDeep,
}

/// What a value is, seen from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

impl Kind {
    /// The kind of the value that `text` begins with. `text` must have passed a scan.
    pub(crate) fn of(text: &str) -> Self {
        match text.as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') => Self::Null,
            _ => Self::Number,
        }
    }
}

/// A place in a JSON text. Every method moves forward over what it accepts.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    /// The end of `text` that was not passed yet.
    rest: &'a [u8],
    depth: u8,
}

impl<'a> Cursor<'a> {
    /// A cursor that accepts at most `depth` nested containers ([`MAX_DEPTH`] at the most).
    pub(crate) fn new(text: &'a str, depth: u8) -> Self {
        Self { text, rest: text.as_bytes(), depth: depth.min(MAX_DEPTH) }
    }

    /// Checks that the whole text is one value with nothing but white space around it, and gives back the value.
    pub(crate) fn whole(mut self) -> Result<&'a str, ScanError> {
        let value = self.value()?;
        self.end()?;
        Ok(value)
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Result<(), ScanError> {
        self.space();
        if self.rest.is_empty() { Ok(()) } else { Err(ScanError::Syntax) }
    }

    /// The first byte of what comes next, white space passed over.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.space();
        self.rest.first().copied()
    }

    /// Takes `byte` if it comes next, white space passed over.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        self.space();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// The next value, whole, checked.
    pub(crate) fn value(&mut self) -> Result<&'a str, ScanError> {
        self.space();
        let start = self.rest.len();
        self.skip_value()?;
        Ok(self.since(start))
    }

    /// An object key and the colon behind it.
    pub(crate) fn key(&mut self) -> Result<Key<'a>, ScanError> {
        self.space();
        let start = self.rest.len();
        let escaped = self.skip_string()?;
        let quoted = self.since(start);
        if self.take(b':') { Ok(Key { quoted, escaped }) } else { Err(ScanError::Syntax) }
    }

    /// What was passed since `rest` bytes were left. Tokens begin and end with ASCII, so the cuts are between characters.
    #[inline]
    fn since(&self, rest: usize) -> &'a str {
        let whole = self.text.len();
        self.text.get(whole.saturating_sub(rest)..whole.saturating_sub(self.rest.len())).unwrap_or_default()
    }

    #[inline]
    fn space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn skip_value(&mut self) -> Result<(), ScanError> {
        // One bit an open container, the innermost lowest: 1 is an object.
        let mut open: u128 = 0;
        let mut depth: u8 = 0;
        loop {
            self.space();
            match self.rest {
                [bracket @ (b'{' | b'['), rest @ ..] => {
                    let object = *bracket == b'{';
                    if depth >= self.depth {
                        return Err(ScanError::TooDeep);
                    }
                    self.rest = rest;
                    if !self.take(if object { b'}' } else { b']' }) {
                        depth = depth.saturating_add(1);
                        open = (open << 1) | u128::from(object);
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                [b'"', ..] => {
                    self.skip_string()?;
                }
                [b'-' | b'0'..=b'9', ..] => self.skip_number()?,
                [b't', ..] => self.literal("true")?,
                [b'f', ..] => self.literal("false")?,
                [b'n', ..] => self.literal("null")?,
                _ => return Err(ScanError::Syntax),
            }
            // A value ended: close what ends with it, or go on to the next one.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let object = open & 1 == 1;
                self.space();
                match self.rest {
                    [b',', rest @ ..] => {
                        self.rest = rest;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    [b'}', rest @ ..] if object => self.rest = rest,
                    [b']', rest @ ..] if !object => self.rest = rest,
                    _ => return Err(ScanError::Syntax),
                }
                depth = depth.saturating_sub(1);
                open >>= 1;
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), ScanError> {
        self.rest = self.rest.strip_prefix(word.as_bytes()).ok_or(ScanError::Syntax)?;
        Ok(())
    }

    /// Says whether the string holds an escape.
    fn skip_string(&mut self) -> Result<bool, ScanError> {
        let [b'"', body @ ..] = self.rest else { return Err(ScanError::Syntax) };
        let mut rest = body;
        let mut escaped = false;
        loop {
            rest = skip_plain(rest);
            match rest {
                [b'"', tail @ ..] => {
                    self.rest = tail;
                    return Ok(escaped);
                }
                [b'\\', b'u', a, b, c, d, tail @ ..] => {
                    if ![a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) {
                        return Err(ScanError::Syntax);
                    }
                    escaped = true;
                    rest = tail;
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', tail @ ..] => {
                    escaped = true;
                    rest = tail;
                }
                _ => return Err(ScanError::Syntax),
            }
        }
    }

    fn skip_number(&mut self) -> Result<(), ScanError> {
        let rest = self.rest.strip_prefix(b"-").unwrap_or(self.rest);
        let rest = match rest {
            [b'0', tail @ ..] => tail,
            _ => some_digits(rest)?,
        };
        let rest = match rest {
            [b'.', tail @ ..] => some_digits(tail)?,
            _ => rest,
        };
        let rest = match rest {
            [b'e' | b'E', b'+' | b'-', tail @ ..] | [b'e' | b'E', tail @ ..] => some_digits(tail)?,
            _ => rest,
        };
        self.rest = rest;
        Ok(())
    }
}

/// At least one digit, and all that follow it.
fn some_digits(text: &[u8]) -> Result<&[u8], ScanError> {
    let [b'0'..=b'9', ..] = text else { return Err(ScanError::Syntax) };
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    Ok(text.get(digits..).unwrap_or_default())
}

/// Passes over bytes that need no look: neither quote, backslash nor control character. Eight at a time, since
/// a tool's output is mostly such bytes.
#[inline]
pub(crate) fn skip_plain(mut text: &[u8]) -> &[u8] {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    /// Marks the bytes of `word` below `limit`, which is at most 0x80. The lowest mark is exact; above it there may be false ones.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(ONES.wrapping_mul(limit as u64)) & !word & HIGH
    }
    const fn equal(word: u64, byte: u8) -> u64 {
        below(word ^ ONES.wrapping_mul(byte as u64), 1)
    }
    while let Some((eight, tail)) = text.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        let marks = equal(word, b'"') | equal(word, b'\\') | below(word, 0x20);
        if marks != 0 {
            let plain = marks.trailing_zeros() >> 3;
            return text.get(plain as usize..).unwrap_or_default();
        }
        text = tail;
    }
    while let [byte, tail @ ..] = text {
        if matches!(byte, b'"' | b'\\' | ..=0x1f) {
            break;
        }
        text = tail;
    }
    text
}

/// An object key as it stands in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    quoted: &'a str,
    escaped: bool,
}

impl<'a> Key<'a> {
    /// The key with its quotes and escapes, exactly as it stands.
    pub(crate) fn quoted(&self) -> &'a str {
        self.quoted
    }

    /// The key itself. One that names half a surrogate pair is no text at all and reads as empty.
    #[inline]
    pub(crate) fn name(&self) -> Cow<'a, str> {
        if self.escaped { Cow::Owned(unescape(self.quoted).unwrap_or_default()) } else { Cow::Borrowed(inside(self.quoted)) }
    }
}

/// The members of an object, checked as they are read. The object may stand in a larger text that was checked before.
pub(crate) struct Members<'a> {
    cursor: Cursor<'a>,
    first: bool,
}

impl<'a> Members<'a> {
    /// `None` if `text` is no object.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let mut cursor = Cursor::new(text, MAX_DEPTH);
        cursor.take(b'{').then_some(Self { cursor, first: true })
    }

    /// Of the object that comes next at `cursor`, if it begins with these members as they stand: they are passed over.
    pub(crate) fn behind(mut cursor: Cursor<'a>, members: &str) -> Option<Self> {
        cursor.rest = cursor.rest.strip_prefix(b"{")?.strip_prefix(members.as_bytes())?;
        cursor.depth = cursor.depth.saturating_sub(1);
        Some(Self { cursor, first: false })
    }

    /// Of the object that comes next at `cursor`, if one does. Read it to its end, then go on with [`Self::rest`].
    pub(crate) fn at(mut cursor: Cursor<'a>) -> Option<Self> {
        let open = cursor.take(b'{');
        cursor.depth = cursor.depth.saturating_sub(1);
        open.then_some(Self { cursor, first: true })
    }

    /// The cursor behind the object, once [`Self::next`] gave `None`.
    pub(crate) fn rest(self) -> Cursor<'a> {
        self.cursor
    }

    pub(crate) fn next(&mut self) -> Result<Option<(Key<'a>, &'a str)>, ScanError> {
        match self.next_key()? {
            Some(key) => Ok(Some((key, self.cursor.value()?))),
            None => Ok(None),
        }
    }

    /// The next key; its value must be taken by [`Self::value`] or [`Self::noted`] before the next one is.
    pub(crate) fn next_key(&mut self) -> Result<Option<Key<'a>>, ScanError> {
        if self.cursor.take(b'}') {
            return Ok(None);
        }
        if !core::mem::replace(&mut self.first, false) && !self.cursor.take(b',') {
            return Err(ScanError::Syntax);
        }
        self.cursor.key().map(Some)
    }

    pub(crate) fn value(&mut self) -> Result<&'a str, ScanError> {
        self.cursor.value()
    }

    /// The value, with its members if it is an object.
    pub(crate) fn noted(&mut self) -> Result<Noted<'a>, ScanError> {
        self.cursor.space();
        let start = self.cursor.rest.len();
        let mut noted = Noted::of("");
        let outer = self.cursor;
        match Members::at(outer) {
            None => noted.text = self.cursor.value()?,
            Some(_) if outer.depth == 0 => return Err(ScanError::TooDeep),
            Some(mut members) => {
                while let Some((key, value)) = members.next()? {
                    if let Some(place) = noted.members.get_mut(noted.count) {
                        *place = (key, value);
                    }
                    noted.count = noted.count.saturating_add(1);
                }
                self.cursor.rest = members.cursor.rest;
                noted.text = self.cursor.since(start);
            }
        }
        Ok(noted)
    }
}

/// A value, and the members that were found in it while it was checked: reading them needs no second pass. Of an object with more
/// members than there are places for, they are read again.
#[derive(Clone, Debug)]
pub(crate) struct Noted<'a> {
    text: &'a str,
    members: [(Key<'a>, &'a str); PLACES],
    /// How many there are, which may be more than there are places.
    count: usize,
}

/// Most parameters of a request or a notification have fewer.
const PLACES: usize = 5;

impl<'a> Noted<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, members: [(Key { quoted: "", escaped: false }, ""); PLACES], count: 0 }
    }

    /// An object without members.
    pub(crate) fn empty_object() -> Self {
        Self::of("{}")
    }

    /// The whole value.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Calls `each` with every member, in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&str, &'a str)) {
        match self.members.get(..self.count) {
            Some(members) => members.iter().for_each(|(key, value)| each(&key.name(), value)),
            None => for_each_member(self.text, each),
        }
    }

    /// The member `name`; the last one where it is repeated.
    pub(crate) fn member(&self, name: &str) -> Option<&'a str> {
        let mut found = None;
        self.for_each(|other, value| {
            if other == name {
                found = Some(value);
            }
        });
        found
    }
}

/// Calls `each` with the name and the value of every member of the object `text`, which passed a scan.
pub(crate) fn for_each_member<'a>(text: &'a str, mut each: impl FnMut(&str, &'a str)) {
    for_each_key(text, |key, value| each(&key.name(), value));
}

/// The same with the keys as they stand, for writing them again.
pub(crate) fn for_each_key<'a>(text: &'a str, mut each: impl FnMut(Key<'a>, &'a str)) {
    let Some(mut members) = Members::of(text) else { return };
    while let Ok(Some((key, value))) = members.next() {
        each(key, value);
    }
}

/// The member `name` of the object `text`; the last one where it is repeated. `None` if `text` is no object.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    for_each_member(text, |other, value| {
        if other == name {
            found = Some(value);
        }
    });
    found
}

/// The elements of an array that passed a scan.
pub(crate) fn elements(array: &str) -> Vec<&str> {
    let mut cursor = Cursor::new(array, MAX_DEPTH);
    let mut all = Vec::new();
    if !cursor.take(b'[') {
        return all;
    }
    while cursor.peek() != Some(b']') {
        let Ok(value) = cursor.value() else { break };
        all.push(value);
        cursor.take(b',');
    }
    all
}

/// The text of a JSON string, or `None` if `value` is none, or names half a surrogate pair.
pub(crate) fn string(value: &str) -> Option<Cow<'_, str>> {
    if Kind::of(value) != Kind::String {
        return None;
    }
    let inside = inside(value);
    if inside.contains('\\') { unescape(value).map(Cow::Owned) } else { Some(Cow::Borrowed(inside)) }
}

fn inside(quoted: &str) -> &str {
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default()
}

fn unescape(quoted: &str) -> Option<String> {
    serde_json::from_str(quoted).ok()
}
