//! Claim codes.

use core::fmt;

use subtle::{Choice, ConstantTimeEq};

use super::draw::draw;

/// The symbols, without letters and digits that look alike.
const ALPHABET: &[u8] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";

/// A claim code, with which an agent claims an app. Our codes have six symbols, written `XXXX-XX`; codes of a peer have up to 64
/// characters. A code is a secret until it is used.
///
/// A code is stored in upper case, and consists of `A` to `Z`, digits, `_` and `-`, so that it is safe as a file name
/// (`docs/protocols/tesseron.md`, "Faults of the reference implementation", code as a path).
#[derive(Clone)]
pub struct ClaimCode {
    /// The characters in upper case, padded with zeros, so that comparing takes the same time for all lengths.
    symbols: [u8; Self::MAX_SYMBOLS],
    length: usize,
}

impl ClaimCode {
    /// The maximum number of characters, with hyphens.
    pub const MAX_SYMBOLS: usize = 64;

    /// Makes a new code, one of 31^6 that are equally likely.
    #[must_use]
    pub fn mint(random: &mut dyn FnMut(&mut [u8])) -> Self {
        let [a, b, c, d, e, f] = draw(ALPHABET, random);
        Self::from_symbols(&[a, b, c, d, b'-', e, f])
    }

    /// Parses a code, in upper or lower case.
    ///
    /// # Errors
    /// [`ClaimCodeError`] unless `text` has 1 to 64 characters, each a letter from `A` to `Z` or `a` to `z`, a digit, `_` or `-`.
    pub fn parse(text: &str) -> Result<Self, ClaimCodeError> {
        if text.is_empty() || text.len() > Self::MAX_SYMBOLS {
            return Err(ClaimCodeError::Length);
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
            return Err(ClaimCodeError::Symbol);
        }
        Ok(Self::from_symbols(text.as_bytes()))
    }

    /// Makes a code of at most [`Self::MAX_SYMBOLS`] valid characters, which the calling code has checked.
    fn from_symbols(text: &[u8]) -> Self {
        let mut symbols = [0; Self::MAX_SYMBOLS];
        for (symbol, byte) in symbols.iter_mut().zip(text) {
            *symbol = byte.to_ascii_uppercase();
        }
        Self { symbols, length: text.len() }
    }

    /// The secret text, to show, to write into the manifest or to send.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.symbols.get(..self.length).and_then(|symbols| core::str::from_utf8(symbols).ok()).unwrap_or_default()
    }

    /// Compares two codes in constant time. Returns `true` if they are the same.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }

    /// The result of [`Self::matches`] as a [`Choice`], on which the caller need not branch.
    pub(super) fn ct_eq(&self, other: &Self) -> Choice {
        self.symbols.ct_eq(&other.symbols)
    }
}

impl fmt::Debug for ClaimCode {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimCode(..)")
    }
}

/// The reason why text is not a claim code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimCodeError {
    /// The text is empty, or longer than 64 bytes.
    #[error("a claim code has 1 to 64 symbols")]
    Length,
    /// The text has characters other than letters, digits, `_` and `-`.
    #[error("a claim code consists of letters, digits, `_` and `-`")]
    Symbol,
}

#[cfg(test)]
// In names of tests, `item` or `bug` and a number cite a rule or a fault (docs/protocols/tesseron.md, "Former numbers").
mod tests {
    use super::*;
    use crate::claims::draw::sequence;

    #[test]
    fn a_minted_code_is_six_symbols_of_the_alphabet_with_a_hyphen() {
        let mut random = sequence(1);
        for _ in 0..1000 {
            let code = ClaimCode::mint(&mut random);
            let text = code.reveal();
            assert_eq!(text.len(), 7);
            for (at, symbol) in text.bytes().enumerate() {
                assert!(if at == 4 { symbol == b'-' } else { ALPHABET.contains(&symbol) }, "{text}");
            }
            assert!(ClaimCode::parse(&text.to_lowercase()).unwrap().matches(&code));
        }
    }

    #[test]
    fn item_111_a_code_is_1_to_64_symbols_of_its_grammar_folded_to_upper_case() {
        assert_eq!(ClaimCode::parse("pq7n-4d_z").unwrap().reveal(), "PQ7N-4D_Z");
        assert_eq!(ClaimCode::parse(&"x".repeat(64)).unwrap().reveal(), "X".repeat(64));
        assert_eq!(ClaimCode::parse(&"x".repeat(65)).unwrap_err(), ClaimCodeError::Length);
        assert_eq!(ClaimCode::parse("").unwrap_err(), ClaimCodeError::Length);
        for text in [" ", "A B", "A.B", "A\n", "\u{e4}", "A\0", "%41"] {
            assert_eq!(ClaimCode::parse(text).unwrap_err(), ClaimCodeError::Symbol, "{text:?}");
        }
    }

    #[test]
    fn bug_18_text_that_could_be_a_path_is_not_a_code() {
        for text in ["../../etc/passwd", "..", ".", "a/b", "a\\b", "C:", "~", "AUX.json", "/"] {
            assert_eq!(ClaimCode::parse(text).unwrap_err(), ClaimCodeError::Symbol, "{text:?}");
        }
    }

    #[test]
    fn codes_match_when_they_are_the_same_and_only_then() {
        let code = |text| ClaimCode::parse(text).unwrap();
        assert!(code("abcd-ef").matches(&code("ABCD-EF")));
        for other in ["ABCD-EG", "ABCD-E", "ABCD-EFF", "A", "ABCDEF"] {
            assert!(!code("ABCD-EF").matches(&code(other)), "{other}");
        }
    }

    #[test]
    fn debug_does_not_show_a_code() {
        assert_eq!(alloc::format!("{:?}", ClaimCode::parse("ABCD-EF").unwrap()), "ClaimCode(..)");
    }
}
