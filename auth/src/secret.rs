//! Text that no log may have.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Text that is secret: a token, a password, a key, a code. Its `Debug` does not show it, it has no `Display`, and it is wiped when it is
/// dropped. It is compared in a time that depends on its length alone. A serializer does get the text, so that a store can keep it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text itself: for a header, a body or a store.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::from(String::from(text))
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        Self::from(secret.expose())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose().as_bytes().ct_eq(other.expose().as_bytes()).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
