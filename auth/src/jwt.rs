//! JSON Web Tokens that we sign, and the one that we look into.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::document::Document;
use crate::secret::Secret;

/// A private key. Whoever owns it signs; this crate has no cryptography of its own but a hash.
pub trait Signer: Send + Sync {
    /// The name of the algorithm, such as `ES256` (RFC 7518, section 3.1).
    fn algorithm(&self) -> &str;

    /// The id of the key, if the server knows it by one.
    fn key_id(&self) -> Option<&str> {
        None
    }

    /// The two coordinates of the public key, 32 bytes each, if it is one of P-256. Proofs of possession (DPoP) need it.
    fn public_point(&self) -> Option<[u8; 64]> {
        None
    }

    /// Signs a message; the signature has the form of RFC 7518, which for `ES256` is 64 bytes.
    ///
    /// # Errors
    /// The key cannot be used.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignFailed>;
}

/// A key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key cannot sign")]
pub struct SignFailed;

impl fmt::Debug for dyn Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.algorithm())
    }
}

pub(crate) fn hash(text: &str) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(text.as_bytes()))
}

fn sign(header: &serde_json::Value, claims: &serde_json::Value, signer: &dyn Signer) -> Result<Secret, SignFailed> {
    let part = |value: &serde_json::Value| BASE64URL_NOPAD.encode(format!("{value}").as_bytes());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = signer.sign(message.as_bytes())?;
    Ok(format!("{message}.{}", BASE64URL_NOPAD.encode(&signature)).into())
}

/// The assertion by which a client authenticates (RFC 7523, section 2.2). The audience is the issuer.
pub(crate) fn client_assertion(
    client_id: &str,
    issuer: &str,
    id: &str,
    unix: u64,
    signer: &dyn Signer,
) -> Result<Secret, SignFailed> {
    let mut header = json!({"alg": signer.algorithm(), "typ": "client-authentication+jwt"});
    if let (Some(key), Some(header)) = (signer.key_id(), header.as_object_mut()) {
        header.insert("kid".into(), key.into());
    }
    let claims = json!({"iss": client_id, "sub": client_id, "aud": issuer, "iat": unix, "exp": unix.saturating_add(60), "jti": id});
    sign(&header, &claims, signer)
}

fn coordinates(signer: &dyn Signer) -> Option<(String, String)> {
    let point = signer.public_point()?;
    let (x, y) = point.split_at_checked(32)?;
    Some((BASE64URL_NOPAD.encode(x), BASE64URL_NOPAD.encode(y)))
}

/// The thumbprint of a key (RFC 7638); `None` if it is none of P-256.
pub(crate) fn thumbprint(signer: &dyn Signer) -> Option<String> {
    let (x, y) = coordinates(signer)?;
    Some(hash(&format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#)))
}

/// What a proof is for.
pub(crate) struct Proof<'a> {
    pub(crate) method: &'a str,
    /// Without query and fragment.
    pub(crate) address: &'a str,
    pub(crate) nonce: Option<&'a str>,
    /// The access token that it goes with.
    pub(crate) token: Option<&'a Secret>,
}

/// A proof that we have the key (RFC 9449, section 4.2).
pub(crate) fn proof(proof: &Proof<'_>, id: &str, unix: u64, signer: &dyn Signer) -> Result<Secret, SignFailed> {
    let (x, y) = coordinates(signer).ok_or(SignFailed)?;
    let header = json!({"typ": "dpop+jwt", "alg": signer.algorithm(), "jwk": {"kty": "EC", "crv": "P-256", "x": x, "y": y}});
    let mut claims = json!({"jti": id, "htm": proof.method, "htu": proof.address, "iat": unix});
    if let Some(claims) = claims.as_object_mut() {
        claims.extend(proof.nonce.map(|nonce| ("nonce".into(), nonce.into())));
        claims.extend(proof.token.map(|token| ("ath".into(), hash(token.expose()).into())));
    }
    sign(&header, &claims, signer)
}

/// What an assertion must say before it is sent to an authorization server.
pub(crate) struct Expected<'a> {
    pub(crate) kind: Option<&'a str>,
    pub(crate) audience: &'a str,
    pub(crate) client_id: Option<&'a str>,
    pub(crate) resource: Option<&'a str>,
    /// The scopes that were asked for, if any were: it may have no other.
    pub(crate) scopes: Option<&'a [String]>,
}

/// Returns `true` if an assertion says what is expected, and has not expired. Its signature is for the server to check.
pub(crate) fn says(assertion: &Secret, expected: &Expected<'_>, unix: u64) -> bool {
    let mut parts = assertion.expose().split('.');
    let mut part = || parts.next().and_then(|part| BASE64URL_NOPAD.decode(part.as_bytes()).ok());
    let (Some(header), Some(claims)) = (part(), part()) else { return false };
    let limit = 64 * 1024;
    let (Some(header), Some(claims)) = (Document::parse(&header, limit), Document::parse(&claims, limit)) else { return false };
    let texts = |name: &str| claims.list(name).or_else(|| claims.text(name).map(|text| Vec::from([text])));
    let is = |found: Option<String>, wanted: Option<&str>| wanted.is_none_or(|wanted| found.as_deref() == Some(wanted));
    let scopes = claims.text("scope").map(|text| crate::scope::parse(&text).unwrap_or_default()).unwrap_or_default();
    is(header.text("typ"), expected.kind)
        && texts("aud").is_some_and(|audiences| audiences.iter().any(|audience| audience == expected.audience))
        && is(claims.text("client_id"), expected.client_id)
        && expected.resource.is_none_or(|resource| texts("resource").is_none_or(|named| named.iter().all(|name| name == resource)))
        && expected.scopes.is_none_or(|asked| crate::scope::has_all(asked, &scopes))
        && claims.seconds("exp").is_some_and(|end| unix < end)
}
