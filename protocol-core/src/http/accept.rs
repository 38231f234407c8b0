//! Media types, and the ranges of media types that a client accepts (RFC 9110, sections 8.3 and 12.5.1).

/// The media type of a body that is one frame.
pub const JSON: &str = "application/json";
/// The media type of a body that is a stream of events.
pub const EVENT_STREAM: &str = "text/event-stream";
/// The value that nearly all clients send. It is recognized without parsing, since parsing would be an eighth of the work for a short
/// request.
const BOTH: &[u8] = b"application/json, text/event-stream";

/// The forms of a response that a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// `true` if the client accepts one frame as JSON.
    pub json: bool,
    /// `true` if the client accepts a stream of events.
    pub event_stream: bool,
}

impl Accepted {
    /// Reads the values of all `Accept` fields. If there are none, everything is accepted. For each media type, the most specific range
    /// that contains it counts; a range with the weight zero means that the type is not accepted. A range that is not well-formed is
    /// ignored.
    #[must_use]
    pub fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut json, mut event_stream) = (Verdict::default(), Verdict::default());
        let mut is_absent = true;
        for value in values {
            is_absent = false;
            if value == BOTH {
                (json, event_stream) = (json.with_exact(), event_stream.with_exact());
                continue;
            }
            for range in split_list(value, b',').filter_map(Range::parse) {
                json.add(&range, JSON);
                event_stream.add(&range, EVENT_STREAM);
            }
        }
        Self { json: is_absent || json.is_accepted, event_stream: is_absent || event_stream.is_accepted }
    }
}

/// Returns `true` if a value of `Content-Type` is `media_type`, with any parameters.
#[must_use]
pub fn is_media_type(value: &[u8], media_type: &str) -> bool {
    let essence = split_list(value, b';').next().unwrap_or_default();
    essence.eq_ignore_ascii_case(media_type.as_bytes())
}

/// The most specific range so far that contains a media type.
#[derive(Default)]
struct Verdict {
    specificity: u8,
    is_accepted: bool,
}

impl Verdict {
    /// The verdict after a range that names the media type exactly and accepts it. It does not depend on earlier ranges, since of equally
    /// specific ranges one that accepts is enough.
    const fn with_exact(self) -> Self {
        Self { specificity: Range::EXACT, is_accepted: true }
    }

    fn add(&mut self, range: &Range<'_>, media_type: &str) {
        let Some(specificity) = range.specificity(media_type) else { return };
        if specificity > self.specificity {
            *self = Self { specificity, is_accepted: range.is_accepted };
        } else if specificity == self.specificity {
            self.is_accepted |= range.is_accepted;
        }
    }
}

struct Range<'a> {
    main: &'a [u8],
    sub: &'a [u8],
    /// `false` if its weight is zero.
    is_accepted: bool,
}

impl<'a> Range<'a> {
    /// The specificity of a range that names one media type.
    const EXACT: u8 = 3;

    fn parse(text: &'a [u8]) -> Option<Self> {
        let mut parts = split_list(text, b';');
        let essence = parts.next()?;
        let slash = essence.iter().position(|byte| *byte == b'/')?;
        let (main, sub) = (essence.get(..slash)?, essence.get(slash.checked_add(1)?..)?);
        if main.is_empty() || sub.is_empty() || sub.contains(&b'/') || (main == b"*" && sub != b"*") {
            return None;
        }
        let mut is_accepted = true;
        for parameter in parts {
            if let [b'q' | b'Q', b'=', weight @ ..] = parameter {
                is_accepted = is_positive(weight)?;
            }
        }
        Some(Self { main, sub, is_accepted })
    }

    /// The rank of the range: the higher, the more exactly it names the media type. `None` if it does not contain the media type.
    fn specificity(&self, media_type: &str) -> Option<u8> {
        let (main, sub) = media_type.split_once('/')?;
        match (self.main, self.sub) {
            (b"*", _) => Some(1),
            (name, b"*") => name.eq_ignore_ascii_case(main.as_bytes()).then_some(2),
            (name, kind) => {
                (name.eq_ignore_ascii_case(main.as_bytes()) && kind.eq_ignore_ascii_case(sub.as_bytes())).then_some(Self::EXACT)
            }
        }
    }
}

/// Reads a weight: 0 to 1, with at most three digits after the point. Returns `true` if it is above 0, and `None` if it is malformed.
fn is_positive(weight: &[u8]) -> Option<bool> {
    let (whole, decimals) = match weight {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    let is_proper = decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit);
    let is_zero = decimals.iter().all(|digit| *digit == b'0');
    match whole {
        b'0' if is_proper => Some(!is_zero),
        b'1' if is_proper && is_zero => Some(true),
        _ => None,
    }
}

/// The elements of a list, without white space around them. A separator within quotes is a part of its element.
fn split_list(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_separator = move |byte: &u8| {
        let separates = *byte == separator && !is_quoted;
        if is_escaped {
            is_escaped = false;
        } else if is_quoted && *byte == b'\\' {
            is_escaped = true;
        } else if *byte == b'"' {
            is_quoted = !is_quoted;
        }
        separates
    };
    text.split(is_separator).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(values: &[&str]) -> (bool, bool) {
        let Accepted { json, event_stream } = Accepted::read(values.iter().map(|value| value.as_bytes()));
        (json, event_stream)
    }

    #[test]
    fn both_types_are_accepted_by_name_by_wildcard_or_without_a_header() {
        for values in [
            &["application/json, text/event-stream"][..],
            &["text/event-stream", "application/json"],
            &["Application/JSON ; charset=utf-8 , TEXT/Event-Stream;q=0.001"],
            &["*/*"],
            &["application/*, text/*;q=0.5"],
            &["text/html, application/xhtml+xml, */*;q=0.8"],
            &[r#"application/json;a=",\",";q=1.000,text/event-stream"#],
            &[],
        ] {
            assert_eq!(accepted(values), (true, true), "{values:?}");
        }
    }

    #[test]
    fn whole_types_are_compared_and_the_most_specific_range_decides() {
        for (value, expected) in [
            ("application/json", (true, false)),
            ("text/event-stream", (false, true)),
            ("", (false, false)),
            ("application/jsonp, xtext/event-stream", (false, false)),
            ("application/problem+json, text/event-streams", (false, false)),
            ("application/json;q=0, text/event-stream;q=0.0", (false, false)),
            ("*/*, application/json;q=0", (false, true)),
            ("text/*;q=0, text/event-stream, application/json", (true, true)),
            ("*/*;q=0", (false, false)),
            ("text/event-stream; q=2, application/json; q=x", (false, false)),
            ("*/json, json, /, application/, application/json/x", (false, false)),
            (r#"text/plain;a="application/json,text/event-stream""#, (false, false)),
        ] {
            assert_eq!(accepted(&[value]), expected, "{value:?}");
        }
    }

    #[test]
    fn the_usual_value_which_is_not_parsed_has_the_same_effect_as_its_parsed_form() {
        for other in ["*/*", "*/*;q=0", "application/json;q=0", "text/event-stream;q=0, text/*", "application/*;q=0", ""] {
            let usual = "application/json, text/event-stream";
            let parsed = "application/json ,text/event-stream";
            assert_eq!(accepted(&[other, usual]), accepted(&[other, parsed]), "{other}");
            assert_eq!(accepted(&[usual, other]), accepted(&[parsed, other]), "{other}");
        }
    }

    #[test]
    fn a_weight_is_0_to_1_with_at_most_three_digits_after_the_point() {
        for (weight, expected) in [
            ("0", Some(false)),
            ("0.", Some(false)),
            ("0.000", Some(false)),
            ("0.001", Some(true)),
            ("1", Some(true)),
            ("1.000", Some(true)),
            ("0.0000", None),
            ("1.1", None),
            ("2", None),
            ("", None),
            ("-1", None),
            ("0,5", None),
        ] {
            assert_eq!(is_positive(weight.as_bytes()), expected, "{weight}");
        }
    }

    #[test]
    fn a_content_type_is_compared_without_its_parameters() {
        for good in ["application/json", "application/json; charset=utf-8", "APPLICATION/json;x", " application/json "] {
            assert!(is_media_type(good.as_bytes(), JSON), "{good:?}");
        }
        for bad in ["", "text/json", "application/jsonx", "application/json+x", "application/json, text/plain"] {
            assert!(!is_media_type(bad.as_bytes(), JSON), "{bad:?}");
        }
    }
}
