//! Forms for the user, and the default values of their fields.

use alloc::string::String;

use crate::json::Json;
use crate::json::read::{Members, elements, member, string};
use crate::json::write::Object;

/// A form for the user to fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elicit {
    /// The message for the user.
    pub message: String,
    /// A JSON Schema: a flat object of primitives (MCP, "Elicitation", section "Requested Schema").
    pub schema: Json,
}

impl Elicit {
    /// A form with a message for the user, and the JSON Schema of its fields.
    #[must_use]
    pub fn new(message: impl Into<String>, schema: Json) -> Self {
        Self { message: message.into(), schema }
    }

    /// Returns `true` if the form has no field, so that it only asks for yes or no.
    #[must_use]
    pub fn is_confirmation(&self) -> bool {
        self.schema
            .member("properties")
            .is_none_or(|properties| Members::of(properties.as_bytes()).is_none_or(|mut fields| fields.next().is_none()))
    }

    /// The content that answers the form with its default values, one for each field that has a default (MCP, "Elicitation", section
    /// "Requested Schema"). An empty object for a form without fields.
    ///
    /// # Errors
    /// [`NoDefault`] if a required field has no default: the user has to be asked.
    pub fn defaults(&self) -> Result<Json, NoDefault> {
        let schema = self.schema.as_bytes();
        let required = member(schema, "required").map(elements).unwrap_or_default();
        let fields = member(schema, "properties").and_then(Members::of);
        let mut missing = None;
        let content = Object::value(|content| {
            for (name, field) in fields.into_iter().flatten() {
                match member(field, "default") {
                    Some(value) => content.copy(name, value),
                    None if required.iter().any(|other| string(other).is_some_and(|other| name.is(&other))) => {
                        missing.get_or_insert_with(|| name.name().into_owned());
                    }
                    None => {}
                }
            }
        });
        missing.map_or(Ok(content), |field| Err(NoDefault { field }))
    }
}

/// The error of [`Elicit::defaults`]: a required field of the form has no default value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the form needs a value for `{field}`, which has no default")]
#[non_exhaustive]
pub struct NoDefault {
    /// The name of the field.
    pub field: String,
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;

    use super::{Elicit, Json, NoDefault};

    fn form(schema: &'static str) -> Elicit {
        Elicit::new("", Json::parse(schema).unwrap())
    }

    #[test]
    fn defaults_fill_in_the_fields_that_have_one() {
        let schema = r#"{"type":"object","required":["name"],"properties":{"name":{"type":"string","default":"J\u00fcrgen"},
            "age":{"type":"integer","default":30},"note":{"type":"string"},"on":{"type":"boolean","default":false}}}"#;
        assert_eq!(form(schema).defaults().unwrap().as_str(), r#"{"name":"J\u00fcrgen","age":30,"on":false}"#);
    }

    #[test]
    fn a_required_field_without_a_default_is_an_error_that_names_it() {
        let schema = r#"{"type":"object","required":["age","na\u006de"],"properties":{"age":{"default":1},"name":{}}}"#;
        assert_eq!(form(schema).defaults(), Err(NoDefault { field: "name".to_owned() }));
    }

    #[test]
    fn a_form_without_fields_asks_for_yes_or_no_and_has_no_defaults() {
        for schema in [r#"{"type":"object"}"#, r#"{"type":"object","properties":{}}"#, r#"{"properties":7,"required":7}"#] {
            assert!(form(schema).is_confirmation(), "{schema}");
            assert_eq!(form(schema).defaults(), Ok(Json::empty_object()), "{schema}");
        }
    }
}
