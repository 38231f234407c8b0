//! Forms: the flat schemas of elicitation, and the check that an answer fits a form (MCP 2025-11-25, "Elicitation", section "Requested
//! Schema"; Tesseron, page "Elicitation").

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use crate::dialect::excerpt;
use crate::json::Json;
use crate::json::read::{Kind, Members, elements, for_each_member, integer, member, number, string};

/// The kinds of field that a protocol allows in a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKinds {
    /// Text, numbers, booleans, and one choice from an `enum`.
    Plain,
    /// The kinds of `Plain`, and also choices with titles, and several choices at once (MCP 2025-11-25).
    Rich,
}

/// Checks that `schema` describes a flat object, whose fields are of these kinds.
pub(super) fn check(schema: &Json, kinds: FieldKinds) -> Result<(), String> {
    Form::read(schema.as_bytes(), kinds).map(drop)
}

/// Checks that the protocol defines every `format` in a schema of ours that passed [`check`]. In a schema of a peer, an unknown format is
/// only an annotation, and is not checked.
pub(super) fn check_formats(schema: &Json) -> Result<(), String> {
    let mut unknown = None;
    for_each_member(member(schema.as_bytes(), "properties").unwrap_or(b"{}"), |name, property| {
        let format = member(property, "format").map(|format| string(format).unwrap_or_default());
        if format.is_some_and(|format| !matches!(&*format, "email" | "uri" | "date" | "date-time")) {
            unknown = Some(alloc::format!("property {name}: format must be email, uri, date or date-time"));
        }
    });
    unknown.map_or(Ok(()), Err)
}

/// Checks that `content` answers the form `schema`, which passed [`check`].
pub(super) fn check_content(schema: &Json, content: &Json) -> Result<(), String> {
    Form::read(schema.as_bytes(), FieldKinds::Rich)?.fits(content.as_bytes())
}

/// The form of a confirmation, which has no field.
pub(super) fn confirmation() -> Json {
    Json::written(alloc::vec::Vec::from(*b"{\"type\":\"object\",\"properties\":{},\"required\":[]}"))
}

/// A parsed schema. Parsing takes time nearly in proportion to the length of the schema, however many fields it has.
struct Form<'a> {
    fields: BTreeMap<Cow<'a, str>, Field<'a>>,
    required: BTreeSet<Cow<'a, str>>,
}

impl<'a> Form<'a> {
    fn read(schema: &'a [u8], kinds: FieldKinds) -> Result<Self, String> {
        if Kind::of(schema) != Kind::Object || text_member(schema, "type").as_deref() != Some("object") {
            return Err(String::from("the requested schema must be of type object"));
        }
        if let Some(word) = ["oneOf", "anyOf", "allOf", "not", "$ref"].into_iter().find(|word| member(schema, word).is_some()) {
            return Err(alloc::format!("the requested schema must be flat: {word} is not allowed"));
        }
        let mut form = Self { fields: BTreeMap::new(), required: BTreeSet::new() };
        if let Some(properties) = member(schema, "properties") {
            let members = Members::of(properties).ok_or("properties of the requested schema must be an object")?;
            for (key, property) in members {
                let name = key.name();
                let field = Field::read(property, kinds).map_err(|why| alloc::format!("property {name}: {why}"))?;
                if form.fields.insert(name.clone(), field).is_some() {
                    return Err(alloc::format!("property {name} is repeated"));
                }
            }
        }
        if let Some(required) = member(schema, "required") {
            if Kind::of(required) != Kind::Array {
                return Err(String::from("required must be an array of property names"));
            }
            for name in elements(required) {
                let known = string(name).filter(|name| form.fields.contains_key(name));
                let unknown = || alloc::format!("required names {}, which is no property", String::from_utf8_lossy(name));
                form.required.insert(known.ok_or_else(unknown)?);
            }
        }
        Ok(form)
    }

    fn fits(&self, content: &[u8]) -> Result<(), String> {
        let mut answered = BTreeSet::new();
        let members = Members::of(content).ok_or("an answer must be an object")?;
        for (key, value) in members {
            let name = key.name();
            let unknown = || alloc::format!("{:?} was not asked for", excerpt(&name));
            let field = self.fields.get(&name).ok_or_else(unknown)?;
            field.fits(value).map_err(|why| alloc::format!("{name} {why}"))?;
            if !answered.insert(name.clone()) {
                return Err(alloc::format!("{name} is answered twice"));
            }
        }
        match self.required.iter().find(|name| !answered.contains(*name)) {
            Some(name) => Err(alloc::format!("{name} is missing")),
            None => Ok(()),
        }
    }
}

/// One field of a form.
enum Field<'a> {
    Text { shortest: Option<u64>, longest: Option<u64> },
    Number { whole: bool, least: Option<f64>, most: Option<f64> },
    Boolean,
    Choice(Choices<'a>),
    SeveralChoices { choices: Choices<'a>, fewest: Option<u64>, most: Option<u64> },
}

impl<'a> Field<'a> {
    fn read(property: &'a [u8], kinds: FieldKinds) -> Result<Self, String> {
        if Kind::of(property) != Kind::Object {
            return Err(String::from("must be an object"));
        }
        let kind = text_member(property, "type").ok_or("needs one type, as text")?;
        let rich = kinds == FieldKinds::Rich;
        let forbidden: &[&str] = match &*kind {
            "array" => &["properties", "$ref", "anyOf", "oneOf", "allOf", "not"],
            "string" if rich => &["properties", "items", "$ref", "anyOf", "allOf", "not"],
            "string" => &["properties", "items", "$ref", "anyOf", "oneOf", "allOf", "not"],
            _ => &["properties", "items", "enum", "$ref", "anyOf", "oneOf", "allOf", "not"],
        };
        if let Some(word) = forbidden.iter().find(|word| member(property, word).is_some()) {
            return Err(alloc::format!("must be a primitive: {word} is not allowed"));
        }
        let read_count = |name: &str| match member(property, name) {
            None => Ok(None),
            Some(value) => integer::<u64>(value).map(Some).ok_or_else(|| alloc::format!("{name} must be a whole number")),
        };
        let read_number = |name: &str| match member(property, name) {
            None => Ok(None),
            Some(value) => number(value).map(Some).ok_or_else(|| alloc::format!("{name} must be a number")),
        };
        let field = match &*kind {
            "string" => match choices(property)? {
                Some(choices) => Self::Choice(choices),
                None => Self::Text { shortest: read_count("minLength")?, longest: read_count("maxLength")? },
            },
            "number" | "integer" => {
                Self::Number { whole: kind == "integer", least: read_number("minimum")?, most: read_number("maximum")? }
            }
            "boolean" => Self::Boolean,
            "array" if rich => {
                let items =
                    member(property, "items").filter(|items| Kind::of(items) == Kind::Object).ok_or("items must be an object")?;
                let choices = choices(items)?.ok_or("items must list what may be chosen")?;
                Self::SeveralChoices { choices, fewest: read_count("minItems")?, most: read_count("maxItems")? }
            }
            other => return Err(alloc::format!("type {other} is no primitive")),
        };
        match member(property, "default") {
            Some(value) => field.fits(value).map(|()| field).map_err(|why| alloc::format!("its default {why}")),
            None => Ok(field),
        }
    }

    fn fits(&self, value: &[u8]) -> Result<(), String> {
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
                // Every `f64` of at least 2^52 (about 4.5e15) is whole. A number below 9e15 fits into an `i64`, and is whole if the
                // conversion to `i64` and back does not change it.
                check(!whole || number.abs() >= 9e15 || number as i64 as f64 == number, "must be a whole number")?;
                check(least.is_none_or(|least| number >= least), "is too small")?;
                check(most.is_none_or(|most| number <= most), "is too large")
            }
            Self::Boolean => check(Kind::of(value) == Kind::Bool, "must be true or false"),
            Self::Choice(choices) => check(is_choice(choices, value), "is none of the choices"),
            Self::SeveralChoices { choices, fewest, most } => {
                check(Kind::of(value) == Kind::Array, "must be an array")?;
                let chosen = elements(value);
                check(chosen.iter().all(|value| is_choice(choices, value)), "has an element that is none of the choices")?;
                let count = u64::try_from(chosen.len()).unwrap_or(u64::MAX);
                check(fewest.is_none_or(|least| count >= least), "has too few elements")?;
                check(most.is_none_or(|most| count <= most), "has too many elements")
            }
        }
    }
}

type Choices<'a> = BTreeSet<Cow<'a, str>>;

fn is_choice(choices: &Choices<'_>, value: &[u8]) -> bool {
    string(value).is_some_and(|chosen| choices.contains(&chosen))
}

/// The choices of a field: the texts of `enum`, or the constants of `oneOf` or `anyOf`. `None` if the field has none of these members.
fn choices(schema: &[u8]) -> Result<Option<Choices<'_>>, String> {
    let plain = member(schema, "enum");
    let titled = member(schema, "oneOf").or_else(|| member(schema, "anyOf"));
    let Some(list) = plain.or(titled) else { return Ok(None) };
    if Kind::of(list) != Kind::Array {
        return Err(String::from("choices must be an array"));
    }
    let text = |choice| if plain.is_some() { string(choice) } else { member(choice, "const").and_then(string) };
    let all: Option<Choices<'_>> = elements(list).into_iter().map(text).collect();
    all.map(Some).ok_or_else(|| String::from("every choice must be text"))
}

fn text_member<'a>(object: &'a [u8], name: &str) -> Option<alloc::borrow::Cow<'a, str>> {
    member(object, name).and_then(string)
}
