//! The check of a value by rules of our own: types, members, choices, bounds of numbers and lengths of lists.
//!
//! A schema that says more is known before it is used ([`Checker::unchecked`]), so that nothing passes for checked that is not.

use core::cell::Cell;
use core::cmp::Ordering;
use core::fmt::{self, Display};

use serde_json::{Map, Number, Value};

use crate::violations::Violations;

/// A schema and the rules of it that are understood here.
pub(crate) struct Checker(Value);

/// Schemas within schemas, as long as a value of [`serde_json`]'s greatest depth needs them. A type that is only itself needs more.
const DEEPEST: usize = 640;

/// Schemas that a value may be held against, whatever its size: a tenth of a second.
const STEPS: usize = 1 << 18;
/// Further ones for each byte of its text.
const STEPS_A_BYTE: usize = 16;

/// The place of the first rule of `schema` that is not checked here, as a JSON pointer.
pub(crate) fn unchecked(schema: &Value) -> Option<String> {
    Audit { root: schema, place: Pointer::default() }.schema(schema).err().map(|Unchecked(place)| place)
}

impl Checker {
    pub(crate) const fn new(schema: Value) -> Self {
        Self(schema)
    }

    /// The place of the first rule that is never checked, as a JSON pointer.
    pub(crate) fn unchecked(&self) -> Option<String> {
        unchecked(&self.0)
    }

    /// Checks `value`, whose text is `size` bytes long. Fails with all that is wrong with it, and with a value that takes too long: alternatives
    /// that nest without a tag can take a time that doubles with each level.
    pub(crate) fn check(&self, value: &Value, size: usize) -> Result<(), String> {
        let steps = Cell::new(size.saturating_mul(STEPS_A_BYTE).saturating_add(STEPS));
        let found = Found::All(Violations::default());
        let mut walk = Walk { root: &self.0, place: Pointer::default(), depth: 0, steps: &steps, found };
        walk.schema(&self.0, value);
        match walk.found {
            Found::All(violations) => violations.into_result(),
            Found::Any(_) => Ok(()),
        }
    }
}

/// A place in a value or in a schema.
#[derive(Default)]
struct Pointer(String);

impl Pointer {
    /// Adds a step. Gives what [`Pointer::leave`] takes.
    fn enter(&mut self, step: &dyn Display) -> usize {
        let begin = self.0.len();
        let step = step.to_string();
        self.0.push('/');
        if step.contains(['~', '/']) {
            self.0.push_str(&step.replace('~', "~0").replace('/', "~1"));
        } else {
            self.0.push_str(&step);
        }
        begin
    }

    fn leave(&mut self, begin: usize) {
        self.0.truncate(begin);
    }
}

impl Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The seven types of JSON Schema.
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// The place of a rule that is never checked.
struct Unchecked(String);

/// A walk through a schema that looks for rules which [`Walk`] does not enforce.
struct Audit<'a> {
    root: &'a Value,
    place: Pointer,
}

impl Audit<'_> {
    fn schema(&mut self, schema: &Value) -> Result<(), Unchecked> {
        let rules = match schema {
            Value::Object(rules) => rules,
            Value::Bool(_) => return Ok(()),
            _ => return self.enforced(false),
        };
        for (keyword, rule) in rules {
            let begin = self.place.enter(keyword);
            self.rule(keyword, rule)?;
            self.place.leave(begin);
        }
        Ok(())
    }

    fn rule(&mut self, keyword: &str, rule: &Value) -> Result<(), Unchecked> {
        let is_type = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
        match keyword {
            "type" => self.enforced(match rule {
                Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(is_type),
                kind => is_type(kind),
            }),
            "enum" => self.enforced(rule.is_array()),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => self.enforced(rule.is_number()),
            "minItems" | "maxItems" | "minLength" | "maxLength" => self.enforced(rule.is_u64()),
            "required" => self.enforced(rule.as_array().is_some_and(|names| names.iter().all(Value::is_string))),
            "$ref" => self.enforced(target(self.root, rule).is_some()),
            "properties" | "$defs" => {
                let Value::Object(named) = rule else { return self.enforced(false) };
                named.iter().try_for_each(|(name, schema)| self.below(name, schema))
            }
            "prefixItems" | "anyOf" | "oneOf" | "allOf" => {
                let Value::Array(schemas) = rule else { return self.enforced(false) };
                schemas.iter().enumerate().try_for_each(|(index, schema)| self.below(&index, schema))
            }
            "items" | "additionalProperties" => self.schema(rule),
            "multipleOf"
            | "pattern"
            | "uniqueItems"
            | "contains"
            | "minContains"
            | "maxContains"
            | "minProperties"
            | "maxProperties"
            | "propertyNames"
            | "patternProperties"
            | "dependentRequired"
            | "dependentSchemas"
            | "dependencies"
            | "if"
            | "then"
            | "else"
            | "not"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "$dynamicRef"
            | "$recursiveRef" => self.enforced(false),
            // A remark, as formats are in this draft.
            _ => Ok(()),
        }
    }

    fn below(&mut self, step: &dyn Display, schema: &Value) -> Result<(), Unchecked> {
        let begin = self.place.enter(step);
        self.schema(schema)?;
        self.place.leave(begin);
        Ok(())
    }

    fn enforced(&self, is_enforced: bool) -> Result<(), Unchecked> {
        if is_enforced { Ok(()) } else { Err(Unchecked(self.place.0.clone())) }
    }
}

/// A definition of the schema, or the whole of it.
fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    match reference.as_str()?.strip_prefix('#')? {
        "" => Some(root),
        pointer => {
            let name = pointer.strip_prefix("/$defs/").filter(|name| !name.contains(['/', '%']))?;
            root.get("$defs")?.get(name.replace("~1", "/").replace("~0", "~"))
        }
    }
}

/// A walk through a value along its schema.
struct Walk<'a> {
    root: &'a Value,
    place: Pointer,
    depth: usize,
    /// Schemas that may yet be held against a value, by this walk and those that it starts.
    steps: &'a Cell<usize>,
    found: Found,
}

enum Found {
    All(Violations),
    /// Only whether there is any.
    Any(bool),
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, value: &Value) {
        let rules = match schema {
            Value::Object(rules) => rules,
            Value::Bool(false) => return self.wrong(format_args!("False schema does not allow {value}")),
            _ => return,
        };
        if self.depth == DEEPEST {
            return self.wrong("is nested too deep");
        }
        let Some(left) = self.steps.get().checked_sub(1) else { return self.wrong("takes too long to check") };
        self.steps.set(left);
        self.depth = self.depth.saturating_add(1);
        for (keyword, rule) in rules {
            if self.is_decided() {
                break;
            }
            match rule {
                Value::Object(_) | Value::Bool(_) => self.applied(keyword, rule, rules, value),
                Value::Array(parts) => self.listed(keyword, parts, value),
                Value::Number(bound) => self.bound(keyword, bound, value),
                Value::String(text) if keyword == "type" && !is_of_type(value, text) => {
                    self.wrong(format_args!(r#"{value} is not of type "{text}""#));
                }
                Value::String(_) if keyword == "$ref" => {
                    if let Some(target) = target(self.root, rule) {
                        self.schema(target, value);
                    }
                }
                _ => {}
            }
            if keyword == "const" && !is_same(rule, value) {
                self.wrong(format_args!("{rule} was expected"));
            }
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// A rule that is a schema, or schemas by name.
    fn applied(&mut self, keyword: &str, rule: &Value, rules: &Map<String, Value>, value: &Value) {
        match (keyword, rule, value) {
            ("properties", Value::Object(known), Value::Object(members)) => {
                // Tags first: with them all alternatives but one end before what is within them, or as many walks go on as there are
                // alternatives, at each level of an expression.
                for is_tag in [true, false] {
                    for (name, schema) in known.iter().filter(|(_, schema)| schema.get("const").is_some() == is_tag) {
                        match members.get(name) {
                            Some(member) if !self.is_decided() => self.below(name, schema, member),
                            _ => {}
                        }
                    }
                }
            }
            ("additionalProperties", _, Value::Object(members)) => {
                let known = rules.get("properties").and_then(Value::as_object);
                let mut others = members.iter().filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)));
                if *rule == Value::Bool(false) {
                    let unexpected: Vec<String> = others.map(|(name, _)| format!("'{name}'")).collect();
                    let were = if unexpected.len() == 1 { "was" } else { "were" };
                    if !unexpected.is_empty() {
                        let names = unexpected.join(", ");
                        self.wrong(format_args!("Additional properties are not allowed ({names} {were} unexpected)"));
                    }
                } else {
                    others.by_ref().for_each(|(name, member)| self.below(name, rule, member));
                }
            }
            ("items", _, Value::Array(elements)) => {
                let first = rules.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                for (index, element) in elements.iter().enumerate().skip(first) {
                    if self.is_decided() {
                        break;
                    }
                    self.below(&index, rule, element);
                }
            }
            _ => {}
        }
    }

    /// A rule that is a list.
    fn listed(&mut self, keyword: &str, parts: &[Value], value: &Value) {
        match (keyword, value) {
            ("type", _) if !parts.iter().filter_map(Value::as_str).any(|kind| is_of_type(value, kind)) => {
                let kinds: Vec<String> = parts.iter().map(ToString::to_string).collect();
                self.wrong(format_args!("{value} is not of types {}", kinds.join(", ")));
            }
            ("enum", _) if !parts.iter().any(|choice| is_same(choice, value)) => {
                self.wrong(format_args!("{value} is not one of {}", Choices(parts)));
            }
            ("required", Value::Object(members)) => {
                for name in parts.iter().filter(|name| name.as_str().is_some_and(|name| !members.contains_key(name))) {
                    self.wrong(format_args!("{name} is a required property"));
                }
            }
            ("prefixItems", Value::Array(elements)) => {
                for (index, (schema, element)) in parts.iter().zip(elements).enumerate() {
                    self.below(&index, schema, element);
                }
            }
            ("allOf", _) => parts.iter().for_each(|schema| self.schema(schema, value)),
            ("anyOf", _) if !parts.iter().any(|schema| self.fits(schema, value)) => {
                if matches!(self.found, Found::Any(_)) {
                    return self.wrong("fits no alternative");
                }
                // An option of a type: what is wrong with it says more.
                let mut some = parts.iter().filter(|schema| schema.get("type").is_none_or(|kind| kind != "null"));
                if let (Some(only), None, false) = (some.next(), some.next(), value.is_null()) {
                    return self.schema(only, value);
                }
                self.wrong(format_args!("{value} is not valid under any of the schemas listed in the 'anyOf' keyword"));
            }
            ("oneOf", _) => match parts.iter().filter(|schema| self.fits(schema, value)).take(2).count() {
                0 => self.wrong(format_args!("{value} is not valid under any of the schemas listed in the 'oneOf' keyword")),
                1 => {}
                _ => self.wrong(format_args!("{value} is valid under more than one of the schemas listed in the 'oneOf' keyword")),
            },
            _ => {}
        }
    }

    /// A rule that is a number.
    fn bound(&mut self, keyword: &str, bound: &Number, value: &Value) {
        match value {
            Value::Number(number) => {
                let order = compare(number, bound);
                match keyword {
                    "minimum" if order.is_lt() => self.wrong(format_args!("{number} is less than the minimum of {bound}")),
                    "maximum" if order.is_gt() => self.wrong(format_args!("{number} is greater than the maximum of {bound}")),
                    "exclusiveMinimum" if order.is_le() => {
                        self.wrong(format_args!("{number} is less than or equal to the minimum of {bound}"));
                    }
                    "exclusiveMaximum" if order.is_ge() => {
                        self.wrong(format_args!("{number} is greater than or equal to the maximum of {bound}"));
                    }
                    _ => {}
                }
            }
            Value::Array(elements) => {
                let (length, items) = (elements.len() as u64, if *bound == Number::from(1) { "item" } else { "items" });
                match (keyword, bound.as_u64()) {
                    ("minItems", Some(least)) if length < least => {
                        self.wrong(format_args!("{value} has less than {least} {items}"));
                    }
                    ("maxItems", Some(most)) if length > most => self.wrong(format_args!("{value} has more than {most} {items}")),
                    _ => {}
                }
            }
            Value::String(text) => {
                let (length, characters) =
                    (text.chars().count() as u64, if *bound == Number::from(1) { "character" } else { "characters" });
                match (keyword, bound.as_u64()) {
                    ("minLength", Some(least)) if length < least => {
                        self.wrong(format_args!("{value} is shorter than {least} {characters}"));
                    }
                    ("maxLength", Some(most)) if length > most => {
                        self.wrong(format_args!("{value} is longer than {most} {characters}"));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn below(&mut self, step: &dyn Display, schema: &Value, value: &Value) {
        let begin = self.place.enter(step);
        self.schema(schema, value);
        self.place.leave(begin);
    }

    fn fits(&self, schema: &Value, value: &Value) -> bool {
        let mut walk =
            Walk { root: self.root, place: Pointer::default(), depth: self.depth, steps: self.steps, found: Found::Any(false) };
        walk.schema(schema, value);
        matches!(walk.found, Found::Any(false))
    }

    /// Passes if nothing that is yet to come makes a difference.
    const fn is_decided(&self) -> bool {
        matches!(self.found, Found::Any(true))
    }

    fn wrong(&mut self, what: impl Display) {
        match &mut self.found {
            Found::All(violations) => violations.push(&self.place, &what),
            Found::Any(any) => *any = true,
        }
    }
}

/// The choices of an `enum`, as far as they fit in one line.
struct Choices<'a>(&'a [Value]);

impl Display for Choices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, more) = match self.0 {
            [first, second, more @ ..] if more.len() > 1 => (&[first, second][..], more.len()),
            [first, second, third] => (&[first, second, third][..], 0),
            [first, second] => (&[first, second][..], 0),
            [only] => (&[only][..], 0),
            _ => return f.write_str("nothing"),
        };
        for (index, choice) in all.iter().enumerate() {
            let separator = match index {
                0 => "",
                _ if more == 0 && index.saturating_add(1) == all.len() => " or ",
                _ => ", ",
            };
            write!(f, "{separator}{choice}")?;
        }
        if more > 0 { write!(f, " or {more} other candidates") } else { Ok(()) }
    }
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && is_whole(number)),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// `3.0` is an integer to a schema.
fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn compare(a: &Number, b: &Number) -> Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        // Numbers of JSON are finite.
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
    }
}

/// Equality in which `1` is `1.0`.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}
