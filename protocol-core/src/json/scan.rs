//! One pass over JSON text, which checks its syntax, bounds its nesting and finds members.
//!
//! The grammar is RFC 8259. Nothing recurses: each open container is one bit of a `u128`, which is why nesting is limited to 128. The input
//! must be UTF-8, which [`is_text`] checks.

/// The maximum nesting of a scan.
pub(crate) const MAX_DEPTH: u8 = 128;

/// The maximum nesting of a payload of ours. It is lower than the maximum nesting of a frame, since a frame nests its payload further.
pub(super) const DEPTH: u8 = 120;

/// The reason why text was rejected. The error is as wide as an offset, so that a `Result` of the two is passed in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum ScanError {
    Syntax,
    TooDeep,
}

/// The kind of a value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{..}`.
    Object,
    /// `[..]`.
    Array,
    /// `".."`.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

impl Kind {
    /// The kind of the value that `text` begins with. `text` must have passed a scan.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        match text.first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') => Self::Null,
            _ => Self::Number,
        }
    }
}

/// The offset after one byte. It never wraps, since no text reaches the end of the address space.
#[inline]
pub(super) const fn next(at: usize) -> usize {
    at.wrapping_add(1)
}

/// The byte at an offset. After the end it is 0, which never occurs in JSON.
#[inline]
pub(super) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or_default()
}

#[inline]
pub(super) fn skip_space(text: &[u8], at: usize) -> usize {
    // Nearly all JSON is written without white space.
    if byte(text, at) > b' ' { at } else { skip_blanks(text, at) }
}

#[cold]
#[inline(never)]
fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while matches!(byte(text, at), b' ' | b'\t' | b'\n' | b'\r') {
        at = next(at);
    }
    at
}

/// Returns the end of the value at `at`, in which containers may be nested `depth` deep.
#[inline]
pub(super) fn skip_value(text: &[u8], at: usize, depth: u8) -> Result<usize, ScanError> {
    match byte(text, at) {
        b'{' | b'[' => skip_container(text, at, depth),
        b'"' => skip_string(text, at),
        b'-' | b'0'..=b'9' => skip_number(text, at),
        _ => skip_literal(text, at),
    }
}

/// Returns the end of the object or array at `at`, which may be nested `max` deep.
fn skip_container(text: &[u8], mut at: usize, max: u8) -> Result<usize, ScanError> {
    // One bit for each open container, the innermost lowest: 1 for an object, 0 for an array.
    let mut open: u128 = 0;
    let mut depth: u8 = 0;
    loop {
        match byte(text, at) {
            bracket @ (b'{' | b'[') => {
                if depth >= max {
                    return Err(ScanError::TooDeep);
                }
                let object = bracket == b'{';
                at = skip_space(text, next(at));
                if byte(text, at) != if object { b'}' } else { b']' } {
                    depth = depth.saturating_add(1);
                    open = (open << 1) | u128::from(object);
                    if object {
                        at = member_at(text, at)?.value;
                    }
                    continue;
                }
                at = next(at);
            }
            b'"' => at = skip_string(text, at)?,
            b'-' | b'0'..=b'9' => at = skip_number(text, at)?,
            _ => at = skip_literal(text, at)?,
        }
        // A value has ended: close the containers that end here, then continue with the next value.
        loop {
            if depth == 0 {
                return Ok(at);
            }
            let object = open & 1 == 1;
            at = skip_space(text, at);
            match byte(text, at) {
                b',' => {
                    at = skip_space(text, next(at));
                    if object {
                        at = member_at(text, at)?.value;
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

/// The offsets of a member of an object.
pub(super) struct Member {
    /// The offset of the opening quote of its key.
    pub(super) open: usize,
    /// The offset of the closing quote of its key.
    pub(super) close: usize,
    /// `true` if its key has escapes.
    pub(super) escaped: bool,
    /// The offset of its value.
    pub(super) value: usize,
}

/// Finds the key at `open`, the colon after the key, and the beginning of the value.
#[inline]
pub(super) fn member_at(text: &[u8], open: usize) -> Result<Member, ScanError> {
    if byte(text, open) != b'"' {
        return Err(ScanError::Syntax);
    }
    let plain = skip_plain(text, next(open));
    let escaped = byte(text, plain) != b'"';
    let close = if escaped { skip_escapes(text, plain)?.wrapping_sub(1) } else { plain };
    let colon = skip_space(text, next(close));
    if byte(text, colon) != b':' {
        return Err(ScanError::Syntax);
    }
    Ok(Member { open, close, escaped, value: skip_space(text, next(colon)) })
}

fn skip_literal(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let rest = text.get(at..).unwrap_or_default();
    let is_next = |word: &&str| rest.starts_with(word.as_bytes());
    let word = ["true", "false", "null"].into_iter().find(is_next).ok_or(ScanError::Syntax)?;
    Ok(at.wrapping_add(word.len()))
}

/// Returns the end of the string whose opening quote is at `at`.
#[inline]
fn skip_string(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let end = skip_plain(text, next(at));
    if byte(text, end) == b'"' { Ok(next(end)) } else { skip_escapes(text, end) }
}

/// Returns the end of a string whose first special byte (see [`skip_plain`]) is at `at`.
#[inline(never)]
fn skip_escapes(text: &[u8], mut at: usize) -> Result<usize, ScanError> {
    loop {
        let escape = match text.get(at..).unwrap_or_default() {
            [b'"', ..] => return Ok(next(at)),
            [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) => 6,
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            _ => return Err(ScanError::Syntax),
        };
        at = skip_plain(text, at.wrapping_add(escape));
    }
}

#[inline(never)]
fn skip_number(text: &[u8], mut at: usize) -> Result<usize, ScanError> {
    if byte(text, at) == b'-' {
        at = next(at);
    }
    at = if byte(text, at) == b'0' { next(at) } else { skip_digits(text, at)? };
    if byte(text, at) == b'.' {
        at = skip_digits(text, next(at))?;
    }
    if let b'e' | b'E' = byte(text, at) {
        at = next(at);
        if let b'+' | b'-' = byte(text, at) {
            at = next(at);
        }
        at = skip_digits(text, at)?;
    }
    Ok(at)
}

/// Returns the end of the digits at `start`, of which there must be at least one.
#[inline]
fn skip_digits(text: &[u8], start: usize) -> Result<usize, ScanError> {
    let mut at = start;
    // Nearly always one word is enough: few numbers have eight digits, and few are in the last eight bytes of the text.
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let marks = non_digits(u64::from_le_bytes(*word));
        at = at.wrapping_add(marks.trailing_zeros() as usize >> 3);
        if marks != 0 {
            return if at == start { Err(ScanError::Syntax) } else { Ok(at) };
        }
    }
    while byte(text, at).is_ascii_digit() {
        at = next(at);
    }
    if at == start { Err(ScanError::Syntax) } else { Ok(at) }
}

/// Marks the bytes that are not digits. The highest bit of a byte is its mark.
#[inline]
const fn non_digits(word: u64) -> u64 {
    above_nine(word ^ each(b'0'))
}

/// Marks the bytes that are greater than 9, by their highest bits: adding 0x76 to a byte from 10 to 127 sets that bit.
#[inline]
pub(super) const fn above_nine(word: u64) -> u64 {
    ((word & each(0x7f)).wrapping_add(each(0x7f - 9)) | word) & each(0x80)
}

/// A word of eight equal bytes.
#[inline]
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Returns the offset of the next special byte (a quote, a backslash or a control character), or of the end of the text. All other bytes
/// are *plain*. Eight bytes are checked at a time, since most bytes of a tool's output are plain.
#[inline(never)]
pub(super) fn skip_plain(text: &[u8], mut at: usize) -> usize {
    // Most keys and many strings are shorter than two words.
    for _ in 0..2 {
        let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) else { return skip_plain_tail(text, at) };
        let marks = specials(u64::from_le_bytes(*word));
        if marks != 0 {
            return first_marked(at, marks);
        }
        at = at.wrapping_add(8);
    }
    skip_plain_run(text, at)
}

/// Returns `true` if `bytes` are UTF-8. ASCII, the usual case, is checked in a fraction of the time that other text takes.
#[inline]
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    // The loop has no exit, so that the compiler vectorizes it.
    let (words, rest) = bytes.as_chunks();
    let of_words = words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word));
    let of_rest = rest.iter().fold(0, |all, byte| all | byte);
    (of_words & u64::from_ne_bytes([0x80; 8]) == 0 && of_rest.is_ascii()) || core::str::from_utf8(bytes).is_ok()
}

/// Returns `true` if `has` holds for any part of `text`. The parts are `LENGTH` bytes long, so that the compiler can vectorize `has`, and
/// each begins `overlap` bytes before the end of the previous one. The last part ends at the end of the text, and may overlap more. Text
/// shorter than `LENGTH` is one part.
#[inline]
pub(crate) fn any_part<const LENGTH: usize>(text: &[u8], overlap: usize, has: impl Fn(&[u8]) -> bool) -> bool {
    let Some(last) = text.last_chunk::<LENGTH>() else { return has(text) };
    let mut rest = text;
    while let Some(part) = rest.first_chunk::<LENGTH>() {
        if has(part) {
            return true;
        }
        rest = rest.get(LENGTH.saturating_sub(overlap)..).unwrap_or_default();
    }
    has(last)
}

/// [`skip_plain`] for more than two words of plain bytes. It is a function of its own, so that short text takes few instructions.
#[inline(never)]
fn skip_plain_run(text: &[u8], at: usize) -> usize {
    /// The number of words that are checked one by one, before larger blocks. Most lines of text end within these words, and the line feed,
    /// or the backslash of its escape, is special.
    const SOON: usize = 8;
    let (at, has_ended) = skip_plain_words(text, at, SOON);
    if has_ended {
        return at;
    }
    let (blocks, _) = text.get(at..).unwrap_or_default().as_chunks::<64>();
    let is_special = |byte: &u8| (*byte < b' ') | (*byte == b'"') | (*byte == b'\\');
    // The loop over a block has no exit, so that the compiler vectorizes it.
    let is_plain = |block: &&[u8; 64]| !block.iter().fold(false, |found, byte| found | is_special(byte));
    let at = at.wrapping_add(blocks.iter().take_while(is_plain).count() << 6);
    let (at, has_ended) = skip_plain_words(text, at, usize::MAX);
    if has_ended { at } else { skip_plain_tail(text, at) }
}

/// Skips at most `max` words of plain bytes. Also returns `true` if a special byte follows.
#[inline]
fn skip_plain_words(text: &[u8], mut at: usize, max: usize) -> (usize, bool) {
    let (words, _) = text.get(at..).unwrap_or_default().as_chunks();
    for word in words.iter().take(max) {
        let marks = specials(u64::from_le_bytes(*word));
        if marks != 0 {
            return (first_marked(at, marks), true);
        }
        at = at.wrapping_add(8);
    }
    (at, false)
}

/// [`skip_plain`] for the last bytes of the text, fewer than eight.
#[inline(never)]
fn skip_plain_tail(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let word = match text.last_chunk() {
        Some(eight) => {
            let before = 64_usize.wrapping_sub(rest.len() << 3);
            u64::from_le_bytes(*eight).checked_shr(before as u32).unwrap_or_default()
        }
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    // The bytes of `word` after the end of the text are 0, a control character.
    first_marked(at, specials(word))
}

/// Marks the special bytes, at which [`skip_plain`] stops. The lowest mark is right; marks above it may be wrong.
#[inline]
const fn specials(word: u64) -> u64 {
    // With its second bit flipped, a quote is 0x20, and control characters stay below 0x20: the subtraction makes all of them negative.
    let controls_and_quotes = (word ^ each(2)).wrapping_sub(each(0x21));
    // A backslash becomes 0, and the subtraction makes it negative.
    let backslashes = (word ^ each(b'\\')).wrapping_sub(each(1));
    (controls_and_quotes | backslashes) & !word & each(0x80)
}

/// The offset in the text of the byte with the lowest mark. The word of the marks begins at `at`.
#[inline]
const fn first_marked(at: usize, marks: u64) -> usize {
    at.wrapping_add(marks.trailing_zeros() as usize >> 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_end_at_the_first_other_byte_or_at_the_end_of_the_text() {
        for length in 1..20 {
            let digits = &b"12345678909876543210"[..length];
            assert_eq!(skip_digits(digits, 0), Ok(length));
            for other in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                for after in [0, 9] {
                    let text = [digits, &[other], &[b'7'; 9][..after]].concat();
                    assert_eq!(skip_digits(&text, 0), Ok(length), "{text:?}");
                    assert_eq!(skip_digits(&text, length), Err(ScanError::Syntax), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_character_that_is_not_ascii_is_checked_at_every_offset() {
        for length in 0..40_usize {
            let plain = alloc::vec![b'x'; length];
            assert!(is_text(&plain));
            for offset in 0..length {
                let mut broken = plain.clone();
                broken[offset] = 0xe9;
                assert!(!is_text(&broken), "{length} {offset}");
                let mut valid = plain.clone();
                valid.splice(offset..offset, "é".bytes());
                assert!(is_text(&valid), "{length} {offset}");
            }
        }
    }

    #[test]
    fn a_pattern_is_found_at_every_offset_of_a_text() {
        let has_ab = |text: &[u8]| any_part::<33>(text, 1, |part| part.windows(2).any(|pair| pair == b"ab"));
        for length in 0..150_usize {
            let mut text = b"ba".repeat(75);
            text.truncate(length);
            text.iter_mut().for_each(|byte| *byte = if *byte == b'a' { b'-' } else { *byte });
            assert!(!has_ab(&text));
            for offset in 1..length {
                let mut text = text.clone();
                text[offset - 1..=offset].copy_from_slice(b"ab");
                assert!(has_ab(&text), "{length} {offset}");
            }
        }
    }

    #[test]
    fn plain_bytes_are_skipped_up_to_the_first_special_byte_or_the_end() {
        for special in [b'"', b'\\', 0, b'\n', 0x1f] {
            for length in (0..25).chain(140..160) {
                for offset in 0..=length {
                    let mut text = [b' ', b'!', b'#', 0x7f, 0x80, 0xff, b'[', b']'].repeat(20);
                    text.truncate(length);
                    if let Some(byte) = text.get_mut(offset) {
                        *byte = special;
                    }
                    for from in 0..=offset {
                        assert_eq!(skip_plain(&text, from), offset, "{text:?} from {from}");
                    }
                    assert_eq!(skip_plain(&text, length + 3), length + 3);
                }
            }
        }
    }
}
