//! Checks values against the keywords that derived schemas mostly consist of: types, members, choices, ranges of numbers, and lengths of
//! lists and strings.
//!
//! [`Checker::unchecked`] finds the first other keyword of a schema before the schema is used, so that no keyword that restricts values is
//! silently ignored. Unknown keywords and annotations do not count as such keywords.

use core::cell::Cell;
use core::cmp::Ordering;
use core::fmt::{self, Display};

use serde_json::{Map, Number, Value};

use crate::validation_errors::ValidationErrors;

/// A schema, to check values against.
pub(crate) struct Checker(Value);

/// The maximum depth of nested schemas. The most deeply nested value that [`serde_json`] parses has 128 levels, so each level may take five
/// schemas, such as a reference, an alternative and a type. A definition that refers to nothing but itself exceeds this depth.
const MAX_DEPTH: usize = 640;

/// The number of schemas that a value may be checked against, whatever its size. Checking that many takes about a tenth of a second.
const MAX_STEPS: usize = 1 << 18;
/// The number that is added to [`MAX_STEPS`] for each byte of the value's JSON.
const MAX_STEPS_PER_BYTE: usize = 16;

/// The JSON pointer of the first keyword in `schema` that is not checked here; `None` if all are.
pub(crate) fn unchecked(schema: &Value) -> Option<String> {
    Audit { root: schema, path: Pointer::default() }.schema(schema).err().map(|Unchecked(path)| path)
}

impl Checker {
    pub(crate) const fn new(schema: Value) -> Self {
        Self(schema)
    }

    /// The JSON pointer of the first keyword that is not checked here; `None` if all are.
    pub(crate) fn unchecked(&self) -> Option<String> {
        unchecked(&self.0)
    }

    /// Checks `value`, whose JSON is `size` bytes long. Fails with the text of its validation errors. It is also an error if the check gets
    /// deeper than [`MAX_DEPTH`], or takes too many steps, since the time for nested untagged alternatives can double with each level. If
    /// the check of an alternative reaches such a limit, an `anyOf` is valid only if another alternative fits, and a `oneOf` is never
    /// valid.
    pub(crate) fn check(&self, value: &Value, size: usize) -> Result<(), String> {
        let steps = Cell::new(size.saturating_mul(MAX_STEPS_PER_BYTE).saturating_add(MAX_STEPS));
        let found = Found::All(ValidationErrors::default());
        let mut walk = Walk { root: &self.0, path: Pointer::default(), depth: 0, steps: &steps, found };
        walk.schema(&self.0, value);
        match walk.found {
            Found::All(errors) => errors.into_result(),
            Found::First(_) => Ok(()),
        }
    }
}

/// The JSON pointer of the place that a walk has reached in a value or a schema.
#[derive(Default)]
struct Pointer(String);

impl Pointer {
    /// Appends a step. Returns the argument for [`Pointer::leave`].
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

/// The JSON pointer of a keyword that is not checked here.
struct Unchecked(String);

/// A search in a schema for keywords that [`Walk`] does not check.
struct Audit<'a> {
    root: &'a Value,
    path: Pointer,
}

impl Audit<'_> {
    fn schema(&mut self, schema: &Value) -> Result<(), Unchecked> {
        let rules = match schema {
            Value::Object(rules) => rules,
            Value::Bool(_) => return Ok(()),
            _ => return self.enforced(false),
        };
        for (keyword, rule) in rules {
            let begin = self.path.enter(keyword);
            self.rule(keyword, rule)?;
            self.path.leave(begin);
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
            // `const`, which is checked with any value; annotations, such as `format` in draft 2020-12; and unknown keywords.
            _ => Ok(()),
        }
    }

    fn below(&mut self, step: &dyn Display, schema: &Value) -> Result<(), Unchecked> {
        let begin = self.path.enter(step);
        self.schema(schema)?;
        self.path.leave(begin);
        Ok(())
    }

    /// Fails unless the keyword at the current path is enforced.
    fn enforced(&self, is_enforced: bool) -> Result<(), Unchecked> {
        if is_enforced { Ok(()) } else { Err(Unchecked(self.path.0.clone())) }
    }
}

/// The schema that a `$ref` names: a definition, or the whole schema.
pub(crate) fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    match reference.as_str()?.strip_prefix('#')? {
        "" => Some(root),
        pointer => {
            let name = pointer.strip_prefix("/$defs/").filter(|name| !name.contains(['/', '%']))?;
            root.get("$defs")?.get(name.replace("~1", "/").replace("~0", "~"))
        }
    }
}

/// A walk through a value and its schema.
struct Walk<'a> {
    root: &'a Value,
    path: Pointer,
    depth: usize,
    /// The number of schemas that this walk, together with the walks that it starts, may still check.
    steps: &'a Cell<usize>,
    found: Found,
}

/// The result of a walk so far.
enum Found {
    /// The texts of all errors.
    All(ValidationErrors),
    /// For an alternative, only its fit. The walk stops at the first error.
    First(Fit),
}

/// The outcome of a check of a value against an alternative.
#[derive(Clone, Copy)]
enum Fit {
    Fits,
    Wrong,
    /// The check has reached a limit, which the text names.
    Unknown(&'static str),
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, value: &Value) {
        let rules = match schema {
            Value::Object(rules) => rules,
            Value::Bool(false) => return self.wrong(format_args!("False schema does not allow {value}")),
            _ => return,
        };
        if self.depth == MAX_DEPTH {
            return self.give_up("is nested too deep");
        }
        let Some(left) = self.steps.get().checked_sub(1) else { return self.give_up("takes too long to check") };
        self.steps.set(left);
        self.depth = self.depth.saturating_add(1);
        for (keyword, rule) in rules {
            if self.is_decided() {
                break;
            }
            match rule {
                Value::Object(_) | Value::Bool(_) => self.schema_keyword(keyword, rule, rules, value),
                Value::Array(parts) => self.list_keyword(keyword, parts, value),
                Value::Number(bound) => self.number_keyword(keyword, bound, value),
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

    /// Checks a keyword whose value is a schema, or schemas by name.
    fn schema_keyword(&mut self, keyword: &str, rule: &Value, rules: &Map<String, Value>, value: &Value) {
        match (keyword, rule, value) {
            ("properties", Value::Object(known), Value::Object(members)) => {
                // Tags (members with `const`) are checked first, so that the wrong alternatives of a tagged enum fail before their other
                // members are checked. Otherwise the time of nested enums would be exponential in their depth.
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

    /// Checks a keyword whose value is a list.
    fn list_keyword(&mut self, keyword: &str, parts: &[Value], value: &Value) {
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
            ("anyOf", _) => {
                if let (0, limit) = self.fit(parts, value, 1) {
                    self.fits_none(parts, value, limit);
                }
            }
            ("oneOf", _) => match self.fit(parts, value, 2) {
                (0 | 1, Some(limit)) => self.give_up(limit),
                (0, None) => {
                    self.wrong(format_args!("{value} is not valid under any of the schemas listed in the 'oneOf' keyword"));
                }
                (1, None) => {}
                _ => self.wrong(format_args!("{value} is valid under more than one of the schemas listed in the 'oneOf' keyword")),
            },
            _ => {}
        }
    }

    /// Handles an `anyOf` of which no alternative is known to fit. `limit` is the limit that the check of an alternative has reached, if
    /// any.
    fn fits_none(&mut self, parts: &[Value], value: &Value, limit: Option<&'static str>) {
        if let Found::All(_) = self.found {
            // An `Option`: the errors of the type in it are more useful than the error that no alternative fits.
            let mut some = parts.iter().filter(|schema| schema.get("type").is_none_or(|kind| kind != "null"));
            if let (Some(only), None, false) = (some.next(), some.next(), value.is_null()) {
                return self.schema(only, value);
            }
        }
        match limit {
            Some(limit) => self.give_up(limit),
            None => self.wrong(format_args!("{value} is not valid under any of the schemas listed in the 'anyOf' keyword")),
        }
    }

    /// Checks a keyword whose value is a number.
    fn number_keyword(&mut self, keyword: &str, bound: &Number, value: &Value) {
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
                    ("minItems", Some(min)) if length < min => {
                        self.wrong(format_args!("{value} has less than {min} {items}"));
                    }
                    ("maxItems", Some(max)) if length > max => self.wrong(format_args!("{value} has more than {max} {items}")),
                    _ => {}
                }
            }
            Value::String(text) => {
                let (length, characters) =
                    (text.chars().count() as u64, if *bound == Number::from(1) { "character" } else { "characters" });
                match (keyword, bound.as_u64()) {
                    ("minLength", Some(min)) if length < min => {
                        self.wrong(format_args!("{value} is shorter than {min} {characters}"));
                    }
                    ("maxLength", Some(max)) if length > max => {
                        self.wrong(format_args!("{value} is longer than {max} {characters}"));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn below(&mut self, step: &dyn Display, schema: &Value, value: &Value) {
        let begin = self.path.enter(step);
        self.schema(schema, value);
        self.path.leave(begin);
    }

    /// The number of alternatives that fit, counted up to `most`, and the limit that the check of another alternative has reached, if any.
    fn fit(&self, parts: &[Value], value: &Value, most: usize) -> (usize, Option<&'static str>) {
        let (mut fitting, mut limit) = (0_usize, None);
        for schema in parts {
            let found = Found::First(Fit::Fits);
            let mut walk = Walk { root: self.root, path: Pointer::default(), depth: self.depth, steps: self.steps, found };
            walk.schema(schema, value);
            match walk.found {
                Found::First(Fit::Fits) => fitting = fitting.saturating_add(1),
                Found::First(Fit::Unknown(reached)) => limit = Some(reached),
                Found::First(Fit::Wrong) | Found::All(_) => {}
            }
            if fitting == most {
                break;
            }
        }
        (fitting, limit)
    }

    /// Returns `true` if the rest of the value and of the schema cannot change the result, so that the walk can stop.
    const fn is_decided(&self) -> bool {
        matches!(self.found, Found::First(Fit::Wrong | Fit::Unknown(_)))
    }

    fn wrong(&mut self, what: impl Display) {
        match &mut self.found {
            Found::All(errors) => errors.push(&self.path, &what),
            Found::First(fit) => *fit = Fit::Wrong,
        }
    }

    /// Notes that the check has reached a limit.
    fn give_up(&mut self, limit: &'static str) {
        match &mut self.found {
            Found::All(errors) => errors.push(&self.path, &limit),
            Found::First(fit @ Fit::Fits) => *fit = Fit::Unknown(limit),
            Found::First(_) => {}
        }
    }
}

/// Displays the values of an `enum`: all if there are at most three, otherwise two of them and the number of the others.
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

/// Returns `true` for an integer in the sense of JSON Schema, such as `3` and `3.0`.
fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn compare(a: &Number, b: &Number) -> Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        // JSON numbers are finite, so `partial_cmp` never returns `None`.
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
    }
}

/// Equality in the sense of JSON Schema: `1` equals `1.0`.
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
