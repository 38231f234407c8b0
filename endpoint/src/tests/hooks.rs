//! Hooks around the handlers of a service.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{json, ms, service, value};
use crate::testing::{Harness, Run};
use crate::{
    Completion, CompletionRequest, Context, HandlerKind, Hook, HookRequest, HookResponse, Next, Prompt, PromptMessage,
    PromptOutput, Resource, ResourceContents, ResourceTemplate, ResourceUri, Result, Service, State, Tool, ToolError,
};
use protocol_core::dialect::{Op, ToolOutput};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{Invoke, Outcome};

/// What hooks and handlers have noted.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        core::mem::take(&mut *self.0.lock().unwrap())
    }
}

type Logged = State<Arc<Log>>;

/// A value that a hook attaches.
struct Stamp(&'static str);

fn stamp(context: &Context) -> &'static str {
    context.extensions().get::<Stamp>().map_or("none", |stamp| stamp.0)
}

async fn outer(log: Logged, request: HookRequest, next: Next) -> Result<HookResponse> {
    log.note(format!("outer {} {} {}", request.kind(), request.name(), request.arguments()));
    let response = next.run(request.with_extension(Stamp("outer"))).await;
    log.note("outer ends");
    response
}

/// A hook with settings.
struct Inner(Arc<Log>, &'static str);

impl Hook for Inner {
    async fn call(&self, request: HookRequest, next: Next) -> Result<HookResponse> {
        self.0.note(format!("{} {}", self.1, stamp(request.context())));
        next.run(request.with_extension(Stamp(self.1))).await
    }
}

async fn tool(log: Logged, context: Context, _: BTreeMap<String, u32>) -> Result<String> {
    context.sleep(ms(1)).await?;
    log.note(format!("handler {}", stamp(&context)));
    Ok("done".into())
}

fn blocking(log: Logged, context: Context, _: BTreeMap<String, u32>) -> Result<String> {
    log.note(format!("handler {}", stamp(&context)));
    Ok("done".into())
}

async fn prompt(log: Logged, context: Context, _: BTreeMap<String, String>) -> Result<PromptOutput> {
    log.note(format!("handler {}", stamp(&context)));
    Ok(PromptMessage::user("done").into())
}

async fn resource(log: Logged, context: Context) -> Result<ResourceContents> {
    log.note(format!("handler {}", stamp(&context)));
    Ok("done".into())
}

async fn template(log: Logged, context: Context, _: ResourceUri) -> Result<ResourceContents> {
    log.note(format!("handler {}", stamp(&context)));
    Ok("done".into())
}

async fn completion(log: Logged, context: Context, asked: CompletionRequest) -> Result<Completion> {
    log.note(format!("handler {} {}", stamp(&context), asked.value));
    Ok(Completion::all(["done"]))
}

async fn method(log: Logged, context: Context, _: Json) -> Result<Json> {
    log.note(format!("handler {}", stamp(&context)));
    Ok(json(json!({"it": "done"})))
}

/// A service with a handler of each kind.
fn whole(log: &Arc<Log>) -> Service {
    service()
        .state(Arc::clone(log))
        .tool(Tool::new("task", tool))
        .tool(Tool::new("inline", tool).inline())
        .tool(Tool::blocking("blocking", blocking))
        .prompt(Prompt::new("p", prompt).argument("a", "an argument", false))
        .resource(Resource::new("r:", "r", resource).mime_type("text/plain"))
        .resource_template(ResourceTemplate::new("t:{x}", "t", template))
        .completion(completion)
        .method("acme/do", method)
}

fn call(service: Service, tool: &str) -> Run {
    Harness::new(service).call_tool(tool, Json::empty_object())
}

#[test]
fn hooks_are_around_every_kind_of_handler_and_the_first_is_the_outermost() {
    let complete = json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}});
    let cases: [(Op, Value, &str, &str); 7] = [
        (Op::CallTool, json!({"name": "task", "arguments": {"n": 1}}), r#"tool task {"n":1}"#, ""),
        (Op::CallTool, json!({"name": "inline"}), "tool inline null", ""),
        (Op::CallTool, json!({"name": "blocking"}), "tool blocking null", ""),
        (Op::GetPrompt, json!({"name": "p", "arguments": {"a": "b"}}), r#"prompt p {"a":"b"}"#, ""),
        (Op::ReadResource, json!({"uri": "r:"}), "resource r: null", ""),
        (Op::ReadResource, json!({"uri": "t:1"}), "resource t:1 null", ""),
        (Op::Complete, complete, r#"completion p {"argument":"a","value":"v","context":{}}"#, " v"),
    ];
    let log = Arc::new(Log::default());
    let run = |service: Service, op, params: &Value| value(&Harness::new(service).request(op, json(params.clone())).result());
    for (op, params, seen, handled) in cases {
        let plain = run(whole(&log), op, &params);
        assert_eq!(log.take(), [format!("handler none{handled}")], "{params}");
        let hooked = run(whole(&log).around(outer).around(Inner(Arc::clone(&log), "inner")), op, &params);
        assert_eq!(hooked, plain);
        let ran = [format!("outer {seen}"), "inner outer".into(), format!("handler inner{handled}"), "outer ends".into()];
        assert_eq!(log.take(), ran, "{params}");
    }
    let hooked = whole(&log).around(outer);
    let outcome = run_method(hooked, "acme/do");
    assert_eq!(outcome, Ok(json!({"it": "done"})));
    let noted = log.take();
    assert!(noted.first().is_some_and(|seen| seen.starts_with(r#"outer method acme/do {"a":1,"#)), "{noted:?}");
    assert_eq!(noted.get(1..), Some(["handler outer".into(), "outer ends".into()].as_slice()));
}

/// The result of a method, or the message of its error.
fn run_method(service: Service, method: &str) -> Result<Value, String> {
    use crate::Endpoint;
    use crate::testing::{Executor, connect};
    use protocol_core::{Config, Identity};

    let executor = Executor::new();
    let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
    let peer = client.peer();
    connect(&executor, Endpoint::server(Arc::new(service), executor.runtime()), client);
    let invoke = Invoke::custom(method, json(json!({"a": 1})));
    let answered = executor.block_on(peer.call(invoke).unwrap()).unwrap().result();
    answered.map(|result| value(&result)).map_err(|error| error.to_string())
}

#[test]
fn what_reaches_no_handler_passes_no_hook() {
    let log = Arc::new(Log::default());
    let mut needs = protocol_core::dialect::Capabilities::default();
    needs.roots = true;
    let hooked = || Arc::new(whole(&log).around(outer).tool(Tool::new("needs", tool).needs(needs)));
    let request =
        |op, params| Harness::new(hooked()).configure(|config| config.capabilities.roots = false).request(op, json(params));
    for (op, params) in [
        (Op::ListTools, json!({})),
        (Op::CallTool, json!({"name": "unknown"})),
        (Op::CallTool, json!({"name": "needs"})),
        (Op::GetPrompt, json!({"name": "unknown"})),
        (Op::ReadResource, json!({"uri": "unknown:"})),
    ] {
        assert!(request(op, params).outcome().is_some());
        assert!(log.take().is_empty(), "{op:?}");
    }
}

#[test]
fn a_hook_answers_and_refuses_in_place_of_the_handler() {
    let log = Arc::new(Log::default());
    async fn answers(request: HookRequest, _: Next) -> Result<HookResponse> {
        Ok(match request.kind() {
            HandlerKind::Tool => ToolOutput::text("cached").into(),
            HandlerKind::Resource => ResourceContents::text("cached").into(),
            kind => return Err(ToolError::failed(format_args!("no {kind}"))),
        })
    }
    async fn forbids(_: HookRequest, _: Next) -> Result<HookResponse> {
        Err(RpcError::new(-32001, "forbidden").into())
    }
    for tool in ["task", "inline", "blocking"] {
        assert_eq!(call(whole(&log).around(answers), tool).text(), "cached");
        assert_eq!(call(whole(&log).around(forbids), tool).error().map(|error| error.code), Some(-32001));
    }
    let read = |service| value(&Harness::new(service).request(Op::ReadResource, json(json!({"uri": "r:"}))).result());
    // The URI and the type of the resource are set as for contents of its handler.
    let contents = json!({"uri": "r:", "mimeType": "text/plain", "text": "cached"});
    assert_eq!(read(whole(&log).around(answers))["contents"][0], contents);
    let refused = Harness::new(whole(&log).around(answers)).get_prompt("p", &BTreeMap::new());
    assert_eq!(refused.error().map(|error| &*error.message), Some("no prompt"));
    assert!(log.take().is_empty());
}

#[test]
fn a_hook_that_answers_for_another_kind_or_passes_on_another_request_is_an_error_that_says_so() {
    let log = Arc::new(Log::default());
    async fn other_kind(_: HookRequest, _: Next) -> Result<HookResponse> {
        Ok(PromptOutput::default().into())
    }
    #[derive(Default)]
    struct Earlier(Mutex<Option<HookRequest>>);
    async fn earlier(State(earlier): State<Earlier>, request: HookRequest, next: Next) -> Result<HookResponse> {
        let request = earlier.0.lock().unwrap().replace(request.clone()).unwrap_or(request);
        next.run(request).await
    }
    async fn arguments(request: HookRequest, next: Next) -> Result<HookResponse> {
        next.run(request.with_arguments(Json::empty_object())).await
    }
    let message = |run: &Run| run.error().map(|error| error.message.to_string());
    let run = call(whole(&log).around(other_kind), "task");
    assert_eq!(message(&run).unwrap(), "a hook has answered a request for a tool with the result of a prompt");
    let service = Arc::new(whole(&log).state(Earlier::default()).around(earlier));
    let again = || Harness::new(Arc::clone(&service)).call_tool("task", Json::empty_object());
    assert_eq!(again().text(), "done");
    assert_eq!(message(&again()).unwrap(), "a hook has passed on the request of another call");
    let read = Harness::new(whole(&log).around(arguments)).request(Op::ReadResource, json(json!({"uri": "r:"})));
    assert_eq!(message(&read).unwrap(), "a hook has given arguments to a resource, which has none");
}

/// Fails for odd numbers.
async fn even(State(log): Logged, given: BTreeMap<String, u32>) -> Result<String> {
    log.note(format!("{given:?}"));
    let number = given.get("n").copied().unwrap_or_default();
    if number % 2 == 1 { Err(std::io::Error::other("odd"))? } else { Ok(number.to_string()) }
}

#[test]
fn a_hook_sees_the_error_of_the_handler_and_runs_it_again_with_other_arguments() {
    async fn repeats(request: HookRequest, next: Next) -> Result<HookResponse> {
        match next.run(request.clone()).await {
            Err(error) if error.source_as::<std::io::Error>().is_some() => {
                next.run(request.with_arguments(json(json!({"n": 4})))).await
            }
            answered => answered,
        }
    }
    for made in [Tool::new("even", even), Tool::new("even", even).inline()] {
        let log = Arc::new(Log::default());
        let hooked = service().state(Arc::clone(&log)).tool(made).around(repeats);
        let run = Harness::new(hooked).call_tool("even", json(json!({"n": 3})));
        assert_eq!(run.text(), "4");
        assert_eq!(log.take(), [r#"{"n": 3}"#, r#"{"n": 4}"#]);
    }
}

#[test]
fn arguments_are_checked_after_the_hooks() {
    async fn gives(request: HookRequest, next: Next) -> Result<HookResponse> {
        let response = next.run(request.clone()).await?;
        let HookResponse::Tool(output) = &response else { return Ok(response) };
        if output.is_error { next.run(request.with_arguments(json(json!({"n": 2})))).await } else { Ok(response) }
    }
    let log = Arc::new(Log::default());
    let hooked = service().state(Arc::clone(&log)).tool(Tool::new("even", even)).around(gives);
    assert_eq!(Harness::new(hooked).call_tool("even", json(json!({"n": "two"}))).text(), "2");
    assert_eq!(log.take(), [r#"{"n": 2}"#]);
    let prompt = Prompt::new("p", prompt).argument("a", "an argument", true);
    async fn fills(request: HookRequest, next: Next) -> Result<HookResponse> {
        next.run(request.with_arguments(json(json!({"a": "b"})))).await
    }
    let hooked = service().state(log).prompt(prompt).around(fills);
    assert!(matches!(Harness::new(hooked).get_prompt("p", &BTreeMap::new()).outcome(), Some(Outcome::Result(_))));
}

#[test]
fn a_hook_that_panics_or_never_returns_is_a_handler_that_does() {
    async fn panics(_: HookRequest, _: Next) -> Result<HookResponse> {
        panic!("on purpose")
    }
    async fn waits(_: HookRequest, _: Next) -> Result<HookResponse> {
        core::future::pending().await
    }
    async fn passes(request: HookRequest, next: Next) -> Result<HookResponse> {
        next.run(request).await
    }
    async fn panicking(_: Context, (): ()) -> Result<()> {
        panic!("on purpose")
    }
    fn blocking_panic(_: Context, (): ()) -> Result<()> {
        panic!("on purpose")
    }
    let log = Arc::new(Log::default());
    let more = || {
        let more = whole(&log).tool(Tool::new("panics", panicking)).tool(Tool::blocking("blocking panic", blocking_panic));
        more.configure(|config| config.timeouts.serve = Some(ms(50)))
    };
    let panicked = |run: &Run| (run.error().unwrap().message.to_string(), run.counters.panics);
    for run in [
        call(more().around(panics), "task"),
        call(more().around(panics), "inline"),
        call(more().around(panics), "blocking"),
        call(more().around(passes), "panics"),
        call(more().around(passes), "blocking panic"),
    ] {
        assert_eq!(panicked(&run), ("internal error: the handler panicked".into(), 1));
    }
    for tool in ["task", "inline", "blocking"] {
        let run = call(more().around(waits), tool);
        assert_eq!(run.done.as_ref().map(|(at, _)| *at), Some(ms(50)), "the deadline of the call");
        assert_eq!(run.counters.abandoned, 1);
    }
    assert!(log.take().is_empty());
}

#[test]
fn a_cancel_drops_the_handler_with_its_hooks() {
    struct Dropped(Arc<Log>, &'static str);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.note(self.1);
        }
    }
    async fn holds(log: Logged, request: HookRequest, next: Next) -> Result<HookResponse> {
        let _held = Dropped(Arc::clone(&log), "hook");
        next.run(request).await
    }
    async fn waits(log: Logged, (): ()) -> Result<()> {
        let _held = Dropped(Arc::clone(&log), "handler");
        core::future::pending().await
    }
    let log = Arc::new(Log::default());
    let hooked = service().state(Arc::clone(&log)).tool(Tool::new("waits", waits)).around(holds);
    let run = Harness::new(hooked).cancel_after(ms(5)).call_tool("waits", Json::empty_object());
    assert_eq!(run.counters.abandoned, 1);
    assert_eq!(log.take(), ["handler", "hook"]);
}

#[test]
fn a_hook_that_gives_up_a_handler_drops_it() {
    struct Within(Duration);
    impl Hook for Within {
        async fn call(&self, request: HookRequest, next: Next) -> Result<HookResponse> {
            let context = request.context().clone();
            context.with_timeout(next.run(request), self.0).await?
        }
    }
    async fn waits(_: Context, (): ()) -> Result<()> {
        core::future::pending().await
    }
    let run = call(service().tool(Tool::new("waits", waits)).around(Within(ms(20))), "waits");
    assert_eq!((run.text().as_str(), run.ended, run.counters.abandoned), ("a step took too long", Some(ms(20)), 0));
}

#[test]
fn the_entries_of_a_merged_service_keep_its_hooks_and_states_inside_those_of_the_other() {
    async fn named(State(name): State<&'static str>, log: Logged, request: HookRequest, next: Next) -> Result<HookResponse> {
        log.note(format!("{} {}", *name, request.name()));
        next.run(request).await
    }
    let log = Arc::new(Log::default());
    let part = |name: &'static str| {
        let part = Service::new(name, "1").state(name).state(Arc::clone(&log)).tool(Tool::new("even", even));
        part.prompt(Prompt::new("p", prompt).argument("a", "an argument", false)).completion(completion)
    };
    let inner = part("inner").merge("leaf_", part("leaf").around(named)).around(named);
    let all = Arc::new(part("all").around(named).merge("in_", inner));
    for (tool, hooks) in [("even", 1), ("in_even", 2), ("in_leaf_even", 3)] {
        assert_eq!(Harness::new(Arc::clone(&all)).call_tool(tool, Json::empty_object()).text(), "0");
        let mut noted = log.take();
        noted.truncate(hooks);
        let names = ["all", "inner", "leaf"].map(|name| format!("{name} {tool}"));
        assert_eq!(noted, names[..hooks]);
    }
    let complete = json!({"ref": {"type": "ref/prompt", "name": "in_leaf_p"}, "argument": {"name": "a", "value": "v"}});
    let completed = Harness::new(all).request(Op::Complete, json(complete));
    assert!(completed.error().is_none());
    assert_eq!(log.take(), ["all in_leaf_p", "inner in_leaf_p", "leaf in_leaf_p", "handler none v"]);
}

#[test]
fn a_hook_whose_state_is_missing_or_that_comes_too_late_is_refused_by_its_name() {
    async fn takes(_: State<u8>, request: HookRequest, next: Next) -> Result<HookResponse> {
        next.run(request).await
    }
    let refused = service().around(takes).check().unwrap_err();
    assert_eq!(refused.kind, "hook");
    assert!(refused.name.ends_with("takes") && refused.reason.contains("`State<u8>`"), "{refused}");
    assert!(service().state(1_u8).around(takes).check().is_ok());
    let shared = service().state(1_u8);
    let _ = shared.config();
    let panic = catch_unwind(AssertUnwindSafe(|| shared.around(takes))).map(drop).expect_err("a panic");
    assert!(panic.downcast_ref::<String>().is_some_and(|text| text.ends_with("takes`: the service is shared already")));
}

#[cfg(feature = "seal")]
#[test]
fn a_hook_runs_with_each_run_of_the_handler_and_is_told_which_repeat_and_may_ask_itself() {
    use crate::testing::every_round;
    use protocol_core::dialect::{ElicitResult, InputResponse};

    #[derive(Default)]
    struct Counts {
        calls: AtomicUsize,
        runs: AtomicUsize,
    }
    async fn counts(counts: State<Arc<Counts>>, request: HookRequest, next: Next) -> Result<HookResponse> {
        counts.runs.fetch_add(1, Ordering::Relaxed);
        counts.calls.fetch_add(usize::from(!request.context().is_repeat()), Ordering::Relaxed);
        next.run(request).await
    }
    async fn confirms(request: HookRequest, next: Next) -> Result<HookResponse> {
        match request.context().confirm("May it?").await {
            true => next.run(request).await,
            false => Err(ToolError::failed("the user does not want it")),
        }
    }
    async fn asks(context: Context, (): ()) -> Result<bool> {
        Ok(context.confirm("Sure?").await)
    }
    let counted = Arc::new(Counts::default());
    let served = || {
        let asks = Tool::new("asks", asks);
        Service::new("s", "1").state(Arc::clone(&counted)).tool(asks).around(counts).around(confirms)
    };
    let agree = |_: &_| InputResponse::Elicit(ElicitResult::Accept(Json::empty_object()));
    let rounds = every_round(served, "asks", &Json::empty_object(), agree);
    assert_eq!(rounds.rounds, 2);
    // One call with a handshake; and two without, each with three requests, which are sent once more.
    let (calls, runs) = (counted.calls.load(Ordering::Relaxed), counted.runs.load(Ordering::Relaxed));
    assert_eq!((calls, runs), (1 + 2 * 2, 1 + 2 * 3 * 2));
}
