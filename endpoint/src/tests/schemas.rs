//! The checks of arguments and answers against their schemas, with and without the feature `validate`. The *validator* is the crate
//! `jsonschema`, which this feature adds. The *own checker* is that of `check_own.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{harness, json as text};
use crate::check_own::{Checker, Unchecked};
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

mod types {
    use std::collections::*;
    use std::ffi::{CString, OsString};
    use std::net::*;
    use std::num::*;
    use std::ops::{Bound, Range, RangeInclusive};
    use std::time::{Duration, SystemTime};

    use schemars::generate::SchemaSettings;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Deserialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
    enum Key {
        A,
        B,
    }

    #[derive(Deserialize, JsonSchema)]
    enum Unit {
        A,
        /// The other.
        B,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only read")]
    enum External {
        Unit,
        Newtype(u8),
        Tuple(u8, bool),
        Struct { a: u8 },
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "t", content = "c")]
    #[allow(dead_code, reason = "only read")]
    enum Adjacent {
        A(u8),
        B { b: Option<bool> },
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "only read")]
    enum Untagged {
        Number(i64),
        Names(Vec<String>),
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only read")]
    struct Flattened {
        a: u8,
        #[serde(flatten)]
        inner: Inner,
        #[serde(flatten)]
        mode: Mode,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only read")]
    struct Rest {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, bool>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only read")]
    struct Limited {
        #[schemars(length(min = 1, max = 2))]
        names: Vec<String>,
        #[schemars(range(min = 1, max = 5))]
        size: u8,
        #[schemars(length(max = 3))]
        text: String,
    }

    /// Checks that the schema of `T` takes each of `valid`, as serde does, and none of `invalid`, and that the own checker and the
    /// validator agree. Serde takes those of `lax`, too, which the schema refuses.
    fn check<T: DeserializeOwned + JsonSchema>(valid: Value, invalid: Value, lax: Value) {
        let name = core::any::type_name::<T>();
        let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
        let own = Checker::new(&schema).unwrap_or_else(|unchecked| panic!("{name}: {unchecked}"));
        for (values, fits, is_read) in [(valid, true, true), (invalid, false, false), (lax, false, true)] {
            for value in values.as_array().unwrap() {
                let found = own.check(value);
                assert_eq!((found.is_ok(), own.fits(&text(value.clone()))), (fits, fits), "{name}: {value}: {found:?}");
                assert_eq!(serde_json::from_value::<T>(value.clone()).is_ok(), is_read, "{name}: {value}");
                #[cfg(feature = "validate")]
                assert_eq!(crate::check_full::Checker::new(schema.clone()).check(value, 1).is_ok(), fits, "{name}: {value}");
            }
        }
    }

    #[test]
    fn each_type_that_schemars_derives_a_schema_for_takes_the_same_values_as_serde() {
        let none = || json!([]);
        check::<bool>(json!([true]), json!([1, "true", null]), none());
        check::<u8>(json!([0, 255]), json!([-1, 256, 1.5, "1"]), none());
        check::<i16>(json!([-32768, 32767]), json!([-32769, 32768]), none());
        check::<i64>(json!([i64::MIN]), json!([0.5]), none());
        check::<u128>(json!([u64::MAX]), json!([-1]), none());
        check::<f64>(json!([1, -2.5, 1e300]), json!(["1", null]), none());
        check::<char>(json!(["a", "ä"]), json!(["", "ab"]), none());
        check::<String>(json!(["", "a\n\u{1f600}"]), json!([1, null]), none());
        check::<()>(json!([null]), json!([{}, 0]), none());
        check::<NonZeroU8>(json!([1, 255]), json!([0, 256]), none());
        check::<NonZeroI8>(json!([-128, 1]), json!([0, 128, 129]), none());
        check::<Wrapping<u8>>(json!([7]), json!([256]), none());
        check::<Option<u8>>(json!([null, 7]), json!([256, "7"]), none());
        check::<Option<Inner>>(json!([null, {"count": 1}]), json!([{}, {"count": 1, "more": 1}]), none());
        check::<Box<[u8]>>(json!([[], [1, 1]]), json!([[256], {}]), none());
        check::<VecDeque<bool>>(json!([[true]]), json!([[1]]), none());
        check::<[u8; 2]>(json!([[1, 2]]), json!([[1], [1, 2, 3]]), none());
        check::<[u8; 0]>(json!([[]]), json!([[1]]), none());
        check::<(u8, String)>(json!([[1, "a"]]), json!([[1], ["a", 1], [1, "a", 2]]), none());
        check::<HashSet<i32>>(json!([[], [1, 2]]), json!([["a"]]), json!([[1, 1]]));
        check::<BTreeSet<String>>(json!([["a", "b", "1"]]), json!([[1]]), json!([["a", "b", "a"], ["\"", "\""]]));
        check::<BTreeSet<Option<(u8, bool)>>>(
            json!([[null, [1, true], [1, false]]]),
            json!([[[1]]]),
            json!([[[1, true], [1, true]]]),
        );
        check::<HashMap<String, u8>>(json!([{}, {"a": 1, "b/c": 2}]), json!([{"a": "1"}, []]), none());
        check::<BTreeMap<u32, bool>>(
            json!([{}, {"0": true, "12": false}]),
            json!([{"a": true}, {"-1": true}, {"1": 1}, {"": true}]),
            none(),
        );
        check::<HashMap<i8, bool>>(
            json!([{"-1": true, "12": false}]),
            json!([{"a": true}, {"-": true}, {"--1": true}, {"1.0": true}]),
            none(),
        );
        check::<BTreeMap<Key, u8>>(json!([{"A": 1}, {}]), json!([{"C": 1}, {"A": -1}]), none());
        check::<BTreeMap<char, u8>>(json!([{"a": 1}]), json!([{"a": 256}]), none());
        check::<Range<u8>>(json!([{"start": 1, "end": 2}]), json!([{"start": 1}, {"start": 1, "end": "2"}]), none());
        check::<RangeInclusive<i8>>(json!([{"start": -1, "end": 2}]), json!([{"end": 2}]), none());
        check::<Bound<u8>>(json!([{"Included": 1}, {"Excluded": 2}, "Unbounded"]), json!([{"Included": "1"}, "Bounded"]), none());
        check::<Result<u8, String>>(json!([{"Ok": 1}, {"Err": "no"}]), json!([{"Ok": "1"}, {}]), none());
        check::<Duration>(json!([{"secs": 1, "nanos": 5}]), json!([{"secs": 1}, {"secs": -1, "nanos": 0}]), none());
        check::<SystemTime>(json!([{"secs_since_epoch": 1, "nanos_since_epoch": 5}]), json!([{}]), none());
        check::<IpAddr>(json!(["127.0.0.1", "::1"]), json!([1]), none());
        check::<SocketAddrV4>(json!(["127.0.0.1:80"]), json!([1]), none());
        check::<std::path::PathBuf>(json!(["/tmp"]), json!([null]), none());
        check::<CString>(json!([[1, 255], "a"]), json!([[256], [0]]), none());
        check::<OsString>(json!([{"Unix": [97]}]), json!([{"Unix": [256]}, "a"]), none());
        check::<std::marker::PhantomData<u8>>(json!([null]), json!([1]), none());
        check::<Value>(json!([null, 1, [], {"a": [1.5]}]), none(), none());
        check::<Unit>(json!(["A", "B"]), json!(["C", 1]), none());
        let struct_ = json!({"Struct": {"a": 1}});
        check::<External>(
            json!(["Unit", {"Newtype": 1}, {"Tuple": [1, true]}, struct_]),
            json!(["Newtype", {"Newtype": 256}, {"Tuple": [1]}, {"Struct": {}}, {"Newtype": 1, "Unit": null}, {}]),
            json!([{"Unit": null}]),
        );
        check::<Adjacent>(
            json!([{"t": "A", "c": 1}, {"t": "B", "c": {"b": null}}]),
            json!([{"t": "A"}, {"t": "C", "c": 1}]),
            none(),
        );
        check::<Mode>(
            json!([{"kind": "fast"}, {"kind": "slow", "seconds": 1}]),
            json!([{"kind": "slow"}, {}, {"kind": 1}]),
            none(),
        );
        check::<Untagged>(json!([-1, ["a"]]), json!([1.5, [1], null]), none());
        check::<Flattened>(
            json!([{"a": 1, "count": 2, "kind": "fast"}, {"a": 1, "count": 2, "kind": "slow", "seconds": 1, "more": 1}]),
            json!([{"a": 1, "kind": "fast"}, {"a": 1, "count": 2}, {"a": 1, "count": 2, "kind": "slow"}]),
            none(),
        );
        check::<Rest>(json!([{"a": 1}, {"a": 1, "b": true}]), json!([{"b": true}, {"a": 1, "b": 1}]), none());
        let limited = |names: &[&str], size: u8, text: &str| json!({"names": names, "size": size, "text": text});
        check::<Limited>(
            json!([limited(&["a"], 1, "abc")]),
            json!([{}]),
            json!([limited(&[], 1, ""), limited(&["a"], 0, ""), limited(&["a"], 1, "abcd")]),
        );
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
        (
            json!({"items": {"uniqueItems": true}, "not": {"const": 0}, "patternProperties": {r"^\d+$": true, r"^-?\d+$": true}}),
            None,
        ),
        (json!({"additionalProperties": {"propertyNames": true}}), Some("/additionalProperties/propertyNames")),
        (json!({"$defs": {"A": {"contains": true}}, "$ref": "#/$defs/A"}), Some("/$defs/A/contains")),
        (json!({"allOf": [{"if": true, "then": false}]}), Some("/allOf/0/if")),
        (json!({"minProperties": 1}), Some("/minProperties")),
        (json!({"patternProperties": {"^a": true}}), Some("/patternProperties")),
        (json!({"unevaluatedProperties": false}), Some("/unevaluatedProperties")),
        // Keywords with a value that is not valid cannot be checked either.
        (json!({"$ref": "#/$defs/B"}), Some("/$ref")),
        (json!({"$ref": "https://example.com"}), Some("/$ref")),
        (json!({"type": "strin"}), Some("/type")),
        (json!({"minimum": "1"}), Some("/minimum")),
        (json!({"properties": {"a": 5}}), Some("/properties/a")),
    ] {
        assert_eq!(Checker::new(&schema).err().map(|Unchecked { pointer, .. }| pointer).as_deref(), rule, "{schema}");
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
            let checker = Checker::new(&json!({rule: bound})).unwrap();
            assert_eq!([json!(1.5), json!(2), json!(3)].map(|number| checker.check(&number).is_ok()), fits, "{rule}");
        }
    }
}

#[test]
fn a_type_that_is_defined_only_by_itself_accepts_no_value_and_a_recursive_type_accepts_deep_ones() {
    let checker = Checker::new(&json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})).unwrap();
    assert_eq!(checker.check(&json!(1)), Err("is nested too deep".into()));
    let tree = json!({"type": "object", "properties": {"below": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}});
    let value = (0..120).fold(json!({}), |below, _| json!({"below": below}));
    let tree = Checker::new(&tree).unwrap();
    assert_eq!(tree.check(&value), Ok(()));
    let value = (0..120).fold(json!(5), |below, _| json!({"below": below}));
    let message = tree.check(&value).unwrap_err();
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
    let checker = Checker::new(&schemars::schema_for!(Term).to_value()).unwrap();
    for (leaf, is_good) in [(json!({"kind": "Leaf", "size": 1}), true), (json!({"kind": "Leaf", "size": "1"}), false)] {
        let term = (0..100).fold(leaf, |all, level| json!({"kind": (["And", "Or", "Not"][level % 3]), "all": all}));
        assert_eq!(checker.check(&term).is_ok(), is_good);
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
        Checker::new(&schema).unwrap().check(value)
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
    let checker = Checker::new(&json!({"oneOf": [{"type": "integer"}, {"minimum": 5}]})).unwrap();
    for (value, expected) in [(json!(4.5), "not valid under any of"), (json!(7), "valid under more than one of")] {
        let why = checker.check(&value).unwrap_err();
        assert!(why.contains(expected), "{value}: {why}");
    }
    assert_eq!(checker.check(&json!(4)), Ok(()));
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
    fn each_keyword_that_the_own_checker_leaves_out_is_checked_by_the_validator() {
        for (schema, good, bad) in [
            (json!({"multipleOf": 2}), json!(4), json!(3)),
            (json!({"pattern": "^a"}), json!("ab"), json!("ba")),
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
            (json!({"prefixItems": [true], "unevaluatedItems": false}), json!([1]), json!([1, 2])),
            (json!({"properties": {"a": true}, "unevaluatedProperties": false}), json!({"a": 1}), json!({"b": 1})),
            (json!({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "string"}}}), json!("a"), json!(1)),
        ] {
            assert!(Checker::new(&schema).is_err(), "{schema}");
            let full = check_full::Checker::new(schema.clone());
            assert_eq!(full.check(&good, 1), Ok(()), "{good} of {schema}");
            assert!(full.check(&bad, 1).is_err(), "{bad} of {schema}");
        }
    }

    #[test]
    fn the_own_checker_agrees_with_the_validator() {
        let mut dice = Dice(22);
        let (mut valid, mut invalid, mut same_error) = (0, 0, 0);
        for _ in 0..1_000 {
            let mut schema = dice.schema(3);
            // The definition `A` must not refer to itself.
            let other = core::iter::repeat_with(|| dice.schema(1)).find(|other| !format!("{other}").contains("$defs/A"));
            if let Value::Object(rules) = &mut schema {
                rules.insert("$defs".into(), json!({"A": other, "B": {"type": "array", "items": {"$ref": "#/$defs/B"}}}));
            }
            let own = Checker::new(&schema).unwrap();
            let full = check_full::Checker::new(schema.clone());
            for _ in 0..20 {
                let value = dice.value(&schema, 4);
                let fits = own.fits(&text(value.clone()));
                let (own, full) = (own.check(&value), full.check(&value, 1));
                assert_eq!((own.is_ok(), fits), (full.is_ok(), full.is_ok()), "{value} of {schema}: {own:?} {full:?}");
                *(if full.is_ok() { &mut valid } else { &mut invalid }) += 1;
                same_error += usize::from(full.is_err() && own == full);
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
            match self.roll(if depth == 0 { 8 } else { 18 }) {
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
                14 => json!({"not": self.schema(depth - 1)}),
                15 => json!({"type": "array", "uniqueItems": self.roll(4) > 0, "items": self.schema(depth - 1)}),
                16 => json!({"patternProperties": {([r"^\d+$", r"^-?\d+$"][self.roll(2)]): self.schema(depth - 1)},
                    "properties": {"1": self.schema(0)}, "additionalProperties": self.schema(0)}),
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
                    for name in ["a", "b", "c/d", "1", "-1"] {
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
    use std::panic::catch_unwind;

    use protocol_core::ToolOutput;

    use super::*;
    use crate::tests::{run, service};
    use crate::{AskFailed, Prompt, PromptOutput};

    /// The error at the registration of a tool or a prompt with the arguments [`Named`].
    const UNCHECKED: &str =
        "tool `resize`: the keyword `pattern` at /properties/name/pattern is checked only with the feature `validate`";

    fn named() -> Tool {
        Tool::new("resize", async |_: Context, given: Named| Ok(given.name))
    }

    #[test]
    fn a_tool_with_a_keyword_that_cannot_be_checked_is_refused() {
        let unchecked = service().try_tool(named()).unwrap_err();
        assert_eq!(&*unchecked.name, "resize");
        assert_eq!(unchecked.to_string(), UNCHECKED);
        let schema = text(json!({"type": "object", "properties": {"size": {"minLength": "1"}}}));
        let raw =
            Tool::from_schema("raw", schema, async |_: Context, _: protocol_core::Json| Ok(ToolOutput::text("read"))).unwrap();
        let reason =
            "the value of `minLength` at /properties/size/minLength is not valid, or is checked only with the feature `validate`";
        assert_eq!(service().try_tool(raw).unwrap_err().reason, reason);
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
        let unchecked = UNCHECKED.replace("tool", "prompt");
        assert_eq!(service().try_prompt(prompt()).unwrap_err().to_string(), unchecked);
        assert!(catch_unwind(|| drop(service().prompt(prompt()))).is_err());
        let catalog = service().catalog();
        assert_eq!(catalog.add_prompt(prompt()).unwrap_err().to_string(), unchecked);
        assert_eq!(catalog.add_tool(named()).unwrap_err().to_string(), UNCHECKED);
        assert!(format!("{catalog:?}").contains("tools: [], prompts: []"));
    }

    #[test]
    fn an_input_request_with_a_keyword_that_cannot_be_checked_is_not_sent() {
        let expected = "the keyword `pattern` at /properties/name/pattern is checked only with the feature `validate`";
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
