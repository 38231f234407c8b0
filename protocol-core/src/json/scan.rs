//! One pass over JSON text that checks its syntax, bounds its depth and hands out members.
//!
//! The grammar is RFC 8259. Nothing recurses: the open brackets are bits of one `u128`, which is why the depth limit
//! is at most 128. Input is `&str`, so UTF-8 is checked before a scan begins.

use core::ops::Range;

use super::walk::{Key, for_each_key, for_each_member, member};

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
    /// How much of `text` was passed.
    at: usize,
    depth: u8,
}

impl<'a> Cursor<'a> {
    /// A cursor that accepts at most `depth` nested containers ([`MAX_DEPTH`] at the most).
    pub(crate) fn new(text: &'a str, depth: u8) -> Self {
        Self { text, at: 0, depth: depth.min(MAX_DEPTH) }
    }

    /// Checks that the whole text is one value with nothing but white space around it, and gives back the value.
    pub(crate) fn whole(mut self) -> Result<&'a str, ScanError> {
        let value = self.value()?;
        self.end()?;
        Ok(value)
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Result<(), ScanError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(ScanError::Syntax),
        }
    }

    /// The first byte of what comes next, white space passed over.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.at = behind_space(self.text.as_bytes(), self.at);
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes `byte` if it comes next, white space passed over.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let taken = self.peek() == Some(byte);
        if taken {
            self.at = next(self.at);
        }
        taken
    }

    /// The next value, whole, checked.
    pub(crate) fn value(&mut self) -> Result<&'a str, ScanError> {
        let start = self.pass_value()?;
        Ok(self.since(start))
    }

    /// Passes over the next value, which is checked. Gives back where it begins.
    #[inline]
    fn pass_value(&mut self) -> Result<usize, ScanError> {
        let text = self.text.as_bytes();
        let start = behind_space(text, self.at);
        self.at = match byte(text, start) {
            b'{' | b'[' => behind_container(text, start, self.depth)?,
            b'"' => behind_string(text, start)?,
            _ => behind_word(text, start)?,
        };
        Ok(start)
    }

    /// Passes over an object key and the colon behind it.
    #[inline]
    fn pass_key(&mut self) -> Result<KeyPlace, ScanError> {
        let text = self.text.as_bytes();
        let open = behind_space(text, self.at);
        if byte(text, open) != b'"' {
            return Err(ScanError::Syntax);
        }
        let plain = behind_plain(text, next(open));
        let escaped = byte(text, plain) != b'"';
        let close = if escaped { behind_escapes(text, plain)?.wrapping_sub(1) } else { plain };
        let colon = behind_space(text, next(close));
        if byte(text, colon) != b':' {
            return Err(ScanError::Syntax);
        }
        self.at = next(colon);
        Ok(KeyPlace { open, close, escaped })
    }

    /// What was passed since `start`. Tokens begin and end with ASCII, so the cuts are between characters.
    #[inline]
    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }
}

/// Where an object key stands.
struct KeyPlace {
    /// Its quotes.
    open: usize,
    close: usize,
    escaped: bool,
}

/// The place behind one byte. No text has its end at the end of memory, so nothing wraps.
#[inline]
pub(super) const fn next(at: usize) -> usize {
    at.wrapping_add(1)
}

/// The byte at a place. Behind the end it is 0, which stands nowhere in JSON.
#[inline]
pub(super) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or_default()
}

#[inline]
fn behind_space(text: &[u8], mut at: usize) -> usize {
    while matches!(byte(text, at), b' ' | b'\t' | b'\n' | b'\r') {
        at = next(at);
    }
    at
}

/// Of an object or an array that is nested at most `most` deep.
fn behind_container(text: &[u8], mut at: usize, most: u8) -> Result<usize, ScanError> {
    // One bit an open container, the innermost lowest: 1 is an object.
    let mut open: u128 = 0;
    let mut depth: u8 = 0;
    loop {
        match byte(text, at) {
            bracket @ (b'{' | b'[') => {
                if depth >= most {
                    return Err(ScanError::TooDeep);
                }
                let object = bracket == b'{';
                at = behind_space(text, next(at));
                if byte(text, at) != if object { b'}' } else { b']' } {
                    depth = depth.saturating_add(1);
                    open = (open << 1) | u128::from(object);
                    if object {
                        at = behind_key(text, at)?;
                    }
                    continue;
                }
                at = next(at);
            }
            b'"' => at = behind_string(text, at)?,
            _ => at = behind_word(text, at)?,
        }
        // A value ended: close what ends with it, or go on to the next one.
        loop {
            if depth == 0 {
                return Ok(at);
            }
            let object = open & 1 == 1;
            at = behind_space(text, at);
            match byte(text, at) {
                b',' => {
                    at = behind_space(text, next(at));
                    if object {
                        at = behind_key(text, at)?;
                    }
                    break;
                }
                b'}' if object => {}
                b']' if !object => {}
                _ => return Err(ScanError::Syntax),
            }
            at = next(at);
            depth = depth.saturating_sub(1);
            open >>= 1;
        }
    }
}

/// A key, the colon, and white space behind both.
#[inline]
fn behind_key(text: &[u8], at: usize) -> Result<usize, ScanError> {
    if byte(text, at) != b'"' {
        return Err(ScanError::Syntax);
    }
    let at = behind_space(text, behind_string(text, at)?);
    if byte(text, at) == b':' { Ok(behind_space(text, next(at))) } else { Err(ScanError::Syntax) }
}

/// Of a number or a literal.
fn behind_word(text: &[u8], at: usize) -> Result<usize, ScanError> {
    match byte(text, at) {
        b'-' | b'0'..=b'9' => behind_number(text, at),
        b't' => behind_literal(text, at, b"true"),
        b'f' => behind_literal(text, at, b"false"),
        b'n' => behind_literal(text, at, b"null"),
        _ => Err(ScanError::Syntax),
    }
}

fn behind_literal(text: &[u8], at: usize, word: &[u8]) -> Result<usize, ScanError> {
    let is_there = text.get(at..).is_some_and(|rest| rest.starts_with(word));
    if is_there { Ok(at.wrapping_add(word.len())) } else { Err(ScanError::Syntax) }
}

/// Of the string whose opening quote is at `at`.
#[inline]
fn behind_string(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let end = behind_plain(text, next(at));
    if byte(text, end) == b'"' { Ok(next(end)) } else { behind_escapes(text, end) }
}

/// What comes behind a string, from its first escape on.
#[inline(never)]
fn behind_escapes(text: &[u8], mut at: usize) -> Result<usize, ScanError> {
    loop {
        let escape = match text.get(at..).unwrap_or_default() {
            [b'"', ..] => return Ok(next(at)),
            [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) => 6,
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            _ => return Err(ScanError::Syntax),
        };
        at = behind_plain(text, at.wrapping_add(escape));
    }
}

#[inline]
fn behind_number(text: &[u8], mut at: usize) -> Result<usize, ScanError> {
    if byte(text, at) == b'-' {
        at = next(at);
    }
    at = if byte(text, at) == b'0' { next(at) } else { behind_digits(text, at)? };
    if byte(text, at) == b'.' {
        at = behind_digits(text, next(at))?;
    }
    if let b'e' | b'E' = byte(text, at) {
        at = next(at);
        if let b'+' | b'-' = byte(text, at) {
            at = next(at);
        }
        at = behind_digits(text, at)?;
    }
    Ok(at)
}

/// At least one digit, and all that follow it.
#[inline]
fn behind_digits(text: &[u8], start: usize) -> Result<usize, ScanError> {
    let mut at = start;
    while byte(text, at).is_ascii_digit() {
        at = next(at);
    }
    if at == start { Err(ScanError::Syntax) } else { Ok(at) }
}

/// Passes over bytes that need no look: neither quote, backslash nor control character. Eight at a time, since
/// a tool's output is mostly such bytes.
#[inline]
pub(super) fn behind_plain(text: &[u8], mut at: usize) -> usize {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let special = match rest.first_chunk() {
            Some(eight) => specials(u64::from_le_bytes(*eight)),
            None => specials(last(text, rest)),
        };
        if special != 0 {
            return at.wrapping_add(special.trailing_zeros() as usize >> 3);
        }
        at = at.wrapping_add(8);
    }
}

/// Marks the bytes that [`behind_plain`] stops at. The lowest mark is exact; above it there may be false ones.
#[inline]
const fn specials(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(ONES.wrapping_mul(limit as u64)) & !word & HIGH
    }
    // With its second bit turned over a quote is 0x20, just above the control characters, which stay below it.
    below(word ^ ONES.wrapping_mul(2), 0x21) | below(word ^ ONES.wrapping_mul(b'\\' as u64), 1)
}

/// The `rest` of a text, of less than eight bytes; behind it comes 0, which is special.
#[inline(never)]
fn last(text: &[u8], rest: &[u8]) -> u64 {
    match text.last_chunk() {
        Some(eight) => {
            let before = 64_usize.wrapping_sub(rest.len() << 3);
            u64::from_le_bytes(*eight).checked_shr(before as u32).unwrap_or_default()
        }
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The members of an object, checked as they are read.
pub(crate) struct Members<'a> {
    cursor: Cursor<'a>,
    first: bool,
}

impl<'a> Members<'a> {
    /// Of the object that comes next at `cursor`, if it begins with these members as they stand: they are passed over.
    pub(crate) fn behind(mut cursor: Cursor<'a>, members: &str) -> Option<Self> {
        let rest = cursor.text.get(cursor.at..)?;
        let behind = rest.strip_prefix('{')?.strip_prefix(members)?;
        cursor.at = cursor.text.len().saturating_sub(behind.len());
        cursor.depth = cursor.depth.saturating_sub(1);
        Some(Self { cursor, first: false })
    }

    /// Of the object that comes next at `cursor`, if one does. Read it to its end, then go on with [`Self::rest`].
    pub(crate) fn at(mut cursor: Cursor<'a>) -> Option<Self> {
        let open = cursor.take(b'{');
        cursor.depth = cursor.depth.saturating_sub(1);
        open.then_some(Self { cursor, first: true })
    }

    /// The cursor behind the object, once [`Self::next_key`] gave `None`.
    pub(crate) fn rest(self) -> Cursor<'a> {
        self.cursor
    }

    /// Whether there is a further member; else the object is at its end, and passed.
    #[inline]
    fn go_on(&mut self) -> Result<bool, ScanError> {
        let first = core::mem::replace(&mut self.first, false);
        match self.cursor.peek() {
            Some(b'}') => {
                self.cursor.at = next(self.cursor.at);
                return Ok(false);
            }
            Some(b',') if !first => self.cursor.at = next(self.cursor.at),
            _ if first => {}
            _ => return Err(ScanError::Syntax),
        }
        Ok(true)
    }

    /// The next key; its value must be taken by [`Self::value`] or [`Self::note`] before the next one is.
    pub(crate) fn next_key(&mut self) -> Result<Option<Key<&'a str>>, ScanError> {
        if !self.go_on()? {
            return Ok(None);
        }
        let key = self.cursor.pass_key()?;
        let quoted = self.cursor.text.get(key.open..next(key.close)).unwrap_or_default();
        Ok(Some(Key { quoted, escaped: key.escaped }))
    }

    /// Takes the next key if it stands there as `written`, with its comma and its colon.
    #[inline]
    pub(crate) fn take_key(&mut self, written: &str) -> bool {
        let rest = self.cursor.text.as_bytes().get(self.cursor.at..).unwrap_or_default();
        let taken = rest.starts_with(written.as_bytes());
        if taken {
            self.cursor.at = self.cursor.at.wrapping_add(written.len());
        }
        taken
    }

    pub(crate) fn value(&mut self) -> Result<&'a str, ScanError> {
        self.cursor.value()
    }

    /// Takes the value into `noted`, which is empty, with its members if it is an object.
    pub(crate) fn note(&mut self, noted: &mut Noted<'a>) -> Result<(), ScanError> {
        let mut members = match self.cursor.peek() {
            Some(b'{') if self.cursor.depth == 0 => return Err(ScanError::TooDeep),
            Some(b'{') => Self::at(self.cursor).ok_or(ScanError::Syntax)?,
            _ => {
                noted.text = self.cursor.value()?;
                return Ok(());
            }
        };
        let start = self.cursor.at;
        let span = |from: usize, to: usize| Span::new(from.wrapping_sub(start), to.wrapping_sub(start));
        while members.go_on()? {
            let key = members.cursor.pass_key()?;
            let value = members.cursor.pass_value()?;
            match noted.members.get_mut(noted.count) {
                Some(place) if !key.escaped => {
                    *place = (span(next(key.open), key.close), span(value, members.cursor.at));
                    noted.count = next(noted.count);
                }
                _ => noted.count = AGAIN,
            }
        }
        self.cursor.at = members.cursor.at;
        noted.text = self.cursor.since(start);
        if u32::try_from(noted.text.len()).is_err() {
            noted.count = AGAIN;
        }
        Ok(())
    }
}

/// A value, and where its members stand if it is an object: found while it was checked, so that reading them needs no second pass.
///
/// They are found again when they are asked for if there are more than places, if a key has an escape in it, and beyond 4 GiB.
#[derive(Debug, Default)]
pub(crate) struct Noted<'a> {
    text: &'a str,
    /// The key of each, without its quotes, and the value.
    members: [(Span, Span); PLACES],
    /// How many there are, or [`AGAIN`].
    count: usize,
}

/// A part of a value, half as large as a slice of it.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    from: u32,
    to: u32,
}

/// Most parameters of a request or a notification have fewer members.
const PLACES: usize = 5;

/// More members than there are places.
const AGAIN: usize = usize::MAX;

impl Span {
    /// Cut off beyond 4 GiB.
    fn new(from: usize, to: usize) -> Self {
        Self { from: from as u32, to: to as u32 }
    }

    fn range(self) -> Range<usize> {
        self.from as usize..self.to as usize
    }
}

impl<'a> Noted<'a> {
    /// An object without members.
    pub(crate) fn empty_object() -> Self {
        Self { text: "{}", ..Self::default() }
    }

    /// The whole value.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Calls `each` with every member, in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&str, &'a str)) {
        match self.members.get(..self.count) {
            Some(members) => members.iter().for_each(|(key, value)| each(self.cut(*key), self.cut(*value))),
            None => for_each_member(self.text, each),
        }
    }

    /// The member `name`; the last one where it is repeated.
    pub(crate) fn member(&self, name: &str) -> Option<&'a str> {
        match self.members.get(..self.count) {
            Some(members) => members.iter().rfind(|(key, _)| self.is(*key, name)).map(|(_, value)| self.cut(*value)),
            None => member(self.text, name),
        }
    }

    /// Whether there are several members `name`.
    pub(crate) fn repeats(&self, name: &str) -> bool {
        let mut times = 0_usize;
        match self.members.get(..self.count) {
            Some(members) => times = members.iter().filter(|(key, _)| self.is(*key, name)).count(),
            None => for_each_key(self.text, |key, _| times = times.saturating_add(usize::from(key.is(name)))),
        }
        times > 1
    }

    /// The part at `span`, which is a token and so begins and ends with ASCII.
    fn cut(&self, span: Span) -> &'a str {
        self.text.get(span.range()).unwrap_or_default()
    }

    fn is(&self, key: Span, name: &str) -> bool {
        self.text.as_bytes().get(key.range()) == Some(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    #[test]
    fn noted_members_are_those_that_a_walk_finds_however_many_and_however_written() {
        let member = |index: usize| alloc::format!(r#" "k{}" : [{index},"\"}}ä"]"#, index % 4);
        for count in 0..=2 * PLACES {
            for escaped in 0..=count {
                let mut all: Vec<String> = (0..count).map(member).collect();
                if let Some(one) = all.get_mut(escaped) {
                    *one = one.replace('k', r"\u006b");
                }
                let text = alloc::format!(r#"{{"params": {{{}}} }}"#, all.join(" ,"));
                let mut members = Members::at(Cursor::new(&text, 3)).unwrap();
                members.next_key().unwrap().unwrap();
                let mut noted = Noted::default();
                members.note(&mut noted).unwrap();
                assert!(members.next_key().unwrap().is_none());
                let (mut seen, mut walked) = (Vec::new(), Vec::new());
                noted.for_each(|name, value| seen.push((name.to_string(), value)));
                for_each_member(noted.text(), |name, value| walked.push((name.to_string(), value)));
                assert_eq!((seen.len(), &seen), (count, &walked), "{text}");
                for name in ["k0", "k3", "k", ""] {
                    assert_eq!(noted.member(name), super::member(noted.text(), name), "{text}");
                    assert_eq!(noted.repeats(name), walked.iter().filter(|(key, _)| key == name).count() > 1, "{text}");
                }
            }
        }
    }

    #[test]
    fn plain_bytes_are_passed_over_up_to_the_first_special_one_or_the_end() {
        for special in [b'"', b'\\', 0, b'\n', 0x1f] {
            for length in 0..25 {
                for place in 0..=length {
                    let mut text = [b' ', b'!', b'#', 0x7f, 0x80, 0xff, b'[', b']'].repeat(4);
                    text.truncate(length);
                    if let Some(byte) = text.get_mut(place) {
                        *byte = special;
                    }
                    for from in 0..=place {
                        assert_eq!(behind_plain(&text, from), place, "{text:?} from {from}");
                    }
                    assert_eq!(behind_plain(&text, length + 3), length + 3);
                }
            }
        }
    }
}
