//! Lists of scopes (RFC 6749, section 3.3).

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

/// The most scopes in a list. What a server names beyond them is dropped.
const MAX_SCOPES: usize = 64;

/// The longest text of a list of scopes, in bytes. A longer one counts as absent.
const MAX_LENGTH: usize = 4096;

/// The scopes of a text, each once; `None` if there are none, or if one has a character that no scope has.
pub(crate) fn parse(text: &str) -> Option<Vec<String>> {
    let is_proper = |byte: u8| byte == b' ' || (byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    if text.len() > MAX_LENGTH || !text.bytes().all(is_proper) {
        return None;
    }
    let mut scopes = Vec::new();
    add(&mut scopes, text.split(' '));
    (!scopes.is_empty()).then_some(scopes)
}

/// Adds scopes that are not yet in a list, in their order.
pub(crate) fn add<'a>(scopes: &mut Vec<String>, more: impl IntoIterator<Item = &'a str>) {
    for scope in more {
        if !scope.is_empty() && scopes.len() < MAX_SCOPES && !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
}

/// Returns `true` if a list has each of `wanted`.
pub(crate) fn has_all(scopes: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|scope| scopes.contains(scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_scopes_has_each_once_and_nothing_that_no_scope_has() {
        assert_eq!(parse("a  b a").unwrap(), ["a", "b"]);
        for text in ["", " ", "a\"b", "a\\b", "a\nb", "ä"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(&"x".repeat(MAX_LENGTH + 1)), None);
        let many: Vec<String> = (0..100).map(|number| alloc::format!("{number}")).collect();
        assert_eq!(parse(&many.join(" ")).unwrap().len(), MAX_SCOPES);
    }
}
