//! All that is wrong with a value, in one line.

use core::fmt::{Display, Write};

/// Violations named in one answer.
const NAMED: usize = 5;
/// Characters of one violation; the value that is wrong is part of it.
const SHOWN: usize = 240;

/// The first few violations by name, the others by number.
#[derive(Default)]
pub(crate) struct Violations {
    text: String,
    count: usize,
}

impl Violations {
    /// Notes that `what` is wrong with the value at `pointer`.
    pub(crate) fn push(&mut self, pointer: &dyn Display, what: &dyn Display) {
        self.count = self.count.saturating_add(1);
        if self.count > NAMED {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("; ");
        }
        let begin = self.text.len();
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{pointer}");
        if self.text.len() > begin {
            self.text.push_str(": ");
        }
        push_cut(&mut self.text, &what.to_string());
    }

    /// Fails with the text if there is any violation.
    pub(crate) fn into_result(mut self) -> Result<(), String> {
        match self.count.checked_sub(NAMED) {
            _ if self.count == 0 => return Ok(()),
            None | Some(0) => {}
            Some(more) => {
                let _ = write!(self.text, "; and {more} more");
            }
        }
        Err(self.text)
    }
}

fn push_cut(out: &mut String, text: &str) {
    match text.char_indices().nth(SHOWN) {
        None => out.push_str(text),
        // The end says what is wrong, the middle is only the value.
        Some(_) => {
            let head: String = text.chars().take(SHOWN / 2).collect();
            let skip = text.chars().count().saturating_sub(SHOWN / 2);
            out.push_str(&head);
            out.push('…');
            out.extend(text.chars().skip(skip));
        }
    }
}
