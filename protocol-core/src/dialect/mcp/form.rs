//! Forms: the flat schemas of elicitation, and whether an answer fits one (Client Features, "Elicitation", "Requested Schema").

use alloc::string::String;
use alloc::vec::Vec;

use super::Revision;
use super::sampling::elements;
use crate::json::scan::{Kind, for_each_member, member, string};
use crate::json::{Json, number};

/// Whether `schema` is a flat object of primitives that `revision` knows.
pub(super) fn check(schema: &Json, revision: Revision) -> Result<(), String> {
    let text = schema.as_str();
    if !schema.is_object() || text_member(text, "type").as_deref() != Some("object") {
        return Err(String::from("the requested schema must be of type object"));
    }
    if let Some(word) = ["oneOf", "anyOf", "allOf", "not", "$ref"].into_iter().find(|word| member(text, word).is_some()) {
        return Err(alloc::format!("the requested schema must be flat: {word} is not allowed"));
    }
    let properties = match member(text, "properties") {
        None => "{}",
        Some(properties) if Kind::of(properties) == Kind::Object => properties,
        Some(_) => return Err(String::from("properties of the requested schema must be an object")),
    };
    let mut wrong = None;
    let mut names = Vec::new();
    for_each_member(properties, |name, property| {
        names.push(String::from(name));
        if let (None, Err(why)) = (&wrong, Field::read(property, revision)) {
            wrong = Some(alloc::format!("property {name}: {why}"));
        }
    });
    if let Some(why) = wrong {
        return Err(why);
    }
    let Some(required) = member(text, "required") else { return Ok(()) };
    if Kind::of(required) != Kind::Array {
        return Err(String::from("required must be an array of property names"));
    }
    match elements(required).into_iter().find(|name| !string(name).is_some_and(|name| names.iter().any(|known| *known == *name))) {
        Some(name) => Err(alloc::format!("required names {name}, which is no property")),
        None => Ok(()),
    }
}

/// Whether every `format` in a schema that passed [`check`] is one that the protocol names. Of a peer an unknown one is taken as
/// the annotation that it is.
pub(super) fn check_formats(schema: &Json) -> Result<(), String> {
    let mut unknown = None;
    for_each_member(member(schema.as_str(), "properties").unwrap_or("{}"), |name, property| {
        let format = member(property, "format").map(|format| string(format).unwrap_or_default());
        if format.is_some_and(|format| !matches!(&*format, "email" | "uri" | "date" | "date-time")) {
            unknown = Some(alloc::format!("property {name}: format must be email, uri, date or date-time"));
        }
    });
    unknown.map_or(Ok(()), Err)
}

/// Whether `content` answers the form `schema`, which passed [`check`].
pub(super) fn check_content(schema: &Json, content: &Json) -> Result<(), String> {
    let properties = member(schema.as_str(), "properties").unwrap_or("{}");
    let mut wrong = None;
    for_each_member(content.as_str(), |name, value| {
        let fits = match member(properties, name) {
            None => Err(String::from("was not asked for")),
            Some(property) => Field::read(property, Revision::NEWEST).and_then(|field| field.fits(value)),
        };
        if let (None, Err(why)) = (&wrong, fits) {
            wrong = Some(alloc::format!("{name} {why}"));
        }
    });
    if let Some(why) = wrong {
        return Err(why);
    }
    let required = member(schema.as_str(), "required").map(elements).unwrap_or_default();
    match required.into_iter().filter_map(string).find(|name| member(content.as_str(), name).is_none()) {
        Some(name) => Err(alloc::format!("{name} is missing")),
        None => Ok(()),
    }
}

/// One field of a form.
enum Field<'a> {
    Text { shortest: Option<u64>, longest: Option<u64> },
    Number { whole: bool, least: Option<f64>, most: Option<f64> },
    Boolean,
    OneOf(Vec<&'a str>),
    SomeOf { choices: Vec<&'a str>, fewest: Option<u64>, most: Option<u64> },
}

impl<'a> Field<'a> {
    fn read(property: &'a str, revision: Revision) -> Result<Self, String> {
        if Kind::of(property) != Kind::Object {
            return Err(String::from("must be an object"));
        }
        let kind = text_member(property, "type").ok_or("needs one type, as text")?;
        let newest = revision >= Revision::R2025_11_25;
        let nested: &[&str] = match &*kind {
            "array" => &["properties", "$ref", "anyOf", "oneOf", "allOf", "not"],
            "string" if newest => &["properties", "items", "$ref", "anyOf", "allOf", "not"],
            "string" => &["properties", "items", "$ref", "anyOf", "oneOf", "allOf", "not"],
            _ => &["properties", "items", "enum", "$ref", "anyOf", "oneOf", "allOf", "not"],
        };
        if let Some(word) = nested.iter().find(|word| member(property, word).is_some()) {
            return Err(alloc::format!("must be a primitive: {word} is not allowed"));
        }
        let whole = |name: &str| match member(property, name) {
            None => Ok(None),
            Some(value) => value.parse::<u64>().map(Some).map_err(|_| alloc::format!("{name} must be a whole number")),
        };
        let real = |name: &str| match member(property, name) {
            None => Ok(None),
            Some(value) => number(value).map(Some).ok_or_else(|| alloc::format!("{name} must be a number")),
        };
        let field = match &*kind {
            "string" => match choices(property)? {
                Some(choices) => Self::OneOf(choices),
                None => Self::Text { shortest: whole("minLength")?, longest: whole("maxLength")? },
            },
            "number" | "integer" => Self::Number { whole: kind == "integer", least: real("minimum")?, most: real("maximum")? },
            "boolean" => Self::Boolean,
            "array" if newest => {
                let items =
                    member(property, "items").filter(|items| Kind::of(items) == Kind::Object).ok_or("items must be an object")?;
                let choices = choices(items)?.ok_or("items must list what may be chosen")?;
                Self::SomeOf { choices, fewest: whole("minItems")?, most: whole("maxItems")? }
            }
            other => return Err(alloc::format!("type {other} is no primitive")),
        };
        match member(property, "default") {
            Some(value) => field.fits(value).map(|()| field).map_err(|why| alloc::format!("its default {why}")),
            None => Ok(field),
        }
    }

    fn fits(&self, value: &str) -> Result<(), String> {
        let check = |fits: bool, why: &str| if fits { Ok(()) } else { Err(String::from(why)) };
        match self {
            Self::Text { shortest, longest } => {
                let text = string(value).ok_or("must be text")?;
                // JSON Schema counts characters, not bytes.
                let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
                check(shortest.is_none_or(|least| length >= least), "is too short")?;
                check(longest.is_none_or(|most| length <= most), "is too long")
            }
            Self::Number { whole, least, most } => {
                let number = number(value).ok_or("must be a number")?;
                // Whole numbers beyond 2^53 have no fraction either.
                check(!whole || number.abs() >= 9e15 || number as i64 as f64 == number, "must be a whole number")?;
                check(least.is_none_or(|least| number >= least), "is too small")?;
                check(most.is_none_or(|most| number <= most), "is too large")
            }
            Self::Boolean => check(Kind::of(value) == Kind::Bool, "must be true or false"),
            Self::OneOf(choices) => check(is_choice(choices, value), "is none of the choices"),
            Self::SomeOf { choices, fewest, most } => {
                check(Kind::of(value) == Kind::Array, "must be an array")?;
                let chosen = elements(value);
                check(chosen.iter().all(|value| is_choice(choices, value)), "has what is none of the choices")?;
                let count = u64::try_from(chosen.len()).unwrap_or(u64::MAX);
                check(fewest.is_none_or(|least| count >= least), "has too few")?;
                check(most.is_none_or(|most| count <= most), "has too many")
            }
        }
    }
}

fn is_choice(choices: &[&str], value: &str) -> bool {
    string(value).is_some_and(|chosen| choices.iter().any(|choice| string(choice).as_deref() == Some(&*chosen)))
}

/// The choices of an enumeration in any of its spellings: `enum`, or `oneOf` / `anyOf` with titled constants.
fn choices(schema: &str) -> Result<Option<Vec<&str>>, String> {
    let plain = member(schema, "enum");
    let titled = member(schema, "oneOf").or_else(|| member(schema, "anyOf"));
    let Some(list) = plain.or(titled) else { return Ok(None) };
    if Kind::of(list) != Kind::Array {
        return Err(String::from("choices must be an array"));
    }
    let all: Option<Vec<&str>> =
        elements(list).into_iter().map(|choice| if plain.is_some() { Some(choice) } else { member(choice, "const") }).collect();
    match all {
        Some(all) if all.iter().all(|choice| string(choice).is_some()) => Ok(Some(all)),
        _ => Err(String::from("every choice must be text")),
    }
}

fn text_member<'a>(object: &'a str, name: &str) -> Option<alloc::borrow::Cow<'a, str>> {
    member(object, name).and_then(string)
}
