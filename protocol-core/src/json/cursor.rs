//! A cursor that checks text as it reads it; the members of an object, and their ranges.

use core::ops::Range;

use super::read::{self, Key, for_each_member, member};
use super::scan::{MAX_DEPTH, ScanError, byte, member_at, next, skip_plain, skip_space, skip_value};

/// A position in JSON text. A method that accepts bytes moves the position after them; the others move it at most over white space.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    /// The number of bytes of `text` before the cursor.
    at: usize,
    /// The maximum nesting of the values that are read next.
    depth: u8,
}

impl<'a> Cursor<'a> {
    /// A cursor that accepts at most `depth` nested containers, and never more than [`MAX_DEPTH`].
    pub(crate) fn new(text: &'a [u8], depth: u8) -> Self {
        Self { text, at: 0, depth: depth.min(MAX_DEPTH) }
    }

    /// Checks that the whole text is one value with nothing but white space around it, and returns the value.
    pub(crate) fn whole(mut self) -> Result<&'a [u8], ScanError> {
        let value = self.value()?;
        self.end()?;
        Ok(value)
    }

    /// Checks that nothing but white space follows.
    pub(crate) fn end(&mut self) -> Result<(), ScanError> {
        if self.at == self.text.len() || self.peek().is_none() { Ok(()) } else { Err(ScanError::Syntax) }
    }

    /// The next byte after white space. The cursor stays before this byte.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.at = skip_space(self.text, self.at);
        self.text.get(self.at).copied()
    }

    /// Takes the next byte after white space if it is `byte`.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let taken = self.peek() == Some(byte);
        if taken {
            self.at = next(self.at);
        }
        taken
    }

    /// Takes the next value whole, and checks it.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], ScanError> {
        let start = skip_space(self.text, self.at);
        self.at = skip_value(self.text, start, self.depth)?;
        Ok(self.since(start))
    }

    /// The bytes from `start` to the cursor.
    #[inline]
    fn since(&self, start: usize) -> &'a [u8] {
        self.text.get(start..self.at).unwrap_or_default()
    }
}

/// The members of an object, checked as they are read.
pub(crate) struct Members<'a> {
    cursor: Cursor<'a>,
    first: bool,
}

impl<'a> Members<'a> {
    /// The members that follow `written` in the object at `cursor`, if the object begins with exactly `written`.
    #[inline]
    pub(crate) fn starting_with(cursor: Cursor<'a>, written: &str) -> Option<Self> {
        let mut members = Self { cursor, first: false };
        let begins = members.take_exact(written);
        members.cursor.depth = cursor.depth.saturating_sub(1);
        begins.then_some(members)
    }

    /// The members of the object at `cursor`; `None` if there is no object. Read all members, then continue with [`Self::rest`].
    pub(crate) fn at(mut cursor: Cursor<'a>) -> Option<Self> {
        let open = cursor.take(b'{');
        cursor.depth = cursor.depth.saturating_sub(1);
        open.then_some(Self { cursor, first: true })
    }

    /// The cursor after the object. Call it once [`Self::next_key`] has returned `None`.
    pub(crate) fn rest(self) -> Cursor<'a> {
        self.cursor
    }

    /// The next key. Take its value with [`Self::value`] or [`Self::index`] before the next key.
    pub(crate) fn next_key(&mut self) -> Result<Option<Key<'a>>, ScanError> {
        let text = self.cursor.text;
        let first = core::mem::replace(&mut self.first, false);
        let mut at = skip_space(text, self.cursor.at);
        match byte(text, at) {
            b'}' => {
                self.cursor.at = next(at);
                return Ok(None);
            }
            b',' if !first => at = skip_space(text, next(at)),
            _ if first => {}
            _ => return Err(ScanError::Syntax),
        }
        let member = member_at(text, at)?;
        self.cursor.at = member.value;
        let quoted = self.cursor.text.get(at..next(member.close)).unwrap_or_default();
        Ok(Some(Key { quoted, escaped: member.escaped }))
    }

    /// Takes `written`, such as a comma, a key and a colon, if the text continues with exactly these bytes.
    #[inline]
    pub(crate) fn take_exact(&mut self, written: &str) -> bool {
        let rest = self.cursor.text.get(self.cursor.at..).unwrap_or_default();
        let taken = rest.starts_with(written.as_bytes());
        if taken {
            self.cursor.at = self.cursor.at.wrapping_add(written.len());
        }
        taken
    }

    /// Takes the value if it is a string without escapes, and returns the bytes between its quotes.
    pub(crate) fn take_unescaped(&mut self) -> Option<&'a [u8]> {
        let text = self.cursor.text;
        let inside = next(self.cursor.at);
        let end = skip_plain(text, inside);
        let is_plain = byte(text, self.cursor.at) == b'"' && byte(text, end) == b'"';
        if is_plain {
            self.cursor.at = next(end);
        }
        text.get(inside..end).filter(|_| is_plain)
    }

    pub(crate) fn value(&mut self) -> Result<&'a [u8], ScanError> {
        self.cursor.value()
    }

    /// Takes the value, and stores it in `indexed`, which must be empty. If the value is an object, stores the ranges of its members, too.
    pub(crate) fn index(&mut self, indexed: &mut IndexedObject<'a>) -> Result<(), ScanError> {
        let text = self.cursor.text;
        let start = skip_space(text, self.cursor.at);
        if byte(text, start) != b'{' {
            indexed.text = self.cursor.value()?;
            return Ok(());
        }
        let depth = self.cursor.depth.checked_sub(1).ok_or(ScanError::TooDeep)?;
        let span = |from: usize, to: usize| Span::new(from.wrapping_sub(start), to.wrapping_sub(start));
        let mut at = skip_space(text, next(start));
        let mut more = byte(text, at) != b'}';
        while more {
            let member = member_at(text, at)?;
            let end = skip_value(text, member.value, depth)?;
            // Only `null` begins with `n`.
            indexed.has_null |= byte(text, member.value) == b'n';
            match indexed.members.get_mut(indexed.count) {
                Some(slot) if !member.escaped => {
                    *slot = (span(next(member.open), member.close), span(member.value, end));
                    indexed.count = next(indexed.count);
                }
                _ => indexed.count = NOT_INDEXED,
            }
            at = skip_space(text, end);
            more = byte(text, at) == b',';
            if more {
                at = skip_space(text, next(at));
            } else if byte(text, at) != b'}' {
                return Err(ScanError::Syntax);
            }
        }
        self.cursor.at = next(at);
        indexed.text = self.cursor.since(start);
        if u32::try_from(indexed.text.len()).is_err() {
            indexed.count = NOT_INDEXED;
        }
        Ok(())
    }
}

/// A value, with the ranges of its members if it is an object. The syntax check finds the ranges, so that reading members needs no second
/// pass.
///
/// A second pass is needed if there are more than [`INDEXED_MEMBERS`] members, if a key has an escape, or if the text has 4 GiB or more.
#[derive(Debug, Default)]
pub(crate) struct IndexedObject<'a> {
    text: &'a [u8],
    /// The range of each key, without its quotes, and of its value. Meaningless in text of 4 GiB or more.
    members: [(Span, Span); INDEXED_MEMBERS],
    /// The number of members, or [`NOT_INDEXED`].
    count: usize,
    /// `true` if a member is `null`.
    has_null: bool,
}

/// The error for a member that occurs more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedMember;

/// The range of a value in its text, half as large as a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    from: u32,
    to: u32,
}

/// The maximum number of members whose ranges are stored. Most parameters have fewer.
const INDEXED_MEMBERS: usize = 5;

/// The `count` of an object whose members need a second pass; see [`IndexedObject`].
const NOT_INDEXED: usize = usize::MAX;

impl Span {
    /// A range of text that is shorter than 4 GiB.
    pub(crate) fn new(from: usize, to: usize) -> Self {
        Self { from: from as u32, to: to as u32 }
    }

    /// Returns `true` for the default range, which is empty and stands for an absent value. No value is empty.
    pub(crate) fn is_empty(self) -> bool {
        self.to == 0
    }

    /// The bytes of the range.
    pub(crate) fn cut(self, text: &[u8]) -> &[u8] {
        text.get(self.range()).unwrap_or_default()
    }

    /// The range as a [`Range`].
    pub(crate) fn range(self) -> Range<usize> {
        self.from as usize..self.to as usize
    }
}

impl<'a> IndexedObject<'a> {
    /// An object without members.
    pub(crate) const fn empty_object() -> Self {
        Self {
            text: b"{}",
            members: [(Span { from: 0, to: 0 }, Span { from: 0, to: 0 }); INDEXED_MEMBERS],
            count: 0,
            has_null: false,
        }
    }

    /// The whole value.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Calls `each` with the name and the value of every member, in order.
    #[inline]
    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8], &'a [u8])) {
        match self.members.get(..self.count) {
            Some(members) => members.iter().for_each(|(key, value)| each(key.cut(self.text), value.cut(self.text))),
            None => for_each_member(self.text, |name, value| each(name.as_bytes(), value)),
        }
    }

    /// The number of members that are `null`, without those in `except`.
    #[inline]
    pub(crate) fn nulls(&self, except: &[&str]) -> u64 {
        let mut nulls = 0_u64;
        if !self.has_null {
            return nulls;
        }
        self.for_each(|name, value| {
            if value == b"null" && !except.iter().any(|except| except.as_bytes() == name) {
                nulls = nulls.wrapping_add(1);
            }
        });
        nulls
    }

    /// The member `name`, unless it is `null`, which counts as absent.
    pub(crate) fn given(&self, name: &str) -> Option<&'a [u8]> {
        self.member(name).filter(|value| *value != b"null")
    }

    /// The member `name`; the last one if it is repeated.
    pub(crate) fn member(&self, name: &str) -> Option<&'a [u8]> {
        match self.members.get(..self.count) {
            Some(members) => members.iter().rfind(|(key, _)| self.is(*key, name)).map(|(_, value)| value.cut(self.text)),
            None => member(self.text, name),
        }
    }

    /// The member `name`, unless it is repeated.
    #[inline]
    pub(crate) fn only(&self, name: &str) -> Result<Option<&'a [u8]>, RepeatedMember> {
        match self.spans([name]) {
            Some([span]) if span.is_empty() => Ok(None),
            Some([span]) => Ok(Some(span.cut(self.text))),
            None => only_member(self.text, name),
        }
    }

    /// The ranges of the values of the members `names`; an empty range for an absent member. `None` if a second pass is needed, or if one
    /// of these members is repeated.
    #[inline]
    pub(crate) fn spans<const COUNT: usize>(&self, names: [&str; COUNT]) -> Option<[Span; COUNT]> {
        let mut spans = [Span::default(); COUNT];
        for (key, value) in self.members.get(..self.count)? {
            let key = key.cut(self.text);
            for (span, name) in spans.iter_mut().zip(names) {
                if key == name.as_bytes() {
                    if !span.is_empty() {
                        return None;
                    }
                    *span = *value;
                }
            }
        }
        Some(spans)
    }

    #[inline]
    fn is(&self, key: Span, name: &str) -> bool {
        key.cut(self.text) == name.as_bytes()
    }
}

#[cold]
fn only_member<'a>(text: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, RepeatedMember> {
    let mut named = read::Members::of(text).into_iter().flatten().filter(|(key, _)| key.is(name)).map(|(_, value)| value);
    let one = named.next();
    if named.next().is_some() { Err(RepeatedMember) } else { Ok(one) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn indexed_members_are_those_that_a_second_pass_finds() {
        let member = |index: usize| alloc::format!(r#" "k{}" : [{index},"\"}}ä"]"#, index % 4);
        for count in 0..=2 * INDEXED_MEMBERS {
            for escaped in 0..=count {
                let mut all: Vec<String> = (0..count).map(member).collect();
                if let Some(one) = all.get_mut(escaped) {
                    *one = one.replace('k', r"\u006b");
                }
                let text = alloc::format!(r#"{{"params": {{{}}} }}"#, all.join(" ,"));
                let mut members = Members::at(Cursor::new(text.as_bytes(), 3)).unwrap();
                members.next_key().unwrap().unwrap();
                let mut indexed = IndexedObject::default();
                members.index(&mut indexed).unwrap();
                assert!(members.next_key().unwrap().is_none());
                let (mut seen, mut walked) = (Vec::new(), Vec::new());
                indexed.for_each(|name, value| seen.push((name.to_vec(), value)));
                for_each_member(indexed.text(), |name, value| walked.push((Vec::from(name), value)));
                assert_eq!((seen.len(), &seen), (count, &walked), "{text}");
                for name in ["k0", "k3", "k", ""] {
                    assert_eq!(indexed.member(name), super::member(indexed.text(), name), "{text}");
                    let repeats = walked.iter().filter(|(key, _)| key == name.as_bytes()).count() > 1;
                    assert_eq!(indexed.only(name), if repeats { Err(RepeatedMember) } else { Ok(indexed.member(name)) }, "{text}");
                }
            }
        }
    }
}
