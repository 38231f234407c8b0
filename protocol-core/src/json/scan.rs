//! One pass over JSON text that checks its syntax, bounds its depth and hands out members.
//!
//! The grammar is RFC 8259. Nothing recurses: the open brackets are bits of one `u128`, which is why the depth limit
//! is at most 128. Input is `&str`, so UTF-8 is checked before a scan begins.

use alloc::borrow::Cow;
use alloc::string::String;

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
    rest: &'a str,
    depth: u8,
}

impl<'a> Cursor<'a> {
    /// A cursor that accepts at most `depth` nested containers ([`MAX_DEPTH`] at the most).
    pub(crate) fn new(text: &'a str, depth: u8) -> Self {
        Self { rest: text, depth: depth.min(MAX_DEPTH) }
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
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.space();
        self.rest.as_bytes().first().copied()
    }

    /// Takes `byte` if it comes next, white space passed over.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        self.space();
        match self.rest.as_bytes() {
            [first, ..] if *first == byte => {
                self.skip(1);
                true
            }
            _ => false,
        }
    }

    /// The next value, whole, checked.
    pub(crate) fn value(&mut self) -> Result<&'a str, ScanError> {
        self.space();
        let start = self.rest;
        self.skip_value()?;
        let taken = start.len().saturating_sub(self.rest.len());
        start.get(..taken).ok_or(ScanError::Syntax)
    }

    /// An object key and the colon behind it.
    pub(crate) fn key(&mut self) -> Result<Key<'a>, ScanError> {
        self.space();
        let start = self.rest;
        let escaped = self.skip_string()?;
        let taken = start.len().saturating_sub(self.rest.len());
        let quoted = start.get(..taken).ok_or(ScanError::Syntax)?;
        if self.take(b':') { Ok(Key { quoted, escaped }) } else { Err(ScanError::Syntax) }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn space(&mut self) {
        let bytes = self.rest.as_bytes();
        if bytes.first().is_some_and(|b| *b > b' ') {
            return;
        }
        let blank = bytes.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.skip(blank);
    }

    fn skip_value(&mut self) -> Result<(), ScanError> {
        // One bit an open container, the innermost lowest: 1 is an object.
        let mut open: u128 = 0;
        let mut depth: u8 = 0;
        loop {
            self.space();
            match self.rest.as_bytes() {
                [bracket @ (b'{' | b'['), ..] => {
                    let object = *bracket == b'{';
                    if depth >= self.depth {
                        return Err(ScanError::TooDeep);
                    }
                    self.skip(1);
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
                match self.peek() {
                    Some(b',') => {
                        self.skip(1);
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => self.skip(1),
                    Some(b']') if !object => self.skip(1),
                    _ => return Err(ScanError::Syntax),
                }
                depth = depth.saturating_sub(1);
                open >>= 1;
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), ScanError> {
        self.rest = self.rest.strip_prefix(word).ok_or(ScanError::Syntax)?;
        Ok(())
    }

    /// Says whether the string holds an escape.
    fn skip_string(&mut self) -> Result<bool, ScanError> {
        let [b'"', body @ ..] = self.rest.as_bytes() else { return Err(ScanError::Syntax) };
        let mut rest = body;
        let mut escaped = false;
        loop {
            rest = skip_plain(rest);
            match rest {
                [b'"', tail @ ..] => {
                    let taken = self.rest.len().saturating_sub(tail.len());
                    self.skip(taken);
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
        let all = self.rest.as_bytes();
        let rest = all.strip_prefix(b"-").unwrap_or(all);
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
        self.skip(all.len().saturating_sub(rest.len()));
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
fn skip_plain(mut text: &[u8]) -> &[u8] {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    /// Has the high bit set in (at least) the lowest byte of `word` that is zero, and none if no byte is.
    const fn zero_bytes(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGH
    }
    while let Some((eight, tail)) = text.split_first_chunk::<8>() {
        let word = u64::from_ne_bytes(*eight);
        let quote = zero_bytes(word ^ (ONES.wrapping_mul(b'"' as u64)));
        let backslash = zero_bytes(word ^ (ONES.wrapping_mul(b'\\' as u64)));
        let control = word.wrapping_sub(ONES.wrapping_mul(0x20)) & !word & HIGH;
        if (quote | backslash | control) != 0 {
            break;
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
    /// The key itself. One that names half a surrogate pair is no text at all and reads as empty.
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
        if self.cursor.take(b'}') {
            return Ok(None);
        }
        if !core::mem::replace(&mut self.first, false) && !self.cursor.take(b',') {
            return Err(ScanError::Syntax);
        }
        let key = self.cursor.key()?;
        let value = self.cursor.value()?;
        Ok(Some((key, value)))
    }
}

/// The member `name` of the object `text`; the last one where it is repeated. `None` if `text` is no object.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut members = Members::of(text)?;
    let mut found = None;
    while let Ok(Some((key, value))) = members.next() {
        if key.name() == name {
            found = Some(value);
        }
    }
    found
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
