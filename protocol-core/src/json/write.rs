//! Writing JSON text into a buffer.

use alloc::vec::Vec;
use core::fmt;

pub use super::base64::base64;
pub use super::object::Object;
pub use super::pretty::pretty;
use super::scan::{self, any_part};
pub use super::serialize::write_value;

/// Appends JSON text. A line feed or carriage return, which in JSON can only be white space between tokens, becomes a space, so that the
/// frame stays one line.
pub fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    out.extend_from_slice(text);
    if may_have_line_break(text) {
        for byte in out.iter_mut().skip(start) {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

/// Returns `true` if `text` contains a control character, which in JSON is a line break or a tab.
fn may_have_line_break(text: &[u8]) -> bool {
    any_part::<32>(text, 0, |part| part.iter().fold(false, |found, byte| found | (*byte < b' ')))
}

/// Appends `text` as a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write_text(out, text.as_bytes());
}

/// An upper bound on the length of `text` as a JSON string.
#[inline]
pub(crate) fn text_size(text: &[u8]) -> usize {
    /// The length in bytes up to which six bytes are counted for each byte, since counting exactly would take longer than it saves.
    const SHORT: usize = 32;
    if text.len() <= SHORT { text.len().saturating_mul(6).saturating_add(2) } else { long_text_size(text) }
}

fn long_text_size(text: &[u8]) -> usize {
    // A quote, a backslash and a line feed, the most frequent control character, take two bytes; other control characters take up to six.
    let of_two = count_bytes(text, |byte| (byte == b'"') | (byte == b'\\') | (byte == b'\n'));
    let of_six = count_bytes(text, |byte| (byte < b' ') & (byte != b'\n'));
    [2, of_two, of_six.saturating_mul(5)].into_iter().fold(text.len(), usize::saturating_add)
}

/// Counts the bytes for which `is` holds.
#[inline]
fn count_bytes(text: &[u8], is: impl Fn(u8) -> bool) -> usize {
    // The pieces are so short that each count fits into a byte: the compiler vectorizes such a loop.
    let (pieces, rest) = text.as_chunks::<128>();
    let count = |piece: &[u8]| usize::from(piece.iter().fold(0_u8, |count, byte| count.wrapping_add(u8::from(is(*byte)))));
    pieces.iter().map(|piece| count(piece)).fold(count(rest), usize::saturating_add)
}

/// Appends `text`, which must be UTF-8, as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut from = 0;
    loop {
        let to = scan::skip_plain(text, from);
        out.extend_from_slice(text.get(from..to).unwrap_or_default());
        let Some(special) = text.get(to) else { break };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\x08' => out.extend_from_slice(b"\\b"),
            b'\x0c' => out.extend_from_slice(b"\\f"),
            other => {
                const HEX: [u8; 16] = *b"0123456789abcdef";
                let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(other >> 4), digit(other & 0xf)]);
            }
        }
        from = to.saturating_add(1);
    }
    out.push(b'"');
}

/// Appends `number`, which must be finite. Integers between -1e17 and 1e17 have no fraction and no exponent.
pub fn write_number(out: &mut Vec<u8>, number: f64) {
    /// Every whole number below this one is exact as an `f64`.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = number as i64;
    if number.abs() < EXACT && whole as f64 == number {
        return write_integer(out, whole);
    }
    let mut sink = Sink(out);
    // Writing to a Vec cannot fail.
    let _ = if (1e-6..1e17).contains(&number.abs()) {
        fmt::write(&mut sink, format_args!("{number}"))
    } else {
        fmt::write(&mut sink, format_args!("{number:e}"))
    };
}

/// Appends an integer.
pub fn write_integer(out: &mut Vec<u8>, number: i64) {
    /// The smallest number with more than eight digits. Nearly every number is smaller.
    const SHORT: u64 = 100_000_000;
    match u64::try_from(number) {
        Ok(number) if number < SHORT => write_short(out, number),
        _ => write_any(out, number),
    }
}

/// Appends an integer of at most eight digits. The digits are computed in one word: first two groups of four digits, then four groups of
/// two, then eight digits.
#[inline]
fn write_short(out: &mut Vec<u8>, number: u64) {
    const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    // A product and a shift divide each group by 100, and later by 10. For four and for two digits the quotients are exact.
    let hundreds = (fours.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours.wrapping_sub(hundreds.wrapping_mul(100)) << 16);
    let tens = (twos.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (twos.wrapping_sub(tens.wrapping_mul(10)) << 8);
    // The first digit is the lowest byte. Leading zeros are dropped, but not the last digit.
    let leading = digits.trailing_zeros().min(63) & !7;
    out.extend_from_slice(&(digits.wrapping_add(ZEROS) >> leading).to_le_bytes());
    out.truncate(out.len().saturating_sub(leading as usize >> 3));
}

fn write_any(out: &mut Vec<u8>, number: i64) {
    /// The longest number has nineteen digits and a sign.
    const MAX_BYTES: usize = 20;
    let mut digits = [0; MAX_BYTES];
    let mut first = MAX_BYTES;
    let mut rest = number.unsigned_abs();
    loop {
        first = first.saturating_sub(1);
        if let Some(digit) = digits.get_mut(first) {
            *digit = b'0'.saturating_add((rest % 10) as u8);
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

struct Sink<'a>(&'a mut Vec<u8>);

impl fmt::Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
