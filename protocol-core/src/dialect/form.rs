//! Forms: the flat schemas of elicitation, and the check that an answer fits a form (MCP 2025-11-25, "Elicitation", section "Requested
//! Schema"; Tesseron, page "Elicitation").

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::dialect::excerpt;
use crate::json::Json;
use crate::json::read::{Key, Kind, Members, elements, for_each_member, integer, member, number, string};
use crate::json::write::{Object, push_json};

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

/// Reads the schema of a peer: writes fields in the forms of serializers of types, such as pydantic, as the protocol writes them, and checks
/// the schema. Returns `schema` itself if there is nothing to rewrite.
pub(super) fn read(schema: Json, kinds: FieldKinds) -> Result<Json, String> {
    let schema = canonical(schema.as_bytes()).unwrap_or(schema);
    check(&schema, kinds).map(|()| schema)
}

/// Removes the members of an answer that are `null`, which count as absent.
pub(super) fn without_nulls(content: Json) -> Json {
    let has_nulls = |members: Members<'_>| members.into_iter().any(|(_, value)| value == b"null");
    if !Members::of(content.as_bytes()).is_some_and(has_nulls) {
        return content;
    }
    Object::value(|object| given_members(content.as_bytes()).for_each(|(key, value)| object.copy(key, value)))
}

/// The members of an object that are not `null`.
fn given_members(object: &[u8]) -> impl Iterator<Item = (Key<'_>, &[u8])> {
    Members::of(object).into_iter().flatten().filter(|(_, value)| *value != b"null")
}

/// A schema as the protocol writes it. `None` if it is written so already.
fn canonical(schema: &[u8]) -> Option<Json> {
    let mut is_changed = false;
    let rewritten = Object::value(|object| {
        for (key, value) in Members::of(schema).into_iter().flatten() {
            if value == b"null" {
                is_changed = true;
            } else if key.is("properties") && Kind::of(value) == Kind::Object {
                object.object("properties", |object| {
                    for (name, property) in Members::of(value).into_iter().flatten() {
                        let rewritten = canonical_property(property);
                        is_changed |= rewritten.is_some();
                        object.copy(name, rewritten.as_ref().map_or(property, Json::as_bytes));
                    }
                });
            } else {
                object.copy(key, value);
            }
        }
    });
    is_changed.then_some(rewritten)
}

/// A property as the protocol writes it; `None` if it is written so already. Members that are `null` count as absent. A type that may be
/// `null` is that type, since a field may be omitted instead. Choices without a type are text, and a constant is the only choice.
fn canonical_property(property: &[u8]) -> Option<Json> {
    let is_null_schema = |schema: &&[u8]| text_member(schema, "type").as_deref() == Some("null");
    let mut is_changed = false;
    let mut members = Vec::new();
    let mut inner: &[u8] = b"";
    for (key, value) in Members::of(property)? {
        let alternatives = if key.is("anyOf") || key.is("oneOf") { elements(value) } else { Vec::new() };
        let (nulls, others): (Vec<_>, Vec<_>) = alternatives.into_iter().partition(is_null_schema);
        match *others {
            _ if value == b"null" => is_changed = true,
            [only] if !nulls.is_empty() && Kind::of(only) == Kind::Object => {
                is_changed = true;
                inner = only;
            }
            _ => members.push((key, value)),
        }
    }
    if !inner.is_empty() {
        // The members beside the alternatives describe the field, and count before those of the alternative.
        let names: BTreeSet<_> = members.iter().map(|(key, _)| key.name()).collect();
        let more: Vec<_> = given_members(inner).filter(|(key, _)| !names.contains(&key.name())).collect();
        members.extend(more);
    }
    let has = |name: &str| members.iter().any(|(key, _)| key.is(name));
    let has_text = |list: &[u8]| elements(list).into_iter().all(|value| matches!(Kind::of(value), Kind::String | Kind::Null));
    let are_texts =
        members.iter().any(|(key, value)| (key.is("enum") && has_text(value)) || (key.is("const") && string(value).is_some()));
    let has_enum = has("enum");
    let adds_type = are_texts && !has("type");
    is_changed |= adds_type;
    let rewritten = Object::value(|object| {
        if adds_type {
            object.word("type", "string");
        }
        for (key, value) in members {
            let kept = |is_null: &dyn Fn(&[u8]) -> bool| {
                let all = elements(value);
                let kept: Vec<_> = all.iter().copied().filter(|value| !is_null(value)).collect();
                (kept.len() < all.len()).then_some(kept)
            };
            if key.is("type")
                && let Some([only]) = kept(&|kind| kind == br#""null""#).as_deref()
            {
                is_changed = true;
                object.copy(key, only);
            } else if key.is("enum")
                && let Some(choices) = kept(&|choice| choice == b"null")
            {
                is_changed = true;
                object.array("enum", choices, push_json);
            } else if key.is("const") && !has_enum && string(value).is_some() {
                is_changed = true;
                object.array("enum", [value], push_json);
            } else {
                object.copy(key, value);
            }
        }
    });
    is_changed.then_some(rewritten)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(String::from(text)).unwrap()
    }

    /// Seen in the field: forms that pydantic writes for an optional field, a field whose default is `None`, and a choice; and serializers
    /// that write `null` for each keyword that a schema does not have.
    #[test]
    fn a_form_as_serializers_of_types_write_it_is_read_as_what_it_means() {
        for (property, expected) in [
            (
                r#"{"anyOf":[{"type":"string","minLength":2},{"type":"null"}],"default":null,"title":"Name"}"#,
                r#"{"title":"Name","type":"string","minLength":2}"#,
            ),
            (
                r#"{"title":"Outer","oneOf":[{"type":"null"},{"title":"Inner","type":"integer"}],"default":3}"#,
                r#"{"title":"Outer","default":3,"type":"integer"}"#,
            ),
            (r#"{"type":["number","null"]}"#, r#"{"type":"number"}"#),
            (r#"{"enum":["a","b"]}"#, r#"{"type":"string","enum":["a","b"]}"#),
            (r#"{"anyOf":[{"enum":["a",null]},{"type":"null"}]}"#, r#"{"type":"string","enum":["a"]}"#),
            (r#"{"const":"a","type":"string"}"#, r#"{"enum":["a"],"type":"string"}"#),
            (r#"{"type":"string","title":null,"minLength":null,"format":null,"default":null,"enum":null}"#, r#"{"type":"string"}"#),
        ] {
            let schema = |property| json(&alloc::format!(r#"{{"type":"object","properties":{{"x":{property}}}}}"#));
            for kinds in [FieldKinds::Plain, FieldKinds::Rich] {
                assert_eq!(read(schema(property), kinds), Ok(schema(expected)), "{property}");
                assert_eq!(read(schema(expected), kinds), Ok(schema(expected)), "already as the protocol writes it");
            }
        }
        let nulls = json(r#"{"type":"object","title":null,"required":null,"properties":{}}"#);
        assert_eq!(read(nulls, FieldKinds::Plain).unwrap().as_str(), r#"{"type":"object","properties":{}}"#);
        for foreign in [r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#, r#"{"enum":[1,2]}"#, r#"{"type":"null"}"#] {
            let schema = json(&alloc::format!(r#"{{"type":"object","properties":{{"x":{foreign}}}}}"#));
            assert!(read(schema, FieldKinds::Rich).is_err(), "{foreign} means no field of a form");
        }
    }

    /// Seen in the field: a client that answers an optional field with `null`.
    #[test]
    fn an_answer_of_null_counts_as_no_answer() {
        assert_eq!(without_nulls(json(r#"{"a":null,"b":[null],"c":null}"#)).as_str(), r#"{"b":[null]}"#);
        let schema = json(r#"{"type":"object","required":["b"],"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}"#);
        assert_eq!(check_content(&schema, &without_nulls(json(r#"{"a":null,"b":"x"}"#))), Ok(()));
        assert_eq!(check_content(&schema, &without_nulls(json(r#"{"b":null}"#))), Err(String::from("b is missing")));
    }
}
