//! The actions and resources in the hello of an app, and the values of resources, converted from the form of MCP.

use alloc::vec::Vec;
use core::time::Duration;

use super::write::write_value;
use crate::json::Json;
use crate::json::read::{for_each_key, for_each_member, member};
use crate::json::write::{Object, push_json};

/// The value of a resource with these `contents`, an array in the form of MCP. If the only element has text, the value is the text: as JSON
/// if its MIME type is `application/json` and it is valid JSON, otherwise as a string. If the only element has no text, the value is that
/// element. Otherwise the value is the array.
#[must_use]
pub fn value(contents: &Json) -> Json {
    let mut out = Vec::new();
    write_value(&mut out, contents);
    Json::written(out)
}

/// Converts an MCP tool into an action (`{name, description, inputSchema, ..}`). `timeout` is the longest time that a call of the action
/// may take.
#[must_use]
pub fn action(tool: &Json, timeout: Option<Duration>) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        let mut has_description = false;
        for_each_key(tool.as_bytes(), |key, value| {
            let name = key.name();
            has_description |= name == "description";
            if matches!(&*name, "name" | "description" | "inputSchema" | "outputSchema") {
                object.copy(key, value);
            }
        });
        if !has_description {
            object.string("description", "");
        }
        object.object("annotations", |object| {
            for_each_member(member(tool.as_bytes(), "annotations").unwrap_or_default(), |name, value| match name {
                "readOnlyHint" => object.boolean("readOnly", value == b"true"),
                "destructiveHint" => object.boolean("destructive", value == b"true"),
                _ => {}
            });
        });
        if let Some(timeout) = timeout {
            object.integer("timeoutMs", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        }
    });
    Json::written(out)
}

/// Converts an MCP resource (`{uri, description, ..}`) into a resource of Tesseron, whose name is the URI.
#[must_use]
pub fn resource(described: &Json, subscribable: bool) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        push_json(object.member("name"), member(described.as_bytes(), "uri").unwrap_or(b"null"));
        push_json(object.member("description"), member(described.as_bytes(), "description").unwrap_or(b"\"\""));
        object.boolean("subscribable", subscribable);
    });
    Json::written(out)
}
