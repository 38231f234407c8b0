//! States: values of a service that its handlers share.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::{json, service, value};
use crate::testing::{Executor, Harness, connect};
use crate::{
    Completion, CompletionRequest, Context, Endpoint, Prompt, PromptMessage, PromptOutput, Resource, ResourceContents,
    ResourceTemplate, ResourceUri, Result, Service, State, Tool,
};
use protocol_core::dialect::{Identity, Op};
use protocol_core::json::Json;
use protocol_core::{Config, Invoke};

#[derive(Default)]
struct Visits(AtomicU32);

/// The number of visits so far, and the name of the house.
type House = (State<Visits>, State<&'static str>);

fn visited((visits, house): House) -> String {
    format!("{} in {}", visits.0.0.fetch_add(1, Ordering::Relaxed), *house)
}

async fn visit(visits: State<Visits>, _: Context, house: State<&'static str>, (): ()) -> Result<String> {
    Ok(visited((visits, house)))
}

fn visit_and_block(house: State<&'static str>, visits: State<Visits>, (): ()) -> Result<String> {
    Ok(visited((visits, house)))
}

async fn prompt(visits: State<Visits>, house: State<&'static str>, _: BTreeMap<String, String>) -> Result<PromptOutput> {
    Ok(PromptMessage::user(visited((visits, house))).into())
}

async fn resource(visits: State<Visits>, house: State<&'static str>) -> Result<ResourceContents> {
    Ok(visited((visits, house)).into())
}

async fn template(visits: State<Visits>, house: State<&'static str>, _: ResourceUri) -> Result<ResourceContents> {
    Ok(visited((visits, house)).into())
}

async fn completion(visits: State<Visits>, house: State<&'static str>, _: CompletionRequest) -> Result<Completion> {
    Ok(Completion::all([visited((visits, house))]))
}

async fn method(visits: State<Visits>, house: State<&'static str>, _: Json) -> Result<Json> {
    Ok(json(json!({"visits": visited((visits, house))})))
}

#[test]
fn handlers_of_every_kind_share_the_states_of_their_service_by_type() {
    let service = service()
        .tool(Tool::new("task", visit))
        .tool(Tool::new("inline", visit).inline())
        .tool(Tool::blocking("blocking", visit_and_block))
        .state(Visits::default())
        .prompt(Prompt::new("p", prompt))
        .resource(Resource::new("r:", "r", resource))
        .resource_template(ResourceTemplate::new("t:{x}", "t", template))
        .completion(completion)
        .method("acme/visit", method)
        .state("the house");
    let service = Arc::new(service);
    for (n, tool) in ["task", "inline", "blocking"].into_iter().enumerate() {
        let run = Harness::new(Arc::clone(&service)).call_tool(tool, Json::empty_object());
        assert_eq!(run.text(), format!("{n} in the house"), "{tool}");
    }
    let result = |op, params| value(&Harness::new(Arc::clone(&service)).request(op, json(params)).result());
    assert_eq!(result(Op::GetPrompt, json!({"name": "p"}))["messages"][0]["content"]["text"], "3 in the house");
    assert_eq!(result(Op::ReadResource, json!({"uri": "r:"}))["contents"][0]["text"], "4 in the house");
    assert_eq!(result(Op::ReadResource, json!({"uri": "t:1"}))["contents"][0]["text"], "5 in the house");
    let completed =
        result(Op::Complete, json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}));
    assert_eq!(completed["completion"]["values"][0], "6 in the house");
    let executor = Executor::new();
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
    let peer = client.peer();
    connect(&executor, Endpoint::server(service, executor.runtime()), client);
    let answered = executor.block_on(peer.call(Invoke::custom("acme/visit", json(json!({})))).unwrap()).unwrap().result().unwrap();
    assert_eq!(value(&answered)["visits"], "7 in the house");
}

#[test]
fn a_missing_state_is_an_error_that_names_handler_and_type_when_the_service_is_first_shared() {
    let wants = |kind: &str, given: &str| {
        format!("{kind}: the handler takes a `State<&str>`: pass a `&str` to `Service::state`, which was given {given}")
    };
    type Added = fn(Service) -> Service;
    let cases: [(&str, Added); 6] = [
        ("tool `a`", |service| service.tool(Tool::new("a", visit))),
        ("prompt `a`", |service| service.prompt(Prompt::new("a", prompt))),
        ("resource `a:`", |service| service.resource(Resource::new("a:", "a", resource))),
        ("resource template `a:{x}`", |service| service.resource_template(ResourceTemplate::new("a:{x}", "a", template))),
        ("completion `completion`", |service| service.completion(completion)),
        ("method `a`", |service| service.method("a", method)),
    ];
    for (kind, added) in cases {
        let service = added(service().state(Visits::default()));
        assert_eq!(service.check().unwrap_err().to_string(), wants(kind, "`endpoint::tests::states::Visits`"));
        let begin = || Endpoint::server(Arc::new(service), Executor::new().runtime());
        let panic = catch_unwind(AssertUnwindSafe(begin)).map(drop).expect_err("a panic");
        assert!(panic.downcast_ref::<String>().is_some_and(|text| text.starts_with(kind)), "{kind}");
    }
    let none = service().tool(Tool::new("a", async |_: State<&'static str>, (): ()| Ok(())));
    assert_eq!(none.check().unwrap_err().to_string(), wants("tool `a`", "no state"));
}

#[test]
fn what_a_catalog_adds_to_a_shared_service_is_refused_at_once_without_its_state() {
    let mut service = service();
    let catalog = service.catalog();
    // The state may still come.
    catalog.add_tool(Tool::new("early", async |_: State<u8>, (): ()| Ok(()))).unwrap();
    // A check shares nothing.
    service.check().unwrap_err();
    let service = service.state(1_u8);
    let _ = service.config();
    let tool = Tool::new("late", async |_: State<u16>, (): ()| Ok(()));
    assert!(catalog.add_tool(tool).unwrap_err().to_string().starts_with("tool `late`: the handler takes a `State<u16>`"));
    let resource = Resource::new("r:", "r", async |_: State<u16>| Ok(ResourceContents::text("")));
    assert_eq!(catalog.add_resource(resource).unwrap_err().name, "r:");
    catalog.add_tool(Tool::new("late", async |_: State<u8>, (): ()| Ok(()))).unwrap();
}

#[test]
#[should_panic(expected = "state `u8`: the service is shared already")]
fn a_state_of_a_shared_service_is_refused() {
    let service = service();
    let _ = service.config();
    let _ = service.state(1_u8);
}

#[test]
#[should_panic(expected = "tool `a`: the handler takes a `State<&str>`")]
fn a_missing_state_is_found_with_a_configuration_that_the_service_has_not_made_too() {
    let service = service().tool(Tool::new("a", visit)).state(Visits::default());
    drop(Endpoint::serving(Arc::new(service), Config::mcp_server(Identity::new("s", "1")), Executor::new().runtime()));
}

#[test]
#[should_panic(expected = "state `u8`: the service has one of this type already")]
fn a_second_state_of_a_type_is_refused() {
    let _ = service().state(1_u8).state(2_u8);
}
