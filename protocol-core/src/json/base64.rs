//! Base64 with padding (RFC 4648, section 4), in which JSON contains bytes, and header fields any text.

use alloc::string::String;
use alloc::vec::Vec;

/// Encodes bytes in base64 with padding (RFC 4648, section 4).
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| char::from(DIGITS.get((bits & 63) as usize).copied().unwrap_or(b'='));
    let mut out = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        out.push(digit(bits >> 18));
        out.push(digit(bits >> 12));
        out.push(if chunk.len() > 1 { digit(bits >> 6) } else { '=' });
        out.push(if chunk.len() > 2 { digit(bits) } else { '=' });
    }
    out
}

/// Decodes base64 with padding (RFC 4648, section 4). Unused bits at the end must be zero, so that each text has only one form.
pub(crate) fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = digits.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(groups.len().saturating_mul(3));
    for (at, group) in groups.iter().enumerate() {
        let is_last = at.saturating_add(1) == groups.len();
        let (used, bytes) = match group {
            [a, b, b'=', b'='] if is_last => ([*a, *b, b'A', b'A'], 1),
            [a, b, c, b'='] if is_last => ([*a, *b, *c, b'A'], 2),
            whole => (*whole, 3),
        };
        let bits = used.iter().try_fold(0_u32, |bits, digit| Some((bits << 6) | u32::from(value_of(*digit)?)))?;
        let [_, first, second, third] = bits.to_be_bytes();
        let group = [first, second, third];
        let (kept, dropped) = group.split_at_checked(bytes)?;
        if dropped.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

fn value_of(digit: u8) -> Option<u8> {
    let offset = match digit {
        b'A'..=b'Z' => digit.wrapping_sub(b'A'),
        b'a'..=b'z' => digit.wrapping_sub(b'a').wrapping_add(26),
        b'0'..=b'9' => digit.wrapping_sub(b'0').wrapping_add(52),
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_examples_of_rfc_4648() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
            assert_eq!(from_base64(coded.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfb]), "//77");
    }
}
