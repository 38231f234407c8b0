//! Challenges: the field `WWW-Authenticate` (RFC 9110, section 11.6.1).

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

/// The longest field that is read, in bytes. A longer one counts as absent.
const MAX_FIELD: usize = 16 * 1024;

/// The most challenges of an answer that are read, and the most parameters of one.
const MAX_PARTS: usize = 32;

/// One challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// In lower case.
    pub(crate) scheme: String,
    /// Names in lower case, values without quotes.
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The values of a parameter. More than one is invalid, so a caller tries each.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn value<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.values(name).next()
    }
}

/// The challenges of an answer, from each of its fields. Reading of a field ends where it is malformed; what was complete before counts.
pub(crate) fn parse<'a>(fields: impl IntoIterator<Item = &'a str>) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    for field in fields.into_iter().filter(|field| field.len() <= MAX_FIELD) {
        let mut reader = Reader(field);
        let mut open: Option<Challenge> = None;
        while let Some(part) = reader.part() {
            match part {
                Part::Scheme(scheme) => {
                    challenges.extend(open.take());
                    open = Some(Challenge { scheme, parameters: Vec::new() });
                }
                Part::Parameter(name, value) => match &mut open {
                    Some(challenge) if challenge.parameters.len() < MAX_PARTS => challenge.parameters.push((name, value)),
                    _ => break,
                },
                Part::Token68 => {}
            }
            if challenges.len() >= MAX_PARTS {
                return challenges;
            }
        }
        challenges.extend(open);
    }
    challenges
}

enum Part {
    Scheme(String),
    Parameter(String, String),
    Token68,
}

/// What is not yet read of a field.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn skip(&mut self, what: &[char]) {
        self.0 = self.0.trim_start_matches(what);
    }

    fn token(&mut self) -> Option<&'a str> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let end = self.0.bytes().take_while(|byte| is_token(*byte)).count();
        let (token, rest) = self.0.split_at_checked(end).filter(|(token, _)| !token.is_empty())?;
        self.0 = rest;
        Some(token)
    }

    fn part(&mut self) -> Option<Part> {
        self.skip(&[' ', '\t', ',']);
        let begin = self.0;
        let name = self.token()?.to_ascii_lowercase();
        let after = self.0.trim_start_matches([' ', '\t']);
        if let Some(value) = after.strip_prefix('=') {
            let value = value.trim_start_matches([' ', '\t']);
            if !value.is_empty() && !value.starts_with(['=', ',']) {
                self.0 = value;
                let value =
                    if let Some(quoted) = value.strip_prefix('"') { self.quoted(quoted)? } else { self.token()?.to_owned() };
                return Some(Part::Parameter(name, value));
            }
        }
        // A name with a space after it is a scheme, and so is one that ends the field or the challenge.
        if self.0.is_empty() || self.0.starts_with([' ', '\t', ',']) {
            return Some(Part::Scheme(name));
        }
        // The rest of a token68, such as `YII=`.
        let end = begin.find([' ', '\t', ',']).unwrap_or(begin.len());
        self.0 = begin.split_at_checked(end)?.1;
        Some(Part::Token68)
    }

    fn quoted(&mut self, text: &'a str) -> Option<String> {
        let mut value = String::new();
        let mut characters = text.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.0 = text.get(at..)?.strip_prefix('"')?;
                    return Some(value);
                }
                '\\' => value.push(characters.next()?.1),
                '\t' | ' ' => value.push(character),
                control if control.is_control() => return None,
                character => value.push(character),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_by_their_grammar() {
        let shown = |fields: &[&str]| {
            let challenges = parse(fields.iter().copied());
            let one = |challenge: &Challenge| {
                let parameters = challenge.parameters.iter().map(|(name, value)| alloc::format!(" {name}={value}"));
                challenge.scheme.clone() + &parameters.collect::<String>()
            };
            challenges.iter().map(one).collect::<Vec<_>>().join(" | ")
        };
        for (fields, expected) in [
            (&["Bearer"][..], "bearer"),
            (&["BEARER scope = \"a b\" , Error=x"], "bearer scope=a b error=x"),
            (&["Basic, Bearer"], "basic | bearer"),
            (&["Basic realm=\"x\", Bearer scope=\"a\"", "DPoP algs=\"ES256\""], "basic realm=x | bearer scope=a | dpop algs=ES256"),
            (&["Negotiate YII/+ab==, Bearer scope=a"], "negotiate | bearer scope=a"),
            (
                &["Bearer error_description=\"resource_metadata=\\\"https://evil/\\\"\""],
                "bearer error_description=resource_metadata=\"https://evil/\"",
            ),
            (&["Bearer scope=a, scope=b"], "bearer scope=a scope=b"),
            (&["Bearer scope=\"a"], "bearer"),
            (&["Bearer scope=\"a\nb\""], "bearer"),
            (&["scope=a"], ""),
            (&["", ",,,", "=", "\"Bearer\""], ""),
        ] {
            assert_eq!(shown(fields), expected, "{fields:?}");
        }
        let long = alloc::format!("Bearer scope={}", "x".repeat(MAX_FIELD));
        assert_eq!(shown(&[&long]), "");
        let many = "Bearer, ".repeat(100);
        assert_eq!(parse([many.as_str()]).len(), MAX_PARTS);
    }
}
