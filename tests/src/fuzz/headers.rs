//! Headers of any bytes: an encoded value can be decoded again, and the headers that are written for a request agree with the request.

use protocol_core::Json;
use protocol_core::http::accept::{Accepted, JSON, is_media_type};
use protocol_core::http::header::{ParamHeaders, decode, encode, is_session_id};
use protocol_core::http::origin::{self, Allowed};
use protocol_core::http::sse::EventId;
use protocol_core::http::{Headers, Method, RequestHead};

/// Takes each line of `data` as the value of a header, and the first two also as a schema and the arguments of a call.
pub fn headers(data: &[u8]) {
    let values: Vec<_> = data.split(|byte| *byte == b'\n').collect();
    for value in &values {
        codec(value);
        hosts(value);
        lists(value);
    }
    if let [schema, arguments, ..] = values[..] {
        params(schema, arguments);
    }
}

fn codec(value: &[u8]) {
    if let Ok(text) = core::str::from_utf8(value) {
        let encoded = encode(text);
        assert!(encoded.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')), "a field can carry {encoded:?}");
        assert_eq!(encoded.trim_matches([' ', '\t']), encoded, "the field has no white space around it");
        assert_eq!(decode(encoded.as_bytes()).as_deref(), Ok(text));
        if let Some(id) = EventId::parse(text) {
            assert_eq!(id.to_string(), text, "an id has one form");
        }
        assert!(!is_session_id(text) || encode(text) == text || text.starts_with("=?base64?"));
    }
    if let Ok(text) = decode(value) {
        assert_eq!(decode(encode(&text).as_bytes()).as_deref(), Ok(&*text));
    }
}

fn hosts(value: &[u8]) {
    let passes = |host: &[u8], origin: Option<&[u8]>, hosts: &Allowed, origins: &Allowed| {
        let fields = [("host", Some(host)), ("origin", origin)];
        let headers: Headers<'_> = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        origin::check(&RequestHead::new(Method::Post, headers), hosts, origins).is_ok()
    };
    let loopback = Allowed::Loopback;
    let is_local = |text: &str| ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| text.to_ascii_lowercase().contains(name));
    let text = core::str::from_utf8(value).unwrap_or_default();
    if passes(value, None, &loopback, &loopback) {
        assert!(is_local(text), "{text} is not this machine");
        let listed = Allowed::only([text.trim_matches([' ', '\t'])]);
        assert!(passes(value, None, &listed, &loopback), "a listed host is accepted");
    }
    if passes(b"localhost", Some(value), &loopback, &loopback) {
        assert!(is_local(text) && text.to_ascii_lowercase().contains("http"), "{text} is not of this machine");
        let listed = Allowed::only([text.trim_matches([' ', '\t'])]);
        assert!(passes(b"localhost", Some(value), &loopback, &listed), "a listed origin is accepted");
    }
    assert!(passes(value, Some(value), &Allowed::Any, &Allowed::Any));
}

fn lists(value: &[u8]) {
    let accepted = Accepted::read([value].into_iter());
    let is_named = |name: &str| {
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        text.contains(name) || text.contains("/*")
    };
    assert!(!accepted.json || is_named("application/json"));
    assert!(!accepted.event_stream || is_named("text/event-stream"));
    if is_media_type(value, JSON) {
        assert!(is_named(JSON));
    }
}

/// Checks that the fields that are written for arguments are accepted with these arguments, and refused with others.
fn params(schema: &[u8], arguments: &[u8]) {
    let (Ok(schema), Ok(arguments)) = (Json::parse(schema.to_vec()), Json::parse(arguments.to_vec())) else { return };
    let Ok(params) = ParamHeaders::of_schema(&schema) else { return };
    let mut written = Headers::new();
    if params.write(&arguments, &mut written).is_err() {
        return;
    }
    assert_eq!(params.check(arguments.as_bytes(), &written), Ok(()));
    let has_fields = written.iter().next().is_some();
    assert_eq!(params.check(arguments.as_bytes(), &Headers::new()).is_err(), has_fields, "a missing field is an error");
    assert_eq!(params.check(b"{}", &written).is_err(), has_fields, "a field without an argument is an error");
}
