//! The canonical form of JSON text: texts that differ only in white space, in escapes or in the order of members have the same form.

use protocol_core::json::read::string;
use protocol_core::json::write::write_text;

/// Writes JSON text in one fixed form: members sorted by name, strings with the fewest escapes, no white space. Numbers stay as they are
/// written, and so does a string that is no Unicode text; members of the same name keep their order. Every member ends with a comma, so the
/// form is not itself JSON. Texts with equal forms mean the same to every reader, in whatever precision it reads numbers. The members of
/// the outermost object that are named in `without` are left out.
///
/// `text` must come from a [`protocol_core::Json`], whose nesting is bounded.
pub(super) fn canonical(text: &[u8], without: &[&str]) -> Vec<u8> {
    let mut writer = Writer { rest: text, out: Vec::with_capacity(text.len()) };
    writer.value(without);
    writer.out
}

struct Writer<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
}

impl Writer<'_> {
    fn value(&mut self, without: &[&str]) {
        match self.peek() {
            Some(b'{') => self.object(without),
            Some(b'[') => self.array(),
            Some(b'"') => {
                let text = self.string();
                write_string_form(&mut self.out, text);
            }
            Some(_) => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':') || byte.is_ascii_whitespace();
                // At least one byte, so that the loops end for text that is no JSON, too.
                let length = self.rest.iter().position(ends).unwrap_or(self.rest.len()).max(1);
                let literal = self.take(length);
                self.out.extend_from_slice(literal);
            }
            None => {}
        }
    }

    fn array(&mut self) {
        self.copy();
        loop {
            match self.peek() {
                Some(b',') => self.copy(),
                Some(b']') => return self.copy(),
                Some(_) => self.value(&[]),
                None => return,
            }
        }
    }

    fn object(&mut self, without: &[&str]) {
        self.copy();
        let begin = self.out.len();
        // The name of each member, and the end of its text in `out`.
        let mut members: Vec<(Vec<u8>, usize)> = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'}' => break,
                b'"' => {}
                _ => {
                    self.take(1);
                    continue;
                }
            }
            let (before, name) = (self.out.len(), self.string());
            write_string_form(&mut self.out, name);
            let name = string(name).map_or_else(|| name.to_vec(), |name| name.into_owned().into_bytes());
            if self.peek() == Some(b':') {
                self.copy();
            }
            self.value(&[]);
            self.out.push(b',');
            if without.iter().any(|left_out| left_out.as_bytes() == name) {
                self.out.truncate(before);
            } else {
                members.push((name, self.out.len()));
            }
        }
        if !members.is_sorted_by(|(one, _), (other, _)| one <= other) {
            self.sort(begin, members);
        }
        self.out.push(b'}');
        self.take(1);
    }

    /// Sorts the members of the object whose first member begins at `begin`.
    fn sort(&mut self, begin: usize, members: Vec<(Vec<u8>, usize)>) {
        let written = self.out.get(begin..).unwrap_or_default().to_vec();
        self.out.truncate(begin);
        let mut from = 0;
        let mut texts: Vec<_> = Vec::with_capacity(members.len());
        for (name, end) in members {
            let to = end.saturating_sub(begin);
            texts.push((name, written.get(from..to).unwrap_or_default()));
            from = to;
        }
        // The sort is stable: some readers use the first of two members of the same name, and some use the last.
        texts.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (_, text) in texts {
            self.out.extend_from_slice(text);
        }
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    /// Copies one byte.
    fn copy(&mut self) {
        let one = self.take(1);
        self.out.extend_from_slice(one);
    }
}

impl<'a> Writer<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, &[]));
        self.rest = rest;
        taken
    }

    /// Takes the string that comes next, with its quotes.
    fn string(&mut self) -> &'a [u8] {
        let mut bytes = self.rest.iter().enumerate().skip(1);
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => return self.take(at.saturating_add(1)),
                b'\\' => drop(bytes.next()),
                _ => {}
            }
        }
        self.take(self.rest.len())
    }
}

fn write_string_form(out: &mut Vec<u8>, text: &[u8]) {
    match string(text) {
        Some(text) => write_text(out, text.as_bytes()),
        None => out.extend_from_slice(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        String::from_utf8(canonical(text.as_bytes(), &["_meta"])).unwrap()
    }

    #[test]
    fn json_texts_with_the_same_meaning_have_one_form() {
        let text = r#" { "b" : [ 1 , { "d" : "\u0041\/" , "c" : null } ] , "_meta" : { "x" : 1 } , "a" : { } , "e" : [ ] } "#;
        assert_eq!(form(text), r#"{"a":{},"b":[1,{"c":null,"d":"A/",}],"e":[],}"#);
        assert_eq!(form(&form(text).replace(",}", "}")), form(text));
        assert_eq!(form(r#"{"a":{"_meta":1}}"#), r#"{"a":{"_meta":1,},}"#, "only of the outermost object");
    }

    #[test]
    fn json_texts_that_a_reader_may_distinguish_have_different_forms() {
        for (one, other) in [
            (r#"{"x":1}"#, r#"{"x":1.0}"#),
            (r#"{"x":1e999}"#, r#"{"x":1e998}"#),
            (r#"{"x":18446744073709551616}"#, r#"{"x":18446744073709551617}"#),
            (r#"{"x":"1"}"#, r#"{"x":1}"#),
            (r#"{"x":"\ud800"}"#, r#"{"x":"\ud801"}"#),
            (r#"{"x":1,"x":2}"#, r#"{"x":2,"x":1}"#),
            (r#"{"x":[[],[]]}"#, r#"{"x":[[[]]]}"#),
            (r#"{"x":"a\",\"b"}"#, r#"{"x":"a","b":""}"#),
        ] {
            assert_ne!(form(one), form(other), "{one}");
        }
    }

    #[test]
    fn text_that_is_no_json_does_not_loop() {
        for text in
            ["", "{", "[", "\"", "\"\\", "]", "{]", "[}", "{:", "[:", r#"{"a""#, r#"{"a":"#, r#"{"a":}"#, "{}}", "[,", "nul"]
        {
            form(text);
        }
    }
}
