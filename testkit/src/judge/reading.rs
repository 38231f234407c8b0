//! The text of a frame as JSON, read with `serde_json`.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

/// A frame with its parsed JSON, for all checks.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) text: &'a str,
    pub(super) value: Value,
}

/// The result of reading a frame.
#[derive(Debug)]
pub(super) enum Reading<'a> {
    Json(Read<'a>),
    /// JSON that `serde_json` does not read as a [`Value`]: nested 128 deep or deeper, or with a number that is too large.
    Unread,
    /// Not JSON.
    Garbage,
}

/// Reads a frame.
pub(super) fn read(frame: &[u8]) -> Reading<'_> {
    let Ok(text) = std::str::from_utf8(frame) else { return Reading::Garbage };
    if let Ok(value) = serde_json::from_str(text).or_else(|_| serde_json::from_str(&mended(text))) {
        return Reading::Json(Read { text, value });
    }
    if serde_json::from_str::<&RawValue>(text).is_ok() { Reading::Unread } else { Reading::Garbage }
}

/// Doubles the backslash of each escape of half a surrogate pair that lacks its other half, so that the escape is read as its six
/// characters. Such an escape is valid JSON, but a `str` cannot contain half a pair.
fn mended(text: &str) -> Cow<'_, str> {
    let half = |at: usize| {
        let digits = text.get(at..at + 6).filter(|escape| escape.starts_with("\\u"))?.get(2..)?;
        u16::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
    };
    let (mut whole, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = text[at..].find('\\') {
        at += found;
        match (half(at), half(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..)) => at += 12,
            (Some(_), _) => {
                whole.push_str(&text[copied..at]);
                whole.push('\\');
                (copied, at) = (at, at + 6);
            }
            // The escaped character may be longer than a byte, if the text is not JSON.
            _ => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if copied == 0 && whole.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(whole + &text[copied..]) }
}

#[test]
fn half_a_surrogate_pair_is_read_as_its_escape_and_other_frames_as_unread_or_garbage() {
    let text = r#"{"a":"\ud800","b\udfff":"\ud83d\ude00 \\ud800"}"#;
    let Reading::Json(Read { value, .. }) = read(text.as_bytes()) else { panic!("it is JSON") };
    assert_eq!(value, serde_json::json!({"a": "\\ud800", "b\\udfff": "😀 \\ud800"}));
    assert!(matches!(read(b"1e999"), Reading::Unread));
    assert!(matches!(read(br#"{"a":"\ud80"}"#), Reading::Garbage));
    assert!(matches!(read("\\é".as_bytes()), Reading::Garbage));
    assert!(matches!(read(b"\xff"), Reading::Garbage));
}
