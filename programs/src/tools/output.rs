//! Tools that return the same text every time for the same arguments: `long_output` and `chatty`.

use endpoint::{Context, Tool};
use protocol_core::{Content, Text, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::audited::shaped;
use super::count::Count;
use crate::audit::{Audit, Record};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LongOutputArguments {
    /// number of text blocks to return; default 3; max 50
    #[serde(default)]
    blocks: Count<3, 50>,
    /// length of each block in bytes; default 256; max 65536
    #[serde(default)]
    chars: Count<256, 65536>,
}

/// Returns as many blocks as are requested, each of the requested length.
pub(super) fn long_output(audit: &Audit) -> Tool {
    shaped(audit, "long_output", async |_: Context, arguments: LongOutputArguments, _: Record| {
        let length = usize::try_from(arguments.chars.get()).unwrap_or(usize::MAX);
        Ok(ToolOutput::blocks((0..arguments.blocks.get()).map(|number| Content::Text(block(number, length).into()))))
    })
    .title("Long output")
    .description("Returns blocks of text of an exact length, always the same for the same arguments.")
    .read_only()
    .inline()
}

/// A header, padded with the first ten letters of the alphabet and cut to `length` bytes, all ASCII.
fn block(number: u64, length: usize) -> String {
    let header = format!("[block {number}] ");
    header.chars().chain("abcdefghij".chars().cycle()).take(length).collect()
}

const CHATTY: [&str; 4] = [
    "first block: short",
    "second block: a slightly longer string with multiple words",
    "third block: numbers 1 2 3 4 5",
    "fourth block: unicode; café résumé naïve",
];

/// Returns four blocks, one of them with text that is not ASCII.
pub(super) fn chatty(audit: &Audit) -> Tool {
    shaped(audit, "chatty", async |_: Context, (): (), _: Record| {
        Ok(ToolOutput::blocks(CHATTY.map(|text| Content::Text(Text::from_static(text)))))
    })
    .title("Chatty")
    .description("Returns four blocks of text, always the same.")
    .read_only()
    .inline()
}
