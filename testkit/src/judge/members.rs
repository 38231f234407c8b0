//! The members of an object as they are written, found without the JSON reader of `protocol-core`, which is under test.

/// The members of valid JSON text: each name and each value as written. Empty if the text is not an object.
pub(super) fn members(text: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let (mut from, mut name) = (0, None);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => {
                depth += 1;
                if depth == 1 {
                    if byte == b'[' {
                        return Vec::new();
                    }
                    from = at + 1;
                }
            }
            b':' if depth == 1 => {
                name = Some(text[from..at].trim());
                from = at + 1;
            }
            b',' | b'}' if depth == 1 => {
                if let Some(name) = name.take() {
                    all.push((name, text[from..at].trim()));
                }
                from = at + 1;
                depth -= usize::from(byte == b'}');
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    all
}

/// Replaces line breaks by spaces, as a session does between tokens.
fn flat(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Returns `true` if a frame contains a payload: the whole payload, or each of the payload's members except `_meta`.
pub(super) fn carries(frame: &str, payload: &str) -> bool {
    carries_without(frame, payload, &["_meta"])
}

/// [`carries`] for the parameters of a request of ours, except `invocationId`, which the session writes itself.
pub(super) fn carries_request(frame: &str, payload: &str) -> bool {
    carries_without(frame, payload, &["_meta", "invocationId"])
}

fn carries_without(frame: &str, payload: &str, exempt: &[&str]) -> bool {
    let is_exempt = |name: &str| serde_json::from_str::<String>(name).is_ok_and(|name| exempt.contains(&&*name));
    let frame = flat(frame);
    let has = |part: &str| frame.contains(flat(part).trim());
    let is_object = payload.trim_start().starts_with('{');
    has(payload) || (is_object && members(payload).iter().all(|(name, value)| is_exempt(name) || has(value)))
}

/// The name of a member of the envelope that is written twice.
pub(super) fn repeated(frame: &str) -> Option<String> {
    let names = members(frame).into_iter().filter_map(|(name, _)| serde_json::from_str::<String>(name).ok());
    let mut seen = Vec::new();
    names.filter(|name| ["jsonrpc", "id", "method", "params", "result", "error"].contains(&name.as_str())).find(|name| {
        let is_known = seen.contains(name);
        seen.push(name.clone());
        is_known
    })
}

#[test]
fn members_carried_payloads_and_repeated_names_are_found() {
    let text = r#"{ "a" : {"b":[1,2]} ,"c\"}":"x,y:\\", "a":3}"#;
    assert_eq!(members(text), [(r#""a""#, r#"{"b":[1,2]}"#), (r#""c\"}""#, r#""x,y:\\""#), (r#""a""#, "3")]);
    assert_eq!(members("{}"), []);
    assert_eq!(members("[{}]"), []);
    assert_eq!(repeated(r#"{"id":1,"\u0069d":2}"#).as_deref(), Some("id"));
    assert!(carries("{\"_meta\":{}}", "{ }") && !carries("{}", "[]"));
    assert!(carries("{\"p\":{\"n\":{\"a\": 1.50}}}", "{\n\"a\": 1.50}") && !carries("{\"a\":1.5}", "{\"a\":1.50}"));
}
