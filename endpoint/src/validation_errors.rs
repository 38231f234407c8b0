//! The errors of a value that does not fit its schema, as one line of text.

use core::fmt::{Display, Write};

/// The maximum number of errors that are named; the others are only counted.
const MAX_NAMED: usize = 5;
/// The maximum number of characters of the pointer of an error, and of its text. Both can be long: the pointer has keys of the caller, and
/// the text contains the value.
const MAX_CHARACTERS: usize = 240;

/// Collects validation errors.
#[derive(Default)]
pub(crate) struct ValidationErrors {
    text: String,
    count: usize,
}

impl ValidationErrors {
    /// Adds the error `what` of the value at `pointer`.
    pub(crate) fn push(&mut self, pointer: &dyn Display, what: &dyn Display) {
        self.count = self.count.saturating_add(1);
        if self.count > MAX_NAMED {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("; ");
        }
        let begin = self.text.len();
        push_cut(&mut self.text, pointer);
        if self.text.len() > begin {
            self.text.push_str(": ");
        }
        push_cut(&mut self.text, what);
    }

    /// Fails with the text if there is any error.
    pub(crate) fn into_result(mut self) -> Result<(), String> {
        match self.count.checked_sub(MAX_NAMED) {
            _ if self.count == 0 => return Ok(()),
            None | Some(0) => {}
            Some(more) => {
                let _ = write!(self.text, "; and {more} more");
            }
        }
        Err(self.text)
    }
}

/// Appends `text`, shortened to [`MAX_CHARACTERS`] and an ellipsis if it is longer.
fn push_cut(out: &mut String, text: &dyn Display) {
    let text = text.to_string();
    match text.char_indices().nth(MAX_CHARACTERS) {
        None => out.push_str(&text),
        // Shortened in the middle: the end of an error's text says what is wrong, and the end of a pointer names the innermost value.
        Some(_) => {
            let head: String = text.chars().take(MAX_CHARACTERS / 2).collect();
            let skip = text.chars().count().saturating_sub(MAX_CHARACTERS / 2);
            out.push_str(&head);
            out.push('…');
            out.extend(text.chars().skip(skip));
        }
    }
}
