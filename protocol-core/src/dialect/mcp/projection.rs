//! Leaves out of entries and blocks what a revision does not know yet, since there are peers that refuse members they do not know.

use alloc::vec::Vec;

use super::Revision;
use crate::dialect::Op;
use crate::json::read::{Kind, elements, for_each_key};
use crate::json::write::{Object, push_json};

/// The members that came after the first revision. Any other member is written as it is.
struct Since(&'static [(&'static str, Revision)]);

const TOOL: Since = Since(&[
    ("annotations", Revision::R2025_03_26),
    ("title", Revision::R2025_06_18),
    ("outputSchema", Revision::R2025_06_18),
    ("_meta", Revision::R2025_06_18),
    ("icons", Revision::R2025_11_25),
]);

/// A prompt, its arguments, a resource, a template, or a block of content.
const OTHER: Since = Since(&[("title", Revision::R2025_06_18), ("_meta", Revision::R2025_06_18), ("icons", Revision::R2025_11_25)]);

const HINTS: Since = Since(&[("lastModified", Revision::R2025_06_18)]);

/// Appends an entry of the list that `op` requests.
pub(super) fn push_entry(out: &mut Vec<u8>, entry: &[u8], op: Op, revision: Revision) {
    match op {
        _ if revision >= Revision::NEWEST_LEGACY => push_json(out, entry),
        Op::ListTools => TOOL.push(out, entry, revision),
        _ => OTHER.push(out, entry, revision),
    }
}

/// Appends a block of content.
pub(super) fn push_block(out: &mut Vec<u8>, block: &[u8], revision: Revision) {
    match revision < Revision::R2025_06_18 {
        true => OTHER.push(out, block, revision),
        false => push_json(out, block),
    }
}

impl Since {
    fn push(&self, out: &mut Vec<u8>, value: &[u8], revision: Revision) {
        if Kind::of(value) != Kind::Object {
            return push_json(out, value);
        }
        Object::write(out, |object| {
            for_each_key(value, |key, value| {
                let name = key.name();
                if self.0.iter().any(|(newer, since)| *newer == name && revision < *since) {
                    return;
                }
                match &*name {
                    "annotations" if Kind::of(value) == Kind::Object => HINTS.push(object.member("annotations"), value, revision),
                    "arguments" if Kind::of(value) == Kind::Array => object.array("arguments", elements(value), |out, argument| {
                        OTHER.push(out, argument, revision);
                    }),
                    _ => object.copy(key, value),
                }
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn each_revision_gets_the_members_that_it_knows_and_those_that_none_knows() {
        const TOOL: &str = r#"{"name":"t","title":"T","x":1,"inputSchema":{"title":"I"},"outputSchema":{},"annotations":{"title":"A","readOnlyHint":true},"icons":[],"_meta":{}}"#;
        const PROMPT: &str = r#"{"name":"p","arguments":[{"name":"a","title":"A"},7],"icons":[]}"#;
        const RESOURCE: &str = r#"{"uri":"u","annotations":{"priority":1,"lastModified":"2025"},"_meta":{}}"#;
        let written = |op, entry: &str, revision| {
            let mut out = Vec::new();
            push_entry(&mut out, entry.as_bytes(), op, revision);
            String::from_utf8(out).unwrap()
        };
        let rows = [
            (Op::ListTools, TOOL, Revision::R2024_11_05, r#"{"name":"t","x":1,"inputSchema":{"title":"I"}}"#),
            (
                Op::ListTools,
                TOOL,
                Revision::R2025_03_26,
                r#"{"name":"t","x":1,"inputSchema":{"title":"I"},"annotations":{"title":"A","readOnlyHint":true}}"#,
            ),
            (
                Op::ListTools,
                TOOL,
                Revision::R2025_06_18,
                r#"{"name":"t","title":"T","x":1,"inputSchema":{"title":"I"},"outputSchema":{},"annotations":{"title":"A","readOnlyHint":true},"_meta":{}}"#,
            ),
            (Op::ListTools, TOOL, Revision::R2025_11_25, TOOL),
            (Op::ListTools, TOOL, Revision::R2026_07_28, TOOL),
            (Op::ListPrompts, PROMPT, Revision::R2025_03_26, r#"{"name":"p","arguments":[{"name":"a"},7]}"#),
            (Op::ListPrompts, PROMPT, Revision::R2025_06_18, r#"{"name":"p","arguments":[{"name":"a","title":"A"},7]}"#),
            (Op::ListResources, RESOURCE, Revision::R2024_11_05, r#"{"uri":"u","annotations":{"priority":1}}"#),
            (Op::ListResources, RESOURCE, Revision::R2025_06_18, RESOURCE),
        ];
        for (op, entry, revision, expected) in rows {
            assert_eq!(written(op, entry, revision), expected, "{revision:?}");
        }
        let mut block = Vec::new();
        push_block(&mut block, br#"{"type":"text","text":"a","_meta":{}}"#, Revision::R2025_03_26);
        assert_eq!(block, br#"{"type":"text","text":"a"}"#);
    }
}
