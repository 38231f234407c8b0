//! Answers of token endpoints (RFC 6749, sections 5.1 and 5.2).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::document::Document;
use crate::scope;
use crate::secret::Secret;

/// The largest answer of a token endpoint, in bytes.
pub(crate) const MAX_ANSWER: usize = 256 * 1024;

/// The longest token, in bytes: it becomes a header.
const MAX_TOKEN: usize = 16 * 1024;

/// The longest life of an access token, in seconds: a year.
const MAX_LIFE: u64 = 365 * 24 * 60 * 60;

/// What an authorization server said when it refused: for people. It has no control characters, and is at most 200 characters long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The error code, such as `invalid_grant`.
    pub code: String,
    /// What the server adds; may be empty.
    pub description: String,
}

impl Refusal {
    pub(crate) fn new(code: &str, description: &str) -> Self {
        let tamed = |text: &str, most: usize| text.chars().filter(|character| !character.is_control()).take(most).collect();
        Self { code: tamed(code, 64), description: tamed(description, 200) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)?;
        if self.description.is_empty() { Ok(()) } else { write!(f, " ({})", self.description) }
    }
}

/// Tokens from a token endpoint.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) access: Secret,
    pub(crate) refresh: Option<Secret>,
    pub(crate) is_bound: bool,
    pub(crate) scopes: Option<Vec<String>>,
    /// Seconds.
    pub(crate) life: Option<u64>,
}

/// What came instead of tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// The server refused, with its code.
    Refused(Refusal),
    /// Too busy, or down; the seconds after which to ask again.
    Later(Option<u64>),
    /// Something that is neither tokens nor an error.
    Unfit,
}

/// Returns `true` for a status that says nothing about the request.
pub(crate) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..)
}

/// Reads the answer of a token endpoint.
pub(crate) fn parse(status: u16, body: &[u8], retry_after: Option<&str>) -> Result<Granted, NotGranted> {
    if is_transient(status) {
        return Err(NotGranted::Later(retry_after.and_then(|text| text.trim().parse().ok())));
    }
    let Some(document) = Document::parse(body, MAX_ANSWER) else { return Err(NotGranted::Unfit) };
    if let Some(code) = document.text("error") {
        return Err(NotGranted::Refused(Refusal::new(&code, &document.text("error_description").unwrap_or_default())));
    }
    let is_token = |text: &String| text.len() <= MAX_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic());
    let access = document.text("access_token").filter(|_| status == 200).filter(is_token).ok_or(NotGranted::Unfit)?;
    let is_bound = match document.text("token_type").map(|kind| kind.to_ascii_lowercase()).as_deref() {
        None | Some("bearer") => false,
        Some("dpop") => true,
        Some(_) => return Err(NotGranted::Unfit),
    };
    Ok(Granted {
        access: access.into(),
        refresh: document.text("refresh_token").filter(|token| token.len() <= MAX_TOKEN).map(Secret::from),
        is_bound,
        scopes: document.text("scope").and_then(|text| scope::parse(&text)),
        life: document.seconds("expires_in").map(|life| life.min(MAX_LIFE)),
    })
}

/// Reads the answer of an identity provider to a token exchange: the assertion in it (RFC 8693, section 2.2).
pub(crate) fn parse_assertion(status: u16, body: &[u8]) -> Result<Secret, NotGranted> {
    let token = parse_exchanged(body).filter(|_| status == 200);
    match token {
        Some(token) => Ok(token),
        // Errors are the same as those of tokens.
        None => Err(parse(status, body, None).err().unwrap_or(NotGranted::Unfit)),
    }
}

fn parse_exchanged(body: &[u8]) -> Option<Secret> {
    let document = Document::parse(body, MAX_ANSWER)?;
    let is_assertion = document.text("issued_token_type").as_deref() == Some("urn:ietf:params:oauth:token-type:id-jag");
    let is_none = document.text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("N_A"));
    let token = document.text("access_token").filter(|token| token.len() <= MAX_TOKEN)?;
    (is_assertion && is_none).then(|| token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_that_can_be_used_are_taken() {
        let taken =
            |status: u16, body: &str| parse(status, body.as_bytes(), Some("7")).map(|granted| (granted.is_bound, granted.life));
        let refused = |code: &str, description: &str| Err(NotGranted::Refused(Refusal::new(code, description)));
        for (status, body, expected) in [
            (200, r#"{"access_token":"a"}"#, Ok((false, None))),
            (200, r#"{"access_token":"a","token_type":"BEARER","expires_in":"60"}"#, Ok((false, Some(60)))),
            (200, r#"{"access_token":"a","token_type":"dpop","expires_in":1e400}"#, Ok((true, Some(MAX_LIFE)))),
            (200, r#"{"access_token":"a","expires_in":-1}"#, Ok((false, Some(0)))),
            (200, r#"{"access_token":"a","expires_in":"abc"}"#, Ok((false, None))),
            (200, r#"{"access_token":"a","token_type":"mac"}"#, Err(NotGranted::Unfit)),
            (200, r#"{"access_token":"a\r\nX: y"}"#, Err(NotGranted::Unfit)),
            (200, r#"{"access_token":""}"#, Err(NotGranted::Unfit)),
            (200, "[]", Err(NotGranted::Unfit)),
            (200, "<html>", Err(NotGranted::Unfit)),
            (201, r#"{"access_token":"a"}"#, Err(NotGranted::Unfit)),
            (302, "", Err(NotGranted::Unfit)),
            (307, "", Err(NotGranted::Unfit)),
            (200, r#"{"error":"invalid_grant","access_token":"a"}"#, refused("invalid_grant", "")),
            (400, r#"{"error":"x","error_description":"a\u001b[31m\nb"}"#, refused("x", "a[31mb")),
            (429, r#"{"error":"invalid_grant"}"#, Err(NotGranted::Later(Some(7)))),
            (503, "", Err(NotGranted::Later(Some(7)))),
        ] {
            assert_eq!(taken(status, body), expected, "{status} {body}");
        }
        let long = alloc::format!(r#"{{"access_token":"{}"}}"#, "a".repeat(MAX_TOKEN + 1));
        assert_eq!(taken(200, &long), Err(NotGranted::Unfit));
        assert_eq!(Refusal::new(&"c".repeat(99), &"d".repeat(999)).description.len(), 200);
    }
}
