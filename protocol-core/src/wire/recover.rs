//! Text that is no message: the requests that it was meant to answer, and the description of its fault.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::de::IgnoredAny;

use crate::error::{Unreadable, Violation};
use crate::json::Text;

/// The maximum number of requests that one frame answers.
const MAX_ANSWERED: usize = 64;
/// The maximum number of bytes of a frame that its description shows, around the fault.
const SHOWN: usize = 80;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A frame that is no message.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) frame: Unreadable,
    /// The ids of our requests that the frame was meant to answer. Any of them may be wrong, as in any response.
    pub(crate) answered: Vec<u64>,
}

/// Describes a frame that breaks `rule`. `depth` is the deepest nesting that is accepted.
#[cold]
#[inline(never)]
pub(super) fn recover(frame: &[u8], rule: Violation, depth: u8) -> Box<Recovered> {
    let position = match rule {
        Violation::NotJson => fault(frame),
        Violation::TooDeep => first_below(frame, depth.into()),
        _ => 0,
    };
    let hint = if rule == Violation::NotJson { hint(frame) } else { None };
    let excerpt = Text::from(excerpt(frame, position));
    Box::new(Recovered { frame: Unreadable { rule, position, excerpt, hint }, answered: answered(frame) })
}

/// Describes JSON that breaks `rule` as a whole.
#[cold]
#[inline(never)]
pub(crate) fn misshapen(text: &[u8], rule: Violation) -> Box<Unreadable> {
    Box::new(Unreadable { rule, position: 0, excerpt: Text::from(excerpt(text, 0)), hint: None })
}

/// Describes a response that answers no request. `why` is the fault of its id.
#[cold]
#[inline(never)]
pub(crate) fn astray(frame: &[u8], why: &'static str) -> Box<Unreadable> {
    Box::new(Unreadable { hint: Some(why), ..*misshapen(frame, Violation::UnknownResponse) })
}

/// The offset of the first byte that is not JSON, or not UTF-8.
fn fault(frame: &[u8]) -> usize {
    let of_text = core::str::from_utf8(frame).err().map(|error| error.valid_up_to());
    let of_json = serde_json::from_slice::<IgnoredAny>(frame).err().map(|error| {
        let before = error.line().saturating_sub(1);
        let lines = frame.split_inclusive(|byte| *byte == b'\n').take(before);
        lines.map(<[u8]>::len).fold(error.column().saturating_sub(1), usize::saturating_add)
    });
    of_text.into_iter().chain(of_json).min().unwrap_or(frame.len())
}

/// The offset of the first container that is nested deeper than `max`.
fn first_below(frame: &[u8], max: usize) -> usize {
    let is_too_deep = |(_, token): &(usize, Token<'_>)| matches!(token, Token::Open { depth, .. } if *depth > max);
    Tokens::of(frame).find(is_too_deep).map_or(frame.len(), |(at, _)| at)
}

/// The bytes of a frame around a position, with escapes for bytes that are not text and for control characters, and with `..` at each end
/// where the frame goes on.
pub(crate) fn excerpt(frame: &[u8], position: usize) -> String {
    // No character is cut in two.
    let whole = |at: usize| {
        let is_middle = |at: &usize| frame.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
        (at.saturating_sub(3)..=at).rev().find(|at| !is_middle(at)).unwrap_or(at)
    };
    let start = whole(position.saturating_sub(SHOWN / 2).min(frame.len().saturating_sub(SHOWN)));
    let end = whole(start.saturating_add(SHOWN).min(frame.len()));
    let mut shown = String::from(if start > 0 { ".." } else { "" });
    for chunk in frame.get(start..end).unwrap_or_default().utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() { shown.extend(character.escape_default()) } else { shown.push(character) }
        }
        shown.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    shown.push_str(if end < frame.len() { ".." } else { "" });
    shown
}

fn hint(frame: &[u8]) -> Option<&'static str> {
    const HEADER: &[u8] = b"content-length:";
    let is_header = frame.get(..HEADER.len()).is_some_and(|start| start.eq_ignore_ascii_case(HEADER));
    let is_object = matches!(frame.trim_ascii_start().first(), Some(b'{' | b'['));
    let has = |word: &[u8]| frame.windows(word.len()).any(|part| part == word);
    // Two bytes for a character, in either order.
    let is_wide = matches!(frame, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=0x7f, ..] | [1..=0x7f, 0, ..]);
    match () {
        () if is_wide => Some("it looks like UTF-16; here text is UTF-8"),
        () if is_header => Some("the peer writes headers before its messages; here each message is one line"),
        () if frame.starts_with(BYTE_ORDER_MARK) => Some("it begins with a byte order mark"),
        () if !is_object && has(br#"{"jsonrpc""#) => Some("there is other text before the message"),
        () if is_object && has(b"content-length:") || has(b"Content-Length:") => {
            Some("a header follows the message on the same line")
        }
        () if is_object && matches!(frame.trim_ascii_end().last(), Some(b'{' | b'[' | b',')) => {
            Some("a message is one line, and this one goes on on the next")
        }
        () => match after_value(frame)?.first()? {
            b'{' | b'[' if is_object => Some("another message follows on the same line"),
            _ if is_object => Some("other text follows the message on the same line"),
            _ => None,
        },
    }
}

/// The text after a whole value, without the white space before it.
fn after_value(frame: &[u8]) -> Option<&[u8]> {
    let mut values = serde_json::Deserializer::from_slice(frame).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(frame.get(values.byte_offset()..)?.trim_ascii_start())
}

/// A part of JSON text, or of text that was meant to be JSON.
enum Token<'a> {
    /// The beginning of a container. `depth` counts this container.
    Open { depth: usize, is_object: bool },
    /// The end of a container of this depth.
    Close { depth: usize },
    /// A name of a member in an object of this depth, and the text after its colon.
    Name { depth: usize, name: &'a [u8], rest: &'a [u8] },
}

/// The tokens of text, whatever stands between them.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The text before a colon, if it was a string.
    name: Option<&'a [u8]>,
}

impl<'a> Tokens<'a> {
    const fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0, name: None }
    }

    /// Takes the rest of a string after its opening quote.
    fn string(&mut self) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut is_escaped = false;
        let end = rest.iter().position(|byte| {
            let is_end = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            is_end
        });
        let length = end.unwrap_or(rest.len());
        self.at = self.at.saturating_add(length).saturating_add(1);
        rest.get(..length).unwrap_or_default()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (usize, Token<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let byte = *self.text.get(at)?;
            self.at = at.saturating_add(1);
            match byte {
                b'"' => self.name = Some(self.string()),
                b'{' | b'[' => {
                    self.depth = self.depth.saturating_add(1);
                    return Some((at, Token::Open { depth: self.depth, is_object: byte == b'{' }));
                }
                b'}' | b']' => {
                    let depth = self.depth;
                    self.depth = depth.saturating_sub(1);
                    return Some((at, Token::Close { depth }));
                }
                b':' => {
                    if let Some(name) = self.name.take() {
                        let rest = self.text.get(self.at..).unwrap_or_default();
                        return Some((at, Token::Name { depth: self.depth, name, rest }));
                    }
                }
                b',' => self.name = None,
                _ => {}
            }
        }
    }
}

/// The members of one object that decide if it was meant as a response.
#[derive(Default)]
struct Found {
    id: Option<u64>,
    /// It has a method, or two ids.
    is_other: bool,
    has_body: bool,
    has_version: bool,
}

impl Found {
    fn note(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"id" => {
                self.is_other |= self.id.is_some();
                self.id = number(value);
            }
            b"method" => self.is_other = true,
            b"result" | b"error" => self.has_body = true,
            b"jsonrpc" => self.has_version = true,
            _ => {}
        }
    }

    /// The id of the request that the object was meant to answer. An object whose end is missing may have been meant as a request, unless
    /// it has a result or an error.
    fn answered(&self, is_whole: bool) -> Option<u64> {
        let is_response = self.has_body || (is_whole && self.has_version);
        self.id.filter(|_| is_response && !self.is_other)
    }
}

/// The number at the beginning of a value. `None` if other characters follow, or if it may have been cut.
fn number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let length = value.iter().position(|byte| !byte.is_ascii_digit())?;
    let is_end = matches!(value.get(length), Some(b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n'));
    let digits = value.get(..length).filter(|_| is_end)?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// The ids of our requests that text was meant to answer, if it begins like a message or a batch. Other text, such as a line of a log, may
/// quote a message.
fn answered(frame: &[u8]) -> Vec<u64> {
    let text = frame.strip_prefix(BYTE_ORDER_MARK).unwrap_or(frame);
    let outermost = match text.trim_ascii_start().first() {
        Some(b'{') => 1,
        Some(b'[') => 2,
        _ => return Vec::new(),
    };
    let (mut all, mut found) = (Vec::new(), Found::default());
    for (_, token) in Tokens::of(text) {
        match token {
            Token::Open { depth, is_object: true } if depth == outermost => found = Found::default(),
            Token::Name { depth, name, rest } if depth == outermost => found.note(name, rest),
            Token::Close { depth } if depth == outermost => all.extend(core::mem::take(&mut found).answered(true)),
            _ => {}
        }
        if all.len() >= MAX_ANSWERED {
            return all;
        }
    }
    all.extend(found.answered(false));
    all
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    /// Seen in the field: results with `NaN`, with a byte of another encoding, or nested 129 deep; two messages in one line, and a message
    /// that a line break cuts in two.
    #[test]
    fn the_request_that_unreadable_text_answers_is_found_wherever_its_id_stands() {
        let deep = format!(r#"{{"jsonrpc":"2.0","result":{}{},"id":7}}"#, "[".repeat(129), "]".repeat(129));
        for (text, answered) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}"#, &[7][..]),
            (r#"{"result":{"n":NaN, "id":8},"id" : 7 ,"jsonrpc":"2.0"}"#, &[7]),
            (r#"{"jsonrpc":"2.0","error":{'code':1},"id":7}"#, &[7]),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"text":"a \"b"#, &[7]),
            (r#"{"jsonrpc":"2.0","id":7,"result":"#, &[7]),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}}"#, &[7]),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}{"jsonrpc":"2.0","id":8,"result":{}}"#, &[7, 8]),
            (r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#, &[7]),
            (r#"[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":7,"error":1}]"#, &[7]),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}", &[7]),
            (r#"{"jsonrpc":"2.0","id":7,"result":{},"result":{}}"#, &[7]),
            // Some serialisers leave out a result that is null.
            (r#"{"jsonrpc":"2.0","id":7}"#, &[7]),
            (&deep, &[7]),
            // It may be a request, or a line of a log.
            (r#"{"jsonrpc":"2.0","id":7"#, &[]),
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}"#, &[]),
            (r#"{"id":7,"level":"info"}"#, &[]),
            (r#"sent {"jsonrpc":"2.0","id":7,"result":{}}"#, &[]),
            // The id is no number of ours, was cut, or is given twice.
            (r#"{"jsonrpc":"2.0","result":{},"id":7"#, &[]),
            (r#"{"jsonrpc":"2.0","id":7.5,"result":NaN}"#, &[]),
            (r#"{"jsonrpc":"2.0","id":"7","result":NaN}"#, &[]),
            (r#"{"jsonrpc":"2.0","id":7,"id":8,"result":{}}"#, &[]),
            (r#"{"jsonrpc":"2.0","result":{"id":7}}}"#, &[]),
            ("", &[]),
            ("}]", &[]),
        ] {
            assert_eq!(super::answered(text.as_bytes()), answered, "{text}");
        }
        let many = r#"{"jsonrpc":"2.0","id":7}"#.repeat(1000);
        assert_eq!(super::answered(many.as_bytes()).len(), MAX_ANSWERED);
    }

    /// Seen in the field: a banner or a log before the first message, a server that frames its messages as language servers do, JSON over
    /// several lines, and UTF-16.
    #[test]
    fn unreadable_text_is_described_by_its_fault_the_position_and_the_bytes_around_it() {
        let shown = |frame: &[u8], rule| recover(frame, rule, 2).frame.to_string();
        let not_json = |frame: &[u8]| shown(frame, Violation::NotJson);
        assert_eq!(not_json(br#"{"n":NaN}"#), r#"a frame that is not JSON, at byte 5: {"n":NaN}"#);
        assert_eq!(not_json(b"{\"n\":\"caf\xe9\"}"), r#"a frame that is not JSON, at byte 9: {"n":"caf\xe9"}"#);
        assert_eq!(not_json(b"{\n\"a\":1,\n}"), r#"a frame that is not JSON, at byte 9: {\n"a":1,\n}"#);
        assert_eq!(shown(b"[[[[1]]]]", Violation::TooDeep), "a frame nested too deep, at byte 2: [[[[1]]]]");
        assert!(shown(b"[{}]", Violation::BatchUnsupported).ends_with("without batches: [{}]"));
        for (text, hint) in [
            ("Content-Length: 52", "(the peer writes headers before its messages; here each message is one line)"),
            (r#"ready {"jsonrpc":"2.0"}"#, "(there is other text before the message)"),
            ("\u{feff}{}", "(it begins with a byte order mark)"),
            (r#"{"id":1}Content-Length: 52"#, "(a header follows the message on the same line)"),
            (r#"{"id":1} <- sent"#, "at byte 9: {\"id\":1} <- sent (other text follows the message on the same line)"),
            (r#"{"id":1}{"id":2}"#, "(another message follows on the same line)"),
            (r#"{"id":1}}"#, "(other text follows the message on the same line)"),
            ("12 files", "at byte 3: 12 files"),
            ("{", "(a message is one line, and this one goes on on the next)"),
            (r#"{"id": 1,"#, "(a message is one line, and this one goes on on the next)"),
            ("{\0\"\0", "(it looks like UTF-16; here text is UTF-8)"),
            ("\0{\0\"", "(it looks like UTF-16; here text is UTF-8)"),
        ] {
            assert!(not_json(text.as_bytes()).ends_with(hint), "{}", not_json(text.as_bytes()));
        }
        assert!(not_json(b"\xff\xfe{\0").ends_with("(it looks like UTF-16; here text is UTF-8)"));
        let long = "é".repeat(1000);
        assert_eq!(not_json(long.as_bytes()), format!("a frame that is not JSON, at byte 0: {}..", "é".repeat(40)));
        assert!(!not_json(format!("x{long}").as_bytes()).contains('\\'), "no character is cut in two");
        // Seen in the field: the fault stood behind the bytes that were shown.
        let [before, after] = ["1,".repeat(99), ",1".repeat(99)];
        let window = format!("a frame that is not JSON, at byte 199: ..{}NaN{}..", &before[158..], &after[..37]);
        assert_eq!(not_json(format!("[{before}NaN{after}]").as_bytes()), window);
        let end = format!("{}}}", &before[119..]);
        assert_eq!(not_json(format!("[{before}}}").as_bytes()), format!("a frame that is not JSON, at byte 199: ..{end}"));
    }
}
