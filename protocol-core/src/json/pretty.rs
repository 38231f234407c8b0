//! Indented JSON text.

use alloc::string::String;

/// The maximum factor by which indenting may lengthen the text. Without a maximum, deep nesting could lengthen the text two hundredfold.
const MAX_GROWTH: usize = 8;

/// Indents JSON text: one member or element on each line, two spaces for each level. Strings and numbers are not changed. Text that would
/// become longer than eight times its length plus 1 KiB is returned as it is.
pub fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len().saturating_mul(2));
    let mut level = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    // `true` after an opening bracket. The line break after the bracket is written before the next character, unless that character closes
    // the container.
    let mut opened = false;
    let longest = text.len().saturating_mul(MAX_GROWTH).saturating_add(1024);
    for letter in text.chars() {
        if out.len() > longest {
            return String::from(text);
        }
        if in_string {
            out.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        if letter.is_ascii_whitespace() {
            continue;
        }
        if opened && !matches!(letter, '}' | ']') {
            new_line(&mut out, level);
        }
        match letter {
            '{' | '[' => level = level.saturating_add(1),
            '}' | ']' => {
                level = level.saturating_sub(1);
                if !opened {
                    new_line(&mut out, level);
                }
            }
            _ => {}
        }
        opened = matches!(letter, '{' | '[');
        out.push(letter);
        match letter {
            '"' => in_string = true,
            ',' => new_line(&mut out, level),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

fn new_line(out: &mut String, level: usize) {
    out.push('\n');
    for _ in 0..level {
        out.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_indented_as_in_javascript_and_numbers_keep_their_digits() {
        let text = r#"{"a":[1.50,{"b":"x: {\"y\"}, \\"},[],{}],"c":null}"#;
        let expected = "{\n  \"a\": [\n    1.50,\n    {\n      \"b\": \"x: {\\\"y\\\"}, \\\\\"\n    },\n    [],\n    {}\n  ],\n  \"c\": null\n}";
        assert_eq!(pretty(text), expected);
        assert_eq!(pretty(expected), expected);
        let deep = alloc::format!("{}1{}{}", "[".repeat(100), ",1".repeat(10_000), "]".repeat(100));
        assert_eq!(pretty(&deep), deep, "deeply nested text must not grow two hundredfold");
        for plain in ["1", "\"a b\"", "null", "[]", "{}"] {
            assert_eq!(pretty(plain), plain);
        }
    }
}
