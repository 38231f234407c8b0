//! Input requests of handlers, and their answers.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{harness, json as text, ms, run, service, value};
use crate::testing::{Executor, Harness, Pipe, connect, pipe};
use crate::{AskFailed, BoxFuture, Client, Context, Endpoint, Extensions, InputContext, Service, Tool, ToolError};
use protocol_core::config::Config;
use protocol_core::dialect::{Capabilities, Elicit, ElicitResult, Identity, InputRequest, InputResponse, Sample, SampleResult};
use protocol_core::drive::Machine as _;
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::{ExchangeId, Lane, OutboundId, Outcome};

fn sampled(text: &str) -> InputResponse {
    InputResponse::Sample(SampleResult::new(text, "model"))
}

/// A tool that returns the answer to its input request, or the code and the text of the error.
fn asker<T, F, Fut>(ask: F) -> Tool
where
    T: Serialize + JsonSchema + Send + 'static,
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, AskFailed>> + Send + 'static,
{
    let ask = Arc::new(ask);
    Tool::with_content("asks", move |context: Context, (): ()| {
        let ask = Arc::clone(&ask);
        async move {
            Ok(protocol_core::ToolOutput::text(match ask(context).await {
                Ok(answer) => serde_json::to_string(&answer).unwrap(),
                Err(failed) => format!("{} {failed}", failed.code()),
            }))
        }
    })
}

/// Calls the tool of [`asker`], and returns the text of its result.
fn ask(harness: Harness) -> String {
    harness.call_tool("asks", Json::empty_object()).text()
}

fn samples() -> Tool {
    asker(async |context: Context| context.sample(Sample::new("why?")).await.map(|sampled| sampled.text))
}

#[test]
fn the_error_for_an_answer_of_the_wrong_shape_names_the_fault() {
    const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
    let asks = || {
        asker(async |context: Context| {
            context.elicit(Elicit::new("Who?", Json::parse(FORM).unwrap())).await.map(|content| content.is_some())
        })
    };
    for (content, why) in [
        (json!({}), "name is missing"),
        (json!({"name": 5}), "name must be text"),
        (json!({"name": "x", "age": 5}), r#""age" was not asked for"#),
    ] {
        let answer = InputResponse::Elicit(ElicitResult::Accept(text(content)));
        assert_eq!(ask(harness(asks()).answer(answer)), format!("-32005 the answer does not fit: {why}"));
    }
}

#[test]
fn a_handler_gets_the_answer_of_the_model() {
    let run = harness(samples()).answer(sampled("because")).call_tool("asks", Json::empty_object());
    assert_eq!(run.text(), r#""because""#);
    assert!(matches!(&run.asks[..], [(_, InputRequest::Sample(sample))] if sample.prompt == "why?"));
}

#[test]
fn a_missing_capability_is_an_error_before_anything_is_sent() {
    let without = |tool| harness(tool).configure(|config| config.capabilities = Capabilities::default());
    assert_eq!(ask(without(samples())), "-32006 the caller does not offer sampling");
    let elicits = asker(async |context: Context| context.elicit_typed::<Form>("who?").await.map(|form| form.is_some()));
    assert_eq!(ask(without(elicits)), "-32007 the caller does not offer elicitation");
    let roots = asker(async |context: Context| context.roots().await.map(|roots| roots.to_string()));
    assert_eq!(ask(without(roots)), "-32601 the caller does not offer roots");
}

#[test]
fn a_handler_gets_the_code_of_the_error_with_which_its_caller_refused() {
    let refusal = InputResponse::Refused(RpcError::new(-1, "rejected by the user"));
    assert_eq!(ask(harness(samples()).answer(refusal)), "-1 the caller refused: rejected by the user (-1)");
}

#[derive(Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
struct Form {
    /// The name.
    name: String,
    #[serde(default)]
    age: Option<u8>,
    colour: Colour,
}

// The schema of a choice with a doc comment differs from that of a choice without one.
#[derive(Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Colour {
    /// Like blood.
    Red,
    Blue,
}

#[test]
fn a_typed_sample_is_read_from_the_answer_and_checked() {
    let typed = || asker(async |context: Context| context.sample_typed::<Form>("who?").await);
    let good = r#"{"name":"Ada","age":36,"colour":"red"}"#;
    assert_eq!(ask(harness(typed()).answer(sampled(good))), good);
    assert_eq!(ask(harness(typed()).answer(sampled(&format!("```json\n{good}\n```")))), good);
    assert_eq!(ask(harness(typed()).answer(sampled("I am Ada."))), "-32005 the answer does not fit: its text is no JSON");
    let wrong = ask(harness(typed()).answer(sampled(r#"{"name":"Ada","age":-1,"colour":"red"}"#)));
    assert!(wrong.starts_with("-32005 the answer does not fit: /age: "), "{wrong}");
    let run = harness(typed()).answer(sampled(good)).call_tool("asks", Json::empty_object());
    let (_, InputRequest::Sample(sample)) = &run.asks[0] else { panic!("{:?}", run.asks) };
    assert!(sample.prompt.starts_with("who?") && sample.prompt.contains(r#""colour""#), "no schema: {}", sample.prompt);
}

#[test]
fn a_form_is_made_from_the_type_and_its_answer_is_checked() {
    let typed = || asker(async |context: Context| context.elicit_typed::<Form>("who?").await);
    let accept = |content| InputResponse::Elicit(ElicitResult::Accept(text(content)));
    let run = harness(typed()).answer(accept(json!({"name": "Ada", "colour": "blue"}))).call_tool("asks", Json::empty_object());
    assert_eq!(run.text(), r#"{"name":"Ada","age":null,"colour":"blue"}"#);
    let (_, InputRequest::Elicit(form)) = &run.asks[0] else { panic!("{:?}", run.asks) };
    assert_eq!(
        value(&form.schema),
        json!({"type": "object", "required": ["name", "colour"], "properties": {
            "name": {"type": "string", "description": "The name."},
            "age": {"type": "integer", "minimum": 0, "maximum": 255},
            "colour": {"type": "string", "enum": ["blue", "red"]}}})
    );
    for without_content in [ElicitResult::Decline, ElicitResult::Cancel] {
        assert_eq!(ask(harness(typed()).answer(InputResponse::Elicit(without_content))), "null");
    }
    let wrong = ask(harness(typed()).answer(accept(json!({"name": "Ada", "colour": "green"}))));
    assert!(wrong.starts_with("-32005 "), "{wrong}");
}

#[test]
fn the_choices_of_an_optional_field_of_a_form_do_not_include_null() {
    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Order {
        size: Option<Size>,
    }
    #[derive(Deserialize, Serialize, JsonSchema)]
    enum Size {
        Small,
        Large,
    }
    let typed = asker(async |context: Context| context.elicit_typed::<Order>("which?").await);
    let answer = InputResponse::Elicit(ElicitResult::Accept(text(json!({"size": "Large"}))));
    let run = harness(typed).answer(answer).call_tool("asks", Json::empty_object());
    assert_eq!(run.text(), r#"{"size":"Large"}"#);
    let (_, InputRequest::Elicit(form)) = &run.asks[0] else { panic!("{:?}", run.asks) };
    let size = &value(&form.schema)["properties"]["size"];
    assert_eq!(*size, json!({"type": "string", "enum": ["Small", "Large"]}));
}

#[test]
fn a_type_that_has_no_form_is_refused_and_the_field_is_named() {
    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Deep {
        name: String,
        place: Form,
    }
    let deep = asker(async |context: Context| context.elicit_typed::<Deep>("where?").await);
    let run = harness(deep).call_tool("asks", Json::empty_object());
    assert_eq!(run.text(), "-32602 the input request is not valid: field `place` is an object, which has no place in a form");
    assert_eq!(run.asks.len(), 0);
    let list = asker(async |context: Context| context.elicit_typed::<Vec<String>>("what?").await);
    assert_eq!(ask(harness(list)), "-32602 the input request is not valid: a form is made from a struct with named fields");
    let raw = asker(async |context: Context| {
        let nested = r#"{"type":"object","properties":{"a":{"type":"object"}}}"#;
        context.elicit(Elicit::new("raw", Json::parse(nested).unwrap())).await.map(|content| content.is_some())
    });
    assert!(ask(harness(raw)).starts_with("-32602 "));
}

#[test]
fn confirm_returns_false_for_every_answer_but_yes_and_for_every_failure() {
    let tool = || Tool::new("asks", async |context: Context, (): ()| Ok(context.confirm("Delete?").await));
    let yes = r#"{"result":true}"#;
    let no = r#"{"result":false}"#;
    let answer = |answer| ask(harness(tool()).answer(answer));
    assert_eq!(answer(InputResponse::Elicit(ElicitResult::Accept(Json::empty_object()))), yes);
    assert_eq!(answer(InputResponse::Elicit(ElicitResult::Decline)), no);
    assert_eq!(answer(InputResponse::Elicit(ElicitResult::Cancel)), no);
    assert_eq!(answer(InputResponse::Refused(RpcError::internal("broken"))), no);
    assert_eq!(ask(harness(tool()).configure(|config| config.capabilities.elicitation = false)), no);
    let never = harness(tool()).answer_with(|_| None).call_tool("asks", Json::empty_object());
    assert_eq!(never.text(), no);
    assert_eq!(never.ended, Some(Duration::from_secs(600)), "no answer came in time");
}

/// The frames that have arrived at `near`.
fn frames(near: &mut Pipe) -> Vec<Value> {
    core::iter::from_fn(|| near.try_recv()).map(|frame| value(&Json::parse(frame).unwrap())).collect()
}

#[test]
fn an_input_request_that_its_handler_drops_is_cancelled() {
    let tool = Tool::new("asks", async |context: Context, (): ()| {
        let asked = context.with_timeout(context.sample(Sample::new("slow?")), ms(100)).await;
        assert!(asked.is_err());
        context.sleep(ms(100)).await?;
        Ok(context.confirm("Go on?").await)
    });
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service().tool(tool)), executor.runtime());
    let (mut near, far) = pipe();
    let driven = crate::drive(server, far, executor.timer());
    executor.spawn(async move {
        let _ = driven.await;
    });
    for frame in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"asks"}}"#,
    ] {
        near.send(frame.into()).unwrap();
    }
    executor.run_for(ms(99));
    let begun = frames(&mut near);
    let [_, sample] = &begun[..] else { panic!("{begun:?}") };
    assert_eq!(sample["method"], "sampling/createMessage");
    executor.run_for(ms(1));
    let dropped = frames(&mut near);
    let [cancel] = &dropped[..] else { panic!("{dropped:?}") };
    assert_eq!((&cancel["method"], &cancel["params"]["requestId"]), (&json!("notifications/cancelled"), &sample["id"]));
    executor.run_for(ms(100));
    let asked = frames(&mut near);
    let [confirm] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(confirm["method"], "elicitation/create");
    let yes = json!({"jsonrpc": "2.0", "id": confirm["id"], "result": {"action": "accept", "content": {}}});
    near.send(yes.to_string().into()).unwrap();
    executor.run_until_stalled();
    let ended = frames(&mut near);
    let [result] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((&result["id"], &result["result"]["structuredContent"]), (&json!(2), &json!({"result": true})));
}

#[test]
fn an_input_request_of_a_cancelled_handler_ends_at_once() {
    let saw = Arc::new(Mutex::new(None));
    let inside = Arc::clone(&saw);
    let tool = Tool::new("asks", move |context: Context, (): ()| {
        let inside = Arc::clone(&inside);
        async move {
            *inside.lock().unwrap() = Some(context.sample(Sample::new("why?")).await.unwrap_err().code());
            Ok(())
        }
    });
    let run = harness(tool).answer_with(|_| None).cancel_after(ms(50)).call_tool("asks", Json::empty_object());
    assert_eq!(*saw.lock().unwrap(), Some(RpcError::CANCELLED));
    assert_eq!(run.ended, Some(ms(50)));
}

#[test]
fn the_end_of_input_ends_an_open_input_request_at_once() {
    let saw = Arc::new(Mutex::new(None));
    let inside = Arc::clone(&saw);
    let tool = Tool::new("asks", move |context: Context, (): ()| {
        let inside = Arc::clone(&inside);
        async move {
            *inside.lock().unwrap() = Some(context.sample(Sample::new("why?")).await);
            Ok(())
        }
    });
    let run = harness(tool).answer_with(|_| None).disconnect_after(ms(50)).call_tool("asks", Json::empty_object());
    assert_eq!(*saw.lock().unwrap(), Some(Err(AskFailed::Lost)));
    assert_eq!(run.ended, Some(ms(50)));
    assert_eq!(run.outcome(), Some(&Outcome::Lost));
}

/// A client that records to which call each input request belongs.
struct Parents(Arc<Mutex<Vec<Option<OutboundId>>>>);

impl Client for Parents {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        can.sampling = true;
        can
    }

    fn sample(&self, asked: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        self.0.lock().unwrap().push(asked.parent());
        Box::pin(async { Ok(SampleResult::new("so", "model")) })
    }
}

#[test]
fn an_input_request_belongs_to_the_call_on_whose_stream_it_comes() {
    const WELCOME: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;
    const QUESTION: &str = r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    let executor = Executor::new();
    let parents = Arc::new(Mutex::new(Vec::new()));
    let config = Config::mcp_client(Identity::new("client", "1"));
    let mut client = Endpoint::client(Arc::new(Parents(Arc::clone(&parents))), config, executor.runtime());
    let peer = client.peer();
    let _calls = [(); 2].map(|()| peer.call_tool("wait", Json::empty_object()).unwrap());
    while client.poll_transmit().is_some() {}
    client.handle_frame_by(WELCOME.into(), Lane::CHANNEL, Extensions::new(), executor.now()).unwrap();
    for stream in [Some(2), Some(3), None] {
        while client.poll_transmit().is_some() {}
        let exchange = stream.map(ExchangeId::from_number);
        client.handle_frame_within(QUESTION.into(), Lane::CHANNEL, exchange, executor.now()).unwrap();
        executor.run_until_stalled();
    }
    let parents = parents.lock().unwrap();
    assert!(parents[0].is_some() && parents[0] != parents[1], "{parents:?}");
    assert_eq!(parents[1], parents[2], "without a stream, the newest call");
}

/// A client whose model calls the tool `nest` once more before it answers.
struct Nests {
    depths: Arc<Mutex<Vec<u8>>>,
}

impl Client for Nests {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        can.sampling = true;
        can
    }

    fn sample(&self, asked: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        self.depths.lock().unwrap().push(asked.depth());
        Box::pin(async move {
            assert!(asked.parent().is_some());
            let call = asked.call_tool("nest", Json::empty_object()).map_err(|error| RpcError::internal(error.to_string()))?;
            let result = call.await.result().map_err(|error| RpcError::internal(error.to_string()))?;
            Ok(SampleResult::new(result.to_string(), "nested"))
        })
    }
}

fn nest() -> Service {
    service().tool(Tool::with_content("nest", async |context: Context, (): ()| {
        let depth = context.depth();
        let below = match context.sample(Sample::new("deeper")).await {
            Ok(sampled) => sampled.text,
            Err(failed) => failed.to_string(),
        };
        Ok::<_, ToolError>(protocol_core::ToolOutput::text(format!("{depth}: {below}")))
    }))
}

#[test]
fn the_depth_of_nested_sampling_is_counted_and_limited_to_three() {
    let executor = Executor::new();
    let depths = Arc::new(Mutex::new(Vec::new()));
    let client = Nests { depths: Arc::clone(&depths) };
    let server = Endpoint::server(Arc::new(nest()), executor.runtime());
    let client = Endpoint::client(Arc::new(client), Config::mcp_client(Identity::new("nests", "1")), executor.runtime());
    let peer = client.peer();
    connect(&executor, server, client);
    let call = peer.call_tool("nest", Json::empty_object()).unwrap();
    let done = executor.block_on(call).unwrap();
    assert_eq!(*depths.lock().unwrap(), [1, 2, 3]);
    let text = done.result().unwrap().to_string();
    assert!(text.contains("0: ") && text.contains("3: sampling would be nested 4 deep; the maximum is 3"), "{text}");
}

#[test]
fn a_panic_of_a_client_is_an_error_and_the_future_of_a_cancelled_input_request_is_dropped() {
    struct Odd(Arc<()>);
    impl Client for Odd {
        fn capabilities(&self) -> Capabilities {
            let mut can = Capabilities::default();
            (can.sampling, can.elicitation) = (true, true);
            can
        }
        fn sample(&self, _: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
            panic!("no model")
        }
        fn elicit(&self, _: InputContext, _: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
            let token = Arc::clone(&self.0);
            Box::pin(async move {
                let _token = token;
                core::future::pending().await
            })
        }
    }
    let tool = Tool::new("asks", async |context: Context, (): ()| {
        let failed = context.sample(Sample::new("why?")).await.unwrap_err();
        let asked = context.with_timeout(context.confirm("Sure?"), ms(100)).await;
        assert!(asked.is_err());
        context.sleep(ms(100)).await?;
        Ok(failed.code())
    });
    let executor = Executor::new();
    let token = Arc::new(());
    let server = Endpoint::server(Arc::new(service().tool(tool)), executor.runtime());
    let config = Config::mcp_client(Identity::new("odd", "1"));
    let client = Endpoint::client(Arc::new(Odd(Arc::clone(&token))), config, executor.runtime());
    let peer = client.peer();
    connect(&executor, server, client);
    let done = executor.block_on(peer.call_tool("asks", Json::empty_object()).unwrap()).unwrap();
    assert_eq!(done.result().unwrap().member("structuredContent").unwrap().as_str(), r#"{"result":-32603}"#);
    assert_eq!(Arc::strong_count(&token), 2, "the form's future was dropped");
    assert_eq!(peer.counters().panics, 1);
}

#[test]
fn a_handler_gets_the_identity_and_the_capabilities_of_its_caller() {
    let run = run(Tool::new("who", async |context: Context, (): ()| {
        let offers = context.capabilities();
        Ok((context.client().name, context.client().version, offers.sampling && offers.roots, context.depth()))
    }));
    assert_eq!(run.text(), r#"{"result":["harness","1",true,0]}"#);
}

#[test]
fn a_handler_gets_the_roots_of_its_caller() {
    let roots = r#"[{"uri":"file:///a"}]"#;
    let run = harness(Tool::new("asks", async |context: Context, (): ()| Ok(context.roots().await?.to_string())))
        .answer(InputResponse::Roots(Json::parse(roots).unwrap()))
        .call_tool("asks", Json::empty_object());
    assert_eq!(run.text(), roots);
}
