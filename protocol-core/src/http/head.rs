//! The heads of HTTP requests and responses: the parts that MCP uses.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The fields of a head, in order. Names are compared without regard to case.
///
/// ```
/// use protocol_core::http::Headers;
///
/// let headers: Headers<'_> = [("Accept", "text/event-stream"), ("accept", " application/json\t")].into_iter().collect();
/// assert_eq!(headers.get_all("ACCEPT").count(), 2);
/// assert!(headers.only("accept").is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    fields: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
}

/// The error for a field that occurs more than once although it must not be repeated, or whose value is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header is repeated, or is not text")]
pub struct AmbiguousHeader;

impl<'a> Headers<'a> {
    /// A list without fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Adds a field at the end. The name and the value are not checked.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let value = match value.into() {
            Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
            Cow::Owned(value) => Cow::Owned(value.into_bytes()),
        };
        self.fields.push((name.into(), value));
    }

    /// All fields with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The values of all fields with a name, in order, without spaces and tabs around the values.
    pub fn get_all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| trim(value))
    }

    /// The value of the only field with a name, without spaces and tabs around the value; `None` if there is no such field.
    ///
    /// # Errors
    /// [`AmbiguousHeader`] if there are several such fields, or the value is not UTF-8.
    pub fn only(&self, name: &str) -> Result<Option<&str>, AmbiguousHeader> {
        let mut values = self.get_all(name);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(AmbiguousHeader);
        }
        core::str::from_utf8(value).map(Some).map_err(|_| AmbiguousHeader)
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers<'a> {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a [u8])>>(fields: T) -> Self {
        Self { fields: fields.into_iter().map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))).collect() }
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Headers<'a> {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(fields: T) -> Self {
        fields.into_iter().map(|(name, value)| (name, value.as_bytes())).collect()
    }
}

/// Drops optional white space around the value of a field (RFC 9110, section 5.5).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Opens a stream of frames from the server, or resumes one.
    Get,
    /// Sends a frame.
    Post,
    /// Ends an HTTP session.
    Delete,
    /// Any other method.
    Other,
}

impl Method {
    /// The method with this name. Names are case-sensitive.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "DELETE" => Self::Delete,
            _ => Self::Other,
        }
    }

    /// The name of the method; empty for [`Method::Other`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Other => "",
        }
    }
}

/// The head of a request to a server. It does not contain the path, which is the same for all requests of MCP to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method,
    /// The authority in the target of the request, such as `:authority` of HTTP/2; `None` if the target has none. The request may have a
    /// header `Host` as well.
    pub authority: Option<Cow<'a, str>>,
    /// The header fields.
    pub headers: Headers<'a>,
}

impl<'a> RequestHead<'a> {
    /// A head without an authority.
    #[must_use]
    pub const fn new(method: Method, headers: Headers<'a>) -> Self {
        Self { method, authority: None, headers }
    }
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: u16,
    /// The header fields, without those that give the length of the body, such as `Content-Length`.
    pub headers: Headers<'a>,
}

impl<'a> ResponseHead<'a> {
    /// A head with this status and these header fields.
    #[must_use]
    pub const fn new(status: u16, headers: Headers<'a>) -> Self {
        Self { status, headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_values_are_trimmed() {
        let mut headers = Headers::new();
        headers.push("Mcp-Method", " \t tools/list\t ");
        headers.push("x", "");
        headers.push("y", " \t ");
        assert_eq!(headers.only("mcp-method"), Ok(Some("tools/list")));
        assert_eq!((headers.only("X"), headers.only("Y"), headers.only("z")), (Ok(Some("")), Ok(Some("")), Ok(None)));
        assert_eq!(headers.iter().next(), Some(("Mcp-Method", &b" \t tools/list\t "[..])));
    }

    #[test]
    fn a_field_that_is_repeated_or_not_text_is_ambiguous() {
        let twice: Headers<'_> = [("a", "1"), ("A", "1")].into_iter().collect();
        assert_eq!(twice.only("a"), Err(AmbiguousHeader));
        let bytes: Headers<'_> = [("a", &b"\xff"[..])].into_iter().collect();
        assert_eq!(bytes.only("a"), Err(AmbiguousHeader));
    }

    #[test]
    fn methods_are_case_sensitive() {
        for method in [Method::Get, Method::Post, Method::Delete] {
            assert_eq!(Method::from_name(method.as_str()), method);
        }
        assert_eq!((Method::from_name("post"), Method::from_name("")), (Method::Other, Method::Other));
    }
}
