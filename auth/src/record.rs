//! What a store keeps.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuthMethod {
    /// By its id alone.
    None,
    /// By its secret in the header `Authorization`.
    ClientSecretBasic,
    /// By its secret in the form.
    ClientSecretPost,
    /// By an assertion that its key signs.
    PrivateKeyJwt,
}

impl AuthMethod {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "client_secret_basic" => Self::ClientSecretBasic,
            "client_secret_post" => Self::ClientSecretPost,
            "private_key_jwt" => Self::PrivateKeyJwt,
            _ => return None,
        })
    }
}

/// A client that an authorization server knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Registration {
    /// The server that knows it. No other gets its secret.
    pub issuer: String,
    /// Its id.
    pub client_id: String,
    /// Its secret, if it has one.
    pub client_secret: Option<Secret>,
    /// When the secret ends, in seconds since 1970; `None` if never.
    pub secret_expires_at: Option<u64>,
    /// How it authenticates.
    pub method: AuthMethod,
    /// Where callbacks go, if the client was registered by us.
    pub redirect_uri: Option<String>,
}

/// The tokens of one login, with what a later refresh needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tokens {
    /// Rises with each set of tokens. A store that keeps a set compares it.
    pub generation: u64,
    /// Where the tokens are from.
    pub issuer: String,
    /// Where a refresh goes.
    pub token_endpoint: String,
    /// The client that they were given to.
    pub client: Registration,
    /// The resource that they are for, as it names itself; `None` for a server of 2025-03-26.
    pub resource: Option<String>,
    /// All scopes that were asked for so far.
    pub requested: Vec<String>,
    /// The scopes that were granted.
    pub granted: Vec<String>,
    /// The access token.
    pub access: Secret,
    /// The refresh token, if there is one.
    pub refresh: Option<Secret>,
    /// The thumbprint of the key that the tokens are bound to (DPoP); `None` for bearer tokens.
    pub bound_to: Option<String>,
    /// When they were asked for, in seconds since 1970.
    pub received_at: u64,
    /// When the access token ends, in seconds since 1970; `None` if that is unknown.
    pub expires_at: Option<u64>,
    /// A refresh was about to be sent: whoever finds this knows that the refresh token may be spent.
    #[serde(default)]
    pub intent: bool,
}

impl Tokens {
    /// Seconds before the end of an access token at which a refresh is due: a quarter of its life, at most a minute.
    fn margin(&self) -> u64 {
        self.expires_at.map_or(0, |end| (end.saturating_sub(self.received_at) / 4).min(60))
    }

    /// When the access token ends, unless the clock was set back so that nothing can be known.
    fn end(&self, unix: u64) -> Option<u64> {
        self.expires_at.filter(|_| unix.saturating_add(60) >= self.received_at)
    }

    /// Returns `true` while the access token can be used.
    #[must_use]
    pub fn is_valid(&self, unix: u64) -> bool {
        self.end(unix).is_none_or(|end| unix < end)
    }

    /// Returns `true` while no refresh is due.
    #[must_use]
    pub fn is_fresh(&self, unix: u64) -> bool {
        self.end(unix).is_none_or(|end| unix < end.saturating_sub(self.margin()))
    }
}
