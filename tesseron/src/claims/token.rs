//! Resume tokens.

use core::fmt;

use subtle::{Choice, ConstantTimeEq};

use super::draw::draw;
use protocol_core::json::Text;

const BASE64_URL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The secret token with which an app can resume its session once.
#[derive(Clone)]
pub struct ResumeToken(Text);

impl ResumeToken {
    /// The maximum length of a token of a peer, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Makes a new token: 24 random bytes in base64url without padding.
    #[must_use]
    pub fn mint(random: &mut dyn FnMut(&mut [u8])) -> Self {
        let symbols: [u8; 32] = draw(BASE64_URL, random);
        Self(Text::from(core::str::from_utf8(&symbols).unwrap_or_default()))
    }

    /// Copies the token of a peer, in any form.
    ///
    /// # Errors
    /// [`ResumeTokenError`] unless it has 1 to 256 bytes.
    pub fn parse(text: &str) -> Result<Self, ResumeTokenError> {
        if text.is_empty() || text.len() > Self::MAX_BYTES { Err(ResumeTokenError) } else { Ok(Self(Text::from(text))) }
    }

    /// The secret text, to write into the manifest or to send.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns `true` if both are the same token, in a time that depends only on their lengths.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }

    /// The result of [`Self::matches`] as a [`Choice`], on which the caller need not branch.
    pub(super) fn ct_eq(&self, other: &Self) -> Choice {
        self.0.as_bytes().ct_eq(other.0.as_bytes())
    }
}

impl fmt::Debug for ResumeToken {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResumeToken(..)")
    }
}

/// The error for text that is not a resume token: empty, or longer than 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a resume token has 1 to 256 bytes")]
pub struct ResumeTokenError;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::draw::sequence;

    #[test]
    fn a_minted_token_is_24_bytes_in_base64url() {
        let mut random = sequence(2);
        let first = ResumeToken::mint(&mut random);
        assert_eq!(first.reveal().len(), 32);
        assert!(first.reveal().bytes().all(|byte| BASE64_URL.contains(&byte)));
        assert!(!first.matches(&ResumeToken::mint(&mut random)));
    }

    #[test]
    fn a_token_of_a_peer_is_any_text_within_bounds() {
        for text in ["x", "\u{1f511} \n", &"t".repeat(256)] {
            assert_eq!(ResumeToken::parse(text).unwrap().reveal(), text);
        }
        for text in ["", &"t".repeat(257)] {
            assert_eq!(ResumeToken::parse(text).unwrap_err(), ResumeTokenError);
        }
    }

    #[test]
    fn tokens_match_when_they_are_the_same_and_only_then() {
        let token = |text| ResumeToken::parse(text).unwrap();
        assert!(token("abc").matches(&token("abc")));
        for other in ["abd", "ab", "abcd", "ABC"] {
            assert!(!token("abc").matches(&token(other)), "{other}");
        }
    }

    #[test]
    fn debug_does_not_show_a_token() {
        assert_eq!(alloc::format!("{:?}", ResumeToken::parse("abc").unwrap()), "ResumeToken(..)");
    }
}
