//! Reads Rust sources as far as the ratchets need it: without comments, string literals and tests.

use std::fs;
use std::path::Path;

/// Every source file below `root` with its text, in order and without files and directories named `tests`. Panics if there are fewer than
/// five.
pub(crate) fn sources(root: &Path) -> Vec<(String, String)> {
    let found = files_below(root);
    assert!(found.len() > 4, "the sources of {} are found", root.display());
    found
}

/// Every source file below `root` with its text, in order and without files and directories named `tests`.
pub(crate) fn files_below(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut unread = vec![root.to_path_buf()];
    while let Some(directory) = unread.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "tests") {
                    unread.push(path);
                }
            } else if path.extension().is_some_and(|end| end == "rs") && path.file_stem().is_none_or(|stem| stem != "tests") {
                let name = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
                found.push((name, fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    found.sort();
    found
}

/// The code of `text`: each comment and each string or character literal becomes a blank, and items with `#[cfg(test)]` are removed.
pub(crate) fn code(text: &str) -> String {
    without_tests(&without_texts(text))
}

/// Replaces comments, string literals and character literals by a blank each.
fn without_texts(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_text(rest).filter(|_| !code.ends_with(is_word)) {
            length
        } else if first == '"' {
            plain_text(rest, '"')
        } else if let Some(length) = character(rest) {
            length
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[length..];
    }
    code
}

/// The length of the block comment at the beginning of `text`.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            let Some(next) = rest.chars().next() else { return at };
            at += next.len_utf8();
        }
    }
}

/// The length of the raw string literal at the beginning of `text`, if there is one.
fn raw_text(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let begin = text.len() - after.len() + hashes + 1;
    after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    text[begin..].find(&end).map(|at| begin + at + end.len())
}

/// The length of the literal between `quote` characters at the beginning of `text`.
fn plain_text(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The length of the character literal at the beginning of `text`, if there is one and it is not a lifetime.
fn character(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    let is_character = first == '\\' || inside[first.len_utf8()..].starts_with('\'');
    is_character.then(|| plain_text(text, '\''))
}

/// Removes items with `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut depth = 0_usize;
        let end = rest.char_indices().skip(1).find_map(|(at, character)| {
            match character {
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0 && matches!(character, '}' | ';' | ',')).then_some(at + 1)
        });
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    kept.push_str(rest);
    kept
}

/// Every attribute of `code`, from `#` to its closing bracket.
pub(crate) fn attributes(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices('#') {
        let rest = &code[at..];
        if !rest.starts_with("#[") && !rest.starts_with("#![") {
            continue;
        }
        let mut depth = 0_usize;
        let end = rest.char_indices().find_map(|(at, character)| {
            match character {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            (depth == 0 && character == ']').then_some(at + 1)
        });
        found.push(rest[..end.unwrap_or(rest.len())].to_owned());
    }
    found
}

/// The positions of `word`, except within longer words.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let begins_here = !word.starts_with(is_word) || !code[..*at].ends_with(is_word);
        let ends_here = !word.ends_with(is_word) || !code[at + word.len()..].starts_with(is_word);
        begins_here && ends_here
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
