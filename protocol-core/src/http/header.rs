//! The header fields of Streamable HTTP: their names, and the values that repeat a part of the body (Streamable HTTP 2026-07-28, "Standard
//! Headers" and "Custom Headers").
//!
//! `Mcp-Name` and `Mcp-Param-NAME` repeat text of the body. If the value of a field cannot contain the text as it is, the text is encoded
//! in base64, as `=?base64?DIGITS?=`.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::head::Headers;
use crate::json::base64::{base64, from_base64};
use crate::json::read::{Kind, Members, elements, member, string};
use crate::json::{Json, Text};

/// The forms of a response that the client accepts.
pub const ACCEPT: &str = "accept";
/// The methods that are served at the address.
pub const ALLOW: &str = "allow";
/// The instructions for caches.
pub const CACHE_CONTROL: &str = "cache-control";
/// The media type of the body.
pub const CONTENT_TYPE: &str = "content-type";
/// The name of the header field with the encoding of a body.
pub const CONTENT_ENCODING: &str = "content-encoding";
/// The name of the header field with the length of a body.
pub const CONTENT_LENGTH: &str = "content-length";
/// The host that the request was made to.
pub const HOST: &str = "host";
/// The id of the last event that a client got, from which it resumes a stream.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// The address that a response redirects to.
pub const LOCATION: &str = "location";
/// The method of the request in the body.
pub const METHOD: &str = "mcp-method";
/// The tool, prompt, resource or task that the request in the body names.
pub const NAME: &str = "mcp-name";
/// The origin of the page that made the request.
pub const ORIGIN: &str = "origin";
/// The beginning of the name of a field that repeats an argument.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// The time in seconds after which a client may try again.
pub const RETRY_AFTER: &str = "retry-after";
/// The id of the session.
pub const SESSION_ID: &str = "mcp-session-id";
/// The version of the protocol.
pub const VERSION: &str = "mcp-protocol-version";
/// The ways in which a caller can prove who it is.
pub const WWW_AUTHENTICATE: &str = "www-authenticate";
/// Tells some proxies not to collect a response before they pass it on.
pub const X_ACCEL_BUFFERING: &str = "x-accel-buffering";

/// The encoding of a body; `None` if the body is as it is.
pub(crate) fn encoding<'h>(headers: &'h Headers<'_>) -> Option<&'h [u8]> {
    headers.get_all(CONTENT_ENCODING).find(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
}

/// The longest session id that a client accepts, in bytes.
const MAX_SESSION_ID: usize = 1024;

/// Returns `true` if text can be a session id: visible ASCII, 1 to 1024 bytes (Transports 2025-11-25, "Session Management").
#[must_use]
pub fn is_session_id(text: &str) -> bool {
    (1..=MAX_SESSION_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The error for the value of a field that is neither plain text (visible ASCII, spaces and tabs) nor valid base64 of UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the header cannot be decoded")]
pub struct Undecodable;

/// Encodes text as the value of a field: as it is, or in base64 if a field cannot contain the text as it is, or if the text has the form of
/// a value in base64.
///
/// ```
/// use protocol_core::http::header::{decode, encode};
///
/// assert_eq!(encode("Hello"), "Hello");
/// assert_eq!(encode("grün"), "=?base64?Z3LDvG4=?=");
/// assert_eq!(decode(b"=?base64?Z3LDvG4=?=")?, "grün");
/// # Ok::<(), protocol_core::http::header::Undecodable>(())
/// ```
#[must_use]
pub fn encode(text: &str) -> Cow<'_, str> {
    let has_outer_space = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    if is_plain(text.as_bytes()) && !has_outer_space && digits_of(text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut value = String::from(BEGIN);
    value.push_str(&base64(text.as_bytes()));
    value.push_str(END);
    Cow::Owned(value)
}

/// Decodes the value of a field. There must be no white space around the value.
///
/// # Errors
/// [`Undecodable`] if the value is neither plain text (visible ASCII, spaces and tabs) nor valid base64 of UTF-8.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, Undecodable> {
    match digits_of(value) {
        Some(digits) => {
            let bytes = from_base64(digits).ok_or(Undecodable)?;
            String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Undecodable)
        }
        None if is_plain(value) => core::str::from_utf8(value).map(Cow::Borrowed).map_err(|_| Undecodable),
        None => Err(Undecodable),
    }
}

const BEGIN: &str = "=?base64?";
const END: &str = "?=";

/// The digits of a value in base64; `None` for plain text. A value with only the beginning or only the end of that form is plain text.
fn digits_of(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(BEGIN.as_bytes())?.strip_suffix(END.as_bytes())
}

fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t'))
}

/// The error for a header field that contradicts the body (MCP 2026-07-28, error -32020).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The field is missing.
    #[error("the header {0} is missing")]
    Missing(Text),
    /// The field is repeated, or its value cannot be decoded.
    #[error("the header {0} is repeated or cannot be decoded")]
    Unreadable(Text),
    /// The field and the body differ.
    #[error("the header {0} and the body differ")]
    Different(Text),
}

/// The decoded value of the only field with a name; `None` if there is no such field.
///
/// # Errors
/// [`Mismatch::Unreadable`] if there are several such fields, or the value cannot be decoded.
pub fn decoded<'h>(headers: &'h Headers<'_>, name: &str) -> Result<Option<Cow<'h, str>>, Mismatch> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => decode(value).map(Some).map_err(|Undecodable| Mismatch::Unreadable(name.into())),
        (Some(_), Some(_)) => Err(Mismatch::Unreadable(name.into())),
    }
}

// ---- Arguments in headers ----

/// The type of an argument that a header field repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamKind {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// An argument that a header field repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Param {
    /// The name of the field.
    field: Text,
    /// The names of the members that lead to the argument, from the outermost object on.
    path: Vec<Text>,
    kind: ParamKind,
}

/// The arguments of one tool that header fields repeat: the properties of its input schema with the annotation `x-mcp-header`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    params: Vec<Param>,
}

/// The error for an annotation `x-mcp-header` that is not allowed. A client leaves a tool with this error out of its list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAnnotation {
    /// The name is not a token (RFC 9110, section 5.6.2).
    #[error("x-mcp-header is not a token")]
    Name,
    /// Two names are equal, apart from upper and lower case.
    #[error("two properties have the header {0}")]
    Repeated(Text),
    /// The property is neither text, nor an integer, nor a boolean.
    #[error("the property of the header {0} is neither a string, nor an integer, nor a boolean")]
    Type(Text),
    /// There are more than 100 annotations. Many HTTP servers accept only about 100 header fields.
    #[error("more than {MAX_PARAMS} properties have x-mcp-header")]
    TooMany,
    /// The annotation is on no property, or on a property that has no fixed place in the arguments, since a keyword other than `properties`
    /// leads to it, such as `items`.
    #[error("x-mcp-header is not on a property with a fixed place in the arguments")]
    Place,
}

/// The error for an argument that has another type than its annotated property. The call must not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the argument of the header {0} has the wrong type")]
pub struct WrongArgument(pub Text);

const ANNOTATION: &str = "x-mcp-header";
/// The maximum number of annotations in a schema.
const MAX_PARAMS: usize = 100;
/// Keywords whose value is a schema, or an array of schemas.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is an object with a schema in each member.
const MAPS_OF_SCHEMAS: [&str; 4] = ["$defs", "definitions", "dependentSchemas", "patternProperties"];

impl ParamHeaders {
    /// Reads the annotations of an input schema.
    ///
    /// # Errors
    /// [`InvalidAnnotation`] if an annotation is not allowed.
    pub fn of_schema(schema: &Json) -> Result<Self, InvalidAnnotation> {
        let mut found = Self::default();
        found.read_schema(schema.as_bytes(), Some(&mut Vec::new()))?;
        Ok(found)
    }

    /// Returns `true` if there is no annotation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// Reads one schema. `path` leads to the values that the schema describes; it is `None` if they are not always at the same place.
    fn read_schema(&mut self, schema: &[u8], mut path: Option<&mut Vec<Text>>) -> Result<(), InvalidAnnotation> {
        for (key, value) in Members::of(schema).into_iter().flatten() {
            let name = key.name();
            if name == ANNOTATION {
                let path = path.as_deref().filter(|path| !path.is_empty()).ok_or(InvalidAnnotation::Place)?;
                self.add(value, schema, path)?;
            } else if name == "properties" {
                for (property, value) in Members::of(value).into_iter().flatten() {
                    match &mut path {
                        Some(path) => {
                            path.push(Text::from(&*property.name()));
                            self.read_schema(value, Some(path))?;
                            path.pop();
                        }
                        None => self.read_schema(value, None)?,
                    }
                }
            } else if SCHEMAS.contains(&&*name) {
                self.read_schema(value, None)?;
                for element in elements(value) {
                    self.read_schema(element, None)?;
                }
            } else if MAPS_OF_SCHEMAS.contains(&&*name) {
                for (_, value) in Members::of(value).into_iter().flatten() {
                    self.read_schema(value, None)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &[u8], schema: &[u8], path: &[Text]) -> Result<(), InvalidAnnotation> {
        let name = string(name).filter(|name| is_token(name)).ok_or(InvalidAnnotation::Name)?;
        let kind = match member(schema, "type").and_then(string).as_deref() {
            Some("string") => ParamKind::String,
            Some("integer") => ParamKind::Integer,
            Some("boolean") => ParamKind::Boolean,
            _ => return Err(InvalidAnnotation::Type(Text::from(&*name))),
        };
        if self.params.len() >= MAX_PARAMS {
            return Err(InvalidAnnotation::TooMany);
        }
        let mut field = String::from(PARAM_PREFIX);
        field.push_str(&name);
        if self.params.iter().any(|param| param.field.eq_ignore_ascii_case(&field)) {
            return Err(InvalidAnnotation::Repeated(Text::from(&*name)));
        }
        self.params.push(Param { field: field.into(), path: path.to_vec(), kind });
        Ok(())
    }

    /// Adds the fields that repeat these arguments of a call. An argument that is missing or `null` has no field.
    ///
    /// # Errors
    /// [`WrongArgument`] if an argument has the wrong type; some fields may have been added by then.
    pub fn write(&self, arguments: &Json, headers: &mut Headers<'_>) -> Result<(), WrongArgument> {
        for param in &self.params {
            let Some(value) = argument(arguments.as_bytes(), &param.path) else { continue };
            let wrong = || WrongArgument(param.field.clone());
            let text = match (param.kind, Kind::of(value)) {
                (ParamKind::String, Kind::String) => string(value).ok_or_else(wrong)?,
                (ParamKind::Integer, Kind::Number) if whole_number(value).is_some() => text_of(value),
                (ParamKind::Boolean, _) if matches!(value, b"true" | b"false") => text_of(value),
                _ => return Err(wrong()),
            };
            headers.push(String::from(&*param.field), encode(&text).into_owned());
        }
        Ok(())
    }

    /// Checks the fields against the arguments of a call. Each argument must have a field that agrees with it, but an argument that is
    /// missing or `null` must have no field. Whole numbers are compared by value. `arguments` must be valid JSON.
    ///
    /// # Errors
    /// [`Mismatch`] if the fields contradict the arguments.
    pub fn check(&self, arguments: &[u8], headers: &Headers<'_>) -> Result<(), Mismatch> {
        for param in &self.params {
            let field = decoded(headers, &param.field)?;
            match (argument(arguments, &param.path), field) {
                (None, None) => {}
                (Some(_), None) => return Err(Mismatch::Missing(param.field.clone())),
                (Some(value), Some(field)) if agrees(value, &field) => {}
                _ => return Err(Mismatch::Different(param.field.clone())),
            }
        }
        Ok(())
    }
}

/// The argument at a path, unless it is `null`.
fn argument<'a>(arguments: &'a [u8], path: &[Text]) -> Option<&'a [u8]> {
    path.iter().try_fold(arguments, |value, name| member(value, name)).filter(|value| *value != b"null")
}

/// Returns `true` if the value of a field equals an argument of any type.
fn agrees(argument: &[u8], field: &str) -> bool {
    match Kind::of(argument) {
        Kind::String => string(argument).as_deref() == Some(field),
        Kind::Number => match (whole_number(argument), whole_number(field.as_bytes())) {
            (Some(argument), Some(field)) => argument == field,
            _ => argument == field.as_bytes(),
        },
        _ => matches!(argument, b"true" | b"false") && argument == field.as_bytes(),
    }
}

fn text_of(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}

/// The value of a number in the syntax of JSON, if it is whole and fits into 128 bits.
fn whole_number(text: &[u8]) -> Option<i128> {
    let (is_negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    let length_until = |text: &[u8], is_end: &dyn Fn(&u8) -> bool| text.iter().position(is_end).unwrap_or(text.len());
    let (mantissa, exponent) = digits.split_at_checked(length_until(digits, &|byte| matches!(byte, b'e' | b'E')))?;
    let (whole, fraction) = mantissa.split_at_checked(length_until(mantissa, &|byte| *byte == b'.'))?;
    let fraction = match fraction {
        [] => fraction,
        [b'.', fraction @ ..] if !fraction.is_empty() => fraction,
        _ => return None,
    };
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !is_number(whole) || (whole.len() > 1 && whole.starts_with(b"0")) || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = match exponent {
        [] => 0,
        [_, b'-', digits @ ..] if is_number(digits) => core::str::from_utf8(digits).ok()?.parse::<i64>().ok()?.checked_neg()?,
        [_, b'+', digits @ ..] | [_, digits @ ..] if is_number(digits) => core::str::from_utf8(digits).ok()?.parse::<i64>().ok()?,
        _ => return None,
    };
    // The zeros at the end of the digits are counted in the power of ten. Then the number is whole only if the power is not negative.
    let mut value: i128 = 0;
    let mut power = exponent;
    let mut zeros: u32 = 0;
    for (digit, is_fraction) in whole.iter().map(|digit| (digit, false)).chain(fraction.iter().map(|digit| (digit, true))) {
        power = power.checked_sub(i64::from(is_fraction))?;
        if *digit == b'0' {
            zeros = zeros.checked_add(1)?;
            continue;
        }
        let scale = 10_i128.checked_pow(zeros.checked_add(1)?);
        value = if value == 0 { 0 } else { value.checked_mul(scale?)? };
        value = value.checked_add(i128::from(digit & 0xf))?;
        zeros = 0;
    }
    if value == 0 {
        return Some(0);
    }
    let power = u32::try_from(power.checked_add(i64::from(zeros))?).ok()?;
    let value = value.checked_mul(10_i128.checked_pow(power)?)?;
    Some(if is_negative { value.checked_neg()? } else { value })
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn text_that_a_field_cannot_contain_is_encoded_in_base64() {
        for plain in ["", "Hello", "a b\tc", "=?base64?", "?=", "=?base64?=", "=?Base64?SGVsbG8=?=", "x=?base64?SGVsbG8=?="] {
            assert_eq!(encode(plain), plain);
        }
        for (text, value) in [
            (" a", "=?base64?IGE=?="),
            ("a\t", "=?base64?YQk=?="),
            ("\u{e9}", "=?base64?w6k=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?SGVsbG8=?=", "=?base64?PT9iYXNlNjQ/U0dWc2JHOD0/PQ==?="),
            ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
        ] {
            assert_eq!(encode(text), value);
        }
    }

    #[test]
    fn every_text_is_decoded_as_it_was_encoded() {
        let alphabet = ["", "a", " ", "\t", "\n", "\0", "\u{7f}", "\u{e4}", "\u{1f600}", "=?base64?", "?=", "="];
        for one in alphabet {
            for two in alphabet {
                for three in alphabet {
                    let text = [one, two, three].concat();
                    let value = encode(&text);
                    assert!(is_plain(value.as_bytes()), "{value:?}");
                    assert_eq!(value.trim(), value, "{text:?}");
                    assert_eq!(decode(value.as_bytes()).as_deref(), Ok(&*text));
                }
            }
        }
    }

    #[test]
    fn a_value_that_is_neither_plain_text_nor_base64_of_text_is_undecodable() {
        assert_eq!(decode(b"=?base64?SGVsbG8=?=").as_deref(), Ok("Hello"));
        assert_eq!(decode(b"=?base64??=").as_deref(), Ok(""));
        assert_eq!(decode(b"=?base64?SGVsbG8=").as_deref(), Ok("=?base64?SGVsbG8="), "without its end it is text");
        assert_eq!(decode(b"SGVsbG8=?=").as_deref(), Ok("SGVsbG8=?="));
        for bad in
            ["SGVsbG8", "SGVsbG8?", "SGVs*G8=", "SGVsbG9=", "SGVs=G8=", "SGVsbG8==", "====", "A===", "SGVs bG8=", "/w==", "_w=="]
        {
            let value = ["=?base64?", bad, "?="].concat();
            assert_eq!(decode(value.as_bytes()), Err(Undecodable), "{bad}");
        }
        for bad in [&b"\xc3\xa9"[..], b"\xff", b"a\nb", b"\0", b"\x7f"] {
            assert_eq!(decode(bad), Err(Undecodable), "{bad:?}");
        }
    }

    #[test]
    fn a_session_id_is_visible_ascii() {
        assert!(is_session_id("!~") && is_session_id(&"x".repeat(MAX_SESSION_ID)));
        for bad in ["", " ", "a b", "\u{e4}", "a\n", "\x7f", &"x".repeat(MAX_SESSION_ID + 1)] {
            assert!(!is_session_id(bad), "{bad:?}");
        }
    }

    fn of_schema(schema: &str) -> Result<ParamHeaders, InvalidAnnotation> {
        ParamHeaders::of_schema(&Json::parse(schema.to_string()).unwrap())
    }

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "count":{"type":"integer","x-mcp-header":"Count"},
        "deep":{"type":"object","properties":{"properties":{"type":"boolean","x-mcp-header":"Flag"}}},
        "x-mcp-header":{"type":"string"},
        "plain":{"type":"number","default":{"x-mcp-header":7},"enum":[{"x-mcp-header":""}]}}}"#;

    /// The fields of a call with these arguments.
    fn fields(arguments: &str) -> Result<Vec<(String, String)>, WrongArgument> {
        let mut headers = Headers::new();
        of_schema(SCHEMA).unwrap().write(&Json::parse(arguments.to_string()).unwrap(), &mut headers)?;
        Ok(headers.iter().map(|(name, value)| (name.to_string(), String::from_utf8(value.to_vec()).unwrap())).collect())
    }

    #[test]
    fn annotated_arguments_become_fields_and_absent_ones_and_null_do_not() {
        let field = |name: &str, value: &str| (name.to_string(), value.to_string());
        let all = r#"{"region":"\u00fc","count":-42,"deep":{"properties":false},"plain":1.5,"x-mcp-header":"x"}"#;
        let expected =
            [field("mcp-param-Region", "=?base64?w7w=?="), field("mcp-param-Count", "-42"), field("mcp-param-Flag", "false")];
        assert_eq!(fields(all).unwrap(), expected);
        assert_eq!(fields(r#"{"region":"","count":null,"deep":7}"#).unwrap(), [field("mcp-param-Region", "")]);
        assert_eq!(fields("{}").unwrap(), []);
        for (wrong, name) in [(r#"{"region":1}"#, "Region"), (r#"{"count":1.5}"#, "Count"), (r#"{"count":"1"}"#, "Count")] {
            assert_eq!(fields(wrong), Err(WrongArgument(["mcp-param-", name].concat().into())));
        }
        assert!(fields(r#"{"deep":{"properties":1}}"#).is_err() && fields(r#"{"region":{}}"#).is_err());
    }

    #[test]
    fn an_annotation_that_is_wrong_misplaced_repeated_or_one_too_many_is_invalid() {
        let property = |inside: &str| of_schema(&[r#"{"properties":{"a":{"#, inside, "}}}"].concat());
        for name in ["", "a b", "a:b", "\u{e4}", "a\\n", "(a)"] {
            let inside = [r#""type":"string","x-mcp-header":""#, name, "\""].concat();
            assert_eq!(property(&inside), Err(InvalidAnnotation::Name), "{name}");
        }
        assert_eq!(property(r#""type":"string","x-mcp-header":7"#), Err(InvalidAnnotation::Name));
        for kind in [r#""number""#, r#""object""#, r#""array""#, r#""null""#, r#"["string","null"]"#, "7"] {
            let inside = [r#""x-mcp-header":"X","type":"#, kind].concat();
            assert_eq!(property(&inside), Err(InvalidAnnotation::Type("X".into())), "{kind}");
        }
        assert_eq!(property(r#""x-mcp-header":"X""#), Err(InvalidAnnotation::Type("X".into())), "no type");
        let x = r#"{"type":"string","x-mcp-header":"X"}"#;
        let twice = r#"{"properties":{"a":{"type":"string","x-mcp-header":"x"},"b":{"type":"string","x-mcp-header":"X"}}}"#;
        assert_eq!(of_schema(twice), Err(InvalidAnnotation::Repeated("X".into())));
        assert_eq!(of_schema(x), Err(InvalidAnnotation::Place), "the schema itself is no property");
        for around in [
            [r#"{"properties":{"a":{"items":"#, x, "}}}"].concat(),
            [r#"{"properties":{"a":{"items":{"properties":{"b":"#, x, "}}}}}"].concat(),
            [r#"{"allOf":[{"properties":{"a":"#, x, "}}]}"].concat(),
            [r#"{"$defs":{"a":"#, x, "}}"].concat(),
            [r#"{"additionalProperties":"#, x, "}"].concat(),
            [r#"{"patternProperties":{"a":"#, x, "}}"].concat(),
        ] {
            assert_eq!(of_schema(&around), Err(InvalidAnnotation::Place), "{around}");
        }
        let many = |count: usize| {
            let property = |at| alloc::format!(r#""p{at}":{{"type":"string","x-mcp-header":"X{at}"}}"#);
            of_schema(&[r#"{"properties":{"#, &(0..count).map(property).collect::<Vec<_>>().join(","), "}}"].concat())
        };
        assert!(many(MAX_PARAMS).is_ok());
        assert_eq!(many(MAX_PARAMS + 1), Err(InvalidAnnotation::TooMany));
        let named_so = r#"{"properties":{"a":{"items":{"properties":{"x-mcp-header":{"type":"string"}}}}}}"#;
        assert!(of_schema(named_so).unwrap().is_empty(), "a property of that name is no annotation");
    }

    #[test]
    fn fields_and_arguments_must_agree_by_value() {
        let schema = of_schema(SCHEMA).unwrap();
        let check = |arguments: &str, fields: &[(&'static str, &'static str)]| {
            schema.check(arguments.as_bytes(), &fields.iter().copied().collect())
        };
        for (arguments, field, value) in [
            (r#"{"region":"Hello"}"#, "Mcp-Param-Region", "=?base64?SGVsbG8=?="),
            (r#"{"region":"Hello"}"#, "MCP-PARAM-REGION", "  Hello\t"),
            (r#"{"region":""}"#, "mcp-param-region", ""),
            (r#"{"count":42}"#, "mcp-param-count", "42.0"),
            (r#"{"count":4.20e1}"#, "mcp-param-count", "42"),
            (r#"{"count":12345678901234567890}"#, "mcp-param-count", "12345678901234567890"),
            (r#"{"deep":{"properties":true}}"#, "mcp-param-flag", "true"),
        ] {
            assert_eq!(check(arguments, &[(field, value)]), Ok(()), "{arguments} {value}");
        }
        assert_eq!(check("{}", &[("mcp-param-other", "x")]), Ok(()), "a field without an annotation is ignored");
        let field = Text::from("mcp-param-Region");
        assert_eq!(check(r#"{"region":"x"}"#, &[]), Err(Mismatch::Missing(field.clone())));
        let twice = [("mcp-param-region", "x"), ("mcp-param-region", "x")];
        assert_eq!(check(r#"{"region":"x"}"#, &twice), Err(Mismatch::Unreadable(field.clone())));
        assert_eq!(check(r#"{"region":"x"}"#, &[("mcp-param-region", "=?base64?*?=")]), Err(Mismatch::Unreadable(field.clone())));
        for (arguments, value) in
            [(r#"{"region":"x"}"#, "X"), ("{}", "x"), (r#"{"region":null}"#, "null"), (r#"{"region":{}}"#, "{}")]
        {
            assert_eq!(check(arguments, &[("mcp-param-region", value)]), Err(Mismatch::Different(field.clone())), "{arguments}");
        }
        let count = |argument: &str, field: &'static str| {
            check(&["{\"count\":", argument, "}"].concat(), &[("mcp-param-count", field)]).is_ok()
        };
        assert!(!count("9007199254740993", "9007199254740992.0"), "not compared as doubles");
        assert!(!count("42", "042") && !count("42", "+42") && !count("42", "") && !count("true", "1"));
    }

    #[test]
    fn whole_numbers_are_exact_and_bounded() {
        for (text, value) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("0.000", Some(0)),
            ("0e999999999999", Some(0)),
            ("100", Some(100)),
            ("1e2", Some(100)),
            ("1E+2", Some(100)),
            ("-100.00e-2", Some(-1)),
            ("1050e-1", Some(105)),
            ("1.5", None),
            ("1e-1", None),
            ("1e40", None),
            ("1e9223372036854775807", None),
            ("1e-99999999999999999999", None),
            ("99999999999999999999999999999999999999999", None),
            ("", None),
            ("-", None),
            (".5", None),
            ("5.", None),
            ("1e", None),
            ("0x1", None),
        ] {
            assert_eq!(whole_number(text.as_bytes()), value, "{text}");
        }
    }
}
