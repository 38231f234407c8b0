//! URLs for the user to open, and their checks (MCP 2025-11-25, "Elicitation", section "URL Mode"). Tesseron has no elicitation by URL.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::RpcError;
use crate::json::Json;
use crate::json::read::{member, string};
use crate::json::write::Object;
use crate::url::Url;

/// A URL for the user to open in a browser. The page asks for data that must not pass through the caller, such as a password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenUrl {
    /// The message for the user, with the reason.
    pub message: String,
    /// An absolute URL (RFC 3986) that begins with a scheme, `://` and a host, without a user name: at most [`OpenUrl::MAX_URL_BYTES`]
    /// bytes of ASCII.
    pub url: String,
    /// The id that the server gives to this elicitation and repeats in
    /// [`Notification::ElicitationComplete`](super::Notification::ElicitationComplete): 1 to [`OpenUrl::MAX_ID_BYTES`] bytes. Not sent in MCP
    /// 2026-07-28.
    pub id: String,
}

/// A user's decision on an [`OpenUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenUrlResult {
    /// The user agreed to open the URL. Whether the user did anything at the URL is not known.
    Accept,
    /// The user declined.
    Decline,
    /// The user made no decision.
    Cancel,
}

impl OpenUrlResult {
    /// The name on the wire: `accept`, `decline` or `cancel`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Accept, Self::Decline, Self::Cancel].into_iter().find(|consent| consent.as_str() == name)
    }
}

impl OpenUrl {
    /// The maximum length of a URL, in bytes. RFC 9110, section 4.1, recommends that every recipient supports this length.
    pub const MAX_URL_BYTES: usize = 8000;
    /// The maximum length of an id, in bytes.
    pub const MAX_ID_BYTES: usize = 1024;

    /// A URL without an id.
    #[must_use]
    pub fn new(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self { message: message.into(), url: url.into(), id: String::new() }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Checks the URL and the id.
    ///
    /// # Errors
    /// A description of the first fault.
    pub fn check(&self) -> Result<(), String> {
        self.check_url()?;
        match self.id.len() {
            0 => Err(String::from("elicitationId is empty")),
            1..=Self::MAX_ID_BYTES => Ok(()),
            _ => Err(alloc::format!("elicitationId is longer than {} bytes", Self::MAX_ID_BYTES)),
        }
    }

    /// Checks only the URL.
    pub(super) fn check_url(&self) -> Result<(), String> {
        checked_host(&self.url).map(drop)
    }

    /// The host of the URL, without its port; an IPv6 address is in brackets. `None` if the URL is not valid.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        checked_host(&self.url).ok()
    }

    /// Reads the parameters of an `elicitation/create` in URL mode.
    pub(super) fn read(params: &[u8]) -> Result<Self, String> {
        let open = Self::read_without_id(params)?.with_id(text(params, "elicitationId")?);
        open.check().map(|()| open)
    }

    /// Reads the parameters of an `elicitation/create` in URL mode, in a revision in which URLs have no id (MCP 2026-07-28).
    pub(super) fn read_without_id(params: &[u8]) -> Result<Self, String> {
        let open = Self::new(text(params, "message")?, text(params, "url")?);
        open.check_url().map(|()| open)
    }

    /// The parameters of an `elicitation/create`.
    pub(super) fn params(&self, with_id: bool) -> Json {
        Object::value(|object| self.write(object, with_id))
    }

    fn write(&self, object: &mut Object<'_>, with_id: bool) {
        object.word("mode", "url");
        object.string("message", &self.message);
        object.string("url", &self.url);
        if with_id {
            object.string("elicitationId", &self.id);
        }
    }
}

fn text(params: &[u8], name: &str) -> Result<String, String> {
    member(params, name).and_then(string).map(Cow::into_owned).ok_or_else(|| alloc::format!("{name} must be text"))
}

impl RpcError {
    /// The error for a request that cannot be served before the user has opened `urls`, of which there must be at least one
    /// ([`RpcError::URL_ELICITATION_REQUIRED`]). Send it only in MCP 2025-11-25, to a peer that declares [`Capabilities::elicitation_url`].
    ///
    /// [`Capabilities::elicitation_url`]: super::Capabilities::elicitation_url
    #[must_use]
    pub fn url_elicitation_required(urls: &[OpenUrl]) -> Self {
        let data = Object::value(|object| {
            object.array("elicitations", urls, |out, open| Object::write(out, |object| open.write(object, true)));
        });
        Self::fixed(Self::URL_ELICITATION_REQUIRED, "an address must be opened first").with_data(data)
    }

    /// The URLs that the user must open before the request is repeated, in the order in which the peer lists them. Entries that are
    /// not a valid elicitation in URL mode are left out. Empty for an error with another code than [`RpcError::URL_ELICITATION_REQUIRED`].
    #[must_use]
    pub fn required_urls(&self) -> Vec<OpenUrl> {
        let data = self.data.as_ref().filter(|_| self.code == Self::URL_ELICITATION_REQUIRED);
        let all = data.and_then(|data| data.member("elicitations"));
        let is_url = |one: &Json| member(one.as_bytes(), "mode").and_then(string).is_some_and(|mode| mode == "url");
        let all = all.iter().flat_map(Json::elements).filter(is_url);
        all.filter_map(|one| OpenUrl::read(one.as_bytes()).ok()).collect()
    }
}

/// The host of an absolute URL, or the reason why the URL is not allowed.
///
/// The check is stricter than RFC 3986, so that a URL cannot deceive its reader. It refuses escapes in the host, characters that
/// browsers convert into other characters, and a user name, which can look like a host.
fn checked_host(url: &str) -> Result<&str, String> {
    if url.len() > OpenUrl::MAX_URL_BYTES {
        return Err(alloc::format!("url is longer than {} bytes", OpenUrl::MAX_URL_BYTES));
    }
    if let Some(invalid) = url.chars().find(|char| !is_of_url(*char)) {
        return Err(alloc::format!("url must not contain {invalid:?} unescaped"));
    }
    let mut escapes = url.split('%').skip(1);
    if !escapes.all(|after| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2) {
        return Err(String::from("url has a % without two hexadecimal digits after it"));
    }
    Url::parse(url).map(|url| url.host).map_err(|fault| alloc::format!("url {fault}"))
}

fn is_of_url(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str) -> Result<(), String> {
        OpenUrl::new("?", url).with_id("1").check()
    }

    #[test]
    fn the_host_of_a_valid_url_is_returned() {
        let longest = alloc::format!("https://a/{}", "x".repeat(OpenUrl::MAX_URL_BYTES - 10));
        for (url, host) in [
            ("https://example.com", "example.com"),
            ("HTTPS://EXAMPLE.com:8443/a/b?c=d%20e&f[]=@#g", "EXAMPLE.com"),
            ("http://127.0.0.1:80?x", "127.0.0.1"),
            ("http://[::1]:80/", "[::1]"),
            ("http://[2001:db8::7]#x", "[2001:db8::7]"),
            ("https://xn--mller-kva.example/", "xn--mller-kva.example"),
            ("vscode+x.y-z://some_extension/auth?to=https://a:b@c/", "some_extension"),
            (&longest, "a"),
        ] {
            let open = OpenUrl::new("?", url).with_id("1");
            assert_eq!((open.check(), open.host()), (Ok(()), Some(host)), "{url}");
        }
    }

    #[test]
    fn a_hostile_or_malformed_url_is_refused_with_the_reason() {
        let too_long = alloc::format!("https://a/{}", "x".repeat(OpenUrl::MAX_URL_BYTES - 9));
        for (url, why) in [
            ("", "must be absolute"),
            ("javascript:alert(1)", "must be absolute"),
            ("file:///etc/passwd", "no proper host"),
            ("https://ex%61mple.com/", "no proper host"),
            ("https://good.example@evil.example/", "user name"),
            ("https://a:65536/", "port"),
            ("https://a/%2", "hexadecimal"),
            ("https://a/%g0", "hexadecimal"),
            ("https://good.example\\@evil.example/", r"'\\'"),
            ("https://a/ b", "' '"),
            (" https://a/", "' '"),
            ("https://a/\nb", r"'\n'"),
            ("https://a/\u{1b}[2J", r"'\u{1b}'"),
            ("https://a/\u{202e}moc", r"'\u{202e}'"),
            ("https://ex\u{430}mple.com/", "'\u{430}'"),
            ("https://a/\"x", "'\"'"),
            (&too_long, "longer than 8000 bytes"),
        ] {
            let refused = checked(url);
            assert!(
                refused.as_ref().is_err_and(|reason| reason.starts_with("url ") && reason.contains(why)),
                "{url:?}: {refused:?}"
            );
            assert_eq!(OpenUrl::new("?", url).host(), None, "{url:?}");
        }
    }

    #[test]
    fn an_id_has_1_to_1024_bytes() {
        let with = |id: String| OpenUrl::new("?", "https://a/").with_id(id).check();
        assert_eq!(with("x".repeat(OpenUrl::MAX_ID_BYTES)), Ok(()));
        assert_eq!(with(String::new()), Err("elicitationId is empty".into()));
        assert_eq!(with("x".repeat(OpenUrl::MAX_ID_BYTES + 1)), Err("elicitationId is longer than 1024 bytes".into()));
    }

    #[test]
    fn the_valid_urls_in_an_error_are_read_and_invalid_ones_are_left_out() {
        let urls = [OpenUrl::new("\"a\"", "https://a/").with_id("1"), OpenUrl::new("b", "https://b/").with_id("2")];
        let error = RpcError::url_elicitation_required(&urls);
        let first = r#"{"mode":"url","message":"\"a\"","url":"https://a/","elicitationId":"1"}"#;
        let second = r#"{"mode":"url","message":"b","url":"https://b/","elicitationId":"2"}"#;
        assert_eq!(error.code, -32042);
        assert_eq!(error.data.as_ref().unwrap().as_str(), alloc::format!(r#"{{"elicitations":[{first},{second}]}}"#));
        assert_eq!(error.required_urls(), urls);

        let with = |code: i64, data: &str| {
            RpcError::fixed(code, "no").with_data(Json::parse(String::from(data)).unwrap()).required_urls().len()
        };
        assert_eq!(with(-32042, &alloc::format!(r#"{{"elicitations":[{first}]}}"#)), 1);
        assert_eq!(with(-32043, &alloc::format!(r#"{{"elicitations":[{first}]}}"#)), 0);
        for invalid in [
            r#"{"mode":"form","message":"a","url":"https://a/","elicitationId":"1"}"#,
            r#"{"message":"a","url":"https://a/","elicitationId":"1"}"#,
            r#"{"mode":"url","url":"https://a/","elicitationId":"1"}"#,
            r#"{"mode":"url","message":"a","url":"javascript:a","elicitationId":"1"}"#,
            r#"{"mode":"url","message":"a","url":"https://a/"}"#,
            "5",
        ] {
            assert_eq!(with(-32042, &alloc::format!(r#"{{"elicitations":[{invalid},{first}]}}"#)), 1, "{invalid}");
        }
        for nonsense in ["{}", "[]", r#"{"elicitations":{}}"#, r#"{"elicitations":null}"#] {
            assert_eq!(with(-32042, nonsense), 0, "{nonsense}");
        }
        assert_eq!(RpcError::fixed(-32042, "no data").required_urls(), []);
    }
}
