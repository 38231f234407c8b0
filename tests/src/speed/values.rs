//! The arguments and results of the tools as JSON values, for SDKs whose API takes these.

use serde_json::{Map, Value, json};

use super::payload::long_text;
use super::row::{Carried, EchoTool};

/// The arguments of a call of `tool` that returns `text`.
#[must_use]
pub fn echo_arguments(tool: EchoTool, text: &str) -> Map<String, Value> {
    match tool {
        EchoTool::Inline | EchoTool::Task => object("text", text.into()),
        EchoTool::Nested => object("at", json!({"line": 7, "note": {"text": text}})),
    }
}

/// The name of the tool and the arguments of a call with a long text. The arguments do not depend on whether the result is read.
#[must_use]
pub fn long_text_call(carried: Carried, bytes: usize) -> (&'static str, Map<String, Value>) {
    let lines = carried.has_lines();
    match carried {
        Carried::Result | Carried::ResultRead | Carried::LinesRead => {
            ("text", Map::from_iter([("lines".into(), lines.into()), ("bytes".into(), bytes.into())]))
        }
        Carried::Arguments | Carried::LinesTaken => ("take", object("text", long_text(lines, bytes).into())),
    }
}

/// The number of bytes that the receiver of a long text has read. `text` is the text of the result.
///
/// # Panics
/// If the result of the tool `take` is not a number.
#[must_use]
pub fn bytes_seen(carried: Carried, text: &str) -> usize {
    match carried {
        Carried::Result | Carried::ResultRead | Carried::LinesRead => text.len(),
        Carried::Arguments | Carried::LinesTaken => text.parse().expect("a number"),
    }
}

/// An object with one member.
#[must_use]
pub fn object(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.into(), value)])
}

/// The text that a tool returns for its arguments, without a copy where that is possible. `None` for any other tool, and for arguments
/// that do not fit the tool.
#[must_use]
pub fn tool_text(tool: &str, arguments: Map<String, Value>) -> Option<String> {
    let taken = |mut object: Map<String, Value>| object.remove("text").and_then(into_string);
    match tool {
        "echo" | "echo-in-a-task" => taken(arguments),
        "echo-nested" => member(member(arguments, "at")?, "note").and_then(taken),
        "text" => {
            let lines = arguments.get("lines").and_then(Value::as_bool)?;
            let bytes = arguments.get("bytes").and_then(Value::as_u64)?;
            Some(long_text(lines, bytes as usize).to_owned())
        }
        "take" => taken(arguments).map(|text| text.len().to_string()),
        _ => None,
    }
}

fn member(mut object: Map<String, Value>, name: &str) -> Option<Map<String, Value>> {
    match object.remove(name)? {
        Value::Object(member) => Some(member),
        _ => None,
    }
}

fn into_string(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}
