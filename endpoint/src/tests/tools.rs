//! Tools: their entries in lists, their arguments, results and errors.

use core::task::Poll;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{harness, json as to_json, run, service, value};
use crate::testing::Harness;
use crate::{Context, Prompt, PromptOutput, Tool, ToolError};
use protocol_core::dialect::{Content, Op, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::{Json, Text};

#[derive(Debug, Deserialize, JsonSchema)]
struct Steps {
    /// How many.
    #[serde(default)]
    steps: u32,
    #[serde(default)]
    names: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Taken {
    steps: u32,
    names: usize,
}

fn stepper() -> Tool {
    Tool::new("steps", async |_: Context, given: Steps| Ok(Taken { steps: given.steps, names: given.names.len() }))
}

/// The entry of `tool` in the list of tools.
fn list_entry(tool: Tool) -> serde_json::Value {
    let run = Harness::new(service().tool(tool)).request(Op::ListTools, Json::empty_object());
    value(&run.result())["tools"][0].clone()
}

#[test]
fn a_typed_result_is_structured_content_and_the_same_json_as_text() {
    let run = harness(stepper()).call_tool("steps", to_json(json!({"steps": 3, "names": ["a"]})));
    assert_eq!(run.structured().unwrap().as_str(), r#"{"steps":3,"names":1}"#);
    assert_eq!(run.text(), r#"{"steps":3,"names":1}"#);
    assert!(!run.is_tool_error());
}

#[test]
fn a_string_is_sent_only_as_text_and_other_values_also_as_structured_content() {
    let say = || Tool::new("say", async |_: Context, ()| Ok("two \"words\""));
    assert_eq!((run(say()).text().as_str(), run(say()).structured()), (r#"two "words""#, None));
    assert_eq!(list_entry(say()).get("outputSchema"), None);
    let counted = run(Tool::new("count", async |_: Context, ()| Ok(vec![1, 2])));
    assert_eq!((counted.text().as_str(), counted.structured().unwrap().as_str()), (r#"{"result":[1,2]}"#, r#"{"result":[1,2]}"#));
    let choice = run(Tool::new("choose", async |_: Context, ()| Ok(Choice::Second)));
    assert_eq!((choice.text().as_str(), choice.structured().unwrap().as_str()), ("Second", r#"{"result":"Second"}"#));
}

#[derive(Serialize, JsonSchema)]
enum Choice {
    #[allow(dead_code, reason = "the other is returned")]
    First,
    Second,
}

#[test]
fn a_result_that_fits_a_frame_only_once_is_not_repeated_as_text() {
    #[derive(Serialize, JsonSchema)]
    struct Long {
        text: String,
    }
    let long = |length: usize| Tool::new("long", move |_: Context, ()| core::future::ready(Ok(Long { text: "x".repeat(length) })));
    let twice = run(long(7 << 20));
    assert_eq!((twice.text().len(), twice.structured().unwrap().as_bytes().len()), ((7 << 20) + 11, (7 << 20) + 11));
    let once = run(long(15 << 20));
    assert_eq!(once.structured().unwrap().as_bytes().len(), (15 << 20) + 11);
    assert_eq!(once.text(), "The result is in the structured content, and too long to be repeated as text.");
    let never = run(long(16 << 20));
    let never = &never.error().unwrap().message;
    assert!(never.starts_with("the result is larger than a frame may be (167773"), "{never}");
    assert!(never.ends_with(" of 16777216 bytes)"), "{never}");
}

#[test]
fn a_schema_given_at_run_time_is_listed_unchanged_and_arguments_are_checked_against_it() {
    let schema = r#"{"type":"object", "properties":{"city":{"type":"string"}},"required":["city"]}"#;
    let weather = || {
        let say = async |_: Context, arguments: Json| Ok(ToolOutput::text(arguments.as_str()));
        Tool::from_schema("weather", Json::parse(schema).unwrap(), say).unwrap()
    };
    assert_eq!(list_entry(weather())["inputSchema"], serde_json::from_str::<serde_json::Value>(schema).unwrap());
    let call = |arguments| harness(weather()).call_tool("weather", to_json(arguments));
    assert_eq!(call(json!({"city": "Bonn", "more": [1]})).text(), r#"{"city":"Bonn","more":[1]}"#);
    let refused = call(json!({"city": 7}));
    assert!(refused.is_tool_error() && refused.text().contains("/city"), "{}", refused.text());
}

#[test]
fn the_schema_of_a_result_is_given_once_by_its_type_or_by_hand() {
    let schema = || Json::parse(r#"{"type":"object", "properties":{"n":{"type":"integer"}}}"#).unwrap();
    let counted = async |_: Context, (): ()| Ok(ToolOutput::structured(Json::encode(&json!({"n": 1}))?));
    let tool = || Tool::with_content("t", counted).output_schema(schema());
    assert_eq!(list_entry(tool().unwrap())["outputSchema"]["properties"]["n"]["type"], "integer");
    let twice = "tool `t`: the schema of the result is given already, by its type or by an earlier call";
    assert_eq!(tool().unwrap().output_schema(schema()).unwrap_err().to_string(), twice);
    let typed = Tool::new("t", async |_: Context, (): ()| Ok(7));
    assert_eq!(typed.output_schema(schema()).unwrap_err().to_string(), twice);
    let text = Tool::with_content("t", counted).output_schema(Json::parse("true").unwrap()).unwrap_err().to_string();
    assert_eq!(text, r#"tool `t`: the schema of the result is not one of an object: it has no `"type": "object"`"#);
}

#[test]
fn a_schema_that_cannot_be_used_is_an_error_that_names_the_tool_and_the_fault() {
    let make = |schema: &'static str| {
        Tool::from_schema("t", Json::parse(schema).unwrap(), async |_: Context, _: Json| Ok(ToolOutput::default()))
    };
    for schema in [r#"{"type":"string"}"#, "{}", "true", "[1]"] {
        let error = make(schema).unwrap_err().to_string();
        assert_eq!(error, r#"tool `t`: the schema is not one of an object: it has no `"type": "object"`"#, "{schema}");
    }
    // Valid schemas, with which the official TypeScript client refuses the whole list.
    for (schema, what) in [
        (
            r#"{"type":"object","properties":{"a":{},"b":true}}"#,
            "/properties/b, which is not an object, such as `{}` for any value",
        ),
        (r#"{"type":"object","properties":[]}"#, "/properties, which is not an object"),
        (r#"{"type":"object","required":"a"}"#, "/required, which is not a list of names"),
    ] {
        let error = make(schema).unwrap_err().to_string();
        assert_eq!(error, format!("tool `t`: the schema has {what}: clients refuse the whole list with it"));
    }
    let annotated = make(r#"{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#);
    let error = annotated.unwrap_err().to_string();
    assert_eq!(error, "tool `t`: the schema has an annotation that is not allowed: x-mcp-header is not a token");
    #[cfg(feature = "validate")]
    assert!(make(r#"{"type":"object","patternProperties":{"(":{}}}"#).unwrap_err().to_string().contains("is not valid"));
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Area {
    width: u8,
    any: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "kind")]
enum Tagged {
    Dot,
    Line { length: u8 },
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    Area(Area),
    Line { length: u8 },
}

/// A definition that the schema of a list of it refers to.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Tree {
    below: Vec<Self>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Mixed {
    Name,
    Line { length: u8 },
}

#[derive(Debug, Deserialize, JsonSchema)]
enum Order {
    Ascending,
    Descending,
}

/// A tool whose result is the debug output of its arguments.
fn shows<A: core::fmt::Debug + serde::de::DeserializeOwned + JsonSchema + Send + 'static>() -> Tool {
    Tool::new("shows", async |_: Context, given: A| Ok(format!("{given:?}")))
}

/// In the field: the schema of `Option<Struct>` had the type `["object", "null"]`, and that of a field of any type was `true`. The official
/// TypeScript client then refuses the whole list, with all other tools in it.
#[test]
fn the_schema_of_every_type_that_is_read_from_an_object_is_one_of_an_object() {
    let closed = |properties: serde_json::Value, required: &[&str]| {
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    };
    let width = || json!({"type": "integer", "minimum": 0, "maximum": 255});
    let area = |required: &[&str]| closed(json!({"width": width(), "any": {}}), required);
    let line = || json!({"type": "object", "properties": {"length": width()}, "required": ["length"]});
    let dot = json!({"type": "object", "properties": {"kind": {"type": "string", "const": "Dot"}}, "required": ["kind"]});
    let mut tagged = line();
    (tagged["properties"]["kind"], tagged["required"]) = (json!({"type": "string", "const": "Line"}), json!(["kind", "length"]));
    let tagged = json!({"type": "object", "oneOf": [dot, tagged]});
    for (tool, expected) in [
        (shows::<Area>(), area(&["width"])),
        (shows::<Option<Area>>(), area(&[])),
        (shows::<Option<Option<Box<Area>>>>(), area(&[])),
        (shows::<Tagged>(), tagged.clone()),
        (shows::<Option<Tagged>>(), tagged),
        (shows::<()>(), closed(json!({}), &[])),
        (shows::<Option<()>>(), closed(json!({}), &[])),
        (shows::<serde_json::Value>(), json!({"type": "object"})),
        (shows::<BTreeMap<String, bool>>(), json!({"type": "object", "additionalProperties": {"type": "boolean"}})),
        (shows::<Option<BTreeMap<String, bool>>>(), json!({"type": "object", "additionalProperties": {"type": "boolean"}})),
    ] {
        assert_eq!(list_entry(tool)["inputSchema"], expected);
    }
    for tool in [shows::<Untagged>(), shows::<Option<Untagged>>(), shows::<Tree>(), shows::<Option<Tree>>()] {
        assert_eq!(list_entry(tool)["inputSchema"]["type"], "object");
    }
    let any = Tool::new("any", async |_: Context, given: Area| Ok(given));
    assert_eq!(list_entry(any)["outputSchema"]["properties"]["any"], json!({}));
}

#[test]
fn an_option_of_a_struct_is_none_if_the_arguments_are_missing_or_empty_although_one_is_required() {
    for (tool, arguments, expected) in [
        (shows::<Option<Area>>(), None, "None"),
        (shows::<Option<Area>>(), Some(json!(null)), "None"),
        (shows::<Option<Area>>(), Some(json!({})), "None"),
        (shows::<Option<Area>>(), Some(json!({"width": 2})), "Some(Area { width: 2, any: None })"),
        (shows::<Option<Area>>(), Some(json!({"any": 1})), r#"invalid arguments: "width" is a required property"#),
        (shows::<Option<Area>>(), Some(json!([])), r#"invalid arguments: [] is not of type "object""#),
        (shows::<Option<Tagged>>(), None, "None"),
        (shows::<Option<Tagged>>(), Some(json!({"kind": "Dot"})), "Some(Dot)"),
        (shows::<Option<Steps>>(), None, "None"),
        (shows::<Option<Steps>>(), Some(json!({})), "Some(Steps { steps: 0, names: [] })"),
        (shows::<Option<Tree>>(), Some(json!({"below": []})), "Some(Tree { below: [] })"),
        (shows::<Option<()>>(), None, "None"),
        (shows::<()>(), None, "()"),
    ] {
        for tool in [tool.clone(), tool.inline()] {
            let mut params = json!({"name": "shows"});
            if let Some(arguments) = &arguments {
                params["arguments"] = arguments.clone();
            }
            assert_eq!(harness(tool).request(Op::CallTool, to_json(params)).text(), expected, "{arguments:?}");
        }
    }
}

/// In the field: tools with such arguments were listed, and hid all other tools from the official TypeScript client.
#[test]
fn a_tool_or_a_prompt_whose_arguments_are_no_object_is_refused_with_the_name_of_the_type_and_a_remedy() {
    fn reason<A: core::fmt::Debug + serde::de::DeserializeOwned + JsonSchema + Send + 'static>() -> (String, String) {
        (service().try_tool(shows::<A>()).unwrap_err().to_string(), String::from(core::any::type_name::<A>()))
    }
    for (error, name) in [
        reason::<u32>(),
        reason::<String>(),
        reason::<bool>(),
        reason::<Option<u32>>(),
        reason::<Vec<Area>>(),
        reason::<(u8, u8)>(),
        reason::<[u8; 2]>(),
        reason::<Order>(),
        reason::<Mixed>(),
        reason::<Option<Mixed>>(),
    ] {
        let expected = format!(
            "tool `shows`: arguments are an object, but `{name}` is also or only read from other JSON: make it a field of a \
             struct, such as `struct Arguments {{ value: {name} }}`"
        );
        assert_eq!(error, expected);
    }
    let mut service = service();
    let catalog = service.catalog();
    assert!(catalog.add_tool(shows::<u32>()).is_err() && !format!("{catalog:?}").contains("shows"));
    let prompt = Prompt::typed("p", async |_: Context, _: Vec<u8>| Ok(PromptOutput::default()));
    assert!(service.try_prompt(prompt).unwrap_err().to_string().starts_with("prompt `p`: "));
}

#[test]
fn arguments_that_are_missing_or_null_are_an_empty_object() {
    for params in [json!({"name": "steps"}), json!({"name": "steps", "arguments": null}), json!({"name": "steps", "arguments": {}})]
    {
        let run = harness(stepper()).request(Op::CallTool, to_json(params));
        assert_eq!(run.text(), r#"{"steps":0,"names":0}"#);
    }
}

#[test]
fn bad_input_is_a_tool_error_that_names_every_field_and_its_problem() {
    for tool in [stepper(), stepper().inline()] {
        let run = harness(tool).call_tool("steps", to_json(json!({"steps": "3", "names": ["a", 5]})));
        assert!(run.is_tool_error());
        assert_eq!(run.text(), r#"invalid arguments: /names/1: 5 is not of type "string"; /steps: "3" is not of type "integer""#);
    }
}

#[test]
fn an_unknown_argument_is_named() {
    let run = harness(stepper()).call_tool("steps", to_json(json!({"stepz": 3})));
    assert!(run.is_tool_error());
    assert!(run.text().contains("stepz"), "{}", run.text());
}

#[test]
fn only_a_few_of_many_errors_are_named_and_long_values_are_cut() {
    let names: Vec<u32> = (0..100).collect();
    let run = harness(stepper()).call_tool("steps", to_json(json!({"names": names})));
    assert!(run.text().ends_with("; and 95 more"), "{}", run.text());
    let run = harness(stepper()).call_tool("steps", to_json(json!({"steps": "x".repeat(100_000)})));
    assert!(run.text().len() < 400 && run.text().ends_with(r#"is not of type "integer""#), "{}", run.text());
}

/// A regression: the pointer of an error was as long as the keys of the caller.
#[test]
fn the_keys_of_a_caller_are_cut_in_a_validation_error() {
    let tool = Tool::new("sum", async |_: Context, prices: BTreeMap<String, u32>| Ok(prices.len()));
    let run = harness(tool).call_tool("sum", to_json(json!({"x".repeat(100_000): "7"})));
    assert!(run.is_tool_error());
    assert!(run.text().len() < 400 && run.text().ends_with(r#"xxx: "7" is not of type "integer""#), "{}", run.text());
}

#[test]
fn a_whole_float_is_an_integer_and_a_number_out_of_range_is_not() {
    let run = harness(stepper()).call_tool("steps", Json::parse(r#"{"steps":3.0}"#).unwrap());
    assert_eq!(run.text(), r#"{"steps":3,"names":0}"#);
    for steps in ["3.5", "-1", "99999999999"] {
        let run = harness(stepper()).call_tool("steps", Json::parse(format!(r#"{{"steps":{steps}}}"#)).unwrap());
        assert!(run.is_tool_error(), "{steps}");
        assert!(run.text().starts_with("invalid arguments: "), "{}", run.text());
    }
}

#[test]
fn an_unknown_tool_is_a_protocol_error() {
    let error = RpcError::new(RpcError::INVALID_PARAMS, r#"unknown tool "nope""#);
    assert_eq!(harness(stepper()).call_tool("nope", Json::empty_object()).error(), Some(&error));
    let run = harness(stepper()).request(Op::CallTool, to_json(json!({"arguments": {}})));
    assert_eq!(run.error().map(|error| error.code), Some(RpcError::INVALID_PARAMS));
}

#[test]
fn a_tool_is_listed_with_its_schemas_and_without_empty_members() {
    let entry = list_entry(stepper().title("Steps").description("Takes steps").read_only().idempotent().destructive(false));
    assert_eq!(
        entry,
        json!({
            "name": "steps",
            "title": "Steps",
            "description": "Takes steps",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "steps": {"type": "integer", "minimum": 0, "default": 0, "description": "How many."},
                    "names": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "additionalProperties": false,
            },
            "outputSchema": {
                "type": "object",
                "properties": {"steps": {"type": "integer", "minimum": 0}, "names": {"type": "integer", "minimum": 0}},
                "required": ["steps", "names"],
            },
            "annotations": {"readOnlyHint": true, "idempotentHint": true, "destructiveHint": false},
        })
    );
}

#[test]
fn the_schemas_of_nested_types_have_no_references() {
    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Outer {
        title: Inner,
        format: Option<Inner>,
    }
    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        size: u8,
    }
    let schema = list_entry(Tool::new("nested", async |_: Context, _: Outer| Ok(())))["inputSchema"].clone();
    assert!(!std::string::ToString::to_string(&schema).contains("$ref"), "{schema}");
    assert_eq!(schema["properties"]["title"]["properties"]["size"], json!({"type": "integer", "minimum": 0, "maximum": 255}));
}

#[test]
fn the_unit_type_means_no_arguments_and_no_content() {
    let nothing = || Tool::new("nothing", async |_: Context, (): ()| Ok(()));
    assert_eq!(list_entry(nothing())["inputSchema"], json!({"type": "object", "properties": {}, "additionalProperties": false}));
    assert_eq!(list_entry(nothing()).get("outputSchema"), None);
    assert_eq!(run(nothing()).result().as_str(), r#"{"content":[]}"#);
    assert!(harness(nothing()).call_tool("nothing", to_json(json!({"a": 1}))).is_tool_error());
}

#[test]
fn a_result_that_is_not_an_object_is_wrapped_in_the_member_result() {
    let list = || Tool::new("list", async |_: Context, (): ()| Ok([1_u8, 2]));
    assert_eq!(list_entry(list())["outputSchema"]["required"], json!(["result"]));
    assert_eq!(run(list()).structured().unwrap().as_str(), r#"{"result":[1,2]}"#);

    #[derive(Serialize, JsonSchema)]
    enum Number {
        Zero,
        Next(Box<Self>),
    }
    let one = Tool::new("one", async |_: Context, (): ()| Ok(Number::Next(Box::new(Number::Zero))));
    let next = &list_entry(one)["outputSchema"]["properties"]["result"]["oneOf"][1]["properties"]["Next"];
    assert_eq!(*next, json!({"$ref": "#/properties/result"}), "the root is another one");
}

#[test]
fn a_result_that_is_an_enum_of_objects_is_not_wrapped() {
    #[derive(Serialize, JsonSchema)]
    #[serde(untagged)]
    enum Outcome {
        Deleted { deleted: String },
        Cancelled { cancelled: bool },
    }
    let tool = || {
        Tool::new("delete", async |_: Context, (): ()| {
            let _other = Outcome::Cancelled { cancelled: true };
            Ok(Outcome::Deleted { deleted: "a".into() })
        })
    };
    assert_eq!(list_entry(tool())["outputSchema"]["type"], "object");
    assert_eq!(run(tool()).text(), r#"{"deleted":"a"}"#);
}

#[test]
fn a_value_of_any_type_is_structured_if_it_is_an_object() {
    let any = |value: serde_json::Value| run(Tool::new("any", move |_: Context, (): ()| core::future::ready(Ok(value.clone()))));
    assert_eq!(any(json!({"a": 1})).structured().unwrap().as_str(), r#"{"a":1}"#);
    assert_eq!(any(json!([1])).structured(), None);
    assert_eq!(any(json!([1])).text(), "[1]");
}

#[test]
fn arguments_of_any_type_are_still_an_object_and_a_type_that_contains_itself_has_a_schema() {
    let any = || Tool::new("any", async |_: Context, given: serde_json::Value| Ok(given));
    assert_eq!(list_entry(any())["inputSchema"], json!({"type": "object"}));
    assert_eq!(harness(any()).call_tool("any", to_json(json!({"a": [1]}))).text(), r#"{"a":[1]}"#);

    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Tree {
        size: u8,
        #[serde(default)]
        below: Vec<Self>,
    }
    let tree = || Tool::new("tree", async |_: Context, given: Tree| Ok(given));
    let run = harness(tree()).call_tool("tree", to_json(json!({"size": 1, "below": [{"size": 2}]})));
    assert_eq!(run.text(), r#"{"size":1,"below":[{"size":2,"below":[]}]}"#);
    let run = harness(tree()).call_tool("tree", to_json(json!({"size": 1, "below": [{"size": "2"}]})));
    assert_eq!(run.text(), r#"invalid arguments: /below/0/size: "2" is not of type "integer""#);
    assert_eq!(list_entry(tree())["outputSchema"]["type"], "object");
}

#[test]
fn the_content_blocks_that_a_handler_returns_are_sent_unchanged() {
    let blocks = ["one", "", "caf\u{e9}"].map(|block| Content::Text(Text::from(block)));
    let tool = Tool::with_content("blocks", move |_: Context, (): ()| core::future::ready(Ok(ToolOutput::blocks(blocks.clone()))));
    assert_eq!(run(tool).text(), "one\n\ncaf\u{e9}");
}

#[test]
fn a_failure_of_a_tool_is_a_result_and_an_rpc_error_of_its_handler_is_an_error() {
    let failed = run(Tool::new("fails", async |_: Context, (): ()| Err::<(), _>(ToolError::from("no paper"))));
    assert!(failed.is_tool_error());
    assert_eq!(failed.text(), "no paper");
    let error = RpcError::new(-32050, "out of order");
    let refused = error.clone();
    let run =
        run(Tool::new("refuses", move |_: Context, (): ()| core::future::ready(Err::<(), _>(ToolError::Rpc(refused.clone())))));
    assert_eq!(run.error(), Some(&error));
}

#[test]
fn a_panic_is_an_internal_error_for_that_call_alone() {
    let tool = |name| {
        Tool::new(name, async |_: Context, given: Steps| {
            assert!(given.steps == 0, "boom");
            Ok(())
        })
    };
    for tool in [tool("panics"), tool("panics").inline()] {
        let service = std::sync::Arc::new(service().tool(tool));
        let run = Harness::new(std::sync::Arc::clone(&service)).call_tool("panics", to_json(json!({"steps": 1})));
        assert_eq!(run.error(), Some(&RpcError::new(RpcError::INTERNAL, "internal error: the handler panicked")));
        assert_eq!(run.counters.panics, 1);
        let run = Harness::new(service).call_tool("panics", Json::empty_object());
        assert_eq!(run.result().as_str(), r#"{"content":[]}"#);
    }
}

#[test]
fn a_blocking_tool_sends_progress_returns_and_fails_like_any_other() {
    let tool = || {
        Tool::blocking("blocks", |context: Context, given: Steps| {
            (1..=given.steps).for_each(|step| context.step(step.into(), given.steps.into()));
            Ok(Taken { steps: given.steps, names: 0 })
        })
    };
    let run = harness(tool()).call_tool("blocks", to_json(json!({"steps": 4})));
    assert_eq!(run.values(), [1.0, 4.0], "the first and the final one");
    assert_eq!(run.text(), r#"{"steps":4,"names":0}"#);
    let run = harness(tool()).call_tool("blocks", to_json(json!({"steps": true})));
    assert_eq!(run.text(), r#"invalid arguments: /steps: true is not of type "integer""#);
    let panics = Tool::blocking("panics", |_: Context, (): ()| -> Result<(), ToolError> { panic!("boom") });
    assert_eq!(super::run(panics).error().map(|error| error.code), Some(RpcError::INTERNAL));
}

#[test]
fn an_inline_tool_may_return_immediately_or_wait() {
    let quick = run(Tool::new("quick", async |_: Context, (): ()| Ok(1)).inline());
    assert_eq!(quick.text(), r#"{"result":1}"#);
    let slow = run(Tool::new("slow", async |context: Context, (): ()| {
        context.step(1, 2);
        context.sleep(super::ms(50)).await?;
        context.step(2, 2);
        Ok(2)
    })
    .inline());
    assert_eq!(slow.values(), [1.0, 2.0]);
    assert_eq!(slow.ended, Some(super::ms(50)));
}

/// Serializing a result runs code of the application. Here that code reads whether the value of the handler was dropped.
#[test]
fn the_values_of_a_handler_are_dropped_before_its_result_is_serialized() {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    #[derive(JsonSchema)]
    struct WasDropped(#[schemars(skip)] Arc<AtomicBool>);
    impl Serialize for WasDropped {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bool(self.0.load(Ordering::Relaxed))
        }
    }
    let tool = || {
        Tool::new("holds", |_: Context, (): ()| {
            let was_dropped: Arc<AtomicBool> = Arc::default();
            let mut value = Some(SetOnDrop(Arc::clone(&was_dropped)));
            core::future::poll_fn(move |_| {
                let _ = &mut value;
                Poll::Ready(Ok(WasDropped(Arc::clone(&was_dropped))))
            })
        })
    };
    for tool in [tool(), tool().inline()] {
        assert_eq!(run(tool).text(), r#"{"result":true}"#);
    }
}

#[test]
fn a_run_whose_handler_never_ends_has_no_end_time() {
    let run = run(Tool::new("waits", async |_: Context, (): ()| {
        core::future::pending::<()>().await;
        Ok(())
    }));
    assert_eq!(run.done, None);
    assert_eq!(run.ended, None);
}

#[test]
fn structured_content_that_is_given_as_json_reaches_the_caller_byte_for_byte() {
    let output = ToolOutput::structured(json_of("{\"a\":[1.50,\"\\u00e9\"]}"));
    let run = run(Tool::with_content("raw", move |_: Context, (): ()| core::future::ready(Ok(output.clone()))));
    assert_eq!(run.structured().unwrap().as_str(), "{\"a\":[1.50,\"\\u00e9\"]}");
}

fn json_of(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}
