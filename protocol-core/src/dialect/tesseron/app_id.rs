//! App ids. The gateway begins the names of an app's tools with the id of the app.

use core::fmt;

use crate::json::Text;

/// Ids that no app may have, since the gateway and its environment use them.
const RESERVED: [&str; 3] = ["tesseron", "mcp", "system"];

/// The id of an app: a lower-case letter, then lower-case letters, digits and `_`; at most 128 bytes, and no reserved word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(Text);

impl AppId {
    /// The maximum length of an app id, in bytes. The protocol itself sets no maximum.
    pub const MAX_BYTES: usize = 128;

    /// Parses an id.
    ///
    /// # Errors
    /// [`AppIdError`] if the id is too long, malformed or reserved.
    pub fn parse(text: &str) -> Result<Self, AppIdError> {
        if text.len() > Self::MAX_BYTES {
            return Err(AppIdError::TooLong);
        }
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !text.starts_with(|first: char| first.is_ascii_lowercase()) || !text.bytes().all(is_allowed) {
            return Err(AppIdError::Malformed);
        }
        if RESERVED.contains(&text) { Err(AppIdError::Reserved) } else { Ok(Self(Text::from(text))) }
    }

    /// The id as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why text is not an app id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppIdError {
    /// The text is longer than 128 bytes.
    #[error("an app id has at most 128 bytes")]
    TooLong,
    /// The text does not match `^[a-z][a-z0-9_]*$`.
    #[error("an app id is a small letter, then small letters, digits and `_`")]
    Malformed,
    /// The text is `tesseron`, `mcp` or `system`.
    #[error("this app id is reserved")]
    Reserved,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_id_is_a_small_letter_and_then_small_letters_digits_and_underscores() {
        for text in ["a", "ledger", "a1", "a_b", "a__b", "a_", "tesseron_", "mcp2", &"a".repeat(128)] {
            assert_eq!(AppId::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "A", "1a", "_a", "a-b", "a.b", "a b", "aB", "\u{e4}", "a\u{e4}", "a\n"] {
            assert_eq!(AppId::parse(text).unwrap_err(), AppIdError::Malformed, "{text:?}");
        }
        assert_eq!(AppId::parse(&"a".repeat(129)).unwrap_err(), AppIdError::TooLong);
    }

    #[test]
    fn reserved_words_are_no_app_ids() {
        for text in RESERVED {
            assert_eq!(AppId::parse(text).unwrap_err(), AppIdError::Reserved);
        }
    }
}
