//! Session ids.

use core::fmt;

use super::draw::draw;
use protocol_core::json::Text;

const BASE36: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The id of a session, which stays the same on all its channels. It is not a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(Text);

impl SessionId {
    /// The maximum length, in bytes, of an id that a peer has sent.
    pub const MAX_BYTES: usize = 128;

    /// Makes a new id: `s_` and 24 symbols of base 36, 124 bits.
    #[must_use]
    pub fn mint(random: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut text = *b"s_------------------------";
        if let Some(symbols) = text.last_chunk_mut::<24>() {
            *symbols = draw(BASE36, random);
        }
        Self(Text::from(core::str::from_utf8(&text).unwrap_or_default()))
    }

    /// Reads an id that a peer has sent or that a manifest contains.
    ///
    /// # Errors
    /// [`SessionIdError`] unless it has 1 to 128 bytes.
    pub fn parse(text: &str) -> Result<Self, SessionIdError> {
        if text.is_empty() || text.len() > Self::MAX_BYTES { Err(SessionIdError) } else { Ok(Self(Text::from(text))) }
    }

    /// The id as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for text that is not a session id: empty, or longer than 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session id has 1 to 128 bytes")]
pub struct SessionIdError;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::draw::sequence;

    #[test]
    fn a_minted_id_is_24_symbols_of_base_36_after_its_prefix_and_does_not_repeat() {
        let mut random = sequence(3);
        let first = SessionId::mint(&mut random);
        let symbols = first.as_str().strip_prefix("s_").unwrap();
        assert_eq!(symbols.len(), 24);
        assert!(symbols.bytes().all(|byte| BASE36.contains(&byte)));
        assert_ne!(first, SessionId::mint(&mut random));
    }

    #[test]
    fn an_id_that_a_peer_sends_is_any_text_of_1_to_128_bytes() {
        assert_eq!(SessionId::parse("s_k3j9").unwrap().as_str(), "s_k3j9");
        for text in ["", &"s".repeat(129)] {
            assert_eq!(SessionId::parse(text).unwrap_err(), SessionIdError);
        }
    }
}
