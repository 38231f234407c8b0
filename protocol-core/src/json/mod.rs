//! JSON text, usually a slice of the frame that it arrived in.

pub(crate) mod base64;
pub(crate) mod cursor;
mod error;
mod object;
mod pretty;
pub mod read;
pub(crate) mod scan;
mod serialize;
pub mod write;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use bytes::Bytes;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use cursor::Cursor;
pub use error::JsonError;
use scan::{DEPTH, is_text};
use write::write_string;

/// Owned JSON text with valid syntax, usually a slice of the frame that it arrived in.
///
/// Cloning increments a reference count. A value may keep its whole frame alive; [`Json::detach`] copies the value. The text is checked for
/// syntax (RFC 8259) and nesting (at most 120; for a slice of a frame, the limit of the frame), and is otherwise left as it is, including
/// numbers such as `1e999`, escapes such as `"\ud800"` and repeated keys.
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

    /// Checks `text` and stores it without copying. White space around the value is dropped.
    ///
    /// # Errors
    /// [`JsonError`] if `text` is not exactly one JSON value, nested at most 120 deep. (A frame adds a few levels to its payload, and this
    /// crate reads frames that are nested at most 128 deep.)
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, JsonError> {
        let bytes = text.into();
        let value = if is_text(&bytes) { Cursor::new(&bytes, DEPTH).whole().ok() } else { None };
        value.map(|value| Self(bytes.slice_ref(value))).ok_or(JsonError::Syntax)
    }

    /// Serializes `value`.
    ///
    /// # Errors
    /// [`JsonError::Encode`] if `Serialize` fails, or for a map whose keys are not text, numbers or booleans, and [`JsonError::Syntax`] if
    /// the value is nested more than 120 deep.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        /// Enough for most values.
        const USUAL: usize = 128;
        let mut text = Vec::with_capacity(USUAL);
        serialize::write_value(&mut text, value).map(|()| Self::written(text))
    }

    /// Deserializes the text as a `T`, which may borrow from it.
    ///
    /// # Errors
    /// [`JsonError::Decode`] if the text is not the JSON of a `T`; the message names the line and the column.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, JsonError> {
        // Decoded as `str`, so that serde_json does not check the UTF-8 of each string.
        serde_json::from_str(self.as_str()).map_err(|error| JsonError::from_decoding(&error))
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
        // The default is used only if [`Json::written`] was called with bytes that are not UTF-8.
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

    /// The array of `items`. It is nested one deeper than its deepest item, which this method does not check.
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

    /// The text of a JSON string; a slice of this text if the string has no escapes. `None` if the value is not a string, or has an
    /// unpaired surrogate.
    #[must_use]
    pub fn as_text(&self) -> Option<Text> {
        self.text_of(self.as_bytes())
    }

    /// Like [`as_text`](Self::as_text), with U+FFFD for each unpaired surrogate.
    #[must_use]
    pub fn as_text_lossy(&self) -> Option<Text> {
        Frame::new(&self.0).text_lossy(self.as_bytes())
    }

    /// This value with U+FFFD for each unpaired surrogate in its strings and keys. `None` if there is none, so that nothing has to be mended.
    #[must_use]
    pub fn mended(&self) -> Option<Self> {
        read::mend(self.as_bytes()).map(Self::written)
    }

    /// The member `name`, unless it is `null`, which counts as absent.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<Self> {
        read::given(self.as_bytes(), name).map(|value| self.part(value))
    }

    /// The member `name`, if this is an object that has it; the last one if it is repeated.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Self> {
        read::member(self.as_bytes(), name).map(|value| self.part(value))
    }

    /// The elements, each a slice of this text, if this is an array. Otherwise the iterator is empty.
    pub fn elements(&self) -> impl Iterator<Item = Self> {
        read::elements(self.as_bytes()).into_iter().map(|value| self.part(value))
    }

    /// Returns the JSON text as [`Text`]; a JSON string keeps its quotes and escapes.
    #[must_use]
    pub fn into_text(self) -> Text {
        Text(self.0)
    }

    /// Copies the text, so that this value does not keep alive the frame that it arrived in.
    pub fn detach(&mut self) {
        self.0 = Bytes::copy_from_slice(&self.0);
    }

    /// Returns `text`, which must be a part of this value. If it is a small part of a large value, returns a copy, which does not keep the
    /// value alive.
    pub(crate) fn copy_if_small(&self, text: Text) -> Text {
        if Frame::new(&self.0).is_small_part(text.as_bytes().len()) { Text::from(text.as_str()) } else { text }
    }

    /// Owned JSON of `value`, which must be a slice of this text.
    pub(crate) fn part(&self, value: &[u8]) -> Self {
        Self(self.0.slice_ref(value))
    }

    /// The text of the JSON string `value`, which must be a slice of this text.
    pub(crate) fn text_of(&self, value: &[u8]) -> Option<Text> {
        Frame::new(&self.0).text(value)
    }

    /// Like [`text_of`](Self::text_of), with U+FFFD for each unpaired surrogate.
    pub(crate) fn lossy_text_of(&self, value: &[u8]) -> Option<Text> {
        Frame::new(&self.0).text_lossy(value)
    }

    /// Returns the part at `span`, which must be a value, without taking another reference to the bytes.
    pub(crate) fn into_part(self, span: cursor::Span) -> Self {
        use bytes::Buf;
        let Self(mut text) = self;
        let span = span.range();
        text.truncate(span.end);
        text.advance(span.start.min(text.len()));
        Self(text)
    }

    /// Stores text that is known to be one JSON value, nested at most 120 deep. Nothing is checked, and invalid text corrupts the frame
    /// that it is written into. Use [`Json::parse`] for text from outside, and [`write::Object::value`] to build an object.
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

/// Writes `value`. Parts that are nested more than 120 deep become `null`; [`Json::encode`] returns an error for such a value instead.
impl From<Value> for Json {
    fn from(mut value: Value) -> Self {
        limit_depth(&mut value, DEPTH);
        // `Display` writes compact JSON.
        Self::written(alloc::format!("{value}").into_bytes())
    }
}

/// Replaces parts that are nested more than `depth` deep by `null`.
fn limit_depth(value: &mut Value, depth: u8) {
    let Some(below) = depth.checked_sub(1) else {
        if value.is_array() || value.is_object() {
            *value = Value::Null;
        }
        return;
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| limit_depth(item, below)),
        Value::Object(members) => members.values_mut().for_each(|member| limit_depth(member, below)),
        _ => {}
    }
}

/// With serde_json, writes the exact text. Other formats get a struct with one private member.
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_str()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// With serde_json, copies the exact text, or returns an error if it is nested more than 120 deep. Other formats return an error.
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = alloc::boxed::Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(String::from(alloc::boxed::Box::<str>::from(raw))).map_err(D::Error::custom)
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

/// A frame that is being read, from which owned slices are made.
///
/// A payload that is a small part of a large frame is copied instead, since a slice would keep the whole frame alive.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a>(&'a Bytes);

impl<'a> Frame<'a> {
    /// The length of a frame in bytes, up to which every payload is a slice.
    const SMALL: usize = 4096;
    /// In a longer frame, a payload is a slice only if it is at least 1/`PART` as long as the frame.
    const PART: usize = 8;

    pub(crate) fn new(bytes: &'a Bytes) -> Self {
        Self(bytes)
    }

    /// The whole text of the frame.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Makes owned JSON of `value`, a scanned slice of the frame.
    pub(crate) fn json(self, value: &[u8]) -> Json {
        Json(self.slice(value))
    }

    /// Like [`json`](Self::json), but a slice is made only later, by [`Payload::cut`].
    pub(crate) fn payload(self, value: &[u8]) -> Payload {
        match self.place(value).filter(|_| !self.is_small_part(value.len())) {
            Some(span) => Payload::At(span),
            None => Payload::Own(self.json(value)),
        }
    }

    /// The range of `value`, which must be a slice of this very frame; `None` in a frame of 4 GiB or more.
    #[inline]
    pub(crate) fn place(self, value: &[u8]) -> Option<cursor::Span> {
        let from = value.as_ptr().addr().wrapping_sub(self.0.as_ptr().addr());
        debug_assert!(self.0.get(from..).is_some_and(|rest| rest.starts_with(value)), "a part of another frame");
        u32::try_from(self.0.len()).is_ok().then(|| cursor::Span::new(from, from.wrapping_add(value.len())))
    }

    /// The text of `value`, a JSON string in the frame: a slice of the frame, or a copy if the string has escapes or is a small part of a
    /// large frame. `None` if `value` is not a string, or has an unpaired surrogate.
    pub(crate) fn text(self, value: &[u8]) -> Option<Text> {
        match read::string_bytes(value)? {
            Cow::Borrowed(plain) => Some(Text(self.slice(plain))),
            Cow::Owned(text) => Some(Text(text.into())),
        }
    }

    /// Like [`text`](Self::text), with U+FFFD for each unpaired surrogate.
    pub(crate) fn text_lossy(self, value: &[u8]) -> Option<Text> {
        self.text(value).or_else(|| Some(read::string_lossy(value)?.into_owned().into()))
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
/// The payload is cut out of the frame once nothing else needs the frame, so that the payload takes over the only reference to its bytes.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A range of the frame, not cut out yet.
    At(cursor::Span),
    /// A value that is ready: usually a copy; also a constant, the parameters of a custom request, or a slice of a frame of 4 GiB or more.
    Own(Json),
}

impl Payload {
    /// Cuts the payload out of `frame`, which must be the frame that was read.
    pub(crate) fn cut(self, frame: Bytes) -> Json {
        match self {
            Self::At(span) => Json(frame).into_part(span),
            Self::Own(json) => json,
        }
    }
}

/// Owned text, usually a slice of the frame that it arrived in. Cloning increments a reference count.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

impl Text {
    /// Text that is known at compile time, made without an allocation.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The bytes came from a `str`, or were checked with the frame.
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
    fn digits_read_in_groups_give_the_same_number_as_one_by_one() {
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
    fn serde_reads_and_writes_the_exact_text_of_a_part_and_limits_its_nesting() {
        let text = r#"{"part":{"n": 1e999,"s":"\ud800"},"rest":[]}"#;
        #[derive(Serialize, Deserialize)]
        struct Whole {
            part: Json,
            rest: Json,
        }
        let whole: Whole = serde_json::from_str(text).unwrap();
        assert_eq!((whole.part.as_str(), whole.rest.as_str()), (r#"{"n": 1e999,"s":"\ud800"}"#, "[]"));
        assert_eq!(serde_json::to_string(&whole).unwrap(), text);
        assert!(Json::encode(&whole).is_ok_and(|json| json.as_str() == text));

        let nested = |depth: usize| alloc::format!(r#"{{"part":{}{},"rest":0}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(serde_json::from_str::<Whole>(&nested(120)).is_ok());
        let error = serde_json::from_str::<Whole>(&nested(121)).err().map(|error| alloc::format!("{error}"));
        assert!(error.is_some_and(|error| error.starts_with("not a JSON value nested at most 120 deep")));
    }

    #[test]
    fn parts_of_a_value_that_are_nested_too_deep_become_null() {
        let nested = |depth: usize, inner: Value| (0..depth).fold(inner, |inner, _| serde_json::json!([inner]));
        let written = |depth, inner| Json::from(nested(depth, inner));
        assert_eq!(Json::from(serde_json::json!({ "a": [1.5, "x", null, true] })).as_str(), r#"{"a":[1.5,"x",null,true]}"#);
        assert_eq!(written(119, serde_json::json!({ "a": 1 })), Json::encode(&nested(119, serde_json::json!({ "a": 1 }))).unwrap());
        assert_eq!(written(120, Value::from(1)), Json::encode(&nested(120, Value::from(1))).unwrap());
        for too_deep in [serde_json::json!({ "a": 1 }), serde_json::json!([])] {
            assert_eq!(written(120, too_deep), written(120, Value::Null));
        }
    }

    #[test]
    fn a_payload_is_a_slice_of_its_frame_and_the_only_reference_to_it() {
        let frame = Bytes::from(Vec::from(*br#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#));
        let memory = frame.as_ptr_range();
        let payload = payload(&frame, r#"{"a":1}"#);
        let json = payload.cut(frame);
        assert_eq!(json.as_str(), r#"{"a":1}"#);
        assert!(memory.contains(&json.as_bytes().as_ptr()) && json.0.is_unique());
    }

    #[test]
    fn a_payload_that_is_a_small_part_of_a_large_frame_is_a_copy() {
        let frame = Bytes::from(alloc::format!(r#"{{"x":"{}","result":{{"a":1}}}}"#, "x".repeat(Frame::SMALL)));
        let memory = frame.as_ptr_range();
        let json = payload(&frame, r#"{"a":1}"#).cut(frame);
        assert_eq!(json.as_str(), r#"{"a":1}"#);
        assert!(!memory.contains(&json.as_bytes().as_ptr()));
    }

    #[test]
    fn a_part_of_a_large_frame_is_a_slice_if_it_is_at_least_an_eighth() {
        let large = Bytes::from(alloc::vec![b'x'; 2 * Frame::SMALL]);
        let is_slice = |frame: &Bytes, length| frame.as_ptr_range().contains(&Frame::new(frame).slice(&frame[..length]).as_ptr());
        assert!(is_slice(&large, large.len() / Frame::PART) && !is_slice(&large, large.len() / Frame::PART - 1));
        assert!(is_slice(&large.slice(..Frame::SMALL), 1), "any part of a small frame is a slice");
    }
}
