//! Sealing the state of a call that asks for input: it is encrypted and authenticated, and bound to the request that it belongs to.

use core::fmt;
use std::sync::OnceLock;

use engine::Runtime;

/// The length of a key, in bytes.
const KEY: usize = 32;
/// The length of the id of a key in a sealed state, in bytes. The id is the beginning of the key's digest.
const KEY_ID: usize = 4;
/// The length of the random number of a sealed state, in bytes.
const NONCE: usize = 24;
/// The first byte of a sealed state.
const FORMAT: u8 = 1;

/// The length of the text of a sealed state, if the state itself has `length` bytes.
pub(crate) const fn sealed_length(length: usize) -> usize {
    /// The length of the code that authenticates a state, in bytes.
    const TAG: usize = 16;
    let bytes = length.saturating_add(1 + KEY_ID + NONCE + TAG);
    bytes.saturating_mul(4).div_ceil(3)
}

/// The id of a sealed state: the part of its text that encodes nearly all of its random number. No other state that opens has the same id,
/// since each random number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateId([u8; 32]);

impl StateId {
    /// The id of a state. It means nothing unless the state opens. `None` if the text is too short to open.
    pub(crate) fn of(state: &str) -> Option<Self> {
        /// The number of characters before the id of the state, which encode the format and the id of the key.
        const BEFORE: usize = (1 + KEY_ID) * 4 / 3 + 1;
        state.as_bytes().get(BEFORE..)?.first_chunk().map(|id| Self(*id))
    }
}

/// A digest of 32 bytes.
pub(crate) type Digest = [u8; 32];

/// Keys that seal the states of calls between two rounds of input requests ([`Service::seal_keys`](crate::Service::seal_keys)).
///
/// Every process that may get the retry of a call needs the key that sealed its state. To change the key of several processes, first add
/// the new key to all of them with [`SealKeys::also_opens`], then seal with it, and remove the old key an hour later, when all states
/// sealed with it have expired.
#[derive(Clone)]
pub struct SealKeys {
    /// The key that seals. It opens, too.
    seals: [u8; KEY],
    /// The other keys, which only open.
    opens: Vec<[u8; KEY]>,
}

impl SealKeys {
    /// A key that seals and opens. It must be random, and secret.
    #[must_use]
    pub const fn new(key: [u8; KEY]) -> Self {
        Self { seals: key, opens: Vec::new() }
    }

    /// Adds a key that only opens.
    #[must_use]
    pub fn also_opens(mut self, key: [u8; KEY]) -> Self {
        self.opens.push(key);
        self
    }

    fn all(&self) -> impl Iterator<Item = &[u8; KEY]> {
        core::iter::once(&self.seals).chain(&self.opens)
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealKeys").finish_non_exhaustive()
    }
}

/// Seals and opens the states of one service, with the keys of [`SealKeys`] or a random key. A state that is sealed with a random key opens
/// only in this process.
#[derive(Debug, Default)]
pub(crate) struct Sealer {
    keys: OnceLock<SealKeys>,
}

impl Sealer {
    pub(crate) fn with(keys: SealKeys) -> Self {
        let sealer = Self::default();
        let _ = sealer.keys.set(keys);
        sealer
    }

    fn keys(&self, runtime: &dyn Runtime) -> Option<&SealKeys> {
        if self.keys.get().is_none() {
            let mut key = [0; KEY];
            runtime.fill_random(&mut key).ok()?;
            // Fails if another thread has set a key meanwhile. Then that key is used.
            let _ = self.keys.set(SealKeys::new(key));
        }
        self.keys.get()
    }

    /// Returns `true` if states can be sealed: the feature `seal` is on, the runtime has a clock, and there are keys, or random bytes to
    /// make one. Each seal needs random bytes, too.
    pub(crate) fn is_able(&self, runtime: &dyn Runtime) -> bool {
        cfg!(feature = "seal") && runtime.unix_time().is_some() && self.keys(runtime).is_some()
    }

    /// Seals `state`, bound to `bound`. `None` if the runtime has no random bytes, or without the feature `seal`.
    pub(crate) fn seal(&self, state: &[u8], bound: &Digest, runtime: &dyn Runtime) -> Option<String> {
        let key = &self.keys(runtime)?.seals;
        let mut nonce = [0; NONCE];
        runtime.fill_random(&mut nonce).ok()?;
        let sealed = cipher::encrypt(key, &nonce, state, bound)?;
        let mut out = vec![FORMAT];
        out.extend_from_slice(&key_id(key));
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Some(cipher::encode(&out))
    }

    /// Opens a state that was sealed with the same `bound` and a key of this sealer; `None` for any other text.
    pub(crate) fn open(&self, text: &str, bound: &Digest, runtime: &dyn Runtime) -> Option<Vec<u8>> {
        let bytes = cipher::decode(text)?;
        let (format, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_at_checked(KEY_ID)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
        if *format != FORMAT {
            return None;
        }
        let keys = self.keys(runtime)?;
        keys.all().filter(|key| key_id(key) == *id).find_map(|key| cipher::decrypt(key, nonce, sealed, bound))
    }
}

fn key_id(key: &[u8; KEY]) -> [u8; KEY_ID] {
    let digest = digest([b"seal key".as_slice(), key]);
    digest.first_chunk().copied().unwrap_or_default()
}

/// The SHA-256 digest of these parts, in this order.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    cipher::digest(parts)
}

/// Encodes bytes as URL-safe base64 without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    cipher::encode(bytes)
}

/// The key of an effect: 43 letters, digits, `-` and `_`, different for every effect of every call. `place` is the index of `name` among
/// the names of effects of the call, and `nth` the number of earlier effects of this name.
pub(crate) fn effect_key(invocation: &str, name: &str, place: usize, nth: u32) -> String {
    match cfg!(feature = "seal") {
        true => encode(&digest([invocation.as_bytes(), name.as_bytes(), &nth.to_be_bytes()])),
        // Without `seal` a handler runs only once, so the key need not be the same in another run.
        false => format!("{invocation}-{place:04}{nth:06}"),
    }
}

#[cfg(feature = "seal")]
mod cipher {
    use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
    use chacha20poly1305::{XChaCha20Poly1305, XNonce};
    use data_encoding::BASE64URL_NOPAD;
    use sha2::{Digest as _, Sha256};

    use super::{Digest, KEY, NONCE};

    pub(super) fn encrypt(key: &[u8; KEY], nonce: &[u8; NONCE], msg: &[u8], aad: &Digest) -> Option<Vec<u8>> {
        XChaCha20Poly1305::new(&(*key).into()).encrypt(&XNonce::from(*nonce), Payload { msg, aad }).ok()
    }

    pub(super) fn decrypt(key: &[u8; KEY], nonce: &[u8; NONCE], msg: &[u8], aad: &Digest) -> Option<Vec<u8>> {
        XChaCha20Poly1305::new(&(*key).into()).decrypt(&XNonce::from(*nonce), Payload { msg, aad }).ok()
    }

    pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        let mut hash = Sha256::new();
        for part in parts {
            // The length comes first, so that no two lists of parts are the same bytes.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    pub(super) fn encode(bytes: &[u8]) -> String {
        BASE64URL_NOPAD.encode(bytes)
    }

    pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
        BASE64URL_NOPAD.decode(text.as_bytes()).ok()
    }
}

/// Without the feature `seal`, no state is sealed or opened; see [`Sealer::is_able`].
#[cfg(not(feature = "seal"))]
mod cipher {
    use super::{Digest, KEY, NONCE};

    pub(super) fn encrypt(_: &[u8; KEY], _: &[u8; NONCE], _: &[u8], _: &Digest) -> Option<Vec<u8>> {
        None
    }

    pub(super) fn decrypt(_: &[u8; KEY], _: &[u8; NONCE], _: &[u8], _: &Digest) -> Option<Vec<u8>> {
        None
    }

    pub(super) fn digest<'a>(_: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        Digest::default()
    }

    pub(super) fn encode(_: &[u8]) -> String {
        String::new()
    }

    pub(super) fn decode(_: &str) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod key_tests {
    use super::effect_key;

    /// Without the feature `seal`, [`encode`](super::encode) returns an empty text, which must not become a key.
    #[test]
    fn every_effect_has_a_key_of_its_own_with_and_without_the_feature_seal() {
        let call = "0123456789abcdef0123456789abcdef";
        let all = [
            effect_key(call, "a", 0, 0),
            effect_key(call, "a", 0, 1),
            effect_key(call, "b", 1, 0),
            effect_key(&call.replace('f', "0"), "a", 0, 0),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(key.len() == 43 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{key}");
            assert!(!all[..at].contains(key), "{all:?}");
        }
    }
}

#[cfg(test)]
#[cfg(feature = "seal")]
mod tests {
    use super::*;
    use crate::testing::Executor;

    #[test]
    fn a_state_opens_only_unchanged_with_its_key_and_for_its_request() {
        let runtime = Executor::new().runtime();
        let (old, new) = (SealKeys::new([1; 32]), SealKeys::new([2; 32]));
        let (mine, other) = (digest([b"a".as_slice()]), digest([b"b".as_slice()]));
        let sealed = Sealer::with(old.clone()).seal(b"state", &mine, &*runtime).unwrap();
        let opens = |keys: SealKeys, text: &str, bound| Sealer::with(keys).open(text, bound, &*runtime);
        assert_eq!(opens(old.clone(), &sealed, &mine).as_deref(), Some(b"state".as_slice()));
        assert_eq!(opens(old.clone(), &sealed, &other), None, "another request");
        assert_eq!(opens(new.clone(), &sealed, &mine), None, "another key");
        assert!(opens(new.also_opens([1; 32]), &sealed, &mine).is_some(), "an old key opens");
        for length in 0..sealed.len() {
            assert_eq!(opens(old.clone(), &sealed[..length], &mine), None, "cut after {length}");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(opens(old.clone(), std::str::from_utf8(&changed).unwrap(), &mine), None, "changed at {at}");
        }
        assert_eq!(opens(old, "no base64 \u{1f511}", &mine), None);
    }

    #[test]
    fn seals_of_equal_states_differ_have_the_computed_length_and_open_only_at_their_sealer() {
        let runtime = Executor::new().runtime();
        let bound = Digest::default();
        let (one, other) = (Sealer::default(), Sealer::default());
        assert!(one.is_able(&*runtime));
        let first = one.seal(b"state", &bound, &*runtime).unwrap();
        let id = StateId::of(&first);
        assert!(id.is_some());
        assert_eq!(StateId::of(&format!("{}the rest", &first[..39])), id, "a state that differs only after the id");
        assert_ne!(StateId::of(&one.seal(b"state", &bound, &*runtime).unwrap()), id);
        assert_eq!(StateId::of(&first[..38]), None);
        for length in 0..10 {
            assert_eq!(one.seal(&vec![0; length], &bound, &*runtime).unwrap().len(), sealed_length(length));
        }
        assert_ne!(one.seal(b"state", &bound, &*runtime).unwrap(), first);
        assert!(one.open(&first, &bound, &*runtime).is_some());
        assert_eq!(other.open(&first, &bound, &*runtime), None);
    }

    #[test]
    fn a_digest_depends_on_the_boundaries_of_its_parts() {
        assert_ne!(digest([b"ab".as_slice(), b"c"]), digest([b"a".as_slice(), b"bc"]));
    }
}
