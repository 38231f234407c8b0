//! Checks JSON text against the keywords that derived schemas consist of: types, members, choices, ranges of numbers, lengths of lists and
//! strings, unique elements, integers as keys, and what a value must not be.
//!
//! [`Checker::new`] fails with the first other keyword of a schema, so that no keyword that restricts values is silently ignored. Unknown
//! keywords and annotations do not count as such keywords.
//!
//! A value is checked in one walk through its text, without a tree. [`Checker::fits`] takes the text of a peer; [`Checker::check`] lists the
//! errors of a value.

use core::cell::Cell;
use core::cmp::Ordering;
use core::fmt::{self, Display};
use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Number, Value};

use crate::validation_errors::ValidationErrors;
use protocol_core::json::Json;
use protocol_core::json::read::{Key, Kind, Walk, string};

/// A schema, to check values against.
pub(crate) struct Checker {
    root: Schema,
    /// The members of `$defs`.
    definitions: Vec<Schema>,
}

/// The maximum depth of nested schemas. The most deeply nested value that [`serde_json`] parses has 128 levels, so each level may take five
/// schemas, such as a reference, an alternative and a type. A definition that refers to nothing but itself exceeds this depth.
const MAX_DEPTH: usize = 640;

/// The number of schemas that a value may be checked against, whatever its size. Checking that many takes about a tenth of a second.
const MAX_STEPS: usize = 1 << 18;
/// The number that is added to [`MAX_STEPS`] for each byte of the value's JSON.
const MAX_STEPS_PER_BYTE: usize = 16;
/// The number of bytes of a value that is read once more, for an alternative, that count as one step.
const BYTES_PER_STEP: usize = 256;

/// A place in a schema that is not checked here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unchecked {
    /// The JSON pointer of the keyword.
    pub(crate) pointer: String,
    /// Set if the keyword is checked with other values than this one.
    is_known: bool,
}

impl Display for Unchecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, is_known } = self;
        let keyword = pointer.rsplit('/').next().unwrap_or_default();
        match is_known {
            true => write!(f, "the value of `{keyword}` at {pointer} is not valid, or is checked only with the feature `validate`"),
            false => write!(f, "the keyword `{keyword}` at {pointer} is checked only with the feature `validate`"),
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

/// The types of JSON Schema, a bit for each.
const NULL: u8 = 1;
const BOOLEAN: u8 = 1 << 1;
const INTEGER: u8 = 1 << 2;
const NUMBER: u8 = 1 << 3;
const STRING: u8 = 1 << 4;
const ARRAY: u8 = 1 << 5;
const OBJECT: u8 = 1 << 6;

enum Schema {
    /// Allows any value.
    Any,
    /// Allows none.
    Never,
    /// Nothing but a reference.
    At(Target),
    Rules(Box<Rules>),
}

/// What a `$ref` names.
#[derive(Clone, Copy)]
enum Target {
    Root,
    Definition(usize),
}

#[derive(Default)]
struct Rules {
    /// The types that are allowed, and their names as an error has them.
    types: Option<(u8, String)>,
    constant: Option<Choice>,
    choices: Option<Vec<Choice>>,
    bounds: Vec<Bound>,
    characters: Length,
    elements: Length,
    unique: bool,
    prefix: Vec<Schema>,
    items: Option<Schema>,
    members: Vec<Member>,
    /// The number of members that are tags: those with a constant.
    tags: usize,
    /// A bit for each of the first members that is required.
    required: u64,
    /// The schemas of members whose name is an integer.
    integers: Vec<(Integers, Schema)>,
    others: Option<Schema>,
    parts: Vec<Part>,
}

/// A value that is allowed.
struct Choice {
    text: String,
    value: Value,
}

struct Bound {
    side: Side,
    bound: Number,
    whole: Option<i64>,
}

#[derive(Clone, Copy)]
enum Side {
    Minimum,
    Maximum,
    ExclusiveMinimum,
    ExclusiveMaximum,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Length {
    min: Option<u64>,
    max: Option<u64>,
}

impl Length {
    /// Sets the minimum. Returns `false` if `rule` is not one.
    fn min(&mut self, rule: &Value) -> bool {
        self.min = rule.as_u64();
        self.min.is_some()
    }

    /// Sets the maximum. Returns `false` if `rule` is not one.
    fn max(&mut self, rule: &Value) -> bool {
        self.max = rule.as_u64();
        self.max.is_some()
    }
}

/// A member that is in `properties` or in `required`.
struct Member {
    name: String,
    /// `None` if the member is only required.
    schema: Option<Schema>,
    required: bool,
}

impl Member {
    /// Returns `true` for a member with a constant, as the tag of an enum is.
    fn is_tag(&self) -> bool {
        matches!(&self.schema, Some(Schema::Rules(rules)) if rules.constant.is_some())
    }
}

/// The two patterns that `schemars` derives for the keys of maps.
#[derive(Clone, Copy)]
enum Integers {
    Signed,
    Unsigned,
}

impl Integers {
    fn of_pattern(pattern: &str) -> Option<Self> {
        match pattern {
            r"^\d+$" => Some(Self::Unsigned),
            r"^-?\d+$" => Some(Self::Signed),
            _ => None,
        }
    }

    fn has(self, name: &str) -> bool {
        let digits = match self {
            Self::Signed => name.strip_prefix('-').unwrap_or(name),
            Self::Unsigned => name,
        };
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    }
}

/// A rule that consists of schemas for the same value.
enum Part {
    At(Target),
    All(Vec<Schema>),
    Any(Vec<Schema>),
    One(Vec<Schema>),
    /// With the text of the schema.
    Not(Schema, String),
}

/// The schema that a `$ref` names: a definition, or the whole schema.
pub(crate) fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    match reference.as_str()?.strip_prefix('#')? {
        "" => Some(root),
        pointer => root.get("$defs")?.get(definition(pointer)?),
    }
}

/// The name of the definition at the pointer `#/$defs/name`.
fn definition(pointer: &str) -> Option<String> {
    let name = pointer.strip_prefix("/$defs/").filter(|name| !name.contains(['/', '%']))?;
    Some(name.replace("~1", "/").replace("~0", "~"))
}

/// Makes the rules of a schema.
struct Compiler<'a> {
    /// The names in `$defs`, in the order of [`Checker::definitions`].
    names: Vec<&'a String>,
    path: Pointer,
}

impl Compiler<'_> {
    fn schema(&mut self, schema: &Value) -> Result<Schema, Unchecked> {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(true) => return Ok(Schema::Any),
            Value::Bool(false) => return Ok(Schema::Never),
            _ => return Err(self.unchecked(true)),
        };
        let mut rules = Rules::default();
        let mut restricting = 0_usize;
        for (keyword, rule) in keywords {
            let begin = self.path.enter(keyword);
            restricting = restricting.saturating_add(usize::from(self.keyword(&mut rules, keyword, rule)?));
            self.path.leave(begin);
        }
        for name in keywords.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            match rules.members.iter_mut().find(|member| member.name == name) {
                Some(member) => member.required = true,
                None => rules.members.push(Member { name: String::from(name), schema: None, required: true }),
            }
        }
        rules.tags = rules.members.iter().filter(|member| member.is_tag()).count();
        let required = rules.members.iter().enumerate().filter(|(_, member)| member.required);
        rules.required = required.filter_map(|(index, _)| bit(index)).fold(0, |bits, bit| bits | bit);
        Ok(match rules.parts[..] {
            _ if restricting == 0 => Schema::Any,
            [Part::At(target)] if restricting == 1 => Schema::At(target),
            _ => Schema::Rules(Box::new(rules)),
        })
    }

    /// Adds a keyword to `rules`. Returns `false` if it restricts nothing.
    fn keyword(&mut self, rules: &mut Rules, keyword: &str, rule: &Value) -> Result<bool, Unchecked> {
        let is_valid = match keyword {
            "type" => {
                rules.types = types(rule);
                rules.types.is_some()
            }
            "const" => {
                rules.constant = Some(Choice::of(rule));
                true
            }
            "enum" => {
                rules.choices = rule.as_array().map(|choices| choices.iter().map(Choice::of).collect());
                rules.choices.is_some()
            }
            "minimum" => rules.bound(Side::Minimum, rule),
            "maximum" => rules.bound(Side::Maximum, rule),
            "exclusiveMinimum" => rules.bound(Side::ExclusiveMinimum, rule),
            "exclusiveMaximum" => rules.bound(Side::ExclusiveMaximum, rule),
            "minItems" => rules.elements.min(rule),
            "maxItems" => rules.elements.max(rule),
            "minLength" => rules.characters.min(rule),
            "maxLength" => rules.characters.max(rule),
            "uniqueItems" => {
                rules.unique = *rule == Value::Bool(true);
                rule.is_boolean()
            }
            // The names are added after the properties.
            "required" => rule.as_array().is_some_and(|names| names.iter().all(Value::is_string)),
            "$ref" => {
                let target = self.target(rule);
                rules.parts.extend(target.map(Part::At));
                target.is_some()
            }
            "properties" => {
                for (name, schema) in rule.as_object().ok_or_else(|| self.unchecked(true))? {
                    let schema = Some(self.below(name, schema)?);
                    rules.members.push(Member { name: name.clone(), schema, required: false });
                }
                true
            }
            "patternProperties" => {
                for (pattern, schema) in rule.as_object().ok_or_else(|| self.unchecked(true))? {
                    let integers = Integers::of_pattern(pattern).ok_or_else(|| self.unchecked(true))?;
                    rules.integers.push((integers, self.below(pattern, schema)?));
                }
                true
            }
            "prefixItems" => {
                rules.prefix = self.list(rule)?;
                true
            }
            "items" => {
                rules.items = Some(self.schema(rule)?);
                true
            }
            "additionalProperties" => {
                rules.others = Some(self.schema(rule)?);
                true
            }
            "allOf" | "anyOf" | "oneOf" => {
                let list = self.list(rule)?;
                rules.parts.push(match keyword {
                    "allOf" => Part::All(list),
                    "anyOf" => Part::Any(list),
                    _ => Part::One(list),
                });
                true
            }
            "not" => {
                rules.parts.push(Part::Not(self.schema(rule)?, rule.to_string()));
                true
            }
            "multipleOf"
            | "pattern"
            | "contains"
            | "minContains"
            | "maxContains"
            | "minProperties"
            | "maxProperties"
            | "propertyNames"
            | "dependentRequired"
            | "dependentSchemas"
            | "dependencies"
            | "if"
            | "then"
            | "else"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "$dynamicRef"
            | "$recursiveRef" => return Err(self.unchecked(false)),
            // `$defs`, whose schemas are made before; annotations, such as `format` in draft 2020-12; and unknown keywords.
            _ => return Ok(false),
        };
        if is_valid { Ok(true) } else { Err(self.unchecked(true)) }
    }

    fn list(&mut self, schemas: &Value) -> Result<Vec<Schema>, Unchecked> {
        let schemas = schemas.as_array().ok_or_else(|| self.unchecked(true))?;
        schemas.iter().enumerate().map(|(index, schema)| self.below(&index, schema)).collect()
    }

    fn below(&mut self, step: &dyn Display, schema: &Value) -> Result<Schema, Unchecked> {
        let begin = self.path.enter(step);
        let schema = self.schema(schema)?;
        self.path.leave(begin);
        Ok(schema)
    }

    fn target(&self, reference: &Value) -> Option<Target> {
        match reference.as_str()?.strip_prefix('#')? {
            "" => Some(Target::Root),
            pointer => {
                let name = definition(pointer)?;
                self.names.iter().position(|known| **known == name).map(Target::Definition)
            }
        }
    }

    /// The keyword at the current path.
    fn unchecked(&self, is_known: bool) -> Unchecked {
        Unchecked { pointer: self.path.0.clone(), is_known }
    }
}

/// The types that the value of `type` allows, and their names as an error has them.
fn types(rule: &Value) -> Option<(u8, String)> {
    let bit = |name: &Value| match name.as_str()? {
        "null" => Some(NULL),
        "boolean" => Some(BOOLEAN),
        "integer" => Some(INTEGER),
        "number" => Some(NUMBER),
        "string" => Some(STRING),
        "array" => Some(ARRAY),
        "object" => Some(OBJECT),
        _ => None,
    };
    let Value::Array(names) = rule else { return Some((bit(rule)?, format!("type {rule}"))) };
    let bits = names.iter().try_fold(0, |bits, name| Some(bits | bit(name)?)).filter(|bits| *bits != 0)?;
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    Some((bits, format!("types {}", names.join(", "))))
}

impl Rules {
    /// Adds the bound of a number. Returns `false` if `rule` is not one.
    fn bound(&mut self, side: Side, rule: &Value) -> bool {
        self.bounds.extend(rule.as_number().map(|bound| Bound { side, whole: bound.as_i64(), bound: bound.clone() }));
        rule.is_number()
    }

    /// Returns `true` unless the value cannot have the type with this bit.
    fn allows(&self, kind: u8) -> bool {
        self.types.as_ref().is_none_or(|(allowed, _)| allowed & kind != 0)
    }

    fn has_array_rules(&self) -> bool {
        self.unique || self.elements != Length::default() || !self.prefix.is_empty() || self.items.is_some()
    }

    fn has_object_rules(&self) -> bool {
        !self.members.is_empty() || !self.integers.is_empty() || self.others.is_some()
    }

    /// The member with this key, and its index.
    fn member(&self, key: Key<'_>) -> Option<(usize, &Member)> {
        self.members.iter().enumerate().find(|(_, member)| key.is(&member.name))
    }
}

impl Choice {
    fn of(value: &Value) -> Self {
        Self { text: value.to_string(), value: value.clone() }
    }
}

impl Checker {
    /// Fails with the first keyword that is not checked here.
    pub(crate) fn new(schema: &Value) -> Result<Self, Unchecked> {
        let none = serde_json::Map::new();
        let named = match schema.get("$defs") {
            None => &none,
            Some(Value::Object(named)) => named,
            Some(_) => return Err(Unchecked { pointer: String::from("/$defs"), is_known: true }),
        };
        let mut compiler = Compiler { names: named.keys().collect(), path: Pointer::default() };
        let begin = compiler.path.enter(&"$defs");
        let definitions = named.iter().map(|(name, schema)| compiler.below(name, schema)).collect::<Result<_, _>>()?;
        compiler.path.leave(begin);
        Ok(Self { root: compiler.schema(schema)?, definitions })
    }

    /// Returns `true` if the value in `json` is certainly valid. Returns `false` also for values that are written in an unusual way, such
    /// as with a member that occurs twice: [`Self::check`] finds out.
    pub(crate) fn fits(&self, json: &Json) -> bool {
        let text = json.as_bytes();
        let steps = Cell::new(steps(text));
        let mut check = Check {
            checker: self,
            path: Pointer::default(),
            depth: 0,
            steps: &steps,
            found: Found::First(Fit::Fits),
            is_raw: true,
        };
        check.schema(&self.root, &mut Walk::new(text));
        matches!(check.found, Found::First(Fit::Fits))
    }

    /// Checks `value`. Fails with the text of its validation errors. It is also an error if the check gets deeper than [`MAX_DEPTH`], or
    /// takes too many steps, since the time for nested untagged alternatives can double with each level. If the check of an alternative
    /// reaches such a limit, an `anyOf` is valid only if another alternative fits, and a `oneOf` is never valid.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let text = value.to_string();
        let steps = Cell::new(steps(text.as_bytes()));
        let found = Found::All(ValidationErrors::default());
        let mut check = Check { checker: self, path: Pointer::default(), depth: 0, steps: &steps, found, is_raw: false };
        check.schema(&self.root, &mut Walk::new(text.as_bytes()));
        match check.found {
            Found::All(errors) => errors.into_result(),
            Found::First(_) => Ok(()),
        }
    }

    fn at(&self, target: Target) -> &Schema {
        match target {
            Target::Root => &self.root,
            // The compiler makes no other index.
            Target::Definition(index) => self.definitions.get(index).unwrap_or(&Schema::Never),
        }
    }
}

fn steps(text: &[u8]) -> usize {
    text.len().saturating_mul(MAX_STEPS_PER_BYTE).saturating_add(MAX_STEPS)
}

/// A check of a value.
struct Check<'a> {
    checker: &'a Checker,
    path: Pointer,
    depth: usize,
    /// The number of schemas that this check, together with the checks of alternatives that it starts, may still use.
    steps: &'a Cell<usize>,
    found: Found,
    /// Set for the text of a peer. Otherwise the text is as `serde_json` writes it: each member occurs once, and each string is Unicode.
    is_raw: bool,
}

/// The result of a check so far.
enum Found {
    /// The texts of all errors.
    All(ValidationErrors),
    /// Only the fit. The check stops at the first error.
    First(Fit),
}

/// The outcome of a check of a value against a schema.
#[derive(Clone, Copy)]
enum Fit {
    Fits,
    Wrong,
    /// The check has reached a limit, which the text names.
    Unknown(&'static str),
}

/// What is said of the text of a peer that has to be read into a tree first. No error says it.
const UNUSUAL: &str = "is written in an unusual way";
const TOO_LONG: &str = "takes too long to check";

impl Check<'_> {
    /// Checks the value after the position of `walk`, and moves after it, unless the result is decided.
    fn schema(&mut self, schema: &Schema, walk: &mut Walk<'_>) {
        let (mut schema, outer) = (schema, self.depth);
        while self.descend(schema, walk) {
            match schema {
                Schema::At(target) => {
                    schema = self.checker.at(*target);
                    continue;
                }
                Schema::Any => {}
                Schema::Never => {
                    self.wrong(format_args!("False schema does not allow {}", Shown(*walk)));
                    walk.value();
                }
                Schema::Rules(rules) => {
                    let is_decided = rules.parts.iter().any(|part| {
                        self.part(part, *walk);
                        self.is_decided()
                    });
                    if !is_decided {
                        self.rules(rules, walk);
                    }
                }
            }
            break;
        }
        self.depth = outer;
    }

    /// Counts a schema. If it allows any value, or a limit is reached, moves after the value and returns `false`.
    #[inline]
    fn descend(&mut self, schema: &Schema, walk: &mut Walk<'_>) -> bool {
        if let Schema::Any = schema {
            self.skip(walk);
            return false;
        }
        if self.depth == MAX_DEPTH {
            self.give_up("is nested too deep");
            self.skip(walk);
            return false;
        }
        if !self.spend(1) {
            self.skip(walk);
            return false;
        }
        self.depth = self.depth.saturating_add(1);
        true
    }

    /// Moves after a value that may be any.
    fn skip(&mut self, walk: &mut Walk<'_>) {
        let value = walk.value().unwrap_or_default();
        // A string with half of a surrogate pair cannot be read into a tree, but into types that ignore the string.
        if self.is_raw && value.contains(&b'\\') {
            self.give_up(UNUSUAL);
        }
    }

    fn part(&mut self, part: &Part, start: Walk<'_>) {
        match part {
            Part::At(target) => self.schema(self.checker.at(*target), &mut { start }),
            Part::All(parts) => {
                for schema in parts {
                    self.again(start);
                    self.schema(schema, &mut { start });
                }
            }
            Part::Any(parts) => {
                if let (0, limit) = self.fit(parts, start, 1) {
                    self.fits_none(parts, start, limit);
                }
            }
            Part::One(parts) => match self.fit(parts, start, 2) {
                (0 | 1, Some(limit)) => self.give_up(limit),
                (0, None) => {
                    let value = Shown(start);
                    self.wrong(format_args!("{value} is not valid under any of the schemas listed in the 'oneOf' keyword"));
                }
                (1, None) => {}
                _ => {
                    let value = Shown(start);
                    self.wrong(format_args!("{value} is valid under more than one of the schemas listed in the 'oneOf' keyword"));
                }
            },
            Part::Not(schema, text) => match self.fit(core::slice::from_ref(schema), start, 1) {
                (0, None) => {}
                (0, Some(limit)) => self.give_up(limit),
                _ => self.wrong(format_args!("{text} is not allowed for {}", Shown(start))),
            },
        }
    }

    /// Handles an `anyOf` of which no alternative is known to fit. `limit` is the limit that the check of an alternative has reached, if
    /// any.
    fn fits_none(&mut self, parts: &[Schema], start: Walk<'_>, limit: Option<&'static str>) {
        if let Found::All(_) = self.found {
            // An `Option`: the errors of the type in it are more useful than the error that no alternative fits.
            let is_null = |schema: &&Schema| matches!(schema, Schema::Rules(rules) if matches!(rules.types, Some((NULL, _))));
            let mut some = parts.iter().filter(|schema| !is_null(schema));
            if let (Some(only), None, false) = (some.next(), some.next(), start.kind() == Kind::Null) {
                return self.schema(only, &mut { start });
            }
        }
        match limit {
            Some(limit) => self.give_up(limit),
            None => {
                let value = Shown(start);
                self.wrong(format_args!("{value} is not valid under any of the schemas listed in the 'anyOf' keyword"));
            }
        }
    }

    /// The number of alternatives that fit, counted up to `most`, and the limit that the check of another alternative has reached, if any.
    fn fit(&mut self, parts: &[Schema], start: Walk<'_>, most: usize) -> (usize, Option<&'static str>) {
        let (mut fitting, mut limit) = (0_usize, None);
        for schema in parts {
            let mut check = Check { path: Pointer::default(), found: Found::First(Fit::Fits), ..*self };
            if !matches!(schema, Schema::Any) {
                check.again(start);
            }
            if !check.is_decided() {
                check.schema(schema, &mut { start });
            }
            match check.found {
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

    /// Counts the steps for a value that is read once more.
    fn again(&mut self, mut start: Walk<'_>) {
        let size = start.value().unwrap_or_default().len();
        self.spend(size / BYTES_PER_STEP);
    }

    /// Counts steps. Returns `false` if there are not as many left.
    fn spend(&mut self, steps: usize) -> bool {
        let left = self.steps.get().checked_sub(steps);
        match left {
            Some(left) => self.steps.set(left),
            None => self.give_up(TOO_LONG),
        }
        left.is_some()
    }

    /// Checks the keywords that are not schemas for the same value.
    fn rules(&mut self, rules: &Rules, walk: &mut Walk<'_>) {
        let (start, kind) = (*walk, walk.kind());
        match kind {
            Kind::Object if rules.allows(OBJECT) && rules.has_object_rules() => self.object(rules, walk),
            Kind::Array if rules.allows(ARRAY) && rules.has_array_rules() => self.array(rules, walk),
            Kind::Object if rules.allows(OBJECT) => self.rest(rules, walk),
            Kind::Array if rules.allows(ARRAY) => self.rest(rules, walk),
            Kind::String if rules.allows(STRING) => self.string(rules, walk),
            Kind::Number => self.number(rules, walk),
            Kind::Bool if rules.allows(BOOLEAN) => drop(walk.value()),
            Kind::Null if rules.allows(NULL) => drop(walk.value()),
            _ => {
                self.wrong_type(rules, start);
                walk.value();
            }
        }
        if let Some(constant) = &rules.constant
            && !self.is_one(core::slice::from_ref(constant), start)
        {
            self.wrong(format_args!("{} was expected", constant.text));
        }
        if let Some(choices) = &rules.choices
            && !self.is_one(choices, start)
        {
            self.wrong(format_args!("{} is not one of {}", Shown(start), Choices(choices)));
        }
    }

    /// Moves after a container about which only schemas for the same value say something.
    fn rest(&mut self, rules: &Rules, walk: &mut Walk<'_>) {
        match rules.parts.iter().all(|part| matches!(part, Part::Not(..))) {
            true => self.skip(walk),
            false => drop(walk.value()),
        }
    }

    fn wrong_type(&mut self, rules: &Rules, start: Walk<'_>) {
        if let Some((_, names)) = &rules.types {
            self.wrong(format_args!("{} is not of {names}", Shown(start)));
        }
    }

    /// Returns `true` if the value at `start` is one of `choices`, or if that is not known.
    fn is_one(&mut self, choices: &[Choice], mut start: Walk<'_>) -> bool {
        let kind = start.kind();
        let text = start.value().unwrap_or_default();
        if choices.iter().any(|choice| choice.text.as_bytes() == text) {
            return true;
        }
        // Other values are written in one way.
        let has_forms = match kind {
            Kind::String => self.is_raw && text.contains(&b'\\'),
            kind => matches!(kind, Kind::Number | Kind::Array | Kind::Object),
        };
        if !has_forms {
            return false;
        }
        match serde_json::from_slice::<Value>(text) {
            Ok(value) => choices.iter().any(|choice| is_same(&choice.value, &value)),
            Err(_) => {
                self.give_up(UNUSUAL);
                true
            }
        }
    }

    fn string(&mut self, rules: &Rules, walk: &mut Walk<'_>) {
        let start = *walk;
        if !self.is_raw {
            walk.value();
        } else if !walk.skip_unicode_string() {
            return self.give_up(UNUSUAL);
        }
        if rules.characters == Length::default() {
            return;
        }
        let length = string({ start }.value().unwrap_or_default()).map_or(0, |text| text.chars().count() as u64);
        let characters = |bound: u64| if bound == 1 { "character" } else { "characters" };
        let Length { min, max } = rules.characters;
        if let Some(min) = min.filter(|min| length < *min) {
            self.wrong(format_args!("{} is shorter than {min} {}", Shown(start), characters(min)));
        }
        if let Some(max) = max.filter(|max| length > *max) {
            self.wrong(format_args!("{} is longer than {max} {}", Shown(start), characters(max)));
        }
    }

    fn number(&mut self, rules: &Rules, walk: &mut Walk<'_>) {
        let start = *walk;
        let text = walk.value().unwrap_or_default();
        let whole = small_integer(text);
        // Most numbers are compared without this.
        let number = || serde_json::from_slice::<Number>(text).ok();
        let is_whole = || whole.is_some() || number().is_some_and(|number| is_whole(&number));
        let is_allowed = rules.allows(NUMBER) || (rules.allows(INTEGER) && is_whole());
        if !is_allowed {
            self.wrong_type(rules, start);
        }
        for Bound { side, bound, whole: whole_bound } in &rules.bounds {
            let order = match (whole, whole_bound) {
                (Some(whole), Some(bound)) => whole.cmp(bound),
                _ => match number() {
                    Some(number) => compare(&number, bound),
                    None => return self.give_up(UNUSUAL),
                },
            };
            let number = Shown(start);
            match side {
                Side::Minimum if order.is_lt() => self.wrong(format_args!("{number} is less than the minimum of {bound}")),
                Side::Maximum if order.is_gt() => self.wrong(format_args!("{number} is greater than the maximum of {bound}")),
                Side::ExclusiveMinimum if order.is_le() => {
                    self.wrong(format_args!("{number} is less than or equal to the minimum of {bound}"));
                }
                Side::ExclusiveMaximum if order.is_ge() => {
                    self.wrong(format_args!("{number} is greater than or equal to the maximum of {bound}"));
                }
                _ => {}
            }
        }
    }

    fn array(&mut self, rules: &Rules, walk: &mut Walk<'_>) {
        let start = *walk;
        let (mut count, mut forms, mut is_unique) = (0_u64, BTreeSet::new(), true);
        let mut first = rules.prefix.iter();
        walk.enter();
        while walk.next_element() {
            if rules.unique {
                match form({ *walk }.value().unwrap_or_default()) {
                    Some(form) => is_unique &= forms.insert(form),
                    None => self.give_up(UNUSUAL),
                }
            }
            let schema = first.next().or(rules.items.as_ref()).unwrap_or(&Schema::Any);
            self.below(count, schema, walk);
            if self.is_decided() {
                return;
            }
            count = count.saturating_add(1);
        }
        let items = |bound: u64| if bound == 1 { "item" } else { "items" };
        let Length { min, max } = rules.elements;
        if let Some(min) = min.filter(|min| count < *min) {
            self.wrong(format_args!("{} has less than {min} {}", Shown(start), items(min)));
        }
        if let Some(max) = max.filter(|max| count > *max) {
            self.wrong(format_args!("{} has more than {max} {}", Shown(start), items(max)));
        }
        if !is_unique {
            self.wrong(format_args!("{} has non-unique elements", Shown(start)));
        }
    }

    fn object(&mut self, rules: &Rules, walk: &mut Walk<'_>) {
        self.tags(rules, *walk);
        if self.is_decided() {
            return;
        }
        let mut given = Given::default();
        // The names of members that are not allowed, as an error has them, and how many they are.
        let (mut unexpected, mut count) = (String::new(), 0_usize);
        walk.enter();
        while let Some(key) = walk.next_key() {
            if self.is_raw && key.plain().is_none() {
                return self.give_up(UNUSUAL);
            }
            let value = *walk;
            let mut schemas = 0_usize;
            // Most keys have no escapes.
            let listed = match key.plain() {
                Some(plain) => rules.members.iter().enumerate().find(|(_, member)| member.name.as_bytes() == plain),
                None => rules.member(key),
            };
            if let Some((index, Member { schema, .. })) = listed {
                if given.has(index) {
                    return self.give_up(UNUSUAL);
                }
                given.add(index);
                if let Some(schema) = schema {
                    schemas = 1;
                    self.below(Name(key), schema, walk);
                }
            }
            for (_, schema) in rules.integers.iter().filter(|(integers, _)| integers.has(&key.name())) {
                schemas = schemas.saturating_add(1);
                *walk = value;
                self.below(Name(key), schema, walk);
            }
            match &rules.others {
                _ if schemas > 0 => {}
                None | Some(Schema::Any) => self.skip(walk),
                Some(Schema::Never) => {
                    match self.found {
                        Found::All(_) => {
                            let separator = if count == 0 { "" } else { ", " };
                            unexpected.extend([separator, "'", &key.name(), "'"]);
                            count = count.saturating_add(1);
                        }
                        Found::First(_) => self.wrong(""),
                    }
                    walk.value();
                }
                Some(schema) => {
                    schemas = 1;
                    self.below(Name(key), schema, walk);
                }
            }
            if self.is_raw && schemas > 0 && listed.is_none() && !given.add_other(key) {
                return self.give_up(UNUSUAL);
            }
            if self.is_decided() {
                return;
            }
        }
        if count > 0 {
            let were = if count == 1 { "was" } else { "were" };
            self.wrong(format_args!("Additional properties are not allowed ({unexpected} {were} unexpected)"));
        }
        if given.first & rules.required == rules.required && rules.members.len() <= u64::BITS as usize {
            return;
        }
        for (_, member) in rules.members.iter().enumerate().filter(|(index, member)| member.required && !given.has(*index)) {
            self.wrong(format_args!("{} is a required property", Value::from(&*member.name)));
        }
    }

    /// Checks the tags (members with a constant) of an alternative before its other members, so that the wrong alternatives of a tagged enum
    /// fail first. Otherwise the time of nested enums would be exponential in their depth.
    fn tags(&mut self, rules: &Rules, mut walk: Walk<'_>) {
        let mut left = rules.tags;
        if left == 0 || matches!(self.found, Found::All(_)) {
            return;
        }
        walk.enter();
        while left > 0
            && !self.is_decided()
            && let Some(key) = walk.next_key()
        {
            match rules.member(key) {
                Some((_, member)) if member.is_tag() => {
                    left = left.saturating_sub(1);
                    member.schema.iter().for_each(|schema| self.schema(schema, &mut walk));
                }
                _ => drop(walk.value()),
            }
        }
    }

    fn below(&mut self, step: impl Display, schema: &Schema, walk: &mut Walk<'_>) {
        if let Found::First(_) = self.found {
            return self.schema(schema, walk);
        }
        let begin = self.path.enter(&step);
        self.schema(schema, walk);
        self.path.leave(begin);
    }

    /// Returns `true` if the rest of the value and of the schema cannot change the result, so that the check can stop.
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

/// The members that an object has had so far.
#[derive(Default)]
struct Given<'a> {
    /// A bit for each of the first members of the schema.
    first: u64,
    /// The indices of the others.
    more: Vec<usize>,
    /// The keys that are not members of the schema. `None` costs nothing to drop.
    others: Option<BTreeSet<&'a [u8]>>,
}

impl<'a> Given<'a> {
    fn has(&self, index: usize) -> bool {
        match bit(index) {
            Some(bit) => self.first & bit != 0,
            None => self.more.contains(&index),
        }
    }

    fn add(&mut self, index: usize) {
        match bit(index) {
            Some(bit) => self.first |= bit,
            None => self.more.push(index),
        }
    }

    /// Returns `false` if the key occurs twice.
    fn add_other(&mut self, key: Key<'a>) -> bool {
        self.others.get_or_insert_default().insert(key.quoted())
    }
}

fn bit(index: usize) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(index).ok()?)
}

/// Displays the value after the position of a walk.
struct Shown<'a>(Walk<'a>);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8({ self.0 }.value().unwrap_or_default()).unwrap_or_default())
    }
}

/// Displays the name of a member.
struct Name<'a>(Key<'a>);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

/// Displays the values of an `enum`: all if there are at most three, otherwise two of them and the number of the others.
struct Choices<'a>(&'a [Choice]);

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
            write!(f, "{separator}{}", choice.text)?;
        }
        if more > 0 { write!(f, " or {more} other candidates") } else { Ok(()) }
    }
}

/// Reads an integer without a fraction and an exponent that has few digits.
fn small_integer(text: &[u8]) -> Option<i64> {
    /// Integers with this many digits fit into an `i64`.
    const MAX_DIGITS: usize = 18;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().fold(0_i64, |size, digit| size.wrapping_mul(10).wrapping_add(i64::from(digit & 0xf)));
    Some(if digits.len() < text.len() { size.wrapping_neg() } else { size })
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

/// A text that two values have in common if they are equal in the sense of JSON Schema. `None` if `text` cannot be read.
fn form(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if text.first() == Some(&b'"') && !text.contains(&b'\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut value = whole_numbers(serde_json::from_slice(text).ok()?);
    value.sort_all_objects();
    Some(Cow::Owned(value.to_string().into_bytes()))
}

/// Converts every float that is a whole number below 2^53 into an integer.
pub(crate) fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) if !number.is_i64() && !number.is_u64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, whole_numbers(value))).collect(),
        other => other,
    }
}
