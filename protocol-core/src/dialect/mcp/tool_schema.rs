//! The schemas in the entry of a tool.

use alloc::format;
use alloc::string::String;

use crate::json::read::{Kind, elements, for_each_member, member, string};

/// The fault of the schema of a tool's arguments or structured content with which clients refuse not the tool, but the whole list that it is
/// in: the predicate of a sentence whose subject is the schema. `None` if they accept it.
///
/// The schema has to be one of an object ("Tools", "Tool"; `Tool` in the schema of MCP), and its members `properties` and `required`, if it
/// has them, are objects by name, and names. The last one excludes `true` and `false`, which are schemas, too.
#[must_use]
pub fn tool_schema_fault(schema: &[u8]) -> Option<String> {
    if member(schema, "type").and_then(string).as_deref() != Some("object") {
        return Some(String::from("is not one of an object: it has no `\"type\": \"object\"`"));
    }
    let fault = |path: &str, what: &str| Some(format!("has {path}, which is not {what}: clients refuse the whole list with it"));
    if let Some(properties) = member(schema, "properties") {
        if Kind::of(properties) != Kind::Object {
            return fault("/properties", "an object");
        }
        let mut wrong = None;
        for_each_member(properties, |name, property| {
            if Kind::of(property) != Kind::Object {
                wrong.get_or_insert_with(|| format!("/properties/{name}"));
            }
        });
        if let Some(path) = wrong {
            return fault(&path, "an object, such as `{}` for any value");
        }
    }
    let is_list = |required: &[u8]| {
        Kind::of(required) == Kind::Array && elements(required).into_iter().all(|name| Kind::of(name) == Kind::String)
    };
    if member(schema, "required").is_some_and(|required| !is_list(required)) {
        return fault("/required", "a list of names");
    }
    None
}
