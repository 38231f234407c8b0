//! The shape of the arguments of a prompt: strings by name, which are decoded as a Rust type.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::schema::{Shape, encode};

/// The maximum number of references that are followed from a field to its type.
const MAX_REFERENCES: u8 = 8;

/// The shape of an object whose members are sent as strings: the arguments of a prompt.
pub(crate) struct TextShape {
    shape: Arc<Shape>,
    schema: Value,
}

/// A member of a [`TextShape`].
pub(crate) struct TextField<'a> {
    pub(crate) name: &'a str,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) required: bool,
}

impl TextShape {
    pub(crate) fn of<T: JsonSchema + 'static>() -> Self {
        let shape = Shape::arguments::<T>();
        let schema = shape.schema().decode().unwrap_or_default();
        Self { shape, schema }
    }

    /// The properties of the schema.
    pub(crate) fn fields(&self) -> impl Iterator<Item = TextField<'_>> {
        let required = self.schema.get("required").and_then(Value::as_array);
        self.properties().map(move |(name, field)| {
            let text = |key| field.get(key).and_then(Value::as_str).map(String::from);
            let required = required.is_some_and(|names| names.iter().any(|listed| listed == name));
            TextField { name, title: text("title"), description: text("description"), required }
        })
    }

    /// Checks the strings against the schema and decodes them.
    pub(crate) fn read<T: DeserializeOwned>(&self, texts: BTreeMap<String, String>) -> Result<T, String> {
        let members = texts.into_iter().map(|(name, text)| {
            let takes_text =
                self.properties().find(|(of, _)| **of == name).is_none_or(|(_, field)| self.takes_text(field, MAX_REFERENCES));
            // A string that is not JSON stays a string. It fails the check below, whose error names the argument.
            let value = if takes_text { None } else { serde_json::from_str(&text).ok() };
            (name, value.unwrap_or(Value::String(text)))
        });
        self.shape.read(&encode(&Value::Object(members.collect())))
    }

    /// The reason for which a prompt with these arguments cannot be registered.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.shape.refusal()
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    /// Returns `true` if `field` allows strings, or does not name a type.
    fn takes_text(&self, field: &Value, depth: u8) -> bool {
        if let Some(pointer) = field.get("$ref").and_then(Value::as_str).and_then(|pointer| pointer.strip_prefix('#')) {
            // A definition that needs more references is taken to contain itself. Its values are nested, so they are not strings.
            let Some(depth) = depth.checked_sub(1) else { return false };
            return self.schema.pointer(pointer).is_none_or(|of| self.takes_text(of, depth));
        }
        if let Some(choices) = ["anyOf", "oneOf"].iter().find_map(|key| field.get(*key)).and_then(Value::as_array) {
            return choices.iter().any(|choice| self.takes_text(choice, depth));
        }
        match field.get("type") {
            Some(Value::String(kind)) => kind == "string",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
            _ => true,
        }
    }
}
