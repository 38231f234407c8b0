//! Lists, prompts, resources and completion.

use std::collections::BTreeMap;

use serde_json::json;

use super::{json as text, ms, service, value};
use crate::testing::Harness;
use crate::{
    Completion, CompletionOf, CompletionRequest, Context, Prompt, PromptMessage, PromptOutput, Resource, ResourceContents,
    ResourceTemplate, ResourceUri, Result, Service, State, Tool, ToolError,
};
use protocol_core::dialect::{Annotations, Icon, Op};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::SendError;

fn tool(name: &str) -> Tool {
    Tool::new(name, async |_: Context, (): ()| Ok(()))
}

fn many(count: usize) -> Service {
    // Registered in reverse order, so that only sorting by name gives the expected order.
    (0..count).rev().fold(service().page_size(10), |service, number| service.tool(tool(&format!("tool{number:03}"))))
}

/// Requests a page of the list of tools. Returns the names of the tools, and the cursor of the next page.
fn page(service: Service, params: serde_json::Value) -> Result<(Vec<String>, Option<String>), RpcError> {
    let run = Harness::new(service).request(Op::ListTools, text(params));
    match run.error() {
        Some(error) => Err(error.clone()),
        None => {
            let result = value(&run.result());
            let names = result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().into()).collect();
            Ok((names, result.get("nextCursor").map(|cursor| cursor.as_str().unwrap().into())))
        }
    }
}

#[test]
fn a_list_is_sorted_and_comes_in_pages() {
    let mut seen = Vec::new();
    let mut cursor: Option<String> = None;
    let mut pages = 0;
    loop {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        let (names, next) = page(many(25), params).unwrap();
        pages += 1;
        seen.extend(names);
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(seen, (0..25).map(|number| format!("tool{number:03}")).collect::<Vec<_>>());
    assert_eq!(page(many(20), json!({"cursor": "tools:10"})).unwrap().1, None, "no empty page follows a full one");
    assert_eq!(page(many(3), json!({"cursor": null})).unwrap().0.len(), 3);
}

#[test]
fn a_cursor_that_was_never_handed_out_is_refused() {
    for cursor in [
        json!("tools:5"),
        json!("tools:20"),
        json!("tools:0"),
        json!("tools:+10"),
        json!("tools:010"),
        json!("prompts:10"),
        json!(""),
        json!(10),
    ] {
        let error = page(many(20), json!({"cursor": cursor})).unwrap_err();
        assert_eq!((error.code, &*error.message), (RpcError::INVALID_PARAMS, "invalid cursor"), "{cursor}");
    }
}

fn workflow() -> Prompt {
    Prompt::new("workflow", async |context: Context, arguments: BTreeMap<String, String>| {
        for step in 1..=3 {
            context.step(step, 3);
            context.sleep(ms(100)).await?;
        }
        let topic = arguments.get("topic").ok_or("no topic")?;
        Ok(PromptOutput::new([PromptMessage::user(format!("About {topic}")), PromptMessage::assistant("Go on")])
            .with_description("A workflow"))
    })
    .description("Works")
    .argument("topic", "What about", true)
}

fn arguments(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect()
}

#[test]
fn a_prompt_is_listed_and_returns_messages_with_progress() {
    let run = Harness::new(service().prompt(workflow())).request(Op::ListPrompts, Json::empty_object());
    let expected = json!({"prompts": [{"name": "workflow", "description": "Works",
        "arguments": [{"name": "topic", "description": "What about", "required": true}]}]});
    assert_eq!(value(&run.result()), expected);
    let run = Harness::new(service().prompt(workflow())).get_prompt("workflow", &arguments(&[("topic", "cats")]));
    assert_eq!(run.values(), [1.0, 2.0, 3.0]);
    let messages = json!({"description": "A workflow", "messages": [
        {"role": "user", "content": {"type": "text", "text": "About cats"}},
        {"role": "assistant", "content": {"type": "text", "text": "Go on"}}]});
    assert_eq!(value(&run.result()), messages);
}

#[test]
fn an_unknown_prompt_and_wrong_arguments_are_refused_and_a_failed_prompt_is_an_internal_error() {
    let get = |params| {
        let run = Harness::new(service().prompt(workflow())).request(Op::GetPrompt, text(params));
        run.error().map(|error| (error.code, String::from(&*error.message)))
    };
    let invalid = |message: &str| Some((RpcError::INVALID_PARAMS, String::from(message)));
    assert_eq!(get(json!({"name": "workflow"})), invalid(r#"missing argument "topic" of prompt "workflow""#));
    assert_eq!(get(json!({"name": "other"})), invalid(r#"unknown prompt "other""#));
    let wrong = get(json!({"name": "workflow", "arguments": {"topic": 5}}));
    assert_eq!(wrong, invalid("the arguments of a prompt are an object of strings"));
    let failed =
        Prompt::new("fails", async |_: Context, _: std::collections::BTreeMap<String, String>| Err(ToolError::from("no ink")));
    let run = Harness::new(service().prompt(failed)).get_prompt("fails", &arguments(&[]));
    assert_eq!(run.error(), Some(&RpcError::internal("no ink")));
}

fn library() -> Service {
    service()
        .resource(Resource::new("book://one", "One", async |_: Context| Ok(ResourceContents::text("once"))).mime_type("text/plain"))
        .resource_template(
            ResourceTemplate::new("book://{shelf}/{title}", "Books", async |_: Context, which: crate::ResourceUri| {
                if which.variables["title"] == "lost" {
                    return Err(ToolError::resource_not_found(&which.uri));
                }
                Ok(ResourceContents::blob(which.variables["shelf"].as_bytes()).with_mime_type("application/x-shelf"))
            })
            .description("All of them"),
        )
}

#[test]
fn resources_are_listed_and_read_by_uri_or_template() {
    let result_of = |op, params| value(&Harness::new(library()).request(op, text(params)).result());
    let listed = json!({"resources": [{"uri": "book://one", "name": "One", "mimeType": "text/plain"}]});
    assert_eq!(result_of(Op::ListResources, json!({})), listed);
    let templates =
        json!({"resourceTemplates": [{"uriTemplate": "book://{shelf}/{title}", "name": "Books", "description": "All of them"}]});
    assert_eq!(result_of(Op::ListResourceTemplates, json!({})), templates);
    let one = json!({"contents": [{"uri": "book://one", "mimeType": "text/plain", "text": "once"}]});
    assert_eq!(result_of(Op::ReadResource, json!({"uri": "book://one"})), one);
    let by_template = json!({"contents": [{"uri": "book://foo/x", "mimeType": "application/x-shelf", "blob": "Zm9v"}]});
    assert_eq!(result_of(Op::ReadResource, json!({"uri": "book://foo/x"})), by_template);
}

#[test]
fn the_error_for_a_missing_resource_names_its_uri() {
    for uri in ["book://two", "book://a/lost"] {
        let run = Harness::new(library()).request(Op::ReadResource, text(json!({"uri": uri})));
        let error = run.error().unwrap();
        assert_eq!(error.code, RpcError::RESOURCE_NOT_FOUND);
        assert_eq!(error.data.as_deref().map(value), Some(json!({"uri": uri})));
    }
}

#[test]
fn arguments_are_completed() {
    let service = || {
        library().prompt(workflow()).completion(async |_: Context, request: CompletionRequest| {
            let of = match request.of {
                CompletionOf::Prompt(name) => name,
                CompletionOf::Resource(uri) => uri,
            };
            let known = ["cats", "cows", "dogs"].map(|animal| format!("{of} {} {animal}", request.argument));
            let typed = request.value;
            Ok(Completion::all(known.into_iter().filter(|one| one.contains(&typed))))
        })
    };
    let complete = |reference| {
        let params = json!({"ref": reference, "argument": {"name": "topic", "value": " c"}});
        Harness::new(service()).request(Op::Complete, text(params))
    };
    let run = complete(json!({"type": "ref/prompt", "name": "workflow"}));
    assert_eq!(value(&run.result())["completion"]["values"], json!(["workflow topic cats", "workflow topic cows"]));
    assert!(complete(json!({"type": "ref/resource", "uri": "book://{shelf}/{title}"})).error().is_none());
    let unknown = complete(json!({"type": "ref/prompt", "name": "nope"}));
    assert_eq!(unknown.error().map(|error| error.code), Some(RpcError::INVALID_PARAMS));
}

#[test]
fn an_argument_and_a_variable_are_completed_by_their_own_handlers() {
    async fn topics(animals: State<Vec<&'static str>>, request: CompletionRequest) -> Result<Completion> {
        Ok(Completion::all(animals.iter().copied().filter(|one| one.starts_with(&request.value))))
    }
    async fn shelves(request: CompletionRequest) -> Result<Completion> {
        Ok(Completion::all([format!("{}{}", request.value, request.context.len())]))
    }
    async fn book(_: ResourceUri) -> Result<ResourceContents> {
        Ok("".into())
    }
    let service = || {
        let books = ResourceTemplate::new("book://{shelf}/{title}", "Books", book).complete("shelf", shelves);
        service().state(vec!["cats", "cows", "dogs"]).prompt(workflow().complete("topic", topics)).resource_template(books)
    };
    let prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
    let template = json!({"type": "ref/resource", "uri": "book://{shelf}/{title}"});
    let merged = || Service::new("all", "1").merge("a_", service());
    for (service, reference, argument, values) in [
        (service(), prompt("workflow"), "topic", json!(["cats", "cows"])),
        (merged(), prompt("a_workflow"), "topic", json!(["cats", "cows"])),
        (service(), prompt("workflow"), "other", json!([])),
        (service(), template.clone(), "shelf", json!(["c0"])),
        (service(), template, "title", json!([])),
    ] {
        let params = json!({"ref": reference, "argument": {"name": argument, "value": "c"}});
        let run = Harness::new(service).request(Op::Complete, text(params));
        assert_eq!(value(&run.result())["completion"]["values"], values, "{argument}");
    }
    let refused = |refused: Result<Service, crate::Refused>| refused.unwrap_err().to_string();
    assert_eq!(
        refused(service().try_prompt(workflow().complete("topics", topics))),
        "prompt `workflow`: there is no argument `topics` to complete, only `topic`"
    );
    let stateless = Service::new("s", "1").prompt(workflow().complete("topic", topics));
    assert!(refused(stateless.check().map(|()| service())).starts_with("prompt `workflow`: the handler takes a `State<"));
    let mut changeable = service();
    let book = ResourceTemplate::new("b:{x}", "b", book).complete("y", shelves);
    let refused = changeable.catalog().add_resource_template(book).unwrap_err();
    assert_eq!(refused.to_string(), "resource template `b:{x}`: there is no variable `y` to complete, only `x`");
}

#[test]
fn entries_and_the_service_are_described_with_icons_and_meta() {
    let icon = || Icon::new("data:,");
    let service = || {
        let hints = Annotations::default().for_user();
        let book = Resource::new("book://one", "One", async |_: Context| Ok(ResourceContents::text("once")));
        service()
            .website("https://example.com")
            .icon(icon())
            .tools([tool("a").icon(icon()).meta("a.b/c", json!({"n": 1})), tool("b").read_only().meta("a.b/c", json!(1))])
            .prompt(workflow().icon(icon()).meta("a.b/c", json!(1)))
            .resource(book.icon(icon()).meta("a.b/c", json!(1)).annotated(hints))
    };
    let listed = |op| value(&Harness::new(service()).request(op, Json::empty_object()).result());
    let icons = json!([{"src": "data:,"}]);
    let tools = listed(Op::ListTools);
    assert_eq!((&tools["tools"][0]["icons"], &tools["tools"][0]["_meta"]), (&icons, &json!({"a.b/c": {"n": 1}})));
    assert_eq!(tools["tools"][1]["annotations"], json!({"readOnlyHint": true}));
    let prompts = listed(Op::ListPrompts);
    assert_eq!((&prompts["prompts"][0]["icons"], &prompts["prompts"][0]["_meta"]), (&icons, &json!({"a.b/c": 1})));
    let resources = listed(Op::ListResources);
    let book =
        json!({"uri": "book://one", "name": "One", "annotations": {"audience": ["user"]}, "icons": icons, "_meta": {"a.b/c": 1}});
    assert_eq!(resources["resources"][0], book);
    let identity = service().config().identity;
    assert_eq!((identity.website.as_deref(), identity.icons), (Some("https://example.com"), vec![icon()]));
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Review {
    /// The text to be reviewed
    text: String,
    #[schemars(title = "Remarks", range(max = 9))]
    most_remarks: Option<u8>,
    #[serde(default)]
    is_strict: bool,
    tone: Option<Tone>,
    note: Option<String>,
}

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Tone {
    Kind,
    Plain,
}

fn review() -> Prompt {
    Prompt::typed("review", async |_: Context, given: Review| {
        let Review { text, most_remarks, is_strict, tone, note } = given;
        Ok(PromptOutput::new([PromptMessage::user(format!("{text} {most_remarks:?} {is_strict} {tone:?} {note:?}"))]))
    })
}

#[test]
fn the_arguments_of_a_typed_prompt_are_listed_and_read_as_fields_of_its_type() {
    let run = Harness::new(service().prompt(review())).request(Op::ListPrompts, Json::empty_object());
    let expected = json!([
        {"name": "text", "description": "The text to be reviewed", "required": true},
        {"name": "mostRemarks", "title": "Remarks", "required": false},
        {"name": "isStrict", "required": false},
        {"name": "tone", "required": false},
        {"name": "note", "required": false},
    ]);
    let mut arguments = value(&run.result())["prompts"][0]["arguments"].take();
    let sort = |list: &mut serde_json::Value| list.as_array_mut().unwrap().sort_by_key(|argument| argument["name"].to_string());
    let mut expected = expected;
    sort(&mut expected);
    sort(&mut arguments);
    assert_eq!(arguments, expected);

    let prompt_text = |given: &[(&str, &str)]| {
        let given = given.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        let run = Harness::new(service().prompt(review())).get_prompt("review", &given);
        run.error().map_or_else(
            || Ok(value(&run.result())["messages"][0]["content"]["text"].as_str().unwrap().to_owned()),
            |error| Err((error.code, error.message.to_string())),
        )
    };
    assert_eq!(prompt_text(&[("text", "12")]).unwrap(), "12 None false None None", "a text of digits stays a text");
    let all = [("text", "a"), ("mostRemarks", "3"), ("isStrict", "true"), ("tone", "kind"), ("note", "null")];
    assert_eq!(prompt_text(&all).unwrap(), r#"a Some(3) true Some(Kind) Some("null")"#);
    for (given, place) in [
        (&[][..], "text"),
        (&[("text", "a"), ("mostRemarks", "many")], "/mostRemarks"),
        (&[("text", "a"), ("mostRemarks", "10")], "/mostRemarks"),
        (&[("text", "a"), ("isStrict", "yes")], "/isStrict"),
        (&[("text", "a"), ("tone", "rude")], "/tone"),
        (&[("text", "a"), ("color", "red")], "color"),
    ] {
        let (code, message) = prompt_text(given).unwrap_err();
        assert_eq!(code, RpcError::INVALID_PARAMS);
        assert!(message.contains(place), "{given:?}: {message}");
    }
}

#[test]
fn a_typed_prompt_may_have_arguments_of_a_type_that_contains_itself() {
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "read by its Debug")]
    enum Nested {
        Deeper(Vec<Self>),
        Number(i64),
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Given {
        nested: Nested,
    }
    let prompt = Prompt::typed("p", async |_: Context, given: Given| {
        Ok(PromptOutput::default().with_description(format!("{:?}", given.nested)))
    });
    let run = Harness::new(service().prompt(prompt)).get_prompt("p", &arguments(&[("nested", "[[1]]")]));
    assert_eq!(value(&run.result())["description"], "Deeper([Deeper([Number(1)])])");
}

#[test]
fn a_service_does_not_declare_a_list_without_items() {
    for op in [Op::ListPrompts, Op::ListResources, Op::ListResourceTemplates, Op::Complete, Op::ListTools] {
        // The server has not declared the list, so no request is sent: a call that was held until the handshake ends as invalid, and a
        // later call is refused.
        let run = Harness::new(service()).request(op, Json::empty_object());
        let refused = run.refused.as_ref().is_some_and(|refused| refused.why == SendError::Unsupported);
        let invalid =
            matches!(run.outcome(), Some(protocol_core::session::Outcome::Invalid(protocol_core::session::Invalid::Unsupported)));
        assert!(refused || invalid, "{op:?}: {run:?}");
    }
}

#[test]
fn a_peer_gets_all_items_of_each_list_with_their_fields() {
    let prompt = |name: &str| {
        Prompt::new(name, async |_: Context, _: std::collections::BTreeMap<String, String>| Ok(PromptOutput::new([]))).argument(
            "topic",
            "What about",
            true,
        )
    };
    let service = library()
        .page_size(1)
        .tool(tool("a").title("A").description("does").read_only())
        .tool(tool("b"))
        .prompt(prompt("p"))
        .prompt(prompt("q"))
        .resource(Resource::new("book://two", "Two", async |_: Context| Ok(ResourceContents::text("twice"))));
    let pair = super::calls::pair_of(service, std::sync::Arc::new(()));
    let tools = pair.wait(pair.client.list_tools()).unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["a", "b"]);
    let first = &tools[0];
    assert_eq!((first.title.as_deref(), first.description.as_deref()), (Some("A"), Some("does")));
    assert_eq!(value(&first.input_schema)["type"], "object");
    assert_eq!(value(first.annotations.as_ref().unwrap()), json!({"readOnlyHint": true}));
    assert_eq!(value(first.json())["name"], "a");
    let prompts = pair.wait(pair.client.list_prompts()).unwrap();
    assert_eq!(prompts.iter().map(|prompt| &*prompt.name).collect::<Vec<_>>(), ["p", "q"]);
    assert_eq!((&*prompts[0].arguments[0].name, prompts[0].arguments[0].required), ("topic", true));
    let resources = pair.wait(pair.client.list_resources()).unwrap();
    assert_eq!(resources.iter().map(|resource| &*resource.uri).collect::<Vec<_>>(), ["book://one", "book://two"]);
    assert_eq!((resources[0].name.as_deref(), resources[0].mime_type.as_deref()), (Some("One"), Some("text/plain")));
    let templates = pair.wait(pair.client.list_resource_templates()).unwrap();
    assert_eq!(&*templates[0].uri_template, "book://{shelf}/{title}");
}
