//! Services that are made of others.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{json, value};
use crate::testing::Harness;
use crate::{
    Completion, CompletionRequest, Context, Prompt, PromptOutput, Resource, ResourceContents, ResourceTemplate, ResourceUri,
    Service, State, Tool,
};
use protocol_core::dialect::{CompletionOf, Op};
use protocol_core::json::Json;

/// A service whose handlers say its name, which is their state.
fn part(name: &'static str) -> Service {
    Service::new(name, "1")
        .state(name)
        .tool(Tool::new("who", async |name: State<&'static str>, ()| Ok(String::from(*name))))
        .prompt(Prompt::new("who", async |name: State<&'static str>, _: BTreeMap<String, String>| Ok(PromptOutput::from(*name))))
        .resource(Resource::new(format!("{name}:"), name, async |name: State<&'static str>| Ok(ResourceContents::text(*name))))
        .resource_template(ResourceTemplate::new(
            format!("{name}:{{x}}"),
            name,
            async |name: State<&'static str>, _: ResourceUri| Ok(ResourceContents::text(*name)),
        ))
        .completion(async |name: State<&'static str>, request: CompletionRequest| {
            let CompletionOf::Prompt(asked) = request.of else { return Ok(Completion::all([*name])) };
            Ok(Completion::all([format!("{asked} of {}", *name)]))
        })
}

#[test]
fn the_parts_of_a_merged_service_keep_their_states_and_their_completion() {
    let inner = Service::new("inner", "1").merge("b_", part("b"));
    let service = Arc::new(part("all").merge("a_", part("a")).merge("in_", inner));
    let ask = |op, params: Value| value(&Harness::new(Arc::clone(&service)).request(op, json(params)).result());
    for (prefix, name) in [("", "all"), ("a_", "a"), ("in_b_", "b")] {
        let who = format!("{prefix}who");
        assert_eq!(Harness::new(Arc::clone(&service)).call_tool(&who, Json::empty_object()).text(), name);
        assert_eq!(ask(Op::GetPrompt, json!({"name": who}))["messages"][0]["content"]["text"], name);
        for uri in [format!("{name}:"), format!("{name}:1")] {
            assert_eq!(ask(Op::ReadResource, json!({"uri": uri}))["contents"][0]["text"], name);
        }
        let complete =
            |of| ask(Op::Complete, json!({"ref": of, "argument": {"name": "x", "value": ""}}))["completion"]["values"][0].take();
        assert_eq!(complete(json!({"type": "ref/prompt", "name": who})), format!("who of {name}"));
        assert_eq!(complete(json!({"type": "ref/resource", "uri": format!("{name}:{{x}}")})), name);
    }
    let listed = ask(Op::ListTools, json!({}));
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a_who", "in_b_who", "who"]);
}

#[test]
fn two_things_of_one_name_are_an_error_that_names_both() {
    let tool = || Tool::new("a_who", async |_: Context, ()| Ok(()));
    let twice = Service::new("s", "1").tool(tool()).try_tool(tool()).unwrap_err();
    assert_eq!(twice.to_string(), "tool `a_who`: the service has a tool of this name already");
    let merged = Service::new("s", "1").tool(tool()).try_merge("a_", part("a")).unwrap_err();
    assert_eq!(
        merged.to_string(),
        r#"tool `a_who`: "who" of the service "a" would have this name, but "s" has a tool of this name"#
    );
    let uri = part("a").try_merge("x_", part("a")).unwrap_err();
    assert_eq!((uri.kind, &*uri.name), ("resource", "a:"));
    let method = |name| Service::new(name, "1").method("acme/do", async |_: Context, given: Json| Ok(given));
    assert_eq!(method("s").try_merge("", method("t")).unwrap_err().kind, "method");
    let twice = || method("s").method("acme/do", async |_: Context, given: Json| Ok(given));
    assert!(catch_unwind(|| drop(twice())).is_err());
}

#[test]
fn a_service_that_lacks_a_state_or_has_a_catalog_is_not_merged() {
    let lacks = Service::new("a", "1").tool(Tool::new("t", async |_: State<u8>, ()| Ok(())));
    let refused = Service::new("s", "1").state(1_u8).try_merge("", lacks).unwrap_err();
    assert!(refused.to_string().starts_with("tool `t`: the handler takes a `State<u8>`"));
    let mut changeable = part("a");
    drop(changeable.catalog());
    assert!(Service::new("s", "1").try_merge("", changeable).unwrap_err().to_string().starts_with("service `a`: it has a catalog"));
}
