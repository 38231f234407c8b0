//! Payloads: JSON and text that are slices of the frame they came in.

mod pretty;
pub mod read;
pub(crate) mod scan;
pub mod write;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use scan::{Cursor, is_text};
use write::write_string;

/// The deepest nesting of a payload of ours, so that the frame around it stays readable.
const DEPTH: u8 = 120;

/// Owned, syntax-checked JSON text, usually a slice of the frame it came in.
///
/// Cloning bumps a reference count. A value that is kept for long may keep its whole frame alive; [`Json::detach`] copies it out. The
/// text is checked for syntax (RFC 8259) and for depth (120) and otherwise left as it is: number lexemes such as `1e999`, escapes such as
/// `"\ud800"` and repeated keys inside pass through.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// `null`.
    #[must_use]
    pub const fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// Checks `text` and takes it over without copying. White space around the value is left out.
    ///
    /// # Errors
    /// [`JsonError`] if it is not exactly one JSON value, nested at most 120 deep. A frame nests it a few levels deeper, and peers such
    /// as this crate read 128.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, JsonError> {
        let bytes = text.into();
        let value = if is_text(&bytes) { Cursor::new(&bytes, DEPTH).whole().ok() } else { None };
        value.map(|value| Self(bytes.slice_ref(value))).ok_or(JsonError::Syntax)
    }

    /// Writes `value` as JSON.
    ///
    /// # Errors
    /// [`JsonError::Encode`] if the value's own `Serialize` fails (a map with keys that are not text, for one), and
    /// [`JsonError::Syntax`] if it is nested more than 120 deep.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        match serde_json::to_vec(value) {
            Ok(text) => check_depth(&text).map(|()| Self::written(text)),
            Err(error) => Err(JsonError::unwritten(&error)),
        }
    }

    /// Reads the text as a `T`, which may borrow from it.
    ///
    /// # Errors
    /// [`JsonError::Decode`] if the text is not the JSON of a `T`; the message names the line and the column.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, JsonError> {
        // Decoded as `str`, so that the UTF-8 of its strings is not checked again.
        serde_json::from_str(self.as_str()).map_err(|error| JsonError::Decode(describe(&error)))
    }

    /// The JSON string of `text`.
    #[must_use]
    pub fn string(text: &str) -> Self {
        let mut out = Vec::with_capacity(text.len().saturating_add(2));
        write_string(&mut out, text);
        Self(out.into())
    }

    /// The exact text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked when the value was made, and the bytes do not change; an empty text would fail every later parse.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The exact text, as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns `true` if the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// The array of `items`.
    #[must_use]
    pub fn array(items: impl Iterator<Item = Self>) -> Self {
        let mut out = Vec::from(*b"[");
        for item in items {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(item.as_bytes());
        }
        out.push(b']');
        Self::written(out)
    }

    /// Returns `true` if the value is an array.
    #[must_use]
    pub fn is_array(&self) -> bool {
        self.0.first() == Some(&b'[')
    }

    /// The text of a string. `None` for another value, and for a string with half a surrogate pair.
    #[must_use]
    pub fn as_text(&self) -> Option<Text> {
        read::string(self.as_bytes()).map(|text| Text::from(&*text))
    }

    /// The member `name`, if this is an object that has it; the last one if it is repeated.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Self> {
        read::member(self.as_bytes(), name).map(|value| self.part(value))
    }

    /// The elements, if this is an array; none otherwise. Each is a slice of this text.
    pub fn elements(&self) -> impl Iterator<Item = Self> {
        read::elements(self.as_bytes()).into_iter().map(|value| self.part(value))
    }

    /// Copies the text out of the frame it came in, so that keeping it does not keep the frame.
    pub fn detach(&mut self) {
        self.0 = Bytes::copy_from_slice(&self.0);
    }

    /// The value at `value`, which must be a slice of this text.
    pub(crate) fn part(&self, value: &[u8]) -> Self {
        Self(self.0.slice_ref(value))
    }

    /// Replaces the text by its slice at `place`, which must be a value.
    pub(crate) fn into_part(self, place: scan::Span) -> Self {
        use bytes::Buf;
        let Self(mut text) = self;
        let place = place.range();
        text.truncate(place.end);
        text.advance(place.start.min(text.len()));
        Self(text)
    }

    /// Takes over text that is known to be one JSON value, nested at most 120 deep, because the caller has written it. Nothing is
    /// checked: other text changes the meaning of the frame that it is written into, so text from outside must go through
    /// [`Json::parse`]. [`write::Object::value`] writes JSON that needs no check.
    #[must_use]
    pub fn written(text: Vec<u8>) -> Self {
        Self(text.into())
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({})", self.as_str())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason why a text or a value is not the JSON that was wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not exactly one JSON value, or nested more than 120 deep.
    #[error("not a JSON value nested at most 120 deep")]
    Syntax,
    /// JSON, but not of the wanted shape.
    #[error("unexpected JSON: {0}")]
    Decode(String),
    /// A value that has no JSON.
    #[error("cannot be written as JSON: {0}")]
    Encode(String),
}

impl JsonError {
    /// The error of serde_json in writing a value.
    pub(crate) fn unwritten(error: &serde_json::Error) -> Self {
        Self::Encode(describe(error))
    }
}

/// Checks the depth of text that serde_json wrote; its syntax is right.
pub(crate) fn check_depth(written: &[u8]) -> Result<(), JsonError> {
    // Few bytes or few brackets are never deep.
    let brackets = || written.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    let is_flat = written.len() <= usize::from(DEPTH) || brackets() <= usize::from(DEPTH);
    let is_json = || Cursor::new(written, DEPTH).whole().is_ok();
    if is_flat || is_json() { Ok(()) } else { Err(JsonError::Syntax) }
}

fn describe(error: &serde_json::Error) -> String {
    use alloc::string::ToString;
    error.to_string()
}

/// A frame being taken apart, as the source of owned slices.
///
/// A payload that is a small part of a large frame is copied out, since a slice would keep the whole frame alive.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a>(&'a Bytes);

impl<'a> Frame<'a> {
    /// Frames up to this size are kept by any slice of them.
    const SMALL: usize = 4096;
    /// Of a larger frame, only a slice of at least this part keeps it.
    const PART: usize = 8;

    pub(crate) fn new(bytes: &'a Bytes) -> Self {
        Self(bytes)
    }

    /// `value` must be a part of the frame that passed a scan.
    pub(crate) fn json(self, value: &[u8]) -> Json {
        Json(self.slice(value))
    }

    /// The same, to be cut out of the frame after reading. `value` must be a slice of this very frame, which is not checked again.
    pub(crate) fn payload(self, value: &[u8]) -> Payload {
        let from = value.as_ptr().addr().wrapping_sub(self.0.as_ptr().addr());
        debug_assert!(self.0.get(from..).is_some_and(|rest| rest.starts_with(value)), "a part of another frame");
        if u32::try_from(self.0.len()).is_ok() && !self.is_small_part(value.len()) {
            Payload::At(scan::Span::new(from, from.wrapping_add(value.len())))
        } else {
            Payload::Own(self.json(value))
        }
    }

    /// The text of a JSON string in the frame; a slice of it where nothing is escaped.
    pub(crate) fn text(self, value: &[u8]) -> Option<Text> {
        match read::string_bytes(value)? {
            Cow::Borrowed(plain) => Some(Text(self.slice(plain))),
            Cow::Owned(text) => Some(Text(text.into())),
        }
    }

    fn slice(self, part: &[u8]) -> Bytes {
        if self.is_small_part(part.len()) { Bytes::copy_from_slice(part) } else { self.0.slice_ref(part) }
    }

    fn is_small_part(self, length: usize) -> bool {
        self.0.len() > Self::SMALL && length.saturating_mul(Self::PART) < self.0.len()
    }
}

/// The payload of a frame that is being read.
///
/// The reader of a frame gives it up for the payload, which so needs no second handle of the same bytes.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A range of the frame.
    At(scan::Span),
    /// A value of its own.
    Own(Json),
}

impl Payload {
    /// Cuts the payload out of `frame`, which must be the one that was read.
    pub(crate) fn cut(self, frame: Bytes) -> Json {
        match self {
            Self::At(place) => Json(frame).into_part(place),
            Self::Own(json) => json,
        }
    }
}

/// Owned text, usually a slice of the frame it came in. Cloning bumps a reference count.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// Text with a static lifetime: no allocation.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Made from `str`, or checked to be UTF-8 with the frame.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text, as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into_bytes().into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::read::integer;
    use super::*;

    fn payload(frame: &Bytes, value: &'static str) -> Payload {
        let from = frame.windows(value.len()).position(|part| part == value.as_bytes()).unwrap();
        Frame::new(frame).payload(&frame[from..from + value.len()])
    }

    #[test]
    fn digits_are_read_at_once_as_they_are_one_by_one() {
        let one_by_one = |text: &[u8]| core::str::from_utf8(text).ok()?.parse::<u64>().ok();
        let digits = *b"98765432109876543210";
        for length in 0..=digits.len() {
            let mut text = digits[digits.len() - length..].to_vec();
            assert_eq!(integer::<u64>(&text), one_by_one(&text), "{text:?}");
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let before = core::mem::replace(&mut text[at], byte);
                    assert_eq!(integer::<u64>(&text), one_by_one(&text), "{text:?}");
                    text[at] = before;
                }
            }
        }
    }

    #[test]
    fn a_payload_is_the_frame_itself_and_no_second_handle_of_it() {
        let frame = Bytes::from(Vec::from(*br#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#));
        let memory = frame.as_ptr_range();
        let payload = payload(&frame, r#"{"a":1}"#);
        let json = payload.cut(frame);
        assert_eq!(json.as_str(), r#"{"a":1}"#);
        assert!(memory.contains(&json.as_bytes().as_ptr()) && json.0.is_unique());
    }

    #[test]
    fn a_payload_that_is_a_small_part_of_a_large_frame_does_not_keep_it() {
        let frame = Bytes::from(alloc::format!(r#"{{"x":"{}","result":{{"a":1}}}}"#, "x".repeat(Frame::SMALL)));
        let memory = frame.as_ptr_range();
        let json = payload(&frame, r#"{"a":1}"#).cut(frame);
        assert_eq!(json.as_str(), r#"{"a":1}"#);
        assert!(!memory.contains(&json.as_bytes().as_ptr()));
    }
}
