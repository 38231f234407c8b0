//! The checks of arguments and answers against their schemas, with and without the feature `validate`. The *validator* is the crate
//! `jsonschema`, which this feature adds. The *plain check* is that of `check_plain.rs`. The last argument of `check` is the size of the
//! value; it only sets limits, so most tests pass 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{harness, json as text};
use crate::check_plain::Checker;
use crate::schema::Shape;
use crate::{Context, Tool};

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Job {
    name: String,
    #[serde(default)]
    size: u8,
    at: Option<(f32, f32)>,
    initial: Option<char>,
    mode: Option<Mode>,
    inner: Option<Inner>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Mode {
    Fast,
    Slow { seconds: u32 },
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Inner {
    count: i32,
}

fn job() -> Tool {
    Tool::new("job", async |_: Context, given: Job| Ok(given))
}

#[test]
fn an_invalid_argument_gets_the_same_error_with_and_without_the_validator() {
    for (given, expected) in [
        (json!({}), r#""name" is a required property"#),
        (json!({"name": 5}), r#"/name: 5 is not of type "string""#),
        (json!({"name": null}), r#"/name: null is not of type "string""#),
        (json!({"name": "a", "nam": 1}), "Additional properties are not allowed ('nam' was unexpected)"),
        (json!({"name": "a", "x": 1, "y": 2}), "Additional properties are not allowed ('x', 'y' were unexpected)"),
        (json!({"name": "a", "size": 256}), "/size: 256 is greater than the maximum of 255"),
        (json!({"name": "a", "size": -1}), "/size: -1 is less than the minimum of 0"),
        (json!({"name": "a", "size": 1.5}), r#"/size: 1.5 is not of type "integer""#),
        (json!({"name": "a", "at": [1]}), "/at: [1] has less than 2 items"),
        (json!({"name": "a", "at": [1, "2"]}), r#"/at/1: "2" is not of type "number""#),
        (json!({"name": "a", "at": [1, 2, 3]}), "/at: [1,2,3] has more than 2 items"),
        (json!({"name": "a", "initial": "ab"}), r#"/initial: "ab" is longer than 1 character"#),
        (json!({"name": "a", "initial": ""}), r#"/initial: "" is shorter than 1 character"#),
    ] {
        let run = harness(job()).call_tool("job", text(given.clone()));
        assert!(run.is_tool_error(), "{given}");
        assert_eq!(run.text(), format!("invalid arguments: {expected}"), "{given}");
    }
}

#[test]
fn a_value_that_fits_one_of_several_alternatives_is_read_and_any_other_is_refused() {
    let with = |name: &str, value: Value| {
        let run = harness(job()).call_tool("job", text(json!({"name": "a", name: value})));
        (run.is_tool_error(), run.text())
    };
    for (name, value) in [
        ("mode", json!({"kind": "fast"})),
        ("mode", json!({"kind": "slow", "seconds": 3})),
        ("mode", Value::Null),
        ("inner", json!({"count": -3})),
        ("inner", json!({"count": 2.0})),
        ("initial", json!("ä")),
        ("at", json!([1, 2.5])),
    ] {
        assert!(!with(name, value.clone()).0, "{name}: {value} {:?}", with(name, value.clone()));
    }
    for (name, value) in [
        ("mode", json!({"kind": "idle"})),
        ("mode", json!({"kind": "slow"})),
        ("mode", json!("fast")),
        ("inner", json!({"count": "3"})),
        ("inner", json!({"count": 3, "more": 4})),
        ("inner", json!({})),
    ] {
        let (failed, message) = with(name, value.clone());
        assert!(failed && message.starts_with(&format!("invalid arguments: /{name}")), "{name}: {value} {message}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "read by its debug output")]
struct Aliased {
    #[serde(alias = "w", alias = "breadth")]
    width: u8,
    #[serde(default, alias = "name")]
    title: Option<String>,
    #[serde(alias = "parts")]
    below: Option<Vec<Part>>,
    at: Option<(u8, Part)>,
    either: Option<Either>,
    by_name: Option<std::collections::BTreeMap<String, Part>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "read by its debug output")]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(alias = "width")]
    size: u8,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "read by its debug output")]
enum Either {
    One(Part),
    Other {
        #[serde(alias = "n")]
        name: String,
    },
}

/// In the field: an argument under its `#[serde(alias)]` was refused, as one that is unknown or missing, since schemas have no aliases.
#[test]
fn an_argument_may_have_an_alias_and_is_checked_like_any_other() {
    let tool = || Tool::new("t", async |_: Context, given: Aliased| Ok(format!("{given:?}")));
    for (given, same) in [
        (json!({"w": 1}), json!({"width": 1})),
        (json!({"breadth": 1.0, "name": "a"}), json!({"width": 1, "title": "a"})),
        (json!({"width": 1, "parts": [{"size": 1}, {"width": 2}]}), json!({"width": 1, "below": [{"size": 1}, {"size": 2}]})),
        (json!({"w": 1, "at": [2, {"width": 3}]}), json!({"width": 1, "at": [2, {"size": 3}]})),
        (json!({"w": 1, "either": {"One": {"width": 3}}}), json!({"width": 1, "either": {"One": {"size": 3}}})),
        (json!({"w": 1, "either": {"Other": {"n": "a"}}}), json!({"width": 1, "either": {"Other": {"name": "a"}}})),
        (json!({"width": 1, "by_name": {"w": {"width": 3}}}), json!({"width": 1, "by_name": {"w": {"size": 3}}})),
    ] {
        let read = |given: &Value| harness(tool()).call_tool("t", text(given.clone()));
        assert!(!read(&given).is_tool_error(), "{given}: {}", read(&given).text());
        assert_eq!(read(&given).text(), read(&same).text());
    }
    for (given, expected) in [
        (json!({"w": 300}), "/width: 300 is greater than the maximum of 255"),
        (json!({"w": "1"}), r#"/width: "1" is not of type "integer""#),
        (json!({"w": 1, "width": 1}), "Additional properties are not allowed ('w' was unexpected)"),
        (json!({"w": 1, "wid": 1}), "Additional properties are not allowed ('wid' was unexpected)"),
        (json!({"w": 1, "parts": [{"width": 1}, {"width": -1}]}), "/below/1/size: -1 is less than the minimum of 0"),
        (json!({"name": "a"}), r#""width" is a required property"#),
    ] {
        let run = harness(tool()).call_tool("t", text(given.clone()));
        assert_eq!(run.text(), format!("invalid arguments: {expected}"), "{given}");
    }
    // The time grew with the square of the number of members: a caller could make a tool compute for a second.
    for (parts, is_read) in [(200, true), (300, false)] {
        let parts = vec![json!({"width": 1}); parts];
        let run = harness(tool()).call_tool("t", text(json!({"width": 1, "parts": parts})));
        assert_eq!(run.is_tool_error(), !is_read, "at most 256 names are looked up: {}", run.text());
    }
}

#[test]
fn a_keyword_that_needs_the_validator_is_reported_with_its_path() {
    for (schema, rule) in [
        (json!(true), None),
        (json!({"type": "object", "x-colour": 7, "format": "date", "examples": [1], "default": {"not": 1}}), None),
        (json!({"properties": {"pattern": {"enum": [1, "a"]}, "not": {"const": {"if": 1}}}, "required": ["not"]}), None),
        (json!({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"items": {"$ref": "#/$defs/A"}}, {"type": "null"}]}}}), None),
        (json!({"minimum": 0.5, "exclusiveMaximum": 7, "minItems": 1, "maxItems": 2}), None),
        (json!({"type": "string", "minLength": 1, "maxLength": 1}), None),
        (json!({"properties": {"name": {"minLength": 3}}}), None),
        (json!({"properties": {"name": {"minLength": 0.5}}}), Some("/properties/name/minLength")),
        (json!({"properties": {"a/b": {"anyOf": [true, {"pattern": "x"}]}}}), Some("/properties/a~1b/anyOf/1/pattern")),
        (json!({"prefixItems": [{"multipleOf": 2}]}), Some("/prefixItems/0/multipleOf")),
        (json!({"items": {"uniqueItems": true}}), Some("/items/uniqueItems")),
        (json!({"additionalProperties": {"not": true}}), Some("/additionalProperties/not")),
        (json!({"$defs": {"A": {"contains": true}}, "$ref": "#/$defs/A"}), Some("/$defs/A/contains")),
        (json!({"allOf": [{"if": true, "then": false}]}), Some("/allOf/0/if")),
        (json!({"minProperties": 1}), Some("/minProperties")),
        (json!({"patternProperties": {}}), Some("/patternProperties")),
        (json!({"unevaluatedProperties": false}), Some("/unevaluatedProperties")),
        // Keywords with a value that is not valid cannot be checked either.
        (json!({"$ref": "#/$defs/B"}), Some("/$ref")),
        (json!({"$ref": "https://example.com"}), Some("/$ref")),
        (json!({"type": "strin"}), Some("/type")),
        (json!({"minimum": "1"}), Some("/minimum")),
        (json!({"properties": {"a": 5}}), Some("/properties/a")),
    ] {
        assert_eq!(Checker::new(schema.clone()).unchecked().as_deref(), rule, "{schema}");
    }
}

#[test]
fn a_number_equal_to_its_bound_is_valid_unless_the_bound_is_exclusive() {
    for (rule, fits) in [
        ("minimum", [false, true, true]),
        ("exclusiveMinimum", [false, false, true]),
        ("maximum", [true, true, false]),
        ("exclusiveMaximum", [true, false, false]),
    ] {
        for bound in [json!(2), json!(2.0)] {
            let checker = Checker::new(json!({rule: bound}));
            assert_eq!([json!(1.5), json!(2), json!(3)].map(|number| checker.check(&number, 1).is_ok()), fits, "{rule}");
        }
    }
}

#[test]
fn a_type_that_is_defined_only_by_itself_accepts_no_value_and_a_recursive_type_accepts_deep_ones() {
    let checker = Checker::new(json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}));
    assert_eq!(checker.check(&json!(1), 1), Err("is nested too deep".into()));
    let tree = json!({"type": "object", "properties": {"below": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}});
    let value = (0..120).fold(json!({}), |below, _| json!({"below": below}));
    let tree = Checker::new(tree);
    assert_eq!(tree.check(&value, 1), Ok(()));
    let value = (0..120).fold(json!(5), |below, _| json!({"below": below}));
    let message = tree.check(&value, 1).unwrap_err();
    assert!(message.ends_with(r#"/below: 5 is not of type "object""#), "{message}");
}

#[test]
fn deep_values_of_recursive_types_are_checked_quickly() {
    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(tag = "kind")]
    enum Term {
        And { all: Box<Self> },
        Or { all: Box<Self> },
        Not { all: Option<Box<Self>> },
        Leaf { size: u8 },
    }
    let checker = Checker::new(schemars::schema_for!(Term).to_value());
    assert_eq!(checker.unchecked(), None);
    for (leaf, is_good) in [(json!({"kind": "Leaf", "size": 1}), true), (json!({"kind": "Leaf", "size": "1"}), false)] {
        let term = (0..100).fold(leaf, |all, level| json!({"kind": (["And", "Or", "Not"][level % 3]), "all": all}));
        assert_eq!(checker.check(&term, 1).is_ok(), is_good);
        // A regression: `jsonschema` checked this schema. It took a minute for 16 levels, and twice as long for each further level.
        let read: Result<Term, String> = Shape::of::<Term>().read(&protocol_core::Json::encode(&term).expect("JSON"));
        assert_eq!(read.is_ok(), is_good);
    }
}

#[test]
fn deep_values_of_optional_and_of_alternative_types_are_refused_quickly() {
    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    struct Node {
        value: Option<i32>,
        below: Option<Box<Self>>,
    }
    let deep = (0..100).fold(json!({"value": "bad"}), |below, _| json!({"below": below}));
    let read: Result<Node, String> = Shape::of::<Node>().read(&protocol_core::Json::encode(&deep).expect("JSON"));
    assert!(read.is_err_and(|why| why.contains("\"bad\" is not of type")));

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    #[serde(untagged)]
    enum Either {
        One { of: Box<Self>, one: Option<u8> },
        Other { of: Box<Self>, other: Option<u8> },
        Leaf { leaf: u8 },
    }
    let deep = (0..60).fold(json!({"leaf": "bad"}), |of, _| json!({"of": of}));
    let read: Result<Either, String> = Shape::of::<Either>().read(&protocol_core::Json::encode(&deep).expect("JSON"));
    assert!(read.is_err(), "each level has two alternatives");
}

/// Regression: an alternative whose check had reached the limit of steps counted as one that does not fit. So a `oneOf` accepted a value
/// that may be valid under two alternatives, and an `anyOf` named the wrong reason.
#[test]
fn a_value_whose_alternatives_take_too_long_to_check_is_refused_unless_another_alternative_suffices() {
    // Each level of `slow` has two alternatives that fit only at the end, and each is tried: 2^60 steps.
    let below = |kind: &str| json!({"properties": {"of": {"$ref": "#/$defs/slow"}, "end": {"type": kind}}});
    let both = json!({"allOf": [{"anyOf": [below("null"), below("string")]}, {"anyOf": [below("string"), below("null")]}]});
    let deep = |end: Value| (0..60).fold(json!({"end": end}), |of, _| json!({"of": of}));
    let check = |schema: Value, value: &Value| {
        let mut schema = schema;
        schema["$defs"] = json!({"slow": both, "loop": {"$ref": "#/$defs/loop"}});
        let checker = Checker::new(schema);
        assert_eq!(checker.unchecked(), None);
        checker.check(value, 1)
    };
    let (long, slow, endless) = (deep(json!(1)), json!({"$ref": "#/$defs/slow"}), json!({"$ref": "#/$defs/loop"}));
    let too_long = || Err(String::from("takes too long to check"));
    assert_eq!(check(slow.clone(), &long).map_err(|why| why.contains("takes too long")), Err(true));
    assert_eq!(check(json!({"oneOf": [{"type": "object"}, slow]}), &long), too_long(), "perhaps both");
    assert_eq!(check(json!({"oneOf": [{"type": "null"}, slow]}), &long), too_long(), "perhaps none");
    assert_eq!(check(json!({"oneOf": [{"type": "null"}, {"oneOf": [true, slow]}]}), &long), too_long(), "the same one level below");
    assert_eq!(check(json!({"anyOf": [{"type": "null"}, slow, {"type": "string"}]}), &long), too_long(), "perhaps none");
    assert_eq!(check(json!({"anyOf": [{"type": "object"}, slow]}), &long), Ok(()), "one is enough");
    assert_eq!(check(json!({"anyOf": [slow, true]}), &long), Ok(()), "one is enough");
    let several = check(json!({"oneOf": [{"type": "object"}, true, slow]}), &long).unwrap_err();
    assert!(several.contains("valid under more than one of"), "{several}");
    // The same holds for an alternative that reaches the limit of the depth.
    let too_deep = Err(String::from("is nested too deep"));
    assert_eq!(check(json!({"oneOf": [true, endless]}), &json!(1)), too_deep);
    assert_eq!(check(json!({"anyOf": [endless, {"oneOf": [{"type": "integer"}, {"type": "null"}]}]}), &json!(1)), Ok(()));
}

/// Detects a mutation that other tests missed. The mutated code refused both values, but with the wrong error text.
#[test]
fn the_error_tells_if_a_value_fits_no_alternative_or_several() {
    let checker = Checker::new(json!({"oneOf": [{"type": "integer"}, {"minimum": 5}]}));
    for (value, expected) in [(json!(4.5), "not valid under any of"), (json!(7), "valid under more than one of")] {
        let why = checker.check(&value, 1).unwrap_err();
        assert!(why.contains(expected), "{value}: {why}");
    }
    assert_eq!(checker.check(&json!(4), 1), Ok(()));
}

/// Detects a mutation that other tests missed.
#[cfg(feature = "validate")]
#[test]
fn the_validator_lists_every_error_of_a_short_value_and_the_first_of_a_long_one() {
    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    struct Pair {
        #[schemars(regex(pattern = "^[a-z]"))]
        one: String,
        #[schemars(regex(pattern = "^[a-z]"))]
        other: String,
    }
    let errors = |length: usize| {
        let given = json!({"one": "1".repeat(length), "other": "2"});
        let read: Result<Pair, String> = Shape::of::<Pair>().read(&protocol_core::Json::encode(&given).expect("JSON"));
        let why = read.expect_err("both are wrong");
        (why.contains("/one"), why.contains("/other"))
    };
    assert_eq!(errors(1), (true, true));
    let (one, other) = errors(70_000);
    assert!(one != other, "one error is enough");
}

/// Arguments with a keyword that is checked only by `jsonschema`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Named {
    #[schemars(regex(pattern = "^[a-z]"))]
    name: String,
}

#[cfg(feature = "validate")]
mod with_the_validator {
    use super::*;
    use crate::check_full;
    use crate::tests::service;

    #[test]
    fn a_keyword_that_needs_the_validator_is_checked() {
        let named = || Tool::new("resize", async |_: Context, given: Named| Ok(given.name));
        assert!(service().try_tool(named()).is_ok());
        let run = harness(named()).call_tool("resize", text(json!({"name": "7"})));
        assert_eq!(run.text(), r#"invalid arguments: /name: "7" does not match "^[a-z]""#);
    }

    #[test]
    fn each_keyword_that_the_plain_check_leaves_out_is_checked_by_the_validator() {
        for (schema, good, bad) in [
            (json!({"multipleOf": 2}), json!(4), json!(3)),
            (json!({"pattern": "^a"}), json!("ab"), json!("ba")),
            (json!({"uniqueItems": true}), json!([1, 2]), json!([1, 1])),
            (json!({"contains": {"const": 1}}), json!([2, 1]), json!([2])),
            (json!({"contains": {"const": 1}, "minContains": 2}), json!([1, 1]), json!([1])),
            (json!({"contains": {"const": 1}, "maxContains": 1}), json!([1]), json!([1, 1])),
            (json!({"minProperties": 1}), json!({"a": 1}), json!({})),
            (json!({"maxProperties": 1}), json!({"a": 1}), json!({"a": 1, "b": 2})),
            (json!({"propertyNames": {"maxLength": 1}}), json!({"a": 1}), json!({"ab": 1})),
            (json!({"patternProperties": {"^a": {"type": "string"}}}), json!({"ab": "1", "b": 1}), json!({"ab": 1})),
            (json!({"dependentRequired": {"a": ["b"]}}), json!({"a": 1, "b": 1}), json!({"a": 1})),
            (json!({"dependentSchemas": {"a": {"required": ["b"]}}}), json!({"a": 1, "b": 1}), json!({"a": 1})),
            (json!({"if": {"type": "string"}, "then": {"minLength": 1}}), json!("a"), json!("")),
            (json!({"if": {"type": "string"}, "else": {"minimum": 1}}), json!(1), json!(0)),
            (json!({"not": {"type": "string"}}), json!(1), json!("a")),
            (json!({"prefixItems": [true], "unevaluatedItems": false}), json!([1]), json!([1, 2])),
            (json!({"properties": {"a": true}, "unevaluatedProperties": false}), json!({"a": 1}), json!({"b": 1})),
            (json!({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "string"}}}), json!("a"), json!(1)),
        ] {
            assert!(Checker::new(schema.clone()).unchecked().is_some(), "{schema}");
            let full = check_full::Checker::new(schema.clone());
            assert_eq!(full.check(&good, 1), Ok(()), "{good} of {schema}");
            assert!(full.check(&bad, 1).is_err(), "{bad} of {schema}");
        }
    }

    #[test]
    fn the_plain_check_agrees_with_the_validator() {
        let mut dice = Dice(22);
        let (mut valid, mut invalid, mut same_error) = (0, 0, 0);
        for _ in 0..1_000 {
            let mut schema = dice.schema(3);
            // The definition `A` must not refer to itself.
            let other = core::iter::repeat_with(|| dice.schema(1)).find(|other| !format!("{other}").contains("$defs/A"));
            if let Value::Object(rules) = &mut schema {
                rules.insert("$defs".into(), json!({"A": other, "B": {"type": "array", "items": {"$ref": "#/$defs/B"}}}));
            }
            let plain = Checker::new(schema.clone());
            assert_eq!(plain.unchecked(), None, "{schema}");
            let full = check_full::Checker::new(schema.clone());
            for _ in 0..20 {
                let value = dice.value(&schema, 4);
                let (plain, full) = (plain.check(&value, 1), full.check(&value, 1));
                assert_eq!(plain.is_ok(), full.is_ok(), "{value} of {schema}: {plain:?} {full:?}");
                *(if full.is_ok() { &mut valid } else { &mut invalid }) += 1;
                same_error += usize::from(full.is_err() && plain == full);
            }
        }
        assert!(valid > 3_000 && invalid > 3_000 && same_error > invalid / 2, "{valid} {invalid} {same_error}");
    }

    /// Pseudorandom numbers from a seed.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % sides
        }

        fn scalar(&mut self) -> Value {
            let all = json!([null, true, 0, 1, 1.0, -1, 2.5, 3, 300, 18_446_744_073_709_551_615_u64, 1e300, "", "a", "ä", "ab"]);
            let index = self.roll(15);
            all[index].clone()
        }

        fn schema(&mut self, depth: usize) -> Value {
            match self.roll(if depth == 0 { 8 } else { 15 }) {
                0 => json!(self.roll(4) > 0),
                1 => json!({"type": (["string", "integer", "number", "null", "object", "array"][self.roll(6)])}),
                2 => json!({"type": ["integer", "null"], "minimum": self.scalar_number()}),
                3 => json!({"maximum": self.scalar_number(), "exclusiveMinimum": self.scalar_number()}),
                4 => json!({"enum": [self.scalar(), [1.0], {"a": 1}]}),
                5 => json!({"const": self.scalar()}),
                6 => json!({"type": "string", "minLength": self.roll(3), "maxLength": self.roll(3)}),
                7 => json!({"$ref": (["#/$defs/A", "#/$defs/B"][self.roll(2)])}),
                8 => json!({"anyOf": [self.schema(depth - 1), self.schema(depth - 1)]}),
                9 => json!({"oneOf": [self.schema(depth - 1), self.schema(depth - 1), self.schema(depth - 1)]}),
                10 => json!({"allOf": [self.schema(depth - 1), self.schema(depth - 1)]}),
                11 => json!({"type": "array", "items": self.schema(depth - 1), "maxItems": self.roll(3)}),
                12 => json!({"prefixItems": [self.schema(depth - 1)], "items": self.schema(depth - 1), "minItems": self.roll(2)}),
                13 => json!({"type": "object", "properties": {"a": self.schema(depth - 1), "b": self.schema(depth - 1)},
                    "required": (["a", "b"][..self.roll(3)]), "additionalProperties": self.schema(0)}),
                _ => json!({"properties": {"a": self.schema(depth - 1)}, "additionalProperties": false}),
            }
        }

        fn scalar_number(&mut self) -> Value {
            [json!(0), json!(1.0), json!(-1), json!(2.5), json!(255)][self.roll(5)].clone()
        }

        /// A value that is often valid for `schema`.
        fn value(&mut self, schema: &Value, depth: usize) -> Value {
            let kind = self.roll(12);
            let has = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
            match kind {
                _ if depth == 0 => self.scalar(),
                0 => json!([self.value(&Value::Null, depth - 1)]),
                1 => json!({"a": self.value(&Value::Null, depth - 1)}),
                2 => self.scalar(),
                _ if has(&["const"]) => schema["const"].clone(),
                _ if has(&["enum"]) => schema["enum"][self.roll(3)].clone(),
                _ if has(&["anyOf", "oneOf", "allOf"]) => {
                    let of = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|name| schema.get(name)).unwrap();
                    self.value(&of[kind % 2], depth)
                }
                _ if has(&["items"]) => {
                    let first = schema.get("prefixItems").map_or(&schema["items"], |first| &first[0]);
                    let mut items = vec![self.value(first, depth - 1)];
                    (0..self.roll(3)).for_each(|_| items.push(self.value(&schema["items"], depth - 1)));
                    items.into()
                }
                _ if has(&["properties"]) => {
                    let mut members = serde_json::Map::new();
                    for name in ["a", "b", "c/d"] {
                        if self.roll(4) > 1 {
                            members.insert(name.into(), self.value(&schema["properties"][name], depth - 1));
                        }
                    }
                    members.into()
                }
                _ => self.scalar(),
            }
        }
    }
}

#[cfg(not(feature = "validate"))]
mod without_the_validator {
    use std::collections::BTreeSet;
    use std::panic::catch_unwind;

    use super::*;
    use crate::tests::{run, service};
    use crate::{AskFailed, Prompt, PromptOutput};

    /// The error at the registration of a tool or a prompt with the arguments [`Named`].
    const UNCHECKED: &str =
        "arguments of `resize`: /properties/name/pattern is checked only with the feature `validate` of the crate endpoint";

    fn named() -> Tool {
        Tool::new("resize", async |_: Context, given: Named| Ok(given.name))
    }

    #[derive(Deserialize, JsonSchema)]
    struct Sizes {
        set: BTreeSet<u8>,
    }

    #[test]
    fn a_tool_with_a_keyword_that_cannot_be_checked_is_refused() {
        let unchecked = service().try_tool(named()).unwrap_err();
        assert_eq!(&*unchecked.name, "resize");
        assert_eq!(unchecked.to_string(), UNCHECKED);
        let set = Tool::blocking("set", |_: Context, given: Sizes| Ok(given.set.len()));
        assert!(service().try_tool(set).unwrap_err().reason.starts_with("/properties/set/uniqueItems "));
        assert!(service().try_tool(job()).is_ok());
    }

    #[test]
    fn registering_a_refused_tool_panics_with_the_error() {
        let panic = catch_unwind(|| drop(service().tool(named()))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(UNCHECKED));
    }

    #[test]
    fn a_typed_prompt_with_a_keyword_that_cannot_be_checked_is_refused_and_changes_no_catalog() {
        let prompt =
            || Prompt::typed("resize", async |_: Context, given: Named| Ok(PromptOutput::default().with_description(given.name)));
        assert_eq!(service().try_prompt(prompt()).unwrap_err().to_string(), UNCHECKED);
        assert!(catch_unwind(|| drop(service().prompt(prompt()))).is_err());
        let catalog = service().catalog();
        assert_eq!(catalog.add_prompt(prompt()).unwrap_err().to_string(), UNCHECKED);
        assert_eq!(catalog.add_tool(named()).unwrap_err().to_string(), UNCHECKED);
        assert!(format!("{catalog:?}").contains("tools: [], prompts: []"));
    }

    #[test]
    fn an_input_request_with_a_keyword_that_cannot_be_checked_is_not_sent() {
        let expected = "/properties/name/pattern is checked only with the feature `validate` of the crate endpoint";
        let run = run(Tool::new("asks", async |context: Context, (): ()| {
            let form = context.elicit_typed::<Named>("who?").await.map(|_| ()).unwrap_err();
            let sample = context.sample_typed::<Named>("who?").await.map(|_| ()).unwrap_err();
            Ok([form, sample].map(|failed| matches!(failed, AskFailed::Invalid(_)).then(|| failed.to_string())))
        }));
        let expected = Some(format!("the input request is not valid: {expected}"));
        assert_eq!(run.text(), text(json!({"result": [expected, expected]})).as_str());
        assert_eq!(run.asks.len(), 0);
    }
}
