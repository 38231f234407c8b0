//! Writing objects member by member.

use alloc::vec::Vec;

use serde::Serialize;

use super::read::Key;
use super::serialize::write_value;
use super::write::{push_json, write_integer, write_number, write_string, write_text};
use super::{Json, JsonError, Text};

/// A writer of one object. Members are written in the order of the calls; a name that is written twice appears twice.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl Object<'_> {
    /// Appends an object; `members` writes its members.
    pub fn write(out: &mut Vec<u8>, members: impl FnOnce(&mut Object<'_>)) {
        out.push(b'{');
        let mut object = Object { out, empty: true };
        members(&mut object);
        object.out.push(b'}');
    }

    /// Appends the remaining members of an object, and closes the object. Its beginning, with at least one member, is in `out` already.
    pub(crate) fn finish(out: &mut Vec<u8>, members: impl FnOnce(&mut Object<'_>)) {
        members(&mut Object { out, empty: false });
        out.push(b'}');
    }

    /// Returns an object; `members` writes its members.
    #[must_use]
    pub fn value(members: impl FnOnce(&mut Object<'_>)) -> Json {
        let mut out = Vec::new();
        Self::write(&mut out, members);
        Json::written(out)
    }

    /// Writes the key of a member. Append its value, exactly one JSON value, to the returned buffer. `name` is written as it is, so it must
    /// need no escapes.
    #[inline]
    pub fn member(&mut self, name: &'static str) -> &mut Vec<u8> {
        /// Enough for the comma, the quotes, the colon and the name of every member of MCP.
        const MAX_BYTES: usize = 48;
        // The piece is built first and then appended in one call: for a constant name the compiler can compute the piece. For the first
        // member, it starts after the comma.
        let mut piece = [b','; MAX_BYTES];
        let (start, length) = (usize::from(core::mem::take(&mut self.empty)), name.len().saturating_add(4));
        if let Some([_, open, key @ .., close, colon]) = piece.get_mut(..length) {
            (*open, *close, *colon) = (b'"', b'"', b':');
            key.copy_from_slice(name.as_bytes());
            self.out.extend_from_slice(piece.get(start..length).unwrap_or_default());
        } else {
            self.write_long(start, name);
        }
        self.out
    }

    /// As [`Self::member`], for a name that is too long for the piece.
    #[cold]
    fn write_long(&mut self, start: usize, name: &str) {
        self.out.extend_from_slice(b",\"".get(start..).unwrap_or_default());
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// Writes the key of a member, whose name may need escapes. Append its value, exactly one JSON value, to the returned buffer.
    pub fn named(&mut self, name: &str) -> &mut Vec<u8> {
        if !core::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        write_string(self.out, name);
        self.out.push(b':');
        self.out
    }

    /// Adds an object; `members` writes its members.
    pub fn object(&mut self, name: &'static str, members: impl FnOnce(&mut Object<'_>)) {
        Object::write(self.member(name), members);
    }

    /// Adds members that are JSON text already, separated by commas. Has no effect if `members` is empty.
    pub(crate) fn append(&mut self, members: &[u8]) {
        if members.is_empty() {
            return;
        }
        if !core::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.extend_from_slice(members);
    }

    /// Adds an array. `item` is called for each of `items`, and appends it as one JSON value.
    pub fn array<T>(&mut self, name: &'static str, items: impl IntoIterator<Item = T>, item: impl Fn(&mut Vec<u8>, T)) {
        let out = self.member(name);
        out.push(b'[');
        let mut first = true;
        for each in items {
            if !core::mem::replace(&mut first, false) {
                out.push(b',');
            }
            item(out, each);
        }
        out.push(b']');
    }

    /// Adds a string.
    #[inline]
    pub fn string(&mut self, name: &'static str, text: &str) {
        write_string(self.member(name), text);
    }

    /// Adds a string.
    #[inline]
    pub fn text(&mut self, name: &'static str, text: &Text) {
        write_text(self.member(name), text.as_bytes());
    }

    /// Adds a string that needs no escape.
    #[inline]
    pub fn word(&mut self, name: &'static str, word: &'static str) {
        let out = self.member(name);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    /// Adds an integer. A number above `i64::MAX` is written as `i64::MAX`.
    #[inline]
    pub fn integer(&mut self, name: &'static str, number: u64) {
        write_integer(self.member(name), i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Adds a number, which must be finite.
    #[inline]
    pub fn number(&mut self, name: &'static str, number: f64) {
        write_number(self.member(name), number);
    }

    /// Adds `true` or `false`.
    #[inline]
    pub fn boolean(&mut self, name: &'static str, value: bool) {
        self.member(name).extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Adds JSON text. Line breaks between its tokens become spaces.
    #[inline]
    pub fn json(&mut self, name: &'static str, value: &Json) {
        push_json(self.member(name), value.as_bytes());
    }

    /// Serializes `value` and adds it.
    ///
    /// # Errors
    /// Those of [`Json::encode`]. The buffer then ends in the middle of a member and must be discarded.
    pub fn encode<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), JsonError> {
        write_value(self.member(name), value)
    }

    /// Adds a member of another object as it is written there. Line breaks between tokens become spaces.
    pub fn copy(&mut self, key: Key<'_>, value: &[u8]) {
        self.separate();
        self.out.extend_from_slice(key.quoted());
        self.out.push(b':');
        push_json(self.out, value);
    }

    fn separate(&mut self) {
        if !core::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
    }
}
