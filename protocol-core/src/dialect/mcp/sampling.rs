//! The shape of a sampling request and of its answer (page "Sampling").

use alloc::string::String;
use alloc::vec::Vec;

use super::Revision;
use crate::dialect::{InputRequest, Sample};
use crate::json::Json;
use crate::json::read::{Kind, elements, given, integer, member, number, string, string_lossy};

/// Checks the parameters of a sampling request, ours or the peer's. `tools` is `true` if the client declared sampling with tools.
pub(super) fn check(params: &Json, tools: bool, revision: Revision) -> Result<(), String> {
    let text = params.as_bytes();
    let messages =
        member(text, "messages").filter(|messages| Kind::of(messages) == Kind::Array).ok_or("messages must be an array")?;
    let max = member(text, "maxTokens").ok_or("maxTokens is missing")?;
    if integer::<u64>(max).is_none_or(|max| max == 0) {
        return Err(String::from("maxTokens must be a positive whole number"));
    }
    if (given(text, "tools").is_some() || given(text, "toolChoice").is_some()) && !tools {
        return Err(String::from("tools in sampling were not declared"));
    }
    if let Some(preferences) = given(text, "modelPreferences") {
        for name in ["costPriority", "speedPriority", "intelligencePriority"] {
            let is_valid =
                given(preferences, name).is_none_or(|value| number(value).is_some_and(|value| (0.0..=1.0).contains(&value)));
            if !is_valid {
                return Err(alloc::format!("{name} must lie between 0 and 1"));
            }
        }
    }
    check_messages(messages, revision)
}

/// Checks the roles and the blocks of messages. The message after one with `tool_use` blocks must have exactly one `tool_result` block for
/// each of those blocks, and a message with `tool_result` blocks must have no other blocks (2025-11-25, "Tool Use in Sampling", "Message
/// Content Constraints").
fn check_messages(messages: &[u8], revision: Revision) -> Result<(), String> {
    let mut waiting: Vec<String> = Vec::new();
    for message in elements(messages) {
        let role = member(message, "role").and_then(string).ok_or("every message needs a role")?;
        if !matches!(&*role, "user" | "assistant") {
            return Err(String::from("role must be user or assistant"));
        }
        let content = member(message, "content").ok_or("every message needs content")?;
        let blocks = match Kind::of(content) {
            Kind::Object => alloc::vec![content],
            Kind::Array if revision >= Revision::R2025_11_25 => elements(content),
            _ => return Err(String::from("content must be a block of content")),
        };
        let (mut used, mut answered, mut others) = (Vec::new(), Vec::new(), 0_usize);
        for block in blocks {
            let id = |name| member(block, name).and_then(string).map(alloc::borrow::Cow::into_owned);
            match member(block, "type").and_then(string).as_deref() {
                Some("tool_use") => used.push(id("id").ok_or("a tool_use block needs an id")?),
                Some("tool_result") => answered.push(id("toolUseId").ok_or("a tool_result block needs a toolUseId")?),
                Some(_) => others = others.saturating_add(1),
                None => return Err(String::from("every block of content needs a type")),
            }
        }
        if (role == "user" && !used.is_empty()) || (role == "assistant" && !answered.is_empty()) {
            return Err(String::from("only assistants use tools and only users bring their results"));
        }
        if !answered.is_empty() && others > 0 {
            return Err(String::from("a message with tool results must not be mixed with other content"));
        }
        answered.sort_unstable();
        waiting.sort_unstable();
        if answered != waiting {
            return Err(String::from("a tool result is missing, or answers no use of a tool"));
        }
        used.sort_unstable();
        if used.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(String::from("two uses of a tool share an id"));
        }
        waiting = used;
    }
    if waiting.is_empty() { Ok(()) } else { Err(String::from("a tool result is missing")) }
}

/// Reads the parameters of a sampling request, which passed [`check`].
pub(super) fn read(params: Json) -> InputRequest {
    let mut prompt = String::new();
    for message in member(params.as_bytes(), "messages").map(elements).unwrap_or_default() {
        let text = member(message, "content").map(content_text).unwrap_or_default();
        if !prompt.is_empty() {
            prompt.push('\n');
        }
        prompt.push_str(&text);
    }
    let max_tokens = member(params.as_bytes(), "maxTokens").and_then(integer);
    Sample { prompt, max_tokens, schema: None, params: Some(params) }.into()
}

/// The text of the content of an answer, which is one block or an array of blocks. `None` if the content is malformed.
pub(super) fn answer_text(content: &[u8]) -> Option<String> {
    let is_block = |block: &[u8]| match member(block, "type").and_then(string).as_deref() {
        Some("text") => member(block, "text").and_then(string_lossy).is_some(),
        kind => kind.is_some(),
    };
    let is_valid = match Kind::of(content) {
        Kind::Object => is_block(content),
        Kind::Array => elements(content).into_iter().all(is_block),
        _ => false,
    };
    is_valid.then(|| content_text(content))
}

/// The text of all blocks of content, joined by line feeds. Blocks that are not text are included as JSON.
fn content_text(content: &[u8]) -> String {
    if Kind::of(content) == Kind::Array {
        return elements(content).into_iter().map(content_text).collect::<Vec<_>>().join("\n");
    }
    let is_text = member(content, "type").and_then(string).as_deref() == Some("text");
    let text = if is_text { member(content, "text").and_then(string_lossy) } else { None };
    text.unwrap_or_else(|| String::from_utf8_lossy(content)).into_owned()
}
